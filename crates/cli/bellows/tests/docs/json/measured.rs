//! Benchmarks.

use bellows::json_reference::{Chapter, Found, FoundCases, case_differences, unmet_cases};
use bellows_lab::benchmarks;

use crate::json::assert_met;
use crate::support::Sandbox;

#[test]
fn what_benchmarks_report() {
    let sandbox = Sandbox::new();
    let mut found = Found::new();
    let mut print = |words: &str| {
        let words: Vec<&str> = words.split(' ').chain(["--json"]).collect();
        sandbox.bellows_noting(&words, &mut found);
    };
    print("bench engine --case source-sink --processes 1 --rounds 2 --schedule flat");
    print("bench history --case mix --processes 1 --rounds 2 --idle-seconds 0.01 --schedule flat");
    print("bench reload --processes 1 --apps 8 --reloads 2 --schedule flat");
    print("breathsim --processes 1 --iterations 1000 --schedule flat --busy-after 0");
    // Unit tests have these, too.
    let rare = [("Benchmark", "interrupted"), ("Benchmark", "failed"), ("Figure", "undecided")];
    assert_met(Chapter::Measured, &found, &[], &rare);
}

/// The file `network.toml` beside the runs of benchmarks.
const COUNTED: &str = r#"
links = ["source.output -> counter.input", "counter.output -> sink.input"]
[apps.source]
app = "source"
[apps.counter]
app = "counter"
[apps.sink]
app = "sink"
"#;

/// Every benchmark of the list has a run of a moment that yields a report. Its short runs have every case, unit and label
/// of the reference; that they have no others is checked wherever a test runs a benchmark.
#[test]
fn every_benchmark_has_a_quick_run_that_yields_a_report() {
    let sandbox = Sandbox::new();
    let mut found = FoundCases::new();
    for entry in benchmarks::ALL {
        let quick = entry.quick.split(' ').chain(["--json"]);
        let said = sandbox.bellows(&entry.words().into_iter().chain(quick).collect::<Vec<_>>());
        assert!([Some(0), Some(3)].contains(&said.code), "{}: {said:?}", entry.name);
        let report = said.json();
        case_differences(&report, &mut found);
        assert_eq!((&report["bench"], &report["processes"]), (&entry.name.into(), &1.into()), "{report:#}");
        assert!(report["machine"]["tsc_hz"].as_u64().is_some(), "{report:#}");
        let results = report["results"].as_array().unwrap();
        assert!(!results.is_empty(), "{}", entry.name);
        for result in results {
            let bound = |key: &str| result[key].as_f64().unwrap();
            let median = result["median"].as_f64().unwrap_or(bound("low"));
            assert!(bound("low") <= median && median <= bound("high"), "{}: {result}", entry.name);
            assert!(
                result["case"].is_string() && result["unit"].is_string() && result["labels"].is_object(),
                "{result}"
            );
        }
    }
    sandbox.write("routes.txt", "11.0.0.0/8\n2600::/12\n");
    sandbox.write("network.toml", COUNTED);
    for (entry, options) in benchmarks::ALL.iter().flat_map(|entry| entry.more.iter().map(move |more| (entry, more))) {
        let words: Vec<&str> = entry.words().into_iter().chain(options.split(' ')).chain(["--json"]).collect();
        let said = sandbox.bellows(&words);
        assert!([Some(0), Some(3)].contains(&said.code), "{said:?}");
        case_differences(&said.json(), &mut found);
    }
    let is_rare = |bench: &str, case: &str| {
        let entry = benchmarks::ALL.iter().find(|entry| entry.name == bench);
        entry.is_some_and(|entry| entry.rare.contains(&case))
    };
    let mut unmet = unmet_cases(&found);
    unmet.retain(|[bench, case, ..]| !is_rare(bench, case));
    assert!(unmet.is_empty(), "no run has these cases (benchmark, case, unit) and labels: {unmet:#?}");
}
