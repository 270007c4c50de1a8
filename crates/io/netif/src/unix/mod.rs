//! Frames between processes, over Unix sockets, with the framing of QEMU.
//!
//! | file | contents |
//! |---|---|
//! | `source.rs` | opens and finds sockets, on the control thread |
//! | `stream.rs` | a queue of frames in a stream: each frame follows its length, 4 bytes big endian (`-netdev stream`) |
//! | `frames.rs` | splits the bytes of a stream into frames |
//! | `unsent.rs` | frames on their way into a stream, of which the socket has taken a part |
//! | `dgram.rs` | a queue of frames that are datagrams (`-netdev dgram`) |
//!
//! The other side is untrusted: it may send anything, at any pace, stop to read, and go at any moment.

mod dgram;
mod frames;
mod source;
mod stream;
#[cfg(test)]
mod tests;
mod unsent;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use bellows_packet::{DATA_ROOM, LargeShare, Offload, Packet, Vector};
use bellows_ports::{Accepted, QueueBell, Rejection, SendQueue, Taken, offload};
use bellows_sys::access::FileAccess;

pub use self::frames::{FrameError, FrameSplitter};
pub use self::source::UnixSource;

use self::dgram::DgramQueue;
use self::stream::StreamQueue;
use crate::{Queue, QueueCounts, QueueError};

/// Maximum length of a frame that is received, in bytes: what a packet holds.
pub const MAX_RECEIVED: usize = bellows_packet::LARGE_DATA_ROOM;

/// Maximum length of a frame that is sent, in bytes: `NET_BUFSIZE` of QEMU (`include/net/net.h`), which ends a stream
/// with a longer one, and cuts a longer datagram.
pub const MAX_SENT: usize = 4_096 + 65_536;

/// A port at a Unix socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnixConfig {
    /// The path of the socket: that of the other side for [`UnixMode::Client`], our own otherwise.
    pub socket: PathBuf,
    /// How it is used.
    pub mode: UnixMode,
}

/// How a socket is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnixMode {
    /// Listens for streams, and accepts one at a time. Further ones wait until it ends.
    Server(FileAccess),
    /// Connects to a stream, and retries until the other side is there.
    Client,
    /// Exchanges datagrams with the socket at this path.
    Dgram(PathBuf, FileAccess),
}

impl UnixMode {
    /// Its name in reports.
    pub fn name(&self) -> &'static str {
        match self {
            UnixMode::Server(_) => "server",
            UnixMode::Client => "client",
            UnixMode::Dgram(..) => "dgram",
        }
    }
}

/// The queue of a port at a Unix socket.
pub struct UnixQueue(Kind);

enum Kind {
    Stream(StreamQueue),
    Dgram(DgramQueue),
}

/// Calls a method of the queue in question.
macro_rules! forward {
    ($self:ident, $queue:ident => $call:expr) => {
        match &mut $self.0 {
            Kind::Stream($queue) => $call,
            Kind::Dgram($queue) => $call,
        }
    };
}

impl Queue for UnixQueue {
    type Bell = SocketBell;

    fn bell(&self) -> Arc<SocketBell> {
        match &self.0 {
            Kind::Stream(queue) => queue.bell(),
            Kind::Dgram(queue) => queue.bell(),
        }
    }

    #[inline]
    fn receive(&mut self, packets: &mut Vector, most: usize) -> Result<(), QueueError> {
        forward!(self, queue => queue.receive(packets, most))
    }

    #[inline]
    fn flush(&mut self) -> Result<(), QueueError> {
        match &mut self.0 {
            Kind::Stream(queue) => queue.flush(),
            Kind::Dgram(_) => Ok(()),
        }
    }

    #[inline]
    fn has_unsent(&self) -> bool {
        match &self.0 {
            Kind::Stream(queue) => queue.has_unsent(),
            Kind::Dgram(_) => false,
        }
    }

    fn accepted(&self) -> Accepted {
        Accepted::default()
    }

    fn counts(&mut self) -> QueueCounts {
        forward!(self, queue => queue.counts())
    }
}

impl SendQueue for UnixQueue {
    type Error = QueueError;

    #[inline]
    fn send(&mut self, packets: &[Packet]) -> Result<Taken, QueueError> {
        forward!(self, queue => queue.send(packets))
    }
}

/// The bell of a queue at a socket: the socket itself.
#[derive(Debug)]
pub struct SocketBell(OwnedFd);

impl QueueBell for SocketBell {
    fn word(&self) -> Option<&AtomicU32> {
        None
    }

    fn mask(&self) -> u32 {
        0
    }

    fn quiet(&self) -> u32 {
        0
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.as_fd())
    }
}

/// The number of packets that can be sent as they are, and what stops the one after them.
fn sendable(packets: &[Packet]) -> (usize, Option<Rejection>) {
    for (index, packet) in packets.iter().enumerate() {
        if packet.len() > MAX_SENT {
            return (index, Some(Rejection::TooLong));
        }
        let plain = || offload::header_for(packet, Accepted::default()) == Some(Offload::default());
        if packet.has_offload() && !plain() {
            return (index, Some(Rejection::Offload));
        }
    }
    (packets.len(), None)
}

/// Adds a frame to the packets, or counts that the pool has no buffer for it.
#[inline]
fn deliver(frame: &[u8], share: &LargeShare, packets: &mut Vector, counts: &mut QueueCounts) {
    let packet = if frame.len() <= DATA_ROOM {
        Packet::from_bytes(frame)
    } else {
        Packet::with_room_of(share, frame.len()).map(|mut packet| {
            packet.append(frame);
            packet
        })
    };
    // The vector has room: the caller takes no more frames than it was asked for.
    if packet.and_then(|packet| packets.push(packet).ok()).is_none() {
        counts.rx_no_buffer += 1;
    }
}

/// No error if there is only nothing to do now; otherwise what has become of the queue.
fn nothing_now(error: io::Error) -> Result<(), QueueError> {
    use io::ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset, Interrupted, NotConnected, WouldBlock};
    match error.kind() {
        WouldBlock | Interrupted => Ok(()),
        BrokenPipe | ConnectionRefused | ConnectionReset | NotConnected => Err(QueueError::Gone),
        _ => Err(QueueError::System(error)),
    }
}
