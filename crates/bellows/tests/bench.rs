//! The benchmarks, briefly: what they print, not how fast this machine is.

mod support;

use std::collections::BTreeSet;

use support::Sandbox;

#[test]
fn the_engine_benchmark_measures_every_case_under_every_schedule() {
    let sandbox = Sandbox::new();
    let report = sandbox.bellows(&["bench", "engine", "--processes", "1", "--rounds", "2", "--json"]).fine().json();
    assert_eq!(report["bench"], "engine");
    assert!(report["machine"]["tsc_hz"].as_u64().unwrap() > 100_000_000);
    assert!(["hugetlb", "thp", "4k"].contains(&report["machine"]["memory"].as_str().unwrap()));
    let mut seen = BTreeSet::new();
    for result in report["results"].as_array().unwrap() {
        let figure = |key: &str| result[key].as_f64().unwrap();
        assert!(figure("low") <= figure("median") && figure("median") <= figure("high"), "{result}");
        let labels = &result["labels"];
        assert_eq!((&labels["size"], &labels["burst"]), (&60.into(), &128.into()), "{result}");
        match result["unit"].as_str().unwrap() {
            "clocks/packet" => assert!(figure("reference") > 0.0, "{result}"),
            unit => assert_eq!((unit, figure("median") > 0.1), ("Mpps", true), "{result}"),
        }
        let how = [&labels["how"], &labels["packets"]].map(|label| label.to_string()).concat();
        seen.insert(format!("{} {} {how}", result["case"].as_str().unwrap(), labels["schedule"]));
    }
    assert_eq!(seen.len(), 14, "{seen:?}");
}

#[test]
fn a_benchmark_that_cannot_be_run_says_why() {
    let sandbox = Sandbox::new();
    for (arguments, why) in [
        (["--case", "nonsense"], "no case has `nonsense` in its name; there are source-sink"),
        (["--stride", "2241"], "the stride 2241 is no multiple of 64"),
        (["--cpu", "99999"], "processor 99999"),
        (["--schedule", "warp"], "there is no schedule `warp`"),
    ] {
        let said =
            sandbox.bellows(&[&["bench", "engine", "--processes", "1", "--rounds", "1"], &arguments[..]].concat());
        assert_eq!((said.code, said.stdout.as_str()), (Some(2), ""), "{said:?}");
        assert!(said.stderr.contains(why), "{why} is not in {}", said.stderr);
    }
}
