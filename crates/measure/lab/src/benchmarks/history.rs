//! `bench history`: whether the engine's speed depends on earlier traffic.
//!
//! Processes run the same network and measure the same traffic: one has had this traffic from its start, one was idle
//! before, one had other traffic. They live at the same time and take turns of a millisecond ([`turns`]),
//! so that a disturbance of one disturbs the others. A network whose mix of packets changes and changes back is
//! compared with one whose mix stays the same, before and after.
//!
//! With `--workers` the apps are on several workers. Their histories are lived on a thread for each worker, at the speed
//! of that thread, with buffers that go from one to the other. In the turns all workers take their breaths in turn on
//! one thread, so that the cost of all of them is compared under the same conditions as that of one.
//!
//! `--control` tests the comparison itself: none of the processes has a history, and one of them does more work.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use bellows_basic::{counter, rss, sample, sink, tee, truncate};
use bellows_config::Bytes;
use bellows_engine::{App, Engine, Io, MAIN, Network, Port, Ports, Schedule, Settings, WorkerSpec};
use bellows_packet::Template;
use bellows_sys::clock;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::bench::{
    Benchmark, Common, Conditions, Figures, Finished, Lab, RefusedOptions, RunBenchmark, RunWorker, whole,
};
use crate::beside::Beside;
use crate::cases::{CaseRow, Cases, LabelKind, label};
use crate::networks::{configured, linked};
use crate::report::{BenchError, Measurement, chosen};
use crate::slices::{Turn, sliced};
use crate::targets::conclusion_within;
use crate::timing::median_or_nan;
use crate::turns::{self, Match};
use crate::workers::{self, Contender, fail, settle_beside_others};

/// Packets per breath.
const BURST: usize = 128;

/// The approximate number of packets that a slice of a turn moves through apps: thirty microseconds of work.
const SLICE: usize = 12_000;

/// Ratios within these bounds count as no difference.
const BOUNDS: std::ops::RangeInclusive<f64> = 0.97..=1.03;

/// Measure whether the engine's speed depends on earlier traffic
///
/// A ratio of 1 means that it does not. Cases: idle-first and other-first, chains of tees that were idle for some
/// seconds, or had packets of other sizes in bursts of other sizes, against the same chains with the measured traffic
/// from the start; mix-change, a network in which packets take different paths, with one mix of packets after another
/// mix against before it, beside a network whose mix stays the same. All histories of a network live at the same time,
/// in one process each, and take turns of a millisecond; a disturbance of one disturbs all. The figure is the median of
/// the ratios of neighbouring turns, over many such groups of fresh processes, with its 95 percent confidence interval.
/// The condition `clocks` is the cost of a packet without a history.
///
/// `--control 0` compares processes without a history: every interval should contain 1. `--control 4` gives the second
/// process 128 packets per breath and the others 124, but counts 124 for all; the ratio must show this. With `--beside
/// thrash` a process on another processor thrashes the last-level cache meanwhile.
#[derive(Clone, Debug, PartialEq, clap::Args, Serialize, Deserialize)]
pub struct Arguments {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    conditions: Conditions,
    #[command(flatten)]
    figures: Figures,
    /// Lengths of the chains of tees
    #[arg(
        long,
        value_name = "N,…",
        value_delimiter = ',',
        default_value = "3,8,20",
        value_parser = whole(1..=100)
    )]
    tees: Vec<usize>,
    /// Turns of about 1 ms per process, of which the quieter half counts
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = whole(2..=60_000))]
    rounds: usize,
    /// Workers that the apps are spread over; their histories run on a thread each
    ///
    /// In the turns one thread takes the breaths of all workers in turn.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole(1..=64))]
    workers: usize,
    /// Seconds that an engine is idle before its traffic
    #[arg(long, value_name = "SECONDS", default_value = "3", value_parser = seconds)]
    idle_seconds: f64,
    /// Compare networks without a history; one has this many extra packets per breath, which are not counted
    #[arg(long, value_name = "PACKETS", value_parser = whole(0..=64), conflicts_with = "case")]
    control: Option<usize>,
}

