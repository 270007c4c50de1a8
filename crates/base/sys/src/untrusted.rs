//! A directory of another user, who may change it at any time, maliciously.
//!
//! Everything is opened relative to a descriptor of the directory, without following symbolic links and without
//! entering other file systems, and is checked after it has been opened: the target of a path may change between a
//! check and its use. Files are read into private memory, because truncating a mapped file would raise SIGBUS.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::fs::{CWD, Dir, Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::net::sockopt::socket_peercred;
use rustix::process::geteuid;

/// A directory of another user that only this user can enter.
#[derive(Debug)]
pub struct UntrustedDir {
    directory: OwnedFd,
    owner: u32,
}

/// How a path below an untrusted directory is resolved.
fn within() -> ResolveFlags {
    ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV
}

impl UntrustedDir {
    /// Opens the directory `name` in `parent`. The path of `parent` is trusted; its contents are not.
    ///
    /// # Errors
    /// Those of opening a directory; `PermissionDenied` if others than its owner can enter it.
    pub fn open(parent: &Path, name: &str) -> io::Result<UntrustedDir> {
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let parent = openat(CWD, parent, flags | OFlags::PATH, Mode::empty())?;
        let flags = flags | OFlags::RDONLY | OFlags::NOFOLLOW;
        let directory = File::from(openat2(parent, name, flags, Mode::empty(), within())?);
        let metadata = directory.metadata()?;
        if metadata.mode() & 0o077 != 0 {
            return Err(ErrorKind::PermissionDenied.into());
        }
        Ok(UntrustedDir { directory: directory.into(), owner: metadata.uid() })
    }

    /// The user who owns it.
    pub fn owner(&self) -> u32 {
        self.owner
    }

    /// The names of its entries, if they are UTF-8, at most `most`.
    ///
    /// # Errors
    /// Those of reading a directory.
    pub fn names(&self, most: usize) -> io::Result<Vec<String>> {
        let entries = Dir::read_from(&self.directory)?;
        let names = entries.filter_map(|entry| entry.ok()?.file_name().to_str().ok().map(str::to_owned));
        Ok(names.filter(|name| name != "." && name != "..").take(most).collect())
    }

    /// Opens a file of the owner's below the directory for reading. Never blocks, whatever the path names.
    ///
    /// # Errors
    /// Those of opening a file; `InvalidInput` if it is not a regular file of the owner's.
    pub fn file(&self, path: &Path) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = File::from(openat2(&self.directory, path, flags, Mode::empty(), within())?);
        let metadata = file.metadata()?;
        // A hard link may lead to another user's file.
        if metadata.is_file() && metadata.uid() == self.owner { Ok(file) } else { Err(ErrorKind::InvalidInput.into()) }
    }

    /// Reads a file of the owner's below the directory.
    ///
    /// # Errors
    /// As [`file`](UntrustedDir::file); `FileTooLarge` for one of more than `limit` bytes.
    pub fn read(&self, path: &Path, limit: u64) -> io::Result<Vec<u8>> {
        let file = self.file(path)?;
        let mut content = Vec::new();
        if file.metadata()?.len() <= limit {
            // The file may grow meanwhile.
            file.take(limit + 1).read_to_end(&mut content)?;
            if content.len() as u64 <= limit {
                return Ok(content);
            }
        }
        Err(ErrorKind::FileTooLarge.into())
    }

    /// Connects to a socket below the directory on which a process of the owner's listens.
    ///
    /// # Errors
    /// Those of connecting; `InvalidInput` if it is not a socket of the owner's, and `PermissionDenied` if another user
    /// listens.
    pub fn connect(&self, path: &Path) -> io::Result<UnixStream> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let socket = File::from(openat2(&self.directory, path, flags, Mode::empty(), within())?);
        let metadata = socket.metadata()?;
        if !metadata.file_type().is_socket() || metadata.uid() != self.owner {
            return Err(ErrorKind::InvalidInput.into());
        }
        // Through its descriptor, so that it is the socket that was checked.
        connect_to(Path::new(&format!("/proc/self/fd/{}", socket.as_raw_fd())), self.owner)
    }
}

/// Connects to a socket on which a process of this user listens.
///
/// # Errors
/// Those of connecting; `PermissionDenied` if another user listens.
pub fn connect_to_own(path: &Path) -> io::Result<UnixStream> {
    connect_to(path, geteuid().as_raw())
}

fn connect_to(path: &Path, owner: u32) -> io::Result<UnixStream> {
    let stream = UnixStream::connect(path)?;
    let listener = socket_peercred(&stream)?.uid.as_raw();
    if listener == owner { Ok(stream) } else { Err(ErrorKind::PermissionDenied.into()) }
}

