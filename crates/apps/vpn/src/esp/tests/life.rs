//! Limits, keepalives, and new keys: by a reload and by a command.

use std::collections::BTreeSet;
use std::sync::Arc;

use bellows_engine::Status;
use bellows_exercise::packets::back;
use bellows_rig::EventLog;

use super::*;
use crate::esp::SECOND;
use crate::esp::requests::EspShared;

/// The state of the pair `a`.
fn state(rig: &Rig) -> Value {
    rig.status().unwrap()["pairs"][0].clone()
}

/// Lets some time pass, so that what is due is done.
fn pass(rig: &mut Rig, seconds: u64) {
    rig.set_time(seconds * SECOND);
    rig.settle();
}

#[test]
fn soft_limits_are_told_once_and_hard_ones_refuse() {
    let cases = [
        (json!({"packets": 3}), json!({"packets": 5}), 5),
        (json!({"bytes": 1}), json!({"bytes": 3 * 36}), 3),
        (json!({"seconds": 5}), json!({}), 10),
    ];
    for (soft, hard, passed) in cases {
        for end in [0, 1] {
            let mut ends = ends(true, "aes-128-gcm", &json!({}));
            let way = ["outbound", "inbound"][end];
            ends[end]["associations"]["a"][way]["soft"] = soft.clone();
            ends[end]["associations"]["a"][way]["hard"] = hard.clone();
            let log = EventLog::begin();
            let (mut near, mut far) = (rig(&ends[0]), rig(&ends[1]));
            let packets: Vec<_> = (0..10u8).map(|byte| inner(false, &[byte; 14])).collect();
            assert_eq!(carry(&mut near, &mut far, true, &packets).len(), passed);
            let limited = [&mut near, &mut far][end].counts().drops["lifetime"];
            assert_eq!(limited, 10 - passed as u64);
            for seconds in 2..8 {
                let rig = if end == 0 { &mut near } else { &mut far };
                pass(rig, seconds);
                let is_due = soft["seconds"].is_null() || seconds >= 6;
                assert_eq!(rig.counts().counters["soft_limits"], u64::from(is_due), "{soft} {way} {seconds}");
            }
            let limit = soft.as_object().unwrap().keys().next().unwrap();
            let limit = if limit == "seconds" { "time" } else { limit };
            let event = json!({
                "event": "key-expiring", "app": "", "pair": "a", "direction": way, "spi": 0x1001, "limit": limit,
            });
            let mut events = vec![event];
            if let Some(limit) = hard.as_object().unwrap().keys().next() {
                events.push(json!({
                    "event": "key-expired", "app": "", "pair": "a", "direction": way, "spi": 0x1001, "limit": limit,
                }));
            }
            assert_eq!(log.take(), events);
        }
    }
}

#[test]
fn keys_that_are_too_old_neither_seal_nor_open() {
    for end in [0, 1] {
        let mut ends = ends(true, "aes-128-gcm", &json!({}));
        let way = ["outbound", "inbound"][end];
        ends[end]["associations"]["a"][way]["hard"] = json!({"seconds": 60});
        let log = EventLog::begin();
        let (mut near, mut far) = (rig(&ends[0]), rig(&ends[1]));
        let packet = [inner(false, &[1; 14])];
        assert_eq!(carry(&mut near, &mut far, true, &packet), packet);
        for rig in [&mut near, &mut far] {
            pass(rig, 61);
        }
        assert_eq!(carry(&mut near, &mut far, true, &packet).len(), 0);
        pass([&mut near, &mut far][end], 65);
        assert_eq!([near, far][end].counts().drops["lifetime"], 1);
        let event = json!({
            "event": "key-expired", "app": "", "pair": "a", "direction": way, "spi": 0x1001, "limit": "time",
        });
        assert_eq!(log.take(), [event], "once");
    }
}

