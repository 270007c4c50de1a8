//! `bench engine`: the cost per packet of the engine.
//!
//! Each case runs a network of real apps with counters on, beside a *bare loop*: the work of its apps without an
//! engine, in the same process. The processes of all schedules live at the same time and take turns
//! ([`turns`]), so that schedules can be compared. Each case has several such groups of fresh processes.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;

use bellows_basic::{pcap_reader, sink, source, tee};
use bellows_capture::{Interface, LinkType, OutputFormat, Record, Writer, WriterOptions};
use bellows_engine::{App, Engine, Io, Network, Port, Ports, Schedule, Settings};
use bellows_observe::RuntimeDir;
use bellows_observe::timeline::Timeline;
use bellows_packet::{CAPACITY, Packet, Template, Vector, free_all, pool, push_copies, push_filled};
use bellows_sys::clock;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::bench::{
    Benchmark, Common, Conditions, Figures, Finished, Lab, RefusedOptions, RunBenchmark, RunWorker, whole,
};
use crate::beside::Beside;
use crate::cases::{CaseRow, Cases, LabelKind, label};
use crate::networks::{Folder, configured, linked, production};
use crate::report::{BenchError, Measurement, Ratio, Report, chosen};
use crate::slices::{Sliced, Turn, sliced};
use crate::timing::median_or_nan;
use crate::turns::{self, Match, beside_bare_loop};
use crate::workers::{self, Contender, fail, settle};

/// Length of the packets.
const SIZE: usize = 60;

/// Apps in the chains.
const CHAIN: usize = 20;

/// Measure the engine's cost per packet
///
/// Costs are in clocks of the time-stamp counter. The processes of all schedules live at the same time and take turns
/// of about a millisecond, in several such groups of fresh processes for each case; the figure is the median over them,
/// with the median's 95 percent confidence interval. The reference is the work of the apps without an engine, measured
/// in the same turns. Cases: source-sink and source-tee-sinks; chain (the cost of each additional app that forwards its
/// vector, or loops over its packets); in-flight (source to sink with 128 or 8,192 packets in flight); pcap-reader (a
/// capture of small packets in the page cache, in million packets per second); idle (a breath in which no packet moves,
/// in a network of 30 apps, in nanoseconds); sampling (sampled breaths on against off); timeline (with a timeline
/// against without); timeline-event (writing an event).
#[derive(Clone, Debug, PartialEq, clap::Args, Serialize, Deserialize)]
pub struct Arguments {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    conditions: Conditions,
    #[command(flatten)]
    figures: Figures,
    /// Turns per process, of which the quieter half counts
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = whole(1..=10_000))]
    rounds: usize,
    /// Packets per breath
    #[arg(long, value_name = "PACKETS", default_value_t = 128, value_parser = whole(1..=1024))]
    burst: usize,
    /// Bytes between packet buffers: a multiple of 64 from 2240 to 262144
    #[arg(long, value_name = "BYTES")]
    stride: Option<usize>,
}

/// The cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum EngineCase {
    SourceSink,
    SourceTeeSinks,
    ChainForward,
    ChainLoop,
    InFlight(usize),
    PcapReader,
    Idle,
    Sampling,
    Timeline,
    TimelineEvent,
}

impl EngineCase {
    const ALL: [EngineCase; 11] = [
        EngineCase::SourceSink,
        EngineCase::SourceTeeSinks,
        EngineCase::ChainForward,
        EngineCase::ChainLoop,
        EngineCase::InFlight(128),
        EngineCase::InFlight(8_192),
        EngineCase::PcapReader,
        EngineCase::Idle,
        EngineCase::Sampling,
        EngineCase::Timeline,
        EngineCase::TimelineEvent,
    ];

