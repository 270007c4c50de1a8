//! Running and crashed engines, seen from outside.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::hash::Hash;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use bellows_config::nearest;
use bellows_observe::{
    Activity, AppCounts, Histogram, LinkCounts, Liveness, Observer, RuntimeDir, SearchPath, Snapshot, WorkerCounts,
};
use bellows_sys::clock;
use schemars::JsonSchema;
use serde::Serialize;

use crate::InspectError;
use crate::service;
use crate::text::{count, packet_rate, percent, plural, sanitize, scaled, span};

/// The state of an engine's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Its process is running.
    Running,
    /// Its process has been stopped, by a signal or a debugger, and may go on.
    Stopped,
    /// Its process ended without removing its folder.
    Crashed,
}

impl State {
    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            State::Running => "running",
            State::Stopped => "stopped",
            State::Crashed => "crashed",
        }
    }

    /// Whether its process has not ended.
    pub fn is_alive(self) -> bool {
        self != State::Crashed
    }
}

/// The state of the engine in a folder.
pub fn state(runtime_dir: &RuntimeDir) -> State {
    match runtime_dir.process() {
        Some(pid) if is_stopped(pid) => State::Stopped,
        Some(_) => State::Running,
        None => State::Crashed,
    }
}

/// The apps that have panicked and are no longer called.
pub fn failed(counters: &Snapshot) -> Vec<String> {
    counters.apps.iter().filter(|app| app.state == "failed").map(|app| app.name.clone()).collect()
}

/// The places searched for networks, for messages about a network that was not found.
pub fn searched_places() -> String {
    let SearchPath { own, is_fixed, others } = SearchPath::current();
    let list = |paths: &[PathBuf]| paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>();
    let own = list(&own).join(", ");
    if is_fixed {
        return format!("looked in {own} alone, because BELLOWS_RUNTIME_DIR is set");
    }
    let others = match &list(&others)[..] {
        [] => "only root sees those of other users".to_owned(),
        others => format!("for other users, in {}", others.join(" and ")),
    };
    format!(
        "looked in {own}; {others}; a network with another XDG_RUNTIME_DIR or BELLOWS_RUNTIME_DIR needs the same here"
    )
}

/// What is to be done with a network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Access {
    /// Nothing of it changes.
    Read,
    /// It is changed or stopped, or gets a secret.
    #[default]
    Change,
}

/// The engine of this name. Without a name, the only running one or, if none is running, the only crashed one.
///
/// Networks of other users count only if this user has none. A network of another user is changed only if its name was
/// given as `USER/NAME`, or if that user is the [user of services](service::service_user) and a name was given: anybody can start
/// a network of any name. For reading, any will do that is the only one.
///
/// # Errors
/// When there is none, or several to choose from, or the network is not to be changed.
pub fn pick(name: Option<&str>, access: Access) -> Result<RuntimeDir, InspectError> {
    match name {
        Some(name) => called(name, access),
        None => only(access),
    }
}

fn names(runtime_dirs: &[RuntimeDir]) -> Vec<String> {
    runtime_dirs.iter().map(RuntimeDir::name).collect()
}

/// The engine of this name.
fn called(name: &str, access: Access) -> Result<RuntimeDir, InspectError> {
    let mut meant = RuntimeDir::called(name);
    let Some(first) = meant.first() else { return Err(unknown(name, &names(&RuntimeDir::all()))) };
    let is_full = name.contains('/');
    if !is_full && first.is_foreign() {
        let user = service_user(access)?;
        let of_service = user.and_then(|user| meant.iter().position(|runtime_dir| runtime_dir.is_of(&user)));
        match of_service {
            Some(index) => meant = vec![meant.swap_remove(index)],
            None if access == Access::Change => {
                let full = names(&meant).iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(" or ");
                return Err(InspectError::Request(format!(
                    "this user has no network named `{name}`, and one of another user is changed only by its full name: \
                     write {full} (the user whose networks need none is named in {})",
                    service::FILE
                )));
            }
            None => {}
        }
    }
    match meant.len() {
        1 if access == Access::Change => Ok(meant.swap_remove(0).to_change()),
        1 => Ok(meant.swap_remove(0)),
        _ => Err(InspectError::Request(format!(
            "several users have a network named `{name}`; name one of {} with `-n USER/NAME`",
            names(&meant).join(", ")
        ))),
    }
}

