//! Tunnels between a guest with Linux and a bridge of Bellows, one of each kind. At the other port of the bridge, the guest
//! has its second card, in another namespace.
//!
//! ```text
//!  guest                 router (services)   tunnels     bridge          guest, far
//!  tunnel over card ─ near ─────────────────── sessions ─ far ─────────── card
//! ```

use std::path::Path;

use bellows_exercise::tunnel_examples::{SessionExample, TUNNELS, TunnelExamples};
use bellows_testkit::guest::{self, Card, Setup};
use bellows_testkit::netns::capture::Capture;
use bellows_testkit::netns::interface::HostInterface;
use bellows_testkit::netns::{self, CableEnd, Host, Lab, connect, traffic};
use bellows_testkit::skips::{is_left_out, is_skipped};
use bellows_testkit::{eventually, frames, programs};
use bellows_wire::ipv4::Ipv4Header;
use bellows_wire::ipv6::Ipv6Header;
use bellows_wire::udp::UdpHeader;
use bellows_wire::{IpPair, IpProtocol};

use crate::bridge::{NETWORK, app, is_missing};
use crate::support::vhost::{Network, socket};
use crate::support::{Sandbox, Signal};

/// The router's interface.
const ROUTER: &str = r#"
[apps.router.interfaces.near]
mac = "02:00:00:00:00:01"
mtu = 1600
addresses = ["192.0.2.1/24", "2001:db8::1/64"]
"#;

/// The sessions of a tunnel that Linux has, with their names, and the commands for its device.
fn sessions(tunnel: &TunnelExamples) -> impl Iterator<Item = (String, &'static SessionExample, [&'static str; 2])> {
    tunnel.named_sessions().filter_map(|(name, session)| Some((name, session, session.linux?)))
}

/// The network: all tunnels at one bridge, in one group, so that nothing goes round.
fn network(sandbox: &Sandbox) -> String {
    let names: Vec<String> = TUNNELS.iter().flat_map(sessions).map(|(name, ..)| name).collect();
    let services: Vec<String> = TUNNELS.iter().map(|tunnel| tunnel.rule(tunnel.app)).collect();
    let mut network = Network::default()
        .app("router", "router", &format!("services = [{}]\n{ROUTER}", services.join(", ")))
        .app("bridge", "bridge", &format!("groups = [{names:?}]"))
        .port("near", &socket(sandbox, "near"), "")
        .port("far", &socket(sandbox, "far"), "");
    for port in [
        "near.output -> router.near",
        "router.near -> near.input",
        "far.output -> bridge.far",
        "bridge.far -> far.input",
    ] {
        network = network.link(port);
    }
    for tunnel in TUNNELS {
        let (app, mut keys) = (tunnel.app, String::new());
        for (name, session, _) in sessions(tunnel) {
            keys += &format!("sessions.{name} = {}\n", session.table());
            network =
                network.link(&format!("{app}.{name} -> bridge.{name}")).link(&format!("bridge.{name} -> {app}.{name}"));
        }
        network = network.app(app, app, &keys);
        for ip in ["ip4", "ip6"] {
            network = network
                .link(&format!("router.{ip}-{app} -> {app}.{ip}"))
                .link(&format!("{app}.{ip} -> router.{ip}-{app}"));
        }
    }
    network.text()
}