#[test]
fn numbers_of_32_bits_come_to_an_end() {
    let mut ends = ends(true, "aes-128-gcm", &json!({}));
    with_direction(&mut ends, |direction| direction["esn"] = false.into());
    let key = ends[0]["associations"]["a"]["outbound"]["key"].as_str().unwrap().to_owned();
    set_used(&key, Way::Outbound, 0x1001, u64::from(u32::MAX) - 2);
    let (mut near, mut far) = (rig(&ends[0]), rig(&ends[1]));
    let packets = vec![inner(false, &[1; 14]); 4];
    let log = EventLog::begin();
    assert_eq!(carry(&mut near, &mut far, true, &packets).len(), 2);
    assert_eq!(near.counts().drops["sequence_exhausted"], 2);
    pass(&mut near, 2);
    let event = json!({
        "event": "key-expired", "app": "", "pair": "a", "direction": "outbound", "spi": 0x1001, "limit": "sequence",
    });
    assert_eq!(log.take(), [event]);
}

#[test]
fn keepalives_are_sent_when_nothing_else_is_and_swallowed() {
    for is_v6 in [false, true] {
        let ends = ends(is_v6, "aes-128-gcm", &json!({"udp": {"keepalive_seconds": 20}}));
        let (mut near, mut far) = (rig(&ends[0]), rig(&ends[1]));
        let mut sent_at = Vec::new();
        pass(&mut near, 1);
        drop(near.received(transport(is_v6)));
        for seconds in 2..70 {
            if seconds == 30 {
                drop(sealed(&mut near, is_v6, &inner(false, &[1; 14])));
            }
            pass(&mut near, seconds);
            let wire = near.received(transport(is_v6));
            sent_at.extend(wire.iter().map(|_| seconds));
            for packet in &wire {
                let datagram = &packet[if is_v6 { 54 } else { 34 }..];
                assert_eq!((&datagram[..6], &datagram[8..]), (&[0x11, 0x94, 0x11, 0x94, 0, 9][..], &[0xff][..]));
                bellows_wire::verify_checksums(packet).unwrap();
            }
            far.send(transport(is_v6), wire);
        }
        assert!(matches!(sent_at[..], [20 | 21, 49, 69]), "{sent_at:?}");
        far.settle();
        assert_eq!((far.counts().drops["keepalive"], near.counts().counters["keepalives_sent"]), (3, 3));
    }
}

/// A packet that seems to come from another port.
fn from_port(is_v6: bool, packet: &[u8], port: u16) -> Vec<u8> {
    let mut packet = packet.to_vec();
    let at = if is_v6 { 54 } else { 34 };
    packet[at..at + 2].copy_from_slice(&port.to_be_bytes());
    packet
}

/// The port to which an end sends.
fn port_of(end: &mut Rig, is_v6: bool, packet: &[u8]) -> u16 {
    let wire = sealed(end, is_v6, packet);
    let at = if is_v6 { 56 } else { 36 };
    if is_v6 {
        bellows_wire::verify_checksums(&wire).unwrap();
    }
    u16::from_be_bytes([wire[at], wire[at + 1]])
}

