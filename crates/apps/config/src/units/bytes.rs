//! Numbers of bytes.

use std::fmt;
use std::str::FromStr;

use super::{ValueError, ValueKind, scaled, split};

/// A number of bytes, written as a number or with its unit: `65536`, `64kB` (64,000), `64KiB` (65,536).
///
/// Units are `B`; `kB`, `MB`, `GB`, `TB` (powers of 1,000); `KiB`, `MiB`, `GiB`, `TiB` (powers of 1,024).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(u64);

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

const BYTES: ValueKind = ValueKind {
    name: "number of bytes",
    words: "number of bytes such as `64MiB` or `1GB`",
    base: "bytes",
    examples: &["65536", "64KiB", "1GB"],
    pattern: r"^\s*[0-9][0-9._]*\s*(B|[kK]B|[MGT]B|[kKMGT]iB)?\s*$",
    needs: None,
};

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

serialized_as_text!(Bytes);
written_as_text!(Bytes, BYTES, ["string", "integer"], None, |number| Some(Ok(Bytes(number))), |_| None);
