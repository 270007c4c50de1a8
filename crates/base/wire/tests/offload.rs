//! GSO packets segmented: compared with a naive model, reassembled, and verified by the code that verifies traffic.

use std::path::PathBuf;

use bellows_capture::{LinkType, Reader};
use bellows_testkit::captures;
use bellows_wire::offload::{
    Checksums, GsoKind, GsoPacket, MAX_HEADER_LEN, MAX_SEGMENTS, MIN_SEGMENT_SIZE, Transport, finish_checksum,
};
use bellows_wire::tcp::flags::{ACK, CWR, FIN, PSH};
use bellows_wire::*;
use proptest::prelude::*;

/// A guest's GSO packet, in parts.
#[derive(Clone, Debug)]
struct Parts {
    /// Addresses, VLAN tags, and the EtherType.
    link: Vec<u8>,
    kind: GsoKind,
    /// With options or extension headers.
    ip: Vec<u8>,
    /// The addresses of the pseudo-header.
    addresses: IpPair,
    /// With options.
    tcp: Vec<u8>,
    payload: Vec<u8>,
}

impl Parts {
    /// The frame with this payload, with correct lengths and checksums. The model: everything is computed anew.
    fn frame(&self, payload: &[u8]) -> Vec<u8> {
        let mut segment = [&self.tcp, payload].concat();
        match self.tcp.len() {
            8 => segment[4..6].copy_from_slice(&((8 + payload.len()) as u16).to_be_bytes()),
            _ => TcpSegment::new_checked(&mut segment).unwrap().fill_checksum(&self.addresses),
        }
        let mut packet = [&self.ip, &segment[..]].concat();
        let length = packet.len();
        match self.kind {
            GsoKind::Tcp4 => {
                packet[2..4].copy_from_slice(&u16::try_from(length).unwrap().to_be_bytes());
                Ipv4Packet::new_checked(&mut packet).unwrap().fill_checksum();
            }
            GsoKind::Tcp6 => packet[4..6].copy_from_slice(&u16::try_from(length - 40).unwrap().to_be_bytes()),
        }
        [&self.link, &packet[..]].concat()
    }

    /// Replaces the TCP header by one of UDP with a wrong checksum and length.
    fn become_udp(&mut self) {
        self.tcp.truncate(8);
        match self.kind {
            GsoKind::Tcp4 => self.ip[9] = 17,
            // Without extension headers the main header gives the next protocol, with them the last one does.
            GsoKind::Tcp6 if self.ip.len() == 40 => self.ip[6] = 17,
            GsoKind::Tcp6 => {
                let last = self.ip.len() - 24;
                self.ip[last] = 17;
            }
        }
    }

    /// The frames of the segments, one by one.
    fn cut(&self, size: usize) -> Vec<Vec<u8>> {
        let mut pieces: Vec<&[u8]> = self.payload.chunks(size).collect();
        if pieces.is_empty() {
            pieces.push(&[]);
        }
        let last = pieces.len() - 1;
        let mut sequence = TcpSegment::new_checked(&self.tcp).unwrap().sequence();
        let mut frames = Vec::new();
        for (index, piece) in pieces.into_iter().enumerate() {
            let mut parts = self.clone();
            let mut tcp = TcpSegment::new_checked(&mut parts.tcp).unwrap();
            tcp.set_sequence(sequence);
            if index > 0 {
                tcp.set_flags(tcp.flags() & !CWR);
            }
            if index < last {
                tcp.set_flags(tcp.flags() & !(FIN | PSH));
            }
            if self.kind == GsoKind::Tcp4 {
                let identification = u16::from_be_bytes([self.ip[4], self.ip[5]]).wrapping_add(index as u16);
                parts.ip[4..6].copy_from_slice(&identification.to_be_bytes());
            }
            frames.push(parts.frame(piece));
            sequence = sequence.wrapping_add(piece.len() as u32);
        }
        frames
    }
}

fn link(ether_type: EtherType) -> impl Strategy<Value = Vec<u8>> {
    let tag = (prop_oneof![Just([0x81, 0]), Just([0x88, 0xa8])], any::<[u8; 2]>());
    (any::<[u8; 12]>(), proptest::collection::vec(tag, 0..4)).prop_map(move |(addresses, tags)| {
        let tags = tags.into_iter().flat_map(|(kind, control)| [kind, control].concat());
        addresses.into_iter().chain(tags).chain(ether_type.0.to_be_bytes()).collect()
    })
}

