//! The back end's thread: waits for a driver's process, listens to it, and starts again when it has gone.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use tracing::info;

use crate::Features;

use super::channel::{Channel, Incoming};
use super::device::Device;
use super::endpoint::{Endpoint, Seat};
use super::handover::{Ender, exchange};
use super::port::{Lent, Port};
use super::signal::Signal;
use super::{BackendStatus, Mode, ProtocolError};

/// The most pairs of queues.
pub const MOST_PAIRS: u16 = 64;

/// What a back end is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendConfig {
    /// Path of the socket.
    pub socket: PathBuf,
    /// Who opens it.
    pub mode: Mode,
    /// Pairs of queues, 1 to [`MOST_PAIRS`].
    pub queues: u16,
    /// What is offered. What misses an option that it needs is left out, and so is what other settings rule out.
    pub features: Features,
    /// The network address that the driver is to use.
    pub mac: Option<[u8; 6]>,
}

impl BackendConfig {
    /// What is offered in the end.
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

/// The back end's control thread: listens, or connects again and again, and speaks the protocol.
///
/// Dropping it ends the thread, and removes the socket if the thread opened one. It may be dropped before or after the
/// [`Port`].
pub struct Backend {
    ender: Ender<Lent>,
    thread: Option<JoinHandle<()>>,
    status: Arc<BackendStatus>,
    seat: Seat,
}

impl Backend {
    /// Starts the thread; the socket is open when this returns.
    ///
    /// # Errors
    /// In server mode those of the socket: somebody listens there already, the folder is missing or may not be written.
    /// `InvalidInput` for a number of queues that cannot be. Those of the system for want of descriptors or threads.
    pub fn start(config: BackendConfig) -> io::Result<(Backend, Port)> {
        let endpoint = Endpoint::open(&config.socket, config.mode)?;
        Backend::start_at(endpoint, config)
    }

    /// Starts the thread in place of one that runs: if both are servers at one socket, that stays open, new connections come
    /// to the new one, and the one that there is ends when the old one is dropped.
    ///
    /// # Errors
    /// As for [`start`](Backend::start); the old one goes on as before.
    pub fn succeed(&self, config: BackendConfig) -> io::Result<(Backend, Port)> {
        let (socket, mode) = (config.socket.clone(), config.mode);
        self.seat.succeed(&socket, mode, |endpoint| Backend::start_at(endpoint, config))
    }

    /// The run begins: a socket of ours takes the place of one at which nobody listens any more. Before this nothing that
    /// exists is touched, and nobody can connect where such a socket lies.
    pub fn begin(&self) {
        self.seat.begin();
    }

    /// Accepts connections again after another was to [succeed](Backend::succeed) it.
    pub fn resume(&self) {
        self.seat.resume();
    }

    fn start_at(endpoint: Endpoint, config: BackendConfig) -> io::Result<(Backend, Port)> {
        if config.queues == 0 || config.queues > MOST_PAIRS {
            let message = format!("{} pairs of queues; there can be 1 to {MOST_PAIRS}", config.queues);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let pairs = usize::from(config.queues);
        let signal = Arc::new(Signal::new()?);
        let (lender, borrower, ender) = exchange(2 * pairs, Arc::clone(&signal))?;
        let offered = config.offered();
        let status = Arc::new(BackendStatus::new(config.socket.clone(), config.mode, offered, 2 * pairs));
        let seat = Seat::new(&endpoint, &signal);
        let notifiers = Device::notifiers(pairs)?;
        let device = Device::new(offered, pairs, config.mac, lender, Arc::clone(&status), notifiers);
        let control = Control { endpoint, device, signal, status: Arc::clone(&status) };
        let thread = thread::Builder::new().name("vhost-user".into()).spawn(move || control.run())?;
        let port = Port::new(borrower, pairs, Arc::clone(&status));
        Ok((Backend { ender, thread: Some(thread), status, seat }, port))
    }

    /// What can be said about it.
    pub fn status(&self) -> Arc<BackendStatus> {
        Arc::clone(&self.status)
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.ender.end();
        if let Some(thread) = self.thread.take() {
            // A thread that has panicked has nothing left to end.
            let _ = thread.join();
        }
    }
}

/// What the thread owns.
struct Control {
    endpoint: Endpoint,
    device: Device,
    signal: Arc<Signal>,
    status: Arc<BackendStatus>,
}

impl Control {
    fn run(mut self) {
        let status = Arc::clone(&self.status);
        let waits = |why: Option<String>| status.update(|snapshot| snapshot.waits = why);
        let socket_path = status.socket().display().to_string();
        while let Some(socket) = self.endpoint.next(&self.signal, || self.device.free_memory(), waits) {
            info!("{socket_path}: a driver has connected");
            self.status.update(|snapshot| {
                snapshot.connected = true;
                snapshot.connections += 1;
            });
            let mut channel = Channel::new(socket, Arc::clone(&self.signal));
            if let Err(error) = self.serve(&mut channel)
                && !error.is_closing()
            {
                self.status.protocol_error(&error);
            }
            drop(channel);
            self.device.disconnect();
            self.status.update(|snapshot| snapshot.connected = false);
            info!("{socket_path}: the connection has ended");
        }
    }

    /// Speaks with one driver's process until one of the two ends.
    fn serve(&mut self, channel: &mut Channel) -> Result<(), ProtocolError> {
        loop {
            match channel.receive(self.device.pulse())? {
                Incoming::Message(message) => self.device.answer(message, channel)?,
                Incoming::Closed => return Ok(()),
                Incoming::Disturbed => {}
            }
            self.signal.clear();
            if self.signal.has_ended() {
                return Ok(());
            }
            self.device.look_around();
        }
    }
}
