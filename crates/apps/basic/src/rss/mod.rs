//! `rss`: distributes flows over many outputs.
//!
//! | file | contents |
//! |---|---|
//! | `hasher.rs` | the hashes of many packets |
//! | `table.rs` | the indirection table: the shares of the outputs, and their changes |
//! | `transit.rs` | entries on their way to another output, and the packets that wait for them |

mod hasher;
mod table;
mod transit;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use bellows_common::nexts::NextVectors;
use bellows_config::{
    BenchFiles, BenchRow, BenchSetup, ByName, Configure, Context, Duration, OutputSchema, SettingError,
};
use bellows_engine::{App, AppError, Counters, Io, Port, Ports, Status, counters};
use bellows_toeplitz::{DEFAULT_KEY, MIN_KEY};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use self::hasher::{Hasher, Hashing};
use self::transit::Transit;

/// Distributes flows over its outputs (receive-side scaling): all packets of a flow go to one output, in order.
///
/// Outputs may have any names. A hash of each packet's flow selects an entry of a table, and the entry names the output.
/// A flow has two IP addresses and, for TCP, UDP and SCTP, two ports. VLAN tags (up to two) and IPv6 extension headers
/// are skipped. All fragments of a datagram stay together: they are hashed by their addresses, without ports. So they
/// may take another output than the unfragmented packets of their flow. Frames without IP are hashed by their Ethernet
/// addresses and EtherType; packets that are too short for an Ethernet header have the hash 0.
///
/// The table can change while flows go on: a reload may change `weights`, `table_size` or the links, and with `rebalance`
/// the app evens the loads by itself. Few entries move, and none of them reorders a flow: from the change on, packets of
/// such an entry are held for the time `settle`, in which earlier packets leave the apps behind the old output. A packet
/// that comes while `hold` packets are held is dropped as `hold_full`; in a lossless network it waits in the input. A
/// reload that changes the hash moves all entries.
///
/// The status names the table's share of each output.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The hash function.
    pub hash: Hash,

    /// The key of the Toeplitz hash: at least 40 bytes in hexadecimal digits, with or without colons. By default the key
    /// of the published verification suite (`6d:5a:56:da:…`), which is also the default of many drivers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,

    /// Give both directions of a flow one hash, and so one output, for apps behind that must see both. Without it a
    /// network interface with the same key computes the same Toeplitz hash.
    pub symmetric: bool,

    /// Hash the packets inside tunnels: VXLAN, Geneve, GTP-U, GRE and IP in IP, up to two in one another. If the packet
    /// inside cannot be read, its outer headers count.
    pub inner: bool,

    /// The number of entries of the table, a power of two from 64 to 65,536. The default makes steps of 0.2 percent of
    /// the flows, in a table of 1 KiB. Give the size of the interface's table to get its distribution.
    #[schemars(extend("x-unit" = "entries"), range(min = 64, max = 65536))]
    pub table_size: usize,

    /// The weights of outputs, by their names: whole numbers, 1 for outputs without. An output of weight 0 gets no flows.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub weights: BTreeMap<String, u32>,

    /// How long packets of an entry are held when it changes its output: the longest time that a packet takes through
    /// the apps behind an output, from 0 to 1 second. `0s` holds nothing.
    #[schemars(extend("x-unit" = "time"))]
    pub settle: Duration,

    /// Maximum number of packets held, from 0 to 1,048,576.
    #[schemars(extend("x-unit" = "packets"), range(max = 1048576))]
    pub hold: usize,

    /// Count the packets of each entry, and after each period move entries, at most 64 at a time, from the busiest
    /// outputs to the idlest, as far as that evens their loads. From 1 ms to 1 hour; by default entries stay.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-unit" = "time"))]
    pub rebalance: Option<Duration>,
}

/// A hash function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Hash {
    /// A fast hash of addresses, ports and protocol.
    #[default]
    Fast,
    /// The hash of network interfaces: addresses and ports only.
    Toeplitz,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            hash: Hash::Fast,
            key: None,
            symmetric: false,
            inner: false,
            table_size: 512,
            weights: BTreeMap::new(),
            settle: Duration::from_millis(5),
            hold: 4096,
            rebalance: None,
        }
    }
}