/// A header of 20 bytes and up to 40 bytes of options, of which only the relevant fields are set.
fn ipv4_header() -> impl Strategy<Value = (Vec<u8>, IpPair)> {
    let options = (0usize..=10).prop_flat_map(|words| proptest::collection::vec(any::<u8>(), words * 4));
    (any::<[u8; 20]>(), options).prop_map(|(fixed, options)| {
        let mut header = [&fixed[..], &options].concat();
        header[0] = 0x40 | (header.len() / 4) as u8;
        header[2..4].copy_from_slice(&[0xff; 2]);
        header[6] &= 0x40;
        header[7] = 0;
        header[9] = 6;
        let address = |at: usize| <[u8; 4]>::try_from(&header[at..at + 4]).unwrap().into();
        let addresses = IpPair::V4 { src: address(12), dst: address(16) };
        (header, addresses)
    })
}

/// A header and extension headers: options of both kinds, and a source route of one address, complete or not.
fn ipv6_header() -> impl Strategy<Value = (Vec<u8>, IpPair)> {
    let extension = (prop_oneof![Just(60u8), Just(43), Just(0)], any::<[u8; 22]>(), any::<bool>());
    (any::<[u8; 40]>(), proptest::collection::vec(extension, 0..4)).prop_map(|(mut fixed, extensions)| {
        fixed[0] = 0x60 | fixed[0] & 0xf;
        let mut dst: [u8; 16] = fixed[24..].try_into().unwrap();
        fixed[6] = extensions.first().map_or(6, |(kind, ..)| *kind);
        let mut header = fixed.to_vec();
        let following = extensions.iter().skip(1).map(|(kind, ..)| *kind).chain([6]);
        for ((kind, bytes, is_on_the_way), next) in extensions.iter().zip(following) {
            let mut extension = [&[next, 2][..], bytes].concat();
            if *kind == 43 {
                extension[2] = 0;
                extension[3] = u8::from(*is_on_the_way);
                if *is_on_the_way {
                    dst = extension[8..].try_into().unwrap();
                }
            }
            header.extend(extension);
        }
        let src: [u8; 16] = fixed[8..24].try_into().unwrap();
        (header, IpPair::V6 { src: src.into(), dst: dst.into() })
    })
}

fn tcp_header() -> impl Strategy<Value = Vec<u8>> {
    let options = (0usize..=10).prop_flat_map(|words| proptest::collection::vec(any::<u8>(), words * 4));
    (any::<[u8; 20]>(), options).prop_map(|(fixed, options)| {
        let mut header = [&fixed[..], &options].concat();
        header[12] = (header.len() as u8 / 4) << 4 | header[12] & 0xf;
        header
    })
}

fn parts() -> impl Strategy<Value = Parts> {
    let payload = prop_oneof![4 => 0usize..3_000, 1 => 60_000usize..65_000]
        .prop_flat_map(|length| (Just(length), any::<u64>()))
        .prop_map(|(length, seed)| {
            let mut state = seed | 1;
            let mut next = || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 56) as u8
            };
            (0..length).map(|_| next()).collect::<Vec<u8>>()
        });
    let v4 = (link(EtherType::IPV4), ipv4_header(), Just(GsoKind::Tcp4));
    let v6 = (link(EtherType::IPV6), ipv6_header(), Just(GsoKind::Tcp6));
    (prop_oneof![v4, v6], tcp_header(), payload).prop_map(|((link, (ip, addresses), kind), tcp, payload)| Parts {
        link,
        kind,
        ip,
        addresses,
        tcp,
        payload,
    })
}

fn written(whole: &GsoPacket, checksums: Checksums) -> Vec<Vec<u8>> {
    let segments = whole.segments(checksums);
    assert_eq!(segments.len(), whole.count());
    segments
        .map(|segment| {
            let mut frame = vec![0xee; segment.len()];
            segment.write(&mut frame);
            assert_eq!(frame[whole.header_len()..], *segment.payload());
            frame
        })
        .collect()
}

