//! The look-up of both families: `ip4-lookup` and `ip6-lookup`.
//!
//! A vector is looked up in three steps: `read` reads the destinations, the tables are read for all of them, and `tag`
//! tags and numbers the packets. Vectors with a packet that has no whole header take `look_up_one` for each packet, and
//! those with many packets for the router itself look up the same destinations once (`Repeated`). Property tests hold
//! these versions together.

use std::sync::Arc;

use bellows_common::nexts::{Next, NextVectors};
use bellows_config::{BenchFiles, BenchSetup, Configure, Context, SettingError};
use bellows_engine::{App, Counters, Io, Port, Ports, counters};
use bellows_fib::{FIRST_GROUP, NO_ROUTE};
use bellows_packet::{CAPACITY, Contents, Packet};
use bellows_shared::Breath;
use bellows_sys::simd::{Loop, Simd};
use bellows_vrf::adjacency::special;
use bellows_vrf::{IcmpError, Reason, Tag, Vrf};
use bellows_wire::flow::{self, Directions};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::forwarding::{Family, Headers, LookAhead, STEP, UNUSUAL, USUAL, V4, V6};
use crate::router_bench::{Behind, row};
use crate::vrf::RoutingDomain;

/// Finds the way of packets: the route of the longest prefix that the destination is within, and its adjacency.
///
/// Of a route with several next hops, each flow takes one. The packet's tag names the adjacency. Packets for this router
/// go to `local`. Packets without a route, and those whose route says so, go to `error`, which tells their senders, or are
/// dropped if it is not linked. Inputs may have any names: those of `ip4-input` or `ip6-input`, and of apps with packets
/// of the router's own.
///
/// Destinations are in the first cache line of a packet, which the app in front of this one has read; if none has,
/// `prefetch` is the number of packets to look ahead. The table is read for many packets at a time in any case.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The routing domain: the name of an object of type `vrf`.
    pub vrf: String,
}

/// Finds the adjacencies of packets.
pub struct LookUp<F: Family> {
    domain: Arc<RoutingDomain>,
    next_vectors: NextVectors,
    destinations: Vec<F::Address>,
    adjacencies: Vec<u32>,
    repeated: Repeated<F>,
}

/// Finds the adjacencies of IPv4 packets.
pub type Ip4LookUp = LookUp<V4>;

/// Finds the adjacencies of IPv6 packets.
pub type Ip6LookUp = LookUp<V6>;

counters! { for[F: Family] LookUp<F>;
    drop NO_ROUTE = "no_route", "packets without a route, if `error` is not linked; likely: a route is missing, or its interface or `kernel-routes` is down; `bellows route` lists them";
    drop UNREACHABLE = "unreachable", "packets whose route says that the destination is, if `error` is not linked";
    drop PROHIBITED = "prohibited", "packets whose route says that they are, if `error` is not linked";
    asked drop BLACKHOLE = "blackhole", "packets whose route is a black hole";
    drop MULTICAST = "multicast", "packets to multicast groups beyond the link";
    drop MARTIAN = "dst_martian", "packets to addresses that no packet on a wire may have";
    drop NOT_LOCAL = "local", "packets for this router, if `local` is not linked";
    drop TOO_SHORT = "too_short", "packets without a whole header";
}

impl<F: Family> App for LookUp<F> {
    const INPUTS: Ports = Ports::Any { at_least: 1, help: "packets behind an Ethernet header, with checked headers" };
    const OUTPUTS: Ports = Ports::Named(&[
        Port::required("output", "packets to send, tagged with their adjacencies"),
        Port::optional("local", "packets for this router"),
        Port::optional("error", "packets whose sender is to be told"),
    ]);
    const COUNTERS: Counters<Self> = Self::COUNTED;

    fn push(&mut self, io: &Io<Self>) {
        self.next_vectors.resize(io.outputs());
        for index in io.waiting_inputs() {
            self.look_up(io, index);
        }
    }
}

