//! All counters of an engine at one time, by name.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use serde_json::Map;

use crate::histogram::Histogram;
use crate::layout::engine::Scope;
use crate::layout::{account, common, engine as cells, histogram, link};
use crate::runtime_dir::{COUNTERS, RuntimeDir};
use crate::slab::{
    AppEntry, CounterCells, CrossingEntry, CurrentCall, Directory, LinkEntry, Liveness, ReadError, Slab, WorkerEntry,
    sum,
};
use crate::totals::{AppTotals, AppTraffic, LinkTotals, Totals, crossing_traffic, engine_count, sampled_events};

/// One link.
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema, Serialize)]
#[schemars(title = "Link")]
pub struct LinkCounts {
    /// `app.output`.
    pub from: String,
    /// `app.input`.
    pub to: String,
    /// Packets sent into it.
    pub packets: u64,
    /// Bytes sent into it.
    pub bytes: u64,
    /// Packets dropped because it was full.
    pub txdrop: u64,
    /// Packets sent and not yet received.
    pub waiting: u64,
    /// Bytes sent and not yet received.
    pub waiting_bytes: u64,
    /// Of a removed link: packets that waited in it at the reload, and were dropped.
    pub removed: u64,
}

impl LinkCounts {
    /// Packets received: those sent less those that wait.
    pub fn received(&self) -> u64 {
        self.packets.saturating_sub(self.waiting).saturating_sub(self.removed)
    }

    /// Bytes received: those sent less those that wait.
    pub fn received_bytes(&self) -> u64 {
        self.bytes.saturating_sub(self.waiting_bytes)
    }

    fn named(entry: &LinkEntry, totals: LinkTotals) -> LinkCounts {
        let LinkTotals { packets, bytes, txdrop, waiting, waiting_bytes, removed } = totals;
        let (from, to) = (entry.from.clone(), entry.to.clone());
        LinkCounts { from, to, packets, bytes, txdrop, waiting, waiting_bytes, removed }
    }
}

/// The name of drops at reloads.
const REMOVED: &str = common::DROPS[common::REMOVED].name;

/// The name of drops at full links, among the drops of the app that sends.
const TXDROP: &str = link::COUNTERS[link::DROPS].name;

/// One app. Its traffic is the sum over its links.
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema, Serialize)]
#[schemars(title = "App")]
pub struct AppCounts {
    /// Its name in the network.
    pub name: String,
    /// Its type (`app = "…"`).
    pub kind: String,
    /// Its worker.
    pub worker: String,
    /// Packets received on all inputs.
    pub in_packets: u64,
    /// Bytes received on all inputs.
    pub in_bytes: u64,
    /// Packets sent on all outputs.
    pub out_packets: u64,
    /// Bytes sent on all outputs.
    pub out_bytes: u64,
    /// Packets that it made or brought in, including packets dropped before they had a buffer.
    pub made: u64,
    /// Packets that it consumed, as a sink does.
    pub ended: u64,
    /// Packets inside it.
    pub held: u64,
    /// Lost packets: 0, unless the app has a bug. Negative if the app claims more than it got.
    pub leaked: i64,
    /// Packets freed without being counted: 0, unless the app has a bug. Negative if more were counted than freed.
    pub uncounted: i64,
    /// Packets dropped, by reason.
    ///
    /// Packets dropped, by reason, including those at full links, `txdrop`.
    pub drops: BTreeMap<String, u64>,
    /// The drops that nobody asked for, by reason; drops of a rate limiter or a sampler are excluded.
    pub lost: BTreeMap<String, u64>,
    /// The descriptions of their reasons.
    #[serde(skip)]
    pub loss_helps: BTreeMap<String, String>,
    /// Its other counters; `bellows apps TYPE` explains each.
    pub counters: BTreeMap<String, u64>,
    /// `polling` (pulled in every breath), `slots` (pulled when a slot says so), `active` (pushed when packets wait for
    /// it), `failed` (it has panicked and is not called any more), `gone` (a reload has removed it).
    #[schemars(extend("enum" = ["polling", "slots", "active", "failed", "gone"]))]
    pub state: String,
    /// Number of panics.
    pub panics: u64,
    /// Number of calls: `pull`, `push`, `tick`; every call is counted, not only sampled ones.
    pub calls: BTreeMap<String, u64>,
    /// Sleeps of the engine that ended because of its descriptor.
    pub sleeps: u64,
    /// Data of the sampled breaths, for each entry (`pull`, `push`, `tick`): `pull_calls`; `pull_packets`, sent in
    /// these calls (for `push`, taken); `pull_clocks`, their clocks (of the clock of `ticks_per_second`);
    /// `pull_outlier_calls` and `pull_outlier_clocks`, the same for calls that took over 16 times as long as usual and
    /// over 5 µs, which the other keys exclude; and for each counted event such as `instructions`, `pull_instructions`:
    /// counted in some of these calls, and extrapolated to all.
    pub account: BTreeMap<String, u64>,
}

