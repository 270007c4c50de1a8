//! The benchmarks, briefly: their output, not the speed of this machine.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::Shared;
use crate::support::{Sandbox, Signal, root, signal};
use bellows_config::{BenchFiles, BenchSetup};
use bellows_engine::Schedule;
use bellows_inspect::networks::process_state;
use bellows_lab::benchmarks;
use bellows_testkit::eventually;
use bellows_testkit::programs::{self, has_program, missing};
use bellows_testkit::skips::{self, is_left_out, is_skipped};
use bellows_testkit::wait::Watchdog;

#[test]
fn the_engine_benchmark_measures_every_case_under_every_schedule() {
    let sandbox = Shared::new();
    let report = sandbox.bellows(&["bench", "engine", "--processes", "1", "--rounds", "2", "--json"]).success().json();
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
            ("sampling" | "timeline", unit) => assert_eq!((unit, figure("median") > 0.1), ("ratio", true), "{result}"),
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
    let sandbox = Shared::new();
    let brief = ["bench", "history", "--processes", "2", "--rounds", "2", "--idle-seconds", "0.01", "--tees", "1,4"];
    let report = sandbox.bellows(&[&brief[..], &["--json"]].concat()).success().json();
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

    let text = sandbox.bellows(&[&brief[..], &["--schedule", "flat", "--case", "mix"]].concat()).success().stdout;
    let (table, verdict) = text.trim_end().rsplit_once("\n\n").unwrap();
    assert_eq!(table.lines().filter(|line| line.starts_with("mix-change")).count(), 1, "{text}");
    assert!(verdict.contains("within 0.97–1.03"), "{text}");
}

#[test]
fn the_l2vpn_benchmark_compares_phases_in_a_random_order_with_each_alone() {
    let sandbox = Shared::new();
    let words = ["bench", "l2vpn", "--orders", "2", "--rounds", "2", "--idle-seconds", "0.01", "--phase", "ip4-64"];
    let picture = sandbox.path("course.svg");
    let more = ["--schedule", "flat", "--picture", picture.to_str().unwrap(), "--json"];
    let report = sandbox.bellows(&[&words[..], &more].concat()).success().json();
    assert_eq!((&report["bench"], &report["processes"]), (&"l2vpn".into(), &2.into()));
    let results = report["results"].as_array().unwrap();
    // There is one phase, so none comes after another.
    let cases: Vec<&str> = results.iter().filter_map(|result| result["case"].as_str()).collect();
    assert_eq!(cases, ["first", "after-idle", "apps"], "{report:#}");
    for result in results {
        let figure = |key: &str| result[key].as_f64().unwrap();
        assert!(0.0 < figure("low") && figure("low") <= figure("median") && figure("median") <= figure("high"));
        assert!(result["labels"]["clocks"].as_f64() > Some(0.0), "{result}");
    }
    let labels = &results[2]["labels"];
    assert_eq!((&labels["target"], &labels["phase"]), (&"at most 1.15".into(), &"decap-ip4-64".into()), "{labels}");
    assert!(labels["sum"].as_f64() > Some(0.0) && labels["apps"].as_u64() >= Some(6), "{labels}");
    let notes = report["notes"].to_string();
    assert!(notes.contains("within 0.97–1.03") && notes.contains("`--seed 1`"), "{notes}");
    assert!(std::fs::read_to_string(picture).unwrap().contains(">decap-ip4-64</text>"));

    // Three phases, of which each comes after another in some order.
    let words = ["bench", "l2vpn", "--orders", "4", "--rounds", "2", "--case", "phases", "--phase", "decap-ip4-"];
    let more = ["--schedule", "nested", "--seed", "7", "--json"];
    let report = sandbox.bellows(&[&words[..], &more].concat()).success().json();
    let phases: BTreeSet<&str> =
        report["results"].as_array().unwrap().iter().filter_map(|result| result["labels"]["phase"].as_str()).collect();
    assert_eq!(phases, BTreeSet::from(["decap-ip4-64", "decap-ip4-esp-512", "decap-ip4-imix"]));
}

/// The only figure of a comparison in which no process has a history, and one has more work.
fn control(packets: &str, more: &[&str]) -> (crate::support::Said, serde_json::Value) {
    let words = ["bench", "history", "--control", packets, "--schedule", "flat", "--tees", "2", "--json"];
    let said = Shared::new().bellows(&[&words, more].concat());
    let report = said.json();
    let [result] = report["results"].as_array().unwrap().as_slice() else { panic!("{report:#}") };
    assert_eq!((&result["case"], &result["unit"]), (&"control".into(), &"ratio".into()));
    let labels = &result["labels"];
    assert_eq!((labels["more_packets"].to_string().as_str(), &labels["tees"]), (packets, &2.into()), "{result}");
    let is_undecided = result.get("undecided").is_some();
    assert_eq!((result["median"].is_null(), said.code), (is_undecided, Some(if is_undecided { 3 } else { 0 })));
    assert!(report["lost"].as_f64().is_some_and(|lost| (0.0..1.0).contains(&lost)), "{report:#}");
    (said, result.clone())
}

