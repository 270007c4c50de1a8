//! `bench workers`: what a network carries on two workers, beside two processes with half of the work each.
//!
//! The reference runs on the same two processors at the same time, because these may be two threads of one core, which
//! share what it has: more than two processes carry there, no two workers can. Slices of time in which the two workers
//! run take turns with slices in which both processes run. In the ratio of neighbouring slices the changing speed of
//! the machine cancels out; a pair of slices in which the host took a processor away (`steal` in `/proc/stat`) does not
//! count.
//!
//! | case | two workers | each process |
//! |---|---|---|
//! | chain | source → chain, *crossing*, chain → sink | source → chain → sink |
//! | rss | source → rss → chain → sink; rss → *crossing*, chain → sink | source → rss → chain → sink |
//! | rss-both | the same | source → rss → chain → sink; rss → chain → sink |
//! | vhost | on each worker: source → driver, device → sink | source → driver, device → sink |
//!
//! A chain has 50 apps that loop over their packets, which is a small part of what a tunnel or a router does with a
//! packet; `--apps` sets the number. All networks are lossless, so a source makes what the slowest part of
//! the network takes. Where `rss` divides a vector between two chains, each app is called for fewer packets, which costs
//! more per packet on one worker, too: the processes of `rss-both` have this cost, those of `rss` do not.
//!
//! `rss` divides the flows so that both workers are equally busy. Beside its chain, which costs `c` clocks a packet, the
//! first worker has the source and `rss`, which cost `b` for each packet of both. So it keeps the share `(c - b) / 2c`.
//! Before the slices each set of processes measures `b` and `c` on one worker, and then chooses the weights with which
//! these flows are divided that way.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use bellows_basic::{rss, sink, source};
use bellows_config::Configure;
use bellows_engine::{Control, End, Engine, MAIN, Network, Settings, WorkerSpec};
use bellows_interfaces::{vhost_user, virtio_user};
use bellows_observe::Snapshot;
use bellows_sys::{clock, cpu};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::engine::Loop;
use crate::audience::Observer;
use crate::bench::{Benchmark, Common, Figures, Finished, Lab, RefusedOptions, RunBenchmark, RunWorker, whole};
use crate::cases::{CaseRow, Cases};
use crate::machine::Machine;
use crate::named::named;
use crate::networks::{Folder, configured, linked};
use crate::report::{BenchError, Measurement, Ratio, Report, chosen};
use crate::slices::{Turn, sliced};
use crate::steal::{TICKS_PER_SECOND, stolen};
use crate::supply::{self, SupplyConfig};
use crate::timing::median_or_nan;
use crate::workers::{self, Contender, ProcessError, Reply, Worker, fail, settle};

/// Packets in a vector.
const BURST: usize = 128;

/// The sum of the weights of `rss`.
const WEIGHTS: u32 = 1_000;

/// The time before a slice in which caches and free buffers settle.
const WARM_UP: Duration = Duration::from_millis(10);

/// How long the first packets may take: drivers and devices connect to each other.
const FIRST_PACKETS: Duration = Duration::from_secs(20);

/// The name of the second worker.
const OTHER: &str = "other";

named! {
    /// The cases.
    enum WorkersCase {
        Chain = "chain",
        Rss = "rss",
        RssBoth = "rss-both",
        Vhost = "vhost",
    }
}

impl WorkersCase {
    /// What two workers should carry, given what each process does: each packet of a chain passes both workers.
    fn reference(self, processes: &[f64]) -> f64 {
        let all: f64 = processes.iter().sum();
        if self == WorkersCase::Chain { all / processes.len() as f64 } else { all }
    }
}

/// Measure what two workers carry, compared with two processes
///
/// Two workers of an engine take turns with two processes that have half of the work each, on the same two processors.
/// Cases, in millions of packets a second: chain (a chain of apps that loop over their packets on each worker, one
/// behind the other; beside the mean of two processes with one chain), rss (the flows of a source, divided between a chain on each worker; beside the
/// sum of two processes with a source, rss and one chain), rss-both (the same, beside two processes that each have both
/// chains), vhost (a virtio-user driver and a vhost-user device on each worker; beside the sum of two processes with one of each). The ratio is that of neighbouring slices in which the host
/// took no time away.
#[derive(Clone, Debug, PartialEq, clap::Args, Serialize, Deserialize)]
pub struct Arguments {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    figures: Figures,
    /// Slices of each kind per set of processes, of which the median counts
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = whole(1..=1000))]
    rounds: usize,
    /// Apps of a chain
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = whole(0..=1000))]
    apps: usize,
    /// Length of a slice in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 100, value_parser = whole(1..=10_000))]
    slice: usize,
}

