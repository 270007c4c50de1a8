use bellows_rig::Rig;
use bellows_vrf::Vrf;
use bellows_wire::icmp::IcmpMessage;
use bellows_wire::ipv4::{Ipv4Header, Ipv4Packet};
use bellows_wire::ipv6::{Ipv6Header, Ipv6Packet};
use bellows_wire::{IpPair, IpProtocol, MacAddr, Sum};

use super::*;

fn domain(addresses: &[&str]) -> Arc<RoutingDomain> {
    let own = |address: &&str| InterfaceAddress {
        address: address.parse().unwrap(),
        length: if address.contains(':') { 64 } else { 24 },
    };
    let interface = Interface {
        name: "a".to_owned(),
        port: "a".to_owned(),
        mac: MacAddr([2, 0, 0, 0, 0, 1]),
        mtu: 1500,
        tags: Vec::new(),
        addresses: addresses.iter().map(own).collect(),
    };
    Arc::new(RoutingDomain::new(Vrf::new(vec![interface], 16, 1).unwrap()))
}

const ADDRESSES: [&str; 5] = ["10.0.1.1", "10.0.2.1", "2001:db8::1", "2001:db8:1::1", "fe80::1"];

/// A packet with `payload` bytes of payload, each of which is its number.
fn packet(source: &str, destination: &str, protocol: IpProtocol, payload: usize) -> Vec<u8> {
    let pair = IpPair::new(source.parse().unwrap(), destination.parse().unwrap()).unwrap();
    let at = if matches!(pair, IpPair::V4 { .. }) { 34 } else { 54 };
    let mut frame = vec![0; at];
    frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
    frame.extend((0..payload).map(|byte| byte as u8));
    match pair {
        IpPair::V4 { src, dst } => {
            let (ttl, traffic_class, identification, dont_fragment) = (1, 0, 9, true);
            let header = Ipv4Header { src, dst, protocol, ttl, traffic_class, identification, dont_fragment };
            header.emit(&mut frame[14..]).unwrap();
        }
        IpPair::V6 { src, dst } => {
            let (hop_limit, traffic_class, flow_label) = (1, 0, 0);
            let header = Ipv6Header { src, dst, next_header: protocol, hop_limit, traffic_class, flow_label };
            header.emit(&mut frame[14..]).unwrap();
        }
    }
    frame
}

fn rig<F: Family>(addresses: &[&str]) -> Rig {
    let mut rig = Rig::new(IcmpErrors::<F>::new(domain(addresses), 1_000, 50), &["input"], &["output"]);
    rig.set_time(1_000_000_000);
    rig
}

fn send(rig: &mut Rig, frame: &[u8], error: IcmpError) {
    let mut packet = Packet::from_bytes(frame).unwrap();
    packet.set_tag(Tag::received_on(1).with(error.number()).0);
    rig.send_packets("input", [packet]);
    rig.settle();
}

/// The answer to a packet, or the reason why there is none.
fn answer<F: Family>(addresses: &[&str], frame: &[u8], error: IcmpError) -> Result<Vec<u8>, String> {
    let mut rig = rig::<F>(addresses);
    send(&mut rig, frame, error);
    let drops = rig.counts().drops;
    match rig.received_packets("output").pop() {
        Some(answer) => {
            assert_eq!((Tag(answer.tag()).interface(), drops.values().sum::<u64>()), (0, 0));
            Ok(answer.bytes().to_vec())
        }
        None => Err(drops.into_iter().find(|(_, count)| *count > 0).unwrap().0),
    }
}

