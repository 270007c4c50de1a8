//! Filters with states in a running network: the way back, a reload, and the table's status.

use std::time::Duration;

use crate::support::{Sandbox, assert_books};
use bellows_testkit::wait::within;
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(30);

/// Clients that ask, their server that answers, and strangers, on two workers; the filter of the way out.
fn network(filter: &str, table: &str) -> String {
    let source = |name: &str, worker: &str, keys: &str| {
        format!(
            "[apps.{name}]\napp = \"source\"\nheaders = \"ipv4\"\nrate = 2000\nsize = 60\nworker = \"{worker}\"\n{keys}\n"
        )
    };
    let sources = [
        source("clients", "main", "src = \"192.0.2.1\"\ndst = \"198.51.100.1\"\nsrc_port = 1000\ndst_port = 53"),
        source("server", "other", "src = \"198.51.100.1\"\ndst = \"192.0.2.1\"\nsrc_port = 53\ndst_port = 1000"),
        source("strangers", "other", "src = \"198.51.100.2\"\ndst = \"192.0.2.1\"\nsrc_port = 53\ndst_port = 1000"),
    ];
    format!(
        r#"
links = [
  "clients.output -> out.input", "out.match -> asked.input",
  "server.output -> outside.server", "strangers.output -> outside.strangers", "outside.output -> back.input",
  "back.match -> answered.input", "back.rest -> refused.input",
]
[workers.other]
[objects.flows]
object = "state-table"
{table}
{}
[apps.out]
app = "pcap-filter"
state_table = "flows"
worker = "main"
{filter}
[apps.back]
app = "pcap-filter"
state_table = "flows"
worker = "other"
[apps.outside]
app = "join"
worker = "other"
[apps.asked]
app = "sink"
worker = "main"
[apps.answered]
app = "sink"
worker = "other"
[apps.refused]
app = "sink"
worker = "other"
"#,
        sources.concat()
    )
}

fn app<'a>(report: &'a Value, name: &str) -> &'a Value {
    report["apps"].as_array().unwrap().iter().find(|app| app["name"] == json!(name)).unwrap()
}

#[test]
fn states_are_shared_by_workers_and_survive_a_reload() {
    let sandbox = Sandbox::new();
    let path = sandbox.write("network.toml", &network("filter = \"udp dst port 53\"", ""));
    let running = sandbox.start(&[&path, "--json"]);
    let packets = |name: &str| app(&running.counters(), name)["in_packets"].as_u64().unwrap();
    let flow = |names: &[&str]| {
        let before: Vec<u64> = names.iter().map(|name| packets(name)).collect();
        within(PATIENCE, "packets", || names.iter().zip(&before).all(|(name, &before)| packets(name) > before + 100));
    };
    flow(&["asked", "answered", "refused"]);
    let status = || sandbox.bellows(&["show", "status", "--json"]).success().json()["objects"][0].clone();
    let table = status();
    assert_eq!((&table["object"], &table["kind"]), (&json!("flows"), &json!("state-table")));
    assert_eq!((&table["status"]["connections"], &table["status"]["established"]), (&json!(1), &json!(1)));

    // From here on no packet of the way out matches by itself.
    for filter in ["filter = \"tcp\"", ""] {
        sandbox.write("network.toml", &network(filter, ""));
        let reload = sandbox.bellows(&["reload", "--json"]).success().json();
        assert_eq!(reload["replaced"], json!(["out"]), "{reload}");
        flow(&["asked", "answered", "refused"]);
        assert_eq!(status()["status"]["connections"], json!(1));
        let out = app(&running.counters(), "out").clone();
        assert_eq!(out["drops"]["not_matched"].as_u64().unwrap_or_default(), 0, "{out}");
    }
    let text = sandbox.bellows(&["show", "status"]).success().stdout;
    assert!(text.contains("flows") && text.contains("established"), "{text}");

    // A table with other keys is another one, and nobody admits any more.
    sandbox.write("network.toml", &network("", "capacity = 100"));
    sandbox.bellows(&["reload"]).success();
    within(PATIENCE, "the new table", || status()["status"]["connections"] == json!(0));
    let before = packets("answered");
    flow(&["refused"]);
    assert!(packets("answered") <= before + 1);
    sandbox.bellows(&["stop"]).success();
    let report = running.wait().success().json();
    assert_books(&report);
    assert!(app(&report, "refused")["in_packets"].as_u64().unwrap() > 200);
}

#[test]
fn a_table_without_a_filter_and_a_filter_without_its_table_are_named() {
    let sandbox = Sandbox::new();
    let text = network("filters = { match = \"udp\" }", "");
    let said = sandbox.bellows(&["check", &sandbox.write("wrong.toml", &text)]);
    assert!(said.stderr.contains("`state_table` and `filters` exclude each other"), "{said:#?}");
    let text = network("filter = \"udp\"", "").replace("[objects.flows]", "[objects.flow]");
    let said = sandbox.bellows(&["check", &sandbox.write("missing.toml", &text)]);
    assert!(said.stderr.contains("did you mean `flow`?"), "{said:#?}");
}
