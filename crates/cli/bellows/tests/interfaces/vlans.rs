//! VLANs: a trunk between two multiplexers carries those of two pairs of hosts, and a guest with Linux has a VLAN and a
//! VLAN within another at a router.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use bellows_testkit::frames;
use bellows_testkit::guest::{self, Card, Guest};
use bellows_testkit::netns::capture::Capture;
use bellows_testkit::netns::traffic::{self, Servers, StreamDirection};
use bellows_testkit::netns::{CableEnd, Host, Lab, connect};
use bellows_testkit::skips::{is_left_out, is_skipped};

use crate::bridge::{FILE, NETWORK, app, is_missing};
use crate::support::vhost::{Network, socket};
use crate::support::{Running, Sandbox, Signal};

/// The VLANs, and the port without one.
const PORTS: [&str; 3] = ["vlan5", "vlan7", "native"];

/// The addresses of the clients and of the servers: the same in all VLANs.
const ADDRESSES: [&str; 2] = ["192.0.2.1", "192.0.2.2"];

/// One end of the trunk: a namespace with a multiplexer, and a host at each of its ports.
struct Site {
    middle: Host,
    hosts: Vec<Host>,
    sandbox: Sandbox,
}

/// The two ends of a trunk.
fn sites(lab: &mut Lab) -> [Site; 2] {
    let middles = ["left", "right"].map(|name| lab.silent_host(name));
    let trunk = [0, 1].map(|side| CableEnd::new(&middles[side], "trunk", &format!("00:00:5e:00:53:2{side}")));
    connect([&trunk[0], &trunk[1]], 1504);
    let site = |(side, middle): (usize, Host)| {
        let mut network = Network::default()
            .app("mux", "vlan-mux", "keep_priority = true")
            .app("trunk", "raw-socket", "interface = \"trunk\"\npromiscuous = true")
            .link("trunk.output -> mux.trunk")
            .link("mux.trunk -> trunk.input");
        let mut hosts = Vec::new();
        for (number, port) in PORTS.into_iter().enumerate() {
            let host = lab.host(&format!("{}-{port}", ["client", "server"][side]));
            let near = CableEnd::new(&host, "lan", &format!("00:00:5e:00:53:{side}{number}"));
            let near = near.address(&format!("{}/24", ADDRESSES[side]));
            let far = CableEnd::new(&middle, port, &format!("00:00:5e:00:53:3{number}"));
            connect([&near, &far], 1500);
            hosts.push(host);
            network = network
                .app(port, "raw-socket", &format!("interface = \"{port}\"\npromiscuous = true"))
                .link(&format!("{port}.output -> mux.{port}"))
                .link(&format!("mux.{port} -> {port}.input"));
        }
        let sandbox = Sandbox::new().launched_by(&["ip", "netns", "exec", middle.namespace()]);
        sandbox.write(NETWORK, &network.text());
        Site { middle, hosts, sandbox }
    };
    let [left, right] = middles;
    [(0, left), (1, right)].map(site)
}

/// The VLAN of a frame on the trunk.
fn vlan(frame: &[u8]) -> Option<u16> {
    (frame[12..14] == [0x81, 0]).then(|| u16::from_be_bytes([frame[14], frame[15]]) & 0xfff)
}

#[test]
fn a_trunk_keeps_vlans_apart() {
    if is_missing("vlans::a_trunk_keeps_vlans_apart", &["tcpdump"]) {
        return;
    }
    let mut lab = Lab::new();
    let [clients, servers] = sites(&mut lab);
    let running: Vec<Running<'_>> =
        [&clients, &servers].iter().map(|site| site.sandbox.start(&[NETWORK, "--json"])).collect();
    // Each server has a file of its own.
    let mut serving = Vec::new();
    for (number, server) in servers.hosts.iter().enumerate() {
        let folder = servers.sandbox.path(PORTS[number]);
        fs::create_dir(&folder).unwrap();
        let text: String = (0..200_000).map(|line| format!("{} {line}\n", PORTS[number])).collect();
        fs::write(folder.join(FILE), text).unwrap();
        serving.push(Servers::start(server, &folder));
    }
    let path = clients.sandbox.path("trunk.pcap");
    let mut capture = Capture::start(clients.middle.namespace(), "trunk", "", &path).unwrap();
    for client in &clients.hosts {
        traffic::wait_for_answer(client, ADDRESSES[1]);
        traffic::ping(client, ADDRESSES[1], 1500);
    }
    capture.stop().unwrap();
    let seen: BTreeSet<Option<u16>> = frames::read(&path).iter().map(|frame| vlan(frame)).collect();
    assert_eq!(seen, [None, Some(5), Some(7)].into());
    for (number, client) in clients.hosts.iter().enumerate() {
        traffic::fetch(client, ADDRESSES[1], &servers.sandbox.path(PORTS[number]), FILE);
        for direction in [StreamDirection::There, StreamDirection::Back] {
            traffic::tcp(client, ADDRESSES[1], Duration::from_secs(1), direction);
        }
    }
    for host in clients.hosts.iter().chain(&servers.hosts) {
        assert_eq!(traffic::checksum_errors(host), 0);
    }
    drop(serving);
    for running in running {
        let counters = running.counters();
        let lost = app(&counters, "mux")["lost"].as_object().map(serde_json::Map::len);
        assert_eq!(lost, Some(0), "{counters:#}");
        running.signal(Signal::INT);
        running.wait().success();
    }
}

