//! `reload --confirm`, `confirm` and `reload --undo`: changes that are undone unless they are confirmed in time.

use std::fs;
use std::time::{Duration, Instant};

use crate::support::{ENDLESS, Running, Said, Sandbox, Signal, tunnel};
use bellows_testkit::eventually;
use serde_json::{Value, json};

/// A network of two files that reads a filter, and two keys with the ends of its tunnel.
const FORMER: &str = r#"
include = ["ends.toml"]
links = ["in -> classes", "classes.match -> near.site", "classes.rest -> rest.input", "near.ip6 -> far.ip6",
  "far.site -> out.input"]
[apps.classes]
app = "pcap-filter"
file = "udp.filter"
"#;

const ENDS: &str = r#"
apps.in = { app = "source", headers = "ipv4", rate = "20kpps", size = 100 }
apps.rest.app = "sink"
apps.out.app = "sink"
"#;

const LAST: &str = "a change awaits its confirmation: the former network is put back in ";

/// The words of a list of apps.
fn apps(running: &Running) -> Vec<String> {
    let counters = running.counters();
    counters["apps"].as_array().unwrap().iter().map(|app| app["name"].as_str().unwrap().to_owned()).collect()
}

/// The packets that have come out of the tunnel.
fn received(running: &Running) -> u64 {
    let counters = running.counters();
    let app = counters["apps"].as_array().unwrap().iter().find(|app| app["name"] == "out").cloned();
    app.and_then(|app| app["in_packets"].as_u64()).unwrap_or_default()
}

/// The names of the events of the only network.
fn events(sandbox: &Sandbox) -> Vec<String> {
    let said = sandbox.bellows(&["events", "network", "--json"]).success();
    let name = |line: &str| serde_json::from_str::<Value>(line).unwrap()["event"].as_str().unwrap().to_owned();
    // A busy machine has those as well.
    let is_wanted = |name: &String| !name.starts_with("worker-") && name != "slow-breath";
    said.stdout.lines().map(name).filter(is_wanted).collect()
}

fn refused(said: &Said, why: &str) {
    assert!(said.code == Some(2) && said.stderr.contains(why), "`{why}` is not in {said:#?}");
}

/// [`ENDLESS`] with one more app.
fn with_app(name: &str) -> String {
    format!("{ENDLESS}[apps.{name}]\napp = \"sink\"\n").replace("links = [", &format!("links = [\"more -> {name}\", "))
        + "[apps.more]\napp = \"source\"\nrate = 1\n"
}

#[test]
fn a_change_that_nobody_confirms_is_undone_although_its_files_are_gone() {
    let sandbox = Sandbox::new();
    sandbox.write("ends.toml", ENDS);
    sandbox.write("udp.filter", "udp");
    sandbox.write_secret("there.key", tunnel::KEYS[0]);
    sandbox.write_secret("back.key", tunnel::KEYS[1]);
    let text = [FORMER, &tunnel::far("far", tunnel::FILES), &tunnel::near("near", tunnel::FILES)].concat();
    let network = sandbox.write("network.toml", &text);
    let mut running = sandbox.start(&[&network, "--watch"]);
    eventually("packets through the tunnel", || received(&running) > 100);

    let other = sandbox.write("other.toml", ENDLESS);
    let said = sandbox.bellows(&["reload", &other, "--confirm", "2s"]).success();
    assert!(said.stdout.contains("the former network is put back in 2.00 s unless `bellows confirm`"), "{said:#?}");
    for file in ["ends.toml", "udp.filter", "there.key", "back.key", "network.toml"] {
        fs::remove_file(sandbox.path(file)).unwrap();
    }
    assert_eq!(apps(&running), ["source", "end"]);
    running.wait_for_log("the change was not confirmed in time: the former network is back");
    eventually("packets through the tunnel again", || apps(&running).len() == 6 && received(&running) > 100);
    let report = sandbox.bellows(&["ps", "--json"]).success().json();
    assert_eq!((&report[0]["confirmation"], &report[0]["network"]), (&Value::Null, &json!(network)), "{report:#}");
    let events = events(&sandbox);
    assert_eq!(events[1..], ["reloaded", "confirmation-awaited", "change-undone", "reloaded"], "{events:?}");
    refused(&sandbox.bellows(&["confirm"]), "no change of `network` awaits its confirmation");
    refused(&sandbox.bellows(&["reload", "--undo"]), "no change of `network` awaits its confirmation");
    // Texts of keys are not kept all the time.
    refused(&sandbox.bellows(&["reload", &other, "--confirm", "1h"]), "cannot be read again");
    sandbox.write_secret("back.key", tunnel::KEYS[1]);
    sandbox.write_secret("there.key", "72a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3\n");
    let said = sandbox.bellows(&["reload", &other, "--confirm", "1h"]);
    refused(&said, "there.key` has changed since it was read");
    refused(&said, "write a new key into a new file");
    assert_eq!(apps(&running).len(), 6);
    sandbox.write_secret("there.key", tunnel::KEYS[0]);
    sandbox.bellows(&["reload", &other, "--confirm", "1h"]).success();
    sandbox.bellows(&["reload", "--undo"]).success();
    assert_eq!(apps(&running).len(), 6);
}

