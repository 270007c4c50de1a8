//! The trial of look-ahead of a worker: which breaths and calls are part of it.
//!
//! While a trial runs, more breaths are sampled. In each breath of the trial one call is chosen, and for it a coin is
//! thrown: its packets are prefetched first, or not. Only that call is timed, because packets that were prefetched for
//! one app are near for all apps after it. The calls go to the trial's log, not to the accounts of apps.
//! [`dispatch::trial`](crate::dispatch) does the work of each call.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use bellows_observe::look_ahead::{TrialCall, TrialLog};
use fastrand::Rng;

/// A running trial, as one worker sees it.
#[derive(Clone)]
pub(crate) struct Trial {
    /// Whether it is over, because nobody wants it any more or the network has changed.
    pub(crate) is_over: Arc<AtomicBool>,
    pub(crate) log: Arc<TrialLog>,
}

/// The trial of a worker, and its current breath.
#[derive(Default)]
pub(crate) struct Trials {
    trial: RefCell<Option<Trial>>,
    /// Whether a trial runs, and whether the current breath is part of it.
    is_running: Cell<bool>,
    is_trying: Cell<bool>,
    /// The chosen one of the calls that could be, and whether its packets are prefetched.
    chosen: Cell<u64>,
    prefetches: Cell<bool>,
    /// Calls of this breath that could have been chosen, and of the last one.
    seen: Cell<u64>,
    seen_before: Cell<u64>,
}

impl Trials {
    /// Begins a trial, unless it is over already.
    pub(crate) fn begin(&self, trial: Trial) {
        self.is_running.set(!trial.is_over.load(Relaxed));
        self.trial.replace(Some(trial));
    }

    /// Forgets a trial that is over.
    pub(crate) fn forget_if_over(&self) {
        if self.trial.borrow().as_ref().is_some_and(|trial| trial.is_over.load(Relaxed)) {
            self.end();
        }
    }

    /// Ends the trial.
    pub(crate) fn end(&self) {
        self.is_running.set(false);
        if let Some(trial) = self.trial.take() {
            trial.is_over.store(true, Relaxed);
        }
    }

    /// Whether a trial runs.
    pub(crate) fn are_running(&self) -> bool {
        self.is_running.get()
    }

    /// Begins a breath, which may be one of the trial.
    pub(crate) fn begin_breath(&self, is_trying: bool, random: &mut Rng) {
        self.is_trying.set(is_trying);
        if is_trying {
            self.seen.set(0);
            self.chosen.set(random.u64(..self.seen_before.get().max(1)));
            self.prefetches.set(random.bool());
        }
    }

    /// Ends a breath.
    pub(crate) fn end_breath(&self) {
        if self.is_trying.take() {
            self.seen_before.set(self.seen.get());
        }
    }

    /// Whether the current breath is part of the trial.
    pub(crate) fn is_trying(&self) -> bool {
        self.is_trying.get()
    }

    /// Counts a call that could be the chosen one, and returns whether it is.
    pub(crate) fn is_chosen(&self) -> bool {
        self.seen.replace(self.seen.get() + 1) == self.chosen.get()
    }

    /// Whether the packets of the chosen call are prefetched.
    pub(crate) fn prefetches(&self) -> bool {
        self.prefetches.get()
    }

    /// Adds the chosen call to the log.
    pub(crate) fn add(&self, call: TrialCall) {
        if let Some(trial) = &*self.trial.borrow() {
            trial.log.add(call);
        }
    }
}
