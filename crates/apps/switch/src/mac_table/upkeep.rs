//! The work on a table that one bridge at a time does between two breaths: ageing and growing.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::MacTable;
use super::entry::{AGES, Entry};
use super::slots::Slots;

/// An entry expires when it is this number of steps of the age behind.
pub(super) const STEPS: u32 = 32;

/// Lines that are looked through at a time: some microseconds.
const LINES_AT_A_TIME: usize = 256;

/// The time between two looks at workers that must pass a breath.
const PASS_NS: u64 = 1_000_000;

/// The work that one bridge at a time does.
#[derive(Default)]
pub(super) struct Upkeep {
    /// The time of the next step of the age, once there is one.
    next_step: Option<u64>,
    pub(super) work: Work,
}

/// What is being done, a few lines at a time.
#[derive(Default)]
pub(super) enum Work {
    #[default]
    Nothing,
    /// Removes what is too old, or at a port that no bridge has any more, from this line on.
    Expire { line: usize, unused: Vec<bool> },
    /// Copies the entries to a larger table that nobody knows yet.
    Copy { line: usize, larger: Arc<Slots> },
    /// Waits until no worker writes to the old table, then copies what has been learned there meanwhile.
    Follow { line: usize, old: Arc<Slots> },
}

impl MacTable {
    /// Whether the table is more than half full, and may grow.
    pub(super) fn is_tight(&self, slots: &Slots) -> bool {
        slots.used() * 2 > slots.len() && slots.len() < self.capacity.load(Relaxed) * 2
    }

    /// Does a part of the work that is due: ageing and growing. Returns when to call again. Meant for
    /// [`App::tick`](bellows_engine::App::tick) of each bridge.
    pub(crate) fn upkeep(&self, now: u64) -> u64 {
        self.has_other_steps.store(false, Relaxed);
        let step_ns = self.step_ns.load(Relaxed);
        let Ok(mut upkeep) = self.upkeep.try_lock() else { return now + step_ns };
        // A change of the network file may have made the steps shorter.
        let next_step = upkeep.next_step.get_or_insert(now + step_ns);
        *next_step = (*next_step).min(now + step_ns);
        if now >= *next_step {
            let steps = 1 + (now - *next_step) / step_ns;
            *next_step += steps * step_ns;
            if steps >= u64::from(STEPS) {
                // The steps of the entries are no longer comparable, and all are too old.
                let mut slots = self.slots.lock();
                slots.get().remove(0..slots.get().lines(), |entry| !entry.is_static);
                slots.reclaim();
            }
            let age = (u64::from(self.age.load(Relaxed)) + steps) % u64::from(AGES);
            self.age.store(age as u32, Relaxed);
            if matches!(upkeep.work, Work::Nothing) {
                upkeep.work = Work::Expire { line: 0, unused: self.ports.unused() };
                self.ports_in_use.store(self.ports.in_use(), Relaxed);
            }
        }
        let next_step = upkeep.next_step.unwrap_or(now);
        self.work(&mut upkeep.work).map_or(next_step, |pause| now + pause)
    }

    /// Goes on with the work. Returns the time until it goes on, if there is more.
    fn work(&self, work: &mut Work) -> Option<u64> {
        let mut writer = self.slots.lock();
        let pending = writer.reclaim();
        let slots = Arc::clone(writer.get());
        match work {
            Work::Nothing if self.is_tight(&slots) => {
                *work = Work::Copy { line: 0, larger: Arc::new(Slots::new(slots.lines() * 2)) };
                Some(0)
            }
            Work::Nothing => None,
            Work::Expire { line, unused } => {
                let lines = part(*line, &slots);
                *line = lines.end;
                let age = self.age.load(Relaxed);
                slots.remove(lines, |entry| {
                    let is_unused = unused.get(usize::from(entry.port)) == Some(&true);
                    !entry.is_static && (is_unused || age.wrapping_sub(entry.age) % AGES >= STEPS)
                });
                if *line == slots.lines() {
                    *work = Work::Nothing;
                }
                Some(0)
            }
            Work::Copy { line, larger } => {
                let lines = part(*line, &slots);
                *line = lines.end;
                slots.entries(lines).for_each(|entry| copy(entry, larger));
                if *line == slots.lines() {
                    writer.replace(Arc::clone(larger));
                    *work = Work::Follow { line: 0, old: slots };
                }
                Some(0)
            }
            Work::Follow { .. } if pending > 0 => Some(PASS_NS),
            Work::Follow { line, old } => {
                let lines = part(*line, old);
                *line = lines.end;
                old.entries(lines).for_each(|entry| copy(entry, &slots));
                if *line == old.lines() {
                    *work = Work::Expire { line: 0, unused: Vec::new() };
                }
                Some(0)
            }
        }
    }
}

/// Copies an entry to a larger table that does not know its address.
fn copy(entry: Entry, larger: &Slots) {
    if entry.is_static {
        larger.enter(entry);
    } else {
        // A worker must not sleep here: one that is left out is learned again.
        larger.change(larger.hashed(entry.key), |known| known.is_none().then_some(entry));
    }
}

/// The next lines of a table.
fn part(line: usize, slots: &Slots) -> std::ops::Range<usize> {
    line..slots.lines().min(line + LINES_AT_A_TIME)
}