#[test]
fn errors_have_the_types_and_codes_of_the_rfcs() {
    for reason in Reason::ALL.into_iter().filter(|reason| *reason != Reason::Redirect) {
        let [v4, v6] = [reason.v4(), reason.v6()].map(|of| [of.kind, of.code]);
        let error = IcmpError { reason, value: 1400 };
        let frame = packet("10.0.2.9", "20.0.0.1", IpProtocol::UDP, 30);
        let answer4 = answer::<V4>(&ADDRESSES, &frame, error).unwrap();
        let view = Ipv4Packet::new_checked(&answer4[14..]).unwrap();
        assert_eq!(
            (view.src(), view.dst()),
            ([10, 0, 2, 1].into(), [10, 0, 2, 9].into()),
            "the address that the sender knows"
        );
        assert_eq!(
            (Sum::new().add_bytes(view.header()).finish(), Sum::new().add_bytes(view.payload()).finish()),
            (0, 0)
        );
        assert_eq!((view.traffic_class(), &view.payload()[..2], &view.payload()[8..]), (0xc0, &v4[..], &frame[14..]));
        let icmp = IcmpMessage::new_checked(view.payload()).unwrap();
        assert_eq!(icmp.sequence(), if reason == Reason::TooBig { 1400 } else { 0 });
        let frame = packet("2001:db8:7::9", "2001:db8:8::1", IpProtocol::UDP, 30);
        let answer6 = answer::<V6>(&ADDRESSES, &frame, error).unwrap();
        let view = Ipv6Packet::new_checked(&answer6[14..]).unwrap();
        let sum = view.addresses().pseudo_header(IpProtocol::ICMPV6, view.payload().len()).add_bytes(view.payload());
        assert_eq!(
            (view.src().to_string(), view.dst().to_string(), sum.finish()),
            ("2001:db8::1".into(), "2001:db8:7::9".into(), 0)
        );
        assert_eq!((&view.payload()[..2], &view.payload()[8..]), (&v6[..], &frame[14..]));
    }
}

#[test]
fn errors_of_ipv4_have_the_type_of_service_of_the_packet() {
    for (class, expected) in [(0, 0xc0), (0x10, 0xd0), (0xb8, 0xd8), (0xff, 0xdc), (0x03, 0xc0)] {
        let mut frame = packet("10.0.2.9", "20.0.0.1", IpProtocol::UDP, 8);
        frame[15] = class;
        let found = answer::<V4>(&ADDRESSES, &frame, IcmpError::of(Reason::NoRoute)).unwrap();
        assert_eq!(found[15], expected, "{class:#x}");
    }
}

#[test]
fn first_fragments_without_all_headers_are_answered() {
    let incomplete = IcmpError::of(Reason::IncompleteHeaders);
    // Options that go on behind the fragment; the fragment header comes first.
    let mut frame = packet("2001:db8:7::9", "2001:db8:8::1", IpProtocol::IPV6_FRAGMENT, 16);
    frame[54..70].copy_from_slice(&[60, 0, 0, 1, 0, 0, 0, 9, 17, 9, 1, 4, 0, 0, 0, 0]);
    let found = answer::<V6>(&ADDRESSES, &frame, incomplete).unwrap();
    assert_eq!(found[54..56], [4, 3]);
    assert_eq!(found[58..62], [0; 4], "the pointer");
    assert_eq!(answer::<V6>(&ADDRESSES, &frame, IcmpError::of(Reason::NoRoute)), Err("malformed".to_owned()));
    frame[54] = IpProtocol::ICMPV6.0;
    frame[62] = 3;
    assert_eq!(answer::<V6>(&ADDRESSES, &frame, incomplete), Err("about_icmp_error".to_owned()));
}

#[test]
fn errors_quote_as_much_as_fits() {
    let error = IcmpError::of(Reason::NoRoute);
    let frame = packet("10.0.1.9", "20.0.0.1", IpProtocol::UDP, 1400);
    let found = answer::<V4>(&ADDRESSES, &frame, error).unwrap();
    assert_eq!((found.len(), &found[14 + 28..]), (14 + 576, &frame[14..14 + 548]));
    let padded = [packet("10.0.1.9", "20.0.0.1", IpProtocol::UDP, 8), vec![7; 18]].concat();
    assert_eq!(answer::<V4>(&ADDRESSES, &padded, error).unwrap().len(), 14 + 28 + 28, "padding is not quoted");
    let frame = packet("2001:db8:7::9", "2001:db8:8::1", IpProtocol::UDP, 1400);
    let found = answer::<V6>(&ADDRESSES, &frame, error).unwrap();
    assert_eq!((found.len(), &found[14 + 48..]), (14 + 1280, &frame[14..14 + 1232]));
}

