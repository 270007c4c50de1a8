//! How an engine runs.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use bellows_pmu::{Event, Pmu};
use serde::{Deserialize, Serialize};

/// How the engine takes a breath.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Schedule {
    /// The textbook loop over boxed apps, each of which is called and looks for itself whether it has anything to do: the
    /// baseline, and the oracle for the others.
    Nested,
    /// One array of functions and the words to test before each.
    Flat,
    /// Straight-line machine code, assembled for the network. Only on x86-64, and only where the system lets code be made;
    /// elsewhere `flat` takes its place.
    Native,
}

impl Schedule {
    /// All of them.
    pub const ALL: [Schedule; 3] = [Schedule::Nested, Schedule::Flat, Schedule::Native];
}

impl Default for Schedule {
    /// [`Native`](Schedule::Native) where there is code for it.
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

/// A word names no schedule.
#[derive(Clone, Debug, thiserror::Error)]
#[error("there is no schedule `{0}`; there are nested, flat and native")]
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

/// How an engine runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Packets that a source brings in a breath: 1 to 1,024.
    pub burst: usize,
    /// Run an app only while every output has room, so that no link drops.
    pub lossless: bool,
    /// Poll without sleeping.
    pub busywait: bool,
    /// How to take a breath.
    pub schedule: Schedule,
    /// Write `/tmp/perf-PID.map`, by which `perf` names the stretches of generated code.
    pub perf_map: bool,
    /// Take sampled breaths, chosen at random, for the accounts, the timeline and the histograms. Without them the same
    /// packets take the same instructions in each run.
    pub sampling: bool,
    /// What the sampled breaths count besides clocks, on the thread that takes them; by default what the processor
    /// counts ([`Pmu::events`]), which is nothing on most virtual machines.
    pub events: Option<Vec<Event>>,
    /// A breath that takes longer is counted, recorded in the timeline, and kept to be told of
    /// ([`Control::take_slow_breaths`](crate::Control::take_slow_breaths)); 0 for none. A thread that [watches](crate::Control::watch_breaths) has to be given,
    /// or only breaths are found that are timed by themselves.
    pub breath_limit: Duration,
}

impl Settings {
    /// The events that are counted.
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
