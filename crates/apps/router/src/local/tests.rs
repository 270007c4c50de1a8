use bellows_netif::advertisements::Ignored;
use bellows_rig::Rig;
use bellows_vrf::interface::InterfaceAddress;
use bellows_vrf::{Interface, Vrf};
use bellows_wire::icmp::{Echo, IcmpMessage};
use bellows_wire::ipv4::{Ipv4Header, Ipv4Packet};
use bellows_wire::ipv6::Ipv6Header;
use bellows_wire::{IpPair, IpProtocol, MacAddr, Sum};
use proptest::prelude::*;

use super::*;
use crate::ipv6_link::AddressState;
use crate::policy::Policy;

fn domain() -> Arc<RoutingDomain> {
    let addresses = ["10.0.1.1", "2001:db8::1", "fe80::1"].map(|address| InterfaceAddress {
        address: address.parse().unwrap(),
        length: if address.contains(':') { 64 } else { 24 },
    });
    let interface = Interface {
        name: "a".to_owned(),
        port: "a".to_owned(),
        mac: MacAddr([2, 0, 0, 0, 0, 1]),
        mtu: 1500,
        tags: Vec::new(),
        addresses: addresses.to_vec(),
    };
    Arc::new(RoutingDomain::new(Vrf::new(vec![interface], 16, 1).unwrap()))
}

/// A packet of a protocol; an echo request if that is ICMP.
fn packet(source: &str, destination: &str, protocol: IpProtocol) -> Vec<u8> {
    let pair = IpPair::new(source.parse().unwrap(), destination.parse().unwrap()).unwrap();
    let at = if matches!(pair, IpPair::V4 { .. }) { 34 } else { 54 };
    let mut frame = vec![0x55; at + 24];
    if matches!(protocol, IpProtocol::ICMP | IpProtocol::ICMPV6) {
        Echo { reply: false, identifier: 7, sequence: 1 }.emit(&mut frame[at..], &pair).unwrap();
    }
    match pair {
        IpPair::V4 { src, dst } => {
            let (ttl, traffic_class, identification, dont_fragment) = (5, 0, 1, false);
            let header = Ipv4Header { src, dst, protocol, ttl, traffic_class, identification, dont_fragment };
            header.emit(&mut frame[14..]).unwrap();
        }
        IpPair::V6 { src, dst } => {
            let (hop_limit, traffic_class, flow_label) = (5, 0, 0);
            let header = Ipv6Header { src, dst, next_header: protocol, hop_limit, traffic_class, flow_label };
            header.emit(&mut frame[14..]).unwrap();
        }
    }
    frame
}

/// Where a packet goes, and what it is then: the output, or the reason for its drop.
fn fate<F: Family>(outputs: &[&str], frame: &[u8]) -> (String, Vec<u8>) {
    let mut rig = Rig::new(Local::<F>::new(domain()), &["input"], outputs);
    let mut packet = Packet::from_bytes(frame).unwrap();
    packet.set_tag(Tag::received_on(1).0);
    rig.send_packets("input", [packet]);
    rig.settle();
    let sent = outputs.iter().find_map(|output| Some(((*output).to_owned(), rig.received(output).pop()?)));
    sent.unwrap_or_else(|| {
        let dropped = rig.counts().drops.into_iter().find(|(_, count)| *count > 0).unwrap();
        (dropped.0, Vec::new())
    })
}

#[test]
fn echo_requests_are_answered() {
    let (output, reply) = fate::<V4>(&["output"], &packet("10.0.1.9", "10.0.1.1", IpProtocol::ICMP));
    let view = Ipv4Packet::new_checked(&reply[14..]).unwrap();
    assert_eq!(
        (&*output, view.src(), view.dst(), view.ttl()),
        ("output", [10, 0, 1, 1].into(), [10, 0, 1, 9].into(), 64)
    );
    assert_eq!((Sum::new().add_bytes(view.header()).finish(), Sum::new().add_bytes(view.payload()).finish()), (0, 0));
    assert_eq!((view.payload()[0], &view.payload()[4..]), (0, &packet("10.0.1.9", "10.0.1.1", IpProtocol::ICMP)[38..]));
    let (output, reply) = fate::<V6>(&["output"], &packet("2001:db8::9", "2001:db8::1", IpProtocol::ICMPV6));
    let view = Ipv6Packet::new_checked(&reply[14..]).unwrap();
    let sum = view.addresses().pseudo_header(IpProtocol::ICMPV6, view.payload().len()).add_bytes(view.payload());
    assert_eq!((&*output, view.payload()[0], sum.finish(), view.hop_limit()), ("output", 129, 0, 64));
    assert_eq!(view.src().to_string(), "2001:db8::1");
}

