//! One engine thread: its apps and links, its clock, its samples, the loop over breaths, and sleep.
//!
//! The worker knows nothing of the process around it, nor of other workers. It takes breaths until another thread makes
//! a request, it is idle, or no app can take packets any more, and returns the reason.

use std::cell::RefMut;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use bellows_arena::Fixed;
use bellows_observe::layout::{Activity, account, common, doing, engine as cells};
use bellows_observe::{Pace, Watchdog};
use bellows_packet::{BufferUse, buffer_use, pool};
use bellows_ring::verdicts::Verdict;
use bellows_shared::{Reader, Readers};
use bellows_sys::clock;
use bellows_sys::wake::sleep_until_readable;
use bellows_watch::Watch;

use crate::app::erased::{AppBox, DynApp, Entry, FailedApp, erase, try_stop};
use crate::configuration::Graph;
use crate::dispatch::sampled::{sampled_pull, sampled_tick};
use crate::panics::catch_panic;
use crate::runtime::attention::{Attention, request};
use crate::runtime::links::{LinkTable, with_drop_reason};
use crate::runtime::sampling::{self, Sampler};
use crate::runtime::slots::{Slot, WakeSource, WatchedDescriptors};
use crate::runtime::state::ThreadState;
use crate::runtime::trials::Trial;
use crate::settings::Settings;

/// The engine polls for a deadline closer than this, in nanoseconds: about what falling asleep and waking up costs.
const MIN_SLEEP_NS: u64 = 60_000;

/// Sleep between two polls of an app that has no descriptor.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Breaths between two checks for idleness while packets move.
const BUSY_WINDOW: u64 = 64;

/// The same while no packet moves. The checks take as long as some breaths, in which the worker would miss a packet.
const IDLE_WINDOW: u64 = 256;

/// Checks for idleness between two complete ones of a worker that rests.
const RESTING_CHECKS: u32 = 64;

/// Idle breaths between two clock reads while an app wants a tick.
const IDLE_CLOCK_READ_INTERVAL: u64 = 16;

/// Sampled breaths between two sorts of the free buffers.
const SORT_INTERVAL: u32 = 32;

/// Idle time in nanoseconds before the thread first sleeps: about what sleeping costs.
const IDLE_NS_BEFORE_SLEEP: u64 = 30_000;

/// Why a worker stopped taking breaths.
pub(crate) enum ExitReason {
    /// Another thread made a request.
    Request,
    /// No packet moved lately.
    Idle,
    /// No app in which packets end can take more.
    Closed,
}

/// What wakes a sleeping thread.
struct WakeUps {
    /// Maximum sleep.
    timeout: Option<Duration>,
    /// The watched values with descriptors, each with the app that watches it.
    watched: Vec<(usize, WatchedDescriptors)>,
}

/// One engine thread.
pub(crate) struct Worker {
    /// At a stable address, to which nodes point.
    state: Fixed<ThreadState>,
    pub(crate) graph: Graph,
    settings: Settings,
    pub(crate) attention: Arc<Attention>,
    pub(crate) watchdog: Arc<Watchdog>,
    breaths: u64,
    /// Breaths until the next clock read, while an app wants a tick.
    breaths_to_clock_read: u64,
    /// Breaths until the next sampled one.
    breaths_to_sample: u64,
    /// Sampled breaths until the free buffers are sorted, and `moved` at the last sort.
    samples_to_sort: u32,
    sorted_at: u64,
    /// Whether a packet moved when breaths were last taken.
    busy: bool,
    /// Start of the idle period, as far as checked: in nanoseconds of the engine's clock.
    idle_since: Option<u64>,
    /// The pace of breaths while the engine runs.
    pace: Option<Pace>,
    /// Positions of apps that panicked since the last call of `take_failed`.
    failed: Vec<usize>,
    /// An app that was not finished at the last check: the first to check again.
    unfinished_app: usize,
    /// Whether all its apps in which packets end have declared that they take no more.
    has_closed: bool,
    /// Its part in the reclamation of shared values.
    reader: Reader,
    /// Checks to skip while it rests.
    checks_to_skip: u32,
    /// If it rested at its last verdict, the number of breaths in which a packet had moved by then.
    rested_at: Option<u64>,
    /// Whether other workers may need its free buffers.
    has_others: bool,
}

