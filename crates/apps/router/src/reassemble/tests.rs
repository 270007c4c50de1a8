//! Any fragments in any order, against a naive reassembler.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;

use bellows_common::ipv4_options::{fill_checksum, is_checksum_right};
use bellows_rig::Rig;
use bellows_vrf::interface::InterfaceAddress;
use bellows_vrf::neighbours::NeighbourLimits;
use bellows_vrf::{Interface, Vrf};
use bellows_wire::ipv4::Ipv4Packet;
use bellows_wire::ipv6::Ipv6Header;
use bellows_wire::ndp::{MessageDraft, message_type, option_type};
use bellows_wire::{IpPair, IpProtocol, MacAddr};
use proptest::prelude::*;

use super::header::DatagramKey;
use super::*;
use crate::fragment::tests::{extensions, ipv4, ipv6, rig as fragmenting};
use crate::local::{Local, V6};
use crate::nd::Nd;
use crate::vrf::RoutingDomain;

fn rig(config: Config, outputs: &[&str]) -> Rig {
    Rig::new(Reassemble::configure(config, &Context::default()).unwrap(), &["input"], outputs)
}

/// The fragments of a frame.
fn fragments(frame: &[u8], mtu: u16) -> Vec<Vec<u8>> {
    let mut rig = fragmenting(mtu, &["output"]);
    rig.send("input", [frame]);
    rig.settle();
    rig.received("output")
}

/// A fragment as the naive reassembler reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Part {
    /// What fragments of a datagram have in common.
    key: Vec<u8>,
    front: Vec<u8>,
    offset: usize,
    more: bool,
    data: Vec<u8>,
}

/// The place of the IP header.
fn ip_at(frame: &[u8]) -> usize {
    let tags = [12, 16].into_iter().take_while(|&at| matches!(frame[at..at + 2], [0x81, 0] | [0x88, 0xa8])).count();
    14 + 4 * tags
}

fn read(frame: &[u8]) -> Option<Part> {
    let at = ip_at(frame);
    let ip = &frame[at..];
    let vlans: Vec<u8> = (14..at).step_by(4).flat_map(|at| [frame[at] & 0xf, frame[at + 1]]).collect();
    if ip[0] >> 4 == 4 {
        let (header, field) = (usize::from(ip[0] & 0xf) * 4, u16::from_be_bytes([ip[6], ip[7]]));
        let key = [&[4], &ip[12..20], &ip[4..6], &ip[9..10], &vlans[..]].concat();
        let (offset, more) = (usize::from(field & 0x1fff) * 8, field & 0x2000 != 0);
        let part = Part { key, front: frame[..at + header].to_vec(), offset, more, data: ip[header..].to_vec() };
        return (field & 0x3fff != 0).then_some(part);
    }
    let (mut next, mut header) = (ip[6], 40);
    while matches!(next, 0 | 43 | 60) {
        next = ip[header];
        header += 8 + 8 * usize::from(ip[header + 1]);
    }
    let fragment = &ip[header..];
    let word = if next == 44 { u16::from_be_bytes([fragment[2], fragment[3]]) } else { return None };
    Some(Part {
        key: [&[6], &ip[8..40], &fragment[4..8], &vlans[..]].concat(),
        front: frame[..at + header + 8].to_vec(),
        offset: (word & !7).into(),
        more: word & 1 == 1,
        data: fragment[8..].to_vec(),
    })
}

