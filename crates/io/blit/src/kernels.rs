//! The loops over a queue.
//!
//! Each is a plain loop over blocks of half a line, written once and compiled for the baseline and again for newer
//! processors. The whole loop is under the target feature.

use std::ptr;

use crate::Copy;

/// Half a line. Stores of whole lines are not faster where they exist, and are slower across line boundaries.
#[cfg(target_arch = "x86_64")]
pub(crate) type Block = std::arch::x86_64::__m256i;
#[cfg(not(target_arch = "x86_64"))]
pub(crate) type Block = [u64; 4];

/// Bytes of a block.
pub(crate) const BLOCK: usize = size_of::<Block>();

/// Bytes of a line.
pub(crate) const LINE: usize = 2 * BLOCK;

/// Longer copies are left to the C library, which knows when the processor's own string copy is faster.
const MAX_LENGTH: usize = 2_048;

/// Number of copies that are grouped: at most the number of bits of a word.
const GROUP: usize = 32;

/// A copy of less than a block.
///
/// Safety: the source can be read and the destination written.
pub(crate) trait Tiny {
    unsafe fn copy(destination: *mut u8, source: *const u8, length: usize);
}

/// With as many instructions as the length needs.
pub(crate) struct Steps;

impl Tiny for Steps {
    #[inline(always)]
    unsafe fn copy(destination: *mut u8, source: *const u8, length: usize) {
        // SAFETY: the caller's promise; `ends` gets a type that is at most as long, and at least half as long.
        unsafe {
            match length {
                16.. => ends::<u128>(destination, source, length),
                8.. => ends::<u64>(destination, source, length),
                4.. => ends::<u32>(destination, source, length),
                2.. => ends::<u16>(destination, source, length),
                1 => destination.write(source.read()),
                0 => {}
            }
        }
    }
}

/// Copies the first and the last bytes, as many as `T` has, which may overlap. Reads everything before it writes.
///
/// Safety: the source can be read and the destination written, and the length is from one to two times that of `T`.
#[inline(always)]
unsafe fn ends<T>(destination: *mut u8, source: *const u8, length: usize) {
    let last = length - size_of::<T>();
    // SAFETY: the first and the last bytes are within the length.
    unsafe {
        let (first, second) = (source.cast::<T>().read_unaligned(), source.add(last).cast::<T>().read_unaligned());
        destination.cast::<T>().write_unaligned(first);
        destination.add(last).cast::<T>().write_unaligned(second);
    }
}

/// A line. (Two blocks instead of an array, because arrays are moved through the stack.)
type CacheLine = (Block, Block);

/// Safety: a line can be read.
#[inline(always)]
unsafe fn load(source: *const u8) -> CacheLine {
    // SAFETY: the caller's promise.
    unsafe { (source.cast::<Block>().read_unaligned(), source.add(BLOCK).cast::<Block>().read_unaligned()) }
}

/// Safety: a line can be written.
#[inline(always)]
unsafe fn store(destination: *mut u8, line: CacheLine) {
    // SAFETY: the caller's promise.
    unsafe {
        destination.cast::<Block>().write_unaligned(line.0);
        destination.add(BLOCK).cast::<Block>().write_unaligned(line.1);
    }
}

/// Copies the first and the last line, which may overlap. Reads everything before it writes.
///
/// Safety: the source can be read and the destination written, and the length is one or two lines.
#[inline(always)]
unsafe fn line_ends(destination: *mut u8, source: *const u8, length: usize) {
    let last = length - LINE;
    // SAFETY: the first and the last bytes are within the length.
    unsafe {
        let (first, second) = (load(source), load(source.add(last)));
        store(destination, first);
        store(destination.add(last), second);
    }
}

/// Copies the first and the last two lines, which may overlap. Reads everything before it writes.
///
/// Safety: the source can be read and the destination written, and the length is two to four lines.
#[inline(always)]
unsafe fn two_line_ends(destination: *mut u8, source: *const u8, length: usize) {
    let (third, fourth) = (length - 2 * LINE, length - LINE);
    // SAFETY: the first and the last bytes are within the length.
    unsafe {
        let (one, two) = (load(source), load(source.add(LINE)));
        let (three, four) = (load(source.add(third)), load(source.add(fourth)));
        store(destination, one);
        store(destination.add(LINE), two);
        store(destination.add(third), three);
        store(destination.add(fourth), four);
    }
}

