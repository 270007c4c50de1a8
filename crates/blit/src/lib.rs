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
//! - When `barrier` returns, all is written. Until then any of the copies may be done, at any time and in any order; a
//!   destination that another copy of the same batch reads or writes as well holds unspecified bytes of theirs.
//! - Each copy is as by `memmove`: its own source and destination may overlap.
//! - No byte is read outside the sources, and none written outside the destinations.
//! - A barrier is no memory fence: what tells another thread or process that the bytes are there is written with release
//!   ordering, as always.
//!
//! # When a copy is done
//!
//! To note a copy of 60 bytes, and to take the note up again, costs as much as the copy, if its length was foreseen; to be
//! surprised by its length costs several times as much. So a blitter has a habit: the length that came several times in a row. Copies of this
//! length are done at once. All others are noted, and the barrier does them without a branch on what they differ in. A copy
//! of another length breaks the habit at the next barrier.
//!
//! A copy with a barrier of its own has nothing to be noted with. If eight of these have come and no length often, the next 256
//! batches begin with what `memcpy` does, and nothing is learned from them; then eight are looked at again. So the speed of a
//! copy depends on no more than the last 264 batches.
//!
//! A blitter that is [`deferring`](Blitter::deferring) has no habits and notes every copy: for sources that are far away
//! where much is done between one copy and the next, so that the barrier waits for many of them together; and for whoever
//! wants to see what is [`queued`](Blitter::queued). A barrier after each copy is dear then.
//!
//! # Map
//!
//! | file | what it holds |
//! |---|---|
//! | `lib.rs` | the queue, and what is done at once |
//! | `habit.rs` | the length that is foreseen, and whether lengths are mixed |
//! | `choice.rs` | the choice among the loops |
//! | `kernels.rs` | the loops over a queue |
//! | `x86.rs` | what x86-64 processors have beyond the baseline |
//! | `plan.rs` | the same copies by a blitter and by `memcpy`, for measurements |

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

/// Copies with a barrier each, and without a length that comes often, after which lengths are taken to be mixed.
const LONE: usize = 8;

/// Copies that are then passed on before lengths are looked at again: so many that looking is rare.
const MIXED: usize = 256;

/// How copies are done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum How {
    /// As this crate does.
    #[default]
    Blitter,
    /// One by one, each by a call of the C library's `memcpy`, as it would be done without this crate.
    Memcpy,
    /// Not at all, they are only noted: what would be gained if copies cost nothing. For experiments; who relies on the copied bytes
    /// finds others.
    Nothing,
}

/// A queue of copies.
///
/// It holds [`CAPACITY`] copies; one more has those before it done. What is still queued when it is dropped is never done.
pub struct Blitter {
    /// Where the next copy is noted.
    next: NonNull<Copy>,
    /// Where `next` cannot go on just so: the end of the queue, or its start until the first copy of a batch has come.
    stop: NonNull<Copy>,
    habit: Habit,
    /// Copies that are still to be passed on, because lengths are mixed: short ones inline, on a processor that has the registers
    /// for it.
    direct: usize,
    /// The same on any other processor.
    plain: usize,
    /// Copies that had a barrier each, since a length was last foreseen.
    lone: usize,
    kernel: Kernel,
    defers: bool,
    how: How,
    /// The queue, from [`Box::leak`].
    queue: NonNull<[MaybeUninit<Copy>; CAPACITY]>,
}

// SAFETY: the queue belongs to this value alone. The pointers in it are only used by a barrier, for which the callers of
// `copy` vouch, on whatever thread it is.
unsafe impl Send for Blitter {}

impl Blitter {
    /// One that does at once what is better done at once.
    pub fn new() -> Blitter {
        Blitter::with(kernel(), false)
    }

    /// One that does copies in another way, to be compared.
    pub fn how(how: How) -> Blitter {
        let mut blitter = Blitter::new();
        blitter.how = how;
        blitter
    }

    /// One that leaves every copy to the barrier.
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

    /// Has `length` bytes copied: when the next [`barrier`](Blitter::barrier) returns, they are. Takes a few instructions.
    ///
    /// # Safety
    /// Until the next barrier, or until the queue is [cleared](Blitter::clear) or dropped, the source is valid for reads
    /// and the destination for writes of `length` bytes. The bytes may be written by other processes meanwhile: what is
    /// copied then is unspecified, and nothing else depends on them.
    #[inline(always)]
    pub unsafe fn copy(&mut self, destination: *mut u8, source: *const u8, length: usize) {
        // SAFETY: the caller's promise; of lengths that are copied inline a habit has some only where the processor has what it
        // takes, and only from a block to four lines; `direct` is 0 on other processors.
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

    /// Where `next` has come to `stop`.
    ///
    /// Safety: as for [`copy`](Blitter::copy).
    #[inline(never)]
    unsafe fn first_or_too_many(&mut self, destination: *mut u8, source: *const u8, length: usize) {
        if self.how == How::Memcpy {
            // The next of this length is done without the detour, as it would be without this crate.
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
            self.habit.meet(length, 1);
            self.lone = if self.habit.is_some() { 0 } else { self.lone + 1 };
            if self.lone == LONE {
                self.lone = 0;
                *if self.kernel.wide { &mut self.direct } else { &mut self.plain } = MIXED;
            }
            ptr::copy(source, destination, length);
        }
    }

    /// Does all copies that are queued.
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
        // SAFETY: the callers of `copy` vouch for the ranges, and the processor was asked what it has.
        unsafe { run(copies) };
        if !self.defers {
            match length {
                Some(length) => self.habit.meet(length, count),
                None => self.habit.lose(),
            }
            self.lone = 0;
        }
        self.next = self.queue.cast();
    }

    /// The copies that are queued, in their order. Those that were done at once are not among them: of a blitter that is
    /// [deferring](Blitter::deferring) none was, except that a full queue was emptied for the next copy.
    #[inline]
    pub fn queued(&self) -> &[Copy] {
        let start = self.queue.cast::<Copy>();
        // SAFETY: all from the start up to `next` have been written by `note`, and are not while they are borrowed.
        unsafe { from_raw_parts(start.as_ptr(), self.next.offset_from_unsigned(start)) }
    }

    /// Forgets what is queued.
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
