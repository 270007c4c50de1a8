//! When packets leave.

use bellows_config::TrafficRate;

use crate::pace;

/// Decides when packets leave.
pub(super) enum ReplayPace {
    /// As soon as there is room.
    Max,
    /// With the recorded pauses.
    Recorded {
        /// The factor by which time runs faster.
        factor: f64,
        /// A pass, when its first packet left, and the recorded time of that packet.
        anchor: Option<(u64, u64, u64)>,
    },
    /// At a steady rate.
    Rate(pace::Pace),
}

/// Whether a packet may leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DepartureVerdict {
    Go,
    Wait { until: u64 },
}

impl ReplayPace {
    pub(super) fn recorded(factor: f64) -> ReplayPace {
        ReplayPace::Recorded { factor, anchor: None }
    }

    pub(super) fn rate(rate: TrafficRate) -> ReplayPace {
        ReplayPace::Rate(pace::Pace::new(rate))
    }

    /// Whether a packet of this length that was recorded at `timestamp` may leave `now`, in this pass over the file; if
    /// so, it counts as sent. One without a length is only left out, when its recorded time has come. Times are in
    /// nanoseconds.
    pub(super) fn judge(&mut self, now: u64, pass: u64, timestamp: u64, length: Option<usize>) -> DepartureVerdict {
        let due = match self {
            ReplayPace::Max => now,
            // A simple packet block of pcapng carries no time.
            ReplayPace::Recorded { .. } if timestamp == 0 => now,
            ReplayPace::Recorded { factor, anchor } => {
                let (_, start, first) = match *anchor {
                    Some(anchor) if anchor.0 == pass => anchor,
                    _ => *anchor.insert((pass, now, timestamp)),
                };
                start.saturating_add((timestamp.saturating_sub(first) as f64 / *factor) as u64)
            }
            ReplayPace::Rate(pace) => {
                let Some(length) = length else { return DepartureVerdict::Go };
                if pace.take_one(now, length) {
                    return DepartureVerdict::Go;
                }
                pace.next()
            }
        };
        if due <= now { DepartureVerdict::Go } else { DepartureVerdict::Wait { until: due } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The times at which packets with these timestamps leave, if each is tried as soon as the one before has left.
    fn departures(mut pace: ReplayPace, start: u64, times: &[u64]) -> Vec<u64> {
        let mut now = start;
        let departure = |&timestamp: &u64| {
            if let DepartureVerdict::Wait { until } = pace.judge(now, 0, timestamp, Some(60)) {
                now = until;
                assert_eq!(pace.judge(now, 0, timestamp, Some(60)), DepartureVerdict::Go);
            }
            now
        };
        times.iter().map(departure).collect()
    }

    #[test]
    fn recorded_pauses_are_kept_and_invalid_ones_skipped() {
        let recorded = |factor, times: &[u64]| departures(ReplayPace::recorded(factor), 1_000, times);
        assert_eq!(recorded(1.0, &[500, 600, 650]), [1_000, 1_100, 1_150]);
        assert_eq!(recorded(0.5, &[500, 600, 650]), [1_000, 1_200, 1_300]);
        assert_eq!(recorded(10.0, &[500, 600, 650]), [1_000, 1_010, 1_015]);
        assert_eq!(recorded(1.0, &[500, 400, 0, 600]), [1_000, 1_000, 1_000, 1_100]);
        assert_eq!(recorded(1.0, &[0, 500, 600]), [1_000, 1_000, 1_100]);
        assert_eq!(recorded(1e-300, &[1, 2])[1], u64::MAX);
    }

    #[test]
    fn a_pass_begins_when_the_one_before_has_ended() {
        let mut pace = ReplayPace::recorded(1.0);
        assert_eq!(pace.judge(0, 0, 1_000, Some(60)), DepartureVerdict::Go);
        assert_eq!(pace.judge(5, 0, 1_010, Some(60)), DepartureVerdict::Wait { until: 10 });
        assert_eq!(pace.judge(10, 1, 1_000, Some(60)), DepartureVerdict::Go);
        assert_eq!(pace.judge(10, 1, 1_010, Some(60)), DepartureVerdict::Wait { until: 20 });
    }

    #[test]
    fn a_long_delay_is_not_made_up_for() {
        let mut pace = ReplayPace::rate("1kpps".parse().unwrap());
        assert_eq!(pace.judge(0, 0, 0, Some(60)), DepartureVerdict::Go);
        let late =
            (0..1_000).take_while(|_| pace.judge(60_000_000_000, 0, 0, Some(60)) == DepartureVerdict::Go).count();
        assert_eq!(late, 101);
    }

    proptest! {
        /// Any rate is exact to the nanosecond, for any number of packets.
        #[test]
        fn rates_do_not_drift(start in 0u64..1 << 60, rate in 1u32..1_000_000_000, count in 1usize..2_000) {
            let pace = ReplayPace::rate(format!("{rate}pps").parse().unwrap());
            let departures = departures(pace, start, &vec![7; count]);
            for (index, departure) in departures.iter().enumerate() {
                let exact = index as u128 * 1_000_000_000 / u128::from(rate);
                prop_assert!((u128::from(departure - start)).abs_diff(exact) <= 1);
            }
        }
    }
}
