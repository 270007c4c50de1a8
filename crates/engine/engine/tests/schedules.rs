//! Every schedule delivers the same packets in the same order as a naive model does, drops included.
//!
//! Random networks (fan-in, fan-out, loops, full links, lossless or not) of deterministic apps run for some breaths
//! under each schedule, and in a model that keeps packets as numbers in queues. Reloads add and remove unrelated apps
//! (strangers) on the way, which changes the code and the placement of everything, but must not change the result.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

use bellows_engine::{App, Counters, Engine, Io, Network, Ports, Schedule, Settings, counters};
use bellows_observe::Snapshot;
use bellows_packet::{CAPACITY, Packet};
use bellows_testkit::soak;
use bellows_testkit::wait::Deadline;
use proptest::prelude::*;

/// What an app does. Packets are numbers; each carries its number in its first four bytes and is 60 to 91 bytes long.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Behaviour {
    /// Brings in `burst` packets a breath, `count` in total, on each output.
    Generate { burst: u32, count: u32 },
    /// Sends all inputs to the first output, whole vectors at a time.
    Forward,
    /// As `Forward`, with one output open throughout.
    Join,
    /// Sends all inputs to the first output, packet by packet.
    Loop,
    /// Sends each packet to the next output in turn.
    Spread,
    /// Sends a copy to every output.
    Copy,
    /// Sends each packet twice to the first output.
    Twice,
    /// Drops numbers divisible by this number; sends the rest to the first output.
    Sieve(u32),
    /// Takes at most this many packets of each input a breath; sends them to the first output.
    AtMost(usize),
    /// Consumes packets.
    Keep,
}

fn length(number: u32) -> usize {
    60 + (number % 32) as usize
}

fn number(packet: &Packet) -> u32 {
    u32::from_ne_bytes(packet.bytes()[..4].try_into().unwrap())
}

type Kept = Arc<Mutex<Vec<u32>>>;

struct Node<const MAX_FAN_OUT: usize> {
    behaviour: Behaviour,
    made: u32,
    turn: usize,
    kept: Kept,
    /// Number of slots. They are set to `never` once everything is made.
    slots: usize,
}

counters! { for[const MAX_FAN_OUT: usize] Node<MAX_FAN_OUT>;
    drop SIEVED = "sieved", "packets that were sieved out";
}

impl<const MAX_FAN_OUT: usize> App for Node<MAX_FAN_OUT> {
    const INPUTS: Ports = Ports::Any { at_least: 0, help: "" };
    const OUTPUTS: Ports = Ports::Any { at_least: 0, help: "" };
    const PULLS: bool = true;
    const MAX_FAN_OUT: usize = MAX_FAN_OUT;
    const ENDS: bool = true;
    const COUNTERS: Counters<Self> = Self::COUNTED;

    fn slots(&self) -> usize {
        self.slots
    }

    fn pull(&mut self, io: &Io<Self>) {
        let Behaviour::Generate { burst, count } = self.behaviour else {
            return (0..self.slots).for_each(|slot| io.slot(slot).never());
        };
        // All slots except the last are set to `never` early.
        let early = if self.made == count { self.slots } else { self.slots.saturating_sub(1) };
        (0..early).for_each(|slot| io.slot(slot).never());
        let room = (0..io.outputs()).map(|output| io.output(output).room() as u32).min().unwrap_or(0);
        let now = burst.min(count - self.made).min(room);
        for index in 0..io.outputs() {
            let mut output = io.output(index);
            for (offset, mut packet) in Packet::allocate_burst(now as usize).enumerate() {
                let number = self.made + offset as u32;
                packet.append(&number.to_ne_bytes());
                packet.extend(length(number) - 4);
                output.push(packet);
            }
        }
        self.made += now;
    }

