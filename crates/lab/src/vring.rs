//! `bench vring`: what a ring of a virtio-net device costs a packet, for every combination of its options.
//!
//! One process is the driver and the device. The driver fills a ring in shared memory with a batch of packets, or of buffers for
//! them; then the device's one call for that batch is timed; then the driver takes back what was used. What the driver does is not
//! counted, nor is reading the clock.
//!
//! The call includes what the app `vhost-user` does with packets besides: taking their buffers from the pool, in the driver's direction
//! of transmit (`tx`), and freeing them in that of receive (`rx`). Packets that were transmitted are freed by whoever gets
//! them in the end; what that costs is the condition `free` of both.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use bellows_blit::How;
use bellows_packet::{Packet, Template, Vector, free_all, push_filled};
use bellows_sys::clock;
use bellows_virtio::driver::{Chains, Driver, DriverConfig, QueuePair};
use bellows_virtio::ring::{Position, ReceiveRing, Setup, TransmitRing};
use bellows_virtio::vhost::{Placed, QueueLayout};
use bellows_virtio::{Features, Memory, RegionSpec};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::processes::{fail, settle, take_turns};
use crate::report::{BenchError, Machine, Measurement, Report, chosen};
use crate::timing::{middle, undisturbed, yardstick};

/// The longest packet that goes into one buffer of the driver.
pub const LONGEST: usize = bellows_packet::ROOM;

/// Descriptors of each ring: what QEMU and DPDK have unless told otherwise.
const RING: u16 = 256;

/// The most packets in a batch: a chain of two descriptors for each must fit into the ring.
pub const MOST: usize = RING as usize / 2;

/// Bounds within which a ring's history counts as making no difference.
const BOUNDS: std::ops::RangeInclusive<f64> = 0.98..=1.02;

/// What is compared: the options that have machine code of their own, by their names in labels. The header has a row of its own.
const OPTIONS: [(&str, Features); 6] = [
    ("packed", Features::RING_PACKED),
    ("mergeable", Features::MRG_RXBUF),
    ("in-order", Features::IN_ORDER),
    ("event-idx", Features::EVENT_IDX),
    ("indirect", Features::INDIRECT_DESC),
    ("offloads", OFFLOADS),
];

/// Both sides leave checksums to each other. Without super-frames, for which a driver would lay out its buffers otherwise.
const OFFLOADS: Features = Features(Features::CSUM.0 | Features::GUEST_CSUM.0);

/// The names of the options, for a command line.
pub fn option_names() -> impl Iterator<Item = &'static str> {
    OPTIONS.iter().map(|(name, _)| *name)
}

/// What a benchmark run is asked to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Options {
    /// How packets lie in descriptors.
    pub chains: Vec<Chain>,
    /// Lengths of packets in bytes, from 1 to [`LONGEST`].
    pub sizes: Vec<usize>,
    /// Options that must be on, by their names.
    pub with: Vec<String>,
    /// Options that must be off.
    pub without: Vec<String>,
    /// Packets in a batch, from 1 to [`MOST`].
    pub batch: usize,
    /// Fresh processes for each ring.
    pub processes: usize,
    /// Batches that are timed, of which the lower quartile counts.
    pub rounds: usize,
    /// The processor to measure on; the last that the process may use if none is given.
    pub cpu: Option<usize>,
    /// How the rings do their copies.
    pub copies: Vec<Copies>,
    /// Only cases whose name contains this.
    pub filter: String,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            chains: Chain::ALL.to_vec(),
            sizes: vec![60, 256, 1_500],
            with: Vec::new(),
            without: Vec::new(),
            batch: MOST,
            processes: 9,
            rounds: 1_000,
            cpu: None,
            copies: vec![Copies::Blitter],
            filter: String::new(),
        }
    }
}

/// How a ring does its copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Copies {
    /// As rings do.
    Blitter,
    /// Each by a call of the C library's `memcpy`.
    Memcpy,
    /// Not at all.
    None,
}