/// The only engine.
fn only(access: Access) -> Result<RuntimeDir, InspectError> {
    let mut runtime_dirs = RuntimeDir::all();
    if runtime_dirs.iter().any(|runtime_dir| !runtime_dir.is_foreign()) {
        runtime_dirs.retain(|runtime_dir| !runtime_dir.is_foreign());
    } else if access == Access::Read
        && let Some(user) = service_user(access)?
        && runtime_dirs.iter().any(|runtime_dir| runtime_dir.is_of(&user))
    {
        runtime_dirs.retain(|runtime_dir| runtime_dir.is_of(&user));
    }
    let names = names(&runtime_dirs);
    if runtime_dirs.len() > 1 {
        runtime_dirs.retain(|runtime_dir| state(runtime_dir).is_alive());
    }
    match runtime_dirs.len() {
        1 if access == Access::Change && runtime_dirs[0].is_foreign() => Err(InspectError::Request(format!(
            "this user runs no network; another user runs `{0}`, which must be named: `-n {0}`",
            runtime_dirs[0].name()
        ))),
        1 => Ok(runtime_dirs.swap_remove(0)),
        0 if names.is_empty() => Err(InspectError::Request(format!(
            "no network is running; start one with `bellows run NETWORK` ({})",
            searched_places()
        ))),
        _ => Err(InspectError::Request(format!(
            "there are several networks; name one of {} with `-n NAME`",
            names.join(", ")
        ))),
    }
}

/// Rejects an action that only the network's own user may take, and names the command for that user.
///
/// # Errors
/// If it is another user's.
pub fn refuse_foreign(runtime_dir: &RuntimeDir, what: &str, why: &str) -> Result<(), InspectError> {
    if !runtime_dir.is_foreign() {
        return Ok(());
    }
    let (name, user, bare) = (runtime_dir.name(), runtime_dir.user(), runtime_dir.bare_name());
    // A user without a name is given by number.
    let user = if user.parse::<u32>().is_ok() { format!("'#{user}'") } else { user };
    Err(InspectError::Request(format!(
        "`{name}` is another user's: {why}; as that user: `sudo -u {user} bellows {what} {bare}`"
    )))
}

/// The user of services. For reading, a file that is not to be believed is a warning.
fn service_user(access: Access) -> Result<Option<String>, InspectError> {
    match service::service_user() {
        Err(why) if access == Access::Read => {
            tracing::warn!("{why}");
            Ok(None)
        }
        user => user.map_err(InspectError::Request),
    }
}

/// The error for an unknown name.
fn unknown(name: &str, names: &[String]) -> InspectError {
    let known = match nearest(name, names.iter().map(String::as_str)) {
        Some(near) => format!("; did you mean `{near}`?"),
        None if names.is_empty() => "; none is running".to_owned(),
        None => format!("; there are {}", names.join(", ")),
    };
    InspectError::Request(format!("no network named `{name}` is running{known} ({})", searched_places()))
}

/// Opens the counters of an engine.
///
/// # Errors
/// When they cannot be read.
pub fn open(runtime_dir: RuntimeDir) -> Result<Observer, InspectError> {
    let name = runtime_dir.name();
    Observer::open(runtime_dir)
        .map_err(|error| InspectError::Failed(format!("the counters of `{name}` cannot be read: {error}")))
}

/// Counters and the time at which they were read.
#[derive(Clone, Debug)]
pub struct Sample {
    /// The counters.
    pub counters: Snapshot,
    /// Nanoseconds since the Unix epoch.
    pub at: u64,
}

