//! Search trees over windows of 32 bits.
//!
//! Prefixes cut the numbers of a window into intervals, each with an entry. A node is a cache line with 15 separators,
//! between 16 intervals or 16 further nodes. A tree is in one piece: a header, the levels of nodes from the root down, and
//! the entries. Nodes of a level, and entries, are packed, so that a node needs the place of its first child alone.
//!
//! This is a B+ tree as in PlanB (NSDI 2026), but over few bits: twice as many numbers fit into a line.

use super::UNIT;
use crate::cells::Cells;
use crate::entry::{BATCH, NODE};
use crate::layout::{Builder, Layout};
use crate::search::{Search, WORDS};
use crate::sweep::{Content, Leaf, Window, sweep};

/// The bits of a window.
pub(super) const WIDTH: u8 = 32;

/// The words in front of the first node: the units of the tree, the place of the entries in it and their number.
pub(super) const HEADER: usize = UNIT;

/// The intervals or nodes below a node.
const FAN_OUT: usize = WORDS;

/// The first word of a node is the place of what is below, and by how many bits to shift the rank for it: a node has as
/// many words, an entry is one.
const SHIFT_BITS: u32 = 5;
const NODE_SHIFT: u32 = WORDS.ilog2();
const ENTRY_SHIFT: u32 = 0;

/// Places must be below this.
pub(super) const MAX_WORDS: u32 = 1 << (32 - SHIFT_BITS);

/// The place of what a number is in. Hot.
#[inline(always)]
fn below<S: Search>(node: &[u32; WORDS], number: u32) -> u32 {
    (node[0] >> SHIFT_BITS) + (S::rank(node, number) << (node[0] & 31))
}

/// Whether nodes are below a node.
#[inline(always)]
fn is_inner(node: &[u32; WORDS]) -> bool {
    node[0] & NODE_SHIFT != 0
}

/// Takes the active keys from their nodes to their entries. Hot.
#[inline(always)]
pub(super) fn look_up<S: Search>(
    cells: &Cells,
    numbers: &[u32; BATCH],
    places: &mut [u32; BATCH],
    active: &mut [u32; BATCH],
    mut count: usize,
) {
    while count > 0 {
        let mut left = 0;
        for turn in 0..count {
            let at = active[turn % BATCH] as usize % BATCH;
            // SAFETY: a root led to the tree, and nodes are in the tree with what is below them.
            let node = unsafe { cells.node::<WORDS>(places[at] as usize) };
            places[at] = below::<S>(node, numbers[at]);
            cells.prefetch(places[at] as usize);
            active[left % BATCH] = at as u32;
            left += usize::from(is_inner(node));
        }
        count = left;
    }
}

/// The entry of a number in a tree.
pub(super) fn look_up_one<S: Search>(cells: &Cells, entry: u32, number: u32) -> u32 {
    let mut place = u128::place(entry & !NODE) + HEADER;
    loop {
        // SAFETY: as above.
        let node = unsafe { cells.node::<WORDS>(place) };
        place = below::<S>(node, number) as usize;
        if !is_inner(node) {
            // SAFETY: as above.
            return unsafe { cells.word(place) };
        }
    }
}

/// Makes a tree. Returns the entry that leads to it, or that of all numbers in the window.
pub(super) fn build(builder: &mut Builder<'_, u128>, leaves: &[Leaf<u128>], offset: u8, default: u32) -> u32 {
    let window = Window { offset, width: WIDTH };
    let mut firsts: Vec<u32> = Vec::with_capacity(2 * leaves.len() + 1);
    let mut entries: Vec<u32> = Vec::with_capacity(2 * leaves.len() + 1);
    sweep(leaves, window, (0, u32::MAX), default, &mut |first, _, content| {
        let entry = match content {
            Content::Entry(entry) => entry,
            Content::Longer(leaves, default) => build(builder, leaves, window.end(), default),
        };
        if entries.last().is_none_or(|&last| last != entry) {
            firsts.push(first);
            entries.push(entry);
        }
    });
    if let [entry] = *entries {
        return entry;
    }
    // The nodes of each level, from the leaves up.
    let mut levels = vec![entries.len().div_ceil(FAN_OUT)];
    while let Some(&nodes) = levels.last().filter(|nodes| **nodes > 1) {
        levels.push(nodes.div_ceil(FAN_OUT));
    }
    let nodes: usize = levels.iter().sum();
    let of_entries = HEADER + nodes * WORDS;
    let units = rounded((of_entries + entries.len()).div_ceil(UNIT));
    let Some(unit) = builder.reserve(units as u32) else {
        entries.iter().for_each(|&entry| free(builder, entry));
        return 0;
    };
    let first_word = u128::place(unit);
    let mut words = vec![u32::MAX; units * UNIT];
    words[..3].copy_from_slice(&[units as u32, of_entries as u32, entries.len() as u32]);
    words[of_entries..of_entries + entries.len()].copy_from_slice(&entries);
    let mut at = HEADER;
    // Numbers below a child of a node on this level.
    let mut intervals = FAN_OUT.pow(levels.len() as u32 - 1);
    for (level, &nodes) in levels.iter().enumerate().rev() {
        let children = if level == 0 { of_entries } else { at + nodes * WORDS };
        let shift = if level == 0 { ENTRY_SHIFT } else { NODE_SHIFT };
        for node in 0..nodes {
            let child = first_word + children + node * (FAN_OUT << shift);
            words[at] = (child as u32) << SHIFT_BITS | shift;
            for separator in 1..FAN_OUT {
                // What is behind the last interval is above all numbers.
                if let Some(&first) = firsts.get((node * FAN_OUT + separator) * intervals) {
                    words[at + separator] = first - 1;
                }
            }
            at += WORDS;
        }
        intervals /= FAN_OUT;
    }
    builder.write(unit, &words);
    NODE | unit
}

/// Frees a tree and all that it leads to.
pub(super) fn free(builder: &mut Builder<'_, u128>, entry: u32) {
    if entry & NODE == 0 {
        return;
    }
    let unit = entry & !NODE;
    let first = u128::place(unit);
    let [units, of_entries, count] = [0, 1, 2].map(|at| builder.word(first + at));
    for at in 0..count as usize {
        let child = builder.word(first + of_entries as usize + at);
        free(builder, child);
    }
    builder.drop_node(unit, units);
}

/// Rounds sizes up, so that there are few of them and free room is used again: by less than a quarter.
fn rounded(units: usize) -> usize {
    units.next_multiple_of((units.next_power_of_two() / 8).max(1))
}
