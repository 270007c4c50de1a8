//! `mac-table`: the MAC addresses that bridges have learned, shared by the bridges of all workers.
//!
//! | file | contents |
//! |---|---|
//! | `slots.rs` | the entries, which all threads read and change word by word |

mod slots;

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicUsize};
use std::sync::{Arc, Mutex, PoisonError};

use bellows_config::{Context, Duration, SettingError, SharedObject};
use bellows_engine::{App, Io, Status};
use bellows_shared::Published;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use self::slots::{AGES, Entry, IN_A_LINE, PORTS, Slots};
pub(crate) use self::slots::{Learned, PortNumber};
use crate::capacity;

/// The MAC addresses that bridges have learned, and their ports.
///
/// Apps of type `bridge` that name it with `table` are one bridge, whose ports have the names of these apps' inputs and
/// outputs. So a bridge may have ports on several workers: an address that is learned on one of them is known on all
/// others at once. Every bridge writes: each entry is one word, and the last one who has seen an address is right.
/// Looking up never waits. The table grows when it is half full: one bridge at a time copies a part of it between two
/// breaths, and the old memory is freed when all workers have passed a breath.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The maximum number of addresses, from 64 to 1,048,576. Further ones are not learned, and their frames are
    /// flooded.
    #[schemars(extend("x-unit" = "addresses"), range(min = 64, max = 1048576))]
    pub capacity: usize,

    /// How long an address is known that has not been seen as a source, from 1 second to 1 day. It is forgotten between
    /// this time and 1/32 later.
    #[schemars(extend("x-unit" = "time"))]
    pub ageing: Duration,
}

impl Default for Config {
    fn default() -> Config {
        // The time is that of IEEE 802.1Q.
        Config { capacity: 65_536, ageing: Duration::from_secs(300) }
    }
}

const AGEING_NS: std::ops::RangeInclusive<u64> = 1_000_000_000..=86_400_000_000_000;

/// An entry expires when it is so many steps of the age behind.
const STEPS: u32 = 32;

/// Lines of a new table.
const FIRST_LINES: usize = 64;

/// Lines that are looked through at a time: some microseconds.
const LINES_AT_A_TIME: usize = 256;

/// The time between two looks at workers that must pass a breath.
const PASS_NS: u64 = 1_000_000;

/// A table of MAC addresses.
pub struct MacTable {
    config: Config,
    slots: Published<Arc<Slots>>,
    /// The number of entries; a few more if some were learned while the table was replaced.
    used: AtomicUsize,
    /// The step of the age.
    age: AtomicU32,
    ports: Mutex<Vec<String>>,
    upkeep: Mutex<Upkeep>,
}

/// The work that one bridge at a time does.
struct Upkeep {
    /// The time of the first call and the step of the age, once there is one.
    began: Option<u64>,
    step: u64,
    work: Work,
}

/// What is being done, a few lines at a time.
enum Work {
    Nothing,
    /// Removes what is too old, from this line on.
    Expire {
        line: usize,
    },
    /// Copies the entries to a larger table that nobody knows yet; their number so far.
    Copy {
        line: usize,
        larger: Arc<Slots>,
        copied: usize,
    },
    /// Waits until no worker writes to the old table, then copies what has been learned there meanwhile.
    Follow {
        line: usize,
        old: Arc<Slots>,
    },
}

/// The table for a breath.
pub(crate) struct View<'t> {
    table: &'t MacTable,
    slots: &'t Slots,
    age: u32,
    has_room: bool,
}

impl View<'_> {
    /// The port of an address. Hot.
    #[inline(always)]
    pub(crate) fn look_up(&self, address: u64) -> Option<PortNumber> {
        self.slots.look_up(address)
    }

    /// Learns that an address other than 0 is at a port. Hot.
    #[inline(always)]
    pub(crate) fn learn(&self, address: u64, port: PortNumber) -> Learned {
        let learned = self.slots.learn(Entry { address, port, age: self.age }, self.has_room);
        if learned == Learned::New {
            self.table.used.fetch_add(1, Relaxed);
        }
        learned
    }

    /// Whether a bridge should do the [work](MacTable::upkeep) soon.
    pub(crate) fn wants_upkeep(&self) -> bool {
        self.table.is_tight(self.slots)
    }
}

impl MacTable {
    fn of(config: Config) -> MacTable {
        MacTable {
            config,
            slots: Published::new(Arc::new(Slots::new(FIRST_LINES))),
            used: AtomicUsize::new(0),
            age: AtomicU32::new(0),
            ports: Mutex::default(),
            upkeep: Mutex::new(Upkeep { began: None, step: 0, work: Work::Nothing }),
        }
    }

    /// The number of a port. `None` if there are too many.
    pub(crate) fn port(&self, name: &str) -> Option<PortNumber> {
        let mut ports = self.ports.lock().unwrap_or_else(PoisonError::into_inner);
        let known = ports.iter().position(|port| port == name);
        let number = known.unwrap_or_else(|| {
            ports.push(name.to_owned());
            ports.len() - 1
        });
        (number < PORTS).then_some(number as PortNumber)
    }

