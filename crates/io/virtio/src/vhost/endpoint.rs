//! The source of connections: a socket that we open, or one to which we connect and retry.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use bellows_handover::Signal;
use bellows_ipc::socket;
use bellows_ipc::socket_file::SocketFile;
use bellows_sys::access::FileAccess;
use bellows_sys::wake::sleep_until_readable;

use super::Mode;
use super::closer::{Closer, UntrustedFd};

/// Delay before the next attempt to connect: first and maximum.
pub(super) const FIRST_PAUSE: Duration = Duration::from_millis(20);
pub(super) const MAX_PAUSE: Duration = Duration::from_secs(1);

/// A source of connections.
pub(super) enum Endpoint {
    Server(Server),
    Client(Client),
}

impl Endpoint {
    /// # Errors
    /// For a server: another process listens there, the path is not a socket, or those of `bind(2)`.
    pub(super) fn open(path: &Path, mode: Mode, access: FileAccess, closer: &Closer) -> io::Result<Endpoint> {
        Ok(match mode {
            Mode::Server => Endpoint::Server(Server::new(Listening::open(path, access, closer)?)),
            Mode::Client => Endpoint::Client(Client { path: path.to_owned(), pause: Duration::ZERO }),
        })
    }

    /// Waits for the next connection; `None` when the thread must end. Meanwhile `look` is called now and then, and
    /// returns how soon to call it again; `waits` gets the reason why there is no connection, or `None` when there is
    /// one.
    pub(super) fn next(
        &mut self,
        signal: &Signal,
        mut look: impl FnMut() -> Option<Duration>,
        mut waits: impl FnMut(Option<String>),
    ) -> Option<UnixStream> {
        loop {
            signal.clear();
            if signal.has_ended() {
                return None;
            }
            let pulse = look();
            let found = match self {
                Endpoint::Server(server) => server.accept(signal, pulse),
                // Its sleeps are short anyway.
                Endpoint::Client(client) => client.connect(signal, &mut waits),
            };
            if found.is_some() {
                return found;
            }
        }
    }
}

/// Delays the next attempt after a useless connection.
pub(super) fn pause(time: Duration, signal: &Signal) {
    let _ = sleep_until_readable(&[signal.as_fd()], Some(time));
}

/// A socket that we opened, and which of the servers that share it accepts connections.
pub(super) struct Listening {
    /// Connections that nobody has accepted contain untrusted descriptors.
    listener: UntrustedFd<UnixListener>,
    path: PathBuf,
    /// The number of the server that accepts connections.
    turn: AtomicU64,
    servers: AtomicU64,
}

impl Listening {
    fn open(path: &Path, access: FileAccess, closer: &Closer) -> io::Result<Arc<OwnSocket>> {
        let (file, listener) = SocketFile::open(path, |place| socket::listen(place, access))?;
        let listener = UntrustedFd::new(listener, closer);
        let (turn, servers) = (AtomicU64::new(0), AtomicU64::new(0));
        let listening = Arc::new(Listening { listener, path: path.to_owned(), turn, servers });
        Ok(Arc::new(OwnSocket { listening, file }))
    }
}

/// A socket that we opened, and its file. Dropping it ends the socket: connections are refused, even if a thread that
/// hangs still has the socket open, and the file is removed.
pub(super) struct OwnSocket {
    listening: Arc<Listening>,
    file: SocketFile,
}

impl Drop for OwnSocket {
    fn drop(&mut self) {
        socket::refuse_all(&self.listening.listener);
    }
}

/// One of the servers that share a socket: a device, or its successor.
#[derive(Clone)]
pub(super) struct Server {
    listening: Arc<Listening>,
    /// The control thread has no handle of it, because it may not remove files.
    file: Option<Arc<OwnSocket>>,
    number: u64,
}

impl Server {
    /// Adds a server to a socket. From now on it alone accepts connections.
    fn new(file: Arc<OwnSocket>) -> Server {
        let listening = Arc::clone(&file.listening);
        let number = listening.servers.fetch_add(1, SeqCst);
        let server = Server { listening, file: Some(file), number };
        server.take_turn();
        server
    }

    /// Its successor, if this one is the owner's.
    fn successor(&self) -> Option<Server> {
        self.file.clone().map(Server::new)
    }

    /// Whether it has replaced another server.
    fn is_successor(&self) -> bool {
        self.number > 0
    }

    /// Accepts connections from now on. The caller must [raise](Signal::raise) the signal of the previous server.
    fn take_turn(&self) {
        self.listening.turn.store(self.number, SeqCst);
    }

    /// The path of the socket.
    fn path(&self) -> &Path {
        &self.listening.path
    }

