//! `arp`: finds the Ethernet addresses of IPv4 neighbours, and answers those who look for the router's.
//!
//! | file | contents |
//! |---|---|
//! | `strangers.rs` | which packets are refused at a glance |

#[cfg(test)]
mod next_hop_tests;
mod strangers;
#[cfg(test)]
mod tests;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use bellows_common::headers::ETHERNET;
use bellows_common::limit::{Hearing, MessageSender};
use bellows_common::nexts::{NextVectors, Refused};
use bellows_config::{BenchFiles, BenchSetup, Configure, Context, Duration, OutputSchema, Resource, SettingError};
use bellows_engine::{App, AppError, Counters, DropReason, Io, Port, Ports, Status, counters};
use bellows_netif::arp_guard;
use bellows_packet::Packet;
use bellows_vrf::adjacency::special;
use bellows_vrf::neighbours::{Due, Heard, Learned, NeighbourKey, NeighbourLimits, NeighbourState};
use bellows_vrf::{IcmpError, Interface, IpFamily, Reason, Tag};
use bellows_wire::arp::{ArpHeader, ArpOperation, ArpPacket};
use bellows_wire::{EtherType, MacAddr};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use self::strangers::LinkStrangers;
use crate::forwarding::conflicts::{Claim, Conflicts};
use crate::forwarding::resolver::{Figures, MAX_DUE, Resolved, Resolver, limits};
use crate::vrf::resolved::ResolverStatus;
use crate::vrf::{HOST, RoutingDomain};

/// The Address Resolution Protocol (RFC 826) of a router: finds the Ethernet addresses of IPv4 neighbours, and answers
/// those who look for the router's.
///
/// `input` takes ARP packets, `resolve` the packets of `ip4-rewrite` to neighbours that are not known; up to three wait
/// for each neighbour. Outputs have the names of ports: ARP packets leave there, and the packets that waited. A
/// neighbour that does not answer three questions is gone, and packets that waited for it go to `error`, which tells
/// their senders. One that has answered is asked again, by its own address, before the answer is too old. Next hops of
/// routes with several ways are asked without packets to them, about every 5 seconds, also when they have ceased to
/// answer: they are out of use meanwhile. If an output
/// `host` is linked, it gets the answers of neighbours, which the host behind the router may have asked for. Neighbours
/// are learned from answers and from questions to the router; announcements change only what is known already. Each
/// interface is sure to have its part of the neighbours; questions are answered also when there is no room for who asks.
/// Who asks from an address that is not on the link is answered, up to 1,000 times a second, but not learned; the key
/// `strict_neighbours` of an interface has such questions dropped.
/// Who claims an address of the router is told once a second whose it is (RFC 5227), and the event `duplicate-address` names
/// the station.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The routing domain: the name of an object of type `vrf`.
    pub vrf: String,

    /// How long an answer holds, from 1 second to 1 day.
    #[serde(default = "reachable")]
    #[schemars(extend("x-unit" = "time"))]
    pub reachable: Duration,

    /// Interfaces on which the router answers for addresses that it reaches through another interface (RFC 1027).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub proxy: Vec<String>,
}

impl Config {
    /// The defaults, for a routing domain.
    pub fn of(vrf: &str) -> Config {
        Config { vrf: vrf.to_owned(), reachable: reachable(), proxy: Vec::new() }
    }
}

fn reachable() -> Duration {
    Duration::from_secs(30)
}

const REACHABLE_NS: std::ops::RangeInclusive<u64> = 1_000_000_000..=86_400_000_000_000;

/// The time between two defences of the addresses of an interface (RFC 5227, section 2.4, has 10 seconds for hosts).
const DEFEND_NS: u64 = 1_000_000_000;

