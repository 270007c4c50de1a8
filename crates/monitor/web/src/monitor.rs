//! The networks of this machine and what happens to them, read from their files while a page is open.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use bellows_inspect::accounting::{Accounts, Cost};
use bellows_inspect::events::{CrashedRun, NetworkEvents, News};
use bellows_inspect::foreign::{self, Allowance};
use bellows_inspect::health::{self, Checkup};
use bellows_inspect::networks::{self, Change, Sample, State};
use bellows_inspect::text::{count, plural, sanitize};
use bellows_observe::{AppCounts, EventFiles, LinkCounts, Observer, RuntimeDir, Snapshot, WorkerCounts};
use schemars::JsonSchema;
use serde::Serialize;

use crate::history::{AppFigures, Figures, History, LinkFigures};

/// The interval at which counters are read.
const INTERVAL: Duration = Duration::from_secs(1);

/// The time between the first two readings, short so that the page soon has rates.
const FIRST_INTERVAL: Duration = Duration::from_millis(250);

/// The time for which a page counts as open after its last request. A page in the background asks every ten seconds.
const OPEN_FOR: Duration = Duration::from_secs(25);

/// The minimum time over which clocks are compared: short spans have few samples.
const COST_SPAN: Duration = Duration::from_secs(10);

/// The maximum number of events that are kept of a network.
const MAX_EVENTS: usize = 100;

/// The maximum bytes of them.
const MAX_KEPT_BYTES: usize = MAX_EVENTS * (size_of::<Kept>() + 3 * MAX_TEXT);

/// The maximum number of other users' networks whose events are read at a time.
const MAX_FOREIGN_EVENTS: usize = 8;

/// The maximum number of ended networks that are kept.
const MAX_ENDED: usize = 50;

/// The maximum length of an event's text, in bytes.
const MAX_TEXT: usize = 1_000;

/// What happened to a network.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize)]
#[schemars(title = "Event that the server has seen")]
pub struct Happening {
    /// Milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// `running` (seen for the first time), `restarted` (another run has begun), `reloaded`, `stopped`, `continued`,
    /// `failed` (an app has panicked), `slow` (breaths exceeded `breath_limit`), `dropping` (the first drops),
    /// `crashed` or `ended`.
    #[schemars(extend("enum" = ["running", "restarted", "reloaded", "stopped", "continued", "failed", "slow", "dropping", "crashed", "ended"]))]
    pub what: &'static str,
    /// A sentence.
    pub text: String,
}

/// An event that a network has kept, perhaps before the page was opened.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize)]
#[schemars(title = "Event that the network has kept")]
pub struct Kept {
    /// Milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// Its name.
    pub what: String,
    /// `error`, `warn` or `info`.
    #[schemars(extend("enum" = ["error", "warn", "info"]))]
    pub level: String,
    /// The message.
    pub text: String,
}

impl Kept {
    fn of(time_ns: u64, news: &News) -> Kept {
        let json = news.to_json();
        let text = |key: &str| shortened(json[key].as_str().unwrap_or_default().to_owned());
        Kept { at_ms: milliseconds(time_ns), what: text("event"), level: text("level"), text: text("message") }
    }
}

impl Kept {
    fn size(&self) -> usize {
        size_of::<Kept>() + self.what.len() + self.level.len() + self.text.len()
    }
}

/// A text that is not too long.
fn shortened(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(MAX_TEXT));
    text
}