/// What a naive reassembler makes of frames: those that it sends, in order, and the fragments that it drops, by reason.
fn naive(frames: &[Vec<u8>]) -> (Vec<Vec<u8>>, BTreeMap<&'static str, u64>) {
    let (mut sent, mut drops) = (Vec::new(), BTreeMap::new());
    // Fragments of datagrams; nothing for those that were aborted.
    let mut all: BTreeMap<Vec<u8>, Option<Vec<Part>>> = BTreeMap::new();
    for frame in frames {
        let Some(part) = read(frame) else {
            sent.push(frame.clone());
            continue;
        };
        let kept = all.entry(part.key.clone()).or_insert_with(|| Some(Vec::new()));
        let Some(parts) = kept else {
            *drops.entry("overlap").or_default() += 1;
            continue;
        };
        if parts.iter().any(|other| (other.offset, &other.data, other.more) == (part.offset, &part.data, part.more)) {
            *drops.entry("duplicate").or_default() += 1;
            continue;
        }
        let end = |part: &Part| part.offset + part.data.len();
        let clash = |other: &Part| {
            let overlaps = other.offset < end(&part) && part.offset < end(other);
            let is_behind = |last: &Part, other: &Part| !last.more && (end(other) > end(last) || !other.more);
            overlaps || is_behind(other, &part) || is_behind(&part, other)
        };
        if parts.iter().any(clash) {
            *drops.entry("overlap").or_default() += 1 + parts.len() as u64;
            *kept = None;
            continue;
        }
        parts.push(part);
        parts.sort_by_key(|part| part.offset);
        let total = parts.iter().find(|part| !part.more).map(end);
        if total == Some(parts.iter().map(|part| part.data.len()).sum()) {
            let data: Vec<u8> = parts.iter().flat_map(|part| part.data.clone()).collect();
            sent.push(finish(&parts[0].front, &data));
            let key = parts[0].key.clone();
            all.remove(&key);
        }
    }
    (sent, drops)
}

/// A frame with the headers of a first fragment, and the data of its datagram.
fn finish(front: &[u8], data: &[u8]) -> Vec<u8> {
    let (at, mut frame) = (ip_at(front), [front, data].concat());
    if frame[at] >> 4 == 4 {
        let total = (frame.len() - at) as u16;
        frame[at + 2..at + 4].copy_from_slice(&total.to_be_bytes());
        frame[at + 6..at + 8].fill(0);
        Ipv4Packet::new_checked(&mut frame[at..]).unwrap().fill_checksum();
        return frame;
    }
    let (header, mut named) = (front.len() - 8, at + 6);
    let mut next = at + 40;
    while frame[named] != 44 {
        named = next;
        next += 8 + 8 * usize::from(frame[next + 1]);
    }
    frame[named] = frame[header];
    frame.drain(header..header + 8);
    let length = (frame.len() - at - 40) as u16;
    frame[at + 4..at + 6].copy_from_slice(&length.to_be_bytes());
    frame
}

/// What happens to a fragment on its way.
#[derive(Clone, Copy, Debug)]
enum Event {
    Arrives,
    Lost,
    Twice,
    /// Another one with other data, or at another place, comes as well.
    Forged(usize),
}

fn events() -> impl Strategy<Value = Event> {
    prop_oneof![
        40 => Just(Event::Arrives),
        1 => Just(Event::Lost),
        3 => Just(Event::Twice),
        1 => (0usize..3).prop_map(Event::Forged),
    ]
}

/// A changed copy of a fragment.
fn forge(frame: &[u8], how: usize) -> Vec<u8> {
    let mut frame = frame.to_vec();
    let at = ip_at(&frame);
    let last = frame.len() - 1;
    if how == 0 || frame[at] >> 4 == 6 {
        frame[last] ^= 1;
        return frame;
    }
    let field = u16::from_be_bytes([frame[at + 6], frame[at + 7]]);
    let field = if how == 1 { field + 1 } else { field ^ 0x2000 };
    frame[at + 6..at + 8].copy_from_slice(&field.to_be_bytes());
    Ipv4Packet::new_checked(&mut frame[at..]).unwrap().fill_checksum();
    frame
}

