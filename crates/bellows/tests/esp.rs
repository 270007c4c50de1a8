//! `bellows esp` on a running network that needs no privileges: two ends of a tunnel under traffic.

mod support;

use std::time::Duration;

use bellows_testkit::wait::within;
use serde_json::{Value, json};
use support::{Sandbox, assert_books};

const PATIENCE: Duration = Duration::from_secs(60);

const KEYS: [&str; 4] = [
    "70a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3",
    "71a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3",
    "72a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c372a1b2c3d4e5f60718293a4b5c6d7e8f",
    "73a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3",
];

/// Two ends, of which one has its keys in the network's file and the other one in files of their own.
fn network() -> String {
    let [there, back, ..] = KEYS;
    format!(
        r#"
links = ["in.output -> near.site", "near.ip6 -> far.ip6", "far.site -> out.input"]
apps.in = {{ app = "source", headers = "ipv4", rate = "20kpps", size = 200 }}
apps.out.app = "sink"
[apps.near]
app = "esp"
local = "2001:db8::1"
[apps.near.associations.site]
remote = "2001:db8::2"
outbound = {{ spi = 0x1001, algorithm = "aes-128-gcm", key = "{there}", hard = {{ packets = 1000000000 }} }}
inbound = {{ spi = 0x1002, algorithm = "aes-128-gcm", key = "{back}" }}
[apps.far]
app = "esp"
local = "2001:db8::2"
[apps.far.associations.site]
remote = "2001:db8::1"
inbound = {{ spi = 0x1001, algorithm = "aes-128-gcm", key_file = "there.key" }}
outbound = {{ spi = 0x1002, algorithm = "aes-128-gcm", key_file = "back.key" }}
"#
    )
}

/// Fails if a text has a part of a key.
fn assert_hidden(text: &str) {
    assert!(!text.contains("b2c3d4e5") && !text.contains("293a4b5c"), "{text}");
}

#[test]
fn pairs_are_shown_and_get_new_keys_under_traffic() {
    let sandbox = Sandbox::new();
    for (name, key) in ["there.key", "back.key", "new.key", "short.key"].iter().zip(KEYS) {
        sandbox.write(name, &format!("{key}\n"));
    }
    let path = sandbox.write("network.toml", &network());
    let running = sandbox.start(&[&path, "--json"]);
    let show = |words: &[&str]| {
        let said = sandbox.bellows(&[&["esp", "show", "--json"], words].concat()).fine();
        assert_hidden(&said.stdout);
        said.json()
    };
    let received = || show(&["--app", "far"])["pairs"][0]["inbound"].clone();
    within(PATIENCE, "packets", || received()["packets"].as_u64() > Some(500));
    let pairs = show(&["site"]);
    assert_eq!(pairs["pairs"].as_array().map(Vec::len), Some(2));
    assert!(pairs["instructions"].is_string());
    let near = pairs["pairs"].as_array().unwrap().iter().find(|pair| pair["app"] == "near").unwrap();
    assert_eq!(
        (&near["outbound"]["spi"], &near["outbound"]["hard"]["packets"]),
        (&json!(0x1001), &json!(1_000_000_000))
    );
    let table = sandbox.bellows(&["esp"]).fine().stdout;
    assert!(table.contains("0x00001001") && table.contains("aes-128-gcm"), "{table}");

    let [key, short] = ["new.key", "short.key"].map(|name| sandbox.path(name).display().to_string());
    let rekey = |app: &str, way: &str, words: [&str; 3]| {
        sandbox.bellows(&[&["esp", "rekey", "site", "--app", app, way], &words[..]].concat())
    };
    rekey("far", "--inbound", ["0x2001", "aes-256-gcm", &key]).fine();
    rekey("near", "--outbound", ["0x2001", "aes-256-gcm", &key]).fine();
    within(PATIENCE, "packets with the new key", || {
        let inbound = received();
        inbound["spi"] == 0x2001 && inbound["packets"].as_u64() > Some(500)
    });
    assert_eq!(show(&["--app", "far"])["pairs"][0]["old"], 1);
    for (way, words, said) in [
        ("--inbound", ["0x2001", "aes-128-gcm", &short], "new keys need a new SPI"),
        ("--inbound", ["7", "aes-128-gcm", &short], "SPI 7 is reserved"),
        ("--inbound", ["0x3001", "aes-256-gcm", &short], "aes-256-gcm needs 36 bytes"),
        ("--inbound", ["0x3001", "aes-192-gcm", &short], "`algorithm` is no cipher"),
        ("--inbound", ["x", "aes-128-gcm", &short], "`x` is no SPI"),
        ("--inbound", ["0x3001", "aes-128-gcm", "nothing"], "`nothing` cannot be read"),
        ("--outbound", ["0x3001", "aes-256-gcm", &key], "in use"),
    ] {
        let refused = rekey("far", way, words);
        assert!(refused.stderr.contains(said), "{}", refused.stderr);
        assert_hidden(&refused.stderr);
    }
    let refused = sandbox.bellows(&["esp", "rekey", "site", "--inbound", "0x3001", "aes-128-gcm", &short]);
    assert!(refused.stderr.contains("several apps have a pair `site`"), "{}", refused.stderr);
    for words in [&["show", "config"][..], &["show", "config", "--json"], &["show", "status"], &["show", "--json"]] {
        assert_hidden(&sandbox.bellows(words).fine().stdout);
    }

    sandbox.bellows(&["stop"]).fine();
    let report = running.wait().fine();
    assert_hidden(&report.stdout);
    assert_hidden(&report.stderr);
    let report = report.json();
    assert_books(&report);
    let drops = |app: &Value| app["drops"].as_object().unwrap().values().filter_map(Value::as_u64).sum::<u64>();
    let ends = report["apps"].as_array().unwrap().iter().filter(|app| app["name"] == "near" || app["name"] == "far");
    assert_eq!(ends.map(drops).collect::<Vec<_>>(), [0, 0], "{report:#}");
}
