//! Whether networks run as they should: one word for each, and its reasons.
//!
//! The health follows from the process and from the files that a network publishes, so it is known for one that no
//! longer answers.

use bellows_inspect::networks::{Hang, Obstacle, State};
use bellows_inspect::text::sanitize;
use bellows_observe::{CounterCells, Imbalance, Reading, RuntimeDir, Totals};
use bellows_sys::clock;
use serde::Serialize;

/// The health of a network, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Health {
    /// Every worker breathes, and every app works.
    Running,
    /// The network runs, but an app has panicked and is no longer called, or its books do not balance.
    Degraded,
    /// The process lives, but a worker does not breathe: the process is stopped, an app does not return, or the network
    /// has not started yet.
    Stalled,
    /// The process has ended without ending its run.
    Crashed,
}

impl Health {
    /// All of them, the best first.
    pub const ALL: [Health; 4] = [Health::Running, Health::Degraded, Health::Stalled, Health::Crashed];

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Health::Running => "running",
            Health::Degraded => "degraded",
            Health::Stalled => "stalled",
            Health::Crashed => "crashed",
        }
    }

    /// Whether packets move.
    pub fn moves_packets(self) -> bool {
        matches!(self, Health::Running | Health::Degraded)
    }
}

/// The health of a network, and why it is no better.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Checkup {
    /// The health.
    pub health: Health,
    /// The reasons, in sentences without a full stop, the worst first; empty if the network is running.
    pub reasons: Vec<String>,
}

/// The health of one of several networks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NetworkHealth {
    /// The network's name, as commands accept it.
    pub name: String,
    /// The user who owns it.
    pub user: String,
    /// Its health, and why it is no better.
    #[serde(flatten)]
    pub checkup: Checkup,
}

/// The health of several networks: the worst of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MachineHealth {
    /// The worst health; `None` if there is no network.
    pub health: Option<Health>,
    /// The networks.
    pub networks: Vec<NetworkHealth>,
}

impl MachineHealth {
    /// The health of these networks together.
    pub fn of(networks: Vec<NetworkHealth>) -> MachineHealth {
        MachineHealth { health: networks.iter().map(|network| network.checkup.health).max(), networks }
    }

    /// Whether there are networks, and packets move in each of them.
    pub fn moves_packets(&self) -> bool {
        self.health.is_some_and(Health::moves_packets)
    }
}

/// The health of the network in a folder by the state of its process and its counters, which were both read just now.
/// Without counters, the network has not started yet.
pub(crate) fn checkup(runtime_dir: &RuntimeDir, state: State, counters: Option<(&Reading, &Totals)>) -> Checkup {
    let verdict = |health, reason| Checkup { health, reasons: vec![reason] };
    let pid = runtime_dir.pid().map_or_else(|| "unknown".to_owned(), |pid| pid.to_string());
    match (state, counters) {
        (State::Crashed, _) => verdict(Health::Crashed, format!("the process {pid} has ended without ending its run")),
        (State::Stopped, _) => {
            verdict(Health::Stalled, format!("{}; `kill -CONT {pid}` lets it go on", Obstacle::Stopped))
        }
        (State::Running, None) => {
            verdict(Health::Stalled, format!("the process {pid} has not started the network yet"))
        }
        (State::Running, Some((reading, totals))) => {
            of_counters(Hang::at(reading.pulse(), clock::unix_ns()), reading, totals)
        }
    }
}

fn of_counters(hang: Option<Hang>, reading: &Reading, totals: &Totals) -> Checkup {
    let directory = reading.directory();
    let names = (0..).map_while(|position| directory.app(position)).map(|entry| entry.name.as_str());
    let gone = directory.gone_apps.iter().map(|entry| (entry.name.as_str(), Totals::of_gone(reading, entry)));
    let apps: Vec<_> = names.zip(totals.apps.iter().copied()).chain(gone).collect();
    let failed = apps.iter().take(directory.apps.len()).filter(|(_, totals)| totals.failed).map(|(name, _)| {
        format!("the app `{}` has panicked and is no longer called; a reload restarts it", sanitize(name))
    });
    let unbalanced = apps.iter().filter(|(_, totals)| totals.leaked != 0 || totals.uncounted != 0);
    let unbalanced = unbalanced.map(|(name, totals)| {
        let imbalance = Imbalance { app: (*name).to_owned(), leaked: totals.leaked, uncounted: totals.uncounted };
        sanitize(&imbalance.to_string())
    });
    let degraded: Vec<String> = failed.chain(unbalanced).collect();
    let health = match (&hang, degraded.is_empty()) {
        (Some(_), _) => Health::Stalled,
        (None, false) => Health::Degraded,
        (None, true) => Health::Running,
    };
    Checkup { health, reasons: hang.iter().map(Hang::to_string).chain(degraded).collect() }
}
