//! What happened to networks: the events that they keep in files, read once or followed.
//!
//! The files outlive a network, so that its history is there when it has ended. A crash writes no event: a reader
//! deduces it from the process, and the next run of the name, or whoever removes the run's folder, writes the same event.
//! Its time is that at which the run was last seen, by its last event and its counters, so that all agree on it.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use bellows_events::{
    Content, ContentFile, Crashed, Draft, Effect, Event, EventInfo, EventsMissing, Follower, Item, Level, Missing,
    Writer,
};
use bellows_observe::{EventFiles, EventStamp, Observer, RuntimeDir};
use bellows_sys::text::{cut, one_line};
use bellows_sys::{calendar, clock};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::networks::{self, State};
use crate::text::{foreign_json, plural};

/// The file of a network's folder that has the conditions of its apps.
pub const CONDITIONS: &str = "conditions";

/// The most conditions that are read of a network, and the lengths of their texts in bytes: another user may have written
/// them.
const MAX_CONDITIONS: usize = 1_000;
const MAX_LABEL: usize = 512;
const MAX_MESSAGE: usize = 4 << 10;

/// A condition of an app that makes its network degraded: an event has begun it, and no other has ended it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Condition {
    /// The name: that of the event.
    pub condition: String,
    /// The app.
    pub app: String,
    /// The port of the app, if it is one of a port.
    #[serde(default)]
    pub port: Option<String>,
    /// When it began, in nanoseconds since the Unix epoch.
    pub since_ns: u64,
    /// When its last event was, in nanoseconds since the Unix epoch.
    pub last_ns: u64,
    /// The message of the event.
    pub message: String,
}

impl Condition {
    /// Whether this is about the same as an event that begins or ends the condition.
    fn is_of(&self, name: &str, event: &Draft) -> bool {
        let text = |field: &str| event.fields.get(field).and_then(Value::as_str);
        self.condition == name && text("app") == Some(self.app.as_str()) && text("port") == self.port.as_deref()
    }

    /// Changes the conditions of a network by an event. Returns whether any has changed.
    pub fn follow(conditions: &mut Vec<Condition>, event: &Draft) -> bool {
        let effect = EventInfo::named(&event.name).and_then(|info| info.effect);
        let text = |field: &str| event.fields.get(field).and_then(Value::as_str).map(str::to_owned);
        match (effect, text("app")) {
            (Some(Effect::Raises(name)), Some(app)) => {
                let message = event.message.clone();
                match conditions.iter_mut().find(|condition| condition.is_of(name, event)) {
                    Some(condition) => (condition.message, condition.last_ns) = (message, event.time_ns),
                    None => conditions.push(Condition {
                        condition: name.to_owned(),
                        app,
                        port: text("port"),
                        since_ns: event.time_ns,
                        last_ns: event.time_ns,
                        message,
                    }),
                }
                true
            }
            (Some(Effect::Clears(name)), _) => {
                let before = conditions.len();
                conditions.retain(|condition| !condition.is_of(name, event));
                conditions.len() < before
            }
            _ => false,
        }
    }

    /// Removes the conditions of apps that a reload has started anew. Those with an event since the reload began, at
    /// this time, are of the new apps. Returns whether there were any.
    pub fn forget(conditions: &mut Vec<Condition>, restarted: &[String], began_ns: u64) -> bool {
        let before = conditions.len();
        conditions.retain(|condition| condition.last_ns >= began_ns || !restarted.contains(&condition.app));
        conditions.len() < before
    }

    /// The conditions of a network, as its process has last written them. None if they cannot be read.
    pub fn of(runtime_dir: &RuntimeDir) -> Vec<Condition> {
        let content = runtime_dir.read(CONDITIONS).unwrap_or_default();
        let mut conditions: Vec<Condition> = foreign_json(&content).unwrap_or_default();
        conditions.truncate(MAX_CONDITIONS);
        for Condition { condition, app, port, message, .. } in &mut conditions {
            let texts = [condition, app].into_iter().chain(port).map(|text| (text, MAX_LABEL));
            for (text, most) in texts.chain([(message, MAX_MESSAGE)]) {
                *text = one_line(&text.replace('\n', " "));
                cut(text, most);
            }
        }
        conditions
    }
}