#[test]
fn a_difference_is_seen_beside_other_load() {
    let brief = ["--processes", "7", "--rounds", "20"];
    let (said, same) = control("0", &brief);
    let bound = |result: &serde_json::Value, key: &str| result[key].as_f64().unwrap();
    assert!(bound(&same, "low") < 1.05 && bound(&same, "high") > 0.95, "{said:?}");
    // Twice as many packets: nearly twice as much work.
    for workers in ["1", "2"] {
        let (said, more) = control("64", &[&brief[..], &["--workers", workers]].concat());
        assert!(bound(&more, "low") > 1.2 && bound(&more, "high") < 2.5, "{said:?}");
        assert_eq!(more["labels"]["workers"].as_u64(), (workers != "1").then_some(2), "{more}");
    }
}

#[test]
fn a_benchmark_can_be_disturbed_on_purpose() {
    if bellows_sys::cpu::allowed().len() < 2 {
        return skips::skip_here("a_benchmark_can_be_disturbed_on_purpose", "there is one processor");
    }
    for how in ["thrash", "bursts"] {
        let (said, _) = control("0", &["--processes", "1", "--rounds", "4", "--beside", how]);
        assert!(said.json()["notes"].to_string().contains(&format!("beside `{how}` on processor ")), "{said:?}");
    }
    let said = Shared::new().bellows(&["bench", "history", "--beside", "noise"]);
    assert_eq!(said.code, Some(2));
    assert!(said.stderr.contains("there is no `noise`; give thrash or bursts"), "{said:?}");
}

/// Ctrl-C after the first row leaves a report of the rows so far.
#[test]
fn an_interrupted_benchmark_reports_what_it_has() {
    let sandbox = Shared::new();
    let brief =
        ["bench", "history", "--processes", "1", "--rounds", "2", "--idle-seconds", "0.01", "--schedule", "flat"];
    // Far more cases than anyone would wait for.
    let many = (1..=100).map(|tees| tees.to_string()).collect::<Vec<String>>().join(",");
    let words = [&brief[..], &["--case", "other", "--tees", &many]].concat();
    let mut child = sandbox.command(&words).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut text = String::new();
    while !text.contains("other-first") {
        assert!(stdout.read_line(&mut text).unwrap() > 0, "it ended: {text}");
    }
    signal(&child, Signal::INT);
    stdout.read_to_string(&mut text).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130), "{text}");
    let rows = text.lines().filter(|line| line.starts_with("other-first")).count();
    assert!((1..100).contains(&rows), "{rows} rows: {text}");
    assert!(text.contains("\ninterrupted: figures are missing"), "{text}");

    let child = sandbox.command(&[&words[..], &["--json"]].concat()).stdout(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_secs(3));
    signal(&child, Signal::INT);
    let said = crate::support::Said::from(child.wait_with_output().unwrap());
    assert_eq!((said.code, &said.json()["interrupted"]), (Some(130), &true.into()), "{said:?}");
}

#[test]
fn the_reload_benchmark_times_every_swap_and_misses_no_packet() {
    let sandbox = Shared::new();
    let brief = ["bench", "reload", "--apps", "20", "--reloads", "30", "--processes", "2"];
    let report = sandbox.bellows(&[&brief[..], &["--json"]].concat()).success().json();
    assert_eq!((&report["bench"], &report["processes"]), (&"reload".into(), &2.into()));
    let results = report["results"].as_array().unwrap();
    assert_eq!(results.len(), 4 * Schedule::ALL.len());
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
    assert_eq!(cases[..4], ["swap", "pause", "gap", "parse"]);
    let notes = report["notes"].as_array().unwrap().iter().map(|note| note.as_str().unwrap());
    // There may also be a note that the machine was busy.
    let books = notes.filter(|note| note.contains(": 62 reloads; of ") && note.ends_with("none is missing"));
    assert_eq!(books.count(), Schedule::ALL.len(), "{report}");

    let text = sandbox.bellows(&[&brief[..], &["--schedule", "flat"]].concat()).success().stdout;
    for part in ["swap (apps 24, links 24, schedule flat): p99 ", "pause (", "█", "flat: 62 reloads"] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    for workers in ["1", "2"] {
        let words = ["--schedule", "flat", "--workers", workers, "--json"];
        let report = sandbox.bellows(&[&brief[..], &words].concat()).success().json();
        let results = report["results"].as_array().unwrap();
        assert_eq!(results[2]["labels"]["workers"].as_u64(), (workers != "1").then_some(2), "{report:#}");
        let median = |at: usize| results[at]["median"].as_f64().unwrap();
        assert!(median(2) > median(1), "a gap includes the pause: {report:#}");
    }
}

