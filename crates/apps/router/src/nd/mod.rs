//! `nd`: finds the Ethernet addresses of IPv6 neighbours, and answers those who look for the router's.
//!
//! | file | contents |
//! |---|---|
//! | `receive.rs` | which messages are believed, and what they change |
//! | `duplicates.rs` | whether other stations have an address of the router |
//! | `advertise.rs` | when routers advertise themselves |
//! | `others.rs` | what other routers advertise |
//! | `listener` | when reports of multicast groups are due |
//! | `groups.rs` | the groups of the router, and its reports of them |
//! | `send.rs` | messages of the router |

mod advertise;
mod duplicates;
#[cfg(test)]
mod group_tests;
mod groups;
mod listener;
#[cfg(test)]
mod next_hop_tests;
mod others;
mod receive;
mod send;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use bellows_common::headers::ETHERNET;
use bellows_common::limit::Hearing;
use bellows_common::nexts::{NextVectors, Refused};
use bellows_config::{BenchFiles, BenchSetup, Configure, Context, Duration, OutputSchema, SettingError};
use bellows_engine::{App, AppError, Counters, Io, Port, Ports, Status, counters};
use bellows_packet::Packet;
use bellows_sys::clock;
use bellows_vrf::neighbours::{Due, NeighbourKey, NeighbourLimits, NeighbourState};
use bellows_vrf::{IcmpError, Interface, IpFamily, Reason, Tag};
use bellows_wire::MacAddr;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use self::advertise::Schedules;
use self::duplicates::Probes;
use self::groups::MulticastGroups;
use self::others::Told;
use crate::forwarding::conflicts::Conflicts;
use crate::forwarding::resolver::{Figures, MAX_DUE, Resolved, Resolver, is_ipv4, limits};
use crate::ipv6_link::AddressState;
use crate::vrf::resolved::ResolverStatus;
use crate::vrf::{ERROR4, RoutingDomain};

/// Neighbour discovery of a router for IPv6 (RFC 4861): finds the Ethernet addresses of neighbours, answers those who
/// look for the router's, and tells hosts how to configure themselves.
///
/// `input` takes the messages, `resolve` the packets of `ip6-rewrite` to neighbours that are not known; up to three
/// wait for each neighbour. `resolve4` takes those of `ip4-rewrite` to next hops with an IPv6 address (RFC 8950).
/// `replies` and `errors` take the router's own packets to link-local addresses, which leave by the interface that their
/// tag names. Outputs have the names of ports: messages leave there, and the packets that waited. A neighbour that does
/// not answer three solicitations is gone, and packets that waited for it go to `error`, those of IPv4 to `error4`, which
/// tell their senders. One that is known is asked again, by its own address, before the answer is too old. Next hops of
/// routes with several ways are asked without packets to them, about every 5 seconds, also when they have ceased to
/// answer: they are out of use meanwhile.
/// Neighbours are learned from answers and from solicitations to the router; advertisements that nobody asked for
/// change only what is known already, and only if they override it. Each interface is sure to have its part of the
/// neighbours; solicitations are answered also when there is no room for who sends them. Those from an address that is
/// not on the link are answered, up to 1,000 times a second, but their senders are not learned; the key
/// `strict_neighbours` of an interface has them dropped.
///
/// The router reports the multicast groups that solicitations for its addresses are sent to (RFC 3810, or RFC 2710
/// where an older querier is), so that switches forward them.
///
/// Before the router uses an IPv6 address, it asks whether another station has it (RFC 4862). If one has, the router
/// does not use the address: the event `duplicate-address`, the counter `duplicate_addresses` and the status of the
/// routing domain report it. The event also names a station that claims an address later, which the router then keeps.
/// Interfaces with a table `advertise` send router advertisements, also when a host solicits them, and a last one, with
/// a lifetime of 0, when the run ends. Those of other routers on the link are compared with them: if they contradict each
/// other, counters (`advertised_…`) and the log report it, which has one line an hour for each kind (RFC 4861, section
/// 6.2.7).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The routing domain: the name of an object of type `vrf`.
    pub vrf: String,

    /// How long an answer holds, from 1 second to 24 hours.
    #[serde(default = "reachable")]
    #[schemars(extend("x-unit" = "time"))]
    pub reachable: Duration,

    /// Whether the router finds out if other stations have its addresses before it uses them.
    #[serde(default = "yes")]
    pub detect_duplicates: bool,

    /// Interfaces on which the router answers for addresses that it reaches through another interface (RFC 4861,
    /// section 7.2.8).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub proxy: Vec<String>,
}

