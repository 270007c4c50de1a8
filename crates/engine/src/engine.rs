//! The engine: breathes, sleeps, ends, and swaps configurations between breaths.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::{Duration, Instant};

use bellows_observe::layout::{Activity, account, common, doing, engine as cells, link};
use bellows_observe::timeline::Timeline;
use bellows_observe::{Directory, Home, Slab, Snapshot};
use bellows_packet::{BufferUse, Fixed, buffer_use, pool};
use bellows_pmu::{Event, OpenError, Pmu};
use bellows_sys::wake::sleep_until_readable;
use bellows_sys::{clock, way_out};

use crate::app::{AppError, Entry, Erased, Failed, Occupant, answer};
use crate::control::{Control, Reply, Shared, attention};
use crate::io::Core;
use crate::meter::{self, Meter, metered_pull, metered_tick};
use crate::network::{Fault, Network, Side};
use crate::panics;
use crate::place::Place;
use crate::retire::LateCount;
use crate::schedule::Schedule;
use crate::slots::{Expects, Listened, Slot};
use crate::watchdog::Pace;
use crate::world::{Before, ChangedEnd, Origin, Outline, World};

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
    /// Write `/tmp/perf-PID.map`, by which `perf` names the stretches of generated code.
    pub perf_map: bool,
    /// Take instrumented breaths, drawn at random, for the accounts, the timeline and the histograms. Without them the same
    /// packets take the same instructions in each run.
    pub metering: bool,
    /// What the instrumented breaths count besides clocks, on the thread that takes them; by default what the processor
    /// counts ([`Pmu::events`]), which is nothing on most virtual machines.
    pub events: Option<Vec<Event>>,
    /// A breath that takes longer is counted, recorded in the timeline, and kept to be told of
    /// ([`Control::take_slow_breaths`]); 0 for none. A thread that [watches](Control::watch_breaths) has to be given,
    /// or only breaths are found that are timed by themselves.
    pub breath_limit: Duration,
}

impl Settings {
    /// The events that are counted.
    pub(crate) fn events(&self) -> &[Event] {
        match &self.events {
            _ if !self.metering => &[],
            Some(events) => events,
            None => Pmu::probe().map_or(&[], Pmu::events),
        }
    }
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            burst: 128,
            lossless: false,
            busywait: false,
            schedule: Schedule::default(),
            perf_map: false,
            metering: true,
            events: None,
            breath_limit: Duration::from_millis(100),
        }
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

/// A deadline closer than this is waited for by polling: it is about what falling asleep and waking up costs.
const WORTH_SLEEPING: u64 = 60_000;

/// How long the engine naps when an app can only be polled.
const NAP: Duration = Duration::from_millis(1);

/// Breaths between two looks at whether anything moves at all, and whether the run is over.
const WINDOW: u64 = 64;

/// Idle breaths between two looks at the clock while an app wants a tick.
const BETWEEN_LOOKS: u64 = 16;

/// Breaths that were drawn between two times that the free packet buffers are put in order.
const TIDY_EVERY: u32 = 64;

/// How long nothing has to move, in nanoseconds, before the engine naps for the first time: about what a nap costs.
const PATIENCE: u64 = 30_000;

