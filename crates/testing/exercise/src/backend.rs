//! A vhost-user back end that runs all the time, with an engine that serves any rings that arbitrary messages set up.

use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bellows_adversary::ScriptedDriver;
use bellows_packet::{Packet, Vector};
use bellows_sys::wake::sleep_until_readable;
use bellows_testkit::scratch;
use bellows_testkit::scratch::TempDir;
use bellows_virtio::Features;
use bellows_virtio::ring::Direction;
#[cfg(debug_assertions)]
use bellows_virtio::ring::{STEPS_PER_CALL, STEPS_PER_PACKET};
use bellows_virtio::vhost::{Backend, BackendConfig, BackendStatus, Mode, PeerPolicy, Port};

/// The maximum number of packets for a call, and of descriptors that it may visit for them.
const BURST: usize = 32;
#[cfg(debug_assertions)]
const MAX_STEPS: u64 = (STEPS_PER_PACKET * BURST + STEPS_PER_CALL) as u64;

/// An upper limit on the duration of any step.
const LIMIT: Duration = Duration::from_secs(20);

/// A back end and its engine, for the life of the process.
pub struct Host {
    socket: PathBuf,
    /// The socket's folder, which this value removes.
    _folder: TempDir,
    backend: Option<Backend>,
    engine: Option<JoinHandle<()>>,
    end: Arc<AtomicBool>,
    /// Breaths in which a ring ran.
    rings: Arc<AtomicU64>,
    talks: u64,
    /// Descriptors and mappings after the first conversations.
    baseline: Option<(usize, usize)>,
}

impl Host {
    /// Starts both. The socket is in a folder of its own.
    pub fn start() -> Host {
        let folder = scratch();
        let socket = folder.path().join("socket");
        let config = BackendConfig {
            app: String::new(),
            socket: socket.clone(),
            mode: Mode::Server,
            queues: 2.into(),
            features: Features::DEVICE,
            mac: Some([2, 0, 0, 0, 0, 1]),
            // Thousands of connections end at once.
            policy: PeerPolicy { longest_pause: Duration::ZERO, ..PeerPolicy::default() },
        };
        let (backend, port) = Backend::start(config).unwrap();
        let end = Arc::new(AtomicBool::new(false));
        let rings = Arc::new(AtomicU64::new(0));
        let (ended, count) = (Arc::clone(&end), Arc::clone(&rings));
        let engine = std::thread::spawn(move || run(port, &ended, &count));
        Host {
            socket,
            _folder: folder,
            backend: Some(backend),
            engine: Some(engine),
            end,
            rings,
            talks: 0,
            baseline: None,
        }
    }

    /// The state that the back end reports.
    pub fn status(&self) -> Arc<BackendStatus> {
        self.backend.as_ref().expect("there until the end").status()
    }

    /// The number of breaths in which a ring ran.
    pub fn rings(&self) -> u64 {
        self.rings.load(Ordering::Relaxed)
    }

    /// Sends these bytes as messages, and checks that the back end closes the connection.
    pub fn talk(&mut self, bytes: &[u8]) {
        let mut talker = ScriptedDriver::new(UnixStream::connect(&self.socket).unwrap(), bytes);
        while !talker.is_done() {
            talker.say();
        }
        talker.finish();
        self.talks += 1;
        if self.talks.is_multiple_of(256) {
            self.look_for_leaks();
        }
    }

    /// Checks that descriptors and mappings do not accumulate. A separate thread closes them after the end of a
    /// connection.
    fn look_for_leaks(&mut self) {
        let status = self.status();
        let start = Instant::now();
        let wait = |what: &str| {
            assert!(start.elapsed() < LIMIT, "{what}");
            std::thread::sleep(Duration::from_millis(1));
        };
        while status.snapshot().side.connected {
            wait("the back end holds on to a connection that is gone");
        }
        let Some((descriptors, mappings)) = self.baseline else {
            std::thread::sleep(Duration::from_millis(100));
            self.baseline = Some(open());
            return;
        };
        loop {
            let now = open();
            if now.0 <= descriptors + 4 && now.1 <= mappings + 4 {
                return;
            }
            wait(&format!("{now:?} descriptors and mappings, {:?} before", (descriptors, mappings)));
        }
    }
}

/// The numbers of open descriptors and of mappings of shared memory.
fn open() -> (usize, usize) {
    let descriptors = std::fs::read_dir("/proc/self/fd").unwrap().count();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    (descriptors, maps.lines().filter(|line| line.contains("memfd:")).count())
}

impl Drop for Host {
    fn drop(&mut self) {
        self.backend = None;
        self.end.store(true, Ordering::Relaxed);
        if let Some(engine) = self.engine.take() {
            let _ = engine.join();
        }
    }
}

/// Calls a ring, and checks that the call worked within bounds. Builds without debug assertions do not count steps.
macro_rules! bounded {
    ($ring:ident, $call:expr) => {{
        #[cfg(debug_assertions)]
        let before = $ring.steps();
        let result = $call;
        #[cfg(debug_assertions)]
        assert!($ring.steps() - before <= MAX_STEPS, "a call worked without bounds");
        result
    }};
}

/// The engine: takes packets from all rings, delivers some to all, and sleeps while there are none.
fn run(mut port: Port, ended: &AtomicBool, rings: &AtomicU64) {
    let bell = port.doorbell();
    let mut vector = Vector::new();
    let packets = [60, 1500].map(|length| Packet::from_bytes(&vec![7; length]).unwrap());
    while !ended.load(Ordering::Relaxed) {
        port.sync();
        let mut running = false;
        for pair in 0..2 {
            if let Some(ring) = &mut port.transmit()[pair] {
                running = true;
                let result = bounded!(ring, ring.transmit(&mut vector, BURST));
                match result {
                    Ok(_) => vector.drain(usize::MAX).for_each(drop),
                    Err(error) => port.fail(Direction::Transmit, pair, error),
                }
            }
            if let Some(ring) = &mut port.receive()[pair] {
                running = true;
                let result = bounded!(ring, ring.receive(&packets));
                if let Err(error) = result {
                    port.fail(Direction::Receive, pair, error);
                }
            }
        }
        port.note();
        if running {
            rings.fetch_add(1, Ordering::Relaxed);
            std::thread::yield_now();
        } else if port.doorbell().word().load(Ordering::Relaxed) == port.expected() {
            sleep_until_readable(&[bell.descriptor()], Some(Duration::from_millis(20))).unwrap();
        }
    }
}
