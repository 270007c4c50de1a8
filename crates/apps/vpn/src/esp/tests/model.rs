//! Packets as a model puts them together. Its ciphers are those of the app, which the crate `esp` compares with others.

use bellows_esp::{Algorithm, Cipher, Keys};
use bellows_packet::{Offload, Packet};
use bellows_wire::ipv4::Ipv4Header;
use bellows_wire::ipv6::Ipv6Header;
use proptest::prelude::*;

use super::*;

/// The IV of a packet of ESP that begins there.
fn iv_at(frame: &[u8], start: usize) -> [u8; 8] {
    *frame[start + 8..].first_chunk().unwrap()
}

/// The packet of ESP around a payload.
fn esp(config: &Value, number: u32, iv: [u8; 8], next_header: u8, payload: &[u8]) -> Vec<u8> {
    let outbound = &config["associations"]["a"]["outbound"];
    let algorithm: Algorithm = outbound["algorithm"].as_str().unwrap().parse().unwrap();
    let keys = Keys::parse(algorithm, outbound["key"].as_str().unwrap()).unwrap();
    let cipher = Cipher::new(&keys);
    let spi = (outbound["spi"].as_u64().unwrap() as u32).to_be_bytes();
    let padding = (4 - (payload.len() + 2) % 4) % 4;
    let mut data = payload.to_vec();
    data.extend((1..).take(padding));
    data.extend([padding as u8, next_header]);
    let number = number.to_be_bytes();
    let has_esn = outbound["esn"] != json!(false);
    let aad = if has_esn { [&spi[..], &[0; 4], &number].concat() } else { [spi, number].concat() };
    let mut icv = [0; 16];
    cipher.seal(&iv, &aad, &mut data, &mut icv);
    [&spi[..], &number, &iv, &data, &icv].concat()
}

/// The packet of UDP between ports 4500 around one of ESP. It has a checksum over IPv6 alone.
fn in_udp(is_v6: bool, esp: &[u8]) -> Vec<u8> {
    let length = (esp.len() + 8) as u16;
    let mut packet = [&[0x11, 0x94, 0x11, 0x94], &length.to_be_bytes()[..], &[0, 0], esp].concat();
    if is_v6 {
        let checksum = pair(true).pseudo_header(IpProtocol::UDP, packet.len()).add_bytes(&packet).finish_udp();
        packet[6..8].copy_from_slice(&checksum.to_be_bytes());
    }
    packet
}

/// The packet of a tunnel.
fn tunnel(is_v6: bool, protocol: IpProtocol, class: u8, number: u16, dont_fragment: bool, payload: &[u8]) -> Vec<u8> {
    let mut frame = ip(pair(is_v6), protocol, payload);
    match pair(is_v6) {
        IpPair::V4 { src, dst } => {
            let header =
                Ipv4Header { src, dst, protocol, ttl: 64, traffic_class: class, identification: number, dont_fragment };
            header.emit(&mut frame[ETHERNET..]).unwrap();
        }
        IpPair::V6 { src, dst } => {
            let header =
                Ipv6Header { src, dst, next_header: protocol, hop_limit: 64, traffic_class: class, flow_label: 0 };
            header.emit(&mut frame[ETHERNET..]).unwrap();
        }
    }
    frame
}

const ALGORITHMS: [&str; 3] = ["aes-128-gcm", "aes-256-gcm", "chacha20-poly1305"];

/// All combinations of a mode, a cipher, families, ESN and UDP.
fn setup() -> impl Strategy<Value = (bool, &'static str, bool, bool, bool, bool)> {
    (any::<bool>(), prop::sample::select(&ALGORITHMS[..]), any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>())
}

