//! Next hops to which no route leads any more: they are given back when no worker can have one in hand.
//!
//! A packet carries the index of its next hop from the look-up through an access list to the rewriting, from there to an
//! app that makes fragments and back, and to one that finds neighbours. Each of these may be on another worker. After
//! one breath of all workers nobody finds the next hop any more, but packets with its index may wait between two workers:
//! in the vector of the sender, in the eight places of the ring, and in the vector of the receiver, which takes at least
//! one place in each breath. So each crossing takes them at most ten breaths of both workers.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use bellows_shared::{GracePeriod, Readers};

/// Breaths of a worker alone: its links are emptied in each, but those that close a loop in the next.
const ROUNDS_ALONE: u32 = 4;

/// Breaths of several workers: five crossings of ten each.
const ROUNDS: u32 = 50;

/// Uses of next hops that have ended.
pub(super) struct Retired {
    readers: Arc<Readers>,
    /// Those since the last commit, by their next hops: workers may still find them in the tables.
    dropped: HashMap<u32, usize>,
    /// Those before, until all workers have taken several breaths.
    waiting: VecDeque<Batch>,
    /// Whether one breath is taken for enough, to show that tests find it is not.
    #[cfg(test)]
    pub is_hasty: bool,
}

struct Batch {
    grace_period: GracePeriod,
    /// Breaths after this one.
    left: u32,
    ended: Vec<(u32, usize)>,
}

impl Batch {
    /// Whether all workers have taken the breaths, as far as they do while nobody waits.
    fn is_over(&mut self, readers: &Readers) -> bool {
        while self.grace_period.is_over() {
            if self.left == 0 {
                return true;
            }
            self.left -= 1;
            self.grace_period = readers.start_grace_period();
        }
        false
    }
}

impl Retired {
    pub fn new(readers: Arc<Readers>) -> Retired {
        Retired {
            readers,
            dropped: HashMap::new(),
            waiting: VecDeque::new(),
            #[cfg(test)]
            is_hasty: false,
        }
    }

    /// A route leads to this next hop no more, once the changes take effect.
    pub fn drop_use(&mut self, next: u32) {
        *self.dropped.entry(next).or_default() += 1;
    }

    /// The changes have taken effect.
    pub fn commit(&mut self) {
        if self.dropped.is_empty() {
            return;
        }
        let ended = std::mem::take(&mut self.dropped).into_iter().collect();
        let grace_period = self.readers.start_grace_period();
        let rounds = if grace_period.readers() > 1 { ROUNDS } else { ROUNDS_ALONE };
        #[cfg(test)]
        let rounds = if self.is_hasty { 1 } else { rounds };
        self.waiting.push_back(Batch { grace_period, left: rounds - 1, ended });
    }

    /// The next one that no worker has in hand, and the number of uses that have ended.
    pub fn pop(&mut self) -> Option<(u32, usize)> {
        loop {
            let batch = self.waiting.front_mut()?;
            if !batch.is_over(&self.readers) {
                return None;
            }
            if let Some(next) = batch.ended.pop() {
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
