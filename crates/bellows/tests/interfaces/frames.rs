//! Frames with any content and VLAN tags arrive byte by byte, in their order. A network in the client's host sends
//! them from a capture file.

use bellows_testkit::eventually;
use bellows_testkit::frames::{self, Frames};
use bellows_testkit::netns::capture::Capture;

use crate::bridge::{Bridge, Layout, Offloads, Port, is_missing};
use crate::support::Sandbox;
use crate::support::vhost::Network;

/// Frames of each test: fewer than any queue on the way has room for, because nothing slows the sender down.
const COUNT: usize = 200;

/// The longest frame without its tag.
const LARGEST: usize = 1_510;

/// Destination of all frames, as a filter of tcpdump's.
const OURS: &str = "ether dst 02:00:00:00:00:01";

/// Tags of IEEE 802.1Q and 802.1ad: priority 1, VLAN 7.
const TAGS: [[u8; 4]; 2] = [[0x81, 0x00, 0x20, 0x07], [0x88, 0xa8, 0x20, 0x07]];

/// Frames of all lengths. Some have a tag, some have two.
fn sent() -> Frames {
    let mut sent = frames::random(COUNT, |number| 60 + number * (LARGEST - 60) / (COUNT - 1), 0x0be1_1055);
    for (number, frame) in sent.iter_mut().enumerate() {
        let tags: &[[u8; 4]] = match number % 8 {
            1 => &TAGS[..1],
            // The kernel allows one tag above the MTU.
            3 if frame.len() < 1_000 => &[TAGS[1], TAGS[0]],
            _ => &[],
        };
        frame.splice(12..12, tags.concat());
    }
    sent
}

fn check(test: &str, port: Port) {
    if is_missing(test, &["tcpdump"]) {
        return;
    }
    let bridge = Bridge::new(Layout::of(port, Offloads::Nothing, 1_500));
    let running = bridge.start();
    bridge.wait_until_connected();
    let path = bridge.sandbox.path("received.pcap");
    let mut capture = Capture::start(bridge.server().namespace(), "lan", OURS, &path).unwrap();
    let before = bridge.sides[1].lan().counters();

    let sent = sent();
    let sender = Sandbox::new().launched_by(&["ip", "netns", "exec", bridge.client().namespace()]);
    frames::write(&sender.path("sent.pcap"), &sent);
    let network = Network::default()
        .app("file", "pcap-reader", "path = \"sent.pcap\"\n")
        .app("lan", "raw-socket", "interface = \"lan\"\n")
        .app("end", "sink", "")
        .link("file.output -> lan.input")
        .link("lan.output -> end.input");
    sender.write("sender.toml", &network.text());
    let sending = sender.start(&["sender.toml"]);
    let expected = COUNT as u64;
    eventually("all frames", || bridge.sides[1].lan().counters().since(&before).rx_packets >= expected);
    drop(sending);
    capture.stop().unwrap();
    frames::assert_same("the frames at the server", &frames::read(&path), &sent);
    bridge.stop(running);
}

#[test]
fn all_frames_pass_af_xdp() {
    check("all_frames_pass_af_xdp", Port::new("af-xdp", "mode = \"native\"\n"));
}

#[test]
fn all_frames_pass_af_xdp_in_generic_mode() {
    check("all_frames_pass_af_xdp_in_generic_mode", Port::new("af-xdp", "mode = \"generic\"\n"));
}

#[test]
fn all_frames_pass_raw_sockets() {
    check("all_frames_pass_raw_sockets", Port::new("raw-socket", ""));
}

#[test]
fn all_frames_pass_taps() {
    check("all_frames_pass_taps", Port::new("tap", ""));
}