    /// Accepts a connection, if there is one within this time.
    fn accept(&self, signal: &Signal, time: Option<Duration>) -> Option<UnixStream> {
        if self.listening.turn.load(SeqCst) != self.number {
            let _ = sleep_until_readable(&[signal.as_fd()], time);
            return None;
        }
        match socket::accept(&self.listening.listener) {
            Ok(socket) => return Some(socket),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let _ = sleep_until_readable(&[self.listening.listener.as_fd(), signal.as_fd()], time);
            }
            // No free descriptor, or a client that has gone already: no reason to retry without a pause.
            Err(_) => {
                pause(FIRST_PAUSE, signal);
            }
        }
        None
    }
}

/// The part of an endpoint that the owner of a control thread keeps, so that another thread can replace it.
pub(super) struct EndpointHold {
    /// The socket, if it is ours.
    server: Option<Server>,
    /// The permissions and group of the socket's file.
    access: FileAccess,
    signal: Arc<Signal>,
}

impl EndpointHold {
    /// Creates one for a thread with this signal, which gets the endpoint: the parts that only its owner may use are
    /// moved out of the endpoint.
    pub(super) fn new(endpoint: &mut Endpoint, access: FileAccess, signal: &Arc<Signal>) -> EndpointHold {
        let server = match endpoint {
            Endpoint::Server(server) => {
                let owner = server.clone();
                server.file = None;
                Some(owner)
            }
            Endpoint::Client(_) => None,
        };
        EndpointHold { server, access, signal: Arc::clone(signal) }
    }

    /// Starts another thread. If both are servers at one socket, it stays open, and new connections go to the new
    /// thread. The existing connection ends with the old thread.
    ///
    /// # Errors
    /// Those of the start, and of opening another endpoint; the old one continues unchanged.
    pub(super) fn succeed<T>(
        &self,
        path: &Path,
        mode: Mode,
        open: impl FnOnce() -> io::Result<Endpoint>,
        start: impl FnOnce(Endpoint) -> io::Result<T>,
    ) -> io::Result<T> {
        let same = self.server.as_ref().filter(|server| mode == Mode::Server && server.path() == path);
        let Some((server, successor)) = same.and_then(|server| Some((server, server.successor()?))) else {
            return start(open()?);
        };
        let started = start(Endpoint::Server(successor));
        if started.is_err() {
            server.take_turn();
        }
        self.signal.raise();
        started
    }

    /// Begins the run: our socket replaces an abandoned one, and a socket of another server gets our permissions.
    pub(super) fn begin(&self) {
        let Some((server, file)) = self.server.as_ref().and_then(|server| Some((server, server.file.as_ref()?))) else {
            return;
        };
        file.file.begin();
        if server.is_successor()
            && let Err(error) = socket::give_access(server.path(), self.access)
        {
            tracing::error!("{}: the socket keeps its old permissions: {error}", server.path().display());
        }
    }

    /// Accepts connections again after a failed attempt to [succeed](EndpointHold::succeed) it.
    pub(super) fn resume(&self) {
        if let Some(server) = &self.server {
            server.take_turn();
        }
        self.wake();
    }

    /// Wakes the control thread.
    pub(super) fn wake(&self) {
        self.signal.raise();
    }
}

/// A socket that the other side opens.
pub(super) struct Client {
    path: PathBuf,
    /// Delay before the next attempt, also after a connection: the other side may close each one at once.
    pause: Duration,
}

impl Client {
    fn connect(&mut self, signal: &Signal, waits: &mut impl FnMut(Option<String>)) -> Option<UnixStream> {
        pause(self.pause, signal);
        if signal.has_ended() {
            return None;
        }
        let socket = socket::connect(&self.path);
        let why = |error| format!("cannot connect to {}: {error}; retrying", self.path.display());
        waits(socket.as_ref().err().map(why));
        let socket = socket.ok();
        self.pause = match socket {
            Some(_) => FIRST_PAUSE,
            None => (2 * self.pause).clamp(FIRST_PAUSE, MAX_PAUSE),
        };
        socket
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use bellows_testkit::scratch;

    fn open(path: &Path, mode: Mode) -> io::Result<Endpoint> {
        Endpoint::open(path, mode, FileAccess::default(), &Closer::start().unwrap())
    }

    #[test]
    fn a_stale_socket_is_replaced_and_a_used_one_is_not() {
        let folder = scratch();
        let path = folder.path().join("s");
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let Endpoint::Server(waits) = open(&path, Mode::Server).unwrap() else { panic!("a server") };
        let error = open(&path, Mode::Server).err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse, "it will take the place of the stale one");
        let refused = || UnixStream::connect(&path).unwrap_err().kind() == io::ErrorKind::ConnectionRefused;
        assert!(refused(), "the stale one is not touched before the run begins");
        drop(waits);
        assert!(refused() && fs::read_dir(folder.path()).unwrap().count() == 1, "nor if it never begins");

        let server = open(&path, Mode::Server).unwrap();
        if let Endpoint::Server(server) = &server {
            server.file.as_ref().unwrap().file.begin();
        }
        UnixStream::connect(&path).unwrap();
        let error = open(&path, Mode::Server).err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        assert!(error.to_string().contains("already listens at"), "{error}");
        assert!(path.exists());
        drop(server);
        assert!(!path.exists());

        fs::write(&path, "mine").unwrap();
        let error = open(&path, Mode::Server).err().unwrap();
        assert!(error.to_string().contains("is not a socket"), "{error}");
        assert_eq!(fs::read(&path).unwrap(), b"mine");
        let error = open(&folder.path().join("none/s"), Mode::Server).err().unwrap();
        assert!(error.to_string().starts_with("cannot listen at"), "{error}");
    }

