//! The health of a network: one word and its reasons, from what the network publishes.
//!
//! Nothing is asked of the engine: the health follows from its process and from the files in its runtime directory. So
//! it is known for a network that no longer answers, and to know it costs the engine nothing.

use std::collections::HashSet;
use std::fmt;

use bellows_observe::{Imbalance, Observer, RuntimeDir};
use schemars::JsonSchema;
use serde::Serialize;

use crate::confirmation::Confirmation;
use crate::events::Condition;
use crate::networks::{self, Hang, Obstacle, Sample, State};
use crate::text::sanitize;

/// The health of a network, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, JsonSchema, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Health {
    /// Every worker breathes, and every app works.
    Running,
    /// The network runs, but not all of it works: an app has panicked and is no longer called, its books do not
    /// balance, it has an error that lasts, or a port has no link.
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

    /// Whether packets move.
    pub fn moves_packets(self) -> bool {
        matches!(self, Health::Running | Health::Degraded)
    }

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
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize)]
#[schemars(title = "Health")]
pub struct Checkup {
    /// `running`, `degraded`, `stalled` or `crashed`; [the meanings](operating.md#health).
    pub health: Health,
    /// Why it is no better, in sentences.
    ///
    /// The reasons, in sentences without a full stop, the worst first; empty if the network is running. Names of apps
    /// in them are safe to print.
    pub reasons: Vec<String>,
    /// The change that [awaits its confirmation](operating.md#changes-that-undo-themselves); null if there is none.
    pub confirmation: Option<Confirmation>,
}

/// The health of one of several networks.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize)]
#[schemars(title = "Probed network", extend("includes" = ["Health"]))]
pub struct NetworkHealth {
    /// Its name, as commands accept it.
    pub name: String,
    /// Its owner.
    pub user: String,
    /// Its health, and why it is no better.
    #[serde(flatten)]
    pub checkup: Checkup,
}

/// The health of the network in a folder, now. Opens its counters; use [`checkup`] where they are open already.
pub fn health(runtime_dir: &RuntimeDir) -> Checkup {
    let sample = Observer::open(runtime_dir.for_reading()).ok().map(|mut observer| Sample::take(&mut observer));
    checkup(runtime_dir, networks::state(runtime_dir), sample.as_ref())
}

/// What the counters of a network say about its health.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// The worker that does not breathe.
    pub hang: Option<Hang>,
    /// The apps that have panicked and are no longer called.
    pub failed: Vec<String>,
    /// The books that do not balance.
    pub imbalances: Vec<Imbalance>,
    /// The apps of the configuration that runs.
    pub apps: HashSet<String>,
}

impl Findings {
    /// Those of a sample of all counters.
    pub fn of(sample: &Sample) -> Findings {
        Findings {
            hang: Hang::of(sample),
            failed: networks::failed(&sample.counters),
            imbalances: sample.counters.imbalances(),
            apps: sample.counters.apps.iter().map(|counts| counts.name.clone()).collect(),
        }
    }

    /// What makes the network degraded, with the conditions that its process has published, in sentences.
    fn degradations(&self, conditions: &[Condition]) -> Vec<String> {
        let failed = self.failed.iter().map(|app| {
            format!("the app `{}` has panicked and is no longer called; a reload restarts it", sanitize(app))
        });
        let imbalances = self.imbalances.iter().map(|imbalance| sanitize(&imbalance.to_string()));
        // A reload may have removed the app of a condition.
        let conditions = conditions.iter().filter(|condition| self.apps.contains(&condition.app));
        let conditions = conditions.map(|Condition { condition, app, message, .. }| {
            sanitize(&format!("{condition} of the app `{app}`: {message}"))
        });
        failed.chain(imbalances).chain(conditions).collect()
    }
}

/// The problems of the network in a folder, one on each line, for reports of its counters: the state of its process and
/// the counters were read just now. The reasons of a network that is degraded are those of its [`checkup`].
pub fn problems(runtime_dir: &RuntimeDir, state: State, sample: &Sample) -> String {
    let unconfirmed = Confirmation::of(runtime_dir)
        .map(|confirmation| format!("unconfirmed: {}\n", sanitize(&confirmation.sentence(&runtime_dir.name()))));
    problems_of(state, sample, &Condition::of(runtime_dir)) + &unconfirmed.unwrap_or_default()
}

fn problems_of(state: State, sample: &Sample, conditions: &[Condition]) -> String {
    let findings = Findings::of(sample);
    let first = match state {
        State::Running => findings.hang.as_ref().map(|hang| format!("hung: {hang}\n")),
        State::Stopped => Some(format!("{}; {}\n", Obstacle::Stopped, Obstacle::continuation(sample.counters.pid))),
        State::Crashed => Some(networks::last_calls(&sample.counters)),
    };
    let degradations = findings.degradations(conditions).into_iter().map(|reason| format!("degraded: {reason}\n"));
    first.into_iter().chain(degradations).collect()
}

