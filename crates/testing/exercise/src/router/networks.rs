//! The routers that frames are sent to.

use std::net::{IpAddr, Ipv4Addr};

use super::Datagram;

/// The ports.
pub const PORTS: [&str; 2] = ["left", "right"];

/// The Ethernet addresses of their interfaces without tags.
pub const MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];

/// A network with a router, whose ports lead from `from-left` and `from-right` and to `to-left` and `to-right`, and what is
/// known of it.
pub struct RouterNetwork {
    pub(super) text: &'static str,
    pub(super) interfaces: &'static [TestedInterface],
    /// Its IP addresses, and the broadcast addresses of its links.
    pub(super) own: &'static [&'static str],
    pub(super) broadcasts: &'static [Ipv4Addr],
    /// What its keys forbid to forward from one interface to another one.
    pub(super) forbids: fn(usize, usize, &Datagram<'_>) -> Option<&'static str>,
}

/// An interface of a router.
pub(super) struct TestedInterface {
    port: usize,
    /// Its tags, each a type and a VLAN.
    tags: &'static [(u16, u16)],
    pub(super) mac: [u8; 6],
    /// The longest IP packets that leave it.
    pub(super) mtu: usize,
}

/// Up to two tags of a frame, and what follows them.
fn tags_of(frame: &[u8]) -> (Vec<(u16, u16)>, &[u8]) {
    let (mut tags, mut rest) = (Vec::new(), frame.get(12..).unwrap_or_default());
    while let [a @ (0x81 | 0x88), b @ (0x00 | 0xa8), c, d, ..] = *rest
        && matches!([a, b], [0x81, 0x00] | [0x88, 0xa8])
        && tags.len() < 2
    {
        tags.push((u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]) & 0xfff));
        rest = &rest[4..];
    }
    (tags, rest)
}

impl RouterNetwork {
    /// The interface that a frame arrives at, and the frame without its tags.
    pub(super) fn arrived(&self, port: usize, frame: &[u8]) -> Option<(usize, Vec<u8>)> {
        let (addresses, _) = frame.split_at_checked(12)?;
        let (mut tags, _) = tags_of(frame);
        let all = tags.len();
        // A tag of VLAN 0 is a priority alone.
        if tags.first().is_some_and(|&(_, id)| id == 0) {
            tags.remove(0);
        }
        let interfaces = self.interfaces.iter().enumerate();
        let is_of = |(_, it): &(usize, &TestedInterface)| it.port == port && tags.starts_with(it.tags);
        let (number, found) = interfaces.filter(is_of).max_by_key(|(_, it)| it.tags.len())?;
        let removed = all - tags.len() + found.tags.len();
        Some((number, [addresses, &frame[12 + 4 * removed..]].concat()))
    }

    /// Makes a frame one to the router: to the interface of the port that has its tags.
    pub fn address(&self, port: usize, frame: &mut [u8]) {
        let mac = self.arrived(port, frame).map_or(MACS[port], |(number, _)| self.interfaces[number].mac);
        if let Some(destination) = frame.first_chunk_mut() {
            *destination = mac;
        }
    }

    /// The interface that a frame has left by, and the frame without its tags.
    pub(super) fn left(&self, port: usize, frame: &[u8]) -> Option<(usize, Vec<u8>)> {
        let (tags, rest) = tags_of(frame);
        let number = self.interfaces.iter().position(|interface| interface.port == port && interface.tags == tags)?;
        Some((number, [&frame[..12], rest].concat()))
    }
}

/// A router with a route to every address, so that only checks keep a packet from leaving.
pub const PLAIN: RouterNetwork = RouterNetwork {
    text: r#"
links = [
  "from-left.output -> router.left",
  "from-right.output -> router.right",
  "router.left -> to-left.input",
  "router.right -> to-right.input",
]

[apps]
from-left.app = "source"
from-right.app = "source"
to-left.app = "sink"
to-right.app = "sink"

[apps.router]
app = "router"
routes = [
  "default via 198.51.100.2",
  "default via 2001:db8:2::2",
  "203.0.113.0/24 via 192.0.2.2",
  "2001:db8:3::/48 via 2001:db8:1::2",
]

[apps.router.interfaces.left]
mac = "02:00:00:00:00:01"
addresses = ["192.0.2.1/24", "2001:db8:1::1/64"]
neighbours = { "192.0.2.2" = "04:00:00:00:00:01", "2001:db8:1::2" = "04:00:00:00:00:01" }

[apps.router.interfaces.right]
mac = "02:00:00:00:00:02"
mtu = 1400
addresses = ["198.51.100.1/24", "2001:db8:2::1/64"]
neighbours = { "198.51.100.2" = "04:00:00:00:00:02", "2001:db8:2::2" = "04:00:00:00:00:02" }
"#,
    interfaces: &[
        TestedInterface { port: 0, tags: &[], mac: MACS[0], mtu: 1500 },
        TestedInterface { port: 1, tags: &[], mac: MACS[1], mtu: 1400 },
    ],
    own: &["192.0.2.1", "198.51.100.1", "2001:db8:1::1", "2001:db8:2::1"],
    broadcasts: &[Ipv4Addr::new(192, 0, 2, 255), Ipv4Addr::new(198, 51, 100, 255)],
    forbids: |_, _, _| None,
};

