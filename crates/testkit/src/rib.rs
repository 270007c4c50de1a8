//! The real routing table beside the checkout.

use std::path::{Path, PathBuf};

use crate::skips::skip_here;

/// Its file: the prefixes of the Internet, one in a line, compressed by gzip. `None`, and the test is skipped, if it is not
/// beside this checkout.
pub fn real(test: &str) -> Option<PathBuf> {
    let file = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data/rib/prefixes.txt.gz"));
    if !file.exists() {
        skip_here(test, "the file ../shared/data/rib/prefixes.txt.gz beside the checkout is absent");
        return None;
    }
    Some(file.to_owned())
}
