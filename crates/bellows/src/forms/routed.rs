//! The forms of routes, neighbours, associations and addresses.

use super::Section;

/// All sections, in the order of the reference.
pub(super) static SECTIONS: &[Section] = &[];