    fn name(self) -> &'static str {
        match self {
            EngineCase::SourceSink => "source-sink",
            EngineCase::SourceTeeSinks => "source-tee-sinks",
            EngineCase::ChainForward | EngineCase::ChainLoop => "chain",
            EngineCase::InFlight(_) => "in-flight",
            EngineCase::PcapReader => "pcap-reader",
            EngineCase::Idle => "idle",
            EngineCase::Sampling => "sampling",
            EngineCase::Timeline => "timeline",
            EngineCase::TimelineEvent => "timeline-event",
        }
    }

    fn unit(self) -> &'static str {
        match self {
            EngineCase::PcapReader => "Mpps",
            EngineCase::Idle => "ns/breath",
            EngineCase::Sampling | EngineCase::Timeline => "ratio",
            EngineCase::TimelineEvent => "clocks/event",
            _ => "clocks/packet",
        }
    }

    fn labels(self) -> Vec<(&'static str, Value)> {
        match self {
            EngineCase::ChainForward => vec![("apps", CHAIN.into()), ("how", "forward".into())],
            EngineCase::ChainLoop => vec![("apps", CHAIN.into()), ("how", "loop".into())],
            EngineCase::InFlight(packets) => vec![("packets", packets.into())],
            EngineCase::Idle => {
                let network = production();
                vec![("apps", network.apps.len().into()), ("links", network.links.len().into())]
            }
            EngineCase::TimelineEvent => vec![("calls", CALLS.into())],
            EngineCase::SourceSink
            | EngineCase::SourceTeeSinks
            | EngineCase::PcapReader
            | EngineCase::Sampling
            | EngineCase::Timeline => Vec::new(),
        }
    }
}

/// One case for one process.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct EngineTask {
    case: EngineCase,
    schedule: Schedule,
    options: Arguments,
    /// The capture that the case reads.
    capture: PathBuf,
    /// Whether the second of two compared parts is laid out first, because memory placement affects the cost.
    swapped: bool,
}

/// Runs the benchmark. Its workers call [`lay_out`].
fn run(options: &Arguments, lab: &mut Lab<'_>) -> Result<Finished, BenchError> {
    let cases = chosen(EngineCase::ALL, EngineCase::name, &options.figures.case)?;
    let captured = if cases.contains(&EngineCase::PcapReader) { CAPTURED } else { 0 };
    let capture = Capture::make(captured)?;
    let schedules = options.conditions.schedules();
    let sides = cases.len() * schedules.len();
    let mut series = lab.series(options, sides, options.figures.processes);
    let mut notes = Vec::new();
    for &case in &cases {
        let tasks = |number: usize| {
            let of = |&schedule| {
                let (options, capture) = (options.clone(), capture.path.clone());
                EngineTask { case, schedule, options, capture, swapped: number % 2 == 1 }
            };
            schedules.iter().map(of).collect()
        };
        let matches = series.group(&[case.turns(options)], &[], tasks, |matches| {
            let summed_up = |(side, &schedule): (usize, &Schedule)| summarise(case, schedule, side, options, matches);
            schedules.iter().enumerate().filter_map(summed_up).collect()
        })?;
        notes.extend(other_schedules(case, options, &matches));
    }
    Ok(Finished::after_rows(Report { notes, ..series.report() }))
}

fn summarise(
    case: EngineCase,
    schedule: Schedule,
    side: usize,
    options: &Arguments,
    matches: &[Match],
) -> Option<Measurement> {
    let each = |figure| turns::figures(matches, side, figure);
    let values = each(0);
    let mut labels = case.labels();
    labels.push(("schedule", json!(schedule)));
    if !matches!(case, EngineCase::Idle | EngineCase::TimelineEvent) {
        labels.extend([("size", SIZE.into()), ("burst", options.burst.into())]);
    }
    let found = Measurement::compared(case.name(), case.unit(), &values, labels)?;
    Some(beside_bare_loop(found, matches, side, 0, 1))
}

/// The cost of the other schedules over the first one, turn by turn.
fn other_schedules(case: EngineCase, options: &Arguments, matches: &[Match]) -> Option<String> {
    let schedules = options.conditions.schedules();
    let (first, others) = schedules.split_first()?;
    if case.unit() == "ratio" || others.is_empty() {
        return None;
    }
    let text = |(other, schedule): (usize, &Schedule)| {
        let ratios = turns::ratios(matches, (other + 1, 0), (0, 0));
        Some(format!("{schedule} {}", Ratio::of(&ratios)?.written()))
    };
    let texts: Vec<String> = others.iter().enumerate().filter_map(text).collect();
    let labels = match case {
        EngineCase::ChainForward => ", forward".to_owned(),
        EngineCase::ChainLoop => ", loop".to_owned(),
        EngineCase::InFlight(packets) => format!(", {packets} packets"),
        _ => String::new(),
    };
    (!texts.is_empty()).then(|| format!("{}{labels}, over {first}: {}", case.name(), texts.join(", ")))
}

