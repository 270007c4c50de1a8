//! Compound apps on the command line: their parts in every command, and the files that describe them.

use crate::support::{Running, Sandbox};
use serde_json::json;

const NETWORK: &str = r#"links = ["source -> edge", "edge -> end"]

[apps.source]
app = "source"
rate = "50kpps"

[apps.edge]
network = "edge.toml"
with = { rate = "20kpps" }

[apps.end]
app = "sink"
"#;

const EDGE: &str = r#"links = ["count.output -> limit.input"]

[ports]
inputs = { input = "count.input" }
outputs = { output = "limit.output" }

[parameters.rate]
type = "rate"

[apps.count]
app = "counter"

[apps.limit]
app = "rate-limiter"
rate = "$rate"
"#;

fn sandbox() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.write("net.toml", NETWORK);
    sandbox.write("edge.toml", EDGE);
    sandbox
}

/// The candidates of a shell for the last word.
fn completed(sandbox: &Sandbox, words: &[&str]) -> String {
    let words = [&["--", "bellows"], words].concat();
    let mut command = sandbox.command(&words);
    command.env("BELLOWS_COMPLETE", "bash").env("_BELLOWS_INDEX", (words.len() - 2).to_string());
    String::from_utf8(command.output().unwrap().stdout).unwrap().trim_end().to_owned()
}

#[test]
fn parts_are_named_in_every_command() {
    let sandbox = sandbox();
    let running: Running<'_> = sandbox.start(&["net.toml"]);
    let passed = || running.counters()["apps"][2]["in_packets"].as_u64() > Some(1_000);
    bellows_testkit::eventually("packets pass the parts", passed);

    let run = sandbox.bellows(&["show", "run", "--json"]).success().json();
    let sum = &run["compounds"][0];
    assert_eq!((&sum["name"], &sum["parts"]), (&json!("edge"), &json!(2)), "{run:#}");
    assert!(sum["packets"].as_u64() > Some(1_000), "{run:#}");
    // Calls are sampled: a run that has just begun has none.
    let show = || sandbox.bellows(&["show", "run"]).success().stdout;
    bellows_testkit::eventually("a sampled call of each part", || show().contains("\nedge/limit "));
    let text = show();
    assert!(text.contains("COMPOUND APP  PARTS"), "{text}");
    let top = sandbox.bellows(&["top", "--once"]).success().stdout;
    assert!(top.contains("edge/count "), "{top}");
    let counters = sandbox.bellows(&["show", "counters"]).success().stdout;
    assert!(counters.contains("edge/limit"), "{counters}");

    let tap = ["tap", "net", "edge/count.output -> edge/limit.input", "--count", "3"];
    assert!(sandbox.bellows(&tap).success().stderr.contains("3 packets captured"));
    let trace = sandbox.bellows(&["trace", "net", "--app", "edge/count", "--count", "1"]).success().stdout;
    assert!(trace.contains("edge/count.output -> edge/limit.input"), "{trace}");
    assert_eq!(completed(&sandbox, &["trace", "net", "--app", "edge/"]), "edge/count\nedge/limit");
    let links = completed(&sandbox, &["tap", "net", "edge"]);
    assert!(links.contains("edge/count.output -> edge/limit.input"), "{links}");

    let collapsed = sandbox.bellows(&["graph", "--name", "net", "--collapse"]).success().stdout;
    assert!(collapsed.contains("2 parts") && !collapsed.contains("edge/limit"), "{collapsed}");
    let svg = sandbox.bellows(&["graph", "--name", "net", "--format", "svg"]).success().stdout;
    assert_eq!(svg.matches("<g class=\"compound\">").count(), 1, "{svg}");

    let again = sandbox.bellows(&["reload", "net", "--restart", "edge/limit"]).success();
    assert!(format!("{}{}", again.stdout, again.stderr).contains("edge/limit"), "{again:#?}");
    let config = sandbox.bellows(&["show", "config", "net"]).success().stdout;
    assert!(config.contains("[apps.edge]") && config.contains("#part ") && config.contains("[parameters.rate]"));
}

#[test]
fn a_watched_network_reloads_when_the_file_of_a_part_changes() {
    let sandbox = sandbox();
    let mut running = sandbox.start(&["net.toml", "--watch"]);
    sandbox.write("edge.toml", &EDGE.replace("\"$rate\"", "\"10kpps\""));
    running.wait_for_log("replaced: edge/limit");
    sandbox.write("edge.toml", &EDGE.replace("\"$rate\"", "\"$rat\""));
    running.wait_for_log("there is no parameter `rat`");
    sandbox.write("edge.toml", &EDGE.replace("app = \"counter\"", "app = \"counter\"\nprefetch = 7"));
    running.wait_for_log("replaced: edge/count");
}

#[test]
fn errors_in_the_file_of_a_part_are_told_with_the_app_that_uses_it() {
    let sandbox = sandbox();
    let check = sandbox.bellows(&["check", "net.toml"]).success().stdout;
    assert_eq!(check, "net.toml: fine (4 apps, 3 links)\n");
    sandbox.write("edge.toml", &EDGE.replace("app = \"counter\"", "app = \"conter\""));
    let said = sandbox.bellows(&["check", "net.toml", "--json"]);
    assert_eq!(said.code, Some(2));
    let found = &said.json()["diagnostics"][0];
    assert_eq!((&found["file"], &found["line"]), (&json!("edge.toml"), &json!(11)), "{found:#}");
    assert_eq!(found["label"], json!("did you mean `counter`?"));
    let user = &found["related"][0];
    assert_eq!((&user["file"], &user["line"]), (&json!("net.toml"), &json!(8)), "{found:#}");
    assert_eq!(user["label"], json!("used by `edge` here"));
    let graph = sandbox.bellows(&["graph", "net.toml"]);
    assert!(graph.code == Some(2) && graph.stderr.contains("edge.toml:11:7"), "{graph:#?}");
}

#[test]
fn the_schema_of_a_part_is_another_one() {
    let sandbox = Sandbox::new();
    let schema = sandbox.bellows(&["schema", "--part"]).success().json();
    let keys: Vec<&String> = schema["properties"].as_object().unwrap().keys().collect();
    assert_eq!(keys, ["links", "ports", "parameters", "objects", "apps"]);
    let network = sandbox.bellows(&["schema"]).success().json();
    assert!(network["$defs"]["network"]["properties"]["with"].is_object());
}
