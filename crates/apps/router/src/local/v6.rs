//! Packets of IPv6 for the router.

use std::net::Ipv6Addr;

use bellows_common::headers::ETHERNET;
use bellows_packet::Packet;
use bellows_vrf::{IcmpError, Reason, Tag};
use bellows_wire::icmp::{IcmpMessage, message_type};
use bellows_wire::ipv6::Ipv6Packet;
use bellows_wire::{IpPair, IpProtocol, mld};

use super::{Family, Fate, Glance, HOPS, Kind, Message, Own};
use crate::ipv6_options::{BadOptions, check_options};

/// The local packets of IPv6.
pub struct V6;

impl Family for V6 {
    const NAME: &'static str = "ip6-local";

    fn kind(ip: &[u8]) -> Result<Kind, bellows_wire::Error> {
        let view = Ipv6Packet::new_checked(ip)?;
        let (upper, routed) = (view.upper_layer()?, routing_header(ip));
        let checked = |message| check_extension_headers(ip).map_or_else(Message::UnknownOptions, |()| message);
        let is_atomic = upper.fragment.is_some_and(|fragment| fragment.offset == 0 && !fragment.more);
        let is_message = upper.payload.first().is_some_and(|&kind| is_of_discovery(kind));
        let message = match upper.protocol {
            // Who takes it counts it, and drops it.
            IpProtocol::ICMPV6 if is_message && is_atomic => Message::Discovery,
            _ if upper.fragment.is_some() => Message::Fragment,
            _ if routed.is_some() => Message::Routed(routed.unwrap_or_default()),
            IpProtocol::ICMPV6 => {
                let icmp = IcmpMessage::new_checked(upper.payload)?;
                let addresses = view.addresses();
                let sum = || {
                    addresses.pseudo_header(IpProtocol::ICMPV6, upper.payload.len()).add_bytes(upper.payload).finish()
                };
                match icmp.message_type() {
                    // Who takes them checks them.
                    kind if is_of_discovery(kind) => Message::Discovery,
                    _ if sum() != 0 => Message::BadChecksum,
                    // What an authentication header says is for the host.
                    message_type::V6_ECHO_REQUEST if upper.authenticated => Message::Other,
                    message_type::V6_ECHO_REQUEST => {
                        check_extension_headers(ip).map_or_else(Message::BadOptions, |()| Message::Echo)
                    }
                    kind if mld::is_of_listeners(kind) => Message::Listeners,
                    _ => Message::Other,
                }
            }
            IpProtocol::TCP | IpProtocol::UDP => checked(Message::Port),
            // No next header: there is nothing to serve (RFC 8200, section 4.7).
            IpProtocol(59) => checked(Message::Other),
            protocol => checked(Message::Protocol(named_at(ip, protocol))),
        };
        Ok(Kind { source: view.src().into(), destination: view.dst().into(), message })
    }

    fn is_echo_request(ip: &[u8]) -> bool {
        let is = |header: &[u8; 41]| header[6] == IpProtocol::ICMPV6.0 && header[40] == message_type::V6_ECHO_REQUEST;
        ip.first_chunk().is_some_and(is)
    }

    fn glance_at(packets: &[Packet], glance: Glance, fates: &mut [Fate]) {
        for (packet, fate) in packets.iter().zip(fates) {
            let is_limited =
                glance.limits_echo(packet) && packet.bytes().get(ETHERNET..).is_some_and(Self::is_echo_request);
            let is_discovery = glance.discovery_from == Some(Tag(packet.tag()).interface()) && is_discovery(packet);
            *fate = match (is_limited, is_discovery) {
                (true, _) => Fate::Limited,
                (_, true) => Fate::Discovery,
                _ => Fate::Open,
            };
        }
    }

    fn set_destination(ip: &mut [u8], destination: Ipv6Addr) {
        if let Some(place) = ip.get_mut(24..40) {
            place.copy_from_slice(&destination.octets());
        }
    }

    fn reply(ip: &mut [u8], _: Own<'_>) -> Result<usize, bellows_wire::Error> {
        let length = without_extension_headers(ip)?;
        let mut view = Ipv6Packet::new_checked(&mut *ip)?;
        let (src, dst): (Ipv6Addr, Ipv6Addr) = (view.src(), view.dst());
        view.set_src(dst);
        view.set_dst(src);
        view.set_hop_limit(HOPS);
        let mut icmp = IcmpMessage::new_checked(view.payload_mut())?;
        icmp.set_message_type(message_type::V6_ECHO_REPLY);
        icmp.fill_checksum(&IpPair::V6 { src: dst, dst: src });
        Ok(length)
    }
}

/// Bytes of an ICMP header.
const ICMP: usize = 8;

/// Whether an ICMPv6 message is one of neighbour discovery (RFC 4861, section 4): router and neighbour solicitations and
/// advertisements, redirects.
#[inline]
pub(crate) fn is_of_discovery(kind: u8) -> bool {
    matches!(kind, 133..=137)
}

