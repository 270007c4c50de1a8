//! Next hops to which no route leads any more: they are given back when no worker can have one in hand.

use std::collections::{HashMap, VecDeque};

use bellows_shared::{Passage, Readers};

/// Uses of next hops that have ended.
#[derive(Default)]
pub(super) struct Retired {
    /// Those since the last commit, by their next hops: workers may still find them in the tables.
    dropped: HashMap<u32, usize>,
    /// Those before, until all workers have begun another breath.
    waiting: VecDeque<(Passage, Vec<(u32, usize)>)>,
}

impl Retired {
    /// A route leads to this next hop no more, once the changes take effect.
    pub fn drop_use(&mut self, next: u32) {
        *self.dropped.entry(next).or_default() += 1;
    }

    /// The changes have taken effect.
    pub fn commit(&mut self) {
        if !self.dropped.is_empty() {
            let dropped = std::mem::take(&mut self.dropped).into_iter().collect();
            self.waiting.push_back((Readers::of_process().ask(), dropped));
        }
    }

    /// The next one that no worker has in hand, and the number of uses that have ended.
    pub fn pop(&mut self) -> Option<(u32, usize)> {
        loop {
            let (passage, ended) = self.waiting.front_mut()?;
            if !passage.is_over() {
                return None;
            }
            if let Some(next) = ended.pop() {
                return Some(next);
            }
            self.waiting.pop_front();
        }
    }

    /// Whether all have been given back.
    pub fn is_empty(&self) -> bool {
        self.dropped.is_empty() && self.waiting.is_empty()
    }
}
