//! Devices whose pairs of queues several back ends share, each with an engine of its own.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bellows_ports::QueueSet;

use super::peer::{Engine, FEATURES, Folder, Peer, config, until};
use crate::Features;
use crate::vhost::request::VhostRequest;
use crate::vhost::{Backend, BackendConfig, Mode, Port, QueueState};

fn part(folder: &Folder, pairs: &[u16]) -> BackendConfig {
    BackendConfig { queues: QueueSet::Part(pairs.to_vec()), ..config(&folder.socket(), Mode::Server) }
}

/// A back end with its engine. They end in the order of an app.
struct App {
    backend: Backend,
    _engine: Engine,
}

impl App {
    fn of((backend, port): (Backend, Port)) -> App {
        port.begin();
        backend.begin();
        App { backend, _engine: Engine::run(port) }
    }

    fn start(folder: &Folder, pairs: &[u16]) -> App {
        App::of(Backend::start(part(folder, pairs)).unwrap())
    }

    /// All apps of a network: they begin when all have started.
    fn all(folder: &Folder, parts: &[&[u16]]) -> Vec<App> {
        let started: Vec<_> = parts.iter().map(|pairs| Backend::start(part(folder, pairs)).unwrap()).collect();
        started.into_iter().map(App::of).collect()
    }

    /// The packets of each of its transmit rings.
    fn transmitted(&self) -> Vec<u64> {
        let queues = self.backend.status().snapshot().side.queues;
        queues.iter().skip(1).step_by(2).map(|queue| queue.counters.packets).collect()
    }

    fn connections(&self) -> u64 {
        self.backend.status().snapshot().connections
    }
}

/// A driver with running transmit rings of these pairs, and the number of packets on each.
struct Driver {
    peer: Peer,
    rings: Vec<(u32, u16)>,
}

impl Driver {
    fn connect(folder: &Folder, pairs: u32) -> Driver {
        let mut peer = Peer::connect(&folder.socket());
        peer.negotiate(FEATURES);
        peer.share_memory();
        let rings = (0..pairs).map(|pair| (2 * pair + 1, 0)).collect();
        let mut driver = Driver { peer, rings };
        for (ring, _) in driver.rings.clone() {
            driver.peer.start_ring(ring, 0);
            driver.peer.vring(VhostRequest::SET_VRING_ENABLE, ring, 1);
        }
        driver
    }

    fn offer(&mut self, pair: usize, count: u16) {
        let (ring, position) = &mut self.rings[pair];
        self.peer.transmit((*ring).into(), *position, count);
        *position = position.wrapping_add(count);
    }

    fn is_done(&self, pair: usize) -> bool {
        let (ring, position) = self.rings[pair];
        self.peer.used(ring.into()) == position
    }

    #[track_caller]
    fn send(&mut self, pair: usize, count: u16) {
        self.offer(pair, count);
        until(&format!("{count} packets on pair {pair}"), || self.is_done(pair));
    }
}

#[test]
fn each_back_end_serves_its_pairs_of_one_device() {
    let folder = Folder::new();
    let apps = App::all(&folder, &[&[2, 0], &[1]]);
    let mut driver = Driver::connect(&folder, 3);
    assert_eq!(driver.peer.number(VhostRequest::GET_QUEUE_NUM), 3);
    for (pair, count) in [(0, 10), (1, 20), (2, 30)] {
        driver.send(pair, count);
    }
    until("counters", || apps[0].transmitted() == [30, 10] && apps[1].transmitted() == [20]);
    assert_eq!(apps[0].backend.status().pairs(), [2, 0]);
    for app in &apps {
        let snapshot = app.backend.status().snapshot();
        assert_eq!((snapshot.connections, snapshot.errors), (1, Vec::new()));
        assert!(snapshot.side.offered.has(Features::MQ));
    }
    // The driver stops all of them, and the device ends with its last back end.
    for ring in [1, 3, 5] {
        assert_ne!(driver.peer.base(ring), 0);
    }
    let mut apps = apps.into_iter();
    drop(apps.next());
    assert!(folder.socket().exists());
    drop(apps.next());
    assert!(!folder.socket().exists());
    assert!(driver.peer.receive().is_none());
}

