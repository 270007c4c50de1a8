//! The entries of cells: what an address leads to next.

use crate::cells::Cells;
use crate::entry::NODE;
use crate::layout::Layout;

/// The bits that say what an entry leads to, which is one of the following if it is not a number.
pub(super) const KIND: u32 = 7 << 29;

/// Cells for all values of the next bits, as many as the entry's width.
pub(super) const CELLS: u32 = NODE;

/// A line of [intervals](super::line).
pub(super) const LEAF: u32 = NODE | 1 << 29;

/// A line of separators between leaves, which are behind it.
pub(super) const INNER: u32 = NODE | 2 << 29;

/// A line whose intervals have entries, which may lead on.
pub(super) const WIDE: u32 = NODE | 3 << 29;

/// The bits that an entry of a wide line or of a [path](super::path) differ in, besides those of other kinds.
pub(super) const KIND_OR_PATH: u32 = KIND | 1 << WIDTH_SHIFT;

/// A path.
pub(super) const PATH: u32 = WIDE | 1 << WIDTH_SHIFT;

/// The number of bits that cells are for, of which 5 are enough.
const WIDTH_SHIFT: u32 = 24;

/// The units that entries can name.
pub(super) const MAX_UNITS: u32 = 1 << WIDTH_SHIFT;

/// The words of a unit: a cache line.
pub(super) const UNIT: usize = 16;

/// An entry that leads to a node of this kind.
pub(super) fn of_node(kind: u32, unit: u32) -> u32 {
    kind | unit
}

/// An entry that leads to cells for `width` bits.
pub(super) fn of_cells(unit: u32, width: u8) -> u32 {
    CELLS | u32::from(width) << WIDTH_SHIFT | unit
}

#[inline(always)]
pub(super) fn kind(entry: u32) -> u32 {
    entry & KIND
}

#[inline(always)]
pub(super) fn is_path(entry: u32) -> bool {
    entry & KIND_OR_PATH == PATH
}

/// The number of bits that cells are for. Of no use for other entries.
#[inline(always)]
pub(super) fn width(entry: u32) -> u32 {
    entry >> WIDTH_SHIFT & 31
}

#[inline(always)]
pub(super) fn unit(entry: u32) -> u32 {
    entry & (MAX_UNITS - 1)
}

/// The first word of what an entry leads to.
#[inline(always)]
pub(super) fn place(entry: u32) -> usize {
    u128::place(unit(entry))
}

/// The line of a leaf, or that of separators, that begins with this word.
///
/// # Safety
/// As for [`Cells::halves`]; an entry leads there, or an inner line.
#[inline(always)]
pub(super) unsafe fn line(cells: &Cells, place: usize) -> &[u16; 2 * UNIT] {
    // SAFETY: as the caller promises. The halves of a word are in the order in which they were written.
    unsafe { cells.halves(place) }
}
