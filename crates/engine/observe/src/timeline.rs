//! The timeline: the engine's recent history, event by event.
//!
//! A ring of fixed-size events in shared memory for each worker, written by its thread and read by any process, while it
//! runs or after a crash. Whole breaths are recorded with every call: some of the sampled ones, at a rate that adapts so
//! that the ring holds some seconds, and those that were unusually slow. Reloads, sleeps, panics and breaths that
//! exceed `breath_limit` are always recorded. The idea is that of Snabb's timeline (`src/core/timeline.lua`).
//!
//! A recorded breath marks the first vector that it hands to another worker. The mark travels with the vector, and the
//! breath that takes it in is recorded as well. So each [departure](What::Departure) has its [arrival](What::Arrival),
//! with the same number.
//!
//! Each worker has a file of this layout. The times of all files are by the clock of the first worker's, and the
//! names of all are in that file.
//!
//! ```text
//!  cell 0       magic number, "BELLOWT" and the layout's version
//!       1       events that the ring holds: a power of two
//!       2       events written since the start
//!       3       events that are written or being written
//!       4       frequency of the clock, in Hz
//!       5, 6    one moment by the clock, and in nanoseconds since the Unix epoch
//!       7       cells of names in use
//!       8       names of apps, each a cell with its length in bytes, and its bytes
//!       …       events, four cells each:
//!               clock at its start | kind, flags << 8, value << 32 | clocks that it lasted
//!               | position of its name, packets of a crossing << 32
//! ```

use std::collections::HashMap;
use std::io;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::fence;
use std::sync::{Arc, Mutex, PoisonError};

use bellows_sys::clock;
use bellows_sys::shared::SharedCells;
use bellows_sys::text::{cut, one_line};
use schemars::JsonSchema;
use serde::Serialize;

use crate::cells::Cells;
use crate::runtime_dir::RuntimeDir;
use crate::slab::ReadError;
use crate::slow::SlowBreath;
use crate::snapshot::Observer;

const MAGIC: u64 = u64::from_be_bytes(*b"BELLOWT\x02");
const CAPACITY_AT: usize = 1;
const WRITTEN: usize = 2;
const CLAIMED: usize = 3;
const HZ: usize = 4;
const ORIGIN: usize = 5;
const ORIGIN_UNIX: usize = 6;
const NAMES_USED: usize = 7;
const NAMES: usize = 8;

/// Cells for names: 10,000 of a usual length.
const NAME_CELLS: usize = 1 << 15;

/// The capacity of the ring in events: 4 MiB.
const CAPACITY: usize = 1 << 17;

/// Cells of an event.
const EVENT: usize = 4;

/// The maximum rate of recorded events a second: the ring then holds eight seconds.
const MAX_PER_SECOND: u64 = CAPACITY as u64 / 8;

/// The number of events between two adjustments of the rate.
const ADAPT_AFTER: u64 = 2_048;

/// The maximum length of a name that a reader sees, in bytes: that of a link of the longest names.
const MAX_SHOWN: usize = 1_200;

/// The placeholder for a name that did not fit.
const NAMELESS: u32 = u32::MAX;

mod kind {
    pub(super) const BREATH: u64 = 1;
    pub(super) const PULL: u64 = 2;
    pub(super) const PUSH: u64 = 3;
    pub(super) const TICK: u64 = 4;
    pub(super) const DROPS: u64 = 5;
    pub(super) const NAP: u64 = 6;
    pub(super) const RELOAD: u64 = 7;
    pub(super) const PANIC: u64 = 8;
    pub(super) const LATE: u64 = 9;
    pub(super) const DEPARTURE: u64 = 10;
    pub(super) const ARRIVAL: u64 = 11;
}

/// Flag of a breath that was recorded because it was slow.
const SLOW: u64 = 1;

/// Flag of a breath that was recorded because a marked vector arrived in it.
const CAUSED: u64 = 2;

