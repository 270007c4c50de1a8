//! What the engine's thread and the others share.

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
use crate::panics::contain;
use crate::runtime::attention::Attention;
use crate::settings::Settings;

thread_local! {
    /// The engine that this thread runs.
    static ENGINE: RefCell<Weak<Shared>> = const { RefCell::new(Weak::new()) };
}

/// The app that the engine of this thread is calling, if it is calling one: for panic hooks, which want to name it.
pub fn app_at_work() -> Option<String> {
    let engine = ENGINE.try_with(|engine| engine.try_borrow().ok()?.upgrade()).ok()??;
    engine.app_at_work()
}

/// How long the end of a run waits for a reload that ends apps.
const RETIRE_PATIENCE: Duration = Duration::from_secs(10);

pub(crate) struct Request {
    pub(crate) configuration: Box<Configuration>,
    pub(crate) reply: Sender<Reply>,
}

pub(crate) enum Reply {
    Committed { old: Box<Old>, revived: Vec<String>, dropped: u64, pause: Duration },
    Failed { app: String, error: AppError, configuration: Box<Configuration> },
}

/// What has run until a reload.
pub(crate) struct Old {
    pub(crate) graph: Graph,
    pub(crate) statuses: Vec<Option<Arc<dyn Status>>>,
}

/// What runs now, as the other threads know it.
pub(super) struct Current {
    pub(super) topology: Arc<Topology>,
    pub(super) generation: u64,
}

pub(super) enum Mailbox {
    Open(Option<Request>),
    Closed,
}

/// What the engine's thread and the others share.
pub(crate) struct Shared {
    pub(crate) attention: Arc<Attention>,
    pub(super) mailbox: Mutex<Mailbox>,
    /// Locked throughout a reload: one at a time.
    pub(super) current: Mutex<Current>,
    pub(super) view: Mutex<View>,
    pub(super) settings: Settings,
    perf_map: Option<PerfMap>,
    pub(super) runtime_dir: Option<Arc<RuntimeDir>>,
    /// Names of apps in the timeline.
    pub(super) names: Option<Arc<Names>>,
    pub(super) watchers: Mutex<Watchers>,
    /// What apps that a reload has taken out counted at their end: for the engine's thread, the one that writes counters.
    pub(super) late: Mutex<Vec<LateCount>>,
    pub(crate) watchdog: Arc<Watchdog>,
}

/// What others want to watch.
#[derive(Default)]
pub(super) struct Watchers {
    /// What the engine has not taken yet.
    pub(super) orders: Vec<Order>,
    /// The trace that is going on, if any: what tells that it is over.
    pub(super) trace: Option<Weak<AtomicBool>>,
    /// Whether the run has ended, so that nobody will take an order.
    pub(super) closed: bool,
}

/// What other threads see of the running configuration.
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

    /// Shows other threads what runs now.
    pub(crate) fn show(&self, graph: &Graph, statuses: &[Option<Arc<dyn Status>>]) {
        let before = mem::replace(&mut *lock(&self.view), View::of(graph, statuses));
        // The statuses in it may be the last of apps that panicked.
        let _ = contain(|| drop(before));
    }

    /// From now on this thread runs the engine.
    pub(crate) fn runs_here(self: &Arc<Shared>) {
        ENGINE.with_borrow_mut(|current| *current = Arc::downgrade(self));
    }

    /// The app that the engine is calling, unless somebody is exchanging the view just now.
    pub(crate) fn app_at_work(&self) -> Option<String> {
        let slab = Arc::clone(&self.view.try_lock().ok()?.slab);
        Some(Liveness::of(&slab).doing?.app)
    }

    /// Names the code that runs now. A map that cannot be renewed is out of date, which perf shows as unknown code.
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

    /// What others want to watch and the engine has not taken yet.
    pub(crate) fn take_orders(&self) -> Vec<Order> {
        mem::take(&mut lock(&self.watchers).orders)
    }

    /// What was counted late and is not in the counters yet.
    pub(crate) fn take_late_counts(&self) -> Vec<LateCount> {
        mem::take(&mut lock(&self.late))
    }

    /// Waits for a reload that still ends what it has taken out, but not for ever.
    pub(crate) fn wait_for_reload(&self) {
        let deadline = Instant::now() + RETIRE_PATIENCE;
        while matches!(self.current.try_lock(), Err(TryLockError::WouldBlock)) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// The run is over: who waits for an answer gets none.
    pub(crate) fn close(&self) {
        let last = mem::replace(&mut *lock(&self.mailbox), Mailbox::Closed);
        // Apps may lie in it; they are dropped with the mailbox unlocked.
        drop(last);
        lock(&self.watchers).closed = true;
        drop(self.take_orders());
        self.watchdog.close();
    }
}
