//! How one app sits in the network: what a call of it works on.

use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bellows_observe::Usual;
use bellows_observe::layout::{account, common, doing, link};
use bellows_packet::{BufferUse, CAPACITY, buffer_use};
use bellows_wiring::OPEN;

use super::links::{Link, LinkTable};
use super::slots::Slot;
use super::state::ThreadState;
use crate::panics;

/// What is wrong with the books of an app: nothing, unless the app has a bug.
pub(crate) struct Discrepancy {
    /// Packets that came in or were made, and were neither sent nor freed and are not held; less than none if it is the other
    /// way round.
    pub(crate) leaked: i64,
    /// Packets that were freed and are in no count; less than none if more were counted as dropped than were freed.
    pub(crate) uncounted: i64,
}

fn sum(numbers: impl IntoIterator<Item = u64>) -> u64 {
    numbers.into_iter().fold(0, u64::wrapping_add)
}

/// One app in the network: its links, its slots, its counters, and the way to the app itself. Calls get nothing else.
///
/// Invariant: between [`Graph::attach`](crate::configuration::Graph::attach) and the end of the graph that owns the node,
/// `state`, `links` and `doing` lead to the state of the thread that runs the graph, the graph's links and a cell of its
/// counters, and `app` to the app of this node. Only that thread follows them, while it breathes; once another graph runs,
/// the thread that ends this one, which has attached it to a state of its own.
pub(crate) struct Node {
    pub(crate) app: Cell<*mut ()>,
    /// How often it has been called: to pull, to push, to tick.
    pub(crate) calls: [Cell<u64>; account::ENTRIES],
    /// Buffers that these calls have taken from the pool, and those that they have given back.
    pub(crate) taken: Cell<u64>,
    pub(crate) freed: Cell<u64>,
    /// What these calls usually take, as far as the sampled breaths know.
    pub(crate) usual: [Usual; account::ENTRIES],
    pub(crate) state: NonNull<ThreadState>,
    pub(crate) links: NonNull<LinkTable>,
    /// The cell of the counters that says what the engine is doing.
    pub(crate) doing: NonNull<AtomicU64>,
    /// Its links by port, or [`OPEN`].
    pub(crate) inputs: Box<[u32]>,
    pub(crate) outputs: Box<[u32]>,
    /// Its position in the network.
    pub(crate) index: usize,
    /// The first of its slots, and how many there are.
    pub(crate) first_slot: usize,
    pub(crate) slots: usize,
    /// The first of its accounting cells.
    pub(crate) account: usize,
    /// The first of its counters: the common reasons for drops, then its own reasons, then what else it counts.
    pub(crate) cell: usize,
    pub(crate) own_drops: usize,
    pub(crate) own_counters: usize,
    /// Whether it can take no packet any more: see [`Io::close`](crate::Io::close).
    pub(crate) closed: Cell<bool>,
    /// When it wants a tick, in nanoseconds of the engine's clock; at first, at once.
    pub(crate) deadline: Cell<u64>,
    pub(crate) prefetch: usize,
    pub(crate) max_fan_out: usize,
    /// Where its name is in the timeline.
    pub(crate) name: u32,
}

// SAFETY: what the pointers lead to is followed only on the engine's thread, by the type's invariant; the rest may be sent.
unsafe impl Send for Node {}

impl Node {
    #[inline(always)]
    pub(crate) fn state(&self) -> &ThreadState {
        // SAFETY: the type's invariant.
        unsafe { self.state.as_ref() }
    }

    #[inline(always)]
    pub(crate) fn links(&self) -> &LinkTable {
        // SAFETY: the type's invariant.
        unsafe { self.links.as_ref() }
    }

    /// A call of the app begins.
    #[inline(always)]
    pub(crate) fn begin_call(&self, entry: usize) {
        self.doing().store(doing::calling(self.index), Relaxed);
        let calls = &self.calls[entry];
        calls.set(calls.get() + 1);
    }

    /// The call is over: what was taken from the pool and given back since the one before was its doing.
    #[inline(always)]
    pub(crate) fn end_call(&self) {
        self.doing().store(doing::NOTHING, Relaxed);
        let (now, buffers) = (buffer_use(), &self.state().buffers);
        if now != buffers.get() {
            self.record(now.since(buffers.replace(now)));
        }
    }

    /// Puts buffers that were taken and freed on the account of the app.
    #[inline(always)]
    pub(crate) fn record(&self, change: BufferUse) {
        self.taken.set(self.taken.get().wrapping_add(change.taken));
        self.freed.set(self.freed.get().wrapping_add(change.freed));
    }