impl Copies {
    const ALL: [Copies; 3] = [Copies::Blitter, Copies::Memcpy, Copies::None];

    /// The name on command lines and in labels.
    pub fn name(self) -> &'static str {
        match self {
            Copies::Blitter => "blitter",
            Copies::Memcpy => "memcpy",
            Copies::None => "none",
        }
    }

    fn how(self) -> How {
        match self {
            Copies::Blitter => How::Blitter,
            Copies::Memcpy => How::Memcpy,
            Copies::None => How::Nothing,
        }
    }
}

impl std::str::FromStr for Copies {
    type Err = String;

    fn from_str(text: &str) -> Result<Copies, String> {
        let found = Copies::ALL.into_iter().find(|copies| copies.name() == text);
        found.ok_or_else(|| format!("copies are not done by `{text}`; there are blitter, memcpy and none"))
    }
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Case {
    Rx,
    Tx,
    OtherSizes,
    OtherChains,
}

impl Case {
    const ALL: [Case; 4] = [Case::Rx, Case::Tx, Case::OtherSizes, Case::OtherChains];

    fn name(self) -> &'static str {
        match self {
            Case::Rx => "rx",
            Case::Tx => "tx",
            Case::OtherSizes => "other-sizes",
            Case::OtherChains => "other-chains",
        }
    }
}

/// How a packet lies in descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Chain {
    /// In one.
    Single,
    /// The header in one, the data in another.
    Chained,
    /// As chained, in a table to which one descriptor leads.
    Indirect,
}

impl Chain {
    /// All.
    pub const ALL: [Chain; 3] = [Chain::Single, Chain::Chained, Chain::Indirect];

    /// The name on command lines and in labels.
    pub fn name(self) -> &'static str {
        match self {
            Chain::Single => "single",
            Chain::Chained => "chained",
            Chain::Indirect => "indirect",
        }
    }

    fn layout(self) -> Chains {
        match self {
            Chain::Single => Chains::Single,
            Chain::Chained => Chains::Chained,
            Chain::Indirect => Chains::Indirect,
        }
    }
}

impl std::str::FromStr for Chain {
    type Err = String;

    fn from_str(text: &str) -> Result<Chain, String> {
        let found = Chain::ALL.into_iter().find(|chain| chain.name() == text);
        found.ok_or_else(|| format!("there is no chain `{text}`; there are single, chained and indirect"))
    }
}

/// A ring: its direction, what was negotiated, and how packets lie in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Ring {
    receive: bool,
    features: u64,
    chain: Chain,
    copies: Copies,
}

impl Ring {
    fn features(self) -> Features {
        Features(self.features)
    }

    fn header(self) -> u32 {
        if self.features().has_any(Features::VERSION_1 | Features::MRG_RXBUF) { 12 } else { 10 }
    }

    fn direction(self) -> &'static str {
        if self.receive { "rx" } else { "tx" }
    }

    fn labels(self, options: &Options) -> Vec<(&'static str, Value)> {
        let mut labels: Vec<(&'static str, Value)> =
            OPTIONS.iter().map(|(name, feature)| (*name, self.features().has(*feature).into())).collect();
        labels.extend([("header", self.header().into()), ("chain", self.chain.name().into())]);
        labels.extend([("copies", self.copies.name().into()), ("batch", options.batch.into())]);
        labels
    }
}

