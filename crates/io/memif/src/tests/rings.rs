use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use bellows_ipc::mapping::PeerMemory;
use bellows_packet::{Packet, Vector};
use bellows_ports::{QueueBell, Rejection};
use proptest::collection::vec;
use proptest::prelude::*;

use super::model::{Fate, Model};
use crate::receiver::Buffers;
use crate::ring::{Ring, RingError, RingSpec};
use crate::{Mode, Receiver, Region, Regions, Side, Transmitter};

/// The ring begins behind something else.
const RING: usize = 64;
const LOG2: u8 = 3;
const SIZE: u16 = 1 << LOG2;
/// The first buffer.
const BUFFERS: usize = 512;
const BUFFER: usize = 128;
const LENGTH: usize = BUFFERS + BUFFER * SIZE as usize;

/// Memory that the test changes through its file, as another process would through its own mapping.
struct Shared {
    file: File,
    regions: Arc<Regions>,
    length: usize,
}

impl Shared {
    fn new(length: usize) -> Shared {
        let file = bellows_ipc::memfd::create(length as u64).unwrap();
        let region = Region::map(&PeerMemory::default(), &file, length as u64).unwrap();
        Shared { file, regions: Arc::new(Regions::new(vec![region])), length }
    }

    fn ring(&self, side: Side) -> Ring {
        let spec = RingSpec { region: 0, offset: RING as u32, log2_size: LOG2 };
        Ring::new(spec, side, Arc::clone(&self.regions)).unwrap()
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.length];
        self.file.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    }

    fn write(&self, bytes: &[u8]) {
        self.file.write_all_at(bytes, 0).unwrap();
    }

    fn half(&self, at: usize, value: u16) {
        self.file.write_all_at(&value.to_ne_bytes(), at as u64).unwrap();
    }

    /// A descriptor: flags, region, length, offset.
    fn describe(&self, index: u16, (flags, region, length, offset): (u16, u16, u32, u32)) {
        let at = RING + 128 + 16 * usize::from(index % SIZE);
        self.half(at, flags);
        self.half(at + 2, region);
        self.file.write_all_at(&length.to_ne_bytes(), at as u64 + 4).unwrap();
        self.file.write_all_at(&offset.to_ne_bytes(), at as u64 + 8).unwrap();
    }

    fn model(&self, side: Side, next: u16) -> Model {
        let buffers = (side == Side::Client).then_some((BUFFERS, BUFFER));
        Model { bytes: self.bytes(), ring: RING, size: SIZE, side, buffers, next }
    }
}

fn buffers(side: Side) -> Option<Buffers> {
    (side == Side::Client).then_some(Buffers { first: BUFFERS as u32, length: BUFFER as u32 })
}

fn receiver(shared: &Shared, side: Side) -> Receiver {
    let mut receiver = Receiver::new(shared.ring(side), buffers(side), Mode::Ethernet, None);
    receiver.begin();
    receiver
}

fn transmitter(shared: &Shared, side: Side) -> Transmitter {
    Transmitter::new(shared.ring(side), buffers(side), Mode::Ethernet, None)
}

/// Receives everything, a few packets at a time.
fn drain(receiver: &mut Receiver, most: usize) -> Result<Vec<Vec<u8>>, RingError> {
    let mut all = Vec::new();
    let mut packets = Vector::new();
    // A call that is not at the end takes at least one descriptor.
    for _ in 0..=SIZE {
        receiver.receive(&mut packets, most)?;
        assert!(packets.len() <= most);
        all.extend(packets.drain(usize::MAX).map(|packet| packet.bytes().to_vec()));
    }
    Ok(all)
}

fn packets(contents: &[Vec<u8>]) -> Vec<Packet> {
    contents.iter().map(|bytes| Packet::from_bytes(bytes).unwrap()).collect()
}

#[derive(Clone, Debug)]
struct Hostile {
    flags: u16,
    region: u16,
    length: u32,
    offset: u32,
}

