//! Networks whose apps run on several threads: nothing is lost, doubled or reordered, whatever the placement, and the
//! workers sleep, wake, fail, change and end together.

mod support;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use bellows_engine::{
    App, AppSpec, Counters, End, Engine, Io, MAIN, Network, Outcome, Ports, Schedule, Settings, TraceOrder, WorkerSpec,
    counters,
};
use bellows_observe::RuntimeDir;
use bellows_observe::timeline::{Passage, Recording, Track, What};
use bellows_packet::Packet;
use bellows_testkit::soak;
use bellows_testkit::wait::eventually;
use proptest::prelude::*;
use support::{allowed_processor, check_books, with_running};

const WORKERS: [&str; 3] = [MAIN, "one", "two"];

/// Packets carry the number of the app that made them and their own number.
fn numbers(packet: &Packet) -> (u32, u32) {
    let number = |at: usize| u32::from_ne_bytes(packet.bytes()[at..at + 4].try_into().unwrap());
    (number(0), number(4))
}

/// What arrived, by the app that made it: for each sink and link.
type Arrived = Arc<Mutex<BTreeMap<(usize, u32), Vec<u32>>>>;

#[derive(Clone)]
enum Does {
    /// Makes `count` packets, `burst` at a time, on the first output.
    Make { burst: u32, count: u32 },
    /// Makes a packet whenever this number grows, and passes on its value.
    OnDemand(Arc<AtomicU64>),
    /// Sends each packet on through the output that its number selects.
    Spread,
    /// Forwards whole vectors of all inputs to the first output.
    Forward,
    /// Panics at the packet with this number.
    Bomb(u32),
    /// Consumes packets.
    Keep(Arrived),
    /// Wants a tick as often as possible, and does nothing then.
    Tick,
}

struct Node {
    index: u32,
    made: u32,
    does: Does,
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
        usize::from(!matches!(self.does, Does::Make { .. } | Does::OnDemand(_)))
    }

    fn pull(&mut self, io: &Io<Self>) {
        let wanted = match &self.does {
            Does::Make { burst, count } => (*burst).min(count - self.made),
            Does::OnDemand(wanted) => wanted.load(Relaxed) as u32 - self.made,
            _ => return io.slot(0).never(),
        };
        let mut output = io.output(0);
        let wanted = wanted.min(output.room() as u32);
        for mut packet in Packet::allocate_burst(wanted as usize) {
            packet.append(&self.index.to_ne_bytes());
            packet.append(&self.made.to_ne_bytes());
            self.made += 1;
            output.push(packet);
        }
    }

    fn tick(&mut self, io: &Io<Self>) {
        if matches!(self.does, Does::Tick) {
            io.wake_at(io.now() + 1);
        }
    }

    fn push(&mut self, io: &Io<Self>) {
        for index in 0..io.inputs() {
            match &self.does {
                Does::Make { .. } | Does::OnDemand(_) | Does::Tick => drop(io.input(index).discard()),
                Does::Forward => io.forward(index, 0),
                Does::Spread => {
                    for packet in &mut io.input(index) {
                        io.output(numbers(&packet).1 as usize % io.outputs().max(1)).push(packet);
                    }
                }
                Does::Bomb(at) => {
                    for packet in &mut io.input(index) {
                        assert!(numbers(&packet).1 != *at, "an app of this test fails on purpose");
                        io.output(0).push(packet);
                    }
                }
                Does::Keep(arrived) => {
                    let mut input = io.input(index);
                    let mut arrived = arrived.lock().unwrap();
                    for (from, number) in input.packets().iter().map(numbers) {
                        arrived.entry((index, from)).or_default().push(number);
                    }
                    input.discard();
                }
            }
        }
    }

    fn is_finished(&self) -> bool {
        match &self.does {
            Does::Make { count, .. } => self.made == *count,
            Does::OnDemand(wanted) => wanted.load(Relaxed) == u64::MAX,
            _ => true,
        }
    }
}

/// A network of apps with their workers, and links written as positions of apps.
fn network(apps: &[(Does, usize)], links: &[(usize, usize)]) -> Network {
    let mut network = Network::new();
    for (index, (does, worker)) in apps.iter().enumerate() {
        let node = Node { index: index as u32, made: 0, does: does.clone() };
        network.apps.push(AppSpec::new(&format!("a{index}"), "node", "", node).on_worker(WORKERS[*worker]));
    }
    for (index, (from, to)) in links.iter().enumerate() {
        network = network.link(&format!("a{from}.o{index} -> a{to}.i{index}")).unwrap();
    }
    network
}

