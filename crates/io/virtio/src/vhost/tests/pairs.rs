//! A front end and a back end, connected.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bellows_ipc::memfd;

use super::peer::{Engine, Folder, LENGTH, config, errors, event, until};
use crate::Features;
use crate::ring::Areas;
use crate::vhost::{
    Backend, BackendConfig, Borrowed, Confinement, DriverFactory, Frontend, FrontendConfig, FrontendStatus, Mode,
    Negotiated, PeerPolicy, Placed, QueueLayout, SharedFile,
};

const ADDRESS: u64 = 1 << 40;

/// The simplest driver: it transmits packets on the first split ring and never receives any.
pub(super) struct Driver {
    memory: File,
    next: u16,
    size: u16,
    pub(super) negotiated: Negotiated,
    /// Number of existing drivers.
    living: Arc<AtomicU64>,
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.living.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Driver {
    fn transmit(&mut self, count: u16) {
        for number in self.next..self.next + count {
            let slot = u64::from(number % self.size);
            let descriptor = [&(ADDRESS + 0x80000).to_le_bytes()[..], &72_u32.to_le_bytes(), &[0; 4]].concat();
            self.memory.write_all_at(&descriptor, 0x10000 + 16 * slot).unwrap();
            self.memory.write_all_at(&(number % self.size).to_le_bytes(), 0x12000 + 4 + 2 * slot).unwrap();
        }
        self.next += count;
        self.memory.write_all_at(&self.next.to_le_bytes(), 0x12000 + 2).unwrap();
    }

    fn used(&self) -> u16 {
        let mut bytes = [0; 2];
        self.memory.read_exact_at(&mut bytes, 0x14000 + 2).unwrap();
        u16::from_le_bytes(bytes)
    }
}

#[derive(Default)]
struct Simple {
    living: Arc<AtomicU64>,
}

impl DriverFactory for Simple {
    type Driver = Driver;

    fn place(&mut self, negotiated: &Negotiated) -> io::Result<Placed<Driver>> {
        let memory = memfd::sealed(LENGTH)?;
        let queues = (0..2 * u64::from(negotiated.pairs)).map(|index| {
            let start = ADDRESS + 0x10000 * index;
            let areas = Areas { descriptors: start, driver: start + 0x2000, device: start + 0x4000 };
            QueueLayout { areas, size: negotiated.ring_size, call: Some(event()), kick: Some(event()) }
        });
        let queues = queues.collect();
        self.living.fetch_add(1, Ordering::Relaxed);
        let living = Arc::clone(&self.living);
        let size = negotiated.ring_size;
        let driver = Driver { memory: memory.try_clone()?, next: 0, size, negotiated: *negotiated, living };
        let memory = vec![SharedFile { file: memory, offset: 0, length: LENGTH, address: ADDRESS }];
        Ok(Placed { driver, memory, queues })
    }
}

fn front_config(socket: &Path, mode: Mode) -> FrontendConfig {
    let features = Features::DEVICE.without(Features::RING_PACKED);
    FrontendConfig {
        app: String::new(),
        socket: socket.to_owned(),
        mode,
        pairs: 2,
        features,
        ring_size: 64,
        mac: None,
        policy: PeerPolicy::default(),
    }
}

pub(super) struct Front {
    frontend: Frontend,
    pub(super) port: Borrowed<Driver>,
    pub(super) status: Arc<FrontendStatus>,
    living: Arc<AtomicU64>,
}

impl Front {
    pub(super) fn start(socket: &Path, mode: Mode) -> Front {
        let layout = Simple::default();
        let living = Arc::clone(&layout.living);
        let (frontend, port) = Frontend::start(front_config(socket, mode), layout).unwrap();
        Front { status: frontend.status(), frontend, port, living }
    }

    pub(super) fn wait_for_driver(&mut self) -> &mut Driver {
        until(&format!("a driver: {:?}", self.status.snapshot()), || {
            self.port.sync();
            self.port.get().is_some()
        });
        self.port.get().unwrap()
    }

    pub(super) fn wait_for_none(&mut self) {
        until("the end of the driver", || {
            self.port.sync();
            self.port.get().is_none()
        });
    }
}

/// A layout that panics, then makes a call that is denied to a control thread, then works.
struct Troubled {
    simple: Simple,
    calls: u32,
}

impl DriverFactory for Troubled {
    type Driver = Driver;