/// An engine with its network.
pub struct Engine {
    /// One, at an address of its own that places know.
    core: Fixed<Core>,
    world: World,
    settings: Settings,
    shared: Arc<Shared>,
    home: Option<Arc<Home>>,
    panicked: Vec<String>,
    breaths: u64,
    /// Breaths until the next look at the clock, while an app wants a tick.
    until_look: u64,
    /// Breaths until the next one is drawn to be instrumented.
    until_drawn: u64,
    /// Instrumented breaths until the free buffers are put in order, and how many breaths had moved packets then.
    until_tidy: u32,
    tidy_at: u64,
    /// Whether a packet moved when breaths were last taken.
    busy: bool,
    /// Since when no packet has moved, as far as anyone has looked: in nanoseconds of the engine's clock.
    idle_since: Option<u64>,
    /// An app that has lately said that it is not exhausted: the first to ask again.
    holdout: usize,
    /// How fast breaths follow one upon the other, while the engine runs.
    pace: Option<Pace>,
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
        panics::watch();
        let meter = match Meter::new(settings.events()) {
            // What nobody has asked for does not keep a network from running.
            Err(_) if settings.events.is_none() => Meter::new(&[])?,
            meter => meter?,
        };
        let settings = Settings { events: Some(meter.events().to_vec()), ..settings };
        let timeline = home.as_deref().filter(|_| settings.metering).map(Timeline::create);
        let timeline = timeline.transpose().map_err(StartError::Counters)?;
        let names = timeline.as_ref().map(Timeline::names);
        let home_folder = home.as_deref();
        let nothing =
            Before { outline: &Outline::default(), directory: &Directory::default(), restart: &[], generation: 0 };
        let mut world = World::prepare(network, &nothing, home_folder, &settings, names.as_deref())
            .map_err(StartError::Counters)?;
        let shared = Shared::new(&world, &settings, home.clone(), names).map_err(StartError::Counters)?;
        shared.map_for_perf(&world.breath).map_err(StartError::PerfMap)?;
        if let Err((app, error)) = world.start(None) {
            world.stop_started();
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
        shared.show(&world);
        let now = clock::unix_nanos();
        world.fabric().slab.set(cells::STARTED, now);
        world.fabric().slab.set(cells::ALIVE, now);
        world.fabric().slab.set(cells::DOING, doing::NOTHING);
        let core = Core::new(settings.burst.clamp(1, bellows_packet::CAPACITY), settings.lossless, meter);
        let core = Fixed::new(core);
        core.meter.timeline.replace(timeline);
        world.seat(&core);
        let until_drawn = if settings.metering { core.meter.draw() } else { meter::EVERY };
        let mut engine = Engine {
            core,
            world,
            settings,
            shared: Arc::new(shared),
            home,
            panicked: Vec::new(),
            breaths: 0,
            until_look: 0,
            until_drawn,
            until_tidy: TIDY_EVERY,
            tidy_at: 0,
            busy: false,
            idle_since: None,
            holdout: 0,
            pace: None,
        };
        engine.begin(None);
        Ok(engine)
    }

    /// Tells apps that have just come into the network that the run begins; in a reload, beside the configuration before.
    fn begin(&mut self, old: Option<&World>) {
        let panicked = self.world.begin(old);
        panicked.iter().for_each(|&app| self.core.report_panic(app));
        if !panicked.is_empty() {
            self.bury();
        }
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
        let (before, end) = (self.core.moved.get(), self.breaths.saturating_add(breaths));
        // Whoever takes breaths by hand may have set the clock.
        self.until_look = 0;
        while self.breaths < end {
            self.take_breaths(end - self.breaths, &AtomicU32::new(0));
        }
        self.core.moved.get() - before
    }

    /// Takes up to `most` breaths, and at least one; fewer if something has to be seen to in between.
    fn take_breaths(&mut self, most: u64, attention: &AtomicU32) {
        let core = &self.core;
        core.forget_time();
        core.settle_buffers();
        let mut most = most;
        if core.next_deadline.get() == u64::MAX {
            self.until_look = 0;
        } else {
            if self.until_look == 0 {
                if core.next_deadline.get() <= core.now() {
                    self.tick();
                }
                self.until_look = if self.busy { 1 } else { BETWEEN_LOOKS };
                // The breath that follows at once knows the time; later ones are not to go by it.
                if !self.busy {
                    self.core.forget_time();
                }
            }
            most = most.min(self.until_look);
        }
        let core = &self.core;
        core.interrupt.set(u32::from(core.next_deadline.get() != u64::MAX));
        let moved = core.moved.get();
        if self.until_drawn == 0 && !self.settings.metering {
            self.until_drawn = meter::EVERY;
            self.until_tidy = self.until_tidy.saturating_sub(1);
        }
        let taken = if self.until_drawn == 0 || core.meter.watching.get() {
            self.take_metered();
            1
        } else {
            let taken = self.world.take(core, attention, most.min(self.until_drawn));
            self.until_drawn -= taken;
            taken
        };
        self.breaths += taken;
        let core = &self.core;
        if core.progress.get() && !core.halfway.get() {
            // A tick moved packets, and no app was called since. (A breath that ended halfway ends when it is finished.)
            core.end_breath();
        }
        self.busy = core.moved.get() != moved;
        // A breath that was drawn does not bring the next look forward: it would find more than its share of what is due.
        self.until_look = if self.busy { 0 } else { self.until_look.saturating_sub(taken) };
        if core.failures.get() > 0 {
            self.bury();
        }
        if self.until_tidy == 0 {
            self.tidy();
        }
    }

    /// Whether the next breath is instrumented; if it is, it begins with what is called before it.
    fn begin_metered(&self) -> bool {
        let is_drawn = self.settings.metering && self.until_drawn == 0;
        let is_metered = is_drawn || self.core.meter.watching.get();
        if is_metered {
            self.core.meter.begin_breath(is_drawn);
        }
        is_metered
    }

