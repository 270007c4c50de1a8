//! The links of a thread: their packets, the packet count of each, and the counters.

use std::cell::{Cell, RefCell};
use std::mem;
use std::sync::Arc;

use bellows_arena::Fixed;
use bellows_observe::layout::link as counters;
use bellows_observe::{Slab, WorkerEntry};
use bellows_packet::{Packet, Vector, VectorMemory, attribute_drops, free_all, marked_events};
use bellows_watch::Network;

use super::slots::BreathSlot;

/// Drop reason for a full link; other reasons are positions in the app's drop counters.
pub(crate) const TXDROP: u32 = u32::MAX;

/// A link: one vector, filled by one app and emptied by one app.
///
/// It has memory only while it holds packets; see [`FreeVectors`].
pub(crate) struct Link {
    pub(crate) vector: Cell<Vector>,
    /// Its bytes, as far as they are in the counters.
    pub(crate) bytes: Cell<u64>,
    /// Its first counter cell.
    pub(crate) cell: usize,
    /// Its position in the network.
    pub(crate) index: usize,
}

/// Free vectors, the last used on top: a chain of any length uses a few hot ones.
pub(crate) struct FreeVectors(RefCell<Vec<VectorMemory>>);

impl FreeVectors {
    pub(crate) fn new() -> FreeVectors {
        FreeVectors(RefCell::new(Vec::with_capacity(64)))
    }

    /// Takes memory for a link that gets its first packets.
    #[inline]
    pub(crate) fn allocate(&self) -> Vector {
        self.0.borrow_mut().pop().map_or_else(new_vector, Vector::from)
    }

    /// Takes memory that a link has used, if there is any.
    #[inline]
    pub(crate) fn reuse(&self) -> Vector {
        self.0.borrow_mut().pop().map_or(Vector::none(), Vector::from)
    }

    /// Takes back the memory of a link that was emptied.
    #[inline]
    pub(crate) fn free(&self, vector: Vector) {
        if let Some(memory) = vector.into_memory() {
            self.0.borrow_mut().push(memory);
        }
    }
}

#[cold]
fn new_vector() -> Vector {
    Vector::new()
}

/// The links and slots of a thread, and the counters of links and apps.
///
/// Links are numbered in the order in which a breath empties them. The links of one app are adjacent, with gaps so that
/// eight links can be tested at once; see [`number_links`](bellows_wiring::number_links).
pub(crate) struct LinkTable {
    pub(crate) links: Fixed<[Link]>,
    /// The number of packets in each link: in one array, so that many can be tested at once.
    pub(crate) waiting: Fixed<[Cell<u32>]>,
    pub(crate) slots: Fixed<[BreathSlot]>,
    pub(crate) slab: Arc<Slab>,
    /// The position of the worker. Not its entry in the directory, with which the table would not fit into a cache line.
    pub(crate) position: u32,
}

impl LinkTable {
    /// Takes the vector out of a link.
    #[inline(always)]
    pub(crate) fn take(&self, number: u32) -> Vector {
        self.links.get(number as usize).map_or(Vector::none(), |link| link.vector.replace(Vector::none()))
    }

    /// Puts a vector into a link.
    #[inline(always)]
    pub(crate) fn put(&self, number: u32, vector: Vector, free_vectors: &FreeVectors) {
        let Some(link) = self.links.get(number as usize) else { return };
        let other = link.vector.replace(Vector::none());
        let vector = if other.is_none() { vector } else { self.join(number, other, vector, free_vectors) };
        self.waiting[number as usize].set(vector.len() as u32);
        if vector.is_empty() {
            link.bytes.set(0);
            free_vectors.free(vector);
        } else {
            link.bytes.set(vector.bytes());
            mem::forget(link.vector.replace(vector));
        }
    }

    /// Joins two vectors of a link, after an app had two handles on it open at a time.
    #[cold]
    pub(crate) fn join(
        &self,
        number: u32,
        mut first: Vector,
        mut second: Vector,
        free_vectors: &FreeVectors,
    ) -> Vector {
        first.append(&mut second, usize::MAX);
        self.slab.add(self.links[number as usize].cell + counters::DROPS, second.len() as u64);
        with_drop_reason(TXDROP as usize, || free_all(&mut second));
        free_vectors.free(second);
        first
    }

    /// The worker's entry in the directory.
    pub(crate) fn worker(&self) -> &WorkerEntry {
        &self.slab.directory.workers[self.position as usize]
    }

    /// Adds to one of the worker's own counters.
    #[inline]
    pub(crate) fn count(&self, counter: usize, count: u64) {
        self.slab.add(self.worker().cell + counter, count);
    }

    /// Sets one of the worker's own counters.
    #[inline]
    pub(crate) fn set(&self, counter: usize, value: u64) {
        self.slab.set(self.worker().cell + counter, value);
    }

    /// The number of packets and bytes in a link.
    pub(crate) fn waiting_in(&self, number: usize) -> (u64, u64) {
        (self.waiting[number].get().into(), self.links[number].bytes.get())
    }
}

impl Network for LinkTable {
    fn app(&self, name: &str) -> Option<usize> {
        self.slab.directory.apps.iter().position(|app| app.name == name)
    }

    fn link(&self, link: &str) -> Option<u32> {
        let (from, to) = link.split_once(" -> ")?;
        let entry = self.slab.directory.links.iter().find(|entry| entry.from == from && entry.to == to)?;
        // Numbers without a link have no counters.
        self.links.iter().position(|link| link.cell == entry.cell).map(|number| number as u32)
    }

    fn app_name(&self, app: usize) -> &str {
        self.slab.directory.app(app).map_or("", |app| &app.name)
    }

    fn output_name(&self, number: u32) -> &str {
        let from = &*self.slab.directory.links[self.links[number as usize].index].from;
        from.rsplit_once('.').map_or(from, |(_, port)| port)
    }

    fn drop_reason(&self, app: usize, reason: u32) -> &str {
        let drops = self.slab.directory.app(app).map_or(&[][..], |app| &app.drops);
        drops.get(reason as usize).map_or("txdrop", |name| name)
    }

    fn sent(&self, number: u32) -> u64 {
        self.links.get(number as usize).map_or(0, |link| self.slab.get(link.cell + counters::PACKETS))
    }

    fn with_packets(&self, number: u32, look: impl FnOnce(&mut [Packet])) {
        let link = &self.links[number as usize].vector;
        let mut vector = link.replace(Vector::none());
        look(vector.as_mut_slice());
        mem::forget(link.replace(vector));
    }
}

/// Runs code that drops packets, and logs the marked ones among them with the reason: the position of its counter among
/// the app's drops, or [`TXDROP`].
#[inline]
pub(crate) fn with_drop_reason<T>(reason: usize, free: impl FnOnce() -> T) -> T {
    let before = marked_events();
    let result = free();
    if marked_events() != before {
        attribute_drops(before, reason as u32);
    }
    result
}