/// The work of one process.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct WorkersTask {
    case: WorkersCase,
    /// The apps of a chain.
    apps: usize,
    /// The processor of each of its workers: of two, or of one.
    processors: Vec<usize>,
    /// The folder for sockets.
    folder: PathBuf,
    slice: Duration,
}

/// Two neighbouring slices: what the workers carried, the reference, and the share of the time that was lost.
#[derive(Clone, Copy, Debug, PartialEq)]
struct SlicePair {
    workers: f64,
    reference: f64,
    lost: f64,
}

/// The slices of a set of processes.
#[derive(Clone, Debug, Default)]
struct Set {
    pairs: Vec<SlicePair>,
    /// The share of the flows that the first worker keeps.
    share: Option<f64>,
}

impl Set {
    /// The pairs from which no time was lost. If there is none, the one that lost least is better than nothing.
    fn clean(&self) -> Vec<SlicePair> {
        let clean: Vec<SlicePair> = self.pairs.iter().copied().filter(|pair| pair.lost == 0.0).collect();
        let least = self.pairs.iter().min_by(|one, other| one.lost.total_cmp(&other.lost));
        if clean.is_empty() { least.into_iter().copied().collect() } else { clean }
    }

    /// The median of a figure.
    fn median(&self, of: impl Fn(&SlicePair) -> f64) -> f64 {
        median_or_nan(&self.clean().iter().map(of).collect::<Vec<f64>>())
    }
}

/// Runs the benchmark. Its workers call [`lay_out`].
fn run(options: &Arguments, lab: &mut Lab<'_>) -> Result<Finished, BenchError> {
    let cases = chosen(WorkersCase::ALL, WorkersCase::name, &options.figures.case)?;
    let all = cpu::allowed();
    let one = options.common.processor();
    let Some(other) = all.into_iter().find(|&cpu| cpu != one) else {
        return Err(BenchError::Refused(format!(
            "two workers take two processors, and only processor {one} may be used"
        )));
    };
    // A worker that fails exits at once; its sockets are removed here.
    let folder = Folder::new("workers")?;
    let mut sets: Vec<(WorkersCase, Set)> = Vec::new();
    let (mut machine, mut interrupted) = (None, false);
    let arguments = lab.worker(Arguments::NAME);
    let count = cases.len() * options.figures.processes;
    for number in 0..count {
        lab.observer.progress(number, count);
        let case = cases[number % cases.len()];
        let task = |processors: &[usize]| WorkersTask {
            case,
            apps: options.apps,
            processors: processors.to_vec(),
            folder: folder.0.clone(),
            slice: Duration::from_millis(options.slice as u64),
        };
        let tasks = [vec![task(&[one, other])], vec![task(&[one]), task(&[other])]];
        match compare(case, &tasks, options.rounds, &arguments, lab.observer) {
            Ok((set, found)) => {
                sets.push((case, set));
                machine.get_or_insert(found);
            }
            Err(ProcessError::Interrupted) if !sets.is_empty() => {
                interrupted = true;
                break;
            }
            Err(error) => return Err(error.into()),
        }
    }
    lab.observer.progress(count, count);
    let of =
        |case: WorkersCase| sets.iter().filter(move |(of, _)| *of == case).map(|(_, set)| set).collect::<Vec<&Set>>();
    let results = cases.iter().filter_map(|&case| row(case, &of(case))).collect();
    let mut report =
        Report::new(Arguments::NAME, machine.unwrap_or_else(Machine::here), options.figures.processes, results);
    let lost: Vec<f64> = sets.iter().flat_map(|(_, set)| &set.pairs).map(|pair| pair.lost).collect();
    report.lost = Some(lost.iter().sum::<f64>() / lost.len().max(1) as f64);
    report.notes = cases.iter().flat_map(|&case| notes(case, &of(case))).collect();
    report.interrupted = interrupted;
    Ok(Finished::new(report, |report| report.text_beside("workers", "processes")))
}

