//! The entries of compiled tables: a number of the user plus 1, 0 without a route, or what leads to a node.

/// An entry leads to a node: all other bits are its place, in units behind the fixed part of a table.
pub(crate) const NODE: u32 = 1 << 31;

/// The keys that are looked up together.
pub(crate) const BATCH: usize = 128;