/// Every ring that has machine code of its own in a direction, with every way in which packets can lie in it.
fn rings(options: &Options, receive: bool) -> Vec<Ring> {
    let mut rings = Vec::new();
    for bits in 0..1_u32 << OPTIONS.len() {
        let chosen = OPTIONS.iter().enumerate().filter(|(number, _)| bits & (1 << number) != 0);
        let set = chosen.fold(Features::NONE, |set, (_, (_, feature))| set | *feature);
        if !receive && set.has(Features::MRG_RXBUF) {
            // It makes no difference to what is transmitted.
            continue;
        }
        let named = |names: &[String]| -> Vec<bool> {
            let find = |name: &String| OPTIONS.iter().find(|(known, _)| known == name);
            names.iter().filter_map(find).map(|(_, feature)| set.has(*feature)).collect()
        };
        if named(&options.with).contains(&false) || named(&options.without).contains(&true) {
            continue;
        }
        let legacy = set | Features::ANY_LAYOUT;
        let short = legacy.check().is_ok() && !set.has(Features::MRG_RXBUF);
        for features in [Some(set | Features::VERSION_1), short.then_some(legacy)].into_iter().flatten() {
            let possible = |chain: &Chain| *chain != Chain::Indirect || features.has(Features::INDIRECT_DESC);
            for &chain in options.chains.iter().filter(|chain| possible(chain)) {
                let of = |&copies: &Copies| Ring { receive, features: features.0, chain, copies };
                rings.extend(options.copies.iter().map(of));
            }
        }
    }
    rings
}

/// One ring for one process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Task {
    ring: Ring,
    costs: bool,
    history: bool,
    options: Options,
}

/// What one process measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Answer {
    /// For each size.
    costs: Vec<Cost>,
    /// The cost after other traffic over that before: after other sizes, after other chains.
    history: Vec<f64>,
    machine: Machine,
}

/// What a packet costs.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Cost {
    /// The device's call.
    call: f64,
    /// Freeing the packets afterwards.
    free: f64,
    /// The sum, or the call alone, in steps of the [`yardstick`].
    steps: f64,
}

/// Runs the benchmark. `arguments` make this program call [`measure`] in a fresh process; `progress` is told how many
/// of how many processes are done.
///
/// # Errors
/// See [`BenchError`].
pub fn run(options: &Options, arguments: &[&str], progress: impl FnMut(usize, usize)) -> Result<Report, BenchError> {
    let cases = chosen(Case::ALL, Case::name, &options.filter)?;
    let history = cases.contains(&Case::OtherSizes) || cases.contains(&Case::OtherChains);
    let mut tasks = Vec::new();
    for receive in [true, false] {
        let costs = cases.contains(if receive { &Case::Rx } else { &Case::Tx });
        if costs || history {
            let task = |ring| Task { ring, costs, history, options: options.clone() };
            tasks.extend(rings(options, receive).into_iter().map(task));
        }
    }
    if tasks.is_empty() {
        return Err(BenchError::NoRing);
    }
    let answers: Vec<Vec<Answer>> = take_turns(arguments, &tasks, options.processes, progress)?;
    let machine = answers.iter().flatten().next().map_or_else(Machine::here, |answer| answer.machine.clone());
    let mut results = Vec::new();
    for (task, answers) in tasks.iter().zip(&answers).filter(|(task, _)| task.costs) {
        let sizes = options.sizes.iter().enumerate();
        results.extend(sizes.filter_map(|(number, &size)| cost(task, answers, number, size)));
    }
    for (number, case) in [Case::OtherSizes, Case::OtherChains].into_iter().enumerate() {
        if cases.contains(&case) {
            results
                .extend(tasks.iter().zip(&answers).filter_map(|(task, answers)| changed(case, task, answers, number)));
        }
    }
    let mut report = Report::new("vring", machine, options.processes, results);
    let notes = spreads(&report.results).into_iter().chain(recovered(&report.results));
    report.notes = notes.chain(verdict(&report.results)).collect();
    Ok(report)
}

fn cost(task: &Task, answers: &[Answer], number: usize, size: usize) -> Option<Measurement> {
    let costs: Vec<Cost> = answers.iter().filter_map(|answer| answer.costs.get(number).copied()).collect();
    let whole = |cost: &Cost| cost.call + if task.ring.receive { cost.free } else { 0.0 };
    let values: Vec<f64> = costs.iter().map(whole).collect();
    let free = middle(&costs.iter().map(|cost| cost.free).collect::<Vec<f64>>());
    let mut labels = task.ring.labels(&task.options);
    labels.extend([("size", size.into()), ("free", json!((free * 10.0).round() / 10.0))]);
    Measurement::of(task.ring.direction(), "clocks/packet", &values, labels)
}

