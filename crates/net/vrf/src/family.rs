//! The families of the Internet Protocol.

use std::net::IpAddr;

use bellows_wire::EtherType;

/// An IP family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IpFamily {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl IpFamily {
    /// The family of an address.
    pub fn of(address: IpAddr) -> IpFamily {
        if address.is_ipv4() { IpFamily::V4 } else { IpFamily::V6 }
    }

    /// The protocol number in Ethernet frames.
    pub fn ether_type(self) -> EtherType {
        match self {
            IpFamily::V4 => EtherType::IPV4,
            IpFamily::V6 => EtherType::IPV6,
        }
    }
}
