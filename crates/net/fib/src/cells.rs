//! The memory of a compiled table: words that many threads read while one writes.
//!
//! Two kinds of words share it. *Roots* change at any time, and are read and written atomically. *Nodes* are written
//! while no root leads to them and never change afterwards, so they are read as plain memory.

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};

use bellows_sys::cache;
use bellows_sys::memory::Words;

/// Zeroed words, on huge pages if the system has them.
pub(crate) struct Cells {
    /// The first word of `memory`.
    first: NonNull<u32>,
    length: usize,
    /// Unmaps the memory when it is dropped.
    _memory: Words,
}

// SAFETY: the value owns its memory, which any thread may access under the rules of the functions below.
unsafe impl Send for Cells {}
// SAFETY: as above.
unsafe impl Sync for Cells {}

impl Cells {
    /// At least `length` zeros.
    pub fn new(length: usize) -> io::Result<Cells> {
        let mut memory = Words::new(length.div_ceil(2))?;
        let bytes = memory.bytes_mut();
        let length = bytes.len() / size_of::<u32>();
        let first = NonNull::from(bytes).cast();
        Ok(Cells { first, length, _memory: memory })
    }

    /// The number of words.
    pub fn length(&self) -> usize {
        self.length
    }

    /// A root. Hot.
    #[inline(always)]
    fn root(&self, at: usize) -> &AtomicU32 {
        assert!(at < self.length, "there is no such word");
        // SAFETY: as just checked, the word is within the memory, which lives as long as this value. Roots are only accessed atomically.
        unsafe { AtomicU32::from_ptr(self.first.as_ptr().add(at)) }
    }

    /// Reads a root, and with it the right to read the nodes that it leads to. Hot.
    #[inline(always)]
    pub fn load(&self, at: usize) -> u32 {
        self.root(at).load(Ordering::Acquire)
    }

    /// Reads a root without a check of its place. Hot.
    ///
    /// # Safety
    /// The word is within the memory, and is a root.
    #[inline(always)]
    pub unsafe fn load_unchecked(&self, at: usize) -> u32 {
        debug_assert!(at < self.length);
        // SAFETY: within the memory, as the caller promises, and only accessed atomically.
        unsafe { AtomicU32::from_ptr(self.first.as_ptr().add(at)) }.load(Ordering::Acquire)
    }

    /// Publishes the nodes that were written so far in a root.
    pub fn store(&self, at: usize, entry: u32) {
        self.root(at).store(entry, Ordering::Release);
    }

    /// A cache line of a node as half words, in the order in which they are in memory. Hot.
    ///
    /// # Safety
    /// The words are within the memory and belong to a node that a root led to when it was [loaded](Cells::load), or
    /// that the caller has written. Nobody writes them as long as the reference lives.
    #[inline(always)]
    pub unsafe fn halves<const HALVES: usize>(&self, at: usize) -> &[u16; HALVES] {
        debug_assert!(at + HALVES / 2 <= self.length);
        // SAFETY: within the memory and not written, as the caller promises; all bits are valid, and a word is aligned.
        unsafe { self.first.add(at).cast().as_ref() }
    }

    /// A word of a node. Loads of single words are kept single, because a gather is slower than they are. Hot.
    ///
    /// # Safety
    /// As for [`Cells::halves`].
    #[inline(always)]
    pub unsafe fn word(&self, at: usize) -> u32 {
        debug_assert!(at < self.length);
        // SAFETY: within the memory, as the caller promises.
        unsafe { AtomicU32::from_ptr(self.first.as_ptr().add(at)) }.load(Ordering::Relaxed)
    }

    /// Half a word of a node, by its place in half words; of a word, the low half comes first. Hot.
    ///
    /// # Safety
    /// As for [`Cells::halves`].
    #[inline(always)]
    pub unsafe fn half(&self, at: usize) -> u16 {
        debug_assert!(at / 2 < self.length);
        let at = if cfg!(target_endian = "big") { at ^ 1 } else { at };
        // SAFETY: within the memory, as the caller promises, and aligned. Nodes are not written while they are read.
        unsafe { AtomicU16::from_ptr(self.first.as_ptr().cast::<u16>().add(at)) }.load(Ordering::Relaxed)
    }

    /// Has the line with this word brought into the first-level cache. It need not exist. Hot.
    #[inline(always)]
    pub fn prefetch(&self, at: usize) {
        cache::prefetch(self.first.as_ptr().wrapping_add(at).cast());
    }

    /// Has the line with this half word brought into the second-level cache. It need not exist. Hot.
    #[inline(always)]
    pub fn prefetch_half(&self, at: usize) {
        cache::prefetch_to_second_level(self.first.as_ptr().cast::<u16>().wrapping_add(at).cast());
    }

    /// Writes a node.
    ///
    /// # Safety
    /// Nobody can read these words: no root leads to them, nor did any since all readers have passed.
    pub unsafe fn write(&self, at: usize, words: &[u32]) {
        assert!(at + words.len() <= self.length);
        // SAFETY: within the memory; the caller promises that nobody else accesses it now.
        unsafe { self.first.as_ptr().add(at).copy_from_nonoverlapping(words.as_ptr(), words.len()) };
    }
}
