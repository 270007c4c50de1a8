//! Counts events for the calling thread.

use std::io::{self, ErrorKind};
use std::ops::{AddAssign, Range};

use bellows_sys::perf::{Counter, CounterSample, EventSpec, MAX_GROUP_EVENTS, Page};

use crate::event::Event;
use crate::probe::{NoPmu, Pmu, paranoia};
use crate::table::{Microarchitecture, encoding};

/// Maximum number of events of a [`Group`].
pub const MAX_EVENTS: usize = 16;

/// Maximum number of the processor's counters in a set: as many as are free on every processor, minus one that the
/// kernel's watchdog may take. A set that does not fit would never be counted.
const MAX_IN_HARDWARE: usize = 4;

/// Counts events for the thread that opened it, until it is dropped.
///
/// It cannot be sent to another thread, because the processor's counters are read on their thread.
#[derive(Debug)]
pub struct Group {
    events: Vec<Event>,
    sets: Vec<CounterSet>,
}

/// Counters that the kernel schedules together, and reads together.
#[derive(Debug)]
struct CounterSet {
    /// The first one is the leader.
    counters: Vec<Counter>,
    /// The share of each counter in an event.
    shares: Vec<Share>,
    /// The page that the kernel publishes about each, if they can be read with RDPMC.
    pages: Vec<Page>,
    is_hardware: bool,
}

/// A counter's share in an event.
#[derive(Clone, Copy, Debug)]
struct Share {
    event: usize,
    is_less: bool,
}

/// The reason why events cannot be counted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The processor's counters are unavailable.
    #[error("`{event}` cannot be counted: {why}")]
    NoPmu {
        /// The first event that needs them.
        event: Event,
        /// The reason why there are none.
        why: NoPmu,
    },
    /// This processor does not count the event, as far as is known.
    #[error("`{event}` cannot be counted on this processor; it counts {}", names(.counted))]
    NotHere {
        /// The event.
        event: Event,
        /// The events that it counts.
        counted: Vec<Event>,
    },
    /// The user may not count the kernel's events.
    #[error(
        "`{event}` may not be counted: kernel.perf_event_paranoid is {}; \
         `sysctl kernel.perf_event_paranoid=1` or the capability CAP_PERFMON allows it",
        .paranoid.map_or("unknown".to_owned(), |paranoid| paranoid.to_string())
    )]
    NotPermitted {
        /// The event.
        event: Event,
        /// `kernel.perf_event_paranoid`, if it can be read.
        paranoid: Option<i32>,
    },
    /// More than [`MAX_EVENTS`].
    #[error("{0} events are too many for one group: there may be {MAX_EVENTS}")]
    TooMany(usize),
    /// The kernel refuses for another reason.
    #[error("`{event}` cannot be counted: perf_event_open: {error}")]
    Kernel {
        /// The event.
        event: Event,
        /// The kernel's error.
        error: io::Error,
    },
}

fn names(events: &[Event]) -> String {
    events.iter().map(|event| event.name()).collect::<Vec<_>>().join(", ")
}

impl Group {
    /// Starts to count these events for the calling thread.
    ///
    /// # Errors
    /// There are no counters, this processor does not count one of the events, or it is not permitted; there are more
    /// than [`MAX_EVENTS`] events, or no free file descriptors. Nothing stays open then.
    pub fn open(events: &[Event]) -> Result<Group, OpenError> {
        if events.len() > MAX_EVENTS {
            return Err(OpenError::TooMany(events.len()));
        }
        let mut group = Group { events: events.to_vec(), sets: Vec::new() };
        for (index, &event) in events.iter().enumerate() {
            let opened = if event.is_hardware() { group.add_hardware(index) } else { group.add_software(index) };
            opened?;
        }
        for set in &mut group.sets {
            set.map_pages();
        }
        Ok(group)
    }

    /// The events, in the order of [`Counts::get`].
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// Whether readings never need a system call.
    pub fn has_rdpmc(&self) -> bool {
        self.sets.iter().all(|set| !set.pages.is_empty())
    }

    /// The counts so far. Hot: allocates nothing; about 30 clocks for an event with RDPMC, else a system call for every
    /// four events (every sixteen of the kernel's).
    #[inline]
    pub fn reading(&self) -> Reading {
        let mut reading = Reading { counts: Counts { events: self.events.len(), samples: Default::default() } };
        for set in &self.sets {
            set.read(&mut reading.counts.samples);
        }
        reading
    }

    fn add_hardware(&mut self, index: usize) -> Result<(), OpenError> {
        let event = self.events[index];
        let pmu = Pmu::probe().map_err(|why| OpenError::NoPmu { event, why: why.clone() })?;
        let missing = || OpenError::NotHere { event, counted: pmu.events().to_vec() };
        let (what, less) = pmu.encode(event).ok_or_else(missing)?;
        self.add(index, what, less, true).map_err(|error| match error.kind() {
            ErrorKind::NotFound | ErrorKind::Unsupported | ErrorKind::InvalidInput => missing(),
            _ => OpenError::Kernel { event, error },
        })
    }

