//! What one engine thread owns: its apps and links, its clock, its samples, the loop over breaths, and its sleep.
//!
//! The worker knows nothing of the process around it: it takes breaths until other threads want something, nothing has moved
//! for a while, or no app can take packets any more, and says which.

use std::mem;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use bellows_arena::Fixed;
use bellows_observe::layout::{Activity, account, common, doing, engine as cells};
use bellows_observe::{Pace, Watchdog};
use bellows_packet::{BufferUse, buffer_use};
use bellows_sys::clock;
use bellows_sys::wake::sleep_until_readable;
use bellows_watch::Order;

use crate::app::erased::{AppBox, DynApp, Entry, Failed, stop_contained};
use crate::configuration::{Configuration, Graph, Plan, hand_over};
use crate::dispatch::sampled::{sampled_pull, sampled_tick};
use crate::panics::contain;
use crate::runtime::attention::Attention;
use crate::runtime::links::dropping;
use crate::runtime::sampling::{self, Sampler};
use crate::runtime::slots::{Expects, Listened, Slot};
use crate::runtime::state::ThreadState;
use crate::settings::Settings;

/// A deadline closer than this is waited for by polling: it is about what falling asleep and waking up costs.
const WORTH_SLEEPING: u64 = 60_000;

/// How long the thread sleeps at a time when an app can only be polled.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Breaths between two looks at whether anything moves at all.
const WINDOW: u64 = 64;

/// Idle breaths between two looks at the clock while an app wants a tick.
const BETWEEN_LOOKS: u64 = 16;

/// Sampled breaths between two times that the free packet buffers are put in order.
const SORT_EVERY: u32 = 64;

/// How long nothing has to move, in nanoseconds, before the thread sleeps for the first time: about what sleeping costs.
const PATIENCE: u64 = 30_000;

/// Why a worker has stopped taking breaths.
pub(crate) enum Pause {
    /// Other threads want something.
    Asked,
    /// Nothing has moved lately.
    Idle,
    /// No app in which packets end can take any more.
    Closed,
}

/// What wakes a thread that sleeps.
struct WakeUps {
    /// How long it may sleep at most.
    timeout: Option<Duration>,
    /// The descriptors, each with the app that listens to it.
    listened: Vec<(usize, Listened)>,
}