impl<F: Family> LookUp<F> {
    /// The app for a routing domain.
    pub fn new(domain: Arc<RoutingDomain>) -> LookUp<F> {
        let (destinations, adjacencies) = (vec![F::Address::default(); CAPACITY], vec![0; CAPACITY]);
        LookUp { domain, next_vectors: NextVectors::new(), destinations, adjacencies, repeated: Repeated::new() }
    }

    /// Looks up the packets of an input. Hot.
    fn look_up(&mut self, io: &Io<Self>, index: usize) {
        let LookUp { domain, next_vectors, destinations, adjacencies, repeated } = self;
        let mut input = io.input(index);
        if input.is_empty() {
            return;
        }
        let mut packets = input.contents_mut();
        let count = packets.packets().len();
        let (destinations, adjacencies) = (&mut destinations[..count], &mut adjacencies[..count]);
        if read::<F>(packets.packets(), io.prefetch(), destinations) {
            let vrf = domain.tables();
            repeated.look_up(vrf, io, destinations, adjacencies);
            if has_groups(adjacencies) {
                vrf.choose_paths(io, adjacencies, |place| flow_hash(&packets.packets()[place]));
            }
            let local = tag(&mut packets, adjacencies, next_vectors.nexts(count), exits(io));
            repeated.keep(destinations, adjacencies, local);
            next_vectors.send_all(io, index, input, refuse);
        } else {
            for mut packet in &mut input {
                let Some(verdict) = look_up_one::<F>(domain.tables(), io, &mut packet) else {
                    io.drop(packet, Self::TOO_SHORT);
                    continue;
                };
                match verdict {
                    Next::To(output) => next_vectors.push(output, packet),
                    Next::Drop(reason) => io.drop(packet, reason),
                }
            }
            next_vectors.send(io);
        }
    }
}

/// The number of packets for the router itself.
const LOCAL: u16 = 1;

/// The number of packets whose sender is told why they are not forwarded.
const ERROR: u16 = 2;

/// Which outputs there are besides the usual one.
#[derive(Clone, Copy)]
struct Exits {
    has_local: bool,
    has_error: bool,
    /// The error that senders get whose destination has an `unreachable` route.
    unreachable: Reason,
}

/// Reads the destinations of packets. Returns whether all have one. Hot.
#[inline(never)]
fn read<F: Family>(packets: &[Packet], ahead: usize, destinations: &mut [F::Address]) -> bool {
    let mut look_ahead = LookAhead::begin(packets, ahead, Packet::prefetch);
    let mut all = true;
    for (packets, destinations) in packets.chunks(STEP).zip(destinations.chunks_mut(STEP)) {
        look_ahead.step(Packet::prefetch);
        for (packet, destination) in packets.iter().zip(destinations) {
            match F::Headers::of(packet.bytes()) {
                Some(headers) => *destination = F::destination(headers),
                None => all = false,
            }
        }
    }
    all
}

/// Whether any look-up has found a group of paths. Hot.
pub(crate) fn has_groups(adjacencies: &[u32]) -> bool {
    Simd::chosen().run(HasGroups(adjacencies))
}

struct HasGroups<'a>(&'a [u32]);

impl Loop for HasGroups<'_> {
    type Result = bool;

    #[inline(always)]
    fn run(self) -> bool {
        self.0.iter().fold(false, |any, &number| any | (number.wrapping_sub(FIRST_GROUP) < NO_ROUTE - FIRST_GROUP))
    }
}

/// Tags packets with their adjacencies, and numbers them by their outputs; those without a route, or whose route says that
/// their sender is told, are tagged with the error. Returns how many are for the router. Hot.
#[inline(never)]
fn tag(packets: &mut Contents<'_>, adjacencies: &mut [u32], numbers: &mut [u16], exits: Exits) -> usize {
    let local = if exits.has_local { LOCAL } else { UNUSUAL };
    let number = |special, reason| if exits.has_error { IcmpError::of(reason).number() } else { special };
    let [no_route, unreachable, prohibited] = [
        (special::NO_ROUTE, Reason::NoRoute),
        (special::UNREACHABLE, exits.unreachable),
        (special::PROHIBIT, Reason::Prohibited),
    ]
    .map(|(special, reason)| number(special, reason));
    let error = if exits.has_error { ERROR } else { UNUSUAL };
    let classify = Classify { adjacencies, numbers, local, error, no_route, unreachable, prohibited };
    let count = Simd::chosen().run(classify);
    packets.set_tags_with(adjacencies, |tag, adjacency| Tag(tag).with(adjacency).0);
    count as usize
}

