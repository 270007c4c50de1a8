//! `show run`, `show latency`, `timeline` and `clear`: a network's costs and recent history, from outside.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::thread;
use std::time::{Duration, Instant};

use crate::support::{Running, Sandbox, Signal};
use bellows_testkit::eventually;
use serde_json::{Value, json};

/// A network whose tee sends to a counter and to a delay.
const FORKED: &str = r#"
links = [
  "source.output -> copy.input",
  "copy.a -> count.input",
  "count.output -> end.a",
  "copy.b -> wait.input",
  "wait.output -> end.b",
  "end.output -> drain.input",
]
[apps.source]
app = "source"
size = 60
rate = "100kpps"
[apps.copy]
app = "tee"
[apps.count]
app = "counter"
[apps.wait]
app = "delay"
time = "1ms"
[apps.end]
app = "join"
[apps.drain]
app = "sink"
"#;

/// [`FORKED`] without the counter.
fn without_counter() -> String {
    let kept = |line: &&str| !line.contains("count");
    FORKED.replace("copy.a -> count.input", "copy.a -> end.a").lines().filter(kept).collect::<Vec<_>>().join("\n")
}

/// The result of `show run --json`, once every app has been sampled.
fn costs(sandbox: &Sandbox) -> Value {
    let mut costs = Value::Null;
    eventually("samples of every app", || {
        costs = sandbox.bellows(&["show", "run", "--json"]).success().json();
        let known = |app: &str| rows(&costs, app).iter().any(|row| !row["clocks_per_call"].is_null());
        ["source", "copy", "count", "wait", "end", "drain"].into_iter().all(known)
    });
    costs
}

fn rows<'a>(costs: &'a Value, app: &str) -> Vec<&'a Value> {
    costs["rows"].as_array().unwrap().iter().filter(|row| row["app"] == json!(app)).collect()
}

/// Packets of an app at an entry.
fn packets(costs: &Value, app: &str, entry: &str) -> u64 {
    let rows = rows(costs, app);
    let row = rows.iter().find(|row| row["entry"] == json!(entry)).unwrap_or_else(|| panic!("no {entry} of {app}"));
    assert_eq!(row["packets_estimated"], json!(false), "{row:#}");
    row["packets"].as_u64().unwrap()
}

/// Packets that an app has received since the run began.
fn received(running: &Running<'_>, app: &str) -> u64 {
    let counters = running.counters();
    let apps = counters["apps"].as_array().unwrap();
    apps.iter().find(|counts| counts["name"] == json!(app)).unwrap()["in_packets"].as_u64().unwrap()
}

