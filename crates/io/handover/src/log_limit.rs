//! Limits the log lines about one peer, because a peer can cause any number of them.

use std::time::{Duration, Instant};

/// Lines that may be logged at once.
const BURST: u32 = 10;

/// Time until one more line may be logged.
const REFILL: Duration = Duration::from_secs(1);

/// A token limit. Lines that find it empty are suppressed and counted.
#[derive(Debug)]
pub struct LogLimit {
    tokens: u32,
    /// When the last token was added.
    filled: Instant,
    suppressed: u64,
}

impl LogLimit {
    /// A full bucket.
    pub fn new(now: Instant) -> LogLimit {
        LogLimit { tokens: BURST, filled: now, suppressed: 0 }
    }

    /// Whether a line may be logged now; if so, the number of lines suppressed since the last one.
    pub fn take(&mut self, now: Instant) -> Option<u64> {
        let passed = now.saturating_duration_since(self.filled).as_nanos() / REFILL.as_nanos();
        let new = u32::try_from(passed).unwrap_or(u32::MAX);
        self.tokens = self.tokens.saturating_add(new).min(BURST);
        self.filled = if self.tokens == BURST { now } else { self.filled + REFILL * new };
        if self.tokens == 0 {
            self.suppressed += 1;
            return None;
        }
        self.tokens -= 1;
        Some(std::mem::take(&mut self.suppressed))
    }
}

/// A log line with the number of suppressed lines before it.
pub fn with_suppressed(line: &str, suppressed: u64) -> String {
    match suppressed {
        0 => line.to_owned(),
        1 => format!("{line} (1 line about this peer was suppressed before)"),
        lines => format!("{line} ({lines} lines about this peer were suppressed before)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_of_lines_then_one_a_second_and_suppressed_ones_are_counted() {
        let start = Instant::now();
        let mut limit = LogLimit::new(start);
        let at = |seconds: f64| start + Duration::from_secs_f64(seconds);
        assert!((0..10).all(|_| limit.take(at(0.0)) == Some(0)));
        assert!((0..5).all(|_| limit.take(at(0.9)).is_none()));
        assert_eq!(limit.take(at(1.0)), Some(5));
        assert_eq!(limit.take(at(1.5)), None);
        assert_eq!((limit.take(at(2.2)), limit.take(at(2.3)), limit.take(at(3.1))), (Some(1), None, Some(1)));
        // A quiet period fills it, but not beyond its limit.
        assert_eq!((0..20).filter(|_| limit.take(at(1000.0)).is_some()).count(), 10);
        // A peer gets one line a second, however long it goes on.
        let lines = (0..100_000).filter(|tick| limit.take(at(2000.0 + f64::from(*tick) / 1000.0)).is_some()).count();
        assert!((109..=110).contains(&lines), "{lines}");
    }

    #[test]
    fn a_line_gives_the_number_of_suppressed_lines() {
        assert_eq!(with_suppressed("x", 0), "x");
        assert_eq!(with_suppressed("x", 1), "x (1 line about this peer was suppressed before)");
        assert_eq!(with_suppressed("x", 7), "x (7 lines about this peer were suppressed before)");
    }
}
