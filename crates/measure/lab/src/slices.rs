//! The timed slices of a turn, of which the median counts.

use bellows_sys::clock;
use serde::{Deserialize, Serialize};

use crate::timing::median_or_nan;

/// The result of one turn of one side.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Turn {
    /// The figures.
    pub figures: Vec<f64>,
    /// The clocks of everything that was timed.
    pub took: f64,
    /// The share of these clocks lost to the host and to other programs.
    pub lost: f64,
}

impl Turn {
    /// A turn with these figures and timed parts.
    pub(crate) fn of(figures: Vec<f64>, parts: &[Sliced]) -> Turn {
        let took: f64 = parts.iter().map(|part| part.took).sum();
        let lost = parts.iter().map(|part| part.lost).sum::<f64>() / took.max(1.0);
        Turn { figures, took, lost }
    }
}

/// The timing of some slices of the same work.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Sliced {
    /// Clocks per unit of work in the median slice.
    pub(crate) clocks: f64,
    /// Clocks of all slices.
    took: f64,
    /// Excess clocks of slices that took more than twice the median.
    lost: f64,
    /// Units of work in all slices.
    units: u64,
}

impl Sliced {
    /// Clocks per unit of work in all slices, less what was lost: to compare with means of samples.
    pub(crate) fn usual_mean(&self) -> f64 {
        (self.took - self.lost) / self.units as f64
    }

    /// The timing of slices, given as (units of work, clocks).
    pub(crate) fn of(slices: &[(u64, f64)]) -> Sliced {
        let units = slices.iter().map(|(units, _)| units).sum();
        let each = |&(units, clocks): &(u64, f64)| clocks / units as f64;
        let clocks = median_or_nan(&slices.iter().map(each).collect::<Vec<f64>>());
        let long = slices.iter().filter(|slice| each(slice) > 2.0 * clocks);
        let lost = long.map(|&(units, took)| took - clocks * units as f64).sum();
        Sliced { clocks, took: slices.iter().map(|(_, took)| took).sum(), lost, units }
    }
}

/// Times some slices of the same work.
pub(crate) fn sliced(slices: usize, mut slice: impl FnMut()) -> Sliced {
    sliced_units(slices.max(1) as u64, slices.max(1), |_| slice())
}

/// Times `units` units of work in `slices` slices. Empty slices are left out.
pub(crate) fn sliced_units(units: u64, slices: usize, mut work: impl FnMut(u64)) -> Sliced {
    let cost = clock::cost();
    let slices = slices as u64;
    let times: Vec<(u64, f64)> = (0..slices)
        .map(|slice| units * (slice + 1) / slices - units * slice / slices)
        .filter(|units| *units > 0)
        .map(|units| {
            let start = clock::ticks();
            work(units);
            (units, (clock::ticks() - start).saturating_sub(cost) as f64)
        })
        .collect();
    Sliced::of(&times)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_time_does_not_affect_the_median_slice() {
        let mut slices = vec![(1, 100.0); 30];
        slices.extend([(1, 5_000.0), (2, 410.0), (1, 110.0)]);
        let sliced = Sliced::of(&slices);
        assert_eq!((sliced.clocks, sliced.lost), (100.0, 4_900.0 + 210.0));
        assert_eq!(sliced.usual_mean(), (3_000.0 + 100.0 + 200.0 + 110.0) / 34.0);
        let turn = Turn::of(vec![sliced.clocks], &[sliced, Sliced::of(&[(1, 100.0); 10])]);
        assert_eq!(turn.took, 3_000.0 + 5_520.0 + 1_000.0);
        assert!((turn.lost - 5_110.0 / 9_520.0).abs() < 1e-12);
    }

    #[test]
    fn every_unit_of_work_is_done() {
        let mut worked = 0;
        assert!(sliced(7, || worked += 1).clocks >= 0.0);
        assert_eq!(worked, 7);
        let mut slices = Vec::new();
        sliced_units(7, 3, |units| slices.push(units));
        assert_eq!(slices, [2, 2, 3]);
        slices.clear();
        sliced_units(2, 20, |units| slices.push(units));
        assert_eq!(slices, [1, 1]);
    }
}
