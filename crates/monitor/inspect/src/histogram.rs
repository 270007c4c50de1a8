//! Histograms of times with logarithmic classes.

use std::fmt::Write;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The upper bounds of the classes in a decade: the preferred numbers R10 (ISO 3), each about a quarter larger than the
/// last.
const DECADE: [u64; 10] = [100, 125, 160, 200, 250, 315, 400, 500, 630, 800];

/// A histogram of times: pairs of inclusive upper bound in nanoseconds, and count.
///
/// The classes are contiguous, from that of the shortest time to that of the longest. All times up to 100 ns are in one
/// class.
///
/// [`bellows_observe::Histogram`] has binary classes for counting in a few instructions; these decimal classes are for
/// reports. `From` converts one to the other.
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Histogram(pub Vec<(u64, u64)>);

impl From<&bellows_observe::Histogram> for Histogram {
    /// The same times in wider classes. Each narrow class counts by its upper bound.
    fn from(narrow: &bellows_observe::Histogram) -> Histogram {
        Histogram::counted(narrow.classes.iter().copied())
    }
}

/// All upper bounds in ascending order; the last is `u64::MAX`.
fn bounds() -> impl Iterator<Item = u64> {
    let decades = (0..18).map_while(|decade| 10u64.checked_pow(decade));
    let bounds = decades.flat_map(|scale| DECADE.into_iter().filter_map(move |bound| bound.checked_mul(scale)));
    bounds.chain([u64::MAX])
}

impl Histogram {
    /// The histogram of some times in nanoseconds.
    pub fn of(times: &[u64]) -> Histogram {
        Histogram::counted(times.iter().map(|&time| (time, 1)))
    }

    /// The histogram of some times with their counts.
    fn counted(times: impl Iterator<Item = (u64, u64)>) -> Histogram {
        let bounds: Vec<u64> = bounds().collect();
        let mut counts = vec![0u64; bounds.len()];
        for (time, count) in times {
            let class = &mut counts[bounds.partition_point(|&bound| bound < time)];
            *class = class.saturating_add(count);
        }
        let is_filled = |count: &u64| *count > 0;
        let first = counts.iter().position(is_filled).unwrap_or(0);
        let end = counts.iter().rposition(is_filled).map_or(0, |last| last + 1);
        Histogram(bounds.into_iter().zip(counts).take(end).skip(first).collect())
    }

    /// A line with a bar for each class that is not empty; `⋮` stands for empty classes.
    pub fn text(&self) -> String {
        let most = self.0.iter().map(|&(_, count)| count).max().unwrap_or(0);
        let mut text = String::new();
        let mut gap = false;
        for &(bound, count) in &self.0 {
            if count == 0 {
                if !gap {
                    let _ = writeln!(text, "{:>11}", "⋮");
                }
            } else {
                let _ = writeln!(text, "  ≤ {:>7}  {:<width$}  {count}", span(bound), bar(count, most), width = WIDTH);
            }
            gap = count == 0;
        }
        text
    }
}

/// Columns of the longest bar.
const WIDTH: usize = 40;

/// A bar of block characters, proportional to the count, rounded up to an eighth of a column.
fn bar(count: u64, most: u64) -> String {
    let eighths = (u128::from(count) * WIDTH as u128 * 8).div_ceil(u128::from(most.max(1))) as usize;
    let last = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"][eighths % 8];
    "█".repeat(eighths / 8) + last
}

/// A time in a suitable unit.
pub fn span(nanos: u64) -> String {
    let (value, unit) = match nanos as f64 {
        nanos if nanos < 1e3 => (nanos, "ns"),
        nanos if nanos < 1e6 => (nanos / 1e3, "µs"),
        nanos if nanos < 1e9 => (nanos / 1e6, "ms"),
        nanos => (nanos / 1e9, "s"),
    };
    let decimals = match value {
        value if value == value.trunc() || value >= 100.0 => 0,
        value if value >= 10.0 => 1,
        _ => 2,
    };
    format!("{value:.decimals$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn classes_are_contiguous_from_the_shortest_to_the_longest_time() {
        let histogram = Histogram::of(&[1_600, 1_000, 1_001, 3, 2_500]);
        let bounds: Vec<u64> = histogram.0.iter().map(|&(bound, _)| bound).collect();
        let expected = [100, 125, 160, 200, 250, 315, 400, 500, 630, 800, 1_000, 1_250, 1_600, 2_000, 2_500];
        assert_eq!(bounds, expected);
        let filled: Vec<(u64, u64)> = histogram.0.into_iter().filter(|&(_, count)| count > 0).collect();
        assert_eq!(filled, [(100, 1), (1_000, 1), (1_250, 1), (1_600, 1), (2_500, 1)]);
        assert_eq!(Histogram::of(&[]), Histogram(vec![]));
    }

    #[test]
    fn an_engine_histogram_is_converted_to_wider_classes() {
        let classes = vec![(990, 3), (1_000, 1), (1_023, 2), (1_900, 5), (u64::MAX, u64::MAX), (u64::MAX, 7)];
        let histogram = Histogram::from(&bellows_observe::Histogram { classes, maximum: u64::MAX });
        assert_eq!(histogram.0[..4], [(1_000, 4), (1_250, 2), (1_600, 0), (2_000, 5)]);
        assert_eq!(histogram.0.last(), Some(&(u64::MAX, u64::MAX)), "no sum wraps");
        let nothing = bellows_observe::Histogram::default();
        assert_eq!(Histogram::from(&nothing), Histogram(vec![]));
    }

    #[test]
    fn bars_are_as_long_as_their_share() {
        let times = [vec![900; 80], vec![1_100; 40], vec![5_000; 1]].concat();
        let text = Histogram::of(&times).text();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4, "{text}");
        let blocks = |line: &str| line.chars().filter(|&c| c == '█').count();
        assert_eq!((blocks(lines[0]), blocks(lines[1]), blocks(lines[3])), (40, 20, 0), "{text}");
        assert!(lines[0].starts_with("  ≤    1 µs ") && lines[0].ends_with(" 80"), "{text}");
        assert_eq!(lines[2].trim(), "⋮");
        assert!(lines[3].contains("≤    5 µs  ▌") && lines[3].ends_with(" 1"), "{text}");
    }

    #[test]
    fn times_are_written_in_a_suitable_unit() {
        for (nanos, text) in
            [(100, "100 ns"), (1_250, "1.25 µs"), (31_500, "31.5 µs"), (2_000_000, "2 ms"), (1_600_000_000, "1.60 s")]
        {
            assert_eq!(span(nanos), text);
        }
    }

    proptest! {
        /// Every time is in the first class whose bound is not below it, as a naive search finds it.
        #[test]
        fn every_time_is_in_its_class(times in proptest::collection::vec(prop_oneof![0..10_000u64, any::<u64>()], 1..100)) {
            let histogram = Histogram::of(&times);
            let bounds: Vec<u64> = bounds().collect();
            prop_assert!(bounds.is_sorted_by(|one, next| one < next));
            let class = |time: u64| bounds.iter().position(|&bound| time <= bound).unwrap();
            let (first, last) = (class(*times.iter().min().unwrap()), class(*times.iter().max().unwrap()));
            let expected: Vec<(u64, u64)> = (first..=last)
                .map(|index| (bounds[index], times.iter().filter(|&&time| class(time) == index).count() as u64))
                .collect();
            prop_assert_eq!(histogram.0, expected);
        }
    }
}
