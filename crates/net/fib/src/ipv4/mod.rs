//! IPv4: a root of 18 bits, then blocks of up to 6 bits.
//!
//! A block has a code of 16 bits for each value of as many bits as its longest prefix needs, and the dictionary has the
//! number of each code. So a look-up reads three words, without a branch, and blocks of a table of the Internet take a
//! third of what it would take to index by 24 bits. A root slot whose addresses have all the same number leads to a block
//! of one code, which is in a fixed list of all codes.
//!
//! Where prefixes are longer than 24 bits, or a number has no code, the code is [`ESCAPE`], and the word in front of the
//! block leads to [nodes](deep) for all of its addresses.

mod deep;

use crate::Prefix;
use crate::cells::Cells;
use crate::codes::ESCAPE;
use crate::entry::{BATCH, NODE};
use crate::layout::{AddressFamily, Builder, Layout};
use crate::search::Search;
use crate::sweep::{Content, Leaf, Window, sweep};

const ROOT: Window = Window { offset: 0, width: 18 };

/// The bits of an address in front of a block.
const BLOCK_OFFSET: u8 = ROOT.width;

/// The most bits that a block decides by.
const MAX_WIDTH: u8 = 6;

/// The words of a unit, which has four codes.
const UNIT: usize = 2;

/// The place of the list of all codes, and that of the dictionary.
const ALL_CODES: usize = 1 << ROOT.width;
const DICTIONARY: usize = ALL_CODES + (1 << 15);

/// The number for [`ESCAPE`]: none of a route, nor [`NO_ROUTE`](crate::NO_ROUTE).
const ESCAPED: u32 = u32::MAX - 1;

/// A root's entry: the place of a block in half words, and by how many bits an address without those of the root, and
/// aligned to the left of 31 bits, is shifted for the place in the block.
const SHIFT_BITS: u32 = 5;

/// The root's entry for one code.
fn only(code: u16) -> u32 {
    ((2 * ALL_CODES as u32 + u32::from(code)) << SHIFT_BITS) | 31
}

/// A block's entry in the root.
fn of_block(unit: u32, width: u8) -> u32 {
    ((2 * u32::place(unit) as u32) << SHIFT_BITS) | (31 - u32::from(width))
}

/// The place of an address' code, in half words. Hot.
#[inline(always)]
fn place_of_code(entry: u32, key: u32) -> u32 {
    let rest = (key & (u32::MAX >> BLOCK_OFFSET)) << (BLOCK_OFFSET - 1);
    (entry >> SHIFT_BITS) + (rest >> (entry & 31))
}

/// The word that leads to the nodes of a block.
fn header_of(entry: u32) -> usize {
    (entry >> SHIFT_BITS) as usize / 2 - UNIT
}

impl AddressFamily for u32 {}

impl Layout for u32 {
    const ROOT_WIDTH: u8 = ROOT.width;
    const FIXED: usize = DICTIONARY + (1 << 16);
    const DICTIONARY: usize = DICTIONARY;
    const UNIT: usize = UNIT;
    const FIRST: u32 = 0;
    const MAX_UNITS: u32 = ((1 << (32 - SHIFT_BITS)) / 2 - Self::FIXED as u32) / UNIT as u32;

    fn prepare(cells: &Cells) {
        (0..ALL_CODES).for_each(|slot| cells.store(slot, only(0)));
        for code in (0..=u16::MAX).step_by(2) {
            cells.store(ALL_CODES + usize::from(code / 2), u32::from(code) | u32::from(code + 1) << 16);
        }
        cells.store(DICTIONARY, crate::NO_ROUTE);
        cells.store(DICTIONARY + usize::from(ESCAPE), ESCAPED);
    }

    fn same(builder: &mut Builder<'_, u32>, entry: u32) -> u32 {
        match builder.code(entry) {
            ESCAPE => block(builder, &[ESCAPE], Some(entry)),
            code => only(code),
        }
    }

    fn reach(_: &Cells, _: Prefix<u32>) -> (Window, usize) {
        (ROOT, 0)
    }

    fn build(builder: &mut Builder<'_, u32>, leaves: &[Leaf<u32>], offset: u8, default: u32) -> u32 {
        let longest = leaves.iter().map(|(prefix, _)| prefix.length()).max().unwrap_or(offset);
        let window = Window { offset, width: (longest - offset).min(MAX_WIDTH) };
        let mut codes = [0; 1 << MAX_WIDTH];
        let slots = 1_usize << window.width;
        sweep(leaves, window, (0, slots as u32 - 1), default, &mut |first, last, content| {
            let code = match content {
                Content::Entry(entry) => builder.code(entry),
                Content::Longer(..) => ESCAPE,
            };
            codes[first as usize..=last as usize].fill(code);
        });
        let codes = &codes[..slots];
        if codes[0] != ESCAPE && codes.iter().all(|code| *code == codes[0]) {
            return only(codes[0]);
        }
        let nodes = codes.contains(&ESCAPE).then(|| deep::build(builder, leaves, offset, default));
        block(builder, codes, nodes)
    }

