//! `mac-table`: the MAC addresses that bridges have learned, shared by the bridges of all workers.
//!
//! | file | contents |
//! |---|---|
//! | `entry.rs` | keys, and the parts of an entry |
//! | `fixed.rs` | the addresses that the network file gives to ports |
//! | `moves.rs` | how often an address may move |
//! | `ports.rs` | the names and numbers of ports |
//! | `requests.rs` | the requests of control clients: lists and flushes |
//! | `slots.rs` | the entries, which all threads read and change word by word |
//! | `upkeep.rs` | ageing and growing |

mod entry;
mod fixed;
mod moves;
mod ports;
pub mod requests;
mod slots;
mod upkeep;

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bellows_common::capacity;
use bellows_common::full_table::FullTable;
use bellows_config::{ByName, Context, Duration, OutputSchema, SettingError, SharedObject, Succession};
use bellows_engine::{App, Conversation, Io, Status};
use bellows_events::StationMoving;
use bellows_shared::Published;
use bellows_wire::MacAddr;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tracing::warn;

use self::entry::{AGES, Entry, MAX_MOVES};
pub(crate) use self::entry::{Hashed, Key, PortNumber};
use self::moves::{Move, MoveLimit};
pub(crate) use self::ports::{BridgePort, PortLimit};
use self::ports::{LimitedFrames, PortList};
use self::slots::{Change, Slots};
use self::upkeep::{STEPS, Upkeep, Work};

/// The MAC addresses that bridges have learned, and their ports.
///
/// Apps of type `bridge` that name it with `table` are one bridge, whose ports have the names of these apps' inputs and
/// outputs. So a bridge may have ports on several workers: an address that is learned on one of them is known on all
/// others at once. Every bridge writes, word by word, and the last one who has seen an address is right. Looking up never
/// waits. The table grows when it is half full: one bridge at a time copies a part of it between two breaths, and the
/// old memory is freed when all workers have passed a breath. A bridge with VLANs has an entry for each address and
/// VLAN. Which addresses share a place is random for each table, so nobody can aim at one.
///
/// In a full table, a new address at a port that has less than its share, `capacity` divided by the number of ports, takes
/// the place of one at a port that has more. VLANs of one port share its addresses likewise. So whoever fills the table
/// keeps no other port's stations out. The event `table-full` names the port that has more than its share.
///
/// A reload that changes these keys keeps what was learned. Addresses at ports that no bridge has any more are
/// forgotten soon after. `bellows show mac` lists the addresses, `bellows clear mac` forgets them.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The maximum number of addresses, from 64 to 1,048,576. Further ones of a port that has its share are not learned,
    /// and frames to them are flooded.
    #[schemars(extend("x-unit" = "addresses"), range(min = 64, max = 1048576))]
    pub capacity: usize,

    /// How long an address is known that has not been seen as a source, from 1 second to 1 day. It is forgotten between
    /// this time and 1/32 later.
    #[schemars(extend("x-unit" = "time"))]
    pub ageing: Duration,

    /// Addresses with the names of their ports: `static = { "02:00:00:00:00:01" = "uplink" }`, or with a VLAN
    /// `"02:00:00:00:00:01 vlan 5" = "uplink"`. Such an address does not age, and does not move: a frame from it at
    /// another port is a violation, which the bridge drops unless it has `forward_violations`.
    #[serde(rename = "static", skip_serializing_if = "BTreeMap::is_empty")]
    pub fixed: BTreeMap<String, String>,

    /// The most moves of an address from port to port within `move_window`, from 1 to 127, as a guard against loops: an
    /// address that would move once more stays where it is for the time `move_hold`, its frames at other ports are
    /// dropped, and the event `station-moving` reports it. RFC 7432, section 15.1, has 5 moves in 180 seconds. By
    /// default there is no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 127))]
    pub max_moves: Option<u32>,

    /// The time in which moves are counted, from 1 second to 1 hour.
    #[schemars(extend("x-unit" = "time"))]
    pub move_window: Duration,

    /// How long an address stays that has moved too often, from 1 second to 1 hour.
    #[schemars(extend("x-unit" = "time"))]
    pub move_hold: Duration,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            capacity: 65_536,
            // The time is that of IEEE 802.1Q.
            ageing: Duration::from_secs(300),
            fixed: BTreeMap::new(),
            max_moves: None,
            move_window: Duration::from_secs(180),
            move_hold: Duration::from_secs(60),
        }
    }
}

