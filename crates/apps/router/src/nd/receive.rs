//! Messages that arrive: which are believed (RFC 4861, sections 6.1 and 7.1), and what they change.

use std::net::Ipv6Addr;
use std::sync::Arc;

use bellows_common::headers::ETHERNET;
use bellows_common::limit::MessageSender;
use bellows_engine::{DropReason, Io};
use bellows_packet::Packet;
use bellows_vrf::adjacency::special;
use bellows_vrf::discovery::Advertisement;
use bellows_vrf::interface::subnet_router;
use bellows_vrf::neighbours::{Learned, NeighbourKey, Neighbours};
use bellows_vrf::{Interface, Tag};
use bellows_wire::ndp::{self, Message, flag, message_type, option_type};
use bellows_wire::{IpProtocol, Ipv6Packet, MacAddr};

use super::send::Answers;
use super::{Nd, is_on_link};
use crate::forwarding::resolver::Resolved;
use crate::ipv6_link::AddressState;

/// A message of neighbour discovery.
struct Received<'p> {
    /// The number of the interface.
    number: u16,
    /// The Ethernet address that sent it.
    station: MacAddr,
    source: Ipv6Addr,
    destination: Ipv6Addr,
    message: Message<'p>,
}

/// Why a message is refused at a glance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unwanted {
    RateLimited,
    Unasked,
}

impl Unwanted {
    fn reason(self) -> DropReason<Nd> {
        match self {
            Unwanted::RateLimited => Nd::RATE_LIMITED,
            Unwanted::Unasked => Nd::UNASKED,
        }
    }
}

/// An address in the first bytes of a message, at an offset behind the Ethernet header.
fn address_at(header: &[u8; ETHERNET + 64], at: usize) -> Ipv6Addr {
    let bytes = header.get(ETHERNET + at..).and_then(<[u8]>::first_chunk::<16>);
    bytes.map_or(Ipv6Addr::UNSPECIFIED, |bytes| Ipv6Addr::from_octets(*bytes))
}

/// What all messages must be.
fn check(packet: &Packet) -> Result<Received<'_>, DropReason<Nd>> {
    let (ethernet, ip) = packet.bytes().split_at_checked(ETHERNET).ok_or(Nd::TOO_SHORT)?;
    let ip = Ipv6Packet::new_checked(ip).map_err(|_| Nd::TOO_SHORT)?;
    // The bytes of a view that was checked live as long as the packet.
    let bytes = &packet.bytes()[ETHERNET..];
    let upper = ip.upper_layer().map_err(|_| Nd::NOT_DISCOVERY)?;
    if upper.protocol != IpProtocol::ICMPV6 {
        return Err(Nd::NOT_DISCOVERY);
    }
    if upper.fragment.is_some() {
        return Err(Nd::FRAGMENT);
    }
    if ip.hop_limit() != ndp::HOP_LIMIT {
        return Err(Nd::HOP_LIMIT);
    }
    let length = upper.payload.len();
    let sum = ip.addresses().pseudo_header(IpProtocol::ICMPV6, length).add_bytes(upper.payload);
    if sum.finish() != 0 {
        return Err(Nd::BAD_CHECKSUM);
    }
    let end = 40 + usize::from(ip.payload_len());
    let payload = bytes.get(end - length..end).ok_or(Nd::TOO_SHORT)?;
    if !payload.first().is_some_and(|kind| (133..=137).contains(kind)) {
        return Err(Nd::NOT_DISCOVERY);
    }
    if payload.get(1).is_some_and(|&code| code != 0) {
        return Err(Nd::BAD_CODE);
    }
    let message = Message::new_checked(payload).map_err(|_| Nd::MALFORMED)?;
    let station = MacAddr(std::array::from_fn(|at| ethernet[6 + at]));
    let number = Tag(packet.tag()).interface();
    Ok(Received { number, station, source: ip.src(), destination: ip.dst(), message })
}

