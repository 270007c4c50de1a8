//! The health of a network: one word and its reasons, from what the network publishes.
//!
//! Nothing is asked of the engine: the health follows from its process and from the files in its runtime directory. So
//! it is known for a network that no longer answers, and to know it costs the engine nothing.

use std::fmt;

use bellows_observe::{Observer, RuntimeDir};
use serde::Serialize;

use crate::networks::{self, Hang, Obstacle, Sample, State};
use crate::text::sanitize;

/// The health of a network, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Health {
    /// Every worker breathes, and every app works.
    Running,
    /// The network runs, but not all of it works: an app has panicked and is no longer called, or has an error that
    /// lasts, or its books do not balance.
    Degraded,
    /// The process lives, and no packet moves through one of its workers: the process is stopped, an app does not
    /// return, or the network has not started yet.
    Stalled,
    /// The process has ended without ending its run.
    Crashed,
}

impl Health {
    /// All of them, the best first.
    pub const ALL: [Health; 4] = [Health::Running, Health::Degraded, Health::Stalled, Health::Crashed];

    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Health::Running => "running",
            Health::Degraded => "degraded",
            Health::Stalled => "stalled",
            Health::Crashed => "crashed",
        }
    }
}

impl fmt::Display for Health {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

/// The health of a network, and why it is no better.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Checkup {
    /// The health.
    pub health: Health,
    /// The reasons, in sentences without a full stop, the worst first; empty if the network is running. Names of apps in
    /// them are safe to print.
    pub reasons: Vec<String>,
}

/// The health of the network in a folder, now. Opens its counters; use [`checkup`] where they are open already.
pub fn health(runtime_dir: &RuntimeDir) -> Checkup {
    let sample = Observer::open(runtime_dir.for_reading()).ok().map(|mut observer| Sample::take(&mut observer));
    checkup(runtime_dir, networks::state(runtime_dir), sample.as_ref())
}

/// The health of the network in a folder by the state of its process and its counters, which were both read just now.
/// Without counters, the network has not started yet.
pub fn checkup(runtime_dir: &RuntimeDir, state: State, sample: Option<&Sample>) -> Checkup {
    let pid = runtime_dir.pid().map_or_else(|| "unknown".to_owned(), |pid| pid.to_string());
    let verdict = |health, reason| Checkup { health, reasons: vec![reason] };
    match (state, sample) {
        (State::Crashed, _) => verdict(Health::Crashed, format!("the process {pid} has ended without ending its run")),
        (State::Stopped, _) => {
            verdict(Health::Stalled, format!("{}; `kill -CONT {pid}` lets it go on", Obstacle::Stopped))
        }
        (State::Running, None) => {
            verdict(Health::Stalled, format!("the process {pid} has not started the network yet: an app is being started"))
        }
        (State::Running, Some(sample)) => of_sample(sample),
    }
}

/// The health by the counters of a process that runs.
fn of_sample(sample: &Sample) -> Checkup {
    let hang = Hang::of(sample).map(|hang| hang.to_string());
    let failed = networks::failed(&sample.counters).into_iter().map(|app| {
        format!("the app `{}` has panicked and is no longer called; a reload restarts it", sanitize(&app))
    });
    let imbalances = sample.counters.imbalances().into_iter().map(|imbalance| sanitize(&imbalance.to_string()));
    let degraded: Vec<String> = failed.chain(imbalances).collect();
    let health = match (&hang, degraded.is_empty()) {
        (Some(_), _) => Health::Stalled,
        (None, false) => Health::Degraded,
        (None, true) => Health::Running,
    };
    Checkup { health, reasons: hang.into_iter().chain(degraded).collect() }
}

#[cfg(test)]
mod tests {
    use bellows_observe::{AppCounts, Snapshot, WorkerCounts};

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// A network with one worker, last seen outside of apps at 10 s, that is looked at later.
    fn sample(seconds: u64, asleep: bool, app: AppCounts) -> Sample {
        let counters = [("alive".to_owned(), 10 * SECOND)].into();
        let worker = WorkerCounts { name: "main".to_owned(), asleep, counters, ..WorkerCounts::default() };
        let counters = Snapshot { workers: vec![worker], apps: vec![app], ..Snapshot::default() };
        Sample { counters, at: (10 + seconds) * SECOND }
    }

    fn app(state: &str, leaked: i64) -> AppCounts {
        AppCounts { name: "edge\u{1b}".to_owned(), state: state.to_owned(), leaked, ..AppCounts::default() }
    }

    #[test]
    fn a_worker_that_breathes_or_sleeps_is_running() {
        for (seconds, asleep) in [(0, false), (1, false), (1_000, true)] {
            let checkup = of_sample(&sample(seconds, asleep, app("active", 0)));
            assert_eq!(checkup, Checkup { health: Health::Running, reasons: Vec::new() });
        }
    }

    #[test]
    fn every_problem_is_a_reason_and_the_worst_decides() {
        let checkup = of_sample(&sample(5, false, app("failed", 3)));
        assert_eq!((checkup.health, checkup.reasons.len()), (Health::Stalled, 3), "{checkup:?}");
        assert!(checkup.reasons[0].contains("5.00 s"), "{checkup:?}");
        for wrong in [app("failed", 0), app("active", 3)] {
            let checkup = of_sample(&sample(0, false, wrong));
            assert_eq!((checkup.health, checkup.reasons.len()), (Health::Degraded, 1), "{checkup:?}");
            assert!(!checkup.reasons[0].contains('\u{1b}'), "{checkup:?}");
        }
    }

    #[test]
    fn the_worst_health_is_the_greatest() {
        assert!(Health::ALL.is_sorted());
        assert_eq!(Health::ALL.iter().max(), Some(&Health::Crashed));
    }
}
