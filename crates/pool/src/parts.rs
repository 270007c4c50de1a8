//! The parts of the pool on the memory nodes, each with a depot for the magazines that no thread has.
//!
//! A pool has a part for each memory node of the machine that the process may use; on most machines that is one. A
//! buffer belongs to the part that its address is in.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use bellows_ring::stack::Stack;

use crate::class::Class;
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
    fn new(node: Option<usize>, class: &Class, buffers: Range<u32>) -> Part {
        Part {
            node,
            addresses: class.data(buffers.start)..class.data(buffers.end),
            untouched: Untouched::new(buffers),
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

/// Divides the buffers of a class among memory nodes: into equal parts of whole pages. Returns the parts, and the
/// addresses of each, from a page on.
pub(crate) fn divide(class: &Class, nodes: &[usize], page: usize) -> (Box<[Part]>, Vec<Range<usize>>) {
    let (start, end) = (class.first, class.first + class.count as usize * class.stride);
    let count = nodes.len().max(1);
    let border = |place: usize| match place {
        0 => start,
        place if place == count => end,
        place => (start + (end - start) * place / count).next_multiple_of(page).min(end),
    };
    // A buffer across a border belongs to the part in which it begins.
    let first_from = |address: usize| ((address - start).div_ceil(class.stride) as u32).min(class.count);
    let part = |place: usize| {
        let area = border(place)..border(place + 1);
        let node = nodes.get(place).copied().filter(|_| count > 1);
        (Part::new(node, class, first_from(area.start)..first_from(area.end)), area)
    };
    let (parts, areas): (Vec<Part>, _) = (0..count).map(part).unzip();
    (parts.into(), areas)
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

    proptest! {
        /// Every buffer is in one part, whose size is that of the others except for a page and a buffer, and the areas
        /// cover all buffers without overlapping.
        #[test]
        fn parts_cover_all_buffers(count in 64_usize..5_000, nodes in 1_usize..9, lines in 35_usize..60) {
            let class = Class::new(4_096, lines * LINE, count);
            let numbers: Vec<usize> = (0..nodes).map(|node| 2 * node).collect();
            let (parts, areas) = divide(&class, &numbers, 4_096);
            prop_assert_eq!(parts.len(), nodes);
            let mut next = 0;
            for (place, (part, area)) in parts.iter().zip(&areas).enumerate() {
                let buffers = part.untouched.take(u32::MAX / 2);
                prop_assert_eq!(buffers.start, next);
                next = buffers.end;
                for buffer in buffers.clone() {
                    let data = class.data(buffer);
                    prop_assert!(part.addresses.contains(&data));
                    prop_assert!(area.contains(&(class.first + buffer as usize * class.stride)));
                }
                let fair = count / nodes;
                let slack = 4_096usize.div_ceil(class.stride) + 2;
                prop_assert!(buffers.len() + slack >= fair && buffers.len() <= fair + slack);
                prop_assert!(place == 0 || area.start == areas[place - 1].end && area.start.is_multiple_of(4_096));
            }
            prop_assert_eq!(next as usize, count);
        }
    }
}
