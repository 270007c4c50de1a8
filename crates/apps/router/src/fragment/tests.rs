//! Fragments of any packets, put together again by a naive reader.

use bellows_packet::{Meta, Packet};
use bellows_rig::Rig;
use bellows_wire::ipv4::{Ipv4Header, Ipv4Packet};
use bellows_wire::ipv6::{Ipv6Header, Ipv6Packet};
use bellows_wire::offload::Transport;
use bellows_wire::{IpPair, IpProtocol, Sum, TcpHeader, UdpHeader, verify_checksums};
use proptest::prelude::*;

use super::*;

/// An app that fragments IPv6 packets, too, if the MTU allows.
pub(crate) fn rig(mtu: u16, outputs: &[&str]) -> Rig {
    let config = Config { mtu: Some(mtu), fragment_ipv6: mtu >= MIN_MTU_V6, vrf: None };
    Rig::new(Fragment::configure(config, &Context::default()).unwrap(), &["input"], outputs)
}

/// The Ethernet header of a frame with up to two tags.
fn link(tags: usize, kind: [u8; 2]) -> Vec<u8> {
    let tags = [[0x88, 0xa8, 0xa0, 5], [0x81, 0x00, 0x20, 6]][2 - tags..].concat();
    [&[2; 6][..], &[4; 6], &tags, &kind].concat()
}

/// Data of some length whose bytes show their places.
fn data(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at / 7 + at % 251) as u8).collect()
}

/// A frame with an IPv4 packet with options.
pub(crate) fn ipv4(tags: usize, options: &[u8], length: usize, id: u16, field: u16) -> Vec<u8> {
    let mut ip = vec![0; 20 + options.len() + length];
    let header = Ipv4Header {
        src: [192, 0, 2, 1].into(),
        dst: [198, 51, 100, 7].into(),
        protocol: IpProtocol(253),
        ttl: 9,
        traffic_class: 0x20,
        identification: id,
        dont_fragment: false,
    };
    header.emit(&mut ip).unwrap();
    ip[0] = 0x45 + (options.len() / 4) as u8;
    ip[20..20 + options.len()].copy_from_slice(options);
    ip[20 + options.len()..].copy_from_slice(&data(length));
    let mut view = Ipv4Packet::new_checked(&mut ip[..]).unwrap();
    view.set_flags_fragment(field);
    view.fill_checksum();
    [link(tags, [8, 0]), ip].concat()
}

/// A frame with an IPv6 packet with extension headers: the type of the first one, and their bytes.
pub(crate) fn ipv6(tags: usize, (first, extensions): (u8, &[u8]), length: usize) -> Vec<u8> {
    let mut ip = vec![0; 40 + extensions.len() + length];
    let header = Ipv6Header {
        src: "2001:db8::1".parse().unwrap(),
        dst: "2001:db8::2".parse().unwrap(),
        next_header: IpProtocol(if extensions.is_empty() { 253 } else { first }),
        hop_limit: 9,
        traffic_class: 0,
        flow_label: 77,
    };
    header.emit(&mut ip).unwrap();
    ip[40..40 + extensions.len()].copy_from_slice(extensions);
    ip[40 + extensions.len()..].copy_from_slice(&data(length));
    [link(tags, [0x86, 0xdd]), ip].concat()
}

/// Extension headers, and how many bytes of them are in each fragment.
pub(crate) fn extensions(kind: u8) -> ((u8, Vec<u8>), usize) {
    let header = |kind: IpProtocol, next: u8| match kind {
        IpProtocol::IPV6_ROUTE => vec![next, 2, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8],
        _ => vec![next, 0, 1, 4, 0, 0, 0, 0],
    };
    let [hop, route, destination] = [IpProtocol::IPV6_HOP_BY_HOP, IpProtocol::IPV6_ROUTE, IpProtocol::IPV6_DESTINATION];
    match kind {
        0 => ((253, Vec::new()), 0),
        1 => ((hop.0, header(hop, 253)), 8),
        2 => ((destination.0, [header(destination, route.0), header(route, 253)].concat()), 32),
        3 => ((destination.0, header(destination, 253)), 0),
        _ => ((hop.0, [header(hop, destination.0), header(destination, 253)].concat()), 8),
    }
}