#[test]
fn packets_go_to_the_port_from_which_the_newest_authentic_one_came() {
    for (is_v6, mode) in [(false, "tunnel"), (true, "tunnel"), (false, "transport"), (true, "transport")] {
        let more = json!({"mode": mode, "udp": {"remote_port": 4501, "keepalive_seconds": 20}});
        let log = EventLog::begin();
        let mut ends = ends(is_v6, "aes-128-gcm", &more);
        ends[0]["associations"]["a"]["udp"]["remote_port"] = 4500.into();
        let (mut near, mut far) = (rig(&ends[0]), rig(&ends[1]));
        let there = ip(pair(is_v6), IpProtocol(200), &[1; 14]);
        let back = ip(back(pair(is_v6)), IpProtocol(200), &[1; 14]);
        let wire: Vec<Vec<u8>> = (0..7).map(|_| sealed(&mut near, is_v6, &there)).collect();
        let mut after = |packet: &[u8]| {
            far.send(transport(is_v6), [packet]);
            far.settle();
            port_of(&mut far, is_v6, &back)
        };
        // What nobody has sealed, and what was changed, moves nothing.
        let keepalive = ip(pair(is_v6), IpProtocol::UDP, &[0, 0, 0x11, 0x94, 0, 9, 0, 0, 0xff]);
        let mut forged = from_port(is_v6, &wire[1], 666);
        *forged.last_mut().unwrap() ^= 1;
        for packet in [&keepalive, &forged] {
            assert_eq!(after(&from_port(is_v6, packet, 666)), 4_501);
        }
        assert_eq!(after(&from_port(is_v6, &wire[2], 5_555)), 5_555);
        // Neither does one that was seen before, or was overtaken, or one from no port.
        assert_eq!(after(&from_port(is_v6, &wire[2], 666)), 5_555);
        assert_eq!(after(&from_port(is_v6, &wire[1], 666)), 5_555);
        assert_eq!(after(&from_port(is_v6, &wire[3], 0)), 5_555);
        assert_eq!(after(&from_port(is_v6, &wire[4], 6_000)), 6_000);
        // Keepalives go there, too.
        pass(&mut far, 1);
        pass(&mut far, 60);
        let keepalives = far.received(transport(is_v6));
        let at = if is_v6 { 54 } else { 34 };
        assert_eq!(keepalives.last().unwrap()[at..at + 4], [0x11, 0x94, 0x17, 0x70]);
        assert_eq!(far.counts().counters["port_moved"], 2);
        let moved = |old: u16, new: u16| json!({"event": "peer-moved", "app": "", "pair": "a", "old_udp_port": old, "udp_port": new});
        assert_eq!(log.take(), [moved(4_501, 6_000)]);
        // However often it moves, there is one event in ten seconds, about all that was since the last.
        for (number, packet) in wire[5..].iter().enumerate() {
            far.send(transport(is_v6), [from_port(is_v6, packet, 6_001 + number as u16)]);
            pass(&mut far, 61 + number as u64);
        }
        pass(&mut far, 70);
        assert_eq!(log.take(), [moved(6_000, 6_002)]);
        pass(&mut far, 73);
        assert_eq!(log.take().len(), 0);
        far.send(transport(is_v6), [from_port(is_v6, &sealed(&mut near, is_v6, &there), 6_000)]);
        pass(&mut far, 74);
        pass(&mut far, 76);
        let shown = far.status().unwrap()["pairs"][0].clone();
        assert_eq!((&shown["local_port"], &shown["remote_port"]), (&json!(4_500), &json!(6_000)));
        // A reload keeps what was learned, until the keys name another port.
        let mut changed = ends[1].clone();
        changed["associations"]["a"]["hop_limit"] = 9.into();
        far.replace(configure(&changed).unwrap()).unwrap();
        assert_eq!(port_of(&mut far, is_v6, &back), 6_000);
        changed["associations"]["a"]["udp"]["remote_port"] = 7_000.into();
        far.replace(configure(&changed).unwrap()).unwrap();
        assert_eq!(port_of(&mut far, is_v6, &back), 7_000);
    }
}

/// Two ends with new keys for what the first one sends.
fn rekeyed(ends: &[Value; 2], spi: u32) -> [Value; 2] {
    let (new, mut changed) = (direction(spi, "aes-256-gcm"), ends.clone());
    with_direction(&mut changed, |direction| *direction = new.clone());
    changed
}

#[test]
fn a_reload_that_leaves_a_pair_as_it_is_keeps_its_numbers() {
    let ends = ends(true, "aes-128-gcm", &json!({}));
    let (mut near, mut far) = (rig(&ends[0]), rig(&ends[1]));
    let packets = [inner(false, &[1; 14])];
    let first = sealed(&mut near, true, &packets[0]);
    far.send("ip6", [&first]);
    assert_eq!(carry(&mut near, &mut far, true, &packets).len(), 2);
    // Other keys of the pair may change.
    let mut other = ends.clone();
    for end in &mut other {
        end["associations"]["a"]["hop_limit"] = 9.into();
    }
    near.replace(configure(&other[0]).unwrap()).unwrap();
    far.replace(configure(&other[1]).unwrap()).unwrap();
    let wire = sealed(&mut near, true, &packets[0]);
    assert_eq!((wire[14 + 7], &wire[54 + 4..54 + 8]), (9, &[0, 0, 0, 3][..]));
    far.send("ip6", [&wire, &first]);
    far.settle();
    assert_eq!((far.received("a").len(), far.counts().drops["replayed"]), (1, 1));
}

