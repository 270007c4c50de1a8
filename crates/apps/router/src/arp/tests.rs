use bellows_rig::Rig;
use bellows_vrf::interface::{InterfaceAddress, VlanTag};
use bellows_vrf::{IfExists, RouteSpec, Vrf};
use proptest::prelude::*;
use serde_json::json;

use super::*;

use bellows_rig::EventLog;

use crate::forwarding::conflicts::PAUSE;
use crate::policy::Policy;

pub(super) const SECOND: u64 = 1_000_000_000;
pub(super) const OWN: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
pub(super) const HOST: MacAddr = MacAddr([4, 0, 0, 0, 0, 9]);

/// Interfaces `a` with 10.0.1.1/24 and `five`, VLAN 5 of port `b`, with 10.0.2.1/24; a route through 10.0.2.9.
fn domain() -> Arc<RoutingDomain> {
    let interface = |name: &str, port: &str, number: u8, tags: Vec<VlanTag>| Interface {
        name: name.to_owned(),
        port: port.to_owned(),
        mac: OWN,
        mtu: 1500,
        tags,
        addresses: vec![InterfaceAddress { address: Ipv4Addr::new(10, 0, number, 1).into(), length: 24 }],
    };
    let five = VlanTag { protocol: 0x8100, id: 5 };
    let vrf = Vrf::new(vec![interface("a", "a", 1, vec![]), interface("five", "b", 2, vec![five])], 16, 1).unwrap();
    let mut changes = vrf.lock();
    changes.add(&RouteSpec::parse("20.0.0.0/8 via 10.0.2.9").unwrap(), IfExists::Refuse).unwrap();
    changes.commit().unwrap();
    drop(changes);
    Arc::new(RoutingDomain::new(vrf))
}

/// A rig whose announcements are taken out already.
fn rig(domain: &Arc<RoutingDomain>, proxy: &[u16], outputs: &[&str]) -> Rig {
    let mut arp = Arp::new(Arc::clone(domain), NeighbourLimits::default());
    arp.proxy = proxy.to_vec();
    let mut rig = Rig::new(arp, &["input", "resolve"], outputs);
    rig.set_time(SECOND);
    rig.settle();
    for (output, count) in [("a", 1), ("b", 1)] {
        assert_eq!(rig.received(output).len(), count, "an announcement");
    }
    rig
}

/// An ARP packet that an interface received.
pub(super) fn arp(interface: u16, operation: ArpOperation, mac: MacAddr, sender: [u8; 4], target: [u8; 4]) -> Packet {
    let mut frame = [[0xff; 6], mac.0].concat();
    frame.extend([0x08, 0x06]);
    frame.resize(60, 0);
    let header = ArpHeader {
        operation,
        sender_mac: mac,
        sender_ip: sender.into(),
        target_mac: MacAddr::default(),
        target_ip: target.into(),
    };
    header.emit(&mut frame[14..]).unwrap();
    let mut packet = Packet::from_bytes(&frame).unwrap();
    packet.set_tag(Tag::received_on(interface).0);
    packet
}

/// A packet from interface 1 to a destination, tagged with the adjacency that its route leads to.
fn packet(domain: &RoutingDomain, destination: [u8; 4]) -> Packet {
    let changes = domain.tables().lock();
    let (_, route) = changes.look_up(IpAddr::from(destination)).unwrap();
    let mut frame = vec![0; 60];
    frame[12] = 8;
    frame[30..34].copy_from_slice(&destination);
    let mut packet = Packet::from_bytes(&frame).unwrap();
    packet.set_tag(Tag::received_on(1).with(route.next).0);
    packet
}

/// The drops of a rig that are not zero.
fn drops(rig: &Rig) -> Vec<(String, u64)> {
    rig.counts().drops.into_iter().filter(|(_, count)| *count > 0).collect()
}

pub(super) fn parsed(frame: &[u8], header: usize) -> (ArpOperation, MacAddr, Ipv4Addr, MacAddr, Ipv4Addr) {
    let view = ArpPacket::new_checked(&frame[header..]).unwrap();
    (view.operation(), view.sender_mac(), view.sender_ip(), view.target_mac(), view.target_ip())
}

