//! The trial of look-ahead of a worker: which breaths and calls are part of it.
//!
//! While a trial runs, more breaths are sampled. In each breath of the trial one app is chosen, and for its call a coin is
//! thrown: its packets are prefetched first, or not. Only that call is timed, because packets that were prefetched for
//! one app are near for all apps after it. The calls go to the trial's log, not to the accounts of apps.
//! [`dispatch::trial`](crate::dispatch) does the work of each call.
//!
//! Apps that are called in few breaths are chosen more often, so that they get as many calls as the others. On a busy
//! machine, for example, an app behind a delay is called in bursts.

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
    /// The chosen app, and whether the packets of its call are prefetched.
    chosen: Cell<Option<usize>>,
    prefetches: Cell<bool>,
    candidates: RefCell<Candidates>,
}

/// The maximum weight of an app that is called in few breaths, so that it leaves breaths to the others.
const MAX_WEIGHT: f64 = 16.0;

/// How often apps could have been chosen in a trial.
#[derive(Default)]
struct Candidates {
    /// Breaths of the trial.
    breaths: u32,
    /// Those with a call of the app that could be chosen, by its position in the network.
    calls: Vec<u32>,
}

impl Candidates {
    /// Chooses an app that has been called before, with a probability that is inverse to the share of breaths in which
    /// it was called.
    fn choose(&self, random: &mut Rng) -> Option<usize> {
        let weight = |&calls: &u32| match calls {
            0 => 0.0,
            _ => (f64::from(self.breaths) / f64::from(calls)).clamp(1.0, MAX_WEIGHT),
        };
        let mut left = random.f64() * self.calls.iter().map(weight).sum::<f64>();
        let mut last = None;
        for (app, weight) in self.calls.iter().map(weight).enumerate().filter(|&(_, weight)| weight > 0.0) {
            last = Some(app);
            left -= weight;
            if left < 0.0 {
                break;
            }
        }
        last
    }

    /// Counts a call that could be chosen.
    fn count(&mut self, app: usize) {
        if app >= self.calls.len() {
            self.calls.resize(app + 1, 0);
        }
        self.calls[app] += 1;
    }
}

impl Trials {
    /// Begins a trial, unless it is over already.
    pub(crate) fn begin(&self, trial: Trial) {
        self.is_running.set(!trial.is_over.load(Relaxed));
        self.candidates.take();
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
            let mut candidates = self.candidates.borrow_mut();
            candidates.breaths += 1;
            self.chosen.set(candidates.choose(random));
            self.prefetches.set(random.bool());
        }
    }

    /// Ends a breath.
    pub(crate) fn end_breath(&self) {
        self.is_trying.set(false);
    }

    /// Whether the current breath is part of the trial.
    pub(crate) fn is_trying(&self) -> bool {
        self.is_trying.get()
    }

    /// Counts a call of an app that could be chosen, and returns whether it is.
    pub(crate) fn is_chosen(&self, app: usize) -> bool {
        self.candidates.borrow_mut().count(app);
        self.chosen.get() == Some(app)
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The calls of each app that are chosen, when apps are called in these shares of breaths.
    fn chosen(shares: &[f64]) -> Vec<u32> {
        let mut random = Rng::with_seed(3);
        let trials = Trials::default();
        let mut chosen = vec![0; shares.len()];
        for _ in 0..20_000 {
            trials.begin_breath(true, &mut random);
            for (app, &share) in shares.iter().enumerate() {
                if random.f64() < share {
                    chosen[app] += u32::from(trials.is_chosen(app));
                }
            }
            trials.end_breath();
        }
        chosen
    }

    #[test]
    fn each_app_gets_as_many_calls_as_the_others() {
        for shares in [vec![1.0; 5], vec![1.0, 1.0, 0.1, 1.0, 0.5]] {
            let chosen = chosen(&shares);
            let (least, most) = (*chosen.iter().min().unwrap(), *chosen.iter().max().unwrap());
            assert!(least > 1_000 && most < least * 5 / 4, "{shares:?}: {chosen:?}");
        }
    }

    #[test]
    fn apps_that_are_hardly_called_leave_breaths_to_the_others() {
        let chosen = chosen(&[1.0, 1.0, 0.0, 0.001, 1.0]);
        assert!(chosen[0] > 500 && chosen[2] == 0 && (5..=30).contains(&chosen[3]), "{chosen:?}");
    }
}
