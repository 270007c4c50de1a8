//! The side that asks.
//!
//! The kernel accepts connections for a process that has been stopped, so a client never waits without an end: it gives up
//! after a time, and says why nothing came.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use bellows_observe::RuntimeDir;

use super::protocol::{Reply, Request, line_of};
use crate::InspectError;
use crate::networks::{Obstacle, obstacle};
use crate::text::{harmless, span};

/// How long a reply may take.
pub const REPLY_PATIENCE: Duration = Duration::from_secs(10);

/// How long a reload may take: it opens files, which may be slow.
pub const RELOAD_PATIENCE: Duration = Duration::from_secs(60);

/// How long an obstacle may last while a client waits.
pub const OBSTACLE_PATIENCE: Duration = Duration::from_secs(5);

/// How often a client that waits looks for an obstacle.
const LOOK: Duration = Duration::from_millis(200);

/// The longest reply: that to a bad configuration quotes it.
const MAX_REPLY: u64 = 16 << 20;

/// Bytes that are read at a time.
const CAPACITY: usize = 256 << 10;

/// Asks a running engine and waits for the answer.
///
/// # Errors
/// When it is not there, does not answer, or refuses.
pub fn ask(runtime_dir: &RuntimeDir, request: &Request) -> Result<Reply, InspectError> {
    let patience = if matches!(request, Request::Reload { .. }) { RELOAD_PATIENCE } else { REPLY_PATIENCE };
    ask_within(runtime_dir, request, patience)
}

/// Asks a running engine and waits for the answer, for some time at most.
///
/// # Errors
/// As [`ask`].
pub fn ask_within(runtime_dir: &RuntimeDir, request: &Request, patience: Duration) -> Result<Reply, InspectError> {
    Ok(Connection::open_within(runtime_dir, request, patience)?.0)
}

/// A connection on which more comes behind the reply.
pub struct Connection {
    stream: BufReader<DeadlineStream>,
}

impl Connection {
    /// Asks a running engine and waits for the answer.
    ///
    /// # Errors
    /// As [`ask`].
    pub fn open(runtime_dir: &RuntimeDir, request: &Request) -> Result<(Reply, Connection), InspectError> {
        Connection::open_within(runtime_dir, request, REPLY_PATIENCE)
    }

    fn open_within(
        runtime_dir: &RuntimeDir,
        request: &Request,
        patience: Duration,
    ) -> Result<(Reply, Connection), InspectError> {
        let name = runtime_dir.name();
        let start = Instant::now();
        let unreachable = |error: io::Error| {
            let Some(pid) = runtime_dir.process() else {
                return InspectError::Request(format!(
                    "`{name}` is not running any more; `bellows ps --clean` removes what it left"
                ));
            };
            let said = match (is_timeout(&error), obstacle(runtime_dir)) {
                (true, Some(obstacle)) => {
                    format!("has not answered for {}: {}", span(start.elapsed()), obstacle.advice(&name, pid))
                }
                (true, None) => format!(
                    "has not answered for {}; try again, or end it with `bellows stop --kill {name}`",
                    span(start.elapsed())
                ),
                (false, _) => format!("does not answer: {error}"),
            };
            let later = match (is_timeout(&error), request) {
                (true, Request::Reload { .. }) => "; it may still reload when it goes on",
                (true, Request::Stop) => "; it stops if it goes on",
                _ => "",
            };
            InspectError::Failed(format!("`{name}` (process {pid}) {said}{later}"))
        };
        let (reply, connection) = exchange(runtime_dir, request, patience).map_err(unreachable)?;
        match reply {
            Reply::Refused { mistake: true, message } => Err(InspectError::Diagnosed(harmless(&message))),
            Reply::Refused { mistake: false, message } => Err(InspectError::Failed(harmless(&message))),
            reply => Ok((reply, connection)),
        }
    }

