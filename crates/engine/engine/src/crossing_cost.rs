//! What a crossing costs between two processors, measured in about 10 ms, or in some more if they are busy.
//!
//! Two threads take the parts of two workers: each runs on its processor and has its memory on that node. One fills
//! vectors with packets and swaps them into the ring of a crossing. The other takes them out, reads the first byte of
//! each packet and frees all. Before that, each makes, reads and frees packets alone, whose buffers stay in its caches.
//! The difference is what the crossing costs: the swap, and the cache lines of handles, packets and free buffers that
//! come from the other processor.
//!
//! The time in which an end waits for the other one does not count, as it is no part of the clocks of apps either. Each
//! figure is the median of many short batches, so it does not matter if a thread loses its processor now and then.

use std::hint::black_box;
use std::io;
use std::panic::resume_unwind;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::thread;

use bellows_packet::{Template, Vector, free_all, pool, push_filled};
use bellows_sys::clock;

use crate::app::crossing::{Inbound, Outbound, crossing};
use crate::network::WorkerSpec;

/// Length of the packets in bytes.
const LENGTH: usize = 60;

/// Vectors in a batch.
const BATCH: usize = 8;

/// The minimum number of batches for a median, after those in which caches and free buffers settle.
const MIN_BATCHES: usize = 16;

/// Batches that each part has at least: beside a network at full load, the threads seldom run at the same time.
const ENOUGH: usize = 4 * MIN_BATCHES;

/// The minimum time of each part alone, that of the crossing, and that of packets which cross alone.
const ALONE_NS: u64 = 2_000_000;
const CROSSING_NS: u64 = 5_000_000;
const LATENCY_NS: u64 = 1_000_000;

/// The time after which the measurement is given up: other work may keep the threads from running.
const PATIENCE_NS: u64 = 1_000_000_000;

/// Looks at what the other thread does before this one lets others run.
const LOOKS: usize = 10_000;

/// What a crossing costs between two processors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeasuredCrossing {
    /// Clocks for each packet, of the sender.
    pub send: f64,
    /// Clocks for each packet, of the receiver.
    pub receive: f64,
    /// Nanoseconds for a packet alone: half the time until the sender sees that it has been received.
    pub latency_ns: f64,
}

impl MeasuredCrossing {
    /// Packets in each vector, except for the latency: the burst of an engine under load.
    pub const PACKETS_PER_VECTOR: usize = 128;
}

const PACKETS: usize = MeasuredCrossing::PACKETS_PER_VECTOR;

