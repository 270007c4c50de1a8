//! Memory of chunks that are copied to and from, for a process that cannot register its own buffers.

use std::io;
use std::ptr::NonNull;

use super::{Memory, Socket};
use bellows_sys::memory::Words;

/// Bytes of a chunk: a page.
pub const CHUNK: usize = 4_096;

/// Chunks that the kernel works on, and that the program only copies from and to.
///
/// There are no references into the memory, so it does no harm if the kernel writes to it at any time.
#[derive(Debug)]
pub struct CopyMemory {
    start: NonNull<u8>,
    chunks: usize,
    /// Keeps the mapping; its contents are accessed through the pointer alone.
    _words: Words,
}

// SAFETY: the mapping lives as long as the value, and is only copied from and to.
unsafe impl Send for CopyMemory {}

impl CopyMemory {
    /// Allocates chunks.
    ///
    /// # Errors
    /// As for [`Words::new`].
    pub fn new(chunks: usize) -> io::Result<CopyMemory> {
        let mut words = Words::new(chunks.saturating_mul(CHUNK / size_of::<u64>()))?;
        let start = NonNull::from(words.bytes_mut()).cast();
        Ok(CopyMemory { start, chunks, _words: words })
    }

    /// Number of chunks.
    pub fn chunks(&self) -> usize {
        self.chunks
    }

    /// Registers the memory as that of a socket.
    ///
    /// # Errors
    /// As for [`Socket::register_memory`].
    pub fn register(&self, socket: &Socket) -> io::Result<()> {
        let memory = Memory {
            start: self.start,
            length: self.chunks * CHUNK,
            chunk_size: CHUNK as u32,
            headroom: 0,
            unaligned: false,
            tx_metadata_length: 0,
            software_checksum: false,
        };
        // SAFETY: the kernel locks the pages, so they exist until the sockets end, whatever becomes of the mapping. The
        // program has no references into them, and only copies from and to them.
        unsafe { socket.register_memory(&memory) }
    }

    /// Copies bytes of the memory. False, and nothing is copied, if they are not all inside.
    pub fn read(&self, position: u64, into: &mut [u8]) -> bool {
        let Some(from) = self.at(position, into.len()) else { return false };
        // SAFETY: the bytes are inside the mapping, and `into` is elsewhere, because nobody has a reference into it.
        unsafe { from.as_ptr().copy_to_nonoverlapping(into.as_mut_ptr(), into.len()) };
        true
    }

    /// Copies bytes into the memory. False, and nothing is copied, if they do not all fit.
    pub fn write(&self, position: u64, bytes: &[u8]) -> bool {
        let Some(to) = self.at(position, bytes.len()) else { return false };
        // SAFETY: as above.
        unsafe { to.as_ptr().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        true
    }

    /// The address of bytes that are inside.
    fn at(&self, position: u64, length: usize) -> Option<NonNull<u8>> {
        let position = usize::try_from(position).ok()?;
        let is_inside = position.checked_add(length)? <= self.chunks * CHUNK;
        // SAFETY: the position is inside the mapping, or its end.
        is_inside.then(|| unsafe { self.start.add(position) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_copied_to_and_from_the_inside_alone() {
        let memory = CopyMemory::new(3).unwrap();
        let end = (3 * CHUNK) as u64;
        let mut bytes = [0; 5];
        assert!(memory.write(end - 5, b"hello") && memory.read(end - 5, &mut bytes));
        assert_eq!(&bytes, b"hello");
        assert!(
            !memory.write(end - 4, b"hello") && !memory.read(end, &mut bytes) && !memory.read(u64::MAX, &mut bytes)
        );
        assert!(memory.read(end, &mut []) && memory.chunks() == 3);
        assert!(CopyMemory::new(usize::MAX).is_err());
    }
}
