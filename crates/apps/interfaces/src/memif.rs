//! `memif`: packets to and from VPP, DPDK and other networks through shared memory.

use std::path::PathBuf;
use std::sync::Arc;

use bellows_config::access::{FileGroup, FileMode, file_access};
use bellows_config::{BenchFiles, BenchSetup, Configure, Context, OutputSchema, Resource, SettingError};
use bellows_ipc::seqpacket::Address;
use bellows_netif::memif::{
    ClientConfig, MAX_LOG2_SIZE, MIN_BUFFER, MemifConfig, MemifQueue, MemifRole, MemifSource, Mode, SECRET_LENGTH,
    ServerConfig,
};
use bellows_netif::status::PortStatus;
use bellows_netif::{Keeper, Start, Started};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::port::app::PortApp;
use crate::port::interface::{InterfaceKind, InterfacePort, InterfacePortStatus};
use crate::port::queues::MAX_QUEUES;
use crate::port::yes;
use crate::virtio::{self, Side};

/// Exchanges packets with VPP, a DPDK program or another Bellows through memory that both share (memif 2.0).
///
/// `input` takes packets to the other side, `output` delivers packets from it. The *client* allocates the memory and
/// connects to the socket of the *server*. Either may start first, and come back at any time; an end connects again
/// within about a second. While nobody is there, packets that come in are dropped as `no_interface`. The other side is a
/// client if this one is the server, and has the same `id`, `mode` and secret:
///
/// ```text
/// role = "server"    VPP     create memif socket id 1 filename SOCKET
///                            create interface memif socket-id 1 id 0 slave
///                    DPDK    --vdev=net_memif0,role=client,id=0,socket=SOCKET,socket-abstract=no
/// role = "client"    VPP     create interface memif socket-id 1 id 0 master
///                    DPDK    --vdev=net_memif0,role=server,id=0,socket=SOCKET,socket-abstract=no
/// ```
///
/// A server has one interface at its socket and one client at a time; further clients wait until that has gone. Both
/// ends copy each packet, so neither sees any memory of the other but the rings and their buffers. Packets that the
/// other side has not yet taken when it goes are lost there; here they count as sent.
///
/// Memory that the other side writes is untrusted. A packet whose descriptors are outside the memory, are empty, or form
/// a chain without an end is dropped and counted as `rx_bad_descriptor`; one of more than 73,600 bytes as `rx_too_long`.
/// An index that cannot be, an empty buffer that cannot be used, and memory that was truncated end the connection;
/// `bellows show status` has the reason. Packets longer than all buffers of a ring are dropped as `too_long`.
///
/// There are no offloads: checksums are finished and GSO packets are cut here. With `mode = "ip"`, IPv4 and IPv6 packets
/// are exchanged without an Ethernet header: it is removed here, and added to what arrives, with zero addresses. Other
/// packets are dropped as `not_ip`.
///
/// DPDK 22.11 as a peer: once it has sent frames longer than a buffer, it may mark single frames as if another one
/// belonged to them. Give its `bsize` the length of the longest frame.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The path of the server's socket, relative to the network file, at most 107 bytes; or `@` and a name without a
    /// file, which every process in the same network namespace can use. A server removes its socket at the end, and
    /// replaces an abandoned one.
    pub socket: PathBuf,

    /// Which end this app is: `server` opens the socket, `client` connects to it and allocates the memory.
    pub role: Side,

    /// The number of the interface; the same on both ends.
    #[serde(default)]
    pub id: u32,

    /// What the packets are: `ethernet` or `ip`; the same on both ends.
    #[serde(default)]
    pub mode: PacketMode,

    /// The path of a file with a secret of at most 24 bytes, the same on both ends. A line end after it does not count.
    /// Others must not be able to read the file. The secret keeps out clients that may use the socket; it is sent as it
    /// is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_file: Option<PathBuf>,

    /// Number of rings in each direction, from 1 to 32; of a server the most that a client may have.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = MAX_QUEUES))]
    pub queues: u16,

    /// Number of descriptors in each ring, a power of two, for a client: a server takes the client's. The default is
    /// 1,024.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 2, max = 16384), extend("x-unit" = "packets"))]
    pub ring_size: Option<u32>,

    /// Length of each buffer, a multiple of 64, for a client. Longer packets take several. The default is 2,048.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 64, max = 65536), extend("x-unit" = "bytes"))]
    pub buffer_size: Option<u32>,

    /// Whether the other side raises an event when it sends packets while the engine sleeps. Without it the engine looks
    /// at the rings every millisecond then.
    #[serde(default = "yes")]
    pub interrupts: bool,

    /// The permissions of a server's socket: octal text such as `"0660"`. Nobody can connect before they are set. By
    /// default those that the umask allows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket_mode: Option<FileMode>,

    /// The group of a server's socket: its name or number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket_group: Option<FileGroup>,
}

