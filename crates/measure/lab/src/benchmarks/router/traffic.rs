//! The packets of the router's benchmark, and the routes that they take.

use std::net::{Ipv4Addr, Ipv6Addr};

use bellows_fib::Prefix;
use bellows_packet::Packet;
use bellows_sys::cache;
use bellows_vrf::interface::InterfaceAddress;
use bellows_vrf::route::{Action, IpPrefix, NextHop};
use bellows_vrf::{IfExists, Interface, RouteSpec, Vrf};
use bellows_wire::ipv4::Ipv4Header;
use bellows_wire::ipv6::Ipv6Header;
use bellows_wire::{IpProtocol, MacAddr};
use fastrand::Rng;
use serde::{Deserialize, Serialize};

use super::circulation::Restore;
use crate::benchmarks::fib::routes::Prefixes;
use crate::workers::fail;

/// Length of the frames, bytes.
pub(super) const SIZE: usize = 60;

/// An IP family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(in crate::benchmarks) enum Family {
    Ip4,
    Ip6,
}

/// Packets to destinations that are routed, in random order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::benchmarks) struct Traffic {
    pub(in crate::benchmarks) family: Family,
    /// The number of routes: /24 of IPv4, /48 of IPv6.
    pub(in crate::benchmarks) routes: u32,
    /// Whether the routes are those of the Internet, and each destination is within a random one of these.
    pub(in crate::benchmarks) is_internet: bool,
    pub(in crate::benchmarks) in_flight: usize,
}

/// Bits of an IPv4 and of an IPv6 address that are the key of a destination in the Internet.
const KEY_BITS: (u32, u32) = (18, 21);

/// The first prefix: 16.0.0.0/24 and 2001::/48. The next ones follow it.
const FIRST: u32 = 0x10_0000;
const FIRST_V6: u128 = 0x2001 << 112;

/// The address of the router itself, and of the one behind it.
const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const NEXT: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);

impl Traffic {
    /// The key of a frame's destination: the number of the route that it takes.
    #[inline(always)]
    pub(super) fn key(&self, frame: &[u8]) -> u32 {
        match self.family {
            Family::Ip4 => {
                let (first, shift) = if self.is_internet { (0, 32 - KEY_BITS.0) } else { (FIRST << 8, 8) };
                word(frame, 30).wrapping_sub(first) >> shift
            }
            Family::Ip6 => {
                let (at, shift) = if self.is_internet { (38, 32 - KEY_BITS.1) } else { (40, 0) };
                word(frame, at) >> shift
            }
        }
    }

    /// The number of keys.
    pub(super) fn keys(&self) -> u32 {
        match self.family {
            _ if !self.is_internet => self.routes,
            Family::Ip4 => 1 << KEY_BITS.0,
            Family::Ip6 => 1 << KEY_BITS.1,
        }
    }

    /// The number of next hops.
    pub(super) fn next_hops(&self) -> usize {
        (self.routes as usize).min(256)
    }

    /// The packets. `prefixes` are the routes of the Internet.
    pub(in crate::benchmarks) fn packets(&self, prefixes: &Prefixes) -> Vec<Packet> {
        let mut random = Rng::with_seed(7);
        let packet = |_| {
            let mut frame = [0; SIZE];
            self.fill(self.destination(&mut random, prefixes), &mut frame);
            Packet::from_bytes(&frame).unwrap_or_else(|| fail(&"there is no buffer for a packet"))
        };
        (0..self.in_flight).map(packet).collect()
    }

    /// A destination, an IPv4 address in the lower bits.
    fn destination(&self, random: &mut Rng, prefixes: &Prefixes) -> u128 {
        match self.family {
            Family::Ip4 if self.is_internet => {
                let prefix = prefixes.ipv4[random.usize(..prefixes.ipv4.len())];
                random.u32(prefix.address()..=prefix.last()).into()
            }
            Family::Ip6 if self.is_internet => {
                let prefix = prefixes.ipv6[random.usize(..prefixes.ipv6.len())];
                random.u128(prefix.address()..=prefix.last())
            }
            Family::Ip4 => u128::from((FIRST + random.u32(..self.routes)) << 8 | u32::from(random.u8(..))),
            Family::Ip6 => FIRST_V6 | u128::from(random.u32(..self.routes)) << 80 | u128::from(random.u8(..)),
        }
    }

