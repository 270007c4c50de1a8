//! Which senders could reach their destination without the router: those on the link of the next hop.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use bellows_vrf::adjacency::AdjacencyKind;
use bellows_vrf::route::IpPrefix;
use bellows_vrf::{Interface, Tag};

use crate::forwarding::ETHERNET;
use crate::vrf::RoutingDomain;

/// Whether the sender of a packet that leaves by the interface which received it is to get a redirect to a better first
/// hop (RFC 1812, section 5.2.7.2; RFC 4861, section 8.2).
#[cold]
pub(super) fn is_better_reached_directly(domain: &RoutingDomain, tag: Tag, frame: &[u8]) -> bool {
    let number = tag.interface();
    let (Some(interface), Some(adjacency)) =
        (domain.tables().interface(number), domain.tables().adjacencies().get(tag.number()))
    else {
        return false;
    };
    let Some([source, destination]) = addresses(frame.get(ETHERNET..).unwrap_or_default()) else { return false };
    let next = adjacency.next_hop.unwrap_or(destination);
    let is_known =
        domain.redirects(number) && adjacency.kind == AdjacencyKind::Complete && adjacency.interface == number;
    is_known && next != source && is_on_one_link(interface, source, next, destination)
}

/// The source and destination of a packet without options that say which way it goes.
fn addresses(ip: &[u8]) -> Option<[IpAddr; 2]> {
    match ip.first()? >> 4 {
        4 if ip[0] == 0x45 => {
            let octets = ip.get(12..20)?.as_chunks::<4>().0.first_chunk::<2>()?;
            Some(octets.map(|octets| IpAddr::V4(Ipv4Addr::from(octets))))
        }
        6 => {
            let octets = ip.get(8..40)?.as_chunks::<16>().0.first_chunk::<2>()?;
            Some(octets.map(|octets| IpAddr::V6(Ipv6Addr::from(octets))))
        }
        _ => None,
    }
}

/// Whether a sender can send to a next hop itself.
fn is_on_one_link(interface: &Interface, source: IpAddr, next: IpAddr, destination: IpAddr) -> bool {
    match (source, next) {
        (IpAddr::V4(_), IpAddr::V4(_)) => interface.addresses.iter().any(|own| {
            let link = IpPrefix::of(own.address, own.length);
            link.is_some_and(|link| link.contains(source) && link.contains(next))
        }),
        // Hosts know routers by their link-local addresses alone.
        (IpAddr::V6(_), IpAddr::V6(router)) => {
            interface.has_on_link(source) && (next == destination || router.is_unicast_link_local())
        }
        _ => false,
    }
}