/// Finds Ethernet addresses.
pub struct Arp {
    resolver: Resolver,
    hearing: Hearing,
    next_vectors: NextVectors,
    refused: Refused<Arp>,
    error: Option<u16>,
    host: Option<u16>,
    /// The numbers of interfaces with a proxy.
    proxy: Vec<u16>,
    /// The links of interfaces, by their numbers, of which there is no 0.
    links: Vec<LinkStrangers>,
    /// When an address of each interface may be defended again.
    defends_at: Box<[u64]>,
    conflicts: Conflicts,
    has_announced: bool,
    /// Keeps the kernel from answering for the router's addresses.
    claim: Option<arp_guard::Claim>,
}

counters! { Arp;
    drop MALFORMED = "malformed", "packets that are not ARP for IPv4 over Ethernet, or too short";
    drop NOT_LOCAL = "l3_dst_address_not_local", "questions for addresses that are not the router's; normal for questions for other stations; if all are: the neighbours use another gateway's address";
    drop SOURCE_NOT_LOCAL = "l3_src_address_not_local", "packets whose sender is no station, or is not on the interface's link and is not to be answered; likely: the neighbour has another prefix length, or `strict_neighbours` is set";
    drop SOURCE_IS_LOCAL = "l3_src_address_is_local", "packets of others with an address of the router; likely: another station has an address of the router; give one of them another";
    drop MISMATCH = "l2_address_mismatch", "packets whose sender has another address in the frame, or none that a station has";
    drop RATE_LIMITED = "rate_limited", "questions for the router, and news of neighbours, beyond their limits";
    drop UNASKED = "unasked", "answers and announcements of neighbours of whom nobody wants to know";
    drop UNRESOLVED = "unresolved", "packets to neighbours that did not answer, if `error` is not linked; likely: the neighbour is off, in another VLAN, or has another prefix";
    drop WAITING_FULL = "waiting_full", "packets to neighbours for whom enough packets wait, or for whom there is no room";
    drop NO_ADJACENCY = "no_adjacency", "packets whose adjacency has gone, or whose port is not linked";
    drop NO_HEADER = "no_header", "packets to resolve without a whole IPv4 header";
    count UNMADE = "unmade", "packets of its own that were not made because the pool had no buffer";
    count REQUESTS_SENT = "requests_sent", "questions that were sent";
    count REPLIES_SENT = "replies_sent", "answers that were sent";
    count PROXY_REPLIES_SENT = "proxy_arp_replies_sent", "answers for addresses behind other interfaces";
    count REPLIES_RECEIVED = "replies_received", "answers that were received";
    count GRATUITOUS = "gratuitous_arp", "announcements that were received";
    count OFF_LINK = "off_link", "questions from addresses that are not on the interface's link: they are answered, but their senders not learned";
    count LEARNED = "learned", "neighbours that were learned, or have another address", in "neighbours";
    count FULL = "neighbours_full", "questions that were answered, but whose senders found no room among the neighbours";
    count DISPLACED = "displaced", "neighbours that were forgotten in a full table for others", in "neighbours";
    count EXPIRED = "expired", "neighbours that are gone", in "neighbours";
    count ADJACENCIES_FULL = "adjacencies_full", "attempts to give a neighbour an adjacency for which there was no room", in "attempts";
    gauge NEXT_HOPS_FAILED = "next_hops_failed", "next hops of routes with several ways that do not answer", in "next hops";
    gauge NEIGHBOURS_INCOMPLETE = "neighbours_incomplete", "IPv4 neighbours that have not answered yet", in "neighbours";
    gauge NEIGHBOURS_REACHABLE = "neighbours_reachable", "IPv4 neighbours that have answered", in "neighbours";
    gauge NEIGHBOURS_DELAY = "neighbours_delay", "IPv4 neighbours that are asked soon whether their known address still holds", in "neighbours";
    gauge NEIGHBOURS_PROBE = "neighbours_probe", "IPv4 neighbours that are being asked whether their known address still holds", in "neighbours";
    gauge NEIGHBOURS_PERMANENT = "neighbours_permanent", "IPv4 neighbours whose address somebody entered", in "neighbours";
    gauge ROUTES = "routes", "IPv4 routes of the routing domain, with those that others are preferred to", in "routes";
    gauge FIB_BYTES = "fib_bytes", "memory of the forwarding table for IPv4", in "bytes";
}