/// A datagram: tags, whether it is of IPv6, its extension headers, its length, and the MTU of the way.
type Sent = (usize, bool, u8, usize, u16);

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    #[test]
    fn datagrams_are_what_a_naive_reassembler_makes(
        sent in prop::collection::vec((0usize..3, any::<bool>(), 0u8..5, 0usize..6000, 1280u16..1700), 1..12),
        fates in prop::collection::vec(events(), 0..90),
        seed: u64,
        is_sorted: bool,
    ) {
        let make = |(id, &(tags, is_v6, kind, length, mtu)): (u16, &Sent)| {
            let ((first, bytes), _) = extensions(kind);
            let frame = if is_v6 { ipv6(tags, (first, &bytes), length) } else { ipv4(tags, &[], length, id, 0) };
            // IPv4 may have shorter ones.
            let mtu = if is_v6 { mtu } else { mtu - 900 };
            (frame.clone(), fragments(&frame, mtu))
        };
        let made: Vec<(Vec<u8>, Vec<Vec<u8>>)> = (0..).zip(&sent).map(make).collect();
        let (mut arriving, mut are_forged) = (Vec::new(), false);
        let mut fates = fates.into_iter().chain(std::iter::repeat(Event::Arrives));
        for fragment in made.iter().flat_map(|(_, fragments)| fragments) {
            let is_fragment = read(fragment).is_some();
            match fates.next() {
                Some(Event::Lost) => {}
                Some(Event::Twice) => arriving.extend([fragment.clone(), fragment.clone()]),
                Some(Event::Forged(how)) if is_fragment => {
                    arriving.extend([fragment.clone(), forge(fragment, how)]);
                    are_forged = true;
                }
                _ => arriving.push(fragment.clone()),
            }
        }
        if !is_sorted {
            fastrand::Rng::with_seed(seed).shuffle(&mut arriving);
        }
        // Those whose length is no multiple of 8 are refused before.
        let is_wrong = |frame: &Vec<u8>| read(frame).is_some_and(|part| part.more && part.data.len() % 8 != 0);
        let wrong = arriving.iter().filter(|frame| is_wrong(frame)).count() as u64;
        let right: Vec<Vec<u8>> = arriving.iter().filter(|frame| !is_wrong(frame)).cloned().collect();
        let (expected, drops) = naive(&right);

        let mut rig = rig(Config::default(), &["output"]);
        rig.send("input", &arriving);
        rig.settle();
        prop_assert_eq!(rig.received("output"), expected.clone());
        let counts = rig.counts();
        for name in ["overlap", "duplicate"] {
            prop_assert_eq!(counts.drops[name], drops.get(name).copied().unwrap_or(0), "{}", name);
        }
        prop_assert_eq!(counts.drops["malformed"], wrong);
        // A forged fragment may come before the one that it imitates. Without any, all that is sent was so before.
        let are_true = expected.iter().all(|frame| made.iter().any(|(sent, _)| sent == frame));
        prop_assert!(are_forged || are_true);
        // The rest times out.
        rig.set_time(1_000_000_000 + 61_000_000_000);
        rig.settle();
        let outcome = rig.finish();
        prop_assert!(outcome.unfinished.is_empty());
    }

    /// Bytes of any kind harm nobody.
    #[test]
    fn any_bytes_have_a_fate(
        frames in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..120), 0usize..4), 1..40),
    ) {
        let kinds = [[8, 0], [0x86, 0xdd], [0x81, 0], [0x12, 0x34]];
        let frames: Vec<Vec<u8>> = frames.into_iter().map(|(mut frame, kind)| {
            if frame.len() > 44 {
                frame[12..14].copy_from_slice(&kinds[kind]);
                frame[14] = if kind == 0 { 0x45 } else { 0x60 };
                let length = (frame.len() - 14) as u16;
                match kind {
                    0 => {
                        frame[16..18].copy_from_slice(&length.to_be_bytes());
                        Ipv4Packet::new_checked(&mut frame[14..]).unwrap().fill_checksum();
                    }
                    1 if length > 40 => {
                        frame[18..20].copy_from_slice(&(length - 40).to_be_bytes());
                        frame[20] = 44;
                    }
                    _ => {}
                }
            }
            frame
        }).collect();
        let mut rig = rig(Config::default(), &["output", "error"]);
        rig.send("input", &frames);
        rig.settle();
        rig.set_time(120_000_000_000);
        rig.settle();
        let counts = rig.counts();
        prop_assert_eq!(counts.out_packets + counts.dropped(), frames.len() as u64);
        rig.finish();
    }
}

#[test]
fn a_datagram_of_the_longest_length_is_one_packet() {
    let frame = ipv4(0, &[], 65_515, 7, 0);
    let config = Config { fragments: 200, ..Config::default() };
    let mut rig = rig(config, &["output"]);
    let mut pieces = fragments(&frame, 1500);
    pieces.reverse();
    rig.send("input", pieces);
    rig.settle();
    assert_eq!(rig.received("output"), [frame]);
    // One with a byte more, as "the ping of death" has it: the last fragment's header leaves no room.
    let mut last = ipv4(0, &[], 12, 8, 0x1fff);
    last[14 + 4..14 + 6].copy_from_slice(&[0, 8]);
    Ipv4Packet::new_checked(&mut last[14..]).unwrap().fill_checksum();
    rig.send("input", [last]);
    rig.settle();
    assert_eq!(rig.counts().drops["too_long"], 1);
}

