//! The client of the control socket.
//!
//! The kernel accepts connections even for a stopped process, so a client never waits without a limit: it gives up
//! after a time and says why there was no reply.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use bellows_observe::RuntimeDir;

use super::protocol::{self, Reply, Request, line_of};
use crate::InspectError;
use crate::networks::{Access, Obstacle, obstacle};
use crate::text::{sanitize, span};

/// Timeout for a reply.
pub const REPLY_TIMEOUT: Duration = Duration::from_secs(10);

/// Timeout for a reload, which opens files and may be slow.
pub const RELOAD_TIMEOUT: Duration = Duration::from_secs(60);

/// The time for which a client tolerates an obstacle.
pub const OBSTACLE_TIMEOUT: Duration = Duration::from_secs(5);

/// The interval at which a waiting client checks for an obstacle.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// The maximum length of a reply: that to a bad configuration quotes it.
const MAX_REPLY: u64 = 16 << 20;

/// The number of bytes to read at a time.
const CAPACITY: usize = 256 << 10;

/// Sends a request to a running engine and waits for the reply.
///
/// # Errors
/// When the engine is not running, does not answer, or rejects the request.
pub fn ask(runtime_dir: &RuntimeDir, request: &Request) -> Result<Reply, InspectError> {
    let is_reload = matches!(request, Request::Reload { .. } | Request::Confirm | Request::Undo);
    let patience = if is_reload { RELOAD_TIMEOUT } else { REPLY_TIMEOUT };
    ask_within(runtime_dir, request, patience)
}

/// Sends a request to a running engine and waits for the reply up to a timeout.
///
/// # Errors
/// Those of [`ask`].
pub fn ask_within(runtime_dir: &RuntimeDir, request: &Request, patience: Duration) -> Result<Reply, InspectError> {
    Ok(Connection::open_within(runtime_dir, request, patience)?.0)
}

/// A connection with a stream after the reply.
pub struct Connection {
    stream: BufReader<DeadlineStream>,
}

impl Connection {
    /// Sends a request to a running engine and waits for the reply.
    ///
    /// # Errors
    /// Those of [`ask`].
    pub fn open(runtime_dir: &RuntimeDir, request: &Request) -> Result<(Reply, Connection), InspectError> {
        Connection::open_within(runtime_dir, request, REPLY_TIMEOUT)
    }

    /// As [`Connection::open`], up to a timeout.
    ///
    /// # Errors
    /// Those of [`ask`].
    pub fn open_within(
        runtime_dir: &RuntimeDir,
        request: &Request,
        patience: Duration,
    ) -> Result<(Reply, Connection), InspectError> {
        permit(runtime_dir, request)?;
        let start = Instant::now();
        let (reply, connection) = exchange(runtime_dir, request, patience)
            .map_err(|error| unreachable(runtime_dir, request, start.elapsed(), &error))?;
        Ok((granted(reply)?, connection))
    }

    /// Sends a further request, and waits for the reply up to a timeout.
    ///
    /// # Errors
    /// Those of [`ask`].
    pub fn ask(&mut self, request: &Request, patience: Duration) -> Result<Reply, InspectError> {
        permit(&self.stream.get_ref().runtime_dir, request)?;
        let start = Instant::now();
        let reply = self.exchange(request, patience);
        let runtime_dir = &self.stream.get_ref().runtime_dir;
        granted(reply.map_err(|error| unreachable(runtime_dir, request, start.elapsed(), &error))?)
    }

    fn exchange(&mut self, request: &Request, patience: Duration) -> io::Result<Reply> {
        let inner = self.stream.get_mut();
        inner.deadline = Instant::now().checked_add(patience);
        inner.stream.write_all(&line_of(request)?)?;
        read_reply(&mut self.stream)
    }

    /// The stream after the reply, with a timeout if one is given. Reading fails earlier when the network has a lasting
    /// [obstacle](Obstacle). [`Connection::given_up`] reports both.
    pub fn stream(&mut self, patience: Option<Duration>) -> &mut BufReader<DeadlineStream> {
        let patient = self.stream.get_mut();
        // A deadline too far away to represent counts as none.
        patient.deadline = patience.and_then(|patience| Instant::now().checked_add(patience));
        patient.streams = true;
        &mut self.stream
    }

    /// The reason why the client has stopped waiting, if it has.
    pub fn given_up(&self) -> Option<&str> {
        self.stream.get_ref().given_up.as_deref()
    }

    /// A handle by which other threads end the stream.
    ///
    /// # Errors
    /// If there are too many open files.
    pub fn hangup(&self) -> io::Result<Hangup> {
        Ok(Hangup(self.stream.get_ref().stream.try_clone()?))
    }
}