/// Packets that one packet, or one thing that is due, can send to an output: those that waited, and an answer.
const MAX_SENT: usize = 4;

/// The gauges of the routing domain.
const FIGURES: Figures<Arp> = Figures {
    neighbours: [
        (NeighbourState::Incomplete, Arp::NEIGHBOURS_INCOMPLETE),
        (NeighbourState::Reachable, Arp::NEIGHBOURS_REACHABLE),
        (NeighbourState::Delay, Arp::NEIGHBOURS_DELAY),
        (NeighbourState::Probe, Arp::NEIGHBOURS_PROBE),
        (NeighbourState::Permanent, Arp::NEIGHBOURS_PERMANENT),
    ],
    routes: Arp::ROUTES,
    fib_bytes: Arp::FIB_BYTES,
};

/// The places of the inputs.
const INPUT: usize = 0;
const RESOLVE: usize = 1;

impl App for Arp {
    const INPUTS: Ports = Ports::Named(&[
        Port::required("input", "ARP packets behind an Ethernet header, tagged with their interface"),
        Port::optional("resolve", "IPv4 packets tagged with adjacencies that are not complete"),
    ]);
    const OUTPUTS: Ports = Ports::Any { at_least: 1, help: "frames of a port; `error`; `host`" };
    const COUNTERS: Counters<Self> = Self::COUNTED;
    const ENDS: bool = true;
    const MAX_FAN_OUT: usize = MAX_SENT;

    fn push(&mut self, io: &Io<Self>) {
        self.resolver.forget(io.now());
        let domain = Arc::clone(&self.resolver.domain);
        let mut input = io.input(INPUT);
        if let Some(reason) = self.refuse_all(io, input.packets()) {
            io.drop_all(&mut input, reason);
        }
        for packet in &mut input {
            if let Some(refused) = self.refuse(io.now(), &packet) {
                let reason = refused.count(io, 1);
                self.refused.push(io, packet, reason);
                continue;
            }
            let heard = self.hear(io, &domain, &packet);
            // The host may have asked, even if the router has not.
            let is_proper = heard.map_or_else(|reason| reason.position() == Arp::UNASKED.position(), |()| true);
            match (self.host.filter(|_| is_proper && self.is_for_host(&packet)), heard) {
                (Some(host), _) => self.next_vectors.push(host.into(), packet),
                (None, Ok(())) => {}
                (None, Err(reason)) => io.drop(packet, reason),
            }
            self.next_vectors.make_room(io, MAX_SENT);
        }
        drop(input);
        let mut input = io.input(RESOLVE);
        if self.are_too_many(io, input.packets()) {
            io.drop_all(&mut input, Arp::WAITING_FULL);
        }
        for packet in &mut input {
            if self.are_too_many(io, std::slice::from_ref(&packet)) {
                self.refused.push(io, packet, Arp::WAITING_FULL);
                continue;
            }
            self.resolve(io, packet);
            self.next_vectors.make_room(io, MAX_SENT);
        }
        drop(input);
        self.refused.drop_all(io);
        self.upkeep(io);
    }

    fn tick(&mut self, io: &Io<Self>) {
        self.resolver.rewire(io, &mut self.next_vectors);
        let find = |name| (0..io.outputs()).find(|&output| io.output_name(output) == Some(name));
        [self.error, self.host] = ["error", HOST].map(|name| find(name).map(|output| output as u16));
        if !self.has_announced {
            self.has_announced = true;
            self.announce(io);
        }
        for _ in 0..MAX_DUE {
            let Some((due, waited)) = self.resolver.due(io.now()) else { break };
            match due {
                Due::Ask(key, mac) => self.ask(io, key, mac),
                Due::Gone(..) => io.count(Arp::EXPIRED, 1),
            }
            waited.into_iter().for_each(|packet| self.tell(io, packet));
            self.next_vectors.make_room(io, MAX_SENT);
        }
        self.upkeep(io);
    }