    fn free(builder: &mut Builder<'_, u32>, entry: u32, _: u8) {
        let place = (entry >> SHIFT_BITS) as usize / 2;
        if place < Self::FIXED {
            return;
        }
        let words = (1_usize << (31 - (entry & 31))).div_ceil(2);
        let has_header = (place..place + words).any(|at| {
            let word = builder.word(at);
            word as u16 == ESCAPE || (word >> 16) as u16 == ESCAPE
        });
        let mut unit = ((place - Self::FIXED) / UNIT) as u32;
        let mut units = words.div_ceil(UNIT) as u32;
        if has_header {
            deep::free(builder, builder.word(header_of(entry)));
            unit -= 1;
            units += 1;
        }
        builder.drop_node(unit, units);
    }

    #[inline(always)]
    fn look_up<S: Search>(cells: &Cells, keys: &[u32], next: &mut [u32]) {
        // Steps without loads from the table are loops of their own, which are done on many keys at a time.
        let mut places = [0; BATCH];
        for (&key, place) in keys.iter().zip(&mut places) {
            *place = key >> (32 - ROOT.width);
        }
        for place in places.iter_mut().take(keys.len()) {
            // SAFETY: the root has an entry for each value of its bits.
            *place = unsafe { cells.load_unchecked(*place as usize) };
        }
        for (&key, place) in keys.iter().zip(&mut places) {
            *place = place_of_code(*place, key);
        }
        // The blocks do not fit into the second-level cache. The loop below keeps as many of their lines under way as the
        // first level has buffers for; to the second level more can be under way at the same time. That takes a clock for
        // a key where nothing has to be waited for, and saves most of the time where other programs use the third level.
        for places in places.as_chunks::<16>().0.iter().take(keys.len().div_ceil(16)) {
            for &place in places {
                cells.prefetch_half(place as usize);
            }
        }
        for (&place, next) in places.iter().zip(&mut *next) {
            // SAFETY: the root leads to a block, which has a code for each value of the bits that its entry leaves, and
            // the dictionary has a number for each code.
            *next = unsafe { cells.word(DICTIONARY + usize::from(cells.half(place as usize))) };
        }
        if next.iter().fold(false, |any, &next| any | (next == ESCAPED)) {
            look_up_escaped(cells, keys, next);
        }
    }
}

/// Looks up the keys whose code is [`ESCAPE`].
#[inline(never)]
fn look_up_escaped(cells: &Cells, keys: &[u32], next: &mut [u32]) {
    let (mut escaped, mut entries, mut places) = ([0; BATCH], [0; BATCH], [0_u8; BATCH]);
    let mut count = 0;
    for (place, (&key, next)) in keys.iter().zip(&*next).enumerate().take(BATCH) {
        if *next != ESCAPED {
            continue;
        }
        // The root may lead to another block by now, which may not have nodes.
        let root = cells.load((key >> (32 - ROOT.width)) as usize);
        // SAFETY: as for any look-up.
        let code = unsafe { cells.half(place_of_code(root, key) as usize) };
        entries[count] = if code == ESCAPE {
            // SAFETY: this code is only in blocks with a header, which leads to nodes.
            unsafe { cells.word(header_of(root)) }
        } else {
            // SAFETY: the dictionary has a number for each code.
            unsafe { cells.word(DICTIONARY + usize::from(code)) }.wrapping_add(1)
        };
        (escaped[count], places[count]) = (key, place as u8);
        count += 1;
    }
    deep::look_up(cells, &escaped, &mut entries, count);
    for (&place, &entry) in places.iter().zip(&entries).take(count) {
        next[place as usize] = entry.wrapping_sub(1);
    }
}

/// Makes a block, with a header if there are nodes. Returns its entry in the root.
fn block(builder: &mut Builder<'_, u32>, codes: &[u16], nodes: Option<u32>) -> u32 {
    let mut words = [0; UNIT + (1 << MAX_WIDTH) / 2];
    let header = if nodes.is_some() { UNIT } else { 0 };
    words[0] = nodes.unwrap_or_default();
    for (at, &code) in codes.iter().enumerate() {
        let word = &mut words[header + at / 2];
        *word = if at % 2 == 0 { u32::from(code) } else { *word | u32::from(code) << 16 };
    }
    let length = (header + codes.len().div_ceil(2)).next_multiple_of(UNIT);
    let entry = builder.add(&words[..length]);
    if entry == 0 {
        if let Some(nodes) = nodes {
            deep::free(builder, nodes);
        }
        return only(0);
    }
    of_block((entry & !NODE) + (header / UNIT) as u32, codes.len().ilog2() as u8)
}
