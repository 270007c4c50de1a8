//! ICMP errors that say that a packet was too long for a link.

use bellows_wire::icmp::message_type::{V4_UNREACHABLE, V6_TOO_BIG};
use bellows_wire::{IpPair, IpProtocol, Sum};

use crate::headers::Outer;

/// The code of IPv4 (RFC 792): fragmentation needed, and "don't fragment" set.
const FRAGMENTATION_NEEDED: u8 = 4;

/// Bytes in front of the quoted packet.
const HEADER: usize = 8;

/// Bytes that errors quote behind the header of IP, at least (RFC 792).
const LEAST: usize = 8;

/// Extension headers in front of the protocol.
const MAX_EXTENSIONS: usize = 8;

/// An error, and the packet that it quotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooBig<'f> {
    /// The MTU that it reports; 0 if the router is an old one of IPv4.
    pub mtu: u32,
    /// Bytes of the packet, as its header says.
    pub length: usize,
    /// The addresses of the packet.
    pub addresses: IpPair,
    /// Its first protocol that is no extension header.
    pub protocol: IpProtocol,
    /// What is quoted behind the headers of IP: not all, but 8 bytes or more.
    pub payload: &'f [u8],
}

impl<'f> TooBig<'f> {
    /// Reads an IP packet behind an Ethernet header. `None` if it is no such error, or not a whole one.
    pub fn read(frame: &'f [u8]) -> Option<TooBig<'f>> {
        let outer = Outer::read(frame).ok()?;
        let message = &frame[outer.start..outer.end];
        let (header, quoted) = message.split_first_chunk::<HEADER>()?;
        let field = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
        let (mtu, sum) = match (outer.addresses, outer.protocol, header[0], header[1]) {
            (IpPair::V4 { .. }, IpProtocol::ICMP, V4_UNREACHABLE, FRAGMENTATION_NEEDED) => (field & 0xffff, Sum::new()),
            (IpPair::V6 { .. }, IpProtocol::ICMPV6, V6_TOO_BIG, _) => {
                (field, outer.addresses.pseudo_header(IpProtocol::ICMPV6, message.len()))
            }
            _ => return None,
        };
        if sum.add_bytes(message).finish() != 0 {
            return None;
        }
        let error = match outer.addresses {
            IpPair::V4 { .. } => quoted_v4(quoted, mtu)?,
            IpPair::V6 { .. } => quoted_v6(quoted, mtu)?,
        };
        (error.payload.len() >= LEAST).then_some(error)
    }
}

fn half(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |half| u16::from_be_bytes(*half))
}

/// A quoted packet of IPv4: whole, or a first fragment.
fn quoted_v4(ip: &[u8], mtu: u32) -> Option<TooBig<'_>> {
    let header = ip.first_chunk::<20>()?;
    let start = usize::from(header[0] & 15) * 4;
    if header[0] >> 4 != 4 || start < 20 || half(ip, 6) & 0x1fff != 0 {
        return None;
    }
    let address = |at: usize| [header[at], header[at + 1], header[at + 2], header[at + 3]].into();
    let length = usize::from(half(ip, 2));
    let payload = ip.get(start..length.min(ip.len()))?;
    let addresses = IpPair::V4 { src: address(12), dst: address(16) };
    Some(TooBig { mtu, length, addresses, protocol: IpProtocol(header[9]), payload })
}

/// A quoted packet of IPv6: whole, or a first fragment.
fn quoted_v6(ip: &[u8], mtu: u32) -> Option<TooBig<'_>> {
    let header = ip.first_chunk::<40>()?;
    if header[0] >> 4 != 6 {
        return None;
    }
    let address = |at: usize| {
        let octets: [u8; 16] = std::array::from_fn(|byte| header[at + byte]);
        octets.into()
    };
    let addresses = IpPair::V6 { src: address(8), dst: address(24) };
    let length = 40 + usize::from(half(ip, 4));
    let ip = &ip[..length.min(ip.len())];
    let (mut protocol, mut start) = (IpProtocol(header[6]), 40);
    for _ in 0..MAX_EXTENSIONS {
        let length = match protocol {
            IpProtocol::IPV6_FRAGMENT if half(ip, start + 2) & 0xfff8 != 0 => return None,
            IpProtocol::IPV6_FRAGMENT => 8,
            IpProtocol::IPV6_HOP_BY_HOP | IpProtocol::IPV6_ROUTE | IpProtocol::IPV6_DESTINATION => {
                8 + 8 * usize::from(*ip.get(start + 1)?)
            }
            _ => return Some(TooBig { mtu, length, addresses, protocol, payload: ip.get(start..)? }),
        };
        protocol = IpProtocol(*ip.get(start)?);
        start += length;
    }
    None
}