#[test]
fn questions_for_the_router_are_answered_and_their_senders_known() {
    let domain = domain();
    let mut rig = rig(&domain, &[], &["a", "b"]);
    rig.send_packets("input", [arp(1, ArpOperation::REQUEST, HOST, [10, 0, 1, 7], [10, 0, 1, 1])]);
    rig.settle();
    let sent = rig.received("a");
    assert_eq!((sent.len(), &sent[0][..6], sent[0].len()), (1, &HOST.0[..], 60));
    let reply = (ArpOperation::REPLY, OWN, Ipv4Addr::new(10, 0, 1, 1), HOST, Ipv4Addr::new(10, 0, 1, 7));
    assert_eq!(parsed(&sent[0], 14), reply);
    let found = domain.tables().lock().look_up(IpAddr::from([10, 0, 1, 7])).unwrap().1.next;
    assert_eq!(domain.tables().adjacencies().get(found).unwrap().header[..6], HOST.0);
    let neighbours = rig.status().unwrap();
    assert_eq!(neighbours["neighbours"][0]["address"], "10.0.1.7");
    assert_eq!(neighbours["neighbours"][0]["state"], "reachable");
    assert_eq!(drops(&rig), []);
}

#[test]
fn packets_wait_for_a_neighbour_and_follow_its_answer() {
    let domain = domain();
    let mut rig = rig(&domain, &[], &["a", "b"]);
    rig.send_packets("resolve", (0..5).map(|number| packet(&domain, [20, 1, 2, number])));
    rig.settle();
    let asked = rig.received("b");
    assert_eq!((asked.len(), &asked[0][12..18]), (1, &[0x81, 0x00, 0, 5, 0x08, 0x06][..]));
    let question =
        (ArpOperation::REQUEST, OWN, Ipv4Addr::new(10, 0, 2, 1), MacAddr::default(), Ipv4Addr::new(10, 0, 2, 9));
    assert_eq!(parsed(&asked[0], 18), question);
    assert_eq!((rig.counts().held, drops(&rig)), (3, vec![("waiting_full".to_owned(), 2)]));
    rig.send_packets("input", [arp(2, ArpOperation::REPLY, HOST, [10, 0, 2, 9], [10, 0, 2, 1])]);
    rig.settle();
    let sent = rig.received("b");
    assert_eq!((sent.len(), rig.counts().held), (3, 0));
    assert!(sent.iter().all(|frame| frame[..6] == HOST.0 && frame[12..18] == [0x81, 0x00, 0, 5, 0x08, 0x00]));
    assert_eq!(sent.iter().map(|frame| frame[37]).collect::<Vec<_>>(), [2, 3, 4], "the last ones waited");
    assert_eq!(
        domain.tables().lock().look_up(IpAddr::from([10, 0, 2, 9])).map(|found| found.0.to_string()),
        Some("10.0.2.9/32".to_owned())
    );
    // It is asked again by its own address, and forgotten when it is silent.
    rig.set_time(40 * SECOND);
    rig.settle();
    assert_eq!(rig.received("b").iter().map(|frame| frame[..6].to_vec()).collect::<Vec<_>>(), [HOST.0.to_vec()]);
    for second in 41..44 {
        rig.set_time(second * SECOND);
        rig.settle();
    }
    assert_eq!((rig.received("b").len(), rig.counts().counters["expired"]), (2, 1));
    assert_eq!(
        domain.tables().lock().look_up(IpAddr::from([10, 0, 2, 9])).map(|found| found.0.to_string()),
        Some("10.0.2.0/24".to_owned())
    );
}

#[test]
fn neighbours_are_shown_as_they_are() {
    let domain = domain();
    let mut rig = rig(&domain, &[], &["a", "b"]);
    let shown = |rig: &Rig| {
        let neighbours = rig.status().unwrap()["neighbours"].take();
        let neighbours = neighbours.as_array().unwrap().iter();
        neighbours.map(|it| (it["state"].as_str().unwrap().to_owned(), it["waiting"].as_u64())).collect::<Vec<_>>()
    };
    for count in 1..=2 {
        rig.send_packets("resolve", [packet(&domain, [20, 1, 2, 3])]);
        rig.settle();
        assert_eq!(shown(&rig), [("incomplete".to_owned(), Some(count))]);
    }
    let answer = || arp(2, ArpOperation::REPLY, HOST, [10, 0, 2, 9], [10, 0, 2, 1]);
    rig.send_packets("input", [answer()]);
    rig.settle();
    assert_eq!(shown(&rig), [("reachable".to_owned(), Some(0))]);
    rig.set_time(32 * SECOND);
    rig.settle();
    assert_eq!(shown(&rig), [("probe".to_owned(), Some(0))]);
    rig.send_packets("input", [answer()]);
    rig.settle();
    assert_eq!(shown(&rig), [("reachable".to_owned(), Some(0))]);
    for second in 70..75 {
        rig.set_time(second * SECOND);
        rig.settle();
    }
    assert_eq!(shown(&rig), []);
}