#[test]
fn link_local_senders_are_answered_from_a_link_local_address() {
    let frame = packet("fe80::9", "2001:db8:8::1", IpProtocol::UDP, 8);
    let found = answer::<V6>(&ADDRESSES, &frame, IcmpError::of(Reason::NoRoute)).unwrap();
    assert_eq!(Ipv6Packet::new_checked(&found[14..]).unwrap().src().to_string(), "fe80::1");
}

#[test]
fn some_packets_are_not_answered() {
    let udp = |source, destination| packet(source, destination, IpProtocol::UDP, 8);
    let icmp = |kind: u8, protocol, source, destination, at: usize| {
        let mut frame = packet(source, destination, protocol, 8);
        frame[at] = kind;
        frame
    };
    let mut fragment = udp("10.0.1.9", "20.0.0.1");
    fragment[21] = 2;
    let mut frame_to_many = udp("10.0.1.9", "20.0.0.1");
    frame_to_many[0] |= 1;
    let of = |kind| icmp(kind, IpProtocol::ICMP, "10.0.1.9", "20.0.0.1", 34);
    for (name, frame) in [
        ("about_icmp_error", of(3)),
        ("about_icmp_error", of(4)),
        ("about_icmp_error", of(5)),
        ("about_icmp_error", of(11)),
        ("about_icmp_error", of(12)),
        ("about_fragment", fragment),
        ("about_multicast", udp("10.0.1.9", "224.0.0.9")),
        ("about_multicast", udp("10.0.1.9", "255.255.255.255")),
        ("about_multicast", udp("10.0.1.9", "10.0.1.255")),
        ("about_multicast", frame_to_many),
        ("about_source", udp("10.0.1.255", "20.0.0.1")),
        ("about_source", udp("10.0.2.255", "20.0.0.1")),
        ("about_source", udp("10.0.2.1", "20.0.0.1")),
        ("about_source", udp("127.0.0.1", "20.0.0.1")),
        ("about_source", udp("0.0.0.0", "20.0.0.1")),
        ("about_source", udp("224.0.0.1", "20.0.0.1")),
        ("malformed", vec![2; 20]),
    ] {
        let found = answer::<V4>(&ADDRESSES, &frame, IcmpError::of(Reason::TimeExceeded));
        assert_eq!(found, Err(name.to_owned()), "{frame:02x?}");
    }
    assert!(
        answer::<V4>(&ADDRESSES, &of(8), IcmpError::of(Reason::TimeExceeded)).is_ok(),
        "echo requests are answered"
    );
    let of = |kind| icmp(kind, IpProtocol::ICMPV6, "2001:db8:7::9", "2001:db8:8::1", 54);
    let mut fragment = packet("2001:db8:7::9", "2001:db8:8::1", IpProtocol::IPV6_FRAGMENT, 16);
    fragment[54..58].copy_from_slice(&[17, 0, 0, 8]);
    for (name, frame) in [
        ("about_icmp_error", of(1)),
        ("about_icmp_error", of(127)),
        ("about_icmp_error", of(137)),
        ("about_multicast", udp("2001:db8:7::9", "ff05::1")),
        ("about_source", udp("ff05::1", "2001:db8:8::1")),
        ("about_source", udp("2001:db8::1", "2001:db8:8::1")),
        ("about_source", udp("::", "2001:db8:8::1")),
        ("malformed", vec![2; 20]),
    ] {
        let found = answer::<V6>(&ADDRESSES, &frame, IcmpError::of(Reason::TimeExceeded));
        assert_eq!(found, Err(name.to_owned()), "{frame:02x?}");
    }
    let later = answer::<V6>(&ADDRESSES, &fragment, IcmpError::of(Reason::TimeExceeded));
    assert!(later.is_ok(), "fragments of IPv6 are answered");
    let mut to_many = udp("2001:db8:7::9", "ff05::1");
    to_many[..6].copy_from_slice(&[0x33, 0x33, 0, 0, 0, 1]);
    assert!(answer::<V6>(&ADDRESSES, &to_many, IcmpError { reason: Reason::TooBig, value: 1280 }).is_ok());
    assert_eq!(
        answer::<V4>(&ADDRESSES[2..], &udp("10.0.1.9", "20.0.0.1"), IcmpError::of(Reason::NoRoute)),
        Err("no_address".to_owned())
    );
}

