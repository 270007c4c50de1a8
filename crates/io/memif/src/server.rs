//! The server's end of the handshake.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use bellows_ipc::mapping::PeerMemory;
use bellows_ipc::notify::Notifiers;
use bellows_ipc::socket::is_event;
use bellows_sys::wake::PeerEvent;

use crate::channel::Channel;
use crate::message::{AddRing, Hello, Init, Message, SECRET_LENGTH, VERSION};
use crate::receiver::Receiver;
use crate::regions::{Region, Regions};
use crate::ring::{Ring, RingSpec};
use crate::transmitter::Transmitter;
use crate::{HandshakeError, MAX_LOG2_SIZE, MAX_REGIONS, Mode, Session, Side};

/// What a server accepts.
#[derive(Clone, PartialEq, Eq)]
pub struct ServerConfig {
    /// The name for the other side.
    pub name: String,
    /// The number of the interface.
    pub id: u32,
    /// What the packets are.
    pub mode: Mode,
    /// The secret that a client must know; zeros if none.
    pub secret: [u8; SECRET_LENGTH],
    /// Maximum number of rings in each direction, at least 1.
    pub rings: u16,
    /// Whether the client raises events when packets come and we sleep.
    pub interrupts: bool,
}

/// A ring as the client has described it.
struct Described {
    spec: RingSpec,
    event: OwnedFd,
}

/// A handshake with one client.
pub struct ServerHandshake {
    channel: Channel,
    /// Whether the client has named the interface, and knows the secret.
    is_admitted: bool,
    memory: PeerMemory,
    regions: Vec<Region>,
    to_server: Vec<Described>,
    to_client: Vec<Described>,
    /// The client's name for its interface.
    client: String,
}

impl ServerHandshake {
    /// Greets a client.
    ///
    /// # Errors
    /// If it does not read.
    pub fn new(channel: Channel, config: &ServerConfig) -> Result<ServerHandshake, HandshakeError> {
        let last = config.rings.saturating_sub(1);
        let hello = Hello {
            name: "bellows".to_owned(),
            min_version: VERSION,
            max_version: VERSION,
            max_region: MAX_REGIONS - 1,
            max_s2c: last,
            max_c2s: last,
            max_log2_size: MAX_LOG2_SIZE,
        };
        channel.send(&Message::Hello(hello), None)?;
        Ok(ServerHandshake {
            channel,
            is_admitted: false,
            memory: PeerMemory::limited(false),
            regions: Vec::new(),
            to_server: Vec::new(),
            to_client: Vec::new(),
            client: String::new(),
        })
    }

    /// Whether the client has named the interface, and knows the secret.
    pub fn is_admitted(&self) -> bool {
        self.is_admitted
    }

    /// Handles the messages that are there. Returns whether the handshake is complete. `free` says whether the
    /// interface has no client yet.
    ///
    /// A client can add each of its regions and rings once, so this ends however fast it sends.
    ///
    /// # Errors
    /// Why the handshake fails. Call [`ServerHandshake::refuse`] then.
    pub fn advance(&mut self, config: &ServerConfig, free: bool) -> Result<bool, HandshakeError> {
        while let Some((message, file)) = self.channel.receive()? {
            match message {
                Message::Init(init) => self.admit(&init, config, free)?,
                Message::Disconnect { text, .. } => return Err(HandshakeError::Refused(text)),
                Message::AddRegion { index, size } if self.is_admitted => self.add_region(index, size, file)?,
                Message::AddRing(ring) if self.is_admitted => self.add_ring(ring, file, config)?,
                Message::Connect(name) if self.is_admitted => {
                    self.client = name;
                    return Ok(true);
                }
                message => {
                    return Err(HandshakeError::Protocol(format!("a message came out of turn: {message:?}")));
                }
            }
            self.channel.send(&Message::Ack, None)?;
        }
        Ok(false)
    }

    fn admit(&mut self, init: &Init, config: &ServerConfig, free: bool) -> Result<(), HandshakeError> {
        let no = |text: String| Err(HandshakeError::Unacceptable(text));
        if self.is_admitted {
            return Err(HandshakeError::Protocol("it sent INIT twice".to_owned()));
        }
        if init.version != VERSION {
            return no(format!("version {:#06x} is not spoken here, only {VERSION:#06x}", init.version));
        }
        if init.id != config.id {
            return no(format!("there is no interface with id {} at this socket", init.id));
        }
        // Every byte is compared, so that the time tells nothing.
        let different = init.secret.iter().zip(&config.secret).fold(0, |sum, (a, b)| sum | (a ^ b));
        if different != 0 {
            return no("the secret is wrong".to_owned());
        }
        if init.mode != config.mode.number() {
            return no(format!("the mode is {}, here it is {}", init.mode, config.mode.number()));
        }
        if !free {
            return no("the interface has another client".to_owned());
        }
        self.is_admitted = true;
        Ok(())
    }

