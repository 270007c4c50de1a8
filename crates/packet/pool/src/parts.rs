//! The parts of the pool on the memory nodes, each with a depot for the magazines that no thread has.
//!
//! A pool has a part for each memory node of the machine that the process may use; on most machines that is one. A
//! buffer belongs to the part that its address is in.

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use bellows_ring::stack::Stack;
use bellows_sys::memory::HUGE_PAGE;

use crate::class::Class;
use crate::lock::lock;
use crate::magazine::{Held, Pages};

/// Buffers that were never taken.
pub(crate) struct Untouched {
    next: AtomicU32,
    end: u32,
}

impl Untouched {
    pub(crate) fn new(buffers: Range<u32>) -> Untouched {
        Untouched { next: AtomicU32::new(buffers.start), end: buffers.end }
    }

    /// Up to `wanted` buffers: the number of the first one and the end.
    pub(crate) fn take(&self, wanted: u32) -> Range<u32> {
        let claim = |next: u32| Some(next + wanted.min(self.end - next));
        match self.next.fetch_update(Relaxed, Relaxed, claim) {
            Ok(start) | Err(start) => start..start + wanted.min(self.end - start),
        }
    }
}

/// The ordinary buffers on one memory node, or all of them.
pub(crate) struct Part {
    /// The node, if the pool has several parts.
    pub(crate) node: Option<usize>,
    /// The addresses of new packets' data in its buffers.
    pub(crate) addresses: Range<usize>,
    pub(crate) untouched: Untouched,
    /// Full and partly full magazines.
    loaded: Stack,
    /// Magazines without buffers.
    spent: Stack,
}

impl Part {
    pub(crate) fn new(class: &Class, share: &Share) -> Part {
        Part {
            node: share.node,
            addresses: share.addresses(class),
            untouched: Untouched::new(share.buffers.clone()),
            loaded: Stack::new(),
            spent: Stack::new(),
        }
    }

    /// Takes a magazine that a thread does not need, with or without buffers.
    pub(crate) fn give(&self, magazine: Held) {
        let stack = if magazine.length > 0 { &self.loaded } else { &self.spent };
        stack.push(magazine.into_number(), &Pages);
    }

    /// The magazine with buffers that was given last.
    pub(crate) fn receive(&self) -> Option<Held> {
        // SAFETY: the numbers in the stack are those of magazines that give() has taken.
        let magazine = self.loaded.pop(&Pages).map(|number| unsafe { Held::from_number(number) })?;
        magazine.prefetch();
        Some(magazine)
    }

    /// A magazine without buffers.
    pub(crate) fn empty(&self) -> Held {
        let Some(number) = self.spent.pop(&Pages) else { return Held::new() };
        // SAFETY: as above.
        let magazine = unsafe { Held::from_number(number) };
        magazine.prefetch_to_write();
        magazine
    }
}

/// The large buffers on one memory node, or all of them.
pub(crate) struct LargePart {
    /// The addresses of new packets' data in its buffers.
    pub(crate) addresses: Range<usize>,
    untouched: Untouched,
    /// Free buffers. They are few, and the cost of the lock is small beside a 64 KiB frame.
    free: Mutex<Vec<usize>>,
}

impl LargePart {
    pub(crate) fn new(class: &Class, share: &Share) -> LargePart {
        LargePart {
            addresses: share.addresses(class),
            untouched: Untouched::new(share.buffers.clone()),
            free: Mutex::default(),
        }
    }

    /// A free buffer, if there is one.
    pub(crate) fn take(&self, class: &Class) -> Option<usize> {
        let recycled = lock(&self.free).pop();
        recycled.or_else(|| self.untouched.take(1).next().map(|buffer| class.data(buffer)))
    }

    pub(crate) fn give(&self, data: usize) {
        lock(&self.free).push(data);
    }
}

/// The buffers of a class that a memory node gets.
pub(crate) struct Share {
    /// The node, if there are several.
    pub(crate) node: Option<usize>,
    buffers: Range<u32>,
    /// Its memory.
    pub(crate) area: Range<usize>,
}

