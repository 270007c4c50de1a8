//! What sampled breaths record, and what traces and taps see.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

use bellows_engine::{
    App, Control, Counters, End, Engine, Hop, HopKind, Io, Network, Port, Ports, Schedule, Settings, TraceOrder,
    WatchError, Watched, counters,
};
use bellows_observe::RuntimeDir;
use bellows_observe::timeline::{Recording, What};
use bellows_packet::{Packet, Vector};
use bellows_pmu::Event as PmuEvent;
use bellows_sys::wake::WakeEvent;
use bellows_testkit::skip;
use bellows_testkit::wait::Deadline;

const INPUT: Ports = Ports::Named(&[Port::required("input", "packets")]);
const OUTPUT: Ports = Ports::Named(&[Port::required("output", "packets")]);

/// Sends `burst` numbered packets a breath, until `end` are sent.
struct Numbers {
    burst: u64,
    next: u64,
    end: u64,
}

fn numbers(burst: u64, end: u64) -> Numbers {
    Numbers { burst, next: 0, end }
}

impl App for Numbers {
    const OUTPUTS: Ports = OUTPUT;

    fn pull(&mut self, io: &Io<Self>) {
        let mut output = io.output(0);
        for _ in 0..self.burst.min(self.end - self.next) {
            output.push(Packet::from_bytes(&self.next.to_be_bytes()).unwrap());
            self.next += 1;
        }
    }

    fn is_finished(&self) -> bool {
        self.next == self.end
    }
}

/// Drops numbers divisible by three; sends the others to the first output, and copies of even numbers to the second.
struct Sort;

counters! { Sort;
    drop THREE = "three", "numbers that three divides";
}

impl App for Sort {
    const INPUTS: Ports = INPUT;
    const OUTPUTS: Ports =
        Ports::Named(&[Port::required("one", "packets"), Port::required("other", "copies of even numbers")]);
    const COUNTERS: Counters<Self> = Self::COUNTED;

    fn push(&mut self, io: &Io<Self>) {
        let (mut one, mut other) = (io.output(0), io.output(1));
        for packet in &mut io.input(0) {
            let number = u64::from_be_bytes(packet.bytes().try_into().unwrap());
            if number % 3 == 0 {
                io.drop(packet, Self::THREE);
                continue;
            }
            if number % 2 == 0 {
                other.push(packet.copy().unwrap());
            }
            one.push(packet);
        }
    }
}

/// Keeps each vector for one breath.
#[derive(Default)]
struct Wait(VecDeque<Vector>);

impl App for Wait {
    const INPUTS: Ports = INPUT;
    const OUTPUTS: Ports = OUTPUT;
    const PULLS: bool = true;

    fn pull(&mut self, io: &Io<Self>) {
        if let Some(mut vector) = self.0.pop_front() {
            io.output(0).send_from(&mut vector);
        }
    }

    fn push(&mut self, io: &Io<Self>) {
        let mut vector = Vector::new();
        io.input(0).take_into(&mut vector);
        self.0.push_back(vector);
    }

    fn held(&self) -> usize {
        self.0.iter().map(Vector::len).sum()
    }

    fn is_finished(&self) -> bool {
        true
    }
}

struct Sink;

impl App for Sink {
    const INPUTS: Ports = INPUT;

    fn push(&mut self, io: &Io<Self>) {
        io.input(0).discard();
    }
}

/// numbers -> sort; packets of its first output wait one breath on the way to their sink.
fn network(source: Numbers) -> Network {
    let network = Network::new()
        .app("numbers", source)
        .app("sort", Sort)
        .app("wait", Wait::default())
        .app("late", Sink)
        .app("soon", Sink);
    let links = [
        "numbers.output -> sort.input",
        "sort.one -> wait.input",
        "wait.output -> late.input",
        "sort.other -> soon.input",
    ];
    links.into_iter().fold(network, |network, link| network.link(link).unwrap())
}

fn engine(network: Network, schedule: Schedule) -> Engine {
    Engine::new(network, Settings { schedule, ..Settings::default() }, None).unwrap()
}