    fn held(&self) -> usize {
        self.resolver.held()
    }

    fn start(&mut self, old: Option<&mut Arp>) -> Result<(), AppError> {
        if let Some(old) = old {
            self.resolver.succeed(&old.resolver);
        }
        self.claim = Some(arp_guard::Claim::of_router(ipv4_addresses(&self.resolver.domain)));
        Ok(())
    }

    fn stop(&mut self) -> Result<(), AppError> {
        self.claim = None;
        Ok(())
    }

    fn status(&self) -> Option<Arc<dyn Status>> {
        Some(self.resolver.status())
    }
}

impl Arp {
    /// Whether a packet that was heard is an answer that the host behind its interface may wait for.
    fn is_for_host(&self, packet: &Packet) -> bool {
        let arp = packet.bytes().get(ETHERNET..).and_then(|arp| ArpPacket::new_checked(arp).ok());
        arp.is_some_and(|arp| arp.operation() == ArpOperation::REPLY)
            && self.resolver.domain.policies().may_have_host(Tag(packet.tag()).interface())
    }

    /// The app for a routing domain.
    pub fn new(domain: Arc<RoutingDomain>, limits: NeighbourLimits) -> Arp {
        let links: Vec<LinkStrangers> = std::iter::once(LinkStrangers::default())
            .chain(domain.tables().interfaces().iter().map(LinkStrangers::of))
            .collect();
        Arp {
            resolver: Resolver::new(domain, IpFamily::V4, limits),
            hearing: Hearing::new(links.len() - 1),
            next_vectors: NextVectors::new(),
            refused: Refused::new(),
            error: None,
            host: None,
            proxy: Vec::new(),
            defends_at: vec![0; links.len()].into(),
            links,
            conflicts: Conflicts::default(),
            has_announced: false,
            claim: None,
        }
    }

    /// Puts what is known into the tables, and sends what is to be sent.
    fn upkeep(&mut self, io: &Io<Self>) {
        let (displaced, waited) = self.resolver.take_displaced();
        io.count(Arp::DISPLACED, displaced);
        waited.into_iter().for_each(|packet| io.drop(packet, Arp::WAITING_FULL));
        let refused = self.resolver.upkeep(io);
        if refused > 0 {
            io.count(Arp::ADJACENCIES_FULL, refused);
        }
        io.set(Arp::NEXT_HOPS_FAILED, self.resolver.failed());
        self.resolver.set_figures(io, &FIGURES);
        self.next_vectors.send(io);
    }

    /// Whether none of these packets to resolve finds room.
    fn are_too_many(&self, io: &Io<Self>, packets: &[Packet]) -> bool {
        let destination = |packet: &Packet| destination_of(packet).map(IpAddr::from);
        !packets.is_empty() && self.resolver.are_too_many(packets, io.now(), destination)
    }

    /// Takes in a packet to a neighbour that is not known.
    fn resolve(&mut self, io: &Io<Self>, packet: Packet) {
        let Some(destination) = destination_of(&packet) else { return io.drop(packet, Arp::NO_HEADER) };
        let index = Tag(packet.tag()).number();
        let resolved = self.resolver.resolve(packet, index, destination.into(), io.now());
        self.act(io, resolved);
    }

    fn act(&mut self, io: &Io<Self>, resolved: Resolved) {
        match resolved {
            Resolved::Send(output, packet) => self.next_vectors.push(output, packet),
            Resolved::Ask(key) => self.ask(io, key, None),
            Resolved::Waits => {}
            Resolved::Full(packet) => io.drop(packet, Arp::WAITING_FULL),
            Resolved::Gone(packet) => io.drop(packet, Arp::NO_ADJACENCY),
        }
    }