#[test]
fn the_ring_benchmark_compares_every_combination_of_options() {
    let sandbox = Shared::new();
    let brief = ["bench", "vring", "--processes", "1", "--rounds", "4", "--without", "event-idx,offloads"];
    let report = sandbox.bellows(&[&brief[..], &["--size", "60,1500", "--json"]].concat()).success().json();
    assert_eq!((&report["bench"], &report["processes"]), (&"vring".into(), &1.into()));
    let mut seen = BTreeSet::new();
    for result in report["results"].as_array().unwrap() {
        let labels = &result["labels"];
        assert!(result["median"].as_f64().unwrap() > 0.0 && labels["batch"] == 128, "{result}");
        match result["case"].as_str().unwrap() {
            "rx" | "tx" => assert!(result["unit"] == "clocks/packet" && labels["free"].is_number(), "{result}"),
            _ => assert!(result["unit"] == "ratio" && labels["direction"].is_string(), "{result}"),
        }
        assert!(seen.insert(format!("{} {labels}", result["case"])), "twice: {result}");
    }
    // Rings with and without a table, and chains in them; without mergeable buffers in the driver's direction of
    // transmit.
    let (rx, tx) = (9 * 2 + 9 * 3, 5 * 2 + 5 * 3);
    assert_eq!(seen.len(), 2 * (rx + tx) + 2 * (rx + tx));

    let few = ["--case", "tx", "--with", "packed", "--chain", "indirect", "--size", "64"];
    let text = sandbox.bellows(&[&brief[..], &few].concat()).success().stdout;
    assert_eq!(text.lines().filter(|line| line.contains("indirect header-12, indirect ")).count(), 2, "{text}");
    assert!(text.contains("tx, indirect, 64 bytes: "), "{text}");
}

#[test]
fn the_notification_benchmark_measures_every_way_or_gives_the_reason() {
    let sandbox = Shared::new();
    let brief = ["bench", "notify", "--processes", "2", "--rounds", "20"];
    let report = sandbox.bellows(&[&brief[..], &["--json"]].concat()).success().json();
    assert_eq!((&report["bench"], &report["processes"]), (&"notify".into(), &2.into()));
    let notes = report["notes"].to_string();
    let is_there = |name: &str| {
        let without = [format!("{name}: not available: "), format!("{name}: not measured: "), format!("{name}, ")];
        !without.iter().any(|start| notes.contains(start.as_str()))
    };
    let found = cases(&report, &["peer", "page"]);
    for case in ["write", "poll-write", "direct", "helper"].into_iter().filter(|case| is_there(case)) {
        assert!(found.contains(&format!("{case} idle")), "{case}: {found:?} {notes}");
        for peer in ["poll", "epoll", "read"].into_iter().filter(|peer| is_there(peer)) {
            assert!(found.contains(&format!("{case} {peer}")), "{case} {peer}: {found:?} {notes}");
        }
    }
    for case in ["fault-4k", "fault-2m"].into_iter().filter(|case| is_there(case)) {
        assert!(["untouched", "touched"].iter().all(|page| found.contains(&format!("{case} {page}"))), "{found:?}");
    }
    for result in report["results"].as_array().unwrap() {
        let figure = |key: &str| result[key].as_f64().unwrap();
        assert!(0.0 < figure("low") && figure("low") <= figure("median") && figure("median") <= figure("high"));
        let case = result["case"].as_str().unwrap();
        let has_reference = result["unit"] == "clocks/call" && case != "write";
        assert_eq!(result["of_reference"]["low"].as_f64().is_some_and(|low| low > 0.0), has_reference, "{result}");
        assert!(result["unit"] != "ns" || result["labels"]["peer"] != "idle", "{result}");
    }

    let text = sandbox.bellows(&[&brief[..], &["--case", "write"]].concat()).success().stdout;
    assert!(text.lines().any(|line| line.starts_with("poll-write  idle ")), "{text}");
    assert!(!text.lines().any(|line| line.starts_with("direct ") || line.starts_with("fault")), "{text}");
}

#[test]
fn the_benchmark_of_workers_compares_them_with_processes() {
    let sandbox = Shared::new();
    if std::thread::available_parallelism().is_ok_and(|count| count.get() < 2) {
        return skips::skip_here("the_benchmark_of_workers_compares_them_with_processes", "there is one processor");
    }
    let brief = ["bench", "workers", "--processes", "2", "--rounds", "2", "--slice", "30"];
    let report = sandbox.bellows(&[&brief[..], &["--json"]].concat()).success().json();
    let results = report["results"].as_array().unwrap();
    let cases: Vec<&str> = results.iter().map(|result| result["case"].as_str().unwrap()).collect();
    assert_eq!(cases, ["chain", "rss", "rss-both", "vhost"]);
    for result in results {
        let positive = |figure: &serde_json::Value| figure.as_f64().is_some_and(|figure| figure > 0.0);
        assert!(positive(&result["median"]) && positive(&result["reference"]), "{result}");
        assert!(positive(&result["of_reference"]["median"]), "{result}");
    }
    let text = sandbox.bellows(&[&brief[..], &["--case", "rss"]].concat()).success().stdout;
    for part in ["× processes", "\nrss ", "percent of the packets"] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
}

/// A briefest run that scrapes.
const SCRAPE: [&str; 6] = ["bench", "scrape", "--seconds", "1", "--period", "100ms"];