    /// What comes, for some time at most if one is given. Reading fails before when the network has met an
    /// [obstacle](Obstacle) that lasts; [`Connection::given_up`] tells of both.
    pub fn stream(&mut self, patience: Option<Duration>) -> &mut BufReader<DeadlineStream> {
        let patient = self.stream.get_mut();
        // A moment too far away to be told is as good as none.
        patient.deadline = patience.and_then(|patience| Instant::now().checked_add(patience));
        patient.streams = true;
        &mut self.stream
    }

    /// Why nothing more is waited for, if that is so.
    pub fn given_up(&self) -> Option<&str> {
        self.stream.get_ref().given_up.as_deref()
    }

    /// What ends the stream, for other threads.
    ///
    /// # Errors
    /// If there are too many open files.
    pub fn hangup(&self) -> io::Result<Hangup> {
        Ok(Hangup(self.stream.get_ref().stream.try_clone()?))
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

/// A stream whose reader gives up at a deadline, or when the network has met an obstacle that lasts.
pub struct DeadlineStream {
    stream: UnixStream,
    runtime_dir: RuntimeDir,
    deadline: Option<Instant>,
    /// Whether packets are waited for, which a hung engine does not send; else a reply, which its process may still give.
    streams: bool,
    given_up: Option<String>,
}

impl DeadlineStream {
    /// An obstacle because of which what is waited for will not come.
    fn obstacle(&self) -> Option<Obstacle> {
        obstacle(&self.runtime_dir).filter(|obstacle| match obstacle {
            Obstacle::Stopped => true,
            Obstacle::Hang(hang) => self.streams || !hang.is_restart(),
        })
    }
}

impl Read for DeadlineStream {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let mut since = None;
        loop {
            match self.stream.read(to) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                read => return read,
            }
            let now = Instant::now();
            let obstacle = self.obstacle();
            since = obstacle.as_ref().map(|_| since.unwrap_or(now));
            let has_lasted = since.is_some_and(|since| now.duration_since(since) >= OBSTACLE_PATIENCE);
            if !has_lasted && self.deadline.is_none_or(|deadline| now < deadline) {
                continue;
            }
            let why = match (obstacle, self.runtime_dir.process()) {
                (Some(obstacle), Some(pid)) => obstacle.advice(&self.runtime_dir.name(), pid),
                _ => "it says nothing any more".to_owned(),
            };
            self.given_up = Some(why);
            return Err(ErrorKind::TimedOut.into());
        }
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::WouldBlock)
}

/// Connects, for some time at most: a process that does not accept connections has a queue of them, which may be full.
fn connect(runtime_dir: &RuntimeDir, patience: Duration) -> io::Result<UnixStream> {
    let (sender, connected) = channel();
    let runtime_dir = runtime_dir.look();
    // The thread stays behind when it is given up; the command ends soon.
    thread::Builder::new().name("connect".to_owned()).spawn(move || sender.send(runtime_dir.connect()))?;
    connected.recv_timeout(patience).unwrap_or_else(|_| Err(ErrorKind::TimedOut.into()))
}

fn exchange(runtime_dir: &RuntimeDir, request: &Request, patience: Duration) -> io::Result<(Reply, Connection)> {
    let deadline = Instant::now().checked_add(patience);
    let mut stream = connect(runtime_dir, patience.min(REPLY_PATIENCE))?;
    stream.set_read_timeout(Some(LOOK))?;
    stream.set_write_timeout(Some(patience.clamp(LOOK, REPLY_PATIENCE)))?;
    stream.write_all(&line_of(request)?)?;
    let patient = DeadlineStream { stream, runtime_dir: runtime_dir.look(), deadline, streams: false, given_up: None };
    let mut stream = BufReader::with_capacity(CAPACITY, patient);
    let mut reply = String::new();
    stream.by_ref().take(MAX_REPLY).read_line(&mut reply)?;
    if reply.is_empty() {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    Ok((serde_json::from_str(&reply)?, Connection { stream }))
}
