//! `bench neighbours`: the effect on an honest guest of another guest that attacks the engine.
//!
//! One engine with two `vhost-user` devices has a processor to itself. On another processor one thread drives both
//! devices, in turns of some microseconds: the first with an honest driver, the second for a while with another honest
//! driver, which sends full Ethernet frames, then with an [attack](bellows_adversary::ATTACKS) that is tried again and
//! again. Each attack gets a fresh engine, because a device defends itself with pauses between short connections, and
//! the pauses caused by one attack must not slow down the next. Without these pauses more attacks are tried in the same
//! time.
//!
//! ```text
//! honest.output → clock → copy → honest.input
//!                          copy ────────────────→ merge → other.input
//!                             other.output ─────→ merge
//! ```
//!
//! The app `clock` measures breaths, and writes into each packet of the honest guest the number of the breath in which
//! it passed. The guest knows in which breath it made the packet available, and its receive ring always has room for
//! what it sent: a packet that does not come back was lost to an attack. Breaths shorter than the time in which a word
//! gets from one processor to another are not numbered, because no packet waits for them.
//!
//! Only busy breaths are compared: those that took at least a quarter of the median clocks of a breath with packets of
//! the honest guest. The engine polls, and most of its breaths are shorter.
//!
//! Stolen time is excluded in slices of a tenth of a second. A slice is discarded if the host took the engine's
//! processor away (`steal` in `/proc/stat`), or if the system ran other threads there for more than a hundredth of the
//! time (`schedstat` of the engine's thread).

mod clock;
mod victim;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bellows_adversary::{ATTACKS, Assault};
use bellows_basic::{join, tee};
use bellows_engine::{Control, Engine, Network, Settings};
use bellows_interfaces::vhost_user::{self, VhostUser};
use bellows_stats::{ENOUGH, median};
use bellows_sys::cpu;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::bench::{Benchmark, Common, Finished, Lab, RefusedOptions, RunBenchmark, RunWorker, whole};
use crate::cases::{CaseRow, Cases, LabelKind, label};
use crate::networks::{Folder, configured, linked};
use crate::processes::{Answers, take_turns_with};
use crate::report::{BenchError, Measurement, Ratio, Report, chosen};
use crate::steal::stolen;
use crate::workers::{self, fail, settle};

use clock::{Breaths, Clock, ClockShared};
use victim::{BULK, GuestCounts, HonestGuest, MIXED};

/// Measure the effect on a guest of another guest that attacks the engine
///
/// An engine with two virtio-net devices has a processor to itself. On another processor one thread drives both devices
/// in turns: the first with an honest driver, the second with another honest driver for a while, then with an attack. A
/// device pauses between short connections, as it does in production; without the pauses, attacks are tried more often.
/// Each case is an attack; its figure is the 99.9th percentile of a breath's clocks, beside the same with the honest
/// second driver. The honest driver must lose no packet, its packets must wait at most two breaths, and a breath must
/// not cost more than 1.5 times the clocks; otherwise the report says what is broken, and the exit code is 1.
#[derive(Clone, Debug, PartialEq, clap::Args, Serialize, Deserialize)]
pub struct Arguments {
    #[command(flatten)]
    common: Common,
    /// Only attacks whose name contains this
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    case: String,
    /// Seconds per process, divided among the attacks
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0, value_parser = seconds)]
    seconds: f64,
    /// Fresh processes; at least 6 for a confidence interval
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = whole(1..=1000))]
    processes: usize,
    /// Accept the next connection at once, even after a short one
    #[arg(long)]
    without_pauses: bool,
    /// Folder with fuzzing corpora `vring` and `vhost_messages`, for more attacks
    #[arg(long, value_name = "FOLDER")]
    corpus: Option<PathBuf>,
}

/// Parses a number of seconds.
fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.1..=86_400.0).contains(&seconds) => Ok(seconds),
        _ => Err("not a number of seconds from 0.1 to 86400".to_owned()),
    }
}

