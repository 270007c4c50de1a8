//! The entries of compiled tables: a number of the user plus 1, 0 without a route, or what leads to a node.

/// An entry leads to a node: all other bits but [`NEXT`] are its place, in units from the end of the root.
pub(crate) const NODE: u32 = 1 << 31;

/// A node that decides by the next window of the address.
pub(crate) const NEXT: u32 = 1 << 30;

/// The bits of an entry that are not a place.
pub(crate) const FLAGS: u32 = NODE | NEXT;

/// The place of the node that an entry leads to, or of the first one, which is in nobody's way: a look-up that is done goes
/// on there without a branch, and its result does not count.
#[inline(always)]
pub(crate) fn node_or_first(entry: u32) -> u32 {
    entry & !FLAGS & (entry.cast_signed() >> 31).cast_unsigned()
}

/// The keys that are looked up together.
pub(crate) const BATCH: usize = 128;
