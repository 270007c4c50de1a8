//! The missing prefetch: a running network names the app that waits for the data of its packets (`show run --advise`),
//! and so does a benchmark of the app alone (`appbench`). Neither accuses an app that looks ahead.

use std::process::Command;
use std::sync::{PoisonError, RwLockWriteGuard};

use crate::support::{Running, Sandbox, root};
use bellows_testkit::skip;
use bellows_testkit::skips::skip_here;
use bellows_testkit::wait::Deadline;
use serde_json::{Value, json};

/// Runs one test at a time: each measures caches, which the others would fill.
fn alone() -> RwLockWriteGuard<'static, ()> {
    crate::CACHES.write().unwrap_or_else(PoisonError::into_inner)
}

/// A sandbox with the release build. In others, an app's own instructions take so long that little of its time is spent
/// waiting.
fn released() -> Sandbox {
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "--release", "--package", "bellows"]).current_dir(root());
    assert!(build.status().unwrap().success(), "the release build");
    // The tests' programs are in the folder `debug/deps` beside it.
    let tests = std::env::current_exe().unwrap();
    Sandbox::of(tests.ancestors().nth(3).unwrap().join("release/bellows"))
}

/// Runs an example. In `costs.toml`, packets wait for milliseconds, so that they leave the caches, and then `share` reads
/// their headers without prefetches; in `router-costs.toml` a router gets such packets.
fn start<'s>(sandbox: &'s Sandbox, example: &str, more: &[&str]) -> Running<'s> {
    let file = root().join("examples").join(example);
    sandbox.start(&[&[file.to_str().unwrap(), "--duration", "300s"], more].concat())
}

/// The key without which a router reads frames as they come.
const NO_LOOK_AHEAD: &str = "apps.router.parts.ethernet-input.prefetch=0";

/// The time for which the tests try look-ahead, and how often it must accuse nobody.
const TRIAL: &str = "--advise=2s";
const TRIALS: usize = 3;

/// The result of a trial about an app, if it had one.
fn of<'v>(costs: &'v Value, app: &str) -> Option<&'v Value> {
    costs["advice"]["apps"].as_array().unwrap().iter().find(|result| result["app"] == json!(app))
}

/// The apps with a verdict.
fn judged(costs: &Value, verdict: &str) -> Vec<String> {
    let all = costs["advice"]["apps"].as_array().unwrap().iter();
    let judged = all.filter(|result| result["verdict"] == json!(verdict));
    judged.map(|result| result["app"].as_str().unwrap().to_owned()).collect()
}

/// The share of its clocks that an app must at most take with look-ahead for the test to insist on a verdict. The trial
/// asks for 0.9, and its own prefetches cost more than those of the app.
const WORTH: f64 = 0.8;

/// What a packet costs in an app of a running network, in clocks.
fn clocks(sandbox: &Sandbox, app: &str) -> f64 {
    let deadline = Deadline::new("enough sampled calls");
    loop {
        let costs = sandbox.bellows(&["show", "run", "--json"]).success().json();
        let row = costs["rows"].as_array().unwrap().iter().find(|row| row["app"] == json!(app));
        // At first, no call has been sampled.
        if let Some(row) = row
            && row["sampled"]["calls"].as_u64().is_some_and(|calls| calls >= 200)
        {
            return row["clocks_per_packet"].as_f64().unwrap();
        }
        deadline.check();
    }
}

/// The sentences that name an app.
fn accusations(costs: &Value) -> Vec<&str> {
    let all = costs["advice"]["advice"].as_array().unwrap().iter().map(|sentence| sentence.as_str().unwrap());
    all.filter(|sentence| sentence.contains(WAITS)).collect()
}

/// What advice says about an app without look-ahead, and what a benchmark says of several distances.
const WAITS: &str = "waits for the data of its packets";
const SIGNATURE: &str = "this is the signature of a missing prefetch";