#[test]
fn a_known_neighbour_that_the_tables_have_lost_returns_to_them() {
    let domain = domain();
    let mut rig = rig(&domain, &[], &["a", "b"]);
    rig.send_packets("input", [arp(1, ArpOperation::REQUEST, HOST, [10, 0, 1, 7], [10, 0, 1, 1])]);
    rig.settle();
    rig.received("a");
    let found = || domain.tables().lock().look_up(IpAddr::from([10, 0, 1, 7])).map(|found| found.0.to_string());
    assert_eq!(found(), Some("10.0.1.7/32".to_owned()));
    let mut changes = domain.tables().lock();
    changes.unresolve(1, IpAddr::from([10, 0, 1, 7]));
    changes.commit().unwrap();
    drop(changes);
    assert_eq!(found(), Some("10.0.1.0/24".to_owned()));
    rig.send_packets("resolve", [packet(&domain, [10, 0, 1, 7])]);
    rig.settle();
    assert_eq!(rig.received("a")[0][..6], HOST.0);
    assert_eq!(found(), Some("10.0.1.7/32".to_owned()));
}

#[test]
fn packets_to_silent_neighbours_are_answered_or_dropped() {
    for (outputs, is_told) in [(&["a", "b"][..], false), (&["a", "b", "error"], true)] {
        let domain = domain();
        let mut rig = rig(&domain, &[], outputs);
        rig.send_packets("resolve", [packet(&domain, [10, 0, 1, 77])]);
        rig.settle();
        for second in 2..6 {
            rig.set_time(second * SECOND);
            rig.settle();
        }
        assert_eq!(rig.received("a").len(), 3, "questions");
        if is_told {
            let tags: Vec<Tag> = rig.received_packets("error").iter().map(|packet| Tag(packet.tag())).collect();
            assert_eq!(tags, [Tag::received_on(1).with(IcmpError::of(Reason::HostUnreachable).number())]);
        } else {
            assert_eq!(drops(&rig), [("unresolved".to_owned(), 1)]);
        }
        assert_eq!(rig.counts().held, 0);
    }
}

#[test]
fn what_is_not_to_be_believed_is_dropped_by_name() {
    let request = ArpOperation::REQUEST;
    let mut other_source = arp(1, request, HOST, [10, 0, 1, 7], [10, 0, 1, 1]);
    other_source.bytes_mut()[6] = 6;
    let mut short = arp(1, request, HOST, [10, 0, 1, 7], [10, 0, 1, 1]);
    short.truncate(41);
    let mut other_protocol = arp(1, request, HOST, [10, 0, 1, 7], [10, 0, 1, 1]);
    other_protocol.bytes_mut()[16] = 9;
    for (name, packet) in [
        ("malformed", short),
        ("malformed", other_protocol),
        ("malformed", arp(1, ArpOperation(3), HOST, [10, 0, 1, 7], [10, 0, 1, 1])),
        ("l2_address_mismatch", other_source),
        ("l2_address_mismatch", arp(1, request, MacAddr([5; 6]), [10, 0, 1, 7], [10, 0, 1, 1])),
        ("l2_address_mismatch", arp(1, request, MacAddr::default(), [10, 0, 1, 7], [10, 0, 1, 1])),
        ("l3_src_address_not_local", arp(1, request, HOST, [127, 0, 0, 7], [10, 0, 1, 1])),
        ("l3_src_address_not_local", arp(1, request, HOST, [240, 0, 0, 7], [10, 0, 1, 1])),
        ("l3_src_address_not_local", arp(1, request, HOST, [10, 9, 0, 7], [10, 0, 1, 8])),
        ("l3_src_address_not_local", arp(1, request, HOST, [10, 9, 0, 7], [10, 9, 0, 7])),
        ("l3_src_address_not_local", arp(1, ArpOperation::REPLY, HOST, [10, 9, 0, 7], [10, 0, 1, 1])),
        ("l3_src_address_is_local", arp(1, request, HOST, [10, 0, 2, 1], [10, 0, 1, 1])),
        ("l3_src_address_is_local", arp(1, request, HOST, [10, 0, 2, 255], [10, 0, 1, 1])),
        ("l3_src_address_not_local", arp(1, request, HOST, [10, 0, 1, 255], [10, 0, 1, 1])),
        ("l3_src_address_not_local", arp(1, ArpOperation::REPLY, HOST, [0; 4], [10, 0, 1, 1])),
        ("l3_src_address_is_local", arp(1, request, HOST, [10, 0, 1, 1], [10, 0, 1, 7])),
        ("l3_dst_address_not_local", arp(1, request, HOST, [10, 0, 1, 7], [10, 0, 1, 8])),
        ("l3_dst_address_not_local", arp(1, request, HOST, [0; 4], [10, 0, 1, 8])),
        ("unasked", arp(1, ArpOperation::REPLY, HOST, [10, 0, 1, 7], [10, 0, 1, 1])),
        ("unasked", arp(1, request, HOST, [10, 0, 1, 7], [10, 0, 1, 7])),
    ] {
        let domain = domain();
        let mut rig = rig(&domain, &[], &["a", "b"]);
        let text = format!("{:02x?}", packet.bytes());
        rig.send_packets("input", [packet]);
        rig.settle();
        let replies = rig.counts().counters["replies_sent"];
        let is_reply_to_unasked = name == "unasked" || name == "l3_src_address_is_local";
        assert_eq!(drops(&rig), [(name.to_owned(), 1)], "{text}");
        assert!(replies == 0 || is_reply_to_unasked, "{text}");
    }
}