impl Received<'_> {
    /// The Ethernet address of an option.
    fn link_layer(&self, kind: u8) -> Result<Option<MacAddr>, DropReason<Nd>> {
        match self.message.link_layer(kind) {
            Some(mac) if !mac.is_station() => Err(Nd::BAD_LINK_LAYER),
            mac => Ok(mac),
        }
    }

    fn key(&self, address: Ipv6Addr) -> NeighbourKey {
        (self.number, address.into())
    }
}

impl Nd {
    /// Takes in a message, and answers it.
    pub(super) fn receive(&mut self, io: &Io<Self>, packet: &Packet) -> Result<(), DropReason<Nd>> {
        if let Some(done) = self.receive_listeners(io, packet) {
            return done;
        }
        if let Some(refused) = self.refuse_flood(packet, io.now()) {
            return Err(refused.reason());
        }
        let received = check(packet)?;
        let domain = Arc::clone(&self.resolver.domain);
        let interface = domain.tables().interface(received.number).ok_or(Nd::NO_ADJACENCY)?;
        if received.station == interface.mac {
            return Err(Nd::OWN);
        }
        let subject = match received.message.kind() {
            message_type::NEIGHBOUR_ADVERTISEMENT => received.message.target(),
            _ => received.source,
        };
        if !self.hearing.hears(received.number, self.sender(received.number, subject), io.now()) {
            return Err(Nd::RATE_LIMITED);
        }
        match received.message.kind() {
            message_type::ROUTER_SOLICITATION => self.hear_router_solicitation(io, &received),
            message_type::NEIGHBOUR_SOLICITATION => self.hear_solicitation(io, interface, &received),
            message_type::NEIGHBOUR_ADVERTISEMENT => self.hear_advertisement(io, &received),
            _ if !received.source.is_unicast_link_local() => Err(Nd::NOT_LINK_LOCAL),
            message_type::REDIRECT => Err(Nd::REDIRECT),
            // A router does not configure itself by what others advertise.
            _ => {
                io.count(Nd::ROUTER_ADVERTISEMENTS_RECEIVED, 1);
                self.compare(io, received.number, interface, received.source, &received.message);
                Ok(())
            }
        }
    }

    /// Why all messages are refused, if they are for one reason.
    pub(super) fn refuse_all(&self, packets: &[Packet], now: u64) -> Option<DropReason<Nd>> {
        let (first, others) = packets.split_first()?;
        let refused = self.refuse_flood(first, now)?;
        others.iter().all(|packet| self.refuse_flood(packet, now) == Some(refused)).then(|| refused.reason())
    }

    /// Refuses what is beyond the limits, or changes nothing, before it is looked at closely. Only solicitations and
    /// advertisements directly behind the IPv6 header are; others are few. Hot.
    #[inline]
    fn refuse_flood(&self, packet: &Packet, now: u64) -> Option<Unwanted> {
        let header = packet.bytes().first_chunk::<{ ETHERNET + 64 }>()?;
        let number = Tag(packet.tag()).interface();
        if header[ETHERNET + 6] != IpProtocol::ICMPV6.0 {
            return None;
        }
        let address = |at| address_at(header, at);
        match header[ETHERNET + 40] {
            message_type::ROUTER_SOLICITATION | message_type::NEIGHBOUR_SOLICITATION => {
                let is_heard = self.hearing.would_hear(number, self.sender(number, address(8)), now);
                (!is_heard).then_some(Unwanted::RateLimited)
            }
            message_type::NEIGHBOUR_ADVERTISEMENT => match address(48) {
                target if self.resolver.may_know((number, target.into())) => {
                    (!self.hearing.would_hear(number, MessageSender::Known, now)).then_some(Unwanted::RateLimited)
                }
                // It may be one of the router's own, or no station's.
                target if target.is_multicast() || self.has_address(number, target) => None,
                _ => Some(Unwanted::Unasked),
            },
            _ => None,
        }
    }

    /// Who the sender of a message is, by an address of it.
    #[inline]
    pub(super) fn sender(&self, number: u16, address: Ipv6Addr) -> MessageSender {
        if self.resolver.may_know((number, address.into())) {
            return MessageSender::Known;
        }
        let interface = self.resolver.domain.tables().interface(number);
        let is_here = |interface| address.is_unspecified() || is_on_link(interface, address);
        if interface.is_none_or(is_here) { MessageSender::Stranger } else { MessageSender::OffLink }
    }

