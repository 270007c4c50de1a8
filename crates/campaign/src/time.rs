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
}
