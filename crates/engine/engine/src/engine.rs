//! The process' side of a run: start, reloads between breaths, end.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bellows_observe::layout::{doing, engine as cells};
use bellows_observe::timeline::Timeline;
use bellows_observe::{Directory, RuntimeDir, Slab, Snapshot};
use bellows_packet::pool;
use bellows_pmu::OpenError;
use bellows_ring::verdicts::{Overview, Verdict};
use bellows_sys::{clock, remedy};
use bellows_watch::Watch;
use bellows_wiring::WiringError;

use crate::app::erased::try_stop;
use crate::app::{AppError, Status};
use crate::configuration::{
    Configuration, Graph, LateCount, Parts, ReconfigurationPlan, ReloadParams, hand_over, overfull,
};
use crate::control::{Control, ControlRequest, OldConfiguration, Post, Reply, Shared};
use crate::crew::{Crew, Enter, Member, WorkerError};
use crate::network::topology::{AppAction, Topology};
use crate::network::{Network, WorkerSpec};
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
    #[error("cannot create the counters: {0}; {help}", help = remedy(.0, "free some memory or space on the tmpfs"))]
    Counters(std::io::Error),
    /// The events cannot be counted.
    #[error("{0}; choose other events with `events` in [engine], or none with `events = []`")]
    Events(#[from] OpenError),
    /// The map of generated code for `perf` cannot be written.
    #[error(
        "cannot write the map of generated code for perf: {0}; {help}",
        help = remedy(.0, "make /tmp writable")
    )]
    PerfMap(std::io::Error),
    /// There is no packet pool, and none can be created.
    #[error(transparent)]
    Pool(#[from] pool::Error),
    /// A worker cannot start.
    #[error(transparent)]
    Worker(#[from] WorkerError),
}

/// Breaths after the end of a run in which apps [leave](crate::App::LEAVES): enough for packets to cross to the worker of
/// an interface.
const LAST_BREATHS: usize = 3;

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
    /// The first worker, which runs on the engine's thread.
    worker: Worker,
    /// The others.
    crew: Crew,
    /// The status of each app that has one.
    statuses: Vec<Option<Arc<dyn Status>>>,
    shared: Arc<Shared>,
    runtime_dir: Option<Arc<RuntimeDir>>,
    panicked: Vec<String>,
    /// What the first worker knows of the verdicts of the others.
    overview: Overview,
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
        bellows_arena::set_node(network.all_workers()[0].node());
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
        let configuration = configuration.map_err(StartError::Counters)?;
        let shared =
            Shared::new(&configuration, &settings, runtime_dir.clone(), names).map_err(StartError::Counters)?;
        shared.map_for_perf().map_err(StartError::PerfMap)?;
        let Configuration { topology, slab, mut graphs, mut plan } = configuration;
        let others = &topology.workers[1..];
        let hire = |spec: &WorkerSpec| Member::hire(spec, &settings, shared.timelines());
        let mut members = others.iter().map(hire).collect::<Result<Vec<_>, _>>()?;
        let mut parts = Parts::new(graphs.iter_mut().collect());
        if let Err((app, error)) = plan.start(&mut parts, None) {
            plan.stop_started(&mut parts);
            return Err(StartError::App(app, error));
        }
        if let Some(runtime_dir) = &runtime_dir
            && let Err(error) = runtime_dir.publish(0)
        {
            for app in 0..parts.apps() {
                // The start error is reported; an app that never ran has nothing to finish.
                let _ = try_stop(&mut **parts.app_mut(app));
            }
            return Err(StartError::Counters(error));
        }
        shared.show(graphs.iter(), &plan.statuses);
        // The code of apps that have started.
        shared.renew_map_for_perf();
        let now = clock::unix_ns();
        slab.set(cells::STARTED, now);
        for worker in &slab.directory.workers {
            slab.set(worker.cell + cells::ALIVE, now);
            slab.set(worker.cell + cells::DOING, doing::NOTHING);
        }
        sampler.timeline.replace(timeline);
        let mut graphs = graphs.into_iter();
        let Some(first) = graphs.next() else { unreachable!("there is a first worker") };
        let attention = Arc::clone(&shared.attention);
        let others = members.iter_mut().zip(graphs).filter_map(|(member, graph)| member.equip(graph)).collect();
        let worker = Worker::new(first, settings, sampler, attention, Arc::clone(&shared.watchdog));
        let shared = Arc::new(shared);
        let statuses = std::mem::take(&mut plan.statuses);
        let mut engine = Engine {
            worker,
            crew: Crew::new(members, others),
            statuses,
            shared,
            runtime_dir,
            panicked: Vec::new(),
            overview: Overview::default(),
        };
        engine.publish_posts();
        engine.begin(&plan, None);
        engine.show_failures();
        Ok(engine)
    }

    /// All workers, while none of them works.
    fn workers(&self) -> impl Iterator<Item = &Worker> + Clone {
        std::iter::once(&self.worker).chain(self.crew.workers())
    }

    /// The same, mutable.
    fn workers_mut(&mut self) -> impl Iterator<Item = &mut Worker> {
        std::iter::once(&mut self.worker).chain(self.crew.workers_mut())
    }

    /// The graphs of all workers, while none of them works.
    fn parts(&mut self) -> Parts<'_> {
        Parts::new(self.workers_mut().map(|worker| &mut worker.graph).collect())
    }

    fn slab(&self) -> &Slab {
        self.worker.graph.slab()
    }

    /// Does something while no worker works.
    fn paused<T>(&mut self, act: impl FnOnce(&mut Engine) -> T) -> T {
        let is_working = self.crew.is_working();
        self.crew.pause();
        let result = act(self);
        if is_working {
            self.send_to_work();
        }
        result
    }

    /// Sends the workers other than the first to their threads.
    fn send_to_work(&mut self) {
        let has_others = !self.crew.is_empty();
        self.workers_mut().for_each(|worker| worker.set_has_others(has_others));
        let enter = |position: usize| -> Enter {
            let shared = Arc::clone(&self.shared);
            Box::new(move || shared.set_current(position))
        };
        self.crew.work(&self.shared.attention, enter);
    }

    /// Tells other threads how to reach the workers.
    fn publish_posts(&self) {
        let post = |worker: &Worker| Post {
            name: worker.graph.table().worker().name.clone(),
            attention: Arc::clone(&worker.attention),
            watchdog: Arc::clone(&worker.watchdog),
        };
        self.shared.set_other_workers(self.workers().skip(1).map(post).collect());
    }

    /// Calls `begin` of the apps that were started; in a reload, with the old graphs.
    fn begin(&mut self, plan: &ReconfigurationPlan, old: Option<&Parts<'_>>) {
        let panicked = plan.begin(&mut self.parts(), old);
        for worker in self.workers_mut() {
            let own: Vec<usize> = panicked.iter().copied().filter(|app| worker.graph.own.contains(app)).collect();
            worker.report_panics(&own);
        }
    }

    /// A handle for other threads to stop and reload the engine and read its counters.
    pub fn control(&self) -> Control {
        Control::new(Arc::clone(&self.shared))
    }

    /// Takes one breath of each worker, one after the other on this thread. Returns whether a packet moved.
    pub fn breathe(&mut self) -> bool {
        self.breathe_times(1) > 0
    }

    /// Takes `breaths` breaths of each worker, whatever happens in them: those of the first worker, then those of the
    /// next. Returns the number of breaths in which a packet moved.
    pub fn breathe_times(&mut self, breaths: u64) -> u64 {
        let mut moved = self.worker.breathe_times(breaths);
        for worker in self.crew.workers_mut() {
            moved += worker.breathe_times(breaths);
        }
        self.show_failures();
        moved
    }

    /// Breathes until the run is over.
    ///
    /// Sleeps while idle, unless set to busy-wait: until a descriptor of an app becomes readable, the earliest deadline
    /// comes, or another thread makes a request. Call [`Engine::finish`] afterwards. When this returns the run accepts
    /// no more reloads, so no thread waits for one.
    pub fn run(&mut self) -> End {
        self.shared.set_current(0);
        self.worker.set_running(true);
        self.send_to_work();
        let end = self.run_to_the_end();
        self.crew.pause();
        if end == End::Stopped {
            self.leave();
        }
        self.show_failures();
        self.worker.set_running(false);
        self.shared.close();
        end
    }

    /// Lets apps send what they have to send when the run is stopped, on this thread.
    #[cold]
    fn leave(&mut self) {
        let leaving = self.workers_mut().map(|worker| worker.prepare_to_leave()).collect::<Vec<bool>>();
        if leaving.contains(&true) {
            // One breath for each crossing between the app and the interface, of which there are few.
            (0..LAST_BREATHS).for_each(|_| _ = self.breathe());
            self.workers_mut().for_each(|worker| worker.has_left());
        }
    }

    fn run_to_the_end(&mut self) -> End {
        loop {
            if self.shared.attention.is_pending() && self.handle_requests() {
                return End::Stopped;
            }
            let exit_reason = self.worker.run();
            if self.worker.has_failures() {
                self.paused(Engine::show_failures);
            }
            match exit_reason {
                ExitReason::Request => {}
                ExitReason::Closed => {
                    if let Some(end) = self.end_of_all(Verdict::Closed) {
                        return end;
                    }
                }
                ExitReason::Idle => {
                    let verdict = if self.worker.is_still_out_of_work() { Verdict::OutOfWork } else { Verdict::Works };
                    if let Some(end) = self.end_of_all(verdict) {
                        return end;
                    }
                    if self.worker.may_sleep() {
                        self.worker.write_gauges();
                        self.worker.sleep();
                    }
                    if self.worker.has_failures() {
                        self.paused(Engine::show_failures);
                    }
                }
            }
        }
    }

    /// Publishes the view of other threads after stand-ins replaced apps that panicked.
    #[inline]
    fn show_failures(&mut self) {
        if self.worker.has_failures() || self.crew.workers().iter().any(Worker::has_failures) {
            self.show_stand_ins();
        }
    }

    #[cold]
    fn show_stand_ins(&mut self) {
        let failed: Vec<usize> = self.workers_mut().flat_map(Worker::take_failed).collect();
        for app in failed {
            self.panicked.push(self.worker.graph.topology.app_name(app));
            // Other threads may still be using the status; the last one drops it.
            let status = self.statuses.get_mut(app).and_then(Option::take);
            let _ = catch_panic(|| drop(status));
        }
        self.show();
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
            self.paused(|engine| engine.count_late());
        }
        if requests & request::PASS != 0 {
            self.worker.quiescent();
        }
        if requests & request::COMMIT != 0 {
            self.paused(Engine::commit);
        }
        if requests & request::GAUGES != 0 {
            self.worker.write_gauges();
        }
        if requests & request::WATCH != 0 {
            self.paused(Engine::watch);
        }
        let mut has_failures = self.worker.has_failures();
        if requests & request::LOOK != 0 {
            self.shared.for_each_other_worker(|attention| has_failures |= attention.take_failures());
        }
        if has_failures {
            self.paused(Engine::show_failures);
        }
        requests & request::STOP != 0
    }

    /// Whether every app is finished and holds nothing.
    pub fn is_done(&self) -> bool {
        let apps = self.worker.graph.topology.apps.len();
        let is_done = |worker: &Worker| {
            let mut own = worker.graph.own.iter().filter(|app| **app < apps).map(|&app| &worker.graph.apps[app]);
            own.all(|app| app.is_finished() && app.held() == 0)
        };
        self.workers().all(is_done)
    }

    /// How the run ends, if it is over. All workers are asked only if each has nothing left to do.
    fn end_of_all(&mut self, own: Verdict) -> Option<End> {
        if self.crew.is_empty() {
            return match own {
                Verdict::Closed => Some(End::Closed),
                Verdict::OutOfWork => self.end_out_of_work(),
                Verdict::Works => None,
            };
        }
        let (shared, moved) = (&self.shared, self.worker.moved());
        let is_news = self.overview.is_news(own, moved, shared.attention.announced(), |look| {
            shared.for_each_other_worker(|attention| look(attention.published()));
        });
        if !is_news {
            return None;
        }
        self.paused(Engine::end_of_paused)
    }

    /// How the run ends, if it is over, while no worker works.
    fn end_of_paused(&mut self) -> Option<End> {
        let ends: Vec<bool> = self.workers().flat_map(Worker::ends).collect();
        if !ends.is_empty() && ends.iter().all(|closed| *closed) {
            return Some(End::Closed);
        }
        if !self.workers().skip(1).all(Worker::was_out_of_work) || !self.workers_mut().all(Worker::is_out_of_work) {
            return None;
        }
        let mut parts = self.parts();
        let crossings = parts.topology().crossings.len();
        if (0..crossings).any(|crossing| parts.is_moving(crossing)) {
            return None;
        }
        self.end_out_of_work()
    }

    /// How the run ends when all workers are out of work.
    fn end_out_of_work(&mut self) -> Option<End> {
        let waiting: HashSet<String> = self.workers().flat_map(|worker| worker.graph.waiting_links()).collect();
        if waiting.is_empty() {
            return Some(End::Done);
        }
        if self.workers().any(Worker::will_wake) {
            return None;
        }
        let links = self.worker.graph.topology.links.iter().map(ToString::to_string);
        Some(End::Stalled(links.filter(|link| waiting.contains(link)).collect()))
    }

    /// Publishes the view of other threads.
    fn show(&self) {
        self.shared.show(self.workers().map(|worker| &worker.graph), &self.statuses);
    }

    /// Distributes the orders for traces and taps.
    #[cold]
    fn watch(&mut self) {
        let orders = self.shared.take_orders();
        let mut watches: Vec<_> = self.workers().map(Worker::watch).collect();
        Watch::distribute(
            orders,
            &mut watches.iter_mut().map(|(watch, table)| (&mut **watch, *table)).collect::<Vec<_>>(),
        );
        drop(watches);
        self.workers().for_each(Worker::watch_if_needed);
        let mut trials = self.shared.take_trials().into_iter();
        self.workers().for_each(|worker| worker.try_look_ahead(trials.next()));
    }

    /// Adds the late counts of apps that reloads removed or replaced.
    #[cold]
    fn count_late(&mut self) {
        for LateCount { cell, count } in self.shared.take_late_counts() {
            self.slab().add(cell, count);
        }
    }

    /// Commits the configuration in the mailbox.
    #[cold]
    fn commit(&mut self) {
        let Some(request) = self.shared.take_request() else { return };
        let ControlRequest { configuration: mut new, hired, reply } = request;
        let (start, start_ticks) = (Instant::now(), clock::ticks());
        for graph in &new.graphs {
            graph.prefetch(new.plan.app_actions.iter().map(|action| action.starts_app()));
        }
        let Configuration { graphs, plan, .. } = &mut *new;
        let mut parts = Parts::new(graphs.iter_mut().collect());
        let is_lossless = self.shared.is_lossless();
        let mut old = self.parts();
        if is_lossless {
            let overfull = overfull(&old, &parts, plan);
            if !overfull.is_empty() {
                let links = overfull.iter().map(|&crossing| old.empty(crossing)).collect();
                let _ = reply.send(Reply::Overfull { links, configuration: new, hired });
                return;
            }
        }
        let revived = plan.restart_panicked(&parts, &old);
        if let Err((app, error)) = plan.start(&mut parts, Some(&mut old)) {
            let _ = reply.send(Reply::Failed { app, error, configuration: new });
            return;
        }
        let dropped = hand_over(&mut old, &mut parts, plan);
        let Configuration { topology, graphs, mut plan, .. } = *new;
        let names: Vec<&str> = topology.workers[1..].iter().map(|worker| &*worker.name).collect();
        let mut graphs = graphs.into_iter();
        let mut old: Vec<Graph> = graphs.next().map(|graph| self.worker.swap_graph(graph)).into_iter().collect();
        old.extend(self.crew.change(graphs.collect(), hired, &names));
        self.publish_posts();
        for (status, action) in plan.statuses.iter_mut().zip(&plan.app_actions) {
            if let AppAction::Keep(app) = *action {
                *status = self.statuses[app].clone();
            }
        }
        let old_statuses = std::mem::replace(&mut self.statuses, std::mem::take(&mut plan.statuses));
        let slab = self.slab();
        slab.add(cells::RELOADS, 1);
        slab.set(cells::DOING, doing::NOTHING);
        self.workers_mut().for_each(Worker::write_gauges);
        self.show();
        if dropped > 0 {
            self.workers().for_each(|worker| worker.watch().0.end_trace());
        }
        // Positions of apps are those of the old topology.
        self.shared.end_new_trials();
        // Watchers that learn of a removed link read the view of other threads, which is published by now.
        self.watch();
        let parts = Parts::new(old.iter_mut().collect());
        parts.slab().supersede();
        // Nothing can fail from here on.
        self.begin(&plan, Some(&parts));
        drop(parts);
        let ticks = clock::ticks() - start_ticks;
        self.worker.sampler().on_timeline(|timeline| timeline.reload(start_ticks, ticks, dropped));
        let old = Box::new(OldConfiguration { graphs: old, statuses: old_statuses });
        let _ = reply.send(Reply::Committed { old, revived, dropped, pause: start.elapsed() });
    }

    /// Ends the run: stops the apps, frees the remaining packets, and returns the outcome.
    pub fn finish(mut self, end: End) -> Outcome {
        self.workers_mut().for_each(Worker::end);
        // Before the apps stop, because stopping them may free packets that they hold.
        self.workers_mut().for_each(Worker::write_gauges);
        self.show_failures();
        let unfinished = self.workers_mut().flat_map(Worker::stop).collect();
        self.shared.close();
        self.shared.wait_for_reload();
        self.count_late();
        let snapshot = Snapshot::of(self.slab());
        let started = self.slab().get(cells::STARTED);
        Outcome {
            end,
            panicked: std::mem::take(&mut self.panicked),
            unfinished,
            snapshot,
            elapsed: Duration::from_nanos(clock::unix_ns().saturating_sub(started)),
        }
    }

    /// The current values of all counters.
    pub fn snapshot(&self) -> Snapshot {
        self.workers().for_each(Worker::show_gauges);
        Snapshot::of(self.slab())
    }

    /// Sets the clock by hand, for tests: from now on [`Io::now`](crate::Io::now) returns this value.
    pub fn set_time(&self, nanos: u64) {
        self.workers().for_each(|worker| worker.set_time(nanos));
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
