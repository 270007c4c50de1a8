//! The reports of multicast groups, and messages for which a link has no room.

use std::collections::BTreeSet;

use bellows_rig::Rig;
use bellows_vrf::Vrf;
use bellows_vrf::interface::InterfaceAddress;
use bellows_wire::mld::{self, message_type, record_type};
use bellows_wire::ndp::{self, MessageDraft};
use bellows_wire::{IpPair, IpProtocol, Ipv6Header, Ipv6Packet};

use super::tests::*;
use super::*;

use crate::ipv6_link::AddressState;

/// A message of a listener that the app sent: source, destination, type, and the records or the group.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Report {
    source: Ipv6Addr,
    destination: Ipv6Addr,
    kind: u8,
    records: Vec<(u8, Ipv6Addr, Vec<Ipv6Addr>)>,
}

impl Report {
    fn of(frame: &[u8]) -> Report {
        let at = if frame[12] == 0x81 { 18 } else { 14 };
        let packet = Ipv6Packet::new_checked(&frame[at..]).unwrap();
        assert_eq!((packet.hop_limit(), &packet.payload()[..8]), (1, &mld::ROUTER_ALERT[..]));
        assert!(packet.src().is_unspecified() || packet.src().is_unicast_link_local());
        let upper = packet.upper_layer().unwrap();
        let message = upper.payload;
        let sum = packet.addresses().pseudo_header(IpProtocol::ICMPV6, message.len()).add_bytes(message);
        assert_eq!((upper.protocol, sum.finish()), (IpProtocol::ICMPV6, 0));
        assert_eq!(frame[..6], ndp::multicast_mac(packet.dst()).0);
        let address = |bytes: &[u8]| Ipv6Addr::from(*bytes.first_chunk::<16>().unwrap());
        let mut records = Vec::new();
        if message[0] == message_type::REPORT {
            let mut rest = &message[8..];
            for _ in 0..u16::from_be_bytes([message[6], message[7]]) {
                let end = 20 + 16 * usize::from(u16::from_be_bytes([rest[2], rest[3]]));
                records.push((rest[0], address(&rest[4..]), rest[20..end].chunks(16).map(address).collect()));
                rest = &rest[end..];
            }
            assert!(rest.is_empty());
        } else {
            records.push((0, address(&message[8..]), Vec::new()));
        }
        Report { source: packet.src(), destination: packet.dst(), kind: message[0], records }
    }

    fn groups(&self) -> BTreeSet<Ipv6Addr> {
        self.records.iter().map(|(_, group, _)| *group).collect()
    }
}

fn reports(rig: &mut Rig, output: &str) -> Vec<Report> {
    rig.received(output).iter().filter(|frame| is_of_listener(frame)).map(|frame| Report::of(frame)).collect()
}

/// The groups that the router listens to on each link of the domain.
fn groups() -> BTreeSet<Ipv6Addr> {
    ["ff02::2", "ff02::1:ff00:0", "ff02::1:ff00:1"].map(ip).into()
}

/// A message of listeners that interface `number` received, with a change of its frame.
fn message(
    number: u16,
    source: &str,
    destination: &str,
    draft: &mut MessageDraft,
    change: impl FnOnce(&mut [u8]),
) -> Packet {
    let (src, dst) = (ip(source), ip(destination));
    let message = draft.finish(&IpPair::V6 { src, dst }).to_vec();
    let mut frame =
        [&[0x33, 0x33, 0, 0, 0, 1][..], &HOST.0, &[0x86, 0xdd], &[0; 40], &mld::ROUTER_ALERT, &message].concat();
    let next_header = IpProtocol::IPV6_HOP_BY_HOP;
    let header = Ipv6Header { src, dst, next_header, hop_limit: 1, traffic_class: 0, flow_label: 0 };
    header.emit(&mut frame[14..]).unwrap();
    change(&mut frame);
    let mut packet = Packet::from_bytes(&frame).unwrap();
    packet.set_tag(Tag::received_on(number).0);
    packet
}

