//! The interfaces of a router.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use bellows_wire::{EtherType, MacAddr};

use crate::adjacency::{Adjacency, AdjacencyKind, MAX_HEADER};
use crate::family::IpFamily;
use crate::route::IpPrefix;

/// Bytes of an Ethernet header without tags.
pub const ETHERNET: usize = 14;

/// The maximum number of interfaces. Number 0 is none.
pub const MAX_INTERFACES: usize = (1 << 12) - 1;

/// A VLAN tag (IEEE 802.1Q).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct VlanTag {
    /// The tag protocol identifier: 0x8100 or 0x88a8.
    pub protocol: u16,
    /// The VLAN identifier, 1 to 4,094.
    pub id: u16,
}

/// An address of an interface, and the length of the prefix that is on its link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterfaceAddress {
    /// The address.
    pub address: IpAddr,
    /// Bits of the prefix.
    pub length: u8,
}

/// An interface: a port, or a VLAN of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// The port that its frames come from and go to.
    pub port: String,
    /// Its Ethernet address.
    pub mac: MacAddr,
    /// The longest IP packet that it sends, bytes.
    pub mtu: u16,
    /// The VLAN tags of its frames, the outermost first; at most two.
    pub tags: Vec<VlanTag>,
    /// Its addresses.
    pub addresses: Vec<InterfaceAddress>,
}

impl Interface {
    /// Its first address of the family, which is the source of packets that it sends about its link.
    pub fn address(&self, family: IpFamily) -> Option<IpAddr> {
        self.addresses.iter().map(|own| own.address).find(|&address| IpFamily::of(address) == family)
    }

    /// Bytes of the header of its frames.
    pub fn header_length(&self) -> usize {
        ETHERNET + 4 * self.tags.len().min(2)
    }

    /// Whether an address is the broadcast address of one of its links.
    pub fn has_broadcast(&self, address: Ipv4Addr) -> bool {
        self.addresses.iter().any(|own| broadcast(own) == Some(address))
    }

    /// Whether an address is on one of its links.
    pub fn has_on_link(&self, address: IpAddr) -> bool {
        self.addresses.iter().any(|own| IpPrefix::of(own.address, own.length).is_some_and(|it| it.contains(address)))
    }

    /// Whether an address is its own.
    pub fn has_address(&self, address: IpAddr) -> bool {
        self.addresses.iter().any(|own| own.address == address)
    }

    /// The link-layer header of frames to a station, and its length in bytes.
    pub fn header(&self, destination: MacAddr, protocol: EtherType) -> ([u8; MAX_HEADER], usize) {
        let mut header = [0; MAX_HEADER];
        header[..6].copy_from_slice(&destination.0);
        header[6..12].copy_from_slice(&self.mac.0);
        let mut end = 12;
        let tags = self.tags.iter().take(2).flat_map(|tag| [tag.protocol, tag.id]);
        for field in tags.chain([protocol.0]) {
            header[end..end + 2].copy_from_slice(&field.to_be_bytes());
            end += 2;
        }
        (header, end)
    }

    /// The adjacency of a neighbour on the link for packets of a family, by its Ethernet address if that is known.
    pub fn neighbour(&self, number: u16, next_hop: IpAddr, mac: Option<MacAddr>, packets: IpFamily) -> Adjacency {
        let (header, length) = self.header(mac.unwrap_or_default(), packets.ether_type());
        let kind = if mac.is_some() { AdjacencyKind::Complete } else { AdjacencyKind::Incomplete };
        Adjacency { kind, interface: number, mtu: self.mtu, length: length as u8, header, next_hop: Some(next_hop) }
    }

    /// The adjacency of all neighbours on the link that have none of their own.
    pub fn glean(&self, number: u16) -> Adjacency {
        let (header, length) = self.header(MacAddr::default(), EtherType::IPV4);
        Adjacency {
            kind: AdjacencyKind::Glean,
            interface: number,
            mtu: self.mtu,
            length: length as u8,
            header,
            next_hop: None,
        }
    }
}

/// The prefix's last IPv4 address, to which all neighbours listen (RFC 919), if the prefix has one.
pub(crate) fn broadcast(own: &InterfaceAddress) -> Option<Ipv4Addr> {
    match own.address {
        // RFC 3021: two addresses without a broadcast address.
        IpAddr::V4(address) if own.length < 31 => Some(Ipv4Addr::from(u32::from(address) | u32::MAX >> own.length)),
        _ => None,
    }
}

/// The address for all routers of an IPv6 link (RFC 4291, section 2.6.1), the prefix's first address.
pub fn subnet_router(own: &InterfaceAddress) -> Option<Ipv6Addr> {
    match own.address {
        // RFC 6164: none on links of two addresses.
        IpAddr::V6(address) if (1..127).contains(&own.length) => {
            Some(Ipv6Addr::from(u128::from(address) & !(u128::MAX >> own.length)))
        }
        _ => None,
    }
}