#[test]
fn the_scrape_benchmark_compares_phases_with_scrapes_and_without() {
    let sandbox = Shared::new();
    if bellows_sys::cpu::allowed().len() < 2 {
        return skips::skip_here(
            "the_scrape_benchmark_compares_phases_with_scrapes_and_without",
            "there is one processor",
        );
    }
    let report = sandbox.bellows(&[&SCRAPE[..], &["--processes", "2", "--json"]].concat()).success().json();
    assert_eq!((&report["bench"], &report["processes"]), (&"scrape".into(), &2.into()));
    let results = report["results"].as_array().unwrap();
    let found: Vec<_> = results.iter().map(|result| (&result["case"], &result["labels"]["apps"])).collect();
    assert_eq!(found, [(&"small".into(), &4.into()), (&"chain".into(), &1_000.into())], "{report:#}");
    for result in results {
        let (figure, label) = (|key: &str| result[key].as_f64().unwrap(), |key: &str| &result["labels"][key]);
        assert!(0.0 < figure("low") && figure("low") <= figure("median") && figure("median") <= figure("high"));
        assert!(label("without").as_f64() > Some(0.0) && label("with").as_f64() > Some(0.0), "{result:#}");
        // In each of two processes there are two phases of three periods.
        assert_eq!((label("scrapes"), label("period_seconds")), (&12.into(), &0.1.into()), "{result:#}");
        assert!(label("scrape_ms").as_f64() > Some(0.0), "{result:#}");
        assert_eq!((&result["unit"], label("target")), (&"ratio".into(), &"1, half-width at most 0.01".into()));
        assert_eq!(label("verdict"), "undecided", "two processes have no interval");
    }
    assert!(report["lost"].as_f64().is_some_and(|lost| (0.0..=1.0).contains(&lost)), "{report:#}");
    let notes = report["notes"].to_string();
    assert!(notes.contains("small: 12 scrapes of ") && notes.contains("chain: 12 scrapes of "), "{notes}");

    let text = sandbox.bellows(&[&SCRAPE[..], &["--processes", "1", "--case", "small"]].concat()).success().stdout;
    let row = text.lines().find(|line| line.starts_with("small  ")).unwrap();
    assert!(row.ends_with("  undecided") && row.matches(" Mpps").count() == 2, "{text}");
    assert!(text.contains("1, half-width at most 0.01: 0 of 1 hold") && !text.contains("chain"), "{text}");
    assert_eq!(scrape_folders(&sandbox), Vec::<PathBuf>::new());
}

/// The folders in which the networks of `bench scrape` have their counters.
fn scrape_folders(sandbox: &Sandbox) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(sandbox.path("run")).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.to_string_lossy().contains("/bellows-scrape.")).collect()
}

#[test]
fn a_scraper_needs_a_processor_of_its_own() {
    let only = bellows_sys::cpu::allowed()[0].to_string();
    let sandbox = Shared::new().launched_by(&["taskset", "-c", &only]);
    let said = sandbox.bellows(&["bench", "scrape", "--processes", "1"]);
    assert_eq!((said.code, said.stdout.as_str()), (Some(2), ""), "{said:?}");
    let why = format!("a scraper must not run on the engine's processor, and only processor {only} may be used");
    assert!(said.stderr.contains(&why), "{said:?}");
}

/// However the benchmark ends, its network and its server end with it.
#[test]
fn a_killed_benchmark_leaves_no_network() {
    let sandbox = Shared::new();
    if bellows_sys::cpu::allowed().len() < 2 {
        return skips::skip_here("a_killed_benchmark_leaves_no_network", "there is one processor");
    }
    let mut child = sandbox.command(&["bench", "scrape", "--case", "small"]).stdout(Stdio::null()).spawn().unwrap();
    let _watchdog = Watchdog::new(&child);
    // The process of the command that has this log, once it has written something.
    let process = |log: &str| -> Option<u32> {
        let folder = scrape_folders(&sandbox).pop()?.join("0");
        let text = std::fs::read_to_string(folder.join(log)).ok()?;
        let is_it = |pid: &u32| {
            let file = std::fs::read_link(format!("/proc/{pid}/fd/2"));
            file.is_ok_and(|file| file == folder.join(log))
        };
        let processes = std::fs::read_dir("/proc").ok()?;
        let mut pids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        if text.is_empty() { None } else { pids.find(is_it) }
    };
    let mut started = None;
    eventually("the network and the server", || {
        started = process("run.log").zip(process("metrics.log"));
        started.is_some()
    });
    signal(&child, Signal::KILL);
    child.wait().unwrap();
    let (network, server) = started.unwrap();
    for pid in [network, server] {
        eventually("the end of a command", || matches!(process_state(pid), None | Some('Z')));
    }
}

