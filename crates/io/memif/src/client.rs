//! The client's end of the handshake: it makes the memory, and describes it.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use bellows_ipc::notify::Notifiers;
use bellows_sys::wake::{PeerEvent, WakeEvent};

use crate::channel::Channel;
use crate::message::{AddRing, Hello, Init, Message, SECRET_LENGTH, VERSION};
use crate::receiver::{Buffers, Receiver};
use crate::regions::{Region, Regions};
use crate::ring::{Ring, RingSpec};
use crate::transmitter::Transmitter;
use crate::{HandshakeError, Mode, Session, Side};

/// What a client asks for.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientConfig {
    /// The name for the other side.
    pub name: String,
    /// The number of the interface.
    pub id: u32,
    /// What the packets are.
    pub mode: Mode,
    /// The secret of the server; zeros if none.
    pub secret: [u8; SECRET_LENGTH],
    /// Number of rings in each direction, at least 1. The server may accept fewer.
    pub rings: u16,
    /// The logarithm of the number of descriptors of each ring. The server may accept fewer.
    pub log2_size: u8,
    /// Length of each buffer in bytes, a multiple of 64.
    pub buffer_size: u32,
    /// Whether the server raises events when packets come and we sleep.
    pub interrupts: bool,
}

impl ClientConfig {
    /// Bytes of the memory; `None` if its offsets would not fit into 32 bits.
    pub fn memory(&self) -> Option<u32> {
        Some(Layout::of(self.rings, self.rings, self.log2_size, self.buffer_size)?.length)
    }
}

/// Where rings and buffers are.
#[derive(Clone, Copy)]
struct Layout {
    ring_length: u32,
    buffers: u32,
    buffers_of_ring: u32,
    length: u32,
}

impl Layout {
    fn of(to_server: u16, to_client: u16, log2_size: u8, buffer_size: u32) -> Option<Layout> {
        const PAGE: u32 = 4_096;
        let rings = u32::from(to_server) + u32::from(to_client);
        let ring_length = RingSpec::length(log2_size).next_multiple_of(64);
        let buffers = ring_length.checked_mul(rings)?.checked_next_multiple_of(PAGE)?;
        let buffers_of_ring = buffer_size.checked_mul(1 << log2_size)?;
        let length = buffers_of_ring.checked_mul(rings)?.checked_add(buffers)?;
        Some(Layout { ring_length, buffers, buffers_of_ring, length })
    }

    fn buffers(&self, ring: u32, buffer_size: u32) -> Buffers {
        Buffers { first: self.buffers + ring * self.buffers_of_ring, length: buffer_size }
    }
}

/// A handshake with a server.
pub struct ClientHandshake {
    channel: Channel,
    /// The messages still to be sent, each after the server's answer to the one before.
    messages: VecDeque<(Message, Option<OwnedFd>)>,
    /// The rings, since the server's greeting.
    made: Option<Made>,
    server: String,
}

struct Made {
    regions: Arc<Regions>,
    receivers: Vec<Receiver>,
    transmitters: Vec<Transmitter>,
    ring_size: u16,
}

impl ClientHandshake {
    /// Waits for a server's greeting.
    pub fn new(channel: Channel) -> ClientHandshake {
        ClientHandshake { channel, messages: VecDeque::new(), made: None, server: String::new() }
    }

    /// Handles the messages that are there. Returns whether the handshake is complete.
    ///
    /// # Errors
    /// Why the handshake fails. Call [`ClientHandshake::refuse`] then.
    pub fn advance(&mut self, config: &ClientConfig) -> Result<bool, HandshakeError> {
        while let Some((message, _)) = self.channel.receive()? {
            match message {
                Message::Hello(hello) if self.made.is_none() => self.begin(&hello, config)?,
                // The last answer, to CONNECT, is another message.
                Message::Ack if self.made.is_some() && !self.messages.is_empty() => {}
                Message::Connected(name) if self.made.is_some() && self.messages.is_empty() => {
                    self.server = name;
                    return Ok(true);
                }
                Message::Disconnect { text, .. } => return Err(HandshakeError::Refused(text)),
                message => return Err(HandshakeError::Protocol(format!("a message came out of turn: {message:?}"))),
            }
            if let Some((message, file)) = self.messages.pop_front() {
                self.channel.send(&message, file.as_ref().map(AsFd::as_fd))?;
            }
        }
        Ok(false)
    }

