//! One network: its labels, and its counters at one time.

use std::collections::btree_map::{self, BTreeMap};
use std::collections::{HashMap, HashSet};
use std::rc::Rc;
use std::time::SystemTime;

use bellows_inspect::events::Condition;
use bellows_inspect::foreign::Allowance;
use bellows_inspect::health::{Checkup, checkup_of};
use bellows_inspect::networks::{self, State};
use bellows_observe::layout::{account, engine, link};
use bellows_observe::{
    AppEntry, AppTotals, CounterCells, CounterEntry, Directory, Observer, Reading, RuntimeDir, Totals, engine_count,
};

use crate::exposition::{label, labels};
use crate::family::MetricFamily;
use crate::health::findings;

/// The maximum length of a name in a label, and of a part of a family's name, in bytes. A longer one is cut.
const MAX_LABEL: usize = 256;

/// The reason of drops at full links, which every app has.
pub(crate) const TXDROP: &str = link::COUNTERS[link::DROPS].name;

/// The maximum length of a description or a path, in bytes.
const MAX_TEXT: usize = 4_096;

/// About how many bytes a sample has besides its labels: its name and its value.
const SAMPLE: usize = 64;

/// About how many samples an app, each of its entries, a port, a link and a worker with its histograms have.
const APP_SAMPLES: usize = 17;
const ENTRY_SAMPLES: usize = 6;
const PORT_SAMPLES: usize = 5;
const LINK_SAMPLES: usize = 5;
const WORKER_SAMPLES: usize = 72;

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
    /// The apps that have a problem that lasts, by name.
    pub(crate) degraded: HashSet<String>,
}

impl Counted {
    /// About how many bytes its counters and its metrics have.
    pub(crate) fn bytes(&self) -> usize {
        self.labels.bytes.saturating_add(self.reading.directory().cells.saturating_mul(size_of::<u64>()))
    }

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
    /// The events that are counted in sampled calls, as positions in the directory, and their labels.
    pub(crate) events: Vec<(usize, String)>,
    /// The families of the counters that types of apps declare, by name.
    pub(crate) own: BTreeMap<String, Own>,
    /// About how many bytes the metrics have.
    pub(crate) bytes: usize,
    /// The number of apps, links, workers and counters that are left out.
    pub(crate) left_out: usize,
}

/// A family of counters that a type declares.
pub(crate) struct Own {
    pub(crate) family: MetricFamily<'static>,
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
    last: Option<Last>,
}

/// What was read last.
struct Last {
    reading: Rc<Reading>,
    labels: Rc<Labels>,
    apps: Vec<AppTotals>,
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
        let (counted, watched) = watched.map(|watched| watched.count(&label, is_port, &runtime_dir)).unzip();
        let found = counted.as_ref().map(|counted: &Counted| findings(&counted.reading, &counted.totals));
        let checkup = checkup_of(&runtime_dir, state, found);
        (Network { name, user, pid, is_alive: state != State::Crashed, checkup, label, counted }, watched)
    }
}

impl Watched {
    fn open(identity: (Option<u32>, Option<SystemTime>), runtime_dir: RuntimeDir) -> Option<Watched> {
        Some(Watched { identity, observer: Observer::open(runtime_dir).ok()?, last: None })
    }

    fn count(mut self, label: &str, is_port: &dyn Fn(&str) -> bool, runtime_dir: &RuntimeDir) -> (Counted, Watched) {
        let reading = Rc::new(self.observer.read());
        let mut totals = Totals::of(&*reading);
        let last = self.last.take();
        if let Some(last) = &last {
            keep_highest((&*reading, &mut totals.apps), (&*last.reading, &last.apps));
        }
        let labels = match last {
            Some(last) if last.reading.has_directory_of(&reading) => last.labels,
            _ => {
                // A network alone may have as much as all of its user.
                let limit = Allowance::new(self.observer.runtime_dir().is_foreign()).left();
                Rc::new(Labels::of(reading.directory(), label, is_port, limit))
            }
        };
        self.last = Some(Last { reading: Rc::clone(&reading), labels: Rc::clone(&labels), apps: totals.apps.clone() });
        let degraded = Condition::of(runtime_dir).into_iter().map(|condition| condition.app).collect();
        (Counted { reading, totals, labels, degraded }, self)
    }
}