/// The interfaces of the router: a VLAN of the first card, and a VLAN within a provider's of the second.
const INTERFACES: &str = r#"
[apps.router.interfaces.customer]
port = "near"
vlan = 5
mac = "02:00:00:00:00:01"
addresses = ["10.0.0.0/31", "2001:db8:5::1/64"]

[apps.router.interfaces.provider]
port = "far"
service_vlan = 6
vlan = 7
mtu = 1400
mac = "02:00:00:00:00:02"
addresses = ["10.0.0.3/31", "2001:db8:7::1/64"]
"#;

#[test]
fn a_guest_talks_to_itself_through_a_router_with_vlans() {
    let test = "a_guest_talks_to_itself_through_a_router_with_vlans";
    if is_left_out(test) || is_skipped(test, guest::missing()) {
        return;
    }
    let sandbox = Sandbox::new();
    let mut network = Network::default().app("router", "router", INTERFACES);
    for port in ["near", "far"] {
        network = network
            .port(port, &socket(&sandbox, port), "")
            .link(&format!("{port}.output -> router.{port}"))
            .link(&format!("router.{port} -> {port}.input"));
    }
    sandbox.write(NETWORK, &network.text());
    let running = sandbox.start(&[NETWORK, "--json"]);
    let [near, far] = ["near", "far"].map(|port| socket(&sandbox, port));
    let card = |socket| Card { socket, server: false, queues: 1, properties: "" };
    let mut guest = Guest::boot(&sandbox.path(""), [card(&near), card(&far)]);
    guest.load_vlans();
    guest.run("near=$(near_card) far=$(far_card)");
    guest.run("ip link set $far netns $FAR && ip link set $near up && far ip link set $far up");
    guest.run("ip link add link $near name customer type vlan id 5 && ip link set customer up");
    guest.run("far ip link add link $far name outer type vlan protocol 802.1ad id 6 && far ip link set outer up");
    guest.run("far ip link add link outer name inner type vlan id 7 && far ip link set inner mtu 1400 up");
    guest.run("ip addr add 10.0.0.1/31 dev customer && ip route add default via 10.0.0.0");
    guest.run("far ip addr add 10.0.0.2/31 dev inner && far ip route add default via 10.0.0.3");
    guest.eventually("ping -c 1 -W 1 10.0.0.2");
    // To the router, and behind it, in fragments.
    for address in ["10.0.0.0", "10.0.0.2"] {
        for size in [0, 1000, 1472, 3000] {
            guest.run(&format!("ping -c 2 -W 30 -s {size} {address}"));
        }
    }
    guest.run("far ping -c 2 -W 30 -s 3000 10.0.0.1");
    guest.run("ip addr add 2001:db8:5::2/64 dev customer && ip -6 route add default via 2001:db8:5::1");
    guest.run("far ip addr add 2001:db8:7::2/64 dev inner && far ip -6 route add default via 2001:db8:7::1");
    guest.eventually("ping -6 -c 1 -W 1 2001:db8:7::2");
    for size in [0, 1300] {
        guest.run(&format!("ping -6 -c 2 -W 30 -s {size} 2001:db8:7::2"));
    }
    // With offloaded segmentation and checksums, which move behind the tags.
    guest.run("exchange 2");
    let counters = running.counters();
    let reassembled = app(&counters, "router/ip4-reassemble")["counters"]["reasm_oks"].as_u64().unwrap();
    let fragmented = app(&counters, "router/ip4-fragment")["counters"]["frag_oks"].as_u64().unwrap();
    assert!(reassembled >= 2 && fragmented >= 2, "{reassembled} {fragmented}");
    drop(guest);
    running.signal(Signal::INT);
    running.wait().success();
}
