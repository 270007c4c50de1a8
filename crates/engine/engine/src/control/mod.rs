//! The interface of a running engine for other threads.

mod reload;
mod shared;
mod trial;

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};
use std::thread;

use bellows_observe::listing::Listing;
use bellows_observe::{AppStatus, Liveness, MAX_TRACED, ObjectStatus, SlowBreaths, Snapshot, TraceOrder, Watchdog};
use bellows_watch::{Order, Selector, Tap, TapWatch, Trace, TraceWatch, WatchError};
use bellows_wiring::LinkSpec;

pub use self::reload::ReloadError;
pub use self::shared::app_at_work;
pub(crate) use self::shared::{ControlRequest, OldConfiguration, Post, Reply, Shared};
use self::shared::{View, lock};
pub use self::trial::{LookAheadTrial, TrialError};
use crate::app::Status;
use crate::dispatch::Breath;
use crate::network::{MAIN, ObjectSpec, WorkerSpec};
use crate::panics::catch_panic;
use crate::runtime::attention::{Attention, request};

/// An app or object that may answer requests.
#[derive(Clone)]
pub struct Addressee {
    /// Its name.
    pub name: String,
    /// Its type.
    pub kind: String,
    /// Whether it is an object that apps share.
    pub is_object: bool,
    /// It itself: [`Status::converse`] begins a conversation.
    pub status: Arc<dyn Status>,
}

/// A handle for other threads to stop and reload an engine and read its counters.
#[derive(Clone)]
pub struct Control {
    shared: Arc<Shared>,
}

impl Control {
    pub(crate) fn new(shared: Arc<Shared>) -> Control {
        Control { shared }
    }

    /// Ends the run after the current breath.
    pub fn stop(&self) {
        self.shared.attention.raise(request::STOP);
    }

    /// Requests that a busy engine write its gauges (waiting packets of links, breaths, buffers in use). A sleeping
    /// engine has written them and is not woken.
    pub fn refresh(&self) {
        self.shared.attention.raise_quietly(request::GAUGES);
        self.shared.for_each_other_worker(|attention| attention.raise_quietly(request::GAUGES));
    }

    /// The current values of all counters.
    pub fn snapshot(&self) -> Snapshot {
        let slab = Arc::clone(&lock(&self.shared.view).slab);
        Snapshot::of(&slab)
    }

    /// What the engine is doing. For a busy engine [refresh](Control::refresh) the gauges first.
    pub fn liveness(&self) -> Liveness {
        let slab = Arc::clone(&lock(&self.shared.view).slab);
        Liveness::of(&*slab)
    }

    /// Watches for breaths that take longer than [`Settings::breath_limit`](crate::Settings::breath_limit), until the
    /// run is over. Call it on a thread of its own, on another processor than the engine's. Returns at once if there is
    /// no limit.
    ///
    /// Checks a worker four times per limit, and neither checks nor wakes one that sleeps. `awake` is called by each check
    /// that finds a worker awake.
    pub fn watch_breaths(&self, awake: impl Fn() + Sync) {
        let watch = |name: &str, attention: &Attention, watchdog: &Watchdog| {
            let ask = || attention.raise_quietly(request::WATCHDOG);
            watchdog.watch(ask, || self.shared.liveness_of(name), &awake);
        };
        let others = self.shared.other_workers();
        thread::scope(|scope| {
            for post in &others {
                let watch = || watch(&post.name, &post.attention, &post.watchdog);
                let thread = thread::Builder::new().name("watchdog".to_owned()).spawn_scoped(scope, watch);
                // Without a thread, only breaths that are timed anyway are found.
                drop(thread);
            }
            watch(MAIN, &self.shared.attention, &self.shared.watchdog);
        });
    }

    /// Whether all workers sleep, or have just woken up: [`watch_breaths`](Control::watch_breaths) will find those that
    /// are awake.
    pub fn rests(&self) -> bool {
        self.shared.watchdog.dozes() && self.shared.other_workers().iter().all(|post| post.watchdog.dozes())
    }

    /// The slow breaths of all workers, and the standstills of the process, since the last call.
    pub fn take_slow_breaths(&self) -> SlowBreaths {
        let others = self.shared.other_workers();
        let own = (MAIN, &self.shared.watchdog);
        let watchdogs = std::iter::once(own).chain(others.iter().map(|post| (&*post.name, &post.watchdog)));
        let mut all = SlowBreaths::default();
        for (worker, watchdog) in watchdogs {
            let SlowBreaths { mut first, more } = watchdog.take();
            if !others.is_empty() {
                first.iter_mut().for_each(|slow| slow.worker = Some(worker.to_owned()));
            }
            all.first.extend(first);
            all.more += more;
        }
        all
    }

    /// The listing of the breaths of all workers: the calls in order, and their machine code.
    pub fn listing(&self) -> Listing {
        let view = lock(&self.shared.view).clone();
        let View { topology, breaths, .. } = &view;
        let listing =
            |(worker, breath): (&WorkerSpec, &Arc<Breath>)| Listing { worker: worker.name.clone(), ..breath.listing() };
        let mut listings = topology.workers.iter().zip(breaths).map(listing);
        let first = listings.next().unwrap_or_default();
        Listing { app_code: view.app_code(), further: listings.collect(), ..first }
    }