    /// Takes an instrumented breath. It books if it was drawn; else somebody watches packets.
    fn take_metered(&mut self) {
        let is_drawn = self.until_drawn == 0;
        let Core { meter, moved, .. } = &*self.core;
        if is_drawn {
            self.until_drawn = meter.draw();
            self.until_tidy = self.until_tidy.saturating_sub(1);
        } else {
            self.until_drawn -= 1;
        }
        let before = moved.get();
        let start = meter.begin_breath(is_drawn);
        if meter.is_booking() {
            self.world.fabric().slab.add(cells::METERED, 1);
        }
        self.world.take_metered(&self.core);
        let end = meter.end_breath(self.world.fabric(), moved.get() != before);
        self.note_time(clock::at(start), self.breaths);
        self.note_time(clock::at(end), self.breaths + 1);
    }

    /// The engine is, or was at this time, between two breaths, of which it has taken so many: one of those since the
    /// last such moment may have been slow.
    #[inline]
    fn note_time(&mut self, now: u64, breaths: u64) {
        match &mut self.pace {
            Some(pace) if pace.is_late(now, &self.shared.watchdog) => self.judge_pace(now, breaths),
            Some(pace) => pace.go_on(now, breaths),
            None => {}
        }
    }

    #[cold]
    fn judge_pace(&mut self, now: u64, breaths: u64) {
        let watchdog = &self.shared.watchdog;
        let Some(slow) = self.pace.as_mut().and_then(|pace| pace.judge(now, breaths, watchdog)) else { return };
        let is_standstill = slow.is_standstill(self.settings.breath_limit);
        let cell = if is_standstill { cells::STANDSTILLS } else { cells::SLOW_BREATHS };
        self.world.fabric().slab.add(cell, 1);
        self.core.meter.on_timeline(|timeline| timeline.slow(clock::ticks(), &slow, is_standstill));
        watchdog.keep(slow);
    }

    /// Puts the free buffers in order if packets have moved since they were: see [`bellows_packet::tidy`].
    #[cold]
    fn tidy(&mut self) {
        self.until_tidy = TIDY_EVERY;
        let moved = self.core.moved.get();
        if std::mem::replace(&mut self.tidy_at, moved) != moved {
            bellows_packet::tidy();
        }
    }

    /// Calls the apps whose deadline has come.
    #[cold]
    fn tick(&mut self) {
        let World { places, apps, .. } = &self.world;
        let core = &self.core;
        let now = core.now();
        let is_metered = self.begin_metered();
        core.next_deadline.set(u64::MAX);
        for (place, app) in places.iter().zip(apps) {
            if place.deadline.get() <= now {
                place.deadline.set(u64::MAX);
                let call = app.entry(Entry::Tick, self.settings.lossless);
                // SAFETY: the call is that of the app in this place, to which nothing else refers now.
                unsafe { if is_metered { metered_tick(place, call) } else { call(place) } };
            }
        }
        let next = places.iter().map(|place| place.deadline.get()).min();
        core.next_deadline.set(next.unwrap_or(u64::MAX));
        if core.failures.get() > 0 {
            self.bury();
        }
    }

    /// Puts stand-ins into the places of apps that panicked, and finishes the breath if that was interrupted.
    #[cold]
    fn bury(&mut self) {
        let failed = self.core.failed.take();
        let in_hand_is_unknown = self.core.unwatched_panic.take();
        self.core.failures.set(0);
        for app in failed {
            self.panicked.push(self.world.outline.apps[app].name.clone());
            let name = self.world.places[app].name;
            self.core.meter.on_timeline(|timeline| timeline.panic(name, clock::ticks()));
            let dead = self.world.replace(app, Occupant::from(Box::new(Failed) as Box<dyn Erased>));
            // What it holds may be in any state: its packets are freed, and a second panic ends with it.
            let buffers = buffer_use();
            let is_whole = Place::dropping(common::APP_FAILED, || answer(|| drop(dead))).is_some();
            let place = &self.world.places[app];
            let change = buffer_use().since(buffers);
            place.book(change);
            let mut lost = change.freed.wrapping_sub(change.taken);
            if !is_whole {
                // Packets that a second panic kept from being freed are never seen again.
                let leaked = place.books(&self.world.traits[app], 0).leaked.max(0).cast_unsigned();
                place.book(BufferUse { taken: 0, freed: leaked });
                lost += leaked;
            }
            self.world.fabric().slab.add(place.cell + common::APP_FAILED, lost);
            if in_hand_is_unknown {
                // Of an app in which no packets end, all that was freed without a reason was in its hand.
                let in_hand = place.books(&self.world.traits[app], 0).uncounted.max(0).cast_unsigned();
                self.world.fabric().slab.add(place.cell + common::APP_FAILED, in_hand);
            }
            self.core.meter.buried(&self.world.places[app]);
        }
        self.world.recompile(&self.settings);
        self.shared.show(&self.world);
        self.shared.renew_map_for_perf();
        self.idle_since = None;
        self.core.settle_buffers();
        if self.core.halfway.replace(false) {
            self.world.finish(&self.core);
            if self.core.failures.get() > 0 {
                self.bury();
            }
        }
    }