/// Mostly sensible descriptors, so that runs get far.
fn hostile() -> impl Strategy<Value = Hostile> {
    let length =
        prop_oneof![8 => 0..200_u32, 1 => Just(u32::MAX), 1 => Just(0x8000_0000), 1 => any::<u32>(), 1 => Just(128)];
    let offset =
        prop_oneof![8 => 0..LENGTH as u32, 1 => Just(u32::MAX), 1 => any::<u32>(), 1 => Just(LENGTH as u32 - 1)];
    let flags = prop_oneof![4 => Just(0_u16), 2 => Just(1), 1 => any::<u16>()];
    let region = prop_oneof![9 => Just(0_u16), 1 => any::<u16>()];
    (flags, region, length, offset).prop_map(|(flags, region, length, offset)| Hostile {
        flags,
        region,
        length,
        offset,
    })
}

fn side() -> impl Strategy<Value = Side> {
    prop_oneof![Just(Side::Server), Just(Side::Client)]
}

/// A step of the peer's index: mostly possible, around the end of the ring, or anything.
fn step() -> impl Strategy<Value = u16> {
    prop_oneof![8 => 0..=SIZE, 1 => Just(SIZE + 1), 1 => any::<u16>()]
}

proptest! {
    /// Whatever the other side writes, what arrives, what is counted and what the memory holds then is as in the model.
    #[test]
    fn a_receiver_is_as_the_model(
        side in side(),
        start: u16,
        most in 1_usize..9,
        rounds in vec((vec(hostile(), usize::from(SIZE)), step(), vec(any::<u8>(), 32)), 1..5),
    ) {
        let shared = Shared::new(LENGTH);
        [6, 64].into_iter().for_each(|at| shared.half(RING + at, start));
        let mut receiver = receiver(&shared, side);
        let mut model = shared.model(side, start);
        let (mut bad, mut long) = (0, 0);
        for (descriptors, step, noise) in rounds {
            for (index, hostile) in descriptors.iter().enumerate() {
                let Hostile { flags, region, length, offset } = *hostile;
                // The indices are no data, because they change between calls.
                let offset = if (offset as usize) < RING + 128 { offset + 192 } else { offset };
                shared.describe(index as u16, (flags, region, length, offset));
            }
            let contents: Vec<u8> = noise.iter().copied().cycle().take(LENGTH - BUFFERS).collect();
            shared.file.write_all_at(&contents, BUFFERS as u64).unwrap();
            let index = model.next.wrapping_add(step);
            shared.half(RING + if side == Side::Server { 6 } else { 64 }, index);
            model.bytes = shared.bytes();
            let got = drain(&mut receiver, most);
            let Some(fates) = model.receive_all() else {
                prop_assert!(matches!(got, Err(RingError::Index { .. })), "{:?}", got);
                break;
            };
            bad += fates.iter().filter(|fate| **fate == Fate::BadDescriptor).count() as u64;
            long += fates.iter().filter(|fate| **fate == Fate::TooLong).count() as u64;
            let wanted: Vec<Vec<u8>> = fates
                .into_iter()
                .filter_map(|fate| if let Fate::Delivered(packet) = fate { Some(packet) } else { None })
                .collect();
            prop_assert_eq!(got.unwrap(), wanted);
            let counts = receiver.counts();
            prop_assert_eq!((counts.bad_descriptor, counts.too_long, counts.no_buffer), (bad, long, 0));
            // The flags of the ring belong to the consumer, which is no part of the model.
            let mut there = shared.bytes();
            there[RING + 4..RING + 6].copy_from_slice(&model.bytes[RING + 4..RING + 6]);
            prop_assert!(there == model.bytes, "the memory differs");
        }
    }

    /// The same for packets to the other side.
    #[test]
    fn a_transmitter_is_as_the_model(
        side in side(),
        start: u16,
        rounds in vec((vec(hostile(), usize::from(SIZE)), step(), vec(vec(any::<u8>(), 1..300), 0..9)), 1..5),
    ) {
        let shared = Shared::new(LENGTH);
        [6, 64].into_iter().for_each(|at| shared.half(RING + at, start));
        let mut transmitter = transmitter(&shared, side);
        let mut model = shared.model(side, start);
        let mut index = start;
        for (descriptors, step, contents) in rounds {
            for (place, hostile) in descriptors.iter().enumerate() {
                let Hostile { flags, region, length, offset } = *hostile;
                // Buffers do not overlap the ring, or its descriptors would change while packets are sent.
                let offset = if (offset as usize) < BUFFERS { offset + BUFFERS as u32 } else { offset };
                shared.describe(place as u16, (flags, region, length, offset));
            }
            index = if side == Side::Server { model.next.wrapping_add(step) } else { model.next.wrapping_sub(step) };
            shared.half(RING + if side == Side::Server { 6 } else { 64 }, index);
            model.bytes = shared.bytes();
            let (count, stops) = model.send(&contents);
            match transmitter.send(&packets(&contents)) {
                Ok(taken) => prop_assert_eq!(taken.count, count),
                Err(_) => prop_assert!(stops && count == 0),
            }
            prop_assert!(shared.bytes() == model.bytes, "the memory differs");
            if stops {
                prop_assert!(transmitter.send(&packets(&[vec![1]])).is_err());
                break;
            }
        }
        let _ = index;
    }

    /// Two honest ends pass packets of all lengths in order, over the end of the indices.
    #[test]
    fn honest_ends_lose_nothing(
        to_server: bool,
        start: u16,
        contents in vec(vec(any::<u8>(), 1..900), 1..60),
    ) {
        let shared = Shared::new(LENGTH);
        [6, 64].into_iter().for_each(|at| shared.half(RING + at, start));
        let [from, to] = if to_server { [Side::Client, Side::Server] } else { [Side::Server, Side::Client] };
        // The client comes first.
        let (mut receiver, mut transmitter) = if to_server {
            let transmitter = transmitter(&shared, from);
            (receiver(&shared, to), transmitter)
        } else {
            let receiver = receiver(&shared, to);
            (receiver, transmitter(&shared, from))
        };
        let all = packets(&contents);
        let (mut sent, mut got) = (0, Vec::new());
        for _ in 0..10 * all.len() {
            sent += transmitter.send(&all[sent..]).unwrap().count;
            got.extend(drain(&mut receiver, 3).unwrap());
        }
        prop_assert_eq!(got, contents);
    }
}