const AGEING_NS: std::ops::RangeInclusive<u64> = 1_000_000_000..=86_400_000_000_000;
const MOVES_NS: std::ops::RangeInclusive<u64> = 1_000_000_000..=3_600_000_000_000;

/// Lines of a new table.
const FIRST_LINES: usize = 256;

/// The shortest time between two lines of the log about addresses that have moved too often, in units of their times.
const LOG_UNITS: u64 = 40;

/// The same between two events, which are kept: ten minutes.
const EVENT_UNITS: u64 = 2_240;

/// A table of MAC addresses.
pub struct MacTable {
    slots: Published<Arc<Slots>>,
    capacity: AtomicUsize,
    /// Nanoseconds of a step of the age.
    step_ns: AtomicU64,
    /// Whether that is another one since the last upkeep.
    has_other_steps: AtomicBool,
    /// The step of the age.
    age: AtomicU32,
    /// The limit of moves as a word.
    moves: AtomicU64,
    /// When the log had a line about an address that has moved too often.
    logged: AtomicU64,
    /// The time of the last event about them, likewise.
    told: AtomicU64,
    full: FullTable,
    ports: PortList,
    /// The number of ports that bridges have.
    ports_in_use: AtomicUsize,
    fixed: Mutex<HashMap<Key, String>>,
    upkeep: Mutex<Upkeep>,
}

/// What became of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Learned {
    /// It was at this port before.
    Known,
    /// It was at another port.
    Moved,
    /// It is new.
    New,
    /// It is new, and has taken the place of one that had to give way.
    Displaced,
    /// There is no room for it in the table.
    TableFull,
    /// There are as many addresses at the port as may be.
    PortFull,
    /// The network file has it at another port.
    Violation,
    /// It is at another port, and has moved too often.
    Held,
}

/// The table for a breath.
pub(crate) struct View<'t> {
    table: &'t MacTable,
    /// The name of the bridge.
    bridge: &'t str,
    slots: &'t Slots,
    age: u32,
    now: u64,
}