    /// Whether an interface has an address, or does not exist.
    fn has_address(&self, number: u16, address: Ipv6Addr) -> bool {
        let interface = self.resolver.domain.tables().interface(number);
        interface.is_none_or(|interface| interface.has_address(address.into()))
    }

    /// Learns from what a station says. Packets that waited are sent.
    fn learn(
        &mut self,
        io: &Io<Self>,
        key: NeighbourKey,
        hear: impl FnOnce(&mut Neighbours) -> Learned,
    ) -> Result<Learned, DropReason<Nd>> {
        let (learned, waited) = self.resolver.learn(key, io.now(), hear);
        for resolved in waited {
            if let Resolved::Send(output, packet) = &resolved {
                self.count_advertisement(io, *output, packet.tag());
            }
            self.act(io, resolved);
        }
        match learned {
            Learned::Changed => io.count(Nd::LEARNED, 1),
            Learned::Full => io.count(Nd::FULL, 1),
            Learned::Ignored => return Err(Nd::UNASKED),
            Learned::Confirmed => {}
        }
        Ok(learned)
    }

    /// Learns where the sender of a solicitation is, if it says so and is on the link. Returns that if it is not among the
    /// neighbours: there is no room for it, or it is not on the link.
    fn learn_sender(&mut self, io: &Io<Self>, received: &Received<'_>) -> Result<Option<MacAddr>, DropReason<Nd>> {
        match self.own_state(received.number, received.source) {
            Some(AddressState::Preferred) => {
                self.keep_claimed(io, received.number, received.source, received.station);
                return Err(Nd::SOURCE_IS_LOCAL);
            }
            Some(AddressState::Tentative) => return Err(Nd::SOURCE_IS_LOCAL),
            Some(AddressState::Duplicate) | None => {}
        }
        let mac = received.link_layer(option_type::SOURCE_LINK_LAYER)?;
        // A route may have a next hop that is not on the link: who is known is heard.
        if self.sender(received.number, received.source) == MessageSender::OffLink {
            self.check_off_link(io, received)?;
            io.count(Nd::OFF_LINK, 1);
            return Ok(Some(mac.unwrap_or(received.station)));
        }
        let Some(mac) = mac else { return Ok(None) };
        let (key, now) = (received.key(received.source), io.now());
        let learned = self.learn(io, key, |neighbours| match neighbours.hear_solicitation(key, mac, now) {
            // Its address was configured: the solicitation is answered all the same.
            Learned::Ignored => Learned::Confirmed,
            learned => learned,
        })?;
        Ok((learned == Learned::Full).then_some(mac))
    }

    /// Whether a station whose address is not on the link may be answered.
    fn check_off_link(&self, io: &Io<Self>, received: &Received<'_>) -> Result<(), DropReason<Nd>> {
        let (source, domain) = (received.source, &self.resolver.domain);
        let is_station = !source.is_multicast() && !source.is_loopback() && received.station.is_station();
        if !is_station || domain.policies().are_neighbours_strict(received.number) {
            return Err(Nd::SOURCE_NOT_LOCAL);
        }
        // Addresses of other interfaces.
        let is_own = domain.tables().look_up(io, source.into()) == special::LOCAL;
        if is_own { Err(Nd::SOURCE_IS_LOCAL) } else { Ok(()) }
    }

