//! A limit of packets a second, with some at once after a pause.

/// The generic cell rate algorithm (ITU-T I.371), in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    /// For a packet.
    interval: u64,
    /// For those that are admitted at once.
    tolerance: u64,
    /// The time until which the rate is used up.
    paid_until: u64,
}

impl Limit {
    /// So many packets a second, and up to `burst` at once.
    pub fn new(rate: u32, burst: u32) -> Limit {
        let interval = (1_000_000_000 / u64::from(rate.max(1))).max(1);
        Limit { interval, tolerance: interval * u64::from(burst.saturating_sub(1)), paid_until: 0 }
    }

    /// Whether a packet is admitted.
    #[inline]
    pub fn admits(&self, now: u64) -> bool {
        self.paid_until <= now + self.tolerance
    }

    /// Counts an admitted packet.
    #[inline]
    pub fn pay(&mut self, now: u64) {
        self.paid_until = self.paid_until.max(now) + self.interval;
    }
}

/// A limit of packets a second that interfaces share. Each is sure to have its part of one half of the rate; who comes
/// first has the rest, which is all of it while others are silent. So a flood on one interface does not keep the packets of
/// others out.
#[derive(Clone, Debug)]
pub struct SharedLimit {
    /// Of all packets, of which those within their interface's part find a burst more at once.
    all: Limit,
    reserve: u64,
    /// The parts, by the number of the interface. 0 is the router itself.
    own: Box<[Limit]>,
}

impl SharedLimit {
    /// `rate` packets a second for `interfaces` interfaces, and up to `burst` at once from one of them.
    pub fn new(rate: u32, burst: u32, interfaces: usize) -> SharedLimit {
        let part = |all: u32| (all as usize / 2 / (interfaces + 1)).max(1) as u32;
        let all = Limit::new(rate, burst);
        SharedLimit {
            reserve: all.interval * u64::from(burst),
            all,
            own: vec![Limit::new(part(rate), part(burst)); interfaces + 1].into(),
        }
    }

    /// Whether a packet of an interface is admitted.
    #[inline]
    pub fn admits(&self, interface: u16, now: u64) -> bool {
        self.all.admits(now)
            || self.all.admits(now + self.reserve)
                && self.own.get(usize::from(interface)).is_some_and(|own| own.admits(now))
    }

    /// Counts an admitted packet.
    #[inline]
    pub fn pay(&mut self, interface: u16, now: u64) {
        self.all.pay(now);
        if let Some(own) = self.own.get_mut(usize::from(interface)).filter(|own| own.admits(now)) {
            own.pay(now);
        }
    }
}

/// The limits of messages by which stations look for the router, or announce themselves. Those of neighbours that are
/// known have a limit of their own, so that a flood from strangers does not keep them out, and so have those whose
/// address is not on the link.
#[derive(Clone, Debug)]
pub struct Hearing {
    strangers: SharedLimit,
    known: SharedLimit,
    off_link: SharedLimit,
}

/// The sender of a message, as far as its limit depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageSender {
    /// One on the link.
    Stranger,
    /// A neighbour that is known.
    Known,
    /// One whose address is not on the link.
    OffLink,
}

/// Messages a second of strangers, of stations that are known, and of those with an address that is not on the link.
const STRANGERS: u32 = 10_000;
const KNOWN: u32 = 100_000;
const OFF_LINK: u32 = 1_000;

/// Parts of a second's messages that are heard at once.
const BURST: u32 = 8;

impl Hearing {
    /// For `interfaces` interfaces.
    pub fn new(interfaces: usize) -> Hearing {
        let limit = |rate| SharedLimit::new(rate, rate / BURST, interfaces);
        Hearing { strangers: limit(STRANGERS), known: limit(KNOWN), off_link: limit(OFF_LINK) }
    }

    /// Whether a message that an interface received is heard. If so, it counts.
    #[inline]
    pub fn hears(&mut self, interface: u16, sender: MessageSender, now: u64) -> bool {
        let limit = match sender {
            MessageSender::Stranger => &mut self.strangers,
            MessageSender::Known => &mut self.known,
            MessageSender::OffLink => &mut self.off_link,
        };
        let admits = limit.admits(interface, now);
        if admits {
            limit.pay(interface, now);
        }
        admits
    }

    /// Whether a message would be heard.
    #[inline]
    pub fn would_hear(&self, interface: u16, sender: MessageSender, now: u64) -> bool {
        match sender {
            MessageSender::Stranger => self.strangers.admits(interface, now),
            MessageSender::Known => self.known.admits(interface, now),
            MessageSender::OffLink => self.off_link.admits(interface, now),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_do_not_keep_out_those_who_are_known() {
        let (mut hearing, now) = (Hearing::new(1), 1_000_000_000);
        let count = |hearing: &mut Hearing, sender| (0..100_000).filter(|_| hearing.hears(1, sender, now)).count();
        assert_eq!(count(&mut hearing, MessageSender::OffLink), (OFF_LINK / BURST) as usize);
        assert_eq!(count(&mut hearing, MessageSender::Stranger), (STRANGERS / BURST) as usize);
        assert!(
            !hearing.would_hear(1, MessageSender::Stranger, now) && !hearing.would_hear(1, MessageSender::OffLink, now)
        );
        assert!(hearing.would_hear(1, MessageSender::Known, now) && hearing.hears(1, MessageSender::Known, now));
        let second = (0..1_000_000).filter(|at| hearing.hears(1, MessageSender::Stranger, now + at * 1_000)).count();
        assert!(second.abs_diff(STRANGERS as usize) <= 1, "{second}");
    }

    #[test]
    fn a_flood_on_one_interface_leaves_others_their_part() {
        for interfaces in [2, 7, 4_000] {
            let mut limit = SharedLimit::new(10_000, 1_250, interfaces);
            let mut admitted = vec![0u32; interfaces + 1];
            let mut admit = |interface: usize, now: u64| {
                let is_admitted = limit.admits(interface as u16, now);
                if is_admitted {
                    limit.pay(interface as u16, now);
                    admitted[interface] += 1;
                }
                is_admitted
            };
            for millisecond in 0..10_000 {
                let now = 1_000_000_000 + millisecond * 1_000_000;
                (0..40).for_each(|_| _ = admit(1, now));
                // The other one has a packet a second.
                assert!(millisecond % 1_000 != 0 || admit(2, now), "at {millisecond} ms of {interfaces}");
            }
            let most = 10_000 * 10 + 1_250;
            assert!((most - 30..=most).contains(&admitted[1]), "all of it: {} of {interfaces}", admitted[1]);
        }
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
