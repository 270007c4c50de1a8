//! Copies of packets, all complete at a barrier.
//!
//! A device that moves packets between an engine and a guest's memory needs the bytes only when it has handled a whole
//! batch. So copying has two steps: [`Blitter::copy`] hands a copy over, and after [`Blitter::barrier`] all of them are
//! done (Snabb pull request 719).
//!
//! ```
//! use bellows_blit::Blitter;
//!
//! let (source, mut destination) = (*b"sixteen bytes ..", [0; 16]);
//! let mut blitter = Blitter::new();
//! // SAFETY: both arrays are 16 bytes long and live until the barrier.
//! unsafe {
//!     blitter.copy(destination.as_mut_ptr(), source.as_ptr(), 8);
//!     blitter.copy(destination.as_mut_ptr().add(8), source.as_ptr().add(8), 8);
//! }
//! blitter.barrier();
//! assert_eq!(destination, source);
//! ```
//!
//! # Guarantees
//!
//! - When `barrier` returns, everything is written. Until then any of the copies may be done, at any time and in any
//!   order; a destination that another copy of the same batch reads or writes as well contains unspecified bytes of
//!   theirs.
//! - Each copy is like `memmove`: its own source and destination may overlap.
//! - No byte is read outside the sources, and none written outside the destinations.
//! - A barrier is not a memory fence: to tell another thread or process that the bytes are there, write with release
//!   ordering, as always.
//!
//! # How a copy is done
//!
//! At once. A short copy is a few instructions in the caller's code, because a call of the C library costs as much as
//! the copy itself. Its length selects them:
//!
//! | bytes | moved | why |
//! |---|---|---|
//! | below 32 | by `memmove` | no packet is that short |
//! | 32 to 64 | the first and the last 32 | two overlapping halves serve all these lengths without a branch |
//! | 65 to 128 | the first and the last 64 | the same |
//! | 129 to 256 | the first and the last 128 | the same, and a loop would be mispredicted at its end |
//! | above 256 | by `memmove` | a call is hidden behind that many moves |
//!
//! With AVX-512 or AVX2 a move is 32 bytes long: one of a whole line nearly always crosses into the next. AVX-512
//! processors have registers of their own for this; with AVX2 the upper halves of the registers must be cleared, which
//! is as fast as the C library, that does it too. Other processors move 16 bytes. Wherever lengths are mixed, the time
//! goes into mispredicted lengths. One comparison decides between short and long ones, as in the C library.
//!
//! Copies are not queued until the barrier: the entry of a queue costs as much as a copy of 60 bytes, and the loop over
//! the queue never gained that much. Only a [`deferring`](Blitter::deferring) blitter has a queue, to inspect what is
//! [`queued`](Blitter::queued); it is slow.
//!
//! # Files
//!
//! | file | contents |
//! |---|---|
//! | `lib.rs` | the choice by length, and the queue |
//! | `portable.rs` | short copies for any processor |
//! | `x86.rs` | short copies with registers of 32 bytes |
//! | `plan.rs` | the same copies with a blitter and with `memcpy`, for measurements |

pub mod plan;
mod portable;
#[cfg(target_arch = "x86_64")]
mod x86;

use std::ptr;

use bellows_sys::simd::{Level, Simd};
use portable::{BLOCK, LINE};

/// Maximum number of copies in the queue of a [deferring](Blitter::deferring) blitter.
pub const CAPACITY: usize = 256;

/// Maximum length of a short copy. With twice as many moves, 512 bytes would be slower than a call.
const REACH: usize = 4 * LINE;

/// One copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copy {
    /// The first byte to write.
    pub destination: *mut u8,
    /// The first byte to read.
    pub source: *const u8,
    /// Number of bytes.
    pub length: usize,
}

/// How copies are done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum How {
    /// As this crate does.
    #[default]
    Blitter,
    /// One by one, each with a call of the C library's `memcpy`, as without this crate.
    Memcpy,
    /// Not at all: what would be gained if copies were free. For experiments; the destinations do not contain the
    /// copied bytes.
    Nothing,
}

/// What is done with a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CopyWay {
    /// A short one is done inline, any other by the C library.
    AtOnce,
    /// The C library does it.
    Memmove,
    /// It waits for the barrier.
    Queue,
    /// Nothing.
    Discard,
}

/// Copies that are complete at a barrier.
///
/// The queue of a [deferring](Blitter::deferring) blitter holds [`CAPACITY`] copies; one more does those before it.
/// Copies that are still queued when the blitter is dropped are never done.
pub struct Blitter {
    /// The instructions of short copies that are done at once; the baseline for all other ways.
    level: Level,
    way: CopyWay,
    queue: Vec<Copy>,
}

