//! The rings that an AF_XDP socket shares with the kernel.
//!
//! Each ring has entries, a power of two of them, and two free-running counts of entries: those that the producer has
//! written, and those that the consumer has read. One side of each ring is the kernel's; the types here are the other.
//!
//! A batch costs one load of the kernel's count and one store of the own count. The entries between are accessed without
//! checks of bounds, because a mask keeps each position inside the ring. They are accessed atomically, so that a kernel
//! that writes at another time than it should does no harm but to the entry's value.

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};

use rustix::net::xdp::XdpRingOffset;

use super::position;
use crate::ring_mapping::RingMapping;

/// The kernel sleeps on this ring and has to be woken: `XDP_RING_NEED_WAKEUP`.
const NEEDS_WAKEUP: u32 = 1 << 0;

/// An option of a descriptor: the frame goes on in the next one (`XDP_PKT_CONTD`, Linux 6.6).
pub const MORE: u32 = 1 << 0;

/// An option of a descriptor to send: metadata stands before the frame's first byte (`XDP_TX_METADATA`, Linux 6.8).
pub const METADATA: u32 = 1 << 1;

/// A ring, with entries of one type.
#[derive(Debug)]
struct XdpRing<Entry> {
    mapping: Arc<RingMapping>,
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    entries: NonNull<Entry>,
    /// Number of entries, less 1.
    mask: u32,
}

// SAFETY: the mapping belongs to the value, can be used from any thread, and is accessed through atomics only.
unsafe impl<Entry: Send> Send for XdpRing<Entry> {}
// SAFETY: as above.
unsafe impl<Entry: Sync> Sync for XdpRing<Entry> {}

/// What can be an entry of a ring.
///
/// # Safety
/// Any bytes must be a valid value, and a shared reference must allow other threads to change it.
unsafe trait RingEntry {}

// SAFETY: an atomic number has no invalid value.
unsafe impl RingEntry for AtomicU64 {}
// SAFETY: it consists of atomic numbers without padding.
unsafe impl RingEntry for RawDescriptor {}

/// `struct xdp_desc`.
#[repr(C)]
#[derive(Debug)]
struct RawDescriptor {
    address: AtomicU64,
    length: AtomicU32,
    options: AtomicU32,
}

const _: () = assert!(size_of::<RawDescriptor>() == 16);

impl<Entry: RingEntry> XdpRing<Entry> {
    /// Maps a ring of `size` entries of the socket.
    fn map(socket: BorrowedFd<'_>, page_offset: u64, offsets: XdpRingOffset, size: u32) -> io::Result<XdpRing<Entry>> {
        let too_old = || io::Error::new(io::ErrorKind::Unsupported, "AF_XDP sockets need Linux 5.4 or newer");
        let flags = offsets.flags.ok_or_else(too_old)?;
        let bytes = u64::from(size) * size_of::<Entry>() as u64;
        let valid = |offset: u64, align: usize| offset.is_multiple_of(align as u64);
        let counts = [offsets.producer, offsets.consumer, flags];
        let inside = counts.iter().all(|count| valid(*count, align_of::<AtomicU32>()) && *count < offsets.desc);
        let length = offsets.desc.checked_add(bytes).and_then(|length| usize::try_from(length).ok());
        let length = length.filter(|_| size.is_power_of_two() && inside && valid(offsets.desc, align_of::<Entry>()));
        let impossible = || {
            io::Error::new(io::ErrorKind::InvalidData, "the kernel describes an impossible ring of an AF_XDP socket")
        };
        let length = length.ok_or_else(impossible)?;
        let mapping = Arc::new(RingMapping::new(socket, page_offset, length, true)?);
        let start = mapping.start();
        // SAFETY: the mapping is `length` bytes long. The counts and flags end before the entries, which it has room
        // for, as was computed above; all are aligned, because the mapping starts with a page.
        unsafe {
            Ok(XdpRing {
                mapping,
                producer: start.add(offsets.producer as usize).cast(),
                consumer: start.add(offsets.consumer as usize).cast(),
                flags: start.add(flags as usize).cast(),
                entries: start.add(offsets.desc as usize).cast(),
                mask: size - 1,
            })
        }
    }

    #[inline]
    fn size(&self) -> u32 {
        self.mask + 1
    }

    #[inline]
    fn producer(&self) -> &AtomicU32 {
        // SAFETY: it is inside the mapping, aligned, lives as long as self, and both sides access it as a whole.
        unsafe { self.producer.as_ref() }
    }

