//! Apps that misbehave outside their calls, and engines that wait: nothing may hang, spin, or fail together with an
//! app.

use std::mem;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use bellows_engine::{
    App, AppError, AppSpec, Control, End, Engine, Io, Network, Outcome, Port, Ports, ReloadError, Schedule, Settings,
    Watched,
};
use bellows_observe::RuntimeDir;
use bellows_packet::Packet;
use bellows_sys::wake::WakeEvent;
use bellows_testkit::wait::Deadline;

const PACKETS: Ports = Ports::Named(&[Port::required("port", "packets")]);

/// Brings in packets until none are left or it is silenced; has a descriptor.
#[derive(Default)]
struct Source {
    left: u64,
    silenced: Arc<AtomicBool>,
    bell: Option<Arc<Bell>>,
    stays: bool,
}

impl App for Source {
    const OUTPUTS: Ports = PACKETS;

    fn pull(&mut self, io: &Io<Self>) {
        let mut output = io.output(0);
        if !self.silenced.load(Relaxed) {
            for packet in Packet::allocate_burst(self.left.min(8) as usize) {
                output.push(packet);
                self.left -= 1;
            }
        }
    }

    fn is_finished(&self) -> bool {
        self.left == 0 && !self.stays
    }

    fn slots(&self) -> usize {
        1
    }

    fn tick(&mut self, io: &Io<Self>) {
        if let Some(bell) = &self.bell {
            io.slot(0).watch(Arc::clone(bell), 0, 0);
        }
    }
}

/// A watched value with a descriptor.
struct Bell(WakeEvent);

impl Watched for Bell {
    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.0.as_fd()]
    }
}

/// A watched value that records `arm` and `disarm`.
struct Armed {
    event: WakeEvent,
    is_armed: AtomicBool,
    times: AtomicU64,
}

impl Watched for Armed {
    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.event.as_fd()]
    }

    fn arm(&self) {
        assert!(!self.is_armed.swap(true, Relaxed));
    }

    fn disarm(&self) {
        assert!(self.is_armed.swap(false, Relaxed));
        self.times.fetch_add(1, Relaxed);
    }
}

/// Watches an [`Armed`] value, and is pulled when its descriptor is readable.
struct Listener(Arc<Armed>);

impl App for Listener {
    fn slots(&self) -> usize {
        1
    }

    fn tick(&mut self, io: &Io<Self>) {
        io.slot(0).watch(Arc::clone(&self.0), 0, 0);
    }

    fn pull(&mut self, _: &Io<Self>) {
        self.0.event.clear();
    }
}

#[test]
fn a_watched_value_is_armed_when_the_engine_sleeps_and_disarmed_when_it_wakes() {
    let told = Arc::new(Armed {
        event: WakeEvent::new().unwrap(),
        is_armed: AtomicBool::new(false),
        times: AtomicU64::new(0),
    });
    let other_side = Arc::clone(&told);
    run_with(Network::new().app("listener", Listener(Arc::clone(&told))), |control| {
        let deadline = Instant::now() + Duration::from_secs(9);
        let wait = |what: &dyn Fn() -> bool| {
            while !what() && Instant::now() < deadline {
                thread::yield_now();
            }
        };
        for woken in 1..=3 {
            wait(&|| other_side.is_armed.load(Relaxed));
            other_side.event.raise();
            wait(&|| other_side.times.load(Relaxed) >= woken);
        }
        control.stop();
    });
    assert!(told.times.load(Relaxed) >= 3);
    assert!(!told.is_armed.load(Relaxed), "it is awake at its end");
}

/// Frees packets while its gate is open.
struct Sink(Arc<AtomicBool>);

impl Sink {
    fn open() -> Sink {
        Sink(Arc::new(AtomicBool::new(true)))
    }
}

impl App for Sink {
    const INPUTS: Ports = PACKETS;

    fn push(&mut self, io: &Io<Self>) {
        if self.0.load(Relaxed) {
            io.input(0).discard();
        }
    }
}

fn bell() -> Option<Arc<Bell>> {
    Some(Arc::new(Bell(WakeEvent::new().unwrap())))
}

/// A source and a sink, and an app beside them.
fn beside<A: App>(source: Source, sink: Sink, app: A) -> Network {
    let network = Network::new().app("source", source).app("sink", sink).app("app", app);
    network.link("source.port -> sink.port").unwrap()
}

