//! Stacks of free buffers, which threads trade with the pool and with each other, and each thread's count of buffers taken
//! and freed.

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bellows_ring::mailbox::Mailbox;
use bellows_ring::stack::Links;
use bellows_sys::cache::{lines, prefetch, prefetch_to_write};

/// A stack of free buffers, each stored as the address of a new packet's data.
#[repr(C)]
pub(crate) struct Magazine {
    pub(crate) length: usize,
    pub(crate) addresses: [usize; Magazine::SIZE],
}

/// The page of a magazine, at a fixed address.
///
/// The addresses fill its second half. Vectors begin at the start of a page, so loops over a vector and a magazine touch
/// different halves of a page: a load at the same page offset as a recent store waits for it, and this must not depend
/// on where the allocator placed the two.
#[repr(C, align(4096))]
struct MagazinePage {
    /// The number of the next magazine in a depot. Other threads may read it at any time, whoever has the magazine.
    link: AtomicU64,
    _first_half: [u64; 254],
    magazine: Magazine,
}

const PAGE: usize = size_of::<MagazinePage>();
const _: () = assert!(PAGE == 4_096 && size_of::<AtomicU64>() == size_of::<u64>());

/// A magazine that one thread has, or nobody.
///
/// Magazines are never given back to the arena, because a thread may read the link of one that it has seen in a depot.
/// Dropping this would lose the page: give it to a depot.
pub(crate) struct Held(NonNull<Magazine>);

// SAFETY: the magazine belongs to this value alone, and is plain data.
unsafe impl Send for Held {}

impl Held {
    /// A new magazine, without buffers.
    pub(crate) fn new() -> Held {
        let page = bellows_arena::take(PAGE);
        page.as_ptr().expose_provenance();
        // SAFETY: the block is a whole page, zeroed, and nobody else's; a page of zeros is an empty magazine.
        Held(unsafe { page.add(std::mem::offset_of!(MagazinePage, magazine)).cast() })
    }

    /// A magazine with one buffer.
    pub(crate) fn of(data: usize, empty: Held) -> Held {
        let mut magazine = empty;
        magazine.push(data);
        magazine
    }

    /// Prefetches the magazine, which another thread has filled.
    pub(crate) fn prefetch(&self) {
        lines(self.0.as_ptr().cast(), size_of::<Magazine>()).for_each(prefetch);
    }

    /// Prefetches the magazine, which another thread has emptied, to be filled.
    pub(crate) fn prefetch_to_write(&self) {
        lines(self.0.as_ptr().cast(), size_of::<Magazine>()).for_each(prefetch_to_write);
    }

    /// Gives the magazine up for its number: that of its page in the address space.
    pub(crate) fn into_number(self) -> u64 {
        (self.0.addr().get() / PAGE) as u64
    }

    /// The magazine with this number.
    ///
    /// # Safety
    /// The number came from [`into_number`](Held::into_number), and nobody has made a value of it since.
    pub(crate) unsafe fn from_number(number: u64) -> Held {
        // SAFETY: pages of magazines are never at address 0, and new() has exposed their provenance.
        let page = unsafe { bellows_arena::pointer(number as usize * PAGE) };
        // SAFETY: a magazine's page is at this address, and never given back.
        Held(unsafe { page.add(std::mem::offset_of!(MagazinePage, magazine)).cast() })
    }
}

impl Deref for Held {
    type Target = Magazine;

    #[inline(always)]
    fn deref(&self) -> &Magazine {
        // SAFETY: the page is never given back, and this value alone refers to its magazine.
        unsafe { self.0.as_ref() }
    }
}

impl DerefMut for Held {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Magazine {
        // SAFETY: as above, and the value is borrowed exclusively.
        unsafe { self.0.as_mut() }
    }
}

/// The links of all magazines, by number.
pub(crate) struct Pages;

impl Links for Pages {
    fn link(&self, element: u64) -> &AtomicU64 {
        // SAFETY: the numbers in a depot are those of magazines, whose pages begin with the link and are never given
        // back. A `Held` refers only to the magazine behind it.
        unsafe { bellows_arena::pointer(element as usize * PAGE).cast().as_ref() }
    }
}

impl Magazine {
    pub(crate) const SIZE: usize = 256;

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

    /// Moves up to `most` buffers of `other` into this one, as many as fit.
    pub(crate) fn absorb(&mut self, other: &mut Magazine, most: usize) {
        let moved = self.room().min(other.length).min(most);
        let rest = other.length - moved;
        self.addresses[self.length..][..moved].copy_from_slice(&other.addresses[rest..][..moved]);
        self.length += moved;
        other.length = rest;
    }
}

/// What other threads see of a thread that has a cache.
pub(crate) struct Member {
    pub(crate) tally: Tally,
    /// Where the thread asks others for a magazine when it finds no buffers.
    pub(crate) mailbox: Mailbox,
}

impl Member {
    pub(crate) fn new() -> Member {
        Member { tally: Tally::default(), mailbox: Mailbox::new() }
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