impl Config {
    /// The defaults, for a routing domain.
    pub fn of(vrf: &str) -> Config {
        Config { vrf: vrf.to_owned(), reachable: reachable(), detect_duplicates: true, proxy: Vec::new() }
    }
}

fn reachable() -> Duration {
    Duration::from_secs(30)
}

fn yes() -> bool {
    true
}

const REACHABLE_NS: std::ops::RangeInclusive<u64> = 1_000_000_000..=86_400_000_000_000;

/// The IPv6 destination of IPv4 packets.
const NOBODY: Ipv6Addr = Ipv6Addr::UNSPECIFIED;

/// Packets that one message, or one thing that is due, can send to an output: those that waited, and an answer.
const MAX_SENT: usize = 4;

/// Finds Ethernet addresses.
pub struct Nd {
    resolver: Resolver,
    hearing: Hearing,
    next_vectors: NextVectors,
    refused: Refused<Nd>,
    error: Option<u16>,
    error4: Option<u16>,
    /// The numbers of interfaces with a proxy.
    proxy: Vec<u16>,
    detects_duplicates: bool,
    probes: Probes,
    schedules: Schedules,
    told: Told,
    conflicts: Conflicts,
    groups: MulticastGroups,
    /// Addresses that the app before this one, in a reload, has found to be nobody else's.
    verified: HashSet<(String, MacAddr, Ipv6Addr)>,
    has_begun: bool,
    random: fastrand::Rng,
}

