//! IPv6: a root of 18 bits, cells for the bits behind it where prefixes are longer, then search trees.
//!
//! Global addresses begin with the same three bits, so an eighth of the root is in use, and only few of its slots have 64
//! cells for the next 6 bits: both fit into the second-level cache. Of these cells, those with many prefixes have 256 cells
//! for 8 more bits, and the others a tree over the next 32 bits. A tree behind 32 bits mostly has one node. Each cell
//! changes alone, so that changes build small trees.

mod tree;

use crate::Prefix;
use crate::cells::Cells;
use crate::entry::{BATCH, NODE};
use crate::layout::{Builder, Family, Layout};
use crate::search::{Column, Search};
use crate::sweep::{Content, Leaf, Table, Window, sweep};

const ROOT: Window = Window { offset: 0, width: 18 };
const SECOND: Window = Window { offset: 18, width: 6 };
const THIRD: Window = Window { offset: 24, width: 8 };

/// An entry of the second window that leads to cells of the third one, together with [`NODE`].
const CELLS: u32 = 1 << 30;

const FLAGS: u32 = NODE | CELLS;

/// Prefixes in a cell of the second window from which on it has cells: what fits into one node, and rather fewer, because
/// cells change more quickly than trees.
const MANY: usize = 8;

/// The words of a unit: a cache line.
const UNIT: usize = 16;

impl Window {
    /// The cells for all values of its bits.
    const fn cells(self) -> usize {
        1 << self.width
    }
}

/// The first of the cells that an entry leads to.
#[inline(always)]
fn first_cell(entry: u32) -> usize {
    u128::place(entry & !FLAGS)
}

impl Family for u128 {}

impl Layout for u128 {
    const FIXED: usize = ROOT.cells();
    const UNIT: usize = UNIT;
    const FIRST: u32 = (THIRD.cells() / UNIT) as u32;
    const MAX_UNITS: u32 = tree::MAX_WORDS / UNIT as u32 - (Self::FIXED / UNIT) as u32;
    type Codes = ();

    fn prepare(_: &Cells) {}

    fn same(_: &mut Builder<'_, u128>, entry: u32) -> u32 {
        entry
    }

    fn reach(cells: &Cells, prefix: Prefix<u128>) -> (Window, usize) {
        let (mut window, mut cell) = (ROOT, 0);
        for next in [SECOND, THIRD] {
            let entry = cells.load(cell + prefix.address().bits(window) as usize);
            let leads_on = if window.end() == ROOT.end() { NODE } else { CELLS };
            if prefix.length() <= next.offset || entry & NODE == 0 || entry & leads_on == 0 {
                break;
            }
            (window, cell) = (next, first_cell(entry));
        }
        (window, cell)
    }

    fn build(builder: &mut Builder<'_, u128>, leaves: &[Leaf<u128>], offset: u8, default: u32) -> u32 {
        if offset == ROOT.end() {
            cells(builder, leaves, SECOND, default)
        } else if offset == SECOND.end() && leaves.len() >= MANY {
            match cells(builder, leaves, THIRD, default) {
                entry if entry & NODE != 0 => entry | CELLS,
                entry => entry,
            }
        } else {
            tree::build(builder, leaves, offset, default)
        }
    }

    fn free(builder: &mut Builder<'_, u128>, entry: u32, offset: u8) {
        if entry & NODE == 0 {
            return;
        }
        let window = match offset {
            offset if offset == ROOT.end() => SECOND,
            _ if entry & CELLS != 0 => THIRD,
            _ => return tree::free(builder, entry),
        };
        for at in 0..window.cells() {
            let cell = builder.word(first_cell(entry) + at);
            Self::free(builder, cell, window.end());
        }
        builder.drop_node(entry & !FLAGS, (window.cells() / UNIT) as u32);
    }