#[test]
fn other_settings_with_the_same_key_go_on_with_its_numbers() {
    let ends = ends(true, "aes-128-gcm", &json!({}));
    let (mut near, mut far) = (rig(&ends[0]), rig(&ends[1]));
    let packets = vec![inner(false, &[1; 14]); 5];
    let old = sealed(&mut near, true, &packets[0]);
    far.send("ip6", [&old]);
    assert_eq!(carry(&mut near, &mut far, true, &packets).len(), 6);
    let mut other = ends.clone();
    other[0]["associations"]["a"]["outbound"]["soft"] = json!({"packets": 100});
    other[1]["associations"]["a"]["inbound"]["window"] = 64.into();
    near.replace(configure(&other[0]).unwrap()).unwrap();
    far.replace(configure(&other[1]).unwrap()).unwrap();
    let wire = sealed(&mut near, true, &packets[0]);
    assert_eq!(&wire[54 + 4..54 + 8], &[0, 0, 0, 7]);
    far.send("ip6", [&wire, &old]);
    far.settle();
    assert_eq!((far.received("a").len(), far.counts().drops["replayed"]), (1, 1));
}

#[test]
fn reloads_replace_keys_under_traffic_without_losing_a_packet() {
    let mut ends = ends(true, "aes-128-gcm", &json!({}));
    let (mut near, mut far) = (rig(&ends[0]), rig(&ends[1]));
    let packets: Vec<_> = (0..20u8).map(|byte| inner(false, &[byte; 40])).collect();
    let mut seen = BTreeSet::new();
    for round in 1..6 {
        let changed = rekeyed(&ends, 0x2000 + round);
        // The receiver first. Packets that were sealed before arrive after either reload.
        for end in [1, 0] {
            near.send("a", &packets);
            near.settle();
            let wire = near.received("ip6");
            [&mut near, &mut far][end].replace(configure(&changed[end]).unwrap()).unwrap();
            for packet in &wire {
                assert!(seen.insert(packet[54..62].to_vec()), "an SPI and number twice");
            }
            far.send("ip6", wire);
            far.settle();
            assert_eq!(far.received("a"), packets);
        }
        ends = changed;
    }
    assert_eq!((near.counts().dropped(), far.counts().dropped()), (0, 0));
    pass(&mut far, 2);
    assert_eq!(state(&far)["old"], 5);
    // The grace begins with the first look at the clock.
    pass(&mut far, 299);
    pass(&mut far, 310);
    pass(&mut far, 311);
    assert_eq!(state(&far)["old"], 0);
}

#[test]
fn a_pair_that_is_removed_and_added_again_goes_on_with_its_numbers() {
    let ends = ends(true, "aes-128-gcm", &json!({}));
    let mut near = rig(&ends[0]);
    drop(sealed(&mut near, true, &inner(false, &[1; 14])));
    let mut without = ends[0].clone();
    let mut other = without["associations"]["a"].take();
    other["inbound"] = direction(0x3001, "aes-128-gcm");
    other["outbound"] = direction(0x3002, "aes-128-gcm");
    without["associations"] = json!({"b": other});
    near.replace(configure(&without).unwrap()).unwrap();
    near.replace(configure(&ends[0]).unwrap()).unwrap();
    let wire = sealed(&mut near, true, &inner(false, &[1; 14]));
    assert_eq!(&wire[54 + 4..54 + 8], &[0, 0, 0, 2]);
    // Nobody else may use the key meanwhile; and when the app is gone, its successor goes on.
    let error = configure(&ends[0]).unwrap().keyring_start().unwrap_err();
    assert!(error.contains("is in use elsewhere in this process"), "{error}");
    drop(near);
    let wire = sealed(&mut rig(&ends[0]), true, &inner(false, &[1; 14]));
    assert_eq!(&wire[54 + 4..54 + 8], &[0, 0, 0, 3]);
}

