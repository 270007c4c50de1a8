//! All counters of an engine at one moment, by name.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use crate::histogram::Histogram;
use crate::layout::{account, common, engine as cells, histogram, link};
use crate::runtime_dir::RuntimeDir;
use crate::slab::{AppEntry, CurrentCall, Directory, LinkEntry, Liveness, ReadError, Slab};

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
    /// Packets that were not sent because the link was full.
    pub txdrop: u64,
    /// Packets that were sent and wait to be received.
    pub waiting: u64,
    /// Bytes that were sent and wait to be received.
    pub waiting_bytes: u64,
    /// Of a link that is gone: packets that waited in it when a reload removed it, and were dropped.
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

    fn app_of(end: &str) -> &str {
        end.rsplit_once('.').map_or(end, |(app, _)| app)
    }
}

/// The name of what reloads drop.
const REMOVED: &str = common::DROPS[common::REMOVED].name;

/// The name of what full links drop among the drops of the app that sends.
const TXDROP: &str = link::COUNTERS[link::DROPS].name;

/// What passed through all links of an app.
#[derive(Clone, Copy, Default)]
struct Passed {
    in_packets: u64,
    in_bytes: u64,
    out_packets: u64,
    out_bytes: u64,
    dropped: u64,
}

impl Passed {
    /// For each app that a link names, what passed. The counters of another process may be anything, so no sum wraps.
    fn by_app(links: &[LinkCounts]) -> HashMap<&str, Passed> {
        let mut apps: HashMap<&str, Passed> = HashMap::with_capacity(links.len());
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

/// One app. What went in and out of it is summed over its links.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct AppCounts {
    /// Its name in the network.
    pub name: String,
    /// Its type's name in the catalogue.
    pub kind: String,
    /// Packets received on all inputs.
    pub in_packets: u64,
    /// Bytes received on all inputs.
    pub in_bytes: u64,
    /// Packets sent on all outputs.
    pub out_packets: u64,
    /// Bytes sent on all outputs.
    pub out_bytes: u64,
    /// Packets that it made or brought in, those included that were dropped before they had a buffer.
    pub made: u64,
    /// Packets that ended in it: it consumed them.
    pub ended: u64,
    /// Packets inside it.
    pub held: u64,
    /// Packets that are nowhere: `in_packets + made` less `out_packets`, those freed, and `held`. Not 0 in an app that has a bug.
    pub leaked: i64,
    /// Packets that were freed and are in no count; less than none if more were counted as dropped than were freed. Not 0 in an
    /// app that has a bug.
    pub uncounted: i64,
    /// Packets dropped, by reason; full links, `txdrop`, included.
    pub drops: BTreeMap<String, u64>,
    /// Those of them that nobody has asked for.
    pub lost: BTreeMap<String, u64>,
    /// What the reasons of such losses mean.
    #[serde(skip)]
    pub loss_helps: BTreeMap<String, String>,
    /// What else it counts.
    pub counters: BTreeMap<String, u64>,
    /// How it is called: `polling` (pulled in every breath), `slots` (pulled when a slot says so), `active` (pushed when
    /// packets wait for it); `failed` if it has panicked and is called no more; `gone` if a reload has removed it.
    pub state: String,
    /// How often it has panicked.
    pub panics: u64,
    /// How often it was called: `pull`, `push`, `tick`.
    pub calls: BTreeMap<String, u64>,
    /// Sleeps of the engine that its descriptor ended.
    pub sleeps: u64,
    /// What the sampled breaths recorded: for each entry (`pull`, `push`, `tick`) its calls, the packets taken (push) or
    /// sent (pull, tick) in them, and the clocks that they took: `pull_calls`, `pull_packets`, `pull_clocks`, …; apart from these
    /// the calls that took far longer than usual: `pull_outlier_calls`, `pull_outlier_clocks`; and what else
    /// was counted, such as `pull_instructions`; nothing of an event that has not been.
    pub account: BTreeMap<String, u64>,
}

impl AppCounts {
    fn read(slab: &Slab, entry: &AppEntry, passed: Passed, state: &str) -> AppCounts {
        let named = |names: &[String], first: usize| -> BTreeMap<String, u64> {
            names.iter().enumerate().map(|(index, name)| (name.clone(), slab.get(first + index))).collect()
        };
        let account = |cell: usize| slab.get(entry.account + cell);
        // Where an app has got a link from another, the past is less than none. A link's own counts are never less than that,
        // but in a damaged file.
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
        // What an app gives back that only brings packets in has never become a packet.
        let unused = if entry.brings_in { consumed } else { 0 };
        let made = sum([account(account::TAKEN), account(account::BROUGHT_IN), unmade].into_iter());
        AppCounts {
            name: entry.name.clone(),
            kind: entry.kind.clone(),
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

    /// What is wrong with its books, if anything is.
    pub fn imbalance(&self) -> Option<Imbalance> {
        let Self { leaked, uncounted, .. } = *self;
        (leaked != 0 || uncounted != 0).then(|| Imbalance { app: self.name.clone(), leaked, uncounted })
    }

    /// Packets dropped for all reasons.
    pub fn dropped(&self) -> u64 {
        sum(self.drops.values().copied())
    }
}

/// Apps and links that are no more, with what they had counted when a reload removed them. Those that come and go under one
/// name are one. The list is limited: what is missing was removed long ago, and its drops are in the engine's counter
/// `forgotten_drops`.
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
    /// Packets that came in or were made, and were neither sent nor freed and are not held; less than none if there are more
    /// of these than came.
    pub leaked: i64,
    /// Packets that were freed and are in no count; less than none if more were counted as dropped than were freed.
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
                "{} unaccounted for, which came in or were made and were neither sent nor freed, nor are they among those that \
                 it says it holds",
                packets(self.leaked)
            )),
            ..0 => Some(format!(
                "{} too many, which it says it holds, or has sent or freed, and which never came to it",
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

/// All counters of an engine at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Snapshot {
    /// Version of Bellows.
    pub version: String,
    /// The process.
    pub pid: u32,
    /// The schedule that runs the network.
    pub schedule: String,
    /// Why that is not the schedule that was asked for; empty if it is.
    pub fallback_reason: String,
    /// File that the network was read from; empty if none.
    pub source: String,
    /// Frequency of the clock in which calls are timed, in Hz.
    pub ticks_per_second: u64,
    /// The app in which the engine is, if it is in one: for longer than a moment if its counter `alive` is old.
    pub doing: Option<CurrentCall>,
    /// Whether the engine sleeps.
    pub asleep: bool,
    /// The engine's own counters.
    pub engine: BTreeMap<String, u64>,
    /// The apps, in the network's order.
    pub apps: Vec<AppCounts>,
    /// The links, in the network's order.
    pub links: Vec<LinkCounts>,
    /// Apps and links that reloads have removed.
    pub gone: Gone,
    /// How times are spread, in nanoseconds: `breath`, how long those sampled breaths took in which a packet moved;
    /// `latency`, how long it took from a packet's coming into being to its end, for some packets.
    pub histograms: BTreeMap<String, Histogram>,
}

/// How often an app was called.
fn calls(slab: &Slab, entry: &AppEntry) -> BTreeMap<String, u64> {
    let names = account::NAMES.iter().enumerate();
    names.map(|(index, name)| ((*name).to_owned(), slab.get(entry.account + account::CALLS + index))).collect()
}

/// What the sampled breaths recorded for an app.
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
            // Events are counted in some of the calls, and perhaps for a part of the time. A difference may be less than none.
            let count = count.cast_signed().max(0).cast_unsigned();
            let whole = scaled(count, enabled, running).and_then(|count| scaled(count, packets, counted));
            accounts.extend(whole.map(|count| (format!("{name}_{what}"), count)));
        }
    }
    accounts
}

