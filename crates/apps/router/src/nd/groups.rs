//! The multicast groups that the router listens to, and its reports of them, without which switches that forward frames
//! of a group only to its listeners (RFC 4541) would keep solicitations from the router.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use bellows_common::headers::ETHERNET;
use bellows_engine::{DropReason, Io};
use bellows_packet::Packet;
use bellows_vrf::interface::subnet_router;
use bellows_vrf::{Interface, Tag};
use bellows_wire::mld::{self, Query, message_type};
use bellows_wire::ndp::{self, MAX_DRAFT, MessageDraft};
use bellows_wire::{IpProtocol, Ipv6Packet};

use super::listener::{Listener, Message};
use super::send::{Envelope, Recipient};
use super::{MAX_SENT, Nd};
use crate::ipv6_link::AddressState;
use crate::vrf::RoutingDomain;

/// The time after which reports are tried again that a link had no room for.
const RETRY_NS: u64 = 1_000_000;

/// Bytes of a report in front of its records, of a record in front of its sources, and of a source.
const REPORT: usize = 8;
const RECORD: usize = 20;
const SOURCE: usize = 16;

/// The groups of all interfaces.
#[derive(Debug)]
pub(super) struct MulticastGroups {
    /// By the numbers of interfaces from 1 on.
    listeners: Vec<Listener>,
    /// When something is due next.
    next: u64,
}

impl Default for MulticastGroups {
    fn default() -> MulticastGroups {
        MulticastGroups { listeners: Vec::new(), next: u64::MAX }
    }
}

impl MulticastGroups {
    pub(super) fn next_deadline(&self) -> Option<u64> {
        (self.next < u64::MAX).then_some(self.next)
    }

    /// Takes over from the groups of an app that this one replaces: those that are not joined again are left.
    pub(super) fn succeed(&mut self, old: &MulticastGroups, before: &RoutingDomain, domain: &RoutingDomain, now: u64) {
        for (number, interface) in (1..).zip(domain.tables().interfaces()) {
            let same = before.tables().number(&interface.name).filter(|&number| {
                before
                    .tables()
                    .interface(number)
                    .is_some_and(|it| (&it.port, &it.tags) == (&interface.port, &interface.tags))
            });
            let known = same.and_then(|number| old.listeners.get(usize::from(number) - 1));
            self.change(number, |listener| *listener = known.map_or_else(Listener::new, |known| known.successor(now)));
        }
    }

    /// As if an interface had joined these groups.
    #[cfg(test)]
    pub(super) fn join_for_test(&mut self, number: u16, groups: impl IntoIterator<Item = Ipv6Addr>, at: u64) {
        self.change(number, |listener| groups.into_iter().for_each(|group| listener.join(group, at)));
    }

    /// Changes what is known of an interface's groups.
    fn change(&mut self, number: u16, change: impl FnOnce(&mut Listener)) {
        let index = usize::from(number) - 1;
        if index >= self.listeners.len() {
            self.listeners.resize_with(index + 1, Listener::new);
        }
        change(&mut self.listeners[index]);
        self.next = self.next.min(self.listeners[index].next_deadline().unwrap_or(u64::MAX));
    }
}

/// The groups that a router listens to on a link: that of all routers (RFC 4291, section 2.8), and those that are asked
/// for its addresses. Without an IPv6 address there are none.
fn wanted(domain: &RoutingDomain, number: u16, interface: &Interface) -> BTreeSet<Ipv6Addr> {
    let mut groups = BTreeSet::new();
    for own in &interface.addresses {
        let IpAddr::V6(address) = own.address else { continue };
        if domain.addresses().get(number, address) != Some(AddressState::Duplicate) {
            groups.insert(ndp::ALL_ROUTERS);
            groups.insert(ndp::solicited_node(address));
            groups.extend(subnet_router(own).filter(|_| !address.is_unicast_link_local()).map(ndp::solicited_node));
        }
    }
    groups
}