/// Runs a network while a thread runs `work`; stops the run after ten seconds.
fn run_with(network: Network, work: impl FnOnce(&Control) + Send) -> Outcome {
    let mut engine = Engine::new(network, Settings::default(), None).unwrap();
    let control = engine.control();
    let watched = control.clone();
    let (over, wait) = channel::<()>();
    thread::spawn(move || {
        let _ = wait.recv_timeout(Duration::from_secs(10));
        watched.stop();
    });
    let end = thread::scope(|scope| {
        scope.spawn(|| work(&control));
        engine.run()
    });
    drop(over);
    let outcome = engine.finish(end);
    assert_eq!(outcome.snapshot.imbalances(), []);
    outcome
}

fn sleeps_in_a_while(control: &Control) -> u64 {
    thread::sleep(Duration::from_millis(50));
    let before = control.snapshot().engine("sleeps");
    thread::sleep(Duration::from_millis(200));
    control.snapshot().engine("sleeps") - before
}

/// An app that does nothing.
struct Idle;
impl App for Idle {
    const PULLS: bool = false;
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Where {
    Held,
    Finished,
    Tick,
    Start,
    Stop,
}

struct Fragile(Where, Arc<AtomicU64>);

impl Fragile {
    fn at(&self, place: Where) {
        assert!(self.0 != place, "an app of this test fails on purpose");
    }
}

impl App for Fragile {
    const PULLS: bool = true;

    fn pull(&mut self, _: &Io<Self>) {
        self.1.fetch_add(1, Relaxed);
    }
    fn tick(&mut self, _: &Io<Self>) {
        self.at(Where::Tick);
    }
    fn held(&self) -> usize {
        self.at(Where::Held);
        0
    }
    fn is_finished(&self) -> bool {
        self.at(Where::Finished);
        true
    }
    fn start(&mut self, _: Option<&mut Fragile>) -> Result<(), AppError> {
        self.at(Where::Start);
        Ok(())
    }
    fn stop(&mut self) -> Result<(), AppError> {
        self.at(Where::Stop);
        Ok(())
    }
}

#[test]
fn an_app_that_panics_between_breaths_stops_alone() {
    for place in [Where::Held, Where::Finished, Where::Tick] {
        let pulls = Arc::new(AtomicU64::new(0));
        let source = Source { left: 100, ..Source::default() };
        let outcome = run_with(beside(source, Sink::open(), Fragile(place, Arc::clone(&pulls))), |_| ());
        assert_eq!(outcome.end, End::Done, "{place:?}");
        assert_eq!(outcome.panicked, ["app"], "{place:?}");
        assert_eq!(outcome.snapshot.links[0].received(), 100);
        if place == Where::Tick {
            assert_eq!(pulls.load(Relaxed), 0, "an app that panicked is not called again");
        }
    }
}

#[test]
fn an_app_that_panics_at_its_start_or_end_is_an_error_that_names_it() {
    let fragile = |place| beside(Source::default(), Sink::open(), Fragile(place, Arc::default()));
    let error = Engine::new(fragile(Where::Start), Settings::default(), None).err().unwrap();
    assert_eq!(error.to_string(), "app `app`: it panicked while starting");
    let outcome = run_with(fragile(Where::Stop), |_| ());
    assert_eq!(outcome.unfinished, [("app".to_owned(), "it panicked while stopping".to_owned())]);

    let lasting = || Source { stays: true, ..Source::default() };
    let outcome = run_with(beside(lasting(), Sink::open(), Idle), |control| {
        let new = beside(lasting(), Sink::open(), Fragile(Where::Start, Arc::default()));
        let error = control.reload(new).unwrap_err();
        assert!(error.to_string().contains("`app`: it panicked while starting; the old"), "{error}");
        control.stop();
    });
    assert_eq!((outcome.end, outcome.snapshot.engine("reloads")), (End::Stopped, 0));
}

#[test]
fn an_idle_engine_sleeps_after_reloads_of_a_busy_one() {
    let silenced = Arc::new(AtomicBool::new(false));
    let source = |silenced| Source { left: u64::MAX, silenced, bell: bell(), stays: true };
    let outcome = run_with(beside(source(Arc::clone(&silenced)), Sink::open(), Idle), |control| {
        for _ in 0..50 {
            silenced.store(false, Relaxed);
            thread::sleep(Duration::from_millis(1));
            // An engine that is awake may see the request before the event that would have woken it.
            control.reload(beside(source(Arc::default()), Sink::open(), Idle)).unwrap();
            silenced.store(true, Relaxed);
            thread::sleep(Duration::from_millis(5));
            let before = control.snapshot().engine("sleeps");
            thread::sleep(Duration::from_millis(5));
            let sleeps = control.snapshot().engine("sleeps") - before;
            assert!(sleeps <= 2, "{sleeps} sleeps of an engine that nobody wakes");
        }
        control.stop();
    });
    assert_eq!(outcome.snapshot.engine("reloads"), 50);
}

#[test]
fn an_idle_engine_sleeps_beside_the_readable_descriptor_of_a_finished_app() {
    let ended = bell();
    ended.as_ref().unwrap().0.raise();
    let mut network = beside(Source { stays: true, bell: bell(), ..Source::default() }, Sink::open(), Idle);
    network.apps.push(AppSpec::new("ended", "source", "", Source { bell: ended, ..Source::default() }));
    network.apps.push(AppSpec::new("drain", "sink", "", Sink::open()));
    run_with(network.link("ended.port -> drain.port").unwrap(), |control| {
        let sleeps = sleeps_in_a_while(control);
        control.stop();
        assert!(sleeps <= 2, "{sleeps} sleeps of an engine that nobody wakes");
    });
}

/// Is asked for packets in every breath, and has upkeep every five milliseconds.
struct Keeper(Arc<Bell>);

impl App for Keeper {
    fn slots(&self) -> usize {
        1
    }

