//! Whole runs: how they end, what a panic does, and reloads under traffic.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bellows_engine::{
    App, AppError, AppSpec, Control, Counters, End, Engine, Io, Network, Outcome, Port, Ports, ReloadError, Schedule,
    Settings, Status, counters,
};
use bellows_packet::{Packet, pool};
use bellows_shared::Readers;
use bellows_testkit::wait::Deadline;

/// A process has one pool, and these tests check it: they take turns.
static TURN: Mutex<()> = Mutex::new(());

fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Brings in `count` numbered packets.
struct Numbers {
    next: u64,
    count: u64,
}

counters! { Numbers;
    count MADE = "made", "packets made";
}

impl App for Numbers {
    const OUTPUTS: Ports = Ports::Named(&[Port::required("output", "packets of eight bytes")]);
    const COUNTERS: Counters<Self> = Self::COUNTED;

    fn pull(&mut self, io: &Io<Self>) {
        let mut output = io.output(0);
        let wanted = output.room().min(io.burst()).min((self.count - self.next) as usize);
        for mut packet in Packet::allocate_burst(wanted) {
            packet.append(&self.next.to_ne_bytes());
            output.push(packet);
            self.next += 1;
            io.count(Self::MADE, 1);
        }
    }

    fn is_finished(&self) -> bool {
        self.next == self.count
    }
}

/// The numbers that arrived.
#[derive(Default)]
struct Ledger {
    seen: Vec<bool>,
    twice: u64,
    count: u64,
}

/// The number of packets that arrived, and of those that arrived again.
fn arrived(ledger: &Mutex<Ledger>) -> (u64, u64) {
    let ledger = ledger.lock().unwrap();
    (ledger.count, ledger.twice)
}

struct Note(Arc<Mutex<Ledger>>);

impl App for Note {
    const INPUTS: Ports = Ports::Any { at_least: 0, help: "numbered packets" };

    fn push(&mut self, io: &Io<Self>) {
        let mut ledger = self.0.lock().unwrap();
        for index in 0..io.inputs() {
            for packet in &mut io.input(index) {
                let number = u64::from_ne_bytes(packet.bytes().try_into().unwrap()) as usize;
                if ledger.seen.len() <= number {
                    ledger.seen.resize((number + 1) * 2, false);
                }
                ledger.twice += u64::from(std::mem::replace(&mut ledger.seen[number], true));
                ledger.count += 1;
            }
        }
    }
}

/// Holds up to `limit` packets; may take over what its predecessor holds.
struct Hold {
    limit: usize,
    held: VecDeque<Packet>,
    takes_over: bool,
}

impl App for Hold {
    const INPUTS: Ports = Ports::Any { at_least: 0, help: "packets" };
    const OUTPUTS: Ports = Ports::Any { at_least: 0, help: "the packets, later" };

    fn push(&mut self, io: &Io<Self>) {
        for index in 0..io.inputs() {
            self.held.extend(&mut io.input(index));
        }
        let mut output = io.output(0);
        while self.held.len() > self.limit {
            output.push(self.held.pop_front().unwrap());
        }
    }

    fn tick(&mut self, io: &Io<Self>) {
        self.push(io);
        if !self.held.is_empty() && self.limit == 0 {
            io.wake_at(io.now());
        }
    }

    fn held(&self) -> usize {
        self.held.len()
    }

    fn start(&mut self, old: Option<&mut Hold>) -> Result<(), AppError> {
        if self.limit == usize::MAX {
            return Err("it cannot hold that many; hold fewer".into());
        }
        if let Some(old) = old
            && self.takes_over
        {
            self.held = std::mem::take(&mut old.held);
        }
        Ok(())
    }

    fn give_back(&mut self, old: &mut Hold) {
        if self.takes_over {
            old.held = std::mem::take(&mut self.held);
        }
    }
}

fn hold(limit: usize) -> Hold {
    Hold { limit, held: VecDeque::new(), takes_over: limit.is_multiple_of(2) }
}

/// Stops the run when the thread that controls it is done, even by a failed assertion.
struct StopOnDrop<'a>(&'a Control);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

fn run(network: Network, settings: Settings) -> Outcome {
    let mut engine = Engine::new(network, settings, None).unwrap();
    let end = engine.run();
    let outcome = engine.finish(end);
    assert_eq!(outcome.snapshot.imbalances(), []);
    outcome
}

