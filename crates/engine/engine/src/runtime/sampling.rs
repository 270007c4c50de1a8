//! The sampler: state and results of sampled breaths.
//!
//! Breaths are chosen at random, so that their records stand for all breaths. While a [trace or tap](bellows_watch)
//! runs every breath is sampled, but only the chosen ones are recorded. [`dispatch::sampled`](crate::dispatch) does the
//! work of each call.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use bellows_observe::Slab;
use bellows_observe::layout::{account, histogram};
use bellows_observe::record;
use bellows_observe::timeline::Timeline;
use bellows_packet::{MarkedEvent, MarkedEventKind, take_marked_events};
use bellows_pmu::{Counts, Event, OpenError, Reading, ThreadEvents};
use bellows_sys::clock;
use bellows_watch::{Call, Watch};
use fastrand::Rng;

use super::links::LinkTable;
use super::trials::Trials;

/// Average number of breaths from one that is recorded to the next.
pub(crate) const RECORD_INTERVAL: u64 = 256;

/// Average number of breaths from one that is chosen to the next: most of them are recorded, the others mark packets.
const SAMPLE_INTERVAL: u64 = RECORD_INTERVAL * (MARK_INTERVAL - 1) / MARK_INTERVAL;

/// One in this many recorded breaths counts events: reading event counters takes longer than reading the clock.
const COUNT_INTERVAL: u64 = 4;

/// One in this many chosen breaths marks packets, to measure their latency, and is not recorded: a vector with a marked
/// packet takes longer to copy and to free.
const MARK_INTERVAL: u64 = 8;

/// One in this many breaths that are chosen during a trial of look-ahead is not part of it. That many more are chosen:
/// one in three of all breaths.
const TRIAL_INTERVAL: u64 = 64;

/// How often a mark is passed on: vectors that leave in the breath in which a marked one arrived are marked, too. In a
/// loop of workers it ends after that.
const MAX_HOPS: u32 = 7;

/// The number of the last marked vector of this process.
static LAST_MARKED: AtomicU32 = AtomicU32::new(0);

/// The mark of a vector that crosses to another worker, whose departure is recorded; by default none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct VectorMark {
    /// Its number; 0 for none.
    number: u32,
    /// The number of crossings before.
    hops: u32,
}

impl VectorMark {
    pub(crate) const NONE: VectorMark = VectorMark { number: 0, hops: 0 };

    #[inline(always)]
    pub(crate) fn is_none(self) -> bool {
        self.number == 0
    }
}

/// An end of a marked vector's way, in the current call.
struct Passage {
    is_departure: bool,
    link: u32,
    number: u32,
    packets: u32,
}

/// State and results of sampled breaths.
pub(crate) struct Sampler {
    /// Cost of reading the clock twice, in clocks.
    clock_cost: u64,
    /// Whether the calls of this breath are recorded, and whether packets are marked in it; neither if it was not
    /// chosen.
    recording: Cell<bool>,
    marking: Cell<bool>,
    /// Start of the current breath, and the number of its calls that read the clock.
    start: Cell<Option<u64>>,
    calls: Cell<u64>,
    random: RefCell<Rng>,
    /// The events counted besides clocks.
    events: ThreadEvents,
    /// Whether events are counted in this breath.
    counting: Cell<bool>,
    pub(crate) timeline: RefCell<Option<Timeline>>,
    /// Whether the calls of this breath go to the timeline: it is recorded, or a marked vector arrives.
    on_timeline: Cell<bool>,
    /// Whether a marked vector waits for a breath that goes to the timeline.
    awaited: Cell<bool>,
    /// The hops of vectors that leave in this breath.
    hops: Cell<u32>,
    passages: RefCell<Vec<Passage>>,
    /// Whether every breath is sampled: a trace or tap runs, a marked vector waits, or a sampled breath has begun.
    pub(crate) samples_all: Cell<bool>,
    /// Whether a trace or tap runs.
    pub(crate) watching: Cell<bool>,
    pub(crate) watch: RefCell<Watch>,
    marked_events: RefCell<Vec<MarkedEvent>>,
    pub(crate) trials: Trials,
}

impl Sampler {
    /// A sampler that counts these events, on the thread that takes the breaths.
    ///
    /// # Errors
    /// If the events cannot be counted on this thread.
    pub(crate) fn new(events: &[Event]) -> Result<Sampler, OpenError> {
        let events = ThreadEvents::new(events)?;
        // Discard what other engines of this thread left.
        take_marked_events(&mut Vec::new());
        Ok(Sampler {
            clock_cost: clock::cost(),
            recording: Cell::new(false),
            marking: Cell::new(false),
            start: Cell::new(None),
            calls: Cell::new(0),
            random: RefCell::new(Rng::new()),
            events,
            counting: Cell::new(false),
            timeline: RefCell::new(None),
            on_timeline: Cell::new(false),
            awaited: Cell::new(false),
            hops: Cell::new(0),
            passages: RefCell::default(),
            samples_all: Cell::new(false),
            watching: Cell::new(false),
            watch: RefCell::default(),
            marked_events: RefCell::new(Vec::with_capacity(64)),
            trials: Trials::default(),
        })
    }

