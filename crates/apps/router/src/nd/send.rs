//! Messages of the router.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use bellows_common::headers::ETHERNET;
use bellows_engine::Io;
use bellows_packet::Packet;
use bellows_vrf::route::IpPrefix;
use bellows_vrf::{Interface, Tag};
use bellows_wire::mld;
use bellows_wire::ndp::{self, MAX_DRAFT, MessageDraft, flag, message_type, option_type};
use bellows_wire::{EtherType, IpPair, IpProtocol, Ipv6Header, MacAddr};

use super::Nd;
use crate::forwarding::resolver::Resolved;
use crate::forwarding::set_header;
use crate::ipv6_link::Advertised;

/// What is around a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Envelope {
    /// Of neighbour discovery: a hop limit that only a station on the link can have given it.
    Discovery,
    /// Of a listener: options that routers look at, and no hop further.
    Listener,
}

/// Who gets a message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Recipient {
    /// The number of the interface.
    pub(super) number: u16,
    pub(super) mac: MacAddr,
    /// The source and the destination.
    pub(super) addresses: (Ipv6Addr, Ipv6Addr),
    pub(super) envelope: Envelope,
}

impl Recipient {
    /// A message of neighbour discovery to a station.
    fn station(number: u16, mac: MacAddr, addresses: (Ipv6Addr, Ipv6Addr)) -> Recipient {
        Recipient { number, mac, addresses, envelope: Envelope::Discovery }
    }

    /// A message of neighbour discovery to a group.
    fn group(number: u16, addresses: (Ipv6Addr, Ipv6Addr)) -> Recipient {
        Recipient::station(number, ndp::multicast_mac(addresses.1), addresses)
    }
}

impl Nd {
    /// An address of an interface for messages to a target: one with the same prefix, or the link-local one.
    pub(super) fn source_for(&self, number: u16, interface: &Interface, target: Ipv6Addr) -> Option<Ipv6Addr> {
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
        let mut draft = MessageDraft::new(message_type::NEIGHBOUR_SOLICITATION, 0);
        draft.put(&target.octets()).put_link_layer(option_type::SOURCE_LINK_LAYER, interface.mac);
        let to = Recipient::station(number, mac.unwrap_or(ndp::multicast_mac(dst)), (src, dst));
        let sent = self.send(io, interface, &to, &mut draft);
        io.count(Nd::SOLICITATIONS_SENT, sent.into());
    }

    /// Asks whether another station has an address (RFC 4862, section 5.4.2). Returns whether the question was sent.
    pub(super) fn probe(&mut self, io: &Io<Self>, number: u16, address: Ipv6Addr) -> bool {
        let domain = Arc::clone(&self.resolver.domain);
        let Some(interface) = domain.tables().interface(number) else { return false };
        let dst = ndp::solicited_node(address);
        let mut draft = MessageDraft::new(message_type::NEIGHBOUR_SOLICITATION, 0);
        draft.put(&address.octets());
        let sent = self.send(io, interface, &Recipient::group(number, (Ipv6Addr::UNSPECIFIED, dst)), &mut draft);
        io.count(Nd::SOLICITATIONS_SENT, sent.into());
        sent
    }

    /// Tells all stations of a link that the router has an address (RFC 4861, section 7.2.6).
    pub(super) fn announce(&mut self, io: &Io<Self>, number: u16, address: Ipv6Addr) {
        self.advertise(io, number, address, None, Answers::ForItself);
    }

    /// Advertises a target: to the station that solicited it, with its Ethernet address if there is no room for it among
    /// the neighbours, or to all. (RFC 4861, section 7.2.4.)
    pub(super) fn advertise(
        &mut self,
        io: &Io<Self>,
        number: u16,
        target: Ipv6Addr,
        to: Option<(Ipv6Addr, Option<MacAddr>)>,
        answers: Answers,
    ) {
        let domain = Arc::clone(&self.resolver.domain);
        let Some(interface) = domain.tables().interface(number) else { return };
        let dst = to.map_or(ndp::ALL_NODES, |(to, _)| to);
        let is_own = interface.has_address(target.into());
        let Some(src) = (if is_own { Some(target) } else { self.source_for(number, interface, dst) }) else { return };
        let overrides = answers == Answers::ForItself;
        let flags = [(true, flag::ROUTER), (to.is_some(), flag::SOLICITED), (overrides, flag::OVERRIDE)];
        let word = flags.into_iter().filter(|(is_set, _)| *is_set).fold(0, |word, (_, flag)| word | flag);
        let mut draft = MessageDraft::new(message_type::NEIGHBOUR_ADVERTISEMENT, word);
        draft.put(&target.octets()).put_link_layer(option_type::TARGET_LINK_LAYER, interface.mac);
        if to.is_none() {
            let sent = self.send(io, interface, &Recipient::group(number, (src, dst)), &mut draft);
            return io.count(Nd::ADVERTISEMENTS_SENT, sent.into());
        }
        if let Some((_, Some(mac))) = to {
            let sent = self.send(io, interface, &Recipient::station(number, mac, (src, dst)), &mut draft);
            io.count(Nd::ADVERTISEMENTS_SENT, sent.into());
            return io.count(Nd::PROXY_SENT, (sent && answers == Answers::AsProxy).into());
        }
        // A station that did not say where it is must be found.
        let Some(mut packet) = compose((src, dst), Envelope::Discovery, &mut draft) else {
            return io.count(Nd::UNMADE, 1);
        };
        packet.set_tag(answers.tag());
        match self.resolver.resolve_neighbour(packet, (number, dst.into()), io.now()) {
            Resolved::Send(output, packet) => {
                self.count_advertisement(io, output, packet.tag());
                self.next_vectors.push(output, packet);
            }
            others => self.act(io, others),
        }
    }

