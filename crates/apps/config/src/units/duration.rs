//! Spans of time.

use std::fmt;
use std::str::FromStr;

use super::{ValueError, ValueKind, decimals, reached, scaled, split};

/// A span of time in whole nanoseconds, written with its unit: `10s`, `1.5ms`, `200us`, `3m`.
///
/// Units are `ns`, `us` (or `µs`), `ms`, `s`, `m` (or `min`) and `h`. The longest is about 584 years.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duration(u64);

impl Duration {
    /// No time.
    pub const ZERO: Duration = Duration(0);

    /// A duration of `nanos` nanoseconds.
    pub const fn from_nanos(nanos: u64) -> Duration {
        Duration(nanos)
    }

    /// A duration of `seconds` seconds, at most the maximum.
    pub const fn from_secs(seconds: u64) -> Duration {
        Duration(seconds.saturating_mul(1_000_000_000))
    }

    /// A duration of `milliseconds` milliseconds, at most the maximum.
    pub const fn from_millis(milliseconds: u64) -> Duration {
        Duration(milliseconds.saturating_mul(1_000_000))
    }

    /// A duration of `microseconds` microseconds, at most the maximum.
    pub const fn from_micros(microseconds: u64) -> Duration {
        Duration(microseconds.saturating_mul(1_000))
    }

    /// The duration in nanoseconds.
    pub const fn nanos(self) -> u64 {
        self.0
    }

    /// The duration in seconds.
    pub fn seconds(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// The same duration as the standard library's type.
    pub const fn std(self) -> std::time::Duration {
        std::time::Duration::from_nanos(self.0)
    }

    /// Whether the duration is zero.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }
}

impl From<Duration> for std::time::Duration {
    fn from(duration: Duration) -> std::time::Duration {
        duration.std()
    }
}

const DURATION: ValueKind = ValueKind {
    name: "duration",
    words: "duration such as `10s` or `1.5ms`",
    base: "nanoseconds",
    examples: &["10s", "1.5ms", "200us", "3m"],
    pattern: r"^\s*[0-9][0-9._]*\s*(ns|us|µs|μs|ms|s|m|min|h)\s*$",
    needs: Some("with its unit (`ns`, `us`, `ms`, `s`, `m` or `h`)"),
};

impl FromStr for Duration {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Duration, ValueError> {
        let (number, unit) = split(text);
        let unit = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" | "min" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return Err(DURATION.refuse(text)),
        };
        scaled(text, number, unit, &DURATION).map(Duration)
    }
}

impl fmt::Display for Duration {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0;
        for (unit, name) in [(3_600_000_000_000, "h"), (60_000_000_000, "m")] {
            if nanos > 0 && nanos.is_multiple_of(unit) {
                return write!(formatter, "{}{name}", nanos / unit);
            }
        }
        if nanos == 0 {
            return formatter.write_str("0s");
        }
        let (unit, name) = reached(nanos, &[(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us"), (1, "ns")]);
        write!(formatter, "{}{name}", decimals(nanos, unit))
    }
}

serialized_as_text!(Duration);
written_as_text!(Duration, DURATION, "string", None, |_| None, |_| None);