#[test]
fn a_confirmed_change_stays_and_no_other_reload_comes_between() {
    let sandbox = Sandbox::new();
    let network = sandbox.write("network.toml", ENDLESS);
    let mut running = sandbox.start(&[&network]);
    sandbox.write("network.toml", &with_app("first"));
    let began = Instant::now();
    let report = sandbox.bellows(&["reload", "--confirm", "3s", "--json"]).success().json();
    assert_eq!(report["confirm_ns"], json!(3_000_000_000u64), "{report:#}");
    for words in [&["ps"][..], &["show"]] {
        let said = sandbox.bellows(words).success().stdout;
        assert!(said.contains(LAST) && said.contains("`bellows confirm network` keeps the change"), "{said}");
    }
    refused(&sandbox.bellows(&["reload"]), "a change awaits its confirmation: `bellows confirm network` keeps it");
    running.signal(Signal::HUP);
    running.wait_for_log("not reloaded, the old network runs on");
    let said = sandbox.bellows(&["confirm", "network"]).success().stdout;
    assert_eq!(said, format!("confirmed: `network` goes on with `{network}`\n"));
    assert!(!sandbox.bellows(&["ps"]).success().stdout.contains(LAST));
    eventually("the time is over", || began.elapsed() > Duration::from_millis(3_500));
    assert!(apps(&running).contains(&"first".to_owned()));
    let events = events(&sandbox);
    let expected = ["reloaded", "confirmation-awaited", "reload-refused", "reload-refused", "change-confirmed"];
    assert_eq!(events[1..], expected, "{events:?}");
    sandbox.bellows(&["reload"]).success();
}

#[test]
fn the_network_that_was_confirmed_last_is_put_back() {
    let sandbox = Sandbox::new();
    let network = sandbox.write("network.toml", ENDLESS);
    let mut running = sandbox.start(&[&network]);
    for name in ["first", "second"] {
        sandbox.write("network.toml", &with_app(name));
        sandbox.bellows(&["reload", "network", "--confirm", "1h"]).success();
        assert!(apps(&running).contains(&name.to_owned()));
    }
    // An error in a further change ends nothing.
    sandbox.write("network.toml", "links = nonsense");
    refused(&sandbox.bellows(&["reload", "--confirm", "1h"]), "network.toml");
    let report = sandbox.bellows(&["ps", "--json"]).success().json();
    assert!(report[0]["confirmation"]["seconds_left"].as_u64() > Some(3_500), "{report:#}");
    refused(&sandbox.bellows(&["reload", "network", &network, "--undo"]), "--undo");
    sandbox.bellows(&["reload", "--undo"]).success();
    assert_eq!(apps(&running), ["source", "end"]);
    for (time, why) in
        [("0s", "from 1 second to 24 hours"), ("25h", "from 1 second to 24 hours"), ("soon", "--confirm")]
    {
        refused(&sandbox.bellows(&["reload", "--confirm", time]), why);
    }
    // The end of the run is the end of the wait.
    sandbox.write("network.toml", &with_app("third"));
    sandbox.bellows(&["reload", "--confirm", "1h"]).success();
    running.signal(Signal::TERM);
    running.wait_for_log("the run ends while a change awaits its confirmation");
    running.wait().success();
    let running = sandbox.start(&[&network]);
    assert!(apps(&running).contains(&"third".to_owned()));
    assert!(!sandbox.bellows(&["ps"]).success().stdout.contains(LAST));
}

#[test]
fn a_network_that_cannot_be_put_back_is_tried_again() {
    let sandbox = Sandbox::new();
    let folder = sandbox.path("captures");
    fs::create_dir(&folder).unwrap();
    let capturing = ENDLESS.replace("app = \"sink\"", "app = \"pcap-writer\"\npath = \"captures/out.pcap\"");
    let network = sandbox.write("network.toml", &capturing);
    let mut running = sandbox.start(&[&network]);
    sandbox.write("network.toml", ENDLESS);
    sandbox.bellows(&["reload", "--confirm", "1s"]).success();
    fs::remove_dir_all(&folder).unwrap();
    running.wait_for_log("the former network could not be put back, the changed one runs on");
    let failure = || sandbox.bellows(&["ps", "--json"]).success().json()[0]["confirmation"]["failure"].clone();
    assert!(failure().as_str().unwrap().contains("there is no folder"), "{}", failure());
    let said = sandbox.bellows(&["ps"]).success().stdout;
    assert!(said.contains("could not be put back") && said.contains("`bellows confirm network` keeps"), "{said}");
    refused(&sandbox.bellows(&["reload", "--undo"]), "there is no folder");
    fs::create_dir(&folder).unwrap();
    running.wait_for_log("the former network is back");
    eventually("the capture", || folder.join("out.pcap").exists());
    assert_eq!(failure(), Value::Null);
}
