//! What happened to networks: the events that they keep in files, read once or followed.
//!
//! The files outlive a network, so that its history is there when it has ended. A crash writes no event: a reader
//! deduces it from the process, and the next run of the name writes the same event.

use std::collections::BTreeMap;
use std::path::PathBuf;

use bellows_events::{Crashed, Draft, Effect, Event, EventInfo, EventsMissing, Follower, Item, Missing, rfc3339};
use bellows_observe::{EventFiles, EventStamp, RuntimeDir};
use bellows_sys::clock;
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
                    "network": network, "user": user, "time": rfc3339(now), "id": null, "time_ns": now,
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

/// The history of one network, as far as it has been read.
#[derive(Default)]
struct History {
    stamp: Option<EventStamp>,
    follower: Follower,
    /// The last event, unless a crash was deduced after it.
    last: Option<Event>,
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
        let crashed: Vec<(String, String)> = RuntimeDir::all()
            .into_iter()
            .filter(|runtime_dir| networks::state(runtime_dir) == State::Crashed)
            .map(|runtime_dir| (runtime_dir.name(), runtime_dir.user()))
            .collect();
        let mut news = Vec::new();
        for files in EventFiles::all() {
            if self.names.is_empty() || self.names.iter().any(|name| files.has_name(name)) {
                let history = self.histories.entry(files.place()).or_default();
                let has_crashed = crashed.iter().any(|(name, user)| *name == files.name() && *user == files.user());
                news.extend(history.poll(&files, has_crashed, is_final));
            }
        }
        news.retain(|(time_ns, _)| *time_ns >= self.since_ns);
        // Stable: those of one network stay in order if its clock was set back.
        news.sort_by_key(|(time_ns, _)| *time_ns);
        news.into_iter().map(|(_, news)| news).collect()
    }
}

impl History {
    /// What is new in the files of a network, each with the time of its event.
    fn poll(&mut self, files: &EventFiles, has_crashed: bool, is_final: bool) -> Vec<(u64, News)> {
        let stamp = Some(files.stamp());
        let mut items = Vec::new();
        if stamp != self.stamp || is_final {
            // A file that cannot be read now is read again.
            let Ok(content) = files.read() else { return Vec::new() };
            items = self.follower.read(&content.older, &content.current, is_final);
            self.stamp = stamp;
        }
        let last = items.iter().rev().find_map(|item| match item {
            Item::Event(event) => Some(event.clone()),
            Item::Missing(_) => None,
        });
        self.last = last.or(self.last.take());
        if has_crashed && let Some(last) = self.last.take_if(|last| !EventInfo::ends_run(&last.name)) {
            items.extend(self.crash(&last).map(Item::Event));
        }
        let (network, user) = (files.name(), files.user());
        let mut news: Vec<(u64, News)> = Vec::new();
        // A hole has the time of the event behind it.
        let mut time_ns = u64::MAX;
        for item in items.into_iter().rev() {
            let (network, user) = (network.clone(), user.clone());
            news.push(match item {
                Item::Event(event) => {
                    time_ns = event.time_ns;
                    let time = rfc3339(time_ns);
                    (time_ns, News::Event(Occurrence { network, user, time, event }))
                }
                Item::Missing(missing) => (time_ns, News::Missing { network, user, missing }),
            });
        }
        news.reverse();
        news
    }

    /// The event of a crash, with the number that the next run will give it.
    fn crash(&mut self, last: &Event) -> Option<Event> {
        let draft = crash(last, clock::unix_ns());
        self.follower.foresee().map(|id| Event::new(id, last.pid, draft))
    }
}

/// The event of a run that has not ended, by its last event. The time is in nanoseconds since the Unix epoch.
pub fn crash(last: &Event, time_ns: u64) -> Draft {
    let info = Crashed::INFO;
    let mut fields: Map<String, Value> = [("last_pid".to_owned(), last.pid.into())].into_iter().collect();
    fields.extend(last.text("app").map(|app| ("last_app".to_owned(), app.into())));
    let message = format!("the process {} has ended without ending its run", last.pid);
    Draft { time_ns, level: info.level, name: info.name.to_owned(), message, fields }
}

#[cfg(test)]
mod tests {
    use bellows_events::Level;

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

    #[test]
    fn what_is_missing_is_told_in_words() {
        let missing = |events, damaged_lines| in_words(Missing { events, damaged_lines });
        assert_eq!(missing(1, 0), "missing here: 1 event");
        assert_eq!(missing(2, 3), "missing here: 2 events, 3 lines damaged");
    }
}
