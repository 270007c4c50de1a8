//! Rates in bits.

use std::fmt;
use std::str::FromStr;

use super::{ValueError, ValueKind, decimals, reached, scaled, split};

/// A rate in whole bits per second, written as a number or with its unit: `10Gb/s`, `100Mbit/s`, `64kbps`.
///
/// Units are `b/s` with the decimal prefixes `k`, `M`, `G` and `T`; `bit/s` and `bps` mean the same as `b/s`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BitRate(pub(super) u64);

impl BitRate {
    /// A rate in bits per second.
    pub const fn new(bits_per_second: u64) -> BitRate {
        BitRate(bits_per_second)
    }

    /// Bits per second.
    pub const fn bits_per_second(self) -> u64 {
        self.0
    }

    /// Bytes per second.
    pub fn bytes_per_second(self) -> f64 {
        self.0 as f64 / 8.0
    }
}

const BIT_RATE: ValueKind = ValueKind {
    name: "bit rate",
    words: "bits per second such as `10Gb/s` or `100Mbit/s`",
    base: "bits per second",
    examples: &["10Gb/s", "100Mbit/s", "64kbps"],
    pattern: r"^\s*[0-9][0-9._]*\s*([kMGT]?(bit/s|b/s|bps))?\s*$",
    needs: None,
};

impl FromStr for BitRate {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<BitRate, ValueError> {
        let (number, unit) = split(text);
        let prefix = ["bit/s", "b/s", "bps"].into_iter().find_map(|base| unit.strip_suffix(base));
        let unit = match prefix {
            Some("") => 1,
            Some("k") => 1_000,
            Some("M") => 1_000_000,
            Some("G") => 1_000_000_000,
            Some("T") => 1_000_000_000_000,
            None if unit.is_empty() => 1,
            _ => return Err(BIT_RATE.refuse(text)),
        };
        scaled(text, number, unit, &BIT_RATE).map(BitRate)
    }
}

impl fmt::Display for BitRate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units =
            [(1_000_000_000_000, "Tb/s"), (1_000_000_000, "Gb/s"), (1_000_000, "Mb/s"), (1_000, "kb/s"), (1, "b/s")];
        let (unit, name) = reached(self.0, &units);
        write!(formatter, "{}{name}", decimals(self.0, unit))
    }
}

serialized_as_text!(BitRate);
written_as_text!(BitRate, BIT_RATE, ["string", "integer"], None, |number| Some(Ok(BitRate(number))), |_| None);
