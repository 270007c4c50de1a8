//! Skipping tests that cannot run.
//!
//! A skipped test prints `SKIPPED NAME: REASON` on standard error, appends `NAME: REASON` to the file that `cargo xtask
//! test` collects, and returns. It must not look as if it had passed.

use std::env;
use std::fmt::Display;
use std::fs::File;
use std::io::Write;

/// The variable that names the file of skipped tests.
pub const SKIPS: &str = "BELLOWS_SKIPS";

/// The variable that, set to 1, makes a test fail if a prerequisite is missing.
pub const REQUIRE_PEERS: &str = "BELLOWS_REQUIRE_PEERS";

/// The variable that, set to 1, leaves out tests with guests and other programs' drivers.
pub const QUICK: &str = "BELLOWS_QUICK";

/// The reason for tests that [`QUICK`] leaves out.
pub const LEFT_OUT: &str = "left out by --quick";

/// The reason for tests that only [a soak](crate::soak) runs.
pub const FOR_SOAK: &str = "left out, `cargo xtask soak` runs it";

/// Skips a test for which a program, a privilege or a feature of the system is missing. The test must then return.
///
/// # Panics
///
/// If [`REQUIRE_PEERS`] is set: the caller has promised that nothing is missing.
pub fn skip(test: &str, reason: impl Display) {
    assert!(!is_set(REQUIRE_PEERS), "{test}: {reason}, but {REQUIRE_PEERS}=1 asks for it");
    record(test, &reason.to_string());
}

/// Skips a test for a reason that neither a package nor a privilege can remove: the machine is too small, or the data
/// is not public. It therefore skips even if [`REQUIRE_PEERS`] is set.
pub fn skip_here(test: &str, reason: impl Display) {
    record(test, &reason.to_string());
}

/// Whether a prerequisite is missing; the test is then skipped.
///
/// # Panics
///
/// Like [`skip`].
pub fn is_skipped(test: &str, missing: Option<String>) -> bool {
    if let Some(reason) = &missing {
        skip(test, reason);
    }
    missing.is_some()
}

/// Whether to leave out a test with a guest or another program's driver, as `cargo xtask test --quick` does.
pub fn is_left_out(test: &str) -> bool {
    let quick = is_set(QUICK);
    if quick {
        leave_out(test, LEFT_OUT);
    }
    quick
}

/// Records a test that is left out on purpose, for one of the two reasons above.
pub(crate) fn leave_out(test: &str, reason: &str) {
    record(test, reason);
}

fn is_set(variable: &str) -> bool {
    env::var_os(variable).is_some_and(|value| value == "1")
}

fn record(test: &str, reason: &str) {
    // The file has one line for each test.
    let reason: Vec<&str> = reason.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let line = format!("{test}: {}\n", reason.join("; "));
    // Not `eprint`, whose output the test harness hides when the test passes.
    let _ = std::io::stderr().write_all(format!("SKIPPED {line}").as_bytes());
    if let Some(path) = env::var_os(SKIPS) {
        // In one write, because other tests write at the same time.
        let written = File::options().append(true).create(true).open(&path);
        let written = written.and_then(|mut file| file.write_all(line.as_bytes()));
        written.unwrap_or_else(|error| panic!("{test} cannot be noted in {SKIPS}={}: {error}", path.display()));
    }
}
