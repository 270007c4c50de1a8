//! Files that are replaced as a whole: a reader finds the old contents or the new ones.
//!
//! The new contents are written to a file in the same folder, which is then renamed. That file has an unpredictable name
//! that nothing else has. So several writers never write to the same file, and a symbolic link that another user puts
//! into the folder is not followed: not under that name, and not under the name of the file, where it is replaced. What
//! a process that is killed leaves behind begins with a dot. Devices, pipes and sockets are not replaced, and neither
//! are links to them: see [`NotRegular`].

use std::error::Error;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::{self, File, FileType, OpenOptions, Permissions};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Maximum bytes of a file name.
const MAX_NAME: usize = 255;

/// The error of replacing what is not a regular file, such as `/dev/stdout`: a device or pipe would be gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotRegular(&'static str);

impl NotRegular {
    /// Whether this is the reason for an error.
    pub fn is_cause_of(error: &io::Error) -> bool {
        error.get_ref().is_some_and(|cause| cause.is::<NotRegular>())
    }

    fn of(kind: FileType) -> NotRegular {
        NotRegular(match kind {
            kind if kind.is_fifo() => "a named pipe",
            kind if kind.is_socket() => "a socket",
            kind if kind.is_dir() => "a folder",
            kind if kind.is_block_device() || kind.is_char_device() => "a device",
            _ => "something else",
        })
    }
}

impl fmt::Display for NotRegular {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "it is {}, not a regular file, and is not replaced", self.0)
    }
}

impl Error for NotRegular {}

/// Checks that there is a regular file at a path, or a link to one, or nothing.
fn check_replaceable(path: &Path) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(there) if !there.is_file() => {
            Err(io::Error::new(io::ErrorKind::InvalidInput, NotRegular::of(there.file_type())))
        }
        // A link that leads nowhere is replaced.
        _ => Ok(()),
    }
}

/// A new file that is to take the place of another one. Dropping it removes it, and the other one stays.
#[derive(Debug)]
pub struct Replacement {
    file: File,
    beside: PathBuf,
    target: PathBuf,
    is_in_place: bool,
}

impl Replacement {
    /// Creates an empty file beside `target`, with these permission bits regardless of the umask; without them, it has
    /// those that the umask leaves. There need not be a file at `target`.
    ///
    /// # Errors
    /// Those of creating a file; `InvalidInput` if the path does not end with a name, or with [`NotRegular`] if there
    /// is something else than a file.
    pub fn create(target: &Path, mode: Option<u32>) -> io::Result<Replacement> {
        let name = target.file_name().ok_or(io::ErrorKind::InvalidInput)?;
        check_replaceable(target)?;
        let beside = target.with_file_name(name_beside(name, RandomState::new().hash_one(target)));
        let at_first = if mode.is_some() { 0o600 } else { 0o666 };
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(at_first).open(&beside)?;
        let new = Replacement { file, beside, target: target.to_owned(), is_in_place: false };
        if let Some(mode) = mode {
            new.file.set_permissions(Permissions::from_mode(mode & 0o7777))?;
        }
        Ok(new)
    }

    /// The file, open for reading and writing.
    pub fn file(&mut self) -> &mut File {
        &mut self.file
    }

    /// Puts the file in the place of the other one.
    ///
    /// # Errors
    /// Those of renaming a file. Nothing has changed then.
    pub fn put(mut self) -> io::Result<()> {
        fs::rename(&self.beside, &self.target)?;
        self.is_in_place = true;
        Ok(())
    }

    /// As [`Replacement::put`], so that also a crash of the machine leaves the old contents or the new ones, and after
    /// this call the new ones.
    ///
    /// # Errors
    /// Those of writing to the disk, and of renaming.
    pub fn put_durably(self) -> io::Result<()> {
        self.file.sync_all()?;
        let folder = self.target.parent().unwrap_or(Path::new("")).to_owned();
        self.put()?;
        sync_folder(&folder)
    }
}

impl Drop for Replacement {
    fn drop(&mut self) {
        if !self.is_in_place {
            let _ = fs::remove_file(&self.beside);
        }
    }
}