    /// Tells the sender of a packet that its destination does not answer.
    fn tell(&mut self, io: &Io<Self>, mut packet: Packet) {
        let Some(error) = self.error else { return io.drop(packet, Arp::UNRESOLVED) };
        packet.set_tag(Tag(packet.tag()).with(IcmpError::of(Reason::HostUnreachable).number()).0);
        self.next_vectors.push(error.into(), packet);
    }

    /// Takes in an ARP packet, and answers it.
    fn hear(&mut self, io: &Io<Self>, domain: &RoutingDomain, packet: &Packet) -> Result<(), DropReason<Arp>> {
        let number = Tag(packet.tag()).interface();
        let interface = domain.tables().interface(number).ok_or(Arp::NO_ADJACENCY)?;
        let frame = packet.bytes();
        let (ethernet, arp) = frame.split_at_checked(ETHERNET).ok_or(Arp::MALFORMED)?;
        let arp = ArpPacket::new_checked(arp).map_err(|_| Arp::MALFORMED)?;
        let (mac, sender, target) = (arp.sender_mac(), arp.sender_ip(), arp.target_ip());
        // What a station cannot have: none, or one of many.
        if ethernet[6..12] != mac.0 || !mac.is_station() {
            return Err(Arp::MISMATCH);
        }
        if mac != interface.mac && interface.has_address(sender.into()) {
            self.defend(io, number, interface, (sender, mac));
            return Err(Arp::SOURCE_IS_LOCAL);
        }
        let asks = match arp.operation() {
            ArpOperation::REQUEST => true,
            ArpOperation::REPLY => false,
            _ => return Err(Arp::MALFORMED),
        };
        let is_for_us = interface.has_address(target.into());
        // A host that checks whether its address is in use has none yet (RFC 5227, section 2.1.1).
        let is_probe = sender.is_unspecified() && asks;
        if !is_probe && is_many(interface, sender) {
            return Err(Arp::SOURCE_NOT_LOCAL);
        }
        let is_announcement = sender == target;
        let (key, now) = ((number, IpAddr::from(sender)), io.now());
        let is_known = self.resolver.may_know(key);
        let may_answer = asks && !is_announcement && (is_for_us || self.proxy.contains(&number));
        // A route may have a next hop that is not on the link: who is known is heard.
        let is_off_link = !is_probe && !is_known && !interface.has_on_link(sender.into());
        if is_off_link {
            if !may_answer || domain.policies().are_neighbours_strict(number) {
                return Err(Arp::SOURCE_NOT_LOCAL);
            }
            // Addresses of other interfaces, and broadcast addresses of their links.
            if domain.tables().look_up(io, sender.into()) == special::LOCAL {
                return Err(Arp::SOURCE_IS_LOCAL);
            }
        }
        let class = match (is_known, is_off_link) {
            (true, _) => MessageSender::Known,
            (_, true) => MessageSender::OffLink,
            _ => MessageSender::Stranger,
        };
        // What changes nothing and gets no answer costs little, and has no limit.
        if (is_known || may_answer) && !self.hearing.hears(number, class, now) {
            return Err(Arp::RATE_LIMITED);
        }
        if !is_probe && !is_off_link {
            let heard = match (is_announcement, asks) {
                (true, _) => Heard::Announcement,
                (false, true) if is_for_us => Heard::Question,
                (false, true) => Heard::Announcement,
                (false, false) => Heard::Answer,
            };
            let counter =
                if is_announcement { Some(Arp::GRATUITOUS) } else { (!asks).then_some(Arp::REPLIES_RECEIVED) };
            counter.into_iter().for_each(|counter| io.count(counter, 1));
            let mut learned = Learned::Ignored;
            if is_known || heard == Heard::Question {
                let waited;
                (learned, waited) = self.resolver.learn(key, now, |neighbours| neighbours.hear(key, mac, heard, now));
                waited.into_iter().for_each(|resolved| self.act(io, resolved));
            }
            match learned {
                Learned::Changed => io.count(Arp::LEARNED, 1),
                Learned::Full => io.count(Arp::FULL, 1),
                Learned::Ignored if !asks || is_announcement => return Err(Arp::UNASKED),
                Learned::Ignored | Learned::Confirmed => {}
            }
        }
        if !asks || is_announcement {
            return Ok(());
        }
        // Nobody else's address is in use because the router could reach it.
        let is_proxy = !is_for_us && !is_probe && self.is_proxy_for(io, number, target);
        if !is_for_us && !is_proxy {
            return Err(Arp::NOT_LOCAL);
        }
        io.count(Arp::OFF_LINK, is_off_link.into());
        let reply = ArpHeader {
            operation: ArpOperation::REPLY,
            sender_mac: interface.mac,
            sender_ip: target,
            target_mac: mac,
            target_ip: sender,
        };
        let sent = self.send(io, number, interface, mac, &reply);
        io.count(if is_proxy { Arp::PROXY_REPLIES_SENT } else { Arp::REPLIES_SENT }, sent.into());
        Ok(())
    }

