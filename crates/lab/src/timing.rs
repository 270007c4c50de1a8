//! Clocks of many turns, and what many short rounds of them say.

use std::hint::black_box;

use bellows_sys::clock;

use bellows_stats::{median, quantile};

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

/// The half of some rounds in which all that is compared took least together, the quietest first: what disturbs a round
/// makes it longer, and the choice favours none of those that are compared.
pub(crate) fn quieter_half<T>(mut rounds: Vec<T>, together: impl Fn(&T) -> f64) -> Vec<T> {
    rounds.sort_by(|one, other| together(one).total_cmp(&together(other)));
    rounds.truncate(rounds.len().div_ceil(2));
    rounds
}

/// How fast the processor runs at this moment: clocks of the time-stamp counter for a step of a loop whose steps each wait
/// for the one before, and which touches no memory.
///
/// A processor's frequency changes from second to second; what is divided by this is free of it.
pub(crate) fn yardstick() -> f64 {
    const STEPS: u64 = 5_000;
    let mut number = black_box(1u64);
    clocks(1, || {
        for _ in 0..STEPS {
            // Of a product with itself no optimizer makes one step of several.
            number = number.wrapping_mul(number).wrapping_add(1_442_695_040_888_963_407);
        }
        number = black_box(number);
    }) / STEPS as f64
}

/// Cycles of the core that a step of the [`yardstick`] takes: three for the multiplication and one for the addition, on
/// Intel's processors since Nehalem and AMD's since Zen 2 (Fog, *Instruction tables*).
pub(crate) const CYCLES_A_STEP: f64 = 4.0;

#[cfg(test)]
mod tests {
    use super::*;

    /// A multiplication and an addition take some clocks: the optimizer has not made one step of many, nor none.
    #[test]
    fn the_yardstick_takes_every_step() {
        clock::calibrate();
        let step = undisturbed(&(0..20).map(|_| yardstick()).collect::<Vec<f64>>());
        assert!((1.0..100.0).contains(&(step * 2.6e9 / clock::ticks_per_second() as f64)), "{step} clocks");
    }
}