#[test]
fn a_run_ends_when_nothing_is_left_and_every_packet_is_accounted_for() {
    let _turn = turn();
    for schedule in Schedule::ALL {
        let ledger = Arc::new(Mutex::new(Ledger::default()));
        let network = Network::new()
            .app("numbers", Numbers { next: 0, count: 100_000 })
            .app("hold", hold(0))
            .app("note", Note(Arc::clone(&ledger)))
            .link("numbers.output -> hold.a")
            .unwrap()
            .link("hold.b -> note.c")
            .unwrap();
        let outcome = run(network, Settings { schedule, ..Settings::default() });
        assert_eq!(outcome.end, End::Done);
        assert_eq!(outcome.snapshot.apps[0].counters["made"], 100_000);
        assert_eq!(outcome.snapshot.links[1].received(), 100_000);
        assert_eq!(outcome.snapshot.links[1].received_bytes(), 800_000);
        assert_eq!(arrived(&ledger), (100_000, 0));
        assert_eq!(outcome.snapshot.dropped(), 0);
        drop(outcome);
        assert_eq!(pool::usage().in_use, 0);
    }
}

/// What waits until no app has a reference to a shared value does not wait for a run.
#[test]
fn breaths_that_are_taken_by_hand_end_grace_periods() {
    let _turn = turn();
    let network = Network::new().app("numbers", Numbers { next: 0, count: 10 }).app("hold", hold(0));
    let network = network.link("numbers.output -> hold.a").unwrap().link("hold.b -> note.c").unwrap();
    let network = network.app("note", Note(Arc::new(Mutex::new(Ledger::default()))));
    let mut engine = Engine::new(network, Settings::default(), None).unwrap();
    engine.breathe();
    let mut grace_period = Readers::of_process().start_grace_period();
    assert!(!grace_period.is_over());
    engine.breathe();
    assert!(grace_period.is_over());
}

#[test]
fn a_lossless_loop_that_is_full_is_reported_as_stalled_not_waited_for() {
    let _turn = turn();
    struct Twice;
    impl App for Twice {
        const INPUTS: Ports = Ports::Any { at_least: 1, help: "packets" };
        const OUTPUTS: Ports = Ports::Named(&[Port::required("output", "each packet twice")]);
        const MAX_FAN_OUT: usize = 2;

        fn push(&mut self, io: &Io<Self>) {
            let mut output = io.output(0);
            for index in 0..io.inputs() {
                for packet in &mut io.input(index) {
                    output.push(packet.copy().unwrap());
                    output.push(packet);
                }
            }
        }
    }
    let network = Network::new()
        .app("numbers", Numbers { next: 0, count: 10 })
        .app("one", Twice)
        .app("other", Twice)
        .link("numbers.output -> one.a")
        .unwrap()
        .link("one.output -> other.a")
        .unwrap()
        .link("other.output -> one.b")
        .unwrap();
    let outcome = run(network, Settings { lossless: true, ..Settings::default() });
    let End::Stalled(links) = outcome.end else { panic!("{:?}", outcome.end) };
    assert!(!links.is_empty());
    assert_eq!(outcome.snapshot.dropped(), 0);
    assert_eq!(pool::usage().in_use, 0);
}

#[test]
fn in_a_lossless_network_the_inputs_of_an_interface_do_not_wait_for_its_outputs() {
    let _turn = turn();
    /// Consumes its input, and brings in a number of packets.
    struct Interface(usize);
    impl App for Interface {
        const INPUTS: Ports = Ports::Named(&[Port::required("input", "packets that leave here")]);
        const OUTPUTS: Ports = Ports::Named(&[Port::required("output", "packets that come in here")]);
        const PULLS: bool = true;
        const MAX_FAN_OUT: usize = 0;
        const ENDS: bool = true;

        fn pull(&mut self, io: &Io<Self>) {
            let mut output = io.output(0);
            for packet in Packet::allocate_burst(output.room().min(self.0)) {
                output.push(packet);
                self.0 -= 1;
            }
        }

        fn push(&mut self, io: &Io<Self>) {
            io.input(0).discard();
        }

        fn is_finished(&self) -> bool {
            self.0 == 0
        }
    }
    /// Takes nothing.
    struct Wall;
    impl App for Wall {
        const INPUTS: Ports = Ports::Named(&[Port::required("input", "packets that stay where they are")]);
    }
    let network = Network::new()
        .app("numbers", Numbers { next: 0, count: 5_000 })
        .app("interface", Interface(bellows_packet::CAPACITY))
        .app("wall", Wall)
        .link("numbers.output -> interface.input")
        .unwrap()
        .link("interface.output -> wall.input")
        .unwrap();
    let outcome = run(network, Settings { lossless: true, ..Settings::default() });
    let End::Stalled(links) = outcome.end else { panic!("{:?}", outcome.end) };
    assert_eq!(links, ["interface.output -> wall.input"]);
    assert_eq!(outcome.snapshot.links[0].packets, 5_000);
    assert_eq!(outcome.snapshot.dropped(), 0);
}

