//! The server of the control socket, in the engine's process.
//!
//! Each client has a thread of its own, so a slow client delays neither another client nor the engine. The length of
//! lines and the number of clients are limited, and a line that does not arrive in time ends its connection.

use std::fs::{self, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use bellows_inspect::control::{MAX_REQUEST, Reply, Request, line_of};
use bellows_sys::stack;

use super::conversations::Conversations;
use super::stream::{Listener, Stream};

/// The maximum number of clients at a time.
const MAX_CLIENTS: usize = 32;

/// The timeout for receiving a request and for sending a reply.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The timeout for the next request of a client that an app or object has answered: it may wait for its own input.
const CONVERSATION_TIMEOUT: Duration = Duration::from_secs(600);

/// Bytes that are read at a time.
const PIECE: usize = 16 << 10;

/// The server's view of its process.
pub trait Engine: Send + Sync + 'static {
    /// Carries out a client's request.
    fn answer(&self, request: Request, conversations: &mut Conversations) -> ControlAnswer;
}

/// The reply to a client.
pub enum ControlAnswer {
    /// One line.
    Reply(Reply),
    /// A line, then a stream until one of the two sides ends it. Then the connection is closed.
    Stream(Reply, Stream),
}

impl From<Reply> for ControlAnswer {
    fn from(reply: Reply) -> ControlAnswer {
        ControlAnswer::Reply(reply)
    }
}

/// Listens at `path` until the process ends. Only the owner may use the socket (mode 0700).
///
/// # Errors
/// Those of making a socket, such as a path of more than 107 bytes.
pub fn serve(path: &Path, engine: Arc<dyn Engine>) -> io::Result<()> {
    // Who finds it can connect at once: between binding and listening, connections are refused.
    let opening = path.with_file_name("opening");
    let listener = UnixListener::bind(&opening)?;
    fs::set_permissions(&opening, Permissions::from_mode(0o700))?;
    fs::rename(&opening, path)?;
    let clients = Arc::new(AtomicUsize::new(0));
    thread::Builder::new().name("control".to_owned()).spawn(move || {
        loop {
            match listener.accept() {
                Ok((stream, _)) => welcome(stream, &engine, &clients),
                Err(error) => {
                    // Most likely there are no free descriptors: others will be closed.
                    tracing::warn!("the control socket cannot accept a client: {error}");
                    thread::sleep(Duration::from_millis(500));
                }
            }
        }
    })?;
    Ok(())
}

/// Counts a client as long as it is connected.
struct ClientCount(Arc<AtomicUsize>);

