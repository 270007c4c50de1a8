//! IPv4: a root of 18 bits, then nodes of 6 bits.
//!
//! A node is a bit for each of its 64 slots, set where another entry begins than in the slot before, then these entries.
//! So the entry of a slot is found by counting ones. Most nodes are one cache line or two: a look-up in a table of the
//! Internet reads two or three lines.

use crate::cells::Cells;
use crate::entry::{NODE, node_or_first};
use crate::layout::{Builder, Family, Layout};
use crate::search::Search;
use crate::sweep::{Content, Leaf, Window, sweep};

const ROOT: Window = Window { offset: 0, width: 18 };

/// The bits that a node decides by.
const WIDTH: u8 = 6;

const SLOTS: usize = 1 << WIDTH;

/// The words with the bits of slots.
const MAP: usize = 2;

impl Family for u32 {}

impl Layout for u32 {
    const ROOT: Window = ROOT;
    const UNIT: usize = 2;
    const FIRST: u32 = 8;

    fn build(builder: &mut Builder<'_, u32>, leaves: &[Leaf<u32>], default: u32) -> u32 {
        node(builder, leaves, ROOT.end(), default)
    }

    fn free(builder: &mut Builder<'_, u32>, entry: u32) {
        let [low, high] = builder.node::<MAP>(entry, 0);
        let count = (low.count_ones() + high.count_ones()) as usize;
        for at in 0..count {
            let [child] = builder.node(entry, MAP + at);
            builder.free(child);
        }
        builder.drop_node(entry, (MAP + count).next_multiple_of(Self::UNIT));
    }

    #[inline(always)]
    fn look_up<S: Search>(cells: &Cells, keys: &[u32], next: &mut [u32]) {
        let mut any = 0;
        for (&key, next) in keys.iter().zip(&mut *next) {
            *next = cells.load((key >> (32 - ROOT.width)) as usize);
            any |= *next;
            cells.prefetch(Self::place(node_or_first(*next)));
        }
        let mut shift = ROOT.width;
        while any & NODE != 0 {
            any = 0;
            for (&key, next) in keys.iter().zip(&mut *next) {
                let entry = *next;
                let node = Self::place(node_or_first(entry));
                // SAFETY: a root or a node leads to this node, or it is the first one.
                let (low, high) = unsafe { (cells.word(node), cells.word(node + 1)) };
                let map = u64::from(low) | u64::from(high) << 32;
                let slot = key << (shift & 31) >> (32 - WIDTH);
                let rank = (map << (63 - slot)).count_ones() as usize;
                // SAFETY: as above. The bit of slot 0 is set, so there is a first entry at least; there is one for each
                // bit that is set.
                let child = unsafe { cells.word(node + MAP - 1 + rank) };
                *next = std::hint::select_unpredictable(entry & NODE != 0, child, entry);
                any |= *next;
            }
            shift += WIDTH;
        }
    }
}

fn node(builder: &mut Builder<'_, u32>, leaves: &[Leaf<u32>], offset: u8, default: u32) -> u32 {
    let mut slots = [0; SLOTS];
    let window = Window { offset, width: WIDTH };
    sweep(leaves, window, (0, SLOTS as u32 - 1), default, &mut |first, last, content| {
        let entry = match content {
            Content::Entry(entry) => entry,
            Content::Longer(leaves, default) => node(builder, leaves, window.end(), default),
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
    builder.add(&words[..(MAP + count).next_multiple_of(2)])
}
