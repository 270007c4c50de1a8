//! Header by header: flows of frames that the short way does not know.

use super::{EthernetFlow, Flow, Ipv4Flow, Ipv6Flow, at};
use crate::{EtherType, EthernetFrame, IpProtocol, VlanTag, ethernet, ipv4, ipv6};

/// The maximum number of VLAN tags that are skipped; a frame with more counts as one without IP.
pub const MAX_VLAN_TAGS: usize = 2;

/// The flow of a packet, and what its headers carry.
pub(super) struct Walked<'a> {
    pub(super) flow: Flow,
    /// The protocol and the bytes behind the headers; `None` for fragments and frames without IP.
    pub(super) upper: Option<(IpProtocol, &'a [u8])>,
}

/// The flow by the outermost headers.
#[cold]
#[inline(never)]
pub(super) fn outer_flow(frame: &[u8]) -> Option<Flow> {
    ethernet(frame).map(|walked| walked.flow)
}

/// Reads a frame; `None` if it is shorter than an Ethernet header.
pub(super) fn ethernet(frame: &[u8]) -> Option<Walked<'_>> {
    let view = EthernetFrame::new_checked(frame).ok()?;
    let Untagged { ether_type, payload, .. } = untag(view.ether_type(), &frame[ethernet::field::HEADER_LEN..]);
    let ip = match ether_type {
        EtherType::IPV4 => ipv4(payload),
        EtherType::IPV6 => ipv6(payload),
        _ => None,
    };
    ip.or_else(|| {
        let flow = Flow::Ethernet(EthernetFlow { src: view.src(), dst: view.dst(), ether_type });
        Some(Walked { flow, upper: None })
    })
}

/// What is behind the VLAN tags of a frame.
pub(crate) struct Untagged<'a> {
    pub(crate) ether_type: EtherType,
    pub(crate) payload: &'a [u8],
    /// The VLAN identifiers, 12 bits each, the last in the lowest bits.
    pub(crate) vlans: u32,
}

/// Skips VLAN tags, up to [`MAX_VLAN_TAGS`].
#[inline]
pub(crate) fn untag(mut ether_type: EtherType, mut payload: &[u8]) -> Untagged<'_> {
    let mut vlans = 0;
    for _ in 0..MAX_VLAN_TAGS {
        if !matches!(ether_type, EtherType::VLAN | EtherType::SERVICE_VLAN) {
            break;
        }
        let Ok(tag) = VlanTag::new_checked(payload) else { break };
        vlans = vlans << 12 | u32::from(tag.control() & 0x0fff);
        (ether_type, payload) = (tag.ether_type(), &payload[ethernet::vlan_field::HEADER_LEN..]);
    }
    Untagged { ether_type, payload, vlans }
}

/// The fixed header and the payload of an IPv4 packet; `None` if its header is malformed or incomplete.
#[inline]
pub(crate) fn ipv4_parts(packet: &[u8]) -> Option<(&[u8; ipv4::field::HEADER_LEN], &[u8])> {
    let header = packet.first_chunk()?;
    let header_len = usize::from(header[0] & 0x0f) * 4;
    if header[0] >> 4 != 4 || header_len < header.len() {
        return None;
    }
    Some((header, packet.get(header_len..)?))
}

/// Reads an IPv4 packet; `None` if its header is malformed or incomplete.
pub(super) fn ipv4(packet: &[u8]) -> Option<Walked<'_>> {
    let (header, payload) = ipv4_parts(packet)?;
    let protocol = IpProtocol(header[9]);
    let is_fragment = u16::from_be_bytes(at(header, 6)) & super::FRAGMENT != 0;
    let ports = if is_fragment { [0; 4] } else { ports(protocol, payload) };
    let flow = Flow::Ipv4(Ipv4Flow { src: at(header, 12), dst: at(header, 16), ports, protocol });
    Some(Walked { flow, upper: (!is_fragment).then_some((protocol, payload)) })
}

/// Reads an IPv6 packet; `None` if its header is malformed or incomplete.
///
/// Extension headers are skipped up to a fragment header: that of the first fragment may be followed by further ones,
/// which the other fragments lack. The ports of a packet whose extension headers are incomplete are unknown.
pub(super) fn ipv6(packet: &[u8]) -> Option<Walked<'_>> {
    let (header, payload) = ipv6_parts(packet)?;
    let (protocol, payload) = skip_extensions(IpProtocol(header[6]), payload);
    let is_fragment = protocol == IpProtocol::IPV6_FRAGMENT;
    let ports = ports(protocol, payload);
    let flow = Flow::Ipv6(Ipv6Flow { src: at(header, 8), dst: at(header, 24), ports, protocol });
    Some(Walked { flow, upper: (!is_fragment).then_some((protocol, payload)) })
}

/// The fixed header of an IPv6 packet, and what is behind it; `None` if the header is malformed or incomplete.
#[inline]
pub(crate) fn ipv6_parts(packet: &[u8]) -> Option<(&[u8; ipv6::field::HEADER_LEN], &[u8])> {
    let (header, payload) = packet.split_first_chunk()?;
    (header[0] >> 4 == 6).then_some((header, payload))
}

/// Skips extension headers of IPv6 up to a fragment header. Those that are incomplete are not skipped.
#[inline]
pub(crate) fn skip_extensions(mut protocol: IpProtocol, mut payload: &[u8]) -> (IpProtocol, &[u8]) {
    for _ in 0..ipv6::MAX_EXTENSION_HEADERS {
        let unit = match protocol {
            IpProtocol::IPV6_HOP_BY_HOP | IpProtocol::IPV6_DESTINATION | IpProtocol::IPV6_ROUTE => 8,
            IpProtocol::AH => 4,
            _ => break,
        };
        let Some(&[next, len]) = payload.first_chunk::<2>() else { break };
        let Some(rest) = payload.get(8 + unit * usize::from(len)..) else { break };
        (protocol, payload) = (IpProtocol(next), rest);
    }
    (protocol, payload)
}

/// The ports of TCP, UDP and SCTP; zeros for other protocols.
fn ports(protocol: IpProtocol, bytes: &[u8]) -> [u8; 4] {
    match (protocol, bytes.first_chunk()) {
        (IpProtocol::TCP | IpProtocol::UDP | IpProtocol::SCTP, Some(ports)) => *ports,
        _ => [0; 4],
    }
}