/// Flag of a breath that was late because the process stood still.
const STANDSTILL: u64 = 1;

/// The value for an unknown time on the processor.
const UNKNOWN: u64 = u32::MAX as u64;

/// The names of apps in the file of one timeline. Any thread may add names.
pub struct Names {
    cells: Arc<SharedCells>,
    known: Mutex<HashMap<String, u32>>,
}

impl Names {
    /// The position of an app's name, which is added if it is new.
    pub fn position(&self, name: &str) -> u32 {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(&position) = known.get(name) {
            return position;
        }
        let cells = self.cells.cells();
        let used = cells[NAMES_USED].load(Relaxed) as usize;
        let words = name.len().div_ceil(8);
        if used + 1 + words > NAME_CELLS {
            return NAMELESS;
        }
        let to = &cells[NAMES + used..][..1 + words];
        to[0].store(name.len() as u64, Relaxed);
        for (cell, bytes) in to[1..].iter().zip(name.as_bytes().chunks(8)) {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            cell.store(u64::from_le_bytes(word), Relaxed);
        }
        cells[NAMES_USED].store((used + 1 + words) as u64, Release);
        known.insert(name.to_owned(), used as u32);
        used as u32
    }
}

/// The writer of a worker's timeline, on its thread.
pub struct Timeline {
    cells: Arc<SharedCells>,
    names: Arc<Names>,
    /// Events that readers may see, and those written after them, of a breath that may still be discarded.
    written: u64,
    pending: u64,
    /// The recording interval: one sampled breath in this many.
    every: u32,
    until_recorded: u32,
    /// The number of events at the last adjustment of the rate, and its time.
    looked_at: (u64, u64),
    /// A breath that takes longer than this is always recorded.
    slow: u64,
    /// Whether this breath is always recorded, because it contains an event that must not be lost.
    must_keep: bool,
}

impl Timeline {
    /// Creates the file of the first worker in an engine's folder.
    ///
    /// # Errors
    /// Those of creating a file.
    pub fn create(runtime_dir: &RuntimeDir) -> io::Result<Timeline> {
        let cells = Timeline::create_file(runtime_dir, None)?;
        let names = Arc::new(Names { cells: Arc::clone(&cells), known: Mutex::default() });
        Ok(Timeline::of(cells, names))
    }

    /// Creates the file of another worker, whose names are those of the first one's.
    ///
    /// # Errors
    /// Those of creating a file.
    pub fn create_for(runtime_dir: &RuntimeDir, worker: &str, names: &Arc<Names>) -> io::Result<Timeline> {
        Ok(Timeline::of(Timeline::create_file(runtime_dir, Some(worker))?, Arc::clone(names)))
    }

    fn create_file(runtime_dir: &RuntimeDir, worker: Option<&str>) -> io::Result<Arc<SharedCells>> {
        let mut content = vec![0u8; (NAMES + NAME_CELLS + EVENT * CAPACITY) * 8];
        let mut set = |cell: usize, value: u64| content[cell * 8..][..8].copy_from_slice(&value.to_ne_bytes());
        set(0, MAGIC);
        set(CAPACITY_AT, CAPACITY as u64);
        set(HZ, clock::ticks_per_second());
        set(ORIGIN, clock::ticks());
        set(ORIGIN_UNIX, clock::unix_ns());
        Ok(Arc::new(SharedCells::create(&runtime_dir.timeline(worker), &content)?))
    }

    fn of(cells: Arc<SharedCells>, names: Arc<Names>) -> Timeline {
        let looked_at = (0, clock::ticks());
        Timeline {
            cells,
            names,
            written: 0,
            pending: 0,
            every: 1,
            until_recorded: 0,
            looked_at,
            slow: 0,
            must_keep: false,
        }
    }

    /// The names of apps, for other threads.
    pub fn names(&self) -> Arc<Names> {
        Arc::clone(&self.names)
    }