impl Sample {
    /// Reads the counters now.
    pub fn take(observer: &mut Observer) -> Sample {
        Sample { counters: observer.snapshot(), at: clock::unix_ns() }
    }

    /// Reads the counters when they are most consistent. For a busy engine this is just after it has written its
    /// gauges, because the other counters are exact at any time. For a crashed engine they are those of the last time
    /// that it wrote its gauges.
    pub fn settled(observer: &mut Observer) -> Sample {
        let first = Sample::take(observer);
        let updated = first.counters.engine("updated");
        match state(observer.runtime_dir()) {
            State::Running => {}
            State::Stopped => return first,
            State::Crashed => return Sample { at: updated, ..first },
        }
        let patience = Instant::now() + 2 * GAUGE_INTERVAL;
        let mut sample = first;
        while sample.counters.engine("updated") == updated
            && sample.gauge_age() <= MAX_SILENCE_NS
            && Instant::now() < patience
        {
            thread::sleep(Duration::from_millis(1));
            sample = Sample::take(observer);
        }
        sample
    }

    /// The start of the run of these counters, when all were 0.
    pub fn beginning(&self) -> Sample {
        let at = self.counters.engine("started");
        let counters = Snapshot { engine: [("updated".to_owned(), at)].into(), ..Snapshot::default() };
        Sample { counters, at }
    }

    /// Nanoseconds since the engine last wrote its gauges.
    fn gauge_age(&self) -> u64 {
        self.at.saturating_sub(self.counters.engine("updated"))
    }

    /// The time for which the engine has been running.
    pub fn uptime(&self) -> Duration {
        Duration::from_nanos(self.at.saturating_sub(self.counters.engine("started")))
    }

    /// Nanoseconds that the engine has slept in all. It records a sleep when it wakes. An engine that has not written
    /// its gauges for a while has been asleep since then, because its process regularly asks a busy engine to write
    /// them.
    fn asleep(&self) -> u64 {
        let silent = Some(self.gauge_age()).filter(|gauge_age| *gauge_age > MAX_SILENCE_NS);
        self.counters.engine("sleep_ns").saturating_add(silent.unwrap_or(0))
    }
}

/// An engine that has not been seen outside of its apps for a while.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize)]
#[schemars(title = "Hang")]
pub struct Hang {
    /// The worker; null if it is the only one.
    pub worker: Option<String>,
    /// The app that it is in; null if it is in none.
    pub app: Option<String>,
    /// `call`, `question`, `start` or `stop`, as in [Call](#call); null if it is in no app.
    pub activity: Option<Activity>,
    /// The time since it was last outside of apps.
    pub seconds: f64,
}

impl Hang {
    /// Whether the engine hangs according to these counters. For a stopped or dead process, the time runs from the last
    /// sign of life to the time of the sample.
    pub fn of(sample: &Sample) -> Option<Hang> {
        Hang::at(sample.counters.pulse(), sample.at)
    }

    /// Whether the engine hangs at a time, in nanoseconds since the Unix epoch.
    pub fn at(pulse: Liveness, now: u64) -> Option<Hang> {
        let gauge_age = now.saturating_sub(pulse.alive);
        if pulse.asleep || gauge_age < MAX_CALL_NS {
            return None;
        }
        let (app, activity) = pulse.doing.map(|doing| (doing.app, doing.activity)).unzip();
        Some(Hang { worker: pulse.worker, app, activity, seconds: gauge_age as f64 / 1e9 })
    }
}

impl fmt::Display for Hang {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = span(Duration::from_secs_f64(self.seconds));
        let who = subject(self.worker.as_deref());
        let Some(app) = &self.app else {
            return write!(formatter, "{who} has not taken a breath for {time}, and is in no app");
        };
        let activity = match self.activity {
            Some(Activity::Question) => "answering whether it is done",
            Some(Activity::Start) => "starting",
            Some(Activity::Stop) => "stopping",
            Some(Activity::Call) | None => "moving packets",
        };
        write!(formatter, "{who} has been in the app `{}` for {time} ({activity})", sanitize(app))
    }
}

