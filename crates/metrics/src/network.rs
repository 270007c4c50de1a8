//! One network: its labels, and its counters at one time.

use std::collections::{BTreeMap, HashSet};
use std::rc::Rc;
use std::time::SystemTime;

use bellows_inspect::health::{Checkup, checkup_of};
use bellows_inspect::networks::{self, State};
use bellows_observe::layout::{engine, link};
use bellows_observe::{
    AppEntry, CounterCells, CounterEntry, Directory, Observer, Reading, RuntimeDir, Totals, TypeEntry, engine_count,
};

use crate::exposition::{label, labels};
use crate::family::Family;
use crate::health::findings;

/// The maximum number of apps, and of links, of another user's network. It has no more that make sense.
const MAX_FOREIGN_ROWS: usize = 10_000;

/// The maximum length of a name in a label, in bytes. A longer one is cut.
const MAX_LABEL: usize = 256;

/// A network at one time.
pub(crate) struct Network {
    pub(crate) name: String,
    pub(crate) user: String,
    pub(crate) pid: Option<u32>,
    pub(crate) is_alive: bool,
    pub(crate) checkup: Checkup,
    /// The label with its name.
    pub(crate) label: String,
    /// Its counters, if it has any and its process lives.
    pub(crate) counted: Option<Counted>,
}

/// The counters of a network at one time.
pub(crate) struct Counted {
    pub(crate) reading: Rc<Reading>,
    pub(crate) totals: Totals,
    pub(crate) labels: Rc<Labels>,
}

impl Counted {
    /// An app of the directory.
    ///
    /// # Panics
    /// Never: labels are made of the same directory.
    pub(crate) fn entry(&self, app: &AppLabels) -> &AppEntry {
        self.reading.directory().app(app.position).expect("labels have the directory's apps")
    }

    /// All drops of apps and links, including removed ones.
    pub(crate) fn all_drops(&self) -> u64 {
        let directory = self.reading.directory();
        let apps = self.totals.apps[..directory.apps.len()].iter().map(|totals| totals.dropped);
        let gone = directory.gone_apps.iter().map(|entry| Totals::of_gone(&*self.reading, entry).dropped);
        let links = directory.gone_links.iter().map(|entry| self.reading.get(entry.cell + link::REMOVED));
        let forgotten = engine_count(&*self.reading, engine::FORGOTTEN_DROPS);
        apps.chain(gone).chain(links).chain([forgotten]).fold(0, u64::saturating_add)
    }
}

/// The labels of what a configuration has, and its own counters. Names that occur twice in a damaged file occur once
/// here.
#[derive(Default)]
pub(crate) struct Labels {
    /// The apps and crossings: positions in [`Directory::app`].
    pub(crate) apps: Vec<AppLabels>,
    /// The apps that are ports, as positions in `apps`, and their labels.
    pub(crate) ports: Vec<(usize, String)>,
    /// The links, as positions in the directory, and their labels.
    pub(crate) links: Vec<(usize, String)>,
    /// The workers, as positions in the directory, and their labels.
    pub(crate) workers: Vec<(usize, String)>,
    /// The families of the counters that types of apps declare, by name.
    pub(crate) own: BTreeMap<String, Own>,
}

/// A family of counters that a type declares.
pub(crate) struct Own {
    pub(crate) family: Family<'static>,
    /// The counters: each app, as a position in [`Labels::apps`], and a cell.
    pub(crate) cells: Vec<(usize, usize)>,
}

/// The labels of an app.
pub(crate) struct AppLabels {
    /// Its position in the directory.
    pub(crate) position: usize,
    /// Those of all its samples.
    pub(crate) labels: String,
    /// Its worker.
    pub(crate) worker: String,
    /// Each reason for drops, and its cell.
    pub(crate) drops: Vec<(usize, Rc<str>)>,
}

/// A network that is read again and again.
pub(crate) struct Watched {
    /// The process and its start: another run of the name is another network.
    identity: (Option<u32>, Option<SystemTime>),
    observer: Observer,
    last: Option<(Rc<Reading>, Rc<Labels>)>,
}

impl Network {
    /// Reads the network in a folder, with what is known of it from the last time.
    pub(crate) fn read(
        runtime_dir: RuntimeDir,
        watched: Option<Watched>,
        is_port: &dyn Fn(&str) -> bool,
    ) -> (Network, Option<Watched>) {
        let (name, user, pid) = (runtime_dir.name(), runtime_dir.user(), runtime_dir.pid());
        let state = networks::state(&runtime_dir);
        let label = labels(&[("network", cut(&name))]);
        let identity = (pid, runtime_dir.claimed());
        let watched = watched.filter(|watched| watched.identity == identity && state.is_alive());
        let watched = match watched {
            None if state.is_alive() => Watched::open(identity, runtime_dir.for_reading()),
            watched => watched,
        };
        let (counted, watched) = watched.map(|watched| watched.count(&label, is_port)).unzip();
        let found = counted.as_ref().map(|counted: &Counted| findings(&counted.reading, &counted.totals));
        let checkup = checkup_of(&runtime_dir, state, found);
        (Network { name, user, pid, is_alive: state != State::Crashed, checkup, label, counted }, watched)
    }
}

impl Watched {
    fn open(identity: (Option<u32>, Option<SystemTime>), runtime_dir: RuntimeDir) -> Option<Watched> {
        Some(Watched { identity, observer: Observer::open(runtime_dir).ok()?, last: None })
    }

