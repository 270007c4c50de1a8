//! Drivers that violate the specification, by mistake or to attack the device: each stops its ring with an error that
//! names the violation, and does no other harm.

mod model;

use std::collections::BTreeSet;
use std::fs::File;
use std::sync::Arc;

use bellows_ipc::memfd;
use bellows_packet::{Offload, Packet, Vector, pool};
use bellows_testkit::wait::meanwhile;
use bellows_virtio::ring::{Areas, Counters, Position, ReceiveRing, RingError, Setup, SetupError, Taken, TransmitRing};
use bellows_virtio::{Features, Memory, RegionSpec};

use model::descriptor;
use model::features::subsets;
use model::flag::{AVAIL, INDIRECT, NEXT, WRITE};
use model::guest::{BORDER, NOWHERE};
use model::random::Random;
use model::raw::RawRing;

const SIZE: u16 = 8;
/// A buffer inside one region, and one that ends with the memory.
const BUFFER: u64 = BORDER - 20_000;
const LAST: u64 = BORDER + (128 << 10) - 100;
/// Address for tables.
const TABLE: u64 = BUFFER + 10_000;

/// A driver that writes anything into its ring.
struct Rogue {
    ring: RawRing,
}

impl Rogue {
    fn new(features: Features) -> Rogue {
        Rogue { ring: RawRing::new(features, SIZE, &mut Random::new(1)) }
    }

    fn write(&mut self, index: u16, address: u64, length: u32, flags: u16, next: u16) {
        self.ring.write(index, address, length, flags, next);
    }

    /// An entry of the table.
    fn entry(&mut self, index: u16, address: u64, length: u32, flags: u16, next: u16) {
        self.ring.write_entry(TABLE, index, address, length, flags, next);
    }

    /// Makes a head available, and sets the number of heads. In a packed ring descriptors make themselves available.
    fn offer(&mut self, head: u16, count: u16) {
        self.ring.write_head(0, head);
        self.ring.write_index(count);
    }

    /// Lets a device transmit once.
    fn transmit(&self) -> (Result<usize, RingError>, Vector, Counters) {
        let mut ring = TransmitRing::new(self.ring.setup()).unwrap();
        let mut packets = Vector::new();
        let result = ring.transmit(&mut packets, 32);
        if result.is_err() {
            assert_eq!(ring.transmit(&mut packets, 32), result, "a ring that was stopped stays so");
            assert_eq!(ring.error(), result.err());
            assert!(packets.is_empty());
        }
        (result, packets, ring.counters())
    }

    /// Lets a device receive one packet.
    fn receive(&self, length: usize) -> Result<Taken, RingError> {
        let mut ring = ReceiveRing::new(self.ring.setup()).unwrap();
        let packets = [Packet::from_bytes(&vec![7; length]).unwrap()];
        let result = ring.receive(&packets);
        if result.is_err() {
            assert_eq!(ring.receive(&packets), result, "a ring that was stopped stays so");
            assert_eq!(ring.error(), result.err());
        }
        result
    }

    /// The device may change its notification area; nothing else may have changed.
    fn check_untouched(&mut self) {
        self.ring.guest.accept(self.ring.areas.device, if self.ring.packed() { 4 } else { 2 });
        if !self.ring.packed() && self.ring.features.has(Features::EVENT_IDX) {
            self.ring.guest.accept(self.ring.areas.device + 4 + 8 * u64::from(SIZE), 2);
        }
        self.ring.guest.check();
    }
}