/// The engine, or one of several workers, in a sentence.
fn subject(worker: Option<&str>) -> String {
    worker.map_or_else(|| "the engine".to_owned(), |worker| format!("the worker `{}`", sanitize(worker)))
}

/// The apps in which the workers were at the end of a process, one on each line.
pub(crate) fn last_calls(counters: &Snapshot) -> String {
    let several = counters.workers.len() > 1;
    let line = |worker: &WorkerCounts| {
        let app = sanitize(&worker.doing.as_ref()?.app);
        Some(format!("when it ended, {} was in the app `{app}`\n", subject(several.then_some(&worker.name))))
    };
    counters.workers.iter().filter_map(line).collect()
}

/// A line for each worker, if there are several.
pub fn workers(change: &Change) -> String {
    let workers: Vec<_> = change.workers().collect();
    if workers.len() < 2 {
        return String::new();
    }
    let line = |worker: WorkerChange<'_>| {
        let idle = worker.idle_breaths.map_or(String::new(), |share| format!(" ({} idle)", percent(share)));
        let (name, apps) = (sanitize(worker.name), plural(worker.apps.len() as u64, "app"));
        let node = worker.node.map_or(String::new(), |node| {
            format!(", memory node {node}, {} from other nodes", packet_rate(worker.from_other_nodes))
        });
        let (breaths, asleep) = (scaled(worker.breaths), percent(worker.asleep));
        format!("worker {name}: {apps}, {breaths} breaths/s{idle}, asleep {asleep}{node}\n")
    };
    workers.into_iter().map(line).collect()
}

/// The use of the packet pool, in words.
pub fn buffers(counters: &Snapshot) -> String {
    let lent = match counters.engine("buffers_lent") {
        0 => String::new(),
        lent => format!(", {} lent to the kernel", count(lent)),
    };
    let large = match counters.engine("large_buffers_in_use") {
        0 => String::new(),
        taken => format!(", {} of {} large ones taken", count(taken), count(counters.engine("large_buffers"))),
    };
    format!(
        "{} of {} buffers in use{lent}{large}",
        count(counters.engine("buffers_in_use")),
        count(counters.engine("buffers"))
    )
}

/// The breaths that exceeded `breath_limit`, in words; `None` if there were none.
pub fn slow(counters: &Snapshot) -> Option<String> {
    let part = |name: &str, what: &str| match counters.engine(name) {
        0 => None,
        number => Some(plural(number, what)),
    };
    let parts = [part("slow_breaths", "slow breath"), part("standstills", "standstill")];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

impl Hang {
    /// Whether the app is being started or stopped, which may take long because it opens and closes files.
    pub fn is_restart(&self) -> bool {
        matches!(self.activity, Some(Activity::Start | Activity::Stop))
    }
}

/// The reason why a network does not do what it was told.
#[derive(Clone, Debug, PartialEq)]
pub enum Obstacle {
    /// Its process has been stopped, by a signal or a debugger.
    Stopped,
    /// Its engine hangs.
    Hang(Hang),
}

impl Obstacle {
    /// The obstacle, and the remedy.
    pub fn advice(&self, name: &str, pid: u32) -> String {
        match self {
            Obstacle::Stopped => {
                format!("{self}; {}, `bellows stop --kill {name}` ends it", Obstacle::continuation(pid))
            }
            Obstacle::Hang(_) => format!("{self}; `bellows stop --kill {name}` ends it"),
        }
    }

    /// How to continue a stopped process.
    pub fn continuation(pid: u32) -> String {
        format!("`kill -CONT {pid}` lets it go on")
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Obstacle::Stopped => formatter.write_str("the process is stopped (state T), by a signal or a debugger"),
            Obstacle::Hang(hang) => write!(formatter, "{hang}"),
        }
    }
}

