//! IPv6: a root of 16 bits, cells for up to 16 more bits, then lines of intervals.
//!
//! Where there are many prefixes, an entry leads to *cells*, one for each value of the next bits, up to 16. In a table of
//! the Internet these are mostly those of bits 16 to 31, of which few are in use: they fit into the second-level cache.
//! Where prefixes are few, it leads to [lines](line), which find a number by 16 bits. Lines are packed, so that a table of
//! the Internet has few of them; that counts because reads which miss the second-level cache take most of the time. Each
//! cell changes alone, so that changes write few lines. Where all prefixes behind an entry begin with the same bits, and
//! these are more than two lines decide by (one line, on the way to hosts), a [path](path) compares them at once.

mod entry;
mod line;
mod path;

use crate::Prefix;
use crate::cells::Cells;
use crate::entry::{BATCH, NODE};
use crate::layout::{AddressFamily, Builder, Layout};
use crate::search::{Baseline, Column, Places, Search};
use crate::sweep::{Content, Leaf, SweepTable, Window, sweep};
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

/// The keys of a batch that are at cells from which on all are treated as if they were.
const DENSE: usize = BATCH * 3 / 4;

/// The keys of a batch that go on behind the root up to which each is looked up alone.
const SPARSE: usize = BATCH / 32;

/// The keys of a batch that are at wide lines, or at cells behind cells, from which on all are treated as if they were.
const MANY_OTHERS: usize = BATCH / 8;

/// The unit of the line for keys whose search leads nowhere.
const NOWHERE: u32 = 0;

impl AddressFamily for u128 {}

impl Layout for u128 {
    const ROOT_WIDTH: u8 = ROOT.width;
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
            let mut entry = cells.load(cell + prefix.address().bits(window) as usize);
            let mut offset = window.end();
            while entry::is_path(entry)
                && let Some(behind) = path::behind(cells, entry, prefix)
            {
                (entry, offset) = behind;
            }
            if entry::kind(entry) != CELLS {
                break;
            }
            window = Window { offset, width: entry::width(entry) as u8 };
            cell = entry::place(entry);
        }
        (window, cell)
    }

    fn build(builder: &mut Builder<'_, u128>, leaves: &[Leaf<u128>], offset: u8, default: u32) -> u32 {
        if let Some(path) = path::build(builder, leaves, offset, default) {
            return path;
        }
        let few = leaves.len() <= line::MAX_PREFIXES;
        let line = few.then(|| line::build(builder, leaves, offset, default)).flatten();
        line.unwrap_or_else(|| make_cells(builder, leaves, offset, default))
    }

    fn free(builder: &mut Builder<'_, u128>, entry: u32, offset: u8) {
        if entry & NODE == 0 {
            return;
        }
        if entry::is_path(entry) {
            return path::free(builder, entry);
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
        let (mut entries, mut turns): (Column, Places) = ([0; _], [0; _]);
        for (&key, entry) in keys.iter().zip(&mut entries) {
            // SAFETY: the root has an entry for each value of its bits.
            *entry = unsafe { table.load_unchecked((key >> (128 - ROOT.width)) as usize) };
        }
        for (&entry, next) in entries.iter().zip(&mut *next) {
            *next = entry.wrapping_sub(1);
        }
        let count = S::places((NODE, NODE), &entries, &mut turns);
        if count <= SPARSE {
            look_up_each(table, keys, &turns[..count], next);
        } else {
            look_up_many::<S>(table, keys, &mut entries, next);
        }
    }
}

/// What follows the bits of a key that are at hand: 48 of them, of which lines and cells take some.
const END: u32 = 1 << 15;

