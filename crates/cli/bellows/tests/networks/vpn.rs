//! Two processes that are the ends of a VPN, with a bad line and a narrow core between them: frames arrive as they were
//! sent, every loss has a counter, and the pseudowire follows the life of the other process.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::support::{Running, Sandbox, Signal};
use bellows_testkit::frames::{self, Frames};
use bellows_testkit::wait::within;
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(60);

/// Frames of each site, and how many of them a second.
const FRAMES: usize = 1_500;
const RATE: &str = "500pps";

/// The MTU of the core's second link.
const NARROW: usize = 1_280;

/// A site.
struct Site {
    name: &'static str,
    number: u8,
    other: u8,
    mtu: usize,
}

const WEST: Site = Site { name: "west", number: 1, other: 2, mtu: 1_600 };
const EAST: Site = Site { name: "east", number: 2, other: 1, mtu: NARROW };

/// The file with the key of one direction, of the first keys or of later ones.
fn key_file(to: u8, generation: u8) -> String {
    format!("to-{to}-{generation}.key")
}

impl Site {
    /// The end of the site with frames to be sent, or without.
    fn end(&self, has_frames: bool, keys: Option<u8>) -> String {
        let Site { name, number, other, mtu } = self;
        let ipsec = keys.map_or(String::new(), |generation| {
            let direction = |to: u8| {
                let (spi, file) = (u32::from(generation) * 0x1000 + u32::from(to), key_file(to, generation));
                format!("{{ spi = {spi}, algorithm = \"aes-128-gcm\", key_file = \"{file}\" }}")
            };
            format!(", ipsec = {{ inbound = {}, outbound = {} }}", direction(*number), direction(*other))
        });
        let source = match has_frames {
            true => format!("app = \"pcap-reader\"\npath = \"{name}.pcap\"\nrate = \"{RATE}\""),
            false => "app = \"source\"\ncount = 0".to_owned(),
        };
        format!(
            r#"
[apps.frames]
{source}
[apps.arrived]
app = "pcap-writer"
path = "at-{name}.pcap"
[apps.{name}]
app = "l2vpn"
routes = ["default via 2001:db8:{number}::ff"]
[apps.{name}.interfaces]
uplink = {{ mac = "02:00:00:00:00:0{number}", mtu = {mtu}, addresses = ["2001:db8:{number}::1/64"] }}
office = {{}}
[apps.{name}.peers]
here = {{ local = true, endpoints = {{ v6 = "2001:db8:{number}::1" }} }}
there = {{ endpoints = {{ v6 = "2001:db8:{other}::1" }} }}
[apps.{name}.transports]
core = {{ local = "here.v6", remote = "there.v6"{ipsec} }}
[apps.{name}.vpls.lan]
circuits = ["office"]
[apps.{name}.vpls.lan.pseudowires.other]
transport = "core"
tunnel = "l2tpv3"
send_cookie = "0{number}0{other}0{number}0{other}"
expect_cookie = "0{other}0{number}0{other}0{number}"
control_channel = {{ heartbeat = "1s", dead_factor = 3 }}
"#
        )
    }

    /// The channel's status.
    fn channel(&self, sandbox: &Sandbox, running: &Running<'_>) -> Value {
        let shown = sandbox.bellows(&["show", "status", &running.name, "--json"]).success().json();
        let called = format!("{}/control-channel-lan.other", self.name);
        let app = shown["apps"].as_array().unwrap().iter().find(|app| app["app"] == called.as_str());
        app.unwrap_or_else(|| panic!("no `{called}` in {shown:#}"))["status"].clone()
    }

    fn is(&self, sandbox: &Sandbox, running: &Running<'_>, state: &str) -> bool {
        self.channel(sandbox, running)["state"] == state
    }
}

/// The western site, the core with its router, and what the line between core and east does.
fn west(has_frames: bool, keys: Option<u8>) -> String {
    let links = r#"
links = [
  "frames.output -> west.office", "west.office -> arrived.input",
  "west.uplink -> core.west", "core.west -> west.uplink",
  "core.east -> there.input", "there.output -> wire.input",
  "wire.output -> back.input", "back.output -> core.east",
]
[engine]
name = "west"
[apps]
there = { app = "impair", loss = "1%", duplicate = "2%", reorder = "5%", seed = 7 }
back = { app = "impair", loss = "1%", duplicate = "2%", reorder = "5%", seed = 8 }
wire = { app = "unix-socket", kind = "stream", mode = "server", socket = "wire.sock" }
[apps.core]
app = "router"
[apps.core.interfaces]
west = { mac = "02:00:00:00:01:01", mtu = 1600, addresses = ["2001:db8:1::ff/64"] }
east = { mac = "02:00:00:00:01:02", mtu = 1280, addresses = ["2001:db8:2::ff/64"] }
"#;
    format!("{links}{}", WEST.end(has_frames, keys))
}

