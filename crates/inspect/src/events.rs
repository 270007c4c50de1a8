//! What happened to networks: the events that they keep in files, read once or followed.
//!
//! The files outlive a network, so that its history is there when it has ended. A crash writes no event: a reader
//! deduces it from the process, and the next run of the name writes the same event.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use bellows_events::{Content, Crashed, Draft, Effect, Event, EventInfo, EventsMissing, Follower, Item, Missing};
use bellows_observe::{EventFiles, EventStamp, RuntimeDir};
use bellows_sys::{calendar, clock};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::networks::{self, State};
use crate::text::plural;

/// The file of a network's folder that has the conditions of its apps.
pub const CONDITIONS: &str = "conditions";

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
        serde_json::from_slice(&content).unwrap_or_default()
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

/// What a reader of events is told.
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

impl News {
    /// The news as JSON: that of an event, or the event `events-missing`, which has no `id` and no `pid`.
    pub fn to_json(&self) -> Value {
        match self {
            News::Event(occurrence) => json!(occurrence),
            News::Missing { network, user, missing } => {
                let now = clock::unix_ns();
                let fields = json!({ "of": network, "events": missing.events, "damaged_lines": missing.damaged_lines });
                json!({
                    "network": network, "user": user, "time": calendar::with_microseconds(now), "id": null, "time_ns": now,
                    "level": EventsMissing::INFO.level.name(), "event": EventsMissing::INFO.name,
                    "message": in_words(*missing), "pid": null, "fields": fields,
                })
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
    /// The last event, unless a crash was deduced after it.
    last: Option<LastEvent>,
    /// When the last event was, in nanoseconds since the Unix epoch.
    last_ns: u64,
}

/// What a crash is deduced from.
struct LastEvent {
    /// Whether the run is over with it.
    ends_run: bool,
    pid: u32,
    app: Option<String>,
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
        let mut news = Vec::new();
        let mut seen = BTreeSet::new();
        for files in EventFiles::all() {
            if self.names.is_empty() || self.names.iter().any(|name| files.has_name(name)) {
                let place = files.place();
                let history = self.histories.entry(place.clone()).or_default();
                seen.insert(place);
                let is_of = |run: &&CrashedRun| run.name == files.name() && run.user == files.user();
                news.extend(history.poll(&files, crashed.iter().find(is_of).map(|run| run.pid), is_final));
            }
        }
        // Other users create and remove files as they like.
        self.histories.retain(|place, _| seen.contains(place));
        news.retain(|(time_ns, _)| *time_ns >= self.since_ns);
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
    /// all events that it has kept. `crashed` is the process of its run if that was found to have crashed.
    pub fn poll(&mut self, files: &[EventFiles], crashed: Option<u32>) -> Vec<(u64, News)> {
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
struct CrashedRun {
    name: String,
    user: String,
    pid: u32,
}

impl CrashedRun {
    /// The run of a folder, if it has crashed.
    fn of(runtime_dir: &RuntimeDir) -> Option<CrashedRun> {
        // In this order: the next run of the name may take the folder over in between, and it lives.
        let pid = runtime_dir.pid()?;
        let has_crashed = networks::state(runtime_dir) == State::Crashed;
        has_crashed.then(|| CrashedRun { name: runtime_dir.name(), user: runtime_dir.user(), pid })
    }
}

impl History {
    /// What is new in the files of a network, each with the time of its event. The process is that of the run, if it
    /// has crashed.
    fn poll(&mut self, files: &EventFiles, crashed: Option<u32>, is_final: bool) -> Vec<(u64, News)> {
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
        self.follow(items, crashed).into_iter().map(news).collect()
    }

    /// Follows what was read. Returns each item with its time, and the event of a crash that follows from them.
    fn follow(&mut self, items: Vec<Item>, crashed: Option<u32>) -> Vec<(u64, Item)> {
        let last = items.iter().rev().find_map(|item| match item {
            Item::Event(event) => Some(event),
            Item::Missing(_) => None,
        });
        if let Some(last) = last {
            let (ends_run, pid) = (EventInfo::ends_run(&last.name), last.pid);
            self.last = Some(LastEvent { ends_run, pid, app: last.text("app").map(str::to_owned) });
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
        let is_of_crash = |last: &mut LastEvent| crashed == Some(last.pid) && !last.ends_run;
        if let Some(last) = self.last.take_if(is_of_crash)
            && let Some(id) = self.follower.foresee()
        {
            // The number is that which the next run will give it.
            let event = Event::new(id, last.pid, crash(&last, clock::unix_ns()));
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

/// The event of a run that has not ended. The time is in nanoseconds since the Unix epoch.
fn crash(last: &LastEvent, time_ns: u64) -> Draft {
    let info = Crashed::INFO;
    let mut fields: Map<String, Value> = [("last_pid".to_owned(), last.pid.into())].into_iter().collect();
    fields.extend(last.app.as_deref().map(|app| ("last_app".to_owned(), app.into())));
    let message = format!("the process {} has ended without ending its run", last.pid);
    Draft { time_ns, level: info.level, name: info.name.to_owned(), message, fields }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::fs;

    use bellows_events::{Id, Level, Part, Writer};

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

    /// What follows from the present lines of a file: the names and processes of events, and `-` for a hole.
    fn followed(history: &mut History, lines: &[Vec<u8>], crashed: Option<u32>, is_final: bool) -> Vec<(u64, String)> {
        let items = history.follower.read(&[], &lines.concat(), is_final);
        let text = |item: Item| match item {
            Item::Event(event) => {
                format!("{} {}", event.name, event.fields.get("last_pid").unwrap_or(&event.pid.into()))
            }
            Item::Missing(_) => "-".to_owned(),
        };
        history.follow(items, crashed).into_iter().map(|(time_ns, item)| (time_ns, text(item))).collect()
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
        let (mut writer, _) = Writer::open(files.path(Part::Current), files.path(Part::Older), 1_000_000).unwrap();
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
