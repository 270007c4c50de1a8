//! The captures in the tree, the real ones beside the checkout, and how a test without these is skipped.

use std::fs;
use std::io::Write;
use std::path::PathBuf;

/// Says that a test is skipped, to the terminal and to the file that the test runner collects.
pub fn skipped(test: &str, reason: &str) {
    // Not `eprintln`, which the test harness keeps to itself when the test passes.
    let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {reason}");
    if let Some(path) = std::env::var_os("BELLOWS_SKIPS") {
        let mut file = fs::File::options().append(true).create(true).open(path).expect("BELLOWS_SKIPS names a file");
        writeln!(file, "{test}: {reason}").expect("BELLOWS_SKIPS can be written");
    }
}

/// The project's own captures.
pub fn own_captures() -> Vec<PathBuf> {
    files(concat!(env!("CARGO_MANIFEST_DIR"), "/../capture/tests/captures")).expect("they are in the tree")
}

/// The real captures, or `None` after saying that `test` is skipped.
pub fn captures(test: &str) -> Option<Vec<PathBuf>> {
    let files = files(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/captures/tcpdump"));
    if files.is_none() {
        skipped(test, "the folder ../shared/captures beside the checkout is absent");
    }
    files
}

/// The files of a folder, if it is there.
fn files(folder: &str) -> Option<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).ok()?;
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("a folder entry can be read").path()).collect();
    files.sort();
    Some(files)
}
