//! What a peer may do.

use std::os::unix::net::UnixStream;
use std::time::Duration;

use bellows_sys::access::FileAccess;
use bellows_sys::socket::{self, Peer};

use super::ProtocolError;
use super::endpoint::MAX_PAUSE;

/// What a peer may do, and who may be one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerPolicy {
    /// The mode and the group of the socket's file, if we open it. Nobody can connect before it has them.
    pub socket_access: FileAccess,
    /// The users who may be on the other side; anybody, if there are none.
    pub users: Vec<u32>,
    /// Whether memory may be a file that does not live in memory. A thread that touches its pages may have to wait
    /// for a disk or another process, and the kernel itself when it asks about the file.
    pub any_file: bool,
    /// Whether the control thread gives up the system calls that the protocol does not need.
    pub confine: bool,
    /// How long a device waits, at most, before it takes another connection after some that ended at once.
    pub longest_pause: Duration,
}

impl Default for PeerPolicy {
    /// Anybody may connect whom the system lets, may share memory alone, and is served by a confined thread.
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
    /// Who is on the other side, if it may be there.
    pub(super) fn admit(&self, socket: &UnixStream) -> Result<Peer, ProtocolError> {
        let peer = socket::peer(socket)?;
        match self.users.is_empty() || self.users.contains(&peer.uid) {
            true => Ok(peer),
            false => Err(ProtocolError::Peer { uid: peer.uid, pid: peer.pid }),
        }
    }
}
