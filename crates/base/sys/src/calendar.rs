//! Dates and times of day in UTC, as texts by RFC 3339: `2026-01-31T09:08:07.006Z`.
//!
//! All texts with as many decimals have one length, so their order is that of the times. RFC 3339 has no years after
//! 9999: a later time is written as the last one before.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use humantime::{format_rfc3339_micros, format_rfc3339_millis, parse_rfc3339};

/// 9999-12-31T23:59:59.999999Z, in microseconds since the Unix epoch.
const LAST: u64 = 253_402_300_799_999_999;

/// A time in nanoseconds since the Unix epoch, with milliseconds: `2026-01-31T09:08:07.006Z`.
pub fn with_milliseconds(unix_ns: u64) -> String {
    format_rfc3339_millis(UNIX_EPOCH + Duration::from_nanos(unix_ns)).to_string()
}

/// A time in nanoseconds since the Unix epoch, with microseconds: `2026-01-31T09:08:07.006123Z`.
pub fn with_microseconds(unix_ns: u64) -> String {
    format_rfc3339_micros(UNIX_EPOCH + Duration::from_nanos(unix_ns)).to_string()
}

/// A time in microseconds since the Unix epoch, with milliseconds. A time before 1970 is written as the epoch.
pub fn of_microseconds(unix_us: i64) -> String {
    let unix_us = u64::try_from(unix_us).unwrap_or(0).min(LAST);
    format_rfc3339_millis(UNIX_EPOCH + Duration::from_micros(unix_us)).to_string()
}