    #[test]
    fn a_server_that_ends_leaves_its_successors_socket_alone() {
        let folder = scratch();
        let path = folder.path().join("s");
        let server = open(&path, Mode::Server).unwrap();
        fs::remove_file(&path).unwrap();
        let _successor = UnixListener::bind(&path).unwrap();
        drop(server);
        assert!(path.exists());
    }

    /// A control thread that hangs keeps its end of the socket.
    #[test]
    fn a_socket_ends_with_its_owner_even_if_others_have_it_open() {
        let folder = scratch();
        let path = folder.path().join("s");
        let mut endpoint = open(&path, Mode::Server).unwrap();
        let hold = EndpointHold::new(&mut endpoint, FileAccess::default(), &Arc::new(Signal::new().unwrap()));
        let other = folder.path().join("link");
        fs::hard_link(&path, &other).unwrap();
        let _waits = UnixStream::connect(&other).unwrap();
        drop(hold);
        assert!(!path.exists());
        assert_eq!(UnixStream::connect(&other).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        drop(endpoint);
    }

    #[test]
    fn a_socket_that_is_handed_on_gets_the_successors_permissions_when_the_run_begins() {
        use std::os::unix::fs::PermissionsExt;
        let folder = scratch();
        let path = folder.path().join("s");
        let access = |mode| FileAccess { mode: Some(mode), group: None };
        let closer = Closer::start().unwrap();
        let signal = Arc::new(Signal::new().unwrap());
        let mut endpoint = Endpoint::open(&path, Mode::Server, access(0o660), &closer).unwrap();
        let first = EndpointHold::new(&mut endpoint, access(0o660), &signal);
        let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(), 0o660);
        let none = || panic!("the socket stays open");
        let second = first.succeed(&path, Mode::Server, none, |mut endpoint| {
            Ok(EndpointHold::new(&mut endpoint, access(0o600), &signal))
        });
        let second = second.unwrap();
        assert_eq!(mode(), 0o660, "a reload may still fail");
        second.begin();
        assert_eq!(mode(), 0o600);
        drop(first);
        assert!(path.exists());
        drop(second);
        assert!(!path.exists());
    }

    #[test]
    fn a_successor_accepts_in_place_of_its_predecessor_until_that_takes_its_turn_back() {
        let folder = scratch();
        let path = folder.path().join("s");
        let (first, second) = (
            Server::new(Listening::open(&path, FileAccess::default(), &Closer::start().unwrap()).unwrap()),
            Signal::new().unwrap(),
        );
        let successor = first.successor().unwrap();
        let client = UnixStream::connect(&path).unwrap();
        second.raise();
        assert!(first.accept(&second, None).is_none());
        assert!(successor.accept(&second, None).is_some());
        drop(client);
        first.take_turn();
        let _client = UnixStream::connect(&path).unwrap();
        assert!(successor.accept(&second, None).is_none());
        assert!(first.accept(&second, None).is_some());
        drop(first);
        assert!(path.exists());
        drop(successor);
        assert!(!path.exists());
    }

    #[test]
    fn a_client_finds_a_server_that_comes_later_and_a_wait_ends_when_it_is_to_end() {
        let folder = scratch();
        let path = folder.path().join("s");
        let signal = Signal::new().unwrap();
        let gone = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            let client = scope.spawn(|| {
                let mut client = open(&path, Mode::Client).unwrap();
                let found = client.next(&signal, || None, |_| ()).is_some();
                gone.wait();
                (found, client.next(&signal, || None, |_| ()).is_some())
            });
            std::thread::sleep(Duration::from_millis(50));
            let mut server = open(&path, Mode::Server).unwrap();
            assert!(server.next(&signal, || None, |_| ()).is_some());
            drop(server);
            gone.wait();
            signal.end();
            assert_eq!(client.join().unwrap(), (true, false));
        });
    }
}