/// Parses a number of seconds.
pub(super) fn seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "give a number of seconds, such as 3 or 0.5")?;
    if (0.0..=3600.0).contains(&seconds) { Ok(seconds) } else { Err("give from 0 to 3600 seconds".to_owned()) }
}

/// The cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HistoryCase {
    IdleFirst,
    OtherFirst,
    MixChange,
    Control,
}

impl HistoryCase {
    const ALL: [HistoryCase; 3] = [HistoryCase::IdleFirst, HistoryCase::OtherFirst, HistoryCase::MixChange];

    fn name(self) -> &'static str {
        match self {
            HistoryCase::IdleFirst => "idle-first",
            HistoryCase::OtherFirst => "other-first",
            HistoryCase::MixChange => "mix-change",
            HistoryCase::Control => "control",
        }
    }
}

/// The network of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Workload {
    /// A chain of this many tees.
    Tees(usize),
    /// A network in which a mix of packets takes different paths.
    Mixes,
}

/// The history of a network before it is measured; with mixes, between two measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum History {
    Nothing,
    Idleness,
    OtherTraffic,
    /// No history, but each breath has this many extra packets that are not counted.
    More(usize),
}

/// One workload for one process.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct HistoryTask {
    workload: Workload,
    before: History,
    schedule: Schedule,
    options: Arguments,
}

/// Processes to compare. The first has no history.
struct HistoryComparison {
    schedule: Schedule,
    workload: Workload,
    others: Vec<(HistoryCase, History)>,
}

impl HistoryComparison {
    fn tasks(&self, options: &Arguments) -> Vec<HistoryTask> {
        let histories = [History::Nothing].into_iter().chain(self.others.iter().map(|(_, before)| *before));
        let of =
            |before| HistoryTask { workload: self.workload, before, schedule: self.schedule, options: options.clone() };
        histories.map(of).collect()
    }

    /// The number of turns in each stage.
    fn turns(&self, options: &Arguments) -> Vec<usize> {
        match self.workload {
            Workload::Tees(_) => vec![options.rounds],
            Workload::Mixes => vec![options.rounds / 2; 2],
        }
    }

    /// The ratios over all matches.
    fn results(&self, options: &Arguments, matches: &[Match]) -> Vec<Measurement> {
        let clocks = turns::figures(matches, 0, 0);
        let result = |(number, &(case, before)): (usize, &(HistoryCase, History))| {
            let other = (number + 1, 0);
            let ratio = |found: &Match| match self.workload {
                Workload::Tees(_) => found.ratio(other, (0, 0), 0),
                Workload::Mixes => Some(found.ratio(other, (0, 0), 1)? / found.ratio(other, (0, 0), 0)?),
            };
            let ratios: Vec<f64> = matches.iter().filter_map(ratio).collect();
            let mut labels = vec![("schedule", json!(self.schedule)), ("clocks", tenths(median_or_nan(&clocks)))];
            if let Workload::Tees(tees) = self.workload {
                labels.push(("tees", tees.into()));
            }
            if options.workers > 1 {
                labels.push(("workers", options.workers.into()));
            }
            if let History::More(packets) = before {
                labels.push(("more_packets", packets.into()));
            }
            Measurement::compared(case.name(), "ratio", &ratios, labels)
        };
        self.others.iter().enumerate().filter_map(result).collect()
    }
}

fn tenths(clocks: f64) -> Value {
    json!((clocks * 10.0).round() / 10.0)
}

/// Runs the benchmark. Its workers call [`lay_out`].
fn run(options: &Arguments, lab: &mut Lab<'_>) -> Result<Finished, BenchError> {
    let cases = if options.control.is_some() {
        vec![HistoryCase::Control]
    } else {
        chosen(HistoryCase::ALL, HistoryCase::name, &options.figures.case)?
    };
    let comparisons = comparisons(options, &cases);
    let sides = comparisons.iter().map(|comparison| comparison.others.len() + 1).sum();
    let mut series = lab.series(options, sides, options.figures.processes);
    for comparison in &comparisons {
        let tasks = |_| comparison.tasks(options);
        series.group(&comparison.turns(options), &[], tasks, |matches| comparison.results(options, matches))?;
    }
    let mut report = series.report();
    report.notes = vec![conclusion_within(&report.results, BOUNDS, named)];
    Ok(Finished::after_rows(report))
}

