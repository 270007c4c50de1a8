//! The rings that an AF_XDP socket shares with the kernel.
//!
//! Each ring has entries, a power of two of them, and two free-running counts of entries: the producer has written so
//! many, the consumer has read so many. One side of each ring is the kernel's; the types here are the other.
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

use crate::ring_mapping::RingMapping;

/// The kernel sleeps on this ring and has to be woken: `XDP_RING_NEED_WAKEUP`.
const NEEDS_WAKEUP: u32 = 1 << 0;

/// An option of a descriptor: the frame goes on in the next one (`XDP_PKT_CONTD`, Linux 6.6).
pub const MORE: u32 = 1 << 0;

/// An option of a descriptor to send: metadata stands before the frame's first byte (`XDP_TX_METADATA`, Linux 6.8).
pub const METADATA: u32 = 1 << 1;

/// A ring, with entries of one type.
#[derive(Debug)]
struct Ring<Entry> {
    mapping: Arc<RingMapping>,
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    entries: NonNull<Entry>,
    /// Number of entries, less 1.
    mask: u32,
}

// SAFETY: the mapping belongs to the value, can be used from any thread, and is accessed through atomics only.
unsafe impl<Entry: Send> Send for Ring<Entry> {}
// SAFETY: as above.
unsafe impl<Entry: Sync> Sync for Ring<Entry> {}

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

