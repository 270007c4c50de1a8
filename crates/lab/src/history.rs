//! `bench history`: whether the engine's speed depends on what it met before.
//!
//! Three processes run the same network and measure the same traffic: one that has had it from its start, one that was
//! idle before, and one that has had other traffic. A ratio is formed of processes that ran one after the other, so that
//! a slow minute of the machine cancels out; and costs are compared in steps of a yardstick that is laid on in every round,
//! so that the processor's frequency does.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use bellows_apps::{counter, sample, sink, split, tee, truncate};
use bellows_config::Bytes;
use bellows_engine::{App, Engine, Io, Network, Port, Ports, Schedule, Settings};
use bellows_packet::Template;
use bellows_sys::clock;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::networks::{configured, linked};
use crate::processes::{fail, settle, take_turns};
use crate::report::{BenchError, Machine, Measurement, Report, chosen};
use crate::timing::{clocks, middle, undisturbed, yardstick};

/// Packets a breath.
const BURST: usize = 128;

/// Packets that a round of measuring moves through apps, about: a millisecond's work.
const ROUND: usize = 400_000;

/// Within these bounds history counts as making no difference.
const BOUNDS: std::ops::RangeInclusive<f64> = 0.97..=1.03;

/// What a benchmark run is asked to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Options {
    /// The schedules to measure.
    pub schedules: Vec<Schedule>,
    /// Lengths of the chains of tees.
    pub tees: Vec<usize>,
    /// Fresh processes for each history.
    pub processes: usize,
    /// Rounds in each process, of which the lower quartile counts.
    pub rounds: usize,
    /// How long the engine is idle before the traffic, in seconds.
    pub idle_seconds: f64,
    /// The processor to measure on; the last that the process may use if none is given.
    pub cpu: Option<usize>,
    /// Only cases whose name contains this.
    pub filter: String,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            schedules: Schedule::ALL.to_vec(),
            tees: vec![3, 8, 20],
            processes: 15,
            rounds: 400,
            idle_seconds: 3.0,
            cpu: None,
            filter: String::new(),
        }
    }
}

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Case {
    IdleFirst,
    OtherFirst,
    MixChange,
}

impl Case {
    const ALL: [Case; 3] = [Case::IdleFirst, Case::OtherFirst, Case::MixChange];

    fn name(self) -> &'static str {
        match self {
            Case::IdleFirst => "idle-first",
            Case::OtherFirst => "other-first",
            Case::MixChange => "mix-change",
        }
    }
}

/// What a process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Trial {
    /// Measures packets that go through so many tees, after other packets or none.
    Tees(usize, Before),
    /// Measures one mix of packets before and after another.
    Mixes,
}

/// What a network of tees has met before it is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Before {
    Nothing,
    Idleness,
    OtherTraffic,
}

/// One trial for one process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Task {
    trial: Trial,
    schedule: Schedule,
    options: Options,
}

/// What one process measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Answer {
    /// What a packet costs; with mixes afterwards.
    cost: Cost,
    /// What it cost before, with mixes.
    before: Option<Cost>,
    machine: Machine,
}

/// What a packet costs.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Cost {
    /// In clocks of the time-stamp counter.
    clocks: f64,
    /// In steps of the [`yardstick`], so that the processor's frequency cancels out.
    steps: f64,
}

/// Runs the benchmark. `arguments` make this program call [`measure`] in a fresh process; `progress` is told how many
/// of how many processes are done.
///
/// # Errors
/// See [`BenchError`].
pub fn run(options: &Options, arguments: &[&str], progress: impl FnMut(usize, usize)) -> Result<Report, BenchError> {
    let cases = chosen(Case::ALL, Case::name, &options.filter)?;
    let trials: Vec<(Schedule, Trial)> = options
        .schedules
        .iter()
        .flat_map(|&schedule| trials(&cases, &options.tees).into_iter().map(move |trial| (schedule, trial)))
        .collect();
    let task = |&(schedule, trial)| Task { trial, schedule, options: options.clone() };
    let tasks: Vec<Task> = trials.iter().map(task).collect();
    let answers: Vec<Vec<Answer>> = take_turns(arguments, &tasks, options.processes, progress)?;
    let machine = answers.iter().flatten().next().map_or_else(Machine::here, |answer| answer.machine.clone());
    let of = |schedule: Schedule, wanted: Trial| {
        let index = trials.iter().position(|&trial| trial == (schedule, wanted));
        index.map_or(&[][..], |index| &answers[index])
    };
    let mut results = Vec::new();
    for &schedule in &options.schedules {
        for &case in &cases {
            if case == Case::MixChange {
                results.extend(mix_change(schedule, of(schedule, Trial::Mixes)));
                continue;
            }
            let before = if case == Case::IdleFirst { Before::Idleness } else { Before::OtherTraffic };
            for &tees in &options.tees {
                let [fresh, used] = [Before::Nothing, before].map(|before| of(schedule, Trial::Tees(tees, before)));
                results.extend(compare(case, schedule, tees, fresh, used));
            }
        }
    }
    let mut report = Report::new("history", machine, options.processes, results);
    report.notes = vec![verdict(&report.results)];
    Ok(report)
}

