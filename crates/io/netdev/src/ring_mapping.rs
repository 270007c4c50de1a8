//! The mapping of a ring that a socket shares with the kernel.

use std::io;
use std::os::fd::AsFd;
use std::ptr::{NonNull, null_mut};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// The mapping of a socket's rings. Unmapped when it is dropped.
#[derive(Debug)]
pub(crate) struct RingMapping {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: the mapping belongs to the value, which only hands out its address.
unsafe impl Send for RingMapping {}
// SAFETY: as above.
unsafe impl Sync for RingMapping {}

impl RingMapping {
    /// Maps `length` bytes of the socket's rings at an offset, for reading and writing. `populate`: all pages at once.
    pub(crate) fn new(socket: impl AsFd, offset: u64, length: usize, populate: bool) -> io::Result<RingMapping> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let flags = if populate { MapFlags::SHARED | MapFlags::POPULATE } else { MapFlags::SHARED };
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory that anyone uses.
        let start = unsafe { mmap(null_mut(), length, access, flags, socket, offset)? };
        let start = NonNull::new(start.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(RingMapping { start, length })
    }

    /// The first byte, at the start of a page. Valid as long as the value.
    #[inline(always)]
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }
}

impl Drop for RingMapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and what points into it keeps the value.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.length) };
    }
}