    /// Whether the router answers for an address on an interface because it reaches it through another one.
    fn is_proxy_for(&self, io: &Io<Self>, number: u16, target: Ipv4Addr) -> bool {
        if !self.proxy.contains(&number) {
            return false;
        }
        let tables = self.resolver.domain.tables();
        let mut found = [0];
        tables.look_up_v4(io, &[target.into()], &mut found);
        tables.choose_paths(io, &mut found, |_| 0);
        tables.adjacencies().get(found[0]).is_some_and(|adjacency| adjacency.interface != number)
    }

    /// Tells everybody whose an address is that a station claims, at most once a second.
    fn defend(&mut self, io: &Io<Self>, number: u16, interface: &Interface, (address, station): (Ipv4Addr, MacAddr)) {
        let outcome = "the router uses it all the same";
        let claim = Claim { interface: (number, &interface.name), address: address.into(), station, outcome };
        self.conflicts.tell(claim, io.now());
        if let Some(defends_at) = self.defends_at.get_mut(usize::from(number)).filter(|at| io.now() >= **at) {
            *defends_at = io.now() + DEFEND_NS;
            self.announce_one(io, number, interface, address);
        }
    }

    /// Tells everybody the addresses of all interfaces (RFC 5227, section 2.3).
    fn announce(&mut self, io: &Io<Self>) {
        let domain = Arc::clone(&self.resolver.domain);
        for (number, interface) in (1..).zip(domain.tables().interfaces()) {
            for own in &interface.addresses {
                if let IpAddr::V4(address) = own.address {
                    self.announce_one(io, number, interface, address);
                    // A port may have more VLANs than a vector has room for.
                    self.next_vectors.make_room(io, MAX_SENT);
                }
            }
        }
    }

    fn announce_one(&mut self, io: &Io<Self>, number: u16, interface: &Interface, address: Ipv4Addr) {
        let announcement = ArpHeader {
            operation: ArpOperation::REQUEST,
            sender_mac: interface.mac,
            sender_ip: address,
            target_mac: MacAddr::default(),
            target_ip: address,
        };
        let sent = self.send(io, number, interface, MacAddr::BROADCAST, &announcement);
        io.count(Arp::REQUESTS_SENT, sent.into());
    }

    /// Asks a neighbour for its address: all stations, or its own address.
    fn ask(&mut self, io: &Io<Self>, (number, address): NeighbourKey, mac: Option<MacAddr>) {
        let domain = Arc::clone(&self.resolver.domain);
        let (Some(interface), IpAddr::V4(target_ip)) = (domain.tables().interface(number), address) else { return };
        // An address of the link that the neighbour is on, so that it answers.
        let on_link = interface.addresses.iter().find(|own| {
            bellows_vrf::route::IpPrefix::of(own.address, own.length).is_some_and(|link| link.contains(address))
        });
        let own = on_link.map(|own| own.address).or_else(|| interface.address(IpFamily::V4));
        let Some(IpAddr::V4(sender_ip)) = own else { return };
        let question = ArpHeader {
            operation: ArpOperation::REQUEST,
            sender_mac: interface.mac,
            sender_ip,
            target_mac: MacAddr::default(),
            target_ip,
        };
        let sent = self.send(io, number, interface, mac.unwrap_or(MacAddr::BROADCAST), &question);
        io.count(Arp::REQUESTS_SENT, sent.into());
    }