impl Worker {
    pub(crate) fn new(
        graph: Graph,
        settings: Settings,
        sampler: Sampler,
        attention: Arc<Attention>,
        watchdog: Arc<Watchdog>,
    ) -> Worker {
        let burst = settings.burst.clamp(1, bellows_packet::CAPACITY);
        let state = Fixed::new(ThreadState::new(burst, settings.lossless, sampler));
        let mut graph = graph;
        graph.attach(&state);
        let reader = {
            let attention = Arc::clone(&attention);
            Readers::of_process().enrol(move || attention.raise(request::PASS))
        };
        let breaths_to_sample =
            if settings.sampling { state.sampler.next_interval() } else { sampling::RECORD_INTERVAL };
        Worker {
            state,
            graph,
            settings,
            attention,
            watchdog,
            breaths: 0,
            breaths_to_clock_read: 0,
            breaths_to_sample,
            samples_to_sort: SORT_INTERVAL,
            sorted_at: 0,
            busy: false,
            idle_since: None,
            pace: None,
            failed: Vec::new(),
            unfinished_app: 0,
            has_closed: false,
            reader,
            checks_to_skip: 0,
            rested_at: None,
            has_others: false,
        }
    }

    /// Whether an app wants a tick.
    pub(crate) fn has_deadline(&self) -> bool {
        self.state.next_deadline.get() != u64::MAX
    }

    /// Sets the clock by hand, for tests.
    pub(crate) fn set_time(&self, nanos: u64) {
        self.state.manual_time.set(Some(nanos));
    }

    /// The apps that panicked since the last call. Stand-ins have replaced them.
    pub(crate) fn take_failed(&mut self) -> Vec<usize> {
        mem::take(&mut self.failed)
    }

    /// The number of breaths in which a packet moved.
    pub(crate) fn moved(&self) -> u64 {
        self.state.moved.get()
    }

    /// Between two breaths: no app has a reference to a shared value.
    pub(crate) fn pass(&self) {
        self.reader.pass();
    }

    /// Whether apps have panicked since then.
    pub(crate) fn has_failures(&self) -> bool {
        !self.failed.is_empty()
    }

    /// The graph of a worker that works no more.
    pub(crate) fn into_graph(self) -> Graph {
        self.graph
    }

    /// The sampler of this thread.
    pub(crate) fn sampler(&self) -> &Sampler {
        &self.state.sampler
    }

    /// Whether other workers run beside it from now on.
    pub(crate) fn set_has_others(&mut self, has_others: bool) {
        self.has_others = has_others;
    }

    /// Starts or stops timing the pace of breaths. Called on the worker's thread.
    pub(crate) fn set_running(&mut self, is_running: bool) {
        if !is_running && self.has_others {
            bellows_packet::return_free_buffers();
        }
        self.pace = is_running.then(|| Pace::begin(clock::now(), self.breaths));
    }

    /// Replaces apps by stand-ins that panicked outside of breaths.
    pub(crate) fn report_panics(&mut self, apps: &[usize]) {
        apps.iter().for_each(|&app| self.state.report_panic(app));
        if !apps.is_empty() {
            self.replace_failed();
        }
    }

    /// Takes `breaths` breaths, whatever happens in them. Returns the number of breaths in which a packet moved.
    pub(crate) fn breathe_times(&mut self, breaths: u64) -> u64 {
        let (before, end) = (self.state.moved.get(), self.breaths.saturating_add(breaths));
        // A caller that takes breaths by hand may have set the clock.
        self.breaths_to_clock_read = 0;
        while self.breaths < end {
            self.take_breaths(end - self.breaths, &AtomicU32::new(0));
        }
        self.state.moved.get() - before
    }

    /// Takes breaths until the process must act.
    pub(crate) fn run(&mut self) -> ExitReason {
        let attention = Arc::clone(&self.attention);
        loop {
            let window = if self.busy { BUSY_WINDOW } else { IDLE_WINDOW };
            let (moved, end) = (self.state.moved.get(), self.breaths + window);
            // At least one breath: idleness cannot be detected without one.
            loop {
                self.take_breaths(end - self.breaths, attention.word());
                if self.breaths >= end || attention.is_pending() {
                    break;
                }
            }
            if self.has_others {
                // Another worker may have found none.
                bellows_packet::share_free_buffers();
            }
            if self.state.closed.get() && self.is_closed() {
                return ExitReason::Closed;
            }
            if self.state.moved.get() == moved {
                return ExitReason::Idle;
            }
            self.idle_since = None;
            if attention.is_pending() {
                return ExitReason::Request;
            }
        }
    }