impl View<'_> {
    /// Hashes pairs of addresses, and prefetches what is known of them. Hot.
    #[inline(always)]
    pub(crate) fn hash(&self, keys: impl Iterator<Item = [Key; 2]>, hashes: &mut [[u64; 2]]) {
        self.slots.hash(keys, hashes);
    }

    /// Prefetches where else addresses can be.
    #[inline(always)]
    pub(crate) fn prefetch_others(&self, hashes: [u64; 2]) {
        hashes.into_iter().for_each(|hash| self.slots.prefetch_others(hash));
    }

    /// The port of an address. Hot.
    #[inline(always)]
    pub(crate) fn look_up(&self, hashed: Hashed) -> Option<PortNumber> {
        self.slots.look_up(hashed)
    }

    /// For a loop over frames from a port: the port of a destination, and whether it counts, which is if both addresses
    /// are where most are, and there is nothing to learn about the source. Hot.
    #[inline(always)]
    pub(crate) fn known_at(&self, at: PortNumber) -> impl Fn([Hashed; 2]) -> (PortNumber, bool) {
        let (first_lines, age) = (self.slots.first_lines(), self.age);
        move |pair| first_lines.look_up_if_knows(pair, at, age)
    }

    /// Learns that a station is at a port, which may have `max_addresses`. Hot.
    #[inline(always)]
    pub(crate) fn learn(&self, hashed: Hashed, port: PortNumber, max_addresses: u32) -> Learned {
        if self.slots.knows(hashed, port, self.age) {
            return Learned::Known;
        }
        self.change(hashed, port, max_addresses)
    }

    #[cold]
    fn change(&self, hashed: Hashed, port: PortNumber, max_addresses: u32) -> Learned {
        let displaced = match self.try_to_change(hashed, port, max_addresses) {
            Ok(learned) => return learned,
            Err(Lacking::RoomInTable) => self.displace_in_table(hashed.key, port),
            Err(Lacking::RoomInLines) => self.displace_in_lines(hashed, port),
        };
        match self.try_to_change(hashed, port, max_addresses) {
            Ok(Learned::New) if displaced.is_some() => Learned::Displaced,
            Ok(learned) => learned,
            Err(_) => Learned::TableFull,
        }
    }

    fn try_to_change(&self, hashed: Hashed, port: PortNumber, max_addresses: u32) -> Result<Learned, Lacking> {
        let (slots, age, key) = (self.slots, self.age, hashed.key);
        let refusal = Cell::new(Ok(Learned::Known));
        let refuse = |why| {
            refusal.set(why);
            None
        };
        let is_port_full = || slots.at_port(port) >= max_addresses;
        let limit = MoveLimit::of_word(self.table.moves.load(Relaxed));
        let change = slots.change(hashed, |known| match known {
            None if is_port_full() => refuse(Ok(Learned::PortFull)),
            None if slots.used() >= self.table.capacity.load(Relaxed) => refuse(Err(Lacking::RoomInTable)),
            None => Some(Entry { key, port, age, ..Entry::default() }),
            Some(known) if known.port == port => Some(Entry { age, ..known }),
            Some(known) if known.is_static => refuse(Ok(Learned::Violation)),
            Some(_) if is_port_full() => refuse(Ok(Learned::PortFull)),
            Some(known) => match limit.of(known, port, age, moves::at(self.now)) {
                Move::To(entry) | Move::Hold(entry) => Some(entry),
                Move::Stay => refuse(Ok(Learned::Held)),
            },
        });
        match change {
            Change::Kept => refusal.get(),
            // The next frame will do.
            Change::Busy => Ok(Learned::Known),
            Change::NoRoom if is_port_full() => Ok(Learned::PortFull),
            Change::NoRoom => Err(Lacking::RoomInLines),
            Change::Done { before: None, .. } => Ok(Learned::New),
            Change::Done { before: Some(before), after } if before.port != after.port => Ok(Learned::Moved),
            Change::Done { after, .. } if after.port != port => {
                self.table.tell_held(self.bridge, after, port, self.now);
                Ok(Learned::Held)
            }
            Change::Done { .. } => Ok(Learned::Known),
        }
    }

    /// The most addresses that a port is sure to have.
    fn share_of_port(&self) -> u32 {
        share(self.table.capacity.load(Relaxed), self.table.ports_in_use.load(Relaxed))
    }

    /// Makes room for a new address in a full table: one at a port that has more than its share gives way to one at a port
    /// that has less, and likewise one of the same port for its VLAN.
    fn displace_in_table(&self, key: Key, port: PortNumber) -> Option<Entry> {
        let (slots, share_of_port) = (self.slots, self.share_of_port());
        // The new one's VLAN counts as well.
        let vlans = slots.vlans() + usize::from(slots.in_vlan(key.vlan()) == 0);
        let share_of_vlan = share(self.table.capacity.load(Relaxed), vlans);
        let port_has_less = slots.at_port(port) < share_of_port;
        let vlan_has_less = slots.in_vlan(key.vlan()) < share_of_vlan;
        let vlan_has_more = |other: &Entry| slots.in_vlan(other.key.vlan()) > share_of_vlan;
        let gives_way = |other: &Entry| {
            let has_more = match other.port == port {
                true => vlan_has_less && vlan_has_more(other),
                false => port_has_less && slots.at_port(other.port) > share_of_port,
            };
            has_more && !other.is_static
        };
        // Of a port that has more, first those in VLANs that have more.
        let search = || {
            let first =
                if vlans > 1 { slots.remove_one(|other| gives_way(other) && vlan_has_more(other)) } else { None };
            first.or_else(|| slots.remove_one(gives_way))
        };
        let displaced = if port_has_less || vlan_has_less { search() } else { None };
        match displaced {
            Some(displaced) => self.table.tell_full(self.bridge, displaced.port, slots, self.now),
            None if !port_has_less => self.table.tell_full(self.bridge, port, slots, self.now),
            None => {}
        }
        displaced
    }

    /// Makes room for a new address whose lines are full. No port's addresses give way to one that has more than its share
    /// while those of that port can, and no address remains unknown because others have its lines.
    fn displace_in_lines(&self, hashed: Hashed, port: PortNumber) -> Option<Entry> {
        let (slots, share_of_port) = (self.slots, self.share_of_port());
        let has_less = slots.at_port(port) < share_of_port;
        slots.remove_one_beside(hashed, |other, all| {
            let here = |port: PortNumber| all.iter().filter(|entry| entry.port == port).count();
            let class = match other.port == port {
                true => 0,
                false if has_less && slots.at_port(other.port) > share_of_port => 2,
                false if has_less && here(other.port) > here(port) => 1,
                false => return None,
            };
            let idle = self.age.wrapping_sub(other.age) % AGES;
            (!other.is_static).then_some((class, here(other.port), idle))
        })
    }

    /// Whether a bridge should do the [work](MacTable::upkeep) soon.
    pub(crate) fn wants_upkeep(&self) -> bool {
        self.table.is_tight(self.slots) || self.table.has_other_steps.load(Relaxed)
    }
}

