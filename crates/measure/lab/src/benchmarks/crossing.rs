//! `bench crossing`: what it costs to pass packets from one worker to another.
//!
//! The reference is a bare ring of the crate `rtrb` between two threads on the same two processors, which moves the same
//! handles 128 at a time: one thread makes the packets of a template, as the source does, the other frees them, so that
//! the buffers return as they do in an engine. Both take turns in one process, a slice of time each; in the ratio of
//! neighbouring slices the changing speed of the machine cancels out.
//!
//! The latency is that of one packet at a time on otherwise idle threads, none of which sleeps: from the moment at which
//! the packet is made until the app behind the crossing has it. A wake-up is the same with packets that come so rarely
//! that both threads sleep in between: the sender is woken by its timer, the receiver by the sender. Beside it the same
//! ring has an eventfd, on which the receiver sleeps in `poll(2)`.

use std::os::fd::AsFd;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use bellows_engine::{App, Control, Engine, Io, Network, Port, Ports, Settings, WorkerSpec};
use bellows_packet::{Packet, Template, Vector, free_all, pool, push_filled};
use bellows_sys::wake::{WakeEvent, sleep_until_readable};
use bellows_sys::{clock, cpu};
use rtrb::RingBuffer;
use serde::{Deserialize, Serialize};

use crate::bench::{Benchmark, Common, Figures, Finished, Lab, RefusedOptions, RunBenchmark, RunWorker, whole};
use crate::cases::{CaseRow, Cases};
use crate::named::named;
use crate::report::{BenchError, Measurement, Ratio, chosen};
use crate::timing::median_or_nan;
use crate::workers::{self, fail, settle_beside_others};

/// Packets in a vector.
const BURST: usize = 128;

/// Vectors that the reference has room for: those of a crossing.
const PLACES: usize = 8;

/// Length of the packets in bytes.
const LENGTH: usize = 60;

/// The time before a slice in which caches and free buffers settle.
const WARM_UP: Duration = Duration::from_millis(10);

/// The time between two packets of the latency, and of the wake-ups.
const INTERVAL_NS: u64 = 20_000;
const RARE_NS: u64 = 2_000_000;

/// The sleep of a sender between two looks at the clock: that of an engine whose app has no descriptor.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

named! {
    /// The cases.
    enum CrossingCase {
        Throughput = "throughput",
        Latency = "latency",
        WakeUp = "wake-up",
        WakeUpSender = "wake-up-sender",
    }
}

impl CrossingCase {
    fn unit(self) -> &'static str {
        match self {
            CrossingCase::Throughput => "Mpps",
            CrossingCase::Latency | CrossingCase::WakeUp => "ns",
            CrossingCase::WakeUpSender => "clocks/packet",
        }
    }
}

/// Measure the cost of passing packets from one thread to another
///
/// throughput: a source on one thread of an engine and a sink on another, in millions of packets a second. latency: from
/// one to the other, one packet at a time, while neither sleeps. wake-up: the same with a packet every 2 ms or so, while
/// both sleep in between; wake-up-sender: the clocks of the sender's thread from the making of such a packet until it
/// can go on. The reference is a bare ring of the crate rtrb between two threads on the same processors, with the same
/// packets and 128 handles at a time; for wake-ups with an eventfd that the sender writes to and the receiver polls.
#[derive(Clone, Debug, PartialEq, clap::Args, Serialize, Deserialize)]
pub struct Arguments {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    figures: Figures,
    /// Slices of each kind per process, of which the median counts
    #[arg(long, value_name = "N", default_value_t = 9, value_parser = whole(1..=1000))]
    rounds: usize,
    /// Length of a slice in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 50, value_parser = whole(1..=10_000))]
    slice: usize,
}

/// The work of one process.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct CrossingTask {
    cases: Vec<CrossingCase>,
    options: Arguments,
}

/// A figure of one process: that of the engine, that of the bare ring, and the median of the ratios of slices.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct CrossingFigure {
    case: CrossingCase,
    crossing: f64,
    ring: f64,
    ratio: f64,
}