const TABLE_SIZES: std::ops::RangeInclusive<usize> = 64..=65_536;
const MAX_HOLD: usize = 1 << 20;
const MAX_SETTLE_NS: u64 = 1_000_000_000;
const REBALANCE_NS: std::ops::RangeInclusive<u64> = 1_000_000..=3_600_000_000_000;

/// The table, and what it was made for: what a reload takes over.
struct RssState {
    hashing: Hashing,
    /// The names of the outputs and their weights.
    outputs: Vec<(String, u32)>,
    /// The output of each entry.
    owners: Vec<u16>,
    transit: Transit,
}

/// Distributes flows over outputs.
pub struct Rss {
    config: Config,
    hasher: Hasher,
    /// `None` before the first tick, in which the outputs are known.
    state: Option<RssState>,
    /// The state of the app that this one replaces, until the first tick.
    inherited: Option<RssState>,
    next_vectors: NextVectors,
    /// The packets of each entry since the last rebalancing; empty without.
    loads: Vec<u32>,
    /// When to rebalance.
    rebalances_at: u64,
    summary: Arc<Summary>,
}

counters! { Rss;
    drop HOLD_FULL = "hold_full", "packets that came while `hold` packets were held";
    count MOVED = "moved", "entries of the table that changed their output", in "entries";
    count HELD = "held", "packets that were held because their entry changed its output";
}

impl App for Rss {
    const INPUTS: Ports = Ports::Named(&[Port::required("input", "packets to distribute")]);
    const OUTPUTS: Ports = Ports::Any { at_least: 1, help: "the packets of some flows" };
    const COUNTERS: Counters<Self> = Self::COUNTED;
    const PREFETCH: usize = 16;

    fn push(&mut self, io: &Io<Self>) {
        let Some(state) = self.state.as_ref().filter(|state| state.transit.is_idle()) else {
            return self.push_in_transit(io);
        };
        let mut input = io.input(0);
        let packets = input.packets();
        let count = packets.len();
        let (numbers, owners, loads) = (self.next_vectors.nexts(count), &state.owners[..], &mut self.loads[..]);
        let entry = |hash: u32| hash as usize & (owners.len() - 1);
        if loads.is_empty() {
            self.hasher.look_up(packets, io.prefetch(), numbers, |hash| owners[entry(hash)]);
        } else {
            self.hasher.look_up(packets, io.prefetch(), numbers, |hash| {
                loads[entry(hash)] += 1;
                owners[entry(hash)]
            });
        }
        self.next_vectors.send_numbered(io, &mut input, count);
    }

    fn tick(&mut self, io: &Io<Self>) {
        self.rewire(io);
        if let Some(period) = self.config.rebalance
            && io.now() >= self.rebalances_at
        {
            self.rebalance(io);
            self.rebalances_at = io.now() + period.nanos();
        }
        self.release(io);
        self.plan(io);
    }

    fn held(&self) -> usize {
        self.state.iter().chain(&self.inherited).map(|state| state.transit.held()).sum()
    }

    fn start(&mut self, old: Option<&mut Self>) -> Result<(), AppError> {
        self.inherited = old.and_then(|old| old.inherited.take().or_else(|| old.state.take()));
        Ok(())
    }

    fn give_back(&mut self, old: &mut Self) {
        // As before its first tick: it takes the state over again.
        old.inherited = self.inherited.take();
    }

    fn status(&self) -> Option<Arc<dyn Status>> {
        Some(Arc::clone(&self.summary) as Arc<dyn Status>)
    }
}