#[test]
fn every_app_has_its_costs() {
    let sandbox = Sandbox::new();
    let network = sandbox.write("forked.toml", FORKED);
    let running = sandbox.start(&[&network]);
    eventually("packets", || received(&running, "drain") > 1_000);
    let before = received(&running, "copy");
    let costs = costs(&sandbox);
    let after = received(&running, "copy");
    for app in ["copy", "count", "wait"] {
        let packets = packets(&costs, app, "push");
        assert!(before <= packets && packets <= after, "{packets} of {app} are not from {before} to {after}");
    }
    let shares: Vec<f64> = costs["rows"].as_array().unwrap().iter().filter_map(|row| row["share"].as_f64()).collect();
    assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-9 && shares.is_sorted_by(|one, next| one >= next));
    assert_eq!((&costs["cleared"], &costs["state"]), (&json!(false), &json!("running")));

    let table = sandbox.bellows(&["show", "run", "forked", "--sort", "name"]).success().stdout;
    let names: Vec<&str> =
        table.lines().filter(|line| line.contains(" push ")).filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(names, ["copy", "count", "drain", "end", "wait"], "{table}");
    for part in ["CLOCKS/PKT", "PKTS/CALL", "SHARE", "breaths/s", "Calls and packets are exact"] {
        assert!(table.contains(part), "{part} is not in\n{table}");
    }
    assert!(sandbox.bellows(&["show", "run", "--all"]).success().stdout.contains("pull"), "even what is never called");
    assert_eq!(sandbox.bellows(&["show", "links", "--all"]).code, Some(2));

    let mut latency = Value::Null;
    eventually("latencies", || {
        latency = sandbox.bellows(&["show", "latency", "--json"]).success().json();
        latency["latency"]["samples"].as_u64() > Some(100) && latency["breath"]["samples"].as_u64() > Some(100)
    });
    let nanos = |name: &str| latency["latency"][name].as_u64().unwrap();
    assert!(nanos("p50_ns") <= nanos("p99_ns") && nanos("p99_ns") <= nanos("p99_9_ns"), "{latency:#}");
    assert!(nanos("p99_9_ns") <= nanos("maximum_ns"));
    assert!(nanos("maximum_ns") > 900_000, "half of the packets wait for a millisecond: {latency:#}");
    let text = sandbox.bellows(&["show", "latency"]).success().stdout;
    assert!(text.contains("P99.9") && text.contains('█'), "{text}");

    let top = sandbox.bellows(&["top", "--once"]).success().stdout;
    assert!(top.contains("latency p50") && top.contains("breath p50") && top.contains("CLOCKS/PKT"), "{top}");
    assert!(top.lines().all(|line| line.chars().count() <= 100), "{top}");
    running.signal(Signal::INT);
    let report = running.wait().success().stdout;
    assert!(report.contains("CLOCKS/PKT") && report.contains("latency p50"), "{report}");
}

#[test]
fn a_clear_counts_anew_and_the_counters_go_on() {
    let sandbox = Sandbox::new();
    let network = sandbox.write("forked.toml", FORKED);
    let running = sandbox.start(&[&network]);
    eventually("packets", || received(&running, "drain") > 10_000);
    let before = received(&running, "copy");
    sandbox.bellows(&["clear"]).success();
    let cleared = received(&running, "copy");
    let costs_after = costs(&sandbox);
    let now = received(&running, "copy");
    let packets_after = packets(&costs_after, "copy", "push");
    assert_eq!(costs_after["cleared"], json!(true));
    assert!(packets_after <= now - before, "{packets_after} since, of {before} to {now}");
    assert!(now >= cleared && cleared >= before, "the counters themselves go on");
    let text = sandbox.bellows(&["show", "run"]).success().stdout;
    assert!(text.contains("since `bellows clear`"), "{text}");
    let file = running.folder().join("baseline");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);

    // An app that was removed and returned under its name counts from its return.
    sandbox.write("forked.toml", &without_counter());
    sandbox.bellows(&["reload", "forked"]).success();
    assert!(rows(&sandbox.bellows(&["show", "run", "--json"]).success().json(), "count").is_empty());
    sandbox.write("forked.toml", FORKED);
    sandbox.bellows(&["reload", "forked"]).success();
    eventually("packets of the new counter", || received(&running, "count") > cleared + 1_000);
    let before = received(&running, "count");
    let costs_after = costs(&sandbox);
    assert!(before <= packets(&costs_after, "count", "push"), "{before}, {costs_after:#}");
    assert!(packets(&costs_after, "copy", "push") > packets(&costs_after, "count", "push"), "this one has stayed");

    fs::write(&file, "{\"at_ns\": 1").unwrap();
    let said = sandbox.bellows(&["show", "run", "--json"]).success();
    assert!(said.stderr.contains("baseline") && said.stderr.contains("bellows clear"), "{said:?}");
    assert_eq!(said.json()["cleared"], json!(false));
    sandbox.bellows(&["clear", "forked"]).success();
    assert_eq!(costs(&sandbox)["cleared"], json!(true));
}

