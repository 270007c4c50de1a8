//! `bench engine`: what the engine costs a packet.
//!
//! Each case runs a network of real apps, counters on, one breath after the other, beside a *reference loop*: the bare
//! work of its apps without an engine. Both are measured in turn in the same process, and each case in several processes.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;

use bellows_apps::{pcap_reader, sink, source, tee};
use bellows_capture::{Interface, LinkType, OutputFormat, Record, Writer, WriterOptions};
use bellows_engine::timeline::clocks_per_event;
use bellows_engine::{App, Engine, Home, Io, Network, Port, Ports, Schedule, Settings};
use bellows_packet::{CAPACITY, Packet, Template, Vector, free_all, pool, push_copies, push_filled};
use bellows_sys::clock;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::networks::{configured, linked, production};
use crate::processes::{fail, settle, take_turns};
use crate::report::{BenchError, Machine, Measurement, Report, chosen};
use crate::stats::median;
use crate::timing::{clocks, middle};

/// Length of the packets.
const SIZE: usize = 60;

/// Apps in the chains.
const CHAIN: usize = 20;

/// What a benchmark run is asked to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Options {
    /// The schedules to measure.
    pub schedules: Vec<Schedule>,
    /// Fresh processes for each case.
    pub processes: usize,
    /// Rounds in each process, of which the median counts.
    pub rounds: usize,
    /// Packets a breath.
    pub burst: usize,
    /// Distance between packet buffers; the pool's default if none is given.
    pub stride: Option<usize>,
    /// The processor to measure on; the last that the process may use if none is given.
    pub cpu: Option<usize>,
    /// Only cases whose name contains this.
    pub filter: String,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            schedules: Schedule::ALL.to_vec(),
            processes: 15,
            rounds: 40,
            burst: 128,
            stride: None,
            cpu: None,
            filter: String::new(),
        }
    }
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Case {
    SourceSink,
    SourceTeeSinks,
    ChainForward,
    ChainLoop,
    InFlight(usize),
    PcapReader,
    Idle,
    Metering,
    Timeline,
    TimelineEvent,
}

impl Case {
    const ALL: [Case; 11] = [
        Case::SourceSink,
        Case::SourceTeeSinks,
        Case::ChainForward,
        Case::ChainLoop,
        Case::InFlight(128),
        Case::InFlight(8_192),
        Case::PcapReader,
        Case::Idle,
        Case::Metering,
        Case::Timeline,
        Case::TimelineEvent,
    ];

    fn name(self) -> &'static str {
        match self {
            Case::SourceSink => "source-sink",
            Case::SourceTeeSinks => "source-tee-sinks",
            Case::ChainForward | Case::ChainLoop => "chain",
            Case::InFlight(_) => "in-flight",
            Case::PcapReader => "pcap-reader",
            Case::Idle => "idle",
            Case::Metering => "metering",
            Case::Timeline => "timeline",
            Case::TimelineEvent => "timeline-event",
        }
    }

    fn unit(self) -> &'static str {
        match self {
            Case::PcapReader => "Mpps",
            Case::Idle => "ns/breath",
            Case::Metering | Case::Timeline => "ratio",
            Case::TimelineEvent => "clocks/event",
            _ => "clocks/packet",
        }
    }

    fn labels(self) -> Vec<(&'static str, Value)> {
        match self {
            Case::ChainForward => vec![("apps", CHAIN.into()), ("how", "forward".into())],
            Case::ChainLoop => vec![("apps", CHAIN.into()), ("how", "loop".into())],
            Case::InFlight(packets) => vec![("packets", packets.into())],
            Case::Idle => {
                let network = production();
                vec![("apps", network.apps.len().into()), ("links", network.links.len().into())]
            }
            Case::TimelineEvent => vec![("calls", CALLS.into())],
            Case::SourceSink | Case::SourceTeeSinks | Case::PcapReader | Case::Metering | Case::Timeline => Vec::new(),
        }
    }
}

/// One case for one process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Task {
    case: Case,
    schedule: Schedule,
    options: Options,
    /// The capture that the case reads.
    capture: PathBuf,
}

