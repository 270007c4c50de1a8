//! Histograms of times, in cells of shared memory.
//!
//! A class is a sixteenth of an octave, so a quantile is accurate to 6 percent, from 16 clocks up to an hour. Counting
//! a time takes a few instructions. The idea is that of HdrHistogram (Tene 2012).

use std::collections::BTreeMap;

use bellows_stats::nearest_rank;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::classes::{CLASSES, class_of, longest_of};
use crate::slab::{CounterCells, Slab, WorkerEntry};

/// Counts a time in the cells from `first` on.
#[inline]
pub fn record(slab: &Slab, first: usize, time: u64) {
    slab.add(first + class_of(time), 1);
    if slab.get(first + CLASSES) < time {
        slab.set(first + CLASSES, time);
    }
}

/// The number of times in each class, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[schemars(title = "Histogram")]
pub struct Histogram {
    /// A class's upper bound, and its count (empty classes are left out; a class is 6 percent wide).
    pub classes: Vec<(u64, u64)>,
    /// The longest time.
    pub maximum: u64,
}

impl Histogram {
    /// The sum of a histogram over these workers, whose counters are in these cells. `which` is a position in
    /// [`NAMES`](crate::layout::histogram::NAMES).
    pub fn of_workers(cells: &impl CounterCells, which: usize, workers: &[WorkerEntry]) -> Histogram {
        let ticks_per_second = u128::from(cells.directory().ticks_per_second.max(1));
        let nanos =
            |clocks: u64| (u128::from(clocks) * 1_000_000_000 / ticks_per_second).try_into().unwrap_or(u64::MAX);
        let first: Vec<usize> = workers.iter().map(|worker| worker.histogram(which)).collect();
        Histogram::read(cells, &first, nanos)
    }

    /// Reads the sum of the histograms whose first cells are given; they hold clocks. `nanos` converts clocks to
    /// nanoseconds.
    pub(crate) fn read(cells: &impl CounterCells, first: &[usize], nanos: impl Fn(u64) -> u64) -> Histogram {
        let mut classes: Vec<(u64, u64)> = Vec::new();
        for class in 0..CLASSES {
            let count = first.iter().fold(0, |sum: u64, first| sum.saturating_add(cells.get(first + class)));
            let longest = nanos(longest_of(class));
            match classes.last_mut() {
                // Several of the lowest classes may be the same nanosecond.
                Some(last) if last.0 == longest => last.1 = last.1.saturating_add(count),
                _ => classes.push((longest, count)),
            }
        }
        classes.retain(|&(_, count)| count > 0);
        let maximum = first.iter().map(|first| cells.get(first + CLASSES)).max().unwrap_or(0);
        Histogram { classes, maximum: nanos(maximum) }
    }

    /// The histogram of times in nanoseconds.
    pub fn of_times(times: impl IntoIterator<Item = u64>) -> Histogram {
        let (mut counts, mut maximum) = (BTreeMap::new(), 0);
        for time in times {
            *counts.entry(longest_of(class_of(time))).or_insert(0) += 1;
            maximum = time.max(maximum);
        }
        Histogram { classes: counts.into_iter().collect(), maximum }
    }

    /// The number of times that it holds.
    pub fn count(&self) -> u64 {
        self.classes.iter().fold(0, |sum, &(_, count)| sum.saturating_add(count))
    }

    /// A time that at least a share `part` of all do not exceed, within 6 percent; `None` if there are none.
    pub fn quantile(&self, part: f64) -> Option<u64> {
        let rank = nearest_rank(self.count(), part);
        let mut below = 0u64;
        for &(longest, count) in &self.classes {
            below = below.saturating_add(count);
            if below >= rank {
                return Some(longest.min(self.maximum));
            }
        }
        (!self.classes.is_empty()).then_some(self.maximum)
    }

    /// The times counted since an earlier reading. The maximum is that of the highest class or, if the overall maximum
    /// is in that class, the overall maximum.
    pub fn since(&self, earlier: &Histogram) -> Histogram {
        let mut before = earlier.classes.iter().copied().peekable();
        let mut classes = Vec::new();
        for &(longest, count) in &self.classes {
            while before.next_if(|&(other, _)| other < longest).is_some() {}
            let old = before.next_if(|&(other, _)| other == longest).map_or(0, |(_, count)| count);
            // A count that shrank belongs to another run.
            let grown = count.checked_sub(old).unwrap_or(count);
            if grown > 0 {
                classes.push((longest, grown));
            }
        }
        let maximum = classes.last().map_or(0, |&(longest, _)| longest.min(self.maximum));
        Histogram { classes, maximum }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn histogram(times: &[u64]) -> Histogram {
        Histogram::of_times(times.iter().copied())
    }

    proptest! {
        #[test]
        fn quantiles_are_right_to_six_percent(
            mut times in proptest::collection::vec(0u64..1 << 40, 1..200),
            part in 0.0..=1.0f64,
        ) {
            let quantile = histogram(&times).quantile(part).unwrap();
            times.sort();
            let exact = times[((times.len() as f64 * part).ceil() as usize).max(1) - 1];
            prop_assert!(quantile >= exact && quantile - exact <= exact / 16, "{quantile} for {exact}");
        }

        #[test]
        fn differences_of_histograms_are_exact(
            before in proptest::collection::vec(0u64..100_000, 0..50),
            after in proptest::collection::vec(0u64..100_000, 0..50),
        ) {
            let all = histogram(&[&before[..], &after].concat());
            let since = all.since(&histogram(&before));
            prop_assert_eq!(&since.classes, &histogram(&after).classes);
            prop_assert!(since.maximum >= after.iter().max().copied().unwrap_or(0));
            prop_assert_eq!(since.quantile(0.5).is_none(), after.is_empty());
        }
    }
}
