//! When a worker sleeps, and what wakes it.

use std::sync::Arc;
use std::time::Duration;

use bellows_observe::layout::{account, doing, engine as cells};
use bellows_sys::clock;
use bellows_sys::wake::sleep_until_readable;

use super::Worker;
use crate::app::erased::EntryPoint;
use crate::dispatch::sampled::sampled_pull;
use crate::runtime::slots::{BreathSlot, WakeSource, WatchedDescriptors};

/// The engine polls for a deadline closer than this, in nanoseconds: about what falling asleep and waking up costs.
const MIN_SLEEP_NS: u64 = 60_000;

/// Sleep between two polls of an app that has no descriptor.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Idle time in nanoseconds before the thread first sleeps: about what sleeping costs.
const IDLE_NS_BEFORE_SLEEP: u64 = 30_000;

/// What wakes a sleeping thread.
struct WakeUps {
    /// Maximum sleep.
    timeout: Option<Duration>,
    /// The watched values with descriptors, each with the app that watches it.
    watched: Vec<(usize, WatchedDescriptors)>,
}

impl Worker {
    /// Whether the thread has been idle long enough, and the next deadline is far enough, to sleep.
    pub(crate) fn may_sleep(&mut self) -> bool {
        let now = clock::now();
        self.note_time(now, self.breaths);
        let idle_since = *self.idle_since.get_or_insert(now);
        !self.settings.busywait
            && !self.state.sampler.is_awaited()
            && now >= idle_since.saturating_add(IDLE_NS_BEFORE_SLEEP)
            && self.state.next_deadline.get() > now.saturating_add(MIN_SLEEP_NS)
    }

    /// Sleeps until there is work.
    pub(crate) fn sleep(&mut self) {
        let (now, start) = (clock::now(), clock::ticks());
        self.sort_free_buffers();
        // Before the words are checked once more.
        self.graph.table().slots.iter().for_each(|slot| slot.set_asleep(true));
        self.sleep_armed(now, start);
        self.graph.table().slots.iter().for_each(|slot| slot.set_asleep(false));
    }

    /// What wakes the thread if it sleeps now; `None` if an app panicked in a query.
    fn wake_ups(&mut self, now: u64) -> Option<WakeUps> {
        let deadline = self.state.next_deadline.get();
        let until_deadline = (deadline != u64::MAX).then(|| Duration::from_nanos(deadline.saturating_sub(now)));
        let answers = self.query_apps(|app| (!app.is_finished(), app.held() > 0))?;
        let (nodes, table) = (&self.graph.nodes, self.graph.table());
        // An app must be polled, unless it wants a tick, if it left packets in its inputs, or brings in or holds
        // packets without a descriptor. A slot that can only be polled is polled even if its app wants a tick.
        let answers: Vec<_> = answers.into_iter().map(|(app, answer)| (&nodes[app], answer)).collect();
        let must_be_polled = answers.iter().any(|&(node, (pulls, holds))| {
            let wake_source = node.slots(table).iter().map(BreathSlot::wake_source).max();
            let has_work = node.has_input()
                || pulls && wake_source.is_none()
                || holds && wake_source != Some(WakeSource::Descriptor);
            pulls && wake_source == Some(WakeSource::Polling) || has_work && node.deadline.get() == u64::MAX
        });
        let polling = must_be_polled.then_some(POLL_INTERVAL);
        let timeout = polling.into_iter().chain(until_deadline).min();
        // The descriptor of an app without work may stay readable (a file at its end), and the thread would never sleep
        // again.
        let busy = answers.iter().filter(|(_, (pulls, holds))| *pulls || *holds);
        let watched = busy
            .flat_map(|(node, _)| {
                node.slots(table).iter().filter_map(|slot| Some((node.index, slot.watched_descriptors()?)))
            })
            .collect();
        Some(WakeUps { timeout, watched })
    }

    /// Sleeps after all slots were armed.
    fn sleep_armed(&mut self, now: u64, start: u64) {
        let Some(WakeUps { timeout, watched }) = self.wake_ups(now) else { return };
        let attention = Arc::clone(&self.attention);
        let mut descriptors = vec![attention.descriptor()];
        let mut owners = Vec::new();
        for (app, watched) in &watched {
            descriptors.extend(watched.descriptors().into_iter().inspect(|_| owners.push(*app)));
        }
        if self.has_others {
            bellows_packet::return_free_buffers_to_sleep();
        }
        let asleep_since = clock::now();
        let (table, slab) = (self.graph.table(), self.graph.slab());
        table.set(cells::DOING, doing::ASLEEP);
        let slept = sleep_until_readable(&descriptors, timeout);
        table.set(cells::ALIVE, clock::unix_ns());
        table.set(cells::DOING, doing::NOTHING);
        self.watchdog.wake();
        // Time has passed, and what has come shows in one breath.
        (self.has_woken, self.breaths_to_clock_read) = (true, 0);
        let awake_since = clock::now();
        match slept {
            Ok(readable) => {
                let owners = owners.into_iter().zip(readable.into_iter().skip(1));
                let mut woken: Vec<usize> =
                    owners.filter_map(|(app, is_readable)| is_readable.then_some(app)).collect();
                woken.dedup();
                for &app in &woken {
                    slab.add(self.graph.nodes[app].account + account::SLEEPS, 1);
                }
                self.note_sleep(asleep_since, awake_since);
                self.pull(&woken);
            }
            Err(_) => {
                std::thread::sleep(POLL_INTERVAL);
                self.note_sleep(asleep_since, clock::now());
            }
        }
        // Only here: requests are checked next.
        self.attention.wake();
        self.graph.table().count(cells::SLEEPS, 1);
        self.graph.table().count(cells::SLEEP_NS, clock::now().saturating_sub(now));
        self.state.sampler.on_timeline(|timeline| timeline.sleep(start, clock::ticks() - start));
    }

    /// Notes that the thread slept between two times.
    fn note_sleep(&mut self, from: u64, to: u64) {
        self.note_time(from, self.breaths);
        if let Some(pace) = &mut self.pace {
            pace.slept(from, to, self.breaths);
        }
    }

    /// Pulls the apps whose descriptors woke the thread, whatever their words hold: only they can clear the
    /// descriptors.
    fn pull(&mut self, apps: &[usize]) {
        self.state.forget_time();
        self.state.snapshot_buffer_use();
        let is_sampled = self.begin_sampled();
        for &app in apps {
            let call = self.graph.apps[app].entry(EntryPoint::Pull, self.settings.lossless);
            let node = &self.graph.nodes[app];
            // SAFETY: the call is made for the app of this node, to which nothing else refers now.
            unsafe { if is_sampled { sampled_pull(node, call) } else { call(node) } };
        }
        if self.state.failures.get() > 0 {
            self.replace_failed();
        }
    }
}
