//! IPv4: a root of 18 bits, then nodes of 6 bits.
//!
//! A node is a bit for each of its 64 slots, set where another entry begins than in the slot before, then these entries.
//! So the entry of a slot is found by counting ones. Most nodes are one cache line or two: a look-up in a table of the
//! Internet reads two or three lines.

use crate::builder::Builder;
use crate::cells::Cells;
use crate::sweep::{Content, Leaf, Window, sweep};
use crate::search::Search;
use crate::tables::{BATCH, FLAGS, NODE};
use crate::{Family, family};

const ROOT: Window = Window { offset: 0, width: 18 };

/// The bits that a node decides by.
const WIDTH: u8 = 6;

const SLOTS: usize = 1 << WIDTH;

/// The words with the bits of slots.
const MAP: usize = 2;

impl Family for u32 {}

impl family::Layout for u32 {
    const ROOT: Window = ROOT;
    const UNIT: usize = 2;

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
        // The keys whose entries lead to nodes, by their places.
        let mut list = [0_u8; BATCH];
        let mut count = 0;
        for (place, (&key, next)) in keys.iter().zip(&mut *next).enumerate() {
            *next = cells.load((key >> (32 - ROOT.width)) as usize);
            list[count % BATCH] = place as u8;
            count += (*next >> 31) as usize;
        }
        let mut shift = ROOT.width;
        let mut maps = [0_u64; BATCH];
        while count > 0 {
            // These loads do not wait for one another.
            for (map, &place) in maps.iter_mut().zip(&list[..count]) {
                // SAFETY: a root or a node leads to this node.
                let [low, high] = unsafe { *cells.node::<MAP>(Self::place(next[place as usize] & !FLAGS)) };
                *map = u64::from(low) | u64::from(high) << 32;
            }
            let mut left = 0;
            for at in 0..count {
                let place = list[at] as usize;
                let slot = keys[place] << (shift & 31) >> (32 - WIDTH);
                let rank = (maps[at] << (63 - slot)).count_ones() as usize;
                // SAFETY: as above. The bit of slot 0 is set, so there is a first entry at least; there is one for each
                // bit that is set.
                let [entry] = unsafe { *cells.node(Self::place(next[place] & !FLAGS) + MAP - 1 + rank) };
                next[place] = entry;
                list[left] = place as u8;
                left += (entry >> 31) as usize;
            }
            count = left;
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