/// VPP e3656776: offset and length were added in 32 bits.
#[test]
fn a_piece_beyond_the_memory_is_dropped_although_the_sum_wraps_around() {
    let shared = Shared::new(LENGTH);
    let mut receiver = receiver(&shared, Side::Server);
    for (index, (length, offset)) in
        [(0x100, 0xffff_ff80), (u32::MAX, 2), (0x8000_0000, 0x8000_0000)].into_iter().enumerate()
    {
        shared.describe(index as u16, (0, 0, length, offset));
    }
    shared.half(RING + 6, 3);
    assert!(drain(&mut receiver, 8).unwrap().is_empty());
    assert_eq!(receiver.counts().bad_descriptor, 3);
    let shared = Shared::new(LENGTH);
    shared.describe(0, (0, 0, 0x100, 0xffff_ff80));
    shared.half(RING + 6, 1);
    let error = self::transmitter(&shared, Side::Server).send(&packets(&[vec![1]])).unwrap_err();
    assert_eq!(error, RingError::Buffer { region: 0, offset: 0xffff_ff80, length: 0x100 });
}

/// VPP 76d102d1: a head behind the tail became a great number of packets, which were delivered once more.
#[test]
fn an_index_that_cannot_be_delivers_nothing_twice() {
    let shared = Shared::new(LENGTH);
    let mut receiver = receiver(&shared, Side::Server);
    (0..SIZE).for_each(|index| shared.describe(index, (0, 0, 10, BUFFERS as u32)));
    shared.half(RING + 6, 2);
    assert_eq!(drain(&mut receiver, 8).unwrap().len(), 2);
    for index in [1, 2 + SIZE + 1, 0x8000] {
        shared.half(RING + 6, index);
        assert_eq!(drain(&mut receiver, 8).unwrap_err(), RingError::Index { ours: 2, theirs: index });
    }
    shared.half(RING + 6, 2);
    assert!(drain(&mut receiver, 8).unwrap().is_empty());
}

/// DPDK before f7a52200 does not clear the flag of a descriptor that it uses again. The packets of such a chain cannot be
/// told apart, but the ring goes on, and those after it arrive.
#[test]
fn stale_flags_cost_packets_and_nothing_else() {
    let shared = Shared::new(LENGTH);
    let mut receiver = receiver(&shared, Side::Server);
    (0..SIZE).for_each(|index| shared.describe(index, (u16::from(index == 1), 0, 10, BUFFERS as u32)));
    shared.half(RING + 6, 2);
    assert_eq!(drain(&mut receiver, 8).unwrap().len(), 1, "the second one has no end");
    assert_eq!(receiver.counts().bad_descriptor, 1);
    shared.half(RING + 6, SIZE);
    assert_eq!(drain(&mut receiver, 8).unwrap().len(), usize::from(SIZE) - 2);
}