    fn tick(&mut self, io: &Io<Self>) {
        io.slot(0).watch(Arc::clone(&self.0), 0, 0);
        io.wake_each(5_000_000);
    }

    fn pull(&mut self, _: &Io<Self>) {}
}

#[test]
fn an_idle_engine_wakes_up_once_for_all_and_takes_one_breath() {
    let keeper = || Keeper(bell().unwrap());
    let network = (0..5).fold(Network::new(), |network, number| network.app(&format!("keeper{number}"), keeper()));
    run_with(network, |control| {
        let counts = || {
            let snapshot = control.snapshot();
            let first: u64 = snapshot.apps[0].calls["tick"];
            (snapshot.engine("sleeps"), snapshot.engine("breaths"), first)
        };
        thread::sleep(Duration::from_millis(50));
        let before = counts();
        thread::sleep(Duration::from_millis(300));
        let now = counts();
        control.stop();
        let (sleeps, breaths, ticks) = (now.0 - before.0, now.1 - before.1, now.2 - before.2);
        assert!(ticks > 5 && sleeps <= ticks + 5, "{sleeps} sleeps for {ticks} times");
        assert!(breaths <= 20 * sleeps, "{breaths} breaths in {sleeps} sleeps");
    });
}

/// Panics at its first pull.
struct PanicsAtPull;

impl App for PanicsAtPull {
    const PULLS: bool = true;

    fn pull(&mut self, _: &Io<Self>) {
        panic!("an app of this test fails on purpose");
    }
}

#[test]
fn a_breath_that_is_finished_after_a_panic_counts_once() {
    for schedule in Schedule::ALL {
        let source = Source { left: u64::MAX, stays: true, ..Source::default() };
        let settings = Settings { schedule, ..Settings::default() };
        let mut engine = Engine::new(beside(source, Sink::open(), PanicsAtPull), settings, None).unwrap();
        assert_eq!(engine.breathe_times(1), 1, "{schedule}: packets moved before and after the panic");
        let snapshot = engine.snapshot();
        assert_eq!((snapshot.engine("breaths"), snapshot.engine("idle_breaths")), (1, 0), "{schedule}");
        assert_eq!(snapshot.links[0].received(), 8, "{schedule}: the breath was finished");
    }
}

/// A ring whose other side raises the event without adding anything.
struct Prank {
    word: AtomicU32,
    bell: WakeEvent,
}

impl Watched for Prank {
    fn word(&self) -> Option<&AtomicU32> {
        Some(&self.word)
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.bell.as_fd()]
    }
}

struct Pranked(Arc<Prank>);

impl App for Pranked {
    const OUTPUTS: Ports = Ports::NONE;

    fn slots(&self) -> usize {
        1
    }

    fn tick(&mut self, io: &Io<Self>) {
        io.slot(0).watch(Arc::clone(&self.0), u32::MAX, 0);
    }

    fn pull(&mut self, _: &Io<Self>) {
        self.0.bell.clear();
    }
}

