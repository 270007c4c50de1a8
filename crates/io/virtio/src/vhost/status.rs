//! The status of a back end or a front end, for any thread.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bellows_events::{PeerConnected, PeerDisconnected, PeerError};
use bellows_ipc::notify::{Means, Notifiers};
use bellows_ipc::socket::Peer;
use bellows_sys::cpu::{Faults, thread_faults};
use tracing::{error, warn};

use crate::Features;
use crate::ring::Counters;

use super::message::ProtocolFeatures;
use super::{Confinement, Mode, Negotiated, ProtocolError};
use bellows_handover::{LogLimit, with_suppressed};

/// The status of one side, a back end or a front end. The control thread and the engine write it, any thread can read
/// it.
pub struct SideStatus<S> {
    /// The app, for the log; empty if there is none.
    app: String,
    socket: PathBuf,
    mode: Mode,
    state: Mutex<VhostState<S>>,
    faults: SharedFaults,
}

/// The status of a front end.
pub type FrontendStatus = SideStatus<DriverSide>;

/// The status of a back end: that of its device, of whose queues it has some or all.
pub struct BackendStatus {
    device: Arc<DeviceStatus>,
    pairs: Vec<u16>,
    /// Those of the thread of the app, while others serve other queues.
    faults: SharedFaults,
}

/// The status of a device.
pub(super) struct DeviceStatus {
    pub(super) common: SideStatus<DeviceSide>,
    /// Counters of the rings that run. The engine writes those of the rings that it has, the control thread those of
    /// the others.
    running: Vec<SharedCounters>,
    notifiers: Notifiers,
}

/// The status of a back end or a front end at one moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot<S> {
    /// The connected process, as the kernel reports it; `None` if there is none.
    pub peer: Option<Peer>,
    /// Number of connections so far; of a front end, only those with a working device.
    pub connections: u64,
    /// Whether the control thread is confined.
    pub confinement: Confinement,
    /// Page faults of the engine's thread, as last recorded.
    pub faults: Faults,
    /// How often each error has occurred, by name: errors of the protocol, and for a back end also those of ring setup
    /// and of rings that ran.
    pub errors: Vec<(&'static str, u64)>,
    /// The last error, as text.
    pub last_error: Option<String>,
    /// The reason why the control thread waits.
    pub waits: Option<String>,
    /// The part that only this side has.
    pub side: S,
}

/// The status that only a back end has.
#[derive(Clone, Debug, Default)]
pub struct DeviceSide {
    /// Whether a driver's process is connected.
    pub connected: bool,
    /// The offered features.
    pub offered: Features,
    /// The negotiated features; `None` before that.
    pub features: Option<Features>,
    /// The negotiated features of the protocol itself.
    pub protocol: ProtocolFeatures,
    /// The memory regions: first guest address and length.
    pub regions: Vec<(u64, u64)>,
    /// Whether the written pages are logged.
    pub logging: bool,
    /// The queues of the back end in order: receive and transmit of its first pair, then of the second, ….
    pub queues: Vec<QueueStatus>,
}

/// The status that only a front end has.
#[derive(Clone, Debug, Default)]
pub struct DriverSide {
    /// The result of the negotiation with the current device; `None` if there is none.
    pub negotiated: Option<Negotiated>,
}

/// One queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueStatus {
    /// Its state.
    pub state: QueueState,
    /// The name of the loop that runs it. Empty if it does not run.
    pub instance: String,
    /// Number of descriptors.
    pub size: u16,
    /// The counters of its rings since the back end was started.
    pub counters: Counters,
}

/// The state of a queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum QueueState {
    /// The driver has not started it.
    #[default]
    Stopped,
    /// The driver has started and disabled it.
    Disabled,
    /// It runs, or will as soon as the engine takes it.
    Running,
    /// It was stopped because of an error.
    Failed(String),
}

/// Counters that one thread writes and others read at any time.
#[derive(Default)]
struct SharedCounters([AtomicU64; 8]);

