//! The driver's side: finds a device, negotiates, shares memory, and hands the engine a driver for it.

use std::fs::File;
use std::io;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::Features;
use crate::ring::Areas;

use super::channel::{Channel, Incoming};
use super::closer::Closer;
use super::control::{ControlThread, left_to_itself, panic_message};
use super::endpoint::{Endpoint, EndpointHold, FIRST_PAUSE, MAX_PAUSE, pause};
use super::handover::{Borrower, Lender, exchange};
use super::negotiate::{hand_over, negotiate};
use super::signal::Signal;
use super::status::LogEntry;
use super::{Bell, Confinement, FrontendStatus, MAX_PAIRS, Mode, PeerPolicy, ProtocolError};

/// What a front end is to look for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrontendConfig {
    /// Path of the socket.
    pub socket: PathBuf,
    /// Who opens it.
    pub mode: Mode,
    /// Pairs of queues that are wanted; a device may have fewer.
    pub pairs: u16,
    /// The features that the driver can use.
    pub features: Features,
    /// How many descriptors each ring has.
    pub ring_size: u16,
    /// The driver's own address, if it does not want the device's.
    pub mac: Option<[u8; 6]>,
    /// What the device's process may do.
    pub policy: PeerPolicy,
}

/// What the two sides agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Negotiated {
    /// What both can.
    pub features: Features,
    /// How many pairs of queues run: receive queues 0, 2, …, transmit queues 1, 3, ….
    pub pairs: u16,
    /// How many descriptors each ring has.
    pub ring_size: u16,
    /// The network address: the configured one, else the device's, if it tells one.
    pub mac: Option<[u8; 6]>,
}

/// A file that is shared with the device, and the addresses that it has there.
#[derive(Debug)]
pub struct SharedFile {
    /// The file: a memfd, for example of [`bellows_sys::memfd::sealed`].
    pub file: File,
    /// Where in the file the memory starts.
    pub offset: u64,
    /// How many bytes are shared.
    pub length: u64,
    /// The address of its first byte, in [`Areas`], in descriptors, and in messages. Any number that the driver likes.
    pub address: u64,
}

/// One queue as the driver placed it.
#[derive(Debug)]
pub struct QueueLayout {
    /// Where its areas lie, in the addresses of the [`SharedFile`]s.
    pub areas: Areas,
    /// How many descriptors it has.
    pub size: u16,
    /// The event by which the device tells the driver; `None` if the driver polls.
    pub call: Option<File>,
    /// The event by which the driver tells the device; `None` if the device is to poll.
    pub kick: Option<File>,
}

/// A driver, and what is to be told to the device about it.
pub struct Placed<D> {
    /// What the engine runs.
    pub driver: D,
    /// The memory in which all rings and buffers lie. At most 8 files.
    pub memory: Vec<SharedFile>,
    /// The queues in their order: receive and transmit of the first pair, then of the second, …; 2 × pairs of them.
    pub queues: Vec<QueueLayout>,
}

/// Makes a driver for a device that has been found: places its rings and buffers in memory.
///
/// Called by the front end's thread, once for every device that comes: rings start afresh, both sides at the first
/// descriptor.
pub trait Layout: Send + 'static {
    /// What the engine runs: the driver's side of all rings. Dropped on the front end's thread when the device is gone.
    type Driver: Send + 'static;

    /// Makes one.
    ///
    /// # Errors
    /// Those of the system, for want of memory or descriptors. The device is left, and the next attempt made later.
    fn place(&mut self, negotiated: &Negotiated) -> io::Result<Placed<Self::Driver>>;
}

