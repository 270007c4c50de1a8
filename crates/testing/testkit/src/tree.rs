//! Where things lie in the checkout.

use std::fs;
use std::path::{Path, PathBuf};

/// The top of the checkout that this was built from.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(3).expect("a folder three levels up").to_owned()
}

/// The folders of all crates below `crates`, in the order of their names.
pub fn crates() -> Vec<PathBuf> {
    let inside =
        |folder: PathBuf| fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let groups = inside(root().join("crates")).map(|group| group.expect("an entry").path());
    let folders = groups.flat_map(inside).map(|folder| folder.expect("an entry").path());
    let mut crates: Vec<PathBuf> = folders.filter(|folder| folder.join("Cargo.toml").is_file()).collect();
    crates.sort_by(|one, other| one.file_name().cmp(&other.file_name()));
    crates
}
