//! The threads of the workers other than the first.
//!
//! A worker belongs to one thread at a time. Its own thread has it while it works; when it is asked to pause, the thread
//! sends it back to the engine's thread, which then has all workers, and nothing runs beside it.

use std::collections::HashMap;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};

use bellows_observe::timeline::{Names, Timeline};
use bellows_observe::{RuntimeDir, Watchdog};
use bellows_pmu::OpenError;
use bellows_sys::remedy;

use crate::configuration::Graph;
use crate::network::WorkerSpec;
use crate::runtime::attention::{Attention, request};
use crate::runtime::sampling::Sampler;
use crate::settings::Settings;
use crate::worker::Worker;

/// Why a worker cannot start.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// It cannot run on its processor.
    #[error("worker `{0}` cannot run on processor {1}: {2}")]
    Processor(String, usize, io::Error),
    /// There is no thread for it, or no descriptor to wake it.
    #[error("no thread for the worker `{0}`: {1}; allow more threads and descriptors, or use fewer workers")]
    Thread(String, io::Error),
    /// Its timeline cannot be created.
    #[error(
        "the timeline of the worker `{0}` cannot be created: {1}; {help}",
        help = remedy(.1, "free some memory or space on the tmpfs")
    )]
    Timeline(String, io::Error),
    /// The events cannot be counted.
    #[error("{0}; choose other events with `events` in [engine], or none with `events = []`")]
    Events(#[from] OpenError),
}

/// Tells a thread which worker it has. Called on that thread.
pub(crate) type Enter = Box<dyn FnOnce() + Send>;

/// A worker on its way to its thread.
struct Shift {
    worker: Worker,
    enter: Enter,
    /// How to reach the first worker.
    first: Arc<Attention>,
}

/// A worker on its way back, or the panic that ended its thread: a bug in the engine.
type Returned = thread::Result<Worker>;

/// The thread of a worker. It ends when this is dropped.
pub(crate) struct Member {
    name: String,
    /// How to reach its worker.
    attention: Arc<Attention>,
    shifts: Option<Sender<Box<Shift>>>,
    returned: Receiver<Returned>,
    thread: Option<JoinHandle<()>>,
    /// The memory node of its worker.
    node: Option<usize>,
    /// What a new worker needs besides a graph.
    equipment: Option<Equipment>,
}

struct Equipment {
    settings: Settings,
    sampler: Sampler,
    attention: Arc<Attention>,
    watchdog: Arc<Watchdog>,
}

/// Where the timelines of new workers are, if the engine writes them.
pub(crate) type TimelinePlace<'a> = Option<(&'a RuntimeDir, &'a Arc<Names>)>;

impl Member {
    /// Starts a thread that waits for its worker, whose timeline is to be in this place.
    pub(crate) fn hire(
        spec: &WorkerSpec,
        settings: &Settings,
        place: TimelinePlace<'_>,
    ) -> Result<Member, WorkerError> {
        let attention = Attention::new().map_err(|error| WorkerError::Thread(spec.name.clone(), error))?;
        let attention = Arc::new(attention);
        let sampler = Sampler::new(settings.events())?;
        let timeline = place.map(|(runtime_dir, names)| Timeline::create_for(runtime_dir, &spec.name, names));
        let timeline = timeline.transpose().map_err(|error| WorkerError::Timeline(spec.name.clone(), error))?;
        sampler.timeline.replace(timeline);
        let equipment = Equipment {
            settings: settings.clone(),
            sampler,
            attention: Arc::clone(&attention),
            watchdog: Arc::new(Watchdog::new(settings.breath_limit)),
        };
        let (shifts, next) = channel::<Box<Shift>>();
        let (give_back, returned) = channel();
        let (report, ready) = channel();
        let (cpu, own) = (spec.cpu, spec.clone());
        let work = move || {
            // The thread that starts this one may be pinned.
            let pinned = own.settle();
            let is_ready = pinned.is_ok();
            let _ = report.send(pinned);
            while let (true, Ok(shift)) = (is_ready, next.recv()) {
                // A panic of an app is caught within the worker.
                let returned = catch_unwind(AssertUnwindSafe(|| shift.work()));
                if give_back.send(returned).is_err() {
                    break;
                }
            }
        };
        let name = spec.name.clone();
        let thread = thread::Builder::new().name(format!("worker {name}")).spawn(work);
        let thread = thread.map_err(|error| WorkerError::Thread(name.clone(), error))?;
        let (shifts, thread, equipment) = (Some(shifts), Some(thread), Some(equipment));
        let member = Member { name, attention, shifts, returned, thread, node: spec.node(), equipment };
        match (ready.recv(), cpu) {
            (Ok(Err(error)), Some(cpu)) => Err(WorkerError::Processor(member.name.clone(), cpu, error)),
            _ => Ok(member),
        }
    }

