//! A pool with several parts: a thread keeps the buffers of the part on its own memory node, and sends others home.

use std::mem;

use super::Cache;
use crate::magazine::Held;

impl Cache {
    /// Gives a magazine to the depots of its buffers' parts.
    pub(super) fn give(&mut self, magazine: Held) {
        let mut magazine = magazine;
        if self.sorts {
            self.send_home(&mut magazine, 0);
        }
        self.pool.parts[self.home].give(magazine);
    }

    /// Sends the buffers of other parts away from the current magazine.
    #[cold]
    pub(super) fn sort_out(&mut self) {
        let empty = self.empty();
        let mut current = mem::replace(&mut self.current, empty);
        self.send_home(&mut current, self.sorted);
        self.sorted = current.length;
        let empty = mem::replace(&mut self.current, current);
        self.empty.push(empty);
    }

    /// Sends the buffers of other parts away from a magazine, except for the lowest ones.
    pub(super) fn send_home(&mut self, magazine: &mut Held, sorted: usize) {
        let own = self.pool.parts[self.home].addresses.clone();
        let mut kept = sorted;
        for place in sorted..magazine.length {
            let data = magazine.addresses[place];
            if own.contains(&data) {
                magazine.addresses[kept] = data;
                kept += 1;
            } else {
                self.send(data);
            }
        }
        magazine.length = kept;
    }

    /// Sends a buffer to its part: a magazine at a time.
    fn send(&mut self, data: usize) {
        let (pool, part) = (self.pool, self.pool.part_of(data));
        self.outgoing.resize_with(pool.parts.len(), || None);
        let mut magazine = self.outgoing[part].take().unwrap_or_else(|| pool.parts[part].empty());
        magazine.push(data);
        if magazine.room() > 0 {
            self.outgoing[part] = Some(magazine);
        } else {
            pool.parts[part].give(magazine);
        }
    }

    pub(super) fn send_outgoing(&mut self) {
        for (part, magazine) in self.outgoing.drain(..).enumerate() {
            magazine.into_iter().for_each(|magazine| self.pool.parts[part].give(magazine));
        }
    }

    /// Buffers of another part.
    pub(super) fn borrow(&mut self) -> Option<Held> {
        let others = (0..self.pool.parts.len()).filter(|part| *part != self.home);
        let sent = self.outgoing.iter_mut().find_map(Option::take);
        let borrowed = sent.or_else(|| others.into_iter().find_map(|part| self.pool.receive(part)));
        self.is_borrowed |= borrowed.is_some();
        borrowed
    }

    /// Sends what is left of a borrowed magazine back. All that is left then is of the thread's own part.
    #[cold]
    #[inline(never)]
    pub(super) fn note_sorted(&mut self, magazine: &mut Held) {
        if mem::take(&mut self.is_borrowed) {
            self.send_home(magazine, 0);
        }
        if self.current.length == 0 {
            self.sorted = magazine.length;
        }
    }
}
