//! Clocks of many turns, and what many short rounds of them say.

use bellows_sys::clock;

use crate::stats::{median, quantile};

/// Clocks of the time-stamp counter that one turn takes, of many.
pub(crate) fn clocks(turns: usize, mut turn: impl FnMut()) -> f64 {
    let start = clock::ticks();
    for _ in 0..turns {
        turn();
    }
    (clock::ticks() - start) as f64 / turns as f64
}

/// The median of some rounds.
pub(crate) fn middle(samples: &[f64]) -> f64 {
    median(samples).map_or(f64::NAN, |median| median.value)
}

/// The lower quartile of some rounds: what they cost when nothing interferes.
///
/// Whatever else the machine does makes a round longer and never shorter, so the lower half of the rounds differs less
/// from process to process than the middle does.
pub(crate) fn undisturbed(samples: &[f64]) -> f64 {
    quantile(samples, 0.25).unwrap_or(f64::NAN)
}