impl Esp {
    /// Starts as the engine does. The error is as a sentence.
    fn keyring_start(mut self) -> Result<(), String> {
        bellows_engine::App::start(&mut self, None).map_err(|error| error.to_string())
    }
}

#[test]
fn reloads_that_would_break_a_pair_are_refused_and_change_nothing() {
    let ends = ends(true, "aes-128-gcm", &json!({}));
    let (mut near, mut far) = (rig(&ends[0]), rig(&ends[1]));
    let packets = [inner(false, &[1; 14])];
    assert_eq!(carry(&mut near, &mut far, true, &packets).len(), 1);
    let mut same_spi = ends[1].clone();
    same_spi["associations"]["a"]["inbound"]["key"] = key("aes-128-gcm").into();
    let error = far.replace(configure(&same_spi).unwrap()).unwrap_err();
    assert!(error.contains("new keys need a new SPI"), "{error}");
    let mut stolen = ends[1].clone();
    stolen["associations"]["a"]["outbound"]["key"] = ends[0]["associations"]["a"]["outbound"]["key"].clone();
    stolen["associations"]["a"]["inbound"] = direction(0x5001, "aes-128-gcm");
    let error = far.replace(configure(&stolen).unwrap()).unwrap_err();
    assert!(error.contains("in use elsewhere in this process"), "{error}");
    assert_eq!(carry(&mut near, &mut far, true, &packets).len(), 1);
    assert_eq!(near.counts().dropped() + far.counts().dropped(), 0);
}