/// The counters of an app that follow from several others. The engine writes some of these all the time, such as what
/// was sent and dropped, and some only with the gauges, such as what waits and what was freed: such a difference can
/// fall for a moment.
fn derived(totals: &mut AppTotals) -> [&mut u64; 4] {
    [&mut totals.in_packets, &mut totals.in_bytes, &mut totals.made, &mut totals.ended]
}

/// Keeps the derived counters of apps at what they were before until they have grown further, since a counter that
/// falls is taken for one that began at 0 again. An app that was really started anew has fewer calls than before.
fn keep_highest<C: CounterCells>((cells, apps): (&C, &mut [AppTotals]), (last_cells, last_apps): (&C, &[AppTotals])) {
    let calls = |cells: &C, entry: &AppEntry| {
        (0..account::ENTRIES)
            .map(|which| cells.get(entry.account + account::CALLS + which))
            .fold(0, u64::saturating_add)
    };
    let last: HashMap<(&str, &str), (&AppEntry, &AppTotals)> = last_apps
        .iter()
        .enumerate()
        .filter_map(|(position, totals)| {
            let entry = last_cells.directory().app(position)?;
            Some(((&*entry.name, &*entry.kind), (entry, totals)))
        })
        .collect();
    for (position, totals) in apps.iter_mut().enumerate() {
        let Some(entry) = cells.directory().app(position) else { continue };
        let Some((last_entry, last_totals)) = last.get(&(&*entry.name, &*entry.kind)) else { continue };
        if calls(cells, entry) >= calls(last_cells, last_entry) {
            let mut last_totals = **last_totals;
            let both = derived(totals).into_iter().zip(derived(&mut last_totals));
            both.for_each(|(count, last)| *count = (*count).max(*last));
        }
    }
}

/// The bytes that a network's metrics may have.
struct Room {
    left: usize,
    left_out: usize,
}

impl Room {
    /// Takes room for samples with labels of this length; if there is none, they are left out.
    fn take(&mut self, samples: usize, labels: usize) -> bool {
        match self.left.checked_sub(samples.saturating_mul(labels + SAMPLE)) {
            Some(left) => self.left = left,
            None => {
                self.left_out += 1;
                return false;
            }
        }
        true
    }
}

/// The counters that types of apps declare, by type and name.
type DeclaredCounters<'a> = HashMap<&'a str, HashMap<&'a str, &'a CounterEntry>>;

impl Labels {
    /// The labels of a directory whose metrics may have about `limit` bytes.
    fn of(directory: &Directory, network: &str, is_port: &dyn Fn(&str) -> bool, limit: usize) -> Labels {
        let mut room = Room { left: limit, left_out: 0 };
        let mut all = Labels::default();
        let mut names = HashSet::new();
        for (position, worker) in directory.workers.iter().enumerate() {
            let labels = format!("{network}{}", label("worker", cut(&worker.name)));
            if names.insert(labels.clone()) && room.take(WORKER_SAMPLES, labels.len()) {
                all.workers.push((position, labels));
            }
        }
        let mut names = HashSet::new();
        let events = directory.events.iter().map(|name| label("event", cut(name))).enumerate();
        all.events = events.filter(|(_, event)| names.insert(event.clone())).collect();

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
        let full = reason(TXDROP);
        let types = directory.types.iter().map(|entry| {
            let counters = entry.counters.iter().map(|counter| (&*counter.name, counter)).collect();
            (&*entry.kind, counters)
        });
        let types: DeclaredCounters<'_> = types.collect();
        let edge = Edge::of(directory, is_port);
        let mut names = HashSet::new();
        let entries = (0..).map_while(|position| Some((position, directory.app(position)?)));
        for (position, entry) in entries {
            let app = label("app", cut(&entry.name));
            let kind = label("type", cut(&entry.kind));
            let labels = format!("{network}{app}{kind}");
            if !names.insert(app) {
                continue;
            }
            let is_port = position < directory.apps.len() && edge.has(entry);
            let samples = APP_SAMPLES + account::ENTRIES * (ENTRY_SAMPLES + directory.events.len());
            if !room.take(samples + if is_port { PORT_SAMPLES } else { 0 }, labels.len()) {
                continue;
            }
            let mut known = HashSet::from([Rc::clone(&full)]);
            let mut drops: Vec<(usize, Rc<str>)> = Vec::with_capacity(entry.drops.len());
            for (index, name) in entry.drops.iter().enumerate() {
                let reason = reason(name);
                if known.insert(Rc::clone(&reason)) && room.take(1, labels.len() + reason.len()) {
                    drops.push((entry.cell + index, reason));
                }
            }
            all.declare(entry, types.get(&*entry.kind), labels.len(), &mut room);
            if is_port {
                all.ports.push((all.apps.len(), format!("{network}{}{kind}", label("port", cut(&entry.name)))));
            }
            let worker = directory.workers.get(entry.worker).map_or("", |worker| &worker.name);
            all.apps.push(AppLabels { position, labels, worker: label("worker", cut(worker)), drops });
        }
        let mut names = HashSet::new();
        for (position, link) in directory.links.iter().enumerate() {
            let name = format!("{} -> {}", cut(&link.from), cut(&link.to));
            let labels = format!("{network}{}", label("link", &name));
            if names.insert(labels.clone()) && room.take(LINK_SAMPLES, labels.len()) {
                all.links.push((position, labels));
            }
        }
        all.bytes = limit - room.left;
        all.left_out = room.left_out;
        all
    }

