//! Files with secrets, which nobody but their user may read: keys, tokens, credentials.
//!
//! A file is checked after it has been opened, so the file that is checked is the one that is read. Its bytes go from the
//! kernel into memory that is zeroed when it is dropped, and nowhere else.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::process::geteuid;
use zeroize::Zeroizing;

use crate::FileError;

/// The reason why a file with a secret is not read.
#[derive(Debug, thiserror::Error)]
#[error("{}; {}", self.message(), self.help())]
pub enum PrivateFileError {
    /// It is a folder, a pipe, a device or something else.
    NotRegular(PathBuf),
    /// Others than its owner can read or change it.
    Open {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// It belongs to a user who is neither this one nor root.
    Foreign {
        /// The file.
        path: PathBuf,
        /// Its owner.
        owner: u32,
    },
    /// It is longer than any secret of its kind.
    TooLong {
        /// The file.
        path: PathBuf,
        /// The maximum length in bytes.
        max: usize,
    },
    /// It cannot be read.
    System(PathBuf, io::Error),
}

impl PrivateFileError {
    /// What is wrong, with the name of the file.
    pub fn message(&self) -> String {
        match self {
            PrivateFileError::NotRegular(path) => format!("`{}` is not a regular file", path.display()),
            PrivateFileError::Open { path, mode } => {
                format!("`{}` has a secret and is open to others than its owner (mode {mode:04o})", path.display())
            }
            PrivateFileError::Foreign { path, owner } => {
                format!("`{}` has a secret and belongs to user {owner}, who can read and change it", path.display())
            }
            PrivateFileError::TooLong { path, max } => format!("`{}` is longer than {max} bytes", path.display()),
            PrivateFileError::System(path, error) => FileError::reading(path, error).message,
        }
    }

