use bellows_rig::Rig;
use bellows_vrf::interface::InterfaceAddress;
use bellows_vrf::{IfExists, Interface, RouteSpec, Vrf};
use bellows_wire::MacAddr;

use super::*;

const MAC: MacAddr = MacAddr([4, 0, 0, 0, 0, 9]);

/// Interfaces `a` and `b`, with routes through known neighbours of `a`.
fn domain(redirects: bool) -> Arc<RoutingDomain> {
    let interface = |name: &str, number: u8| Interface {
        name: name.to_owned(),
        port: name.to_owned(),
        mac: MacAddr([2, 0, 0, 0, 0, number]),
        mtu: 1500,
        tags: Vec::new(),
        addresses: [format!("10.0.{number}.1"), format!("2001:db8:{number}::1"), "fe80::1".to_owned()]
            .map(|address| InterfaceAddress {
                length: if address.contains(':') { 64 } else { 24 },
                address: address.parse().unwrap(),
            })
            .to_vec(),
    };
    let vrf = Vrf::new(vec![interface("a", 1), interface("b", 2)], 16, 1).unwrap();
    let mut changes = vrf.lock();
    for route in [
        "20.0.0.0/8 via 10.0.1.9",
        "2001:db8:20::/48 via fe80::9 dev a",
        "2001:db8:21::/48 via 2001:db8:1::9",
        "21.0.0.0/8 via 10.0.2.9",
    ] {
        changes.add(&RouteSpec::parse(route).unwrap(), IfExists::Refuse).unwrap();
    }
    for (number, address) in [(1, "10.0.1.9"), (1, "fe80::9"), (1, "2001:db8:1::9"), (2, "10.0.2.9")] {
        changes.resolve(number, address.parse().unwrap(), MAC).unwrap();
    }
    changes.commit().unwrap();
    drop(changes);
    Arc::new(RoutingDomain::new(vrf).redirecting(vec![redirects; 2]))
}

/// A packet that interface `a` received, tagged with the adjacency of its destination.
fn packet(domain: &RoutingDomain, source: &str, destination: &str) -> Packet {
    let mut frame = vec![0; 74];
    if destination.contains(':') {
        frame[14] = 0x60;
        frame[19] = 20;
        frame[21] = 64;
        frame[22..38].copy_from_slice(&source.parse::<std::net::Ipv6Addr>().unwrap().octets());
        frame[38..54].copy_from_slice(&destination.parse::<std::net::Ipv6Addr>().unwrap().octets());
    } else {
        frame[14] = 0x45;
        frame[17] = 60;
        frame[22] = 64;
        frame[26..30].copy_from_slice(&source.parse::<std::net::Ipv4Addr>().unwrap().octets());
        frame[30..34].copy_from_slice(&destination.parse::<std::net::Ipv4Addr>().unwrap().octets());
    }
    let (_, route) = domain.tables().lock().look_up(destination.parse().unwrap()).unwrap();
    let mut packet = Packet::from_bytes(&frame).unwrap();
    packet.set_tag(Tag::received_on(1).with(route.next).0);
    packet
}

/// The errors about packets of a vector, all of which must be forwarded.
fn errors<F: Family>(redirects: bool, outputs: &[&str], source: &str, destination: &str, count: usize) -> Vec<Tag> {
    let domain = domain(redirects);
    let mut rig = Rig::new(Rewrite::<F>::new(Arc::clone(&domain)), &["input"], outputs);
    rig.send_packets("input", (0..count).map(|_| packet(&domain, source, destination)));
    rig.settle();
    let sent: usize = ["a", "b"].iter().map(|port| rig.received(port).len()).sum();
    assert_eq!(sent, count);
    if !outputs.contains(&"error") {
        return Vec::new();
    }
    rig.received_packets("error").iter().map(|packet| Tag(packet.tag())).collect()
}

#[test]
fn senders_on_the_link_of_the_next_hop_are_redirected() {
    let all = &["a", "b", "error"];
    let redirect = Tag::received_on(1).with(IcmpError::of(Reason::Redirect).number());
    assert_eq!(errors::<V4>(true, all, "10.0.1.7", "20.1.2.3", 300), [redirect], "one of a vector");
    assert_eq!(errors::<V4>(true, all, "10.0.1.7", "10.0.1.9", 1), [redirect]);
    assert_eq!(errors::<V6>(true, all, "2001:db8:1::7", "2001:db8:20::3", 1), [redirect]);
    assert_eq!(errors::<V6>(true, all, "2001:db8:1::7", "2001:db8:1::9", 1), [redirect]);
}

