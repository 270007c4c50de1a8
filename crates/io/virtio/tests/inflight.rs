//! A device that is killed between any two stores of a batch has a successor that continues: every chain comes back
//! once, with the right id and length.

#![cfg(debug_assertions)]

use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use bellows_ipc::memfd;
use bellows_packet::{Packet, Vector, pool};
use bellows_virtio::inflight::{Inflight, InflightRegion, RingAccess, kill};
use bellows_virtio::ring::{Areas, Position, ReceiveRing, Setup, TransmitRing};
use bellows_virtio::{Features, Memory, RegionSpec};

const SIZE: u16 = 8;
const LENGTH: u64 = 1 << 16;
/// Offsets: descriptors, the two suppression areas, and a buffer of 256 bytes for each descriptor.
const DRIVER: u64 = 256;
const DEVICE: u64 = 512;
const BUFFERS: u64 = 4096;

const NEXT: u16 = 1;
const WRITE: u16 = 2;
const AVAIL: u16 = 1 << 7;
const USED: u16 = 1 << 15;

fn buffer(descriptor: u16) -> u64 {
    BUFFERS + 256 * u64::from(descriptor)
}

/// Descriptors of the ring, counted without wrapping.
fn place(count: u64) -> (u16, bool) {
    ((count % u64::from(SIZE)) as u16, (count / u64::from(SIZE)).is_multiple_of(2))
}

/// The driver's side of a packed ring.
struct Driver {
    file: File,
    receives: bool,
    in_order: bool,
    made: u64,
    reaped: u64,
    /// Chains that the device has: id, descriptors.
    chains: VecDeque<(u16, u64)>,
    next_id: u16,
}

impl Driver {
    fn write(&self, at: u64, bytes: &[u8]) {
        self.file.write_all_at(bytes, at).unwrap();
    }

    fn read<const N: usize>(&self, at: u64) -> [u8; N] {
        let mut bytes = [0; N];
        self.file.read_exact_at(&mut bytes, at).unwrap();
        bytes
    }

    /// Makes a chain of one or two descriptors available, if there is room.
    fn make_available(&mut self, descriptors: u64) -> bool {
        if self.made + descriptors > self.reaped + u64::from(SIZE) {
            return false;
        }
        let id = self.next_id;
        self.next_id = (id + 1) % 100;
        let mut words = Vec::new();
        for number in 0..descriptors {
            let (index, wrap) = place(self.made + number);
            let last = number + 1 == descriptors;
            let length: u32 = if descriptors == 2 && number == 0 { 12 } else { 200 };
            let flags =
                if last { 0 } else { NEXT } | if self.receives { WRITE } else { 0 } | if wrap { AVAIL } else { USED };
            let at = 16 * u64::from(index);
            self.write(at, &buffer(index).to_le_bytes());
            self.write(at + 8, &length.to_le_bytes());
            self.write(at + 12, &id.to_le_bytes());
            // A header without an offload.
            self.write(buffer(index), &[0; 12]);
            words.push((at + 14, flags));
        }
        // The first one makes the others visible.
        words.into_iter().rev().for_each(|(at, flags)| self.write(at, &flags.to_le_bytes()));
        self.chains.push_back((id, descriptors));
        self.made += descriptors;
        true
    }

    /// Takes back the used chains. Returns their number.
    fn reap(&mut self) -> usize {
        let mut count = 0;
        loop {
            let (index, wrap) = place(self.reaped);
            let at = 16 * u64::from(index);
            let flags = u16::from_le_bytes(self.read(at + 14));
            if flags & (AVAIL | USED) != if wrap { AVAIL | USED } else { 0 } {
                return count;
            }
            let (id, length) = (u16::from_le_bytes(self.read(at + 12)), u32::from_le_bytes(self.read(at + 8)));
            // With in-order, one entry stands for all up to its id.
            loop {
                let (expected, descriptors) = self.chains.pop_front().expect("a chain comes back that is not there");
                let (first, _) = place(self.reaped);
                self.reaped += descriptors;
                count += 1;
                if expected == id {
                    self.check(first, descriptors, length);
                    break;
                }
                assert!(self.in_order && !self.receives, "chain {id} came back in place of {expected}");
            }
        }
    }

    /// Checks the reported length against the contents of the buffer: a packet's first byte gives its length.
    fn check(&self, first: u16, descriptors: u64, length: u32) {
        if !self.receives {
            return;
        }
        let data = if descriptors == 1 { buffer(first) + 12 } else { buffer((first + 1) % SIZE) };
        let packet: [u8; 100] = self.read(data);
        assert_eq!(length, 12 + u32::from(packet[0]), "the length of what was received");
        assert!(packet[..usize::from(packet[0])].iter().all(|byte| *byte == packet[0]));
    }
}

