//! The other threads' side of a running engine.

use std::collections::HashSet;
use std::io;
use std::mem;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed, Ordering::Release};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::time::{Duration, Instant};

use bellows_codemem::PerfMap;
use bellows_observe::timeline::Names;
use bellows_observe::{Home, Pulse, Slab, SlowBreaths, Snapshot};
use bellows_sys::wake::Event;
use bellows_sys::way_out;
use serde::{Deserialize, Serialize};

use crate::app::{AppError, Status, answer};
use crate::engine::Settings;
use crate::listing::Listing;
use crate::network::{Fault, LinkSpec, Network};
use crate::retire::{LateCount, retire};
use crate::schedule::Breath;
use crate::watch::{MOST_TRACED, Order, Tap, Trace, TraceOrder, WatchError, new_tap, new_trace};
use crate::watchdog::Watchdog;
use crate::world::{Before, Origin, Outline, World};

/// What other threads want of the engine, as bits.
pub(crate) mod attention {
    pub(crate) const STOP: u32 = 1;
    pub(crate) const COMMIT: u32 = 2;
    pub(crate) const GAUGES: u32 = 4;
    pub(crate) const WATCH: u32 = 8;
    pub(crate) const LATE: u32 = 16;
    pub(crate) const SIGN: u32 = 32;
}

/// How long the end of a run waits for a reload that ends apps.
const RETIRE_PATIENCE: Duration = Duration::from_secs(10);

pub(crate) struct Request {
    pub(crate) world: Box<World>,
    pub(crate) reply: Sender<Reply>,
}

pub(crate) enum Reply {
    Committed { old: Box<World>, revived: Vec<String>, dropped: u64, pause: Duration },
    Failed { app: String, error: AppError, world: Box<World> },
}

/// What runs now, as the other threads know it.
struct Current {
    outline: Arc<Outline>,
    generation: u64,
}

enum Mailbox {
    Open(Option<Request>),
    Closed,
}

/// What the engine's thread and the others share.
pub(crate) struct Shared {
    pub(crate) attention: AtomicU32,
    pub(crate) event: Event,
    mailbox: Mutex<Mailbox>,
    /// Locked throughout a reload: one at a time.
    current: Mutex<Current>,
    view: Mutex<View>,
    settings: Settings,
    perf_map: Option<PerfMap>,
    home: Option<Arc<Home>>,
    /// Names of apps in the timeline.
    names: Option<Arc<Names>>,
    watchers: Mutex<Watchers>,
    /// What apps that a reload has taken out counted at their end: for the engine's thread, the one that writes counters.
    late: Mutex<Vec<LateCount>>,
    pub(crate) watchdog: Watchdog,
}

/// What others want to watch.
#[derive(Default)]
struct Watchers {
    /// What the engine has not taken yet.
    orders: Vec<Order>,
    /// The trace that is going on, if any: what tells that it is over.
    trace: Option<Weak<AtomicBool>>,
    /// Whether the run has ended, so that nobody will take an order.
    closed: bool,
}

/// What other threads see of the running configuration.
#[derive(Clone)]
struct View {
    slab: Arc<Slab>,
    breath: Arc<Breath>,
    outline: Arc<Outline>,
    statuses: Vec<Option<Arc<dyn Status>>>,
}

