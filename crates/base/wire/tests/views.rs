//! Headers written and read back; views of arbitrary bytes.

use std::net::{Ipv4Addr, Ipv6Addr};

use bellows_wire::ipv6::MAX_EXTENSION_HEADERS;
use bellows_wire::*;
use proptest::prelude::*;

fn mac() -> impl Strategy<Value = MacAddr> {
    any::<[u8; 6]>().prop_map(MacAddr)
}

fn pair() -> impl Strategy<Value = IpPair> {
    prop_oneof![
        any::<(Ipv4Addr, Ipv4Addr)>().prop_map(|(src, dst)| IpPair::V4 { src, dst }),
        any::<(Ipv6Addr, Ipv6Addr)>().prop_map(|(src, dst)| IpPair::V6 { src, dst }),
    ]
}

/// An IPv4 or IPv6 packet around `upper`.
fn ip_packet(addresses: &IpPair, protocol: IpProtocol, upper: &[u8]) -> Vec<u8> {
    let (traffic_class, identification, flow_label) = (0, 0, 0);
    match *addresses {
        IpPair::V4 { src, dst } => {
            let mut packet = [&[0; 20], upper].concat();
            Ipv4Header { src, dst, protocol, ttl: 64, traffic_class, identification, dont_fragment: true }
                .emit(&mut packet)
                .unwrap();
            packet
        }
        IpPair::V6 { src, dst } => {
            let mut packet = [&[0; 40], upper].concat();
            Ipv6Header { src, dst, next_header: protocol, hop_limit: 64, traffic_class, flow_label }
                .emit(&mut packet)
                .unwrap();
            packet
        }
    }
}