    /// The worker of a thread that has none yet, with a graph to run.
    pub(crate) fn equip(&mut self, graph: Graph) -> Option<Worker> {
        let Equipment { settings, sampler, attention, watchdog } = self.equipment.take()?;
        Some(bellows_arena::on_node(self.node, || Worker::new(graph, settings, sampler, attention, watchdog)))
    }
}

impl Shift {
    fn work(self) -> Worker {
        let Shift { mut worker, enter, first } = self;
        enter();
        worker.set_running(true);
        worker.serve(&first);
        worker.set_running(false);
        worker
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.shifts = None;
        if let Some(thread) = self.thread.take() {
            // Its panic has been reported.
            let _ = thread.join();
        }
    }
}

/// The threads of all workers other than the first, and these workers while they do not work.
pub(crate) struct Crew {
    members: Vec<Member>,
    /// In the order of the configuration; empty while they work.
    workers: Vec<Worker>,
    is_working: bool,
}

impl Crew {
    pub(crate) fn new(members: Vec<Member>, workers: Vec<Worker>) -> Crew {
        Crew { members, workers, is_working: false }
    }

    /// Whether there are no workers other than the first.
    pub(crate) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Whether the workers are on their threads.
    pub(crate) fn is_working(&self) -> bool {
        self.is_working
    }

    /// The workers, which do not work now.
    pub(crate) fn workers(&self) -> &[Worker] {
        &self.workers
    }

    pub(crate) fn workers_mut(&mut self) -> &mut Vec<Worker> {
        &mut self.workers
    }

    /// Gives each worker its graph of a new configuration. `hired` are the threads of workers that are new or on
    /// another processor, where they go on with their timelines; `names` those of all in the new configuration. Returns the old graphs, in their order.
    pub(crate) fn change(&mut self, graphs: Vec<Graph>, hired: Vec<Member>, names: &[&str]) -> Vec<Graph> {
        let mut graphs: Vec<Option<Graph>> = graphs.into_iter().map(Some).collect();
        let place = |name: &str| names.iter().position(|known| *known == name);
        let mut next: Vec<Option<(Member, Worker)>> = names.iter().map(|_| None).collect();
        let mut old = Vec::new();
        let mut timelines: HashMap<String, Timeline> = HashMap::new();
        for (member, mut worker) in self.members.drain(..).zip(self.workers.drain(..)) {
            let is_replaced = hired.iter().any(|hired| hired.name == member.name);
            let place = place(&member.name).filter(|_| !is_replaced);
            match place.and_then(|place| Some((place, graphs[place].take()?))) {
                Some((place, graph)) => {
                    old.push(worker.swap_graph(graph));
                    next[place] = Some((member, worker));
                }
                None => {
                    let timeline = worker.sampler().timeline.take();
                    timelines.extend(timeline.map(|timeline| (member.name.clone(), timeline)));
                    old.push(worker.into_graph());
                }
            }
        }
        for mut member in hired {
            let Some(place) = place(&member.name) else { continue };
            let worker = graphs[place].take().and_then(|graph| member.equip(graph));
            if let (Some(worker), Some(timeline)) = (&worker, timelines.remove(&member.name)) {
                worker.sampler().timeline.replace(Some(timeline));
            }
            next[place] = worker.map(|worker| (member, worker));
        }
        (self.members, self.workers) = next.into_iter().flatten().unzip();
        old
    }

    /// Sends all workers to their threads. `first` is how to reach the first worker; `enter` makes what each thread calls
    /// then, given the worker's position.
    pub(crate) fn work(&mut self, first: &Arc<Attention>, enter: impl Fn(usize) -> Enter) {
        if self.is_working {
            return;
        }
        self.is_working = true;
        for (index, (worker, member)) in self.workers.drain(..).zip(&self.members).enumerate() {
            let shift = Shift { worker, enter: enter(index + 1), first: Arc::clone(first) };
            if let Some(shifts) = &member.shifts {
                // The thread waits for it.
                let _ = shifts.send(Box::new(shift));
            }
        }
    }

    /// Calls all workers back, and waits for them. A panic of one of their threads goes on here.
    pub(crate) fn pause(&mut self) {
        if !self.is_working {
            return;
        }
        self.is_working = false;
        self.members.iter().for_each(|member| member.attention.raise(request::PAUSE));
        for member in &self.members {
            match member.returned.recv() {
                Ok(Ok(worker)) => self.workers.push(worker),
                Ok(Err(panic)) => resume_unwind(panic),
                Err(_) => unreachable!("the thread of the worker `{}` has ended", member.name),
            }
        }
    }
}
