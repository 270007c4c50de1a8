//! Temporary folders for tests.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

pub use tempfile::TempDir;

/// A new and empty folder below the system's folder for temporary files. It is removed with its contents when the value
/// is dropped, even if the test fails.
///
/// # Panics
///
/// With the message of [`make`], if that fails.
pub fn scratch() -> TempDir {
    make().unwrap_or_else(|why| panic!("{why}"))
}

/// The same for callers that are not tests.
///
/// # Errors
///
/// The parent folder, and why no folder can be made in it.
pub fn make() -> Result<TempDir, String> {
    let folder = tempfile::Builder::new().prefix("bellows-").tempdir();
    folder.map_err(|error| format!("cannot make a folder in {}: {error}", std::env::temp_dir().display()))
}

/// Writes a file into a folder and returns its path.
pub fn write(folder: &TempDir, name: impl AsRef<Path>, content: impl AsRef<[u8]>) -> PathBuf {
    let path = folder.path().join(name);
    fs::write(&path, content).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    path
}

/// Writes a file that only this user can read, as one with a key must be, and returns its path.
pub fn write_secret(path: impl AsRef<Path>, content: impl AsRef<[u8]>) -> PathBuf {
    let path = path.as_ref();
    let written = fs::write(path, content).and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(0o600)));
    written.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    path.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_folder_is_new_and_goes_with_its_value() {
        let (one, other) = (scratch(), scratch());
        assert_ne!(one.path(), other.path());
        let path = one.path().to_owned();
        fs::create_dir(path.join("inner")).unwrap();
        assert_eq!(write(&one, "inner/file", "content"), path.join("inner/file"));
        assert_eq!(fs::read(path.join("inner/file")).unwrap(), b"content");
        drop(one);
        assert!(!path.exists() && other.path().is_dir());
    }

    #[test]
    fn a_test_that_fails_leaves_no_folder() {
        let failed = std::panic::catch_unwind(|| {
            let folder = scratch();
            write(&folder, "file", []);
            std::panic::panic_any(folder.path().to_owned());
        });
        let path = failed.unwrap_err().downcast::<PathBuf>().unwrap();
        assert!(!path.exists());
    }
}
