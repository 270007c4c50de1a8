//! Reads the events of a network while they are written.

use crate::record::{Event, Id};

/// What a follower finds.
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    /// An event.
    Event(Event),
    /// Events are missing here.
    Missing(Missing),
}

/// A hole in the history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Missing {
    /// Number of events that were overwritten before they were read, or could not be written.
    pub events: u64,
    /// Number of lines that are damaged: a process died, or the disk was full, while they were written. The event of a
    /// damaged line is usually one of those that are missing.
    pub damaged_lines: u64,
}

impl Missing {
    /// Whether nothing is missing.
    pub fn is_none(&self) -> bool {
        *self == Missing::default()
    }
}

/// Follows the two files of a network. It is given their content, from wherever, as often as it may have changed.
///
/// Each event is returned once, in the order of their numbers, and each hole between two of them as well. What the
/// files contain is untrusted: any bytes give events or damaged lines.
#[derive(Clone, Debug, Default)]
pub struct Follower {
    last: Option<Id>,
}

impl Follower {
    /// A follower that has seen nothing.
    pub fn new() -> Follower {
        Follower::default()
    }

    /// The last event that was seen.
    pub fn last(&self) -> Option<Id> {
        self.last
    }

    /// Counts an event as seen that a reader has deduced before it is written: that with the next number.
    pub fn foresee(&mut self) -> Option<Id> {
        let Id { log, number } = self.last?;
        self.last = Some(Id { log, number: number.saturating_add(1) });
        self.last
    }

    /// Returns what is new in the files. Damaged lines count when an event follows them: the last line may be about to
    /// be completed. With `is_final`, they count in any case.
    pub fn read(&mut self, older: &[u8], current: &[u8], is_final: bool) -> Vec<Item> {
        let lines = || lines(older).chain(lines(current));
        // The history that the writer goes on with. Others in the files are not its own.
        let Some(log) = lines().rev().find_map(Event::of_line).map(|event| event.id.log) else {
            let damaged_lines = lines().count() as u64;
            let nothing = damaged_lines == 0 || !is_final;
            return if nothing { Vec::new() } else { vec![Item::Missing(Missing { events: 0, damaged_lines })] };
        };
        if self.last.is_some_and(|last| last.log != log) {
            self.last = None;
        }
        let mut items = Vec::new();
        let mut damaged_lines = 0;
        for line in lines() {
            let Some(event) = Event::of_line(line).filter(|event| event.id.log == log) else {
                damaged_lines += 1;
                continue;
            };
            let number = event.id.number;
            let missing = match self.last {
                Some(last) if number <= last.number => {
                    // Known, and so is what is before it.
                    damaged_lines = 0;
                    continue;
                }
                Some(last) => number - last.number - 1,
                // What was overwritten before this follower began is not missing.
                None => 0,
            };
            let missing = Missing { events: missing, damaged_lines };
            damaged_lines = 0;
            if !missing.is_none() {
                items.push(Item::Missing(missing));
            }
            self.last = Some(event.id);
            items.push(Item::Event(event));
        }
        if is_final && damaged_lines > 0 {
            items.push(Item::Missing(Missing { events: 0, damaged_lines }));
        }
        items
    }
}

/// The lines of a file that are not empty. A torn line may be followed by an empty one.
fn lines(content: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    content.split(|&byte| byte == b'\n').filter(|line| !line.is_empty())
}
