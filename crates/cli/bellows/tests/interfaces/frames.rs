//! Frames with any content and VLAN tags arrive byte by byte, in their order. A network in the client's host sends
//! them from a capture file.

use bellows_testkit::eventually;
use bellows_testkit::frames::{self, Frames};
use bellows_testkit::netns::capture::Capture;
use bellows_testkit::netns::{CableEnd, Lab, connect};

use crate::bridge::{Bridge, Layout, Offloads, Port, app, is_missing};
use crate::support::vhost::Network;
use crate::support::{Sandbox, Signal};

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

/// Has frames around the MTU sent by a port. Returns the lengths of those that arrive.
fn sent_around_mtu(test: &str, port: &str, keys: &str) -> Option<Vec<usize>> {
    if is_missing(test, &["tcpdump"]) {
        return None;
    }
    let mut lab = Lab::new();
    let [near, far] = ["near", "far"].map(|name| lab.silent_host(name));
    let ends = [CableEnd::new(&near, "lan", "00:00:5e:00:53:01"), CableEnd::new(&far, "lan", "00:00:5e:00:53:02")];
    // The other end takes longer ones.
    connect([&ends[0], &ends[1]], 9_000);
    near.run("ip link set lan mtu 1500");
    let sandbox = Sandbox::new().launched_by(&["ip", "netns", "exec", near.namespace()]);
    let path = sandbox.path("received.pcap");
    let mut capture = Capture::start(far.namespace(), "lan", OURS, &path).unwrap();
    let tags: [&[[u8; 4]]; 4] = [&[], &TAGS[..1], &TAGS[1..], &[TAGS[1], TAGS[0]]];
    let lengths = [1_513, 1_514, 1_515, 1_518, 1_519, 4_000];
    let mut sent: Frames = Vec::new();
    for (length, tags) in lengths.into_iter().flat_map(|length| tags.map(|tags| (length, tags))) {
        let mut frame = frames::random(1, |_| length - 4 * tags.len(), length as u64).remove(0);
        frame.splice(12..12, tags.concat());
        sent.push(frame);
    }
    // The last one shows that all were sent.
    let end = sent[0][..60].to_vec();
    sent.push(end.clone());
    frames::write(&sandbox.path("sent.pcap"), &sent);
    let network = Network::default()
        .app("file", "pcap-reader", "path = \"sent.pcap\"\n")
        .app("lan", port, &format!("interface = \"lan\"\n{keys}"))
        .app("end", "sink", "")
        .link("file.output -> lan.input")
        .link("lan.output -> end.input");
    sandbox.write("sender.toml", &network.text());
    let running = sandbox.start(&["sender.toml", "--json"]);
    let lan = || app(&running.counters(), "lan").clone();
    eventually("the fate of all frames", || {
        let lan = lan();
        let dropped = lan["lost"]["too_long"].as_u64().unwrap_or(0);
        ends[1].interface().counters().rx_packets + dropped >= sent.len() as u64
    });
    let dropped = lan()["lost"]["too_long"].as_u64();
    running.signal(Signal::INT);
    drop(running);
    capture.stop().unwrap();
    let arrived = frames::read(&path);
    assert_eq!(arrived.last(), Some(&end));
    assert_eq!(dropped, Some((sent.len() - arrived.len()) as u64));
    Some(arrived.iter().map(Vec::len).collect())
}

#[test]
fn af_xdp_and_raw_sockets_send_frames_up_to_the_same_length() {
    let test = "frames::af_xdp_and_raw_sockets_send_frames_up_to_the_same_length";
    let Some(raw) = sent_around_mtu(test, "raw-socket", "") else { return };
    // A tag of IEEE 802.1Q comes on top of the MTU.
    assert_eq!(raw, [1_513, 1_513, 1_513, 1_513, 1_514, 1_514, 1_514, 1_514, 1_515, 1_518, 60]);
    for mode in ["native", "generic"] {
        assert_eq!(sent_around_mtu(test, "af-xdp", &format!("mode = \"{mode}\"\n")).unwrap(), raw, "{mode}");
    }
}