/// Tries look-ahead until it names an app, and no other. Returns what the trial found.
///
/// Other programs may take the processor's time and its caches during a trial.
fn find(sandbox: &Sandbox, app: &str) -> Value {
    let deadline = Deadline::new("a verdict about the app without prefetches");
    loop {
        deadline.check();
        let costs = sandbox.bellows(&["show", "run", "--json", TRIAL]).success().json();
        assert_eq!((&costs["advice"]["seconds"], &costs["advice"]["end"]), (&json!(2.0), &json!("time")), "{costs:#}");
        let missing = judged(&costs, "missing");
        assert!(missing.iter().all(|accused| accused == app), "{missing:?} in {costs:#}");
        if !missing.is_empty() {
            return costs;
        }
    }
}

/// Tries look-ahead some times, and until an app has been cleared; it must accuse none.
fn find_none(sandbox: &Sandbox, app: &str) {
    let deadline = Deadline::new("a verdict about the app with prefetches");
    let mut trials = 0;
    let mut is_cleared = false;
    while trials < TRIALS || !is_cleared {
        deadline.check();
        let costs = sandbox.bellows(&["show", "run", "--json", TRIAL]).success().json();
        assert_eq!(judged(&costs, "missing"), [""; 0], "{costs:#}");
        assert_eq!(accusations(&costs), [""; 0], "{costs:#}");
        is_cleared |= judged(&costs, "sufficient").iter().any(|cleared| cleared == app);
        trials += 1;
    }
}

#[test]
fn an_app_that_waits_for_its_packets_is_found_and_no_other() {
    let _alone = alone();
    let sandbox = released();
    // For longer than other programs take the processor away, and so many that they leave the caches in any build.
    let _running = start(&sandbox, "costs.toml", &["--set", "apps.hold.time=20ms"]);
    let costs = find(&sandbox, "share");
    let share = of(&costs, "share").unwrap();
    assert!(share["saved"].as_f64().unwrap() > 0.08 && share["p"].as_f64().unwrap() < 1e-4, "{share:#}");
    let advice = accusations(&costs);
    assert!(advice.len() == 1 && advice[0].starts_with("`share` waits"), "{advice:?}");
    let text = sandbox.bellows(&["show", "run", "--advise=100ms"]).success().stdout;
    assert!(text.contains("Trial of look-ahead for 100.0 ms") && text.contains("not tables"), "{text}");
}

#[test]
fn no_app_is_accused_if_all_look_ahead() {
    let _alone = alone();
    let sandbox = Sandbox::new();
    let _running = start(&sandbox, "costs.toml", &["--set", "apps.hold.time=20ms", "--set", "apps.share.prefetch="]);
    find_none(&sandbox, "share");
}

#[test]
fn the_part_of_a_router_that_waits_for_its_packets_is_found_and_no_other() {
    let _alone = alone();
    let sandbox = released();
    // Other programs make either of them slow for a while.
    let (mut with, mut without) = (f64::INFINITY, f64::INFINITY);
    for _ in 0..3 {
        for (least, more) in [(&mut with, &[][..]), (&mut without, &["--set", NO_LOOK_AHEAD])] {
            let _running = start(&sandbox, "router-costs.toml", more);
            *least = least.min(clocks(&sandbox, "router/ethernet-input"));
        }
    }
    let _running = start(&sandbox, "router-costs.toml", &["--set", NO_LOOK_AHEAD]);
    if with > WORTH * without {
        // What is not there must not be found either. In between, either verdict about it is right, and none of others.
        if with >= without {
            find_none(&sandbox, "router/ethernet-input");
        } else {
            let costs = sandbox.bellows(&["show", "run", "--json", TRIAL]).success().json();
            let missing = judged(&costs, "missing");
            assert!(missing.iter().all(|accused| accused == "router/ethernet-input"), "{missing:?} in {costs:#}");
        }
        let reason = format!(
            "this processor overlaps the waits by itself: a packet takes {without:.1} clocks without look-ahead, {with:.1} \
             with it"
        );
        return skip_here("the_part_of_a_router_that_waits_for_its_packets_is_found_and_no_other", &reason);
    }
    let costs = find(&sandbox, "router/ethernet-input");
    let advice = accusations(&costs);
    assert!(advice.len() == 1 && advice[0].starts_with("`router/ethernet-input` waits"), "{advice:?}");
}