    #[inline(always)]
    fn look_up<S: Search>(table: &Cells, keys: &[u128], next: &mut [u32]) {
        // The keys that go on, by their places in the batch, what they have found, and where they go on. Each step reads one
        // line for each key, so that keys do not wait for one another.
        let mut going: Column = std::array::from_fn(|at| at as u32);
        let (mut entries, mut places, mut thirds): (Column, Column, Column) = ([0; _], [0; _], [0; _]);
        let (mut numbers, mut longer): (Column, Column) = ([0; _], [0; _]);
        for ((&key, next), entry) in keys.iter().zip(&mut *next).zip(&mut entries) {
            // SAFETY: the root has an entry for each value of its bits.
            *entry = unsafe { table.load_unchecked((key >> (128 - ROOT.width)) as usize) };
            *next = *entry;
        }
        let count = S::keep(NODE, [&mut entries, &mut going], keys.len()).min(BATCH);
        for turn in 0..count {
            let Some(&key) = keys.get(going[turn] as usize) else { break };
            let high = (key >> 64) as u64;
            let cell = first_cell(entries[turn]) + (high >> (64 - SECOND.end())) as usize % SECOND.cells();
            // SAFETY: the root led to as many cells.
            entries[turn] = unsafe { table.load_unchecked(cell) };
            (numbers[turn], longer[turn]) = ((high >> (32 - SECOND.end())) as u32, (high >> (32 - THIRD.end())) as u32);
        }
        // Loops without loads from the table are done on many keys at a time, and have no branches.
        for turn in 0..count {
            let unit = if entries[turn] & FLAGS == FLAGS { entries[turn] & !FLAGS } else { 0 };
            places[turn] = Self::place(0) as u32 + unit * UNIT as u32 + (numbers[turn] >> (32 - THIRD.width));
        }
        for turn in 0..count {
            // SAFETY: the cell of the second window leads to as many cells, or this is in the first node, which is as long.
            thirds[turn] = unsafe { table.load_unchecked(places[turn] as usize) };
        }
        for turn in 0..count {
            let has_cells = entries[turn] & FLAGS == FLAGS;
            let entry = if has_cells { thirds[turn] } else { entries[turn] };
            entries[turn] = entry;
            numbers[turn] = if has_cells { longer[turn] } else { numbers[turn] };
            places[turn] = tree::root_of(if entry & NODE != 0 { entry & !FLAGS } else { 0 });
        }
        for turn in 0..count {
            let Some(next) = next.get_mut(going[turn] as usize) else { break };
            *next = entries[turn];
            table.prefetch(places[turn] as usize);
        }
        let count = S::keep(NODE, [&mut entries, &mut going, &mut places, &mut numbers], count);
        tree::look_up::<S>(table, [&mut places, &mut numbers, &mut going], count, next);
        let mut any = 0;
        for next in &mut *next {
            any |= *next;
            *next = next.wrapping_sub(1);
        }
        if any & NODE != 0 {
            look_up_longer::<S>(table, keys, next);
        }
    }
}

/// Goes on with the keys whose entry leads to another tree. Such entries are marked by the highest bit, less 1.
#[inline(never)]
fn look_up_longer<S: Search>(table: &Cells, keys: &[u128], next: &mut [u32]) {
    for (&key, next) in keys.iter().zip(next) {
        if next.wrapping_add(1) & NODE != 0 {
            let (mut entry, mut offset) = cell(table, key);
            while entry & NODE != 0 {
                entry = tree::look_up_one::<S>(table, entry, key.bits(Window { offset, width: tree::WIDTH }));
                offset += tree::WIDTH;
            }
            *next = entry.wrapping_sub(1);
        }
    }
}

/// The entry of the last cell for a key, and the bits in front of what it leads to.
fn cell(table: &Cells, key: u128) -> (u32, u8) {
    let root = table.load(key.bits(ROOT) as usize);
    if root & NODE == 0 {
        return (root, ROOT.end());
    }
    let second = table.load(first_cell(root) + key.bits(SECOND) as usize);
    if second & FLAGS != FLAGS {
        return (second, SECOND.end());
    }
    (table.load(first_cell(second) + key.bits(THIRD) as usize), THIRD.end())
}

/// Makes cells for a window. Returns the entry that leads to them, or that of all addresses.
fn cells(builder: &mut Builder<'_, u128>, leaves: &[Leaf<u128>], window: Window, default: u32) -> u32 {
    let mut cells = [0; THIRD.cells()];
    let cells = &mut cells[..window.cells()];
    sweep(leaves, window, (0, cells.len() as u32 - 1), default, &mut |first, last, content| {
        let entry = match content {
            Content::Entry(entry) => entry,
            Content::Longer(leaves, default) => u128::build(builder, leaves, window.end(), default),
        };
        cells[first as usize..=last as usize].fill(entry);
    });
    if cells[0] & NODE == 0 && cells.iter().all(|cell| *cell == cells[0]) {
        return cells[0];
    }
    let entry = builder.add(cells);
    if entry == 0 {
        cells.iter().for_each(|&cell| u128::free(builder, cell, window.end()));
    }
    entry
}
