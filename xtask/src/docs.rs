//! `cargo xtask docs`: writes the parts of pages that come from the code. A test of the command makes them, and says in a
//! test run which are out of date.

use crate::TaskError;
use crate::commands::succeed;
use crate::test::TESTS;
use crate::workspace::cargo;

/// The program with the test, and the test.
const TEST: [&str; 4] = ["--test", "docs", "--", "what_is_generated"];

pub fn run(words: &[String]) -> Result<(), TaskError> {
    if let [word, ..] = words {
        return Err(TaskError::usage(format!("docs: unexpected argument '{word}'; it writes all parts")));
    }
    // As the tests are built, so that nothing is built twice.
    succeed(cargo(&TESTS).args(TEST).arg("--nocapture").env("BELLOWS_WRITE_DOCS", "1"))
}
