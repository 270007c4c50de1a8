//! The connection of a packet, by a key that both directions have.
//!
//! | packet | connection |
//! |---|---|
//! | TCP, UDP, SCTP | protocol, both addresses and ports |
//! | ICMP and ICMPv6 echo | both addresses, the identifier, and which end requests |
//! | ICMP and ICMPv6 error about a packet of one of these | that of the packet inside |
//! | other IP protocols | protocol and both addresses |
//!
//! VLAN identifiers (up to two) belong to the connection. Fragments behind the first have no ports, so those of TCP, UDP
//! and SCTP are of no connection; nor are other ICMP messages, frames without IP, and packets that were cut before their
//! ports. Lengths and checksums are not checked.

use crate::flow::walk::{Untagged, ipv4_parts, ipv6_parts, skip_extensions, untag};
use crate::flow::{FRAGMENT, at};
use crate::icmp::{self, message_type};
use crate::{EtherType, IpProtocol, ethernet, tcp};

/// A packet of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// The connection.
    pub key: Key,
    /// Whether the first end of the key sent the packet.
    pub is_from_first: bool,
    /// The protocol, and what it says about the connection.
    pub kind: ConnectionKind,
    /// Whether the packet is an ICMP error about a packet of the connection.
    pub is_error: bool,
}

/// A kind of connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionKind {
    /// TCP, with the [flags](crate::tcp::flags) of the segment; zero if they were cut from a packet inside an error.
    Tcp(u8),
    /// UDP.
    Udp,
    /// ICMP or ICMPv6 echo.
    Echo,
    /// Another protocol.
    Other,
}

/// The identity of a connection: two are equal if their [words](Key::words) are, and their [version](Key::is_v6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    words: [u64; WORDS],
    is_v6: bool,
}

/// The maximum number of words of a key.
pub const WORDS: usize = 5;

/// The number of words of a key of IPv4 addresses.
pub const V4_WORDS: usize = 2;

impl Key {
    /// Both ends and the protocol: two words for IPv4, [`WORDS`] for IPv6.
    #[inline(always)]
    pub fn words(&self) -> &[u64] {
        if self.is_v6 { &self.words } else { &self.words[..V4_WORDS] }
    }

    /// The words as an array.
    ///
    /// # Errors
    /// It is a key of IPv6, which has more.
    #[inline(always)]
    pub fn both_words(&self) -> Result<&[u64; V4_WORDS], &[u64; WORDS]> {
        match self.words.first_chunk() {
            Some(words) if !self.is_v6 => Ok(words),
            _ => Err(&self.words),
        }
    }

    /// Whether the addresses are those of IPv6.
    #[inline(always)]
    pub fn is_v6(&self) -> bool {
        self.is_v6
    }

    /// The key of a connection between two ends, in this order.
    #[inline(always)]
    fn new(first: ConnectionEnd, second: ConnectionEnd, protocol: IpProtocol, vlans: u32, is_v6: bool) -> Key {
        let ports = u64::from(first.port) << 16 | u64::from(second.port);
        let head = ports << 32 | u64::from(protocol.0) << 24 | u64::from(vlans);
        let words = if is_v6 {
            let halves = |address: u128| [(address >> 64) as u64, address as u64];
            let ([a, b], [c, d]) = (halves(first.address), halves(second.address));
            [head, a, b, c, d]
        } else {
            [head, (first.address << 32 | second.address) as u64, 0, 0, 0]
        };
        Key { words, is_v6 }
    }
}

/// An end of a connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct ConnectionEnd {
    address: u128,
    port: u16,
}

/// An IP packet without its headers.
struct Ip<'a> {
    src: u128,
    dst: u128,
    protocol: IpProtocol,
    payload: &'a [u8],
    /// Whether it is a fragment behind the first, which has no ports.
    is_later_fragment: bool,
    is_v6: bool,
    vlans: u32,
}

