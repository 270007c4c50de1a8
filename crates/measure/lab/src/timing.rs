//! Timing loops, and statistics over many short rounds.

use bellows_sys::clock;

use bellows_stats::{median, quantile};

/// Clocks of the time-stamp counter per turn, over many turns.
pub(crate) fn clocks(turns: usize, mut turn: impl FnMut()) -> f64 {
    let start = clock::ticks();
    for _ in 0..turns {
        turn();
    }
    (clock::ticks() - start) as f64 / turns as f64
}

/// The median of some samples, or NaN without any.
pub(crate) fn median_or_nan(samples: &[f64]) -> f64 {
    median(samples).map_or(f64::NAN, |median| median.value)
}

/// The lower quartile of some samples: the cost without interference.
///
/// Interference makes a round longer and never shorter, so the lower quartile differs less between processes than the
/// median.
pub(crate) fn lower_quartile(samples: &[f64]) -> f64 {
    quantile(samples, 0.25).unwrap_or(f64::NAN)
}

/// The half of the rounds with the shortest total time of all compared parts, quietest first. Disturbances make a round
/// longer, and choosing by the total favours none of the parts.
pub(crate) fn quieter_half<T>(mut rounds: Vec<T>, together: impl Fn(&T) -> f64) -> Vec<T> {
    rounds.sort_by(|one, other| together(one).total_cmp(&together(other)));
    rounds.truncate(rounds.len().div_ceil(2));
    rounds
}

/// Core cycles per step of the [`calibration_step`](clock::calibration_step): three for the multiplication and one for
/// the addition, on Intel processors since Nehalem and AMD processors since Zen 2 (Fog, *Instruction tables*).
pub(crate) const CYCLES_PER_STEP: f64 = 4.0;