/// What one process measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Answer {
    value: f64,
    reference: Option<f64>,
    machine: Machine,
}

/// Runs the benchmark. `arguments` make this program call [`measure`] in a fresh process; `progress` is told how many
/// of how many processes are done.
///
/// # Errors
/// See [`BenchError`].
pub fn run(options: &Options, arguments: &[&str], progress: impl FnMut(usize, usize)) -> Result<Report, BenchError> {
    let cases = chosen(Case::ALL, Case::name, &options.filter)?;
    let captured = if cases.contains(&Case::PcapReader) { CAPTURED } else { 0 };
    let capture = Capture::make(captured).map_err(BenchError::Capture)?;
    let cells: Vec<(Case, Schedule)> =
        options.schedules.iter().flat_map(|&schedule| cases.iter().map(move |&case| (case, schedule))).collect();
    let task = |&(case, schedule)| Task { case, schedule, options: options.clone(), capture: capture.path.clone() };
    let tasks: Vec<Task> = cells.iter().map(task).collect();
    let answers: Vec<Vec<Answer>> = take_turns(arguments, &tasks, options.processes, progress)?;
    let machine = answers.iter().flatten().next().map_or_else(Machine::here, |answer| answer.machine.clone());
    let results = cells
        .iter()
        .zip(&answers)
        .filter_map(|(&(case, schedule), answers)| summarise(case, schedule, options, answers))
        .collect();
    Ok(Report::new("engine", machine, options.processes, results))
}

fn summarise(case: Case, schedule: Schedule, options: &Options, answers: &[Answer]) -> Option<Measurement> {
    let values: Vec<f64> = answers.iter().map(|answer| answer.value).collect();
    let references: Vec<f64> = answers.iter().filter_map(|answer| answer.reference).collect();
    let mut labels = case.labels();
    labels.push(("schedule", json!(schedule)));
    if !matches!(case, Case::Idle | Case::TimelineEvent) {
        labels.extend([("size", SIZE.into()), ("burst", options.burst.into())]);
    }
    let reference = median(&references).map(|median| median.value);
    Some(Measurement { reference, ..Measurement::of(case.name(), case.unit(), &values, labels)? })
}

/// Does one task, in a process that has done nothing else.
pub fn measure(task: Task) -> Answer {
    let Task { case, schedule, options, capture } = task;
    if let Some(stride) = options.stride
        && let Err(error) = pool::init(pool::Config { stride, ..pool::Config::default() })
    {
        fail(&error);
    }
    settle(options.cpu);
    let bench = Bench { schedule, burst: options.burst, rounds: options.rounds, capture };
    let (value, reference) = bench.measure(case);
    Answer { value, reference, machine: Machine::here() }
}

struct Bench {
    schedule: Schedule,
    burst: usize,
    rounds: usize,
    capture: PathBuf,
}

/// Breaths of a round in which nothing moves.
const IDLE_BREATHS: u64 = 20_000;

/// Calls in the breaths of which events are written.
const CALLS: u64 = 30;

/// Packets that a round of measuring moves, about.
const ROUND: usize = 400_000;

impl Bench {
    /// The case's figure and that of its reference loop.
    fn measure(&self, case: Case) -> (f64, Option<f64>) {
        let burst = self.burst;
        match case {
            Case::SourceSink => {
                let mut bare = Bare::new(burst);
                self.alternate(burst, self.engine(source_sink()), move || bare.source_sink())
            }
            Case::SourceTeeSinks => {
                let mut bare = Bare::new(burst);
                self.alternate(burst, self.engine(source_tee_sinks()), move || bare.source_tee_sinks())
            }
            Case::ChainForward => {
                let mut bare = Bare::new(burst);
                let long = self.engine(chain(|network, name| network.app(name, Forward)));
                self.difference(long, move || bare.chain_forward())
            }
            Case::ChainLoop => {
                let mut bare = Bare::new(burst);
                let long = self.engine(chain(|network, name| network.app(name, Loop)));
                self.difference(long, move || bare.chain_loop())
            }
            Case::InFlight(packets) => {
                let mut engine = self.engine(in_flight(packets));
                let mut bare = BareInFlight::new(burst, packets);
                for _ in 0..2 * packets.div_ceil(burst) {
                    engine.breathe();
                }
                self.alternate(burst, engine, move || bare.turn())
            }
            Case::PcapReader => (self.read_capture(), None),
            Case::Idle => (self.idle(), None),
            Case::Metering => (self.overhead((true, true), (false, true)), None),
            Case::Timeline => (self.overhead((true, true), (true, false)), None),
            Case::TimelineEvent => (self.event(), None),
        }
    }