/// The source of a packet that may be a message of listeners. Looks at its first header alone: they are behind
/// hop-by-hop options, or wrong.
fn source_of_listener(packet: &Packet) -> Option<Ipv6Addr> {
    let header = packet.bytes().get(ETHERNET..)?.first_chunk::<41>()?;
    let may_be = match IpProtocol(header[6]) {
        IpProtocol::IPV6_HOP_BY_HOP => true,
        IpProtocol::ICMPV6 => mld::is_of_listeners(header[40]),
        _ => false,
    };
    may_be.then(|| Ipv6Addr::from_octets(std::array::from_fn(|at| header[8 + at])))
}

/// What a message of listeners must be (RFC 3810, sections 5.1.14 and 6.2): it comes from the link itself.
fn check(packet: &Packet) -> Option<Result<&[u8], DropReason<Nd>>> {
    let bytes = packet.bytes().get(ETHERNET..)?;
    let ip = Ipv6Packet::new_checked(bytes).ok()?;
    let upper = ip.upper_layer().ok()?;
    let kind = *upper.payload.first()?;
    if upper.protocol != IpProtocol::ICMPV6 || upper.fragment.is_some() || !mld::is_of_listeners(kind) {
        return None;
    }
    let length = upper.payload.len();
    let end = 40 + usize::from(ip.payload_len());
    let message = bytes.get(end - length..end)?;
    let sum = ip.addresses().pseudo_header(IpProtocol::ICMPV6, length).add_bytes(message);
    let options = bytes.get(40..end - length).filter(|_| ip.next_header() == IpProtocol::IPV6_HOP_BY_HOP);
    Some(if sum.finish() != 0 {
        Err(Nd::BAD_CHECKSUM)
    } else if ip.hop_limit() != mld::HOP_LIMIT {
        Err(Nd::HOP_LIMIT)
    } else if !options.is_some_and(mld::has_router_alert) {
        Err(Nd::NO_ROUTER_ALERT)
    } else if !ip.src().is_unicast_link_local() && (kind == message_type::QUERY || !ip.src().is_unspecified()) {
        // RFC 3590: a listener may have no address yet.
        Err(Nd::NOT_LINK_LOCAL)
    } else if length < 8 {
        Err(Nd::MALFORMED)
    } else {
        Ok(message)
    })
}

impl Nd {
    /// Takes in a message of listeners. `None` if it is none.
    pub(super) fn receive_listeners(&mut self, io: &Io<Self>, packet: &Packet) -> Option<Result<(), DropReason<Nd>>> {
        let source = source_of_listener(packet)?;
        let number = Tag(packet.tag()).interface();
        let sender = self.sender(number, source);
        if !self.hearing.would_hear(number, sender, io.now()) {
            return Some(Err(Nd::RATE_LIMITED));
        }
        let message = match check(packet)? {
            Ok(message) => message,
            Err(reason) => return Some(Err(reason)),
        };
        self.hearing.hears(number, sender, io.now());
        Some(self.hear_listeners(io, packet, message))
    }

    fn hear_listeners(&mut self, io: &Io<Self>, packet: &Packet, message: &[u8]) -> Result<(), DropReason<Nd>> {
        let number = Tag(packet.tag()).interface();
        let interface = self.resolver.domain.tables().interface(number).ok_or(Nd::NO_ADJACENCY)?;
        if packet.bytes()[6..12] == interface.mac.0 {
            return Err(Nd::OWN);
        }
        match message[0] {
            message_type::QUERY => {
                let query = Query::new_checked(message).map_err(|_| Nd::MALFORMED)?;
                io.count(Nd::QUERIES_RECEIVED, 1);
                let random = &mut self.random;
                self.groups.change(number, |listener| listener.hear_query(&query, io.now(), random));
            }
            message_type::REPORT_1 => {
                let group = message.get(8..24).and_then(|group| group.first_chunk::<16>()).ok_or(Nd::MALFORMED)?;
                io.count(Nd::REPORTS_RECEIVED, 1);
                self.groups.change(number, |listener| listener.hear_report((*group).into()));
            }
            // What other nodes listen to matters to queriers and switches.
            _ => io.count(Nd::REPORTS_RECEIVED, 1),
        }
        Ok(())
    }

    /// Joins the groups of an interface, with a first report at a time.
    pub(super) fn join_groups(&mut self, number: u16, at: u64) {
        let domain = Arc::clone(&self.resolver.domain);
        let Some(interface) = domain.tables().interface(number) else { return };
        if self.resolver.output(number).is_some() {
            let wanted = wanted(&domain, number, interface);
            self.groups.change(number, |listener| wanted.into_iter().for_each(|group| listener.join(group, at)));
        }
    }

