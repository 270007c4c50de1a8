//! Trials of look-ahead change nothing: packets, their order and all accounts are as without one. They see calls of all
//! apps, and end with whoever asked for them, with a reload, and with the run.

use std::sync::{Arc, Mutex};
use std::thread;

use bellows_engine::{
    App, Control, Counters, End, Engine, Io, LookAhead, Network, Port, Ports, Schedule, Settings, TrialError, counters,
};
use bellows_observe::Snapshot;
use bellows_packet::Packet;
use bellows_testkit::wait::Deadline;
use proptest::prelude::*;

const INPUT: Ports = Ports::Named(&[Port::required("input", "packets")]);
const OUTPUT: Ports = Ports::Named(&[Port::required("output", "packets")]);

/// Sends numbered packets, the same number in each breath.
struct Numbers {
    bursts: Vec<u64>,
    next: u64,
    breath: usize,
}

impl App for Numbers {
    const OUTPUTS: Ports = OUTPUT;

    fn pull(&mut self, io: &Io<Self>) {
        let mut output = io.output(0);
        let burst = self.bursts[self.breath % self.bursts.len()];
        self.breath += 1;
        for _ in 0..burst.min(output.room() as u64) {
            output.push(Packet::from_bytes(&self.next.to_be_bytes()).unwrap());
            self.next += 1;
        }
    }
}

/// Drops numbers that three divides, and leaves those behind the first `most` packets for the next breath.
struct Sieve {
    most: usize,
}

counters! { Sieve;
    drop THREE = "three", "numbers that three divides";
}

impl App for Sieve {
    const INPUTS: Ports = INPUT;
    const OUTPUTS: Ports = OUTPUT;
    const COUNTERS: Counters<Self> = Self::COUNTED;
    const PREFETCH: usize = 4;

    fn push(&mut self, io: &Io<Self>) {
        let mut output = io.output(0);
        for packet in (&mut io.input(0)).into_iter().take(self.most) {
            match number(&packet).is_multiple_of(3) {
                true => io.drop(packet, Self::THREE),
                false => output.push(packet),
            }
        }
    }
}

fn number(packet: &Packet) -> u64 {
    u64::from_be_bytes(packet.bytes().try_into().unwrap())
}

/// Keeps the numbers that arrive.
struct Keep(Arc<Mutex<Vec<u64>>>);

impl App for Keep {
    const INPUTS: Ports = INPUT;

    fn push(&mut self, io: &Io<Self>) {
        let mut input = io.input(0);
        self.0.lock().unwrap().extend(input.packets().iter().map(number));
        input.discard();
    }
}

fn network(bursts: &[u64], most: usize) -> (Network, Arc<Mutex<Vec<u64>>>) {
    let kept = Arc::default();
    let network = Network::new()
        .app("numbers", Numbers { bursts: bursts.to_vec(), next: 0, breath: 0 })
        .app("sieve", Sieve { most })
        .app("keep", Keep(Arc::clone(&kept)));
    let network = network.link("numbers.output -> sieve.input").unwrap();
    (network.link("sieve.output -> keep.input").unwrap(), kept)
}

/// Everything that is counted exactly.
fn exact(snapshot: &Snapshot) -> Vec<String> {
    let links =
        snapshot.links.iter().map(|link| format!("{} {} {} {}", link.packets, link.bytes, link.txdrop, link.waiting));
    let apps = snapshot.apps.iter().map(|app| format!("{} {:?} {:?}", app.name, app.calls, app.drops));
    links.chain(apps).collect()
}

