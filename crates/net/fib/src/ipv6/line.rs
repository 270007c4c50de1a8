//! Nodes for 16 bits of addresses: intervals between sorted separators.
//!
//! A *leaf* is a cache line with 16 separators and the codes of 16 intervals. An *inner* line has 32 separators, and as
//! many leaves behind it. A separator is the last value in its interval; those without an interval, and the last one, are
//! all ones, so that no value is above them. A *wide* line has 10 separators and 11 entries, which may lead on: for
//! prefixes that are longer than its window, and for numbers without codes. Those are rare.

use super::entry::{self, INNER, LEAF, UNIT, WIDE};
use crate::cells::Cells;
use crate::codes::ESCAPE;
use crate::entry::NODE;
use crate::layout::{Builder, Layout};
use crate::search::Search;
use crate::sweep::{Content, Leaf, Window, sweep};

/// The bits of a window.
pub(super) const WIDTH: u8 = 16;

/// The intervals of a leaf, and the leaves of an inner line.
pub(super) const INTERVALS: usize = UNIT;
const LEAVES: usize = 2 * UNIT;

/// The intervals of a wide line, and the words of its separators.
const ENTRIES: usize = 11;
const WIDE_SEPARATORS: usize = 5;

/// The most intervals in front of which there is one inner line: fewer than there is room for, because a change writes
/// them all.
const MAX_INTERVALS: usize = 256;

/// The most prefixes that are tried.
pub(super) const MAX_PREFIXES: usize = MAX_INTERVALS;

/// The code of a value in the leaf that begins with this word. Hot.
///
/// # Safety
/// As for [`entry::line`].
#[inline(always)]
pub(super) unsafe fn code<S: Search>(cells: &Cells, place: usize, value: u16) -> u16 {
    // SAFETY: as the caller promises.
    let line = unsafe { entry::line(cells, place) };
    let (separators, codes) = line.split_at(INTERVALS);
    let rank = S::rank::<INTERVALS>(separators.try_into().expect("as many"), value) as usize;
    debug_assert!(rank < INTERVALS);
    // SAFETY: at most 15 separators are below a value, because the last one is all ones.
    unsafe { *codes.get_unchecked(rank) }
}

/// The place of a value's leaf behind the inner line that begins with this word. Hot.
///
/// # Safety
/// As for [`entry::line`].
#[inline(always)]
pub(super) unsafe fn leaf_of<S: Search>(cells: &Cells, place: usize, value: u16) -> usize {
    // SAFETY: as the caller promises.
    let rank = S::rank(unsafe { entry::line(cells, place) }, value) as usize;
    place + UNIT + rank * UNIT
}

/// The entry of a value in the wide line that begins with this word. Hot.
///
/// # Safety
/// As for [`entry::line`].
#[inline(always)]
pub(super) unsafe fn wide<S: Search>(cells: &Cells, place: usize, value: u16) -> u32 {
    // SAFETY: as the caller promises.
    let line = unsafe { entry::line(cells, place) };
    let first: &[u16; 16] = line.first_chunk().expect("a line is longer");
    let rank = S::rank_of_first::<{ 2 * WIDE_SEPARATORS }>(first, value) as usize;
    // SAFETY: as the caller promises; a wide line has an entry for each of its intervals.
    unsafe { cells.word(place + WIDE_SEPARATORS + rank) }
}

/// The intervals of a window, as long as they are few.
struct Intervals<'r> {
    /// The first value of each, and its entry.
    firsts: [u16; MAX_INTERVALS],
    entries: [u32; MAX_INTERVALS],
    count: usize,
    /// Intervals of one value with longer prefixes: their place, the prefixes, and the entry for others.
    longer: Vec<(usize, &'r [Leaf<u128>], u32)>,
}

