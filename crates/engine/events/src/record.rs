//! An event as a line of a file.

use std::fmt;
use std::str::FromStr;

use bellows_sys::text::{cut, is_hidden, sanitize};
use schemars::JsonSchema;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

/// The maximum length of a line with its line feed, in bytes.
pub const MAX_LINE: usize = 16 << 10;

/// The maximum length of a message in bytes; the rest of a longer one is cut off.
const MAX_MESSAGE: usize = 4 << 10;

/// The maximum length of a text in a field in bytes; the rest of a longer one is cut off.
const MAX_TEXT: usize = 512;

/// The maximum length of the name of an event or a field, in bytes.
const MAX_NAME: usize = 64;

/// The level of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Something is lost or does not work.
    Error,
    /// Something needs attention.
    Warn,
    /// Something has happened as it should.
    Info,
}

impl Level {
    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Level::Error => "error",
            Level::Warn => "warn",
            Level::Info => "info",
        }
    }
}

/// What distinguishes an event of a network from all others, also across its runs: `LOG-NUMBER`, with the log in
/// hexadecimal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Id {
    /// The history: when it was begun, in milliseconds since the Unix epoch.
    pub log: u64,
    /// The number of the event in the history, from 1 on.
    pub number: u64,
}

impl fmt::Display for Id {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:x}-{}", self.log, self.number)
    }
}

/// The text is not an identifier of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoId;

impl fmt::Display for NoId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an event is identified by a hexadecimal number, `-` and a number from 1 on")
    }
}

impl FromStr for Id {
    type Err = NoId;

    fn from_str(text: &str) -> Result<Id, NoId> {
        let (log, number) = text.split_once('-').ok_or(NoId)?;
        let id = Id { log: u64::from_str_radix(log, 16).map_err(|_| NoId)?, number: number.parse().map_err(|_| NoId)? };
        // One event has one identifier: `+1` and `01` are not accepted, and the last number is never reached.
        (id.to_string() == text && (1..u64::MAX).contains(&id.number)).then_some(id).ok_or(NoId)
    }
}

impl Serialize for Id {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Id, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

/// An event that is not in a file yet.
#[derive(Clone, Debug, PartialEq)]
pub struct Draft {
    /// When it happened, in nanoseconds since the Unix epoch.
    pub time_ns: u64,
    /// The level.
    pub level: Level,
    /// The name.
    pub name: String,
    /// The message, for people.
    pub message: String,
    /// The fields that have a value.
    pub fields: Map<String, Value>,
}

/// An event of a network, as a file has it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// The identifier.
    pub id: Id,
    /// When it happened, in nanoseconds since the Unix epoch.
    pub time_ns: u64,
    /// The level.
    pub level: Level,
    /// The name.
    #[serde(rename = "event")]
    pub name: String,
    /// The message, for people.
    pub message: String,
    /// The process that wrote it.
    pub pid: u32,
    /// The fields that have a value.
    pub fields: Map<String, Value>,
}

impl Event {
    /// The event that becomes of a draft. Long texts are cut.
    pub fn new(id: Id, pid: u32, draft: Draft) -> Event {
        let Draft { time_ns, level, name, mut message, mut fields } = draft;
        message = sanitize(&message);
        cut(&mut message, MAX_MESSAGE);
        for value in fields.values_mut() {
            clean(value);
            if let Value::String(text) = value {
                cut(text, MAX_TEXT);
            }
        }
        Event { id, time_ns, level, name, message, pid, fields }
    }

    /// The event as a line with its line feed, at most [`MAX_LINE`] long.
    pub fn line(&self) -> Vec<u8> {
        let mut line = self.json();
        if line.len() >= MAX_LINE {
            // Escapes take up to six bytes each.
            let mut short = Event { fields: Map::new(), ..self.clone() };
            cut(&mut short.message, MAX_LINE / 16);
            line = short.json();
        }
        line.push(b'\n');
        line
    }