/// A network that is watched.
pub struct Watched {
    pub name: String,
    pub user: String,
    is_foreign: bool,
    /// The process of its run.
    pub pid: Option<u32>,
    /// The time at which its run began: another run may have a process of the same number.
    claimed: Option<SystemTime>,
    /// The state of its process; `None` once the run has ended.
    pub state: Option<State>,
    pub checkup: Option<Checkup>,
    /// Why its counters cannot be read.
    pub problem: Option<String>,
    observer: Option<Observer>,
    /// The counters of the last reading.
    pub sample: Option<Arc<Sample>>,
    /// The size of another user's counters.
    size: usize,
    /// Whether they are too large for another user's: they are not read again.
    is_too_large: bool,
    /// The growth since the reading before; `None` if there was none, or the network no longer runs.
    pub change: Option<Change>,
    /// The costs of the apps in the last seconds, in their order.
    pub costs: Vec<Cost>,
    /// Where the costs are from: the last and the next to last beginning of a span.
    spans: [Option<Sample>; 2],
    pub history: History,
    /// What the page has seen itself.
    pub events: VecDeque<Happening>,
    /// The last events that the network has kept.
    pub kept: VecDeque<Kept>,
    event_reader: NetworkEvents,
    /// Its run, if that has crashed.
    crashed: Option<CrashedRun>,
    /// A number for the apps and links: the same number means the same picture.
    pub structure: u64,
}

/// The networks by name, those of this user first.
pub type Networks = BTreeMap<(bool, String), Watched>;

/// Reads the networks' counters while a page is open.
pub struct Monitor {
    shared: Arc<MonitorShared>,
    thread: Option<JoinHandle<()>>,
}

struct MonitorShared {
    room: Mutex<Room>,
    wake: Condvar,
}

#[derive(Default)]
struct Room {
    networks: Networks,
    /// The time of the last request of a page.
    visited: Option<Instant>,
    /// The time of the next reading, while a page is open.
    next: Option<Instant>,
    is_over: bool,
    /// Whose turn it is among other users' networks.
    turn: usize,
}

impl MonitorShared {
    fn room(&self) -> MutexGuard<'_, Room> {
        self.room.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads at every interval while a page is open, until the monitor is dropped.
    fn run(&self) {
        let mut room = self.room();
        while !room.is_over {
            let now = Instant::now();
            let is_open = room.visited.is_some_and(|visited| now.duration_since(visited) < OPEN_FOR);
            room = match room.next.filter(|_| is_open) {
                None => {
                    // Nobody watches: forget everything, and read nothing.
                    *room = Room::default();
                    self.wake.wait(room).unwrap_or_else(PoisonError::into_inner)
                }
                Some(next) if now < next => {
                    self.wake.wait_timeout(room, next - now).unwrap_or_else(PoisonError::into_inner).0
                }
                Some(_) => {
                    room.read();
                    room.next = Some(now + INTERVAL);
                    room
                }
            };
        }
    }
}

impl Room {
    /// Reads all networks.
    fn read(&mut self) {
        let mut found = Vec::new();
        // What may still be kept of each other user.
        let mut left: HashMap<String, Allowance> = HashMap::new();
        for runtime_dir in RuntimeDir::all() {
            let key = (runtime_dir.is_foreign(), runtime_dir.name());
            found.push(key.clone());
            let network = self.networks.entry(key).or_insert_with(|| Watched::new(&runtime_dir));
            let left = left.entry(network.user.clone()).or_insert(Allowance::new(network.is_foreign));
            network.read(&runtime_dir, left);
        }
        for (_, network) in self.networks.iter_mut().filter(|(key, _)| !found.contains(key)) {
            network.end();
        }
        let mut files: HashMap<String, Vec<EventFiles>> = HashMap::new();
        EventFiles::all().into_iter().for_each(|of_one| files.entry(of_one.name()).or_default().push(of_one));
        // Of other users a few at a time, as far as there is room.
        let foreign = self.networks.values().filter(|network| network.is_foreign).count();
        let turns = foreign.div_ceil(MAX_FOREIGN_EVENTS).max(1);
        self.turn = (self.turn + 1) % turns;
        let mut place = 0;
        for network in self.networks.values_mut() {
            let left = left.entry(network.user.clone()).or_insert(Allowance::new(network.is_foreign));
            left.spend(network.kept.iter().map(Kept::size).sum());
            let is_turn = !network.is_foreign || (place % turns == self.turn && left.left() > MAX_KEPT_BYTES);
            place += usize::from(network.is_foreign);
            if is_turn {
                network.read_events(files.get(&network.name).map_or(&[], Vec::as_slice));
            }
        }
        let ended = |(key, network): (&(bool, String), &Watched)| network.state.is_none().then(|| key.clone());
        let ended: Vec<_> = self.networks.iter().filter_map(ended).collect();
        for key in ended.iter().take(ended.len().saturating_sub(MAX_ENDED)) {
            self.networks.remove(key);
        }
        self.networks.retain(|_, network| {
            let has_ended = network.is_foreign && network.state.is_none();
            let left = left.entry(network.user.clone()).or_insert(Allowance::new(network.is_foreign));
            !has_ended || left.take(network.size)
        });
    }
}