/// One engine thread.
pub(crate) struct Worker {
    /// At an address of its own that nodes know.
    state: Fixed<ThreadState>,
    pub(crate) graph: Graph,
    settings: Settings,
    attention: Arc<Attention>,
    watchdog: Arc<Watchdog>,
    breaths: u64,
    /// Breaths until the next look at the clock, while an app wants a tick.
    until_look: u64,
    /// Breaths until the next one is sampled.
    until_sample: u64,
    /// Sampled breaths until the free buffers are put in order, and how many breaths had moved packets then.
    until_sort: u32,
    sorted_at: u64,
    /// Whether a packet moved when breaths were last taken.
    busy: bool,
    /// Since when no packet has moved, as far as anyone has looked: in nanoseconds of the engine's clock.
    idle_since: Option<u64>,
    /// How fast breaths follow one upon the other, while the engine runs.
    pace: Option<Pace>,
    /// Apps that have panicked since somebody asked, by position.
    failed: Vec<usize>,
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
        let until_sample = if settings.sampling { state.sampler.draw() } else { sampling::EVERY };
        Worker {
            state,
            graph,
            settings,
            attention,
            watchdog,
            breaths: 0,
            until_look: 0,
            until_sample,
            until_sort: SORT_EVERY,
            sorted_at: 0,
            busy: false,
            idle_since: None,
            pace: None,
            failed: Vec::new(),
        }
    }

    /// Whether some app wants a tick.
    pub(crate) fn has_deadline(&self) -> bool {
        self.state.next_deadline.get() != u64::MAX
    }

    /// Sets the clock, for tests.
    pub(crate) fn set_time(&self, nanos: u64) {
        self.state.manual_time.set(Some(nanos));
    }

    /// The apps that have panicked since the last call. Stand-ins have taken their places.
    pub(crate) fn take_failed(&mut self) -> Vec<usize> {
        mem::take(&mut self.failed)
    }

    /// The samples of this thread.
    pub(crate) fn sampler(&self) -> &Sampler {
        &self.state.sampler
    }

    /// From now on breaths follow one upon the other, or do no longer.
    pub(crate) fn set_running(&mut self, is_running: bool) {
        self.pace = is_running.then(|| Pace::begin(clock::now(), self.breaths));
    }

    /// Tells apps that have just come into the network that the run begins; in a reload, beside the graph before.
    pub(crate) fn begin(&mut self, plan: &Plan, old: Option<&Graph>) {
        let panicked = plan.begin(&mut self.graph, old);
        panicked.iter().for_each(|&app| self.state.report_panic(app));
        if !panicked.is_empty() {
            self.replace_failed();
        }
    }

    /// Takes so many breaths, one after the other, whatever happens in them; returns in how many of them a packet moved.
    pub(crate) fn breathe_times(&mut self, breaths: u64) -> u64 {
        let (before, end) = (self.state.moved.get(), self.breaths.saturating_add(breaths));
        // Whoever takes breaths by hand may have set the clock.
        self.until_look = 0;
        while self.breaths < end {
            self.take_breaths(end - self.breaths, &AtomicU32::new(0));
        }
        self.state.moved.get() - before
    }

    /// Takes breaths until there is something for the process to see to.
    pub(crate) fn run(&mut self) -> Pause {
        let attention = Arc::clone(&self.attention);
        loop {
            let (moved, end) = (self.state.moved.get(), self.breaths + WINDOW);
            // At least once: without a breath nothing can be told from nothing having moved.
            loop {
                self.take_breaths(end - self.breaths, &attention.word);
                if self.breaths >= end || attention.is_asked() {
                    break;
                }
            }
            if self.state.closed.get() && self.is_closed() {
                return Pause::Closed;
            }
            if self.state.moved.get() == moved {
                return Pause::Idle;
            }
            self.idle_since = None;
            if attention.is_asked() {
                return Pause::Asked;
            }
        }
    }

    /// Takes up to `most` breaths, and at least one; fewer if something has to be seen to in between.
    fn take_breaths(&mut self, most: u64, attention: &AtomicU32) {
        let state = &self.state;
        state.forget_time();
        state.settle_buffers();
        let mut most = most;
        if state.next_deadline.get() == u64::MAX {
            self.until_look = 0;
        } else {
            if self.until_look == 0 {
                if state.next_deadline.get() <= state.now() {
                    self.tick();
                }
                self.until_look = if self.busy { 1 } else { BETWEEN_LOOKS };
                // The breath that follows at once knows the time; later ones are not to go by it.
                if !self.busy {
                    self.state.forget_time();
                }
            }
            most = most.min(self.until_look);
        }
        let state = &self.state;
        state.interrupt.set(u32::from(state.next_deadline.get() != u64::MAX));
        let moved = state.moved.get();
        if self.until_sample == 0 && !self.settings.sampling {
            self.until_sample = sampling::EVERY;
            self.until_sort = self.until_sort.saturating_sub(1);
        }
        let taken = if self.until_sample == 0 || state.sampler.watching.get() {
            self.take_sampled();
            1
        } else {
            let taken = self.graph.take(state, attention, most.min(self.until_sample));
            self.until_sample -= taken;
            taken
        };
        self.breaths += taken;
        let state = &self.state;
        if state.progress.get() && !state.halfway.get() {
            // A tick moved packets, and no app was called since. (A breath that ended halfway ends when it is finished.)
            state.end_breath();
        }
        self.busy = state.moved.get() != moved;
        // A breath that was chosen does not bring the next look forward: it would find more than its share of what is due.
        self.until_look = if self.busy { 0 } else { self.until_look.saturating_sub(taken) };
        if state.failures.get() > 0 {
            self.replace_failed();
        }
        if self.until_sort == 0 {
            self.sort_free_buffers();
        }
    }

    /// Whether the next breath is sampled; if it is, it begins with what is called before it.
    fn begin_sampled(&self) -> bool {
        let is_sampled = self.settings.sampling && self.until_sample == 0;
        let is_sampled = is_sampled || self.state.sampler.watching.get();
        if is_sampled {
            self.state.sampler.begin_breath(is_sampled);
        }
        is_sampled
    }

    /// Takes a sampled breath. It records if it was chosen; else somebody watches packets.
    fn take_sampled(&mut self) {
        let is_sampled = self.until_sample == 0;
        let ThreadState { sampler, moved, .. } = &*self.state;
        if is_sampled {
            self.until_sample = sampler.draw();
            self.until_sort = self.until_sort.saturating_sub(1);
        } else {
            self.until_sample -= 1;
        }
        let before = moved.get();
        let start = sampler.begin_breath(is_sampled);
        if sampler.is_booking() {
            self.graph.slab().add(cells::SAMPLED, 1);
        }
        self.graph.take_sampled(&self.state);
        let end = sampler.end_breath(self.graph.table(), moved.get() != before);
        self.note_time(clock::at(start), self.breaths);
        self.note_time(clock::at(end), self.breaths + 1);
    }

    /// The thread is, or was at this time, between two breaths, of which it has taken so many: one of those since the last
    /// such moment may have been slow.
    #[inline]
    fn note_time(&mut self, now: u64, breaths: u64) {
        match &mut self.pace {
            Some(pace) if pace.is_late(now, &self.watchdog) => self.judge_pace(now, breaths),
            Some(pace) => pace.go_on(now, breaths),
            None => {}
        }
    }

    #[cold]
    fn judge_pace(&mut self, now: u64, breaths: u64) {
        let watchdog = &self.watchdog;
        let Some(slow) = self.pace.as_mut().and_then(|pace| pace.judge(now, breaths, watchdog)) else { return };
        let is_standstill = slow.is_standstill(self.settings.breath_limit);
        let cell = if is_standstill { cells::STANDSTILLS } else { cells::SLOW_BREATHS };
        self.graph.slab().add(cell, 1);
        self.state.sampler.on_timeline(|timeline| timeline.slow(clock::ticks(), &slow, is_standstill));
        watchdog.keep(slow);
    }

    /// Tells the watchdog that the breath is over that was being taken when it asked.
    pub(crate) fn give_sign(&mut self) {
        let now = clock::now();
        self.note_time(now, self.breaths);
        if let Some(pace) = &mut self.pace {
            pace.sign(now, &self.watchdog);
        }
    }

    /// Puts the free buffers in order if packets have moved since they were: see [`bellows_packet::sort_free_buffers`].
    #[cold]
    fn sort_free_buffers(&mut self) {
        self.until_sort = SORT_EVERY;
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
                // SAFETY: the call is that of the app of this node, to which nothing else refers now.
                unsafe { if is_sampled { sampled_tick(node, call) } else { call(node) } };
            }
        }
        let next = nodes.iter().map(|node| node.deadline.get()).min();
        state.next_deadline.set(next.unwrap_or(u64::MAX));
        if state.failures.get() > 0 {
            self.replace_failed();
        }
    }

    /// Puts stand-ins into the places of apps that panicked, and finishes the breath if that was interrupted.
    #[cold]
    fn replace_failed(&mut self) {
        let in_hand_is_unknown = self.state.unwatched_panic.take();
        self.state.failures.set(0);
        for app in self.state.failed.take() {
            self.failed.push(app);
            let name = self.graph.nodes[app].name;
            self.state.sampler.on_timeline(|timeline| timeline.panic(name, clock::ticks()));
            let dead = self.graph.replace_failed(app, AppBox::from(Box::new(Failed) as Box<dyn DynApp>));
            // What it holds may be in any state: its packets are freed, and a second panic ends with it.
            let buffers = buffer_use();
            let is_whole = dropping(common::APP_FAILED, || contain(|| drop(dead))).is_some();
            let (node, slab) = (&self.graph.nodes[app], self.graph.slab());
            let change = buffer_use().since(buffers);
            node.record(change);
            let mut lost = change.freed.wrapping_sub(change.taken);
            if !is_whole {
                // Packets that a second panic kept from being freed are never seen again.
                let leaked = node.discrepancy(0).leaked.max(0).cast_unsigned();
                node.record(BufferUse { taken: 0, freed: leaked });
                lost += leaked;
            }
            slab.add(node.cell + common::APP_FAILED, lost);
            if in_hand_is_unknown {
                // Of an app in which no packets end, all that was freed without a reason was in its hand.
                let in_hand = node.discrepancy(0).uncounted.max(0).cast_unsigned();
                slab.add(node.cell + common::APP_FAILED, in_hand);
            }
            self.state.sampler.after_failure(self.graph.table(), app);
        }
        self.graph.recompile(&self.settings);
        self.idle_since = None;
        self.state.settle_buffers();
        if self.state.halfway.replace(false) {
            self.graph.finish(&self.state);
            if self.state.failures.get() > 0 {
                self.replace_failed();
            }
        }
    }

    /// Whether every app in which packets end has [told](crate::Io::close) that it can take no more.
    #[cold]
    fn is_closed(&self) -> bool {
        self.state.closed.set(false);
        let entries = &self.graph.slab().directory.apps;
        let nodes = self.graph.nodes.iter().zip(entries);
        let mut ends = nodes.filter(|(node, entry)| entry.ends && node.is_fed()).peekable();
        ends.peek().is_some() && ends.all(|(node, _)| node.closed.get())
    }

    /// Asks every app something between breaths. `None` if one panicked over it: a stand-in has taken its place, and the run
    /// goes on.
    pub(crate) fn ask<T>(&mut self, question: impl Fn(&dyn DynApp) -> T) -> Option<Vec<T>> {
        let slab = self.graph.slab();
        let ask = |(index, app): (usize, &AppBox)| {
            slab.set(cells::DOING, doing::with(Activity::Question, index));
            contain(|| question(&**app))
        };
        let answers: Vec<Option<T>> = self.graph.apps.iter().enumerate().map(ask).collect();
        slab.set(cells::DOING, doing::NOTHING);
        let mut failed = false;
        for app in (0..answers.len()).filter(|&app| answers[app].is_none()) {
            self.state.report_panic(app);
            failed = true;
        }
        if failed {
            self.replace_failed();
        }
        answers.into_iter().collect()
    }

    /// Writes the counters that are not written as things happen, and what the books are worth now that the apps hold so many
    /// packets.
    pub(crate) fn write_gauges(&self, held: &[Option<usize>]) {
        let slab = self.graph.slab();
        slab.set(cells::BREATHS, self.breaths);
        slab.set(cells::IDLE_BREATHS, self.breaths - self.state.moved.get());
        for (app, held) in held.iter().enumerate() {
            self.graph.write_books(app, *held);
        }
        self.graph.write_waiting(&self.state.spare);
    }

    /// Takes in what others want to watch.
    pub(crate) fn watch(&self, orders: Vec<Order>) {
        let sampler = &self.state.sampler;
        sampler.watching.set(sampler.watch.borrow_mut().take(orders, self.graph.table()));
    }

    /// Takes over what stays from the graph that runs, and runs the graph of a new configuration from now on. Returns the old
    /// graph, and how many packets have no place in the new one.
    pub(crate) fn exchange(&mut self, new: Configuration) -> (Graph, Plan, u64) {
        let mut new = new;
        let dropped = hand_over(&mut self.graph, &mut new, &self.state.spare);
        let Configuration { mut graph, plan } = new;
        graph.attach(&self.state);
        let old = mem::replace(&mut self.graph, graph);
        self.state.next_deadline.set(0);
        self.idle_since = None;
        (old, plan, dropped)
    }

    /// Looks after an exchange for what others watch. Whoever hears now that it is gone finds the new configuration, so that is
    /// to be shown before.
    pub(crate) fn find_watched(&self, dropped: u64) {
        let sampler = &self.state.sampler;
        if sampler.watching.get() {
            let mut watch = sampler.watch.borrow_mut();
            if dropped > 0 {
                watch.end_trace();
            }
            watch.find(self.graph.table());
            sampler.watching.set(!watch.is_empty());
        }
    }

    /// Tells the apps that the run ends: their last call with packets.
    pub(crate) fn end(&mut self) {
        let slab = Arc::clone(self.graph.slab());
        for (app, node) in self.graph.apps.iter_mut().zip(self.graph.nodes.iter()) {
            slab.set(cells::ALIVE, clock::unix_ns());
            slab.set(cells::DOING, doing::with(Activity::Stop, node.index));
            self.state.settle_buffers();
            // One that panics over it says the rest when it is stopped.
            let _ = contain(|| app.end(node));
            node.end_call();
        }
    }

    /// Stops the apps. Returns those that could not finish, and why.
    pub(crate) fn stop(&mut self) -> Vec<(String, String)> {
        let slab = Arc::clone(self.graph.slab());
        let mut unfinished = Vec::new();
        for (index, (app, identity)) in self.graph.apps.iter_mut().zip(&self.graph.topology.apps).enumerate() {
            slab.set(cells::ALIVE, clock::unix_ns());
            slab.set(cells::DOING, doing::with(Activity::Stop, index));
            if let Err(why) = stop_contained(&mut **app) {
                unfinished.push((identity.name.clone(), why));
            }
        }
        slab.set(cells::DOING, doing::NOTHING);
        unfinished
    }

    /// Whether nothing has moved for so long, and nothing is due so soon, that the thread may sleep.
    pub(crate) fn may_sleep(&mut self) -> bool {
        let now = clock::now();
        self.note_time(now, self.breaths);
        let idle_since = *self.idle_since.get_or_insert(now);
        !self.settings.busywait
            && now >= idle_since.saturating_add(PATIENCE)
            && self.state.next_deadline.get() > now.saturating_add(WORTH_SLEEPING)
    }

    /// Sleeps until something is due.
    pub(crate) fn sleep(&mut self) {
        let (now, start) = (clock::now(), clock::ticks());
        self.sort_free_buffers();
        // Before anybody looks whether something is there already.
        self.graph.table().slots.iter().for_each(|slot| slot.tell(true));
        self.sleep_armed(now, start);
        self.graph.table().slots.iter().for_each(|slot| slot.tell(false));
    }

    /// What wakes the thread if it sleeps from now on; `None` if an app panicked over the question.
    fn wake_ups(&mut self, now: u64) -> Option<WakeUps> {
        let deadline = self.state.next_deadline.get();
        let until_deadline = (deadline != u64::MAX).then(|| Duration::from_nanos(deadline.saturating_sub(now)));
        let answers = self.ask(|app| (!app.is_finished(), app.held() > 0))?;
        let (nodes, table) = (&self.graph.nodes, self.graph.table());
        // Nothing but an app's own wish for a tick tells when it can go on if it has left packets in its inputs, or brings
        // packets in or holds some and has no descriptor. A slot that can only be looked at is, whatever else its app wishes.
        let must_be_polled = answers.iter().zip(nodes.iter()).any(|(&(pulls, holds), node)| {
            let expects = node.slots(table).iter().map(Slot::expects).max();
            let has_work =
                node.has_input() || pulls && expects.is_none() || holds && expects != Some(Expects::Descriptor);
            pulls && expects == Some(Expects::Polling) || has_work && node.deadline.get() == u64::MAX
        });
        let polling = must_be_polled.then_some(POLL_INTERVAL);
        let timeout = polling.into_iter().chain(until_deadline).min();
        // The descriptor of an app that has nothing to do with it may stay readable (a file at its end), so that the
        // thread would never sleep again.
        let busy = nodes.iter().zip(&answers).filter(|(_, (pulls, holds))| *pulls || *holds);
        let listened = busy
            .flat_map(|(node, _)| node.slots(table).iter().filter_map(|slot| Some((node.index, slot.listens()?))))
            .collect();
        Some(WakeUps { timeout, listened })
    }

    /// Sleeps until something is due, with everybody told.
    fn sleep_armed(&mut self, now: u64, start: u64) {
        let Some(WakeUps { timeout, listened }) = self.wake_ups(now) else { return };
        let attention = Arc::clone(&self.attention);
        let mut descriptors = vec![attention.event.as_fd()];
        let mut owners = Vec::new();
        for (app, listened) in &listened {
            descriptors.extend(listened.descriptor().inspect(|_| owners.push(*app)));
        }
        let asleep_since = clock::now();
        let slab = self.graph.slab();
        slab.set(cells::DOING, doing::ASLEEP);
        let slept = sleep_until_readable(&descriptors, timeout);
        slab.set(cells::ALIVE, clock::unix_ns());
        slab.set(cells::DOING, doing::NOTHING);
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
        // Here and nowhere else: who raises the event has said before what he wants, which is looked at next; and one
        // that is raised after his request was granted spoils one sleep, not all.
        self.attention.event.clear();
        let slab = self.graph.slab();
        slab.add(cells::SLEEPS, 1);
        slab.add(cells::SLEEP_NS, clock::now().saturating_sub(now));
        self.state.sampler.on_timeline(|timeline| timeline.sleep(start, clock::ticks() - start));
    }

    /// The thread has slept from one moment to another.
    fn note_sleep(&mut self, from: u64, to: u64) {
        self.note_time(from, self.breaths);
        if let Some(pace) = &mut self.pace {
            pace.slept(from, to, self.breaths);
        }
    }

    /// Pulls apps whose descriptors woke the thread, whatever their words say: only they can make these unreadable again.
    fn pull(&mut self, apps: &[usize]) {
        self.state.forget_time();
        self.state.settle_buffers();
        let is_sampled = self.begin_sampled();
        for &app in apps {
            let call = self.graph.apps[app].entry(Entry::Pull, self.settings.lossless);
            let node = &self.graph.nodes[app];
            // SAFETY: the call is that of the app of this node, to which nothing else refers now.
            unsafe { if is_sampled { sampled_pull(node, call) } else { call(node) } };
        }
        if self.state.failures.get() > 0 {
            self.replace_failed();
        }
    }
}