impl SharedCounters {
    fn store(&self, counters: Counters) {
        let Counters { packets, bytes, chains, calls, empty, too_long, bad_header, no_large_buffer } = counters;
        let counters = [packets, bytes, chains, calls, empty, too_long, bad_header, no_large_buffer];
        self.0.iter().zip(counters).for_each(|(shared, counter)| shared.store(counter, Relaxed));
    }

    fn load(&self) -> Counters {
        let [packets, bytes, chains, calls, empty, too_long, bad_header, no_large_buffer] =
            self.0.each_ref().map(|counter| counter.load(Relaxed));
        Counters { packets, bytes, chains, calls, empty, too_long, bad_header, no_large_buffer }
    }
}

/// Page faults that one thread counts and others read.
#[derive(Default)]
struct SharedFaults([AtomicU64; 2]);

impl SharedFaults {
    /// Records those of this thread.
    fn note(&self) {
        let Faults { minor, major } = thread_faults();
        self.0[0].store(minor, Relaxed);
        self.0[1].store(major, Relaxed);
    }

    fn load(&self) -> Faults {
        let [minor, major] = self.0.each_ref().map(|count| count.load(Relaxed));
        Faults { minor, major }
    }
}

struct VhostState<S> {
    snapshot: Snapshot<S>,
    errors: Errors,
    lines: LogLimit,
}