/// Numbers adjacencies by outputs.
struct Classify<'a> {
    adjacencies: &'a mut [u32],
    numbers: &'a mut [u16],
    local: u16,
    error: u16,
    /// What packets without a route, and others whose sender is told, are tagged with.
    no_route: u32,
    unreachable: u32,
    prohibited: u32,
}

impl Loop for Classify<'_> {
    type Result = u32;

    #[inline(always)]
    fn run(self) -> u32 {
        // Nearly all vectors have packets to send alone.
        let is_sent = |found: u32| found.wrapping_sub(special::FIRST) < NO_ROUTE - special::FIRST;
        if self.adjacencies.iter().fold(true, |all, &found| all & is_sent(found)) {
            self.numbers.fill(USUAL);
            return 0;
        }
        let mut local = 0;
        for (adjacency, number) in self.adjacencies.iter_mut().zip(self.numbers) {
            let found = *adjacency;
            // No route is the highest number, and a special one.
            let has_none = (found == NO_ROUTE) | (found == special::NO_ROUTE);
            let (is_unreachable, is_prohibited) = (found == special::UNREACHABLE, found == special::PROHIBIT);
            let is_told = has_none | is_unreachable | is_prohibited;
            let refused = if is_unreachable { self.unreachable } else { self.prohibited };
            let refused = if has_none { self.no_route } else { refused };
            *adjacency = if is_told { refused } else { found };
            let is_local = found == special::LOCAL;
            local += u32::from(is_local);
            let other = if is_local { self.local } else { UNUSUAL };
            let other = if is_told { self.error } else { other };
            *number = if is_sent(found) { USUAL } else { other };
        }
        local
    }
}

/// Destinations that are kept in mind.
const KEPT: usize = 2;

/// Packets for the router in a vector, from which on their destinations are kept in mind.
const MANY: usize = 16;

/// Vectors of fewer packets change nothing of that: inputs with the router's own packets have few at a time.
const WHOLE: usize = 64;

/// Destinations of the router that many packets of the vector before had.
pub(crate) struct Repeated<F: Family> {
    kept: [F::Address; KEPT],
    /// Whether there are any.
    are_kept: bool,
    /// Of the packets with other destinations: their places, these, and what their look-up finds.
    places: Vec<u16>,
    others: Vec<F::Address>,
    found: Vec<u32>,
}

impl<F: Family> Repeated<F> {
    pub(crate) fn new() -> Repeated<F> {
        let none = F::Address::default();
        let (others, found) = (vec![none; CAPACITY], vec![0; CAPACITY]);
        Repeated { kept: [none; KEPT], are_kept: false, places: vec![0; CAPACITY], others, found }
    }

    /// Looks up the adjacencies of a vector's destinations, as [`Family::look_up`]. Hot.
    #[inline]
    pub(crate) fn look_up(
        &mut self,
        vrf: &Vrf,
        breath: &impl Breath,
        destinations: &[F::Address],
        adjacencies: &mut [u32],
    ) {
        if !self.are_kept {
            F::look_up(vrf, breath, destinations, adjacencies);
        } else {
            self.look_up_apart(vrf, breath, destinations, adjacencies);
        }
    }

    /// Looks up the destinations that are kept in mind, and then all others.
    #[inline(never)]
    fn look_up_apart(&mut self, vrf: &Vrf, breath: &impl Breath, destinations: &[F::Address], adjacencies: &mut [u32]) {
        let Repeated { kept, places, others, found, .. } = self;
        let mut of_kept = [0; KEPT];
        F::look_up(vrf, breath, kept, &mut of_kept);
        let mut count = 0;
        for (place, (&destination, adjacency)) in destinations.iter().zip(&mut *adjacencies).enumerate() {
            let (is_first, is_second) = (destination == kept[0], destination == kept[1]);
            *adjacency = if is_first { of_kept[0] } else { of_kept[1] };
            (places[count % CAPACITY], others[count % CAPACITY]) = (place as u16, destination);
            count += usize::from(!(is_first | is_second));
        }
        F::look_up(vrf, breath, &others[..count], &mut found[..count]);
        for (&place, &found) in places.iter().zip(&*found).take(count) {
            adjacencies[usize::from(place)] = found;
        }
    }