    /// Counts an advertisement to one station, which may have had to be found, when it is sent.
    pub(super) fn count_advertisement(&self, io: &Io<Self>, output: usize, tag: u32) {
        let answers =
            [Answers::ForItself, Answers::AmongOthers, Answers::AsProxy].into_iter().find(|it| it.tag() == tag);
        if let Some(answers) = answers
            && self.next_vectors.has_room(io, output)
        {
            io.count(Nd::ADVERTISEMENTS_SENT, 1);
            io.count(Nd::PROXY_SENT, (answers == Answers::AsProxy).into());
        }
    }

    /// Advertises the router to all stations of a link. False if the link has no room, or the interface's link-local
    /// address must not be used.
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
        let mut draft = MessageDraft::new(message_type::ROUTER_ADVERTISEMENT, word);
        // No reachable time and no retransmission timer: hosts have their own.
        draft.put(&[0; 8]).put_link_layer(option_type::SOURCE_LINK_LAYER, interface.mac);
        if let Some(mtu) = said.mtu {
            draft.put_mtu(mtu);
        }
        said.prefixes.iter().for_each(|prefix| _ = draft.put_prefix(prefix));
        let sent = self.send(io, interface, &Recipient::group(number, (src, dst)), &mut draft);
        io.count(Nd::ROUTER_ADVERTISEMENTS_SENT, sent.into());
        sent
    }

    /// Sends a message. Returns whether its link has room for it.
    pub(super) fn send(
        &mut self,
        io: &Io<Self>,
        interface: &Interface,
        to: &Recipient,
        draft: &mut MessageDraft,
    ) -> bool {
        let Some(output) = self.resolver.output(to.number) else { return false };
        let (header, length) = interface.header(to.mac, EtherType::IPV6);
        let packet = compose(to.addresses, to.envelope, draft)
            .and_then(|mut packet| set_header(&mut packet, &header[..length]).then_some(packet));
        let Some(packet) = packet else {
            io.count(Nd::UNMADE, 1);
            return false;
        };
        let has_room = self.next_vectors.has_room(io, output);
        self.next_vectors.push(output, packet);
        has_room
    }
}

/// For whom the router advertises an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answers {
    /// It has the address.
    ForItself,
    /// It is one of several routers that may have it.
    AmongOthers,
    /// It reaches the address through another interface.
    AsProxy,
}

impl Answers {
    /// The tag of such an advertisement while it waits: packets that wait for an adjacency have higher numbers.
    fn tag(self) -> u32 {
        Tag::received_on(0).with(1 + self as u32).0
    }
}

/// A message behind an IPv6 header and an Ethernet header that is still empty. `None` if there is no buffer.
fn compose((src, dst): (Ipv6Addr, Ipv6Addr), envelope: Envelope, draft: &mut MessageDraft) -> Option<Packet> {
    const IP: usize = ETHERNET + 40;
    let message = draft.finish(&IpPair::V6 { src, dst });
    let (options, next_header, hop_limit) = match envelope {
        Envelope::Discovery => (&[][..], IpProtocol::ICMPV6, ndp::HOP_LIMIT),
        Envelope::Listener => (&mld::ROUTER_ALERT[..], IpProtocol::IPV6_HOP_BY_HOP, mld::HOP_LIMIT),
    };
    let mut frame = [0; IP + mld::ROUTER_ALERT.len() + MAX_DRAFT];
    let (start, end) = (IP + options.len(), IP + options.len() + message.len());
    frame[IP..start].copy_from_slice(options);
    frame[start..end].copy_from_slice(message);
    let header = Ipv6Header { src, dst, next_header, hop_limit, traffic_class: 0, flow_label: 0 };
    header.emit(&mut frame[ETHERNET..end]).ok()?;
    Packet::from_bytes(&frame[..end])
}
