//! What tunnels learn of their paths, and what becomes of packets that are too long for them.

use std::collections::BTreeSet;
use std::slice::from_ref;

use bellows_common::headers::ETHERNET;
use bellows_config::{Configure, Context};
use bellows_exercise::packets::{ip, pair, too_big};
use bellows_exercise::tunnel_examples::SessionExample;
use bellows_rig::Rig;
use bellows_router::fragment::{self, Fragment};
use bellows_router::reassemble::{self, Reassemble};
use bellows_wire::IpProtocol;
use bellows_wire::ipv4::Ipv4Packet;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::Protocol;
use super::tests::{SessionCheck, configure, ends, rig, through, transport};
use crate::gre::Generic as Gre;
use crate::keyed_tunnel::Keyed;

const SECOND: u64 = 1_000_000_000;

/// A tunnel at a time.
fn at<P: Protocol>(config: &Value, seconds: u64) -> Rig {
    let mut rig = rig::<P>(config);
    rig.set_time(seconds * SECOND);
    rig
}

/// Puts fragments together.
pub(crate) fn reassembled(packets: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let app = Reassemble::configure(reassemble::Config::default(), &Context::default()).unwrap();
    let mut rig = Rig::new(app, &["input"], &["output"]);
    rig.send("input", packets);
    rig.settle();
    rig.received("output")
}

pub(crate) fn count(rig: &Rig, name: &str) -> u64 {
    let counts = rig.counts();
    counts.drops.get(name).or_else(|| counts.counters.get(name)).copied().unwrap()
}

/// Has a session learn that its path is narrow. Its packets have bytes behind the header of IP that tell it.
fn check_learning<P: Protocol>(is_v6: bool, keys: [&Value; 2], telling: impl Iterator<Item = usize>) {
    let [one, two] = ends(is_v6, keys);
    let (mut near, mut far) = (at::<P>(&one, 5), at::<P>(&two, 5));
    let (port, start) = (transport(is_v6), ETHERNET + if is_v6 { 40 } else { 20 });
    let frame: Vec<u8> = (0..1_400).map(|at| at as u8).collect();
    let sent = through(&mut near, "a", &frame, port).remove(0);
    // Others that know all but one byte are not believed.
    let addresses = start - if is_v6 { 32 } else { 8 }..start;
    let mut forgeries = 0;
    for at in addresses.chain(telling.map(|at| start + at)) {
        let mut forged = sent.clone();
        forged[at] ^= 0x10;
        near.send(port, [too_big(&forged, 1_300)]);
        forgeries += 1;
    }
    near.settle();
    assert_eq!((count(&near, "bad_icmp_error"), count(&near, "told_path_mtu")), (forgeries, 0));
    assert_eq!(through(&mut near, "a", &frame, port), from_ref(&sent));
    near.send(port, [too_big(&sent, 1_300)]);
    near.settle();
    assert_eq!(count(&near, "told_path_mtu"), 1);
    let (name, long) = if is_v6 { ("fragmented", 2) } else { ("too_big", 0) };
    for (seconds, expected) in [(0, long), (599, long), (601, 1)] {
        near.set_time((5 + seconds) * SECOND);
        near.settle();
        let packets = through(&mut near, "a", &frame, port);
        assert_eq!(packets.len(), expected, "after {seconds} seconds");
        if expected > 0 {
            let limit = ETHERNET + if expected > 1 { 1_300 } else { 1_600 };
            assert!(packets.iter().all(|packet| packet.len() <= limit));
            far.send(port, reassembled(&packets));
            far.settle();
            assert_eq!(far.received("a"), from_ref(&frame));
        }
    }
    assert_eq!(count(&near, name), 2);
    // What fits was never in the way.
    assert_eq!(through(&mut near, "a", &[3; 1_000], port).len(), 1);
}

#[test]
fn every_tunnel_learns_from_errors_about_its_own_packets_for_ten_minutes() {
    struct Learning;

    impl SessionCheck for Learning {
        fn check<P: Protocol>(session: &SessionExample, keys: [&Value; 2]) {
            for is_v6 in [false, true].into_iter().filter(|_| !session.telling.is_empty()) {
                check_learning::<P>(is_v6, keys, session.telling.iter().flat_map(|&[from, to]| from..to));
            }
        }
    }

    crate::check_sessions::<Learning>();
}