    /// Sends an ARP packet. Returns whether its link has room for it.
    fn send(&mut self, io: &Io<Self>, number: u16, interface: &Interface, to: MacAddr, arp: &ArpHeader) -> bool {
        let (mut frame, (header, length)) = ([0; MIN_FRAME + 8], interface.header(to, EtherType::ARP));
        frame[..length].copy_from_slice(&header[..length]);
        let Some(output) = self.resolver.output(number) else { return false };
        // The frame has room for the longest header.
        if arp.emit(&mut frame[length..]).is_err() {
            return false;
        }
        let Some(packet) = Packet::from_bytes(&frame[..MIN_FRAME + length - ETHERNET]) else {
            io.count(Arp::UNMADE, 1);
            return false;
        };
        let has_room = self.next_vectors.has_room(io, output);
        self.next_vectors.push(output, packet);
        has_room
    }
}

/// Bytes of the smallest Ethernet frame, without its check sequence.
const MIN_FRAME: usize = 60;

/// The IPv4 addresses of a routing domain.
fn ipv4_addresses(domain: &RoutingDomain) -> Vec<Ipv4Addr> {
    let all = domain.tables().interfaces().iter().flat_map(|interface| &interface.addresses);
    let ipv4 = all.filter_map(|own| match own.address {
        IpAddr::V4(address) => Some(address),
        IpAddr::V6(_) => None,
    });
    ipv4.collect()
}

/// The destination of an IPv4 packet behind an Ethernet header.
fn destination_of(packet: &Packet) -> Option<Ipv4Addr> {
    let bytes = packet.bytes().get(ETHERNET + 16..ETHERNET + 20)?.first_chunk::<4>()?;
    Some((*bytes).into())
}

/// Whether an address cannot be that of a station, on an interface's links or elsewhere.
fn is_many(interface: &Interface, address: Ipv4Addr) -> bool {
    matches!(address.octets()[0], 0 | 127 | 224..) || interface.has_broadcast(address)
}

impl Configure for Arp {
    const NAME: &'static str = "arp";
    const STATUS: Option<OutputSchema> = Some(OutputSchema::of::<ResolverStatus>());
    type Config = Config;

    fn bench(_: &BenchFiles) -> BenchSetup {
        BenchSetup::Unmeasured(
            "it hears a limited number of packets a second; `bellows bench floods` measures what those beyond cost",
        )
    }

    fn resources(config: &Config, context: &Context) -> Vec<Resource> {
        let domain = context.object::<RoutingDomain>("vrf", &config.vrf).ok();
        domain.map(|domain| Resource::addresses("vrf", ipv4_addresses(&domain))).into_iter().collect()
    }

    fn configure(config: Config, context: &Context) -> Result<Arp, SettingError> {
        let domain: Arc<RoutingDomain> = context.object("vrf", &config.vrf)?;
        if !REACHABLE_NS.contains(&config.reachable.nanos()) {
            return Err(SettingError::at("reachable", "the time is out of range", "give a time from \"1s\" to \"1d\""));
        }
        let limits = limits(domain.tables(), config.reachable);
        let proxy = domain.numbers("proxy", &config.vrf, &config.proxy)?;
        let mut arp = Arp { proxy, conflicts: Conflicts::of(&context.app), ..Arp::new(domain, limits) };
        arp.resolver.set_app(&context.app);
        Ok(arp)
    }
}