#[test]
fn calls_are_exact_and_samples_stand_for_all() {
    for schedule in Schedule::ALL {
        let mut engine = engine(network(numbers(6, u64::MAX)), schedule);
        engine.breathe_times(60_000);
        let snapshot = engine.snapshot();
        let app = |name: &str| snapshot.apps.iter().find(|app| app.name == name).unwrap();
        assert_eq!(
            app("numbers").calls,
            BTreeMap::from([("pull", 60_000), ("push", 0), ("tick", 1)].map(|(k, v)| (k.to_owned(), v)))
        );
        assert_eq!((app("sort").calls["push"], app("late").calls["push"]), (60_000, 59_999), "{schedule}");
        assert_eq!([app("numbers"), app("wait"), app("soon")].map(|app| &*app.state), ["polling", "polling", "active"]);

        let recorded = snapshot.engine("sampled_breaths");
        assert!((150..350).contains(&recorded), "{recorded} of 60,000 breaths, about one in 256");
        for (name, entry, packets) in
            [("numbers", "pull", 6), ("sort", "push", 6), ("wait", "push", 4), ("wait", "pull", 4), ("soon", "push", 2)]
        {
            let account = &app(name).account;
            let [calls, sampled, clocks] =
                ["calls", "packets", "clocks"].map(|what| account[&format!("{entry}_{what}")]);
            // The system may have interrupted some calls.
            let all = calls + account[&format!("{entry}_outlier_calls")];
            assert!(all == recorded || name == "wait" && all + 1 >= recorded, "{name} {entry}: {all} of {recorded}");
            assert!(calls > recorded / 2, "{name} {entry}: {calls} of {recorded}");
            assert_eq!(sampled, packets * calls, "{name} {entry}, {schedule}");
            assert!(clocks > 0, "{name} {entry}");
        }

        let [breath, latency] = ["breath", "latency"].map(|name| &snapshot.histograms[name]);
        assert_eq!(breath.count(), recorded);
        assert!(breath.quantile(0.5) <= breath.quantile(0.99) && breath.quantile(1.0) == Some(breath.maximum));
        // In every eighth chosen breath a packet of `numbers` and one of `wait` are marked; the other chosen breaths
        // are recorded.
        assert!(
            (recorded / 20..recorded / 2).contains(&latency.count()),
            "{} packets in {recorded} breaths",
            latency.count()
        );
    }
}

/// Sends a packet every few microseconds.
struct Clockwork;

impl App for Clockwork {
    const OUTPUTS: Ports = OUTPUT;
    const PULLS: bool = false;

    fn tick(&mut self, io: &Io<Self>) {
        io.output(0).push(Packet::from_bytes(b"tick").unwrap());
        io.wake_at(io.now() + 3_000);
    }
}

/// Breaths after a deadline are recorded as often as others, also while a tap has every breath sampled.
#[test]
fn ticks_are_recorded_no_more_often_than_other_calls() {
    const LINK: &str = "clockwork.output -> sink.input";
    for (schedule, tapped) in Schedule::ALL.into_iter().flat_map(|schedule| [(schedule, false), (schedule, true)]) {
        let network = Network::new().app("clockwork", Clockwork).app("sink", Sink);
        let mut engine = engine(network.link(LINK).unwrap(), schedule);
        let _tap = tapped.then(|| engine.control().tap(LINK, 64).unwrap());
        engine.handle_requests();
        let end = Instant::now() + Duration::from_millis(300);
        while Instant::now() < end {
            engine.breathe_times(10_000);
        }
        let snapshot = engine.snapshot();
        let (calls, sampled) = (snapshot.apps[0].calls["tick"], snapshot.apps[0].account["tick_calls"]);
        let share = snapshot.engine("sampled_breaths") as f64 / snapshot.engine("breaths") as f64;
        let expected = calls as f64 * share;
        let deviation = (sampled as f64 - expected).abs() / expected.sqrt();
        assert!(deviation < 8.0, "{sampled} of {calls} ticks where {expected:.0} are expected, {schedule}, {tapped}");
    }
}