#[test]
fn the_first_fragment_of_a_datagram_that_times_out_is_told() {
    let mut rig = rig(Config::default(), &["output", "error"]);
    let (v4, v6) = (fragments(&ipv4(0, &[], 3000, 1, 0), 1280), fragments(&ipv6(0, (0, &[]), 3000), 1280));
    let without_first = fragments(&ipv4(0, &[], 3000, 2, 0), 1280);
    rig.send("input", [&v4[1], &v4[0], &v6[0], &without_first[1]]);
    rig.settle();
    assert_eq!(rig.status().unwrap()["datagrams"], 3);
    assert_eq!(
        (rig.status().unwrap()["fragments"].as_u64(), rig.status().unwrap()["bytes"].as_u64()),
        (Some(4), Some(8960))
    );
    let start = 1_000_000_000;
    rig.set_time(start + 29_999_999_999);
    rig.settle();
    assert!(rig.received("error").is_empty());
    rig.set_time(start + 30_000_000_000);
    rig.settle();
    let told = rig.received_packets("error");
    let errors = told.iter().map(|packet| IcmpError::from_number(Tag(packet.tag()).number()).reason);
    assert!(errors.eq([Reason::ReassemblyTimeExceeded]) && told[0].bytes() == v4[0]);
    rig.set_time(start + 60_000_000_000);
    rig.settle();
    assert_eq!(rig.received("error"), [v6[0].clone()]);
    let counts = rig.counts();
    assert_eq!((counts.drops["timeout"], counts.counters["reasm_timeouts"]), (2, 3));
    assert!(rig.is_done());
}

#[test]
fn under_a_flood_of_its_own_source_a_datagram_has_the_time_in_which_the_table_is_filled() {
    let capacity = 500;
    for (by_memory, between, completes) in
        [(false, 450, true), (false, 500, false), (true, 90, true), (true, 100, false)]
    {
        // A fragment of the flood and the first one of the datagram take a buffer of 2,240 bytes each.
        let memory = if by_memory { Bytes::new(100 * 2240) } else { Bytes::new(8 << 20) };
        let mut rig = rig(Config { capacity, memory, ..Config::default() }, &["output"]);
        let frame = ipv4(0, &[], 2000, 60_000, 0);
        let pieces = fragments(&frame, 1280);
        let flood =
            |from: u16, count: u16| (from..from + count).map(|id| ipv4(0, &[], 8, id, 0x2000)).collect::<Vec<_>>();
        rig.send("input", flood(0, 1000));
        rig.settle();
        rig.send("input", [&pieces[0]]);
        rig.send("input", flood(1000, between));
        rig.send("input", [&pieces[1]]);
        rig.settle();
        assert_eq!(rig.received("output").len(), usize::from(completes), "{by_memory} {between}");
        let status = rig.status().unwrap();
        assert!(status["datagrams"].as_u64().unwrap() <= 500 && status["bytes"].as_u64().unwrap() <= memory.bytes());
        assert!(rig.counts().drops["evicted"] > 0);
    }
}

/// A frame of IPv4 from another source, as an interface received it.
fn from(mut frame: Vec<u8>, source: u32, interface: u16) -> Packet {
    frame[14 + 12..14 + 16].copy_from_slice(&source.to_be_bytes());
    Ipv4Packet::new_checked(&mut frame[14..]).unwrap().fill_checksum();
    let mut packet = Packet::from_bytes(&frame).unwrap();
    packet.set_tag(Tag::received_on(interface).0);
    packet
}