/// The comparisons for the chosen cases: all histories of a network together.
fn comparisons(options: &Arguments, cases: &[HistoryCase]) -> Vec<HistoryComparison> {
    let with = |case: HistoryCase, before: History| cases.contains(&case).then_some((case, before));
    let histories = [
        with(HistoryCase::IdleFirst, History::Idleness),
        with(HistoryCase::OtherFirst, History::OtherTraffic),
        options.control.map(|packets| (HistoryCase::Control, History::More(packets))),
    ];
    let histories: Vec<(HistoryCase, History)> = histories.into_iter().flatten().collect();
    let tees = if histories.is_empty() { &[] } else { options.tees.as_slice() };
    let mut comparisons = Vec::new();
    for &schedule in &options.conditions.schedules() {
        let of =
            |&tees: &usize| HistoryComparison { schedule, workload: Workload::Tees(tees), others: histories.clone() };
        comparisons.extend(tees.iter().map(of));
        comparisons.extend(with(HistoryCase::MixChange, History::OtherTraffic).map(|other| HistoryComparison {
            schedule,
            workload: Workload::Mixes,
            others: vec![other],
        }));
    }
    comparisons
}

/// How the conclusion names a ratio.
fn named(result: &Measurement) -> String {
    let tees = result.labels.get("tees").map_or(String::new(), |tees| format!(" with {tees} tees"));
    format!("{}{tees} under {}", result.case, result.labels["schedule"].as_str().unwrap_or_default())
}

/// Lays out a network in a fresh process, and runs its history.
///
/// # Errors
/// None: a failure ends the process.
fn lay_out(task: HistoryTask) -> Result<Box<dyn Contender>, String> {
    let HistoryTask { workload, before, schedule, options } = task;
    let mut others = settle_beside_others(options.common.cpu).into_iter();
    let further: Vec<Option<usize>> = (1..options.workers).map(|_| others.next()).collect();
    // The total stays within a burst, because a larger one would cost more per packet.
    let counted = BURST - options.control.unwrap_or(0);
    let burst = if let History::More(packets) = before { counted + packets } else { counted };
    let mut bench = match workload {
        Workload::Tees(tees) => {
            let (source, switch) = source(vec![vec![vec![(60, burst)]], other_traffic()]);
            Bench::new(spread(chain_of_tees(source, tees), &further), schedule, switch, tees + 1)
        }
        Workload::Mixes => {
            let (source, switch) = source(mixes());
            Bench::new(spread(mixed(source), &further), schedule, switch, 8)
        }
    };
    match (workload, before) {
        (Workload::Mixes, _) | (_, History::Nothing | History::More(_)) => {}
        (_, History::Idleness) => bench.idle(options.idle_seconds),
        (_, History::OtherTraffic) => bench.live(traffic::OTHER, options.rounds),
    }
    bench.pass(traffic::USUAL, options.rounds / 4);
    Ok(Box::new(HistoryContender { bench, before, counted, rounds: options.rounds }))
}

/// The worker's side: a network with a history.
struct HistoryContender {
    bench: Bench,
    before: History,
    /// Counted packets per breath.
    counted: usize,
    rounds: usize,
}

impl Contender for HistoryContender {
    fn turn(&mut self) -> Turn {
        self.bench.measure(self.counted)
    }

    fn advance(&mut self) {
        let between = if self.before == History::OtherTraffic { traffic::OTHER } else { traffic::USUAL };
        self.bench.live(between, self.rounds);
        self.bench.pass(traffic::USUAL, self.rounds / 4);
    }
}

/// A network with a switchable source.
struct Bench {
    engine: Engine,
    switch: Arc<AtomicU32>,
    /// Breaths in a slice. A turn has [`SLICES`] timed slices.
    breaths: u64,
    /// Whether there are several workers.
    is_spread: bool,
}

/// Timed slices of a turn, and untimed ones before them to reload the caches.
const SLICES: usize = 20;
const WARM_UP: u64 = 8;