    fn add_region(&mut self, index: u16, size: u64, file: Option<File>) -> Result<(), HandshakeError> {
        if usize::from(index) != self.regions.len() || index >= MAX_REGIONS {
            return Err(HandshakeError::Protocol(format!("it added region {index} out of turn")));
        }
        let file = file.ok_or_else(|| HandshakeError::Protocol("a region came without its file".to_owned()))?;
        let region = Region::map(&self.memory, &file, size);
        self.regions.push(
            region
                .map_err(|error| HandshakeError::Unacceptable(format!("region {index} cannot be mapped: {error}")))?,
        );
        Ok(())
    }

    fn add_ring(&mut self, ring: AddRing, file: Option<File>, config: &ServerConfig) -> Result<(), HandshakeError> {
        let AddRing { to_server, index, region, offset, log2_size, private_header } = ring;
        let rings = if to_server { &mut self.to_server } else { &mut self.to_client };
        if usize::from(index) != rings.len() || index >= config.rings {
            return Err(HandshakeError::Protocol(format!("it added ring {index} out of turn")));
        }
        if private_header != 0 {
            let text = format!("headers of {private_header} bytes in front of packets are not known");
            return Err(HandshakeError::Unacceptable(text));
        }
        let event = file.ok_or_else(|| HandshakeError::Protocol("a ring came without its event".to_owned()))?;
        if !is_event(event.as_fd()).map_err(|error| HandshakeError::System(error.to_string()))? {
            return Err(HandshakeError::Protocol("what came with a ring is not an eventfd".to_owned()));
        }
        rings.push(Described { spec: RingSpec { region, offset, log2_size }, event: event.into() });
        Ok(())
    }

    /// Makes the rings after a complete handshake, and tells the client.
    ///
    /// # Errors
    /// Why that is impossible. The client was told.
    pub fn complete(self, config: &ServerConfig) -> Result<Session, HandshakeError> {
        let ServerHandshake { channel, regions, to_server, to_client, client, .. } = self;
        let made = make_rings(Arc::new(Regions::new(regions)), to_server, to_client, config);
        let (regions, receivers, transmitters, ring_size) = made.inspect_err(|error| {
            channel.disconnect(&error.to_string());
        })?;
        channel.send(&Message::Connected(config.name.clone()), None)?;
        Ok(Session { channel, peer: client, regions, receivers, transmitters, ring_size })
    }

    /// Ends the connection, and tells the client why.
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

impl AsFd for ServerHandshake {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}

type Made = (Arc<Regions>, Vec<Receiver>, Vec<Transmitter>, u16);

fn make_rings(
    regions: Arc<Regions>,
    to_server: Vec<Described>,
    to_client: Vec<Described>,
    config: &ServerConfig,
) -> Result<Made, HandshakeError> {
    let system = |error: std::io::Error| HandshakeError::System(format!("cannot use the events of rings: {error}"));
    if to_server.is_empty() || to_client.is_empty() {
        let text = "there must be at least one ring in each direction".to_owned();
        return Err(HandshakeError::Unacceptable(text));
    }
    let mut ring_size = 0;
    let mut ring = |spec| {
        let ring = Ring::new(spec, Side::Server, Arc::clone(&regions));
        let ring = ring.and_then(|ring| ring.check_cookie().map(|()| ring));
        let ring = ring.map_err(|error| HandshakeError::Unacceptable(error.to_string()))?;
        ring_size = ring_size.max(ring.size());
        Ok::<_, HandshakeError>(ring)
    };
    let mut receivers = Vec::new();
    for Described { spec, event } in to_server {
        let event = if config.interrupts { Some(PeerEvent::new(event).map_err(system)?) } else { None };
        receivers.push(Receiver::new(ring(spec)?, None, config.mode, event));
    }
    let notifiers = Notifiers::new(to_client.len(), 0).map_err(system)?;
    let mut transmitters = Vec::new();
    for (index, Described { spec, event }) in to_client.into_iter().enumerate() {
        let notifier = notifiers.get(index);
        notifier.set(Some(event)).map_err(system)?;
        transmitters.push(Transmitter::new(ring(spec)?, None, config.mode, Some(notifier)));
    }
    Ok((regions, receivers, transmitters, ring_size))
}