impl AppCounts {
    fn read(slab: &Slab, entry: &AppEntry, passed: AppTraffic, state: &str) -> AppCounts {
        let named = |names: &[String], first: usize| -> BTreeMap<String, u64> {
            names.iter().enumerate().map(|(index, name)| (name.clone(), slab.get(first + index))).collect()
        };
        let mut drops = named(&entry.drops, entry.cell);
        let totals = AppTotals::read(slab, entry, passed);
        drops.insert(TXDROP.to_owned(), totals.txdrop);
        let lost = |name: &String| entry.losses.contains_key(name) || name == TXDROP;
        let lost = drops.iter().filter(|(name, count)| **count > 0 && lost(name));
        let lost = lost.map(|(name, count)| (name.clone(), *count)).collect();
        AppCounts {
            name: entry.name.clone(),
            kind: entry.kind.clone(),
            worker: slab.directory.workers.get(entry.worker).map_or_else(String::new, |worker| worker.name.clone()),
            in_packets: totals.in_packets,
            in_bytes: totals.in_bytes,
            out_packets: totals.out_packets,
            out_bytes: totals.out_bytes,
            made: totals.made,
            ended: totals.ended,
            held: totals.held,
            leaked: totals.leaked,
            uncounted: totals.uncounted,
            drops,
            lost,
            loss_helps: entry.losses.clone(),
            counters: named(&entry.counters, entry.cell + entry.drops.len()),
            state: state.to_owned(),
            panics: totals.panics,
            calls: calls(slab, entry),
            sleeps: totals.sleeps,
            account: accounts(slab, entry),
        }
    }

    /// The two sides of a link between workers.
    fn read_crossing(slab: &Slab, entry: &CrossingEntry) -> [AppCounts; 2] {
        crossing_traffic(slab, entry).map(|(side, passed)| AppCounts::read(slab, side, passed, &side.state))
    }

    /// The imbalance of its books, if there is one.
    pub fn imbalance(&self) -> Option<Imbalance> {
        let Self { leaked, uncounted, .. } = *self;
        (leaked != 0 || uncounted != 0).then(|| Imbalance { app: self.name.clone(), leaked, uncounted })
    }

    /// Packets dropped for all reasons.
    pub fn dropped(&self) -> u64 {
        sum(self.drops.values().copied())
    }
}

/// Apps and links that reloads have removed, with their counts at that time. Apps that come and go under one name are
/// one row. The list is limited: older rows are dropped, and their drops are in the engine's counter `forgotten_drops`.
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema, Serialize)]
#[schemars(title = "Gone")]
pub struct Gone {
    /// Apps removed by reloads, with their last counts; a name that was removed several times is listed once. At most
    /// 128, the last removed ones.
    pub apps: Vec<AppCounts>,
    /// Links removed by reloads, with their last counts; at most 128, the last removed ones.
    pub links: Vec<LinkCounts>,
}

/// An app whose books do not balance: a bug in the app.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize)]
#[schemars(title = "Imbalance")]
pub struct Imbalance {
    /// The app.
    pub app: String,
    /// As in [App](#app).
    ///
    /// Packets that came in or were made, and were neither sent nor freed and are not held; negative if there are more
    /// of these than came.
    pub leaked: i64,
    /// As in [App](#app).
    ///
    /// Packets that were freed without being counted; negative if more were counted as dropped than were freed.
    pub uncounted: i64,
}

impl fmt::Display for Imbalance {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let packets = |count: i64| match count.unsigned_abs() {
            1 => "1 packet".to_owned(),
            count => format!("{count} packets"),
        };
        let leaked = match self.leaked {
            0 => None,
            1.. => Some(format!(
                "{} unaccounted for: they came in or were made, and were neither sent nor freed, nor does it report them as held",
                packets(self.leaked)
            )),
            ..0 => Some(format!(
                "{} too many: it reports them as held, or has sent or freed them, but never received or made them",
                packets(self.leaked)
            )),
        };
        let uncounted = match self.uncounted {
            0 => None,
            1.. => Some(format!("{} freed without being counted as dropped", packets(self.uncounted))),
            ..0 => Some(format!("{} counted as dropped that were not freed", packets(self.uncounted))),
        };
        let what: Vec<String> = leaked.into_iter().chain(uncounted).collect();
        write!(formatter, "this is a bug in the app `{}`: {}", self.app, what.join("; "))
    }
}

