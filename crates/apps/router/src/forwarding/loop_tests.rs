//! The hot loops, with each instruction set, against naive ones.

use bellows_common::headers::end_of_ip;
use bellows_packet::{Contents, Packet};
use bellows_sys::simd::Simd;
use bellows_vrf::adjacency::{Adjacency, AdjacencyKind, MAX_HEADER};
use bellows_vrf::{Adjacencies, IcmpError, Reason, Tag};
use proptest::prelude::*;

use super::{BATCH, Columns, FEW, Family, UNUSUAL, USUAL, V4, V6};
use crate::{ip4_input, ip6_input, rewrite};

/// A frame: mostly a right one of a version, with changes in a few bytes, cut somewhere.
fn frame(version: u8) -> impl Strategy<Value = Vec<u8>> {
    let change = (0usize..60, prop_oneof![any::<u8>(), Just(0), Just(1), Just(0xfe), Just(0xff)]);
    let changes = prop_oneof![3 => Just(Vec::new()), 1 => prop::collection::vec(change, 1..4)];
    let cut = prop_oneof![12 => Just(usize::MAX), 1 => 0usize..60];
    (any::<[u8; 60]>(), changes, cut, 0usize..1500, 1u8..4).prop_map(move |(random, changes, cut, more, hops)| {
        let mut frame = [&random[..], &vec![7; more]].concat();
        let length = (frame.len() - 14) as u16;
        match version {
            4 => {
                frame[14] = 0x45;
                frame[16..18].copy_from_slice(&length.to_be_bytes());
                (frame[20], frame[22], frame[26]) = (0, hops, 10);
                fill_checksum(&mut frame);
            }
            _ => {
                frame[14] = 0x60;
                frame[18..20].copy_from_slice(&(length.saturating_sub(40)).to_be_bytes());
                (frame[20], frame[21], frame[22]) = (17, hops, 0x20);
            }
        }
        changes.into_iter().for_each(|(at, byte)| frame[at] = byte);
        frame.truncate(cut);
        frame
    })
}

/// The sum of an IPv4 header without options, in two bytes.
fn sum(header: &[u8]) -> u32 {
    let sum = header[..20].chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1])).sum::<u32>();
    let sum = (sum & 0xffff) + (sum >> 16);
    (sum & 0xffff) + (sum >> 16)
}

fn fill_checksum(frame: &mut [u8]) {
    frame[24..26].fill(0);
    let checksum = !sum(&frame[14..]) as u16;
    frame[24..26].copy_from_slice(&checksum.to_be_bytes());
}

fn is_right_v4(frame: &[u8], verifies: bool) -> bool {
    let Some(ip) = frame.get(14..).filter(|ip| ip.len() >= 20) else { return false };
    let total_length = usize::from(u16::from_be_bytes([ip[2], ip[3]]));
    ip[0] == 0x45
        && (20..=ip.len()).contains(&total_length)
        && u16::from_be_bytes([ip[6], ip[7]]) & 0x1fff != 1
        && !matches!(ip[12], 0 | 127 | 224..)
        && (!verifies || sum(ip) == 0xffff)
}

fn is_right_v6(frame: &[u8]) -> bool {
    let Some(ip) = frame.get(14..).filter(|ip| ip.len() >= 40) else { return false };
    let payload_length = usize::from(u16::from_be_bytes([ip[4], ip[5]]));
    ip[0] >> 4 == 6 && payload_length <= ip.len() - 40 && ip[6] != 0 && ip[8] != 0xff && ip[8..16] != [0; 8]
}

fn packets(frames: &[Vec<u8>], tags: &[Tag]) -> Vec<Packet> {
    let packet = |(frame, tag): (&Vec<u8>, &Tag)| {
        let mut packet = Packet::from_bytes(frame).unwrap();
        packet.set_tag(tag.0);
        packet
    };
    frames.iter().zip(tags).map(packet).collect()
}

/// The adjacencies of the test by their indices from 16 on: two to one interface, one of a small MTU, one to another
/// interface, and then those that are not usual.
fn adjacencies() -> Adjacencies {
    let table = Adjacencies::new(20);
    let shapes = [
        (AdjacencyKind::Complete, 1, 1500, 14),
        (AdjacencyKind::Complete, 1, 1500, 14),
        (AdjacencyKind::Complete, 1, 400, 14),
        (AdjacencyKind::Complete, 2, 1500, 14),
        (AdjacencyKind::Complete, 3, 1500, 18),
        (AdjacencyKind::Incomplete, 1, 1500, 14),
        (AdjacencyKind::Glean, 2, 1500, 14),
        (AdjacencyKind::Complete, 9, 1500, 14),
    ];
    for (number, (kind, interface, mtu, length)) in (1..).zip(shapes) {
        let mut header = [number; MAX_HEADER];
        header[6..].fill(0x80 | number);
        table.add(&Adjacency { kind, interface, mtu, length, header, next_hop: None }).unwrap();
    }
    table
}

