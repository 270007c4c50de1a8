//! Ports at devices of DPDK: frames come back from a ring and go from file to file byte by byte, hosts talk through TAP
//! devices, devices come and go with a reload, and everything is counted.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use bellows_testkit::frames::{self, Frames};
use bellows_testkit::netns::{self, Lab, traffic};
use bellows_testkit::skips::is_skipped;
use bellows_testkit::{dpdk, eventually};

use crate::bridge::app;
use crate::support::vhost::Network;
use crate::support::{Sandbox, Signal};

/// Fewer than a ring has room for, because nothing slows the sender down.
const COUNT: usize = 200;

/// The object that opens DPDK, built once; `None`, and the test is skipped, without DPDK.
fn library(test: &str) -> Option<PathBuf> {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    if is_skipped(test, dpdk::missing_for_build()) {
        return None;
    }
    let built = BUILT.get_or_init(|| {
        let object = Path::new(env!("CARGO_TARGET_TMPDIR")).join("libbellows-dpdk.so");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../packaging/dpdk/shim.c");
        dpdk::build(&source, &object).unwrap();
        object
    });
    Some(built.clone())
}

/// A folder in which commands find the object.
fn sandbox(library: &Path, launcher: &[&str]) -> Sandbox {
    let variable = format!("BELLOWS_DPDK={}", library.display());
    Sandbox::new().launched_by(&[launcher, &["env", &variable]].concat())
}

/// Frames of all lengths up to one.
fn mixed(longest: usize) -> Frames {
    frames::random(COUNT, |number| 60 + number * (longest - 60) / (COUNT - 1), 0x0be1_1055)
}

#[test]
fn frames_come_back_from_a_ring() {
    let Some(library) = library("frames_come_back_from_a_ring") else { return };
    let sandbox = sandbox(&library, &[]);
    let sent = mixed(9_014);
    frames::write(&sandbox.path("sent.pcap"), &sent);
    let network = Network::default()
        .app("file", "pcap-reader", "path = \"sent.pcap\"\n")
        .app("ring", "dpdk", "device = \"net_ring0\"\nmtu = 9000\n")
        .app("back", "pcap-writer", "path = \"back.pcap\"\n")
        .link("file.output -> ring.input")
        .link("ring.output -> back.input");
    sandbox.write("ring.toml", &network.text());
    let running = sandbox.start(&["ring.toml", "--json"]);
    eventually("all frames", || app(&running.counters(), "back")["in_packets"] == COUNT);
    let status = sandbox.bellows(&["show", "status", &running.name, "--json"]).success();
    assert!(status.stdout.contains("net_ring") && status.stdout.contains("DPDK "), "{status:?}");
    let listed = sandbox.bellows(&["show", "interfaces"]).success().stdout;
    let line = listed.lines().find(|line| line.starts_with("ring ")).unwrap_or_else(|| panic!("{listed}"));
    assert!(["dpdk", "net_ring0", "up"].iter().all(|word| line.contains(word)), "{listed}");
    running.signal(Signal::TERM);
    let said = running.wait().success();
    frames::assert_same("what came back", &frames::read(&sandbox.path("back.pcap")), &sent);
    let drops = app(&said.json(), "ring")["drops"].clone();
    assert!(drops.as_object().unwrap().values().all(|count| count == 0), "{drops}");
}

#[test]
fn frames_go_from_file_to_file() {
    let Some(library) = library("frames_go_from_file_to_file") else { return };
    let sandbox = sandbox(&library, &[]);
    let sent = mixed(1_514);
    frames::write(&sandbox.path("sent.pcap"), &sent);
    // The other direction of each port has nothing.
    frames::write(&sandbox.path("none.pcap"), &sent[..1].to_vec());
    let device = |number: usize, files: &str| format!("device = \"net_pcap{number},{files}\"\n");
    let network = Network::default()
        .app("from", "dpdk", &device(0, "rx_pcap=sent.pcap,tx_pcap=unused.pcap"))
        .app("to", "dpdk", &device(1, "rx_pcap=none.pcap,tx_pcap=received.pcap"))
        .link("from.output -> to.input");
    sandbox.write("files.toml", &network.text());
    let running = sandbox.start(&["files.toml", "--json"]);
    eventually("all frames", || app(&running.counters(), "to")["in_packets"] == COUNT);
    running.signal(Signal::TERM);
    running.wait().success();
    frames::assert_same("the frames written", &frames::read(&sandbox.path("received.pcap")), &sent);
}