/// Reassembles segments.
fn joined(frames: &[Vec<u8>], whole: &GsoPacket, kind: GsoKind, addresses: &IpPair) -> Vec<u8> {
    let (first, last) = (&frames[0], &frames[frames.len() - 1]);
    let flags = whole.tcp_start() + 13;
    let mut frame = first.clone();
    frame.extend(frames[1..].iter().flat_map(|frame| &frame[whole.header_len()..]));
    frame[flags] |= last[flags] & (FIN | PSH);
    let packet = frame.len() - ethernet::skip_vlan_tags(&frame).unwrap().1.len();
    let length = frame.len() - packet;
    let mut tcp = TcpSegment::new_checked(&mut frame[whole.tcp_start()..]).unwrap();
    tcp.fill_checksum(addresses);
    match kind {
        GsoKind::Tcp4 => {
            let mut ip = Ipv4Packet::new_checked(&mut frame[packet..]).unwrap();
            ip.set_total_len(length as u16);
            ip.fill_checksum();
        }
        GsoKind::Tcp6 => {
            Ipv6Packet::new_checked(&mut frame[packet..]).unwrap().set_payload_len((length - 40) as u16);
        }
    }
    frame
}

proptest! {
    #[test]
    fn segments_are_those_of_the_model(parts in parts(), size in prop_oneof![1u16..4_000, any::<u16>()], padding in 0usize..20) {
        let size = size.max((parts.payload.len() / 500) as u16).max(48);
        let frame = parts.frame(&parts.payload);
        let padded = [&frame[..], &vec![0xdd; padding]].concat();
        let whole = GsoPacket::new(&padded, parts.kind, size).unwrap();
        prop_assert_eq!(whole.tcp_start(), parts.link.len() + parts.ip.len());

        let frames = written(&whole, Checksums::Whole);
        prop_assert_eq!(&frames, &parts.cut(size.into()));
        for frame in &frames {
            let verified = verify_checksums(frame);
            prop_assert_eq!(verified.map(|verified| verified.upper), Ok(Some(Layer::Tcp)));
        }
        prop_assert_eq!(&joined(&frames, &whole, parts.kind, &parts.addresses), &frame);
        prop_assert_eq!(whole.len(), frame.len());
        let skipped = padding * 7;
        prop_assert_eq!(whole.segments(Checksums::Whole).skip(skipped).count(), frames.len().saturating_sub(skipped));
        if let Some(segment) = whole.segments(Checksums::Whole).nth(skipped) {
            let mut frame = vec![0xee; segment.len()];
            segment.write(&mut frame);
            prop_assert_eq!(&frame, &frames[skipped]);
        }

        let mut partial = written(&whole, Checksums::Partial);
        for (partial, frame) in partial.iter_mut().zip(&frames) {
            finish_checksum(partial, whole.tcp_start(), 16).unwrap();
            // A partial checksum is never finished as 0; both are the same number.
            let found = whole.tcp_start() + 16..whole.tcp_start() + 18;
            if frame[found.clone()] == [0, 0] {
                prop_assert_eq!(&partial[found.clone()], [0xff, 0xff]);
                partial[found].fill(0);
            }
            prop_assert_eq!(partial, frame);
        }
    }

    #[test]
    fn a_damaged_gso_packet_yields_an_error_or_segments(
        parts in parts(), damage in proptest::collection::vec((0usize..200, any::<u8>()), 1..6), length in any::<usize>(), size: u16, value: u32,
    ) {
        let mut frame = parts.frame(&parts.payload);
        for (at, byte) in damage {
            let at = at.min(frame.len() - 1);
            frame[at] = byte;
        }
        if size % 4 == 0 {
            frame.truncate(length % frame.len());
        }
        bellows_exercise::wire::cut(&frame, size);
        bellows_exercise::wire::touch_all(frame, value);
    }

    /// Segmented packets are within the limits, and packets within the limits are segmented.
    #[test]
    fn the_limits_are_the_same_for_every_frame(parts in parts(), size in prop_oneof![0u16..200, any::<u16>()]) {
        let frame = parts.frame(&parts.payload);
        let options = parts.tcp.len() - 20;
        let header_len = parts.link.len() + parts.ip.len() + parts.tcp.len();
        let count = (1..).find(|count| count * usize::from(size) >= parts.payload.len() || size == 0).unwrap();
        let fits = size > 0
            && usize::from(size) + options >= MIN_SEGMENT_SIZE
            && header_len <= MAX_HEADER_LEN
            && count <= MAX_SEGMENTS;
        let whole = GsoPacket::new(&frame, parts.kind, size);
        prop_assert_eq!(whole.is_ok(), fits, "{:?}", whole.err());
        let segments = whole.iter().flat_map(|whole| whole.segments(Checksums::Whole));
        let made: usize = segments.map(|segment| segment.len()).sum();
        prop_assert!(made <= parts.payload.len() + MAX_SEGMENTS * MAX_HEADER_LEN);
    }

    /// The header lies where the model put it, its checksum covers what the model says, and finishing it makes it
    /// correct. Bytes after the IP packet are padding.
    #[test]
    fn a_transport_header_is_found_behind_all_others(
        parts in parts(), udp: bool, spare in 0usize..9, padding in 0usize..20,
    ) {
        let mut parts = parts;
        if udp {
            parts.become_udp();
        }
        let mut frame = parts.frame(&parts.payload);
        let start = parts.link.len() + parts.ip.len();
        let mut end = frame.len();
        if udp {
            // A datagram may end before its packet does.
            end -= spare.min(parts.payload.len());
            frame[start + 4..][..2].copy_from_slice(&((end - start) as u16).to_be_bytes());
        }
        frame.extend(vec![0xdd; padding]);
        let found = Transport::find(&frame).unwrap();
        let offset = if udp { 6 } else { 16 };
        prop_assert_eq!((found.start(), found.checksum_offset(), found.end()), (start, offset, end));

        let (protocol, field) = (if udp { IpProtocol::UDP } else { IpProtocol::TCP }, start + offset);
        let pseudo_header = !parts.addresses.pseudo_header(protocol, end - start).finish();
        frame[field..field + 2].copy_from_slice(&pseudo_header.to_be_bytes());
        let before = frame.clone();
        // A source route is not followed.
        let is_direct = match parts.addresses {
            IpPair::V6 { dst, .. } => parts.ip[24..40] == dst.octets(),
            IpPair::V4 { .. } => true,
        };
        if end + padding == frame.len() && is_direct {
            prop_assert_eq!(Transport::find_partial(&frame), Some(found));
        }
        found.finish(&mut frame).unwrap();
        if let Some(again) = Transport::find_partial(&frame) {
            let mut finished_twice = frame.clone();
            again.finish(&mut finished_twice).unwrap();
            prop_assert_eq!(&finished_twice, &frame, "a correct checksum that looks partial");
        }
        if Transport::find_partial(&frame).is_some() && is_direct && end + padding == frame.len() {
            prop_assert_eq!(&frame[field..field + 2], &before[field..field + 2]);
        }
        prop_assert_eq!(&frame[..field], &before[..field]);
        prop_assert_eq!(&frame[field + 2..], &before[field + 2..]);
        let layer = if udp { Layer::Udp } else { Layer::Tcp };
        prop_assert_eq!(verify_checksums(&frame).map(|verified| verified.upper), Ok(Some(layer)));
        let mut short = frame[..end - 1].to_vec();
        prop_assert!(found.finish(&mut short).is_err() && short == frame[..end - 1]);
    }

    /// For any bytes, a header that is found lies within them, and a GSO packet has its header at the same place.
    #[test]
    fn headers_found_in_a_damaged_frame_lie_within_it(
        parts in parts(),
        udp: bool,
        damage in proptest::collection::vec((0usize..200, any::<u8>()), 0..6),
        length in any::<usize>(),
        size: u16,
    ) {
        let mut parts = parts;
        if udp {
            parts.become_udp();
        }
        let mut frame = parts.frame(&parts.payload);
        for (at, byte) in damage {
            let at = at.min(frame.len() - 1);
            frame[at] = byte;
        }
        frame.truncate(length % (frame.len() + 1));
        let found = Transport::find(&frame);
        prop_assert!(Transport::find_partial(&frame).is_none_or(|partial| found == Ok(partial)));
        if let Ok(found) = &found {
            let shortest = if found.checksum_offset() == 16 { 20 } else { 8 };
            prop_assert!(found.start() >= 14 + 20 && found.start() + shortest <= found.end());
            prop_assert!(found.end() <= frame.len());
            prop_assert!(found.finish(&mut frame.clone()).is_ok());
        }
        for kind in [GsoKind::Tcp4, GsoKind::Tcp6] {
            if let Ok(whole) = GsoPacket::new(&frame, kind, size) {
                let found = found.as_ref().unwrap();
                let of_whole = (whole.tcp_start(), 16, whole.len());
                prop_assert_eq!((found.start(), found.checksum_offset(), found.end()), of_whole);
            }
        }
    }

    #[test]
    fn a_finished_checksum_is_right(mut packet: Vec<u8>, start in 0usize..300, offset in 0usize..300) {
        let before = packet.clone();
        let is_inside = offset % 2 == 0 && start + offset + 2 <= packet.len();
        prop_assert_eq!(finish_checksum(&mut packet, start, offset).is_ok(), is_inside);
        if is_inside {
            // The field's old content, taken for the pseudo-header, makes the sum complete.
            let pseudo_header = u16::from_be_bytes([before[start + offset], before[start + offset + 1]]);
            prop_assert_eq!(Sum::new().add_u16(pseudo_header).add_bytes(&packet[start..]).finish(), 0);
            packet[start + offset..][..2].copy_from_slice(&before[start + offset..][..2]);
        }
        prop_assert_eq!(packet, before);
    }
}

