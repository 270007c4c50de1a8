//! Ports that several apps share, each with queues and a worker of its own: no frame is lost or doubled, all frames of a
//! flow use one queue, and the apps can be moved, removed and added while frames come.
//!
//! ```text
//!  client                             middle
//!  file ─▶ lan ◀──── cable ────▶ [ zero: queue 0 ⟲ ] worker main
//!           └─▶ returned         [ one:  queue 1 ⟲ ] worker two
//! ```

use std::collections::BTreeMap;

use bellows_testkit::eventually;
use bellows_testkit::frames::{self, Frames};

use crate::bridge::{Bridge, Layout, Offloads, Port, app, is_missing};
use crate::support::vhost::Network;
use crate::support::{Running, Sandbox, Signal};

/// The name of the network file.
const SHARED: &str = "shared.toml";

const FLOWS: usize = 64;
/// Packets a second: few enough for a machine on which much else runs.
const RATE: usize = 4_000;

/// The place of a frame's number.
const NUMBER: std::ops::Range<usize> = 42..50;

/// UDP datagrams of several flows in turn, each with its number.
fn datagrams(count: usize) -> Frames {
    let datagram = |number: usize| {
        let mut frame = vec![0; 60];
        frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0]);
        frame[14..24].copy_from_slice(&[0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17]);
        // Of a network for tests, to another host of it.
        frame[26..34].copy_from_slice(&[198, 51, 100, 1, 198, 51, 100, 2]);
        frame[34..36].copy_from_slice(&(1_000 + (number % FLOWS) as u16).to_be_bytes());
        frame[36..40].copy_from_slice(&[0, 7, 0, 26]);
        frame[NUMBER].copy_from_slice(&(number as u64).to_be_bytes());
        frame
    };
    (0..count).map(datagram).collect()
}

/// The numbers of the frames of a capture that are [`datagrams`], by flow.
fn flows(frames: &Frames) -> BTreeMap<usize, Vec<u64>> {
    let mut flows = BTreeMap::<usize, Vec<u64>>::new();
    for frame in frames.iter().filter(|frame| frame.len() == 60 && frame[26..30] == [198, 51, 100, 1]) {
        let number = u64::from_be_bytes(frame[NUMBER].try_into().unwrap());
        flows.entry(number as usize % FLOWS).or_default().push(number);
    }
    flows
}

struct Shared {
    bridge: Bridge,
    /// What the apps have in common.
    kind: &'static str,
    keys: String,
}

impl Shared {
    fn new(port: Port) -> Shared {
        let bridge = Bridge::new(Layout { queues: (2, 2), ..Layout::of(port, Offloads::Nothing, 1_500) });
        let keys = bridge.sides[0].keys();
        Shared { bridge, kind: port.app, keys }
    }

    /// Writes a network in which each app returns what its queue brings, and records it.
    fn write(&self, apps: &[(&str, usize, &str)]) {
        let network = apps.iter().fold(Network::default(), |network, (name, queue, worker)| {
            let worker = format!("worker = \"{worker}\"\n");
            let (copy, file) = (format!("{name}_copy"), format!("{name}_file"));
            network
                .app(name, self.kind, &format!("{}queues = [{queue}]\n{worker}", self.keys))
                .app(&copy, "tee", &worker)
                .app(&file, "pcap-writer", &format!("path = \"{name}.pcap\"\n{worker}"))
                .link(&format!("{name}.output -> {copy}.input"))
                .link(&format!("{copy}.back -> {name}.input"))
                .link(&format!("{copy}.file -> {file}.input"))
        });
        self.bridge.sandbox.write(SHARED, &format!("{}[workers.two]\n", network.text()));
    }

    fn reload(&self, apps: &[(&str, usize, &str)]) -> serde_json::Value {
        self.write(apps);
        self.bridge.sandbox.bellows(&["reload", "--json"]).success().json()
    }