/// The row of a case.
fn row(case: WorkersCase, sets: &[&Set]) -> Option<Measurement> {
    let each = |of: fn(&SlicePair) -> f64| sets.iter().map(|set| set.median(of)).collect::<Vec<f64>>();
    let measured = Measurement::of(case.name(), "Mpps", &each(|pair| pair.workers), Vec::new())?;
    let reference = Some(median_or_nan(&each(|pair| pair.reference)));
    let of_reference = Ratio::of(&each(|pair| pair.workers / pair.reference));
    Some(Measurement { reference, of_reference, ..measured })
}

/// What was left out, and how flows were divided.
fn notes(case: WorkersCase, sets: &[&Set]) -> Vec<String> {
    let pairs = || sets.iter().flat_map(|set| &set.pairs);
    let disturbed = pairs().filter(|pair| pair.lost > 0.0).count();
    let left_out = (disturbed > 0).then(|| {
        let (name, all) = (case.name(), pairs().count());
        format!("{name}: {disturbed} of {all} pairs of slices left out, in which the host took a processor away")
    });
    let shares: Vec<f64> = sets.iter().filter_map(|set| set.share).collect();
    let share = (!shares.is_empty()).then(|| {
        let percent = 100.0 * median_or_nan(&shares);
        let name = case.name();
        format!("{name}: the first worker, which has the source and rss, keeps {percent:.0} percent of the packets")
    });
    left_out.into_iter().chain(share).collect()
}

/// Compares the two workers with the two processes, each a group of processes that run at the same time.
fn compare(
    case: WorkersCase,
    tasks: &[Vec<WorkersTask>; 2],
    rounds: usize,
    arguments: &[&str],
    observer: &dyn Observer,
) -> Result<(Set, Machine), ProcessError> {
    let mut machine = None;
    // One after the other, because they measure costs.
    let mut start = |task: &WorkersTask| {
        let mut worker = Worker::start(arguments, task)?;
        let reply: Reply<()> = worker.reply(observer)?;
        if let Some(found) = reply.machine {
            machine.get_or_insert(found);
        }
        Ok(worker)
    };
    let mut group =
        |tasks: &Vec<WorkersTask>| tasks.iter().map(&mut start).collect::<Result<Vec<Worker>, ProcessError>>();
    let mut groups = [group(&tasks[0])?, group(&tasks[1])?];
    let mut set = Set::default();
    for round in 0..rounds.max(1) {
        if observer.should_stop() {
            return Err(ProcessError::Interrupted);
        }
        let mut turns = [Vec::new(), Vec::new()];
        // Each goes first every other time.
        for side in [round % 2, 1 - round % 2] {
            turns[side] = turn_together(&mut groups[side])?;
        }
        let [workers, processes] = &turns;
        let rates: Vec<f64> = processes.iter().map(|turn| turn.figures[0]).collect();
        let lost = turns.iter().flatten().map(|turn| turn.lost).sum::<f64>() / (workers.len() + processes.len()) as f64;
        set.pairs.push(SlicePair { workers: workers[0].figures[0], reference: case.reference(&rates), lost });
        set.share = workers[0].figures.get(1).copied();
    }
    for worker in groups.into_iter().flatten() {
        worker.finish()?;
    }
    Ok((set, machine.unwrap_or_else(Machine::here)))
}

/// Lets processes take a turn at the same time.
fn turn_together(workers: &mut [Worker]) -> Result<Vec<Turn>, ProcessError> {
    workers.iter_mut().for_each(Worker::begin_turn);
    workers.iter_mut().map(Worker::end_turn).collect()
}

/// Lays out a network in a fresh process.
///
/// # Errors
/// None: a failure ends the process.
fn lay_out(task: WorkersTask) -> Result<Box<dyn Contender>, String> {
    let WorkersTask { case, apps, processors, folder, slice } = task;
    settle(processors.first().copied());
    let is_divided = matches!(case, WorkersCase::Rss | WorkersCase::RssBoth) && processors.len() > 1;
    let (weight, share) = is_divided.then(|| divided(apps)).unzip();
    // The threads of apps may run on all processors of this process.
    cpu::allow(&processors).unwrap_or_else(|error| fail(&error));
    let mut network = match case {
        WorkersCase::Chain => chain(apps, processors.len()),
        WorkersCase::RssBoth if !is_divided => on_one_worker(distributed(apps, Some(WEIGHTS / 2))),
        WorkersCase::Rss | WorkersCase::RssBoth => distributed(apps, weight),
        WorkersCase::Vhost => devices(processors.len(), &folder),
    };
    let further = processors.iter().skip(1);
    network.workers.extend(further.map(|&cpu| WorkerSpec { name: OTHER.to_owned(), cpu: Some(cpu), numa: None }));
    let engine = engine(network);
    let mut side = WorkersContender { engine, processors, slice, share };
    side.wait_for_packets();
    Ok(Box::new(side))
}

