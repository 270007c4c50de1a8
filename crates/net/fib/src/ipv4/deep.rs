//! Nodes for prefixes longer than 24 bits, and for numbers without a code.
//!
//! A node decides by 6 bits. It is a bit for each of its 64 slots, set where another entry begins than in the slot before,
//! then these entries. So the entry of a slot is found by counting ones.

use super::{BLOCK_OFFSET, UNIT};
use crate::cells::Cells;
use crate::entry::{BATCH, NODE};
use crate::layout::{Builder, Layout};
use crate::sweep::{Content, Leaf, Window, sweep};

/// The bits that a node decides by.
const WIDTH: u8 = 6;

const SLOTS: usize = 1 << WIDTH;

/// The words with the bits of slots.
const MAP: usize = 2;

/// Goes on at the nodes for some keys. `entries` are those that lead to the nodes, and become those of the keys. Hot.
#[inline(always)]
pub(super) fn look_up(cells: &Cells, keys: &[u32; BATCH], entries: &mut [u32; BATCH], count: usize) {
    let mut active: [u8; BATCH] = std::array::from_fn(|at| at as u8);
    let mut count = count;
    let mut shift = BLOCK_OFFSET;
    // A key whose entry is a number at once is not active.
    count = (0..count).fold(0, |active_count, at| {
        active[active_count] = at as u8;
        active_count + usize::from(entries[at] & NODE != 0)
    });
    while count > 0 {
        let mut left = 0;
        for place in 0..count {
            let at = active[place] as usize % BATCH;
            let node = u32::place(entries[at] & !NODE);
            // SAFETY: a root or a node leads to this node.
            let (low, high) = unsafe { (cells.word(node), cells.word(node + 1)) };
            let map = u64::from(low) | u64::from(high) << 32;
            let slot = keys[at] << (shift & 31) >> (32 - WIDTH);
            let rank = (map << (63 - slot)).count_ones() as usize;
            // SAFETY: as above. The bit of slot 0 is set, so there is a first entry at least; there is one for each bit
            // that is set.
            let child = unsafe { cells.word(node + MAP - 1 + rank) };
            entries[at] = child;
            cells.prefetch(u32::place(child & !NODE));
            active[left] = at as u8;
            left += usize::from(child & NODE != 0);
        }
        count = left;
        shift += WIDTH;
    }
}

/// Makes a node. Returns the entry that leads to it, or that of all addresses in it.
pub(super) fn build(builder: &mut Builder<'_, u32>, leaves: &[Leaf<u32>], offset: u8, default: u32) -> u32 {
    let mut slots = [0; SLOTS];
    let window = Window { offset, width: WIDTH };
    sweep(leaves, window, (0, SLOTS as u32 - 1), default, &mut |first, last, content| {
        let entry = match content {
            Content::Entry(entry) => entry,
            Content::Longer(leaves, default) => build(builder, leaves, window.end(), default),
        };
        slots[first as usize..=last as usize].fill(entry);
    });
    let mut map = 0_u64;
    let mut words = [0; MAP + SLOTS];
    let mut count = 0;
    for (slot, &entry) in slots.iter().enumerate() {
        if slot == 0 || entry != slots[slot - 1] {
            map |= 1 << slot;
            words[MAP + count] = entry;
            count += 1;
        }
    }
    if count == 1 && slots[0] & NODE == 0 {
        return slots[0];
    }
    words[0] = map as u32;
    words[1] = (map >> 32) as u32;
    builder.add(&words[..(MAP + count).next_multiple_of(UNIT)])
}

/// Frees a node and all that it leads to.
pub(super) fn free(builder: &mut Builder<'_, u32>, entry: u32) {
    if entry & NODE == 0 {
        return;
    }
    let unit = entry & !NODE;
    let node = u32::place(unit);
    let count = (builder.word(node).count_ones() + builder.word(node + 1).count_ones()) as usize;
    for at in 0..count {
        let child = builder.word(node + MAP + at);
        free(builder, child);
    }
    builder.drop_node(unit, (MAP + count).div_ceil(UNIT) as u32);
}
