use bellows_engine::Settings;
use bellows_rig::Rig;
use bellows_vrf::adjacency::special;
use bellows_vrf::interface::{InterfaceAddress, VlanTag};
use bellows_vrf::{IfExists, RouteSpec, Vrf};
use bellows_wire::ndp::{self, Message, MessageDraft, PrefixOption, flag, message_type, option_type};
use bellows_wire::{IpPair, IpProtocol, Ipv6Header, Ipv6Packet};
use proptest::prelude::*;

use super::*;

use bellows_common::limit::MessageSender;
use bellows_rig::EventLog;

use crate::ipv6_link::Advertised;
use crate::policy::Policy;

pub(super) const SECOND: u64 = 1_000_000_000;
pub(super) const OWN: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
pub(super) const HOST: MacAddr = MacAddr([4, 0, 0, 0, 0, 9]);

pub(super) fn ip(text: &str) -> Ipv6Addr {
    text.parse().unwrap()
}

/// Interfaces `a` with 2001:db8:1::1/64 and fe80::1, and `five`, VLAN 5 of port `b`, with 2001:db8:2::1/64 and fe80::1; a
/// route through 2001:db8:2::9.
pub(super) fn domain() -> Arc<RoutingDomain> {
    let interface = |name: &str, port: &str, number: u8, tags: Vec<VlanTag>| Interface {
        name: name.to_owned(),
        port: port.to_owned(),
        mac: OWN,
        mtu: 1500,
        tags,
        addresses: [format!("2001:db8:{number}::1"), "fe80::1".to_owned()]
            .map(|address| InterfaceAddress { address: ip(&address).into(), length: 64 })
            .to_vec(),
    };
    let five = VlanTag { protocol: 0x8100, id: 5 };
    let vrf = Vrf::new(vec![interface("a", "a", 1, vec![]), interface("five", "b", 2, vec![five])], 16, 1).unwrap();
    let mut changes = vrf.lock();
    changes.add(&RouteSpec::parse("2001:db8:20::/48 via 2001:db8:2::9").unwrap(), IfExists::Refuse).unwrap();
    changes.commit().unwrap();
    drop(changes);
    Arc::new(RoutingDomain::new(vrf))
}

/// An app that uses its addresses at once, if it is not to find duplicates.
pub(super) fn app(domain: &Arc<RoutingDomain>, detects_duplicates: bool) -> Nd {
    Nd {
        detects_duplicates,
        random: fastrand::Rng::with_seed(7),
        ..Nd::new(Arc::clone(domain), NeighbourLimits::default())
    }
}

/// A rig whose announcements are taken out already.
pub(super) fn rig_with(app: Nd, outputs: &[&str]) -> Rig {
    let mut rig = Rig::new(app, &["input", "resolve", "replies"], outputs);
    rig.set_time(SECOND);
    rig.settle();
    for output in ["a", "b"] {
        let announced: Vec<_> = received(&mut rig, output).iter().map(|frame| Seen::of(frame).kind).collect();
        assert_eq!(announced, [message_type::NEIGHBOUR_ADVERTISEMENT; 2], "{output}");
    }
    rig
}

/// What the app has sent, without its reports of multicast groups.
pub(super) fn received(rig: &mut Rig, output: &str) -> Vec<Vec<u8>> {
    let mut frames = rig.received(output);
    frames.retain(|frame| !is_of_listener(frame));
    frames
}

/// Whether a frame is a message behind hop-by-hop options.
pub(super) fn is_of_listener(frame: &[u8]) -> bool {
    let header = if frame[12] == 0x81 { 18 } else { 14 };
    frame[header + 6] == 0 && frame.get(header + 40..header + 48) == Some(&bellows_wire::mld::ROUTER_ALERT)
}

pub(super) fn rig(domain: &Arc<RoutingDomain>) -> Rig {
    rig_with(app(domain, false), &["a", "b", "error"])
}

/// A frame that the app sent, without VLAN tags.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    to: MacAddr,
    source: Ipv6Addr,
    destination: Ipv6Addr,
    kind: u8,
    word: u32,
    target: Ipv6Addr,
    mac: Option<MacAddr>,
}

impl Seen {
    fn of(frame: &[u8]) -> Seen {
        let header = if frame[12] == 0x81 { 18 } else { 14 };
        assert_eq!((&frame[6..12], &frame[header - 2..header]), (&OWN.0[..], &[0x86, 0xdd][..]));
        let packet = Ipv6Packet::new_checked(&frame[header..]).unwrap();
        let payload = packet.payload();
        let sum = packet.addresses().pseudo_header(IpProtocol::ICMPV6, payload.len()).add_bytes(payload);
        assert_eq!((sum.finish(), packet.hop_limit()), (0, 255));
        let message = Message::new_checked(payload).unwrap();
        let kind = message.kind();
        let is_advertisement = kind == message_type::NEIGHBOUR_ADVERTISEMENT;
        let option = if is_advertisement { option_type::TARGET_LINK_LAYER } else { option_type::SOURCE_LINK_LAYER };
        Seen {
            to: MacAddr(std::array::from_fn(|at| frame[at])),
            source: packet.src(),
            destination: packet.dst(),
            kind,
            word: message.word(),
            target: message.target(),
            mac: message.link_layer(option),
        }
    }
}

/// A message that interface `number` received from `HOST`.
pub(super) struct Sent {
    pub(super) number: u16,
    pub(super) station: MacAddr,
    pub(super) source: &'static str,
    pub(super) destination: &'static str,
    pub(super) hop_limit: u8,
    pub(super) draft: MessageDraft,
}

impl Sent {
    pub(super) fn new(number: u16, source: &'static str, destination: &'static str, draft: &MessageDraft) -> Sent {
        Sent { number, station: HOST, source, destination, hop_limit: 255, draft: draft.clone() }
    }

    pub(super) fn packet(&mut self) -> Packet {
        let (src, dst) = (ip(self.source), ip(self.destination));
        let message = self.draft.finish(&IpPair::V6 { src, dst }).to_vec();
        let mut frame = [&OWN.0[..], &self.station.0, &[0x86, 0xdd], &[0; 40], &message].concat();
        let header = Ipv6Header {
            src,
            dst,
            next_header: IpProtocol::ICMPV6,
            hop_limit: self.hop_limit,
            traffic_class: 0,
            flow_label: 0,
        };
        header.emit(&mut frame[14..]).unwrap();
        let mut packet = Packet::from_bytes(&frame).unwrap();
        packet.set_tag(Tag::received_on(self.number).0);
        packet
    }
}

