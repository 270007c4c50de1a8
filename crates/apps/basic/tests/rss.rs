//! `rss` keeps the order of each flow while its table changes: outputs take different times, and reloads and rebalancing
//! move flows between them.

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;

use bellows_basic::delay::{self, Delay};
use bellows_basic::register;
use bellows_basic::rss::{self, Hash, Rss};
use bellows_config::{Configure, Context, Duration, Overrides, Registry, load_str};
use bellows_engine::{App, AppSpec, Control, End, Engine, Io, Network, Outcome, Port, Ports, Settings};
use bellows_packet::Packet;
use bellows_testkit::wait::Deadline;
use bellows_wire::{MacAddr, UdpFrame};
use fastrand::Rng;
use proptest::prelude::*;

const FLOWS: u16 = 200;

/// The flow of a packet and its number in the flow.
type Numbered = (u16, u32);

/// Sends packets of random flows, each with its number.
struct Numbers {
    random: Rng,
    /// The number of the next packet of each flow.
    next: Vec<u32>,
    burst: usize,
    left: usize,
    /// The flow of every second packet, if one is busy.
    busy: Option<u16>,
}

impl Numbers {
    fn new(seed: u64, burst: usize, breaths: usize) -> Numbers {
        Numbers { random: Rng::with_seed(seed), next: vec![0; FLOWS.into()], burst, left: burst * breaths, busy: None }
    }
}

fn frame(flow: u16, number: u32) -> Vec<u8> {
    let [src, dst] = [[192, 0, 2, 1], [198, 51, 100, flow as u8]].map(IpAddr::from);
    let (src_mac, dst_mac) = (MacAddr([2, 0, 0, 0, 0, 1]), MacAddr::BROADCAST);
    let headers = UdpFrame { src_mac, dst_mac, vlan: None, src, dst, src_port: flow, dst_port: 9, ttl: 64 };
    headers.build(60, |payload| payload[..4].copy_from_slice(&number.to_be_bytes())).unwrap()
}

impl App for Numbers {
    const OUTPUTS: Ports = Ports::Named(&[Port::required("output", "numbered packets")]);

    fn pull(&mut self, io: &Io<Self>) {
        let mut output = io.output(0);
        for _ in 0..self.burst.min(self.left).min(output.room()) {
            let any = self.random.u16(..FLOWS);
            let flow = self.busy.filter(|_| self.random.bool()).unwrap_or(any);
            let number = &mut self.next[usize::from(flow)];
            output.push(Packet::from_bytes(&frame(flow, *number)).unwrap());
            *number += 1;
            self.left -= 1;
        }
    }

    fn is_finished(&self) -> bool {
        self.left == 0
    }
}

/// Notes what arrives.
struct Notes(Arc<Mutex<Vec<Numbered>>>);

impl App for Notes {
    const INPUTS: Ports = Ports::Any { at_least: 1, help: "packets" };

    fn push(&mut self, io: &Io<Self>) {
        let mut notes = self.0.lock().unwrap();
        for input in 0..io.inputs() {
            for packet in &mut io.input(input) {
                let bytes = packet.bytes();
                let number = u32::from_be_bytes(bytes[42..46].try_into().unwrap());
                notes.push((u16::from_be_bytes([bytes[34], bytes[35]]), number));
            }
        }
    }
}

/// The time that a packet takes behind each output, in units of a breath.
const TIMES: [u64; 4] = [0, 30, 10, 20];
const BREATH_NS: u64 = 100_000;

/// A network in which each of these outputs of `rss` has its own delay.
fn network(numbers: Option<Numbers>, config: &rss::Config, outputs: &[usize], notes: &Notes) -> Network {
    let mut network = Network::new();
    let add = |network: &mut Network, name: &str, app: AppSpec| {
        assert_eq!(name, app.name);
        network.apps.push(app);
    };
    let numbers = numbers.unwrap_or_else(|| Numbers::new(0, 0, 0));
    add(&mut network, "numbers", AppSpec::new("numbers", "numbers", "", numbers));
    let app = Rss::configure(config.clone(), &Context::default()).unwrap();
    add(&mut network, "rss", AppSpec::new("rss", "rss", &format!("{config:?}"), app));
    network = network.link("numbers.output -> rss.input").unwrap();
    for &output in outputs {
        let name = format!("delay-{output}");
        let config = delay::Config {
            time: Duration::from_nanos(TIMES[output] * BREATH_NS),
            jitter: Duration::default(),
            reorder: false,
            limit: 100_000,
            seed: 0,
        };
        let app = Delay::configure(config, &Context::default()).unwrap();
        add(&mut network, &name, AppSpec::new(&name, "delay", "", app));
        network = network.link(&format!("rss.o{output} -> {name}.input")).unwrap();
        network = network.link(&format!("{name}.output -> notes.i{output}")).unwrap();
    }
    add(&mut network, "notes", AppSpec::new("notes", "notes", "", Notes(Arc::clone(&notes.0))));
    network
}