    #[inline]
    fn consumer(&self) -> &AtomicU32 {
        // SAFETY: as above.
        unsafe { self.consumer.as_ref() }
    }

    #[inline]
    fn needs_wakeup(&self) -> bool {
        // SAFETY: as above.
        unsafe { self.flags.as_ref() }.load(Relaxed) & NEEDS_WAKEUP != 0
    }

    /// The entry with this number since the ring was made.
    #[inline]
    fn entry(&self, number: u32) -> &Entry {
        // SAFETY: the masked number is less than the number of entries, which are inside the mapping and live as long
        // as self; entries are valid whatever the kernel writes, at any time.
        unsafe { self.entries.add((number & self.mask) as usize).as_ref() }
    }

    /// Number of entries that may be written, if `written` are.
    #[inline]
    fn free(&self, written: u32) -> u32 {
        self.size().saturating_sub(written.wrapping_sub(self.consumer().load(Acquire)))
    }

    /// Number of entries that may be read, if `read` are.
    #[inline]
    fn available(&self, read: u32) -> u32 {
        self.producer().load(Acquire).wrapping_sub(read).min(self.size())
    }
}

/// A ring with what all of them have in common.
macro_rules! ring {
    ($(#[$doc:meta])* $ring:ident, $entry:ty, $position:ident) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $ring {
            ring: XdpRing<$entry>,
            /// Number of entries that the program has written, or read and given back. The kernel is told later.
            count: u32,
        }

        impl $ring {
            pub(super) fn map(socket: BorrowedFd<'_>, offsets: XdpRingOffset, size: u32) -> io::Result<$ring> {
                Ok($ring { ring: XdpRing::map(socket, rustix::net::xdp::$position, offsets, size)?, count: 0 })
            }

            /// Number of entries of the ring.
            #[inline]
            pub fn size(&self) -> u32 {
                self.ring.size()
            }
        }
    };
}

/// What rings have in common whose entries the program writes.
macro_rules! written {
    ($($ring:ident),*) => {$(
        impl $ring {
            /// Number of entries that can be pushed.
            #[inline]
            pub fn free(&self) -> u32 {
                self.ring.free(self.count)
            }

            /// Tells the kernel of all entries pushed.
            #[inline]
            pub fn publish(&mut self) {
                self.ring.producer().store(self.count, Release);
            }
        }
    )*};
}

written!(FillRing, TxRing);

/// What rings have in common whose entries the program reads.
macro_rules! read {
    ($($ring:ident),*) => {$(
        impl $ring {
            /// Number of entries to read.
            #[inline]
            pub fn available(&self) -> u32 {
                self.ring.available(self.count)
            }

            /// Gives the next `count` entries back to the kernel, which writes new ones there.
            #[inline]
            pub fn release(&mut self, count: u32) {
                self.count = self.count.wrapping_add(count);
                self.ring.consumer().store(self.count, Release);
            }
        }
    )*};
}

read!(RxRing, CompletionRing);

ring! {
    /// The ring of chunks that the kernel receives frames into.
    FillRing, AtomicU64, XDP_UMEM_PGOFF_FILL_RING
}

impl FillRing {
    /// Writes the next entry: a chunk at this offset in the registered memory, which the kernel may write to from the
    /// next [`FillRing::publish`] until the frame comes out of the [`RxRing`] and beyond (see
    /// [`Socket::register_memory`](super::Socket::register_memory)). More entries than are free overwrite others, which
    /// loses the chunks of those.
    #[inline]
    pub fn push(&mut self, offset: u64) {
        self.ring.entry(self.count).store(offset, Relaxed);
        self.count = self.count.wrapping_add(1);
    }

    /// Pushes each of these chunks.
    #[inline]
    pub fn push_all(&mut self, offsets: impl Iterator<Item = u64>) {
        let mut number = self.count;
        for offset in offsets {
            self.ring.entry(number).store(offset, Relaxed);
            number = number.wrapping_add(1);
        }
        self.count = number;
    }

    /// Whether the kernel waits for [`Socket::wake`](super::Socket::wake), or for a poll, after it had found the ring
    /// empty. Always false in copy mode, and without `need_wakeup`.
    #[inline]
    pub fn needs_wakeup(&self) -> bool {
        self.ring.needs_wakeup()
    }
}

/// A frame, or a part of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// Where it is; [`position`](super::position) computes the offset in the registered memory.
    pub address: u64,
    /// Number of bytes.
    pub length: u32,
    /// Whether the next descriptor goes on with the same frame.
    pub more: bool,
}