    /// Breathes until the run is over.
    ///
    /// Sleeps while nothing happens, unless told to poll: until a descriptor of an app becomes readable, the
    /// earliest deadline comes, or another thread calls. Then [`Engine::finish`] it: from its end on the run takes no
    /// more reloads, so that nobody waits for one.
    pub fn run(&mut self) -> End {
        panics::runs(&self.shared);
        self.pace = Some(Pace::begin(clock::now(), self.breaths));
        let end = self.run_to_the_end();
        self.pace = None;
        self.shared.close();
        end
    }

    fn run_to_the_end(&mut self) -> End {
        let shared = Arc::clone(&self.shared);
        loop {
            if shared.attention.load(Relaxed) != 0 && self.attend() {
                return End::Stopped;
            }
            let (moved, end) = (self.core.moved.get(), self.breaths + WINDOW);
            // At least once: without a breath nothing can be told from nothing having moved.
            loop {
                self.take_breaths(end - self.breaths, &shared.attention);
                if self.breaths >= end || shared.attention.load(Relaxed) != 0 {
                    break;
                }
            }
            if self.core.closed.get() && self.is_closed() {
                return End::Closed;
            }
            if self.core.moved.get() != moved {
                self.idle_since = None;
                continue;
            }
            if let Some(end) = self.ending() {
                return end;
            }
            let now = clock::now();
            self.note_time(now, self.breaths);
            let idle_since = *self.idle_since.get_or_insert(now);
            if !self.settings.busywait
                && now >= idle_since.saturating_add(PATIENCE)
                && let Some(end) = self.nap()
            {
                return end;
            }
        }
    }

    /// Does what other threads ask for through [`Control`]: reloads, gauges. True if they want the run to stop.
    ///
    /// [`Engine::run`] does so by itself; who takes breaths by hand calls this in between.
    #[cold]
    pub fn attend(&mut self) -> bool {
        let wishes = self.shared.attention.swap(0, Acquire);
        // Before anything that takes long.
        if wishes & attention::SIGN != 0 {
            self.give_sign();
        }
        // First: the cells are those of the configuration that runs now.
        if wishes & attention::LATE != 0 {
            self.count_late();
        }
        if wishes & attention::COMMIT != 0 {
            self.commit();
        }
        if wishes & attention::GAUGES != 0 {
            self.write_gauges();
        }
        if wishes & attention::WATCH != 0 {
            let orders = self.shared.take_orders();
            let meter = &self.core.meter;
            meter.watching.set(meter.watch.borrow_mut().take(orders, &self.world));
        }
        wishes & attention::STOP != 0
    }

    /// Tells the watchdog that the breath is over that was being taken when it asked.
    fn give_sign(&mut self) {
        let now = clock::now();
        self.note_time(now, self.breaths);
        if let Some(pace) = &mut self.pace {
            pace.sign(now, &self.shared.watchdog);
        }
    }

    /// Whether every app is exhausted and holds nothing.
    pub(crate) fn is_done(&self) -> bool {
        self.world.apps.iter().all(|app| app.exhausted() && app.held() == 0)
    }

    /// Whether every app in which packets end has [told](crate::Io::close) that it can take no more.
    #[cold]
    fn is_closed(&self) -> bool {
        self.core.closed.set(false);
        let World { places, traits, .. } = &self.world;
        let mut ends = places.iter().zip(traits).filter(|(place, traits)| traits.ends && place.is_fed()).peekable();
        ends.peek().is_some() && ends.all(|(place, _)| place.closed.get())
    }

    /// Asks every app something between breaths. `None` if one panicked over it: it has been buried, and the run goes on.
    fn ask<T>(&mut self, question: impl Fn(&dyn Erased) -> T) -> Option<Vec<T>> {
        let slab = &self.world.fabric().slab;
        let ask = |(index, app): (usize, &Occupant)| {
            slab.set(cells::DOING, doing::with(Activity::Question, index));
            answer(|| question(&**app))
        };
        let answers: Vec<Option<T>> = self.world.apps.iter().enumerate().map(ask).collect();
        slab.set(cells::DOING, doing::NOTHING);
        let mut failed = false;
        for app in (0..answers.len()).filter(|&app| answers[app].is_none()) {
            self.core.report_panic(app);
            failed = true;
        }
        if failed {
            self.bury();
        }
        answers.into_iter().collect()
    }

