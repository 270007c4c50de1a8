//! Flows: the same for all packets of a flow, others for others, and found inside tunnels.

use std::collections::HashMap;
use std::net::IpAddr;

use bellows_wire::flow::{self, Directions, Flow};
use bellows_wire::{EtherType, EthernetHeader, IpProtocol, Ipv4Header, Ipv6Header, MacAddr, UdpFrame, VlanHeader};
use proptest::prelude::*;

const MACS: [MacAddr; 2] = [MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2])];

/// The addresses, ports and protocol of a packet.
#[derive(Clone, Copy, Debug)]
struct Tuple {
    src: IpAddr,
    dst: IpAddr,
    ports: (u16, u16),
}

impl Tuple {
    fn back(self) -> Tuple {
        Tuple { src: self.dst, dst: self.src, ports: (self.ports.1, self.ports.0) }
    }

    /// A UDP packet from the IP header on.
    fn packet(self) -> Vec<u8> {
        self.frame().split_off(14)
    }

    fn frame(self) -> Vec<u8> {
        let Tuple { src, dst, ports: (src_port, dst_port) } = self;
        let headers =
            UdpFrame { src_mac: MACS[0], dst_mac: MACS[1], vlan: None, src, dst, src_port, dst_port, ttl: 64 };
        headers.build(headers.header_len() + 20, |_| {}).unwrap()
    }

    fn flow(self) -> Flow {
        Flow::of(&self.frame()).unwrap()
    }
}

fn tuple() -> impl Strategy<Value = Tuple> {
    let v4 = any::<([u8; 4], [u8; 4])>().prop_map(|(src, dst)| (IpAddr::from(src), IpAddr::from(dst)));
    let v6 = any::<([u8; 16], [u8; 16])>().prop_map(|(src, dst)| (IpAddr::from(src), IpAddr::from(dst)));
    // Ports of no tunnel.
    (prop_oneof![v4, v6], (10_000..u16::MAX, 10_000..u16::MAX)).prop_map(|((src, dst), ports)| Tuple {
        src,
        dst,
        ports,
    })
}

fn outer() -> Tuple {
    Tuple { src: [192, 0, 2, 1].into(), dst: [198, 51, 100, 1].into(), ports: (1, 2) }
}

fn ethernet(ether_type: EtherType, payload: &[u8]) -> Vec<u8> {
    let mut frame = [&[0; 14], payload].concat();
    EthernetHeader { dst: MACS[1], src: MACS[0], ether_type }.emit(&mut frame).unwrap();
    frame
}

fn ip_type(packet: &[u8]) -> EtherType {
    if packet[0] >> 4 == 4 { EtherType::IPV4 } else { EtherType::IPV6 }
}

fn framed(packet: &[u8]) -> Vec<u8> {
    ethernet(ip_type(packet), packet)
}

fn ipv4(protocol: IpProtocol, payload: &[u8]) -> Vec<u8> {
    let mut packet = [&[0; 20], payload].concat();
    let header = Ipv4Header {
        src: [192, 0, 2, 1].into(),
        dst: [198, 51, 100, 1].into(),
        protocol,
        ttl: 64,
        traffic_class: 0,
        identification: 7,
        dont_fragment: false,
    };
    header.emit(&mut packet).unwrap();
    packet
}

