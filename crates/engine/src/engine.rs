//! The engine: breathes, sleeps, ends, and swaps configurations between breaths.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::{Duration, Instant};

use bellows_packet::pool;
use bellows_sys::clock;
use bellows_sys::wake::sleep_until_readable;

use crate::app::{AppError, Entry, Erased, Failed, Place, answer};
use crate::control::{Control, Reply, Shared, attention};
use crate::counters::{common, engine as cells, link};
use crate::home::Home;
use crate::io::Core;
use crate::network::{Fault, Network};
use crate::schedule::{Flat, Schedule, breathe_nested};
use crate::snapshot::Snapshot;
use crate::world::{Origin, Outline, World};

/// How an engine runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Packets that a source brings in a breath: 1 to 1,024.
    pub burst: usize,
    /// Run an app only while every output has room, so that no link drops.
    pub lossless: bool,
    /// Poll without sleeping.
    pub busywait: bool,
    /// How to take a breath.
    pub schedule: Schedule,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { burst: 128, lossless: false, busywait: false, schedule: Schedule::default() }
    }
}

/// Why an engine cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The network is not put together right.
    #[error("{}", .0.iter().map(Fault::to_string).collect::<Vec<_>>().join("\n"))]
    Faults(Vec<Fault>),
    /// An app cannot start.
    #[error("app `{0}`: {1}")]
    App(String, AppError),
    /// The counters cannot be made.
    #[error("cannot make the counters: {0}; see that memory, descriptors and room on the tmpfs are left")]
    Counters(std::io::Error),
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

/// A deadline closer than this is waited for by polling: it is about what falling asleep and waking up costs.
const WORTH_SLEEPING: u64 = 60_000;

/// How long the engine naps when an app can only be polled.
const NAP: Duration = Duration::from_millis(1);

/// Idle breaths before the first nap, and between two looks at whether the run is over.
const PATIENCE: u64 = 64;

/// An engine with its network.
pub struct Engine {
    core: Core,
    world: World,
    flat: Flat,
    settings: Settings,
    shared: Arc<Shared>,
    home: Option<Arc<Home>>,
    panicked: Vec<String>,
    breaths: u64,
    idle_breaths: u64,
    /// Idle breaths since a packet moved.
    idle_for: u64,
}

impl Engine {
    /// Starts the apps of a network. With a `home` the counters can be read from other processes.
    ///
    /// # Errors
    /// See [`StartError`]. Nothing has been started then, or it has been stopped again.
    pub fn new(network: Network, settings: Settings, home: Option<Arc<Home>>) -> Result<Engine, StartError> {
        let faults = network.faults();
        if !faults.is_empty() {
            return Err(StartError::Faults(faults));
        }
        clock::calibrate();
        pool::ensure()?;
        let mut world = World::prepare(network, &Outline::default(), 0, home.as_deref(), settings.schedule)
            .map_err(StartError::Counters)?;
        let shared = Shared::new(&world, settings.schedule, home.clone()).map_err(StartError::Counters)?;
        if let Err((app, error)) = world.start(None) {
            return Err(StartError::App(app, error));
        }
        if let Some(home) = &home
            && let Err(error) = home.publish(0)
        {
            for app in &mut world.apps {
                // The reason for giving up is reported; what an app that never ran cannot finish is not.
                let _ = stop_contained(&mut **app);
            }
            return Err(StartError::Counters(error));
        }
        world.fabric.slab.set(cells::STARTED, clock::unix_nanos());
        Ok(Engine {
            core: Core::new(settings.burst.clamp(1, bellows_packet::CAPACITY), settings.lossless),
            flat: Flat::compile(&world),
            world,
            settings,
            shared: Arc::new(shared),
            home,
            panicked: Vec::new(),
            breaths: 0,
            idle_breaths: 0,
            idle_for: 0,
        })
    }

    /// A handle by which other threads stop and reload the engine and read its counters.
    pub fn control(&self) -> Control {
        Control::new(Arc::clone(&self.shared))
    }

    /// Takes one breath. False if no packet moved in it.
    pub fn breathe(&mut self) -> bool {
        let core = &self.core;
        core.forget_time();
        core.progress.set(false);
        let mut failed = Vec::new();
        if core.next_deadline.get() != u64::MAX && core.next_deadline.get() <= core.now() {
            self.tick(&mut failed);
            if !failed.is_empty() {
                self.bury(&mut failed);
            }
        }
        for entry in [Entry::Pull, Entry::Push] {
            match self.settings.schedule {
                Schedule::Nested => breathe_nested(&self.core, &mut self.world, entry, &mut failed),
                Schedule::Flat => self.flat.breathe(&self.core, &mut self.world, entry, &mut failed),
            }
            if !failed.is_empty() {
                self.bury(&mut failed);
            }
        }
        self.breaths += 1;
        let progress = self.core.progress.get();
        self.idle_breaths += u64::from(!progress);
        progress
    }

