use bellows_exercise::packets::{back, ip, pair};
use bellows_wire::IpProtocol;
use bellows_wire::udp::UdpHeader;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::tunnel::tests::{check_round_trip, ends, frames, refusal, rig, through};

/// A datagram with a header of VXLAN, as the model has it.
fn datagram(port: u16, header: [u8; 8], frame: &[u8]) -> Vec<u8> {
    let length = (16 + frame.len()) as u16;
    [&[0xc0, 0x01], &port.to_be_bytes()[..], &length.to_be_bytes(), &[0; 2], &header, frame].concat()
}

#[test]
fn what_is_not_of_a_session_is_refused_by_name() {
    let [one, _] = ends(false, [&json!({"vni": 0x0001_0203}); 2]);
    let good = [8, 0, 0, 0, 1, 2, 3, 0];
    let to_us = back(pair(false));
    let packet = |port, header| ip(to_us, IpProtocol::UDP, &datagram(port, header, &[1; 20]));
    let mut long = packet(4_789, good);
    long[14 + 20 + 5] += 1;
    let cases = [
        (packet(4_789, good), None),
        // Reserved bits.
        (packet(4_789, [0xff, 1, 2, 3, 1, 2, 3, 4]), None),
        (packet(4_789, [0, 0, 0, 0, 1, 2, 3, 0]), Some("bad_header")),
        (packet(4_789, [8, 0, 0, 0, 1, 2, 4, 0]), Some("no_session")),
        (packet(4_788, good), Some("other_protocol")),
        (long, Some("malformed")),
        (ip(to_us, IpProtocol::UDP, &datagram(4_789, good, &[])), Some("malformed")),
        (ip(to_us, IpProtocol::TCP, &datagram(4_789, good, &[1; 20])), Some("other_protocol")),
    ];
    for (packet, expected) in cases {
        assert_eq!(refusal::<Extensible>(&one, &packet).as_deref(), expected, "{packet:02x?}");
    }
}

#[test]
fn checksums_are_verified_unless_there_is_none() {
    let [one, two] = ends(true, [&json!({"vni": 1, "checksum": true}); 2]);
    let mut sent = through(&mut rig::<Extensible>(&one), "a", &[9; 77], "ip6").remove(0);
    bellows_wire::verify_checksums(&sent).unwrap();
    assert_eq!(refusal::<Extensible>(&two, &sent), None);
    *sent.last_mut().unwrap() ^= 1;
    assert_eq!(refusal::<Extensible>(&two, &sent).as_deref(), Some("bad_checksum"));
}

#[test]
fn flows_have_ports_of_their_own() {
    let [one, _] = ends(false, [&json!({"vni": 1}); 2]);
    let mut near = rig::<Extensible>(&one);
    let port = |near: &mut bellows_rig::Rig, flow: u16| {
        let header = UdpHeader { src_port: flow, dst_port: 9 };
        let mut inner = vec![0; 40];
        header.emit(&mut inner, &pair(true)).unwrap();
        let sent = through(near, "a", &ip(pair(true), IpProtocol::UDP, &inner), "ip4").remove(0);
        u16::from_be_bytes([sent[34], sent[35]])
    };
    let ports: Vec<u16> = (0..100).map(|flow| port(&mut near, flow)).collect();
    assert_eq!(ports[7], port(&mut near, 7));
    assert!(ports.iter().all(|port| *port >= 0xc000));
    let different = ports.iter().collect::<std::collections::HashSet<_>>().len();
    assert!(different > 90, "{different}");
}

proptest! {
    #[test]
    fn frames_arrive_unchanged(
        is_v6 in any::<bool>(), vni in 0u32..1 << 24, port in 1u16.., checksum in any::<Option<bool>>(),
        frames in frames(),
    ) {
        let keys = json!({"vni": vni, "port": port, "checksum": checksum});
        check_round_trip::<Extensible>(is_v6, ends(is_v6, [&keys; 2]), &frames, |frame| {
            let [_, number @ ..] = vni.to_be_bytes();
            let header = [&[8, 0, 0, 0], &number[..], &[0]].concat();
            let mut datagram = datagram(port, header.try_into().unwrap(), frame);
            let hash = bellows_wire::flow::hash(frame, bellows_wire::flow::Directions::Apart).unwrap();
            let src_port = 0xc000 | (hash ^ hash >> 16) as u16;
            datagram[..2].copy_from_slice(&src_port.to_be_bytes());
            if checksum.unwrap_or(is_v6) {
                UdpHeader { src_port, dst_port: port }.emit(&mut datagram, &pair(is_v6)).unwrap();
            }
            ip(pair(is_v6), IpProtocol::UDP, &datagram)
        });
    }
}
