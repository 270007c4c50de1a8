//! The reference of the JSON that commands print has all their keys, and no others.
//!
//! That the JSON of every other test has its form is checked where the tests run commands.

mod support;

use std::fs;

use bellows::forms::{Found, all_forms};
use bellows_testkit::eventually;
use support::examples::checkout;
use support::{Sandbox, forms, root};

const BEGIN: &str = "<!-- generated: bellows schema --reports -->\n";
const END: &str = "<!-- end -->\n";

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

const CAMPAIGN: &str = r#"
name = "sizes"
repeats = 1
command = { shell = "case {size} in 60) echo rate=1.5;; 64) echo;; *) echo broken >&2; exit 3;; esac" }
[factors]
size = ["60", "64", "9000"]
[versions]
shell = { shell = "echo 1" }
[score]
name = "rate"
unit = "Mpps"
pattern = 'rate=(?<rate>[0-9.]+)'
[[hypothesis]]
name = "small packets are faster"
factor = "size"
compare = ["60", "64"]
direction = "greater"
repeats = 8
"#;

/// Forms that only rare outputs have: unit tests compare them as a whole.
const IN_UNIT_TESTS: [&str; 13] = [
    "Loss",
    "Imbalance",
    "Unfinished app",
    "Hang",
    "Call",
    "Drops",
    "Router interface",
    "Trial of an app",
    "Benchmark",
    "Machine",
    "Figure",
    "Ratio",
    "Overhead",
];

/// Keys that depend on the machine.
const MAY_BE_ABSENT: [(&str, &str); 1] = [("Run of a campaign", "disturbed")];

#[test]
fn the_reference_has_the_keys_that_commands_print_and_no_others() {
    let sandbox = checkout(Sandbox::new());
    let mut found = Found::new();
    let mut print = |words: &[&str]| forms::compare(words, &sandbox.bellows(words).stdout, &mut found);
    print(&["run", "examples/quickstart.toml", "--json"]);
    print(&["check", "--json", "--privileges", &sandbox.write("raw.toml", RAW)]);
    print(&["check", "--json", &sandbox.write("broken.toml", BROKEN)]);
    print(&["events", "--list", "--json"]);

    let campaign = sandbox.write("sizes.toml", CAMPAIGN);
    sandbox.bellows(&["campaign", "register", &campaign]).fine();
    print(&["campaign", "run", &campaign, "--json"]);
    print(&["campaign", "status", &campaign, "--json"]);

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
    print(&["reload", "--json"]);
    print(&["show", "--json"]);
    print(&["events", "network", "--json"]);
    drop(running);

    let is_met = |form: &str, key: &str| {
        found.contains(&(form, key)) || IN_UNIT_TESTS.contains(&form) || MAY_BE_ABSENT.contains(&(form, key))
    };
    let mut seen = 0;
    for form in all_forms() {
        for (owner, key) in form.all_keys() {
            assert!(is_met(owner.title, key.name), "no command printed the key `{}` of {}", key.name, owner.title);
            seen += 1;
        }
    }
    assert!(seen > 250, "{seen}");
    for title in IN_UNIT_TESTS {
        assert!(all_forms().iter().any(|form| form.title == title), "there is no form {title}");
    }
}

#[test]
fn the_reference_in_the_documentation_is_that_of_the_program() {
    let path = root().join("docs/json.md");
    let page = fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once(BEGIN).expect("the beginning of the reference");
    let (reference, after) = rest.split_once(END).expect("the end of the reference");
    let printed = Sandbox::new().bellows(&["schema", "--reports"]).fine().stdout;
    if std::env::var_os("BELLOWS_WRITE_README").is_some() {
        fs::write(&path, format!("{before}{BEGIN}\n{printed}\n{END}{after}")).unwrap();
        return;
    }
    let different = reference.trim().lines().zip(printed.trim().lines()).find(|(page, printed)| page != printed);
    assert!(
        reference.trim() == printed.trim(),
        "docs/json.md has another reference than `bellows schema --reports` prints, from here on: {different:?}; \
         BELLOWS_WRITE_README=1 cargo test -p bellows --test json the_reference_in writes it"
    );
}
