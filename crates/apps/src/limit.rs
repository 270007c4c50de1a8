//! A limit of packets a second, with some at once after a pause.

/// The generic cell rate algorithm (ITU-T I.371), in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit {
    /// For a packet.
    interval: u64,
    /// For those that are admitted at once.
    tolerance: u64,
    /// The time until which the rate is used up.
    paid_until: u64,
}

impl Limit {
    /// So many packets a second, and up to `burst` at once.
    pub(crate) fn new(rate: u32, burst: u32) -> Limit {
        let interval = (1_000_000_000 / u64::from(rate.max(1))).max(1);
        Limit { interval, tolerance: interval * u64::from(burst.saturating_sub(1)), paid_until: 0 }
    }

    /// Whether a packet is admitted.
    #[inline]
    pub(crate) fn admits(&self, now: u64) -> bool {
        self.paid_until <= now + self.tolerance
    }

    /// Counts an admitted packet.
    #[inline]
    pub(crate) fn pay(&mut self, now: u64) {
        self.paid_until = self.paid_until.max(now) + self.interval;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_admitted_and_then_the_rate() {
        let mut limit = Limit::new(1_000, 5);
        let mut admitted = |now: u64| {
            let is_admitted = limit.admits(now);
            if is_admitted {
                limit.pay(now);
            }
            is_admitted
        };
        let start = 1_000_000_000;
        assert_eq!((0..8).filter(|_| admitted(start)).count(), 5);
        assert!(!admitted(start + 999_999) && admitted(start + 1_000_000) && !admitted(start + 1_000_001));
        assert_eq!((0..8).filter(|_| admitted(start + 60_000_000_000)).count(), 5, "no more is saved in a long pause");
    }
}
