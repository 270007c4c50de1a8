//! State shared by the engine's thread and other threads.

use std::cell::RefCell;
use std::io;
use std::mem;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::time::{Duration, Instant};

use bellows_codemem::PerfMap;
use bellows_observe::timeline::Names;
use bellows_observe::{Liveness, RuntimeDir, Slab, Watchdog};
use bellows_watch::Order;

use crate::app::{AppError, Status};
use crate::configuration::{Configuration, Graph, LateCount};
use crate::dispatch::Breath;
use crate::network::topology::Topology;
use crate::panics::catch_panic;
use crate::runtime::attention::Attention;
use crate::settings::Settings;

thread_local! {
    /// The engine that runs on this thread.
    static ENGINE: RefCell<Weak<Shared>> = const { RefCell::new(Weak::new()) };
}

/// The app that the engine on this thread is calling, if any. For panic hooks that name the app.
pub fn app_at_work() -> Option<String> {
    let engine = ENGINE.try_with(|engine| engine.try_borrow().ok()?.upgrade()).ok()??;
    engine.app_at_work()
}

/// How long the end of a run waits for a reload that is still ending apps.
const RETIRE_TIMEOUT: Duration = Duration::from_secs(10);

pub(crate) struct Request {
    pub(crate) configuration: Box<Configuration>,
    pub(crate) reply: Sender<Reply>,
}

pub(crate) enum Reply {
    Committed { old: Box<OldConfiguration>, revived: Vec<String>, dropped: u64, pause: Duration },
    Failed { app: String, error: AppError, configuration: Box<Configuration> },
}

/// The configuration that ran before a reload.
pub(crate) struct OldConfiguration {
    pub(crate) graph: Graph,
    pub(crate) statuses: Vec<Option<Arc<dyn Status>>>,
}

/// The running configuration, as reloads see it.
pub(super) struct Current {
    pub(super) topology: Arc<Topology>,
    pub(super) generation: u64,
}

pub(super) enum Mailbox {
    Open(Option<Request>),
    Closed,
}

/// State shared by the engine's thread and other threads.
pub(crate) struct Shared {
    pub(crate) attention: Arc<Attention>,
    pub(super) mailbox: Mutex<Mailbox>,
    /// Locked throughout a reload, so that reloads run one at a time.
    pub(super) current: Mutex<Current>,
    pub(super) view: Mutex<View>,
    pub(super) settings: Settings,
    perf_map: Option<PerfMap>,
    pub(super) runtime_dir: Option<Arc<RuntimeDir>>,
    /// Names of apps in the timeline.
    pub(super) names: Option<Arc<Names>>,
    pub(super) watchers: Mutex<Watchers>,
    /// Late counts of removed or replaced apps: for the engine's thread, the only one that writes counters.
    pub(super) late: Mutex<Vec<LateCount>>,
    pub(crate) watchdog: Arc<Watchdog>,
}

/// Traces and taps of other threads.
#[derive(Default)]
pub(super) struct Watchers {
    /// Orders that the engine has not taken yet.
    pub(super) orders: Vec<Order>,
    /// The running trace, if any: its flag that it is over.
    pub(super) trace: Option<Weak<AtomicBool>>,
    /// Whether the run has ended, so that no order will be taken.
    pub(super) closed: bool,
}

/// The view that other threads have of the running configuration.
#[derive(Clone)]
pub(super) struct View {
    pub(super) slab: Arc<Slab>,
    pub(super) breath: Arc<Breath>,
    pub(super) topology: Arc<Topology>,
    pub(super) statuses: Vec<Option<Arc<dyn Status>>>,
}

impl View {
    fn of(graph: &Graph, statuses: &[Option<Arc<dyn Status>>]) -> View {
        View {
            slab: Arc::clone(graph.slab()),
            breath: Arc::clone(&graph.breath),
            topology: Arc::clone(&graph.topology),
            statuses: statuses.to_vec(),
        }
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub(crate) fn new(
        graph: &Graph,
        settings: &Settings,
        runtime_dir: Option<Arc<RuntimeDir>>,
        names: Option<Arc<Names>>,
    ) -> io::Result<Shared> {
        Ok(Shared {
            attention: Arc::new(Attention::new()?),
            mailbox: Mutex::new(Mailbox::Open(None)),
            current: Mutex::new(Current { topology: Arc::clone(&graph.topology), generation: 0 }),
            view: Mutex::new(View::of(graph, &[])),
            settings: settings.clone(),
            perf_map: settings.perf_map.then(PerfMap::for_this_process),
            runtime_dir,
            names,
            watchers: Mutex::default(),
            late: Mutex::default(),
            watchdog: Arc::new(Watchdog::new(settings.breath_limit)),
        })
    }

    /// Publishes the running configuration to other threads.
    pub(crate) fn show(&self, graph: &Graph, statuses: &[Option<Arc<dyn Status>>]) {
        let before = mem::replace(&mut *lock(&self.view), View::of(graph, statuses));
        // It may hold the last references to the statuses of apps that panicked.
        let _ = catch_panic(|| drop(before));
    }

    /// Declares that this thread runs the engine.
    pub(crate) fn set_current(self: &Arc<Shared>) {
        ENGINE.with_borrow_mut(|current| *current = Arc::downgrade(self));
    }

    /// The app that the engine is calling; `None` while the view is being exchanged.
    pub(crate) fn app_at_work(&self) -> Option<String> {
        let slab = Arc::clone(&self.view.try_lock().ok()?.slab);
        Some(Liveness::of(&slab).doing?.app)
    }

    /// Writes the map of the current code for perf. If that fails, the old map stays and perf shows unknown code.
    pub(crate) fn renew_map_for_perf(&self) {
        let breath = Arc::clone(&lock(&self.view).breath);
        let _ = self.map_for_perf(&breath);
    }

    pub(crate) fn map_for_perf(&self, breath: &Breath) -> io::Result<()> {
        self.perf_map.as_ref().map_or(Ok(()), |map| map.write(&breath.symbols()))
    }

    pub(crate) fn take_request(&self) -> Option<Request> {
        match &mut *lock(&self.mailbox) {
            Mailbox::Open(request) => request.take(),
            Mailbox::Closed => None,
        }
    }

    /// Takes the orders for traces and taps.
    pub(crate) fn take_orders(&self) -> Vec<Order> {
        mem::take(&mut lock(&self.watchers).orders)
    }

    /// Takes the late counts.
    pub(crate) fn take_late_counts(&self) -> Vec<LateCount> {
        mem::take(&mut lock(&self.late))
    }

    /// Waits for a reload that is still ending apps, up to [`RETIRE_TIMEOUT`].
    pub(crate) fn wait_for_reload(&self) {
        let deadline = Instant::now() + RETIRE_TIMEOUT;
        while matches!(self.current.try_lock(), Err(TryLockError::WouldBlock)) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// The run is over: threads that wait for a reply get none.
    pub(crate) fn close(&self) {
        let last = mem::replace(&mut *lock(&self.mailbox), Mailbox::Closed);
        // It may hold apps, which are dropped with the mailbox unlocked.
        drop(last);
        lock(&self.watchers).closed = true;
        drop(self.take_orders());
        self.watchdog.close();
    }
}
