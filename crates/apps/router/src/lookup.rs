//! The look-up of both families: `ip4-lookup` and `ip6-lookup`.

use std::sync::Arc;

use bellows_common::lanes::{Lanes, Verdict};
use bellows_config::{BenchFiles, BenchSetup, Configure, Context, SettingError};
use bellows_engine::{App, Counters, Io, Port, Ports, counters};
use bellows_packet::{CAPACITY, Contents, Packet};
use bellows_vrf::adjacency::special;
use bellows_vrf::{Tag, Vrf};
use bellows_wire::flow::{self, Directions};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::forwarding::UNUSUAL;
use crate::forwarding::family::{Family, Headers, V4, V6};
use crate::forwarding::look::{ERROR, Exits, LOCAL, has_groups, read, tag};
use crate::forwarding::repeated::Repeated;
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
    lanes: Lanes,
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
        self.lanes.resize(io.outputs());
        for index in 0..io.inputs() {
            self.look_up(io, index);
        }
    }
}

impl<F: Family> LookUp<F> {
    /// The app for a routing domain.
    pub fn new(domain: Arc<RoutingDomain>) -> LookUp<F> {
        let (destinations, adjacencies) = (vec![F::Address::default(); CAPACITY], vec![0; CAPACITY]);
        LookUp { domain, lanes: Lanes::new(), destinations, adjacencies, repeated: Repeated::new() }
    }

    /// Looks up the packets of an input. Hot.
    fn look_up(&mut self, io: &Io<Self>, index: usize) {
        let LookUp { domain, lanes, destinations, adjacencies, repeated } = self;
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
            let local = tag(&mut packets, adjacencies, lanes.numbers(count), exits(io));
            repeated.keep(destinations, adjacencies, local);
            lanes.send_all(io, index, input, refuse);
        } else {
            for mut packet in &mut input {
                let Some(verdict) = look_up_one::<F>(domain.tables(), io, &mut packet) else {
                    io.drop(packet, Self::TOO_SHORT);
                    continue;
                };
                match verdict {
                    Verdict::To(output) => lanes.push(output, packet),
                    Verdict::Drop(reason) => io.drop(packet, reason),
                }
            }
            lanes.send(io);
        }
    }
}

/// A hash of the packet's flow: its addresses, its protocol, and its ports unless it is a fragment.
pub(crate) fn flow_hash(packet: &Packet) -> u32 {
    flow::hash(packet.bytes(), Directions::Apart).unwrap_or(0)
}

/// The way of one packet, or `None` if it has no whole header.
fn look_up_one<F: Family>(vrf: &Vrf, io: &Io<LookUp<F>>, packet: &mut Packet) -> Option<Verdict<LookUp<F>>> {
    let destination = F::destination(F::Headers::of(packet.bytes())?);
    let (mut adjacency, mut number) = ([0], [0]);
    F::look_up(vrf, io, &[destination], &mut adjacency);
    vrf.choose_paths(io, &mut adjacency, |_| flow_hash(packet));
    tag(&mut Contents::of(std::slice::from_mut(packet)), &mut adjacency, &mut number, exits(io));
    Some(if number[0] == UNUSUAL { refuse(packet) } else { Verdict::To(number[0].into()) })
}

/// Why a packet is dropped that leads to no adjacency, and whose sender is not told.
fn refuse<F: Family>(packet: &mut Packet) -> Verdict<LookUp<F>> {
    Verdict::Drop(match Tag(packet.tag()).number() {
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
    use bellows_rig::Rig;
    use bellows_vrf::interface::InterfaceAddress;
    use bellows_vrf::{IcmpError, IfExists, Interface, Reason, RouteSpec};

    use super::*;
    use crate::forwarding::family::{V4, V6};

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
}
