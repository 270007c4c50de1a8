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

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Why a text or number is not a value of a type, and how to write one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ValueError(String);

impl ValueError {
    pub(crate) fn new(message: String) -> ValueError {
        ValueError(message)
    }
}

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

/// A rate of traffic in packets or bits per second.
///
/// | text | unit |
/// |---|---|
/// | `250000pps`, `250kpps`, `1.5Mpps` | packets |
/// | `10Gb/s`, `100Mbit/s`, `64kbps` | bits of the packets' data: Ethernet frames without their check sequence |
/// | `10Gb/s L1` | bits on an Ethernet wire, see [`wire_bytes`] |
/// | `30% of 10Gb/s` | a share of a line rate, in bits on the wire; `30% of 1Mpps` is 300,000 packets per second |
/// | `1000`, `250k` | a number without a unit: the app chooses the unit |
///
/// `L2` may follow bits that are not on the wire.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TrafficRate {
    /// Packets per second.
    Packets(Rate),
    /// Bits of the packets' data per second.
    Bits(BitRate),
    /// Bits on an Ethernet wire per second.
    WireBits(BitRate),
    /// A number without a unit.
    Unitless(Rate),
}

/// A part of a whole, from 0 to 1, written as a number or as a percentage: `0.01`, `1%`.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Fraction(f64);

/// The shortest Ethernet frame, without its check sequence.
const MIN_FRAME: usize = 60;

/// Preamble and start delimiter (8), check sequence (4), gap (12).
const WIRE_OVERHEAD: usize = 24;

/// Bytes that a frame of this length takes on an Ethernet wire (IEEE 802.3): at least 60, plus 24 for preamble, start
/// delimiter, check sequence and inter-packet gap.
pub const fn wire_bytes(length: usize) -> usize {
    let frame = if length < MIN_FRAME { MIN_FRAME } else { length };
    frame + WIRE_OVERHEAD
}

impl TrafficRate {
    /// Whether nothing moves.
    pub fn is_zero(self) -> bool {
        self.per_second() == 0.0
    }

    /// Packets, or bits, per second. A number without a unit counts packets.
    pub fn per_second(self) -> f64 {
        match self {
            TrafficRate::Packets(rate) | TrafficRate::Unitless(rate) => rate.per_second(),
            TrafficRate::Bits(rate) | TrafficRate::WireBits(rate) => rate.bits_per_second() as f64,
        }
    }

    /// The cost of a packet of this length in the rate's unit: 1 packet, or its bits.
    pub const fn cost(self, length: usize) -> u64 {
        match self {
            TrafficRate::Packets(_) | TrafficRate::Unitless(_) => 1,
            TrafficRate::Bits(_) => 8 * length as u64,
            TrafficRate::WireBits(_) => 8 * wire_bytes(length) as u64,
        }
    }
}

impl Fraction {
    /// A part of a whole.
    ///
    /// # Errors
    /// When the number is not between 0 and 1.
    pub fn new(part: f64) -> Result<Fraction, ValueError> {
        match part {
            0.0..=1.0 => Ok(Fraction(part + 0.0)),
            1.0..=100.0 => {
                let help = format!("for {part} percent write `{part}%` or `{}`", hundredth(part));
                Err(ValueError(format!("`{part}` is more than the whole, 1; {help}")))
            }
            _ => Err(FRACTION.refuse(&part.to_string())),
        }
    }

    /// The number from 0 to 1.
    pub const fn get(self) -> f64 {
        self.0
    }
}

/// A hundredth of a number, rounded once.
fn hundredth(number: f64) -> f64 {
    format!("{number}e-2").parse().unwrap_or(number / 100.0)
}

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
                "`{per_second}` is not a rate; it must be a finite number of packets per second, 0 or more"
            )))
        }
    }

    /// Packets per second.
    pub const fn per_second(self) -> f64 {
        self.0
    }

    /// Nanoseconds from one packet to the next: infinite for a rate of 0.
    pub fn interval_ns(self) -> f64 {
        1e9 / self.0
    }

    /// Whether nothing moves.
    pub const fn is_zero(self) -> bool {
        self.0 == 0.0
    }
}

impl Bytes {
    /// A number of bytes.
    pub const fn new(bytes: u64) -> Bytes {
        Bytes(bytes)
    }

    /// The number of bytes.
    pub const fn bytes(self) -> u64 {
        self.0
    }
}

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
fn scaled(text: &str, number: &str, unit: u64, kind: &Kind) -> Result<u64, ValueError> {
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
struct Kind {
    name: &'static str,
    words: &'static str,
    base: &'static str,
    examples: &'static [&'static str],
    /// A regular expression for editors.
    pattern: &'static str,
    /// The required units; `None` if plain numbers are accepted.
    needs: Option<&'static str>,
}

const DURATION: Kind = Kind {
    name: "duration",
    words: "duration such as `10s` or `1.5ms`",
    base: "nanoseconds",
    examples: &["10s", "1.5ms", "200us", "3m"],
    pattern: r"^\s*[0-9][0-9._]*\s*(ns|us|µs|μs|ms|s|m|min|h)\s*$",
    needs: Some("with its unit (`ns`, `us`, `ms`, `s`, `m` or `h`)"),
};