/// An echo request of IPv4 with options.
fn with_options(options: &[u8]) -> Vec<u8> {
    let mut frame = packet("10.0.1.9", "10.0.1.1", IpProtocol::ICMP);
    frame.splice(34..34, options.iter().copied());
    let (length, header) = ((frame.len() - 14) as u16, 20 + options.len());
    frame[14] = 0x40 + (header / 4) as u8;
    frame[16..18].copy_from_slice(&length.to_be_bytes());
    bellows_common::ipv4_options::fill_checksum(&mut frame[14..14 + header]);
    frame
}

#[test]
fn replies_record_the_router_in_the_options_of_requests() {
    let route = [148, 4, 0, 0, 7, 11, 8, 9, 9, 9, 9, 0, 0, 0, 0, 0];
    let (output, reply) = fate::<V4>(&["output"], &with_options(&route));
    let view = Ipv4Packet::new_checked(&reply[14..]).unwrap();
    let sums = [view.header(), view.payload()].map(|bytes| Sum::new().add_bytes(bytes).finish());
    assert_eq!((&*output, view.payload()[0], sums), ("output", 0, [0, 0]));
    assert_eq!(view.header()[20..], [1, 1, 1, 1, 7, 11, 12, 9, 9, 9, 9, 10, 0, 1, 1, 1]);
    let (_, reply) = fate::<V4>(&["output"], &with_options(&[68, 12, 5, 3, 10, 0, 1, 1, 0, 0, 0, 0]));
    assert_eq!(reply[36], 13, "an address that the sender has listed");
}

#[test]
fn options_that_cannot_be_filled_in_are_told() {
    let frame = with_options(&[7, 7, 5, 0, 0, 0, 0, 0]);
    assert_eq!(fate::<V4>(&["output", "error"], &frame).0, "error");
    assert_eq!(fate::<V4>(&["output"], &frame).0, "bad_options");
}

#[test]
fn nobody_else_has_an_address_of_the_router_or_of_all() {
    let sources = |frame: Vec<u8>, interface: u16, is_v4: bool| {
        let outputs = ["output", "link", "punt", "nd"];
        let domain = domain();
        let mut rig = if is_v4 {
            Rig::new(Local::<V4>::new(domain), &["input"], &outputs)
        } else {
            Rig::new(Local::<V6>::new(domain), &["input"], &outputs)
        };
        let mut packet = Packet::from_bytes(&frame).unwrap();
        packet.set_tag(Tag::received_on(interface).0);
        rig.send_packets("input", [packet]);
        rig.settle();
        rig.counts().drops["src_martian"]
    };
    for (source, protocol) in [
        ("10.0.1.1", IpProtocol::ICMP),
        ("10.0.1.1", IpProtocol::TCP),
        ("10.0.1.255", IpProtocol::UDP),
        ("10.0.1.255", IpProtocol(89)),
    ] {
        assert_eq!(sources(packet(source, "10.0.1.1", protocol), 1, true), 1, "{source}");
        assert_eq!(sources(packet(source, "10.0.1.1", protocol), 0, true), 0, "the router itself may");
    }
    assert_eq!(sources(packet("10.0.1.1", "224.0.0.5", IpProtocol(89)), 1, true), 1, "the router's own came back");
    assert_eq!(sources(packet("10.0.1.9", "10.0.1.1", IpProtocol::UDP), 1, true), 0);
    for source in ["2001:db8::1", "fe80::1"] {
        assert_eq!(sources(packet(source, "2001:db8::1", IpProtocol::ICMPV6), 1, false), 1, "{source}");
        let mut solicitation = packet(source, "2001:db8::1", IpProtocol::ICMPV6);
        solicitation[54] = 135;
        assert_eq!(sources(solicitation, 1, false), 0, "duplicates are found by it");
    }
    for source in ["2001:db8::9", "fe80::9"] {
        assert_eq!(sources(packet(source, "2001:db8::1", IpProtocol::UDP), 1, false), 0, "{source}");
    }
}

