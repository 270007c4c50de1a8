//! State shared by all calls of one thread.

use std::cell::{Cell, RefCell};

use bellows_packet::{BufferUse, buffer_use};
use bellows_sys::clock;

use super::links::FreeVectors;
use super::sampling::Sampler;

/// State shared by all calls of apps on one thread. Generated code knows the first fields.
#[repr(C)]
pub(crate) struct ThreadState {
    /// The time, read at most once a breath; 0 while unread.
    pub(crate) now: Cell<u64>,
    /// Number of breaths in which a packet moved.
    pub(crate) moved: Cell<u64>,
    /// Not 0 if breaths must be interrupted after this one: an app panicked, or wants a tick.
    pub(crate) interrupt: Cell<u32>,
    /// Number of apps that panicked and wait for stand-ins.
    pub(crate) failures: Cell<u32>,
    /// Whether a packet moved in this breath.
    pub(crate) progress: Cell<bool>,
    /// Whether a breath was interrupted between its pulls and its pushes.
    pub(crate) pushes_pending: Cell<bool>,
    /// Whether the number of packets that a panicking app had in hand is unknown.
    pub(crate) in_hand_unknown: Cell<bool>,
    /// The apps that panicked.
    pub(crate) failed: RefCell<Vec<usize>>,
    /// The time set by a test; `None` for the real time.
    pub(crate) manual_time: Cell<Option<u64>>,
    /// Number of packets that the running app may still take from its inputs. Used in lossless networks only.
    pub(crate) budget: Cell<usize>,
    /// The earliest time at which an app wants a tick.
    pub(crate) next_deadline: Cell<u64>,
    pub(crate) free_vectors: FreeVectors,
    /// The thread's buffer use at the end of the last call: changes since then belong to the next call.
    pub(crate) buffers: Cell<BufferUse>,
    /// Whether an app declared that it takes no more packets, since the last check of all apps.
    pub(crate) closed: Cell<bool>,
    /// Whether the first vector that leaves for another worker in this breath is marked.
    pub(crate) marks_departure: Cell<bool>,
    /// Whether apps send what they have to send when the run is stopped.
    pub(crate) leaving: Cell<bool>,
    pub(crate) burst: usize,
    pub(crate) lossless: bool,
    pub(crate) sampler: Sampler,
}

impl ThreadState {
    pub(crate) fn new(burst: usize, lossless: bool, sampler: Sampler) -> ThreadState {
        ThreadState {
            now: Cell::new(0),
            moved: Cell::new(0),
            interrupt: Cell::new(0),
            failures: Cell::new(0),
            progress: Cell::new(false),
            pushes_pending: Cell::new(false),
            in_hand_unknown: Cell::new(false),
            failed: RefCell::default(),
            manual_time: Cell::new(None),
            budget: Cell::new(usize::MAX),
            next_deadline: Cell::new(0),
            free_vectors: FreeVectors::new(),
            buffers: Cell::default(),
            closed: Cell::new(false),
            marks_departure: Cell::new(false),
            leaving: Cell::new(false),
            burst,
            lossless,
            sampler,
        }
    }

    /// The time in nanoseconds, constant throughout a breath.
    #[inline]
    pub(crate) fn now(&self) -> u64 {
        if self.now.get() == 0 {
            self.now.set(self.manual_time.get().unwrap_or_else(clock::now));
        }
        self.now.get()
    }

    pub(crate) fn forget_time(&self) {
        self.now.set(0);
    }

    /// Ends a breath in which apps were called. Generated code does the same inline.
    #[inline(always)]
    pub(crate) fn end_breath(&self) {
        self.moved.set(self.moved.get() + u64::from(self.progress.replace(false)));
        self.now.set(0);
    }

    /// Takes a snapshot of the thread's buffer use: changes until now do not belong to the next call.
    #[inline]
    pub(crate) fn snapshot_buffer_use(&self) {
        self.buffers.set(buffer_use());
    }

    pub(crate) fn report_panic(&self, app: usize) {
        self.failed.borrow_mut().push(app);
        self.failures.set(self.failures.get() + 1);
        self.interrupt.set(1);
    }

    /// Requests a tick no later than this time.
    #[inline]
    pub(crate) fn wake_at(&self, time: u64) {
        self.next_deadline.set(self.next_deadline.get().min(time));
        self.interrupt.set(1);
    }

    /// Reserves part of the budget for an input that is opened: as many packets as it holds, or the rest of the budget.
    #[inline(always)]
    pub(crate) fn reserve(&self, waiting: usize) -> usize {
        if !self.lossless {
            return usize::MAX;
        }
        let reserved = self.budget.get().min(waiting);
        self.budget.set(self.budget.get() - reserved);
        reserved
    }
}
