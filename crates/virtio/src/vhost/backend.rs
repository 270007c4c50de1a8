//! The back end's thread: waits for a driver's process, serves it, and starts again when it has gone.

use std::io;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bellows_handover::{ControlThread, Signal, Stopper, exchange, panic_message};
use bellows_sys::mapping::PeerMemory;

use crate::Features;

use super::channel::{Channel, Incoming};
use super::closer::Closer;
use super::control::{Pace, abandoned, prepare};
use super::device::Device;
use super::endpoint::{Endpoint, EndpointHold, pause};
use super::port::{LentRing, Port};
use super::status::LogEntry;
use super::{BackendStatus, Confinement, Mode, PeerPolicy, ProtocolError};

/// Maximum number of pairs of queues.
pub const MAX_PAIRS: u16 = 64;

/// The configuration of a back end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendConfig {
    /// Path of the socket.
    pub socket: PathBuf,
    /// Who opens the socket.
    pub mode: Mode,
    /// Pairs of queues, 1 to [`MAX_PAIRS`].
    pub queues: u16,
    /// The features to offer. Options that need a missing one, or that other settings exclude, are left out.
    pub features: Features,
    /// The network address for the driver.
    pub mac: Option<[u8; 6]>,
    /// What the driver's process is allowed to do.
    pub policy: PeerPolicy,
}

impl BackendConfig {
    /// The features that are offered.
    fn offered(&self) -> Features {
        let mut features = self.features & Features::DEVICE;
        if self.queues == 1 {
            features = features.without(Features::MQ);
        }
        if self.mac.is_none() {
            features = features.without(Features::MAC);
        }
        features.with(Features::PROTOCOL_FEATURES).coherent()
    }
}

/// The back end's control thread: listens, or connects and retries, and speaks the protocol.
///
/// Dropping it ends the thread, and removes the socket if the thread opened one. It may be dropped before or after the
/// [`Port`].
pub struct Backend {
    ender: Stopper<LentRing>,
    thread: Option<ControlThread>,
    status: Arc<BackendStatus>,
    hold: EndpointHold,
}

impl Backend {
    /// Starts the thread; the socket is open when this returns.
    ///
    /// # Errors
    /// In server mode those of the socket: another process listens there, or the folder is missing or not writable.
    /// `InvalidInput` for an impossible number of queues. System errors: out of descriptors or threads.
    pub fn start(config: BackendConfig) -> io::Result<(Backend, Port)> {
        let closer = Closer::start()?;
        let endpoint = Endpoint::open(&config.socket, config.mode, config.policy.socket_access, &closer)?;
        Backend::start_at(endpoint, config, closer)
    }

    /// Starts the thread in place of one that runs. If both are servers at one socket, it stays open, new connections
    /// go to the new thread, and the existing connection ends when the old back end is dropped.
    ///
    /// # Errors
    /// Those of [`start`](Backend::start); the old one continues unchanged.
    pub fn succeed(&self, config: BackendConfig) -> io::Result<(Backend, Port)> {
        let closer = Closer::start()?;
        let (socket, mode, access) = (config.socket.clone(), config.mode, config.policy.socket_access);
        let open = || Endpoint::open(&socket, mode, access, &closer);
        self.hold.succeed(&socket, mode, open, |endpoint| Backend::start_at(endpoint, config, closer.clone()))
    }

    /// Replaces an abandoned socket at the path by ours, when the run begins. Before this no existing file is touched,
    /// and nobody can connect if there is an abandoned socket.
    pub fn begin(&self) {
        self.hold.begin();
    }

    /// Accepts connections again after a failed attempt to [succeed](Backend::succeed) it.
    pub fn resume(&self) {
        self.hold.resume();
    }