#[test]
fn the_rate_is_limited_and_a_pause_saves_a_burst() {
    let mut rig = rig::<V4>(&ADDRESSES);
    let frame = packet("10.0.1.9", "20.0.0.1", IpProtocol::UDP, 8);
    let mut flood = |time: u64| {
        rig.set_time(time);
        (0..100).for_each(|_| send(&mut rig, &frame, IcmpError::of(Reason::NoRoute)));
        rig.received("output").len()
    };
    let second = 1_000_000_000;
    assert_eq!([flood(second), flood(second), flood(second + second / 100)], [50, 0, 10]);
    assert_eq!(flood(10 * second), 50);
    assert_eq!(rig.counts().drops["rate_limited"], 50 + 100 + 90 + 50);
}

/// The domain with known neighbours of both families and routes through them.
fn rig_with_routes<F: Family>() -> Rig {
    let domain = domain(&ADDRESSES);
    let mut changes = domain.tables().lock();
    for route in ["20.0.0.0/8 via 10.0.1.9", "2001:db8:20::/48 via fe80::9 dev a"] {
        changes.add(&bellows_vrf::RouteSpec::parse(route).unwrap(), bellows_vrf::IfExists::Refuse).unwrap();
    }
    changes.resolve(1, "fe80::9".parse().unwrap(), MacAddr([4, 0, 0, 0, 0, 9])).unwrap();
    changes.commit().unwrap();
    drop(changes);
    let mut rig = Rig::new(IcmpErrors::<F>::new(domain, 10, 1), &["input"], &["output"]);
    rig.set_time(1_000_000_000);
    rig
}

#[test]
fn senders_are_told_a_better_first_hop() {
    let redirect = IcmpError::of(Reason::Redirect);
    let mut rig = rig_with_routes::<V4>();
    let about = packet("10.0.1.7", "20.1.2.3", IpProtocol::UDP, 30);
    send(&mut rig, &about, redirect);
    // Redirects do not use up the limit of errors.
    send(&mut rig, &about, IcmpError::of(Reason::TimeExceeded));
    send(&mut rig, &about, redirect);
    let sent = rig.received("output");
    let view = Ipv4Packet::new_checked(&sent[0][14..]).unwrap();
    assert_eq!((view.src(), view.dst()), ([10, 0, 1, 1].into(), [10, 0, 1, 7].into()));
    assert_eq!((&view.payload()[..2], &view.payload()[4..8]), (&[5, 1][..], &[10, 0, 1, 9][..]));
    assert_eq!((&view.payload()[8..], sent.len()), (&about[14..], 2));
    assert_eq!((Sum::new().add_bytes(view.payload()).finish(), rig.counts().drops["rate_limited"]), (0, 1));

    let mut rig = rig_with_routes::<V6>();
    let about = packet("2001:db8::7", "2001:db8:20::3", IpProtocol::UDP, 1400);
    send(&mut rig, &about, redirect);
    let sent = rig.received("output");
    let view = Ipv6Packet::new_checked(&sent[0][14..]).unwrap();
    let sum = view.addresses().pseudo_header(IpProtocol::ICMPV6, view.payload().len()).add_bytes(view.payload());
    assert_eq!((view.src().to_string(), view.dst().to_string()), ("fe80::1".to_owned(), "2001:db8::7".to_owned()));
    assert_eq!((view.hop_limit(), sum.finish()), (255, 0));
    assert!(sent[0].len() <= 14 + 1280 && sent[0].len() > 14 + 1280 - 8);
    let message = bellows_wire::ndp::Message::new_checked(view.payload()).unwrap();
    assert_eq!((message.kind(), message.target().to_string()), (137, "fe80::9".to_owned()));
    assert_eq!(view.payload()[24..40], about[38..54]);
    assert_eq!(message.link_layer(2), Some(MacAddr([4, 0, 0, 0, 0, 9])));
    let (_, quoted) = message.options().find(|(kind, _)| *kind == 4).unwrap();
    assert_eq!(quoted[8..], about[14..14 + quoted.len() - 8]);
    assert_eq!(rig.counts().counters["redirects_sent"], 1);
    // The route has gone meanwhile.
    send(&mut rig, &packet("2001:db8::7", "2001:db8:99::3", IpProtocol::UDP, 30), redirect);
    rig.set_time(9_000_000_000);
    send(&mut rig, &packet("2001:db8::7", "2001:db8:99::3", IpProtocol::UDP, 30), redirect);
    assert_eq!(rig.counts().drops["no_better_hop"], 1);
}