#[test]
fn a_crashed_network_still_shows_its_costs_and_timeline() {
    let sandbox = Sandbox::new();
    let network = sandbox.write("forked.toml", FORKED);
    let begin = Instant::now();
    let running = sandbox.start(&[&network]);
    costs(&sandbox);
    running.signal(Signal::KILL);
    running.wait();
    let life = begin.elapsed().as_secs_f64();
    thread::sleep(Duration::from_millis(100));
    let costs = costs(&sandbox);
    assert_eq!(costs["state"], json!("crashed"));
    let seconds = costs["seconds"].as_f64().unwrap();
    assert!(seconds <= life, "its time is that of the reader: {seconds} of {life} seconds");
    assert!(sandbox.bellows(&["show", "latency"]).success().stdout.contains("since the run began"));
    let text = sandbox.bellows(&["timeline"]).success().stdout;
    assert!(text.starts_with("forked (crashed): ") && text.contains("the slowest breaths"), "{text}");

    let said = sandbox.bellows(&["timeline", "--export", "trace.json"]).success();
    assert!(said.stderr.contains("ui.perfetto.dev"), "{said:?}");
    let trace: Value = serde_json::from_str(&fs::read_to_string(sandbox.path("trace.json")).unwrap()).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    for app in ["source", "copy", "drain"] {
        assert!(events.iter().any(|event| event["name"] == json!(app) && event["ph"] == json!("X")), "{app}");
    }
    assert_eq!(sandbox.bellows(&["timeline", "--export", "-"]).success().json(), trace);
    assert_eq!(sandbox.bellows(&["timeline", "--export", "no/where.json"]).code, Some(2));

    let said = sandbox.bellows(&["clear"]);
    assert!(said.code == Some(2) && said.stderr.contains("are evidence"), "{said:?}");
    fs::remove_file(sandbox.path("run/bellows/forked/timeline")).unwrap();
    let said = sandbox.bellows(&["timeline"]);
    assert!(said.code == Some(1) && said.stderr.contains("forked/timeline"), "{said:?}");
}

#[test]
fn the_timeline_shows_the_last_seconds() {
    let sandbox = Sandbox::new();
    let network = sandbox.write("forked.toml", FORKED);
    let _running = sandbox.start(&[&network]);
    costs(&sandbox);
    sandbox.bellows(&["reload", "forked"]).success();
    eventually("breaths after the reload", || {
        let timeline =
            sandbox.bellows(&["timeline", "--json", "--all", "--slowest", "3", "--last", "1h"]).success().json();
        let events = timeline["events"].as_array().unwrap();
        let last = events.iter().rposition(|event| event["what"] == json!("reload"));
        let calls = events.iter().skip(last.unwrap_or(events.len())).filter(|event| event["what"] == json!("call"));
        assert!(timeline["slowest"].as_array().unwrap().len() <= 3);
        let spans = timeline["spans"].as_array().unwrap();
        assert_eq!(spans.iter().filter(|span| span["reloads"] == json!([0])).count(), 1, "{spans:#?}");
        calls.count() > 100
    });
    // A busy machine may answer so late that a reload is not recorded any more.
    eventually("a reload in the text", || {
        sandbox.bellows(&["reload", "forked"]).success();
        let text = sandbox.bellows(&["timeline", "--last", "1h"]).success().stdout;
        assert!(text.lines().count() < 50, "{text}");
        text.contains("reload")
    });
    assert!(sandbox.bellows(&["timeline", "--all"]).success().stdout.contains("    push copy  "));
    let brief = sandbox.bellows(&["timeline", "--last", "1ms", "--json", "--all"]).success().json();
    let number = |value: &Value| value.as_u64().unwrap();
    let end = number(&brief["start_ns"]) + number(&brief["duration_ns"]);
    let events = brief["events"].as_array().unwrap();
    let ends = events.iter().map(|event| number(&event["start_ns"]) + number(&event["duration_ns"]));
    assert!(!events.is_empty() && ends.min() >= Some(end - 1_000_000), "{brief:#}");
    for words in [["timeline", "--last", "soon"], ["timeline", "--slowest", "-1"], ["timeline", "nobody", "--all"]] {
        assert_eq!(sandbox.bellows(&words).code, Some(2), "{words:?}");
    }
}
