//! The shared parts of IPv4 and IPv6: protocol numbers and pairs of addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::Sum;

/// A protocol above IP, or an IPv6 extension header, by its IANA number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct IpProtocol(pub u8);

#[allow(missing_docs, reason = "the names are the IANA keywords")]
impl IpProtocol {
    pub const IPV6_HOP_BY_HOP: Self = Self(0);
    pub const ICMP: Self = Self(1);
    pub const IPV4: Self = Self(4);
    pub const TCP: Self = Self(6);
    pub const UDP: Self = Self(17);
    pub const IPV6: Self = Self(41);
    pub const IPV6_ROUTE: Self = Self(43);
    pub const IPV6_FRAGMENT: Self = Self(44);
    pub const GRE: Self = Self(47);
    pub const AH: Self = Self(51);
    pub const ICMPV6: Self = Self(58);
    pub const IPV6_DESTINATION: Self = Self(60);
    pub const SCTP: Self = Self(132);
}

crate::view::impl_field! { IpProtocol: 1, |[number]: [u8; 1]| IpProtocol(number), |protocol: IpProtocol| [protocol.0]; }

/// Source and destination of a packet, of the same family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names say it")]
pub enum IpPair {
    V4 { src: Ipv4Addr, dst: Ipv4Addr },
    V6 { src: Ipv6Addr, dst: Ipv6Addr },
}

impl IpPair {
    /// Pairs two addresses; `None` if one is IPv4 and the other IPv6.
    pub fn new(src: IpAddr, dst: IpAddr) -> Option<Self> {
        match (src, dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => Some(IpPair::V4 { src, dst }),
            (IpAddr::V6(src), IpAddr::V6(dst)) => Some(IpPair::V6 { src, dst }),
            _ => None,
        }
    }

    /// The sum of the pseudo-header of RFC 768 and RFC 9293 (IPv4) or RFC 8200, section 8.1 (IPv6). A checksum adds the
    /// `len` bytes of the upper layer's header and payload to it.
    pub fn pseudo_header(&self, protocol: IpProtocol, len: usize) -> Sum {
        let addresses = match self {
            IpPair::V4 { src, dst } => Sum::new().add_bytes(&src.octets()).add_bytes(&dst.octets()),
            IpPair::V6 { src, dst } => Sum::new().add_bytes(&src.octets()).add_bytes(&dst.octets()),
        };
        addresses.add_u16(protocol.0.into()).add_u64(len as u64)
    }
}