/// A query of version 2.
fn query(group: &str, delay_ms: u16, sources: &[&str]) -> MessageDraft {
    let mut draft = MessageDraft::new(message_type::QUERY, u32::from(delay_ms) << 16);
    draft.put(&ip(group).octets()).put(&[2, 125, 0, sources.len() as u8]);
    sources.iter().for_each(|source| _ = draft.put(&ip(source).octets()));
    draft
}

/// A query of version 1, or another message of its form.
fn older(kind: u8, group: &str, delay_ms: u16) -> MessageDraft {
    let mut draft = MessageDraft::new(kind, u32::from(delay_ms) << 16);
    draft.put(&ip(group).octets());
    draft
}

/// A rig whose groups are joined.
fn quiet(domain: &Arc<RoutingDomain>) -> Rig {
    let mut rig = rig(domain);
    rig.set_time(5 * SECOND);
    rig.settle();
    ["a", "b"].into_iter().for_each(|port| _ = rig.received(port));
    rig
}

#[test]
fn groups_are_joined_before_an_address_is_probed_and_again_from_the_address() {
    let domain = domain();
    let mut rig = Rig::new(app(&domain, true), &["input", "resolve"], &["a", "b"]);
    rig.settle();
    rig.set_time(2 * SECOND);
    rig.settle();
    let sent = rig.received("b");
    assert!(is_of_listener(&sent[0]) && !is_of_listener(&sent[1]), "switches must let the answers through");
    let report = Report::of(&sent[0]);
    assert_eq!((report.source, report.destination), (Ipv6Addr::UNSPECIFIED, ip("ff02::16")));
    assert_eq!((report.kind, report.groups()), (143, groups()));
    assert!(report.records.iter().all(|(kind, _, sources)| *kind == record_type::TO_EXCLUDE && sources.is_empty()));
    // Repeated, and from its own address when that may be used.
    rig.set_time(4 * SECOND);
    rig.settle();
    let again = reports(&mut rig, "b");
    let own: Vec<&Report> = again.iter().filter(|report| report.source == ip("fe80::1")).collect();
    assert_eq!(own[0].groups(), groups(), "{again:?}");
    assert_eq!(counter(&rig, "listener_reports_sent") as usize, 1 + again.len() + reports(&mut rig, "a").len());
}

#[test]
fn the_groups_of_an_address_that_another_station_has_are_left() {
    let domain = domain();
    let mut rig = quiet(&domain);
    domain.addresses().set(1, ip("2001:db8:1::1"), AddressState::Tentative);
    domain.addresses().set(1, ip("fe80::1"), AddressState::Tentative);
    let claims =
        |address: &str| Sent::new(1, "2001:db8:1::7", "ff02::1", &advertisement(address, 0, Some(HOST))).packet();
    rig.send_packets("input", [claims("2001:db8:1::1")]);
    rig.settle();
    rig.set_time(8 * SECOND);
    rig.settle();
    // The other address has the same group.
    let left = reports(&mut rig, "a");
    assert!(left.iter().all(|report| report.groups() == [ip("ff02::1:ff00:0")].into()), "{left:?}");
    assert!(left.len() == 2 && left[0].records[0].0 == record_type::TO_INCLUDE);
    rig.send_packets("input", [claims("fe80::1")]);
    rig.settle();
    rig.set_time(11 * SECOND);
    rig.settle();
    let left: BTreeSet<Ipv6Addr> = reports(&mut rig, "a").iter().flat_map(Report::groups).collect();
    assert_eq!(left, ["ff02::2", "ff02::1:ff00:1"].map(ip).into());
}