    /// RFC 4861, section 7.2.4.
    fn hear_solicitation(
        &mut self,
        io: &Io<Self>,
        interface: &Interface,
        received: &Received<'_>,
    ) -> Result<(), DropReason<Nd>> {
        io.count(Nd::SOLICITATIONS_RECEIVED, 1);
        let (number, target) = (received.number, received.message.target());
        if target.is_multicast() {
            return Err(Nd::BAD_TARGET);
        }
        let is_from_nobody = received.source.is_unspecified();
        if is_from_nobody
            && (received.destination != ndp::solicited_node(target)
                || received.message.has(option_type::SOURCE_LINK_LAYER))
        {
            return Err(Nd::UNSPECIFIED);
        }
        let state = self.own_state(number, target);
        let is_anycast = state.is_none() && interface.addresses.iter().any(|own| subnet_router(own) == Some(target));
        let is_proxy = state.is_none() && !is_anycast && !is_from_nobody && self.is_proxy_for(io, number, target);
        match state {
            // Two stations want the same address (RFC 4862, section 5.4.3).
            Some(AddressState::Tentative) if is_from_nobody => {
                self.found_duplicate(io, number, target, received.station);
                return Ok(());
            }
            Some(AddressState::Tentative | AddressState::Duplicate) => return Err(Nd::TENTATIVE),
            Some(AddressState::Preferred) => {}
            None if is_anycast || is_proxy => {}
            None => return Err(Nd::NOT_LOCAL),
        }
        let answers = match (is_anycast, is_proxy) {
            (false, false) => Answers::ForItself,
            (true, _) => Answers::AmongOthers,
            (false, true) => Answers::AsProxy,
        };
        if is_from_nobody {
            // Another station wants an address: all are told that it is in use.
            self.advertise(io, number, target, None, answers);
            return Ok(());
        }
        // Who finds no room among the neighbours is answered all the same.
        let mac = self.learn_sender(io, received)?;
        self.advertise(io, number, target, Some((received.source, mac)), answers);
        Ok(())
    }

    /// RFC 4861, section 7.2.5.
    fn hear_advertisement(&mut self, io: &Io<Self>, received: &Received<'_>) -> Result<(), DropReason<Nd>> {
        io.count(Nd::ADVERTISEMENTS_RECEIVED, 1);
        let (word, target) = (received.message.word(), received.message.target());
        if target.is_multicast() {
            return Err(Nd::BAD_TARGET);
        }
        let is_solicited = word & flag::SOLICITED != 0;
        if is_solicited && received.destination.is_multicast() {
            return Err(Nd::SOLICITED);
        }
        match self.own_state(received.number, target) {
            Some(AddressState::Tentative) => {
                self.found_duplicate(io, received.number, target, received.station);
                return Ok(());
            }
            Some(AddressState::Preferred) => {
                self.keep_claimed(io, received.number, target, received.station);
                return Err(Nd::SOURCE_IS_LOCAL);
            }
            Some(AddressState::Duplicate) | None => {}
        }
        let mac = received.link_layer(option_type::TARGET_LINK_LAYER)?;
        let said = Advertisement { mac, is_solicited, overrides: word & flag::OVERRIDE != 0 };
        let (key, now) = (received.key(target), io.now());
        self.learn(io, key, |neighbours| neighbours.hear_advertisement(key, said, now)).map(|_| ())
    }

    /// RFC 4861, section 6.2.6.
    fn hear_router_solicitation(&mut self, io: &Io<Self>, received: &Received<'_>) -> Result<(), DropReason<Nd>> {
        io.count(Nd::ROUTER_SOLICITATIONS_RECEIVED, 1);
        if !received.source.is_unspecified() {
            self.learn_sender(io, received)?;
        } else if received.message.has(option_type::SOURCE_LINK_LAYER) {
            return Err(Nd::UNSPECIFIED);
        }
        self.schedules.solicited(received.number, io.now(), &mut self.random);
        Ok(())
    }

    /// Whether the router answers for an address on an interface because it reaches it through another one.
    fn is_proxy_for(&self, io: &Io<Self>, number: u16, target: Ipv6Addr) -> bool {
        if !self.proxy.contains(&number) || target.is_unicast_link_local() {
            return false;
        }
        let tables = self.resolver.domain.tables();
        let mut found = [0];
        tables.look_up_v6(io, &[target.into()], &mut found);
        tables.choose_paths(io, &mut found, |_| 0);
        tables.adjacencies().get(found[0]).is_some_and(|adjacency| adjacency.interface != number)
    }
}
