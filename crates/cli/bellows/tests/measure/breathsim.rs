//! `bellows breathsim`, briefly, and the Lua model that it is compared with: their output, not the speed of this
//! machine.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

use crate::Shared;
use crate::support::{Signal, root, signal};
use bellows_testkit::programs::has_program;
use serde_json::{Value, json};

/// The reports of a run in one process for each figure.
fn measured(arguments: &[&str]) -> Vec<Value> {
    let brief = ["breathsim", "--processes", "1", "--json"];
    let report = Shared::new().bellows(&[&brief, arguments].concat()).success().json();
    assert_eq!((&report["bench"], &report["processes"]), (&json!("breathsim"), &json!(1)));
    assert!(report["machine"]["tsc_hz"].as_u64().unwrap() > 100_000_000);
    report["results"].as_array().unwrap().clone()
}

#[test]
fn the_whole_table_has_every_network_under_every_schedule() {
    let mut rows = BTreeSet::new();
    let mut schedules = BTreeSet::new();
    for result in measured(&["--iterations", "1500"]) {
        assert_eq!((&result["case"], &result["unit"]), (&json!("breath"), &json!("ns/breath")));
        let figure = |key: &str| result[key].as_f64().unwrap();
        assert!(figure("low") <= figure("median") && figure("median") <= figure("high"), "{result}");
        let labels = &result["labels"];
        let idle = labels["busy_after"].as_u64();
        assert_eq!(labels["breaths"], json!(1_500 - idle.unwrap_or(0)), "{result}");
        // The work to compare with, if there is any.
        assert_eq!(result["reference"].is_f64(), idle.is_some(), "{result}");
        let busy_after = labels["busy_after"].to_string().replace('"', "");
        rows.insert(format!("{} {} {busy_after}", labels["apps"], labels["work"]));
        schedules.insert(labels["schedule"].as_str().unwrap().to_owned());
    }
    let expected = ["5 100 never", "5 100 1000", "5 100 0", "5 1 1000", "5 1 0"];
    let expected: BTreeSet<String> =
        expected.iter().flat_map(|row| [row.to_string(), row.replacen('5', "30", 1)]).collect();
    assert_eq!(rows, expected);
    assert!(schedules.contains("nested") && schedules.contains("flat"), "{schedules:?}");
}

#[test]
fn one_figure_can_be_measured_by_itself() {
    let one = ["--schedule", "flat", "--busy-after", "10", "--apps", "64", "--work", "7", "--iterations", "1e3"];
    let results = measured(&one);
    assert_eq!(results.len(), 1);
    let labels = json!({ "schedule": "flat", "busy_after": 10, "apps": 64, "work": 7, "breaths": 990 });
    assert_eq!(results[0]["labels"], labels);
}

#[test]
fn the_text_shows_the_documents_figures_and_what_history_costs() {
    let brief = ["breathsim", "--processes", "1", "--iterations", "2000", "--schedule", "nested"];
    let text = Shared::new().bellows(&brief).success().stdout;
    for part in ["5 apps, 100 increments", "76.4 (standard loop)", "626.5 (standard loop)", "(document 1.189)"] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
}

#[test]
fn the_model_in_lua_prints_the_time_of_a_breath() {
    if !has_program("the_model_in_lua_prints_the_time_of_a_breath", "luajit") {
        return;
    }
    let model = root().join("bench/peers/breathsim.lua");
    let run = |words: &str| Command::new("luajit").arg(&model).args(words.split(' ')).output().unwrap();
    for words in ["nested never 3000", "flattened never 3000", "nested 1000 3000", "flattened 0 3000 30 1"] {
        let output = run(words);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let time = said.trim_end().strip_suffix(" ns/breath").and_then(|number| number.parse::<f64>().ok());
        assert!(output.status.success() && time.is_some_and(|time| time > 0.0), "{words}: {output:?}");
    }
    let output = run("nested soon 3000");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("BUSY_AFTER must be a whole number, not 'soon'"), "{said}");
}

/// The model takes turns with the engine, like another schedule.
#[test]
fn the_model_in_lua_takes_turns_with_the_engine() {
    if !has_program("the_model_in_lua_takes_turns_with_the_engine", "luajit") {
        return;
    }
    let sandbox = Shared::new();
    let model = |shape: &str| {
        format!("luajit/{shape}=luajit {} {shape} turns", root().join("bench/peers/breathsim.lua").display())
    };
    let (nested, flattened) = (model("nested"), model("flattened"));
    let brief = ["breathsim", "--processes", "2", "--iterations", "4000", "--apps", "5", "--schedule", "flat"];
    let words = [&brief[..], &["--model", &nested, "--model", &flattened]].concat();
    let report = sandbox.bellows(&[&words[..], &["--json"]].concat()).success().json();
    assert_eq!(report["bench"], "peers breathsim");
    let mut rows = BTreeSet::new();
    for result in report["results"].as_array().unwrap() {
        let labels = &result["labels"];
        assert!(result["median"].as_f64().unwrap() > 0.0, "{result}");
        rows.insert(format!("{} {} {}", labels["program"], labels["schedule"], labels["busy_after"]).replace('"', ""));
    }
    let expected = ["never", "1000", "0"].map(|busy_after| {
        ["bellows flat", "luajit nested", "luajit flattened"].map(|name| format!("{name} {busy_after}"))
    });
    assert_eq!(rows, expected.into_iter().flatten().collect());
    let text = sandbox.bellows(&words).success().stdout;
    for part in ["Busy after 1000, over luajit nested: flat ", "luajit flattened", ", luajit nested "] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
}

/// The table of a network appears as soon as it is finished.
#[test]
fn an_interrupted_table_keeps_what_is_finished() {
    let sandbox = Shared::new();
    let words = ["breathsim", "--processes", "6", "--iterations", "200000"];
    let mut child = sandbox.command(&words).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut text = String::new();
    while !text.contains("5 apps, 100 increments") {
        assert!(stdout.read_line(&mut text).unwrap() > 0, "it ended: {text}");
    }
    signal(&child, Signal::INT);
    stdout.read_to_string(&mut text).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{text}");
    assert!(text.contains("626.5 (standard loop)") && text.contains("\ninterrupted: figures are missing"), "{text}");
    assert!(!text.contains("30 apps, 1 increment "), "{text}");
}
