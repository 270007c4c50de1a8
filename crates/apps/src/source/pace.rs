//! When packets are due.

use bellows_config::Rate;

/// Binary digits of a nanosecond that are reckoned with: the rate is off by less than 1 part in 10⁹.
const FRACTION: u32 = 32;

/// Evenly spaced packets. Times are nanoseconds of the engine's clock.
pub(super) struct Pace {
    /// From one packet to the next, with [`FRACTION`].
    interval: u128,
    /// When the next packet is due, with [`FRACTION`]; `None` before the first.
    next: Option<u128>,
    /// Packets that were due so long ago that they are not caught up with.
    skipped: u64,
}

impl Pace {
    /// So many packets per second, more than 0.
    pub(super) fn new(rate: Rate) -> Pace {
        let interval = (rate.interval_nanos() * (1u64 << FRACTION) as f64).round() as u128;
        Pace { interval: interval.clamp(1, u128::from(u64::MAX) << FRACTION), next: None, skipped: 0 }
    }

    /// How many packets a tenth of a second brings, at least 1.
    pub(super) fn tenth(&self) -> usize {
        let tenth = (100_000_000u128 << FRACTION) / self.interval;
        usize::try_from(tenth.max(1)).unwrap_or(usize::MAX)
    }

    /// How many packets are due. If more than `most` are, the rest is skipped.
    pub(super) fn due(&mut self, now: u64, most: usize) -> usize {
        let now = u128::from(now) << FRACTION;
        let next = *self.next.get_or_insert(now);
        let Some(late) = now.checked_sub(next) else { return 0 };
        let due = late / self.interval + 1;
        if due > most as u128 {
            self.next = Some(now - (most as u128 - 1) * self.interval);
            self.skipped += u64::try_from(due - most as u128).unwrap_or(u64::MAX);
            return most;
        }
        due as usize
    }

    /// How many packets have been skipped since the last call.
    pub(super) fn take_skipped(&mut self) -> u64 {
        std::mem::take(&mut self.skipped)
    }

    /// Books packets as sent.
    pub(super) fn sent(&mut self, count: usize) {
        if let Some(next) = &mut self.next {
            *next += count as u128 * self.interval;
        }
    }

    /// When the next packet is due.
    pub(super) fn next(&self) -> u64 {
        let next = self.next.unwrap_or(0).div_ceil(1 << FRACTION);
        u64::try_from(next).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Looked at often enough, exactly the packets of the elapsed time are sent, whatever the rate and the moments;
        /// otherwise never more than that, nor more than a burst at once.
        #[test]
        fn the_rate_is_exact(per_second in 1u32..50_000_000, steps in prop::collection::vec(0u64..3_000_000, 1..50)) {
            let rate = Rate::new(f64::from(per_second)).unwrap();
            let (mut patient, mut hurried) = (Pace::new(rate), Pace::new(rate));
            let (mut now, mut sent, mut few) = (5_000_000_000, 0u128, 0u128);
            let start = now;
            for step in [0].into_iter().chain(steps) {
                now += step;
                let due = patient.due(now, usize::MAX >> 1);
                patient.sent(due);
                sent += due as u128;
                let exact = u128::from(now - start) * u128::from(per_second) / 1_000_000_000 + 1;
                prop_assert!(sent.abs_diff(exact) <= 1, "{} sent, {} due", sent, exact);
                prop_assert!(patient.next() > now);
                let due = hurried.due(now, 4);
                hurried.sent(due);
                few += due as u128;
                prop_assert!(due <= 4 && few <= sent);
            }
        }
    }

    #[test]
    fn a_rate_of_less_than_one_a_second_is_kept() {
        let mut pace = Pace::new(Rate::new(0.25).unwrap());
        assert_eq!(pace.due(1_000, 8), 1);
        pace.sent(1);
        assert_eq!(pace.next(), 4_000_001_000);
        assert_eq!((pace.due(4_000_000_999, 8), pace.due(4_000_001_000, 8)), (0, 1));
        assert_eq!(pace.tenth(), 1);
    }

    #[test]
    fn what_is_not_caught_up_with_is_counted() {
        let mut pace = Pace::new(Rate::new(1_000.0).unwrap());
        assert_eq!((pace.due(0, 100), pace.tenth()), (1, 100));
        assert_eq!(pace.due(1_000_000_000, pace.tenth()), 100);
        assert_eq!((pace.take_skipped(), pace.take_skipped()), (901, 0));
        pace.sent(100);
        assert_eq!(pace.next(), 1_001_000_000);
    }
}
