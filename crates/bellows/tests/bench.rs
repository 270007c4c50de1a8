//! The benchmarks, briefly: what they print, not how fast this machine is.

mod support;

use std::collections::BTreeSet;

use bellows_engine::Schedule;
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
        match (result["case"].as_str().unwrap(), result["unit"].as_str().unwrap()) {
            ("idle", unit) => {
                assert_eq!(
                    (unit, &labels["apps"], &labels["links"]),
                    ("ns/breath", &30.into(), &58.into()),
                    "{result}"
                );
            }
            ("metering" | "timeline", unit) => assert_eq!((unit, figure("median") > 0.1), ("ratio", true), "{result}"),
            ("timeline-event", unit) => {
                assert_eq!((unit, &labels["calls"]), ("clocks/event", &30.into()), "{result}");
                assert!(figure("median") > 0.1, "{result}");
            }
            ("pcap-reader", unit) => assert_eq!((unit, figure("median") > 0.1), ("Mpps", true), "{result}"),
            (_, unit) => {
                assert_eq!((unit, figure("reference") > 0.0), ("clocks/packet", true), "{result}");
                assert_eq!((&labels["size"], &labels["burst"]), (&60.into(), &128.into()), "{result}");
            }
        }
        let how = [&labels["how"], &labels["packets"]].map(|label| label.to_string()).concat();
        seen.insert(format!("{} {} {how}", result["case"].as_str().unwrap(), labels["schedule"]));
    }
    assert_eq!(seen.len(), 11 * Schedule::ALL.len(), "{seen:?}");
}

#[test]
fn the_history_benchmark_compares_each_history_with_none() {
    let sandbox = Sandbox::new();
    let brief = ["bench", "history", "--processes", "2", "--rounds", "2", "--idle-seconds", "0.01", "--tees", "1,4"];
    let report = sandbox.bellows(&[&brief[..], &["--json"]].concat()).fine().json();
    assert_eq!((&report["bench"], &report["processes"]), (&"history".into(), &2.into()));
    let mut seen = BTreeSet::new();
    for result in report["results"].as_array().unwrap() {
        let figure = |key: &str| result[key].as_f64().unwrap();
        assert!(0.0 < figure("low") && figure("low") <= figure("median") && figure("median") <= figure("high"));
        let labels = &result["labels"];
        assert_eq!((&result["unit"], labels["clocks"].as_f64() > Some(0.0)), (&"ratio".into(), true), "{result}");
        seen.insert(format!("{} {} {}", result["case"].as_str().unwrap(), labels["schedule"], labels["tees"]));
    }
    assert_eq!(seen.len(), 5 * Schedule::ALL.len(), "{seen:?}");
    for case in ["idle-first", "other-first"] {
        assert!(
            seen.contains(&format!("{case} \"flat\" 1")) && seen.contains(&format!("{case} \"flat\" 4")),
            "{seen:?}"
        );
    }
    assert!(seen.contains("mix-change \"flat\" null"), "{seen:?}");
    let notes = report["notes"].as_array().unwrap();
    assert!(notes.len() == 1 && notes[0].as_str().unwrap().contains("within 0.97–1.03"), "{notes:?}");

    let text = sandbox.bellows(&[&brief[..], &["--schedule", "flat", "--case", "mix"]].concat()).fine().stdout;
    let (table, verdict) = text.trim_end().rsplit_once("\n\n").unwrap();
    assert_eq!(table.lines().filter(|line| line.starts_with("mix-change")).count(), 1, "{text}");
    assert!(verdict.contains("within 0.97–1.03"), "{text}");
}

#[test]
fn the_reload_benchmark_times_every_swap_and_misses_no_packet() {
    let sandbox = Sandbox::new();
    let brief = ["bench", "reload", "--apps", "20", "--reloads", "30", "--processes", "2"];
    let report = sandbox.bellows(&[&brief[..], &["--json"]].concat()).fine().json();
    assert_eq!((&report["bench"], &report["processes"]), (&"reload".into(), &2.into()));
    let results = report["results"].as_array().unwrap();
    assert_eq!(results.len(), 3 * Schedule::ALL.len());
    for result in results {
        let figure = |key: &str| result[key].as_f64().unwrap();
        let rising = ["low", "median", "high", "maximum"].map(figure);
        assert!(rising[0] > 0.0 && rising.is_sorted() && figure("p99") <= figure("maximum"), "{result}");
        let labels = &result["labels"];
        assert_eq!((&labels["apps"], &labels["links"]), (&24.into(), &24.into()), "whole lines of eight");
        assert_eq!(result["unit"], "ns");
        let classes = result["histogram"].as_array().unwrap();
        let counts = classes.iter().map(|class| class[1].as_u64().unwrap());
        assert_eq!(counts.sum::<u64>(), 60, "each swap of both processes: {result}");
        let bounds: Vec<u64> = classes.iter().map(|class| class[0].as_u64().unwrap()).collect();
        assert!(bounds.is_sorted() && *bounds.last().unwrap() as f64 >= figure("maximum"), "{result}");
    }
    let cases: Vec<&str> = results.iter().map(|result| result["case"].as_str().unwrap()).collect();
    assert_eq!(cases[..3], ["swap", "pause", "parse"]);
    let notes = report["notes"].as_array().unwrap().iter().map(|note| note.as_str().unwrap());
    // There may also be a note that the machine was busy.
    let books = notes.filter(|note| note.contains(": 62 reloads, of ") && note.ends_with("none is missing"));
    assert_eq!(books.count(), Schedule::ALL.len(), "{report}");

    let text = sandbox.bellows(&[&brief[..], &["--schedule", "flat"]].concat()).fine().stdout;
    for part in ["swap (apps 24, links 24, schedule flat): p99 ", "pause (", "█", "flat: 62 reloads"] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
}

#[test]
fn a_benchmark_that_cannot_be_run_says_why() {
    let sandbox = Sandbox::new();
    let engine = ["engine", "--processes", "1", "--rounds", "1"];
    let history = ["history", "--processes", "1", "--rounds", "2"];
    let reload = ["reload", "--processes", "1", "--reloads", "1"];
    for (bench, arguments, why) in [
        (engine, ["--case", "nonsense"], "no case has `nonsense` in its name; there are source-sink"),
        (engine, ["--stride", "2241"], "the stride 2241 is no multiple of 64"),
        (engine, ["--cpu", "99999"], "processor 99999"),
        (engine, ["--schedule", "warp"], "there is no schedule `warp`"),
        (history, ["--case", "tee"], "no case has `tee` in its name; there are idle-first, other-first and mix-change"),
        (history, ["--tees", "3,0"], "0 is not in 1..=100"),
        (history, ["--idle-seconds", "soon"], "give a number of seconds, such as 3 or 0.5"),
        (history, ["--idle-seconds", "3601"], "give from 0 to 3600 seconds"),
        (history, ["--cpu", "99999"], "processor 99999"),
        (reload, ["--apps", "0"], "0 is not in 1..=2000"),
        (reload, ["--cpu", "99999"], "processor 99999"),
    ] {
        let said = sandbox.bellows(&[&["bench"], &bench[..], &arguments[..]].concat());
        assert_eq!((said.code, said.stdout.as_str()), (Some(2), ""), "{said:?}");
        assert!(said.stderr.contains(why), "{why} is not in {}", said.stderr);
    }
}
