//! Workers that share the smallest pools: whatever they make, pass on, keep and free, and whoever sleeps, is blocked or
//! moves, every source finds buffers again and again, and all buffers come back.

mod support;

use std::collections::VecDeque;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use bellows_engine::{
    App, AppSpec, Control, Counters, Io, MAIN, Network, Outcome, Ports, ReloadError, Settings, WorkerSpec, counters,
};
use bellows_packet::{Packet, pool, return_free_buffers};
use bellows_testkit::soak;
use proptest::prelude::*;
use support::{allowed_processor, check_books, with_running};

const WORKERS: [&str; 3] = [MAIN, "one", "two"];

/// The size of the pool in a process that runs the tests again, in place of the smallest.
const SIZE: &str = "BELLOWS_STARVATION_PACKETS";

fn size() -> usize {
    std::env::var(SIZE).map_or(pool::MIN_PACKETS * WORKERS.len(), |size| size.parse().unwrap())
}

/// The bursts in which each source must find buffers, and the time for all of them. A source that finds buffers again
/// after 64 breaths of the other workers, or 256 idle ones, needs some milliseconds.
const BURSTS: u64 = 50;
const PATIENCE: Duration = Duration::from_secs(60);

/// What a source has made and could not make.
#[derive(Default)]
struct Made {
    bursts: AtomicU64,
    missed: AtomicU64,
}

#[derive(Clone)]
enum Does {
    /// Makes up to `burst` packets in a breath; if there is a pause, in nanoseconds, only now and then.
    Make { burst: usize, pause: u64, made: Arc<Made> },
    /// Forwards whole vectors.
    Forward,
    /// Keeps the last packets, up to this number, and consumes the others.
    Keep(usize),
    /// Takes nothing while this is set, and else consumes packets.
    Gate(Arc<AtomicBool>),
}

struct Node {
    does: Does,
    kept: VecDeque<Packet>,
}

counters! { Node;
    asked drop UNUSED = "unused", "never";
}

impl App for Node {
    const INPUTS: Ports = Ports::Any { at_least: 0, help: "" };
    const OUTPUTS: Ports = Ports::Any { at_least: 0, help: "" };
    const PULLS: bool = true;
    const ENDS: bool = true;
    const COUNTERS: Counters<Self> = Self::COUNTED;

    fn slots(&self) -> usize {
        1
    }

    fn pull(&mut self, io: &Io<Self>) {
        match &self.does {
            Does::Make { pause: 0, .. } => self.make(io),
            _ => io.slot(0).never(),
        }
    }

    fn tick(&mut self, io: &Io<Self>) {
        if let Does::Make { pause: pause @ 1.., .. } = self.does {
            io.wake_at(io.now() + pause);
            self.make(io);
        }
    }

    fn push(&mut self, io: &Io<Self>) {
        for index in 0..io.inputs() {
            match &self.does {
                Does::Forward => io.forward(index, 0),
                Does::Gate(is_closed) if is_closed.load(Relaxed) => {}
                Does::Keep(count) => {
                    self.kept.extend(&mut io.input(index));
                    self.kept.drain(..self.kept.len().saturating_sub(*count));
                }
                _ => drop(io.input(index).discard()),
            }
        }
    }

    fn is_finished(&self) -> bool {
        !matches!(self.does, Does::Make { .. })
    }

    fn held(&self) -> usize {
        self.kept.len()
    }
}

impl Node {
    fn make(&mut self, io: &Io<Self>) {
        let Does::Make { burst, made, .. } = &self.does else { return };
        let mut output = io.output(0);
        let mut packets = Packet::allocate_burst((*burst).min(output.room()));
        let count = (&mut packets).map(|packet| output.push(packet)).count();
        made.bursts.fetch_add(u64::from(count > 0), Relaxed);
        made.missed.fetch_add(packets.missing() as u64, Relaxed);
        io.count_no_buffer(packets.missing());
    }
}

/// The way of the packets of one source: the bursts in which it makes them, and where they go.
#[derive(Clone, Debug)]
struct Flow {
    burst: usize,
    /// Nanoseconds between two bursts; 0 for one in each breath.
    pause: u64,
    /// The worker of the source, of each app that forwards, and of the sink.
    way: Vec<usize>,
    /// The number of packets that the sink keeps.
    kept: usize,
}

impl Flow {
    fn of(burst: usize, pause: u64, way: &[usize], kept: usize) -> Flow {
        Flow { burst, pause, way: way.to_vec(), kept }
    }

    /// The same with each app on another worker.
    fn moved(&self, by: usize) -> Flow {
        let way = self.way.iter().map(|worker| (worker + by) % WORKERS.len()).collect();
        Flow { way, ..self.clone() }
    }
}

