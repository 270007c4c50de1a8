//! What commands print as JSON has the form that their reference says. Every command line of a test is compared.

use bellows::forms::{Found, Kind, SECTIONS, differences};
use serde_json::Value;

/// The parts of `show` whose JSON is described by hand.
const BY_HAND: [&str; 7] = ["vhost", "status", "breath", "hot", "fib", "neighbours", "mac"];

/// The heading of the section about a command line; `None` if the reference has none.
fn heading(words: &[&str]) -> Option<String> {
    let has = |option: &str| words.contains(&option);
    if !has("--json") {
        return None;
    }
    let command = match *words {
        ["ps", ..] if has("--probe") => "ps --probe".to_owned(),
        ["events", ..] if has("--list") => "events --list".to_owned(),
        ["campaign", "status", ..] if has("--queue") => return None,
        ["campaign", action @ ("run" | "status"), ..] => format!("campaign {action}"),
        ["bench" | "appbench" | "breathsim", ..] => return Some("Reports of benchmarks".to_owned()),
        ["show", part, ..] if BY_HAND.contains(&part) => return None,
        ["show", part, ..] if section(&of_command(&format!("show {part}"))).is_some() => format!("show {part}"),
        [command @ ("run" | "check" | "ps" | "events" | "show" | "top" | "reload"), ..] => command.to_owned(),
        _ => return None,
    };
    Some(of_command(&command))
}

fn of_command(command: &str) -> String {
    format!("`bellows {command} --json`")
}

/// What the section of a heading describes.
fn section(heading: &str) -> Option<Kind> {
    SECTIONS.iter().find(|section| section.heading == heading)?.whole
}

/// Fails the test if what a command printed differs from its reference. Notes the keys that it had.
pub fn compare(words: &[&str], stdout: &str, found: &mut Found) {
    let Some(heading) = heading(words) else { return };
    let kind = section(&heading).unwrap_or_else(|| panic!("the reference has no {heading}"));
    for value in serde_json::Deserializer::from_str(stdout).into_iter::<Value>().map_while(Result::ok) {
        // `check` prints a list for several networks.
        let values = match (kind, value) {
            (Kind::Object(_), Value::Array(values)) => values,
            (_, value) => vec![value],
        };
        for value in values {
            let differences = differences(kind, &value, found);
            assert!(differences.is_empty(), "{heading}, in crates/bellows/src/forms: {differences:#?} in {value:#}");
        }
    }
}
