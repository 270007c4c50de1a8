//! The frames of floods, and of packets to forward.

use std::net::{Ipv4Addr, Ipv6Addr};

use bellows_wire::icmp::IcmpMessage;
use bellows_wire::ipv4::Ipv4Header;
use bellows_wire::ipv6::Ipv6Header;
use bellows_wire::{IpPair, IpProtocol};
use fastrand::Rng;

use crate::named::named;
use crate::workers::fail;

named! {
    /// What a router is flooded with.
    pub(super) enum Flood {
        /// Packets whose time to live or hop limit runs out.
        Time4 = "time4",
        Time6 = "time6",
        /// Packets to addresses without a route.
        NoRoute4 = "no-route4",
        NoRoute6 = "no-route6",
        /// Packets that are too long for their link and must not be fragmented.
        TooBig4 = "too-big4",
        TooBig6 = "too-big6",
        /// Packets to random addresses of a link, most of which nobody has.
        Unresolved4 = "unresolved4",
        Unresolved6 = "unresolved6",
        /// Echo requests to the router.
        Echo4 = "echo4",
        Echo6 = "echo6",
        /// ARP requests from random senders for the router's address.
        ArpRequest = "arp-request",
        /// ARP replies that nobody asked for.
        ArpReply = "arp-reply",
        /// Neighbour solicitations from random senders for the router's address.
        Solicitation = "nd-solicitation",
        /// Neighbour advertisements that nobody asked for.
        Advertisement = "nd-advertisement",
    }
}

/// Addresses of the router on the link that floods come from.
pub(super) const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const OWN4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const OWN6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);

/// The network of a router that forwards between two links.
pub(super) const NETWORK: &str = r#"
links = [
  "feed.output -> router.left",
  "router.left -> left.input",
  "router.right -> right.input",
]

[apps]
feed.app = "source"
left.app = "sink"
right.app = "sink"

[apps.router]
app = "router"
routes = ["203.0.113.0/24 via 10.1.0.2", "2001:db8:3::/48 via fd00:0:0:1::2"]

[apps.router.interfaces.left]
mac = "02:00:00:00:00:01"
addresses = ["10.0.0.1/16", "fd00::1/64"]
neighbours = { "10.0.0.2" = "04:00:00:00:00:01", "fd00::2" = "04:00:00:00:00:01" }

[apps.router.interfaces.right]
mac = "02:00:00:00:00:02"
mtu = 1400
addresses = ["10.1.0.1/16", "fd00:0:0:1::1/64"]
neighbours = { "10.1.0.2" = "04:00:00:00:00:02", "fd00:0:0:1::2" = "04:00:00:00:00:02" }
"#;

/// Payload bytes of a usual packet, and of one that is too long for the second link.
const USUAL: usize = 18;
const LONG: usize = 1_450;

/// Hops of packets to forward.
pub(super) const HOPS: u8 = 64;

impl Flood {
    /// Whether the packets that are forwarded beside it are those of IPv6.
    pub(super) fn is_v6(self) -> bool {
        match self {
            Flood::Time4 | Flood::NoRoute4 | Flood::TooBig4 | Flood::Unresolved4 | Flood::Echo4 => false,
            Flood::ArpRequest | Flood::ArpReply => false,
            Flood::Time6 | Flood::NoRoute6 | Flood::TooBig6 | Flood::Unresolved6 | Flood::Echo6 => true,
            Flood::Solicitation | Flood::Advertisement => true,
        }
    }

    /// A frame of the flood.
    pub(super) fn frame(self, random: &mut Rng) -> Vec<u8> {
        let host = random.u16(256..u16::MAX);
        let [high, low] = host.to_be_bytes();
        let (there4, there6) = (forwarded4(random), forwarded6(random));
        let on_link6 = Ipv6Addr::new(0xfd00, 0, 0, 1, 0, 0, 0, host);
        match self {
            Flood::Time4 => udp4(there4, 1, USUAL),
            Flood::Time6 => udp6(there6, 1, USUAL),
            Flood::NoRoute4 => udp4(Ipv4Addr::new(198, 18, high, low), HOPS, USUAL),
            Flood::NoRoute6 => udp6(Ipv6Addr::new(0x2001, 0xdb8, 9, 0, 0, 0, 0, host), HOPS, USUAL),
            Flood::TooBig4 => udp4(there4, HOPS, LONG),
            Flood::TooBig6 => udp6(there6, HOPS, LONG),
            Flood::Unresolved4 => udp4(Ipv4Addr::new(10, 1, high, low), HOPS, USUAL),
            Flood::Unresolved6 => udp6(on_link6, HOPS, USUAL),
            Flood::Echo4 => icmp4(OWN4),
            Flood::Echo6 => icmp6(SENDER6, OWN6, HOPS, &[128, 0, 0, 0, 0, 1, 0, 1]),
            Flood::ArpRequest => arp(1, [high, low]),
            Flood::ArpReply => arp(2, [high, low]),
            Flood::Solicitation => {
                let sender = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 1, host);
                icmp6(sender, OWN6, 255, &discovery(135, 0, OWN6, 1, [high, low]))
            }
            Flood::Advertisement => {
                let sender = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 1, host);
                icmp6(sender, OWN6, 255, &discovery(136, 0x60, sender, 2, [high, low]))
            }
        }
    }

    /// A frame to forward.
    pub(super) fn forwarded(self, random: &mut Rng) -> Vec<u8> {
        match self.is_v6() {
            false => udp4(forwarded4(random), HOPS, USUAL),
            true => udp6(forwarded6(random), HOPS, USUAL),
        }
    }
}