impl EngineCase {
    /// The number of turns of each process. Reading a capture takes longer than an ordinary turn.
    fn turns(self, options: &Arguments) -> usize {
        if self == EngineCase::PcapReader { options.rounds.min(CAPTURE_TURNS) } else { options.rounds }
    }
}

/// The maximum number of turns of the case that reads a capture.
const CAPTURE_TURNS: usize = 5;

/// Lays out a case in a fresh process.
///
/// # Errors
/// None: a failure ends the process.
fn lay_out(task: EngineTask) -> Result<Box<dyn Contender>, String> {
    let EngineTask { case, schedule, options, capture, swapped } = task;
    if let Some(stride) = options.stride
        && let Err(error) = pool::init(pool::Config { stride, ..pool::Config::default() })
    {
        fail(&error);
    }
    settle(options.common.cpu);
    Ok(EngineBench { schedule, burst: options.burst, capture, swapped }.lay_out(case))
}

/// A side whose turn is a closure.
struct FnContender<F>(F);

impl<F: FnMut() -> Turn> Contender for FnContender<F> {
    fn turn(&mut self) -> Turn {
        self.0()
    }
}

fn side_of<F: FnMut() -> Turn + 'static>(turn: F) -> Box<dyn Contender> {
    Box::new(FnContender(turn))
}

struct EngineBench {
    schedule: Schedule,
    burst: usize,
    capture: PathBuf,
    swapped: bool,
}

/// Breaths in a slice of the idle case.
const IDLE_BREATHS: u64 = 1_000;

/// Calls per breath in the case that writes events.
const CALLS: u64 = 30;

/// The approximate number of packets in a slice.
const SLICE: usize = 10_000;

/// Timed slices of each part of a turn, and untimed ones before them to warm the caches.
const SLICES: usize = 16;
const WARM_UP: usize = 4;

/// Warms the caches, then times slices of `calls` calls.
fn part(calls: usize, mut call: impl FnMut()) -> Sliced {
    (0..WARM_UP * calls).for_each(|_| call());
    sliced(SLICES, || (0..calls).for_each(|_| call()))
}

impl EngineBench {
    /// Lays out a case, ready to take turns. Its figures are its own and that of its bare loop, if it has one.
    fn lay_out(&self, case: EngineCase) -> Box<dyn Contender> {
        let burst = self.burst;
        match case {
            EngineCase::SourceSink => {
                let mut bare = BareApps::new(burst);
                self.alternate(burst, self.engine(source_sink()), move || bare.source_sink())
            }
            EngineCase::SourceTeeSinks => {
                let mut bare = BareApps::new(burst);
                self.alternate(burst, self.engine(source_tee_sinks()), move || bare.source_tee_sinks())
            }
            EngineCase::ChainForward => {
                let mut bare = BareApps::new(burst);
                let long = self.engine(chain(|network, name| network.app(name, Forward)));
                self.difference(long, move || bare.chain_forward())
            }
            EngineCase::ChainLoop => {
                let mut bare = BareApps::new(burst);
                let long = self.engine(chain(|network, name| network.app(name, Loop)));
                self.difference(long, move || bare.chain_loop())
            }
            EngineCase::InFlight(packets) => {
                let mut engine = self.engine(in_flight(packets));
                let mut bare = BareInFlight::new(burst, packets);
                for _ in 0..2 * packets.div_ceil(burst) {
                    engine.breathe();
                }
                self.alternate(burst, engine, move || bare.turn())
            }
            EngineCase::PcapReader => self.read_capture(),
            EngineCase::Idle => self.idle(),
            EngineCase::Sampling => self.overhead((true, true), (false, true)),
            EngineCase::Timeline => self.overhead((true, true), (true, false)),
            EngineCase::TimelineEvent => self.event(),
        }
    }

    fn engine(&self, network: Network) -> Engine {
        let settings = Settings { burst: self.burst, schedule: self.schedule, ..Settings::default() };
        Engine::new(network, settings, None).unwrap_or_else(|error| fail(&error))
    }

