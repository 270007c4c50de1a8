//! The first bytes of packets, against loops that look at each packet.

use bellows_packet::{Contents, Frames, Handles, Packet};
use bellows_sys::simd::{Loop, Simd};
use proptest::prelude::*;

const START: usize = 20;

/// Packets of these lengths, with these tags, whose bytes count from a number of their own.
fn packets(described: &[(usize, u32)]) -> Vec<Packet> {
    let packet = |(number, &(length, tag)): (usize, &(usize, u32))| {
        let bytes: Vec<u8> = (0..length).map(|at| (number + at) as u8).collect();
        let mut packet = Packet::from_bytes(&bytes).unwrap();
        packet.set_tag(tag);
        packet
    };
    described.iter().enumerate().map(packet).collect()
}

/// The tag and the bytes of each packet.
fn parts(packets: &[Packet]) -> Vec<(u32, Vec<u8>)> {
    packets.iter().map(|packet| (packet.tag(), packet.bytes().to_vec())).collect()
}

/// What each instruction set finds: the handles, the lengths, and the starts.
struct Find<'p>(&'p [Packet]);

type Found = (Handles, Vec<u32>, Option<Vec<[u8; START]>>);

impl Loop for Find<'_> {
    type Result = Found;

    #[inline(always)]
    fn run(self) -> Found {
        let mut lengths = vec![0; self.0.len()];
        let frames = Frames::<[u8; START]>::with_lengths(self.0, &mut lengths);
        (Handles::of(self.0), lengths, frames.map(|frames| frames.iter().copied().collect()))
    }
}

fn described(shortest: usize) -> impl Strategy<Value = Vec<(usize, u32)>> {
    let tag = prop_oneof![any::<u32>(), (0u32..4).prop_map(|number| 1 << 20 | number)];
    prop::collection::vec((prop_oneof![20 => shortest..2_048, 1 => 0usize..60], tag), 0..200)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn handles_lengths_and_starts_are_those_of_each_packet(described in described(START)) {
        let packets = packets(&described);
        let tags = || packets.iter().map(Packet::tag);
        let handles = Handles {
            shortest: packets.iter().map(Packet::len).min().unwrap_or(u32::MAX as usize),
            longest: packets.iter().map(Packet::len).max().unwrap_or(0),
            least_tag: tags().min().unwrap_or(u32::MAX),
            different: tags().fold(0, |different, tag| different | (tag ^ packets[0].tag())),
        };
        let lengths: Vec<u32> = packets.iter().map(|packet| packet.len() as u32).collect();
        let starts: Option<Vec<[u8; START]>> =
            packets.iter().map(|packet| packet.bytes().first_chunk().copied()).collect();
        for simd in Simd::available() {
            prop_assert_eq!(simd.run(Find(&packets)), (handles, lengths.clone(), starts.clone()), "{}", simd.name());
        }
    }

    #[test]
    fn chunks_have_all_packets_in_order(described in described(60), count in 1usize..40) {
        let mut packets = packets(&described);
        let expected = parts(&packets);
        let mut contents = Contents::of(&mut packets);
        let mut found = Vec::new();
        for mut chunk in contents.chunks(count) {
            prop_assert!(chunk.packets().len() <= count);
            found.extend(chunk.iter_mut().map(|(tag, bytes)| (tag, bytes.to_vec())));
        }
        prop_assert_eq!(&found, &expected);
        if let Some(frames) = Frames::<[u8; START]>::of(&packets) {
            let starts: Vec<&[u8; START]> = frames.chunks(count).flat_map(|chunk| chunk.iter()).collect();
            prop_assert_eq!(starts.len(), expected.len());
            prop_assert!(starts.iter().zip(&expected).all(|(start, (_, bytes))| bytes[..START] == start[..]));
        }
    }

    #[test]
    fn starts_and_tags_change_in_place(described in described(START)) {
        let mut packets = packets(&described);
        let before = parts(&packets);
        let mut contents = Contents::of(&mut packets);
        let is_long = before.iter().all(|(_, bytes)| bytes.len() >= START);
        match contents.frames::<[u8; START]>() {
            None => prop_assert!(!is_long),
            Some((mut frames, _)) => {
                prop_assert!(is_long);
                frames.iter_mut().for_each(|(tag, start)| start[1] = !start[1] ^ tag as u8);
                for place in 0..frames.packets().len() {
                    let (tag, start) = frames.at_mut(place);
                    start[0] = !start[0];
                    frames.set_tag(place, !tag);
                }
            }
        }
        let numbers: Vec<u32> = (0..before.len() as u32).collect();
        contents.set_tags_with(&numbers, |tag, number| tag ^ number);
        contents.set_tags(|packet| packet.tag().wrapping_add(packet.len() as u32));
        for ((packet, (mut tag, mut bytes)), number) in packets.iter().zip(before).zip(0..) {
            if is_long {
                bytes[1] = !bytes[1] ^ tag as u8;
                (bytes[0], tag) = (!bytes[0], !tag);
            }
            prop_assert_eq!(packet.bytes(), &bytes[..]);
            prop_assert_eq!(packet.tag(), (tag ^ number).wrapping_add(bytes.len() as u32));
        }
    }
}