#[test]
fn an_app_whose_descriptor_woke_the_engine_is_pulled_whatever_its_word_holds() {
    let prank = Arc::new(Prank { word: AtomicU32::new(0), bell: WakeEvent::new().unwrap() });
    let ringing = Arc::clone(&prank);
    let source = Source { stays: true, bell: bell(), ..Source::default() };
    run_with(beside(source, Sink::open(), Pranked(prank)), |control| {
        thread::sleep(Duration::from_millis(20));
        ringing.bell.raise();
        let sleeps = sleeps_in_a_while(control);
        control.stop();
        assert!(sleeps <= 3, "{sleeps} sleeps: nothing clears the event");
    });
}

#[test]
fn packets_left_in_an_input_are_offered_again_even_if_nothing_wakes_the_engine() {
    let gate = Arc::new(AtomicBool::new(false));
    let source = Source { left: 10, stays: true, bell: bell(), ..Source::default() };
    let outcome = run_with(beside(source, Sink(Arc::clone(&gate)), Idle), |control| {
        thread::sleep(Duration::from_millis(50));
        gate.store(true, Relaxed);
        thread::sleep(Duration::from_millis(200));
        assert_eq!(control.snapshot().links[0].waiting, 0);
        control.stop();
    });
    assert_eq!(outcome.snapshot.links[0].received(), 10);
}

#[test]
fn a_run_ends_when_an_apps_own_thread_releases_the_last_packet() {
    struct Threaded(Arc<AtomicUsize>);
    impl App for Threaded {
        const PULLS: bool = false;

        fn held(&self) -> usize {
            self.0.load(Relaxed)
        }
    }
    let held = Arc::new(AtomicUsize::new(3));
    let outcome = run_with(beside(Source::default(), Sink::open(), Threaded(Arc::clone(&held))), |_| {
        thread::sleep(Duration::from_millis(50));
        held.store(0, Relaxed);
    });
    assert_eq!(outcome.end, End::Done);
    assert!(outcome.elapsed < Duration::from_secs(5));
}

#[test]
fn a_run_ends_when_the_last_source_finishes_late() {
    struct Late(u64);
    impl App for Late {
        const PULLS: bool = true;

        fn pull(&mut self, _: &Io<Self>) {
            self.0 = self.0.saturating_sub(1);
        }
        fn is_finished(&self) -> bool {
            self.0 == 0
        }
    }
    let outcome = run_with(beside(Source::default(), Sink::open(), Late(10)), |_| ());
    assert_eq!(outcome.end, End::Done);
}

#[test]
fn a_reload_after_the_end_is_refused_even_before_the_run_is_finished() {
    let mut engine = Engine::new(beside(Source::default(), Sink::open(), Idle), Settings::default(), None).unwrap();
    assert_eq!(engine.run(), End::Done);
    let control = engine.control();
    let (sender, answer) = channel();
    thread::spawn(move || {
        let _ = sender.send(control.reload(beside(Source::default(), Sink::open(), Idle)));
    });
    let answer = answer.recv_timeout(Duration::from_secs(10)).expect("the reload must not wait");
    assert!(matches!(answer, Err(ReloadError::Over)));
    engine.finish(End::Done);
}

#[test]
fn apps_are_stopped_again_when_the_counters_cannot_be_published() {
    /// Removes the engine's runtime directory.
    struct Vandal(Arc<RuntimeDir>, Arc<AtomicBool>);
    impl App for Vandal {
        const PULLS: bool = false;

        fn start(&mut self, _: Option<&mut Vandal>) -> Result<(), AppError> {
            Ok(self.0.remove()?)
        }
        fn stop(&mut self) -> Result<(), AppError> {
            self.1.store(true, Relaxed);
            Ok(())
        }
    }
    let runtime_dir = Arc::new(RuntimeDir::claim(&format!("test-vandal-{}", std::process::id())).unwrap());
    let stopped = Arc::new(AtomicBool::new(false));
    let network = Network::new().app("vandal", Vandal(Arc::clone(&runtime_dir), Arc::clone(&stopped)));
    assert!(Engine::new(network, Settings::default(), Some(runtime_dir)).is_err());
    assert!(stopped.load(Relaxed));
}