/// The obstacle of a network, if there is one.
pub fn obstacle(runtime_dir: &RuntimeDir) -> Option<Obstacle> {
    if is_stopped(runtime_dir.process()?) {
        return Some(Obstacle::Stopped);
    }
    let mut observer = Observer::open(runtime_dir.for_reading()).ok()?;
    Hang::of(&Sample::take(&mut observer)).map(Obstacle::Hang)
}

/// Whether a process has been stopped, by a signal or a debugger.
fn is_stopped(pid: u32) -> bool {
    matches!(process_state(pid), Some('T' | 't'))
}

/// The state of a process as the kernel abbreviates it: `R` is running, `T` has been stopped, `Z` is a zombie.
pub fn process_state(pid: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may contain any characters.
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}

/// The time after which a call of an app counts as hung, in nanoseconds.
pub const MAX_CALL_NS: u64 = 2_000_000_000;

/// The maximum time between two writes of a busy engine's gauges, in nanoseconds.
const MAX_SILENCE_NS: u64 = 500_000_000;

/// The interval at which an engine's process asks it to write its gauges.
pub const GAUGE_INTERVAL: Duration = Duration::from_millis(100);

/// Packets and bits a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Rate {
    /// Packets a second.
    pub packets: f64,
    /// Bits a second, of the packets' data.
    pub bits: f64,
    /// Packets a second that a full link rejected.
    pub dropped: f64,
}

/// The change between two samples of an engine.
#[derive(Clone, Debug)]
pub struct Change {
    /// The time between them, in seconds; never 0.
    seconds: f64,
    /// The earlier sample.
    pub before: Sample,
    /// The later sample.
    pub after: Sample,
    /// The position of each app of the later sample in the earlier one.
    apps: Vec<Option<usize>>,
    /// The position of each side of a crossing of the later sample in the earlier one.
    crossings: Vec<Option<usize>>,
    /// The position of each link of the later sample in the earlier one.
    links: Vec<Option<usize>>,
}

/// What happened on a worker between two samples.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize)]
#[schemars(title = "Rates of a worker")]
pub struct WorkerChange<'c> {
    /// Its name.
    pub name: &'c str,
    /// Breaths per second.
    pub breaths: f64,
    /// The share of idle breaths, from 0 to 1; null without breaths.
    pub idle_breaths: Option<f64>,
    /// The share of the time asleep, from 0 to 1.
    pub asleep: f64,
    /// Its memory node; null on a machine with one, or if it may run on several.
    pub node: Option<usize>,
    /// Packets per second from workers on other memory nodes.
    pub from_other_nodes: f64,
    /// The names of its apps.
    pub apps: &'c [String],
}

/// The position of each item of a list in another one.
fn positions<'a, T, K: Hash + Eq>(list: &'a [T], other: &'a [T], key: fn(&'a T) -> K) -> Vec<Option<usize>> {
    let mut first = HashMap::with_capacity(other.len());
    for (index, item) in other.iter().enumerate() {
        first.entry(key(item)).or_insert(index);
    }
    list.iter().map(|item| first.get(&key(item)).copied()).collect()
}

/// Whether an app's counters can have grown into these. If not, another app has taken its name.
fn is_later(before: &AppCounts, after: &AppCounts) -> bool {
    // Only the calls of the account: extrapolated counts may fall a little.
    let grew = |before: &BTreeMap<String, u64>, after: &BTreeMap<String, u64>, ending: &str| {
        let mut counters = before.iter().filter(|(name, _)| name.ends_with(ending));
        counters.all(|(name, value)| after.get(name).is_none_or(|after| value <= after))
    };
    before.kind == after.kind
        && grew(&before.calls, &after.calls, "")
        && grew(&before.account, &after.account, "_calls")
}

