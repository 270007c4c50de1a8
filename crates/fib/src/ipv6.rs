//! IPv6: a root of 21 bits, then search trees over windows of 32 bits.
//!
//! Prefixes cut the numbers of a window into intervals. A node has the first numbers of up to eight intervals and their
//! entries, in one cache line; the last one that is not above the key's number counts. Global addresses begin with the
//! same three bits, so an eighth of the root is in use. The second window begins behind 53 bits, where only few prefixes
//! reach.

use crate::cells::Cells;
use crate::entry::{BATCH, FLAGS, NEXT, NODE, node_or_first};
use crate::layout::{Builder, Family, Layout};
use crate::search::Search;
use crate::sweep::{Content, Leaf, Table, Window, sweep};

const ROOT: Window = Window { offset: 0, width: 21 };

/// The bits of a window behind the root.
const WIDTH: u8 = 32;

/// The intervals in a node.
const FAN_OUT: usize = 8;

impl Family for u128 {}

impl Layout for u128 {
    const ROOT: Window = ROOT;
    const UNIT: usize = 2 * FAN_OUT;
    const FIRST: u32 = 1;

    fn build(builder: &mut Builder<'_, u128>, leaves: &[Leaf<u128>], default: u32) -> u32 {
        tree(builder, leaves, ROOT.end(), default)
    }

    fn free(builder: &mut Builder<'_, u128>, entry: u32) {
        let children = builder.node::<FAN_OUT>(entry, FAN_OUT);
        for (at, &child) in children.iter().enumerate() {
            // The last entry is repeated up to the end.
            if at == 0 || child != children[at - 1] {
                builder.free(child);
            }
        }
        builder.drop_node(entry, Self::UNIT);
    }

    #[inline(always)]
    fn look_up<S: Search>(cells: &Cells, keys: &[u128], next: &mut [u32]) {
        let mut numbers = [0_u32; BATCH];
        let mut offsets = [ROOT.width; BATCH];
        let mut any = 0;
        for ((&key, next), number) in keys.iter().zip(&mut *next).zip(&mut numbers) {
            let high = (key >> 64) as u64;
            *next = cells.load((high >> (64 - ROOT.width)) as usize);
            *number = (high << ROOT.width >> WIDTH) as u32;
            any |= *next;
            cells.prefetch(Self::place(node_or_first(*next)));
        }
        while any & NODE != 0 {
            any = 0;
            for (at, next) in next.iter_mut().enumerate() {
                let entry = *next;
                let node = Self::place(node_or_first(entry));
                // SAFETY: a root or a node leads to this node, or it is the first one.
                let firsts = unsafe { cells.node::<FAN_OUT>(node) };
                let rank = S::rank(firsts, numbers[at % BATCH]);
                // SAFETY: as above. The first interval of a node has all numbers that lead to it and are below the
                // second, so the rank is at least 1; it is at most the number of intervals.
                let child = unsafe { cells.word(node + FAN_OUT - 1 + rank as usize) };
                *next = std::hint::select_unpredictable(entry & NODE != 0, child, entry);
                any |= *next;
                if *next & FLAGS == FLAGS {
                    offsets[at] += WIDTH;
                    numbers[at] = keys[at].bits(Window { offset: offsets[at], width: WIDTH });
                }
                cells.prefetch(Self::place(node_or_first(*next)));
            }
        }
    }
}

fn tree(builder: &mut Builder<'_, u128>, leaves: &[Leaf<u128>], offset: u8, default: u32) -> u32 {
    let window = Window { offset, width: WIDTH };
    let mut intervals: Vec<(u32, u32)> = Vec::with_capacity(2 * leaves.len() + 1);
    sweep(leaves, window, (0, u32::MAX), default, &mut |first, _, content| {
        let entry = match content {
            Content::Entry(entry) => entry,
            Content::Longer(leaves, default) => match tree(builder, leaves, window.end(), default) {
                entry if entry & NODE != 0 => entry | NEXT,
                entry => entry,
            },
        };
        if intervals.last().is_none_or(|&(_, last)| last != entry) {
            intervals.push((first, entry));
        }
    });
    while intervals.len() > 1 {
        let groups = intervals.len().div_ceil(FAN_OUT);
        let parts = (0..groups).map(|part| part * intervals.len() / groups..(part + 1) * intervals.len() / groups);
        intervals = parts.map(|part| (intervals[part.start].0, node(builder, &intervals[part]))).collect();
    }
    intervals[0].1
}

fn node(builder: &mut Builder<'_, u128>, intervals: &[(u32, u32)]) -> u32 {
    let last = intervals.last().map_or(0, |&(_, entry)| entry);
    let mut words = [u32::MAX; 2 * FAN_OUT];
    words[FAN_OUT..].fill(last);
    for (at, &(first, entry)) in intervals.iter().enumerate() {
        words[at] = first;
        words[FAN_OUT + at] = entry;
    }
    builder.add(&words)
}
