//! Cells that an engine writes and any process reads.

use std::io;
use std::sync::atomic::AtomicU64;

use bellows_sys::shared::SharedCells;

/// Cells in memory of this process, or in a mapped file.
pub(crate) enum Cells {
    Private(Vec<AtomicU64>),
    Shared(SharedCells),
}

impl Cells {
    /// A copy of the bytes of a file. An incomplete cell at the end is left out.
    ///
    /// # Errors
    /// `UnexpectedEof` if there is not a single cell.
    pub(crate) fn copied(content: &[u8]) -> io::Result<Cells> {
        let (words, _) = content.as_chunks::<8>();
        if words.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(Cells::Private(words.iter().map(|word| AtomicU64::new(u64::from_ne_bytes(*word))).collect()))
    }

    pub(crate) fn cells(&self) -> &[AtomicU64] {
        match self {
            Cells::Private(cells) => cells,
            Cells::Shared(cells) => cells.cells(),
        }
    }
}
