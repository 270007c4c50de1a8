//! State shared by the engine's thread and other threads.

use std::cell::RefCell;
use std::io;
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::time::{Duration, Instant};

use bellows_codemem::{PerfMap, Symbol};
use bellows_observe::listing::AppCode;
use bellows_observe::timeline::Names;
use bellows_observe::{Liveness, RuntimeDir, Slab, Watchdog};
use bellows_watch::Order;

use crate::app::{AppError, Status};
use crate::configuration::{Configuration, Graph, LateCount};
use crate::crew::{Member, TimelinePlace};
use crate::dispatch::Breath;
use crate::network::topology::Topology;
use crate::panics::catch_panic;
use crate::runtime::attention::Attention;
use crate::runtime::trials::Trial;
use crate::settings::Settings;

thread_local! {
    /// The engine that runs on this thread, and the position of its worker.
    static ENGINE: RefCell<(Weak<Shared>, usize)> = const { RefCell::new((Weak::new(), 0)) };
}

/// The app that the engine on this thread is calling, if any. For panic hooks that name the app.
pub fn app_at_work() -> Option<String> {
    let current = |engine: &RefCell<(Weak<Shared>, usize)>| {
        let engine = engine.try_borrow().ok()?;
        Some((engine.0.upgrade()?, engine.1))
    };
    let (engine, worker) = ENGINE.try_with(current).ok()??;
    engine.app_at_work(worker)
}

/// How long the end of a run waits for a reload that is still ending apps.
const RETIRE_TIMEOUT: Duration = Duration::from_secs(10);

pub(crate) struct ControlRequest {
    pub(crate) configuration: Box<Configuration>,
    /// The threads of workers that the running configuration does not have.
    pub(crate) hired: Vec<Member>,
    pub(crate) reply: Sender<Reply>,
}

pub(crate) enum Reply {
    Committed {
        old: Box<OldConfiguration>,
        revived: Vec<String>,
        dropped: u64,
        pause: Duration,
    },
    Failed {
        app: String,
        error: AppError,
        configuration: Box<Configuration>,
    },
    /// Links hold more packets than the new configuration has room for. They are being emptied.
    Overfull {
        links: Vec<String>,
        configuration: Box<Configuration>,
        hired: Vec<Member>,
    },
}

/// The configuration that ran before a reload.
pub(crate) struct OldConfiguration {
    /// The graphs of all workers.
    pub(crate) graphs: Vec<Graph>,
    pub(crate) statuses: Vec<Option<Arc<dyn Status>>>,
}

/// The running configuration, as reloads see it.
pub(super) struct Current {
    pub(super) topology: Arc<Topology>,
    pub(super) generation: u64,
}

pub(super) enum Mailbox {
    Open(Option<ControlRequest>),
    Closed,
}

/// State shared by the engine's thread and other threads.
pub(crate) struct Shared {
    /// How to reach the first worker.
    pub(crate) attention: Arc<Attention>,
    /// How to reach the others.
    other_workers: Mutex<Vec<Post>>,
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

/// How to reach a worker other than the first.
#[derive(Clone)]
pub(crate) struct Post {
    pub(crate) name: String,
    pub(crate) attention: Arc<Attention>,
    pub(crate) watchdog: Arc<Watchdog>,
}

/// Traces and taps of other threads.
#[derive(Default)]
pub(super) struct Watchers {
    /// Orders that the engine has not taken yet.
    pub(super) orders: Vec<Order>,
    /// The running trace, if any: its flag that it is over.
    pub(super) trace: Option<Weak<AtomicBool>>,
    /// A trial of look-ahead that the engine has not taken yet: of each worker.
    pub(super) trials: Vec<Trial>,
    /// The last trial, if it is still wanted: its flag that it is over.
    pub(super) trial: Option<Weak<AtomicBool>>,
    /// Whether the run has ended, so that no order will be taken.
    pub(super) closed: bool,
}

/// The view that other threads have of the running configuration.
#[derive(Clone)]
pub(super) struct View {
    pub(super) slab: Arc<Slab>,
    /// The breaths of all workers.
    pub(super) breaths: Vec<Arc<Breath>>,
    pub(super) topology: Arc<Topology>,
    pub(super) statuses: Vec<Option<Arc<dyn Status>>>,
}

impl View {
    fn of<'a>(graphs: impl Iterator<Item = &'a Graph> + Clone, statuses: &[Option<Arc<dyn Status>>]) -> Option<View> {
        let first = graphs.clone().next()?;
        Some(View {
            slab: Arc::clone(first.slab()),
            breaths: graphs.map(|graph| Arc::clone(&graph.breath)).collect(),
            topology: Arc::clone(&first.topology),
            statuses: statuses.to_vec(),
        })
    }

    /// The machine code that apps have generated.
    pub(super) fn app_code(&self) -> Vec<AppCode> {
        let statuses = self.topology.apps.iter().zip(&self.statuses);
        let with_status = statuses.filter_map(|(app, status)| Some((&app.name, status.as_ref()?)));
        let pieces = with_status.flat_map(|(app, status)| {
            let pieces = catch_panic(|| status.code()).unwrap_or_default().into_iter();
            pieces.map(|code| AppCode { app: app.clone(), code })
        });
        pieces.collect()
    }
}