#[test]
fn a_reload_restarts_an_app_that_panicked_even_if_it_has_not_changed() {
    /// Panics at its first packets.
    #[derive(Default)]
    struct Fragile {
        packets: u64,
    }
    impl App for Fragile {
        const INPUTS: Ports = PACKETS;

        fn push(&mut self, io: &Io<Self>) {
            self.packets += io.input(0).discard() as u64;
            assert!(self.packets > 8, "an app of this test fails on purpose");
        }
    }
    let network = || {
        let source = Source { left: u64::MAX, ..Source::default() };
        let network = Network::new().app("source", source).app("fragile", Fragile::default());
        network.link("source.port -> fragile.port").unwrap()
    };
    for schedule in Schedule::ALL {
        let mut engine = Engine::new(network(), Settings { schedule, ..Settings::default() }, None).unwrap();
        engine.breathe_times(5);
        let listed = engine.control().listing().calls.pop().unwrap().function;
        assert!(listed.contains("Failed"), "{schedule}: {listed}");
        for round in 1..=2 {
            let (control, network) = (engine.control(), network());
            let reloading = thread::spawn(move || control.reload(network).unwrap());
            let deadline = Deadline::new("a reload");
            while !reloading.is_finished() {
                deadline.check();
                engine.handle_requests();
            }
            let report = reloading.join().unwrap();
            assert_eq!((report.kept, report.revived), (vec!["source".to_owned()], vec!["fragile".to_owned()]));
            let fragile = &engine.snapshot().apps[1];
            assert_eq!(
                (fragile.state.as_str(), fragile.panics),
                ("active", round),
                "{schedule}: until its next packets"
            );
            engine.breathe_times(5);
            assert_eq!(engine.snapshot().apps[1].state, "failed");
        }
        let outcome = engine.finish(End::Stopped);
        assert_eq!(outcome.panicked, ["fragile"; 3], "{schedule}");
        assert_eq!(outcome.snapshot.imbalances(), []);
        // The first of five vectors was consumed each time.
        assert_eq!((outcome.snapshot.apps[1].drops["app_failed"], outcome.snapshot.apps[1].ended), (3 * 4 * 8, 3 * 8));
    }
}

#[test]
fn a_named_app_is_restarted_even_if_it_has_not_changed() {
    let network = || beside(Source { stays: true, ..Source::default() }, Sink::open(), Idle);
    run_with(network(), |control| {
        let report = control.reload_restarting(network(), &["app".to_owned()]).unwrap();
        control.stop();
        assert_eq!((report.kept.len(), report.replaced), (2, vec!["app".to_owned()]));
    });
}

/// A ring index that the other side writes, without a descriptor.
#[derive(Default)]
struct Ring(AtomicU32);

impl Watched for Ring {
    fn word(&self) -> Option<&AtomicU32> {
        Some(&self.0)
    }
}

#[test]
fn a_sleeping_engine_polls_a_word_without_a_descriptor_even_if_its_app_wants_a_tick_much_later() {
    struct Card {
        ring: Arc<Ring>,
        left: usize,
    }
    impl App for Card {
        const OUTPUTS: Ports = PACKETS;

        fn pull(&mut self, io: &Io<Self>) {
            Packet::allocate_burst(mem::take(&mut self.left)).for_each(|packet| io.output(0).push(packet));
        }
        fn tick(&mut self, io: &Io<Self>) {
            io.slot(0).watch(Arc::clone(&self.ring), u32::MAX, 0);
            io.wake_at(io.now() + 3_600_000_000_000);
        }
        fn slots(&self) -> usize {
            1
        }
        fn is_finished(&self) -> bool {
            self.left == 0
        }
    }
    let ring = Arc::<Ring>::default();
    let network = Network::new().app("card", Card { ring: Arc::clone(&ring), left: 5 }).app("sink", Sink::open());
    let outcome = run_with(network.link("card.port -> sink.port").unwrap(), |_| {
        thread::sleep(Duration::from_millis(50));
        ring.0.store(1, Relaxed);
    });
    assert_eq!((outcome.end, outcome.snapshot.links[0].received()), (End::Done, 5));
}

#[test]
fn an_app_that_panicked_stops_alone_even_if_what_it_watched_panics_too() {
    struct Fuse;
    impl Watched for Fuse {}
    impl Drop for Fuse {
        fn drop(&mut self) {
            panic!("what an app of this test watches fails on purpose");
        }
    }
    struct Bomb;
    impl App for Bomb {
        const PULLS: bool = true;

        fn pull(&mut self, io: &Io<Self>) {
            io.slot(0).watch(Arc::new(Fuse), 0, 0);
            panic!("an app of this test fails on purpose");
        }
        fn slots(&self) -> usize {
            1
        }
    }
    let source = Source { left: 100, ..Source::default() };
    let outcome = run_with(beside(source, Sink::open(), Bomb), |_| ());
    assert_eq!((outcome.end, outcome.snapshot.links[0].received()), (End::Done, 100));
    assert_eq!(outcome.panicked, ["app"]);
}

