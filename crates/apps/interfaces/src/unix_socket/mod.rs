//! `unix-socket`: frames to and from another process over a Unix socket.

#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;

use bellows_config::access::{FileGroup, FileMode};
use bellows_config::{BenchFiles, BenchSetup, Configure, Context, OutputSchema, Resource, SettingError};
use bellows_netif::status::PortStatus;
use bellows_netif::unix::{UnixConfig, UnixMode, UnixQueue, UnixSource};
use bellows_netif::{Keeper, Start, Started};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::port::app::PortApp;
use crate::port::interface::{InterfaceKind, InterfacePort, InterfacePortStatus};
use crate::virtio::{self, Side};

/// Exchanges Ethernet frames with another process over a Unix socket, with the framing of QEMU: a virtual machine
/// without vhost-user, or another Bellows.
///
/// `input` takes packets to the other side, `output` delivers packets from it. With `kind = "stream"` each frame follows
/// its length, 4 bytes big endian; with `kind = "dgram"` each datagram is a frame. QEMU's side of each, from 7.2 on:
///
/// ```text
/// mode = "server"
///     -netdev stream,id=n0,server=off,addr.type=unix,addr.path=SOCKET
/// mode = "client"
///     -netdev stream,id=n0,server=on,addr.type=unix,addr.path=SOCKET
/// kind = "dgram"
///     -netdev dgram,id=n0,local.type=unix,local.path=PEER,remote.type=unix,remote.path=SOCKET
/// ```
///
/// Either side may start first, except that QEMU does not start with `server=off` before there is a server. When the
/// other side ends, packets that come in are dropped as `no_interface` until it is back; this is checked about once a
/// second. QEMU 7.2 with `server=off` does not connect again, so let QEMU be the server if Bellows may be restarted.
///
/// A stream server accepts one connection at a time. Further ones wait until it ends, and nothing is read from them.
/// Frames of length 0 or of more than 73,600 bytes end a connection, because the rest of the stream cannot be
/// understood; they are counted as `rx_bad_header` and `rx_too_long`. Datagrams are accepted only from `peer` once it
/// is there; a longer one is dropped and counted as `rx_too_long`. Frames to the other side have at most 69,632 bytes, QEMU's maximum;
/// longer ones are dropped as `too_long`.
///
/// The framing has no offloads: checksums are finished and GSO packets are cut here. When the other side does not
/// read, packets wait in the link. A socket holds few datagrams, 10 by default; `sysctl net.unix.max_dgram_qlen`
/// changes that for the sockets that are opened afterwards.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The path of this app's socket, or that of the other side's with `mode = "client"`; relative to the network file,
    /// at most 107 bytes. This app's own is removed at the end, and an abandoned one replaced.
    pub socket: PathBuf,

    /// The path of the other side's socket, for `dgram`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<PathBuf>,

    /// The framing: `stream` or `dgram`.
    #[serde(default = "stream")]
    pub kind: Framing,

    /// Who opens the socket, for `stream`: `server` waits there for the other side, `client` connects to it and retries
    /// until it is there. The default is `server`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<Side>,

    /// The permissions of this app's socket: octal text such as `"0660"`. Nobody can connect or send before they are
    /// set. By default those that the umask allows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket_mode: Option<FileMode>,

    /// The group of this app's socket: its name or number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket_group: Option<FileGroup>,
}

/// How frames are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum Framing {
    /// Each frame follows its length.
    Stream,
    /// Each datagram is a frame.
    Dgram,
}

fn stream() -> Framing {
    Framing::Stream
}

/// The kind of port.
pub struct UnixKind;

/// A port at a Unix socket.
pub type UnixSocket = InterfacePort<UnixKind>;

impl InterfaceKind for UnixKind {
    type Config = UnixConfig;
    type Queue = UnixQueue;
    const NAME: &'static str = "unix-socket";

    fn place(config: &UnixConfig) -> String {
        config.socket.display().to_string()
    }

    const HAS_PEER: bool = true;

    fn may_be_missing(_config: &UnixConfig) -> bool {
        true
    }

    fn excludes(config: &UnixConfig, other: &UnixConfig) -> bool {
        config.socket == other.socket
    }

    fn start(config: UnixConfig, start: Start, status: Arc<PortStatus>) -> Started<UnixQueue> {
        Keeper::start(Self::NAME, UnixSource::new(config, start.later), start, status)
    }
}

impl Config {
    /// Checks which keys go together.
    fn mode(&self, context: &Context) -> Result<UnixMode, SettingError> {
        let side = self.mode.unwrap_or(Side::Server);
        match (self.kind, &self.peer) {
            (Framing::Stream, None) => {
                let access = virtio::socket_access(side, self.socket_mode, self.socket_group)?;
                Ok(if side == Side::Server { UnixMode::Server(access) } else { UnixMode::Client })
            }
            (Framing::Stream, Some(_)) => {
                let message = "a stream has one socket, and no `peer`";
                Err(SettingError::at("peer", message, "leave the key out, or set `kind = \"dgram\"`"))
            }
            (Framing::Dgram, _) if self.mode.is_some() => {
                let message = "with datagrams both sides open a socket, so there is no `mode`";
                Err(SettingError::at("mode", message, "leave the key out, or set `kind = \"stream\"`"))
            }
            (Framing::Dgram, None) => {
                let help = "give the path of the other side's socket: `peer = \"/run/vm0-net.sock\"`";
                Err(SettingError::at("kind", "`dgram` needs the key `peer`", help))
            }
            (Framing::Dgram, Some(peer)) => {
                let path = virtio::socket_path("peer", peer, context)?;
                if path == context.path(&self.socket) {
                    let message = "both sides have the same socket";
                    return Err(SettingError::at("peer", message, "give the path of the other side's socket"));
                }
                let access = virtio::socket_access(Side::Server, self.socket_mode, self.socket_group)?;
                Ok(UnixMode::Dgram(path, access))
            }
        }
    }
}

impl Configure for UnixSocket {
    const NAME: &'static str = UnixKind::NAME;
    const INTERFACE: bool = true;
    const STATUS: Option<OutputSchema> = Some(OutputSchema::of::<InterfacePortStatus<'static>>());
    type Config = Config;

    fn bench(_: &BenchFiles) -> BenchSetup {
        BenchSetup::Unmeasured(
            "it needs another process at its socket; use `bellows show run` in a network, not `bellows bench`",
        )
    }

    fn resources(config: &Config, context: &Context) -> Vec<Resource> {
        let side = config.mode.unwrap_or(Side::Server);
        let own = side.resource("socket", context.path(&config.socket));
        let peer = config.peer.as_ref().map(|peer| Side::Client.resource("peer", context.path(peer)));
        [own].into_iter().chain(peer).collect()
    }

    fn configure(config: Config, context: &Context) -> Result<UnixSocket, SettingError> {
        let mode = config.mode(context)?;
        let socket = virtio::socket_path("socket", &config.socket, context)?;
        Ok(PortApp::new(&context.app, UnixConfig { socket, mode }))
    }
}
