//! How far a key has been used.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use bellows_sys::shared::SharedCells;

use crate::lifetime::Amount;

/// How far a key has been used in one direction: what must outlive its association.
///
/// An association goes on behind these numbers and keeps them up to date, packet by packet, so that a successor with
/// the same key goes on where it ended, however it ended. They are in cells that a file in memory can back: then they
/// outlive a process that is killed.
#[derive(Clone)]
pub struct KeyProgress {
    cells: Arc<SharedCells>,
    first: usize,
}

impl KeyProgress {
    /// The number of cells that it takes.
    pub const CELLS: usize = 3;

    /// That of a new key, in cells of its own.
    ///
    /// # Panics
    ///
    /// If the system has no memory left.
    pub fn new() -> KeyProgress {
        let cells = SharedCells::private(KeyProgress::CELLS).expect("a page of memory");
        KeyProgress { cells: Arc::new(cells), first: 0 }
    }

    /// That of a key which was used up to this sequence number.
    pub fn after(sequence: u64) -> KeyProgress {
        let progress = KeyProgress::new();
        progress.set(sequence, Amount::NONE);
        progress
    }

    /// What is in the cells from `first` on; `None` if there are fewer than [`KeyProgress::CELLS`].
    pub fn in_cells(cells: Arc<SharedCells>, first: usize) -> Option<KeyProgress> {
        let end = first.checked_add(KeyProgress::CELLS)?;
        (end <= cells.cells().len()).then_some(KeyProgress { cells, first })
    }

    /// The highest sequence number that was used.
    pub fn sequence(&self) -> u64 {
        self.cell(0)
    }

    /// What the key has protected.
    pub fn used(&self) -> Amount {
        Amount { packets: self.cell(1), bytes: self.cell(2) }
    }

    /// Replaces all numbers. Hot.
    #[inline]
    pub fn set(&self, sequence: u64, used: Amount) {
        if let [first, second, third, ..] = &self.cells.cells()[self.first..] {
            first.store(sequence, Relaxed);
            second.store(used.packets, Relaxed);
            third.store(used.bytes, Relaxed);
        }
    }

    fn cell(&self, index: usize) -> u64 {
        self.cells.cells()[self.first + index].load(Relaxed)
    }
}

impl Default for KeyProgress {
    fn default() -> KeyProgress {
        KeyProgress::new()
    }
}
