//! The state of the app for other threads, and new keys by command.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bellows_engine::{Conversation, RequestError, Status};
use bellows_esp::{Algorithm, Implementation};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::config::{Direction, Limits, Mode};
use super::keyring::{NewKeys, Running};
use super::plan::{Plan, Spec, Way};
use super::{Esp, SECOND};

/// How long a command waits for the app.
const PATIENCE: Duration = Duration::from_secs(5);

/// What the app and other threads share. It outlives reloads.
#[derive(Default)]
pub(super) struct Shared {
    published: Mutex<Vec<PairState>>,
    changes: Mutex<Vec<Change>>,
    /// The number of the next change.
    next: AtomicU64,
}

/// New keys for a pair.
pub(super) struct Change {
    /// Tells the change from others.
    number: u64,
    pub(super) pair: String,
    pub(super) keys: NewKeys,
    pub(super) answer: Sender<Result<(), String>>,
}

/// The state of a pair. It has no keys.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct PairState {
    pair: String,
    local: String,
    remote: String,
    mode: Mode,
    udp: bool,
    inbound: DirectionState,
    outbound: DirectionState,
    /// Associations that receive and were replaced.
    old: usize,
}

/// The state of one direction.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct DirectionState {
    spi: u32,
    algorithm: &'static str,
    esn: bool,
    /// The highest sequence number so far.
    sequence: u64,
    packets: u64,
    bytes: u64,
    seconds: f64,
    soft: Limits,
    hard: Limits,
    /// Packets of the replay window.
    #[serde(skip_serializing_if = "Option::is_none")]
    window: Option<u32>,
    /// The failures after which higher upper halves of sequence numbers are tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    resync_after: Option<u32>,
    /// How often the upper half of the sequence number was found again.
    #[serde(skip_serializing_if = "Option::is_none")]
    resyncs: Option<u64>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// Takes the new keys that wait for the app. Never waits.
    pub(super) fn take_changes(&self) -> Vec<Change> {
        self.changes.try_lock().map(|mut changes| std::mem::take(&mut *changes)).unwrap_or_default()
    }

    /// Has the app carry out a change, and waits for that. What it has not taken in time is not carried out later.
    fn carry_out(&self, pair: &str, keys: NewKeys) -> Result<(), RequestError> {
        let (answer, answered) = channel();
        let number = self.next.fetch_add(1, Relaxed);
        lock(&self.changes).push(Change { number, pair: pair.to_owned(), keys, answer });
        let in_time = answered.recv_timeout(PATIENCE).or_else(|_| {
            lock(&self.changes).retain(|change| change.number != number);
            // The app may have taken it just before; then it answers at once.
            answered.recv()
        });
        in_time.map_err(|_| {
            let seconds = PATIENCE.as_secs();
            RequestError::failure(format!(
                "the app did not take the new keys within {seconds} s, and they are not in use; is the network busy?"
            ))
        })?.map_err(RequestError::mistake)
    }
}

impl Status for Shared {
    fn status(&self) -> Value {
        let cipher = Implementation::available().first().map(|implementation| implementation.instructions());
        json!({ "pairs": *lock(&self.published), "instructions": cipher })
    }

    fn converse(self: Arc<Self>) -> Option<Box<dyn Conversation>> {
        Some(Box::new(Talk(self)))
    }
}

impl Esp {
    /// Publishes the state, unless somebody reads it just now.
    pub(super) fn publish(&mut self, now: u64) {
        let Ok(mut published) = self.shared.published.try_lock() else { return };
        let mut old_receivers = BTreeMap::new();
        for pair in self.keyring.associations.old_receivers() {
            *old_receivers.entry(pair).or_insert(0) += 1;
        }
        published.clear();
        for ((name, (addresses, association)), pair) in self.names.iter().zip(&self.associations).zip(&self.pairs) {
            let Some(Running { id, current, ages, .. }) = self.keyring.running.get(name) else { continue };
            let associations = &mut self.keyring.associations;
            let seconds = ages.map(|age| age.since.map_or(0.0, |since| (now - since) as f64 / SECOND as f64));
            let old = old_receivers.get(id).copied().unwrap_or(0);
            let mut states =
                [Way::Inbound, Way::Outbound].map(|way| state(&current[way as usize], seconds[way as usize]));
            if let Some(inbound) = associations.current_inbound(*id) {
                let state = &mut states[Way::Inbound as usize];
                (state.sequence, state.packets, state.bytes) =
                    (inbound.last_sequence(), inbound.used().packets, inbound.used().bytes);
                let spec = &current[Way::Inbound as usize];
                (state.window, state.resync_after) = (Some(spec.window), Some(spec.resync_after));
                state.resyncs = Some(inbound.resyncs());
            }
            if let Some(outbound) = associations.outbound(*id) {
                let state = &mut states[Way::Outbound as usize];
                (state.sequence, state.packets, state.bytes) =
                    (outbound.last_sequence(), outbound.used().packets, outbound.used().bytes);
            }
            let [inbound, outbound] = states;
            let (local, remote) = pair_texts(addresses);
            let (mode, udp) = (association.mode, pair.udp.is_some());
            published.push(PairState { pair: name.clone(), local, remote, mode, udp, inbound, outbound, old });
        }
    }
}