#[test]
fn an_app_that_panics_stops_alone() {
    let _turn = turn();
    struct Fragile {
        until: u64,
        held: Vec<Packet>,
    }
    impl App for Fragile {
        const INPUTS: Ports = Ports::Named(&[Port::required("input", "packets")]);
        const OUTPUTS: Ports = Ports::Named(&[Port::required("output", "the same")]);

        fn push(&mut self, io: &Io<Self>) {
            let mut output = io.output(0);
            for packet in &mut io.input(0) {
                assert!(self.until > 0, "an app of this test fails on purpose");
                self.until -= 1;
                if self.until < 5 { self.held.push(packet) } else { output.push(packet) }
            }
        }

        fn held(&self) -> usize {
            self.held.len()
        }
    }
    for schedule in Schedule::ALL {
        let ledger = Arc::new(Mutex::new(Ledger::default()));
        let beside = Arc::new(Mutex::new(Ledger::default()));
        let network = Network::new()
            .app("numbers", Numbers { next: 0, count: 1_000 })
            .app("fragile", Fragile { until: 200, held: Vec::new() })
            .app("note", Note(Arc::clone(&ledger)))
            .app("others", Numbers { next: 0, count: 5_000 })
            .app("beside", Note(Arc::clone(&beside)))
            .link("numbers.output -> fragile.input")
            .unwrap()
            .link("fragile.output -> note.a")
            .unwrap()
            .link("others.output -> beside.a")
            .unwrap();
        let outcome = run(network, Settings { schedule, ..Settings::default() });
        assert_eq!(outcome.end, End::Done);
        assert_eq!(outcome.panicked, ["fragile"]);
        assert_eq!(beside.lock().unwrap().count, 5_000, "the rest of the network runs on");
        let fragile = &outcome.snapshot.apps[1];
        // The packet in hand at the panic is counted, too.
        assert_eq!(fragile.out_packets, 195);
        assert_eq!(fragile.drops["app_failed"], 1_000 - 195, "{schedule}");
        assert_eq!(ledger.lock().unwrap().count, 195);
        assert_eq!(pool::usage().in_use, 0);
    }
}

#[test]
fn an_app_that_cannot_start_is_named_and_nothing_runs() {
    let _turn = turn();
    let network = Network::new().app("big", hold(usize::MAX));
    let error = Engine::new(network, Settings::default(), None).err().unwrap();
    assert_eq!(error.to_string(), "app `big`: it cannot hold that many; hold fewer");
}

#[test]
fn a_pool_that_runs_dry_costs_counted_packets_only() {
    let _turn = turn();
    struct Hoard(Vec<Packet>);
    impl App for Hoard {
        const INPUTS: Ports = Ports::Named(&[Port::required("input", "packets")]);

        fn push(&mut self, io: &Io<Self>) {
            self.0.extend(&mut io.input(0));
        }
    }
    struct Copy;
    impl App for Copy {
        const INPUTS: Ports = Ports::Named(&[Port::required("input", "packets")]);
        const OUTPUTS: Ports = Ports::Any { at_least: 1, help: "copies" };

        fn push(&mut self, io: &Io<Self>) {
            let mut input = io.input(0);
            io.output(0).push_copies(input.packets());
            io.output(1).forward(&mut input);
        }
    }
    let all = pool::config().packets as u64;
    let network = Network::new()
        .app("numbers", Numbers { next: 0, count: 2 * all })
        .app("copy", Copy)
        .app("hoard", Hoard(Vec::new()))
        .app("note", Note(Arc::default()))
        .link("numbers.output -> copy.input")
        .unwrap()
        .link("copy.a -> hoard.input")
        .unwrap()
        .link("copy.b -> note.a")
        .unwrap();
    let mut engine = Engine::new(network, Settings::default(), None).unwrap();
    for _ in 0..4 * all / 128 {
        engine.breathe();
    }
    let snapshot = engine.snapshot();
    let copies = snapshot.links[1].packets;
    assert!(snapshot.apps[1].drops["no_buffer"] > 0);
    assert_eq!(snapshot.links[0].packets, copies + snapshot.apps[1].drops["no_buffer"]);
    assert_eq!(snapshot.links[0].packets, snapshot.links[2].packets);
    drop(engine);
    assert_eq!(pool::usage().in_use, 0);
}