fn changed(case: Case, task: &Task, answers: &[Answer], number: usize) -> Option<Measurement> {
    let ratios: Vec<f64> = answers.iter().filter_map(|answer| answer.history.get(number).copied()).collect();
    let mut labels = task.ring.labels(&task.options);
    labels.extend([("direction", task.ring.direction().into()), ("size", HISTORY_SIZE.into())]);
    Measurement::of(case.name(), "ratio", &ratios, labels)
}

/// For each direction, size and kind of chain, which have one, two and three descriptors: the worst combination over the best.
fn spreads(results: &[Measurement]) -> Vec<String> {
    let mut groups: BTreeMap<(String, String, u64), Vec<f64>> = BTreeMap::new();
    let by_blitter = |result: &&Measurement| result.labels.get("copies").is_some_and(|copies| copies == "blitter");
    for result in results.iter().filter(|result| result.unit == "clocks/packet").filter(by_blitter) {
        let size = result.labels.get("size").and_then(Value::as_u64).unwrap_or_default();
        let chain = result.labels.get("chain").map_or(String::new(), written);
        groups.entry((result.case.clone(), chain, size)).or_default().push(result.median);
    }
    let line = |((case, chain, size), medians): (&(String, String, u64), &Vec<f64>)| {
        let least = medians.iter().copied().fold(f64::INFINITY, f64::min);
        let most = medians.iter().copied().fold(0.0, f64::max);
        let count = medians.len();
        let ratio = most / least;
        format!(
            "{case}, {chain}, {size} bytes: {least:.1} to {most:.1}; the worst of {count} is {ratio:.2} times the best"
        )
    };
    groups.iter().map(line).collect()
}

/// How much of what copies cost beyond none at all the blitter gains over `memcpy`: in packets of both directions a second, as
/// a share of what there is to be gained.
fn recovered(results: &[Measurement]) -> Vec<String> {
    let mut groups: BTreeMap<(u64, String), BTreeMap<(String, String), f64>> = BTreeMap::new();
    for result in results.iter().filter(|result| result.unit == "clocks/packet") {
        let label = |name: &str| result.labels.get(name).map_or(String::new(), written);
        let size = result.labels.get("size").and_then(Value::as_u64).unwrap_or_default();
        let ring: Vec<String> = option_names().chain(["header", "chain"]).map(label).collect();
        groups.entry((size, ring.join(" "))).or_default().insert((label("copies"), result.case.clone()), result.median);
    }
    let mut shares: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    for ((size, _), costs) in &groups {
        // In and out again.
        let both = |how: &str| {
            let of = |case: &str| costs.get(&(how.to_owned(), case.to_owned()));
            Some(1.0 / (of("rx")? + of("tx")?))
        };
        if let (Some(none), Some(memcpy), Some(blitter)) = (both("none"), both("memcpy"), both("blitter")) {
            shares.entry(*size).or_default().push(100.0 * (blitter - memcpy) / (none - memcpy));
        }
    }
    let line = |(size, shares): (&u64, &Vec<f64>)| {
        let rings = shares.len();
        format!(
            "{size} bytes, in and out: of what skipping copies would give over memcpy, in packets a second, the blitter gives {:.0} percent (median of {rings} rings)",
            middle(shares)
        )
    };
    shares.iter().map(line).collect()
}

