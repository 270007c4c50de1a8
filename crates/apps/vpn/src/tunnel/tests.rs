//! What the tests of all tunnels share: two ends, a wire between them, and a model that builds packets field by field.

use std::collections::BTreeMap;

use bellows_common::headers::ETHERNET;
use bellows_config::{Configure, Context, SettingError};
use bellows_exercise::packets::{ip, mark, pair};
use bellows_exercise::tunnel_examples::{SessionExample, TUNNELS};
use bellows_packet::{Offload, Packet};
use bellows_rig::Rig;
use bellows_wire::udp::UdpHeader;
use bellows_wire::{IpPair, IpProtocol, checksum};
use proptest::prelude::*;
use serde_json::json;

use super::{Protocol, TRANSPORTS, Tunnel};
use crate::keyed_tunnel::{Keyed, KeyedTunnel};
use crate::{gre, vxlan};

/// A test of the sessions of all tunnels.
pub(crate) trait SessionCheck {
    /// Checks a session, whose two ends have these keys apart from the addresses.
    fn check<P: Protocol>(session: &SessionExample, ends: [&serde_json::Value; 2]);
}

/// Checks the sessions of a tunnel.
pub(crate) fn check_sessions_of<P: Protocol, C: SessionCheck>() {
    let examples = TUNNELS.iter().find(|tunnel| tunnel.app == P::NAME);
    let examples = examples.unwrap_or_else(|| panic!("there are no examples of `{}`", P::NAME));
    for session in examples.sessions {
        // The value of a key is JSON, too. What one end sends is what the other one expects.
        let key = |line: &str| {
            let (key, value) = line.split_once(" = ").unwrap();
            (key.to_owned(), serde_json::from_str::<serde_json::Value>(value).unwrap())
        };
        let near: serde_json::Map<_, _> = session.keys.iter().map(|line| key(line)).collect();
        let mirrored = |name: &str| match name.split_once('_') {
            Some(("send", what)) => format!("expect_{what}"),
            Some(("expect", what)) => format!("send_{what}"),
            _ => name.to_owned(),
        };
        let far: serde_json::Map<_, _> = near.iter().map(|(name, value)| (mirrored(name), value.clone())).collect();
        C::check::<P>(session, [&near.into(), &far.into()]);
    }
}

/// An app with these keys.
pub(crate) fn configure<P: Protocol>(config: &serde_json::Value) -> Result<Tunnel<P>, SettingError> {
    Tunnel::configure(serde_json::from_value(config.clone()).unwrap(), &Context::default())
}

/// An app with these keys, and with a port for each session.
pub(crate) fn rig<P: Protocol>(config: &serde_json::Value) -> Rig {
    let sessions = config["sessions"].as_object().unwrap();
    let ports: Vec<&str> = TRANSPORTS.into_iter().chain(sessions.keys().map(String::as_str)).collect();
    Rig::new(configure::<P>(config).unwrap(), &ports, &ports)
}

/// The port of packets in tunnels.
pub(crate) fn transport(is_v6: bool) -> &'static str {
    TRANSPORTS[usize::from(is_v6)]
}

/// The packets at an output when an input has received one.
pub(crate) fn through(rig: &mut Rig, input: &str, packet: &[u8], output: &str) -> Vec<Vec<u8>> {
    rig.send(input, [packet]);
    rig.settle();
    rig.received(output)
}

/// The counter of the only drop of an app that has received one packet from the transport.
pub(crate) fn refusal<P: Protocol>(config: &serde_json::Value, packet: &[u8]) -> Option<String> {
    let mut rig = rig::<P>(config);
    rig.send(transport(true), [packet]);
    rig.settle();
    let counts = rig.counts();
    let mut drops = counts.drops.iter().filter(|(_, count)| **count > 0);
    let drop = drops.next().map(|(name, count)| {
        assert_eq!(*count, 1);
        name.to_string()
    });
    assert_eq!(drops.next(), None);
    drop
}