/// The parts of an app's code, for `perf`.
fn symbols(piece: &AppCode) -> Vec<Symbol> {
    let mut symbols: Vec<Symbol> = Vec::new();
    for line in &piece.code {
        if let Some(label) = &line.label {
            symbols.push(Symbol { start: line.address as usize, size: 0, name: format!("{}: {label}", piece.app) });
        }
        if let Some(symbol) = symbols.last_mut() {
            symbol.size += line.bytes.len() / 2;
        }
    }
    symbols
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub(crate) fn new(
        configuration: &Configuration,
        settings: &Settings,
        runtime_dir: Option<Arc<RuntimeDir>>,
        names: Option<Arc<Names>>,
    ) -> io::Result<Shared> {
        let Configuration { topology, slab, graphs, .. } = configuration;
        let breaths = graphs.iter().map(|graph| Arc::clone(&graph.breath)).collect();
        let (topology, slab) = (Arc::clone(topology), Arc::clone(slab));
        Ok(Shared {
            attention: Arc::new(Attention::new()?),
            other_workers: Mutex::default(),
            mailbox: Mutex::new(Mailbox::Open(None)),
            current: Mutex::new(Current { topology: Arc::clone(&topology), generation: 0 }),
            view: Mutex::new(View { slab, breaths, topology, statuses: Vec::new() }),
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
    pub(crate) fn show<'a>(
        &self,
        graphs: impl Iterator<Item = &'a Graph> + Clone,
        statuses: &[Option<Arc<dyn Status>>],
    ) {
        let Some(view) = View::of(graphs, statuses) else { return };
        let before = mem::replace(&mut *lock(&self.view), view);
        // It may hold the last references to the statuses of apps that panicked.
        let _ = catch_panic(|| drop(before));
    }

    /// Declares that this thread runs a worker of the engine.
    pub(crate) fn set_current(self: &Arc<Shared>, worker: usize) {
        ENGINE.with_borrow_mut(|current| *current = (Arc::downgrade(self), worker));
    }

    /// The app that a worker is calling; `None` while the view is being exchanged.
    fn app_at_work(&self, worker: usize) -> Option<String> {
        let slab = Arc::clone(&self.view.try_lock().ok()?.slab);
        Some(Liveness::of_worker(&*slab, slab.directory.workers.get(worker)?).doing?.app)
    }

    /// The activity of the worker of this name; `None` while the view is being exchanged.
    pub(super) fn liveness_of(&self, worker: &str) -> Option<Liveness> {
        let slab = Arc::clone(&self.view.try_lock().ok()?.slab);
        let entry = slab.directory.workers.iter().find(|entry| entry.name == worker)?;
        Some(Liveness::of_worker(&*slab, entry))
    }

    /// Whether the engine drops no packets at full links.
    pub(crate) fn is_lossless(&self) -> bool {
        self.settings.lossless
    }

    /// Where the timelines of workers are, if the engine writes them.
    pub(crate) fn timelines(&self) -> TimelinePlace<'_> {
        self.runtime_dir.as_deref().zip(self.names.as_ref())
    }

    /// Sets the workers other than the first.
    pub(crate) fn set_other_workers(&self, posts: Vec<Post>) {
        *lock(&self.other_workers) = posts;
    }

    /// The workers other than the first.
    pub(crate) fn other_workers(&self) -> Vec<Post> {
        lock(&self.other_workers).clone()
    }

    /// Reaches all workers other than the first.
    pub(crate) fn for_each_other_worker(&self, mut reach: impl FnMut(&Attention)) {
        lock(&self.other_workers).iter().for_each(|post| reach(&post.attention));
    }

    /// Writes the map of the current code for perf. If that fails, the old map stays and perf shows unknown code.
    pub(crate) fn renew_map_for_perf(&self) {
        let _ = self.map_for_perf();
    }

    pub(crate) fn map_for_perf(&self) -> io::Result<()> {
        let Some(map) = &self.perf_map else { return Ok(()) };
        let view = lock(&self.view).clone();
        let of_breaths = view.breaths.iter().flat_map(|breath| breath.symbols());
        map.write(&of_breaths.chain(view.app_code().iter().flat_map(symbols)).collect::<Vec<_>>())
    }

    pub(crate) fn take_request(&self) -> Option<ControlRequest> {
        match &mut *lock(&self.mailbox) {
            Mailbox::Open(request) => request.take(),
            Mailbox::Closed => None,
        }
    }

    /// Takes the orders for traces and taps.
    pub(crate) fn take_orders(&self) -> Vec<Order> {
        mem::take(&mut lock(&self.watchers).orders)
    }

    /// Takes the trials of look-ahead.
    pub(crate) fn take_trials(&self) -> Vec<Trial> {
        mem::take(&mut lock(&self.watchers).trials)
    }

    /// Ends the trials that the engine has not taken.
    pub(crate) fn end_new_trials(&self) {
        self.take_trials().into_iter().for_each(|trial| trial.is_over.store(true, Relaxed));
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
        self.end_new_trials();
        self.watchdog.close();
        lock(&self.other_workers).iter().for_each(|post| post.watchdog.close());
    }
}
