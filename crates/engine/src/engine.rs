//! The process' side of a run: its start, reloads between breaths, and its end.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bellows_observe::layout::{doing, engine as cells};
use bellows_observe::timeline::Timeline;
use bellows_observe::{Directory, RuntimeDir, Snapshot};
use bellows_packet::pool;
use bellows_pmu::OpenError;
use bellows_sys::{clock, way_out};
use bellows_wiring::WiringError;

use crate::app::erased::stop_contained;
use crate::app::{AppError, Status};
use crate::configuration::{Before, Configuration, LateCount};
use crate::control::{Control, Old, Reply, Shared};
use crate::network::Network;
use crate::network::topology::{Origin, Topology};
use crate::panics::{self, contain};
use crate::runtime::attention::request;
use crate::runtime::sampling::Sampler;
use crate::settings::Settings;
use crate::worker::{Pause, Worker};

/// Why an engine cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The network is not put together right.
    #[error("{}", .0.iter().map(WiringError::to_string).collect::<Vec<_>>().join("\n"))]
    Faults(Vec<WiringError>),
    /// An app cannot start.
    #[error("app `{0}`: {1}")]
    App(String, AppError),
    /// The counters cannot be made.
    #[error("cannot make the counters: {0}; {help}", help = way_out(.0, "see that memory and room on the tmpfs are left"))]
    Counters(std::io::Error),
    /// The events cannot be counted.
    #[error("{0}; choose others with `events` in [engine], or none: `events = []`")]
    Events(#[from] OpenError),
    /// The generated code cannot be named for `perf`.
    #[error(
        "the map that names generated code for perf cannot be written: {0}; {help}",
        help = way_out(.0, "see that /tmp is writable")
    )]
    PerfMap(std::io::Error),
    /// There is no pool of packets, and none can be made.
    #[error(transparent)]
    Pool(#[from] pool::Error),
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// Every source is dry, every link empty, and no app holds a packet.
    Done,
    /// It was told to stop.
    Stopped,
    /// No app in which packets end can take any more: see [`Io::close`](crate::Io::close).
    Closed,
    /// Packets wait in these links and nothing will ever move them.
    Stalled(Vec<String>),
}

/// What is left to say when a run is over.
#[derive(Debug)]
pub struct Outcome {
    /// How it ended.
    pub end: End,
    /// The apps that panicked.
    pub panicked: Vec<String>,
    /// The apps that could not finish, and why.
    pub unfinished: Vec<(String, String)>,
    /// All counters at the end.
    pub snapshot: Snapshot,
    /// How long the run took.
    pub elapsed: Duration,
}

/// An engine with its network.
pub struct Engine {
    worker: Worker,
    /// What the apps tell other threads, those that do.
    statuses: Vec<Option<Arc<dyn Status>>>,
    shared: Arc<Shared>,
    runtime_dir: Option<Arc<RuntimeDir>>,
    panicked: Vec<String>,
    /// An app that has lately said that it is not finished: the first to ask again.
    holdout: usize,
}

impl Engine {
    /// Starts the apps of a network. With a `runtime_dir` the counters can be read from other processes.
    ///
    /// # Errors
    /// See [`StartError`]. Nothing has been started then, or it has been stopped again.
    pub fn new(
        network: Network,
        settings: Settings,
        runtime_dir: Option<Arc<RuntimeDir>>,
    ) -> Result<Engine, StartError> {
        let faults = network.faults();
        if !faults.is_empty() {
            return Err(StartError::Faults(faults));
        }
        clock::calibrate();
        pool::ensure()?;
        panics::watch();
        let sampler = match Sampler::new(settings.events()) {
            // What nobody has asked for does not keep a network from running.
            Err(_) if settings.events.is_none() => Sampler::new(&[])?,
            sampler => sampler?,
        };
        let settings = Settings { events: Some(sampler.events().to_vec()), ..settings };
        let timeline = runtime_dir.as_deref().filter(|_| settings.sampling).map(Timeline::create);
        let timeline = timeline.transpose().map_err(StartError::Counters)?;
        let names = timeline.as_ref().map(Timeline::names);
        let nothing =
            Before { topology: &Topology::default(), directory: &Directory::default(), restart: &[], generation: 0 };
        let configuration =
            Configuration::prepare(network, &nothing, runtime_dir.as_deref(), &settings, names.as_deref());
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
                // The reason for giving up is reported; what an app that never ran cannot finish is not.
                let _ = stop_contained(&mut **app);
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
        let mut engine = Engine { worker, statuses, shared, runtime_dir, panicked, holdout: 0 };
        engine.worker.begin(&plan, None);
        engine.show_failures();
        Ok(engine)
    }

    /// A handle by which other threads stop and reload the engine and read its counters.
    pub fn control(&self) -> Control {
        Control::new(Arc::clone(&self.shared))
    }

    /// Takes one breath. False if no packet moved in it.
    pub fn breathe(&mut self) -> bool {
        self.breathe_times(1) > 0
    }

    /// Takes so many breaths, one after the other, whatever happens in them; returns in how many of them a packet moved.
    pub fn breathe_times(&mut self, breaths: u64) -> u64 {
        let moved = self.worker.breathe_times(breaths);
        self.show_failures();
        moved
    }

    /// Breathes until the run is over.
    ///
    /// Sleeps while nothing happens, unless told to poll: until a descriptor of an app becomes readable, the
    /// earliest deadline comes, or another thread calls. Then [`Engine::finish`] it: from its end on the run takes no
    /// more reloads, so that nobody waits for one.
    pub fn run(&mut self) -> End {
        self.shared.runs_here();
        self.worker.set_running(true);
        let end = self.run_to_the_end();
        self.worker.set_running(false);
        self.shared.close();
        end
    }