#[test]
fn the_filter_benchmark_measures_each_filter_on_all_packets_and_a_list_beside_one_item() {
    let sandbox = Shared::new();
    let brief = ["bench", "filter", "--processes", "1", "--rounds", "2"];
    let report = |case: &str| sandbox.bellows(&[&brief[..], &["--case", case, "--json"]].concat()).success().json();
    let rows = |report: &serde_json::Value| -> BTreeSet<String> {
        let results = report["results"].as_array().unwrap();
        let label = |result: &serde_json::Value, name: &str| result["labels"][name].to_string();
        let row = |result: &serde_json::Value| {
            assert!(result["median"].as_f64().is_some_and(|median| median > 0.0), "{result}");
            let labels = ["filter", "packets", "in_flight"].map(|name| label(result, name)).join(" ");
            format!("{} {} {labels}", result["case"].as_str().unwrap(), result["unit"].as_str().unwrap())
        };
        let rows: BTreeSet<String> = results.iter().map(row).collect();
        assert_eq!(rows.len(), results.len());
        rows.into_iter().map(|row| row.replace('"', "")).collect()
    };
    let document = rows(&report("document"));
    assert_eq!(document.len(), 6, "{document:?}");
    let filter = "not ip6 and not ip and not ether broadcast";
    for packets in ["matching", "other", "mixed"] {
        for in_flight in [128, 8_192] {
            let row = format!("document clocks/packet {filter} {packets} {in_flight}");
            assert!(document.contains(&row), "{row} is not in {document:?}");
        }
    }
    let lists = report("ports");
    assert_eq!(rows(&lists).len(), 18, "{lists:#}");
    let ratio = lists["results"].as_array().unwrap().iter().find(|result| result["unit"] == "ratio").unwrap();
    assert_eq!(ratio["labels"]["target"], "at most 2", "{ratio}");
    assert_eq!(ratio["labels"]["verdict"], "undecided", "one process has no interval");
    let text = sandbox.bellows(&[&brief[..], &["--case", "history"]].concat()).stdout;
    assert_eq!(text.lines().filter(|line| line.starts_with("history  ")).count(), 5 * 3 * 3, "{text}");
    assert!(text.contains("\nhistory, 0.97–1.03: "), "{text}");
}

/// libpcap and DPDK decide the same packets, in turns with this program.
#[test]
fn other_filters_take_turns_with_ours() {
    const TEST: &str = "other_filters_take_turns_with_ours";
    if is_left_out(TEST)
        || is_skipped(TEST, missing(&["cc", "pkg-config", "pcap-config", "/usr/include/dpdk/rte_bpf.h"]))
    {
        return;
    }
    let sandbox = Shared::new();
    let program = sandbox.path("peers").display().to_string();
    let build = root().join("bench/peers/build-filter.sh");
    programs::run(Command::new(build).arg(&program)).unwrap_or_else(|why| panic!("{why}"));
    let peers = ["libpcap", "dpdk"].map(|filter| format!("{filter}={program} {filter}"));
    let brief = ["bench", "filter", "--processes", "1", "--rounds", "2", "--case", "src-net"];
    let words = [&brief[..], &["--peer", &peers[0], "--peer", &peers[1]]].concat();
    let report = sandbox.bellows(&[&words[..], &["--json"]].concat()).success().json();
    assert_eq!(report["bench"], "peers filter");
    let results = report["results"].as_array().unwrap();
    let count = |label: &str, value: &str| results.iter().filter(|result| result["labels"][label] == value).count();
    for program in ["bellows", "libpcap", "dpdk"] {
        assert_eq!(count("program", program), 6, "{report:#}");
    }
    for (of, rows) in [("libpcap to bellows", 6), ("dpdk to bellows", 6), ("bellows' dearer to dpdk's cheaper", 2)] {
        assert_eq!(count("of", of), rows, "{report:#}");
    }
    let notes = report["notes"].as_array().unwrap();
    assert!(notes[0].as_str().unwrap().starts_with("bellows' dearer to dpdk's cheaper, at most 1: "), "{notes:?}");

    // A program that does not exist, and a filter that cannot be compiled there.
    let said = sandbox.bellows(&[&brief[..], &["--peer", "none=/nowhere"]].concat());
    assert!(said.code == Some(1) && said.stderr.contains("cannot start /nowhere"), "{said:?}");
}

/// Every benchmark rejects impossible requests with the reason.
#[test]
fn every_benchmark_refuses_options_out_of_range() {
    let sandbox = Shared::new();
    for entry in benchmarks::ALL {
        let processor: Vec<&str> = entry.quick.split(' ').chain(["--cpu", "99999"]).collect();
        for (words, why) in entry.refused.iter().copied().chain([(&*processor, "processor 99999")]) {
            let said = sandbox.bellows(&[&entry.words()[..], words].concat());
            assert_eq!((said.code, said.stdout.as_str()), (Some(2), ""), "{}: {said:?}", entry.name);
            assert!(said.stderr.contains(why), "{why} is not in {}", said.stderr);
        }
    }
}

#[test]
fn the_help_names_every_benchmark() {
    let help = Shared::new().bellows(&["bench", "--help"]).success().stdout;
    for entry in benchmarks::ALL.iter().filter(|entry| !entry.is_apart) {
        let line = help.lines().find(|line| line.trim_start().starts_with(&format!("{} ", entry.name)));
        assert!(line.is_some_and(|line| line.contains(&entry.about()[..20])), "{}: {help}", entry.name);
    }
    assert!(!help.lines().any(|line| line.trim_start().starts_with("worker ")), "{help}");
}