impl View {
    fn of(world: &World) -> View {
        View {
            slab: Arc::clone(&world.fabric().slab),
            breath: Arc::clone(&world.breath),
            outline: Arc::clone(&world.outline),
            statuses: world.statuses.clone(),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub(crate) fn new(
        world: &World,
        settings: &Settings,
        home: Option<Arc<Home>>,
        names: Option<Arc<Names>>,
    ) -> io::Result<Shared> {
        Ok(Shared {
            attention: AtomicU32::new(0),
            event: Event::new()?,
            mailbox: Mutex::new(Mailbox::Open(None)),
            current: Mutex::new(Current { outline: Arc::clone(&world.outline), generation: 0 }),
            view: Mutex::new(View::of(world)),
            settings: settings.clone(),
            perf_map: settings.perf_map.then(PerfMap::for_this_process),
            home,
            names,
            watchers: Mutex::default(),
            late: Mutex::default(),
            watchdog: Watchdog::new(settings.breath_limit),
        })
    }

    /// Shows other threads what runs now.
    pub(crate) fn show(&self, world: &World) {
        let before = mem::replace(&mut *lock(&self.view), View::of(world));
        // The statuses in it may be the last of apps that panicked.
        let _ = answer(|| drop(before));
    }

    /// The app that the engine is calling, unless somebody is exchanging the view just now.
    pub(crate) fn app_at_work(&self) -> Option<String> {
        let slab = Arc::clone(&self.view.try_lock().ok()?.slab);
        Some(Pulse::of(&slab).doing?.app)
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

impl Drop for crate::Engine {
    fn drop(&mut self) {
        self.control().shared.close();
    }
}

/// What a reload did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reloaded {
    /// Apps that run on as they were.
    pub kept: Vec<String>,
    /// Apps that took the place of one of the same name and type.
    pub replaced: Vec<String>,
    /// Apps that had panicked and were started again.
    #[serde(default)]
    pub revived: Vec<String>,
    /// Apps that are new.
    pub added: Vec<String>,
    /// Apps that are gone.
    pub removed: Vec<String>,
    /// Links that are new.
    pub links_added: Vec<String>,
    /// Links that are gone.
    pub links_removed: Vec<String>,
    /// Packets that were in what is gone.
    pub dropped: u64,
    /// From the request to the moment when the new configuration ran, in nanoseconds.
    #[serde(default)]
    pub swap_nanos: u64,
    /// How long no breath was taken, in nanoseconds.
    pub pause_nanos: u64,
    /// Apps that could not finish, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unfinished: Vec<(String, String)>,
}

/// Why a reload did not happen. The old configuration runs on.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// The new network is not put together right.
    #[error("{}", .0.iter().map(Fault::to_string).collect::<Vec<_>>().join("\n"))]
    Faults(Vec<Fault>),
    /// An app cannot start.
    #[error("app `{0}`: {1}; the old configuration runs on")]
    App(String, AppError),
    /// The counters cannot be made.
    #[error(
        "cannot make the counters: {0}; {help}; the old configuration runs on",
        help = way_out(.0, "see that memory and room on the tmpfs are left")
    )]
    Counters(io::Error),
    /// The new configuration runs, but other processes cannot see its counters.
    #[error(
        "the new configuration runs, but its counters cannot be published: {0}; {help}",
        help = way_out(.0, "see that the directory of the run is writable, and reload again")
    )]
    Unpublished(io::Error),
    /// There is nothing to reload any more.
    #[error("the run is over")]
    Over,
}

/// What an app tells of itself: see [`App::status`](crate::App::status).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppStatus {
    /// The app.
    pub app: String,
    /// Its type.
    pub kind: String,
    /// What it says; null if it panicked over it.
    pub status: serde_json::Value,
}

/// A handle by which other threads stop and reload an engine and read its counters.
#[derive(Clone)]
pub struct Control {
    shared: Arc<Shared>,
}

impl Control {
    pub(crate) fn new(shared: Arc<Shared>) -> Control {
        Control { shared }
    }

    fn ask(&self, wish: u32) {
        self.shared.attention.fetch_or(wish, Release);
        self.shared.event.raise();
    }

    /// Ends the run after the breath that is being taken.
    pub fn stop(&self) {
        self.ask(attention::STOP);
    }

    /// Asks a busy engine to write its gauges (links' waiting packets, breaths, buffers in use). A sleeping engine
    /// has written them and is not woken.
    pub fn refresh(&self) {
        self.shared.attention.fetch_or(attention::GAUGES, Release);
    }

