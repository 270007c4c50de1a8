//! Connections of packets: both directions have one key, and what is not known has none.

use std::net::IpAddr;

use bellows_wire::connection::{ConnectionKind, Member, of_frame, of_ip, of_payload, of_usual_frame};
use bellows_wire::{EtherType, EthernetHeader, IpProtocol, Ipv4Header, Ipv6Header, MacAddr};
use proptest::prelude::*;

const V4: [&str; 2] = ["192.0.2.1", "198.51.100.1"];
const V6: [&str; 2] = ["2001:db8::1", "2001:db8:1::1"];

/// An IP packet.
fn ip([src, dst]: [&str; 2], protocol: IpProtocol, payload: &[u8]) -> Vec<u8> {
    match [src, dst].map(|address| address.parse().unwrap()) {
        [IpAddr::V4(src), IpAddr::V4(dst)] => {
            let mut packet = [&[0; 20], payload].concat();
            let header =
                Ipv4Header { src, dst, protocol, ttl: 64, traffic_class: 0, identification: 7, dont_fragment: false };
            header.emit(&mut packet).unwrap();
            packet
        }
        [IpAddr::V6(src), IpAddr::V6(dst)] => {
            let mut packet = [&[0; 40], payload].concat();
            let header = Ipv6Header { src, dst, next_header: protocol, hop_limit: 64, traffic_class: 0, flow_label: 0 };
            header.emit(&mut packet).unwrap();
            packet
        }
        _ => unreachable!(),
    }
}