#[test]
fn a_worker_of_no_benchmark_says_so() {
    let said = Shared::new().bellows(&["bench", "worker", "nonsense"]);
    assert_eq!(said.code, Some(1));
    assert!(said.stderr.contains("there is no benchmark `nonsense` to work for"), "{said:?}");
}

/// The minimum of a measurement.
const BRIEF: [&str; 4] = ["--processes", "1", "--packets", "20000"];

fn appbench(sandbox: &Sandbox, words: &[&str]) -> serde_json::Value {
    sandbox.bellows(&[&["appbench"], words, &BRIEF, &["--json"]].concat()).success().json()
}

/// The cases of a report, with their distinguishing labels.
fn cases(report: &serde_json::Value, labels: &[&str]) -> BTreeSet<String> {
    let named = |result: &serde_json::Value| {
        let labels = labels.iter().map(|label| result["labels"][label].to_string().replace('"', ""));
        [vec![result["case"].as_str().unwrap().to_owned()], labels.collect()].concat().join(" ").replace(" null", "")
    };
    report["results"].as_array().unwrap().iter().map(named).collect()
}

#[test]
fn an_app_is_measured_against_nothing_in_its_place() {
    let sandbox = Shared::new();
    let report = appbench(&sandbox, &["tee"]);
    assert_eq!((&report["bench"], &report["processes"]), (&"appbench".into(), &1.into()));
    let found = cases(&report, &["run", "recorded"]);
    for case in ["clocks baseline", "clocks with-app", "clocks difference", "account", "gap", "account with-app tee"] {
        assert!(found.contains(case), "{case} is not in {found:?}");
    }
    assert!(found.contains("vector with-app tee") && found.contains("account baseline sink"), "{found:?}");
    for result in report["results"].as_array().unwrap() {
        let figure = |key: &str| result[key].as_f64().unwrap();
        assert!(figure("low") <= figure("median") && figure("median") <= figure("high"), "{result}");
        let labels = &result["labels"];
        assert_eq!((&labels["app"], &labels["burst"]), (&"tee".into(), &128.into()), "{result}");
    }

    let text = sandbox.bellows(&[&["appbench", "tee"], &BRIEF[..]].concat()).success().stdout;
    let lines: Vec<&str> = text.lines().collect();
    let at = |start: &str| {
        lines.iter().position(|line| line.starts_with(start)).unwrap_or_else(|| panic!("{start}: {text}"))
    };
    let tables = [at("baseline (source -> sink):"), at("with the app (source -> tee -> sink):"), at("difference:")];
    assert!(tables.is_sorted(), "{text}");
    for table in tables {
        let heads: Vec<&str> = lines[table + 1].split_whitespace().collect();
        assert_eq!(heads[..3], ["EVENT", "TOTAL", "/packet"]);
        let last = lines[table..].iter().position(|line| line.is_empty()).unwrap() + table - 1;
        assert!(lines[table + 2].starts_with("clocks") && lines[last].starts_with("packet"), "{text}");
    }
    assert!(text.contains("of 100 incoming packets, 100 left") && text.contains("gap between the two"), "{text}");
}

#[test]
fn apps_in_a_row_have_keys_and_ports() {
    let sandbox = Shared::new();
    let row = "join | truncate(length = 40) | tee";
    let report = appbench(&sandbox, &[row, "--in", "a", "--in", "b", "--out", "x", "--out", "y"]);
    let found = cases(&report, &["run", "recorded"]);
    for app in ["join", "truncate", "tee", "source", "source-2", "sink", "sink-2"] {
        assert!(found.contains(&format!("account with-app {app}")), "{app}: {found:?}");
    }
    let notes = report["notes"].to_string();
    assert!(notes.contains("`join.a`, `join.b` each have their own source"), "{notes}");
    assert!(notes.contains("`tee.x`, `tee.y` each lead to their own sink"), "{notes}");

    let limited = appbench(&sandbox, &["rate-limiter", "--config", "{ packets = \"1k\" }"]);
    assert_eq!(limited["results"][0]["labels"]["app"], "rate-limiter(packets = \"1k\")");
    let text = sandbox.bellows(&[&["appbench", "sample(every = 4)"], &BRIEF[..]].concat()).success().stdout;
    assert!(text.contains("of 100 incoming packets, 25 left; 75 % were dropped as not_sampled"), "{text}");
    let sink = sandbox.bellows(&[&["appbench", "sink"], &BRIEF[..]].concat()).success().stdout;
    assert!(sink.contains("packets end at `sink`: it replaces the baseline's sink"), "{sink}");
}

#[test]
fn conditions_are_measured_each_in_turn() {
    let sandbox = Shared::new();
    let rss = "rss(symmetric = true)";
    let report = appbench(&sandbox, &[rss, "--resident", "l1,dram", "--prefetch", "0,8", "--traffic", "imix"]);
    let found = cases(&report, &["run", "resident", "prefetch"]);
    for resident in ["l1", "dram"] {
        for prefetch in [0, 8] {
            assert!(found.contains(&format!("clocks difference {resident} {prefetch}")), "{found:?}");
        }
    }
    assert!(report["notes"].to_string().contains("dram: rounds of "), "{report:#}");
    let loaded = appbench(&sandbox, &["tee", "--offered", "1"]);
    let found = cases(&loaded, &["run", "recorded"]);
    assert!(found.contains("vector with-app tee") && !found.contains("clocks difference"), "{found:?}");
}

