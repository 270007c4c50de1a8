//! File permissions: what the process may do with a file, checked without doing it, and who else may.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{Access, AtFlags, CWD, Gid, Mode, accessat, fchmod, fchown};

use crate::remedy;

/// The permissions and the group of a file that the process creates. Without them the file has those that the system
/// assigns: all permissions that the umask leaves, and the group of the process or of the folder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileAccess {
    /// The permission bits, regardless of the umask.
    pub mode: Option<u32>,
    /// The number of the group.
    pub group: Option<u32>,
}

/// The reason why a file does not get its permissions or its group.
#[derive(Debug, thiserror::Error)]
pub enum FileAccessError {
    /// The error of `fchmod(2)`: `EPERM` for a file of another user.
    #[error("its mode cannot be set to {mode:04o}: {source}; {help}", help = remedy(.source, "leave the mode out"))]
    Mode {
        /// The permission bits.
        mode: u32,
        /// The system's error.
        source: io::Error,
    },
    /// The error of `fchown(2)`: `EPERM` if the process is not a member of the group.
    #[error(
        "it cannot be given to group {group}: {source}; choose a group of this user's (`id -G` lists them), \
         or run as root"
    )]
    Group {
        /// The number of the group.
        group: u32,
        /// The system's error.
        source: io::Error,
    },
}

impl FileAccess {
    /// Whether neither is given.
    pub fn is_default(self) -> bool {
        self == FileAccess::default()
    }

    /// Gives an open file its group, then its permissions. Must be done before anything is written that not everybody
    /// may read.
    ///
    /// # Errors
    /// See [`FileAccessError`].
    pub fn apply(self, file: impl AsFd) -> Result<(), FileAccessError> {
        if let Some(group) = self.group {
            let given = fchown(&file, None, Some(Gid::from_raw(group)));
            given.map_err(|source| FileAccessError::Group { group, source: source.into() })?;
        }
        if let Some(mode) = self.mode {
            let set = fchmod(&file, Mode::from_raw_mode(mode));
            set.map_err(|source| FileAccessError::Mode { mode, source: source.into() })?;
        }
        Ok(())
    }
}

/// The number of a group by name, from the system's group database; `None` if there is no such group.
///
/// # Errors
/// The database cannot be read.
pub fn group_id(name: &str) -> io::Result<Option<u32>> {
    Ok(nix::unistd::Group::from_name(name)?.map(|group| group.gid.as_raw()))
}

/// The number of a user by name, from the system's user database; `None` if there is no such user.
///
/// # Errors
/// The database cannot be read.
pub fn user_id(name: &str) -> io::Result<Option<u32>> {
    Ok(nix::unistd::User::from_name(name)?.map(|user| user.uid.as_raw()))
}

/// Checks that a file is writable, or that files can be created in a folder, with `faccessat(2)` for the effective
/// user.
///
/// # Errors
/// The reason why not: `EACCES` for its permissions, `EROFS` for a read-only file system, `ENOENT`, …
pub fn writable(path: &Path) -> io::Result<()> {
    let access = if path.is_dir() { Access::WRITE_OK | Access::EXEC_OK } else { Access::WRITE_OK };
    Ok(accessat(CWD, path, access, AtFlags::EACCESS)?)
}

/// Checks that a file is readable, with `faccessat(2)` for the effective user.
///
/// # Errors
/// The reason why not.
pub fn readable(path: &Path) -> io::Result<()> {
    Ok(accessat(CWD, path, Access::READ_OK, AtFlags::EACCESS)?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn a_file_gets_its_mode_and_group_for_any_umask() {
        let folder = bellows_testkit::scratch();
        let file = std::fs::File::create(folder.path().join("file")).unwrap();
        let group = rustix::process::getegid().as_raw();
        for mode in [0o666, 0o640, 0o777, 0o600] {
            FileAccess { mode: Some(mode), group: Some(group) }.apply(&file).unwrap();
            let metadata = file.metadata().unwrap();
            assert_eq!((metadata.mode() & 0o7777, metadata.gid()), (mode, group));
        }
        FileAccess::default().apply(&file).unwrap();
        assert_eq!(file.metadata().unwrap().mode() & 0o7777, 0o600);
        if rustix::process::geteuid().is_root() {
            FileAccess { mode: None, group: Some(12_345) }.apply(&file).unwrap();
            assert_eq!(file.metadata().unwrap().gid(), 12_345);
        } else {
            let error = FileAccess { mode: None, group: Some(0) }.apply(&file).unwrap_err();
            assert!(error.to_string().contains("id -G"), "{error}");
        }
    }

    #[test]
    fn groups_are_found_by_name() {
        assert_eq!(group_id("root").unwrap(), Some(0));
        assert_eq!(group_id("there is no such group").unwrap(), None);
    }

    #[test]
    fn unwritable_paths_have_a_reason() {
        assert!(writable(&std::env::temp_dir()).is_ok() && readable(Path::new("/proc/self/status")).is_ok());
        assert_eq!(writable(Path::new("/no/such/file")).unwrap_err().kind(), std::io::ErrorKind::NotFound);
        assert_eq!(readable(Path::new("/no/such/file")).unwrap_err().kind(), std::io::ErrorKind::NotFound);
    }
}
