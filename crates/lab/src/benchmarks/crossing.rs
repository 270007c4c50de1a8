//! `bench crossing`: what it costs to pass packets from one worker to another.
//!
//! The reference is a bare ring of the crate `rtrb` between two threads on the same two processors, which moves the same
//! handles 128 at a time: one thread makes the packets of a template, as the source does, the other frees them, so that
//! the buffers return as they do in an engine. Both take turns in one process, a slice of time each; in the ratio of
//! neighbouring slices the changing speed of the machine cancels out.
//!
//! The latency is that of one packet at a time on otherwise idle threads, none of which sleeps: from the moment at which
//! the packet is made until the app behind the crossing has it.

use std::fmt::Write;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use bellows_config::Registry;
use bellows_engine::{App, Engine, Io, Network, Port, Ports, Settings, WorkerSpec};
use bellows_packet::{Packet, Template, Vector, free_all, pool, push_filled};
use bellows_sys::{clock, cpu};
use rtrb::RingBuffer;
use serde::{Deserialize, Serialize};

use crate::audience::Observer;
use crate::bench::{Benchmark, Common, Finished, Lab, Listed, whole};
use crate::processes::{Answers, take_turns};
use crate::report::{BenchError, Measurement, Ratio, Report, chosen};
use crate::timing::median_or_nan;
use crate::workers::{self, fail, settle};

/// Packets in a vector.
const BURST: usize = 128;

/// Vectors that the reference has room for: those of a crossing.
const PLACES: usize = 8;

/// Length of the packets in bytes.
const LENGTH: usize = 60;

/// The time before a slice in which caches and free buffers settle.
const WARM_UP: Duration = Duration::from_millis(10);

/// The time between two packets of the latency.
const INTERVAL_NS: u64 = 20_000;

/// The cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Case {
    Throughput,
    Latency,
}

impl Case {
    const ALL: [Case; 2] = [Case::Throughput, Case::Latency];

    fn name(self) -> &'static str {
        match self {
            Case::Throughput => "throughput",
            Case::Latency => "latency",
        }
    }

    fn unit(self) -> &'static str {
        match self {
            Case::Throughput => "Mpps",
            Case::Latency => "ns",
        }
    }
}

/// Measure the cost of passing packets from one thread to another
///
/// throughput: a source on one thread of an engine and a sink on another, in millions of packets a second. latency: from
/// one to the other, one packet at a time, while neither sleeps. The reference is a bare ring of the crate rtrb between
/// two threads on the same processors, with the same packets and 128 handles at a time.
#[derive(Clone, Debug, PartialEq, clap::Args, Serialize, Deserialize)]
pub struct Arguments {
    #[command(flatten)]
    common: Common,
    /// Only cases whose name contains this
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    case: String,
    /// Fresh processes per figure; at least 6 for a confidence interval
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = whole(1..=1000))]
    processes: usize,
    /// Slices of each kind per process, of which the median counts
    #[arg(long, value_name = "N", default_value_t = 9, value_parser = whole(1..=1000))]
    rounds: usize,
    /// Length of a slice in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 50, value_parser = whole(1..=10_000))]
    slice: usize,
}

impl Benchmark for Arguments {
    fn common(&self) -> Common {
        self.common.clone()
    }

    fn run(&self, lab: &mut Lab<'_>) -> Result<Finished, BenchError> {
        run(self, &lab.worker("crossing"), lab.observer).map(|report| Finished::new(report, text))
    }
}

/// The work of one process.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Task {
    cases: Vec<Case>,
    options: Arguments,
}

/// A figure of one process: that of the engine, that of the bare ring, and the median of the ratios of slices.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Figure {
    case: Case,
    crossing: f64,
    ring: f64,
    ratio: f64,
}

