//! The measured filters, and packets that match them or do not.

use fastrand::Rng;
use serde::{Deserialize, Serialize};

/// Length of the frames in bytes.
pub(super) const LENGTH: usize = 64;

/// Items of the long lists.
const PORTS: u16 = 200;
const PREFIXES: u16 = 1_000;

/// A measured filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Filter {
    /// That of the document that measures Snabb's app `PcapFilter`.
    Document,
    /// Those of the pflua project.
    Portrange,
    TcpPort,
    SrcNet,
    Host,
    /// One port of the list, and the list.
    Port,
    Ports,
    /// One prefix of the list, and the list.
    Prefix,
    Prefixes,
}

impl Filter {
    /// Filters without a list.
    pub(super) const SHORT: [Filter; 5] =
        [Filter::Document, Filter::Portrange, Filter::TcpPort, Filter::SrcNet, Filter::Host];

    /// The expression.
    pub(super) fn expression(self) -> String {
        let joined = |count, item: fn(u16) -> String| (0..count).map(item).collect::<Vec<_>>().join(" or ");
        match self {
            Filter::Document => "not ip6 and not ip and not ether broadcast".to_owned(),
            Filter::Portrange => "portrange 0-6000".to_owned(),
            Filter::TcpPort => "tcp port 5555".to_owned(),
            Filter::SrcNet => "src net 10.0.0.0/8".to_owned(),
            Filter::Host => "host 1.2.3.4".to_owned(),
            Filter::Port => format!("port {}", port(PORTS / 2)),
            Filter::Ports => format!("port {}", joined(PORTS, |index| port(index).to_string())),
            Filter::Prefix => prefix(PREFIXES / 2),
            Filter::Prefixes => joined(PREFIXES, prefix),
        }
    }

    /// The expression, or what a long one contains.
    pub(super) fn label(self) -> String {
        match self {
            Filter::Ports => format!("{PORTS} ports"),
            Filter::Prefixes => format!("{PREFIXES} prefixes"),
            short => short.expression(),
        }
    }

    /// Whether the pflua project measured it.
    pub(super) fn is_of_pflua(self) -> bool {
        matches!(self, Filter::Portrange | Filter::TcpPort | Filter::SrcNet | Filter::Host)
    }

    fn matching(self, random: &mut Rng) -> Vec<u8> {
        let (mut source, mut destination, mut to) = ([99, 0, 0, random.u8(..)], [98, 0, 0, random.u8(..)], 50_000);
        match self {
            Filter::Document => return arp([2, 0, 0, 0, 0, 1], random.u8(..)),
            Filter::Portrange => to = random.u16(..=6000),
            Filter::TcpPort => to = 5555,
            Filter::SrcNet => source = [10, random.u8(..), random.u8(..), random.u8(..)],
            Filter::Host => destination = [1, 2, 3, 4],
            Filter::Port => to = port(PORTS / 2),
            Filter::Ports => to = port(random.u16(..PORTS)),
            Filter::Prefix => destination = in_prefix(PREFIXES / 2, random),
            Filter::Prefixes => destination = in_prefix(random.u16(..PREFIXES), random),
        }
        ipv4(TCP, source, destination, to)
    }

    /// A frame with IPv4 and TCP that does not match.
    fn other(self, random: &mut Rng) -> Vec<u8> {
        // Above all ports of the filters.
        let to = random.u16(10_000..);
        ipv4(TCP, [99, 0, 0, random.u8(..)], [98, 0, 0, random.u8(..)], to)
    }

    /// A frame of other protocols that does not match.
    fn foreign(self, random: &mut Rng) -> Vec<u8> {
        match random.u8(..4) {
            0 => arp([0xff; 6], random.u8(..)),
            1 => ipv6([98, random.u8(..)]),
            2 => ipv4(UDP, [99, 0, 0, random.u8(..)], [98, 0, 0, random.u8(..)], random.u16(10_000..)),
            _ => ipv4(ICMP, [99, 0, 0, random.u8(..)], [98, 0, 0, random.u8(..)], random.u16(10_000..)),
        }
    }
}

/// An item of the list of ports.
fn port(index: u16) -> u16 {
    1_000 + index * 37
}

/// An item of the list of prefixes.
fn prefix(index: u16) -> String {
    format!("net 10.{}.{}.0/24", index / 200, index % 200)
}

