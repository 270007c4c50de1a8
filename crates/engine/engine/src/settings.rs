//! The settings of an engine.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use bellows_pmu::{Event, Pmu};
use serde::{Deserialize, Serialize};

/// The schedule: how the engine executes a breath.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Schedule {
    /// A loop over boxed apps that calls each one, which then checks whether it has work: the baseline, and the oracle
    /// for the other schedules.
    Nested,
    /// One array of functions, with the words to test before each call.
    Flat,
    /// Straight-line machine code, assembled for the network. Only on x86-64, and only where the system allows
    /// generated code; `flat` replaces it elsewhere.
    Native,
}

impl Schedule {
    /// All schedules.
    pub const ALL: [Schedule; 3] = [Schedule::Nested, Schedule::Flat, Schedule::Native];
}

impl Default for Schedule {
    /// [`Native`](Schedule::Native) on x86-64, [`Flat`](Schedule::Flat) elsewhere.
    fn default() -> Schedule {
        if cfg!(target_arch = "x86_64") { Schedule::Native } else { Schedule::Flat }
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Schedule::Nested => "nested",
            Schedule::Flat => "flat",
            Schedule::Native => "native",
        })
    }
}

/// Error: no schedule has this name.
#[derive(Clone, Debug, thiserror::Error)]
#[error("there is no schedule `{0}`; choose nested, flat or native")]
pub struct UnknownSchedule(String);

impl FromStr for Schedule {
    type Err = UnknownSchedule;

    fn from_str(text: &str) -> Result<Schedule, UnknownSchedule> {
        Schedule::ALL
            .into_iter()
            .find(|schedule| schedule.to_string() == text)
            .ok_or_else(|| UnknownSchedule(text.to_owned()))
    }
}

/// The settings of an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Maximum number of packets that a source brings in per breath: 1 to 1,024.
    pub burst: usize,
    /// Call an app only while every output has room, so that no link drops packets.
    pub lossless: bool,
    /// Poll without sleeping.
    pub busywait: bool,
    /// The schedule.
    pub schedule: Schedule,
    /// Write `/tmp/perf-PID.map`, which names the sections of generated code for `perf`.
    pub perf_map: bool,
    /// Take sampled breaths at random, for the accounts, the timeline and the histograms. Without them the same packets
    /// execute the same instructions in every run.
    pub sampling: bool,
    /// Events that sampled breaths count besides clocks, on the engine's thread. The default is what the processor
    /// counts ([`Pmu::events`]), which is nothing on most virtual machines.
    pub events: Option<Vec<Event>>,
    /// A breath that takes longer is counted, recorded in the timeline, and returned by
    /// [`Control::take_slow_breaths`](crate::Control::take_slow_breaths); 0 for no limit. Run
    /// [`Control::watch_breaths`](crate::Control::watch_breaths) on a thread of its own; without it only breaths that
    /// are timed anyway are found.
    pub breath_limit: Duration,
}

impl Settings {
    /// The events to count.
    pub(crate) fn events(&self) -> &[Event] {
        match &self.events {
            _ if !self.sampling => &[],
            Some(events) => events,
            None => Pmu::probe().map_or(&[], Pmu::events),
        }
    }
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            burst: 128,
            lossless: false,
            busywait: false,
            schedule: Schedule::default(),
            perf_map: false,
            sampling: true,
            events: None,
            breath_limit: Duration::from_millis(100),
        }
    }
}