#[test]
fn no_part_of_a_router_is_accused_if_all_look_ahead() {
    let _alone = alone();
    let sandbox = Sandbox::new();
    let _running = start(&sandbox, "router-costs.toml", &[]);
    find_none(&sandbox, "router/ethernet-input");
}

/// What a benchmark of apps says about look-ahead, with packets from memory.
fn notes(sandbox: &Sandbox, apps: &str, more: &[&str]) -> String {
    let words = ["appbench", apps, "--resident", "dram", "--processes", "6", "--packets", "200000", "--json"];
    let report = sandbox.bellows(&[&words[..], more].concat()).success().json();
    report["notes"].as_array().unwrap().iter().map(|note| note.as_str().unwrap()).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_benchmark_of_an_app_that_waits_for_its_packets_says_so() {
    let _alone = alone();
    let sandbox = released();
    for (app, more, wanted) in [
        ("rss(prefetch = 0)", &[][..], WAITS),
        ("rss(prefetch = 0)", &["--prefetch", "0,16"], SIGNATURE),
        ("ethernet-input(vrf = \"router\", prefetch = 0)", &[], WAITS),
    ] {
        let deadline = Deadline::new("a benchmark that finds the missing prefetch");
        // Other programs make intervals wide.
        loop {
            let notes = notes(&sandbox, app, more);
            if notes.contains(wanted) {
                break;
            }
            eprintln!("{app}: {notes}");
            deadline.check();
        }
    }
}

#[test]
fn a_benchmark_of_an_app_that_looks_ahead_accuses_it_of_nothing() {
    let _alone = alone();
    let sandbox = Sandbox::new();
    for app in ["rss", "ethernet-input"] {
        let notes = notes(&sandbox, app, &[]);
        assert!(!notes.contains(WAITS) && !notes.contains(SIGNATURE), "{app}: {notes}");
    }
    let notes = notes(&sandbox, "rss", &["--prefetch", "0,16"]);
    assert!(!notes.contains(SIGNATURE), "{notes}");
}

/// The document's picture: without look-ahead, the samples are at the first instruction that uses packet data.
#[test]
#[cfg(target_arch = "x86_64")]
fn samples_of_a_node_without_look_ahead_are_at_its_first_use_of_packet_data() {
    let _alone = alone();
    let sandbox = Sandbox::new();
    let words = ["bench", "prefetch", "--case", "hot", "--memory", "--in-flight", "4096", "--routes", "8"];
    let said = sandbox.bellows(&[&words[..], &["--processes", "1", "--seconds", "0.3", "--json"]].concat());
    if said.stderr.contains("may not be sampled") || said.stderr.contains("perf_event_open") {
        return skip("samples_of_a_node_without_look_ahead_are_at_its_first_use_of_packet_data", &said.stderr);
    }
    let report = said.success().json();
    let share = |without: &str| {
        let mut results = report["results"].as_array().unwrap().iter();
        let is_it = |result: &&Value| {
            result["unit"] == json!("share at the first use") && result["labels"]["without"] == json!(without)
        };
        results.find(is_it).unwrap_or_else(|| panic!("{report:#}"))["median"].as_f64().unwrap()
    };
    let (with, without) = (share("none"), share("ethernet-input"));
    assert!(without > 0.2 && without > with, "{with} and {without}");
}

#[test]
fn requests_for_advice_that_cannot_be_served_are_refused() {
    let _alone = alone();
    let sandbox = Sandbox::new();
    let _running = start(&sandbox, "costs.toml", &["--set", "engine.sampling=false"]);
    let refused = sandbox.bellows(&["show", "run", "--advise=100ms"]);
    assert!(refused.code != Some(0) && refused.stderr.contains("samples no breaths"), "{refused:?}");
    let refused = sandbox.bellows(&["show", "links", "--advise"]);
    assert!(refused.stderr.contains("--advise is for `show run`"), "{refused:?}");
    let refused = sandbox.bellows(&["show", "run", "--advise=2h"]);
    assert!(refused.stderr.contains("a time from 0 to 600 s"), "{refused:?}");
}