/// The connection of the usual Ethernet frame: TCP or UDP over IPv4, without a VLAN tag or IP options. Of another frame
/// `None`: [`of_frame`] knows. In a loop this is much faster, because its result stays in registers. Hot.
#[inline(always)]
pub fn of_usual_frame(frame: &[u8]) -> Option<Member> {
    let (header, payload) = frame.split_first_chunk::<34>()?;
    let ports = payload.first_chunk::<4>()?;
    let is_later_fragment = u16::from_be_bytes(at(header, 20)) & FRAGMENT & 0x1fff != 0;
    if header[12..15] != [0x08, 0x00, 0x45] || is_later_fragment {
        return None;
    }
    let protocol = IpProtocol(header[23]);
    let kind = match protocol {
        IpProtocol::TCP => ConnectionKind::Tcp(*payload.get(tcp::field::FLAGS.start)?),
        IpProtocol::UDP => ConnectionKind::Udp,
        _ => return None,
    };
    let end = |address: usize, port: usize| {
        u64::from(u32::from_be_bytes(at(header, address))) << 16 | u64::from(u16::from_be_bytes(at(ports, port)))
    };
    let (src, dst) = (end(26, 0), end(30, 2));
    let (first, second) = (src.min(dst), src.max(dst));
    let both_ports = (first & 0xffff) << 16 | second & 0xffff;
    let words = [both_ports << 32 | u64::from(protocol.0) << 24, first >> 16 << 32 | second >> 16, 0, 0, 0];
    Some(Member { key: Key { words, is_v6: false }, is_from_first: src <= dst, kind, is_error: false })
}

/// The connection of an Ethernet frame. Hot.
#[inline]
pub fn of_frame(frame: &[u8]) -> Option<Member> {
    let header = frame.first_chunk::<{ ethernet::field::HEADER_LEN }>()?;
    of_payload(EtherType(u16::from_be_bytes(at(header, 12))), &frame[header.len()..])
}

/// The connection of what an EtherType names, such as the payload of an Ethernet frame. Hot.
#[inline]
pub fn of_payload(ether_type: EtherType, payload: &[u8]) -> Option<Member> {
    let Untagged { ether_type, payload, vlans } = untag(ether_type, payload);
    match ether_type {
        EtherType::IPV4 => ipv4(payload, vlans)?.member(),
        EtherType::IPV6 => ipv6(payload, vlans)?.member(),
        _ => None,
    }
}

/// The connection of an IPv4 or IPv6 packet. Hot.
#[inline]
pub fn of_ip(packet: &[u8]) -> Option<Member> {
    ip(packet, 0)?.member()
}

fn ip(packet: &[u8], vlans: u32) -> Option<Ip<'_>> {
    match packet.first()? >> 4 {
        4 => ipv4(packet, vlans),
        6 => ipv6(packet, vlans),
        _ => None,
    }
}

#[inline(always)]
fn ipv4(packet: &[u8], vlans: u32) -> Option<Ip<'_>> {
    const OFFSET: u16 = FRAGMENT & 0x1fff;
    let (header, payload) = ipv4_parts(packet)?;
    Some(Ip {
        src: u32::from_be_bytes(at(header, 12)).into(),
        dst: u32::from_be_bytes(at(header, 16)).into(),
        protocol: IpProtocol(header[9]),
        payload,
        is_later_fragment: u16::from_be_bytes(at(header, 6)) & OFFSET != 0,
        is_v6: false,
        vlans,
    })
}

#[inline(always)]
fn ipv6(packet: &[u8], vlans: u32) -> Option<Ip<'_>> {
    let (header, payload) = ipv6_parts(packet)?;
    let (mut protocol, mut payload) = skip_extensions(IpProtocol(header[6]), payload);
    let mut is_later_fragment = false;
    if protocol == IpProtocol::IPV6_FRAGMENT {
        let (&[next, _, high, low, ..], rest) = payload.split_first_chunk::<8>()?;
        (protocol, payload) = (IpProtocol(next), rest);
        is_later_fragment = u16::from_be_bytes([high, low]) & 0xfff8 != 0;
        if !is_later_fragment {
            (protocol, payload) = skip_extensions(protocol, payload);
        }
    }
    let [src, dst] = [8, 24].map(|start| u128::from_be_bytes(at(header, start)));
    Some(Ip { src, dst, protocol, payload, is_later_fragment, is_v6: true, vlans })
}