/// What is to be measured for some cases, what is compared side by side.
fn trials(cases: &[Case], tees: &[usize]) -> Vec<Trial> {
    let mut befores = vec![Before::Nothing];
    befores.extend(cases.contains(&Case::IdleFirst).then_some(Before::Idleness));
    befores.extend(cases.contains(&Case::OtherFirst).then_some(Before::OtherTraffic));
    let mut trials = Vec::new();
    if befores.len() > 1 {
        trials.extend(tees.iter().flat_map(|&tees| befores.iter().map(move |&before| Trial::Tees(tees, before))));
    }
    trials.extend(cases.contains(&Case::MixChange).then_some(Trial::Mixes));
    trials
}

/// A network of tees with a history against one without: the ratio in each round of processes.
fn compare(case: Case, schedule: Schedule, tees: usize, fresh: &[Answer], used: &[Answer]) -> Option<Measurement> {
    let ratios: Vec<f64> = used.iter().zip(fresh).map(|(used, fresh)| used.cost.steps / fresh.cost.steps).collect();
    let mut labels = labels(schedule, fresh.iter().map(|fresh| fresh.cost.clocks));
    labels.push(("tees", tees.into()));
    Measurement::of(case.name(), "ratio", &ratios, labels)
}

/// A mix after another mix against the same mix before, in each process.
fn mix_change(schedule: Schedule, answers: &[Answer]) -> Option<Measurement> {
    let ratios: Vec<f64> = answers.iter().filter_map(|answer| Some(answer.cost.steps / answer.before?.steps)).collect();
    let labels = labels(schedule, answers.iter().filter_map(|answer| Some(answer.before?.clocks)));
    Measurement::of(Case::MixChange.name(), "ratio", &ratios, labels)
}

/// The schedule, and what a packet costs without a history, to a tenth of a clock.
fn labels(schedule: Schedule, fresh: impl Iterator<Item = f64>) -> Vec<(&'static str, Value)> {
    let clocks = middle(&fresh.collect::<Vec<f64>>());
    vec![("schedule", json!(schedule)), ("clocks", json!((clocks * 10.0).round() / 10.0))]
}

/// What the ratios say.
fn verdict(results: &[Measurement]) -> String {
    let outside: Vec<String> = results
        .iter()
        .filter(|result| !BOUNDS.contains(&result.low) || !BOUNDS.contains(&result.high))
        .map(|result| {
            let tees = result.labels.get("tees").map_or(String::new(), |tees| format!(" with {tees} tees"));
            let schedule = result.labels["schedule"].as_str().unwrap_or_default();
            let Measurement { case, low, high, .. } = result;
            format!("{case}{tees} under {schedule} ({low:.3} – {high:.3})")
        })
        .collect();
    let bounds = format!("{}–{}", BOUNDS.start(), BOUNDS.end());
    match outside.as_slice() {
        [] => format!("every interval lies within {bounds}"),
        [one] => format!("one of {} intervals does not lie within {bounds}: {one}", results.len()),
        many => {
            format!("{} of {} intervals do not lie within {bounds}: {}", many.len(), results.len(), many.join(", "))
        }
    }
}

/// Does one task, in a process that has done nothing else.
pub fn measure(task: Task) -> Answer {
    let Task { trial, schedule, options } = task;
    settle(options.cpu);
    let (cost, before) = match trial {
        Trial::Tees(tees, before) => (measure_tees(tees, before, schedule, &options), None),
        Trial::Mixes => {
            let (before, after) = measure_mixes(schedule, &options);
            (after, Some(before))
        }
    };
    Answer { cost, before, machine: Machine::here() }
}