/// The domain, whose interfaces answer only stations on their links or others, too.
fn domain_of(strict_neighbours: bool) -> Arc<RoutingDomain> {
    let domain = Arc::into_inner(domain()).unwrap();
    domain.with_policies_of(vec![Policy { strict_neighbours, ..Policy::default() }; 2])
}

#[test]
fn who_asks_from_an_address_beyond_the_link_is_answered_and_not_learned() {
    let question = || arp(1, ArpOperation::REQUEST, HOST, [10, 9, 0, 7], [10, 0, 1, 1]);
    let mut rig = rig(&domain_of(false), &[], &["a", "b"]);
    rig.send_packets("input", [question()]);
    rig.settle();
    let sent = rig.received("a");
    let reply = (ArpOperation::REPLY, OWN, Ipv4Addr::new(10, 0, 1, 1), HOST, Ipv4Addr::new(10, 9, 0, 7));
    assert_eq!((sent.len(), parsed(&sent[0], 14)), (1, reply));
    assert_eq!(&sent[0][..6], &HOST.0);
    let counts = rig.counts();
    assert_eq!((counts.counters["off_link"], counts.counters["learned"], drops(&rig)), (1, 0, vec![]));
    assert_eq!(rig.status().unwrap()["neighbours"].as_array().map(Vec::len), Some(0));
    // A flood of such questions has a limit of its own.
    for _ in 0..3 {
        rig.send_packets("input", (0..100).map(|_| question()));
        rig.settle();
    }
    assert_eq!((rig.counts().counters["off_link"], drops(&rig)), (125, vec![("rate_limited".to_owned(), 176)]));
    rig.received("a");
    rig.send_packets("input", [arp(1, ArpOperation::REQUEST, HOST, [10, 0, 1, 7], [10, 0, 1, 1])]);
    rig.settle();
    assert_eq!(rig.received("a").len(), 1, "others are heard");
}

#[test]
fn a_strict_interface_answers_nobody_beyond_its_link() {
    let mut rig = rig(&domain_of(true), &[], &["a", "b"]);
    rig.send_packets("input", [arp(1, ArpOperation::REQUEST, HOST, [10, 9, 0, 7], [10, 0, 1, 1])]);
    rig.settle();
    assert_eq!((rig.received("a").len(), drops(&rig)), (0, vec![("l3_src_address_not_local".to_owned(), 1)]));
}