fn run(network: Network, settings: Settings) -> Outcome {
    let mut engine = Engine::new(network, settings, None).unwrap();
    let end = engine.run();
    engine.finish(end)
}

fn lossless(schedule: Schedule) -> Settings {
    Settings { lossless: true, schedule, ..Settings::default() }
}

/// Whether numbers grow.
fn is_in_order(numbers: &[u32]) -> bool {
    numbers.windows(2).all(|pair| pair[0] < pair[1])
}

/// A random network without loops: makers, then apps that pass packets on, then sinks.
#[derive(Clone, Debug)]
struct Case {
    /// The worker of each app.
    workers: Vec<usize>,
    /// The packets of each maker.
    made: Vec<u32>,
    links: Vec<(usize, usize)>,
    sinks: usize,
}

fn case() -> impl Strategy<Value = Case> {
    (1usize..4, 0usize..5, 1usize..3).prop_flat_map(|(makers, middle, sinks)| {
        let count = makers + middle + sinks;
        let workers = prop::collection::vec(0usize..3, count);
        let made = prop::collection::vec(0u32..20_000, makers);
        // Each link leads to a later app that is no maker.
        let link = (0..count - sinks, any::<prop::sample::Index>()).prop_map(move |(from, to)| {
            let first = (from + 1).max(makers);
            (from, first + to.index(count - first))
        });
        let links = prop::collection::vec(link, 1..12);
        (workers, made, links).prop_map(move |(workers, made, links)| Case { workers, made, links, sinks })
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: soak::cases(60), failure_persistence: None, ..ProptestConfig::default() })]

    /// A lossless network delivers every packet once, in order, under each schedule and placement: the same as one
    /// worker does, which the other property tests compare with a naive model.
    #[test]
    fn no_placement_loses_doubles_or_reorders(
        Case { workers, made, links, sinks } in case(),
        burst in 1u32..300,
        schedule in prop::sample::select(Schedule::ALL.to_vec()),
    ) {
        let result = |workers: &[usize]| {
            let arrived: Vec<Arrived> = (0..sinks).map(|_| Arrived::default()).collect();
            let apps: Vec<(Does, usize)> = workers.iter().enumerate().map(|(index, &worker)| {
                // A maker without a link never finishes.
                let is_linked = links.iter().any(|(from, _)| *from == index);
                let does = match (index.checked_sub(made.len()), (index + sinks).checked_sub(workers.len())) {
                    (None, _) => Does::Make { burst, count: if is_linked { made[index] } else { 0 } },
                    (_, Some(sink)) => Does::Keep(Arc::clone(&arrived[sink])),
                    (Some(middle), _) if middle % 2 == 0 => Does::Spread,
                    _ => Does::Forward,
                };
                (does, worker)
            }).collect();
            let outcome = run(network(&apps, &links), lossless(schedule));
            check_books(&outcome.snapshot);
            let mut arrived: Vec<_> = arrived.iter().map(|arrived| arrived.lock().unwrap().clone()).collect();
            // Packets of one maker may take several ways to one input, which have no common order.
            arrived.iter_mut().flat_map(|arrived| arrived.values_mut()).for_each(|numbers| numbers.sort_unstable());
            let packets: Vec<u64> = outcome.snapshot.links.iter().map(|link| link.packets).collect();
            (outcome.end, packets, outcome.snapshot.dropped(), arrived)
        };
        let expected = result(&vec![0; workers.len()]);
        prop_assert!(result(&workers) == expected, "the results differ");
    }
}

#[test]
fn packets_cross_workers_in_order_and_are_counted_once() {
    for schedule in Schedule::ALL {
        let arrived = Arrived::default();
        let apps =
            [(Does::Make { burst: 100, count: 300_000 }, 1), (Does::Forward, 0), (Does::Keep(Arc::clone(&arrived)), 2)];
        let outcome = run(network(&apps, &[(0, 1), (1, 2)]), lossless(schedule));
        assert_eq!(outcome.end, End::Done);
        let arrived = arrived.lock().unwrap();
        let numbers = &arrived[&(0, 0)];
        assert!(numbers.len() == 300_000 && is_in_order(numbers));
        let links: Vec<_> =
            outcome.snapshot.links.iter().map(|link| (link.packets, link.txdrop, link.waiting)).collect();
        assert_eq!(links, [(300_000, 0, 0); 2]);
        let workers: Vec<_> =
            outcome.snapshot.workers.iter().map(|worker| (&*worker.name, worker.apps.len())).collect();
        assert_eq!(workers, [(MAIN, 1), ("one", 1), ("two", 1)]);
        let passed = outcome.snapshot.crossings.iter().map(|side| (side.in_packets, side.out_packets));
        let [left, arrived] = [(300_000, 0), (0, 300_000)];
        assert_eq!(passed.collect::<Vec<_>>(), [left, arrived, left, arrived]);
        check_books(&outcome.snapshot);
    }
}

