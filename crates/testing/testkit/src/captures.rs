//! Capture files to read: the project's own, and the real ones beside the checkout.

use crate::tree::root;
use std::fs;
use std::path::{Path, PathBuf};

use crate::skips::skip_here;

/// The project's own captures, by name.
pub fn own() -> Vec<PathBuf> {
    let folder = own_folder();
    files(&folder).unwrap_or_else(|| panic!("no folder {}", folder.display()))
}

/// Their folder.
pub fn own_folder() -> PathBuf {
    root().join("crates/base/capture/tests/captures")
}

/// The real captures, by name. `None`, and the test is skipped, if they are not beside this checkout.
pub fn real(test: &str) -> Option<Vec<PathBuf>> {
    let files = files(&root().join("../shared/captures/tcpdump"));
    if files.is_none() {
        skip_here(test, "the folder ../shared/captures beside the checkout is absent");
    }
    files
}

/// The files of a folder, if it exists.
fn files(folder: &Path) -> Option<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).ok()?;
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("a folder entry can be read").path()).collect();
    files.sort();
    Some(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_captures_are_in_the_tree() {
        let own = own();
        assert!(own.len() >= 20 && own.is_sorted(), "{own:#?}");
    }
}