    fn count(mut self, label: &str, is_port: &dyn Fn(&str) -> bool) -> (Counted, Watched) {
        let reading = Rc::new(self.observer.read());
        let labels = match self.last.take() {
            Some((last, labels)) if last.has_directory_of(&reading) => labels,
            _ => {
                let is_foreign = self.observer.runtime_dir().is_foreign();
                Rc::new(Labels::of(reading.directory(), label, is_port, is_foreign))
            }
        };
        self.last = Some((Rc::clone(&reading), Rc::clone(&labels)));
        let totals = Totals::of(&*reading);
        (Counted { reading, totals, labels }, self)
    }
}

impl Labels {
    fn of(directory: &Directory, network: &str, is_port: &dyn Fn(&str) -> bool, is_foreign: bool) -> Labels {
        let limit = if is_foreign { MAX_FOREIGN_ROWS } else { usize::MAX };
        let mut all = Labels::default();
        let mut reasons: HashSet<Rc<str>> = HashSet::new();
        let mut reason = |text: &str| {
            let label: Rc<str> = self::label("reason", cut(text)).into();
            match reasons.get(&label) {
                Some(known) => Rc::clone(known),
                None => {
                    reasons.insert(Rc::clone(&label));
                    label
                }
            }
        };
        let types: BTreeMap<&str, &TypeEntry> = directory.types.iter().map(|entry| (&*entry.kind, entry)).collect();
        let edge = Edge::of(directory, is_port);
        let mut names = HashSet::new();
        let entries = (0..).map_while(|position| Some((position, directory.app(position)?)));
        let apps = entries.take(limit).filter(|(_, entry)| names.insert(cut(&entry.name)));
        for (position, entry) in apps {
            let labels = format!("{network}{}{}", label("app", cut(&entry.name)), label("type", cut(&entry.kind)));
            let worker = directory.workers.get(entry.worker).map_or("", |worker| &worker.name);
            let mut drops: Vec<(usize, Rc<str>)> = Vec::with_capacity(entry.drops.len());
            for (index, name) in entry.drops.iter().enumerate() {
                let reason = reason(name);
                if drops.iter().all(|(_, known)| *known != reason) {
                    drops.push((entry.cell + index, reason));
                }
            }
            all.declare(entry, types.get(&*entry.kind).copied(), all.apps.len());
            if position < directory.apps.len() && edge.has(entry) {
                let labels = format!("{network}{}{}", label("port", cut(&entry.name)), label("type", cut(&entry.kind)));
                all.ports.push((all.apps.len(), labels));
            }
            all.apps.push(AppLabels { position, labels, worker: label("worker", cut(worker)), drops });
        }
        let mut names = HashSet::new();
        let links = directory.links.iter().take(limit).enumerate();
        let links = links.map(|(position, link)| (position, format!("{} -> {}", cut(&link.from), cut(&link.to))));
        let links = links.filter(|(_, name)| names.insert(name.clone()));
        all.links = links.map(|(position, name)| (position, format!("{network}{}", label("link", &name)))).collect();
        let mut names = HashSet::new();
        let workers = directory.workers.iter().take(limit).enumerate();
        let workers = workers.filter(|(_, worker)| names.insert(cut(&worker.name)));
        let worker_labels = |name: &str| format!("{network}{}", label("worker", cut(name)));
        all.workers = workers.map(|(position, worker)| (position, worker_labels(&worker.name))).collect();
        all
    }

    /// Adds the counters that an app's type declares.
    fn declare(&mut self, entry: &AppEntry, declared: Option<&TypeEntry>, app: usize) {
        for (index, name) in entry.counters.iter().enumerate() {
            let known = declared.and_then(|declared| declared.counters.iter().find(|counter| counter.name == *name));
            let unknown = || CounterEntry {
                name: name.clone(),
                help: format!("a counter of apps of the type {}", cut(&entry.kind)),
                gauge: true,
                ..CounterEntry::default()
            };
            let family = match known {
                Some(known) => Family::of_type(&entry.kind, known),
                None => Family::of_type(&entry.kind, &unknown()),
            };
            let own = self.own.entry(family.sample_name()).or_insert_with(|| Own { family, cells: Vec::new() });
            // Two names of one type may be the same in a metric.
            if own.cells.last().is_none_or(|(last, _)| *last != app) {
                own.cells.push((app, entry.cell + entry.drops.len() + index));
            }
        }
    }
}

/// A name as it is in labels.
fn cut(name: &str) -> &str {
    &name[..name.floor_char_boundary(MAX_LABEL)]
}

/// Whether apps of a type or at a place are ports, as in `bellows show interfaces`: those of a type that is one, and
/// those with links on one side only.
struct Edge<'a> {
    senders: HashSet<&'a str>,
    receivers: HashSet<&'a str>,
    is_port: &'a dyn Fn(&str) -> bool,
}

impl<'a> Edge<'a> {
    fn of(directory: &'a Directory, is_port: &'a dyn Fn(&str) -> bool) -> Edge<'a> {
        let app_of = |end: &'a str| end.rsplit_once('.').map_or(end, |(app, _)| app);
        let senders = directory.links.iter().map(|link| app_of(&link.from)).collect();
        let receivers = directory.links.iter().map(|link| app_of(&link.to)).collect();
        Edge { senders, receivers, is_port }
    }

    fn has(&self, entry: &AppEntry) -> bool {
        let passes_on = self.senders.contains(&*entry.name) && self.receivers.contains(&*entry.name);
        !passes_on || (self.is_port)(&entry.kind)
    }
}