/// Tells the other side to end the stream. The data that it has sent and its last line still arrive.
pub struct Hangup(UnixStream);

impl Hangup {
    /// Ends the stream.
    pub fn now(&self) {
        // If that fails, the stream has ended.
        let _ = self.0.shutdown(Shutdown::Write);
    }
}

/// A stream whose reader gives up at a deadline, or when the network has a lasting obstacle.
pub struct DeadlineStream {
    stream: UnixStream,
    runtime_dir: RuntimeDir,
    deadline: Option<Instant>,
    /// Whether the client waits for packets, which a hung engine does not send; otherwise for a reply, which its
    /// process may still send.
    streams: bool,
    given_up: Option<String>,
}

impl DeadlineStream {
    /// An obstacle that keeps the awaited data from coming.
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
            let has_lasted = since.is_some_and(|since| now.duration_since(since) >= OBSTACLE_TIMEOUT);
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

/// Refuses to change another user's network that was not [picked](crate::networks::pick) to be changed.
fn permit(runtime_dir: &RuntimeDir, request: &Request) -> Result<(), InspectError> {
    if request.access() == Access::Read || runtime_dir.may_be_changed() {
        return Ok(());
    }
    let name = runtime_dir.name();
    Err(InspectError::Request(format!("`{name}` is another user's and is changed only by that name: write `{name}`")))
}

/// Why a network has not answered.
fn unreachable(runtime_dir: &RuntimeDir, request: &Request, waited: Duration, error: &io::Error) -> InspectError {
    let name = runtime_dir.name();
    let Some(pid) = runtime_dir.process() else {
        return InspectError::Request(format!(
            "`{name}` is not running any more; `bellows ps --clean` removes its remains"
        ));
    };
    let said = match (is_timeout(error), obstacle(runtime_dir)) {
        (true, Some(obstacle)) => {
            format!("has not answered for {}: {}", span(waited), obstacle.advice(&name, pid))
        }
        (true, None) => {
            format!("has not answered for {}; try again, or end it with `bellows stop --kill {name}`", span(waited))
        }
        (false, _) => format!("does not answer: {error}"),
    };
    let later = match (is_timeout(error), request) {
        (true, Request::Reload { .. } | Request::Undo) => "; it may still reload when it continues",
        (true, Request::Stop) => "; it stops if it continues",
        (true, Request::Object { .. } | Request::Confirm) => "; it may still carry out the request when it continues",
        _ => "",
    };
    InspectError::Failed(format!("`{name}` (process {pid}) {said}{later}"))
}

/// A reply that is not a refusal.
fn granted(reply: Reply) -> Result<Reply, InspectError> {
    match reply {
        Reply::Refused { mistake: true, message } => Err(InspectError::Diagnosed(sanitize(&message))),
        Reply::Refused { mistake: false, message } => Err(InspectError::Failed(sanitize(&message))),
        reply => Ok(reply),
    }
}

fn read_reply(stream: &mut BufReader<DeadlineStream>) -> io::Result<Reply> {
    let mut reply = String::new();
    stream.by_ref().take(MAX_REPLY).read_line(&mut reply)?;
    if reply.is_empty() {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    protocol::reply(reply.as_bytes())
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::WouldBlock)
}

/// Connects with a timeout: the queue of a process that does not accept connections may be full.
fn connect(runtime_dir: &RuntimeDir, patience: Duration) -> io::Result<UnixStream> {
    let (sender, connected) = channel();
    let runtime_dir = runtime_dir.for_reading();
    // After a timeout the thread stays behind; the command ends soon.
    thread::Builder::new().name("connect".to_owned()).spawn(move || sender.send(runtime_dir.connect()))?;
    connected.recv_timeout(patience).unwrap_or_else(|_| Err(ErrorKind::TimedOut.into()))
}

fn exchange(runtime_dir: &RuntimeDir, request: &Request, patience: Duration) -> io::Result<(Reply, Connection)> {
    let deadline = Instant::now().checked_add(patience);
    let mut stream = connect(runtime_dir, patience.min(REPLY_TIMEOUT))?;
    stream.set_read_timeout(Some(POLL_INTERVAL))?;
    stream.set_write_timeout(Some(patience.clamp(POLL_INTERVAL, REPLY_TIMEOUT)))?;
    stream.write_all(&line_of(request)?)?;
    let patient =
        DeadlineStream { stream, runtime_dir: runtime_dir.for_reading(), deadline, streams: false, given_up: None };
    let mut stream = BufReader::with_capacity(CAPACITY, patient);
    Ok((read_reply(&mut stream)?, Connection { stream }))
}