#[test]
fn a_network_that_may_drop_drops_only_where_it_sends() {
    let arrived = Arrived::default();
    let apps = [(Does::Make { burst: 300, count: 3_000_000 }, 1), (Does::Keep(Arc::clone(&arrived)), 0)];
    let outcome = run(network(&apps, &[(0, 1)]), Settings::default());
    assert_eq!(outcome.end, End::Done);
    let arrived = arrived.lock().unwrap();
    let numbers = arrived.get(&(0, 0)).cloned().unwrap_or_default();
    assert!(is_in_order(&numbers));
    // The maker stays within the room of its output, so nothing is dropped; the rest has arrived.
    assert_eq!(numbers.len() as u64 + outcome.snapshot.dropped(), 3_000_000);
    check_books(&outcome.snapshot);
}

#[test]
fn sleeping_workers_are_woken_by_what_crosses() {
    let wanted = Arc::new(AtomicU64::new(0));
    let arrived = Arrived::default();
    let apps = [
        (Does::OnDemand(Arc::clone(&wanted)), 0),
        (Does::Forward, 1),
        (Does::Forward, 2),
        (Does::Keep(Arc::clone(&arrived)), 1),
    ];
    let network = network(&apps, &[(0, 1), (1, 2), (2, 3)]);
    let ((), outcome) = with_running(network, Settings::default(), |control| {
        for round in 1..=5 {
            let asleep = || control.snapshot().workers.iter().skip(1).all(|worker| worker.asleep);
            eventually("both workers sleep", asleep);
            wanted.store(round, Relaxed);
            let count = || arrived.lock().unwrap().get(&(0, 0)).map_or(0, Vec::len) as u64;
            eventually("the packet arrives", || count() == round);
        }
    });
    assert_eq!(outcome.end, End::Stopped);
    let sleeps: Vec<u64> = outcome.snapshot.workers.iter().map(|worker| worker.counters["sleeps"]).collect();
    assert!(sleeps[1] >= 5 && sleeps[2] >= 5, "{sleeps:?}");
    check_books(&outcome.snapshot);
}

#[test]
fn an_app_that_panics_on_another_worker_stops_alone() {
    let arrived = [Arrived::default(), Arrived::default()];
    let apps = [
        (Does::Make { burst: 50, count: 100_000 }, 0),
        (Does::Spread, 1),
        (Does::Bomb(1_000), 2),
        (Does::Keep(Arc::clone(&arrived[0])), 0),
        (Does::Keep(Arc::clone(&arrived[1])), 0),
    ];
    let outcome = run(network(&apps, &[(0, 1), (1, 2), (1, 3), (2, 4)]), lossless(Schedule::Native));
    assert_eq!((outcome.end, outcome.panicked), (End::Done, vec!["a2".to_owned()]));
    assert_eq!(arrived[0].lock().unwrap()[&(0, 0)].len(), 50_000);
    assert_eq!(outcome.snapshot.apps[2].state, "failed");
    check_books(&outcome.snapshot);
}

#[test]
fn apps_move_between_workers_while_packets_flow() {
    let arrived = Arrived::default();
    let placed = |workers: [usize; 4]| {
        let keep = Does::Keep(Arc::clone(&arrived));
        let does = [Does::Make { burst: 40, count: u32::MAX }, Does::Forward, Does::Forward, keep];
        let apps: Vec<(Does, usize)> = does.into_iter().zip(workers).collect();
        network(&apps, &[(0, 1), (1, 2), (2, 3)])
    };
    let placements = [[0, 0, 0, 0], [0, 1, 1, 0], [1, 2, 0, 1], [2, 2, 2, 2], [0, 1, 2, 0], [1, 1, 1, 1], [0, 1, 0, 1]];
    for lossless in [true, false] {
        arrived.lock().unwrap().clear();
        let settings = Settings { lossless, ..Settings::default() };
        let (dropped, outcome) = with_running(placed([0; 4]), settings, |control| {
            let mut dropped = 0;
            for round in 0..6 {
                for placement in placements {
                    let report = control.reload(placed(placement)).unwrap();
                    assert_eq!(report.kept.len(), 4, "round {round}");
                    dropped += report.dropped;
                    thread::sleep(Duration::from_millis(2));
                }
            }
            dropped
        });
        let arrived = arrived.lock().unwrap();
        let numbers = &arrived[&(0, 0)];
        assert!(is_in_order(numbers) && numbers.len() > 1_000, "{} packets", numbers.len());
        let waiting: u64 = outcome.snapshot.links.iter().map(|link| link.waiting).sum();
        let made = outcome.snapshot.apps[0].made;
        assert_eq!(made, numbers.len() as u64 + waiting + outcome.snapshot.dropped());
        if lossless {
            assert_eq!((dropped, outcome.snapshot.dropped()), (0, 0));
        }
        check_books(&outcome.snapshot);
    }
}

