//! What the sampled breaths know and find out.
//!
//! Sampled breaths are chosen at random, so that what they record stands for all; while somebody
//! [watches](bellows_watch) packets, all breaths are sampled, but only those that were chosen record. What they do in each
//! call is in [`dispatch::sampled`](crate::dispatch).

use std::cell::{Cell, RefCell};

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

/// Breaths from one that records to the next, on average.
pub(crate) const EVERY: u64 = 128;

/// Breaths from one that is chosen to the next, on average: most of them record, the others mark packets.
const SAMPLED_EVERY: u64 = EVERY * (MARK_EVERY - 1) / MARK_EVERY;

/// One in so many breaths that were chosen counts events: reading their counters takes longer than reading the clock.
const COUNT_EVERY: u64 = 4;

/// One in so many breaths that were chosen marks packets, to see how long they stay, and records nothing: a vector with a marked
/// packet takes longer to copy and to free.
const MARK_EVERY: u64 = 8;

/// What sampled breaths need to know, and what they have found out so far.
pub(crate) struct Sampler {
    /// Clocks that reading the clock twice takes.
    clock_cost: u64,
    /// Whether the calls of this breath are recorded, or whether packets are marked in it; neither if it was not chosen.
    recording: Cell<bool>,
    marking: Cell<bool>,
    /// When the breath began that is being taken, and how many of its calls took the clock.
    start: Cell<Option<u64>>,
    calls: Cell<u64>,
    random: RefCell<Rng>,
    /// What is counted besides clocks.
    events: ThreadEvents,
    /// Whether events are counted in this breath.
    counting: Cell<bool>,
    pub(crate) timeline: RefCell<Option<Timeline>>,
    /// Whether somebody watches packets.
    pub(crate) watching: Cell<bool>,
    pub(crate) watch: RefCell<Watch>,
    marked_events: RefCell<Vec<MarkedEvent>>,
}

