//! All counters of an engine at one moment, by name.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde::Serialize;

use crate::counters::{AppEntry, Directory, ReadError, Slab, account, histogram, link};
use crate::histogram::Histogram;
use crate::home::Home;

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
}

impl LinkCounts {
    /// Packets received: those sent less those that wait.
    pub fn received(&self) -> u64 {
        self.packets.saturating_sub(self.waiting)
    }

    /// Bytes received: those sent less those that wait.
    pub fn received_bytes(&self) -> u64 {
        self.bytes.saturating_sub(self.waiting_bytes)
    }

    fn app_of(end: &str) -> &str {
        end.rsplit_once('.').map_or(end, |(app, _)| app)
    }
}

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
    /// Packets dropped, by reason; full links, `txdrop`, included.
    pub drops: BTreeMap<String, u64>,
    /// What else it counts.
    pub counters: BTreeMap<String, u64>,
    /// How it is called: `polling` (pulled in every breath), `slots` (pulled when a slot says so), `active` (pushed when
    /// packets wait for it); `failed` if it has panicked and is called no more.
    pub state: String,
    /// How often it was called: `pull`, `push`, `tick`.
    pub calls: BTreeMap<String, u64>,
    /// Naps of the engine that its descriptor ended.
    pub naps: u64,
    /// What the instrumented breaths booked: for each entry (`pull`, `push`, `tick`) its calls, the packets taken (push) or
    /// sent (pull, tick) in them, and the clocks that they took: `pull_calls`, `pull_packets`, `pull_clocks`, …; apart from these
    /// the calls that took far longer than usual: `pull_outlier_calls`, `pull_outlier_clocks`; and what else
    /// was counted, such as `pull_instructions`; nothing of an event that has not been.
    pub account: BTreeMap<String, u64>,
}

impl AppCounts {
    /// Packets dropped for all reasons.
    pub fn dropped(&self) -> u64 {
        sum(self.drops.values().copied())
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
    pub refusal: String,
    /// File that the network was read from; empty if none.
    pub source: String,
    /// Frequency of the clock in which calls are timed, in Hz.
    pub ticks_per_second: u64,
    /// The engine's own counters.
    pub engine: BTreeMap<String, u64>,
    /// The apps, in the network's order.
    pub apps: Vec<AppCounts>,
    /// The links, in the network's order.
    pub links: Vec<LinkCounts>,
    /// How times are spread, in nanoseconds: `breath`, how long those instrumented breaths took in which a packet moved;
    /// `latency`, how long it took from a packet's coming into being to its end, for some packets.
    pub histograms: BTreeMap<String, Histogram>,
}

/// How often an app was called.
fn calls(slab: &Slab, entry: &AppEntry) -> BTreeMap<String, u64> {
    let names = account::NAMES.iter().enumerate();
    names.map(|(index, name)| ((*name).to_owned(), slab.get(entry.account + account::CALLS + index))).collect()
}

/// What the instrumented breaths booked for an app.
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
    pub(crate) fn of(slab: &Slab) -> Snapshot {
        let directory = &slab.directory;
        let Directory { version, pid, schedule, refusal, source, engine, apps, links, ticks_per_second, .. } =
            directory;
        let named = |names: &[String], first: usize| -> BTreeMap<String, u64> {
            names.iter().enumerate().map(|(index, name)| (name.clone(), slab.get(first + index))).collect()
        };
        let links: Vec<LinkCounts> = links
            .iter()
            .map(|entry| LinkCounts {
                from: entry.from.clone(),
                to: entry.to.clone(),
                packets: slab.get(entry.cell + link::PACKETS),
                bytes: slab.get(entry.cell + link::BYTES),
                txdrop: slab.get(entry.cell + link::DROPS),
                waiting: slab.get(entry.cell + link::WAITING),
                waiting_bytes: slab.get(entry.cell + link::WAITING_BYTES),
            })
            .collect();
        let passed = Passed::by_app(&links);
        let apps = apps.iter().map(|entry| {
            let passed = passed.get(entry.name.as_str()).copied().unwrap_or_default();
            let mut drops = named(&entry.drops, entry.cell);
            drops.insert("txdrop".to_owned(), passed.dropped);
            AppCounts {
                name: entry.name.clone(),
                kind: entry.kind.clone(),
                in_packets: passed.in_packets,
                in_bytes: passed.in_bytes,
                out_packets: passed.out_packets,
                out_bytes: passed.out_bytes,
                drops,
                counters: named(&entry.counters, entry.cell + entry.drops.len()),
                state: if slab.get(entry.account + account::FAILED) > 0 { "failed" } else { &entry.state }.to_owned(),
                calls: calls(slab, entry),
                naps: slab.get(entry.account + account::NAPS),
                account: accounts(slab, entry),
            }
        });
        let nanos = |clocks: u64| {
            let nanos = u128::from(clocks) * 1_000_000_000 / u128::from((*ticks_per_second).max(1));
            nanos.try_into().unwrap_or(u64::MAX)
        };
        let histogram = |(which, name): (usize, &&str)| {
            ((*name).to_owned(), Histogram::read(slab, directory.histogram(which), nanos))
        };
        Snapshot {
            version: version.clone(),
            pid: *pid,
            schedule: schedule.clone(),
            refusal: refusal.clone(),
            source: source.clone(),
            ticks_per_second: *ticks_per_second,
            engine: named(engine, 0),
            apps: apps.collect(),
            links: links.clone(),
            histograms: histogram::NAMES.iter().enumerate().map(histogram).collect(),
        }
    }

    /// One of the engine's own counters; 0 if there is none of this name.
    pub fn engine(&self, name: &str) -> u64 {
        self.engine.get(name).copied().unwrap_or(0)
    }

    /// All drops: those of the apps and links, and those of reloads.
    pub fn dropped(&self) -> u64 {
        let reloads = [self.engine("reload"), self.engine("retired")];
        sum(self.apps.iter().map(AppCounts::dropped).chain(reloads))
    }
}

/// A look at an engine's counters from outside its process, alive or dead.
pub struct Observer {
    home: Home,
    slab: Arc<Slab>,
}

impl Observer {
    /// Opens the counters in an engine's folder.
    ///
    /// # Errors
    /// When there are none, or they are of another version.
    pub fn open(home: Home) -> Result<Observer, ReadError> {
        let slab = Arc::new(Slab::open(home.counters())?);
        Ok(Observer { home, slab })
    }

    /// The counters as they are now. After a reload they are those of the new configuration.
    pub fn snapshot(&mut self) -> Snapshot {
        if self.slab.is_superseded()
            && let Ok(newer) = Slab::open(self.home.counters())
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
    pub fn home(&self) -> &Home {
        &self.home
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
