//! The tests of access lists, which look for the upper layer wherever it is.
//!
//! A packet is presented as a usual one: behind an Ethernet header without tags an IP header of 20 or 40 bytes, whose
//! protocol is that of the upper layer, and then the upper layer. Bytes that an expression names by their offsets are
//! those of the packet itself, in places of their own. In a usual packet both are the same.

use std::ops::Range;

use super::arithmetic::{Computed, load_width, no_loads};
use super::fragment::Fragment;
use super::layout::Base;
use super::numbers::{ethertype, ip_protocol};
use super::{Generator, Made};
use crate::classic::ops::Ops;
use crate::classic::{Op, Right};
use crate::graph::{ComparisonOperator, Operation, Width};
use crate::options::Reading;
use crate::place;
use crate::syntax::{Arithmetic, Element, Protocol};

/// Bytes of an IP header without options or extension headers.
const IPV4_HEADER: u32 = 20;
const IPV6_HEADER: u32 = 40;
/// Bytes of an Ethernet header without tags.
const ETHERNET: u32 = 14;
/// The field for the type in it.
const TYPE: u32 = 12;

/// Where the parts of packets are presented.
pub(super) struct PartPlaces {
    frame: u32,
    untagged: u32,
    network: u32,
}

impl Reading {
    pub(super) fn is_of_access_list(self) -> bool {
        self != Reading::Libpcap
    }

    pub(super) fn places(self) -> Option<PartPlaces> {
        match self {
            Reading::Libpcap => None,
            Reading::Usual => Some(PartPlaces { frame: 0, untagged: 0, network: ETHERNET }),
            Reading::LaidOut => {
                Some(PartPlaces { frame: place::FRAME, untagged: place::UNTAGGED, network: place::NETWORK })
            }
        }
    }
}

impl PartPlaces {
    /// Where a base is, behind `labels` bytes of MPLS labels.
    pub(super) fn of(&self, base: Base, labels: u32) -> u32 {
        match base {
            Base::LinkHeader => self.frame,
            Base::LinkType => self.untagged + TYPE,
            Base::Llc => self.untagged + ETHERNET,
            Base::NetworkAfterLlc => self.untagged + ETHERNET + 3,
            Base::Shim => self.untagged + ETHERNET + labels,
            Base::Label => (self.untagged + ETHERNET + labels).wrapping_sub(4),
            Base::Network => self.network,
            Base::Ip => ETHERNET,
            Base::Transport4 => ETHERNET + IPV4_HEADER,
            Base::Transport6 => ETHERNET + IPV6_HEADER,
        }
    }
}

/// The bytes that a usual packet has of a protocol's header.
fn fixed_header(protocol: Protocol) -> u32 {
    match protocol {
        Protocol::Ip | Protocol::Tcp => 20,
        Protocol::Ip6 => 40,
        Protocol::Udp | Protocol::Icmp | Protocol::Icmp6 => 8,
        _ => 0,
    }
}

/// Whether a protocol whose bytes can be loaded is over both versions of IP.
fn is_over_both(protocol: Protocol) -> bool {
    matches!(protocol, Protocol::Tcp | Protocol::Udp | Protocol::Sctp | Protocol::Pim)
}

/// Whether bytes of a protocol are loaded that is over both versions of IP.
pub(super) fn loads_of_both(arithmetic: &Arithmetic) -> bool {
    let is_one = |element: &Element| matches!(element, Element::Load { protocol, .. } if is_over_both(*protocol));
    arithmetic.elements.iter().any(|(element, _)| is_one(element))
}

/// Headers between that of IPv6 and the upper layer; the authentication header can also be behind that of IPv4.
fn is_extension(number: u32, is_ipv6: bool) -> bool {
    let extensions =
        [ip_protocol::HOP_OPTIONS, ip_protocol::ROUTING, ip_protocol::FRAGMENT, ip_protocol::DESTINATION_OPTIONS];
    number == ip_protocol::AH || is_ipv6 && extensions.contains(&number)
}