    /// Takes so many breaths, one after the other, whatever happens in them; returns in how many of them a packet moved.
    pub fn breathe_times(&mut self, breaths: u64) -> u64 {
        (0..breaths).filter(|_| self.breathe()).count() as u64
    }

    /// Calls the apps whose deadline has come.
    #[cold]
    fn tick(&mut self, failed: &mut Vec<usize>) {
        let World { apps, wirings, fabric, .. } = &mut self.world;
        let now = self.core.now();
        self.core.next_deadline.set(u64::MAX);
        for (index, wiring) in wirings.iter().enumerate() {
            if wiring.deadline.get() <= now {
                wiring.deadline.set(u64::MAX);
                self.core.admit(if self.core.lossless { wiring.budget(fabric) } else { usize::MAX }, Entry::Tick);
                if !apps[index].call(Entry::Tick, Place { core: &self.core, fabric, wiring }) {
                    failed.push(index);
                }
            }
        }
        let next = wirings.iter().map(|wiring| wiring.deadline.get()).min();
        self.core.next_deadline.set(next.unwrap_or(u64::MAX));
    }

    /// Puts stand-ins into the places of apps that panicked.
    #[cold]
    fn bury(&mut self, failed: &mut Vec<usize>) {
        for app in failed.drain(..) {
            let held = answer(|| self.world.apps[app].held()).unwrap_or(0) as u64;
            self.world.fabric.slab.add(self.world.wirings[app].cell + common::APP_FAILED, held);
            self.panicked.push(self.world.outline.apps[app].0.clone());
            let dead = std::mem::replace(&mut self.world.apps[app], Box::new(Failed));
            // What it holds may be in any state: its packets are freed, and a second panic ends with it.
            let _ = answer(|| drop(dead));
        }
        self.flat = Flat::compile(&self.world);
    }

    /// Breathes until the run is over.
    ///
    /// Sleeps while nothing happens, unless told to poll: until a descriptor of an app becomes readable, the
    /// earliest deadline comes, or another thread calls. Then [`Engine::finish`] it: from its end on the run takes no
    /// more reloads, so that nobody waits for one.
    pub fn run(&mut self) -> End {
        let end = self.run_to_the_end();
        self.shared.close();
        end
    }

    fn run_to_the_end(&mut self) -> End {
        loop {
            if self.shared.attention.load(Relaxed) != 0 && self.attend() {
                return End::Stopped;
            }
            if self.breathe() {
                self.idle_for = 0;
                continue;
            }
            self.idle_for += 1;
            if self.idle_for % PATIENCE == 1
                && let Some(end) = self.ending()
            {
                return end;
            }
            if !self.settings.busywait
                && self.idle_for >= PATIENCE
                && let Some(end) = self.nap()
            {
                return end;
            }
        }
    }

    /// Does what other threads ask for. True to stop.
    #[cold]
    fn attend(&mut self) -> bool {
        let wishes = self.shared.attention.swap(0, Acquire);
        if wishes & attention::COMMIT != 0 {
            self.commit();
        }
        if wishes & attention::GAUGES != 0 {
            self.write_gauges();
        }
        wishes & attention::STOP != 0
    }

    /// Whether every app is exhausted and holds nothing.
    pub(crate) fn is_done(&self) -> bool {
        self.world.apps.iter().all(|app| app.exhausted() && app.held() == 0)
    }

    /// Asks every app something between breaths. `None` if one panicked over it: it has been buried, and the run goes on.
    fn ask<T>(&mut self, question: impl Fn(&dyn Erased) -> T) -> Option<Vec<T>> {
        let answers: Vec<Option<T>> = self.world.apps.iter().map(|app| answer(|| question(&**app))).collect();
        let mut failed: Vec<usize> = (0..answers.len()).filter(|&app| answers[app].is_none()).collect();
        if !failed.is_empty() {
            self.bury(&mut failed);
            self.idle_for = 0;
        }
        answers.into_iter().collect()
    }

    /// Whether an idle run is over.
    fn ending(&mut self) -> Option<End> {
        if self.ask(|app| app.exhausted())?.contains(&false) {
            return None;
        }
        let held = self.ask(|app| app.held() > 0)?.contains(&true);
        let listens = self.ask(|app| app.descriptor().is_some())?.contains(&true);
        let waiting = self.world.fabric.waiting.iter().enumerate().filter(|(_, waiting)| waiting.get() > 0);
        let waiting: Vec<String> = waiting.map(|(index, _)| self.world.outline.links[index].to_string()).collect();
        if waiting.is_empty() && !held {
            return Some(End::Done);
        }
        let someone_will_wake = self.core.next_deadline.get() != u64::MAX || listens;
        if someone_will_wake || held { None } else { Some(End::Stalled(waiting)) }
    }