counters! { Nd;
    drop TOO_SHORT = "too_short", "packets without a whole IPv6 packet";
    drop NOT_DISCOVERY = "not_discovery", "packets that are not messages of neighbour discovery";
    drop FRAGMENT = "fragment", "messages in fragments (RFC 6980)";
    drop HOP_LIMIT = "bad_hop_limit", "messages whose hop limit is not 255, or 1 for those of listeners: they may come from beyond the link";
    drop BAD_CHECKSUM = "bad_checksum", "messages with a wrong checksum; likely, if all are: a virtual interface in front has left the checksum to hardware";
    drop BAD_CODE = "bad_code", "messages whose code is not 0";
    drop MALFORMED = "malformed", "messages that are too short, or whose options do not fit";
    drop BAD_TARGET = "bad_target", "messages about a multicast address";
    drop UNSPECIFIED = "unspecified_source", "solicitations from no address that only one with an address may send";
    drop NOT_LINK_LOCAL = "not_link_local", "router advertisements, redirects, and queries and reports of groups whose source is not link-local";
    drop NO_ROUTER_ALERT = "no_router_alert", "queries and reports of groups that do not tell routers to look at them";
    drop SOLICITED = "solicited_multicast", "advertisements to many that claim to answer one";
    drop BAD_LINK_LAYER = "bad_link_layer_address", "messages with an Ethernet address that no station has";
    drop NOT_LOCAL = "l3_dst_address_not_local", "solicitations for addresses that are not the router's";
    drop SOURCE_NOT_LOCAL = "l3_src_address_not_local", "solicitations whose sender is no station, or is not on the interface's link and is not to be answered; likely: the neighbour has another prefix length, or `strict_neighbours` is set";
    drop SOURCE_IS_LOCAL = "l3_src_address_is_local", "messages of others with an address of the router; likely: another station has an address of the router; give one of them another";
    drop OWN = "own_messages", "messages of the router itself that came back";
    drop TENTATIVE = "tentative", "solicitations for addresses that the router must not use";
    drop RATE_LIMITED = "rate_limited", "messages of stations beyond their limits";
    drop UNASKED = "unasked", "advertisements of neighbours of whom nobody wants to know, or that do not override what is known";
    drop REDIRECT = "redirects_ignored", "redirects, which a router does not follow";
    drop UNRESOLVED = "unresolved", "packets to neighbours that did not answer, if `error` or `error4` is not linked; likely: the neighbour is off, in another VLAN, or has another prefix";
    drop WAITING_FULL = "waiting_full", "packets to neighbours for whom enough packets wait, or for whom there is no room";
    drop NO_ADJACENCY = "no_adjacency", "packets whose adjacency has gone, or whose port is not linked";
    drop NO_HEADER = "no_header", "packets to resolve without a whole IPv6 header";
    drop NOT_ON_LINK = "not_on_link", "packets from link-local addresses to others that are not on the link";
    drop TOO_BIG = "too_big", "packets of the router to a link that are longer than its MTU";
    count UNMADE = "unmade", "messages of its own that were not made because the pool had no buffer", in "messages";
    count SOLICITATIONS_SENT = "solicitations_sent", "neighbour solicitations that were sent";
    count ADVERTISEMENTS_SENT = "advertisements_sent", "neighbour advertisements that were sent";
    count PROXY_SENT = "proxy_advertisements_sent", "advertisements for addresses behind other interfaces";
    count ROUTER_ADVERTISEMENTS_SENT = "router_advertisements_sent", "router advertisements that were sent";
    count REPORTS_SENT = "listener_reports_sent", "reports of multicast groups that were sent, of those left as well";
    count SOLICITATIONS_RECEIVED = "solicitations_received", "neighbour solicitations that were received";
    count ADVERTISEMENTS_RECEIVED = "advertisements_received", "neighbour advertisements that were received";
    count ROUTER_SOLICITATIONS_RECEIVED = "router_solicitations_received", "router solicitations that were received";
    count ROUTER_ADVERTISEMENTS_RECEIVED = "router_advertisements_received", "router advertisements of others";
    count HOP_LIMIT_DIFFERS = "advertised_hop_limit_differs", "router advertisements with another hop limit than this router's";
    count FLAGS_DIFFER = "advertised_flags_differ", "router advertisements with other flags about DHCPv6 than this router's";
    count MTU_DIFFERS = "advertised_mtu_differs", "router advertisements with another MTU than this router's";
    count LIFETIMES_DIFFER = "advertised_lifetimes_differ", "prefixes of router advertisements with other lifetimes than this router's", in "prefixes";
    count QUERIES_RECEIVED = "listener_queries_received", "queries for multicast groups that were received";
    count REPORTS_RECEIVED = "listener_reports_received", "reports of multicast groups that others listen to or leave";
    count OFF_LINK = "off_link", "solicitations from addresses that are not on the interface's link: they are answered, but their senders not learned";
    count LEARNED = "learned", "neighbours that were learned, or have another address", in "neighbours";
    count FULL = "neighbours_full", "solicitations that were answered, but whose senders found no room among the neighbours";
    count DISPLACED = "displaced", "neighbours that were forgotten in a full table for others", in "neighbours";
    count EXPIRED = "expired", "neighbours that are gone", in "neighbours";
    count ADJACENCIES_FULL = "adjacencies_full", "attempts to give a neighbour an adjacency for which there was no room", in "attempts";
    gauge NEXT_HOPS_FAILED = "next_hops_failed", "next hops of routes with several ways that do not answer", in "next hops";
    gauge NEIGHBOURS_INCOMPLETE = "neighbours_incomplete", "IPv6 neighbours that have not answered yet", in "neighbours";
    gauge NEIGHBOURS_REACHABLE = "neighbours_reachable", "IPv6 neighbours that have answered", in "neighbours";
    gauge NEIGHBOURS_DELAY = "neighbours_delay", "IPv6 neighbours that are asked soon whether their known address still holds", in "neighbours";
    gauge NEIGHBOURS_PROBE = "neighbours_probe", "IPv6 neighbours that are being asked whether their known address still holds", in "neighbours";
    gauge NEIGHBOURS_PERMANENT = "neighbours_permanent", "IPv6 neighbours whose address somebody entered", in "neighbours";
    gauge ROUTES = "routes", "IPv6 routes of the routing domain, with those that others are preferred to", in "routes";
    gauge FIB_BYTES = "fib_bytes", "memory of the forwarding table for IPv6", in "bytes";
    count DUPLICATES = "duplicate_addresses", "addresses of the router that other stations have", in "addresses";
}

