//! `bellows check` finds everything that keeps a network from starting, and `run` rejects it with the same words.

mod support;

use std::fs;

use serde_json::json;
use support::{IDLE, Sandbox};

/// Two writers on one file, a reader of a file that is being written, impossible sockets, and a missing processor.
const IN_EACH_OTHERS_WAY: &str = r#"
links = [
  "gen -> copy",
  "copy -> one",
  "copy -> two",
  "copy.three -> guest.input",
  "copy.four -> other.input",
]
[engine]
cpu = 4095
[apps.gen]
app = "source"
count = 10
rate = "10gb/s"
[apps.copy]
app = "tee"
[apps.one]
app = "pcap-writer"
path = "old.pcap"
rotate = "1MB"
[apps.two]
app = "pcap-writer"
path = "./old.pcap"
[apps.guest]
app = "vhost-user"
socket = "no/such/folder/socket"
mac = "02:00"
[apps.other]
app = "vhost-user"
socket = "old.pcap"
"#;

#[test]
fn run_refuses_with_the_words_of_check_and_touches_nothing() {
    let sandbox = Sandbox::new();
    sandbox.write("old.pcap", "precious");
    let network = sandbox.write("net.toml", IN_EACH_OTHERS_WAY);
    let checked = sandbox.bellows(&["check", &network]);
    let run = sandbox.bellows(&["run", &network]);
    assert_eq!((checked.code, run.code), (Some(2), Some(2)), "{checked:?}");
    assert_eq!((checked.stdout.as_str(), run.stdout.as_str()), ("", ""));
    assert_eq!(checked.stderr, run.stderr);
    for expected in [
        "there is no processor 4095 for this process",
        "`10gb/s` is not a rate",
        "did you mean `10Gb/s`?",
        "`two`: `one` and `two` write the same file",
        "there is no folder",
        "`02:00` is not an Ethernet address",
        "exists and is not a socket",
    ] {
        assert!(checked.stderr.contains(expected), "no {expected:?} in\n{}", checked.stderr);
    }
    assert_eq!(checked.stderr.matches("02:00:00:00:00:01").count(), 1, "{}", checked.stderr);
    assert_eq!(fs::read_to_string(sandbox.path("old.pcap")).unwrap(), "precious");
    assert!(!sandbox.path("run/bellows").exists(), "nothing was started");
}

/// A router with a mistake in each of several places, and a file of routes with many.
const ROUTER: &str = r#"
links = ["in.output -> router.lan", "router.lan -> out.input"]
[apps.in]
app = "source"
count = 10
[apps.out]
app = "sink"
[apps.router]
app = "router"
file = "routes.txt"
[apps.router.interfaces.lan]
mac = "02:00:00:00:00:01"
addresses = ["192.0.2.1/24", "198.51.100.1/24"]
neighbours = { "192.0.2.7" = "04:00:00:00:00:07" }
access_in = ["permit"]
"#;

#[test]
fn mistakes_in_a_routers_keys_and_files_are_shown_where_they_are() {
    let sandbox = Sandbox::new();
    let network = sandbox.write("net.toml", ROUTER);
    let check = |text: &str, routes: &str| {
        sandbox.write("net.toml", text);
        sandbox.write("routes.txt", routes);
        sandbox.bellows(&["check", &network])
    };
    let fine = check(ROUTER, "# none\n203.0.113.0/24 via 192.0.2.9\n");
    assert_eq!(fine.code, Some(0), "{fine:?}");
    for (wrong, right, line, marked) in [
        ("\"198.51.100.1/33\"", "\"198.51.100.1/24\"", 13, "^^^^^^^^^^^^^^^^^"),
        ("\"192.0.3.7\" = ", "\"192.0.2.7\" = ", 14, "is not on the link of `lan`"),
        ("\"permit tcp prot 7\"", "\"permit\"", 15, "^^^^"),
        ("\"02:00:00\"", "\"02:00:00:00:00:01\"", 12, "^^^^^^^^^^"),
    ] {
        let said = check(&ROUTER.replace(right, wrong), "").stderr;
        assert!(said.contains(&format!("net.toml:{line}:")) && said.contains(marked), "{wrong}:\n{said}");
    }
    let lines = ["10.0.0.0/8 via 192.0.2.9", "10.0.0.0/33 via 192.0.2.9", "", "  11.0.0.0/8 dev lam"];
    let routes = [&lines.join("\n"), "\n", &"nonsense\n".repeat(30)].concat();
    let said = check(ROUTER, &routes);
    assert_eq!(said.code, Some(2), "{said:?}");
    for expected in [
        "routes.txt:2:1",
        "2 | 10.0.0.0/33 via 192.0.2.9\n",
        "routes.txt:4:18",
        "did you mean `lan`?",
        "`router/vrf` reads it",
        "has 12 more",
    ] {
        assert!(said.stderr.contains(expected), "no {expected:?} in\n{}", said.stderr);
    }
    assert_eq!(said.stderr.matches("error: ").count(), 21, "{}", said.stderr);
}