#[test]
fn without_sampling_nothing_is_recorded() {
    let settings = Settings { sampling: false, ..Settings::default() };
    let mut engine = Engine::new(network(numbers(6, u64::MAX)), settings, None).unwrap();
    engine.breathe_times(10_000);
    let snapshot = engine.snapshot();
    assert_eq!(snapshot.engine("sampled_breaths"), 0);
    assert_eq!(snapshot.apps[1].calls["push"], 10_000);
    assert!(snapshot.apps.iter().flat_map(|app| app.account.values()).all(|&value| value == 0));
    assert!(snapshot.histograms.values().all(|histogram| histogram.count() == 0));
}

/// Works for some microseconds in each call.
struct Worker;

impl App for Worker {
    const INPUTS: Ports = INPUT;

    fn push(&mut self, io: &Io<Self>) {
        io.input(0).discard();
        let end = Instant::now() + Duration::from_micros(50);
        while Instant::now() < end {}
    }
}

#[test]
fn events_are_counted_for_each_app() {
    let network = Network::new().app("numbers", numbers(2, u64::MAX)).app("worker", Worker);
    let network = network.link("numbers.output -> worker.input").unwrap();
    let events = Some(vec![PmuEvent::PageFaults, PmuEvent::TaskClock]);
    let mut engine = match Engine::new(network, Settings { events, ..Settings::default() }, None) {
        Ok(engine) => engine,
        Err(error) => return skip("events_are_counted_for_each_app", error),
    };
    // Long enough that one interruption, which is counted for whichever app it meets, does not matter.
    engine.breathe_times(60_000);
    let snapshot = engine.snapshot();
    let [packets, nanos] = ["push_packets", "push_task_clock"].map(|name| snapshot.apps[1].account[name] as f64);
    assert!((2_000.0..30_000.0).contains(&(nanos / packets)), "{nanos} ns for {packets} packets, 50 µs for two");
    assert!((snapshot.apps[0].account["pull_task_clock"] as f64) < nanos / 2.0);
    assert!(snapshot.apps[1].account.contains_key("push_page_faults"));
}