/// A router with everything that its keys can ask for, but devices of the host, which need root: VLANs, several ways of a
/// route, IPv4 by next hops of IPv6, checks of sources, rules, router advertisements, and a service.
pub const ALL_KEYS: RouterNetwork = RouterNetwork {
    text: r#"
links = [
  "from-left.output -> router.left",
  "from-right.output -> router.right",
  "router.left -> to-left.input",
  "router.right -> to-right.input",
  "router.ip4-tunnels -> served4.input",
  "router.ip6-tunnels -> served6.input",
  "serves4.output -> router.ip4-tunnels",
  "serves6.output -> router.ip6-tunnels",
]

[apps]
from-left.app = "source"
from-right.app = "source"
to-left.app = "sink"
to-right.app = "sink"
served4.app = "sink"
served6.app = "sink"
serves4 = { app = "source", count = 0 }
serves6 = { app = "source", count = 0 }

[apps.router]
app = "router"
neighbours = 16
services = [{ to = "tunnels", protocol = "l2tp" }, { to = "tunnels", protocol = "udp", port = 4789 }]
routes = [
  "default nexthop via 198.51.100.2 weight 2 nexthop via 10.6.0.2",
  "default nexthop via 2001:db8:2::2 nexthop via 2001:db8:6::2",
  "203.0.113.0/24 via 192.0.2.2",
  "100.64.0.0/10 via inet6 2001:db8:1::2",
  "2001:db8:3::/48 via fe80::2 dev left",
  "blackhole 198.18.0.0/15",
  "prohibit 2001:db8:4::/48",
]

[apps.router.interfaces.left]
mac = "02:00:00:00:00:01"
addresses = ["192.0.2.1/24", "2001:db8:1::1/64"]
neighbours = { "192.0.2.2" = "04:00:00:00:00:01", "2001:db8:1::2" = "04:00:00:00:00:01" }
advertise = { mtu = 1400, managed = true }
access_in = ["deny tcp dst port 23", "reject udp dst port 7", "permit"]

[apps.router.interfaces.right]
mac = "02:00:00:00:00:02"
mtu = 1400
addresses = ["198.51.100.1/24", "2001:db8:2::1/64"]
neighbours = { "198.51.100.2" = "04:00:00:00:00:02", "2001:db8:2::2" = "04:00:00:00:00:02" }
reverse_path = "loose"
access_out = ["deny udp port 5555", "permit"]
redirects = false

[apps.router.interfaces.five]
port = "left"
vlan = 5
mac = "02:00:00:00:00:03"
addresses = ["10.5.0.1/16", "2001:db8:5::1/64"]
reverse_path = "strict"
advertise = {}

[apps.router.interfaces.inner]
port = "right"
service_vlan = 6
vlan = 7
mac = "02:00:00:00:00:04"
mtu = 1300
addresses = ["10.6.0.1/16", "10.7.0.1/24", "2001:db8:6::1/64"]
neighbours = { "10.6.0.2" = "04:00:00:00:00:04", "2001:db8:6::2" = "04:00:00:00:00:04" }
"#,
    interfaces: &[
        TestedInterface { port: 0, tags: &[], mac: MACS[0], mtu: 1500 },
        TestedInterface { port: 1, tags: &[], mac: MACS[1], mtu: 1400 },
        TestedInterface { port: 0, tags: &[(0x8100, 5)], mac: [2, 0, 0, 0, 0, 3], mtu: 1500 },
        TestedInterface { port: 1, tags: &[(0x88a8, 6), (0x8100, 7)], mac: [2, 0, 0, 0, 0, 4], mtu: 1300 },
    ],
    own: &[
        "192.0.2.1",
        "198.51.100.1",
        "10.5.0.1",
        "10.6.0.1",
        "10.7.0.1",
        "2001:db8:1::1",
        "2001:db8:2::1",
        "2001:db8:5::1",
        "2001:db8:6::1",
    ],
    broadcasts: &[
        Ipv4Addr::new(192, 0, 2, 255),
        Ipv4Addr::new(198, 51, 100, 255),
        Ipv4Addr::new(10, 5, 255, 255),
        Ipv4Addr::new(10, 6, 255, 255),
        Ipv4Addr::new(10, 7, 0, 255),
    ],
    forbids: forbidden_by_keys,
};

/// What the keys of [`ALL_KEYS`] forbid.
fn forbidden_by_keys(from: usize, to: usize, packet: &Datagram<'_>) -> Option<&'static str> {
    let ports = packet.ports();
    let is_to = |protocol, port| ports.is_some_and(|(of, _, to)| (of, to) == (protocol, port));
    let is_spoofed = match packet.source {
        IpAddr::V4(source) => source.octets()[..2] != [10, 5],
        IpAddr::V6(source) => source.segments()[..4] != [0x2001, 0xdb8, 5, 0] && !source.is_unicast_link_local(),
    };
    let is_own = ALL_KEYS.own.iter().any(|own| own.parse::<IpAddr>() == Ok(packet.source));
    match (from, to) {
        (0, _) if is_to(6, 23) || is_to(17, 7) => Some("what access_in denies"),
        (1 | 2, _) if is_own => Some("a packet with a source of the router"),
        (2, _) if is_spoofed => Some("a packet from another link"),
        (_, 1) if ports.is_some_and(|(of, from, to)| of == 17 && [from, to].contains(&5555)) => {
            Some("what access_out denies")
        }
        _ => None,
    }
}