fn pair_texts(addresses: &bellows_wire::IpPair) -> (String, String) {
    match addresses {
        bellows_wire::IpPair::V4 { src, dst } => (src.to_string(), dst.to_string()),
        bellows_wire::IpPair::V6 { src, dst } => (src.to_string(), dst.to_string()),
    }
}

/// The state of a direction that has carried nothing.
fn state(spec: &Spec, seconds: f64) -> DirectionState {
    DirectionState {
        spi: spec.spi.get(),
        algorithm: spec.algorithm.name(),
        esn: spec.is_extended,
        sequence: 0,
        packets: 0,
        bytes: 0,
        seconds,
        soft: spec.soft,
        hard: spec.hard,
        window: None,
        resync_after: None,
        resyncs: None,
    }
}

/// A request: `{"rekey": {"pair": NAME, "inbound": {…}, "outbound": {…}}}`, with the keys of a direction in a network
/// file, of which `key_file` is not one.
#[derive(Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
enum Request {
    Rekey(Rekey),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rekey {
    pair: String,
    #[serde(default)]
    inbound: Option<Direction>,
    #[serde(default)]
    outbound: Option<Direction>,
}

/// The requests of one client.
struct Talk(Arc<Shared>);

impl Conversation for Talk {
    fn answer(&mut self, request: Value) -> Result<Value, RequestError> {
        let Request::Rekey(Rekey { pair, inbound, outbound }) =
            Request::deserialize(&request).map_err(|_| RequestError::mistake(mistake(&request)))?;
        if inbound.is_none() && outbound.is_none() {
            return Err(RequestError::mistake(
                "there are no new keys; give those of `inbound`, of `outbound`, or both",
            ));
        }
        let plan = |direction: Option<Direction>, way: Way| {
            direction.map(|direction| read(&direction, way)).transpose().map_err(RequestError::mistake)
        };
        let keys = NewKeys { inbound: plan(inbound, Way::Inbound)?, outbound: plan(outbound, Way::Outbound)? };
        let spis = [&keys.inbound, &keys.outbound].map(|plan| plan.as_ref().map(|plan| plan.spec.spi.get()));
        self.0.carry_out(&pair, keys)?;
        Ok(json!({ "pair": pair, "inbound": spis[0], "outbound": spis[1] }))
    }
}

/// What is wrong with a request. It shows no value, because that could be a key.
fn mistake(request: &Value) -> String {
    for way in [Way::Inbound, Way::Outbound] {
        let algorithm = request["rekey"][way.key()]["algorithm"].as_str();
        if algorithm.is_some_and(|name| name.parse::<Algorithm>().is_err()) {
            let all = Algorithm::ALL.map(Algorithm::name).join("`, `");
            return format!("`{}`: `algorithm` is no cipher; the ciphers are `{all}`", way.key());
        }
    }
    let form = "{\"rekey\": {\"pair\": NAME, \"inbound\": {…}, \"outbound\": {…}}}";
    format!("not a request that this app answers; it answers {form}")
}

/// Reads one direction of a request.
fn read(direction: &Direction, way: Way) -> Result<Plan, String> {
    if direction.key_file.is_some() {
        return Err(format!("`{}`: a request has the key itself; give `key` in place of `key_file`", way.key()));
    }
    let read_text = |_: &std::path::Path| unreachable!("there is no file");
    Plan::read(direction, way, &read_text).map_err(|error| {
        let help = if error.help.is_empty() { String::new() } else { format!("; {}", error.help) };
        format!("`{}`: {}{help}", way.key(), error.message)
    })
}
