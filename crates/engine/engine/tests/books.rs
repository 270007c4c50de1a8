//! The books balance: for every app, in + made = out + dropped + ended + held, whatever the network does, across
//! reloads and panics. An app that loses packets is named.

mod support;

use std::mem;
use std::thread;

use bellows_engine::{
    App, AppError, AppSpec, Counters, End, Engine, Io, MAIN, Network, Ports, ReloadError, Reloaded, Schedule, Settings,
    counters,
};
use bellows_observe::Imbalance;
use bellows_packet::{Packet, Vector, buffer_use};
use bellows_testkit::soak;
use bellows_testkit::wait::Deadline;
use proptest::prelude::*;
use support::check_books;

/// What an app does with each packet.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Does {
    /// Brings in this many packets a breath on each output; consumes its input.
    Make(usize),
    /// Sends it to the first output.
    Forward,
    /// Sends it to the next output in turn.
    Spread,
    /// Sends a copy to every output.
    Copy,
    /// Drops every packet that this number divides.
    Sieve(u64),
    /// Holds this many packets; takes over what the app before it holds, or not.
    Hold(usize, bool),
    /// Takes this many packets; leaves the others in its inputs.
    AtMost(usize),
    /// Holds, drops and consumes some packets, and panics at the packet with this number.
    Bomb(u64),
    /// Consumes it.
    End,
}

const ANY: Ports = Ports::Any { at_least: 0, help: "packets" };

/// An app in which packets end or not.
struct Node<const ENDS: bool> {
    does: Does,
    count: u64,
    held: Vec<Packet>,
}

counters! { for[const ENDS: bool] Node<ENDS>;
    asked drop SIEVED = "sieved", "packets that were sieved out";
}

impl<const ENDS: bool> App for Node<ENDS> {
    const INPUTS: Ports = ANY;
    const OUTPUTS: Ports = ANY;
    const PULLS: bool = true;
    const MAX_FAN_OUT: usize = 2;
    const ENDS: bool = ENDS;
    const COUNTERS: Counters<Self> = Self::COUNTED;

    fn pull(&mut self, io: &Io<Self>) {
        let Does::Make(burst) = self.does else { return };
        for index in 0..io.outputs() {
            let mut output = io.output(index);
            for mut packet in Packet::allocate_burst(burst) {
                packet.append(&self.count.to_ne_bytes());
                self.count += 1;
                output.push(packet);
            }
        }
    }

    fn push(&mut self, io: &Io<Self>) {
        for index in 0..io.inputs() {
            let mut input = io.input(index);
            match self.does {
                Does::Make(_) | Does::End => {
                    input.discard();
                }
                Does::Forward => {
                    drop(input);
                    io.forward(index, 0);
                }
                Does::Spread => {
                    for packet in &mut input {
                        self.count += 1;
                        io.output(self.count as usize % io.outputs().max(1)).push(packet);
                    }
                }
                Does::Copy => {
                    for output in 1..io.outputs() {
                        io.output(output).push_copies(input.packets());
                    }
                    io.output(0).forward(&mut input);
                }
                Does::Sieve(divisor) => {
                    let mut output = io.output(0);
                    for packet in &mut input {
                        self.count += 1;
                        match self.count.is_multiple_of(divisor) {
                            true => io.drop(packet, Self::SIEVED),
                            false => output.push(packet),
                        }
                    }
                }
                Does::Hold(most, _) => {
                    self.held.extend(&mut input);
                    let mut output = io.output(0);
                    let leave = self.held.len().saturating_sub(most).min(output.room());
                    self.held.drain(..leave).for_each(|packet| output.push(packet));
                }
                Does::AtMost(most) => {
                    let mut output = io.output(0);
                    for packet in (&mut input).into_iter().take(most) {
                        output.push(packet);
                    }
                }
                Does::Bomb(at) => {
                    let mut vector = Vector::new();
                    let mut output = io.output(0);
                    for packet in &mut input {
                        self.count += 1;
                        match self.count % 5 {
                            0 => io.drop(packet, Self::SIEVED),
                            1 if ENDS => drop(packet),
                            2 => self.held.push(packet),
                            3 => drop(vector.push(packet)),
                            _ => output.push(packet),
                        }
                        if self.count > at {
                            let _in_hand = Packet::allocate_burst(3).collect::<Vec<_>>();
                            panic!("an app of this test fails on purpose");
                        }
                    }
                    vector.drain(usize::MAX).for_each(|packet| output.push(packet));
                }
            }
        }
    }

