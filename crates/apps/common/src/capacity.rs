//! The key `capacity` of shared tables.

use std::ops::RangeInclusive;

use bellows_config::SettingError;

/// How many entries a shared table may be meant for.
const CAPACITY: RangeInclusive<usize> = 64..=1 << 20;

/// Checks the capacity of a table of `entries`.
///
/// # Errors
/// It is out of range.
pub fn check(capacity: usize, entries: &str) -> Result<(), SettingError> {
    if CAPACITY.contains(&capacity) {
        return Ok(());
    }
    let message = format!("a table of {capacity} {entries} is impossible");
    let help = format!("give a number from {} to {}", CAPACITY.start(), CAPACITY.end());
    Err(SettingError::at("capacity", message, help))
}