/// The attacker at the second device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attacker {
    /// An index into [`ATTACKS`].
    Listed(usize),
    Messages,
    Rings,
}

impl Attacker {
    fn name(self) -> &'static str {
        match self {
            Attacker::Listed(index) => ATTACKS[index].name,
            Attacker::Messages => "corpus-messages",
            Attacker::Rings => "corpus-rings",
        }
    }

    fn what(self) -> &'static str {
        match self {
            Attacker::Listed(index) => ATTACKS[index].what,
            Attacker::Messages => "messages from a fuzzing corpus",
            Attacker::Rings => "rings from a fuzzing corpus",
        }
    }

    /// The chosen attackers.
    fn chosen(options: &Arguments) -> Result<Vec<Attacker>, BenchError> {
        let listed = (0..ATTACKS.len()).map(Attacker::Listed);
        let found = if options.corpus.is_some() { &[Attacker::Messages, Attacker::Rings][..] } else { &[] };
        chosen(listed.chain(found.iter().copied()), Attacker::name, &options.case)
    }
}

/// The attack whose cost the engine cannot bound, because page faults in guest memory are handled by the kernel.
const UNBOUNDED: &str = "holes";

/// The limits for an attack: the breaths that a packet waits, and the clocks of a breath relative to those without it.
const MAX_WAIT: u64 = 2;
const MAX_CLOCKS: f64 = 1.5;

/// One process of the benchmark.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct NeighboursTask {
    options: Arguments,
    /// The folder for sockets.
    folder: PathBuf,
    seed: u64,
}

/// The results of one process.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct NeighboursAnswer {
    attacks: Vec<AttackResult>,
}

/// The results for one attack.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct AttackResult {
    name: String,
    /// The number of slices, and of those left out because time was stolen.
    slices: u64,
    stolen: u64,
    /// The minimum clocks of a busy breath.
    busy: Option<u64>,
    /// Beside an honest guest, and beside the attack; `None` if time was stolen from every slice.
    honest: Option<BusyFigures>,
    attacked: Option<BusyFigures>,
    /// The packets of the watched guest over the whole time; the other guest was honest for half of it.
    counts: GuestCounts,
    connections: u64,
}

/// Figures of busy breaths.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct BusyFigures {
    breaths: u64,
    faults: u64,
    median: f64,
    p999: f64,
    longest: f64,
}

/// Runs the benchmark. Its workers call [`measure`].
fn run(options: &Arguments, lab: &mut Lab<'_>) -> Result<Finished, BenchError> {
    let attackers = Attacker::chosen(options)?;
    // Attacks would fill the log with warnings.
    let arguments = [&lab.worker(Arguments::NAME)[..], &["--log-level", "error"]].concat();
    // A worker that fails exits at once; its sockets are removed here.
    let folder = Folder::new("neighbours")?;
    let task = |_, round| NeighboursTask { options: options.clone(), folder: folder.0.clone(), seed: round as u64 };
    let Answers { answers, machine, interrupted }: Answers<NeighboursAnswer> =
        take_turns_with(&arguments, 1, options.processes, task, lab.observer)?;
    let answers: Vec<NeighboursAnswer> = answers.into_iter().flatten().collect();
    let mut results = Vec::new();
    let mut broken = Vec::new();
    for (index, attacker) in attackers.iter().enumerate() {
        let all: Vec<&AttackResult> = answers.iter().filter_map(|answer| answer.attacks.get(index)).collect();
        let (measurement, faults) = evaluate(*attacker, &all);
        results.push(measurement);
        broken.extend(faults);
    }
    let mut report = Report::new(Arguments::NAME, machine, answers.len(), results);
    report.interrupted = interrupted;
    report.notes = notes(&answers, !options.without_pauses);
    report.failed = !broken.is_empty();
    report.notes.extend(broken);
    Ok(Finished::new(report, text))
}