#[test]
fn queries_are_answered_at_random_within_their_time() {
    let domain = domain();
    let mut rig = quiet(&domain);
    let mut times = BTreeSet::new();
    for round in 1..=20u64 {
        let start = round * 100;
        rig.set_time(start * SECOND);
        rig.send_packets("input", [message(1, "fe80::9", "ff02::1", &mut query("::", 10_000, &[]), |_| {})]);
        rig.settle();
        for tenth in 0..=100 {
            rig.set_time(start * SECOND + tenth * SECOND / 10);
            rig.settle();
            for report in reports(&mut rig, "a") {
                assert_eq!((report.source, report.destination), (ip("fe80::1"), ip("ff02::16")));
                assert!(report.records.iter().all(|(kind, ..)| *kind == record_type::IS_EXCLUDE));
                assert_eq!(report.groups(), groups());
                times.insert((round, tenth));
            }
        }
    }
    assert!(reports(&mut rig, "b").is_empty(), "the query was about another link");
    assert_eq!((times.len(), counter(&rig, "listener_queries_received")), (20, 20), "each once");
    assert!(times.iter().map(|(_, tenth)| tenth).collect::<BTreeSet<_>>().len() > 10, "{times:?}");
    // One group, all of its sources or one.
    for (sources, expected) in [(&[][..], record_type::IS_EXCLUDE), (&["2001:db8::5"], record_type::IS_INCLUDE)] {
        let mut query = query("ff02::1:ff00:1", 0, sources);
        rig.send_packets("input", [message(1, "fe80::9", "ff02::1:ff00:1", &mut query, |_| {})]);
        rig.settle();
        let sources = sources.iter().map(|source| ip(source)).collect();
        assert_eq!(reports(&mut rig, "a")[0].records, [(expected, ip("ff02::1:ff00:1"), sources)]);
    }
    let mut query = query("ff02::1:ff00:77", 0, &[]);
    rig.send_packets("input", [message(1, "fe80::9", "ff02::1:ff00:77", &mut query, |_| {})]);
    rig.settle();
    assert!(reports(&mut rig, "a").is_empty() && drops(&rig).is_empty());
}

#[test]
fn a_querier_of_version_1_gets_its_reports() {
    let domain = domain();
    let mut rig = quiet(&domain);
    let mut query = older(message_type::QUERY, "::", 1_000);
    rig.send_packets("input", [message(1, "fe80::9", "ff02::1", &mut query, |_| {})]);
    rig.settle();
    // Another node answers for one of the groups.
    let mut report = older(message_type::REPORT_1, "ff02::1:ff00:0", 0);
    rig.send_packets("input", [message(1, "fe80::8", "ff02::1:ff00:0", &mut report, |_| {})]);
    rig.settle();
    rig.set_time(7 * SECOND);
    rig.settle();
    let sent = reports(&mut rig, "a");
    assert!(sent.iter().all(|report| report.kind == 131 && report.groups() == [report.destination].into()), "{sent:?}");
    let expected: BTreeSet<Ipv6Addr> = ["ff02::2", "ff02::1:ff00:1"].map(ip).into();
    assert_eq!((sent.len(), sent.iter().flat_map(Report::groups).collect()), (2, expected));
    assert_eq!(counter(&rig, "listener_reports_received"), 1);
}

