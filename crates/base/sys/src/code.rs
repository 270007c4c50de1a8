//! Executable memory that is never writable at the same time.
//!
//! The contents are written to an unnamed file, which is sealed and then mapped. Nothing is ever mapped as writable, so
//! no mapping has to be flushed from the processors' TLBs, which would interrupt threads that run other code. Where
//! that does not matter, memory without a file can be written first and made executable afterwards.

use std::fs::File;
use std::io::{self, Write};
use std::ptr::{NonNull, without_provenance_mut};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap, mmap_anonymous, mprotect, munmap};

/// The page size; mappings are multiples of it.
pub fn page_size() -> usize {
    rustix::param::page_size()
}

/// Address space at a chosen address that cannot be read, written or run; given back when dropped.
#[derive(Debug)]
pub struct Reserved {
    mapping: Mapping,
}

impl Reserved {
    /// Reserves `length` bytes (rounded up to pages) at `address`, where nothing is mapped yet.
    ///
    /// # Errors
    /// `AlreadyExists` if something is mapped there; `InvalidInput` if the address is not page-aligned or the length is
    /// zero; `ENOMEM` and `EPERM` if the system or a limit allows no mapping, or none there.
    pub fn at(address: usize, length: usize) -> io::Result<Reserved> {
        let length = length.checked_next_multiple_of(page_size()).ok_or(io::ErrorKind::OutOfMemory)?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED_NOREPLACE;
        // SAFETY: a new anonymous mapping that replaces none touches no memory that anyone uses.
        let start = unsafe { mmap_anonymous(without_provenance_mut(address), length, ProtFlags::empty(), flags)? };
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        let mapping = Mapping { start, length };
        // Linux before 4.17 takes the address as a hint, and returns another one if something is mapped there already.
        if mapping.address() != address {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        Ok(Reserved { mapping })
    }

    /// Address of the first byte.
    pub fn address(&self) -> usize {
        self.mapping.address()
    }

    /// Length in bytes: whole pages.
    #[expect(clippy::len_without_is_empty, reason = "it is never empty")]
    pub fn len(&self) -> usize {
        self.mapping.length
    }

    /// Fills the place with contents that can be read and run: `content`, and after it `filling`.
    ///
    /// On processors whose instruction fetch does not see stores (any but x86), the caller must synchronise the fetch.
    ///
    /// # Errors
    /// `InvalidInput` if the content is too long, `PermissionDenied` if a policy forbids executable memory, others if
    /// there is no free memory or descriptor. The place is then given back.
    pub fn seal(self, content: &[u8], filling: u8) -> io::Result<Sealed> {
        let rest = self.len().checked_sub(content.len()).ok_or(io::ErrorKind::InvalidInput)?;
        let mut file = executable_file()?;
        file.write_all(content)?;
        file.write_all(&vec![filling; rest])?;
        fcntl_add_seals(&file, SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE)?;
        let Mapping { start, length } = self.mapping;
        let access = ProtFlags::READ | ProtFlags::EXEC;
        let flags = MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::POPULATE;
        // SAFETY: the mapping replaces this value's own, into which nobody can have a reference. The file has `length`
        // bytes and cannot be truncated.
        unsafe { mmap(start.as_ptr().cast(), length, access, flags, &file, 0)? };
        Ok(Sealed { mapping: self.mapping })
    }
}

impl Reserved {
    /// As [`Reserved::seal`], but in memory without a file, the only kind for which `perf` looks up generated code in
    /// its map. Interrupts the threads on other processors, twice.
    ///
    /// # Errors
    /// As for [`Reserved::seal`].
    pub fn seal_anonymous(self, content: &[u8], filling: u8) -> io::Result<Sealed> {
        let Mapping { start, length } = self.mapping;
        let rest = length.checked_sub(content.len()).ok_or(io::ErrorKind::InvalidInput)?;
        // SAFETY: the mapping is this value's own, and nobody can have a reference into it. Between the two changes of
        // its access it is writable, zeroed and `length` bytes long.
        unsafe {
            mprotect(start.as_ptr().cast(), length, MprotectFlags::READ | MprotectFlags::WRITE)?;
            start.as_ptr().copy_from_nonoverlapping(content.as_ptr(), content.len());
            start.as_ptr().add(content.len()).write_bytes(filling, rest);
            mprotect(start.as_ptr().cast(), length, MprotectFlags::READ | MprotectFlags::EXEC)?;
        }
        Ok(Sealed { mapping: self.mapping })
    }
}

/// An unnamed memory file that can be mapped as executable.
fn executable_file() -> io::Result<File> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = match memfd_create(c"code", flags | MemfdFlags::EXEC) {
        // Linux before 6.3 has no such flag, and every file is executable.
        Err(rustix::io::Errno::INVAL) => memfd_create(c"code", flags),
        answer => answer,
    };
    Ok(File::from(file?))
}

/// The result of [`Reserved::seal`]: readable, executable, never written; unmapped when dropped.
#[derive(Debug)]
pub struct Sealed {
    mapping: Mapping,
}

impl Sealed {
    /// Address of the first byte.
    pub fn address(&self) -> usize {
        self.mapping.address()
    }

    /// All bytes: whole pages.
    pub fn bytes(&self) -> &[u8] {
        let Mapping { start, length } = &self.mapping;
        // SAFETY: the mapping is readable and `length` bytes long, and its contents never change: it is not writable,
        // and nothing else maps its file, if there is one, which is sealed against writing.
        unsafe { std::slice::from_raw_parts(start.as_ptr(), *length) }
    }
}

/// A mapping that the value owns.
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
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and all borrows of its bytes have ended.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.length) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In the middle of the address space, where the kernel places nothing on its own.
    const FREE: usize = 0x1234_5678_0000;

    #[test]
    fn a_mapping_lies_where_it_was_wanted_and_replaces_none() {
        let place = Reserved::at(FREE, 1).unwrap();
        assert_eq!((place.address(), place.len()), (FREE, page_size()));
        let error = Reserved::at(FREE, 1).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);

        let sealed = place.seal(&[1, 2, 3], 0xcc).unwrap();
        assert_eq!((sealed.address(), &sealed.bytes()[..3]), (FREE, &[1, 2, 3][..]));
        assert!(sealed.bytes().len() == page_size() && sealed.bytes()[3..].iter().all(|&byte| byte == 0xcc));
        drop(sealed);
        let place = Reserved::at(FREE, 1).expect("the place is free again");
        let error = place.seal(&vec![0; page_size() + 1], 0).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);

        let sealed = Reserved::at(FREE, 1).unwrap().seal_anonymous(&[1, 2, 3], 0xcc).unwrap();
        assert!(sealed.bytes().starts_with(&[1, 2, 3, 0xcc]) && sealed.bytes().ends_with(&[0xcc]));
        drop(sealed);
        let error = Reserved::at(FREE, 1).unwrap().seal_anonymous(&vec![0; page_size() + 1], 0).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn an_impossible_mapping_is_an_error() {
        let elsewhere = FREE + (1 << 30);
        assert!(Reserved::at(elsewhere + 1, 1).is_err(), "not the address of a page");
        assert!(Reserved::at(elsewhere, 0).is_err());
        assert!(Reserved::at(elsewhere, usize::MAX).is_err());
        assert!(Reserved::at(elsewhere, usize::MAX / 2).is_err());
        assert!(Reserved::at(usize::MAX - page_size() + 1, 1).is_err(), "an address of the kernel's");
    }
}