/// Options of each kind: no operation, a copied one, one that is not copied.
fn options() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let option =
        prop_oneof![Just(vec![1]), Just(vec![0x94, 4, 0, 0]), Just(vec![0x07, 3, 4]), Just(vec![0x88, 4, 9, 9])];
    prop::collection::vec(option, 0..6)
}

/// The options as they are in a header.
fn padded(options: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = options.concat();
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn fragments_of_ipv4_make_their_packet(
        tags in 0usize..3,
        options in options(),
        length in 0usize..5000,
        mtu in 68u16..1600,
        field in prop_oneof![Just(0u16), Just(0x2000), Just(0x2010), Just(0x0100), Just(0x8000)],
        padding in 0usize..9,
    ) {
        let length = if field & 0x2000 != 0 { length & !7 } else { length };
        let frame = ipv4(tags, &padded(&options), length, 77, field);
        let mut rig = rig(mtu, &["output"]);
        rig.send("input", [[&frame[..], &vec![0xee; padding]].concat()]);
        rig.settle();
        let sent = rig.received("output");
        let at = 14 + 4 * tags;
        if frame.len() - at <= usize::from(mtu) {
            prop_assert_eq!(sent, [[&frame[..], &vec![0xee; padding]].concat()]);
            return Ok(());
        }
        let copied: Vec<Vec<u8>> = options.iter().filter(|option| option[0] & 0x80 != 0).cloned().collect();
        let whole = Ipv4Packet::new_checked(&frame[at..]).unwrap();
        let (mut next, last) = (field << 3, sent.len() - 1);
        let mut together = Vec::new();
        for (index, fragment) in sent.iter().enumerate() {
            prop_assert!(fragment.len() - at <= usize::from(mtu));
            prop_assert_eq!(&fragment[..at], &frame[..at]);
            let view = Ipv4Packet::new_checked(&fragment[at..]).unwrap();
            prop_assert_eq!(usize::from(view.total_len()), fragment.len() - at);
            prop_assert_eq!(Sum::new().add_bytes(view.header()).finish(), 0);
            let expected = if index == 0 { padded(&options) } else { padded(&copied) };
            prop_assert_eq!(&view.header()[20..], &expected[..]);
            prop_assert_eq!(view.fragment_offset(), next);
            prop_assert_eq!(view.more_fragments(), index < last || field & 0x2000 != 0);
            prop_assert_eq!(view.flags_fragment() & 0xc000, field & 0xc000);
            let same = |it: &Ipv4Packet<&[u8]>| {
                (it.identification(), it.ttl(), it.protocol(), it.traffic_class(), it.addresses())
            };
            prop_assert_eq!(same(&view), same(&whole));
            // All but the last are as long as they may be.
            if index < last {
                let room = usize::from(mtu) - view.header().len();
                prop_assert_eq!(view.payload().len(), room & !7);
            }
            next += view.payload().len() as u16;
            together.extend_from_slice(view.payload());
        }
        prop_assert_eq!(&together[..], whole.payload());
        let counts = rig.counts().counters;
        prop_assert_eq!((counts["frag_oks"], counts["frag_creates"]), (1, sent.len() as u64));
        let outcome = rig.finish();
        prop_assert!(outcome.unfinished.is_empty());
    }

    #[test]
    fn fragments_of_ipv6_make_their_packet(
        tags in 0usize..3,
        kind in 0u8..5,
        length in 0usize..9000,
        mtu in 1280u16..2000,
    ) {
        let ((first, bytes), unfragmentable) = extensions(kind);
        let frame = ipv6(tags, (first, &bytes), length);
        let mut rig = rig(mtu, &["output"]);
        rig.send("input", [frame.clone()]);
        rig.settle();
        let sent = rig.received("output");
        let at = 14 + 4 * tags;
        if frame.len() - at <= usize::from(mtu) {
            prop_assert_eq!(sent, [frame]);
            return Ok(());
        }
        let (front, mut together) = (at + 40 + unfragmentable, Vec::new());
        let mut identification = None;
        for (index, fragment) in sent.iter().enumerate() {
            prop_assert!(fragment.len() - at <= usize::from(mtu));
            let view = Ipv6Packet::new_checked(&fragment[at..]).unwrap();
            prop_assert_eq!(view.payload().len() + 40 + at, fragment.len());
            let (header, rest) = fragment[front..].split_at(8);
            let word = u16::from_be_bytes([header[2], header[3]]);
            prop_assert_eq!((usize::from(word & !7), word & 1 == 1), (together.len(), index + 1 < sent.len()));
            prop_assert_eq!(&identification.get_or_insert(header[4..].to_vec())[..], &header[4..]);
            // With the type of the next header back in its place, what is in front is as it was.
            let mut before = fragment[..front].to_vec();
            let named_at = match kind {
                0 | 3 => at + 6,
                2 => at + 48,
                _ => at + 40,
            };
            prop_assert_eq!(before[named_at], 44);
            before[named_at] = header[0];
            before[at + 4..at + 6].copy_from_slice(&frame[at + 4..at + 6]);
            prop_assert_eq!(&before[..], &frame[..front]);
            together.extend_from_slice(rest);
        }
        prop_assert_eq!(&together[..], &frame[front..]);
    }

    /// Bytes of any kind harm nobody, and each packet has one fate.
    #[test]
    fn any_bytes_have_a_fate(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        kind in 0usize..4,
        mtu in 68u16..120,
        first in prop_oneof![Just(0x45u8), Just(0x4f), Just(0x60), any::<u8>()],
    ) {
        let mut frame = bytes;
        let kinds = [[8, 0], [0x86, 0xdd], [0x81, 0], [0x12, 0x34]];
        if frame.len() > 16 {
            frame[12..14].copy_from_slice(&kinds[kind]);
            frame[14] = first;
        }
        let config = Config { mtu: Some(mtu), ..Config::default() };
        let app = Fragment::configure(config, &Context::default()).unwrap();
        let mut rig = Rig::new(app, &["input"], &["output", "error"]);
        rig.send("input", [frame]);
        rig.settle();
        let sent = rig.received("output").len() + rig.received("error").len();
        let counts = rig.counts();
        prop_assert!(sent as u64 + counts.dropped() >= 1);
        rig.finish();
    }
}

