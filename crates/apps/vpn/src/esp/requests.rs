//! The state of the app for other threads, and new keys by command.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bellows_engine::{Conversation, RequestError, Status};
use bellows_esp::{Algorithm, Cipher, Fingerprint, Spi};
use bellows_events::{AppDegraded, AppRecovered};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::changes::By;
use super::config::{Direction, Limits, Mode};
use super::keyring::{NewKeys, Running};
use super::plan::{AssociationPlan, Spec, Way};
use super::register::{self, Claim};
use super::{Esp, SECOND};

/// After this many packets of another end, none of them authentic, its keys are taken for others.
const MIN_FAILURES: u64 = 8;

/// How long a command waits for the app.
const PATIENCE: Duration = Duration::from_secs(5);

/// What the app and other threads share. It outlives reloads.
#[derive(Default)]
pub(super) struct EspShared {
    published: Mutex<Vec<PairState>>,
    orders: Mutex<Vec<(u64, Orders)>>,
    /// The number of the next orders, which distinguishes them from others.
    next: AtomicU64,
}

/// New keys that the app takes together.
pub(super) struct Orders {
    pub(super) by: By,
    pub(super) changes: Vec<KeyChange>,
}

/// New keys for a pair.
pub(super) struct KeyChange {
    pub(super) pair: String,
    pub(super) keys: NewKeys,
    pub(super) answer: Sender<Result<Replaced, String>>,
}

/// What the new keys of a command have replaced.
pub(super) struct Replaced {
    /// The SPIs that the pair had.
    pub(super) old: [Spi; 2],
    /// The keys that the configuration has for the pair.
    pub(super) configured: [Fingerprint; 2],
    /// How long the old key still receives.
    pub(super) grace_seconds: u64,
}

/// The status of an app.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Status of `esp`")]
pub(super) struct EspStatus<'a> {
    /// The pairs of associations.
    pairs: &'a [PairState],
    /// The instructions that the ciphers use.
    instructions: &'static str,
}

/// The state of a pair. It has no keys.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize)]
#[schemars(title = "Pair of associations")]
pub struct PairState {
    /// Its name.
    pair: String,
    /// The address of this end.
    local: String,
    /// That of the other end.
    remote: String,
    /// What is encrypted.
    mode: Mode,
    /// Whether packets are in UDP.
    udp: bool,
    /// The UDP port of this end; absent without UDP.
    #[serde(skip_serializing_if = "Option::is_none")]
    local_port: Option<u16>,
    /// That of the other end, to which packets are sent: the one in the network file, until a packet comes from another;
    /// absent without UDP.
    #[serde(skip_serializing_if = "Option::is_none")]
    remote_port: Option<u16>,
    /// The association that receives now.
    inbound: DirectionState,
    /// The one that sends now.
    outbound: DirectionState,
    /// The number of replaced associations that still receive.
    old: usize,
}

/// The state of one direction.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize)]
#[schemars(title = "Association")]
struct DirectionState {
    /// Its SPI.
    spi: u32,
    /// Its cipher, as in the network file.
    algorithm: &'static str,
    /// Whether sequence numbers have 64 bits.
    esn: bool,
    /// The highest sequence number so far.
    sequence: u64,
    /// Authentic packets.
    packets: u64,
    /// Their encrypted bytes.
    bytes: u64,
    /// The time that its keys are in use.
    seconds: f64,
    /// What has brought the key.
    by: By,
    /// The limits from which on the keys should be replaced.
    soft: Limits,
    /// The limits beyond which packets are dropped.
    hard: Limits,
    /// Of `inbound`: the replay window in packets.
    #[serde(skip_serializing_if = "Option::is_none")]
    window: Option<u32>,
    /// Of `inbound`: the failures after which the upper half of the sequence number is searched.
    #[serde(skip_serializing_if = "Option::is_none")]
    resync_after: Option<u32>,
    /// Of `inbound`: how often it was found.
    #[serde(skip_serializing_if = "Option::is_none")]
    resyncs: Option<u64>,
    /// Of `inbound`: how many packets in a row were `bad_icv`, until now.
    #[serde(skip_serializing_if = "Option::is_none")]
    failures: Option<u64>,
    /// Of `inbound`, if no packet was authentic so far: why, probably.
    #[serde(skip_serializing_if = "Option::is_none")]
    likely_cause: Option<String>,
}

