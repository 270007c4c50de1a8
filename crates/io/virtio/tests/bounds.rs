//! The burst bounds the steps of a call, whatever the driver has put into the ring: the descriptors and pieces that are
//! visited, and the bytes that are copied.

#![cfg(debug_assertions)]

mod model;

use bellows_packet::{DATA_ROOM, LARGE_DATA_ROOM, Packet, Vector};
use bellows_virtio::Features;
use bellows_virtio::ring::{ReceiveRing, STEPS_PER_CALL, STEPS_PER_PACKET, Stop, TransmitRing};

use model::features::subsets;
use model::flag::{INDIRECT, NEXT, WRITE};
use model::guest::BORDER;
use model::random::Random;
use model::raw::RawRing;

const SIZE: u16 = 512;
/// Address of the tables, across the border between two regions.
const TABLES: u64 = BORDER - 40_000;
/// Number of tables, of 1,024 entries each.
const COUNT: u64 = 4;
const BUFFERS: u64 = BORDER - 120_000;
const TABLE_LENGTH: u64 = 16 * 1_024;

/// The driver's ways to keep a device busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attack {
    /// Each packet in a table of this many buffers of one length.
    Table(u16, u32),
    /// Each packet in a chain of this many buffers in the ring.
    Chain(u16, u32),
    /// Receive buffers of one length, of which a packet takes many.
    Small(u32),
    /// Random descriptors.
    Mixed,
}

const ATTACKS: [Attack; 10] = [
    Attack::Table(1_024, 0),
    Attack::Table(1_024, 1),
    Attack::Table(256, 1),
    Attack::Table(256, 300),
    Attack::Table(100, 2),
    Attack::Chain(256, 1),
    Attack::Chain(100, 600),
    Attack::Small(13),
    Attack::Small(300),
    Attack::Mixed,
];

struct Attacker {
    ring: RawRing,
    receives: bool,
    random: Random,
}

impl Attacker {
    fn new(features: Features, receives: bool, seed: u64) -> Attacker {
        let mut random = Random::new(seed);
        Attacker { ring: RawRing::new(features, SIZE, &mut random), receives, random }
    }

    fn access(&self) -> u16 {
        if self.receives { WRITE } else { 0 }
    }

    fn write(&mut self, index: u16, address: u64, length: u32, flags: u16, next: u16) {
        self.ring.write(index, address, length, flags, next);
        self.ring.write_head(index, index);
    }

    fn entry(&mut self, table: u64, index: u16, length: u32, last: bool) {
        // Now and then a buffer across two regions.
        let address = if self.random.one_in(8) { BORDER - 1 } else { BUFFERS + self.random.next() % 20_000 };
        let flags = self.access() | if last { 0 } else { NEXT };
        self.ring.write_entry(TABLES + table * TABLE_LENGTH, index, address, length, flags, index + 1);
    }

    fn table(&mut self, table: u64, count: u16, length: u32) {
        (0..count).for_each(|index| self.entry(table, index, length, index + 1 == count));
    }

    /// Fills the ring.
    fn fill(&mut self, attack: Attack) {
        let indirect = self.ring.features.has(Features::INDIRECT_DESC);
        match attack {
            Attack::Table(count, length) => {
                (0..COUNT).for_each(|table| self.table(table, count, length));
                for index in 0..SIZE {
                    let table = TABLES + u64::from(index) % COUNT * TABLE_LENGTH;
                    self.write(index, table, 16 * u32::from(count), INDIRECT, 0);
                }
            }
            Attack::Chain(count, length) => {
                for index in 0..SIZE {
                    let flags = self.access() | if (index + 1) % count == 0 || index + 1 == SIZE { 0 } else { NEXT };
                    self.write(index, BUFFERS, length, flags, index + 1);
                }
            }
            Attack::Small(length) => (0..SIZE).for_each(|index| self.write(index, BUFFERS, length, self.access(), 0)),
            Attack::Mixed => {
                for table in 0..COUNT {
                    let count = self.random.of(&[1, 2, 3, 17, 255, 1_024]);
                    let length = self.random.of(&[1, 12, 64, 1_526, 4_096]);
                    self.table(table, count, length);
                }
                for index in 0..SIZE {
                    let length = self.random.of(&[1, 12, 13, 72, 1_526, 65_550]);
                    if indirect && self.random.one_in(2) {
                        let table = TABLES + self.random.next() % COUNT * TABLE_LENGTH;
                        let entries = self.random.of(&[1, 2, 3, 17, 255, 1_024]);
                        self.write(index, table, 16 * entries, INDIRECT, 0);
                    } else {
                        let more = index + 1 < SIZE && self.random.one_in(2);
                        let flags = self.access() | if more { NEXT } else { 0 };
                        self.write(index, BUFFERS, length, flags, index + 1);
                    }
                }
            }
        }
        self.ring.write_index(SIZE);
    }
}