    /// Writes an event after those that readers see.
    #[inline]
    fn write(&mut self, start: u64, word: u64, duration: u64, name: u32) {
        self.write_cells([start, word, duration, name.into()]);
    }

    #[inline]
    fn write_cells(&mut self, values: [u64; EVENT]) {
        let cells = self.cells.cells();
        let claimed = self.written + self.pending + 1;
        if claimed > cells[CLAIMED].load(Relaxed) {
            cells[CLAIMED].store(claimed, Relaxed);
        }
        // A reader of a cell of this event sees that it is being written.
        fence(Release);
        let at = NAMES + NAME_CELLS + (claimed - 1) as usize % CAPACITY * EVENT;
        let event = &cells[at..][..EVENT];
        event.iter().zip(values).for_each(|(cell, value)| cell.store(value, Relaxed));
        self.pending += 1;
    }

    /// Publishes the written events to readers.
    fn publish(&mut self) {
        self.written += std::mem::take(&mut self.pending);
        self.cells.cells()[WRITTEN].store(self.written, Release);
    }

    /// Records a call in the current breath. `entry` counts from 0: pull, push, tick.
    #[inline]
    pub fn call(&mut self, app: u32, entry: usize, start: u64, duration: u64, packets: u64) {
        self.write(start, (kind::PULL + entry as u64) | packets.min(u32::MAX.into()) << 32, duration, app);
    }

    /// Records packets that an app dropped in the current breath.
    #[inline]
    pub fn drops(&mut self, app: u32, at: u64, packets: u64) {
        self.write(at, kind::DROPS | packets.min(u32::MAX.into()) << 32, 0, app);
    }

    /// Whether the next breath will be kept whatever its duration, if it is recorded.
    pub fn keeps_next(&self) -> bool {
        self.until_recorded == 0
    }

    /// Records that the marked vector of this number, with `packets` packets, left for another worker through a link,
    /// in a breath that will be kept.
    pub fn departure(&mut self, link: u32, at: u64, number: u32, packets: u32) {
        self.cross(kind::DEPARTURE, link, at, number, packets);
    }

    /// Records that a marked vector arrived through a link.
    pub fn arrival(&mut self, link: u32, at: u64, number: u32, packets: u32) {
        self.cross(kind::ARRIVAL, link, at, number, packets);
        self.must_keep = true;
    }

    fn cross(&mut self, kind: u64, link: u32, at: u64, number: u32, packets: u32) {
        self.write_cells([at, kind | u64::from(number) << 32, 0, u64::from(link) | u64::from(packets) << 32]);
    }

    /// Ends a breath that was recorded only because a marked vector arrived in it.
    pub fn end_caused_breath(&mut self, start: u64, duration: u64) {
        self.must_keep = false;
        self.write(start, kind::BREATH | CAUSED << 8, duration, NAMELESS);
        self.publish();
        self.adapt(start);
    }

    /// Ends a breath: keeps or discards it. `sampled_every` is the sampling interval, `counts` says whether its
    /// duration is representative.
    pub fn end_breath(&mut self, start: u64, duration: u64, counts: bool, sampled_every: u64) {
        let is_chosen = self.until_recorded == 0;
        self.until_recorded = if is_chosen { self.every } else { self.until_recorded.min(self.every) } - 1;
        // This threshold settles so that about one breath in sixty is slower.
        let is_slow = counts && duration > self.slow;
        if is_slow {
            self.slow = if self.slow == 0 { duration } else { self.slow + self.slow / 4 + 1 };
        } else if counts {
            self.slow -= self.slow >> 8;
        }
        let must_keep = std::mem::take(&mut self.must_keep);
        if is_chosen || is_slow || must_keep {
            let every = (sampled_every * u64::from(self.every)).min(u32::MAX.into());
            let flags = if is_slow && !is_chosen { SLOW } else { 0 };
            self.write(start, kind::BREATH | flags << 8 | every << 32, duration, NAMELESS);
            self.publish();
        } else {
            self.pending = 0;
        }
        self.adapt(start);
    }

