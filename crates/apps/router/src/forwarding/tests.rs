//! The apps of a router, one behind the other, against a naive router.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use bellows_config::{Configure, Context};
use bellows_packet::Packet;
use bellows_rig::Rig;
use bellows_vrf::interface::{InterfaceAddress, VlanTag};
use bellows_vrf::route::{Action, IpPrefix};
use bellows_vrf::{IfExists, Interface, RouteSpec, Vrf};
use bellows_wire::MacAddr;
use bellows_wire::ipv4::Ipv4Packet;
use bellows_wire::ipv6::Ipv6Packet;
use proptest::prelude::*;

use crate::ethernet_input::EthernetInput;
use crate::forward::{Ip4Forward, Ip6Forward};
use crate::ip4_input::{self, Ip4Input};
use crate::ip4_options::Ip4Options;
use crate::ip6_input::{self, Ip6Input};
use crate::lookup::{Ip4LookUp, Ip6LookUp};
use crate::policy::{Policy, ReversePath};
use crate::reverse_path::{Ip4ReversePath, Ip6ReversePath};
use crate::rewrite::{Ip4Rewrite, Ip6Rewrite};
use crate::vrf::RoutingDomain;

/// The ports of the test's router, and its interfaces: two VLANs of a trunk, one with two tags, and two ports.
pub(crate) const PORTS: [&str; 3] = ["a", "b", "trunk"];

fn interfaces() -> Vec<Interface> {
    let interface = |name: &str, port: &str, number: u8, tags: &[(u16, u16)], mtu| Interface {
        name: name.to_owned(),
        port: port.to_owned(),
        mac: MacAddr([2, 0, 0, 0, 0, number]),
        mtu,
        tags: tags.iter().map(|&(protocol, id)| VlanTag { protocol, id }).collect(),
        addresses: [
            (IpAddr::V4(Ipv4Addr::new(10, 0, number, 1)), 24),
            (IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, number.into(), 0, 0, 0, 0, 1)), 64),
            (IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1)), 64),
        ]
        .map(|(address, length)| InterfaceAddress { address, length })
        .to_vec(),
    };
    vec![
        interface("a", "a", 1, &[], 1500),
        interface("b", "b", 2, &[], 1300),
        interface("five", "trunk", 3, &[(0x8100, 5)], 1500),
        interface("inner", "trunk", 4, &[(0x88a8, 6), (0x8100, 7)], 1500),
    ]
}

/// Neighbours that are known: 10.0.N.2 and 2001:db8:N::2 on each interface, except on the last one.
fn neighbour(number: u16) -> MacAddr {
    MacAddr([4, 0, 0, 0, 0, number as u8])
}

/// The routes besides those of interfaces.
fn routes() -> Vec<RouteSpec> {
    [
        "0.0.0.0/0 via 10.0.1.2",
        "10.1.0.0/16 via 10.0.2.2",
        "10.1.2.0/24 via 10.0.3.2",
        "10.1.2.3 via 10.0.4.2",
        "blackhole 10.9.0.0/16",
        "unreachable 10.8.0.0/16",
        "prohibit 10.7.0.0/16",
        "2001:db8:100::/40 via 2001:db8:2::2",
        "2001:db8:110::/48 via fe80::9 dev five",
        "2001:db8:110:1::/64 via 2001:db8:4::2",
        "blackhole 2001:db8:120::/48",
        "default via 2001:db8:1::2",
    ]
    .map(|text| RouteSpec::parse(text).unwrap())
    .to_vec()
}

pub(crate) fn vrf() -> Vrf {
    let vrf = Vrf::new(interfaces(), 100, 1).unwrap();
    let mut changes = vrf.lock();
    routes().iter().for_each(|route| changes.add(route, IfExists::Refuse).unwrap());
    for number in 1..4_u16 {
        changes.resolve(number, Ipv4Addr::new(10, 0, number as u8, 2).into(), neighbour(number)).unwrap();
        changes.resolve(number, Ipv6Addr::new(0x2001, 0xdb8, number, 0, 0, 0, 0, 2).into(), neighbour(number)).unwrap();
    }
    changes.resolve(3, "fe80::9".parse().unwrap(), neighbour(3)).unwrap();
    changes.commit().unwrap();
    drop(changes);
    vrf
}