/// Whether a packet is certainly one of neighbour discovery: right behind its IPv6 header, which is whole, and not to a
/// link-local address.
#[inline]
fn is_discovery(packet: &Packet) -> bool {
    let Some(header) = packet.bytes().first_chunk::<{ ETHERNET + FIXED_HEADER + ICMP }>() else { return false };
    let length = usize::from(u16::from_be_bytes([header[ETHERNET + 4], header[ETHERNET + 5]]));
    let is_link_local = (header[ETHERNET + 24] == 0xfe) & (header[ETHERNET + 25] & 0xc0 == 0x80);
    (header[ETHERNET] >> 4 == 6)
        & (ICMP..=packet.len() - ETHERNET - FIXED_HEADER).contains(&length)
        & (header[ETHERNET + 6] == IpProtocol::ICMPV6.0)
        & is_of_discovery(header[ETHERNET + FIXED_HEADER])
        & !is_link_local
}

/// Moves an ICMPv6 message to the end of the fixed header, and returns the bytes of the packet. Answers to echo requests
/// have no extension headers.
fn without_extension_headers(ip: &mut [u8]) -> Result<usize, bellows_wire::Error> {
    let view = Ipv6Packet::new_checked(&*ip)?;
    let (whole, message) = (view.payload().len(), view.upper_layer()?.payload.len());
    if whole == message {
        return Ok(FIXED_HEADER + whole);
    }
    let start = FIXED_HEADER + whole - message;
    ip.copy_within(start..start + message, FIXED_HEADER);
    ip[4..6].copy_from_slice(&(message as u16).to_be_bytes());
    ip[6] = IpProtocol::ICMPV6.0;
    Ok(FIXED_HEADER + message)
}

/// Bytes of an IPv6 header without extension headers.
const FIXED_HEADER: usize = 40;

/// The extension headers of a packet up to the first one of another kind than hop-by-hop options, options for the
/// destination, and routing headers: each one's kind, its position, and what is there.
fn extension_headers(ip: &[u8]) -> impl Iterator<Item = (IpProtocol, usize, &[u8])> {
    let mut next = ip.get(6).map(|&kind| (IpProtocol(kind), FIXED_HEADER));
    std::iter::from_fn(move || {
        let (kind, at) = next.filter(|(kind, _)| {
            matches!(*kind, IpProtocol::IPV6_HOP_BY_HOP | IpProtocol::IPV6_DESTINATION | IpProtocol::IPV6_ROUTE)
        })?;
        let header = ip.get(at..)?;
        let [following, units] = *header.first_chunk::<2>()?;
        next = Some((IpProtocol(following), at + 8 + 8 * usize::from(units)));
        Some((kind, at, header))
    })
}

/// Where a packet names the protocol behind its extension headers (RFC 4443, section 3.4): in the fixed header if that is
/// not known.
fn named_at(ip: &[u8], protocol: IpProtocol) -> u16 {
    let last = extension_headers(ip).last();
    let named = last.filter(|(_, _, header)| header.first() == Some(&protocol.0));
    named.and_then(|(_, at, _)| u16::try_from(at).ok()).unwrap_or(NEXT_HEADER)
}

/// Where the fixed header names what follows it.
const NEXT_HEADER: u16 = 6;

/// Checks the extension headers of a packet that is answered or refused here. No option for the destination is known.
/// Hop-by-hop options were checked when the packet came, if they are behind the fixed header; in another place, they are a
/// protocol that is not known (RFC 8200, section 4).
fn check_extension_headers(ip: &[u8]) -> Result<(), BadOptions> {
    let is_multicast = ip.get(24) == Some(&0xff);
    let mut named_at = NEXT_HEADER;
    for (kind, at, header) in extension_headers(ip) {
        match kind {
            IpProtocol::IPV6_HOP_BY_HOP if at != FIXED_HEADER => {
                return Err(BadOptions::Told(IcmpError { reason: Reason::ProtocolUnreachable, value: named_at }));
            }
            IpProtocol::IPV6_DESTINATION => check_options(header, at, &[], is_multicast)?,
            _ => {}
        }
        named_at = at as u16;
    }
    Ok(())
}

/// Where an IPv6 packet names the type of a routing header that lists further hops. This router knows no type of them,
/// of which type 0 is obsolete (RFC 5095); those without further hops are skipped (RFC 8200, section 4.4).
fn routing_header(ip: &[u8]) -> Option<u16> {
    let has_further_hops = |header: &[u8]| header.get(3).is_some_and(|&left| left > 0);
    extension_headers(ip)
        .find(|(kind, _, header)| *kind == IpProtocol::IPV6_ROUTE && has_further_hops(header))
        .and_then(|(_, at, _)| u16::try_from(at + 2).ok())
}