/// One worker.
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema, Serialize)]
#[schemars(title = "Worker")]
pub struct WorkerCounts {
    /// Its name in the network.
    pub name: String,
    /// The app that it is in; null between calls.
    pub doing: Option<CurrentCall>,
    /// Whether it sleeps.
    pub asleep: bool,
    /// Its memory node; null on a machine with one, or if it may run on several.
    pub node: Option<usize>,
    /// Those of the engine's counters that each worker counts for itself.
    pub counters: BTreeMap<String, u64>,
    /// The names of its apps.
    pub apps: Vec<String>,
}

impl WorkerCounts {
    fn read(slab: &Slab, position: usize, entry: &WorkerEntry) -> WorkerCounts {
        let Liveness { doing, asleep, .. } = Liveness::of_worker(slab, entry);
        let apps = slab.directory.apps.iter().filter(|app| app.worker == position);
        WorkerCounts {
            name: entry.name.clone(),
            doing,
            asleep,
            node: entry.node,
            counters: cells::in_scopes(&[Scope::Worker, Scope::WorkerTime])
                .map(|cell| (cells::COUNTERS[cell].name.to_owned(), slab.get(entry.cell + cell)))
                .collect(),
            apps: apps.map(|app| app.name.clone()).collect(),
        }
    }
}

/// All counters of an engine at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema, Serialize)]
#[schemars(title = "Counters")]
pub struct Snapshot {
    /// Version of Bellows.
    pub version: String,
    /// The engine's process.
    pub pid: u32,
    /// The schedule in use: `nested`, `flat` or `native`.
    #[schemars(extend("enum" = ["nested", "flat", "native"]))]
    pub schedule: String,
    /// A sentence: why this is not the requested schedule; empty if it is.
    pub fallback_reason: String,
    /// The network file as named on the command line.
    pub source: String,
    /// Frequency of the clock that times calls, in Hz.
    pub ticks_per_second: u64,
    /// The app that the engine is in; null between calls.
    ///
    /// The app that the engine is calling, if any. If the counter `alive` is old, the engine has been in it since then.
    pub doing: Option<CurrentCall>,
    /// Whether the engine sleeps.
    pub asleep: bool,
    /// The engine's own counters; with several workers, their sums.
    #[schemars(with = "EngineCounters")]
    pub engine: BTreeMap<String, u64>,
    /// The workers.
    pub workers: Vec<WorkerCounts>,
    /// The apps, in the order of the network file.
    pub apps: Vec<AppCounts>,
    /// The links, in the order of the network file.
    pub links: Vec<LinkCounts>,
    /// The engine's own work for links between workers: for each link the side that packets leave (`in_packets`), and
    /// the one at which they arrive (`out_packets`).
    pub crossings: Vec<AppCounts>,
    /// What reloads have removed.
    pub gone: Gone,
    /// Distributions of times, in nanoseconds: `breath`, the duration of sampled breaths in which a packet moved;
    /// `latency`, the time since a packet was created until its end, for some packets.
    pub histograms: BTreeMap<String, Histogram>,
}

/// The schema of the engine's own counters, which their list describes.
struct EngineCounters;

impl JsonSchema for EngineCounters {
    fn schema_name() -> Cow<'static, str> {
        "EngineCounters".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let counters = || cells::COUNTERS.iter().filter(|counter| counter.name != cells::DOING_NAME);
        let mut properties = Map::new();
        for counter in counters() {
            let mut count = u64::json_schema(generator);
            count.insert("description".to_owned(), counter.help.into());
            properties.insert(counter.name.to_owned(), count.to_value());
        }
        let names: Vec<&str> = counters().map(|counter| counter.name).collect();
        json_schema!({ "title": "Engine", "type": "object", "properties": properties, "required": names })
    }
}

/// The engine's counters by name.
fn engine_counters(slab: &Slab, names: &[String]) -> BTreeMap<String, u64> {
    let names = names.iter().enumerate().filter(|(_, name)| *name != cells::DOING_NAME);
    names.map(|(cell, name)| (name.clone(), engine_count(slab, cell))).collect()
}

/// The number of calls of an app.
fn calls(slab: &Slab, entry: &AppEntry) -> BTreeMap<String, u64> {
    let names = account::NAMES.iter().enumerate();
    names.map(|(index, name)| ((*name).to_owned(), slab.get(entry.account + account::CALLS + index))).collect()
}