/// Takes breaths on this thread as the engine's own thread would, while other threads make requests.
fn breathe(engine: &mut Engine, breaths: u64) {
    assert!(!engine.handle_requests());
    engine.breathe_times(breaths);
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

fn trace(engine: &mut Engine, control: &Control, count: usize, app: Option<&str>) -> Vec<Hop> {
    let mut trace = control.trace(TraceOrder { count, app: app.map(str::to_owned) }).unwrap();
    assert_eq!(control.trace(TraceOrder { count, app: None }).err(), Some(WatchError::Busy));
    breathe(engine, 20);
    let hops = std::iter::from_fn(|| trace.next(soon())).collect();
    drop(trace);
    breathe(engine, 1);
    hops
}

/// The path of a packet: `app.port`, `app: reason` or `app.`, in order.
fn way(hops: &[Hop], packet: u32) -> Vec<String> {
    let step = |hop: &Hop| match &hop.what {
        HopKind::Sent { port, .. } => format!("{}.{port}", hop.app),
        HopKind::Dropped { reason } => format!("{}: {reason}", hop.app),
        HopKind::Ended => format!("{}.", hop.app),
    };
    hops.iter().filter(|hop| hop.packet == packet).map(step).collect()
}

#[test]
fn a_trace_has_every_hop_of_every_packet() {
    for schedule in Schedule::ALL {
        let mut engine = engine(network(numbers(6, u64::MAX)), schedule);
        let control = engine.control();
        engine.breathe_times(100);
        let hops = trace(&mut engine, &control, 6, None);
        assert_eq!(way(&hops, 1), ["numbers.output", "sort: three"], "number 600, {schedule}");
        assert_eq!(way(&hops, 2), ["numbers.output", "sort.one", "wait.output", "late."], "number 601");
        assert_eq!(way(&hops, 3), ["numbers.output", "sort.one", "sort.other", "soon.", "wait.output", "late."]);
        assert_eq!(way(&hops, 4), way(&hops, 1));
        assert!(hops.iter().all(|hop| (1..=6).contains(&hop.packet)));
        let HopKind::Sent { bytes, length, .. } = &hops.iter().find(|hop| hop.packet == 2).unwrap().what else {
            panic!()
        };
        assert_eq!((&bytes[..], *length), (&601u64.to_be_bytes()[..], 8));
        for packet in 1..=6 {
            let times: Vec<u64> = hops.iter().filter(|hop| hop.packet == packet).map(|hop| hop.at_ns).collect();
            assert!(times.is_sorted(), "{times:?}");
        }

        let from_wait = trace(&mut engine, &control, 2, Some("wait"));
        assert_eq!([1, 2].map(|packet| way(&from_wait, packet)), [["wait.output", "late."], ["wait.output", "late."]]);
        let order = TraceOrder { count: 1, app: Some("nobody".to_owned()) };
        assert_eq!(control.trace(order).err(), Some(WatchError::NoApp("nobody".to_owned())));
    }
}

#[test]
fn an_abandoned_trace_ends() {
    let mut engine = engine(network(numbers(6, u64::MAX)), Schedule::default());
    let control = engine.control();
    let mut abandoned = control.trace(TraceOrder { count: 10_000, app: None }).unwrap();
    breathe(&mut engine, 10);
    assert!(abandoned.next(soon()).is_some());
    drop(abandoned);
    breathe(&mut engine, 10);
    let hops = trace(&mut engine, &control, 2, None);
    assert_eq!(way(&hops, 1).len(), 2, "without hops of the abandoned trace: {hops:?}");
}

/// Runs an engine on a thread of its own while `work` uses its control, then stops it.
fn running(engine: Engine, work: impl FnOnce(&Control)) -> bellows_engine::Outcome {
    let control = engine.control();
    let run = std::thread::spawn(move || {
        let mut engine = engine;
        let end = engine.run();
        engine.finish(end)
    });
    work(&control);
    control.stop();
    run.join().unwrap()
}

#[test]
fn a_trace_can_follow_another_at_once_and_none_follows_the_end_of_the_run() {
    let engine = engine(network(numbers(6, u64::MAX)), Schedule::default());
    let control = engine.control();
    running(engine, |control| {
        for _ in 0..100 {
            drop(control.trace(TraceOrder { count: 1_000, app: None }).unwrap());
        }
    });
    assert_eq!(control.trace(TraceOrder { count: 1, app: None }).err(), Some(WatchError::Over));
    assert_eq!(control.tap("wait.output -> late.input", 1).err(), Some(WatchError::Over));
    assert_eq!(control.trace(TraceOrder { count: 10_001, app: None }).err(), Some(WatchError::TooMany(10_001)));
}

/// A ring of packets from outside, with a descriptor.
struct Ring {
    waiting: Arc<Waiting>,
    taken: u32,
}

struct Waiting {
    added: AtomicU32,
    bell: WakeEvent,
}

impl Watched for Waiting {
    fn word(&self) -> Option<&AtomicU32> {
        Some(&self.added)
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.bell.as_fd()]
    }
}

impl App for Ring {
    const OUTPUTS: Ports = OUTPUT;

    fn slots(&self) -> usize {
        1
    }

    fn tick(&mut self, io: &Io<Self>) {
        io.slot(0).watch(Arc::clone(&self.waiting), u32::MAX, self.taken);
    }

    fn pull(&mut self, io: &Io<Self>) {
        self.waiting.bell.clear();
        let mut output = io.output(0);
        while self.taken != self.waiting.added.load(Relaxed) {
            output.push(Packet::from_bytes(&self.taken.to_be_bytes()).unwrap());
            self.taken += 1;
        }
        io.slot(0).expect(self.taken);
    }

    fn is_finished(&self) -> bool {
        false
    }
}