#[test]
fn a_flood_of_fragments_takes_room_from_its_own_source_and_link() {
    let log = bellows_rig::EventLog::begin();
    // The flood has one source; or any, but one link.
    for (is_spoofed, by_memory) in [(false, false), (false, true), (true, false), (true, true)] {
        let memory = if by_memory { Bytes::new(400 * 2240) } else { Bytes::new(8 << 20) };
        let mut rig = rig(Config { capacity: 500, memory, ..Config::default() }, &["output"]);
        let mut number = 0;
        let mut flood = |rig: &mut Rig| {
            for _ in 0..10 {
                let all = (0..200).map(|_| {
                    number += 1;
                    let source = if is_spoofed { 0x0a00_0000 + number } else { 0x0a00_0000 };
                    from(ipv4(0, &[], 8, number as u16, 0x2000), source, 1)
                });
                rig.send_packets("input", all.collect::<Vec<_>>());
                rig.settle();
            }
        };
        flood(&mut rig);
        let whole = fragments(&ipv4(0, &[], 2000, 7, 0), 1280);
        let others = |rig: &mut Rig, piece: usize| {
            // Each of its own source, and most of a link of their own: few have the class of the flood.
            let other = |at: u16| from(whole[piece].clone(), 0x0b00_0000 + u32::from(at), 2 + at);
            rig.send_packets("input", (0..10).map(other).collect::<Vec<_>>());
            rig.settle();
        };
        others(&mut rig, 0);
        flood(&mut rig);
        others(&mut rig, 1);
        let completed = rig.received("output").len();
        assert!(completed >= 5, "{completed} of 10: {is_spoofed} {by_memory}");
    }
    let told = log.take();
    assert_eq!((&told[0]["event"], &told[0]["port"]), (&json!("table-full"), &json!("10.0.0.0")));
}

#[test]
fn atomic_fragments_pass_at_once() {
    let mut frame = ipv6(1, (0, &[]), 200);
    let whole = frame.clone();
    frame.splice(18 + 40..18 + 40, [253, 0, 0, 0, 1, 2, 3, 4]);
    frame[18 + 6] = 44;
    frame[18 + 5] += 8;
    let mut rig = rig(Config::default(), &["output"]);
    // Whatever other fragments have the same identification.
    let mut other = frame.clone();
    other[18 + 43] = 1;
    rig.send("input", [&other, &[&frame[..], &[0; 5]].concat()]);
    rig.settle();
    assert_eq!(rig.received("output"), [whole]);
    assert_eq!((rig.counts().counters["atomic"], rig.status().unwrap()["datagrams"].as_u64()), (1, Some(1)));
}

/// The fragments of a neighbour solicitation for 2001:db8::1 of 32 bytes, cut at some places; it may be behind options.
fn solicitation(cuts: &[usize], is_behind_options: bool) -> Vec<Vec<u8>> {
    let (src, dst) = ("2001:db8::9".parse().unwrap(), "ff02::1:ff00:1".parse().unwrap());
    let mut draft = MessageDraft::new(message_type::NEIGHBOUR_SOLICITATION, 0);
    draft.put(&Ipv6Addr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1]).octets());
    draft.put_link_layer(option_type::SOURCE_LINK_LAYER, MacAddr([4, 0, 0, 0, 0, 9]));
    let message = draft.finish(&IpPair::V6 { src, dst }).to_vec();
    let options: &[u8] = if is_behind_options { &[58, 0, 1, 4, 0, 0, 0, 0] } else { &[] };
    let (first, data) = (if is_behind_options { 60 } else { 58 }, [options, &message].concat());
    let ends = cuts.iter().copied().chain([data.len()]);
    ends.scan(0, |start, end| Some((std::mem::replace(start, end), end)))
        .map(|(start, end)| {
            let more = u8::from(end < data.len());
            let mut frame = vec![0x33, 0x33, 0xff, 0, 0, 1, 4, 0, 0, 0, 0, 9, 0x86, 0xdd];
            frame.extend([0; 40]);
            frame.extend([first, 0, 0, start as u8 | more, 1, 2, 3, 4]);
            frame.extend(&data[start..end]);
            let next_header = IpProtocol::IPV6_FRAGMENT;
            let header = Ipv6Header { src, dst, next_header, hop_limit: 255, traffic_class: 0, flow_label: 0 };
            header.emit(&mut frame[14..]).unwrap();
            frame
        })
        .collect()
}