    fn json(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// The event of a line without its line feed; `None` if it is damaged. Another user may have written the line: its
    /// names are names, and its texts are harmless for a terminal.
    pub fn of_line(line: &[u8]) -> Option<Event> {
        if line.len() >= MAX_LINE {
            return None;
        }
        let mut event: Event = serde_json::from_slice(line).ok()?;
        event.message = sanitize(&event.message);
        event.fields.values_mut().for_each(clean);
        let has_names = is_name(&event.name) && event.fields.keys().all(|name| is_name(name));
        has_names.then_some(event)
    }

    /// The text of a field.
    pub fn text(&self, field: &str) -> Option<&str> {
        self.fields.get(field).and_then(Value::as_str)
    }
}

/// Makes all texts of a value harmless for a terminal: hidden characters except line feeds and tabs become `�`.
pub fn clean(value: &mut Value) {
    let clean_text = |text: &mut String| {
        if text.contains(is_hidden) {
            *text = sanitize(text);
        }
    };
    match value {
        Value::String(text) => clean_text(text),
        Value::Array(parts) => parts.iter_mut().for_each(clean),
        Value::Object(parts) => {
            if parts.keys().any(|key| key.contains(is_hidden)) {
                *parts = std::mem::take(parts).into_iter().map(|(key, part)| (sanitize(&key), part)).collect();
            }
            parts.values_mut().for_each(clean);
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Whether an event, or a field of one, can have this name.
fn is_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'_';
    (1..=MAX_NAME).contains(&name.len()) && name.bytes().all(fits)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    proptest! {
        #[test]
        fn a_line_gives_the_event_back(
            log: u64, number in 1..u64::MAX, time_ns: u64, name in "[a-z0-9-]{1,64}", message: String, text: String,
            pid: u32,
        ) {
            let fields = Map::from_iter([("app".to_owned(), Value::from(text)), ("peer".to_owned(), Value::from(pid))]);
            let draft = Draft { time_ns, level: Level::Warn, name, message, fields };
            let event = Event::new(Id { log, number }, pid, draft);
            let line = event.line();
            prop_assert_eq!(line.iter().filter(|&&byte| byte == b'\n').count(), 1);
            prop_assert_eq!(Event::of_line(&line[..line.len() - 1]), Some(event));
        }

        #[test]
        fn a_line_is_never_too_long(letter: char, length in 0..20_000_usize, fields in 0..8_usize) {
            let text: String = std::iter::repeat_n(letter, length).collect();
            let fields = (0..fields).map(|number| (number.to_string(), Value::from(text.clone()))).collect();
            let draft = Draft { time_ns: 0, level: Level::Info, name: "odd".to_owned(), message: text, fields };
            let line = Event::new(Id { log: 1, number: 1 }, 1, draft).line();
            prop_assert!(line.len() <= MAX_LINE);
            prop_assert!(Event::of_line(&line[..line.len() - 1]).is_some());
        }

        #[test]
        fn any_bytes_are_a_line_or_not(bytes: Vec<u8>) {
            let _ = Event::of_line(&bytes);
        }

        /// Whoever has written it.
        #[test]
        fn an_event_has_names_and_harmless_texts(name: String, text: String, key: String) {
            let fields = json!({ "app": text, "of": [{ key.clone(): text }] });
            let line = json!({ "id": "1-1", "time_ns": 1, "level": "info", "event": name, "message": text, "pid": 1,
                "fields": fields });
            let event = Event::of_line(line.to_string().as_bytes());
            prop_assert_eq!(event.is_some(), is_name(&name));
            let mut odd = line.clone();
            odd["event"] = json!("odd");
            let event = Event::of_line(odd.to_string().as_bytes()).unwrap();
            let is_harmless = |text: &str| !text.contains(|c: char| is_hidden(c) && c != '\n' && c != '\t');
            let texts = [event.message.clone(), event.text("app").unwrap().to_owned()];
            prop_assert!(texts.iter().all(|text| is_harmless(text)), "{event:?}");
            let inner = event.fields["of"][0].as_object().unwrap();
            prop_assert!(inner.iter().all(|(key, value)| is_harmless(key) && is_harmless(value.as_str().unwrap())));
            odd["fields"] = json!({ key.clone(): 1 });
            prop_assert_eq!(Event::of_line(odd.to_string().as_bytes()).is_some(), is_name(&key));
        }

        #[test]
        fn an_identifier_has_one_spelling(text in "[0-9a-fA-F+]{0,3}-[0-9+]{0,3}") {
            if let Ok(id) = text.parse::<Id>() {
                prop_assert_eq!(id.to_string(), text);
            }
        }
    }
}
