//! ICMP errors about IPv4 packets (RFC 792; RFC 1812, sections 4.3.2 and 5.2.7).

use std::net::{IpAddr, Ipv4Addr};

use bellows_vrf::interface::InterfaceAddress;
use bellows_vrf::{IcmpError, IcmpType, Interface, Reason, Word};
use bellows_wire::ipv4::Ipv4Header;
use bellows_wire::{EtherType, IpPair, IpProtocol, MacAddr};

use super::{Family, Unanswered, compose};

/// The errors of IPv4.
pub struct V4;

/// Bytes of the two headers of an error.
const HEADERS: usize = 20 + 8;

/// Precedence "internetwork control", and the bits of the type of service that errors take over from the packet (RFC 1812,
/// section 4.3.2.5). The last one of RFC 1349 is that of congestion notification today (RFC 3168).
const PRECEDENCE: u8 = 6 << 5;
const TYPE_OF_SERVICE: u8 = 0x1c;

/// The hops that an error may take.
const TTL: u8 = 64;

impl Family for V4 {
    const NAME: &'static str = "ip4-icmp-error";
    const ETHER_TYPE: EtherType = EtherType::IPV4;
    // RFC 1812, section 4.3.2.3.
    const MAX_LENGTH: usize = 576;

    #[inline]
    fn may_answer(ip: &[u8], _: IcmpError, received_on: Option<&Interface>) -> Result<(), Unanswered> {
        // RFC 1812, section 4.3.2.7.
        let header = ip.first_chunk::<20>().ok_or(Unanswered::Malformed)?;
        let [source, destination] =
            [12, 16].map(|at| Ipv4Addr::from([header[at], header[at + 1], header[at + 2], header[at + 3]]));
        let is_broadcast = |address| received_on.is_some_and(|interface| interface.has_broadcast(address));
        if destination.is_multicast() || destination.is_broadcast() || is_broadcast(destination) {
            return Err(Unanswered::AboutMany);
        }
        if matches!(source.octets()[0], 0 | 127 | 224..) || is_broadcast(source) {
            return Err(Unanswered::AboutSource);
        }
        if u16::from_be_bytes([header[6], header[7]]) & 0x1fff != 0 {
            return Err(Unanswered::AboutFragment);
        }
        let message = ip.get(usize::from(header[0] & 0xf) * 4);
        if header[9] == IpProtocol::ICMP.0 && message.is_none_or(|&kind| is_error(kind)) {
            return Err(Unanswered::AboutError);
        }
        Ok(())
    }

    type Address = Ipv4Addr;

    fn choose(own: impl Iterator<Item = InterfaceAddress> + Clone, sender: Ipv4Addr) -> Option<Ipv4Addr> {
        // The one that the sender knows, if there are several.
        let v4 = |own: InterfaceAddress| match own.address {
            IpAddr::V4(address) => Some(address),
            IpAddr::V6(_) => None,
        };
        let near = own.clone().find(|own| is_near(own.address, own.length, sender));
        near.and_then(v4).or_else(|| own.clone().find_map(v4))
    }

    #[inline]
    fn is_good_elsewhere(own: IpAddr) -> bool {
        // RFC 3927, section 2.7: those mean something on their own link alone.
        matches!(own, IpAddr::V4(own) if !own.is_link_local())
    }

    fn choose_for_redirect(own: impl Iterator<Item = InterfaceAddress> + Clone, sender: Ipv4Addr) -> Option<Ipv4Addr> {
        V4::choose(own, sender)
    }

    fn write(ip: &[u8], error: IcmpError, own: Ipv4Addr, to: &mut [u8]) -> Option<usize> {
        write_message(ip, error.reason.v4(), word(error), own, to)
    }

    #[inline]
    fn sender(ip: &[u8]) -> Option<Ipv4Addr> {
        Some((*ip.get(12..)?.first_chunk::<4>()?).into())
    }

    #[inline]
    fn destination(ip: &[u8]) -> Option<Ipv4Addr> {
        Some(Ipv4Addr::from(*ip.get(16..)?.first_chunk::<4>()?))
    }

    fn write_redirect(ip: &[u8], own: Ipv4Addr, next_hop: IpAddr, _: Option<MacAddr>, to: &mut [u8]) -> Option<usize> {
        let IpAddr::V4(gateway) = next_hop else { return None };
        write_message(ip, Reason::Redirect.v4(), gateway.into(), own, to)
    }
}

/// Writes a message about an IP packet, with the word behind its checksum.
fn write_message(ip: &[u8], kind: IcmpType, word: u32, own: Ipv4Addr, to: &mut [u8]) -> Option<usize> {
    let sender = V4::sender(ip)?;
    let total = usize::from(u16::from_be_bytes(*ip.get(2..)?.first_chunk()?));
    let addresses = IpPair::V4 { src: own, dst: sender };
    let length = compose(to, 20, &ip[..total.min(ip.len()).min(V4::MAX_LENGTH - HEADERS)], kind, word, &addresses)?;
    let header = Ipv4Header {
        src: own,
        dst: sender,
        protocol: IpProtocol::ICMP,
        ttl: TTL,
        traffic_class: PRECEDENCE | ip.get(1)? & TYPE_OF_SERVICE,
        identification: 0,
        dont_fragment: false,
    };
    header.emit(&mut to[..length]).ok()?;
    Some(length)
}

/// Whether an address is on the link of an own one.
fn is_near(own: IpAddr, length: u8, address: Ipv4Addr) -> bool {
    bellows_vrf::route::IpPrefix::of(own, length).is_some_and(|link| link.contains(address.into()))
}

/// Whether a message type is one of errors: unreachable, source quench, redirect, time exceeded, parameter problem.
fn is_error(kind: u8) -> bool {
    matches!(kind, 3 | 4 | 5 | 11 | 12)
}

/// The word behind the checksum.
fn word(error: IcmpError) -> u32 {
    let value = u32::from(error.value);
    match error.reason.v4().word {
        // RFC 1191: in the lower half.
        Word::Mtu => value,
        // In the first byte.
        Word::Pointer | Word::NextHeader => value << 24,
        Word::Unused | Word::NextHop => 0,
    }
}