    /// Works until the first worker asks this one to pause; `first` is how to reach it.
    pub(crate) fn serve(&mut self, first: &Attention) {
        let attention = Arc::clone(&self.attention);
        loop {
            let requests = if attention.is_pending() { attention.take() } else { 0 };
            if requests & request::WATCHDOG != 0 {
                self.answer_watchdog();
            }
            if requests & request::GAUGES != 0 {
                self.write_gauges();
            }
            if requests & request::PASS != 0 {
                self.pass();
            }
            if requests & request::PAUSE != 0 {
                return;
            }
            let moved = self.state.moved.get();
            let exit_reason = self.run();
            self.has_closed |= matches!(exit_reason, ExitReason::Closed);
            let has_moved = self.state.moved.get() != moved;
            let verdict = match exit_reason {
                _ if self.has_closed => Verdict::Closed,
                ExitReason::Idle if self.still_rests() => Verdict::Rests,
                ExitReason::Request if !has_moved => attention.published().verdict(),
                _ => Verdict::Works,
            };
            self.rested_at = (verdict != Verdict::Works).then(|| self.moved());
            attention.judge(verdict, has_moved, self.has_failures(), first);
            if matches!(exit_reason, ExitReason::Idle) && self.may_sleep() {
                self.write_gauges();
                self.sleep();
            }
        }
    }

    /// Whether the worker itself has nothing left to do: its apps are finished and hold nothing, and nothing will move
    /// what waits in its links.
    pub(crate) fn rests(&mut self) -> bool {
        let is_app = |app: usize| app < self.graph.topology.apps.len();
        let apps = &self.graph.apps;
        let unfinished = self.unfinished_app;
        if catch_panic(|| apps.get(unfinished).is_some_and(|app| !app.is_finished())).unwrap_or(false) {
            return false;
        }
        let apps: Vec<usize> = self.graph.own.iter().copied().filter(|&app| is_app(app)).collect();
        let Some(answers) = self.query_apps(|app| (app.is_finished(), app.held())) else { return false };
        let mut answers = answers.into_iter().filter(|(app, _)| apps.contains(app));
        let mut held = 0;
        let unfinished = answers.find(|(_, (finished, holds))| {
            held += holds;
            !finished
        });
        if let Some((app, _)) = unfinished {
            self.unfinished_app = app;
            return false;
        }
        held == 0 && (self.graph.waiting_links().is_empty() || !self.will_wake())
    }

    /// Whether the worker rests, for one that is idle time and again: one that rested and has not moved a packet since is
    /// checked now and then only.
    pub(crate) fn still_rests(&mut self) -> bool {
        if self.checks_to_skip > 0 && self.has_rested() {
            self.checks_to_skip -= 1;
            return true;
        }
        self.checks_to_skip = RESTING_CHECKS;
        let rests = self.rests();
        self.rested_at = rests.then(|| self.moved());
        rests
    }

    /// Whether the worker rested at its last verdict, and nothing has moved since.
    pub(crate) fn has_rested(&self) -> bool {
        self.rested_at == Some(self.moved()) && !self.state.progress.get()
    }

    /// Whether anything will wake the worker besides other workers.
    pub(crate) fn will_wake(&self) -> bool {
        let apps = self.graph.nodes.iter().take(self.graph.topology.apps.len());
        let mut slots = apps.flat_map(|node| node.slots(self.graph.table()));
        self.has_deadline() || slots.any(|slot| slot.watched_descriptors().is_some())
    }

