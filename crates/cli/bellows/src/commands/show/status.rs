//! `bellows show status`: the states that the apps and shared objects of a running network report, of any kind.

use std::collections::HashMap;
use std::fmt::Write;
use std::process::ExitCode;

use bellows_engine::{AppStatus, ObjectStatus};
use bellows_inspect::reports::Subject;
use bellows_inspect::text::sanitize;
use bellows_observe::{AppEntry, Directory};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use super::vhost::{self, Wanted};
use crate::command_error::CommandError;
use crate::terminal;
use crate::text::UNKNOWN;

pub fn execute(named: Option<&str>, word: Option<&str>, json: bool) -> Result<ExitCode, CommandError> {
    let found = vhost::find(named, word, Wanted::ANY)?;
    let runtime_dir = found.observer.runtime_dir();
    let workers = Workers::of(found.observer.directory());
    let text = if json {
        let worker = |app: &AppStatus| workers.of.get(&*app.app).map(|worker| (*worker).to_owned());
        let apps = found.devices.iter().map(|app| ShownApp { app: app.clone(), worker: worker(app) });
        let network = Subject::of(runtime_dir);
        let shown = ShownStatuses { network, apps: apps.collect(), objects: found.objects.clone() };
        format!("{:#}\n", json!(shown))
    } else if found.devices.is_empty() && found.objects.is_empty() {
        format!(
            "no app of `{}` has a status; `bellows show apps` prints the counters of all\n",
            sanitize(&runtime_dir.name())
        )
    } else {
        let apps = found.devices.iter().map(|app| render(&app.app, &workers.kind(app), &app.status));
        let objects = found.objects.iter().map(|object| render(&object.object, &object.kind, &object.status));
        apps.chain(objects).collect::<Vec<_>>().join("\n")
    };
    terminal::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// The statuses of a network.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Shown statuses", extend("includes" = ["Network"]))]
pub struct ShownStatuses {
    #[serde(flatten)]
    network: Subject,
    /// The apps of a running network that have a status, in the order of its file; only one if an app was named.
    apps: Vec<ShownApp>,
    /// The shared objects of the network.
    objects: Vec<ObjectStatus>,
}

/// An app's status with its worker.
#[derive(JsonSchema, Serialize)]
#[schemars(title = "Shown status of an app", extend("includes" = ["App with a status"]))]
pub struct ShownApp {
    #[serde(flatten)]
    app: AppStatus,
    /// Its worker; null if a reload has just removed it.
    worker: Option<String>,
}

/// The worker of each app.
struct Workers<'a> {
    of: HashMap<&'a str, &'a str>,
    are_several: bool,
}

impl Workers<'_> {
    fn of(directory: &Directory) -> Workers<'_> {
        let worker = |app: &AppEntry| directory.workers.get(app.worker).map_or("", |worker| &*worker.name);
        let of = directory.apps.iter().map(|app| (&*app.name, worker(app))).collect();
        Workers { of, are_several: directory.workers.len() > 1 }
    }

    /// The type of an app, and its worker if there are several.
    fn kind(&self, app: &AppStatus) -> String {
        let worker = self.of.get(&*app.app).filter(|_| self.are_several);
        worker.map_or_else(|| app.kind.clone(), |worker| format!("{}, worker {worker}", app.kind))
    }
}

/// The state of an app or object as lines `key: value`, with nested values indented.
fn render(name: &str, kind: &str, status: &Value) -> String {
    let mut text = sanitize(&format!("{name} ({kind}):"));
    write_value(&mut text, status, 1);
    text
}

/// Writes a value after its key: a scalar on the same line, a compound value on lines of its own.
fn write_value(text: &mut String, value: &Value, depth: usize) {
    let indent = "  ".repeat(depth);
    if let Some(line) = in_a_line(value) {
        // Writing to a string cannot fail.
        let _ = writeln!(text, " {line}");
        return;
    }
    text.push('\n');
    match value {
        Value::Object(parts) => {
            for (key, part) in parts {
                text.push_str(&format!("{indent}{}:", sanitize(key)));
                write_value(text, part, depth + 1);
            }
        }
        Value::Array(parts) => {
            for part in parts {
                let mut item = String::new();
                write_value(&mut item, part, depth + 1);
                // The first part of an item follows its dash.
                let _ = write!(text, "{indent}- {}", item.trim_start());
            }
        }
        _ => {}
    }
}

/// A value without nested compound values, on one line.
fn in_a_line(value: &Value) -> Option<String> {
    match value {
        Value::Null => Some(UNKNOWN.to_owned()),
        Value::Bool(value) => Some(if *value { "yes" } else { "no" }.to_owned()),
        Value::Number(number) => Some(number.to_string()),
        Value::String(text) if text.is_empty() => Some(UNKNOWN.to_owned()),
        // A line break would look like another key.
        Value::String(text) => Some(sanitize(text).replace('\n', " ")),
        Value::Array(parts) if parts.is_empty() => Some("none".to_owned()),
        Value::Array(parts) if parts.iter().all(|part| !part.is_array() && !part.is_object()) => {
            Some(parts.iter().filter_map(in_a_line).collect::<Vec<_>>().join(", "))
        }
        Value::Object(parts) if parts.is_empty() => Some("none".to_owned()),
        Value::Array(_) | Value::Object(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rendered(status: Value) -> String {
        render("door", "turnstile", &status)
    }

    #[test]
    fn parts_are_indented_below_their_keys() {
        let status = json!({
            "open": true, "passed": 1234567, "rate": 0.5, "last": null, "name": "", "colours": ["red", "green"], "errors": {},
            "guests": [{ "name": "a", "bags": [1, 2] }, { "name": "b", "bags": [] }],
        });
        let expected = "\
door (turnstile):
  open: yes
  passed: 1234567
  rate: 0.5
  last: –
  name: –
  colours: red, green
  errors: none
  guests:
    - name: a
      bags: 1, 2
    - name: b
      bags: none
";
        assert_eq!(rendered(status), expected);
    }

    #[test]
    fn a_status_may_be_anything() {
        assert_eq!(rendered(json!("asleep")), "door (turnstile): asleep\n");
        assert_eq!(rendered(Value::Null), "door (turnstile): –\n");
        assert_eq!(rendered(json!(["a\u{1b}[2J", "b\nc: d"])), "door (turnstile): a\u{fffd}[2J, b c: d\n");
    }
}
