//! Times as RFC 3339 texts in UTC.

/// A time in nanoseconds since the Unix epoch as text: `2026-01-31T09:08:07.006Z`. All texts have one length until the
/// year 9999, so that their order is that of the times.
pub(crate) fn rfc3339(unix_ns: u64) -> String {
    let milliseconds = unix_ns / 1_000_000;
    let (days, in_day) = (milliseconds / 86_400_000, milliseconds % 86_400_000);
    let (year, month, day) = date(days);
    let (hour, minute) = (in_day / 3_600_000, in_day / 60_000 % 60);
    let (second, millisecond) = (in_day / 1_000 % 60, in_day % 1_000);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millisecond:03}Z")
}

/// A time in microseconds since the Unix epoch as text: `2026-01-31T09:08:07.006Z`.
pub fn text_of(unix_us: i64) -> String {
    rfc3339(u64::try_from(unix_us).unwrap_or(0).saturating_mul(1_000))
}

/// The microseconds since the Unix epoch of a text such as `2026-01-31T09:08:07.006Z`, with any number of decimals.
/// Nothing for another text, and for times before 1970.
pub fn microseconds(text: &str) -> Option<i64> {
    let bytes = text.as_bytes();
    if bytes.len() < 20 || bytes[bytes.len() - 1] != b'Z' {
        return None;
    }
    let separators = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')];
    if separators.iter().any(|(place, separator)| bytes[*place] != *separator) {
        return None;
    }
    let number = |digits: &[u8]| {
        digits.iter().try_fold(0i64, |sum, digit| digit.is_ascii_digit().then(|| sum * 10 + i64::from(digit - b'0')))
    };
    let part = |from: usize, to: usize, range: std::ops::RangeInclusive<i64>| {
        number(&bytes[from..to]).filter(|number| range.contains(number))
    };
    let (year, month, day) = (part(0, 4, 1970..=9999)?, part(5, 7, 1..=12)?, part(8, 10, 1..=31)?);
    let (hour, minute, second) = (part(11, 13, 0..=23)?, part(14, 16, 0..=59)?, part(17, 19, 0..=60)?);
    let decimals = match &bytes[19..bytes.len() - 1] {
        [] => 0,
        [b'.', digits @ ..] if !digits.is_empty() && digits.iter().all(u8::is_ascii_digit) => {
            number(&digits[..digits.len().min(6)])? * 10i64.pow(6u32.saturating_sub(digits.len() as u32))
        }
        _ => return None,
    };
    // Days since 1970-01-01, counted in years that begin in March, so that the day of a leap year is the last.
    let (years, months) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = years * 365 + years / 4 - years / 100 + years / 400 + (153 * months + 2) / 5 + day - 1 - 719_468;
    Some((days * 86_400 + hour * 3_600 + minute * 60 + second) * 1_000_000 + decimals)
}

/// The present time as text, as rows have it: `2026-01-31T09:08:07.006Z`.
pub fn now() -> String {
    rfc3339(bellows_sys::clock::unix_ns())
}

/// Year, month and day of a number of days since 1970-01-01, in the Gregorian calendar.
fn date(days: u64) -> (u64, u64, u64) {
    let is_leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let year_days = |year| if is_leap(year) { 366 } else { 365 };
    // 400 years have 146,097 days.
    let (mut year, mut left) = (1970 + days / 146_097 * 400, days % 146_097);
    while left >= year_days(year) {
        left -= year_days(year);
        year += 1;
    }
    let lengths = [31, if is_leap(year) { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 1;
    for length in lengths {
        if left < length {
            break;
        }
        left -= length;
        month += 1;
    }
    (year, month, left + 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Against `date -u`.
    #[test]
    fn times_are_those_of_the_calendar() {
        for seconds in [0, 951_782_400, 951_868_800, 1_709_164_800, 1_795_727_557, 4_107_542_399, 16_725_225_600] {
            let format = "+%Y-%m-%dT%H:%M:%S.000Z";
            let date = std::process::Command::new("date").args(["-u", "-d", &format!("@{seconds}"), format]).output();
            let expected = String::from_utf8(date.unwrap().stdout).unwrap();
            assert_eq!(rfc3339(seconds * 1_000_000_000), expected.trim());
        }
        assert_eq!(rfc3339(1_006_999_999), "1970-01-01T00:00:01.006Z");
    }

    #[test]
    fn other_texts_are_no_times() {
        for text in [
            "",
            "2026-01-31",
            "2026-01-31T09:08:07",
            "2026-13-31T09:08:07Z",
            "2026-01-31T09:08:07.Z",
            "2026-01-31T09:08:07.x0Z",
            "2026-01-31 09:08:07.0Z",
            "2026-01-31T09:08:+7.00Z",
            "1969-01-31T09:08:07.000Z",
            "2026-01-31T09:08:07.123456\u{e9}Z",
        ] {
            assert_eq!(microseconds(text), None, "{text}");
        }
        assert_eq!(microseconds("1970-01-01T00:00:01.0060004Z"), Some(1_006_000));
        assert_eq!(microseconds("1970-01-01T00:00:01.5Z"), Some(1_500_000));
        assert_eq!(microseconds("1970-01-01T00:00:01Z"), Some(1_000_000));
    }

    proptest! {
        #[test]
        fn a_time_is_read_as_it_is_written(milliseconds in 0..18_446_744_073_709u64) {
            let microseconds_before = (milliseconds * 1_000) as i64;
            prop_assert_eq!(microseconds(&text_of(microseconds_before)), Some(microseconds_before));
        }

        #[test]
        fn any_text_is_a_time_or_none(text in "[0-9TZ.:é-]{0,30}") {
            microseconds(&text);
        }
    }
}