impl Ip<'_> {
    #[inline(always)]
    fn member(&self) -> Option<Member> {
        match self.protocol {
            IpProtocol::TCP => {
                let (ports, flags) = (self.ports()?, *self.payload.get(tcp::field::FLAGS.start)?);
                Some(self.between(ports, ConnectionKind::Tcp(flags)))
            }
            IpProtocol::ICMP if !self.is_v6 => self.echo().or_else(|| self.error()),
            IpProtocol::ICMPV6 if self.is_v6 => self.echo().or_else(|| self.error()),
            _ => self.plain(),
        }
    }

    /// A packet whose protocol says nothing about the connection.
    #[inline(always)]
    fn plain(&self) -> Option<Member> {
        match self.protocol {
            IpProtocol::UDP => Some(self.between(self.ports()?, ConnectionKind::Udp)),
            IpProtocol::SCTP => Some(self.between(self.ports()?, ConnectionKind::Other)),
            // What the headers carry is unknown.
            IpProtocol::IPV6_HOP_BY_HOP
            | IpProtocol::IPV6_ROUTE
            | IpProtocol::IPV6_FRAGMENT
            | IpProtocol::IPV6_DESTINATION
            | IpProtocol::ICMP
            | IpProtocol::ICMPV6 => None,
            _ => Some(self.between([0; 2], ConnectionKind::Other)),
        }
    }

    /// The ports, the source's first.
    #[inline(always)]
    fn ports(&self) -> Option<[u16; 2]> {
        let &[a, b, c, d] = self.payload.first_chunk().filter(|_| !self.is_later_fragment)?;
        Some([u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])])
    }

    /// A packet of a connection whose lower end is the first.
    #[inline(always)]
    fn between(&self, [src_port, dst_port]: [u16; 2], kind: ConnectionKind) -> Member {
        let (src, dst) =
            (ConnectionEnd { address: self.src, port: src_port }, ConnectionEnd { address: self.dst, port: dst_port });
        let is_from_first = src <= dst;
        let (first, second) = if is_from_first { (src, dst) } else { (dst, src) };
        let key = Key::new(first, second, self.protocol, self.vlans, self.is_v6);
        Member { key, is_from_first, kind, is_error: false }
    }

    /// The fixed header of an ICMP message.
    fn message(&self) -> Option<&[u8; icmp::field::HEADER_LEN]> {
        self.payload.first_chunk().filter(|_| !self.is_later_fragment)
    }

    /// An echo, whose first end is that which requests.
    fn echo(&self) -> Option<Member> {
        let message = self.message()?;
        let is_request = match (self.is_v6, message[0]) {
            (false, message_type::V4_ECHO_REQUEST) | (true, message_type::V6_ECHO_REQUEST) => true,
            (false, message_type::V4_ECHO_REPLY) | (true, message_type::V6_ECHO_REPLY) => false,
            _ => return None,
        };
        let port = u16::from_be_bytes(at(message, icmp::field::IDENTIFIER.start));
        let [src, dst] = [self.src, self.dst].map(|address| ConnectionEnd { address, port });
        let (first, second) = if is_request { (src, dst) } else { (dst, src) };
        let key = Key::new(first, second, self.protocol, self.vlans, self.is_v6);
        Some(Member { key, is_from_first: is_request, kind: ConnectionKind::Echo, is_error: false })
    }

    /// An error about a packet that its receiver sent. At least 8 bytes behind the IP header are quoted (RFC 792).
    fn error(&self) -> Option<Member> {
        let message = self.message()?;
        let is_error = match (self.is_v6, message[0]) {
            (true, message_type::V6_UNREACHABLE..=message_type::V6_PARAMETER_PROBLEM) => true,
            (false, kind) => matches!(
                kind,
                message_type::V4_UNREACHABLE | message_type::V4_TIME_EXCEEDED | message_type::V4_PARAMETER_PROBLEM
            ),
            _ => false,
        };
        let quoted = ip(&self.payload[message.len()..], self.vlans)
            .filter(|quoted| is_error && quoted.is_v6 == self.is_v6 && quoted.src == self.dst)?;
        let member = match quoted.protocol {
            IpProtocol::TCP => Some(quoted.between(quoted.ports()?, ConnectionKind::Tcp(0))),
            IpProtocol::ICMP | IpProtocol::ICMPV6 => quoted.echo(),
            _ => quoted.plain(),
        };
        member.map(|member| Member { is_error: true, ..member })
    }
}