/// The row of an attack, and the violations that it has shown.
fn evaluate(attacker: Attacker, all: &[&AttackResult]) -> (Measurement, Vec<String>) {
    let name = attacker.name();
    let counts = all.iter().fold(GuestCounts::default(), |sum, attacked| sum.plus(&attacked.counts));
    let both: Vec<(BusyFigures, BusyFigures)> =
        all.iter().filter_map(|attacked| Some((attacked.honest?, attacked.attacked?))).collect();
    let mut faults = Vec::new();
    if counts.lost > 0 || counts.altered > 0 {
        let GuestCounts { sent, lost, altered, .. } = counts;
        faults.push(format!(
            "BROKEN {name}: of {sent} packets of the honest guest, {lost} were lost and {altered} were altered"
        ));
    }
    if counts.longest_wait > MAX_WAIT && name != UNBOUNDED {
        faults.push(format!("BROKEN {name}: a packet waited {} breaths", counts.longest_wait));
    }
    let of = |figure: fn(&BusyFigures) -> f64| both.iter().map(|(_, attacked)| figure(attacked)).collect::<Vec<f64>>();
    // If time was stolen from every slice, the clocks are unknown, but the guest's packet counts are valid.
    let middle = median(&of(|figures| figures.p999));
    let ratios: Vec<f64> = both.iter().map(|(honest, attacked)| attacked.p999 / honest.p999).collect();
    let ratio = median(&ratios).map(|ratio| Ratio { median: ratio.value, low: ratio.low, high: ratio.high });
    if let Some(ratio) = ratio
        && ratio.low > MAX_CLOCKS
        && both.len() >= ENOUGH
        && name != UNBOUNDED
    {
        faults.push(format!("BROKEN {name}: a breath costs {} times as much as without", ratio.written()));
    }
    let reference = median(&both.iter().map(|(honest, _)| honest.p999).collect::<Vec<f64>>());
    let labels: BTreeMap<String, Value> = [
        ("what", json!(attacker.what())),
        ("packets", json!(counts.sent)),
        ("lost", json!(counts.lost)),
        ("longest_wait", json!(counts.longest_wait)),
        ("connections", json!(all.iter().map(|attacked| attacked.connections).sum::<u64>())),
        ("breaths", json!(both.iter().map(|(_, attacked)| attacked.breaths).sum::<u64>())),
        ("page_faults", json!(both.iter().map(|(_, attacked)| attacked.faults).sum::<u64>())),
        ("processes", json!(both.len())),
        ("median_clocks", json!(median(&of(|figures| figures.median)).map(|median| median.value))),
    ]
    .map(|(label, value)| (label.to_owned(), value))
    .into();
    let row = Measurement {
        case: name.to_owned(),
        unit: "clocks/breath".to_owned(),
        median: middle.map_or(f64::NAN, |middle| middle.value),
        low: middle.map_or(0.0, |middle| middle.low),
        high: middle.map_or(0.0, |middle| middle.high),
        undecided: middle.is_none(),
        reference: reference.map(|reference| reference.value),
        p99: None,
        maximum: of(|figures| figures.longest).into_iter().reduce(f64::max),
        of_reference: ratio,
        overhead: None,
        histogram: None,
        labels,
    };
    (row, faults)
}

/// The notes below the table.
fn notes(answers: &[NeighboursAnswer], pauses: bool) -> Vec<String> {
    let sum = |part: fn(&AttackResult) -> u64| answers.iter().flat_map(|answer| &answer.attacks).map(part).sum::<u64>();
    let (all, stolen) = (sum(|attacked| attacked.slices), sum(|attacked| attacked.stolen));
    let busy = answers.iter().flat_map(|answer| &answer.attacks).filter_map(|attacked| attacked.busy);
    let busy: Vec<f64> = busy.map(|busy| busy as f64).collect();
    let busy = median(&busy).map_or("that were busy".to_owned(), |busy| format!("of {:.0} clocks or more", busy.value));
    let connections = match pauses {
        true => "devices pause between short connections, from 20 ms up to 1 s",
        false => "devices accept the next connection at once, unlike in production, so that more attacks are tried",
    };
    vec![
        connections.to_owned(),
        format!(
            "p99.9: clocks per breath, of breaths {busy}; without: a second honest guest in place of the attack; \
             waits: maximum number of breaths from making a packet available to its passing"
        ),
        format!(
            "{stolen} of {all} slices of {} ms left out: the host or other threads used the engine's processor",
            SLICE.as_millis()
        ),
        format!("`{UNBOUNDED}` has no limits: the engine cannot bound the cost of page faults in guest memory"),
    ]
}

