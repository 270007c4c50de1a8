//! The control channel of a memif, on the control thread: clients are accepted, or the server is found, and the rings of
//! a complete handshake become queues.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bellows_ipc::seqpacket::{self, Listener};
use bellows_memif::{Channel, ClientConfig, ClientHandshake, Regions, ServerConfig, ServerHandshake, Session};
use bellows_sys::access::FileAccess;
use bellows_sys::remedy;
use bellows_sys::wake::sleep_until_readable;

use super::{MemifConfig, MemifQueue, MemifRole};
use crate::release::wait_for_other_owners;
use crate::status::PortStatus;
use crate::{OpenError, PortSource};

/// Maximum number of clients whose handshakes go on at the same time.
const MAX_PENDING: usize = 8;

/// The longest time for a handshake.
const MAX_HANDSHAKE: Duration = Duration::from_secs(2);

/// Time for which a server that has accepted the connection is waited for at once.
const ANSWER: Duration = Duration::from_millis(200);

/// A session that ends sooner is followed by a pause: peers that come and go must not keep the threads busy.
const SHORT: Duration = Duration::from_millis(100);

/// The source of the queues of a port with a memif.
pub struct MemifSource {
    config: MemifConfig,
    /// Whether our socket may be waited for, because another port of this process is about to release it.
    is_patient: bool,
    listener: Option<Listener>,
    /// Clients with which the handshake is not complete, and when they came.
    clients: Vec<(ServerHandshake, Instant)>,
    /// The server with which it is not complete, and since when.
    server: Option<(ClientHandshake, Instant)>,
    /// Why the last handshake failed.
    refusal: Option<String>,
    session: Option<Open>,
    /// Whether the last session was short, or the last handshake failed.
    pauses: bool,
}

/// A session whose queues are open.
struct Open {
    channel: Channel,
    regions: Arc<Regions>,
    since: Instant,
}

impl MemifSource {
    /// A source for this configuration. `is_patient` if another port of this process may still have the socket.
    pub fn new(config: MemifConfig, is_patient: bool) -> MemifSource {
        MemifSource {
            config,
            is_patient,
            listener: None,
            clients: Vec::new(),
            server: None,
            refusal: None,
            session: None,
            pauses: false,
        }
    }