impl Bench {
    /// A network in which each packet passes about `visits` apps.
    fn new(network: Network, schedule: Schedule, switch: Arc<AtomicU32>, visits: usize) -> Bench {
        let settings = Settings { burst: BURST, schedule, ..Settings::default() };
        let is_spread = network.apps.iter().any(|app| app.worker != MAIN);
        let engine = Engine::new(network, settings, None).unwrap_or_else(|error| fail(&error));
        Bench { engine, switch, breaths: (SLICE / (BURST * visits)).max(1) as u64, is_spread }
    }

    /// Takes breaths of all workers, one of each in turn: more would fill the links between them.
    fn breathe(&mut self, breaths: u64) {
        if self.is_spread {
            for _ in 0..breaths {
                self.engine.breathe();
            }
        } else {
            self.engine.breathe_times(breaths);
        }
    }

    /// Runs traffic for the length of some turns, with a thread for each worker.
    fn live(&mut self, traffic: u32, turns: usize) {
        if !self.is_spread {
            return self.pass(traffic, turns);
        }
        // A turn takes about a millisecond.
        self.run_for(traffic, Duration::from_millis(turns as u64));
    }

    fn run_for(&mut self, traffic: u32, time: Duration) {
        self.switch.store(traffic, Relaxed);
        let control = self.engine.control();
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(time);
                control.stop();
            });
            self.engine.run();
        });
    }

    /// Polls without traffic. Several workers sleep.
    fn idle(&mut self, seconds: f64) {
        if self.is_spread {
            return self.run_for(traffic::NONE, Duration::from_secs_f64(seconds));
        }
        self.switch.store(traffic::NONE, Relaxed);
        let end = clock::now() + (seconds * 1e9) as u64;
        while clock::now() < end {
            self.engine.breathe_times(self.breaths);
        }
    }

    /// Runs traffic for the length of some turns.
    fn pass(&mut self, traffic: u32, turns: usize) {
        self.switch.store(traffic, Relaxed);
        self.breathe(self.breaths * (WARM_UP + SLICES as u64) * turns as u64);
    }

    /// The cost per packet of the usual traffic, counting `packets` packets per breath.
    fn measure(&mut self, packets: usize) -> Turn {
        self.switch.store(traffic::USUAL, Relaxed);
        let breaths = self.breaths;
        self.breathe(breaths * WARM_UP);
        let time = sliced(SLICES, || self.breathe(breaths));
        Turn::of(vec![time.clocks / (breaths * packets as u64) as f64], &[time])
    }
}

/// Positions of the switch.
mod traffic {
    pub(super) const NONE: u32 = 0;
    pub(super) const USUAL: u32 = 1;
    pub(super) const OTHER: u32 = 2;
}

/// The packets of one breath: runs of (length, count).
type Breath = Vec<(usize, usize)>;

/// The packets of successive breaths, repeated.
type Traffic = Vec<Breath>;

/// A source whose traffic can be switched while it runs.
struct SwitchedSource {
    switch: Arc<AtomicU32>,
    /// The packets of each traffic, from switch position 1 on.
    traffics: Vec<Vec<Vec<(Template, usize)>>>,
    /// Breaths so far.
    turn: usize,
}

/// A switchable source and its switch, which is off.
fn source(traffics: Vec<Traffic>) -> (SwitchedSource, Arc<AtomicU32>) {
    let made = |breath: Breath| breath.into_iter().map(|(length, count)| (template(length), count)).collect();
    let traffics = traffics.into_iter().map(|traffic| traffic.into_iter().map(made).collect()).collect();
    let switch = Arc::new(AtomicU32::new(traffic::NONE));
    (SwitchedSource { switch: Arc::clone(&switch), traffics, turn: 0 }, switch)
}

/// A frame with this length, which also determines its addresses.
fn template(length: usize) -> Template {
    let mut frame = vec![0x5a; length];
    let addresses = [&[2, 0, 0, 0], &(length as u16).to_be_bytes()[..], &[2, 0, 0, 0, 0, 1], &[0x88, 0xb5]].concat();
    frame[..addresses.len()].copy_from_slice(&addresses);
    Template::new(&frame).unwrap_or_else(|| fail(&"no template"))
}