#[test]
fn a_packet_is_followed_across_workers() {
    let wanted = Arc::new(AtomicU64::new(0));
    let apps = [(Does::OnDemand(Arc::clone(&wanted)), 0), (Does::Forward, 1), (Does::Keep(Arrived::default()), 2)];
    let (hops, outcome) = with_running(network(&apps, &[(0, 1), (1, 2)]), Settings::default(), |control| {
        let mut trace = control.trace(TraceOrder { count: 2, app: None }).unwrap();
        let tap = control.tap("a1.o1 -> a2.i1", 64).unwrap();
        thread::sleep(Duration::from_millis(20));
        wanted.store(2, Relaxed);
        let deadline = std::time::Instant::now() + Duration::from_secs(20);
        let mut hops = Vec::new();
        while let Some(hop) = trace.next(deadline) {
            hops.push((hop.packet, hop.app));
        }
        assert!(trace.is_over());
        drop(tap);
        hops
    });
    for packet in [1, 2] {
        let of: Vec<&str> = hops.iter().filter(|hop| hop.0 == packet).map(|hop| &*hop.1).collect();
        assert_eq!(of, ["a0", "a0.o0 -> a1.i0, arriving", "a1", "a1.o1 -> a2.i1, arriving", "a2"]);
    }
    check_books(&outcome.snapshot);
}

#[test]
fn a_network_that_stalls_across_workers_ends_as_stalled() {
    /// Takes nothing.
    struct Stuck;

    impl App for Stuck {
        const INPUTS: Ports = Ports::Any { at_least: 1, help: "" };
    }

    let mut stuck = network(&[(Does::Make { burst: 10, count: 500 }, 0)], &[]);
    stuck.apps.push(AppSpec::new("stuck", "stuck", "", Stuck).on_worker("one"));
    let outcome = run(stuck.link("a0.o -> stuck.i").unwrap(), lossless(Schedule::Flat));
    assert_eq!(outcome.end, End::Stalled(vec!["a0.o -> stuck.i".to_owned()]));
    assert_eq!(outcome.snapshot.links[0].waiting, 500);
}

/// A runtime directory for a test of this name.
fn runtime_dir(name: &str) -> Arc<RuntimeDir> {
    Arc::new(RuntimeDir::claim(&format!("test-workers-{name}-{}", std::process::id())).unwrap())
}

/// The vectors that left a worker and that arrived there, with their times.
fn passages(track: &Track) -> [Vec<(Passage, u64)>; 2] {
    let mut passages = [const { Vec::new() }; 2];
    for event in &track.events {
        match &event.what {
            What::Departure(passage) => passages[0].push((passage.clone(), event.start_ns)),
            What::Arrival(passage) => passages[1].push((passage.clone(), event.start_ns)),
            _ => {}
        }
    }
    passages
}

#[test]
fn each_recorded_departure_has_its_arrival_in_a_recorded_breath() {
    assert_eq!(check_passages("passages", 3_000_000, &[]), 4);
}

/// A breath may begin with a tick, which is then a part of the recorded breath.
#[test]
fn each_recorded_departure_has_its_arrival_also_between_ticks() {
    assert!(check_passages("ticks", 400_000, &[(Does::Tick, 0), (Does::Tick, 1), (Does::Tick, 2)]) > 0);
}