    fn start_at(mut endpoint: Endpoint, config: BackendConfig, closer: Closer) -> io::Result<(Backend, Port)> {
        if config.queues == 0 || config.queues > MAX_PAIRS {
            let message = format!("{} pairs of queues is out of range; give 1 to {MAX_PAIRS}", config.queues);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let pairs = usize::from(config.queues);
        let signal = Arc::new(Signal::new()?);
        let (lender, borrower, ender) = exchange(2 * pairs, Arc::clone(&signal))?;
        let offered = config.offered();
        let notifiers = Device::notifiers(pairs)?;
        let status =
            Arc::new(BackendStatus::new(config.socket.clone(), config.mode, offered, 2 * pairs, notifiers.clone()));
        let policy = config.policy;
        let hold = EndpointHold::new(&mut endpoint, policy.socket_access, &signal);
        let memory = PeerMemory::limited(policy.any_file);
        let device = Device::new(offered, pairs, config.mac, lender, Arc::clone(&status), memory, notifiers);
        let control = Control { endpoint, device, signal, closer, policy, status: Arc::clone(&status), denied: 0 };
        prepare()?;
        let thread = ControlThread::start("vhost-user", move || control.run())?;
        let port = Port::new(borrower, pairs, Arc::clone(&status));
        Ok((Backend { ender, thread: Some(thread), status, hold }, port))
    }

    /// Its status.
    pub fn status(&self) -> Arc<BackendStatus> {
        Arc::clone(&self.status)
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.ender.end();
        if self.thread.take().is_some_and(|thread| !thread.end()) {
            abandoned(self.status.socket());
        }
    }
}

/// How often to check whether there is room for more descriptors.
const LOOK: Duration = Duration::from_millis(50);

/// The state of the thread.
struct Control {
    endpoint: Endpoint,
    device: Device,
    signal: Arc<Signal>,
    closer: Closer,
    policy: PeerPolicy,
    status: Arc<BackendStatus>,
    /// Denied calls that have been logged.
    denied: u64,
}

impl Control {
    fn run(mut self) {
        let confinement = Confinement::begin(self.policy.confine);
        self.status.common.confinement(confinement);
        let mut pace = Pace::new(self.policy.longest_pause);
        while let Some(socket) = self.next() {
            let started = Instant::now();
            self.handle_connection(socket);
            self.log_denials();
            pause(pace.after(started.elapsed()), &self.signal);
        }
    }

    /// The next connection; `None` when the thread must end.
    fn next(&mut self) -> Option<UnixStream> {
        let status = Arc::clone(&self.status);
        let waits = |why: Option<String>| status.common.update(|snapshot| snapshot.waits = why);
        while self.closer.is_full() && !self.signal.has_ended() {
            waits(Some(self.closer.explain()));
            self.device.free_memory();
            pause(LOOK, &self.signal);
            self.signal.clear();
        }
        waits(None);
        self.endpoint.next(&self.signal, || self.device.free_memory(), waits)
    }

    /// Serves one driver's process, whatever it does. A panic ends its connection and discards its state.
    fn handle_connection(&mut self, socket: UnixStream) {
        let channel = Channel::new(socket, Arc::clone(&self.signal), self.closer.clone());
        match catch_unwind(AssertUnwindSafe(|| self.session(channel))) {
            Ok(Ok(())) => self.device.disconnect(),
            Ok(Err(error)) => {
                if !error.is_closing() {
                    self.status.common.protocol_error(&error);
                }
                self.device.disconnect();
            }
            Err(panic) => {
                self.status.common.panicked(&panic_message(&*panic));
                self.device.recover();
            }
        }
        if self.status.disconnected() {
            self.status.common.say(LogEntry::Info("the connection has ended"));
        }
    }

    fn session(&mut self, mut channel: Channel) -> Result<(), ProtocolError> {
        let peer = self.policy.admit(channel.socket())?;
        self.status
            .common
            .say(LogEntry::Info(&format!("a driver has connected: process {}, user {}", peer.pid, peer.uid)));
        self.status.common.update(|snapshot| {
            snapshot.side.connected = true;
            snapshot.peer = Some(peer);
            snapshot.connections += 1;
        });
        self.serve(&mut channel)
    }

    /// Serves one driver's process until it or this thread ends.
    fn serve(&mut self, channel: &mut Channel) -> Result<(), ProtocolError> {
        loop {
            match channel.receive(self.device.pulse())? {
                Incoming::Message(message) => {
                    #[cfg(test)]
                    super::tests::misbehave(&message);
                    self.device.answer(message, channel)?;
                }
                Incoming::Closed => return Ok(()),
                Incoming::Interrupted => {}
            }
            self.signal.clear();
            if self.signal.has_ended() {
                return Ok(());
            }
            self.device.poll_state();
            self.log_denials();
        }
    }

    /// Logs the calls denied since the last time.
    fn log_denials(&mut self) {
        self.denied = self.status.common.log_denials(self.denied);
    }
}
