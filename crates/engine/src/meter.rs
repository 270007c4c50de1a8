//! Instrumented breaths: what they book for each call, each breath and some packets.
//!
//! The instrumented body of a breath makes every call through [`metered`], which takes the clock before and after it and
//! counts the packets that it moved. Instrumented breaths are drawn at random, so that what they book stands for all;
//! while somebody [watches](crate::watch) packets, all breaths are instrumented, but only those that were drawn book.

use std::cell::{Cell, RefCell};

use bellows_observe::layout::{account, histogram, link};
use bellows_observe::record;
use bellows_observe::timeline::Timeline;
use bellows_packet::{Fate, Mark, Passage, take_passages};
use bellows_pmu::{Counts, Event, Group, OpenError, Reading};
use bellows_sys::clock;

use crate::app::Call;
use crate::place::{OPEN, Place};
use crate::random::Random;
use crate::watch::Watch;
use crate::world::Fabric;

/// Breaths from one that books to the next, on average.
pub(crate) const EVERY: u64 = 128;

/// Breaths from one that is drawn to the next, on average: most of them book, the others mark packets.
const DRAWN_EVERY: u64 = EVERY * (MARK_EVERY - 1) / MARK_EVERY;

/// One in so many breaths that were drawn counts events: reading their counters takes longer than reading the clock.
const COUNT_EVERY: u64 = 4;

/// One in so many breaths that were drawn marks packets, to see how long they stay, and books nothing: a vector with a marked
/// packet takes longer to copy and to free.
const MARK_EVERY: u64 = 8;

/// A call in an instrumented breath.
///
/// Safety: as for the [`Call`] that it makes.
pub(crate) type Metered = unsafe extern "C" fn(&Place, Call);

/// Makes a call and books it as a pull.
///
/// Safety: as for the [`Call`] that it makes.
pub(crate) unsafe extern "C" fn metered_pull(place: &Place, call: Call) {
    // SAFETY: the caller's promise.
    unsafe { metered(place, call, account::PULL) }
}

/// Makes a call and books it as a push.
///
/// Safety: as for the [`Call`] that it makes.
pub(crate) unsafe extern "C" fn metered_push(place: &Place, call: Call) {
    // SAFETY: the caller's promise.
    unsafe { metered(place, call, account::PUSH) }
}

/// Makes a call and books it as a tick.
///
/// Safety: as for the [`Call`] that it makes.
pub(crate) unsafe extern "C" fn metered_tick(place: &Place, call: Call) {
    // SAFETY: the caller's promise.
    unsafe { metered(place, call, account::TICK) }
}

/// Safety: as for the [`Call`] that it makes.
#[inline(always)]
unsafe fn metered(place: &Place, call: Call, entry: usize) {
    let meter = &place.core().meter;
    let before = Before::of(place, entry);
    if meter.watching.get() {
        meter.before_watched(place);
    }
    let counted = meter.reading();
    let start = clock::ticks();
    // SAFETY: the caller's promise.
    unsafe { call(place) }
    let end = clock::ticks();
    let counted = counted.zip(meter.reading());
    meter.after(place, entry, start, end, before, counted);
}

/// How many packets had passed an app before a call.
struct Before {
    calls: u64,
    packets: u64,
    dropped: u64,
}

impl Before {
    #[inline]
    fn of(place: &Place, entry: usize) -> Before {
        Before { calls: place.calls[entry].get(), packets: passed(place, entry), dropped: dropped(place) }
    }
}

/// A number that changes by one with each packet that a call takes (a push) or sends (a pull or tick).
#[inline]
fn passed(place: &Place, entry: usize) -> u64 {
    let fabric = place.fabric();
    if entry == account::PUSH {
        let waiting = |&link: &u32| fabric.waiting.get(link as usize).map_or(0, |waiting| u64::from(waiting.get()));
        return place.inputs.iter().map(waiting).sum::<u64>().wrapping_neg();
    }
    let sent = |&link: &u32| fabric.links.get(link as usize).map_or(0, |to| fabric.slab.get(to.cell + link::PACKETS));
    place.outputs.iter().map(sent).fold(0, u64::wrapping_add)
}

