//! Keys that select packets, modes, queues, or a network namespace.

use bellows_testkit::netns::traffic;

use crate::bridge::{Bridge, Layout, NETWORK, Offloads, Port, SERVER, SERVER_V6, is_missing};
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
        running.wait().fine();
        bridge.assert_restored("after the end");
    }
}