impl Share {
    fn addresses(&self, class: &Class) -> Range<usize> {
        class.data(self.buffers.start)..class.data(self.buffers.end)
    }
}

/// Divides the buffers of a class among memory nodes, in equal shares with borders between two pages of this size.
///
/// Long shares have borders between huge pages, because the kernel has no huge page that is on two nodes.
pub(crate) fn divide(class: &Class, nodes: &[usize], page: usize) -> Vec<Share> {
    let (start, end) = (class.first, class.first + class.count as usize * class.stride);
    let count = nodes.len().max(1);
    let page = if (end - start) / count >= 8 * HUGE_PAGE { HUGE_PAGE } else { page };
    let border = |place: usize| match place {
        0 => start,
        place if place == count => end,
        place => (start + (end - start) * place / count).next_multiple_of(page).min(end),
    };
    // A buffer across a border belongs to the share in which it begins.
    let first_from = |address: usize| ((address - start).div_ceil(class.stride) as u32).min(class.count);
    let share = |place: usize| {
        let area = border(place)..border(place + 1);
        let node = nodes.get(place).copied().filter(|_| count > 1);
        Share { node, buffers: first_from(area.start)..first_from(area.end), area }
    };
    (0..count).map(share).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::LINE;

    #[test]
    fn untouched_buffers_are_handed_out_once_and_then_no_more() {
        let untouched = Untouched::new(5..15);
        assert_eq!(untouched.take(4), 5..9);
        assert_eq!(untouched.take(4), 9..13);
        assert_eq!(untouched.take(4), 13..15);
        assert_eq!(untouched.take(4), 15..15);
    }

    #[test]
    fn long_shares_have_borders_between_huge_pages() {
        let class = Class::new(4_096, 35 * LINE, 65_536);
        let borders = |shares: &[Share]| shares.iter().skip(1).map(|share| share.area.start).collect::<Vec<_>>();
        let shares = divide(&class, &[0, 1], 4_096);
        assert_eq!(borders(&shares), [36 * HUGE_PAGE]);
        assert!(shares[0].buffers.len().abs_diff(shares[1].buffers.len()) <= 2 * HUGE_PAGE / class.stride);
        assert!(!borders(&divide(&class, &[0, 1, 2, 3, 4, 5, 6, 7, 8], 4_096))[0].is_multiple_of(HUGE_PAGE));
    }

    proptest! {
        /// Every buffer is in one share, whose size is that of the others except for a page and a buffer, and the areas
        /// cover all buffers without overlapping.
        #[test]
        fn shares_cover_all_buffers(count in 0_usize..5_000, nodes in 1_usize..9, lines in 35_usize..60) {
            let class = Class::new(4_096, lines * LINE, count);
            let numbers: Vec<usize> = (0..nodes).map(|node| 2 * node).collect();
            let shares = divide(&class, &numbers, 4_096);
            prop_assert_eq!(shares.len(), nodes);
            let mut next = 0;
            for (place, share) in shares.iter().enumerate() {
                let (addresses, area) = (share.addresses(&class), &share.area);
                let buffers = share.buffers.clone();
                prop_assert_eq!(buffers.start, next);
                next = buffers.end;
                for buffer in buffers.clone() {
                    prop_assert!(addresses.contains(&class.data(buffer)));
                    prop_assert!(area.contains(&(class.first + buffer as usize * class.stride)));
                }
                let fair = count / nodes;
                let slack = 4_096usize.div_ceil(class.stride) + 2;
                prop_assert!(buffers.len() + slack >= fair && buffers.len() <= fair + slack);
                let follows = |before: &Share| area.start == before.area.end
                    && (area.start.is_multiple_of(4_096) || area.is_empty());
                prop_assert!(place == 0 || follows(&shares[place - 1]));
            }
            prop_assert_eq!(next as usize, count);
        }
    }
}
