//! The events that networks keep.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::thread;
use std::time::Duration;

use bellows::json_reference::Found;
use bellows_events::{ALL, EventInfo};
use bellows_sys::clock;
use bellows_testkit::eventually;
use bellows_testkit::wait::Watchdog;
use serde_json::{Value, json};

use crate::support::{ENDLESS, Sandbox, Signal, json_reference};

/// Whether an event is one that a busy machine causes.
fn is_of_machine(event: &Value) -> bool {
    ["slow-breath", "worker-stalled", "worker-recovered"].iter().any(|name| event["event"] == *name)
}

/// The events of a history, which must be as they are declared, except those that a busy machine causes.
fn history(sandbox: &Sandbox, words: &[&str]) -> Vec<Value> {
    let said = sandbox.bellows(&[&["events", "--json"], words].concat()).success();
    let mut events: Vec<Value> = said.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for event in &events {
        let info = EventInfo::named(event["event"].as_str().unwrap()).unwrap_or_else(|| panic!("{event:#}"));
        assert_eq!(event["level"], info.level.name(), "{event:#}");
        for field in event["fields"].as_object().unwrap().keys() {
            assert!(info.fields.iter().any(|declared| declared.name == field), "{event:#}");
        }
    }
    events.retain(|event| !is_of_machine(event));
    events
}

fn names(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["event"].as_str().unwrap()).collect()
}

#[test]
fn what_happened_to_a_network_is_there_when_it_has_ended() {
    let sandbox = Sandbox::new();
    let network = sandbox.write("network.toml", ENDLESS);
    let running = sandbox.start(&[&network, "--name", "edge"]);
    sandbox.write("network.toml", &ENDLESS.replace("end", "finish").replace("sfinish", "send"));
    sandbox.bellows(&["reload", "edge"]).success();
    sandbox.write("network.toml", "links = nonsense");
    assert_eq!(sandbox.bellows(&["reload", "edge"]).code, Some(2));
    sandbox.bellows(&["stop", "edge"]).success();
    running.wait().success();
    assert!(!sandbox.path("run/bellows/edge").exists());
    let events = history(&sandbox, &["edge"]);
    assert_eq!(names(&events), ["started", "reloaded", "reload-refused", "stopping", "stopped"], "{events:#?}");
    let field = |event: usize, name: &str| events[event]["fields"][name].clone();
    assert_eq!(field(0, "source"), json!(network));
    assert_eq!((field(1, "by"), field(1, "kept"), field(1, "added")), (json!("request"), json!(1), json!(1)));
    assert!(events[2]["message"].as_str().unwrap().contains("nonsense"), "{:#}", events[2]);
    assert_eq!(
        (field(3, "by"), field(4, "end"), field(4, "exit_code")),
        (json!("request"), json!("stopped"), json!(0))
    );
    let times: Vec<u64> = events.iter().map(|event| event["time_ns"].as_u64().unwrap()).collect();
    assert!(times.is_sorted(), "{times:?}");
    let text = sandbox.bellows(&["events"]).success().stdout;
    assert!(text.lines().next().unwrap().contains(" edge started: running `"), "{text}");
    assert_eq!(history(&sandbox, &["--since", "0s"]), Vec::<Value>::new());
    assert_eq!(history(&sandbox, &["--since", "10m"]).len(), 5);
    let said = sandbox.bellows(&["events", "core"]);
    assert!(said.code == Some(2) && said.stderr.contains("no events of one"), "{said:#?}");
}

#[test]
fn events_are_kept_whatever_is_logged() {
    let sandbox = Sandbox::new();
    let network = sandbox.write("network.toml", &ENDLESS.replace("rate = \"100kpps\"", "count = 10"));
    let said = sandbox.bellows(&["run", &network, "--log-level", "off"]).success();
    assert_eq!(said.stderr, "");
    let events = history(&sandbox, &[]);
    assert_eq!(names(&events), ["started", "stopped"]);
    // An app that cannot start.
    let port = "links = [\"port -> end\"]\n[apps.port]\napp = \"raw-socket\"\ninterface = \"nowhere0\"\n\
                [apps.end]\napp = \"sink\"\n";
    let said = sandbox.bellows(&["run", &sandbox.write("wrong.toml", port)]);
    assert_eq!(said.code, Some(2), "{said:#?}");
    let events = history(&sandbox, &["wrong"]);
    let last = events.last().unwrap();
    assert_eq!(last["event"], "start-failed", "{events:#?}");
    assert!(said.stderr.contains(last["message"].as_str().unwrap()), "{events:#?}");
}

