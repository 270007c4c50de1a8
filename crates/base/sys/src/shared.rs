//! A file of 64-bit cells, written by one process and read by any.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::AtomicU64;

use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

use crate::atomic_file::Replacement;

/// A mapped file, seen as 64-bit cells.
///
/// The writer's file has its full length allocated before it is mapped, so writing to a cell cannot fault because the
/// disk is full. A reader does not trust the length that a file claims: it maps what the file has. But truncating a
/// file while it is mapped raises SIGBUS at the next access: only map files that no untrusted process can truncate.
pub struct SharedCells {
    start: NonNull<AtomicU64>,
    cells: usize,
}

// SAFETY: the mapping lives as long as the value, and all access to it goes through atomics.
unsafe impl Send for SharedCells {}
// SAFETY: as above.
unsafe impl Sync for SharedCells {}

impl SharedCells {
    /// Creates the file at `path` (mode 0600, replacing an existing one), fills it with `content`, and maps it.
    ///
    /// The file appears under its name complete: it is written beside it and renamed. `content` is padded with zeros to
    /// whole cells.
    ///
    /// # Errors
    /// Those of creating, growing, renaming and mapping a file, such as `ENOSPC` if the tmpfs is full.
    pub fn create(path: &Path, content: &[u8]) -> io::Result<SharedCells> {
        let mut new = Replacement::create(path, Some(0o600))?;
        let file = new.file();
        let length = content.len().max(1).next_multiple_of(8);
        // Written in full, so that the file system has allocated all the space that is needed.
        file.write_all(content)?;
        file.write_all(&[0; 8][..length - content.len()])?;
        let cells = SharedCells::map(file, length / 8, true)?;
        new.put()?;
        Ok(cells)
    }

    /// Maps an existing file for reading.
    ///
    /// # Errors
    /// Those of opening and mapping; `InvalidInput` if it is not a regular file, and `UnexpectedEof` for a file shorter
    /// than one cell.
    pub fn open(path: &Path) -> io::Result<SharedCells> {
        // Opening a pipe would wait for a writer.
        let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
        let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        let cells = usize::try_from(metadata.len()).unwrap_or(usize::MAX) / 8;
        if cells == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
        }
        SharedCells::map(&file, cells, false)
    }

    /// Cells of this process alone, all 0.
    ///
    /// # Errors
    /// Those of mapping memory.
    pub fn private(cells: usize) -> io::Result<SharedCells> {
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: as in `map`.
        let address = unsafe { mmap_anonymous(null_mut(), cells.max(1) * 8, access, flags)? };
        let start = NonNull::new(address.cast()).ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
        Ok(SharedCells { start, cells: cells.max(1) })
    }

    fn map(file: &File, cells: usize, writable: bool) -> io::Result<SharedCells> {
        let access = if writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        // Saves the writer the page faults of the first access to each page.
        let flags = if writable { MapFlags::SHARED | MapFlags::POPULATE } else { MapFlags::SHARED };
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory that anyone uses.
        let address = unsafe { mmap(null_mut(), cells * 8, access, flags, file, 0)? };
        let start = NonNull::new(address.cast()).ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
        Ok(SharedCells { start, cells })
    }

    /// All cells. In a mapping made by [`SharedCells::open`] they must only be loaded: a store faults.
    pub fn cells(&self) -> &[AtomicU64] {
        // SAFETY: the mapping has `cells` cells from `start` (page-aligned), is initialised by the file's
        // content or zeros, lives as long as self, and other processes touch it through atomics of the same size.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.cells) }
    }
}

impl Drop for SharedCells {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and the borrow of cells() has ended.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.cells * 8) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn private_cells_are_zero_and_writable() {
        let cells = SharedCells::private(600).unwrap();
        assert_eq!(cells.cells().len(), 600);
        cells.cells()[599].store(7, Relaxed);
        assert_eq!([cells.cells()[0].load(Relaxed), cells.cells()[599].load(Relaxed)], [0, 7]);
    }

    #[test]
    fn a_reader_sees_the_writes() {
        let folder = bellows_testkit::scratch();
        let path = folder.path().join("cells");
        let writer = SharedCells::create(&path, &[1, 0, 0, 0, 0, 0, 0, 0, 2]).unwrap();
        let reader = SharedCells::open(&path).unwrap();
        assert_eq!(reader.cells().len(), 2);
        assert_eq!([reader.cells()[0].load(Relaxed), reader.cells()[1].load(Relaxed)], [1, 2]);
        writer.cells()[1].store(u64::MAX, Relaxed);
        assert_eq!(reader.cells()[1].load(Relaxed), u64::MAX);
        std::fs::remove_file(&path).unwrap();
        assert!(SharedCells::open(&path).is_err());
        assert!(SharedCells::open(folder.path()).is_err(), "a folder has no cells");
    }
}
