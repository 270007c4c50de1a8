//! Timing loops, and statistics over many short rounds.

use std::hint::black_box;

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

/// The processor's current speed: clocks of the time-stamp counter per step of a dependency chain that touches no
/// memory.
///
/// A processor's frequency changes from second to second; dividing by this figure cancels it out.
pub(crate) fn calibration_step() -> f64 {
    const STEPS: u64 = 5_000;
    let mut number = black_box(1u64);
    clocks(1, || {
        for _ in 0..STEPS {
            // No optimizer can combine several of these steps.
            number = number.wrapping_mul(number).wrapping_add(1_442_695_040_888_963_407);
        }
        number = black_box(number);
    }) / STEPS as f64
}

/// Core cycles per step of the [`calibration_step`]: three for the multiplication and one for the addition, on Intel
/// processors since Nehalem and AMD processors since Zen 2 (Fog, *Instruction tables*).
pub(crate) const CYCLES_PER_STEP: f64 = 4.0;

#[cfg(test)]
mod tests {
    use super::*;

    /// Each step takes some clocks, so the optimizer has not removed any.
    #[test]
    fn the_optimizer_keeps_every_step() {
        clock::calibrate();
        let step = lower_quartile(&(0..20).map(|_| calibration_step()).collect::<Vec<f64>>());
        assert!((1.0..100.0).contains(&(step * 2.6e9 / clock::ticks_per_second() as f64)), "{step} clocks");
    }
}
