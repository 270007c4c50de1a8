//! Memory that is written first and run afterwards, and never both at once.

use std::ffi::{c_int, c_ulong};
use std::io;
use std::ptr::{NonNull, without_provenance_mut};

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

/// The length that mappings come in multiples of.
pub fn page_size() -> usize {
    rustix::param::page_size()
}

/// A private anonymous mapping at a wanted address, zeroed and writable until it is sealed; unmapped when dropped.
#[derive(Debug)]
pub struct Writable {
    mapping: Mapping,
}

impl Writable {
    /// Maps `length` bytes (rounded up to pages) at `address`, where nothing is mapped yet.
    ///
    /// # Errors
    /// `AlreadyExists` when something is mapped there; `InvalidInput` when the address is not that of a page or the
    /// length is zero; `ENOMEM` and `EPERM` when the system or a limit allows no mapping, or none there.
    pub fn at(address: usize, length: usize) -> io::Result<Writable> {
        let length = length.checked_next_multiple_of(page_size()).ok_or(io::ErrorKind::OutOfMemory)?;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::FIXED_NOREPLACE;
        // SAFETY: a new anonymous mapping that replaces none touches no memory that anyone uses.
        let start = unsafe { mmap_anonymous(without_provenance_mut(address), length, access, flags)? };
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let mapping = Mapping { start, length };
        // Linux before 4.17 takes the address for a mere wish, and grants another one when there is something already.
        if mapping.address() != address {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        Ok(Writable { mapping })
    }

    /// Where the first byte lies.
    pub fn address(&self) -> usize {
        self.mapping.address()
    }

    /// All bytes: whole pages.
    pub fn bytes(&self) -> &[u8] {
        self.mapping.bytes()
    }

    /// All bytes, to write.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the mapping is readable and writable, as long as said, initialised (by zeros), this value's own, and
        // borrowed as mutable as the slice is.
        unsafe { std::slice::from_raw_parts_mut(self.mapping.start.as_ptr(), self.mapping.length) }
    }

    /// Makes the bytes executable, and no longer writable, in one step.
    ///
    /// A processor whose instruction fetch does not see what was stored (any but x86) must be told by other means.
    ///
    /// # Errors
    /// `PermissionDenied` when a hardening policy forbids it; the memory is then given back.
    pub fn seal(self) -> io::Result<Sealed> {
        let Mapping { start, length } = self.mapping;
        // SAFETY: the mapping is this value's own, and nothing borrows from it: nobody can be writing to it.
        unsafe { mprotect(start.as_ptr().cast(), length, MprotectFlags::READ | MprotectFlags::EXEC)? };
        Ok(Sealed { mapping: self.mapping })
    }
}

/// What [`Writable::seal`] makes: readable, executable, never written again; unmapped when dropped.
#[derive(Debug)]
pub struct Sealed {
    mapping: Mapping,
}

impl Sealed {
    /// Where the first byte lies.
    pub fn address(&self) -> usize {
        self.mapping.address()
    }

    /// All bytes: whole pages.
    pub fn bytes(&self) -> &[u8] {
        self.mapping.bytes()
    }
}

/// A readable mapping that the value owns.
#[derive(Debug)]
struct Mapping {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: the value owns its mapping as a box owns its bytes, which are plain; no thread has a special part in it.
unsafe impl Send for Mapping {}
// SAFETY: through a shared reference the bytes are only read.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn address(&self) -> usize {
        self.start.as_ptr().addr()
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: the mapping is readable, as long as said, initialised (by zeros at least), lives as long as self,
        // and whoever may write to it borrows it as mutable for that.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and all borrows of its bytes have ended.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.length) };
    }
}

/// Forbids this process, and every process it starts from now on, to make memory executable that was not so when it was
/// mapped, or to map any as writable and executable (`PR_SET_MDWE`). There is no way back.
///
/// What was sealed before stays executable; shared libraries, which are mapped as executable at once, can still be loaded.
///
/// # Errors
/// `InvalidInput` from kernels that do not know this yet (before Linux 6.3).
pub fn refuse_new_code() -> io::Result<()> {
    const PR_SET_MDWE: c_int = 65;
    const PR_MDWE_REFUSE_EXEC_GAIN: c_ulong = 1;
    // Of the C library, which the standard library links anyway; rustix has no face for this option.
    unsafe extern "C" {
        fn prctl(option: c_int, ...) -> c_int;
    }
    let none: c_ulong = 0;
    // SAFETY: the option takes four integers, of which the last three must be zero, and touches no memory of ours.
    match unsafe { prctl(PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN, none, none, none) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In the middle of the address space, where the kernel puts nothing by itself.
    const FREE: usize = 0x1234_5678_0000;

    #[test]
    fn a_mapping_lies_where_it_was_wanted_and_replaces_none() {
        let mut memory = Writable::at(FREE, 1).unwrap();
        assert_eq!((memory.address(), memory.bytes().len()), (FREE, page_size()));
        memory.bytes_mut().fill(0xcc);
        let error = Writable::at(FREE, 1).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);

        let sealed = memory.seal().unwrap();
        assert_eq!(sealed.address(), FREE);
        assert!(sealed.bytes().iter().all(|&byte| byte == 0xcc));
        drop(sealed);
        Writable::at(FREE, 1).expect("the place is free again");
    }

    #[test]
    fn what_cannot_be_mapped_is_an_error() {
        let elsewhere = FREE + (1 << 30);
        assert!(Writable::at(elsewhere + 1, 1).is_err(), "not the address of a page");
        assert!(Writable::at(elsewhere, 0).is_err());
        assert!(Writable::at(elsewhere, usize::MAX).is_err());
        assert!(Writable::at(elsewhere, usize::MAX / 2).is_err());
        assert!(Writable::at(usize::MAX - page_size() + 1, 1).is_err(), "an address of the kernel's");
    }
}