/// What a packet through some tees costs, with something before.
fn measure_tees(tees: usize, before: Before, schedule: Schedule, options: &Options) -> Cost {
    let (source, switch) = source(vec![vec![vec![(60, BURST)]], other_traffic()]);
    let mut bench = Bench::new(chain_of_tees(source, tees), schedule, switch, tees + 1);
    match before {
        Before::Nothing => {}
        Before::Idleness => bench.idle(options.idle_seconds),
        Before::OtherTraffic => bench.pass(traffic::OTHER, options.rounds),
    }
    bench.pass(traffic::USUAL, warm_up(options));
    bench.measure(traffic::USUAL, options.rounds)
}

/// What a packet of one mix costs, before and after the other.
fn measure_mixes(schedule: Schedule, options: &Options) -> (Cost, Cost) {
    let (source, switch) = source(mixes());
    let mut bench = Bench::new(mixed(source), schedule, switch, 8);
    let rounds = options.rounds / 2;
    bench.pass(traffic::USUAL, warm_up(options));
    let before = bench.measure(traffic::USUAL, rounds);
    bench.pass(traffic::OTHER, rounds);
    bench.pass(traffic::USUAL, warm_up(options));
    (before, bench.measure(traffic::USUAL, rounds))
}

/// Rounds of the same traffic before the first that counts.
fn warm_up(options: &Options) -> usize {
    options.rounds / 8
}

/// A network whose source is switched while it runs.
struct Bench {
    engine: Engine,
    switch: Arc<AtomicU32>,
    /// Breaths of a round.
    breaths: u64,
}

impl Bench {
    /// A network in which each packet is handled about so many times.
    fn new(network: Network, schedule: Schedule, switch: Arc<AtomicU32>, visits: usize) -> Bench {
        let settings = Settings { burst: BURST, schedule, ..Settings::default() };
        let engine = Engine::new(network, settings, None).unwrap_or_else(|error| fail(&error));
        Bench { engine, switch, breaths: (ROUND / (BURST * visits)).max(1) as u64 }
    }

    /// Polls without traffic.
    fn idle(&mut self, seconds: f64) {
        self.switch.store(traffic::NONE, Relaxed);
        let end = clock::now() + (seconds * 1e9) as u64;
        while clock::now() < end {
            self.engine.breathe_times(self.breaths);
        }
    }

    /// Lets traffic through for some rounds.
    fn pass(&mut self, traffic: u32, rounds: usize) {
        self.switch.store(traffic, Relaxed);
        self.engine.breathe_times(self.breaths * rounds as u64);
    }

    /// What a packet costs, of traffic that brings a burst in every breath.
    fn measure(&mut self, traffic: u32, rounds: usize) -> Cost {
        self.switch.store(traffic, Relaxed);
        let Bench { engine, breaths, .. } = self;
        let packets = (*breaths * BURST as u64) as f64;
        let (mut in_clocks, mut in_steps) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            let round = clocks(1, || {
                engine.breathe_times(*breaths);
            });
            in_clocks.push(round / packets);
            in_steps.push(round / packets / yardstick());
        }
        Cost { clocks: undisturbed(&in_clocks), steps: undisturbed(&in_steps) }
    }
}

/// Positions of the switch.
mod traffic {
    pub(super) const NONE: u32 = 0;
    pub(super) const USUAL: u32 = 1;
    pub(super) const OTHER: u32 = 2;
}

/// What a source brings in a breath: runs of so many packets of one length.
type Breath = Vec<(usize, usize)>;

/// What it brings in one breath after the other, over and over.
type Traffic = Vec<Breath>;

/// A source whose traffic is switched from outside while it runs.
struct Switched {
    switch: Arc<AtomicU32>,
    /// Each traffic with its packets, from switch position 1 on.
    traffics: Vec<Vec<Vec<(Template, usize)>>>,
    /// Breaths so far.
    turn: usize,
}

/// A switched source and its switch, which is off.
fn source(traffics: Vec<Traffic>) -> (Switched, Arc<AtomicU32>) {
    let made = |breath: Breath| breath.into_iter().map(|(length, count)| (template(length), count)).collect();
    let traffics = traffics.into_iter().map(|traffic| traffic.into_iter().map(made).collect()).collect();
    let switch = Arc::new(AtomicU32::new(traffic::NONE));
    (Switched { switch: Arc::clone(&switch), traffics, turn: 0 }, switch)
}