const RATE: Kind = Kind {
    name: "rate",
    words: "packets per second such as `250k` or `1.5M`",
    base: "packets per second",
    examples: &["1000", "250k", "1.5M"],
    pattern: r"^\s*[0-9][0-9._]*\s*[kMG]?\s*(pps|p/s|packets/s|/s)?\s*$",
    needs: None,
};

const BYTES: Kind = Kind {
    name: "number of bytes",
    words: "number of bytes such as `64MiB` or `1GB`",
    base: "bytes",
    examples: &["65536", "64KiB", "1GB"],
    pattern: r"^\s*[0-9][0-9._]*\s*(B|[kK]B|[MGT]B|[kKMGT]iB)?\s*$",
    needs: None,
};

const BIT_RATE: Kind = Kind {
    name: "bit rate",
    words: "bits per second such as `10Gb/s` or `100Mbit/s`",
    base: "bits per second",
    examples: &["10Gb/s", "100Mbit/s", "64kbps"],
    pattern: r"^\s*[0-9][0-9._]*\s*([kMGT]?(bit/s|b/s|bps))?\s*$",
    needs: None,
};

const TRAFFIC_RATE: Kind = Kind {
    name: "rate",
    words: "packets or bits per second such as `1.5Mpps`, `10Gb/s` or `30% of 10Gb/s`",
    base: "bits per second",
    examples: &["1.5Mpps", "10Gb/s", "10Gb/s L1", "30% of 10Gb/s"],
    pattern: r"^\s*[0-9][0-9._]*\s*(%\s*of\s+[0-9][0-9._]*\s*)?([kMG]?\s*(pps|p/s|packets/s|/s)?|[kMGT]?(bit/s|b/s|bps)(\s*L[12])?)\s*$",
    needs: None,
};

const FRACTION: Kind = Kind {
    name: "fraction",
    words: "number 0 to 1 or percentage such as `1%`",
    base: "hundredths",
    examples: &["0.01", "1%", "0.5%"],
    pattern: r"^\s*[0-9][0-9._]*\s*%?\s*$",
    needs: None,
};

impl Kind {
    fn written(&self) -> String {
        let examples: Vec<String> = self.examples.iter().map(|example| format!("`{example}`")).collect();
        let needs = self.needs.map(|needs| format!("{needs}, ")).unwrap_or_default();
        format!("write it {needs}like {}", examples.join(", "))
    }

    fn refuse(&self, text: &str) -> ValueError {
        ValueError(format!("`{text}` is not a {}; {}", self.name, self.written()))
    }

    /// [`Kind::refuse`] for a text with a known correction.
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
        let bases = ["pps", "packets/s", "p/s", "/s"];
        let prefix = bases.into_iter().find_map(|base| unit.strip_suffix(base)).unwrap_or(unit);
        let exponent = match prefix.trim_end() {
            "" => 0,
            "k" => 3,
            "M" => 6,
            "G" => 9,
            _ if text.parse::<BitRate>().is_ok() => {
                let help = "give packets per second, like `1000`, `250k`, `1.5M`";
                return Err(ValueError(format!("`{text}` is a bit rate; {help}")));
            }
            _ => {
                let meant = respelled_rate(text).filter(|meant| meant != text && meant.ends_with("pps"));
                return Err(meant.map_or_else(|| RATE.refuse(text), |meant| RATE.correct(text, &meant)));
            }
        };
        if decimal(number).is_none() {
            return Err(RATE.refuse(text));
        }
        // Scaling in the text rounds only once, so the displayed text parses to the same number.
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

impl FromStr for TrafficRate {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<TrafficRate, ValueError> {
        if let Some((share, whole)) = text.split_once('%') {
            let Some(whole) = whole.trim_start().strip_prefix("of").map(str::trim) else {
                let share = share.trim();
                return Err(ValueError(format!("`{text}` has no line rate; write it like `{share}% of 10Gb/s`")));
            };
            let (digits, places) = decimal(share.trim()).ok_or_else(|| TRAFFIC_RATE.refuse(text))?;
            return match whole.parse()? {
                TrafficRate::Bits(line) | TrafficRate::WireBits(line) => {
                    let divisor = 100 * 10u128.pow(places);
                    let product = digits.checked_mul(u128::from(line.0)).ok_or_else(|| TRAFFIC_RATE.refuse(text))?;
                    let bits = u64::try_from((product + divisor / 2) / divisor);
                    bits.map(|bits| TrafficRate::WireBits(BitRate(bits))).map_err(|_| TRAFFIC_RATE.refuse(text))
                }
                TrafficRate::Packets(rate) => {
                    let share = digits as f64 / 10f64.powi(places as i32) / 100.0;
                    Rate::new(rate.per_second() * share).map(TrafficRate::Packets)
                }
                TrafficRate::Unitless(_) => {
                    let help = format!("write it like `{}% of {whole}b/s`", share.trim());
                    Err(ValueError(format!("the line rate of `{text}` has no unit; {help}")))
                }
            };
        }
        let (bits, make): (&str, fn(BitRate) -> TrafficRate) = match text.trim_end() {
            text if text.ends_with("L1") => (&text[..text.len() - 2], TrafficRate::WireBits),
            text if text.ends_with("L2") => (&text[..text.len() - 2], TrafficRate::Bits),
            text => (text, TrafficRate::Bits),
        };
        let (_, unit) = split(bits);
        if unit.contains('b') {
            if let Ok(rate) = bits.parse() {
                return Ok(make(rate));
            }
        } else if bits.len() == text.trim_end().len()
            && let Ok(rate) = text.parse()
        {
            let has_unit = unit.ends_with('s');
            return Ok(if has_unit { TrafficRate::Packets(rate) } else { TrafficRate::Unitless(rate) });
        }
        let meant = respelled_rate(text).filter(|meant| meant != text);
        Err(meant.map_or_else(|| TRAFFIC_RATE.refuse(text), |meant| TRAFFIC_RATE.correct(text, &meant)))
    }
}

impl fmt::Display for TrafficRate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TrafficRate::Packets(rate) => write!(formatter, "{rate}pps"),
            TrafficRate::Bits(rate) => write!(formatter, "{rate}"),
            TrafficRate::WireBits(rate) => write!(formatter, "{rate} L1"),
            TrafficRate::Unitless(rate) => write!(formatter, "{rate}"),
        }
    }
}