// SAFETY: the pointers in the queue are only used by a barrier, for which the callers of `copy` vouch on any thread.
unsafe impl Send for Blitter {}

impl Blitter {
    /// A blitter that does each copy at once.
    pub fn new() -> Blitter {
        Blitter::with(Simd::chosen())
    }

    /// A blitter that copies in another way, for comparison.
    pub fn how(how: How) -> Blitter {
        match how {
            How::Blitter => Blitter::new(),
            How::Memcpy => Blitter::of(CopyWay::Memmove),
            How::Nothing => Blitter::of(CopyWay::Discard),
        }
    }

    /// A blitter that leaves every copy to the barrier.
    pub fn deferring() -> Blitter {
        Blitter::of(CopyWay::Queue)
    }

    fn with(simd: Simd) -> Blitter {
        Blitter { level: simd.level(), ..Blitter::of(CopyWay::AtOnce) }
    }

    fn of(way: CopyWay) -> Blitter {
        Blitter { level: Level::Baseline, way, queue: Vec::new() }
    }

    /// Copies `length` bytes before the next [`barrier`](Blitter::barrier) returns.
    ///
    /// # Safety
    /// Until the next barrier, or until the queue is [cleared](Blitter::clear) or dropped, the source is valid for
    /// reads and the destination for writes of `length` bytes. Other processes may write the bytes meanwhile: the
    /// copied bytes are then unspecified, and nothing else depends on them.
    #[inline(always)]
    pub unsafe fn copy(&mut self, destination: *mut u8, source: *const u8, length: usize) {
        // Lengths are compared with constants: they are what a processor mispredicts, and it would notice that later if
        // it had to wait for a field. One comparison checks both bounds, because lengths below a block wrap around.
        //
        // SAFETY: the caller's promise. The processor has the instructions of every level that `Simd` has, and the
        // length is within the reach of each.
        unsafe {
            if length.wrapping_sub(BLOCK) > REACH - BLOCK {
                if matches!(self.way, CopyWay::AtOnce | CopyWay::Memmove) {
                    return ptr::copy(source, destination, length);
                }
            } else {
                match self.level {
                    #[cfg(target_arch = "x86_64")]
                    Level::Avx512 => return x86::copy_avx512(destination, source, length),
                    #[cfg(target_arch = "x86_64")]
                    Level::Avx2 => return x86::copy_avx2(destination, source, length),
                    _ if self.way == CopyWay::AtOnce => return portable::copy(destination, source, length),
                    _ => {}
                }
            }
            self.copy_otherwise(Copy { destination, source, length });
        }
    }

    /// Does what only experiments and tests do. It is not in the callers' code because that would choose among six cases
    /// by a jump through a table, which costs a short copy a fifth of its time.
    ///
    /// Safety: as for [`copy`](Blitter::copy).
    #[cold]
    #[inline(never)]
    unsafe fn copy_otherwise(&mut self, copy: Copy) {
        match self.way {
            // SAFETY: the caller's promise.
            CopyWay::AtOnce | CopyWay::Memmove => unsafe { ptr::copy(copy.source, copy.destination, copy.length) },
            CopyWay::Queue => {
                if self.queue.len() == CAPACITY {
                    self.run();
                }
                self.queue.push(copy);
            }
            CopyWay::Discard => {}
        }
    }

    /// Does all queued copies.
    #[inline(always)]
    pub fn barrier(&mut self) {
        if !self.queue.is_empty() {
            self.run();
        }
    }

    #[cold]
    #[inline(never)]
    fn run(&mut self) {
        let mut blitter = Blitter::new();
        for Copy { destination, source, length } in self.queue.drain(..) {
            // SAFETY: the callers of `copy` vouch for the ranges until the barrier.
            unsafe { blitter.copy(destination, source, length) };
        }
    }

    /// The queued copies, in order: those of a [deferring](Blitter::deferring) blitter since the last barrier, except
    /// that a full queue is emptied for the next copy. Other blitters queue none.
    #[inline]
    pub fn queued(&self) -> &[Copy] {
        &self.queue
    }

    /// Discards the queued copies.
    #[inline]
    pub fn clear(&mut self) {
        self.queue.clear();
    }
}

impl Default for Blitter {
    fn default() -> Blitter {
        Blitter::new()
    }
}

#[cfg(test)]
mod tests;