#[test]
fn addresses_are_defended_and_probes_answered() {
    let (domain, log) = (domain(), EventLog::begin());
    let mut rig = rig(&domain, &[], &["a", "b"]);
    let claims = || (0..3).map(|_| arp(1, ArpOperation::REQUEST, HOST, [10, 0, 1, 1], [10, 0, 1, 1]));
    rig.send_packets("input", claims());
    rig.settle();
    let duplicate = json!({
        "event": "duplicate-address", "app": "", "interface": "a", "address": "10.0.1.1", "station": HOST.to_string(),
    });
    assert_eq!(log.take(), std::slice::from_ref(&duplicate));
    let sent = rig.received("a");
    assert_eq!((sent.len(), &sent[0][..6]), (1, &[0xff; 6][..]), "once a second");
    rig.send_packets("input", [arp(1, ArpOperation::REQUEST, HOST, [0; 4], [10, 0, 1, 1])]);
    rig.settle();
    let reply = (ArpOperation::REPLY, OWN, Ipv4Addr::new(10, 0, 1, 1), HOST, Ipv4Addr::UNSPECIFIED);
    assert_eq!(parsed(&rig.received("a")[0], 14), reply);
    assert_eq!(rig.status().unwrap()["neighbours"].as_array().map(Vec::len), Some(0));
    for (time, events) in [(PAUSE, 0), (PAUSE + SECOND, 1), (PAUSE + 2 * SECOND, 0)] {
        rig.set_time(time);
        rig.send_packets("input", claims());
        rig.settle();
        assert_eq!(log.take(), vec![duplicate.clone(); events], "{time}");
    }
}

#[test]
fn gauges_tell_how_many_neighbours_and_routes_there_are() {
    let domain = domain();
    let mut rig = rig(&domain, &[], &["a", "b"]);
    let key = (1, IpAddr::from([10, 0, 1, 8]));
    let mut changes = domain.tables().lock();
    changes.enter_neighbour(key, HOST, bellows_vrf::Origin::Control).unwrap();
    changes.add(&RouteSpec::parse("30.0.0.0/8 via 10.0.1.8").unwrap(), IfExists::Refuse).unwrap();
    changes.commit().unwrap();
    drop(changes);
    rig.send_packets("input", [arp(1, ArpOperation::REQUEST, HOST, [10, 0, 1, 7], [10, 0, 1, 1])]);
    rig.send_packets("resolve", [packet(&domain, [20, 1, 2, 3])]);
    rig.settle();
    let gauges = |rig: &Rig, names: &[&str]| -> Vec<u64> {
        let counters = rig.counts().counters;
        names.iter().map(|name| counters[*name]).collect()
    };
    let states = ["incomplete", "reachable", "delay", "probe", "permanent"].map(|state| format!("neighbours_{state}"));
    let states = states.each_ref().map(String::as_str);
    assert_eq!(gauges(&rig, &states), [0; 5], "once a second");
    rig.set_time(2 * SECOND);
    rig.settle();
    assert_eq!(gauges(&rig, &states), [1, 1, 0, 0, 1]);
    let (size, _) = domain.tables().lock().sizes();
    assert_eq!(gauges(&rig, &["routes", "fib_bytes"]), [size.routes as u64, size.bytes as u64]);
    // The one that has not answered is gone, and the other is asked again.
    rig.set_time(10 * SECOND);
    rig.settle();
    rig.set_time(31 * SECOND);
    rig.settle();
    // While somebody else changes the routes, the figures of neighbours are still set.
    let mut changes = domain.tables().lock();
    assert!(changes.remove("30.0.0.0/8".parse::<bellows_vrf::route::IpPrefix>().unwrap(), None));
    rig.set_time(32 * SECOND);
    rig.settle();
    assert_eq!(gauges(&rig, &states), [0, 0, 0, 1, 1]);
    assert_eq!(gauges(&rig, &["routes"]), [size.routes as u64]);
    changes.commit().unwrap();
    drop(changes);
    rig.set_time(33 * SECOND);
    rig.settle();
    assert_eq!(gauges(&rig, &["routes"]), [size.routes as u64 - 1]);
}

#[test]
fn the_router_answers_for_others_only_if_it_is_told_to() {
    for (proxy, replies) in [(&[][..], 0), (&[1], 1)] {
        let domain = domain();
        let mut rig = rig(&domain, proxy, &["a", "b"]);
        rig.send_packets(
            "input",
            [
                arp(1, ArpOperation::REQUEST, HOST, [10, 0, 1, 7], [10, 0, 2, 33]),
                arp(1, ArpOperation::REQUEST, HOST, [10, 0, 1, 7], [10, 0, 1, 33]),
                arp(1, ArpOperation::REQUEST, HOST, [10, 0, 1, 7], [99, 0, 1, 33]),
                arp(1, ArpOperation::REQUEST, HOST, [0, 0, 0, 0], [10, 0, 2, 33]),
            ],
        );
        rig.settle();
        assert_eq!(
            (rig.received("a").len(), rig.counts().counters["proxy_arp_replies_sent"]),
            (replies, replies as u64)
        );
    }
}