/// An event of a network.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Occurrence {
    /// The network's name, as commands accept it.
    pub network: String,
    /// The name of its user.
    pub user: String,
    /// The time by RFC 3339, in UTC.
    pub time: String,
    /// The event.
    #[serde(flatten)]
    pub event: Event,
}

/// What a reader of events gets.
#[derive(Clone, Debug, PartialEq)]
pub enum News {
    /// An event.
    Event(Occurrence),
    /// Events of a network are missing here.
    Missing {
        /// The network's name.
        network: String,
        /// The name of its user.
        user: String,
        /// What is missing.
        missing: Missing,
    },
}

/// News as a line of JSON.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(title = "Event")]
pub struct NewsLine<'n> {
    /// The name of the network, as commands accept it.
    pub network: &'n str,
    /// Its owner.
    pub user: &'n str,
    /// When it happened, by RFC 3339 in UTC.
    pub time: Cow<'n, str>,
    /// What distinguishes the event from all others of the network, also across its runs: `LOG-NUMBER`. Numbers have no
    /// gaps, except where events are missing; null for `events-missing`, which reports a hole in the history.
    pub id: Option<String>,
    /// The same as `time` in nanoseconds since the Unix epoch.
    pub time_ns: u64,
    /// The level.
    pub level: Level,
    /// Its name, one of [these](operating.md#events).
    pub event: &'n str,
    /// The message, for people; perhaps several lines.
    pub message: Cow<'n, str>,
    /// The process that wrote it, or the one that has crashed; null for `events-missing`.
    pub pid: Option<u32>,
    /// The fields that have a value.
    pub fields: Cow<'n, Map<String, Value>>,
}

impl News {
    /// The news as JSON: that of an event, or the event `events-missing`, which has no `id` and no `pid`.
    pub fn to_json(&self) -> Value {
        json!(self.line())
    }

    fn line(&self) -> NewsLine<'_> {
        match self {
            News::Event(Occurrence { network, user, time, event }) => NewsLine {
                network,
                user,
                time: time.into(),
                id: Some(event.id.to_string()),
                time_ns: event.time_ns,
                level: event.level,
                event: &event.name,
                message: event.message.as_str().into(),
                pid: Some(event.pid),
                fields: Cow::Borrowed(&event.fields),
            },
            News::Missing { network, user, missing } => {
                let now = clock::unix_ns();
                let fields = [
                    ("of".to_owned(), json!(network)),
                    ("events".to_owned(), json!(missing.events)),
                    ("damaged_lines".to_owned(), json!(missing.damaged_lines)),
                ];
                NewsLine {
                    network,
                    user,
                    time: calendar::with_microseconds(now).into(),
                    id: None,
                    time_ns: now,
                    level: EventsMissing::INFO.level,
                    event: EventsMissing::INFO.name,
                    message: in_words(*missing).into(),
                    pid: None,
                    fields: Cow::Owned(fields.into_iter().collect()),
                }
            }
        }
    }
}

/// A hole in a history, in words.
pub fn in_words(missing: Missing) -> String {
    let events = (missing.events > 0).then(|| plural(missing.events, "event"));
    let lines = (missing.damaged_lines > 0).then(|| format!("{} damaged", plural(missing.damaged_lines, "line")));
    let parts: Vec<String> = events.into_iter().chain(lines).collect();
    format!("missing here: {}", parts.join(", "))
}

/// How long to wait for the rest of a line that is being written.
const WRITING: Duration = Duration::from_millis(5);

/// The history of one network, as far as it has been read.
#[derive(Default)]
struct History {
    stamp: Option<EventStamp>,
    follower: Follower,
    /// The last event, unless it ends its run or a crash was deduced after it.
    last: Option<LastEvent>,
    /// When the last event was, in nanoseconds since the Unix epoch.
    last_ns: u64,
}