#[test]
fn an_app_is_measured_in_place() {
    let sandbox = Shared::new();
    let network = sandbox.write(
        "network.toml",
        "links = [\"source.output -> counter.input\", \"counter.output -> tee.input\", \"tee.a -> one.input\", \"tee.b -> two.input\"]\n\
         [engine]\nburst = 64\n[apps.source]\napp = \"source\"\n[apps.counter]\napp = \"counter\"\n[apps.tee]\napp = \"tee\"\n\
         [apps.one]\napp = \"sink\"\n[apps.two]\napp = \"sink\"\n",
    );
    let report = appbench(&sandbox, &["--network", &network, "--app", "counter"]);
    let found = cases(&report, &["run", "recorded"]);
    assert!(found.contains("clocks difference") && found.contains("account with-app tee"), "{found:?}");
    assert_eq!(report["results"][0]["labels"]["burst"], 64, "as the network says");
    assert!(report["notes"].to_string().contains("the network without `counter`"), "{report:#}");

    let report = appbench(&sandbox, &["--network", &network, "--app", "tee", "--burst", "32"]);
    let found = cases(&report, &["run", "recorded"]);
    assert!(!found.contains("clocks difference") && found.contains("account with-app tee"), "{found:?}");
    assert!(report["notes"].to_string().contains("1 input and 2 outputs linked"), "{report:#}");

    let slow = appbench(&sandbox, &["--network", &network, "--app", "counter", "--set", "apps.source.rate=100kpps"]);
    assert!(!cases(&slow, &["run"]).contains("clocks difference"), "{slow:#}");
    assert!(slow["notes"].to_string().contains("of 100 breaths: "), "{slow:#}");
}

#[test]
fn valgrind_counts_the_same_every_time() {
    if !has_program("valgrind_counts_the_same_every_time", "valgrind") {
        return;
    }
    let sandbox = Shared::new();
    // Cache misses depend on addresses, which differ from process to process; the executed instructions do not.
    let exact = ["instructions", "branches", "data_reads", "data_writes"];
    let count = || -> Vec<(String, String)> {
        let report = appbench(&sandbox, &["tee", "--counters", "valgrind"]);
        let results = report["results"].as_array().unwrap().iter();
        let results = results.filter(|result| exact.contains(&result["case"].as_str().unwrap()));
        results.map(|result| (result["labels"]["run"].to_string(), result["median"].to_string())).collect()
    };
    let first = count();
    assert_eq!(first.len(), 3 * exact.len(), "each in baseline, with the app and difference");
    assert_eq!(first, count());
}

#[test]
fn every_app_is_in_one_table() {
    let sandbox = Shared::new();
    let brief = ["bench", "apps", "--processes", "1", "--packets", "2000", "--resident", "l1,dram"];
    let report = sandbox.bellows(&[&brief[..], &["--json"]].concat()).success().json();
    let registry = bellows_apps::registry();
    let found = cases(&report, &["name", "resident"]);
    for entry in registry.entries() {
        let app = entry.name();
        if let BenchSetup::Unmeasured(_) = entry.bench(&BenchFiles::new("/capture", "/written")) {
            let told = |note: &serde_json::Value| note.as_str().unwrap().contains(&format!("`{app}` is not measured"));
            assert!(report["notes"].as_array().unwrap().iter().any(told), "{report:#}");
            continue;
        }
        let levels = if entry.info().inputs.is_none() { &["own"][..] } else { &["l1", "dram"] };
        for level in levels {
            // The rows of an app may all have a label.
            let is_row = |row: &String| {
                row.strip_suffix(level).is_some_and(|row| row[4..].trim_end().split(",").next() == Some(app))
            };
            assert!(found.iter().any(is_row), "{app} {level}: {found:?}");
        }
    }
    for row in ["tee, 2 outputs", "rss, ipv4", "rss, ipv6", "rss, toeplitz, ipv4", "rss, toeplitz, ipv6"] {
        assert!(found.contains(format!("app {row} dram").as_str()), "{row}: {found:?}");
    }
    let text = sandbox.bellows(&[&brief[..], &["--case", "tee"]].concat()).success().stdout;
    assert!(text.lines().any(|line| line.starts_with("tee, 2 outputs  ")), "{text}");
}

