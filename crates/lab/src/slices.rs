//! What a turn times: slices of the same work, of which the median counts.

use bellows_sys::clock;
use serde::{Deserialize, Serialize};

use crate::timing::middle;

/// What one side did in one turn.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Turn {
    /// What it measured.
    pub figures: Vec<f64>,
    /// How long all that was timed took, in clocks.
    pub took: f64,
    /// The share of that which others had.
    pub lost: f64,
}

impl Turn {
    /// The figures of a turn that consisted of these parts.
    pub(crate) fn of(figures: Vec<f64>, parts: &[Sliced]) -> Turn {
        let took: f64 = parts.iter().map(|part| part.took).sum();
        let lost = parts.iter().map(|part| part.lost).sum::<f64>() / took.max(1.0);
        Turn { figures, took, lost }
    }
}

/// What some slices of the same work took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Sliced {
    /// Clocks of a unit of work, in the median slice.
    pub(crate) clocks: f64,
    /// Clocks of all slices.
    took: f64,
    /// Clocks by which slices were longer that took more than twice as long as the median.
    lost: f64,
}

impl Sliced {
    /// Of slices of so many units of work, which took so many clocks.
    pub(crate) fn of(slices: &[(u64, f64)]) -> Sliced {
        let each = |&(units, clocks): &(u64, f64)| clocks / units as f64;
        let clocks = middle(&slices.iter().map(each).collect::<Vec<f64>>());
        let long = slices.iter().filter(|slice| each(slice) > 2.0 * clocks);
        let lost = long.map(|&(units, took)| took - clocks * units as f64).sum();
        Sliced { clocks, took: slices.iter().map(|(_, took)| took).sum(), lost }
    }
}

/// Times some slices of the same work.
pub(crate) fn sliced(slices: usize, mut slice: impl FnMut()) -> Sliced {
    sliced_units(slices.max(1) as u64, slices.max(1), |_| slice())
}

/// Times some units of work in so many slices. Those that have nothing to do are left out.
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
    fn time_that_others_had_does_not_reach_the_median_slice() {
        let mut slices = vec![(1, 100.0); 30];
        slices.extend([(1, 5_000.0), (2, 410.0), (1, 110.0)]);
        let sliced = Sliced::of(&slices);
        assert_eq!((sliced.clocks, sliced.lost), (100.0, 4_900.0 + 210.0));
        let turn = Turn::of(vec![sliced.clocks], &[sliced, Sliced::of(&[(1, 100.0); 10])]);
        assert_eq!(turn.took, 3_000.0 + 5_520.0 + 1_000.0);
        assert!((turn.lost - 5_110.0 / 9_520.0).abs() < 1e-12);
    }

    #[test]
    fn every_slice_is_worked_off() {
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
