//! The driver's side of a virtio-net device: rings and buffers in its own memory, which it shares with the device.
//!
//! A [`Driver`] has a [`ReceiveQueue`] and a [`TransmitQueue`] for each pair of queues. A
//! [`Blitter`](bellows_blit::Blitter) copies packets into and out of its buffers, in whole batches.
//!
//! The device is as untrusted as a driver is to a device. The driver keeps its own state in private memory. Values from
//! the device (used buffers, their lengths, headers) are read once and checked. A device that violates the
//! specification stops the queue with a [`DeviceError`].
//!
//! | file | contents |
//! |---|---|
//! | `space.rs` | the shared memory |
//! | `ring.rs` | rings of both formats: chains are added, published, and taken back |
//! | `transmit.rs`, `receive.rs` | packets to and from the buffers |
//! | `bell.rs` | the words that show an engine used buffers |

mod bell;
mod receive;
mod ring;
mod space;
mod transmit;

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use bellows_ipc::notify::{Notifier, Notifiers};
use bellows_packet::{DATA_ROOM, LINE, LargeShare};
use bellows_sys::wake::{PeerEvent, WakeEvent};

use crate::features::Features;
use crate::named::named_errors;
use crate::ring::{Areas, Direction};
use crate::vhost::{DriverFactory, Negotiated, Placed, QueueLayout, SharedFile};
use ring::{DESCRIPTOR, Places, Ring, RingSetup, Segment};
use space::Space;

pub use bell::UsedBell;
pub use receive::ReceiveQueue;
pub use transmit::TransmitQueue;

/// The address of the driver's memory in rings and messages. Any address would do; this one is rarely mistaken for
/// something else.
const ADDRESS: u64 = 0x10_0000;

/// Offset of the data in a slot; the header ends there.
const DATA: usize = LINE;

/// Data of the largest packet that a device may send to a driver that accepts GSO packets and does not merge buffers
/// (specification, 5.1.6.3.1: buffers of 65,562 bytes with the header), rounded up to a whole line.
const GSO_DATA_ROOM: usize = 65_600;

/// Descriptors of an indirect table: a header, and the largest packet in ordinary slots.
const TABLE: usize = 2 + bellows_packet::LARGE_DATA_ROOM.div_ceil(DATA_ROOM);

/// The layout of a packet in descriptors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Chains {
    /// Header and data together in one descriptor.
    #[default]
    Single,
    /// The header in a separate descriptor.
    Chained,
    /// The same in an indirect table.
    Indirect,
}

impl Chains {
    /// This layout, or the closest one that the negotiated features allow.
    fn allowed(self, features: Features) -> Chains {
        let together = features.has_any(Features::ANY_LAYOUT | Features::VERSION_1);
        match self {
            Chains::Single if !together => Chains::Chained,
            Chains::Indirect if !features.has(Features::INDIRECT_DESC) => Chains::Chained,
            layout => layout,
        }
    }
}

named_errors! {
    /// A violation of the specification by the device, which stops the queue.
    DeviceError;

    /// The device has used more buffers than it has.
    IndexJump = "index_jump": "the device's index is ahead of the buffers that it has",
    /// The device has used a buffer that it does not have.
    UnknownBuffer = "unknown_buffer": "the device has used a buffer that it does not have",
    /// The device claims to have written more than the buffer's length.
    TooMuch = "too_much_written": "the device has written more than the length of a buffer",
    /// A received buffer is shorter than the header.
    NoHeader = "no_header": "the device has used a buffer that is too short for the virtio-net header",
    /// The header of a received packet gives no buffers, or more than there are.
    BufferCount = "buffer_count": "the device has given an impossible number of buffers for a packet",
}

/// The counters of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueCounters {
    /// Packets moved.
    pub packets: u64,
    /// Their bytes, without headers.
    pub bytes: u64,
    /// Notifications of the device.
    pub kicks: u64,
    /// Received packets without data; dropped.
    pub empty: u64,
    /// Received packets longer than the maximum; dropped.
    pub too_long: u64,
    /// Received packets with an invalid header; dropped.
    pub bad_header: u64,
    /// Received GSO packets for which the pool had no large buffer; dropped.
    pub no_buffer: u64,
}

/// The configuration of a driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriverConfig {
    /// The negotiated features.
    pub features: Features,
    /// Pairs of queues.
    pub pairs: u16,
    /// Descriptors of each ring: a power of two, unless rings are packed.
    pub ring_size: u16,
    /// The layout of packets.
    pub chains: Chains,
}

/// One pair of queues.
pub struct QueuePair {
    /// The queue of packets from the device.
    pub receive: ReceiveQueue,
    /// The queue of packets to the device.
    pub transmit: TransmitQueue,
}

