//! Trials of look-ahead, as other threads see them.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use bellows_observe::look_ahead::{TrialLog, TrialResult};

use super::Control;
use super::shared::lock;
use crate::runtime::attention::{Attention, request};
use crate::runtime::trials::Trial;

/// Why there is no trial of look-ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TrialError {
    /// Another trial is running.
    #[error("another trial of look-ahead is running; try again when it is over")]
    Busy,
    /// The network records no samples.
    #[error("the network samples no breaths, and a trial needs some; run it without `sampling = false`")]
    NoSamples,
    /// The run is over.
    #[error("the run is over")]
    Over,
}

/// A running trial of look-ahead: see [`bellows_observe::look_ahead`]. Dropping it ends the trial.
///
/// Meanwhile one in about 7 breaths is part of it, and one call of each. Packets, their order and all accounts are as
/// without a trial.
pub struct LookAheadTrial {
    logs: Vec<Arc<TrialLog>>,
    is_over: Arc<AtomicBool>,
    apps: Vec<String>,
    attention: Arc<Attention>,
}

impl LookAheadTrial {
    /// The number of calls so far.
    pub fn calls(&self) -> usize {
        self.logs.iter().map(|log| log.len()).sum()
    }

    /// Whether it has ended by itself: the network was reloaded, or the run is over.
    pub fn is_over(&self) -> bool {
        self.is_over.load(Relaxed)
    }

    /// What it has found so far about each app that had a call in it, in the order of the network.
    pub fn results(&self) -> Vec<TrialResult> {
        TrialResult::of_all(&self.apps, self.logs.iter().flat_map(|log| log.calls()))
    }
}

impl Drop for LookAheadTrial {
    fn drop(&mut self) {
        self.is_over.store(true, Relaxed);
        self.attention.raise(request::WATCH);
    }
}

impl Control {
    /// Begins a trial of look-ahead of all apps.
    ///
    /// # Errors
    /// If another trial is running, the network samples no breaths, or the run is over.
    pub fn try_look_ahead(&self) -> Result<LookAheadTrial, TrialError> {
        if !self.shared.settings.sampling {
            return Err(TrialError::NoSamples);
        }
        // While this is locked, the network is not reloaded.
        let current = lock(&self.shared.current);
        let mut watchers = lock(&self.shared.watchers);
        if watchers.closed {
            return Err(TrialError::Over);
        }
        if watchers.trial.as_ref().and_then(Weak::upgrade).is_some_and(|over| !over.load(Relaxed)) {
            return Err(TrialError::Busy);
        }
        let is_over = Arc::new(AtomicBool::new(false));
        let trial = |_: &_| Trial { is_over: Arc::clone(&is_over), log: Arc::default() };
        let trials: Vec<Trial> = current.topology.workers.iter().map(trial).collect();
        let logs = trials.iter().map(|trial| Arc::clone(&trial.log)).collect();
        watchers.trial = Some(Arc::downgrade(&is_over));
        watchers.trials = trials;
        let apps = current.topology.apps.iter().map(|app| app.name.clone()).collect();
        let attention = Arc::clone(&self.shared.attention);
        drop((watchers, current));
        attention.raise(request::WATCH);
        Ok(LookAheadTrial { logs, is_over, apps, attention })
    }
}