impl Rss {
    /// As [`App::push`], while entries move or the outputs are not known yet.
    #[cold]
    fn push_in_transit(&mut self, io: &Io<Self>) {
        self.rewire(io);
        self.release(io);
        let Rss { config, hasher, state: Some(state), next_vectors, loads, .. } = self else { return };
        let mut input = io.input(0);
        let mut count = input.len();
        if io.is_lossless() {
            // What has just been released takes room that the engine had counted on.
            let room = (0..io.outputs()).map(|output| io.output(output).room()).min();
            count = count.min(room.unwrap_or_default());
        }
        let mask = state.owners.len() - 1;
        let mut entries = vec![0; count];
        hasher.look_up(&input.packets()[..count], io.prefetch(), &mut entries, |hash| (hash as usize & mask) as u16);
        let entries = entries.into_iter().map(usize::from);
        let mut free = config.hold.saturating_sub(state.transit.held());
        if io.is_lossless() {
            let moving = entries.clone().enumerate().filter(|&(_, entry)| state.transit.is_moving(entry));
            count = moving.map(|(index, _)| index).nth(free).unwrap_or(count);
        }
        for (entry, packet) in entries.take(count).zip(&mut input) {
            if let Some(load) = loads.get_mut(entry) {
                *load += 1;
            }
            if !state.transit.is_moving(entry) {
                next_vectors.push(usize::from(state.owners[entry]), packet);
            } else if free > 0 {
                free -= 1;
                io.count(Rss::HELD, 1);
                state.transit.hold(entry, packet);
            } else {
                io.drop(packet, Rss::HOLD_FULL);
            }
        }
        next_vectors.send(io);
        self.plan(io);
    }

    /// Sends the packets of entries whose time has come, as far as the outputs have room.
    fn release(&mut self, io: &Io<Self>) {
        let Some(state) = self.state.as_mut().filter(|state| state.transit.next().is_some_and(|next| next <= io.now()))
        else {
            return;
        };
        let mut outputs: Vec<_> = (0..io.outputs()).map(|output| io.output(output)).collect();
        let RssState { owners, transit, .. } = state;
        let has_moved = transit.release(io.now(), |entry, packet| {
            let output = &mut outputs[usize::from(owners[entry])];
            if output.room() == 0 {
                return Err(packet);
            }
            output.push(packet);
            Ok(())
        });
        if has_moved {
            self.summary.publish(&self.config, state);
        }
    }

    /// Asks for a tick at the time of the next work.
    fn plan(&self, io: &Io<Self>) {
        if let Some(next) = self.state.as_ref().and_then(|state| state.transit.next()) {
            io.wake_at(next.max(io.now()));
        }
        if self.config.rebalance.is_some() {
            io.wake_at(self.rebalances_at);
        }
    }

    /// Makes the table for the present outputs, from the one before if there is one.
    fn rewire(&mut self, io: &Io<Self>) {
        let names = (0..io.outputs()).map(|output| io.output_name(output).unwrap_or_default());
        if let (Some(state), None) = (&self.state, &self.inherited)
            && state.outputs.iter().map(|(name, _)| name.as_str()).eq(names.clone())
        {
            return;
        }
        let weight = |name: &str| self.config.weights.get(name).copied().unwrap_or(1);
        let outputs: Vec<(String, u32)> = names.map(|name| (name.to_owned(), weight(name))).collect();
        self.next_vectors.resize(outputs.len());
        let state = match self.inherited.take().or(self.state.take()) {
            Some(old) => self.succeed(old, outputs, io),
            None => {
                let owners = table::initial(self.config.table_size, &weights(&outputs));
                let transit = Transit::new(owners.len());
                RssState { hashing: self.hasher.hashing.clone(), outputs, owners, transit }
            }
        };
        self.rebalances_at = io.now() + self.config.rebalance.map_or(0, Duration::nanos);
        self.summary.publish(&self.config, &state);
        self.state = Some(state);
    }