fn east(has_frames: bool, keys: Option<u8>) -> String {
    let links = r#"
links = [
  "frames.output -> east.office", "east.office -> arrived.input",
  "wire.output -> east.uplink", "east.uplink -> wire.input",
]
[engine]
name = "east"
[apps]
wire = { app = "unix-socket", kind = "stream", mode = "client", socket = "wire.sock" }
"#;
    format!("{links}{}", EAST.end(has_frames, keys))
}

/// Writes the keys of both directions.
fn write_keys(sandbox: &Sandbox, generation: u8) {
    for to in [1, 2] {
        let key: String = (0..20).map(|at| format!("{:02x}", at * 7 + to * 16 + generation)).collect();
        sandbox.write_secret(&key_file(to, generation), &key);
    }
}

/// Drops of all apps by name, and the count of packets that a narrow link has refused.
fn losses(shown: &Value) -> (BTreeMap<String, u64>, u64) {
    let (mut drops, mut refused) = (BTreeMap::new(), 0);
    for app in shown["apps"].as_array().unwrap() {
        for (name, count) in app["drops"].as_object().unwrap() {
            *drops.entry(name.clone()).or_default() += count.as_u64().unwrap();
        }
        refused += app["counters"]["too_big_sent"].as_u64().unwrap_or(0);
    }
    drops.retain(|_, count| *count > 0);
    (drops, refused)
}

/// A counter of an app.
fn count(shown: &Value, called: &str, name: &str) -> u64 {
    let app = shown["apps"].as_array().unwrap().iter().find(|app| app["name"] == called);
    let app = app.unwrap_or_else(|| panic!("no `{called}` in {shown:#}"));
    app["counters"][name].as_u64().or(app["drops"][name].as_u64()).unwrap_or_else(|| panic!("no `{name}` in {app:#}"))
}

/// Compares the frames that have arrived with those that were sent. Returns how many are missing, and how many came again.
fn compare(what: &str, sent: &Frames, arrived: &Frames) -> (u64, u64) {
    let sent: BTreeSet<&Vec<u8>> = sent.iter().collect();
    let different: BTreeSet<&Vec<u8>> = arrived.iter().filter(|frame| frames::is_ours(frame)).collect();
    assert!(different.is_subset(&sent), "{what}: frames that nobody has sent");
    ((sent.len() - different.len()) as u64, (arrived.len() - different.len()) as u64)
}

/// Drops that may be here: the line's, those of packets and fragments that it repeats or loses a part of, errors from the
/// core, and messages between neighbours that come again, or are for others.
const EXPLAINED: [&str; 7] =
    ["lost", "duplicate", "replayed", "timeout", "told_path_mtu", "unasked", "l3_dst_address_not_local"];