impl<'r> Intervals<'r> {
    fn of(leaves: &'r [Leaf<u128>], window: Window, default: u32) -> Option<Intervals<'r>> {
        let mut found = Intervals { firsts: [0; _], entries: [0; _], count: 0, longer: Vec::new() };
        let mut previous = None;
        sweep(leaves, window, (0, u16::MAX.into()), default, &mut |first, _, content| {
            let entry = match content {
                Content::Entry(entry) => entry,
                Content::Longer(longer, default) => {
                    found.longer.push((found.count, longer, default));
                    NODE
                }
            };
            if entry == NODE || previous != Some(entry) {
                if let (Some(to), Some(kept)) = (found.firsts.get_mut(found.count), found.entries.get_mut(found.count))
                {
                    (*to, *kept) = (first as u16, entry);
                }
                found.count += 1;
            }
            previous = Some(entry);
        });
        (found.count <= MAX_INTERVALS).then_some(found)
    }

    /// Makes leaves, with an inner line if there are several.
    fn leaves(&self, builder: &mut Builder<'_, u128>, codes: &[u16]) -> u32 {
        let leaves = self.count.div_ceil(INTERVALS);
        let inner = usize::from(leaves > 1);
        let mut words = [0; (1 + MAX_INTERVALS / INTERVALS) * UNIT];
        let Some(unit) = builder.reserve(rounded(inner + leaves) as u32) else { return 0 };
        if inner == 1 {
            let separators = std::array::from_fn(|leaf| self.end((leaf + 1) * INTERVALS));
            write(&mut words[..UNIT], separators);
        }
        for leaf in 0..leaves {
            let first = leaf * INTERVALS;
            let line = std::array::from_fn(|at| match at.checked_sub(INTERVALS) {
                None if at + 1 == INTERVALS => u16::MAX,
                None => self.end(first + at + 1),
                Some(at) => codes.get(first + at).copied().unwrap_or_default(),
            });
            write(&mut words[(inner + leaf) * UNIT..][..UNIT], line);
        }
        builder.write(unit, &words[..(inner + leaves) * UNIT]);
        entry::of_node(if inner == 1 { INNER } else { LEAF }, unit)
    }

    /// Makes a wide line, and what it leads to.
    fn wide(&mut self, builder: &mut Builder<'_, u128>, end: u8) -> u32 {
        for (at, longer, default) in std::mem::take(&mut self.longer) {
            self.entries[at] = u128::build(builder, longer, end, default);
        }
        let mut line = [u16::MAX; LEAVES];
        for (at, separator) in line.iter_mut().take(2 * WIDE_SEPARATORS).enumerate() {
            *separator = self.end(at + 1);
        }
        let mut words = [0; UNIT];
        write(&mut words, line);
        words[WIDE_SEPARATORS..].fill(0);
        words[WIDE_SEPARATORS..][..self.count].copy_from_slice(&self.entries[..self.count]);
        match builder.add(&words) {
            0 => {
                self.entries[..self.count].iter().for_each(|&entry| u128::free(builder, entry, end));
                0
            }
            node => entry::of_node(WIDE, node & !NODE),
        }
    }

    /// The last value in front of an interval: all ones if there is no such interval.
    fn end(&self, interval: usize) -> u16 {
        if interval < self.count { self.firsts[interval] - 1 } else { u16::MAX }
    }
}

/// Writes the halves of a line as words.
fn write(words: &mut [u32], line: [u16; 2 * UNIT]) {
    for (word, halves) in words.iter_mut().zip(line.as_chunks::<2>().0) {
        let [[a, b], [c, d]] = halves.map(u16::to_ne_bytes);
        *word = u32::from_ne_bytes([a, b, c, d]);
    }
}

/// Makes a line, or leaves behind one, for the window at `offset`. Returns the entry that leads to it, or that of all
/// addresses, or `None` if there are too many intervals.
pub(super) fn build(builder: &mut Builder<'_, u128>, leaves: &[Leaf<u128>], offset: u8, default: u32) -> Option<u32> {
    let window = Window { offset, width: WIDTH };
    let mut intervals = Intervals::of(leaves, window, default)?;
    if intervals.longer.is_empty() {
        if intervals.count == 1 {
            return Some(intervals.entries[0]);
        }
        let mut codes = [0; MAX_INTERVALS];
        for (code, &entry) in codes.iter_mut().zip(&intervals.entries[..intervals.count]) {
            *code = builder.code(entry);
        }
        let codes = &codes[..intervals.count];
        if !codes.contains(&ESCAPE) {
            return Some(intervals.leaves(builder, codes));
        }
    }
    (intervals.count <= ENTRIES).then(|| intervals.wide(builder, window.end()))
}

/// Frees a line, and what it leads to. `end` is that of its window.
pub(super) fn free(builder: &mut Builder<'_, u128>, entry: u32, end: u8) {
    let (unit, place) = (entry::unit(entry), entry::place(entry));
    match entry::kind(entry) {
        WIDE => {
            for at in WIDE_SEPARATORS..UNIT {
                let child = builder.word(place + at);
                u128::free(builder, child, end);
            }
            builder.drop_node(unit, 1);
        }
        INNER => {
            // All ones are behind the last leaf.
            let halves = (0..UNIT).flat_map(|at| {
                let word = builder.word(place + at);
                [word as u16, (word >> 16) as u16]
            });
            let leaves = 1 + halves.filter(|&separator| separator != u16::MAX).count();
            builder.drop_node(unit, rounded(1 + leaves) as u32);
        }
        _ => builder.drop_node(unit, 1),
    }
}

/// Rounds sizes up, so that there are few of them and free room is used again: by less than a quarter.
fn rounded(units: usize) -> usize {
    units.next_multiple_of((units.next_power_of_two() / 8).max(1))
}

/// A line for keys whose search leads nowhere: no value is above its separators.
pub(super) fn prepare(cells: &Cells, unit: u32) {
    (0..UNIT).for_each(|at| cells.store(u128::place(unit) + at, u32::MAX));
}
