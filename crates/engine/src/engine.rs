//! The process' side of a run: start, reloads between breaths, end.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bellows_observe::layout::{doing, engine as cells};
use bellows_observe::timeline::Timeline;
use bellows_observe::{Directory, RuntimeDir, Snapshot};
use bellows_packet::pool;
use bellows_pmu::OpenError;
use bellows_sys::{clock, way_out};
use bellows_wiring::WiringError;

use crate::app::erased::try_stop;
use crate::app::{AppError, Status};
use crate::configuration::{Configuration, LateCount, ReloadParams};
use crate::control::{Control, OldConfiguration, Reply, Shared};
use crate::network::Network;
use crate::network::topology::{AppAction, Topology};
use crate::panics::{self, catch_panic};
use crate::runtime::attention::request;
use crate::runtime::sampling::Sampler;
use crate::settings::Settings;
use crate::worker::{ExitReason, Worker};

/// Why an engine cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The network has wiring errors.
    #[error("{}", .0.iter().map(WiringError::to_string).collect::<Vec<_>>().join("\n"))]
    Wiring(Vec<WiringError>),
    /// An app cannot start.
    #[error("app `{0}`: {1}")]
    App(String, AppError),
    /// The counters cannot be created.
    #[error("cannot create the counters: {0}; {help}", help = way_out(.0, "free some memory or space on the tmpfs"))]
    Counters(std::io::Error),
    /// The events cannot be counted.
    #[error("{0}; choose other events with `events` in [engine], or none with `events = []`")]
    Events(#[from] OpenError),
    /// The map of generated code for `perf` cannot be written.
    #[error(
        "cannot write the map of generated code for perf: {0}; {help}",
        help = way_out(.0, "make /tmp writable")
    )]
    PerfMap(std::io::Error),
    /// There is no packet pool, and none can be created.
    #[error(transparent)]
    Pool(#[from] pool::Error),
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// Every source is finished, every link is empty, and no app holds a packet.
    Done,
    /// It was stopped.
    Stopped,
    /// No app in which packets end can take more: see [`Io::close`](crate::Io::close).
    Closed,
    /// Packets wait in these links and nothing will ever move them.
    Stalled(Vec<String>),
}

/// The outcome of a run.
#[derive(Debug)]
pub struct Outcome {
    /// How it ended.
    pub end: End,
    /// The apps that panicked.
    pub panicked: Vec<String>,
    /// The apps that could not finish, with the reason.
    pub unfinished: Vec<(String, String)>,
    /// All counters at the end.
    pub snapshot: Snapshot,
    /// How long the run took.
    pub elapsed: Duration,
}

/// An engine that runs a network.
pub struct Engine {
    worker: Worker,
    /// The status of each app that has one.
    statuses: Vec<Option<Arc<dyn Status>>>,
    shared: Arc<Shared>,
    runtime_dir: Option<Arc<RuntimeDir>>,
    panicked: Vec<String>,
    /// An app that was not finished at the last check: the first to check again.
    unfinished_app: usize,
}

impl Engine {
    /// Starts the apps of a network. With a `runtime_dir`, other processes can read the counters.
    ///
    /// # Errors
    /// See [`StartError`]. After an error every app that was started has been stopped.
    pub fn new(
        network: Network,
        settings: Settings,
        runtime_dir: Option<Arc<RuntimeDir>>,
    ) -> Result<Engine, StartError> {
        let errors = network.wiring_errors();
        if !errors.is_empty() {
            return Err(StartError::Wiring(errors));
        }
        clock::calibrate();
        pool::ensure()?;
        panics::install_hook();
        let sampler = match Sampler::new(settings.events()) {
            // Events that are only the default must not keep a network from running.
            Err(_) if settings.events.is_none() => Sampler::new(&[])?,
            sampler => sampler?,
        };
        let settings = Settings { events: Some(sampler.events().to_vec()), ..settings };
        let timeline = runtime_dir.as_deref().filter(|_| settings.sampling).map(Timeline::create);
        let timeline = timeline.transpose().map_err(StartError::Counters)?;
        let names = timeline.as_ref().map(Timeline::names);
        let params = ReloadParams {
            topology: &Topology::default(),
            directory: &Directory::default(),
            restart: &[],
            generation: 0,
        };
        let configuration =
            Configuration::prepare(network, &params, runtime_dir.as_deref(), &settings, names.as_deref());
        let Configuration { mut graph, mut plan } = configuration.map_err(StartError::Counters)?;
        let shared = Shared::new(&graph, &settings, runtime_dir.clone(), names).map_err(StartError::Counters)?;
        shared.map_for_perf(&graph.breath).map_err(StartError::PerfMap)?;
        if let Err((app, error)) = plan.start(&mut graph, None) {
            plan.stop_started(&mut graph);
            return Err(StartError::App(app, error));
        }
        if let Some(runtime_dir) = &runtime_dir
            && let Err(error) = runtime_dir.publish(0)
        {
            for app in &mut graph.apps {
                // The start error is reported; an app that never ran has nothing to finish.
                let _ = try_stop(&mut **app);
            }
            return Err(StartError::Counters(error));
        }
        shared.show(&graph, &plan.statuses);
        let now = clock::unix_ns();
        graph.slab().set(cells::STARTED, now);
        graph.slab().set(cells::ALIVE, now);
        graph.slab().set(cells::DOING, doing::NOTHING);
        sampler.timeline.replace(timeline);
        let worker = Worker::new(graph, settings, sampler, Arc::clone(&shared.attention), Arc::clone(&shared.watchdog));
        let statuses = std::mem::take(&mut plan.statuses);
        let (shared, panicked) = (Arc::new(shared), Vec::new());
        let mut engine = Engine { worker, statuses, shared, runtime_dir, panicked, unfinished_app: 0 };
        engine.worker.begin(&plan, None);
        engine.show_failures();
        Ok(engine)
    }

