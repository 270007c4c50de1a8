//! Quantities with units: `10s`, `1.5M`, `64MiB`, `10Gb/s`, `30% of 10Gb/s`, `1%`.
//!
//! Each type parses text, and numbers where the unit is unambiguous. Parse errors say how to write a value. Each type
//! displays as one canonical text that parses to the same value.
//!
//! ```
//! use bellows_config::{BitRate, Bytes, Duration, Fraction, Rate, TrafficRate};
//!
//! assert_eq!("1.5ms".parse::<Duration>()?.nanos(), 1_500_000);
//! assert_eq!("1.5M".parse::<Rate>()?.per_second(), 1_500_000.0);
//! assert_eq!("64MiB".parse::<Bytes>()?.bytes(), 64 << 20);
//! assert_eq!("10000Mbit/s".parse::<BitRate>()?.to_string(), "10Gb/s");
//! assert_eq!("30% of 10Gb/s".parse::<TrafficRate>()?.to_string(), "3Gb/s L1");
//! assert_eq!("1%".parse::<Fraction>()?.get(), 0.01);
//! # Ok::<(), bellows_config::ValueError>(())
//! ```

/// Reads a value from text or from a number, and describes it in schemas.
macro_rules! written_as_text {
    ($type:ident, $kind:ident, $types:expr, $most:expr, $integer:expr, $float:expr) => {
        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<$type, D::Error> {
                deserializer.deserialize_any(super::ValueReader { kind: &$kind, integer: $integer, float: $float })
            }
        }

        impl schemars::JsonSchema for $type {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($type).into()
            }

            fn inline_schema() -> bool {
                true
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                let mut schema = schemars::json_schema!({
                    "type": $types,
                    "format": $kind.name,
                    "pattern": $kind.pattern,
                    "examples": $kind.examples,
                    "x-type": $kind.words,
                });
                if schema.get("type").is_some_and(|types| types.is_array()) {
                    schema.insert("minimum".to_owned(), 0.into());
                }
                if let Some(most) = $most {
                    let most: u64 = most;
                    schema.insert("maximum".to_owned(), most.into());
                }
                schema
            }
        }
    };
}

/// Serializes a value as the text that parses to the same value.
macro_rules! serialized_as_text {
    ($type:ident) => {
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
    };
}

mod bit_rate;
mod bytes;
mod duration;
mod fraction;
mod rate;
mod traffic_rate;

use std::fmt;
use std::str::FromStr;

use serde::de::{Unexpected, Visitor};

pub use bit_rate::BitRate;
pub use bytes::Bytes;
pub use duration::Duration;
pub use fraction::Fraction;
pub use rate::Rate;
pub use traffic_rate::{TrafficRate, wire_bytes};

/// Why a text or number is not a value of a type, and how to write one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ValueError(String);

impl ValueError {
    pub(crate) fn new(message: String) -> ValueError {
        ValueError(message)
    }
}

/// Splits a number from its unit, without the spaces between.
fn split(text: &str) -> (&str, &str) {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_').unwrap_or(text.len());
    (&text[..end], text[end..].trim_start())
}

/// Parses a decimal number without sign or exponent: its digits as an integer, and the number of fractional digits.
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

/// A decimal number times its unit, which must be a whole number.
fn scaled(text: &str, number: &str, unit: u64, kind: &ValueKind) -> Result<u64, ValueError> {
    let (digits, places) = decimal(number).ok_or_else(|| kind.refuse(text))?;
    let divisor = 10u128.pow(places);
    let product = digits * u128::from(unit);
    if !product.is_multiple_of(divisor) {
        return Err(ValueError(format!("`{text}` is not a whole number of {}", kind.base)));
    }
    u64::try_from(product / divisor)
        .map_err(|_| ValueError(format!("`{text}` is too large; the maximum is {} {}", u64::MAX, kind.base)))
}

/// The description of a type for errors and schemas.
struct ValueKind {
    name: &'static str,
    words: &'static str,
    base: &'static str,
    examples: &'static [&'static str],
    /// A regular expression for editors.
    pattern: &'static str,
    /// The required units; `None` if plain numbers are accepted.
    needs: Option<&'static str>,
}