/// How many packets an app has dropped for any reason.
#[inline]
fn dropped(place: &Place) -> u64 {
    let fabric = place.fabric();
    let own = (place.cell..place.own_counters).map(|cell| fabric.slab.get(cell));
    let full = |&link: &u32| fabric.links.get(link as usize).map_or(0, |to| fabric.slab.get(to.cell + link::DROPS));
    own.chain(place.outputs.iter().map(full)).fold(0, u64::wrapping_add)
}

/// What a call usually takes: clocks for each packet and the call itself, in 16ths; 0 before the first one.
#[derive(Default)]
pub(crate) struct Usual(Cell<u64>);

/// A call that takes so many times what is usual, and more than so many nanoseconds, is an outlier.
const UNUSUAL: u64 = 16;
const LEAST_UNUSUAL: u64 = 5_000;

impl Usual {
    /// Takes a call in. True if it is an outlier: the system has interrupted it, most likely, and one such call would hide
    /// what thousands of others cost.
    fn is_exceeded_by(&self, clocks: u64, packets: u64) -> bool {
        let usual = self.0.get();
        let weight = packets + 1;
        let each = 16 * clocks / weight;
        if usual == 0 {
            self.0.set(each.max(1));
            return false;
        }
        // Whatever happens is usual once it happens often.
        self.0.set(usual - usual / 16 + each.min(2 * usual) / 16 + 1);
        each > UNUSUAL * usual && clock::ticks_to_nanos(clocks) > LEAST_UNUSUAL
    }
}

/// What instrumented breaths need to know, and what they have found out so far.
pub(crate) struct Meter {
    /// Clocks that reading the clock twice takes.
    clock_cost: u64,
    /// Whether the calls of this breath are booked, or whether packets are marked in it; neither if it was not drawn.
    booking: Cell<bool>,
    marking: Cell<bool>,
    /// When the breath began that is being taken, and how many of its calls took the clock.
    start: Cell<Option<u64>>,
    calls: Cell<u64>,
    random: RefCell<Random>,
    /// What is counted, and what counting nothing counts.
    events: Vec<Event>,
    overhead: Vec<u64>,
    /// Whether events are counted in this breath.
    counting: Cell<bool>,
    pub(crate) timeline: RefCell<Option<Timeline>>,
    /// Whether somebody watches packets.
    pub(crate) watching: Cell<bool>,
    pub(crate) watch: RefCell<Watch>,
    passages: RefCell<Vec<Passage>>,
}

thread_local! {
    /// The counters of this thread: they cannot go to another one, as an engine can.
    static GROUP: RefCell<Option<Group>> = const { RefCell::new(None) };
}

/// Opens counters for this thread, in place of those that it has for other events.
fn open(events: &[Event]) -> Result<(), OpenError> {
    GROUP.with_borrow_mut(|group| {
        if group.as_ref().is_none_or(|group| group.events() != events) {
            *group = Some(Group::open(events)?);
        }
        Ok(())
    })
}

/// What has been counted on this thread; nothing if its counters are for other events, and cannot be opened.
#[inline(never)]
fn read(events: &[Event]) -> Option<Reading> {
    open(events).ok()?;
    GROUP.with_borrow(|group| group.as_ref().map(Group::reading))
}

/// What two readings count that follow one upon the other: the least of many.
fn overhead(events: &[Event]) -> Vec<u64> {
    let once = || {
        let before = read(events)?;
        let counts = read(events)?.since(&before);
        Some(counts.iter().map(|count| count.unwrap_or(0)).collect::<Vec<u64>>())
    };
    let least = |least: Vec<u64>, counts: Vec<u64>| least.into_iter().zip(counts).map(|(a, b)| a.min(b)).collect();
    (0..100).filter_map(|_| once()).reduce(least).unwrap_or_default()
}