/// The outputs of the rewriting.
const REWRITES: [&str; 6] = ["a", "b", "trunk", "error", "resolve", "fragment"];

/// What leaves an output: frames, and their tags.
pub(crate) type Left = Vec<(Vec<u8>, u32)>;

/// The apps, each in a rig. Packets go from one to the next with their tags.
pub(crate) struct Router {
    input: Rig,
    options: Rig,
    /// The apps that forward usual packets in one loop, if there are any.
    forwards: Option<[Rig; 2]>,
    /// The checks of sources.
    checks: [Rig; 2],
    families: [[Rig; 3]; 2],
}

impl Router {
    fn new(is_fused: bool) -> Router {
        Router::checking(is_fused, &[])
    }

    /// A router that checks the sources of packets on each interface so.
    pub(crate) fn checking(is_fused: bool, modes: &[ReversePath]) -> Router {
        let policies = modes.iter().map(|&reverse_path| Policy { reverse_path, ..Policy::default() });
        let domain = Arc::new(RoutingDomain::with_policies(vrf(), policies.collect()));
        let looks = ["output", "local", "error"];
        let forward_outputs = ["a", "b", "trunk", "unusual", "error", "resolve", "to-router"];
        let forwards = is_fused.then(|| {
            [
                Rig::new(Ip4Forward::new(Arc::clone(&domain)), &["input"], &forward_outputs),
                Rig::new(Ip6Forward::new(Arc::clone(&domain)), &["input"], &forward_outputs),
            ]
        });
        let ip4 = Ip4Input::configure(ip4_input::Config::default(), &Context::default()).unwrap();
        let ip6 = Ip6Input::configure(ip6_input::Config {}, &Context::default()).unwrap();
        Router {
            input: Rig::new(EthernetInput::new(Arc::clone(&domain)), &PORTS, &["ip4", "ip6", "arp", "other"]),
            options: Rig::new(Ip4Options::new(Arc::clone(&domain)), &["input"], &["output", "error"]),
            forwards,
            checks: [
                Rig::new(Ip4ReversePath::new(Arc::clone(&domain)), &["input", "options"], &["output"]),
                Rig::new(Ip6ReversePath::new(Arc::clone(&domain)), &["input", "options"], &["output"]),
            ],
            families: [
                [
                    Rig::new(ip4, &["input"], &["output", "error", "options"]),
                    Rig::new(Ip4LookUp::new(Arc::clone(&domain)), &["input"], &looks),
                    Rig::new(Ip4Rewrite::new(Arc::clone(&domain)), &["input"], &REWRITES),
                ],
                [
                    Rig::new(ip6, &["input"], &["output", "error"]),
                    Rig::new(Ip6LookUp::new(Arc::clone(&domain)), &["input"], &looks),
                    Rig::new(Ip6Rewrite::new(domain), &["input"], &REWRITES),
                ],
            ],
        }
    }