/// What came in fragments reaches `nd` as such, which drops and counts it, in whichever order it came (RFC 6980).
#[test]
fn neighbour_discovery_in_fragments_is_neither_answered_nor_learned_from() {
    let cases: [(&[usize], bool, bool); 6] = [
        (&[], false, false),
        (&[], true, false),
        (&[16], false, false),
        (&[16], false, true),
        (&[8, 16, 24], false, true),
        (&[16], true, false),
    ];
    for (cuts, is_behind_options, is_reversed) in cases {
        let own = |address: &str| InterfaceAddress { address: address.parse().unwrap(), length: 64 };
        let interface = Interface {
            name: "a".to_owned(),
            port: "a".to_owned(),
            mac: MacAddr([2, 0, 0, 0, 0, 1]),
            mtu: 1500,
            tags: Vec::new(),
            addresses: vec![own("2001:db8::1"), own("fe80::1")],
        };
        let domain = Arc::new(RoutingDomain::new(Vrf::new(vec![interface], 16, 1).unwrap()));
        let mut reassemble = rig(Config::default(), &["output"]);
        let mut local = Rig::new(Local::<V6>::new(Arc::clone(&domain)), &["input"], &["output", "punt", "nd"]);
        let mut nd = Rig::new(Nd::new(Arc::clone(&domain), NeighbourLimits::default()), &["input"], &["a"]);
        for second in 0..5 {
            nd.set_time(second * 1_000_000_000);
            nd.settle();
        }
        nd.received("a");
        let mut fragments = solicitation(cuts, is_behind_options);
        if is_reversed {
            fragments.reverse();
        }
        let packets = fragments.iter().map(|frame| {
            let mut packet = Packet::from_bytes(frame).unwrap();
            packet.set_tag(Tag::received_on(1).0);
            packet
        });
        reassemble.send_packets("input", packets);
        reassemble.settle();
        local.send_packets("input", reassemble.received_packets("output"));
        local.settle();
        assert_eq!(local.received("punt").len(), 0);
        nd.send_packets("input", local.received_packets("nd"));
        nd.settle();
        let counts = nd.counts();
        let found = (nd.received("a").len(), counts.counters["learned"], counts.drops["fragment"]);
        assert_eq!(found, (0, 0, 1), "cut at {cuts:?}");
    }
}

#[test]
fn congestion_is_kept() {
    let marked = |ecn: [u8; 2]| {
        let mut pieces = fragments(&ipv4(0, &[], 1000, 1, 0), 576);
        for (piece, ecn) in pieces.iter_mut().zip(ecn) {
            piece[15] = ecn;
            Ipv4Packet::new_checked(&mut piece[14..]).unwrap().fill_checksum();
        }
        let mut rig = rig(Config::default(), &["output"]);
        rig.send("input", pieces);
        rig.settle();
        let sent = rig.received("output").first().map(|frame| frame[15]);
        (sent, rig.counts().drops["ecn_mismatch"])
    };
    assert_eq!([marked([2, 3]), marked([2, 2]), marked([0, 3])], [(Some(3), 0), (Some(2), 0), (None, 2)]);
}

#[test]
fn wrong_fragments_are_dropped_by_name() {
    let mut bad_sum = ipv4(0, &[], 64, 1, 0x2000);
    bad_sum[24] ^= 1;
    let odd = ipv4(0, &[], 63, 1, 0x2000);
    let empty = ipv4(0, &[], 0, 1, 0x0001);
    // The first fragment ends before the UDP header does.
    let mut hidden = ipv6(0, (44, &[17, 0, 0, 1, 0, 0, 0, 1]), 0);
    hidden[18..20].copy_from_slice(&8u16.to_be_bytes());
    let config = Config { fragments: 2, ..Config::default() };
    let mut rig = rig(config, &["output", "error"]);
    rig.send("input", [bad_sum, odd, empty, hidden]);
    rig.send("input", fragments(&ipv4(0, &[], 2000, 9, 0), 576));
    // An IPv6 source is told about the headers and about the length.
    let odd = ipv6(0, (44, &[17, 0, 0, 9, 0, 0, 0, 1]), 63);
    rig.send("input", [odd]);
    rig.settle();
    let drops = rig.counts().drops;
    assert_eq!((drops["bad_checksum"], drops["malformed"], drops["too_many_fragments"]), (1, 2, 4));
    let told: Vec<_> = rig.received_packets("error").iter().map(|packet| Tag(packet.tag()).number()).collect();
    let errors: Vec<_> = told.into_iter().map(IcmpError::from_number).collect();
    let bad_length = IcmpError { reason: Reason::ParameterProblem, value: 4 };
    assert_eq!(errors, [IcmpError::of(Reason::IncompleteHeaders), bad_length]);
}

