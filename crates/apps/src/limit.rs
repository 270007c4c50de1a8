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

/// The limits of messages by which stations look for the router, or tell it of themselves. Those of neighbours that are
/// known have a limit of their own, so that a flood from strangers does not keep them out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hearing {
    strangers: Limit,
    known: Limit,
}

/// Messages a second of strangers, and of stations that are known.
const STRANGERS: u32 = 10_000;
const KNOWN: u32 = 100_000;

/// Parts of a second's messages that are heard at once.
const BURST: u32 = 8;

impl Hearing {
    pub(crate) fn new() -> Hearing {
        let [strangers, known] = [STRANGERS, KNOWN].map(|rate| Limit::new(rate, rate / BURST));
        Hearing { strangers, known }
    }

    /// Whether a message is heard. If so, it counts.
    #[inline]
    pub(crate) fn hears(&mut self, is_known: bool, now: u64) -> bool {
        let limit = if is_known { &mut self.known } else { &mut self.strangers };
        let admits = limit.admits(now);
        if admits {
            limit.pay(now);
        }
        admits
    }

    /// Whether a message would be heard.
    #[inline]
    pub(crate) fn would_hear(&self, is_known: bool, now: u64) -> bool {
        if is_known { self.known.admits(now) } else { self.strangers.admits(now) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_do_not_keep_out_those_who_are_known() {
        let (mut hearing, now) = (Hearing::new(), 1_000_000_000);
        let heard = (0..100_000).filter(|_| hearing.hears(false, now)).count();
        assert_eq!(heard, (STRANGERS / BURST) as usize);
        assert!(!hearing.would_hear(false, now) && hearing.would_hear(true, now) && hearing.hears(true, now));
        let second = (0..1_000_000).filter(|at| hearing.hears(false, now + at * 1_000)).count();
        assert!(second.abs_diff(STRANGERS as usize) <= 1, "{second}");
    }

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