/// The addresses of a session as its keys have them.
fn texts(addresses: IpPair) -> [String; 2] {
    match addresses {
        IpPair::V4 { src, dst } => [src.to_string(), dst.to_string()],
        IpPair::V6 { src, dst } => [src.to_string(), dst.to_string()],
    }
}

/// Two ends of one session: its keys at the first end and at the second one, apart from the addresses.
pub(crate) fn ends(is_v6: bool, keys: [&serde_json::Value; 2]) -> [serde_json::Value; 2] {
    let [one, two] = texts(pair(is_v6));
    let end = |local: &str, remote: &str, keys: &serde_json::Value| {
        let mut session = keys.as_object().unwrap().clone();
        session.insert("remote".to_owned(), remote.into());
        serde_json::json!({"local": local, "sessions": {"a": session}})
    };
    [end(&one, &two, keys[0]), end(&two, &one, keys[1])]
}

/// Frames to carry.
pub(crate) fn frames() -> impl Strategy<Value = Vec<Vec<u8>>> {
    prop::collection::vec(prop::collection::vec(any::<u8>(), ETHERNET..300), 1..20)
}

/// Sends frames through a tunnel between two ends. They must look as the model has them in between, and arrive unchanged.
/// On the way, Ethernet pads them.
pub(crate) fn check_round_trip<P: Protocol>(
    is_v6: bool,
    [one, two]: [serde_json::Value; 2],
    frames: &[Vec<u8>],
    model: impl Fn(&[u8]) -> Vec<u8>,
) {
    let (mut near, mut far) = (rig::<P>(&one), rig::<P>(&two));
    near.send("a", frames);
    near.settle();
    let sent = near.received(transport(is_v6));
    assert_eq!(sent, frames.iter().map(|frame| model(frame)).collect::<Vec<_>>());
    far.send(transport(is_v6), sent.into_iter().map(|packet| [&packet[..], &[0xee; 9]].concat()));
    far.settle();
    assert_eq!(far.received("a"), frames);
    assert_eq!((near.counts().dropped(), far.counts().dropped()), (0, 0));
}

/// A frame of TCP that a guest has left to be segmented and summed, and what it becomes.
fn gso_packet(payload: usize, size: u16) -> Packet {
    let tcp = {
        let mut tcp = vec![0; 20 + payload];
        tcp[12] = 5 << 4;
        tcp[13] = 0x10;
        tcp
    };
    let frame = ip(pair(false), IpProtocol::TCP, &tcp);
    let mut packet = Packet::from_bytes(&frame).unwrap();
    packet.set_offload(Offload {
        flags: Offload::NEEDS_CHECKSUM,
        gso_type: Offload::GSO_TCP4,
        header_length: 54,
        segment_size: size,
        checksum_start: 34,
        checksum_offset: 16,
    });
    packet
}

#[test]
fn offloads_are_finished_before_frames_are_carried() {
    let keys = serde_json::json!({});
    let [one, two] = ends(true, [&keys; 2]);
    let (mut near, mut far) = (rig::<Keyed>(&one), rig::<Keyed>(&two));
    let mut hopeless = gso_packet(100, 500);
    hopeless.set_offload(Offload { gso_type: 3, ..hopeless.offload().unwrap() });
    near.send_packets("a", [gso_packet(1_000, 300), hopeless]);
    near.settle();
    let sent = near.received_packets("ip6");
    assert!(sent.iter().all(|packet| !packet.has_offload()));
    far.send_packets("ip6", sent);
    far.settle();
    let frames = far.received("a");
    assert_eq!(frames.iter().map(|frame| frame.len() - 54).collect::<Vec<_>>(), [300, 300, 300, 100]);
    for frame in &frames {
        bellows_wire::verify_checksums(frame).unwrap();
    }
    let counts = near.counts();
    assert_eq!((counts.counters["segmented"], counts.drops["bad_offload"]), (1, 1));
}

