//! The memory that a driver shares with its device.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64};

use bellows_ipc::mapping::SharedMapping;
use bellows_ipc::memfd;

/// One memory file, mapped. The device may write anywhere in it at any time, so it is accessed only through atomics and
/// a blitter's pointers. Every access is checked to be inside.
pub(super) struct Space {
    mapping: SharedMapping,
    length: usize,
}

impl Space {
    pub(super) fn new(length: usize) -> io::Result<(Space, File)> {
        let file = memfd::sealed(length as u64)?;
        let mapping = SharedMapping::new(&file, 0, length as u64)?;
        // Neither our engine nor the device's must take page faults for it.
        mapping.make();
        Ok((Space { mapping, length }, file))
    }

    pub(super) fn length(&self) -> usize {
        self.length
    }

    /// The `count` bytes at an offset.
    #[inline(always)]
    pub(super) fn bytes(&self, at: usize, count: usize) -> *mut u8 {
        assert!(at <= self.length && count <= self.length - at, "outside the driver's memory");
        // SAFETY: at is at most the mapping's length.
        unsafe { self.mapping.start().as_ptr().add(at) }
    }

    #[inline(always)]
    fn aligned<T>(&self, at: usize) -> *mut T {
        // The mapping is page-aligned.
        assert!(at.is_multiple_of(size_of::<T>()), "not aligned");
        self.bytes(at, size_of::<T>()).cast()
    }

    /// The two bytes at an even offset.
    #[inline(always)]
    pub(super) fn half(&self, at: usize) -> &AtomicU16 {
        // SAFETY: inside the mapping, which lives as long as self, and aligned; both sides access it atomically.
        unsafe { AtomicU16::from_ptr(self.aligned(at)) }
    }

    /// The four bytes at an offset that is a multiple of four.
    #[inline(always)]
    pub(super) fn word(&self, at: usize) -> &AtomicU32 {
        // SAFETY: as above.
        unsafe { AtomicU32::from_ptr(self.aligned(at)) }
    }

    /// The eight bytes at an offset that is a multiple of eight.
    #[inline(always)]
    pub(super) fn double(&self, at: usize) -> &AtomicU64 {
        // SAFETY: as above.
        unsafe { AtomicU64::from_ptr(self.aligned(at)) }
    }
}
