//! A driver's process that sends exactly what a test wants, and an engine that runs beside it.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bellows_ipc::memfd;
use bellows_packet::Vector;
use bellows_sys::wake::WakeEvent;
use bellows_testkit::scratch::{TempDir, scratch};

use crate::Features;
use crate::ring::Direction;
use crate::vhost::channel::{Channel, Incoming};
use crate::vhost::closer::Closer;
use crate::vhost::message::{ProtocolFeatures, RegionMessage, VhostMessage, VringAddresses, VringState, flags};
use crate::vhost::request::VhostRequest;
use crate::vhost::{Backend, BackendConfig, BackendStatus, DeviceSide, Mode, PeerPolicy, Port, Snapshot};
use bellows_handover::Signal;

/// Maximum time that a test waits for anything.
pub(super) const LIMIT: Duration = Duration::from_secs(30);

/// Waits until a condition holds.
pub(in crate::vhost) fn until(what: &str, mut so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !so() {
        assert!(start.elapsed() < LIMIT, "not within {LIMIT:?}: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A folder for sockets, removed at the end.
pub(super) struct Folder(TempDir);

impl Folder {
    pub(super) fn new() -> Folder {
        Folder(scratch())
    }

    pub(super) fn socket(&self) -> PathBuf {
        self.0.path().join("s")
    }
}

pub(super) fn config(socket: &Path, mode: Mode) -> BackendConfig {
    let mac = Some([2, 0, 0, 0, 0, 7]);
    let policy = hasty(PeerPolicy::default());
    let app = String::new();
    BackendConfig { app, socket: socket.to_owned(), mode, queues: 2.into(), features: Features::DEVICE, mac, policy }
}

/// The tests make some hundred connections.
fn hasty(policy: PeerPolicy) -> PeerPolicy {
    PeerPolicy { longest_pause: Duration::from_millis(2), ..policy }
}

/// An engine with one port: a thread that synchronises it and takes packets from its rings, until it is stopped.
pub(super) struct Engine {
    thread: Option<JoinHandle<Port>>,
    end: Arc<AtomicBool>,
    /// Packets from disabled rings.
    pub(super) discarded: Arc<AtomicU64>,
}

impl Engine {
    pub(super) fn run(mut port: Port) -> Engine {
        let end = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&end);
        let discarded = Arc::new(AtomicU64::new(0));
        let discards = Arc::clone(&discarded);
        let thread = std::thread::spawn(move || {
            let mut vector = Vector::new();
            while !ended.load(Ordering::Relaxed) {
                port.sync();
                for pair in 0..port.transmit().len() {
                    let Some(ring) = &mut port.transmit()[pair] else { continue };
                    match ring.transmit(&mut vector, 32) {
                        Ok(_) => {
                            let count = if ring.is_discarding() { vector.len() as u64 } else { 0 };
                            discards.fetch_add(count, Ordering::Relaxed);
                            vector.drain(usize::MAX).for_each(drop);
                        }
                        Err(error) => port.fail(Direction::Transmit, pair, error),
                    }
                }
                port.note();
                std::thread::yield_now();
            }
            port
        });
        Engine { thread: Some(thread), end, discarded }
    }

    pub(super) fn stop(mut self) -> Port {
        self.end.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The driver's process.
pub(super) struct Peer {
    pub(super) socket: UnixStream,
    channel: Channel,
    pub(super) memory: File,
    /// Whether every request asks for a reply.
    pub(super) need_reply: bool,
}

/// The memory: 1 MiB, which the guest sees at 1 GiB and the process at 2 GiB.
pub(super) const LENGTH: u64 = 1 << 20;
pub(super) const GUEST: u64 = 1 << 30;
pub(super) const USER: u64 = 2 << 30;
pub(super) const SIZE: u16 = 256;

/// The features that most drivers negotiate here.
pub(super) const FEATURES: Features = Features(Features::VERSION_1.0 | Features::PROTOCOL_FEATURES.0);

pub(super) fn event() -> File {
    File::from(WakeEvent::new().unwrap().as_fd().try_clone_to_owned().unwrap())
}

impl Peer {
    pub(super) fn connect(path: &Path) -> Peer {
        until("a connection", || path.exists());
        Peer::new(UnixStream::connect(path).unwrap())
    }

    pub(super) fn new(socket: UnixStream) -> Peer {
        let signal = Arc::new(Signal::new().unwrap());
        let channel = Channel::new(socket.try_clone().unwrap(), signal, Closer::start().unwrap());
        Peer { socket, channel, memory: memfd::create(LENGTH).unwrap(), need_reply: false }
    }

    pub(super) fn send(&mut self, request: VhostRequest, body: &[u8], files: &[BorrowedFd<'_>]) {
        let flags = if self.need_reply { flags::NEED_REPLY } else { 0 };
        self.channel.send(request as u32, flags, body, files).unwrap();
    }

    /// The next message; `None` when the other side has closed.
    pub(super) fn receive(&mut self) -> Option<VhostMessage> {
        match self.channel.receive(Some(LIMIT)) {
            Ok(Incoming::Message(message)) => Some(message),
            Ok(Incoming::Closed) | Err(_) => None,
            Ok(Incoming::Interrupted) => panic!("no answer within {LIMIT:?}"),
        }
    }

    /// Sends a request and receives its reply.
    pub(super) fn ask(&mut self, request: VhostRequest, body: &[u8], files: &[BorrowedFd<'_>]) -> VhostMessage {
        self.send(request, body, files);
        let reply = self.receive().unwrap_or_else(|| panic!("the connection was closed after {}", request.name()));
        assert_eq!((reply.request, reply.flags), (request as u32, flags::VERSION | flags::REPLY));
        reply
    }

    pub(super) fn number(&mut self, request: VhostRequest) -> u64 {
        let reply = self.ask(request, &[], &[]);
        u64::from_le_bytes(reply.body.try_into().unwrap())
    }

    pub(super) fn set(&mut self, request: VhostRequest, value: u64) {
        self.send(request, &value.to_le_bytes(), &[]);
    }

    pub(super) fn vring(&mut self, request: VhostRequest, index: u32, number: u32) {
        self.send(request, &VringState { index, number }.bytes(), &[]);
    }

    pub(super) fn event(&mut self, request: VhostRequest, value: u64, file: Option<&File>) {
        let files: Vec<_> = file.iter().map(|file| file.as_fd()).collect();
        self.send(request, &value.to_le_bytes(), &files);
    }

    /// Negotiates these features, all of the protocol's, and, if requested, acknowledgements from then on.
    pub(super) fn negotiate(&mut self, features: Features) {
        assert!(self.number(VhostRequest::GET_FEATURES) & features.0 == features.0);
        if features.has(Features::PROTOCOL_FEATURES) {
            let protocol = self.number(VhostRequest::GET_PROTOCOL_FEATURES);
            assert_eq!(protocol, ProtocolFeatures::BACKEND.0);
            self.set(VhostRequest::SET_PROTOCOL_FEATURES, protocol);
        }
        self.send(VhostRequest::SET_OWNER, &[], &[]);
        self.set(VhostRequest::SET_FEATURES, features.0);
    }

    pub(super) fn region() -> RegionMessage {
        RegionMessage { guest: GUEST, length: LENGTH, user: USER, offset: 0 }
    }

    pub(super) fn share_memory(&mut self) {
        let mut body = 1_u64.to_le_bytes().to_vec();
        Peer::region().write(&mut body);
        let memory = self.memory.try_clone().unwrap();
        self.send(VhostRequest::SET_MEM_TABLE, &body, &[memory.as_fd()]);
    }

    pub(super) fn addresses(index: u32) -> VringAddresses {
        let start = USER + u64::from(index) * 0x10000;
        VringAddresses { index, flags: 0, descriptors: start, used: start + 0x4000, available: start + 0x2000, log: 0 }
    }

    /// Sets a ring up and starts it. Rings are at multiples of 64 KiB.
    pub(super) fn start_ring(&mut self, index: u32, base: u32) -> (File, File) {
        let (call, kick) = (event(), event());
        self.vring(VhostRequest::SET_VRING_NUM, index, SIZE.into());
        self.vring(VhostRequest::SET_VRING_BASE, index, base);
        self.send(VhostRequest::SET_VRING_ADDR, &Peer::addresses(index).bytes(), &[]);
        self.event(VhostRequest::SET_VRING_CALL, index.into(), Some(&call));
        self.event(VhostRequest::SET_VRING_KICK, index.into(), Some(&kick));
        (call, kick)
    }

    /// Makes `count` packets of 60 bytes available on this split transmit ring, whose next packet has the number
    /// `position`.
    pub(super) fn transmit(&self, index: u64, position: u16, count: u16) {
        let ring = index * 0x10000;
        let buffer = 0x80000;
        for number in position..position + count {
            let slot = u64::from(number % SIZE);
            let mut descriptor = (GUEST + buffer).to_le_bytes().to_vec();
            descriptor.extend(72_u32.to_le_bytes());
            descriptor.extend([0; 4]);
            self.memory.write_all_at(&descriptor, ring + 16 * slot).unwrap();
            self.memory.write_all_at(&(number % SIZE).to_le_bytes(), ring + 0x2000 + 4 + 2 * slot).unwrap();
        }
        self.memory.write_all_at(&(position + count).to_le_bytes(), ring + 0x2000 + 2).unwrap();
    }

    /// The device's position on this ring.
    pub(super) fn used(&self, index: u64) -> u16 {
        let mut bytes = [0; 2];
        self.memory.read_exact_at(&mut bytes, index * 0x10000 + 0x4000 + 2).unwrap();
        u16::from_le_bytes(bytes)
    }

    pub(super) fn base(&mut self, index: u32) -> u32 {
        let reply = self.ask(VhostRequest::GET_VRING_BASE, &VringState { index, number: 0 }.bytes(), &[]);
        u32::from_le_bytes(reply.body[4..].try_into().unwrap())
    }
}

/// How often an error occurred.
pub(super) fn errors(snapshot: &Snapshot<DeviceSide>, name: &str) -> u64 {
    snapshot.errors.iter().find(|(known, _)| *known == name).map_or(0, |(_, count)| *count)
}

/// A back end with an engine, and the path to it.
pub(super) struct Host {
    pub(super) folder: Folder,
    pub(super) status: Arc<BackendStatus>,
    pub(super) engine: Engine,
    pub(super) _backend: Backend,
}

impl Host {
    pub(super) fn start() -> Host {
        Host::with(PeerPolicy::default())
    }

    pub(super) fn with(policy: PeerPolicy) -> Host {
        let folder = Folder::new();
        let config = BackendConfig { policy: hasty(policy), ..config(&folder.socket(), Mode::Server) };
        let (backend, port) = Backend::start(config).unwrap();
        Host { status: backend.status(), engine: Engine::run(port), _backend: backend, folder }
    }

    /// How often each system call was denied to the control thread.
    pub(super) fn denied(&self) -> BTreeMap<String, u64> {
        self.status.snapshot().confinement.denied()
    }

    pub(super) fn peer(&self) -> Peer {
        Peer::connect(&self.folder.socket())
    }

    /// A driver's process without protocol features, of which `packets` packets have been taken.
    pub(super) fn served(&self, packets: u16) -> Peer {
        let mut peer = self.peer();
        peer.negotiate(FEATURES.without(Features::PROTOCOL_FEATURES));
        peer.share_memory();
        peer.start_ring(1, 0);
        peer.transmit(1, 0, packets);
        until("packets", || peer.used(1) == packets);
        peer
    }

    /// Checks that the host still serves.
    pub(super) fn still_works(&self) {
        self.served(5);
    }

    /// Waits until an error has been counted this often.
    pub(super) fn expect_errors(&self, name: &str, count: u64) {
        until(&format!("{count} × {name}: {:?}", self.status.snapshot()), || {
            errors(&self.status.snapshot(), name) >= count
        });
    }
}

/// No test makes a control thread do anything that is denied, except those that check the count themselves.
impl Drop for Host {
    fn drop(&mut self) {
        let mut denied = self.denied();
        denied.remove("chdir");
        assert!(std::thread::panicking() || denied.is_empty(), "denied to a control thread: {denied:?}");
    }
}

/// An owned descriptor as a file.
pub(super) fn file(descriptor: impl Into<OwnedFd>) -> File {
    File::from(descriptor.into())
}
