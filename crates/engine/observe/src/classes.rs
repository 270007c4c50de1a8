//! The classes of a histogram, a sixteenth of an octave each, and the mapping from a time to its cell.

/// Classes of an octave, as a power of two.
const LOG2_PER_OCTAVE: u32 = 4;

/// The first power of two without a class of its own: later times are counted in the last class.
const MAX_EXPONENT: u32 = 44;

/// Number of classes of a histogram.
pub(crate) const CLASSES: usize = ((MAX_EXPONENT - LOG2_PER_OCTAVE + 1) as usize) << LOG2_PER_OCTAVE;

/// Cells of a histogram: the classes, and the maximum.
pub(crate) const CELLS: usize = CLASSES + 1;

/// The class of a time.
#[inline]
pub(crate) fn class_of(time: u64) -> usize {
    let octave = time.checked_ilog2().unwrap_or(0);
    if octave < LOG2_PER_OCTAVE {
        return time as usize;
    }
    let within = (time >> (octave - LOG2_PER_OCTAVE)) as usize & ((1 << LOG2_PER_OCTAVE) - 1);
    ((((octave - LOG2_PER_OCTAVE + 1) as usize) << LOG2_PER_OCTAVE) + within).min(CLASSES - 1)
}

/// The longest time of a class.
pub(crate) fn longest_of(class: usize) -> u64 {
    let (octave, within) = (class >> LOG2_PER_OCTAVE, class as u64 & ((1 << LOG2_PER_OCTAVE) - 1));
    match octave {
        0 => within,
        _ => (((1 << LOG2_PER_OCTAVE) + within + 1) << (octave - 1)) - 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_follow_one_another_without_a_gap() {
        let mut next = 0;
        for class in 0..CLASSES {
            assert_eq!((class_of(next), class_of(longest_of(class))), (class, class));
            next = longest_of(class) + 1;
        }
        assert_eq!(next, 1 << MAX_EXPONENT);
        assert_eq!(class_of(u64::MAX), CLASSES - 1);
    }
}