    /// Clocks per packet of the engine and of the bare loop.
    fn alternate(
        &self,
        packets: usize,
        mut engine: Engine,
        mut reference: impl FnMut() + 'static,
    ) -> Box<dyn Contender> {
        let calls = SLICE.div_ceil(packets);
        let mut is_first = self.swapped;
        side_of(move || {
            // The first part of a turn finds the caches as other processes left them, so the order alternates.
            is_first = !is_first;
            let mut with = || {
                part(calls, || {
                    engine.breathe();
                })
            };
            let mut without = || part(calls, &mut reference);
            let parts = if is_first {
                let first = with();
                [first, without()]
            } else {
                let first = without();
                [with(), first]
            };
            Turn::of(parts.map(|part| part.clocks / (calls * packets) as f64).into(), &parts)
        })
    }

    /// The ratio of the cost from source to sink under two configurations, each with or without sampled breaths and
    /// with or without a runtime directory, to which the timeline is written.
    fn overhead(&self, one: (bool, bool), other: (bool, bool)) -> Box<dyn Contender> {
        let engine = |(sampling, has_runtime_dir): (bool, bool)| {
            let settings = Settings { burst: self.burst, schedule: self.schedule, sampling, ..Settings::default() };
            let runtime_dir = has_runtime_dir.then(|| Arc::new(runtime_dir(&format!("{sampling}"))));
            Engine::new(source_sink(), settings, runtime_dir).unwrap_or_else(|error| fail(&error))
        };
        let mut engines = if self.swapped {
            let second = engine(other);
            [engine(one), second]
        } else {
            [engine(one), engine(other)]
        };
        let breaths = SLICE.div_ceil(self.burst) as u64;
        let mut number = 0;
        side_of(move || {
            // Sampled breaths are random, so a slice must contain many. The two engines alternate slice by slice.
            let mut parts = [Vec::new(), Vec::new()];
            number += 1;
            for slice in 0..2 * OVERHEAD_SLICES {
                let which = (slice + number) % 2;
                let engine = &mut engines[which];
                let part = sliced(1, || {
                    engine.breathe_times(OVERHEAD_BREATHS * breaths);
                });
                if slice >= 2 {
                    parts[which].push(part);
                }
            }
            let [one, other] = parts
                .each_ref()
                .map(|parts| median_or_nan(&parts.iter().map(|part| part.clocks).collect::<Vec<f64>>()));
            Turn::of(vec![one / other], &parts.concat())
        })
    }

    /// Clocks per event of the timeline, without reading the clock.
    fn event(&self) -> Box<dyn Contender> {
        let runtime_dir = runtime_dir("events");
        side_of(move || {
            let mut clocks = f64::NAN;
            let part = sliced(1, || {
                clocks = clocks_per_event(&runtime_dir);
            });
            Turn::of(vec![clocks], &[part])
        })
    }

    /// Clocks per packet for each additional app: a long chain minus a short one. The reference is the work of one app
    /// without an engine.
    fn difference(&self, mut long: Engine, mut reference: impl FnMut() + 'static) -> Box<dyn Contender> {
        let mut short = self.engine(source_sink());
        let calls = (SLICE / 4).div_ceil(self.burst);
        let packets = (calls * CHAIN * self.burst) as f64;
        side_of(move || {
            let without = part(calls, || {
                short.breathe();
            });
            let with = part(calls, || {
                long.breathe();
            });
            let bare = part(calls, &mut reference);
            Turn::of(vec![(with.clocks - without.clocks) / packets, bare.clocks / packets], &[without, with, bare])
        })
    }

    /// Nanoseconds of a breath in which no packet moves.
    fn idle(&self) -> Box<dyn Contender> {
        let mut engine = self.engine(production());
        // The sources send one packet each at the start.
        while engine.breathe() {}
        side_of(move || {
            let mut busy = engine.breathe_times(WARM_UP as u64 * IDLE_BREATHS);
            let time = sliced(SLICES, || busy += engine.breathe_times(IDLE_BREATHS));
            if busy > 0 {
                fail(&format!("packets moved in {busy} breaths of a network that should be idle"));
            }
            let each = 1e9 / clock::ticks_per_second() as f64 / IDLE_BREATHS as f64;
            Turn::of(vec![time.clocks * each], &[time])
        })
    }