    /// The session of the first client whose handshake is complete.
    fn accept(&mut self, config: &ServerConfig, access: FileAccess) -> Result<Option<Session>, OpenError> {
        let listener = match self.listener.take() {
            Some(listener) => listener,
            None => Listener::open(&self.config.socket, access).map_err(|error| self.no_listener(&error))?,
        };
        let listener = self.listener.insert(listener);
        while self.clients.len() < MAX_PENDING {
            match listener.accept().map(|socket| ServerHandshake::new(Channel::new(socket), config)) {
                Ok(Ok(client)) => self.clients.push((client, Instant::now())),
                // It has gone already.
                Ok(Err(_)) => self.pauses = true,
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::ConnectionAborted) => {
                    break;
                }
                Err(error) => {
                    self.pauses = true;
                    let help = remedy(&error, "end other programs, or raise their limits with `ulimit`");
                    return Err(OpenError::Failed(format!("a client cannot be accepted: {error}; {help}")));
                }
            }
        }
        let clients = std::mem::take(&mut self.clients);
        let mut free = !clients.iter().any(|(client, _)| client.is_admitted());
        let mut complete = None;
        for (mut client, since) in clients {
            let was_admitted = client.is_admitted();
            let result = client.advance(config, (free || was_admitted) && complete.is_none());
            free &= was_admitted || !client.is_admitted();
            match result {
                Ok(true) => match client.complete(config) {
                    Ok(session) => complete = Some(session),
                    Err(error) => self.fails(&error.to_string()),
                },
                Ok(false) if since.elapsed() < MAX_HANDSHAKE => self.clients.push((client, since)),
                Ok(false) => {
                    client.channel().disconnect("the handshake took too long");
                    self.fails("the handshake took too long");
                }
                Err(error) => {
                    self.fails(&error.to_string());
                    client.refuse(&error);
                }
            }
        }
        Ok(complete)
    }

    fn fails(&mut self, why: &str) {
        self.refusal = Some(why.to_owned());
        self.pauses = true;
    }

    fn no_listener(&self, error: &io::Error) -> OpenError {
        let is_busy = self.is_patient && error.kind() == io::ErrorKind::AddrInUse;
        let text = match error.raw_os_error() {
            None => error.to_string(),
            Some(_) => {
                let usual = "another process may have this name; end it, or give another `socket`";
                format!("cannot listen at {}: {error}; {}", self.config.socket, remedy(error, usual))
            }
        };
        if is_busy { OpenError::Busy(text) } else { OpenError::Failed(text) }
    }

    /// The session with the server.
    fn connect(&mut self, config: &ClientConfig) -> Result<Option<Session>, OpenError> {
        let (mut server, since) = match self.server.take() {
            Some(server) => server,
            None => {
                let socket = seqpacket::connect(&self.config.socket).map_err(|error| self.not_there(&error))?;
                (ClientHandshake::new(Channel::new(socket)), Instant::now())
            }
        };
        // A server that is there answers at once, and the packets of the first breath find the queues.
        let start = Instant::now();
        loop {
            match server.advance(config) {
                Ok(true) => return Ok(server.complete()),
                Ok(false) if start.elapsed() < ANSWER => {
                    let left = ANSWER.saturating_sub(start.elapsed());
                    let _ = sleep_until_readable(&[server.as_fd()], Some(left));
                    continue;
                }
                Ok(false) if since.elapsed() < MAX_HANDSHAKE => self.server = Some((server, since)),
                // It may have another client.
                Ok(false) => self.fails("the server does not answer; does it have another client?"),
                Err(error) => {
                    self.fails(&error.to_string());
                    server.refuse(&error);
                }
            }
            break;
        }
        Ok(None)
    }

    /// Why the server cannot be reached.
    fn not_there(&self, error: &io::Error) -> OpenError {
        use io::ErrorKind::{ConnectionRefused, NotFound, WouldBlock};
        let socket = &self.config.socket;
        match error.kind() {
            NotFound => OpenError::Missing(format!("there is no socket {socket}; the server opens it")),
            ConnectionRefused => OpenError::Missing(format!("no server has the socket {socket} open")),
            WouldBlock => OpenError::Missing(format!("too many connections wait at the socket {socket}")),
            _ => {
                let usual = "is it the socket of a memif, and may this user write to it?";
                OpenError::Failed(format!("cannot connect to {socket}: {error}; {}", remedy(error, usual)))
            }
        }
    }

    /// What is waited for, and how the last attempt failed.
    fn waits(&self) -> String {
        let socket = &self.config.socket;
        let what = match &self.config.role {
            MemifRole::Server(..) => format!("no client has connected to {socket}"),
            MemifRole::Client(_) => format!("the server at {socket} has not accepted the connection"),
        };
        match &self.refusal {
            Some(why) => format!("{what}; the last attempt failed: {why}"),
            None => what,
        }
    }

    /// The queues of a session.
    fn begin(&mut self, session: Session, status: &PortStatus) -> Vec<MemifQueue> {
        let Session { channel, peer: name, regions, receivers, transmitters, ring_size } = session;
        let peer = channel.peer();
        status.meets(peer.map(|peer| (u64::from(peer.pid), u64::from(peer.uid))));
        let mut text = match peer {
            Some(peer) => format!("process {} of user {}", peer.pid, peer.uid),
            None => "unknown".to_owned(),
        };
        if !name.is_empty() {
            text.push_str(&format!(", interface {name}"));
        }
        let (to_us, from_us) = (receivers.len(), transmitters.len());
        status.update(|snapshot| {
            snapshot.details.peer = Some(text);
            snapshot.details.ring_size = Some(ring_size.to_string());
            snapshot.details.queues = Some(match to_us == from_us {
                true => to_us.to_string(),
                false => format!("{to_us} to receive, {from_us} to send"),
            });
        });
        self.clients.clear();
        self.refusal = None;
        self.session = Some(Open { channel, regions, since: Instant::now() });
        let (mut receivers, mut transmitters) = (receivers.into_iter(), transmitters.into_iter());
        (0..to_us.max(from_us)).map(|_| MemifQueue::new(receivers.next(), transmitters.next())).collect()
    }
}

impl PortSource for MemifSource {
    type Queue = MemifQueue;

    fn open(&mut self, status: &PortStatus) -> Result<Vec<MemifQueue>, OpenError> {
        status.update(|snapshot| snapshot.details.mode = Some(self.config.role.name().to_owned()));
        self.pauses = false;
        let role = self.config.role.clone();
        let session = match &role {
            MemifRole::Server(config, access) => self.accept(config, *access)?,
            MemifRole::Client(config) => self.connect(config)?,
        };
        match session {
            Some(session) => Ok(self.begin(session, status)),
            None => Err(OpenError::Missing(self.waits())),
        }
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        if let Some(session) = &self.session {
            // Further clients wait until this one ends.
            return vec![session.channel.as_fd()];
        }
        let listener = self.listener.as_ref().filter(|_| !self.pauses && self.clients.len() < MAX_PENDING);
        let clients = self.clients.iter().map(|(client, _)| client.as_fd());
        let server = self.server.iter().map(|(server, _)| server.as_fd());
        listener.map(AsFd::as_fd).into_iter().chain(clients).chain(server).collect()
    }

    fn check(&mut self, _status: &PortStatus) -> Option<String> {
        self.session.as_ref().and_then(|session| session.channel.ended())
    }

    fn close(&mut self) {
        let Some(Open { channel, regions, since }) = self.session.take() else { return };
        channel.disconnect("the interface is closed");
        self.pauses = since.elapsed() < SHORT;
        // Unmapping the memory takes too long for the engine.
        wait_for_other_owners(&regions);
    }
}