/// The network of a round: a source, a sink, and the apps between them.
fn between(round: u64, ledger: &Arc<Mutex<Ledger>>) -> Network {
    let mut network = Network::new();
    let mut add = |name: &str, fingerprint: &str, spec: fn(&str, &str, usize) -> AppSpec, argument| {
        network.apps.push(spec(name, fingerprint, argument));
    };
    let hold_spec: fn(&str, &str, usize) -> AppSpec =
        |name, fingerprint, limit| AppSpec::new(name, "hold", fingerprint, hold(limit));
    // Three apps that come, go and change, each with its own period.
    let present: Vec<(String, usize)> = (0..3u64)
        .filter(|app| !(round / (app + 1)).is_multiple_of(3))
        .map(|app| (format!("hold-{app}"), (round / (2 * app + 3) % 5 * 7) as usize))
        .collect();
    for (name, limit) in &present {
        add(name, &limit.to_string(), hold_spec, *limit);
    }
    network.apps.push(AppSpec::new("numbers", "numbers", "", Numbers { next: 0, count: u64::MAX }));
    network.apps.push(AppSpec::new("note", "note", "", Note(Arc::clone(ledger))));
    let mut from = "numbers.output".to_owned();
    for (name, _) in &present {
        network = network.link(&format!("{from} -> {name}.in")).unwrap();
        from = format!("{name}.out");
    }
    network.link(&format!("{from} -> note.in")).unwrap()
}

#[test]
fn ten_thousand_reloads_under_traffic_lose_no_packet_from_the_books() {
    let _turn = turn();
    for schedule in Schedule::ALL {
        let ledger = Arc::new(Mutex::new(Ledger::default()));
        let settings = Settings { schedule, burst: 8, ..Settings::default() };
        let mut engine = Engine::new(between(0, &ledger), settings, None).unwrap();
        let control = engine.control();
        let reloads = AtomicU64::new(0);
        let outcome = std::thread::scope(|scope| {
            scope.spawn(|| {
                let _stop = StopOnDrop(&control);
                let rounds = if cfg!(miri) { 10 } else { 10_000 / Schedule::ALL.len() as u64 };
                for round in 1..=rounds {
                    control.reload(between(round, &ledger)).unwrap();
                    reloads.fetch_add(1, Relaxed);
                }
            });
            let end = engine.run();
            engine.finish(end)
        });
        assert_eq!(outcome.end, End::Stopped);
        let snapshot = &outcome.snapshot;
        assert_eq!(snapshot.engine("reloads"), reloads.load(Relaxed));
        let ledger = ledger.lock().unwrap();
        let made = snapshot.apps.iter().find(|app| app.name == "numbers").unwrap().counters["made"];
        let waiting: u64 = snapshot.links.iter().map(|link| link.waiting).sum();
        let held: u64 = held_at_the_end(&outcome);
        assert_eq!(ledger.twice, 0, "a packet arrived twice");
        assert_eq!(made, ledger.count + snapshot.dropped() + waiting + held, "{snapshot:#?}");
        assert_eq!(snapshot.imbalances(), []);
        assert_eq!(held, snapshot.apps.iter().map(|app| app.held).sum::<u64>());
        let removed: u64 = snapshot.gone.apps.iter().map(|app| app.drops["removed"]).sum();
        assert!(removed > 0 && ledger.count > 0, "the test must have dropped and delivered packets");
        drop(outcome);
        assert_eq!(pool::usage().in_use, 0);
    }
}

