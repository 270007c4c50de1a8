//! Quantities as people write them: `10s`, `1.5M`, `64MiB`, `10Gb/s`.
//!
//! Each type reads text (and numbers where their unit is beyond doubt), refuses what it cannot represent with an
//! error that says how to write it, and writes itself back in one canonical form that reads as the same value.
//!
//! ```
//! use bellows_config::{BitRate, Bytes, Duration, Rate};
//!
//! assert_eq!("1.5ms".parse::<Duration>()?.nanos(), 1_500_000);
//! assert_eq!("1.5M".parse::<Rate>()?.per_second(), 1_500_000.0);
//! assert_eq!("64MiB".parse::<Bytes>()?.bytes(), 64 << 20);
//! assert_eq!("10000Mbit/s".parse::<BitRate>()?.to_string(), "10Gb/s");
//! # Ok::<(), bellows_config::ValueError>(())
//! ```

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Why a text or number is no value of a type: what is wrong with it, and how it is written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ValueError(String);

/// A span of time in whole nanoseconds, written with its unit: `10s`, `1.5ms`, `200us`, `3m`.
///
/// Units are `ns`, `us` (or `µs`), `ms`, `s`, `m` (or `min`) and `h`. The longest is about 584 years.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duration(u64);

/// A rate in packets per second, written as a number or with a decimal prefix: `250000`, `250k`, `1.5M`, `1Gpps`.
///
/// Never negative, infinite or NaN.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Rate(f64);

/// A number of bytes, written as a number or with its unit: `65536`, `64kB` (64,000), `64KiB` (65,536).
///
/// Units are `B`; `kB`, `MB`, `GB`, `TB` (powers of 1,000); `KiB`, `MiB`, `GiB`, `TiB` (powers of 1,024).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(u64);

/// A rate in whole bits per second, written as a number or with its unit: `10Gb/s`, `100Mbit/s`, `64kbps`.
///
/// Units are `b/s` with the decimal prefixes `k`, `M`, `G` and `T`; `bit/s` and `bps` mean the same as `b/s`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BitRate(u64);

impl Duration {
    /// No time.
    pub const ZERO: Duration = Duration(0);

    /// A span of so many nanoseconds.
    pub const fn from_nanos(nanos: u64) -> Duration {
        Duration(nanos)
    }

    /// A span of so many seconds, or the longest one if that is too long.
    pub const fn from_secs(seconds: u64) -> Duration {
        Duration(seconds.saturating_mul(1_000_000_000))
    }

    /// A span of so many milliseconds, or the longest one if that is too long.
    pub const fn from_millis(milliseconds: u64) -> Duration {
        Duration(milliseconds.saturating_mul(1_000_000))
    }

    /// A span of so many microseconds, or the longest one if that is too long.
    pub const fn from_micros(microseconds: u64) -> Duration {
        Duration(microseconds.saturating_mul(1_000))
    }

    /// How many nanoseconds it is.
    pub const fn nanos(self) -> u64 {
        self.0
    }

    /// How many seconds it is.
    pub fn seconds(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// The same span as the standard library has it.
    pub const fn std(self) -> std::time::Duration {
        std::time::Duration::from_nanos(self.0)
    }

    /// Whether it is no time at all.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }
}

impl From<Duration> for std::time::Duration {
    fn from(duration: Duration) -> std::time::Duration {
        duration.std()
    }
}

impl Rate {
    /// A rate in packets per second.
    ///
    /// # Errors
    /// When the number is negative or not finite.
    pub fn new(per_second: f64) -> Result<Rate, ValueError> {
        if per_second.is_finite() && per_second >= 0.0 {
            // Adding zero makes a negative zero positive.
            Ok(Rate(per_second + 0.0))
        } else {
            Err(ValueError(format!(
                "`{per_second}` is no rate; it must be a finite number of packets per second, 0 or more"
            )))
        }
    }

    /// Packets per second.
    pub const fn per_second(self) -> f64 {
        self.0
    }

    /// Nanoseconds from one packet to the next: infinite for a rate of 0.
    pub fn interval_nanos(self) -> f64 {
        1e9 / self.0
    }

    /// Whether nothing moves.
    pub const fn is_zero(self) -> bool {
        self.0 == 0.0
    }
}

impl Bytes {
    /// So many bytes.
    pub const fn new(bytes: u64) -> Bytes {
        Bytes(bytes)
    }

