//! What differs between the errors of IPv4 and IPv6.

use std::net::{IpAddr, Ipv6Addr};

use bellows_shared::Breath;
use bellows_vrf::adjacency::AdjacencyKind;
use bellows_vrf::interface::InterfaceAddress;
use bellows_vrf::{IcmpError, Interface, Vrf};
use bellows_wire::{EtherType, MacAddr};

/// Why no error is sent about a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unanswered {
    /// It has no whole header.
    Malformed,
    /// It is an ICMP error itself.
    AboutError,
    /// It is a fragment behind the first.
    AboutFragment,
    /// It is for many stations.
    AboutMany,
    /// Its source is not one host.
    AboutSource,
}

/// The part of the errors that is a family's own.
pub trait Family: Send + Sized + 'static {
    /// The name of the app that sends them.
    const NAME: &'static str;

    /// That of its packets.
    const ETHER_TYPE: EtherType;

    /// Bytes of the longest error, without its Ethernet header.
    const MAX_LENGTH: usize;

    /// Whether an error is sent about an IP packet.
    ///
    /// # Errors
    /// Why not.
    fn may_answer(ip: &[u8], error: IcmpError, received_on: Option<&Interface>) -> Result<(), Unanswered>;

    /// Whether an error may be sent about packets to many stations.
    fn may_be_about_many(_: IcmpError) -> bool {
        false
    }

    /// The family's addresses.
    type Address: Copy + Into<IpAddr>;

    /// The one of an interface's addresses for an error to a sender.
    fn choose(own: impl Iterator<Item = InterfaceAddress> + Clone, sender: Self::Address) -> Option<Self::Address>;

    /// Whether the address of another interface may be the source of an error to a sender.
    fn is_good_elsewhere(own: IpAddr) -> bool;

    /// The one of an interface's addresses for redirects.
    fn choose_for_redirect(
        own: impl Iterator<Item = InterfaceAddress> + Clone,
        sender: Self::Address,
    ) -> Option<Self::Address>;

    /// Writes the error about an IP packet, from an address of the router. Returns its length without the Ethernet
    /// header, or `None` if the packet has no whole header.
    fn write(ip: &[u8], error: IcmpError, own: Self::Address, to: &mut [u8]) -> Option<usize>;

    /// The source of an IP packet.
    fn sender(ip: &[u8]) -> Option<Self::Address>;

    /// The destination of an IP packet.
    fn destination(ip: &[u8]) -> Option<Self::Address>;

    /// The next hop of an IP packet on the link of an interface, and its Ethernet address if that is known.
    fn better_hop(tables: &Vrf, breath: &impl Breath, ip: &[u8], number: u16) -> Option<(IpAddr, Option<MacAddr>)> {
        let destination = Self::destination(ip)?.into();
        let mut found = [tables.look_up(breath, destination)];
        tables.choose_paths(breath, &mut found, |_| 0);
        let adjacency = tables.adjacencies().get(found[0]).filter(|adjacency| adjacency.interface == number)?;
        let mac = MacAddr(std::array::from_fn(|at| adjacency.header[at]));
        let next_hop = adjacency.next_hop.unwrap_or(destination);
        // The packet may have gone another one of several ways, and this one leads to its sender.
        let is_sender = match next_hop {
            IpAddr::V4(next_hop) => ip.get(12..16).is_some_and(|source| source == next_hop.octets()),
            IpAddr::V6(next_hop) => ip.get(8..24).is_some_and(|source| source == next_hop.octets()),
        };
        (!is_sender).then_some((next_hop, (adjacency.kind == AdjacencyKind::Complete).then_some(mac)))
    }

    /// Writes the message that an IP packet has a better first hop. Returns its length, as [`Family::write`].
    fn write_redirect(
        ip: &[u8],
        own: Self::Address,
        next_hop: IpAddr,
        mac: Option<MacAddr>,
        to: &mut [u8],
    ) -> Option<usize>;

    /// The IPv6 source and destination of an error that was written.
    fn addresses(_: &[u8]) -> Option<[Ipv6Addr; 2]> {
        None
    }
}