pub(super) fn solicitation(target: &str, mac: Option<MacAddr>) -> MessageDraft {
    let mut draft = MessageDraft::new(message_type::NEIGHBOUR_SOLICITATION, 0);
    draft.put(&ip(target).octets());
    mac.into_iter().for_each(|mac| _ = draft.put_link_layer(option_type::SOURCE_LINK_LAYER, mac));
    draft
}

pub(super) fn advertisement(target: &str, flags: u32, mac: Option<MacAddr>) -> MessageDraft {
    let mut draft = MessageDraft::new(message_type::NEIGHBOUR_ADVERTISEMENT, flags);
    draft.put(&ip(target).octets());
    mac.into_iter().for_each(|mac| _ = draft.put_link_layer(option_type::TARGET_LINK_LAYER, mac));
    draft
}

/// A packet from interface 1 to a destination, tagged with the adjacency that its route leads to.
fn data(domain: &RoutingDomain, destination: &str) -> Packet {
    let next = domain.tables().lock().look_up(ip(destination).into()).unwrap().1.next;
    let mut frame = vec![0; 60];
    frame[12..14].copy_from_slice(&[0x86, 0xdd]);
    frame[38..54].copy_from_slice(&ip(destination).octets());
    let mut packet = Packet::from_bytes(&frame).unwrap();
    packet.set_tag(Tag::received_on(1).with(next).0);
    packet
}

/// The drops of a rig that are not zero.
pub(super) fn drops(rig: &Rig) -> Vec<(String, u64)> {
    rig.counts().drops.into_iter().filter(|(_, count)| *count > 0).collect()
}

pub(super) fn counter(rig: &Rig, name: &str) -> u64 {
    rig.counts().counters[name]
}

fn states(rig: &Rig) -> Vec<(String, String)> {
    let status = rig.status().unwrap();
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    status["neighbours"].as_array().unwrap().iter().map(|it| (text(&it["address"]), text(&it["state"]))).collect()
}

#[test]
fn solicitations_for_the_router_are_answered_and_their_senders_known() {
    for (target, destination) in [
        ("2001:db8:1::1", "ff02::1:ff00:1"),
        ("2001:db8:1::1", "2001:db8:1::1"),
        ("fe80::1", "ff02::1:ff00:1"),
        ("2001:db8:1::", "ff02::1:ff00:0"),
    ] {
        let domain = domain();
        let mut rig = rig(&domain);
        let draft = solicitation(target, Some(HOST));
        rig.send_packets("input", [Sent::new(1, "2001:db8:1::7", destination, &draft).packet()]);
        rig.settle();
        let sent = received(&mut rig, "a");
        let seen = Seen::of(&sent[0]);
        assert_eq!((sent.len(), seen.to, seen.destination), (1, HOST, ip("2001:db8:1::7")), "{target}");
        // One that several routers may have does not override another's.
        let overrides = if target.ends_with("::") { 0 } else { flag::OVERRIDE };
        assert_eq!(seen.word, flag::ROUTER | flag::SOLICITED | overrides, "{target}");
        assert_eq!((seen.target, seen.mac), (ip(target), Some(OWN)));
        assert_eq!(states(&rig), [("2001:db8:1::7".to_owned(), "delay".to_owned())]);
        let next = domain.tables().lock().look_up(ip("2001:db8:1::7").into()).unwrap().1.next;
        assert_eq!(domain.tables().adjacencies().get(next).unwrap().header[..6], HOST.0);
        assert_eq!(drops(&rig), []);
        // It is asked soon whether it receives what is sent to it.
        rig.set_time(7 * SECOND);
        rig.settle();
        let asked = Seen::of(&received(&mut rig, "a")[0]);
        assert_eq!((asked.to, asked.kind, asked.destination), (HOST, 135, ip("2001:db8:1::7")));
    }
}

#[test]
fn who_asks_from_an_address_beyond_the_link_is_answered_and_not_learned() {
    let far = "2001:db8:9::7";
    for (is_strict, mac) in [(false, Some(HOST)), (false, None), (true, Some(HOST)), (true, None)] {
        let domain = Arc::into_inner(domain()).unwrap();
        let domain = domain.with_policies_of(vec![Policy { strict_neighbours: is_strict, ..Policy::default() }; 2]);
        let mut rig = rig(&domain);
        let mut question = Sent::new(1, far, "ff02::1:ff00:1", &solicitation("2001:db8:1::1", mac));
        rig.send_packets("input", [question.packet()]);
        rig.settle();
        let sent: Vec<Seen> = received(&mut rig, "a").iter().map(|frame| Seen::of(frame)).collect();
        if is_strict {
            assert_eq!((sent.len(), drops(&rig)), (0, vec![("l3_src_address_not_local".to_owned(), 1)]));
            continue;
        }
        assert_eq!((sent.len(), sent[0].to, sent[0].kind, sent[0].destination), (1, HOST, 136, ip(far)));
        assert_eq!((sent[0].target, sent[0].word & flag::SOLICITED != 0), (ip("2001:db8:1::1"), true));
        assert_eq!((states(&rig).len(), counter(&rig, "off_link"), drops(&rig)), (0, 1, vec![]));
        for _ in 0..3 {
            rig.send_packets("input", (0..100).map(|_| question.packet()));
            rig.settle();
        }
        assert_eq!((counter(&rig, "off_link"), drops(&rig)), (125, vec![("rate_limited".to_owned(), 176)]));
        received(&mut rig, "a");
        let near = solicitation("2001:db8:1::1", Some(HOST));
        rig.send_packets("input", [Sent::new(1, "2001:db8:1::7", "ff02::1:ff00:1", &near).packet()]);
        rig.settle();
        assert_eq!(received(&mut rig, "a").len(), 1, "others are heard");
    }
}