    /// Million packets per second from a capture in the page cache.
    fn read_capture(&self) -> Box<dyn Contender> {
        let EngineBench { schedule, burst, capture, .. } = self;
        let (schedule, burst, capture) = (*schedule, *burst, capture.clone());
        side_of(move || {
            let config = serde_json::from_value(json!({ "path": capture })).unwrap_or_else(|error| fail(&error));
            let reader = configured::<pcap_reader::PcapReader>(config);
            let network = Network::new().app("reader", reader).app("sink", sink::Sink);
            let settings = Settings { burst, schedule, ..Settings::default() };
            let network = linked(network, ["reader.output -> sink.input"]);
            let mut engine = Engine::new(network, settings, None).unwrap_or_else(|error| fail(&error));
            let (mut end, start) = (None, clock::ticks());
            let time = sliced(1, || end = Some(engine.run()));
            let nanos = clock::ticks_to_ns(clock::ticks() - start);
            let packets = end.map_or(0, |end| engine.finish(end).snapshot.links[0].packets);
            if packets != CAPTURED as u64 {
                fail(&format!("the reader sent {packets} packets of a capture of {CAPTURED}"));
            }
            Turn::of(vec![packets as f64 * 1e3 / nanos as f64], &[time])
        })
    }
}

/// Slices of each engine in a turn of [`EngineBench::overhead`], and their length as a multiple of ordinary slices.
const OVERHEAD_SLICES: usize = 6;
const OVERHEAD_BREATHS: u64 = 20;

/// A runtime directory for an engine of this process.
fn runtime_dir(name: &str) -> RuntimeDir {
    RuntimeDir::claim(&format!("bench-{}-{name}", std::process::id())).unwrap_or_else(|error| fail(&error))
}