#[test]
fn errors_to_link_local_addresses_keep_their_interface() {
    let error = IcmpError::of(Reason::NoRoute);
    let mut rig = Rig::new(IcmpErrors::<V6>::new(domain(&ADDRESSES), 1_000, 50), &["input"], &["output", "link"]);
    send(&mut rig, &packet("fe80::7", "2001:db8:99::3", IpProtocol::UDP, 30), error);
    send(&mut rig, &packet("2001:db8::7", "2001:db8:99::3", IpProtocol::UDP, 30), error);
    let tags = |packets: Vec<Packet>| packets.iter().map(|packet| Tag(packet.tag()).interface()).collect::<Vec<_>>();
    assert_eq!((tags(rig.received_packets("link")), tags(rig.received_packets("output"))), (vec![1], vec![0]));
}

#[test]
fn addresses_that_must_not_be_used_send_no_errors() {
    use crate::ipv6_link::AddressState;
    let domain = domain(&["2001:db8::1"]);
    domain.addresses().set(1, "2001:db8::1".parse().unwrap(), AddressState::Tentative);
    let mut rig = Rig::new(IcmpErrors::<V6>::new(domain, 1_000, 50), &["input"], &["output"]);
    send(&mut rig, &packet("2001:db8::7", "2001:db8:99::3", IpProtocol::UDP, 30), IcmpError::of(Reason::NoRoute));
    assert_eq!((rig.received("output").len(), rig.counts().drops["no_address"]), (0, 1));
}

#[test]
fn another_address_sends_errors_in_place_of_one_that_must_not_be_used() {
    use crate::ipv6_link::AddressState;
    let domain = domain(&ADDRESSES);
    domain.addresses().set(1, "2001:db8::1".parse().unwrap(), AddressState::Duplicate);
    let mut rig = Rig::new(IcmpErrors::<V6>::new(domain, 1_000, 50), &["input"], &["output"]);
    send(&mut rig, &packet("2001:db8::7", "2001:db8:99::3", IpProtocol::UDP, 30), IcmpError::of(Reason::NoRoute));
    let sent = rig.received("output");
    assert_eq!(Ipv6Packet::new_checked(&sent[0][14..]).unwrap().src().to_string(), "2001:db8:1::1");
}

#[test]
fn a_sender_is_not_told_that_it_is_the_better_first_hop_itself() {
    let redirect = IcmpError::of(Reason::Redirect);
    let (mut v4, mut v6) = (rig_with_routes::<V4>(), rig_with_routes::<V6>());
    send(&mut v4, &packet("10.0.1.9", "20.1.2.3", IpProtocol::UDP, 30), redirect);
    send(&mut v6, &packet("fe80::9", "2001:db8:20::3", IpProtocol::UDP, 30), redirect);
    assert_eq!([v4, v6].map(|rig| rig.counts().drops["no_better_hop"]), [1, 1]);
}