#[test]
fn several_networks_are_checked_at_once() {
    let sandbox = Sandbox::new();
    sandbox.write("good.toml", IDLE);
    sandbox.write("bad.toml", &IDLE.replace("size = 60", "size = 0"));
    let said = sandbox.bellows(&["check", "good.toml", "bad.toml", "missing.toml", "good.toml"]);
    assert_eq!(said.code, Some(2), "{said:?}");
    assert_eq!(said.stdout, "good.toml: fine (2 apps, 1 link)\n".repeat(2));
    assert!(said.stderr.contains("bad.toml:5") && said.stderr.contains("cannot read `missing.toml`"), "{said:?}");
    assert_eq!(sandbox.bellows(&["check", "good.toml", "good.toml"]).fine().stderr, "");
    let said = sandbox.bellows(&["check", "--json", "good.toml", "bad.toml"]);
    let oks: Vec<_> = said.json().as_array().unwrap().iter().map(|result| result["ok"].clone()).collect();
    assert_eq!((said.code, oks), (Some(2), vec![json!(true), json!(false)]));
    assert_eq!(sandbox.bellows(&["check", "--json", "good.toml"]).fine().json()["ok"], true);
}

#[test]
fn a_path_that_is_set_is_relative_to_the_shell() {
    let sandbox = Sandbox::new();
    fs::create_dir_all(sandbox.path("nets")).unwrap();
    let text = "links = [\"gen -> out\"]\n[apps.gen]\napp = \"source\"\ncount = 3\n\
                [apps.out]\napp = \"pcap-writer\"\npath = \"out.pcap\"\n";
    sandbox.write("nets/net.toml", text);
    sandbox.bellows(&["run", "nets/net.toml"]).fine();
    sandbox.bellows(&["run", "nets/net.toml", "--set", "apps.out.path=mine.pcap"]).fine();
    let there = |name: &str| sandbox.path(name).exists();
    assert!(there("nets/out.pcap") && there("mine.pcap") && !there("nets/mine.pcap"));
}

#[test]
fn a_key_of_the_file_is_taken_out_from_the_command_line() {
    let sandbox = Sandbox::new();
    let network = sandbox.write("limited.toml", &IDLE.replace("rate = 0.0003", "rate = 0.0003\ncount = 5"));
    let words = ["run", &network, "--json", "--set", "apps.source.rate="];
    let report = sandbox.bellows(&words).fine().json();
    assert_eq!(report["links"][0]["packets"], json!(5), "without its rate it is done at once");
    let help = sandbox.bellows(&["run", "--help"]).fine().stdout;
    assert!(help.contains("KEY="), "{help}");
    let said = sandbox.bellows(&["check", &network, "--set", "apps.source.raet="]).fine();
    assert!(said.stderr.contains("did you mean `rate`?"), "{said:#?}");
}

#[test]
fn a_missing_processor_is_an_error_that_lists_the_available_ones() {
    let sandbox = Sandbox::new();
    let network = sandbox.write("idle.toml", &IDLE.replace("[apps.source]", "[engine]\ncpu = 4095\n[apps.source]"));
    for words in [&["run", &network, "--cpu", "4095"][..], &["bench", "vring", "--cpu", "4095"]] {
        let said = sandbox.bellows(words);
        assert_eq!(said.code, Some(2), "{said:?}");
        assert!(said.stderr.contains("there is no processor 4095 for this process; it may use 0"), "{said:?}");
    }
    // The command line overrides the file.
    sandbox.bellows(&["run", &network, "--cpu", "0", "--duration", "50ms"]).fine();
}

#[test]
fn the_schema_is_printed_whole() {
    let sandbox = Sandbox::new();
    let schema = sandbox.bellows(&["schema"]).fine().json();
    assert_eq!(schema["$defs"]["app.source"]["properties"]["app"]["const"], "source");
    let help = sandbox.bellows(&["schema", "--help"]).fine().stdout;
    assert!(help.contains("#:schema ./bellows.schema.json"), "{help}");
}
