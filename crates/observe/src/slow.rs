//! Breaths that took longer than they may.

use std::time::Duration;

use crate::slab::CurrentCall;

/// A breath, or what was done between two, such as a reload, that took longer than
/// `breath_limit` in the engine's settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlowBreath {
    /// How long it took, in nanoseconds.
    pub nanos: u64,
    /// For how long of this the whole process stood still, in nanoseconds: it was stopped, by a signal or a debugger,
    /// or the machine was.
    pub stood_still: u64,
    /// For how long of this the engine's thread was on a processor, in nanoseconds, as far as it is known. Time that
    /// the host took from a virtual machine counts as on the processor where the kernel does not know better.
    pub on_processor: Option<u64>,
    /// The app in which the engine was most of this time; `None` if it was in none, or nobody saw it.
    pub doing: Option<CurrentCall>,
}

impl SlowBreath {
    /// Whether it was not slow but for the process having stood still.
    pub fn is_standstill(&self, limit: Duration) -> bool {
        u128::from(self.nanos.saturating_sub(self.stood_still)) <= limit.as_nanos()
    }
}

/// Slow breaths that nobody has told of yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlowBreaths {
    /// The first of them.
    pub first: Vec<SlowBreath>,
    /// How many came after these.
    pub more: u64,
}