    /// Keeps two destinations of packets for the router in mind, if there are many; `local` is their number. Hot.
    #[inline]
    pub(crate) fn keep(&mut self, destinations: &[F::Address], adjacencies: &[u32], local: usize) {
        if destinations.len() < WHOLE {
            return;
        }
        self.are_kept = local >= MANY;
        if self.are_kept {
            let mut of_router = destinations.iter().zip(adjacencies).filter(|(_, it)| **it == special::LOCAL);
            let first = of_router.next().map(|(&first, _)| first);
            let last = of_router.next_back().map(|(&last, _)| last);
            let first = first.unwrap_or_default();
            self.kept = [first, last.unwrap_or(first)];
        }
    }
}

/// A hash of the packet's flow: its addresses, its protocol, and its ports unless it is a fragment.
pub(crate) fn flow_hash(packet: &Packet) -> u32 {
    flow::hash(packet.bytes(), Directions::Apart).unwrap_or(0)
}

/// The way of one packet, or `None` if it has no whole header.
fn look_up_one<F: Family>(vrf: &Vrf, io: &Io<LookUp<F>>, packet: &mut Packet) -> Option<Next<LookUp<F>>> {
    let destination = F::destination(F::Headers::of(packet.bytes())?);
    let (mut adjacency, mut number) = ([0], [0]);
    F::look_up(vrf, io, &[destination], &mut adjacency);
    vrf.choose_paths(io, &mut adjacency, |_| flow_hash(packet));
    tag(&mut Contents::of(std::slice::from_mut(packet)), &mut adjacency, &mut number, exits(io));
    Some(if number[0] == UNUSUAL { refuse(packet) } else { Next::To(number[0].into()) })
}

/// Why a packet is dropped that leads to no adjacency, and whose sender is not told.
fn refuse<F: Family>(packet: &mut Packet) -> Next<LookUp<F>> {
    Next::Drop(match Tag(packet.tag()).number() {
        special::NO_ROUTE => LookUp::NO_ROUTE,
        special::BLACKHOLE => LookUp::BLACKHOLE,
        special::UNREACHABLE => LookUp::UNREACHABLE,
        special::PROHIBIT => LookUp::PROHIBITED,
        special::LOCAL => LookUp::NOT_LOCAL,
        special::MULTICAST => LookUp::MULTICAST,
        _ => LookUp::MARTIAN,
    })
}

/// The outputs that are linked.
fn exits<F: Family>(io: &Io<LookUp<F>>) -> Exits {
    let [has_local, has_error] = [LOCAL, ERROR].map(|output| io.is_linked(output.into()));
    Exits { has_local, has_error, unreachable: F::UNREACHABLE }
}

impl<F: Family> Configure for LookUp<F> {
    const NAME: &'static str = F::LOOKUP;
    type Config = Config;

    fn bench(_: &BenchFiles) -> BenchSetup {
        BenchSetup::Rows(vec![row(&F::LOOKUP[..3], Behind::IpInput)])
    }

