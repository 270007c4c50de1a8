//! What counters are called, and what they count.

/// A counter of an app's own: its name in reports, and what it counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counter {
    /// Lower-case words joined by `_`.
    pub name: &'static str,
    /// What it counts, in one line.
    pub help: &'static str,
    /// What it is a number of: packets, unless something else is named.
    pub unit: &'static str,
    /// Of a reason for drops: whether the network asks for these losses, as a rate limiter's. Others are losses that the
    /// report of a run points out.
    pub asked: bool,
}

impl Counter {
    /// A counter of this name. As a reason for drops it is a loss that nobody has asked for.
    pub const fn new(name: &'static str, help: &'static str) -> Counter {
        Counter { name, help, unit: "packets", asked: false }
    }

    /// A counter of something else than packets.
    #[must_use]
    pub const fn in_unit(self, unit: &'static str) -> Counter {
        Counter { unit, ..self }
    }

    /// A reason for drops that are what the network is for: whoever configured the app wants them.
    #[must_use]
    pub const fn asked(self) -> Counter {
        Counter { asked: true, ..self }
    }
}

/// The counter that says how far an app has come through its work (bytes of a file, say).
pub const PROGRESS: &str = "progress";

/// The counter that says what [`PROGRESS`] will be at the end.
pub const PROGRESS_TOTAL: &str = "progress_total";