/// What a new address lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lacking {
    /// The table has as many as it may.
    RoomInTable,
    /// All entries of its lines are used.
    RoomInLines,
}

/// The share of each of several.
fn share(capacity: usize, count: usize) -> u32 {
    u32::try_from(capacity / count.max(1)).unwrap_or(u32::MAX)
}

impl MacTable {
    fn of(config: &Config, fixed: HashMap<Key, String>) -> MacTable {
        // Less than half full of addresses that must not be missing.
        let lines = (fixed.len() * 2 / slots::IN_A_LINE).next_power_of_two().max(FIRST_LINES);
        let limit = MoveLimit {
            max: config.max_moves,
            window: moves::units(config.move_window.nanos()),
            hold: moves::units(config.move_hold.nanos()),
        };
        let table = MacTable {
            slots: Published::new(Arc::new(Slots::new(lines))),
            capacity: AtomicUsize::new(config.capacity),
            step_ns: AtomicU64::new(config.ageing.nanos() / u64::from(STEPS)),
            has_other_steps: AtomicBool::new(false),
            age: AtomicU32::new(0),
            moves: AtomicU64::new(limit.word()),
            logged: AtomicU64::new(0),
            told: AtomicU64::new(0),
            full: FullTable::new("addresses"),
            ports: PortList::default(),
            ports_in_use: AtomicUsize::new(0),
            fixed: Mutex::default(),
            upkeep: Mutex::default(),
        };
        table.set_fixed(fixed);
        table
    }

    /// Does from now on what the keys of another table say.
    fn take_keys_of(&self, other: MacTable) {
        self.capacity.store(other.capacity.into_inner(), Relaxed);
        self.step_ns.store(other.step_ns.into_inner(), Relaxed);
        self.has_other_steps.store(true, Relaxed);
        self.moves.store(other.moves.into_inner(), Relaxed);
        self.set_fixed(other.fixed.into_inner().unwrap_or_else(PoisonError::into_inner));
    }