    /// The state that follows an old one. Entries keep their outputs as far as these have the same shares as before.
    /// Packets of all entries that get flows of another output are held for a while.
    fn succeed(&mut self, old: RssState, outputs: Vec<(String, u32)>, io: &Io<Self>) -> RssState {
        let numbers: BTreeMap<&str, u16> = (0..).zip(&outputs).map(|(number, (name, _))| (&**name, number)).collect();
        let renumbered: Vec<Option<u16>> = old.outputs.iter().map(|(name, _)| numbers.get(&**name).copied()).collect();
        let (size, old_size) = (self.config.table_size, old.owners.len());
        let owner_before = |entry: usize| renumbered[usize::from(old.owners[entry])];
        let before: Vec<Option<u16>> = (0..size).map(|entry| owner_before(entry % old_size)).collect();
        let shares = |outputs: &[(String, u32)]| -> BTreeMap<String, u32> { outputs.iter().cloned().collect() };
        let kept: Option<Vec<u16>> = before.iter().copied().collect();
        let owners = kept.filter(|_| shares(&outputs) == shares(&old.outputs));
        let owners = owners.unwrap_or_else(|| table::reassigned(&before, &weights(&outputs)));
        let changed = before.iter().zip(&owners).filter(|(before, owner)| **before != Some(**owner)).count();
        io.count(Rss::MOVED, changed as u64);

        // Entries of the larger table that are equal modulo the size of the smaller one share flows.
        let common = size.min(old_size);
        let same_hash = old.hashing == self.hasher.hashing;
        let moves = |entry: &usize| {
            let mut sources = (entry % common..old_size).step_by(common);
            !same_hash
                || sources.any(|old_entry| {
                    owner_before(old_entry) != Some(owners[*entry]) || old.transit.is_moving(old_entry)
                })
        };
        let mut transit = Transit::new(size);
        transit.begin((0..size).filter(moves), io.now() + self.config.settle.nanos());
        for packet in old.transit.into_packets() {
            transit.hold(self.hasher.hash(&packet) as usize & (size - 1), packet);
        }
        RssState { hashing: self.hasher.hashing.clone(), outputs, owners, transit }
    }

    /// Moves entries from busy outputs to idle ones.
    fn rebalance(&mut self, io: &Io<Self>) {
        let Some(RssState { outputs, owners, transit, .. }) = &mut self.state else { return };
        let packets: u64 = self.loads.iter().map(|&load| u64::from(load)).sum();
        if packets >= (owners.len() * MIN_PACKETS_PER_ENTRY) as u64 {
            let moved = table::rebalance(owners, &self.loads, &weights(outputs), |entry| transit.is_moving(entry));
            io.count(Rss::MOVED, moved.len() as u64);
            transit.begin(moved.into_iter(), io.now() + self.config.settle.nanos());
        }
        self.loads.fill(0);
        if let Some(state) = &self.state {
            self.summary.publish(&self.config, state);
        }
    }
}

/// The number of packets, for each entry of the table, from which on their distribution says something.
const MIN_PACKETS_PER_ENTRY: usize = 4;

fn weights(outputs: &[(String, u32)]) -> Vec<u32> {
    outputs.iter().map(|&(_, weight)| weight).collect()
}

/// The status of a distributor.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Status of `rss`")]
struct RssStatus {
    /// The hash function.
    hash: Hash,
    /// Whether both directions of a flow have the same hash, and so one output.
    symmetric: bool,
    /// Whether packets inside tunnels are hashed in place of their outer headers.
    inner: bool,
    /// Entries of the table that gives each hash an output.
    table_size: usize,
    /// The number of entries by output.
    entries: ByName<u64>,
    /// Entries whose packets are held, because they are on the way to another output.
    entries_moving: usize,
}

/// The state for other threads.
#[derive(Default)]
struct Summary(Mutex<Arc<Value>>);

impl Summary {
    fn publish(&self, config: &Config, state: &RssState) {
        let mut entries = vec![0; state.outputs.len()];
        state.owners.iter().for_each(|&owner| entries[usize::from(owner)] += 1);
        let value = json!(RssStatus {
            hash: config.hash,
            symmetric: config.symmetric,
            inner: config.inner,
            table_size: state.owners.len(),
            entries: state.outputs.iter().zip(entries).map(|((name, _), entries)| (name.as_str(), entries)).collect(),
            entries_moving: state.transit.moving(),
        });
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(value);
    }
}

impl Status for Summary {
    fn status(&self) -> Value {
        // The lock is held for a copy of the pointer.
        let value = Arc::clone(&self.0.lock().unwrap_or_else(PoisonError::into_inner));
        (*value).clone()
    }
}