impl Monitor {
    /// A monitor that reads nothing before the first [`visit`](Monitor::visit).
    ///
    /// # Errors
    /// If the system starts no thread.
    pub fn start() -> std::io::Result<Monitor> {
        let shared = Arc::new(MonitorShared { room: Mutex::default(), wake: Condvar::new() });
        let of_thread = Arc::clone(&shared);
        let thread = thread::Builder::new().name("monitor".to_owned()).spawn(move || of_thread.run())?;
        Ok(Monitor { shared, thread: Some(thread) })
    }

    /// Looks at the networks as they were read last. The monitor goes on reading for some seconds.
    pub fn visit<T>(&self, look: impl FnOnce(&Networks) -> T) -> T {
        let mut room = self.shared.room();
        let now = Instant::now();
        room.visited = Some(now);
        if room.next.is_none() {
            room.read();
            room.next = Some(now + FIRST_INTERVAL);
            self.shared.wake.notify_all();
        }
        look(&room.networks)
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        self.shared.room().is_over = true;
        self.shared.wake.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The time as browsers count it.
fn milliseconds(nanos: u64) -> u64 {
    nanos / 1_000_000
}

fn now_milliseconds() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |time| time.as_millis() as u64)
}

/// A number for the apps and links of a network, and for what decides where its picture cuts loops.
fn structure(counters: &Snapshot) -> u64 {
    let mut hasher = DefaultHasher::new();
    counters.workers.len().hash(&mut hasher);
    for AppCounts { name, kind, worker, state, .. } in &counters.apps {
        (name, kind, worker, matches!(&**state, "polling" | "slots")).hash(&mut hasher);
    }
    for link in &counters.links {
        (&link.from, &link.to).hash(&mut hasher);
    }
    hasher.finish()
}

/// An estimate of the memory that counters take, in bytes.
fn size(counters: &Snapshot) -> usize {
    const ROW: usize = 512;
    const ENTRY: usize = 32;
    let names = |names: &BTreeMap<String, u64>| names.keys().map(|name| ENTRY + name.len()).sum::<usize>();
    let app = |app: &AppCounts| {
        let maps = [&app.drops, &app.lost, &app.counters, &app.calls, &app.account];
        let helps = app.loss_helps.iter().map(|(name, help)| ENTRY + name.len() + help.len()).sum::<usize>();
        ROW + app.name.len() + app.kind.len() + app.worker.len() + helps + maps.map(names).iter().sum::<usize>()
    };
    let link = |link: &LinkCounts| ROW + link.from.len() + link.to.len();
    let worker = |worker: &WorkerCounts| {
        let apps = worker.apps.iter().map(|name| ENTRY + name.len()).sum::<usize>();
        ROW + worker.name.len() + apps + names(&worker.counters)
    };
    let apps = counters.apps.iter().chain(&counters.crossings).chain(&counters.gone.apps).map(app);
    let links = counters.links.iter().chain(&counters.gone.links).map(link);
    apps.chain(links).chain(counters.workers.iter().map(worker)).fold(names(&counters.engine), usize::saturating_add)
}