/// Goes on behind the root. Hot.
#[inline(always)]
fn look_up_many<S: Search>(table: &Cells, keys: &[u128], entries: &mut Column, next: &mut [u32]) {
    let (mut high, mut rests, mut room): (Column, Column, Column) = ([0; _], [0; _], [0; _]);
    S::split(keys, &mut high, &mut rests);
    for (high, low) in high.iter_mut().zip(&mut rests) {
        (*high, *low) = (*high << ROOT.width | *low >> (32 - ROOT.width), *low << ROOT.width | END);
    }
    // Each is for up to 16 of the bits behind the root, so that lines have 16 more.
    if cells::<S>(table, entries, &mut high, &mut rests) == 0 {
        return S::apart(|| look_up_others::<S, false>(table, keys, (entries, &high, &rests), next));
    }
    cells::<S>(table, entries, &mut high, &mut rests);
    let others = match next.as_mut_array() {
        Some(next) => lines::<S>(table, entries, &high, next),
        None => {
            let others = lines::<S>(table, entries, &high, &mut room);
            next.copy_from_slice(&room[..next.len()]);
            others
        }
    };
    if others != 0 {
        S::apart(|| look_up_others::<S, true>(table, keys, (entries, &high, &rests), next));
    }
}

/// Goes on behind wide lines and paths, and behind cells behind cells, or wherever keys are if not `HAS_LINES`. Hot.
#[inline(always)]
fn look_up_others<S: Search, const HAS_LINES: bool>(
    table: &Cells,
    keys: &[u128],
    (entries, rests, behind): (&mut Column, &Column, &Column),
    next: &mut [u32],
) {
    let mut turns: Places = [0; _];
    let at_wide = S::places((KIND, entry::WIDE), entries, &mut turns);
    let at_cells = S::places((KIND, CELLS), entries, &mut turns);
    if at_wide >= MANY_OTHERS || at_cells >= MANY_OTHERS || !HAS_LINES {
        let (mut rests, mut behind, mut found) = (*rests, *behind, [0; _]);
        if at_cells >= MANY_OTHERS {
            refill(keys, &mut rests, &mut behind);
            cells::<S>(table, entries, &mut rests, &mut behind);
        }
        for _ in 0..STEPS {
            let count = S::places((entry::KIND_OR_PATH, entry::WIDE), entries, &mut turns);
            let is_wide = count > 0;
            if is_wide {
                wide::<S>(table, entries, (&mut rests, &mut behind), &turns[..count]);
            }
            let count = S::places((entry::KIND_OR_PATH, entry::PATH), entries, &mut turns);
            paths(table, keys, entries, (&mut rests, &mut behind), &turns[..count]);
            if !is_wide && count == 0 {
                break;
            }
        }
        lines::<S>(table, entries, &rests, &mut found);
        next.copy_from_slice(&found[..next.len()]);
    }
    for kind in [CELLS, entry::WIDE] {
        let count = S::places((KIND, kind), entries, &mut turns);
        look_up_each(table, keys, &turns[..count], next);
    }
}

/// Makes the bits at hand as many as behind the root again, for all keys that have not been at a wide line or path. Hot.
#[inline(always)]
fn refill(keys: &[u128], rests: &mut Column, behind: &mut Column) {
    for ((&key, rest), behind) in keys.iter().zip(rests).zip(behind) {
        // The end has moved by the bits that have been taken.
        let bits = u64::from(*rest) << 32 | u64::from(*behind);
        let taken = bits.trailing_zeros().wrapping_sub(END.trailing_zeros());
        let at = (u32::from(ROOT.width) + taken) % u64::BITS;
        let left = ((key >> 64) as u64) << at | (key as u64).unbounded_shr(u64::BITS - at);
        (*rest, *behind) = ((left >> 32) as u32, left as u32 & !(u32::MAX >> line::WIDTH) | END);
    }
}

/// Steps through wide lines and paths that are taken by many keys together: those to the hosts on a link, and one more.
const STEPS: usize = 4;

/// Looks up some keys of a batch step by step.
#[inline(never)]
fn look_up_each(table: &Cells, keys: &[u128], turns: &[u32], next: &mut [u32]) {
    for &turn in turns {
        if let (Some(&key), Some(next)) = (keys.get(turn as usize), next.get_mut(turn as usize)) {
            *next = look_up_one(table, key);
        }
    }
}