    fn engine(&self, network: Network) -> Engine {
        let settings = Settings { burst: self.burst, schedule: self.schedule, ..Settings::default() };
        Engine::new(network, settings, None).unwrap_or_else(|error| fail(&error))
    }

    /// Clocks a packet of the engine's breaths and of the reference's, measured in turn.
    fn alternate(&self, packets: usize, mut engine: Engine, mut reference: impl FnMut()) -> (f64, Option<f64>) {
        let turns = ROUND.div_ceil(packets);
        let mut rounds = (Vec::new(), Vec::new());
        for _ in 0..self.rounds {
            rounds.0.push(
                clocks(turns, || {
                    engine.breathe();
                }) / packets as f64,
            );
            rounds.1.push(clocks(turns, &mut reference) / packets as f64);
        }
        (middle(&rounds.0), Some(middle(&rounds.1)))
    }

    /// How much more a packet costs from source to sink in one way than in another, each with or without instrumented
    /// breaths, and with or without a folder, which is where a timeline is written: measured in turn.
    fn overhead(&self, one: (bool, bool), other: (bool, bool)) -> f64 {
        let mut engines = [one, other].map(|(metering, has_home)| {
            let settings = Settings { burst: self.burst, schedule: self.schedule, metering, ..Settings::default() };
            let home = has_home.then(|| Arc::new(home(&format!("{metering}"))));
            Engine::new(source_sink(), settings, home).unwrap_or_else(|error| fail(&error))
        });
        let turns = ROUND.div_ceil(self.burst);
        let rounds = (0..2 * self.rounds).map(|round| {
            let [one, other] = &mut engines;
            let turn = |engine: &mut Engine| {
                clocks(1, || {
                    engine.breathe_times(turns as u64);
                })
            };
            // Whatever comes first in a round has what the other left in the caches.
            let (first, second) = if round % 2 == 0 { (one, other) } else { (other, one) };
            let (first, second) = (turn(first), turn(second));
            if round % 2 == 0 { first / second } else { second / first }
        });
        middle(&rounds.collect::<Vec<f64>>())
    }

    /// Clocks for an event of the timeline, beside reading the clock.
    fn event(&self) -> f64 {
        let home = home("events");
        let round = |_| clocks_per_event(&home, 20_000, CALLS).unwrap_or_else(|error| fail(&error));
        middle(&(0..self.rounds).map(round).collect::<Vec<f64>>())
    }

    /// Clocks a packet for each further app: a long chain less the short one, measured in turn. The reference is the work
    /// of one app without an engine.
    fn difference(&self, mut long: Engine, mut reference: impl FnMut()) -> (f64, Option<f64>) {
        let mut short = self.engine(source_sink());
        let turns = (ROUND / 4).div_ceil(self.burst);
        let mut rounds = (Vec::new(), Vec::new());
        for _ in 0..self.rounds {
            let without = clocks(turns, || {
                short.breathe();
            });
            let with = clocks(turns, || {
                long.breathe();
            });
            rounds.0.push((with - without) / (CHAIN * self.burst) as f64);
            rounds.1.push(clocks(turns, &mut reference) / (CHAIN * self.burst) as f64);
        }
        (middle(&rounds.0), Some(middle(&rounds.1)))
    }

    /// Nanoseconds that a breath takes in which nothing moves.
    fn idle(&self) -> f64 {
        let mut engine = self.engine(production());
        // The sources send one packet each at the start.
        while engine.breathe() {}
        let rounds: Vec<f64> = (0..self.rounds)
            .map(|_| {
                let start = clock::ticks();
                let busy = engine.breathe_times(IDLE_BREATHS);
                let nanos = clock::ticks_to_nanos(clock::ticks() - start);
                if busy > 0 {
                    fail(&format!("packets moved in {busy} breaths of a network that is to be idle"));
                }
                nanos as f64 / IDLE_BREATHS as f64
            })
            .collect();
        middle(&rounds)
    }