#[test]
fn the_rest_is_punted_told_or_dropped_by_name() {
    let (all, none) = (&["output", "punt", "error", "nd"][..], &["output"][..]);
    let told = &["output", "error"][..];
    let linked = &["output", "link"][..];
    let mut wrong_sum = packet("10.0.1.9", "10.0.1.1", IpProtocol::ICMP);
    wrong_sum[40] ^= 1;
    let mut fragment = packet("10.0.1.9", "10.0.1.1", IpProtocol::UDP);
    fragment[20] |= 0x20;
    let udp = packet("10.0.1.9", "10.0.1.1", IpProtocol::UDP);
    for (outputs, frame, expected) in [
        (all, udp.clone(), "punt"),
        (told, udp.clone(), "error"),
        (none, udp, "unserved"),
        (told, packet("10.0.1.9", "10.0.1.255", IpProtocol::UDP), "unserved"),
        (told, packet("10.0.1.9", "10.0.1.1", IpProtocol(89)), "error"),
        (told, packet("10.0.1.9", "224.0.0.5", IpProtocol(89)), "unserved"),
        (all, packet("10.0.1.9", "224.0.0.5", IpProtocol(89)), "punt"),
        (all, packet("10.0.1.9", "10.0.1.255", IpProtocol::ICMP), "echo_to_multicast"),
        (all, packet("240.0.0.1", "10.0.1.1", IpProtocol::ICMP), "echo_to_multicast"),
        (all, wrong_sum, "bad_checksum"),
        (all, fragment.clone(), "punt"),
        (told, fragment, "fragment"),
        (all, vec![0; 20], "malformed"),
    ] {
        assert_eq!(fate::<V4>(outputs, &frame).0, expected, "{frame:02x?}");
    }
    let mut solicitation = packet("2001:db8::9", "ff02::1:ff00:1", IpProtocol::ICMPV6);
    solicitation[54] = 135;
    let pair = IpPair::new("2001:db8::9".parse().unwrap(), "ff02::1:ff00:1".parse().unwrap()).unwrap();
    IcmpMessage::new_checked(&mut solicitation[54..]).unwrap().fill_checksum(&pair);
    for (outputs, frame, expected) in [
        (all, solicitation.clone(), "nd"),
        (told, solicitation, "unserved"),
        (all, packet("fe80::9", "fe80::2", IpProtocol::ICMPV6), "link_local"),
        (all, packet("fe80::9", "fe80::1", IpProtocol::ICMPV6), "output"),
        (linked, packet("fe80::9", "fe80::1", IpProtocol::ICMPV6), "link"),
        (linked, packet("fe80::9", "2001:db8::1", IpProtocol::ICMPV6), "link"),
        (linked, packet("2001:db8::9", "2001:db8::1", IpProtocol::ICMPV6), "output"),
        (told, packet("2001:db8::9", "2001:db8::1", IpProtocol::TCP), "error"),
        (told, packet("2001:db8::9", "2001:db8::1", IpProtocol(59)), "unserved"),
        (all, packet("2001:db8::9", "ff02::1", IpProtocol::ICMPV6), "echo_to_multicast"),
        (all, packet("::", "2001:db8::1", IpProtocol::ICMPV6), "echo_to_multicast"),
    ] {
        assert_eq!(fate::<V6>(outputs, &frame).0, expected, "{frame:02x?}");
    }
}

/// An echo request behind extension headers: each one's kind and the bytes behind its first one.
fn behind(headers: &[(IpProtocol, &[u8])]) -> Vec<u8> {
    of_protocol(IpProtocol::ICMPV6, headers)
}

/// A packet of another protocol behind extension headers.
fn of_protocol(protocol: IpProtocol, headers: &[(IpProtocol, &[u8])]) -> Vec<u8> {
    let mut frame = packet("2001:db8::9", "2001:db8::1", protocol);
    let mut next = protocol;
    for (kind, rest) in headers.iter().rev() {
        frame.splice(54..54, [&[next.0][..], rest].concat());
        next = *kind;
    }
    let length = (frame.len() - 54) as u16;
    frame[18..20].copy_from_slice(&length.to_be_bytes());
    frame[20] = next.0;
    frame
}

const PADDING: &[u8] = &[0, 1, 4, 0, 0, 0, 0];
const HOP_BY_HOP: (IpProtocol, &[u8]) = (IpProtocol::IPV6_HOP_BY_HOP, PADDING);
const FOR_DESTINATION: (IpProtocol, &[u8]) = (IpProtocol::IPV6_DESTINATION, PADDING);
/// A routing header without further hops.
const ROUTED: (IpProtocol, &[u8]) = (IpProtocol::IPV6_ROUTE, &[0, 4, 0, 0, 0, 0, 0]);

