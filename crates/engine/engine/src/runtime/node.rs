//! Nodes: one app's place in the network, which a call of the app uses.

use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bellows_observe::Usual;
use bellows_observe::layout::{account, common, doing, link};
use bellows_packet::{BufferUse, CAPACITY, buffer_use};
use bellows_wiring::OPEN;

use super::links::{Link, LinkTable};
use super::slots::BreathSlot;
use super::state::ThreadState;
use crate::panics;

/// The discrepancy in the books of an app: zero, unless the app has a bug.
pub(crate) struct Discrepancy {
    /// Packets that came in or were made, and were neither sent nor freed and are not held; negative if it is the other
    /// way round.
    pub(crate) leaked: i64,
    /// Packets that were freed without being counted; negative if more packets count as dropped than were freed.
    pub(crate) uncounted: i64,
}

fn sum(numbers: impl IntoIterator<Item = u64>) -> u64 {
    numbers.into_iter().fold(0, u64::wrapping_add)
}

/// One app in the network: its links, slots and counters, and a pointer to the app itself. A call gets nothing else.
///
/// Invariant: from [`Graph::attach`](crate::configuration::Graph::attach) until the graph that owns the node is
/// dropped, `state`, `links` and `activity` point at the state of the thread that runs the graph, the graph's links and
/// a cell of its counters, and `app` points at the app of this node. Only that thread follows them, while it breathes.
/// Once another graph runs, only the thread that ends this graph does, after attaching it to a state of its own.
pub(crate) struct Node {
    pub(crate) app: Cell<*mut ()>,
    /// The number of calls: pull, push, tick.
    pub(crate) calls: [Cell<u64>; account::ENTRIES],
    /// Buffers that these calls allocated and freed.
    pub(crate) taken: Cell<u64>,
    pub(crate) freed: Cell<u64>,
    /// What these calls usually cost, as far as sampled breaths know.
    pub(crate) usual: [Usual; account::ENTRIES],
    pub(crate) state: NonNull<ThreadState>,
    pub(crate) links: NonNull<LinkTable>,
    /// The counter cell that shows what the engine is doing.
    pub(crate) activity: NonNull<AtomicU64>,
    /// Its links by port, or [`OPEN`].
    pub(crate) inputs: Box<[u32]>,
    pub(crate) outputs: Box<[u32]>,
    /// Its position in the network.
    pub(crate) index: usize,
    /// Its first slot, and their number.
    pub(crate) first_slot: usize,
    pub(crate) slots: usize,
    /// Its first accounting cell.
    pub(crate) account: usize,
    /// Its first counter cell: common drop reasons, then its own drop reasons, then its other counters.
    pub(crate) cell: usize,
    pub(crate) own_drops: usize,
    pub(crate) own_counters: usize,
    /// Whether it declared that it takes no more packets: see [`Io::close`](crate::Io::close).
    pub(crate) closed: Cell<bool>,
    /// Time at which it wants a tick, in nanoseconds of the engine's clock; at first, at once.
    pub(crate) deadline: Cell<u64>,
    pub(crate) prefetch: usize,
    pub(crate) max_fan_out: usize,
    /// The position of its name in the timeline.
    pub(crate) name: u32,
}