    /// Whether the calls of the current breath are recorded.
    pub(crate) fn is_recording(&self) -> bool {
        self.recording.get()
    }

    /// Whether the calls of the current breath go to the timeline.
    pub(crate) fn is_on_timeline(&self) -> bool {
        self.on_timeline.get()
    }

    pub(crate) fn events(&self) -> &[Event] {
        self.events.events()
    }

    /// The event counts so far, if events are counted in this breath.
    #[inline]
    pub(crate) fn reading(&self) -> Option<Reading> {
        if self.counting.get() { self.events.reading() } else { None }
    }

    /// Number of breaths until the next chosen one: uniformly distributed, so that one in [`SAMPLE_INTERVAL`] is
    /// chosen; more during a trial of look-ahead.
    pub(crate) fn next_interval(&self) -> u64 {
        let average = if self.trials.are_running() { SAMPLE_INTERVAL / TRIAL_INTERVAL } else { SAMPLE_INTERVAL };
        self.random.borrow_mut().u64(..2 * average - 1)
    }

    /// Begins a sampled breath, unless it began with its ticks. Returns its start time.
    pub(crate) fn begin_breath(&self, is_chosen: bool) -> u64 {
        self.start.get().unwrap_or_else(|| {
            let mut random = self.random.borrow_mut();
            let tries = is_chosen && self.trials.are_running() && random.u64(..TRIAL_INTERVAL) != 0;
            self.trials.begin_breath(tries, &mut random);
            let is_chosen = is_chosen && !tries;
            let marks = is_chosen && random.u64(..MARK_INTERVAL) == 0;
            let records = is_chosen && !marks;
            self.marking.set(marks);
            self.recording.set(records);
            // A breath that marks packets cannot be recorded: a marked vector waits for the next one.
            let is_caused = !marks && self.awaited.take();
            self.on_timeline.set(records || is_caused);
            self.hops.set(0);
            self.passages.borrow_mut().clear();
            self.counting.set(records && !self.events().is_empty() && random.u64(..COUNT_INTERVAL) == 0);
            self.calls.set(0);
            let start = clock::ticks();
            self.start.set(Some(start));
            self.update_samples_all();
            start
        })
    }

    /// Every breath is sampled for a trace or tap, for a marked vector, and if it has begun as a sampled one: with a
    /// tick, or with a pull of an app that woke the thread.
    fn update_samples_all(&self) {
        self.samples_all.set(self.watching.get() || self.awaited.get() || self.start.get().is_some());
    }

    /// Counts a call that read the clock.
    pub(crate) fn count_call(&self) {
        self.calls.set(self.calls.get() + 1);
    }

    /// Whether to mark one of the packets that come into the network in this breath.
    pub(crate) fn is_marking(&self) -> bool {
        self.marking.get()
    }

    /// Whether the first vector that leaves for another worker in this breath is marked: if the timeline is sure to keep
    /// the breath.
    pub(crate) fn marks_departure(&self) -> bool {
        self.recording.get() && self.timeline.borrow().as_ref().is_some_and(Timeline::keeps_next)
    }

    /// Notes that a vector leaves for another worker in this call, through a link by its position in the timeline's
    /// names. Returns its mark.
    pub(crate) fn depart(&self, link: u32, packets: u32) -> VectorMark {
        let number = LAST_MARKED.fetch_add(1, Relaxed).wrapping_add(1).max(1);
        self.passages.borrow_mut().push(Passage { is_departure: true, link, number, packets });
        VectorMark { number, hops: self.hops.get() }
    }

    /// Notes that a marked vector is about to arrive in this call, and returns whether those that leave are to be marked,
    /// too. `None` if this breath does not go to the timeline: the next one will.
    pub(crate) fn arrive(&self, link: u32, mark: VectorMark, packets: u32) -> Option<bool> {
        if !self.on_timeline.get() {
            self.awaited.set(true);
            self.update_samples_all();
            return None;
        }
        self.passages.borrow_mut().push(Passage { is_departure: false, link, number: mark.number, packets });
        if !self.marks_departure() {
            self.hops.set(self.hops.get().max(mark.hops + 1));
        }
        Some(self.hops.get() <= MAX_HOPS)
    }

    /// Whether a marked vector waits for the next breath.
    pub(crate) fn is_awaited(&self) -> bool {
        self.awaited.get()
    }