/// The health of the network in a folder by the state of its process and its counters, which were both read just now.
/// Without counters, the network has not started yet.
pub fn checkup(runtime_dir: &RuntimeDir, state: State, sample: Option<&Sample>) -> Checkup {
    checkup_of(runtime_dir, state, sample.map(Findings::of))
}

/// As [`checkup`], for counters that were read otherwise.
pub fn checkup_of(runtime_dir: &RuntimeDir, state: State, findings: Option<Findings>) -> Checkup {
    let pid = runtime_dir.pid().map_or_else(|| "unknown".to_owned(), |pid| pid.to_string());
    let verdict = |health, reason| Checkup { health, reasons: vec![reason], confirmation: None };
    let checkup = match (state, findings) {
        (State::Crashed, _) => verdict(Health::Crashed, format!("the process {pid} has ended without ending its run")),
        (State::Stopped, _) => {
            verdict(Health::Stalled, format!("{}; `kill -CONT {pid}` lets it go on", Obstacle::Stopped))
        }
        (State::Running, None) => verdict(
            Health::Stalled,
            format!("the process {pid} has not started the network yet: an app is being started"),
        ),
        (State::Running, Some(findings)) => judge(&findings, &Condition::of(runtime_dir)),
    };
    Checkup { confirmation: Confirmation::of(runtime_dir), ..checkup }
}

/// The health by the counters of a process that runs.
fn judge(findings: &Findings, conditions: &[Condition]) -> Checkup {
    let hang = findings.hang.as_ref().map(Hang::to_string);
    let degraded = findings.degradations(conditions);
    let health = match (&hang, degraded.is_empty()) {
        (Some(_), _) => Health::Stalled,
        (None, false) => Health::Degraded,
        (None, true) => Health::Running,
    };
    Checkup { health, reasons: hang.into_iter().chain(degraded).collect(), confirmation: None }
}

#[cfg(test)]
mod tests {
    use bellows_observe::{AppCounts, Snapshot, WorkerCounts};

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn judge_sample(sample: &Sample, conditions: &[Condition]) -> Checkup {
        judge(&Findings::of(sample), conditions)
    }

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
            let checkup = judge_sample(&sample(seconds, asleep, app("active", 0)), &[]);
            assert_eq!(checkup, Checkup { health: Health::Running, reasons: Vec::new(), confirmation: None });
        }
    }

    #[test]
    fn every_problem_is_a_reason_and_the_worst_decides() {
        let checkup = judge_sample(&sample(5, false, app("failed", 3)), &[]);
        assert_eq!((checkup.health, checkup.reasons.len()), (Health::Stalled, 3), "{checkup:?}");
        assert!(checkup.reasons[0].contains("5.00 s"), "{checkup:?}");
        for wrong in [app("failed", 0), app("active", 3)] {
            let checkup = judge_sample(&sample(0, false, wrong), &[]);
            assert_eq!((checkup.health, checkup.reasons.len()), (Health::Degraded, 1), "{checkup:?}");
            assert!(!checkup.reasons[0].contains('\u{1b}'), "{checkup:?}");
        }
    }

    #[test]
    fn a_condition_counts_as_long_as_its_app_is_there() {
        let condition = |app: &str| Condition {
            condition: "link-down".to_owned(),
            app: app.to_owned(),
            port: Some("eth0".to_owned()),
            since_ns: 0,
            last_ns: 0,
            message: "eth0: no carrier\u{7}".to_owned(),
        };
        let checkup = judge_sample(&sample(0, false, app("active", 0)), &[condition("edge\u{1b}"), condition("gone")]);
        assert_eq!(checkup.health, Health::Degraded);
        assert_eq!(checkup.reasons, ["link-down of the app `edge\u{fffd}`: eth0: no carrier\u{fffd}"]);
    }

    #[test]
    fn the_problems_in_reports_are_the_reasons_of_the_health() {
        let condition = Condition {
            condition: "app-degraded".to_owned(),
            app: "edge\u{1b}".to_owned(),
            port: None,
            since_ns: 0,
            last_ns: 0,
            message: "the disk is full".to_owned(),
        };
        let (sample, conditions) = (sample(5, false, app("failed", 3)), [condition]);
        let reasons = judge_sample(&sample, &conditions).reasons;
        assert_eq!(reasons.len(), 4);
        let problems = problems_of(State::Running, &sample, &conditions);
        let told: Vec<&str> = problems.lines().filter_map(|line| Some(line.split_once(": ")?.1)).collect();
        assert_eq!(told, reasons);
        let of_stopped = problems_of(State::Stopped, &sample, &conditions);
        assert_eq!(of_stopped.lines().skip(1).collect::<Vec<_>>(), problems.lines().skip(1).collect::<Vec<_>>());
    }

    #[test]
    fn the_worst_health_is_the_greatest() {
        assert!(Health::ALL.is_sorted());
        assert_eq!(Health::ALL.iter().max(), Some(&Health::Crashed));
    }
}