/// Reads a key in hexadecimal digits.
fn parse_key(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> =
        text.chars().filter(|&c| c != ':').map(|c| c.to_digit(16).map(|digit| digit as u8)).collect();
    let digits = digits.filter(|digits| digits.len() % 2 == 0)?;
    Some(digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

impl Configure for Rss {
    const NAME: &'static str = "rss";
    const STATUS: Option<OutputSchema> = Some(OutputSchema::of::<RssStatus>());
    type Config = Config;

    fn bench(_: &BenchFiles) -> BenchSetup {
        const OUTPUTS: &[&str] = &["a", "b", "c", "d"];
        const TOEPLITZ: &str = r#"hash = "toeplitz""#;
        let row = |label, keys: &str, traffic| BenchRow {
            label,
            keys: keys.to_owned(),
            outputs: OUTPUTS,
            traffic,
            ..BenchRow::default()
        };
        BenchSetup::Rows(vec![
            row("ipv4", "", "ipv4"),
            row("ipv6", "", "ipv6"),
            row("toeplitz, ipv4", TOEPLITZ, "ipv4"),
            row("toeplitz, ipv6", TOEPLITZ, "ipv6"),
        ])
    }

    fn check_outputs(config: &Config, outputs: &[&str]) -> Result<(), SettingError> {
        let unknown = config.weights.keys().find(|name| !outputs.contains(&name.as_str()));
        let listed = || outputs.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        match unknown {
            Some(name) => {
                let message = format!("`weights` names an output `{name}` that is not linked");
                Err(SettingError::at("weights", message, format!("the linked outputs are {}", listed())))
            }
            None if outputs.len() > config.table_size => {
                let message =
                    format!("a table of {} entries is too small for {} outputs", config.table_size, outputs.len());
                Err(SettingError::at("table_size", message, "give a larger table, or link fewer outputs"))
            }
            None => Ok(()),
        }
    }

    fn configure(config: Config, _: &Context) -> Result<Rss, SettingError> {
        let size = config.table_size;
        if !TABLE_SIZES.contains(&size) || !size.is_power_of_two() {
            let message = format!("a table of {size} entries is impossible");
            let help = format!("give a power of two from {} to {}", TABLE_SIZES.start(), TABLE_SIZES.end());
            return Err(SettingError::at("table_size", message, help));
        }
        if config.hold > MAX_HOLD {
            let message = format!("`hold` of {} packets is out of range", config.hold);
            return Err(SettingError::at("hold", message, format!("give a number from 0 to {MAX_HOLD}")));
        }
        if config.settle.nanos() > MAX_SETTLE_NS {
            return Err(SettingError::at("settle", "packets would be held for too long", "give at most \"1s\""));
        }
        if config.rebalance.is_some_and(|period| !REBALANCE_NS.contains(&period.nanos())) {
            return Err(SettingError::at("rebalance", "the period is out of range", "give a time from 1ms to 1h"));
        }
        let toeplitz_key = match (config.hash, &config.key) {
            (Hash::Fast, None) => None,
            (Hash::Fast, Some(_)) => {
                let help = "add `hash = \"toeplitz\"`, or leave `key` out";
                return Err(SettingError::at("key", "the fast hash has no key", help));
            }
            (Hash::Toeplitz, None) => Some(DEFAULT_KEY.to_vec()),
            (Hash::Toeplitz, Some(text)) => Some(parse_key(text).ok_or_else(|| {
                let help = format!("give {MIN_KEY} bytes or more as pairs of hexadecimal digits");
                SettingError::at("key", "the key is not hexadecimal", help)
            })?),
        };
        let hashing = Hashing { toeplitz_key, symmetric: config.symmetric, inner: config.inner };
        let Some(hasher) = Hasher::new(hashing) else {
            let help = format!("give at least {MIN_KEY} bytes: each bit of an IPv6 flow needs its part of the key");
            return Err(SettingError::at("key", "the key is too short", help));
        };
        Ok(Rss {
            hasher,
            state: None,
            inherited: None,
            next_vectors: NextVectors::new(),
            loads: if config.rebalance.is_some() { vec![0; size] } else { Vec::new() },
            rebalances_at: 0,
            summary: Arc::default(),
            config,
        })
    }
}

#[cfg(test)]
mod tests;
