//! Sends and receives whole messages over a socket, in any pieces, and never waits without a limit.

use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bellows_ipc::socket;
use bellows_sys::wake::{sleep_until_readable, sleep_until_writable};

use super::ProtocolError;
use super::closer::{Closer, UntrustedFd};
use super::message::{HEADER, MAX_BODY, MAX_FILES, VhostMessage, flags, header};
use bellows_handover::Signal;

/// Time for the other side to finish a message that it has begun, or to read a reply.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// The result of waiting for a message.
#[derive(Debug)]
pub(super) enum Incoming {
    Message(VhostMessage),
    /// The other side has closed the socket, between two messages.
    Closed,
    /// The event was raised, or the timeout has passed.
    Interrupted,
}

/// One end of a connection.
pub(super) struct Channel {
    socket: UntrustedFd<UnixStream>,
    closer: Closer,
    /// Ends the waits for messages.
    interrupt: Arc<Signal>,
    patience: Duration,
    /// The incoming message: its header, then its body.
    bytes: Vec<u8>,
    files: Vec<UntrustedFd>,
    /// When its first byte came.
    begun: Option<Instant>,
}

impl Channel {
    /// A channel over a connected socket, in non-blocking mode. When `interrupt` is raised, waits end. `closer` closes
    /// the descriptors that come.
    pub(super) fn new(socket: UnixStream, interrupt: Arc<Signal>, closer: Closer) -> Channel {
        let socket = UntrustedFd::new(socket, &closer);
        Channel { socket, closer, interrupt, patience: PATIENCE, bytes: Vec::new(), files: Vec::new(), begun: None }
    }

    #[cfg(test)]
    pub(super) fn set_patience(&mut self, patience: Duration) {
        self.patience = patience;
    }

    /// Receives the next message. Waits until it is complete, `interrupt` is raised, or, if no message has begun,
    /// `timeout` has passed.
    pub(super) fn receive(&mut self, timeout: Option<Duration>) -> Result<Incoming, ProtocolError> {
        loop {
            if let Some(message) = self.read()? {
                return Ok(message);
            }
            let left = self.begun.map(|begun| self.patience.saturating_sub(begun.elapsed()));
            if left.is_some_and(|left| left.is_zero()) {
                return Err(ProtocolError::Stalled(self.patience.as_secs()));
            }
            let ready = sleep_until_readable(&[self.socket.as_fd(), self.interrupt.as_fd()], left.or(timeout))?;
            // The socket first: messages that are there are handled before anything else.
            if !ready[0] && (ready[1] || left.is_none()) {
                return Ok(Incoming::Interrupted);
            }
        }
    }

    /// Reads the bytes that are there; returns a message if it is complete.
    fn read(&mut self) -> Result<Option<Incoming>, ProtocolError> {
        loop {
            if self.closer.is_full() {
                return Err(ProtocolError::Unclosed(self.closer.unclosed()));
            }
            let wanted = self.wanted()?;
            if wanted == 0 {
                return Ok(Some(Incoming::Message(self.complete())));
            }
            let have = self.bytes.len();
            self.bytes.resize(have + wanted, 0);
            let received = socket::receive(&*self.socket, &mut self.bytes[have..]);
            self.bytes.truncate(have + received.as_ref().map_or(0, |received| received.bytes));
            let received = match received {
                Ok(received) => received,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return self.closed().map(Some),
                Err(error) => return Err(error.into()),
            };
            if received.bytes == 0 {
                return self.closed().map(Some);
            }
            self.begun.get_or_insert_with(Instant::now);
            self.files.extend(received.files.into_iter().map(|file| UntrustedFd::new(file, &self.closer)));
            if received.surplus || self.files.len() > MAX_FILES {
                return Err(ProtocolError::Files { request: "a message", files: self.files.len() });
            }
        }
    }

    /// Number of missing bytes: of the header, and when that is complete, of the body.
    fn wanted(&self) -> Result<usize, ProtocolError> {
        if self.bytes.len() < HEADER {
            return Ok(HEADER - self.bytes.len());
        }
        let (request, flags, size) = self.header();
        if flags & flags::VERSION_MASK != flags::VERSION {
            return Err(ProtocolError::Version(flags));
        }
        if size as usize > MAX_BODY {
            return Err(ProtocolError::TooLong { request, size, most: MAX_BODY });
        }
        Ok(HEADER + size as usize - self.bytes.len())
    }

    fn header(&self) -> (u32, u32, u32) {
        let number = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|byte| self.bytes[at + byte]));
        (number(0), number(4), number(8))
    }

    fn complete(&mut self) -> VhostMessage {
        let (request, flags, _) = self.header();
        let body = self.bytes.split_off(HEADER);
        self.bytes.clear();
        self.begun = None;
        VhostMessage { request, flags, body, files: std::mem::take(&mut self.files) }
    }

    fn closed(&self) -> Result<Incoming, ProtocolError> {
        if self.bytes.is_empty() { Ok(Incoming::Closed) } else { Err(ProtocolError::CutOff) }
    }

    /// Sends a whole message. Waits while the other side does not read, for at most some seconds.
    pub(super) fn send(
        &mut self,
        request: u32,
        flags: u32,
        body: &[u8],
        files: &[BorrowedFd<'_>],
    ) -> Result<(), ProtocolError> {
        let message = [&header(request, flags, body.len()), body].concat();
        let mut sent = 0;
        let started = Instant::now();
        while sent < message.len() {
            let files = if sent == 0 { files } else { &[] };
            match socket::send(&*self.socket, &message[sent..], files) {
                Ok(more) => sent += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let left = self.patience.saturating_sub(started.elapsed());
                    if left.is_zero() || self.interrupt.has_ended() {
                        return Err(ProtocolError::Unread(self.patience.as_secs()));
                    }
                    // Checks now and then whether the thread must end.
                    sleep_until_writable(self.socket.as_fd(), &[], left.min(Duration::from_millis(100)))?;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    pub(super) fn socket(&self) -> &UnixStream {
        &self.socket
    }

    /// Whether the thread must end.
    pub(super) fn is_to_end(&self) -> bool {
        self.interrupt.has_ended()
    }

    /// Clears the signal that has ended a wait, for callers with nothing else to check.
    pub(super) fn clear_signal(&self) {
        self.interrupt.clear();
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // The other side must know at once; the socket may be closed later.
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}
