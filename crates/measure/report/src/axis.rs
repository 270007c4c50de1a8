//! Axes: a range, and round numbers within it.

use schemars::JsonSchema;
use serde::Serialize;

use crate::words;

/// The approximate number of marks on an axis.
const MARKS: f64 = 5.0;

/// A range of numbers with marks at round ones.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize)]
#[schemars(title = "Axis")]
pub struct Axis {
    /// Its begin.
    pub low: f64,
    /// Its end.
    pub high: f64,
    /// Marks at round numbers.
    pub marks: Vec<Mark>,
}

/// A mark on an axis.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize)]
#[schemars(title = "Mark of an axis")]
pub struct Mark {
    /// Its place.
    pub at: f64,
    /// Its text.
    pub text: String,
}

impl Axis {
    /// An axis for these finite values with a margin around them; from 0 to 1 without values.
    pub(crate) fn around(values: impl IntoIterator<Item = f64>, margin: f64) -> Axis {
        let (low, high) = values
            .into_iter()
            .filter(|value| value.is_finite())
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (value.min(low), value.max(high)));
        if low > high {
            return Axis::of(0.0, 1.0);
        }
        // Halves: the range of huge numbers can exceed the largest number.
        let half = (high / 2.0 - low / 2.0) * (1.0 + 2.0 * margin);
        let middle = low / 2.0 + high / 2.0;
        let least = (middle.abs() * 0.05).max(f64::MIN_POSITIVE * 1e9);
        let half = if half > middle.abs() * 1e-9 { half } else { least };
        let half = if middle == 0.0 && half < 1e-290 { 1.0 } else { half.min(f64::MAX / 8.0) };
        Axis::of(middle - half, middle + half)
    }

    /// An axis from one number to another.
    pub(crate) fn of(low: f64, high: f64) -> Axis {
        let step = step((high - low) / MARKS);
        let first = (low / step).ceil();
        let numbers = (0..64).map(|index| (first + f64::from(index)) * step).take_while(|at| *at <= high).take(12);
        let decimals = (-step.log10().floor()).clamp(0.0, 12.0) as usize;
        let large = low.abs().max(high.abs());
        let mark = |at: f64| {
            let at = if at.abs() < step * 1e-6 { 0.0 } else { at };
            let text = match large {
                large if (1e-3..1e6).contains(&large) => words::with_minus(&words::decimals(at, decimals)),
                _ => words::brief(at),
            };
            Mark { at, text }
        };
        Axis { low, high, marks: numbers.map(mark).collect() }
    }

    /// The place of a value: 0 at the begin, 1 at the end. Values outside are at the ends.
    pub(crate) fn place(&self, value: f64) -> f64 {
        ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
    }
}

/// The round number, 1, 2 or 5 times a power of ten, that is at least as large.
fn step(least: f64) -> f64 {
    let power = 10f64.powf(least.max(f64::MIN_POSITIVE).log10().floor());
    [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power).into_iter().find(|&step| step >= least).unwrap_or(least)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_round_and_within_the_axis() {
        for (low, high) in [(0.0, 1.0), (-3.2, 17.9), (1e9, 1.000_001e9), (-1e307, 1e307), (1e-9, 2e-9), (9.3, 9.5)] {
            let axis = Axis::of(low, high);
            assert!((1..=12).contains(&axis.marks.len()), "{axis:?}");
            assert!(axis.marks.iter().all(|mark| (low..=high).contains(&mark.at)), "{axis:?}");
        }
        let texts: Vec<String> = Axis::of(9.3, 9.5).marks.into_iter().map(|mark| mark.text).collect();
        assert_eq!(texts, ["9.30", "9.35", "9.40", "9.45", "9.50"]);
    }

    #[test]
    fn any_values_have_an_axis() {
        for values in [
            vec![],
            vec![0.0],
            vec![5.0, 5.0],
            vec![f64::NAN],
            vec![-f64::MAX, f64::MAX],
            vec![1e-300, 2e-300],
            vec![1e300, 1e300],
        ] {
            let axis = Axis::around(values.iter().copied(), 0.05);
            assert!(axis.low < axis.high && (axis.high - axis.low).is_finite(), "{values:?} {axis:?}");
            let places = values.iter().filter(|value| value.is_finite()).map(|value| axis.place(*value));
            assert!(places.into_iter().all(|place| (0.0..=1.0).contains(&place)));
        }
    }
}
