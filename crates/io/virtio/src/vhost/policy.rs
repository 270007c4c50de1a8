//! The permissions of a peer.

use std::os::unix::net::UnixStream;
use std::time::Duration;

use bellows_ipc::socket::{self, Peer};
use bellows_sys::access::FileAccess;

use super::ProtocolError;
use super::endpoint::MAX_PAUSE;

/// The permissions of a peer, and who may connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerPolicy {
    /// The mode and the group of the socket's file, if we open it. Nobody can connect before they are set.
    pub socket_access: FileAccess,
    /// The users who may be on the other side; if empty, anybody.
    pub users: Vec<u32>,
    /// Whether shared memory may be a file on a disk. A thread that touches its pages may have to wait for the disk or
    /// another process, and even asking the kernel about the file may block.
    pub any_file: bool,
    /// Whether the control thread gives up the system calls that the protocol does not need.
    pub confine: bool,
    /// Maximum time a device waits before it accepts another connection after some that ended at once.
    pub longest_pause: Duration,
}

impl Default for PeerPolicy {
    /// Anybody may connect if the system allows it, may only share files in memory, and is served by a confined thread.
    fn default() -> PeerPolicy {
        PeerPolicy {
            socket_access: FileAccess::default(),
            users: Vec::new(),
            any_file: false,
            confine: true,
            longest_pause: MAX_PAUSE,
        }
    }
}

impl PeerPolicy {
    /// The process on the other side, if it is allowed.
    pub(super) fn admit(&self, socket: &UnixStream) -> Result<Peer, ProtocolError> {
        let peer = socket::peer(socket)?;
        match self.users.is_empty() || self.users.contains(&peer.uid) {
            true => Ok(peer),
            false => Err(ProtocolError::Peer { uid: peer.uid, pid: peer.pid }),
        }
    }
}