    /// Records fewer breaths if events come too fast, and more if they come slowly.
    fn adapt(&mut self, now: u64) {
        let (written, then) = self.looked_at;
        let (events, elapsed) = (self.written - written, now.saturating_sub(then));
        let due = ADAPT_AFTER * clock::ticks_per_second() / MAX_PER_SECOND;
        if events >= ADAPT_AFTER {
            if elapsed < due {
                self.every = self.every.saturating_mul(2).min(1 << 16);
            }
        } else if elapsed >= 4 * due {
            self.every = (self.every / 2).max(1);
        } else {
            return;
        }
        self.looked_at = (self.written, now);
    }

    /// Records a sleep.
    pub fn sleep(&mut self, start: u64, duration: u64) {
        self.write(start, kind::NAP, duration, NAMELESS);
        self.publish();
    }

    /// Records a reload.
    pub fn reload(&mut self, start: u64, duration: u64, dropped: u64) {
        self.write(start, kind::RELOAD | dropped.min(u32::MAX.into()) << 32, duration, NAMELESS);
        self.publish();
    }

    /// Records a panic of an app.
    pub fn panic(&mut self, app: u32, at: u64) {
        self.write_kept(at, kind::PANIC, 0, app);
    }

    /// Records a slow breath that has ended now.
    pub fn slow(&mut self, now: u64, slow: &SlowBreath, is_standstill: bool) {
        let ticks = u128::from(slow.nanos) * u128::from(clock::ticks_per_second()) / 1_000_000_000;
        let ticks = u64::try_from(ticks).unwrap_or(u64::MAX);
        let app = slow.doing.as_ref().filter(|_| !is_standstill);
        let app = app.map_or(NAMELESS, |doing| self.names.position(&doing.app));
        let micros = slow.on_processor.map_or(UNKNOWN, |nanos| (nanos / 1_000).min(UNKNOWN - 1));
        let flags = if is_standstill { STANDSTILL } else { 0 };
        self.write_kept(now.saturating_sub(ticks), kind::LATE | flags << 8 | micros << 32, ticks, app);
    }

    /// Writes an event that is kept even if the current breath is discarded.
    fn write_kept(&mut self, start: u64, word: u64, duration: u64, name: u32) {
        let within_breath = self.pending > 0;
        self.write(start, word, duration, name);
        if within_breath {
            self.must_keep = true;
        } else {
            self.publish();
        }
    }
}

/// The kind of an event.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize)]
#[serde(tag = "what", rename_all = "lowercase")]
pub enum What {
    /// After its calls and drops.
    Breath {
        /// Of a breath: one in `every` breaths is recorded; 0 if this one was only because of an arrival.
        every: u32,
        /// Of a breath: recorded because it was slow.
        slow: bool,
        /// Of a breath: recorded because marked packets arrived from another worker.
        caused: bool,
    },
    /// Of packets to another worker.
    Departure(Passage),
    /// Of these at the other worker.
    Arrival(Passage),
    /// Of an app.
    Call {
        /// Of a call, drops or a panic: the app.
        app: Arc<str>,
        /// Of a call: `pull`, `push` or `tick`.
        #[schemars(extend("enum" = ["pull", "push", "tick"]))]
        entry: &'static str,
        /// Of a call, drops, a departure or an arrival: the number of packets.
        ///
        /// Those of a call were taken (push) or sent (pull, tick).
        packets: u32,
    },
    /// Of packets, in a call that was recorded.
    Drops {
        /// Of a call, drops or a panic: the app.
        app: Arc<str>,
        /// Of a call, drops, a departure or an arrival: the number of packets.
        packets: u32,
    },
    /// Of the engine.
    Sleep,
    /// On the first worker.
    Reload {
        /// Of a reload: packets in removed parts.
        dropped: u32,
    },
    /// Of an app.
    Panic {
        /// Of a call, drops or a panic: the app.
        app: Arc<str>,
    },
    /// A breath, or work between two breaths, longer than `breath_limit`, sampled or not.
    Late {
        /// Of a late breath: the app in which the engine was most of the time, null if in none, or if unknown.
        app: Option<Arc<str>>,
        /// Of a late breath: the time that the engine's thread was on a processor, in microseconds; null if unknown.
        on_processor_us: Option<u32>,
        /// Of a late breath: whether the process was stopped.
        standstill: bool,
    },
}