#[test]
fn messages_of_listeners_that_do_not_come_from_the_link_are_dropped_by_name() {
    let change = |at: usize, value: u8| move |frame: &mut [u8]| frame[at] = value;
    let all = |change: &dyn Fn(&mut [u8])| message(1, "fe80::9", "ff02::1", &mut query("::", 0, &[]), change);
    let mut longer = older(message_type::QUERY, "::", 0);
    longer.put(&[0; 2]);
    let mut of_version_1 = older(message_type::REPORT_1, "ff02::5", 0);
    for (name, packet) in [
        ("bad_hop_limit", all(&change(21, 2))),
        ("bad_checksum", all(&change(66, 1))),
        ("no_router_alert", all(&change(56, 1))),
        ("not_link_local", message(1, "2001:db8:1::9", "ff02::1", &mut query("::", 0, &[]), |_| {})),
        ("not_link_local", message(1, "::", "ff02::1", &mut query("::", 0, &[]), |_| {})),
        ("not_link_local", message(1, "2001:db8:1::9", "ff02::5", &mut of_version_1, |_| {})),
        ("malformed", message(1, "fe80::9", "ff02::1", &mut longer, |_| {})),
        ("malformed", message(1, "fe80::9", "ff02::1", &mut MessageDraft::new(message_type::REPORT_1, 0), |_| {})),
        ("own_messages", all(&|frame| frame[6..12].copy_from_slice(&OWN.0))),
        ("no_adjacency", message(9, "fe80::9", "ff02::1", &mut query("::", 0, &[]), |_| {})),
    ] {
        let mut rig = quiet(&domain());
        rig.send_packets("input", [packet]);
        rig.settle();
        assert_eq!(drops(&rig), [(name.to_owned(), 1)]);
        assert!(reports(&mut rig, "a").is_empty(), "{name}");
    }
    // Without the options in front of it.
    let mut rig = quiet(&domain());
    let mut bare = Sent::new(1, "fe80::9", "ff02::1", &query("::", 0, &[]));
    bare.hop_limit = 1;
    rig.send_packets("input", [bare.packet()]);
    rig.settle();
    assert_eq!(drops(&rig), [("no_router_alert".to_owned(), 1)]);
    // Reports of others need no address, and are nothing to a listener.
    let mut rig = quiet(&domain());
    let mut report = MessageDraft::new(message_type::REPORT, 1);
    report.put_record(record_type::TO_EXCLUDE, ip("ff02::5"), &[]);
    rig.send_packets("input", [message(1, "::", "ff02::16", &mut report, |_| {})]);
    rig.settle();
    assert_eq!((drops(&rig), counter(&rig, "listener_reports_received")), (vec![], 1));
}

#[test]
fn a_flood_of_queries_is_heard_up_to_a_limit() {
    let mut rig = quiet(&domain());
    for _ in 0..4 {
        let query = || message(1, "fe80::9", "ff02::1", &mut query("::", 10_000, &[]), |_| {});
        rig.send_packets("input", (0..1000).map(|_| query()));
        rig.settle();
    }
    let heard = counter(&rig, "listener_queries_received");
    assert!(heard < 2000, "{heard}");
    assert_eq!(drops(&rig), [("rate_limited".to_owned(), 4000 - heard)]);
}

#[test]
fn an_app_that_replaces_another_leaves_the_groups_of_addresses_that_are_gone() {
    let old_domain = domain();
    let mut old = app(&old_domain, false);
    old.has_begun = true;
    old.groups.join_for_test(1, ["ff02::2", "ff02::1:ff00:1", "ff02::1:ff00:99"].map(ip), 0);
    let mut new = app(&domain(), false);
    new.start(Some(&mut old)).unwrap();
    let mut rig = Rig::new(new, &["input"], &["a", "b"]);
    rig.set_time(bellows_sys::clock::now());
    rig.settle();
    let first = reports(&mut rig, "a").remove(0);
    let left: Vec<Ipv6Addr> = first
        .records
        .iter()
        .filter(|(kind, ..)| *kind == record_type::TO_INCLUDE)
        .map(|(_, group, _)| *group)
        .collect();
    assert_eq!(left, [ip("ff02::1:ff00:99")]);
    assert_eq!(first.groups().len(), groups().len() + 1);
}