/// Has an app carry out a request, while its rig breathes: a quarter of a second for each millisecond.
fn ask(rig: &mut Rig, shared: &Arc<EspShared>, time: &mut u64, request: &Value) -> Result<Value, String> {
    let mut talk = Arc::clone(shared).converse().unwrap();
    let request = request.clone();
    let asking = std::thread::spawn(move || talk.answer(request).map_err(|error| error.message));
    while !asking.is_finished() {
        *time += SECOND / 4;
        rig.set_time(*time);
        rig.settle();
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    asking.join().unwrap()
}

#[test]
fn commands_replace_keys_without_losing_a_packet() {
    let ends = ends(true, "aes-128-gcm", &json!({}));
    let apps = [configure(&ends[0]).unwrap(), configure(&ends[1]).unwrap()];
    let shared = [Arc::clone(&apps[0].shared), Arc::clone(&apps[1].shared)];
    let [near, far] = apps;
    let (mut near, mut far) = (rig_of(near, &ends[0]), rig_of(far, &ends[1]));
    let packets: Vec<_> = (0..20u8).map(|byte| inner(false, &[byte; 40])).collect();
    let (mut near_time, mut far_time) = (SECOND, SECOND);
    let new = direction(0x2001, "aes-256-gcm");
    let spi = json!(0x2001);
    near.send("a", &packets);
    near.settle();
    let wire = near.received("ip6");
    let answer = ask(&mut far, &shared[1], &mut far_time, &json!({"rekey": {"pair": "a", "inbound": new}})).unwrap();
    let expected = json!({
        "pair": "a", "inbound": spi, "outbound": null, "old_inbound": 0x1001, "old_outbound": null, "grace_seconds": 300,
    });
    assert_eq!(answer, expected);
    let answer = ask(&mut near, &shared[0], &mut near_time, &json!({"rekey": {"pair": "a", "outbound": new}})).unwrap();
    assert_eq!(answer["outbound"], spi);
    far.send("ip6", wire);
    assert_eq!(carry(&mut near, &mut far, true, &packets), [&packets[..], &packets].concat());
    assert_eq!((near.counts().dropped(), far.counts().dropped()), (0, 0));
    assert_eq!((near.counts().counters["rekeyed"], far.counts().counters["rekeyed"]), (1, 1));
    // A reload that says nothing new about the pair leaves the keys of the command.
    let mut other = ends[0].clone();
    other["associations"]["a"]["dscp"] = 1.into();
    near.replace(configure(&other).unwrap()).unwrap();
    assert_eq!(carry(&mut near, &mut far, true, &packets), packets);
    pass(&mut near, near_time / SECOND + 2);
    let sent = &state(&near)["outbound"];
    assert_eq!((&sent["spi"], &sent["sequence"], &sent["packets"]), (&spi, &json!(40), &json!(40)));
    assert_eq!((&sent["by"], &state(&near)["inbound"]["by"]), (&json!("command"), &json!("start")));

    for (request, said) in [
        (
            json!({"rekey": {"pair": "b", "inbound": direction(0x2002, "aes-128-gcm")}}),
            "there is no pair `b`; there are `a`",
        ),
        (
            json!({"rekey": {"pair": "a", "outbound": ends[0]["associations"]["a"]["inbound"]}}),
            "another direction or pair",
        ),
        (json!({"rekey": {"pair": "a", "inbound": direction(0x1002, "aes-128-gcm")}}), "new keys need a new SPI"),
        (json!({"rekey": {"pair": "a"}}), "there are no new keys"),
        (json!({"rekey": {"pair": "a", "inbound": {"spi": 300, "algorithm": "aes-128-gcm"}}}), "has no key"),
        (
            json!({"rekey": {"pair": "a", "inbound": {"spi": 3, "algorithm": "aes-128-gcm", "key": "00"}}}),
            "SPI 3 is reserved",
        ),
        (
            json!({"rekey": {"pair": "a", "inbound": {"spi": 300, "algorithm": "aes-128-gcm", "key_file": "k"}}}),
            "give `key` in",
        ),
        (
            json!({"rekey": {"pair": "a", "inbound": {"spi": 300, "algorithm": "00112233", "key": "00"}}}),
            "`inbound`: `algorithm` is no cipher; the ciphers are `aes-128-gcm`, `aes-256-gcm`",
        ),
        (json!({"show": "00112233445566778899aabbccddeeff00112233"}), "not a request that this app answers"),
    ] {
        let error = ask(&mut near, &shared[0], &mut near_time, &request).unwrap_err();
        assert!(error.contains(said) && !error.contains("00112233"), "{error}");
    }
    assert_eq!(carry(&mut near, &mut far, true, &packets), packets);
}

#[test]
fn every_change_of_keys_is_told() {
    let mut ends = ends(true, "aes-128-gcm", &json!({}));
    ends[0]["grace_seconds"] = 3.into();
    let app = configure(&ends[0]).unwrap();
    let (shared, log) = (Arc::clone(&app.shared), EventLog::begin());
    let mut near = rig_of(app, &ends[0]);
    let mut time = SECOND;
    let changed = |way: &str, spi: u32, old_spi: u32, by: &str| {
        json!({
            "event": "key-changed", "app": "", "pair": "a", "direction": way, "spi": spi,
            "algorithm": "aes-256-gcm", "old_spi": old_spi, "by": by,
        })
    };
    pass(&mut near, 1);
    assert!(log.take().is_empty(), "the keys of a start are no news");
    let new =
        json!({"pair": "a", "inbound": direction(0x2001, "aes-256-gcm"), "outbound": direction(0x2002, "aes-256-gcm")});
    ask(&mut near, &shared, &mut time, &json!({"rekey": new})).unwrap();
    let told = [changed("inbound", 0x2001, 0x1002, "command"), changed("outbound", 0x2002, 0x1001, "command")];
    assert_eq!(log.take(), told);
    let refused = json!({"rekey": {"pair": "a", "inbound": new["inbound"], "outbound": new["inbound"]}});
    ask(&mut near, &shared, &mut time, &refused).unwrap_err();
    let mut pass_time = |near: &mut Rig, seconds: u64| {
        time += seconds * SECOND;
        near.set_time(time);
        near.settle();
    };
    pass_time(&mut near, 4);
    assert_eq!(log.take(), [json!({"event": "key-retired", "app": "", "pair": "a", "spi": 0x1002})]);

    // A reload with other limits changes no key; then one with another key, and a pair more.
    ends[0]["associations"]["a"]["dscp"] = 1.into();
    near.replace(configure(&ends[0]).unwrap()).unwrap();
    pass_time(&mut near, 1);
    assert!(log.take().is_empty());
    ends[0]["associations"]["a"]["inbound"] = direction(0x3001, "aes-256-gcm");
    let mut other = ends[0]["associations"]["a"].clone();
    other["inbound"] = direction(0x4001, "aes-128-gcm");
    other["outbound"] = direction(0x4002, "aes-128-gcm");
    ends[0]["associations"]["b"] = other;
    near.replace(configure(&ends[0]).unwrap()).unwrap();
    pass_time(&mut near, 1);
    let added = json!({"event": "pair-added", "app": "", "pair": "b", "inbound_spi": 0x4001, "outbound_spi": 0x4002});
    assert_eq!(log.take(), [changed("inbound", 0x3001, 0x2001, "reload"), added]);
    ends[0]["associations"].as_object_mut().unwrap().remove("a");
    near.replace(configure(&ends[0]).unwrap()).unwrap();
    pass_time(&mut near, 10);
    assert_eq!(log.take(), [json!({"event": "pair-removed", "app": "", "pair": "a"})], "its old keys are gone with it");
}

#[test]
fn a_reload_of_many_pairs_tells_all_of_them_a_few_at_a_time() {
    let mut ends = ends(true, "aes-128-gcm", &json!({}));
    let mut near = rig(&ends[0]);
    for number in 0..50u32 {
        let mut other = ends[0]["associations"]["a"].clone();
        other["inbound"] = direction(0x4000 + number, "aes-128-gcm");
        other["outbound"] = direction(0x5000 + number, "aes-128-gcm");
        ends[0]["associations"][format!("b{number}")] = other;
    }
    let log = EventLog::begin();
    near.replace(configure(&ends[0]).unwrap()).unwrap();
    let told: Vec<usize> = (1..8)
        .map(|seconds| {
            pass(&mut near, seconds);
            log.take_names().iter().filter(|name| *name == "pair-added").count()
        })
        .collect();
    assert!(told.iter().sum::<usize>() == 50 && told.iter().all(|count| *count <= 16), "{told:?}");
}

#[test]
fn a_pair_of_which_nothing_is_authentic_names_the_likely_cause() {
    let mut ends = ends(true, "aes-128-gcm", &json!({}));
    ends[0]["associations"]["a"]["outbound"]["esn"] = false.into();
    let [mut near, mut far] = ends.each_ref().map(rig);
    let log = EventLog::begin();
    let mut now = 0;
    let mut later = |far: &mut Rig| {
        now += 2 * SECOND;
        far.set_time(now);
        far.settle();
        far.status().unwrap()["pairs"][0]["inbound"].clone()
    };
    assert_eq!(later(&mut far).get("likely_cause"), None);
    for (sent, told) in [(7, &[][..]), (1, &["app-degraded"]), (5, &[])] {
        assert_eq!(carry(&mut near, &mut far, true, &vec![inner(true, &[1]); sent]), [[0; 0]; 0]);
        let inbound = later(&mut far);
        let cause = inbound["likely_cause"].as_str().unwrap();
        assert!(["key", "salt", "algorithm", "esn = true"].iter().all(|word| cause.contains(word)), "{cause}");
        assert_eq!(log.take_names(), told);
    }
    assert_eq!(later(&mut far)["failures"], 13);
    // The other end mends it.
    ends[0]["associations"]["a"]["outbound"]["esn"] = true.into();
    near.replace(configure(&ends[0]).unwrap()).unwrap();
    assert_eq!(carry(&mut near, &mut far, true, &[inner(true, &[1])]).len(), 1);
    let inbound = later(&mut far);
    assert_eq!((inbound.get("likely_cause"), &inbound["failures"]), (None, &json!(0)));
    assert!(log.take_names().contains(&"app-recovered".to_owned()));
}
