//! Two networks joined by a Unix socket form one bridge.

use std::time::Duration;

use bellows_testkit::eventually;
use bellows_testkit::netns::traffic::{self, StreamDirection, checksum_errors};

use crate::bridge::{Bridge, Layout, Offloads, Port, SERVER, SERVER_V6, is_missing};
use crate::support::Signal;
use crate::support::vhost::Network;

const PORT: Port = Port::new("raw-socket", "");

/// A network file with an interface and a Unix socket. Returns its name.
fn half(bridge: &Bridge, interface: &str, socket: &str) -> String {
    let name = format!("{interface}.toml");
    let network = Network::default().app("port", PORT.app, &format!("interface = \"{interface}\"\n{}", PORT.keys)).app(
        "socket",
        "unix-socket",
        socket,
    );
    let network = network.link("port.output -> socket.input").link("socket.output -> port.input");
    bridge.sandbox.write(&name, &network.text());
    name
}

/// `left` and `right` are the keys of the sockets of the two networks.
fn check(test: &str, left: &str, right: &str) {
    if is_missing(test, &[]) {
        return;
    }
    let bridge = Bridge::new(Layout::of(PORT, Offloads::All, 1_500));
    let [left, right] = [half(&bridge, "left", left), half(&bridge, "right", right)];
    let first = bridge.sandbox.start(&[&left, "--json"]);
    let second = bridge.sandbox.start(&[&right, "--json"]);
    bridge.wait_until_connected();
    let _servers = bridge.serve();
    for server in [SERVER, SERVER_V6] {
        traffic::ping(bridge.client(), server, 1_500);
        // Frames between processes carry no offloads, so they are done before.
        bridge.fetch(server);
    }
    let there = traffic::tcp(bridge.client(), SERVER, Duration::from_secs(1), StreamDirection::There);
    let back = traffic::tcp(bridge.client(), SERVER, Duration::from_secs(1), StreamDirection::Back);
    eprintln!("{test}: TCP {:.0} and {:.0} Mbit/s", there / 1e6, back / 1e6);
    assert_eq!([bridge.client(), bridge.server()].map(checksum_errors), [0, 0]);

    // Either of the two dies and returns.
    first.signal(Signal::KILL);
    assert_eq!(first.wait().code, None);
    let first = bridge.sandbox.start(&[&left, "--json"]);
    eventually("the first network's return", || traffic::is_answered_at(bridge.client(), SERVER, 1_500));
    second.signal(Signal::KILL);
    assert_eq!(second.wait().code, None);
    let second = bridge.sandbox.start(&[&right, "--json"]);
    eventually("the second network's return", || traffic::is_answered_at(bridge.client(), SERVER, 1_500));
    for running in [first, second] {
        running.signal(Signal::INT);
        running.wait().success();
    }
    bridge.assert_restored("after the end");
}

#[test]
fn networks_are_joined_by_a_stream() {
    let server = "kind = \"stream\"\nmode = \"server\"\nsocket = \"wire.sock\"\n";
    let client = "kind = \"stream\"\nmode = \"client\"\nsocket = \"wire.sock\"\n";
    check("networks_are_joined_by_a_stream", server, client);
}

#[test]
fn networks_are_joined_by_datagrams() {
    let left = "kind = \"dgram\"\nsocket = \"left.sock\"\npeer = \"right.sock\"\n";
    let right = "kind = \"dgram\"\nsocket = \"right.sock\"\npeer = \"left.sock\"\n";
    check("networks_are_joined_by_datagrams", left, right);
}