/// Why the cost of a crossing cannot be measured.
#[derive(Debug, thiserror::Error)]
pub enum CrossingCostError {
    /// Both ends are on one processor.
    #[error("both ends are on processor {0}")]
    OneProcessor(usize),
    /// A thread cannot run on its processor.
    #[error("this process cannot run on processor {0}: {1}")]
    Processor(usize, io::Error),
    /// There is no thread or no descriptor.
    #[error("there are no threads or descriptors for a measurement: {0}")]
    Resources(io::Error),
    /// There is no packet pool, and none can be created.
    #[error(transparent)]
    Pool(#[from] pool::Error),
    /// All packets of the pool are in use.
    #[error("the packet pool has no free buffers")]
    NoBuffers,
    /// Other work kept the threads from running, or changed their speed.
    #[error("the processors were too busy with other work")]
    Busy,
}

/// Measures what a crossing costs from one processor to another, on two new threads. Takes packets from the process's
/// pool, which it creates if there is none.
///
/// # Errors
/// See [`CrossingCostError`].
pub fn measure_crossing(sender: usize, receiver: usize) -> Result<MeasuredCrossing, CrossingCostError> {
    if sender == receiver {
        return Err(CrossingCostError::OneProcessor(sender));
    }
    clock::calibrate();
    pool::ensure()?;
    let [from, to] = [sender, receiver].map(|cpu| WorkerSpec { cpu: Some(cpu), ..WorkerSpec::default() });
    let (outbound, inbound) = crossing(0, [from.node(), to.node()]).map_err(CrossingCostError::Resources)?;
    let meeting = Meeting::new();
    thread::scope(|scope| -> Result<MeasuredCrossing, CrossingCostError> {
        let work = || take_part(&from, &meeting, || send(outbound, &meeting));
        let sending = thread::Builder::new().name("crossing, from".to_owned()).spawn_scoped(scope, work);
        let sending = sending.map_err(CrossingCostError::Resources)?;
        let work = || take_part(&to, &meeting, || receive(inbound, &meeting));
        let receiving = thread::Builder::new().name("crossing, to".to_owned()).spawn_scoped(scope, work);
        let receiving = receiving.map_err(|error| {
            meeting.has_failed.store(true, Relaxed);
            CrossingCostError::Resources(error)
        })?;
        let sent = sending.join().unwrap_or_else(|panic| resume_unwind(panic));
        let received = receiving.join().unwrap_or_else(|panic| resume_unwind(panic));
        match (sent, received) {
            (Ok((send, latency_ns)), Ok(receive)) => Ok(MeasuredCrossing { send, receive, latency_ns }),
            // An end that has only waited for the other one does not know why.
            (Err(CrossingCostError::Busy), Err(error)) | (Err(error), _) | (_, Err(error)) => Err(error),
        }
    })
}

/// Where the two threads wait for each other.
struct Meeting {
    /// How often either has come.
    arrived: AtomicU32,
    /// The number of stages in which the sender has sent everything.
    sent: AtomicU32,
    /// Whether one of them has given up.
    has_failed: AtomicBool,
    /// When both give up, in nanoseconds of the clock.
    deadline: u64,
}

impl Meeting {
    fn new() -> Meeting {
        Meeting {
            arrived: AtomicU32::new(0),
            sent: AtomicU32::new(0),
            has_failed: AtomicBool::new(false),
            deadline: clock::now() + PATIENCE_NS,
        }
    }

    /// A part of the measurement that takes so long at least, from now on.
    fn part(&self, least_ns: u64) -> MeasuredPart {
        MeasuredPart { end: clock::now() + least_ns, deadline: self.deadline }
    }

    /// Waits until something has happened. Returns the clocks of the wait.
    #[inline]
    fn wait(&self, mut has_happened: impl FnMut() -> bool) -> Result<u64, CrossingCostError> {
        let start = clock::ticks();
        loop {
            for _ in 0..LOOKS {
                if has_happened() {
                    return Ok(clock::ticks().saturating_sub(start));
                }
            }
            if self.has_failed.load(Relaxed) || clock::now() > self.deadline {
                return Err(CrossingCostError::Busy);
            }
            // Other work may wait for this processor, such as a network's.
            thread::yield_now();
        }
    }

