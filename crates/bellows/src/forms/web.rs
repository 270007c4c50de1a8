//! The forms of what the live page's server answers.

use super::Section;

/// All sections, in the order of the reference.
pub(super) static SECTIONS: &[Section] = &[];