    fn held(&self) -> usize {
        self.held.len()
    }

    fn start(&mut self, old: Option<&mut Self>) -> Result<(), AppError> {
        if let (Does::Hold(_, true), Some(old)) = (self.does, old) {
            self.held = mem::take(&mut old.held);
        }
        Ok(())
    }
}

/// The workers of a network.
const WORKERS: [&str; 3] = [MAIN, "one", "two"];

/// One network: its numbered apps with their workers, and its links as from and to.
#[derive(Clone, Debug)]
struct Case {
    apps: Vec<(u8, Does, usize)>,
    links: Vec<(u8, u8)>,
}

impl Case {
    fn network(&self) -> Network {
        let mut network = Network::new();
        let mut names = Vec::new();
        for &(number, does, worker) in &self.apps {
            let name = format!("a{number}");
            if names.contains(&number) {
                continue;
            }
            names.push(number);
            let print = format!("{does:?}");
            let app = match does {
                Does::Make(_) | Does::End => AppSpec::new(&name, "ends", &print, node::<true>(does)),
                Does::Bomb(at) if at % 2 == 0 => AppSpec::new(&name, "ends", &print, node::<true>(does)),
                _ => AppSpec::new(&name, "passes", &print, node::<false>(does)),
            };
            network.apps.push(app.on_worker(WORKERS[worker]));
        }
        for &(from, to) in &self.links {
            let [from, to] = [from, to].map(|end| names[usize::from(end) % names.len()]);
            let link = format!("a{from}.to{to} -> a{to}.from{from}");
            if from != to && !network.links.iter().any(|known| known.to_string() == link) {
                network = network.link(&link).unwrap();
            }
        }
        network
    }
}

fn node<const ENDS: bool>(does: Does) -> Node<ENDS> {
    Node { does, count: 0, held: Vec::new() }
}

fn case() -> impl Strategy<Value = Case> {
    let does = prop_oneof![
        3 => prop_oneof![1usize..50, 300usize..900].prop_map(Does::Make),
        1 => Just(Does::Forward),
        1 => Just(Does::Spread),
        2 => Just(Does::Copy),
        1 => (2u64..9).prop_map(Does::Sieve),
        2 => (0usize..700, any::<bool>()).prop_map(|(most, takes_over)| Does::Hold(most, takes_over)),
        1 => (1usize..400).prop_map(Does::AtMost),
        1 => (0u64..2_000).prop_map(Does::Bomb),
        2 => Just(Does::End),
    ];
    let links = proptest::collection::vec((any::<u8>(), any::<u8>()), 1..14);
    // Half of the networks have one worker.
    let apps = (proptest::collection::vec((0u8..9, does, 0usize..3), 2..9), 0usize..2);
    (apps, links).prop_map(|((mut apps, factor), links)| {
        apps.iter_mut().for_each(|(_, _, worker)| *worker *= factor);
        Case { apps, links }
    })
}

/// Reloads the network from another thread.
fn try_reload(engine: &mut Engine, network: Network, breathes: bool) -> Result<Reloaded, ReloadError> {
    let control = engine.control();
    let reloading = thread::spawn(move || control.reload(network));
    let deadline = Deadline::new("a reload");
    while !reloading.is_finished() {
        deadline.check();
        engine.handle_requests();
        if breathes {
            engine.breathe();
        }
    }
    reloading.join().unwrap()
}