impl ValueKind {
    fn written(&self) -> String {
        let examples: Vec<String> = self.examples.iter().map(|example| format!("`{example}`")).collect();
        let needs = self.needs.map(|needs| format!("{needs}, ")).unwrap_or_default();
        format!("write it {needs}like {}", examples.join(", "))
    }

    fn refuse(&self, text: &str) -> ValueError {
        ValueError(format!("`{text}` is not a {}; {}", self.name, self.written()))
    }

    /// [`ValueKind::refuse`] for a text with a known correction.
    fn correct(&self, text: &str, meant: &str) -> ValueError {
        ValueError(format!("`{text}` is not a {}; did you mean `{meant}`?", self.name))
    }
}

/// Corrects the spelling of a rate's unit: upper and lower case, and "per second".
fn respelled_rate(text: &str) -> Option<String> {
    let (number, unit) = split(text);
    decimal(number)?;
    let unit = unit.to_ascii_lowercase().replace(' ', "");
    let (prefix, base) = match unit.strip_prefix(['k', 'm', 'g', 't']) {
        Some(rest) if !rest.is_empty() => (unit[..1].to_owned(), rest),
        _ => (String::new(), unit.as_str()),
    };
    let prefix = if prefix == "k" { prefix } else { prefix.to_uppercase() };
    match base {
        "pps" | "p/s" | "packets/s" | "packets" | "pkt/s" | "pkts/s" if prefix != "T" => {
            Some(format!("{number}{prefix}pps"))
        }
        "b" | "bit" | "bits" | "b/s" | "bit/s" | "bits/s" | "bps" | "bitps" => Some(format!("{number}{prefix}b/s")),
        _ => None,
    }
}

/// `value / unit` as the shortest decimal number. `unit` is a power of ten.
fn decimals(value: u64, unit: u64) -> String {
    let (whole, rest) = (value / unit, value % unit);
    if rest == 0 {
        return whole.to_string();
    }
    let places = unit.ilog10() as usize;
    format!("{whole}.{}", format!("{rest:0places$}").trim_end_matches('0'))
}

/// The largest unit that is not above the value, or the last unit.
fn reached<'u>(value: u64, units: &[(u64, &'u str)]) -> (u64, &'u str) {
    let found = units.iter().find(|(unit, _)| value >= *unit).or(units.last());
    found.copied().unwrap_or((1, ""))
}

/// Reads a value from text or, if the type allows it, from a number.
struct ValueReader<T> {
    kind: &'static ValueKind,
    integer: fn(u64) -> Option<Result<T, ValueError>>,
    float: fn(f64) -> Option<Result<T, ValueError>>,
}

