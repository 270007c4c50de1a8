//! What to measure, and how.

use std::path::PathBuf;

use bellows_config::BenchStep;
use bellows_engine::{Schedule, Settings};
use serde::{Deserialize, Serialize};

use crate::residence::{Levels, NotFound, Residence, Resident};
use crate::supply::SupplyConfig;
use crate::traffic::{Traffic, TrafficError};

/// The apps to measure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Subject {
    /// Apps in a row, between a source and a sink.
    Row(ChainRow),
    /// An app in its place in a network.
    InPlace(InPlace),
}

/// Apps in a row, as [`load_chain`](bellows_config::load_chain) reads them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ChainRow {
    /// The apps.
    pub apps: String,
    /// The apps of the baseline; if empty, the baseline has no apps in their place.
    pub against: String,
    /// Inputs of the first app that get packets; all if empty.
    pub inputs: Vec<String>,
    /// Outputs of the last app that lead to a sink; all if empty.
    pub outputs: Vec<String>,
    /// The tables of shared objects that the apps name.
    pub objects: String,
    /// The apps that packets have passed when they come to the first one.
    pub before: Vec<BenchStep>,
}

/// An app of a network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct InPlace {
    /// The network file.
    pub file: PathBuf,
    /// Settings of the command line.
    pub set: Vec<String>,
    /// The app's name in it.
    pub app: String,
}

/// The source of event counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Counters {
    /// The processor's performance counters, if it has any.
    #[default]
    Processor,
    /// Callgrind's simulated processor.
    Valgrind,
}

/// The options of a measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AppbenchOptions {
    /// The apps to measure.
    pub subject: Subject,
    /// Packets that each process sends through each of the two networks. Default: 10 million, or 1 million if packets
    /// are prepared for each round.
    pub packets: Option<u64>,
    /// The number of fresh processes.
    pub processes: usize,
    /// Packets per breath. Default: 128, or the network's burst.
    pub burst: Option<usize>,
    /// The schedule. Default: the engine's default, or the network's schedule.
    pub schedule: Option<Schedule>,
    /// The processor to measure on. Default: the last one that the process may use.
    pub cpu: Option<usize>,
    /// The cache levels that packets come from, each in turn. Default: fresh from the source.
    pub residents: Vec<Resident>,
    /// The packets. Default: 60 bytes.
    pub traffic: Option<Traffic>,
    /// Offered packets per second. Default: as fast as possible.
    pub offered: Option<f64>,
    /// Prefetch distances, each in turn. Default: the app's own.
    pub prefetch: Vec<usize>,
    /// The source of event counts.
    pub counters: Counters,
}

impl AppbenchOptions {
    /// The default options for a subject.
    pub fn new(subject: Subject) -> AppbenchOptions {
        AppbenchOptions {
            subject,
            packets: None,
            processes: 15,
            burst: None,
            schedule: None,
            cpu: None,
            residents: Vec::new(),
            traffic: None,
            offered: None,
            prefetch: Vec::new(),
            counters: Counters::default(),
        }
    }

    pub(super) fn packets(&self) -> u64 {
        self.packets.unwrap_or(if self.residents.is_empty() { 10_000_000 } else { 1_000_000 })
    }

    pub(super) fn cells(&self, levels: Option<&Levels>) -> Result<Vec<AppbenchCell>, NotFound> {
        let residence = |&level: &Resident| levels.map(|levels| levels.residence(level)).transpose();
        let residences: Vec<Option<Residence>> = match self.residents.as_slice() {
            [] => vec![None],
            levels => levels.iter().map(residence).collect::<Result<_, _>>()?,
        };
        let distances: Vec<Option<usize>> = match self.prefetch.as_slice() {
            [] => vec![None],
            distances => distances.iter().copied().map(Some).collect(),
        };
        let cells = |&residence: &Option<Residence>| {
            distances.iter().map(move |&prefetch| AppbenchCell { residence, prefetch })
        };
        Ok(residences.iter().flat_map(cells).collect())
    }

    /// What the measurement's sources send.
    pub(super) fn supply_config(&self, cell: AppbenchCell, supplies: usize) -> Result<SupplyConfig, TrafficError> {
        let traffic = self.traffic.clone().map_or_else(|| SMALL.parse(), Ok)?;
        let offered = self.offered.map(|all| all / supplies.max(1) as f64);
        Ok(SupplyConfig { traffic, residence: cell.residence, offered, supplies })
    }

    /// Whether all options about packets have their defaults.
    pub(super) fn is_plain(&self) -> bool {
        self.residents.is_empty() && self.traffic.is_none() && self.offered.is_none()
    }

    /// The settings with these options in place of the network's.
    pub(super) fn over(&self, settings: Settings) -> Settings {
        let (burst, schedule) = (self.burst.unwrap_or(settings.burst), self.schedule.unwrap_or(settings.schedule));
        Settings { burst, schedule, ..settings }
    }
}

/// The default traffic: the smallest Ethernet frames.
const SMALL: &str = "60";

/// One combination of varied conditions.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct AppbenchCell {
    /// The cache level that packets come from. Default: fresh from the source.
    pub residence: Option<Residence>,
    /// The prefetch distance. Default: the app's own.
    pub prefetch: Option<usize>,
}