    /// Takes up to `max_breaths` breaths, and at least one; fewer if something needs attention in between.
    fn take_breaths(&mut self, max_breaths: u64, attention: &AtomicU32) {
        let state = &self.state;
        state.forget_time();
        state.snapshot_buffer_use();
        let mut max_breaths = max_breaths;
        if state.next_deadline.get() == u64::MAX {
            self.breaths_to_clock_read = 0;
        } else {
            if self.breaths_to_clock_read == 0 {
                if state.next_deadline.get() <= state.now() {
                    self.tick();
                }
                self.breaths_to_clock_read = if self.busy { 1 } else { IDLE_CLOCK_READ_INTERVAL };
                // The breath that follows at once knows the time; later breaths must read it again.
                if !self.busy {
                    self.state.forget_time();
                }
            }
            max_breaths = max_breaths.min(self.breaths_to_clock_read);
        }
        let state = &self.state;
        state.interrupt.set(u32::from(state.next_deadline.get() != u64::MAX));
        let moved = state.moved.get();
        if self.breaths_to_sample == 0 && !self.settings.sampling {
            self.breaths_to_sample = sampling::RECORD_INTERVAL;
            self.samples_to_sort = self.samples_to_sort.saturating_sub(1);
        }
        let taken = if self.breaths_to_sample == 0 || state.sampler.samples_all.get() {
            self.take_sampled();
            1
        } else {
            let taken = self.graph.take(state, attention, max_breaths.min(self.breaths_to_sample));
            self.breaths_to_sample -= taken;
            taken
        };
        self.breaths += taken;
        let state = &self.state;
        if state.progress.get() && !state.pushes_pending.get() {
            // A tick moved packets, and no app was called since. (A breath whose pushes are pending ends when it is
            // finished.)
            state.end_breath();
        }
        self.busy = state.moved.get() != moved;
        // A sampled breath must not bring the next clock read forward: sampled breaths would then find more ticks due
        // than others.
        self.breaths_to_clock_read = if self.busy { 0 } else { self.breaths_to_clock_read.saturating_sub(taken) };
        if state.failures.get() > 0 {
            self.replace_failed();
        }
        if self.samples_to_sort == 0 {
            self.sort_free_buffers();
        }
    }

    /// Whether the next breath is sampled. If so, it begins with the calls before it.
    fn begin_sampled(&self) -> bool {
        let is_chosen = self.settings.sampling && self.breaths_to_sample == 0;
        let is_sampled = is_chosen || self.state.sampler.samples_all.get();
        if is_sampled {
            self.state.sampler.begin_breath(is_chosen);
        }
        is_sampled
    }