#[test]
fn each_tunnel_is_that_of_linux() {
    let test = "tunnels::each_tunnel_is_that_of_linux";
    if is_left_out(test) || is_skipped(test, guest::missing()) || is_skipped(test, programs::missing(&["ip"])) {
        return;
    }
    let sandbox = Sandbox::new();
    sandbox.write(NETWORK, &network(&sandbox));
    let running = sandbox.start(&[NETWORK, "--json"]);
    let [near, far] = ["near", "far"].map(|port| socket(&sandbox, port));
    let card = |socket| Card { socket, server: false, queues: 1, properties: "" };
    let folder = sandbox.path("");
    let setup = Setup::with_cards(&folder, [card(&near), card(&far)]);
    // That of busybox has no tunnels.
    let mut guest = setup.program(&programs::find_program("ip").unwrap()).boot();
    guest.load_tunnels();
    guest.run("near=$(near_card) far=$(far_card)");
    guest.run("ip link set $far netns $FAR && far ip link set $far up && far ip addr add 10.0.0.2/24 dev $far");
    guest.run("ip link set $near mtu 1600 up && ip addr add 192.0.2.2/24 dev $near");
    guest.run("ip addr add 2001:db8::2/64 dev $near nodad");
    guest.eventually("ping -c 1 -W 1 192.0.2.1 && ping -6 -c 1 -W 1 2001:db8::1");
    for (session, _, [make, remove]) in TUNNELS.iter().flat_map(sessions) {
        guest.run(make);
        guest.run("ip link set dev wire mtu 1500 up && ip addr add 10.0.0.1/24 dev wire");
        guest.eventually("ping -c 1 -W 1 10.0.0.2");
        for size in [0, 1000, 1472, 3000] {
            guest.run(&format!("ping -c 2 -W 30 -s {size} 10.0.0.2"));
        }
        guest.run("exchange 1");
        eprintln!("{test}: {session}");
        guest.run(remove);
        guest.run("far ip neigh flush all; true");
    }
    let counters = running.counters();
    for TunnelExamples { app: name, .. } in TUNNELS {
        let lost = app(&counters, name)["lost"].as_object().map(serde_json::Map::len);
        assert_eq!(lost, Some(0), "{name}: {counters:#}");
    }
    drop(guest);
    running.signal(Signal::INT);
    running.wait().success();
}

/// The network of a router with `vxlan` behind it, between two ports. Its sessions are the tunnels of two devices.
const VXLAN: &str = r#"
links = [
  "near.output -> router.near", "router.near -> near.input",
  "router.ip4-vxlan -> vxlan.ip4", "vxlan.ip4 -> router.ip4-vxlan",
  "router.ip6-vxlan -> vxlan.ip6", "vxlan.ip6 -> router.ip6-vxlan",
  "vxlan.four -> bridge.four", "bridge.four -> vxlan.four",
  "vxlan.six -> bridge.six", "bridge.six -> vxlan.six",
  "vxlan.zero -> bridge.zero", "bridge.zero -> vxlan.zero",
  "far.output -> bridge.far", "bridge.far -> far.input",
]

[apps]
near = { app = "raw-socket", interface = "near" }
far = { app = "raw-socket", interface = "far" }
bridge = { app = "bridge", groups = [["four", "six", "zero"]] }

[apps.router]
app = "router"
services = [{ to = "vxlan", protocol = "udp", port = 4789 }]

[apps.router.interfaces.near]
mac = "02:00:00:00:00:01"
mtu = 1600
addresses = ["192.0.2.1/24", "2001:db8::1/64"]

[apps.vxlan]
app = "vxlan"
sessions.four = { local = "192.0.2.1", remote = "192.0.2.2", vni = 1 }
sessions.six = { local = "2001:db8::1", remote = "2001:db8::2", vni = 2 }
sessions.zero = { local = "2001:db8::1", remote = "2001:db8::2", vni = 3, checksum = false }
"#;

/// Whether the test is skipped because the kernel has no such devices.
fn has_no_vxlan(test: &str, host: &Host) -> bool {
    let has_some = netns::run(host.namespace(), "ip link add probe type vxlan id 9 dstport 9").is_ok();
    if has_some {
        host.run("ip link del probe");
    }
    is_skipped(test, (!has_some).then(|| "the kernel has no vxlan".to_owned()))
}

