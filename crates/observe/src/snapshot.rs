//! All counters of an engine at one time, by name.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use crate::histogram::Histogram;
use crate::layout::{account, common, engine as cells, histogram, link};
use crate::runtime_dir::RuntimeDir;
use crate::slab::{AppEntry, CrossingEntry, CurrentCall, Directory, LinkEntry, Liveness, ReadError, Slab, WorkerEntry};

/// One link.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LinkCounts {
    /// `app.port` that sends.
    pub from: String,
    /// `app.port` that receives.
    pub to: String,
    /// Packets sent.
    pub packets: u64,
    /// Bytes sent.
    pub bytes: u64,
    /// Packets dropped because the link was full.
    pub txdrop: u64,
    /// Packets that were sent and wait to be received.
    pub waiting: u64,
    /// Bytes that were sent and wait to be received.
    pub waiting_bytes: u64,
    /// For a removed link: packets that waited in it when a reload removed it, and were dropped.
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

    fn read(slab: &Slab, entry: &LinkEntry) -> LinkCounts {
        LinkCounts {
            from: entry.from.clone(),
            to: entry.to.clone(),
            packets: slab.get(entry.cell + link::PACKETS),
            bytes: slab.get(entry.cell + link::BYTES),
            txdrop: slab.get(entry.cell + link::DROPS),
            waiting: slab.get(entry.cell + link::WAITING),
            waiting_bytes: slab.get(entry.cell + link::WAITING_BYTES),
            removed: slab.get(entry.cell + link::REMOVED),
        }
    }

    /// Corrects what waits in a link between workers: all that was sent and has not been received.
    fn cross(&mut self, slab: &Slab, entry: &CrossingEntry) {
        let arrived = |cell: usize| slab.get(entry.arrived + cell);
        let received = arrived(link::PACKETS).wrapping_sub(arrived(link::WAITING));
        let received_bytes = arrived(link::BYTES).wrapping_sub(arrived(link::WAITING_BYTES));
        // Read after what was received, the number sent is at least as large, except in a damaged file.
        let sent = |cell: usize| slab.get(slab.directory.links[entry.link].cell + cell);
        self.packets = sent(link::PACKETS);
        self.bytes = sent(link::BYTES);
        self.waiting = self.packets.saturating_sub(received);
        self.waiting_bytes = self.bytes.saturating_sub(received_bytes);
    }

    fn app_of(end: &str) -> &str {
        end.rsplit_once('.').map_or(end, |(app, _)| app)
    }
}

/// The name of drops at reloads.
const REMOVED: &str = common::DROPS[common::REMOVED].name;

/// The name of drops at full links, among the drops of the app that sends.
const TXDROP: &str = link::COUNTERS[link::DROPS].name;

/// The traffic through all links of an app.
#[derive(Clone, Copy, Default)]
struct Traffic {
    in_packets: u64,
    in_bytes: u64,
    out_packets: u64,
    out_bytes: u64,
    dropped: u64,
}

impl Traffic {
    /// The traffic of each app that a link names. The counters of another process may have any value, so no sum may
    /// overflow.
    fn by_app(links: &[LinkCounts]) -> HashMap<&str, Traffic> {
        let mut apps: HashMap<&str, Traffic> = HashMap::with_capacity(links.len());
        let add = |to: &mut u64, count: u64| *to = to.saturating_add(count);
        for link in links {
            let receiver = apps.entry(LinkCounts::app_of(&link.to)).or_default();
            add(&mut receiver.in_packets, link.received());
            add(&mut receiver.in_bytes, link.received_bytes());
            let sender = apps.entry(LinkCounts::app_of(&link.from)).or_default();
            add(&mut sender.out_packets, link.packets);
            add(&mut sender.out_bytes, link.bytes);
            add(&mut sender.dropped, link.txdrop);
        }
        apps
    }
}

