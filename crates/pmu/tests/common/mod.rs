//! What the tests share.

/// Records that a test is skipped, and why.
pub fn skip(test: &str, reason: &str) {
    eprintln!("skipped {test}: {reason}");
    if let Some(path) = std::env::var_os("BELLOWS_SKIPS") {
        use std::io::Write;
        let mut file =
            std::fs::File::options().append(true).create(true).open(path).expect("BELLOWS_SKIPS names a file");
        writeln!(file, "{test}: {reason}").expect("BELLOWS_SKIPS can be written");
    }
}