#[test]
fn packets_that_wake_the_engine_are_seen() {
    let waiting = Arc::new(Waiting { added: AtomicU32::new(0), bell: WakeEvent::new().unwrap() });
    let ring = Ring { waiting: Arc::clone(&waiting), taken: 0 };
    let network = Network::new().app("ring", ring).app("sink", Sink).link("ring.output -> sink.input").unwrap();
    let outcome = running(engine(network, Schedule::default()), |control| {
        let mut tap = control.tap("ring.output -> sink.input", 64).unwrap();
        let mut trace = control.trace(TraceOrder { count: 20, app: None }).unwrap();
        // Packets pass unseen until the engine has taken the orders.
        std::thread::sleep(Duration::from_millis(200));
        for _ in 0..20 {
            waiting.added.fetch_add(1, Relaxed);
            waiting.bell.raise();
            assert_eq!(tap.next(soon()).unwrap().len(), 1);
            std::thread::sleep(Duration::from_millis(2));
        }
        let hops: Vec<Hop> = std::iter::from_fn(|| trace.next(soon())).collect();
        assert_eq!(way(&hops, 20), ["ring.output", "sink."]);
        assert!(trace.is_over());
    });
    assert!(outcome.snapshot.apps[0].sleeps > 0);
}

/// Consumes packets while the gate is open.
struct Gate(bool);

impl App for Gate {
    const INPUTS: Ports = INPUT;

    fn push(&mut self, io: &Io<Self>) {
        if self.0 {
            io.input(0).discard();
        }
    }
}

struct Pass;

impl App for Pass {
    const INPUTS: Ports = INPUT;
    const OUTPUTS: Ports = OUTPUT;

    fn push(&mut self, io: &Io<Self>) {
        io.forward(0, 0);
    }
}

#[test]
fn in_a_lossless_network_only_calls_that_were_made_are_recorded() {
    let network = Network::new().app("numbers", numbers(1, u64::MAX)).app("pass", Pass).app("gate", Gate(false));
    let network = network.link("numbers.output -> pass.input").unwrap().link("pass.output -> gate.input").unwrap();
    let mut engine = Engine::new(network, Settings { lossless: true, ..Settings::default() }, None).unwrap();
    engine.breathe_times(100_000);
    let snapshot = engine.snapshot();
    let (calls, recorded) = (snapshot.apps[1].calls["push"], snapshot.apps[1].account["push_calls"]);
    assert_eq!((calls, recorded <= 50), (1_024, true), "{recorded} of {calls} calls recorded");
}

/// Keeps packets, and panics when it has `limit` of them.
struct Keep {
    kept: Vec<Packet>,
    limit: usize,
}

impl App for Keep {
    const INPUTS: Ports = INPUT;

    fn push(&mut self, io: &Io<Self>) {
        assert!(self.kept.len() < self.limit, "planted");
        self.kept.extend(&mut io.input(0));
    }

    fn held(&self) -> usize {
        self.kept.len()
    }
}

fn kept(limit: usize) -> Network {
    let network = Network::new()
        .app("other", numbers(1, u64::MAX))
        .app("pass", Sink)
        .app("numbers", numbers(2, u64::MAX))
        .app("keep", Keep { kept: Vec::new(), limit });
    network.link("other.output -> pass.input").unwrap().link("numbers.output -> keep.input").unwrap()
}

#[test]
fn packets_lost_in_a_panic_are_traced_as_dropped_at_their_app() {
    for schedule in Schedule::ALL {
        let mut engine = engine(kept(4), schedule);
        let control = engine.control();
        let hops = trace(&mut engine, &control, 6, Some("numbers"));
        let kept = ["numbers.output", "keep: app_failed"];
        assert_eq!((1..=6).map(|packet| way(&hops, packet)).collect::<Vec<_>>(), [kept; 6], "{schedule}");
        // Packets of `other` may be marked, in one of 1,024 breaths; traced packets do not count.
        let latencies = engine.snapshot().histograms["latency"].count();
        assert!(latencies < 3, "{latencies} packets counted in 21 breaths, six of them followed");
    }
}