/// A frame of a length, which also says from whom to whom it goes.
fn template(length: usize) -> Template {
    let mut frame = vec![0x5a; length];
    let addresses = [&[2, 0, 0, 0], &(length as u16).to_be_bytes()[..], &[2, 0, 0, 0, 0, 1], &[0x88, 0xb5]].concat();
    frame[..addresses.len()].copy_from_slice(&addresses);
    Template::new(&frame).unwrap_or_else(|| fail(&"no template"))
}

impl App for Switched {
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

/// Two mixes of small and large frames, which go different ways through [`mixed`].
fn mixes() -> Vec<Traffic> {
    let usual = [(60, 8), (1_514, 4), (64, 4)].repeat(BURST / 16);
    let other = (0..40).map(|turn| vec![(590, 1 + turn % 7), (1_514, 20 + 2 * turn), (60, 16), (300, turn)]);
    vec![vec![usual], other.collect()]
}

fn a_tee() -> tee::Tee {
    configured(tee::Config::default())
}

/// Each tee gives copies of its packets to the next tee, and the packets to a sink; the last one feeds two sinks.
fn chain_of_tees(source: Switched, tees: usize) -> Network {
    let network = Network::new().app("source", source).app("end", sink::Sink);
    let network = linked(network, ["source.output -> tee0.input"]);
    (0..tees).fold(network, |network, tee| {
        let next = if tee + 1 < tees { format!("tee{}", tee + 1) } else { "end".to_owned() };
        let network = network.app(&format!("tee{tee}"), a_tee()).app(&format!("sink{tee}"), sink::Sink);
        linked(network, [format!("tee{tee}.on -> {next}.input"), format!("tee{tee}.off -> sink{tee}.input")])
    })
}

/// Frames are counted, shared out by their addresses, and then copied and cut on one way, thinned out on the other.
fn mixed(source: Switched) -> Network {
    let network = Network::new()
        .app("source", source)
        .app("counter", configured::<counter::Counter>(counter::Config::default()))
        .app("split", configured::<split::Split>(split::Config { by: split::By::Flow }))
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
            "counter.output -> split.input",
            "split.one -> tee.input",
            "split.other -> sample.input",
            "tee.whole -> whole.input",
            "tee.cut -> truncate.input",
            "truncate.output -> cut.input",
            "sample.output -> few.input",
        ],
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use bellows_engine::Snapshot;

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
            assert!(sent(&snapshot, "split.one").0 > 200 && sent(&snapshot, "split.other").0 > 200, "{snapshot:#?}");
            assert!(position == traffic::OTHER || sent(&snapshot, "source.output").0 == 40 * BURST as u64);
        }
    }

    #[test]
    fn a_case_measures_only_what_it_compares() {
        use Before::{Idleness, Nothing, OtherTraffic};
        let tees = |before| Trial::Tees(3, before);
        assert_eq!(trials(&[Case::MixChange], &[3]), [Trial::Mixes]);
        assert_eq!(trials(&[Case::OtherFirst], &[3]), [tees(Nothing), tees(OtherTraffic)]);
        assert_eq!(trials(&Case::ALL, &[3]), [tees(Nothing), tees(Idleness), tees(OtherTraffic), Trial::Mixes]);
    }

    #[test]
    fn the_verdict_names_the_intervals_that_are_too_wide() {
        let answer = |clocks: f64| {
            let machine =
                Machine { cpu: String::new(), tsc_hz: 1, memory: String::new(), simd: String::new(), stride: 0 };
            Answer { cost: Cost { clocks, steps: clocks / 2.0 }, before: None, machine }
        };
        let fresh = [10.0, 20.0, 30.0].map(answer);
        let steady = [10.1, 20.0, 29.7].map(answer);
        let slow = [12.0, 20.0, 33.0].map(answer);
        let ratio = |used: &[Answer]| compare(Case::IdleFirst, Schedule::Flat, 8, &fresh, used).unwrap();
        assert_eq!(verdict(&[ratio(&steady)]), "every interval lies within 0.97–1.03");
        assert_eq!(
            verdict(&[ratio(&steady), ratio(&slow)]),
            "one of 2 intervals does not lie within 0.97–1.03: idle-first with 8 tees under flat (1.000 – 1.200)"
        );
        let slow = ratio(&slow);
        assert_eq!((slow.median, slow.labels["clocks"].as_f64()), (1.1, Some(20.0)), "pair by pair");
    }
}
