//! A queue of frames that are datagrams.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;

use bellows_netdev::datagrams::{Datagram, Datagrams};
use bellows_packet::{LargeShare, Packet, Vector};
use bellows_ports::{Rejection, Taken};
use rustix::io::Errno;

use super::{MAX_RECEIVED, SocketBell, deliver, nothing_now, sendable};
use crate::{QueueCounts, QueueError};

/// Number of datagrams that one call receives. The default queue of a socket holds 10 (`net.unix.max_dgram_qlen`).
const BATCH: usize = 32;

/// A connected socket for datagrams.
pub(super) struct DgramQueue {
    socket: Arc<UnixDatagram>,
    bell: Arc<SocketBell>,
    datagrams: Datagrams,
    /// A buffer for each datagram of a batch. The length of a datagram is known only after it was received, and large
    /// packets are few, so frames are copied from here. Only the pages that have been used take memory.
    buffers: Vec<u8>,
    /// The datagrams of a batch.
    received: Vec<Datagram>,
    share: LargeShare,
    counts: QueueCounts,
}

impl DgramQueue {
    /// # Errors
    /// Out of descriptors.
    pub(super) fn new(socket: Arc<UnixDatagram>) -> io::Result<DgramQueue> {
        let bell = Arc::new(SocketBell(socket.as_fd().try_clone_to_owned()?));
        Ok(DgramQueue {
            socket,
            bell,
            datagrams: Datagrams::new(),
            buffers: vec![0; BATCH * MAX_RECEIVED],
            received: Vec::with_capacity(BATCH),
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
    pub(super) fn receive(&mut self, packets: &mut Vector, most: usize) -> Result<(), QueueError> {
        let mut left = most;
        while left > 0 {
            let batch = left.min(BATCH);
            let buffers = self.buffers.chunks_exact_mut(MAX_RECEIVED).take(batch);
            self.received.clear();
            match self.datagrams.receive_many(&self.socket, buffers) {
                Ok(received) => self.received.extend(received),
                // The error of an earlier send, or the other side has a new socket: the control thread sees that, too.
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(()),
                Err(error) => return nothing_now(error),
            }
            for (datagram, buffer) in self.received.iter().zip(self.buffers.chunks_exact(MAX_RECEIVED)) {
                match &buffer[..datagram.length] {
                    _ if datagram.truncated => self.counts.rx_too_long += 1,
                    // It is no frame, and no error: QEMU ignores it, too.
                    [] => {}
                    frame => deliver(frame, &self.share, packets, &mut self.counts),
                }
            }
            if self.received.len() < batch {
                break;
            }
            left -= batch;
        }
        Ok(())
    }

    #[inline]
    pub(super) fn send(&mut self, packets: &[Packet]) -> Result<Taken, QueueError> {
        let (sendable, stop) = sendable(packets);
        let frames = packets[..sendable].iter().map(Packet::bytes);
        let (count, error) = self.datagrams.send_many(&self.socket, frames);
        let Some(error) = error else { return Ok(Taken { count, stop }) };
        match error.kind() {
            // The error comes again with the next packet.
            _ if count > 0 => Ok(Taken { count, stop: Some(Rejection::Full) }),
            io::ErrorKind::WouldBlock | io::ErrorKind::OutOfMemory => Ok(Taken { count, stop: Some(Rejection::Full) }),
            _ if Errno::from_io_error(&error) == Some(Errno::MSGSIZE) => {
                Ok(Taken { count, stop: Some(Rejection::TooLong) })
            }
            _ => nothing_now(error).map(|()| Taken { count, stop: Some(Rejection::Full) }),
        }
    }
}
