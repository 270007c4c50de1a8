//! The driver's side: finds a device, negotiates, shares memory, and gives the engine a driver for the device.

use std::fs::File;
use std::io;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bellows_handover::{Borrowed, ControlThread, Lender, Signal, exchange, panic_message};
use bellows_packet::return_free_buffers;

use crate::Features;
use crate::ring::Areas;

use super::channel::{Channel, Incoming};
use super::closer::Closer;
use super::control::{abandoned, prepare};
use super::endpoint::{Endpoint, EndpointHold, FIRST_PAUSE, MAX_PAUSE, pause};
use super::negotiate::{hand_over, negotiate};
use super::{Confinement, FrontendStatus, MAX_PAIRS, Mode, PeerPolicy, ProtocolError};

/// The configuration of a front end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrontendConfig {
    /// The app, for the log.
    pub app: String,
    /// Path of the socket.
    pub socket: PathBuf,
    /// Who opens the socket.
    pub mode: Mode,
    /// Number of pairs of queues to use; a device may have fewer.
    pub pairs: u16,
    /// The features that the driver can use.
    pub features: Features,
    /// Number of descriptors of each ring.
    pub ring_size: u16,
    /// The driver's own address, if it does not use the device's.
    pub mac: Option<[u8; 6]>,
    /// What the device's process is allowed to do.
    pub policy: PeerPolicy,
}

/// The result of the negotiation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Negotiated {
    /// The features of both sides.
    pub features: Features,
    /// Number of pairs of queues that run: receive queues 0, 2, …, transmit queues 1, 3, ….
    pub pairs: u16,
    /// Number of descriptors of each ring.
    pub ring_size: u16,
    /// The network address: the configured one, else the one that the device reports, if any.
    pub mac: Option<[u8; 6]>,
}

/// A file that is shared with the device, and its addresses there.
#[derive(Debug)]
pub struct SharedFile {
    /// The file: a memfd, for example from [`bellows_ipc::memfd::sealed`].
    pub file: File,
    /// Offset of the memory in the file.
    pub offset: u64,
    /// Number of bytes to share.
    pub length: u64,
    /// The address of its first byte in [`Areas`], in descriptors, and in messages. The driver can choose any number.
    pub address: u64,
}

/// One queue, as the driver placed it.
#[derive(Debug)]
pub struct QueueLayout {
    /// Its areas, in the addresses of the [`SharedFile`]s.
    pub areas: Areas,
    /// Number of descriptors.
    pub size: u16,
    /// The event by which the device notifies the driver; `None` if the driver polls.
    pub call: Option<File>,
    /// The event by which the driver notifies the device; `None` if the device must poll.
    pub kick: Option<File>,
}

/// A driver, and its description for the device.
pub struct Placed<D> {
    /// The driver for the engine.
    pub driver: D,
    /// The memory of all rings and buffers. At most 8 files.
    pub memory: Vec<SharedFile>,
    /// The queues in order: receive and transmit of the first pair, then of the second, …; 2 × pairs of them.
    pub queues: Vec<QueueLayout>,
}

/// Creates a driver for a device: places its rings and buffers in memory.
///
/// Called by the front end's thread, once for every device: rings start anew, with both sides at the first descriptor.
pub trait DriverFactory: Send + 'static {
    /// The driver's side of all rings, which the engine runs. Dropped on the front end's thread when the device is
    /// gone.
    type Driver: Send + 'static;

    /// Creates a driver.
    ///
    /// # Errors
    /// System errors: out of memory or descriptors. The device is disconnected, and the next attempt is made later.
    fn place(&mut self, negotiated: &Negotiated) -> io::Result<Placed<Self::Driver>>;
}

/// The front end's control thread. Dropping it ends the thread, and removes the socket if it created one.
pub struct Frontend {
    end: Box<dyn Fn() + Send + Sync>,
    thread: Option<ControlThread>,
    status: Arc<FrontendStatus>,
    hold: EndpointHold,
}

