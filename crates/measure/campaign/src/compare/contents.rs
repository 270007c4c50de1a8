//! Hashes and copies of files and folders.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::error::{CompareError, io_error};

/// A hash of all that a file or a folder holds: names, which files are programs, and contents. Symbolic links within a
/// folder count as what they point to is called.
pub(super) fn hash(path: &Path) -> Result<String, CompareError> {
    let mut hash = Sha256::new();
    let found = fs::metadata(path).map_err(io_error("read", path))?;
    if found.is_dir() {
        walk(path, Path::new(""), &mut |place, entry| {
            let kind = match entry {
                FolderEntry::Folder => "folder",
                FolderEntry::Link(_) => "link",
                FolderEntry::File { is_program: false } => "file",
                FolderEntry::File { is_program: true } => "program",
            };
            [kind.as_bytes(), b"\0", place.as_os_str().as_bytes(), b"\0"].iter().for_each(|part| hash.update(part));
            match entry {
                FolderEntry::Folder => {}
                FolderEntry::Link(target) => {
                    hash.update(target.as_os_str().as_bytes());
                    hash.update(b"\0");
                }
                FolderEntry::File { .. } => hash.update(file_hash(&path.join(place))?),
            }
            Ok(())
        })?;
    } else if found.is_file() {
        hash.update(file_hash(path)?);
    } else {
        return Err(neither(path.to_owned()));
    }
    Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

fn file_hash(path: &Path) -> Result<[u8; 32], CompareError> {
    let failed = || io_error("read", path);
    let mut file = File::open(path).map_err(failed())?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(hash.finalize().into()),
            Ok(length) => hash.update(&buffer[..length]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(failed()(error)),
        }
    }
}

/// Copies a file, or all of a folder, to a path that does not exist.
pub(super) fn copy(from: &Path, to: &Path) -> Result<(), CompareError> {
    let failed = |doing, path| move |error| io_error(doing, path)(error);
    if !fs::metadata(from).map_err(failed("read", from))?.is_dir() {
        return fs::copy(from, to).map(drop).map_err(failed("copy", from));
    }
    fs::create_dir_all(to).map_err(failed("create", to))?;
    walk(from, Path::new(""), &mut |place, entry| {
        let (source, target) = (from.join(place), to.join(place));
        match entry {
            FolderEntry::Folder => fs::create_dir(&target).map_err(io_error("create", &target)),
            FolderEntry::Link(link) => std::os::unix::fs::symlink(link, &target).map_err(io_error("create", &target)),
            FolderEntry::File { .. } => fs::copy(&source, &target).map(drop).map_err(io_error("copy", &source)),
        }
    })
}

/// The error of a pipe, a socket or a device.
fn neither(path: PathBuf) -> CompareError {
    let (why, help) = ("is neither a file nor a folder", "remove it, or name another path");
    CompareError::Path { path, why, help }
}

/// What a folder has.
enum FolderEntry {
    Folder,
    Link(PathBuf),
    File { is_program: bool },
}

/// Visits all that a folder has, in the order of names, each folder before its contents.
fn walk(
    top: &Path,
    below: &Path,
    visit: &mut impl FnMut(&Path, &FolderEntry) -> Result<(), CompareError>,
) -> Result<(), CompareError> {
    let folder = top.join(below);
    let entries = fs::read_dir(&folder).and_then(|entries| entries.map(|entry| Ok(entry?.file_name())).collect());
    let mut names: Vec<_> = entries.map_err(|error: io::Error| io_error("read", &folder)(error))?;
    names.sort_unstable();
    for name in names {
        let place = below.join(name);
        let path = top.join(&place);
        let failed = || io_error("read", &path);
        let found = fs::symlink_metadata(&path).map_err(failed())?;
        let entry = match found.file_type() {
            kind if kind.is_dir() => FolderEntry::Folder,
            kind if kind.is_symlink() => FolderEntry::Link(fs::read_link(&path).map_err(failed())?),
            kind if kind.is_file() => FolderEntry::File { is_program: found.permissions().mode() & 0o111 != 0 },
            _ => return Err(neither(path)),
        };
        visit(&place, &entry)?;
        if matches!(entry, FolderEntry::Folder) {
            walk(top, &place, visit)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use bellows_testkit::scratch;

    fn change(change: impl FnOnce(&Path)) -> (String, String) {
        let scratch = scratch();
        let folder = scratch.path().join("a b");
        fs::create_dir_all(folder.join("bin/empty")).unwrap();
        fs::write(folder.join("bin/tool"), "1").unwrap();
        fs::write(folder.join("data"), "2").unwrap();
        std::os::unix::fs::symlink("data", folder.join("link")).unwrap();
        let before = hash(&folder).unwrap();
        change(&folder);
        (before, hash(&folder).unwrap())
    }

    #[test]
    fn a_hash_is_of_names_contents_links_and_programs() {
        let changes: [fn(&Path); 6] = [
            |folder| fs::write(folder.join("data"), "3").unwrap(),
            |folder| fs::rename(folder.join("data"), folder.join("date")).unwrap(),
            |folder| fs::remove_dir(folder.join("bin/empty")).unwrap(),
            |folder| fs::set_permissions(folder.join("data"), fs::Permissions::from_mode(0o755)).unwrap(),
            |folder| {
                fs::remove_file(folder.join("link")).unwrap();
                std::os::unix::fs::symlink("bin/tool", folder.join("link")).unwrap();
            },
            |folder| fs::write(folder.join("more"), "").unwrap(),
        ];
        for (number, apply) in changes.into_iter().enumerate() {
            let (before, after) = change(apply);
            assert_ne!(before, after, "change {number}");
        }
        let (before, after) = change(|folder| fs::write(folder.join("data"), "2").unwrap());
        assert_eq!(before, after);
    }

    #[test]
    fn a_copy_has_the_hash_of_its_original() {
        let (copied, original) = (scratch(), scratch());
        change(|folder| {
            copy(folder, &copied.path().join("c")).unwrap();
            assert_eq!(hash(folder).unwrap(), hash(&copied.path().join("c")).unwrap());
        });
        let pipe = original.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let error = hash(original.path()).unwrap_err().to_string();
        assert!(error.contains("neither a file nor a folder"), "{error}");
    }
}