/// What the packets are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum PacketMode {
    /// Ethernet frames.
    #[default]
    Ethernet,
    /// IPv4 and IPv6 packets.
    Ip,
}

fn one() -> u16 {
    1
}

/// The defaults of a client.
const RING_SIZE: u32 = 1_024;
const BUFFER_SIZE: u32 = 2_048;

/// Maximum of `buffer_size`.
const MAX_BUFFER: u32 = 65_536;

/// The kind of port.
pub struct MemifKind;

/// A port with a memif.
pub type Memif = InterfacePort<MemifKind>;

impl InterfaceKind for MemifKind {
    type Config = MemifConfig;
    type Queue = MemifQueue;
    const NAME: &'static str = "memif";

    fn place(config: &MemifConfig) -> String {
        config.socket.to_string()
    }

    const HAS_PEER: bool = true;

    fn may_be_missing(_config: &MemifConfig) -> bool {
        true
    }

    fn excludes(config: &MemifConfig, other: &MemifConfig) -> bool {
        config.socket == other.socket
    }

    fn start(config: MemifConfig, start: Start, status: Arc<PortStatus>) -> Started<MemifQueue> {
        Keeper::start(Self::NAME, MemifSource::new(config, start.later), start, status)
    }
}

/// The name of a socket without a file.
fn abstract_name(socket: &std::path::Path) -> Option<&str> {
    socket.to_str().and_then(|socket| socket.strip_prefix('@'))
}

impl Config {
    fn address(&self, context: &Context) -> Result<Address, SettingError> {
        let Some(name) = abstract_name(&self.socket) else {
            return Ok(Address::Path(virtio::socket_path("socket", &self.socket, context)?));
        };
        if name.is_empty() || name.len() > 107 {
            let message = format!("the name of the socket has {} bytes", name.len());
            return Err(SettingError::at("socket", message, "give a name of 1 to 107 bytes behind the `@`"));
        }
        let permissions = self.socket_mode.map(|_| "socket_mode").or(self.socket_group.map(|_| "socket_group"));
        match permissions {
            Some(key) => {
                let message = "a socket without a file has no permissions";
                Err(SettingError::at(key, message, "leave the key out, or give a path as `socket`"))
            }
            None => Ok(Address::Abstract(name.to_owned())),
        }
    }

    fn secret(&self, context: &Context) -> Result<[u8; SECRET_LENGTH], SettingError> {
        let mut secret = [0; SECRET_LENGTH];
        if let Some(path) = &self.secret_file {
            let text = context.read_secret("secret_file", path)?;
            let text = text.strip_suffix('\n').unwrap_or(&text).as_bytes();
            if text.is_empty() || text.len() > SECRET_LENGTH || text.contains(&0) {
                let message = format!("the secret has {} bytes, or one of them is zero", text.len());
                let help = format!("put 1 to {SECRET_LENGTH} bytes of text into the file");
                return Err(SettingError::at("secret_file", message, help));
            }
            secret[..text.len()].copy_from_slice(text);
        }
        Ok(secret)
    }

