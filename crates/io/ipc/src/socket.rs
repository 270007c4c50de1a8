//! Unix sockets: streams that pass descriptors along with bytes, and datagrams. Nothing here blocks.

use std::fs::{File, Permissions};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{PermissionsExt, lchown};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Mutex, OnceLock, PoisonError};

use rustix::fs::{Mode, OFlags, fchmod, open, readlinkat_raw};
use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType, UCred, accept_with, bind,
    connect as connect_to, recvmsg, sendmsg, shutdown, socket_with,
};

use bellows_sys::access::{FileAccess, FileAccessError};

/// Maximum number of descriptors that one call can send or receive.
pub const MAX_FILES: usize = 16;

/// The result of one receive call.
#[derive(Debug)]
pub struct Received {
    /// Number of bytes; 0 if the other side has closed.
    pub bytes: usize,
    /// The descriptors that came with them.
    pub files: Vec<File>,
    /// Whether more descriptors came than [`MAX_FILES`]; some of them are closed.
    pub surplus: bool,
}

/// Receives the bytes that are there, as many as fit.
///
/// # Errors
/// `WouldBlock` if there are none; those of `recvmsg(2)`.
pub fn receive(socket: impl AsFd, bytes: &mut [u8]) -> io::Result<Received> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FILES))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let message = recvmsg(socket, &mut [IoSliceMut::new(bytes)], &mut ancillary, flags)?;
    let mut files = Vec::new();
    for part in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = part {
            files.extend(descriptors.map(File::from));
        }
    }
    // The space is rounded up, so that some more than the maximum may arrive without truncation.
    let surplus = message.flags.contains(ReturnFlags::CTRUNC) || files.len() > MAX_FILES;
    Ok(Received { bytes: message.bytes, files, surplus })
}

/// Sends as much as the socket accepts, at least one byte. The descriptors go with the first byte.
///
/// # Errors
/// `WouldBlock` if the socket accepts nothing; `InvalidInput` for more than [`MAX_FILES`] descriptors; those of
/// `sendmsg(2)`. No signal is raised if the other side has closed.
pub fn send(socket: impl AsFd, bytes: &[u8], files: &[BorrowedFd<'_>]) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FILES))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(files)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    Ok(sendmsg(socket, &[IoSlice::new(bytes)], &mut ancillary, flags)?)
}

/// Connects without waiting for a listener with a full queue.
///
/// # Errors
/// `WouldBlock` if the queue is full; `ConnectionRefused` if nobody listens; those of `connect(2)`.
pub fn connect(path: &Path) -> io::Result<UnixStream> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect_to(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket.into())
}

/// Gives a socket's file its group, then its permissions, so that no other group can use it meanwhile.
///
/// # Errors
/// See [`FileAccessError`].
pub fn give_access(path: &Path, access: FileAccess) -> Result<(), FileAccessError> {
    if let Some(group) = access.group {
        let given = lchown(path, None, Some(group));
        given.map_err(|source| FileAccessError::Group { group, source })?;
    }
    if let Some(mode) = access.mode {
        let set = std::fs::set_permissions(path, Permissions::from_mode(mode));
        set.map_err(|source| FileAccessError::Mode { mode, source })?;
    }
    Ok(())
}

/// Opens a socket at a path and listens there, without blocking. Nobody can connect before its file has its
/// permissions.
///
/// # Errors
/// Those of `socket(2)`, `bind(2)` and `listen(2)`, or one that contains a [`FileAccessError`]. The file is removed
/// then.
pub fn listen(path: &Path, access: FileAccess) -> io::Result<UnixListener> {
    const BACKLOG: i32 = 128;
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    // Before `listen` every connection is refused, whatever the permissions are.
    let given = give_access(path, access).map_err(io::Error::other);
    if let Err(error) = given.and_then(|()| Ok(rustix::net::listen(&socket, BACKLOG)?)) {
        let _ = std::fs::remove_file(path);
        return Err(error);
    }
    Ok(socket.into())
}

/// Opens a socket for datagrams at a path, without blocking. From the start its file has none but its own permissions.
///
/// # Errors
/// Those of `socket(2)` and `bind(2)`, or one that contains a [`FileAccessError`]. The file is removed then.
pub fn bind_datagrams(path: &Path, access: FileAccess) -> io::Result<UnixDatagram> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)?;
    if access.mode.is_some() {
        // The file gets those of the socket: until it has its group nobody may send to it.
        fchmod(&socket, Mode::empty())?;
    }
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    if let Err(error) = give_access(path, access) {
        let _ = std::fs::remove_file(path);
        return Err(io::Error::other(error));
    }
    Ok(socket.into())
}