/// The cost of each app, in the network's order.
fn costs(change: &Change) -> Vec<Cost> {
    let apps = change.after.counters.apps.len();
    let Accounts { rows, clocks } = Accounts::of(change);
    // Three rows for each app, and after all apps those of links between workers.
    let each = rows.chunks(3).take(apps);
    each.map(|rows| Accounts { rows: rows.to_vec(), clocks }.app(&rows[0].app)).collect()
}

impl Watched {
    fn new(runtime_dir: &RuntimeDir) -> Watched {
        Watched {
            name: runtime_dir.name(),
            user: runtime_dir.user(),
            is_foreign: runtime_dir.is_foreign(),
            pid: None,
            claimed: None,
            state: None,
            checkup: None,
            problem: None,
            observer: None,
            sample: None,
            size: 0,
            is_too_large: false,
            change: None,
            costs: Vec::new(),
            spans: [None, None],
            history: History::default(),
            events: VecDeque::new(),
            kept: VecDeque::new(),
            event_reader: NetworkEvents::default(),
            crashed: None,
            structure: 0,
        }
    }

    /// Its name as it is found.
    #[cfg(test)]
    fn key(&self) -> (bool, String) {
        (self.is_foreign, self.name.clone())
    }

    /// The network file as it was read.
    pub fn config(&self) -> &str {
        self.observer.as_ref().map_or("", |observer| &observer.directory().config)
    }

    /// Whether it is another user's.
    pub fn is_foreign(&self) -> bool {
        self.is_foreign
    }

    fn note(&mut self, what: &'static str, text: String) {
        if self.events.len() == MAX_EVENTS {
            self.events.pop_front();
        }
        self.events.push_back(Happening { at_ms: now_milliseconds(), what, text: shortened(text) });
    }

    /// Takes the events that the network has kept since the reading before.
    fn read_events(&mut self, files: &[EventFiles]) {
        // Also if they cannot be listed just now; a reader would begin anew.
        if files.is_empty() {
            return;
        }
        let news = self.event_reader.poll(files, self.crashed.as_ref());
        let older = news.len().saturating_sub(MAX_EVENTS);
        self.kept.extend(news.into_iter().skip(older).map(|(time_ns, news)| Kept::of(time_ns, &news)));
        self.kept.drain(..self.kept.len().saturating_sub(MAX_EVENTS));
    }

    /// The run has ended and has removed its folder.
    fn end(&mut self) {
        self.crashed = None;
        if self.state.take().is_some() {
            self.note("ended", format!("the run has ended (process {})", self.pid.unwrap_or(0)));
            // Its counters are kept as they were read last.
            self.observer = None;
            self.change = None;
            self.checkup = None;
        }
    }

    /// Begins anew if this is another run than that of the last reading.
    fn see_run(&mut self, pid: Option<u32>, claimed: Option<SystemTime>) {
        if (self.pid, self.claimed) == (pid, claimed) && self.state.is_some() {
            return;
        }
        let process = pid.unwrap_or(0);
        match self.pid {
            None => self.note("running", format!("first seen by this page (process {process})")),
            Some(_) => self.note("restarted", format!("another run has begun (process {process})")),
        }
        (self.pid, self.claimed) = (pid, claimed);
        (self.size, self.is_too_large, self.problem) = (0, false, None);
        self.forget_counters();
    }

    fn forget_counters(&mut self) {
        (self.observer, self.sample, self.change, self.spans) = (None, None, None, [None, None]);
    }