impl Meter {
    /// One that counts these events, on the thread that takes the breaths.
    ///
    /// # Errors
    /// When they cannot be counted on this thread.
    pub(crate) fn new(events: &[Event]) -> Result<Meter, OpenError> {
        if !events.is_empty() {
            open(events)?;
        }
        // What other engines of this thread have left behind.
        take_passages(&mut Vec::new());
        Ok(Meter {
            clock_cost: clock::cost(),
            booking: Cell::new(false),
            marking: Cell::new(false),
            start: Cell::new(None),
            calls: Cell::new(0),
            random: RefCell::new(Random::new()),
            overhead: if events.is_empty() { Vec::new() } else { overhead(events) },
            events: events.to_vec(),
            counting: Cell::new(false),
            timeline: RefCell::new(None),
            watching: Cell::new(false),
            watch: RefCell::default(),
            passages: RefCell::new(Vec::with_capacity(64)),
        })
    }

    /// Whether the calls of the breath that has begun are booked.
    pub(crate) fn is_booking(&self) -> bool {
        self.booking.get()
    }

    pub(crate) fn events(&self) -> &[Event] {
        &self.events
    }

    /// What has been counted, if anything is in this breath.
    #[inline]
    fn reading(&self) -> Option<Reading> {
        if self.counting.get() { read(&self.events) } else { None }
    }

    /// How many breaths to take until the next one that is drawn: evenly spread, so that one in [`DRAWN_EVERY`] is.
    pub(crate) fn draw(&self) -> u64 {
        self.random.borrow_mut().below(2 * DRAWN_EVERY - 1)
    }

    /// Begins an instrumented breath, unless it has begun with its ticks; returns the clock at its beginning.
    pub(crate) fn begin_breath(&self, is_drawn: bool) -> u64 {
        self.start.get().unwrap_or_else(|| {
            let mut random = self.random.borrow_mut();
            let marks = is_drawn && random.below(MARK_EVERY) == 0;
            let books = is_drawn && !marks;
            self.marking.set(marks);
            self.booking.set(books);
            self.counting.set(books && !self.events.is_empty() && random.below(COUNT_EVERY) == 0);
            self.calls.set(0);
            let start = clock::ticks();
            self.start.set(Some(start));
            start
        })
    }

    #[inline(never)]
    fn after(
        &self,
        place: &Place,
        entry: usize,
        start: u64,
        end: u64,
        before: Before,
        counted: Option<(Reading, Reading)>,
    ) {
        self.calls.set(self.calls.get() + 1);
        if place.calls[entry].get() == before.calls {
            // In a lossless network, an app whose outputs have no room is not called after all.
            return;
        }
        let packets = passed(place, entry).wrapping_sub(before.packets);
        if self.booking.get() {
            let clocks = end.wrapping_sub(start).saturating_sub(self.clock_cost);
            let slab = &place.fabric().slab;
            let first = place.account + account::samples(entry, self.events.len());
            if place.usual[entry].is_exceeded_by(clocks, packets) {
                slab.add(first + account::OUTLIERS, 1);
                slab.add(first + account::OUTLIERS + 1, clocks);
            } else {
                slab.add(first, 1);
                slab.add(first + 1, packets);
                slab.add(first + 2, clocks);
                if let Some((from, to)) = counted {
                    self.book_events(place, entry, packets, &to.since(&from));
                }
            }
            if let Some(timeline) = &mut *self.timeline.borrow_mut() {
                timeline.call(place.name, entry, start, clocks, packets);
                let drops = dropped(place).wrapping_sub(before.dropped);
                if drops > 0 {
                    timeline.drops(place.name, end, drops);
                }
            }
        }
        let brings_in = entry == account::PULL || entry == account::TICK && place.inputs.is_empty();
        if self.marking.get() && brings_in && packets > 0 {
            self.mark_one(place, start);
        }
        if self.watching.get() {
            let mut passages = self.passages.borrow_mut();
            take_passages(&mut passages);
            self.watch.borrow_mut().after(place, entry, start, end, &passages);
            count_latencies(place.fabric(), &mut passages);
        }
    }

    /// Has those who watch prepare for a call.
    #[cold]
    fn before_watched(&self, place: &Place) {
        let mut passages = self.passages.borrow_mut();
        take_passages(&mut passages);
        self.watch.borrow_mut().before(place, &passages);
        count_latencies(place.fabric(), &mut passages);
    }