ring! {
    /// The ring of frames received.
    RxRing, RawDescriptor, XDP_PGOFF_RX_RING
}

impl RxRing {
    /// The entry after the next `index`; meaningless beyond those [available](RxRing::available).
    #[inline]
    pub fn get(&self, index: u32) -> Descriptor {
        let entry = self.ring.entry(self.count.wrapping_add(index));
        Descriptor {
            address: entry.address.load(Relaxed),
            length: entry.length.load(Relaxed),
            more: entry.options.load(Relaxed) & MORE != 0,
        }
    }

    /// Reads the entries after the next `index` into columns: where the frames are in the registered memory, and their
    /// lengths. Returns whether one goes on in the next entry. Hot.
    #[inline]
    pub fn read(&self, index: u32, positions: &mut [u64], lengths: &mut [u32]) -> bool {
        let mut number = self.count.wrapping_add(index);
        let mut options = 0;
        for (at, length) in positions.iter_mut().zip(lengths) {
            let entry = self.ring.entry(number);
            *at = position(entry.address.load(Relaxed));
            *length = entry.length.load(Relaxed);
            options |= entry.options.load(Relaxed);
            number = number.wrapping_add(1);
        }
        options & MORE != 0
    }

    /// The counts of the ring, for another owner than the ring's.
    pub fn counts(&self) -> RxCounts {
        let XdpRing { mapping, producer, consumer, .. } = &self.ring;
        RxCounts { _mapping: Arc::clone(mapping), producer: *producer, consumer: *consumer }
    }
}

/// The two counts of an [`RxRing`]. They stay valid when the ring is dropped, but then nothing changes them.
#[derive(Debug)]
pub struct RxCounts {
    _mapping: Arc<RingMapping>,
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
}

// SAFETY: the pointers lead into the mapping that the value keeps, to words that all sides access atomically.
unsafe impl Send for RxCounts {}
// SAFETY: as above.
unsafe impl Sync for RxCounts {}

impl RxCounts {
    /// The kernel's count of entries, which changes when a frame arrives: there is none while it equals
    /// [`RxCounts::consumed`].
    #[inline]
    pub fn produced(&self) -> &AtomicU32 {
        // SAFETY: it is inside the mapping, aligned, and lives as long as self.
        unsafe { self.producer.as_ref() }
    }

    /// Number of entries given back to the kernel.
    #[inline]
    pub fn consumed(&self) -> u32 {
        // SAFETY: as above.
        unsafe { self.consumer.as_ref() }.load(Relaxed)
    }
}

ring! {
    /// The ring of frames to send.
    TxRing, RawDescriptor, XDP_PGOFF_TX_RING
}

impl TxRing {
    /// Writes the next entry: `length` bytes at this address, which the kernel may read from the next
    /// [`TxRing::publish`] until the address comes out of the [`CompletionRing`]. `options`: [`MORE`], [`METADATA`], or
    /// 0. More entries than are free overwrite others.
    #[inline]
    pub fn push(&mut self, address: u64, length: u32, options: u32) {
        let entry = self.ring.entry(self.count);
        entry.address.store(address, Relaxed);
        entry.length.store(length, Relaxed);
        entry.options.store(options, Relaxed);
        self.count = self.count.wrapping_add(1);
    }

    /// Pushes frames of one entry each, without options: addresses and lengths. Hot.
    #[inline]
    pub fn push_all(&mut self, frames: impl Iterator<Item = (u64, u32)>) {
        let mut number = self.count;
        for (address, length) in frames {
            let entry = self.ring.entry(number);
            entry.address.store(address, Relaxed);
            entry.length.store(length, Relaxed);
            entry.options.store(0, Relaxed);
            number = number.wrapping_add(1);
        }
        self.count = number;
    }

    /// Whether the kernel sends only after [`Socket::kick`](super::Socket::kick). Always true in copy mode, with and
    /// without `need_wakeup`.
    #[inline]
    pub fn needs_wakeup(&self) -> bool {
        self.ring.needs_wakeup()
    }
}

ring! {
    /// The ring of chunks that were sent.
    CompletionRing, AtomicU64, XDP_UMEM_PGOFF_COMPLETION_RING
}

impl CompletionRing {
    /// The address in the entry after the next `index`; meaningless beyond those [available](CompletionRing::available).
    ///
    /// It is the one that was pushed to the [`TxRing`], but for its lowest bit, which Linux 6.18 clears in copy mode. So
    /// a chunk is found by its range of addresses.
    #[inline]
    pub fn get(&self, index: u32) -> u64 {
        self.ring.entry(self.count.wrapping_add(index)).load(Relaxed)
    }