const SENDER4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const SENDER6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2);

fn forwarded4(random: &mut Rng) -> Ipv4Addr {
    Ipv4Addr::new(203, 0, 113, random.u8(..))
}

fn forwarded6(random: &mut Rng) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 3, 0, 0, 0, 0, random.u16(..))
}

/// An Ethernet header of a frame to the router, with room for a packet.
fn framed(kind: u16, sender: [u8; 6], length: usize) -> Vec<u8> {
    let mut frame = [&MAC[..], &sender, &kind.to_be_bytes()].concat();
    frame.resize(14 + length, 0);
    frame
}

const SENDER: [u8; 6] = [4, 0, 0, 0, 0, 1];

fn ip4(to: Ipv4Addr, protocol: IpProtocol, ttl: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = framed(0x0800, SENDER, 20 + payload.len());
    frame[34..].copy_from_slice(payload);
    let header =
        Ipv4Header { src: SENDER4, dst: to, protocol, ttl, traffic_class: 0, identification: 0, dont_fragment: true };
    header.emit(&mut frame[14..]).unwrap_or_else(|error| fail(&error));
    frame
}

fn udp4(to: Ipv4Addr, ttl: u8, payload: usize) -> Vec<u8> {
    ip4(to, IpProtocol::UDP, ttl, &vec![0; payload])
}

fn icmp4(to: Ipv4Addr) -> Vec<u8> {
    // An echo request of zeros: all ones less its type.
    ip4(to, IpProtocol::ICMP, HOPS, &[8, 0, 0xf7, 0xff, 0, 0, 0, 0])
}

fn ip6(from: Ipv6Addr, to: Ipv6Addr, next_header: IpProtocol, hop_limit: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = framed(0x86dd, SENDER, 40 + payload.len());
    frame[54..].copy_from_slice(payload);
    let header = Ipv6Header { src: from, dst: to, next_header, hop_limit, traffic_class: 0, flow_label: 0 };
    header.emit(&mut frame[14..]).unwrap_or_else(|error| fail(&error));
    frame
}

fn udp6(to: Ipv6Addr, hop_limit: u8, payload: usize) -> Vec<u8> {
    ip6(SENDER6, to, IpProtocol::UDP, hop_limit, &vec![0; payload])
}

fn icmp6(from: Ipv6Addr, to: Ipv6Addr, hop_limit: u8, message: &[u8]) -> Vec<u8> {
    let mut message = message.to_vec();
    if let Ok(mut message) = IcmpMessage::new_checked(&mut message[..]) {
        message.fill_checksum(&IpPair::V6 { src: from, dst: to });
    }
    ip6(from, to, IpProtocol::ICMPV6, hop_limit, &message)
}

/// A neighbour solicitation or advertisement with one option, that of a link-layer address (RFC 4861, sections 4.3, 4.4).
fn discovery(kind: u8, flags: u8, target: Ipv6Addr, option: u8, [high, low]: [u8; 2]) -> Vec<u8> {
    [&[kind, 0, 0, 0, flags, 0, 0, 0][..], &target.octets(), &[option, 1, 4, 0, 0, 1, high, low]].concat()
}

/// An ARP packet to the router from a random sender (RFC 826).
fn arp(operation: u8, [high, low]: [u8; 2]) -> Vec<u8> {
    let sender = [4, 0, 0, 1, high, low];
    let mut frame = framed(0x0806, sender, 46);
    let packet = [
        &[0, 1, 8, 0, 6, 4, 0, operation][..],
        &sender,
        &[10, 0, high, low],
        if operation == 1 { &[0; 6] } else { &MAC },
        &OWN4.octets(),
    ]
    .concat();
    frame[14..42].copy_from_slice(&packet);
    frame
}