#[test]
fn what_a_link_has_no_room_for_is_not_counted_as_sent() {
    let domain = domain();
    let mut rig = quiet(&domain);
    let ask = |number: u16| {
        let target = format!("2001:db8:1::{:x}", 0x100 + number);
        let mut frame = vec![0; 60];
        frame[12..14].copy_from_slice(&[0x86, 0xdd]);
        frame[38..54].copy_from_slice(&ip(&target).octets());
        let next = domain.tables().lock().look_up(ip(&target).into()).unwrap().1.next;
        let mut packet = Packet::from_bytes(&frame).unwrap();
        packet.set_tag(Tag::received_on(1).with(next).0);
        packet
    };
    let wants = || Sent::new(1, "::", "ff02::1:ff00:1", &solicitation("2001:db8:1::1", None)).packet();
    let names = ["solicitations_sent", "advertisements_sent"];
    let before = names.map(|name| counter(&rig, name));
    // More in one call than a link has room for.
    rig.send_packets("input", (0..800).map(|_| wants()));
    rig.send_packets("resolve", (0..800).map(ask));
    rig.settle();
    let frames = received(&mut rig, "a");
    let kinds = |kind: u8| frames.iter().filter(|frame| frame[54] == kind).count() as u64;
    let sent = std::array::from_fn(|at| counter(&rig, names[at]) - before[at]);
    assert_eq!([kinds(135), kinds(136)], sent);
    assert!(frames.len() < 1600, "{}", frames.len());
    // An answer that waits for its station's address counts when it is sent.
    let draft = solicitation("2001:db8:1::1", None);
    rig.send_packets("input", [Sent::new(1, "fe80::7", "2001:db8:1::1", &draft).packet()]);
    rig.settle();
    assert_eq!(counter(&rig, names[1]) - before[1], sent[1]);
    let draft = advertisement("fe80::7", ndp::flag::SOLICITED, Some(HOST));
    rig.send_packets("input", [Sent::new(1, "fe80::7", "fe80::1", &draft).packet()]);
    rig.settle();
    assert_eq!(counter(&rig, names[1]) - before[1], sent[1] + 1);
}

#[test]
fn own_packets_to_neighbours_that_somebody_entered_need_no_question() {
    let domain = domain();
    let mut rig = quiet(&domain);
    let mut changes = domain.tables().lock();
    let key = (1, ip("fe80::7").into());
    changes.enter_neighbour(key, HOST, bellows_vrf::Origin::Control).unwrap();
    changes.commit().unwrap();
    drop(changes);
    let reply = || {
        let mut frame = vec![0; 62];
        frame[38..54].copy_from_slice(&ip("fe80::7").octets());
        let mut packet = Packet::from_bytes(&frame).unwrap();
        packet.set_tag(Tag::received_on(1).0);
        packet
    };
    rig.send_packets("replies", [reply()]);
    rig.settle();
    let sent = received(&mut rig, "a");
    assert_eq!((sent.len(), &sent[0][..6], rig.counts().held), (1, &HOST.0[..], 0));
    // When it is removed, it is asked like any other.
    domain.tables().lock().remove_neighbour(key, bellows_vrf::Origin::Control);
    rig.send_packets("replies", [reply()]);
    rig.settle();
    let sent = received(&mut rig, "a");
    assert_eq!((sent.len(), sent[0][54], rig.counts().held), (1, 135, 1));
}

#[test]
fn probes_that_find_no_room_are_sent_later() {
    // More addresses than a link has room for probes.
    let own: Vec<Ipv6Addr> = (1..=1200).map(|number| ip(&format!("2001:db8:1::{number:x}"))).collect();
    let interface = bellows_vrf::Interface {
        name: "a".to_owned(),
        port: "a".to_owned(),
        mac: OWN,
        mtu: 1500,
        tags: Vec::new(),
        addresses: own.iter().map(|&own| InterfaceAddress { address: own.into(), length: 64 }).collect(),
    };
    let domain = Arc::new(RoutingDomain::new(Vrf::new(vec![interface], 16, 1).unwrap()));
    let mut rig = Rig::new(app(&domain, true), &["input"], &["a"]);
    rig.settle();
    let (mut groups, mut probed) = (BTreeSet::new(), Vec::new());
    for hundredth in 0..40 {
        rig.set_time(2 * SECOND + hundredth * SECOND / 100);
        rig.settle();
        for frame in rig.received("a") {
            if is_of_listener(&frame) {
                groups.extend(Report::of(&frame).groups());
            } else if frame[54] == 135 {
                probed.push(Ipv6Addr::from(*frame[62..].first_chunk::<16>().unwrap()));
            }
        }
    }
    assert_eq!(counter(&rig, "solicitations_sent"), probed.len() as u64);
    probed.sort_unstable();
    assert_eq!(probed, own, "each once");
    assert!(own.iter().all(|&own| groups.contains(&ndp::solicited_node(own))), "in as many reports as it takes");
    rig.set_time(4 * SECOND);
    rig.settle();
    assert!(domain.addresses().all(AddressState::Tentative).is_empty());
}
