//! Stacks of free buffers, which threads trade with the pool, and what each thread has taken and given back.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bellows_arena::Fixed;

/// A stack of free buffers, each as the address of a new packet's data.
///
/// It takes a page, of which the addresses fill the second half. Vectors begin at the start of a page, so that
/// the loops that go over a vector and a magazine together touch different halves of a page: a load that lies at
/// the same place in its page as a recent store waits for it, and whether it does must not depend on where the
/// allocator happened to put the two.
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

    /// A magazine that holds one buffer.
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

/// What one thread took from and gave back to the pool. Written by that thread alone.
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

/// What a thread has taken from and given back to the pool since its first packet: see [`buffer_use`](crate::buffer_use).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BufferUse {
    /// Buffers taken: packets made.
    pub taken: u64,
    /// Buffers given back: packets freed.
    pub freed: u64,
}

impl BufferUse {
    /// What was taken and freed from an earlier moment on.
    #[inline(always)]
    pub fn since(self, earlier: BufferUse) -> BufferUse {
        BufferUse { taken: self.taken.wrapping_sub(earlier.taken), freed: self.freed.wrapping_sub(earlier.freed) }
    }
}
