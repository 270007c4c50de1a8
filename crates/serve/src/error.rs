//! The errors of a server.

use std::io;
use std::net::SocketAddr;

use bellows_sys::way_out;

/// The reason why a server cannot start or go on.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// It cannot listen at its address.
    #[error("cannot listen on {0}: {1}; {help}", help = way_out(.1, "give another address or port"))]
    Listen(SocketAddr, io::Error),
    /// It cannot listen at its Unix socket. The error names the path, and the way out.
    #[error("{0}")]
    Socket(io::Error),
    /// The kernel refuses what the server needs to wait for connections.
    #[error("cannot wait for connections: {0}; check the limits of open files and threads (`ulimit -n -u`)")]
    Runtime(io::Error),
}
