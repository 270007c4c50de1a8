//! The present time.

use bellows_sys::{calendar, clock};

/// The present time as text, as rows have it: `2026-01-31T09:08:07.006Z`.
pub fn now() -> String {
    calendar::with_milliseconds(clock::unix_ns())
}