#[test]
fn an_interface_without_an_address_has_errors_from_another_one() {
    use crate::ipv6_link::AddressState;
    use bellows_vrf::{IfExists, RouteSpec};
    let interface = |number: u8, addresses: &[&str]| Interface {
        name: format!("i{number}"),
        port: format!("i{number}"),
        mac: MacAddr([2, 0, 0, 0, 0, number]),
        mtu: 1500,
        tags: Vec::new(),
        addresses: addresses
            .iter()
            .map(|address| InterfaceAddress {
                address: address.parse().unwrap(),
                length: if address.contains(':') { 64 } else { 24 },
            })
            .collect(),
    };
    let interfaces = vec![
        interface(1, &["fe80::1"]),
        interface(2, &["169.254.1.1", "10.0.2.1", "fe80::2", "2001:db8:2::1"]),
        interface(3, &["10.0.3.1", "2001:db8:3::1"]),
    ];
    let vrf = Vrf::new(interfaces, 16, 1).unwrap();
    let mut changes = vrf.lock();
    for route in ["10.9.0.0/16 via 10.0.3.9", "2001:db8:9::/48 via 2001:db8:3::9"] {
        changes.add(&RouteSpec::parse(route).unwrap(), IfExists::Refuse).unwrap();
    }
    changes.commit().unwrap();
    drop(changes);
    let domain = Arc::new(RoutingDomain::new(vrf));
    let error = IcmpError::of(Reason::NoRoute);
    let source = |sender: &str| {
        let frame =
            packet(sender, if sender.contains(':') { "2001:db8:99::1" } else { "99.0.0.1" }, IpProtocol::UDP, 8);
        let (mut v4, mut v6) = (
            Rig::new(IcmpErrors::<V4>::new(Arc::clone(&domain), 1_000, 50), &["input"], &["output"]),
            Rig::new(IcmpErrors::<V6>::new(Arc::clone(&domain), 1_000, 50), &["input"], &["output"]),
        );
        let rig = if sender.contains(':') { &mut v6 } else { &mut v4 };
        send(rig, &frame, error);
        let sent = rig.received("output").pop()?;
        Some(match sent[14] >> 4 {
            4 => Ipv4Packet::new_checked(&sent[14..]).unwrap().src().to_string(),
            _ => Ipv6Packet::new_checked(&sent[14..]).unwrap().src().to_string(),
        })
    };
    // The interface that leads to the sender, or else the first one; link-local addresses are known on their links
    // alone.
    for (sender, expected) in [
        ("10.9.1.1", "10.0.3.1"),
        ("77.1.1.1", "10.0.2.1"),
        ("2001:db8:9::1", "2001:db8:3::1"),
        ("2001:db8:77::1", "2001:db8:2::1"),
        ("fe80::9", "fe80::1"),
    ] {
        assert_eq!(source(sender).as_deref(), Some(expected), "{sender}");
    }
    let set = |number, address: &str, state| domain.addresses().set(number, address.parse().unwrap(), state);
    set(3, "2001:db8:3::1", AddressState::Tentative);
    assert_eq!(source("2001:db8:9::1").as_deref(), Some("2001:db8:2::1"), "an address that may be used");
    set(2, "2001:db8:2::1", AddressState::Duplicate);
    assert_eq!(source("2001:db8:9::1"), None);
}

/// Errors about packets to the router come from the address that was asked (RFC 4443, section 2.2 (a)), of whichever
/// interface it is.
#[test]
fn errors_about_packets_to_the_router_come_from_the_address_that_was_asked() {
    use crate::ipv6_link::AddressState;
    let interface = |number: u8, local: &str| Interface {
        name: format!("i{number}"),
        port: format!("i{number}"),
        mac: MacAddr([2, 0, 0, 0, 0, number]),
        mtu: 1500,
        tags: Vec::new(),
        addresses: [format!("10.0.{number}.1"), format!("2001:db8:{number}::1"), local.to_owned()]
            .map(|address| InterfaceAddress {
                length: if address.contains(':') { 64 } else { 24 },
                address: address.parse().unwrap(),
            })
            .to_vec(),
    };
    let vrf = Vrf::new(vec![interface(1, "fe80::1"), interface(2, "fe80::2")], 16, 1).unwrap();
    let domain = Arc::new(RoutingDomain::new(vrf));
    let source = |sender: &str, asked: &str, reason| {
        let frame = packet(sender, asked, IpProtocol::UDP, 8);
        let rig = if sender.contains(':') {
            &mut Rig::new(IcmpErrors::<V6>::new(Arc::clone(&domain), 1_000, 50), &["input"], &["output", "link"])
        } else {
            &mut Rig::new(IcmpErrors::<V4>::new(Arc::clone(&domain), 1_000, 50), &["input"], &["output", "link"])
        };
        send(rig, &frame, IcmpError::of(reason));
        let [to_look_up, on_link] = ["output", "link"].map(|output| rig.received(output));
        let is_on_link = !on_link.is_empty();
        let sent = to_look_up.into_iter().chain(on_link).next().unwrap();
        let address = match sent[14] >> 4 {
            4 => Ipv4Packet::new_checked(&sent[14..]).unwrap().src().to_string(),
            _ => Ipv6Packet::new_checked(&sent[14..]).unwrap().src().to_string(),
        };
        (address, is_on_link)
    };
    for reason in [Reason::PortUnreachable, Reason::ReassemblyTimeExceeded, Reason::ParameterProblem] {
        for (sender, asked, expected) in [
            ("2001:db8:1::9", "2001:db8:2::1", ("2001:db8:2::1", false)),
            ("2001:db8:1::9", "2001:db8:1::1", ("2001:db8:1::1", false)),
            ("2001:db8:9::9", "2001:db8:2::1", ("2001:db8:2::1", false)),
            ("fe80::9", "2001:db8:2::1", ("2001:db8:2::1", true)),
            ("2001:db8:1::9", "fe80::1", ("fe80::1", true)),
            ("fe80::9", "fe80::1", ("fe80::1", true)),
            // Nothing can be sent from there to another link.
            ("2001:db8:9::9", "fe80::1", ("2001:db8:1::1", false)),
            ("2001:db8:1::9", "2001:db8:77::1", ("2001:db8:1::1", false)),
            ("10.0.1.9", "10.0.2.1", ("10.0.2.1", false)),
            ("10.0.1.9", "10.0.77.1", ("10.0.1.1", false)),
        ] {
            let (address, is_on_link) = source(sender, asked, reason);
            assert_eq!((&*address, is_on_link), expected, "{sender} to {asked}");
        }
    }
    domain.addresses().set(2, "2001:db8:2::1".parse().unwrap(), AddressState::Duplicate);
    assert_eq!(source("2001:db8:1::9", "2001:db8:2::1", Reason::PortUnreachable).0, "2001:db8:1::1");
}

