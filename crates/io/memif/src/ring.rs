//! A ring in shared memory: its indices, flags and descriptors, and the bell by which an engine sees that it has work.
#![expect(unsafe_code, reason = "the other side writes the memory, too: it is accessed through atomics")]

use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicU16, AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
    fence,
};

use bellows_ports::QueueBell;
use bellows_sys::wake::PeerEvent;

use crate::regions::Regions;
use crate::{MAX_LOG2_SIZE, MIN_BUFFER, Side};

/// The first word of a ring.
const COOKIE: u32 = 0x03e3_1f20;

/// Offsets in a ring, in bytes.
const FLAGS: usize = 4;
const HEAD: usize = 6;
const TAIL: usize = 64;
const DESCRIPTORS: usize = 128;

/// Bytes of a descriptor.
const DESCRIPTOR: usize = 16;

/// Flag of a ring: its consumer asks for no interrupt.
const NO_INTERRUPT: u16 = 1;

/// Flag of a descriptor: the packet goes on in the next one.
pub(crate) const NEXT: u16 = 1;

/// Where a ring is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingSpec {
    /// Its region.
    pub region: u16,
    /// Its offset there, in bytes.
    pub offset: u32,
    /// The logarithm of its size.
    pub log2_size: u8,
}

impl RingSpec {
    /// Its length in bytes.
    pub fn length(log2_size: u8) -> u32 {
        (DESCRIPTORS + (DESCRIPTOR << log2_size)) as u32
    }
}

/// Why a ring cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadRing {
    /// It is too large.
    #[error("the ring has 2^{0} descriptors, but the maximum is 2^{MAX_LOG2_SIZE}")]
    Size(u8),
    /// It is not in its region.
    #[error("the ring at offset {offset} of region {region} is not in a region")]
    Outside {
        /// The region.
        region: u16,
        /// Its offset.
        offset: u32,
    },
    /// Its indices could not be accessed as words.
    #[error("the ring's offset {0} is not a multiple of 8")]
    Alignment(u32),
    /// It does not begin with the cookie.
    #[error("the ring begins with {0:#x} instead of {COOKIE:#x}: the other side lays out its rings in another way")]
    Cookie(u32),
}

/// What stops a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RingError {
    /// The other side's index is further from ours than the ring is long.
    #[error("the other side's index of a ring is {theirs}, which cannot be while ours is {ours}")]
    Index {
        /// Ours.
        ours: u16,
        /// Theirs.
        theirs: u16,
    },
    /// An empty buffer of the client is not in a region, or smaller than 64 bytes.
    #[error(
        "the other side's empty buffer of {length} bytes at offset {offset} of region {region} cannot be used: it is not in the region, or has less than {MIN_BUFFER} bytes"
    )]
    Buffer {
        /// The region.
        region: u16,
        /// The offset.
        offset: u32,
        /// The length.
        length: u32,
    },
    /// The memory was truncated.
    #[error("the other side has truncated the shared memory")]
    Truncated,
}

/// A descriptor, read once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Descriptor {
    pub(crate) flags: u16,
    pub(crate) region: u16,
    pub(crate) length: u32,
    pub(crate) offset: u32,
}

/// A ring, whole in its region and aligned.
#[derive(Debug)]
pub(crate) struct Ring {
    base: NonNull<u8>,
    mask: u16,
    side: Side,
    regions: Arc<Regions>,
}

// SAFETY: the address is in a region that the value keeps mapped, and everything there is accessed atomically.
unsafe impl Send for Ring {}
// SAFETY: as above.
unsafe impl Sync for Ring {}

impl Ring {
    /// Checks a ring that a client has described.
    pub(crate) fn new(spec: RingSpec, side: Side, regions: Arc<Regions>) -> Result<Ring, BadRing> {
        let RingSpec { region, offset, log2_size } = spec;
        if log2_size > MAX_LOG2_SIZE {
            return Err(BadRing::Size(log2_size));
        }
        // A mapping starts with a page.
        if !offset.is_multiple_of(8) {
            return Err(BadRing::Alignment(offset));
        }
        let base = regions.bytes(region, offset, RingSpec::length(log2_size));
        let base = base.ok_or(BadRing::Outside { region, offset })?;
        Ok(Ring { base, mask: (1 << log2_size) - 1, side, regions })
    }

    /// The same ring, for its bell.
    fn again(&self) -> Ring {
        Ring { regions: Arc::clone(&self.regions), ..*self }
    }

    /// Checks the cookie.
    pub(crate) fn check_cookie(&self) -> Result<(), BadRing> {
        match self.word(0).load(Relaxed) {
            COOKIE => Ok(()),
            other => Err(BadRing::Cookie(other)),
        }
    }

    /// Begins a ring whose memory is ours, and zero.
    pub(crate) fn begin(&self) {
        self.word(0).store(COOKIE, Relaxed);
    }

    /// Number of descriptors.
    #[inline(always)]
    pub(crate) fn size(&self) -> u16 {
        self.mask + 1
    }

    #[inline(always)]
    pub(crate) fn side(&self) -> Side {
        self.side
    }

    #[inline(always)]
    pub(crate) fn regions(&self) -> &Regions {
        &self.regions
    }

