//! The entries of compiled tables: a number of the user plus 1, 0 without a route, or what leads to a node.

/// An entry leads to a node: all other bits are its place, in units behind the fixed part of a table.
pub(crate) const NODE: u32 = 1 << 31;

/// The place of the node that an entry leads to, or of the first one, which is in nobody's way: what a look-up reads there
/// does not count.
#[inline(always)]
pub(crate) fn node_or_first(entry: u32) -> u32 {
    entry & !NODE & (entry.cast_signed() >> 31).cast_unsigned()
}

/// The keys that are looked up together.
pub(crate) const BATCH: usize = 128;