    /// Waits until the other thread has come here as often.
    fn meet(&self) -> Result<(), CrossingCostError> {
        let before = self.arrived.fetch_add(1, AcqRel);
        let both = (before / 2 + 1) * 2;
        self.wait(|| self.arrived.load(Acquire) >= both)?;
        Ok(())
    }
}

/// A part of the measurement: when it may end, and when it is given up, in nanoseconds of the clock.
struct MeasuredPart {
    end: u64,
    deadline: u64,
}

impl MeasuredPart {
    /// Whether the part needs more than so many batches.
    fn goes_on(&self, batches: usize) -> Result<bool, CrossingCostError> {
        let now = clock::now();
        match now < self.end || batches < ENOUGH {
            true if now > self.deadline => Err(CrossingCostError::Busy),
            goes_on => Ok(goes_on),
        }
    }
}

/// Does the part of a worker's thread. If it fails, the other thread learns of it.
fn take_part<T>(
    worker: &WorkerSpec,
    meeting: &Meeting,
    part: impl FnOnce() -> Result<T, CrossingCostError>,
) -> Result<T, CrossingCostError> {
    let processor = worker.cpu.unwrap_or_default();
    let settled = worker.settle().map_err(|error| CrossingCostError::Processor(processor, error));
    let done = settled.and_then(|()| part());
    if done.is_err() {
        meeting.has_failed.store(true, Relaxed);
    }
    done
}

/// The sender's part. Returns the clocks that the crossing adds to each packet, and the latency in nanoseconds.
fn send(outbound: Outbound, meeting: &Meeting) -> Result<(f64, f64), CrossingCostError> {
    let (mut outbound, template, mut vector) = (outbound, template(), Vector::new());
    meeting.meet()?;
    let [made_alone, _] = alone(&mut vector, &template, meeting)?;
    meeting.meet()?;
    let mut batches = Vec::new();
    let part = meeting.part(CROSSING_NS);
    while part.goes_on(batches.len())? {
        let (start, mut waited) = (clock::ticks(), 0);
        for _ in 0..BATCH {
            fill(&mut vector, PACKETS, &template)?;
            if !outbound.has_room() {
                waited += meeting.wait(|| outbound.has_room())?;
            }
            outbound.exchange(&mut vector);
        }
        batches.push(per_packet(clock::ticks().saturating_sub(start).saturating_sub(waited)));
    }
    meeting.sent.fetch_add(1, Release);
    let added = median(batches)? - made_alone;
    if added <= 0.0 {
        // Nothing is cheaper with a crossing: the processor's speed has changed.
        return Err(CrossingCostError::Busy);
    }
    meeting.meet()?;
    let mut rounds = Vec::new();
    let part = meeting.part(LATENCY_NS);
    while part.goes_on(rounds.len())? {
        fill(&mut vector, 1, &template)?;
        let (before, start) = (outbound.received(), clock::ticks());
        outbound.exchange(&mut vector);
        meeting.wait(|| outbound.received() != before)?;
        rounds.push(clock::ticks().saturating_sub(start) as f64);
    }
    meeting.sent.fetch_add(1, Release);
    Ok((added, median(rounds)? / 2.0 * 1e9 / clock::ticks_per_second() as f64))
}

/// The receiver's part. Returns the clocks that the crossing adds to each packet.
fn receive(inbound: Inbound, meeting: &Meeting) -> Result<f64, CrossingCostError> {
    let (mut inbound, template, mut vector) = (inbound, template(), Vector::new());
    meeting.meet()?;
    let [_, ended_alone] = alone(&mut vector, &template, meeting)?;
    meeting.meet()?;
    let added = median(receive_stage(&mut inbound, &mut vector, meeting, 1)?)? - ended_alone;
    meeting.meet()?;
    receive_stage(&mut inbound, &mut vector, meeting, 2)?;
    Ok(added.max(0.0))
}

/// Receives all that is sent up to the end of a stage. Returns the clocks for each packet of each batch.
fn receive_stage(
    inbound: &mut Inbound,
    vector: &mut Vector,
    meeting: &Meeting,
    stage: u32,
) -> Result<Vec<f64>, CrossingCostError> {
    let mut batches = Vec::new();
    loop {
        let (start, mut waited) = (clock::ticks(), 0);
        for _ in 0..BATCH {
            if !inbound.is_waiting() {
                waited += meeting.wait(|| inbound.is_waiting() || meeting.sent.load(Acquire) >= stage)?;
                // The last vector may have come just before the end of the stage.
                if !inbound.is_waiting() {
                    return Ok(batches);
                }
            }
            inbound.exchange(vector);
            end_packets(vector);
        }
        batches.push(per_packet(clock::ticks().saturating_sub(start).saturating_sub(waited)));
    }
}

/// The clocks for each packet of making packets, and of reading and freeing them, by one thread.
fn alone(vector: &mut Vector, template: &Template, meeting: &Meeting) -> Result<[f64; 2], CrossingCostError> {
    let mut batches = [Vec::new(), Vec::new()];
    let part = meeting.part(ALONE_NS);
    while part.goes_on(batches[0].len())? {
        let mut clocks = [0; 2];
        for _ in 0..BATCH {
            let start = clock::ticks();
            fill(vector, PACKETS, template)?;
            let made = clock::ticks();
            end_packets(vector);
            let times = [start, made, clock::ticks()];
            for (clocks, times) in clocks.iter_mut().zip(times.windows(2)) {
                *clocks += times[1].saturating_sub(times[0]).saturating_sub(clock::cost());
            }
        }
        batches.iter_mut().zip(clocks).for_each(|(batches, clocks)| batches.push(per_packet(clocks)));
    }
    let [made, ended] = batches;
    Ok([median(made)?, median(ended)?])
}

fn template() -> Template {
    Template::new(&[0; LENGTH]).expect("such a packet fits into a buffer")
}

/// Fills an empty vector with packets.
fn fill(vector: &mut Vector, packets: usize, template: &Template) -> Result<(), CrossingCostError> {
    // Between memory nodes, a place of the ring may have had no vector to exchange.
    if vector.is_none() {
        *vector = Vector::new();
    }
    match push_filled(vector, packets, template) == packets {
        true => Ok(()),
        false => Err(CrossingCostError::NoBuffers),
    }
}

/// Reads a byte of each packet, and frees all.
fn end_packets(vector: &mut Vector) {
    let packets = vector.as_slice().iter();
    black_box(packets.fold(0_u8, |read, packet| read ^ packet.bytes().first().copied().unwrap_or(0)));
    free_all(vector);
}

/// The clocks for each packet, given those of a batch.
fn per_packet(clocks: u64) -> f64 {
    clocks as f64 / (BATCH * PACKETS) as f64
}

/// The median of the batches after the first quarter.
fn median(batches: Vec<f64>) -> Result<f64, CrossingCostError> {
    let mut settled = batches;
    settled.drain(..settled.len() / 4);
    if settled.len() < MIN_BATCHES {
        return Err(CrossingCostError::Busy);
    }
    let middle = settled.len() / 2;
    Ok(*settled.select_nth_unstable_by(middle, f64::total_cmp).1)
}

#[cfg(test)]
mod tests {
    use bellows_sys::cpu;
    use bellows_testkit::skips::skip_here;

