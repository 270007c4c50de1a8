//! The side that asks.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use bellows_engine::Home;

use super::protocol::{Reply, Request};
use crate::failure::Failure;
use crate::terminal::harmless;

/// How long a reply may take: a reload opens files, which may be slow.
const PATIENCE: Duration = Duration::from_secs(60);

/// The longest reply: that to a bad configuration quotes it.
const LONGEST_REPLY: u64 = 16 << 20;

/// Asks a running engine and waits for the answer.
///
/// # Errors
/// When it is not there, does not answer, or refuses.
pub fn ask(home: &Home, request: &Request) -> Result<Reply, Failure> {
    let name = home.name();
    let unreachable = |error| match home.process() {
        Some(pid) => Failure::Failed(format!("`{name}` (process {pid}) does not answer: {error}")),
        None => {
            Failure::Mistake(format!("`{name}` is not running any more; `bellows ps --clean` removes what it left"))
        }
    };
    let reply = exchange(home, request).map_err(unreachable)?;
    match reply {
        Reply::Refused { mistake: true, message } => Err(Failure::Diagnosed(harmless(&message))),
        Reply::Refused { mistake: false, message } => Err(Failure::Failed(harmless(&message))),
        reply => Ok(reply),
    }
}

fn exchange(home: &Home, request: &Request) -> std::io::Result<Reply> {
    let mut stream = UnixStream::connect(home.control())?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    stream.write_all(&line)?;
    let mut reply = String::new();
    BufReader::new(stream.take(LONGEST_REPLY)).read_line(&mut reply)?;
    if reply.is_empty() {
        return Err(std::io::ErrorKind::UnexpectedEof.into());
    }
    Ok(serde_json::from_str(&reply)?)
}