    fn push(&mut self, io: &Io<Self>) {
        let mut joined = (self.behaviour == Behaviour::Join).then(|| io.output(0));
        for index in 0..io.inputs() {
            match self.behaviour {
                Behaviour::Join => {
                    if let Some(output) = &mut joined {
                        output.forward(&mut io.input(index));
                    }
                }
                Behaviour::Generate { .. } => {
                    io.input(index).discard();
                }
                Behaviour::Forward => io.forward(index, 0),
                Behaviour::Loop => {
                    let mut output = io.output(0);
                    for packet in &mut io.input(index) {
                        output.push(packet);
                    }
                }
                Behaviour::Spread => {
                    let mut outputs: Vec<_> = (0..io.outputs().max(1)).map(|output| io.output(output)).collect();
                    for packet in &mut io.input(index) {
                        let turn = self.turn % outputs.len();
                        outputs[turn].push(packet);
                        self.turn += 1;
                    }
                }
                Behaviour::Copy => {
                    let mut input = io.input(index);
                    for output in 0..io.outputs() {
                        io.output(output).push_copies(input.packets());
                    }
                    input.discard();
                }
                Behaviour::Twice => {
                    let mut output = io.output(0);
                    for packet in &mut io.input(index) {
                        output.push(packet.copy().unwrap());
                        output.push(packet);
                    }
                }
                Behaviour::Sieve(divisor) => {
                    let mut output = io.output(0);
                    for packet in &mut io.input(index) {
                        match number(&packet).is_multiple_of(divisor) {
                            true => io.drop(packet, Self::SIEVED),
                            false => output.push(packet),
                        }
                    }
                }
                Behaviour::AtMost(most) => {
                    let mut output = io.output(0);
                    for packet in (&mut io.input(index)).into_iter().take(most) {
                        output.push(packet);
                    }
                }
                Behaviour::Keep => {
                    let mut input = io.input(index);
                    self.kept.lock().unwrap().extend(input.packets().iter().map(number));
                    input.discard();
                }
            }
        }
    }
}

#[derive(Clone, Debug)]
struct Case {
    apps: Vec<Behaviour>,
    /// From, to.
    links: Vec<(usize, usize)>,
    lossless: bool,
    breaths: usize,
    /// Number of slots of each app.
    slots: usize,
    /// Reloads: the breath before which each happens, and the positions of strangers.
    reloads: BTreeMap<usize, Vec<usize>>,
}

fn case() -> impl Strategy<Value = Case> {
    let behaviour = prop_oneof![
        3 => (prop_oneof![1u32..50, 300u32..900], 0u32..3_000)
            .prop_map(|(burst, count)| Behaviour::Generate { burst, count }),
        2 => Just(Behaviour::Forward),
        2 => Just(Behaviour::Join),
        2 => Just(Behaviour::Loop),
        1 => Just(Behaviour::Spread),
        2 => Just(Behaviour::Copy),
        1 => Just(Behaviour::Twice),
        1 => (2u32..9).prop_map(Behaviour::Sieve),
        1 => (1usize..400).prop_map(Behaviour::AtMost),
        2 => Just(Behaviour::Keep),
    ];
    (proptest::collection::vec(behaviour, 2..9), any::<bool>(), 1usize..12).prop_flat_map(
        |(apps, lossless, breaths)| {
            let count = apps.len();
            let link = (0..count, 1..count).prop_map(move |(from, step)| (from, (from + step) % count));
            let strangers = proptest::collection::vec(0..count + 1, 0..20);
            let reloads = proptest::collection::btree_map(0..breaths, strangers, 0..3);
            (proptest::collection::vec(link, 1..14), 0usize..3, reloads).prop_map(move |(links, slots, reloads)| Case {
                apps: apps.clone(),
                links,
                lossless,
                breaths,
                slots,
                reloads,
            })
        },
    )
}

/// The result of a run: for each app the packets kept and sieved, for each link its packets, bytes, drops and backlog.
#[derive(Debug, PartialEq)]
struct Result {
    kept: Vec<Vec<u32>>,
    sieved: Vec<u64>,
    unlinked: Vec<u64>,
    links: Vec<(u64, u64, u64, u64, u64)>,
}

/// The network, with pairs of strangers before the apps at these positions. Kept packets go to `kept`, one for each
/// app.
fn network(case: &Case, strangers: &[usize], kept: &[Kept]) -> Network {
    let mut network = Network::new();
    for index in 0..=case.apps.len() {
        for (number, _) in strangers.iter().enumerate().filter(|(_, position)| **position == index) {
            let (from, to) = (format!("from{number}"), format!("to{number}"));
            let stranger =
                |behaviour| Node::<1> { behaviour, made: 0, turn: 0, kept: Kept::default(), slots: number % 3 };
            network = network.app(&from, stranger(Behaviour::Generate { burst: 3, count: 10 }));
            network = network.app(&to, stranger(Behaviour::Keep));
            network = network.link(&format!("{from}.o -> {to}.i")).unwrap();
        }
        let Some(&behaviour) = case.apps.get(index) else { break };
        let (name, slots, kept) = (format!("a{index}"), case.slots, Arc::clone(&kept[index]));
        network = match behaviour {
            Behaviour::Twice => network.app(&name, Node::<2> { behaviour, made: 0, turn: 0, kept, slots }),
            _ => network.app(&name, Node::<1> { behaviour, made: 0, turn: 0, kept, slots }),
        };
    }
    for (index, (from, to)) in case.links.iter().enumerate() {
        network = network.link(&format!("a{from}.o{index} -> a{to}.i{index}")).unwrap();
    }
    network
}