/// The text report.
fn text(report: &Report) -> String {
    let row = |[attack, ratio, clocks, reference, wait, lost, packets, what]: [&str; 8]| {
        format!("{attack:22}  {ratio:>21}  {clocks:>9}  {reference:>9}  {wait:>5}  {lost:>5}  {packets:>11}  {what}\n")
    };
    let mut text = report.heading();
    text += &row(["attack", "times the clocks", "p99.9", "without", "waits", "lost", "of packets", "what is done"]);
    for result in &report.results {
        let label = |name: &str| result.labels.get(name).map_or("–".to_owned(), Value::to_string);
        let ratio = result.of_reference.as_ref().map_or("–".to_owned(), Ratio::written);
        let written = |clocks: Option<f64>| clocks.map_or("–".to_owned(), |clocks| format!("{clocks:.0}"));
        let clocks = written(Some(result.median).filter(|_| !result.undecided));
        let reference = written(result.reference);
        text += &row([
            &result.case,
            &ratio,
            &clocks,
            &reference,
            &label("longest_wait"),
            &label("lost"),
            &label("packets"),
            result.labels.get("what").and_then(Value::as_str).unwrap_or_default(),
        ]);
    }
    text + &format!("\n{}", report.sentences())
}

/// The length of a slice.
const SLICE: Duration = Duration::from_millis(100);

/// How long the guests may take to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);

/// Does one task, in a fresh process.
fn measure(task: NeighboursTask) -> NeighboursAnswer {
    let NeighboursTask { options, folder, seed } = task;
    let attackers = Attacker::chosen(&options).unwrap_or_else(|error| fail(&error));
    let corpora = ["vhost_messages", "vring"].map(|name| corpus(options.corpus.as_deref(), name));
    let all = cpu::allowed();
    let engines = options.common.processor();
    let Some(others) = all.iter().copied().find(|&cpu| cpu != engines) else {
        fail(&format!("the guests need a second processor: only processor {engines}, the engine's, may be used"))
    };
    // The devices' threads inherit this processor.
    settle(Some(others));
    let slices = options.seconds / SLICE.as_secs_f64() / (2.0 * attackers.len() as f64);
    let slices = slices.round().max(1.0) as u32;
    let process = std::process::id();
    let sockets = ["honest", "other"].map(|name| folder.join(format!("{name}-{process}")));
    let attack = |&attacker: &Attacker| {
        let shared = Arc::new(ClockShared::default());
        let network = network(&sockets, !options.without_pauses, Clock::new(Arc::clone(&shared)));
        let settings = Settings { busywait: true, sampling: false, ..Settings::default() };
        let engine = Engine::new(network, settings, None).unwrap_or_else(|error| fail(&error));
        let control = engine.control();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut engine = engine;
                if let Err(error) = cpu::pin_to(engines) {
                    fail(&format!("processor {engines}: {error}"));
                }
                let end = engine.run();
                engine.finish(end);
            });
            let _stop = StopOnDrop(control);
            let devices = Devices { sockets: &sockets, shared: &shared, engines, corpora: &corpora };
            devices.attack(attacker, slices, seed)
        })
    };
    NeighboursAnswer { attacks: attackers.iter().map(attack).collect() }
}

