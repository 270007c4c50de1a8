//! The back end's thread: waits for a driver's process, serves it, and starts again when it has gone.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use bellows_handover::{ControlThread, Signal, Stopper, panic_message, shared_exchange};
use bellows_ports::QueueSet;
use bellows_sys::wake::sleep_until_readable;

use crate::Features;

use super::channel::{Channel, Incoming};
use super::closer::Closer;
use super::control::{ReconnectPace, abandoned, prepare};
use super::device::Device;
use super::endpoint::{Endpoint, EndpointHold, pause};
use super::port::{LentRing, Port};
use super::ports::Ports;
use super::status::DeviceStatus;
use super::{BackendStatus, Confinement, Mode, PeerPolicy, ProtocolError};

/// Maximum number of pairs of queues.
pub const MAX_PAIRS: u16 = 64;

/// The configuration of a back end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendConfig {
    /// The app, for the log. Back ends of several apps can be one device, whose log names one of them.
    pub app: String,
    /// Path of the socket.
    pub socket: PathBuf,
    /// Who opens the socket.
    pub mode: Mode,
    /// Its pairs of queues, 1 to [`MAX_PAIRS`]. Back ends with parts of the pairs are one device, if everything else is
    /// equal.
    pub queues: QueueSet,
    /// The features to offer. Options that need a missing one, or that other settings exclude, are left out.
    pub features: Features,
    /// The network address for the driver.
    pub mac: Option<[u8; 6]>,
    /// What the driver's process is allowed to do.
    pub policy: PeerPolicy,
}

impl BackendConfig {
    /// The features that a device with this many pairs offers.
    pub(super) fn offered(&self, pairs: usize) -> Features {
        let mut features = self.features & Features::DEVICE;
        if pairs <= 1 {
            features = features.without(Features::MQ);
        }
        if self.mac.is_none() {
            features = features.without(Features::MAC);
        }
        features.with(Features::PROTOCOL_FEATURES).coherent()
    }

    /// Whether back ends with both configurations are one device.
    fn is_one_device_with(&self, other: &BackendConfig) -> bool {
        let (app, queues) = (self.app.clone(), self.queues.clone());
        queues.is_part() && other.queues.is_part() && *self == BackendConfig { app, queues, ..other.clone() }
    }

    /// The maximum number of queues of the device.
    fn max_queues(&self) -> usize {
        match self.queues {
            QueueSet::Whole(pairs) => 2 * usize::from(pairs),
            QueueSet::Part(_) => 2 * usize::from(MAX_PAIRS),
        }
    }

    fn check(&self) -> io::Result<()> {
        let wrong = |message| Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        match &self.queues {
            QueueSet::Whole(pairs) if !(1..=MAX_PAIRS).contains(pairs) => {
                wrong(format!("{pairs} pairs of queues is out of range; give 1 to {MAX_PAIRS}"))
            }
            QueueSet::Part(pairs) if pairs.is_empty() || pairs.iter().any(|pair| *pair >= MAX_PAIRS) => {
                wrong(format!("the pairs of queues {pairs:?} are impossible; list numbers from 0 to {}", MAX_PAIRS - 1))
            }
            _ => Ok(()),
        }
    }
}

/// The devices of this process by their sockets, the newest last.
static DEVICES: Mutex<Vec<(PathBuf, Mode, Weak<SharedDevice>)>> = Mutex::new(Vec::new());

/// A device with its control thread, which listens, or connects and retries, and speaks the protocol. Lasts as long as
/// one of its back ends.
struct SharedDevice {
    config: BackendConfig,
    ender: Stopper<LentRing>,
    thread: Option<ControlThread>,
    status: Arc<DeviceStatus>,
    hold: EndpointHold,
    ports: Arc<Ports>,
    /// The device in whose place this one shall be.
    before: Weak<SharedDevice>,
}

impl SharedDevice {
    /// Starts the thread of a device; the socket is open when this returns.
    fn start(config: BackendConfig, before: Option<&Arc<SharedDevice>>) -> io::Result<SharedDevice> {
        let closer = Closer::start()?;
        let (socket, mode, access) = (config.socket.clone(), config.mode, config.policy.socket_access);
        let open = || Endpoint::open(&socket, mode, access, &closer);
        let weak = before.map(Arc::downgrade).unwrap_or_default();
        let start = |endpoint| SharedDevice::start_at(endpoint, config, closer.clone(), weak);
        match before {
            Some(before) => before.hold.succeed(&socket, mode, open, start),
            None => start(open()?),
        }
    }

    fn start_at(
        mut endpoint: Endpoint,
        config: BackendConfig,
        closer: Closer,
        before: Weak<SharedDevice>,
    ) -> io::Result<SharedDevice> {
        let signal = Arc::new(Signal::new()?);
        let (lender, ender) = shared_exchange(Arc::clone(&signal));
        let ports = Arc::new(Ports::new()?);
        let status = DeviceStatus::new(
            config.app.clone(),
            config.socket.clone(),
            config.mode,
            config.max_queues(),
            ports.notifiers(),
        );
        let status = Arc::new(status);
        let policy = config.policy.clone();
        let hold = EndpointHold::new(&mut endpoint, policy.socket_access, &signal);
        let device = Device::new(config.clone(), lender, Arc::clone(&status), Arc::clone(&ports));
        let (told, theirs) = (Arc::clone(&status), Arc::clone(&ports));
        let control = Control { endpoint, device, signal, closer, policy, status: told, ports: theirs, denied: 0 };
        prepare()?;
        let thread = Some(ControlThread::start("vhost-user", move || control.run())?);
        Ok(SharedDevice { config, ender, thread, status, hold, ports, before })
    }
}