/// The devices are made with the words of the manual. One that was not told so takes no checksum of 0 over IPv6.
#[test]
fn vxlan_devices_of_linux_take_what_is_sent_over_both_families() {
    let test = "tunnels::vxlan_devices_of_linux_take_what_is_sent_over_both_families";
    if is_missing(test, &[]) {
        return;
    }
    let mut lab = Lab::new();
    let middle = lab.silent_host("middle");
    let [peer, far] = ["peer", "far"].map(|name| lab.host(name));
    if has_no_vxlan(test, &peer) {
        return;
    }
    let near_end = CableEnd::new(&peer, "lan", "00:00:5e:00:53:01").address("192.0.2.2/24").address("2001:db8::2/64");
    connect([&near_end, &CableEnd::new(&middle, "near", "00:00:5e:00:53:11")], 1600);
    let far_end = CableEnd::new(&far, "lan", "00:00:5e:00:53:02").address("10.0.0.2/24");
    connect([&far_end, &CableEnd::new(&middle, "far", "00:00:5e:00:53:12")], 1500);
    let sandbox = Sandbox::new().launched_by(&["ip", "netns", "exec", middle.namespace()]);
    sandbox.write(NETWORK, VXLAN);
    let running = sandbox.start(&[NETWORK, "--json"]);
    for address in ["192.0.2.1", "2001:db8::1"] {
        traffic::wait_for_answer(&peer, address);
    }
    let devices = [
        ("id 1 local 192.0.2.2 remote 192.0.2.1 dstport 4789", true),
        ("id 2 local 2001:db8::2 remote 2001:db8::1 dstport 4789", true),
        ("id 3 local 2001:db8::2 remote 2001:db8::1 dstport 4789", false),
        ("id 3 local 2001:db8::2 remote 2001:db8::1 dstport 4789 udp6zerocsumrx", true),
    ];
    for (words, is_answered) in devices {
        peer.run(&format!("ip link add wire type vxlan {words}"));
        peer.sh("ip link set dev wire mtu 1500 up && ip addr add 10.0.0.1/24 dev wire");
        if is_answered {
            traffic::wait_for_answer(&peer, "10.0.0.2");
            for size in [0, 1_000, 1_472, 3_000] {
                peer.run(&format!("ping -n -q -c 2 -i 0.2 -W 5 -s {size} 10.0.0.2"));
            }
        } else {
            assert!(netns::run(peer.namespace(), "ping -n -q -c 2 -i 0.2 -W 1 10.0.0.2").is_err(), "{words}");
        }
        peer.run("ip link del wire");
        far.run("ip neigh flush all");
    }
    let lost = app(&running.counters(), "vxlan")["lost"].as_object().map(serde_json::Map::len);
    assert_eq!(lost, Some(0));
    running.signal(Signal::INT);
    running.wait().success();
}

/// A datagram of UDP in a frame, with these ECN bits.
fn datagram(macs: [[u8; 6]; 2], addresses: [&str; 2], dst_port: u16, ecn: u8, data: &[u8]) -> Vec<u8> {
    let [src, dst] = addresses.map(|address| address.parse().unwrap());
    let addresses = IpPair::new(src, dst).unwrap();
    let mut datagram = [&[0; 8], data].concat();
    UdpHeader { src_port: 50_000, dst_port }.emit(&mut datagram, &addresses).unwrap();
    let (kind, mut packet) = match addresses {
        IpPair::V4 { .. } => ([0x08, 0x00], vec![0; 20]),
        IpPair::V6 { .. } => ([0x86, 0xdd], vec![0; 40]),
    };
    packet.extend(datagram);
    let protocol = IpProtocol::UDP;
    match addresses {
        IpPair::V4 { src, dst } => {
            let (identification, dont_fragment) = (0, true);
            let header = Ipv4Header { src, dst, protocol, ttl: 64, traffic_class: ecn, identification, dont_fragment };
            header.emit(&mut packet).unwrap();
        }
        IpPair::V6 { src, dst } => {
            let (next_header, hop_limit, flow_label) = (protocol, 64, 0);
            let header = Ipv6Header { src, dst, next_header, hop_limit, traffic_class: ecn, flow_label };
            header.emit(&mut packet).unwrap();
        }
    }
    [&macs[1][..], &macs[0], &kind, &packet].concat()
}