impl RingAccess for Driver {
    fn used_index(&self) -> Option<u16> {
        None
    }

    fn flags(&self, index: u16) -> Option<u16> {
        Some(u16::from_le_bytes(self.read(16 * u64::from(index) + 14)))
    }

    fn write_used(&self, index: u16, word: u64) {
        self.write(16 * u64::from(index) + 8, &word.to_le_bytes());
    }
}

enum Device {
    Receive(ReceiveRing),
    Transmit(TransmitRing),
}

impl Device {
    /// A device that takes over from another.
    fn start(driver: &Driver, region: &Arc<InflightRegion>, features: Features) -> Device {
        let inflight = Inflight::new(region, 0, features, SIZE).unwrap();
        let position = inflight.resume(SIZE, Position::start(features), driver);
        let spec = RegionSpec { guest: 0, length: LENGTH, user: 0, offset: 0, file: driver.file.try_clone().unwrap() };
        let setup = Setup {
            memory: Arc::new(Memory::map(vec![spec]).unwrap()),
            features,
            size: SIZE,
            areas: Areas { descriptors: 0, driver: DRIVER, device: DEVICE },
            position,
            call: None,
            kick: None,
        };
        if driver.receives {
            let mut ring = ReceiveRing::new(setup).unwrap();
            ring.set_inflight(Some(inflight));
            Device::Receive(ring)
        } else {
            let mut ring = TransmitRing::new(setup).unwrap();
            ring.set_inflight(Some(inflight));
            Device::Transmit(ring)
        }
    }

    /// One batch. Packets have `length` bytes of this value.
    fn work(&mut self, length: u8) {
        match self {
            Device::Receive(ring) => {
                let packet = || Packet::from_bytes(&vec![length; length.into()]).unwrap();
                ring.receive(&[packet(), packet(), packet()]).unwrap();
            }
            Device::Transmit(ring) => {
                ring.transmit(&mut Vector::new(), 3).unwrap();
            }
        }
    }
}

/// Kills a device before store number `stores` of those that matter. False if it makes fewer.
fn kill_and_continue(features: Features, receives: bool, stores: usize, rounds: u64, looks_between: bool) -> bool {
    let file = memfd::create(LENGTH).unwrap();
    let in_order = features.has(Features::IN_ORDER);
    let mut driver = Driver { file, receives, in_order, made: 0, reaped: 0, chains: VecDeque::new(), next_id: 7 };
    let region_file = InflightRegion::create(1, SIZE).unwrap();
    let map = || Arc::new(InflightRegion::map(&region_file, 0, InflightRegion::length(1, SIZE), 1, SIZE).unwrap());
    let mut device = Device::start(&driver, &map(), features);
    // At a different position in the ring each time, so that batches wrap around its end.
    for round in 0..rounds {
        driver.make_available(1 + round % 2);
        device.work(50);
        assert_eq!(driver.reap(), 1);
    }
    [1, 2, 1, 2].into_iter().for_each(|descriptors| assert!(driver.make_available(descriptors)));
    kill::after(Some(stores));
    let killed = catch_unwind(AssertUnwindSafe(|| device.work(60))).is_err();
    kill::after(None);
    drop(device);

    let mut back = 0;
    if looks_between {
        back += driver.reap();
        while driver.make_available(1) {}
    }
    let mut successor = Device::start(&driver, &map(), features);
    let total = driver.chains.len() + back;
    for length in 70..80 {
        successor.work(length);
        back += driver.reap();
    }
    assert_eq!((back, driver.chains.len()), (total, 0), "all chains come back");
    killed
}

#[test]
fn a_successor_continues_after_any_last_store() {
    pool::ensure().unwrap();
    std::panic::set_hook(Box::new(|_| ()));
    let result = catch_unwind(|| {
        for options in [Features::NONE, Features::IN_ORDER, Features::MRG_RXBUF] {
            let features = Features::VERSION_1 | Features::RING_PACKED | options;
            for receives in [false, true] {
                for rounds in 0..12 {
                    for looks_between in [false, true] {
                        let mut stores = 0;
                        while kill_and_continue(features, receives, stores, rounds, looks_between) {
                            stores += 1;
                            assert!(stores < 1_000, "the device never gets to its last store");
                        }
                        let least = if options == Features::IN_ORDER && !receives { 4 } else { 8 };
                        assert!(stores >= least, "only {stores} stores, receive: {receives}, {features}");
                    }
                }
            }
        }
    });
    let _ = std::panic::take_hook();
    if let Err(cause) = result {
        std::panic::resume_unwind(cause);
    }
}