/// The microseconds since the Unix epoch of a text such as `2026-01-31T09:08:07.006Z`, with any number of decimals, of
/// which six count. Nothing for another text, for a day that there is not, and for times before 1970.
pub fn microseconds(text: &str) -> Option<i64> {
    let (second, fraction) = text.strip_suffix('Z')?.split_at_checked("2026-01-31T09:08:07".len())?;
    let decimals = fraction.strip_prefix('.').unwrap_or(if fraction.is_empty() { "0" } else { "" });
    if decimals.is_empty() || !decimals.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let counted = &decimals[..decimals.len().min(6)];
    let fraction = counted.parse::<u64>().ok()? * 10_u64.pow(6 - counted.len() as u32);
    let since_epoch = parse_rfc3339(&format!("{second}Z")).ok()?.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    // A leap second is read as the one before it.
    let leap = u64::from(second.ends_with(":60"));
    i64::try_from((since_epoch.as_secs() + leap) * 1_000_000 + fraction).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The second after the last one of the calendar.
    const FIRST_AFTER: u64 = LAST.div_ceil(1_000_000);

    const SECONDS_OF_DAY: u64 = 86_400;

    #[test]
    fn leap_years_are_those_of_the_gregorian_calendar() {
        for (year, length) in [(1972, 29), (2000, 29), (2024, 29), (2400, 29), (1970, 28), (2100, 28), (9900, 28)] {
            assert_eq!(microseconds(&format!("{year}-02-29T00:00:00Z")).is_some(), length == 29, "{year}");
            let [before, after] =
                ["02-28", "03-01"].map(|day| microseconds(&format!("{year}-{day}T00:00:00Z")).unwrap());
            assert_eq!((after - before) as u64, (length - 27) * SECONDS_OF_DAY * 1_000_000, "{year}");
        }
    }

    /// Against `date -u`.
    #[test]
    fn times_are_those_of_the_calendar() {
        for seconds in [
            0,
            951_782_400,
            951_868_799,
            951_868_800,
            1_709_164_800,
            1_709_251_199,
            1_795_727_557,
            1_798_761_600,
            4_107_542_399,
            16_725_225_600,
            FIRST_AFTER - 1,
        ] {
            let format = "+%Y-%m-%dT%H:%M:%S.000Z";
            let date = std::process::Command::new("date").args(["-u", "-d", &format!("@{seconds}"), format]).output();
            let expected = String::from_utf8(date.unwrap().stdout).unwrap();
            assert_eq!(of_microseconds(seconds as i64 * 1_000_000), expected.trim());
        }
    }

    #[test]
    fn texts_have_as_many_decimals_as_their_names_say() {
        assert_eq!(with_milliseconds(1_006_999_999), "1970-01-01T00:00:01.006Z");
        assert_eq!(with_microseconds(1_006_999_999), "1970-01-01T00:00:01.006999Z");
        assert_eq!(with_microseconds(1_006_999), "1970-01-01T00:00:00.001006Z");
        assert_eq!(of_microseconds(1_006_999), "1970-01-01T00:00:01.006Z");
        assert_eq!(with_microseconds(951_782_400_000_000_000), "2000-02-29T00:00:00.000000Z");
        assert_eq!(with_microseconds(u64::MAX), "2554-07-21T23:34:33.709551Z");
    }

    #[test]
    fn times_beyond_the_calendar_are_its_ends() {
        assert_eq!(of_microseconds(-1), "1970-01-01T00:00:00.000Z");
        assert_eq!(of_microseconds(i64::MIN), "1970-01-01T00:00:00.000Z");
        let last = "9999-12-31T23:59:59.999Z";
        for microseconds in [FIRST_AFTER as i64 * 1_000_000 - 1, FIRST_AFTER as i64 * 1_000_000, i64::MAX] {
            assert_eq!(of_microseconds(microseconds), last);
        }
        assert_eq!(microseconds(last), Some(FIRST_AFTER as i64 * 1_000_000 - 1_000));
    }

    #[test]
    fn decimals_are_read_up_to_microseconds() {
        for (text, expected) in [
            ("1970-01-01T00:00:01Z", 1_000_000),
            ("1970-01-01T00:00:01.5Z", 1_500_000),
            ("1970-01-01T00:00:01.0060004Z", 1_006_000),
            ("1970-01-01T00:00:01.0000019999999999999999999999Z", 1_000_001),
            ("1972-06-30T23:59:60Z", 78_796_800_000_000),
        ] {
            assert_eq!(microseconds(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn other_texts_are_no_times() {
        for text in [
            "",
            "Z",
            "2026-01-31",
            "2026-01-31T09:08:07",
            "2026-13-31T09:08:07Z",
            "2026-00-31T09:08:07Z",
            "2026-01-00T09:08:07Z",
            "2026-01-32T09:08:07Z",
            "2026-04-31T09:08:07Z",
            "2026-02-29T09:08:07Z",
            "2100-02-29T09:08:07Z",
            "2026-01-31T24:08:07Z",
            "2026-01-31T09:60:07Z",
            "2026-01-31T09:08:61Z",
            "2026-01-31T09:08:07.Z",
            "2026-01-31T09:08:07.x0Z",
            "2026-01-31T09:08:07.0ZZ",
            "2026-01-31T09:08:07+00:00",
            "2026-01-31 09:08:07.0Z",
            "2026-01-31T09:08:+7.00Z",
            "1969-01-31T09:08:07.000Z",
            "10000-01-31T09:08:07.000Z",
            "2026-01-31T09:08:07.123456\u{e9}Z",
        ] {
            assert_eq!(microseconds(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_time_is_read_as_it_is_written(milliseconds in 0..FIRST_AFTER * 1_000) {
            let unix_us = (milliseconds * 1_000) as i64;
            prop_assert_eq!(microseconds(&of_microseconds(unix_us)), Some(unix_us));
        }

        #[test]
        fn all_digits_of_a_time_in_nanoseconds_are_those_of_microseconds(unix_ns: u64) {
            let unix_us = (unix_ns / 1_000) as i64;
            prop_assert_eq!(microseconds(&with_microseconds(unix_ns)), Some(unix_us));
            prop_assert_eq!(with_milliseconds(unix_ns), of_microseconds(unix_us));
        }

        #[test]
        fn texts_are_ordered_as_the_times(one in 0..=2 * LAST, other in 0..=2 * LAST) {
            let (first, last) = (one.min(other), one.max(other));
            prop_assert!(of_microseconds(first as i64) <= of_microseconds(last as i64));
            prop_assert!(with_microseconds(first) <= with_microseconds(last));
        }

        #[test]
        fn any_text_is_a_time_or_none(text in "[0-9TZ.:é-]{0,30}") {
            microseconds(&text);
        }

        /// Almost a time: only its numbers are arbitrary.
        #[test]
        fn any_numbers_are_a_time_or_none(text in "[0-9]{4}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-6][0-9]:[0-6][0-9]Z") {
            if let Some(time) = microseconds(&text) {
                let again = of_microseconds(time);
                prop_assert!(again == text.replace('Z', ".000Z") || text.ends_with(":60Z"), "{text} {again}");
            }
        }
    }
}