    /// Writes what has crossed in a call between two times. A vector departs when the call begins, and has arrived when
    /// the call ends, so that it never arrives before it departs.
    pub(crate) fn record_passages(&self, timeline: &mut Timeline, start: u64, end: u64) {
        for Passage { is_departure, link, number, packets } in self.passages.borrow_mut().drain(..) {
            if is_departure {
                timeline.departure(link, start, number, packets);
            } else {
                timeline.arrival(link, end, number, packets);
            }
        }
    }

    /// Starts or ends the sampling of every breath for traces and taps.
    pub(crate) fn set_watching(&self, is_watching: bool) {
        self.watching.set(is_watching);
        self.update_samples_all();
    }

    /// Clocks from `start` to `end`, less the cost of reading them.
    pub(crate) fn clocks(&self, start: u64, end: u64) -> u64 {
        end.wrapping_sub(start).saturating_sub(self.clock_cost)
    }

    /// Prepares traces and taps for a call.
    #[cold]
    pub(crate) fn before_watched(&self, links: &LinkTable, call: &Call<'_>) {
        self.with_marked_events(links, |watch, marked_events| watch.before(links, call, marked_events));
    }

    /// Shows traces and taps the result of a call.
    pub(crate) fn after_watched(&self, links: &LinkTable, call: &Call<'_>, start: u64, end: u64) {
        self.with_marked_events(links, |watch, marked_events| watch.after(links, call, start, end, marked_events));
    }

    /// Processes the events of marked packets in an app that has failed.
    pub(crate) fn after_failure(&self, links: &LinkTable, app: usize) {
        self.with_marked_events(links, |watch, marked_events| watch.failed(links, app, marked_events));
    }

    /// Shows traces and taps the events of marked packets since the last time.
    fn with_marked_events(&self, links: &LinkTable, show: impl FnOnce(&mut Watch, &[MarkedEvent])) {
        let mut marked_events = self.marked_events.borrow_mut();
        take_marked_events(&mut marked_events);
        show(&mut self.watch.borrow_mut(), &marked_events);
        count_latencies(links, &mut marked_events);
    }

    /// Records the event counts of a call, from the first cell of the app's account on.
    pub(crate) fn record_events(&self, slab: &Slab, account: usize, entry: usize, packets: u64, counts: &Counts) {
        let events = self.events().len();
        slab.add(account + account::samples(entry, events) + account::COUNTED, packets);
        for (event, (sample, &overhead)) in counts.samples().iter().zip(self.events.overhead()).enumerate() {
            let cell = account + account::event(entry, events, event);
            let overhead = if sample.running > 0 { overhead } else { 0 };
            // A negative difference is recorded as well, so that the sum is right.
            slab.add(cell, sample.count.wrapping_sub(overhead));
            slab.add(cell + 1, sample.enabled);
            slab.add(cell + 2, sample.running);
        }
    }

    /// Ends a sampled breath. Returns its end time.
    pub(crate) fn end_breath(&self, links: &LinkTable, moved: bool) -> u64 {
        let end = clock::ticks();
        let Some(start) = self.start.take() else { return end };
        self.trials.end_breath();
        self.update_samples_all();
        let duration = end.wrapping_sub(start).saturating_sub(self.calls.get() * self.clock_cost);
        let mut marked_events = self.marked_events.borrow_mut();
        take_marked_events(&mut marked_events);
        count_latencies(links, &mut marked_events);
        let is_on_timeline = self.on_timeline.take();
        if !self.recording.take() {
            if is_on_timeline {
                self.on_timeline(|timeline| timeline.end_caused_breath(start, duration));
            }
            return end;
        }
        // A breath with event counts, traces or taps took longer than it would have.
        let counts = moved && !self.counting.take() && !self.watching.get();
        if counts {
            record(&links.slab, links.worker().histogram(histogram::BREATH), duration);
        }
        self.on_timeline(|timeline| timeline.end_breath(start, duration, counts, RECORD_INTERVAL));
        end
    }

    /// Writes to the timeline, if there is one.
    pub(crate) fn on_timeline(&self, write: impl FnOnce(&mut Timeline)) {
        if let Some(timeline) = &mut *self.timeline.borrow_mut() {
            write(timeline);
        }
    }
}

/// Records the latency of packets that ended, except dropped and traced ones, and empties the log.
fn count_latencies(links: &LinkTable, marked_events: &mut Vec<MarkedEvent>) {
    for event in marked_events.drain(..).filter(|event| event.kind == MarkedEventKind::Freed && event.mark.id == 0) {
        let stayed = event.at.saturating_sub(event.mark.created);
        record(&links.slab, links.worker().histogram(histogram::LATENCY), stayed);
    }
}
