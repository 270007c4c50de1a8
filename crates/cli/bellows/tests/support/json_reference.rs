//! What commands print as JSON has the form that their reference says. Every command line of a test is compared.

use std::sync::LazyLock;

use bellows::json_reference::{Chapter, Found, FoundCases, Section, case_differences, differences, section};
use serde_json::Value;

/// The command line, which knows other names of commands.
static DEFINITION: LazyLock<clap::Command> = LazyLock::new(|| bellows::Command::new("bellows").definition());

/// The section about what a command prints, by any of its names.
fn section_of_command(words: &[&str]) -> Option<&'static Section> {
    let mut words = words.to_vec();
    let command = words.first().and_then(|word| DEFINITION.find_subcommand(word));
    if let (Some(command), Some(first)) = (command, words.first_mut()) {
        *first = command.get_name();
    }
    section(&words)
}

/// Fails the test if what a command printed differs from its reference. Notes the keys that it had.
pub fn compare(words: &[&str], stdout: &str, found: &mut Found) {
    let has = |options: [&str; 2]| options.iter().any(|option| words.contains(option));
    if !has(["--json", "-j"]) || has(["--help", "-h"]) {
        return;
    }
    let command = words.join(" ");
    let values = serde_json::Deserializer::from_str(stdout).into_iter::<Value>();
    for value in values {
        let value = value.unwrap_or_else(|error| panic!("{error} in what `bellows {command}` printed:\n{stdout}"));
        let section = section_of_command(words);
        let section = section.unwrap_or_else(|| panic!("the reference has no section about `bellows {command}`"));
        let heading = section.heading;
        let kind = section.whole.unwrap_or_else(|| panic!("the reference has nothing in {heading}"));
        let mut differences = differences(kind, &value, found);
        if Chapter::Measured.sections().iter().any(|measured| measured.heading == heading) {
            differences.extend(case_differences(&value, &mut FoundCases::new()));
        }
        assert!(
            differences.is_empty(),
            "{heading}, in crates/cli/bellows/src/json_reference: {differences:#?} in {value:#}"
        );
    }
}

/// The requests that are answered with what a command prints, and its words.
const AS_COMMANDS: [(&str, &[&str]); 4] = [
    ("GET /api/counters", &["show"]),
    ("GET /api/costs", &["show", "run"]),
    ("GET /api/latency", &["show", "latency"]),
    ("GET /api/timeline", &["timeline"]),
];

/// The section about the answers to a request such as `GET /api/live?network=NAME`.
fn section_of_answers(request: &str, status: u16) -> &'static Section {
    let request = request.split('?').next().unwrap();
    // `/health` answers in the same way if no packets move.
    let heading = if status == 200 || request.ends_with("/health") { request } else { "bellows web" };
    let of_command = AS_COMMANDS.iter().find(|(known, _)| *known == heading).and_then(|(_, words)| section(words));
    let is_meant = |section: &&Section| section.heading.starts_with(&format!("`{heading}`"));
    let found = of_command.or_else(|| Chapter::Web.sections().iter().find(is_meant));
    found.unwrap_or_else(|| panic!("the reference has no section about `{heading}`"))
}

/// Fails the test if the JSON that a server answered differs from its reference. Notes the keys that it had.
pub fn compare_answer(request: &str, status: u16, body: &[u8], found: &mut Found) {
    let Section { heading, whole, .. } = section_of_answers(request, status);
    let kind = whole.unwrap_or_else(|| panic!("the reference has nothing in {heading}"));
    let value: Value =
        serde_json::from_slice(body).unwrap_or_else(|error| panic!("{error} in the answer to {request}"));
    let differences = differences(kind, &value, found);
    assert!(
        differences.is_empty(),
        "{request}, in crates/cli/bellows/src/json_reference: {differences:#?} in {value:#}"
    );
}