#[test]
fn echo_requests_behind_extension_headers_are_answered_without_them() {
    let long = [&[1, 1, 12][..], &[0; 12]].concat();
    let plain = fate::<V6>(&["output", "punt"], &behind(&[]));
    assert_eq!((&*plain.0, plain.1.len(), plain.1[20]), ("output", 54 + 24, IpProtocol::ICMPV6.0));
    for headers in [
        &[HOP_BY_HOP][..],
        &[FOR_DESTINATION],
        &[(IpProtocol::IPV6_DESTINATION, &long)],
        &[ROUTED],
        &[HOP_BY_HOP, FOR_DESTINATION, ROUTED, FOR_DESTINATION],
        // Those that are not known, and may be skipped.
        &[(IpProtocol::IPV6_DESTINATION, &[0, 0x3e, 4, 0, 0, 0, 0])],
    ] {
        assert_eq!(fate::<V6>(&["output", "punt"], &behind(headers)), plain, "{headers:?}");
        // What lies behind the packet does not count.
        let padded = [behind(headers), vec![0xaa; 9]].concat();
        let (output, reply) = fate::<V6>(&["output", "punt"], &padded);
        assert_eq!((&*output, &reply), ("output", &plain.1), "{headers:?}");
    }
}

#[test]
fn options_that_must_be_known_are_told() {
    let option = |kind| [0, kind, 4, 0, 0, 0, 0];
    let tag = |frame: &[u8]| {
        let mut rig = Rig::new(Local::<V6>::new(domain()), &["input"], &["output", "error"]);
        let mut packet = Packet::from_bytes(frame).unwrap();
        packet.set_tag(Tag::received_on(1).0);
        rig.send_packets("input", [packet]);
        rig.settle();
        let told = rig.received_packets("error").first().map(|packet| Tag(packet.tag()).number());
        (told.map(IcmpError::from_number), rig.counts().drops["bad_options"])
    };
    let unrecognized = |value| Some(IcmpError { reason: Reason::Unrecognized, value });
    for (kind, told) in [(0x5e, None), (0x9e, unrecognized(50)), (0xc9, unrecognized(50))] {
        let option = option(kind);
        let frame = behind(&[HOP_BY_HOP, (IpProtocol::IPV6_DESTINATION, &option)]);
        assert_eq!(tag(&frame), (told, u64::from(told.is_none())), "{kind:#x}");
        assert_eq!(fate::<V6>(&["output"], &frame).0, "bad_options", "nobody tells it");
    }
    // Those of other packets are looked at if no host does so.
    let unknown = option(0xbe);
    let frame = of_protocol(IpProtocol::UDP, &[(IpProtocol::IPV6_DESTINATION, &unknown)]);
    assert_eq!(tag(&frame).0, unrecognized(42));
    assert_eq!(fate::<V6>(&["output", "punt", "error"], &frame).0, "punt");
    let frame = of_protocol(IpProtocol(200), &[HOP_BY_HOP, FOR_DESTINATION]);
    assert_eq!(tag(&frame).0, Some(IcmpError { reason: Reason::ProtocolUnreachable, value: 48 }));
    // Hop-by-hop options behind another header: where that names them.
    let misplaced = |value| Some(IcmpError { reason: Reason::ProtocolUnreachable, value });
    assert_eq!(tag(&behind(&[FOR_DESTINATION, HOP_BY_HOP])), (misplaced(40), 0));
    assert_eq!(tag(&behind(&[HOP_BY_HOP, ROUTED, HOP_BY_HOP])), (misplaced(48), 0));
    assert_eq!(tag(&of_protocol(IpProtocol::UDP, &[HOP_BY_HOP, HOP_BY_HOP])), (misplaced(40), 0));
    assert_eq!(fate::<V6>(&["output"], &behind(&[HOP_BY_HOP, HOP_BY_HOP])).0, "bad_options", "nobody tells it");
    // An option that is longer than its header.
    let frame = behind(&[(IpProtocol::IPV6_DESTINATION, &[0, 1, 9, 0, 0, 0, 0])]);
    assert_eq!(tag(&frame).0, Some(IcmpError { reason: Reason::ParameterProblem, value: 42 }));
    // A header that is longer than the packet.
    let frame = behind(&[(IpProtocol::IPV6_DESTINATION, &[200, 1, 4, 0, 0, 0, 0])]);
    assert_eq!(fate::<V6>(&["output", "error"], &frame).0, "malformed");
}