    /// What leaves each port when these frames arrive at a port.
    fn route(&mut self, port: &str, frames: &[Vec<u8>]) -> BTreeMap<&'static str, Vec<Vec<u8>>> {
        let frames = frames.iter().map(|frame| Packet::from_bytes(frame).unwrap());
        let sent = self.route_packets(port, frames);
        let bytes = |left: Left| left.into_iter().map(|(frame, _)| frame).collect();
        sent.into_iter().filter(|(port, _)| PORTS.contains(port)).map(|(port, left)| (port, bytes(left))).collect()
    }

    /// What leaves each port, and each other end of the way, when these packets arrive at a port.
    pub(crate) fn route_packets(
        &mut self,
        port: &str,
        packets: impl IntoIterator<Item = Packet>,
    ) -> BTreeMap<&'static str, Left> {
        self.input.send_packets(port, packets);
        self.input.settle();
        let mut sent = BTreeMap::<&str, Left>::new();
        let leave_as = |sent: &mut BTreeMap<&str, Left>, rig: &mut Rig, output: &str, name: &'static str| {
            let left = rig.received_packets(output);
            sent.entry(name).or_default().extend(left.iter().map(|it| (it.bytes().to_vec(), it.tag())));
        };
        let leave = |sent: &mut BTreeMap<&'static str, Left>, rig: &mut Rig, outputs: &[&'static str]| {
            outputs.iter().for_each(|output| leave_as(sent, rig, output, output));
        };
        for (number, (output, [input, look, rewrite])) in ["ip4", "ip6"].into_iter().zip(&mut self.families).enumerate()
        {
            let mut packets = self.input.received_packets(output);
            if let Some(forwards) = &mut self.forwards {
                let forward = &mut forwards[number];
                forward.send_packets("input", packets);
                forward.settle();
                leave(&mut sent, forward, &["a", "b", "trunk", "error", "resolve"]);
                leave_as(&mut sent, forward, "to-router", "local");
                packets = forward.received_packets("unusual");
            }
            input.send_packets("input", packets);
            input.settle();
            leave(&mut sent, input, &["error"]);
            let check = &mut self.checks[number];
            check.send_packets("input", input.received_packets("output"));
            if output == "ip4" {
                self.options.send_packets("input", input.received_packets("options"));
                self.options.settle();
                leave(&mut sent, &mut self.options, &["error"]);
                check.send_packets("options", self.options.received_packets("output"));
            }
            check.settle();
            look.send_packets("input", check.received_packets("output"));
            look.settle();
            leave(&mut sent, look, &["local", "error"]);
            let packets = look.received_packets("output");
            rewrite.send_packets("input", packets);
            rewrite.settle();
            leave(&mut sent, rewrite, &REWRITES);
        }
        sent
    }
}