#[test]
fn sessions_between_the_same_ends_share_what_a_reload_keeps() {
    let [mut config, _] = ends(true, [&json!({"key": 1}); 2]);
    config["sessions"]["b"] = json!({"remote": "2001:db8::2", "key": 2});
    config["sessions"]["c"] = json!({"remote": "2001:db8::3", "key": 2});
    let mut near = at::<Gre>(&config, 5);
    let sent = through(&mut near, "a", &[1; 1_400], "ip6").remove(0);
    near.send("ip6", [too_big(&sent, 1_400)]);
    let fragments = |near: &mut Rig| ["a", "b", "c"].map(|session| through(near, session, &[1; 1_400], "ip6").len());
    assert_eq!(fragments(&mut near), [2, 2, 1]);
    config["sessions"]["d"] = json!({"remote": "2001:db8::2", "key": 3});
    near.replace(configure::<Gre>(&config).unwrap()).unwrap();
    near.set_time(6 * SECOND);
    near.settle();
    assert_eq!(fragments(&mut near), [2, 2, 1]);
    near.set_time(606 * SECOND);
    near.settle();
    assert_eq!(fragments(&mut near), [1, 1, 1]);
}

#[test]
fn a_configured_mtu_holds_and_fragments_can_be_refused() {
    for (fragment, expected) in [(true, 2), (false, 0)] {
        let [mut config, _] = ends(true, [&json!({}); 2]);
        config["mtu"] = json!(1_400);
        config["fragment"] = json!(fragment);
        let mut near = rig::<Keyed>(&config);
        assert_eq!(through(&mut near, "a", &[1; 1_356], "ip6").len(), 1);
        assert_eq!(through(&mut near, "a", &[1; 1_357], "ip6").len(), expected);
        assert_eq!(count(&near, "too_big"), u64::from(!fragment));
    }
    let cases = [
        (json!({"mtu": 1_279}), "an `mtu` of 1279 is too small"),
        (json!({"min_path_mtu": 67}), "every link takes packets of 68 bytes"),
    ];
    for (keys, message) in cases {
        let [mut config, _] = ends(true, [&json!({}); 2]);
        config.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
        assert_eq!(configure::<Keyed>(&config).err().map(|error| error.message).as_deref(), Some(message));
    }
}

#[test]
fn packets_that_may_be_fragmented_differ_and_survive_it() {
    let [mut config, far] = ends(false, [&json!({"key": 1}); 2]);
    config["sessions"]["b"] = json!({"remote": "192.0.2.2", "key": 2});
    config["df"] = json!("clear");
    let mut near = rig::<Gre>(&config);
    let frames: Vec<Vec<u8>> = (0..300).map(|at| vec![at as u8; 1_000]).collect();
    near.send("a", &frames);
    near.send("b", &frames);
    near.settle();
    let sent = near.received("ip4");
    let headers: Vec<_> = sent.iter().map(|packet| Ipv4Packet::new_checked(&packet[ETHERNET..]).unwrap()).collect();
    let is_right = |header: &Ipv4Packet<_>| bellows_wire::Sum::new().add_bytes(header.header()).finish() == 0;
    assert!(headers.iter().all(|header| is_right(header) && header.flags_fragment() == 0));
    let identifications: BTreeSet<u16> = headers.iter().map(|header| header.identification()).collect();
    assert_eq!(identifications.len(), 600);
    // A router on the way.
    let config = fragment::Config { mtu: Some(576), ..fragment::Config::default() };
    let app = Fragment::configure(config, &Context::default()).unwrap();
    let mut router = Rig::new(app, &["input"], &["output"]);
    router.send("input", &sent[..20]);
    router.settle();
    let fragments = router.received("output");
    assert_eq!(fragments.len(), 40);
    let mut far = rig::<Gre>(&far);
    far.send("ip4", reassembled(&fragments));
    far.settle();
    assert_eq!(far.received("a"), frames[..20]);
}

