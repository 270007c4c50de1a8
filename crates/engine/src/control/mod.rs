//! The other threads' side of a running engine.

mod reload;
mod shared;

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};

use bellows_observe::listing::Listing;
use bellows_observe::{AppStatus, Liveness, MAX_TRACED, SlowBreaths, Snapshot, TraceOrder};
use bellows_watch::{Order, Tap, TapWatch, Trace, TraceWatch, WatchError};
use bellows_wiring::LinkSpec;

pub use self::reload::ReloadError;
pub use self::shared::app_at_work;
pub(crate) use self::shared::{Old, Reply, Shared};
use self::shared::{View, lock};
use crate::panics::contain;
use crate::runtime::attention::request;

/// A handle by which other threads stop and reload an engine and read its counters.
#[derive(Clone)]
pub struct Control {
    shared: Arc<Shared>,
}

impl Control {
    pub(crate) fn new(shared: Arc<Shared>) -> Control {
        Control { shared }
    }

    /// Ends the run after the breath that is being taken.
    pub fn stop(&self) {
        self.shared.attention.ask(request::STOP);
    }

    /// Asks a busy engine to write its gauges (links' waiting packets, breaths, buffers in use). A sleeping engine
    /// has written them and is not woken.
    pub fn refresh(&self) {
        self.shared.attention.ask_quietly(request::GAUGES);
    }

    /// All counters as they are now.
    pub fn snapshot(&self) -> Snapshot {
        let slab = Arc::clone(&lock(&self.shared.view).slab);
        Snapshot::of(&slab)
    }

    /// What the engine is doing. A busy engine has to be asked to [write its gauges](Control::refresh) for this to be news.
    pub fn pulse(&self) -> Liveness {
        let slab = Arc::clone(&lock(&self.shared.view).slab);
        Liveness::of(&slab)
    }

    /// Watches for breaths that take longer than [`Settings::breath_limit`](crate::Settings::breath_limit), until the run is over: for a thread of its
    /// own, which is not to share the engine's processor. Returns at once if there is no limit.
    ///
    /// It looks four times in the time that a breath may take, and does not wake an engine that sleeps.
    pub fn watch_breaths(&self) {
        let ask = || self.shared.attention.ask_quietly(request::SIGN);
        let pulse = || {
            let slab = Arc::clone(&self.shared.view.try_lock().ok()?.slab);
            Some(Liveness::of(&slab))
        };
        self.shared.watchdog.watch(ask, pulse);
    }

    /// The slow breaths, and the times in which the process stood still, since the last call.
    pub fn take_slow_breaths(&self) -> SlowBreaths {
        self.shared.watchdog.take()
    }

    /// How the breaths are taken: the calls in order, and their machine code.
    pub fn listing(&self) -> Listing {
        let breath = Arc::clone(&lock(&self.shared.view).breath);
        breath.listing()
    }

    /// What the apps tell of themselves, those that do, in the network's order. The engine takes no notice.
    pub fn statuses(&self) -> Vec<AppStatus> {
        let View { topology, statuses, .. } = lock(&self.shared.view).clone();
        let told = topology.apps.iter().zip(statuses).filter_map(|(identity, status)| Some((identity, status?)));
        told.map(|(identity, status)| AppStatus {
            app: identity.name.clone(),
            kind: identity.kind.clone(),
            status: contain(|| status.status()).unwrap_or_default(),
        })
        .collect()
    }

    /// Follows packets through the network. While somebody does, every breath is sampled.
    ///
    /// # Errors
    /// If there is no such app, another trace is going on, 10,000 packets are not enough, or the run is over.
    pub fn trace(&self, order: TraceOrder) -> Result<Trace, WatchError> {
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
        let (watch, trace) = TraceWatch::new(order, self.look_again());
        watchers.trace = Some(watch.lifetime());
        watchers.orders.push(Order::Trace(watch));
        drop(watchers);
        self.shared.attention.ask(request::WATCH);
        Ok(trace)
    }

    /// Copies the first `snap` bytes of each packet that passes a link, as written in the network file:
    /// `a.output -> b.input`. While somebody does, every breath is sampled.
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
        let (watch, tap) = TapWatch::new(wanted.to_string(), snap, self.look_again());
        watchers.orders.push(Order::Tap(watch));
        drop(watchers);
        self.shared.attention.ask(request::WATCH);
        Ok(tap)
    }

    /// What has the engine look again at what others want to watch.
    fn look_again(&self) -> impl Fn() + Send + Sync + 'static {
        let attention = Arc::clone(&self.shared.attention);
        move || attention.ask(request::WATCH)
    }
}