/// Copies everything but the first line, which has been written already.
///
/// Safety: as for [`Run`](crate::choice::Run); the length is more than a line, and source and destination do not
/// overlap.
#[inline(always)]
unsafe fn rest(destination: *mut u8, source: *const u8, length: usize) {
    let last = length - LINE;
    // From here on the lines of the destination are whole. Everything before is written already.
    let mut at = LINE - destination.addr() % LINE;
    // SAFETY: each access is within the length.
    unsafe {
        let end = load(source.add(last));
        while at + LINE < last {
            let (one, two) = (load(source.add(at)), load(source.add(at + LINE)));
            store(destination.add(at), one);
            store(destination.add(at + LINE), two);
            at += 2 * LINE;
        }
        if at < last {
            store(destination.add(at), load(source.add(at)));
        }
        store(destination.add(last), end);
    }
}

/// Whether two ranges of a length overlap.
#[inline(always)]
fn overlap(destination: *mut u8, source: *const u8, length: usize) -> bool {
    destination.addr().wrapping_sub(source.addr()).wrapping_add(length - 1) < 2 * length - 1
}

/// Does the copies one by one, each by its length.
///
/// Safety: as for [`Run`](crate::choice::Run).
#[inline(always)]
pub(crate) unsafe fn alike<T: Tiny>(copies: &[Copy]) {
    for &Copy { destination, source, length } in copies {
        // SAFETY: the caller's promise; each function gets lengths from its range.
        unsafe {
            if length < BLOCK {
                T::copy(destination, source, length);
            } else if length <= LINE {
                ends::<Block>(destination, source, length);
            } else if length <= 2 * LINE {
                line_ends(destination, source, length);
            } else if length <= 4 * LINE {
                two_line_ends(destination, source, length);
            } else if length > MAX_LENGTH || overlap(destination, source, length) {
                ptr::copy(source, destination, length);
            } else {
                store(destination, load(source));
                rest(destination, source, length);
            }
        }
    }
}

/// Copies the first line of each copy, whatever its length, and then the rest of the longer ones.
///
/// An unpredictable length costs a branch misprediction, which is more than to copy a short packet. So there is no
/// branch on whether a packet is short: a bit for each copy records whether it is longer, and their number is predicted
/// once for a group.
///
/// Safety: as for [`Run`](crate::choice::Run).
#[inline(always)]
pub(crate) unsafe fn mixed<T: Tiny>(copies: &[Copy]) {
    for group in copies.chunks(GROUP) {
        // A bit for each copy, that of the last one lowest.
        let mut longer = 0u64;
        for &Copy { destination, source, length } in group {
            longer <<= 1;
            // SAFETY: the caller's promise; `ends` copies at most a line of at least a block. Both rare cases are
            // rarely mispredicted.
            unsafe {
                if destination.addr().wrapping_sub(source.addr()) < length {
                    // The first line would overwrite bytes that are still to be read.
                    ptr::copy(source, destination, length);
                } else if length < BLOCK {
                    T::copy(destination, source, length);
                } else {
                    ends::<Block>(destination, source, length.min(LINE));
                    longer |= u64::from(length > LINE);
                }
            }
        }
        longer <<= u64::BITS as usize - group.len();
        while longer != 0 {
            let index = longer.leading_zeros();
            longer &= !(1 << (u64::BITS - 1) >> index);
            let Copy { destination, source, length } = group[index as usize];
            // SAFETY: the caller's promise; it is longer than a line.
            unsafe {
                if length > MAX_LENGTH || overlap(destination, source, length) {
                    ptr::copy(source.add(LINE), destination.add(LINE), length - LINE);
                } else {
                    rest(destination, source, length);
                }
            }
        }
    }
}