    /// How many bytes it is.
    pub const fn bytes(self) -> u64 {
        self.0
    }
}

impl BitRate {
    /// A rate of so many bits per second.
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

/// A number's digits and what follows them, with the blanks between taken away.
fn split(text: &str) -> (&str, &str) {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_').unwrap_or(text.len());
    (&text[..end], text[end..].trim_start())
}

/// A decimal number without sign or exponent: its digits as an integer, and how many of them are a fraction.
fn decimal(number: &str) -> Option<(u128, u32)> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let plain = |part: &str| {
        !part.is_empty()
            && !part.starts_with('_')
            && !part.ends_with('_')
            && !part.contains("__")
            && part.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_')
    };
    let digits = format!("{whole}{}", fraction.trim_end_matches('0')).replace('_', "");
    let places = fraction.trim_end_matches('0').replace('_', "").len();
    // 22 digits times the largest unit stay below 2^128.
    let short = digits.trim_start_matches('0').len() <= 22 && places <= 22;
    (plain(whole) && plain(fraction) && short).then(|| Some((digits.parse().ok()?, places as u32)))?
}

/// The whole number that a decimal number of units is.
fn scaled(text: &str, number: &str, unit: u64, kind: &Kind) -> Result<u64, ValueError> {
    let (digits, places) = decimal(number).ok_or_else(|| kind.refuse(text))?;
    let divisor = 10u128.pow(places);
    let product = digits * u128::from(unit);
    if !product.is_multiple_of(divisor) {
        return Err(ValueError(format!("`{text}` is no whole number of {}", kind.base)));
    }
    u64::try_from(product / divisor)
        .map_err(|_| ValueError(format!("`{text}` is too much; the most is {} {}", u64::MAX, kind.base)))
}

/// What errors and schemas say about a type.
struct Kind {
    name: &'static str,
    words: &'static str,
    base: &'static str,
    examples: &'static [&'static str],
    /// The units that it is written in; `None` where numbers are accepted.
    needs: Option<&'static str>,
}

const DURATION: Kind = Kind {
    name: "duration",
    words: "duration such as `10s` or `1.5ms`",
    base: "nanoseconds",
    examples: &["10s", "1.5ms", "200us", "3m"],
    needs: Some("with its unit (`ns`, `us`, `ms`, `s`, `m` or `h`)"),
};

const RATE: Kind = Kind {
    name: "rate",
    words: "packets per second such as `250k` or `1.5M`",
    base: "packets per second",
    examples: &["1000", "250k", "1.5M"],
    needs: None,
};

const BYTES: Kind = Kind {
    name: "number of bytes",
    words: "number of bytes such as `64MiB` or `1GB`",
    base: "bytes",
    examples: &["65536", "64KiB", "1GB"],
    needs: None,
};

const BIT_RATE: Kind = Kind {
    name: "bit rate",
    words: "bits per second such as `10Gb/s` or `100Mbit/s`",
    base: "bits per second",
    examples: &["10Gb/s", "100Mbit/s", "64kbps"],
    needs: None,
};

impl Kind {
    fn written(&self) -> String {
        let examples: Vec<String> = self.examples.iter().map(|example| format!("`{example}`")).collect();
        let needs = self.needs.map(|needs| format!("{needs}, ")).unwrap_or_default();
        format!("write it {needs}like {}", examples.join(", "))
    }

    fn refuse(&self, text: &str) -> ValueError {
        ValueError(format!("`{text}` is no {}; {}", self.name, self.written()))
    }
}

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

/// A number of units as the shortest decimal number: `unit` is a power of ten.
fn decimals(value: u64, unit: u64) -> String {
    let (whole, rest) = (value / unit, value % unit);
    if rest == 0 {
        return whole.to_string();
    }
    let places = unit.ilog10() as usize;
    format!("{whole}.{}", format!("{rest:0places$}").trim_end_matches('0'))
}