impl App for SwitchedSource {
    const OUTPUTS: Ports = Ports::Named(&[Port::required("output", "packets")]);

    fn pull(&mut self, io: &Io<Self>) {
        let Some(traffic) = (self.switch.load(Relaxed) as usize).checked_sub(1) else { return };
        let breaths = &self.traffics[traffic];
        let mut output = io.output(0);
        for (template, count) in &breaths[self.turn % breaths.len()] {
            output.fill(*count, template);
        }
        self.turn += 1;
    }
}

/// Packets of other sizes in bursts of other sizes.
fn other_traffic() -> Traffic {
    let lengths = [1_514, 60, 590, 1_514, 128, 1_024, 300];
    let counts = [1, 128, 17, 64, 96, 3, 32, 250];
    (0..lengths.len() * counts.len())
        .map(|turn| vec![(lengths[turn % lengths.len()], counts[turn % counts.len()])])
        .collect()
}

/// Two mixes of small and large frames, which take different paths through [`mixed`].
fn mixes() -> Vec<Traffic> {
    let usual = [(60, 8), (1_514, 4), (64, 4)].repeat(BURST / 16);
    let other = (0..40).map(|turn| vec![(590, 1 + turn % 7), (1_514, 20 + 2 * turn), (60, 16), (300, turn)]);
    vec![vec![usual], other.collect()]
}

/// Assigns the apps, in their order, to the first worker and `further` ones on these processors.
fn spread(network: Network, further: &[Option<usize>]) -> Network {
    let mut network = network;
    let name = |worker: usize| if worker == 0 { MAIN.to_owned() } else { format!("worker-{worker}") };
    let apps = network.apps.len();
    for (index, app) in network.apps.iter_mut().enumerate() {
        app.worker = name(index * (further.len() + 1) / apps);
    }
    let spec = |(worker, &cpu): (usize, &Option<usize>)| WorkerSpec { name: name(worker), cpu, numa: None };
    network.workers = (1..).zip(further).map(spec).collect();
    network
}

fn a_tee() -> tee::Tee {
    configured(tee::Config::default())
}

/// Each tee copies its packets to the next tee and to a sink; the last one feeds two sinks.
fn chain_of_tees(source: SwitchedSource, tees: usize) -> Network {
    let network = Network::new().app("source", source).app("end", sink::Sink);
    let network = linked(network, ["source.output -> tee0.input"]);
    (0..tees).fold(network, |network, tee| {
        let next = if tee + 1 < tees { format!("tee{}", tee + 1) } else { "end".to_owned() };
        let network = network.app(&format!("tee{tee}"), a_tee()).app(&format!("sink{tee}"), sink::Sink);
        linked(network, [format!("tee{tee}.on -> {next}.input"), format!("tee{tee}.off -> sink{tee}.input")])
    })
}

/// Frames are counted and distributed by their flows, then copied and truncated on one path, sampled on the other.
fn mixed(source: SwitchedSource) -> Network {
    let network = Network::new()
        .app("source", source)
        .app("counter", configured::<counter::Counter>(counter::Config::default()))
        .app("rss", configured::<rss::Rss>(rss::Config::default()))
        .app("tee", a_tee())
        .app("whole", sink::Sink)
        .app("truncate", configured::<truncate::Truncate>(truncate::Config { length: Bytes::new(64) }))
        .app("cut", sink::Sink)
        .app("sample", configured::<sample::Sample>(sample::Config { every: Some(2), ..sample::Config::default() }))
        .app("few", sink::Sink);
    linked(
        network,
        [
            "source.output -> counter.input",
            "counter.output -> rss.input",
            "rss.one -> tee.input",
            "rss.other -> sample.input",
            "tee.whole -> whole.input",
            "tee.cut -> truncate.input",
            "truncate.output -> cut.input",
            "sample.output -> few.input",
        ],
    )
}

