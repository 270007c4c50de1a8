//! Whether the networks of a machine run as they should, together.

use bellows_inspect::health::{Findings, Health, NetworkHealth};
use bellows_inspect::networks::Hang;
use bellows_observe::{CounterCells, Imbalance, Reading, Totals};
use bellows_sys::clock;
use schemars::JsonSchema;
use serde::Serialize;

/// The health of several networks: the worst of them.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize)]
#[schemars(title = "Health of all networks")]
pub struct MachineHealth {
    /// The worst; [the meanings](operating.md#health); null if there is no network.
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

/// What counters say about the health of their network.
pub(crate) fn findings(reading: &Reading, totals: &Totals) -> Findings {
    let directory = reading.directory();
    let names = (0..).map_while(|position| directory.app(position)).map(|entry| entry.name.as_str());
    let gone = directory.gone_apps.iter().map(|entry| (entry.name.as_str(), Totals::of_gone(reading, entry)));
    let apps: Vec<_> = names.zip(totals.apps.iter().copied()).collect();
    let failed = apps.iter().take(directory.apps.len()).filter(|(_, totals)| totals.failed);
    let imbalances = apps.iter().copied().chain(gone).filter(|(_, totals)| totals.leaked != 0 || totals.uncounted != 0);
    Findings {
        hang: Hang::at(reading.pulse(), clock::unix_ns()),
        failed: failed.map(|(name, _)| (*name).to_owned()).collect(),
        imbalances: imbalances
            .map(|(name, totals)| Imbalance {
                app: name.to_owned(),
                leaked: totals.leaked,
                uncounted: totals.uncounted,
            })
            .collect(),
        apps: apps.iter().map(|(name, _)| (*name).to_owned()).collect(),
    }
}