    /// All counters as they are now.
    pub fn snapshot(&self) -> Snapshot {
        let slab = Arc::clone(&lock(&self.shared.view).slab);
        Snapshot::of(&slab)
    }

    /// What the engine is doing. A busy engine has to be asked to [write its gauges](Control::refresh) for this to be news.
    pub fn pulse(&self) -> Pulse {
        let slab = Arc::clone(&lock(&self.shared.view).slab);
        Pulse::of(&slab)
    }

    /// Watches for breaths that take longer than [`Settings::breath_limit`], until the run is over: for a thread of its
    /// own, which is not to share the engine's processor. Returns at once if there is no limit.
    ///
    /// It looks four times in the time that a breath may take, and does not wake an engine that sleeps.
    pub fn watch_breaths(&self) {
        let ask = || {
            self.shared.attention.fetch_or(attention::SIGN, Release);
        };
        let pulse = || {
            let slab = Arc::clone(&self.shared.view.try_lock().ok()?.slab);
            Some(Pulse::of(&slab))
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
        let View { outline, statuses, .. } = lock(&self.shared.view).clone();
        let told = outline.apps.iter().zip(statuses).filter_map(|(identity, status)| Some((identity, status?)));
        told.map(|(identity, status)| AppStatus {
            app: identity.name.clone(),
            kind: identity.kind.clone(),
            status: answer(|| status.status()).unwrap_or_default(),
        })
        .collect()
    }

    /// Follows packets through the network. While somebody does, every breath is instrumented.
    ///
    /// # Errors
    /// If there is no such app, another trace is going on, 10,000 packets are not enough, or the run is over.
    pub fn trace(&self, order: TraceOrder) -> Result<Trace, WatchError> {
        if order.count > MOST_TRACED {
            return Err(WatchError::TooMany(order.count));
        }
        if let Some(app) = &order.app
            && !lock(&self.shared.current).outline.apps.iter().any(|known| known.name == *app)
        {
            return Err(WatchError::NoApp(app.clone()));
        }
        if let Some(app) = &order.app {
            let outline = Arc::clone(&lock(&self.shared.current).outline);
            if !outline.links.iter().any(|link| link.from.app == *app) {
                let before = outline.links.iter().filter(|link| link.to.app == *app);
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
        let (watch, trace) = new_trace(order, self.clone());
        watchers.trace = Some(watch.lifetime());
        watchers.orders.push(Order::Trace(watch));
        drop(watchers);
        self.look_at_watchers();
        Ok(trace)
    }

    /// Copies the first `snap` bytes of each packet that passes a link, as written in the network file:
    /// `a.output -> b.input`. While somebody does, every breath is instrumented.
    ///
    /// # Errors
    /// If there is no such link, or the run is over.
    pub fn tap(&self, link: &str, snap: usize) -> Result<Tap, WatchError> {
        let unknown = || WatchError::NoLink(link.to_owned());
        let wanted: LinkSpec = link.parse().map_err(|_| unknown())?;
        if !lock(&self.shared.current).outline.links.contains(&wanted) {
            return Err(unknown());
        }
        let mut watchers = lock(&self.shared.watchers);
        if watchers.closed {
            return Err(WatchError::Over);
        }
        let (watch, tap) = new_tap(wanted, snap, self.clone());
        watchers.orders.push(Order::Tap(watch));
        drop(watchers);
        self.look_at_watchers();
        Ok(tap)
    }

    /// Has the engine look at what others want to watch.
    pub(crate) fn look_at_watchers(&self) {
        self.ask(attention::WATCH);
    }

    /// Replaces the running network. What did not change keeps its state and its packets.
    ///
    /// The new configuration is laid out on the calling thread; the engine swaps it in between two breaths, and the
    /// calling thread ends what is gone. An app whose configuration changed may take over the resources of the old.
    ///
    /// Waits for the run to begin if it has not; must not be called on the engine's own thread.
    ///
    /// # Errors
    /// See [`ReloadError`].
    pub fn reload(&self, network: Network) -> Result<Reloaded, ReloadError> {
        self.reload_restarting(network, &[])
    }

    /// As [`Control::reload`], but the apps of these names do not run on though they have not changed: new ones take their
    /// places. Apps that have panicked are started again in any case.
    ///
    /// # Errors
    /// See [`ReloadError`].
    pub fn reload_restarting(&self, network: Network, restart: &[String]) -> Result<Reloaded, ReloadError> {
        let start = Instant::now();
        let faults = network.faults();
        if !faults.is_empty() {
            return Err(ReloadError::Faults(faults));
        }
        let mut current = lock(&self.shared.current);
        let home = self.shared.home.as_deref();
        let generation = current.generation + 1;
        let names = self.shared.names.as_deref();
        let slab = Arc::clone(&lock(&self.shared.view).slab);
        let before = Before { outline: &current.outline, directory: &slab.directory, restart, generation };
        let world =
            World::prepare(network, &before, home, &self.shared.settings, names).map_err(ReloadError::Counters)?;
        let outline = Arc::clone(&world.outline);
        let mut report = compare(&current.outline, &world);
        let successors = world.successors();

        let (sender, receiver) = channel();
        match &mut *lock(&self.shared.mailbox) {
            Mailbox::Open(request) => *request = Some(Request { world: Box::new(world), reply: sender }),
            Mailbox::Closed => {
                if let Some(home) = home {
                    home.discard(generation);
                }
                return Err(ReloadError::Over);
            }
        }
        self.ask(attention::COMMIT);
        let reply = receiver.recv();
        report.swap_nanos = start.elapsed().as_nanos() as u64;
        current.generation = generation;
        if !matches!(reply, Ok(Reply::Committed { .. }))
            && let Some(home) = home
        {
            home.discard(generation);
        }
        match reply {
            Ok(Reply::Committed { old, revived, dropped, pause }) => {
                for names in [&mut report.kept, &mut report.replaced] {
                    names.retain(|name| !revived.contains(name));
                }
                report.revived = revived;
                current.outline = outline;
                self.shared.renew_map_for_perf();
                let published = home.map_or(Ok(()), |home| home.publish(generation));
                report.dropped = dropped;
                report.pause_nanos = pause.as_nanos() as u64;
                let retired = retire(*old, &successors);
                report.unfinished = retired.unfinished;
                if !retired.late.is_empty() {
                    lock(&self.shared.late).extend(retired.late);
                    self.ask(attention::LATE);
                }
                published.map_err(ReloadError::Unpublished)?;
                Ok(report)
            }
            Ok(Reply::Failed { app, error, mut world }) => {
                world.stop_started();
                drop(world);
                Err(ReloadError::App(app, error))
            }
            Err(_) => Err(ReloadError::Over),
        }
    }
}

/// What changes from one configuration to the next.
fn compare(old: &Outline, new: &World) -> Reloaded {
    let mut report = Reloaded::default();
    let mut stays = vec![false; old.apps.len()];
    for (origin, identity) in new.origins.iter().zip(&new.outline.apps) {
        let names = match *origin {
            Origin::Kept(app) => {
                stays[app] = true;
                &mut report.kept
            }
            Origin::Replaces(app) => {
                stays[app] = true;
                &mut report.replaced
            }
            Origin::New => &mut report.added,
        };
        names.push(identity.name.clone());
    }
    let gone = old.apps.iter().zip(&stays).filter(|(_, stays)| !**stays);
    report.removed = gone.map(|(identity, _)| identity.name.clone()).collect();
    let added = new.outline.links.iter().zip(&new.link_origins).filter(|(_, origin)| origin.is_none());
    report.links_added = added.map(|(link, _)| link.to_string()).collect();
    let stays: HashSet<usize> = new.link_origins.iter().flatten().copied().collect();
    let removed = old.links.iter().enumerate().filter(|(index, _)| !stays.contains(index));
    report.links_removed = removed.map(|(_, link)| link.to_string()).collect();
    report
}