#[test]
fn ipv4_packets_have_next_hops_of_ipv6() {
    let domain = domain(true);
    let mut changes = domain.tables().lock();
    for route in ["22.0.0.0/8 via inet6 fe80::9 dev a", "23.0.0.0/8 via inet6 fe80::7 dev a"] {
        changes.add(&RouteSpec::parse(route).unwrap(), IfExists::Refuse).unwrap();
    }
    changes.commit().unwrap();
    drop(changes);
    let outputs = &["a", "b", "error", "resolve", "resolve6"];
    let mut rig = Rig::new(Rewrite::<V4>::new(Arc::clone(&domain)), &["input"], outputs);
    let packets = ["22.1.2.3", "23.1.2.3", "10.0.1.77"].map(|to| packet(&domain, "10.0.2.7", to));
    rig.send_packets("input", packets);
    rig.settle();
    let sent = rig.received("a");
    assert_eq!((sent.len(), &sent[0][..6], &sent[0][12..15]), (1, &MAC.0[..], &[8, 0, 0x45][..]));
    assert_eq!(["error", "resolve", "resolve6"].map(|output| rig.received(output).len()), [0, 1, 1]);
}

#[test]
fn nobody_else_is_redirected() {
    let all = &["a", "b", "error"][..];
    for (redirects, outputs, source, destination) in [
        (false, all, "10.0.1.7", "20.1.2.3"),
        (true, &["a", "b"][..], "10.0.1.7", "20.1.2.3"),
        (true, all, "10.0.1.7", "21.1.2.3"),
        (true, all, "10.0.3.7", "20.1.2.3"),
        (true, all, "10.0.1.9", "20.1.2.3"),
    ] {
        assert_eq!(errors::<V4>(redirects, outputs, source, destination, 3), [], "{source} to {destination}");
    }
    for (source, destination) in
        [("2001:db8:1::7", "2001:db8:21::3"), ("2001:db8:3::7", "2001:db8:20::3"), ("2001:db8:1::9", "2001:db8:1::9")]
    {
        assert_eq!(errors::<V6>(true, all, source, destination, 3), [], "{source} to {destination}");
    }
}

#[test]
fn a_packet_with_less_than_one_segment_is_as_long_as_it_is() {
    let domain = domain(false);
    let outputs = &["a", "b", "error", "resolve", "fragment"];
    let mut rig = Rig::new(Rewrite::<V4>::new(Arc::clone(&domain)), &["input"], outputs);
    // Nobody has asked for this neighbour, so that the packet is unusual. TCP without options, and 20 bytes of data.
    let mut packet = packet(&domain, "10.0.2.7", "10.0.1.77");
    packet.bytes_mut()[23] = 6;
    packet.bytes_mut()[46] = 0x50;
    packet.set_offload(Offload { gso_type: Offload::GSO_TCP4, segment_size: 9000, ..Offload::default() });
    rig.send_packets("input", [packet]);
    rig.settle();
    assert_eq!(outputs.map(|output| rig.received(output).len()), [0, 0, 0, 1, 0]);
}

#[test]
fn padding_makes_no_frame_longer_than_the_link_carries() {
    let domain = domain(false);
    let mut rig = Rig::new(Rewrite::<V4>::new(Arc::clone(&domain)), &["input"], &["a", "b"]);
    let mut packet = packet(&domain, "10.0.2.7", "20.1.2.3");
    packet.append(&[0xee; 1600]);
    rig.send_packets("input", [packet]);
    rig.settle();
    assert_eq!(rig.received("a").iter().map(Vec::len).collect::<Vec<usize>>(), [14 + 1500]);
}

/// The reasons reported about packets to a link of 1,500 bytes, each with this number of hops and bytes.
fn told<F: Family>(destination: &str, hops: u8, count: usize, dont_fragment: bool) -> Vec<Option<Reason>> {
    let domain = domain(false);
    let outputs = &["a", "b", "error", "fragment"];
    let mut rig = Rig::new(Rewrite::<F>::new(Arc::clone(&domain)), &["input"], outputs);
    let is_v6 = destination.contains(':');
    let long = |_| {
        let mut packet = packet(&domain, if is_v6 { "2001:db8:2::7" } else { "10.0.2.7" }, destination);
        packet.append(&[0; 1600]);
        let length = (packet.len() - if is_v6 { 54 } else { 14 }) as u16;
        let (at, hops_at) = if is_v6 { (18, 21) } else { (16, 22) };
        packet.bytes_mut()[at..at + 2].copy_from_slice(&length.to_be_bytes());
        packet.bytes_mut()[hops_at] = hops;
        if !is_v6 && dont_fragment {
            packet.bytes_mut()[20] = 0x40;
        }
        packet
    };
    rig.send_packets("input", (0..count).map(long));
    rig.settle();
    let reason = |packet: &Packet| Some(IcmpError::from_number(Tag(packet.tag()).number()).reason);
    let told: Vec<_> = rig.received_packets("error").iter().map(reason).collect();
    let fragments = rig.received("fragment").len();
    assert_eq!(told.len() + fragments, count);
    told.into_iter().chain((0..fragments).map(|_| None)).collect()
}