#[test]
fn echo_requests_behind_extension_headers_have_the_same_limit() {
    let mut rig = Rig::new(Local::<V6>::new(domain()).answering(20), &["input"], &["output"]);
    for _ in 0..10 {
        let mut packet = Packet::from_bytes(&behind(&[FOR_DESTINATION])).unwrap();
        packet.set_tag(Tag::received_on(1).0);
        rig.send_packets("input", [packet]);
    }
    rig.settle();
    assert_eq!((rig.received("output").len(), rig.counts().drops["rate_limited"]), (2, 8));
}

#[test]
fn packets_with_a_routing_header_go_no_further() {
    // Type, length, segments left; the packet behind it is UDP.
    let routed = |kind: u8, left: u8, destination: &str, is_behind_options: bool| {
        let mut frame = packet("2001:db8::9", destination, IpProtocol::UDP);
        let mut header = [&[IpProtocol::UDP.0, 2, kind, left][..], &[0; 20]].concat();
        frame[20] = IpProtocol::IPV6_ROUTE.0;
        if is_behind_options {
            frame[20] = IpProtocol::IPV6_DESTINATION.0;
            header.splice(0..0, [IpProtocol::IPV6_ROUTE.0, 0, 1, 4, 0, 0, 0, 0]);
        }
        frame[18..20].copy_from_slice(&(24 + header.len() as u16).to_be_bytes());
        frame.splice(54..54, header);
        frame
    };
    let told = &["output", "error"][..];
    let tag = |frame: &[u8]| {
        let mut rig = Rig::new(Local::<V6>::new(domain()), &["input"], told);
        let mut packet = Packet::from_bytes(frame).unwrap();
        packet.set_tag(Tag::received_on(1).0);
        rig.send_packets("input", [packet]);
        rig.settle();
        IcmpError::from_number(Tag(rig.received_packets("error")[0].tag()).number())
    };
    // RFC 8200, section 4.4, and RFC 5095: the error points at the type.
    for kind in [0, 2, 4, 253] {
        let at = |value| IcmpError { reason: Reason::ParameterProblem, value };
        assert_eq!(tag(&routed(kind, 1, "2001:db8::1", false)), at(42));
        assert_eq!(tag(&routed(kind, 1, "2001:db8::1", true)), at(50));
        assert_eq!(tag(&routed(kind, 0, "2001:db8::1", false)), IcmpError::of(Reason::PortUnreachable));
    }
    for (outputs, destination, expected) in [
        (&["output"][..], "2001:db8::1", "routing_header"),
        (told, "ff02::1", "routing_header"),
        (&["output", "punt", "error"], "2001:db8::1", "punt"),
    ] {
        assert_eq!(fate::<V6>(outputs, &routed(0, 1, destination, false)).0, expected);
    }
}

#[test]
fn an_address_that_is_not_in_use_yet_is_not_answered_for_on_other_links() {
    let interface = |number: u8| Interface {
        name: format!("i{number}"),
        port: format!("i{number}"),
        mac: MacAddr([2, 0, 0, 0, 0, number]),
        mtu: 1500,
        tags: Vec::new(),
        addresses: vec![InterfaceAddress { address: format!("2001:db8:{number}::1").parse().unwrap(), length: 64 }],
    };
    let domain = Arc::new(RoutingDomain::new(Vrf::new(vec![interface(1), interface(2)], 16, 1).unwrap()));
    let mut rig = Rig::new(Local::<V6>::new(Arc::clone(&domain)), &["input"], &["output"]);
    let mut send = |received_on: u16| {
        let mut packet = Packet::from_bytes(&packet("2001:db8:1::9", "2001:db8:2::1", IpProtocol::ICMPV6)).unwrap();
        packet.set_tag(Tag::received_on(received_on).0);
        rig.send_packets("input", [packet]);
        rig.settle();
        (rig.received("output").len(), rig.counts().drops["tentative"])
    };
    use crate::ipv6_link::AddressState;
    domain.addresses().set(2, "2001:db8:2::1".parse().unwrap(), AddressState::Tentative);
    assert_eq!([send(1), send(2)], [(0, 1), (0, 2)]);
    domain.addresses().set(2, "2001:db8:2::1".parse().unwrap(), AddressState::Preferred);
    assert_eq!([send(1), send(2)], [(1, 2), (1, 2)]);
}