fn reload(engine: &mut Engine, network: Network) -> Reloaded {
    try_reload(engine, network, false).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: soak::cases(500), failure_persistence: None, ..ProptestConfig::default() })]

    /// Random networks, reloaded into one another while they run, lossless or not, under each schedule.
    #[test]
    fn every_packet_is_somewhere(
        networks in proptest::collection::vec((case(), 0u64..9), 1..5),
        lossless in any::<bool>(),
        burst in 1usize..300,
    ) {
        for schedule in Schedule::ALL {
            let settings = Settings { schedule, lossless, burst, ..Settings::default() };
            let before = buffer_use();
            let mut engine = Engine::new(networks[0].0.network(), settings, None).unwrap();
            for (index, (case, breaths)) in networks.iter().enumerate() {
                if index > 0 {
                    match try_reload(&mut engine, case.network(), lossless) {
                        // A receiver does not take the packets of a link that no longer crosses workers.
                        Err(ReloadError::Overfull(_)) => assert!(lossless),
                        reloaded => drop(reloaded.unwrap()),
                    }
                    check_books(&engine.snapshot());
                }
                engine.breathe_times(*breaths);
                check_books(&engine.snapshot());
            }
            let snapshot = engine.finish(End::Stopped).snapshot;
            check_books(&snapshot);
            // The books of the apps have all that this thread allocated, except packets that panics threw away.
            let made: u64 = snapshot.apps.iter().chain(&snapshot.gone.apps).map(|app| app.made).sum();
            prop_assert!(made >= buffer_use().since(before).taken, "{schedule}");
        }
    }
}

/// An app that mishandles its 64 packets.
struct Wrong(fn(&mut Vec<Packet>, &Io<Wrong>, Packet), Vec<Packet>);

counters! { Wrong;
    drop SIEVED = "sieved", "packets that were sieved out";
}

impl App for Wrong {
    const INPUTS: Ports = ANY;
    const OUTPUTS: Ports = ANY;
    const COUNTERS: Counters<Self> = Self::COUNTED;

    fn push(&mut self, io: &Io<Self>) {
        for packet in &mut io.input(0) {
            self.0(&mut self.1, io, packet);
        }
    }

    fn held(&self) -> usize {
        self.1.len() / 2
    }
}

fn found(what: fn(&mut Vec<Packet>, &Io<Wrong>, Packet)) -> Vec<Imbalance> {
    let network = Network::new().app("make", node::<true>(Does::Make(64))).app("wrong", Wrong(what, Vec::new()));
    let network = network.link("make.o -> wrong.i").unwrap();
    let mut engine = Engine::new(network, Settings::default(), None).unwrap();
    engine.breathe();
    engine.finish(End::Stopped).snapshot.imbalances()
}

#[test]
fn an_app_whose_books_do_not_balance_is_named() {
    let wrong = |leaked, uncounted| vec![Imbalance { app: "wrong".to_owned(), leaked, uncounted }];
    assert_eq!(found(|_, io, packet| io.drop(packet, Wrong::SIEVED)), []);
    assert_eq!(found(|_, io, packet| io.output(0).push(packet)), [], "it is dropped as unlinked");
    assert_eq!(found(|_, _, packet| drop(packet)), wrong(0, 64));
    assert_eq!(found(|_, _, packet| mem::forget(packet)), wrong(64, 0));
    assert_eq!(found(|held, _, packet| held.push(packet)), wrong(32, 0), "it says that it holds half of them");
    let handed_off = found(|_, io, packet| {
        io.handed_off(2);
        mem::forget(packet);
    });
    assert_eq!(handed_off, wrong(-64, 0));
    let text = wrong(1, -3)[0].to_string();
    assert!(text.starts_with("this is a bug in the app `wrong`: 1 packet unaccounted for"), "{text}");
    assert!(text.ends_with("3 packets counted as dropped that were not freed"), "{text}");
}

#[test]
fn a_source_may_free_packets_that_it_made() {
    struct Hesitant;
    impl App for Hesitant {
        const OUTPUTS: Ports = ANY;

        fn pull(&mut self, io: &Io<Self>) {
            let mut packets = Packet::allocate_burst(9);
            packets.by_ref().take(5).for_each(|packet| io.output(0).push(packet));
            drop(packets.next());
        }
    }
    let network = Network::new().app("source", Hesitant).app("end", node::<true>(Does::End));
    let mut engine = Engine::new(network.link("source.o -> end.i").unwrap(), Settings::default(), None).unwrap();
    engine.breathe_times(3);
    let snapshot = engine.finish(End::Stopped).snapshot;
    check_books(&snapshot);
    assert_eq!((snapshot.apps[0].made, snapshot.apps[0].ended, snapshot.apps[1].ended), (15, 0, 15));
}