fn plain(payload: usize) -> Parts {
    let addresses = IpPair::V4 { src: [192, 0, 2, 1].into(), dst: [198, 51, 100, 1].into() };
    let mut tcp = vec![0; 20];
    TcpHeader { src_port: 1, dst_port: 2, sequence: 0, acknowledgment: 0, flags: ACK, window: 0 }
        .emit(&mut tcp, &addresses)
        .unwrap();
    let mut ip = vec![0; 20];
    ip[0] = 0x45;
    ip[2..4].copy_from_slice(&[0xff; 2]);
    ip[9] = 6;
    ip[12..].copy_from_slice(&[192, 0, 2, 1, 198, 51, 100, 1]);
    let link = [&[2; 12][..], &[8, 0]].concat();
    Parts { link, kind: GsoKind::Tcp4, ip, addresses, tcp, payload: vec![1; payload] }
}

#[test]
fn frames_that_cannot_be_segmented_are_rejected_by_field() {
    let frame = plain(100).frame(&[1; 100]);
    let refused = |kind, size, change: &dyn Fn(&mut Vec<u8>)| {
        let mut frame = frame.clone();
        change(&mut frame);
        GsoPacket::new(&frame, kind, size).err().map(|error| error.to_string()).unwrap_or_default()
    };
    let nothing = |_: &mut Vec<u8>| ();
    assert_eq!(refused(GsoKind::Tcp4, 48, &nothing), "");
    let size = "GSO packet: segment size is 47, it must be 48 bytes at least, with TCP's options";
    assert_eq!(refused(GsoKind::Tcp4, 47, &nothing), size);
    assert_eq!(refused(GsoKind::Tcp4, 7, &|frame| frame[46] = 0xf0), size.replace("47", "7"), "40 bytes are options");
    assert_eq!(refused(GsoKind::Tcp4, 8, &|frame| frame[46] = 0xf0), "");
    assert!(refused(GsoKind::Tcp4, 0, &nothing).starts_with("GSO packet: segment size is 0, it must be"));
    assert!(refused(GsoKind::Tcp6, 48, &nothing).starts_with("Ethernet: type is 2048, it must be 0x86dd"));
    assert!(refused(GsoKind::Tcp4, 48, &|frame| frame[23] = 17).starts_with("IP: protocol is 17, it must be 6 (TCP)"));
    assert!(refused(GsoKind::Tcp4, 48, &|frame| frame[20] = 0x20).starts_with("IPv4: fragment field is 8192"));
    assert!(refused(GsoKind::Tcp4, 48, &|frame| frame[46] = 0x40).starts_with("TCP: header length is 16"));
    assert!(refused(GsoKind::Tcp4, 48, &|frame| frame.truncate(60)).starts_with("IPv4: 140 bytes are needed, 46 are"));

    let longest = plain(MAX_SEGMENTS * 48);
    assert_eq!(GsoPacket::new(&longest.frame(&longest.payload), GsoKind::Tcp4, 48).unwrap().count(), MAX_SEGMENTS);
    let longer = plain(MAX_SEGMENTS * 48 + 1);
    let error = GsoPacket::new(&longer.frame(&longer.payload), GsoKind::Tcp4, 48).unwrap_err().to_string();
    assert_eq!(error, "GSO packet: the number of segments is 1025, it must be 1,024 at most");
    // 14 bytes of Ethernet, 40 of IPv6, 20 of TCP, and extension headers up to the limit and beyond it.
    let with_extensions = |length: usize| {
        let mut extension = vec![0; length];
        (extension[0], extension[1]) = (6, (length / 8 - 1) as u8);
        let start = [0x60, 0, 0, 0, 0, (length + 20) as u8, 60, 64];
        let mut packet = [&start[..], &[1; 32], &extension, &[0; 20]].concat();
        packet[40 + length + 12] = 0x50;
        [&[2; 12][..], &[0x86, 0xdd], &packet].concat()
    };
    assert_eq!(GsoPacket::new(&with_extensions(176), GsoKind::Tcp6, 48).unwrap().header_len(), 250);
    let error = GsoPacket::new(&with_extensions(184), GsoKind::Tcp6, 48).unwrap_err().to_string();
    assert_eq!(error, "GSO packet: header length is 258, it must be 256 bytes at most");
}

