//! IPv6: a root of 16 bits, cells for up to 16 more bits, then lines of intervals.
//!
//! Where there are many prefixes, an entry leads to *cells*, one for each value of the next bits, up to 16. In a table of
//! the Internet these are mostly those of bits 16 to 31, of which few are in use: they fit into the second-level cache.
//! Where prefixes are few, it leads to [lines](line), which find a number by 16 bits. Lines are packed, so that a table of
//! the Internet has few of them; that counts because reads which miss the second-level cache take most of the time. Each
//! cell changes alone, so that changes write few lines.

mod entry;
mod line;

use crate::Prefix;
use crate::cells::Cells;
use crate::entry::{BATCH, NODE};
use crate::layout::{Builder, Family, Layout};
use crate::search::{Baseline, Column, Search};
use crate::sweep::{Content, Leaf, Table, Window, sweep};
use entry::{CELLS, INNER, KIND, LEAF, UNIT};

const ROOT: Window = Window { offset: 0, width: 16 };

/// Where the dictionary is.
const DICTIONARY: usize = 1 << ROOT.width;

/// Prefixes from which on there may be as many cells as it takes to have lines end where the longest prefixes do.
const MANY: usize = 512;

/// The longest prefixes that this is done for.
const COMMON_LENGTH: u8 = 48;

/// The bits that cells are for.
const MIN_WIDTH: u32 = 4;
const MAX_WIDTH: u32 = 16;

/// The unit of the line for keys whose search leads nowhere.
const NOWHERE: u32 = 0;

impl Family for u128 {}

impl Layout for u128 {
    const FIXED: usize = DICTIONARY + (1 << 16);
    const DICTIONARY: usize = DICTIONARY;
    const UNIT: usize = UNIT;
    const FIRST: u32 = NOWHERE + 1;
    const MAX_UNITS: u32 = entry::MAX_UNITS;

    fn prepare(cells: &Cells) {
        cells.store(DICTIONARY, crate::NO_ROUTE);
        line::prepare(cells, NOWHERE);
    }

    fn same(_: &mut Builder<'_, u128>, entry: u32) -> u32 {
        entry
    }

    fn reach(cells: &Cells, prefix: Prefix<u128>) -> (Window, usize) {
        let (mut window, mut cell) = (ROOT, 0);
        while prefix.length() > window.end() {
            let entry = cells.load(cell + prefix.address().bits(window) as usize);
            if entry::kind(entry) != CELLS {
                break;
            }
            window = Window { offset: window.end(), width: entry::width(entry) as u8 };
            cell = entry::place(entry);
        }
        (window, cell)
    }

    fn build(builder: &mut Builder<'_, u128>, leaves: &[Leaf<u128>], offset: u8, default: u32) -> u32 {
        let few = leaves.len() <= line::MAX_PREFIXES;
        let line = few.then(|| line::build(builder, leaves, offset, default)).flatten();
        line.unwrap_or_else(|| cells(builder, leaves, offset, default))
    }

    fn free(builder: &mut Builder<'_, u128>, entry: u32, offset: u8) {
        if entry & NODE == 0 {
            return;
        }
        if entry::kind(entry) != CELLS {
            return line::free(builder, entry, offset + line::WIDTH);
        }
        let width = entry::width(entry);
        for at in 0..1 << width {
            let cell = builder.word(entry::place(entry) + at);
            Self::free(builder, cell, offset + width as u8);
        }
        builder.drop_node(entry::unit(entry), units(1 << width));
    }