#[test]
fn a_solicitor_that_does_not_say_where_it_is_is_found_before_it_is_answered() {
    let mut rig = rig(&domain());
    let draft = solicitation("2001:db8:1::1", None);
    rig.send_packets("input", [Sent::new(1, "fe80::7", "2001:db8:1::1", &draft).packet()]);
    rig.settle();
    let asked = Seen::of(&received(&mut rig, "a")[0]);
    assert_eq!((asked.kind, asked.source, asked.target, rig.counts().held), (135, ip("fe80::1"), ip("fe80::7"), 1));
    let draft = advertisement("fe80::7", flag::SOLICITED, Some(HOST));
    rig.send_packets("input", [Sent::new(1, "fe80::7", "fe80::1", &draft).packet()]);
    rig.settle();
    let answer = Seen::of(&received(&mut rig, "a")[0]);
    assert_eq!((answer.kind, answer.to, answer.target, rig.counts().held), (136, HOST, ip("2001:db8:1::1"), 0));
}

#[test]
fn packets_wait_for_a_neighbour_and_follow_its_answer() {
    let domain = domain();
    let mut rig = rig(&domain);
    rig.send_packets("resolve", (0..5).map(|_| data(&domain, "2001:db8:20::3")));
    rig.settle();
    let asked = received(&mut rig, "b");
    assert_eq!((asked.len(), &asked[0][12..18]), (1, &[0x81, 0x00, 0, 5, 0x86, 0xdd][..]));
    let solicitation = Seen {
        to: MacAddr([0x33, 0x33, 0xff, 0, 0, 9]),
        source: ip("2001:db8:2::1"),
        destination: ip("ff02::1:ff00:9"),
        kind: 135,
        word: 0,
        target: ip("2001:db8:2::9"),
        mac: Some(OWN),
    };
    assert_eq!(Seen::of(&asked[0]), solicitation);
    assert_eq!((rig.counts().held, drops(&rig)), (3, vec![("waiting_full".to_owned(), 2)]));
    let answer = advertisement("2001:db8:2::9", flag::SOLICITED | flag::OVERRIDE, Some(HOST));
    rig.send_packets("input", [Sent::new(2, "2001:db8:2::9", "2001:db8:2::1", &answer).packet()]);
    rig.settle();
    let sent = received(&mut rig, "b");
    assert_eq!((sent.len(), rig.counts().held), (3, 0));
    assert!(sent.iter().all(|frame| frame[..6] == HOST.0 && frame[12..18] == [0x81, 0x00, 0, 5, 0x86, 0xdd]));
    // It is asked again by its own address, and forgotten when it is silent. The route through it stays.
    rig.set_time(40 * SECOND);
    rig.settle();
    let asked = Seen::of(&received(&mut rig, "b")[0]);
    assert_eq!((asked.to, asked.destination, asked.mac), (HOST, ip("2001:db8:2::9"), Some(OWN)));
    for second in 41..44 {
        rig.set_time(second * SECOND);
        rig.settle();
    }
    assert_eq!((received(&mut rig, "b").len(), counter(&rig, "expired")), (2, 1));
    let changes = domain.tables().lock();
    let found = |destination| changes.look_up(ip(destination).into()).map(|found| found.0.to_string());
    assert_eq!(found("2001:db8:2::9").as_deref(), Some("2001:db8:2::/64"));
    assert_eq!(found("2001:db8:20::3").as_deref(), Some("2001:db8:20::/48"));
    assert_eq!(found("2001:db8:2::1").as_deref(), Some("2001:db8:2::1/128"));
}

#[test]
fn ipv4_packets_wait_for_next_hops_of_ipv6() {
    let domain = domain();
    let mut changes = domain.tables().lock();
    for route in ["20.0.0.0/8 via inet6 2001:db8:2::9", "21.0.0.0/8 via inet6 fe80::8 dev a"] {
        changes.add(&RouteSpec::parse(route).unwrap(), IfExists::Refuse).unwrap();
    }
    changes.commit().unwrap();
    drop(changes);
    let next = |destination: [u8; 4]| domain.tables().lock().look_up(destination.into()).unwrap().1.next;
    let packet = |destination: [u8; 4]| {
        let mut frame = vec![0; 60];
        frame[14] = 0x45;
        frame[30..34].copy_from_slice(&destination);
        let mut packet = Packet::from_bytes(&frame).unwrap();
        packet.set_tag(Tag::received_on(1).with(next(destination)).0);
        packet
    };
    let mut rig = Rig::new(app(&domain, false), &["input", "resolve", "resolve4"], &["a", "b", "error", "error4"]);
    rig.set_time(SECOND);
    rig.settle();
    ["a", "b"].iter().for_each(|port| drop(rig.received(port)));
    rig.send_packets("resolve4", [packet([20, 1, 2, 3]), packet([21, 1, 2, 3])]);
    rig.settle();
    assert_eq!((Seen::of(&rig.received("b")[0]).target, rig.counts().held), (ip("2001:db8:2::9"), 2));
    let answer = advertisement("2001:db8:2::9", flag::SOLICITED | flag::OVERRIDE, Some(HOST));
    rig.send_packets("input", [Sent::new(2, "2001:db8:2::9", "2001:db8:2::1", &answer).packet()]);
    rig.settle();
    let sent = rig.received("b");
    assert_eq!((sent.len(), &sent[0][..6], &sent[0][12..19]), (1, &HOST.0[..], &[0x81, 0, 0, 5, 8, 0, 0x45][..]));
    // Those behind it do not wait.
    let adjacency = domain.tables().adjacencies().get(next([20, 1, 2, 3])).unwrap();
    assert_eq!((&adjacency.header[..6], &adjacency.header[16..18]), (&HOST.0[..], &[8, 0][..]));
    // The sender of the other one is told by ICMP for IPv4.
    for second in 2..6 {
        rig.set_time(second * SECOND);
        rig.settle();
    }
    let tags: Vec<Tag> = rig.received_packets("error4").iter().map(|packet| Tag(packet.tag())).collect();
    assert_eq!(tags, [Tag::received_on(1).with(IcmpError::of(Reason::HostUnreachable).number())]);
    assert_eq!((rig.received("error").len(), rig.counts().held, drops(&rig)), (0, 0, Vec::new()));
    // A packet whose own destination would be the neighbour is none of IPv4 here.
    let mut glean = packet([20, 1, 2, 3]);
    let link = domain.tables().lock().look_up(ip("2001:db8:1::77").into()).unwrap().1.next;
    glean.set_tag(Tag::received_on(1).with(link).0);
    rig.send_packets("resolve4", [glean]);
    rig.settle();
    assert_eq!(drops(&rig), [("no_adjacency".to_owned(), 1)]);
}