#[test]
fn a_full_link_answers_nothing() {
    let mut rig = Rig::new(Local::<V4>::new(domain()), &["one", "other"], &["output"]);
    for input in ["one", "other"] {
        let echo = packet("10.0.1.9", "10.0.1.1", IpProtocol::ICMP);
        rig.send_packets(
            input,
            (0..800).map(|_| {
                let mut packet = Packet::from_bytes(&echo).unwrap();
                packet.set_tag(Tag::received_on(1).0);
                packet
            }),
        );
    }
    rig.settle();
    let replies = rig.received("output").len();
    assert_eq!(rig.counts().counters["echo_replies_sent"], replies as u64);
    assert!(replies < 1600);
}

#[test]
fn the_address_of_all_routers_answers_as_one_of_them() {
    let (output, reply) = fate::<V6>(&["output"], &packet("2001:db8::9", "2001:db8::", IpProtocol::ICMPV6));
    let view = Ipv6Packet::new_checked(&reply[14..]).unwrap();
    assert_eq!(
        (&*output, view.src(), view.dst()),
        ("output", "2001:db8::1".parse().unwrap(), "2001:db8::9".parse().unwrap())
    );
    let sum = view.addresses().pseudo_header(IpProtocol::ICMPV6, view.payload().len()).add_bytes(view.payload());
    assert_eq!((sum.finish(), view.payload()[0]), (0, 129));
}

#[test]
fn echo_requests_for_the_host_stay_as_they_are() {
    for destination in ["2001:db8::", "2001:db8::1", "ff02::1"] {
        let mut rig = Rig::new(Local::<V6>::new(domain()).punting_echo(true), &["input"], &["output", "punt"]);
        let request = packet("2001:db8::9", destination, IpProtocol::ICMPV6);
        let mut sent = Packet::from_bytes(&request).unwrap();
        sent.set_tag(Tag::received_on(1).0);
        rig.send_packets("input", [sent]);
        rig.settle();
        assert_eq!(rig.received("punt"), [request], "{destination}");
    }
}

#[test]
fn replies_have_no_bytes_behind_the_packet() {
    for (source, destination, protocol) in
        [("10.0.1.9", "10.0.1.1", IpProtocol::ICMP), ("2001:db8::9", "2001:db8::1", IpProtocol::ICMPV6)]
    {
        let request = packet(source, destination, protocol);
        let padded = [&request[..], &[0xee; 10]].concat();
        let reply = |frame: &[u8]| match protocol {
            IpProtocol::ICMP => fate::<V4>(&["output"], frame),
            _ => fate::<V6>(&["output"], frame),
        };
        assert_eq!(reply(&padded), reply(&request));
        assert_eq!(reply(&padded).1.len(), request.len());
    }
}

/// Where a packet goes that one of two interfaces received, of which the first one has a device: each output, and the
/// interface in the packet's tag there.
fn fates_with_device<F: Family>(received_on: u16, punts_echo: bool, frame: &[u8]) -> Vec<(String, u16)> {
    fates_with_host::<F>(received_on, punts_echo, false, frame)
}

/// The same with a host whose kernel ignores router advertisements or not.
fn fates_with_host<F: Family>(received_on: u16, punts_echo: bool, ignores: bool, frame: &[u8]) -> Vec<(String, u16)> {
    let interface = |number: u8| Interface {
        name: format!("i{number}"),
        port: format!("i{number}"),
        mac: MacAddr([2, 0, 0, 0, 0, number]),
        mtu: 1500,
        tags: Vec::new(),
        addresses: [format!("10.0.{number}.1"), format!("2001:db8:{number}::1")]
            .map(|address| InterfaceAddress { address: address.parse().unwrap(), length: 24 })
            .to_vec(),
    };
    let vrf = Vrf::new(vec![interface(1), interface(2)], 16, 1).unwrap();
    let ignored = Ignored::default();
    ignored.set(ignores);
    let policy = Policy { host: Some("lan0".to_owned()), ignores_advertisements: Some(ignored), ..Policy::default() };
    let domain = Arc::new(RoutingDomain::with_policies(vrf, vec![policy, Policy::default()]));
    let outputs = ["output", "punt", "error", "nd"];
    let mut rig = Rig::new(Local::<F>::new(domain).punting_echo(punts_echo), &["input"], &outputs);
    let mut packet = Packet::from_bytes(frame).unwrap();
    packet.set_tag(Tag::received_on(received_on).0);
    rig.send_packets("input", [packet]);
    rig.settle();
    let sent = outputs.iter().flat_map(|output| {
        let packets = rig.received_packets(output);
        packets.into_iter().map(|packet| ((*output).to_owned(), Tag(packet.tag()).interface())).collect::<Vec<_>>()
    });
    sent.collect()
}

