//! The processes that measure.

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use bellows_engine::{Engine, LookAhead, TrialResult};
use bellows_inspect::hot::{self, uses};
use bellows_packet::pool;
use bellows_router::vrf::RoutingDomain;
use bellows_sys::clock;
use serde::{Deserialize, Serialize};

use super::live;
use super::packet_pool::{PacketPool, lock};
use super::variants::{First, Parts, Variant, nodes};
use crate::benchmarks::fib::routes::Prefixes;
use crate::benchmarks::router::circulation::{Times, VECTOR};
use crate::benchmarks::router::traffic::Traffic;
use crate::slices::{Turn, sliced};
use crate::workers::{Contender, fail, settle};

/// Packets in a slice, at least.
const SLICE: usize = 16_384;

/// Packets that warm a variant's code and tables before it is timed.
const WARM_UP: usize = 4_096;

/// How long a variant runs in a turn at a fixed load, and how long before it is timed, microseconds.
const LOADED_US: u64 = 4_000;
const SETTLE_US: u64 = 1_000;

/// The work of one process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct PrefetchTask {
    pub(super) traffic: Traffic,
    pub(super) first: First,
    /// Whether packets are evicted from all caches before they come again.
    pub(super) memory: bool,
    pub(super) what: PrefetchWork,
    pub(super) cpu: Option<usize>,
}

/// What a process does.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum PrefetchWork {
    /// Compares variants at full speed.
    Compare(Vec<Variant>),
    /// Compares them at a share of what the slowest one carries.
    Load(Vec<Variant>, f64),
    /// Runs one variant, and a trial of look-ahead for some seconds.
    Try(Variant, f64),
    /// The same with a whole router in a network.
    TryLive(Variant, f64),
    /// Runs one variant, and samples its instructions for some seconds.
    Sample(Variant, f64),
}

/// Lays out the work of one process.
///
/// # Errors
/// None: a failure ends the process.
pub(super) fn lay_out(task: PrefetchTask) -> Result<Box<dyn Contender>, String> {
    settle(task.cpu);
    if let PrefetchWork::TryLive(variant, seconds) = &task.what {
        let engine = Some(live::engine(variant));
        return Ok(Box::new(Trying { engine, seconds: *seconds, apps: live::APPS.to_vec() }));
    }
    let packets = pool::Config { packets: task.traffic.in_flight + 32_768, ..pool::Config::default() };
    pool::init(packets).unwrap_or_else(|error| fail(&error));
    // Its tables are not the Internet's.
    let prefixes = Prefixes::default();
    let domain = Arc::new(RoutingDomain::new(task.traffic.vrf(&prefixes)));
    let packet_pool = PacketPool::new(task.traffic.packets(&prefixes), task.memory);
    let times = Arc::new(Times::default());
    let nodes = nodes(task.traffic.family, task.first).len();
    let parts = |times| Parts {
        family: task.traffic.family,
        first: task.first,
        domain: &domain,
        packet_pool: &packet_pool,
        times,
    };
    let engines = |variants: Vec<Variant>| -> Vec<Engine> {
        variants.iter().map(|variant| parts(Some(&times)).engine(variant, false)).collect()
    };
    let (engines, load) = match task.what {
        PrefetchWork::Try(variant, seconds) => {
            let engine = Some(parts(None).engine(&variant, true));
            let apps = super::variants::nodes(task.traffic.family, task.first);
            return Ok(Box::new(Trying { engine, seconds, apps }));
        }
        PrefetchWork::Sample(variant, seconds) => {
            let engine = Some(parts(None).engine(&variant, true));
            let apps = super::variants::nodes(task.traffic.family, task.first);
            let packets = lock(&packet_pool).some_addresses(WATCHED);
            return Ok(Box::new(Sampling { engine, seconds, apps, packets }));
        }
        PrefetchWork::Compare(variants) => (engines(variants), None),
        PrefetchWork::TryLive(..) => return Err("it has no packet pool".to_owned()),
        PrefetchWork::Load(variants, load) => (engines(variants), Some(load)),
    };
    let mut comparing =
        Comparing { engines, packet_pool, times, nodes, in_flight: task.traffic.in_flight, turns: 0, interval: None };
    comparing.interval = load.map(|load| comparing.slowest() / load);
    Ok(Box::new(comparing))
}

