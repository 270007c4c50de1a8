//! Slow breaths: those that exceed `breath_limit`.

use std::time::Duration;

use crate::slab::CurrentCall;

/// A slow breath: a breath, or work between two breaths such as a reload, that took longer than `breath_limit` in the
/// engine's settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlowBreath {
    /// The worker, if there are several.
    pub worker: Option<String>,
    /// Its duration, in nanoseconds.
    pub nanos: u64,
    /// The time of this for which the whole process stood still, in nanoseconds: the process was stopped by a signal or
    /// a debugger, or the machine was.
    pub stood_still: u64,
    /// The time of this for which the engine's thread was on a processor, in nanoseconds, if known. If the kernel
    /// does not report steal time of the host, it is included.
    pub on_processor: Option<u64>,
    /// The app in which the engine was most of this time; `None` if it was in none, or the watchdog did not see it.
    pub doing: Option<CurrentCall>,
}

impl SlowBreath {
    /// Whether it was slow only because the process stood still.
    pub fn is_standstill(&self, limit: Duration) -> bool {
        u128::from(self.nanos.saturating_sub(self.stood_still)) <= limit.as_nanos()
    }
}

/// Slow breaths that have not been reported yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlowBreaths {
    /// The first of them.
    pub first: Vec<SlowBreath>,
    /// The number of further ones.
    pub more: u64,
}