#[test]
fn a_reload_that_takes_packets_away_ends_their_trace() {
    running(engine(kept(usize::MAX), Schedule::default()), |control| {
        let mut trace = control.trace(TraceOrder { count: 2, app: Some("numbers".to_owned()) }).unwrap();
        assert!((0..2).all(|_| trace.next(soon()).is_some()));
        control.reload(network(numbers(6, u64::MAX))).unwrap();
        assert!(trace.next(soon()).is_none() && trace.is_over());
    });
}

#[test]
fn a_trace_of_one_engine_does_not_affect_the_next() {
    let mut first = engine(kept(usize::MAX), Schedule::default());
    let trace_of_first = first.control().trace(TraceOrder { count: 6, app: Some("numbers".to_owned()) }).unwrap();
    breathe(&mut first, 10);
    drop((first, trace_of_first));
    let mut second = engine(kept(usize::MAX), Schedule::default());
    let mut trace = second.control().trace(TraceOrder { count: 6, app: Some("numbers".to_owned()) }).unwrap();
    breathe(&mut second, 10);
    let hops: Vec<Hop> = std::iter::from_fn(|| trace.next(Instant::now())).collect();
    assert_eq!((1..=6).map(|packet| way(&hops, packet)).collect::<Vec<_>>(), [["numbers.output"]; 6]);
}

/// Sends copies of its first packet forever.
#[derive(Default)]
struct Echo(Option<Packet>);

impl App for Echo {
    const INPUTS: Ports = INPUT;
    const OUTPUTS: Ports = OUTPUT;
    const PULLS: bool = true;

    fn pull(&mut self, io: &Io<Self>) {
        if let Some(packet) = &self.0 {
            io.output(0).push_copies(std::slice::from_ref(packet));
        }
    }

    fn push(&mut self, io: &Io<Self>) {
        for packet in &mut io.input(0) {
            self.0.get_or_insert(packet);
        }
    }
}

#[test]
fn a_trace_of_a_packet_that_is_copied_without_end_ends() {
    let network = Network::new().app("numbers", numbers(1, 1)).app("echo", Echo::default()).app("sink", Sink);
    let network = network.link("numbers.output -> echo.input").unwrap().link("echo.output -> sink.input").unwrap();
    let mut engine = engine(network, Schedule::default());
    let mut trace = engine.control().trace(TraceOrder { count: 1, app: Some("numbers".to_owned()) }).unwrap();
    breathe(&mut engine, 5_000);
    let hops = std::iter::from_fn(|| trace.next(Instant::now())).count();
    assert!((1_000..2_000).contains(&hops) && trace.is_over(), "{hops} hops");
}

#[test]
fn a_tap_copies_what_passes_a_link_and_nothing_else() {
    for schedule in Schedule::ALL {
        let mut engine = engine(network(numbers(6, 6_000)), schedule);
        let control = engine.control();
        let mut tap = control.tap("sort.other -> soon.input", 4).unwrap();
        let mut other = control.tap("wait.output -> late.input", 100).unwrap();
        assert_eq!(
            control.tap("sort.other -> late.input", 4).err(),
            Some(WatchError::NoLink("sort.other -> late.input".to_owned()))
        );
        breathe(&mut engine, 1_100);
        drop(engine.finish(End::Done));
        let records: Vec<_> = std::iter::from_fn(|| tap.next(soon())).flatten().collect();
        assert_eq!((records.len(), tap.missed(), tap.is_over()), (2_000, 0, true));
        assert!(records.iter().all(|record| record.length == 8 && record.bytes == [0; 4]));
        assert!(records.windows(2).all(|pair| pair[0].at <= pair[1].at));
        let numbers: Vec<u64> = std::iter::from_fn(|| other.next(soon()))
            .flatten()
            .map(|record| u64::from_be_bytes(record.bytes.try_into().unwrap()))
            .collect();
        assert_eq!(numbers, (0..6_000).filter(|number| number % 3 != 0).collect::<Vec<u64>>(), "{schedule}");
    }
}

