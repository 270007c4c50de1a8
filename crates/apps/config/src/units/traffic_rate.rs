//! Rates of traffic in packets or in bits, also on an Ethernet wire.

use std::fmt;
use std::str::FromStr;

use super::{BitRate, Rate, ValueError, ValueKind, decimal, respelled_rate, split};

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

const TRAFFIC_RATE: ValueKind = ValueKind {
    name: "rate",
    words: "packets or bits per second such as `1.5Mpps`, `10Gb/s` or `30% of 10Gb/s`",
    base: "bits per second",
    examples: &["1.5Mpps", "10Gb/s", "10Gb/s L1", "30% of 10Gb/s"],
    pattern: r"^\s*[0-9][0-9._]*\s*(%\s*of\s+[0-9][0-9._]*\s*)?([kMG]?\s*(pps|p/s|packets/s|/s)?|[kMGT]?(bit/s|b/s|bps)(\s*L[12])?)\s*$",
    needs: None,
};

impl FromStr for TrafficRate {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<TrafficRate, ValueError> {
        if let Some((share, whole)) = text.split_once('%') {
            let Some(whole) = whole.trim_start().strip_prefix("of").map(str::trim) else {
                let share = share.trim();
                return Err(ValueError::new(format!("`{text}` has no line rate; write it like `{share}% of 10Gb/s`")));
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
                    Err(ValueError::new(format!("the line rate of `{text}` has no unit; {help}")))
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

serialized_as_text!(TrafficRate);
written_as_text!(
    TrafficRate,
    TRAFFIC_RATE,
    ["string", "number"],
    None,
    |number| Some(Ok(TrafficRate::Unitless(Rate(number as f64)))),
    |number| Some(Rate::new(number).map(TrafficRate::Unitless))
);
