//! Whole runs of a network that uses all that workers share, for a race detector: crossings in both directions, flows
//! over two workers, a table of two bridges, a worker that sleeps and is woken, reloads, and observers from outside.
//!
//! `cargo xtask test --races` runs this under ThreadSanitizer.

use std::time::Duration;

use crate::support::{Sandbox, assert_books};
use bellows_testkit::wait::within;
use serde_json::{Value, json};

/// Enough for a race detector, which makes everything tens of times slower.
const PATIENCE: Duration = Duration::from_secs(120);

/// A network whose last apps are on this worker.
fn network(last: &str) -> String {
    let source = |name: &str, rate: u32, addresses: [&str; 2], port: u16| {
        let [from, to] = addresses.map(|last| format!("02:00:00:00:00:{last}"));
        format!(
            "[apps.{name}]\napp = \"source\"\nrate = {rate}\nsize = 90\nheaders = \"ipv4\"\nsrc_mac = \"{from}\"\n\
             dst_mac = \"{to}\"\nsrc_port = {port}\n"
        )
    };
    let sources = [
        source("a", 4_000, ["0a", "0b"], 1),
        source("b", 4_000, ["0b", "0a"], 2),
        source("c", 1_000, ["0c", "0d"], 3),
        source("d", 1_000, ["0c", "0d"], 4),
        source("e", 1_000, ["0c", "0d"], 5),
        source("slow", 40, ["0e", "0f"], 6),
    ];
    let app = |(name, app, worker): (&str, &str, &str)| {
        let table = if app == "bridge" { "table = \"macs\"\n" } else { "" };
        format!("[apps.{name}]\napp = \"{app}\"\nworker = \"{worker}\"\n{table}")
    };
    let apps = [
        ("left", "bridge", "one"),
        ("right", "bridge", "two"),
        ("from-a", "join", "main"),
        ("spread", "rss", "main"),
        ("first", "counter", "one"),
        ("second", "counter", "two"),
        ("back", "join", last),
        ("end-a", "sink", last),
        ("end-b", "sink", "main"),
        ("end", "sink", last),
        ("woken", "sink", "idle"),
    ];
    format!(
        r#"
links = [
  "a.output -> left.a", "b.output -> right.b",
  "left.b -> end-b.input", "right.a -> end-a.input",
  "c.output -> from-a.c", "d.output -> from-a.d", "e.output -> from-a.e", "from-a.output -> spread.input",
  "spread.first -> first.input", "spread.second -> second.input",
  "first.output -> back.first", "second.output -> back.second", "back.output -> end.input",
  "slow.output -> woken.input",
]
[engine]
pool = 256
[objects.macs]
object = "mac-table"
[workers.one]
[workers.two]
[workers.idle]
{}{}
"#,
        sources.concat(),
        apps.map(app).concat()
    )
}

/// The packets that have arrived at an app.
fn arrived(report: &Value, name: &str) -> u64 {
    let apps = report["apps"].as_array().unwrap();
    apps.iter().find(|app| app["name"] == json!(name)).unwrap()["in_packets"].as_u64().unwrap()
}

#[test]
fn all_that_workers_share_is_used_at_once() {
    let sandbox = Sandbox::new();
    let path = sandbox.write("network.toml", &network("main"));
    let running = sandbox.start(&[&path, "--json"]);
    let wait_for_packets = |what: &str| {
        let ends = ["end-a", "end-b", "end", "woken"];
        let before = running.counters();
        let have_come = || {
            let now = running.counters();
            ends.iter().all(|end| arrived(&now, end) > arrived(&before, end) + 10)
        };
        within(PATIENCE, what, have_come);
    };
    wait_for_packets("packets at all ends");
    for worker in ["two", "one", "main"] {
        sandbox.write("network.toml", &network(worker));
        let report = sandbox.bellows(&["reload", "--json"]).success().json();
        assert_eq!(report["replaced"], json!([]), "{report}");
        for words in [
            &["trace", "--app", "a", "-c", "2"] as &[&str],
            &["tap", "from-a.output -> spread.input", "-c", "5"],
            &["tap", "slow.output -> woken.input", "-c", "2"],
            &["show", "status"],
            &["show", "run"],
            &["show", "--json"],
        ] {
            sandbox.bellows(words).success();
        }
        wait_for_packets("packets at all ends after a reload");
    }
    sandbox.bellows(&["stop"]).success();
    let report = running.wait().success().json();
    assert_books(&report);
    assert_eq!(report["imbalances"], json!([]));
}