    /// Enters the addresses of the network file, in the place of those that it had before.
    fn set_fixed(&self, fixed: HashMap<Key, String>) {
        self.on_tables(|slots| {
            slots.remove(0..slots.lines(), |entry| entry.is_static && !fixed.contains_key(&entry.key));
        });
        for (&key, name) in &fixed {
            let number = self.ports.number(name, |number| self.current().at_port(number));
            let entry = number.map(|port| Entry { key, port, is_static: true, ..Entry::default() });
            let mut is_entered = entry.is_some();
            self.on_tables(|slots| is_entered &= entry.is_some_and(|entry| slots.enter(entry)));
            if !is_entered {
                warn!("the address {} has no place in the table of addresses, and is learned like others", shown(key));
            }
        }
        *self.fixed.lock().unwrap_or_else(PoisonError::into_inner) = fixed;
    }

    /// Whether two addresses compete for the same places.
    #[cfg(test)]
    pub(crate) fn share_lines(&self, one: Key, other: Key) -> bool {
        self.current().share_lines(one, other)
    }

    /// The table in which addresses are looked up.
    fn current(&self) -> Arc<Slots> {
        Arc::clone(self.slots.lock().get())
    }

    /// Does something with the table, and with the one that is to take its place or was there before.
    fn on_tables(&self, mut act: impl FnMut(&Slots)) {
        let upkeep: MutexGuard<'_, Upkeep> = self.upkeep.lock().unwrap_or_else(PoisonError::into_inner);
        act(&self.current());
        match &upkeep.work {
            Work::Copy { larger: other, .. } | Work::Follow { old: other, .. } => act(other),
            Work::Nothing | Work::Expire { .. } => {}
        }
    }

    /// The number of a port for a bridge that has it. `None` if there are too many.
    pub(crate) fn port(&self, name: &str) -> Option<BridgePort> {
        let slots = self.current();
        let port = self.ports.of_bridge(name, |number| slots.at_port(number));
        self.ports_in_use.store(self.ports.in_use(), Relaxed);
        port
    }

    /// The table for this breath of a bridge.
    #[inline]
    pub(crate) fn view<'t, A: App>(&'t self, io: &'t Io<'_, A>, bridge: &'t str) -> View<'t> {
        View { table: self, bridge, slots: self.slots.read(io), age: self.age.load(Relaxed), now: io.now() }
    }

    /// Tells that a port has filled the table.
    #[cold]
    fn tell_full(&self, bridge: &str, port: PortNumber, slots: &Slots, now: u64) {
        self.full.tell(bridge, port.into(), now, || {
            let name = self.ports.names().get(usize::from(port)).cloned().unwrap_or_default();
            let outcome = format!(
                "{} of {} addresses are at it, and further ones are not learned; give it a limit with `max_macs`, or the \
                 table a larger `capacity`",
                slots.at_port(port),
                self.capacity.load(Relaxed)
            );
            (name, outcome)
        });
    }

    /// Writes to the log that an address has moved too often, unless it has just reported another one.
    #[cold]
    fn tell_held(&self, bridge: &str, entry: Entry, port: PortNumber, now: u64) {
        let time = u64::from(moves::at(now)) + 1;
        let is_due = |last: &AtomicU64, pause: u64| {
            let then = last.load(Relaxed);
            let is_early = then != 0 && time.wrapping_sub(then) % (1 << 16) < pause;
            !is_early && last.compare_exchange(then, time, Relaxed, Relaxed).is_ok()
        };
        if !is_due(&self.logged, LOG_UNITS) {
            return;
        }
        let names = self.ports.names();
        let name = |port: PortNumber| names.get(usize::from(port)).map_or("", |name| &**name);
        let (stays, other) = (name(entry.port), name(port));
        let event = StationMoving {
            app: bridge,
            address: &MacAddr(entry.key.mac()).to_string(),
            vlan: Some(entry.key.vlan()).filter(|vlan| *vlan != 0).map(u64::from),
            port: stays,
            other_port: other,
        };
        let message = format_args!(
            "the address {} moves between the ports `{stays}` and `{other}` too often: it stays at `{stays}` for a time; is \
             there a loop?",
            shown(entry.key)
        );
        match is_due(&self.told, EVENT_UNITS) {
            true => event.log(message),
            false => warn!("{message}"),
        }
    }
}

