//! All counters of an engine at one moment, by name.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use crate::counters::{Directory, ReadError, Slab, link};
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
    /// Its calls in the instrumented breaths, and the clocks that they took.
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
    /// The engine's own counters.
    pub engine: BTreeMap<String, u64>,
    /// The apps, in the network's order.
    pub apps: Vec<AppCounts>,
    /// The links, in the network's order.
    pub links: Vec<LinkCounts>,
}

/// The counters of another process may be anything.
fn sum(counters: impl Iterator<Item = u64>) -> u64 {
    counters.fold(0, u64::saturating_add)
}

impl Snapshot {
    pub(crate) fn of(slab: &Slab) -> Snapshot {
        let Directory { version, pid, schedule, refusal, source, engine, apps, links, .. } = &slab.directory;
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
        let apps = apps.iter().map(|entry| {
            let mut app = AppCounts {
                name: entry.name.clone(),
                kind: entry.kind.clone(),
                drops: named(&entry.drops, entry.cell),
                counters: named(&entry.counters, entry.cell + entry.drops.len()),
                account: named(&entry.accounts, entry.account),
                ..AppCounts::default()
            };
            let inputs = || links.iter().filter(|link| LinkCounts::app_of(&link.to) == entry.name);
            app.in_packets = sum(inputs().map(LinkCounts::received));
            app.in_bytes = sum(inputs().map(LinkCounts::received_bytes));
            let outputs = || links.iter().filter(|link| LinkCounts::app_of(&link.from) == entry.name);
            app.out_packets = sum(outputs().map(|link| link.packets));
            app.out_bytes = sum(outputs().map(|link| link.bytes));
            app.drops.insert("txdrop".to_owned(), sum(outputs().map(|link| link.txdrop)));
            app
        });
        Snapshot {
            version: version.clone(),
            pid: *pid,
            schedule: schedule.clone(),
            refusal: refusal.clone(),
            source: source.clone(),
            engine: named(engine, 0),
            apps: apps.collect(),
            links: links.clone(),
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
