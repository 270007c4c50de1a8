use bellows_wire::{IpProtocol, Sum};
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::tunnel::tests::{back, check_round_trip, configure, ends, frames, ip, pair, refusal, rig, through};

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
        (with(0, 0x30), Some("bad_flags")),
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