/// The record of the sampled breaths for an app.
fn accounts(slab: &Slab, entry: &AppEntry) -> BTreeMap<String, u64> {
    let events = &slab.directory.events;
    let mut accounts = BTreeMap::new();
    for (index, name) in account::NAMES.iter().enumerate() {
        let first = entry.account + account::samples(index, events.len());
        for (offset, what) in account::SAMPLES.iter().enumerate() {
            accounts.insert(format!("{name}_{}", what.name), slab.get(first + offset));
        }
        let counts = events.iter().zip(sampled_events(slab, entry, index));
        accounts.extend(counts.filter_map(|(what, count)| Some((format!("{name}_{what}"), count?))));
    }
    accounts
}

impl Snapshot {
    /// The snapshot of a block of counters.
    pub fn of(slab: &Slab) -> Snapshot {
        let directory = &slab.directory;
        let Directory {
            version, pid, schedule, fallback_reason, source, engine, apps, links, ticks_per_second, ..
        } = directory;
        let Directory { gone_apps, gone_links, workers, crossings, .. } = directory;
        let totals = Totals::links(slab);
        let ends = links.iter().zip(&totals).map(|(entry, totals)| (&*entry.from, &*entry.to, *totals));
        let passed = AppTraffic::by_app(ends);
        let links = links.iter().zip(&totals).map(|(entry, totals)| LinkCounts::named(entry, *totals));
        let apps = apps.iter().map(|entry| {
            let passed = passed.get(entry.name.as_str()).copied().unwrap_or_default();
            let state = if slab.get(entry.account + account::FAILED) > 0 { "failed" } else { &entry.state };
            AppCounts::read(slab, entry, passed, state)
        });
        let gone = Gone {
            apps: gone_apps.iter().map(|entry| AppCounts::read(slab, entry, AppTraffic::default(), "gone")).collect(),
            links: gone_links.iter().map(|entry| LinkCounts::named(entry, LinkTotals::read(slab, entry))).collect(),
        };
        let histogram =
            |(which, name): (usize, &&str)| ((*name).to_owned(), Histogram::of_workers(slab, which, workers));
        let Liveness { doing, asleep, .. } = Liveness::of(slab);
        Snapshot {
            version: version.clone(),
            pid: *pid,
            schedule: schedule.clone(),
            fallback_reason: fallback_reason.clone(),
            source: source.clone(),
            ticks_per_second: *ticks_per_second,
            doing,
            asleep,
            engine: engine_counters(slab, engine),
            workers: workers.iter().enumerate().map(|(index, entry)| WorkerCounts::read(slab, index, entry)).collect(),
            apps: apps.collect(),
            links: links.collect(),
            crossings: crossings.iter().flat_map(|entry| AppCounts::read_crossing(slab, entry)).collect(),
            gone,
            histograms: histogram::NAMES.iter().enumerate().map(histogram).collect(),
        }
    }

    /// The engine's activity.
    pub fn pulse(&self) -> Liveness {
        let pulse = |worker: &WorkerCounts| Liveness {
            worker: (self.workers.len() > 1).then(|| worker.name.clone()),
            doing: worker.doing.clone(),
            asleep: worker.asleep,
            alive: worker.counters.get("alive").copied().unwrap_or(0),
        };
        let workers = self.workers.iter().map(pulse).min_by_key(|pulse| (pulse.asleep, pulse.alive));
        let doing = self.doing.clone();
        workers.unwrap_or_else(|| Liveness { worker: None, doing, asleep: self.asleep, alive: self.engine("alive") })
    }

    /// One of the engine's own counters; 0 if there is none of this name.
    pub fn engine(&self, name: &str) -> u64 {
        self.engine.get(name).copied().unwrap_or(0)
    }

    /// All drops of the apps and links, including removed ones.
    pub fn dropped(&self) -> u64 {
        let apps = self.apps.iter().chain(&self.gone.apps).map(AppCounts::dropped);
        let links = self.gone.links.iter().map(|link| link.removed);
        sum(apps.chain(links).chain([self.engine("forgotten_drops")]))
    }

    /// Packets dropped because reloads removed or replaced their apps or links, as far as these are still listed.
    pub fn removed(&self) -> u64 {
        let apps = self.apps.iter().chain(&self.gone.apps).filter_map(|app| app.drops.get(REMOVED).copied());
        sum(apps.chain(self.gone.links.iter().map(|link| link.removed)))
    }