impl Change {
    /// From one sample to a later one.
    pub fn between(before: Sample, after: Sample) -> Change {
        let seconds = (after.at.saturating_sub(before.at).max(1)) as f64 / 1e9;
        let grown = |before: &[AppCounts], after: &[AppCounts]| {
            let mut apps = positions(after, before, |app| app.name.as_str());
            for (app, at) in after.iter().zip(&mut apps) {
                *at = at.filter(|&at| is_later(&before[at], app));
            }
            apps
        };
        let apps = grown(&before.counters.apps, &after.counters.apps);
        let crossings = grown(&before.counters.crossings, &after.counters.crossings);
        let links = positions(&after.counters.links, &before.counters.links, |link| (&*link.from, &*link.to));
        Change { seconds, apps, crossings, links, before, after }
    }

    /// The time between the samples, in seconds.
    pub fn seconds(&self) -> f64 {
        self.seconds
    }

    /// How often an event of the engine's counters happened in that time.
    pub fn engine_total(&self, name: &str) -> u64 {
        self.after.counters.engine(name).saturating_sub(self.before.counters.engine(name))
    }

    /// The distribution of the times of a kind measured between the samples.
    pub fn histogram(&self, name: &str) -> Histogram {
        let of = |sample: &Sample| sample.counters.histograms.get(name).cloned().unwrap_or_default();
        of(&self.after).since(&of(&self.before))
    }

    /// The growth of a number per second. A number that shrank belongs to something else by now.
    pub fn per_second(&self, before: u64, after: u64) -> f64 {
        after.saturating_sub(before) as f64 / self.seconds
    }

    /// The growth of a counter of the engine.
    pub fn engine(&self, name: &str) -> f64 {
        self.per_second(self.before.counters.engine(name), self.after.counters.engine(name))
    }

    /// The links, and the traffic of each.
    pub fn links(&self) -> impl Iterator<Item = (&LinkCounts, Rate)> {
        self.link_counts().map(|(before, link)| (link, self.rate(before, link)))
    }

    /// The counts of each link: before (if it existed) and after.
    pub fn link_counts(&self) -> impl Iterator<Item = (Option<&LinkCounts>, &LinkCounts)> {
        let before = self.links.iter().map(|at| at.map(|index| &self.before.counters.links[index]));
        before.zip(&self.after.counters.links)
    }

    fn rate(&self, before: Option<&LinkCounts>, link: &LinkCounts) -> Rate {
        let grown = |count: fn(&LinkCounts) -> u64| self.per_second(before.map_or(0, count), count(link));
        Rate {
            packets: grown(|link| link.packets),
            bits: 8.0 * grown(|link| link.bytes),
            dropped: grown(|link| link.txdrop),
        }
    }

    /// The traffic of the busiest link.
    pub fn busiest_link(&self) -> Rate {
        let rates = self.links().map(|(_, rate)| rate);
        // Ties are broken by bits, so that the choice is the same at every update.
        let order =
            |one: &Rate, other: &Rate| one.packets.total_cmp(&other.packets).then(one.bits.total_cmp(&other.bits));
        rates.max_by(order).unwrap_or_default()
    }

    /// The share of the time that the engine slept, from 0 to 1: the mean of its workers.
    pub fn asleep(&self) -> f64 {
        let workers = self.after.counters.workers.len();
        if workers > 1 {
            return self.workers().map(|worker| worker.asleep).sum::<f64>() / workers as f64;
        }
        (self.per_second(self.before.asleep(), self.after.asleep()) / 1e9).min(1.0)
    }

    /// The share of breaths without any packet, from 0 to 1; `None` if there were no breaths.
    pub fn idle_breaths(&self) -> Option<f64> {
        let breaths = self.engine("breaths");
        (breaths > 0.0).then(|| (self.engine("idle_breaths") / breaths).min(1.0))
    }

    /// The counts of each app: before (if it existed) and after.
    pub fn apps(&self) -> impl Iterator<Item = (Option<&AppCounts>, &AppCounts)> {
        let before = self.apps.iter().map(|at| at.map(|index| &self.before.counters.apps[index]));
        before.zip(&self.after.counters.apps)
    }

    /// The counts of each side of a link between workers: before (if it existed) and after.
    pub fn crossings(&self) -> impl Iterator<Item = (Option<&AppCounts>, &AppCounts)> {
        let before = self.crossings.iter().map(|at| at.map(|index| &self.before.counters.crossings[index]));
        before.zip(&self.after.counters.crossings)
    }