    /// Sends frames from the client, and calls `meanwhile` when the first have returned. The returned ones, when `enough`
    /// have come.
    fn send(&self, sent: &Frames, enough: usize, meanwhile: impl FnOnce()) -> Frames {
        let sender = Sandbox::new().launched_by(&["ip", "netns", "exec", self.bridge.client().namespace()]);
        frames::write(&sender.path("sent.pcap"), sent);
        let file = format!("path = \"sent.pcap\"\nrate = \"{RATE}pps\"\n");
        let network = Network::default()
            .app("file", "pcap-reader", &file)
            .app("lan", "raw-socket", "interface = \"lan\"\n")
            .app("returned", "pcap-writer", "path = \"returned.pcap\"\n")
            .link("file.output -> lan.input")
            .link("lan.output -> returned.input");
        sender.write("sender.toml", &network.text());
        let sending = sender.start(&["sender.toml", "--json"]);
        let returned = |sending: &Running<'_>| app(&sending.counters(), "lan")["out_packets"].as_u64().unwrap();
        eventually("first frames", || returned(&sending) > 100);
        meanwhile();
        eventually("all frames", || returned(&sending) >= enough as u64);
        sending.signal(Signal::INT);
        sending.wait().success();
        frames::read(&sender.path("returned.pcap"))
    }

    /// Frames that an app has received.
    fn received(&self, running: &Running<'_>, name: &str) -> u64 {
        app(&running.counters(), name)["out_packets"].as_u64().unwrap()
    }
}

/// `takes_all`: whether one app gets the frames of all queues when the other has gone.
fn check(test: &str, port: Port, takes_all: bool) {
    if is_missing(test, &[]) {
        return;
    }
    let shared = Shared::new(port);
    let both = |worker: &'static str| [("zero", 0, "main"), ("one", 1, worker)];
    shared.write(&both("two"));
    let running = shared.bridge.sandbox.start(&[SHARED, "--json"]);
    // Frames that the host's stack sends by itself come before.
    eventually("an interface that is up", || shared.bridge.status("one")["state"] == "up");

    let sent = datagrams(2 * RATE);
    let returned = shared.send(&sent, sent.len(), || {
        for worker in ["main", "two", "main", "two"] {
            let report = shared.reload(&both(worker));
            assert_eq!(report["kept"].as_array().unwrap().len(), 6, "{report}");
        }
    });
    let returned = flows(&returned);
    assert_eq!(returned, flows(&sent), "each frame returns once, and those of a flow in their order");
    let [zero, one] = ["zero", "one"].map(|name| shared.received(&running, name));
    assert!(zero > 100 && one > 100, "{zero} and {one}");

    // The files are complete when their apps have ended.
    let rest = [("zero", 0, "two")];
    shared.send(&datagrams(RATE), 200, || {
        let report = shared.reload(&rest);
        assert_eq!(report["kept"].as_array().unwrap().len(), 3, "{report}");
    });
    let one = flows(&frames::read(&shared.bridge.sandbox.path("one.pcap")));
    let of_all = flows(&sent);
    let whole = |(flow, numbers): (&usize, &Vec<u64>)| numbers.starts_with(&of_all[flow]);
    assert!(one.iter().all(whole), "all frames of a flow use one queue, wherever its app runs");
    assert!((1..FLOWS).contains(&one.len()), "{} flows", one.len());
    let few = datagrams(RATE / 4);
    if takes_all {
        assert_eq!(flows(&shared.send(&few, few.len(), || {})), flows(&few), "one app gets all flows");
    } else {
        let returned = flows(&shared.send(&few, few.len() / FLOWS, || {}));
        assert!(returned.keys().all(|flow| !one.contains_key(flow)), "the kernel keeps the frames of the other queue");
    }
    shared.reload(&both("main"));
    eventually("the app's return", || shared.bridge.status("one")["state"] == "up");
    let returned = flows(&shared.send(&few, few.len(), || {}));
    assert_eq!(returned, flows(&few), "as before");

    running.signal(Signal::INT);
    running.wait().success();
    shared.bridge.assert_restored("after the end");
}

#[test]
fn af_xdp_apps_share_an_interface() {
    check("af_xdp_apps_share_an_interface", Port::new("af-xdp", "mode = \"native\"\n"), false);
}

#[test]
fn raw_socket_apps_share_an_interface() {
    check("raw_socket_apps_share_an_interface", Port::new("raw-socket", ""), true);
}

#[test]
fn tap_apps_share_a_device() {
    check("tap_apps_share_a_device", Port::new("tap", ""), true);
}