/// What a naive router does with a frame: the port and the frame that leaves.
fn naive(port: &str, frame: &[u8]) -> Option<(&'static str, Vec<u8>)> {
    let all = interfaces();
    let (mut tags, mut rest) = (Vec::new(), frame.get(12..)?);
    while let [p1, p2, i1, i2, ..] = *rest
        && matches!([p1, p2], [0x81, 0x00] | [0x88, 0xa8])
        && (tags.len() < 2 || [i1 & 0xf, i2] == [0, 0])
    {
        tags.push(VlanTag { protocol: u16::from_be_bytes([p1, p2]), id: u16::from_be_bytes([i1, i2]) & 0xfff });
        rest = &rest[4..];
    }
    let tags: Vec<VlanTag> = tags.into_iter().filter(|tag| tag.id != 0).collect();
    let from = all.iter().find(|interface| interface.port == port && interface.tags == tags)?;
    // Frames to many are for this router alone in this test.
    if frame[..6] != from.mac.0 || rest.len() < 2 {
        return None;
    }
    let (kind, ip) = rest.split_at(2);
    let mut ip = ip.to_vec();
    let mut stays_on_link = false;
    let destination: IpAddr = match kind {
        [0x08, 0x00] => {
            let view = Ipv4Packet::new_checked(&ip[..]).ok()?;
            let right = bellows_wire::Sum::new().add_bytes(view.header()).finish() == 0;
            let source = view.src().octets()[0];
            let is_link_local = view.src().is_link_local() || view.dst().is_link_local();
            if !right
                || view.ttl() <= 1
                || view.fragment_offset() == 8
                || is_link_local
                || matches!(source, 0 | 127 | 224..)
            {
                return None;
            }
            view.dst().into()
        }
        [0x86, 0xdd] => {
            let view = Ipv6Packet::new_checked(&ip[..]).ok()?;
            let source = view.src();
            let is_nobodys = source.is_unspecified() || source.is_loopback() || source.is_multicast();
            if view.hop_limit() <= 1 || is_nobodys {
                return None;
            }
            stays_on_link = source.is_unicast_link_local();
            view.dst().into()
        }
        _ => return None,
    };
    if matches!(destination, IpAddr::V6(address) if address.is_unicast_link_local() || address.is_multicast()) {
        return None;
    }
    if all.iter().any(|interface| interface.addresses.iter().any(|own| own.address == destination)) {
        return None;
    }
    // The neighbour on a link, or the next hop of the longest prefix.
    let link = all.iter().position(|interface| {
        interface.addresses.iter().any(|own| IpPrefix::of(own.address, own.length).unwrap().contains(destination))
    });
    let (next, dev) = match link {
        Some(index) => (destination, Some(all[index].name.clone())),
        None => {
            let length = |prefix: IpPrefix| match prefix {
                IpPrefix::V4(prefix) => prefix.length(),
                IpPrefix::V6(prefix) => prefix.length(),
            };
            let route = routes()
                .into_iter()
                .filter(|route| route.prefix.contains(destination))
                .max_by_key(|route| length(route.prefix))?;
            // Those of special addresses are longer than a default route.
            if let IpAddr::V4(address) = destination
                && matches!(address.octets()[0], 0 | 127 | 224..)
            {
                return None;
            }
            let Action::Forward(hops) = route.action else { return None };
            (hops[0].gateway?, hops[0].interface.clone())
        }
    };
    let index = all.iter().position(|interface| match &dev {
        Some(name) => interface.name == *name,
        None => interface.addresses.iter().any(|own| IpPrefix::of(own.address, own.length).unwrap().contains(next)),
    })?;
    let number = index as u16 + 1;
    let is_known = index < 3
        && match next {
            IpAddr::V4(address) => address == Ipv4Addr::new(10, 0, number as u8, 2),
            IpAddr::V6(address) => {
                address == Ipv6Addr::new(0x2001, 0xdb8, number, 0, 0, 0, 0, 2)
                    || address == Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 9)
            }
        };
    let to = &all[index];
    // RFC 4291, section 2.5.6.
    if stays_on_link && to.name != from.name {
        return None;
    }
    let length = if ip[0] >> 4 == 4 {
        u16::from_be_bytes([ip[2], ip[3]]).into()
    } else {
        40 + usize::from(u16::from_be_bytes([ip[4], ip[5]]))
    };
    if !is_known || length > usize::from(to.mtu) {
        return None;
    }
    // What is behind the packet is left out.
    ip.truncate(length);
    if ip[0] >> 4 == 4 {
        let header = usize::from(ip[0] & 15) * 4;
        record_naively(&mut ip[..header], [10, 0, number as u8, 1])?;
        let mut view = Ipv4Packet::new_checked(&mut ip[..]).ok()?;
        view.set_ttl(view.ttl() - 1);
        view.fill_checksum();
    } else {
        ip[7] -= 1;
    }
    let mut out = [neighbour(number).0, to.mac.0].concat();
    to.tags.iter().for_each(|tag| out.extend([tag.protocol.to_be_bytes(), tag.id.to_be_bytes()].concat()));
    let port = PORTS.into_iter().find(|port| *port == to.port)?;
    Some((port, [out, kind.to_vec(), ip].concat()))
}

/// Enters an address in the recorded route of a header, unless there is a wrong option, or one that is refused.
fn record_naively(header: &mut [u8], own: [u8; 4]) -> Option<()> {
    let (mut at, mut was_there) = (20, false);
    while at < header.len() && header[at] != 0 {
        let kind = header[at];
        let length = if kind == 1 { 1 } else { usize::from(*header.get(at + 1)?).max(2) };
        let option = header.get_mut(at..at + length)?;
        if kind != 1 && option[1] < 2 || matches!(kind, 131 | 137) || kind == 148 && length != 4 {
            return None;
        }
        if kind == 7 {
            let next = usize::from(*option.get(2)?);
            if was_there || next < 4 || next <= length && next + 3 > length {
                return None;
            }
            if next < length {
                option[next - 1..next + 3].copy_from_slice(&own);
                option[2] += 4;
            }
            was_there = true;
        }
        at += length;
    }
    Some(())
}

