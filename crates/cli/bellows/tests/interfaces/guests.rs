//! Three guests with Linux at a bridge: each is a station of its own.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use bellows_testkit::guest::{self, Card, Guest, Setup};
use bellows_testkit::skips::{is_left_out, is_skipped};
use bellows_testkit::wait::within;
use serde_json::Value;

use crate::bridge::{NETWORK, counted};
use crate::support::vhost::{Network, carried, socket};
use crate::support::{Sandbox, Signal};

/// The ports, by the numbers of their guests.
const PORTS: [&str; 3] = ["first", "second", "third"];

const PATIENCE: Duration = Duration::from_secs(60);

/// The address of a guest's card.
fn mac(number: usize) -> String {
    format!("52:54:00:00:01:0{number}")
}

/// The network: a bridge of three ports.
fn network(sandbox: &Sandbox) -> String {
    let mut network = Network::default().app("bridge", "bridge", "");
    for name in PORTS {
        network = network
            .port(name, &socket(sandbox, name), "")
            .link(&format!("{name}.output -> bridge.{name}"))
            .link(&format!("bridge.{name} -> {name}.input"));
    }
    network.text()
}

/// Boots a guest at a port.
fn boot(sandbox: &Sandbox, number: usize) -> Guest {
    let (name, socket) = (PORTS[number], socket(sandbox, PORTS[number]));
    let folder = sandbox.path(&format!("guest-{name}"));
    std::fs::create_dir(&folder).unwrap();
    let card = Card { socket: &socket, server: false, queues: 1, properties: "" };
    let mut guest = Setup::with_card(&folder, card).boot();
    let (mac, address) = (mac(number), number + 1);
    guest.run("card=$(near_card)");
    guest.run("echo 0 >/proc/sys/net/ipv6/conf/$card/accept_dad");
    guest.run(&format!("ip link set dev $card address {mac} && ip link set dev $card mtu 9000 up"));
    guest.run(&format!("ip addr add 10.0.0.{address}/24 dev $card && ip addr add 2001:db8::{address}/64 dev $card"));
    guest
}

/// The ports at which addresses are known.
fn known(sandbox: &Sandbox) -> BTreeMap<String, String> {
    let shown = sandbox.bellows(&["show", "mac", "--json"]).success().json();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let addresses = shown["tables"][0]["addresses"].as_array().unwrap();
    addresses.iter().map(|address| (text(&address["mac"]), text(&address["port"]))).collect()
}

#[test]
fn three_guests_at_a_bridge_reach_each_other_and_no_one_else_listens() {
    let test = "guests::three_guests_at_a_bridge_reach_each_other_and_no_one_else_listens";
    if is_left_out(test) || is_skipped(test, guest::missing()) {
        return;
    }
    let sandbox = Sandbox::new();
    sandbox.write(NETWORK, &network(&sandbox));
    let running = sandbox.start(&[NETWORK, "--json"]);
    let mut guests: Vec<Guest> = thread::scope(|scope| {
        let sandbox = &sandbox;
        let booting: Vec<_> = (0..PORTS.len()).map(|number| scope.spawn(move || boot(sandbox, number))).collect();
        booting.into_iter().map(|guest| guest.join().unwrap()).collect()
    });
    for (number, guest) in guests.iter_mut().enumerate() {
        for other in (1..=PORTS.len()).filter(|other| *other != number + 1) {
            guest.eventually(&format!("ping -c 1 -W 1 10.0.0.{other} && ping -6 -c 1 -W 1 2001:db8::{other}"));
            guest.run(&format!("ping -c 2 -W 30 -s 8000 10.0.0.{other}"));
        }
    }
    let stations = (0..PORTS.len()).map(|number| (mac(number), PORTS[number].to_owned())).collect();
    assert_eq!(known(&sandbox), stations);

    // A file from the first guest to the second, of which the third gets nothing.
    let received = || ["second.input", "third.input"].map(|to| carried(&running, to));
    let before = received();
    guests[1].run(
        "nc -l -p 5000 <&9 >/tmp/received & listener=$!; until netstat -ltn | grep -q :5000; do usleep 50000; done",
    );
    guests[0].run("dd if=/dev/urandom of=/tmp/sent bs=1M count=4 2>/dev/null; nc 10.0.0.2 5000 </tmp/sent");
    guests[1].run("wait $listener");
    let sum = |guest: &mut Guest, file: &str| guest.run(&format!("sha256sum <{file}"));
    assert_eq!(sum(&mut guests[0], "/tmp/sent"), sum(&mut guests[1], "/tmp/received"));
    let [meant, overheard] = [0, 1].map(|port| received()[port] - before[port]);
    // Segments are of up to 64 KiB; questions for addresses go to all.
    assert!(meant >= 64 && overheard <= 16, "{meant} frames for the second guest, {overheard} for the third");

    // The second guest dies, and the third takes its place: the address moves.
    drop(guests.remove(1));
    guests[1].run(&format!("ip link set dev $card address {}", mac(1)));
    guests[1].run("ip addr add 10.0.0.2/24 dev $card");
    guests[1].run("ping -c 1 -W 30 -I 10.0.0.2 10.0.0.1");
    guests[0].eventually("ping -c 1 -W 1 10.0.0.2");
    within(PATIENCE, "the address at its new port", || {
        known(&sandbox).get(&mac(1)).is_some_and(|port| port == "third")
    });
    assert_eq!(counted(&running.counters(), "bridge", "moved"), 1);

    drop(guests);
    running.signal(Signal::INT);
    running.wait().success();
}
