//! Prediction of the next length.

use std::hint::select_unpredictable;

use crate::Copy;
use crate::kernels::{BLOCK, LINE};

/// A length that no copy can have.
const NONE: usize = usize::MAX;

/// Number of times in a row after which a length is predicted.
const OFTEN: usize = 6;

/// Number of copies of a batch that are inspected.
const SAMPLE: usize = 8;

/// The last length, and whether the next copy is predicted to have it too (the habit).
///
/// Each field is written and read separately: if a processor reads at once what it has written in pieces, it waits for
/// all earlier writes, too, and one of them may be a copy to distant memory.
pub(crate) struct Habit {
    /// The predicted length, if it is copied inline; [`NONE`] otherwise.
    pub(crate) inline: usize,
    /// The predicted length, if it is not copied inline.
    pub(crate) other: usize,
    last: usize,
    /// How often the last length has come in a row.
    times: usize,
    /// Whether one of the two is set.
    is_some: bool,
    /// Maximum length that is copied inline.
    reach: usize,
}

impl Habit {
    /// No prediction yet; `wide` says whether the processor has the registers for inline copies.
    pub(crate) fn new(wide: bool) -> Habit {
        let reach = if wide { 4 * LINE } else { 0 };
        Habit { inline: NONE, other: NONE, last: NONE, times: 0, is_some: false, reach }
    }

    /// Records `times` copies of a length that was not predicted.
    #[inline(always)]
    pub(crate) fn record(&mut self, length: usize, times: usize) {
        // Equal and different lengths are equally likely, so this must not be a branch.
        let before = select_unpredictable(length == self.last, self.times, 0);
        self.last = length;
        self.times = before + times;
        if self.times >= OFTEN {
            self.adopt(length);
        } else if self.times == times && self.is_some {
            self.reset();
        }
    }

    #[cold]
    fn adopt(&mut self, length: usize) {
        self.reset();
        (self.last, self.times, self.is_some) = (length, OFTEN, true);
        if (BLOCK..=self.reach).contains(&length) {
            self.inline = length;
        } else {
            self.other = length;
        }
    }

    /// Whether a length is predicted.
    pub(crate) fn is_some(&self) -> bool {
        self.is_some
    }

    /// Records copies of different lengths.
    pub(crate) fn reset(&mut self) {
        self.is_some = false;
        self.inline = NONE;
        self.other = NONE;
        self.last = NONE;
        self.times = 0;
    }
}

/// The common length of the copies, as far as they are inspected.
pub(crate) fn common_length(copies: &[Copy]) -> Option<usize> {
    let first = copies.first()?.length;
    copies.iter().take(SAMPLE).all(|copy| copy.length == first).then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::ptr::{null, null_mut};

    fn predicted(habit: &Habit) -> Vec<usize> {
        [habit.inline, habit.other].into_iter().filter(|&length| length != NONE).collect()
    }

    fn common(lengths: &[usize]) -> Option<usize> {
        let copy = |&length| Copy { destination: null_mut(), source: null(), length };
        common_length(&lengths.iter().map(copy).collect::<Vec<_>>())
    }

    proptest! {
        /// A length is predicted once it has come often enough, and then until a different one comes.
        #[test]
        fn a_length_that_came_often_in_a_row_is_predicted(
            lengths in proptest::collection::vec(prop_oneof![9 => Just(60usize), 1 => 0..300usize], 0..100),
            wide: bool,
        ) {
            let mut habit = Habit::new(wide);
            for (count, &length) in lengths.iter().enumerate() {
                habit.record(length, 1);
                let last = &lengths[(count + 1).saturating_sub(OFTEN)..=count];
                let is_usual = last.len() == OFTEN && last.iter().all(|&one| one == length);
                prop_assert_eq!(predicted(&habit), if is_usual { vec![length] } else { vec![] });
                prop_assert!(habit.inline == NONE || wide && (BLOCK..=4 * LINE).contains(&habit.inline));
            }
        }
    }

    #[test]
    fn a_batch_makes_and_breaks_a_habit() {
        let mut habit = Habit::new(true);
        habit.record(100, OFTEN - 1);
        assert!(predicted(&habit).is_empty());
        habit.record(100, 2);
        assert_eq!(predicted(&habit), [100]);
        habit.record(1_500, 100);
        assert_eq!(predicted(&habit), [1_500]);
        habit.reset();
        assert!(predicted(&habit).is_empty());
    }

    #[test]
    fn a_batch_is_judged_by_its_first_copies() {
        assert_eq!((common(&[]), common(&[60]), common(&[60, 60, 61])), (None, Some(60), None));
        assert_eq!(common(&[60; SAMPLE]), Some(60));
        assert_eq!(common(&[[60; SAMPLE].as_slice(), &[61]].concat()), Some(60));
    }
}