/// Accepts a connection, without blocking.
///
/// # Errors
/// `WouldBlock` if there is none; those of `accept(2)`.
pub fn accept(listener: &UnixListener) -> io::Result<UnixStream> {
    Ok(accept_with(listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC)?.into())
}

/// Refuses every connection to the socket from now on, whoever has it open.
pub fn refuse_all(listener: &UnixListener) {
    // It can only fail for a file that is not a socket.
    let _ = shutdown(listener, Shutdown::Both);
}

/// The process that has connected to a socket, or opened it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The process.
    pub pid: u32,
    /// Its effective user.
    pub uid: u32,
    /// Its effective group.
    pub gid: u32,
}

/// The process on the other side, as the kernel recorded it when it connected, or listened.
///
/// # Errors
/// Those of `getsockopt(2)`.
pub fn peer(socket: impl AsFd) -> io::Result<Peer> {
    let UCred { pid, uid, gid } = socket_peercred(socket)?;
    Ok(Peer { pid: pid.as_raw_pid().cast_unsigned(), uid: uid.as_raw(), gid: gid.as_raw() })
}

/// An open descriptor of the folder that names each open descriptor of the process.
static DESCRIPTORS: OnceLock<OwnedFd> = OnceLock::new();
static OPENING: Mutex<()> = Mutex::new(());

fn descriptors() -> io::Result<BorrowedFd<'static>> {
    let _opening = OPENING.lock().unwrap_or_else(PoisonError::into_inner);
    if DESCRIPTORS.get().is_none() {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = open("/proc/self/fd", flags, Mode::empty()).map_err(|error| {
            let error = io::Error::from(error);
            let message = format!("cannot open /proc/self/fd, which names the open descriptors: {error}; mount /proc");
            io::Error::new(error.kind(), message)
        })?;
        let _ = DESCRIPTORS.set(folder);
    }
    DESCRIPTORS.get().map(AsFd::as_fd).ok_or_else(|| io::ErrorKind::Other.into())
}

/// Prepares what [`is_event`] needs, for a thread that may not open files later.
///
/// # Errors
/// If there is no `/proc`.
pub fn prepare() -> io::Result<()> {
    descriptors().map(drop)
}

