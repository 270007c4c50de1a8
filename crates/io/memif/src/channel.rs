//! A connection that carries messages. It never waits for the other side.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use bellows_ipc::socket::{self, Peer};

use crate::message::{MESSAGE_LENGTH, Message, MessageError};

/// A connection.
#[derive(Debug)]
pub struct Channel(OwnedFd);

/// Why a connection cannot be used any more.
#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    /// The other side has closed it.
    #[error("the other side has closed the connection")]
    Closed,
    /// What came is no message.
    #[error("the other side has broken the protocol: {0}")]
    Message(#[from] MessageError),
    /// More than one descriptor came with a message.
    #[error("the other side has broken the protocol: {0} descriptors came with a message")]
    Descriptors(usize),
    /// The other side does not read its messages.
    #[error("the other side does not read its messages")]
    Stuck,
    /// The system reports an error.
    #[error("the connection has failed: {0}")]
    System(io::Error),
}

impl Channel {
    /// A connection over a socket.
    pub fn new(socket: OwnedFd) -> Channel {
        Channel(socket)
    }

    /// The process on the other side, if the kernel knows it.
    pub fn peer(&self) -> Option<Peer> {
        socket::peer(&self.0).ok()
    }

    /// The next message and the descriptor that came with it; `None` if there is none.
    ///
    /// # Errors
    /// Why the connection cannot be used any more.
    pub fn receive(&self) -> Result<Option<(Message, Option<File>)>, ChannelError> {
        // One more byte: a longer message is seen to be longer.
        let mut bytes = [0; MESSAGE_LENGTH + 1];
        let mut received = match socket::receive(&self.0, &mut bytes) {
            Ok(received) => received,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                return Ok(None);
            }
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Err(ChannelError::Closed),
            Err(error) => return Err(ChannelError::System(error)),
        };
        if received.bytes == 0 {
            return Err(ChannelError::Closed);
        }
        if received.surplus || received.files.len() > 1 {
            return Err(ChannelError::Descriptors(received.files.len()));
        }
        Ok(Some((Message::read(&bytes[..received.bytes])?, received.files.pop())))
    }

    /// Sends a message, and a descriptor with it.
    ///
    /// # Errors
    /// Why the connection cannot be used any more.
    pub fn send(&self, message: &Message, file: Option<BorrowedFd<'_>>) -> Result<(), ChannelError> {
        match socket::send(&self.0, &message.write(), file.as_slice()) {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Err(ChannelError::Stuck),
            Err(error) if matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) => {
                Err(ChannelError::Closed)
            }
            Err(error) => Err(ChannelError::System(error)),
        }
    }

    /// Tells the other side why the connection ends, as far as it listens.
    pub fn disconnect(&self, text: &str) {
        let _ = self.send(&Message::Disconnect { code: 0, text: text.to_owned() }, None);
    }

    /// Why the session has ended; `None` while it goes on. After the handshake no other message is expected.
    pub fn ended(&self) -> Option<String> {
        match self.receive() {
            Ok(None) => None,
            Ok(Some((Message::Disconnect { text, .. }, _))) if text.is_empty() => {
                Some("the other side has disconnected".to_owned())
            }
            Ok(Some((Message::Disconnect { text, .. }, _))) => Some(format!("the other side has disconnected: {text}")),
            Ok(Some((message, _))) => {
                Some(format!("the other side has broken the protocol: it sent {message:?} after the handshake"))
            }
            Err(error) => Some(error.to_string()),
        }
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