#[test]
fn the_example_of_rfc_791() {
    // Appendix A, examples 2 and 3: 452 bytes of data, and a network of at most 280 bytes.
    let mut rig = rig(280, &["output"]);
    rig.send("input", [ipv4(0, &[], 452, 111, 0)]);
    rig.settle();
    let fields = |frame: &Vec<u8>| {
        let view = Ipv4Packet::new_checked(&frame[14..]).unwrap();
        (view.total_len(), view.identification(), view.more_fragments(), view.fragment_offset() / 8)
    };
    let sent: Vec<_> = rig.received("output").iter().map(fields).collect();
    assert_eq!(sent, [(276, 111, true, 0), (216, 111, false, 32)]);
}

#[test]
fn packets_that_must_not_be_fragmented_are_told_or_dropped() {
    let config = Config { mtu: Some(1280), ..Config::default() };
    for (outputs, drops) in [(&["output", "error"][..], 0), (&["output"][..], 2)] {
        let app = Fragment::configure(config.clone(), &Context::default()).unwrap();
        let mut rig = Rig::new(app, &["input"], outputs);
        let frames = [ipv4(1, &[], 1300, 1, 0x4000), ipv6(0, (0, &[]), 1300)];
        rig.send("input", frames.clone());
        rig.settle();
        assert_eq!(rig.counts().drops["dont_fragment"], drops);
        assert!(rig.received("output").is_empty());
        if drops == 0 {
            let told = rig.received_packets("error");
            let errors = told.iter().map(|packet| IcmpError::from_number(Tag(packet.tag()).number()));
            assert!(errors.eq([IcmpError { reason: Reason::TooBig, value: 1280 }; 2]));
            assert!(told.iter().map(Packet::bytes).eq(frames));
        }
    }
}

