//! The named events.

use std::fmt;
use std::str::FromStr;

/// An event that can be counted.
///
/// The first eight are the processor's, and need a [`Pmu`](crate::Pmu); the others are the kernel's, and every Linux
/// has them. Names are stable; [`Event::name`] gives them, and they are parsed in the same form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Event {
    /// Cycles of the core while it is not halted, at any frequency.
    Cycles,
    /// Cycles while the core is not halted, at the constant rate of the time-stamp counter.
    RefCycles,
    /// Instructions retired.
    Instructions,
    /// Branches retired that were mispredicted.
    BranchMisses,
    /// Loads that hit the first-level cache.
    L1Hits,
    /// Loads that hit the second-level cache.
    L2Hits,
    /// Loads that hit the third-level cache.
    L3Hits,
    /// Loads that missed all caches of this group of cores.
    L3Misses,
    /// Time on a processor, in nanoseconds.
    TaskClock,
    /// Page faults of both kinds.
    PageFaults,
    /// Page faults that needed no input.
    MinorFaults,
    /// Page faults that waited for input.
    MajorFaults,
    /// Switches from this thread to another.
    ContextSwitches,
    /// Moves of this thread to another processor.
    CpuMigrations,
}

impl Event {
    /// All events, in the order of tables.
    pub const ALL: [Event; 14] = [
        Event::Cycles,
        Event::RefCycles,
        Event::Instructions,
        Event::BranchMisses,
        Event::L1Hits,
        Event::L2Hits,
        Event::L3Hits,
        Event::L3Misses,
        Event::TaskClock,
        Event::PageFaults,
        Event::MinorFaults,
        Event::MajorFaults,
        Event::ContextSwitches,
        Event::CpuMigrations,
    ];

    /// The events that the processor counts.
    pub const HARDWARE: [Event; 8] = [
        Event::Cycles,
        Event::RefCycles,
        Event::Instructions,
        Event::BranchMisses,
        Event::L1Hits,
        Event::L2Hits,
        Event::L3Hits,
        Event::L3Misses,
    ];

    /// The name: lower case, with underscores.
    pub fn name(self) -> &'static str {
        match self {
            Event::Cycles => "cycles",
            Event::RefCycles => "ref_cycles",
            Event::Instructions => "instructions",
            Event::BranchMisses => "branch_misses",
            Event::L1Hits => "l1_hits",
            Event::L2Hits => "l2_hits",
            Event::L3Hits => "l3_hits",
            Event::L3Misses => "l3_misses",
            Event::TaskClock => "task_clock",
            Event::PageFaults => "page_faults",
            Event::MinorFaults => "minor_faults",
            Event::MajorFaults => "major_faults",
            Event::ContextSwitches => "context_switches",
            Event::CpuMigrations => "cpu_migrations",
        }
    }

    /// Whether the processor counts it, rather than the kernel.
    pub fn is_hardware(self) -> bool {
        Event::HARDWARE.contains(&self)
    }

    /// Whether it only happens in the kernel, so that a user without access to the kernel's events cannot count it.
    pub(crate) fn is_in_kernel(self) -> bool {
        matches!(self, Event::ContextSwitches | Event::CpuMigrations)
    }
}

impl fmt::Display for Event {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

/// A name that no [`Event`] has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown event `{0}`; the events are {list}", list = Event::ALL.map(Event::name).join(", "))]
pub struct UnknownEvent(pub String);

impl FromStr for Event {
    type Err = UnknownEvent;

    fn from_str(name: &str) -> Result<Event, UnknownEvent> {
        Event::ALL.into_iter().find(|event| event.name() == name).ok_or_else(|| UnknownEvent(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_is_found_by_its_name_and_no_other_is() {
        for event in Event::ALL {
            assert_eq!(event.to_string().parse(), Ok(event));
        }
        let error = "L1_hits".parse::<Event>().unwrap_err().to_string();
        assert!(error.contains("`L1_hits`") && error.contains("l1_hits, l2_hits") && error.ends_with("cpu_migrations"));
    }
}
