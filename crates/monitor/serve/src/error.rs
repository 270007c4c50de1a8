//! The errors of a server.

use std::io;
use std::net::SocketAddr;

use bellows_sys::remedy;

/// The reason why a server cannot start or go on.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// It cannot listen at its address.
    #[error("cannot listen on {0}: {1}; {help}", help = listen_help(.0, .1))]
    Listen(SocketAddr, io::Error),
    /// It cannot listen at its Unix socket. The error names the path, and the way out.
    #[error("{0}")]
    Socket(io::Error),
    /// The kernel refuses what the server needs to wait for connections.
    #[error("cannot wait for connections: {0}; check the limits of open files and threads (`ulimit -n -u`)")]
    Runtime(io::Error),
}

/// Ports below this one are for processes with a capability.
const FIRST_FREE_PORT: u16 = 1024;

/// What to do when an address is refused.
fn listen_help(address: &SocketAddr, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::PermissionDenied if (1..FIRST_FREE_PORT).contains(&address.port()) => {
            let port = address.port();
            format!("port {port} is privileged: give one from {FIRST_FREE_PORT} on, or grant CAP_NET_BIND_SERVICE")
        }
        io::ErrorKind::PermissionDenied => "the system forbids it; give another address or port".to_owned(),
        _ => remedy(error, "give another address or port").to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_privileged_port_is_no_matter_of_folders() {
        for (port, expected) in [(80, "CAP_NET_BIND_SERVICE"), (1023, "from 1024 on"), (8080, "the system forbids it")]
        {
            let refused = io::Error::from_raw_os_error(13);
            let said = ServeError::Listen(SocketAddr::from(([127, 0, 0, 1], port)), refused).to_string();
            assert!(said.contains(expected) && !said.contains("folder"), "{said}");
        }
    }
}