/// The largest unit that the value reaches; the last one otherwise.
fn reached<'u>(value: u64, units: &[(u64, &'u str)]) -> (u64, &'u str) {
    let found = units.iter().find(|(unit, _)| value >= *unit).or(units.last());
    found.copied().unwrap_or((1, ""))
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

impl FromStr for Rate {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Rate, ValueError> {
        let (number, unit) = split(text);
        let prefix = unit.strip_suffix("pps").or(unit.strip_suffix("/s")).unwrap_or(unit);
        let exponent = match prefix.trim_end() {
            "" => 0,
            "k" => 3,
            "M" => 6,
            "G" => 9,
            _ => return Err(RATE.refuse(text)),
        };
        if decimal(number).is_none() {
            return Err(RATE.refuse(text));
        }
        // Scaling in the text rounds once, so what is displayed reads as the same number.
        let value = format!("{}e{exponent}", number.replace('_', "")).parse().map_err(|_| RATE.refuse(text))?;
        Rate::new(value)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.0;
        let (prefix, shift) = match value {
            _ if value >= 1e9 => ("G", 9),
            _ if value >= 1e6 => ("M", 6),
            _ if value >= 1e3 => ("k", 3),
            _ => ("", 0),
        };
        let scientific = format!("{value:e}");
        let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
        let digits = mantissa.replace('.', "");
        let point = exponent.parse::<i32>().unwrap_or(0) - shift + 1;
        match usize::try_from(point) {
            Ok(point) if point >= digits.len() => write!(formatter, "{digits:0<point$}{prefix}"),
            Ok(point) if point > 0 => write!(formatter, "{}.{}{prefix}", &digits[..point], &digits[point..]),
            _ => write!(formatter, "0.{digits:0>width$}{prefix}", width = digits.len() + point.unsigned_abs() as usize),
        }
    }
}

impl FromStr for Bytes {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Bytes, ValueError> {
        let (number, unit) = split(text);
        let unit = match unit {
            "" | "B" => 1,
            "kB" | "KB" => 1_000,
            "MB" => 1_000_000,
            "GB" => 1_000_000_000,
            "TB" => 1_000_000_000_000,
            "KiB" | "kiB" => 1 << 10,
            "MiB" => 1 << 20,
            "GiB" => 1 << 30,
            "TiB" => 1 << 40,
            _ => return Err(BYTES.refuse(text)),
        };
        scaled(text, number, unit, &BYTES).map(Bytes)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units: [(u64, &str); 8] = [
            (1 << 40, "TiB"),
            (1 << 30, "GiB"),
            (1 << 20, "MiB"),
            (1 << 10, "KiB"),
            (1_000_000_000_000, "TB"),
            (1_000_000_000, "GB"),
            (1_000_000, "MB"),
            (1_000, "kB"),
        ];
        let whole = units.iter().find(|(unit, _)| self.0 > 0 && self.0.is_multiple_of(*unit));
        match whole {
            Some((unit, name)) => write!(formatter, "{}{name}", self.0 / unit),
            None => write!(formatter, "{}B", self.0),
        }
    }
}

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

/// Reads a value from text or, where the type allows it, a number.
struct Reader<T> {
    kind: &'static Kind,
    integer: fn(u64) -> Option<T>,
    float: fn(f64) -> Option<Result<T, ValueError>>,
}

impl<T: FromStr<Err = ValueError>> Visitor<'_> for Reader<T> {
    type Value = T;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "a {}", self.kind.words)
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<T, E> {
        (self.integer)(number).ok_or_else(|| E::custom(self.kind.refuse(&number.to_string())))
    }

    fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<T, E> {
        match u64::try_from(number) {
            Ok(number) => self.visit_u64(number),
            Err(_) => Err(E::custom(self.kind.refuse(&number.to_string()))),
        }
    }

    fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<T, E> {
        match (self.float)(number) {
            Some(value) => value.map_err(E::custom),
            None => Err(E::invalid_type(Unexpected::Float(number), &self)),
        }
    }
}

macro_rules! written_as_text {
    ($type:ident, $kind:ident, $types:expr, $integer:expr, $float:expr) => {
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<$type, D::Error> {
                deserializer.deserialize_any(Reader { kind: &$kind, integer: $integer, float: $float })
            }
        }

        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl JsonSchema for $type {
            fn schema_name() -> Cow<'static, str> {
                stringify!($type).into()
            }

            fn inline_schema() -> bool {
                true
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({
                    "type": $types,
                    "format": $kind.name,
                    "examples": $kind.examples,
                    "x-type": $kind.words,
                })
            }
        }
    };
}