#[test]
fn packets_that_do_not_fit_are_dropped_by_name() {
    let keys = serde_json::json!({});
    let [one, _] = ends(true, [&keys; 2]);
    let mut near = rig::<Keyed>(&one);
    let mut crowded = Packet::from_bytes(&[8; 100]).unwrap();
    crowded.prepend(crowded.headroom() - 57);
    let long = Packet::from_bytes(&[8; 65_500]).unwrap();
    near.send_packets("a", [Packet::from_bytes(&[8; 13]).unwrap(), crowded, long]);
    near.send("a", [[8; 14]]);
    near.settle();
    let counts = near.counts();
    let names = ["too_short", "no_headroom", "too_long"];
    assert_eq!(names.map(|name| counts.drops[name]), [1; 3]);
    assert_eq!(near.received("ip6").len(), 1);
}

/// Keys of sessions between a few stations, some of which have the same numbers.
fn sessions() -> impl Strategy<Value = BTreeMap<(bool, u8, u32), u64>> {
    prop::collection::btree_map((any::<bool>(), 1u8..6, 1u32..8), any::<u64>(), 1..40)
}

proptest! {
    #[test]
    fn each_packet_comes_out_at_its_session(sessions in sessions(), number in any::<prop::sample::Index>(), change in 0usize..40) {
        let name = |(is_v6, station, session): (bool, u8, u32)| format!("s{}-{station}-{session}", u8::from(is_v6));
        let address = |is_v6: bool, station: u8| match is_v6 {
            true => format!("2001:db8::{station}"),
            false => format!("192.0.2.{station}"),
        };
        let keys: serde_json::Map<_, _> = sessions.iter().map(|(&key, &cookie)| {
            let (is_v6, station, session) = key;
            (name(key), serde_json::json!({
                "local": address(is_v6, 100), "remote": address(is_v6, station), "expect_session": session,
                "expect_cookie": format!("{cookie:016x}"),
            }))
        }).collect();
        let config = serde_json::json!({"sessions": keys});
        let keys: Vec<_> = sessions.into_iter().collect();
        let ((is_v6, station, session), cookie) = keys[number.index(keys.len())];
        let ends = IpPair::new(address(is_v6, station).parse().unwrap(), address(is_v6, 100).parse().unwrap()).unwrap();
        let mut header = [&session.to_be_bytes()[..], &cookie.to_be_bytes()].concat();
        // Of twelve bytes, one may be wrong.
        let drop = match change {
            0..4 => Some("no_session"),
            4..12 => Some("bad_cookie"),
            _ => None,
        };
        if drop.is_some() {
            header[change] ^= 0x80;
        }
        let mut rig = rig::<Keyed>(&config);
        rig.send(transport(is_v6), [ip(ends, IpProtocol(115), &[&header[..], &[7; 60]].concat())]);
        rig.settle();
        for &(key, _) in &keys {
            let is_meant = key == (is_v6, station, session) && drop.is_none();
            prop_assert_eq!(rig.received(&name(key)).len(), usize::from(is_meant));
        }
        if let Some(name) = drop {
            prop_assert_eq!(rig.counts().drops[name], 1);
        }
    }

    #[test]
    fn packets_with_any_bytes_are_carried_or_counted(
        is_v6 in any::<bool>(),
        changes in prop::collection::vec((0usize..90, any::<u8>()), 0..4),
        cut in 0usize..120,
    ) {
        let [one, two] = ends(is_v6, [&serde_json::json!({}); 2]);
        let mut near = rig::<Keyed>(&one);
        let mut packet = through(&mut near, "a", &[5; 40], transport(is_v6)).remove(0);
        let whole = packet.clone();
        for (at, byte) in changes {
            if let Some(place) = packet.get_mut(at) {
                *place = byte;
            }
        }
        packet.truncate(cut.max(1));
        let mut far = rig::<Keyed>(&two);
        let arrived = through(&mut far, transport(is_v6), &packet, "a").len() as u64;
        prop_assert_eq!(arrived + far.counts().dropped(), 1);
        prop_assert!(packet != whole || arrived == 1);
    }
}