impl Frontend {
    /// Starts to look for a device.
    ///
    /// # Errors
    /// In server mode those of the socket: another process listens there, or the folder does not exist or is not
    /// writable. `InvalidInput` for an impossible number of queues or descriptors.
    pub fn start<L: DriverFactory>(config: FrontendConfig, layout: L) -> io::Result<(Frontend, Borrowed<L::Driver>)> {
        let closer = Closer::start()?;
        let endpoint = Endpoint::open(&config.socket, config.mode, config.policy.socket_access, &closer)?;
        Frontend::start_at(endpoint, config, layout, closer)
    }

    /// Starts in place of one that runs. If both are servers at one socket, it stays open, new connections go to the
    /// new one, and the current device is disconnected when the old one is dropped.
    ///
    /// # Errors
    /// Those of [`start`](Frontend::start); the old one continues unchanged.
    pub fn succeed<L: DriverFactory>(
        &self,
        config: FrontendConfig,
        layout: L,
    ) -> io::Result<(Frontend, Borrowed<L::Driver>)> {
        let closer = Closer::start()?;
        let (socket, mode, access) = (config.socket.clone(), config.mode, config.policy.socket_access);
        let open = || Endpoint::open(&socket, mode, access, &closer);
        self.hold.succeed(&socket, mode, open, |endpoint| Frontend::start_at(endpoint, config, layout, closer.clone()))
    }

    /// Replaces an abandoned socket at the path by ours, when the run begins. Before this no existing file is touched,
    /// and nobody can connect if there is an abandoned socket.
    pub fn begin(&self) {
        self.hold.begin();
    }

    /// Accepts connections again after a failed attempt to [succeed](Frontend::succeed) it.
    pub fn resume(&self) {
        self.hold.resume();
    }

    fn start_at<L: DriverFactory>(
        mut endpoint: Endpoint,
        config: FrontendConfig,
        layout: L,
        closer: Closer,
    ) -> io::Result<(Frontend, Borrowed<L::Driver>)> {
        let refuse = |message| Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        if config.pairs == 0 || config.pairs > MAX_PAIRS {
            return refuse(format!("{} pairs of queues is out of range; give 1 to {MAX_PAIRS}", config.pairs));
        }
        if !config.ring_size.is_power_of_two() || config.ring_size > 32_768 {
            return refuse(format!(
                "a ring cannot have {} descriptors; give a power of two up to 32,768",
                config.ring_size
            ));
        }
        let signal = Arc::new(Signal::new()?);
        let (lender, borrower, ender) = exchange(1, Arc::clone(&signal))?;
        let hold = EndpointHold::new(&mut endpoint, config.policy.socket_access, &signal);
        let status = Arc::new(FrontendStatus::new(config.app.clone(), config.socket.clone(), config.mode));
        let told = Arc::clone(&status);
        let control = Control { config, layout, lender, endpoint, signal, closer, status: told, denied: 0 };
        prepare()?;
        let thread = ControlThread::start("virtio-user", move || control.run())?;
        let frontend = Frontend { end: Box::new(move || ender.end()), thread: Some(thread), status, hold };
        Ok((frontend, Borrowed::new(borrower)))
    }

    /// Its status.
    pub fn status(&self) -> Arc<FrontendStatus> {
        Arc::clone(&self.status)
    }
}

impl Drop for Frontend {
    fn drop(&mut self) {
        (self.end)();
        if self.thread.take().is_some_and(|thread| !thread.end()) {
            abandoned(self.status.socket());
        }
    }
}

/// Time for the engine to give a driver back before the status says so.
const PATIENCE: Duration = Duration::from_secs(2);

/// The state of the thread.
struct Control<L: DriverFactory> {
    config: FrontendConfig,
    layout: L,
    lender: Lender<L::Driver>,
    endpoint: Endpoint,
    signal: Arc<Signal>,
    closer: Closer,
    status: Arc<FrontendStatus>,
    /// Denied calls that have been logged.
    denied: u64,
}