    /// Whether an idle run is over.
    fn ending(&mut self) -> Option<End> {
        if answer(|| self.world.apps.get(self.holdout).is_some_and(|app| !app.exhausted())).unwrap_or(false) {
            return None;
        }
        if let Some(holdout) = self.ask(|app| !app.exhausted())?.into_iter().position(|lasts| lasts) {
            self.holdout = holdout;
            return None;
        }
        let held = self.ask(|app| app.held() > 0)?.contains(&true);
        let fabric = self.world.fabric();
        let listens = fabric.slots.iter().any(|slot| slot.listens().is_some());
        let links = self.world.numbers.iter().zip(&self.world.outline.links);
        let waiting = links.filter(|(number, _)| fabric.waiting[**number].get() > 0);
        let waiting: Vec<String> = waiting.map(|(_, link)| link.to_string()).collect();
        if waiting.is_empty() && !held {
            return Some(End::Done);
        }
        let someone_will_wake = self.core.next_deadline.get() != u64::MAX || listens;
        if someone_will_wake || held { None } else { Some(End::Stalled(waiting)) }
    }

    /// Sleeps until something is due.
    fn nap(&mut self) -> Option<End> {
        let deadline = self.core.next_deadline.get();
        let (now, start) = (clock::now(), clock::ticks());
        if deadline <= now.saturating_add(WORTH_SLEEPING) {
            return None;
        }
        self.write_gauges();
        self.tidy();
        // Before anybody looks whether something is there already.
        self.world.fabric().slots.iter().for_each(|slot| slot.tell(true));
        let end = self.sleep(deadline, now, start);
        self.world.fabric().slots.iter().for_each(|slot| slot.tell(false));
        end
    }

    /// Sleeps until something is due, with everybody told.
    fn sleep(&mut self, deadline: u64, now: u64, start: u64) -> Option<End> {
        let until_deadline = (deadline != u64::MAX).then(|| Duration::from_nanos(deadline - now));
        let answers = self.ask(|app| (!app.exhausted(), app.held() > 0))?;
        let World { places, .. } = &self.world;
        let fabric = self.world.fabric();
        // Nothing but an app's own wish for a tick tells when it can go on if it has left packets in its inputs, or brings
        // packets in or holds some and has no descriptor. A slot that can only be looked at is, whatever else its app wishes.
        let must_be_polled = answers.iter().zip(places.iter()).any(|(&(pulls, holds), place)| {
            let expects = place.slots(fabric).iter().map(Slot::expects).max();
            let has_work =
                place.has_input() || pulls && expects.is_none() || holds && expects != Some(Expects::Descriptor);
            pulls && expects == Some(Expects::Polling) || has_work && place.deadline.get() == u64::MAX
        });
        let timeout =
            if must_be_polled { Some(until_deadline.map_or(NAP, |until| until.min(NAP))) } else { until_deadline };
        // The descriptor of an app that has nothing to do with it may stay readable (a file at its end), so that the
        // engine would never sleep again.
        let busy = places.iter().zip(&answers).filter(|(_, (pulls, holds))| *pulls || *holds);
        let listened: Vec<(usize, Listened)> = busy
            .flat_map(|(place, _)| place.slots(fabric).iter().filter_map(|slot| Some((place.index, slot.listens()?))))
            .collect();
        let mut descriptors = vec![self.shared.event.as_fd()];
        let mut owners = Vec::new();
        for (app, listened) in &listened {
            descriptors.extend(listened.descriptor().inspect(|_| owners.push(*app)));
        }
        let asleep_since = clock::now();
        fabric.slab.set(cells::DOING, doing::ASLEEP);
        let slept = sleep_until_readable(&descriptors, timeout);
        fabric.slab.set(cells::ALIVE, clock::unix_nanos());
        fabric.slab.set(cells::DOING, doing::NOTHING);
        let awake_since = clock::now();
        match slept {
            Ok(readable) => {
                let owners = owners.into_iter().zip(readable.into_iter().skip(1));
                let mut woken: Vec<usize> =
                    owners.filter_map(|(app, is_readable)| is_readable.then_some(app)).collect();
                woken.dedup();
                for &app in &woken {
                    let cell = self.world.places[app].account + account::NAPS;
                    self.world.fabric().slab.add(cell, 1);
                }
                self.note_sleep(asleep_since, awake_since);
                self.pull(&woken);
            }
            Err(_) => {
                std::thread::sleep(NAP);
                self.note_sleep(asleep_since, clock::now());
            }
        }
        // Here and nowhere else: who raises the event has said before what he wants, which is looked at next; and one
        // that is raised after his wish was granted spoils one nap, not all.
        self.shared.event.clear();
        let slab = &self.world.fabric().slab;
        slab.add(cells::NAPS, 1);
        slab.add(cells::NAP_NANOS, clock::now().saturating_sub(now));
        self.core.meter.on_timeline(|timeline| timeline.nap(start, clock::ticks() - start));
        None
    }