/// One end of a marked vector's way between two workers.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize)]
pub struct Passage {
    /// Of a departure or an arrival: the link, as written in the file.
    pub link: Arc<str>,
    /// Of a departure or an arrival: the number that both have in common, and no other vector of the run has.
    pub mark: u32,
    /// Of a call, drops, a departure or an arrival: the number of packets.
    pub packets: u32,
}

/// One event.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize)]
#[schemars(title = "Event of a timeline")]
pub struct Event {
    /// Nanoseconds since the Unix epoch.
    pub start_ns: u64,
    /// Its duration.
    pub duration_ns: u64,
    /// Its kind.
    #[serde(flatten)]
    pub what: What,
}

/// The events of one worker.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Track {
    /// The worker's name.
    pub worker: String,
    /// Its events, in the order in which they were written.
    pub events: Vec<Event>,
}

/// The timelines of an engine, opened by a reader.
pub struct Recording {
    first: TimelineRing,
    /// Those of the other workers, with their names.
    further: Vec<(String, TimelineRing)>,
}

/// The timeline of one worker.
struct TimelineRing {
    cells: Cells,
}

impl Recording {
    /// The name of the first worker.
    pub const FIRST: &str = "main";

    /// Opens the timelines in an engine's folder: that of the first worker, and those of the other workers that its
    /// counters name.
    ///
    /// # Errors
    /// When there is none of the first worker, or one is of another version.
    pub fn open(runtime_dir: &RuntimeDir) -> Result<Recording, ReadError> {
        let first = TimelineRing::open(runtime_dir, None)?;
        let observer = Observer::open(runtime_dir.for_reading());
        let workers = observer.as_ref().map_or(&[][..], |observer| &observer.directory().workers);
        let mut further = Vec::new();
        for worker in workers.iter().skip(1) {
            match TimelineRing::open(runtime_dir, Some(&worker.name)) {
                Ok(ring) => further.push((worker.name.clone(), ring)),
                // A reload has removed the worker since.
                Err(ReadError::Unreadable(_, error)) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Recording { first, further })
    }

    /// The events of all workers, the first worker's first.
    pub fn tracks(&self) -> Vec<Track> {
        let first = Track { worker: Recording::FIRST.to_owned(), events: self.events() };
        let events = |ring: &TimelineRing| ring.events(&self.first);
        let further = self.further.iter().map(|(name, ring)| Track { worker: name.clone(), events: events(ring) });
        std::iter::once(first).chain(further).collect()
    }

    /// The events of the first worker, in the order in which they were written.
    pub fn events(&self) -> Vec<Event> {
        self.first.events(&self.first)
    }
}

impl TimelineRing {
    /// Opens the timeline of a worker.
    fn open(runtime_dir: &RuntimeDir, worker: Option<&str>) -> Result<TimelineRing, ReadError> {
        let path = runtime_dir.timeline(worker);
        let cells = match runtime_dir.timeline_cells(worker) {
            Ok(cells) => cells,
            Err(error) => return Err(ReadError::Unreadable(path, error)),
        };
        let header = |cell: usize| cells.cells().get(cell).map_or(0, |cell| cell.load(Relaxed));
        if header(0) != MAGIC {
            return Err(ReadError::Foreign(path, "its header is not that of a timeline"));
        }
        let is_long_enough = cells.cells().len() >= NAMES + NAME_CELLS + EVENT * CAPACITY;
        if header(CAPACITY_AT) != CAPACITY as u64 || !is_long_enough {
            return Err(ReadError::Foreign(path, "it is truncated"));
        }
        Ok(TimelineRing { cells })
    }

