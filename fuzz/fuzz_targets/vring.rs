//! Arbitrary bytes as a driver's memory and its writes there: rings of both formats, both directions and every relevant
//! set of options. Nothing panics, loops forever, or accesses memory outside the driver's; received packets have valid
//! lengths.
//!
//! `RingInput` describes the input format.

#![no_main]

use std::cell::RefCell;
use std::sync::Arc;

use bellows_adversary::{REGION, RingInput, START};
use bellows_packet::{Offload, Packet, Vector, pool};
use bellows_ipc::mapping::SharedMapping;
use bellows_ipc::memfd;
use bellows_virtio::ring::{Position, ReceiveRing, STEPS_PER_CALL, STEPS_PER_PACKET, Setup, TransmitRing};
use bellows_virtio::{Memory, RegionSpec};
use bellows_wire::offload::{GsoKind, GsoPacket, Transport};
use bellows_wire::{MacAddr, UdpFrame};
use libfuzzer_sys::fuzz_target;

/// Length of the guards, where nothing may be written, on both sides of the part of the files that the device sees.
const GUARD: usize = 4096;
const GUARDED: u8 = 0xa5;
/// Length of the part of a guard that is compared: next to the region.
const COMPARED: usize = 256;

struct Guest {
    memory: Arc<Memory>,
    /// This side's mappings, with a guard before and after each.
    views: [SharedMapping; 2],
}

impl Guest {
    fn new() -> Guest {
        pool::init(pool::Config { packets: 4096, large_packets: 64, ..pool::Config::default() }).unwrap();
        let files = [0, 1].map(|_| memfd::create((REGION + 2 * GUARD) as u64).unwrap());
        let views = [0, 1].map(|index| {
            let view = SharedMapping::new(&files[index], 0, (REGION + 2 * GUARD) as u64).unwrap();
            // SAFETY: the mapping has as many bytes.
            unsafe { view.start().as_ptr().write_bytes(GUARDED, REGION + 2 * GUARD) };
            view
        });
        let specs = files.into_iter().enumerate().map(|(index, file)| {
            let guest = START + (index * REGION) as u64;
            RegionSpec { guest, length: REGION as u64, user: guest, offset: GUARD as u64, file }
        });
        Guest { memory: Arc::new(Memory::map(specs.collect()).unwrap()), views }
    }

    /// Writes bytes into both regions as if they were one; bytes beyond the end are ignored.
    fn write(&self, offset: usize, bytes: &[u8]) {
        for (index, byte) in bytes.iter().enumerate() {
            let at = offset + index;
            if at < 2 * REGION {
                // SAFETY: inside the view of the region, behind its guard.
                unsafe { self.views[at / REGION].start().as_ptr().add(GUARD + at % REGION).write_volatile(*byte) };
            }
        }
    }

    /// Fills all memory with zeros.
    fn clear(&self) {
        for view in &self.views {
            // SAFETY: the region is in the view, after its guard, and no device works on it.
            unsafe { view.start().as_ptr().add(GUARD).write_bytes(0, REGION) };
        }
    }

    fn check_guards(&self) {
        for view in &self.views {
            for at in [GUARD - COMPARED, GUARD + REGION] {
                // SAFETY: both guards are in the mapping, and nothing writes there.
                let guard = unsafe { std::slice::from_raw_parts(view.start().as_ptr().add(at), COMPARED) };
                assert!(guard == [GUARDED; COMPARED], "written outside the memory");
            }
        }
    }
}

/// Maximum packets of a call, and maximum steps for that.
const BURST: usize = 32;
const MAX_STEPS: u64 = (STEPS_PER_PACKET * BURST + STEPS_PER_CALL) as u64;

thread_local! {
    static GUEST: RefCell<Guest> = RefCell::new(Guest::new());
}

fuzz_target!(|data: &[u8]| {
    let Some(input) = RingInput::parse(data) else { return };
    GUEST.with_borrow_mut(|guest| run(guest, &input));
});

fn run(guest: &mut Guest, input: &RingInput<'_>) {
    let RingInput { features, size, areas, .. } = *input;
    guest.clear();
    guest.write(0, input.image);
    let mut steps = input.steps();
    // The driver's next write; false when there is none.
    let mut step = |guest: &Guest| {
        steps.next().is_some_and(|(at, bytes)| {
            guest.write(at, bytes);
            true
        })
    };
    let setup = Setup {
        memory: Arc::clone(&guest.memory),
        features,
        size,
        areas,
        position: Position::from_base(features, input.base),
        call: None,
        kick: None,
    };
    if !input.receives {
        let mut ring = TransmitRing::new(setup).unwrap();
        for _ in 0..64 {
            let mut packets = Vector::new();
            let before = ring.steps();
            let result = ring.transmit(&mut packets, BURST);
            assert!(ring.steps() - before <= MAX_STEPS, "a call worked without bounds");
            for packet in packets.as_slice() {
                assert!((1..=bellows_packet::LARGE_DATA_ROOM).contains(&packet.len()));
                if let Some(offload) = packet.offload() {
                    check(packet.bytes(), offload);
                }
            }
            if result.is_err() || !step(guest) {
                break;
            }
        }
    } else {
        let mut packets: Vec<Packet> =
            [60, 1, 1500, 9000].map(|length| Packet::from_bytes(&vec![7; length]).unwrap()).into();
        // A UDP frame whose checksum the driver may have to finish.
        let address = |last: u8| [192, 0, 2, last].into();
        let (src_mac, dst_mac) = (MacAddr([2; 6]), MacAddr([2; 6]));
        let (src, dst, src_port, dst_port) = (address(1), address(2), 1, 2);
        let headers = UdpFrame { src_mac, dst_mac, vlan: None, src, dst, src_port, dst_port, ttl: 9 };
        packets[0].bytes_mut().copy_from_slice(&headers.build(60, |_| ()).unwrap());
        let offload = Offload { flags: 1, checksum_start: 34, checksum_offset: 6, ..Offload::default() };
        packets[0].set_offload(offload);
        let mut ring = ReceiveRing::new(setup).unwrap();
        for round in 0..64 {
            let before = ring.steps();
            let result = ring.receive(&packets[round % 4..]);
            assert!(ring.steps() - before <= MAX_STEPS, "a call worked without bounds");
            if result.is_err() || !step(guest) {
                break;
            }
        }
    }
    guest.check_guards();
}

/// A packet's offload is true of it, and can be done.
fn check(bytes: &[u8], offload: Offload) {
    let found = Transport::find(bytes).expect("a header with a checksum");
    let said = (offload.checksum_start.into(), offload.checksum_offset.into(), bytes.len());
    assert_eq!((found.start(), found.checksum_offset(), found.end()), said);
    if offload.is_gso() {
        let whole = GsoPacket::new(bytes, GsoKind::Tcp4, offload.segment_size).expect("a packet that can be cut");
        assert_eq!(whole.header_len(), usize::from(offload.header_length));
    }
}
