//! The usual duration of calls, and the detection of outliers.

use std::cell::Cell;

use bellows_sys::clock;

/// The usual duration of a call: clocks for each packet and for the call itself, in 16ths; 0 before the second call.
#[derive(Default)]
pub struct Usual {
    each: Cell<u64>,
    /// The first call, which only the second one can judge.
    first: Cell<Option<TimedCall>>,
}

/// A call, and the packets that it moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimedCall {
    /// Its duration.
    pub clocks: u64,
    /// The number of packets.
    pub packets: u64,
    /// Whether it took far longer than usual: most likely the system has interrupted it, and one such call would hide
    /// the cost of thousands of others.
    pub is_outlier: bool,
}

/// An outlier takes this many times the usual, and more than this many nanoseconds.
const OUTLIER_FACTOR: u64 = 16;
const MIN_OUTLIER_NS: u64 = 5_000;

impl TimedCall {
    fn each(&self) -> u64 {
        (16 * self.clocks / (self.packets + 1)).max(1)
    }

    fn judged_by(self, usual: u64) -> TimedCall {
        let exceeds = self.each() > OUTLIER_FACTOR * usual && clock::ticks_to_ns(self.clocks) > MIN_OUTLIER_NS;
        TimedCall { is_outlier: exceeds, ..self }
    }
}

impl Usual {
    /// Adds a call. Returns the calls that are judged by now: none after the first one, and two after the second one.
    pub fn judge(&self, clocks: u64, packets: u64) -> impl Iterator<Item = TimedCall> {
        let call = TimedCall { clocks, packets, is_outlier: false };
        let usual = self.each.get();
        let judged = if usual > 0 {
            // A duration that occurs often becomes the usual one.
            self.each.set(usual - usual / 16 + call.each().min(2 * usual) / 16 + 1);
            [None, Some(call.judged_by(usual))]
        } else if let Some(first) = self.first.take() {
            self.each.set(first.each().min(call.each()));
            [Some(first.judged_by(call.each())), Some(call.judged_by(first.each()))]
        } else {
            self.first.set(Some(call));
            [None, None]
        };
        judged.into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether the last of the judged calls is an outlier.
    fn is_exceeded(usual: &Usual, clocks: u64, packets: u64) -> bool {
        usual.judge(clocks, packets).last().unwrap().is_outlier
    }

    fn micro() -> u64 {
        clock::calibrate();
        clock::ticks_per_second() / 1_000_000
    }

    #[test]
    fn a_call_that_was_interrupted_is_an_outlier_and_a_larger_one_is_not() {
        let micro = micro();
        let usual = Usual::default();
        assert_eq!(usual.judge(micro, 0).count(), 0);
        for packets in [1, 128, 0, 3] {
            assert!(!is_exceeded(&usual, micro + packets * micro / 2, packets));
        }
        assert!(is_exceeded(&usual, 1_000 * micro, 1));
        assert!(!is_exceeded(&usual, 200 * micro, 1_024));
        let short = Usual::default();
        assert!(short.judge(10, 0).chain(short.judge(micro, 0)).all(|call| !call.is_outlier), "too short to matter");
    }

    #[test]
    fn the_first_calls_judge_each_other() {
        let micro = micro();
        for [first, second] in [[1_000 * micro, micro], [micro, 1_000 * micro], [micro, micro]] {
            let usual = Usual::default();
            let judged: Vec<TimedCall> = usual.judge(first, 8).chain(usual.judge(second, 8)).collect();
            let expected = [first, second].map(|clocks| TimedCall { clocks, packets: 8, is_outlier: clocks > micro });
            assert_eq!(judged, expected);
            assert!(!is_exceeded(&usual, micro, 8) && is_exceeded(&usual, 1_000 * micro, 8));
        }
    }

    #[test]
    fn a_lasting_slowdown_soon_becomes_usual() {
        let slow = 1_000 * micro();
        let usual = Usual::default();
        let outliers = |clocks| (0..1_000).flat_map(|_| usual.judge(clocks, 0)).filter(|call| call.is_outlier).count();
        assert_eq!(outliers(100), 0);
        assert!((50..300).contains(&outliers(slow)));
        assert_eq!(outliers(100), 0);
        assert!(is_exceeded(&usual, slow, 0));
    }
}
