//! Where to listen.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

/// Where a server listens: `127.0.0.1:9400`, `[::1]:9400`, or `unix:/run/bellows.sock`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// An address of this machine and a port. With port 0, the kernel chooses one.
    Tcp(SocketAddr),
    /// A socket in the file system, which only this user can connect to.
    Unix(PathBuf),
}

/// A text that is no address to listen on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no address to listen on; give an IP address and a port, such as 127.0.0.1:9400 or [::1]:9400 (0.0.0.0 \
     and [::] stand for all interfaces), or unix:PATH for a socket"
)]
pub struct AddressError(String);

impl Address {
    /// Whether only processes of this machine can connect.
    pub fn is_local(&self) -> bool {
        match self {
            Address::Tcp(address) => address.ip().to_canonical().is_loopback(),
            Address::Unix(_) => true,
        }
    }

    /// The start of links to this address: `http://127.0.0.1:9400`. `None` for a Unix socket, which browsers cannot
    /// open.
    pub fn url(&self) -> Option<String> {
        match self {
            Address::Tcp(address) => Some(format!("http://{address}")),
            Address::Unix(_) => None,
        }
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Address, AddressError> {
        let error = || AddressError(text.to_owned());
        if let Some(path) = text.strip_prefix("unix:") {
            return if path.is_empty() { Err(error()) } else { Ok(Address::Unix(path.into())) };
        }
        if let Some(port) = text.strip_prefix("localhost:") {
            return format!("127.0.0.1:{port}").parse().map(Address::Tcp).map_err(|_| error());
        }
        text.parse().map(Address::Tcp).map_err(|_| error())
    }
}

impl fmt::Display for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(address) => address.fmt(formatter),
            Address::Unix(path) => write!(formatter, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_written() {
        for text in ["127.0.0.1:9400", "[::1]:9400", "0.0.0.0:1", "unix:/run/b.sock", "unix:b.sock"] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
        assert_eq!("localhost:80".parse::<Address>().unwrap().to_string(), "127.0.0.1:80");
        for text in ["", "9400", ":9400", "127.0.0.1", "::1:9400", "example.org:80", "unix:", "127.0.0.1:65536"] {
            let error = text.parse::<Address>().unwrap_err().to_string();
            assert!(error.contains("127.0.0.1:9400") && error.contains("unix:PATH"), "{error}");
        }
    }

    #[test]
    fn loopback_and_sockets_are_local() {
        for (text, local) in [
            ("127.0.0.1:1", true),
            ("127.1.2.3:1", true),
            ("[::1]:1", true),
            ("[::ffff:127.0.0.1]:1", true),
            ("unix:s", true),
            ("0.0.0.0:1", false),
            ("[::]:1", false),
            ("192.0.2.1:1", false),
        ] {
            assert_eq!(text.parse::<Address>().unwrap().is_local(), local, "{text}");
        }
    }
}
