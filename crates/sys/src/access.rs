//! What the process may do with a file, without doing it.

use std::path::Path;

use rustix::fs::{Access, AtFlags, CWD, accessat};

/// Whether a file may be written, or things be created in a folder: what `faccessat(2)` says for the effective user.
///
/// # Errors
/// Why not: `EACCES` for its permissions, `EROFS` for a file system that is read-only, `ENOENT`, …
pub fn writable(path: &Path) -> std::io::Result<()> {
    let access = if path.is_dir() { Access::WRITE_OK | Access::EXEC_OK } else { Access::WRITE_OK };
    Ok(accessat(CWD, path, access, AtFlags::EACCESS)?)
}

/// Whether a file may be read: what `faccessat(2)` says for the effective user.
///
/// # Errors
/// Why not.
pub fn readable(path: &Path) -> std::io::Result<()> {
    Ok(accessat(CWD, path, Access::READ_OK, AtFlags::EACCESS)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_not_be_written_is_told_why() {
        assert!(writable(&std::env::temp_dir()).is_ok() && readable(Path::new("/proc/self/status")).is_ok());
        assert_eq!(writable(Path::new("/no/such/file")).unwrap_err().kind(), std::io::ErrorKind::NotFound);
        assert_eq!(readable(Path::new("/no/such/file")).unwrap_err().kind(), std::io::ErrorKind::NotFound);
    }
}