#[test]
fn the_host_gets_packets_through_the_device_of_an_interface() {
    let udp = |to: &str| packet("10.0.1.9", to, IpProtocol::UDP);
    let to = |output: &str, interface: u16| vec![(output.to_owned(), interface)];
    for (received_on, frame, expected) in [
        (1, udp("10.0.1.1"), to("punt", 1)),
        (1, udp("10.0.2.1"), to("punt", 1)),
        (2, udp("10.0.1.1"), to("punt", 1)),
        (2, udp("10.0.2.1"), to("error", 2)),
        (1, packet("10.0.1.9", "224.0.0.5", IpProtocol(89)), to("punt", 1)),
        (2, packet("10.0.1.9", "224.0.0.5", IpProtocol(89)), Vec::new()),
        (1, packet("10.0.1.9", "10.0.1.1", IpProtocol::ICMP), to("output", 0)),
    ] {
        assert_eq!(fates_with_device::<V4>(received_on, false, &frame), expected, "{received_on} {frame:02x?}");
    }
    let echo = packet("10.0.1.9", "10.0.1.1", IpProtocol::ICMP);
    assert_eq!(fates_with_device::<V4>(1, true, &echo), to("punt", 1));
    let other = packet("10.0.2.9", "10.0.2.1", IpProtocol::ICMP);
    assert_eq!(fates_with_device::<V4>(2, true, &other), to("output", 0), "there is no device");
    let link_local = packet("fe80::9", "fe80::77", IpProtocol::TCP);
    assert_eq!(fates_with_device::<V6>(1, false, &link_local), to("punt", 1));
    assert_eq!(fates_with_device::<V6>(2, false, &link_local), Vec::new());
}

#[test]
fn queries_for_multicast_groups_go_to_the_router_and_its_host() {
    // RFC 3810: a query behind a router alert.
    let (source, destination) = ("fe80::9", "ff02::1");
    let mut frame = packet(source, destination, IpProtocol::ICMPV6);
    frame[20] = IpProtocol::IPV6_HOP_BY_HOP.0;
    frame[18..20].copy_from_slice(&32_u16.to_be_bytes());
    frame.splice(54..54, mld::ROUTER_ALERT);
    frame[62] = mld::message_type::QUERY;
    let pair = IpPair::new(source.parse().unwrap(), destination.parse().unwrap()).unwrap();
    IcmpMessage::new_checked(&mut frame[62..]).unwrap().fill_checksum(&pair);
    let to = |outputs: &[&str]| outputs.iter().map(|output| ((*output).to_owned(), 1)).collect::<Vec<_>>();
    assert_eq!(fates_with_device::<V6>(1, false, &frame), to(&["punt", "nd"]));
    let other: Vec<String> = fates_with_device::<V6>(2, false, &frame).into_iter().map(|(output, _)| output).collect();
    assert_eq!(other, ["nd"], "the other interface has no device");
}

#[test]
fn the_host_hears_of_neighbours_as_far_as_it_has_to() {
    let discovery = |kind: u8, target: &str| {
        let (source, destination) = ("2001:db8:1::9", "ff02::1");
        let mut frame = packet(source, destination, IpProtocol::ICMPV6);
        frame[54] = kind;
        frame[62..78].copy_from_slice(&target.parse::<Ipv6Addr>().unwrap().octets());
        let pair = IpPair::new(source.parse().unwrap(), destination.parse().unwrap()).unwrap();
        IcmpMessage::new_checked(&mut frame[54..]).unwrap().fill_checksum(&pair);
        frame
    };
    let (own, other) = ("2001:db8:1::1", "2001:db8:1::77");
    for (kind, target, hears) in
        [(135, own, false), (135, other, true), (136, other, true), (133, other, true), (137, other, false)]
    {
        let outputs: Vec<String> =
            fates_with_device::<V6>(1, false, &discovery(kind, target)).into_iter().map(|(output, _)| output).collect();
        let expected: &[&str] = if hears { &["punt", "nd"] } else { &["nd"] };
        assert_eq!(outputs, expected, "{kind} {target}");
    }
    // A kernel must not configure itself by what any station says.
    let advertisement = discovery(134, other);
    for (ignores, expected) in [(false, &["nd"][..]), (true, &["punt", "nd"])] {
        let fates = fates_with_host::<V6>(1, false, ignores, &advertisement);
        assert_eq!(fates.iter().map(|(output, _)| output.as_str()).collect::<Vec<_>>(), expected);
    }
    assert_eq!(fates_with_host::<V6>(2, false, true, &advertisement).len(), 1, "the other interface has no device");
}