    /// The status of each object that several apps use. Does not disturb the engine.
    pub fn objects(&self) -> Vec<ObjectStatus> {
        let View { topology, .. } = lock(&self.shared.view).clone();
        let status = |object: &ObjectSpec| ObjectStatus {
            object: object.name.clone(),
            kind: object.kind.clone(),
            status: catch_panic(|| object.status.status()).unwrap_or_default(),
        };
        topology.objects.iter().map(status).collect()
    }

    /// The objects that several apps use, then the apps with a status: those that may answer requests.
    pub fn addressees(&self) -> Vec<Addressee> {
        let View { topology, statuses, .. } = lock(&self.shared.view).clone();
        let objects = topology.objects.iter().map(|ObjectSpec { name, kind, status }| Addressee {
            name: name.clone(),
            kind: kind.clone(),
            is_object: true,
            status: Arc::clone(status),
        });
        let apps = topology.apps.iter().zip(statuses).filter_map(|(identity, status)| {
            let (name, kind) = (identity.name.clone(), identity.kind.clone());
            Some(Addressee { name, kind, is_object: false, status: status? })
        });
        objects.chain(apps).collect()
    }

    /// The status of each app that has one, in network order. Does not disturb the engine.
    pub fn statuses(&self) -> Vec<AppStatus> {
        let View { topology, statuses, .. } = lock(&self.shared.view).clone();
        let pairs = topology.apps.iter().zip(statuses).filter_map(|(identity, status)| Some((identity, status?)));
        pairs
            .map(|(identity, status)| AppStatus {
                app: identity.name.clone(),
                kind: identity.kind.clone(),
                status: catch_panic(|| status.status()).unwrap_or_default(),
            })
            .collect()
    }

    /// Traces packets through the network. Every breath is sampled while a trace runs.
    ///
    /// # Errors
    /// If there is no such app or it sends nothing, another trace is running, more than 10,000 packets are requested,
    /// or the run is over.
    pub fn trace(&self, order: TraceOrder) -> Result<Trace, WatchError> {
        self.trace_selected(order, None)
    }

    /// As [`Control::trace`], but only of packets that the selector selects. It is called on the threads of workers, for
    /// each packet that would be followed without it.
    ///
    /// # Errors
    /// Those of [`Control::trace`].
    pub fn trace_selected(&self, order: TraceOrder, selector: Option<Selector>) -> Result<Trace, WatchError> {
        if order.count > MAX_TRACED {
            return Err(WatchError::TooMany(order.count));
        }
        if let Some(app) = &order.app
            && !lock(&self.shared.current).topology.apps.iter().any(|known| known.name == *app)
        {
            return Err(WatchError::NoApp(app.clone()));
        }
        if let Some(app) = &order.app {
            let topology = Arc::clone(&lock(&self.shared.current).topology);
            if !topology.links.iter().any(|link| link.from.app == *app) {
                let before = topology.links.iter().filter(|link| link.to.app == *app);
                let mut before: Vec<String> = before.map(|link| link.from.app.clone()).collect();
                before.sort();
                before.dedup();
                return Err(WatchError::SendsNothing { app: app.clone(), before });
            }
        }
        let mut watchers = lock(&self.shared.watchers);
        if watchers.closed {
            return Err(WatchError::Over);
        }
        if watchers.trace.as_ref().and_then(Weak::upgrade).is_some_and(|over| !over.load(Relaxed)) {
            return Err(WatchError::Busy);
        }
        let (watch, trace) = TraceWatch::new(order, selector, self.rescan_watches());
        watchers.trace = Some(watch.lifetime());
        watchers.orders.push(Order::Trace(watch));
        drop(watchers);
        self.shared.attention.raise(request::WATCH);
        Ok(trace)
    }

    /// Copies the first `snap` bytes of each packet that passes a link, written as in the network file: `a.output ->
    /// b.input`. Every breath is sampled while a tap is open.
    ///
    /// # Errors
    /// If there is no such link, or the run is over.
    pub fn tap(&self, link: &str, snap: usize) -> Result<Tap, WatchError> {
        let unknown = || WatchError::NoLink(link.to_owned());
        let wanted: LinkSpec = link.parse().map_err(|_| unknown())?;
        if !lock(&self.shared.current).topology.links.contains(&wanted) {
            return Err(unknown());
        }
        let mut watchers = lock(&self.shared.watchers);
        if watchers.closed {
            return Err(WatchError::Over);
        }
        let (watch, tap) = TapWatch::new(wanted.to_string(), snap, self.rescan_watches());
        watchers.orders.push(Order::Tap(watch));
        drop(watchers);
        self.shared.attention.raise(request::WATCH);
        Ok(tap)
    }

    /// A function that makes the engine check traces and taps again.
    fn rescan_watches(&self) -> impl Fn() + Send + Sync + 'static {
        let attention = Arc::clone(&self.shared.attention);
        move || attention.raise(request::WATCH)
    }
}