    /// Reads the entries after the next `index`: their offsets in the registered memory. Hot.
    #[inline]
    pub fn read(&self, index: u32, positions: &mut [u64]) {
        let mut number = self.count.wrapping_add(index);
        for at in positions {
            *at = position(self.ring.entry(number).load(Relaxed));
            number = number.wrapping_add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::fs::File;
    use std::os::fd::AsFd;

    use proptest::prelude::*;

    use super::*;
    use bellows_ipc::memfd;

    /// Both sides of a ring in a file, whose counts begin at `start`.
    fn sides<Entry: RingEntry>(size: u32, start: u32) -> [XdpRing<Entry>; 2] {
        let offsets = XdpRingOffset { producer: 0, consumer: 64, desc: 128, flags: Some(68) };
        let file = memfd::create(u64::from(size) * size_of::<Entry>() as u64 + 128).unwrap();
        let sides = [&file; 2].map(|file: &File| XdpRing::<Entry>::map(file.as_fd(), 0, offsets, size).unwrap());
        sides[0].producer().store(start, Relaxed);
        sides[0].consumer().store(start, Relaxed);
        sides
    }

    /// What a side of a ring does.
    #[derive(Clone, Copy, Debug)]
    enum Step {
        Push(u32),
        Publish,
        Take(u32),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![(0u32..10).prop_map(Step::Push), Just(Step::Publish), (0u32..10).prop_map(Step::Take)];
        prop::collection::vec(step, 0..100)
    }

    /// A start of the counts, often shortly before they overflow.
    fn start() -> impl Strategy<Value = u32> {
        prop_oneof![Just(0), u32::MAX - 40..=u32::MAX, any::<u32>()]
    }

    proptest! {
        /// Entries come out in the order in which they were published, and no more than there are.
        #[test]
        fn chunks_pass_through_a_ring_as_through_a_queue(start in start(), exponent in 0u32..6, steps in steps()) {
            let size = 1 << exponent;
            let [near, far] = sides(size, start);
            let (mut fill, mut completion) = (FillRing { ring: near, count: start }, CompletionRing { ring: far, count: start });
            let (mut pushed, mut published, mut next) = (VecDeque::new(), VecDeque::new(), 0);
            prop_assert_eq!((fill.size(), completion.size()), (size, size));
            for step in steps {
                prop_assert_eq!(fill.free() as usize, size as usize - pushed.len() - published.len());
                prop_assert_eq!(completion.available() as usize, published.len());
                match step {
                    Step::Push(count) => for _ in 0..count.min(fill.free()) {
                        fill.push(next);
                        pushed.push_back(next);
                        next += 1;
                    },
                    Step::Publish => {
                        fill.publish();
                        published.append(&mut pushed);
                    }
                    Step::Take(count) => {
                        let count = count.min(completion.available());
                        let taken: Vec<u64> = (0..count).map(|index| completion.get(index)).collect();
                        prop_assert_eq!(taken, published.drain(..count as usize).collect::<Vec<u64>>());
                        completion.release(count);
                    }
                }
            }
        }

        #[test]
        fn frames_pass_through_a_ring_as_through_a_queue(start in start(), exponent in 0u32..6, steps in steps()) {
            let size = 1 << exponent;
            let [near, far] = sides(size, start);
            let (mut tx, mut rx) = (TxRing { ring: near, count: start }, RxRing { ring: far, count: start });
            let (mut pushed, mut published, mut next) = (VecDeque::new(), VecDeque::new(), 0);
            prop_assert_eq!((tx.size(), rx.size()), (size, size));
            for step in steps {
                prop_assert_eq!(tx.free() as usize, size as usize - pushed.len() - published.len());
                prop_assert_eq!(rx.available() as usize, published.len());
                prop_assert_eq!(rx.counts().produced().load(Relaxed).wrapping_sub(rx.counts().consumed()) as usize, published.len());
                match step {
                    Step::Push(count) => for _ in 0..count.min(tx.free()) {
                        let frame = Descriptor { address: next << 40 | next, length: next as u32, more: next % 3 == 0 };
                        tx.push(frame.address, frame.length, if frame.more { MORE | METADATA } else { METADATA });
                        pushed.push_back(frame);
                        next += 1;
                    },
                    Step::Publish => {
                        tx.publish();
                        published.append(&mut pushed);
                    }
                    Step::Take(count) => {
                        let count = count.min(rx.available());
                        let taken: Vec<Descriptor> = (0..count).map(|index| rx.get(index)).collect();
                        prop_assert_eq!(taken, published.drain(..count as usize).collect::<Vec<Descriptor>>());
                        rx.release(count);
                    }
                }
            }
        }

        /// Entries that are written and read together are those that are written and read one by one.
        #[test]
        fn many_entries_pass_as_one_does(start in start(), chunks in prop::collection::vec(any::<u64>(), 0..8), more: bool) {
            let count = chunks.len();
            let frames = || chunks.iter().map(|&chunk| (chunk, chunk as u32));
            let [near, far] = sides(8, start);
            let (mut tx, mut rx) = (TxRing { ring: near, count: start }, RxRing { ring: far, count: start });
            tx.push_all(frames());
            if more {
                tx.push(7, 7, MORE);
            }
            tx.publish();
            let (mut positions, mut lengths) = (vec![0; count], vec![0; count]);
            prop_assert!(!rx.read(0, &mut positions, &mut lengths));
            for (index, (address, length)) in frames().enumerate() {
                let descriptor = rx.get(index as u32);
                prop_assert_eq!((descriptor.address, descriptor.length, descriptor.more), (address, length, false));
                prop_assert_eq!((positions[index], lengths[index]), (position(address), length));
            }
            prop_assert!(!more || rx.read(count as u32, &mut [0], &mut [0]));
            rx.release(count as u32);

            let [near, far] = sides(8, start);
            let (mut fill, completion) = (FillRing { ring: near, count: start }, CompletionRing { ring: far, count: start });
            fill.push_all(chunks.iter().copied());
            fill.publish();
            prop_assert_eq!(completion.available() as usize, count);
            completion.read(0, &mut positions);
            let one_by_one: Vec<u64> = (0..count as u32).map(|index| position(completion.get(index))).collect();
            prop_assert_eq!(positions, one_by_one);
        }

        /// Whatever the other side writes into its counts, entries stay inside the ring.
        #[test]
        fn impossible_counts_do_no_harm(start: u32, count: u32, index: u32, push in 0u32..100) {
            let [near, far] = sides(8, start);
            near.consumer().store(count, Relaxed);
            far.producer().store(count, Relaxed);
            let (mut fill, mut completion) = (FillRing { ring: near, count: start }, CompletionRing { ring: far, count: start });
            prop_assert!(fill.free() <= 8 && completion.available() <= 8);
            (0..push).for_each(|number| fill.push(number.into()));
            fill.publish();
            prop_assert!(completion.get(index) < 100);
            completion.release(index);
            prop_assert!(completion.available() <= 8);
        }
    }

    /// The contents of an entry are visible to the other side's thread when the count is.
    #[test]
    fn a_published_entry_is_whole_on_another_thread() {
        const COUNT: u64 = 200_000;
        let [near, far] = sides(64, 0);
        let (mut tx, mut rx) = (TxRing { ring: near, count: 0 }, RxRing { ring: far, count: 0 });
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let deadline = bellows_testkit::wait::Deadline::new("all entries are written");
                let mut next = 0;
                while next < COUNT {
                    deadline.check();
                    for _ in 0..u64::from(tx.free()).min(COUNT - next) {
                        tx.push(next, !(next as u32), 0);
                        next += 1;
                    }
                    tx.publish();
                    std::thread::yield_now();
                }
            });
            let deadline = bellows_testkit::wait::Deadline::new("all entries are read");
            let mut next = 0;
            while next < COUNT {
                deadline.check();
                let available = rx.available();
                for index in 0..available {
                    let expected = Descriptor { address: next, length: !(next as u32), more: false };
                    assert_eq!(rx.get(index), expected);
                    next += 1;
                }
                rx.release(available);
                std::thread::yield_now();
            }
        });
    }

    #[test]
    fn impossible_rings_are_rejected() {
        let file = memfd::create(4096).unwrap();
        let offsets = XdpRingOffset { producer: 0, consumer: 64, desc: 128, flags: Some(68) };
        for (offsets, size) in [
            (offsets, 0),
            (offsets, 3),
            (XdpRingOffset { flags: None, ..offsets }, 8),
            (XdpRingOffset { producer: 2, ..offsets }, 8),
            (XdpRingOffset { consumer: 126, ..offsets }, 8),
            (XdpRingOffset { flags: Some(u64::MAX - 3), ..offsets }, 8),
            (XdpRingOffset { desc: 132, ..offsets }, 8),
        ] {
            assert!(XdpRing::<AtomicU64>::map(file.as_fd(), 0, offsets, size).is_err(), "{offsets:?} {size}");
        }
    }
}