/// Figures of each variant in a turn: those of its nodes, their sum, packets a call, and the share of missed packets.
pub(super) const fn figures(nodes: usize) -> usize {
    nodes + 3
}

/// A process that compares variants.
struct Comparing {
    engines: Vec<Engine>,
    packet_pool: Arc<Mutex<PacketPool>>,
    times: Arc<Times>,
    nodes: usize,
    in_flight: usize,
    turns: usize,
    /// Clocks from one packet to the next, at a fixed load.
    interval: Option<f64>,
}

impl Comparing {
    /// Packets that a variant routes in a slice: each that is in flight at least once.
    fn slice(&self) -> usize {
        self.in_flight.max(SLICE)
    }

    /// Clocks a packet of the slowest variant, the ends of the network included.
    fn slowest(&mut self) -> f64 {
        let vectors = (self.slice() / VECTOR) as u64;
        let clocks = self.engines.iter_mut().map(|engine| {
            engine.breathe_times(vectors);
            sliced(3, || {
                engine.breathe_times(vectors);
            })
            .clocks
                / (vectors as usize * VECTOR) as f64
        });
        clocks.fold(1.0, f64::max)
    }

    /// Times a variant. Returns its figures and the clocks that they took.
    fn time(&mut self, variant: usize) -> (Vec<f64>, f64) {
        lock(&self.packet_pool).set_interval(self.interval);
        let engine = &mut self.engines[variant];
        let slice = self.in_flight.max(SLICE) / VECTOR;
        let mut run = |us: u64, vectors: usize| match self.interval {
            Some(_) => {
                let start = clock::ticks();
                let ticks = us * clock::ticks_per_second() / 1_000_000;
                while clock::ticks() - start < ticks {
                    engine.breathe_times(16);
                }
            }
            None => {
                engine.breathe_times(vectors as u64);
            }
        };
        run(SETTLE_US, WARM_UP / VECTOR);
        self.times.take();
        lock(&self.packet_pool).take_counts();
        let timed = clock::ticks();
        run(LOADED_US, slice);
        let took = (clock::ticks() - timed) as f64;
        let counts = lock(&self.packet_pool).take_counts();
        let [_, stamp, nodes @ ..] = self.times.take();
        let packets = counts.sent.max(1) as f64;
        let clocks: Vec<f64> =
            nodes.iter().take(self.nodes).map(|&clocks| (clocks as f64 - stamp as f64) / packets).collect();
        let sum = clocks.iter().sum();
        let missed = counts.missed as f64 / (packets + counts.missed as f64);
        (clocks.into_iter().chain([sum, packets / counts.sends.max(1) as f64, missed]).collect(), took)
    }
}

impl Contender for Comparing {
    fn turn(&mut self) -> Turn {
        let count = self.engines.len();
        let mut found = vec![Vec::new(); count];
        let mut took = 0.0;
        for place in 0..count {
            // Each variant goes first in turn, and each order occurs backwards too.
            let place = if self.turns.is_multiple_of(2) { place } else { count - 1 - place };
            let variant = (self.turns / 2 + place) % count;
            let clocks;
            (found[variant], clocks) = self.time(variant);
            took += clocks;
        }
        self.turns += 1;
        Turn { figures: found.concat(), took, lost: 0.0 }
    }
}

/// How long a network runs before a trial: until as many packets are in flight as ever.
const BEFORE_TRIAL: Duration = Duration::from_millis(100);

/// A process that runs one variant, and a trial of look-ahead in it.
struct Trying {
    engine: Option<Engine>,
    seconds: f64,
    apps: Vec<&'static str>,
}

