use bellows_exercise::packets::{back, ip, pair};
use bellows_wire::IpProtocol;
use bellows_wire::udp::UdpHeader;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::tunnel::tests::{check_round_trip, ends, frames, refusal, rig, through};

/// A datagram with a header of Geneve.
fn datagram(header: [u8; 8], behind: &[u8]) -> Vec<u8> {
    let length = (16 + behind.len()) as u16;
    [&[0xc0, 0x01, 0x17, 0xc1], &length.to_be_bytes()[..], &[0; 2], &header, behind].concat()
}

#[test]
fn what_is_not_of_a_session_is_refused_by_name() {
    let [one, _] = ends(true, [&json!({"vni": 0x0001_0203}); 2]);
    let to_us = back(pair(true));
    let packet = |header, behind: &[u8]| ip(to_us, IpProtocol::UDP, &datagram(header, behind));
    let options = [&[0, 1, 2, 0][..], &[1; 20]].concat();
    let cases = [
        (packet([0, 0, 0x65, 0x58, 1, 2, 3, 0], &[1; 20]), None),
        (packet([0, 0x3f, 0x65, 0x58, 1, 2, 3, 9], &[1; 20]), None),
        (packet([0x40, 0, 0x65, 0x58, 1, 2, 3, 0], &[1; 20]), Some("bad_header")),
        (packet([0, 0x80, 0x65, 0x58, 1, 2, 3, 0], &[1; 20]), Some("bad_header")),
        (packet([1, 0x40, 0x65, 0x58, 1, 2, 3, 0], &options), Some("bad_header")),
        (packet([0, 0, 0x65, 0x58, 1, 2, 4, 0], &[1; 20]), Some("no_session")),
        (packet([0, 0, 8, 0, 1, 2, 3, 0], &[1; 20]), Some("bad_flags")),
        (packet([0x3f, 0, 0x65, 0x58, 1, 2, 3, 0], &options), Some("malformed")),
    ];
    for (packet, expected) in cases {
        assert_eq!(refusal::<Generic>(&one, &packet).as_deref(), expected, "{packet:02x?}");
    }
}

#[test]
fn options_are_skipped() {
    let [one, _] = ends(true, [&json!({"vni": 7}); 2]);
    let behind = [&[0, 1, 2, 0][..], &[5; 60]].concat();
    let packet = ip(back(pair(true)), IpProtocol::UDP, &datagram([1, 0, 0x65, 0x58, 0, 0, 7, 0], &behind));
    assert_eq!(through(&mut rig::<Generic>(&one), "ip6", &packet, "a"), [[5; 60]]);
}

#[test]
fn ip_is_carried_without_ethernet() {
    let [one, two] = ends(true, [&json!({"payload": "ip", "vni": 9}); 2]);
    let inner = ip(pair(false), IpProtocol::UDP, &[1; 30]);
    let sent = through(&mut rig::<Generic>(&one), "a", &inner, "ip6").remove(0);
    assert_eq!(sent[54 + 8..54 + 16], [0, 0, 8, 0, 0, 0, 9, 0]);
    assert_eq!(sent[54 + 16..], inner[14..]);
    assert_eq!(through(&mut rig::<Generic>(&two), "ip6", &sent, "a"), [inner]);
}

proptest! {
    #[test]
    fn frames_arrive_unchanged(is_v6 in any::<bool>(), vni in 0u32..1 << 24, frames in frames()) {
        let keys = json!({"vni": vni});
        check_round_trip::<Generic>(is_v6, ends(is_v6, [&keys; 2]), &frames, |frame| {
            let [_, number @ ..] = vni.to_be_bytes();
            let header = [&[0, 0, 0x65, 0x58], &number[..], &[0]].concat();
            let mut datagram = datagram(header.try_into().unwrap(), frame);
            let hash = bellows_wire::flow::hash(frame, bellows_wire::flow::Directions::Apart).unwrap();
            let src_port = 0xc000 | (hash ^ hash >> 16) as u16;
            datagram[..2].copy_from_slice(&src_port.to_be_bytes());
            if is_v6 {
                UdpHeader { src_port, dst_port: 6_081 }.emit(&mut datagram, &pair(is_v6)).unwrap();
            }
            ip(pair(is_v6), IpProtocol::UDP, &datagram)
        });
    }
}