#[test]
fn mistakes_in_keys_name_the_place() {
    let session = |keys: serde_json::Value| serde_json::json!({"local": "192.0.2.1", "sessions": {"a": keys}});
    let cases = [
        (serde_json::json!({"sessions": {}}), "there is no session"),
        (session(serde_json::json!({"remote": "192.0.2"})), "`192.0.2` is no IP address"),
        (session(serde_json::json!({"remote": "224.0.0.1"})), "`224.0.0.1` is a multicast address"),
        (session(serde_json::json!({"remote": "192.0.2.1"})), "both ends have the address `192.0.2.1`"),
        (session(serde_json::json!({"remote": "::7"})), "`192.0.2.1` and `::7` are addresses of two families"),
        (
            session(serde_json::json!({"remote": "192.0.2.2", "expect_session": 0})),
            "a session of 0 is that of control messages",
        ),
        (session(serde_json::json!({"remote": "192.0.2.2", "send_cookie": "12345"})), "`12345` is no cookie"),
        (serde_json::json!({"sessions": {"a": {"remote": "::7"}}}), "the session `a` has no address of this end"),
        (
            serde_json::json!({"local": "::7", "hop_limit": 0, "sessions": {"a": {"remote": "::8"}}}),
            "packets with a hop limit of 0 go nowhere",
        ),
        (
            serde_json::json!({"local": "::7", "sessions": {"a": {"remote": "::8"}, "b": {"remote": "::8"}}}),
            "the sessions `a` and `b` have the same addresses and number",
        ),
        (
            serde_json::json!({"local": "::7", "sessions": {"ip4": {"remote": "::8"}}}),
            "a session cannot be called `ip4`",
        ),
    ];
    for (config, message) in cases {
        let error = configure::<Keyed>(&config).err().map(|error| error.message);
        assert_eq!(error.as_deref(), Some(message), "{config}");
    }
    let config = serde_json::from_value(session(serde_json::json!({"remote": "192.0.2.2"}))).unwrap();
    let error = KeyedTunnel::check_outputs(&config, &["ip4", "a", "b"]).unwrap_err();
    assert_eq!(error.message, "an output is called `b`, but no session");
}

/// What a session sends for a frame, and the UDP checksum in that.
fn sent_checksum<P: Protocol>(is_v6: bool, keys: serde_json::Value) -> (Vec<u8>, u16) {
    let [one, _] = ends(is_v6, [&keys; 2]);
    let sent = through(&mut rig::<P>(&one), "a", &[9; 77], transport(is_v6)).remove(0);
    let at = if is_v6 { 60 } else { 40 };
    let checksum = u16::from_be_bytes([sent[at], sent[at + 1]]);
    (sent, checksum)
}

#[test]
fn datagrams_have_a_checksum_over_ipv6_and_where_a_key_says_so() {
    struct OfDatagrams;

    impl SessionCheck for OfDatagrams {
        fn check<P: Protocol>(_: &SessionExample, [keys, _]: [&serde_json::Value; 2]) {
            if P::PROTOCOL != IpProtocol::UDP || keys["payload"] == "ip" {
                return;
            }
            for is_v6 in [false, true] {
                for key in [None, Some(false), Some(true)] {
                    let mut keys = keys.clone();
                    keys.as_object_mut().unwrap().remove("checksum");
                    key.into_iter().for_each(|key| keys["checksum"] = json!(key));
                    let (sent, checksum) = sent_checksum::<P>(is_v6, keys);
                    assert_eq!(checksum != 0, key.unwrap_or(is_v6), "{} {is_v6} {key:?}", P::NAME);
                    if checksum != 0 {
                        bellows_wire::verify_checksums(&sent).unwrap();
                    }
                }
            }
        }
    }

    crate::check_sessions::<OfDatagrams>();
}

/// A packet of UDP whose checksum was left to be made, behind some VLAN tags, and an odd or even number of bytes.
fn partial(is_v6: bool, tags: usize, data: &[u8]) -> Packet {
    let mut datagram = [&[0; 8], data].concat();
    UdpHeader { src_port: 7, dst_port: 9 }.emit(&mut datagram, &pair(is_v6)).unwrap();
    // The sum of the pseudo-header stands in its place.
    let sum = !pair(is_v6).pseudo_header(IpProtocol::UDP, datagram.len()).finish();
    datagram[6..8].copy_from_slice(&sum.to_be_bytes());
    let mut frame = ip(pair(is_v6), IpProtocol::UDP, &datagram);
    frame.splice(12..12, [0x81, 0, 0, 7].repeat(tags));
    let start = frame.len() - datagram.len();
    let mut packet = Packet::from_bytes(&frame).unwrap();
    packet.set_offload(Offload {
        flags: Offload::NEEDS_CHECKSUM,
        gso_type: Offload::GSO_NONE,
        header_length: 0,
        segment_size: 0,
        checksum_start: start as u16,
        checksum_offset: 6,
    });
    packet
}

