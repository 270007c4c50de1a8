//! Networks: what they are and do, and are told.

use bellows::json_reference::{Chapter, Found};
use bellows_testkit::eventually;

use crate::json::assert_met;
use crate::support::Sandbox;
use crate::support::examples::checkout;

/// Two workers, a compound app, and a queue in which packets wait until a reload removes it.
const NETWORK: &str = r#"
links = ["source.output -> edge.input", "edge.output -> late.input", "late.output -> end.input"]
[workers.other]
[apps.source]
app = "source"
headers = "ipv4"
rate = "50kpps"
worker = "main"
[apps.edge]
network = "edge.toml"
[apps.late]
app = "delay"
time = "20ms"
worker = "main"
[apps.end]
app = "sink"
worker = "other"
"#;

const EDGE: &str = r#"
links = ["count.output -> limit.input"]
[ports]
inputs = { input = "count.input" }
outputs = { output = "limit.output" }
[apps.count]
app = "counter"
[apps.limit]
app = "rate-limiter"
rate = "20kpps"
"#;

/// The same without the queue.
const SHORTER: &str = r#"
links = ["source.output -> end.input"]
[workers.other]
[apps.source]
app = "source"
headers = "ipv4"
rate = "50kpps"
worker = "main"
[apps.end]
app = "sink"
worker = "other"
"#;

const RAW: &str = r#"
links = ["left.output -> right.input", "right.output -> left.input"]
[apps.left]
app = "raw-socket"
interface = "eth0"
[apps.right]
app = "raw-socket"
interface = "eth1"
"#;

const BROKEN: &str = r#"
links = ["source.output -> one.input", "source.output -> two.input"]
[apps.source]
app = "source"
rate = "10gb/s"
[apps.one]
app = "pcap-writer"
path = "same.pcap"
[apps.two]
app = "pcap-writer"
path = "same.pcap"
"#;

/// Forms that only rare outputs have: unit tests compare them as a whole.
const IN_UNIT_TESTS: [&str; 9] = [
    "Loss",
    "Imbalance",
    "Unfinished app",
    "Hang",
    "Call",
    "Drops",
    "Router interface",
    "Trial of an app",
    "Cost of a stage",
];

#[test]
fn what_networks_are_and_do() {
    let sandbox = checkout(Sandbox::new());
    let mut found = Found::new();
    let mut print = |words: &[&str]| drop(sandbox.bellows_noting(words, &mut found));
    print(&["run", "examples/quickstart.toml", "--json"]);
    print(&["check", "--json", "--privileges", &sandbox.write("raw.toml", RAW)]);
    print(&["check", "--json", &sandbox.write("broken.toml", BROKEN)]);
    print(&["events", "--list", "--json"]);

    sandbox.write("edge.toml", EDGE);
    let network = sandbox.write("network.toml", NETWORK);
    let running = sandbox.start(&[&network]);
    eventually("packets", || {
        let counters = running.counters();
        let links = counters["links"].as_array().unwrap();
        links.iter().all(|link| link["packets"].as_u64() > Some(1_000))
    });
    for part in ["apps", "links", "errors", "config", "counters", "interfaces", "latency", "run"] {
        print(&["show", part, "--json"]);
    }
    print(&["show", "run", "--advise=50ms", "--json"]);
    print(&["show", "--json"]);
    print(&["ps", "--json"]);
    print(&["ps", "--probe", "--json"]);
    print(&["top", "--once", "--json", "--interval", "100ms"]);
    sandbox.write("network.toml", SHORTER);
    print(&["reload", "--confirm", "1h", "--json"]);
    print(&["ps", "--json"]);
    print(&["confirm", "--json"]);
    print(&["show", "--json"]);
    print(&["events", "network", "--json"]);
    drop(running);

    assert_met(Chapter::Networks, &found, &IN_UNIT_TESTS, &[]);
}
