//! Shortage: a thread shares its free buffers with those that found none, and gives them back when it needs none.

use std::mem;
use std::sync::Arc;

use super::{CACHE, Cache, with_cache};
use crate::magazine::{Held, Magazine, Member};

/// Gives all free buffers of this thread back if any thread has found none in the pool since the last time: each thread
/// that found none gets a part of them for itself. Meant for threads that share the pool, now and then: a thread alone
/// needs no call.
#[inline]
pub fn share_free_buffers() {
    with_cache(|cache| {
        if cache.shortages != cache.pool.shortages.count() {
            cache.share();
        }
    });
}

/// Gives all free buffers of this thread back, for other threads: when it will need none for long.
pub fn return_free_buffers() {
    if !CACHE.get().is_null() {
        with_cache(Cache::withdraw);
    }
}

/// Gives all free buffers of this thread back before it sleeps. If it found none, those that others have left for it
/// wait until it is awake.
pub fn return_free_buffers_to_sleep() {
    if !CACHE.get().is_null() {
        with_cache(Cache::give_all);
    }
}

impl Cache {
    /// Shares all free buffers with the threads that have asked for some, and gives the rest to the depots.
    ///
    /// What goes to a depot, the next thread takes, and that may always be the same one. So each thread that has asked
    /// gets a part of its own, which waits for it. A part that has not been fetched, perhaps because its thread sleeps,
    /// is shared out again.
    #[cold]
    pub(super) fn share(&mut self) {
        let pool = self.pool;
        // Otherwise the next time.
        let Some(mut members) = pool.try_members() else { return };
        let shortages = pool.shortages.count();
        let own = self.member.mailbox.close();
        if self.is_short {
            self.member.mailbox.ask();
        }
        let left = members.iter().filter_map(|member| member.mailbox.recall()).chain(own);
        // SAFETY: the numbers in mailboxes are those of magazines, which nobody has after they were taken out.
        let mut free: Vec<Held> = left.map(|number| unsafe { Held::from_number(number) }).collect();
        free.extend(self.unload());
        let all: usize = free.iter().map(|magazine| magazine.length).sum();
        let count = members.iter().filter(|member| member.mailbox.is_asked()).count();
        let part = (all / (count + 1)).clamp(all.min(1), Magazine::SIZE);
        for member in members.iter().filter(|member| member.mailbox.is_asked()) {
            let magazine = self.portion(&mut free, part);
            free.extend(deliver(member, magazine));
        }
        // If there are fewer buffers than threads, others come first the next time.
        members.rotate_left(count.min(1));
        let is_other = |member: &&Arc<Member>| !Arc::ptr_eq(member, &self.member);
        self.must_share = members.iter().filter(is_other).any(|member| member.mailbox.is_asked());
        self.is_plain = !self.sorts && !self.must_share;
        drop(members);
        free.into_iter().for_each(|magazine| self.give(magazine));
        self.send_outgoing();
        if !self.must_share {
            self.shortages = shortages;
        }
    }

    /// Takes `count` buffers out of some magazines, or all that there are.
    fn portion(&mut self, free: &mut Vec<Held>, count: usize) -> Held {
        let mut portion = self.empty();
        while portion.length < count
            && let Some(last) = free.last_mut()
        {
            let missing = count - portion.length;
            portion.absorb(last, missing);
            self.empty.extend(free.pop_if(|last| last.length == 0));
        }
        portion
    }

    /// All magazines with free buffers.
    pub(super) fn unload(&mut self) -> Vec<Held> {
        let empty = self.empty();
        let current = mem::replace(&mut self.current, empty);
        self.sorted = 0;
        let outgoing = self.outgoing.drain(..).flatten();
        mem::take(&mut self.loaded).into_iter().chain(outgoing).chain([current]).collect()
    }

    /// Gives all free buffers to the depots.
    pub(super) fn give_all(&mut self) {
        self.shortages = self.pool.shortages.count();
        self.unload().into_iter().for_each(|magazine| self.give(magazine));
        self.send_outgoing();
    }

    /// Gives all free buffers to the depots, and asks for none any more.
    fn withdraw(&mut self) {
        self.is_short = false;
        // SAFETY: as in share().
        let unfetched = self.member.mailbox.close().map(|number| unsafe { Held::from_number(number) });
        unfetched.into_iter().for_each(|magazine| self.give(magazine));
        self.give_all();
    }

    /// The buffers that another thread has left for this one.
    pub(super) fn fetch(&mut self) -> Option<Held> {
        let number = self.member.mailbox.close()?;
        // They may be of any part.
        self.is_borrowed = true;
        // SAFETY: as in share().
        Some(unsafe { Held::from_number(number) })
    }
}

/// Puts a magazine with buffers into the mailbox of a thread. Returns it if the thread does not ask any more, or if it
/// has none.
fn deliver(member: &Member, magazine: Held) -> Option<Held> {
    if magazine.length == 0 {
        return Some(magazine);
    }
    let number = magazine.into_number();
    // SAFETY: the number is that of the magazine, which the mailbox has not taken.
    (!member.mailbox.fill(number)).then(|| unsafe { Held::from_number(number) })
}
