//! The names and descriptions of counters.

/// A counter of an app's own: its name in reports, and its description.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counter {
    /// Lower-case words joined by `_`.
    pub name: &'static str,
    /// Its description, on one line.
    pub help: &'static str,
    /// Its unit: packets by default.
    pub unit: &'static str,
    /// For a drop reason: whether the network asks for these drops, as a rate limiter's. All other drops are losses
    /// that the report of a run points out.
    pub asked: bool,
    /// Whether it is a number that may also fall, and not a count.
    pub gauge: bool,
}

impl Counter {
    /// A counter of this name. As a drop reason it stands for unintended drops.
    pub const fn new(name: &'static str, help: &'static str) -> Counter {
        Counter { name, help, unit: "packets", asked: false, gauge: false }
    }

    /// A counter with a unit other than packets.
    #[must_use]
    pub const fn in_unit(self, unit: &'static str) -> Counter {
        Counter { unit, ..self }
    }

    /// A drop reason for intended drops: the configuration asks for them.
    #[must_use]
    pub const fn asked(self) -> Counter {
        Counter { asked: true, ..self }
    }

    /// A number that may also fall.
    #[must_use]
    pub const fn gauge(self) -> Counter {
        Counter { gauge: true, ..self }
    }
}

/// The counter for an app's progress (bytes of a file, for example).
pub const PROGRESS: &str = "progress";

/// The counter for the final value of [`PROGRESS`].
pub const PROGRESS_TOTAL: &str = "progress_total";
