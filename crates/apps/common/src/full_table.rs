//! Events about tables that one port, interface or source has filled.

use std::collections::HashMap;
use std::fmt::Display;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use bellows_events::TableFull;

/// The shortest time between two events about one origin.
const PAUSE: u64 = 600_000_000_000;

/// The shortest time between two events about one table, so that many origins make no flood of them.
const GATE: u64 = 1_000_000_000;

/// From this number of origins on, those that were reported long ago are forgotten.
const MANY: usize = 1_024;

/// Tells who has filled a table, but not again and again.
#[derive(Debug)]
pub struct FullTable {
    /// What is in the table.
    table: &'static str,
    /// When the next event may be.
    next: AtomicU64,
    /// When each origin was last reported, by its number.
    told: Mutex<HashMap<u32, u64>>,
}

impl FullTable {
    /// For tables of one kind: what is in them.
    pub fn new(table: &'static str) -> FullTable {
        FullTable { table, next: AtomicU64::new(0), told: Mutex::default() }
    }

    /// Reports that an origin has filled the table of an app, unless it was reported lately. `name` gives the origin's
    /// name, and what follows for it.
    #[cold]
    pub fn tell<T: Display>(&self, app: &str, origin: u32, now: u64, name: impl FnOnce() -> (String, T)) {
        if self.is_due(origin, now) {
            let (port, outcome) = name();
            let FullTable { table, .. } = self;
            TableFull { app, table, port: &port }.log(format_args!(
                "the table of {table} is full, and `{port}` has more than its share of it: {outcome}"
            ));
        }
    }

    /// Whether nothing is reported now. Hot.
    #[inline]
    pub fn is_quiet(&self, now: u64) -> bool {
        now < self.next.load(Relaxed)
    }

    /// Whether to report an origin, which counts as reported from then on.
    fn is_due(&self, origin: u32, now: u64) -> bool {
        let next = self.next.load(Relaxed);
        if self.is_quiet(now) || self.next.compare_exchange(next, now + GATE, Relaxed, Relaxed).is_err() {
            return false;
        }
        let Ok(mut told) = self.told.try_lock() else { return false };
        if told.len() >= MANY {
            told.retain(|_, last| now < *last + PAUSE);
        }
        let is_due = told.get(&origin).is_none_or(|&last| now >= last + PAUSE);
        if is_due {
            told.insert(origin, now);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_origin_is_told_once_in_a_while_and_many_are_no_flood() {
        let full = FullTable::new("addresses");
        let times = [(1, 5, true), (2, 6, false), (2, 5 + GATE, true), (1, 5 + 2 * GATE, false), (1, 5 + PAUSE, true)];
        for (origin, now, expected) in times {
            assert_eq!(full.is_due(origin, now), expected, "{origin} at {now}");
        }
        let told = (0..5_000).filter(|&origin| full.is_due(origin + 9, 2 * PAUSE + u64::from(origin) * GATE)).count();
        assert!(told == 5_000 && full.told.lock().unwrap().len() <= MANY);
    }
}