/// Reloads the network from another thread.
fn reload(engine: &mut Engine, network: Network) {
    let control = engine.control();
    let reloading = std::thread::spawn(move || control.reload(network).unwrap());
    let deadline = Deadline::new("a reload");
    while !reloading.is_finished() {
        deadline.check();
        engine.handle_requests();
    }
    reloading.join().unwrap();
}

fn run(case: &Case, schedule: Schedule) -> Result {
    let kept: Vec<Kept> = case.apps.iter().map(|_| Kept::default()).collect();
    let settings = Settings { lossless: case.lossless, schedule, ..Settings::default() };
    let mut engine = Engine::new(network(case, &[], &kept), settings, None).unwrap();
    let mut taken = 0;
    for (&breath, strangers) in &case.reloads {
        engine.breathe_times((breath - taken) as u64);
        taken = breath;
        // Copies of the kept apps are made and discarded.
        let unused: Vec<Kept> = case.apps.iter().map(|_| Kept::default()).collect();
        reload(&mut engine, network(case, strangers, &unused));
    }
    engine.breathe_times((case.breaths - taken) as u64);
    assert_eq!(engine.snapshot().imbalances(), []);
    let Snapshot { schedule: used, fallback_reason, apps, links, .. } = engine.snapshot();
    assert_eq!((used, fallback_reason.as_str()), (schedule.to_string(), ""));
    let own = |name: &str| name.starts_with('a');
    let apps: Vec<_> = apps.into_iter().filter(|app| own(&app.name)).collect();
    Result {
        kept: kept.iter().map(|kept| kept.lock().unwrap().clone()).collect(),
        sieved: apps.iter().map(|app| app.drops["sieved"]).collect(),
        unlinked: apps.iter().map(|app| app.drops["unlinked"]).collect(),
        links: links
            .iter()
            .filter(|link| own(&link.from))
            .map(|link| (link.packets, link.bytes, link.txdrop, link.waiting, link.waiting_bytes))
            .collect(),
    }
}

/// The naive model: queues of numbers.
struct Model<'a> {
    case: &'a Case,
    queues: Vec<VecDeque<u32>>,
    result: Result,
    made: Vec<u32>,
    turn: Vec<usize>,
}