/// The gauges of the routing domain.
const FIGURES: Figures<Nd> = Figures {
    neighbours: [
        (NeighbourState::Incomplete, Nd::NEIGHBOURS_INCOMPLETE),
        (NeighbourState::Reachable, Nd::NEIGHBOURS_REACHABLE),
        (NeighbourState::Delay, Nd::NEIGHBOURS_DELAY),
        (NeighbourState::Probe, Nd::NEIGHBOURS_PROBE),
        (NeighbourState::Permanent, Nd::NEIGHBOURS_PERMANENT),
    ],
    routes: Nd::ROUTES,
    fib_bytes: Nd::FIB_BYTES,
};

/// The places of the inputs.
const INPUT: usize = 0;
const RESOLVE: usize = 1;
const REPLIES: usize = 2;
const ERRORS: usize = 3;
const RESOLVE4: usize = 4;

impl App for Nd {
    const INPUTS: Ports = Ports::Named(&[
        Port::required("input", "ICMPv6 messages behind an Ethernet header, tagged with their interface"),
        Port::optional("resolve", "IPv6 packets tagged with adjacencies that are not complete"),
        Port::optional("replies", "packets of the router to a link, tagged with its interface"),
        Port::optional("errors", "as `replies`"),
        Port::optional("resolve4", "IPv4 packets tagged with adjacencies whose next hop has an IPv6 address"),
    ]);
    const OUTPUTS: Ports = Ports::Any { at_least: 1, help: "frames of a port; `error`; `error4`" };
    const COUNTERS: Counters<Self> = Self::COUNTED;
    const ENDS: bool = true;
    const MAX_FAN_OUT: usize = MAX_SENT;
    const LEAVES: bool = true;

    fn push(&mut self, io: &Io<Self>) {
        self.resolver.forget(io.now());
        let mut input = io.input(INPUT);
        if let Some(reason) = self.refuse_all(input.packets(), io.now()) {
            io.drop_all(&mut input, reason);
        }
        for packet in &mut input {
            if let Err(reason) = self.receive(io, &packet) {
                self.refused.push(io, packet, reason);
                continue;
            }
            self.next_vectors.make_room(io, MAX_SENT);
        }
        drop(input);
        let mut input = io.input(RESOLVE);
        if self.are_too_many(io, input.packets()) {
            io.drop_all(&mut input, Nd::WAITING_FULL);
        }
        for packet in &mut input {
            if self.are_too_many(io, std::slice::from_ref(&packet)) {
                self.refused.push(io, packet, Nd::WAITING_FULL);
                continue;
            }
            match destination_of(&packet) {
                Some(destination) => self.resolve(io, packet, destination),
                None => io.drop(packet, Nd::NO_HEADER),
            }
            self.next_vectors.make_room(io, MAX_SENT);
        }
        drop(input);
        let mut input = io.input(RESOLVE4);
        for packet in &mut input {
            if self.resolver.are_too_many(std::slice::from_ref(&packet), io.now(), |_| Some(NOBODY.into())) {
                self.refused.push(io, packet, Nd::WAITING_FULL);
                continue;
            }
            self.resolve(io, packet, NOBODY);
            self.next_vectors.make_room(io, MAX_SENT);
        }
        drop(input);
        for input in [REPLIES, ERRORS] {
            for packet in &mut io.input(input) {
                self.send_on_link(io, packet);
                self.next_vectors.make_room(io, MAX_SENT);
            }
        }
        self.refused.drop_all(io);
        self.finish(io);
    }

