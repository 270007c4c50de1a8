//! A queue of frames in a stream.

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use bellows_ipc::socket;
use bellows_packet::{LargeShare, Packet, Vector};
use bellows_ports::{Rejection, Taken};

use super::frames::{FrameError, FrameSplitter, MAX_READ};
use super::unsent::Unsent;
use super::{SocketBell, deliver, nothing_now, sendable};
use crate::{QueueCounts, QueueError};

/// One connection.
pub(super) struct StreamQueue {
    socket: UnixStream,
    bell: Arc<SocketBell>,
    splitter: FrameSplitter,
    unsent: Unsent,
    share: LargeShare,
    counts: QueueCounts,
}

impl StreamQueue {
    /// # Errors
    /// Out of descriptors.
    pub(super) fn new(socket: UnixStream) -> io::Result<StreamQueue> {
        let bell = Arc::new(SocketBell(socket.as_fd().try_clone_to_owned()?));
        Ok(StreamQueue {
            socket,
            bell,
            splitter: FrameSplitter::new(),
            unsent: Unsent::new(),
            share: LargeShare::new(),
            counts: QueueCounts::default(),
        })
    }

    pub(super) fn bell(&self) -> Arc<SocketBell> {
        Arc::clone(&self.bell)
    }

    pub(super) fn counts(&self) -> QueueCounts {
        self.counts
    }

    #[inline]
    pub(super) fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    #[inline]
    pub(super) fn receive(&mut self, packets: &mut Vector, most: usize) -> Result<(), QueueError> {
        let (mut left, mut has_more) = (most, true);
        loop {
            left -= self.split(packets, left)?;
            if left == 0 || !has_more {
                return Ok(());
            }
            match self.splitter.fill(|bytes| (&self.socket).read(bytes)) {
                Ok(0) => return Err(QueueError::Gone),
                // A read that could have brought more was the last one: a fast sender must not hold the engine here.
                Ok(count) => has_more = count == MAX_READ,
                Err(error) => return nothing_now(error),
            }
        }
    }

    /// Adds complete frames to the packets, at most `most`. Returns their number, with those for which there was no
    /// buffer.
    fn split(&mut self, packets: &mut Vector, most: usize) -> Result<usize, QueueError> {
        for taken in 0..most {
            match self.splitter.next_frame() {
                Ok(Some(frame)) => deliver(frame, &self.share, packets, &mut self.counts),
                Ok(None) => return Ok(taken),
                Err(error) => return Err(count(error, &mut self.counts)),
            }
        }
        Ok(most)
    }

    #[inline]
    pub(super) fn send(&mut self, packets: &[Packet]) -> Result<Taken, QueueError> {
        let (sendable, stop) = sendable(packets);
        for (index, packet) in packets[..sendable].iter().enumerate() {
            // An error comes again in flush(), which counts what is lost.
            if self.unsent.is_full() && self.write().is_err() {
                return Ok(Taken { count: index, stop: Some(Rejection::Full) });
            }
            self.unsent.push(packet.bytes());
        }
        Ok(Taken { count: sendable, stop })
    }

    pub(super) fn flush(&mut self) -> Result<(), QueueError> {
        let result = self.write().or_else(nothing_now);
        if result.is_err() {
            self.counts.not_sent += self.unsent.discard();
        }
        result
    }

    fn write(&mut self) -> io::Result<()> {
        self.unsent.write(|bytes| socket::send(&self.socket, bytes, &[]))
    }
}

/// Counts an invalid length.
#[cold]
fn count(error: FrameError, counts: &mut QueueCounts) -> QueueError {
    match error {
        FrameError::Empty => counts.rx_bad_header += 1,
        FrameError::TooLong(_) => counts.rx_too_long += 1,
    }
    QueueError::System(io::Error::new(io::ErrorKind::InvalidData, error))
}