#[test]
fn the_host_gets_answers_even_if_the_router_has_not_asked() {
    let domain = domain();
    let mut rig = rig(&domain, &[], &["a", "b", "host"]);
    let answer = arp(1, ArpOperation::REPLY, HOST, [10, 0, 1, 7], [10, 0, 1, 1]);
    let question = arp(1, ArpOperation::REQUEST, HOST, [10, 0, 1, 7], [10, 0, 1, 1]);
    let elsewhere = arp(1, ArpOperation::REPLY, HOST, [9, 9, 9, 9], [10, 0, 1, 1]);
    rig.send_packets("input", [answer, question, elsewhere]);
    rig.settle();
    let heard = rig.received_packets("host");
    assert_eq!((heard.len(), Tag(heard[0].tag()).interface()), (1, 1));
    assert_eq!(drops(&rig), [("l3_src_address_not_local".to_owned(), 1)]);
}

#[test]
fn a_flood_of_strangers_costs_neither_answers_nor_neighbours_that_are_known() {
    let domain = domain();
    let limits = NeighbourLimits { neighbours: 4, ..NeighbourLimits::default() };
    let mut rig = Rig::new(Arp::new(Arc::clone(&domain), limits), &["input", "resolve"], &["a", "b"]);
    rig.set_time(SECOND);
    rig.settle();
    let known = |operation| arp(1, operation, HOST, [10, 0, 1, 7], [10, 0, 1, 1]);
    rig.send_packets("input", [known(ArpOperation::REQUEST)]);
    rig.settle();
    rig.received("a");
    let flood = |rig: &mut Rig, operation| {
        for round in 0..40_u8 {
            let stranger = |at: u16| {
                let number = 20 + (at % 200) as u8;
                arp(1, operation, MacAddr([4, 0, 0, 1, round, number]), [10, 0, 1, number], [10, 0, 1, 1])
            };
            rig.send_packets("input", (0..500).map(stranger));
            rig.settle();
        }
    };
    flood(&mut rig, ArpOperation::REQUEST);
    let answered = rig.received("a").len();
    // The three who found room may be answered like all who are known.
    assert!((4..2_000).contains(&answered), "{answered} of 20,000 questions were answered");
    let dropped = rig.counts().drops["rate_limited"];
    assert!(dropped > 15_000, "{dropped} of 20,000 were beyond the limit");
    assert_eq!(rig.status().unwrap()["neighbours"].as_array().unwrap().len(), 4);
    rig.send_packets("input", [known(ArpOperation::REQUEST)]);
    rig.settle();
    assert_eq!(rig.received("a").len(), 1, "who is known is answered in a flood");
    // It is asked when its answer is old, and its new answer is heard in a flood.
    for second in 32..36 {
        rig.set_time(second * SECOND);
        rig.settle();
        flood(&mut rig, ArpOperation::REPLY);
        rig.send_packets("input", [known(ArpOperation::REPLY)]);
        rig.settle();
    }
    let neighbours = rig.status().unwrap()["neighbours"].take();
    let is_known = |it: &serde_json::Value| it["address"] == "10.0.1.7" && it["state"] == "reachable";
    assert!(neighbours.as_array().unwrap().iter().any(is_known), "{neighbours:#}");
}

/// Interfaces `a` with 10.1.0.1/16 and `b` with 10.2.0.1/24.
fn wide_domain() -> Arc<RoutingDomain> {
    let interface = |name: &str, number: u8, length: u8| Interface {
        name: name.to_owned(),
        port: name.to_owned(),
        mac: OWN,
        mtu: 1500,
        tags: Vec::new(),
        addresses: vec![InterfaceAddress { address: Ipv4Addr::new(10, number, 0, 1).into(), length }],
    };
    let vrf = Vrf::new(vec![interface("a", 1, 16), interface("b", 2, 24)], 50_000, 1).unwrap();
    Arc::new(RoutingDomain::new(vrf))
}