impl<L: DriverFactory> Control<L> {
    fn run(mut self) {
        let confinement = Confinement::begin(self.config.policy.confine);
        self.status.confinement(confinement);
        let mut wait = FIRST_PAUSE;
        while let Some(socket) = self.next() {
            let good = self.handle_connection(socket);
            self.denied = self.status.log_denials(self.denied);
            if good {
                wait = FIRST_PAUSE;
            } else {
                pause(wait, &self.signal);
                wait = (2 * wait).min(MAX_PAUSE);
            }
        }
    }

    /// The next connection; `None` when the thread must end.
    fn next(&mut self) -> Option<UnixStream> {
        let status = Arc::clone(&self.status);
        let waits = |why: Option<String>| status.update(|snapshot| snapshot.waits = why);
        while self.closer.is_full() && !self.signal.has_ended() {
            waits(Some(self.closer.explain()));
            pause(MAX_PAUSE, &self.signal);
            self.signal.clear();
        }
        waits(None);
        self.endpoint.next(&self.signal, || None, waits)
    }

    /// Uses one device, whatever it does. A panic ends its connection. True if it worked.
    fn handle_connection(&mut self, socket: UnixStream) -> bool {
        let mut channel = Channel::new(socket, Arc::clone(&self.signal), self.closer.clone());
        let met = catch_unwind(AssertUnwindSafe(|| self.serve(&mut channel)));
        let good = match met {
            Ok(Ok(())) => true,
            Ok(Err(error)) => {
                if !error.is_closing() {
                    self.status.protocol_error(&error);
                }
                false
            }
            Err(panic) => {
                self.status.panicked(&panic_message(&*panic));
                let _ = self.lender.recall(0, PATIENCE, || self.report_delay());
                false
            }
        };
        self.status.update(|snapshot| {
            snapshot.side.negotiated = None;
            snapshot.peer = None;
        });
        good
    }

    /// Uses one device until it goes, or this thread ends.
    fn serve(&mut self, channel: &mut Channel) -> Result<(), ProtocolError> {
        let peer = self.config.policy.admit(channel.socket())?;
        self.status.update(|snapshot| snapshot.peer = Some(peer));
        let agreed = negotiate(channel, &self.config)?;
        let negotiated = agreed.negotiated;
        let Placed { driver, memory, queues } = self.layout.place(&negotiated).map_err(ProtocolError::Driver)?;
        hand_over(channel, &agreed, &memory, &queues)?;
        // The other side and the driver have their own descriptors.
        drop((memory, queues));
        self.lender.offer(0, driver);
        self.status.greet("connected to a device", peer);
        self.status.update(|snapshot| {
            snapshot.side.negotiated = Some(negotiated);
            snapshot.connections += 1;
        });
        let end = self.watch(channel);
        self.status.part("the device has gone");
        // The driver is dropped here, after the engine has given it back.
        let _ = self.lender.recall(0, PATIENCE, || self.report_delay());
        // That of a packet which it was receiving.
        return_free_buffers();
        self.status.update(|snapshot| snapshot.waits = None);
        end
    }

    fn watch(&self, channel: &mut Channel) -> Result<(), ProtocolError> {
        loop {
            match channel.receive(None)? {
                Incoming::Closed => return Ok(()),
                // A device sends no requests on this socket.
                Incoming::Message(message) => return Err(ProtocolError::Unexpected(message.request)),
                Incoming::Interrupted => {}
            }
            self.signal.clear();
            if self.signal.has_ended() {
                return Ok(());
            }
            if self.lender.given_up().is_some() {
                return Err(ProtocolError::DriverFailed);
            }
        }
    }

    fn report_delay(&self) {
        let message = format!(
            "the app of {} has not given its rings back for {} seconds: is its engine stopped, or busy elsewhere?",
            self.config.socket.display(),
            PATIENCE.as_secs()
        );
        self.status.update(|snapshot| snapshot.waits = Some(message));
    }
}
