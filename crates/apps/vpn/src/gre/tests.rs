use bellows_exercise::packets::{back, ip, pair};
use bellows_wire::{IpProtocol, Sum};
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::tunnel::tests::{check_round_trip, configure, ends, frames, refusal, rig, through, transport};

#[test]
fn what_is_not_of_a_session_is_refused_by_name() {
    let [one, _] = ends(false, [&json!({"key": 5}); 2]);
    let good = [&[0x20, 0, 0x65, 0x58, 0, 0, 0, 5][..], &[1; 20]].concat();
    let to_us = back(pair(false));
    let with = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        ip(to_us, IpProtocol::GRE, &bytes)
    };
    let cases = [
        (ip(to_us, IpProtocol::GRE, &good), None),
        (with(7, 6), Some("no_session")),
        (with(1, 1), Some("bad_header")),
        // What is taken for a sequence number is the start of the frame.
        (with(0, 0x30), None),
        (with(0, 0x60), Some("bad_flags")),
        (with(0, 0), Some("no_session")),
        (with(0, 0xa0), Some("no_session")),
        (with(3, 0x59), Some("bad_flags")),
        (ip(to_us, IpProtocol(115), &good), Some("other_protocol")),
        (ip(to_us, IpProtocol::GRE, &good[..7]), Some("malformed")),
        (ip(to_us, IpProtocol::GRE, &good[..3]), Some("malformed")),
    ];
    for (packet, expected) in cases {
        assert_eq!(refusal::<Generic>(&one, &packet).as_deref(), expected, "{packet:02x?}");
    }
    let mut fragment = ip(to_us, IpProtocol::GRE, &good);
    fragment[20] = 0x20;
    assert_eq!(refusal::<Generic>(&one, &fragment).as_deref(), Some("fragment"));
}

#[test]
fn checksums_are_verified() {
    let [one, two] = ends(true, [&json!({"checksum": true}); 2]);
    let mut sent = through(&mut rig::<Generic>(&one), "a", &[9; 77], "ip6").remove(0);
    assert_eq!(refusal::<Generic>(&two, &sent), None);
    // Another session's packets have none.
    let [plain, _] = ends(true, [&json!({}); 2]);
    let without = through(&mut rig::<Generic>(&plain), "a", &[9; 77], "ip6").remove(0);
    assert_eq!(refusal::<Generic>(&two, &without).as_deref(), Some("bad_flags"));
    *sent.last_mut().unwrap() ^= 1;
    assert_eq!(refusal::<Generic>(&two, &sent).as_deref(), Some("bad_checksum"));
}

#[test]
fn packets_come_out_to_the_address_that_is_given() {
    let [_, two] = ends(false, [&json!({"payload": "ip", "dst_mac": "02:00:00:00:00:07"}); 2]);
    let mut inner = ip(pair(true), IpProtocol::UDP, &[1; 30]);
    let received = ip(pair(false), IpProtocol::GRE, &[&[0, 0, 0x86, 0xdd][..], &inner[14..]].concat());
    inner[..6].copy_from_slice(&[2, 0, 0, 0, 0, 7]);
    let mut far = rig::<Generic>(&two);
    assert_eq!(through(&mut far, "ip4", &received, "a"), [inner.clone()]);
    // One whose checksum must be verified takes a closer look.
    let [_, two] = ends(false, [&json!({"payload": "ip", "checksum": true, "dst_mac": "02:00:00:00:00:07"}); 2]);
    let mut payload = [&[0x80, 0, 0x86, 0xdd, 0, 0, 0, 0][..], &inner[14..]].concat();
    let sum = Sum::new().add_bytes(&payload).finish();
    payload[4..6].copy_from_slice(&sum.to_be_bytes());
    let received = ip(pair(false), IpProtocol::GRE, &payload);
    assert_eq!(through(&mut rig::<Generic>(&two), "ip4", &received, "a"), [inner]);
    for (keys, message) in [
        (json!({"dst_mac": "02:00:00:00:00:07"}), "have destinations of their own"),
        (json!({"payload": "ip", "dst_mac": "03:00:00:00:00:07"}), "is a multicast address"),
    ] {
        let [one, _] = ends(false, [&keys; 2]);
        let error = configure::<Generic>(&one).err().unwrap();
        assert!(error.message.contains(message), "{error:?}");
    }
}