    fn header(&self, cell: usize) -> u64 {
        self.cells.cells()[cell].load(Relaxed)
    }

    /// The events in the ring, in the order in which they were written. The first worker's ring has the names and the
    /// clock.
    fn events(&self, first: &TimelineRing) -> Vec<Event> {
        let cells = self.cells.cells();
        let written = cells[WRITTEN].load(Acquire);
        let oldest = written.saturating_sub(CAPACITY as u64);
        let raw: Vec<[u64; EVENT]> = (oldest..written)
            .map(|event| {
                let at = NAMES + NAME_CELLS + (event % CAPACITY as u64) as usize * EVENT;
                std::array::from_fn(|word| cells[at + word].load(Relaxed))
            })
            .collect();
        // Events that have been overwritten meanwhile, or are being overwritten, are left out.
        fence(Acquire);
        let lost = cells[CLAIMED].load(Relaxed).saturating_sub(CAPACITY as u64).saturating_sub(oldest);
        let names = first.names();
        let header = |cell: usize| first.header(cell);
        let clock = Clock { hz: header(HZ).max(1), origin: header(ORIGIN), unix: header(ORIGIN_UNIX) };
        raw.into_iter().skip(lost as usize).filter_map(|raw| event(raw, &names, &clock)).collect()
    }

    fn names(&self) -> HashMap<u64, Arc<str>> {
        let used = (self.cells.cells()[NAMES_USED].load(Acquire) as usize).min(NAME_CELLS);
        let cells: &[AtomicU64] = &self.cells.cells()[NAMES..][..used];
        let mut names = HashMap::new();
        let mut position = 0;
        while let Some(length) = cells.get(position).map(|cell| cell.load(Relaxed) as usize) {
            let Some(words) = cells.get(position + 1..).and_then(|rest| rest.get(..length.div_ceil(8))) else { break };
            let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.load(Relaxed).to_le_bytes()).collect();
            bytes.truncate(length);
            // Another user may have written them.
            let mut name = one_line(&String::from_utf8_lossy(&bytes));
            cut(&mut name, MAX_SHOWN);
            names.insert(position as u64, name.into());
            position += 1 + words.len();
        }
        names
    }
}

/// The clock of a timeline.
struct Clock {
    hz: u64,
    origin: u64,
    unix: u64,
}

impl Clock {
    fn nanos(&self, ticks: u64) -> u64 {
        (u128::from(ticks) * 1_000_000_000 / u128::from(self.hz)).try_into().unwrap_or(u64::MAX)
    }

    fn moment(&self, ticks: u64) -> u64 {
        match ticks.checked_sub(self.origin) {
            Some(since) => self.unix.saturating_add(self.nanos(since)),
            None => self.unix.saturating_sub(self.nanos(self.origin - ticks)),
        }
    }
}