    /// Refuses keys that only the other role has.
    fn check_role(&self) -> Result<(), SettingError> {
        let (keys, why, other) = match self.role {
            Side::Server => (
                [self.ring_size.map(|_| "ring_size"), self.buffer_size.map(|_| "buffer_size")],
                "the client allocates the memory, so a server cannot choose this",
                "client",
            ),
            Side::Client => (
                [self.socket_mode.map(|_| "socket_mode"), self.socket_group.map(|_| "socket_group")],
                "the server opens the socket, so a client cannot set its permissions",
                "server",
            ),
        };
        match keys.into_iter().flatten().next() {
            Some(key) => Err(SettingError::at(key, why, format!("leave the key out, or set `role = \"{other}\"`"))),
            None => Ok(()),
        }
    }

    fn client(&self, context: &Context, secret: [u8; SECRET_LENGTH], mode: Mode) -> Result<ClientConfig, SettingError> {
        let ring_size = self.ring_size.unwrap_or(RING_SIZE);
        if !ring_size.is_power_of_two() || !(2..=1 << MAX_LOG2_SIZE).contains(&ring_size) {
            let message = format!("{ring_size} descriptors is not a power of two from 2 to {}", 1 << MAX_LOG2_SIZE);
            return Err(SettingError::at("ring_size", message, "give one, such as 1024"));
        }
        let buffer_size = self.buffer_size.unwrap_or(BUFFER_SIZE);
        if !buffer_size.is_multiple_of(MIN_BUFFER) || !(MIN_BUFFER..=MAX_BUFFER).contains(&buffer_size) {
            let message = format!("{buffer_size} bytes is not a multiple of 64 from {MIN_BUFFER} to {MAX_BUFFER}");
            return Err(SettingError::at("buffer_size", message, "give one, such as 2048"));
        }
        let client = ClientConfig {
            name: context.app.clone(),
            id: self.id,
            mode,
            secret,
            rings: self.queues,
            log2_size: ring_size.trailing_zeros() as u8,
            buffer_size,
            interrupts: self.interrupts,
        };
        if client.memory().is_none() {
            let message = "the buffers of all rings together have more than 4 GiB";
            return Err(SettingError::at(
                "buffer_size",
                message,
                "give less of `queues`, `ring_size` or `buffer_size`",
            ));
        }
        Ok(client)
    }
}

impl Configure for Memif {
    const NAME: &'static str = MemifKind::NAME;
    const INTERFACE: bool = true;
    const STATUS: Option<OutputSchema> = Some(OutputSchema::of::<InterfacePortStatus<'static>>());
    type Config = Config;

    fn bench(_: &BenchFiles) -> BenchSetup {
        BenchSetup::Unmeasured(
            "it needs another process at its socket; use `bellows show run` in a network, not `bellows bench`",
        )
    }

    fn resources(config: &Config, context: &Context) -> Vec<Resource> {
        match abstract_name(&config.socket) {
            Some(_) => Vec::new(),
            None => vec![config.role.resource("socket", context.path(&config.socket))],
        }
    }

    fn configure(config: Config, context: &Context) -> Result<Memif, SettingError> {
        config.check_role()?;
        let socket = config.address(context)?;
        if !(1..=MAX_QUEUES).contains(&config.queues) {
            let message = format!("{} queues is out of range", config.queues);
            return Err(SettingError::at("queues", message, format!("give a number from 1 to {MAX_QUEUES}")));
        }
        let secret = config.secret(context)?;
        let mode = match config.mode {
            PacketMode::Ethernet => Mode::Ethernet,
            PacketMode::Ip => Mode::Ip,
        };
        let role = match config.role {
            Side::Client => MemifRole::Client(config.client(context, secret, mode)?),
            Side::Server => {
                let server = ServerConfig {
                    name: context.app.clone(),
                    id: config.id,
                    mode,
                    secret,
                    rings: config.queues,
                    interrupts: config.interrupts,
                };
                MemifRole::Server(server, file_access(config.socket_mode, config.socket_group))
            }
        };
        Ok(PortApp::new(&context.app, MemifConfig { socket, role }))
    }
}
