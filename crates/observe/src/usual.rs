//! The usual duration of calls, and the detection of outliers.

use std::cell::Cell;

use bellows_sys::clock;

/// The usual duration of a call: clocks for each packet and for the call itself, in 16ths; 0 before the first one.
#[derive(Default)]
pub struct Usual(Cell<u64>);

/// An outlier takes this many times the usual, and more than this many nanoseconds.
const OUTLIER_FACTOR: u64 = 16;
const MIN_OUTLIER_NS: u64 = 5_000;

impl Usual {
    /// Adds a call. Returns true if it is an outlier: most likely the system has interrupted it, and one such call
    /// would hide the cost of thousands of others.
    pub fn is_exceeded_by(&self, clocks: u64, packets: u64) -> bool {
        let usual = self.0.get();
        let weight = packets + 1;
        let each = 16 * clocks / weight;
        if usual == 0 {
            self.0.set(each.max(1));
            return false;
        }
        // A duration that occurs often becomes the usual one.
        self.0.set(usual - usual / 16 + each.min(2 * usual) / 16 + 1);
        each > OUTLIER_FACTOR * usual && clock::ticks_to_ns(clocks) > MIN_OUTLIER_NS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_was_interrupted_is_an_outlier_and_a_larger_one_is_not() {
        clock::calibrate();
        let micro = clock::ticks_per_second() / 1_000_000;
        let usual = Usual::default();
        for packets in [1, 128, 0, 3] {
            assert!(!usual.is_exceeded_by(micro + packets * micro / 2, packets));
        }
        assert!(usual.is_exceeded_by(1_000 * micro, 1));
        assert!(!usual.is_exceeded_by(200 * micro, 1_024));
        let short = Usual::default();
        assert!(!short.is_exceeded_by(10, 0) && !short.is_exceeded_by(micro, 0), "too short to matter");
    }

    #[test]
    fn a_lasting_slowdown_soon_becomes_usual() {
        clock::calibrate();
        let usual = Usual::default();
        assert!(!usual.is_exceeded_by(100, 0));
        let slow = clock::ticks_per_second() / 1_000;
        let outliers = (0..1_000).filter(|_| usual.is_exceeded_by(slow, 0)).count();
        assert!((50..300).contains(&outliers), "{outliers}");
        assert!((0..1_000).all(|_| !usual.is_exceeded_by(100, 0)) && usual.is_exceeded_by(slow, 0));
    }
}