/// The event in some cells; `None` if its kind is unknown.
fn event([start, word, duration, name]: [u64; EVENT], names: &HashMap<u64, Arc<str>>, clock: &Clock) -> Option<Event> {
    let value = (word >> 32) as u32;
    let (name, packets) = (name & 0xffff_ffff, (name >> 32) as u32);
    let passage = || Passage { link: names.get(&name).cloned().unwrap_or_else(|| "?".into()), mark: value, packets };
    let app = || names.get(&name).cloned().unwrap_or_else(|| "?".into());
    let what = match word & 0xff {
        kind::BREATH => What::Breath { every: value, slow: word >> 8 & SLOW != 0, caused: word >> 8 & CAUSED != 0 },
        kind::DEPARTURE => What::Departure(passage()),
        kind::ARRIVAL => What::Arrival(passage()),
        kind::PULL => What::Call { app: app(), entry: "pull", packets: value },
        kind::PUSH => What::Call { app: app(), entry: "push", packets: value },
        kind::TICK => What::Call { app: app(), entry: "tick", packets: value },
        kind::DROPS => What::Drops { app: app(), packets: value },
        kind::NAP => What::Sleep,
        kind::RELOAD => What::Reload { dropped: value },
        kind::PANIC => What::Panic { app: app() },
        kind::LATE => What::Late {
            app: (name != u64::from(NAMELESS)).then(app),
            on_processor_us: (u64::from(value) != UNKNOWN).then_some(value),
            standstill: word >> 8 & STANDSTILL != 0,
        },
        _ => return None,
    };
    Some(Event { start_ns: clock.moment(start), duration_ns: clock.nanos(duration), what })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn runtime_dir() -> RuntimeDir {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        RuntimeDir::claim(&format!("test-timeline-{}-{}", std::process::id(), NUMBER.fetch_add(1, Relaxed))).unwrap()
    }

    fn calls(events: &[Event]) -> Vec<(String, u32)> {
        let call = |event: &Event| match &event.what {
            What::Call { app, packets, .. } => Some((app.to_string(), *packets)),
            _ => None,
        };
        events.iter().filter_map(call).collect()
    }

    #[test]
    fn a_reader_sees_the_breaths_that_were_kept() {
        let runtime_dir = runtime_dir();
        let mut timeline = Timeline::create(&runtime_dir).unwrap();
        let [source, sink] = ["source", "sink of some length"].map(|name| timeline.names().position(name));
        assert_eq!(timeline.names().position("source"), source, "a name is kept once");
        let now = clock::ticks();
        for (packets, duration) in [(1, 1_000), (2, 100), (3, 100_000)] {
            timeline.call(source, 0, now, 10, packets);
            timeline.call(sink, 1, now + 10, 20, packets);
            timeline.drops(sink, now + 30, 5);
            timeline.every = 3;
            timeline.end_breath(now, duration, true, 128);
        }
        timeline.call(source, 0, now, 10, 9);
        let events = Recording::open(&runtime_dir).unwrap().events();
        let sink = "sink of some length".to_owned();
        assert_eq!(
            calls(&events),
            [("source".to_owned(), 1), (sink.clone(), 1), ("source".to_owned(), 3), (sink, 3)],
            "the first is chosen, the third is slow, and one that has not ended is not seen"
        );
        let breaths: Vec<&What> =
            events.iter().map(|event| &event.what).filter(|what| matches!(what, What::Breath { .. })).collect();
        assert_eq!(
            breaths,
            [
                &What::Breath { every: 384, slow: false, caused: false },
                &What::Breath { every: 384, slow: true, caused: false }
            ]
        );
        let age = clock::unix_ns() - events[0].start_ns;
        assert!(age < 60_000_000_000, "{age} ns ago");
        assert!(
            (events[1].start_ns - events[0].start_ns).abs_diff(events[0].duration_ns) <= 1,
            "the second call follows the first"
        );
    }

    #[test]
    fn a_breath_in_which_an_app_panics_is_kept() {
        let runtime_dir = runtime_dir();
        let mut timeline = Timeline::create(&runtime_dir).unwrap();
        let app = timeline.names().position("app");
        let now = clock::ticks();
        timeline.every = 1_000;
        timeline.end_breath(now, 1_000, true, 128);
        timeline.call(app, 2, now, 10, 0);
        timeline.panic(app, now + 10);
        let panicked = |events: &[Event]| events.iter().any(|event| matches!(event.what, What::Panic { .. }));
        let recording = Recording::open(&runtime_dir).unwrap();
        assert!(!panicked(&recording.events()));
        timeline.end_breath(now, 10, true, 128);
        let events = recording.events();
        assert!(panicked(&events) && matches!(events.last().unwrap().what, What::Breath { slow: false, .. }));
    }

    #[test]
    fn a_late_breath_is_kept_with_its_app_and_times() {
        use crate::layout::Activity;
        use crate::slab::CurrentCall;
        let runtime_dir = runtime_dir();
        let mut timeline = Timeline::create(&runtime_dir).unwrap();
        let doing = Some(CurrentCall { app: "slow".to_owned(), activity: Activity::Call });
        let slow =
            SlowBreath { worker: None, nanos: 300_000_000, stood_still: 0, on_processor: Some(250_000_999), doing };
        timeline.slow(clock::ticks(), &slow, false);
        let still = SlowBreath { stood_still: 300_000_000, on_processor: None, ..slow };
        // Within a breath that would be discarded.
        timeline.end_breath(clock::ticks(), 1_000, true, 128);
        timeline.every = 1_000;
        timeline.call(0, 0, clock::ticks(), 10, 1);
        timeline.slow(clock::ticks(), &still, true);
        timeline.end_breath(clock::ticks(), 10, true, 128);
        let late = |event: Event| match event.what {
            What::Late { app, on_processor_us, standstill } => {
                Some((event.duration_ns.div_ceil(1_000_000), app, on_processor_us, standstill))
            }
            _ => None,
        };
        let late: Vec<_> = Recording::open(&runtime_dir).unwrap().events().into_iter().filter_map(late).collect();
        assert_eq!(late, [(300, Some("slow".into()), Some(250_000), false), (300, None, None, true)]);
    }

    #[test]
    fn the_rate_falls_when_events_come_fast_and_rises_when_they_do_not() {
        let runtime_dir = runtime_dir();
        let mut timeline = Timeline::create(&runtime_dir).unwrap();
        let mut now = clock::ticks();
        let second = clock::ticks_per_second();
        let breaths = |timeline: &mut Timeline, now: &mut u64, count: u64, step: u64| {
            let before = timeline.written;
            for _ in 0..count {
                *now += step;
                timeline.call(0, 0, *now, 1, 1);
                timeline.end_breath(*now, 100, true, 128);
            }
            timeline.written - before
        };
        breaths(&mut timeline, &mut now, 2_000_000, second / 1_000_000);
        let fast = breaths(&mut timeline, &mut now, 1_000_000, second / 1_000_000);
        assert!(fast < 4 * MAX_PER_SECOND, "{fast} events in a second");
        breaths(&mut timeline, &mut now, 2_000, second / 100);
        assert_eq!(timeline.every, 1);
        assert_eq!(breaths(&mut timeline, &mut now, 100, second / 100), 200);
    }

    #[test]
    fn a_ring_that_wrapped_keeps_the_last_events() {
        let runtime_dir = runtime_dir();
        let mut timeline = Timeline::create(&runtime_dir).unwrap();
        let now = clock::ticks();
        for sleep in 0..CAPACITY as u64 + 1_000 {
            timeline.sleep(now + sleep, 1);
        }
        let recording = Recording::open(&runtime_dir).unwrap();
        assert_eq!(recording.events().len(), CAPACITY);
        timeline.call(NAMELESS, 0, now, 1, 1);
        assert_eq!(recording.events().len(), CAPACITY - 1, "the oldest is being overwritten");
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

        /// Whatever a file holds, it is either read or rejected.
        #[test]
        fn a_damaged_timeline_is_read_or_refused(
            damage in proptest::collection::vec((0usize..40, prop_oneof![any::<u64>(), 0u64..50]), 0..20),
            events in proptest::collection::vec((any::<u64>(), any::<u64>(), any::<u64>(), any::<u32>()), 0..20),
        ) {
            let runtime_dir = runtime_dir();
            let mut timeline = Timeline::create(&runtime_dir).unwrap();
            timeline.names().position("some name");
            for (start, word, duration, name) in events {
                timeline.write(start, word, duration, name);
                timeline.publish();
            }
            for (cell, value) in damage {
                timeline.cells.cells()[cell].store(value, Relaxed);
            }
            if let Ok(recording) = Recording::open(&runtime_dir) {
                prop_assert!(recording.events().len() <= CAPACITY);
            }
        }
    }
}
