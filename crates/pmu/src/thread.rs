//! Counting on whatever thread asks, for those who move from one thread to another.

use std::cell::RefCell;

use crate::event::Event;
use crate::group::{Group, OpenError, Reading};

thread_local! {
    /// The counters of this thread, which cannot go to another one.
    static GROUP: RefCell<Option<Group>> = const { RefCell::new(None) };
}

/// Events that are counted on the thread that takes a reading, with what reading them counts by itself.
///
/// Unlike a [`Group`] it may be sent to another thread: each thread has counters of its own, which are opened when they are
/// read first. Two readings can be compared if one thread has taken both.
#[derive(Debug)]
pub struct ThreadEvents {
    events: Vec<Event>,
    overhead: Vec<u64>,
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

impl ThreadEvents {
    /// These events. Without any, nothing is opened and no reading is taken.
    ///
    /// # Errors
    /// When they cannot be counted on this thread.
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

    /// For each event what two readings count that follow one upon the other.
    pub fn overhead(&self) -> &[u64] {
        &self.overhead
    }

    /// What has been counted on this thread; nothing if it cannot count these events.
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