/// Stops an engine on drop, also after a panic.
struct StopOnDrop(Control);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// The inputs in a fuzzing corpus, sorted by file name.
fn corpus(folder: Option<&Path>, name: &str) -> Vec<Vec<u8>> {
    let Some(folder) = folder.map(|folder| folder.join(name)) else { return Vec::new() };
    let read = || {
        let mut files: Vec<PathBuf> =
            std::fs::read_dir(&folder)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?;
        files.sort();
        files.iter().map(std::fs::read).collect::<std::io::Result<Vec<Vec<u8>>>>()
    };
    match read() {
        Ok(inputs) if !inputs.is_empty() => inputs,
        Ok(_) => fail(&format!("{} is empty; `cargo xtask fuzz {name}` fills it", folder.display())),
        Err(error) => fail(&format!("{}: {error}; `cargo xtask fuzz {name}` makes it", folder.display())),
    }
}

fn network(sockets: &[PathBuf; 2], pauses: bool, clock: Clock) -> Network {
    let [honest, other] = sockets.each_ref().map(|socket| {
        let config = serde_json::from_value::<vhost_user::Config>(json!({ "socket": socket }));
        let device = configured::<VhostUser>(config.unwrap_or_else(|error| fail(&error)));
        if pauses { device } else { device.without_pauses() }
    });
    let network = Network::new()
        .app("clock", clock)
        .app("honest", honest)
        .app("copy", tee::Tee)
        .app("merge", configured::<join::Join>(join::Config {}))
        .app("other", other);
    let links = [
        "honest.output -> clock.input",
        "clock.output -> copy.input",
        "copy.one -> honest.input",
        "copy.other -> merge.copies",
        "other.output -> merge.own",
        "merge.output -> other.input",
    ];
    linked(network, links)
}

/// The two devices.
struct Devices<'a> {
    sockets: &'a [PathBuf; 2],
    shared: &'a ClockShared,
    engines: usize,
    /// Fuzzing corpora: messages, rings.
    corpora: &'a [Vec<Vec<u8>>; 2],
}

impl Devices<'_> {
    /// Connects another honest driver to the second device for `slices` slices, then an attacker.
    fn attack(&self, attacker: Attacker, slices: u32, seed: u64) -> AttackResult {
        let mut honest = HonestGuest::connect(&self.sockets[0], MIXED);
        let mut other = HonestGuest::connect(&self.sockets[1], BULK);
        self.wait(|| honest.is_served() && other.is_served(), || {});
        // Skip packets that queued up before the port was served.
        let end = Instant::now() + SLICE / 10;
        let mut both = || {
            honest.turn(self.shared);
            other.turn(self.shared);
        };
        self.wait(|| Instant::now() > end, &mut both);
        let (before, stolen_before) = self.slices(slices, both);
        drop(other);
        let mut assault = match attacker {
            Attacker::Listed(index) => Assault::new(&self.sockets[1], &ATTACKS[index], seed),
            Attacker::Messages => Assault::of_messages(&self.sockets[1], &self.corpora[0], self.part(0, seed)),
            Attacker::Rings => Assault::of_rings(&self.sockets[1], &self.corpora[1], self.part(1, seed)),
        };
        let (during, stolen_during) = self.slices(slices, || {
            honest.turn(self.shared);
            assault.turn();
        });
        honest.settle();
        let busy = before.loaded().map(|clocks| clocks / 4);
        AttackResult {
            name: attacker.name().to_owned(),
            slices: 2 * u64::from(slices),
            stolen: stolen_before + stolen_during,
            busy,
            honest: busy.and_then(|busy| BusyFigures::of(&before, busy)),
            attacked: busy.and_then(|busy| BusyFigures::of(&during, busy)),
            counts: honest.take_counts(),
            connections: assault.connections,
        }
    }

    /// Calls `turn` again and again for `slices` slices. Returns the breaths of the slices without stolen time, and the
    /// number of the other slices.
    fn slices(&self, slices: u32, mut turn: impl FnMut()) -> (Breaths, u64) {
        let (mut breaths, mut stolen_slices) = (Breaths::default(), 0);
        for _ in 0..slices {
            let before = (stolen(self.engines), self.shared.waited());
            let new = self.record(SLICE, &mut turn);
            let waited = Duration::from_nanos(self.shared.waited().saturating_sub(before.1));
            if stolen(self.engines) == before.0 && waited <= SLICE / 100 {
                breaths.append(&new);
            } else {
                stolen_slices += 1;
            }
        }
        (breaths, stolen_slices)
    }

    /// Where a process starts in a corpus, so that processes try different parts.
    fn part(&self, corpus: usize, seed: u64) -> u64 {
        seed * (self.corpora[corpus].len() as u64 / 16 + 1)
    }

    /// Calls `turn` again and again for one slice, and returns the breaths meanwhile.
    fn record(&self, slice: Duration, mut turn: impl FnMut()) -> Breaths {
        self.shared.record(|| {
            let end = Instant::now() + slice;
            while Instant::now() < end {
                turn();
            }
        })
    }

    /// Waits until `so` returns true.
    fn wait(&self, mut so: impl FnMut() -> bool, mut meanwhile: impl FnMut()) {
        let end = Instant::now() + CONNECT_TIMEOUT;
        while !so() {
            meanwhile();
            if Instant::now() > end {
                fail(&"the engine did not serve an honest guest within 20 s");
            }
        }
    }
}