/// All ones if the entry is of a kind, else 0: steps without branches are for many keys at a time.
#[inline(always)]
fn are(entry: u32, kind: u32) -> u32 {
    0_u32.wrapping_sub((entry::kind(entry) == kind).into())
}

/// The first bits of a number, as many as `width`, which is below 32.
#[inline(always)]
fn shifted_out(bits: u32, width: u32) -> u32 {
    bits.checked_shr(32_u32.wrapping_sub(width)).unwrap_or(0)
}

/// Takes the keys whose entry leads to cells to these. `rests` and `behind` are the bits of keys behind what they have been
/// looked up by. Returns how many these are. Hot.
#[inline(always)]
fn cells<S: Search>(table: &Cells, entries: &mut Column, rests: &mut Column, behind: &mut Column) -> usize {
    let (mut turns, mut places): (Places, Column) = ([0; _], [0; _]);
    let count = S::places((KIND, CELLS), entries, &mut turns);
    if count == 0 {
        return 0;
    }
    for (((&entry, rest), behind), place) in entries.iter().zip(&mut *rests).zip(behind).zip(&mut places) {
        let mask = are(entry, CELLS);
        let width = entry::width(entry) & mask;
        *place = (entry::place(entry) as u32 + shifted_out(*rest, width)) & mask;
        *rest = *rest << width | shifted_out(*behind, width);
        *behind <<= width;
    }
    if count > DENSE {
        // Fewer instructions for each key, though some are for keys that are not at cells.
        for place in &mut places {
            // SAFETY: the entry led to as many cells, or this is the root's first entry.
            *place = unsafe { table.load_unchecked(*place as usize) };
        }
        for (entry, &found) in entries.iter_mut().zip(&places) {
            let mask = are(*entry, CELLS);
            *entry = found & mask | *entry & !mask;
        }
    } else {
        for &turn in &turns[..count] {
            let turn = turn as usize % BATCH;
            // SAFETY: the entry led to as many cells.
            entries[turn] = unsafe { table.load_unchecked(places[turn] as usize) };
        }
    }
    count
}

/// Takes the keys at these turns, whose entry leads to a wide line, to what is behind it. Hot.
#[inline(always)]
fn wide<S: Search>(table: &Cells, entries: &mut Column, (rests, behind): (&mut Column, &mut Column), turns: &[u32]) {
    let mut found = *entries;
    for &turn in turns {
        let turn = turn as usize % BATCH;
        // SAFETY: the entry led to a wide line.
        found[turn] = unsafe { line::wide::<S>(table, entry::place(entries[turn]), (rests[turn] >> 16) as u16) };
    }
    for (((entry, rest), behind), found) in entries.iter_mut().zip(rests).zip(behind).zip(found) {
        // The end is the last bit that is set. It has to be behind the bits of a second line.
        let is_here = *entry & entry::KIND_OR_PATH == entry::WIDE;
        let is_wide = 0_u32.wrapping_sub((is_here & (*behind != 0)).into());
        *entry = found & is_wide | *entry & !is_wide;
        *rest = (*rest << line::WIDTH | *behind >> line::WIDTH) & is_wide | *rest & !is_wide;
        *behind = *behind << line::WIDTH & is_wide | *behind & !is_wide;
    }
}

/// Takes the keys at these turns, whose entry leads to a path, to what is behind it. Hot.
#[inline(always)]
fn paths(
    table: &Cells,
    keys: &[u128],
    entries: &mut Column,
    (rests, behind): (&mut Column, &mut Column),
    turns: &[u32],
) {
    for &turn in turns {
        let turn = turn as usize % BATCH;
        let key = keys.get(turn).copied().unwrap_or_default();
        // SAFETY: the entry led to a path.
        let (entry, rest) = unsafe { path::follow(table, entry::place(entries[turn]), key) };
        let (first, second) = ((rest >> 96) as u32, (rest >> 64) as u32);
        (entries[turn], rests[turn], behind[turn]) = (entry, first, second & !(u32::MAX >> line::WIDTH) | END);
    }
}

