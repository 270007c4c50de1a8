//! The times at which packets leave at a steady rate.

use bellows_config::TrafficRate;

/// Binary digits of a fraction of a nanosecond: at 1 Tb/s the rate is off by 1 part in 10⁹.
const FRACTION: u32 = 40;

/// Units that are overdue by more than this, in nanoseconds, are skipped.
const PATIENCE: u64 = 100_000_000;

/// A steady rate: each packet is due when the time of the one before it is over. Times are nanoseconds of the engine's
/// clock; the length of a packet is counted in units, which are packets or bits.
pub(crate) struct Pace {
    rate: TrafficRate,
    /// Time from one unit to the next, with [`FRACTION`].
    interval: u128,
    /// When the next packet is due, with [`FRACTION`]; `None` before the first.
    next: Option<u128>,
    /// Units that were skipped because they were due too long ago.
    skipped: u64,
}

/// The packets that are due at one moment.
pub(crate) struct Due {
    rate: TrafficRate,
    /// Units until the next packet is no longer due; negative if it is not due.
    left: i64,
    /// Units of the packets that were taken.
    taken: u64,
}

impl Due {
    /// Takes up to `most` packets of this length that are due, and returns how many. Hot.
    #[inline]
    pub(crate) fn take(&mut self, length: usize, most: usize) -> usize {
        if self.left < 0 {
            return 0;
        }
        let cost = self.rate.cost(length).max(1);
        let all = cost.saturating_mul(most as u64);
        let (count, units) = if all <= self.left as u64 {
            (most, all)
        } else {
            let count = (self.left as u64 / cost + 1).min(most as u64);
            (count as usize, count * cost)
        };
        self.left -= units as i64;
        self.taken += units;
        count
    }

    /// Puts back packets of this length that were not sent.
    pub(crate) fn put_back(&mut self, length: usize, count: usize) {
        let units = self.rate.cost(length).max(1) * count as u64;
        self.left += units as i64;
        self.taken -= units;
    }
}

impl Pace {
    /// Creates a pace; the rate must be above 0.
    pub(crate) fn new(rate: TrafficRate) -> Pace {
        let interval = (1e9 / rate.per_second() * (1u64 << FRACTION) as f64).round() as u128;
        Pace { rate, interval: interval.clamp(1, u128::from(u64::MAX) << FRACTION), next: None, skipped: 0 }
    }

    /// The packets that are due now. Skips units that were due more than a tenth of a second ago.
    pub(crate) fn due(&mut self, now: u64) -> Due {
        let now = u128::from(now) << FRACTION;
        let next = *self.next.get_or_insert(now);
        let Some(late) = now.checked_sub(next) else { return Due { rate: self.rate, left: -1, taken: 0 } };
        let mut left = late / self.interval;
        let most = ((u128::from(PATIENCE) << FRACTION) / self.interval).max(1) - 1;
        if left > most {
            self.next = Some(now - most * self.interval);
            self.skipped = self.skipped.saturating_add(u64::try_from(left - most).unwrap_or(u64::MAX));
            left = most;
        }
        Due { rate: self.rate, left: i64::try_from(left).unwrap_or(i64::MAX), taken: 0 }
    }

    /// Takes one packet of this length if it is due, and returns whether it is. Skips units that were due more than a
    /// tenth of a second ago. Contains no division, for callers that ask for each packet. Hot.
    #[inline]
    pub(crate) fn take_one(&mut self, now: u64, length: usize) -> bool {
        let now = u128::from(now) << FRACTION;
        let next = *self.next.get_or_insert(now);
        let Some(late) = now.checked_sub(next) else { return false };
        let most = u128::from(PATIENCE) << FRACTION;
        let from = if late > most { now - most } else { next };
        self.next = Some(from.saturating_add(u128::from(self.rate.cost(length)) * self.interval));
        true
    }

    /// Number of packets skipped since the last call, for packets of `length` bytes on average.
    pub(crate) fn take_skipped(&mut self, length: usize) -> u64 {
        let cost = self.rate.cost(length).max(1);
        let packets = self.skipped / cost;
        self.skipped %= cost;
        packets
    }

    /// Records the packets that were taken as sent.
    pub(crate) fn sent(&mut self, due: &Due) {
        if let Some(next) = &mut self.next {
            *next = next.saturating_add(u128::from(due.taken) * self.interval);
        }
    }

