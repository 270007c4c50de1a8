//! The forms of what an engine does from moment to moment, of packets, filters and apps.

use super::Section;

/// All sections, in the order of the reference.
pub(super) static SECTIONS: &[Section] = &[];