    #[inline(always)]
    fn look_up<S: Search>(table: &Cells, keys: &[u128], next: &mut [u32]) {
        // Loops without loads from the table are done on many keys at a time, and have no branches. The others have few
        // instructions, so that many loads are under way at the same time.
        let (mut entries, mut places, mut found): (Column, Column, Column) = ([0; _], [0; _], [0; _]);
        let mut rests: Column = [0; _];
        for (&key, entry) in keys.iter().zip(&mut entries) {
            // SAFETY: the root has an entry for each value of its bits.
            *entry = unsafe { table.load_unchecked((key >> (128 - ROOT.width)) as usize) };
        }
        for (((&key, &entry), place), rest) in keys.iter().zip(&entries).zip(&mut places).zip(&mut rests) {
            let high = ((key >> 64) as u64) << ROOT.width;
            let (is_cells, width) = (entry::kind(entry) == CELLS, entry::width(entry));
            let cell = (high >> 33) as u32 >> (31_u32.wrapping_sub(width) & 31);
            *place = if is_cells { entry::place(entry) as u32 + cell } else { 0 };
            *rest = (high << if is_cells { width } else { 0 } >> 32) as u32;
        }
        for (&place, second) in places.iter().zip(&mut found).take(keys.len()) {
            // SAFETY: the root led to as many cells, or this is the root's first entry.
            *second = unsafe { table.load_unchecked(place as usize) };
        }
        for ((entry, found), next) in entries.iter_mut().zip(&mut found).zip(&mut *next) {
            let last = if entry::kind(*entry) == CELLS { *found } else { *entry };
            *entry = last;
            *found = last.wrapping_sub(1);
            *next = *found;
        }
        // The keys that go on, by their places in the batch.
        let mut going: Column = std::array::from_fn(|at| at as u32);
        let count = S::keep((NODE, NODE), [&mut entries, &mut going, &mut rests], keys.len());
        let count = third::<S>(table, [&mut entries, &mut going, &mut rests], count, &mut found);
        let any_other = lines::<S>(table, [&mut entries, &mut going, &mut rests], count, &mut found);
        for (&found, next) in found.iter().zip(&mut *next) {
            *next = found;
        }
        if any_other {
            for (&entry, &at) in entries.iter().zip(&going).take(count) {
                if !matches!(entry::kind(entry), LEAF | INNER)
                    && let (Some(&key), Some(next)) = (keys.get(at as usize), next.get_mut(at as usize))
                {
                    *next = look_up_one(table, key);
                }
            }
        }
    }
}

/// Takes the keys that are at cells into these, and returns how many keys go on. The columns are entries, the places of keys
/// in the batch, and the bits of keys behind what they have been looked up by. Hot.
#[inline(always)]
fn third<S: Search>(table: &Cells, columns: [&mut Column; 3], count: usize, found: &mut Column) -> usize {
    let [entries, going, rests] = columns;
    let (mut kinds, mut turns): (Column, Column) = (*entries, std::array::from_fn(|at| at as u32));
    let at_cells = S::keep((KIND, CELLS), [&mut kinds, &mut turns], count);
    for &turn in turns.iter().take(at_cells) {
        let turn = turn as usize % BATCH;
        let (entry, rest) = (entries[turn], rests[turn]);
        let width = entry::width(entry);
        // SAFETY: the entry led to as many cells.
        let entry = unsafe { table.load_unchecked(entry::place(entry) + (rest >> (32 - width)) as usize) };
        (entries[turn], rests[turn]) = (entry, rest << width);
        found[going[turn] as usize % BATCH] = entry.wrapping_sub(1);
    }
    S::keep((NODE, NODE), [entries, going, rests], count)
}