/// The last event of a run that it does not end: what a crash is deduced from.
struct LastEvent {
    pid: u32,
    app: Option<String>,
    time_ns: u64,
}

impl LastEvent {
    /// `None` if the event ends its run.
    fn of(event: &Event) -> Option<LastEvent> {
        let Event { pid, time_ns, .. } = *event;
        (!event.ends_run()).then(|| LastEvent { pid, app: event.text("app").map(str::to_owned), time_ns })
    }

    /// The crash of its run, whose engine was last seen at this time, in nanoseconds since the Unix epoch.
    fn crash(&self, seen_ns: u64) -> Draft {
        let LastEvent { pid, app, time_ns } = self;
        let mut fields: Map<String, Value> = [("last_pid".to_owned(), (*pid).into())].into_iter().collect();
        fields.extend(app.as_deref().map(|app| ("last_app".to_owned(), app.into())));
        let message = format!("the process {pid} has ended without ending its run");
        let EventInfo { level, name, .. } = Crashed::INFO;
        Draft { time_ns: seen_ns.max(*time_ns), level, name: name.to_owned(), message, fields }
    }
}

/// The crash of the last run of a name, by its last event; `None` if that ends it. For the next run, which has the
/// name.
pub fn crash_before(runtime_dir: &RuntimeDir, last: &Event) -> Option<Draft> {
    let last = LastEvent::of(last)?;
    let name = runtime_dir.bare_name();
    let is_of_name = |run: &RuntimeDir| run.bare_name().split('@').next() == Some(&name) && !run.is_foreign();
    // The newest first.
    let run = RuntimeDir::post_mortems().into_iter().find(|run| is_of_name(run) && run.pid() == Some(last.pid));
    Some(last.crash(run.map_or(0, |run| last_seen(&run))))
}

/// Writes that a run has crashed into the history of its network, before its folder is removed. Nothing if it has not,
/// or has no history. No run may take its name meanwhile.
///
/// # Errors
/// Those of reading and writing the history.
pub fn keep_crash(runtime_dir: &RuntimeDir) -> io::Result<()> {
    let Some(run) = CrashedRun::of(runtime_dir) else { return Ok(()) };
    let files = runtime_dir.event_files().map_err(io::Error::other)?;
    if files.stamp() == EventStamp::default() {
        return Ok(());
    }
    let (mut writer, last) =
        Writer::open(files.path(ContentFile::Current), files.path(ContentFile::Older), clock::unix_ns())?;
    let last = last.as_ref().and_then(LastEvent::of).filter(|last| last.pid == run.pid);
    if let (Some(last), Some(seen_ns)) = (last, run.last_seen()) {
        writer.write_for(last.pid, last.crash(seen_ns))?;
    }
    Ok(())
}

/// Follows the events of networks. Those that appear later are followed, too.
#[derive(Default)]
pub struct EventWatch {
    names: Vec<String>,
    since_ns: u64,
    histories: BTreeMap<PathBuf, History>,
}

impl EventWatch {
    /// Follows the networks of these names, or all if there are none, from a time on, in nanoseconds since the Unix
    /// epoch.
    pub fn new(names: Vec<String>, since_ns: u64) -> EventWatch {
        EventWatch { names, since_ns, histories: BTreeMap::new() }
    }

    /// The names that no network has or had whose events are kept.
    pub fn unknown(&self) -> Vec<&str> {
        let (files, runs) = (EventFiles::all(), RuntimeDir::all());
        let is_known = |name: &str| {
            files.iter().any(|files| files.has_name(name)) || runs.iter().any(|runtime_dir| runtime_dir.has_name(name))
        };
        self.names.iter().map(String::as_str).filter(|name| !is_known(name)).collect()
    }