    /// The table for this breath.
    #[inline]
    pub(crate) fn view<'t, A: App>(&'t self, io: &'t Io<'_, A>) -> View<'t> {
        let has_room = self.used.load(Relaxed) < self.config.capacity;
        View { table: self, slots: self.slots.read(io), age: self.age.load(Relaxed), has_room }
    }

    /// Whether the table is more than half full, and may grow.
    fn is_tight(&self, slots: &Slots) -> bool {
        self.used.load(Relaxed) * 2 > slots.len() && slots.len() < self.config.capacity * 2
    }

    /// Does a part of the work that is due: ageing and growing. Returns when to call again. Meant for
    /// [`App::tick`] of each bridge.
    pub(crate) fn upkeep(&self, now: u64) -> u64 {
        let step_ns = self.config.ageing.nanos() / u64::from(STEPS);
        let Ok(mut upkeep) = self.upkeep.try_lock() else { return now + step_ns };
        let began = *upkeep.began.get_or_insert(now);
        let step = now.saturating_sub(began) / step_ns;
        if step > upkeep.step {
            if step - upkeep.step >= u64::from(STEPS) {
                // The steps of the entries are no longer comparable, and all are too old.
                let mut slots = self.slots.lock();
                self.used.fetch_sub(slots.get().expire(0..slots.get().lines(), |_| true), Relaxed);
                slots.reclaim();
            }
            upkeep.step = step;
            self.age.store((step % u64::from(AGES)) as u32, Relaxed);
            if matches!(upkeep.work, Work::Nothing) {
                upkeep.work = Work::Expire { line: 0 };
            }
        }
        let pause = self.work(&mut upkeep.work);
        pause.map_or(began + (step + 1) * step_ns, |pause| now + pause)
    }

    /// Goes on with the work. Returns the time until it goes on, if there is more.
    fn work(&self, work: &mut Work) -> Option<u64> {
        let mut writer = self.slots.lock();
        let pending = writer.reclaim();
        let slots = Arc::clone(writer.get());
        let age = self.age.load(Relaxed);
        let is_old = |entry: Entry| age.wrapping_sub(entry.age) % AGES >= STEPS;
        match work {
            Work::Nothing if self.is_tight(&slots) => {
                *work = Work::Copy { line: 0, larger: Arc::new(Slots::new(slots.lines() * 2)), copied: 0 };
                Some(0)
            }
            Work::Nothing => None,
            Work::Expire { line } => {
                let lines = part(*line, &slots);
                *line = lines.end;
                self.used.fetch_sub(slots.expire(lines, is_old), Relaxed);
                if *line == slots.lines() {
                    *work = Work::Nothing;
                }
                Some(0)
            }
            Work::Copy { line, larger, copied } => {
                let lines = part(*line, &slots);
                *line = lines.end;
                for entry in slots.entries(lines) {
                    *copied += usize::from(larger.learn(entry, true) == Learned::New);
                }
                if *line == slots.lines() {
                    // What has been learned since it was copied is counted below.
                    self.used.store(*copied, Relaxed);
                    writer.replace(Arc::clone(larger));
                    *work = Work::Follow { line: 0, old: slots };
                }
                Some(0)
            }
            Work::Follow { .. } if pending > 0 => Some(PASS_NS),
            Work::Follow { line, old } => {
                let lines = part(*line, old);
                *line = lines.end;
                for entry in old.entries(lines).filter(|entry| slots.look_up(entry.address).is_none()) {
                    self.used.fetch_add(usize::from(slots.learn(entry, true) == Learned::New), Relaxed);
                }
                if *line == old.lines() {
                    *work = Work::Expire { line: 0 };
                }
                Some(0)
            }
        }
    }
}

/// The next lines of a table.
fn part(line: usize, slots: &Slots) -> std::ops::Range<usize> {
    line..slots.lines().min(line + LINES_AT_A_TIME)
}

impl Status for MacTable {
    fn status(&self) -> Value {
        let slots = Arc::clone(self.slots.lock().get());
        let names = self.ports.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut addresses = vec![0u64; names.len()];
        let entries = slots.entries(0..slots.lines());
        entries.filter_map(|entry| addresses.get_mut(usize::from(entry.port)).map(|count| *count += 1)).for_each(drop);
        let ports: serde_json::Map<String, Value> =
            names.into_iter().zip(&addresses).map(|(name, count)| (name, json!(count))).collect();
        json!({
            "addresses": addresses.iter().sum::<u64>(),
            "capacity": self.config.capacity,
            "memory": slots.lines() * IN_A_LINE * size_of::<u64>(),
            "ports": ports,
        })
    }
}

impl SharedObject for MacTable {
    const NAME: &'static str = "mac-table";
    type Config = Config;

    fn configure(config: Config, _: &Context) -> Result<MacTable, SettingError> {
        capacity::check(config.capacity, "addresses")?;
        if !AGEING_NS.contains(&config.ageing.nanos()) {
            return Err(SettingError::at("ageing", "the time is out of range", "give a time from \"1s\" to \"1d\""));
        }
        Ok(MacTable::of(config))
    }
}
