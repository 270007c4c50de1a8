//! Log lines about slow breaths, limited to one in ten seconds.

use std::fmt::Write;
use std::time::{Duration, Instant};

use bellows_observe::{Activity, SlowBreath, SlowBreaths};

use crate::text::{nanos, plural, sanitize};

/// The minimum time between two lines.
const MIN_INTERVAL: Duration = Duration::from_secs(10);

/// Logs slow breaths, and counts those that it leaves out.
pub struct SlowLog {
    limit: Duration,
    /// The earliest time of the next line; at once if there was none.
    next: Option<Instant>,
    /// The number of breaths left out since the last line, and the slowest of them.
    left_out: u64,
    worst: Option<SlowBreath>,
}

impl SlowLog {
    /// Creates the log for this limit on breaths.
    pub fn new(limit: Duration) -> SlowLog {
        SlowLog { limit, next: None, left_out: 0, worst: None }
    }

    /// Takes the slow breaths that were found, and returns the lines to log.
    pub fn take(&mut self, found: SlowBreaths, now: Instant) -> Option<String> {
        let mut line = None;
        for slow in found.first {
            if line.is_none() && self.is_due(now) {
                line = Some(self.describe(&slow));
            } else {
                self.leave_out(slow);
            }
        }
        self.left_out += found.more;
        if line.is_none() && self.is_due(now) && self.left_out > 0 {
            line = Some(self.describe_left_out());
        }
        if line.is_some() {
            self.next = now.checked_add(MIN_INTERVAL);
        }
        line
    }

    fn is_due(&self, now: Instant) -> bool {
        self.next.is_none_or(|next| next <= now)
    }

    fn leave_out(&mut self, slow: SlowBreath) {
        self.left_out += 1;
        if self.worst.as_ref().is_none_or(|worst| worst.nanos < slow.nanos) {
            self.worst = Some(slow);
        }
    }

    fn describe(&mut self, slow: &SlowBreath) -> String {
        let mut text = describe(slow, self.limit);
        if self.left_out > 0 {
            let _ = write!(text, "; before, since the last such line: {}", self.take_left_out());
        }
        text
    }

    fn describe_left_out(&mut self) -> String {
        format!("slow: since the last such line: {}", self.take_left_out())
    }

    /// The breaths that were left out, in words.
    fn take_left_out(&mut self) -> String {
        let left_out = plural(std::mem::take(&mut self.left_out), "more breath");
        match self.worst.take() {
            Some(worst) => format!("{left_out}, the longest {}{}", nanos(worst.nanos), whose(&worst, self.limit)),
            None => left_out,
        }
    }
}

/// A slow breath, in words.
fn describe(slow: &SlowBreath, limit: Duration) -> String {
    let limit_ns = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
    if slow.is_standstill(limit) {
        return format!(
            "no breath was taken for {}, because the whole process stood still: it was stopped, by a signal or a \
             debugger, or the machine was; no app is to blame",
            nanos(slow.nanos)
        );
    }
    let mut text = format!(
        "slow: a breath took {}, more than the {} of `breath_limit`{}",
        nanos(slow.nanos),
        nanos(limit_ns),
        whose(slow, limit)
    );
    if let Some(on_processor) = slow.on_processor {
        let _ = write!(text, ", of which {} on the processor", nanos(on_processor));
    }
    if slow.stood_still > 0 {
        let _ = write!(text, "; for {} of it the whole process stood still", nanos(slow.stood_still));
    }
    text
}

/// The app in which it was, in words.
fn whose(slow: &SlowBreath, limit: Duration) -> String {
    let on = slow.worker.as_ref().map_or_else(String::new, |worker| format!(", on the worker `{}`", sanitize(worker)));
    let doing = match &slow.doing {
        _ if slow.is_standstill(limit) => return ", a standstill of the process".to_owned(),
        Some(doing) => {
            let activity = match doing.activity {
                Activity::Call => "moving packets",
                Activity::Question => "answering whether it is done",
                Activity::Start => "starting",
                Activity::Stop => "stopping",
            };
            format!(", in the app `{}` ({activity})", sanitize(&doing.app))
        }
        None => ", in no app as far as known".to_owned(),
    };
    on + &doing
}

#[cfg(test)]
mod tests {
    use super::*;
    use bellows_observe::CurrentCall;

    const LIMIT: Duration = Duration::from_millis(100);

    fn slow(millis: u64, stood_still: u64) -> SlowBreath {
        let doing = Some(CurrentCall { app: "sieve".to_owned(), activity: Activity::Call });
        let on_processor = Some((millis - stood_still) * 1_000_000);
        SlowBreath {
            worker: None,
            nanos: millis * 1_000_000,
            stood_still: stood_still * 1_000_000,
            on_processor,
            doing,
        }
    }

    fn found(first: &[SlowBreath], more: u64) -> SlowBreaths {
        SlowBreaths { first: first.to_vec(), more }
    }

    #[test]
    fn a_slow_breath_is_logged_at_once_and_the_next_ones_together() {
        let mut log = SlowLog::new(LIMIT);
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(log.take(found(&[], 0), start), None);
        let line = log.take(found(&[slow(300, 0)], 0), start).unwrap();
        let wanted = "slow: a breath took 300 ms, more than the 100 ms of `breath_limit`, in the app `sieve` (moving \
                      packets), of which 300 ms on the processor";
        assert_eq!(line, wanted);
        assert_eq!(log.take(found(&[slow(200, 0), slow(500, 0), slow(400, 0)], 7), after(1)), None);
        assert_eq!(log.take(found(&[], 0), after(9)), None);
        let line = log.take(found(&[slow(150, 0)], 0), after(10)).unwrap();
        assert!(line.starts_with("slow: a breath took 150 ms"), "{line}");
        assert!(line.ends_with("10 more breaths, the longest 500 ms, in the app `sieve` (moving packets)"), "{line}");
        assert_eq!(log.take(found(&[slow(200, 0)], 0), after(12)), None);
        let line = log.take(found(&[], 0), after(20)).unwrap();
        assert_eq!(
            line,
            "slow: since the last such line: 1 more breath, the longest 200 ms, in the app `sieve` (moving packets)"
        );
        assert_eq!(log.take(found(&[], 0), after(40)), None, "what was told is told once");
    }

    #[test]
    fn the_worker_is_named_if_there_are_several() {
        let slow = SlowBreath { worker: Some("disk".to_owned()), ..slow(300, 0) };
        let line = SlowLog::new(LIMIT).take(found(&[slow], 0), Instant::now()).unwrap();
        assert!(line.contains(", on the worker `disk`, in the app `sieve` (moving packets)"), "{line}");
    }

    #[test]
    fn a_standstill_is_logged_without_an_app() {
        let start = Instant::now();
        let line = SlowLog::new(LIMIT).take(found(&[slow(2_000, 1_950)], 0), start).unwrap();
        assert!(line.contains("no breath was taken for 2.00 s") && !line.contains("sieve"), "{line}");
        let line = SlowLog::new(LIMIT).take(found(&[slow(2_000, 500)], 0), start).unwrap();
        assert!(line.contains("in the app `sieve`"), "{line}");
        assert!(
            line.ends_with("of which 1.50 s on the processor; for 500 ms of it the whole process stood still"),
            "{line}"
        );
    }
}