/// Finds the numbers of keys whose entry is one or leads to lines. Returns a number that is not 0 if others lead on, too.
/// Hot.
#[inline(always)]
fn lines<S: Search>(table: &Cells, entries: &Column, rests: &Column, found: &mut Column) -> u32 {
    let (mut places, mut turns): (Column, Places) = ([0; _], [0; _]);
    let mut others = 0;
    for (&entry, place) in entries.iter().zip(&mut places) {
        let mask = are(entry, LEAF) | are(entry, INNER);
        *place = entry::place(entry & mask) as u32;
        others |= entry & NODE & !mask;
    }
    // As in IPv4: more lines can be under way to the second-level cache than the loops below have under way.
    for place in places {
        table.prefetch_half(2 * place as usize);
    }
    let count = S::places((KIND, INNER), entries, &mut turns);
    for &turn in &turns[..count] {
        let turn = turn as usize % BATCH;
        // SAFETY: the entry led to an inner line.
        places[turn] = unsafe { line::leaf_of::<S>(table, places[turn] as usize, (rests[turn] >> 16) as u16) } as u32;
    }
    // Also for the few keys that are not at lines, which takes fewer instructions than to leave them out.
    for ((&place, &rest), found) in places.iter().zip(rests).zip(&mut *found) {
        // SAFETY: the entry led to a leaf, or the inner line to one, or this is the line for other keys.
        let code = unsafe { line::code::<S>(table, place as usize, (rest >> 16) as u16) };
        // SAFETY: the dictionary has a number for each code.
        *found = unsafe { table.word(DICTIONARY + usize::from(code)) };
    }
    for (&entry, found) in entries.iter().zip(found) {
        let mask = 0_u32.wrapping_sub(entry >> 31);
        *found = *found & mask | entry.wrapping_sub(1) & !mask;
    }
    others
}

const _: () = assert!(NOWHERE == 0, "the unit of an entry that leads to no line");

/// Looks up a key step by step.
fn look_up_one(table: &Cells, key: u128) -> u32 {
    let (mut entry, mut rest) = (table.load(key.bits(ROOT) as usize), key << ROOT.width);
    loop {
        let (place, value) = (entry::place(entry), (rest >> (128 - line::WIDTH)) as u16);
        let width;
        (entry, width) = match entry::kind(entry) {
            CELLS => {
                let width = entry::width(entry);
                (table.load(place + usize::from(value >> (u32::from(line::WIDTH) - width))), width)
            }
            // SAFETY: the entry leads to a line of this kind, and an inner line to leaves; the dictionary has a number
            // for each code.
            kind @ (LEAF | INNER) => unsafe {
                let is_leaf = kind == LEAF;
                let place = if is_leaf { place } else { line::leaf_of::<Baseline>(table, place, value) };
                let code = line::code::<Baseline>(table, place, value);
                return table.word(DICTIONARY + usize::from(code));
            },
            _ if entry::is_path(entry) => {
                // SAFETY: as above.
                (entry, rest) = unsafe { path::follow(table, place, key) };
                continue;
            }
            // SAFETY: as above.
            entry::WIDE => (unsafe { line::wide::<Baseline>(table, place, value) }, line::WIDTH.into()),
            _ => return entry.wrapping_sub(1),
        };
        rest <<= width;
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

/// The number of units that the cells take.
fn units(cells: usize) -> u32 {
    cells.div_ceil(UNIT) as u32
}

/// Makes cells. Returns the entry that leads to them, or that of all addresses.
fn make_cells(builder: &mut Builder<'_, u128>, leaves: &[Leaf<u128>], offset: u8, default: u32) -> u32 {
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