    /// Sleeps until something is due, unless the run is over: nothing may ever be due then.
    fn nap(&mut self) -> Option<End> {
        let deadline = self.core.next_deadline.get();
        let now = clock::now();
        if deadline <= now.saturating_add(WORTH_SLEEPING) {
            return None;
        }
        let end = self.ending();
        if end.is_some() || self.idle_for == 0 {
            // It is over, or an app has just been buried, and its stand-in has to breathe first.
            return end;
        }
        self.write_gauges();
        let until_deadline = (deadline != u64::MAX).then(|| Duration::from_nanos(deadline - now));
        let answers = self.ask(|app| (!app.exhausted(), app.held() > 0, app.descriptor().is_some()))?;
        let World { apps, wirings, fabric, .. } = &self.world;
        // Nothing tells when an app can go on that has left packets in its inputs, nor when one can that brings packets
        // in, or holds some, and has no descriptor.
        let must_be_polled = answers.iter().zip(wirings).any(|(&(pulls, holds, listens), wiring)| {
            let has_work = wiring.has_input(fabric) || (pulls || holds) && !listens;
            has_work && wiring.deadline.get() == u64::MAX
        });
        let timeout =
            if must_be_polled { Some(until_deadline.map_or(NAP, |until| until.min(NAP))) } else { until_deadline };
        let mut descriptors = vec![self.shared.event.as_fd()];
        // The descriptor of an app that has nothing to do with it may stay readable (a file at its end), so that the
        // engine would never sleep again.
        let busy = apps.iter().zip(&answers).filter(|(_, (pulls, holds, _))| *pulls || *holds);
        descriptors.extend(busy.filter_map(|(app, _)| answer(|| app.descriptor()).flatten()));
        if sleep_until_readable(&descriptors, timeout).is_err() {
            std::thread::sleep(NAP);
        }
        // Here and nowhere else: who raises the event has said before what he wants, which is looked at next; and one
        // that is raised after his wish was granted spoils one nap, not all.
        self.shared.event.clear();
        let slab = &self.world.fabric.slab;
        slab.add(cells::NAPS, 1);
        slab.add(cells::NAP_NANOS, clock::now().saturating_sub(now));
        // The next idle breath asks whether the run is over, and patience begins anew.
        self.idle_for = 0;
        None
    }

    /// Writes the counters that are not written as things happen.
    fn write_gauges(&self) {
        let slab = &self.world.fabric.slab;
        slab.set(cells::BREATHS, self.breaths);
        slab.set(cells::IDLE_BREATHS, self.idle_breaths);
        let usage = pool::usage();
        slab.set(cells::BUFFERS, (usage.packets + usage.large_packets) as u64);
        slab.set(cells::BUFFERS_IN_USE, usage.in_use as u64);
        for (index, entry) in self.world.fabric.links.iter().enumerate() {
            let vector = self.world.fabric.take(index as u32);
            slab.set(entry.cell + link::WAITING, vector.len() as u64);
            slab.set(entry.cell + link::WAITING_BYTES, vector.bytes());
            self.world.fabric.put(index as u32, vector, &self.core);
        }
        slab.set(cells::UPDATED, clock::unix_nanos());
    }

    /// Swaps in the configuration that waits in the mailbox.
    #[cold]
    fn commit(&mut self) {
        let Some(request) = self.shared.take_request() else { return };
        let start = Instant::now();
        let mut new = request.world;
        if let Err((app, error)) = new.start(Some(&mut self.world)) {
            let _ = request.reply.send(Reply::Failed { app, error, world: new });
            return;
        }
        self.write_gauges();
        let dropped = self.hand_over(&mut new);
        let old = std::mem::replace(&mut self.world, *new);
        let slab = &self.world.fabric.slab;
        slab.add(cells::RELOADS, 1);
        slab.add(cells::RELOAD_DROPS, dropped);
        old.fabric.slab.supersede();
        self.flat = Flat::compile(&self.world);
        self.core.next_deadline.set(0);
        self.idle_for = 0;
        self.write_gauges();
        let _ = request.reply.send(Reply::Committed { old: Box::new(old), dropped, pause: start.elapsed() });
    }