/// A violation: its name, its code, and the device's error.
type Crime = (&'static str, fn(&mut Rogue, u16), RingError);

/// Violations that are the same for both ring formats; the second argument is the access flag that the direction needs.
const ANYWHERE: &[Crime] = &[
    ("a buffer outside the memory", |it, ok| it.write(0, NOWHERE, 100, ok, 0), RingError::OutsideMemory),
    ("a buffer that ends outside", |it, ok| it.write(0, LAST, 101, ok, 0), RingError::OutsideMemory),
    (
        "a buffer over the end of all addresses",
        |it, ok| it.write(0, u64::MAX - 9, 100, ok, 0),
        RingError::OutsideMemory,
    ),
    ("a buffer of 4 GiB", |it, ok| it.write(0, BUFFER, u32::MAX, ok, 0), RingError::OutsideMemory),
    (
        "a second buffer outside",
        |it, ok| {
            it.write(0, BUFFER, 20, ok | NEXT, 1);
            it.write(1, NOWHERE, 20, ok, 0);
        },
        RingError::OutsideMemory,
    ),
    (
        "a chain without end",
        |it, ok| (0..SIZE).for_each(|index| it.write(index, BUFFER, 20, ok | NEXT, (index + 1) % SIZE)),
        RingError::ChainTooLong,
    ),
    ("a header cut short", |it, ok| it.write(0, BUFFER, 9, ok, 0), RingError::NoHeader),
    ("nothing at all", |it, ok| it.write(0, BUFFER, 0, ok, 0), RingError::EmptyBuffer),
    (
        "nothing behind a header",
        |it, ok| {
            it.write(0, BUFFER, 12, ok | NEXT, 1);
            it.write(1, BUFFER, 0, ok, 0);
        },
        RingError::EmptyBuffer,
    ),
    (
        "a chain that is shorter than the header",
        |it, ok| {
            it.write(0, BUFFER, 4, ok | NEXT, 1);
            it.write(1, BUFFER + 4, 5, ok, 0);
        },
        RingError::NoHeader,
    ),
];

const SPLIT: &[Crime] = &[
    (
        "an index too far ahead",
        |it, ok| {
            it.write(0, BUFFER, 100, ok, 0);
            it.offer(0, SIZE + 1);
        },
        RingError::IndexJump,
    ),
    ("an index that went back", |it, _| it.offer(0, u16::MAX), RingError::IndexJump),
    ("a head beyond the ring", |it, _| it.offer(SIZE, 1), RingError::NoSuchDescriptor),
    ("a link beyond the ring", |it, ok| it.write(0, BUFFER, 20, ok | NEXT, SIZE), RingError::NoSuchDescriptor),
    ("a chain that bites its tail", |it, ok| it.write(0, BUFFER, 20, ok | NEXT, 0), RingError::ChainTooLong),
];

/// With tables.
const TABLES: &[Crime] = &[
    ("a table outside the memory", |it, _| it.write(0, NOWHERE, 32, INDIRECT, 0), RingError::IndirectOutsideMemory),
    ("a table that ends outside", |it, _| it.write(0, LAST, 112, INDIRECT, 0), RingError::IndirectOutsideMemory),
    (
        "a table over the end of all addresses",
        |it, _| it.write(0, u64::MAX - 15, 32, INDIRECT, 0),
        RingError::IndirectOutsideMemory,
    ),
    ("a table of nothing", |it, _| it.write(0, TABLE, 0, INDIRECT, 0), RingError::IndirectLength),
    ("a table of half an entry", |it, _| it.write(0, TABLE, 24, INDIRECT, 0), RingError::IndirectLength),
    ("a table that is too long", |it, _| it.write(0, TABLE, 16 * 1025, INDIRECT, 0), RingError::IndirectLength),
    ("a table of 4 GiB", |it, _| it.write(0, TABLE, !15, INDIRECT, 0), RingError::IndirectLength),
    (
        "a table in the middle of a chain",
        |it, ok| {
            it.entry(0, BUFFER, 100, ok, 0);
            it.write(0, TABLE, 16, INDIRECT | NEXT, 1);
            it.write(1, BUFFER, 100, ok, 0);
        },
        RingError::IndirectNested,
    ),
    (
        "a table in a table",
        |it, _| {
            it.entry(0, TABLE, 16, INDIRECT, 0);
            it.write(0, TABLE, 16, INDIRECT, 0);
        },
        RingError::IndirectNested,
    ),
    (
        "a table of more buffers than a packet has",
        |it, ok| {
            (0..257).for_each(|index| it.entry(index, BUFFER, 1, ok | NEXT, index + 1));
            it.entry(257, BUFFER, 100, ok, 0);
            it.write(0, TABLE, 16 * 258, INDIRECT, 0);
        },
        RingError::TooManyPieces,
    ),
    (
        "a table of 1,024 empty buffers",
        |it, ok| {
            (0..1_023).for_each(|index| it.entry(index, BUFFER, 0, ok | NEXT, index + 1));
            it.entry(1_023, BUFFER, 100, ok, 0);
            it.write(0, TABLE, 16 * 1_024, INDIRECT, 0);
        },
        RingError::EmptyBuffer,
    ),
    (
        "a buffer outside the memory, in a table",
        |it, ok| {
            it.entry(0, NOWHERE, 100, ok, 0);
            it.write(0, TABLE, 16, INDIRECT, 0);
        },
        RingError::OutsideMemory,
    ),
];

const SPLIT_TABLES: &[Crime] = &[
    (
        "an entry that leads to itself",
        |it, ok| {
            it.entry(0, BUFFER, 20, ok | NEXT, 0);
            it.write(0, TABLE, 64, INDIRECT, 0);
        },
        RingError::ChainTooLong,
    ),
    (
        "entries that lead to each other",
        |it, ok| {
            it.entry(0, BUFFER, 20, ok | NEXT, 1);
            it.entry(1, BUFFER, 20, ok | NEXT, 0);
            it.write(0, TABLE, 64, INDIRECT, 0);
        },
        RingError::ChainTooLong,
    ),
    (
        "a link beyond the table",
        |it, ok| {
            it.entry(0, BUFFER, 20, ok | NEXT, 2);
            it.write(0, TABLE, 32, INDIRECT, 0);
        },
        RingError::NoSuchDescriptor,
    ),
];

/// Every set of features with a different instance of the loop. Packed rings need version 1.
fn feature_sets() -> Vec<Features> {
    let bits = [
        Features::MRG_RXBUF,
        Features::IN_ORDER,
        Features::EVENT_IDX,
        Features::INDIRECT_DESC,
        Features::CSUM | Features::GUEST_CSUM,
    ];
    let split: Vec<Features> = subsets(&bits).map(|set| set | Features::VERSION_1).collect();
    let packed = split.iter().map(|set| *set | Features::RING_PACKED);
    let legacy =
        split.iter().map(|set| (*set | Features::ANY_LAYOUT).without(Features::VERSION_1 | Features::IN_ORDER));
    split.iter().copied().chain(packed).chain(legacy).collect()
}

#[test]
fn every_crime_stops_the_ring_and_is_named() {
    let mut named = BTreeSet::new();
    for features in feature_sets() {
        let (packed, indirect) = (features.has(Features::RING_PACKED), features.has(Features::INDIRECT_DESC));
        let mut crimes = ANYWHERE.to_vec();
        crimes.extend((!packed).then_some(SPLIT).into_iter().flatten());
        crimes.extend(indirect.then_some(TABLES).into_iter().flatten());
        crimes.extend((indirect && !packed).then_some(SPLIT_TABLES).into_iter().flatten());
        if !indirect {
            crimes.push((
                "a table that was not negotiated",
                |it, _| it.write(0, TABLE, 32, INDIRECT, 0),
                RingError::IndirectNotNegotiated,
            ));
        }
        for (what, commit, expected) in crimes {
            for receive in [false, true] {
                let mut rogue = Rogue::new(features);
                let access = if receive { WRITE } else { 0 };
                // There are good buffers after it.
                (1..SIZE).for_each(|index| rogue.write(index, BUFFER, 6_000, access, 0));
                rogue.ring.guest.write_u16(rogue.ring.areas.driver + 6, SIZE - 1);
                rogue.offer(0, 2);
                commit(&mut rogue, access);
                let error = match receive {
                    true => rogue.receive(5_000).err(),
                    false => rogue.transmit().0.err(),
                };
                assert_eq!(error, Some(expected), "{what}, receive: {receive}, {features}");
                rogue.check_untouched();
                named.insert(expected.name());
            }
        }
        // The device may not read what it must write, nor write what it must read.
        for (flags, receive, expected) in
            [(WRITE, false, RingError::WriteOnlyBuffer), (0, true, RingError::ReadOnlyBuffer)]
        {
            let mut rogue = Rogue::new(features);
            rogue.write(0, BUFFER, 100, flags, 0);
            rogue.offer(0, 1);
            let error = if receive { rogue.receive(60).err() } else { rogue.transmit().0.err() };
            assert_eq!(error, Some(expected), "{features}");
            rogue.check_untouched();
            named.insert(expected.name());
        }
    }
    named.insert(RingError::MemoryGone.name());
    let all: BTreeSet<&str> = RingError::ALL.iter().map(|error| error.name()).collect();
    assert_eq!(named, all, "the memory that goes has a test of its own");
}

/// DPDK's driver sets up its tables this way, and never changes the flags of the header.
#[test]
fn a_packed_table_may_say_that_the_header_can_be_written() {
    let mut rogue = Rogue::new(Features::VERSION_1 | Features::RING_PACKED | Features::INDIRECT_DESC);
    rogue.write(0, TABLE, 48, INDIRECT, 0);
    rogue.entry(0, BUFFER, 12, WRITE, 0);
    rogue.entry(1, BUFFER + 12, 100, 0, 0);
    rogue.entry(2, BUFFER + 112, 50, 0, 0);
    let (result, packets, _) = rogue.transmit();
    assert_eq!(result, Ok(1));
    assert_eq!(packets.as_slice()[0].bytes(), &rogue.ring.guest.read(BUFFER + 12, 150)[..]);
}

#[test]
fn packets_before_the_violation_are_delivered() {
    let mut rogue = Rogue::new(Features::VERSION_1);
    rogue.write(0, BUFFER, 112, 0, 0);
    rogue.write(1, NOWHERE, 100, 0, 0);
    rogue.offer(0, 2);
    rogue.ring.guest.write_u16(rogue.ring.areas.driver + 6, 1);
    let mut ring = TransmitRing::new(rogue.ring.setup()).unwrap();
    let mut packets = Vector::new();
    assert_eq!(ring.transmit(&mut packets, 32), Ok(1));
    assert_eq!(packets.as_slice()[0].bytes(), &rogue.ring.guest.read(BUFFER + 12, 100)[..]);
    assert_eq!(ring.transmit(&mut packets, 32), Err(RingError::OutsideMemory));
    assert_eq!(rogue.ring.guest.read_u16(rogue.ring.areas.device + 2), 1, "the first one is used");
}

#[test]
fn invalid_packets_are_dropped_and_counted_and_the_ring_continues() {
    for features in feature_sets() {
        let header = model::chains::header_length(features) as u32;
        let cases: [fn(&mut Rogue, u32); 3] = [
            // No data after the header.
            |it, header| it.write(0, BUFFER, header, 0, 0),
            // More than the maximum packet: the whole region, several times.
            |it, _| {
                let last = SIZE - 1;
                (0..last).for_each(|index| it.write(index, BUFFER - 100_000, 100_000, NEXT, index + 1));
                it.write(last, BUFFER - 100_000, 100_000, 0, 0);
            },
            // A checksum after the packet's end.
            |it, header| {
                let mut bytes = vec![Offload::NEEDS_CHECKSUM, 0, 0, 0, 0, 0, 200, 0, 0, 0];
                bytes.resize(header as usize, 0);
                it.ring.guest.write(BUFFER, &bytes);
                it.write(0, BUFFER, header + 60, 0, 0);
            },
        ];
        for (number, case) in cases.into_iter().enumerate() {
            let mut rogue = Rogue::new(features);
            case(&mut rogue, header);
            rogue.offer(0, 1);
            let (result, packets, counters) = rogue.transmit();
            assert_eq!(result, Ok(1), "case {number}, {features}");
            let counted = [counters.empty, counters.too_long, counters.bad_header];
            if number == 2 && !features.has(Features::CSUM) {
                // A header without negotiated offloads is ignored.
                assert_eq!((packets.len(), counted), (1, [0; 3]), "{features}");
                assert_eq!(packets.as_slice()[0].offload(), None);
            } else {
                let mut expected = [0; 3];
                expected[number] = 1;
                assert_eq!((packets.len(), counted), (0, expected), "{features}");
            }
        }
    }
}

#[test]
fn rings_that_cannot_be_are_refused() {
    let rogue = Rogue::new(Features::VERSION_1);
    let good = rogue.ring.areas;
    let attempt = |change: &dyn Fn(&mut Setup)| {
        let mut setup = rogue.ring.setup();
        change(&mut setup);
        TransmitRing::new(setup).err()
    };
    assert_eq!(attempt(&|_| ()), None);
    for size in [0, 3, 7, 40_000] {
        assert_eq!(attempt(&|setup| setup.size = size), Some(SetupError::Size { size }));
    }
    for (area, alignment, change) in [
        ("descriptor", 16, (|areas| &mut areas.descriptors) as fn(&mut Areas) -> &mut u64),
        ("driver", 2, |areas| &mut areas.driver),
        ("device", 4, |areas| &mut areas.device),
    ] {
        for address in [NOWHERE, LAST - 12 + 100, u64::MAX - 15, 0] {
            let address = address / alignment * alignment;
            let error = attempt(&|setup| *change(&mut setup.areas) = address);
            assert_eq!(error, Some(SetupError::Outside { area, address }));
        }
        let mut areas = good;
        let address = *change(&mut areas) + 1;
        let error = attempt(&|setup| *change(&mut setup.areas) += 1);
        assert_eq!(error, Some(SetupError::Alignment { area, address, alignment }));
    }
    let packed = Features::VERSION_1 | Features::RING_PACKED;
    let error = attempt(&|setup| {
        setup.features = packed;
        setup.position = Position::from_base(packed, u32::from(SIZE));
    });
    assert_eq!(error, Some(SetupError::Position { index: SIZE, size: SIZE }));
    let error = attempt(&|setup| setup.position = Position::start(packed));
    assert!(matches!(error, Some(SetupError::Position { .. })), "a position of the other kind of ring");
    let error = attempt(&|setup| setup.features = Features::RING_PACKED);
    assert!(matches!(error, Some(SetupError::Conflict(_))));
}

/// A thread writes anything anywhere while the device works. What it hits is random; the memory mostly contains a valid
/// ring, so that much code is reached.
#[test]
fn memory_that_changes_while_the_device_reads_it_does_no_harm() {
    for (number, features) in feature_sets().into_iter().enumerate().filter(|(number, _)| number % 3 == 0) {
        let mut rogue = Rogue::new(features);
        let receive = number % 2 == 0;
        let access = if receive { WRITE } else { 0 };
        let (memory, areas) = (Arc::clone(&rogue.ring.guest.memory), rogue.ring.areas);
        let mut scribbles = Random::new(3);
        meanwhile(
            || scribble(&memory, areas, &mut scribbles),
            || {
                let mut random = Random::new(2);
                let packets: Vec<Packet> =
                    [60, 1500, 3000].iter().map(|&length| Packet::from_bytes(&vec![7; length]).unwrap()).collect();
                for round in 0..300 {
                    for index in 0..SIZE {
                        let flags = random.of(&[0, 0, NEXT, INDIRECT]) | access;
                        let address = random.of(&[BUFFER, TABLE, LAST, BORDER - 100]);
                        rogue.write(index, address, random.of(&[16, 64, 112, 2000]), flags, random.word() % SIZE);
                    }
                    rogue.offer(round % SIZE, SIZE);
                    // The other thread may make more and more available: no call may depend on it to stop.
                    if receive {
                        let mut ring = ReceiveRing::new(rogue.ring.setup()).unwrap();
                        let mut receive = || ring.receive(&packets).is_ok_and(|taken| taken.count > 0);
                        (0..100).all(|_| receive());
                    } else {
                        let mut ring = TransmitRing::new(rogue.ring.setup()).unwrap();
                        let mut transmit = || ring.transmit(&mut Vector::new(), 32).is_ok_and(|count| count > 0);
                        (0..100).all(|_| transmit());
                    }
                }
            },
        );
    }
}

/// Writes a random word into the ring, and sometimes anywhere.
fn scribble(memory: &Memory, areas: Areas, random: &mut Random) {
    let address = match random.between(0, 3) {
        0 => areas.descriptors + random.between(0, 16 * usize::from(SIZE) - 2) as u64,
        1 => areas.driver + random.between(0, 4 + 2 * usize::from(SIZE)) as u64,
        2 => TABLE + random.between(0, 110) as u64,
        _ => BUFFER + random.between(0, 15_000) as u64,
    };
    let value = random.of(&[0, 1, 2, 4, 0x80, 0x8080, 0xffff]) ^ (random.word() & 3);
    let host = memory.translate(address, 2).unwrap();
    // SAFETY: both bytes are mapped; the device reads them through atomics and volatile accesses.
    unsafe { host.cast::<[u8; 2]>().write_volatile(value.to_le_bytes()) };
}

/// The driver's process truncates the file while the device works: the device's process survives, and the ring stops.
#[test]
fn memory_that_is_taken_away_stops_the_ring() {
    for features in [Features::VERSION_1, Features::VERSION_1 | Features::RING_PACKED] {
        for receive in [false, true] {
            pool::ensure().unwrap();
            let file = memfd::create(1 << 20).unwrap();
            let (mut ring, packet) = ring_in(&file, features, receive);
            // The rings are on the first pages, which stay; the buffer is not.
            file.set_len(64 << 10).unwrap();
            let first = ring(&packet);
            assert!(matches!(first, None | Some(RingError::MemoryGone)), "{first:?}");
            assert_eq!(ring(&packet), Some(RingError::MemoryGone));
        }
    }
}

type Turn = Box<dyn FnMut(&Packet) -> Option<RingError>>;

/// A ring with one buffer at the end of a file of 1 MiB, and a function that lets the device work on it.
fn ring_in(file: &File, features: Features, receive: bool) -> (Turn, Packet) {
    use std::os::unix::fs::FileExt;
    const START: u64 = 0x1000_0000;
    let copy = file.try_clone().unwrap();
    let spec = RegionSpec { guest: START, length: 1 << 20, user: START, offset: 0, file: copy };
    let memory = Arc::new(Memory::map(vec![spec]).unwrap());
    let flags = if receive { WRITE } else { 0 };
    let words = if features.has(Features::RING_PACKED) { [0, flags | AVAIL] } else { [flags, 0] };
    file.write_all_at(&descriptor(START + (1 << 19), 1000, words), 0).unwrap();
    // Flags, the index 1, and the head 0.
    file.write_all_at(&[0, 0, 1, 0, 0, 0], 4096).unwrap();
    let setup = Setup {
        memory,
        features,
        size: SIZE,
        areas: Areas { descriptors: START, driver: START + 4096, device: START + 8192 },
        position: Position::start(features),
        call: None,
        kick: None,
    };
    let packet = Packet::from_bytes(&[7; 60]).unwrap();
    if receive {
        let mut ring = ReceiveRing::new(setup).unwrap();
        (Box::new(move |packet| ring.receive(&[packet.copy().unwrap()]).err()), packet)
    } else {
        let mut ring = TransmitRing::new(setup).unwrap();
        (Box::new(move |_| ring.transmit(&mut Vector::new(), 32).err()), packet)
    }
}