/// The packets inside apps when the run was stopped: buffers in use less the packets in links.
fn held_at_the_end(outcome: &Outcome) -> u64 {
    let waiting: u64 = outcome.snapshot.links.iter().map(|link| link.waiting).sum();
    outcome.snapshot.engine("buffers_in_use") - waiting
}

#[test]
fn a_reload_that_fails_leaves_everything_as_it_was() {
    let _turn = turn();
    let ledger = Arc::new(Mutex::new(Ledger::default()));
    let network = |first: usize, second: usize| {
        let mut network = Network::new();
        network.apps.push(AppSpec::new("numbers", "numbers", "", Numbers { next: 0, count: 50 }));
        network.apps.push(AppSpec::new("first", "hold", &first.to_string(), hold(first)));
        network.apps.push(AppSpec::new("second", "hold", &second.to_string(), hold(second)));
        network.apps.push(AppSpec::new("note", "note", "", Note(Arc::clone(&ledger))));
        network
            .link("numbers.output -> first.in")
            .unwrap()
            .link("first.out -> second.in")
            .unwrap()
            .link("second.out -> note.in")
            .unwrap()
    };
    let mut engine = Engine::new(network(20, 10), Settings::default(), None).unwrap();
    let control = engine.control();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _stop = StopOnDrop(&control);
            // A network with wiring errors, then one whose second app cannot start after the first took over the
            // packets.
            let faulty = Network::new().app("numbers", Numbers { next: 0, count: 1 });
            assert!(matches!(control.reload(faulty), Err(ReloadError::Wiring(errors)) if errors.len() == 1));
            let error = control.reload(network(4, usize::MAX)).unwrap_err();
            assert!(error.to_string().contains("app `second`: it cannot hold that many"), "{error}");
            let report = control.reload(network(0, 0)).unwrap();
            assert_eq!(
                (report.kept, report.replaced),
                (vec!["numbers".into(), "note".into()], vec!["first".into(), "second".into()])
            );
            assert_eq!(report.dropped, 0, "both took over what the old ones held");
            let start = Instant::now();
            while ledger.lock().unwrap().count < 50 && start.elapsed() < Duration::from_secs(10) {
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let end = engine.run();
        engine.finish(end)
    });
    assert_eq!(arrived(&ledger), (50, 0));
    assert!(matches!(control.reload(network(0, 0)), Err(ReloadError::Over)));
    assert_eq!(pool::usage().in_use, 0);
}

#[test]
fn a_sleeping_engine_wakes_for_its_deadlines_and_for_a_stop() {
    let _turn = turn();
    /// Sends one packet every 20 ms.
    struct Clock;
    impl App for Clock {
        const OUTPUTS: Ports = Ports::Named(&[Port::required("output", "a packet now and then")]);

        fn tick(&mut self, io: &Io<Self>) {
            io.output(0).push(Packet::from_bytes(&0u64.to_ne_bytes()).unwrap());
            io.wake_at(io.now() + 20_000_000);
        }
    }
    let network =
        Network::new().app("clock", Clock).app("note", Note(Arc::default())).link("clock.output -> note.a").unwrap();
    let mut engine = Engine::new(network, Settings::default(), None).unwrap();
    let control = engine.control();
    let start = std::time::Instant::now();
    let outcome = std::thread::scope(|scope| {
        scope.spawn(|| {
            let _stop = StopOnDrop(&control);
            std::thread::sleep(Duration::from_millis(510));
        });
        let end = engine.run();
        engine.finish(end)
    });
    let elapsed = start.elapsed();
    assert_eq!(outcome.end, End::Stopped);
    let packets = outcome.snapshot.links[0].packets;
    // On a busy machine the stop comes late, and so do packets.
    let limit = elapsed.as_millis() as u64 / 20 + 2;
    assert!((15..=limit).contains(&packets), "{packets} packets in {elapsed:?}, one every 20 ms");
    assert!(outcome.snapshot.engine("sleeps") >= packets - 2);
    assert!(outcome.snapshot.engine("sleep_ns") > 300_000_000);
}

/// Consumes packets until packet `until`, and reports their number as its status. Fails to start as number 13.
struct Counting {
    number: u64,
    until: u64,
    seen: Arc<CountStatus>,
}

struct CountStatus {
    number: u64,
    count: AtomicU64,
}