#[test]
fn a_segment_as_long_as_an_ipv6_packet_can_be_has_the_right_length() {
    for payload in (65_400..=65_515).chain([0, 1]) {
        let mut parts = plain(payload);
        let (src, dst) = ([1; 16], [2; 16]);
        (parts.kind, parts.addresses) = (GsoKind::Tcp6, IpPair::V6 { src: src.into(), dst: dst.into() });
        parts.link[12..].copy_from_slice(&[0x86, 0xdd]);
        parts.ip = [&[0x60, 0, 0, 0, 0, 0, 6, 64][..], &src, &dst].concat();
        let frame = parts.frame(&parts.payload);
        let whole = GsoPacket::new(&frame, GsoKind::Tcp6, u16::MAX).unwrap();
        assert_eq!(written(&whole, Checksums::Whole), [frame]);
    }
}

#[test]
fn frames_without_a_checksum_to_finish_are_rejected_by_field() {
    let refused = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut frame = plain(100).frame(&[1; 100]);
        change(&mut frame);
        Transport::find(&frame).err().map(|error| error.to_string()).unwrap_or_default()
    };
    assert_eq!(refused(&|_| ()), "");
    assert!(refused(&|frame| frame[12] = 9).starts_with("Ethernet: type is 2304, it must be 0x0800 (IPv4) or"));
    assert_eq!(refused(&|frame| frame[23] = 1), "IP: protocol is 1, it must be 6 (TCP) or 17 (UDP)");
    assert!(refused(&|frame| frame[20] = 0x20).starts_with("IPv4: fragment field is 8192"));
    assert!(refused(&|frame| frame[21] = 1).starts_with("IPv4: fragment field is 1"));
    assert!(refused(&|frame| frame[46] = 0x40).starts_with("TCP: header length is 16"));
    assert!(refused(&|frame| frame.truncate(153)).starts_with("IPv4: 140 bytes are needed, 139 are"));
    let udp = |length: u16| {
        refused(&|frame| {
            frame[23] = 17;
            frame[38..40].copy_from_slice(&length.to_be_bytes());
        })
    };
    assert_eq!((udp(120), udp(8)), (String::new(), String::new()));
    assert_eq!(udp(7), "UDP: length is 7, it must be 8 bytes at least");
    assert_eq!(udp(121), "UDP: 121 bytes are needed, 120 are there");
}

