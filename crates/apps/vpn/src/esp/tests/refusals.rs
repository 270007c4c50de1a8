//! Every packet that is refused is counted by name.

use bellows_esp::{Cipher, KeyProgress, Keys, Outbound, OutboundSettings, Spi, trailer_length};
use bellows_packet::Packet;

use super::*;

/// An authentic packet of the first end with this payload.
fn authentic(config: &Value, next_header: u8, payload: &[u8], sequence: u64) -> Vec<u8> {
    let outbound = &config["associations"]["a"]["outbound"];
    let algorithm = outbound["algorithm"].as_str().unwrap().parse().unwrap();
    let keys = Keys::parse(algorithm, outbound["key"].as_str().unwrap()).unwrap();
    let spi = Spi::new(outbound["spi"].as_u64().unwrap() as u32).unwrap();
    let mut buffer = vec![0; 16 + payload.len() + trailer_length(payload.len())];
    buffer[16..][..payload.len()].copy_from_slice(payload);
    let cipher = Cipher::new(&keys);
    let mut outbound =
        Outbound::with_cipher(spi, cipher, OutboundSettings::default(), KeyProgress::after(sequence - 1));
    outbound.seal(&mut buffer, 16..16 + payload.len(), next_header).unwrap();
    ip(pair(true), IpProtocol(50), &buffer)
}

#[test]
fn received_packets_are_refused_by_name() {
    let more = json!({"local_networks": ["192.0.2.0/30", "2001:db8::/64"], "remote_networks": ["192.0.2.0/28", "2001:db8::/64"]});
    let ends = ends(true, "aes-128-gcm", &more);
    let good = inner(false, &[1; 20]);
    let payload = &good[ETHERNET..];
    let number = std::cell::Cell::new(4);
    let of = |next_header: u8, payload: &[u8]| {
        number.set(number.get() + 1);
        authentic(&ends[0], next_header, payload, number.get())
    };
    let changed = |at: usize, bits: u8| {
        let mut packet = of(4, payload);
        packet[at] ^= bits;
        packet
    };
    let with_inner = |at: usize, byte: u8| {
        let mut inner = payload.to_vec();
        inner[at] = byte;
        of(4, &inner)
    };
    let fragment = {
        let header = [50, 0, 0, 1, 0, 0, 0, 9];
        ip(pair(true), IpProtocol::IPV6_FRAGMENT, &[&header[..], &[0; 40]].concat())
    };
    let udp = |port: u16, payload: &[u8]| {
        let length = (payload.len() + 8) as u16;
        let header = [&[0x11, 0x94], &port.to_be_bytes()[..], &length.to_be_bytes(), &[0, 0]].concat();
        ip(pair(true), IpProtocol::UDP, &[&header[..], payload].concat())
    };
    let cases = [
        (of(4, payload), None),
        // Bytes behind the packet inside hide its length.
        (of(4, &[payload, &[0; 9][..]].concat()), None),
        (changed(54, 0x10), Some("no_association")),
        (changed(14 + 23, 1), Some("no_association")),
        (changed(14 + 39, 1), Some("no_association")),
        (changed(54 + 5, 1), Some("bad_icv")),
        (changed(54 + 12, 1), Some("bad_icv")),
        (changed(54 + 40, 1), Some("bad_icv")),
        (changed(14 + 5, 1), Some("malformed")),
        (of(4, payload)[..100].to_vec(), Some("malformed")),
        (ip(pair(true), IpProtocol(50), &[0, 0, 0x10, 1, 0, 0]), Some("malformed")),
        (ip(pair(true), IpProtocol(50), &[0; 60]), Some("no_association")),
        (ip(pair(true), IpProtocol(51), &[0; 60]), Some("malformed")),
        (ip(pair(true), IpProtocol(99), &[0; 60]), Some("other_protocol")),
        (udp(4500, &[9; 60]), Some("other_protocol")),
        (fragment, Some("fragment")),
        (of(59, payload), Some("dummy")),
        (of(41, payload), Some("bad_payload")),
        (of(6, payload), Some("bad_payload")),
        (of(4, &payload[..30]), Some("bad_payload")),
        (of(4, &[]), Some("bad_payload")),
        (with_inner(15, 16), Some("bad_selector")),
        (with_inner(19, 9), Some("bad_selector")),
        (with_inner(0, 0x44), Some("bad_payload")),
    ];
    for (at, (packet, name)) in cases.iter().enumerate() {
        assert_eq!(refusal(&ends[1], true, packet).as_deref(), *name, "{at}");
    }
}

#[test]
fn udp_carries_esp_keepalives_and_messages_of_ike() {
    let ends =
        ends(true, "aes-128-gcm", &json!({"udp": {"local_port": 4500, "remote_port": 4500, "keepalive_seconds": 0}}));
    let udp = |port: u16, payload: &[u8]| {
        let length = (payload.len() + 8) as u16;
        let header = [&[9, 9], &port.to_be_bytes()[..], &length.to_be_bytes(), &[7, 7]].concat();
        ip(pair(true), IpProtocol::UDP, &[&header[..], payload].concat())
    };
    let bare = authentic(&ends[0], 4, &inner(false, &[1; 20])[ETHERNET..], 5);
    let cases = [
        // From any port, and whatever the checksum is.
        (udp(4500, &bare[54..]), None),
        (udp(4501, &bare[54..]), Some("other_protocol")),
        (udp(4500, &[0xff]), Some("keepalive")),
        (udp(4500, &[0, 0, 0, 0, 1, 2, 3]), Some("ike")),
        (udp(4500, &[0, 0]), Some("malformed")),
        (udp(4500, &[1; 60]), Some("no_association")),
        (bare, Some("no_association")),
    ];
    for (at, (packet, name)) in cases.iter().enumerate() {
        assert_eq!(refusal(&ends[1], true, packet).as_deref(), *name, "{at}");
    }
}

