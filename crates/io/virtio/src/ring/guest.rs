//! Access to memory that the other side may write at any time: each value is read once and is untrusted.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

use super::error::RingError;
use crate::memory::Memory;

/// The chain continues in another descriptor.
pub(super) const NEXT: u16 = 1;
/// The device may only write the buffer.
pub(super) const WRITE: u16 = 2;
/// The buffer is a table of descriptors.
pub(super) const INDIRECT: u16 = 4;
/// Packed rings: the driver has made the descriptor available, if this equals its wrap counter.
pub(super) const AVAILABLE: u16 = 1 << 7;
/// Packed rings: the device has used it, if this equals its wrap counter.
pub(super) const USED: u16 = 1 << 15;

/// Bytes of a descriptor.
pub(super) const DESCRIPTOR: usize = 16;

/// A descriptor as it was read (specification, 2.7.5 and 2.8.8).
#[derive(Clone, Copy)]
pub(super) struct Descriptor {
    /// The guest address of the buffer.
    pub(super) address: u64,
    /// The buffer's length in bytes.
    pub(super) length: u32,
    pub(super) flags: u16,
    /// Split rings: the next descriptor of the chain. Packed rings: the buffer's id.
    pub(super) link: u16,
}

impl Descriptor {
    #[inline(always)]
    fn decode(packed: bool, address: u64, word: u64) -> Descriptor {
        let (low, high) = ((word >> 32) as u16, (word >> 48) as u16);
        let (flags, link) = if packed { (high, low) } else { (low, high) };
        Descriptor { address: u64::from_le(address), length: word as u32, flags, link }
    }

    /// Reads a descriptor of a ring, the word with the flags first. `packed` is constant where this is inlined.
    ///
    /// Safety: `table` has more than `index` descriptors, aligned to 8 bytes.
    #[inline(always)]
    pub(super) unsafe fn read(packed: bool, table: NonNull<u8>, index: u16) -> Descriptor {
        // SAFETY: both words are in a descriptor that the caller vouches for; atomics may race with the other side.
        unsafe {
            let descriptor = table.as_ptr().add(usize::from(index) * DESCRIPTOR).cast::<u64>();
            let word = u64::from_le(AtomicU64::from_ptr(descriptor.add(1)).load(Ordering::Acquire));
            let address = AtomicU64::from_ptr(descriptor).load(Ordering::Relaxed);
            Descriptor::decode(packed, address, word)
        }
    }

    /// Reads a descriptor of an indirect table, at any alignment.
    ///
    /// Safety: 16 bytes can be read at `from`.
    #[inline(always)]
    pub(super) unsafe fn read_anywhere(packed: bool, from: *const u8) -> Descriptor {
        // SAFETY: the caller's promise.
        unsafe { Descriptor::decode(packed, read_u64(from), u64::from_le(read_u64(from.add(8)))) }
    }
}

/// A word at any address.
#[repr(C, packed)]
struct Unaligned<T>(T);

/// Reads eight bytes at any address, once.
///
/// Safety: they can be read.
#[inline(always)]
pub(super) unsafe fn read_u64(from: *const u8) -> u64 {
    // SAFETY: the caller's promise; a packed struct is aligned anywhere.
    unsafe { from.cast::<Unaligned<u64>>().read_volatile().0 }
}

/// Reads four bytes at any address, once.
///
/// Safety: they can be read.
#[inline(always)]
pub(super) unsafe fn read_u32(from: *const u8) -> u32 {
    // SAFETY: as above.
    unsafe { from.cast::<Unaligned<u32>>().read_volatile().0 }
}

/// Reads two bytes at any address, once.
///
/// Safety: they can be read.
#[inline(always)]
pub(super) unsafe fn read_u16(from: *const u8) -> u16 {
    // SAFETY: as above.
    unsafe { from.cast::<Unaligned<u16>>().read_volatile().0 }
}

/// Writes eight bytes at any address.
///
/// Safety: they can be written.
#[inline(always)]
pub(super) unsafe fn write_u64(to: *mut u8, value: u64) {
    // SAFETY: as above.
    unsafe { to.cast::<Unaligned<u64>>().write_volatile(Unaligned(value)) }
}

/// Writes four bytes at any address.
///
/// Safety: they can be written.
#[inline(always)]
pub(super) unsafe fn write_u32(to: *mut u8, value: u32) {
    // SAFETY: as above.
    unsafe { to.cast::<Unaligned<u32>>().write_volatile(Unaligned(value)) }
}

/// Writes two bytes at any address.
///
/// Safety: they can be written.
#[inline(always)]
pub(super) unsafe fn write_u16(to: *mut u8, value: u16) {
    // SAFETY: as above.
    unsafe { to.cast::<Unaligned<u16>>().write_volatile(Unaligned(value)) }
}

/// An area of a ring that both sides access. The pointer is valid as long as the memory is mapped.
#[derive(Clone, Copy, Debug)]
pub(super) struct Area(pub(super) NonNull<u8>);

