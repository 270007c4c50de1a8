//! The forms of the states of apps and shared objects.

use super::Section;

/// All sections, in the order of the reference.
pub(super) static SECTIONS: &[Section] = &[];