fn feature_sets() -> Vec<Features> {
    let bits = [Features::RING_PACKED, Features::MRG_RXBUF, Features::IN_ORDER, Features::INDIRECT_DESC];
    subsets(&bits).map(|set| set | Features::VERSION_1).collect()
}

fn bound(burst: usize) -> u64 {
    (STEPS_PER_PACKET * burst + STEPS_PER_CALL) as u64
}

#[test]
fn no_ring_makes_a_call_look_at_more_than_its_burst_allows() {
    let mut worst = 0;
    for (seed, features) in (1..).zip(feature_sets()) {
        for attack in ATTACKS {
            for burst in [1, 7, 32, 128] {
                let mut attacker = Attacker::new(features, false, seed);
                attacker.fill(attack);
                let mut ring = TransmitRing::new(attacker.ring.setup()).unwrap();
                let mut bytes = 0;
                for _ in 0..8 {
                    let (before, mut packets) = (ring.steps(), Vector::new());
                    let result = ring.transmit(&mut packets, burst);
                    let steps = ring.steps() - before;
                    assert!(steps <= bound(burst), "{steps} steps, {attack:?}, burst {burst}, {features}");
                    worst = worst.max(steps);
                    let copied = ring.counters().bytes - bytes;
                    bytes = ring.counters().bytes;
                    assert!(
                        copied <= (burst * DATA_ROOM + LARGE_DATA_ROOM) as u64,
                        "{copied} bytes, {attack:?}, {features}"
                    );
                    assert!(ring.spent() < burst + STEPS_PER_CALL && ring.spent() >= packets.len());
                    if result.is_err() {
                        break;
                    }
                }
            }
        }
    }
    assert!(worst > 2 * 128 + 256, "the attacks do not come near the bound: {worst} steps");
}

#[test]
fn a_receive_call_is_bounded_too() {
    let mut worst = 0;
    for (seed, features) in (1..).zip(feature_sets()) {
        for attack in ATTACKS {
            for (burst, length) in [(1, 1_500), (7, 60), (32, 9_000), (128, 1_500)] {
                let mut attacker = Attacker::new(features, true, seed);
                attacker.fill(attack);
                let mut ring = ReceiveRing::new(attacker.ring.setup()).unwrap();
                let packets: Vec<Packet> = (0..burst).map(|_| Packet::from_bytes(&vec![7; length]).unwrap()).collect();
                let mut bytes = 0;
                for _ in 0..8 {
                    let before = ring.steps();
                    let result = ring.receive(&packets);
                    let steps = ring.steps() - before;
                    assert!(steps <= bound(burst), "{steps} steps, {attack:?}, burst {burst}, {features}");
                    worst = worst.max(steps);
                    let copied = ring.counters().bytes - bytes;
                    bytes = ring.counters().bytes;
                    let most = burst.max(burst * DATA_ROOM / length) * length + burst * DATA_ROOM + LARGE_DATA_ROOM;
                    assert!(copied <= most as u64, "{copied} bytes, {attack:?}, {features}");
                    match result {
                        Err(_) => break,
                        Ok(taken) => assert!(taken.stop != Stop::Spent || ring.spent() >= burst),
                    }
                }
            }
        }
    }
    assert!(worst > 2 * 128 + 256, "the attacks do not come near the bound: {worst} steps");
}