/// The front end's control thread. Dropping it ends the thread, and removes the socket if it made one.
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
    /// In server mode those of the socket: somebody listens there already, the folder does not exist or may not be written.
    /// `InvalidInput` for a number of queues or descriptors that cannot be.
    pub fn start<L: Layout>(config: FrontendConfig, layout: L) -> io::Result<(Frontend, DriverPort<L::Driver>)> {
        let closer = Closer::start()?;
        let endpoint = Endpoint::open(&config.socket, config.mode, config.policy.socket_access, &closer)?;
        Frontend::start_at(endpoint, config, layout, closer)
    }

    /// Starts in place of one that runs: if both are servers at one socket, that stays open, new connections come to the new one, and
    /// the device that there is goes when the old one is dropped.
    ///
    /// # Errors
    /// As for [`start`](Frontend::start); the old one goes on as before.
    pub fn succeed<L: Layout>(
        &self,
        config: FrontendConfig,
        layout: L,
    ) -> io::Result<(Frontend, DriverPort<L::Driver>)> {
        let closer = Closer::start()?;
        let (socket, mode, access) = (config.socket.clone(), config.mode, config.policy.socket_access);
        let open = || Endpoint::open(&socket, mode, access, &closer);
        self.hold.succeed(&socket, mode, open, |endpoint| Frontend::start_at(endpoint, config, layout, closer.clone()))
    }

    /// The run begins: a socket of ours takes the place of one at which nobody listens any more. Before this nothing that
    /// exists is touched, and nobody can connect where such a socket lies.
    pub fn begin(&self) {
        self.hold.begin();
    }

    /// Accepts connections again after another was to [succeed](Frontend::succeed) it.
    pub fn resume(&self) {
        self.hold.resume();
    }

    fn start_at<L: Layout>(
        mut endpoint: Endpoint,
        config: FrontendConfig,
        layout: L,
        closer: Closer,
    ) -> io::Result<(Frontend, DriverPort<L::Driver>)> {
        let refuse = |message| Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        if config.pairs == 0 || config.pairs > MAX_PAIRS {
            return refuse(format!("{} pairs of queues; there can be 1 to {MAX_PAIRS}", config.pairs));
        }
        if !config.ring_size.is_power_of_two() || config.ring_size > 32_768 {
            return refuse(format!("rings of {}; the size is a power of two up to 32,768", config.ring_size));
        }
        let signal = Arc::new(Signal::new()?);
        let (lender, borrower, ender) = exchange(1, Arc::clone(&signal))?;
        let hold = EndpointHold::new(&mut endpoint, config.policy.socket_access, &signal);
        let status = Arc::new(FrontendStatus::new(config.socket.clone(), config.mode));
        let told = Arc::clone(&status);
        let control = Control { config, layout, lender, endpoint, signal, closer, status: told, denied: 0 };
        let thread = ControlThread::start("virtio-user", move || control.run())?;
        let frontend = Frontend { end: Box::new(move || ender.end()), thread: Some(thread), status, hold };
        Ok((frontend, DriverPort { borrower, driver: None }))
    }

    /// What can be said about it.
    pub fn status(&self) -> Arc<FrontendStatus> {
        Arc::clone(&self.status)
    }
}

impl Drop for Frontend {
    fn drop(&mut self) {
        (self.end)();
        if self.thread.take().is_some_and(|thread| !thread.end()) {
            left_to_itself(self.status.socket());
        }
    }
}

/// How long the engine may take to give a driver back before the status says so.
const PATIENCE: Duration = Duration::from_secs(2);

/// What the thread owns.
struct Control<L: Layout> {
    config: FrontendConfig,
    layout: L,
    lender: Lender<L::Driver>,
    endpoint: Endpoint,
    signal: Arc<Signal>,
    closer: Closer,
    status: Arc<FrontendStatus>,
    /// Denied calls that the log knows of.
    denied: u64,
}

impl<L: Layout> Control<L> {
    fn run(mut self) {
        let confinement = Confinement::begin(self.config.policy.confine);
        self.status.confinement(confinement);
        let mut wait = FIRST_PAUSE;
        while let Some(socket) = self.next() {
            let good = self.meet(socket);
            self.denied = self.status.tell_denials(self.denied);
            if good {
                wait = FIRST_PAUSE;
            } else {
                pause(wait, &self.signal);
                wait = (2 * wait).min(MAX_PAUSE);
            }
        }
    }