#[cfg(test)]
mod tests {
    use bellows_exercise::packets::{ip, pair, too_big};
    use proptest::prelude::*;

    use super::*;
    use crate::headers::ETHERNET;

    proptest! {
        #[test]
        fn errors_are_read_as_routers_write_them(
            is_v6 in any::<bool>(),
            payload in prop::collection::vec(any::<u8>(), 8..1_400),
            mtu in 68u16..2_000,
            damage in prop::option::of((any::<prop::sample::Index>(), 1u8..)),
            cut in prop::option::of(any::<prop::sample::Index>()),
        ) {
            let packet = ip(pair(is_v6), IpProtocol::GRE, &payload);
            let mut frame = too_big(&packet, mtu);
            let read = TooBig::read(&frame).unwrap();
            prop_assert_eq!((read.mtu, read.length), (u32::from(mtu), packet.len() - ETHERNET));
            prop_assert_eq!((read.addresses, read.protocol), (pair(is_v6), IpProtocol::GRE));
            prop_assert!(payload.starts_with(read.payload) && read.payload.len() >= payload.len().min(500));
            // What is damaged in the message has another checksum; a cut packet is not whole.
            let message = ETHERNET + if is_v6 { 40 } else { 20 };
            if let Some((at, bits)) = damage {
                let at = message + at.index(frame.len() - message);
                frame[at] ^= bits;
                prop_assert_eq!(TooBig::read(&frame), None);
            }
            if let Some(cut) = cut {
                prop_assert_eq!(TooBig::read(&frame[..cut.index(frame.len())]), None);
            }
            prop_assert_eq!(TooBig::read(&packet), None);
        }

        #[test]
        fn what_an_error_quotes_may_be_anything(is_v6 in any::<bool>(), quoted in prop::collection::vec(any::<u8>(), 0..100), first in 0x40u8..0x70) {
            let mut message = if is_v6 { vec![2, 0, 0, 0, 0, 0, 5, 0] } else { vec![3, 4, 0, 0, 0, 0, 5, 0] };
            message.push(first);
            message.extend(quoted);
            let protocol = if is_v6 { IpProtocol::ICMPV6 } else { IpProtocol::ICMP };
            let pseudo = if is_v6 { pair(is_v6).pseudo_header(protocol, message.len()) } else { bellows_wire::Sum::new() };
            let checksum = pseudo.add_bytes(&message).finish();
            message[2..4].copy_from_slice(&checksum.to_be_bytes());
            if let Some(read) = TooBig::read(&ip(pair(is_v6), protocol, &message)) {
                prop_assert!(read.payload.len() >= 8 && read.payload.len() < message.len());
            }
        }
    }

    #[test]
    fn a_quoted_fragment_is_known_by_its_first_bytes_alone() {
        let behind = [7; 40];
        let quoted = |offset: u8| {
            let fragment = [&[47, 0, 0, offset | 1, 0, 0, 0, 9][..], &behind].concat();
            too_big(&ip(pair(true), IpProtocol::IPV6_FRAGMENT, &fragment), 1_280)
        };
        let error = quoted(0);
        let read = TooBig::read(&error).unwrap();
        assert_eq!((read.protocol, read.payload), (IpProtocol::GRE, &behind[..]));
        assert_eq!(TooBig::read(&quoted(8)), None);
        let mut first = ip(pair(false), IpProtocol::GRE, &behind);
        first[ETHERNET + 6] = 0x20;
        assert_eq!(TooBig::read(&too_big(&first, 576)).map(|read| read.payload.len()), Some(40));
        first[ETHERNET + 7] = 1;
        assert_eq!(TooBig::read(&too_big(&first, 576)), None);
    }
}