impl Status for CountStatus {
    fn status(&self) -> serde_json::Value {
        assert!(self.number != 7, "a status of this test fails on purpose");
        serde_json::json!({ "number": self.number, "count": self.count.load(Relaxed) })
    }
}

impl App for Counting {
    const INPUTS: Ports = Ports::Any { at_least: 0, help: "packets" };

    fn push(&mut self, io: &Io<Self>) {
        for packet in &mut io.input(0) {
            let before = self.seen.count.fetch_add(1, Relaxed);
            assert!(before < self.until, "an app of this test fails on purpose");
            drop(packet);
        }
    }

    fn start(&mut self, _: Option<&mut Counting>) -> Result<(), AppError> {
        if self.number == 13 { Err("13 is no good number; take another".into()) } else { Ok(()) }
    }

    fn status(&self) -> Option<Arc<dyn Status>> {
        (self.number != 0).then(|| Arc::clone(&self.seen) as Arc<dyn Status>)
    }
}

fn counting(name: &str, number: u64) -> AppSpec {
    let until = if number == 2 { 10 } else { u64::MAX };
    let seen = Arc::new(CountStatus { number, count: AtomicU64::new(0) });
    AppSpec::new(name, "counting", &number.to_string(), Counting { number, until, seen })
}

#[test]
fn statuses_follow_apps_across_reloads_and_panics() {
    let _turn = turn();
    let network = |numbers: &[(&str, u64)]| {
        let mut network = Network::new();
        network.apps.push(AppSpec::new("numbers", "numbers", "", Numbers { next: 0, count: 50 }));
        network.apps.extend(numbers.iter().map(|&(name, number)| counting(name, number)));
        network.link("numbers.output -> first.in").unwrap()
    };
    let told = |control: &Control| -> Vec<(String, String)> {
        control.statuses().into_iter().map(|told| (told.app, told.status["number"].to_string())).collect()
    };
    let pairs = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
        pairs.iter().map(|(app, number)| (app.to_string(), number.to_string())).collect()
    };
    let mut engine =
        Engine::new(network(&[("first", 1), ("mute", 0), ("second", 3)]), Settings::default(), None).unwrap();
    let control = engine.control();
    let reload = |engine: &mut Engine, network: Network| {
        let control = control.clone();
        let asked = std::thread::spawn(move || control.reload(network));
        let deadline = Deadline::new("a reload");
        while !asked.is_finished() {
            deadline.check();
            engine.handle_requests();
        }
        asked.join().unwrap()
    };

    // Before the first breath and after it; an app without a status is left out.
    assert_eq!(told(&control), pairs(&[("first", "1"), ("second", "3")]));
    while engine.breathe() {}
    let first = &control.statuses()[0];
    assert_eq!((&*first.kind, &first.status["count"]), ("counting", &serde_json::json!(50)));

    // A kept app keeps its status, a changed app has a new one, a removed app has none, in network order.
    reload(&mut engine, network(&[("third", 5), ("first", 1), ("second", 4)])).unwrap();
    assert_eq!(told(&control), pairs(&[("third", "5"), ("first", "1"), ("second", "4")]));
    assert_eq!(control.statuses()[1].status["count"], 50);

    // A reload that fails changes nothing.
    reload(&mut engine, network(&[("first", 9), ("second", 13)])).unwrap_err();
    assert_eq!(told(&control), pairs(&[("third", "5"), ("first", "1"), ("second", "4")]));

    // A status that panics is null and does no harm; an app that panicked has no status until a reload.
    let mut again = network(&[("first", 2), ("second", 7)]);
    again.apps[0] = AppSpec::new("numbers", "numbers", "again", Numbers { next: 0, count: 50 });
    reload(&mut engine, again).unwrap();
    assert_eq!(told(&control), pairs(&[("first", "2"), ("second", "null")]));
    while engine.breathe() {}
    assert_eq!(told(&control), pairs(&[("second", "null")]));
    reload(&mut engine, network(&[("first", 2), ("second", 4)])).unwrap();
    assert_eq!(told(&control), pairs(&[("first", "2"), ("second", "4")]), "it was started again");
    let outcome = engine.finish(End::Stopped);
    assert_eq!(outcome.panicked, ["first"]);
    assert_eq!(pool::usage().in_use, 0);
}
