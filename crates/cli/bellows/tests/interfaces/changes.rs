//! Interfaces that change while a network uses them: taken away and returned, set down, renamed, with another MTU and
//! other queues. The port works again without a restart.

use bellows_testkit::eventually;
use bellows_testkit::netns::interface::differences;
use bellows_testkit::netns::traffic;

use crate::bridge::{Bridge, Layout, Offloads, Port, SERVER, is_missing};
use crate::support::Running;

const AF_XDP: Port = Port::new("af-xdp", "");
const RAW_SOCKET: Port = Port::new("raw-socket", "");
const TAP: Port = Port::new("tap", "");

const MTU: usize = 1_500;
const SMALLER_MTU: usize = 1_400;

/// Two equal ports, and hosts that leave nothing to their interfaces.
const fn layout(port: Port) -> Layout {
    Layout::of(port, Offloads::Nothing, MTU)
}

/// Waits until frames as long as the MTU pass.
#[track_caller]
fn wait_until_passing(bridge: &Bridge, running: &mut Running<'_>, what: &str) {
    eventually(what, || {
        assert!(running.is_alive(), "the network has ended: {what}");
        traffic::is_answered_at(bridge.client(), SERVER, MTU)
    });
}

fn set_mtu(bridge: &Bridge, mtu: usize) {
    for end in bridge.sides.iter().flat_map(|side| side.cable.iter().flatten()) {
        end.host.run(&format!("ip link set {} mtu {mtu}", end.name));
    }
}

/// All changes of an interface that exists without Bellows.
fn check_changes(bridge: &Bridge) {
    let mut started = bridge.start();
    let running = &mut started;
    wait_until_passing(bridge, running, "traffic at the start");
    let middle = &bridge.middle;

    middle.run("ip link set left down");
    assert!(!traffic::is_answered_at(bridge.client(), SERVER, MTU));
    middle.run("ip link set left up");
    wait_until_passing(bridge, running, "traffic after the interface was down");

    middle.sh("ip link set left down && ip link set left name other && ip link set other up");
    // Some ports are opened again for another MTU.
    middle.run(&format!("ip link set other mtu {SMALLER_MTU}"));
    eventually("the port has the smaller MTU", || bridge.status("left")["link"]["mtu"] == SMALLER_MTU);
    middle.run(&format!("ip link set other mtu {MTU}"));
    wait_until_passing(bridge, running, "traffic under another name");
    middle.sh("ip link set other down && ip link set other name left && ip link set left up");
    wait_until_passing(bridge, running, "traffic after the interface had another name");

    set_mtu(bridge, SMALLER_MTU);
    eventually("traffic with a smaller MTU", || traffic::is_answered_at(bridge.client(), SERVER, SMALLER_MTU));
    set_mtu(bridge, MTU);
    wait_until_passing(bridge, running, "traffic with the old MTU");

    for side in &bridge.sides {
        side.disconnect();
        assert!(!traffic::is_answered_at(bridge.client(), SERVER, MTU));
        side.connect();
        wait_until_passing(bridge, running, "traffic through a new interface");
    }
    bridge.stop(started);
}

#[test]
fn af_xdp_follows_changes_of_its_interface() {
    if is_missing("af_xdp_follows_changes_of_its_interface", &[]) {
        return;
    }
    let bridge = Bridge::new(layout(AF_XDP));
    check_changes(&bridge);
}

#[test]
fn raw_sockets_follow_changes_of_their_interface() {
    if is_missing("raw_sockets_follow_changes_of_their_interface", &[]) {
        return;
    }
    let bridge = Bridge::new(layout(RAW_SOCKET));
    check_changes(&bridge);
}

#[test]
fn a_tap_that_is_deleted_is_made_again() {
    if is_missing("a_tap_that_is_deleted_is_made_again", &[]) {
        return;
    }
    let bridge = Bridge::new(layout(TAP));
    let mut running = bridge.start();
    wait_until_passing(&bridge, &mut running, "traffic at the start");
    bridge.client().run("ip link set lan down");
    assert!(!traffic::is_answered_at(bridge.client(), SERVER, MTU));
    bridge.client().run("ip link set lan up");
    wait_until_passing(&bridge, &mut running, "traffic after the tap was down");
    bridge.client().run("ip link delete lan");
    wait_until_passing(&bridge, &mut running, "traffic through a new tap");
    bridge.stop(running);
}

#[test]
fn a_persistent_tap_is_left_as_it_was() {
    if is_missing("a_persistent_tap_is_left_as_it_was", &[]) {
        return;
    }
    let bridge = Bridge::new(layout(Port::new("tap", "persistent = true\n")));
    let mut kept = Vec::new();
    for round in ["a tap made by the network", "a tap made before"] {
        let mut running = bridge.start();
        wait_until_passing(&bridge, &mut running, round);
        drop(running);
        eventually("taps without a user", || bridge.sides.iter().all(|side| !side.lan().is_operational()));
        // A new device has no state before it had a carrier.
        kept.push(bridge.sides.each_ref().map(|side| {
            let mut settings = side.lan().settings();
            settings.retain(|name, _| !["link.flags", "link.operstate"].contains(&name.as_str()));
            settings
        }));
    }
    for (first, second) in kept[0].iter().zip(&kept[1]) {
        assert_eq!(differences(first, second), "");
    }
}

#[test]
fn af_xdp_follows_changes_of_the_number_of_queues() {
    if is_missing("af_xdp_follows_changes_of_the_number_of_queues", &[]) {
        return;
    }
    let bridge = Bridge::new(Layout { queues: (2, 2), ..layout(AF_XDP) });
    set_queues(&bridge, 1);
    let mut running = bridge.start();
    wait_until_passing(&bridge, &mut running, "traffic over one queue");
    set_queues(&bridge, 2);
    // Flows are spread over the queues by their ports.
    let _servers = bridge.serve();
    for _ in 0..8 {
        wait_until_passing(&bridge, &mut running, "traffic over two queues");
        bridge.fetch(SERVER);
    }
    bridge.stop(running);
}

/// Changes the number of queues. The kernel refuses fewer while a socket is bound to one of those that go, and more at
/// the host than an interface with an XDP program has at the other end.
fn set_queues(bridge: &Bridge, queues: usize) {
    for end in bridge.sides.iter().flat_map(|side| side.cable.iter().flatten().rev()) {
        end.host.run(&format!("ethtool -L {} rx {queues} tx {queues}", end.name));
    }
}