#[test]
fn an_app_that_panics_when_it_is_dropped_breaks_neither_a_reload_nor_the_end() {
    struct Bomb;
    impl App for Bomb {
        const PULLS: bool = false;
    }
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("an app of this test fails on purpose");
        }
    }
    let lasting = || Source { stays: true, ..Source::default() };
    let outcome = run_with(beside(lasting(), Sink::open(), Bomb), |control| {
        let removed = control.reload(beside(lasting(), Sink::open(), Idle));
        let added = control.reload(beside(lasting(), Sink::open(), Bomb));
        control.stop();
        assert!(removed.is_ok() && added.is_ok());
    });
    assert_eq!((outcome.end, outcome.snapshot.engine("reloads")), (End::Stopped, 2));
}

/// Logs the calls of `start`, `begin`, `tick`, `end` and `stop`. Can fail to start, or panic in `begin`.
struct Diary {
    name: &'static str,
    lines: Arc<std::sync::Mutex<Vec<String>>>,
    starts: bool,
    begins: bool,
}

impl Diary {
    fn note(&self, what: &str) {
        self.lines.lock().unwrap().push(format!("{} {what}", self.name));
    }
}

impl App for Diary {
    const PULLS: bool = false;

    fn start(&mut self, _: Option<&mut Self>) -> Result<(), AppError> {
        self.note("start");
        if self.starts { Ok(()) } else { Err("it is not to start".into()) }
    }

    fn begin(&mut self) {
        self.note("begin");
        assert!(self.begins, "not to begin");
    }

    fn tick(&mut self, _: &Io<Self>) {
        self.note("tick");
    }

    fn end(&mut self, _: &Io<Self>) {
        self.note("end");
    }

    fn stop(&mut self) -> Result<(), AppError> {
        self.note("stop");
        Ok(())
    }
}

/// Never finishes.
struct Endless;
impl App for Endless {}

/// A network of these apps: each has a name, whether it starts, and whether it begins.
fn diaries(lines: &Arc<std::sync::Mutex<Vec<String>>>, apps: &[(&'static str, bool, bool)]) -> Network {
    let mut network = Network::new();
    for &(name, starts, begins) in apps {
        let diary = Diary { name, lines: Arc::clone(lines), starts, begins };
        network.apps.push(AppSpec::new(name, "diary", name, diary));
    }
    network
}

#[test]
fn an_app_begins_when_all_have_started_and_never_if_one_cannot() {
    let lines = Arc::default();
    let engine = |apps: &[_]| Engine::new(diaries(&lines, apps), Settings::default(), None);
    let told = || mem::take(&mut *lines.lock().unwrap());

    assert!(engine(&[("a", true, true), ("b", false, true)]).is_err());
    assert_eq!(told(), ["a start", "b start", "a stop"]);

    let mut fine = engine(&[("a", true, true), ("b", true, true)]).unwrap();
    assert_eq!(told(), ["a start", "b start", "a begin", "b begin"]);
    fine.breathe();
    assert_eq!(told(), ["a tick", "b tick"]);
    assert_eq!(fine.finish(End::Done).panicked, [""; 0]);
    assert_eq!(told(), ["a end", "b end", "a stop", "b stop"]);

    let panics = engine(&[("a", true, true), ("b", true, false)]).unwrap();
    assert_eq!(told(), ["a start", "b start", "a begin", "b begin"]);
    assert_eq!(panics.finish(End::Done).panicked, ["b"]);
}

#[test]
fn a_reload_begins_only_the_started_apps_and_only_if_all_of_them_start() {
    let lines = Arc::default();
    let network = |apps: &[_]| {
        let mut network = diaries(&lines, apps);
        network.apps.push(AppSpec::new("endless", "endless", "", Endless));
        network
    };
    let told = || {
        let all = mem::take(&mut *lines.lock().unwrap());
        all.into_iter().filter(|line: &String| !line.ends_with("tick")).collect::<Vec<_>>()
    };
    let (a, b) = (("a", true, true), ("b", true, true));
    run_with(network(&[a]), |control| {
        assert_eq!(told(), ["a start", "a begin"]);
        assert!(control.reload(network(&[a, b, ("c", false, true)])).is_err());
        assert_eq!(told(), ["b start", "c start", "b stop"]);
        control.reload(network(&[a, b])).unwrap();
        assert_eq!(told(), ["b start", "b begin"]);
        control.stop();
    });
    assert_eq!(told(), ["a end", "b end", "a stop", "b stop"]);
}
