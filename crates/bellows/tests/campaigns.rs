//! Campaigns from the command line: runs, results, interruptions and hypotheses.

mod support;

use std::fs;
use std::process::Stdio;

use bellows_testkit::eventually;
use serde_json::{Value, json};
use support::{Sandbox, Signal, root, signal};

/// Two sizes, of which the larger one fails, in two blocks; the command takes `sleep` seconds.
fn campaign(sleep: &str) -> String {
    format!(
        r#"
name = "sizes"
repeats = 2
command = {{ shell = "sleep {sleep}; if [ {{size}} = 9000 ]; then echo broken >&2; exit 3; fi; echo rate={{size}}.5" }}
[factors]
size = ["60", "9000"]
[score]
name = "rate"
unit = "Mpps"
pattern = 'rate=(?<rate>[0-9.]+)'
[[hypothesis]]
name = "small packets are faster"
factor = "size"
compare = ["60", "9000"]
direction = "greater"
repeats = 3
"#
    )
}

/// The lines of standard output as JSON.
fn lines(stdout: &str) -> Vec<Value> {
    stdout.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

#[test]
fn each_combination_is_run_once_a_block_and_failures_are_results() {
    let sandbox = Sandbox::new();
    let file = sandbox.write("sizes.toml", &campaign("0"));
    let said = sandbox.bellows(&["campaign", "run", &file]).fine();
    let table = sandbox.path("sizes.results/results.csv");
    assert!(said.stdout.contains("60: 60.5 Mpps") && said.stdout.contains("9000: exit-code: "), "{said:#?}");
    assert!(said.stdout.contains("4 of 4 runs have results, 2 without a score; 4 were made now: "), "{said:#?}");
    assert!(said.stdout.contains(table.to_str().unwrap()), "{said:#?}");
    let text = fs::read_to_string(&table).unwrap();
    assert!(text.starts_with("size,id,score,unit,") && text.lines().count() == 5, "{text}");
    assert_eq!(text.matches("60.5,Mpps").count(), 2, "{text}");
    // Nothing is left to do, unless there are to be more.
    let said = sandbox.bellows(&["campaign", "run", &file]).fine();
    assert!(said.stdout.starts_with("4 of 4 runs have results, 2 without a score; 0 were made now"), "{said:#?}");
    let said = sandbox.bellows(&["campaign", "run", &file, "--repeats", "3", "--json"]).fine();
    let rows = lines(&said.stdout);
    assert!(rows.len() == 2 && rows.iter().all(|row| row["run"].as_str().unwrap().starts_with("3.")), "{said:#?}");
    let status = sandbox.bellows(&["campaign", "status", &file, "--json"]).fine().json();
    assert_eq!(
        [&status["name"], &status["rows"], &status["running"], &status["blocks"], &status["failed"]],
        [&json!("sizes"), &json!(6), &json!(false), &json!({"1": 2, "2": 2, "3": 2}), &json!({"exit-code": 3})]
    );
    let said = sandbox.bellows(&["campaign", "status", &file]).fine().stdout;
    assert!(
        said.starts_with("sizes: 4 of 4 runs\n  2 runs of more blocks than planned\n")
            && said.contains("  3 without a score: exit-code\n"),
        "{said}"
    );
}

#[test]
fn an_interrupted_campaign_goes_on_where_it_was() {
    let sandbox = Sandbox::new();
    let file = sandbox.write("sizes.toml", &campaign("0.2").replace("repeats = 2", "repeats = 400"));
    let mut command = sandbox.command(&["campaign", "run", &file, "--json"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let journal = sandbox.path("sizes.results/results.jsonl");
    let recorded = || fs::read_to_string(&journal).map_or(0, |text| text.lines().count());
    eventually("three runs", || recorded() >= 3);
    let refused = sandbox.bellows(&["campaign", "run", &file]);
    assert!(refused.code == Some(2) && refused.stderr.contains("is in use by another runner"), "{refused:#?}");
    let status = sandbox.bellows(&["campaign", "status", &file, "--json"]).fine().json();
    assert_eq!(status["running"], json!(true));
    signal(&child, Signal::INT);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", String::from_utf8_lossy(&output.stderr));
    let before = recorded();
    assert!(before < 800 && lines(&String::from_utf8(output.stdout).unwrap()).len() == before);
    let quick = sandbox.bellows(&["campaign", "run", &file, "--repeats", "4", "--json"]).fine();
    assert_eq!(lines(&quick.stdout).len(), 8_usize.saturating_sub(before), "{quick:#?}");
}

#[test]
fn mistakes_name_the_place_and_the_way_out() {
    let sandbox = Sandbox::new();
    let file = sandbox.write("sizes.toml", &campaign("0").replace("{size}.5", "{sizes}.5"));
    let said = sandbox.bellows(&["campaign", "run", &file]);
    assert_eq!((said.code, said.stdout.as_str()), (Some(2), ""));
    assert!(said.stderr.contains("sizes.toml:4") && said.stderr.contains("`size`"), "{}", said.stderr);
    let said = sandbox.bellows(&["campaign", "run", "no.toml"]);
    assert!(said.code == Some(2) && said.stderr.contains("no.toml"), "{said:#?}");
    let said = sandbox.bellows(&["campaign", "status", &file]);
    assert!(said.code == Some(2) && said.stderr.contains("has no results of a campaign"), "{said:#?}");
    let said = sandbox.bellows(&["campaign", "status", &file, "--repeats", "2"]);
    assert!(said.code == Some(2) && said.stderr.contains("`--repeats` is for `run`"), "{said:#?}");
    // Another campaign has another folder.
    let file = sandbox.write("sizes.toml", &campaign("0"));
    sandbox.bellows(&["campaign", "run", &file]).fine();
    sandbox.write("sizes.toml", &campaign("0.01"));
    let said = sandbox.bellows(&["campaign", "run", &file]);
    assert!(said.code == Some(2) && said.stderr.contains("which differs in `command`"), "{said:#?}");
    sandbox.bellows(&["campaign", "run", &file, "--results", "other"]).fine();
}

#[test]
fn hypotheses_are_registered_once_and_with_their_time() {
    let sandbox = Sandbox::new();
    let file = sandbox.write("sizes.toml", &campaign("0"));
    sandbox.bellows(&["campaign", "run", &file]).fine();
    let first = sandbox.bellows(&["campaign", "register", &file, "--json"]).fine().json();
    assert_eq!(first.as_array().unwrap().len(), 1);
    assert_eq!([&first[0]["rows"], &first[0]["hypothesis"]["name"]], [&json!(4), &json!("small packets are faster")]);
    assert_eq!(sandbox.bellows(&["campaign", "register", &file, "--json"]).fine().json(), first, "its time stays");
    let said = sandbox.bellows(&["campaign", "register", &file]).fine().stdout;
    assert!(said.contains("after 4 runs, as ") && said.contains(first[0]["hash"].as_str().unwrap()), "{said}");
    let more = sandbox.bellows(&["campaign", "run", &file, "--repeats", "3", "--json"]).fine();
    assert!(lines(&more.stdout).iter().all(|row| row["registered"] == first[0]["hash"]), "{more:#?}");
    let without = campaign("0");
    let without = sandbox.write("without.toml", &without[..without.find("[[hypothesis]]").unwrap()]);
    let said = sandbox.bellows(&["campaign", "register", &without]);
    assert!(said.code == Some(2) && said.stderr.contains("states no hypothesis"), "{said:#?}");
}

#[test]
fn fresh_runs_confirm_what_was_registered() {
    let sandbox = Sandbox::new();
    let file = sandbox.write(
        "rates.toml",
        r#"
name = "rates"
repeats = 2
command = { shell = "block={block}; echo rate={size}.$((block % 3))" }
[factors]
size = ["60", "64"]
[score]
pattern = 'rate=(?<rate>[0-9.]+)'
unit = "Mpps"
[[hypothesis]]
name = "smaller packets are slower"
factor = "size"
compare = ["60", "64"]
direction = "less"
repeats = 8
"#,
    );
    sandbox.bellows(&["campaign", "run", &file]).fine();
    let test = || sandbox.bellows(&["campaign", "test", &file, "--json"]).fine().json()[0].clone();
    assert_eq!([&test()["conclusion"], &test()["runs"]["made_before"]], [&json!("refused"), &json!(4)]);
    sandbox.bellows(&["campaign", "register", &file]).fine();
    let said = sandbox.bellows(&["campaign", "test", &file]).fine().stdout;
    assert!(
        said.starts_with("smaller packets are slower: refused\n") && said.contains("exploration: 60 - 64: -4"),
        "{said}"
    );
    sandbox.bellows(&["campaign", "run", &file, "--repeats", "8"]).fine();
    let verdict = test();
    assert_eq!([&verdict["conclusion"], &verdict["runs"]["confirming"]], [&json!("confirmed"), &json!(12)]);
    assert!((verdict["confirmation"]["difference"].as_f64().unwrap() + 4.0).abs() < 1e-9, "{verdict:#}");
    let said = sandbox.bellows(&["campaign", "test", &file]).fine().stdout;
    assert!(
        said.starts_with("smaller packets are slower: confirmed\n") && said.contains("4 runs made before"),
        "{said}"
    );
}

#[test]
fn the_example_of_the_manual_runs() {
    let sandbox = Sandbox::new();
    let file = root().join("crates/campaign/examples/checksums.toml");
    let words = ["campaign", "run", file.to_str().unwrap(), "--results", "checksums.results", "--repeats", "1"];
    let said = sandbox.bellows(&words).fine();
    assert!(
        said.stdout.contains("5 of 5 runs have results; 5 were made now: checksums.results/results.csv"),
        "{said:#?}"
    );
}
