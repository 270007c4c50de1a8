//! UDP frames of all sizes, and numbered copies of them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use bellows_wire::*;
use proptest::prelude::*;

fn udp_frame() -> impl Strategy<Value = UdpFrame> {
    let addresses = prop_oneof![
        any::<(Ipv4Addr, Ipv4Addr)>().prop_map(|(src, dst)| (IpAddr::V4(src), IpAddr::V4(dst))),
        any::<(Ipv6Addr, Ipv6Addr)>().prop_map(|(src, dst)| (IpAddr::V6(src), IpAddr::V6(dst))),
    ];
    (any::<[[u8; 6]; 2]>(), proptest::option::of(0_u16..4095), addresses, any::<(u16, u16, u8)>()).prop_map(
        |([src_mac, dst_mac], vlan, (src, dst), (src_port, dst_port, ttl))| UdpFrame {
            src_mac: MacAddr(src_mac),
            dst_mac: MacAddr(dst_mac),
            vlan,
            src,
            dst,
            src_port,
            dst_port,
            ttl,
        },
    )
}

fn headers(vlan: Option<u16>, src: &str, dst: &str) -> UdpFrame {
    UdpFrame {
        src_mac: MacAddr([2, 0, 0, 0, 0, 1]),
        dst_mac: MacAddr([2, 0, 0, 0, 0, 2]),
        vlan,
        src: src.parse().unwrap(),
        dst: dst.parse().unwrap(),
        src_port: 1234,
        dst_port: 9,
        ttl: 64,
    }
}

proptest! {
    #[test]
    fn a_frame_has_the_requested_fields(headers in udp_frame(), room in 0_usize..9000, seed: u8) {
        let len = headers.header_len() + room;
        let pattern = |index: usize| (index as u8).wrapping_mul(31).wrapping_add(seed);
        let payload: Vec<u8> = (0..room).map(pattern).collect();
        let frame = headers.build(len, |bytes| bytes.copy_from_slice(&payload)).unwrap();
        prop_assert_eq!(frame.len(), len);
        let verified = verify_checksums(&frame);
        prop_assert_eq!(verified, Ok(Verified { ipv4_header: headers.src.is_ipv4(), upper: Some(Layer::Udp) }));

        let ethernet = EthernetFrame::new_checked(&frame).unwrap();
        prop_assert_eq!((ethernet.src(), ethernet.dst()), (headers.src_mac, headers.dst_mac));
        let tag = VlanTag::new_checked(ethernet.payload()).unwrap();
        let tagged = (ethernet.ether_type() == EtherType::VLAN).then(|| tag.id());
        prop_assert_eq!(tagged, headers.vlan);
        let (ether_type, packet) = ethernet::skip_vlan_tags(&frame).unwrap();
        let (udp, ttl, addresses) = match ether_type {
            EtherType::IPV4 => {
                let ip = Ipv4Packet::new_checked(packet).unwrap();
                (ip.payload().to_vec(), ip.ttl(), ip.addresses())
            }
            _ => {
                let ip = Ipv6Packet::new_checked(packet).unwrap();
                (ip.payload().to_vec(), ip.hop_limit(), ip.addresses())
            }
        };
        prop_assert_eq!((ttl, Some(addresses)), (headers.ttl, IpPair::new(headers.src, headers.dst)));
        let udp = UdpDatagram::new_checked(&udp).unwrap();
        prop_assert_eq!((udp.src_port(), udp.dst_port()), (headers.src_port, headers.dst_port));
        prop_assert_eq!(udp.payload(), payload);
    }

    #[test]
    fn a_stamped_copy_equals_a_frame_built_with_the_number(
        headers in udp_frame(), room in 8_usize..200, before: u64, numbers: Vec<u64>,
    ) {
        let len = headers.header_len() + room;
        let build = |number: u64| headers.build(len, |payload| payload[..8].copy_from_slice(&number.to_be_bytes()));
        let mut frame = build(before).unwrap();
        let stamp = Stamp::new(&headers, &frame).unwrap();
        for number in numbers.into_iter().chain([0, u64::MAX, before]) {
            stamp.write(&mut frame, number);
            prop_assert_eq!(&frame, &build(number).unwrap());
            prop_assert_eq!(stamp.read(&frame), Some(number));
        }
    }
}

#[test]
fn a_udp_checksum_of_zero_is_sent_as_ffff() {
    let headers = headers(None, "192.0.2.1", "192.0.2.2");
    let template = headers.build(60, |_| {}).unwrap();
    let stamp = Stamp::new(&headers, &template).unwrap();
    let checksum_of = |number: u64| {
        let mut frame = template.clone();
        stamp.write(&mut frame, number);
        assert_eq!(verify_checksums(&frame).unwrap().upper, Some(Layer::Udp));
        u16::from_be_bytes([frame[40], frame[41]])
    };
    // The number that equals the checksum of the rest makes the sum all ones.
    let number = u64::from(checksum_of(0));
    assert_eq!(checksum_of(number), 0xffff);
    let built = headers.build(60, |payload| payload[..8].copy_from_slice(&number.to_be_bytes())).unwrap();
    assert_eq!(built[40..42], [0xff, 0xff]);
}

#[test]
fn the_shortest_and_longest_frames() {
    let (v4, v6) = (("192.0.2.1", "192.0.2.2"), ("2001:db8::1", "2001:db8::2"));
    for (headers, minimum, maximum) in [
        (headers(None, v4.0, v4.1), 42, 65_549),
        (headers(Some(1), v4.0, v4.1), 46, 65_553),
        (headers(None, v6.0, v6.1), 62, 65_589),
        (headers(Some(4094), v6.0, v6.1), 66, 65_593),
    ] {
        for len in [minimum, maximum] {
            let frame = headers.build(len, |payload| payload.fill(0xff)).unwrap();
            assert_eq!(verify_checksums(&frame).unwrap().upper, Some(Layer::Udp));
        }
        for len in [0, minimum - 1, maximum + 1, usize::MAX] {
            assert_eq!(headers.build(len, |_| {}), Err(FrameError::Length { len, minimum, maximum }));
        }
        let template = headers.build(minimum + 7, |_| {}).unwrap();
        let error = Stamp::new(&headers, &template).unwrap_err();
        assert_eq!(error, FrameError::Length { len: minimum + 7, minimum: minimum + 8, maximum });
    }
}

#[test]
fn contradictory_headers_are_rejected() {
    let mixed = headers(None, "192.0.2.1", "2001:db8::2").build(100, |_| {}).unwrap_err();
    assert_eq!(
        mixed.to_string(),
        "source 192.0.2.1 and destination 2001:db8::2 differ in family: give two IPv4 or two IPv6 addresses"
    );
    let vlan = headers(Some(4095), "192.0.2.1", "192.0.2.2").build(100, |_| {}).unwrap_err();
    assert_eq!(vlan.to_string(), "VLAN 4095 does not exist: give an identifier from 0 to 4094");
    let short = headers(None, "192.0.2.1", "192.0.2.2").build(41, |_| {}).unwrap_err();
    assert_eq!(short.to_string(), "a frame of 41 bytes cannot be built: with these headers it takes 42 to 65549 bytes");
}

#[test]
fn a_stamp_leaves_a_frame_that_is_too_short_alone() {
    let headers = headers(None, "192.0.2.1", "192.0.2.2");
    let template = headers.build(50, |_| {}).unwrap();
    let stamp = Stamp::new(&headers, &template).unwrap();
    let mut cut = template[..49].to_vec();
    stamp.write(&mut cut, 1);
    assert_eq!(cut, template[..49]);
    assert_eq!(stamp.read(&cut), None);
}
