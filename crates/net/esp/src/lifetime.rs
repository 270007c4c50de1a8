//! How much a security association may protect before it is replaced (RFC 4301, section 4.4.2.1).

use std::fmt;

/// An amount of packets and of bytes. Bytes are those that are encrypted: payload, padding and its two fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Amount {
    /// Packets.
    pub packets: u64,
    /// Encrypted bytes.
    pub bytes: u64,
}

impl Amount {
    /// No limit.
    pub const UNLIMITED: Amount = Amount { packets: u64::MAX, bytes: u64::MAX };
    /// Nothing.
    pub const NONE: Amount = Amount { packets: 0, bytes: 0 };
}

/// The limits of a security association.
///
/// Each limit is reached by its packets or its bytes, whichever comes first. A time limit is the caller's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    /// From here on the association should be replaced: this is reported once.
    pub soft: Amount,
    /// Nothing is protected beyond.
    pub hard: Amount,
}

impl Default for Lifetime {
    fn default() -> Lifetime {
        Lifetime { soft: Amount::UNLIMITED, hard: Amount::UNLIMITED }
    }
}

/// Which limit was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// That of packets.
    Packets,
    /// That of bytes.
    Bytes,
}

impl fmt::Display for Limit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Limit::Packets => "packets",
            Limit::Bytes => "bytes",
        })
    }
}

/// What an association has protected, beside its limits.
pub(crate) struct Meter {
    lifetime: Lifetime,
    used: Amount,
    is_told: bool,
}

impl Meter {
    /// One that goes on behind what was used before.
    pub fn new(lifetime: Lifetime, used: Amount) -> Meter {
        Meter { lifetime, used, is_told: false }
    }

    pub fn used(&self) -> Amount {
        self.used
    }

    /// Whether one more packet of `bytes` bytes is within the hard limit.
    #[inline]
    pub fn check(&self, bytes: usize) -> Result<(), Limit> {
        let Amount { packets: max_packets, bytes: max_bytes } = self.lifetime.hard;
        if self.used.packets >= max_packets {
            return Err(Limit::Packets);
        }
        match self.used.bytes.checked_add(bytes as u64) {
            Some(sum) if sum <= max_bytes => Ok(()),
            _ => Err(Limit::Bytes),
        }
    }

    /// Counts a packet that was checked.
    #[inline]
    pub fn count(&mut self, bytes: usize) {
        self.used.packets = self.used.packets.saturating_add(1);
        self.used.bytes = self.used.bytes.saturating_add(bytes as u64);
    }

    /// The soft limit, once, after it was reached.
    pub fn take_soft(&mut self) -> Option<Limit> {
        let reached = match self.lifetime.soft {
            soft if self.used.packets >= soft.packets => Limit::Packets,
            soft if self.used.bytes >= soft.bytes => Limit::Bytes,
            _ => return None,
        };
        (!std::mem::replace(&mut self.is_told, true)).then_some(reached)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_inclusive_and_the_soft_one_is_told_once() {
        let soft = Amount { packets: 2, bytes: u64::MAX };
        let hard = Amount { packets: 4, bytes: 300 };
        let mut meter = Meter::new(Lifetime { soft, hard }, Amount::NONE);
        meter.count(100);
        assert_eq!(meter.take_soft(), None);
        meter.count(100);
        assert_eq!(meter.take_soft(), Some(Limit::Packets));
        assert_eq!(meter.take_soft(), None);
        assert_eq!(meter.check(101), Err(Limit::Bytes));
        assert_eq!(meter.check(100), Ok(()));
        meter.count(100);
        meter.count(0);
        assert_eq!(meter.check(0), Err(Limit::Packets));
        assert_eq!(meter.used(), Amount { packets: 4, bytes: 300 });
    }

    #[test]
    fn a_sum_beyond_64_bits_is_beyond_the_limit() {
        let mut meter = Meter::new(Lifetime::default(), Amount::NONE);
        meter.used.bytes = u64::MAX - 1;
        assert_eq!(meter.check(1), Ok(()));
        assert_eq!(meter.check(2), Err(Limit::Bytes));
    }
}