#[test]
fn padding_that_is_wrong_is_named() {
    let ends = ends(true, "aes-128-gcm", &json!({}));
    let outbound = &ends[0]["associations"]["a"]["outbound"];
    let keys = Keys::parse(bellows_esp::Algorithm::Aes128Gcm, outbound["key"].as_str().unwrap()).unwrap();
    let cipher = bellows_esp::Cipher::new(&keys);
    let mut data = [[1u8; 20], [9; 20]].concat();
    data.extend([7, 7, 2, 4]);
    let mut icv = [0; 16];
    cipher.seal(&1u64.to_be_bytes(), &[0, 0, 0x10, 1, 0, 0, 0, 0, 0, 0, 0, 1], &mut data, &mut icv);
    let packet = [&[0, 0, 0x10, 1, 0, 0, 0, 1][..], &1u64.to_be_bytes(), &data, &icv].concat();
    assert_eq!(refusal(&ends[1], true, &ip(pair(true), IpProtocol(50), &packet)).as_deref(), Some("bad_padding"));
}

#[test]
fn packets_to_send_are_refused_by_name() {
    let good = inner(false, &[1; 20]);
    let fragment = |is_v6: bool| match is_v6 {
        true => ip(pair(true), IpProtocol::IPV6_FRAGMENT, &[6, 0, 0, 1, 0, 0, 0, 9, 1, 2, 3, 4]),
        false => {
            let mut packet = good.clone();
            packet[20] = 0x20;
            packet
        }
    };
    let tunnel =
        ends(true, "aes-128-gcm", &json!({"local_networks": ["192.0.2.1"], "remote_networks": ["192.0.2.2/32"]}));
    let [transport_v4, transport_v6] =
        [false, true].map(|is_v6| ends(is_v6, "aes-128-gcm", &json!({"mode": "transport"})));
    let changed = |at: usize, byte: u8| {
        let mut packet = good.clone();
        packet[at] = byte;
        packet
    };
    let cases = [
        (&tunnel, good.clone(), None),
        (&tunnel, fragment(false), None),
        (&tunnel, inner(true, &[1; 20]), Some("bad_selector")),
        (&tunnel, changed(29, 7), Some("bad_selector")),
        (&tunnel, good[..13].to_vec(), Some("too_short")),
        (&tunnel, good[..40].to_vec(), Some("malformed")),
        (&tunnel, changed(13, 6), Some("not_ip")),
        (&tunnel, changed(14, 0x65), Some("malformed")),
        (&tunnel, inner(false, &vec![1; 65_500]), Some("too_big")),
        (&transport_v4, good.clone(), None),
        (&transport_v4, fragment(false), Some("fragment")),
        (&transport_v4, changed(33, 7), Some("bad_selector")),
        (&transport_v4, inner(true, &[]), Some("bad_selector")),
        (&transport_v6, fragment(true), Some("fragment")),
        (&transport_v6, ip(pair(true), IpProtocol(0), &[6, 9, 0, 0]), Some("malformed")),
    ];
    for (at, (ends, packet, name)) in cases.iter().enumerate() {
        let mut rig = rig(&ends[0]);
        rig.send("a", [packet]);
        rig.settle();
        assert_eq!(drop_of(&mut rig, 0).as_deref(), *name, "{at}");
    }
    let mut crowded = Packet::from_bytes(&good).unwrap();
    crowded.prepend(crowded.headroom() - 55);
    let header = inner(false, &vec![1; crowded.len() - 34]);
    crowded.bytes_mut().copy_from_slice(&header);
    // No room in front, or behind.
    let ends = ends(true, "aes-128-gcm", &json!({}));
    for (packet, clear) in [(crowded, header), full()] {
        let (mut near, mut far) = (rig(&ends[0]), rig(&ends[1]));
        near.send_packets("a", [packet]);
        near.settle();
        far.send("ip6", near.received("ip6"));
        far.settle();
        assert_eq!(far.received("a"), [clear]);
    }
}

/// A packet that fills its buffer.
fn full() -> (Packet, Vec<u8>) {
    let clear = inner(false, &vec![3; 2_048 - 34]);
    (Packet::from_bytes(&clear).unwrap(), clear)
}

#[test]
fn a_packet_is_opened_once() {
    // With numbers of 64 bits, one below the window is taken for the next one with this lower half.
    for (esn, [too_old, bad_icv]) in [(false, [2, 0]), (true, [0, 2])] {
        let mut ends = ends(false, "chacha20-poly1305", &json!({}));
        with_direction(&mut ends, |direction| direction["esn"] = esn.into());
        ends[1]["associations"]["a"]["inbound"]["window"] = 32.into();
        let (mut near, mut far) = (rig(&ends[0]), rig(&ends[1]));
        let packets: Vec<_> = (0..50u8).map(|byte| inner(true, &[byte; 30])).collect();
        near.send("a", &packets);
        near.settle();
        let wire = near.received("ip4");
        far.send("ip4", [&wire[40], &wire[40], &wire[39], &wire[0], &wire[9], &wire[8]]);
        far.settle();
        assert_eq!(far.received("a"), [&packets[40][..], &packets[39], &packets[9]]);
        let counts = far.counts();
        assert_eq!(["replayed", "too_old", "bad_icv"].map(|name| counts.drops[name]), [1, too_old, bad_icv]);
    }
}