proptest! {
    #[test]
    fn packets_are_sealed_as_the_model_seals_them_and_come_back(
        (is_transport, algorithm, is_v6, is_v6_inside, esn, udp) in setup(),
        payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..1400), 1..5),
    ) {
        let mode = if is_transport { "transport" } else { "tunnel" };
        let udp_keys = if udp { json!({}) } else { Value::Null };
        let mut ends = ends(is_v6, algorithm, &json!({"mode": mode, "udp": udp_keys}));
        with_direction(&mut ends, |direction| direction["esn"] = esn.into());
        let (mut near, mut far) = (rig(&ends[0]), rig(&ends[1]));
        let is_v6_inside = if is_transport { is_v6 } else { is_v6_inside };
        let packets: Vec<_> = payloads.iter().map(|payload| inner(is_v6_inside, payload)).collect();
        // On the way, Ethernet pads them.
        near.send("a", packets.iter().map(|packet| [&packet[..], &[0xee; 9]].concat()));
        near.settle();
        let wire = near.received(transport(is_v6));
        prop_assert_eq!(wire.len(), packets.len());
        for ((number, packet), seen) in (1..).zip(&packets).zip(&wire) {
            let (next_header, payload) = match is_transport {
                true => (200, &packet[if is_v6 { 54 } else { 34 }..]),
                false => (if is_v6_inside { 41 } else { 4 }, &packet[ETHERNET..]),
            };
            let start = if is_v6 { 54 } else { 34 } + if udp { 8 } else { 0 };
            let mut payload = esp(&ends[0], number, iv_at(seen, start), next_header, payload);
            let protocol = IpProtocol(if udp { 17 } else { 50 });
            if udp {
                payload = in_udp(is_v6, &payload);
            }
            let identification = if is_transport { 0 } else { number as u16 };
            let expected = tunnel(is_v6, protocol, 0, identification, true, &payload);
            prop_assert_eq!(seen, &expected);
        }
        far.send(transport(is_v6), wire.iter().map(|packet| [&packet[..], &[0xee; 9]].concat()));
        far.settle();
        prop_assert_eq!(far.received("a"), packets);
        prop_assert_eq!((near.counts().dropped(), far.counts().dropped()), (0, 0));
    }

    #[test]
    fn any_bytes_are_delivered_or_counted(
        (is_transport, algorithm, is_v6, _, esn, udp) in setup(),
        changes in prop::collection::vec((0usize..150, any::<u8>()), 0..4),
        cut in 0usize..200,
        strange in prop::collection::vec(any::<u8>(), 0..100),
    ) {
        let mode = if is_transport { "transport" } else { "tunnel" };
        let udp = if udp { json!({}) } else { Value::Null };
        let mut ends = ends(is_v6, algorithm, &json!({"mode": mode, "udp": udp}));
        with_direction(&mut ends, |direction| direction["esn"] = esn.into());
        let (mut near, mut far) = (rig(&ends[0]), rig(&ends[1]));
        let whole = sealed(&mut near, is_v6, &inner(is_v6, &[5; 40]));
        let mut packet = whole.clone();
        for (at, byte) in changes {
            if let Some(place) = packet.get_mut(at) {
                *place = byte;
            }
        }
        packet.truncate(cut.max(1));
        far.send("ip4", [&packet]);
        far.settle();
        let arrived = far.received("a");
        prop_assert_eq!(arrived.len() as u64 + far.counts().dropped(), 1);
        prop_assert!(packet != whole || arrived.len() == 1);
        // What comes out was sealed, but for what the ICV does not cover: the header of IP in transport mode.
        let start = if is_v6 { 54 } else { 34 };
        prop_assert!(arrived.iter().all(|packet| packet[start..] == [5; 40]));
        for port in ["ip4", "ip6", "a"] {
            far.send(port, [&strange]);
        }
        let headed = ip(pair(is_v6), IpProtocol(50), &strange);
        far.send("a", [headed]);
        far.settle();
        let sent = far.received("ip4").len() + far.received("ip6").len();
        prop_assert_eq!((arrived.len() + sent + far.received("a").len()) as u64 + far.counts().dropped(), 5);
    }
}

#[test]
fn the_header_of_a_tunnel_has_what_the_keys_say() {
    let cases = [
        (json!({}), 0xba, 0xba, true, true),
        (json!({}), 0xb9, 0xb9, false, false),
        (json!({"dscp": 10}), 0xba, 0x2a, true, true),
        (json!({"dscp": 0, "df": "set"}), 0xbb, 0x03, false, true),
        (json!({"df": "clear"}), 0x00, 0x00, true, false),
    ];
    for (keys, inside, outside, is_set_inside, is_set) in cases {
        for is_v6 in [false, true] {
            let ends = ends(is_v6, "aes-128-gcm", &keys);
            let packet = tunnel(false, IpProtocol(200), inside, 7, is_set_inside, &[1; 33]);
            let seen = sealed(&mut rig(&ends[0]), is_v6, &packet);
            let iv = iv_at(&seen, if is_v6 { 54 } else { 34 });
            let payload = esp(&ends[0], 1, iv, 4, &packet[ETHERNET..]);
            assert_eq!(seen, tunnel(is_v6, IpProtocol(50), outside, 1, is_set, &payload), "{keys}");
        }
    }
}

#[test]
fn congestion_on_the_way_is_told_to_whom_it_concerns() {
    for is_v6 in [false, true] {
        let ends = ends(is_v6, "aes-128-gcm", &json!({}));
        for is_v6_inside in [false, true] {
            for (class, expected) in [(0xb8, None), (0xba, Some(0xbb)), (0xb9, Some(0xbb)), (0xbb, Some(0xbb))] {
                let with_class = |class: u8| tunnel(is_v6_inside, IpProtocol(200), class, 9, true, &[1; 33]);
                let (mut near, mut far) = (rig(&ends[0]), rig(&ends[1]));
                let mut wire = sealed(&mut near, is_v6, &with_class(class));
                bellows_common::headers::ecn::set_ecn(&mut wire[ETHERNET..], is_v6, 3);
                far.send(transport(is_v6), [&wire]);
                far.settle();
                let arrived = far.received("a");
                assert_eq!(arrived, expected.map(with_class).into_iter().collect::<Vec<_>>());
                assert_eq!(far.counts().drops["bad_ecn"], u64::from(expected.is_none()));
            }
        }
    }
}