/// What was counted in a part, extrapolated to the whole; unknown if the part is nothing.
fn scaled(count: u64, whole: u64, part: u64) -> Option<u64> {
    let scaled = (u128::from(count) * u128::from(whole)).checked_div(u128::from(part))?;
    Some(scaled.try_into().unwrap_or(u64::MAX))
}

/// The counters of another process may be anything.
fn sum(counters: impl Iterator<Item = u64>) -> u64 {
    counters.fold(0, u64::saturating_add)
}

impl Snapshot {
    /// What a block of counters says.
    pub fn of(slab: &Slab) -> Snapshot {
        let directory = &slab.directory;
        let Directory {
            version, pid, schedule, fallback_reason, source, engine, apps, links, ticks_per_second, ..
        } = directory;
        let Directory { gone_apps, gone_links, .. } = directory;
        let named = |names: &[String], first: usize| -> BTreeMap<String, u64> {
            names.iter().enumerate().map(|(index, name)| (name.clone(), slab.get(first + index))).collect()
        };
        let links: Vec<LinkCounts> = links.iter().map(|entry| LinkCounts::read(slab, entry)).collect();
        let passed = Passed::by_app(&links);
        let apps = apps.iter().map(|entry| {
            let passed = passed.get(entry.name.as_str()).copied().unwrap_or_default();
            let state = if slab.get(entry.account + account::FAILED) > 0 { "failed" } else { &entry.state };
            AppCounts::read(slab, entry, passed, state)
        });
        let gone = Gone {
            apps: gone_apps.iter().map(|entry| AppCounts::read(slab, entry, Passed::default(), "gone")).collect(),
            links: gone_links.iter().map(|entry| LinkCounts::read(slab, entry)).collect(),
        };
        let nanos = |clocks: u64| {
            let nanos = u128::from(clocks) * 1_000_000_000 / u128::from((*ticks_per_second).max(1));
            nanos.try_into().unwrap_or(u64::MAX)
        };
        let histogram = |(which, name): (usize, &&str)| {
            ((*name).to_owned(), Histogram::read(slab, directory.histogram(which), nanos))
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
            engine: named(engine, 0).into_iter().filter(|(name, _)| name != cells::DOING_NAME).collect(),
            apps: apps.collect(),
            links: links.clone(),
            gone,
            histograms: histogram::NAMES.iter().enumerate().map(histogram).collect(),
        }
    }