/// Looks up the keys that are at lines, and returns whether there are others, too. Hot.
#[inline(always)]
fn lines<S: Search>(table: &Cells, columns: [&mut Column; 3], count: usize, found: &mut Column) -> bool {
    let [entries, going, rests] = columns;
    let (mut kinds, mut turns): (Column, Column) = (*entries, std::array::from_fn(|at| at as u32));
    let at_inner = S::keep((KIND, INNER), [&mut kinds, &mut turns], count);
    let (mut units, mut any_other): (Column, bool) = ([0; _], false);
    for (&entry, unit) in entries.iter().zip(&mut units).take(count) {
        let is_line = entry::kind(entry) == LEAF || entry::kind(entry) == INNER;
        *unit = if is_line { entry::unit(entry) } else { NOWHERE };
        any_other |= !is_line;
    }
    for &turn in turns.iter().take(at_inner) {
        let turn = turn as usize % BATCH;
        // SAFETY: the entry led to an inner line.
        units[turn] = unsafe { line::leaf_of::<S>(table, units[turn], (rests[turn] >> 16) as u16) };
    }
    for ((&unit, &at), &rest) in units.iter().zip(&*going).zip(&*rests).take(count) {
        // SAFETY: the entry led to a leaf, or the inner line to one, or this is the one for other keys.
        let code = unsafe { line::code::<S>(table, unit, (rest >> 16) as u16) };
        // SAFETY: the dictionary has a number for each code.
        found[at as usize % BATCH] = unsafe { table.word(DICTIONARY + usize::from(code)) };
    }
    any_other
}

/// Looks up a key step by step.
fn look_up_one(table: &Cells, key: u128) -> u32 {
    let (mut window, mut entry) = (ROOT, table.load(key.bits(ROOT) as usize));
    loop {
        let is_cells = entry::kind(entry) == CELLS;
        let width = if is_cells { entry::width(entry) as u8 } else { line::WIDTH };
        window = Window { offset: window.end(), width };
        let (unit, value) = (entry::unit(entry), key.bits(window));
        entry = match entry::kind(entry) {
            CELLS => table.load(entry::place(entry) + value as usize),
            // SAFETY: the entry leads to a line of this kind, and an inner line to leaves; the dictionary has a number
            // for each code.
            kind @ (LEAF | INNER) => unsafe {
                let is_leaf = kind == LEAF;
                let unit = if is_leaf { unit } else { line::leaf_of::<Baseline>(table, unit, value as u16) };
                let code = line::code::<Baseline>(table, unit, value as u16);
                return table.word(DICTIONARY + usize::from(code));
            },
            // SAFETY: as above.
            entry::WIDE => unsafe { line::wide(table, unit, value as u16) },
            _ => return entry.wrapping_sub(1),
        };
    }
}

/// The bits that cells for these prefixes are for.
fn width(leaves: &[Leaf<u128>], offset: u8) -> u8 {
    let longest = leaves.iter().map(|(prefix, _)| prefix.length()).max().unwrap_or(offset);
    let mut width = (2 * leaves.len() as u32).ilog2().clamp(MIN_WIDTH, MAX_WIDTH) as u8;
    if leaves.len() >= MANY {
        width = width.max(longest.min(COMMON_LENGTH).saturating_sub(offset + line::WIDTH)).min(MAX_WIDTH as u8);
    }
    width.min(longest - offset)
}

/// Units of so many cells.
fn units(cells: usize) -> u32 {
    cells.div_ceil(UNIT) as u32
}

/// Makes cells. Returns the entry that leads to them, or that of all addresses.
fn cells(builder: &mut Builder<'_, u128>, leaves: &[Leaf<u128>], offset: u8, default: u32) -> u32 {
    let window = Window { offset, width: width(leaves, offset) };
    let slots = 1 << window.width;
    let mut cells = vec![0; units(slots) as usize * UNIT];
    sweep(leaves, window, (0, slots as u32 - 1), default, &mut |first, last, content| {
        let entry = match content {
            Content::Entry(entry) => entry,
            Content::Longer(leaves, default) => u128::build(builder, leaves, window.end(), default),
        };
        cells[first as usize..=last as usize].fill(entry);
    });
    if cells[0] & NODE == 0 && cells[..slots].iter().all(|cell| *cell == cells[0]) {
        return cells[0];
    }
    match builder.add(&cells) {
        0 => {
            cells.iter().for_each(|&cell| u128::free(builder, cell, window.end()));
            0
        }
        node => entry::of_cells(node & !NODE, window.width),
    }
}