written_as_text!(Duration, DURATION, "string", |_| None, |_| None);
written_as_text!(Rate, RATE, ["string", "number"], |number| Some(Rate(number as f64)), |number| Some(Rate::new(
    number
)));
written_as_text!(Bytes, BYTES, ["string", "integer"], |number| Some(Bytes(number)), |_| None);
written_as_text!(BitRate, BIT_RATE, ["string", "integer"], |number| Some(BitRate(number)), |_| None);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn refused<T: FromStr<Err = ValueError> + fmt::Debug>(text: &str) -> String {
        text.parse::<T>().unwrap_err().to_string()
    }

    #[test]
    fn durations_read_as_they_are_written() {
        for (text, nanos, canonical) in [
            ("10s", 10_000_000_000, "10s"),
            ("1.5ms", 1_500_000, "1.5ms"),
            ("0.2 ms", 200_000, "200us"),
            ("200µs", 200_000, "200us"),
            ("90s", 90_000_000_000, "90s"),
            ("3m", 180_000_000_000, "3m"),
            ("1.5h", 5_400_000_000_000, "90m"),
            ("0ns", 0, "0s"),
            ("1_000.000_5us", 1_000_000, "refused"),
        ] {
            match text.parse::<Duration>() {
                Ok(duration) => assert_eq!((duration.nanos(), duration.to_string().as_str()), (nanos, canonical)),
                Err(error) => assert_eq!((canonical, error.to_string().contains("no whole number")), ("refused", true)),
            }
        }
    }

    #[test]
    fn what_is_no_duration_is_told_how_to_write_one() {
        let how = "write it with its unit (`ns`, `us`, `ms`, `s`, `m` or `h`), like `10s`, `1.5ms`, `200us`, `3m`";
        for text in ["", "10", "s", "-1s", "1e3s", "1..5s", "10 seconds", "1,5s", "_1s", "1_s"] {
            assert_eq!(refused::<Duration>(text), format!("`{text}` is no duration; {how}"));
        }
        assert_eq!(refused::<Duration>("0.5ns"), "`0.5ns` is no whole number of nanoseconds");
        assert!(refused::<Duration>("6000000h").starts_with("`6000000h` is too much; the most is"));
        let error = serde_json::from_str::<Duration>("10").unwrap_err().to_string();
        assert!(error.starts_with("`10` is no duration; write it with its unit"), "{error}");
    }

    #[test]
    fn rates_sizes_and_bit_rates_know_their_units() {
        let rate = |text: &str| text.parse::<Rate>().unwrap();
        assert_eq!(rate("1.1M").per_second(), 1.1e6);
        assert_eq!((rate("0.25").to_string(), rate("1234567pps").to_string()), ("0.25".into(), "1.234567M".into()));
        assert_eq!((rate("12k").to_string(), rate("0").to_string()), ("12k".into(), "0".into()));
        assert!(refused::<Rate>("1.5m").contains("write it like `1000`, `250k`, `1.5M`"));
        let bytes = |text: &str| text.parse::<Bytes>().unwrap();
        assert_eq!((bytes("1.5KiB").bytes(), bytes("1GB").bytes()), (1536, 1_000_000_000));
        assert_eq!((bytes("1536").to_string(), bytes("1000").to_string()), ("1536B".into(), "1kB".into()));
        assert!(refused::<Bytes>("64M").starts_with("`64M` is no number of bytes"));
        let bits = |text: &str| text.parse::<BitRate>().unwrap();
        assert_eq!((bits("100Mbit/s"), bits("2.5Gbps")), (BitRate(100_000_000), BitRate(2_500_000_000)));
        assert_eq!(bits("2500000000").to_string(), "2.5Gb/s");
        assert!(refused::<BitRate>("10GB/s").starts_with("`10GB/s` is no bit rate"));
    }

    #[test]
    fn numbers_are_read_where_their_unit_is_plain() {
        assert_eq!(serde_json::from_str::<Rate>("2.5").unwrap().per_second(), 2.5);
        assert_eq!(serde_json::from_str::<Bytes>("42").unwrap().bytes(), 42);
        assert_eq!(serde_json::from_str::<BitRate>("42").unwrap().bits_per_second(), 42);
        assert!(serde_json::from_str::<Rate>("-1.0").unwrap_err().to_string().contains("0 or more"));
        assert!(serde_json::from_str::<Bytes>("-1").unwrap_err().to_string().contains("`-1` is no number of bytes"));
        assert!(serde_json::from_str::<Bytes>("[]").unwrap_err().to_string().contains("a number of bytes such as"));
    }

    proptest! {
        /// What is displayed reads as the same value.
        #[test]
        fn values_survive_a_round_trip(number: u64, shift in 0u32..64, decade in 0u32..20) {
            let number = (number >> shift) / 10u64.pow(decade) * 10u64.pow(decade);
            prop_assert_eq!(Duration(number).to_string().parse(), Ok(Duration(number)));
            prop_assert_eq!(Bytes(number).to_string().parse(), Ok(Bytes(number)));
            prop_assert_eq!(BitRate(number).to_string().parse(), Ok(BitRate(number)));
        }

        #[test]
        fn rates_survive_a_round_trip(mantissa in 0.0..10f64, exponent in -3..12i32, places in 0..6usize) {
            for value in [mantissa * 10f64.powi(exponent), format!("{mantissa:.places$}e{exponent}").parse().unwrap()] {
                let rate = Rate::new(value).unwrap();
                prop_assert_eq!(rate.to_string().parse(), Ok(rate));
            }
        }

        #[test]
        fn no_text_is_too_strange(text in "[0-9._µkMGTbBpistmuhn/ -]{0,40}|.*") {
            let _ = (text.parse::<Duration>(), text.parse::<Rate>(), text.parse::<Bytes>(), text.parse::<BitRate>());
        }
    }
}