// SAFETY: by the type's invariant the pointers are followed only on the engine's thread; the rest may be sent.
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

    /// Begins a call of the app.
    #[inline(always)]
    pub(crate) fn begin_call(&self, entry: usize) {
        self.activity().store(doing::calling(self.index), Relaxed);
        let calls = &self.calls[entry];
        calls.set(calls.get() + 1);
    }

    /// Ends the call: buffers allocated and freed since the previous call go to the app's account.
    #[inline(always)]
    pub(crate) fn end_call(&self) {
        self.activity().store(doing::NOTHING, Relaxed);
        let (now, buffers) = (buffer_use(), &self.state().buffers);
        if now != buffers.get() {
            self.record(now.since(buffers.replace(now)));
        }
    }

    /// Records buffers that were allocated and freed on the app's account.
    #[inline(always)]
    pub(crate) fn record(&self, change: BufferUse) {
        self.taken.set(self.taken.get().wrapping_add(change.taken));
        self.freed.set(self.freed.get().wrapping_add(change.freed));
    }

    /// The discrepancy of an app that holds `held` packets. Call it between two calls of the app.
    pub(crate) fn discrepancy(&self, held: u64) -> Discrepancy {
        let table = self.links();
        let slab = &table.slab;
        let entry = slab.directory.app(self.index);
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
        let dropped = sum(dropped).wrapping_sub(account(account::UNBUFFERED_DROPS));
        let uncounted = self.freed.get().wrapping_sub(dropped).cast_signed();
        Discrepancy {
            leaked: sum(came).wrapping_sub(sum(went)).cast_signed(),
            // An app that only brings packets in may free packets that it made.
            uncounted: match entry {
                Some(entry) if !entry.ends && !entry.brings_in => uncounted,
                _ => uncounted.min(0),
            },
        }
    }

    /// Whether it is a side of a crossing, and not an app of the network.
    pub(crate) fn crosses(&self) -> bool {
        self.index >= self.links().slab.directory.apps.len()
    }

    /// Whether the app has a linked input.
    pub(crate) fn has_linked_input(&self) -> bool {
        self.inputs.iter().any(|&link| link != OPEN)
    }

    /// Counts drops of packets that never had a buffer.
    #[cold]
    pub(crate) fn count_unbuffered_drops(&self, count: usize) {
        self.links().slab.add(self.account + account::UNBUFFERED_DROPS, count as u64);
    }

    #[inline(always)]
    fn activity(&self) -> &AtomicU64 {
        // SAFETY: the type's invariant.
        unsafe { self.activity.as_ref() }
    }

    pub(crate) fn slots<'a>(&self, table: &'a LinkTable) -> &'a [BreathSlot] {
        &table.slots[self.first_slot..][..self.slots]
    }

    /// Whether an input holds packets.
    #[inline(always)]
    pub(crate) fn has_input(&self) -> bool {
        let table = self.links();
        self.inputs.iter().any(|&link| table.waiting.get(link as usize).is_some_and(|waiting| waiting.get() > 0))
    }

    /// Whether to pull the app: it has no slots, or one of them is ready.
    #[inline(always)]
    pub(crate) fn is_ready_to_pull(&self) -> bool {
        self.slots == 0 || self.slots(self.links()).iter().any(BreathSlot::is_ready)
    }

    /// The number of packets that the app may take so that everything it makes of them fits on every output.
    fn budget(&self) -> usize {
        let table = self.links();
        let room = |&link: &u32| table.waiting.get(link as usize).map(|waiting| CAPACITY - waiting.get() as usize);
        let least = self.outputs.iter().filter_map(room).min();
        least.and_then(|room| room.checked_div(self.max_fan_out)).unwrap_or(usize::MAX)
    }

    /// In a lossless network: sets the number of packets that the app may take in the next call, and returns it.
    pub(crate) fn set_budget(&self) -> usize {
        let budget = self.budget();
        self.state().budget.set(budget);
        budget
    }

    #[cold]
    pub(crate) fn count_common(&self, reason: usize, count: usize) {
        debug_assert!(reason < common::DROPS.len());
        self.links().slab.add(self.cell + reason, count as u64);
    }

    /// Reports that the app panicked. The packets that it had in hand are freed by now and count as dropped.
    #[cold]
    #[inline(never)]
    pub(crate) fn report_panic(&self) {
        match panics::freed_since_panic() {
            Some(0) => {}
            Some(in_hand) => self.count_common(common::APP_FAILED, in_hand as usize),
            None => self.state().in_hand_unknown.set(true),
        }
        self.state().report_panic(self.index);
    }
}