impl Area {
    /// Safety: the area is longer than `offset + 2`, `offset` is even, and the memory stays mapped while the reference
    /// is used.
    #[inline(always)]
    pub(super) unsafe fn half<'a>(self, offset: usize) -> &'a AtomicU16 {
        // SAFETY: the caller's promise; areas are aligned to two bytes at least (Setup checks).
        unsafe { AtomicU16::from_ptr(self.0.as_ptr().add(offset).cast()) }
    }

    /// Safety: the area is longer than `offset + 4`, its start and `offset` are multiples of 4, and the memory stays
    /// mapped.
    #[inline(always)]
    pub(super) unsafe fn word<'a>(self, offset: usize) -> &'a AtomicU32 {
        // SAFETY: the caller's promise.
        unsafe { AtomicU32::from_ptr(self.0.as_ptr().add(offset).cast()) }
    }

    /// Safety: the area is longer than `offset + 8`, its start and `offset` are multiples of 8, and the memory stays
    /// mapped.
    #[inline(always)]
    pub(super) unsafe fn double<'a>(self, offset: usize) -> &'a AtomicU64 {
        // SAFETY: the caller's promise.
        unsafe { AtomicU64::from_ptr(self.0.as_ptr().add(offset).cast()) }
    }
}

/// The offset if it is below the length, else 0. Computed without a branch: even if the processor speculates past a
/// comparison that turns out false, a driver's address only leads into its own memory (Spectre, variant 1).
#[inline(always)]
fn below(offset: u64, length: u64) -> u64 {
    let mask: u64;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: computes with registers only: the comparison borrows if the offset is below the length, and the mask is 0
    // minus the borrow.
    unsafe {
        std::arch::asm!(
            "cmp {offset}, {length}",
            "sbb {mask}, {mask}",
            offset = in(reg) offset,
            length = in(reg) length,
            mask = out(reg) mask,
            options(pure, nomem, nostack),
        );
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        // The sign bit is clear in both if the offset is below the length, which is below 2^63, as all mappings are.
        let offset = std::hint::black_box(offset);
        mask = (!(offset | (length - 1).wrapping_sub(offset)) as i64 >> 63) as u64;
    }
    offset & mask
}

/// The region of the last buffer, cached for fast access.
#[derive(Clone, Copy)]
pub(super) struct Window {
    guest: u64,
    length: u64,
    host: *mut u8,
}

impl Window {
    pub(super) const NONE: Window = Window { guest: 0, length: 0, host: std::ptr::null_mut() };

    /// The host address of a buffer, if all of it is in this region.
    #[inline(always)]
    pub(super) fn find(&self, address: u64, length: u32) -> Option<*mut u8> {
        let offset = address.wrapping_sub(self.guest);
        if offset < self.length && u64::from(length) <= self.length - offset {
            Some(self.host.wrapping_add(below(offset, self.length) as usize))
        } else {
            None
        }
    }

    /// The host address of a byte to prefetch, if it is in this region. Without the mask: if the processor speculates
    /// with an address from elsewhere it prefetches a line, reads nothing, and nothing depends on the contents.
    #[inline(always)]
    pub(super) fn find_to_fetch(&self, address: u64) -> Option<*mut u8> {
        let offset = address.wrapping_sub(self.guest);
        (offset < self.length).then(|| self.host.wrapping_add(offset as usize))
    }

    /// Moves to the region of an address.
    ///
    /// # Errors
    /// There is no such region.
    #[cold]
    #[inline(never)]
    pub(super) fn move_to(&mut self, memory: &Memory, address: u64) -> Result<(), RingError> {
        let region = memory.region(address).ok_or(RingError::OutsideMemory)?;
        *self = Window { guest: region.guest(), length: region.length(), host: region.host().as_ptr() };
        Ok(())
    }

    /// The host address of the first bytes of a buffer, and how many of them are contiguous; the window moves there.
    #[cold]
    #[inline(never)]
    pub(super) fn part(&mut self, memory: &Memory, address: u64, length: u32) -> Result<(*mut u8, u32), RingError> {
        self.move_to(memory, address)?;
        let offset = address - self.guest;
        let together = u64::from(length).min(self.length - offset) as u32;
        Ok((self.host.wrapping_add(offset as usize), together))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn an_address_is_found_where_it_lies_or_not_at_all(
            guest in prop_oneof![Just(0), any::<u64>()],
            length in 1_u64..1 << 40,
            offset in prop_oneof![0_u64..1 << 41, any::<u64>()],
            wanted in prop_oneof![0_u32..4, any::<u32>()],
        ) {
            let window = Window { guest, length, host: std::ptr::without_provenance_mut(1 << 45) };
            let found = window.find(guest.wrapping_add(offset), wanted).map(|host| host as u64);
            let end = u128::from(offset) + u128::from(wanted);
            let is_inside = offset < length && end <= u128::from(length);
            prop_assert_eq!(found, is_inside.then(|| (1 << 45) + offset));
            prop_assert_eq!(below(offset % (1 << 62), length), if offset % (1 << 62) < length { offset % (1 << 62) } else { 0 });
        }
    }
}