    /// The engine has slept from one moment to another.
    fn note_sleep(&mut self, from: u64, to: u64) {
        self.note_time(from, self.breaths);
        if let Some(pace) = &mut self.pace {
            pace.slept(from, to, self.breaths);
        }
    }

    /// Pulls apps whose descriptors woke the engine, whatever their words say: only they can make these unreadable again.
    fn pull(&mut self, apps: &[usize]) {
        self.core.forget_time();
        self.core.settle_buffers();
        let is_metered = self.begin_metered();
        for &app in apps {
            let call = self.world.apps[app].entry(Entry::Pull, self.settings.lossless);
            let place = &self.world.places[app];
            // SAFETY: the call is that of the app in this place, to which nothing else refers now.
            unsafe { if is_metered { metered_pull(place, call) } else { call(place) } };
        }
        if self.core.failures.get() > 0 {
            self.bury();
        }
    }

    /// Writes the counters that are not written as things happen, and looks whether the books balance.
    fn write_gauges(&mut self) {
        // An app that panics over the question is buried, and its stand-in holds nothing.
        let held = loop {
            if let Some(held) = self.ask(|app| app.held()) {
                break held;
            }
        };
        self.write_gauges_with(&held.into_iter().map(Some).collect::<Vec<_>>());
    }

    fn write_gauges_with(&self, held: &[Option<usize>]) {
        let fabric = self.world.fabric();
        let slab = &fabric.slab;
        slab.set(cells::BREATHS, self.breaths);
        slab.set(cells::IDLE_BREATHS, self.breaths - self.core.moved.get());
        let usage = pool::usage();
        slab.set(cells::BUFFERS, (usage.packets + usage.large_packets) as u64);
        slab.set(cells::BUFFERS_IN_USE, usage.in_use as u64);
        for (app, held) in held.iter().enumerate() {
            self.world.write_books(app, *held);
        }
        for &number in &self.world.numbers {
            let cell = fabric.links[number].cell;
            let vector = fabric.take(number as u32);
            slab.set(cell + link::WAITING, vector.len() as u64);
            slab.set(cell + link::WAITING_BYTES, vector.bytes());
            fabric.put(number as u32, vector, &self.core);
        }
        let now = clock::unix_nanos();
        slab.set(cells::UPDATED, now);
        slab.set(cells::ALIVE, now);
    }

    /// Counts what apps that reloads have taken out counted at their end.
    #[cold]
    fn count_late(&self) {
        for LateCount { cell, count } in self.shared.take_late_counts() {
            self.world.fabric().slab.add(cell, count);
        }
    }

    /// Swaps in the configuration that waits in the mailbox.
    #[cold]
    fn commit(&mut self) {
        let Some(request) = self.shared.take_request() else { return };
        let (start, start_ticks) = (Instant::now(), clock::ticks());
        let mut new = request.world;
        new.prefetch();
        let revived = new.revive(&self.world);
        if let Err((app, error)) = new.start(Some(&mut self.world)) {
            let _ = request.reply.send(Reply::Failed { app, error, world: new });
            return;
        }
        let dropped = self.hand_over(&mut new);
        new.seat(&self.core);
        let old = std::mem::replace(&mut self.world, *new);
        let slab = &self.world.fabric().slab;
        slab.add(cells::RELOADS, 1);
        slab.set(cells::DOING, doing::NOTHING);
        old.fabric().slab.supersede();
        self.core.next_deadline.set(0);
        self.idle_since = None;
        self.write_gauges();
        self.shared.show(&self.world);
        let meter = &self.core.meter;
        if meter.watching.get() {
            let mut watch = meter.watch.borrow_mut();
            if dropped > 0 {
                watch.end_trace();
            }
            watch.find(&self.world);
            meter.watching.set(!watch.is_empty());
        }
        // Nothing can fail any more.
        self.begin(Some(&old));
        let meter = &self.core.meter;
        meter.on_timeline(|timeline| timeline.reload(start_ticks, clock::ticks() - start_ticks, dropped));
        let _ = request.reply.send(Reply::Committed { old: Box::new(old), revived, dropped, pause: start.elapsed() });
    }