/// Whether a descriptor is an event (an `eventfd`). Only asks the kernel, because the file may be untrusted.
///
/// # Errors
/// If there is no `/proc`, where the kernel describes descriptors.
pub fn is_event(descriptor: BorrowedFd<'_>) -> io::Result<bool> {
    let name = descriptor.as_raw_fd().to_string();
    let mut space = [MaybeUninit::uninit(); 64];
    let (name, _) = readlinkat_raw(descriptors()?, name, &mut space)?;
    Ok(name == b"anon_inode:[eventfd]")
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixListener;

    use bellows_testkit::eventually;

    use super::*;
    use bellows_sys::wake::WakeEvent;

    #[test]
    fn descriptors_travel_with_the_first_byte() {
        let (near, far) = UnixStream::pair().unwrap();
        let mut written = tempfile();
        written.write_all(b"hello").unwrap();
        let fds = vec![written.as_fd(); 3];
        assert_eq!(send(&near, b"abcd", &fds).unwrap(), 4);
        assert_eq!(send(&near, b"ef", &[]).unwrap(), 2);
        let mut bytes = [0; 3];
        let first = receive(&far, &mut bytes).unwrap();
        assert_eq!((first.bytes, first.files.len(), first.surplus), (3, 3, false));
        let mut text = String::new();
        std::io::Seek::rewind(&mut &first.files[2]).unwrap();
        (&first.files[1]).read_to_string(&mut text).unwrap();
        assert_eq!(text, "hello");
        let mut rest = Vec::new();
        while rest.len() < 3 {
            let part = receive(&far, &mut bytes).unwrap();
            assert!(part.files.is_empty());
            rest.extend_from_slice(&bytes[..part.bytes]);
        }
        assert_eq!(rest, b"def");
        assert_eq!(receive(&far, &mut bytes).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(near);
        // A child that another test starts has a copy of each descriptor for a moment.
        eventually("the end of the stream", || receive(&far, &mut bytes).is_ok_and(|received| received.bytes == 0));
    }

    #[test]
    fn surplus_descriptors_are_reported() {
        let (near, far) = UnixStream::pair().unwrap();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(40))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let fds = vec![near.as_fd(); 40];
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(&fds)));
        sendmsg(&near, &[IoSlice::new(b"x")], &mut ancillary, SendFlags::empty()).unwrap();
        let received = receive(&far, &mut [0; 8]).unwrap();
        assert!(received.surplus);
        assert!(received.files.len() < 40);
    }

    #[test]
    fn connecting_never_waits() {
        let folder = bellows_testkit::scratch();
        let path = folder.path().join("s");
        assert_eq!(connect(&path).unwrap_err().kind(), io::ErrorKind::NotFound);
        let listener = UnixListener::bind(&path).unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let first = connect(&path).unwrap();
        // The queue is full: an ordinary connect would wait for an accept that never comes.
        assert_eq!(connect(&path).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop((first, listener));
        eventually("the end of the listener", || {
            connect(&path).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
        });
    }

    #[test]
    fn an_event_is_distinguished_from_other_files() {
        let event = WakeEvent::new().unwrap();
        assert!(is_event(event.as_fd()).unwrap());
        let (socket, _other) = UnixStream::pair().unwrap();
        assert!(!is_event(socket.as_fd()).unwrap());
        let (reader, _writer) = std::io::pipe().unwrap();
        assert!(!is_event(reader.as_fd()).unwrap());
        assert!(!is_event(tempfile().as_fd()).unwrap());
        assert!(!is_event(File::open("/").unwrap().as_fd()).unwrap());
    }

    #[test]
    fn a_socket_has_its_permissions_before_anybody_can_connect() {
        use std::os::unix::fs::MetadataExt;
        let folder = bellows_testkit::scratch();
        let path = folder.path().join("s");
        let group = rustix::process::getgid().as_raw();
        let listener = listen(&path, FileAccess { mode: Some(0o620), group: Some(group) }).unwrap();
        let status = std::fs::metadata(&path).unwrap();
        assert_eq!((status.mode() & 0o7777, status.gid()), (0o620, group));
        assert_eq!(accept(&listener).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        let near = connect(&path).unwrap();
        let far = accept(&listener).unwrap();
        let expected = Peer { pid: std::process::id(), uid: rustix::process::getuid().as_raw(), gid: group };
        assert_eq!([peer(&near).unwrap(), peer(&far).unwrap()], [expected; 2]);
        refuse_all(&listener);
        assert_eq!(connect(&path).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        drop(listener);
        std::fs::remove_file(&path).unwrap();
        // A socket that cannot have its permissions leaves nothing behind.
        if !rustix::process::getuid().is_root() {
            assert!(listen(&path, FileAccess { mode: None, group: Some(0) }).is_err());
            assert!(!path.exists());
        }
    }

    #[test]
    fn a_socket_for_datagrams_never_has_the_permissions_of_others() {
        use std::os::unix::fs::MetadataExt;
        let folder = bellows_testkit::scratch();
        let path = folder.path().join("s");
        let mode = |path: &Path| std::fs::metadata(path).unwrap().mode() & 0o7777;
        let socket = bind_datagrams(&path, FileAccess { mode: Some(0o620), group: None }).unwrap();
        assert_eq!(mode(&path), 0o620);
        assert_eq!(socket.recv(&mut [0; 8]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert_eq!(UnixDatagram::unbound().unwrap().send_to(b"four", &path).unwrap(), 4);
        assert_eq!(socket.recv(&mut [0; 8]).unwrap(), 4);
        // The kernel takes the file's permissions from the socket.
        let plain = socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None).unwrap();
        fchmod(&plain, Mode::empty()).unwrap();
        let other = folder.path().join("t");
        bind(&plain, &SocketAddrUnix::new(&other).unwrap()).unwrap();
        assert_eq!(mode(&other), 0);
        assert_eq!(bind_datagrams(&path, FileAccess::default()).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        if !rustix::process::getuid().is_root() {
            let path = folder.path().join("u");
            assert!(bind_datagrams(&path, FileAccess { mode: None, group: Some(0) }).is_err());
            assert!(!path.exists());
        }
    }

    fn tempfile() -> File {
        crate::memfd::create(5).unwrap()
    }
}