#[test]
fn a_tap_that_nobody_empties_misses_packets_and_counts_them() {
    let mut engine = engine(network(numbers(900, u64::MAX)), Schedule::default());
    let control = engine.control();
    let mut tap = control.tap("numbers.output -> sort.input", 8).unwrap();
    breathe(&mut engine, 5_000);
    let missed = tap.missed();
    assert!(missed > 0);
    let copied: usize = std::iter::from_fn(|| tap.next(Instant::now())).map(|batch| batch.len()).sum();
    assert_eq!(copied as u64 + missed, 900 * 5_000);
    breathe(&mut engine, 1);
    assert_eq!((tap.next(soon()).unwrap().len(), tap.missed()), (900, missed), "it goes on once there is room");
}

#[test]
fn a_tap_survives_a_reload_that_keeps_its_link() {
    let engine = engine(network(numbers(6, u64::MAX)), Schedule::default());
    let control = engine.control();
    let run = std::thread::spawn(move || {
        let mut engine = engine;
        let end = engine.run();
        engine.finish(end)
    });
    let mut tap = control.tap("wait.output -> late.input", 8).unwrap();
    assert!(tap.next(soon()).is_some());
    control.reload(network(numbers(6, u64::MAX)).app("idle", Wait::default())).unwrap_err();
    let more = || {
        network(numbers(6, u64::MAX))
            .app("idle", numbers(0, 1))
            .app("dump", Sink)
            .link("idle.output -> dump.input")
            .unwrap()
    };
    control.reload(more()).unwrap();
    let missed = tap.missed();
    let deadline = Deadline::new("packets after a reload, and none after the next");
    while tap.missed() == missed && !tap.is_over() {
        deadline.check();
        if tap.next(soon()).is_some() {
            break;
        }
    }
    assert!(!tap.is_over());
    let without = Network::new().app("numbers", numbers(6, u64::MAX)).app("late", Sink);
    control.reload(without.link("numbers.output -> late.input").unwrap()).unwrap();
    while tap.next(soon()).is_some() {
        deadline.check();
    }
    assert!(tap.is_over(), "its link is gone");
    control.stop();
    run.join().unwrap();
}

#[test]
fn the_timeline_holds_whole_breaths_and_what_lies_between() {
    let runtime_dir = Arc::new(RuntimeDir::claim(&format!("test-sampling-{}", std::process::id())).unwrap());
    let mut engine =
        Engine::new(network(numbers(6, 60_000)), Settings::default(), Some(Arc::clone(&runtime_dir))).unwrap();
    let end = engine.run();
    assert_eq!(end, End::Done);
    let events = Recording::open(&runtime_dir).unwrap().events();
    let breaths = events.iter().filter(|event| matches!(event.what, What::Breath { .. })).count();
    assert!(breaths > 20, "{breaths} breaths of 10,000");
    // The calls of a breath lie within it, one after another.
    let mut calls: Vec<&bellows_observe::timeline::Event> = Vec::new();
    for event in &events {
        match &event.what {
            What::Call { .. } => calls.push(event),
            What::Breath { .. } => {
                assert!(calls.iter().all(|call| call.start_ns >= event.start_ns));
                assert!(calls.windows(2).all(|pair| pair[0].start_ns + pair[0].duration_ns <= pair[1].start_ns + 1));
                let moved: u32 =
                    calls.iter().map(|call| if let What::Call { packets, .. } = call.what { packets } else { 0 }).sum();
                assert!(moved == 0 || calls.len() >= 4, "{calls:?}");
                calls.clear();
            }
            _ => {}
        }
    }
    let drops = events
        .iter()
        .filter(|event| matches!(&event.what, What::Drops { app, packets: 2 } if **app == *"sort"))
        .count();
    assert!(drops > 10 && drops <= breaths, "{drops} calls dropped in {breaths} breaths");
}
