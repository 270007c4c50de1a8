//! The real captures beside the checkout, and how a test without them is skipped.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Says that a test is skipped, to the terminal and to the file that the test runner collects.
pub fn skipped(test: &str, reason: &str) {
    // Not `eprintln`, which the test harness keeps to itself when the test passes.
    let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {reason}");
    if let Some(path) = std::env::var_os("BELLOWS_SKIPS") {
        let mut file = fs::File::options().append(true).create(true).open(path).expect("BELLOWS_SKIPS names a file");
        writeln!(file, "{test}: {reason}").expect("BELLOWS_SKIPS can be written");
    }
}

/// The real captures, or `None` after saying that `test` is skipped.
pub fn captures(test: &str) -> Option<Vec<PathBuf>> {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/captures/tcpdump"));
    let Ok(entries) = fs::read_dir(folder) else {
        skipped(test, "the folder ../shared/captures beside the checkout is absent");
        return None;
    };
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("a folder entry can be read").path()).collect();
    files.sort();
    Some(files)
}
