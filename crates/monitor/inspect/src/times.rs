//! Measured durations and their percentiles.

use bellows_observe::Histogram;
use schemars::JsonSchema;
use serde::Serialize;

use crate::text::nanos;

/// The histograms: their names, and what they measure.
pub const TIMES: [(&str, &str); 2] =
    [("latency", "from a packet's source to its end"), ("breath", "a breath in which packets move")];

/// Percentiles: the name, and the share of all times that do not exceed it.
pub const PERCENTILES: [(&str, f64); 3] = [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)];

/// The longest time; `None` if there are none.
pub fn longest(histogram: &Histogram) -> Option<u64> {
    (histogram.count() > 0).then_some(histogram.maximum)
}

/// The first `most` percentiles on one line; `None` if there are no times. `latency p50 1.25 µs, p99 4 µs`.
pub fn brief(name: &str, histogram: &Histogram, most: usize) -> Option<String> {
    let percentile = |(name, part): &(&str, f64)| Some(format!("{name} {}", nanos(histogram.quantile(*part)?)));
    let percentiles: Vec<String> = PERCENTILES.iter().take(most).map(percentile).collect::<Option<_>>()?;
    Some(format!("{name} {}", percentiles.join(", ")))
}

/// The percentiles that every report has.
#[derive(Clone, Copy, Debug, Default, PartialEq, JsonSchema, Serialize)]
#[schemars(title = "Percentiles")]
pub struct Percentiles {
    /// The median; null without samples.
    pub p50_ns: Option<u64>,
    /// The 99th percentile; null without samples.
    pub p99_ns: Option<u64>,
}

impl Percentiles {
    /// Those of some times.
    pub fn of(histogram: &Histogram) -> Percentiles {
        Percentiles { p50_ns: histogram.quantile(0.5), p99_ns: histogram.quantile(0.99) }
    }
}

/// All figures about some times.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize)]
#[schemars(title = "Times", extend("includes" = ["Percentiles"]))]
pub struct Times {
    /// The number of times.
    pub samples: u64,
    /// Median and 99th percentile.
    #[serde(flatten)]
    pub percentiles: Percentiles,
    /// The 99.9th percentile; null without samples.
    pub p99_9_ns: Option<u64>,
    /// The longest time; null without samples.
    pub maximum_ns: Option<u64>,
    /// As in [Histogram](#histogram).
    pub classes: Vec<(u64, u64)>,
}

impl Times {
    /// Those of a histogram.
    pub fn of(histogram: &Histogram) -> Times {
        Times {
            samples: histogram.count(),
            percentiles: Percentiles::of(histogram),
            p99_9_ns: histogram.quantile(0.999),
            maximum_ns: longest(histogram),
            classes: histogram.classes.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_given_if_there_are_times() {
        let histogram = Histogram { classes: vec![(1_000, 98), (4_000, 1), (90_000, 1)], maximum: 88_000 };
        assert_eq!(brief("latency", &histogram, 2).as_deref(), Some("latency p50 1.00 µs, p99 4.00 µs"));
        assert_eq!(Times::of(&histogram).p99_9_ns, Some(88_000));
        let none = Histogram::default();
        assert_eq!((brief("latency", &none, 3), longest(&none)), (None, None));
        assert_eq!(Percentiles::of(&none).p50_ns, None);
    }
}
