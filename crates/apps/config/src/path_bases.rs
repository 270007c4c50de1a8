//! Texts of a table that come from elsewhere, and are relative to another folder as paths.

use std::path::{Path, PathBuf};

/// Texts that come from elsewhere than the file of a table, each with the folder that it is relative to as a path: none
/// for those given by `--set`.
pub(crate) type Bases = Vec<(String, PathBuf)>;

/// The folder that a text is relative to as a path, if it comes from elsewhere. The last entry decides.
pub(crate) fn base_of<'b>(bases: &'b Bases, text: &str) -> Option<&'b Path> {
    bases.iter().rev().find(|(known, _)| known == text).map(|(_, base)| base.as_path())
}
