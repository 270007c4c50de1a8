//! The headers of a batch, as the checks of several packets read them.

use super::{BATCH, UNUSUAL, USUAL};

/// Packets whose headers are checked at once: a part of a batch.
pub(super) const BLOCK: usize = 32;

/// The headers of up to [`BATCH`] packets. Those behind the last packet are old ones.
pub(crate) struct Columns {
    /// Four words of each.
    pub(super) rows: [[u32; 4]; BATCH],
    /// Another word of each.
    pub(super) words: [u32; BATCH],
    /// Bytes of the frame.
    pub(super) lengths: [u32; BATCH],
}

impl Columns {
    /// Room for headers, which loops use again and again: to clear it for each vector takes a tenth of a check's time.
    pub(crate) fn new() -> Box<Columns> {
        Box::new(Columns { rows: [[0; 4]; BATCH], words: [0; BATCH], lengths: [0; BATCH] })
    }

    /// Numbers the packets of a batch by whether their headers are right. Blocks are checked whole, so that no part of the
    /// loop is left over. `behind` is the bytes behind a packet that is right. Returns whether any packet may have some.
    /// Hot.
    #[inline(always)]
    pub(super) fn number(
        &self,
        numbers: &mut [u16],
        are_right: impl Fn([u32; 4], u32, u32) -> bool,
        behind: impl Fn([u32; 4], u32) -> u32,
    ) -> bool {
        let rows = self.rows.iter().zip(&self.lengths).take(numbers.len());
        let is_longer = rows.fold(0, |all, (row, length)| all | behind(*row, *length)) != 0;
        let blocks = self
            .rows
            .as_chunks::<BLOCK>()
            .0
            .iter()
            .zip(self.words.as_chunks::<BLOCK>().0)
            .zip(self.lengths.as_chunks::<BLOCK>().0);
        for (((rows, words), lengths), numbers) in blocks.zip(numbers.chunks_mut(BLOCK)) {
            let checked = std::array::from_fn::<_, BLOCK, _>(|at| {
                let is_right = are_right(rows[at], words[at], lengths[at]);
                if is_right { USUAL } else { UNUSUAL }
            });
            match numbers.as_mut_array() {
                Some(numbers) => *numbers = checked,
                None => numbers.copy_from_slice(&checked[..numbers.len()]),
            }
        }
        is_longer
    }
}