/// Clocks per event of the timeline, over many breaths.
fn clocks_per_event(runtime_dir: &RuntimeDir) -> f64 {
    const BREATHS: u64 = 20_000;
    let mut timeline = Timeline::create(runtime_dir).unwrap_or_else(|error| fail(&error));
    let start = clock::ticks();
    for breath in 0..BREATHS {
        // A simulated clock, because reading the clock is not part of writing an event.
        let now = start + breath * 1_000;
        for call in 0..CALLS {
            timeline.call(0, 1, now + call, 10, 128);
        }
        timeline.end_breath(now, 1_000, true, 128);
    }
    (clock::ticks() - start) as f64 / (BREATHS * (CALLS + 1)) as f64
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

/// Forwards its vector.
struct Forward;

impl App for Forward {
    const INPUTS: Ports = INPUT;
    const OUTPUTS: Ports = OUTPUT;

    fn push(&mut self, io: &Io<Self>) {
        io.forward(0, 0);
    }
}

/// Forwards packet after packet.
pub(super) struct Loop;

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

/// Keeps `packets` packets in flight: a vector in, the oldest vector out.
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
struct BareApps {
    burst: usize,
    template: Template,
    vectors: [Vector; 2],
}

impl BareApps {
    fn new(burst: usize) -> BareApps {
        BareApps { burst, template: template(), vectors: [Vector::new(), Vector::new()] }
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

    /// A chain of apps that each forward the vector.
    fn chain_forward(&mut self) {
        self.refill();
        for _ in 0..CHAIN {
            let [one, other] = &mut self.vectors;
            std::mem::swap(std::hint::black_box(one), std::hint::black_box(other));
        }
    }

    /// A chain of apps that each forward packet after packet.
    fn chain_loop(&mut self) {
        self.refill();
        for _ in 0..CHAIN {
            // Moves the vectors out and back, as apps do, so that the loop works in registers.
            let [mut from, mut to] = std::mem::replace(&mut self.vectors, [Vector::none(), Vector::none()]);
            for packet in from.drain(usize::MAX) {
                if let Err(refused) = to.push(packet) {
                    unexpected(refused);
                }
            }
            self.vectors = std::hint::black_box([to, from]);
        }
    }

    /// Fills the vectors once; the same packets then pass through the chain again and again.
    fn refill(&mut self) {
        if self.vectors.iter().all(Vector::is_empty) {
            push_filled(&mut self.vectors[0], self.burst, &self.template);
        }
    }
}

/// Never called, because both vectors have the same capacity.
#[cold]
#[inline(never)]
fn unexpected(refused: Packet) {
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

/// Packets in the capture of the case `pcap-reader`.
const CAPTURED: usize = 500_000;

/// A capture file in a folder that is removed on drop.
pub(crate) struct Capture {
    pub(crate) path: PathBuf,
    _folder: Folder,
}

impl Capture {
    /// A capture of `packets` small packets; no file if that is 0.
    pub(crate) fn make(packets: usize) -> Result<Capture, BenchError> {
        let folder = Folder::new("bench")?;
        let capture = Capture { path: folder.0.join("packets.pcap"), _folder: folder };
        if packets > 0 {
            capture.write(packets as u64).map_err(BenchError::Capture)?;
        }
        Ok(capture)
    }

    fn write(&self, packets: u64) -> Result<(), bellows_capture::Error> {
        let options = WriterOptions { format: OutputFormat::PcapMicroseconds, ..WriterOptions::default() };
        let mut writer = Writer::create(&self.path, options, &[Interface::new(LinkType::ETHERNET)])?;
        for index in 0..packets {
            let timestamp = index * 1_000;
            writer.write(&Record { data: &[0x5a; SIZE], timestamp, original_length: SIZE as u32, interface: 0 })?;
        }
        writer.finish().map(drop)
    }
}

/// What its figures are.
const CASES: Cases = Cases {
    text: &[
        "`reference` is the work of the apps without an engine, measured in the same turns. Figures in clocks for each packet \
         have it, and `overhead`.",
    ],
    every: &["schedule"],
    rows: &[
        CaseRow::of(&["source-sink", "source-tee-sinks"], "clocks/packet", "a packet through these apps")
            .with(&["size", "burst"]),
        CaseRow::of(&["chain"], "clocks/packet", "each further app").with(&["apps", "how", "size", "burst"]),
        CaseRow::of(&["in-flight"], "clocks/packet", "from source to sink with that many packets in flight")
            .with(&["packets", "size", "burst"]),
        CaseRow::of(&["pcap-reader"], "Mpps", "a capture in the page cache into the network").with(&["size", "burst"]),
        CaseRow::of(&["idle"], "ns/breath", "an idle breath").with(&["apps", "links"]),
        CaseRow::of(
            &["sampling"],
            "ratio",
            "a packet's cost from source to sink with sampled breaths relative to without",
        )
        .with(&["size", "burst"]),
        CaseRow::of(&["timeline"], "ratio", "the same with a timeline relative to without").with(&["size", "burst"]),
        CaseRow::of(&["timeline-event"], "clocks/event", "writing an event to the timeline").with(&["calls"]),
    ],
    labels: &[
        label("apps", LabelKind::Integer, "apps of the chain, or of the idle network"),
        label("links", LabelKind::Integer, "links of the idle network"),
        label(
            "how",
            LabelKind::Word(&["forward", "loop"]),
            "how the apps pass packets on: `forward` (the vector as a whole) or `loop` (over its packets)",
        ),
        label("packets", LabelKind::Integer, "packets in flight"),
        label("calls", LabelKind::Integer, "calls of apps in a breath"),
    ],
};

impl Benchmark for Arguments {
    const NAME: &'static str = "engine";
    const CASES: Cases = CASES;
    const QUICK: &'static str = "--processes 1 --rounds 1 --schedule flat";
    const REFUSED: &'static [RefusedOptions] = &[
        (&["--case", "nonsense"], "no case has `nonsense` in its name; there are source-sink"),
        (&["--processes", "1", "--stride", "2241"], "the stride 2241 is not a multiple of 64"),
        (&["--schedule", "warp"], "there is no schedule `warp`"),
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

    #[test]
    fn functions_begin_at_cache_lines() {
        let functions = [
            <Forward as App>::push as *const (),
            <Loop as App>::push as *const (),
            <Reservoir as App>::push as *const (),
            BareApps::chain_forward as *const (),
            BareApps::chain_loop as *const (),
        ];
        for function in functions {
            assert_eq!(function as usize % 64, 0, "RUSTFLAGS may have replaced the flags in .cargo/config.toml");
        }
    }
}