proptest! {
    #[test]
    fn ethernet_and_vlan_read_as_written(
        dst in mac(), src in mac(), id in 0_u16..4096, priority in 0_u8..8, drop_eligible: bool, inner: u16,
        payload: Vec<u8>,
    ) {
        let mut frame = [&[0; 18], &payload[..]].concat();
        EthernetHeader { dst, src, ether_type: EtherType::VLAN }.emit(&mut frame).unwrap();
        VlanHeader { id, priority, drop_eligible, ether_type: EtherType(inner) }.emit(&mut frame[14..]).unwrap();
        let ethernet = EthernetFrame::new_checked(&frame).unwrap();
        prop_assert_eq!((ethernet.dst(), ethernet.src(), ethernet.ether_type()), (dst, src, EtherType::VLAN));
        let tag = VlanTag::new_checked(ethernet.payload()).unwrap();
        prop_assert_eq!((tag.id(), tag.priority(), tag.drop_eligible()), (id, priority, drop_eligible));
        prop_assert_eq!((tag.ether_type(), tag.payload()), (EtherType(inner), &payload[..]));
    }

    #[test]
    fn arp_reads_as_written(sender_mac in mac(), target_mac in mac(), sender_ip: Ipv4Addr, target_ip: Ipv4Addr) {
        let mut bytes = [0xaa; 28];
        ArpHeader { operation: ArpOperation::REPLY, sender_mac, sender_ip, target_mac, target_ip }
            .emit(&mut bytes)
            .unwrap();
        let arp = ArpPacket::new_checked(bytes).unwrap();
        prop_assert_eq!((arp.sender_mac(), arp.sender_ip()), (sender_mac, sender_ip));
        prop_assert_eq!((arp.target_mac(), arp.target_ip()), (target_mac, target_ip));
        prop_assert_eq!(arp.operation(), ArpOperation::REPLY);
    }

    #[test]
    fn ipv4_reads_as_written(
        src: Ipv4Addr, dst: Ipv4Addr, protocol: u8, ttl: u8, traffic_class: u8, identification: u16,
        dont_fragment: bool, payload: Vec<u8>,
    ) {
        let mut bytes = [&[0xaa; 20], &payload[..]].concat();
        let protocol = IpProtocol(protocol);
        Ipv4Header { src, dst, protocol, ttl, traffic_class, identification, dont_fragment }.emit(&mut bytes).unwrap();
        bytes.extend([0; 6]); // padding after the total length
        let packet = Ipv4Packet::new_checked(&bytes).unwrap();
        prop_assert_eq!((packet.addresses(), packet.protocol()), (IpPair::V4 { src, dst }, protocol));
        prop_assert_eq!((packet.ttl(), packet.traffic_class()), (ttl, traffic_class));
        prop_assert_eq!((packet.identification(), packet.dont_fragment()), (identification, dont_fragment));
        prop_assert_eq!((packet.more_fragments(), packet.fragment_offset()), (false, 0));
        prop_assert_eq!((packet.header().len(), packet.payload()), (20, &payload[..]));
        prop_assert_eq!(Sum::new().add_bytes(packet.header()).finish(), 0);
    }

    #[test]
    fn ipv6_reads_as_written(
        src: Ipv6Addr, dst: Ipv6Addr, protocol in 100_u8..130, hop_limit: u8, traffic_class: u8,
        flow_label in 0_u32..1 << 20, payload: Vec<u8>,
    ) {
        let mut bytes = [&[0xaa; 40], &payload[..]].concat();
        let next_header = IpProtocol(protocol);
        Ipv6Header { src, dst, next_header, hop_limit, traffic_class, flow_label }.emit(&mut bytes).unwrap();
        bytes.extend([0; 6]);
        let packet = Ipv6Packet::new_checked(&bytes).unwrap();
        prop_assert_eq!((packet.addresses(), packet.hop_limit()), (IpPair::V6 { src, dst }, hop_limit));
        prop_assert_eq!((packet.traffic_class(), packet.flow_label()), (traffic_class, flow_label));
        let upper = packet.upper_layer().unwrap();
        prop_assert_eq!((upper.protocol, upper.payload), (next_header, &payload[..]));
        prop_assert_eq!((upper.fragment, upper.final_dst), (None, Some(dst)));
    }

    #[test]
    fn upper_layers_read_as_written_and_verify(pair in pair(), numbers: [u16; 7], reply: bool, payload: Vec<u8>) {
        let [src_port, dst_port, window, identifier, sequence, high, low] = numbers;
        let version_4 = matches!(pair, IpPair::V4 { .. });

        let mut udp = [&[0xaa; 8], &payload[..]].concat();
        UdpHeader { src_port, dst_port }.emit(&mut udp, &pair).unwrap();
        let view = UdpDatagram::new_checked(&udp).unwrap();
        prop_assert_eq!((view.src_port(), view.dst_port(), view.payload()), (src_port, dst_port, &payload[..]));
        let verified = verify_ip_checksums(&ip_packet(&pair, IpProtocol::UDP, &udp));
        prop_assert_eq!(verified, Ok(Verified { ipv4_header: version_4, upper: Some(Layer::Udp) }));

        let (sequence_32, acknowledgment) = (u32::from(high) << 16 | 7, u32::from(low) << 16 | 9);
        let mut tcp = [&[0xaa; 20], &payload[..]].concat();
        let flags = tcp::flags::SYN | tcp::flags::ACK;
        TcpHeader { src_port, dst_port, sequence: sequence_32, acknowledgment, flags, window }
            .emit(&mut tcp, &pair)
            .unwrap();
        let view = TcpSegment::new_checked(&tcp).unwrap();
        prop_assert_eq!((view.src_port(), view.dst_port(), view.payload()), (src_port, dst_port, &payload[..]));
        prop_assert_eq!((view.sequence(), view.acknowledgment()), (sequence_32, acknowledgment));
        prop_assert_eq!((view.flags(), view.window(), view.urgent()), (0x12, window, 0));
        let verified = verify_ip_checksums(&ip_packet(&pair, IpProtocol::TCP, &tcp));
        prop_assert_eq!(verified, Ok(Verified { ipv4_header: version_4, upper: Some(Layer::Tcp) }));

        let mut icmp = [&[0xaa; 8], &payload[..]].concat();
        Echo { reply, identifier, sequence }.emit(&mut icmp, &pair).unwrap();
        let view = IcmpMessage::new_checked(&icmp).unwrap();
        prop_assert_eq!((view.identifier(), view.sequence(), view.payload()), (identifier, sequence, &payload[..]));
        let (protocol, layer, request, answer) =
            if version_4 { (IpProtocol::ICMP, Layer::Icmp, 8, 0) } else { (IpProtocol::ICMPV6, Layer::Icmpv6, 128, 129) };
        prop_assert_eq!((view.message_type(), view.code()), (if reply { answer } else { request }, 0));
        let verified = verify_ip_checksums(&ip_packet(&pair, protocol, &icmp));
        prop_assert_eq!(verified, Ok(Verified { ipv4_header: version_4, upper: Some(layer) }));
    }

    #[test]
    fn one_changed_byte_is_found(pair in pair(), payload: [u8; 9], protocol in 0_usize..3, at: usize, change in 1_u8..) {
        let version_4 = matches!(pair, IpPair::V4 { .. });
        let icmp = if version_4 { IpProtocol::ICMP } else { IpProtocol::ICMPV6 };
        let protocol = [IpProtocol::UDP, IpProtocol::TCP, icmp][protocol];
        let mut upper = [&[0; 20], &payload[..]].concat();
        match protocol {
            IpProtocol::UDP => UdpHeader { src_port: 1, dst_port: 2 }.emit(&mut upper, &pair),
            IpProtocol::TCP => {
                TcpHeader { src_port: 1, dst_port: 2, sequence: 3, acknowledgment: 4, flags: 0, window: 5 }
                    .emit(&mut upper, &pair)
            }
            _ => Echo { reply: false, identifier: 1, sequence: 2 }.emit(&mut upper, &pair),
        }
        .unwrap();
        let mut packet = ip_packet(&pair, protocol, &upper);
        // One of the payload's bytes.
        let at = packet.len() - 1 - at % 9;
        packet[at] ^= change;
        let found = verify_ip_checksums(&packet);
        prop_assert!(matches!(found, Err(ChecksumError::Wrong { .. })), "{:?}", found);
        if version_4 {
            packet[at] ^= change;
            packet[8] ^= change;
            let found = verify_ip_checksums(&packet);
            prop_assert!(matches!(found, Err(ChecksumError::Wrong { layer: Layer::Ipv4Header, .. })), "{:?}", found);
        }
    }

    #[test]
    fn extension_headers_are_passed(src: Ipv6Addr, dst: Ipv6Addr, kinds in proptest::collection::vec(0_usize..4, 0..24)) {
        // Hop-by-hop, destination options, an atomic fragment and authentication headers, with their lengths.
        let shapes = [(0_u8, 16_usize, 1_u8), (60, 8, 0), (44, 8, 0), (51, 12, 1)];
        let next = |index: usize| kinds.get(index).map_or(17, |kind| shapes[*kind].0);
        let mut chain = Vec::new();
        for (index, kind) in kinds.iter().enumerate() {
            let (_, len, len_field) = shapes[*kind];
            let start = chain.len();
            chain.resize(start + len, 0);
            chain[start] = next(index + 1);
            chain[start + 1] = len_field;
        }
        let addresses = IpPair::V6 { src, dst };
        let mut udp = [7; 20];
        UdpHeader { src_port: 1, dst_port: 2 }.emit(&mut udp, &addresses).unwrap();
        chain.extend(udp);
        let packet = ip_packet(&addresses, IpProtocol(next(0)), &chain);
        let view = Ipv6Packet::new_checked(&packet).unwrap();
        if kinds.len() <= MAX_EXTENSION_HEADERS {
            let upper = view.upper_layer().unwrap();
            prop_assert_eq!((upper.protocol, upper.payload), (IpProtocol::UDP, &udp[..]));
            prop_assert_eq!(verify_ip_checksums(&packet).unwrap().upper, Some(Layer::Udp));
        } else {
            prop_assert!(view.upper_layer().is_err());
        }
    }

    #[test]
    fn no_bytes_make_a_view_panic(bytes: Vec<u8>, first in 0_usize..8, setters: u32) {
        // Biased towards bytes that pass the checks: the first ones choose version and lengths.
        let starts: [&[u8]; 8] = [&[], &[0x45, 0, 0, 40], &[0x4f, 0, 0, 70], &[0x60, 0, 0, 0, 0, 30, 0], &[0x60, 0, 0, 0, 0, 40, 43],
            &[0, 1, 8, 0, 6, 4], &[0, 0, 0, 0, 0, 9], &[0; 12]];
        let bytes = [starts[first], &bytes].concat();
        bellows_exercise::wire::touch_all(bytes, setters);
    }

    #[test]
    fn mac_addresses_read_as_they_print(address in mac(), text in "[0-9a-fA-F:+-]{0,20}") {
        prop_assert_eq!(address.to_string().parse(), Ok(address));
        prop_assert_eq!(address.to_string().to_uppercase().replace(':', "-").parse(), Ok(address));
        if let Ok(address) = text.parse::<MacAddr>() {
            prop_assert_eq!(address.to_string().replace(':', ""), text.to_lowercase().replace([':', '-'], ""));
        }
    }
}