/// The outputs of interfaces 1 to 3.
const OUTPUTS: [u16; 4] = [UNUSUAL, 5, 2, 7];

/// The outputs of packets whose sender is told about an error, and of those whose next hop is to be resolved.
const ERROR: u16 = 8;
const RESOLVE: u16 = 9;

/// The number and the tag of a packet, which is changed if the number is that of an output.
fn rewrite_naively(
    version: u8,
    adjacencies: &Adjacencies,
    tag: Tag,
    frame: &mut [u8],
    is_diverted: bool,
) -> (u16, Tag) {
    let unusual = (UNUSUAL, tag);
    let Some(adjacency) = adjacencies.get(tag.number()) else { return unusual };
    let output = OUTPUTS.get(usize::from(adjacency.interface)).copied().unwrap_or(UNUSUAL);
    if frame.len() < if version == 4 { 34 } else { 54 } || tag.interface() == 0 {
        return unusual;
    }
    let (ip, mtu) = (&frame[14..], usize::from(adjacency.mtu));
    let word = |at: usize| u16::from_be_bytes([ip[at], ip[at + 1]]);
    let (hops, at) = if version == 4 { (ip[8], 22) } else { (ip[7], 21) };
    let source = word(if version == 4 { 12 } else { 8 });
    let may_age = hops > 1 && if version == 4 { source != 0xa9fe } else { source != 0 && source < 0xfe80 };
    let length = if version == 4 { usize::from(word(2)) } else { 40 + usize::from(word(4)) };
    let may_be_told = if version == 4 { source != 0xa9fe } else { matches!(source >> 8, 0x20..=0x3f | 0xfc | 0xfd) };
    if is_diverted && adjacency.kind == AdjacencyKind::Complete && hops <= 1 && may_be_told {
        return (ERROR, tag.with(IcmpError::of(Reason::TimeExceeded).number()));
    }
    if ip.len() > mtu {
        let may_fragment = version == 4 && ip[6] & 0x40 == 0;
        let is_told = is_diverted && may_age && length.min(ip.len()) > mtu && !may_fragment;
        let error = IcmpError { reason: Reason::TooBig, value: adjacency.mtu };
        return if is_told { (ERROR, tag.with(error.number())) } else { unusual };
    }
    if adjacency.kind == AdjacencyKind::Complete && (adjacency.length != 14 || output == UNUSUAL) || !may_age {
        return unusual;
    }
    if adjacency.kind != AdjacencyKind::Complete && !is_diverted {
        return unusual;
    }
    // A checksum that is wrong stays wrong by as much.
    let difference = if version == 4 { (0xffff + 0xffff - sum(&frame[14..])) % 0xffff } else { 0 };
    frame[at] -= 1;
    if version == 4 {
        fill_checksum(frame);
        let checksum = u32::from(u16::from_be_bytes([frame[24], frame[25]]));
        let checksum = ((checksum + 0xffff - difference) % 0xffff) as u16;
        frame[24..26].copy_from_slice(&checksum.to_be_bytes());
    }
    if adjacency.kind != AdjacencyKind::Complete {
        return (RESOLVE, tag);
    }
    frame[..14].copy_from_slice(&adjacency.header[..14]);
    (output, tag)
}

fn rewrite_with<F: Family>(simd: Simd, ahead: usize, packets: &mut [Packet], adjacencies: &Adjacencies) -> Vec<u16> {
    let mut numbers = vec![9; packets.len()];
    let targets = rewrite::RewriteTargets { adjacencies, outputs: &OUTPUTS, error: ERROR, resolve: RESOLVE };
    rewrite::rewrite(simd, &mut rewrite::RewriteBatch::<F>::new(), Contents::of(packets), ahead, targets, &mut numbers);
    numbers
}

/// Whether floods are diverted from the batch of each packet: it is no small one, and all have whole headers.
fn are_diverted(version: u8, frames: &[Vec<u8>]) -> Vec<bool> {
    let least = if version == 4 { 34 } else { 54 };
    let batches = frames.chunks(BATCH);
    let is_diverted = |batch: &[Vec<u8>]| batch.len() > FEW && batch.iter().all(|frame| frame.len() >= least);
    batches.flat_map(|batch| vec![is_diverted(batch); batch.len()]).collect()
}

