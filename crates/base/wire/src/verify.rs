//! Verifies every checksum of a frame, for tests of generated or captured traffic.

use std::fmt;

use crate::view::Error;
use crate::{
    EtherType, IcmpMessage, IpPair, IpProtocol, Ipv4Packet, Ipv6Packet, Sum, TcpSegment, UdpDatagram, ethernet,
};

/// A part of a frame that has a checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Layer {
    Ipv4Header,
    Udp,
    Tcp,
    Icmp,
    Icmpv6,
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Layer::Ipv4Header => "IPv4 header",
            Layer::Udp => "UDP",
            Layer::Tcp => "TCP",
            Layer::Icmp => "ICMP",
            Layer::Icmpv6 => "ICMPv6",
        })
    }
}

/// The checksums that were present and correct.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Verified {
    /// Whether there was an IPv4 header, with a correct checksum.
    pub ipv4_header: bool,
    /// The upper layer with a correct checksum. `None` if there was nothing to verify: another protocol, a fragment, a
    /// UDP datagram over IPv4 without a checksum, or a final destination hidden by a routing header.
    pub upper: Option<Layer>,
}

/// A checksum is wrong or missing, or cannot be found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChecksumError {
    /// A header is truncated or malformed; capture whole packets to verify them.
    Header(Error),
    /// The checksum does not match the bytes that it covers.
    Wrong {
        /// The layer.
        layer: Layer,
        /// The checksum in the header.
        found: u16,
        /// The correct checksum.
        expected: u16,
    },
    /// UDP over IPv6 must have a checksum (RFC 8200, section 8.1), and this datagram has none.
    MissingUdp,
}

impl fmt::Display for ChecksumError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ChecksumError::Header(error) => error.fmt(f),
            ChecksumError::Wrong { layer, found, expected } => {
                write!(f, "{layer}: the checksum is {found:#06x}, it should be {expected:#06x}")
            }
            ChecksumError::MissingUdp => f.write_str("UDP: the checksum is 0 (none), IPv6 requires one"),
        }
    }
}

impl std::error::Error for ChecksumError {}

impl From<Error> for ChecksumError {
    fn from(error: Error) -> Self {
        ChecksumError::Header(error)
    }
}

/// Verifies the checksums in an Ethernet frame, after any VLAN tags: IPv4 header, UDP, TCP, ICMP and ICMPv6. Tunnels
/// are not entered. A frame without any of them is correct, and the result says that there were none.
///
/// # Errors
/// If a checksum is wrong or missing, or a header before it is truncated or malformed.
pub fn verify_checksums(frame: &[u8]) -> Result<Verified, ChecksumError> {
    match ethernet::skip_vlan_tags(frame)? {
        (EtherType::IPV4, packet) => verify_ipv4(packet),
        (EtherType::IPV6, packet) => verify_ipv6(packet),
        _ => Ok(Verified::default()),
    }
}

/// Like [`verify_checksums`], for an IPv4 or IPv6 packet without a link layer; its first bits give the version.
///
/// # Errors
/// Like [`verify_checksums`].
pub fn verify_ip_checksums(packet: &[u8]) -> Result<Verified, ChecksumError> {
    if packet.first().is_some_and(|byte| byte >> 4 == 6) { verify_ipv6(packet) } else { verify_ipv4(packet) }
}

fn verify_ipv4(packet: &[u8]) -> Result<Verified, ChecksumError> {
    let packet = Ipv4Packet::new_checked(packet)?;
    compare(Layer::Ipv4Header, packet.checksum(), Sum::new().add_bytes(packet.header()))?;
    let whole = !packet.more_fragments() && packet.fragment_offset() == 0;
    let upper = if whole { verify_upper(packet.protocol(), packet.payload(), &packet.addresses())? } else { None };
    Ok(Verified { ipv4_header: true, upper })
}

fn verify_ipv6(packet: &[u8]) -> Result<Verified, ChecksumError> {
    let packet = Ipv6Packet::new_checked(packet)?;
    let upper = packet.upper_layer()?;
    let whole = upper.fragment.is_none_or(|fragment| !fragment.more && fragment.offset == 0);
    let upper = match upper.final_dst {
        Some(dst) if whole => verify_upper(upper.protocol, upper.payload, &IpPair::V6 { src: packet.src(), dst })?,
        _ => None,
    };
    Ok(Verified { ipv4_header: false, upper })
}

fn verify_upper(protocol: IpProtocol, bytes: &[u8], addresses: &IpPair) -> Result<Option<Layer>, ChecksumError> {
    let pseudo_header = addresses.pseudo_header(protocol, bytes.len());
    let layer = match (protocol, addresses) {
        (IpProtocol::UDP, _) => return verify_udp(bytes, addresses),
        (IpProtocol::TCP, _) => {
            compare(Layer::Tcp, TcpSegment::new_checked(bytes)?.checksum(), pseudo_header.add_bytes(bytes))?
        }
        (IpProtocol::ICMP, IpPair::V4 { .. }) => {
            compare(Layer::Icmp, IcmpMessage::new_checked(bytes)?.checksum(), Sum::new().add_bytes(bytes))?
        }
        (IpProtocol::ICMPV6, IpPair::V6 { .. }) => {
            compare(Layer::Icmpv6, IcmpMessage::new_checked(bytes)?.checksum(), pseudo_header.add_bytes(bytes))?
        }
        _ => return Ok(None),
    };
    Ok(Some(layer))
}

fn verify_udp(bytes: &[u8], addresses: &IpPair) -> Result<Option<Layer>, ChecksumError> {
    let view = UdpDatagram::new_checked(bytes)?;
    let pseudo_header = addresses.pseudo_header(IpProtocol::UDP, view.datagram_len().into());
    match (view.checksum(), addresses) {
        (0, IpPair::V4 { .. }) => Ok(None),
        (0, IpPair::V6 { .. }) => Err(ChecksumError::MissingUdp),
        (found, _) => compare(Layer::Udp, found, pseudo_header.add_bytes(view.datagram())).map(Some),
    }
}

/// Accepts the layer if `sum`, over all that the checksum covers and the checksum itself, is correct.
fn compare(layer: Layer, found: u16, sum: Sum) -> Result<Layer, ChecksumError> {
    if sum.finish() == 0 {
        return Ok(layer);
    }
    let without = sum.subtract(Sum::new().add_u16(found));
    let expected = if layer == Layer::Udp { without.finish_udp() } else { without.finish() };
    Err(ChecksumError::Wrong { layer, found, expected })
}