impl BusyFigures {
    fn of(breaths: &Breaths, busy: u64) -> Option<BusyFigures> {
        let quantile = |part| breaths.quantile(part, busy).map(|clocks| clocks as f64);
        let (median, p999, longest) = (quantile(0.5)?, quantile(0.999)?, quantile(1.0)?);
        Some(BusyFigures { breaths: breaths.count(busy), faults: breaths.faults, median, p999, longest })
    }
}

/// What its figures are.
const CASES: Cases = Cases {
    text: &[],
    every: &[
        "what",
        "page_faults",
        "median_clocks",
        "breaths",
        "processes",
        "connections",
        "packets",
        "lost",
        "longest_wait",
    ],
    rows: &[CaseRow::each(
        "the name of an attack",
        "clocks/breath",
        "p99.9 of a breath during the attack; `reference` is the same with an honest guest in place of the attacker",
    )],
    labels: &[
        label("what", LabelKind::Text, "a description of the attack"),
        label("page_faults", LabelKind::Integer, "page faults of the engine's thread"),
        label("median_clocks", LabelKind::Decimal, "the median of a breath; null if it is unknown").or_null(),
        label("breaths", LabelKind::Integer, "breaths during the attack"),
        label("processes", LabelKind::Integer, "processes in which breaths with the attack and without were measured"),
        label("connections", LabelKind::Integer, "connections of the attacker"),
        label("packets", LabelKind::Integer, "packets that the honest guest sent"),
        label("lost", LabelKind::Integer, "how many of these were lost"),
        label("longest_wait", LabelKind::Integer, "the breaths that one of these waited at most"),
    ],
};

impl Benchmark for Arguments {
    const NAME: &'static str = "neighbours";
    const CASES: Cases = CASES;
    const QUICK: &'static str = "--processes 1 --seconds 0.2 --case false-claims";
    const REFUSED: &'static [RefusedOptions] = &[
        (&["--case", "nonsense"], "no case has `nonsense` in its name; there are empty-tables"),
        (&["--seconds", "0"], "not a number of seconds from 0.1 to 86400"),
        (
            &["--log-level", "error", "--processes", "1", "--corpus", "nowhere"],
            "nowhere/vhost_messages: No such file or directory",
        ),
    ];
    const WORK: RunWorker = |_| workers::answer(measure);
    const RUN: RunBenchmark<Self> = run;

    fn common(&self) -> Common {
        self.common.clone()
    }
}