#[test]
fn wrong_packets_are_dropped_by_name() {
    let mut wrong_sum = ipv4(0, &[], 1000, 1, 0);
    wrong_sum[24] ^= 1;
    let mut cut = ipv4(0, &[], 1000, 1, 0);
    cut.truncate(900);
    let far = ipv4(0, &[], 1000, 1, 0x1fff);
    let option = ipv4(0, &[0x94, 9, 0, 0], 1000, 1, 0);
    let mut arp = vec![0; 900];
    arp[12..14].copy_from_slice(&[8, 6]);
    let mut rig = rig(576, &["output"]);
    rig.send("input", [wrong_sum, cut, far, option, arp.clone()]);
    rig.settle();
    assert_eq!(rig.received("output"), [arp]);
    let counts = rig.counts();
    assert_eq!((counts.drops["bad_checksum"], counts.drops["malformed"], counts.counters["not_ip"]), (1, 3, 1));
}

/// A UDP or TCP packet whose checksum is partial.
fn partial(protocol: IpProtocol, length: usize) -> Packet {
    let mut frame = ipv4(1, &[], length, 5, 0);
    let at = 18;
    let mut view = Ipv4Packet::new_checked(&mut frame[at..]).unwrap();
    view.set_protocol(protocol);
    view.fill_checksum();
    let addresses = view.addresses();
    let IpPair::V4 { .. } = addresses else { unreachable!() };
    if protocol == IpProtocol::TCP {
        let header = TcpHeader { src_port: 1, dst_port: 2, sequence: 5, acknowledgment: 0, flags: 0x10, window: 9 };
        header.emit(&mut frame[at + 20..], &addresses).unwrap();
    } else {
        UdpHeader { src_port: 1, dst_port: 2 }.emit(&mut frame[at + 20..], &addresses).unwrap();
    }
    let transport = Transport::find(&frame).unwrap();
    let field = transport.start() + transport.checksum_offset();
    let sum = !addresses.pseudo_header(protocol, length).finish();
    frame[field..field + 2].copy_from_slice(&sum.to_be_bytes());
    let mut packet = Packet::from_bytes(&frame).unwrap();
    packet.set_offload(Offload {
        flags: Offload::NEEDS_CHECKSUM,
        checksum_start: transport.start() as u16,
        checksum_offset: transport.checksum_offset() as u16,
        ..Offload::default()
    });
    packet
}

/// Fragments in order, one packet behind the other, made whole.
fn join(frames: &[Vec<u8>], at: usize) -> Vec<Vec<u8>> {
    let mut whole: Vec<Vec<u8>> = Vec::new();
    for frame in frames {
        let view = Ipv4Packet::new_checked(&frame[at..]).unwrap();
        match whole.last_mut() {
            Some(last) if view.fragment_offset() > 0 => last.extend_from_slice(view.payload()),
            _ => whole.push(frame.clone()),
        }
    }
    for frame in &mut whole {
        let total = (frame.len() - at) as u16;
        frame[at + 2..at + 4].copy_from_slice(&total.to_be_bytes());
        frame[at + 6..at + 8].fill(0);
        Ipv4Packet::new_checked(&mut frame[at..]).unwrap().fill_checksum();
    }
    whole
}

#[test]
fn partial_checksums_are_finished_before() {
    let mut rig = rig(576, &["output"]);
    let mut wrong = partial(IpProtocol::UDP, 1400);
    wrong.set_offload(Offload { checksum_offset: 9000, ..wrong.offload().unwrap() });
    rig.send_packets("input", [partial(IpProtocol::UDP, 1400), wrong]);
    rig.settle();
    let sent = rig.received_packets("output");
    assert!(sent.len() == 3 && sent.iter().all(|packet| !packet.has_offload()));
    let frames: Vec<Vec<u8>> = sent.iter().map(|packet| packet.bytes().to_vec()).collect();
    let whole = join(&frames, 18);
    assert!(whole.len() == 1 && verify_checksums(&whole[0]).is_ok());
    assert_eq!(rig.counts().drops["bad_offload"], 1);
}