fn back([src, dst]: [&'static str; 2]) -> [&'static str; 2] {
    [dst, src]
}

/// The start of a TCP or UDP header with these ports, and of a TCP header with these flags.
fn ports(src: u16, dst: u16, flags: u8) -> Vec<u8> {
    let mut bytes = [src.to_be_bytes(), dst.to_be_bytes()].concat();
    bytes.resize(20, 0);
    bytes[13] = flags;
    bytes
}

fn echo(kind: u8, identifier: u16) -> Vec<u8> {
    let mut bytes = vec![kind, 0, 0, 0];
    bytes.extend(identifier.to_be_bytes());
    bytes.extend([0, 1]);
    bytes
}

fn of(packet: &[u8]) -> Member {
    of_ip(packet).unwrap()
}

#[test]
fn both_directions_have_one_key() {
    for ends in [V4, V6] {
        for (protocol, kind) in [
            (IpProtocol::TCP, ConnectionKind::Tcp(0x12)),
            (IpProtocol::UDP, ConnectionKind::Udp),
            (IpProtocol::SCTP, ConnectionKind::Other),
        ] {
            let there = of(&ip(ends, protocol, &ports(1000, 80, 0x12)));
            let here = of(&ip(back(ends), protocol, &ports(80, 1000, 0x12)));
            assert_eq!((there.key, there.kind, there.is_error), (here.key, kind, false));
            assert_ne!(there.is_from_first, here.is_from_first);
            // Each part counts.
            for (ends, protocol, src, dst) in [
                (back(ends), protocol, 1000, 80),
                (ends, protocol, 1000, 81),
                (ends, protocol, 1001, 80),
                (ends, protocol, 80, 1000),
                (ends, if protocol == IpProtocol::TCP { IpProtocol::UDP } else { IpProtocol::TCP }, 1000, 80),
            ] {
                assert_ne!(of(&ip(ends, protocol, &ports(src, dst, 0))).key, there.key);
            }
        }
        let gre = of(&ip(ends, IpProtocol::GRE, &[0; 8]));
        assert_eq!((gre.key, gre.kind), (of(&ip(back(ends), IpProtocol::GRE, &[1; 8])).key, ConnectionKind::Other));
    }
    // A host that talks to itself, by two ports.
    let own = ["192.0.2.1"; 2];
    let [there, here] = [(1, 2), (2, 1)].map(|(src, dst)| of(&ip(own, IpProtocol::UDP, &ports(src, dst, 0))));
    assert_eq!((there.key, there.is_from_first), (here.key, !here.is_from_first));
    // Other versions have other keys, whatever the addresses.
    assert_ne!(
        of(&ip(V4, IpProtocol::UDP, &ports(1, 2, 0))).key,
        of(&ip(["::", "::"], IpProtocol::UDP, &ports(1, 2, 0))).key
    );
}

#[test]
fn an_echo_belongs_to_the_end_that_requests() {
    for (ends, protocol, request, reply) in [(V4, IpProtocol::ICMP, 8, 0), (V6, IpProtocol::ICMPV6, 128, 129)] {
        let asked = of(&ip(ends, protocol, &echo(request, 77)));
        let answered = of(&ip(back(ends), protocol, &echo(reply, 77)));
        assert_eq!((asked.key, asked.kind, asked.is_from_first), (answered.key, ConnectionKind::Echo, true));
        assert!(!answered.is_from_first);
        assert_ne!(of(&ip(back(ends), protocol, &echo(request, 77))).key, asked.key, "a request of the other end");
        assert_ne!(of(&ip(ends, protocol, &echo(request, 78))).key, asked.key);
        assert_eq!(of_ip(&ip(ends, protocol, &echo(13, 77))), None, "another message");
    }
    // Each version has its own.
    assert_eq!(of_ip(&ip(V4, IpProtocol::ICMPV6, &echo(128, 7))), None);
    assert_eq!(of_ip(&ip(V6, IpProtocol::ICMP, &echo(8, 7))), None);
}

#[test]
fn an_error_belongs_to_the_packet_inside_if_it_goes_to_its_sender() {
    for (ends, protocol, types) in
        [(V4, IpProtocol::ICMP, [3, 11, 12].as_slice()), (V6, IpProtocol::ICMPV6, &[1, 2, 3, 4])]
    {
        let router = if ends == V4 { "203.0.113.1" } else { "2001:db8:2::1" };
        let request = if ends == V4 { 8 } else { 128 };
        let header_len = if ends == V4 { 20 } else { 40 };
        let inside = [
            ip(ends, IpProtocol::TCP, &ports(1000, 80, 2)),
            ip(ends, IpProtocol::UDP, &ports(1000, 80, 0)),
            ip(ends, IpProtocol::GRE, &[0; 8]),
            ip(ends, protocol, &echo(request, 7)),
        ];
        for inside in &inside {
            // As much as must be quoted.
            let message = |kind| [&[kind, 0, 0, 0, 0, 0, 0, 0], &inside[..header_len + 8]].concat();
            for &kind in types {
                let error = of(&ip([router, ends[0]], protocol, &message(kind)));
                assert_eq!((error.key, error.is_error), (of(inside).key, true));
                assert_eq!(of_ip(&ip([router, ends[1]], protocol, &message(kind))), None, "not to the sender");
            }
            let redirect = if ends == V4 { 5 } else { 137 };
            assert_eq!(of_ip(&ip([router, ends[0]], protocol, &message(redirect))), None);
        }
        let nested = ip(ends, protocol, &[&[types[0], 0, 0, 0, 0, 0, 0, 0], &inside[0][..]].concat());
        let error = ip([router, ends[0]], protocol, &[&[types[0], 0, 0, 0, 0, 0, 0, 0], &nested[..]].concat());
        assert_eq!(of_ip(&error), None, "an error about an error");
    }
}

#[test]
fn only_the_first_fragment_has_ports() {
    let whole = ip(V4, IpProtocol::UDP, &ports(1000, 80, 0));
    let with_offset = |offset: u16| {
        let mut packet = whole.clone();
        packet[6..8].copy_from_slice(&offset.to_be_bytes());
        of_ip(&packet)
    };
    assert_eq!(with_offset(0x2000), of_ip(&whole));
    assert_eq!((with_offset(0x2001), with_offset(1)), (None, None));
    let fragment = |offset: u16, next: IpProtocol| {
        let [high, low] = offset.to_be_bytes();
        of_ip(&ip(
            V6,
            IpProtocol::IPV6_FRAGMENT,
            &[&[next.0, 0, high, low, 0, 0, 0, 7], &ports(1000, 80, 0)[..]].concat(),
        ))
    };
    assert_eq!(fragment(1, IpProtocol::UDP), of_ip(&ip(V6, IpProtocol::UDP, &ports(1000, 80, 0))));
    assert_eq!(fragment(8, IpProtocol::UDP), None);
    // Connections without ports need none.
    assert_eq!(fragment(8, IpProtocol::GRE), of_ip(&ip(V6, IpProtocol::GRE, &[])));
    let hop_by_hop = [&[IpProtocol::UDP.0, 0, 0, 0, 0, 0, 0, 0], &ports(1000, 80, 0)[..]].concat();
    let behind = of_ip(&ip(V6, IpProtocol::IPV6_HOP_BY_HOP, &hop_by_hop));
    assert_eq!(behind, of_ip(&ip(V6, IpProtocol::UDP, &ports(1000, 80, 0))));
    assert_eq!(of_ip(&ip(V6, IpProtocol::IPV6_HOP_BY_HOP, &hop_by_hop[..4])), None);
}

#[test]
fn vlan_identifiers_belong_to_a_connection_and_priorities_do_not() {
    let packet = ip(V4, IpProtocol::UDP, &ports(1000, 80, 0));
    let frame = |tags: &[[u8; 2]]| {
        let mut frame = vec![0; 14];
        let header = EthernetHeader { dst: MacAddr::BROADCAST, src: MacAddr([2; 6]), ether_type: EtherType::IPV4 };
        header.emit(&mut frame).unwrap();
        for tag in tags.iter().rev() {
            frame.splice(12..12, [0x81, 0, tag[0], tag[1]]);
        }
        frame.extend(&packet);
        of_frame(&frame)
    };
    let none = frame(&[]);
    assert_eq!(none, of_payload(EtherType::IPV4, &packet));
    assert_eq!(none, of_ip(&packet));
    assert_eq!(frame(&[[0xe0, 0]]), none, "a priority alone");
    let five = frame(&[[0, 5]]);
    assert!(five.is_some() && five == frame(&[[0xe0, 5]]));
    let all = [none, five, frame(&[[0, 6]]), frame(&[[0, 5], [0, 6]]), frame(&[[0, 6], [0, 5]])];
    for (index, one) in all.iter().enumerate() {
        assert!(one.is_some() && all[..index].iter().all(|other| other != one), "{index}");
    }
    assert_eq!(frame(&[[0, 1], [0, 2], [0, 3]]), None);
    assert_eq!(of_frame(&[0; 14]), None);
}

proptest! {
    /// Any bytes, and packets that are cut anywhere.
    #[test]
    fn nothing_panics_and_a_cut_packet_has_its_connection_or_none(
        bytes in prop::collection::vec(any::<u8>(), 0..120), version in prop::sample::select(vec![0x45, 0x46, 0x60]),
        cut in 0..80usize, is_v6: bool,
    ) {
        of_frame(&bytes);
        of_ip(&bytes);
        let mut packet = bytes.clone();
        if let Some(first) = packet.first_mut() {
            *first = version;
        }
        of_ip(&packet);
        of_payload(EtherType::VLAN, &packet);
        let whole = ip(if is_v6 { V6 } else { V4 }, IpProtocol::TCP, &ports(1000, 80, 2));
        let member = of_ip(&whole[..cut.min(whole.len())]);
        prop_assert!(member.is_none() || member == of_ip(&whole));
    }

    /// The short way to the connection of the usual frame is no other connection, for any bytes.
    #[test]
    fn usual_frames_are_of_the_same_connections(
        mut bytes in prop::collection::vec(any::<u8>(), 0..70), is_usual: bool, protocol in 0..20u8, offset: bool,
    ) {
        if is_usual && bytes.len() > 24 {
            bytes[12..15].copy_from_slice(&[0x08, 0x00, 0x45]);
            bytes[20] &= if offset { 0xff } else { 0xe0 };
            bytes[21] = if offset { bytes[21] } else { 0 };
            bytes[23] = if protocol % 2 == 0 { 6 } else { protocol };
        }
        let (usual, of) = (of_usual_frame(&bytes), of_frame(&bytes));
        prop_assert!(usual.is_none() || usual == of, "{:?} {:?}", usual, of);
        let is_known = of.is_some_and(|of| matches!(of.kind, ConnectionKind::Tcp(_) | ConnectionKind::Udp) && !of.is_error);
        if is_usual && is_known && bytes[12..15] == [0x08, 0x00, 0x45] {
            prop_assert_eq!(usual, of);
        }
    }
}