#[test]
fn ip_is_carried_without_ethernet() {
    let [one, two] = ends(false, [&json!({"payload": "ip", "key": 9}); 2]);
    let (mut near, mut far) = (rig::<Generic>(&one), rig::<Generic>(&two));
    let inner = [ip(pair(true), IpProtocol::UDP, &[1; 30]), ip(pair(false), IpProtocol::UDP, &[2; 30])];
    for (inner, kind) in inner.iter().zip([[0x86, 0xdd], [8, 0]]) {
        let sent = through(&mut near, "a", inner, "ip4").remove(0);
        let expected = [&[0x20, 0][..], &kind, &[0, 0, 0, 9], &inner[14..]].concat();
        assert_eq!(sent, ip(pair(false), IpProtocol::GRE, &expected));
        assert_eq!(&through(&mut far, "ip4", &sent, "a")[0], inner);
    }
    assert!(through(&mut near, "a", &[3; 60], "ip4").is_empty());
    assert_eq!(near.counts().drops["not_ip"], 1);
    let frame = ip(pair(false), IpProtocol::GRE, &[&[0x20, 0, 0x65, 0x58, 0, 0, 0, 9][..], &[1; 40]].concat());
    assert_eq!(refusal::<Generic>(&two, &frame).as_deref(), Some("bad_payload"));
}

/// A header of GRE with a sequence number, and perhaps with a checksum and a key, and what is behind it.
fn numbered(sequence: u32, key: Option<u32>, checksum: bool, behind: &[u8]) -> Vec<u8> {
    let flags = if checksum { 0x90 } else { 0x10 } | if key.is_some() { 0x20 } else { 0 };
    let mut payload = vec![flags, 0, 0x65, 0x58];
    payload.extend(if checksum { &[0; 4][..] } else { &[] });
    payload.extend(key.map_or(Vec::new(), |key| key.to_be_bytes().to_vec()));
    payload.extend(sequence.to_be_bytes());
    payload.extend(behind);
    if checksum {
        let sum = Sum::new().add_bytes(&payload).finish();
        payload[4..6].copy_from_slice(&sum.to_be_bytes());
    }
    payload
}

#[test]
fn sequence_numbers_are_skipped() {
    for bits in 0..8u8 {
        let (is_v6, key, checksum) = (bits & 1 != 0, (bits & 2 != 0).then_some(7), bits & 4 != 0);
        let [one, _] = ends(is_v6, [&json!({"key": key, "checksum": checksum}); 2]);
        let mut far = rig::<Generic>(&one);
        let packet = |payload: &[u8]| ip(back(pair(is_v6)), IpProtocol::GRE, payload);
        for sequence in [9, 3, 3, u32::MAX] {
            let packet = packet(&numbered(sequence, key, checksum, &[5; 60]));
            assert_eq!(through(&mut far, transport(is_v6), &packet, "a"), [[5; 60]]);
        }
        let short = numbered(1, key, checksum, &[]);
        assert_eq!(refusal::<Generic>(&one, &packet(&short[..short.len() - 1])).as_deref(), Some("malformed"));
    }
}

