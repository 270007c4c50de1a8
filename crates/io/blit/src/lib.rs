//! Batched copies: queued one by one and then done together.
//!
//! A device that moves packets between an engine and a guest's memory knows the next copy long before it needs the
//! bytes. So copying has two steps: [`Blitter::copy`] queues a copy, and [`Blitter::barrier`] does all queued ones.
//! There is one call for a batch instead of one for each packet, lengths are not predicted anew, and the lines of later
//! copies are fetched during the current one (Snabb pull request 719).
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
//! # When a copy is done
//!
//! Queueing a copy of 60 bytes and reading the queue again costs as much as the copy, if its length was predicted; a
//! mispredicted length costs several times as much. So a blitter has a habit: the length that came several times in a
//! row. Copies of this length are done at once. All others are queued, and the barrier does them without branches on
//! their differences. A copy of another length breaks the habit at the next barrier.
//!
//! If each copy has its own barrier, there is nothing to batch. After eight of these without a frequent length, the
//! next 256 batches start with a plain `memcpy`, and no length is learned; then eight are inspected again. So the speed
//! of a copy depends only on the last 264 batches.
//!
//! A [`deferring`](Blitter::deferring) blitter has no habit and queues every copy: for distant sources with much work
//! between two copies, so that the barrier waits for many of them together; and to inspect what is
//! [`queued`](Blitter::queued). A barrier after each copy is then expensive.
//!
//! # Files
//!
//! | file | contents |
//! |---|---|
//! | `lib.rs` | the queue, and immediate copies |
//! | `habit.rs` | the predicted length, and whether lengths are mixed |
//! | `choice.rs` | the choice among the loops |
//! | `kernels.rs` | the loops over a queue |
//! | `x86.rs` | instructions of x86-64 processors beyond the baseline |
//! | `plan.rs` | the same copies with a blitter and with `memcpy`, for measurements |

mod choice;
mod habit;
mod kernels;
pub mod plan;
#[cfg(target_arch = "x86_64")]
mod x86;

use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};
use std::slice::from_raw_parts;

use choice::{Kernel, kernel};
use habit::Habit;
#[cfg(target_arch = "x86_64")]
use kernels::{BLOCK, LINE};

/// Maximum number of copies in the queue.
pub const CAPACITY: usize = 256;

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

/// Number of copies with a barrier each, and without a frequent length, after which lengths count as mixed.
const LONE: usize = 8;

/// Number of copies that are then passed on before lengths are inspected again, so that inspection is rare.
const MIXED: usize = 256;

/// How copies are done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum How {
    /// As this crate does.
    #[default]
    Blitter,
    /// One by one, each with a call of the C library's `memcpy`, as without this crate.
    Memcpy,
    /// Not at all, only queued: what would be gained if copies were free. For experiments; the destinations do not
    /// contain the copied bytes.
    Nothing,
}

/// A queue of copies.
///
/// It holds [`CAPACITY`] copies; one more does those before it. Copies that are still queued when it is dropped are
/// never done.
pub struct Blitter {
    /// The slot for the next copy.
    next: NonNull<Copy>,
    /// Where `next` needs special handling: the end of the queue, or its start until the first copy of a batch has
    /// come.
    stop: NonNull<Copy>,
    habit: Habit,
    /// Number of copies that are still to be passed on because lengths are mixed; short ones are copied inline. 0 on a
    /// processor without the registers for it.
    direct: usize,
    /// The same on any other processor.
    plain: usize,
    /// Number of copies with a barrier each since a length was last predicted.
    lone: usize,
    kernel: Kernel,
    defers: bool,
    how: How,
    /// The queue, from [`Box::leak`].
    queue: NonNull<[MaybeUninit<Copy>; CAPACITY]>,
}

// SAFETY: the queue belongs to this value alone. The pointers in it are only used by a barrier, for which the callers
// of `copy` vouch on any thread.
unsafe impl Send for Blitter {}

impl Blitter {
    /// A blitter that does a copy at once if that is better.
    pub fn new() -> Blitter {
        Blitter::with(kernel(), false)
    }

    /// A blitter that copies in another way, for comparison.
    pub fn how(how: How) -> Blitter {
        let mut blitter = Blitter::new();
        blitter.how = how;
        blitter
    }

    /// A blitter that leaves every copy to the barrier.
    pub fn deferring() -> Blitter {
        Blitter::with(kernel(), true)
    }

    fn with(kernel: Kernel, defers: bool) -> Blitter {
        let queue = NonNull::from(Box::leak(Box::new([MaybeUninit::uninit(); CAPACITY])));
        let (next, stop) = (queue.cast(), queue.cast());
        Blitter {
            next,
            stop,
            habit: Habit::new(kernel.wide),
            direct: 0,
            plain: 0,
            lone: 0,
            kernel,
            defers,
            how: How::Blitter,
            queue,
        }
    }