    /// Moves what stays from the running configuration to a new one. Returns how many packets have no place in it.
    fn hand_over(&mut self, new: &mut World) -> u64 {
        let old = &mut self.world;
        let (from, to) = (&old.fabric.slab, &new.fabric.slab);
        let copy = |first: usize, target: usize, count: usize| {
            (0..count).for_each(|index| to.set(target + index, from.get(first + index)));
        };
        copy(0, 0, from.directory.engine.len());

        let mut stays = vec![false; old.apps.len()];
        for (index, origin) in new.origins.iter().enumerate() {
            let (Origin::Kept(app) | Origin::Replaces(app)) = *origin else { continue };
            stays[app] = true;
            let counters = new.wirings[index].own_counters - new.wirings[index].cell + new.traits[index].counters.len();
            copy(old.wirings[app].cell, new.wirings[index].cell, counters);
        }
        let mut link_stays = vec![false; old.outline.links.len()];
        for (index, origin) in new.link_origins.iter().enumerate() {
            let Some(link) = *origin else { continue };
            link_stays[link] = true;
            copy(old.fabric.links[link].cell, new.fabric.links[index].cell, link::NAMES.len());
            new.fabric.put(index as u32, old.fabric.take(link as u32), &self.core);
            old.fabric.waiting[link].set(0);
        }

        // The books of what goes: packets inside it are dropped now, and its drop counters are kept as one sum.
        let mut retired = 0;
        let mut dropped = 0;
        for (app, stays) in stays.iter().enumerate() {
            if !stays {
                let drops = from.directory.apps[app].drops.len();
                retired += (0..drops).map(|drop| from.get(old.wirings[app].cell + drop)).sum::<u64>();
                dropped += answer(|| old.apps[app].held()).unwrap_or(0) as u64;
            }
        }
        for (index, stays) in link_stays.iter().enumerate() {
            if !stays {
                retired += from.get(old.fabric.links[index].cell + link::DROPS);
                dropped += u64::from(old.fabric.waiting[index].get());
            }
        }
        to.add(cells::RETIRED_DROPS, retired);

        for (index, origin) in new.origins.iter().enumerate() {
            match *origin {
                Origin::Kept(app) => {
                    std::mem::swap(&mut new.apps[index], &mut old.apps[app]);
                    new.wirings[index].deadline.set(old.wirings[app].deadline.get());
                }
                Origin::Replaces(app) => dropped += answer(|| old.apps[app].held()).unwrap_or(0) as u64,
                Origin::New => {}
            }
        }
        dropped
    }

    /// Ends the run: stops the apps, frees the packets that are left, and says what happened.
    pub fn finish(mut self, end: End) -> Outcome {
        let mut unfinished = Vec::new();
        for (app, (name, ..)) in self.world.apps.iter_mut().zip(&self.world.outline.apps) {
            if let Err(why) = stop_contained(&mut **app) {
                unfinished.push((name.clone(), why));
            }
        }
        self.write_gauges();
        self.shared.close();
        let slab = &self.world.fabric.slab;
        let started = slab.get(cells::STARTED);
        Outcome {
            end,
            panicked: std::mem::take(&mut self.panicked),
            unfinished,
            snapshot: Snapshot::of(slab),
            elapsed: Duration::from_nanos(clock::unix_nanos().saturating_sub(started)),
        }
    }

    /// All counters as they are now.
    pub fn snapshot(&self) -> Snapshot {
        self.write_gauges();
        Snapshot::of(&self.world.fabric.slab)
    }

    /// Takes the clock into the caller's hands, for tests: from now on [`Io::now`](crate::Io::now) is what this says.
    pub fn set_time(&self, nanos: u64) {
        self.core.manual_time.set(Some(nanos));
    }

    /// The engine's folder, if it has one.
    pub fn home(&self) -> Option<&Home> {
        self.home.as_deref()
    }
}

/// Starts an app; a panic is a reason like others why it cannot.
pub(crate) fn start_contained(app: &mut dyn Erased, old: Option<&mut dyn Erased>) -> Result<(), AppError> {
    answer(|| app.start(old)).unwrap_or_else(|| Err("it panicked when it was to start".into()))
}

/// Stops an app; a panic is a reason like others why it could not finish.
pub(crate) fn stop_contained(app: &mut dyn Erased) -> Result<(), String> {
    match answer(|| app.stop()) {
        Some(result) => result.map_err(|error| error.to_string()),
        None => Err("it panicked when it was to stop".to_owned()),
    }
}

/// Ends apps that are no longer in the network: what they could not finish.
pub(crate) fn retire(world: World, kept: &[Origin]) -> Vec<(String, String)> {
    let World { mut apps, outline, .. } = world;
    let mut unfinished = Vec::new();
    for (index, (name, ..)) in outline.apps.iter().enumerate() {
        // In the place of one that was kept lies the new configuration's copy, which was never started.
        if !kept.contains(&Origin::Kept(index))
            && let Err(why) = stop_contained(&mut *apps[index])
        {
            unfinished.push((name.clone(), why));
        }
    }
    unfinished
}