/// What its figures are.
const CASES: Cases = Cases {
    text: &[],
    every: &["schedule", "clocks"],
    rows: &[
        CaseRow::of(&["idle-first"], "ratio", "a packet's cost after idle seconds relative to that from the start")
            .with(&["tees"])
            .sometimes(&["workers"]),
        CaseRow::of(&["other-first"], "ratio", "a packet's cost after other packets relative to that from the start")
            .with(&["tees"])
            .sometimes(&["workers"]),
        CaseRow::of(
            &["mix-change"],
            "ratio",
            "a packet's cost after a change of the mix relative to before, beside a network with a constant mix",
        )
        .sometimes(&["workers"]),
        CaseRow::of(
            &["control"],
            "ratio",
            "with `--control`, instead of the others: a packet's cost in a network that has that many more packets in a breath, \
             which are not counted, relative to a network without them",
        )
        .with(&["tees", "more_packets"])
        .sometimes(&["workers"]),
    ],
    labels: &[
        label("clocks", LabelKind::Decimal, "the cost of a packet without a history"),
        label("tees", LabelKind::Integer, "length of the chain of tees"),
        label("more_packets", LabelKind::Integer, "packets in a breath that are not counted"),
    ],
};

impl Benchmark for Arguments {
    const NAME: &'static str = "history";
    const CASES: Cases = CASES;
    const QUICK: &'static str = "--processes 1 --rounds 2 --idle-seconds 0.01 --tees 1 --schedule flat";
    const MORE: &'static [&'static str] = &[
        "--processes 1 --rounds 2 --idle-seconds 0.01 --tees 1 --schedule flat --workers 2",
        "--processes 1 --rounds 2 --tees 1 --schedule flat --workers 2 --control 4",
    ];
    const REFUSED: &'static [RefusedOptions] = &[
        (&["--case", "tee"], "no case has `tee` in its name; there are idle-first, other-first and mix-change"),
        (&["--tees", "3,0"], "0 is not in 1..=100"),
        (&["--idle-seconds", "soon"], "give a number of seconds, such as 3 or 0.5"),
        (&["--idle-seconds", "3601"], "give from 0 to 3600 seconds"),
    ];
    const WORK: RunWorker = |_| workers::take_part(lay_out);
    const RUN: RunBenchmark<Self> = run;

    fn common(&self) -> Common {
        self.common.clone()
    }

    fn beside(&self) -> Option<Beside> {
        self.conditions.beside
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::parsed;
    use bellows_observe::Snapshot;

    fn sent(snapshot: &Snapshot, from: &str) -> (u64, u64) {
        let link = snapshot.links.iter().find(|link| link.from == from).unwrap();
        (link.packets, link.bytes)
    }

    #[test]
    fn a_switched_source_sends_what_the_switch_says() {
        let (source, switch) = source(vec![vec![vec![(60, 128)]], vec![vec![(1_514, 3), (64, 2)], vec![]]]);
        let mut bench = Bench::new(chain_of_tees(source, 3), Schedule::default(), switch, 4);
        for (position, breaths, packets, bytes) in
            [(traffic::NONE, 2, 0, 0), (traffic::USUAL, 2, 256, 256 * 60), (traffic::OTHER, 2, 261, 256 * 60 + 4_670)]
        {
            bench.switch.store(position, Relaxed);
            bench.engine.breathe_times(breaths);
            let snapshot = bench.engine.snapshot();
            assert_eq!(sent(&snapshot, "source.output"), (packets, bytes));
            for link in ["tee0.on", "tee1.off", "tee2.on", "tee2.off"] {
                assert_eq!(sent(&snapshot, link), (packets, bytes), "every tee copies all to both");
            }
            assert_eq!(snapshot.dropped(), 0);
        }
    }

    #[test]
    fn both_mixes_go_both_ways_and_the_usual_one_fills_every_breath() {
        for position in [traffic::USUAL, traffic::OTHER] {
            let (source, switch) = source(mixes());
            let mut bench = Bench::new(mixed(source), Schedule::default(), switch, 8);
            bench.switch.store(position, Relaxed);
            bench.engine.breathe_times(40);
            let snapshot = bench.engine.snapshot();
            assert!(sent(&snapshot, "rss.one").0 > 200 && sent(&snapshot, "rss.other").0 > 200, "{snapshot:#?}");
            assert!(position == traffic::OTHER || sent(&snapshot, "source.output").0 == 40 * BURST as u64);
        }
    }

    #[test]
    fn packets_pass_all_workers_on_one_thread_and_on_many() {
        let (source, switch) = source(vec![vec![vec![(60, BURST)]], other_traffic()]);
        let mut bench = Bench::new(spread(chain_of_tees(source, 8), &[None, None]), Schedule::default(), switch, 9);
        assert!(bench.is_spread);
        bench.pass(traffic::USUAL, 1);
        let snapshot = bench.engine.snapshot();
        let (packets, _) = sent(&snapshot, "source.output");
        assert!(packets >= 28 * BURST as u64 && sent(&snapshot, "tee7.off").0 == packets, "{snapshot:#?}");
        assert_eq!((snapshot.dropped(), snapshot.crossings.is_empty()), (0, false));

        // Until packets have passed all threads.
        while sent(&bench.engine.snapshot(), "tee7.off").0 == packets {
            bench.live(traffic::OTHER, 20);
        }
        bench.idle(0.01);
        let turn = bench.measure(BURST);
        assert!(turn.figures[0] > 0.0);
        assert!(sent(&bench.engine.snapshot(), "tee7.off").0 > packets);
    }

    #[test]
    fn a_case_measures_only_what_it_compares() {
        use History::{Idleness, Nothing, OtherTraffic};
        let options = parsed::<Arguments>(&["--schedule", "flat", "--tees", "3"]);
        let sides = |options: &Arguments, cases: &[HistoryCase]| -> Vec<(Workload, Vec<History>)> {
            let histories =
                |comparison: &HistoryComparison| comparison.tasks(options).iter().map(|task| task.before).collect();
            comparisons(options, cases).iter().map(|comparison| (comparison.workload, histories(comparison))).collect()
        };
        let mixes = (Workload::Mixes, vec![Nothing, OtherTraffic]);
        assert_eq!(sides(&options, &[HistoryCase::MixChange]), std::slice::from_ref(&mixes));
        assert_eq!(sides(&options, &[HistoryCase::OtherFirst]), [(Workload::Tees(3), vec![Nothing, OtherTraffic])]);
        let tees = (Workload::Tees(3), vec![Nothing, Idleness, OtherTraffic]);
        assert_eq!(sides(&options, &HistoryCase::ALL), [tees, mixes]);
        let control = Arguments { control: Some(4), ..options };
        assert_eq!(sides(&control, &[HistoryCase::Control]), [(Workload::Tees(3), vec![Nothing, History::More(4)])]);
    }

    #[test]
    fn a_control_takes_turns() {
        let options = Arguments { rounds: 4, control: Some(4), ..parsed(&[]) };
        let task = |before| HistoryTask {
            workload: Workload::Tees(1),
            before,
            schedule: Schedule::Flat,
            options: options.clone(),
        };
        // A side takes turns, and runs the rest of its history between two stages.
        let mut side = lay_out(task(History::More(4))).unwrap();
        assert!(side.turn().figures[0] > 0.0);
        side.advance();
        assert_eq!(side.finish(), Ok(()));
    }

    #[test]
    fn the_conclusion_names_intervals_outside_the_bounds() {
        let labels = |schedule: Schedule| vec![("schedule", json!(schedule)), ("tees", 8.into())];
        let ratio =
            |values: &[f64]| Measurement::compared("idle-first", "ratio", values, labels(Schedule::Flat)).unwrap();
        let steady = ratio(&[1.01, 1.0, 0.99]);
        let slow = ratio(&[1.2, 1.0, 1.1]);
        let disturbed = ratio(&[0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 0.7]);
        let conclusion = |results: &[Measurement]| conclusion_within(results, BOUNDS, named);
        assert_eq!(conclusion(std::slice::from_ref(&steady)), "every interval lies within 0.97–1.03");
        assert_eq!(
            conclusion(&[steady.clone(), slow]),
            "one of 2 intervals does not lie within 0.97–1.03: idle-first with 8 tees under flat (1.000 – 1.200)"
        );
        assert_eq!(
            conclusion(&[steady, disturbed.clone()]),
            "every interval that is narrow enough lies within 0.97–1.03"
        );
        assert_eq!(conclusion(&[disturbed]), "no interval is narrow enough to say whether it lies within 0.97–1.03");
    }
}
