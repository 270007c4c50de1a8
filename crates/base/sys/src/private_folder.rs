//! A user's own folder in one where everyone may create files, such as `/tmp` and `/dev/shm`.
//!
//! The folder has a name that all processes of the user know. Another user may have made something of that name first.
//! That is gone around: the folder then has the name, a dot and a random number, which nobody can guess in advance, and
//! is found because it belongs to the user. Nobody can give a folder to another user, so strangers cannot add any.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Whether a folder exists, belongs to this user, and is closed to others. A symbolic link is not followed.
pub fn is_private(folder: &Path, user: u32) -> bool {
    fs::symlink_metadata(folder).is_ok_and(|it| it.is_dir() && it.uid() == user && it.mode() & 0o077 == 0)
}

/// Whether there is something at a path that belongs to another user.
pub fn is_foreign(path: &Path, user: u32) -> bool {
    fs::symlink_metadata(path).is_ok_and(|it| it.uid() != user)
}

/// The user's folders with names of their own in `parent`, which stand in for the one called `name`; in order.
pub fn substitutes(parent: &Path, name: &str, user: u32) -> Vec<PathBuf> {
    let is_substitute = |file: &OsStr| {
        let rest = file.as_bytes().strip_prefix(name.as_bytes());
        rest.is_some_and(|rest| rest.len() > 1 && rest[0] == b'.')
    };
    let entries = fs::read_dir(parent).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.file_name()));
    let mut found: Vec<PathBuf> = entries.filter(|file| is_substitute(file)).map(|file| parent.join(file)).collect();
    found.retain(|folder| is_private(folder, user));
    found.sort();
    found
}

/// Makes such a folder, if what is called `name` is another user's and there is none yet.
///
/// # Errors
/// Those of making a folder.
pub fn substitute(parent: &Path, name: &str, user: u32) -> io::Result<()> {
    if is_foreign(&parent.join(name), user) && substitutes(parent, name, user).is_empty() {
        fresh(parent, name)?;
    }
    Ok(())
}

/// Makes a new folder of this user alone, whose name is `name`, a dot and a random number.
///
/// # Errors
/// Those of making a folder.
pub fn fresh(parent: &Path, name: &str) -> io::Result<PathBuf> {
    let folder = parent.join(format!("{name}.{:016x}", RandomState::new().hash_one(name)));
    DirBuilder::new().mode(0o700).create(&folder)?;
    Ok(folder)
}

/// The user's folder called `name` in `parent`, or the one that stands in for it. Makes it if it is missing.
///
/// # Errors
/// Those of making a folder; `PermissionDenied` if there is something of the user's that is no folder, or is open to
/// others.
pub fn open(parent: &Path, name: &str, user: u32) -> io::Result<PathBuf> {
    let folder = parent.join(name);
    match DirBuilder::new().mode(0o700).create(&folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ if is_private(&folder, user) => return Ok(folder),
        _ => substitute(parent, name, user)?,
    }
    substitutes(parent, name, user).into_iter().next().ok_or_else(|| {
        let message = format!("`{}` is not a folder that only this user can enter; remove it", folder.display());
        io::Error::new(io::ErrorKind::PermissionDenied, message)
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};

    use bellows_testkit::scratch;
    use rustix::process::geteuid;

    use super::*;

    const STRANGER: u32 = 65_534;

    #[test]
    fn the_folder_has_its_plain_name_unless_that_is_taken() {
        let (folder, user) = (scratch(), geteuid().as_raw());
        let plain = folder.path().join("own");
        for _ in 0..2 {
            assert_eq!(open(folder.path(), "own", user).unwrap(), plain);
        }
        fs::set_permissions(&plain, fs::Permissions::from_mode(0o755)).unwrap();
        let open_to_others = open(folder.path(), "own", user).unwrap_err();
        assert_eq!(open_to_others.kind(), io::ErrorKind::PermissionDenied, "it is the user's, who can close it");
        assert!(substitutes(folder.path(), "own", user).is_empty());
    }

    #[test]
    fn what_a_stranger_made_first_is_gone_around() {
        let (folder, user) = (scratch(), geteuid().as_raw());
        let parent = folder.path();
        let plain = parent.join("own");
        let kinds: [fn(&Path) -> io::Result<()>; 4] = [
            |path| fs::create_dir(path),
            |path| fs::write(path, ""),
            |path| symlink("/nowhere", path),
            |path| symlink(path.with_file_name("target"), path),
        ];
        for make in kinds {
            fs::create_dir_all(parent.join("target")).unwrap();
            make(&plain).unwrap();
            if lchown(&plain, Some(STRANGER), None).is_err() {
                bellows_testkit::skip("what_a_stranger_made_first_is_gone_around", "only root can give files away");
                return;
            }
            // What strangers put beside it is not taken for the user's.
            let beside = parent.join("own.0000000000000000");
            fs::create_dir_all(&beside).unwrap();
            fs::set_permissions(&beside, fs::Permissions::from_mode(0o700)).unwrap();
            chown(&beside, Some(STRANGER), None).unwrap();
            let found = open(parent, "own", user).unwrap();
            assert!(is_private(&found, user) && found != plain && found != beside, "{found:?}");
            assert_eq!(open(parent, "own", user).unwrap(), found, "the next process finds the same");
            assert_eq!(substitutes(parent, "own", user), std::slice::from_ref(&found));
            assert_eq!(fs::read_dir(parent.join("target")).unwrap().count(), 0);
            let _ = fs::remove_file(&plain).or_else(|_| fs::remove_dir(&plain));
            fs::remove_dir(&found).unwrap();
        }
    }
}
