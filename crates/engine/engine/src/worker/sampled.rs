//! Sampled breaths, the pace of breaths, and the work that is done at intervals of breaths.

use std::mem;

use bellows_observe::layout::engine as cells;
use bellows_sys::clock;

use super::Worker;
use crate::runtime::state::ThreadState;

/// Sampled breaths between two sorts of the free buffers.
pub(super) const SORT_INTERVAL: u32 = 32;

impl Worker {
    /// Whether the next breath is sampled. If so, it begins with the calls before it.
    pub(super) fn begin_sampled(&self) -> bool {
        let is_chosen = self.settings.sampling && self.breaths_to_sample == 0;
        let is_sampled = is_chosen || self.state.sampler.samples_all.get();
        if is_sampled {
            self.state.sampler.begin_breath(is_chosen);
        }
        is_sampled
    }

    /// Takes a sampled breath. It is recorded if it was chosen at random, not if it is sampled only for a trace or tap.
    pub(super) fn take_sampled(&mut self) {
        let is_chosen = self.breaths_to_sample == 0;
        let ThreadState { sampler, moved, .. } = &*self.state;
        if is_chosen {
            self.breaths_to_sample = sampler.next_interval();
            // A trial chooses more breaths, but the free buffers are sorted as often as before.
            self.samples_to_sort = self.samples_to_sort.saturating_sub(u32::from(!sampler.trials.are_running()));
        } else {
            self.breaths_to_sample -= 1;
        }
        let before = moved.get();
        let start = sampler.begin_breath(is_chosen);
        if sampler.is_recording() {
            self.graph.table().count(cells::SAMPLED, 1);
        }
        if sampler.marks_departure() {
            // What arrived in calls before this, which began the breath, is passed on marked, too.
            self.state.marks_departure.set(true);
        }
        self.graph.take_sampled(&self.state);
        self.state.marks_departure.set(false);
        let end = sampler.end_breath(self.graph.table(), moved.get() != before);
        self.note_time(clock::at(start), self.breaths);
        self.note_time(clock::at(end), self.breaths + 1);
    }

    /// Notes that the thread was between two breaths at a time, after `breaths` breaths: a breath since the last such
    /// time may have been slow.
    #[inline]
    pub(super) fn note_time(&mut self, now: u64, breaths: u64) {
        match &mut self.pace {
            Some(pace) if pace.is_late(now, &self.watchdog) => self.check_pace(now, breaths),
            Some(pace) => pace.go_on(now, breaths),
            None => {}
        }
    }

    #[cold]
    fn check_pace(&mut self, now: u64, breaths: u64) {
        let watchdog = &self.watchdog;
        let Some(slow) = self.pace.as_mut().and_then(|pace| pace.judge(now, breaths, watchdog)) else { return };
        let is_standstill = slow.is_standstill(self.settings.breath_limit);
        let cell = if is_standstill { cells::STANDSTILLS } else { cells::SLOW_BREATHS };
        self.graph.table().count(cell, 1);
        self.state.sampler.on_timeline(|timeline| timeline.slow(clock::ticks(), &slow, is_standstill));
        watchdog.keep(slow);
    }

    /// Tells the watchdog that the breath which it asked about is over.
    pub(crate) fn answer_watchdog(&mut self) {
        let now = clock::now();
        self.note_time(now, self.breaths);
        if let Some(pace) = &mut self.pace {
            pace.sign(now, &self.watchdog);
        }
    }

    /// Sorts the free buffers if packets moved since the last sort: see [`bellows_packet::sort_free_buffers`].
    #[cold]
    pub(super) fn sort_free_buffers(&mut self) {
        self.samples_to_sort = SORT_INTERVAL;
        let moved = self.state.moved.get();
        if mem::replace(&mut self.sorted_at, moved) != moved {
            bellows_packet::sort_free_buffers();
        }
    }
}