    /// Adds the counters that the type of the next app declares. A second declaration of a family that differs from the
    /// first is left out.
    fn declare(
        &mut self,
        entry: &AppEntry,
        declared: Option<&HashMap<&str, &CounterEntry>>,
        labels: usize,
        room: &mut Room,
    ) {
        let app = self.apps.len();
        for (index, name) in entry.counters.iter().enumerate() {
            let known = declared.and_then(|counters| counters.get(&**name));
            let counter = match known {
                Some(known) => CounterEntry {
                    name: cut(name).to_owned(),
                    help: cut_text(&known.help).to_owned(),
                    unit: cut(&known.unit).to_owned(),
                    gauge: known.gauge,
                },
                None => CounterEntry {
                    name: cut(name).to_owned(),
                    help: format!("a counter of apps of the type {}", cut(&entry.kind)),
                    gauge: true,
                    ..CounterEntry::default()
                },
            };
            let family = MetricFamily::of_type(cut(&entry.kind), &counter);
            let head = 3 * family.name.len() + family.help.len();
            let own = match self.own.entry(family.name.clone().into_owned()) {
                btree_map::Entry::Occupied(own) if !own.get().family.is_like(&family) => {
                    room.left_out += 1;
                    continue;
                }
                // Two names of one type may be the same in a metric.
                btree_map::Entry::Occupied(own) if own.get().cells.last().is_some_and(|(last, _)| *last == app) => {
                    continue;
                }
                btree_map::Entry::Occupied(own) if room.take(1, labels + family.name.len()) => own.into_mut(),
                btree_map::Entry::Vacant(own) if room.take(1, labels + family.name.len() + head) => {
                    own.insert(Own { family, cells: Vec::new() })
                }
                _ => continue,
            };
            own.cells.push((app, entry.cell + entry.drops.len() + index));
        }
    }
}

/// Families of several networks, by name: each with the networks that have it, as positions.
type JoinedFamilies<'a> = BTreeMap<&'a str, Vec<(usize, &'a Own)>>;

/// The families that the types of several networks declare, by name: each with the networks that have it, as positions.
/// The first network says what a family is. Declarations of others that differ are left out, and their number is
/// returned.
pub(crate) fn joined<'a>(networks: impl Iterator<Item = &'a Labels>) -> (JoinedFamilies<'a>, usize) {
    let mut joined = JoinedFamilies::new();
    let mut left_out = 0;
    for (network, labels) in networks.enumerate() {
        for (name, own) in &labels.own {
            let families = joined.entry(name).or_default();
            match families.first() {
                Some((_, first)) if !first.family.is_like(&own.family) => left_out += own.cells.len(),
                _ => families.push((network, own)),
            }
        }
    }
    (joined, left_out)
}

/// A name as it is in labels.
fn cut(name: &str) -> &str {
    cut_at(name, MAX_LABEL)
}

/// A description or a path as it is written.
pub(crate) fn cut_text(text: &str) -> &str {
    cut_at(text, MAX_TEXT)
}