/// One app. Its traffic is the sum over its links.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct AppCounts {
    /// Its name in the network.
    pub name: String,
    /// Its type's name in the catalogue.
    pub kind: String,
    /// The name of its worker.
    pub worker: String,
    /// Packets received on all inputs.
    pub in_packets: u64,
    /// Bytes received on all inputs.
    pub in_bytes: u64,
    /// Packets sent on all outputs.
    pub out_packets: u64,
    /// Bytes sent on all outputs.
    pub out_bytes: u64,
    /// Packets that it made or brought in, including those that were dropped before they had a buffer.
    pub made: u64,
    /// Packets that ended in it: it consumed them.
    pub ended: u64,
    /// Packets inside it.
    pub held: u64,
    /// Leaked packets: `in_packets + made` less `out_packets`, those freed, and `held`. Not 0 in an app that has a bug.
    pub leaked: i64,
    /// Packets that were freed without being counted; negative if more were counted as dropped than were freed. Not 0
    /// in an app that has a bug.
    pub uncounted: i64,
    /// Packets dropped, by reason, including those at full links, `txdrop`.
    pub drops: BTreeMap<String, u64>,
    /// The unintended ones of these drops.
    pub lost: BTreeMap<String, u64>,
    /// The descriptions of their reasons.
    #[serde(skip)]
    pub loss_helps: BTreeMap<String, String>,
    /// Its other counters.
    pub counters: BTreeMap<String, u64>,
    /// How it is called: `polling` (pulled in every breath), `slots` (pulled when a slot says so), `active` (pushed
    /// when packets wait for it); `failed` if it has panicked and is no longer called; `gone` if a reload has removed
    /// it.
    pub state: String,
    /// The number of panics.
    pub panics: u64,
    /// The number of calls: `pull`, `push`, `tick`.
    pub calls: BTreeMap<String, u64>,
    /// Sleeps of the engine that its descriptor ended.
    pub sleeps: u64,
    /// The record of the sampled breaths. For each entry (`pull`, `push`, `tick`): its calls, the packets taken (push)
    /// or sent (pull, tick) in them, and their clocks: `pull_calls`, `pull_packets`, `pull_clocks`, …. Separately, the
    /// outliers: `pull_outlier_calls`, `pull_outlier_clocks`. Counted events follow, such as `pull_instructions`;
    /// events that were not counted are absent.
    pub account: BTreeMap<String, u64>,
}

impl AppCounts {
    fn read(slab: &Slab, entry: &AppEntry, passed: Traffic, state: &str) -> AppCounts {
        let named = |names: &[String], first: usize| -> BTreeMap<String, u64> {
            names.iter().enumerate().map(|(index, name)| (name.clone(), slab.get(first + index))).collect()
        };
        let account = |cell: usize| slab.get(entry.account + cell);
        // If an app has taken over a link from another, its past traffic is negative. The link's own counts are at
        // least as large, except in a damaged file.
        let past = |passed: u64, cell: usize| passed.saturating_add_signed(account(cell).cast_signed());
        let mut drops = named(&entry.drops, entry.cell);
        drops.insert(TXDROP.to_owned(), past(passed.dropped, account::PAST_TXDROP));
        let lost = |name: &String| entry.losses.contains_key(name) || name == TXDROP;
        let lost = drops.iter().filter(|(name, count)| **count > 0 && lost(name));
        let lost = lost.map(|(name, count)| (name.clone(), *count)).collect();
        // All of these are as another process has written them.
        let unmade = account(account::UNMADE);
        let dropped = sum(drops.values().copied());
        let consumed = account(account::FREED).saturating_sub(dropped.saturating_sub(unmade));
        // A buffer that an app without inputs gives back has never become a packet.
        let unused = if entry.brings_in { consumed } else { 0 };
        let made = sum([account(account::TAKEN), account(account::BROUGHT_IN), unmade].into_iter());
        AppCounts {
            name: entry.name.clone(),
            kind: entry.kind.clone(),
            worker: slab.directory.workers.get(entry.worker).map_or_else(String::new, |worker| worker.name.clone()),
            in_packets: past(passed.in_packets, account::PAST_IN),
            in_bytes: past(passed.in_bytes, account::PAST_IN_BYTES),
            out_packets: past(passed.out_packets, account::PAST_OUT),
            out_bytes: past(passed.out_bytes, account::PAST_OUT_BYTES),
            made: made.saturating_sub(unused),
            ended: sum(
                [if entry.ends && !entry.brings_in { consumed } else { 0 }, account(account::HANDED_OFF)].into_iter()
            ),
            held: account(account::HELD),
            leaked: account(account::LEAKED).cast_signed(),
            uncounted: account(account::UNCOUNTED).cast_signed(),
            drops,
            lost,
            loss_helps: entry.losses.clone(),
            counters: named(&entry.counters, entry.cell + entry.drops.len()),
            state: state.to_owned(),
            panics: account(account::PANICS),
            calls: calls(slab, entry),
            sleeps: account(account::SLEEPS),
            account: accounts(slab, entry),
        }
    }