proptest! {
    /// As `Ipv4Packet` reads them.
    #[test]
    fn headers_of_ipv4_are_those_of_their_packets(
        changes in prop::collection::vec((0usize..12, any::<u8>()), 0..3),
        options in 0usize..3,
        length in 8usize..110,
        is_sum_right: bool,
    ) {
        let mut frame = ipv4(0, &vec![1; 4 * options], 64, 7, 0x2001);
        changes.into_iter().for_each(|(at, byte)| frame[14 + at] = byte);
        if is_sum_right {
            fill_checksum(&mut frame[14..34 + 4 * options]);
        }
        frame.truncate(14 + length);
        let field = u16::from_be_bytes([frame[20], frame[21]]);
        match (Ipv4Packet::new_checked(&frame[14..]), header::find(&frame)) {
            (_, found) if field & 0x3fff == 0 => prop_assert_eq!(found, FrameKind::Whole),
            (Err(_), found) => prop_assert_eq!(found, FrameKind::Malformed(None)),
            (Ok(view), FrameKind::BadChecksum) => prop_assert!(!is_checksum_right(view.header())),
            (Ok(view), found) => {
                prop_assert!(is_checksum_right(view.header()));
                if let FrameKind::Fragment(piece) = found {
                    let [source, destination] = [view.src(), view.dst()].map(|address| u64::from(u32::from(address)));
                    let rest = u64::from(view.identification()) << 40 | u64::from(view.protocol().0) << 32;
                    let header = view.header().len() as u32;
                    prop_assert_eq!(piece, Piece {
                        key: DatagramKey::V4([source << 32 | destination, rest]),
                        data: 14 + header,
                        end: 14 + u32::from(view.total_len()),
                        counted: header,
                        offset: view.fragment_offset().into(),
                        more: view.more_fragments(),
                        ecn: view.traffic_class() & 3,
                    });
                }
            }
        }
    }
}

#[test]
fn a_reload_keeps_the_datagrams_if_no_key_has_changed() {
    let piece = |frame: &[u8]| match header::find(frame) {
        FrameKind::Fragment(piece) => piece,
        other => panic!("{other:?}"),
    };
    bellows_packet::pool::ensure().unwrap();
    for (fragments, kept) in [(40, 1), (41, 0)] {
        let new = |fragments| {
            let config = Config { fragments, ..Config::default() };
            Reassemble::configure(config, &Context::default()).unwrap()
        };
        let (mut old, mut new) = (new(40), new(fragments));
        old.start(None).unwrap();
        let frame = ipv4(0, &[], 64, 1, 0x2000);
        let packet = Packet::from_bytes(&frame).unwrap();
        let (piece, mut hashes) = (piece(&frame), Vec::new());
        old.table.hash(std::iter::once(&piece.key), &mut hashes);
        let taken = old.table.take(packet, (&piece, hashes[0]), (0, 1), |_, why| panic!("{why:?}"));
        assert!(matches!(taken, Taken::Kept));
        new.start(Some(&mut old)).unwrap();
        assert_eq!((new.held(), old.held()), (kept, 1 - kept));
        new.give_back(&mut old);
        assert_eq!((new.held(), old.held()), (0, 1));
    }
}

#[test]
fn impossible_settings_are_refused_by_key() {
    for (text, key) in [
        (r#"{"capacity": 0}"#, "capacity"),
        (r#"{"fragments": 1}"#, "fragments"),
        (r#"{"memory": "1KiB"}"#, "memory"),
        (r#"{"timeout_ipv4": "0s"}"#, "timeout_ipv4"),
        (r#"{"timeout_ipv6": "2h"}"#, "timeout_ipv6"),
    ] {
        let config = serde_json::from_str(text).unwrap();
        assert_eq!(Reassemble::configure(config, &Context::default()).err().unwrap().key, Some(key), "{text}");
    }
}