    #[inline(always)]
    fn half(&self, at: usize) -> &AtomicU16 {
        // SAFETY: the callers' offsets are even and in the header of the ring, which is mapped as long as self.
        unsafe { AtomicU16::from_ptr(self.base.as_ptr().add(at).cast()) }
    }

    #[inline(always)]
    fn word(&self, at: usize) -> &AtomicU32 {
        // SAFETY: the same; they are multiples of 4.
        unsafe { AtomicU32::from_ptr(self.base.as_ptr().add(at).cast()) }
    }

    /// The halves of a descriptor.
    #[inline(always)]
    fn doubles(&self, index: u16) -> [&AtomicU64; 2] {
        let at = DESCRIPTORS + usize::from(index & self.mask) * DESCRIPTOR;
        // SAFETY: the masked index is one of the ring's, which is mapped whole as long as self; its offset is a multiple
        // of 8, as are those of the descriptors.
        [at, at + 8].map(|at| unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(at).cast()) })
    }

    /// Reads a descriptor.
    #[inline(always)]
    pub(crate) fn read(&self, index: u16) -> Descriptor {
        let [first, second] = self.doubles(index).map(|double| double.load(Relaxed).to_ne_bytes());
        let [f0, f1, r0, r1, l0, l1, l2, l3] = first;
        let [o0, o1, o2, o3, ..] = second;
        Descriptor {
            flags: u16::from_ne_bytes([f0, f1]),
            region: u16::from_ne_bytes([r0, r1]),
            length: u32::from_ne_bytes([l0, l1, l2, l3]),
            offset: u32::from_ne_bytes([o0, o1, o2, o3]),
        }
    }

    /// Writes a descriptor.
    #[inline(always)]
    pub(crate) fn write(&self, index: u16, descriptor: Descriptor) {
        let Descriptor { flags, region, length, offset } = descriptor;
        let ([f0, f1], [r0, r1]) = (flags.to_ne_bytes(), region.to_ne_bytes());
        let [l0, l1, l2, l3] = length.to_ne_bytes();
        let [o0, o1, o2, o3] = offset.to_ne_bytes();
        let [first, second] = self.doubles(index);
        first.store(u64::from_ne_bytes([f0, f1, r0, r1, l0, l1, l2, l3]), Relaxed);
        second.store(u64::from_ne_bytes([o0, o1, o2, o3, 0, 0, 0, 0]), Relaxed);
    }

    /// The other side's index.
    #[inline(always)]
    pub(crate) fn theirs(&self) -> u16 {
        let at = if self.side == Side::Server { HEAD } else { TAIL };
        self.half(at).load(Acquire)
    }

    /// Sets our index: what was written and read before belongs to the other side.
    #[inline(always)]
    pub(crate) fn publish(&self, ours: u16) {
        let at = if self.side == Side::Server { TAIL } else { HEAD };
        self.half(at).store(ours, Release);
    }

    /// Our index as the ring has it: that of a session that begins.
    pub(crate) fn ours(&self) -> u16 {
        let at = if self.side == Side::Server { TAIL } else { HEAD };
        self.half(at).load(Relaxed)
    }

    /// Whether the consumer of a ring asks for an interrupt, after packets were published.
    #[inline(always)]
    pub(crate) fn wants_interrupt(&self) -> bool {
        // The consumer first asks and then looks for packets once more.
        fence(SeqCst);
        self.half(FLAGS).load(Relaxed) & NO_INTERRUPT == 0
    }
}

/// The bell of a ring that brings packets: the word with the other side's index, and the event that the other side
/// raises on request.
pub struct RingBell {
    ring: Ring,
    event: Option<PeerEvent>,
    /// The position of the next packet.
    next: AtomicU16,
}

impl RingBell {
    /// Without an event, an engine that sleeps looks at the ring now and then.
    pub(crate) fn new(ring: &Ring, event: Option<PeerEvent>, next: u16) -> RingBell {
        let bell = RingBell { ring: ring.again(), event, next: AtomicU16::new(next) };
        bell.disarm();
        bell
    }

    #[inline(always)]
    pub(crate) fn moved(&self, next: u16) {
        self.next.store(next, Relaxed);
    }

    /// A word with the index in its place: a server looks at the head, which follows the flags, and a client at the
    /// tail, which comes first in its word.
    fn in_word(&self, index: u16) -> u32 {
        let [low, high] = index.to_ne_bytes();
        u32::from_ne_bytes(if self.ring.side == Side::Server { [0, 0, low, high] } else { [low, high, 0, 0] })
    }
}

impl QueueBell for RingBell {
    fn word(&self) -> Option<&AtomicU32> {
        Some(self.ring.word(if self.ring.side == Side::Server { FLAGS } else { TAIL }))
    }

    fn mask(&self) -> u32 {
        self.in_word(u16::MAX)
    }

    fn quiet(&self) -> u32 {
        self.in_word(self.next.load(Relaxed))
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.event.as_ref().map(PeerEvent::as_fd)
    }

    fn arm(&self) {
        if self.event.is_some() {
            self.ring.half(FLAGS).store(0, Relaxed);
            fence(SeqCst);
        }
    }

    fn disarm(&self) {
        self.ring.half(FLAGS).store(NO_INTERRUPT, Relaxed);
        if let Some(event) = &self.event {
            event.clear();
        }
    }
}