    /// What is new, in the order of time. With `is_final`, a line that is incomplete counts as damaged.
    pub fn poll(&mut self, is_final: bool) -> Vec<News> {
        // Before the files are read: a process that has ended writes nothing any more.
        let crashed: Vec<CrashedRun> = RuntimeDir::all().iter().filter_map(CrashedRun::of).collect();
        let mut news: Vec<(u64, News)> = Vec::new();
        let mut seen = BTreeSet::new();
        for files in EventFiles::all() {
            if self.names.is_empty() || self.names.iter().any(|name| files.has_name(name)) {
                let place = files.place();
                let history = self.histories.entry(place.clone()).or_default();
                seen.insert(place);
                // What comes later has happened since then, even a crash of a process that was last seen before.
                let is_read = history.stamp.is_some();
                let found = history.poll(&files, crashed.iter().find(|run| run.is_of(&files)), is_final);
                news.extend(found.into_iter().filter(|(time_ns, _)| is_read || *time_ns >= self.since_ns));
            }
        }
        // Other users create and remove files as they like.
        self.histories.retain(|place, _| seen.contains(place));
        // Stable: those of one network stay in order if its clock was set back.
        news.sort_by_key(|(time_ns, _)| *time_ns);
        news.into_iter().map(|(_, news)| news).collect()
    }
}

/// Follows the events of one network.
#[derive(Default)]
pub struct NetworkEvents {
    histories: BTreeMap<PathBuf, History>,
}

impl NetworkEvents {
    /// What is new in the network's files, with the time of each in nanoseconds since the Unix epoch: at the first call
    /// all events that it has kept. `crashed` is its run if that was found to have crashed.
    pub fn poll(&mut self, files: &[EventFiles], crashed: Option<&CrashedRun>) -> Vec<(u64, News)> {
        let mut news = Vec::new();
        for files in files {
            news.extend(self.histories.entry(files.place()).or_default().poll(files, crashed, false));
        }
        self.histories.retain(|place, _| files.iter().any(|files| files.place() == *place));
        news.sort_by_key(|(time_ns, _)| *time_ns);
        news
    }
}

/// A run whose process has ended without ending it.
#[derive(Debug)]
pub struct CrashedRun {
    runtime_dir: RuntimeDir,
    pid: u32,
}

impl CrashedRun {
    /// The run of a folder, if it has crashed.
    pub fn of(runtime_dir: &RuntimeDir) -> Option<CrashedRun> {
        // In this order: the next run of the name may take the folder over in between, and it lives.
        let pid = runtime_dir.pid()?;
        let has_crashed = networks::state(runtime_dir) == State::Crashed;
        has_crashed.then(|| CrashedRun { runtime_dir: runtime_dir.for_reading(), pid })
    }

    fn is_of(&self, files: &EventFiles) -> bool {
        self.runtime_dir.name() == files.name() && self.runtime_dir.user() == files.user()
    }

    /// When its engine was last seen; see [`last_seen`]. `None` if the next run has taken over the folder meanwhile.
    fn last_seen(&self) -> Option<u64> {
        let seen_ns = last_seen(&self.runtime_dir);
        (self.runtime_dir.pid() == Some(self.pid)).then_some(seen_ns)
    }
}

/// When the engine of a folder was last seen by its counters, in nanoseconds since the Unix epoch; 0 if it has none.
fn last_seen(runtime_dir: &RuntimeDir) -> u64 {
    const TIMES: [&str; 2] = ["alive", "updated"];
    let Ok(mut observer) = Observer::open(runtime_dir.for_reading()) else { return 0 };
    let counters = observer.snapshot();
    let of_workers = counters.workers.iter().flat_map(|worker| TIMES.map(|name| worker.counters.get(name).copied()));
    of_workers.flatten().chain(TIMES.map(|name| counters.engine(name))).max().unwrap_or(0)
}

