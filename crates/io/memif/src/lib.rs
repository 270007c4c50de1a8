//! memif 2.0: packets between processes through shared memory, as VPP and DPDK exchange them.
//!
//! | file | contents |
//! |---|---|
//! | `message.rs` | the messages of the control channel, as values and as bytes |
//! | `channel.rs` | a connection that carries them |
//! | `server.rs`, `client.rs` | the two ends of the handshake, until the rings are there |
//! | `regions.rs` | mapped memory, and addresses in it |
//! | `ring.rs` | a ring in it, and its bell |
//! | `receiver.rs`, `transmitter.rs` | packets out of a ring and into one |
//!
//! The *client* allocates the memory and describes the rings, the *server* accepts. `C2S` rings bring packets to the
//! server, `S2C` rings to the client. In both the head is the client's index and the tail the server's: in a C2S ring
//! the client puts packets at the head, in an S2C ring empty buffers.
//!
//! The other side is untrusted. It can write anything into the memory at any time, so each value there is read once,
//! and checked before it is used.
#![deny(unsafe_code)]

mod channel;
mod client;
mod message;
mod receiver;
mod regions;
mod ring;
mod server;
#[cfg(test)]
mod tests;
mod transmitter;

use std::sync::Arc;

pub use channel::{Channel, ChannelError};
pub use client::{ClientConfig, ClientHandshake};
pub use message::{AddRing, Hello, Init, MESSAGE_LENGTH, Message, MessageError, SECRET_LENGTH, VERSION};
pub use receiver::{ReceiveCounts, Receiver};
pub use regions::{Region, Regions};
pub use ring::{BadRing, RingBell, RingError, RingSpec};
pub use server::{ServerConfig, ServerHandshake};
pub use transmitter::Transmitter;

/// Maximum number of regions that a client may add.
pub const MAX_REGIONS: u16 = 64;

/// The greatest size of a ring: the logarithm of the number of its descriptors.
pub const MAX_LOG2_SIZE: u8 = 14;

/// Least length of an empty buffer, in bytes: smaller ones would make a packet long work.
pub const MIN_BUFFER: u32 = 64;

/// Which end of a memif this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// It accepts a client, and copies packets from and to the client's memory.
    Server,
    /// It allocates the memory, and connects to the server.
    Client,
}

/// What the packets are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Ethernet frames.
    #[default]
    Ethernet,
    /// IPv4 and IPv6 packets. Here they have an Ethernet header, which is removed and added.
    Ip,
}

impl Mode {
    /// Its number in messages.
    fn number(self) -> u8 {
        match self {
            Mode::Ethernet => 0,
            Mode::Ip => 1,
        }
    }
}

/// The rings of a complete handshake.
pub struct Session {
    /// The connection. The session ends with it.
    pub channel: Channel,
    /// The other side's name for its interface.
    pub peer: String,
    /// The memory of the rings.
    pub regions: Arc<Regions>,
    /// The rings that bring packets, at least one.
    pub receivers: Vec<Receiver>,
    /// The rings that take packets, at least one.
    pub transmitters: Vec<Transmitter>,
    /// The size of the largest ring.
    pub ring_size: u16,
}

/// Why a handshake has failed.
#[derive(Debug, thiserror::Error)]
pub enum HandshakeError {
    /// The connection cannot be used.
    #[error(transparent)]
    Channel(#[from] ChannelError),
    /// The other side has ended it, with this text.
    #[error("the other side has refused the connection: {0}")]
    Refused(String),
    /// The other side asks for something that this one does not accept. It is told so.
    #[error("{0}")]
    Unacceptable(String),
    /// The other side has broken the protocol.
    #[error("the other side has broken the protocol: {0}")]
    Protocol(String),
    /// The system refuses something.
    #[error("{0}")]
    System(String),
}

impl HandshakeError {
    /// Whether the other side is to be told why the connection ends.
    pub fn is_ours(&self) -> bool {
        !matches!(self, HandshakeError::Channel(_) | HandshakeError::Refused(_))
    }
}
