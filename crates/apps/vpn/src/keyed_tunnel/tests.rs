use bellows_exercise::packets::{back, ip, pair};
use bellows_wire::IpProtocol;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::tunnel::tests::{check_round_trip, ends, frames, refusal, rig, through};

const L2TP: IpProtocol = IpProtocol(115);

#[test]
fn a_frame_is_carried_as_rfc_8159_has_it() {
    let keys = json!({"send_cookie": "0011223344556677"});
    let [one, _] = ends(true, [&keys; 2]);
    let frame = [0xab; 60];
    let sent = through(&mut rig::<Keyed>(&one), "a", &frame, "ip6");
    let header = [
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x86, 0xdd, // Ethernet
        0x60, 0, 0, 0, 0, 72, 115, 64, // IPv6
        0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, // source
        0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, // destination
        0xff, 0xff, 0xff, 0xff, 0, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, // session, cookie
    ];
    assert_eq!(header.len(), 66);
    assert_eq!(sent, [[&header[..], &frame].concat()]);
}

#[test]
fn what_is_not_of_a_session_is_refused_by_name() {
    let [one, _] = ends(true, [&json!({"expect_session": 5, "expect_cookie": "0a0b0c0d"}); 2]);
    let good = [&[0, 0, 0, 5, 10, 11, 12, 13][..], &[1; 20]].concat();
    let to_us = back(pair(true));
    let with = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        ip(to_us, L2TP, &bytes)
    };
    let fragment = ip(to_us, IpProtocol::IPV6_FRAGMENT, &[&[115, 0, 0, 1, 0, 0, 0, 9][..], &good].concat());
    let cases = [
        (ip(to_us, L2TP, &good), None),
        (with(3, 6), Some("no_session")),
        (with(3, 0), Some("no_session")),
        (with(7, 0), Some("bad_cookie")),
        (ip(pair(true), L2TP, &good), Some("no_session")),
        (ip(back(pair(false)), L2TP, &good), Some("no_session")),
        (ip(to_us, IpProtocol::GRE, &good), Some("other_protocol")),
        (ip(to_us, L2TP, &good[..8 + 13]), Some("malformed")),
        (ip(to_us, L2TP, &good[..3]), Some("malformed")),
        (ip(to_us, L2TP, &good)[..80].to_vec(), Some("malformed")),
        (fragment, Some("fragment")),
    ];
    for (packet, expected) in cases {
        assert_eq!(refusal::<Keyed>(&one, &packet).as_deref(), expected, "{packet:02x?}");
    }
    // Behind options that Linux puts in front of tunnels (RFC 2473), it is taken.
    let limit = [&[115, 0, 4, 1, 4, 1, 0, 0][..], &good].concat();
    let mut near = rig::<Keyed>(&one);
    let packet = ip(to_us, IpProtocol::IPV6_DESTINATION, &limit);
    assert_eq!(through(&mut near, "ip6", &packet, "a"), [[1; 20]]);
}

proptest! {
    #[test]
    fn frames_arrive_unchanged(
        is_v6 in any::<bool>(),
        sessions in any::<[u32; 2]>(),
        cookies in any::<[Option<u64>; 2]>(),
        is_long in any::<bool>(),
        has_sublayer in any::<bool>(),
        frames in frames(),
    ) {
        let sessions = sessions.map(|number| number.max(1));
        let bytes = cookies.map(|cookie| cookie.map_or(Vec::new(), |cookie| {
            if is_long { cookie.to_be_bytes().to_vec() } else { (cookie as u32).to_be_bytes().to_vec() }
        }));
        let text = |side: usize| cookies[side].map(|_| bytes[side].iter().map(|byte| format!("{byte:02x}")).collect::<String>());
        let sublayer = if has_sublayer { "default" } else { "none" };
        let keys = |own: usize, other: usize| json!({
            "expect_session": sessions[own], "send_session": sessions[other],
            "expect_cookie": text(own), "send_cookie": text(other), "sublayer": sublayer,
        });
        check_round_trip::<Keyed>(is_v6, ends(is_v6, [&keys(0, 1), &keys(1, 0)]), &frames, |frame| {
            let sublayer = if has_sublayer { vec![0; 4] } else { Vec::new() };
            let payload = [&sessions[1].to_be_bytes()[..], &bytes[1], &sublayer, frame].concat();
            ip(pair(is_v6), L2TP, &payload)
        });
    }
}