/// The frames of a pcap file, whose lengths are those before they were taken out of a tunnel.
fn contents(path: &Path) -> frames::Frames {
    let file = std::fs::read(path).unwrap();
    let (mut rest, mut all) = (&file[24..], frames::Frames::new());
    while let Some((header, behind)) = rest.split_first_chunk::<16>() {
        let kept = u32::from_le_bytes([header[8], header[9], header[10], header[11]]) as usize;
        all.push(behind[..kept].to_vec());
        rest = &behind[kept..];
    }
    all
}

/// Packets in tunnels, with all marks inside and outside, come out of a device of Linux and of `vxlan` as the same frames.
#[test]
fn marks_of_congestion_come_out_as_with_linux() {
    let test = "tunnels::marks_of_congestion_come_out_as_with_linux";
    if is_missing(test, &["tcpdump"]) {
        return;
    }
    for (ends, family) in [(["192.0.2.1", "192.0.2.2"], "ip4"), (["2001:db8::1", "2001:db8::2"], "ip6")] {
        let mut lab = Lab::new();
        let [near, judge] = [lab.silent_host("near"), lab.host("judge")];
        if has_no_vxlan(test, &judge) {
            return;
        }
        let bits = if family == "ip4" { 24 } else { 64 };
        let end = CableEnd::new(&judge, "lan", "00:00:5e:00:53:02").address(&format!("{}/{bits}", ends[1]));
        connect([&CableEnd::new(&near, "lan", "00:00:5e:00:53:01"), &end], 1600);
        judge.run(&format!("ip link add wire type vxlan id 1 local {} remote {} dstport 4789", ends[1], ends[0]));
        judge.run("ip link set wire up");
        judge.wait_for_addresses();
        let inside = [["10.0.0.1", "10.0.0.2"], ["fd00::1", "fd00::2"]];
        let sent: frames::Frames = (0..32u8)
            .map(|number| {
                let (inner, outer) = (number >> 1 & 3, number >> 3);
                let macs = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];
                let frame = datagram(macs, inside[usize::from(number & 1)], 9, inner, &[number; 30]);
                let macs = [[0, 0, 0x5e, 0, 0x53, 1], [0, 0, 0x5e, 0, 0x53, 2]];
                datagram(macs, ends, 4_789, outer, &[&[8, 0, 0, 0, 0, 0, 1, 0][..], &frame].concat())
            })
            .collect();
        let sandbox = Sandbox::new().launched_by(&["ip", "netns", "exec", near.namespace()]);
        let path = sandbox.path("linux.pcap");
        let mut capture = Capture::start(judge.namespace(), "wire", "udp port 9", &path).unwrap();
        frames::write(&sandbox.path("sent.pcap"), &sent);
        let network = Network::default()
            .app("file", "pcap-reader", "path = \"sent.pcap\"")
            .app("tee", "tee", "")
            .app("lan", "raw-socket", "interface = \"lan\"")
            .app("end", "sink", "")
            .app("out", "pcap-writer", "path = \"bellows.pcap\"")
            .app(
                "vxlan",
                "vxlan",
                &format!("sessions.site = {{ local = \"{}\", remote = \"{}\", vni = 1 }}", ends[1], ends[0]),
            )
            .link("file.output -> tee.input")
            .link("tee.lan -> lan.input")
            .link("lan.output -> end.input")
            .link(&format!("tee.tunnel -> vxlan.{family}"))
            .link("vxlan.site -> out.input");
        sandbox.write(NETWORK, &network.text());
        let running = sandbox.start(&[NETWORK, "--json"]);
        let wire = HostInterface::new(&judge, "wire");
        let dropped = 2;
        eventually("frames from the device", || wire.counters().rx_packets >= 32 - dropped);
        eventually("frames from vxlan", || {
            let vxlan = app(&running.counters(), "vxlan").clone();
            vxlan["lost"]["bad_ecn"] == dropped && vxlan["out_packets"] == 32 - dropped
        });
        running.signal(Signal::INT);
        running.wait().success();
        capture.stop().unwrap();
        frames::assert_same(family, &contents(&sandbox.path("bellows.pcap")), &frames::read(&path));
    }
}