    /// Takes in what became of the packets in an app that has been buried.
    pub(crate) fn buried(&self, place: &Place) {
        let mut passages = self.passages.borrow_mut();
        take_passages(&mut passages);
        self.watch.borrow_mut().buried(place, &passages);
        count_latencies(place.fabric(), &mut passages);
    }

    /// Books what was counted in a call.
    fn book_events(&self, place: &Place, entry: usize, packets: u64, counts: &Counts) {
        let slab = &place.fabric().slab;
        let events = self.events.len();
        slab.add(place.account + account::samples(entry, events) + account::COUNTED, packets);
        for (event, (sample, &overhead)) in counts.samples().iter().zip(&self.overhead).enumerate() {
            let cell = place.account + account::event(entry, events, event);
            let overhead = if sample.running > 0 { overhead } else { 0 };
            // Less than none is booked as well, so that the sum is right.
            slab.add(cell, sample.count.wrapping_sub(overhead));
            slab.add(cell + 1, sample.enabled);
            slab.add(cell + 2, sample.running);
        }
    }

    /// Marks the last of the packets that an app has just brought in, so that its end will be noted.
    fn mark_one(&self, place: &Place, born: u64) {
        let fabric = place.fabric();
        let holds = |link: &&u32| **link != OPEN && fabric.waiting[**link as usize].get() > 0;
        let mut holding = place.outputs.iter().filter(holds);
        // If several hold packets, those of one may have been there before.
        let (Some(&link), None) = (holding.next(), holding.next()) else { return };
        fabric.with_vector(link, |packets| {
            if let Some(packet) = packets.last_mut().filter(|packet| !packet.is_marked()) {
                packet.mark(Mark { born, id: 0 });
            }
        });
    }

    /// Ends an instrumented breath; returns the clock at its end.
    pub(crate) fn end_breath(&self, fabric: &Fabric, moved: bool) -> u64 {
        let end = clock::ticks();
        let Some(start) = self.start.take() else { return end };
        let duration = end.wrapping_sub(start).saturating_sub(self.calls.get() * self.clock_cost);
        let mut passages = self.passages.borrow_mut();
        take_passages(&mut passages);
        count_latencies(fabric, &mut passages);
        if !self.booking.take() {
            return end;
        }
        // A breath in which events were counted, or packets watched, took longer than it would have.
        let counts = moved && !self.counting.take() && !self.watching.get();
        if counts {
            record(&fabric.slab, fabric.slab.directory.histogram(histogram::BREATH), duration);
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
fn count_latencies(fabric: &Fabric, passages: &mut Vec<Passage>) {
    for passage in passages.drain(..).filter(|passage| passage.fate == Fate::Freed && passage.mark.id == 0) {
        let stayed = passage.at.saturating_sub(passage.mark.born);
        record(&fabric.slab, fabric.slab.directory.histogram(histogram::LATENCY), stayed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_was_interrupted_is_an_outlier_and_a_larger_one_is_not() {
        clock::calibrate();
        let micro = clock::ticks_per_second() / 1_000_000;
        let usual = Usual::default();
        for packets in [1, 128, 0, 3] {
            assert!(!usual.is_exceeded_by(micro + packets * micro / 2, packets));
        }
        assert!(usual.is_exceeded_by(1_000 * micro, 1));
        assert!(!usual.is_exceeded_by(200 * micro, 1_024));
        let short = Usual::default();
        assert!(!short.is_exceeded_by(10, 0) && !short.is_exceeded_by(micro, 0), "too short to matter");
    }

    #[test]
    fn what_is_slow_from_now_on_is_soon_usual() {
        clock::calibrate();
        let usual = Usual::default();
        assert!(!usual.is_exceeded_by(100, 0));
        let slow = clock::ticks_per_second() / 1_000;
        let outliers = (0..1_000).filter(|_| usual.is_exceeded_by(slow, 0)).count();
        assert!((50..300).contains(&outliers), "{outliers}");
        assert!((0..1_000).all(|_| !usual.is_exceeded_by(100, 0)) && usual.is_exceeded_by(slow, 0));
    }
}