    /// What happened on each worker: its name, its breaths a second, and the share of the time that it slept.
    pub fn workers(&self) -> impl Iterator<Item = WorkerChange<'_>> {
        let counter = |worker: Option<&WorkerCounts>, name: &str| {
            worker.and_then(|worker| worker.counters.get(name).copied()).unwrap_or(0)
        };
        self.after.counters.workers.iter().map(move |after| {
            let mut workers = self.before.counters.workers.iter();
            let before = workers.find(|before| before.name == after.name);
            let grown = |name: &str| counter(Some(after), name).saturating_sub(counter(before, name));
            let silent = |sample: &Sample, worker: Option<&WorkerCounts>| {
                let updated = counter(worker, "updated");
                let age = sample.at.saturating_sub(updated);
                // A worker that had not begun has not slept either.
                if updated > 0 && age > MAX_SILENCE_NS { age } else { 0 }
            };
            let silence = silent(&self.after, Some(after)) as f64 - silent(&self.before, before) as f64;
            let breaths = grown("breaths");
            WorkerChange {
                name: &after.name,
                breaths: breaths as f64 / self.seconds,
                idle_breaths: (breaths > 0).then(|| (grown("idle_breaths") as f64 / breaths as f64).min(1.0)),
                asleep: ((grown("sleep_ns") as f64 + silence) / 1e9 / self.seconds).clamp(0.0, 1.0),
                node: after.node,
                from_other_nodes: grown("from_other_nodes") as f64 / self.seconds,
                apps: &after.apps,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(at: u64, engine: &[(&str, u64)], packets: u64) -> Sample {
        let link =
            LinkCounts { from: "a.o".into(), to: "b.i".into(), packets, bytes: 100 * packets, ..Default::default() };
        let counters = Snapshot {
            engine: engine.iter().map(|(name, value)| (name.to_string(), *value)).collect(),
            links: vec![link],
            ..Snapshot::default()
        };
        Sample { counters, at }
    }

    #[test]
    fn rates_are_growth_by_time() {
        let change = Change::between(sample(0, &[], 10), sample(500_000_000, &[], 1_010));
        assert_eq!(change.busiest_link(), Rate { packets: 2_000.0, bits: 1_600_000.0, dropped: 0.0 });
        let reset = Change::between(sample(0, &[], 10), sample(1, &[], 0));
        assert_eq!(reset.busiest_link(), Rate::default());
    }

    #[test]
    fn a_sleeper_that_has_not_woken_counts_as_asleep() {
        let second = 1_000_000_000;
        let before = sample(10 * second, &[("updated", 9 * second), ("sleep_ns", 5)], 0);
        let sleeping = sample(12 * second, &[("updated", 9 * second), ("sleep_ns", 5)], 0);
        assert_eq!(Change::between(before.clone(), sleeping).asleep(), 1.0);
        let busy = sample(12 * second, &[("updated", 12 * second), ("sleep_ns", 2 * second)], 0);
        assert!((Change::between(before, busy).asleep() - 0.5).abs() < 1e-6);
    }

    #[test]
    fn workers_that_have_begun_meanwhile_slept_only_since() {
        let second = 1_000_000_000;
        let mut after = sample(12 * second, &[], 0);
        let counters = [("updated", 12 * second), ("sleep_ns", second)].map(|(name, count)| (name.to_owned(), count));
        let worker = |name: &str| WorkerCounts {
            name: name.to_owned(),
            counters: counters.clone().into(),
            ..WorkerCounts::default()
        };
        after.counters.workers = vec![worker("main"), worker("disk")];
        let change = Change::between(sample(10 * second, &[], 0), after);
        assert!(change.workers().all(|worker| (worker.asleep - 0.5).abs() < 1e-6));
        assert!((change.asleep() - 0.5).abs() < 1e-6);
    }
}
