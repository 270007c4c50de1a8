//! The side that asks.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use bellows_engine::Home;

use super::protocol::{Reply, Request};
use super::server::line_of;
use crate::failure::Failure;
use crate::terminal::harmless;

/// How long a reply may take: a reload opens files, which may be slow.
const PATIENCE: Duration = Duration::from_secs(60);

/// The longest reply: that to a bad configuration quotes it.
const LONGEST_REPLY: u64 = 16 << 20;

/// Bytes that are read at a time.
const CAPACITY: usize = 256 << 10;

/// Asks a running engine and waits for the answer.
///
/// # Errors
/// When it is not there, does not answer, or refuses.
pub fn ask(home: &Home, request: &Request) -> Result<Reply, Failure> {
    Ok(Connection::open(home, request)?.0)
}

/// A connection on which more comes behind the reply.
pub struct Connection {
    stream: BufReader<UnixStream>,
}

impl Connection {
    /// Asks a running engine and waits for the answer.
    ///
    /// # Errors
    /// As [`ask`].
    pub fn open(home: &Home, request: &Request) -> Result<(Reply, Connection), Failure> {
        let name = home.name();
        let unreachable = |error| match home.process() {
            Some(pid) => Failure::Failed(format!("`{name}` (process {pid}) does not answer: {error}")),
            None => {
                Failure::Mistake(format!("`{name}` is not running any more; `bellows ps --clean` removes what it left"))
            }
        };
        let (reply, connection) = exchange(home, request).map_err(unreachable)?;
        match reply {
            Reply::Refused { mistake: true, message } => Err(Failure::Diagnosed(harmless(&message))),
            Reply::Refused { mistake: false, message } => Err(Failure::Failed(harmless(&message))),
            reply => Ok((reply, connection)),
        }
    }

    /// What comes, however long it takes.
    ///
    /// # Errors
    /// If the system cannot do without a time limit.
    pub fn stream(&mut self) -> std::io::Result<&mut BufReader<UnixStream>> {
        self.stream.get_ref().set_read_timeout(None)?;
        Ok(&mut self.stream)
    }

    /// What ends the stream, for other threads.
    ///
    /// # Errors
    /// If there are too many open files.
    pub fn hangup(&self) -> std::io::Result<Hangup> {
        Ok(Hangup(self.stream.get_ref().try_clone()?))
    }
}

/// Tells the other side that nobody wants the stream any more. What it has sent and its last words still come.
pub struct Hangup(UnixStream);

impl Hangup {
    /// Says so.
    pub fn now(&self) {
        // If that fails, the stream has ended.
        let _ = self.0.shutdown(Shutdown::Write);
    }
}

fn exchange(home: &Home, request: &Request) -> std::io::Result<(Reply, Connection)> {
    let mut stream = UnixStream::connect(home.control())?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(&line_of(request)?)?;
    let mut stream = BufReader::with_capacity(CAPACITY, stream);
    let mut reply = String::new();
    stream.by_ref().take(LONGEST_REPLY).read_line(&mut reply)?;
    if reply.is_empty() {
        return Err(std::io::ErrorKind::UnexpectedEof.into());
    }
    Ok((serde_json::from_str(&reply)?, Connection { stream }))
}