    /// Million packets a second from a capture in the page cache into the network.
    fn read_capture(&self) -> f64 {
        let rates: Vec<f64> = (0..self.rounds.min(5))
            .map(|_| {
                let config =
                    serde_json::from_value(json!({ "path": self.capture })).unwrap_or_else(|error| fail(&error));
                let reader = configured::<pcap_reader::PcapReader>(config);
                let network = Network::new().app("reader", reader).app("sink", sink::Sink);
                let mut engine = self.engine(linked(network, ["reader.output -> sink.input"]));
                let start = clock::ticks();
                let end = engine.run();
                let nanos = clock::ticks_to_nanos(clock::ticks() - start);
                let packets = engine.finish(end).snapshot.links[0].packets;
                if packets != CAPTURED as u64 {
                    fail(&format!("{packets} packets came out of a capture of {CAPTURED}"));
                }
                packets as f64 * 1e3 / nanos as f64
            })
            .collect();
        middle(&rates)
    }
}

/// A folder for an engine of this process.
fn home(name: &str) -> Home {
    Home::claim(&format!("bench-{}-{name}", std::process::id())).unwrap_or_else(|error| fail(&error))
}

fn source() -> source::Source {
    configured(source::Config { size: Some(SIZE as u32), ..source::Config::default() })
}

fn source_sink() -> Network {
    linked(Network::new().app("source", source()).app("sink", sink::Sink), ["source.output -> sink.input"])
}

fn source_tee_sinks() -> Network {
    let network = Network::new()
        .app("source", source())
        .app("tee", configured::<tee::Tee>(tee::Config::default()))
        .app("one", sink::Sink)
        .app("other", sink::Sink);
    linked(network, ["source.output -> tee.input", "tee.a -> one.input", "tee.b -> other.input"])
}

fn chain(add: impl Fn(Network, &str) -> Network) -> Network {
    let mut network = Network::new().app("source", source()).app("sink", sink::Sink);
    let mut from = "source".to_owned();
    for index in 0..CHAIN {
        let name = format!("app{index}");
        network = linked(add(network, &name), [format!("{from}.output -> {name}.input")]);
        from = name;
    }
    linked(network, [format!("{from}.output -> sink.input")])
}

fn in_flight(packets: usize) -> Network {
    let reservoir = Reservoir { packets, held: VecDeque::new(), spare: Vec::new() };
    let network = Network::new().app("source", source()).app("reservoir", reservoir).app("sink", sink::Sink);
    linked(network, ["source.output -> reservoir.input", "reservoir.output -> sink.input"])
}

const INPUT: Ports = Ports::Named(&[Port::required("input", "packets")]);
const OUTPUT: Ports = Ports::Named(&[Port::required("output", "the same packets")]);

/// Hands its vector on.
struct Forward;

impl App for Forward {
    const INPUTS: Ports = INPUT;
    const OUTPUTS: Ports = OUTPUT;

    fn push(&mut self, io: &Io<Self>) {
        io.forward(0, 0);
    }
}

/// Hands packet after packet on.
struct Loop;

impl App for Loop {
    const INPUTS: Ports = INPUT;
    const OUTPUTS: Ports = OUTPUT;

    fn push(&mut self, io: &Io<Self>) {
        let mut output = io.output(0);
        for packet in &mut io.input(0) {
            output.push(packet);
        }
    }
}

/// Keeps so many packets in flight: a vector in, the oldest vector out.
struct Reservoir {
    packets: usize,
    held: VecDeque<Vector>,
    spare: Vec<Vector>,
}

impl App for Reservoir {
    const INPUTS: Ports = INPUT;
    const OUTPUTS: Ports = OUTPUT;