    use super::*;

    #[test]
    fn a_crossing_between_two_processors_has_a_plausible_cost() {
        let [one, other, ..] = cpu::allowed()[..] else {
            return skip_here("a_crossing_between_two_processors_has_a_plausible_cost", "there is one processor");
        };
        let before = cpu::allowed();
        match measure_crossing(one, other) {
            Ok(MeasuredCrossing { send, receive, latency_ns }) => {
                assert!((0.01..20_000.0).contains(&send), "{send} clocks to send");
                assert!((0.0..20_000.0).contains(&receive), "{receive} clocks to receive");
                assert!((1.0..10_000_000.0).contains(&latency_ns), "{latency_ns} ns");
            }
            // Other tests run at the same time.
            Err(error) => assert!(matches!(error, CrossingCostError::Busy), "{error}"),
        }
        assert_eq!(cpu::allowed(), before, "the caller stays where it is");
    }

    #[test]
    fn what_cannot_be_measured_has_a_reason() {
        let one = cpu::allowed()[0];
        assert!(matches!(measure_crossing(one, one), Err(CrossingCostError::OneProcessor(_))));
        for (sender, receiver) in [(one, 1_000_000), (1_000_000, one)] {
            let error = measure_crossing(sender, receiver).unwrap_err();
            assert!(matches!(error, CrossingCostError::Processor(1_000_000, _)), "{error}");
        }
    }

    #[test]
    fn the_median_leaves_out_the_first_quarter() {
        let batches =
            |count: usize| (0..count).map(|batch| if batch < count / 4 { 1e9 } else { batch as f64 }).collect();
        assert_eq!(median(batches(40)).unwrap(), 25.0);
        assert!(median(batches(MIN_BATCHES)).is_err());
    }
}
