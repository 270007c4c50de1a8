//! One engine thread: its apps and links, its clock, its samples, the loop over breaths, and sleep.
//!
//! The worker knows nothing of the process around it, nor of other workers. It takes breaths until another thread makes
//! a request, it is idle, or no app can take packets any more, and returns the reason.
//!
//! | file | contents |
//! |---|---|
//! | `mod.rs` | the loop over breaths, and ticks |
//! | `sampled.rs` | sampled breaths, and the pace of breaths |
//! | `failures.rs` | the replacement of apps that panic |
//! | `completion.rs` | whether a worker is out of work |
//! | `sleep.rs` | idleness |
//! | `gauges.rs`, `end.rs` | what a worker shows, and the end of its graph |

mod completion;
mod end;
mod failures;
mod gauges;
mod sampled;
mod sleep;

use std::mem;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use bellows_arena::Fixed;
use bellows_observe::{Pace, Watchdog};
use bellows_ring::verdicts::Verdict;
use bellows_shared::{Reader, Readers};
use bellows_sys::clock;

use crate::app::erased::EntryPoint;
use crate::configuration::Graph;
use crate::dispatch::sampled::sampled_tick;
use crate::runtime::attention::{Attention, request};
use crate::runtime::sampling::{self, Sampler};
use crate::runtime::state::ThreadState;
use crate::runtime::trials::Trial;
use crate::settings::Settings;

/// Breaths between two checks for idleness while packets move.
const BUSY_WINDOW: u64 = 64;

/// The same while no packet moves. The checks take as long as some breaths, in which the worker would miss a packet.
const IDLE_WINDOW: u64 = 256;

/// Idle breaths between two clock reads while an app wants a tick.
const IDLE_CLOCK_READ_INTERVAL: u64 = 16;

/// Why a worker stopped taking breaths.
pub(crate) enum ExitReason {
    /// Another thread made a request.
    Request,
    /// No packet moved lately.
    Idle,
    /// No app in which packets end can take more.
    Closed,
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
    /// Whether the thread has just woken up: one breath tells whether there is work.
    has_woken: bool,
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
    /// Checks to skip while it is out of work.
    checks_to_skip: u32,
    /// If it was out of work at its last verdict, the number of breaths in which a packet had moved by then.
    out_of_work_at: Option<u64>,
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
            Readers::of_process().register(move || attention.raise(request::PASS))
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
            samples_to_sort: sampled::SORT_INTERVAL,
            sorted_at: 0,
            busy: false,
            idle_since: None,
            has_woken: false,
            pace: None,
            failed: Vec::new(),
            unfinished_app: 0,
            has_closed: false,
            reader,
            checks_to_skip: 0,
            out_of_work_at: None,
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

    /// The number of breaths in which a packet moved.
    pub(crate) fn moved(&self) -> u64 {
        self.state.moved.get()
    }

    /// Between two breaths: no app has a reference to a shared value.
    pub(crate) fn quiescent(&self) {
        self.reader.quiescent();
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

    /// Takes `breaths` breaths, whatever happens in them. Returns the number of breaths in which a packet moved.
    pub(crate) fn breathe_times(&mut self, breaths: u64) -> u64 {
        let (before, end) = (self.state.moved.get(), self.breaths.saturating_add(breaths));
        // A caller that takes breaths by hand may have set the clock.
        self.breaths_to_clock_read = 0;
        while self.breaths < end {
            self.take_breaths(end - self.breaths, &AtomicU32::new(0));
        }
        // Nobody may handle requests between breaths that are taken by hand, and apps wait for grace periods.
        self.quiescent();
        self.state.moved.get() - before
    }

    /// Takes breaths until the process must act.
    pub(crate) fn run(&mut self) -> ExitReason {
        let attention = Arc::clone(&self.attention);
        loop {
            let window = match mem::take(&mut self.has_woken) {
                true => 1,
                false if self.busy => BUSY_WINDOW,
                false => IDLE_WINDOW,
            };
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
                self.quiescent();
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
                ExitReason::Idle if self.is_still_out_of_work() => Verdict::OutOfWork,
                ExitReason::Request if !has_moved => attention.published().verdict(),
                _ => Verdict::Works,
            };
            self.out_of_work_at = (verdict != Verdict::Works).then(|| self.moved());
            attention.judge(verdict, has_moved, self.has_failures(), first);
            if matches!(exit_reason, ExitReason::Idle) && self.may_sleep() {
                self.write_gauges();
                self.sleep();
            }
        }
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
                let call = app.entry(EntryPoint::Tick, self.settings.lossless);
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

    /// Forgets a trial that is over, and begins this one.
    pub(crate) fn try_look_ahead(&self, trial: Option<Trial>) {
        let trials = &self.state.sampler.trials;
        trials.forget_if_over();
        trial.into_iter().for_each(|trial| trials.begin(trial));
    }
}
