//! Neighbours that are watched: next hops that must be known to be alive before a packet needs them.
//!
//! They are asked without packets to them, more often than others, and also after they have ceased to answer. They have
//! room of their own, and their questions have a rate.

use std::ops::Bound;

use super::{NeighbourEntry, NeighbourKey, NeighbourState, Neighbours};

/// The time for which an answer of a watched neighbour holds, and between two questions to one that does not answer,
/// nanoseconds.
const WATCH_NS: u64 = 5_000_000_000;

/// The least time between the questions to two watched neighbours, on average: 1,000 a second.
const PACE_NS: u64 = 1_000_000;

impl Neighbours {
    /// Watches these neighbours, which are in order, and no others behind `after` and up to `last`. Returns those for
    /// which that is new.
    pub fn watch(
        &mut self,
        keys: &[NeighbourKey],
        after: Option<NeighbourKey>,
        last: Option<NeighbourKey>,
        now: u64,
    ) -> Vec<NeighbourKey> {
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let end = last.map_or(Bound::Unbounded, Bound::Included);
        let is_other = |key: &NeighbourKey| keys.binary_search(key).is_err();
        let mut changed: Vec<NeighbourKey> = self.watched.range((start, end)).copied().filter(is_other).collect();
        changed.iter().for_each(|&key| self.unwatch(key));
        for &key in keys {
            if !self.watched.contains(&key) {
                self.begin_to_watch(key, now);
                changed.push(key);
            }
        }
        changed
    }

    /// The number of watched neighbours that do not answer.
    pub fn failed(&self) -> usize {
        self.in_state(NeighbourState::Failed)
    }

    /// Forgets a neighbour, which is asked anew if it is watched. Returns whether its address was known, or it is watched.
    pub fn forget(&mut self, key: NeighbourKey, now: u64) -> bool {
        let was_known = self.remove(key).is_some();
        let is_watched = self.watched.contains(&key);
        if is_watched {
            self.ask_soon(key, now);
        }
        was_known || is_watched
    }

    fn begin_to_watch(&mut self, key: NeighbourKey, now: u64) {
        self.watched.insert(key);
        // It has room of its own.
        self.file(key);
        match self.entries.get(&key).copied() {
            None => self.ask_soon(key, now),
            // Its answer may be older than that of a watched one gets.
            Some(NeighbourEntry { state: NeighbourState::Reachable, mac, deadline, .. }) => {
                let deadline = deadline.min(self.turn(now));
                self.put(key, NeighbourState::Reachable, mac, 0, deadline);
            }
            Some(_) => {}
        }
    }

    fn unwatch(&mut self, key: NeighbourKey) {
        let state = self.entries.get(&key).map(|entry| (entry.state, entry.asked));
        // No packet waits for it.
        if matches!(state, Some((NeighbourState::Failed, _) | (NeighbourState::Incomplete, 0))) {
            self.remove(key);
        }
        self.watched.remove(&key);
        self.file(key);
    }

    /// Puts a watched neighbour on the list of those that are asked.
    fn ask_soon(&mut self, key: NeighbourKey, now: u64) {
        let deadline = self.turn(now);
        self.put(key, NeighbourState::Incomplete, None, 0, deadline);
    }

    /// When the next of the watched neighbours may be asked.
    fn turn(&mut self, now: u64) -> u64 {
        self.turn = self.turn.max(now).saturating_add(PACE_NS);
        self.turn
    }

    /// The time for which an answer of a watched neighbour holds: longer with many.
    pub(super) fn watch_interval(&self) -> u64 {
        WATCH_NS.max(PACE_NS * self.watched.len() as u64)
    }
}
