//! Counts on any thread that asks, for callers that move between threads.

use std::cell::RefCell;

use crate::event::Event;
use crate::group::{Group, OpenError, Reading};

thread_local! {
    /// The counters of this thread, which cannot be sent to another one.
    static GROUP: RefCell<Option<Group>> = const { RefCell::new(None) };
}

/// Events that are counted on the thread that takes a reading, with the cost of a reading itself.
///
/// Unlike a [`Group`] it can be sent to another thread: each thread has its own counters, which are opened at the first
/// reading. Two readings can be compared if the same thread has taken both.
#[derive(Debug)]
pub struct ThreadEvents {
    events: Vec<Event>,
    overhead: Vec<u64>,
}

/// Opens counters for this thread, in place of those for other events.
fn open(events: &[Event]) -> Result<(), OpenError> {
    GROUP.with_borrow_mut(|group| {
        if group.as_ref().is_none_or(|group| group.events() != events) {
            *group = Some(Group::open(events)?);
        }
        Ok(())
    })
}

/// The counts on this thread; `None` if its counters are for other events, and new ones cannot be opened.
#[inline(never)]
fn read(events: &[Event]) -> Option<Reading> {
    open(events).ok()?;
    GROUP.with_borrow(|group| group.as_ref().map(Group::reading))
}

/// The counts between two consecutive readings: the minimum of many.
fn overhead(events: &[Event]) -> Vec<u64> {
    let once = || {
        let before = read(events)?;
        let counts = read(events)?.since(&before);
        Some(counts.iter().map(|count| count.unwrap_or(0)).collect::<Vec<u64>>())
    };
    let least = |least: Vec<u64>, counts: Vec<u64>| least.into_iter().zip(counts).map(|(a, b)| a.min(b)).collect();
    (0..100).filter_map(|_| once()).reduce(least).unwrap_or_default()
}

impl ThreadEvents {
    /// Counts these events. Without events, nothing is opened and no reading is taken.
    ///
    /// # Errors
    /// They cannot be counted on this thread.
    pub fn new(events: &[Event]) -> Result<ThreadEvents, OpenError> {
        if events.is_empty() {
            return Ok(ThreadEvents { events: Vec::new(), overhead: Vec::new() });
        }
        open(events)?;
        Ok(ThreadEvents { events: events.to_vec(), overhead: overhead(events) })
    }

    /// The events.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// For each event, the counts between two consecutive readings.
    pub fn overhead(&self) -> &[u64] {
        &self.overhead
    }

    /// The counts on this thread; `None` if it cannot count these events.
    #[inline]
    pub fn reading(&self) -> Option<Reading> {
        if self.events.is_empty() { None } else { read(&self.events) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_go_with_their_owner_to_another_thread() {
        let events = ThreadEvents::new(&["page_faults".parse().unwrap()]).unwrap();
        let faults = |events: &ThreadEvents| {
            let before = events.reading().unwrap();
            let memory = vec![1_u8; 64 << 20];
            std::hint::black_box(&memory);
            events.reading().unwrap().since(&before).get(0)
        };
        assert!(faults(&events) > Some(0));
        let events = std::thread::spawn(move || {
            assert!(faults(&events) > Some(0));
            events
        });
        assert_eq!(events.join().unwrap().overhead(), [0]);
    }

    #[test]
    fn without_events_nothing_is_read() {
        let none = ThreadEvents::new(&[]).unwrap();
        assert!(none.reading().is_none() && none.events().is_empty());
    }
}