#[test]
fn no_driver_is_accepted_before_all_pairs_are_there() {
    let folder = Folder::new();
    let first = Backend::start(part(&folder, &[0])).unwrap();
    let mut peer = Peer::connect(&folder.socket());
    let second = Backend::start(part(&folder, &[1])).unwrap();
    let features = Features::DEVICE.without(Features::RING_PACKED);
    let other = BackendConfig { features, ..part(&folder, &[2]) };
    let error = Backend::start(other).err().unwrap().to_string();
    assert!(error.contains("only `queues` may differ"), "{error}");
    assert_eq!(first.0.status().snapshot().connections, 0);
    let apps = [first, second].map(App::of);
    peer.negotiate(FEATURES);
    assert_eq!(peer.number(VhostRequest::GET_QUEUE_NUM), 2);
    assert_eq!(apps[1].connections(), 1);
}

#[test]
fn pairs_pass_from_one_back_end_to_another_while_the_driver_stays() {
    let folder = Folder::new();
    let mut apps = App::all(&folder, &[&[0], &[1]]);
    let mut driver = Driver::connect(&folder, 2);
    for round in 1..=5_u16 {
        (0..2).for_each(|pair| driver.send(pair, 100));
        // Each takes the pair of the other.
        let pairs: [&[u16]; 2] = if round % 2 == 1 { [&[1], &[0]] } else { [&[0], &[1]] };
        let new: Vec<_> =
            apps.iter().zip(pairs).map(|(app, pairs)| app.backend.succeed(part(&folder, pairs)).unwrap()).collect();
        (0..2).for_each(|pair| driver.send(pair, 10));
        let new: Vec<App> = new.into_iter().map(App::of).collect();
        (0..2).for_each(|pair| driver.offer(pair, 10));
        drop(std::mem::replace(&mut apps, new));
        until("the rest", || (0..2).all(|pair| driver.is_done(pair)));
    }
    assert_eq!(apps[0].connections(), 1, "the driver has noticed nothing");
    let all = 5 * 120;
    until("all packets are counted once", || apps.iter().all(|app| app.transmitted() == [all]));
}

#[test]
fn a_pair_without_a_back_end_waits_for_one() {
    let folder = Folder::new();
    let mut apps = App::all(&folder, &[&[0], &[1]]);
    let mut driver = Driver::connect(&folder, 2);
    (0..2).for_each(|pair| driver.send(pair, 10));
    drop(apps.pop());
    driver.offer(1, 50);
    driver.send(0, 10);
    assert!(!driver.is_done(1), "nobody has it");
    // The driver can still stop and start it.
    assert_eq!(driver.peer.base(3), 10);
    driver.peer.event(VhostRequest::SET_VRING_KICK, 3, Some(&super::peer::event()));
    apps.push(App::start(&folder, &[1]));
    until("the packets that have waited", || driver.is_done(1));
    assert_eq!(apps[0].connections(), 1);

    // A new driver finds what is there now.
    drop(apps.pop());
    drop(driver);
    let mut driver = Driver::connect(&folder, 1);
    assert_eq!(driver.peer.number(VhostRequest::GET_QUEUE_NUM), 1);
    assert!(!apps[0].backend.status().snapshot().side.offered.has(Features::MQ));
    // More pairs are for the next one, and the present one does not see them.
    apps.push(App::start(&folder, &[1, 2]));
    driver.send(0, 10);
    assert_eq!(driver.peer.number(VhostRequest::GET_QUEUE_NUM), 1);
    let queues = apps[1].backend.status().snapshot().side.queues;
    assert!(queues.len() == 4 && queues.iter().all(|queue| queue.state == QueueState::Stopped));
    drop(driver);
    let mut driver = Driver::connect(&folder, 3);
    (0..3).for_each(|pair| driver.send(pair, 10));
    assert_eq!(apps[1].transmitted(), [70, 10]);
}