    /// Reads its state and its counters, of which this size is left at most.
    fn read(&mut self, runtime_dir: &RuntimeDir, left: &mut Allowance) {
        // Before its state, which must not be that of an earlier run.
        let (pid, claimed) = (runtime_dir.pid(), runtime_dir.claimed());
        let state = networks::state(runtime_dir);
        self.see_run(pid, claimed);
        let before = self.state.replace(state);
        // Before its events are read: a process that has ended writes nothing any more.
        self.crashed = if state == State::Crashed { CrashedRun::of(runtime_dir) } else { None };
        match (before, state) {
            (Some(State::Running | State::Stopped) | None, State::Crashed) => {
                self.note("crashed", "the process has ended without ending its run".to_owned());
            }
            (Some(State::Running), State::Stopped) => self.note("stopped", "the process is stopped".to_owned()),
            (Some(State::Stopped), State::Running) => self.note("continued", "the process goes on".to_owned()),
            _ => {}
        }
        let is_known = before == Some(State::Crashed) && state == State::Crashed && self.sample.is_some();
        if is_known && left.take(self.size) {
            return;
        }
        if self.observer.is_none() && !self.is_too_large {
            match Observer::open(runtime_dir.for_reading()) {
                Ok(observer) => (self.observer, self.problem) = (Some(observer), None),
                Err(error) => {
                    self.problem = Some(format!("its counters cannot be read: {}", sanitize(&error.to_string())))
                }
            }
        }
        if let Some(observer) = &mut self.observer {
            let mut sample = Sample::take(observer);
            if state == State::Crashed {
                sample.at = sample.counters.engine("updated");
            }
            if self.fits(&sample, left) {
                self.take(sample, state);
            }
        }
        self.checkup = Some(health::checkup(runtime_dir, state, self.sample.as_deref()));
    }

    /// Whether counters of another user are not too large. If they are, they are no longer read.
    fn fits(&mut self, sample: &Sample, left: &mut Allowance) -> bool {
        if !self.is_foreign {
            return true;
        }
        self.size = size(&sample.counters);
        if left.take(self.size) {
            return true;
        }
        let most = foreign::MAX_BYTES >> 20;
        self.problem = Some(format!(
            "its counters are not shown: those of all networks of `{}` have more than {most} MiB; `bellows show {}` \
             prints them",
            sanitize(&self.user),
            sanitize(&self.name)
        ));
        (self.size, self.is_too_large) = (0, true);
        (self.history, self.costs) = (History::default(), Vec::new());
        self.forget_counters();
        false
    }

    /// Takes the counters of a reading.
    fn take(&mut self, sample: Sample, state: State) {
        let before = self.sample.replace(Arc::new(sample.clone()));
        if let Some(before) = &before {
            self.compare(&before.counters, &sample.counters);
        }
        let structure = structure(&sample.counters);
        let is_other = std::mem::replace(&mut self.structure, structure) != structure;
        if is_other {
            self.spans = [None, None];
            self.history.begin_structure();
        }
        if state == State::Crashed {
            self.change = None;
            self.costs = costs(&Change::between(sample.beginning(), sample));
            return;
        }
        self.costs = self.recent_costs(&sample);
        self.change = before.map(|before| Change::between(Arc::unwrap_or_clone(before), sample));
        if let Some(change) = &self.change {
            self.history.add(figures(change, &self.costs));
        }
    }

    /// The costs since the beginning of the last span of some seconds; for apps that were hardly sampled since then,
    /// those since the run began.
    fn recent_costs(&mut self, sample: &Sample) -> Vec<Cost> {
        let [last, _] = &self.spans;
        let span = COST_SPAN.as_nanos() as u64;
        if last.as_ref().is_none_or(|last| sample.at.saturating_sub(last.at) >= span) {
            self.spans.swap(0, 1);
            self.spans[0] = Some(sample.clone());
        }
        let begin = self.spans[1].as_ref().or(self.spans[0].as_ref()).unwrap_or(sample);
        let recent = costs(&Change::between(begin.clone(), sample.clone()));
        let of_run = costs(&Change::between(sample.beginning(), sample.clone()));
        let either = |(recent, of_run): (Cost, Cost)| if recent.clocks_per_packet.is_some() { recent } else { of_run };
        recent.into_iter().zip(of_run).map(either).collect()
    }