    /// The two sides of a link between workers.
    fn read_crossing(slab: &Slab, entry: &CrossingEntry) -> [AppCounts; 2] {
        let [leaving, arriving] = &entry.sides;
        let left = Traffic { in_packets: slab.get(leaving.account + account::HANDED_OFF), ..Traffic::default() };
        let (packets, bytes) = (slab.get(entry.arrived + link::PACKETS), slab.get(entry.arrived + link::BYTES));
        let arrived = Traffic { out_packets: packets, out_bytes: bytes, ..Traffic::default() };
        [(leaving, left), (arriving, arrived)].map(|(side, passed)| AppCounts::read(slab, side, passed, &side.state))
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
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Gone {
    /// The apps.
    pub apps: Vec<AppCounts>,
    /// The links.
    pub links: Vec<LinkCounts>,
}

/// An app whose books do not balance: a bug in the app.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Imbalance {
    /// The app.
    pub app: String,
    /// Packets that came in or were made, and were neither sent nor freed and are not held; negative if there are more
    /// of these than came.
    pub leaked: i64,
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
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct WorkerCounts {
    /// Its name in the network.
    pub name: String,
    /// The app that it is calling, if any.
    pub doing: Option<CurrentCall>,
    /// Whether it sleeps.
    pub asleep: bool,
    /// Its memory node; `None` if the machine has only one, or the worker may run on several.
    pub node: Option<usize>,
    /// Its counters.
    pub counters: BTreeMap<String, u64>,
    /// Its apps, in the network's order.
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
            counters: cells::SUMMED
                .iter()
                .chain(&[cells::UPDATED, cells::ALIVE])
                .map(|&cell| (cells::COUNTERS[cell].name.to_owned(), slab.get(entry.cell + cell)))
                .collect(),
            apps: apps.map(|app| app.name.clone()).collect(),
        }
    }
}

/// All counters of an engine at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Snapshot {
    /// Version of Bellows.
    pub version: String,
    /// The process.
    pub pid: u32,
    /// The schedule that runs the network.
    pub schedule: String,
    /// The fallback reason: why that is not the requested schedule; empty if it is.
    pub fallback_reason: String,
    /// File that the network was read from; empty if none.
    pub source: String,
    /// Frequency of the clock in which calls are timed, in Hz.
    pub ticks_per_second: u64,
    /// The app that the engine is calling, if any. If the counter `alive` is old, the engine has been in it since then.
    pub doing: Option<CurrentCall>,
    /// Whether the engine sleeps.
    pub asleep: bool,
    /// The engine's own counters: the sums over its workers, where each worker counts.
    pub engine: BTreeMap<String, u64>,
    /// The workers.
    pub workers: Vec<WorkerCounts>,
    /// The apps, in the network's order.
    pub apps: Vec<AppCounts>,
    /// The links, in the network's order.
    pub links: Vec<LinkCounts>,
    /// The engine's own work for links between workers, listed as apps: for each of these links first the side that the
    /// packets leave, then the one at which they arrive.
    pub crossings: Vec<AppCounts>,
    /// Apps and links that reloads have removed.
    pub gone: Gone,
    /// Distributions of times, in nanoseconds: `breath`, the durations of sampled breaths in which a packet moved;
    /// `latency`, the times from the creation of a packet to its end, for some packets.
    pub histograms: BTreeMap<String, Histogram>,
}

/// The engine's counters by name.
fn engine_counters(slab: &Slab, names: &[String]) -> BTreeMap<String, u64> {
    let workers = &slab.directory.workers;
    let updated = |worker: &&WorkerEntry| slab.get(worker.cell + cells::UPDATED);
    let latest = workers.iter().max_by_key(updated).map_or(0, |worker| worker.cell);
    let value = |cell: usize| match cell {
        cells::ALIVE => Liveness::of(slab).alive,
        cell if cells::SUMMED.contains(&cell) => sum(workers.iter().map(|worker| slab.get(worker.cell + cell))),
        cell if cells::LATEST.contains(&cell) => slab.get(latest + cell),
        cell => slab.get(cell),
    };
    let names = names.iter().enumerate().filter(|(_, name)| *name != cells::DOING_NAME);
    names.map(|(cell, name)| (name.clone(), value(cell))).collect()
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
        for (offset, what) in account::SAMPLE_NAMES.iter().enumerate() {
            accounts.insert(format!("{name}_{what}"), slab.get(first + offset));
        }
        let [packets, counted] = [1, account::COUNTED].map(|offset| slab.get(first + offset));
        for (event, what) in events.iter().enumerate() {
            let cell = entry.account + account::event(index, events.len(), event);
            let [count, enabled, running] = [0, 1, 2].map(|offset| slab.get(cell + offset));
            // Events are counted in some of the calls, and perhaps for a part of the time. A difference may be
            // negative.
            let count = count.cast_signed().max(0).cast_unsigned();
            let whole = scaled(count, enabled, running).and_then(|count| scaled(count, packets, counted));
            accounts.extend(whole.map(|count| (format!("{name}_{what}"), count)));
        }
    }
    accounts
}