    fn place(&mut self, negotiated: &Negotiated) -> io::Result<Placed<Driver>> {
        self.calls += 1;
        match self.calls {
            1 => std::panic::resume_unwind(Box::new("a panic for the test")),
            2 => {
                std::env::set_current_dir("/")?;
                self.simple.place(negotiated)
            }
            _ => self.simple.place(negotiated),
        }
    }
}

/// The control thread of the driver's side is guarded like that of the device.
#[test]
fn front_ends_survive_panics_and_denied_calls() {
    let folder = Folder::new();
    let (backend, port) = Backend::start(config(&folder.socket(), Mode::Server)).unwrap();
    let _engine = Engine::run(port);
    let layout = Troubled { simple: Simple::default(), calls: 0 };
    let (frontend, mut port) = Frontend::start(front_config(&folder.socket(), Mode::Client), layout).unwrap();
    let status = frontend.status();
    until("a driver", || {
        port.sync();
        port.get().is_some()
    });
    let snapshot = status.snapshot();
    assert!(snapshot.errors.contains(&("control_panicked", 1)), "{snapshot:?}");
    assert_eq!(snapshot.peer.unwrap().pid, std::process::id());
    if let Confinement::Confined(_) = snapshot.confinement {
        assert!(snapshot.errors.contains(&("driver_unusable", 1)), "{snapshot:?}");
        assert_eq!(snapshot.confinement.denied(), [("chdir".to_owned(), 1)].into());
    }
    drop((frontend, port, backend));
}

fn other(mode: Mode) -> Mode {
    if mode == Mode::Server { Mode::Client } else { Mode::Server }
}

#[test]
fn either_side_may_vanish_and_return_in_either_mode() {
    for mode in [Mode::Server, Mode::Client] {
        let folder = Folder::new();
        let socket = folder.socket();
        let mut front = Front::start(&socket, other(mode));
        let (mut backend, port) = Backend::start(config(&socket, mode)).unwrap();
        let mut engine = Engine::run(port);
        for _ in 0..3 {
            let driver = front.wait_for_driver();
            assert_eq!(driver.negotiated.pairs, 2);
            assert_eq!(driver.negotiated.mac, Some([2, 0, 0, 0, 0, 7]));
            assert!(driver.negotiated.features.has(Features::VERSION_1 | Features::MQ | Features::EVENT_IDX));
            driver.transmit(40);
            until("packets", || driver.used() == 40);
            // The front end vanishes while its rings run.
            drop(front);
            until("the end of the connection", || !backend.status().snapshot().side.connected);
            front = Front::start(&socket, other(mode));
            let driver = front.wait_for_driver();
            driver.transmit(40);
            until("packets", || driver.used() == 40);
            // Now the back end.
            drop((engine, backend));
            front.wait_for_none();
            until("no driver lives", || front.living.load(Ordering::Relaxed) == 0);
            let (again, port) = Backend::start(config(&socket, mode)).unwrap();
            (engine, backend) = (Engine::run(port), again);
        }
        let driver = front.wait_for_driver();
        driver.transmit(10);
        until("packets", || driver.used() == 10);
        let living = Arc::clone(&front.living);
        drop(front);
        assert_eq!(living.load(Ordering::Relaxed), 0);
        assert_eq!(backend.status().snapshot().errors, []);
    }
}

#[test]
fn a_front_end_takes_as_many_pairs_as_there_are_and_no_option_that_is_not_offered() {
    let folder = Folder::new();
    let socket = folder.socket();
    let features = Features::DEVICE.without(Features::VERSION_1).without(Features::MRG_RXBUF).coherent();
    let config = BackendConfig { queues: 1.into(), features, ..config(&socket, Mode::Server) };
    let (_backend, port) = Backend::start(config).unwrap();
    let _engine = Engine::run(port);
    let mut front = Front::start(&socket, Mode::Client);
    let driver = front.wait_for_driver();
    let Negotiated { features, pairs, .. } = driver.negotiated;
    assert_eq!(pairs, 1);
    assert!(!features.has_any(Features::VERSION_1 | Features::MRG_RXBUF | Features::MQ | Features::IN_ORDER));
    driver.transmit(3);
    until("packets", || driver.used() == 3);
}

#[test]
fn a_driver_that_is_given_up_is_replaced() {
    let folder = Folder::new();
    let socket = folder.socket();
    let (_backend, port) = Backend::start(config(&socket, Mode::Server)).unwrap();
    let _engine = Engine::run(port);
    let mut front = Front::start(&socket, Mode::Client);
    front.wait_for_driver().transmit(7);
    front.port.give_up();
    let driver = front.wait_for_driver();
    assert_eq!(driver.next, 0);
    driver.transmit(3);
    until("packets", || driver.used() == 3);
    let snapshot = front.status.snapshot();
    assert_eq!((snapshot.connections, snapshot.errors), (2, vec![("driver_failed", 1)]));
}

#[test]
fn the_port_may_go_before_the_front_end_and_after_it() {
    let folder = Folder::new();
    let socket = folder.socket();
    let (backend, port) = Backend::start(config(&socket, Mode::Server)).unwrap();
    let _engine = Engine::run(port);
    let mut front = Front::start(&socket, Mode::Client);
    front.wait_for_driver();
    drop(front.port);
    drop(front.frontend);
    assert_eq!(front.living.load(Ordering::Relaxed), 0);
    let mut front = Front::start(&socket, Mode::Client);
    front.wait_for_driver();
    drop(front.frontend);
    // The engine still has it until it checks.
    assert_eq!(front.living.load(Ordering::Relaxed), 1);
    front.port.sync();
    assert!(front.port.get().is_none());
    drop(front.port);
    assert_eq!(front.living.load(Ordering::Relaxed), 0);
    assert_eq!(errors(&backend.status().snapshot(), "message_cut_off"), 0);
}

#[test]
fn impossible_configs_are_rejected_at_once() {
    let folder = Folder::new();
    let socket = folder.socket();
    for (pairs, ring_size) in [(0, 64), (1, 0), (1, 100), (1, 65_535), (1000, 64)] {
        let config = FrontendConfig { pairs, ring_size, ..front_config(&socket, Mode::Server) };
        let error = Frontend::start(config, Simple::default()).err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{error}");
    }
    for queues in [0, 1000] {
        let error =
            Backend::start(BackendConfig { queues: queues.into(), ..config(&socket, Mode::Server) }).err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{error}");
    }
    assert!(!socket.exists());
}