    fn configure(config: Config, context: &Context) -> Result<LookUp<F>, SettingError> {
        Ok(LookUp::new(context.object("vrf", &config.vrf)?))
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

    use bellows_rig::Rig;
    use bellows_vrf::interface::InterfaceAddress;
    use bellows_vrf::{IfExists, Interface, RouteSpec};
    use proptest::prelude::*;

    use super::*;
    use crate::forwarding::tests::vrf;

    /// What the sender of a packet to a destination, at a place in its frame, is told.
    fn told<F: Family>(route: &str, at: usize, destination: &[u8]) -> Reason {
        let interface = Interface {
            name: "a".to_owned(),
            port: "a".to_owned(),
            mac: bellows_wire::MacAddr([2, 0, 0, 0, 0, 1]),
            mtu: 1500,
            tags: Vec::new(),
            addresses: vec![InterfaceAddress { address: [10, 0, 1, 1].into(), length: 24 }],
        };
        let vrf = Vrf::new(vec![interface], 16, 1).unwrap();
        let mut changes = vrf.lock();
        changes.add(&RouteSpec::parse(route).unwrap(), IfExists::Refuse).unwrap();
        changes.commit().unwrap();
        drop(changes);
        let mut rig =
            Rig::new(LookUp::<F>::new(Arc::new(RoutingDomain::new(vrf))), &["input"], &["output", "local", "error"]);
        let mut frame = [0; 60];
        frame[at..at + destination.len()].copy_from_slice(destination);
        rig.send("input", [frame]);
        rig.settle();
        IcmpError::from_number(Tag(rig.received_packets("error")[0].tag()).number()).reason
    }

    #[test]
    fn senders_to_an_unreachable_route_are_told_what_linux_tells() {
        assert_eq!(told::<V4>("unreachable 10.8.0.0/16", 30, &[10, 8, 0, 1]), Reason::HostUnreachable);
        let v6 = [0x20, 0x01, 0x0d, 0xb8, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
        assert_eq!(told::<V6>("unreachable 2001:db8:8::/48", 38, &v6), Reason::NoRoute);
        assert_eq!(told::<V6>("prohibit 2001:db8:8::/48", 38, &v6), Reason::Prohibited);
    }

    /// A packet to one of few destinations: addresses of the router, neighbours, others, and none that has a route.
    fn packet(is_v4: bool, number: u8) -> Packet {
        let (high, low) = [(1, 1), (2, 1), (3, 1), (1, 2), (2, 9), (200, 1)][usize::from(number) % 6];
        let (mut frame, at, to) = if is_v4 {
            (vec![0; 60], 30, IpAddr::V4(Ipv4Addr::new(10, 0, high, low)))
        } else {
            let network = if high == 200 { 0x120 } else { u16::from(high) };
            (vec![0; 80], 38, IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, network, 0, 0, 0, 0, low.into())))
        };
        match to {
            IpAddr::V4(to) => frame[at..at + 4].copy_from_slice(&to.octets()),
            IpAddr::V6(to) => frame[at..at + 16].copy_from_slice(&to.octets()),
        }
        let mut packet = Packet::from_bytes(&frame).unwrap();
        packet.set_tag(Tag::received_on(1).0);
        packet
    }

    /// What leaves each output: frames and tags.
    fn sent(rig: &mut Rig, packets: Vec<Packet>) -> Vec<Vec<(Vec<u8>, u32)>> {
        rig.send_packets("input", packets);
        rig.settle();
        let of = |output| rig.received_packets(output).iter().map(|it| (it.bytes().to_vec(), it.tag())).collect();
        ["output", "local", "error"].map(of).to_vec()
    }

    proptest! {
        #[test]
        fn vectors_are_looked_up_as_their_packets_are_one_by_one(
            is_v4 in any::<bool>(),
            vectors in prop::collection::vec((1u8..7, prop::collection::vec(any::<u8>(), 0..150)), 1..6),
        ) {
            let rig = || {
                let (domain, outputs) = (Arc::new(RoutingDomain::new(vrf())), ["output", "local", "error"]);
                match is_v4 {
                    true => Rig::new(LookUp::<V4>::new(domain), &["input"], &outputs),
                    false => Rig::new(LookUp::<V6>::new(domain), &["input"], &outputs),
                }
            };
            let (mut together, mut apart) = (rig(), rig());
            for (most, numbers) in vectors {
                let numbers: Vec<u8> = numbers.into_iter().map(|number| number % most).collect();
                let packets = numbers.iter().map(|&number| packet(is_v4, number)).collect();
                let mut expected = vec![Vec::new(); 3];
                for &number in &numbers {
                    let one = sent(&mut apart, vec![packet(is_v4, number)]);
                    expected.iter_mut().zip(one).for_each(|(all, one)| all.extend(one));
                }
                prop_assert_eq!(sent(&mut together, packets), expected);
            }
        }
    }
}