/// An address as it is written in network files.
fn shown(key: Key) -> String {
    match key.vlan() {
        0 => MacAddr(key.mac()).to_string(),
        vlan => format!("{} vlan {vlan}", MacAddr(key.mac())),
    }
}

/// The status of a table of MAC addresses.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Status of `mac-table`, and of `bridge` with a table of its own")]
pub(crate) struct MacTableStatus {
    /// The known addresses.
    addresses: usize,
    /// How many of them are in the network file.
    #[serde(rename = "static")]
    fixed: u64,
    /// How many of them stay at their port for a time, because they have moved too often.
    held: u64,
    /// How many there can be.
    capacity: usize,
    /// Its memory in bytes.
    memory: usize,
    /// The number of addresses by port.
    ports: ByName<u32>,
    /// By port, the parts of the bridges' counters of these names that are about frames from the port.
    limited: ByName<LimitedFrames>,
}

impl Status for MacTable {
    fn status(&self) -> Value {
        let slots = self.current();
        let (mut held, mut fixed) = (0u64, 0u64);
        for entry in slots.entries(0..slots.lines()) {
            held += u64::from(entry.is_held);
            fixed += u64::from(entry.is_static);
        }
        json!(MacTableStatus {
            addresses: slots.used(),
            fixed,
            held,
            capacity: self.capacity.load(Relaxed),
            memory: slots.memory(),
            ports: (0..).zip(self.ports.names()).map(|(port, name)| (name, slots.at_port(port))).collect(),
            limited: self.ports.limited(),
        })
    }

    fn converse(self: Arc<Self>) -> Option<Box<dyn Conversation>> {
        Some(Box::new(requests::Operator::new(self)))
    }
}

impl SharedObject for MacTable {
    const NAME: &'static str = "mac-table";
    const STATUS: Option<OutputSchema> = Some(OutputSchema::of::<MacTableStatus>());
    type Config = Config;

    fn configure(config: Config, _: &Context) -> Result<MacTable, SettingError> {
        capacity::check(config.capacity, "addresses")?;
        if !AGEING_NS.contains(&config.ageing.nanos()) {
            return Err(SettingError::at("ageing", "the time is out of range", "give a time from \"1s\" to \"1d\""));
        }
        for (key, time) in [("move_window", config.move_window), ("move_hold", config.move_hold)] {
            if !MOVES_NS.contains(&time.nanos()) {
                return Err(SettingError::at(key, "the time is out of range", "give a time from \"1s\" to \"1h\""));
            }
        }
        if config.max_moves.is_some_and(|max| !(1..=MAX_MOVES).contains(&max)) {
            let help = format!("give a number from 1 to {MAX_MOVES}, or leave it out for any number");
            return Err(SettingError::at("max_moves", "the number of moves is out of range", help));
        }
        let fixed = fixed::read(&config.fixed)?;
        if fixed.len() > config.capacity {
            let message = format!("a table of {} addresses has no room for {} of them", config.capacity, fixed.len());
            return Err(SettingError::at("static", message, "give a larger `capacity`"));
        }
        Ok(MacTable::of(&config, fixed))
    }

    fn take_over(self, running: &Arc<MacTable>) -> Succession<MacTable> {
        let running = Arc::clone(running);
        Succession::Change(Box::new(move || running.take_keys_of(self)))
    }
}

#[cfg(test)]
mod tests;
