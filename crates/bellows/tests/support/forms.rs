//! What commands print as JSON has the form that their reference says. Every command line of a test is compared.

use bellows::forms::{Found, Kind, differences, section};
use serde_json::Value;

/// Fails the test if what a command printed differs from its reference. Notes the keys that it had.
pub fn compare(words: &[&str], stdout: &str, found: &mut Found) {
    if !words.contains(&"--json") {
        return;
    }
    let Some(section) = section(words) else { return };
    let heading = section.heading;
    let kind = section.whole.unwrap_or_else(|| panic!("the reference has nothing in {heading}"));
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
