//! Unix sockets of type `SOCK_SEQPACKET`: connections that keep the bounds of messages. Nothing here blocks.
//!
//! Messages are received and sent with [`socket::receive`](crate::socket::receive) and
//! [`socket::send`](crate::socket::send).

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use bellows_sys::access::FileAccess;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect as connect_to, listen,
    socket_with,
};

use crate::socket::give_access;
use crate::socket_file::SocketFile;

/// Number of connections that may wait to be accepted.
const BACKLOG: i32 = 16;

/// Where a socket is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// At a path.
    Path(PathBuf),
    /// Under a name without a file, which every process in the same network namespace can use. The name is without the
    /// leading zero byte.
    Abstract(String),
}

impl Address {
    fn to_system(&self) -> io::Result<SocketAddrUnix> {
        Ok(match self {
            Address::Path(path) => SocketAddrUnix::new(path)?,
            Address::Abstract(name) => SocketAddrUnix::new_abstract_name(name.as_bytes())?,
        })
    }
}

impl fmt::Display for Address {
    /// The path, or the name behind an `@`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Path(path) => path.display().fmt(f),
            Address::Abstract(name) => write!(f, "@{name}"),
        }
    }
}

/// A socket that accepts connections. Dropping it removes its file.
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
    _file: Option<SocketFile>,
}

impl Listener {
    /// Opens a socket and listens there. A file is replaced if it is an abandoned socket, and nobody can connect before
    /// it has its permissions; an abstract name has none.
    ///
    /// # Errors
    /// `AddrInUse` if another process has it; those of [`SocketFile::open`], `socket(2)`, `bind(2)` and `listen(2)`.
    pub fn open(address: &Address, access: FileAccess) -> io::Result<Listener> {
        let Address::Path(path) = address else {
            let socket = bound(address)?;
            listen(&socket, BACKLOG)?;
            return Ok(Listener { socket, _file: None });
        };
        let (file, socket) = SocketFile::open(path, |place| listen_at(place, access))?;
        file.begin();
        Ok(Listener { socket, _file: Some(file) })
    }

    /// Accepts a connection.
    ///
    /// # Errors
    /// `WouldBlock` if there is none; those of `accept(2)`.
    pub fn accept(&self) -> io::Result<OwnedFd> {
        Ok(accept_with(&self.socket, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC)?)
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn new() -> io::Result<OwnedFd> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    Ok(socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

fn bound(address: &Address) -> io::Result<OwnedFd> {
    let socket = new()?;
    bind(&socket, &address.to_system()?)?;
    Ok(socket)
}

fn listen_at(path: &Path, access: FileAccess) -> io::Result<OwnedFd> {
    let socket = bound(&Address::Path(path.to_owned()))?;
    // Before `listen` every connection is refused, whatever the permissions are.
    let given = give_access(path, access).map_err(io::Error::other);
    if let Err(error) = given.and_then(|()| Ok(listen(&socket, BACKLOG)?)) {
        let _ = std::fs::remove_file(path);
        return Err(error);
    }
    Ok(socket)
}

/// Connects without waiting for a listener with a full queue.
///
/// # Errors
/// `WouldBlock` if the queue is full; `ConnectionRefused` if nobody listens; those of `connect(2)`.
pub fn connect(address: &Address) -> io::Result<OwnedFd> {
    let socket = new()?;
    connect_to(&socket, &address.to_system()?)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use bellows_testkit::scratch;

    use super::*;
    use crate::socket::{peer, receive, send};

    fn exchange(address: &Address) {
        let listener = Listener::open(address, FileAccess { mode: Some(0o600), group: None }).unwrap();
        assert_eq!(listener.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert_eq!(Listener::open(address, FileAccess::default()).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        let near = connect(address).unwrap();
        let far = listener.accept().unwrap();
        assert_eq!(peer(&far).unwrap().pid, std::process::id());
        send(&near, b"one", &[near.as_fd()]).unwrap();
        send(&near, b"three", &[]).unwrap();
        let mut bytes = [0; 8];
        let first = receive(&far, &mut bytes).unwrap();
        assert_eq!((first.bytes, first.files.len()), (3, 1));
        let second = receive(&far, &mut bytes).unwrap();
        assert_eq!((second.bytes, second.files.len()), (5, 0));
        drop(near);
        drop(first);
        assert_eq!(receive(&far, &mut bytes).unwrap().bytes, 0);
        drop(listener);
        assert!(connect(address).is_err());
    }

    #[test]
    fn messages_keep_their_bounds_at_a_path() {
        let folder = scratch();
        let path = folder.path().join("s");
        exchange(&Address::Path(path.clone()));
        assert!(!path.exists(), "the file is removed");
    }

    #[test]
    fn messages_keep_their_bounds_under_a_name() {
        exchange(&Address::Abstract(format!("bellows-seqpacket-{}", std::process::id())));
    }

    #[test]
    fn an_abandoned_socket_is_replaced() {
        let folder = scratch();
        let path = folder.path().join("s");
        drop(bound(&Address::Path(path.clone())).unwrap());
        assert!(path.exists());
        exchange(&Address::Path(path));
    }
}
