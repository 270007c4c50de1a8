//! The forms of the lines in streams of the control socket.

use super::Section;

/// All sections, in the order of the reference.
pub(super) static SECTIONS: &[Section] = &[];