    fn begin(&mut self, hello: &Hello, config: &ClientConfig) -> Result<(), HandshakeError> {
        if !(hello.min_version..=hello.max_version).contains(&VERSION) {
            let (min, max) = (hello.min_version, hello.max_version);
            let text = format!("the other side speaks versions {min:#06x} to {max:#06x}, and not {VERSION:#06x}");
            return Err(HandshakeError::Unacceptable(text));
        }
        let accepted = |max: u16| config.rings.min(max.saturating_add(1));
        let (to_server, to_client) = (accepted(hello.max_c2s), accepted(hello.max_s2c));
        let made = self.make(to_server, to_client, config.log2_size.min(hello.max_log2_size), config);
        self.made = Some(made.map_err(|error| {
            HandshakeError::System(format!("cannot make the shared memory: {error}; free memory, or give smaller `queues`, `descriptors` or `buffer_size`"))
        })?);
        Ok(())
    }

    /// Makes the memory, the rings in it, and the messages that describe them.
    fn make(&mut self, to_server: u16, to_client: u16, log2_size: u8, config: &ClientConfig) -> io::Result<Made> {
        let layout =
            Layout::of(to_server, to_client, log2_size, config.buffer_size).ok_or(io::ErrorKind::InvalidInput)?;
        let (region, file) = Region::create(layout.length.into())?;
        let regions = Arc::new(Regions::new(vec![region]));
        let ClientConfig { name, id, mode, secret, .. } = config.clone();
        let init = Init { version: VERSION, id, mode: mode.number(), secret, name: "bellows".to_owned() };
        self.messages.push_back((Message::Init(init), None));
        let region = Message::AddRegion { index: 0, size: layout.length.into() };
        self.messages.push_back((region, Some(file.into())));
        let notifiers = Notifiers::new(to_server.into(), 0)?;
        let (mut receivers, mut transmitters) = (Vec::new(), Vec::new());
        for number in 0..to_server + to_client {
            let is_to_server = number < to_server;
            let index = if is_to_server { number } else { number - to_server };
            let spec = RingSpec { region: 0, offset: u32::from(number) * layout.ring_length, log2_size };
            let ring = Ring::new(spec, Side::Client, Arc::clone(&regions)).map_err(io::Error::other)?;
            ring.begin();
            let event = WakeEvent::new()?;
            let copy = event.as_fd().try_clone_to_owned()?;
            let buffers = Some(layout.buffers(number.into(), config.buffer_size));
            if is_to_server {
                let notifier = notifiers.get(index.into());
                notifier.set(Some(copy))?;
                transmitters.push(Transmitter::new(ring, buffers, mode, Some(notifier)));
            } else {
                let event = if config.interrupts { Some(PeerEvent::new(copy)?) } else { None };
                receivers.push(Receiver::new(ring, buffers, mode, event));
            }
            let RingSpec { region, offset, log2_size } = spec;
            let ring = AddRing { to_server: is_to_server, index, region, offset, log2_size, private_header: 0 };
            self.messages.push_back((Message::AddRing(ring), Some(event.as_fd().try_clone_to_owned()?)));
        }
        self.messages.push_back((Message::Connect(name), None));
        Ok(Made { regions, receivers, transmitters, ring_size: 1 << log2_size })
    }

    /// The rings after a complete handshake; `None` before it is complete.
    pub fn complete(self) -> Option<Session> {
        let ClientHandshake { channel, made, server, .. } = self;
        let Made { regions, mut receivers, transmitters, ring_size } = made?;
        receivers.iter_mut().for_each(Receiver::begin);
        Some(Session { channel, peer: server, regions, receivers, transmitters, ring_size })
    }

    /// Ends the connection, and tells the server why.
    pub fn refuse(self, why: &HandshakeError) {
        if why.is_ours() {
            self.channel.disconnect(&why.to_string());
        }
    }

    /// The connection.
    pub fn channel(&self) -> &Channel {
        &self.channel
    }
}

impl AsFd for ClientHandshake {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}