/// Our own ends write the flag of every descriptor, also after a long packet was at its place.
#[test]
fn flags_of_long_packets_do_not_stay() {
    for side in [Side::Server, Side::Client] {
        let shared = Shared::new(LENGTH);
        if side == Side::Server {
            (0..SIZE).for_each(|index| {
                shared.describe(index, (1, 0, BUFFER as u32, (BUFFERS + BUFFER * usize::from(index)) as u32))
            });
            shared.half(RING + 6, SIZE);
        }
        let mut transmitter = transmitter(&shared, side);
        assert_eq!(transmitter.send(&packets(&[vec![1; 3 * BUFFER], vec![2; 10]])).unwrap().count, 2);
        let flags: Vec<u8> = (0..4).map(|index| shared.bytes()[RING + 128 + 16 * index]).collect();
        assert_eq!(flags, [1, 1, 0, 0]);
    }
}

/// A server reads the length of an empty buffer from the descriptor, so a client must restore it.
#[test]
fn a_client_offers_whole_buffers_again() {
    let shared = Shared::new(LENGTH);
    let mut receiver = receiver(&shared, Side::Client);
    for index in 0..SIZE {
        shared.describe(index, (0, 7, 1, u32::MAX));
    }
    shared.half(RING + 64, SIZE);
    assert_eq!(drain(&mut receiver, 8).unwrap(), vec![vec![0]; usize::from(SIZE)]);
    let bytes = shared.bytes();
    let length = |index: usize| u32::from_ne_bytes(bytes[RING + 128 + 16 * index + 4..][..4].try_into().unwrap());
    assert!((0..usize::from(SIZE)).all(|index| length(index) == BUFFER as u32));
    assert_eq!(bytes[RING + 6..RING + 8], (2 * SIZE).to_ne_bytes());
}

#[test]
fn packets_longer_than_all_buffers_are_told_apart_from_those_that_wait() {
    let shared = Shared::new(LENGTH);
    let mut transmitter = transmitter(&shared, Side::Client);
    let [long, fits] = [BUFFER * usize::from(SIZE) + 1, BUFFER * usize::from(SIZE)].map(|length| vec![3; length]);
    let taken = transmitter.send(&packets(&[long])).unwrap();
    assert_eq!((taken.count, taken.stop), (0, Some(Rejection::TooLong)));
    assert_eq!(transmitter.send(&packets(&[vec![1]])).unwrap().count, 1);
    let taken = transmitter.send(&packets(&[fits])).unwrap();
    assert_eq!((taken.count, taken.stop), (0, Some(Rejection::Full)));
}

/// Long and empty chains: the work of a call is bounded by its budget and the ring.
#[test]
fn the_longest_chains_end_and_cost_their_part_of_the_budget() {
    const LONG: u8 = 14;
    let length = RING + RingSpec::length(LONG) as usize + 2_048;
    let shared = Shared::new(length);
    let spec = RingSpec { region: 0, offset: RING as u32, log2_size: LONG };
    let ring = Ring::new(spec, Side::Server, Arc::clone(&shared.regions)).unwrap();
    let mut receiver = Receiver::new(ring, None, Mode::Ethernet, None);
    // 64 chains of 256 pieces, of 2,048 bytes each.
    let mut bytes = shared.bytes();
    for index in 0..1_usize << LONG {
        let at = RING + 128 + 16 * index;
        bytes[at] = u8::from(index % 256 != 255);
        bytes[at + 4..at + 8].copy_from_slice(&2_048_u32.to_ne_bytes());
        bytes[at + 8..at + 12].copy_from_slice(&((length - 2_048) as u32).to_ne_bytes());
    }
    bytes[RING + 6..RING + 8].copy_from_slice(&(1_u16 << LONG).to_ne_bytes());
    shared.write(&bytes);
    let mut packets = Vector::new();
    receiver.receive(&mut packets, 256).unwrap();
    assert_eq!((packets.len(), receiver.counts().too_long), (0, 1), "one chain takes the whole budget");
    for _ in 0..63 {
        receiver.receive(&mut packets, 256).unwrap();
    }
    assert_eq!((packets.len(), receiver.counts().too_long), (0, 64));
}

