//! Unix stream sockets that carry descriptors beside their bytes. Nothing here waits.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect as connect_to, recvmsg, sendmsg,
    socket_with,
};

/// The most descriptors that one call can send or receive.
pub const MOST_FILES: usize = 16;

/// What came at once.
#[derive(Debug)]
pub struct Received {
    /// How many bytes; 0 when the other side has closed.
    pub bytes: usize,
    /// The descriptors that came with them.
    pub files: Vec<File>,
    /// More descriptors came than [`MOST_FILES`]; some of them are closed.
    pub surplus: bool,
}

/// Receives what is there, as much as fits.
///
/// # Errors
/// `WouldBlock` when nothing is there; those of `recvmsg(2)`.
pub fn receive(socket: &UnixStream, bytes: &mut [u8]) -> io::Result<Received> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FILES))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let message = recvmsg(socket, &mut [IoSliceMut::new(bytes)], &mut ancillary, flags)?;
    let mut files = Vec::new();
    for part in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = part {
            files.extend(descriptors.map(File::from));
        }
    }
    // The space is rounded up, so that a few more than the most may come whole.
    let surplus = message.flags.contains(ReturnFlags::CTRUNC) || files.len() > MOST_FILES;
    Ok(Received { bytes: message.bytes, files, surplus })
}

/// Sends as much as the socket takes, at least one byte. The descriptors go with the first byte.
///
/// # Errors
/// `WouldBlock` when the socket takes nothing; `InvalidInput` for more than [`MOST_FILES`] descriptors; those of
/// `sendmsg(2)`. There is no signal when the other side has closed.
pub fn send(socket: &UnixStream, bytes: &[u8], files: &[BorrowedFd<'_>]) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FILES))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(files)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    Ok(sendmsg(socket, &[IoSlice::new(bytes)], &mut ancillary, flags)?)
}

/// Connects without waiting for a listener whose queue is full.
///
/// # Errors
/// `WouldBlock` when its queue is full; `ConnectionRefused` when nobody listens; those of `connect(2)`.
pub fn connect(path: &Path) -> io::Result<UnixStream> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect_to(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket.into())
}

/// Whether a descriptor is an event (an `eventfd`).
pub fn is_event(descriptor: BorrowedFd<'_>) -> bool {
    match std::fs::read_link(format!("/proc/self/fd/{}", descriptor.as_raw_fd())) {
        Ok(name) => name.as_os_str() == "anon_inode:[eventfd]",
        // Without /proc: what has no type of file is at least no file, pipe, socket or device.
        Err(_) => rustix::fs::fstat(descriptor).is_ok_and(|status| status.st_mode & 0o170_000 == 0),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixListener;

    use super::*;
    use crate::wake::Event;

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
        assert_eq!(receive(&far, &mut bytes).unwrap().bytes, 0);
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
        let folder = std::env::temp_dir().join(format!("bellows-socket-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("s");
        assert_eq!(connect(&path).unwrap_err().kind(), io::ErrorKind::NotFound);
        let listener = UnixListener::bind(&path).unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let first = connect(&path).unwrap();
        // The queue is full: an ordinary connect would wait for an accept that never comes.
        assert_eq!(connect(&path).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop((first, listener));
        assert_eq!(connect(&path).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn an_event_is_told_from_everything_else() {
        let event = Event::new().unwrap();
        assert!(is_event(event.as_fd()));
        let (socket, _other) = UnixStream::pair().unwrap();
        assert!(!is_event(socket.as_fd()));
        let (reader, _writer) = std::io::pipe().unwrap();
        assert!(!is_event(reader.as_fd()));
        assert!(!is_event(tempfile().as_fd()));
        assert!(!is_event(File::open("/").unwrap().as_fd()));
    }

    fn tempfile() -> File {
        crate::memfd::create(5).unwrap()
    }
}