/// A count over a part, extrapolated to the whole; unknown if the part is empty.
fn scaled(count: u64, whole: u64, part: u64) -> Option<u64> {
    let scaled = (u128::from(count) * u128::from(whole)).checked_div(u128::from(part))?;
    Some(scaled.try_into().unwrap_or(u64::MAX))
}

/// The counters of another process may have any value.
fn sum(counters: impl Iterator<Item = u64>) -> u64 {
    counters.fold(0, u64::saturating_add)
}

impl Snapshot {
    /// The snapshot of a block of counters.
    pub fn of(slab: &Slab) -> Snapshot {
        let directory = &slab.directory;
        let Directory {
            version, pid, schedule, fallback_reason, source, engine, apps, links, ticks_per_second, ..
        } = directory;
        let Directory { gone_apps, gone_links, workers, crossings, .. } = directory;
        let mut links: Vec<LinkCounts> = links.iter().map(|entry| LinkCounts::read(slab, entry)).collect();
        crossings.iter().for_each(|entry| links[entry.link].cross(slab, entry));
        let passed = Traffic::by_app(&links);
        let apps = apps.iter().map(|entry| {
            let passed = passed.get(entry.name.as_str()).copied().unwrap_or_default();
            let state = if slab.get(entry.account + account::FAILED) > 0 { "failed" } else { &entry.state };
            AppCounts::read(slab, entry, passed, state)
        });
        let gone = Gone {
            apps: gone_apps.iter().map(|entry| AppCounts::read(slab, entry, Traffic::default(), "gone")).collect(),
            links: gone_links.iter().map(|entry| LinkCounts::read(slab, entry)).collect(),
        };
        let nanos = |clocks: u64| {
            let nanos = u128::from(clocks) * 1_000_000_000 / u128::from((*ticks_per_second).max(1));
            nanos.try_into().unwrap_or(u64::MAX)
        };
        let histogram = |(which, name): (usize, &&str)| {
            let first = workers.iter().map(|worker| worker.histogram(which));
            ((*name).to_owned(), Histogram::read(slab, &first.collect::<Vec<_>>(), nanos))
        };
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
            links: links.clone(),
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

    /// The directory of the counters.
    pub fn directory(&self) -> &Directory {
        &self.slab.directory
    }

    /// The engine's folder.
    pub fn runtime_dir(&self) -> &RuntimeDir {
        &self.runtime_dir
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_apps_traffic_is_the_sum_over_its_links() {
        let link = |from: &str, to: &str, packets, waiting| LinkCounts {
            from: from.to_owned(),
            to: to.to_owned(),
            packets,
            waiting,
            bytes: 10 * packets,
            txdrop: 1,
            ..LinkCounts::default()
        };
        let links = [
            link("a.x", "b.c.input", 7, 2),
            link("a.y", "b.c.other", 5, 0),
            link("b.c.output", "a.z", u64::MAX / 10, 0),
        ];
        let passed = Traffic::by_app(&links);
        let (a, b) = (passed["a"], passed["b.c"]);
        assert_eq!((a.out_packets, a.out_bytes, a.dropped), (12, 120, 2));
        assert_eq!((b.in_packets, b.in_bytes), (10, 120));
        assert_eq!((b.out_packets, b.dropped, a.in_packets), (u64::MAX / 10, 1, u64::MAX / 10));
        let most = [link("a.x", "b.c", u64::MAX / 10, 0), link("a.y", "b.d", u64::MAX / 10, 0)].map(|mut link| {
            link.packets = u64::MAX;
            link
        });
        assert_eq!(Traffic::by_app(&most)["a"].out_packets, u64::MAX, "a damaged file's counters do not wrap");
    }
}