    /// The way out, as a clause.
    pub fn help(&self) -> String {
        match self {
            PrivateFileError::NotRegular(_) => "give the path of a regular file".to_owned(),
            PrivateFileError::Open { path, .. } => format!("close it with `chmod 600 {}`", path.display()),
            PrivateFileError::Foreign { path, .. } => {
                let user = geteuid().as_raw();
                format!("give it to the user who runs this with `chown {user} {}`", path.display())
            }
            PrivateFileError::TooLong { .. } => "give the path of the file with the secret alone".to_owned(),
            PrivateFileError::System(path, error) => FileError::reading(path, error).help,
        }
    }
}

/// Reads a file that only this user or root can read, of up to `max` bytes. Never waits for the writer of a pipe.
///
/// Root gives a file to the user of a service by its group, as systemd does with credentials (`LoadCredential=`). So the
/// group of a file of root's may read it, unless this is root.
///
/// # Errors
/// See [`PrivateFileError`].
pub fn read(path: &Path, max: usize) -> Result<Zeroizing<Vec<u8>>, PrivateFileError> {
    let failed = |error| PrivateFileError::System(path.to_owned(), error);
    // Opening a device may have effects.
    if !fs::metadata(path).map_err(failed)?.is_file() {
        return Err(PrivateFileError::NotRegular(path.to_owned()));
    }
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(failed)?;
    check(path, &file)?;
    let bytes = read_up_to(file, max).map_err(failed)?;
    bytes.ok_or_else(|| PrivateFileError::TooLong { path: path.to_owned(), max })
}

/// Reads up to `max` bytes to the end, into memory that is zeroed when it is dropped. `None` if there are more.
///
/// # Errors
/// Those of reading.
pub fn read_up_to(mut from: impl Read, max: usize) -> io::Result<Option<Zeroizing<Vec<u8>>>> {
    // One block of the final size: a vector that grows leaves copies behind.
    let mut bytes = Zeroizing::new(vec![0; max + 1]);
    let mut length = 0;
    while length <= max {
        match from.read(&mut bytes[length..]) {
            Ok(0) => break,
            Ok(count) => length += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(length);
    Ok((length <= max).then_some(bytes))
}

/// Checks an open file.
fn check(path: &Path, file: &File) -> Result<(), PrivateFileError> {
    let path = path.to_owned();
    let metadata = match file.metadata() {
        Ok(metadata) => metadata,
        Err(error) => return Err(PrivateFileError::System(path, error)),
    };
    if !metadata.is_file() {
        return Err(PrivateFileError::NotRegular(path));
    }
    let (owner, mode) = (metadata.uid(), metadata.mode() & 0o7777);
    if owner != geteuid().as_raw() && owner != 0 {
        return Err(PrivateFileError::Foreign { path, owner });
    }
    if is_open(&metadata) { Err(PrivateFileError::Open { path, mode }) } else { Ok(()) }
}

/// Whether others than its user can read or change a file with a secret.
pub fn is_open(metadata: &Metadata) -> bool {
    others_can(metadata.uid(), metadata.mode(), geteuid().as_raw())
}

fn others_can(owner: u32, mode: u32, user: u32) -> bool {
    // The bits of the group are also the limit of an access control list.
    let is_given = owner == 0 && user != 0;
    mode & if is_given { 0o037 } else { 0o077 } != 0
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown, symlink};
    use std::os::unix::net::UnixListener;

    use bellows_testkit::scratch;

    use super::*;

    fn write(folder: &scratch::TempDir, content: &[u8], mode: u32) -> PathBuf {
        let path = folder.path().join("secret");
        let _ = fs::remove_file(&path);
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    #[test]
    fn only_files_that_nobody_else_can_read_are_read() {
        let folder = scratch();
        for mode in 0..=0o777u32 {
            let path = write(&folder, b"secret", mode | 0o400);
            let mode = mode | 0o400;
            let read = read(&path, 100);
            if mode & 0o077 == 0 {
                assert_eq!(&read.unwrap()[..], b"secret", "{mode:o}");
            } else {
                let error = read.unwrap_err().to_string();
                let help = format!("(mode {mode:04o}); close it with `chmod 600 {}`", path.display());
                assert!(error.ends_with(&help), "{error}");
            }
        }
    }

    #[test]
    fn root_may_give_a_file_to_a_service_by_its_group() {
        for (mode, given) in
            [(0o400, true), (0o440, true), (0o640, true), (0o660, false), (0o644, false), (0o641, false)]
        {
            assert_eq!(!others_can(0, mode, 1_000), given, "{mode:o}");
            for (owner, user) in [(0, 0), (1_000, 1_000)] {
                assert_eq!(!others_can(owner, mode, user), mode == 0o400, "{mode:o}");
            }
        }
    }

    #[test]
    fn files_of_another_user_are_refused() {
        let folder = scratch();
        let path = write(&folder, b"secret", 0o600);
        if chown(&path, Some(65_534), None).is_err() {
            bellows_testkit::skip("files_of_another_user_are_refused", "only root can give files away");
            return;
        }
        let error = read(&path, 100).unwrap_err().to_string();
        assert!(error.contains("belongs to user 65534") && error.contains("`chown 0 "), "{error}");
    }

    #[test]
    fn the_length_is_limited_and_what_is_no_file_is_refused_at_once() {
        let folder = scratch();
        let path = write(&folder, &[b'x'; 100], 0o600);
        assert_eq!(read(&path, 100).unwrap().len(), 100);
        assert!(matches!(read(&path, 99), Err(PrivateFileError::TooLong { max: 99, .. })));
        let empty = write(&folder, b"", 0o600);
        assert_eq!(read(&empty, 0).unwrap().len(), 0);
        let link = folder.path().join("link");
        symlink(&path, &link).unwrap();
        assert!(read(&link, 100).is_ok(), "a link to a private file is one");
        let [pipe, socket] = ["pipe", "socket"].map(|name| folder.path().join(name));
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RWXU).unwrap();
        let _listener = UnixListener::bind(&socket).unwrap();
        for path in [folder.path(), &pipe, &socket, Path::new("/dev/null")] {
            let error = read(path, 100).unwrap_err();
            assert!(matches!(error, PrivateFileError::NotRegular(_)), "{error}");
        }
        let missing = read(&folder.path().join("none"), 100).unwrap_err().to_string();
        assert!(
            missing.starts_with("cannot read `") && missing.contains("it does not exist; check the path"),
            "{missing}"
        );
    }
}