/// What makes all packets of another end `bad_icv`.
fn likely_cause(spec: &Spec) -> String {
    let (esn, other) = if spec.is_extended { ("true", "without") } else { ("false", "with") };
    format!(
        "the other end has another key, salt or algorithm, or seals {other} ESN: here `esn = {esn}`, and Linux has ESN \
         only with `flag esn`; make both ends alike"
    )
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl EspShared {
    /// Takes the new keys that wait for the app. Never waits.
    pub(super) fn take_orders(&self) -> impl Iterator<Item = Orders> {
        let taken = self.orders.try_lock().map(|mut orders| std::mem::take(&mut *orders)).unwrap_or_default();
        taken.into_iter().map(|(_, orders)| orders)
    }

    /// Has the app carry out changes, and waits for that. What it has not taken in time is not carried out later.
    fn carry_out(&self, by: By, changes: Vec<(String, NewKeys)>) -> Vec<Result<Replaced, RequestError>> {
        let (changes, answers): (Vec<_>, Vec<_>) = changes
            .into_iter()
            .map(|(pair, keys)| {
                let (answer, answered) = channel();
                (KeyChange { pair, keys, answer }, answered)
            })
            .unzip();
        let number = self.next.fetch_add(1, Relaxed);
        lock(&self.orders).push((number, Orders { by, changes }));
        let deadline = Instant::now() + PATIENCE;
        let wait = |answered: Receiver<Result<Replaced, String>>| {
            let in_time = answered.recv_timeout(deadline.saturating_duration_since(Instant::now())).or_else(|_| {
                lock(&self.orders).retain(|(other, _)| *other != number);
                // The app may have taken them just before; then it answers at once.
                answered.recv()
            });
            in_time.map_err(|_| {
                let seconds = PATIENCE.as_secs();
                RequestError::failure(format!(
                    "the app did not take the new keys within {seconds} s, and they are not in use; is the network busy?"
                ))
            })?.map_err(RequestError::mistake)
        };
        answers.into_iter().map(wait).collect()
    }

    /// Gives a pair new keys.
    fn rekey(&self, rekey: Rekey) -> Result<Rekeyed, RequestError> {
        let Rekey { pair, inbound, outbound, save } = rekey;
        if inbound.is_none() && outbound.is_none() {
            return Err(RequestError::mistake(
                "there are no new keys; give those of `inbound`, of `outbound`, or both",
            ));
        }
        let plan = |direction: Option<Direction>, way: Way| {
            direction.map(|direction| read(&direction, way)).transpose().map_err(RequestError::mistake)
        };
        let (inbound, outbound) = (plan(inbound, Way::Inbound)?, plan(outbound, Way::Outbound)?);
        let keys = NewKeys { inbound, outbound, instead_of: None };
        let spis = [&keys.inbound, &keys.outbound].map(|plan| plan.as_ref().map(|plan| plan.spec.spi.get()));
        // Not by the engine, which would wait for files.
        register::learn(&keys.claims()).map_err(RequestError::mistake)?;
        let replaced = self.carry_out(By::Command, vec![(pair.clone(), keys)]).pop().expect("an answer for each");
        let Replaced { old, configured, grace_seconds } = replaced?;
        let old_of = |way: Way| spis[way as usize].map(|_| old[way as usize].get());
        let mut answer = Rekeyed {
            pair,
            inbound: spis[0],
            outbound: spis[1],
            old_inbound: old_of(Way::Inbound),
            old_outbound: old_of(Way::Outbound),
            grace_seconds: spis[0].map(|_| grace_seconds),
            instead_of: None,
        };
        if save {
            // A run that finds the key finds how far it was used, whatever happens to the machine.
            register::settle()
                .map_err(|error| RequestError::failure(format!("the new keys are in use, but not saved: {error}")))?;
            let [inbound, outbound] = configured.map(|key| key.to_string());
            answer.instead_of = Some(InsteadOf { inbound, outbound });
        }
        Ok(answer)
    }

    /// Gives pairs the keys that were saved. Returns what is wrong with each.
    fn restore(&self, saved: Vec<SavedKey>) -> Vec<Option<String>> {
        let mut problems: Vec<Option<String>> = Vec::new();
        let mut changes = Vec::new();
        for SavedKey { pair, direction: way, keys, instead_of } in saved {
            let read = u128::from_str_radix(&instead_of, 16).map_err(|_| "what it replaces is not readable".to_owned());
            let plan = read.and_then(|instead_of| Ok((Fingerprint::from(instead_of), self::read(&keys, way)?)));
            problems.push(plan.as_ref().err().cloned());
            let Ok((instead_of, plan)) = plan else { continue };
            let mut keys = NewKeys { instead_of: Some(instead_of), ..NewKeys::default() };
            *(if way == Way::Inbound { &mut keys.inbound } else { &mut keys.outbound }) = Some(plan);
            changes.push((problems.len() - 1, pair, keys));
        }
        let claims: Vec<Claim> = changes.iter().flat_map(|(.., keys)| keys.claims()).collect();
        let all = register::recall(&claims);
        changes.retain(|(index, _, keys)| {
            let claims = keys.claims();
            // If something is wrong with all, it may be wrong with one.
            let known = all.clone().or_else(|_| register::recall(&claims));
            problems[*index] = match known {
                Ok(known) if claims.iter().all(|claim| known.contains(&claim.key)) => None,
                Ok(_) => Some(
                    "how far it was used is not known any more, so that it could use numbers again; make another"
                        .to_owned(),
                ),
                Err(error) => Some(error),
            };
            problems[*index].is_none()
        });
        let (indices, changes): (Vec<usize>, Vec<_>) =
            changes.into_iter().map(|(index, pair, keys)| (index, (pair, keys))).unzip();
        for (index, result) in indices.into_iter().zip(self.carry_out(By::Saved, changes)) {
            problems[index] = result.err().map(|error| error.message);
        }
        problems
    }
}

impl Status for EspShared {
    fn status(&self) -> Value {
        json!(EspStatus { pairs: &lock(&self.published), instructions: Cipher::instructions() })
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
        let mut failing = BTreeMap::new();
        for ((name, (addresses, association)), pair) in self.names.iter().zip(&self.associations).zip(&self.pairs) {
            let Some(Running { id, current, ages, .. }) = self.keyring.running.get(name) else { continue };
            let associations = &mut self.keyring.associations;
            let seconds = ages.each_ref().map(|age| age.at(now) as f64 / SECOND as f64);
            let old = old_receivers.get(id).copied().unwrap_or(0);
            let by = self.changes.by(name);
            let mut states = [Way::Inbound, Way::Outbound]
                .map(|way| state(&current[way as usize], seconds[way as usize], by[way as usize]));
            if let Some(inbound) = associations.current_inbound(*id) {
                let state = &mut states[Way::Inbound as usize];
                (state.sequence, state.packets, state.bytes) =
                    (inbound.last_sequence(), inbound.used().packets, inbound.used().bytes);
                let spec = &current[Way::Inbound as usize];
                (state.window, state.resync_after) = (Some(spec.window), Some(spec.resync_after));
                (state.resyncs, state.failures) = (Some(inbound.resyncs()), Some(inbound.failures()));
                if inbound.failures() > 0 && !inbound.has_opened() {
                    let cause = likely_cause(spec);
                    if inbound.failures() >= MIN_FAILURES {
                        failing.insert(name.clone(), cause.clone());
                    }
                    state.likely_cause = Some(cause);
                }
            }
            if let Some(outbound) = associations.outbound(*id) {
                let state = &mut states[Way::Outbound as usize];
                (state.sequence, state.packets, state.bytes) =
                    (outbound.last_sequence(), outbound.used().packets, outbound.used().bytes);
            }
            let [inbound, outbound] = states;
            let (local, remote) = pair_texts(addresses);
            published.push(PairState {
                pair: name.clone(),
                local,
                remote,
                mode: association.mode,
                udp: pair.udp.is_some(),
                local_port: pair.udp.map(|udp| udp.local_port),
                remote_port: pair.udp.map(|udp| udp.remote_port),
                inbound,
                outbound,
                old,
            });
        }
        drop(published);
        self.tell_failing(failing);
    }

    /// Tells which pairs receive nothing that is authentic, when they have become more, or none.
    fn tell_failing(&mut self, failing: BTreeMap<String, String>) {
        let app = &self.name;
        let before = std::mem::replace(&mut self.failing, failing.keys().cloned().collect());
        if self.failing.difference(&before).next().is_some() {
            let (pair, cause) = failing.iter().next().expect("there is one");
            let more = match failing.len() - 1 {
                0 => String::new(),
                more => format!(" (and {more} more)"),
            };
            AppDegraded { app }.log(format_args!(
                "{app}: no packet for the pair `{pair}`{more} is authentic (`bad_icv`): probably {cause}"
            ));
        } else if self.failing.is_empty() && !before.is_empty() {
            AppRecovered { app }.log(format_args!("{app}: no pair is left of which every packet is `bad_icv`"));
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
fn state(spec: &Spec, seconds: f64, by: By) -> DirectionState {
    DirectionState {
        spi: spec.spi.get(),
        algorithm: spec.algorithm.name(),
        esn: spec.is_extended,
        sequence: 0,
        packets: 0,
        bytes: 0,
        seconds,
        by,
        soft: spec.soft,
        hard: spec.hard,
        window: None,
        resync_after: None,
        resyncs: None,
        failures: None,
        likely_cause: None,
    }
}

/// A request: `{"rekey": {"pair": NAME, "inbound": {…}, "outbound": {…}}}`, with the keys of a direction in a network
/// file, of which `key_file` is not one. What keeps keys over restarts sends `restore`, and is answered with what is
/// wrong with each: `{"problems": [null, …]}`.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
#[schemars(title = "Request to `esp`")]
pub enum Request {
    /// Gives a pair new keys.
    Rekey(Box<Rekey>),
    /// Removes what is saved of the keys of a pair; it needs `save`.
    ///
    /// What keeps keys over restarts answers it in place of the app.
    Forget(Forget),
    /// Gives pairs the keys that were saved.
    #[schemars(skip)]
    Restore(Vec<SavedKey>),
}

/// New keys for a pair.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "New keys")]
pub struct Rekey {
    /// The name of the pair.
    pair: String,
    /// The keys for receiving, as in a network file, but not `key_file`; absent if they stay. One of the directions must be
    /// there.
    #[serde(default)]
    #[schemars(with = "Option<BTreeMap<String, Value>>")]
    inbound: Option<Direction>,
    /// The same for sending.
    #[serde(default)]
    #[schemars(with = "Option<BTreeMap<String, Value>>")]
    outbound: Option<Direction>,
    /// Whether they will be saved. Then the answer has the fingerprints of the configured keys in `instead_of`.
    #[serde(default)]
    #[schemars(skip)]
    save: bool,
}

/// Keys that are to be saved no longer.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "Saved keys of a pair")]
pub struct Forget {
    /// The name of the pair.
    pub pair: String,
}

/// What new keys have replaced.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Rekeyed pair")]
pub struct Rekeyed {
    /// The name of the pair.
    pair: String,
    /// The new SPI for receiving; null if it stays.
    inbound: Option<u32>,
    /// The new SPI for sending; null if it stays.
    outbound: Option<u32>,
    /// The SPI for receiving that was replaced; null if it stays.
    old_inbound: Option<u32>,
    /// The SPI for sending that was replaced; null if it stays.
    old_outbound: Option<u32>,
    /// How long packets with the old key are received; null if it stays.
    grace_seconds: Option<u64>,
    /// For what saves the keys: the fingerprints of those that the configuration has.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    instead_of: Option<InsteadOf>,
}

#[derive(Serialize)]
struct InsteadOf {
    inbound: String,
    outbound: String,
}

/// A key that was saved.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedKey {
    pair: String,
    direction: Way,
    keys: Direction,
    /// The fingerprint of the configured key that it has replaced.
    instead_of: String,
}

/// The requests of one client.
struct Talk(Arc<EspShared>);

impl Conversation for Talk {
    fn answer(&mut self, request: Value) -> Result<Value, RequestError> {
        match Request::deserialize(&request) {
            Ok(Request::Rekey(rekey)) => self.0.rekey(*rekey).map(|rekeyed| json!(rekeyed)),
            Ok(Request::Restore(saved)) => Ok(json!({ "problems": self.0.restore(saved) })),
            Ok(Request::Forget(_)) | Err(_) => Err(RequestError::mistake(mistake(&request))),
        }
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
    let form = "{\"rekey\": {\"pair\": NAME, \"inbound\": {…}, \"outbound\": {…}}} and, if it is saved, \
                {\"forget\": {\"pair\": NAME}}";
    format!("not a request that this app answers; it answers {form}")
}

/// Reads one direction of a request.
fn read(direction: &Direction, way: Way) -> Result<AssociationPlan, String> {
    if direction.key_file.is_some() {
        return Err(format!("`{}`: a request has the key itself; give `key` in place of `key_file`", way.key()));
    }
    let read_secret = |_: &std::path::Path| unreachable!("there is no file");
    AssociationPlan::read(direction, way, &read_secret).map_err(|error| {
        let help = if error.help.is_empty() { String::new() } else { format!("; {}", error.help) };
        format!("`{}`: {}{help}", way.key(), error.message)
    })
}