impl Generator<'_> {
    /// Tests for a usual packet.
    pub(super) fn usual(&mut self) -> Fragment {
        // Ports are within, which most lists ask for.
        let room = self.compare(Base::Transport4, 0, Width::Word, ComparisonOperator::GreaterOrEqual, 0);
        let is_four = self.equal(Base::LinkType, 0, Width::Half, ethertype::IP);
        let four = self.usual_ipv4();
        let four = self.and(is_four, four);
        let is_six = self.equal(Base::LinkType, 0, Width::Half, ethertype::IP6);
        let six = self.usual_ipv6();
        let six = self.and(is_six, six);
        let others = [
            ethertype::IP,
            ethertype::IP6,
            ethertype::VLAN,
            ethertype::PROVIDER_VLAN,
            ethertype::OLD_PROVIDER_VLAN,
            ethertype::MPLS,
            place::MPLS_MULTICAST,
            ethertype::PPPOE_SESSION,
        ];
        let mut other =
            self.compare(Base::LinkType, 0, Width::Half, ComparisonOperator::GreaterOrEqual, place::FIRST_TYPE);
        for kind in others {
            let is_not = self.equal(Base::LinkType, 0, Width::Half, kind).negated();
            other = self.and(other, is_not);
        }
        let ip = self.or(four, six);
        let any = self.or(ip, other);
        self.and(room, any)
    }

    fn usual_ipv4(&mut self) -> Fragment {
        let plain = self.equal(Base::Ip, 0, Width::Byte, 0x45);
        let whole = self.compare(Base::Ip, 6, Width::Half, ComparisonOperator::AnyBit, 0x3fff).negated();
        let open = self.equal(Base::Ip, 9, Width::Byte, ip_protocol::AH).negated();
        let header = self.fixed_header_is_whole(2, 9, IPV4_HEADER, [ip_protocol::UDP, ip_protocol::ICMP]);
        let both = self.and(plain, whole);
        let all = self.and(both, open);
        self.and(all, header)
    }

    fn usual_ipv6(&mut self) -> Fragment {
        let room = self.compare(Base::Transport6, 0, Width::Word, ComparisonOperator::GreaterOrEqual, 0);
        let version = self.masked(Base::Ip, 0, Width::Byte, 0x60, 0xf0);
        let mut all = self.and(room, version);
        for number in place::NOT_USUAL {
            let is_not = self.equal(Base::Ip, 6, Width::Byte, number.into()).negated();
            all = self.and(all, is_not);
        }
        let header = self.fixed_header_is_whole(4, 6, 0, [ip_protocol::UDP, ip_protocol::ICMP6]);
        self.and(all, header)
    }

    /// Whether a length says that the header of TCP fits, or that of one of the other protocols if it is one.
    fn fixed_header_is_whole(&mut self, length: u32, protocol: u32, before: u32, short: [u32; 2]) -> Fragment {
        let long = self.compare(Base::Ip, length, Width::Half, ComparisonOperator::GreaterOrEqual, before + 20);
        let [first, second] = short.map(|number| self.equal(Base::Ip, protocol, Width::Byte, number));
        let is_short = self.or(first, second);
        let enough = self.compare(Base::Ip, length, Width::Half, ComparisonOperator::GreaterOrEqual, before + 8);
        let short = self.and(is_short, enough);
        self.or(long, short)
    }

    /// Tests for a protocol within Ethernet.
    pub(super) fn access_type(&mut self, kind: u32) -> Fragment {
        match kind {
            ethertype::VLAN | ethertype::PROVIDER_VLAN | ethertype::OLD_PROVIDER_VLAN => {
                let at = self.layout.link_type.map_or(TYPE, |position| position.constant);
                self.equal(Base::LinkHeader, at, Width::Half, kind)
            }
            ethertype::MPLS | place::MPLS_MULTICAST | ethertype::PPPOE_SESSION => {
                self.equal(Base::LinkType, 0, Width::Half, kind)
            }
            // The last type.
            place::FIRST_TYPE.. if !matches!(kind, ethertype::ATALK | ethertype::AARP) => {
                let ops = Ops::of(&[Op::Load(Width::Half, TYPE)]);
                self.test(ops, ComparisonOperator::Equal, Right::Constant(kind))
            }
            other => self.ethernet_type(other),
        }
    }

    /// Tests for a VLAN tag whose type is at this place of the frame.
    pub(super) fn access_tag(&mut self, places: &PartPlaces, at: u32, number: Option<u32>) -> Made<Fragment> {
        let field = |this: &mut Self, offset: u32, value: u32, mask: u32| {
            let load = Op::Load(Width::Half, places.frame + at + offset);
            this.test(
                Ops::of(&[load, Op::Constant(Operation::And, mask)]),
                ComparisonOperator::Equal,
                Right::Constant(value),
            )
        };
        let kinds = [ethertype::VLAN, ethertype::PROVIDER_VLAN, ethertype::OLD_PROVIDER_VLAN];
        let mut tag = self.constant(false);
        for kind in kinds {
            let is_one = field(self, 0, kind, 0xffff);
            tag = self.or(tag, is_one);
        }
        match number {
            None => Ok(tag),
            Some(number @ 0..=0xfff) => {
                let identifier = field(self, 2, number, 0xfff);
                Ok(self.and(tag, identifier))
            }
            Some(number) => self.mistake(format!("{number} is not a VLAN"), "VLANs are numbers from 0 to 4095"),
        }
    }

    /// Tests for a protocol behind an IP header, or for an extension header.
    pub(super) fn access_protocol(&mut self, number: u32, is_ipv6: bool) -> Fragment {
        if !is_extension(number, is_ipv6) {
            return self.equal(Base::Ip, if is_ipv6 { 6 } else { 9 }, Width::Byte, number);
        }
        match self.reading {
            Reading::LaidOut => {
                let ops = Ops::of(&[Op::Load(Width::Byte, place::HEADERS + number)]);
                self.test(ops, ComparisonOperator::Equal, Right::Constant(1))
            }
            Reading::Libpcap | Reading::Usual => self.constant(false),
        }
    }

    /// Puts the condition before a test that the upper layer has `bytes` bytes.
    pub(super) fn has_upper_bytes(&mut self, bytes: u32, is_ipv6: bool, test: Fragment) -> Fragment {
        let (at, before) = if is_ipv6 { (4, 0) } else { (2, IPV4_HEADER) };
        let has = self.compare(Base::Ip, at, Width::Half, ComparisonOperator::GreaterOrEqual, before + bytes);
        self.and(has, test)
    }

    /// A load for arithmetic. A comparison of bytes that a whole packet does not have does not hold.
    pub(super) fn access_load(
        &mut self,
        places: &PartPlaces,
        protocol: Protocol,
        offset: Computed,
        size: u32,
        place: &Range<usize>,
    ) -> Made<Computed> {
        let word = self.take_word()?;
        self.free_word(offset.word);
        let width = load_width(size, place)?;
        // Where the bytes are; where the length of what has them is, and what that length counts besides.
        let is_ipv6 = protocol == Protocol::Icmp6 || is_over_both(protocol) && self.is_over_ipv6;
        let (start, length) = match protocol {
            Protocol::Link => (places.frame, None),
            Protocol::Ip => (places.network, Some((places.network + 2, 0))),
            Protocol::Ip6 => (places.network, Some((places.network + 4, IPV6_HEADER))),
            Protocol::Arp
            | Protocol::Rarp
            | Protocol::Atalk
            | Protocol::Decnet
            | Protocol::Sca
            | Protocol::Lat
            | Protocol::Moprc
            | Protocol::Mopdl => (places.network, None),
            Protocol::Icmp6 | Protocol::Tcp | Protocol::Udp | Protocol::Sctp | Protocol::Pim if is_ipv6 => {
                (ETHERNET + IPV6_HEADER, Some((ETHERNET + 4, 0)))
            }
            Protocol::Sctp
            | Protocol::Tcp
            | Protocol::Udp
            | Protocol::Icmp
            | Protocol::Igmp
            | Protocol::Igrp
            | Protocol::Pim
            | Protocol::Vrrp
            | Protocol::Carp => (ETHERNET + IPV4_HEADER, Some((ETHERNET + 2, 0))),
            _ => return Err(no_loads(protocol, place)),
        };
        // The total length of IPv4 counts the header.
        let before = if start == ETHERNET + IPV4_HEADER { IPV4_HEADER } else { 0 };
        let fixed = match offset.ops[..] {
            [Op::LoadConstant(number), Op::Store(_)] => Some(number),
            _ => None,
        };
        let mut condition = offset.condition;
        if protocol != Protocol::Link {
            let is_protocol = match protocol {
                Protocol::Ip | Protocol::Ip6 => self.protocol(protocol)?,
                _ if length.is_none() => self.protocol(protocol)?,
                _ => {
                    let outer = if is_ipv6 { Protocol::Ip6 } else { Protocol::Ip };
                    self.protocol_within(protocol, outer)?
                }
            };
            condition = Some(match condition {
                Some(first) => self.and(first, is_protocol),
                None => is_protocol,
            });
        }
        let is_in_header = fixed.is_some_and(|at| at.saturating_add(size) <= fixed_header(protocol));
        if let (Some((at, counted)), false) = (length, is_in_header) {
            let mut ops = offset.ops.clone();
            ops.extend([
                Op::LoadMemory(offset.word),
                Op::Constant(Operation::Add, size + before),
                Op::ToIndex,
                Op::Load(Width::Half, at),
                Op::Constant(Operation::Add, counted),
            ]);
            let has = self.test(ops, ComparisonOperator::GreaterOrEqual, Right::Index);
            condition = Some(self.after(condition, has));
        }
        let mut ops = offset.ops;
        ops.extend([Op::IndexMemory(offset.word), Op::LoadIndexed(width, start), Op::Store(word)]);
        Ok(Computed { ops, condition, word })
    }

    /// Tests for a protocol of the upper layer over one version of IP.
    fn protocol_within(&mut self, protocol: Protocol, outer: Protocol) -> Made<Fragment> {
        let number = match protocol {
            Protocol::Tcp => ip_protocol::TCP,
            Protocol::Udp => ip_protocol::UDP,
            Protocol::Sctp => ip_protocol::SCTP,
            Protocol::Pim => ip_protocol::PIM,
            other => return self.protocol(other),
        };
        self.protocol_in(number, Some(outer))
    }
}
