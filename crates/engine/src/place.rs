//! How one app sits in the network: what a call of it works on.

use std::cell::Cell;
use std::ptr::NonNull;

use bellows_packet::{CAPACITY, passages, settle_passages};

use crate::counters::{account, common};
use crate::io::Core;
use crate::meter::Usual;
use crate::slots::Slot;
use crate::world::Fabric;

/// Stands for the link of a port that is not linked.
pub(crate) const OPEN: u32 = u32::MAX;

/// One app's seat: its links, its slots, its counters, and the way to the app itself. Calls get nothing else.
///
/// Invariant: between [`World::seat`](crate::world::World::seat) and the end of the world that owns the place, `core` and
/// `fabric` lead to the engine's core and that world's fabric, and `app` to the app that sits here. Only the engine's
/// thread follows them, while it breathes.
pub(crate) struct Place {
    pub(crate) app: Cell<*mut ()>,
    /// How often it has been called: to pull, to push, to tick.
    pub(crate) calls: [Cell<u64>; account::ENTRIES],
    /// What these calls usually take, as far as the instrumented breaths know.
    pub(crate) usual: [Usual; account::ENTRIES],
    pub(crate) core: NonNull<Core>,
    pub(crate) fabric: NonNull<Fabric>,
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
    /// When it wants a tick, in nanoseconds of the engine's clock; at first, at once.
    pub(crate) deadline: Cell<u64>,
    pub(crate) prefetch: usize,
    pub(crate) gain: usize,
    /// Where its name is in the timeline.
    pub(crate) name: u32,
}

// SAFETY: what the pointers lead to is followed only on the engine's thread, by the type's invariant; the rest may be sent.
unsafe impl Send for Place {}

impl Place {
    #[inline(always)]
    pub(crate) fn core(&self) -> &Core {
        // SAFETY: the type's invariant.
        unsafe { self.core.as_ref() }
    }

    #[inline(always)]
    pub(crate) fn fabric(&self) -> &Fabric {
        // SAFETY: the type's invariant.
        unsafe { self.fabric.as_ref() }
    }

    #[inline(always)]
    pub(crate) fn count_call(&self, entry: usize) {
        let calls = &self.calls[entry];
        calls.set(calls.get() + 1);
    }

    pub(crate) fn slots<'a>(&self, fabric: &'a Fabric) -> &'a [Slot] {
        &fabric.slots[self.first_slot..][..self.slots]
    }

    /// Whether an input holds packets.
    #[inline(always)]
    pub(crate) fn has_input(&self) -> bool {
        let fabric = self.fabric();
        self.inputs.iter().any(|&link| fabric.waiting.get(link as usize).is_some_and(|waiting| waiting.get() > 0))
    }

    /// Whether the app is to be pulled: it has no slots, or one of them says so.
    #[inline(always)]
    pub(crate) fn is_ready_to_pull(&self) -> bool {
        self.slots == 0 || self.slots(self.fabric()).iter().any(Slot::is_ready)
    }

    /// How many packets the app may be given so that all that it can make of them fits on every output.
    fn budget(&self) -> usize {
        let fabric = self.fabric();
        let room = |&link: &u32| fabric.waiting.get(link as usize).map(|waiting| CAPACITY - waiting.get() as usize);
        let least = self.outputs.iter().filter_map(room).min();
        least.and_then(|room| room.checked_div(self.gain)).unwrap_or(usize::MAX)
    }

    /// In a lossless network: sets how many packets the app may take in the call that follows, and returns that.
    pub(crate) fn admit(&self) -> usize {
        let budget = self.budget();
        self.core().budget.set(budget);
        budget
    }

    #[cold]
    pub(crate) fn count_common(&self, reason: usize, count: usize) {
        debug_assert!(reason < common::DROPS.len());
        self.fabric().slab.add(self.cell + reason, count as u64);
    }

    /// Does what frees packets that are dropped for a reason: the position of its counter among the app's drops, or
    /// [`TXDROP`](crate::watch::TXDROP). Those that are marked are noted with it.
    #[inline]
    pub(crate) fn dropping<T>(reason: usize, free: impl FnOnce() -> T) -> T {
        let before = passages();
        let result = free();
        if passages() != before {
            settle_passages(before, reason as u32);
        }
        result
    }

    /// The name of the output that leads to a link.
    pub(crate) fn output_name(&self, link: u32) -> String {
        let fabric = self.fabric();
        let from = &fabric.slab.directory.links[fabric.links[link as usize].index].from;
        from.rsplit_once('.').map_or(&**from, |(_, port)| port).to_owned()
    }

    /// The name of such a reason.
    pub(crate) fn drop_reason(&self, reason: u32) -> String {
        let drops = &self.fabric().slab.directory.apps[self.index].drops;
        drops.get(reason as usize).map_or("txdrop", |name| name).to_owned()
    }

    /// Tells the engine that the app has panicked.
    #[cold]
    #[inline(never)]
    pub(crate) fn report_panic(&self) {
        self.core().report_panic(self.index);
    }
}