impl Drop for SharedDevice {
    fn drop(&mut self) {
        self.ender.end();
        if self.thread.take().is_some_and(|thread| !thread.end()) {
            abandoned(self.status.socket());
        }
        // A reload has failed before any of its back ends began.
        if !self.ports.have_begun()
            && let Some(before) = self.before.upgrade()
        {
            before.hold.resume();
        }
    }
}

/// The device's side for one port: all pairs of a device, or some of a device that several back ends share.
///
/// Dropping the last one of a device ends its control thread, and removes the socket if the thread opened one. It may be
/// dropped before or after the [`Port`].
pub struct Backend {
    device: Arc<SharedDevice>,
    pairs: Vec<u16>,
    status: Arc<BackendStatus>,
}

impl Backend {
    /// Starts a device; the socket is open when this returns. A device that back ends share starts with the first of
    /// them, and accepts drivers when one [begins](Backend::begin); it has the pairs of all that have started by then.
    ///
    /// # Errors
    /// In server mode those of the socket: another process listens there, or the folder is missing or not writable.
    /// `InvalidInput` for an impossible number of queues, and for a back end that is to share a device and has another
    /// configuration. System errors: out of descriptors or threads.
    pub fn start(config: BackendConfig) -> io::Result<(Backend, Port)> {
        Backend::start_after(config, None)
    }

    /// Starts in place of a back end that runs. If the device stays the same, its driver stays connected. If both are
    /// servers at one socket, it stays open, new connections go to the new thread, and the existing connection ends when
    /// the old device has no back end any more.
    ///
    /// # Errors
    /// Those of [`start`](Backend::start); the old one continues unchanged.
    pub fn succeed(&self, config: BackendConfig) -> io::Result<(Backend, Port)> {
        Backend::start_after(config, Some(&self.device))
    }

    fn start_after(config: BackendConfig, before: Option<&Arc<SharedDevice>>) -> io::Result<(Backend, Port)> {
        config.check()?;
        let (queues, pairs) = (config.queues.clone(), config.queues.numbers());
        let mut devices = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
        devices.retain(|(.., device)| device.strong_count() > 0);
        let mut there =
            devices.iter().rev().filter(|(socket, mode, _)| (socket, *mode) == (&config.socket, config.mode));
        let newest = if queues.is_part() { there.find_map(|(.., device)| device.upgrade()) } else { None };
        let device = match newest {
            Some(device) if device.config.is_one_device_with(&config) => device,
            Some(device) if !device.ports.have_begun() => {
                let socket = config.socket.display();
                let message = format!("the apps that share {socket} have different keys; only `queues` may differ");
                return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
            }
            newest => {
                let (socket, mode) = (config.socket.clone(), config.mode);
                let device = Arc::new(SharedDevice::start(config, newest.as_ref().or(before))?);
                devices.push((socket, mode, Arc::downgrade(&device)));
                device
            }
        };
        drop(devices);
        let queue = |pair: &u16| [2 * usize::from(*pair), 2 * usize::from(*pair) + 1];
        let borrower = device.ender.borrower(pairs.iter().flat_map(queue).collect())?;
        device.ports.add(&pairs);
        device.status.offer(device.config.offered(device.ports.pairs()));
        let status = Arc::new(BackendStatus::new(Arc::clone(&device.status), pairs.clone()));
        let port = Port::new(borrower, Arc::clone(&status));
        let backend = Backend { device, pairs, status };
        if !queues.is_part() {
            port.begin();
            backend.accept();
        }
        Ok((backend, port))
    }

    /// Replaces an abandoned socket at the path by ours, when the run begins. Before this no existing file is touched,
    /// and nobody can connect if there is an abandoned socket. A device that back ends share accepts drivers from now
    /// on.
    pub fn begin(&self) {
        self.device.hold.begin();
        self.accept();
    }

    /// Accepts connections.
    fn accept(&self) {
        self.device.ports.begin();
        self.device.hold.wake();
    }

    /// Accepts connections again after a failed attempt to [succeed](Backend::succeed) it.
    pub fn resume(&self) {
        self.device.hold.resume();
    }

    /// Its status.
    pub fn status(&self) -> Arc<BackendStatus> {
        Arc::clone(&self.status)
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.device.ports.remove(&self.pairs);
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
    status: Arc<DeviceStatus>,
    ports: Arc<Ports>,
    /// Denied calls that have been logged.
    denied: u64,
}

impl Control {
    fn run(mut self) {
        let confinement = Confinement::begin(self.policy.confine);
        self.status.common.confinement(confinement);
        let mut pace = ReconnectPace::new(self.policy.longest_pause);
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
        // All ports of the first configuration are there when the first one has begun.
        while !self.ports.have_begun() && !self.signal.has_ended() {
            self.signal.clear();
            let _ = sleep_until_readable(&[self.signal.as_fd()], Some(LOOK));
        }
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
            self.status.common.part("the connection has ended");
        }
    }

    fn session(&mut self, mut channel: Channel) -> Result<(), ProtocolError> {
        let peer = self.policy.admit(channel.socket())?;
        self.status.common.greet("a driver has connected", peer);
        self.status.connected(peer, self.device.connect());
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