/// What the ratios say.
fn verdict(results: &[Measurement]) -> Option<String> {
    let ratios: Vec<&Measurement> = results.iter().filter(|result| result.unit == "ratio").collect();
    if ratios.is_empty() {
        return None;
    }
    let outside = ratios.iter().filter(|result| !BOUNDS.contains(&result.median)).count();
    let least = ratios.iter().map(|result| result.median).fold(f64::INFINITY, f64::min);
    let most = ratios.iter().map(|result| result.median).fold(0.0, f64::max);
    Some(format!(
        "after other traffic over before: from {least:.3} to {most:.3}; {outside} of {} medians lie outside {}–{}",
        ratios.len(),
        BOUNDS.start(),
        BOUNDS.end()
    ))
}

/// The report for people: options as rows, sizes as columns.
pub fn text(report: &Report) -> String {
    let mut text = report.heading();
    for (case, title) in [
        ("rx", "rx: to the driver, with freeing the packets; clocks/packet"),
        ("tx", "tx: from the driver, with taking buffers from the pool; clocks/packet"),
    ] {
        table(&mut text, title, report.results.iter().filter(|result| result.case == case), "size");
    }
    for (case, title) in [
        ("other-sizes", "after packets of other sizes over before; ratio"),
        ("other-chains", "after packets in other chains over before; ratio"),
    ] {
        table(&mut text, title, report.results.iter().filter(|result| result.case == case), "direction");
    }
    text.push_str(&report.notes.join("\n"));
    text.push('\n');
    text
}

/// One table: a row for each ring and chain, a column for each value of a label.
fn table<'a>(text: &mut String, title: &str, results: impl Iterator<Item = &'a Measurement>, column: &str) {
    let mut columns: Vec<String> = Vec::new();
    let mut rows: Vec<(String, BTreeMap<String, String>)> = Vec::new();
    for result in results {
        let label = |name: &str| result.labels.get(name).map_or(String::new(), written);
        let value = label(column);
        if !columns.contains(&value) {
            columns.push(value.clone());
        }
        let on = option_names().filter(|name| result.labels.get(*name) == Some(&Value::Bool(true)));
        let on: String = on.map(|name| format!("{name} ")).collect();
        let copies = match label("copies").as_str() {
            "blitter" => String::new(),
            "none" => ", no copies".to_owned(),
            other => format!(", {other}"),
        };
        let name = format!("{on}header-{}, {}{copies}", label("header"), label("chain"));
        let decimals = if result.unit == "ratio" { 3 } else { 1 };
        let cell = format!("{:.decimals$}", result.median);
        match rows.iter_mut().find(|(known, _)| *known == name) {
            Some((_, cells)) => {
                cells.insert(value, cell);
            }
            None => rows.push((name, BTreeMap::from([(value, cell)]))),
        }
    }
    if rows.is_empty() {
        return;
    }
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
    let heads: String = columns.iter().map(|column| format!("{column:>8}")).collect();
    let _ = writeln!(text, "{title}\n{:width$}{heads}", "");
    for (name, cells) in rows {
        let cells: String =
            columns.iter().map(|column| format!("{:>8}", cells.get(column).map_or("–", String::as_str))).collect();
        let _ = writeln!(text, "{name:width$}{cells}");
    }
    text.push('\n');
}