/// Reads a file of settings that only root can have written: root's, in a folder of root's, and neither is writable for
/// others. A link from there to another such file is followed.
///
/// # Errors
/// Those of reading a file; `PermissionDenied` if others than root may have written it, and `FileTooLarge` for one of
/// more than `limit` bytes.
pub fn read_of_root(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let is_roots = |metadata: &fs::Metadata| metadata.uid() == 0 && metadata.mode() & 0o022 == 0;
    let target = path.canonicalize()?;
    let folders = [path, &target].into_iter().filter_map(Path::parent).map(fs::metadata);
    let folders = folders.collect::<io::Result<Vec<_>>>()?;
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(openat(CWD, path, flags, Mode::empty())?);
    let metadata = file.metadata()?;
    if !metadata.is_file() || !folders.iter().chain([&metadata]).all(is_roots) {
        return Err(ErrorKind::PermissionDenied.into());
    }
    let mut content = Vec::new();
    file.take(limit + 1).read_to_end(&mut content)?;
    if content.len() as u64 > limit { Err(ErrorKind::FileTooLarge.into()) } else { Ok(content) }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::os::unix::net::UnixListener;
    use std::path::PathBuf;

    use bellows_testkit::scratch;
    use bellows_testkit::scratch::TempDir;

    use super::*;

    /// A folder with the private directory `theirs`, gone when dropped.
    struct Folder(TempDir);

    impl Folder {
        fn new() -> Folder {
            let folder = scratch();
            fs::create_dir_all(folder.path().join("theirs/net")).unwrap();
            fs::set_permissions(folder.path().join("theirs"), Permissions::from_mode(0o700)).unwrap();
            Folder(folder)
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        fn open(&self) -> io::Result<UntrustedDir> {
            UntrustedDir::open(self.0.path(), "theirs")
        }
    }

    #[test]
    fn files_and_sockets_of_the_owner_are_reached() {
        let folder = Folder::new();
        fs::write(folder.path("theirs/net/counters"), "12345678").unwrap();
        let listener = UnixListener::bind(folder.path("theirs/net/control")).unwrap();
        let directory = folder.open().unwrap();
        assert_eq!(directory.owner(), fs::metadata(folder.0.path()).unwrap().uid());
        assert_eq!(directory.names(10).unwrap(), ["net"]);
        assert_eq!(directory.names(0).unwrap(), [""; 0]);
        assert_eq!(directory.read("net/counters".as_ref(), 8).unwrap(), b"12345678");
        assert_eq!(directory.read("net/counters".as_ref(), 7).unwrap_err().kind(), ErrorKind::FileTooLarge);
        assert_eq!(directory.read("net/nothing".as_ref(), 8).unwrap_err().kind(), ErrorKind::NotFound);
        directory.connect("net/control".as_ref()).unwrap();
        listener.accept().unwrap();
    }

    #[test]
    fn paths_that_lead_out_or_would_block_are_refused() {
        let folder = Folder::new();
        fs::create_dir(folder.path("ours")).unwrap();
        fs::write(folder.path("ours/counters"), "ours").unwrap();
        let _listener = UnixListener::bind(folder.path("ours/control")).unwrap();
        symlink("../ours", folder.path("theirs/linked")).unwrap();
        symlink("../../ours/counters", folder.path("theirs/net/counters")).unwrap();
        symlink("../../ours/control", folder.path("theirs/net/control")).unwrap();
        let pipe = folder.path("theirs/net/pipe");
        rustix::fs::mknodat(CWD, &pipe, rustix::fs::FileType::Fifo, Mode::RUSR, 0).unwrap();
        let directory = folder.open().unwrap();
        for path in ["linked/counters", "net/counters", "../ours/counters", "net/pipe", "net", "net/control"] {
            assert!(directory.read(path.as_ref(), 100).is_err(), "{path}");
        }
        for path in ["linked/control", "net/control", "../ours/control", "net/pipe"] {
            assert!(directory.connect(path.as_ref()).is_err(), "{path}");
        }
    }

    #[test]
    fn settings_are_those_of_root_alone() {
        let folder = Folder::new();
        let (settings, link) = (folder.path("theirs/settings"), folder.path("theirs/link"));
        fs::write(&settings, "12345678").unwrap();
        fs::set_permissions(&settings, Permissions::from_mode(0o644)).unwrap();
        symlink(&settings, &link).unwrap();
        let kind = |path: &Path| read_of_root(path, 8).map_err(|error| error.kind());
        if geteuid().is_root() {
            assert_eq!([kind(&settings), kind(&link)], [Ok(b"12345678".to_vec()), Ok(b"12345678".to_vec())]);
            assert_eq!(read_of_root(&settings, 7).unwrap_err().kind(), ErrorKind::FileTooLarge);
            std::os::unix::fs::chown(&settings, Some(65_534), None).unwrap();
        }
        assert_eq!(kind(&settings), Err(ErrorKind::PermissionDenied), "another user's");
        if geteuid().is_root() {
            std::os::unix::fs::chown(&settings, Some(0), None).unwrap();
        }
        for (path, mode) in [(&settings, 0o664), (&settings, 0o646), (&folder.path("theirs"), 0o777)] {
            let before = fs::metadata(path).unwrap().permissions();
            fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
            assert_eq!(kind(&settings), Err(ErrorKind::PermissionDenied), "{mode:o}");
            fs::set_permissions(path, before).unwrap();
        }
        assert_eq!(kind(&folder.path("theirs")), Err(ErrorKind::PermissionDenied), "a folder");
        assert_eq!(kind(&folder.path("theirs/nothing")), Err(ErrorKind::NotFound));
    }

    #[test]
    fn a_directory_that_is_a_link_or_open_to_others_is_refused() {
        let folder = Folder::new();
        symlink("theirs", folder.path("link")).unwrap();
        assert!(UntrustedDir::open(folder.0.path(), "link").is_err());
        fs::set_permissions(folder.path("theirs"), Permissions::from_mode(0o710)).unwrap();
        assert_eq!(folder.open().unwrap_err().kind(), ErrorKind::PermissionDenied);
    }
}