    /// Moves what stays from the running configuration to a new one. Returns how many packets have no place in it.
    fn hand_over(&mut self, new: &mut World) -> u64 {
        let old = &mut self.world;
        let burials = std::mem::take(&mut new.burials);
        let (from, to) = (Arc::clone(&old.fabric().slab), Arc::clone(&new.fabric().slab));
        let copy = |first: usize, target: usize, count: usize| {
            (0..count).for_each(|index| to.set(target + index, from.get(first + index)));
        };
        let add = |first: usize, target: usize, count: usize| {
            (0..count).for_each(|index| to.add(target + index, from.get(first + index)));
        };
        copy(0, 0, from.directory.engine.len());
        copy(from.directory.histograms, to.directory.histograms, Directory::HISTOGRAM_CELLS);
        let account_cells = account::cells(from.directory.events.len());

        // Packets inside the apps that go are dropped now, as are those that a successor has not taken over.
        let mut dropped = 0;
        let replaced = new.origins.iter().filter_map(|origin| match *origin {
            Origin::Replaces(app) => Some((app, false)),
            _ => None,
        });
        for (app, is_gone) in replaced.chain(burials.apps.iter().map(|burial| (burial.from, true))) {
            let held = answer(|| old.apps[app].held()).unwrap_or(0);
            if is_gone {
                old.write_books(app, Some(held));
            }
            let (place, held) = (&old.places[app], held as u64);
            place.book(BufferUse { taken: 0, freed: held });
            from.add(place.cell + common::REMOVED, held);
            from.set(place.account + account::FREED, place.freed.get());
            from.set(place.account + account::HELD, 0);
            dropped += held;
        }
        let gone = burials.apps.iter().map(|burial| (burial, &from.directory.apps[burial.from]));
        let before = burials.gone_apps.iter().map(|burial| (burial, &from.directory.gone_apps[burial.from]));
        for (burial, entry) in gone.chain(before) {
            match burial.to {
                Some((account, cell)) => {
                    add(entry.account, account, account_cells);
                    add(entry.cell, cell, entry.drops.len() + entry.counters.len());
                }
                None => {
                    let past = from.get(entry.account + account::PAST_TXDROP);
                    let drops = (0..entry.drops.len()).map(|drop| from.get(entry.cell + drop));
                    to.add(cells::FORGOTTEN_DROPS, drops.fold(past, u64::wrapping_add));
                }
            }
        }

        for (index, origin) in new.origins.iter().enumerate() {
            let (Origin::Kept(app) | Origin::Replaces(app)) = *origin else { continue };
            let (before, after) = (&old.places[app], &new.places[index]);
            // What was dropped while it started is there already.
            let removed = to.get(after.cell + common::REMOVED);
            copy(before.cell, after.cell, after.own_counters - after.cell + new.traits[index].counters.len());
            to.add(after.cell + common::REMOVED, removed);
            copy(before.account, after.account, account_cells);
            for (before, after) in before.calls.iter().zip(&after.calls) {
                after.set(before.get());
            }
            after.book(BufferUse { taken: before.taken.get(), freed: before.freed.get() });
            if !matches!(origin, Origin::Kept(_)) {
                to.set(after.account + account::FAILED, 0);
            }
        }

        // What passed through links that go stays with the apps at their ends; packets in them are dropped now.
        for (burial, ends) in burials.links.iter().zip(&burials.ends) {
            let [sender, receiver] = ends;
            let link = old.numbers[burial.from];
            let cell = old.fabric().links[link].cell;
            let waiting = u64::from(old.fabric().waiting[link].get());
            let waiting_bytes = old.fabric().links[link].bytes.get();
            let passed = PassedThrough::of(&from, cell, waiting, waiting_bytes);
            match sender {
                Some(sender) => passed.add_to_sender(&to, *sender),
                None => to.add(cells::FORGOTTEN_DROPS, passed.refused),
            }
            if let Some(receiver) = receiver {
                passed.add_to_receiver(&to, *receiver);
            }
            from.set(cell + link::WAITING, 0);
            from.set(cell + link::WAITING_BYTES, 0);
            from.set(cell + link::REMOVED, waiting);
            dropped += waiting;
        }
        let gone = burials.links.iter().map(|burial| (burial, &from.directory.links[burial.from]));
        let before = burials.gone_links.iter().map(|burial| (burial, &from.directory.gone_links[burial.from]));
        for (burial, entry) in gone.chain(before) {
            match burial.to {
                Some((cell, _)) => add(entry.cell, cell, link::COUNTERS.len()),
                None => to.add(cells::FORGOTTEN_DROPS, from.get(entry.cell + link::REMOVED)),
            }
        }

        // A link may stay though another app has got its end, which is not to count what passed before.
        for &(link, side, ChangedEnd { gone, new }) in &burials.changed_ends {
            let number = old.numbers[link];
            let (cell, waiting) = (old.fabric().links[number].cell, u64::from(old.fabric().waiting[number].get()));
            let passed = PassedThrough::of(&from, cell, waiting, old.fabric().links[number].bytes.get());
            match (side, gone) {
                (Side::Output, Some(gone)) => passed.add_to_sender(&to, gone),
                (Side::Input, Some(gone)) => passed.add_to_receiver(&to, gone),
                (Side::Output, None) => to.add(cells::FORGOTTEN_DROPS, passed.refused),
                (Side::Input, None) => {}
            }
            match side {
                Side::Output => passed.negative().add_to_sender(&to, new),
                Side::Input => passed.negative().add_to_receiver(&to, new),
            }
        }

        for (index, origin) in new.link_origins.iter().enumerate() {
            let Some(link) = *origin else { continue };
            let (before, after) = (old.numbers[link], new.numbers[index]);
            let (from, to) = (old.fabric(), new.fabric());
            copy(from.links[before].cell, to.links[after].cell, link::COUNTERS.len());
            to.put(after as u32, from.take(before as u32), &self.core);
            from.waiting[before].set(0);
        }

        for (index, origin) in new.origins.iter().enumerate() {
            let Origin::Kept(app) = *origin else { continue };
            std::mem::swap(&mut new.apps[index], &mut old.apps[app]);
            let (before, after) = (&old.places[app], &new.places[index]);
            after.deadline.set(before.deadline.get());
            new.statuses[index] = old.statuses[app].clone();
            for (before, after) in before.slots(old.fabric()).iter().zip(after.slots(new.fabric())) {
                after.take_over(before);
            }
        }
        dropped
    }