    /// Copies `length` bytes before the next [`barrier`](Blitter::barrier) returns. Takes a few instructions.
    ///
    /// # Safety
    /// Until the next barrier, or until the queue is [cleared](Blitter::clear) or dropped, the source is valid for
    /// reads and the destination for writes of `length` bytes. Other processes may write the bytes meanwhile: the
    /// copied bytes are then unspecified, and nothing else depends on them.
    #[inline(always)]
    pub unsafe fn copy(&mut self, destination: *mut u8, source: *const u8, length: usize) {
        // SAFETY: the caller's promise; a habit only has lengths to copy inline if the processor has the registers, and
        // only from a block to four lines; `direct` is 0 on other processors.
        unsafe {
            #[cfg(target_arch = "x86_64")]
            if length == self.habit.inline {
                return if length <= LINE {
                    x86::block_ends(destination, source, length)
                } else if length <= 2 * LINE {
                    x86::line_ends(destination, source, length)
                } else {
                    x86::two_line_ends(destination, source, length)
                };
            }
            // Here, and with no other test than that of the length: two clocks more would be a tenth of a mixed copy.
            if let Some(left) = self.direct.checked_sub(1) {
                self.direct = left;
                #[cfg(target_arch = "x86_64")]
                if (BLOCK..=LINE).contains(&length) {
                    return x86::block_ends(destination, source, length);
                }
                return ptr::copy(source, destination, length);
            }
            if length == self.habit.other {
                return ptr::copy(source, destination, length);
            }
            if self.next == self.stop {
                if let Some(left) = self.plain.checked_sub(1) {
                    self.plain = left;
                    return ptr::copy(source, destination, length);
                }
                return self.first_or_too_many(destination, source, length);
            }
            self.note(destination, source, length);
        }
    }

    /// Safety: `next` is not the end of the queue.
    #[inline(always)]
    unsafe fn note(&mut self, destination: *mut u8, source: *const u8, length: usize) {
        // SAFETY: so it can be written, and one more is at most the end.
        unsafe {
            self.next.write(Copy { destination, source, length });
            self.next = self.next.add(1);
        }
    }

    /// Handles the case that `next` equals `stop`.
    ///
    /// Safety: as for [`copy`](Blitter::copy).
    #[inline(never)]
    unsafe fn first_or_too_many(&mut self, destination: *mut u8, source: *const u8, length: usize) {
        if self.how == How::Memcpy {
            // The next copy of this length is done directly, as without this crate.
            self.habit.other = length;
            // SAFETY: the caller's promise.
            return unsafe { ptr::copy(source, destination, length) };
        }
        if self.stop == self.end() {
            self.run();
        }
        self.stop = self.end();
        // SAFETY: the caller's promise; the queue is empty.
        unsafe {
            if self.defers || self.how == How::Nothing {
                return self.note(destination, source, length);
            }
            self.habit.record(length, 1);
            self.lone = if self.habit.is_some() { 0 } else { self.lone + 1 };
            if self.lone == LONE {
                self.lone = 0;
                *if self.kernel.wide { &mut self.direct } else { &mut self.plain } = MIXED;
            }
            ptr::copy(source, destination, length);
        }
    }

    /// Does all queued copies.
    #[inline(always)]
    pub fn barrier(&mut self) {
        let start = self.queue.cast();
        if self.stop != start {
            if self.next != start {
                self.run();
            }
            self.stop = start;
        }
    }

    #[inline(never)]
    fn run(&mut self) {
        if self.how == How::Nothing {
            return self.next = self.queue.cast();
        }
        let copies = self.queued();
        let count = copies.len();
        let length = habit::common_length(copies);
        let run = if length.is_some() { self.kernel.alike } else { self.kernel.mixed };
        // SAFETY: the callers of `copy` vouch for the ranges, and the processor's features were checked.
        unsafe { run(copies) };
        if !self.defers {
            match length {
                Some(length) => self.habit.record(length, count),
                None => self.habit.reset(),
            }
            self.lone = 0;
        }
        self.next = self.queue.cast();
    }

    /// The queued copies, in order. Copies that were done at once are not among them: a [deferring](Blitter::deferring)
    /// blitter does none at once, except that a full queue is emptied for the next copy.
    #[inline]
    pub fn queued(&self) -> &[Copy] {
        let start = self.queue.cast::<Copy>();
        // SAFETY: `note` has written everything from the start up to `next`, and does not while it is borrowed.
        unsafe { from_raw_parts(start.as_ptr(), self.next.offset_from_unsigned(start)) }
    }

    /// Discards the queued copies.
    #[inline]
    pub fn clear(&mut self) {
        self.next = self.queue.cast();
        self.stop = self.next;
    }

    fn end(&self) -> NonNull<Copy> {
        // SAFETY: one past the last element of the queue.
        unsafe { self.queue.cast::<Copy>().add(CAPACITY) }
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