/// Figures of each node in a trial: whether a prefetch is missing (1 or 0; -1 if it is not known), clocks a packet, the
/// share that prefetches save, the probability of error, the clocks of the prefetches, and those of calls after them.
pub(super) const TRIED: usize = 6;

impl Contender for Trying {
    fn turn(&mut self) -> Turn {
        let Some(mut engine) = self.engine.take() else { return Turn::default() };
        let control = engine.control();
        let start = clock::ticks();
        let results = thread::scope(|scope| {
            let running = scope.spawn(move || {
                let end = engine.run();
                engine.finish(end);
            });
            thread::sleep(BEFORE_TRIAL);
            let trial = control.try_look_ahead().unwrap_or_else(|error| fail(&error));
            let end = Instant::now() + Duration::from_secs_f64(self.seconds);
            while Instant::now() < end && !running.is_finished() {
                thread::sleep(Duration::from_millis(10));
            }
            let results = trial.results();
            drop(trial);
            control.stop();
            results
        });
        let figures = |app: &&str| {
            results.iter().find(|result| result.app == *app).map_or([-1.0, 0.0, 0.0, 1.0, 0.0, 0.0], of_trial)
        };
        Turn { figures: self.apps.iter().flat_map(figures).collect(), took: (clock::ticks() - start) as f64, lost: 0.0 }
    }
}

/// A process that runs one variant, and samples its instructions.
struct Sampling {
    engine: Option<Engine>,
    seconds: f64,
    apps: Vec<&'static str>,
    /// The addresses of some packets' data, to find the instructions that use it.
    packets: Vec<usize>,
}

/// Packets that are watched, and how long each: they come round several times meanwhile.
const WATCHED: usize = 8;
const WATCH: Duration = Duration::from_millis(100);

/// The figures of a process that samples: the share of the samples in all nodes that the first one has, and the shares
/// of these at its first use of packet data, and at its hottest instruction.
pub(super) const SAMPLED: usize = 3;

impl Contender for Sampling {
    /// The figures are [`SAMPLED`].
    fn turn(&mut self) -> Turn {
        let Some(mut engine) = self.engine.take() else { return Turn::default() };
        let control = engine.control();
        let start = clock::ticks();
        let (report, uses) = thread::scope(|scope| {
            let run = move || {
                let end = engine.run();
                engine.finish(end);
            };
            let thread = thread::Builder::new().name("engine".to_owned()).spawn_scoped(scope, run);
            drop(thread.unwrap_or_else(|error| fail(&error)));
            let listing = control.listing();
            let uses = uses::first_uses(&listing, self.apps[0], &self.packets, WATCH);
            let duration = Duration::from_secs_f64(self.seconds);
            let report = hot::of_process("router", std::process::id(), &listing, None, duration);
            control.stop();
            (report.unwrap_or_else(|error| fail(&error)), uses.unwrap_or_else(|error| fail(&error)))
        });
        let node =
            |function: &hot::Function| self.apps.iter().position(|node| function.apps.iter().any(|app| app == node));
        let all: u64 = report.functions.iter().filter(|found| node(found).is_some()).map(|found| found.samples).sum();
        let of_first = report.functions.iter().filter(|found| node(found) == Some(0));
        let hottest = of_first.flat_map(|found| &found.instructions).map(|line| line.samples).max().unwrap_or(0);
        let (samples, at_use) = report.at_first_uses(self.apps[0], &uses);
        let share = |of: u64, all: u64| of as f64 / all.max(1) as f64;
        let figures = vec![share(samples, all), share(at_use, samples), share(hottest, samples)];
        Turn { figures, took: (clock::ticks() - start) as f64, lost: 0.0 }
    }
}

fn of_trial(result: &TrialResult) -> [f64; TRIED] {
    let is_missing = match result.verdict {
        LookAhead::Unknown => -1.0,
        LookAhead::Sufficient => 0.0,
        LookAhead::Missing => 1.0,
    };
    [is_missing, result.clocks, result.saved, result.p, result.fetch, result.clocks_after]
}
