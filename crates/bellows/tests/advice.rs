//! `show run --advise`: a running network names the app that waits for the data of its packets.

mod support;

use bellows_testkit::wait::Deadline;
use serde_json::{Value, json};
use support::{Running, Sandbox, root};

/// In this network packets wait for milliseconds, so that they leave the caches, and then `share` reads their headers
/// without prefetches.
fn start<'s>(sandbox: &'s Sandbox, more: &[&str]) -> Running<'s> {
    let file = root().join("examples/costs.toml");
    sandbox.start(&[&[file.to_str().unwrap(), "--duration", "300s"], more].concat())
}

/// The result of a trial about an app, if it had one.
fn of<'v>(costs: &'v Value, app: &str) -> Option<&'v Value> {
    costs["advice"]["apps"].as_array().unwrap().iter().find(|result| result["app"] == json!(app))
}

#[test]
fn an_app_that_waits_for_its_packets_is_found_and_no_other() {
    let sandbox = Sandbox::new();
    // For longer than other programs take the processor away, and so many that they leave the caches in any build.
    let _running = start(&sandbox, &["--set", "apps.hold.time=8ms"]);
    let deadline = Deadline::new("a verdict about the app without prefetches");
    loop {
        deadline.check();
        // Other programs may take the processor's time and its caches during a trial.
        let costs = sandbox.bellows(&["show", "run", "costs", "--json", "--advise=2s"]).fine().json();
        assert_eq!(costs["advice"]["seconds"], json!(2.0), "{costs:#}");
        assert_eq!(costs["advice"]["end"], json!("time"), "{costs:#}");
        let Some(share) = of(&costs, "share") else { continue };
        if share["verdict"] == json!("missing") {
            assert!(share["saved"].as_f64().unwrap() > 0.08 && share["p"].as_f64().unwrap() < 1e-4, "{share:#}");
            let advice = costs["advice"]["advice"][0].as_str().unwrap();
            assert!(advice.contains("`share` waits for the data of its packets"), "{advice}");
            // It reads no packet data.
            assert!(of(&costs, "hold").is_none_or(|hold| hold["verdict"] != json!("missing")), "{costs:#}");
            break;
        }
    }
    let text = sandbox.bellows(&["show", "run", "--advise=100ms"]).fine().stdout;
    assert!(text.contains("Trial of look-ahead for 100.0 ms") && text.contains("not tables"), "{text}");
}

#[test]
fn requests_for_advice_that_cannot_be_served_are_refused() {
    let sandbox = Sandbox::new();
    let _running = start(&sandbox, &["--set", "engine.sampling=false"]);
    let refused = sandbox.bellows(&["show", "run", "--advise=100ms"]);
    assert!(refused.code != Some(0) && refused.stderr.contains("samples no breaths"), "{refused:?}");
    let refused = sandbox.bellows(&["show", "links", "--advise"]);
    assert!(refused.stderr.contains("--advise is for `show run`"), "{refused:?}");
    let refused = sandbox.bellows(&["show", "run", "--advise=2h"]);
    assert!(refused.stderr.contains("a time from 0 to 600 s"), "{refused:?}");
}