#[test]
fn a_log_of_json_has_the_names_and_fields_of_events() {
    let sandbox = Sandbox::new();
    let network = sandbox.write("network.toml", &ENDLESS.replace("rate = \"100kpps\"", "count = 10"));
    let said = sandbox.bellows(&["run", &network, "--log-format", "json"]).success();
    let records: Vec<Value> = said.stderr.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let named =
        |name: &str| records.iter().find(|record| record["event"] == name).unwrap_or_else(|| panic!("{said:#?}"));
    assert_eq!((&named("started")["source"], &named("started")["level"]), (&json!(network), &json!("INFO")));
    assert_eq!(named("stopped")["end"], json!("done"));
    let said = sandbox.bellows(&["run", &network]).success();
    assert!(!said.stderr.contains("source="), "the text has the message alone: {said:#?}");
}

/// `bellows events --follow`, whose lines are read one by one.
struct Following {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
    _watchdog: Watchdog,
}

impl Following {
    fn start(sandbox: &Sandbox, words: &[&str]) -> Following {
        let mut command = sandbox.command(&[&["events", "--follow", "--json"], words].concat());
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let watchdog = Watchdog::new(&child);
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Following { child, lines, _watchdog: watchdog }
    }

    /// The next event that the machine does not cause.
    fn next(&mut self) -> Value {
        loop {
            let line = self.lines.next().unwrap().unwrap();
            json_reference::compare(&["events", "--json"], &line, &mut Found::new());
            let event = serde_json::from_str(&line).unwrap();
            if !is_of_machine(&event) {
                return event;
            }
        }
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_follower_sees_later_networks_and_each_crash_once() {
    let sandbox = Sandbox::new();
    let network = sandbox.write("network.toml", ENDLESS);
    let mut following = Following::start(&sandbox, &[]);
    let first = sandbox.start(&[&network, "--name", "edge"]);
    let started = following.next();
    assert_eq!((&started["event"], &started["network"]), (&json!("started"), &json!("edge")), "{started:#}");
    first.signal(Signal::KILL);
    let pid = first.pid();
    let crashed = following.next();
    assert_eq!((&crashed["event"], &crashed["fields"]["last_pid"]), (&json!("crashed"), &json!(pid)), "{crashed:#}");
    first.wait();
    // One that looks once deduces the same event.
    let seen = history(&sandbox, &["edge"]);
    assert_eq!((names(&seen), &seen[1]), (vec!["started", "crashed"], &crashed));
    // The next run of the name writes it, and the follower has it already.
    let second = sandbox.start(&[&network, "--name", "edge"]);
    let third = sandbox.start(&[&network, "--name", "core"]);
    assert_eq!([following.next(), following.next()].map(|event| event["event"].clone()), ["started", "started"]);
    let written = history(&sandbox, &["edge"]);
    assert_eq!((names(&written), &written[1]["id"]), (vec!["started", "crashed", "started"], &crashed["id"]));
    sandbox.bellows(&["stop", "edge"]).success();
    second.wait().success();
    assert_eq!([following.next(), following.next()].map(|event| event["event"].clone()), ["stopping", "stopped"]);
    drop(third);
}

/// The events `crashed` of a network, without the process that wrote them.
fn crashes(sandbox: &Sandbox, words: &[&str]) -> Vec<Value> {
    let mut events = history(sandbox, words);
    events.retain(|event| event["event"] == "crashed");
    events.iter_mut().for_each(|event| drop(event.as_object_mut().unwrap().remove("pid")));
    events
}

/// Starts a network named `edge` and kills it when it has written that it has started. Returns its process.
fn crash(sandbox: &Sandbox, network: &str) -> u32 {
    let running = sandbox.start(&[network, "--name", "edge"]);
    let has_started = |event: &Value| event["event"] == "started" && event["pid"] == json!(running.pid());
    eventually("the event of the start", || history(sandbox, &["edge"]).last().is_some_and(has_started));
    let pid = running.pid();
    running.signal(Signal::KILL);
    running.wait();
    pid
}

#[test]
fn a_crash_is_the_same_event_for_all_readers_and_the_next_run() {
    let sandbox = Sandbox::new();
    let network = sandbox.write("network.toml", ENDLESS);
    let pid = crash(&sandbox, &network);
    let end = clock::unix_ns();
    let first = crashes(&sandbox, &["edge"]);
    let started = history(&sandbox, &["edge"])[0]["time_ns"].as_u64().unwrap();
    let time = first[0]["time_ns"].as_u64().unwrap();
    assert!((started..=end).contains(&time), "{started} to {end}: {first:#?}");
    assert_eq!(first[0]["message"], json!(format!("the process {pid} has ended without ending its run")));
    assert_eq!(crashes(&sandbox, &["edge"]), first);
    // It is an old one for those who ask for new ones.
    thread::sleep(Duration::from_millis(200));
    assert_eq!(history(&sandbox, &["--since", "100ms"]), Vec::<Value>::new());
    let mut following = Following::start(&sandbox, &["--since", "0s"]);
    let core = sandbox.start(&[&network, "--name", "core"]);
    assert_eq!(following.next()["network"], "core");
    drop((following, core));
    let next = sandbox.start(&[&network, "--name", "edge"]);
    assert_eq!(crashes(&sandbox, &["edge"]), first);
    sandbox.bellows(&["stop", "edge"]).success();
    let said = next.wait().success();
    assert!(said.stderr.contains(first[0]["message"].as_str().unwrap()), "{said:#?}");
    assert_eq!(crashes(&sandbox, &["edge"]), first);
}

#[test]
fn a_crash_stays_in_the_history_when_its_remains_are_removed() {
    let sandbox = Sandbox::new();
    let network = sandbox.write("network.toml", ENDLESS);
    crash(&sandbox, &network);
    let first = history(&sandbox, &["edge"]);
    sandbox.bellows(&["ps", "--clean"]).success();
    assert!(!sandbox.path("run/bellows/edge").exists());
    assert_eq!((history(&sandbox, &["edge"]), names(&first)), (first.clone(), vec!["started", "crashed"]));
    // The next runs have nothing to add.
    crash(&sandbox, &network);
    crash(&sandbox, &network);
    let all = history(&sandbox, &["edge"]);
    assert_eq!(names(&all), ["started", "crashed"].repeat(3));
    // One was reported already, by the run after it.
    sandbox.bellows(&["ps", "--clean"]).success();
    assert_eq!((history(&sandbox, &["edge"]), &all[..2]), (all.clone(), &first[..]));
    sandbox.bellows(&["ps", "--clean"]).success();
    assert_eq!(history(&sandbox, &["edge"]), all);
}

/// Its process was last seen before the follower began.
#[test]
fn a_follower_sees_the_crash_of_a_network_that_stood_still() {
    let sandbox = Sandbox::new();
    let network = sandbox.write("network.toml", ENDLESS);
    let stopped = sandbox.start(&[&network, "--name", "edge"]);
    eventually("the event of the start", || names(&history(&sandbox, &["edge"])) == ["started"]);
    stopped.signal(Signal::STOP);
    let is_stopped = || sandbox.bellows(&["ps", "edge", "--json"]).success().json()[0]["state"] == "stopped";
    eventually("the process is stopped", is_stopped);
    let begin = clock::unix_ns();
    let mut following = Following::start(&sandbox, &["--since", "0s"]);
    // Then it has looked at the other one, too.
    let _core = sandbox.start(&[&network, "--name", "core"]);
    assert_eq!(following.next()["network"], "core");
    stopped.signal(Signal::KILL);
    let crashed = following.next();
    assert_eq!((&crashed["event"], &crashed["network"]), (&json!("crashed"), &json!("edge")), "{crashed:#}");
    assert!(crashed["time_ns"].as_u64().unwrap() < begin, "{crashed:#}");
    stopped.wait();
}

#[test]
fn damaged_lines_are_skipped_and_told() {
    let sandbox = Sandbox::new();
    let network = sandbox.write("network.toml", &ENDLESS.replace("rate = \"100kpps\"", "count = 10"));
    sandbox.bellows(&["run", &network]).success();
    let path = sandbox.path("run/bellows/.events/network");
    let content = fs::read(&path).unwrap();
    // The last line was not completed when the process died.
    fs::write(&path, &content[..content.len() - 20]).unwrap();
    let text = sandbox.bellows(&["events"]).success().stdout;
    assert!(text.ends_with("-- network: missing here: 1 line damaged\n"), "{text}");
    sandbox.bellows(&["run", &network]).success();
    let events = history(&sandbox, &[]);
    assert_eq!(names(&events), ["started", "events-missing", "crashed", "started", "stopped"], "{events:#?}");
    assert_eq!(events[1]["fields"]["damaged_lines"], 1, "{:#}", events[1]);
}

#[test]
fn guests_that_come_and_go_are_events() {
    let sandbox = Sandbox::new();
    let socket = sandbox.path("guest.sock").display().to_string();
    let device = format!(
        "links = [\"port.output -> end.input\"]\n[apps.port]\napp = \"vhost-user\"\nsocket = \"{socket}\"\n[apps.end]\napp = \"sink\"\n"
    );
    let driver = format!(
        "links = [\"port.output -> end.input\"]\n[apps.port]\napp = \"virtio-user\"\nsocket = \"{socket}\"\n[apps.end]\napp = \"sink\"\n"
    );
    let (device, driver) = (sandbox.write("device.toml", &device), sandbox.write("driver.toml", &driver));
    let host = sandbox.start(&[&device]);
    let guest = sandbox.start(&[&driver]);
    let port_events = |name: &str| {
        let events = history(&sandbox, &[name]);
        let of_port = |event: &Value| event["fields"]["port"] == json!(socket) && event["fields"]["app"] == "port";
        events.into_iter().filter(of_port).collect::<Vec<Value>>()
    };
    eventually("connected", || names(&port_events("device")) == ["peer-connected"]);
    assert_eq!(port_events("device")[0]["fields"]["peer_pid"], json!(guest.pid()));
    eventually("connected", || names(&port_events("driver")) == ["peer-connected"]);
    guest.signal(Signal::KILL);
    eventually("gone", || names(&port_events("device")) == ["peer-connected", "peer-disconnected"]);
    assert_eq!(sandbox.bellows(&["ps", "device", "--probe"]).code, Some(0), "a guest may be off");
    drop(host);
}

/// A bridge that the same station reaches by two ports, and a router whose address another station claims.
const LOOP_AND_DUPLICATE: &str = r#"
links = [
  "one.output -> switch.a", "two.output -> switch.b", "switch.c -> end.input",
  "claims.output -> router.lan", "router.lan -> back.input",
]
[objects.macs]
object = "mac-table"
max_moves = 1
[apps.switch]
app = "bridge"
table = "macs"
[apps.one]
app = "source"
headers = "ipv4"
size = 60
rate = "1kpps"
src_mac = "02:00:00:00:00:07"
[apps.two]
app = "source"
headers = "ipv4"
size = 60
rate = "1kpps"
src_mac = "02:00:00:00:00:07"
[apps.end]
app = "sink"
[apps.claims]
app = "pcap-reader"
path = "claims.pcap"
[apps.router]
app = "router"
interfaces.lan = { mac = "02:00:00:00:00:01", addresses = ["192.0.2.1/24"] }
[apps.back]
app = "sink"
"#;

/// A capture file with one frame of Ethernet.
fn capture(frame: &[u8]) -> Vec<u8> {
    let header = [0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 1, 0, 0, 0];
    let length = (frame.len() as u32).to_le_bytes();
    [&header[..], &[0; 8], &length, &length, frame].concat()
}

#[test]
fn loops_and_duplicate_addresses_are_kept() {
    let sandbox = Sandbox::new();
    let station = [4, 0, 0, 0, 0, 9];
    let address = [192, 0, 2, 1];
    // An announcement: a question for its own address.
    let announcement = [
        &[0xff; 6][..],
        &station,
        &[0x08, 0x06, 0, 1, 0x08, 0, 6, 4, 0, 1],
        &station,
        &address,
        &[0; 6],
        &address,
        &[0; 18],
    ]
    .concat();
    fs::write(sandbox.path("claims.pcap"), capture(&announcement)).unwrap();
    let network = sandbox.write("network.toml", LOOP_AND_DUPLICATE);
    let running = sandbox.start(&[&network]);
    let kept = || {
        let events = history(&sandbox, &[]).into_iter().filter(|event| event["event"] != "started");
        events.map(|event| json!([event["event"], event["fields"]])).collect::<Vec<Value>>()
    };
    let claim = json!({
        "app": "router/arp", "interface": "lan", "address": "192.0.2.1", "station": "04:00:00:00:00:09",
    });
    eventually("both events", || {
        let kept = kept();
        let moving = kept.iter().find(|event| event[0] == "station-moving").map(|event| event[1].clone());
        let is_moving = moving.is_some_and(|moving| {
            moving["app"] == "switch"
                && moving["address"] == "02:00:00:00:00:07"
                && moving["port"] != moving["other_port"]
        });
        is_moving && kept.contains(&json!(["duplicate-address", claim]))
    });
    drop(running);
}

#[test]
fn the_program_lists_the_declared_events() {
    let said = Sandbox::new().bellows(&["events", "--list", "--json"]).success();
    let listed: Vec<Value> = said.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(listed.len(), ALL.len());
    assert!(listed.iter().zip(ALL).all(|(listed, info)| listed["event"] == info.name));
}
