//! Files of Unix sockets: created, exchanged for abandoned ones, and removed.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, PoisonError};

use bellows_sys::remedy;
use rustix::io::Errno;
use tracing::error;

use crate::socket;

/// The file of a socket that this process opened. Dropping it removes the file.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    /// Device and inode of the file: another file at the same path is not ours.
    file: Option<(u64, u64)>,
    /// While there is an abandoned socket at the path: the name under which ours waits to replace it.
    waiting: Mutex<Option<PathBuf>>,
}

impl SocketFile {
    /// Opens a socket for a path: `open` gets the place to bind it to. If an abandoned socket is at the path, that
    /// stays until [`begin`](SocketFile::begin).
    ///
    /// # Errors
    /// `AddrInUse` if a process has a socket there; the path is not a socket; those of `open`. The text names the path.
    pub fn open<T>(path: &Path, open: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<(SocketFile, T)> {
        let name = if is_stale(path)? { Some(beside(path)?) } else { None };
        let place = name.as_deref().unwrap_or(path);
        let socket = open(place).map_err(|error| explain(path, &error, "cannot listen at"))?;
        let file = fs::symlink_metadata(place).ok().map(identity);
        Ok((SocketFile { path: path.to_owned(), file, waiting: Mutex::new(name) }, socket))
    }

    /// Replaces the abandoned socket, if there is one.
    pub fn begin(&self) {
        let Some(name) = self.take_waiting() else { return };
        if let Err(error) = fs::rename(&name, &self.path) {
            let path = self.path.display();
            error!("{path}: the abandoned socket cannot be replaced: {error}; ours is at {}", name.display());
            *self.waiting.lock().unwrap_or_else(PoisonError::into_inner) = Some(name);
        }
    }

    fn take_waiting(&self) -> Option<PathBuf> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let path = self.take_waiting().unwrap_or_else(|| self.path.clone());
        let there = fs::symlink_metadata(&path).ok().map(identity);
        if there.is_some() && there == self.file {
            let _ = fs::remove_file(&path);
        }
    }
}

/// Device and inode of a file.
fn identity(status: Metadata) -> (u64, u64) {
    (status.dev(), status.ino())
}

/// The part between the name of a socket and the numbers in the name of its replacement.
const MARK: &str = ".new-";

/// A name for a socket that is to replace an abandoned one, which stays unchanged until then. Removes the leftovers of
/// processes that have ended.
///
/// # Errors
/// If another one waits to replace the socket, or the name would be too long for a socket.
fn beside(path: &Path) -> io::Result<PathBuf> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let prefix = format!("{name}{MARK}");
    let entries = fs::read_dir(folder).map_err(|error| explain(path, &error, "cannot check for other sockets at"))?;
    for entry in entries.filter_map(Result::ok) {
        let is_other = entry
            .file_name()
            .to_string_lossy()
            .strip_prefix(&prefix)
            .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-'));
        if is_other && is_stale(&entry.path()).map_err(|_| in_use(path))? {
            let _ = fs::remove_file(entry.path());
        }
    }
    let number = NEXT.fetch_add(1, SeqCst);
    let name = path.with_file_name(format!("{prefix}{}-{number}", std::process::id()));
    if name.as_os_str().len() <= MAX_SOCKET_PATH {
        return Ok(name);
    }
    let message =
        format!("{} is too long a path to replace the abandoned socket there; remove the socket", path.display());
    Err(io::Error::new(io::ErrorKind::InvalidInput, message))
}

/// Maximum length of a socket path.
const MAX_SOCKET_PATH: usize = 107;

fn in_use(path: &Path) -> io::Error {
    let path = path.display();
    let message = format!("another process or app already listens at {path}; end it, or give another path");
    io::Error::new(io::ErrorKind::AddrInUse, message)
}

/// Whether there is an abandoned socket, which may be replaced. False if there is nothing.
///
/// # Errors
/// If a process listens there, or the path is not a socket.
fn is_stale(path: &Path) -> io::Result<bool> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(explain(path, &error, "cannot check")),
        Ok(status) if !status.file_type().is_socket() => {
            let message = format!("{} already exists and is not a socket; give another path", path.display());
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, message));
        }
        Ok(_) => {}
    }
    match socket::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        // A process accepts connections, or has a full queue of them.
        Ok(_) => Err(in_use(path)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(in_use(path)),
        // It is a socket of another type: for datagrams.
        Err(error) if Errno::from_io_error(&error) == Some(Errno::PROTOTYPE) => Err(in_use(path)),
        Err(error) => Err(explain(path, &error, "cannot check who listens at")),
    }
}

fn explain(path: &Path, error: &io::Error, what: &str) -> io::Error {
    let path = path.display();
    io::Error::new(
        error.kind(),
        format!("{what} {path}: {error}; {}", remedy(error, "give a path in a folder that exists and is writable")),
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixDatagram, UnixListener};

    use bellows_testkit::scratch;

    use super::*;

    /// Binds a socket to a path.
    type Bind = fn(&Path) -> io::Result<Box<dyn Send>>;

    /// The kind of the error with which a socket cannot be opened.
    fn refused(path: &Path) -> io::ErrorKind {
        SocketFile::open(path, |place| UnixListener::bind(place)).unwrap_err().kind()
    }

    #[test]
    fn sockets_of_either_type_are_only_replaced_when_they_are_abandoned() {
        let folder = scratch();
        let path = folder.path().join("s");
        let sockets: [Bind; 2] =
            [|place| Ok(Box::new(UnixListener::bind(place)?)), |place| Ok(Box::new(UnixDatagram::bind(place)?))];
        for before in sockets {
            for after in sockets {
                let there = before(&path).unwrap();
                assert_eq!(refused(&path), io::ErrorKind::AddrInUse);
                drop(there);
                let (file, socket) = SocketFile::open(&path, after).unwrap();
                assert_eq!(refused(&path), io::ErrorKind::AddrInUse, "another one waits to replace it");
                file.begin();
                assert_eq!(refused(&path), io::ErrorKind::AddrInUse);
                assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
                drop((file, socket));
                assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
            }
        }
        fs::write(&path, "mine").unwrap();
        assert_eq!(refused(&path), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&path).unwrap(), b"mine");
    }
}
