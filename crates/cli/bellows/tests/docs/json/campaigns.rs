//! Campaigns.

use bellows::json_reference::{Chapter, Found};
use bellows_testkit::programs;

use crate::json::assert_met;
use crate::support::Sandbox;

/// A size without a score, and one that fails.
const SIZES: &str = r#"
name = "sizes"
repeats = 1
command = { shell = "case {size} in 60) echo rate=1.5;; 64) echo;; *) echo broken >&2; exit 3;; esac" }
[factors]
size = ["60", "64", "9000"]
[versions]
shell = { shell = "echo 1" }
[score]
name = "rate"
unit = "Mpps"
pattern = 'rate=(?<rate>[0-9.]+)'
[[hypothesis]]
name = "small packets are faster"
factor = "size"
compare = ["60", "64"]
direction = "greater"
repeats = 8
"#;

/// Two factors, scores with a little scatter, and a run that fails.
const RATES: &str = r#"
name = "rates"
repeats = 5
command = { shell = "[ {size}{version}{block} = 64b1 ] && exit 3; echo rate={size}.$(({block} * 7 % 5))" }
[factors]
size = ["60", "64"]
version = ["a", "b"]
[score]
name = "rate"
unit = "Mpps"
better = "higher"
pattern = 'rate=(?<rate>[0-9.]+)'
[[hypothesis]]
name = "the versions differ"
factor = "version"
compare = ["a", "b"]
direction = "different"
repeats = 8
"#;

const VERSIONS: &str = r#"
name = "versions"
repeats = 3
command = ["{version.program}", "{block}"]
[build]
[factors]
size = ["60", "64"]
[score]
pattern = 'rate=(?<rate>[0-9.]+)'
unit = "Mpps"
better = "higher"
"#;

/// Forms that need a queue, git or a disturbed machine: unit tests compare them as a whole.
const IN_UNIT_TESTS: [&str; 7] = [
    "Campaign in a queue",
    "Queue",
    "Coordinator",
    "Worker of a queue",
    "Run of a campaign",
    "Compared version",
    "Undisturbed pairs",
];

#[test]
fn what_campaigns_report() {
    let sandbox = Sandbox::new();
    let mut found = Found::new();
    let mut print = |words: &[&str]| {
        sandbox.bellows_noting(words, &mut found).success();
    };
    let sizes = sandbox.write("sizes.toml", SIZES);
    print(&["campaign", "register", &sizes, "--json"]);
    print(&["campaign", "run", &sizes, "--json"]);
    print(&["campaign", "status", &sizes, "--json"]);
    let rates = sandbox.write("rates.toml", RATES);
    print(&["campaign", "run", &rates, "--json"]);
    print(&["campaign", "register", &rates, "--json"]);
    print(&["campaign", "test", &rates, "--json"]);
    print(&["campaign", "report", &rates, "--by", "version", "--json"]);
    print(&["campaign", "report", &rates, "--by", "size", "--json"]);
    print(&["campaign", "power", &rates, "--by", "version", "--effect", "5%", "--json"]);
    let program = |name: &str, text: &str| {
        let path = programs::script(sandbox.path(name), &format!("#!/bin/sh\n{text}; echo rate=2.$(($1 * 7 % 5))\n"));
        path.display().to_string()
    };
    let (old, new) = (program("old", ":"), program("new", "[ $1 = 2 ] && exit 1"));
    let versions = sandbox.write("versions.toml", VERSIONS);
    print(&["campaign", "compare", &versions, &old, &new, "--margin", "2%", "--json"]);
    assert_met(Chapter::Campaigns, &found, &IN_UNIT_TESTS, &[]);
}

#[test]
fn tables_of_few_scores_are_reported() {
    let sandbox = Sandbox::new();
    let many = (0..12).map(|level| format!("{level},1.5\n{level},2\n")).collect::<String>();
    for rows in ["", "a,1.5\n", "a,\nb,\n", "a,1\nb,2\n", "a,1\na,1\nb,1\nb,1\n", "a,-1\na,-2\nb,-3\n", &many] {
        let table = sandbox.write("table.csv", &format!("version,score\n{rows}"));
        // The output of a command is compared.
        sandbox.bellows(&["campaign", "report", &table, "--json"]).success();
    }
}