    fn run_to_the_end(&mut self) -> End {
        loop {
            if self.shared.attention.is_asked() && self.handle_requests() {
                return End::Stopped;
            }
            let pause = self.worker.run();
            self.show_failures();
            match pause {
                Pause::Asked => {}
                Pause::Closed => return End::Closed,
                Pause::Idle => {
                    if let Some(end) = self.ending() {
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

    /// Shows other threads what runs now that stand-ins have taken the places of apps that panicked.
    #[inline]
    fn show_failures(&mut self) {
        let failed = self.worker.take_failed();
        if !failed.is_empty() {
            self.show_without(&failed);
        }
    }

    #[cold]
    fn show_without(&mut self, failed: &[usize]) {
        for &app in failed {
            self.panicked.push(self.worker.graph.topology.apps[app].name.clone());
            // Other threads may still be asking it; whoever is the last ends it.
            let status = self.statuses[app].take();
            let _ = contain(|| drop(status));
        }
        self.shared.show(&self.worker.graph, &self.statuses);
        self.shared.renew_map_for_perf();
    }

    /// Does what other threads ask for through [`Control`]: reloads, gauges. True if they want the run to stop.
    ///
    /// [`Engine::run`] does so by itself; who takes breaths by hand calls this in between.
    #[cold]
    pub fn handle_requests(&mut self) -> bool {
        let requests = self.shared.attention.take();
        // Before anything that takes long.
        if requests & request::SIGN != 0 {
            self.worker.give_sign();
        }
        // First: the cells are those of the configuration that runs now.
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

    /// Whether every app says that it will bring in nothing more and holds nothing.
    pub fn is_done(&self) -> bool {
        self.worker.graph.apps.iter().all(|app| app.is_finished() && app.held() == 0)
    }

    /// Whether an idle run is over.
    fn ending(&mut self) -> Option<End> {
        let apps = &self.worker.graph.apps;
        if contain(|| apps.get(self.holdout).is_some_and(|app| !app.is_finished())).unwrap_or(false) {
            return None;
        }
        if let Some(holdout) = self.worker.ask(|app| !app.is_finished())?.into_iter().position(|lasts| lasts) {
            self.holdout = holdout;
            return None;
        }
        let held = self.worker.ask(|app| app.held() > 0)?.contains(&true);
        let graph = &self.worker.graph;
        let waiting = graph.waiting_links();
        if waiting.is_empty() && !held {
            return Some(End::Done);
        }
        let listens = graph.table().slots.iter().any(|slot| slot.listens().is_some());
        let someone_will_wake = self.worker.has_deadline() || listens;
        if someone_will_wake || held { None } else { Some(End::Stalled(waiting)) }
    }

    /// Writes the counters that are not written as things happen, and looks whether the books balance.
    fn write_gauges(&mut self) {
        // A stand-in takes the place of an app that panics over the question, and holds nothing.
        let held = loop {
            if let Some(held) = self.worker.ask(|app| app.held()) {
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
        let now = clock::unix_ns();
        slab.set(cells::UPDATED, now);
        slab.set(cells::ALIVE, now);
    }

    /// Counts what apps that reloads have taken out counted at their end.
    #[cold]
    fn count_late(&self) {
        for LateCount { cell, count } in self.shared.take_late_counts() {
            self.worker.graph.slab().add(cell, count);
        }
    }

    /// Swaps in the configuration that waits in the mailbox.
    #[cold]
    fn commit(&mut self) {
        let Some(request) = self.shared.take_request() else { return };
        let (start, start_ticks) = (Instant::now(), clock::ticks());
        let mut new = request.configuration;
        new.graph.prefetch();
        let revived = new.plan.revive(&new.graph, &self.worker.graph);
        if let Err((app, error)) = new.plan.start(&mut new.graph, Some(&mut self.worker.graph)) {
            let _ = request.reply.send(Reply::Failed { app, error, configuration: new });
            return;
        }
        let (old, mut plan, dropped) = self.worker.exchange(*new);
        for (status, origin) in plan.statuses.iter_mut().zip(&plan.origins) {
            if let Origin::Kept(app) = *origin {
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
        self.worker.find_watched(dropped);
        // Nothing can fail any more.
        self.worker.begin(&plan, Some(&old));
        let ticks = clock::ticks() - start_ticks;
        self.worker.sampler().on_timeline(|timeline| timeline.reload(start_ticks, ticks, dropped));
        let old = Box::new(Old { graph: old, statuses: old_statuses });
        let _ = request.reply.send(Reply::Committed { old, revived, dropped, pause: start.elapsed() });
    }

    /// Ends the run: stops the apps, frees the packets that are left, and says what happened.
    pub fn finish(mut self, end: End) -> Outcome {
        self.worker.end();
        // What the apps hold now they hold at the end: stopping them may free it.
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

    /// All counters as they are now.
    pub fn snapshot(&self) -> Snapshot {
        let held = self.worker.graph.apps.iter().map(|app| contain(|| app.held()));
        self.write_gauges_with(&held.collect::<Vec<_>>());
        Snapshot::of(self.worker.graph.slab())
    }

    /// Takes the clock into the caller's hands, for tests: from now on [`Io::now`](crate::Io::now) is what this says.
    pub fn set_time(&self, nanos: u64) {
        self.worker.set_time(nanos);
    }

    /// The engine's folder, if it has one.
    pub fn runtime_dir(&self) -> Option<&RuntimeDir> {
        self.runtime_dir.as_deref()
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.shared.close();
    }
}