#[test]
fn what_was_in_hand_at_a_panic_is_counted_as_dropped() {
    for schedule in Schedule::ALL {
        for does in [Does::Bomb(100), Does::Bomb(101)] {
            let apps = vec![(0, Does::Make(300), 0), (1, does, 0)];
            let mut network = Case { apps, links: vec![(0, 1)] }.network();
            network.apps.push(bellows_engine::AppSpec::new("end", "ends", "", node::<true>(Does::End)));
            let network = network.link("a1.o -> end.i").unwrap();
            let mut engine = Engine::new(network, Settings { schedule, ..Settings::default() }, None).unwrap();
            engine.breathe();
            let snapshot = engine.snapshot();
            check_books(&snapshot);
            let bomb = &snapshot.apps[1];
            assert_eq!((bomb.state.as_str(), bomb.panics, bomb.made), ("failed", 1, 3), "{schedule}");
            // 100 or 101 packets were handled, a fifth held and a fifth in hand; the next packet was in hand, too.
            assert!(bomb.drops["app_failed"] >= 40 + 3, "{schedule}: {bomb:#?}");
            engine.breathe();
            check_books(&engine.snapshot());
        }
    }
}

#[test]
fn what_reloads_remove_stays_in_the_report_by_app_and_reason() {
    let network = |apps: &[(u8, Does)], links: &[(u8, u8)]| {
        let apps = apps.iter().map(|&(number, does)| (number, does, 0)).collect();
        Case { apps, links: links.to_vec() }.network()
    };
    let (make, hold, sieve, end) =
        ((0, Does::Make(50)), (1, Does::Hold(70, false)), (2, Does::Sieve(5)), (3, Does::End));
    let mut engine =
        Engine::new(network(&[make, hold, sieve, end], &[(0, 1), (1, 2), (2, 3)]), Settings::default(), None).unwrap();
    engine.breathe_times(5);
    // 250 packets: 70 are held, and a fifth of the others was sieved out.
    reload(&mut engine, network(&[make, end], &[(0, 1)]));
    engine.breathe_times(5);
    let snapshot = engine.snapshot();
    check_books(&snapshot);
    let gone: Vec<(&str, u64, u64, u64)> = snapshot
        .gone
        .apps
        .iter()
        .map(|app| (&*app.name, app.in_packets, app.drops["sieved"], app.drops["removed"]))
        .collect();
    assert_eq!(gone, [("a1", 250, 0, 70), ("a2", 180, 36, 0)]);
    let links: Vec<(&str, u64)> = snapshot.gone.links.iter().map(|link| (&*link.from, link.packets)).collect();
    assert_eq!(links, [("a0.to1", 250), ("a1.to2", 180), ("a2.to3", 144)]);
    assert_eq!(
        (snapshot.apps[0].out_packets, snapshot.apps[1].in_packets),
        (500, 394),
        "apps remember links that are gone"
    );

    // An app that comes and goes repeatedly has one row. If many apps are removed, the last are listed and all are
    // counted.
    for round in 0..200u8 {
        let mut stranger = network(&[make, end], &[(0, 1)]);
        let does = Does::Sieve(2);
        stranger.apps.push(bellows_engine::AppSpec::new(&format!("x{round}"), "passes", "", node::<false>(does)));
        reload(&mut engine, stranger.link(&format!("a0.x -> x{round}.i")).unwrap());
        engine.breathe();
    }
    reload(&mut engine, network(&[make, sieve, end], &[(0, 1), (1, 2)]));
    let before = engine.snapshot();
    assert_eq!((before.gone.apps.len(), before.gone.links.len()), (128, 128));
    assert_eq!(before.imbalances(), []);
    assert!(before.engine("forgotten_drops") > 0);
    let made: u64 = before.apps[0].made;
    let waiting: u64 = before.links.iter().map(|link| link.waiting).sum();
    // Each stranger sieved half of 50 packets and dropped the others as unlinked.
    assert_eq!(made, before.apps[2].ended + before.dropped() + waiting);
    for _ in 0..3 {
        engine.breathe();
        reload(&mut engine, network(&[make, end], &[(0, 1)]));
        reload(&mut engine, network(&[make, sieve, end], &[(0, 1), (1, 2)]));
    }
    let after = engine.snapshot();
    let rows = after.gone.apps.iter().filter(|app| app.name == "a2").count();
    assert_eq!((rows, after.gone.apps.len()), (1, 128));
    assert_eq!(after.imbalances(), []);
}
