//! What the two families have in common.

use crate::builder::Builder;
use crate::cells::Cells;
use crate::search::Search;
use crate::sweep::{Leaf, Table, Window};

/// IPv4, as `u32`, or IPv6, as `u128`.
#[expect(private_bounds, reason = "nobody else implements it")]
pub trait Family: Layout {}

/// The layout of compiled tables.
pub(crate) trait Layout: Table {
    /// The bits that index the root.
    const ROOT: Window;

    /// The words in a unit, in which nodes are measured.
    const UNIT: usize;

    /// The units of the first node. It is all zeros, and any number may be looked up in it.
    const FIRST: u32;

    /// The word that a unit begins with.
    #[inline(always)]
    fn place(unit: u32) -> usize {
        (1 << Self::ROOT.width) + unit as usize * Self::UNIT
    }

    /// Makes the nodes for a slot of the root with prefixes that are longer.
    fn build(builder: &mut Builder<'_, Self>, leaves: &[Leaf<Self>], default: u32) -> u32
    where
        Self: Family;

    /// Frees a node and all that it leads to.
    fn free(builder: &mut Builder<'_, Self>, entry: u32)
    where
        Self: Family;

    /// Looks up at most a batch of keys, as many as there are places for entries. Hot.
    fn look_up<S: Search>(cells: &Cells, keys: &[Self], next: &mut [u32]);
}