    fn push(&mut self, io: &Io<Self>) {
        let mut vector = self.spare.pop().unwrap_or_default();
        let now = io.input(0).take_into(&mut vector);
        self.held.push_back(vector);
        if self.held.len() * now > self.packets
            && let Some(mut oldest) = self.held.pop_front()
        {
            io.output(0).send_from(&mut oldest);
            self.spare.push(oldest);
        }
    }
}

/// The work of the apps without an engine.
struct Bare {
    burst: usize,
    template: Template,
    vectors: [Vector; 2],
}

impl Bare {
    fn new(burst: usize) -> Bare {
        Bare { burst, template: template(), vectors: [Vector::new(), Vector::new()] }
    }

    fn source_sink(&mut self) {
        let [vector, _] = &mut self.vectors;
        push_filled(vector, self.burst, &self.template);
        free_all(vector);
    }

    fn source_tee_sinks(&mut self) {
        let [vector, copies] = &mut self.vectors;
        push_filled(vector, self.burst, &self.template);
        push_copies(copies, vector.as_slice());
        free_all(vector);
        free_all(copies);
    }

    /// A chain of apps that each hand the vector on.
    fn chain_forward(&mut self) {
        self.refill();
        for _ in 0..CHAIN {
            let [one, other] = &mut self.vectors;
            std::mem::swap(std::hint::black_box(one), std::hint::black_box(other));
        }
    }

    /// A chain of apps that each hand packet after packet on.
    fn chain_loop(&mut self) {
        self.refill();
        for _ in 0..CHAIN {
            // Out of their places and back, as apps take them, so that the loop works in registers.
            let [mut from, mut to] = std::mem::replace(&mut self.vectors, [Vector::none(), Vector::none()]);
            for packet in from.drain(usize::MAX) {
                if let Err(refused) = to.push(packet) {
                    cannot_be(refused);
                }
            }
            self.vectors = std::hint::black_box([to, from]);
        }
    }

    /// The same packets go through chains again and again.
    fn refill(&mut self) {
        if self.vectors.iter().all(Vector::is_empty) {
            push_filled(&mut self.vectors[0], self.burst, &self.template);
        }
    }
}

/// A vector holds what another held.
#[cold]
#[inline(never)]
fn cannot_be(refused: Packet) {
    drop(refused);
}

fn template() -> Template {
    Template::new(&[0x5a; SIZE]).unwrap_or_else(|| fail(&"no template"))
}

/// The work of source and sink with packets in flight, without an engine.
struct BareInFlight {
    burst: usize,
    template: Template,
    vectors: Vec<Vector>,
    next: usize,
}

impl BareInFlight {
    fn new(burst: usize, packets: usize) -> BareInFlight {
        let vectors = (0..packets.div_ceil(burst)).map(|_| Vector::new()).collect();
        let mut bare = BareInFlight { burst, template: template(), vectors, next: 0 };
        (0..bare.vectors.len()).for_each(|_| bare.turn());
        bare
    }

    fn turn(&mut self) {
        let vector = &mut self.vectors[self.next];
        free_all(vector);
        push_filled(vector, self.burst.min(CAPACITY), &self.template);
        self.next = (self.next + 1) % self.vectors.len();
    }
}

/// Packets in the capture that is read.
const CAPTURED: usize = 500_000;

/// A capture file that lives as long as the benchmark.
pub(crate) struct Capture {
    pub(crate) path: PathBuf,
}

impl Capture {
    /// One of so many small packets; no file if there are none.
    pub(crate) fn make(packets: usize) -> Result<Capture, bellows_capture::Error> {
        let path = std::env::temp_dir().join(format!("bellows-bench-{}.pcap", std::process::id()));
        let capture = Capture { path };
        if packets > 0 {
            let options = WriterOptions { format: OutputFormat::PcapMicroseconds, ..WriterOptions::default() };
            let mut writer = Writer::create(&capture.path, options, &[Interface::new(LinkType::ETHERNET)])?;
            for index in 0..packets as u64 {
                let timestamp = index * 1_000;
                writer.write(&Record { data: &[0x5a; SIZE], timestamp, original_length: SIZE as u32, interface: 0 })?;
            }
            writer.finish()?;
        }
        Ok(capture)
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}
