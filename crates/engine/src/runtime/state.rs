//! What all calls of one thread share.

use std::cell::{Cell, RefCell};

use bellows_packet::{BufferUse, buffer_use};
use bellows_sys::clock;

use super::links::SpareVectors;
use super::sampling::Sampler;

/// What all calls of apps on one thread share during a breath. The first fields are those that generated code knows.
#[repr(C)]
pub(crate) struct ThreadState {
    /// The time, read at most once a breath; 0 while nobody has asked.
    pub(crate) now: Cell<u64>,
    /// Breaths in which a packet moved.
    pub(crate) moved: Cell<u64>,
    /// Not 0 if the breaths are to be interrupted after this one: an app has panicked, or wants a tick.
    pub(crate) interrupt: Cell<u32>,
    /// How many apps have panicked and wait for stand-ins.
    pub(crate) failures: Cell<u32>,
    /// Whether a packet moved in this breath.
    pub(crate) progress: Cell<bool>,
    /// Whether a breath was interrupted between its pulls and its pushes.
    pub(crate) halfway: Cell<bool>,
    /// Whether it is not known what one of them had in hand.
    pub(crate) unwatched_panic: Cell<bool>,
    /// Which apps have panicked.
    pub(crate) failed: RefCell<Vec<usize>>,
    /// The time as a test sets it; `None` for the real one.
    pub(crate) manual_time: Cell<Option<u64>>,
    /// How many packets the running app may still take from its inputs. Counts down in a lossless network only.
    pub(crate) budget: Cell<usize>,
    /// The earliest moment that an app wants a tick.
    pub(crate) next_deadline: Cell<u64>,
    pub(crate) spare: SpareVectors,
    /// What this thread had taken from the pool and given back when the last call was over: what has changed since then is the
    /// doing of the next.
    pub(crate) buffers: Cell<BufferUse>,
    /// Whether an app has told that it can take no packet any more, since somebody looked whether all have.
    pub(crate) closed: Cell<bool>,
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
            halfway: Cell::new(false),
            unwatched_panic: Cell::new(false),
            failed: RefCell::default(),
            manual_time: Cell::new(None),
            budget: Cell::new(usize::MAX),
            next_deadline: Cell::new(0),
            spare: SpareVectors::new(),
            buffers: Cell::default(),
            closed: Cell::new(false),
            burst,
            lossless,
            sampler,
        }
    }

    /// The time in nanoseconds, the same throughout a breath.
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

    /// Ends a breath in which apps were called. Generated code does the same by itself.
    #[inline(always)]
    pub(crate) fn end_breath(&self) {
        self.moved.set(self.moved.get() + u64::from(self.progress.replace(false)));
        self.now.set(0);
    }

    /// What has been taken from the pool and given back until now was not the doing of the next call.
    #[inline]
    pub(crate) fn settle_buffers(&self) {
        self.buffers.set(buffer_use());
    }

    pub(crate) fn report_panic(&self, app: usize) {
        self.failed.borrow_mut().push(app);
        self.failures.set(self.failures.get() + 1);
        self.interrupt.set(1);
    }

    /// Asks for a tick not later than at this time.
    #[inline]
    pub(crate) fn wake_at(&self, time: u64) {
        self.next_deadline.set(self.next_deadline.get().min(time));
        self.interrupt.set(1);
    }

    /// Sets part of the budget aside for an input that is opened: as many packets as it holds, or what is left.
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