    fn tick(&mut self, io: &Io<Self>) {
        self.resolver.rewire(io, &mut self.next_vectors);
        let find = |name| (0..io.outputs()).find(|&output| io.output_name(output) == Some(name));
        [self.error, self.error4] = ["error", ERROR4].map(|name| find(name).map(|output| output as u16));
        if io.is_leaving() {
            self.cease_to_listen(io);
            return self.cease_to_advertise(io);
        }
        if !self.has_begun {
            self.has_begun = true;
            self.begin_addresses(io);
            self.schedules.begin(&self.resolver.domain, io.now(), &mut self.random);
        }
        for _ in 0..MAX_DUE {
            let Some((due, waited)) = self.resolver.due(io.now()) else { break };
            match due {
                Due::Ask(key, mac) => self.ask(io, key, mac),
                Due::Gone(..) => io.count(Nd::EXPIRED, 1),
            }
            waited.into_iter().for_each(|packet| self.tell(io, packet));
            self.next_vectors.make_room(io, MAX_SENT);
        }
        // Answers to a probe go to a group.
        self.report_groups(io);
        self.probe_addresses(io);
        self.advertise_routers(io);
        self.report_groups(io);
        self.finish(io);
    }

    fn held(&self) -> usize {
        self.resolver.held()
    }

    fn start(&mut self, old: Option<&mut Nd>) -> Result<(), AppError> {
        if let Some(old) = old {
            self.resolver.succeed(&old.resolver);
            self.verified = old.usable_addresses();
            self.schedules.succeed(&old.schedules, &old.resolver.domain, &self.resolver.domain);
            self.groups.succeed(&old.groups, &old.resolver.domain, &self.resolver.domain, clock::now());
        }
        Ok(())
    }

    fn status(&self) -> Option<Arc<dyn Status>> {
        Some(self.resolver.status())
    }
}

impl Nd {
    /// The app for a routing domain.
    pub fn new(domain: Arc<RoutingDomain>, limits: NeighbourLimits) -> Nd {
        Nd {
            hearing: Hearing::new(domain.tables().interfaces().len()),
            resolver: Resolver::new(domain, IpFamily::V6, limits),
            next_vectors: NextVectors::new(),
            refused: Refused::new(),
            error: None,
            error4: None,
            proxy: Vec::new(),
            detects_duplicates: true,
            probes: Probes::default(),
            schedules: Schedules::default(),
            told: Told::new(),
            conflicts: Conflicts::default(),
            groups: MulticastGroups::default(),
            verified: HashSet::new(),
            has_begun: false,
            random: fastrand::Rng::new(),
        }
    }

    /// Sends what is to be sent, and sees to being called when something is due.
    fn finish(&mut self, io: &Io<Self>) {
        let (displaced, waited) = self.resolver.take_displaced();
        io.count(Nd::DISPLACED, displaced);
        waited.into_iter().for_each(|packet| io.drop(packet, Nd::WAITING_FULL));
        let refused = self.resolver.upkeep(io);
        if refused > 0 {
            io.count(Nd::ADJACENCIES_FULL, refused);
        }
        io.set(Nd::NEXT_HOPS_FAILED, self.resolver.failed());
        self.resolver.set_figures(io, &FIGURES);
        self.remove_duplicates(io);
        let deadlines = [self.probes.next_deadline(), self.schedules.next_deadline(), self.groups.next_deadline()];
        deadlines.into_iter().flatten().for_each(|deadline| io.wake_at(deadline));
        self.next_vectors.send(io);
    }

    /// Whether none of these packets to resolve finds room.
    fn are_too_many(&self, io: &Io<Self>, packets: &[Packet]) -> bool {
        let destination = |packet: &Packet| destination_of(packet).map(IpAddr::from);
        !packets.is_empty() && self.resolver.are_too_many(packets, io.now(), destination)
    }

    /// Takes in a packet to a neighbour that is not known: its next hop, or else its destination.
    fn resolve(&mut self, io: &Io<Self>, packet: Packet, destination: Ipv6Addr) {
        let index = Tag(packet.tag()).number();
        let resolved = self.resolver.resolve(packet, index, destination.into(), io.now());
        self.act(io, resolved);
    }

    /// Sends a packet of the router's own to a station on the link of its interface.
    fn send_on_link(&mut self, io: &Io<Self>, mut packet: Packet) {
        let number = Tag(packet.tag()).interface();
        let Some(destination) = destination_of(&packet) else { return io.drop(packet, Nd::NO_HEADER) };
        let domain = Arc::clone(&self.resolver.domain);
        let Some(interface) = domain.tables().interface(number) else { return io.drop(packet, Nd::NO_ADJACENCY) };
        if !is_on_link(interface, destination) {
            return io.drop(packet, Nd::NOT_ON_LINK);
        }
        // Nothing makes fragments of packets that go this way.
        if length_of(&packet) > usize::from(interface.mtu) {
            return io.drop(packet, Nd::TOO_BIG);
        }
        // Its loss is not reported.
        packet.set_tag(Tag::received_on(0).0);
        let resolved = self.resolver.resolve_neighbour(packet, (number, destination.into()), io.now());
        self.act(io, resolved);
    }

