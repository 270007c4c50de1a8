//! `bellows show mac` and `bellows clear mac` on a running bridge.

use std::time::Duration;

use crate::support::{Sandbox, assert_books};
use bellows_testkit::wait::within;
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(60);

/// A station that sends to another one, a bridge with VLANs, and one with a table of its own.
const NETWORK: &str = r#"
links = [
  "one.output -> lan.one", "lan.one -> end.a", "lan.two -> end.b",
  "other.output -> small.left", "small.left -> end.c", "small.right -> end.d",
]
[apps.one]
app = "source"
headers = "ipv4"
rate = "1kpps"
size = 60
src_mac = "02:00:00:00:00:01"
dst_mac = "02:00:00:00:00:02"
[apps.other]
app = "source"
headers = "ipv4"
rate = "1kpps"
size = 60
src_mac = "02:00:00:00:00:03"
[apps.end]
app = "join"
[apps.lan]
app = "bridge"
table = "macs"
ports.one = { access = 5 }
ports.two = { trunk = "5,7" }
[apps.small]
app = "bridge"
[objects.macs]
object = "mac-table"
static = { "02:00:00:00:00:02 vlan 5" = "two" }
"#;

fn addresses(shown: &Value, table: &str) -> Vec<String> {
    let tables = shown["tables"].as_array().unwrap();
    let of = tables.iter().find(|one| one["table"] == table).unwrap_or_else(|| panic!("{shown:#}"));
    of["addresses"].as_array().unwrap().iter().map(|one| one["mac"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn addresses_are_shown_selected_and_forgotten() {
    let sandbox = Sandbox::new();
    let text = NETWORK.replace("[apps.end]", "[apps.sink]\napp = \"sink\"\n[apps.end]");
    let text = text.replace("links = [", "links = [\n\"end.output -> sink.input\",");
    let path = sandbox.write("lan.toml", &text);
    let running = sandbox.start(&[&path, "--json"]);
    let show = |words: &[&str]| sandbox.bellows(&[&["show", "mac"], words, &["--json"]].concat()).success().json();
    within(PATIENCE, "all addresses", || {
        let shown = show(&[]);
        addresses(&shown, "macs").len() == 2 && addresses(&shown, "small").len() == 1
    });
    let shown = show(&["--table", "macs"]);
    assert_eq!(addresses(&shown, "macs"), ["02:00:00:00:00:01", "02:00:00:00:00:02"]);
    let of_two = &shown["tables"][0]["addresses"][1];
    let expected =
        json!({ "mac": "02:00:00:00:00:02", "vlan": 5, "port": "two", "state": "static", "age_seconds": null });
    assert_eq!((of_two, &shown["name"]), (&expected, &json!("lan")));
    // A port need not be one of each table.
    assert_eq!(addresses(&show(&["--port", "one"]), "macs"), ["02:00:00:00:00:01"]);
    let table = sandbox.bellows(&["show", "mac", "--vlan", "5"]).success().stdout;
    assert!(table.starts_with("MAC ") && table.contains("02:00:00:00:00:01") && !table.contains("small"), "{table}");
    for (words, said) in [
        (&["show", "mac", "--table", "mcas"][..], "did you mean `macs`?"),
        (&["show", "mac", "--port", "three"], "there is no port `three`"),
        (&["show", "mac", "--mac", "2"], "is not a MAC address"),
        (&["show", "run", "--port", "one"], "are for `show mac`"),
        (&["clear", "--port", "one"], "are for `clear mac`"),
        (&["show", "mac", "--vlan", "4095"], "4095"),
    ] {
        let message = sandbox.bellows(words).stderr;
        assert!(message.contains(said), "{message}");
    }
    // What is forgotten is learned again.
    let cleared = sandbox.bellows(&["clear", "mac", "lan", "--port", "one", "--json"]).success().json();
    assert_eq!(cleared, json!({ "name": "lan", "deleted": 1 }));
    within(PATIENCE, "the address again", || addresses(&show(&["--port", "one"]), "macs").len() == 1);
    let said = sandbox.bellows(&["clear", "mac", "--table", "small"]).success();
    assert!(said.stderr.contains("1 MAC address forgotten") || said.stderr.contains("0 MAC addresses"), "{said:?}");
    // A reload with other keys keeps what is known, and takes static addresses from the file.
    sandbox.write("lan.toml", &text.replace("00:02 vlan 5\" = \"two\"", "00:09 vlan 7\" = \"two\""));
    sandbox.bellows(&["reload"]).success();
    assert_eq!(addresses(&show(&["--table", "macs"]), "macs"), ["02:00:00:00:00:01", "02:00:00:00:00:09"]);
    sandbox.bellows(&["stop"]).success();
    assert_books(&running.wait().success().json());
}