fn in_prefix(index: u16, random: &mut Rng) -> [u8; 4] {
    [10, (index / 200) as u8, (index % 200) as u8, random.u8(..)]
}

/// The packets of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Packets {
    /// All match.
    Matching,
    /// None matches: TCP over IPv4.
    Other,
    /// Matching and other ones at random.
    Mixed,
    /// None matches: ARP, IPv6, UDP and ICMP. Only before a measurement.
    Foreign,
}

impl Packets {
    /// Those that are measured.
    pub(super) const MEASURED: [Packets; 3] = [Packets::Matching, Packets::Other, Packets::Mixed];

    pub(super) fn name(self) -> &'static str {
        match self {
            Packets::Matching => "matching",
            Packets::Other => "other",
            Packets::Mixed => "mixed",
            Packets::Foreign => "foreign",
        }
    }

    /// Frames for a filter, the same every time, each with whether it matches.
    pub(super) fn frames(self, filter: Filter, count: usize) -> Vec<(Vec<u8>, bool)> {
        let mut random = Rng::with_seed(17);
        let frame = |_| match self {
            Packets::Foreign => (filter.foreign(&mut random), false),
            packets if packets == Packets::Matching || packets == Packets::Mixed && random.bool() => {
                (filter.matching(&mut random), true)
            }
            _ => (filter.other(&mut random), false),
        };
        (0..count).map(frame).collect()
    }
}

/// IP protocol numbers.
const ICMP: u8 = 1;
pub(super) const TCP: u8 = 6;
const UDP: u8 = 17;

/// An Ethernet frame for one station with this type and this payload.
pub(super) fn ethernet(ethertype: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2][..], &ethertype.to_be_bytes(), payload].concat();
    frame.resize(LENGTH, 0);
    frame
}

/// A packet of IPv4 from port 60000.
fn ipv4(protocol: u8, source: [u8; 4], destination: [u8; 4], to: u16) -> Vec<u8> {
    let header = [0x45, 0, 0, 50, 0, 0, 0, 0, 64, protocol, 0, 0];
    let ports = [60_000u16.to_be_bytes(), to.to_be_bytes()].concat();
    ethernet(0x0800, &[&header[..], &source, &destination, &ports].concat())
}

/// A packet of IPv6 and UDP.
fn ipv6(address: [u8; 2]) -> Vec<u8> {
    let mut packet = vec![0; 44];
    packet[0] = 0x60;
    packet[5] = 8;
    packet[6] = UDP;
    packet[22..24].copy_from_slice(&address);
    packet[40..44].copy_from_slice(&[0xea, 0x60, 0xea, 0x61]);
    ethernet(0x86dd, &packet)
}

/// A question of ARP.
fn arp(destination: [u8; 6], host: u8) -> Vec<u8> {
    let header = [0, 1, 8, 0, 6, 4, 0, 1];
    let addresses = [2, 0, 0, 0, 0, 2, 99, 0, 0, host, 0, 0, 0, 0, 0, 0, 98, 0, 0, host];
    let mut frame = ethernet(0x0806, &[&header[..], &addresses].concat());
    frame[..6].copy_from_slice(&destination);
    frame
}

#[cfg(test)]
mod tests {
    use bellows_filter::interpret::{PacketView, matches};
    use bellows_filter::{Expression, Options};

    use super::*;

    #[test]
    fn packets_match_as_they_say() {
        let lists = [Filter::Port, Filter::Ports, Filter::Prefix, Filter::Prefixes];
        for filter in Filter::SHORT.into_iter().chain(lists) {
            let expression = Expression::parse(&filter.expression(), &Options::default()).unwrap();
            for packets in Packets::MEASURED.into_iter().chain([Packets::Foreign]) {
                let frames = packets.frames(filter, 500);
                for (frame, expected) in &frames {
                    assert_eq!(frame.len(), LENGTH);
                    let found = matches(expression.graph(), PacketView::whole(frame));
                    assert_eq!(found, *expected, "{filter:?} {packets:?} {frame:x?}");
                }
                let matching = frames.iter().filter(|(_, matches)| *matches).count();
                let expected = match packets {
                    Packets::Matching => 500..=500,
                    Packets::Mixed => 200..=300,
                    Packets::Other | Packets::Foreign => 0..=0,
                };
                assert!(expected.contains(&matching), "{filter:?} {packets:?}: {matching}");
            }
        }
    }
}