#[test]
fn neighbours_leave_room_for_the_next_hops_of_routes() {
    let domain = domain();
    let mut rig = rig_with(Nd { detects_duplicates: false, ..app(&domain, false) }, &["a", "b", "error"]);
    let room = domain.tables().max_neighbours();
    for host in 0..6 * room as u16 {
        let source: &'static str = format!("2001:db8:1::{:x}", 0x100 + host).leak();
        let draft = solicitation("2001:db8:1::1", Some(HOST));
        rig.send_packets("input", [Sent::new(1, source, "2001:db8:1::1", &draft).packet()]);
        rig.settle();
    }
    let used = domain.tables().adjacencies().used();
    assert!(counter(&rig, "adjacencies_full") as usize >= room, "{used} are in use");
    let mut changes = domain.tables().lock();
    for number in 2..8 {
        let route = RouteSpec::parse(&format!("2001:db8:3{number}::/48 via 2001:db8:2::{number}")).unwrap();
        changes.add(&route, IfExists::Refuse).unwrap();
    }
}

#[test]
fn packets_to_silent_neighbours_are_answered_or_dropped() {
    for (outputs, is_told) in [(&["a", "b"][..], false), (&["a", "b", "error"], true)] {
        let domain = domain();
        let mut rig = rig_with(app(&domain, false), outputs);
        rig.send_packets("resolve", [data(&domain, "2001:db8:1::77")]);
        rig.settle();
        for second in 2..6 {
            rig.set_time(second * SECOND);
            rig.settle();
        }
        assert_eq!(received(&mut rig, "a").len(), 3, "solicitations");
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
fn packets_of_the_router_to_link_local_addresses_stay_on_their_link() {
    let domain = domain();
    let mut rig = rig(&domain);
    let mut packets = ["fe80::7", "2001:db8:1::7", "2001:db8:77::7", "ff02::1"].map(|destination| {
        let mut packet = data(&domain, "2001:db8:1::7");
        packet.bytes_mut()[38..54].copy_from_slice(&ip(destination).octets());
        packet.set_tag(Tag::received_on(1).0);
        packet
    });
    packets[1].set_tag(Tag::received_on(2).0);
    rig.send_packets("replies", packets);
    rig.settle();
    assert_eq!(drops(&rig), [("not_on_link".to_owned(), 3)]);
    assert_eq!(Seen::of(&received(&mut rig, "a")[0]).target, ip("fe80::7"));
    let answer = advertisement("fe80::7", flag::SOLICITED | flag::OVERRIDE, Some(HOST));
    rig.send_packets("input", [Sent::new(1, "fe80::7", "fe80::1", &answer).packet()]);
    rig.settle();
    let sent = received(&mut rig, "a");
    assert_eq!((sent.len(), &sent[0][..6], &sent[0][38..54]), (1, &HOST.0[..], &ip("fe80::7").octets()[..]));
}

#[test]
fn packets_of_the_router_that_are_too_long_for_their_link_are_not_sent() {
    let mut rig = rig(&domain());
    let packet = |length: u16| {
        let mut frame = vec![0; 54 + usize::from(length)];
        frame[18..20].copy_from_slice(&length.to_be_bytes());
        frame[38..54].copy_from_slice(&ip("fe80::7").octets());
        let mut packet = Packet::from_bytes(&frame).unwrap();
        packet.set_tag(Tag::received_on(1).0);
        packet
    };
    rig.send_packets("replies", [packet(1460), packet(1461)]);
    rig.settle();
    assert_eq!((rig.counts().held, drops(&rig)), (1, vec![("too_big".to_owned(), 1)]));
}

#[test]
fn what_is_not_to_be_believed_is_dropped_by_name() {
    let (all, group, host) = ("ff02::1", "ff02::1:ff00:1", "2001:db8:1::7");
    let ours = "2001:db8:1::1";
    let asks = solicitation(ours, Some(HOST));
    let change = |at: usize, value: u8| move |packet: &mut Packet| packet.bytes_mut()[at] = value;
    let mut cases: Vec<(&str, Packet)> = Vec::new();
    let mut add = |name, mut sent: Sent| cases.push((name, sent.packet()));
    add("bad_hop_limit", Sent { hop_limit: 254, ..Sent::new(1, host, group, &asks) });
    add("own_messages", Sent { station: OWN, ..Sent::new(1, host, group, &asks) });
    add("no_adjacency", Sent::new(9, host, group, &asks));
    add("bad_target", Sent::new(1, host, group, &solicitation("ff02::5", Some(HOST))));
    add("bad_target", Sent::new(1, host, ours, &advertisement("ff02::5", flag::SOLICITED, Some(HOST))));
    add("unspecified_source", Sent::new(1, "::", group, &asks));
    add("unspecified_source", Sent::new(1, "::", all, &solicitation(ours, None)));
    // An option of another link layer is one as well.
    let mut longer = solicitation(ours, None);
    longer.put(&[option_type::SOURCE_LINK_LAYER, 2]).put(&[0; 14]);
    add("unspecified_source", Sent::new(1, "::", group, &longer));
    let mut longer = MessageDraft::new(message_type::ROUTER_SOLICITATION, 0);
    longer.put(&[option_type::SOURCE_LINK_LAYER, 2]).put(&[0; 14]);
    add("unspecified_source", Sent::new(1, "::", "ff02::2", &longer));
    add("bad_link_layer_address", Sent::new(1, host, group, &solicitation(ours, Some(MacAddr([5; 6])))));
    add("bad_link_layer_address", Sent::new(1, host, group, &solicitation(ours, Some(MacAddr::default()))));
    add("l3_dst_address_not_local", Sent::new(1, host, group, &solicitation("2001:db8:1::8", Some(HOST))));
    add("l3_dst_address_not_local", Sent::new(1, "::", "ff02::1:ff00:8", &solicitation("2001:db8:1::8", None)));
    add("l3_src_address_not_local", Sent::new(1, "ff02::7", group, &asks));
    add("l3_src_address_is_local", Sent::new(1, "2001:db8:2::1", group, &asks));
    add("l3_dst_address_not_local", Sent::new(1, "2001:db8:9::7", group, &solicitation("2001:db8:1::8", Some(HOST))));
    add("l3_src_address_is_local", Sent::new(1, "fe80::1", group, &asks));
    add("l3_src_address_is_local", Sent::new(1, host, all, &advertisement(ours, flag::OVERRIDE, Some(HOST))));
    add("unasked", Sent::new(1, host, ours, &advertisement(host, flag::SOLICITED, Some(HOST))));
    add("unasked", Sent::new(1, host, all, &advertisement(host, flag::OVERRIDE, Some(HOST))));
    let mut router = MessageDraft::new(message_type::ROUTER_ADVERTISEMENT, 0);
    router.put(&[0; 8]);
    add("not_link_local", Sent::new(1, host, all, &router));
    let mut redirect = MessageDraft::new(message_type::REDIRECT, 0);
    redirect.put(&[0; 32]);
    add("redirects_ignored", Sent::new(1, "fe80::7", ours, &redirect));
    add("malformed", Sent::new(1, "fe80::7", ours, &MessageDraft::new(message_type::REDIRECT, 0)));
    let mut solicits = MessageDraft::new(message_type::ROUTER_SOLICITATION, 0);
    solicits.put_link_layer(option_type::SOURCE_LINK_LAYER, HOST);
    add("unspecified_source", Sent::new(1, "::", "ff02::2", &solicits));
    add("not_discovery", Sent::new(1, host, ours, &MessageDraft::new(128, 0)));
    let mut no_length = asks.clone();
    no_length.put(&[14, 0, 0, 0, 0, 0, 0, 0]);
    add("malformed", Sent::new(1, host, group, &no_length));
    let packet = |change: &dyn Fn(&mut Packet)| {
        let mut packet = Sent::new(1, host, group, &asks).packet();
        change(&mut packet);
        packet
    };
    cases.push(("bad_checksum", packet(&change(57, 1))));
    cases.push(("not_discovery", packet(&change(20, 17))));
    cases.push(("too_short", packet(&|packet| packet.truncate(80))));
    cases.push(("too_short", packet(&|packet| packet.truncate(13))));
    // A code of 1, and the sum that goes with it.
    cases.push(("bad_code", {
        let mut packet = packet(&change(55, 1));
        let sum = u16::from_be_bytes([packet.bytes()[56], packet.bytes()[57]]);
        let sum = bellows_wire::checksum::update(sum, &[135, 0], &[135, 1]);
        packet.bytes_mut()[56..58].copy_from_slice(&sum.to_be_bytes());
        packet
    }));
    for (name, packet) in cases {
        let mut rig = rig(&domain());
        let text = format!("{name}: {:02x?}", packet.bytes());
        rig.send_packets("input", [packet]);
        rig.settle();
        assert_eq!(drops(&rig), [(name.to_owned(), 1)], "{text}");
        assert!(received(&mut rig, "a").is_empty() && states(&rig).is_empty(), "{text}");
    }
}

#[test]
fn an_advertisement_to_many_answers_nobody() {
    let mut rig = rig(&domain());
    let (host, all) = ("2001:db8:1::7", "ff02::1");
    let asks = solicitation("2001:db8:1::1", Some(HOST));
    rig.send_packets("input", [Sent::new(1, host, "ff02::1:ff00:1", &asks).packet()]);
    rig.send_packets("input", [Sent::new(1, host, all, &advertisement(host, flag::SOLICITED, Some(HOST))).packet()]);
    rig.settle();
    assert_eq!(drops(&rig), [("solicited_multicast".to_owned(), 1)]);
}

#[test]
fn an_advertisement_that_does_not_override_leaves_what_is_known() {
    let domain = domain();
    let mut rig = rig(&domain);
    let other = MacAddr([4, 0, 0, 0, 0, 8]);
    let known = |domain: &RoutingDomain| {
        let next = domain.tables().lock().look_up(ip("2001:db8:1::7").into()).unwrap().1.next;
        domain.tables().adjacencies().get(next).unwrap().header[..6].to_vec()
    };
    rig.send_packets("resolve", [data(&domain, "2001:db8:1::7")]);
    rig.settle();
    for (flags, mac, expected) in [
        (flag::SOLICITED | flag::OVERRIDE, HOST, HOST),
        (0, other, HOST),
        (flag::SOLICITED, other, HOST),
        (flag::OVERRIDE, other, other),
    ] {
        let draft = advertisement("2001:db8:1::7", flags, Some(mac));
        rig.send_packets("input", [Sent::new(1, "2001:db8:1::7", "2001:db8:1::1", &draft).packet()]);
        if flags & flag::SOLICITED == 0 {
            let draft = advertisement("2001:db8:1::7", flags, Some(mac));
            rig.send_packets("input", [Sent::new(1, "2001:db8:1::7", "ff02::1", &draft).packet()]);
        }
        rig.settle();
        assert_eq!(known(&domain), expected.0, "{flags:x} {mac}");
    }
}

#[test]
fn gauges_are_those_of_ipv6() {
    let domain = domain();
    let mut rig = rig_with(app(&domain, false), &["a", "b"]);
    let asks = solicitation("2001:db8:1::1", Some(HOST));
    rig.send_packets("input", [Sent::new(1, "2001:db8:1::7", "ff02::1:ff00:1", &asks).packet()]);
    rig.settle();
    rig.set_time(2 * SECOND + 1);
    rig.settle();
    let (_, size) = domain.tables().lock().sizes();
    let found = ["neighbours_delay", "neighbours_permanent", "routes", "fib_bytes"].map(|name| counter(&rig, name));
    assert_eq!(found, [1, 0, size.routes as u64, size.bytes as u64]);
}

/// The event of a station that claims an address of an interface.
fn duplicate(interface: &str, address: &str) -> serde_json::Value {
    serde_json::json!({
        "event": "duplicate-address", "app": "", "interface": interface, "address": address,
        "station": HOST.to_string(),
    })
}

#[test]
fn an_address_in_use_is_kept_when_another_station_claims_it() {
    let (domain, log) = (domain(), EventLog::begin());
    let mut rig = rig_with(app(&domain, false), &["a", "b"]);
    let ours = "2001:db8:1::1";
    let has = advertisement(ours, flag::OVERRIDE, Some(HOST));
    let asks = solicitation(ours, Some(HOST));
    for (second, told) in [(1, true), (2, false), (700, true)] {
        rig.set_time(second * SECOND);
        rig.send_packets(
            "input",
            [
                Sent::new(1, "2001:db8:1::7", "ff02::1", &has).packet(),
                Sent::new(1, "fe80::1", "ff02::1:ff00:1", &asks).packet(),
            ],
        );
        rig.settle();
        let all = if told { vec![duplicate("a", ours), duplicate("a", "fe80::1")] } else { vec![] };
        assert_eq!(log.take(), all, "{second}");
    }
    assert_eq!(domain.addresses().all(AddressState::Duplicate), []);
}

#[test]
fn addresses_are_used_when_nobody_else_has_them() {
    let (domain, log) = (domain(), EventLog::begin());
    let mut rig = Rig::new(app(&domain, true), &["input", "resolve"], &["a", "b"]);
    rig.settle();
    assert!(domain.addresses().is_barred(1, ip("2001:db8:1::1")));
    // Two probes on each link, within a second, from no address.
    rig.set_time(2 * SECOND);
    rig.settle();
    for port in ["a", "b"] {
        let probes: Vec<Seen> = received(&mut rig, port).iter().map(|frame| Seen::of(frame)).collect();
        assert_eq!(probes.len(), 2);
        for probe in probes {
            let expected = (135, Ipv6Addr::UNSPECIFIED, ndp::solicited_node(probe.target), None);
            assert_eq!((probe.kind, probe.source, probe.destination, probe.mac), expected);
        }
    }
    // Meanwhile nobody is answered.
    let draft = solicitation("2001:db8:1::1", Some(HOST));
    rig.send_packets("input", [Sent::new(1, "2001:db8:1::7", "ff02::1:ff00:1", &draft).packet()]);
    rig.settle();
    assert_eq!(drops(&rig), [("tentative".to_owned(), 1)]);
    // Another host wants the global address of `a`, one has the link-local address of the other link.
    let wants = solicitation("2001:db8:1::1", None);
    let has = advertisement("fe80::1", flag::OVERRIDE, Some(HOST));
    rig.send_packets(
        "input",
        [Sent::new(1, "::", "ff02::1:ff00:1", &wants).packet(), Sent::new(2, "fe80::1", "ff02::1", &has).packet()],
    );
    rig.settle();
    assert_eq!(counter(&rig, "duplicate_addresses"), 2);
    assert_eq!(log.take(), [duplicate("a", "2001:db8:1::1"), duplicate("five", "fe80::1")]);
    rig.set_time(4 * SECOND);
    rig.settle();
    let announced =
        |rig: &mut Rig, port| received(rig, port).iter().map(|frame| Seen::of(frame).target).collect::<Vec<_>>();
    assert_eq!((announced(&mut rig, "a"), announced(&mut rig, "b")), (vec![ip("fe80::1")], vec![ip("2001:db8:2::1")]));
    assert_eq!(domain.addresses().all(AddressState::Duplicate), [(1, ip("2001:db8:1::1")), (2, ip("fe80::1"))]);
    let next = |address| domain.tables().lock().look_up(ip(address).into()).unwrap().1.next;
    assert_ne!(next("2001:db8:1::1"), special::LOCAL, "the address is another station's");
    assert_eq!(next("2001:db8:2::1"), special::LOCAL);
}

#[test]
fn an_app_that_replaces_another_need_not_probe_again() {
    let domain = domain();
    let mut old = app(&domain, false);
    old.has_begun = true;
    let mut new = app(&domain, true);
    new.start(Some(&mut old)).unwrap();
    let rig = rig_with(new, &["a", "b"]);
    assert!(rig.counts().drops.values().all(|count| *count == 0));
    assert!(domain.addresses().all(AddressState::Tentative).is_empty());
}

#[test]
fn addresses_that_need_not_be_probed_any_more_are_used() {
    let domain = domain();
    domain.addresses().set(1, ip("2001:db8:1::1"), AddressState::Tentative);
    let rig = rig(&domain);
    assert!(domain.addresses().is_usable(1, ip("2001:db8:1::1")));
    assert!(drops(&rig).is_empty());
}

#[test]
fn who_wants_an_address_of_the_router_is_told_that_it_is_in_use() {
    let mut rig = rig(&domain());
    let draft = solicitation("2001:db8:1::1", None);
    rig.send_packets("input", [Sent::new(1, "::", "ff02::1:ff00:1", &draft).packet()]);
    rig.settle();
    let seen = Seen::of(&received(&mut rig, "a")[0]);
    assert_eq!((seen.destination, seen.to), (ip("ff02::1"), MacAddr([0x33, 0x33, 0, 0, 0, 1])));
    assert_eq!((seen.word, seen.target), (flag::ROUTER | flag::OVERRIDE, ip("2001:db8:1::1")));
    assert!(states(&rig).is_empty());
}

#[test]
fn the_router_answers_for_others_only_if_it_is_told_to() {
    for (proxy, answers) in [(&[][..], 0), (&[1], 1)] {
        let domain = domain();
        let mut rig = rig_with(Nd { proxy: proxy.to_vec(), ..app(&domain, false) }, &["a", "b"]);
        let ask = |target| Sent::new(1, "2001:db8:1::7", "ff02::1:ff00:33", &solicitation(target, Some(HOST))).packet();
        rig.send_packets("input", ["2001:db8:2::33", "2001:db8:1::33", "2001:db8:99::33", "fe80::33"].map(ask));
        rig.settle();
        let sent = received(&mut rig, "a");
        assert_eq!((sent.len(), counter(&rig, "proxy_advertisements_sent")), (answers, answers as u64));
        for frame in sent {
            assert_eq!(Seen::of(&frame).word & flag::OVERRIDE, 0);
        }
    }
}

/// The domain whose interface `a` advertises the router.
fn advertising() -> Arc<RoutingDomain> {
    let prefix = PrefixOption {
        prefix: ip("2001:db8:1::"),
        length: 64,
        on_link: true,
        autonomous: true,
        valid: 1000,
        preferred: 500,
    };
    let advertised = Advertised {
        interval: (600 * SECOND, 200 * SECOND),
        hop_limit: 64,
        flags: 0x40,
        lifetime: 1800,
        mtu: Some(1400),
        prefixes: vec![prefix],
    };
    Arc::new(Arc::into_inner(domain()).unwrap().advertising(vec![Some(advertised), None]))
}

#[test]
fn routers_advertise_themselves_when_it_is_time_and_when_they_are_solicited() {
    let mut rig = rig(&advertising());
    let mut times = Vec::new();
    for quarter in 4..=4 * 60 {
        rig.set_time(quarter * SECOND / 4);
        rig.settle();
        let sent = received(&mut rig, "a");
        if let Some(frame) = sent.first() {
            let seen = Seen::of(frame);
            assert_eq!((seen.kind, seen.source, seen.destination), (134, ip("fe80::1"), ip("ff02::1")));
            assert_eq!((seen.word, seen.mac, sent.len()), (0x4040_0708, Some(OWN), 1));
            let options: Vec<u8> =
                Message::new_checked(&frame[54..]).unwrap().options().map(|(kind, _)| kind).collect();
            assert_eq!(options, [1, 5, 3]);
            times.push(quarter);
        }
    }
    // The first one within half a second, three in all at most 16 seconds apart.
    assert_eq!(times.len(), 3, "{times:?}");
    assert!(times[0] <= 6 && times[1] - times[0] <= 65 && times[2] - times[1] <= 65, "{times:?}");
    let mut solicits = MessageDraft::new(message_type::ROUTER_SOLICITATION, 0);
    for second in [100, 101, 102] {
        rig.set_time(second * SECOND);
        rig.send_packets("input", [Sent::new(1, "::", "ff02::2", &solicits).packet()]);
        rig.settle();
    }
    solicits.put_link_layer(option_type::SOURCE_LINK_LAYER, HOST);
    rig.send_packets("input", [Sent::new(1, "fe80::7", "ff02::2", &solicits).packet()]);
    rig.send_packets("input", [Sent::new(2, "fe80::7", "ff02::2", &solicits).packet()]);
    rig.settle();
    assert_eq!(states(&rig).len(), 2, "who says where it is, is known");
    assert_eq!(received(&mut rig, "a").len(), 1, "at most one in three seconds");
    rig.set_time(105 * SECOND);
    rig.settle();
    assert_eq!((received(&mut rig, "a").len(), received(&mut rig, "b").len()), (1, 0));
}

#[test]
fn advertisements_of_others_are_compared_with_those_of_the_router() {
    let mut rig = rig(&advertising());
    // Another hop limit, the same flags, no MTU.
    let draft = |word: u32| {
        let mut draft = MessageDraft::new(message_type::ROUTER_ADVERTISEMENT, word);
        draft.put(&[0; 8]);
        draft
    };
    for (number, source, word) in [
        (1, "fe80::7", 0x3f40_0708),
        (1, "fe80::7", 0x3f40_0000),
        (1, "fe80::7", 0x4080_0708),
        (2, "fe80::7", 0x3f00_0708),
        // From beyond the link.
        (1, "2001:db8::7", 0x3f00_0708),
    ] {
        rig.send_packets("input", [Sent::new(number, source, "ff02::1", &draft(word)).packet()]);
    }
    rig.settle();
    let counts = ["hop_limit_differs", "flags_differ", "mtu_differs", "lifetimes_differ"]
        .map(|name| counter(&rig, &format!("advertised_{name}")));
    assert_eq!((counts, counter(&rig, "router_advertisements_received")), ([2, 1, 0, 0], 4));
}

#[test]
fn hosts_are_told_when_the_router_is_reconfigured_not_to_advertise_itself() {
    let mut old = app(&advertising(), false);
    old.has_begun = true;
    old.schedules.begin(&Arc::clone(&old.resolver.domain), 0, &mut old.random);
    let mut silent = app(&domain(), false);
    silent.start(Some(&mut old)).unwrap();
    assert_eq!(silent.schedules.next_deadline(), None, "it had not begun to");
    old.schedules.was_sent(SECOND);
    let mut new = app(&domain(), false);
    new.start(Some(&mut old)).unwrap();
    let mut rig = Rig::new(new, &["input"], &["a", "b"]);
    rig.settle();
    let last = received(&mut rig, "a").iter().map(|frame| Seen::of(frame)).find(|seen| seen.kind == 134).unwrap();
    assert_eq!((last.word, last.source), (0x4040_0000, ip("fe80::1")));
    rig.set_time(1000 * SECOND);
    rig.settle();
    assert!(received(&mut rig, "a").is_empty());
}

#[test]
fn a_station_that_claims_60_000_addresses_keeps_nobody_else_out() {
    let log = EventLog::begin();
    let interface = |name: &str, number: u8| Interface {
        name: name.to_owned(),
        port: name.to_owned(),
        mac: OWN,
        mtu: 1500,
        tags: Vec::new(),
        addresses: [format!("2001:db8:{number}::1"), "fe80::1".to_owned()]
            .map(|address| InterfaceAddress { address: ip(&address).into(), length: 64 })
            .to_vec(),
    };
    let vrf = Vrf::new(vec![interface("a", 1), interface("b", 2)], 50_000, 1).unwrap();
    let domain = Arc::new(RoutingDomain::new(vrf));
    let limits = limits(domain.tables(), reachable());
    let nd = Nd { detects_duplicates: false, ..Nd::new(Arc::clone(&domain), limits) };
    let mut rig = rig_with(nd, &["a", "b", "error"]);
    let question = |interface: u16, mac: MacAddr, host: u32| {
        let source: &'static str = format!("2001:db8:{interface}::{host:x}").leak();
        let own: &'static str = format!("2001:db8:{interface}::1").leak();
        Sent { station: mac, ..Sent::new(interface, source, own, &solicitation(own, Some(mac))) }.packet()
    };
    let (mut now, mut answered) = (SECOND, 0);
    for first in (1_000..61_000).step_by(250) {
        // No slower than those that were learned are asked whether they are there.
        now += SECOND * 3 / 100;
        rig.set_time(now);
        rig.send_packets("input", (first..first + 250).map(|host| question(1, HOST, host)).collect::<Vec<_>>());
        rig.settle();
        let answers = received(&mut rig, "a");
        answered +=
            answers.iter().filter(|frame| Seen::of(frame).kind == message_type::NEIGHBOUR_ADVERTISEMENT).count();
    }
    assert_eq!(answered, 60_000, "all are answered");
    assert!(counter(&rig, "neighbours_full") > 0 && counter(&rig, "learned") >= 50_000);
    // New hosts elsewhere, and on the same link, are answered and learned, and packets find them.
    for number in 2..50_u8 {
        for (interface, output) in [(2, "b"), (1, "a")] {
            let mac = MacAddr([4, 0, 0, 9, interface as u8, number]);
            rig.send_packets("input", [question(interface, mac, number.into())]);
            rig.settle();
            let answers: Vec<MacAddr> = received(&mut rig, output)
                .iter()
                .map(|frame| Seen::of(frame))
                .filter(|seen| seen.kind == message_type::NEIGHBOUR_ADVERTISEMENT)
                .map(|seen| seen.to)
                .collect();
            assert_eq!(answers, [mac], "{number} on {output}");
            let host = ip(&format!("2001:db8:{interface}::{number:x}"));
            let index = domain.tables().lock().look_up(host.into()).unwrap().1.next;
            let adjacency = domain.tables().adjacencies().get(index).unwrap();
            assert_eq!((adjacency.header[..6].to_vec(), adjacency.interface), (mac.0.to_vec(), interface));
        }
    }
    assert!(counter(&rig, "displaced") > 0);
    assert_eq!(
        log.take(),
        [serde_json::json!({ "event": "table-full", "app": "", "table": "neighbours", "port": "a" })]
    );
}

#[test]
fn a_flood_of_solicitations_stays_within_bounds() {
    let domain = domain();
    let limits = NeighbourLimits { neighbours: 20, incomplete: 8, ..NeighbourLimits::default() };
    let mut app = Nd::new(Arc::clone(&domain), limits);
    app.detects_duplicates = false;
    let mut rig = Rig::with_settings(app, &["input", "resolve"], &["a", "b"], Settings::default());
    rig.settle();
    let known = solicitation("2001:db8:1::1", Some(HOST));
    rig.send_packets("input", [Sent::new(1, "2001:db8:1::7", "2001:db8:1::1", &known).packet()]);
    rig.settle();
    // More neighbours than there may be, whose answers release three packets each.
    for round in 0..4u16 {
        rig.send_packets(
            "resolve",
            (0..300u16).flat_map(|host| {
                let text = format!("2001:db8:2::{:x}", 0x100 + round * 300 + host);
                (0..3).map(|_| data(&domain, &text)).collect::<Vec<_>>()
            }),
        );
        rig.settle();
    }
    assert!(rig.counts().held <= 24 && states(&rig).len() <= 20);
    assert!(states(&rig).contains(&("2001:db8:1::7".to_owned(), "delay".to_owned())));
    let answers = states(&rig).into_iter().filter(|(_, state)| state == "incomplete").map(|(address, _)| {
        let draft = advertisement(&address, flag::SOLICITED, Some(HOST));
        Sent::new(2, "fe80::7", "fe80::1", &draft).packet()
    });
    let answers: Vec<Packet> = answers.collect();
    let count = answers.len();
    received(&mut rig, "b");
    rig.send_packets("input", answers);
    rig.settle();
    assert_eq!((received(&mut rig, "b").len(), rig.counts().held), (3 * count, 0));
}

proptest! {
    #[test]
    fn a_glance_refuses_what_a_closer_look_refuses(
        messages in prop::collection::vec((130u8..139, 0usize..6, 0usize..6, any::<bool>(), 1u16..4, 40usize..80), 1..40),
        is_flooded in any::<bool>(),
    ) {
        let mut nd = app(&domain(), false);
        let known = ip("2001:db8:1::7");
        nd.resolver.learn((1, known.into()), SECOND, |neighbours| neighbours.hear_solicitation((1, known.into()), HOST, SECOND));
        for interface in 0..4 {
            for sender in [MessageSender::Stranger, MessageSender::OffLink] {
                while is_flooded && nd.hearing.hears(interface, sender, SECOND) {}
            }
        }
        let addresses =
            ["2001:db8:1::7", "2001:db8:9::8", "2001:db8:1::1", "fe80::1", "ff02::1", "fe80::9"].map(ip);
        for (kind, source, target, is_direct, interface, length) in messages {
            let mut frame = vec![0; 14 + 64];
            (frame[14], frame[20], frame[54]) = (0x60, if is_direct { 58 } else { 60 }, kind);
            frame[22..38].copy_from_slice(&addresses[source].octets());
            frame[62..78].copy_from_slice(&addresses[target].octets());
            frame.truncate(14 + length);
            let mut packet = Packet::from_bytes(&frame).unwrap();
            packet.set_tag(Tag::received_on(interface).0);
            let is_known = |address: Ipv6Addr| nd.resolver.may_know((interface, address.into()));
            let is_beyond = |address| !nd.hearing.would_hear(interface, nd.sender(interface, address), SECOND);
            let (source, target) = (addresses[source], addresses[target]);
            let is_own = nd.own_state(interface, target).is_some() || interface == 3;
            let expected = match kind {
                _ if length < 64 || !is_direct => None,
                133 | 135 => is_beyond(source).then_some("rate_limited"),
                136 if is_known(target) => is_beyond(target).then_some("rate_limited"),
                136 => (!target.is_multicast() && !is_own).then_some("unasked"),
                _ => None,
            };
            let reasons = [("rate_limited", Nd::RATE_LIMITED), ("unasked", Nd::UNASKED)];
            let expected = reasons.into_iter().find(|(name, _)| expected == Some(*name)).map(|(_, it)| it.position());
            let found = nd.refuse_all(&[packet], SECOND).map(|reason| reason.position());
            prop_assert_eq!(found, expected, "{} {} {}", kind, source, target);
        }
    }

    #[test]
    fn any_bytes_are_a_message_or_dropped(
        kind in 133u8..138,
        rest in prop::collection::vec(any::<u8>(), 0..120),
        changes in prop::collection::vec((0usize..160, any::<u8>()), 0..4),
        number in 0u16..4,
        detects in any::<bool>(),
    ) {
        let mut rig = Rig::new(app(&domain(), detects), &["input", "resolve", "replies"], &["a", "b"]);
        let mut draft = MessageDraft::new(kind, 0x6000_0000);
        draft.put(&rest);
        for input in ["input", "resolve", "replies"] {
            let mut packet = Sent::new(number, "fe80::7", "fe80::1", &draft).packet();
            for &(at, value) in &changes {
                if let Some(byte) = packet.bytes_mut().get_mut(at) {
                    *byte = value;
                }
            }
            rig.send_packets(input, [packet]);
        }
        rig.settle();
        for second in 2..8 {
            rig.set_time(second * SECOND);
            rig.settle();
        }
        prop_assert_eq!(rig.counts().held, 0);
    }
}