impl<Entry: RingEntry> Ring<Entry> {
    /// Maps a ring of `size` entries of the socket.
    fn map(socket: BorrowedFd<'_>, page_offset: u64, offsets: XdpRingOffset, size: u32) -> io::Result<Ring<Entry>> {
        let too_old = || io::Error::new(io::ErrorKind::Unsupported, "AF_XDP sockets need Linux 5.4 or newer");
        let flags = offsets.flags.ok_or_else(too_old)?;
        let bytes = u64::from(size) * size_of::<Entry>() as u64;
        let valid = |offset: u64, align: usize| offset.is_multiple_of(align as u64);
        let counts = [offsets.producer, offsets.consumer, flags];
        let inside = counts.iter().all(|count| valid(*count, align_of::<AtomicU32>()) && count + 4 <= offsets.desc);
        if !size.is_power_of_two() || !inside || !valid(offsets.desc, align_of::<Entry>()) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the kernel describes an impossible AF_XDP ring"));
        }
        let length = (offsets.desc + bytes) as usize;
        let mapping = Arc::new(RingMapping::new(socket, page_offset, length, true)?);
        let start = mapping.start();
        // SAFETY: the mapping is `length` bytes long. The counts and flags end before the entries, which it has room
        // for, as was computed above; all are aligned, because the mapping starts with a page.
        unsafe {
            Ok(Ring {
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

/// The ring of chunks that the kernel receives frames into.
#[derive(Debug)]
pub struct FillRing {
    ring: Ring<AtomicU64>,
    /// Number of entries written, of which [`FillRing::publish`] tells the kernel.
    written: u32,
}

impl FillRing {
    pub(super) fn map(socket: BorrowedFd<'_>, offsets: XdpRingOffset, size: u32) -> io::Result<FillRing> {
        let offset = rustix::net::xdp::XDP_UMEM_PGOFF_FILL_RING;
        Ok(FillRing { ring: Ring::map(socket, offset, offsets, size)?, written: 0 })
    }

    /// Number of entries of the ring.
    #[inline]
    pub fn size(&self) -> u32 {
        self.ring.size()
    }

    /// Number of entries that can be pushed.
    #[inline]
    pub fn free(&self) -> u32 {
        self.ring.free(self.written)
    }

    /// Writes the next entry: a chunk at this offset in the registered memory, which the kernel may write to from the
    /// next [`FillRing::publish`] until the frame comes out of the [`RxRing`] and beyond (see
    /// [`Socket::register_memory`](super::Socket::register_memory)). More entries than are free overwrite others, which
    /// loses the chunks of those.
    #[inline]
    pub fn push(&mut self, offset: u64) {
        self.ring.entry(self.written).store(offset, Relaxed);
        self.written = self.written.wrapping_add(1);
    }

    /// Tells the kernel of all entries pushed.
    #[inline]
    pub fn publish(&mut self) {
        self.ring.producer().store(self.written, Release);
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

/// The ring of frames received.
#[derive(Debug)]
pub struct RxRing {
    ring: Ring<RawDescriptor>,
    /// Number of entries read and given back.
    read: u32,
}

impl RxRing {
    pub(super) fn map(socket: BorrowedFd<'_>, offsets: XdpRingOffset, size: u32) -> io::Result<RxRing> {
        Ok(RxRing { ring: Ring::map(socket, rustix::net::xdp::XDP_PGOFF_RX_RING, offsets, size)?, read: 0 })
    }

    /// Number of entries of the ring.
    #[inline]
    pub fn size(&self) -> u32 {
        self.ring.size()
    }

    /// Number of entries to read.
    #[inline]
    pub fn available(&self) -> u32 {
        self.ring.available(self.read)
    }

    /// The entry after the next `index`; meaningless beyond those [available](RxRing::available).
    #[inline]
    pub fn get(&self, index: u32) -> Descriptor {
        let entry = self.ring.entry(self.read.wrapping_add(index));
        Descriptor {
            address: entry.address.load(Relaxed),
            length: entry.length.load(Relaxed),
            more: entry.options.load(Relaxed) & MORE != 0,
        }
    }

    /// Gives the next `count` entries back to the kernel, which writes new ones there.
    #[inline]
    pub fn release(&mut self, count: u32) {
        self.read = self.read.wrapping_add(count);
        self.ring.consumer().store(self.read, Release);
    }

    /// The counts of the ring, for another owner than the ring's.
    pub fn counts(&self) -> RxCounts {
        let Ring { mapping, producer, consumer, .. } = &self.ring;
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

/// The ring of frames to send.
#[derive(Debug)]
pub struct TxRing {
    ring: Ring<RawDescriptor>,
    /// Number of entries written, of which [`TxRing::publish`] tells the kernel.
    written: u32,
}

impl TxRing {
    pub(super) fn map(socket: BorrowedFd<'_>, offsets: XdpRingOffset, size: u32) -> io::Result<TxRing> {
        Ok(TxRing { ring: Ring::map(socket, rustix::net::xdp::XDP_PGOFF_TX_RING, offsets, size)?, written: 0 })
    }

    /// Number of entries of the ring.
    #[inline]
    pub fn size(&self) -> u32 {
        self.ring.size()
    }

    /// Number of entries that can be pushed.
    #[inline]
    pub fn free(&self) -> u32 {
        self.ring.free(self.written)
    }

    /// Writes the next entry: `length` bytes at this address, which the kernel may read from the next
    /// [`TxRing::publish`] until the address comes out of the [`CompletionRing`]. `options`: [`MORE`], [`METADATA`], or
    /// 0. More entries than are free overwrite others.
    #[inline]
    pub fn push(&mut self, address: u64, length: u32, options: u32) {
        let entry = self.ring.entry(self.written);
        entry.address.store(address, Relaxed);
        entry.length.store(length, Relaxed);
        entry.options.store(options, Relaxed);
        self.written = self.written.wrapping_add(1);
    }

    /// Tells the kernel of all entries pushed.
    #[inline]
    pub fn publish(&mut self) {
        self.ring.producer().store(self.written, Release);
    }

    /// Whether the kernel sends only after [`Socket::kick`](super::Socket::kick). Always true in copy mode with
    /// `need_wakeup`; without that option it is always false, although copy mode still needs it.
    #[inline]
    pub fn needs_wakeup(&self) -> bool {
        self.ring.needs_wakeup()
    }
}

/// The ring of chunks that were sent.
#[derive(Debug)]
pub struct CompletionRing {
    ring: Ring<AtomicU64>,
    /// Number of entries read and given back.
    read: u32,
}

impl CompletionRing {
    pub(super) fn map(socket: BorrowedFd<'_>, offsets: XdpRingOffset, size: u32) -> io::Result<CompletionRing> {
        let offset = rustix::net::xdp::XDP_UMEM_PGOFF_COMPLETION_RING;
        Ok(CompletionRing { ring: Ring::map(socket, offset, offsets, size)?, read: 0 })
    }

    /// Number of entries of the ring.
    #[inline]
    pub fn size(&self) -> u32 {
        self.ring.size()
    }

    /// Number of entries to read.
    #[inline]
    pub fn available(&self) -> u32 {
        self.ring.available(self.read)
    }

    /// The address in the entry after the next `index`, as it was pushed to the [`TxRing`]; meaningless beyond those
    /// [available](CompletionRing::available).
    #[inline]
    pub fn get(&self, index: u32) -> u64 {
        self.ring.entry(self.read.wrapping_add(index)).load(Relaxed)
    }

    /// Gives the next `count` entries back to the kernel, which writes new ones there.
    #[inline]
    pub fn release(&mut self, count: u32) {
        self.read = self.read.wrapping_add(count);
        self.ring.consumer().store(self.read, Release);
    }
}