fn run(options: &Arguments, arguments: &[&str], observer: &mut dyn Observer) -> Result<Report, BenchError> {
    let cases = chosen(Case::ALL, Case::name, &options.case)?;
    let tasks = [Task { cases: cases.clone(), options: options.clone() }];
    let Answers { answers, machine, interrupted }: Answers<Vec<Figure>> =
        take_turns(arguments, &tasks, options.processes, observer)?;
    let figures: Vec<Figure> = answers.into_iter().flatten().flatten().collect();
    let row = |case: &Case| {
        let of_case: Vec<&Figure> = figures.iter().filter(|figure| figure.case == *case).collect();
        let of = |figure: fn(&Figure) -> f64| of_case.iter().map(|one| figure(one)).collect::<Vec<f64>>();
        let measured = Measurement::of(case.name(), case.unit(), &of(|one| one.crossing), Vec::new())?;
        let reference = Some(median_or_nan(&of(|one| one.ring)));
        Some(Measurement { reference, of_reference: Ratio::of(&of(|one| one.ratio)), ..measured })
    };
    let results = cases.iter().filter_map(row).collect();
    let mut report = Report::new("crossing", machine, options.processes, results);
    report.interrupted = interrupted;
    Ok(report)
}

fn text(report: &Report) -> String {
    let interval = report.interval();
    let mut text = report.heading();
    let _ =
        writeln!(text, "{:10}  {:>8}  {interval:>19}  {:5}{:>9}{:>29}", "case", "crossing", "unit", "ring", "× ring");
    for result in &report.results {
        let Measurement { case, unit, median, low, high, reference, of_reference, .. } = result;
        let (range, ring) = (format!("{low:.1} – {high:.1}"), reference.unwrap_or(f64::NAN));
        let ratio = of_reference.map_or("–".to_owned(), |ratio| ratio.written());
        let _ = writeln!(text, "{case:10}  {median:>8.1}  {range:>19}  {unit:5}{ring:>9.1}{ratio:>29}");
    }
    let sentences = report.sentences();
    if !sentences.is_empty() {
        let _ = write!(text, "\n{sentences}");
    }
    text
}

/// Does the task, in a fresh process.
fn measure(task: Task) -> Vec<Figure> {
    let Task { cases, options } = task;
    let all = cpu::allowed();
    settle(options.common.cpu);
    let own = cpu::allowed();
    let Some((&one, other)) = own.first().zip(all.into_iter().find(|cpu| !own.contains(cpu))) else {
        fail(&"a crossing takes two processors, and this process may use only one");
    };
    pool::ensure().unwrap_or_else(|error| fail(&error));
    let between = Between { one, other, slice: Duration::from_millis(options.slice as u64) };
    cases.into_iter().map(|case| between.compare(case, options.rounds)).collect()
}

/// The two processors, and the time of a slice.
#[derive(Clone, Copy)]
struct Between {
    one: usize,
    other: usize,
    slice: Duration,
}