    /// What the engine was doing.
    pub fn pulse(&self) -> Liveness {
        Liveness { doing: self.doing.clone(), asleep: self.asleep, alive: self.engine("alive") }
    }

    /// One of the engine's own counters; 0 if there is none of this name.
    pub fn engine(&self, name: &str) -> u64 {
        self.engine.get(name).copied().unwrap_or(0)
    }

    /// All drops: those of the apps and links, those that are gone included.
    pub fn dropped(&self) -> u64 {
        let apps = self.apps.iter().chain(&self.gone.apps).map(AppCounts::dropped);
        let links = self.gone.links.iter().map(|link| link.removed);
        sum(apps.chain(links).chain([self.engine("forgotten_drops")]))
    }

    /// Packets that were dropped because reloads removed or replaced what they were in, as far as it is still listed.
    pub fn removed(&self) -> u64 {
        let apps = self.apps.iter().chain(&self.gone.apps).filter_map(|app| app.drops.get(REMOVED).copied());
        sum(apps.chain(self.gone.links.iter().map(|link| link.removed)))
    }

    /// The apps whose books do not balance, those that are gone included: they have a bug. The books are those of the moment
    /// when the gauges were last written, when nothing was on its way.
    pub fn imbalances(&self) -> Vec<Imbalance> {
        self.apps.iter().chain(&self.gone.apps).filter_map(AppCounts::imbalance).collect()
    }
}

/// A look at an engine's counters from outside its process, alive or dead.
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

    /// The counters as they are now. After a reload they are those of the new configuration.
    pub fn snapshot(&mut self) -> Snapshot {
        // What was read of another user's is a copy.
        if (self.runtime_dir.is_foreign() || self.slab.is_superseded())
            && let Ok(newer) = Slab::open(&self.runtime_dir)
        {
            self.slab = Arc::new(newer);
        }
        Snapshot::of(&self.slab)
    }

    /// What the counters are of.
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
    fn what_passed_an_app_is_summed_over_its_links() {
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
        let passed = Passed::by_app(&links);
        let (a, b) = (passed["a"], passed["b.c"]);
        assert_eq!((a.out_packets, a.out_bytes, a.dropped), (12, 120, 2));
        assert_eq!((b.in_packets, b.in_bytes), (10, 120));
        assert_eq!((b.out_packets, b.dropped, a.in_packets), (u64::MAX / 10, 1, u64::MAX / 10));
        let most = [link("a.x", "b.c", u64::MAX / 10, 0), link("a.y", "b.d", u64::MAX / 10, 0)].map(|mut link| {
            link.packets = u64::MAX;
            link
        });
        assert_eq!(Passed::by_app(&most)["a"].out_packets, u64::MAX, "a damaged file's counters do not wrap");
    }
}
