//! The real routing table beside the checkout.

use crate::tree::root;
use std::path::PathBuf;

use crate::skips::skip_here;

/// Its file: the prefixes of the Internet, one in a line, compressed by gzip. `None`, and the test is skipped, if it is not
/// beside this checkout.
pub fn real(test: &str) -> Option<PathBuf> {
    let file = root().join("../shared/data/rib/prefixes.txt.gz");
    if !file.exists() {
        skip_here(test, "the file ../shared/data/rib/prefixes.txt.gz beside the checkout is absent");
        return None;
    }
    Some(file.to_owned())
}