#[test]
fn a_measurement_that_cannot_be_made_says_why() {
    let sandbox = Shared::new();
    let network = sandbox
        .write("n.toml", "links = [\"a.output -> b.input\"]\n[apps.a]\napp = \"source\"\n[apps.b]\napp = \"sink\"\n");
    for (words, why) in [
        (&["tea"][..], "there is no app type `tea`"),
        (&["truncate"], "app type `truncate` needs the key `length`"),
        (&["truncate(length = 0)"], "a length of 0 leaves no packet data"),
        (&["tee | counter", "--config", "protocols = false"], "--config works with a single app"),
        (&["tee", "--in", "entrance"], "`tee` has no input `entrance`; its inputs: `input`"),
        (&["sink | tee"], "`sink` has no outputs; put it last"),
        (&["delay(time = \"1h\")"], "`delay` keeps its packets"),
        (&["source(count = 10)"], "the source ended after 10 packets"),
        (&["source", "--traffic", "imix"], "`source` makes its own packets"),
        (&["tee", "--traffic", "jumble"], "`jumble` is not a kind of traffic"),
        (&["tee", "--resident", "l5"], "`l5` is not a level of the memory hierarchy"),
        (&["tee", "--prefetch", "65"], "65 is not in 0..=64"),
        (&["tee", "--offered", "0"], "give million packets per second"),
        (&["tee", "--packets", "none"], "give a number of packets"),
        (&["--network", &network, "--app", "c"], "the network has no app `c`; it has `a`, `b`"),
        (&["--network", "none.toml", "--app", "c"], "cannot read `none.toml`"),
        (&[], "<APP>"),
    ] {
        let said = sandbox.bellows(&[&["appbench"], words, &["--processes", "1"]].concat());
        assert_eq!((said.code, said.stdout.as_str()), (Some(2), ""), "{words:?}: {said:?}");
        assert!(said.stderr.contains(why), "{why} is not in {}", said.stderr);
    }
    let said = sandbox.bellows(&["bench", "apps", "--case", "nonsense"]);
    assert_eq!(said.code, Some(2));
    assert!(said.stderr.contains("no case has `nonsense` in its name"), "{said:?}");
}

#[test]
fn copies_are_measured_against_memcpy() {
    let sandbox = Shared::new();
    let brief = ["bench", "blit", "--processes", "1", "--rounds", "2", "--size", "60,imix", "--where", "l1,cold"];
    let report = sandbox.bellows(&[&brief[..], &["--json"]].concat()).success().json();
    assert_eq!((&report["bench"], &report["processes"]), (&"blit".into(), &1.into()));
    let found = cases(&report, &["where", "size", "batch"]);
    for case in ["copy", "deferred"] {
        for batch in [1, 32, 256] {
            for size in ["60", "imix"] {
                let in_place = |place: &str| found.contains(&format!("{case} {place} {size} {batch}"));
                assert!(in_place("l1") && in_place("cold"), "{case} {size} {batch}: {found:?}");
            }
        }
    }
    for result in report["results"].as_array().unwrap() {
        let figure = |key: &str| result[key].as_f64().unwrap();
        assert!(0.0 < figure("low") && figure("low") <= figure("median") && figure("median") <= figure("high"));
        let labels = &result["labels"];
        assert!(result["unit"] == "ratio" && labels["clocks"].as_f64() > Some(0.0), "{result}");
    }

    let text = sandbox.bellows(&[&brief[..], &["--case", "copy", "--batch", "16"]].concat()).success().stdout;
    for part in ["copy, l1\n", "copy, cold\n", "batches of 16\n", "\n    60  ", "\n  imix  "] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
    assert!(!text.contains("deferred"), "{text}");
}

/// An honest guest loses nothing and waits for nothing while another one misbehaves.
#[test]
fn a_guest_that_attacks_is_measured_beside_an_honest_one() {
    let sandbox = Shared::new();
    for corpus in ["vring", "vhost_messages"] {
        std::fs::create_dir_all(sandbox.path("corpus").join(corpus)).unwrap();
        let input: Vec<u8> = (0..=255).cycle().take(3_000).collect();
        std::fs::write(sandbox.path("corpus").join(corpus).join("input"), input).unwrap();
    }
    let brief = ["bench", "neighbours", "--processes", "1", "--seconds", "6", "--corpus", "corpus"];
    // If other programs run on the engine's processor, clocks are undecided. The honest guest's figures are not.
    let said = sandbox.bellows(&[&brief[..], &["--json", "--without-pauses"]].concat());
    assert!([Some(0), Some(3)].contains(&said.code), "{said:?}");
    let report = said.json();
    assert_eq!(report["bench"], "neighbours");
    assert!(report["notes"][0].as_str().unwrap().contains("accept the next connection at once"), "{report:#}");
    let results = report["results"].as_array().unwrap();
    assert!(results.len() > 20, "{report:#}");
    for result in results {
        let label = |name: &str| result["labels"][name].as_u64().unwrap();
        assert_eq!(label("lost"), 0, "{result:#}");
        assert!(label("packets") > 0 && label("longest_wait") <= 2 && label("connections") > 0, "{result:#}");
        assert_ne!(result["median"].is_null(), label("processes") == 1, "{result:#}");
    }

    let said = sandbox.bellows(&[&brief[..6], &["--case", "false-claims"]].concat());
    let row = said.stdout.lines().find(|line| line.starts_with("false-claims ")).unwrap();
    assert!(row.split_whitespace().count() > 5 && !said.stdout.contains("BROKEN"), "{said:?}");
    assert!(said.stdout.contains("\ndevices pause between short connections"), "{said:?}");
}