    /// Notes what has happened between two readings.
    fn compare(&mut self, before: &Snapshot, after: &Snapshot) {
        let grown = |name: &str| after.engine(name).saturating_sub(before.engine(name));
        if grown("reloads") > 0 {
            // The names of an app list that another one does not have.
            let missing = |these: &Snapshot, those: &Snapshot| {
                let known: HashSet<&str> = those.apps.iter().map(|app| &*app.name).collect();
                let names = these.apps.iter().map(|app| &*app.name);
                let missing: Vec<&str> = names.filter(|name| !known.contains(name)).collect();
                let first = missing.iter().take(5).map(|name| format!("`{name}`"));
                (missing.len(), sanitize(&first.collect::<Vec<_>>().join(", ")))
            };
            let list = |(count, names): (usize, String), verb: &str| match count {
                0 => String::new(),
                1..=5 => format!("; {verb} {names}"),
                _ => format!("; {verb} {names} and {} more", count - 5),
            };
            let added = list(missing(after, before), "added");
            let removed = list(missing(before, after), "removed");
            self.note("reloaded", format!("the network was reloaded{added}{removed}"));
        }
        let failed: HashSet<String> = networks::failed(before).into_iter().collect();
        let is_new = |app: &&String| !failed.contains(*app);
        // Older events than these would be lost at once.
        for app in networks::failed(after).iter().filter(is_new).take(MAX_EVENTS) {
            self.note("failed", format!("the app `{}` has panicked and is no longer called", sanitize(app)));
        }
        let (slow, still) = (grown("slow_breaths"), grown("standstills"));
        if slow + still > 0 {
            let stood = if still > 0 { format!(" and {}", plural(still, "standstill")) } else { String::new() };
            self.note("slow", format!("{} beyond `breath_limit`{stood}", plural(slow, "breath")));
        }
        let dropped = after.dropped().saturating_sub(before.dropped());
        // Drops are news only where there were none: later ones are figures.
        if dropped > 0 && before.dropped() == 0 {
            self.note("dropping", format!("the first drops: {} packets", count(dropped)));
        }
    }
}