/// How often each error occurred.
#[derive(Default)]
struct Errors(BTreeMap<&'static str, u64>);

impl Errors {
    fn count(&mut self, name: &'static str) {
        *self.0.entry(name).or_default() += 1;
    }

    fn list(&self) -> Vec<(&'static str, u64)> {
        self.0.iter().map(|(name, count)| (*name, *count)).collect()
    }
}

impl<S: Clone + Default> SideStatus<S> {
    pub(super) fn new(app: String, socket: PathBuf, mode: Mode) -> SideStatus<S> {
        let lines = LogLimit::new(Instant::now());
        let state = VhostState { snapshot: Snapshot::default(), errors: Errors::default(), lines };
        SideStatus { app, socket, mode, state: Mutex::new(state), faults: SharedFaults::default() }
    }

    /// Path of the socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Who opens the socket.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The current status.
    pub fn snapshot(&self) -> Snapshot<S> {
        self.snapshot_of(&self.lock())
    }

    fn snapshot_of(&self, state: &VhostState<S>) -> Snapshot<S> {
        Snapshot { errors: state.errors.list(), faults: self.faults.load(), ..state.snapshot.clone() }
    }

    /// Records the page faults of the calling thread, which must be the engine's. Does not wait.
    pub fn note(&self) {
        self.faults.note();
    }

    fn lock(&self) -> MutexGuard<'_, VhostState<S>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the status.
    pub(super) fn update(&self, change: impl FnOnce(&mut Snapshot<S>)) {
        change(&mut self.lock().snapshot);
    }

    /// Sets whether the control thread is confined.
    pub(super) fn confinement(&self, confinement: Confinement) {
        let mut state = self.lock();
        if let Confinement::Not(why) = &confinement {
            let line = format!("the control thread is not confined: {why}");
            log(&mut state.lines, &self.socket, LogEntry::Warn(&line));
        }
        state.snapshot.confinement = confinement;
    }

    /// Logs the system calls denied to the control thread, if there are more than `told`. Returns their number.
    pub(super) fn log_denials(&self, told: u64) -> u64 {
        let mut state = self.lock();
        let Some((line, total)) = state.snapshot.confinement.news(told) else { return told };
        log(&mut state.lines, &self.socket, LogEntry::Error(&line));
        total
    }

    /// Records a panic of the control thread.
    pub(super) fn panicked(&self, message: &str) {
        let mut state = self.lock();
        state.errors.count(PANICKED);
        let line = format!("the control thread panicked: {message}; {RESTARTED}");
        log(&mut state.lines, &self.socket, LogEntry::Error(&line));
        state.snapshot.last_error = Some(line);
    }

    /// Counts an error, and logs it unless it is the same as the last one: a peer may cause it any number of times.
    pub(super) fn count(&self, name: &'static str, message: String) {
        let mut state = self.lock();
        state.errors.count(name);
        if state.snapshot.last_error.as_ref() != Some(&message) {
            if let Some(suppressed) = state.lines.take(Instant::now()) {
                let (app, port) = (&*self.app, &*self.socket.to_string_lossy());
                PeerError { app, port, error: name }
                    .log(format_args!("{port}: {}", with_suppressed(&message, suppressed)));
            }
            state.snapshot.last_error = Some(message);
        }
    }

    pub(super) fn protocol_error(&self, error: &ProtocolError) {
        self.count(error.name(), error.to_string());
    }

    /// Logs that a peer has connected, unless peers have caused too many lines.
    pub(super) fn greet(&self, what: &str, peer: Peer) {
        if let Some(suppressed) = self.lock().lines.take(Instant::now()) {
            let (app, port) = (&*self.app, &*self.socket.to_string_lossy());
            let line = with_suppressed(&format!("{what}: process {}, user {}", peer.pid, peer.uid), suppressed);
            let (peer_pid, peer_uid) = (Some(peer.pid.into()), Some(peer.uid.into()));
            PeerConnected { app, port, peer_pid, peer_uid }.log(format_args!("{port}: {line}"));
        }
    }

    /// Logs that the peer is gone, unless peers have caused too many lines.
    pub(super) fn part(&self, line: &str) {
        if let Some(suppressed) = self.lock().lines.take(Instant::now()) {
            let (app, port) = (&*self.app, &*self.socket.to_string_lossy());
            PeerDisconnected { app, port }.log(format_args!("{port}: {}", with_suppressed(line, suppressed)));
        }
    }
}

impl BackendStatus {
    pub(super) fn new(device: Arc<DeviceStatus>, pairs: Vec<u16>) -> BackendStatus {
        BackendStatus { device, pairs, faults: SharedFaults::default() }
    }

    /// How the driver is notified, for how many queues a thread does it because the kernel took too long, and since when.
    pub fn notifications(&self) -> (Means, usize, Option<Duration>) {
        let notifiers = &self.device.notifiers;
        (notifiers.means(), notifiers.demoted(), notifiers.demoted_for())
    }

    /// Path of the socket.
    pub fn socket(&self) -> &Path {
        self.device.common.socket()
    }

    /// Who opens the socket.
    pub fn mode(&self) -> Mode {
        self.device.common.mode()
    }

    /// The numbers of its pairs of queues.
    pub fn pairs(&self) -> &[u16] {
        &self.pairs
    }

    /// The current status.
    pub fn snapshot(&self) -> Snapshot<DeviceSide> {
        let mut snapshot = self.device.snapshot();
        let side = &mut snapshot.side;
        // The driver may have connected when the device had fewer pairs.
        let queue = |queue: usize| side.queues.get(queue).cloned().unwrap_or_default();
        side.queues = self.queues().map(queue).collect();
        snapshot.faults = self.faults.load();
        snapshot
    }

    /// Records the counters of running rings, by the numbers of its own queues. Does not wait.
    pub(super) fn note(&self, counters: impl Iterator<Item = (usize, Counters)>) {
        counters.for_each(|(queue, counters)| {
            let queue = 2 * usize::from(self.pairs[queue / 2]) + queue % 2;
            self.device.running[queue].store(counters);
        });
        self.faults.note();
    }

    /// Its queues as the device counts them.
    fn queues(&self) -> impl Iterator<Item = usize> {
        self.pairs.iter().flat_map(|pair| [2 * usize::from(*pair), 2 * usize::from(*pair) + 1])
    }
}

impl DeviceStatus {
    /// The status of a device with at most this many queues.
    pub(super) fn new(app: String, socket: PathBuf, mode: Mode, queues: usize, notifiers: Notifiers) -> DeviceStatus {
        let common = SideStatus::<DeviceSide>::new(app, socket, mode);
        DeviceStatus { common, running: (0..queues).map(|_| SharedCounters::default()).collect(), notifiers }
    }

    /// Records the features that a driver is offered.
    pub(super) fn offer(&self, offered: Features) {
        self.common.update(|snapshot| snapshot.side.offered = offered);
    }

    /// Path of the socket.
    pub(super) fn socket(&self) -> &Path {
        self.common.socket()
    }

    fn snapshot(&self) -> Snapshot<DeviceSide> {
        // The counters of a ring that ends meanwhile are not added twice: settle() waits.
        let state = self.common.lock();
        let mut snapshot = self.common.snapshot_of(&state);
        for (queue, counters) in snapshot.side.queues.iter_mut().zip(&self.running) {
            add(&mut queue.counters, counters.load());
        }
        snapshot
    }

    /// Records a connection, for which the device has this many queues.
    pub(super) fn connected(&self, peer: Peer, queues: usize) {
        self.common.update(|snapshot| {
            let side = &mut snapshot.side;
            side.connected = true;
            let count = queues.max(side.queues.len());
            side.queues.resize_with(count, QueueStatus::default);
            snapshot.peer = Some(peer);
            snapshot.connections += 1;
        });
    }

    /// Records that the connection has ended. True if there was one.
    pub(super) fn disconnected(&self) -> bool {
        let mut state = self.common.lock();
        state.snapshot.peer = None;
        std::mem::take(&mut state.snapshot.side.connected)
    }

    /// Adds up the counters of a ring that has ended.
    pub(super) fn settle(&self, queue: usize, counters: Counters) {
        let mut state = self.common.lock();
        self.running[queue].store(Counters::default());
        add(&mut state.snapshot.side.queues[queue].counters, counters);
    }
}

/// The name under which panics are counted.
const PANICKED: &str = "control_panicked";

/// What happens after a panic of the control thread.
const RESTARTED: &str = "the connection is closed, and the next one starts anew; this is a bug in bellows";

/// A line of the log.
enum LogEntry<'a> {
    Warn(&'a str),
    Error(&'a str),
}

fn log(lines: &mut LogLimit, socket: &Path, line: LogEntry<'_>) {
    let Some(suppressed) = lines.take(Instant::now()) else { return };
    let socket = socket.display();
    match line {
        LogEntry::Warn(line) => warn!("{socket}: {}", with_suppressed(line, suppressed)),
        LogEntry::Error(line) => error!("{socket}: {}", with_suppressed(line, suppressed)),
    }
}

fn add(sum: &mut Counters, more: Counters) {
    let Counters { packets, bytes, chains, calls, empty, too_long, bad_header, no_large_buffer } = more;
    sum.packets += packets;
    sum.bytes += bytes;
    sum.chains += chains;
    sum.calls += calls;
    sum.empty += empty;
    sum.too_long += too_long;
    sum.bad_header += bad_header;
    sum.no_large_buffer += no_large_buffer;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The engine may write counters at any time, also during a snapshot, and each is counted only once.
    #[test]
    fn counters_of_the_engine_are_seen_by_concurrent_readers() {
        let device = DeviceStatus::new(String::new(), "s".into(), Mode::Server, 4, Notifiers::by_thread(0).unwrap());
        let device = Arc::new(device);
        device.connected(Peer { pid: 1, uid: 0, gid: 0 }, 4);
        let status = BackendStatus::new(Arc::clone(&device), vec![1]);
        let counters = |number| Counters { packets: number, bad_header: 7 * number, ..Counters::default() };
        let looking = device.common.lock();
        status.note([(1, counters(5))].into_iter());
        drop(looking);
        assert_eq!(status.snapshot().side.queues[1].counters, counters(5));
        device.settle(3, counters(6));
        assert_eq!(status.snapshot().side.queues[1].counters, counters(6));
        status.note([(1, counters(3))].into_iter());
        assert_eq!(status.snapshot().side.queues[1].counters, counters(9));
        assert_eq!(status.snapshot().side.queues[0].counters, Counters::default());
        let other = BackendStatus::new(device, vec![0, 7]).snapshot().side.queues;
        assert_eq!(other, vec![QueueStatus::default(); 4], "the counters of another app are not its own");
    }
}