    fn add_software(&mut self, index: usize) -> Result<(), OpenError> {
        let event = self.events[index];
        let encoding = encoding(event, Microarchitecture::Other).expect("every kernel counts it");
        let what = |user_only| EventSpec { kind: encoding.kind, config: encoding.config, user_only };
        let is_refused = |error: &io::Error| error.kind() == ErrorKind::PermissionDenied;
        let opened = match self.add(index, what(false), None, false) {
            Err(error) if is_refused(&error) && !event.is_in_kernel() => self.add(index, what(true), None, false),
            opened => opened,
        };
        opened.map_err(|error| match is_refused(&error) {
            true => OpenError::NotPermitted { event, paranoid: paranoia() },
            false => OpenError::Kernel { event, error },
        })
    }

    /// Opens an event's counters in the last set of their kind, or in a new one if they do not fit.
    fn add(&mut self, event: usize, what: EventSpec, less: Option<EventSpec>, is_hardware: bool) -> io::Result<()> {
        let most = if is_hardware { MAX_IN_HARDWARE } else { MAX_GROUP_EVENTS };
        let needed = 1 + usize::from(less.is_some());
        let last = self.sets.iter_mut().rev().find(|set| set.is_hardware == is_hardware);
        if let Some(set) = last.filter(|set| set.counters.len() + needed <= most) {
            match set.add(event, what, less) {
                // The processor cannot count them together.
                Err(error) if error.kind() == ErrorKind::InvalidInput => {}
                added => return added,
            }
        }
        let mut set = CounterSet { counters: Vec::new(), shares: Vec::new(), pages: Vec::new(), is_hardware };
        set.add(event, what, less)?;
        self.sets.push(set);
        Ok(())
    }
}

impl CounterSet {
    /// Adds all counters that an event needs, or none.
    fn add(&mut self, event: usize, what: EventSpec, less: Option<EventSpec>) -> io::Result<()> {
        let counter = Counter::open(&what, self.counters.first())?;
        let less =
            less.map(|less| Counter::open(&less, Some(self.counters.first().unwrap_or(&counter)))).transpose()?;
        self.counters.push(counter);
        self.shares.push(Share { event, is_less: false });
        if let Some(less) = less {
            self.counters.push(less);
            self.shares.push(Share { event, is_less: true });
        }
        Ok(())
    }

    fn map_pages(&mut self) {
        let pages: io::Result<Vec<Page>> = self.counters.iter().map(Counter::page).collect();
        self.pages = pages.ok().filter(|pages| pages.iter().all(Page::can_sample)).unwrap_or_default();
    }

    #[inline]
    fn read(&self, samples: &mut [CounterSample; MAX_EVENTS]) {
        if self.pages.is_empty() {
            return self.ask(samples);
        }
        for (page, share) in self.pages.iter().zip(&self.shares) {
            share.record(page.sample(), samples);
        }
    }

    /// Reads with a system call. It cannot fail for an open counter; if it did, the events would have no counts.
    fn ask(&self, samples: &mut [CounterSample; MAX_EVENTS]) {
        let mut read = [CounterSample::default(); MAX_GROUP_EVENTS];
        let got = self.counters[0].read(&mut read).unwrap_or(0);
        for (share, sample) in self.shares.iter().zip(&read[..got]) {
            share.record(*sample, samples);
        }
    }
}

impl Share {
    #[inline]
    fn record(self, sample: CounterSample, samples: &mut [CounterSample; MAX_EVENTS]) {
        let recorded = &mut samples[self.event];
        if self.is_less {
            // Of the same set, so counted in the same time.
            recorded.count = recorded.count.wrapping_sub(sample.count);
        } else {
            *recorded = sample;
        }
    }
}

/// The counts of a [`Group`] at a moment. Only differences between two are meaningful.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    counts: Counts,
}

impl Reading {
    /// The counts from an earlier reading of the same group to this one.
    #[inline]
    pub fn since(&self, earlier: &Reading) -> Counts {
        let mut counts = self.counts;
        for (sample, earlier) in counts.samples[..counts.events].iter_mut().zip(&earlier.counts.samples) {
            sample.count = sample.count.wrapping_sub(earlier.count);
            sample.enabled = sample.enabled.saturating_sub(earlier.enabled);
            sample.running = sample.running.saturating_sub(earlier.running);
        }
        counts
    }
}

/// The counts of an interval, or of several that were added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    events: usize,
    samples: [CounterSample; MAX_EVENTS],
}