/// An engine for a network; it polls all the time.
fn engine(network: Network) -> Engine {
    let settings = Settings { burst: BURST, busywait: true, lossless: true, ..Settings::default() };
    Engine::new(network, settings, None).unwrap_or_else(|error| fail(&error))
}

/// The worker's side: an engine that runs in its turns only.
struct WorkersContender {
    engine: Engine,
    processors: Vec<usize>,
    slice: Duration,
    share: Option<f64>,
}

impl WorkersContender {
    /// Runs the engine while another thread does something.
    fn run<T: Send>(&mut self, meanwhile: impl FnOnce(&Control) -> T + Send) -> T {
        let control = self.engine.control();
        thread::scope(|scope| {
            let other = scope.spawn(move || {
                let result = meanwhile(&control);
                control.stop();
                result
            });
            cpu::pin_to(self.processors[0]).unwrap_or_else(|error| fail(&error));
            self.engine.run();
            cpu::allow(&self.processors).unwrap_or_else(|error| fail(&error));
            other.join().unwrap_or_else(|_| fail(&"the thread that counts packets panicked"))
        })
    }

    /// Runs the engine until all sinks have packets.
    fn wait_for_packets(&mut self) {
        let end = Instant::now() + FIRST_PACKETS;
        while self.run(|control| {
            thread::sleep(WARM_UP);
            arrived(&control.snapshot()).contains(&0)
        }) {
            if Instant::now() > end {
                fail(&format!("no packet arrived within {} seconds", FIRST_PACKETS.as_secs()));
            }
        }
    }
}

impl Contender for WorkersContender {
    fn turn(&mut self) -> Turn {
        let (slice, processors, share) = (self.slice, self.processors.clone(), self.share);
        self.run(move |control| {
            thread::sleep(WARM_UP);
            let all = |control: &Control| arrived(&control.snapshot()).iter().sum::<u64>();
            let stolen = || processors.iter().filter_map(|&cpu| stolen(cpu)).sum::<u64>();
            let (stolen_before, start, ticks, before) = (stolen(), Instant::now(), clock::ticks(), all(control));
            thread::sleep(slice);
            let (packets, took) = (all(control) - before, clock::ticks() - ticks);
            let seconds = start.elapsed().as_secs_f64();
            let lost = stolen().saturating_sub(stolen_before) as f64 / TICKS_PER_SECOND;
            let figures = [packets as f64 / seconds / 1e6].into_iter().chain(share).collect();
            Turn { figures, took: took as f64, lost: lost / seconds / processors.len() as f64 }
        })
    }

    fn finish(self: Box<Self>) -> Result<(), String> {
        let outcome = self.engine.finish(End::Stopped);
        match outcome.panicked.first() {
            Some(app) => Err(format!("the app `{app}` panicked")),
            None => Ok(()),
        }
    }
}

/// The packets that have arrived at each sink.
fn arrived(snapshot: &Snapshot) -> Vec<u64> {
    snapshot.apps.iter().filter(|app| app.name.starts_with("sink")).map(|app| app.in_packets).collect()
}

/// The name of a worker.
fn worker_name(worker: usize) -> &'static str {
    if worker == 0 { MAIN } else { OTHER }
}

/// Adds apps in a row, all on one worker, and a sink if it `ends`: `from` is the output before them. Returns the
/// network and the row's output.
fn row_of_loops(network: Network, from: &str, apps: usize, worker: usize, ends: bool) -> (Network, String) {
    let mut from = from.to_owned();
    let mut network = network;
    for index in 0..apps {
        let name = format!("loop-{worker}-{index}");
        network = network.app(&name, Loop).on_worker(worker_name(worker));
        network = linked(network, [format!("{from} -> {name}.input")]);
        from = format!("{name}.output");
    }
    if ends {
        let name = format!("sink-{worker}");
        network = network.app(&name, sink::Sink).on_worker(worker_name(worker));
        network = linked(network, [format!("{from} -> {name}.input")]);
    }
    (network, from)
}

