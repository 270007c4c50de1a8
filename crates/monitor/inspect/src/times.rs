//! Measured durations and their percentiles.

use bellows_observe::Histogram;
use serde_json::{Value, json};

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

/// All figures about some times, as JSON.
pub fn json(histogram: &Histogram) -> Value {
    let mut times = json!({
        "samples": histogram.count(),
        "maximum_ns": longest(histogram),
        "classes": histogram.classes,
    });
    for (name, part) in PERCENTILES {
        times[format!("{}_ns", name.replace('.', "_"))] = json!(histogram.quantile(part));
    }
    times
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_given_if_there_are_times() {
        let histogram = Histogram { classes: vec![(1_000, 98), (4_000, 1), (90_000, 1)], maximum: 88_000 };
        assert_eq!(brief("latency", &histogram, 2).as_deref(), Some("latency p50 1.00 µs, p99 4.00 µs"));
        assert_eq!(json(&histogram)["p99_9_ns"], json!(88_000));
        let none = Histogram::default();
        assert_eq!((brief("latency", &none, 3), longest(&none)), (None, None));
        assert_eq!(json(&none)["p50_ns"], Value::Null);
    }
}