    fn act(&mut self, io: &Io<Self>, resolved: Resolved) {
        match resolved {
            Resolved::Send(output, packet) => self.next_vectors.push(output, packet),
            Resolved::Ask(key) => self.ask(io, key, None),
            Resolved::Waits => {}
            Resolved::Full(packet) => io.drop(packet, Nd::WAITING_FULL),
            Resolved::Gone(packet) => io.drop(packet, Nd::NO_ADJACENCY),
        }
    }

    /// Tells the sender of a packet that its destination does not answer.
    fn tell(&mut self, io: &Io<Self>, mut packet: Packet) {
        let tag = Tag(packet.tag());
        let error = if is_ipv4(&packet) { self.error4 } else { self.error };
        let error = error.filter(|_| tag.interface() != 0);
        let Some(error) = error else { return io.drop(packet, Nd::UNRESOLVED) };
        packet.set_tag(tag.with(IcmpError::of(Reason::HostUnreachable).number()).0);
        self.next_vectors.push(error.into(), packet);
    }

    /// Whether an interface has an address, and if so whether it may be used.
    fn own_state(&self, number: u16, address: Ipv6Addr) -> Option<AddressState> {
        self.resolver.domain.addresses().get(number, address)
    }

    /// Solicits a neighbour's advertisement: from all stations of its group, or from its own address.
    fn ask(&mut self, io: &Io<Self>, (number, address): NeighbourKey, mac: Option<MacAddr>) {
        let IpAddr::V6(target) = address else { return };
        self.solicit(io, number, target, mac);
    }
}

/// The destination of an IPv6 packet behind an Ethernet header.
fn destination_of(packet: &Packet) -> Option<Ipv6Addr> {
    let bytes = packet.bytes().get(ETHERNET + 24..ETHERNET + 40)?.first_chunk::<16>()?;
    Some((*bytes).into())
}

/// Bytes of an IPv6 packet behind an Ethernet header, without what pads its frame.
fn length_of(packet: &Packet) -> usize {
    let field = packet.bytes().get(ETHERNET + 4..ETHERNET + 6).and_then(|bytes| bytes.first_chunk::<2>());
    field.map_or(0, |&length| 40 + usize::from(u16::from_be_bytes(length)))
}

/// Whether an address is that of a station on an interface's link.
fn is_on_link(interface: &Interface, address: Ipv6Addr) -> bool {
    !address.is_multicast() && (address.is_unicast_link_local() || interface.has_on_link(address.into()))
}

impl Configure for Nd {
    const NAME: &'static str = "nd";
    const STATUS: Option<OutputSchema> = Some(OutputSchema::of::<ResolverStatus>());
    type Config = Config;

    fn bench(_: &BenchFiles) -> BenchSetup {
        BenchSetup::Unmeasured(
            "it hears a limited number of packets a second; `bellows bench floods` measures what those beyond cost",
        )
    }

    fn configure(config: Config, context: &Context) -> Result<Nd, SettingError> {
        let domain: Arc<RoutingDomain> = context.object("vrf", &config.vrf)?;
        if !REACHABLE_NS.contains(&config.reachable.nanos()) {
            return Err(SettingError::at(
                "reachable",
                "the time is out of range",
                "give a time from \"1s\" to \"24h\"",
            ));
        }
        let limits = limits(domain.tables(), config.reachable);
        let proxy = domain.numbers("proxy", &config.vrf, &config.proxy)?;
        let conflicts = Conflicts::of(&context.app);
        let mut nd = Nd { proxy, detects_duplicates: config.detect_duplicates, conflicts, ..Nd::new(domain, limits) };
        nd.resolver.set_app(&context.app);
        Ok(nd)
    }
}