fn reload(engine: &mut Engine, network: Network) {
    let control: Control = engine.control();
    let reloading = thread::spawn(move || control.reload(network).unwrap());
    let deadline = Deadline::new("a reload");
    while !reloading.is_finished() {
        deadline.check();
        engine.handle_requests();
    }
    reloading.join().unwrap();
}

/// A change of the configuration after some breaths.
#[derive(Clone, Debug)]
struct Step {
    breaths: usize,
    config: rss::Config,
    outputs: Vec<usize>,
}

struct Run {
    outcome: Outcome,
    notes: Vec<Numbered>,
}

impl Run {
    /// The number of packets that arrived behind a later one of their flow.
    fn reordered(&self) -> usize {
        let mut last = HashMap::new();
        let is_late = |&&(flow, number): &&Numbered| last.insert(flow, number).is_some_and(|last| last > number);
        self.notes.iter().filter(is_late).count()
    }

    fn drops(&self, name: &str) -> u64 {
        self.outcome.snapshot.apps.iter().filter_map(|app| app.drops.get(name)).sum()
    }

    fn count(&self, name: &str) -> u64 {
        self.outcome.snapshot.apps.iter().find(|app| app.name == "rss").unwrap().counters[name]
    }
}

/// Runs the steps one after another, and then until all packets have arrived.
fn run(numbers: Numbers, steps: &[Step], lossless: bool) -> Run {
    let notes = Notes(Arc::default());
    let mut numbers = Some(numbers);
    let settings = Settings { lossless, ..Settings::default() };
    let mut engine: Option<Engine> = None;
    let mut time = 1_000_000_000;
    let mut breathe = |engine: &mut Engine| {
        time += BREATH_NS;
        engine.set_time(time);
        engine.breathe()
    };
    for step in steps {
        let next = network(numbers.take(), &step.config, &step.outputs, &notes);
        match &mut engine {
            Some(engine) => reload(engine, next),
            None => {
                let first = Engine::new(next, settings.clone(), None).unwrap();
                first.set_time(1_000_000_000);
                engine = Some(first);
            }
        }
        let engine = engine.as_mut().unwrap();
        for _ in 0..step.breaths {
            breathe(engine);
        }
    }
    let mut engine = engine.unwrap();
    let deadline = Deadline::new("all packets arrive");
    while !engine.is_done() {
        deadline.check();
        breathe(&mut engine);
    }
    let outcome = engine.finish(End::Done);
    assert_eq!(outcome.snapshot.imbalances(), []);
    let notes = std::mem::take(&mut *notes.0.lock().unwrap());
    Run { outcome, notes }
}

/// Packets take up to 3 ms behind an output; entries settle in a little more.
fn config() -> rss::Config {
    rss::Config { settle: Duration::from_micros(3_500), hold: 100_000, table_size: 64, ..rss::Config::default() }
}

fn weighted(weights: &[(usize, u32)], config: rss::Config) -> rss::Config {
    rss::Config { weights: weights.iter().map(|&(output, weight)| (format!("o{output}"), weight)).collect(), ..config }
}

fn steps(hashes: &'static [Hash]) -> impl Strategy<Value = Vec<Step>> {
    let outputs = prop::sample::subsequence(vec![0, 1, 2, 3], 1..=4).prop_shuffle();
    let weights = prop::collection::vec((0usize..4, 0u32..4), 0..3);
    let step =
        (1usize..60, outputs, weights, prop::sample::select(vec![64usize, 128, 512]), prop::sample::select(hashes));
    let step = step.prop_map(|(breaths, outputs, weights, table_size, hash)| {
        let weights: Vec<_> = weights.into_iter().filter(|(output, _)| outputs.contains(output)).collect();
        Step { breaths, config: weighted(&weights, rss::Config { table_size, hash, ..config() }), outputs }
    });
    prop::collection::vec(step, 2..6)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Whatever a reload changes, no packet overtakes another of its flow. Packets are lost behind removed outputs only.
    #[test]
    fn reloads_reorder_no_flow(steps in steps(&[Hash::Fast, Hash::Toeplitz]), seed: u64, lossless: bool) {
        let run = run(Numbers::new(seed, 10, 200), &steps, lossless);
        prop_assert_eq!(run.reordered(), 0);
        prop_assert_eq!(run.notes.len() as u64, 2_000 - run.outcome.snapshot.dropped());
    }
}

