//! Parts of a whole.

use std::fmt;
use std::str::FromStr;

use serde::{Serialize, Serializer};

use super::{ValueError, ValueKind, decimal, split};

/// A part of a whole, from 0 to 1, written as a number or as a percentage: `0.01`, `1%`.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Fraction(f64);

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
                Err(ValueError::new(format!("`{part}` is more than the whole, 1; {help}")))
            }
            _ => Err(FRACTION.refuse(&part.to_string())),
        }
    }

    /// The number from 0 to 1.
    pub const fn get(self) -> f64 {
        self.0
    }
}

const FRACTION: ValueKind = ValueKind {
    name: "fraction",
    words: "number 0 to 1 or percentage such as `1%`",
    base: "hundredths",
    examples: &["0.01", "1%", "0.5%"],
    pattern: r"^\s*[0-9][0-9._]*\s*%?\s*$",
    needs: None,
};

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
            _ => Err(ValueError::new(format!("`{text}` is more than the whole, {most}; give at most {most}"))),
        }
    }
}

impl fmt::Display for Fraction {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.0)
    }
}

impl Serialize for Fraction {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.0)
    }
}

/// A hundredth of a number, rounded once.
fn hundredth(number: f64) -> f64 {
    format!("{number}e-2").parse().unwrap_or(number / 100.0)
}

written_as_text!(
    Fraction,
    FRACTION,
    ["string", "number"],
    Some(1),
    |number| Some(Fraction::new(number as f64)),
    |number| Some(Fraction::new(number))
);