#[test]
fn echo_requests_beyond_the_limit_are_dropped() {
    for (echo, is_v6) in [
        (packet("10.0.1.9", "10.0.1.1", IpProtocol::ICMP), false),
        (packet("2001:db8::9", "2001:db8::1", IpProtocol::ICMPV6), true),
    ] {
        let mut rig = match is_v6 {
            false => Rig::new(Local::<V4>::new(domain()).answering(100), &["input"], &["output"]),
            true => Rig::new(Local::<V6>::new(domain()).answering(100), &["input"], &["output"]),
        };
        let answered = |rig: &mut Rig, time: u64| {
            rig.set_time(time);
            rig.send("input", std::iter::repeat_n(&echo, 50));
            rig.settle();
            rig.received("output").len()
        };
        let second = 1_000_000_000;
        // A tenth of a second's at once, then one in ten milliseconds.
        assert_eq!([second, second, second + second / 20].map(|time| answered(&mut rig, time)), [10, 0, 5]);
        assert_eq!(rig.counts().drops["rate_limited"], 135);
    }
}

/// Packets of a protocol to addresses of the router and to others, changed in a byte or cut.
fn any_packet() -> impl Strategy<Value = Packet> {
    let to = prop::sample::select(vec!["2001:db8::1", "fe80::1", "fe80::7", "ff02::1", "2001:db8::7"]);
    let change = prop_oneof![3 => Just(None), 1 => (14usize..78, any::<u8>()).prop_map(Some)];
    let cut = prop_oneof![5 => Just(78), 1 => 50usize..78];
    (to, 126u8..140, change, cut, 0u16..3).prop_map(|(to, kind, change, cut, interface)| {
        let mut frame = packet("2001:db8::9", to, IpProtocol::ICMPV6);
        frame[54] = kind;
        if let Some((at, byte)) = change {
            frame[at] = byte;
        }
        frame.truncate(cut);
        let mut packet = Packet::from_bytes(&frame).unwrap();
        packet.set_tag(Tag::received_on(interface).0);
        packet
    })
}

proptest! {
    #[test]
    fn a_glance_finds_the_discovery_that_a_closer_look_finds(
        packets in prop::collection::vec(any_packet(), 1..40),
        has_host in any::<bool>(),
    ) {
        let outputs = ["output", "punt", "error", "nd", "link"];
        let mut found = Vec::new();
        for glances in [true, false] {
            let interface = |number: u8, addresses: &[&str]| Interface {
                name: format!("i{number}"),
                port: format!("i{number}"),
                mac: MacAddr([2, 0, 0, 0, 0, number]),
                mtu: 1500,
                tags: Vec::new(),
                addresses: addresses
                    .iter()
                    .map(|address| InterfaceAddress { address: address.parse().unwrap(), length: 64 })
                    .collect(),
            };
            let all = vec![interface(1, &["2001:db8::1", "fe80::1"]), interface(2, &["fe80::1"]), interface(3, &["fe80::3"])];
            let vrf = Vrf::new(all, 16, 1).unwrap();
            let policy = Policy { host: has_host.then(|| "lan0".to_owned()), ..Policy::default() };
            let domain = Arc::new(RoutingDomain::with_policies(vrf, vec![policy, Policy::default(), Policy::default()]));
            if !glances {
                // An address that no packet has must not be used.
                domain.addresses().set(3, "fe80::3".parse().unwrap(), AddressState::Tentative);
            }
            let mut rig = Rig::new(Local::<V6>::new(domain), &["input"], &outputs);
            rig.set_time(1_000_000_000);
            rig.send_packets("input", packets.iter().map(|packet| packet.copy().unwrap()));
            rig.settle();
            let sent: Vec<Vec<Vec<u8>>> = outputs.iter().map(|output| rig.received(output)).collect();
            found.push((sent, rig.counts().drops));
        }
        prop_assert_eq!(&found[0], &found[1]);
    }
}