    /// The next connection; `None` when the thread is to end.
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

    /// Uses one device, whatever it does. A panic ends its connection. True if it was a good one.
    fn meet(&mut self, socket: UnixStream) -> bool {
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
                let _ = self.lender.recall(0, PATIENCE, || self.complain());
                false
            }
        };
        self.status.update(|snapshot| {
            snapshot.side.negotiated = None;
            snapshot.peer = None;
        });
        good
    }

    /// Uses one device until it goes, or we do.
    fn serve(&mut self, channel: &mut Channel) -> Result<(), ProtocolError> {
        let peer = self.config.policy.admit(channel.socket())?;
        self.status.update(|snapshot| snapshot.peer = Some(peer));
        let agreed = negotiate(channel, &self.config)?;
        let negotiated = agreed.negotiated;
        let Placed { driver, memory, queues } = self.layout.place(&negotiated).map_err(ProtocolError::Driver)?;
        hand_over(channel, &agreed, &memory, &queues)?;
        // The other side and the driver have descriptors of their own.
        drop((memory, queues));
        self.lender.offer(0, driver);
        self.status.say(LogEntry::Info(&format!("a device is there: process {}, user {}", peer.pid, peer.uid)));
        self.status.update(|snapshot| {
            snapshot.side.negotiated = Some(negotiated);
            snapshot.connections += 1;
        });
        let end = self.watch(channel);
        self.status.say(LogEntry::Info("the device has gone"));
        // The driver is dropped here, after the engine has let go of it.
        let _ = self.lender.recall(0, PATIENCE, || self.complain());
        self.status.update(|snapshot| snapshot.waits = None);
        end
    }

    fn watch(&self, channel: &mut Channel) -> Result<(), ProtocolError> {
        loop {
            match channel.receive(None)? {
                Incoming::Closed => return Ok(()),
                // A device has nothing to say by itself on this socket.
                Incoming::Message(message) => return Err(ProtocolError::Unexpected(message.request)),
                Incoming::Disturbed => {}
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

    fn complain(&self) {
        let message = format!(
            "the app of {} has not given its rings back for {} seconds: is its engine stopped, or busy elsewhere?",
            self.config.socket.display(),
            PATIENCE.as_secs()
        );
        self.status.update(|snapshot| snapshot.waits = Some(message));
    }
}

/// The engine's end: the driver of the device that is there now, if one is.
///
/// When the device vanishes the driver is taken away; when it comes back there is a new one. Never blocks, and makes no
/// system call while nothing changes.
pub struct DriverPort<D> {
    borrower: Borrower<D>,
    driver: Option<D>,
}

impl<D> DriverPort<D> {
    /// What tells the engine that there is something to [`sync`](DriverPort::sync).
    pub fn doorbell(&self) -> Arc<Bell> {
        self.borrower.bell()
    }

    /// What the bell's word says as long as there is nothing to exchange.
    #[inline]
    pub fn expected(&self) -> u32 {
        self.borrower.expected()
    }

    /// Exchanges drivers with the control thread: takes a new one, gives back one whose device is gone. True if something
    /// changed. A few instructions if nothing is wanted.
    #[inline]
    pub fn sync(&mut self) -> bool {
        self.borrower.sync(&mut self.driver)
    }

    /// The driver, if there is a device.
    #[inline]
    pub fn driver(&mut self) -> Option<&mut D> {
        self.driver.as_mut()
    }

    /// Gives the driver up, because the device has broken the rules: the connection is closed and made anew.
    pub fn fail(&mut self) {
        if let Some(driver) = self.driver.take() {
            self.borrower.give_up(0, driver, &mut self.driver);
        }
    }
}

impl<D> Drop for DriverPort<D> {
    fn drop(&mut self) {
        self.borrower.end(&mut self.driver);
    }
}