proptest! {
    #[test]
    fn the_checksum_around_one_that_was_left_to_be_made_is_right(
        is_v6 in any::<bool>(), tags in 0usize..3, data in prop::collection::vec(any::<u8>(), 0..200), skew in 0u8..2,
        odd in any::<bool>(),
    ) {
        let [one, two] = ends(true, [&json!({"vni": 1}); 2]);
        let (mut near, mut far) = (rig::<vxlan::Extensible>(&one), rig::<vxlan::Extensible>(&two));
        let mut packet = partial(is_v6, tags, &data);
        // The guest may have put anything there, and may place it anywhere.
        let mut offload = packet.offload().unwrap();
        let at = usize::from(offload.checksum_start) + 6;
        packet.bytes_mut()[at] ^= skew;
        offload.checksum_start -= u16::from(odd);
        packet.set_offload(offload);
        near.send_packets("a", [packet]);
        near.settle();
        let sent = near.received("ip6");
        prop_assert_eq!(sent.len(), 1);
        let (frame, carried) = (&sent[0], sent[0][ETHERNET + 40 + 16..].to_vec());
        let sum = pair(true).pseudo_header(IpProtocol::UDP, frame.len() - 54).add_bytes(&frame[54..]);
        prop_assert_eq!(sum.finish(), 0);
        far.send("ip6", sent);
        far.settle();
        prop_assert_eq!(far.received("a"), [carried]);
    }
}

/// What comes out of a tunnel for the ECN bits inside and outside (RFC 6040, figure 4); `None`: nothing.
fn decapsulated(inner: u8, outer: u8) -> Option<u8> {
    // Not-ECT, ECT(1), ECT(0), CE: inside, and in each outside.
    let table = [
        [Some(0), Some(0), Some(0), None],
        [Some(1), Some(1), Some(1), Some(3)],
        [Some(2), Some(1), Some(2), Some(3)],
        [Some(3), Some(3), Some(3), Some(3)],
    ];
    table[usize::from(inner)][usize::from(outer)]
}

/// Has packets with all ECN bits inside and outside come out of a tunnel, which carries frames or IP.
fn check_decapsulation<P: Protocol>(both @ [keys, _]: [&serde_json::Value; 2]) {
    let tags = if keys["payload"] == "ip" { 0..1 } else { 0..3 };
    for (is_v6, inner_is_v6, tags, inner, outer) in
        tags.flat_map(|tags| (0..64u8).map(move |bits| (bits & 1 != 0, bits & 2 != 0, tags, bits >> 2 & 3, bits >> 4)))
    {
        let [one, two] = ends(is_v6, both);
        let (mut near, mut far) = (rig::<P>(&one), rig::<P>(&two));
        let marked = |ecn: u8| {
            let mut frame = ip(pair(inner_is_v6), IpProtocol::UDP, &[5; 30]);
            mark(&mut frame, 0, ecn);
            frame.splice(12..12, [0x81, 0, 0, 7].repeat(tags));
            frame
        };
        let mut sent = through(&mut near, "a", &marked(inner), transport(is_v6)).remove(0);
        mark(&mut sent, 0, outer);
        let came = through(&mut far, transport(is_v6), &sent, "a");
        let expected: Vec<_> = decapsulated(inner, outer).map(marked).into_iter().collect();
        assert_eq!(came, expected, "{} {keys}: {inner} in {outer}, {tags} tags", P::NAME);
        assert_eq!(far.counts().dropped(), u64::from(expected.is_empty()));
        if expected.is_empty() {
            assert_eq!(far.counts().drops["bad_ecn"], 1);
        }
    }
}