#[test]
fn jumbo_frames_of_several_buffers_arrive_whole() {
    let shared = Shared::new(80_000);
    let mut receiver = receiver(&shared, Side::Server);
    let contents: Vec<u8> = (0..73_600_u32).map(|number| (number % 251) as u8).collect();
    shared.file.write_all_at(&contents, BUFFERS as u64).unwrap();
    for (index, length, offset) in [(0, 2_000, 0), (1, 100, 2_000), (2, 71_500, 2_100)] {
        shared.describe(index, (u16::from(index < 2), 0, length, BUFFERS as u32 + offset));
    }
    shared.half(RING + 6, 3);
    assert_eq!(drain(&mut receiver, 64).unwrap(), [contents]);
    shared.describe(3, (0, 0, 73_601, BUFFERS as u32));
    shared.half(RING + 6, 4);
    assert!(drain(&mut receiver, 64).unwrap().is_empty());
    assert_eq!(receiver.counts().too_long, 1);
}

/// The SIGBUS of a truncated file does not kill, and the rings stop.
#[test]
fn truncated_memory_stops_the_rings() {
    for side in [Side::Server, Side::Client] {
        let shared = Shared::new(3 * 4_096);
        (0..SIZE).for_each(|index| shared.describe(index, (0, 0, 100, 8_192)));
        shared.half(RING + 6, if side == Side::Server { 4 } else { 0 });
        let (mut receiver, mut transmitter) = (receiver(&shared, side), transmitter(&shared, side));
        shared.file.set_len(0).unwrap();
        let mut packets = Vector::new();
        // The first access meets the hole; from then on it is known.
        let _ = receiver.receive(&mut packets, 8);
        packets.drain(usize::MAX).for_each(drop);
        assert_eq!(receiver.receive(&mut packets, 8), Err(RingError::Truncated));
        assert_eq!(transmitter.send(&self::packets(&[vec![1]])), Err(RingError::Truncated));
    }
}

/// The word by which an engine sees packets, on both sides.
#[test]
fn the_bell_shows_the_other_sides_index() {
    for side in [Side::Server, Side::Client] {
        let shared = Shared::new(LENGTH);
        let mut receiver = receiver(&shared, side);
        let bell = receiver.bell();
        let rings = || bell.word().unwrap().load(std::sync::atomic::Ordering::Relaxed) & bell.mask() != bell.quiet();
        assert!(!rings(), "{side:?}");
        (0..SIZE).for_each(|index| shared.describe(index, (0, 0, 20, BUFFERS as u32)));
        shared.half(RING + if side == Side::Server { 6 } else { 64 }, 1);
        assert!(rings(), "{side:?}");
        assert_eq!(drain(&mut receiver, 8).unwrap().len(), 1);
        assert!(!rings(), "{side:?}");
    }
}

#[test]
fn ip_packets_travel_without_their_ethernet_header() {
    let frame = |kind: [u8; 2], first: u8| [&[2; 12][..], &kind, &[first; 30]].concat();
    let shared = Shared::new(LENGTH);
    let mut transmitter = Transmitter::new(shared.ring(Side::Client), buffers(Side::Client), Mode::Ip, None);
    let mut receiver = Receiver::new(shared.ring(Side::Server), None, Mode::Ip, None);
    let contents = [
        frame([8, 0], 0x45),
        frame([8, 6], 0x45),
        frame([0x86, 0xdd], 0x60),
        frame([8, 0], 0x60),
        vec![8; 14],
        vec![1; 3],
    ];
    assert_eq!(transmitter.send(&packets(&contents)).unwrap().count, contents.len());
    assert_eq!(transmitter.not_ip(), 4);
    let got = drain(&mut receiver, 8).unwrap();
    let wanted = [frame([8, 0], 0x45), frame([0x86, 0xdd], 0x60)].map(|mut frame| {
        frame[..12].fill(0);
        frame
    });
    assert_eq!(got, wanted);
    shared.describe(2, (0, 0, 20, BUFFERS as u32 + 1_000));
    shared.half(RING + 6, 3);
    assert!(drain(&mut receiver, 8).unwrap().is_empty());
    assert_eq!(receiver.counts().not_ip, 1);
}