fn run(options: &Arguments, lab: &mut Lab<'_>) -> Result<Finished, BenchError> {
    let cases = chosen(CrossingCase::ALL, CrossingCase::name, &options.figures.case)?;
    let tasks = [CrossingTask { cases: cases.clone(), options: options.clone() }];
    let report = lab.report(options, &tasks, options.figures.processes, |answers: &[Vec<Vec<CrossingFigure>>]| {
        (figures(&cases, &answers.concat().concat()), Vec::new())
    })?;
    Ok(Finished::new(report, |report| report.text_beside("crossing", "ring")))
}

/// The medians over the processes.
fn figures(cases: &[CrossingCase], figures: &[CrossingFigure]) -> Vec<Measurement> {
    let row = |case: &CrossingCase| {
        let of_case: Vec<&CrossingFigure> = figures.iter().filter(|figure| figure.case == *case).collect();
        let of = |figure: fn(&CrossingFigure) -> f64| of_case.iter().map(|one| figure(one)).collect::<Vec<f64>>();
        let measured = Measurement::of(case.name(), case.unit(), &of(|one| one.crossing), Vec::new())?;
        let reference = Some(median_or_nan(&of(|one| one.ring)));
        Some(Measurement { reference, of_reference: Ratio::of(&of(|one| one.ratio)), ..measured })
    };
    cases.iter().filter_map(row).collect()
}