#[test]
fn a_station_that_claims_60_000_addresses_keeps_nobody_else_out() {
    let log = EventLog::begin();
    let domain = wide_domain();
    let limits = limits(domain.tables(), reachable());
    let mut rig = Rig::new(Arp::new(Arc::clone(&domain), limits), &["input", "resolve"], &["a", "b", "error"]);
    let (mut now, mut answered) = (SECOND, 0);
    rig.set_time(now);
    rig.settle();
    let announced = ["a", "b"].map(|output| rig.received(output).len());
    assert_eq!(announced, [1, 1]);
    for first in (256..60_256u16).step_by(250) {
        now += SECOND * 3 / 100;
        rig.set_time(now);
        let question = |number: u16| {
            let [high, low] = number.to_be_bytes();
            arp(1, ArpOperation::REQUEST, HOST, [10, 1, high, low], [10, 1, 0, 1])
        };
        rig.send_packets("input", (first..first + 250).map(question).collect::<Vec<_>>());
        rig.settle();
        answered += rig.received("a").len();
    }
    assert_eq!(answered, 60_000, "all are answered");
    let counts = rig.counts().counters;
    assert_eq!((counts["learned"], counts["neighbours_full"]), (50_000, 10_000));
    // New hosts elsewhere, and on the same link, are answered and learned, and packets find them.
    for number in 2..100 {
        for (interface, output) in [(2, "b"), (1, "a")] {
            let (host, own) = ([10, interface, 0, number], [10, interface, 0, 1]);
            let mac = MacAddr([4, 0, 0, 9, interface, number]);
            rig.send_packets("input", [arp(interface.into(), ArpOperation::REQUEST, mac, host, own)]);
            rig.settle();
            let replies = rig.received(output);
            assert_eq!(replies.iter().map(|reply| &reply[..6]).collect::<Vec<_>>(), [&mac.0], "{host:?}");
            let index = domain.tables().lock().look_up(IpAddr::from(host)).unwrap().1.next;
            let adjacency = domain.tables().adjacencies().get(index).unwrap();
            assert_eq!((adjacency.header[..6].to_vec(), adjacency.interface), (mac.0.to_vec(), interface.into()));
        }
        // And who has not asked is found.
        let host = [10, 2, 0, 100 + number];
        rig.send_packets("resolve", [packet(&domain, host)]);
        rig.settle();
        rig.send_packets("input", [arp(2, ArpOperation::REPLY, HOST, host, [10, 2, 0, 1])]);
        rig.settle();
        assert_eq!(rig.received("b").len(), 2, "the question and the packet");
    }
    assert_eq!(rig.counts().counters["displaced"], 3 * 98);
    assert_eq!(drops(&rig), []);
    assert_eq!(log.take(), [json!({ "event": "table-full", "app": "", "table": "neighbours", "port": "a" })]);
}

#[test]
fn floods_on_one_interface_leave_the_limits_of_others() {
    let limits = NeighbourLimits { neighbours: 4, ..NeighbourLimits::default() };
    let mut rig = Rig::new(Arp::new(domain(), limits), &["input", "resolve"], &["a", "b"]);
    rig.set_time(SECOND);
    rig.settle();
    rig.received("b");
    for round in 0..100_u64 {
        rig.set_time(SECOND + round * SECOND / 100);
        let stranger = |at: u16| {
            let number = 20 + (at % 200) as u8;
            arp(1, ArpOperation::REQUEST, MacAddr([4, 0, 0, 1, round as u8, number]), [10, 0, 1, number], [10, 0, 1, 1])
        };
        rig.send_packets("input", (0..500).map(stranger).collect::<Vec<_>>());
        // Who claims the router's address there has it defended, too.
        rig.send_packets("input", [arp(1, ArpOperation::REQUEST, HOST, [10, 0, 1, 1], [10, 0, 1, 9])]);
        rig.settle();
        let other = [10, 0, 2, 20 + round as u8];
        rig.send_packets("input", [arp(2, ArpOperation::REQUEST, HOST, other, [10, 0, 2, 1])]);
        rig.settle();
        assert_eq!(rig.received("b").len(), 1, "{round}");
    }
    assert!(rig.counts().drops["rate_limited"] > 20_000);
    rig.send_packets("input", [arp(2, ArpOperation::REQUEST, HOST, [10, 0, 2, 1], [10, 0, 2, 9])]);
    rig.settle();
    assert_eq!(rig.received("b").len(), 1, "a defence");
}

