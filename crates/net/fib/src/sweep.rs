//! Goes through nested prefixes from the lowest address to the highest.

use crate::{Address, Prefix};

/// Some bits of addresses, at most 32, by which a part of a table is indexed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    /// The bits in front of the window.
    pub offset: u8,
    /// The bits in the window. It may reach beyond the end of an address, as if zeros followed there.
    pub width: u8,
}

impl Window {
    /// The number of bits from the beginning of an address to the end of the window.
    pub fn end(self) -> u8 {
        self.offset + self.width
    }

    /// The slots of the window that a prefix reaches, whose bits before the window do not matter.
    fn slots<A: SweepTable>(self, prefix: Prefix<A>) -> (u32, u32) {
        let first = prefix.address().bits(self);
        let open = self.end().saturating_sub(prefix.length()).min(self.width);
        (first, first | u32::MAX.checked_shr(32 - u32::from(open)).unwrap_or(0))
    }
}

/// What the sweep needs to know of addresses.
pub(crate) trait SweepTable: Address {
    /// The bits in a window.
    fn bits(self, window: Window) -> u32;
}

impl SweepTable for u32 {
    fn bits(self, window: Window) -> u32 {
        let rest = self.checked_shl(window.offset.into()).unwrap_or(0);
        rest.checked_shr(32 - u32::from(window.width)).unwrap_or(0)
    }
}

impl SweepTable for u128 {
    fn bits(self, window: Window) -> u32 {
        let rest = self.checked_shl(window.offset.into()).unwrap_or(0);
        rest.checked_shr(128 - u32::from(window.width)).unwrap_or(0) as u32
    }
}

/// A prefix, and the entry for addresses whose longest prefix it is.
pub(crate) type Leaf<A> = (Prefix<A>, u32);

/// What is in a range of slots.
pub(crate) enum Content<'r, A> {
    /// An entry for all of them.
    Entry(u32),
    /// In one slot, prefixes that are longer than the window's end, and the entry for what is in none of them.
    Longer(&'r [Leaf<A>], u32),
}

/// Calls `visit` for each range of slots, in order and without gaps from `first` to `last`. The prefixes are in order and
/// in these slots; `default` is the entry for slots outside of all prefixes.
pub(crate) fn sweep<'r, A: SweepTable>(
    leaves: &'r [Leaf<A>],
    window: Window,
    (first, last): (u32, u32),
    default: u32,
    visit: &mut impl FnMut(u32, u32, Content<'r, A>),
) {
    // Prefixes that the present slot is in, each with its last slot. The innermost is the last one.
    let mut within = vec![(last, default)];
    // The next slot; beyond the last one there may be no number.
    let mut next = u64::from(first);
    let mut rest = leaves;
    while let Some(&(prefix, entry)) = rest.first() {
        let (low, high) = window.slots(prefix);
        fill(&mut next, u64::from(low), &mut within, visit);
        if prefix.length() <= window.end() {
            within.push((high, entry));
            rest = &rest[1..];
        } else {
            let others = rest.iter().position(|(other, _)| window.slots(*other).0 != low).unwrap_or(rest.len());
            let (longer, behind) = rest.split_at(others);
            while within.last().is_some_and(|&(end, _)| end < low) {
                within.pop();
            }
            let around = within.last().expect("the default is in all slots").1;
            visit(low, low, Content::Longer(longer, around));
            next = u64::from(low) + 1;
            rest = behind;
        }
    }
    fill(&mut next, u64::from(last) + 1, &mut within, visit);
}

/// Visits the slots from `next` to the one before `end`, which are in no prefix but those of `within`.
fn fill<'r, A: SweepTable>(
    next: &mut u64,
    end: u64,
    within: &mut Vec<(u32, u32)>,
    visit: &mut impl FnMut(u32, u32, Content<'r, A>),
) {
    while *next < end {
        let &(last, entry) = within.last().expect("the default is in all slots");
        if u64::from(last) < *next {
            within.pop();
            continue;
        }
        let last = u64::from(last).min(end - 1);
        visit(*next as u32, last as u32, Content::Entry(entry));
        *next = last + 1;
    }
}