fn cut_at(text: &str, length: usize) -> &str {
    &text[..text.floor_char_boundary(length)]
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

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use bellows_observe::{LinkEntry, TypeEntry, WorkerEntry};

    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    /// A sink, whose account begins at cell 0 and is followed by its drops and counters.
    fn app(name: &str, kind: &str, drops: Vec<String>, counters: &[&str]) -> AppEntry {
        AppEntry {
            name: name.to_owned(),
            kind: kind.to_owned(),
            state: "active".to_owned(),
            account: 0,
            cell: account::cells(0),
            drops,
            losses: BTreeMap::new(),
            ends: true,
            brings_in: false,
            counters: names(counters),
            worker: 0,
            moves_with: None,
            is_made: false,
        }
    }

    fn directory(apps: Vec<AppEntry>) -> Directory {
        let worker = WorkerEntry { name: "main".to_owned(), cell: 0, histograms: 0, node: None };
        Directory { apps, workers: vec![worker], ..Directory::default() }
    }

    fn type_entry(kind: &str, name: &str, unit: &str, gauge: bool) -> TypeEntry {
        let counter = CounterEntry { name: name.to_owned(), help: "h".to_owned(), unit: unit.to_owned(), gauge };
        TypeEntry { kind: kind.to_owned(), counters: vec![counter], ..TypeEntry::default() }
    }

    fn labels_of(directory: &Directory, limit: usize) -> Labels {
        Labels::of(directory, "network=\"n\"", &|_| false, limit)
    }

    #[test]
    fn many_reasons_take_no_longer_than_few() {
        const COUNT: usize = 200_000;
        let drops = (0..COUNT).map(|number| format!("r{}", number % (COUNT - 1))).chain([TXDROP.to_owned()]).collect();
        let start = Instant::now();
        let labels = labels_of(&directory(vec![app("a", "my", drops, &[])]), usize::MAX);
        // Names that occur twice are there once, and the engine's own reason has a sample of its own.
        assert_eq!(labels.apps[0].drops.len(), COUNT - 1);
        // Comparing each with each takes minutes.
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    }

    #[test]
    fn a_network_has_no_more_than_its_room() {
        const LIMIT: usize = 100_000;
        let apps = (0..1_000).map(|number| app(&format!("a{number}"), "my", names(&["bad"]), &["x"])).collect();
        let many = directory(apps);
        let labels = labels_of(&many, LIMIT);
        assert!(labels.bytes > LIMIT / 2 && labels.bytes <= LIMIT, "{}", labels.bytes);
        assert!(labels.apps.len() > 10 && labels.workers.len() == 1);
        assert!(
            labels.apps.len() + labels.left_out >= 1_000,
            "{} apps, {} left out",
            labels.apps.len(),
            labels.left_out
        );
        let all = labels_of(&many, usize::MAX);
        assert_eq!((all.apps.len(), all.left_out), (1_000, 0));
        // One app with many reasons, counters and events, and long names of all.
        let long = |number: usize| format!("{}{number}", "x".repeat(10_000));
        let reasons = (0..1_000).map(|number| format!("r{number}")).collect();
        let mut one = directory(vec![app("a", &long(0), reasons, &[])]);
        one.apps[0].counters = (0..200).map(long).collect();
        let labels = labels_of(&one, LIMIT);
        assert!(labels.bytes <= LIMIT && labels.left_out > 0 && labels.apps[0].drops.len() > 100);
        let whole = labels_of(&one, usize::MAX);
        assert!(whole.own.keys().all(|name| name.len() < 3 * MAX_LABEL), "names of families are cut");
        assert!(whole.apps[0].labels.len() < 2 * MAX_LABEL);
        one.events = (0..1_000).map(|number| format!("e{number}")).collect();
        let labels = labels_of(&one, LIMIT);
        assert!(labels.apps.is_empty() && labels.left_out == 1, "an app has samples of each event");
    }

    #[test]
    fn names_that_differ_in_control_characters_only_are_one_series() {
        let mut directory =
            directory(["a\u{1}", "a\u{2}"].map(|name| app(name, "my", names(&["r\u{1}", "r\0"]), &[])).into());
        directory.events = names(&["e\u{1}", "e\u{2}", "f"]);
        let labels = labels_of(&directory, usize::MAX);
        let apps: Vec<&str> = labels.apps.iter().map(|app| app.labels.as_str()).collect();
        assert_eq!(apps, ["network=\"n\",app=\"a\u{fffd}\",type=\"my\""]);
        assert_eq!((labels.apps[0].drops.len(), labels.events.len()), (1, 2));
    }

    #[test]
    fn a_family_is_what_the_first_declaration_says() {
        let network = |unit: &str, gauge: bool| {
            let mut directory = directory(vec![app("a", "my", vec![], &["age"])]);
            directory.types = vec![type_entry("my", "age", unit, gauge)];
            labels_of(&directory, usize::MAX)
        };
        let first = network("nanoseconds", true);
        let [same, seconds, counter] = [("nanoseconds", true), ("seconds", true), ("nanoseconds", false)]
            .map(|(unit, gauge)| network(unit, gauge));
        let (families, left_out) = joined([&first, &same, &counter, &seconds].into_iter());
        let networks: Vec<usize> = families["bellows_my_age_seconds"].iter().map(|(network, _)| *network).collect();
        assert_eq!((networks, left_out), (vec![0, 1], 2), "seconds are not nanoseconds, and counts no gauges");
        // Two types of one network whose names are the same in a metric.
        let mut both = directory(vec![app("a", "my-x", vec![], &["n"]), app("b", "my.x", vec![], &["n"])]);
        both.types = vec![type_entry("my-x", "n", "times", true), type_entry("my.x", "n", "times", false)];
        let labels = labels_of(&both, usize::MAX);
        assert_eq!((labels.own["bellows_my_x_n"].cells.len(), labels.left_out), (1, 1));
        both.types[1] = type_entry("my.x", "n", "times", true);
        let labels = labels_of(&both, usize::MAX);
        assert_eq!((labels.own["bellows_my_x_n"].cells.len(), labels.left_out), (2, 0));
    }

    struct Cells {
        directory: Directory,
        cells: Vec<u64>,
    }

    impl CounterCells for Cells {
        fn directory(&self) -> &Directory {
            &self.directory
        }

        fn get(&self, cell: usize) -> u64 {
            self.cells[cell]
        }
    }

    #[test]
    fn derived_counters_do_not_fall_while_an_app_runs() {
        const DROPS: usize = account::cells(0);
        const LINK: usize = DROPS + 1;
        // `before` other apps precede the sink.
        let read = |before: usize, [calls, freed, dropped, sent, waiting]: [u64; 5]| {
            let mut others: Vec<AppEntry> =
                (0..before).map(|number| app(&format!("o{number}"), "my", names(&["full"]), &[])).collect();
            others.push(app("end", "sink", names(&["full"]), &[]));
            let mut directory = directory(others);
            let [from, to] = ["source.output", "end.input"].map(str::to_owned);
            directory.links = vec![LinkEntry { from, to, cell: LINK, counters: Vec::new() }];
            let mut cells = vec![0; LINK + link::COUNTERS.len()];
            cells[account::CALLS] = calls;
            cells[account::FREED] = freed;
            cells[DROPS] = dropped;
            cells[LINK + link::PACKETS] = sent;
            cells[LINK + link::WAITING] = waiting;
            let cells = Cells { directory, cells };
            let totals = Totals::of(&cells);
            (cells, totals)
        };
        let first = read(0, [10, 100, 10, 120, 0]);
        let counts = |totals: &Totals, position: usize| (totals.apps[position].in_packets, totals.apps[position].ended);
        assert_eq!(counts(&first.1, 0), (120, 90));
        // What was dropped is known before what was freed, and what was sent before what waits.
        for (before, after, expected) in [
            (0, [10, 100, 50, 120, 20], (120, 90)),
            // Another configuration, after a reload.
            (2, [10, 100, 50, 120, 20], (120, 90)),
            (2, [12, 300, 50, 150, 20], (130, 250)),
            // Removed, and started anew later.
            (1, [2, 30, 10, 40, 0], (40, 20)),
        ] {
            let (cells, mut totals) = read(before, after);
            keep_highest((&cells, &mut totals.apps), (&first.0, &first.1.apps));
            assert_eq!(counts(&totals, before), expected, "{after:?}");
        }
    }
}