impl History {
    /// What is new in the files of a network, each with the time of its event. The run is that of the network if it
    /// has crashed.
    fn poll(&mut self, files: &EventFiles, crashed: Option<&CrashedRun>, is_final: bool) -> Vec<(u64, News)> {
        let stamp = Some(files.stamp());
        let mut items = Vec::new();
        if stamp != self.stamp || is_final {
            let content = if is_final { read_lines(|| files.read()) } else { files.read() };
            // A file that cannot be read now is read again.
            let Ok(content) = content else { return Vec::new() };
            items = self.follower.read(&content.older, &content.current, is_final);
            self.stamp = stamp;
        }
        let (network, user) = (files.name(), files.user());
        let news = |(time_ns, item): (u64, Item)| {
            let (network, user) = (network.clone(), user.clone());
            let news = match item {
                Item::Event(event) => {
                    News::Event(Occurrence { network, user, time: calendar::with_microseconds(time_ns), event })
                }
                Item::Missing(missing) => News::Missing { network, user, missing },
            };
            (time_ns, news)
        };
        let (pid, last_seen) = (crashed.map(|run| run.pid), || crashed?.last_seen());
        self.follow(items, pid, last_seen).into_iter().map(news).collect()
    }

    /// Follows what was read. Returns each item with its time, and the event of a crash that follows from them: of the
    /// process that has crashed, if one has, which was last seen at a time that is asked for only then.
    fn follow(
        &mut self,
        items: Vec<Item>,
        crashed: Option<u32>,
        last_seen: impl FnOnce() -> Option<u64>,
    ) -> Vec<(u64, Item)> {
        let last = items.iter().rev().find_map(|item| match item {
            Item::Event(event) => Some(event),
            Item::Missing(_) => None,
        });
        if let Some(last) = last {
            self.last = LastEvent::of(last);
            self.last_ns = last.time_ns;
        }
        // A hole has the time of the event behind it, or of that before it if it is at the end.
        let mut time_ns = self.last_ns;
        let mut timed: Vec<(u64, Item)> = Vec::with_capacity(items.len() + 1);
        for item in items.into_iter().rev() {
            if let Item::Event(event) = &item {
                time_ns = event.time_ns;
            }
            timed.push((time_ns, item));
        }
        timed.reverse();
        // If the last event is of another process, it is of the next run.
        if self.last.as_ref().is_some_and(|last| crashed == Some(last.pid))
            && let Some(seen_ns) = last_seen()
            && let Some(last) = self.last.take()
            && let Some(id) = self.follower.foresee()
        {
            // The number is that which the next run will give it.
            let event = Event::new(id, last.pid, last.crash(seen_ns));
            timed.push((event.time_ns, Item::Event(event)));
        }
        timed
    }
}

