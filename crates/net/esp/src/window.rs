//! The replay window: which sequence numbers have been seen (RFC 4303, section 3.4.3; RFC 6479).

/// The minimum of packets in a window (RFC 4303, section 3.4.3).
pub const MIN_WINDOW: u32 = 32;

/// The maximum of packets in a window.
pub const MAX_WINDOW: u32 = 4_096;

/// The bits of a word.
const BITS: u64 = u64::BITS as u64;

/// The window's packets as a ring of bits. Moving it clears whole words, and never shifts.
///
/// The ring has at least one word more than the window needs, so that a word is cleared before any number in it is in the
/// window again.
pub(crate) struct ReplayWindow {
    last: u64,
    size: u32,
    words: Box<[u64]>,
}

/// Why a number is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stale {
    /// It was seen.
    Replayed,
    /// It is below the window, so nobody knows whether it was seen.
    TooOld,
}

impl ReplayWindow {
    /// A window of `size` packets, [`MIN_WINDOW`] to [`MAX_WINDOW`], for numbers above `last`. All others count as seen;
    /// so does 0, which is never sent.
    pub fn new(size: u32, last: u64) -> ReplayWindow {
        debug_assert!((MIN_WINDOW..=MAX_WINDOW).contains(&size));
        let words = (u64::from(size).div_ceil(BITS) + 1).next_power_of_two() as usize;
        let mut window = ReplayWindow { last, size, words: vec![u64::MAX; words].into_boxed_slice() };
        let index = window.index(last / BITS);
        window.words[index] = u64::MAX >> (BITS - 1 - last % BITS);
        window
    }

    /// The highest number seen.
    #[inline]
    pub fn last(&self) -> u64 {
        self.last
    }

    #[inline]
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Whether a packet of this number may be accepted.
    #[inline]
    pub fn check(&self, number: u64) -> Result<(), Stale> {
        if number > self.last {
            return Ok(());
        }
        if self.last - number >= u64::from(self.size) {
            return Err(Stale::TooOld);
        }
        match self.words[self.index(number / BITS)] >> (number % BITS) & 1 {
            0 => Ok(()),
            _ => Err(Stale::Replayed),
        }
    }

    /// Marks a number that was checked. If it is above the window, the window moves up to it.
    #[inline]
    pub fn accept(&mut self, number: u64) {
        if number > self.last {
            let (from, to) = (self.last / BITS, number / BITS);
            for word in to - (to - from).min(self.words.len() as u64)..to {
                let index = self.index(word + 1);
                self.words[index] = 0;
            }
            self.last = number;
        }
        let index = self.index(number / BITS);
        self.words[index] |= 1 << (number % BITS);
    }

    #[inline]
    fn index(&self, word: u64) -> usize {
        word as usize & (self.words.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    /// The window by its definition.
    struct Model {
        first: u64,
        size: u32,
        seen: BTreeSet<u64>,
    }

    impl Model {
        fn last(&self) -> u64 {
            self.seen.last().map_or(self.first, |last| self.first.max(*last))
        }

        fn check(&self, number: u64) -> Result<(), Stale> {
            let bottom = i128::from(self.last()) - i128::from(self.size) + 1;
            match i128::from(number) {
                number if number < bottom => Err(Stale::TooOld),
                _ if number <= self.first || self.seen.contains(&number) => Err(Stale::Replayed),
                _ => Ok(()),
            }
        }
    }

    fn steps() -> impl Strategy<Value = Vec<i64>> {
        let step = prop_oneof![
            8 => -70..70_i64,
            4 => -5_000..5_000_i64,
            1 => -(1_i64 << 33)..1 << 33,
            1 => (-3..3_i64).prop_map(|laps| laps * 64),
        ];
        proptest::collection::vec(step, 1..400)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]
        #[test]
        fn it_accepts_what_its_definition_accepts(
            size in prop_oneof![Just(MIN_WINDOW), Just(64), Just(MAX_WINDOW), MIN_WINDOW..=MAX_WINDOW],
            first in prop_oneof![Just(0), 0..10_000_u64, any::<u64>(), u64::MAX - 5_000..=u64::MAX],
            steps in steps(),
        ) {
            let mut window = ReplayWindow::new(size, first);
            let mut model = Model { first, size, seen: BTreeSet::new() };
            for step in steps {
                let number = model.last().saturating_add_signed(step);
                let expected = model.check(number);
                prop_assert_eq!(window.check(number), expected, "{} after {}", number, model.last());
                if expected.is_ok() {
                    window.accept(number);
                    model.seen.insert(number);
                }
                prop_assert_eq!(window.last(), model.last());
            }
        }
    }

    #[test]
    fn every_distance_below_the_highest_number() {
        for size in [32, 33, 63, 64, 65, 127, 128, 4_095, 4_096] {
            for last in [1, 63, 64, 65, 6_000, 6_015, 1 << 32] {
                let mut window = ReplayWindow::new(size, 0);
                window.accept(last);
                for distance in 0..=last.min(9_000) {
                    let expected = match distance {
                        _ if distance >= u64::from(size) => Err(Stale::TooOld),
                        _ if distance == 0 || distance == last => Err(Stale::Replayed),
                        _ => Ok(()),
                    };
                    assert_eq!(window.check(last - distance), expected, "{distance} below {last}, window {size}");
                }
            }
        }
    }
}
