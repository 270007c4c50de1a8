//! Copies that are queued one by one and then done together.
//!
//! Whoever moves packets between an engine and a guest's memory knows the next copy long before it needs the bytes to be
//! there. So copying is split in two: [`Blitter::copy`] notes what is to be copied, and [`Blitter::barrier`] does all
//! that was noted. One call for a batch instead of one for each packet, no size to be guessed anew, and the lines of the
//! copies to come are on their way while the present one is made (Snabb pull request 719).
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
//! # What is guaranteed
//!
//! - Queued copies take effect in the order in which they were queued, and each as by `memmove`: its bytes are those that
//!   its source held when its turn came, even where source and destination overlap.
//! - No byte is read outside the sources, and none written outside the destinations.
//! - When `barrier` returns, all is written. It is not a memory fence: what tells another thread or process that the bytes
//!   are there is written with release ordering, as always.
//!
//! # Map
//!
//! | file | what it holds |
//! |---|---|
//! | `lib.rs` | the queue |
//! | `kernels.rs` | the loops over a queue for each kind of processor, and the choice among them |
//! | `x86.rs` | those for x86-64 |

mod kernels;
#[cfg(target_arch = "x86_64")]
mod x86;

use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::slice::from_raw_parts;

use kernels::{Kernel, kernel};

/// The instruction set that copies use on this processor: `avx512`, `avx2` or `baseline`.
///
/// The environment variable `BELLOWS_SIMD`, with one of these names, asks for a lesser one than the processor has.
pub fn instruction_set() -> &'static str {
    kernel().name
}

/// Copies that fit into the queue.
pub const CAPACITY: usize = 256;

/// One copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copy {
    /// The first byte to be written.
    pub destination: *mut u8,
    /// The first byte to be read.
    pub source: *const u8,
    /// How many bytes.
    pub length: usize,
}

/// A queue of copies.
///
/// It holds [`CAPACITY`] copies; one that fills it has them done at once. What is still queued when it is dropped is
/// never done.
pub struct Blitter {
    /// Where the next copy is noted: within the queue, never at its end.
    next: NonNull<Copy>,
    end: NonNull<Copy>,
    /// The queue, from [`Box::leak`].
    queue: NonNull<[MaybeUninit<Copy>; CAPACITY]>,
    run: unsafe fn(&[Copy]),
}

// SAFETY: the queue belongs to this value alone. The pointers in it are only used by a barrier, for which the callers of
// `copy` vouch, on whatever thread it is.
unsafe impl Send for Blitter {}

impl Blitter {
    /// An empty queue.
    pub fn new() -> Blitter {
        Blitter::with(kernel())
    }

    fn with(kernel: Kernel) -> Blitter {
        let queue = NonNull::from(Box::leak(Box::new([MaybeUninit::uninit(); CAPACITY])));
        let next = queue.cast::<Copy>();
        // SAFETY: one past the last element of the queue.
        let end = unsafe { next.add(CAPACITY) };
        Blitter { next, end, queue, run: kernel.run }
    }

    /// Notes a copy of `length` bytes, which the next [`barrier`](Blitter::barrier) does. Takes a few instructions.
    ///
    /// # Safety
    /// Until the next barrier, or until the queue is [cleared](Blitter::clear) or dropped, the source is valid for reads
    /// and the destination for writes of `length` bytes. The bytes may be written by other processes meanwhile: what is
    /// copied then is unspecified, and nothing else depends on them.
    #[inline(always)]
    pub unsafe fn copy(&mut self, destination: *mut u8, source: *const u8, length: usize) {
        // SAFETY: `next` is a place in the queue, so it can be written and one more is at most the end.
        unsafe {
            self.next.write(Copy { destination, source, length });
            self.next = self.next.add(1);
        }
        if self.next == self.end {
            self.make_room();
        }
    }

    /// Does all copies that are queued.
    #[inline]
    pub fn barrier(&mut self) {
        // SAFETY: the callers of `copy` vouch for the ranges.
        unsafe { (self.run)(self.queued()) };
        self.clear();
    }

    /// The copies that are queued, in their order.
    #[inline]
    pub fn queued(&self) -> &[Copy] {
        let start = self.queue.cast::<Copy>();
        // SAFETY: all from the start up to `next` have been written by `copy`, and are not while they are borrowed.
        unsafe { from_raw_parts(start.as_ptr(), self.next.offset_from_unsigned(start)) }
    }

    /// Forgets what is queued.
    #[inline]
    pub fn clear(&mut self) {
        self.next = self.queue.cast();
    }

    #[cold]
    #[inline(never)]
    fn make_room(&mut self) {
        self.barrier();
    }
}

impl Default for Blitter {
    fn default() -> Blitter {
        Blitter::new()
    }
}

impl Drop for Blitter {
    fn drop(&mut self) {
        // SAFETY: it came from a box, and nobody else has the pointer. Its elements need no dropping.
        drop(unsafe { Box::from_raw(self.queue.as_ptr()) });
    }
}

#[cfg(test)]
mod tests;