#[test]
fn marks_of_congestion_come_out_of_tunnels() {
    struct Decapsulation;

    impl SessionCheck for Decapsulation {
        fn check<P: Protocol>(_: &SessionExample, keys: [&serde_json::Value; 2]) {
            check_decapsulation::<P>(keys);
        }
    }

    crate::check_sessions::<Decapsulation>();
    // Without any key.
    check_decapsulation::<Keyed>([&json!({}); 2]);
    check_decapsulation::<gre::Generic>([&json!({}); 2]);
}

#[test]
fn marks_change_no_frame_without_a_whole_ip_header() {
    let [one, two] = ends(true, [&json!({}); 2]);
    let (mut near, mut far) = (rig::<Keyed>(&one), rig::<Keyed>(&two));
    let whole = ip(pair(false), IpProtocol::UDP, &[5; 30]);
    let arp = [&whole[..12], &[8, 6], &whole[14..]].concat();
    let wrong_version = [&whole[..12], &[0x86, 0xdd], &whole[14..]].concat();
    for frame in
        [&whole[..14], &whole[..15], &whole[..33], &arp, &wrong_version, &[&whole[..12], &[0x81, 0][..]].concat()]
    {
        let mut sent = through(&mut near, "a", frame, "ip6").remove(0);
        mark(&mut sent, 0, 3);
        assert_eq!(through(&mut far, "ip6", &sent, "a"), [frame]);
    }
}

/// Has packets with all ECN bits go into a tunnel that copies them, and into one that does not.
fn check_copies<P: Protocol>(keys: &serde_json::Value) {
    let tags = if keys["payload"] == "ip" { 0..1 } else { 0..3 };
    for (is_v6, inner_is_v6, tags, ecn, copies, clears_df) in tags.flat_map(|tags| {
        (0..64u8).map(move |bits| (bits & 1 != 0, bits & 2 != 0, tags, bits >> 2 & 3, bits & 16 != 0, bits & 32 != 0))
    }) {
        let [mut one, _] = ends(is_v6, [keys; 2]);
        one["traffic_class"] = json!(0xb9);
        one["copy_ecn"] = json!(copies);
        if clears_df {
            one["df"] = json!("clear");
        }
        let mut frame = ip(pair(inner_is_v6), IpProtocol::UDP, &[5; 30]);
        mark(&mut frame, 0, ecn);
        frame.splice(12..12, [0x81, 0, 0, 7].repeat(tags));
        let sent = through(&mut rig::<P>(&one), "a", &frame, transport(is_v6)).remove(0);
        let class = match is_v6 {
            true => sent[14] << 4 | sent[15] >> 4,
            false => sent[15],
        };
        assert_eq!(class, if copies { 0xb8 | ecn } else { 0xb9 }, "{} {keys}: {ecn}, {tags} tags", P::NAME);
        if !is_v6 {
            assert_eq!(checksum::Sum::new().add_bytes(&sent[14..34]).finish(), 0);
        }
    }
}

#[test]
fn the_mark_of_what_is_carried_is_copied_if_a_key_says_so() {
    struct Copies;

    impl SessionCheck for Copies {
        fn check<P: Protocol>(_: &SessionExample, [keys, _]: [&serde_json::Value; 2]) {
            check_copies::<P>(keys);
        }
    }

    crate::check_sessions::<Copies>();
    check_copies::<Keyed>(&json!({}));
    // Frames that are none of IP have no mark, and vectors of several packets are alike.
    let [mut one, _] = ends(false, [&json!({}); 2]);
    one["copy_ecn"] = json!(true);
    let mut near = rig::<Keyed>(&one);
    let mut marked = ip(pair(true), IpProtocol::UDP, &[5; 30]);
    mark(&mut marked, 0, 3);
    near.send("a", [vec![5; 40], marked, vec![6; 14]]);
    near.settle();
    assert_eq!(near.received("ip4").iter().map(|sent| sent[15]).collect::<Vec<_>>(), [0, 3, 0]);
}
