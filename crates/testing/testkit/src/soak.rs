//! The long forms of tests, which `cargo xtask soak` runs.
//!
//! A test that needs minutes to find its bug has a short form that runs every time, or is run by the soak alone.

use std::env;

use crate::skips;

/// The variable that, set to 1, selects the long forms.
pub const SOAK: &str = "BELLOWS_SOAK";

/// The factor by which the long form of a property test tries more cases.
const FACTOR: u32 = 16;

/// Whether to run tests in their long forms.
pub fn is_soaking() -> bool {
    env::var_os(SOAK).is_some_and(|value| value == "1")
}

/// Cases of a property test: usually `usual`, and 16 times as many in a soak. The variable `PROPTEST_CASES` overrides
/// this.
pub fn cases(usual: u32) -> u32 {
    let wanted = env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok());
    wanted.unwrap_or(if is_soaking() { FACTOR * usual } else { usual })
}

/// Routes of a test with many: usually 100,000, and a million, as many as the Internet's tables have, in a soak. The
/// variable `BELLOWS_ROUTES` overrides this.
pub fn routes() -> u32 {
    let wanted = env::var("BELLOWS_ROUTES").ok().and_then(|routes| routes.parse().ok());
    wanted.unwrap_or(if is_soaking() { 1_000_000 } else { 100_000 })
}

/// Whether to leave out a test that only a soak runs.
pub fn is_for_soak(test: &str) -> bool {
    let is_left_out = !is_soaking();
    if is_left_out {
        skips::leave_out(test, skips::FOR_SOAK);
    }
    is_left_out
}