fn check(is_protected: bool) {
    let sandbox = Sandbox::new();
    let keys = is_protected.then_some(1);
    (1..4).for_each(|generation| write_keys(&sandbox, generation));
    let sent = [1, 2].map(|seed| frames::random(FRAMES, |at| 60 + at * 37 % 1_455, seed));
    for (site, frames) in [WEST, EAST].iter().zip(&sent) {
        frames::write(&sandbox.path(&format!("{}.pcap", site.name)), frames);
    }
    let write = |has_frames: bool, keys: Option<u8>| {
        [sandbox.write("west.toml", &west(has_frames, keys)), sandbox.write("east.toml", &east(has_frames, keys))]
    };
    let files = write(false, keys);
    let near = sandbox.start(&[&files[0], "--json"]);
    let far = sandbox.start(&[&files[1], "--json"]);
    within(PATIENCE, "both ends up", || WEST.is(&sandbox, &near, "up") && EAST.is(&sandbox, &far, "up"));

    // Then there are frames to be sent: all are on their way, and then none is.
    let before = [near.counters(), far.counters()].map(|shown| losses(&shown));
    write(true, keys);
    for name in ["west", "east"] {
        sandbox.bellows(&["reload", name, &format!("{name}.toml")]).success();
    }
    let is_over = |running: &Running<'_>| {
        let shown = running.counters();
        let app =
            |name: &str| shown["apps"].as_array().unwrap().iter().find(|app| app["name"] == name).unwrap().clone();
        app("frames")["out_packets"].as_u64() == Some(FRAMES as u64)
    };
    within(PATIENCE, "all frames sent", || is_over(&near) && is_over(&far));
    std::thread::sleep(Duration::from_secs(2));
    let shown = [near.counters(), far.counters()];
    sandbox.bellows(&["stop", "east"]).success();
    far.wait().success();
    within(PATIENCE, "the end of the pseudowire", || WEST.is(&sandbox, &near, "down"));
    let [at_west, at_east] = ["west", "east"].map(|name| frames::read(&sandbox.path(&format!("at-{name}.pcap"))));
    let missing = [compare("to the east", &sent[0], &at_east), compare("to the west", &sent[1], &at_west)];
    let mut all: Vec<_> = shown.iter().map(losses).collect();
    for ((drops, refused), (drops_before, refused_before)) in all.iter_mut().zip(&before) {
        drops.iter_mut().for_each(|(name, count)| *count -= drops_before.get(name).copied().unwrap_or(0));
        drops.retain(|_, count| *count > 0);
        *refused -= refused_before;
    }
    let lost = count(&shown[0], "there", "lost") + count(&shown[0], "back", "lost");
    let repeated = count(&shown[0], "there", "duplicated") + count(&shown[0], "back", "duplicated");
    eprintln!("missing and repeated {missing:?}; lost {lost}, duplicated {repeated}, drops {all:?}");
    for name in all.iter().flat_map(|(drops, _)| drops.keys()) {
        assert!(EXPLAINED.contains(&&**name), "`{name}` in {all:?}");
    }
    // A frame is missing because the line has lost it, or one of its fragments, or because it was the first long one.
    let explained: u64 = all.iter().map(|(drops, refused)| drops.get("lost").copied().unwrap_or(0) + refused).sum();
    let missing_in_all = missing[0].0 + missing[1].0;
    assert!((1..=explained).contains(&missing_in_all), "{missing:?} of {all:?}");
    assert!(lost > 0 && repeated > 0);
    // ESP takes each packet once; without it, the second one of two goes on.
    let again = missing[0].1 + missing[1].1;
    assert!(if is_protected { again == 0 } else { again > 0 && again <= repeated }, "{again} of {repeated}");
    // The west has learned what the core told, and its frames went on in pieces.
    let tunnel = if is_protected { "west/esp-core" } else { "west/l2tpv3-core" };
    assert!(count(&shown[0], tunnel, "told_path_mtu") > 0 && count(&shown[0], tunnel, "fragmented") > 100);
    assert!(count(&shown[1], "east/router/ip6-reassemble", "reasm_oks") > 100);

    // The other end returns, is killed, and returns again. With ESP it needs new keys, which this end gets by a reload.
    let second = is_protected.then_some(2);
    write(false, second);
    sandbox.bellows(&["reload", "west", "west.toml"]).success();
    let far = sandbox.start(&[&files[1], "--json"]);
    within(PATIENCE, "the return", || WEST.is(&sandbox, &near, "up") && EAST.is(&sandbox, &far, "up"));
    far.signal(Signal::KILL);
    assert_eq!(far.wait().code, None);
    within(PATIENCE, "the death", || WEST.is(&sandbox, &near, "down"));
    if is_protected {
        write(false, Some(3));
        sandbox.bellows(&["reload", "west", "west.toml"]).success();
    }
    let far = sandbox.start(&[&files[1], "--json"]);
    within(PATIENCE, "the return from death", || WEST.is(&sandbox, &near, "up") && EAST.is(&sandbox, &far, "up"));
    let channel = "west/control-channel-lan.other";
    let shown = near.counters();
    assert_eq!(["up", "down"].map(|name| count(&shown, channel, name)), [3, 2]);
    for running in [near, far] {
        running.signal(Signal::INT);
        running.wait().success();
    }
}

#[test]
fn two_processes_carry_frames_over_a_bad_line_and_a_narrow_core() {
    check(false);
}

#[test]
fn two_processes_carry_frames_in_esp_over_a_bad_line_and_a_narrow_core() {
    check(true);
}