/// Asks for a trial and has the engine begin it.
fn begin(engine: &mut Engine, control: &Control) -> bellows_engine::LookAheadTrial {
    let trial = control.try_look_ahead().unwrap();
    engine.handle_requests();
    trial
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn a_trial_changes_no_packet_no_order_and_no_account(
        bursts in proptest::collection::vec(0u64..200, 1..6),
        most in 1usize..200,
        schedule in prop_oneof![Just(Schedule::Nested), Just(Schedule::Flat), Just(Schedule::Native)],
        lossless in any::<bool>(),
        breaths in 500u64..4_000,
    ) {
        let run = |tries: bool| {
            let (network, kept) = network(&bursts, most);
            let settings = Settings { schedule, lossless, ..Settings::default() };
            let mut engine = Engine::new(network, settings, None).unwrap();
            let control = engine.control();
            engine.breathe_times(breaths / 2);
            let trial = tries.then(|| begin(&mut engine, &control));
            engine.breathe_times(breaths);
            let calls = trial.as_ref().map_or(0, bellows_engine::LookAheadTrial::calls);
            drop(trial);
            engine.handle_requests();
            engine.breathe_times(breaths / 2);
            let snapshot = engine.snapshot();
            assert_eq!(snapshot.imbalances(), []);
            let kept = kept.lock().unwrap().clone();
            (kept, exact(&snapshot), calls)
        };
        let (kept, counted, none) = run(false);
        let (tried, counted_too, calls) = run(true);
        prop_assert_eq!(none, 0);
        prop_assert_eq!(kept, tried);
        prop_assert_eq!(counted, counted_too);
        // About one in 3 breaths, if they have enough packets.
        if breaths > 1_500 && most >= 8 && bursts.iter().all(|burst| *burst > 30) {
            prop_assert!(calls as u64 > breaths / 8, "{} calls", calls);
            prop_assert!((calls as u64) < breaths / 2, "{} calls", calls);
        }
    }
}

#[test]
fn a_trial_sees_calls_of_both_kinds_of_each_app_and_accounts_go_on() {
    let (network, _) = network(&[64], 1_000);
    let mut engine = Engine::new(network, Settings::default(), None).unwrap();
    let control = engine.control();
    let trial = begin(&mut engine, &control);
    engine.breathe_times(100_000);
    let results = trial.results();
    let names: Vec<&str> = results.iter().map(|result| &*result.app).collect();
    assert_eq!(names, ["sieve", "keep"], "{results:?}");
    for result in &results {
        assert!(result.calls.iter().all(|calls| (6_500..9_800).contains(calls)), "{results:?}");
        assert_ne!(result.verdict, LookAhead::Unknown, "{results:?}");
        assert!((40.0..=64.0).contains(&result.packets_per_call), "{results:?}");
    }
    // One in 256 breaths is recorded, as without a trial.
    let sampled = engine.snapshot().engine("sampled_breaths");
    assert!((250..550).contains(&sampled), "{sampled}");
}

#[test]
fn one_trial_runs_at_a_time() {
    let (network, _) = network(&[64], 1_000);
    let mut engine = Engine::new(network, Settings::default(), None).unwrap();
    let control = engine.control();
    let trial = begin(&mut engine, &control);
    assert_eq!(control.try_look_ahead().err(), Some(TrialError::Busy));
    drop(trial);
    let trial = begin(&mut engine, &control);
    engine.breathe_times(10_000);
    assert!(trial.calls() > 0 && !trial.is_over());
    drop(engine);
    assert!(control.try_look_ahead().is_err(), "the run is over");

    let (network, _) = self::network(&[64], 1_000);
    let settings = Settings { sampling: false, ..Settings::default() };
    let engine = Engine::new(network, settings, None).unwrap();
    assert_eq!(engine.control().try_look_ahead().err(), Some(TrialError::NoSamples));
}

#[test]
fn a_reload_ends_a_trial_and_a_new_one_can_begin() {
    let (network, _) = network(&[64], 1_000);
    let mut engine = Engine::new(network, Settings::default(), None).unwrap();
    let control = engine.control();
    thread::scope(|scope| {
        let running = scope.spawn(move || {
            let end = engine.run();
            engine.finish(end)
        });
        for _ in 0..3 {
            let trial = control.try_look_ahead().unwrap();
            let deadline = Deadline::new("calls in the trial");
            while trial.calls() == 0 {
                deadline.check();
                thread::yield_now();
            }
            control.reload(self::network(&[64, 3], 1_000).0).unwrap();
            assert!(trial.is_over());
            let calls = trial.calls();
            thread::yield_now();
            assert_eq!(trial.calls(), calls, "the positions of apps may be others now");
        }
        let trial = control.try_look_ahead().unwrap();
        control.stop();
        let outcome = running.join().unwrap();
        assert_eq!((outcome.end, outcome.snapshot.imbalances()), (End::Stopped, Vec::new()));
        drop(trial);
        assert_eq!(control.try_look_ahead().err(), Some(TrialError::Over));
    });
}