#[test]
fn transport_mode_keeps_options_and_extension_headers_in_front() {
    // A router alert in IPv4; hop-by-hop options, options of the destination and a routing header without segments left
    // in IPv6, and options of the destination behind, which are protected.
    let v4 = {
        let mut frame = ip(pair(false), IpProtocol(200), &[&[0x94, 4, 0, 0][..], &[3; 50]].concat());
        frame[ETHERNET] = 0x46;
        frame[24..26].fill(0);
        let checksum = bellows_wire::Sum::new().add_bytes(&frame[ETHERNET..38]).finish();
        frame[24..26].copy_from_slice(&checksum.to_be_bytes());
        frame
    };
    let options = |next: u8| [next, 0, 1, 4, 0, 0, 0, 0];
    let routing = [60, 0, 4, 0, 0, 0, 0, 0];
    let chain = [&options(60)[..], &options(43), &routing, &options(200), &[3; 50]].concat();
    let v6 = ip(pair(true), IpProtocol(0), &chain);
    for (is_v6, packet, next_header_at, start) in [(false, v4, 23, 38), (true, v6, 54 + 16, 54 + 24)] {
        for udp in [Value::Null, json!({})] {
            let ends = ends(is_v6, "aes-256-gcm", &json!({"mode": "transport", "udp": udp}));
            let (mut near, mut far) = (rig(&ends[0]), rig(&ends[1]));
            let wire = sealed(&mut near, is_v6, &packet);
            let next_header = packet[next_header_at];
            let iv = iv_at(&wire, start + if udp.is_null() { 0 } else { 8 });
            let payload = esp(&ends[0], 1, iv, next_header, &packet[start..]);
            let payload = if udp.is_null() { payload } else { in_udp(is_v6, &payload) };
            assert_eq!(&wire[start..], &payload[..]);
            assert_eq!(wire[next_header_at], if udp.is_null() { 50 } else { 17 });
            if !is_v6 {
                bellows_wire::verify_ip_checksums(&wire[ETHERNET..]).unwrap();
            }
            far.send(transport(is_v6), [&wire]);
            far.settle();
            assert_eq!(far.received("a"), [&packet[..]]);
        }
    }
}

#[test]
fn packets_come_out_to_the_address_that_is_given() {
    for mode in ["tunnel", "transport"] {
        let ends = ends(true, "aes-128-gcm", &json!({"mode": mode, "dst_mac": "02:00:00:00:00:07"}));
        let mut packet = inner(true, &[1; 20]);
        let arrived = carry(&mut rig(&ends[0]), &mut rig(&ends[1]), true, std::slice::from_ref(&packet));
        packet[..6].copy_from_slice(&[2, 0, 0, 0, 0, 7]);
        assert_eq!(arrived, [packet], "{mode}");
    }
}

#[test]
fn offloads_are_finished_and_numbers_stay_in_order() {
    let ends = ends(true, "aes-128-gcm", &json!({}));
    let (mut near, mut far) = (rig(&ends[0]), rig(&ends[1]));
    let mut tcp = vec![0; 20 + 1000];
    (tcp[12], tcp[13]) = (5 << 4, 0x10);
    let mut gso = Packet::from_bytes(&ip(pair(false), IpProtocol::TCP, &tcp)).unwrap();
    let offload = Offload {
        flags: Offload::NEEDS_CHECKSUM,
        gso_type: Offload::GSO_TCP4,
        header_length: 54,
        segment_size: 300,
        checksum_start: 34,
        checksum_offset: 16,
    };
    gso.set_offload(offload);
    let mut hopeless = gso.copy().unwrap();
    hopeless.set_offload(Offload { gso_type: 3, ..offload });
    let plain = || Packet::from_bytes(&inner(false, &[1; 10])).unwrap();
    near.send_packets("a", [plain(), gso, hopeless, plain()]);
    near.settle();
    let wire = near.received("ip6");
    let numbers: Vec<u8> = wire.iter().map(|packet| packet[54 + 7]).collect();
    assert_eq!(numbers, [1, 2, 3, 4, 5, 6]);
    far.send("ip6", wire);
    far.settle();
    let lengths: Vec<usize> = far.received("a").iter().map(|packet| packet.len()).collect();
    assert_eq!(lengths, [44, 354, 354, 354, 154, 44]);
    let counts = near.counts();
    assert_eq!((counts.counters["segmented"], counts.drops["bad_offload"]), (1, 1));
}
