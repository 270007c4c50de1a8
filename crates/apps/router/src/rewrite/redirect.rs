//! Which senders could reach their destination without the router: those on the link of the next hop.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use bellows_engine::{App, Io};
use bellows_packet::Packet;
use bellows_vrf::adjacency::AdjacencyKind;
use bellows_vrf::route::IpPrefix;
use bellows_vrf::{IcmpError, Interface, Reason, Tag};

use crate::forwarding::ETHERNET;
use crate::vrf::RoutingDomain;

/// Which packet is looked at next.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Redirects {
    turn: usize,
}

impl Redirects {
    /// Has a redirect sent to the sender of one packet if there is a better first hop. Of a flow that goes on, one packet
    /// is looked at sooner or later, so that the others need not be. `adjacency` tells that of a packet by its place.
    /// Returns how many redirects could not be made for lack of a buffer. Hot.
    #[inline]
    pub(crate) fn look<A: App>(
        &mut self,
        io: &Io<A>,
        domain: &RoutingDomain,
        packets: &[Packet],
        adjacency: impl Fn(usize) -> u32,
        error: u16,
    ) -> u64 {
        self.turn = if self.turn < packets.len() { self.turn } else { 0 };
        let Some(packet) = packets.get(self.turn) else { return 0 };
        let tag = Tag(packet.tag()).with(adjacency(self.turn));
        self.turn += 1;
        if turns_around(domain, tag) { tell_better_hop(io, domain, packet, tag, packets.len(), error) } else { 0 }
    }
}

/// Whether a packet leaves by the interface that received it, as its tag says. Looks at no packet data.
#[inline]
fn turns_around(domain: &RoutingDomain, tag: Tag) -> bool {
    tag.interface() != 0 && domain.tables().adjacencies().state(tag.number()).interface() == tag.interface()
}

#[cold]
fn tell_better_hop<A: App>(
    io: &Io<A>,
    domain: &RoutingDomain,
    packet: &Packet,
    tag: Tag,
    others: usize,
    error: u16,
) -> u64 {
    let mut output = io.output(error.into());
    // The output may yet get all packets of the vector.
    if output.room() <= others || !is_better_reached_directly(domain, tag, packet.bytes()) {
        return 0;
    }
    let Some(mut copy) = Packet::from_bytes(packet.bytes()) else { return 1 };
    copy.set_tag(tag.with(IcmpError::of(Reason::Redirect).number()).0);
    output.push(copy);
    0
}

/// Whether the sender of a packet that leaves by the interface which received it is to get a redirect to a better first
/// hop (RFC 1812, section 5.2.7.2; RFC 4861, section 8.2).
#[cold]
fn is_better_reached_directly(domain: &RoutingDomain, tag: Tag, frame: &[u8]) -> bool {
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

/// The source and destination of a packet that goes a hop further, without options that say which way it goes.
fn addresses(ip: &[u8]) -> Option<[IpAddr; 2]> {
    match ip.first()? >> 4 {
        4 if ip[0] == 0x45 && *ip.get(8)? > 1 => {
            let octets = ip.get(12..20)?.as_chunks::<4>().0.first_chunk::<2>()?;
            Some(octets.map(|octets| IpAddr::V4(Ipv4Addr::from(octets))))
        }
        6 if *ip.get(7)? > 1 => {
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
