//! Keys that select packets, modes, queues, or a network namespace.

use bellows_testkit::eventually;
use bellows_testkit::netns::traffic;

use crate::bridge::{Bridge, Layout, NETWORK, Offloads, Port, SERVER, SERVER_V6, Side, app, is_missing};
use crate::support::{Sandbox, Signal};

/// A bridge of equal ports whose hosts leave nothing to their interfaces.
fn bridge(test: &str, port: Port) -> Option<Bridge> {
    if is_missing(test, &[]) {
        return None;
    }
    Some(Bridge::new(Layout::of(port, Offloads::Nothing, 1_500)))
}

#[test]
fn only_selected_packets_are_redirected() {
    let keys = "redirect = [\"ip6\"]\npass = [\"udp port 7\"]\n";
    let Some(bridge) = bridge("only_selected_packets_are_redirected", Port::new("af-xdp", keys)) else { return };
    let running = bridge.start();
    traffic::wait_for_answer(bridge.client(), SERVER_V6);
    assert!(!traffic::is_answered_at(bridge.client(), SERVER, 1_500));
    // The kernel gets the others.
    bridge.middle.run("ip address add 192.0.2.9/24 dev left");
    traffic::wait_for_answer(bridge.client(), "192.0.2.9");
    bridge.stop(running);
}

#[test]
fn zero_copy_that_is_required_and_missing_is_an_error() {
    let port = Port::new("af-xdp", "zero_copy = \"required\"\n");
    let Some(bridge) = bridge("zero_copy_that_is_required_and_missing_is_an_error", port) else { return };
    let said = bridge.sandbox.bellows(&["run", NETWORK]);
    assert_eq!(said.code, Some(2), "{said:#?}");
    assert!(said.stderr.contains("zero_copy") && said.stderr.contains("left"), "{}", said.stderr);
    bridge.assert_restored("after the refusal");
}

#[test]
fn af_xdp_makes_an_interface_promiscuous_only_if_a_key_says_so() {
    let test = "af_xdp_makes_an_interface_promiscuous_only_if_a_key_says_so";
    for (keys, expected) in [("", 0), ("promiscuous = true\n", 1)] {
        let Some(bridge) = bridge(test, Port::new("af-xdp", keys)) else { return };
        let running = bridge.start();
        bridge.wait_until_connected();
        assert!(bridge.ports().iter().all(|port| port.promiscuity() == expected), "{keys}");
        bridge.stop(running);
    }
}

#[test]
fn a_number_of_queues_is_set_and_given_back() {
    if is_missing("a_number_of_queues_is_set_and_given_back", &[]) {
        return;
    }
    let port = Port::new("af-xdp", "set_queues = 2\n");
    let bridge = Bridge::new(Layout { queues: (1, 2), ..Layout::of(port, Offloads::Nothing, 1_500) });
    let running = bridge.start();
    bridge.wait_until_connected();
    for port in bridge.ports() {
        let settings = port.settings();
        let queues = settings.get("channels.Current hardware settings.RX").map(String::as_str);
        assert_eq!(queues, Some("2"), "{settings:#?}");
    }
    bridge.stop(running);
}

/// Leaves one of two transmit queues to the interface of a port.
fn take_transmit_queue(bridge: &Bridge, side: &Side) {
    bridge.middle.run(&format!("ethtool -L {} rx 2 tx 1", side.name));
    side.host.run("ethtool -L lan tx 2 rx 1");
}

/// A queue that has no transmit queue only receives; the kernel would take no frame from it, and not say so.
#[test]
fn queues_that_can_only_receive_send_nothing() {
    if is_missing("queues_that_can_only_receive_send_nothing", &[]) {
        return;
    }
    let port = Port::new("af-xdp", "mode = \"native\"\n");
    let bridge = Bridge::new(Layout { queues: (2, 2), ..Layout::of(port, Offloads::Nothing, 1_500) });
    bridge.sides.iter().for_each(|side| take_transmit_queue(&bridge, side));
    let running = bridge.start();
    bridge.wait_until_connected();
    let _servers = bridge.serve();
    // Each is another flow.
    for _ in 0..8 {
        bridge.fetch(SERVER);
        bridge.fetch(SERVER_V6);
    }
    running.signal(Signal::INT);
    running.wait().success();
}

/// A port of which only queues without a transmit queue are used can still record.
#[test]
fn a_port_may_only_receive() {
    if is_missing("a_port_may_only_receive", &[]) {
        return;
    }
    let port = Port::new("af-xdp", "mode = \"native\"\nqueues = [1]\n");
    let bridge = Bridge::new(Layout { queues: (2, 2), ..Layout::of(port, Offloads::Nothing, 1_500) });
    take_transmit_queue(&bridge, &bridge.sides[0]);
    let running = bridge.start();
    let [left, right] = ["left", "right"].map(|port| bridge.status(port)["details"]["sending"].clone());
    assert!(left.as_str().is_some_and(|sending| sending.starts_with("none")), "{left}");
    assert_eq!(right, "1");
    // The kernel chooses a queue by the addresses, with a key of its own for each boot: of so many flows, some arrive
    // through the queue of the port.
    bridge.client().sh("for host in $(seq 100 131); do
        ip neighbour replace 192.0.2.$host lladdr 00:00:5e:00:53:02 dev lan
        ping -n -q -c 1 -W 1 192.0.2.$host &
    done; wait");
    eventually("frames that the port has received", || {
        app(&running.counters(), "left")["out_packets"].as_u64().unwrap() > 0
    });
    running.signal(Signal::INT);
    running.wait().success();
}

#[test]
fn buffers_that_wait_in_the_kernel_are_counted_and_too_many_are_warned_of() {
    let test = "buffers_that_wait_in_the_kernel_are_counted_and_too_many_are_warned_of";
    let Some(bridge) = bridge(test, Port::new("af-xdp", "ring_size = 512\n")) else { return };
    for (pool, is_enough) in [(4_096, true), (1_536, false)] {
        let pool = format!("engine.pool={pool}");
        let running = bridge.sandbox.start(&[NETWORK, "--json", "--set", &pool]);
        bridge.wait_until_connected();
        // Up to 63 of each ring may be about to be replaced, and some sent ones about to come back.
        eventually("two rings of buffers in the kernel", || {
            running.counters()["engine"]["buffers_lent"].as_u64().is_some_and(|lent| (890..=1_100).contains(&lent))
        });
        running.signal(Signal::INT);
        let said = running.wait().success();
        assert_eq!(!said.stderr.contains("of the pool wait for frames in the kernel"), is_enough, "{}", said.stderr);
    }
}

#[test]
fn interfaces_of_another_namespace_are_opened() {
    for app in ["af-xdp", "raw-socket"] {
        let Some(bridge) = bridge("interfaces_of_another_namespace_are_opened", Port::new(app, "")) else { return };
        // The network itself runs in a namespace that has no such interfaces.
        let sandbox = Sandbox::new().launched_by(&["ip", "netns", "exec", bridge.client().namespace()]);
        std::fs::copy(bridge.sandbox.path(NETWORK), sandbox.path(NETWORK)).unwrap();
        let namespace = bridge.middle.namespace();
        let keys = ["left", "right"].map(|port| format!("apps.{port}.namespace={namespace}"));
        let running = sandbox.start(&[NETWORK, "--json", "--set", &keys[0], "--set", &keys[1]]);
        bridge.wait_until_connected();
        traffic::ping(bridge.client(), SERVER, 1_500);
        running.signal(Signal::INT);
        running.wait().success();
        bridge.assert_restored("after the end");
    }
}
