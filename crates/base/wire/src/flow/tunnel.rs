//! The packets inside tunnels.

use super::Flow;
use super::walk::{Walked, ethernet, ipv4, ipv6};
use crate::{EtherType, IpProtocol, udp};

/// The maximum number of tunnels in one another that are looked into: a tunnel of a provider may carry one of a
/// customer.
pub const MAX_TUNNELS: usize = 2;

/// The maximum number of extension headers of GTP-U that are skipped.
const MAX_GTP_EXTENSIONS: usize = 8;

/// The UDP ports of tunnels: of VXLAN (RFC 7348), Geneve (RFC 8926) and GTP-U (3GPP TS 29.281).
const VXLAN: u16 = 4789;
const GENEVE: u16 = 6081;
const GTP_U: u16 = 2152;

/// A packet inside a tunnel.
enum Inner<'a> {
    Ethernet(&'a [u8]),
    Ipv4(&'a [u8]),
    Ipv6(&'a [u8]),
}

impl<'a> Inner<'a> {
    fn walk(self) -> Option<Walked<'a>> {
        match self {
            Inner::Ethernet(frame) => ethernet(frame),
            Inner::Ipv4(packet) => ipv4(packet),
            Inner::Ipv6(packet) => ipv6(packet),
        }
    }

    /// The payload of a tunnel that names its protocol by EtherType.
    fn by_ether_type(ether_type: EtherType, payload: &'a [u8]) -> Option<Inner<'a>> {
        match ether_type {
            EtherType::BRIDGED_ETHERNET => Some(Inner::Ethernet(payload)),
            EtherType::IPV4 => Some(Inner::Ipv4(payload)),
            EtherType::IPV6 => Some(Inner::Ipv6(payload)),
            _ => None,
        }
    }
}

/// The flow inside the tunnels of a frame, or as far inside as it can be read.
pub(super) fn inner_flow(frame: &[u8]) -> Option<Flow> {
    let mut walked = ethernet(frame)?;
    for _ in 0..MAX_TUNNELS {
        let inner = walked.upper.and_then(|(protocol, payload)| inside(protocol, payload)?.walk());
        let Some(inner) = inner else { break };
        walked = inner;
    }
    Some(walked.flow)
}

/// The packet inside the payload of an IP packet, if that is a tunnel.
fn inside(protocol: IpProtocol, payload: &[u8]) -> Option<Inner<'_>> {
    match protocol {
        IpProtocol::IPV4 => Some(Inner::Ipv4(payload)),
        IpProtocol::IPV6 => Some(Inner::Ipv6(payload)),
        IpProtocol::GRE => gre(payload),
        IpProtocol::UDP => {
            let bytes = payload.get(udp::field::HEADER_LEN..)?;
            let port = payload.get(udp::field::DST_PORT)?;
            match u16::from_be_bytes(port.try_into().ok()?) {
                VXLAN => vxlan(bytes),
                GENEVE => geneve(bytes),
                GTP_U => gtp_u(bytes),
                _ => None,
            }
        }
        _ => None,
    }
}

/// RFC 7348, section 5: flags, of which one says that there is a network identifier.
fn vxlan(bytes: &[u8]) -> Option<Inner<'_>> {
    let (header, frame) = bytes.split_first_chunk::<8>()?;
    (header[0] & 0x08 != 0).then_some(Inner::Ethernet(frame))
}

/// RFC 8926, section 3.4: version 0, the length of the options in units of 4 bytes, the protocol.
fn geneve(bytes: &[u8]) -> Option<Inner<'_>> {
    let (&[version_len, _, high, low, ..], rest) = bytes.split_first_chunk::<8>()?;
    let payload = rest.get(usize::from(version_len & 0x3f) * 4..)?;
    if version_len >> 6 != 0 {
        return None;
    }
    Inner::by_ether_type(EtherType(u16::from_be_bytes([high, low])), payload)
}

/// RFC 2784 and RFC 2890: flags for checksum, key and sequence number, version 0, the protocol. The routing field of
/// RFC 1701 has no use any more; its length would have to be searched.
fn gre(bytes: &[u8]) -> Option<Inner<'_>> {
    let (&[flags, version, high, low], rest) = bytes.split_first_chunk::<4>()?;
    let (checksum, routing, key, sequence) = (flags & 0x80, flags & 0x40, flags & 0x20, flags & 0x10);
    if routing != 0 || version & 0x07 != 0 {
        return None;
    }
    let fields = [checksum, key, sequence].iter().filter(|&&flag| flag != 0).count();
    Inner::by_ether_type(EtherType(u16::from_be_bytes([high, low])), rest.get(4 * fields..)?)
}

/// 3GPP TS 29.281, section 5: version 1 of GTP, a message that carries a packet (G-PDU). If one of three flags is set
/// there are four more bytes, the last of which is the type of the first extension header; it counts if its own flag is
/// set. The packet is IP of either version: nothing else says which.
fn gtp_u(bytes: &[u8]) -> Option<Inner<'_>> {
    const G_PDU: u8 = 0xff;
    let (&[flags, message, ..], mut rest) = bytes.split_first_chunk::<8>()?;
    if flags & 0xf0 != 0x30 || message != G_PDU {
        return None;
    }
    if flags & 0x07 != 0 {
        let (&[.., first], behind) = rest.split_first_chunk::<4>()?;
        let mut extension = if flags & 0x04 != 0 { first } else { 0 };
        rest = behind;
        for _ in 0..MAX_GTP_EXTENSIONS {
            if extension == 0 {
                break;
            }
            let len = 4 * usize::from(*rest.first()?);
            extension = *rest.get(len.checked_sub(1)?)?;
            rest = &rest[len..];
        }
        if extension != 0 {
            return None;
        }
    }
    match rest.first()? >> 4 {
        4 => Some(Inner::Ipv4(rest)),
        6 => Some(Inner::Ipv6(rest)),
        _ => None,
    }
}
