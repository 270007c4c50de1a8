//! Arrays of messages for `sendmmsg(2)` and `recvmmsg(2)`, laid out once and filled for each call.

use std::mem::zeroed;
use std::os::fd::{AsRawFd, BorrowedFd};

use libc::{MSG_DONTWAIT, MSG_NOSIGNAL, MSG_TRUNC, iovec, mmsghdr};
use rustix::io::Errno;

/// Length of the header in front of each frame: `struct virtio_net_hdr` of `linux/virtio_net.h`, without the number of
/// buffers.
pub const VIRTIO_HEADER: usize = 10;

/// Maximum number of messages that one system call passes. Longer calls gain nothing (a call costs about as much as
/// one small frame), and would keep the first frames waiting for the last.
pub(crate) const BATCH: usize = 64;

/// Parts of a message: the virtio-net header, or nothing, and the frame.
const PARTS: usize = 2;

/// An array of [`BATCH`] messages.
pub(crate) struct Messages {
    /// Each points at one or both of its parts.
    messages: Vec<mmsghdr>,
    /// The parts of each message. The first points at the message's header below.
    parts: Vec<iovec>,
    headers: Vec<[u8; VIRTIO_HEADER]>,
}

// SAFETY: the pointers lead into the vectors, which the value owns and never reallocates, or to frames that are borrowed
// for the time of a call; outside of a call the latter are not used.
unsafe impl Send for Messages {}

impl Messages {
    /// Messages of a frame each, after a virtio-net header if `has_header`.
    pub(crate) fn new(has_header: bool) -> Messages {
        let mut headers = vec![[0; VIRTIO_HEADER]; BATCH];
        let first = headers.as_mut_ptr();
        let part = |index: usize| match index % PARTS {
            0 => iovec { iov_base: first.wrapping_add(index / PARTS).cast(), iov_len: VIRTIO_HEADER },
            _ => iovec { iov_base: std::ptr::null_mut(), iov_len: 0 },
        };
        let mut parts: Vec<iovec> = (0..BATCH * PARTS).map(part).collect();
        let first = parts.as_mut_ptr();
        let message = |index: usize| {
            // SAFETY: all fields are integers and pointers, for which zeros are valid.
            let mut message: mmsghdr = unsafe { zeroed() };
            let skipped = usize::from(!has_header);
            message.msg_hdr.msg_iov = first.wrapping_add(index * PARTS + skipped);
            message.msg_hdr.msg_iovlen = (PARTS - skipped) as _;
            message
        };
        Messages { messages: (0..BATCH).map(message).collect(), parts, headers }
    }

    /// Sends frames, in as few calls as possible, without waiting. Returns the number of frames that the kernel took,
    /// and the error of the one after them. Headers are sent only if the messages have any.
    pub(crate) fn send<'a>(
        &mut self,
        socket: BorrowedFd<'_>,
        frames: impl IntoIterator<Item = ([u8; VIRTIO_HEADER], &'a [u8])>,
    ) -> (usize, Option<Errno>) {
        let mut frames = frames.into_iter();
        let mut taken = 0;
        loop {
            let mut filled = 0;
            // The iterator must not be asked for a frame that does not fit.
            for (header, bytes) in frames.by_ref().take(BATCH) {
                self.headers[filled] = header;
                self.parts[filled * PARTS + 1] =
                    iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
                filled += 1;
            }
            let mut sent = 0;
            while sent < filled {
                let messages = &mut self.messages[sent..filled];
                let flags = MSG_DONTWAIT | MSG_NOSIGNAL;
                // SAFETY: each message points at parts in their vector, and these at headers in theirs and at frames
                // that are borrowed for 'a, which outlives this call. The kernel only reads them.
                let result = unsafe {
                    libc::sendmmsg(socket.as_raw_fd(), messages.as_mut_ptr(), messages.len() as _, flags as _)
                };
                match usize::try_from(result) {
                    Ok(count) if count > 0 => sent += count,
                    Ok(_) => return (taken + sent, Some(Errno::AGAIN)),
                    Err(_) => return (taken + sent, Some(last_error())),
                }
            }
            taken += filled;
            if filled < BATCH {
                return (taken, None);
            }
        }
    }

    /// Receives messages into buffers, at most [`BATCH`], without waiting. Returns their number.
    ///
    /// # Errors
    /// That of `recvmmsg(2)` for the first message.
    pub(crate) fn receive<'a>(
        &mut self,
        socket: BorrowedFd<'_>,
        buffers: impl IntoIterator<Item = &'a mut [u8]>,
    ) -> Result<usize, Errno> {
        let mut filled = 0;
        for buffer in buffers.into_iter().take(BATCH) {
            self.parts[filled * PARTS + 1] = iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
            self.messages[filled].msg_hdr.msg_flags = 0;
            filled += 1;
        }
        if filled == 0 {
            return Ok(0);
        }
        let (messages, none) = (self.messages.as_mut_ptr(), std::ptr::null_mut());
        // SAFETY: each message points at parts in their vector, and these at headers in theirs and at distinct buffers
        // that are borrowed exclusively for 'a, which outlives this call.
        let result = unsafe { libc::recvmmsg(socket.as_raw_fd(), messages, filled as _, MSG_DONTWAIT as _, none) };
        usize::try_from(result).map_err(|_| last_error())
    }

    /// The length of a message that was received, as far as it fitted, and whether it was longer.
    pub(crate) fn received(&self, index: usize) -> (usize, bool) {
        let message = &self.messages[index];
        (message.msg_len as usize, message.msg_hdr.msg_flags & MSG_TRUNC != 0)
    }
}

/// The error of the last call of the C library.
pub(crate) fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}
