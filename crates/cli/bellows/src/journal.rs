//! The journal of systemd: records in its native protocol, <https://systemd.io/JOURNAL_NATIVE_PROTOCOL>.
//!
//! A service whose standard error is the journal (`JOURNAL_STREAM`) sends its log there as records with a priority and
//! fields, and without a time, which the journal adds. Where the socket of the protocol cannot be reached, for example
//! below another root directory, each line begins with its priority, as `sd-daemon(3)` defines.

use std::io;
use std::os::unix::net::UnixDatagram;
use std::sync::OnceLock;
use std::time::Duration;

use rustix::fs::fstat;
use tracing::Level;

/// The socket of the protocol.
const SOCKET: &str = "/run/systemd/journal/socket";

/// The name of the program in the journal.
const IDENTIFIER: &str = "bellows";

/// What the names of fields begin with.
const PREFIX: &str = "BELLOWS_";

/// The field with the network's name.
const NETWORK: &str = "NETWORK";

/// The maximum length of a message in bytes. A record must fit into a datagram.
const MAX_MESSAGE: usize = 48 << 10;

/// How long a record waits for a journal that does not read.
const PATIENCE: Duration = Duration::from_secs(2);

/// The network of this process, once it has a name.
static NETWORK_NAME: OnceLock<String> = OnceLock::new();

/// Names the network in all records from now on.
pub fn set_network(name: &str) {
    let _ = NETWORK_NAME.set(name.to_owned());
}

/// Whether standard error is a stream to the journal.
pub fn is_stderr() -> bool {
    let stream = std::env::var("JOURNAL_STREAM").unwrap_or_default();
    fstat(io::stderr()).is_ok_and(|stderr| is_stream(&stream, stderr.st_dev, stderr.st_ino))
}

/// Whether `JOURNAL_STREAM` names this file, by device and inode.
fn is_stream(stream: &str, device: u64, inode: u64) -> bool {
    let numbers = stream.split_once(':').map(|(device, inode)| (device.parse(), inode.parse()));
    numbers == Some((Ok(device), Ok(inode)))
}

/// The priority of a level, as `syslog(3)` numbers them.
pub fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        Level::DEBUG | Level::TRACE => 7,
    }
}

/// A record. It is also kept as text, for a journal that cannot be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    bytes: Vec<u8>,
    priority: u8,
    message: String,
}

impl Record {
    /// A record of this priority.
    pub fn new(priority: u8, message: &str) -> Record {
        let message = message.trim_end();
        let message = &message[..message.floor_char_boundary(MAX_MESSAGE)];
        let mut record = Record { bytes: Vec::new(), priority, message: message.to_owned() };
        record.push("MESSAGE", message);
        record.push("PRIORITY", &priority.to_string());
        record.push("SYSLOG_IDENTIFIER", IDENTIFIER);
        if let Some(name) = NETWORK_NAME.get() {
            record.field(NETWORK, name);
        }
        record
    }

    /// Adds a field of Bellows. Its name is upper-case there, after `BELLOWS_`.
    pub fn field(&mut self, name: &str, value: &str) {
        let letter = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
        let name: String = PREFIX.chars().chain(name.chars().map(letter)).collect();
        self.push(&name, value);
    }

    fn push(&mut self, name: &str, value: &str) {
        self.bytes.extend_from_slice(name.as_bytes());
        if value.contains('\n') {
            self.bytes.push(b'\n');
            self.bytes.extend_from_slice(&(value.len() as u64).to_le_bytes());
        } else {
            self.bytes.push(b'=');
        }
        self.bytes.extend_from_slice(value.as_bytes());
        self.bytes.push(b'\n');
    }

    /// The number of lines of the message.
    pub fn lines(&self) -> u64 {
        self.message.lines().count().max(1) as u64
    }

    /// Sends the record to the journal.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn send(&self) -> io::Result<()> {
        static SENDER: OnceLock<Option<UnixDatagram>> = OnceLock::new();
        let open = || {
            let sender = UnixDatagram::unbound().ok()?;
            sender.set_write_timeout(Some(PATIENCE)).ok()?;
            Some(sender)
        };
        let sender = SENDER.get_or_init(open).as_ref().ok_or(io::ErrorKind::NotConnected)?;
        // By its path each time: the journal may have been restarted.
        sender.send_to(&self.bytes, SOCKET).map(|_| ())
    }

    /// The record as lines of text, each with its priority.
    pub fn text(&self) -> String {
        let lines = self.message.lines().map(|line| format!("<{}>{line}\n", self.priority));
        lines.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_have_the_form_of_the_protocol() {
        let mut record = Record::new(4, "two\nlines\n");
        record.field("event", "link-down");
        record.field("peer pid", "a\nb");
        let wanted = [
            &b"MESSAGE\n\x09\0\0\0\0\0\0\0two\nlines\n"[..],
            b"PRIORITY=4\nSYSLOG_IDENTIFIER=bellows\n",
            b"BELLOWS_EVENT=link-down\n",
            b"BELLOWS_PEER_PID\n\x03\0\0\0\0\0\0\0a\nb\n",
        ];
        assert_eq!(record.bytes, wanted.concat());
        assert_eq!((record.text().as_str(), record.lines()), ("<4>two\n<4>lines\n", 2));
    }

    #[test]
    fn a_long_message_is_cut_at_a_character() {
        let record = Record::new(6, &"ä".repeat(MAX_MESSAGE));
        assert!(record.message.len() <= MAX_MESSAGE && record.message.chars().all(|c| c == 'ä'));
    }

    #[test]
    fn the_stream_is_known_by_device_and_inode() {
        assert!(is_stream("8:1234", 8, 1234));
        for other in ["", "8", "8:1235", "9:1234", "8:1234:1", "x:1234"] {
            assert!(!is_stream(other, 8, 1234), "{other}");
        }
    }
}