#[test]
fn a_reload_exchanges_devices() {
    let Some(library) = library("a_reload_exchanges_devices") else { return };
    let sandbox = sandbox(&library, &[]);
    let network = |device: &str| {
        let network = Network::default()
            .app("null", "dpdk", &format!("device = \"{device}\"\n"))
            .app("end", "sink", "")
            .link("null.output -> end.input");
        network.text()
    };
    let file = sandbox.write("null.toml", &network("net_null0"));
    let running = sandbox.start(&["null.toml", "--json"]);
    let count = || app(&running.counters(), "end")["in_packets"].as_u64().unwrap();
    for device in ["net_null0,size=128", "net_null1", "net_null0"] {
        std::fs::write(&file, network(device)).unwrap();
        sandbox.bellows(&["reload", &running.name]).success();
        eventually("the new device", || {
            let status = sandbox.bellows(&["show", "status", &running.name, "--json"]).success();
            let name = device.split(',').next().unwrap();
            status.stdout.contains(&format!("\"{name}\"")) && status.stdout.contains("\"up\"")
        });
        let before = count();
        eventually("packets", || count() > before);
    }
    running.signal(Signal::TERM);
    running.wait().success();
}

#[test]
fn hosts_talk_through_tap_devices() {
    let test = "hosts_talk_through_tap_devices";
    let Some(library) = library(test) else { return };
    if is_skipped(test, netns::missing(&["ping"])) {
        return;
    }
    let mut lab = Lab::new();
    let [between, near, far] = ["between", "near", "far"].map(|name| lab.silent_host(name));
    let sandbox = sandbox(&library, &["ip", "netns", "exec", between.namespace()]);
    let network = Network::default()
        .app("left", "dpdk", "device = \"net_tap0,iface=left\"\n")
        .app("right", "dpdk", "device = \"net_tap1,iface=right\"\n")
        .link("left.output -> right.input")
        .link("right.output -> left.input");
    sandbox.write("taps.toml", &network.text());
    let running = sandbox.start(&["taps.toml", "--json"]);
    for (host, interface, address) in [(&near, "left", "192.0.2.1/24"), (&far, "right", "192.0.2.2/24")] {
        between.run(&format!("ip link set {interface} netns {}", host.namespace()));
        host.run(&format!("ip address add {address} dev {interface}"));
        host.run(&format!("ip link set {interface} up"));
    }
    traffic::wait_for_answer(&near, "192.0.2.2");
    traffic::ping(&near, "192.0.2.2", 1_500);
    running.signal(Signal::TERM);
    let report = running.wait().success().json();
    assert!(app(&report, "left")["in_packets"].as_u64().unwrap() >= 10, "{report:#}");
}

#[test]
fn a_device_that_does_not_exist_is_an_error() {
    let Some(library) = library("a_device_that_does_not_exist_is_an_error") else { return };
    let sandbox = sandbox(&library, &[]);
    let network = Network::default().app("card", "dpdk", "device = \"net_nothing0\"\n");
    sandbox.write("card.toml", &network.text());
    let said = sandbox.bellows(&["run", "card.toml"]);
    assert_ne!(said.code, Some(0));
    assert!(said.stderr.contains("net_nothing0"), "{said:?}");
}

#[test]
fn without_the_library_check_says_what_to_install() {
    let sandbox = Sandbox::new().launched_by(&["env", "BELLOWS_DPDK=/nowhere/libbellows-dpdk.so"]);
    sandbox.write("ring.toml", &Network::default().app("ring", "dpdk", "device = \"net_ring0\"\n").text());
    for command in ["check", "run"] {
        let said = sandbox.bellows(&[command, "ring.toml"]);
        assert_eq!(said.code, Some(2), "{said:?}");
        for wanted in ["/nowhere/libbellows-dpdk.so", "bellows-dpdk", "cargo xtask dpdk", "libdpdk-dev"] {
            assert!(said.stderr.contains(wanted), "{wanted} is not in {said:?}");
        }
    }
}