/// A name for a file beside one of this name, which is shortened if need be.
fn name_beside(name: &OsStr, number: u64) -> OsString {
    let end = format!(".{number:016x}");
    let kept = name.len().min(MAX_NAME - 1 - end.len());
    let mut beside = OsString::from(".");
    beside.push(OsStr::from_bytes(&name.as_bytes()[..kept]));
    beside.push(end);
    beside
}

/// Replaces a file, or creates it. The permission bits are those of [`Replacement::create`].
///
/// # Errors
/// Those of creating, writing and renaming a file. The old file stays then, and nothing beside it.
pub fn write(path: &Path, content: &[u8], mode: Option<u32>) -> io::Result<()> {
    let mut new = Replacement::create(path, mode)?;
    new.file().write_all(content)?;
    new.put()
}

/// As [`write()`], and also for a crash of the machine: see [`Replacement::put_durably`].
///
/// # Errors
/// Those of [`write()`], and of writing to the disk.
pub fn write_durably(path: &Path, content: &[u8], mode: Option<u32>) -> io::Result<()> {
    let mut new = Replacement::create(path, mode)?;
    new.file().write_all(content)?;
    new.put_durably()
}

/// Writes the names in a folder to the disk. An empty path is the working directory.
///
/// # Errors
/// Those of opening the folder and of writing to the disk.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, symlink};
    use std::os::unix::net::UnixListener;
    use std::thread;

    use bellows_testkit::scratch;

    use super::*;

    fn names(folder: &Path) -> Vec<OsString> {
        let mut names: Vec<OsString> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_is_created_and_replaced_and_nothing_stays_beside_it() {
        let folder = scratch();
        let path = folder.path().join("file");
        for (round, write) in [write, write_durably].into_iter().enumerate() {
            for content in [&b"a long content"[..], b"short", b""] {
                write(&path, content, None).unwrap();
                assert_eq!(fs::read(&path).unwrap(), content, "{round}");
                assert_eq!(names(folder.path()), ["file"]);
            }
        }
    }

    #[test]
    fn a_reader_keeps_the_old_contents() {
        let folder = scratch();
        let path = folder.path().join("file");
        write(&path, b"old", None).unwrap();
        let reader = File::open(&path).unwrap();
        let mut new = Replacement::create(&path, None).unwrap();
        new.file().write_all(b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"old", "the file is not in its place");
        new.put().unwrap();
        assert_eq!(io::read_to_string(reader).unwrap(), "old");
        assert_eq!(fs::read(&path).unwrap(), b"new");
    }

    #[test]
    fn a_replacement_that_is_dropped_leaves_the_old_file() {
        let folder = scratch();
        let path = folder.path().join("file");
        write(&path, b"old", None).unwrap();
        let mut new = Replacement::create(&path, None).unwrap();
        new.file().write_all(b"new").unwrap();
        assert_eq!(names(folder.path()).len(), 2);
        drop(new);
        assert_eq!((names(folder.path()), fs::read(&path).unwrap()), (vec!["file".into()], b"old".to_vec()));
    }

    #[test]
    fn a_failed_replacement_leaves_nothing_behind() {
        let folder = scratch();
        let path = folder.path().join("folder");
        fs::create_dir(&path).unwrap();
        for write in [write, write_durably] {
            assert!(write(&path, b"content", None).is_err(), "a folder is no file");
            assert!(write(&folder.path().join("none/file"), b"content", None).is_err());
            let nameless = write(&path.join(".."), b"content", None).unwrap_err();
            assert_eq!(nameless.kind(), io::ErrorKind::InvalidInput);
        }
        assert_eq!(names(folder.path()), ["folder"]);
        assert_eq!(names(&path).len(), 0);
    }

    #[test]
    fn pipes_sockets_and_links_to_them_are_not_replaced() {
        let folder = scratch();
        let [pipe, to_pipe, socket] = ["pipe", "to-pipe", "socket"].map(|name| folder.path().join(name));
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RWXU).unwrap();
        symlink(&pipe, &to_pipe).unwrap();
        let _listener = UnixListener::bind(&socket).unwrap();
        for write in [write, write_durably] {
            for (path, what) in [(&pipe, "a named pipe"), (&to_pipe, "a named pipe"), (&socket, "a socket")] {
                let error = write(path, b"content", Some(0o644)).unwrap_err();
                assert!(NotRegular::is_cause_of(&error) && error.to_string().contains(what), "{error}");
            }
        }
        let kind = |path: &Path| fs::symlink_metadata(path).unwrap().file_type();
        assert!(kind(&pipe).is_fifo() && kind(&to_pipe).is_symlink() && kind(&socket).is_socket());
        assert_eq!(names(folder.path()).len(), 3);
        // A link that leads nowhere.
        fs::remove_file(&pipe).unwrap();
        write(&to_pipe, b"content", None).unwrap();
        assert!(kind(&to_pipe).is_file() && !pipe.exists());
    }

    #[test]
    fn permissions_are_those_that_are_given_or_those_of_a_new_file() {
        let folder = scratch();
        let path = folder.path().join("file");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        for given in [0o600, 0o644, 0o666, 0o750, 0o400, 0o100_640] {
            write(&path, b"content", Some(given)).unwrap();
            assert_eq!(mode(&path), given & 0o7777);
        }
        write(&path, b"content", None).unwrap();
        let other = folder.path().join("other");
        fs::write(&other, "").unwrap();
        assert_eq!(mode(&path), mode(&other));
    }

    #[test]
    fn a_link_in_its_place_is_replaced_and_not_followed() {
        let folder = scratch();
        let (victim, path) = (folder.path().join("victim"), folder.path().join("file"));
        fs::write(&victim, "precious").unwrap();
        for link in [symlink::<&Path, &Path>, |from, to| fs::hard_link(from, to)] {
            let _ = fs::remove_file(&path);
            link(&victim, &path).unwrap();
            write(&path, b"content", Some(0o600)).unwrap();
            assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
            let metadata = fs::symlink_metadata(&path).unwrap();
            assert!(metadata.is_file() && metadata.nlink() == 1);
        }
    }

    /// Each writer writes one letter as often as no other does: a mixture would be seen.
    #[test]
    fn parallel_writers_do_not_mix_their_contents() {
        const WRITERS: u8 = 8;
        let folder = scratch();
        let path = folder.path().join("file");
        let content = |writer: u8| vec![b'a' + writer; 10_000 + usize::from(writer)];
        write(&path, &content(0), None).unwrap();
        thread::scope(|scope| {
            for writer in 0..WRITERS {
                let (path, content) = (&path, content(writer));
                scope.spawn(move || (0..50).for_each(|_| write(path, &content, None).unwrap()));
            }
            for _ in 0..200 {
                let found = fs::read(&path).unwrap();
                assert!((0..WRITERS).any(|writer| found == content(writer)), "{} bytes", found.len());
            }
        });
        assert_eq!(names(folder.path()), ["file"]);
    }

    #[test]
    fn names_may_be_as_long_as_the_system_permits() {
        let folder = scratch();
        for name in ["é".repeat(MAX_NAME / 2), "x".repeat(MAX_NAME), "y".repeat(MAX_NAME - 18)] {
            let path = folder.path().join(&name);
            let new = Replacement::create(&path, None).unwrap();
            let beside = new.beside.file_name().unwrap().as_bytes();
            assert!(beside.starts_with(&[b'.', name.as_bytes()[0]]) && beside.len() <= MAX_NAME, "{name}");
            new.put().unwrap();
            assert!(path.is_file());
        }
        let names = [1, 2].map(|number| name_beside("file".as_ref(), number));
        assert_eq!(names, [".file.0000000000000001", ".file.0000000000000002"]);
    }

    #[test]
    fn a_name_alone_is_in_the_working_directory() {
        sync_folder(Path::new("")).unwrap();
        assert_eq!(Path::new("file").with_file_name(name_beside("file".as_ref(), 1)).parent(), Some(Path::new("")));
    }
}
