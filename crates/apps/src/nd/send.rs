//! Messages of the router.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use bellows_engine::Io;
use bellows_packet::Packet;
use bellows_vrf::Interface;
use bellows_vrf::route::IpPrefix;
use bellows_wire::ndp::{self, Draft, MAX_DRAFT, flag, message_type, option_type};
use bellows_wire::{EtherType, IpPair, IpProtocol, Ipv6Header, MacAddr};

use super::Nd;
use crate::forwarding::{ETHERNET, set_header};
use crate::ipv6_link::Advertised;

impl Nd {
    /// An address of an interface for messages to a target: one with the same prefix, or the link-local one.
    fn source_for(&self, number: u16, interface: &Interface, target: Ipv6Addr) -> Option<Ipv6Addr> {
        let states = self.resolver.domain.addresses();
        let usable = || {
            interface.addresses.iter().filter_map(|own| match own.address {
                IpAddr::V6(address) if states.is_usable(number, address) => Some((address, own.length)),
                _ => None,
            })
        };
        let is_near = |&(own, length): &(Ipv6Addr, u8)| {
            IpPrefix::of(own.into(), length).is_some_and(|link| link.contains(target.into()))
        };
        let near = usable().find(is_near);
        near.or_else(|| usable().find(|(own, _)| own.is_unicast_link_local())).map(|(own, _)| own)
    }

    /// Solicits the advertisement of a target. Nothing is sent while no address may be used: it is tried again.
    pub(super) fn solicit(&mut self, io: &Io<Self>, number: u16, target: Ipv6Addr, mac: Option<MacAddr>) {
        let domain = Arc::clone(&self.resolver.domain);
        let Some(interface) = domain.tables().interface(number) else { return };
        let Some(src) = self.source_for(number, interface, target) else { return };
        let dst = if mac.is_some() { target } else { ndp::solicited_node(target) };
        let mut draft = Draft::new(message_type::NEIGHBOUR_SOLICITATION, 0);
        draft.put(&target.octets()).put_link_layer(option_type::SOURCE_LINK_LAYER, interface.mac);
        io.count(Nd::SOLICITATIONS_SENT, 1);
        self.send(io, number, interface, mac.unwrap_or(ndp::multicast_mac(dst)), (src, dst), &mut draft);
    }

    /// Asks whether another station has an address (RFC 4862, section 5.4.2).
    pub(super) fn probe(&mut self, io: &Io<Self>, number: u16, address: Ipv6Addr) {
        let domain = Arc::clone(&self.resolver.domain);
        let Some(interface) = domain.tables().interface(number) else { return };
        let dst = ndp::solicited_node(address);
        let mut draft = Draft::new(message_type::NEIGHBOUR_SOLICITATION, 0);
        draft.put(&address.octets());
        io.count(Nd::SOLICITATIONS_SENT, 1);
        let addresses = (Ipv6Addr::UNSPECIFIED, dst);
        self.send(io, number, interface, ndp::multicast_mac(dst), addresses, &mut draft);
    }

    /// Tells all stations of a link that the router has an address (RFC 4861, section 7.2.6).
    pub(super) fn announce(&mut self, io: &Io<Self>, number: u16, address: Ipv6Addr) {
        self.advertise(io, number, address, None, true);
    }

    /// Advertises a target: to the station that solicited it, or to all. (RFC 4861, section 7.2.4.)
    pub(super) fn advertise(
        &mut self,
        io: &Io<Self>,
        number: u16,
        target: Ipv6Addr,
        to: Option<Ipv6Addr>,
        overrides: bool,
    ) {
        let domain = Arc::clone(&self.resolver.domain);
        let Some(interface) = domain.tables().interface(number) else { return };
        let dst = to.unwrap_or(ndp::ALL_NODES);
        let is_own = interface.has_address(target.into());
        let Some(src) = (if is_own { Some(target) } else { self.source_for(number, interface, dst) }) else { return };
        let flags = [(true, flag::ROUTER), (to.is_some(), flag::SOLICITED), (overrides, flag::OVERRIDE)];
        let word = flags.into_iter().filter(|(is_set, _)| *is_set).fold(0, |word, (_, flag)| word | flag);
        let mut draft = Draft::new(message_type::NEIGHBOUR_ADVERTISEMENT, word);
        draft.put(&target.octets()).put_link_layer(option_type::TARGET_LINK_LAYER, interface.mac);
        io.count(Nd::ADVERTISEMENTS_SENT, 1);
        if to.is_none() {
            return self.send(io, number, interface, ndp::multicast_mac(dst), (src, dst), &mut draft);
        }
        // A station that did not say where it is must be found.
        let Some(packet) = compose((src, dst), &mut draft) else { return io.count_no_buffer(1) };
        let resolved = self.resolver.resolve_neighbour(packet, (number, dst.into()), io.now());
        self.act(io, resolved);
    }

    /// Advertises the router to all stations of a link. False if the interface's link-local address must not be used.
    pub(super) fn send_router_advertisement(
        &mut self,
        io: &Io<Self>,
        number: u16,
        said: &Advertised,
        lifetime: u16,
    ) -> bool {
        let domain = Arc::clone(&self.resolver.domain);
        let Some(interface) = domain.tables().interface(number) else { return false };
        let dst = ndp::ALL_NODES;
        let Some(src) = self.source_for(number, interface, dst).filter(Ipv6Addr::is_unicast_link_local) else {
            return false;
        };
        let word = u32::from_be_bytes([said.hop_limit, said.flags, 0, 0]) | u32::from(lifetime);
        let mut draft = Draft::new(message_type::ROUTER_ADVERTISEMENT, word);
        // No reachable time and no retransmission timer: hosts have their own.
        draft.put(&[0; 8]).put_link_layer(option_type::SOURCE_LINK_LAYER, interface.mac);
        if let Some(mtu) = said.mtu {
            draft.put_mtu(mtu);
        }
        said.prefixes.iter().for_each(|prefix| _ = draft.put_prefix(prefix));
        io.count(Nd::ROUTER_ADVERTISEMENTS_SENT, 1);
        self.send(io, number, interface, ndp::multicast_mac(dst), (src, dst), &mut draft);
        true
    }

    /// Sends a message to a station or a group.
    fn send(
        &mut self,
        io: &Io<Self>,
        number: u16,
        interface: &Interface,
        to: MacAddr,
        addresses: (Ipv6Addr, Ipv6Addr),
        draft: &mut Draft,
    ) {
        let Some(output) = self.resolver.output(number) else { return };
        let Some(mut packet) = compose(addresses, draft) else { return io.count_no_buffer(1) };
        let (header, length) = interface.header(to, EtherType::IPV6);
        if set_header(&mut packet, &header[..length]) {
            self.lanes.push(output, packet);
        } else {
            io.count_no_buffer(1);
        }
    }
}

/// A message behind an IPv6 header and an Ethernet header that is still empty. `None` if there is no buffer.
fn compose((src, dst): (Ipv6Addr, Ipv6Addr), draft: &mut Draft) -> Option<Packet> {
    const IP: usize = ETHERNET + 40;
    let message = draft.finish(&IpPair::V6 { src, dst });
    let mut frame = [0; IP + MAX_DRAFT];
    let end = IP + message.len();
    frame[IP..end].copy_from_slice(message);
    let header = Ipv6Header {
        src,
        dst,
        next_header: IpProtocol::ICMPV6,
        hop_limit: ndp::HOP_LIMIT,
        traffic_class: 0,
        flow_label: 0,
    };
    header.emit(&mut frame[ETHERNET..end]).ok()?;
    Packet::from_bytes(&frame[..end])
}