    /// Takes a sampled breath. It is recorded if it was chosen at random, not if it is sampled only for a trace or tap.
    fn take_sampled(&mut self) {
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
    fn note_time(&mut self, now: u64, breaths: u64) {
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
    fn sort_free_buffers(&mut self) {
        self.samples_to_sort = SORT_INTERVAL;
        let moved = self.state.moved.get();
        if mem::replace(&mut self.sorted_at, moved) != moved {
            bellows_packet::sort_free_buffers();
        }
    }

    /// Calls the apps whose deadline has come.
    #[cold]
    fn tick(&mut self) {
        let Graph { nodes, apps, .. } = &self.graph;
        let state = &self.state;
        let now = state.now();
        let is_sampled = self.begin_sampled();
        state.next_deadline.set(u64::MAX);
        for (node, app) in nodes.iter().zip(apps) {
            if node.deadline.get() <= now {
                node.deadline.set(u64::MAX);
                let call = app.entry(Entry::Tick, self.settings.lossless);
                // SAFETY: the call is made for the app of this node, to which nothing else refers now.
                unsafe { if is_sampled { sampled_tick(node, call) } else { call(node) } };
            }
        }
        let next = nodes.iter().map(|node| node.deadline.get()).min();
        state.next_deadline.set(next.unwrap_or(u64::MAX));
        if state.failures.get() > 0 {
            self.replace_failed();
        }
    }

    /// Replaces apps that panicked by stand-ins, and finishes an interrupted breath.
    #[cold]
    fn replace_failed(&mut self) {
        let in_hand_is_unknown = self.state.in_hand_unknown.take();
        self.state.failures.set(0);
        for app in self.state.failed.take() {
            self.failed.push(app);
            let name = self.graph.nodes[app].name;
            self.state.sampler.on_timeline(|timeline| timeline.panic(name, clock::ticks()));
            let dead = self.graph.replace_failed(app, AppBox::from(erase(FailedApp)));
            // The app may be in any state: its packets are freed, and a second panic stops here.
            let buffers = buffer_use();
            let drop_completed = with_drop_reason(common::APP_FAILED, || catch_panic(|| drop(dead))).is_some();
            let (node, slab) = (&self.graph.nodes[app], self.graph.slab());
            let change = buffer_use().since(buffers);
            node.record(change);
            let mut lost = change.freed.wrapping_sub(change.taken);
            if !drop_completed {
                // Packets that a second panic kept from being freed are lost.
                let leaked = node.discrepancy(0).leaked.max(0).cast_unsigned();
                node.record(BufferUse { taken: 0, freed: leaked });
                lost += leaked;
            }
            slab.add(node.cell + common::APP_FAILED, lost);
            if in_hand_is_unknown {
                // In an app in which no packets end, every packet freed without a reason was in hand.
                let in_hand = node.discrepancy(0).uncounted.max(0).cast_unsigned();
                slab.add(node.cell + common::APP_FAILED, in_hand);
            }
            self.state.sampler.after_failure(self.graph.table(), app);
        }
        self.graph.recompile(&self.settings);
        self.idle_since = None;
        self.state.snapshot_buffer_use();
        if self.state.pushes_pending.replace(false) {
            self.graph.finish(&self.state);
            if self.state.failures.get() > 0 {
                self.replace_failed();
            }
        }
    }

    /// Whether every app in which packets end has [declared](crate::Io::close) that it takes no more.
    #[cold]
    fn is_closed(&self) -> bool {
        self.state.closed.set(false);
        let ends = self.ends();
        ends.iter().all(|closed| *closed) && !ends.is_empty()
    }

    /// For each linked app in which packets end, whether it has declared that it takes no more.
    pub(crate) fn ends(&self) -> Vec<bool> {
        let Graph { nodes, own, .. } = &self.graph;
        // The sides of crossings do not count.
        let entry = |app: usize| self.graph.slab().directory.apps.get(app);
        let nodes = own.iter().map(|&app| &nodes[app]).filter(|node| entry(node.index).is_some_and(|entry| entry.ends));
        nodes.filter(|node| node.has_linked_input()).map(|node| node.closed.get()).collect()
    }

    /// Queries every app of the worker between breaths, and the sides of its crossings. Returns the positions with the
    /// answers, or `None` if an app panicked: a stand-in has replaced it, and the run goes on.
    pub(crate) fn query_apps<T>(&mut self, query: impl Fn(&dyn DynApp) -> T) -> Option<Vec<(usize, T)>> {
        let (graph, table) = (&self.graph, self.graph.table());
        let ask = |&app: &usize| {
            table.set(cells::DOING, doing::with(Activity::Question, app));
            (app, catch_panic(|| query(&*graph.apps[app])))
        };
        let answers: Vec<(usize, Option<T>)> = graph.own.iter().map(ask).collect();
        table.set(cells::DOING, doing::NOTHING);
        let failed: Vec<usize> = answers.iter().filter(|(_, answer)| answer.is_none()).map(|(app, _)| *app).collect();
        self.report_panics(&failed);
        answers.into_iter().map(|(app, answer)| Some((app, answer?))).collect()
    }

    /// Writes the gauges of the worker, and checks its apps' books.
    pub(crate) fn write_gauges(&mut self) {
        // A stand-in replaces an app that panics in `held`, and holds nothing.
        let held = loop {
            if let Some(held) = self.query_apps(|app| app.held()) {
                break held;
            }
        };
        self.write_gauges_with(held.into_iter().map(|(app, held)| (app, Some(held))));
    }

    /// Writes the gauges, given the number of packets that each app holds, if known.
    pub(crate) fn write_gauges_with(&self, held: impl Iterator<Item = (usize, Option<usize>)>) {
        let table = self.graph.table();
        table.set(cells::BREATHS, self.breaths);
        table.set(cells::IDLE_BREATHS, self.breaths - self.state.moved.get());
        held.for_each(|(app, held)| self.graph.write_books(app, held));
        self.graph.write_waiting(&self.state.free_vectors);
        let usage = pool::usage();
        table.set(cells::BUFFERS, (usage.packets + usage.large_packets) as u64);
        table.set(cells::BUFFERS_IN_USE, usage.in_use as u64);
        table.set(cells::BUFFERS_LENT, usage.lent as u64);
        table.set(cells::LARGE_BUFFERS, usage.large_packets as u64);
        table.set(cells::LARGE_BUFFERS_IN_USE, usage.large_in_use as u64);
        let now = clock::unix_ns();
        table.set(cells::UPDATED, now);
        table.set(cells::ALIVE, now);
    }

    /// Writes the gauges through a shared reference: an app that panics is not asked again.
    pub(crate) fn show_gauges(&self) {
        let Graph { apps, own, .. } = &self.graph;
        self.write_gauges_with(own.iter().map(|&app| (app, catch_panic(|| apps[app].held()))));
    }

    /// The traces and taps of this worker, and the links that they look at.
    pub(crate) fn watch(&self) -> (RefMut<'_, Watch>, &LinkTable) {
        (self.state.sampler.watch.borrow_mut(), self.graph.table())
    }

    /// Forgets a trial that is over, and begins this one.
    pub(crate) fn try_look_ahead(&self, trial: Option<Trial>) {
        let trials = &self.state.sampler.trials;
        trials.forget_if_over();
        trial.into_iter().for_each(|trial| trials.begin(trial));
    }

    /// Samples every breath while there is a trace or tap.
    pub(crate) fn watch_if_needed(&self) {
        let sampler = &self.state.sampler;
        sampler.set_watching(!sampler.watch.borrow().is_empty());
    }

    /// Runs another graph from now on. Returns the old one.
    pub(crate) fn swap_graph(&mut self, mut graph: Graph) -> Graph {
        graph.attach(&self.state);
        // Positions of apps are those of the old graph.
        self.state.sampler.trials.end();
        self.state.next_deadline.set(0);
        self.idle_since = None;
        self.has_closed = false;
        mem::replace(&mut self.graph, graph)
    }

    /// Has the apps that [leave](crate::App::LEAVES) called in the next breath. Returns whether there are any.
    #[cold]
    pub(crate) fn prepare_to_leave(&self) -> bool {
        let Graph { apps, nodes, own, .. } = &self.graph;
        let mut leaving = own.iter().filter(|&&app| apps[app].leaves()).peekable();
        let is_needed = leaving.peek().is_some();
        leaving.for_each(|&app| nodes[app].deadline.set(0));
        if is_needed {
            self.state.leaving.set(true);
            self.state.next_deadline.set(0);
        }
        is_needed
    }

    /// The apps have left.
    pub(crate) fn has_left(&self) {
        self.state.leaving.set(false);
    }

    /// Calls `end` of every app: its last call with packets.
    pub(crate) fn end(&mut self) {
        let Graph { apps, nodes, own, .. } = &mut self.graph;
        for &app in &*own {
            let (node, table) = (&nodes[app], nodes[app].links());
            table.set(cells::ALIVE, clock::unix_ns());
            table.set(cells::DOING, doing::with(Activity::Stop, app));
            self.state.snapshot_buffer_use();
            // If it panics, `stop` reports the rest.
            let _ = catch_panic(|| apps[app].end(node));
            node.end_call();
        }
    }

    /// Stops the apps. Returns those that could not finish, with the reason.
    pub(crate) fn stop(&mut self) -> Vec<(String, String)> {
        let Graph { apps, nodes, own, topology, .. } = &mut self.graph;
        let mut unfinished = Vec::new();
        for &app in &*own {
            let table = nodes[app].links();
            table.set(cells::ALIVE, clock::unix_ns());
            table.set(cells::DOING, doing::with(Activity::Stop, app));
            if let Err(why) = try_stop(&mut *apps[app]) {
                unfinished.push((topology.app_name(app), why));
            }
        }
        self.graph.table().set(cells::DOING, doing::NOTHING);
        unfinished
    }

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
            let wake_source = node.slots(table).iter().map(Slot::wake_source).max();
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
            let call = self.graph.apps[app].entry(Entry::Pull, self.settings.lossless);
            let node = &self.graph.nodes[app];
            // SAFETY: the call is made for the app of this node, to which nothing else refers now.
            unsafe { if is_sampled { sampled_pull(node, call) } else { call(node) } };
        }
        if self.state.failures.get() > 0 {
            self.replace_failed();
        }
    }
}