impl Counts {
    /// The count of the event with this index in [`Group::events`]. If the event was only counted for a part of the
    /// time, because it shares the processor's counters with others, this is extrapolated to all of it.
    ///
    /// `None` if it was not counted at all, or if there is no such event.
    pub fn get(&self, event: usize) -> Option<u64> {
        let CounterSample { count, enabled, running } = *self.samples[..self.events].get(event)?;
        // Negative: the subtracted event counts more than loads.
        let count = count.cast_signed().max(0).cast_unsigned();
        if enabled == running {
            return Some(count);
        }
        scaled(count, enabled, running)
    }

    /// Count and times of each event, in the order of [`Group::events`], for callers that add them up elsewhere. A
    /// count may be negative, as a wrapped number, if it is the difference of two counters.
    pub fn samples(&self) -> &[CounterSample] {
        &self.samples[..self.events]
    }

    /// All counts, in the order of [`Group::events`].
    pub fn iter(&self) -> impl Iterator<Item = Option<u64>> {
        Range { start: 0, end: self.events }.map(|event| self.get(event))
    }
}

impl AddAssign<&Counts> for Counts {
    fn add_assign(&mut self, other: &Counts) {
        self.events = self.events.max(other.events);
        for (sample, other) in self.samples.iter_mut().zip(&other.samples) {
            sample.count = sample.count.wrapping_add(other.count);
            sample.enabled = sample.enabled.saturating_add(other.enabled);
            sample.running = sample.running.saturating_add(other.running);
        }
    }
}

/// Extrapolates a count from the time in which it was counted to all of the time, rounded down.
fn scaled(count: u64, enabled: u64, running: u64) -> Option<u64> {
    let product = u128::from(count) * u128::from(enabled);
    let scaled = product.checked_div(u128::from(running))?;
    Some(u64::try_from(scaled).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn reading(samples: &[(u64, u64, u64)]) -> Reading {
        let mut counts = Counts { events: samples.len(), ..Counts::default() };
        for (place, &(count, enabled, running)) in counts.samples.iter_mut().zip(samples) {
            *place = CounterSample { count, enabled, running };
        }
        Reading { counts }
    }

    #[test]
    fn differences_are_scaled_by_the_share_of_time_in_which_they_were_counted() {
        let before = reading(&[(100, 1_000, 1_000), (100, 1_000, 500), (7, 10, 10)]);
        let after = reading(&[(150, 2_000, 2_000), (150, 2_000, 750), (7, 20, 10)]);
        let counts = after.since(&before);
        assert_eq!(counts.iter().collect::<Vec<_>>(), [Some(50), Some(200), None]);
        assert_eq!(counts.get(3), None);
    }

    #[test]
    fn intervals_that_were_not_counted_weigh_in_once_they_are_added_up() {
        let start = reading(&[(0, 0, 0)]);
        let counted = reading(&[(40, 10, 10)]);
        let missed = reading(&[(40, 20, 10)]);
        let mut sum = counted.since(&start);
        sum += &missed.since(&counted);
        assert_eq!(sum.get(0), Some(80));
        assert_eq!(sum, missed.since(&start));
    }

    #[test]
    fn a_difference_of_two_counters_is_not_less_than_none() {
        let mut samples = [CounterSample::default(); MAX_EVENTS];
        let sample = |count| CounterSample { count, enabled: 1, running: 1 };
        Share { event: 0, is_less: false }.record(sample(10), &mut samples);
        Share { event: 0, is_less: true }.record(sample(3), &mut samples);
        assert_eq!(samples[0].count, 7);
        Share { event: 0, is_less: true }.record(sample(9), &mut samples);
        let reading = Reading { counts: Counts { events: 1, samples } };
        assert_eq!(reading.since(&self::reading(&[(0, 0, 0)])).get(0), Some(0));
    }

    proptest! {
        /// The scaled count is the quotient rounded down: no other number satisfies these inequalities.
        #[test]
        fn scaling_rounds_the_exact_quotient_down(count: u64, running in 1u64.., more: u64) {
            let enabled = running.saturating_add(more);
            let scaled = u128::from(scaled(count, enabled, running).unwrap());
            let product = u128::from(count) * u128::from(enabled);
            if scaled < u128::from(u64::MAX) {
                prop_assert!(scaled * u128::from(running) <= product);
                prop_assert!(product - scaled * u128::from(running) < u128::from(running));
            } else {
                prop_assert!(product / u128::from(running) >= scaled);
            }
        }

        #[test]
        fn an_event_counted_all_the_time_is_exact(count in 0..=i64::MAX as u64, time: u64, start: [u64; 3]) {
            let before = reading(&[(start[0], start[1], start[1])]);
            let end = start[1].saturating_add(time);
            let after = reading(&[(start[0].wrapping_add(count), end, end)]);
            prop_assert_eq!(after.since(&before).get(0), Some(count));
        }
    }
}