/// Of a datagram that is shorter than its packet, one correct checksum in 65,536 has the value that would be partial
/// if the datagram were as long as its packet.
#[test]
fn a_correct_checksum_of_a_short_datagram_never_looks_partial() {
    let mut parts = plain(10);
    parts.become_udp();
    let mut frame = parts.frame(&parts.payload);
    // 8 bytes of header, 4 of payload, and 6 that only the packet contains.
    frame[34 + 4..34 + 6].copy_from_slice(&12u16.to_be_bytes());
    let pseudo_header = !parts.addresses.pseudo_header(IpProtocol::UDP, 12).finish();
    let as_long_as_the_packet = !parts.addresses.pseudo_header(IpProtocol::UDP, 18).finish();
    let mut same = 0;
    for word in 0..=u16::MAX {
        frame[42..44].copy_from_slice(&word.to_be_bytes());
        frame[40..42].copy_from_slice(&pseudo_header.to_be_bytes());
        finish_checksum(&mut frame[..46], 34, 6).unwrap();
        same += usize::from(frame[40..42] == as_long_as_the_packet.to_be_bytes());
        assert_eq!(Transport::find_partial(&frame), None, "{word}");
    }
    assert_eq!(same, 1);
}

#[test]
fn ipv6_headers_that_forbid_segmentation_are_rejected_by_field() {
    let refused = |next: u8, extension: [u8; 24]| {
        let mut packet = [&[0x60, 0, 0, 0, 0, 44, next, 64][..], &[1; 32], &extension, &[0; 20]].concat();
        packet[40 + 24 + 12] = 0x50;
        let frame = [&[2; 12][..], &[0x86, 0xdd], &packet].concat();
        GsoPacket::new(&frame, GsoKind::Tcp6, 48).err().map(|error| error.to_string()).unwrap_or_default()
    };
    let extension = |start: [u8; 4]| {
        let mut extension = [0; 24];
        extension[..4].copy_from_slice(&start);
        extension
    };
    assert_eq!(refused(60, extension([6, 2, 0, 0])), "");
    assert!(refused(51, extension([6, 4, 0, 0])).starts_with("IPv6: the number of authentication headers is 1"));
    assert!(refused(43, extension([6, 2, 99, 1])).contains("it must be 0: give them a type that is known"));
    assert!(refused(60, extension([17, 2, 0, 0])).starts_with("IP: protocol is 17"));
    let mut fragment = extension([60, 0, 0, 0]);
    fragment[8..10].copy_from_slice(&[6, 1]);
    assert!(refused(44, fragment).starts_with("IPv6: the number of fragment headers is 1"));
}