impl Sampler {
    /// One that counts these events, on the thread that takes the breaths.
    ///
    /// # Errors
    /// When they cannot be counted on this thread.
    pub(crate) fn new(events: &[Event]) -> Result<Sampler, OpenError> {
        let events = ThreadEvents::new(events)?;
        // What other engines of this thread have left behind.
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
            watching: Cell::new(false),
            watch: RefCell::default(),
            marked_events: RefCell::new(Vec::with_capacity(64)),
        })
    }

    /// Whether the calls of the breath that has begun are recorded.
    pub(crate) fn is_booking(&self) -> bool {
        self.recording.get()
    }

    pub(crate) fn events(&self) -> &[Event] {
        self.events.events()
    }

    /// What has been counted, if anything is in this breath.
    #[inline]
    pub(crate) fn reading(&self) -> Option<Reading> {
        if self.counting.get() { self.events.reading() } else { None }
    }

    /// How many breaths to take until the next one that is chosen: evenly spread, so that one in [`SAMPLED_EVERY`] is.
    pub(crate) fn draw(&self) -> u64 {
        self.random.borrow_mut().u64(..2 * SAMPLED_EVERY - 1)
    }

    /// Begins a sampled breath, unless it has begun with its ticks; returns the clock at its beginning.
    pub(crate) fn begin_breath(&self, is_sampled: bool) -> u64 {
        self.start.get().unwrap_or_else(|| {
            let mut random = self.random.borrow_mut();
            let marks = is_sampled && random.u64(..MARK_EVERY) == 0;
            let books = is_sampled && !marks;
            self.marking.set(marks);
            self.recording.set(books);
            self.counting.set(books && !self.events().is_empty() && random.u64(..COUNT_EVERY) == 0);
            self.calls.set(0);
            let start = clock::ticks();
            self.start.set(Some(start));
            start
        })
    }

    /// A call has taken the clock.
    pub(crate) fn note_call(&self) {
        self.calls.set(self.calls.get() + 1);
    }

    /// Whether one of the packets that come into the network in this breath is to be marked.
    pub(crate) fn is_marking(&self) -> bool {
        self.marking.get()
    }

    /// Clocks from one moment to another, less what it takes to find out.
    pub(crate) fn clocks(&self, start: u64, end: u64) -> u64 {
        end.wrapping_sub(start).saturating_sub(self.clock_cost)
    }

    /// Has those who watch prepare for a call.
    #[cold]
    pub(crate) fn before_watched(&self, links: &LinkTable, call: &Call<'_>) {
        self.with_marked_events(links, |watch, marked_events| watch.before(links, call, marked_events));
    }

    /// Shows those who watch what came of a call.
    pub(crate) fn after_watched(&self, links: &LinkTable, call: &Call<'_>, start: u64, end: u64) {
        self.with_marked_events(links, |watch, marked_events| watch.after(links, call, start, end, marked_events));
    }

    /// Takes in what became of the packets in an app that has failed.
    pub(crate) fn after_failure(&self, links: &LinkTable, app: usize) {
        self.with_marked_events(links, |watch, marked_events| watch.failed(links, app, marked_events));
    }

    /// Shows those who watch what became of packets since the last time.
    fn with_marked_events(&self, links: &LinkTable, show: impl FnOnce(&mut Watch, &[MarkedEvent])) {
        let mut marked_events = self.marked_events.borrow_mut();
        take_marked_events(&mut marked_events);
        show(&mut self.watch.borrow_mut(), &marked_events);
        count_latencies(links, &mut marked_events);
    }

    /// Records what was counted in a call of an app, from the first cell of its account on.
    pub(crate) fn book_events(&self, slab: &Slab, account: usize, entry: usize, packets: u64, counts: &Counts) {
        let events = self.events().len();
        slab.add(account + account::samples(entry, events) + account::COUNTED, packets);
        for (event, (sample, &overhead)) in counts.samples().iter().zip(self.events.overhead()).enumerate() {
            let cell = account + account::event(entry, events, event);
            let overhead = if sample.running > 0 { overhead } else { 0 };
            // Less than none is recorded as well, so that the sum is right.
            slab.add(cell, sample.count.wrapping_sub(overhead));
            slab.add(cell + 1, sample.enabled);
            slab.add(cell + 2, sample.running);
        }
    }

    /// Ends a sampled breath; returns the clock at its end.
    pub(crate) fn end_breath(&self, links: &LinkTable, moved: bool) -> u64 {
        let end = clock::ticks();
        let Some(start) = self.start.take() else { return end };
        let duration = end.wrapping_sub(start).saturating_sub(self.calls.get() * self.clock_cost);
        let mut marked_events = self.marked_events.borrow_mut();
        take_marked_events(&mut marked_events);
        count_latencies(links, &mut marked_events);
        if !self.recording.take() {
            return end;
        }
        // A breath in which events were counted, or packets watched, took longer than it would have.
        let counts = moved && !self.counting.take() && !self.watching.get();
        if counts {
            record(&links.slab, links.slab.directory.histogram(histogram::BREATH), duration);
        }
        if let Some(timeline) = &mut *self.timeline.borrow_mut() {
            timeline.end_breath(start, duration, counts, EVERY);
        }
        end
    }

    /// Writes to the timeline, if there is one.
    pub(crate) fn on_timeline(&self, write: impl FnOnce(&mut Timeline)) {
        if let Some(timeline) = &mut *self.timeline.borrow_mut() {
            write(timeline);
        }
    }
}

/// Counts how long packets stayed that have come to their end, those that are followed left out, and forgets them.
fn count_latencies(links: &LinkTable, marked_events: &mut Vec<MarkedEvent>) {
    for event in marked_events.drain(..).filter(|event| event.kind == MarkedEventKind::Freed && event.mark.id == 0) {
        let stayed = event.at.saturating_sub(event.mark.born);
        record(&links.slab, links.slab.directory.histogram(histogram::LATENCY), stayed);
    }
}
