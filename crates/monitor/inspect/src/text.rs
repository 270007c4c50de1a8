//! Numbers and other values in words, and texts of other processes.

use std::time::Duration;

use bellows_sys::calendar;
pub use bellows_sys::text::{one_line, sanitize};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// A count with thousands separators: `1,234,567`.
pub fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number with three significant digits and a decimal prefix: `1.23 M`, `45.6 k`, `7`.
pub fn scaled(value: f64) -> String {
    let (mut value, mut prefix) = (value, "");
    for next in [" k", " M", " G", " T"] {
        if value < 999.5 {
            break;
        }
        (value, prefix) = (value / 1000.0, next);
    }
    let decimals = match value {
        value if value == value.trunc() && prefix.is_empty() => 0,
        value if value < 9.995 => 2,
        value if value < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.decimals$}{prefix}")
}

/// A number with up to three significant digits: `0`, `2e-5`, `0.046`, `9.08`, `50.1`, `1,234`.
pub fn figure(value: f64) -> String {
    match value {
        0.0 => "0".to_owned(),
        value if value < 0.0095 => format!("{value:.0e}"),
        value if value < 0.9995 => format!("{value:.3}"),
        value if value < 9.995 => format!("{value:.2}"),
        value if value < 99.95 => format!("{value:.1}"),
        value => count(value.round() as u64),
    }
}

/// A share from 0 to 1: `12.3 %`.
pub fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

/// The placeholder for an unknown number.
pub const UNKNOWN: &str = "–";

/// A number that may be unknown.
pub fn known(value: Option<f64>, write: fn(f64) -> String) -> String {
    value.map_or_else(|| UNKNOWN.to_owned(), write)
}

/// Packets a second in the notation of network files: `960 kpps`, `7 pps`.
pub fn packet_rate(value: f64) -> String {
    before_unit(value) + "pps"
}

/// Bits a second in the notation of network files: `2.85 Gb/s`.
pub fn bit_rate(value: f64) -> String {
    before_unit(value) + "b/s"
}

/// Like [`scaled`], ready for a unit after it: `1.23 M`, `7 `.
fn before_unit(value: f64) -> String {
    let text = scaled(value);
    if text.contains(' ') { text } else { text + " " }
}

/// A time span in a suitable unit: `1.20 s`, `2 h 03 min`.
pub fn span(duration: Duration) -> String {
    let seconds = duration.as_secs_f64();
    match seconds {
        seconds if seconds < 0.000_999_5 => format!("{:.0} µs", seconds * 1e6),
        seconds if seconds < 0.9995 => format!("{:.1} ms", seconds * 1e3),
        seconds if seconds < 100.0 => format!("{seconds:.2} s"),
        seconds if seconds < 3600.0 => format!("{} min {:02} s", duration.as_secs() / 60, duration.as_secs() % 60),
        _ => format!("{} h {:02} min", duration.as_secs() / 3600, duration.as_secs() / 60 % 60),
    }
}

/// A short time with three significant digits: `640 ns`, `1.25 µs`, `12.5 ms`.
pub fn nanos(nanos: u64) -> String {
    let (mut value, mut unit) = (nanos as f64, "ns");
    for next in ["µs", "ms", "s"] {
        if value < 999.5 {
            break;
        }
        (value, unit) = (value / 1000.0, next);
    }
    let decimals = match value {
        _ if unit == "ns" => 0,
        value if value < 9.995 => 2,
        value if value < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.decimals$} {unit}")
}

/// The UTC time of day of a time in nanoseconds since the Unix epoch: `12:34:56.123456789 UTC`.
pub fn time_of_day(nanos: u64) -> String {
    let (seconds, rest) = (nanos / 1_000_000_000 % 86_400, nanos % 1_000_000_000);
    format!("{:02}:{:02}:{:02}.{rest:09} UTC", seconds / 3_600, seconds / 60 % 60, seconds % 60)
}

/// A time in nanoseconds since the Unix epoch as `tcpdump -tttt` prints it in UTC: `2026-11-22 12:34:56.123456`.
pub fn date_and_time(nanos: u64) -> String {
    calendar::with_microseconds(nanos).trim_end_matches('Z').replacen('T', " ", 1)
}

/// `1 packet`, `2 packets`.
pub fn plural(value: u64, noun: &str) -> String {
    format!("{} {noun}{}", count(value), if value == 1 { "" } else { "s" })
}