fn written(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Does one task, in a process that has done nothing else.
pub fn measure(task: Task) -> Answer {
    let Task { ring, costs, history, options } = task;
    settle(options.cpu);
    let costs = if costs { measure_costs(ring, &options) } else { Vec::new() };
    let history = if history { measure_history(ring, &options) } else { Vec::new() };
    Answer { costs, history, machine: Machine::here() }
}

/// A new ring for each size.
fn measure_costs(ring: Ring, options: &Options) -> Vec<Cost> {
    let of = |&size: &usize| {
        let mut bench = Bench::new(ring, options.batch);
        bench.measure(size, options.rounds / 4);
        bench.measure(size, options.rounds)
    };
    options.sizes.iter().map(of).collect()
}

/// The packets of which a ring's history is looked at.
const HISTORY_SIZE: usize = 60;

/// One ring: what it costs after packets of other sizes to what it did before, and then the same for other chains.
fn measure_history(ring: Ring, options: &Options) -> Vec<f64> {
    let mut bench = Bench::new(ring, options.batch);
    bench.measure(HISTORY_SIZE, options.rounds / 4);
    let after = |bench: &mut Bench, others: &[(Chain, usize)]| {
        let before = bench.measure(HISTORY_SIZE, options.rounds).steps;
        for &(chain, size) in others {
            bench.set_chain(chain);
            bench.measure(size, options.rounds / 4);
        }
        bench.set_chain(ring.chain);
        bench.measure(HISTORY_SIZE, options.rounds / 4);
        bench.measure(HISTORY_SIZE, options.rounds).steps / before
    };
    let sizes = [1_500, 64, 590, 1_024].map(|size| (ring.chain, size));
    let chains = Chain::ALL.map(|chain| (chain, HISTORY_SIZE));
    vec![after(&mut bench, &sizes), after(&mut bench, &chains)]
}

/// A driver and a device at the two ends of a ring.
struct Bench {
    queues: QueuePair,
    transmit: TransmitRing,
    receive: ReceiveRing,
    receiving: bool,
    batch: usize,
    /// The vector in which packets travel.
    vector: Vector,
}

impl Bench {
    fn new(ring: Ring, batch: usize) -> Bench {
        let features = ring.features();
        let config = DriverConfig { features, pairs: 1, ring_size: RING, chains: ring.chain.layout() };
        let placed: Placed<Driver> = Driver::place(config).unwrap_or_else(|error| fail(&error));
        let Placed { mut driver, memory, queues } = placed;
        let specs = memory.into_iter().map(|shared| RegionSpec {
            guest: shared.address,
            length: shared.length,
            user: shared.address,
            offset: shared.offset,
            file: shared.file,
        });
        let memory = Arc::new(Memory::map(specs.collect()).unwrap_or_else(|error| fail(&error)));
        let mut setups = queues.into_iter().map(|QueueLayout { areas, size, call, kick }| Setup {
            memory: Arc::clone(&memory),
            features,
            size,
            areas,
            position: Position::start(features),
            call,
            kick,
        });
        let mut setup = || setups.next().unwrap_or_else(|| fail(&"a pair of queues"));
        let mut receive = ReceiveRing::new(setup()).unwrap_or_else(|error| fail(&error));
        let mut transmit = TransmitRing::new(setup()).unwrap_or_else(|error| fail(&error));
        receive.set_copies(ring.copies.how());
        transmit.set_copies(ring.copies.how());
        let queues = driver.pairs.pop().unwrap_or_else(|| fail(&"a pair of queues"));
        Bench { queues, transmit, receive, receiving: ring.receive, batch, vector: Vector::new() }
    }

    fn set_chain(&mut self, chain: Chain) {
        self.queues.transmit.set_chains(chain.layout());
        self.queues.receive.set_chains(chain.layout());
    }

    /// Times some batches of packets of one size.
    fn measure(&mut self, size: usize, rounds: usize) -> Cost {
        let template = Template::new(&vec![0x5a; size]).unwrap_or_else(|| fail(&"no template"));
        let (mut calls, mut frees, mut steps) = (Vec::new(), Vec::new(), Vec::new());
        let mut step = yardstick();
        for round in 0..rounds.max(1) {
            if round % 64 == 0 {
                step = yardstick();
            }
            let (call, free) = if self.receiving { self.rx(&template) } else { self.tx(&template) };
            calls.push(call);
            frees.push(free);
            steps.push((call + if self.receiving { free } else { 0.0 }) / step);
        }
        Cost { call: undisturbed(&calls), free: undisturbed(&frees), steps: undisturbed(&steps) }
    }

    /// A batch to the driver. Returns what the device's call took for a packet, and what freeing it took.
    fn rx(&mut self, template: &Template) -> (f64, f64) {
        let batch = self.batch;
        self.fill(template);
        let start = clock::ticks();
        let taken = self.receive.receive(self.vector.as_slice());
        let middle = clock::ticks();
        free_all(&mut self.vector);
        let end = clock::ticks();
        if taken.map(|taken| taken.count).ok() != Some(batch) {
            fail(&format!("the ring took {taken:?} in place of {batch} packets"));
        }
        let came = self.queues.receive.receive(&mut self.vector, batch);
        self.check(came.ok(), template);
        (self.a_packet(middle - start), self.a_packet(end - middle))
    }

    /// A batch from the driver.
    fn tx(&mut self, template: &Template) -> (f64, f64) {
        let batch = self.batch;
        self.fill(template);
        let sent = self.queues.transmit.transmit(self.vector.as_slice());
        if sent.map(|sent| sent.count).ok() != Some(batch) {
            fail(&format!("the driver sent {sent:?} in place of {batch} packets"));
        }
        free_all(&mut self.vector);
        let start = clock::ticks();
        let came = self.transmit.transmit(&mut self.vector, batch);
        let middle = clock::ticks();
        let bytes = self.vector.bytes();
        free_all(&mut self.vector);
        let end = clock::ticks();
        if came.ok() != Some(batch) || bytes != (batch * template.len()) as u64 {
            fail(&format!("the ring brought {came:?} in place of {batch} packets"));
        }
        (self.a_packet(middle - start), self.a_packet(end - middle))
    }

    fn fill(&mut self, template: &Template) {
        let filled = push_filled(&mut self.vector, self.batch, template);
        if filled != self.batch {
            fail(&"the pool has too few packets");
        }
    }

    /// What has come is what was sent.
    fn check(&mut self, came: Option<usize>, template: &Template) {
        let right = |packet: &Packet| packet.len() == template.len();
        if came != Some(self.batch) || !self.vector.as_slice().iter().all(right) {
            fail(&format!("the driver received {came:?} in place of {} packets", self.batch));
        }
        free_all(&mut self.vector);
    }

    /// Clocks of a batch, less those of reading the clock, for each of its packets.
    fn a_packet(&self, ticks: u64) -> f64 {
        ticks.saturating_sub(clock::cost()) as f64 / self.batch as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(options: &Options, receive: bool) -> usize {
        rings(options, receive).len()
    }

    #[test]
    fn every_ring_that_has_machine_code_of_its_own_is_measured() {
        let single = Options { chains: vec![Chain::Single], ..Options::default() };
        // Six options, and three of them with the short header.
        assert_eq!((count(&single, true), count(&single, false)), (64 + 8, 32 + 8));
        let all = Options::default();
        assert_eq!(count(&all, true), 2 * 72 + 36);
        for name in option_names() {
            let with = Options { with: vec![name.to_owned()], ..single.clone() };
            let without = Options { without: vec![name.to_owned()], ..single.clone() };
            assert_eq!(count(&with, true) + count(&without, true), 72, "{name}");
        }
        let labels = |ring: Ring| json!(ring.labels(&single)).to_string();
        let labels: std::collections::BTreeSet<String> = rings(&single, true).into_iter().map(labels).collect();
        assert_eq!(labels.len(), 72, "each has labels of its own");
        let three = Options { copies: Copies::ALL.to_vec(), ..single };
        assert_eq!(count(&three, true), 3 * 72);
    }

    #[test]
    fn a_ring_is_measured_in_both_directions_and_with_every_layout() {
        clock::calibrate();
        let options = Options { rounds: 8, batch: 32, with: vec!["indirect".to_owned()], ..Options::default() };
        for ring in rings(&options, true).into_iter().chain(rings(&options, false)) {
            let costs = measure_costs(ring, &options);
            assert!(costs.len() == 3 && costs.iter().all(|cost| cost.call > 0.0), "{ring:?}: {costs:?}");
        }
        let ratios = measure_history(rings(&options, false)[0], &options);
        assert!(ratios.len() == 2 && ratios.iter().all(|&ratio| ratio > 0.0), "{ratios:?}");
    }
}