#[test]
fn outputs_in_another_order_reorder_no_flow() {
    let step = |outputs| Step { breaths: 1, config: config(), outputs };
    let run = run(Numbers::new(1, 10, 200), &[step(vec![0, 1, 2, 3]), step(vec![1, 0, 2, 3])], false);
    assert_eq!((run.reordered(), run.notes.len()), (0, 2_000));
}

/// All flows on the slowest output, then all on the fastest.
fn drained(config: &rss::Config) -> Vec<Step> {
    let step = |weights: &[(usize, u32)], breaths| Step {
        breaths,
        config: weighted(weights, config.clone()),
        outputs: vec![0, 1],
    };
    vec![step(&[(0, 0)], 50), step(&[(1, 0)], 200)]
}

#[test]
fn packets_are_held_while_flows_move() {
    let run = run(Numbers::new(1, 10, 200), &drained(&config()), false);
    assert_eq!((run.reordered(), run.notes.len()), (0, 2_000));
    assert_eq!(run.count("moved"), 64);
    // 35 breaths of 10 packets.
    assert!((340..=360).contains(&run.count("held")), "{}", run.count("held"));
}

#[test]
fn without_settling_flows_are_reordered() {
    let hasty = rss::Config { settle: Duration::default(), ..config() };
    assert!(run(Numbers::new(1, 10, 200), &drained(&hasty), false).reordered() > 0);
}

#[test]
fn a_short_hold_drops_or_leaves_packets() {
    let short = rss::Config { hold: 20, ..config() };
    let dropping = run(Numbers::new(1, 10, 200), &drained(&short), false);
    assert_eq!((dropping.reordered(), dropping.count("held")), (0, 20));
    assert_eq!(dropping.notes.len() as u64, 2_000 - dropping.drops("hold_full"));
    assert!(dropping.drops("hold_full") > 300);
    let lossless = run(Numbers::new(1, 10, 200), &drained(&short), true);
    assert_eq!((lossless.reordered(), lossless.notes.len(), lossless.count("held")), (0, 2_000, 20));
}

#[test]
fn rebalancing_moves_load_in_order() {
    let even = rss::Config { rebalance: Some(Duration::from_millis(5)), ..config() };
    let mut numbers = Numbers::new(3, 40, 2_000);
    numbers.busy = Some(7);
    let step = |config: &rss::Config| [Step { breaths: 0, config: config.clone(), outputs: vec![0, 1, 2] }];
    let balanced = run(numbers, &step(&even), false);
    assert_eq!((balanced.reordered(), balanced.notes.len()), (0, 80_000));
    assert!(balanced.count("moved") > 10, "{}", balanced.count("moved"));
    let sent = |run: &Run| {
        let links = run.outcome.snapshot.links.iter().filter(|link| link.from.starts_with("rss."));
        links.map(|link| link.packets).max().unwrap()
    };
    // Half of the packets are one flow, and cannot be divided.
    assert!(sent(&balanced) < 80_000 * 55 / 100, "{}", sent(&balanced));
    let mut numbers = Numbers::new(3, 40, 2_000);
    numbers.busy = Some(7);
    assert!(sent(&run(numbers, &step(&config()), false)) > 80_000 * 60 / 100);
}

#[test]
fn weights_of_unknown_outputs_are_errors() {
    let text = |weights: &str| {
        format!(
            "links = [\"in.output -> flows.input\", \"flows.a -> one\", \"flows.b -> two\"]\n\
             [apps]\nin = {{ app = \"source\" }}\nflows = {{ app = \"rss\", weights = {weights} }}\n\
             one = {{ app = \"sink\" }}\ntwo = {{ app = \"sink\" }}\n"
        )
    };
    let load =
        |weights| load_str(&text(weights), "test", Path::new("."), &register(Registry::new()), &Overrides::default());
    assert!(load("{ a = 3, b = 0 }").is_ok());
    let told = load("{ a = 3, c = 1 }").unwrap_err().render(false);
    assert!(told.contains("`weights` names an output `c` that is not linked"), "{told}");
    assert!(told.contains("the linked outputs are `a`, `b`"), "{told}");
    assert!(load("{ a = -1 }").is_err());
}
