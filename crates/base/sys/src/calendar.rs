//! Dates and times of day in UTC, as texts by RFC 3339: `2026-01-31T09:08:07.006Z`.
//!
//! All texts with as many decimals have one length, so their order is that of the times. RFC 3339 has no years after
//! 9999: a later time is written as the last one before.

use std::ops::RangeInclusive;

const SECONDS_OF_DAY: u64 = 86_400;

/// Days of 400 years.
const DAYS_OF_ERA: u64 = 146_097;

/// Days from 0000-03-01 to 1970-01-01.
const EPOCH: u64 = 719_468;

/// 9999-12-31T23:59:59Z, in seconds since the Unix epoch.
const LAST_SECOND: u64 = 253_402_300_799;

/// A time in nanoseconds since the Unix epoch, with milliseconds: `2026-01-31T09:08:07.006Z`.
pub fn with_milliseconds(unix_ns: u64) -> String {
    text(unix_ns / 1_000_000_000, unix_ns / 1_000_000 % 1_000, 3)
}

/// A time in nanoseconds since the Unix epoch, with microseconds: `2026-01-31T09:08:07.006123Z`.
pub fn with_microseconds(unix_ns: u64) -> String {
    text(unix_ns / 1_000_000_000, unix_ns / 1_000 % 1_000_000, 6)
}

/// A time in microseconds since the Unix epoch, with milliseconds. A time before 1970 is written as the epoch.
pub fn of_microseconds(unix_us: i64) -> String {
    let unix_us = u64::try_from(unix_us).unwrap_or(0);
    text(unix_us / 1_000_000, unix_us / 1_000 % 1_000, 3)
}

/// A time with this number of decimals of a second.
fn text(seconds: u64, fraction: u64, decimals: usize) -> String {
    let (seconds, fraction) = match seconds {
        0..=LAST_SECOND => (seconds, fraction),
        _ => (LAST_SECOND, 10_u64.pow(decimals as u32) - 1),
    };
    let (year, month, day) = date(seconds / SECONDS_OF_DAY);
    let (hour, minute, second) = (seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{fraction:0decimals$}Z")
}

/// Year, month and day of a number of days since 1970-01-01, in the Gregorian calendar.
fn date(days: u64) -> (u64, u64, u64) {
    // Years begin in March here, so that the leap day is the last day of a year.
    let days = days + EPOCH;
    let (era, day) = (days / DAYS_OF_ERA, days % DAYS_OF_ERA);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (400 * era + year + u64::from(month <= 2), month, day)
}

/// The days since 1970-01-01 of a date in 1970 or later. The inverse of [`date`].
fn days((year, month, day): (u64, u64, u64)) -> u64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    year * 365 + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1 - EPOCH
}

/// The number of days of a month.
fn days_of_month(year: u64, month: u64) -> u64 {
    let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    match month {
        2 => 28 + u64::from(is_leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// The microseconds since the Unix epoch of a text such as `2026-01-31T09:08:07.006Z`, with any number of decimals, of
/// which six count. Nothing for another text, for a day that there is not, and for times before 1970.
pub fn microseconds(text: &str) -> Option<i64> {
    let (time, fraction) = text.as_bytes().strip_suffix(b"Z")?.split_at_checked(19)?;
    let separators = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')];
    if separators.iter().any(|(place, separator)| time[*place] != *separator) {
        return None;
    }
    let part = |from: usize, to: usize, range: RangeInclusive<u64>| {
        number(&time[from..to]).filter(|number| range.contains(number))
    };
    let (year, month) = (part(0, 4, 1970..=9999)?, part(5, 7, 1..=12)?);
    let day = part(8, 10, 1..=days_of_month(year, month))?;
    // A leap second is the 60th.
    let (hour, minute, second) = (part(11, 13, 0..=23)?, part(14, 16, 0..=59)?, part(17, 19, 0..=60)?);
    let microseconds = match fraction {
        [] => 0,
        [b'.', digits @ ..] if !digits.is_empty() && digits.iter().all(u8::is_ascii_digit) => {
            let counted = &digits[..digits.len().min(6)];
            number(counted)? * 10_u64.pow(6 - counted.len() as u32)
        }
        _ => return None,
    };
    let seconds = days((year, month, day)) * SECONDS_OF_DAY + hour * 3_600 + minute * 60 + second;
    i64::try_from(seconds * 1_000_000 + microseconds).ok()
}

/// The number of a few decimal digits.
fn number(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0, |sum, digit| digit.is_ascii_digit().then(|| sum * 10 + u64::from(digit - b'0')))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FIRST_AFTER: u64 = LAST_SECOND + 1;

    /// Every day from 1970 to 9999, counted one by one.
    #[test]
    fn every_day_has_the_date_after_the_day_before() {
        let (mut year, mut month, mut day) = (1970, 1, 1);
        let mut number = 0;
        while year < 10_000 {
            assert_eq!(date(number), (year, month, day));
            assert_eq!(days((year, month, day)), number);
            number += 1;
            day += 1;
            if day > days_of_month(year, month) {
                (month, day) = (month + 1, 1);
            }
            if month > 12 {
                (year, month) = (year + 1, 1);
            }
        }
        assert_eq!(number * SECONDS_OF_DAY, FIRST_AFTER);
    }

    #[test]
    fn leap_years_are_those_of_the_gregorian_calendar() {
        for (year, length) in [(1972, 29), (2000, 29), (2024, 29), (2400, 29), (1970, 28), (2100, 28), (9900, 28)] {
            assert_eq!(days_of_month(year, 2), length, "{year}");
            assert_eq!(microseconds(&format!("{year}-02-29T00:00:00Z")).is_some(), length == 29, "{year}");
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
            LAST_SECOND,
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
        fn texts_are_ordered_as_the_times(one in 0..=2 * LAST_SECOND * 1_000_000, other in 0..=2 * LAST_SECOND * 1_000_000) {
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
