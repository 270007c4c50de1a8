//! How a test that cannot run skips itself.
//!
//! It prints `SKIPPED NAME: REASON` on standard error, appends `NAME: REASON` to the file that `cargo xtask test`
//! collects, and returns. It must not look as if it had passed.

use std::env;
use std::fmt::Display;
use std::fs::File;
use std::io::Write;

/// The variable that names the file of skipped tests.
pub const SKIPS: &str = "BELLOWS_SKIPS";

/// The variable that, set to 1, makes a test fail for which something is missing.
pub const REQUIRE_PEERS: &str = "BELLOWS_REQUIRE_PEERS";

/// The variable that, set to 1, leaves out tests with guests and other programs' drivers.
pub const QUICK: &str = "BELLOWS_QUICK";

/// The reason of the tests that [`QUICK`] leaves out.
pub const LEFT_OUT: &str = "left out by --quick";

/// The reason of the tests that only [a soak](crate::soak) runs.
pub const FOR_SOAK: &str = "left out, `cargo xtask soak` runs it";

/// Skips a test for which a program, a privilege or a feature of the system is missing. The test has to return then.
///
/// # Panics
///
/// If [`REQUIRE_PEERS`] is set: somebody has promised that nothing is missing.
pub fn skip(test: &str, reason: impl Display) {
    assert!(!is_set(REQUIRE_PEERS), "{test}: {reason}, but {REQUIRE_PEERS}=1 asks for it");
    record(test, &reason.to_string());
}

/// Skips a test for a reason that neither a package nor a privilege can mend: the machine is too small, or the data is
/// not public. It therefore also skips where [`REQUIRE_PEERS`] is set.
pub fn skip_here(test: &str, reason: impl Display) {
    record(test, &reason.to_string());
}

/// Whether something is missing, for which the test is then skipped.
///
/// # Panics
///
/// As [`skip`].
pub fn is_skipped(test: &str, missing: Option<String>) -> bool {
    if let Some(reason) = &missing {
        skip(test, reason);
    }
    missing.is_some()
}

/// Whether a test with a guest or another program's driver is to be left out, as `cargo xtask test --quick` asks.
pub fn is_left_out(test: &str) -> bool {
    let quick = is_set(QUICK);
    if quick {
        leave_out(test, LEFT_OUT);
    }
    quick
}

/// Notes a test that leaves itself out on purpose, for one of the two reasons above.
pub(crate) fn leave_out(test: &str, reason: &str) {
    record(test, reason);
}

fn is_set(variable: &str) -> bool {
    env::var_os(variable).is_some_and(|value| value == "1")
}

fn record(test: &str, reason: &str) {
    // The file has a line for each test.
    let reason: Vec<&str> = reason.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let line = format!("{test}: {}\n", reason.join("; "));
    // Not `eprint`, which the test harness keeps to itself when the test passes.
    let _ = std::io::stderr().write_all(format!("SKIPPED {line}").as_bytes());
    if let Some(path) = env::var_os(SKIPS) {
        // In one piece, because other tests write at the same time.
        let written = File::options().append(true).create(true).open(&path);
        let written = written.and_then(|mut file| file.write_all(line.as_bytes()));
        written.unwrap_or_else(|error| panic!("{test} cannot be noted in {SKIPS}={}: {error}", path.display()));
    }
}