fn ipv6(next_header: IpProtocol, payload: &[u8]) -> Vec<u8> {
    let mut packet = [&[0; 40], payload].concat();
    let (src, dst) = ("2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap());
    Ipv6Header { src, dst, next_header, hop_limit: 64, traffic_class: 0, flow_label: 0 }.emit(&mut packet).unwrap();
    packet
}

fn udp(dst_port: u16, payload: &[u8]) -> Vec<u8> {
    [&50_000u16.to_be_bytes()[..], &dst_port.to_be_bytes(), &[0; 4], payload].concat()
}

/// Every kind of tunnel around a packet, with both versions of the outer header.
fn tunnels(inner: &[u8]) -> Vec<(String, Vec<u8>)> {
    let frame = framed(inner);
    let kind = ip_type(inner).0.to_be_bytes();
    let in_ip = if kind == EtherType::IPV4.0.to_be_bytes() { IpProtocol::IPV4 } else { IpProtocol::IPV6 };
    let mut payloads = vec![
        ("IP in IP".to_owned(), in_ip, inner.to_vec()),
        ("VXLAN".to_owned(), IpProtocol::UDP, udp(4789, &[&[8, 0, 0, 0, 1, 2, 3, 0][..], &frame].concat())),
    ];
    for options in [0, 1, 63] {
        let geneve = |kind: [u8; 2], inner: &[u8]| {
            let header = [&[options, 0][..], &kind, &[0; 4], &vec![0xee; 4 * usize::from(options)]].concat();
            udp(6081, &[&header, inner].concat())
        };
        payloads.push((format!("Geneve {options}"), IpProtocol::UDP, geneve(kind, inner)));
        payloads.push((format!("Geneve {options}, Ethernet"), IpProtocol::UDP, geneve([0x65, 0x58], &frame)));
    }
    for flags in (0..16u8).map(|flags| flags << 4).filter(|flags| flags & 0x40 == 0) {
        let fields = vec![0xee; 4 * flags.count_ones() as usize];
        let gre = |kind: [u8; 2], inner: &[u8]| [&[flags, 0][..], &kind, &fields, inner].concat();
        payloads.push((format!("GRE {flags:x}"), IpProtocol::GRE, gre(kind, inner)));
        payloads.push((format!("GRE {flags:x}, Ethernet"), IpProtocol::GRE, gre([0x65, 0x58], &frame)));
    }
    for flags in 0..8u8 {
        // Without the flag, the type of the extension header means nothing.
        let has_extension = flags & 4 != 0;
        let optional: &[u8] = if flags == 0 { &[] } else { &[0, 1, 0, 0x85] };
        let extensions: &[u8] = if has_extension { &[1, 9, 9, 0xc0, 2, 9, 9, 9, 9, 9, 9, 0] } else { &[] };
        let header = [&[0x30 | flags, 0xff, 0, 0, 0, 0, 0, 1][..], optional, extensions].concat();
        payloads.push((format!("GTP-U {flags}"), IpProtocol::UDP, udp(2152, &[&header, inner].concat())));
    }
    let frames = payloads.into_iter().flat_map(|(name, protocol, payload)| {
        let (four, six) = (ipv4(protocol, &payload), ipv6(protocol, &payload));
        [(format!("{name} over IPv4"), framed(&four)), (format!("{name} over IPv6"), framed(&six))]
    });
    frames.collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn both_directions_of_a_flow_have_one_hash(tuple in tuple(), bytes: [u8; 36]) {
        let (there, back) = (tuple.flow(), tuple.back().flow());
        prop_assert_eq!(there.hash(Directions::Together), back.hash(Directions::Together));
        let written = |flow: Flow, directions| {
            let mut bytes = bytes;
            let length = flow.write(directions, &mut bytes);
            bytes[..length].to_vec()
        };
        prop_assert_eq!(written(there, Directions::Together), written(back, Directions::Together));
        if (tuple.src, tuple.ports.0) != (tuple.dst, tuple.ports.1) {
            prop_assert_ne!(there.hash(Directions::Apart), back.hash(Directions::Apart));
            prop_assert_ne!(written(there, Directions::Apart), written(back, Directions::Apart));
        }
    }

    /// The short way and the long one find the same flow.
    #[test]
    fn both_ways_to_a_flow_agree(
        tuple in tuple(),
        protocol in prop_oneof![Just(6u8), Just(17), any::<u8>()],
        changes in prop::collection::vec((12usize..60, any::<u8>()), 0..3),
        length in 0usize..90,
    ) {
        let mut frame = tuple.frame();
        frame[if tuple.src.is_ipv4() { 23 } else { 20 }] = protocol;
        for (at, value) in changes {
            frame[at] = value;
        }
        frame.truncate(length);
        let flow = Flow::of(&frame);
        prop_assert_eq!(flow.is_some(), frame.len() >= 14);
        for directions in [Directions::Apart, Directions::Together] {
            let (mut expected, mut found) = ([0; flow::MAX_BYTES], [0; flow::MAX_BYTES]);
            prop_assert_eq!(flow::hash(&frame, directions), flow.map(|flow| flow.hash(directions)));
            let lengths = (flow.map(|flow| flow.write(directions, &mut expected)), flow::write(&frame, directions, &mut found));
            prop_assert_eq!(lengths.0, lengths.1);
            prop_assert_eq!(expected, found);
        }
    }

    #[test]
    fn tags_and_extension_headers_are_skipped(tuple in tuple(), tags in 0usize..=3, service: bool) {
        let packet = tuple.packet();
        let mut tagged = packet.clone();
        let mut kind = ip_type(&packet);
        for _ in 0..tags {
            tagged = [&[0; 4], &tagged[..]].concat();
            VlanHeader { id: 5, priority: 3, drop_eligible: false, ether_type: kind }.emit(&mut tagged).unwrap();
            kind = if service { EtherType::SERVICE_VLAN } else { EtherType::VLAN };
        }
        let flow = Flow::of(&ethernet(kind, &tagged)).unwrap();
        prop_assert_eq!(flow == tuple.flow(), tags <= flow::MAX_VLAN_TAGS);
        if tuple.src.is_ipv6() {
            let chain = [&[43, 0][..], &[0; 6], &[51, 0], &[0; 6], &[60, 1], &[0; 10], &[17, 0], &[0; 6], &packet[40..]].concat();
            let mut extended = [&packet[..40], &chain].concat();
            extended[6] = 0;
            prop_assert_eq!(Flow::of(&framed(&extended)), Some(tuple.flow()));
        }
    }

    /// What is inside a tunnel decides, and so does what is inside a tunnel in a tunnel.
    #[test]
    fn inner_packets_are_found(tuple in tuple()) {
        let packet = tuple.packet();
        for (name, tunnel) in tunnels(&packet) {
            prop_assert_eq!(Flow::of_inner(&tunnel), Some(tuple.flow()), "{}", name);
            prop_assert_ne!(Flow::of(&tunnel), Some(tuple.flow()), "{}", name);
            let twice = framed(&ipv4(ip_in_ip(&tunnel[14..]), &tunnel[14..]));
            prop_assert_eq!(Flow::of_inner(&twice), Some(tuple.flow()), "{} in IP", name);
            // The third one is not opened: its flow is that of its outer header.
            let thrice = framed(&ipv4(ip_in_ip(&twice[14..]), &twice[14..]));
            prop_assert_eq!(Flow::of_inner(&thrice), Flow::of(&tunnel), "{} in IP in IP", name);
        }
        let frame = tuple.frame();
        prop_assert_eq!(Flow::of_inner(&frame), Some(tuple.flow()));
    }

    /// A tunnel that ends early, or whose contents are damaged, has the flow of its outer header.
    #[test]
    fn what_cannot_be_read_falls_back(tuple in tuple(), cut in 0usize..120, which: prop::sample::Index) {
        let packet = tuple.packet();
        let tunnels = tunnels(&packet);
        let (_, tunnel) = which.get(&tunnels);
        let cut = &tunnel[..cut.min(tunnel.len())];
        let flow = Flow::of_inner(cut);
        prop_assert_eq!(flow.is_some(), cut.len() >= 14);
        let mut damaged = tunnel.clone();
        let at = damaged.len() - packet.len();
        damaged[at] = 0x15;
        let flow = Flow::of_inner(&damaged).unwrap();
        let mut inner_frame = damaged[at - 14..].to_vec();
        inner_frame.truncate(14);
        prop_assert!(flow == Flow::of(tunnel).unwrap() || matches!(flow, Flow::Ethernet(_)), "{:?}", flow);
    }

    #[test]
    fn any_bytes_have_a_flow_or_none(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        bellows_exercise::wire::find_flows(&bytes);
    }
}

fn ip_in_ip(packet: &[u8]) -> IpProtocol {
    if packet[0] >> 4 == 4 { IpProtocol::IPV4 } else { IpProtocol::IPV6 }
}

#[test]
fn fragments_of_a_datagram_stay_together() {
    let tuple = outer();
    let whole = tuple.frame();
    let fragment = |word: [u8; 2], payload: &[u8]| {
        let mut frame = [&whole[..34], payload].concat();
        frame[20..22].copy_from_slice(&word);
        Flow::of(&frame).unwrap()
    };
    let first = fragment([0x20, 0], &whole[34..]);
    assert_eq!(first, fragment([0x20, 1], b"middle of it"));
    assert_eq!(first, fragment([0, 5], b"e"));
    assert_ne!(first, tuple.flow());
    // A packet that must not be fragmented is none.
    assert_eq!(fragment([0x40, 0], &whole[34..]), tuple.flow());

    // IPv6: the first fragment has extension headers behind the fragment header, the second only names the first one.
    let six = |word: u8, next: u8, payload: &[u8]| {
        let header = [&[next, 0, 0, word, 0, 0, 0, 9][..], payload].concat();
        Flow::of(&framed(&ipv6(IpProtocol::IPV6_FRAGMENT, &header))).unwrap()
    };
    let udp = udp(53, b"question");
    let first = six(1, 60, &[&[17, 0, 0, 0, 0, 0, 0, 0][..], &udp].concat());
    assert_eq!(first, six(8, 60, b"rest"));
    assert_eq!(first, six(8, 17, b"rest"));
    assert_eq!(first, six(0, 17, &udp), "a fragment that is all of its datagram");
    assert_ne!(first, Flow::of(&framed(&ipv6(IpProtocol::UDP, &udp))).unwrap());
}

#[test]
fn only_some_protocols_have_ports() {
    let flow = |protocol: u8, ports: [u8; 4]| {
        Flow::of(&framed(&ipv4(IpProtocol(protocol), &[&ports[..], &[0; 16]].concat()))).unwrap()
    };
    for protocol in 0..=255 {
        let same = flow(protocol, [1, 2, 3, 4]) == flow(protocol, [5, 6, 7, 8]);
        assert_eq!(!same, [6, 17, 132].contains(&protocol), "{protocol}");
    }
}

#[test]
fn frames_without_ip_are_told_apart_by_their_ethernet_header() {
    let arp = ethernet(EtherType::ARP, &[0; 28]);
    let other = ethernet(EtherType(0x88cc), &[0; 28]);
    assert_ne!(Flow::of(&arp), Flow::of(&other));
    let mut from_another = arp.clone();
    from_another[11] ^= 1;
    assert_ne!(Flow::of(&arp), Flow::of(&from_another));
    assert_eq!(Flow::of(&arp[..14]), Flow::of(&arp));
    assert_eq!(Flow::of(&arp[..13]), None);
}

/// Chi-square of counts that should be equal, in units of its expected value.
fn unevenness(counts: &[u64]) -> f64 {
    let expected = counts.iter().sum::<u64>() as f64 / counts.len() as f64;
    let sum: f64 = counts.iter().map(|&count| (count as f64 - expected).powi(2) / expected).sum();
    sum / (counts.len() - 1) as f64
}

/// Sets of flows that differ in little: one byte, a port, both ends in step.
fn similar_flows() -> HashMap<String, Vec<Tuple>> {
    let four = |last: u32, ports| Tuple {
        src: std::net::Ipv4Addr::from(0x0a00_0000 + last).into(),
        dst: [198, 51, 100, 1].into(),
        ports,
    };
    let six = |bits: u128, ports| Tuple {
        src: std::net::Ipv6Addr::from((0x2001_0db8 << 96) + bits).into(),
        dst: "2001:db8::1".parse().unwrap(),
        ports,
    };
    let mut sets = HashMap::new();
    let mut add = |name: &str, flows: Vec<Tuple>| {
        sets.insert(format!("{name}, back"), flows.iter().map(|flow| flow.back()).collect());
        sets.insert(name.to_owned(), flows);
    };
    add("ports of a client", (0..16_384).map(|port| four(1, (40_000 + port, 443))).collect());
    add("even ports", (0..16_384).map(|port| four(1, (2 * port, 443))).collect());
    add("hosts of a network", (0..16_384).map(|host| four(host, (1024, 53))).collect());
    add("networks", (0..16_384).map(|net| four(net << 8, (1024, 53))).collect());
    add(
        "one byte of each end",
        (0..16_384).map(|n| Tuple { dst: [10, 1, 0, (n >> 7) as u8].into(), ..four(n & 127, (1, 1)) }).collect(),
    );
    add("addresses and ports in step", (0..16_384).map(|n| four(n, (1024 + n as u16, 53))).collect());
    add("IPv6 ports", (0..16_384).map(|port| six(1, (40_000 + port, 443))).collect());
    add("IPv6 hosts", (0..16_384).map(|host| six(host, (1024, 53))).collect());
    add("IPv6 networks", (0..16_384).map(|net| six(net << 64, (1024, 53))).collect());
    sets
}

#[test]
fn similar_flows_spread_over_all_bits() {
    for (name, flows) in similar_flows() {
        for directions in [Directions::Apart, Directions::Together] {
            let hashes: Vec<u32> = flows.iter().map(|flow| flow.flow().hash(directions)).collect();
            for (bits, shift) in [(6, 0), (9, 0), (7, 16), (7, 25)] {
                let mut counts = vec![0; 1 << bits];
                hashes.iter().for_each(|hash| counts[(hash >> shift) as usize % (1 << bits)] += 1);
                let unevenness = unevenness(&counts);
                // For random numbers and 63 degrees of freedom, 2 is exceeded once in 100,000 times.
                assert!(unevenness < 2.0, "{name}, {directions:?}: {unevenness} in {bits} bits from bit {shift}");
            }
        }
    }
}

#[test]
fn the_hash_never_changes() {
    let hash = |tuple: Tuple, directions| tuple.flow().hash(directions);
    let six = Tuple { src: "2001:db8::1".parse().unwrap(), dst: "2001:db8::2".parse().unwrap(), ports: (1, 2) };
    let arp = Flow::of(&ethernet(EtherType::ARP, &[])).unwrap();
    let hashes = [
        hash(outer(), Directions::Apart),
        hash(outer(), Directions::Together),
        hash(six, Directions::Apart),
        arp.hash(Directions::Apart),
    ];
    assert_eq!(hashes, [1_108_201_067, 1_689_986_259, 3_400_930_326, 3_739_637_136]);
}