    /// The apps whose books do not balance, including removed ones: they have a bug. The books are those of the last
    /// write of the gauges, when no packet was on its way.
    pub fn imbalances(&self) -> Vec<Imbalance> {
        self.apps.iter().chain(&self.crossings).chain(&self.gone.apps).filter_map(AppCounts::imbalance).collect()
    }
}

/// How often [`Observer::read`] looks for the counters of a new configuration, and the pause between.
const READ_ATTEMPTS: u8 = 20;
/// The same for another user's counters, which may be unreadable for as long as that user likes.
const FOREIGN_READ_ATTEMPTS: u8 = 2;
const PUBLICATION_PAUSE: Duration = Duration::from_millis(1);

/// A copy of all counters at one time.
pub struct Reading {
    /// The memory that they were read from, which has their directory.
    slab: Arc<Slab>,
    cells: Vec<u64>,
}

impl Reading {
    fn of(slab: &Arc<Slab>) -> Reading {
        let cells = slab.cells().iter().map(|cell| cell.load(Relaxed)).collect();
        Reading { slab: Arc::clone(slab), cells }
    }

    /// The activity of the engine when they were read.
    pub fn pulse(&self) -> Liveness {
        Liveness::of(self)
    }

    /// Whether both are of the same configuration of the same run, with the same directory.
    pub fn has_directory_of(&self, other: &Reading) -> bool {
        Arc::ptr_eq(&self.slab, &other.slab)
    }
}

impl CounterCells for Reading {
    fn directory(&self) -> &Directory {
        &self.slab.directory
    }

    fn get(&self, cell: usize) -> u64 {
        self.cells.get(cell).copied().unwrap_or(0)
    }
}

/// A view of an engine's counters from outside its process, alive or dead.
pub struct Observer {
    runtime_dir: RuntimeDir,
    slab: Arc<Slab>,
}

impl Observer {
    /// Opens the counters in an engine's folder.
    ///
    /// # Errors
    /// When there are none, or they are of another version.
    pub fn open(runtime_dir: RuntimeDir) -> Result<Observer, ReadError> {
        let slab = Arc::new(Slab::open(&runtime_dir)?);
        Ok(Observer { runtime_dir, slab })
    }

    /// The current counters. After a reload they are those of the new configuration.
    pub fn snapshot(&mut self) -> Snapshot {
        // The counters of another user's engine are a copy.
        if (self.runtime_dir.is_foreign() || self.slab.is_superseded())
            && let Ok(newer) = Slab::open(&self.runtime_dir)
        {
            self.slab = Arc::new(newer);
        }
        Snapshot::of(&self.slab)
    }

    /// All counters at one time, and of one configuration: if a reload replaces them meanwhile, those of the new one.
    pub fn read(&mut self) -> Reading {
        let attempts = if self.runtime_dir.is_foreign() { FOREIGN_READ_ATTEMPTS } else { READ_ATTEMPTS };
        for attempt in 0..attempts {
            if attempt > 0 {
                // Between its commit and its publication, a new configuration has no file of this name.
                thread::sleep(PUBLICATION_PAUSE);
            }
            let Some(reading) = self.try_read() else { continue };
            return reading;
        }
        Reading::of(&self.slab)
    }

    /// The counters, unless a newer configuration has replaced them and has no file yet.
    fn try_read(&mut self) -> Option<Reading> {
        if self.runtime_dir.is_foreign() {
            // The counters of another user's engine are a copy. Its directory is parsed only if it has changed.
            let copy = self.runtime_dir.cells(COUNTERS).ok()?;
            if let Some(cells) = self.slab.counters_in(&copy) {
                return Some(Reading { slab: Arc::clone(&self.slab), cells });
            }
            self.slab = Arc::new(Slab::read_of(&self.runtime_dir, copy).ok()?);
        } else if self.slab.is_superseded() {
            self.slab = Arc::new(Slab::open(&self.runtime_dir).ok()?);
        }
        if self.slab.is_superseded() {
            return None;
        }
        let reading = Reading::of(&self.slab);
        (!self.slab.is_superseded()).then_some(reading)
    }

    /// The packets sent into a link so far, by its position in the directory; 0 if there is none. No other counter is
    /// read, so the engine keeps the others in its caches.
    pub fn link_packets(&self, position: usize) -> u64 {
        self.slab.directory.links.get(position).map_or(0, |entry| self.slab.get(entry.cell + link::PACKETS))
    }

    /// The directory of the counters.
    pub fn directory(&self) -> &Directory {
        &self.slab.directory
    }

    /// The engine's folder.
    pub fn runtime_dir(&self) -> &RuntimeDir {
        &self.runtime_dir
    }
}