/// The driver's side of a device.
pub struct Driver {
    /// Its queues.
    pub pairs: Vec<QueuePair>,
    features: Features,
}

impl Driver {
    /// Creates a driver and the memory that it shares. All receive buffers are available to the device from the start.
    /// The driver notifies the device through the first notifiers, two for each pair.
    ///
    /// # Errors
    /// System errors: out of memory or descriptors.
    ///
    /// # Panics
    /// If a ring has no descriptors or more than 32,768, or is split and their number is not a power of two; or if
    /// there are too few notifiers.
    pub fn place(config: DriverConfig, notifiers: &Notifiers) -> io::Result<Placed<Driver>> {
        let DriverConfig { features, pairs, ring_size, .. } = config;
        let packed = features.has(Features::RING_PACKED);
        assert!(
            (1..=32_768).contains(&ring_size) && (packed || ring_size.is_power_of_two()),
            "{ring_size} descriptors"
        );
        let mut plan = MemoryPlan::default();
        let directions = [Direction::Receive, Direction::Transmit];
        let slots: Vec<[Slots; 2]> = (0..pairs).map(|_| directions.map(|way| plan.queue(&config, way))).collect();
        let (space, file) = Space::new(plan.length)?;
        let space = Arc::new(space);
        let share = Arc::new(LargeShare::new());
        let mut queues = Vec::new();
        let mut made = Vec::new();
        for (pair, [receive, transmit]) in slots.into_iter().enumerate() {
            let (receive, receive_layout) = receive.ring(&space, &config, notifiers.get(2 * pair))?;
            let (transmit, transmit_layout) = transmit.ring(&space, &config, notifiers.get(2 * pair + 1))?;
            made.push(QueuePair {
                receive: ReceiveQueue::new(receive, Arc::clone(&share)),
                transmit: TransmitQueue::new(transmit),
            });
            queues.extend([receive_layout, transmit_layout]);
        }
        let shared = SharedFile { file, offset: 0, length: space.length() as u64, address: ADDRESS };
        Ok(Placed { driver: Driver { pairs: made, features }, memory: vec![shared], queues })
    }

    /// The negotiated features.
    pub fn features(&self) -> Features {
        self.features
    }
}

/// Creates drivers for the [front end](crate::vhost::Frontend).
pub struct DriverLayout {
    /// The layout of packets, if the device allows it.
    pub chains: Chains,
    notifiers: Notifiers,
}

impl DriverLayout {
    /// Creates a layout for at most `pairs` pairs of queues.
    ///
    /// # Errors
    /// Those of [`Notifiers::new`].
    pub fn new(pairs: u16) -> io::Result<DriverLayout> {
        Ok(DriverLayout { chains: Chains::default(), notifiers: Notifiers::new(2 * usize::from(pairs), 0)? })
    }
}

impl DriverFactory for DriverLayout {
    type Driver = Driver;

    fn place(&mut self, negotiated: &Negotiated) -> io::Result<Placed<Driver>> {
        let Negotiated { features, pairs, ring_size, .. } = *negotiated;
        Driver::place(DriverConfig { features, pairs, ring_size, chains: self.chains }, &self.notifiers)
    }
}

/// The layout of the driver's memory, allocated from start to end.
#[derive(Default)]
struct MemoryPlan {
    length: usize,
}

impl MemoryPlan {
    fn put(&mut self, length: usize) -> usize {
        let at = self.length;
        self.length = (at + length).next_multiple_of(LINE);
        at
    }

    fn queue(&mut self, config: &DriverConfig, direction: Direction) -> Slots {
        let DriverConfig { features, ring_size, .. } = *config;
        let size = usize::from(ring_size);
        let chains = config.chains.allowed(features);
        // There is space for event indices whether they are negotiated or not.
        let places = Places {
            descriptors: self.put(DESCRIPTOR * size),
            driver: self.put(6 + 2 * size),
            device: self.put(6 + 8 * size),
        };
        let gso_packets = features.has_any(Features::GUEST_TSO4 | Features::GUEST_TSO6);
        let whole = direction == Direction::Receive && gso_packets && !features.has(Features::MRG_RXBUF);
        let room = if whole { GSO_DATA_ROOM } else { DATA_ROOM };
        let stride = (DATA + room).next_multiple_of(LINE);
        // An odd number of lines, so that slots spread over the cache sets.
        let stride = if (stride / LINE).is_multiple_of(2) { stride + LINE } else { stride };
        // A table for each chain; a received packet fits into one slot.
        let table = if direction == Direction::Receive { 2 } else { TABLE } * DESCRIPTOR;
        let tables = if features.has(Features::INDIRECT_DESC) { self.put(table * size) } else { 0 };
        let start = self.put(stride * size);
        let header = if features.has_any(Features::VERSION_1 | Features::MRG_RXBUF) { 12 } else { 10 };
        Slots { features, header, chains, places, table, tables, start, stride, room, size: ring_size }
    }
}