/// Lists of options: some right, some wrong. What a timestamp becomes is not known beforehand.
fn options() -> impl Strategy<Value = Vec<u8>> {
    let pieces: [&[u8]; 12] = [
        &[1],
        &[0],
        &[7, 7, 4, 0, 0, 0, 0],
        &[7, 11, 8, 9, 9, 9, 9, 0, 0, 0, 0],
        &[7, 7, 8, 1, 2, 3, 4],
        &[7, 7, 5, 0, 0, 0, 0],
        &[7, 2],
        &[148, 4, 0, 0],
        &[148, 3, 0],
        &[130, 3, 1],
        &[131, 3, 4],
        &[9],
    ];
    let list = prop::collection::vec(prop::sample::select(pieces.to_vec()), 1..4).prop_map(|pieces| {
        let mut list = pieces.concat();
        list.resize(list.len().next_multiple_of(4), 0);
        list
    });
    prop_oneof![4 => Just(Vec::new()), 1 => list]
}

/// Frames that a router meets: most of them right, some changed in a few bytes.
pub(crate) fn frames() -> impl Strategy<Value = (usize, Vec<u8>)> {
    let v4 = (
        any::<[u8; 4]>(),
        prop_oneof![
            any::<[u8; 4]>(),
            (0u8..4, 0u8..12, any::<u8>()).prop_map(|(b, c, d)| [10, b, c, d]),
            (0u8..6, 0u8..4).prop_map(|(c, d)| [10, 0, c, d]),
            (6u8..10).prop_map(|b| [10, b, 1, 1]),
            Just([10, 1, 2, 3]),
        ],
    );
    let v6 = (
        any::<[u8; 4]>(),
        prop_oneof![
            any::<[u16; 8]>(),
            (0u16..6, 0u16..4).prop_map(|(c, d)| [0x2001, 0xdb8, c, 0, 0, 0, 0, d]),
            (0x100u16..0x122, 0u16..3).prop_map(|(c, d)| [0x2001, 0xdb8, c, d, 0, 0, 0, 9]),
        ],
    );
    let payload = prop_oneof![8 => 0usize..60, 1 => 1200usize..1500];
    let ip = prop_oneof![
        (v4, 0u8..70, payload.clone(), options()).prop_map(|((source, destination), ttl, payload, options)| {
            let mut ip = vec![0; 20 + payload];
            let header = bellows_wire::ipv4::Ipv4Header {
                src: source.into(),
                dst: destination.into(),
                protocol: bellows_wire::IpProtocol::UDP,
                ttl,
                traffic_class: 0,
                identification: 1,
                dont_fragment: payload % 2 == 0,
            };
            header.emit(&mut ip).unwrap();
            ip.splice(20..20, options.iter().copied());
            ip[0] += (options.len() / 4) as u8;
            let total = (ip.len() as u16).to_be_bytes();
            ip[2..4].copy_from_slice(&total);
            bellows_common::ipv4_options::fill_checksum(&mut ip[..20 + options.len()]);
            ([0x08, 0x00], ip)
        }),
        (v6, 0u8..70, payload).prop_map(|((source, destination), hop_limit, payload)| {
            let mut ip = vec![0; 40 + payload];
            let source = if source[0] < 16 {
                [0xfe80, 0, 0, 0, 0, 0, 0, 7]
            } else {
                [0x2001, 0xdb8, 5, source[1].into(), 0, 0, 0, 1]
            };
            let header = bellows_wire::ipv6::Ipv6Header {
                src: source.into(),
                dst: destination.into(),
                next_header: bellows_wire::IpProtocol::UDP,
                hop_limit,
                traffic_class: 0,
                flow_label: 0,
            };
            header.emit(&mut ip).unwrap();
            ([0x86, 0xdd], ip)
        }),
    ];
    let changes = prop_oneof![4 => Just(Vec::new()), 1 => prop::collection::vec((0usize..60, any::<u8>()), 1..3)];
    let cut = prop_oneof![9 => Just(usize::MAX), 1 => 0usize..60];
    (0usize..4, ip, changes, cut, 0usize..3).prop_map(|(number, (kind, ip), changes, cut, padding)| {
        let interface = &interfaces()[number];
        let mut frame = [interface.mac.0, [2, 0, 0, 0, 0, 99]].concat();
        interface.tags.iter().for_each(|tag| frame.extend([tag.protocol.to_be_bytes(), tag.id.to_be_bytes()].concat()));
        frame.extend(kind);
        frame.extend(ip);
        frame.extend(vec![0; padding]);
        for (at, byte) in changes {
            if let Some(place) = frame.get_mut(at) {
                *place = byte;
            }
        }
        frame.truncate(cut);
        let port = PORTS.iter().position(|port| *port == interface.port).unwrap();
        (port, frame)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn a_router_forwards_what_a_naive_one_forwards(frames in prop::collection::vec(frames(), 1..300)) {
        let mut router = Router::new(false);
        for port in PORTS {
            let of_port: Vec<Vec<u8>> = frames.iter().filter(|(at, _)| PORTS[*at] == port).map(|(_, frame)| frame.clone()).collect();
            // Those to many stations are for other tests, and so are options of IPv6.
            let is_for_others = |frame: &Vec<u8>| frame.first().is_some_and(|first| first & 1 == 1) || has_hop_by_hop(frame);
            let of_port: Vec<Vec<u8>> = of_port.into_iter().filter(|frame| !is_for_others(frame)).collect();
            let mut expected: BTreeMap<&str, Vec<Vec<u8>>> = PORTS.into_iter().map(|port| (port, Vec::new())).collect();
            // Each family keeps its order, and so do those with options behind the others.
            for kind in [(4, false), (4, true), (6, false)] {
                for (to, out) in of_port.iter().filter_map(|frame| naive(port, frame)) {
                    if kind_of(&out) == kind {
                        expected.entry(to).or_default().push(out);
                    }
                }
            }
            prop_assert_eq!(router.route(port, &of_port), expected);
        }
    }
}

/// The version of the IP packet in a frame, and whether it has IPv4 options.
fn kind_of(frame: &[u8]) -> (u8, bool) {
    let first = behind_tags(frame).first().copied().unwrap_or(0);
    (first >> 4, first >> 4 == 4 && first & 0xf > 5)
}

#[test]
fn a_priority_tag_behind_those_of_an_interface_hides_no_packet() {
    let mut router = Router::new(false);
    let packet = [0x45, 0, 0, 20, 0, 0, 0, 0, 64, 6, 0, 0, 192, 0, 2, 1, 10, 0, 1, 2];
    let tags: [&[u8]; 3] = [&[0x81, 0, 0, 5], &[0x81, 0, 0, 0], &[0x88, 0xa8, 0xe0, 0]];
    let frame = |tags: &[&[u8]]| [&[2, 0, 0, 0, 0, 3], &[4; 6][..], &tags.concat(), &[8, 0], &packet].concat();
    let frames = [frame(&tags[..1]), frame(&tags[..2]), frame(&tags)];
    router.input.send("trunk", frames);
    router.input.settle();
    assert_eq!((router.input.received("ip4").len(), router.input.received("other").len()), (3, 0));
}

/// Whether an IPv6 packet has hop-by-hop options.
fn has_hop_by_hop(frame: &[u8]) -> bool {
    matches!(*behind_tags(frame), [first, _, _, _, _, _, 0, ..] if first >> 4 == 6)
}

/// The packet in a frame with up to two tags.
fn behind_tags(frame: &[u8]) -> &[u8] {
    let tags = [12, 16]
        .into_iter()
        .take_while(|&at| matches!(frame.get(at..at + 2), Some([0x81, 0x00] | [0x88, 0xa8])))
        .count();
    frame.get(14 + 4 * tags..).unwrap_or_default()
}