#[test]
fn gso_packets_with_long_segments_are_segmented_first() {
    let gso = |size: u16, field: u16| {
        let mut packet = partial(IpProtocol::TCP, 20 + 10_000);
        let mut view = Ipv4Packet::new_checked(&mut packet.bytes_mut()[18..]).unwrap();
        view.set_flags_fragment(field);
        view.fill_checksum();
        let offload = packet.offload().unwrap();
        packet.set_offload(Offload { gso_type: Offload::GSO_TCP4, segment_size: size, ..offload });
        packet.set_tag(0xabc);
        packet
    };
    let mut rig = rig(1000, &["output", "error"]);
    rig.send_packets("input", [gso(960, 0), gso(1460, 0), gso(1460, 0x4000)]);
    rig.settle();
    let sent = rig.received_packets("output");
    assert!(sent[0].offload().is_some_and(|offload| offload.is_gso()), "its segments fit");
    let frames: Vec<Vec<u8>> = sent[1..].iter().map(|packet| packet.bytes().to_vec()).collect();
    assert!(sent.iter().all(|packet| packet.tag() == 0xabc) && frames.iter().all(|frame| frame.len() <= 1018));
    let whole = join(&frames, 18);
    assert_eq!(whole.len(), 7);
    for frame in &whole {
        verify_checksums(frame).unwrap();
    }
    let stream: Vec<u8> = whole.iter().flat_map(|frame| frame[18 + 40..].to_vec()).collect();
    assert_eq!(stream, gso(1, 0).bytes()[58..]);
    assert_eq!((rig.received("error").len(), rig.counts().counters["segmented"]), (1, 1));
}

#[test]
fn many_long_packets_wait_for_room() {
    let mut rig = rig(576, &["output"]);
    let frames: Vec<Vec<u8>> = (0..40).map(|id| ipv4(0, &[], 60_000, id, 0)).collect();
    let mut sent = Vec::new();
    for frame in &frames {
        rig.send("input", [frame]);
        while rig.breathe() {
            sent.extend(rig.received("output"));
        }
    }
    rig.send("input", frames.iter().take(30));
    while rig.breathe() {
        sent.extend(rig.received("output"));
    }
    assert_eq!(join(&sent, 14).len(), 70);
    assert_eq!(rig.counts().dropped(), 0);
}

#[test]
fn fragments_have_the_tag_and_the_time_of_their_packet() {
    let mut rig = rig(576, &["output"]);
    let mut packet = Packet::from_bytes(&ipv4(0, &[], 1400, 1, 0)).unwrap();
    let meta = Meta { timestamp: 5, original_length: 1434, ingress_port: 3, link_type: 1 };
    packet.set_tag(9);
    packet.set_meta(meta);
    rig.send_packets("input", [packet]);
    rig.settle();
    let sent = rig.received_packets("output");
    assert!(sent.len() == 3 && sent.iter().all(|packet| packet.tag() == 9));
    assert_eq!(sent[1].meta(), Some(Meta { original_length: sent[1].len() as u32, ..meta }));
}

#[test]
fn impossible_settings_are_refused_by_key() {
    for (text, key) in [
        ("{}", "mtu"),
        (r#"{"mtu": 67}"#, "mtu"),
        (r#"{"mtu": 1279, "fragment_ipv6": true}"#, "mtu"),
        (r#"{"mtu": 1500, "vrf": "v"}"#, "vrf"),
        (r#"{"vrf": "v", "fragment_ipv6": true}"#, "fragment_ipv6"),
    ] {
        let config = serde_json::from_str(text).unwrap();
        assert_eq!(Fragment::configure(config, &Context::default()).err().unwrap().key, Some(key), "{text}");
    }
}