/// Reads files. If the last line has no end, reads them once more: its writer may have been about to complete it.
fn read_lines(read: impl Fn() -> io::Result<Content>) -> io::Result<Content> {
    let content = read()?;
    if content.current.last().is_none_or(|&byte| byte == b'\n') {
        return Ok(content);
    }
    thread::sleep(WRITING);
    Ok(read().unwrap_or(content))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::fs;

    use bellows_events::{Id, Level};

    use super::*;

    fn event(name: &str, app: &str, port: &str, time_ns: u64) -> Draft {
        let fields = [("app", app), ("port", port)].map(|(field, text)| (field.to_owned(), Value::from(text)));
        let message = format!("{name} of {app}");
        Draft { time_ns, level: Level::Info, name: name.to_owned(), message, fields: Map::from_iter(fields) }
    }

    #[test]
    fn a_condition_lasts_from_its_first_event_to_the_one_that_ends_it() {
        let mut conditions = Vec::new();
        assert!(Condition::follow(&mut conditions, &event("link-down", "left", "eth0", 1)));
        assert!(Condition::follow(&mut conditions, &event("link-down", "right", "eth1", 2)));
        assert!(Condition::follow(&mut conditions, &event("link-down", "left", "eth0", 3)));
        assert_eq!(conditions.iter().map(|condition| condition.since_ns).collect::<Vec<_>>(), [1, 2]);
        assert!(!Condition::follow(&mut conditions, &event("link-up", "left", "eth7", 4)));
        assert!(!Condition::follow(&mut conditions, &event("app-recovered", "left", "eth0", 4)));
        assert!(!Condition::follow(&mut conditions, &event("peer-connected", "left", "eth0", 4)));
        let left = || vec!["left".to_owned()];
        assert!(!Condition::forget(&mut conditions, &left(), 3));
        assert!(Condition::forget(&mut conditions.clone(), &left(), 4));
        assert!(Condition::follow(&mut conditions, &event("link-up", "left", "eth0", 5)));
        assert_eq!(conditions.iter().map(|condition| &*condition.app).collect::<Vec<_>>(), ["right"]);
    }

    /// The line of an event.
    fn line(number: u64, name: &str, pid: u32, time_ns: u64) -> Vec<u8> {
        Event::new(Id { log: 1, number }, pid, event(name, "left", "eth0", time_ns)).line()
    }

    /// When the process that has crashed was last seen.
    const SEEN_NS: u64 = 20;

    /// What follows from the present lines of a file: the names and processes of events, and `-` for a hole.
    fn followed(history: &mut History, lines: &[Vec<u8>], crashed: Option<u32>, is_final: bool) -> Vec<(u64, String)> {
        let items = history.follower.read(&[], &lines.concat(), is_final);
        let text = |item: Item| match item {
            Item::Event(event) => {
                format!("{} {}", event.name, event.fields.get("last_pid").unwrap_or(&event.pid.into()))
            }
            Item::Missing(_) => "-".to_owned(),
        };
        let followed = history.follow(items, crashed, || Some(SEEN_NS)).into_iter();
        followed.map(|(time_ns, item)| (time_ns, text(item))).collect()
    }

    fn names(followed: Vec<(u64, String)>) -> Vec<String> {
        followed.into_iter().map(|(_, name)| name).collect()
    }

    /// The next run of the name has begun between the look at the process and the look at the files.
    #[test]
    fn a_crash_is_deduced_of_the_process_that_has_ended_alone() {
        let mut history = History::default();
        let mut lines = vec![line(1, "started", 7, 1)];
        assert_eq!(names(followed(&mut history, &lines, None, false)), ["started 7"]);
        lines.extend([line(2, "crashed", 8, 2), line(3, "started", 8, 3)]);
        assert_eq!(names(followed(&mut history, &lines, Some(7), false)), ["crashed 8", "started 8"]);
        // No number is skipped for an event that does not come.
        lines.push(line(4, "link-down", 8, 4));
        assert_eq!(names(followed(&mut history, &lines, None, false)), ["link-down 8"]);
        assert_eq!(names(followed(&mut history, &lines, Some(8), false)), ["crashed 8"]);
        assert_eq!(followed(&mut history, &lines, Some(8), false), []);
        // A run that has ended its history leaves its folder for a moment.
        lines.extend([line(5, "crashed", 9, 5), line(6, "started", 9, 6), line(7, "stopped", 9, 7)]);
        assert_eq!(names(followed(&mut history, &lines, Some(9), false)), ["started 9", "stopped 9"]);
        // A run that crashes at once has written that the one before has crashed.
        lines.extend([line(8, "started", 10, 8), line(9, "crashed", 11, 9)]);
        assert_eq!(names(followed(&mut history, &lines, Some(11), false)), ["started 10", "crashed 11", "crashed 11"]);
    }

    #[test]
    fn a_crash_has_the_time_at_which_its_run_was_last_seen() {
        for (last_ns, crash_ns) in [(1, SEEN_NS), (SEEN_NS + 5, SEEN_NS + 5)] {
            let lines = [line(1, "started", 7, last_ns)];
            let expected = [(last_ns, "started 7"), (crash_ns, "crashed 7")];
            let expected = expected.map(|(time_ns, text)| (time_ns, text.to_owned()));
            assert_eq!(followed(&mut History::default(), &lines, Some(7), true), expected);
        }
        // The next run has taken the folder over, and will write it.
        let mut history = History::default();
        let items = history.follower.read(&[], &line(1, "started", 7, 1), true);
        assert_eq!(history.follow(items, Some(7), || None).len(), 1);
    }

    /// The event that was written when the folder was about to be removed has the number of the process that has ended.
    #[test]
    fn a_crash_that_is_written_is_not_deduced_again() {
        let last = LastEvent { pid: 7, app: None, time_ns: 1 };
        let crashed = |pid: u32| Event::new(Id { log: 1, number: 2 }, pid, last.crash(5)).line();
        for (writer, expected) in [(7, &["started 7", "crashed 7"][..]), (8, &["started 7", "crashed 7", "crashed 8"])]
        {
            let lines = [line(1, "started", 7, 1), crashed(writer)];
            assert_eq!(names(followed(&mut History::default(), &lines, Some(writer), true)), expected);
        }
    }

    #[test]
    fn holes_have_the_time_of_an_event_beside_them() {
        let lines = [line(1, "started", 7, 10), line(3, "link-up", 7, 30), b"{\"id".to_vec()];
        let expected = [(10, "started 7"), (30, "-"), (30, "link-up 7"), (30, "-")];
        let expected = expected.map(|(time_ns, text)| (time_ns, text.to_owned()));
        assert_eq!(followed(&mut History::default(), &lines, None, true), expected);
    }

    #[test]
    fn a_line_that_is_being_written_is_read_once_more() {
        let reads = Cell::new(0);
        let read = |lines: &[&str]| {
            reads.set(0);
            let read = || {
                reads.set(reads.get() + 1);
                let current = lines[lines.len().min(reads.get()) - 1].as_bytes().to_vec();
                Ok(Content { older: Vec::new(), current })
            };
            let content = read_lines(read).unwrap();
            (String::from_utf8(content.current).unwrap(), reads.get())
        };
        assert_eq!(read(&["", "not"]), (String::new(), 1));
        assert_eq!(read(&["one\n", "not"]), ("one\n".to_owned(), 1));
        assert_eq!(read(&["one\ntw", "one\ntwo\n", "not"]), ("one\ntwo\n".to_owned(), 2));
        assert_eq!(read(&["one\ntw"]), ("one\ntw".to_owned(), 2));
    }

    #[test]
    fn files_that_are_gone_are_forgotten() {
        let runtime_dir = RuntimeDir::claim(&format!("test-events-{}", std::process::id())).unwrap();
        let files = runtime_dir.event_files().unwrap();
        let (mut writer, _) =
            Writer::open(files.path(ContentFile::Current), files.path(ContentFile::Older), 1_000_000).unwrap();
        writer.write(event("started", "left", "eth0", 1)).unwrap();
        let mut watch = EventWatch::new(vec![runtime_dir.name()], 0);
        assert_eq!((watch.poll(false).len(), watch.poll(false).len(), watch.histories.len()), (1, 0, 1));
        let (mut of_one, all) = (NetworkEvents::default(), [files.clone()]);
        let times = |news: Vec<(u64, News)>| news.into_iter().map(|(time_ns, _)| time_ns).collect::<Vec<_>>();
        assert_eq!(
            [&all[..], &all, &[], &all].map(|files| times(of_one.poll(files, None))),
            [vec![1], vec![], vec![], vec![1]]
        );
        fs::remove_file(files.place()).unwrap();
        assert_eq!((watch.poll(false), watch.histories.len()), (Vec::new(), 0));
        runtime_dir.remove().unwrap();
    }

    #[test]
    fn what_is_missing_is_told_in_words() {
        let missing = |events, damaged_lines| in_words(Missing { events, damaged_lines });
        assert_eq!(missing(1, 0), "missing here: 1 event");
        assert_eq!(missing(2, 3), "missing here: 2 events, 3 lines damaged");
    }
}