fn small_source() -> source::Source {
    configured(source::Config { size: Some(60), ..source::Config::default() })
}

/// A chain of `apps` apps on each of one or two workers.
fn chain(apps: usize, workers: usize) -> Network {
    let first = (Network::new().app("source", small_source()), "source.output".to_owned());
    let add =
        |(network, from): (Network, String), worker| row_of_loops(network, &from, apps, worker, worker + 1 == workers);
    (0..workers).fold(first, add).0
}

/// Flows that `rss` leads to a chain of `apps`; with a `weight` to one on each worker, where that of the first one has
/// this weight.
fn distributed(apps: usize, weight: Option<u32>) -> Network {
    let (supply, _) = "ipv4"
        .parse()
        .map_err(|error: crate::traffic::TrafficError| error.to_string())
        .and_then(|traffic| supply::pair(&SupplyConfig::new(traffic), BURST).map_err(|error| error.to_string()))
        .unwrap_or_else(|error| fail(&error));
    let weights = weight.map(|weight| [("to-0".to_owned(), weight), ("to-1".to_owned(), WEIGHTS - weight)]);
    let weights: BTreeMap<String, u32> = weights.into_iter().flatten().collect();
    let workers = weights.len().max(1);
    let rss = configured::<rss::Rss>(rss::Config { weights, ..rss::Config::default() });
    let network = linked(Network::new().app("source", supply).app("rss", rss), ["source.output -> rss.input"]);
    (0..workers)
        .fold(network, |network, worker| row_of_loops(network, &format!("rss.to-{worker}"), apps, worker, true).0)
}

/// Assigns all apps to the first worker.
fn on_one_worker(network: Network) -> Network {
    let mut network = network;
    network.apps.iter_mut().for_each(|app| MAIN.clone_into(&mut app.worker));
    network
}

/// A driver and a device for each worker.
fn devices(workers: usize, folder: &Path) -> Network {
    fn of<A: Configure>(socket: &Path) -> A
    where
        A::Config: serde::de::DeserializeOwned,
    {
        configured::<A>(serde_json::from_value(json!({ "socket": socket })).unwrap_or_else(|error| fail(&error)))
    }
    let add = |network: Network, worker: usize| {
        let socket = folder.join(format!("{}-{worker}", std::process::id()));
        let [source, driver, device, sink] =
            ["source", "driver", "device", "sink"].map(|app| format!("{app}-{worker}"));
        let on = worker_name(worker);
        let network = network
            .app(&source, small_source())
            .on_worker(on)
            .app(&driver, of::<virtio_user::VirtioUser>(&socket))
            .on_worker(on)
            .app(&device, of::<vhost_user::VhostUser>(&socket))
            .on_worker(on)
            .app(&sink, sink::Sink)
            .on_worker(on);
        linked(network, [format!("{source}.output -> {driver}.input"), format!("{device}.output -> {sink}.input")])
    };
    (0..workers).fold(Network::new(), add)
}

/// Clocks per packet of a network on this thread.
fn cost(network: Network) -> f64 {
    const BREATHS: u64 = 200;
    let mut engine = engine(network);
    engine.breathe_times(BREATHS);
    let time = sliced(20, || {
        engine.breathe_times(BREATHS);
    });
    engine.finish(End::Stopped);
    time.clocks / (BREATHS * BURST as u64) as f64
}

/// The weight of the first worker with which both workers are equally busy, and the share of the packets that it gets.
fn divided(apps: usize) -> (u32, f64) {
    let before = cost(distributed(0, None));
    let chain = cost(distributed(apps, None)) - before;
    let wanted = (chain - before) / (2.0 * chain);
    let (mut low, mut high) = (1, WEIGHTS / 2);
    while low < high {
        let weight = low.midpoint(high);
        if share_of(weight) < wanted { low = weight + 1 } else { high = weight }
    }
    (low, share_of(low))
}

/// The share of the packets that a weight of the first worker gives it.
fn share_of(weight: u32) -> f64 {
    // Each flow comes several times.
    const BREATHS: u64 = 64;
    let mut engine = engine(on_one_worker(distributed(0, Some(weight))));
    engine.breathe_times(BREATHS);
    let packets = arrived(&engine.finish(End::Stopped).snapshot);
    packets[0] as f64 / packets.iter().sum::<u64>().max(1) as f64
}