/// Does the task, in a fresh process.
fn measure(task: CrossingTask) -> Vec<CrossingFigure> {
    let CrossingTask { cases, options } = task;
    let others = settle_beside_others(options.common.cpu);
    let (Some(&one), Some(&other)) = (cpu::allowed().first(), others.first()) else {
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
    fn compare(self, case: CrossingCase, rounds: usize) -> CrossingFigure {
        let (mut crossings, mut rings, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        for round in 0..rounds.max(1) {
            let crossing = || match case {
                CrossingCase::Throughput => self.crossing_rate(),
                CrossingCase::Latency => self.crossing_delays(INTERVAL_NS).latency,
                CrossingCase::WakeUp => self.crossing_delays(RARE_NS).latency,
                CrossingCase::WakeUpSender => self.crossing_delays(RARE_NS).sender,
            };
            let ring = || match case {
                CrossingCase::Throughput => self.ring_rate(),
                CrossingCase::Latency => self.ring_latency(),
                CrossingCase::WakeUp => self.ring_wake_up().latency,
                CrossingCase::WakeUpSender => self.ring_wake_up().sender,
            };
            // Each goes first every other time.
            let (one, other) = if round % 2 == 0 {
                let one = passed(crossing);
                (one, passed(ring))
            } else {
                let other = passed(ring);
                (passed(crossing), other)
            };
            crossings.push(one);
            rings.push(other);
            ratios.push(one / other);
        }
        let [crossing, ring, ratio] = [crossings, rings, ratios].map(|figures| median_or_nan(&figures));
        CrossingFigure { case, crossing, ring, ratio }
    }

    /// Runs a network whose second app is on the other processor, and calls `look` meanwhile.
    fn with_engine<T>(self, network: Network, busywait: bool, look: impl FnOnce(&Control) -> T) -> T {
        let mut network = network;
        network.workers.push(WorkerSpec { name: OTHER.to_owned(), cpu: Some(self.other), numa: None });
        let settings = Settings { busywait, ..Settings::default() };
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
        let network =
            Network::new().app("source", CrossingSource(template())).app("sink", CrossingSink).on_worker(OTHER);
        let network = network.link("source.output -> sink.input").unwrap_or_else(|error| fail(&error));
        self.with_engine(network, true, |control| {
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

    /// The figures of packets from a worker to the other, which sleep between rare ones.
    fn crossing_delays(self, interval_ns: u64) -> Delays {
        let [costs, delays] = [(); 2].map(|()| Arc::<Mutex<Vec<f64>>>::default());
        let clock = Clock { next: 0, interval_ns, made: None, costs: Samples::of(&costs) };
        let network = Network::new().app("clock", clock);
        let network = network.app("notes", Notes(Samples::of(&delays))).on_worker(OTHER);
        let network = network.link("clock.output -> notes.input").unwrap_or_else(|error| fail(&error));
        self.with_engine(network, interval_ns < RARE_NS, |_| thread::sleep(self.slice));
        // The apps, which are gone by now, have handed their samples over.
        let [sender, latency] =
            [costs, delays].map(|samples| median_or_nan(&samples.lock().unwrap_or_else(PoisonError::into_inner)));
        Delays { latency, sender }
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
                    if let Some((_, packet)) = stamped(&mut next, INTERVAL_NS) {
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

    /// The figures of a bare ring whose receiver sleeps on an eventfd.
    fn ring_wake_up(self) -> Delays {
        let event = WakeEvent::new().unwrap_or_else(|error| fail(&error));
        let (mut producer, mut consumer) = RingBuffer::<Packet>::new(PLACES * BURST);
        let stop = AtomicBool::new(false);
        let (mut delays, mut costs) = (Vec::new(), Vec::new());
        thread::scope(|scope| {
            scope.spawn(|| {
                pin(self.one);
                let mut next = 0;
                while !stop.load(Relaxed) {
                    if let Some((made, packet)) = stamped(&mut next, RARE_NS) {
                        let _ = producer.push(packet);
                        event.raise();
                        costs.push((clock::ticks() - made) as f64);
                    }
                    thread::sleep(POLL_INTERVAL);
                }
                event.raise();
            });
            scope.spawn(|| {
                pin(self.other);
                while !stop.load(Relaxed) {
                    let _ = sleep_until_readable(&[event.as_fd()], None);
                    event.clear();
                    while let Ok(packet) = consumer.pop() {
                        delays.push(delay(&packet));
                    }
                }
            });
            thread::sleep(WARM_UP + self.slice);
            stop.store(true, Relaxed);
        });
        Delays { latency: median_or_nan(&delays), sender: median_or_nan(&costs) }
    }
}

/// The longest time to wait for packets to pass, if other programs keep the threads from running.
const TIMEOUT: Duration = Duration::from_secs(20);

/// The figure of the first slice in which packets have passed.
fn passed(slice: impl Fn() -> f64) -> f64 {
    let end = Instant::now() + TIMEOUT;
    loop {
        match slice() {
            figure if figure > 0.0 => return figure,
            _ if Instant::now() > end => fail(&"no packet passed from one processor to the other within 20 s"),
            _ => {}
        }
    }
}

/// The medians of packets that are sent one at a time.
struct Delays {
    /// Nanoseconds from the packet's making until the receiver has it.
    latency: f64,
    /// Clocks from the packet's making until the sender's thread goes on.
    sender: f64,
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

/// A packet with the present time in its data, in clocks, and that time, if it is time for one.
fn stamped(next: &mut u64, interval_ns: u64) -> Option<(u64, Packet)> {
    let now = clock::now();
    if now < *next {
        return None;
    }
    *next = now + interval_ns;
    let (made, mut bytes) = (clock::ticks(), [0; LENGTH]);
    bytes[..8].copy_from_slice(&made.to_le_bytes());
    Some((made, Packet::from_bytes(&bytes)?))
}

/// The nanoseconds since a packet was made.
fn delay(packet: &Packet) -> f64 {
    let now = clock::ticks();
    let made = packet.bytes().first_chunk().map_or(now, |bytes| u64::from_le_bytes(*bytes));
    now.saturating_sub(made) as f64 * 1e9 / clock::ticks_per_second() as f64
}

/// Makes as many packets as its link has room for.
struct CrossingSource(Template);

impl App for CrossingSource {
    const OUTPUTS: Ports = Ports::Named(&[Port::required("output", "packets")]);

    fn pull(&mut self, io: &Io<Self>) {
        io.output(0).fill(BURST, &self.0);
    }

    fn is_finished(&self) -> bool {
        false
    }
}

/// Frees all packets.
struct CrossingSink;

impl App for CrossingSink {
    const INPUTS: Ports = Ports::Named(&[Port::required("input", "packets")]);

    fn push(&mut self, io: &Io<Self>) {
        io.input(0).discard();
    }
}

/// The samples of an app, which are handed over when it is dropped.
struct Samples {
    own: Vec<f64>,
    all: Arc<Mutex<Vec<f64>>>,
}

impl Samples {
    fn of(all: &Arc<Mutex<Vec<f64>>>) -> Samples {
        Samples { own: Vec::new(), all: Arc::clone(all) }
    }
}

impl Drop for Samples {
    fn drop(&mut self) {
        self.all.lock().unwrap_or_else(PoisonError::into_inner).append(&mut self.own);
    }
}

/// Makes a packet with the time now and then, and samples the clocks from that time to its next call.
struct Clock {
    next: u64,
    interval_ns: u64,
    /// When the last packet was made, until the next call.
    made: Option<u64>,
    costs: Samples,
}

impl App for Clock {
    const OUTPUTS: Ports = Ports::Named(&[Port::required("output", "packets with the time")]);

    fn pull(&mut self, io: &Io<Self>) {
        if let Some(made) = self.made.take() {
            self.costs.own.push((clock::ticks() - made) as f64);
        }
        if let Some((made, packet)) = stamped(&mut self.next, self.interval_ns) {
            self.made = Some(made);
            io.output(0).push(packet);
        }
    }

    fn is_finished(&self) -> bool {
        false
    }
}

/// Notes how long packets took.
struct Notes(Samples);

impl App for Notes {
    const INPUTS: Ports = Ports::Named(&[Port::required("input", "packets with the time")]);

    fn push(&mut self, io: &Io<Self>) {
        for packet in &mut io.input(0) {
            self.0.own.push(delay(&packet));
        }
    }
}

/// What its figures are.
const CASES: Cases = Cases {
    text: &[
        "`reference` and `of_reference` are those of a bare ring between the same processors; of wake-ups, of one with an \
         eventfd on which the receiver sleeps.",
    ],
    every: &[],
    rows: &[
        CaseRow::of(&["throughput"], "Mpps", "packets from one worker to another"),
        CaseRow::of(&["latency"], "ns", "the time of a packet from one worker to another"),
        CaseRow::of(&["wake-up"], "ns", "the time of a packet to a worker that sleeps"),
        CaseRow::of(
            &["wake-up-sender"],
            "clocks/packet",
            "the sending thread's clocks from the making of such a packet until it goes on: until the sender's next breath, or \
             until `write(2)` to the eventfd has returned",
        ),
    ],
    labels: &[],
};

impl Benchmark for Arguments {
    const NAME: &'static str = "crossing";
    const CASES: Cases = CASES;
    const QUICK: &'static str = "--processes 1 --rounds 1 --slice 5";
    const REFUSED: &'static [RefusedOptions] = &[(
        &["--case", "ring"],
        "no case has `ring` in its name; there are throughput, latency, wake-up and wake-up-sender",
    )];
    const WORK: RunWorker = |_| workers::answer(measure);
    const RUN: RunBenchmark<Self> = run;

    fn common(&self) -> Common {
        self.common.clone()
    }
}

#[cfg(test)]
mod tests {
    use bellows_testkit::skips::skip_here;

    use super::*;
    use crate::bench::parsed;

    #[test]
    fn both_ways_are_measured() {
        if cpu::allowed().len() < 2 {
            return skip_here("both_ways_are_measured", "there is one processor");
        }
        // Long enough for all threads to get their turn on a busy machine.
        let task =
            CrossingTask { cases: CrossingCase::ALL.to_vec(), options: parsed(&["--rounds", "1", "--slice", "300"]) };
        let figures = thread::scope(|scope| scope.spawn(|| measure(task)).join().unwrap());
        for CrossingFigure { case, crossing, ring, ratio } in figures {
            let most = if case == CrossingCase::Throughput { 10_000.0 } else { 1e9 };
            assert!([crossing, ring].iter().all(|figure| (0.01..most).contains(figure)), "{case:?}: {crossing} {ring}");
            assert_eq!(ratio, crossing / ring);
        }
    }
}