#[test]
fn packets_that_were_overtaken_are_dropped_if_a_key_says_so() {
    let keys = json!({"key": 7, "in_order": true});
    let [one, _] = ends(true, [&keys; 2]);
    let mut far = rig::<Generic>(&one);
    let packet = |sequence| ip(back(pair(true)), IpProtocol::GRE, &numbered(sequence, Some(7), false, &[5; 60]));
    // Any number may be the first. It is behind all those that are up to half of all numbers before it.
    let half = 1 << 31;
    let start = u32::MAX - 1;
    for (sequence, comes) in [
        (start, true),
        (start, false),
        (start - 1, false),
        (start.wrapping_sub(half - 1), false),
        (u32::MAX, true),
        (1, true),
        (0, false),
        (u32::MAX, false),
        (half, true),
        (1, false),
        (half + 1, true),
        // Exactly half of them away, it counts as later.
        (1, true),
    ] {
        assert_eq!(through(&mut far, "ip6", &packet(sequence), "a").len(), usize::from(comes), "{sequence}");
    }
    assert_eq!(far.counts().drops["out_of_order"], 6);
    // What is dropped for another reason counts for nothing.
    let mut wrong = packet(5);
    wrong.truncate(70);
    assert!(through(&mut far, "ip6", &wrong, "a").is_empty());
    assert_eq!(through(&mut far, "ip6", &packet(2), "a").len(), 1);
    // A reload goes on with the numbers, unless the session is another one.
    far.replace(configure::<Generic>(&one).unwrap()).unwrap();
    assert!(through(&mut far, "ip6", &packet(2), "a").is_empty());
    let mut other = one.clone();
    other["sessions"]["a"]["remote"] = json!("2001:db8::9");
    far.replace(configure::<Generic>(&other).unwrap()).unwrap();
    far.replace(configure::<Generic>(&one).unwrap()).unwrap();
    assert_eq!(through(&mut far, "ip6", &packet(1), "a").len(), 1);
    let without = ip(back(pair(true)), IpProtocol::GRE, &[&[0x20, 0, 0x65, 0x58, 0, 0, 0, 7][..], &[5; 60]].concat());
    assert_eq!(refusal::<Generic>(&one, &without).as_deref(), Some("bad_flags"));
}

#[test]
fn bytes_behind_a_packet_are_not_carried() {
    let [ip_in, ip_out] = ends(false, [&json!({"payload": "ip"}); 2]);
    let [frames, _] = ends(false, [&json!({}); 2]);
    for is_v6 in [false, true] {
        let inner = ip(pair(is_v6), IpProtocol::UDP, &[1; 9]);
        let padded = [&inner[..], &[0xee; 30]].concat();
        let (mut near, mut far) = (rig::<Generic>(&ip_in), rig::<Generic>(&ip_out));
        for count in [1, 20] {
            near.send("a", vec![padded.clone(); count]);
            near.settle();
            let sent = near.received("ip4");
            let longer: Vec<Vec<u8>> = sent.iter().map(|frame| [&frame[..], &[0xee; 6]].concat()).collect();
            assert_eq!(sent.len(), count);
            assert!(sent.iter().all(|frame| frame.ends_with(&inner[14..])), "{sent:02x?}");
            far.send("ip4", longer);
            far.settle();
            assert_eq!(far.received("a"), vec![inner.clone(); count]);
        }
        // Of a frame, the padding is a part.
        let sent = through(&mut rig::<Generic>(&frames), "a", &padded, "ip4").remove(0);
        assert!(sent.ends_with(&padded));
    }
}

proptest! {
    #[test]
    fn frames_arrive_unchanged(
        is_v6 in any::<bool>(), key in any::<Option<u32>>(), checksum in any::<bool>(), frames in frames(),
    ) {
        let keys = json!({"key": key, "checksum": checksum});
        check_round_trip::<Generic>(is_v6, ends(is_v6, [&keys; 2]), &frames, |frame| {
            let flags = if checksum { 0x80 } else { 0 } | if key.is_some() { 0x20 } else { 0 };
            let mut payload = vec![flags, 0, 0x65, 0x58];
            payload.extend(if checksum { &[0; 4][..] } else { &[] });
            payload.extend(key.map_or(Vec::new(), |key| key.to_be_bytes().to_vec()));
            payload.extend(frame);
            if checksum {
                let sum = Sum::new().add_bytes(&payload).finish();
                payload[4..6].copy_from_slice(&sum.to_be_bytes());
            }
            ip(pair(is_v6), IpProtocol::GRE, &payload)
        });
    }
}