/// Frames, and tags of which most are of interface 1 and of adjacencies up to a number.
fn tagged(version: u8) -> impl Strategy<Value = (Vec<Vec<u8>>, Vec<Tag>)> {
    (1u32..12, 1usize..300, any::<bool>()).prop_flat_map(move |(most, count, all_received)| {
        let interface = if all_received { Just(1_u16).boxed() } else { (0u16..3).boxed() };
        let tag = (interface, 16..16 + most).prop_map(|(interface, number)| Tag::received_on(interface).with(number));
        let right = frame(version).prop_filter("whole", |frame| frame.len() >= 60);
        let whole = frame(version).prop_filter("whole", |frame| frame.len() >= 60);
        let frames = prop_oneof![
            prop::collection::vec(whole, count),
            prop::collection::vec(
                right.prop_map(|mut frame| {
                    frame.truncate(300);
                    frame[21] = frame[21].max(2);
                    frame[22] = frame[22].max(2);
                    frame
                }),
                count
            ),
            prop::collection::vec(frame(version), count),
        ];
        (frames, prop::collection::vec(tag, count))
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn headers_of_version_4_are_checked(frames in prop::collection::vec(frame(4), 0..300), ahead in 0usize..30) {
        let packets = packets(&frames, &vec![Tag(0); frames.len()]);
        for simd in Simd::available() {
            for verifies in [false, true] {
                let check = if verifies { ip4_input::check::<true> } else { ip4_input::check::<false> };
                let (mut columns, mut numbers) = (Columns::new(), vec![9; frames.len()]);
                let is_longer = check(simd, &mut columns, &packets, ahead, &mut numbers);
                let has_trailer = |(frame, &number): (&Vec<u8>, &u16)| {
                    number == USUAL && end_of_ip(frame).is_some_and(|end| end < frame.len())
                };
                prop_assert!(is_longer || !frames.iter().zip(&numbers).any(has_trailer));
                let expected = |frame: &Vec<u8>| if is_right_v4(frame, verifies) { USUAL } else { UNUSUAL };
                prop_assert_eq!(numbers, frames.iter().map(expected).collect::<Vec<_>>(), "{}", simd.name());
            }
        }
    }

    #[test]
    fn headers_of_version_6_are_checked(frames in prop::collection::vec(frame(6), 0..300), ahead in 0usize..30) {
        let packets = packets(&frames, &vec![Tag(0); frames.len()]);
        for simd in Simd::available() {
            let (mut columns, mut numbers) = (Columns::new(), vec![9; frames.len()]);
            let is_longer = ip6_input::check(simd, &mut columns, &packets, ahead, &mut numbers);
            let has_trailer = |(frame, &number): (&Vec<u8>, &u16)| {
                number == USUAL && end_of_ip(frame).is_some_and(|end| end < frame.len())
            };
            prop_assert!(is_longer || !frames.iter().zip(&numbers).any(has_trailer));
            let expected = |frame: &Vec<u8>| if is_right_v6(frame) { USUAL } else { UNUSUAL };
            prop_assert_eq!(numbers, frames.iter().map(expected).collect::<Vec<_>>(), "{}", simd.name());
        }
    }

    #[test]
    fn packets_are_rewritten((version, (frames, tags)) in prop_oneof![
        (Just(4u8), tagged(4)),
        (Just(6u8), tagged(6)),
    ], ahead in 0usize..30) {
        let adjacencies = adjacencies();
        let mut expected = frames.clone();
        let rewrite = |((frame, &tag), is_diverted): ((&mut Vec<u8>, &Tag), bool)| {
            rewrite_naively(version, &adjacencies, tag, frame, is_diverted)
        };
        let are_diverted = are_diverted(version, &frames);
        let (expected_numbers, expected_tags): (Vec<u16>, Vec<Tag>) =
            expected.iter_mut().zip(&tags).zip(are_diverted).map(rewrite).unzip();
        for simd in Simd::available() {
            let mut packets = packets(&frames, &tags);
            let rewrite = if version == 4 { rewrite_with::<V4> } else { rewrite_with::<V6> };
            let numbers = rewrite(simd, ahead, &mut packets, &adjacencies);
            prop_assert_eq!(&numbers, &expected_numbers, "{}", simd.name());
            let found: Vec<&[u8]> = packets.iter().map(Packet::bytes).collect();
            prop_assert_eq!(found, expected.iter().map(Vec::as_slice).collect::<Vec<_>>(), "{}", simd.name());
            let found: Vec<Tag> = packets.iter().map(|packet| Tag(packet.tag())).collect();
            prop_assert_eq!(&found, &expected_tags, "{}", simd.name());
        }
    }
}