/// The figures of a reading.
fn figures(change: &Change, costs: &[Cost]) -> Figures {
    let app = |((before, app), cost): ((Option<&AppCounts>, &AppCounts), &Cost)| {
        let rate = |of: fn(&AppCounts) -> u64| change.per_second(before.map_or(0, of), of(app)) as f32;
        AppFigures {
            received: rate(|app| app.in_packets),
            sent: rate(|app| app.out_packets),
            dropped: rate(AppCounts::dropped),
            clocks: cost.clocks_per_packet.map_or(f32::NAN, |clocks| clocks as f32),
        }
    };
    let links = change.links().map(|(link, rate)| LinkFigures {
        packets: rate.packets as f32,
        bits: rate.bits as f32,
        dropped: rate.dropped as f32,
        waiting: link.waiting as f32,
    });
    Figures {
        at_ms: milliseconds(change.after.at),
        packets: change.busiest_link().packets as f32,
        dropped: bellows_inspect::reports::drops_per_second(change) as f32,
        asleep: change.asleep() as f32,
        apps: change.apps().zip(costs).map(app).collect(),
        links: links.collect(),
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    /// A network that was not found in a folder.
    pub fn watched() -> Watched {
        Watched {
            name: "router".to_owned(),
            user: "ada".to_owned(),
            is_foreign: false,
            pid: Some(7),
            claimed: None,
            state: Some(State::Running),
            checkup: None,
            problem: None,
            observer: None,
            sample: None,
            size: 0,
            is_too_large: false,
            change: None,
            costs: Vec::new(),
            spans: [None, None],
            history: History::default(),
            events: VecDeque::new(),
            kept: VecDeque::new(),
            event_reader: NetworkEvents::default(),
            crashed: None,
            structure: 0,
        }
    }

    /// Counters in which this number of packets has passed by this second.
    pub fn sample(second: u64, packets: u64) -> Sample {
        let app = |name: &str, received, sent| AppCounts {
            name: name.to_owned(),
            kind: "tee".to_owned(),
            state: "active".to_owned(),
            in_packets: received,
            out_packets: sent,
            calls: [("push".to_owned(), packets)].into(),
            account: [("push_calls", packets), ("push_packets", packets), ("push_clocks", 20 * packets)]
                .map(|(name, count)| (name.to_owned(), count))
                .into(),
            ..AppCounts::default()
        };
        let link = LinkCounts {
            from: "a.output".to_owned(),
            to: "b.input".to_owned(),
            packets,
            bytes: 60 * packets,
            ..LinkCounts::default()
        };
        let counters = Snapshot {
            ticks_per_second: 1_000_000_000,
            apps: vec![app("a", 0, packets), app("b", packets, 0)],
            links: vec![link],
            engine: [("updated".to_owned(), second * 1_000_000_000), ("breaths".to_owned(), packets)].into(),
            ..Snapshot::default()
        };
        Sample { counters, at: second * 1_000_000_000 }
    }

    impl Monitor {
        /// Adds a network that is in no folder.
        pub fn add_for_test(&self, network: Watched) {
            let mut room = self.shared.room();
            room.networks.insert(network.key(), network);
            (room.visited, room.next) = (Some(Instant::now()), Some(Instant::now() + Duration::from_secs(60)));
        }

        /// Whether others can look at the networks now.
        pub fn is_free_for_test(&self) -> bool {
            let is_free = || self.shared.room.try_lock().is_ok();
            // The monitor itself holds them for moments.
            (0..100).any(|_| {
                is_free() || {
                    thread::sleep(Duration::from_millis(5));
                    false
                }
            })
        }
    }

    impl Watched {
        /// Takes counters that no process has written.
        pub fn take_for_test(&mut self, sample: Sample) {
            self.take(sample, State::Running);
        }
    }

    #[test]
    fn readings_become_rates_and_costs() {
        let mut network = watched();
        (0..30).for_each(|second| network.take(sample(100 + second, 1_000 * second), State::Running));
        let last = network.history.last().unwrap();
        assert_eq!((last.packets, last.apps[1].received, last.links[0].bits), (1_000.0, 1_000.0, 480_000.0));
        assert_eq!((last.apps[1].clocks, network.costs[1].share), (20.0, Some(0.5)));
        assert_eq!(network.history.len(), 29);
        assert!(network.events.is_empty(), "{:?}", network.events);
    }

    #[test]
    fn reloads_failures_and_slow_breaths_are_noted() {
        let mut network = watched();
        network.take(sample(1, 5), State::Running);
        let mut reloaded = sample(2, 6);
        reloaded.counters.apps[1].name = "c".to_owned();
        reloaded.counters.apps[1].state = "failed".to_owned();
        let counters = [("reloads", 1), ("slow_breaths", 1), ("standstills", 2)];
        reloaded.counters.engine.extend(counters.map(|(name, count)| (name.to_owned(), count)));
        let structure = network.structure;
        network.take(reloaded, State::Running);
        assert_ne!(network.structure, structure);
        let said: Vec<(&str, &str)> = network.events.iter().map(|event| (event.what, &*event.text)).collect();
        let expected = [
            ("reloaded", "the network was reloaded; added `c`; removed `b`"),
            ("failed", "the app `c` has panicked and is no longer called"),
            ("slow", "1 breath beyond `breath_limit` and 2 standstills"),
        ];
        assert_eq!(said, expected);
    }

    /// Counters of two apps with other names, and a third one.
    fn other_sample(second: u64, packets: u64) -> Sample {
        let mut sample = sample(second, packets);
        let third = sample.counters.apps[1].clone();
        sample.counters.apps.push(third);
        for (app, name) in sample.counters.apps.iter_mut().zip(["x", "y", "z"]) {
            app.name = name.to_owned();
        }
        sample
    }

    #[test]
    fn charts_begin_with_another_run() {
        let mut network = watched();
        let first = network.claimed;
        network.see_run(Some(7), first);
        (1..3).for_each(|second| network.take(sample(second, 5 * second), State::Running));
        assert_eq!(network.history.of_app(0).at_ms, [2_000]);
        // A process of the same number.
        network.see_run(Some(7), Some(SystemTime::now()));
        assert_eq!(network.events.back().map(|event| event.what), Some("restarted"));
        assert!(network.sample.is_none() && network.change.is_none());
        (10..12).for_each(|second| network.take(other_sample(second, 5 * second), State::Running));
        assert_eq!(network.history.of_app(0).at_ms, [11_000], "nothing of the first run");
        assert_eq!(network.history.len(), 2);
        let (known, events) = (network.claimed, network.events.len());
        network.see_run(Some(7), known);
        assert_eq!((network.events.len(), network.sample.is_some()), (events, true));
    }

    #[test]
    fn reloads_of_many_apps_are_compared_soon() {
        let apps = |prefix: &str| {
            let app = |number| AppCounts { name: format!("{prefix}{number}"), ..AppCounts::default() };
            (0..40_000).map(app).collect::<Vec<_>>()
        };
        let failed = |mut app: AppCounts| {
            app.state = "failed".to_owned();
            app
        };
        let before = Snapshot { apps: apps("a"), ..Snapshot::default() };
        let apps = apps("b").into_iter().map(failed).collect();
        let after = Snapshot { apps, engine: [("reloads".to_owned(), 1)].into(), ..Snapshot::default() };
        let mut network = watched();
        let begin = Instant::now();
        network.compare(&before, &after);
        assert!(begin.elapsed() < Duration::from_secs(1), "{:?}", begin.elapsed());
        assert_eq!(network.events.len(), MAX_EVENTS);
    }

    #[test]
    fn counters_of_another_user_are_limited() {
        let mut network = watched();
        let known = sample(1, 5);
        let mut left = Allowance::new(true);
        left.spend(foreign::MAX_BYTES);
        assert!(network.fits(&known, &mut left), "those of this user are not");
        network.is_foreign = true;
        let needed = size(&known.counters);
        assert!((1_000..10_000).contains(&needed), "{needed}");
        left = Allowance::new(true);
        left.spend(foreign::MAX_BYTES - needed - 10);
        assert!(network.fits(&known, &mut left) && left.left() == 10);
        network.take(known.clone(), State::Running);
        let mut named = known.clone();
        named.counters.apps[0].drops.insert("x".repeat(1_000_000), 0);
        assert!(size(&named.counters) > 1_000_000);
        assert!(!network.fits(&known, &mut left) && left.left() == 10);
        assert!(network.is_too_large && network.sample.is_none());
        assert!(network.problem.as_ref().is_some_and(|problem| problem.contains("32 MiB")), "{:?}", network.problem);
        network.note("slow", "é".repeat(MAX_TEXT));
        assert_eq!(network.events[0].text.len(), MAX_TEXT);
    }

    #[test]
    fn an_end_is_noted_once_and_keeps_the_counters() {
        let mut network = watched();
        (1..3).for_each(|second| network.take(sample(second, second), State::Running));
        network.end();
        network.end();
        assert_eq!((network.events.len(), network.events[0].what), (1, "ended"));
        assert!(network.sample.is_some() && network.change.is_none());
        assert_eq!(network.key(), (false, "router".to_owned()));
    }

    #[test]
    fn events_are_limited() {
        let mut network = watched();
        (0..500).for_each(|number| network.note("slow", number.to_string()));
        assert_eq!((network.events.len(), &*network.events[99].text), (MAX_EVENTS, "499"));
    }

    #[test]
    fn without_a_page_nothing_is_read() {
        let monitor = Monitor::start().unwrap();
        thread::sleep(Duration::from_millis(50));
        assert!(monitor.shared.room().next.is_none());
        monitor.visit(|_| ());
        assert!(monitor.shared.room().next.is_some());
        monitor.shared.room().visited = None;
        monitor.shared.wake.notify_all();
        let begin = Instant::now();
        while monitor.shared.room().next.is_some() {
            assert!(begin.elapsed() < Duration::from_secs(5), "it goes on reading");
            thread::sleep(Duration::from_millis(5));
        }
        assert!(monitor.shared.room().networks.is_empty());
    }
}