/// What its figures are.
const CASES: Cases = Cases {
    text: &[
        "`reference` and `of_reference` are what two processes with half of the work each carry on the same processors, in \
         neighbouring slices: of `chain` the mean of both, else their sum.",
    ],
    every: &[],
    rows: &[CaseRow::of(&["chain", "rss", "rss-both", "vhost"], "Mpps", "what two workers carry")],
    labels: &[],
};

impl Benchmark for Arguments {
    const NAME: &'static str = "workers";
    const CASES: Cases = CASES;
    const QUICK: &'static str = "--processes 1 --rounds 1 --apps 5 --slice 20";
    const REFUSED: &'static [RefusedOptions] = &[
        (&["--case", "ring"], "no case has `ring` in its name; there are chain, rss, rss-both and vhost"),
        (&["--slice", "0"], "0 is not in 1..=10000"),
    ];
    const WORK: RunWorker = |_| workers::take_part(lay_out);
    const RUN: RunBenchmark<Self> = run;

    fn common(&self) -> Common {
        self.common.clone()
    }
}

#[cfg(test)]
mod tests {
    use bellows_testkit::scratch::scratch;
    use bellows_testkit::skips::skip_here;

    use super::*;

    /// All cases carry packets, on one worker and on two, turn after turn.
    #[test]
    fn every_side_takes_turns() {
        let all = cpu::allowed();
        if all.len() < 2 {
            return skip_here("every_side_takes_turns", "there is one processor");
        }
        let folder = scratch();
        for case in WorkersCase::ALL {
            for workers in [1, 2] {
                let (processors, folder) = (all[..workers].to_vec(), folder.path().to_owned());
                let task = WorkersTask { case, apps: 20, processors, folder, slice: Duration::from_millis(50) };
                let turns = || {
                    let mut side = lay_out(task).unwrap();
                    let turns = [side.turn(), side.turn()];
                    side.finish().unwrap();
                    turns
                };
                let turns = thread::scope(|scope| scope.spawn(turns).join().unwrap());
                for Turn { figures, took, .. } in turns {
                    assert!(figures[0] > 0.0 && took > 0.0, "{case:?} on {workers}: {figures:?}");
                    assert_eq!(figures.len(), if case.name().starts_with("rss") && workers == 2 { 2 } else { 1 });
                }
            }
        }
    }

    #[test]
    fn the_work_of_two_workers_is_that_of_two_processes() {
        let on = |network: &Network, worker: usize| {
            network.apps.iter().filter(|app| app.worker == worker_name(worker)).count()
        };
        let two = chain(10, 2);
        assert_eq!((on(&two, 0), on(&two, 1), chain(10, 1).apps.len()), (11, 11, 12));
        let two = distributed(10, Some(300));
        assert_eq!((on(&two, 0), on(&two, 1)), (13, 11));
        assert_eq!(distributed(10, None).apps.len(), 13);
        assert_eq!((WorkersCase::Chain.reference(&[3.0, 5.0]), WorkersCase::Vhost.reference(&[3.0, 5.0])), (4.0, 8.0));
    }

    #[test]
    fn a_weight_gives_its_share() {
        for weight in [100, 300, 500] {
            let share = share_of(weight);
            assert!((share - f64::from(weight) / f64::from(WEIGHTS)).abs() < 0.1, "{weight}: {share}");
        }
    }

    #[test]
    fn disturbed_slices_do_not_count() {
        let pair = |workers, reference, lost| SlicePair { workers, reference, lost };
        let set = Set { pairs: vec![pair(9.0, 10.0, 0.0), pair(2.0, 10.0, 0.2), pair(18.0, 20.0, 0.0)], share: None };
        let stolen = Set { pairs: vec![pair(2.0, 10.0, 0.2), pair(5.0, 10.0, 0.1)], share: Some(0.25) };
        let row = row(WorkersCase::Rss, &[&set]).unwrap();
        assert_eq!((row.median, row.reference), (13.5, Some(15.0)));
        assert_eq!(row.of_reference, Some(Ratio { median: 0.9, low: 0.9, high: 0.9 }));
        assert_eq!(stolen.clean(), [pair(5.0, 10.0, 0.1)]);
        let notes = notes(WorkersCase::Rss, &[&set, &stolen]);
        assert!(notes[0].starts_with("rss: 3 of 5 pairs of slices left out"), "{notes:?}");
        assert!(notes[1].ends_with("keeps 25 percent of the packets"), "{notes:?}");
    }
}
