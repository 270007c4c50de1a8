//! Rates in packets.

use std::fmt;
use std::str::FromStr;

use super::{BitRate, ValueError, ValueKind, decimal, respelled_rate, split};

/// A rate in packets per second, written as a number or with a decimal prefix: `250000`, `250k`, `1.5M`, `1Gpps`.
///
/// Never negative, infinite or NaN.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Rate(pub(super) f64);

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
            Err(ValueError::new(format!(
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

const RATE: ValueKind = ValueKind {
    name: "rate",
    words: "packets per second such as `250k` or `1.5M`",
    base: "packets per second",
    examples: &["1000", "250k", "1.5M"],
    pattern: r"^\s*[0-9][0-9._]*\s*[kMG]?\s*(pps|p/s|packets/s|/s)?\s*$",
    needs: None,
};

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
                return Err(ValueError::new(format!("`{text}` is a bit rate; {help}")));
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

serialized_as_text!(Rate);
written_as_text!(Rate, RATE, ["string", "number"], None, |number| Some(Ok(Rate(number as f64))), |number| Some(
    Rate::new(number)
));