#[test]
fn a_source_route_names_the_destination_that_checksums_cover() {
    let (src, hop, last) = ("2001:db8::1", "2001:db8::2", "2001:db8::3");
    let (src, hop, last): (Ipv6Addr, Ipv6Addr, Ipv6Addr) =
        (src.parse().unwrap(), hop.parse().unwrap(), last.parse().unwrap());
    let mut udp = [7; 20];
    UdpHeader { src_port: 1, dst_port: 2 }.emit(&mut udp, &IpPair::V6 { src, dst: last }).unwrap();
    let verified = |route_type: u8, segments_left: u8, segments: [Ipv6Addr; 2]| {
        let [first, second] = segments.map(|segment| segment.octets());
        let routing = [&[17, 4, route_type, segments_left, 0, 0, 0, 0], &first[..], &second, &udp].concat();
        let packet = ip_packet(&IpPair::V6 { src, dst: hop }, IpProtocol::IPV6_ROUTE, &routing);
        verify_ip_checksums(&packet).map(|verified| verified.upper)
    };
    assert_eq!(verified(0, 1, [hop, last]), Ok(Some(Layer::Udp)));
    assert_eq!(verified(4, 1, [last, hop]), Ok(Some(Layer::Udp)));
    assert_eq!(verified(99, 1, [hop, last]), Ok(None));
    assert!(matches!(verified(0, 0, [hop, last]), Err(ChecksumError::Wrong { layer: Layer::Udp, .. })));
}