/// The buffers of a queue: slots, each with a header and data.
#[derive(Clone, Copy, Debug)]
struct Slots {
    features: Features,
    /// Bytes of the header.
    header: usize,
    chains: Chains,
    places: Places,
    /// Bytes of an indirect table, and the offset of the first.
    table: usize,
    tables: usize,
    start: usize,
    stride: usize,
    /// Bytes of data in a slot.
    room: usize,
    size: u16,
}

impl Slots {
    /// The queue's ring, and its layout for the device.
    fn ring(
        self,
        space: &Arc<Space>,
        config: &DriverConfig,
        notifier: Notifier,
    ) -> io::Result<(DriverQueue, QueueLayout)> {
        let [kick, call] = [WakeEvent::new()?, WakeEvent::new()?];
        let copy = |event: &WakeEvent| Ok::<_, io::Error>(File::from(event.as_fd().try_clone_to_owned()?));
        // The device has both, too, and can do anything with them.
        notifier.set(Some(copy(&kick)?.into()))?;
        let heard = PeerEvent::new(copy(&call)?.into())?;
        let areas: Areas = self.places.areas();
        let layout = QueueLayout { areas, size: self.size, call: Some(copy(&call)?), kick: Some(copy(&kick)?) };
        let setup = RingSetup {
            space: Arc::clone(space),
            features: config.features,
            size: self.size,
            places: self.places,
            kick: Some(notifier),
            call: Some(heard),
        };
        Ok((DriverQueue { ring: Ring::new(setup), slots: self, counters: QueueCounters::default() }, layout))
    }

    /// Offset of the data of a slot.
    #[inline(always)]
    fn data(&self, slot: u16) -> usize {
        self.start + usize::from(slot) * self.stride + DATA
    }

    #[inline(always)]
    fn header(&self, slot: u16) -> usize {
        self.data(slot) - self.header
    }

    /// Ring descriptors of a packet in `slots` slots.
    #[inline(always)]
    fn descriptors(&self, slots: usize) -> usize {
        match self.chains {
            Chains::Single => slots,
            Chains::Chained => slots + 1,
            Chains::Indirect => 1,
        }
    }
}

/// A ring and its buffers.
struct DriverQueue {
    ring: Ring,
    slots: Slots,
    counters: QueueCounters,
}

impl DriverQueue {
    /// Changes the layout from the next packet or buffer on, to this one or the closest that is allowed.
    fn set_chains(&mut self, chains: Chains) {
        self.slots.chains = chains.allowed(self.slots.features);
    }

    /// Adds a packet in one slot, with `length` bytes of data.
    #[inline(always)]
    fn add_single(&mut self, slot: u16, length: u32, flags: u16) {
        let slots = &self.slots;
        let header = Segment { at: slots.header(slot), length: slots.header as u32, flags };
        match slots.chains {
            Chains::Single => {
                let all = Segment { length: header.length + length, ..header };
                self.ring.add(slot, &[all]);
            }
            Chains::Chained => self.ring.add(slot, &[header, Segment { at: slots.data(slot), length, flags }]),
            Chains::Indirect => {
                let data = Segment { at: slots.data(slot), length, flags };
                self.add_table(slot, &[header, data]);
            }
        }
    }

    /// Adds a chain of the slot's indirect table.
    #[inline(always)]
    fn add_table(&mut self, slot: u16, segments: &[Segment]) {
        let at = self.slots.tables + usize::from(slot) * self.slots.table;
        let packed = self.slots.features.has(Features::RING_PACKED);
        for (number, segment) in segments.iter().enumerate() {
            let word = if packed {
                u64::from(segment.flags) << 48
            } else {
                let next = number + 1 < segments.len();
                let link = if next { (number as u64 + 1) << 48 | u64::from(ring::NEXT) << 32 } else { 0 };
                link | u64::from(segment.flags) << 32
            };
            let entry = at + number * DESCRIPTOR;
            let relaxed = std::sync::atomic::Ordering::Relaxed;
            self.ring.space.double(entry).store((ADDRESS + segment.at as u64).to_le(), relaxed);
            self.ring.space.double(entry + 8).store((word | u64::from(segment.length)).to_le(), relaxed);
        }
        let length = (segments.len() * DESCRIPTOR) as u32;
        self.ring.add(slot, &[Segment { at, length, flags: ring::INDIRECT }]);
    }
}
