//! IPv6: a root of 18 bits, cells for the next 6 bits where prefixes are longer, then search trees over windows of 32 bits.
//!
//! Global addresses begin with the same three bits, so an eighth of the root is in use, and only few of its slots have cells
//! behind them: both fit into the second-level cache. Most prefixes end within the 32 bits after these 24.

mod tree;

use crate::cells::Cells;
use crate::entry::{BATCH, NODE, node_or_first};
use crate::layout::{Builder, Family, Layout};
use crate::search::Search;
use crate::sweep::{Content, Leaf, Table, Window, sweep};

const ROOT: Window = Window { offset: 0, width: 18 };
const SECOND: Window = Window { offset: 18, width: 6 };

/// The cells behind a slot of the root.
const CELLS: usize = 1 << SECOND.width;

/// The words of a unit: a cache line.
const UNIT: usize = 16;

impl Family for u128 {}

impl Layout for u128 {
    const ROOT: Window = ROOT;
    const SECOND: Window = SECOND;
    const FIXED: usize = 1 << ROOT.width;
    const UNIT: usize = UNIT;
    const FIRST: u32 = (CELLS / UNIT) as u32;
    const MAX_UNITS: u32 = tree::MAX_WORDS / UNIT as u32 - (Self::FIXED / UNIT) as u32;
    type Codes = ();

    fn prepare(_: &Cells) {}

    fn same(_: &mut Builder<'_, u128>, entry: u32) -> u32 {
        entry
    }

    fn second(cells: &Cells, address: u128) -> Option<usize> {
        let entry = cells.load(address.bits(ROOT) as usize);
        (entry & NODE != 0).then(|| Self::place(entry & !NODE))
    }

    fn build(builder: &mut Builder<'_, u128>, leaves: &[Leaf<u128>], offset: u8, default: u32) -> u32 {
        if offset == SECOND.end() {
            return tree::build(builder, leaves, offset, default);
        }
        let mut cells = [0; CELLS];
        sweep(leaves, SECOND, (0, CELLS as u32 - 1), default, &mut |first, last, content| {
            let entry = match content {
                Content::Entry(entry) => entry,
                Content::Longer(leaves, default) => tree::build(builder, leaves, SECOND.end(), default),
            };
            cells[first as usize..=last as usize].fill(entry);
        });
        if cells[0] & NODE == 0 && cells.iter().all(|cell| *cell == cells[0]) {
            return cells[0];
        }
        let entry = builder.add(&cells);
        if entry == 0 {
            cells.iter().for_each(|&cell| tree::free(builder, cell));
        }
        entry
    }

    fn free(builder: &mut Builder<'_, u128>, entry: u32, offset: u8) {
        if entry & NODE == 0 {
            return;
        }
        if offset == SECOND.end() {
            return tree::free(builder, entry);
        }
        let unit = entry & !NODE;
        for at in 0..CELLS {
            let cell = builder.word(Self::place(unit) + at);
            tree::free(builder, cell);
        }
        builder.drop_node(unit, Self::FIRST);
    }

    #[inline(always)]
    fn look_up<S: Search>(cells: &Cells, keys: &[u128], next: &mut [u32]) {
        // Where each key is: the word of a node as long as it is active, then that of its entry.
        let (mut places, mut numbers, mut active) = ([0_u32; BATCH], [0_u32; BATCH], [0_u32; BATCH]);
        let mut count = 0;
        for (at, ((&key, place), number)) in keys.iter().zip(&mut places).zip(&mut numbers).enumerate() {
            let high = (key >> 64) as u64;
            let slot = (high >> (64 - ROOT.width)) as usize;
            // SAFETY: the root has an entry for each value of its bits.
            let entry = unsafe { cells.load_unchecked(slot) };
            let cell = Self::place(node_or_first(entry)) + (high >> (64 - SECOND.end())) as usize % CELLS;
            // SAFETY: the root leads to as many cells, or this is in the first node, which is as long.
            let second = unsafe { cells.load_unchecked(cell) };
            let (cell, entry) = if entry & NODE != 0 { (cell, second) } else { (slot, entry) };
            let node = Self::place(node_or_first(entry)) + tree::HEADER;
            *place = std::hint::select_unpredictable(entry & NODE != 0, node, cell) as u32;
            *number = (high << SECOND.end() >> 32) as u32;
            cells.prefetch(*place as usize);
            active[count % BATCH] = at as u32;
            count += (entry >> 31) as usize;
        }
        tree::look_up::<S>(cells, &numbers, &mut places, &mut active, count);
        let mut any = 0;
        for (&place, next) in places.iter().zip(&mut *next) {
            // SAFETY: a tree leads to the word, or it is a cell.
            let entry = unsafe { cells.load_unchecked(place as usize) };
            any |= entry;
            *next = entry.wrapping_sub(1);
        }
        if any & NODE != 0 {
            look_up_longer::<S>(cells, keys, next);
        }
    }
}

/// Goes on with the keys whose entry leads to another tree. Such entries are marked by the highest bit, less 1.
#[inline(never)]
fn look_up_longer<S: Search>(cells: &Cells, keys: &[u128], next: &mut [u32]) {
    for (&key, next) in keys.iter().zip(next) {
        let mut offset = SECOND.end();
        // A cell may lead to a tree by now, which then is the first one and not a further one: from the root on, all is seen
        // at one time.
        if next.wrapping_add(1) & NODE != 0 {
            let mut entry = cell(cells, key);
            while entry & NODE != 0 {
                entry = tree::look_up_one::<S>(cells, entry, key.bits(Window { offset, width: tree::WIDTH }));
                offset += tree::WIDTH;
            }
            *next = entry.wrapping_sub(1);
        }
    }
}

/// The entry of the first 24 bits.
fn cell(cells: &Cells, key: u128) -> u32 {
    let entry = cells.load(key.bits(ROOT) as usize);
    if entry & NODE == 0 { entry } else { cells.load(u128::place(entry & !NODE) + key.bits(SECOND) as usize) }
}