    /// When the next packet is due.
    pub(crate) fn next(&self) -> u64 {
        let next = self.next.unwrap_or(0).div_ceil(1 << FRACTION);
        u64::try_from(next).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rate(text: &str) -> TrafficRate {
        text.parse().unwrap()
    }

    proptest! {
        /// If called often enough, exactly the packets of the elapsed time are sent, for any rate and times; otherwise
        /// never more than these, and never more than the caller asks for.
        #[test]
        fn the_rate_is_exact(per_second in 1u32..50_000_000, steps in prop::collection::vec(0u64..3_000_000, 1..50)) {
            let rate = rate(&format!("{per_second}pps"));
            let (mut patient, mut hurried) = (Pace::new(rate), Pace::new(rate));
            let (mut now, mut sent, mut few) = (5_000_000_000, 0u128, 0u128);
            let start = now;
            for step in [0].into_iter().chain(steps) {
                now += step;
                let mut due = patient.due(now);
                sent += due.take(60, usize::MAX >> 1) as u128;
                patient.sent(&due);
                let exact = u128::from(now - start) * u128::from(per_second) / 1_000_000_000 + 1;
                prop_assert!(sent.abs_diff(exact) <= 1, "{} sent, {} due", sent, exact);
                prop_assert!(patient.next() > now);
                let mut due = hurried.due(now);
                let taken = due.take(60, 4);
                hurried.sent(&due);
                few += taken as u128;
                prop_assert!(taken <= 4 && few <= sent);
            }
        }

        /// A rate in bits holds for any packet lengths: each packet is due when the bits of those before it are over.
        #[test]
        fn bits_are_counted_of_each_packet(
            megabits in 1u64..10_000,
            wire: bool,
            // Each takes a nanosecond or more.
            lengths in prop::collection::vec(2usize..9_000, 2..100),
        ) {
            let rate = rate(&format!("{megabits}Mb/s{}", if wire { " L1" } else { "" }));
            let mut pace = Pace::new(rate);
            let (start, mut now, mut bits) = (7_000, 7_000, 0u64);
            for &length in &lengths {
                let mut due = pace.due(now);
                if due.take(length, 1) == 0 {
                    now = pace.next();
                    due = pace.due(now);
                    prop_assert_eq!(due.take(length, 1), 1);
                }
                prop_assert_eq!(due.take(length, 1), 0, "one at a time");
                pace.sent(&due);
                let exact = start as f64 + bits as f64 * 1_000.0 / megabits as f64;
                prop_assert!((now as f64 - exact).abs() <= 1.0, "{now} instead of {exact}");
                bits += rate.cost(length);
            }
        }
    }

    #[test]
    fn a_rate_of_less_than_one_a_second_is_kept() {
        let mut pace = Pace::new(rate("0.25pps"));
        let mut due = pace.due(1_000);
        assert_eq!(due.take(60, 8), 1);
        pace.sent(&due);
        assert_eq!(pace.next(), 4_000_001_000);
        assert_eq!((pace.due(4_000_000_999).take(60, 8), pace.due(4_000_001_000).take(60, 8)), (0, 1));
    }

    #[test]
    fn skipped_units_are_counted_in_packets() {
        for (text, length) in [("1kpps", 60), ("800kb/s", 100), ("800kb/s L1", 76)] {
            let mut pace = Pace::new(rate(text));
            assert_eq!(pace.due(0).take(length, 100), 1);
            let mut due = pace.due(1_000_000_000);
            assert_eq!(due.take(length, 1_000), 100, "{text}");
            assert!((900..=901).contains(&pace.take_skipped(length)), "{text}");
            assert_eq!(pace.take_skipped(length), 0);
            pace.sent(&due);
            let next = pace.next();
            assert!((1_000_000_000..=1_001_000_000).contains(&next), "{text}: {next}");
        }
    }

    #[test]
    fn packets_not_sent_are_due_again() {
        let mut pace = Pace::new(rate("8Mb/s"));
        pace.due(0);
        let mut due = pace.due(1_000_000);
        assert_eq!(due.take(100, 20), 11);
        due.put_back(100, 4);
        pace.sent(&due);
        assert_eq!((pace.next(), due.take(100, 20)), (700_000, 4));
    }
}