impl<T: FromStr<Err = ValueError>> Visitor<'_> for ValueReader<T> {
    type Value = T;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "a {}", self.kind.words)
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<T, E> {
        match (self.integer)(number) {
            Some(value) => value.map_err(E::custom),
            None => Err(E::custom(self.kind.refuse(&number.to_string()))),
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn refused<T: FromStr<Err = ValueError> + fmt::Debug>(text: &str) -> String {
        text.parse::<T>().unwrap_err().to_string()
    }

    #[test]
    fn durations_are_parsed_and_displayed() {
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
                Err(error) => {
                    assert_eq!((canonical, error.to_string().contains("not a whole number")), ("refused", true))
                }
            }
        }
    }

    #[test]
    fn the_error_for_an_invalid_duration_says_how_to_write_one() {
        let how = "write it with its unit (`ns`, `us`, `ms`, `s`, `m` or `h`), like `10s`, `1.5ms`, `200us`, `3m`";
        for text in ["", "10", "s", "-1s", "1e3s", "1..5s", "10 seconds", "1,5s", "_1s", "1_s"] {
            assert_eq!(refused::<Duration>(text), format!("`{text}` is not a duration; {how}"));
        }
        assert_eq!(refused::<Duration>("0.5ns"), "`0.5ns` is not a whole number of nanoseconds");
        assert!(refused::<Duration>("6000000h").starts_with("`6000000h` is too large; the maximum is"));
        let error = serde_json::from_str::<Duration>("10").unwrap_err().to_string();
        assert!(error.starts_with("`10` is not a duration; write it with its unit"), "{error}");
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
        assert!(refused::<Bytes>("64M").starts_with("`64M` is not a number of bytes"));
        let bits = |text: &str| text.parse::<BitRate>().unwrap();
        assert_eq!((bits("100Mbit/s"), bits("2.5Gbps")), (BitRate(100_000_000), BitRate(2_500_000_000)));
        assert_eq!(bits("2500000000").to_string(), "2.5Gb/s");
        assert!(refused::<BitRate>("10GB/s").starts_with("`10GB/s` is not a bit rate"));
    }

    #[test]
    fn traffic_is_measured_in_packets_or_in_bits() {
        let rate = |text: &str| text.parse::<TrafficRate>().unwrap_or_else(|error| panic!("{error}"));
        let packets = |number| TrafficRate::Packets(Rate::new(number).unwrap());
        let bits = |number| TrafficRate::Bits(BitRate::new(number));
        let on_the_wire = |number| TrafficRate::WireBits(BitRate::new(number));
        for (text, expected, canonical) in [
            ("1.5Mpps", packets(1.5e6), "1.5Mpps"),
            ("250 kpackets/s", packets(250e3), "250kpps"),
            ("10/s", packets(10.0), "10pps"),
            ("10Gb/s", bits(10_000_000_000), "10Gb/s"),
            ("100Mbit/s L2", bits(100_000_000), "100Mb/s"),
            ("64kbps", bits(64_000), "64kb/s"),
            ("10Gb/s L1", on_the_wire(10_000_000_000), "10Gb/s L1"),
            ("30% of 10Gb/s", on_the_wire(3_000_000_000), "3Gb/s L1"),
            ("0.5 %of 1Gb/s L1", on_the_wire(5_000_000), "5Mb/s L1"),
            ("30% of 1Mpps", packets(300_000.0), "300kpps"),
            ("250k", TrafficRate::Unitless(Rate::new(250e3).unwrap()), "250k"),
        ] {
            assert_eq!((rate(text), rate(text).to_string().as_str()), (expected, canonical), "{text}");
            assert_eq!(rate(canonical), expected);
        }
        assert_eq!([rate("1pps"), rate("8b/s"), rate("8b/s L1")].map(|rate| rate.cost(100)), [1, 800, 992]);
        assert_eq!(rate("1Gb/s L1").cost(14), 84 * 8, "a frame is never shorter than 64 bytes on the wire");
    }

    #[test]
    fn the_error_for_an_invalid_rate_suggests_a_correction() {
        for (text, answer) in [
            ("10gb/s", "`10gb/s` is not a rate; did you mean `10Gb/s`?"),
            ("10Gbit", "`10Gbit` is not a rate; did you mean `10Gb/s`?"),
            ("1mpps", "`1mpps` is not a rate; did you mean `1Mpps`?"),
            ("30%", "`30%` has no line rate; write it like `30% of 10Gb/s`"),
            ("30% of 10", "the line rate of `30% of 10` has no unit; write it like `30% of 10b/s`"),
            ("fast", "`fast` is not a rate; write it like `1.5Mpps`, `10Gb/s`, `10Gb/s L1`, `30% of 10Gb/s`"),
            ("1kpps L1", "`1kpps L1` is not a rate; write it like `1.5Mpps`, `10Gb/s`, `10Gb/s L1`, `30% of 10Gb/s`"),
        ] {
            assert_eq!(refused::<TrafficRate>(text), answer);
        }
        let answer = "`10Gb/s` is a bit rate; give packets per second, like `1000`, `250k`, `1.5M`";
        assert_eq!(refused::<Rate>("10Gb/s"), answer);
        assert_eq!(refused::<Rate>("1mpps"), "`1mpps` is not a rate; did you mean `1Mpps`?");
    }

    #[test]
    fn fractions_are_numbers_or_percentages() {
        let part = |text: &str| text.parse::<Fraction>().unwrap().get();
        assert_eq!([part("1%"), part("0.5 %"), part("100%"), part("0.01"), part("0")], [0.01, 0.005, 1.0, 0.01, 0.0]);
        assert_eq!(serde_json::to_string(&Fraction::new(0.01).unwrap()).unwrap(), "0.01");
        assert_eq!(serde_json::from_str::<Fraction>("1").unwrap().get(), 1.0);
        let refused_number = |text: &str| serde_json::from_str::<Fraction>(text).unwrap_err().to_string();
        let answer = "`5` is more than the whole, 1; for 5 percent write `5%` or `0.05`";
        assert!(refused_number("5").starts_with(answer), "{}", refused_number("5"));
        assert!(refused_number("1.5").contains("for 1.5 percent write `1.5%` or `0.015`"));
        assert!(refused_number("-0.1").starts_with("`-0.1` is not a fraction; write it like `0.01`, `1%`, `0.5%`"));
        assert_eq!(refused::<Fraction>("101%"), "`101%` is more than the whole, 100%; give at most 100%");
        assert_eq!(refused::<Fraction>("often"), "`often` is not a fraction; write it like `0.01`, `1%`, `0.5%`");
    }

    #[test]
    fn numbers_are_read_where_their_unit_is_plain() {
        assert_eq!(serde_json::from_str::<Rate>("2.5").unwrap().per_second(), 2.5);
        assert_eq!(serde_json::from_str::<Bytes>("42").unwrap().bytes(), 42);
        assert_eq!(serde_json::from_str::<BitRate>("42").unwrap().bits_per_second(), 42);
        assert!(serde_json::from_str::<Rate>("-1.0").unwrap_err().to_string().contains("0 or more"));
        assert!(serde_json::from_str::<Bytes>("-1").unwrap_err().to_string().contains("`-1` is not a number of bytes"));
        assert!(serde_json::from_str::<Bytes>("[]").unwrap_err().to_string().contains("a number of bytes such as"));
    }

    proptest! {
        /// The displayed text parses to the same value.
        #[test]
        fn values_survive_a_round_trip(number: u64, shift in 0u32..64, decade in 0u32..20) {
            let number = (number >> shift) / 10u64.pow(decade) * 10u64.pow(decade);
            prop_assert_eq!(Duration::from_nanos(number).to_string().parse(), Ok(Duration::from_nanos(number)));
            prop_assert_eq!(Bytes::new(number).to_string().parse(), Ok(Bytes::new(number)));
            prop_assert_eq!(BitRate::new(number).to_string().parse(), Ok(BitRate::new(number)));
            let rate = Rate::new(number as f64).unwrap();
            for rate in [
                TrafficRate::Bits(BitRate::new(number)),
                TrafficRate::WireBits(BitRate::new(number)),
                TrafficRate::Packets(rate),
                TrafficRate::Unitless(rate),
            ] {
                prop_assert_eq!(rate.to_string().parse(), Ok(rate));
            }
            let part = Fraction::new(1.0 / (1 + number % 10_000) as f64).unwrap();
            prop_assert_eq!(part.to_string().parse(), Ok(part));
        }

        #[test]
        fn rates_survive_a_round_trip(mantissa in 0.0..10f64, exponent in -3..12i32, places in 0..6usize) {
            for value in [mantissa * 10f64.powi(exponent), format!("{mantissa:.places$}e{exponent}").parse().unwrap()] {
                let rate = Rate::new(value).unwrap();
                prop_assert_eq!(rate.to_string().parse(), Ok(rate));
            }
        }

        #[test]
        fn no_text_is_too_strange(text in "[0-9._µkMGTbBpistmuhn/ -]{0,40}|[0-9.%ofL12GMb/s ]{0,20}|.*") {
            let _ = (text.parse::<Duration>(), text.parse::<Rate>(), text.parse::<Bytes>(), text.parse::<BitRate>());
            let _ = (text.parse::<TrafficRate>(), text.parse::<Fraction>());
        }
    }
}
