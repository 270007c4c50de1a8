//! All kinds of traffic through all kinds of ports: with and without offloads, frames of up to 9,000 bytes.

use std::time::Duration;

use bellows_testkit::frames;
use bellows_testkit::netns::capture::Capture;
use bellows_testkit::netns::traffic::{self, StreamDirection, checksum_errors};

use crate::bridge::{Bridge, Layout, Offloads, Port, SERVER, SERVER_V6, app, is_missing, missing};

/// The time of each stream.
const STREAM: Duration = Duration::from_secs(1);

/// Queries and answers of `ping`, which no offload changes.
const ECHO: &str = "icmp[icmptype] == icmp-echo or icmp[icmptype] == icmp-echoreply or \
                    (ip6[6] == 58 and (ip6[40] == 128 or ip6[40] == 129))";

const AF_XDP: Port = Port::new("af-xdp", "mode = \"native\"\n");
const AF_XDP_GENERIC: Port = Port::new("af-xdp", "mode = \"generic\"\n");
const RAW_SOCKET: Port = Port::new("raw-socket", "");
const RAW_SOCKET_PLAIN: Port = Port::new("raw-socket", "offloads = false\n");
const RAW_SOCKETS: Port = Port::new("raw-socket", "queues = 2\n");
const TAP: Port = Port::new("tap", "");
const TAP_QUEUES: Port = Port::new("tap", "queues = 2\n");
const TAP_PLAIN: Port = Port::new("tap", "offloads = false\n");

/// Starts a bridge, sends traffic of all kinds through it, and stops it.
fn check(test: &str, layout: Layout) {
    if is_missing(test, &["tcpdump"]) {
        return;
    }
    let bridge = Bridge::new(layout);
    let running = bridge.start();
    bridge.wait_until_connected();
    let servers = bridge.serve();
    check_frames(&bridge);
    check_streams(&bridge, test);
    let packets = ["left", "right"].map(|name| app(&running.counters(), name)["in_packets"].as_u64().unwrap());
    assert!(packets.iter().all(|packets| *packets > 500), "{packets:?}");
    drop(servers);
    bridge.stop(running);
}

/// Pings of all sizes are answered, and each frame is the same on both sides.
fn check_frames(bridge: &Bridge) {
    let captures = bridge.sides.each_ref().map(|side| {
        let path = bridge.sandbox.path(&format!("{}.pcap", side.name));
        (Capture::start(side.host.namespace(), "lan", ECHO, &path).unwrap(), path)
    });
    for address in [SERVER, SERVER_V6] {
        traffic::ping(bridge.client(), address, bridge.layout.mtu);
    }
    assert!(!traffic::is_answered_at(bridge.client(), SERVER, bridge.layout.mtu + 1), "a frame above the MTU");
    let [near, far] = captures.map(|(mut capture, path)| {
        capture.stop().unwrap();
        let mut frames = frames::read(&path);
        // A query may be sent before or after the answer to the previous one.
        frames.sort();
        frames
    });
    assert!(near.len() >= 32, "{} frames", near.len());
    frames::assert_same("the server's frames, compared with the client's", &far, &near);
}

/// Files arrive unchanged, streams flow in both directions, and no checksum is wrong.
fn check_streams(bridge: &Bridge, test: &str) {
    let (client, server) = (bridge.client(), bridge.server());
    bridge.fetch(SERVER);
    bridge.fetch(SERVER_V6);
    let there = traffic::tcp(client, SERVER, STREAM, StreamDirection::There);
    let back = traffic::tcp(client, SERVER_V6, STREAM, StreamDirection::Back);
    let before = bridge.quiet_lan_counters();
    let udp = traffic::udp(client, SERVER, STREAM, 20, 1_400);
    let missing = missing(&before, &bridge.lan_counters());
    eprintln!("{test}: TCP {:.0} and {:.0} Mbit/s, {udp:?}, missing {missing:?}", there / 1e6, back / 1e6);
    // A receiver that gets no processor time loses packets, too, but that is not the bridge's fault.
    assert!(udp.sent > 500 && missing[0] <= (udp.sent / 10) as i64, "{udp:?}, missing {missing:?}");
    assert_eq!([client, server].map(checksum_errors), [0, 0], "wrong checksums at the client and at the server");
}

#[test]
fn af_xdp_carries_standard_frames_over_several_queues() {
    let layout = Layout { queues: (2, 2), ..Layout::of(AF_XDP, Offloads::Nothing, 1_500) };
    check("af_xdp_carries_standard_frames_over_several_queues", layout);
}

#[test]
fn af_xdp_carries_jumbo_frames() {
    check("af_xdp_carries_jumbo_frames", Layout::of(AF_XDP, Offloads::Nothing, 9_000));
}

#[test]
fn af_xdp_carries_frames_in_generic_mode() {
    check("af_xdp_carries_frames_in_generic_mode", Layout::of(AF_XDP_GENERIC, Offloads::Nothing, 1_500));
}

#[test]
fn raw_sockets_pass_offloads_on() {
    check("raw_sockets_pass_offloads_on", Layout::of(RAW_SOCKET, Offloads::All, 1_500));
}

#[test]
fn raw_sockets_pass_offloads_of_jumbo_frames_on() {
    check("raw_sockets_pass_offloads_of_jumbo_frames_on", Layout::of(RAW_SOCKETS, Offloads::All, 9_000));
}

#[test]
fn raw_sockets_carry_frames_as_on_a_wire() {
    check("raw_sockets_carry_frames_as_on_a_wire", Layout::of(RAW_SOCKET_PLAIN, Offloads::Nothing, 1_500));
}

#[test]
fn raw_sockets_carry_jumbo_frames_as_on_a_wire() {
    check("raw_sockets_carry_jumbo_frames_as_on_a_wire", Layout::of(RAW_SOCKET_PLAIN, Offloads::Nothing, 9_000));
}

#[test]
fn taps_pass_offloads_on() {
    check("taps_pass_offloads_on", Layout::of(TAP, Offloads::All, 1_500));
}

#[test]
fn taps_pass_offloads_of_jumbo_frames_on() {
    check("taps_pass_offloads_of_jumbo_frames_on", Layout::of(TAP_QUEUES, Offloads::All, 9_000));
}

#[test]
fn taps_without_offloads_get_frames_as_on_a_wire() {
    check("taps_without_offloads_get_frames_as_on_a_wire", Layout::of(TAP_PLAIN, Offloads::All, 9_000));
}

/// A host with offloads at the left port, and one without at the right port, which lacks them.
fn check_mixed(test: &str, left: Port, right: Port) {
    let offloads = [Offloads::All, Offloads::Nothing];
    check(test, Layout { ports: [left, right], offloads, ..Layout::of(left, Offloads::All, 1_500) });
}

#[test]
fn offloads_of_a_tap_are_done_for_af_xdp() {
    check_mixed("offloads_of_a_tap_are_done_for_af_xdp", TAP, AF_XDP);
}

#[test]
fn offloads_of_a_raw_socket_are_done_for_one_without() {
    check_mixed("offloads_of_a_raw_socket_are_done_for_one_without", RAW_SOCKET, RAW_SOCKET_PLAIN);
}

#[test]
fn offloads_pass_between_a_tap_and_a_raw_socket() {
    let layout = Layout { ports: [TAP, RAW_SOCKET], ..Layout::of(TAP, Offloads::All, 1_500) };
    check("offloads_pass_between_a_tap_and_a_raw_socket", layout);
}
