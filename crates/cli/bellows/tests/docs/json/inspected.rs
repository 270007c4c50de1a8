//! What an engine does from moment to moment, packets, filters and apps.

use bellows::json_reference::{Chapter, Found};
use bellows_testkit::eventually;

use crate::json::assert_met;
use crate::support::Sandbox;

/// Two workers, a filter with machine code, and packets of which a copy is dropped.
const NETWORK: &str = r#"
links = [
    "source.output -> classes.input", "classes.udp -> copies.input",
    "copies.one -> end.input", "copies.other -> limit.input", "limit.output -> late.input",
]
[workers.other]
[apps.source]
app = "source"
headers = "ipv4"
size = 60
worker = "main"
[apps.classes]
app = "pcap-filter"
filters = { udp = "udp and less 200" }
worker = "main"
[apps.copies]
app = "tee"
worker = "main"
[apps.limit]
app = "rate-limiter"
rate = "1pps"
worker = "main"
[apps.late]
app = "sink"
worker = "main"
[apps.end]
app = "sink"
worker = "other"
"#;

/// Forms that only some outputs or machines have: unit tests compare them as a whole.
const IN_UNIT_TESTS: [&str; 16] = [
    "Timeline",
    "Late breath",
    "Slow breath",
    "Cause",
    "Call of a slow breath",
    "Suspect",
    "Event of a timeline",
    "Breath",
    "Hot spots",
    "Hot function",
    "Sampled instruction",
    "Instruction",
    "Code of an app",
    "Proposal",
    "Crossing between two processors",
    "Processors of a port",
];

#[test]
fn what_engines_do_from_moment_to_moment() {
    let sandbox = Sandbox::new();
    let mut found = Found::new();
    let mut print = |words: &[&str]| sandbox.bellows_noting(words, &mut found);
    for words in [&["apps"][..], &["apps", "source"], &["apps", "vrf"], &["apps", "engine"]] {
        print(&[words, &["--json"]].concat()).success();
    }
    print(&["filter", "tcp prt 80", "--json"]);

    let network = sandbox.write("network.toml", NETWORK);
    let running = sandbox.start(&[&network]);
    eventually("packets on the other worker", || running.counters()["links"][2]["packets"].as_u64() > Some(1_000));
    print(&["timeline", "--all", "--json"]).success();
    print(&["show", "breath", "--json"]).success();
    // Not everyone may sample.
    print(&["show", "hot", "--for", "100ms", "--json"]);
    let link = "classes.udp -> copies.input";
    print(&["tap", link, "--count", "5", "--json"]).success();
    let capture = sandbox.path("packets.pcap").display().to_string();
    print(&["tap", link, "--count", "5", "--write", &capture]).success();
    print(&["filter", "udp", "--read", &capture, "--list", "--json"]).success();
    let traced = print(&["trace", "--count", "500", "--for", "60s", "--json"]).success();
    assert!(traced.stdout.contains("\"dropped\"") && traced.stdout.contains("\"ended\""), "{traced:#?}");

    let mut place = |words: &[&str]| {
        eventually("enough samples", || {
            let said = print(&[&["place"], words, &["--json"]].concat());
            let is_lacking = said.stderr.contains("not enough is measured");
            assert!(is_lacking || said.code == Some(0), "{said:#?}");
            !is_lacking
        });
    };
    place(&["--workers", "2", "--write", "--no-cpus"]);
    sandbox.bellows(&["reload"]).success();
    place(&["--check", "--time", "300ms"]);
    drop(running);

    assert_met(Chapter::Inspected, &found, &IN_UNIT_TESTS, &[]);
}