/// Adds a chain of apps with a name.
fn chain(network: Network, name: &str, does: &[Does], way: &[usize]) -> Network {
    let mut network = network;
    for (index, (does, worker)) in does.iter().zip(way).enumerate() {
        let node = Node { does: does.clone(), kept: VecDeque::new() };
        let spec = AppSpec::new(&format!("{name}{index}"), "node", "", node);
        network.apps.push(spec.on_worker(WORKERS[*worker]));
        if let Some(before) = index.checked_sub(1) {
            network = network.link(&format!("{name}{before}.o -> {name}{index}.i")).unwrap();
        }
    }
    network
}

/// The network of some flows, all workers on one processor if it is given.
fn network(flows: &[Flow], made: &[Arc<Made>], cpu: Option<usize>) -> Network {
    let mut network = Network::new();
    for (index, (flow, made)) in flows.iter().zip(made).enumerate() {
        let mut does = vec![Does::Forward; flow.way.len()];
        does[0] = Does::Make { burst: flow.burst, pause: flow.pause, made: Arc::clone(made) };
        does[flow.way.len() - 1] = Does::Keep(flow.kept);
        network = chain(network, &format!("f{index}x"), &does, &flow.way);
    }
    network.workers = WORKERS.iter().map(|name| WorkerSpec { name: (*name).into(), cpu, numa: None }).collect();
    network
}

/// The tests share the process's pool.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    pool::init(pool::Config { packets: size(), large_packets: 0, ..pool::Config::default() }).unwrap();
    alone
}

/// Runs a network on a thread of its own while `act` does something with it. Then checks that all is accounted for, and
/// that all buffers are free.
fn run(network: Network, settings: Settings, act: impl FnOnce(&Control)) -> Outcome {
    let ((), outcome) = with_running(network, settings, act);
    check_books(&outcome.snapshot);
    assert_eq!(pool::usage().in_use, 0);
    let all = Packet::allocate_burst(size() + 1).collect::<Vec<_>>();
    assert_eq!(all.len(), size(), "a buffer is lost");
    drop(all);
    return_free_buffers();
    outcome
}