impl FromStr for Fraction {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Fraction, ValueError> {
        let (number, unit) = split(text);
        if decimal(number).is_none() {
            return Err(FRACTION.refuse(text));
        }
        let number = number.replace('_', "");
        let (exponent, most) = match unit {
            "" => ("e0", "1"),
            "%" => ("e-2", "100%"),
            _ => return Err(FRACTION.refuse(text)),
        };
        let part: f64 = format!("{number}{exponent}").parse().map_err(|_| FRACTION.refuse(text))?;
        match (part, unit) {
            (0.0..=1.0, _) | (_, "") => Fraction::new(part),
            _ => Err(ValueError(format!("`{text}` is more than the whole, {most}; give at most {most}"))),
        }
    }
}

impl fmt::Display for Fraction {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.0)
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

/// Reads a value from text or, if the type allows it, from a number.
struct Reader<T> {
    kind: &'static Kind,
    integer: fn(u64) -> Option<Result<T, ValueError>>,
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

macro_rules! written_as_text {
    ($type:ident, $kind:ident, $types:expr, $most:expr, $integer:expr, $float:expr) => {
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<$type, D::Error> {
                deserializer.deserialize_any(Reader { kind: &$kind, integer: $integer, float: $float })
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
                let mut schema = json_schema!({
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
    ($($type:ident),+) => {
        $(impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        })+
    };
}

serialized_as_text!(Duration, Rate, Bytes, BitRate, TrafficRate);

impl Serialize for Fraction {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.0)
    }
}

written_as_text!(Duration, DURATION, "string", None, |_| None, |_| None);
written_as_text!(Rate, RATE, ["string", "number"], None, |number| Some(Ok(Rate(number as f64))), |number| Some(
    Rate::new(number)
));
written_as_text!(Bytes, BYTES, ["string", "integer"], None, |number| Some(Ok(Bytes(number))), |_| None);
written_as_text!(BitRate, BIT_RATE, ["string", "integer"], None, |number| Some(Ok(BitRate(number))), |_| None);
written_as_text!(
    TrafficRate,
    TRAFFIC_RATE,
    ["string", "number"],
    None,
    |number| Some(Ok(TrafficRate::Unitless(Rate(number as f64)))),
    |number| Some(Rate::new(number).map(TrafficRate::Unitless))
);
written_as_text!(
    Fraction,
    FRACTION,
    ["string", "number"],
    Some(1),
    |number| Some(Fraction::new(number as f64)),
    |number| Some(Fraction::new(number))
);

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
        let bits = |number| TrafficRate::Bits(BitRate(number));
        let on_the_wire = |number| TrafficRate::WireBits(BitRate(number));
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
        assert_eq!(serde_json::to_string(&Fraction(0.01)).unwrap(), "0.01");
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
            prop_assert_eq!(Duration(number).to_string().parse(), Ok(Duration(number)));
            prop_assert_eq!(Bytes(number).to_string().parse(), Ok(Bytes(number)));
            prop_assert_eq!(BitRate(number).to_string().parse(), Ok(BitRate(number)));
            let rate = Rate::new(number as f64).unwrap();
            for rate in [
                TrafficRate::Bits(BitRate(number)),
                TrafficRate::WireBits(BitRate(number)),
                TrafficRate::Packets(rate),
                TrafficRate::Unitless(rate),
            ] {
                prop_assert_eq!(rate.to_string().parse(), Ok(rate));
            }
            let part = Fraction(1.0 / (1 + number % 10_000) as f64);
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