#[test]
fn unverifiable_frames_pass_as_unchecked() {
    let pair = IpPair::V6 { src: Ipv6Addr::LOCALHOST, dst: Ipv6Addr::LOCALHOST };
    let later_fragment = [&[17, 0, 0, 9, 0, 0, 0, 1], &[0xaa; 16][..]].concat();
    let packet = ip_packet(&pair, IpProtocol::IPV6_FRAGMENT, &later_fragment);
    let view = Ipv6Packet::new_checked(&packet).unwrap();
    assert_eq!(view.upper_layer().unwrap().fragment, Some(Fragment { offset: 8, more: true }));
    assert_eq!(verify_ip_checksums(&packet), Ok(Verified::default()));

    let no_checksum = [0, 1, 0, 2, 0, 8, 0, 0];
    assert_eq!(verify_ip_checksums(&ip_packet(&pair, IpProtocol::UDP, &no_checksum)), Err(ChecksumError::MissingUdp));
    let pair = IpPair::V4 { src: Ipv4Addr::LOCALHOST, dst: Ipv4Addr::LOCALHOST };
    let mut packet = ip_packet(&pair, IpProtocol::UDP, &no_checksum);
    assert_eq!(verify_ip_checksums(&packet), Ok(Verified { ipv4_header: true, upper: None }));
    let mut first_fragment = Ipv4Packet::new_checked(&mut packet).unwrap();
    first_fragment.set_flags_fragment(0x2000);
    first_fragment.set_protocol(IpProtocol::TCP);
    first_fragment.fill_checksum();
    assert_eq!(verify_ip_checksums(&packet), Ok(Verified { ipv4_header: true, upper: None }));

    let arp = [&[0xff; 12], &[0x08, 0x06][..], &[0; 28]].concat();
    assert_eq!(verify_checksums(&arp), Ok(Verified::default()));
}

#[test]
fn a_bounded_number_of_vlan_tags_is_passed() {
    let tagged = |tags: usize| {
        let mut frame = vec![0xff; 12];
        for tag in 0..tags {
            frame.extend(if tag % 2 == 0 { [0x88, 0xa8, 0, 1] } else { [0x81, 0, 0, 2] });
        }
        frame.extend([0x86, 0xdd, 0x60, 0]);
        frame
    };
    for tags in 0..=ethernet::MAX_VLAN_TAGS {
        assert_eq!(ethernet::skip_vlan_tags(&tagged(tags)), Ok((EtherType::IPV6, &[0x60, 0][..])));
    }
    let error = ethernet::skip_vlan_tags(&tagged(ethernet::MAX_VLAN_TAGS + 1)).unwrap_err();
    assert_eq!(error.to_string(), "Ethernet: the number of VLAN tags is 9, it must be 8 at most");
}

#[test]
fn errors_name_the_place() {
    let error = |bytes: &[u8]| Ipv4Packet::new_checked(bytes).unwrap_err().to_string();
    assert_eq!(error(&[0x45; 19]), "IPv4: 20 bytes are needed, 19 are there");
    assert_eq!(error(&[0x60; 40]), "IPv4: version is 6, it must be 4");
    assert_eq!(error(&[0x44; 40]), "IPv4: header length is 16, it must be 20 bytes at least");
    assert_eq!(error(&[0x45; 40]), "IPv4: 17733 bytes are needed, 40 are there");
    let error = "02:00:5e".parse::<MacAddr>().unwrap_err().to_string();
    assert!(error.starts_with("\"02:00:5e\" is not a MAC address: write six bytes"), "{error}");
}