/// An IP packet of `length` bytes, which may be fragmented or not.
pub(crate) fn inner(is_v6: bool, may_fragment: bool, length: usize) -> Vec<u8> {
    let header = if is_v6 { 40 } else { 20 };
    let payload: Vec<u8> = (0..length - header).map(|at| at as u8).collect();
    let mut packet = ip(pair(is_v6), IpProtocol(200), &payload);
    if may_fragment && !is_v6 {
        packet[ETHERNET + 6] = 0;
        packet[ETHERNET + 10..ETHERNET + 12].fill(0);
        let checksum = bellows_wire::Sum::new().add_bytes(&packet[ETHERNET..ETHERNET + 20]).finish();
        packet[ETHERNET + 10..ETHERNET + 12].copy_from_slice(&checksum.to_be_bytes());
    }
    packet
}

proptest! {
    /// An IP packet arrives, as a whole or in fragments, or its sender is told the MTU of one that arrives; or, where
    /// neither is possible, it is counted.
    #[test]
    fn ip_packets_arrive_or_their_senders_learn_how_long_they_may_be(
        (is_v6, inner_is_v6, may_fragment, clear) in any::<(bool, bool, bool, bool)>(),
        mtu in 1_280u16..1_500,
        length in 60usize..3_000,
    ) {
        let [mut one, two] = ends(is_v6, [&json!({"payload": "ip"}); 2]);
        one["mtu"] = json!(mtu);
        one["df"] = json!(if clear { "clear" } else { "set" });
        let (mut near, mut far) = (at::<Gre>(&one, 5), at::<Gre>(&two, 5));
        let port = transport(is_v6);
        let mut carry = |near: &mut Rig, packet: &[u8]| {
            let packets = through(near, "a", packet, port);
            assert!(packets.iter().all(|packet| packet.len() <= ETHERNET + usize::from(mtu)));
            far.send(port, reassembled(&packets));
            far.settle();
            reassembled(&far.received("a"))
        };
        let with_ends = |packet: &[u8]| [&[0; 12], &packet[12..]].concat();
        let packet = inner(inner_is_v6, may_fragment, length);
        let arrived = carry(&mut near, &packet);
        let told = near.received("a");
        if let [error] = &told[..] {
            prop_assert_eq!(&arrived, &Vec::<Vec<u8>>::new());
            prop_assert!(inner_is_v6 || !may_fragment);
            let read = bellows_common::too_big::TooBig::read(error).unwrap();
            prop_assert_eq!((read.length, read.addresses), (length, pair(inner_is_v6)));
            prop_assert!((read.mtu as usize) < length);
            let shorter = inner(inner_is_v6, false, read.mtu as usize);
            let arrived = carry(&mut near, &shorter);
            // IPv6 has no shorter packets than those that IPv4 then has to carry in pieces.
            let is_hopeless = inner_is_v6 && read.mtu == 1_280 && !is_v6 && !clear;
            prop_assert!(arrived == [with_ends(&shorter)] || is_hopeless && count(&near, "too_big") == 2);
        } else if arrived.is_empty() {
            // IPv6 over IPv4, where no address is that an error could come from, or which must not be fragmented.
            prop_assert!(inner_is_v6 && !is_v6);
            prop_assert_eq!((count(&near, "too_big"), count(&near, "too_big_sent")), (1, 0));
        } else {
            prop_assert_eq!(arrived, [with_ends(&packet)]);
        }
    }
}

#[test]
fn errors_about_ipv4_over_ipv6_come_from_the_dummy_address() {
    let [mut config, _] = ends(true, [&json!({"payload": "ip"}); 2]);
    config["mtu"] = json!(1_400);
    let mut near = at::<Gre>(&config, 5);
    let told = through(&mut near, "a", &inner(false, false, 1_400), "a").remove(0);
    let header = Ipv4Packet::new_checked(&told[ETHERNET..]).unwrap();
    assert_eq!((header.src().to_string(), header.dst().to_string()), ("192.0.0.8".to_owned(), "192.0.2.1".to_owned()));
    bellows_wire::verify_checksums(&told).unwrap();
    assert_eq!(u16::from_be_bytes([told[40], told[41]]), 1_356);
    // No more than a router sends.
    near.send("a", (0..200).map(|_| inner(false, false, 1_400)));
    near.settle();
    assert_eq!((near.received("a").len(), count(&near, "too_big")), (49, 201));
}