impl Model<'_> {
    fn run(case: &Case) -> Result {
        let apps = case.apps.len();
        let mut model = Model {
            case,
            queues: vec![VecDeque::new(); case.links.len()],
            result: Result {
                kept: vec![Vec::new(); apps],
                sieved: vec![0; apps],
                unlinked: vec![0; apps],
                links: vec![(0, 0, 0, 0, 0); case.links.len()],
            },
            made: vec![0; apps],
            turn: vec![0; apps],
        };
        let order = model.push_order();
        for _ in 0..case.breaths {
            (0..apps).for_each(|app| model.pull(app));
            order.iter().for_each(|&app| model.push(app));
        }
        for (queue, link) in model.queues.iter().zip(&mut model.result.links) {
            link.3 = queue.len() as u64;
            link.4 = queue.iter().map(|&number| length(number) as u64).sum();
        }
        model.result
    }

    fn outputs(&self, app: usize) -> Vec<usize> {
        (0..self.case.links.len()).filter(|&link| self.case.links[link].0 == app).collect()
    }

    fn inputs(&self, app: usize) -> Vec<usize> {
        (0..self.case.links.len()).filter(|&link| self.case.links[link].1 == app).collect()
    }

    /// Repeatedly takes the first app whose inputs all come from apps already taken, except links that close a loop.
    fn push_order(&self) -> Vec<usize> {
        fn visit(
            model: &Model<'_>,
            app: usize,
            path: &mut Vec<usize>,
            seen: &mut Vec<usize>,
            closing: &mut Vec<usize>,
        ) {
            seen.push(app);
            path.push(app);
            for link in model.outputs(app) {
                let to = model.case.links[link].1;
                if path.contains(&to) {
                    closing.push(link);
                } else if !seen.contains(&to) {
                    visit(model, to, path, seen, closing);
                }
            }
            path.pop();
        }
        let (mut seen, mut closing) = (Vec::new(), Vec::new());
        for app in 0..self.case.apps.len() {
            if !seen.contains(&app) {
                visit(self, app, &mut Vec::new(), &mut seen, &mut closing);
            }
        }
        let mut order = Vec::new();
        while order.len() < self.case.apps.len() {
            let ready = |&app: &usize| {
                let mut inputs = self.inputs(app).into_iter().filter(|link| !closing.contains(link));
                !order.contains(&app) && inputs.all(|link| order.contains(&self.case.links[link].0))
            };
            order.push((0..self.case.apps.len()).find(ready).unwrap());
        }
        order
    }

    /// `output` is relative to the first output of the app.
    fn send(&mut self, app: usize, output: usize, number: u32) {
        match self.outputs(app).get(output) {
            None => self.result.unlinked[app] += 1,
            Some(&link) if self.queues[link].len() == CAPACITY => self.result.links[link].2 += 1,
            Some(&link) => {
                self.queues[link].push_back(number);
                self.result.links[link].0 += 1;
                self.result.links[link].1 += length(number) as u64;
            }
        }
    }

    fn room(&self, app: usize) -> Option<usize> {
        self.outputs(app).iter().map(|&link| CAPACITY - self.queues[link].len()).min()
    }

    fn pull(&mut self, app: usize) {
        let Behaviour::Generate { burst, count } = self.case.apps[app] else { return };
        let room = self.room(app).unwrap_or(0) as u32;
        for _ in 0..burst.min(count - self.made[app]).min(room) {
            for output in 0..self.outputs(app).len() {
                self.send(app, output, self.made[app]);
            }
            self.made[app] += 1;
        }
    }

    fn push(&mut self, app: usize) {
        let behaviour = self.case.apps[app];
        let max_fan_out = if behaviour == Behaviour::Twice { 2 } else { 1 };
        let mut budget = match self.case.lossless {
            true => self.room(app).map_or(usize::MAX, |room| room / max_fan_out),
            false => usize::MAX,
        };
        for link in self.inputs(app) {
            let most = match behaviour {
                Behaviour::AtMost(most) => most,
                _ => usize::MAX,
            };
            let count = self.queues[link].len().min(budget).min(most);
            budget -= if self.case.lossless { count } else { 0 };
            let taken: Vec<u32> = self.queues[link].drain(..count).collect();
            if behaviour == Behaviour::Copy {
                for output in 0..self.outputs(app).len() {
                    taken.iter().for_each(|&number| self.send(app, output, number));
                }
                continue;
            }
            for number in taken {
                match behaviour {
                    Behaviour::Generate { .. } | Behaviour::Copy => {}
                    Behaviour::Forward | Behaviour::Join | Behaviour::Loop | Behaviour::AtMost(_) => {
                        self.send(app, 0, number);
                    }
                    Behaviour::Spread => {
                        let outputs = self.outputs(app).len().max(1);
                        self.send(app, self.turn[app] % outputs, number);
                        self.turn[app] += 1;
                    }
                    Behaviour::Twice => {
                        self.send(app, 0, number);
                        self.send(app, 0, number);
                    }
                    Behaviour::Sieve(divisor) if number.is_multiple_of(divisor) => self.result.sieved[app] += 1,
                    Behaviour::Sieve(_) => self.send(app, 0, number),
                    Behaviour::Keep => self.result.kept[app].push(number),
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: soak::cases(1_000), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_schedule_does_what_the_model_does(case in case()) {
        let expected = Model::run(&case);
        for schedule in Schedule::ALL {
            prop_assert_eq!(&run(&case, schedule), &expected, "{}", schedule);
        }
        if case.lossless {
            let full: u64 = expected.links.iter().map(|link| link.2).sum();
            prop_assert_eq!(full, 0, "a lossless network dropped packets");
        }
    }
}

/// The networks above contain the cases that they are meant to test.
#[test]
fn the_random_networks_fill_links_loop_and_stall() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let mut seen = BTreeMap::<&str, usize>::new();
    for _ in 0..300 {
        let case = case().new_tree(&mut runner).unwrap().current();
        let result = Model::run(&case);
        let mut note = |what, is: bool| *seen.entry(what).or_default() += usize::from(is);
        note("full link", result.links.iter().any(|link| link.2 > 0));
        note("delivery", result.kept.iter().any(|kept| !kept.is_empty()));
        note("backlog", result.links.iter().any(|link| link.3 > 0));
        note("lossless backlog", case.lossless && result.links.iter().any(|link| link.3 > 512));
    }
    assert!(seen.values().all(|&count| count >= 5), "{seen:?}");
}