    /// A handle for other threads to stop and reload the engine and read its counters.
    pub fn control(&self) -> Control {
        Control::new(Arc::clone(&self.shared))
    }

    /// Takes one breath. Returns whether a packet moved.
    pub fn breathe(&mut self) -> bool {
        self.breathe_times(1) > 0
    }

    /// Takes `breaths` breaths, whatever happens in them. Returns the number of breaths in which a packet moved.
    pub fn breathe_times(&mut self, breaths: u64) -> u64 {
        let moved = self.worker.breathe_times(breaths);
        self.show_failures();
        moved
    }

    /// Breathes until the run is over.
    ///
    /// Sleeps while idle, unless set to busy-wait: until a descriptor of an app becomes readable, the earliest deadline
    /// comes, or another thread makes a request. Call [`Engine::finish`] afterwards. When this returns the run accepts
    /// no more reloads, so no thread waits for one.
    pub fn run(&mut self) -> End {
        self.shared.set_current();
        self.worker.set_running(true);
        let end = self.run_to_the_end();
        self.worker.set_running(false);
        self.shared.close();
        end
    }

    fn run_to_the_end(&mut self) -> End {
        loop {
            if self.shared.attention.is_pending() && self.handle_requests() {
                return End::Stopped;
            }
            let exit_reason = self.worker.run();
            self.show_failures();
            match exit_reason {
                ExitReason::Request => {}
                ExitReason::Closed => return End::Closed,
                ExitReason::Idle => {
                    if let Some(end) = self.idle_end() {
                        return end;
                    }
                    if self.worker.may_sleep() {
                        self.write_gauges();
                        self.worker.sleep();
                    }
                    self.show_failures();
                }
            }
        }
    }

    /// Publishes the view of other threads after stand-ins replaced apps that panicked.
    #[inline]
    fn show_failures(&mut self) {
        let failed = self.worker.take_failed();
        if !failed.is_empty() {
            self.show_stand_ins(&failed);
        }
    }

    #[cold]
    fn show_stand_ins(&mut self, failed: &[usize]) {
        for &app in failed {
            self.panicked.push(self.worker.graph.topology.apps[app].name.clone());
            // Other threads may still be using the status; the last one drops it.
            let status = self.statuses[app].take();
            let _ = catch_panic(|| drop(status));
        }
        self.shared.show(&self.worker.graph, &self.statuses);
        self.shared.renew_map_for_perf();
    }

    /// Handles the requests of other threads made through [`Control`], such as reloads. True if they want the run to
    /// stop.
    ///
    /// [`Engine::run`] does this itself; call it between breaths that you take with [`Engine::breathe`].
    #[cold]
    pub fn handle_requests(&mut self) -> bool {
        let requests = self.shared.attention.take();
        // Before anything that takes long.
        if requests & request::WATCHDOG != 0 {
            self.worker.answer_watchdog();
        }
        // Before a commit: the cells belong to the current configuration.
        if requests & request::LATE_COUNTS != 0 {
            self.count_late();
        }
        if requests & request::COMMIT != 0 {
            self.commit();
        }
        if requests & request::GAUGES != 0 {
            self.write_gauges();
        }
        if requests & request::WATCH != 0 {
            self.worker.watch(self.shared.take_orders());
        }
        self.show_failures();
        requests & request::STOP != 0
    }

    /// Whether every app is finished and holds nothing.
    pub fn is_done(&self) -> bool {
        self.worker.graph.apps.iter().all(|app| app.is_finished() && app.held() == 0)
    }

