//! The length that is foreseen.

use std::hint::select_unpredictable;

use crate::Copy;
use crate::kernels::{BLOCK, LINE};

/// No copy has it: no range is so long.
const NONE: usize = usize::MAX;

/// Times that a length comes in a row before it is foreseen.
const OFTEN: usize = 6;

/// Copies of a batch that are looked at.
const SAMPLE: usize = 8;

/// What length came last, and whether it is foreseen to come again.
///
/// Each field is written and read by itself: a processor that is to read at once what it has written in pieces waits until
/// everything before is written, too, and that may be a copy to far away.
pub(crate) struct Habit {
    /// The length that is foreseen, if it is copied inline; [`NONE`] otherwise.
    pub(crate) inline: usize,
    /// The length that is foreseen, if it is not.
    pub(crate) other: usize,
    last: usize,
    /// How often the last length has come in a row.
    times: usize,
    /// Whether one of the two is foreseen.
    is_some: bool,
    /// The greatest length that is copied inline.
    reach: usize,
}

impl Habit {
    /// None yet, on a processor that has registers for copies inline, or not.
    pub(crate) fn new(wide: bool) -> Habit {
        let reach = if wide { 4 * LINE } else { 0 };
        Habit { inline: NONE, other: NONE, last: NONE, times: 0, is_some: false, reach }
    }

    /// So many copies of a length that was not foreseen.
    #[inline(always)]
    pub(crate) fn meet(&mut self, length: usize, times: usize) {
        // Whether it is the same again is as likely as not, so this must be no branch.
        let before = select_unpredictable(length == self.last, self.times, 0);
        self.last = length;
        self.times = before + times;
        if self.times >= OFTEN {
            self.adopt(length);
        } else if self.times == times && self.is_some {
            self.lose();
        }
    }

    #[cold]
    fn adopt(&mut self, length: usize) {
        self.lose();
        (self.last, self.times, self.is_some) = (length, OFTEN, true);
        if (BLOCK..=self.reach).contains(&length) {
            self.inline = length;
        } else {
            self.other = length;
        }
    }

    /// Whether a length is foreseen.
    pub(crate) fn is_some(&self) -> bool {
        self.is_some
    }

    /// Copies of different lengths.
    pub(crate) fn lose(&mut self) {
        self.is_some = false;
        self.inline = NONE;
        self.other = NONE;
        self.last = NONE;
        self.times = 0;
    }
}

/// The length that copies have in common, as far as they are looked at.
pub(crate) fn common_length(copies: &[Copy]) -> Option<usize> {
    let first = copies.first()?.length;
    copies.iter().take(SAMPLE).all(|copy| copy.length == first).then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::ptr::{null, null_mut};

    fn foreseen(habit: &Habit) -> Vec<usize> {
        [habit.inline, habit.other].into_iter().filter(|&length| length != NONE).collect()
    }

    fn common(lengths: &[usize]) -> Option<usize> {
        let copy = |&length| Copy { destination: null_mut(), source: null(), length };
        common_length(&lengths.iter().map(copy).collect::<Vec<_>>())
    }

    proptest! {
        /// A length is foreseen once it has come so often, and then until another one comes.
        #[test]
        fn what_came_often_in_a_row_is_foreseen(
            lengths in proptest::collection::vec(prop_oneof![9 => Just(60usize), 1 => 0..300usize], 0..100),
            wide: bool,
        ) {
            let mut habit = Habit::new(wide);
            for (count, &length) in lengths.iter().enumerate() {
                habit.meet(length, 1);
                let last = &lengths[(count + 1).saturating_sub(OFTEN)..=count];
                let is_usual = last.len() == OFTEN && last.iter().all(|&one| one == length);
                prop_assert_eq!(foreseen(&habit), if is_usual { vec![length] } else { vec![] });
                prop_assert!(habit.inline == NONE || wide && (BLOCK..=4 * LINE).contains(&habit.inline));
            }
        }
    }

    #[test]
    fn a_batch_makes_and_breaks_a_habit() {
        let mut habit = Habit::new(true);
        habit.meet(100, OFTEN - 1);
        assert!(foreseen(&habit).is_empty());
        habit.meet(100, 2);
        assert_eq!(foreseen(&habit), [100]);
        habit.meet(1_500, 100);
        assert_eq!(foreseen(&habit), [1_500]);
        habit.lose();
        assert!(foreseen(&habit).is_empty());
    }

    #[test]
    fn a_batch_is_judged_by_its_first_copies() {
        assert_eq!((common(&[]), common(&[60]), common(&[60, 60, 61])), (None, Some(60), None));
        assert_eq!(common(&[60; SAMPLE]), Some(60));
        assert_eq!(common(&[[60; SAMPLE].as_slice(), &[61]].concat()), Some(60));
    }
}