#[test]
fn packets_that_wait_are_replaced_by_newer_ones_but_not_by_a_flood() {
    let domain = domain();
    let limits = NeighbourLimits { incomplete: 2, ..NeighbourLimits::default() };
    let mut rig = Rig::new(Arp::new(Arc::clone(&domain), limits), &["input", "resolve"], &["a", "b", "error"]);
    rig.set_time(SECOND);
    rig.settle();
    let numbered = |to: u8, number: u16| {
        let mut packet = packet(&domain, [10, 0, 1, to]);
        packet.bytes_mut()[50..52].copy_from_slice(&number.to_be_bytes());
        packet
    };
    // Two neighbours are asked; packets to others find no room.
    rig.send_packets("resolve", [7, 8, 9, 10].map(|to| numbered(to, 0)));
    rig.settle();
    assert_eq!((rig.received("a").len(), drops(&rig)), (3, vec![("waiting_full".to_owned(), 2)]));
    for number in 1..2_001 {
        rig.send_packets("resolve", [numbered(7, number)]);
        rig.settle();
    }
    // Three wait, and as many as may be are replaced at once.
    assert_eq!(drops(&rig), [("waiting_full".to_owned(), 2 + 1_998)]);
    rig.send_packets("input", [arp(1, ArpOperation::REPLY, HOST, [10, 0, 1, 7], [10, 0, 1, 1])]);
    rig.settle();
    let waited = |rig: &mut Rig| -> Vec<u16> {
        rig.received("a").iter().map(|frame| u16::from_be_bytes([frame[50], frame[51]])).collect()
    };
    assert_eq!(waited(&mut rig), [1_250, 1_251, 1_252], "each of the first ones takes the place of the oldest");
    // After a pause, the newest are wanted again.
    rig.send_packets("resolve", (1..3).map(|number| numbered(8, number)));
    rig.settle();
    rig.set_time(SECOND + SECOND / 2);
    rig.send_packets("resolve", [numbered(8, 3)]);
    rig.settle();
    rig.send_packets("input", [arp(1, ArpOperation::REPLY, HOST, [10, 0, 1, 8], [10, 0, 1, 1])]);
    rig.settle();
    assert_eq!(waited(&mut rig), [1, 2, 3]);
}

/// Frames of few stations: most of them are ARP packets, some changed in a byte or cut.
fn any_arp() -> impl Strategy<Value = Packet> {
    let address = || {
        prop_oneof![
            4 => (0u8..12).prop_map(|last| [10, 0, 1, last]),
            1 => prop::sample::select(vec![[10, 9, 0, 7], [10, 0, 1, 255], [10, 0, 2, 1], [0; 4], [127, 0, 0, 1], [224, 0, 0, 1], [255; 4]]),
        ]
    };
    let macs = vec![OWN.0, [4, 0, 0, 0, 0, 9], [4, 0, 0, 0, 0, 8], [5, 0, 0, 0, 0, 9], [0; 6]];
    let change = prop_oneof![4 => Just(None), 1 => (0usize..42, any::<u8>()).prop_map(Some)];
    let cut = prop_oneof![9 => Just(60), 1 => 0usize..60];
    (0u16..4, 1u16..4, prop::sample::select(macs), address(), address(), change, cut).prop_map(
        |(interface, operation, mac, sender, target, change, cut)| {
            let mut packet = arp(interface, ArpOperation(operation), MacAddr(mac), sender, target);
            if let Some((at, byte)) = change {
                packet.bytes_mut()[at] = byte;
            }
            packet.truncate(cut);
            packet
        },
    )
}

proptest! {
    #[test]
    fn a_glance_refuses_what_a_closer_look_refuses(
        packets in prop::collection::vec(any_arp(), 1..60),
        is_flooded in any::<bool>(),
        has_host in any::<bool>(),
        proxy in prop::sample::subsequence(vec![1u16, 2], 0..2),
    ) {
        let outputs: &[&str] = if has_host { &["a", "b", "host"] } else { &["a", "b"] };
        let mut found = Vec::new();
        for glances in [true, false] {
            let mut app = Arp::new(domain(), NeighbourLimits { neighbours: 6, ..NeighbourLimits::default() });
            app.proxy.clone_from(&proxy);
            if !glances {
                app.links.clear();
            }
            let mut rig = Rig::new(app, &["input", "resolve"], outputs);
            rig.set_time(SECOND);
            rig.settle();
            // More than strangers may ask at once.
            let questions = if is_flooded { 1_300 } else { 0 };
            for _ in 0..questions / 100 {
                let stranger = || arp(1, ArpOperation::REQUEST, MacAddr([4, 0, 0, 0, 0, 77]), [10, 0, 1, 0], [10, 0, 1, 1]);
                rig.send_packets("input", (0..100).map(|_| stranger()));
                rig.settle();
            }
            rig.send_packets("input", packets.iter().map(|packet| packet.copy().unwrap()));
            rig.settle();
            let sent: Vec<_> = outputs.iter().map(|output| rig.received(output)).collect();
            let counts = rig.counts();
            found.push((sent, counts.drops, counts.counters));
        }
        prop_assert_eq!(&found[0], &found[1]);
    }
}