impl Between {
    fn compare(self, case: Case, rounds: usize) -> Figure {
        let (mut crossings, mut rings, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        for round in 0..rounds.max(1) {
            let crossing = || match case {
                Case::Throughput => self.crossing_rate(),
                Case::Latency => self.crossing_latency(),
            };
            let ring = || match case {
                Case::Throughput => self.ring_rate(),
                Case::Latency => self.ring_latency(),
            };
            // Each goes first every other time.
            let (one, other) = if round % 2 == 0 {
                let one = crossing();
                (one, ring())
            } else {
                let other = ring();
                (crossing(), other)
            };
            crossings.push(one);
            rings.push(other);
            ratios.push(one / other);
        }
        let [crossing, ring, ratio] = [crossings, rings, ratios].map(|figures| median_or_nan(&figures));
        Figure { case, crossing, ring, ratio }
    }

    /// Runs a network whose second app is on the other processor, and calls `look` meanwhile.
    fn with_engine<T>(self, network: Network, look: impl FnOnce(&bellows_engine::Control) -> T) -> T {
        let mut network = network;
        network.workers.push(WorkerSpec { name: OTHER.to_owned(), cpu: Some(self.other), numa: None });
        let settings = Settings { busywait: true, ..Settings::default() };
        let mut engine = Engine::new(network, settings, None).unwrap_or_else(|error| fail(&error));
        let control = engine.control();
        thread::scope(|scope| {
            let running = scope.spawn(move || {
                pin(self.one);
                let end = engine.run();
                engine.finish(end)
            });
            thread::sleep(WARM_UP);
            let seen = look(&control);
            control.stop();
            let _ = running.join();
            seen
        })
    }

    /// Millions of packets a second from a source to a sink.
    fn crossing_rate(self) -> f64 {
        let network = Network::new().app("source", Source(template())).app("sink", Sink).on_worker(OTHER);
        let network = network.link("source.output -> sink.input").unwrap_or_else(|error| fail(&error));
        self.with_engine(network, |control| {
            let arrived = || {
                let apps = control.snapshot().apps;
                apps.iter().find(|app| app.name == "sink").map_or(0, |app| app.in_packets)
            };
            rate(self.slice, arrived)
        })
    }

    /// Millions of packets a second through a bare ring.
    fn ring_rate(self) -> f64 {
        let (mut producer, mut consumer) = RingBuffer::<Packet>::new(PLACES * BURST);
        let (stop, arrived) = (AtomicBool::new(false), AtomicU64::new(0));
        thread::scope(|scope| {
            scope.spawn(|| {
                pin(self.one);
                let (template, mut vector) = (template(), Vector::new());
                while !stop.load(Relaxed) {
                    let room = BURST - vector.len();
                    push_filled(&mut vector, room, &template);
                    if let Ok(chunk) = producer.write_chunk_uninit(vector.len()) {
                        chunk.fill_from_iter(vector.drain(usize::MAX));
                    }
                }
            });
            scope.spawn(|| {
                pin(self.other);
                let mut vector = Vector::new();
                while !stop.load(Relaxed) {
                    let Ok(chunk) = consumer.read_chunk(BURST) else { continue };
                    for packet in chunk {
                        let _ = vector.push(packet);
                    }
                    arrived.fetch_add(vector.len() as u64, Relaxed);
                    free_all(&mut vector);
                }
            });
            thread::sleep(WARM_UP);
            let rate = rate(self.slice, || arrived.load(Relaxed));
            stop.store(true, Relaxed);
            rate
        })
    }

    /// The median nanoseconds from a worker to the other.
    fn crossing_latency(self) -> f64 {
        let delays = Arc::new(Mutex::new(Vec::new()));
        let network = Network::new().app("clock", Clock { next: 0 });
        let network = network.app("notes", Notes(Arc::clone(&delays))).on_worker(OTHER);
        let network = network.link("clock.output -> notes.input").unwrap_or_else(|error| fail(&error));
        self.with_engine(network, |_| thread::sleep(self.slice));
        let delays = delays.lock().unwrap_or_else(PoisonError::into_inner);
        median_or_nan(&delays)
    }

    /// The median nanoseconds through a bare ring.
    fn ring_latency(self) -> f64 {
        let (mut producer, mut consumer) = RingBuffer::<Packet>::new(PLACES * BURST);
        let stop = AtomicBool::new(false);
        let mut delays = Vec::new();
        thread::scope(|scope| {
            scope.spawn(|| {
                pin(self.one);
                let mut next = 0;
                while !stop.load(Relaxed) {
                    if let Some(packet) = stamped(&mut next) {
                        let _ = producer.push(packet);
                    }
                }
            });
            scope.spawn(|| {
                pin(self.other);
                while !stop.load(Relaxed) {
                    if let Ok(packet) = consumer.pop() {
                        delays.push(delay(&packet));
                    }
                }
            });
            thread::sleep(WARM_UP + self.slice);
            stop.store(true, Relaxed);
        });
        median_or_nan(&delays)
    }
}

/// The name of the second worker.
const OTHER: &str = "other";

fn pin(processor: usize) {
    if let Err(error) = cpu::pin_to(processor) {
        fail(&format!("processor {processor}: {error}"));
    }
}

fn template() -> Template {
    Template::new(&[0; LENGTH]).unwrap_or_else(|| fail(&"a packet of this length fits into a buffer"))
}

/// Millions of packets a second, by a count that grows.
fn rate(slice: Duration, count: impl Fn() -> u64) -> f64 {
    let (start, before) = (Instant::now(), count());
    thread::sleep(slice);
    let packets = count() - before;
    packets as f64 / start.elapsed().as_secs_f64() / 1e6
}

/// A packet with the present time in its data, if it is time for one.
fn stamped(next: &mut u64) -> Option<Packet> {
    let now = clock::now();
    if now < *next {
        return None;
    }
    *next = now + INTERVAL_NS;
    let mut bytes = [0; LENGTH];
    bytes[..8].copy_from_slice(&clock::ticks().to_le_bytes());
    Packet::from_bytes(&bytes)
}

/// The nanoseconds since a packet was made.
fn delay(packet: &Packet) -> f64 {
    let now = clock::ticks();
    let made = packet.bytes().first_chunk().map_or(now, |bytes| u64::from_le_bytes(*bytes));
    now.saturating_sub(made) as f64 * 1e9 / clock::ticks_per_second() as f64
}

/// Makes as many packets as its link has room for.
struct Source(Template);

impl App for Source {
    const OUTPUTS: Ports = Ports::Named(&[Port::required("output", "packets")]);