    /// Leaves the groups of addresses that turned out to be another station's.
    pub(super) fn leave_groups(&mut self, number: u16, at: u64) {
        let domain = Arc::clone(&self.resolver.domain);
        let Some(interface) = domain.tables().interface(number) else { return };
        let wanted = wanted(&domain, number, interface);
        self.groups.change(number, |listener| {
            let left: Vec<Ipv6Addr> = listener.joined().filter(|group| !wanted.contains(group)).collect();
            left.into_iter().for_each(|group| listener.leave(group, at));
        });
    }

    /// Sends the reports that are due.
    pub(super) fn report_groups(&mut self, io: &Io<Self>) {
        if io.now() < self.groups.next {
            return;
        }
        let (mut groups, mut next) = (std::mem::take(&mut self.groups), u64::MAX);
        for (number, listener) in (1..).zip(&mut groups.listeners) {
            if listener.next_deadline().is_some_and(|deadline| deadline <= io.now()) {
                // What is taken out is lost without room.
                if self.resolver.output(number).is_some_and(|output| !self.next_vectors.has_room(io, output)) {
                    next = next.min(io.now() + RETRY_NS);
                    continue;
                }
                for message in listener.due(io.now(), &mut self.random) {
                    self.send_of_listener(io, number, &message);
                }
            }
            next = next.min(listener.next_deadline().unwrap_or(u64::MAX));
        }
        groups.next = next;
        self.groups = groups;
    }

    /// Tells that the router listens to nothing any more.
    pub(super) fn cease_to_listen(&mut self, io: &Io<Self>) {
        let mut groups = std::mem::take(&mut self.groups);
        for (number, listener) in (1..).zip(&mut groups.listeners) {
            for message in listener.leave_all(io.now(), &mut self.random) {
                self.send_of_listener(io, number, &message);
            }
        }
    }

    fn send_of_listener(&mut self, io: &Io<Self>, number: u16, message: &Message) {
        let one = |kind: u8, group: &Ipv6Addr| {
            let mut draft = MessageDraft::new(kind, 0);
            draft.put(&group.octets());
            draft
        };
        match message {
            Message::Report1(group) => self.send_to_group(io, number, *group, one(message_type::REPORT_1, group)),
            Message::Done(group) => self.send_to_group(io, number, ndp::ALL_ROUTERS, one(message_type::DONE, group)),
            Message::Report(records) => {
                let mut rest = &records[..];
                while !rest.is_empty() {
                    let mut room = MAX_DRAFT - REPORT - mld::ROUTER_ALERT.len();
                    let fits = |record: &&super::listener::Record| {
                        let length = RECORD + SOURCE * record.sources.len();
                        let fits = length <= room;
                        room = room.saturating_sub(length);
                        fits
                    };
                    // A record of as many sources as are kept in mind fits by itself.
                    let count = rest.iter().take_while(fits).count().max(1);
                    let (first, others) = rest.split_at(count);
                    let mut draft = MessageDraft::new(message_type::REPORT, count as u32);
                    first.iter().for_each(|it| _ = draft.put_record(it.kind, it.group, &it.sources));
                    self.send_to_group(io, number, mld::REPORTS, draft);
                    rest = others;
                }
            }
        }
    }

    /// Sends a message of a listener, from the link-local address if that may be used (RFC 3590).
    fn send_to_group(&mut self, io: &Io<Self>, number: u16, dst: Ipv6Addr, mut draft: MessageDraft) {
        let domain = Arc::clone(&self.resolver.domain);
        let Some(interface) = domain.tables().interface(number) else { return };
        let own = self.source_for(number, interface, dst).filter(Ipv6Addr::is_unicast_link_local);
        let addresses = (own.unwrap_or(Ipv6Addr::UNSPECIFIED), dst);
        let to = Recipient { number, mac: ndp::multicast_mac(dst), addresses, envelope: Envelope::Listener };
        let sent = self.send(io, interface, &to, &mut draft);
        io.count(Nd::REPORTS_SENT, sent.into());
        self.next_vectors.make_room(io, MAX_SENT);
    }
}