#[test]
fn errors_for_which_a_link_has_no_room_do_not_count_as_sent() {
    let mut rig =
        Rig::new(IcmpErrors::<V4>::new(domain(&ADDRESSES), 1_000_000, 100_000), &["one", "other"], &["output"]);
    rig.set_time(1_000_000_000);
    let frame = packet("10.0.1.9", "20.0.0.1", IpProtocol::UDP, 8);
    for input in ["one", "other"] {
        rig.send_packets(
            input,
            (0..800).map(|_| {
                let mut packet = Packet::from_bytes(&frame).unwrap();
                packet.set_tag(Tag::received_on(1).with(IcmpError::of(Reason::NoRoute).number()).0);
                packet
            }),
        );
    }
    rig.settle();
    let sent = rig.received("output").len();
    assert_eq!(rig.counts().counters["unreachable_sent"], sent as u64);
    assert!(sent < 1600);
}

#[test]
fn the_router_itself_learns_which_of_its_packets_are_too_long() {
    let mut rig = rig::<V4>(&ADDRESSES);
    let frame = packet("10.0.2.1", "192.0.2.9", IpProtocol::GRE, 1_000);
    let send_own = |rig: &mut Rig, frame: &[u8], error: IcmpError| {
        let mut packet = Packet::from_bytes(frame).unwrap();
        packet.set_tag(Tag::received_on(0).with(error.number()).0);
        rig.send_packets("input", [packet]);
        rig.settle();
        rig.received("output")
    };
    let told = send_own(&mut rig, &frame, IcmpError { reason: Reason::TooBig, value: 900 }).remove(0);
    bellows_wire::verify_checksums(&told).unwrap();
    let header = Ipv4Packet::new_checked(&told[14..]).unwrap();
    assert_eq!([header.src().to_string(), header.dst().to_string()], ["10.0.2.1"; 2]);
    assert_eq!(told[34..42], [3, 4, told[36], told[37], 0, 0, 3, 132]);
    // Other errors have nobody to go to, and neither have those about packets of others.
    assert_eq!(send_own(&mut rig, &frame, IcmpError::of(Reason::NoRoute)), Vec::<Vec<u8>>::new());
    let other = packet("10.0.2.7", "192.0.2.9", IpProtocol::GRE, 1_000);
    assert_eq!(send_own(&mut rig, &other, IcmpError { reason: Reason::TooBig, value: 900 }), Vec::<Vec<u8>>::new());
    assert_eq!(rig.counts().drops["no_address"], 2);
}