    /// Ends the run: stops the apps, frees the packets that are left, and says what happened.
    pub fn finish(mut self, end: End) -> Outcome {
        let mut unfinished = Vec::new();
        let slab = Arc::clone(&self.world.fabric().slab);
        for (app, place) in self.world.apps.iter_mut().zip(self.world.places.iter()) {
            slab.set(cells::ALIVE, clock::unix_nanos());
            slab.set(cells::DOING, doing::with(Activity::Stop, place.index));
            self.core.settle_buffers();
            // One that panics over it says the rest when it is stopped.
            let _ = answer(|| app.end(place));
            place.end_call();
        }
        // What the apps hold now they hold at the end: stopping them may free it.
        self.write_gauges();
        for (index, (app, identity)) in self.world.apps.iter_mut().zip(&self.world.outline.apps).enumerate() {
            slab.set(cells::ALIVE, clock::unix_nanos());
            slab.set(cells::DOING, doing::with(Activity::Stop, index));
            if let Err(why) = stop_contained(&mut **app) {
                unfinished.push((identity.name.clone(), why));
            }
        }
        slab.set(cells::DOING, doing::NOTHING);
        self.shared.close();
        self.shared.wait_for_reload();
        self.count_late();
        let slab = &self.world.fabric().slab;
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
        let held = self.world.apps.iter().map(|app| answer(|| app.held()));
        self.write_gauges_with(&held.collect::<Vec<_>>());
        Snapshot::of(&self.world.fabric().slab)
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

/// What has passed through a link. Sums wrap, so that it can be taken off as well.
struct PassedThrough {
    packets: u64,
    bytes: u64,
    refused: u64,
    received: u64,
    received_bytes: u64,
}

impl PassedThrough {
    fn of(slab: &Slab, cell: usize, waiting: u64, waiting_bytes: u64) -> PassedThrough {
        let [packets, bytes, refused] = [link::PACKETS, link::BYTES, link::DROPS].map(|count| slab.get(cell + count));
        let (received, received_bytes) = (packets.wrapping_sub(waiting), bytes.wrapping_sub(waiting_bytes));
        PassedThrough { packets, bytes, refused, received, received_bytes }
    }

    fn negative(&self) -> PassedThrough {
        PassedThrough {
            packets: self.packets.wrapping_neg(),
            bytes: self.bytes.wrapping_neg(),
            refused: self.refused.wrapping_neg(),
            received: self.received.wrapping_neg(),
            received_bytes: self.received_bytes.wrapping_neg(),
        }
    }

    fn add_to_sender(&self, slab: &Slab, app: usize) {
        slab.add(app + account::PAST_OUT, self.packets);
        slab.add(app + account::PAST_OUT_BYTES, self.bytes);
        slab.add(app + account::PAST_TXDROP, self.refused);
    }

    fn add_to_receiver(&self, slab: &Slab, app: usize) {
        slab.add(app + account::PAST_IN, self.received);
        slab.add(app + account::PAST_IN_BYTES, self.received_bytes);
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