    /// Writes a frame to a destination.
    fn fill(&self, destination: u128, frame: &mut [u8; SIZE]) {
        frame[..6].copy_from_slice(&MAC.0);
        frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 9]);
        let written = match self.family {
            Family::Ip4 => {
                frame[12..14].copy_from_slice(&[0x08, 0x00]);
                let header = Ipv4Header {
                    src: Ipv4Addr::new(192, 0, 2, 9),
                    dst: Ipv4Addr::from(destination as u32),
                    protocol: IpProtocol::UDP,
                    ttl: 64,
                    traffic_class: 0,
                    identification: 0,
                    dont_fragment: false,
                };
                header.emit(&mut frame[14..])
            }
            Family::Ip6 => {
                frame[12..14].copy_from_slice(&[0x86, 0xdd]);
                let header = Ipv6Header {
                    src: Ipv6Addr::from(0x2001_0db8_u128 << 96 | 9),
                    dst: Ipv6Addr::from(destination),
                    next_header: IpProtocol::UDP,
                    hop_limit: 64,
                    traffic_class: 0,
                    flow_label: 0,
                };
                header.emit(&mut frame[14..])
            }
        };
        written.unwrap_or_else(|error| fail(&error));
    }

    /// The routing domain: one interface `in`, one `out`, and the routes, which lead to up to 250 neighbours.
    pub(in crate::benchmarks) fn vrf(&self, prefixes: &Prefixes) -> Vrf {
        let interface = |name: &str, addresses: [&str; 2]| Interface {
            name: name.to_owned(),
            port: name.to_owned(),
            mac: MAC,
            mtu: 1500,
            tags: Vec::new(),
            addresses: [(addresses[0], 24), (addresses[1], 64)]
                .map(|(address, length)| InterfaceAddress {
                    address: address.parse().unwrap_or_else(|error| fail(&error)),
                    length,
                })
                .to_vec(),
        };
        let interfaces =
            vec![interface("in", ["10.0.0.1", "fd00::1"]), interface("out", ["10.0.1.1", "fd00:0:0:1::1"])];
        let vrf = Vrf::new(interfaces, 1_000, 1).unwrap_or_else(|error| fail(&error));
        let mut changes = vrf.lock();
        for route in 0..self.routes {
            let number = 2 + route % self.next_hops() as u32 % 250;
            let at = route as usize;
            let prefix = match self.family {
                Family::Ip4 if self.is_internet => Some(IpPrefix::V4(prefixes.ipv4[at])),
                Family::Ip6 if self.is_internet => Some(IpPrefix::V6(prefixes.ipv6[at])),
                Family::Ip4 => Prefix::of((FIRST + route) << 8, 24).map(IpPrefix::V4),
                Family::Ip6 => Prefix::of(FIRST_V6 | u128::from(route) << 80, 48).map(IpPrefix::V6),
            };
            let gateway = match self.family {
                Family::Ip4 => Ipv4Addr::from(0x0a00_0100 | number).into(),
                Family::Ip6 => Ipv6Addr::from(0xfd00_0000_0000_0001_u128 << 64 | u128::from(number)).into(),
            };
            if route < 250 {
                changes.resolve(2, gateway, NEXT).unwrap_or_else(|error| fail(&error));
            }
            let hop = NextHop {
                gateway: Some(gateway),
                interface: Some("out".to_owned()),
                weight: 1,
                onlink: false,
                mtu: None,
            };
            let prefix = prefix.unwrap_or(IpPrefix::V4(Prefix::ALL));
            let route = RouteSpec { prefix, action: Action::Forward(vec![hop]), metric: 0 };
            changes.add(&route, IfExists::Refuse).unwrap_or_else(|error| fail(&error));
        }
        changes.commit().unwrap_or_else(|error| fail(&error));
        drop(changes);
        vrf
    }
}

/// Four bytes of a frame, the first one in the highest bits.
#[inline(always)]
fn word(frame: &[u8], at: usize) -> u32 {
    frame.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |bytes| u32::from_be_bytes(*bytes))
}

impl Prefixes {
    /// Without those that a router has rules of its own for.
    pub(in crate::benchmarks) fn forwarded(mut self) -> Prefixes {
        self.ipv4.retain(|prefix| !matches!(prefix.address() >> 24, 0 | 10 | 127 | 224..) && prefix.length() >= 8);
        self.ipv6.retain(|prefix| prefix.address() >> 125 == 1 && prefix.length() >= 3);
        self
    }
}

impl Family {
    /// Gives the packet back the hop that a router took off, and its Ethernet header.
    #[inline(always)]
    pub(in crate::benchmarks) fn rejuvenate(self, frame: &mut [u8]) {
        let Some((ethernet, ip)) = frame.split_first_chunk_mut::<14>() else { return };
        ethernet[..6].copy_from_slice(&MAC.0);
        match self {
            Family::Ip4 => {
                ethernet[12..].copy_from_slice(&[0x08, 0x00]);
                ip[8] = ip[8].wrapping_add(1);
                let checksum = u32::from(u16::from_be_bytes([ip[10], ip[11]])) + !0x100_u16 as u32;
                let checksum = (checksum & 0xffff) + (checksum >> 16);
                ip[10..12].copy_from_slice(&(checksum as u16).to_be_bytes());
            }
            Family::Ip6 => {
                ethernet[12..].copy_from_slice(&[0x86, 0xdd]);
                ip[7] = ip[7].wrapping_add(1);
            }
        }
    }
}

impl Restore for Family {
    #[inline(always)]
    fn restore(&self, packet: &mut Packet) {
        self.rejuvenate(packet.bytes_mut());
    }
}

/// As the family, and evicts what has been restored from every cache.
pub(super) struct Evicting(pub(super) Family);

impl Restore for Evicting {
    fn restore(&self, packet: &mut Packet) {
        self.0.restore(packet);
    }

    fn finish(&self, packets: &[Packet]) {
        cache::evict(packets.iter().map(Packet::bytes));
    }
}