/// Waits until each source has made `bursts` more bursts.
fn wait_for_bursts(what: &str, made: &[Arc<Made>], bursts: u64) {
    let before: Vec<u64> = made.iter().map(|made| made.bursts.load(Relaxed)).collect();
    let since = |(made, before): (&Arc<Made>, &u64)| made.bursts.load(Relaxed) - before;
    let deadline = Instant::now() + PATIENCE;
    loop {
        let counts: Vec<u64> = made.iter().zip(&before).map(since).collect();
        if counts.iter().all(|count| *count >= bursts) {
            return;
        }
        assert!(Instant::now() < deadline, "{what}: only {counts:?} of {bursts} bursts within {PATIENCE:?}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Runs flows, with each app on another worker in between. Each source makes its bursts.
fn check(flows: &[Flow], lossless: bool, cpu: Option<usize>) {
    let made: Vec<Arc<Made>> = flows.iter().map(|_| Arc::default()).collect();
    let settings = Settings { lossless, ..Settings::default() };
    // On one processor, each exchange of buffers takes a turn of every thread.
    let bursts = if cpu.is_some() { BURSTS / 10 } else { BURSTS };
    let what = format!("{bursts} bursts of each source of {flows:?}, lossless: {lossless}, on {cpu:?}");
    let outcome = run(network(flows, &made, cpu), settings, |control| {
        wait_for_bursts(&what, &made, bursts);
        let moved: Vec<Flow> = flows.iter().map(|flow| flow.moved(1)).collect();
        // In a lossless network, more packets may wait than fit into the links of one worker.
        match control.reload(network(&moved, &made, cpu)) {
            Ok(_) | Err(ReloadError::Overfull(_)) => wait_for_bursts(&what, &made, bursts),
            Err(error) => panic!("{error}"),
        }
    });
    for (index, made) in made.iter().enumerate() {
        let name = format!("f{index}x0");
        let app = outcome.snapshot.apps.iter().find(|app| app.name == name).unwrap();
        assert_eq!(app.drops["no_buffer"], made.missed.load(Relaxed), "{name}");
    }
}

/// Under each kind of network, on any processors and with all workers on one.
fn check_all(flows: &[Flow]) {
    let _alone = alone();
    for lossless in [true, false] {
        for cpu in [None, Some(allowed_processor())] {
            check(flows, lossless, cpu);
        }
    }
}

const MILLISECOND: u64 = 1_000_000;

#[test]
fn one_worker_makes_and_another_frees() {
    check_all(&[Flow::of(100, 0, &[0, 1], 0)]);
}

#[test]
fn two_workers_send_to_each_other() {
    check_all(&[Flow::of(30, 0, &[0, 1, 0], 0), Flow::of(30, 0, &[1, 0, 1], 0)]);
}

#[test]
fn three_workers_send_in_a_circle() {
    check_all(&[0, 1, 2].map(|worker| Flow::of(64, 0, &[worker, (worker + 1) % 3, (worker + 2) % 3], 10)));
}

/// It frees all before it takes a breath, so that no moment is left to the others.
#[test]
fn a_worker_that_takes_all_buffers_in_each_breath_leaves_some_to_others() {
    check_all(&[
        Flow::of(1_000, 0, &[1, 1], 0),
        Flow::of(1, 0, &[0, 0], 0),
        Flow::of(10, MILLISECOND, &[2, 2], 0),
        Flow::of(1, MILLISECOND / 4, &[2, 0], 0),
    ]);
}

#[test]
fn two_workers_that_take_all_buffers_leave_some_to_a_third() {
    check_all(&[
        Flow::of(1_000, 0, &[0, 0], 0),
        Flow::of(1_000, 0, &[1, 1], 20),
        Flow::of(1_000, MILLISECOND, &[2, 2], 20),
    ]);
}

/// It frees packets one by one, always fewer than a magazine.
#[test]
fn a_worker_that_only_frees_a_few_gives_them_back() {
    check_all(&[Flow::of(1, 0, &[0, 2], 30), Flow::of(1, MILLISECOND / 8, &[1, 2], 20)]);
}

/// A worker with bursts that sleeps in between, and one that sleeps most of the time with packets that it keeps.
#[test]
fn workers_that_sleep_keep_nothing_that_others_need() {
    check_all(&[
        Flow::of(1_000, MILLISECOND, &[0, 0], 0),
        Flow::of(1, MILLISECOND, &[1, 2], 40),
        Flow::of(300, MILLISECOND, &[2, 1], 0),
    ]);
}

/// Packets for a worker that takes none fill the link and the ring, and wait.
#[test]
fn a_worker_that_is_blocked_leaves_what_it_does_not_use_to_another() {
    let _alone = alone();
    for cpu in [None, Some(allowed_processor())] {
        let is_closed = Arc::new(AtomicBool::new(true));
        let blocked: Arc<Made> = Arc::default();
        let flow = [Flow::of(10, 0, &[1, 1], 0)];
        let made = [Arc::default()];
        let source = Does::Make { burst: 1, pause: MILLISECOND / 2, made: Arc::clone(&blocked) };
        let does = [source, Does::Forward, Does::Gate(Arc::clone(&is_closed))];
        let network = chain(network(&flow, &made, cpu), "blocked", &does, &[0, 0, 2]);
        let settings = Settings { lossless: true, ..Settings::default() };
        run(network, settings, |control| {
            // Some packets of the pool, but not all, wait at the gate.
            wait_for_bursts("packets at the gate", &[Arc::clone(&blocked)], size() as u64 / 3);
            wait_for_bursts("buffers beside those at the gate", &made, BURSTS);
            is_closed.store(false, Relaxed);
            wait_for_bursts("buffers after those at the gate", &[Arc::clone(&blocked)], BURSTS);
            wait_for_bursts("buffers for the other source", &made, BURSTS);
            drop(control.snapshot());
        });
    }
}

/// A flow from a worker.
///
/// No two sources of these patterns are on one worker: its first source may take what there is in every breath.
fn flow(worker: usize) -> impl Strategy<Value = Flow> {
    let burst = prop_oneof![Just(1), 2usize..30, Just(100), Just(1_000)];
    let pause = prop_oneof![3 => Just(0), 1 => MILLISECOND / 10..MILLISECOND];
    // All flows together keep less than the smallest pool.
    (burst, pause, prop::collection::vec(0..WORKERS.len(), 1..4), 0usize..20)
        .prop_map(move |(burst, pause, way, kept)| Flow { burst, pause, way: [&[worker], &*way].concat(), kept })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: soak::cases(8), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_random_pattern_starves_a_source(
        flows in [0, 1, 2].map(flow),
        lossless in any::<bool>(),
        on_one in any::<bool>(),
    ) {
        let _alone = alone();
        check(&flows, lossless, on_one.then(allowed_processor));
    }
}

/// The same tests with pools that are no multiple of a worker's share or a magazine, and less than the smallest.
#[test]
fn pools_of_other_sizes_are_enough() {
    if std::env::var_os(SIZE).is_some() {
        return;
    }
    for size in [100, 300, 777] {
        let mut again = Command::new(std::env::current_exe().unwrap());
        let output = again.env(SIZE, size.to_string()).output().unwrap();
        assert!(output.status.success(), "{size} packets:\n{}", String::from_utf8_lossy(&output.stdout));
    }
}