#[test]
fn the_time_of_a_packet_is_checked_before_its_length() {
    let destinations = ["20.1.2.3", "10.0.1.77", "2001:db8:20::3", "2001:db8:1::77"];
    for (destination, count) in destinations.into_iter().flat_map(|to| [(to, 1), (to, 100)]) {
        let is_v6 = destination.contains(':');
        let told = if is_v6 { told::<V6> } else { told::<V4> };
        for dont_fragment in [true, false] {
            let expected = vec![Some(Reason::TimeExceeded); count];
            assert_eq!(told(destination, 1, count, dont_fragment), expected, "{destination}");
            let other = if is_v6 || dont_fragment { Some(Reason::TooBig) } else { None };
            assert_eq!(told(destination, 2, count, dont_fragment), vec![other; count], "{destination}");
        }
    }
}

#[test]
fn fragments_are_sent_like_other_packets() {
    let domain = domain(false);
    let mut rig = Rig::new(Rewrite::<V4>::new(Arc::clone(&domain)), &["input", "fragments"], &["a", "b"]);
    rig.send_packets("fragments", (0..20).map(|_| packet(&domain, "10.0.2.7", "20.1.2.3")));
    rig.send_packets("input", [packet(&domain, "10.0.1.7", "21.1.2.3")]);
    rig.settle();
    let (a, b) = (rig.received("a"), rig.received("b"));
    assert_eq!((a.len(), b.len()), (20, 1));
    assert!(a.iter().chain(&b).all(|frame| frame[..6] == MAC.0 && frame[22] == 63), "one hop each");
}

#[test]
fn what_comes_from_a_link_local_address_may_stay_on_its_link() {
    let all = &["a", "b", "error"][..];
    let redirect = Tag::received_on(1).with(IcmpError::of(Reason::Redirect).number());
    // RFC 4291, section 2.5.6, forbids to leave the link alone.
    assert_eq!(errors::<V6>(false, all, "fe80::7", "2001:db8:20::3", 3), []);
    assert_eq!(errors::<V6>(true, all, "fe80::7", "2001:db8:20::3", 3), [redirect]);
    assert_eq!(errors::<V6>(true, all, "fe80::9", "2001:db8:20::3", 3), [], "it is the next hop itself");
    let domain = domain(false);
    let mut rig = Rig::new(Rewrite::<V6>::new(Arc::clone(&domain)), &["input"], all);
    let mut last_hop = packet(&domain, "fe80::7", "2001:db8:20::3");
    last_hop.bytes_mut()[21] = 1;
    rig.send_packets("input", [packet(&domain, "fe80::7", "2001:db8:20::3"), last_hop]);
    rig.settle();
    let sent = rig.received("a");
    assert_eq!((sent.len(), &sent[0][..6], sent[0][21]), (1, &MAC.0[..], 63), "a hop less");
    let told = Tag::received_on(1).with(IcmpError::of(Reason::TimeExceeded).number());
    assert_eq!(rig.received_packets("error").iter().map(|packet| Tag(packet.tag())).collect::<Vec<_>>(), [told]);
    assert_eq!(rig.counts().drops["source_scope"], 0);
}

#[test]
fn who_sends_from_a_link_local_address_beyond_the_link_is_told() {
    let domain = domain(false);
    let told = Tag::received_on(1).with(IcmpError::of(Reason::BeyondScope).number());
    // Of another link, which the packet would leave, there is one route.
    let mut changes = domain.tables().lock();
    changes.add(&RouteSpec::parse("2001:db8:30::/48 via 2001:db8:2::9").unwrap(), IfExists::Refuse).unwrap();
    changes.commit().unwrap();
    drop(changes);
    for (source, outputs, expected) in [
        ("fe80::7", &["a", "b", "error"][..], Some(told)),
        ("fe80::7", &["a", "b"][..], None),
        ("::", &["a", "b", "error"], None),
        ("::1", &["a", "b", "error"], None),
        ("ff02::1", &["a", "b", "error"], None),
    ] {
        let mut rig = Rig::new(Rewrite::<V6>::new(Arc::clone(&domain)), &["input"], outputs);
        rig.send_packets("input", [packet(&domain, source, "2001:db8:30::3")]);
        rig.settle();
        let error = if outputs.len() > 2 { rig.received_packets("error") } else { Vec::new() };
        assert_eq!(error.first().map(|packet| Tag(packet.tag())), expected, "{source} {outputs:?}");
        assert_eq!(rig.counts().drops["source_scope"], u64::from(expected.is_none()), "{source} {outputs:?}");
    }
    let mut rig = Rig::new(Rewrite::<V4>::new(Arc::clone(&domain)), &["input"], &["a", "b", "error"]);
    rig.send_packets("input", [packet(&domain, "169.254.1.1", "21.1.2.3")]);
    rig.settle();
    assert_eq!(rig.counts().drops["source_scope"], 1, "RFC 3927, section 2.7: nobody is told");
}
