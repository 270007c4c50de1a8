//! Bits that all prefixes behind an entry begin with, compared at once.
//!
//! Without paths, the way to few long prefixes, such as those of hosts on a link, would lead through a line for each 16
//! bits.

use super::entry::{self, PATH, UNIT};
use crate::cells::Cells;
use crate::entry::NODE;
use crate::layout::{Builder, Layout};
use crate::prefix::Prefix;
use crate::sweep::Leaf;

/// The fewest bits that a path is made for: more than two lines decide by, which are quicker because they take many keys
/// at a time.
const MIN_BITS: u8 = 2 * super::line::WIDTH + 1;

/// The fewest bits on the way to hosts, where lines are many: more than one line decides by.
const MIN_BITS_TO_HOSTS: u8 = super::line::WIDTH + 1;

/// The longest prefixes of links (RFC 4291, section 2.5.1); longer ones are those of hosts.
const LONGEST_OF_LINKS: u8 = 64;

// The words of a path: the bits and a mask, both with the first bits in the first word; the number of bits; what is
// behind them, and the entry of other keys.
const MASK: usize = 4;
const LENGTH: usize = 8;
const WITHIN: usize = 9;
const OUTSIDE: usize = 10;

/// A word of an address, the one with its first bits first.
#[inline(always)]
fn word(address: u128, at: usize) -> u32 {
    (address >> (96 - 32 * at)) as u32
}

/// What a key's way leads to behind a path: an entry, and the bits of the key behind those that led there. For another
/// key the entry is that of a number. Hot.
///
/// # Safety
/// As for [`entry::line`].
#[inline(always)]
pub(super) unsafe fn follow(cells: &Cells, place: usize, key: u128) -> (u32, u128) {
    // SAFETY: as the caller promises.
    let at = |at: usize| unsafe { cells.word(place + at) };
    let different = (0..MASK).fold(0, |any, part| any | (word(key, part) ^ at(part)) & at(MASK + part));
    if different == 0 { (at(WITHIN), key.unbounded_shl(at(LENGTH))) } else { (at(OUTSIDE), 0) }
}

/// Where a path leads that a prefix goes on behind: the entry there, and the number of bits so far.
pub(super) fn behind(cells: &Cells, entry: u32, prefix: Prefix<u128>) -> Option<(u32, u8)> {
    let at = |at: usize| cells.load(entry::place(entry) + at);
    let length = at(LENGTH) as u8;
    let is_within = (0..MASK).all(|part| (word(prefix.address(), part) ^ at(part)) & at(MASK + part) == 0);
    (prefix.length() > length && is_within).then(|| (at(WITHIN), length))
}

/// Makes a path, and what it leads to, if that leaves lines out. `leaves` are in order.
pub(super) fn build(builder: &mut Builder<'_, u128>, leaves: &[Leaf<u128>], offset: u8, default: u32) -> Option<u32> {
    let (address, last) = (leaves.first()?.0.address(), leaves.last()?.0.address());
    let same = (address ^ last).leading_zeros() as u8;
    let lengths = || leaves.iter().map(|(prefix, _)| prefix.length());
    let length = same.min(lengths().min()?);
    let leads_to_hosts = lengths().max()? > LONGEST_OF_LINKS;
    if length < offset + if leads_to_hosts { MIN_BITS_TO_HOSTS } else { MIN_BITS } {
        return None;
    }
    let (within, rest) = match leaves {
        [(prefix, entry), rest @ ..] if prefix.length() == length => (*entry, rest),
        _ => (default, leaves),
    };
    let within = if rest.is_empty() { within } else { u128::build(builder, rest, length, within) };
    let mask = !0_u128 << (128 - length);
    let mut words = [0; UNIT];
    for part in 0..MASK {
        words[part] = word(address & mask, part);
        words[MASK + part] = word(mask, part);
    }
    words[LENGTH] = length.into();
    words[WITHIN] = within;
    words[OUTSIDE] = default;
    match builder.add(&words) {
        0 => {
            u128::free(builder, within, length);
            Some(0)
        }
        node => Some(entry::of_node(PATH, node & !NODE)),
    }
}

/// Frees a path, and what it leads to.
pub(super) fn free(builder: &mut Builder<'_, u128>, entry: u32) {
    let place = entry::place(entry);
    let (within, length) = (builder.word(place + WITHIN), builder.word(place + LENGTH));
    u128::free(builder, within, length as u8);
    builder.drop_node(entry::unit(entry), 1);
}