impl Drop for ClientCount {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

fn welcome(stream: UnixStream, engine: &Arc<dyn Engine>, clients: &Arc<AtomicUsize>) {
    let others = clients.fetch_add(1, Relaxed);
    let client_count = ClientCount(Arc::clone(clients));
    if others >= MAX_CLIENTS {
        tracing::warn!("the control socket has {MAX_CLIENTS} clients, its maximum, and rejects another");
        return;
    }
    let engine = Arc::clone(engine);
    let client = thread::Builder::new().name("control client".to_owned()).spawn(move || {
        let _client_count = client_count;
        if let Err(error) = converse(stream, &*engine) {
            tracing::debug!("a control client is gone: {error}");
        }
    });
    if let Err(error) = client {
        tracing::warn!("no thread for a control client: {error}");
    }
}

fn converse(mut stream: UnixStream, engine: &dyn Engine) -> io::Result<()> {
    stream.set_write_timeout(Some(TIMEOUT))?;
    let mut unread = Vec::new();
    let mut conversations = Conversations::default();
    loop {
        let patience = if conversations.is_empty() { TIMEOUT } else { CONVERSATION_TIMEOUT };
        let Some(line) = next_line(&mut stream, &mut unread, patience)? else { return Ok(()) };
        let answer = match serde_json::from_slice(&line) {
            Ok(request) => engine.answer(request, &mut conversations),
            Err(error) => Reply::Refused { mistake: true, message: format!("not a request: {error}") }.into(),
        };
        stack::wipe();
        match answer {
            ControlAnswer::Reply(reply) => stream.write_all(&line_of(&reply)?)?,
            ControlAnswer::Stream(reply, send) => {
                stream.write_all(&line_of(&reply)?)?;
                return send(&mut Listener::new(stream)?);
            }
        }
    }
}

/// The next line; `None` when the client has closed the connection. `unread` keeps the bytes after the line.
fn next_line(stream: &mut UnixStream, unread: &mut Vec<u8>, patience: Duration) -> io::Result<Option<Vec<u8>>> {
    let deadline = Instant::now() + patience;
    let mut seen = 0;
    loop {
        if let Some(end) = unread[seen..].iter().position(|byte| *byte == b'\n') {
            let rest = unread.split_off(seen + end + 1);
            return Ok(Some(std::mem::replace(unread, rest)));
        }
        if unread.len() >= MAX_REQUEST {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "its line is too long"));
        }
        seen = unread.len();
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        // Not by way of the stack: a request may have a key.
        unread.resize(seen + PIECE, 0);
        let count = match stream.read(&mut unread[seen..]) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => None,
            read => Some(read?),
        };
        unread.truncate(seen + count.unwrap_or(0));
        if count == Some(0) {
            return Ok(None);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};

    use bellows_testkit::scratch::{TempDir, scratch};

    use super::*;

    struct Echo;

    impl Engine for Echo {
        fn answer(&self, request: Request, _: &mut Conversations) -> ControlAnswer {
            Reply::Refused { mistake: false, message: format!("{request:?}") }.into()
        }
    }

    fn server() -> (TempDir, std::path::PathBuf) {
        let folder = scratch();
        let path = folder.path().join("control");
        serve(&path, Arc::new(Echo)).unwrap();
        (folder, path)
    }

    fn say(path: &Path, bytes: &[u8]) -> String {
        let mut stream = UnixStream::connect(path).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let _ = stream.write_all(bytes);
        let mut reply = String::new();
        let _ = BufReader::new(stream).read_line(&mut reply);
        reply
    }

    #[test]
    fn requests_are_answered_one_by_one() {
        let (_folder, path) = server();
        assert!(say(&path, b"{\"command\":\"stop\"}\n").contains("Stop"));
        let mut stream = UnixStream::connect(&path).unwrap();
        stream.write_all(b"{\"command\":\"status\"}\n{\"command\":\"reload\"}\n").unwrap();
        let replies: Vec<String> = BufReader::new(stream).lines().take(2).map(Result::unwrap).collect();
        assert!(replies[0].contains("Status") && replies[1].contains("Reload"), "{replies:?}");
    }

    #[test]
    fn garbage_gets_a_reply_and_endless_lines_end_the_connection() {
        let (_folder, path) = server();
        for garbage in [&b"\n"[..], b"hello\n", b"\xff\xfe\n", b"{\"command\":\"explode\"}\n", b"[[[[[[[[[\n"] {
            assert!(say(&path, garbage).contains("not a request"), "{garbage:?}");
        }
        assert_eq!(say(&path, &vec![b'x'; 4 * MAX_REQUEST]), "");
        assert!(say(&path, b"{\"command\":\"stop\"}\n").contains("Stop"), "others are served");
    }

    #[test]
    fn silent_clients_are_disconnected() {
        let (_folder, path) = server();
        let silent: Vec<UnixStream> = (0..2 * MAX_CLIENTS).map(|_| UnixStream::connect(&path).unwrap()).collect();
        let deadline = Instant::now() + 4 * TIMEOUT;
        while !say(&path, b"{\"command\":\"stop\"}\n").contains("Stop") {
            assert!(Instant::now() < deadline, "no client_count becomes free");
            thread::sleep(Duration::from_millis(100));
        }
        drop(silent);
    }
}
