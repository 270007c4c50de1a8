//! Stacks of free buffers, which threads trade with the pool, and each thread's count of buffers taken and freed.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bellows_arena::Fixed;

/// A stack of free buffers, each stored as the address of a new packet's data.
///
/// It takes a page, and the addresses fill its second half. Vectors begin at the start of a page, so loops over a
/// vector and a magazine touch different halves of a page: a load at the same page offset as a recent store waits for
/// it, and this must not depend on where the allocator placed the two.
#[repr(C, align(4096))]
pub(crate) struct Magazine {
    _first_half: [u64; 255],
    pub(crate) length: usize,
    pub(crate) addresses: [usize; Magazine::SIZE],
}

impl Magazine {
    pub(crate) const SIZE: usize = 256;

    pub(crate) fn empty() -> Fixed<Magazine> {
        // SAFETY: a magazine is made of integers, and 0 is the length of an empty one.
        unsafe { Fixed::zeroed() }
    }

    /// A magazine with one buffer.
    pub(crate) fn of(data: usize) -> Fixed<Magazine> {
        let mut magazine = Magazine::empty();
        magazine.push(data);
        magazine
    }

    pub(crate) fn room(&self) -> usize {
        Magazine::SIZE - self.length
    }

    /// Adds a buffer if there is room.
    #[inline(always)]
    pub(crate) fn push(&mut self, data: usize) -> bool {
        let Some(slot) = self.addresses.get_mut(self.length) else { return false };
        *slot = data;
        self.length += 1;
        true
    }

    /// Moves as much of `other` into this one as fits.
    pub(crate) fn absorb(&mut self, other: &mut Magazine) {
        let moved = self.room().min(other.length);
        let rest = other.length - moved;
        self.addresses[self.length..][..moved].copy_from_slice(&other.addresses[rest..][..moved]);
        self.length += moved;
        other.length = rest;
    }
}

/// Number of buffers that one thread took from and gave back to the pool. Only that thread writes it.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) taken: AtomicU64,
    pub(crate) freed: AtomicU64,
}

impl Tally {
    pub(crate) fn outstanding(&self) -> u64 {
        self.taken.load(Relaxed).wrapping_sub(self.freed.load(Relaxed))
    }

    #[inline(always)]
    pub(crate) fn add(cell: &AtomicU64, count: u64) {
        cell.store(cell.load(Relaxed).wrapping_add(count), Relaxed);
    }
}

/// Buffers that a thread has taken and freed since its first packet: see [`buffer_use`](crate::buffer_use).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BufferUse {
    /// Buffers taken: packets made.
    pub taken: u64,
    /// Buffers given back: packets freed.
    pub freed: u64,
}

impl BufferUse {
    /// Buffers taken and freed since an earlier moment.
    #[inline(always)]
    pub fn since(self, earlier: BufferUse) -> BufferUse {
        BufferUse { taken: self.taken.wrapping_sub(earlier.taken), freed: self.freed.wrapping_sub(earlier.freed) }
    }
}