/// Sends `count` packets through all workers, with these apps besides, and looks for both ends of each recorded
/// passage. Returns the number of links that have some. There must be few enough packets that no ring of events is
/// filled.
fn check_passages(name: &str, count: u32, others: &[(Does, usize)]) -> usize {
    let arrived = Arrived::default();
    let apps = [
        (Does::Make { burst: 8, count }, 0),
        (Does::Forward, 1),
        (Does::Forward, 2),
        (Does::Forward, 1),
        (Does::Keep(Arc::clone(&arrived)), 0),
    ];
    let runtime_dir = runtime_dir(name);
    let network = network(&[&apps, others].concat(), &[(0, 1), (1, 2), (2, 3), (3, 4)]);
    let mut engine = Engine::new(network, lossless(Schedule::default()), Some(Arc::clone(&runtime_dir))).unwrap();
    assert_eq!(engine.run(), End::Done);
    let tracks = Recording::open(&runtime_dir).unwrap().tracks();
    let names: Vec<&str> = tracks.iter().map(|track| &*track.worker).collect();
    assert_eq!(names, WORKERS);
    let all: Vec<[Vec<(Passage, u64)>; 2]> = tracks.iter().map(passages).collect();
    let (left, came): (Vec<_>, Vec<_>) = all.iter().map(|[left, came]| (left, came)).unzip();
    let mut arrivals: BTreeMap<u32, &(Passage, u64)> = BTreeMap::new();
    for passage in came.into_iter().flatten() {
        assert!(arrivals.insert(passage.0.mark, passage).is_none(), "{passage:?} arrives twice");
    }
    let mut links = BTreeMap::new();
    for (departure, at) in left.into_iter().flatten() {
        let (arrival, later) = arrivals.remove(&departure.mark).unwrap_or_else(|| panic!("{departure:?} is lost"));
        assert_eq!(departure, arrival);
        assert!(later >= at, "{departure:?} arrives {} ns early", at - later);
        *links.entry(departure.link.to_string()).or_insert(0) += 1;
    }
    assert!(arrivals.is_empty(), "{arrivals:?} never left");
    for track in &tracks[1..] {
        // What arrives belongs to a breath, and most breaths that an arrival caused were not sampled otherwise.
        let mut pending = 0;
        let mut caused = [0, 0];
        for event in &track.events {
            match &event.what {
                What::Arrival(_) => pending += 1,
                What::Breath { caused: is_caused, .. } => {
                    assert!(!is_caused || pending > 0, "{} recorded a breath without a cause", track.worker);
                    caused[usize::from(*is_caused)] += 1;
                    pending = 0;
                }
                _ => {}
            }
        }
        assert!(pending == 0 && caused[1] > 0, "{}: {pending} {caused:?}", track.worker);
    }
    engine.finish(End::Done);
    assert_eq!(arrived.lock().unwrap()[&(0, 0)].len(), count as usize);
    links.len()
}

#[test]
fn timelines_come_and_go_with_their_workers() {
    let runtime_dir = runtime_dir("reloads");
    let arrived = Arrived::default();
    let wanted = Arc::new(AtomicU64::new(0));
    let on = |worker: usize| {
        let apps = [(Does::OnDemand(Arc::clone(&wanted)), 0), (Does::Keep(Arc::clone(&arrived)), worker)];
        network(&apps, &[(0, 1)])
    };
    let mut engine = Engine::new(on(1), Settings::default(), Some(Arc::clone(&runtime_dir))).unwrap();
    let control = engine.control();
    let recorded = || -> Vec<String> {
        Recording::open(&runtime_dir).unwrap().tracks().into_iter().map(|track| track.worker).collect()
    };
    let run = thread::scope(|scope| {
        let run = scope.spawn(move || {
            let end = engine.run();
            engine.finish(end)
        });
        assert_eq!(recorded(), ["main", "one"]);
        control.reload(on(2)).unwrap();
        assert_eq!(recorded(), ["main", "two"]);
        assert!(!runtime_dir.timeline(Some("one")).exists());
        let refused = Network::new().app("a0", FailsToStart).on_worker("three");
        assert!(control.reload(refused).is_err());
        assert!(!runtime_dir.timeline(Some("three")).exists(), "a refused configuration leaves nothing behind");
        // Another processor: another thread, which goes on with the timeline.
        let sleeps = || Recording::open(&runtime_dir).unwrap().tracks()[1].events.len();
        eventually("the worker to sleep", || sleeps() > 0);
        let before = sleeps();
        let mut moved = on(2);
        moved.workers = vec![WorkerSpec { name: "two".to_owned(), cpu: Some(allowed_processor()), numa: None }];
        control.reload(moved).unwrap();
        assert!(sleeps() >= before, "{} of {before} events", sleeps());
        let before = sleeps();
        wanted.store(1, Relaxed);
        eventually("the moved worker to sleep", || sleeps() > before);
        control.reload(on(0)).unwrap();
        assert_eq!(recorded(), ["main"]);
        wanted.store(u64::MAX, Relaxed);
        control.stop();
        run.join().unwrap()
    });
    assert_eq!(run.end, End::Stopped);
}

struct FailsToStart;

impl App for FailsToStart {
    fn start(&mut self, _: Option<&mut Self>) -> Result<(), bellows_engine::AppError> {
        Err("it never starts".into())
    }
}