    fn pull(&mut self, io: &Io<Self>) {
        io.output(0).fill(BURST, &self.0);
    }

    fn is_finished(&self) -> bool {
        false
    }
}

/// Frees all packets.
struct Sink;

impl App for Sink {
    const INPUTS: Ports = Ports::Named(&[Port::required("input", "packets")]);

    fn push(&mut self, io: &Io<Self>) {
        io.input(0).discard();
    }
}

/// Makes a packet with the time now and then.
struct Clock {
    next: u64,
}

impl App for Clock {
    const OUTPUTS: Ports = Ports::Named(&[Port::required("output", "packets with the time")]);

    fn pull(&mut self, io: &Io<Self>) {
        if let Some(packet) = stamped(&mut self.next) {
            io.output(0).push(packet);
        }
    }

    fn is_finished(&self) -> bool {
        false
    }
}

/// Notes how long packets took.
struct Notes(Arc<Mutex<Vec<f64>>>);

impl App for Notes {
    const INPUTS: Ports = Ports::Named(&[Port::required("input", "packets with the time")]);

    fn push(&mut self, io: &Io<Self>) {
        let mut delays = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for packet in &mut io.input(0) {
            delays.push(delay(&packet));
        }
    }
}

impl Listed for Arguments {
    const QUICK: &'static [&'static str] = &["--processes", "1", "--rounds", "1", "--slice", "5"];
    const REFUSED: &'static [(&'static [&'static str], &'static str)] = &[
        (&["--case", "ring"], "no case has `ring` in its name; there are throughput and latency"),
        (&["--cpu", "99999"], "processor 99999"),
    ];

    fn work(_: &Registry) -> Result<(), std::io::Error> {
        workers::answer(measure)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::parsed;

    #[test]
    fn both_ways_are_measured() {
        if cpu::allowed().len() < 2 {
            return;
        }
        let task = Task { cases: Case::ALL.to_vec(), options: parsed(&["--rounds", "1", "--slice", "20"]) };
        let figures = thread::scope(|scope| scope.spawn(|| measure(task)).join().unwrap());
        for Figure { case, crossing, ring, ratio } in figures {
            let most = if case == Case::Throughput { 10_000.0 } else { 1e9 };
            assert!([crossing, ring].iter().all(|figure| (0.1..most).contains(figure)), "{case:?}: {crossing} {ring}");
            assert_eq!(ratio, crossing / ring);
        }
    }
}