/// Reads JSON that another process has written, perhaps another user's: its texts become harmless for a terminal, and so
/// do those of the error.
///
/// # Errors
/// If it is not JSON, or not that of the type.
pub fn foreign_json<T: DeserializeOwned>(json: &[u8]) -> Result<T, serde_json::Error> {
    if !may_hide(json) {
        return serde_json::from_slice(json);
    }
    let mut value: Value = serde_json::from_slice(json)?;
    bellows_events::clean(&mut value);
    T::deserialize(value)
}

/// Whether the texts of JSON may have hidden characters: only some escapes and bytes beyond ASCII give them.
fn may_hide(json: &[u8]) -> bool {
    let mut before = b' ';
    json.iter().any(|&byte| {
        let escape = before == b'\\' && matches!(byte, b'u' | b'b' | b'f' | b'r');
        before = byte;
        escape || byte >= 0x7f
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_others_cannot_control_the_terminal() {
        let text: String = foreign_json(br#""a\u001b[2J\nb""#).unwrap();
        assert_eq!(text, "a\u{fffd}[2J\nb");
        for hidden in ["\u{7f}", "\\r", "\\b", "\\f", "\\u009b", "\u{202e}", "\\u0000"] {
            let text: String = foreign_json(format!("\"a{hidden}\"").as_bytes()).unwrap();
            assert_eq!(text, "a\u{fffd}", "{hidden:?}");
        }
        let plain: String = foreign_json(br#""a\"\\\n\tb""#).unwrap();
        assert_eq!(plain, "a\"\\\n\tb");
        let error = foreign_json::<std::net::IpAddr>(br#""a\u001b[2J""#).unwrap_err().to_string();
        assert!(!error.contains('\u{1b}'), "{error:?}");
        #[derive(Debug, serde::Deserialize)]
        enum Known {}
        let error = foreign_json::<Known>(br#""a\u001b[2J""#).unwrap_err().to_string();
        assert!(error.contains("a\u{fffd}[2J"), "{error:?}");
    }

    #[test]
    fn moments_are_written_as_tcpdump_does() {
        assert_eq!(date_and_time(1_709_251_199_123_456_789), "2024-02-29 23:59:59.123456");
    }

    #[test]
    fn numbers_read_easily() {
        let counts = [0, 7, 999, 1_000, 1_234_567].map(count);
        assert_eq!(counts, ["0", "7", "999", "1,000", "1,234,567"]);
        let scaled = [0.0, 7.0, 0.5, 999.0, 999.7, 1_234.0, 45_600.0, 999_999.0, 2.5e9, 7e15].map(scaled);
        let expected = ["0", "7", "0.50", "999", "1.00 k", "1.23 k", "45.6 k", "1.00 M", "2.50 G", "7000 T"];
        assert_eq!(scaled, expected);
        assert_eq!([0.0, 960e3].map(packet_rate), ["0 pps", "960 kpps"]);
        assert_eq!([7.0, 2.85e9].map(bit_rate), ["7 b/s", "2.85 Gb/s"]);
        let spans = [2e-6, 0.0125, 1.5, 125.0, 7_380.0].map(|seconds| span(Duration::from_secs_f64(seconds)));
        assert_eq!(spans, ["2 µs", "12.5 ms", "1.50 s", "2 min 05 s", "2 h 03 min"]);
        let times = [0, 640, 999, 1_000, 1_254, 12_500_000, 999_600, 2_000_000_000].map(nanos);
        assert_eq!(times, ["0 ns", "640 ns", "999 ns", "1.00 µs", "1.25 µs", "12.5 ms", "1.00 ms", "2.00 s"]);
        assert_eq!(time_of_day(1_700_000_000_000_000_042), "22:13:20.000000042 UTC");
        let figures = [0.0, 0.000_012, 0.009_4, 0.046, 9.994, 9.996, 50.09, 99.96, 1_234.4, f64::MAX].map(figure);
        let expected =
            ["0", "1e-5", "9e-3", "0.046", "9.99", "10.0", "50.1", "100", "1,234", "18,446,744,073,709,551,615"];
        assert_eq!(figures, expected);
        assert_eq!((known(Some(0.5), percent), known(None, percent)), ("50.0 %".to_owned(), "–".to_owned()));
    }
}