    /// Whether every packet of the app is somewhere: to be asked between two calls, of an app that holds so many.
    pub(crate) fn discrepancy(&self, held: u64) -> Discrepancy {
        let table = self.links();
        let slab = &table.slab;
        let entry = &slab.directory.apps[self.index];
        let account = |cell: usize| slab.get(self.account + cell);
        let of = |ports: &[u32], count: &dyn Fn(&Link, u32) -> u64| {
            let links = ports.iter().filter_map(|&link| Some((table.links.get(link as usize)?, link)));
            links.map(|(link, index)| count(link, index)).fold(0, u64::wrapping_add)
        };
        let sent = |link: &Link, _: u32| slab.get(link.cell + link::PACKETS);
        let received =
            |link: &Link, index: u32| sent(link, index).wrapping_sub(table.waiting[index as usize].get().into());
        let refused = |link: &Link, _: u32| slab.get(link.cell + link::DROPS);
        let came =
            [of(&self.inputs, &received), account(account::PAST_IN), account(account::BROUGHT_IN), self.taken.get()];
        let went = [
            of(&self.outputs, &sent),
            account(account::PAST_OUT),
            account(account::HANDED_OFF),
            self.freed.get(),
            held,
        ];
        let dropped = (self.cell..self.own_counters).map(|cell| slab.get(cell));
        let dropped = dropped.chain([of(&self.outputs, &refused), account(account::PAST_TXDROP)]);
        let dropped = sum(dropped).wrapping_sub(account(account::UNMADE));
        let uncounted = self.freed.get().wrapping_sub(dropped).cast_signed();
        Discrepancy {
            leaked: sum(came).wrapping_sub(sum(went)).cast_signed(),
            // An app that only brings packets in may have made one too many and given it back.
            uncounted: if entry.ends || entry.brings_in { uncounted.min(0) } else { uncounted },
        }
    }

    /// Whether a link leads to it.
    pub(crate) fn is_fed(&self) -> bool {
        self.inputs.iter().any(|&link| link != OPEN)
    }

    /// Counts drops of packets that never had a buffer.
    #[cold]
    pub(crate) fn count_unmade(&self, count: usize) {
        self.links().slab.add(self.account + account::UNMADE, count as u64);
    }

    #[inline(always)]
    fn doing(&self) -> &AtomicU64 {
        // SAFETY: the type's invariant.
        unsafe { self.doing.as_ref() }
    }

    pub(crate) fn slots<'a>(&self, table: &'a LinkTable) -> &'a [Slot] {
        &table.slots[self.first_slot..][..self.slots]
    }

    /// Whether an input holds packets.
    #[inline(always)]
    pub(crate) fn has_input(&self) -> bool {
        let table = self.links();
        self.inputs.iter().any(|&link| table.waiting.get(link as usize).is_some_and(|waiting| waiting.get() > 0))
    }

    /// Whether the app is to be pulled: it has no slots, or one of them says so.
    #[inline(always)]
    pub(crate) fn is_ready_to_pull(&self) -> bool {
        self.slots == 0 || self.slots(self.links()).iter().any(Slot::is_ready)
    }

    /// How many packets the app may be given so that all that it can make of them fits on every output.
    fn budget(&self) -> usize {
        let table = self.links();
        let room = |&link: &u32| table.waiting.get(link as usize).map(|waiting| CAPACITY - waiting.get() as usize);
        let least = self.outputs.iter().filter_map(room).min();
        least.and_then(|room| room.checked_div(self.max_fan_out)).unwrap_or(usize::MAX)
    }

    /// In a lossless network: sets how many packets the app may take in the call that follows, and returns that.
    pub(crate) fn admit(&self) -> usize {
        let budget = self.budget();
        self.state().budget.set(budget);
        budget
    }

    #[cold]
    pub(crate) fn count_common(&self, reason: usize, count: usize) {
        debug_assert!(reason < common::DROPS.len());
        self.links().slab.add(self.cell + reason, count as u64);
    }

    /// Tells the engine that the app has panicked. What it had in hand has been freed by now, and is counted as dropped.
    #[cold]
    #[inline(never)]
    pub(crate) fn report_panic(&self) {
        match panics::freed_since_the_last() {
            Some(0) => {}
            Some(in_hand) => self.count_common(common::APP_FAILED, in_hand as usize),
            None => self.state().unwatched_panic.set(true),
        }
        self.state().report_panic(self.index);
    }
}
