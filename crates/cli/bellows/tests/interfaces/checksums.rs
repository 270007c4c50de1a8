//! AF_XDP is told nothing about checksums that the sender has left to its interface: the port recognizes and finishes
//! them.

use std::time::Duration;

use bellows_testkit::eventually;
use bellows_testkit::netns::traffic::{self, StreamDirection, checksum_errors};

use crate::bridge::{Bridge, Layout, Offloads, Port, SERVER, SERVER_V6, counted, is_missing};

const FINISHING: Port = Port::new("af-xdp", "");
const PASSING: Port = Port::new("af-xdp", "finish_checksums = false\n");

/// The counter of checksums that a port has finished.
const FINISHED: &str = "checksums_finished";

fn bridge(port: Port) -> Bridge {
    Bridge::new(Layout::of(port, Offloads::Checksums, 1_500))
}

#[test]
fn partial_checksums_are_finished() {
    if is_missing("partial_checksums_are_finished", &[]) {
        return;
    }
    let bridge = bridge(FINISHING);
    let running = bridge.start();
    bridge.wait_until_connected();
    let _servers = bridge.serve();
    for server in [SERVER, SERVER_V6] {
        bridge.fetch(server);
        let udp = traffic::udp(bridge.client(), server, Duration::from_secs(1), 5, 1_000);
        assert!(udp.lost < udp.sent, "{udp:?}");
    }
    traffic::tcp(bridge.client(), SERVER, Duration::from_secs(1), StreamDirection::There);
    assert_eq!([bridge.client(), bridge.server()].map(checksum_errors), [0, 0]);
    let finished = ["left", "right"].map(|port| counted(&running.counters(), port, FINISHED));
    assert!(finished.iter().all(|finished| *finished > 1_000), "{finished:?}");
    bridge.stop(running);
}

#[test]
fn partial_checksums_are_passed_on_if_a_key_says_so() {
    if is_missing("partial_checksums_are_passed_on_if_a_key_says_so", &[]) {
        return;
    }
    let bridge = bridge(PASSING);
    let running = bridge.start();
    // No transport checksum is in an ICMP header, and that of ICMPv6 is never left to the interface.
    bridge.wait_until_connected();
    let _query = bridge.client().start(&format!("curl -q --silent --max-time 60 {}", traffic::url(SERVER, "none")));
    eventually("a wrong checksum", || checksum_errors(bridge.server()) > 0);
    let finished = ["left", "right"].map(|port| counted(&running.counters(), port, FINISHED));
    assert_eq!(finished, [0, 0]);
    bridge.stop(running);
}
