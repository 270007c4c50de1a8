//! Packets to and from VPP, DPDK and other networks over memif: the queues, and the source that makes them on the
//! control thread ([`bellows_memif`] has the protocol and the rings).

mod source;
#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use bellows_ipc::seqpacket::Address;
pub use bellows_memif::{ClientConfig, MAX_LOG2_SIZE, MIN_BUFFER, Mode, SECRET_LENGTH, ServerConfig};
use bellows_memif::{Receiver, RingBell, RingError, Transmitter};
use bellows_packet::{Packet, Vector};
use bellows_ports::{Accepted, QueueBell, SendQueue, Taken};
use bellows_sys::access::FileAccess;

pub use self::source::MemifSource;

use crate::{Queue, QueueCounts, QueueError};

/// A port with a memif.
#[derive(Clone, PartialEq, Eq)]
pub struct MemifConfig {
    /// Where the control channel is.
    pub socket: Address,
    /// Which end the port is.
    pub role: MemifRole,
}

/// Which end of a memif a port is.
#[derive(Clone, PartialEq, Eq)]
pub enum MemifRole {
    /// It listens, for one client at a time.
    Server(ServerConfig, FileAccess),
    /// It connects, and retries until the server is there.
    Client(ClientConfig),
}

impl MemifRole {
    /// Its name in reports.
    pub fn name(&self) -> &'static str {
        match self {
            MemifRole::Server(..) => "server",
            MemifRole::Client(_) => "client",
        }
    }
}

/// A ring in each direction. If a client has more rings one way, the last queues have none the other way.
pub struct MemifQueue {
    receiver: Option<Receiver>,
    transmitter: Option<Transmitter>,
    bell: Arc<MemifBell>,
}

impl MemifQueue {
    fn new(receiver: Option<Receiver>, transmitter: Option<Transmitter>) -> MemifQueue {
        let bell = Arc::new(MemifBell(receiver.as_ref().map(Receiver::bell)));
        MemifQueue { receiver, transmitter, bell }
    }
}

impl Queue for MemifQueue {
    type Bell = MemifBell;

    fn bell(&self) -> Arc<MemifBell> {
        Arc::clone(&self.bell)
    }

    #[inline]
    fn receive(&mut self, packets: &mut Vector, most: usize) -> Result<(), QueueError> {
        match &mut self.receiver {
            Some(receiver) => receiver.receive(packets, most).map_err(stopped),
            None => Ok(()),
        }
    }

    fn flush(&mut self) -> Result<(), QueueError> {
        Ok(())
    }

    fn sends(&self) -> bool {
        self.transmitter.is_some()
    }

    fn accepted(&self) -> Accepted {
        Accepted::default()
    }

    fn counts(&mut self) -> QueueCounts {
        let received = self.receiver.as_ref().map(Receiver::counts).unwrap_or_default();
        let not_ip = self.transmitter.as_ref().map_or(0, Transmitter::not_ip);
        QueueCounts {
            rx_bad_descriptor: received.bad_descriptor,
            rx_too_long: received.too_long,
            rx_no_buffer: received.no_buffer,
            not_ip: received.not_ip + not_ip,
            ..QueueCounts::default()
        }
    }
}

impl SendQueue for MemifQueue {
    type Error = QueueError;

    #[inline]
    fn send(&mut self, packets: &[Packet]) -> Result<Taken, QueueError> {
        match &mut self.transmitter {
            Some(transmitter) => transmitter.send(packets).map_err(stopped),
            // Packets are only given to queues that send.
            None => Ok(Taken { count: 0, stop: Some(bellows_ports::Rejection::Full) }),
        }
    }
}

#[cold]
fn stopped(error: RingError) -> QueueError {
    QueueError::System(io::Error::new(io::ErrorKind::InvalidData, error))
}

/// The bell of a queue: that of the ring that brings packets, if there is one.
pub struct MemifBell(Option<Arc<RingBell>>);

impl QueueBell for MemifBell {
    fn word(&self) -> Option<&AtomicU32> {
        self.0.as_ref().and_then(|bell| bell.word())
    }

    fn mask(&self) -> u32 {
        self.0.as_ref().map_or(0, |bell| bell.mask())
    }

    fn quiet(&self) -> u32 {
        self.0.as_ref().map_or(0, |bell| bell.quiet())
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.0.as_ref().and_then(|bell| bell.descriptor())
    }

    fn arm(&self) {
        self.0.iter().for_each(|bell| bell.arm());
    }

    fn disarm(&self) {
        self.0.iter().for_each(|bell| bell.disarm());
    }
}