#[test]
fn real_segments_survive_being_cut_and_joined() {
    const TEST: &str = "real_segments_survive_being_cut_and_joined";
    let Some(files) = captures::real(TEST) else { return };
    let (cut, gso_packets) = survive_being_cut_and_joined(files);
    assert!(cut > 500 && gso_packets > 0, "{cut} packets, {gso_packets} GSO packets");
}

#[test]
fn segments_of_own_captures_survive_being_cut_and_joined() {
    let (cut, gso_packets) = survive_being_cut_and_joined(captures::own());
    assert!(cut > 20 && gso_packets > 0, "{cut} packets, {gso_packets} GSO packets");
}

/// Segments the packets of these files; returns the number of packets, and of those longer than a usual frame.
fn survive_being_cut_and_joined(files: Vec<PathBuf>) -> (usize, usize) {
    let (mut cut, mut gso_packets) = (0, 0);
    for file in files {
        let Ok(mut reader) = Reader::open(&file) else { continue };
        while let Ok(Some(record)) = reader.next_record() {
            let (frame, interface, timestamp) = (record.data.to_vec(), record.interface as usize, record.timestamp);
            if reader.interfaces()[interface].link_type != LinkType::ETHERNET {
                break;
            }
            for (kind, size) in [GsoKind::Tcp4, GsoKind::Tcp6].into_iter().flat_map(|kind| [(kind, 48), (kind, 1_448)])
            {
                let Ok(whole) = GsoPacket::new(&frame, kind, size) else { continue };
                let frames = written(&whole, Checksums::Whole);
                for segment in &frames {
                    assert_eq!(verify_checksums(segment).map(|verified| verified.upper), Ok(Some(Layer::Tcp)));
                }
                let upper_layer = match kind {
                    GsoKind::Tcp4 => Ipv4Packet::new_checked(&frame[whole.tcp_start() - 20..]).map(|ip| ip.addresses()),
                    GsoKind::Tcp6 => Ipv6Packet::new_checked(&frame[whole.tcp_start() - 40..]).map(|ip| ip.addresses()),
                };
                // Headers with options are left to the model's packets.
                let Ok(addresses) = upper_layer else { continue };
                let mut expected = frame
                    [..whole.header_len() + frames.iter().map(|one| one.len() - whole.header_len()).sum::<usize>()]
                    .to_vec();
                // Captures contain wrong checksums of both headers, and the sender's own contain partial ones.
                if kind == GsoKind::Tcp4 {
                    let ip = &mut expected[whole.tcp_start() - 20..];
                    Ipv4Packet::new_checked(ip).unwrap().fill_checksum();
                }
                TcpSegment::new_checked(&mut expected[whole.tcp_start()..]).unwrap().fill_checksum(&addresses);
                let joined = joined(&frames, &whole, kind, &addresses);
                assert_eq!(joined, expected, "{} at {timestamp}", file.display());
                cut += 1;
                gso_packets += usize::from(size == 1_448 && frames.len() > 1);
            }
        }
    }
    (cut, gso_packets)
}