    /// How an idle run ends, if it is over.
    fn idle_end(&mut self) -> Option<End> {
        let apps = &self.worker.graph.apps;
        if catch_panic(|| apps.get(self.unfinished_app).is_some_and(|app| !app.is_finished())).unwrap_or(false) {
            return None;
        }
        let unfinished = self.worker.query_apps(|app| !app.is_finished())?;
        if let Some(app) = unfinished.into_iter().position(|unfinished| unfinished) {
            self.unfinished_app = app;
            return None;
        }
        let held = self.worker.query_apps(|app| app.held() > 0)?.contains(&true);
        let graph = &self.worker.graph;
        let waiting = graph.waiting_links();
        if waiting.is_empty() && !held {
            return Some(End::Done);
        }
        let has_descriptors = graph.table().slots.iter().any(|slot| slot.watched_descriptors().is_some());
        let someone_will_wake = self.worker.has_deadline() || has_descriptors;
        if someone_will_wake || held { None } else { Some(End::Stalled(waiting)) }
    }

    /// Writes the gauges: counters that are not updated as things happen. Checks the books.
    fn write_gauges(&mut self) {
        // A stand-in replaces an app that panics in `held`, and holds nothing.
        let held = loop {
            if let Some(held) = self.worker.query_apps(|app| app.held()) {
                break held;
            }
        };
        self.write_gauges_with(&held.into_iter().map(Some).collect::<Vec<_>>());
    }

    fn write_gauges_with(&self, held: &[Option<usize>]) {
        self.worker.write_gauges(held);
        let slab = self.worker.graph.slab();
        let usage = pool::usage();
        slab.set(cells::BUFFERS, (usage.packets + usage.large_packets) as u64);
        slab.set(cells::BUFFERS_IN_USE, usage.in_use as u64);
        slab.set(cells::BUFFERS_LENT, usage.lent as u64);
        let now = clock::unix_ns();
        slab.set(cells::UPDATED, now);
        slab.set(cells::ALIVE, now);
    }

    /// Adds the late counts of apps that reloads removed or replaced.
    #[cold]
    fn count_late(&self) {
        for LateCount { cell, count } in self.shared.take_late_counts() {
            self.worker.graph.slab().add(cell, count);
        }
    }

    /// Commits the configuration in the mailbox.
    #[cold]
    fn commit(&mut self) {
        let Some(request) = self.shared.take_request() else { return };
        let (start, start_ticks) = (Instant::now(), clock::ticks());
        let mut new = request.configuration;
        new.graph.prefetch(new.plan.app_actions.iter().map(|action| action.starts_app()));
        let revived = new.plan.restart_panicked(&new.graph, &self.worker.graph);
        if let Err((app, error)) = new.plan.start(&mut new.graph, Some(&mut self.worker.graph)) {
            let _ = request.reply.send(Reply::Failed { app, error, configuration: new });
            return;
        }
        let (old, mut plan, dropped) = self.worker.swap_graph(*new);
        for (status, action) in plan.statuses.iter_mut().zip(&plan.app_actions) {
            if let AppAction::Keep(app) = *action {
                *status = self.statuses[app].clone();
            }
        }
        let old_statuses = std::mem::replace(&mut self.statuses, std::mem::take(&mut plan.statuses));
        let slab = self.worker.graph.slab();
        slab.add(cells::RELOADS, 1);
        slab.set(cells::DOING, doing::NOTHING);
        old.slab().supersede();
        self.write_gauges();
        self.shared.show(&self.worker.graph, &self.statuses);
        self.worker.rebind_watches(dropped);
        // Nothing can fail from here on.
        self.worker.begin(&plan, Some(&old));
        let ticks = clock::ticks() - start_ticks;
        self.worker.sampler().on_timeline(|timeline| timeline.reload(start_ticks, ticks, dropped));
        let old = Box::new(OldConfiguration { graph: old, statuses: old_statuses });
        let _ = request.reply.send(Reply::Committed { old, revived, dropped, pause: start.elapsed() });
    }

    /// Ends the run: stops the apps, frees the remaining packets, and returns the outcome.
    pub fn finish(mut self, end: End) -> Outcome {
        self.worker.end();
        // Before the apps stop, because stopping them may free packets that they hold.
        self.write_gauges();
        self.show_failures();
        let unfinished = self.worker.stop();
        self.shared.close();
        self.shared.wait_for_reload();
        self.count_late();
        let slab = self.worker.graph.slab();
        let started = slab.get(cells::STARTED);
        Outcome {
            end,
            panicked: std::mem::take(&mut self.panicked),
            unfinished,
            snapshot: Snapshot::of(slab),
            elapsed: Duration::from_nanos(clock::unix_ns().saturating_sub(started)),
        }
    }

    /// The current values of all counters.
    pub fn snapshot(&self) -> Snapshot {
        let held = self.worker.graph.apps.iter().map(|app| catch_panic(|| app.held()));
        self.write_gauges_with(&held.collect::<Vec<_>>());
        Snapshot::of(self.worker.graph.slab())
    }

    /// Sets the clock by hand, for tests: from now on [`Io::now`](crate::Io::now) returns this value.
    pub fn set_time(&self, nanos: u64) {
        self.worker.set_time(nanos);
    }

    /// The runtime directory of the engine, if it has one.
    pub fn runtime_dir(&self) -> Option<&RuntimeDir> {
        self.runtime_dir.as_deref()
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.shared.close();
    }
}