#[test]
fn other_keys_make_another_device_at_the_same_socket() {
    let folder = Folder::new();
    let mut apps = App::all(&folder, &[&[0], &[1]]);
    let mut driver = Driver::connect(&folder, 2);
    let other = |pairs: &[u16]| {
        let features = Features::DEVICE.without(Features::RING_PACKED);
        BackendConfig { features, ..part(&folder, pairs) }
    };
    // A reload that fails: one that succeeds another back end, and a new one.
    let failed = [apps[0].backend.succeed(other(&[0])).unwrap(), Backend::start(other(&[1])).unwrap()];
    drop(failed);
    (0..2).for_each(|pair| driver.send(pair, 10));
    drop(driver);
    let driver = Driver::connect(&folder, 2);
    until("the old device has accepted it", || apps[0].connections() == 2);

    let new = [apps[0].backend.succeed(other(&[0])).unwrap(), Backend::start(other(&[1])).unwrap()];
    drop(std::mem::replace(&mut apps, new.map(App::of).into()));
    drop(driver);
    let mut driver = Driver::connect(&folder, 2);
    (0..2).for_each(|pair| driver.send(pair, 10));
    assert_eq!(driver.peer.number(VhostRequest::GET_FEATURES) & Features::RING_PACKED.0, 0);

    // One back end alone takes its place, and is divided again.
    let whole = BackendConfig { queues: 2.into(), ..part(&folder, &[]) };
    let whole = App::of(apps[1].backend.succeed(whole).unwrap());
    apps.clear();
    drop(driver);
    let mut driver = Driver::connect(&folder, 2);
    (0..2).for_each(|pair| driver.send(pair, 10));
    let new = [Backend::start(part(&folder, &[1])).unwrap(), whole.backend.succeed(part(&folder, &[0])).unwrap()];
    let _apps = new.map(App::of);
    drop(whole);
    drop(driver);
    let mut driver = Driver::connect(&folder, 2);
    (0..2).for_each(|pair| driver.send(pair, 10));
}

#[test]
fn a_ring_whose_app_has_panicked_is_made_anew() {
    let folder = Folder::new();
    let stays = App::start(&folder, &[0]);
    let (backend, mut port) = Backend::start(part(&folder, &[1])).unwrap();
    port.begin();
    let mut driver = Driver::connect(&folder, 2);
    until("a ring", || {
        port.sync();
        port.transmit()[0].is_some()
    });
    let ring = port.transmit()[0].as_mut().unwrap();
    let before = ring.doorbell();
    ring.interrupt();
    drop((port, backend));
    let (backend, mut port) = Backend::start(part(&folder, &[1])).unwrap();
    port.begin();
    until("another ring", || {
        port.sync();
        port.transmit()[0].is_some()
    });
    assert!(!std::sync::Arc::ptr_eq(&before, &port.transmit()[0].as_ref().unwrap().doorbell()));
    let again = App::of((backend, port));
    (0..2).for_each(|pair| driver.send(pair, 10));
    assert_eq!((stays.connections(), again.connections()), (1, 1));
}

/// Back ends come, go, and take pairs from one another, while drivers do the same with their rings.
#[test]
fn nothing_hangs_or_is_lost_while_everything_changes() {
    const PAIRS: u16 = 3;
    let folder = Folder::new();
    let time = Duration::from_secs(3);
    let stop = AtomicBool::new(false);
    // One stays, so that the device does.
    let stays = App::start(&folder, &[0]);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut apps: Vec<App> = Vec::new();
            let mut seed = 1_u64;
            while !stop.load(Ordering::Relaxed) {
                seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
                let number = (seed >> 40) as u16;
                let pair = 1 + number % (PAIRS - 1);
                let new = match apps.last() {
                    Some(app) if number & 8 == 0 => app.backend.succeed(part(&folder, &[pair])).unwrap(),
                    _ => Backend::start(part(&folder, &[pair])).unwrap(),
                };
                // A part of them never begins.
                if number & 0x30 != 0 {
                    apps.push(App::of(new));
                }
                if apps.len() > 2 || number & 0x80 != 0 {
                    apps.drain(..apps.len().min(1 + usize::from(number >> 8) % 2));
                }
                thread::sleep(Duration::from_micros(u64::from(number % 2_000)));
            }
            // All pairs have a back end again.
            let _last: Vec<App> = (1..PAIRS).map(|pair| App::start(&folder, &[pair])).collect();
            apps.clear();
            let mut driver = Driver::connect(&folder, PAIRS.into());
            (0..PAIRS.into()).for_each(|pair| driver.send(pair, 100));
        });
        let start = Instant::now();
        let mut sent = 0;
        while start.elapsed() < time {
            let mut peer = Peer::connect(&folder.socket());
            peer.negotiate(FEATURES);
            peer.share_memory();
            let pairs = peer.number(VhostRequest::GET_QUEUE_NUM) as u32;
            let mut position = 0;
            for round in 0..20_u32 {
                let ring = 2 * (round % pairs) + 1;
                peer.start_ring(ring, 0);
                peer.vring(VhostRequest::SET_VRING_ENABLE, ring, 1);
                // The first pair is served all the time.
                peer.transmit(1, position, 7);
                position += 7;
                until("packets of the pair that stays", || peer.used(1) == position);
                sent += 7;
                if ring > 1 {
                    peer.base(ring);
                }
            }
        }
        stop.store(true, Ordering::Relaxed);
        until("all packets are counted", || stays.transmitted()[0] >= sent);
    });
}
