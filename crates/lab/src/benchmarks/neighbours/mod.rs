//! `bench neighbours`: what an honest guest notices of one that attacks the engine.
//!
//! One engine with two `vhost-user` devices has a processor to itself. On another, one thread is the driver of the first
//! device, an honest one, and whoever is at the second, in turns of some microseconds: for a while another honest driver,
//! which sends full Ethernet frames, then somebody who tries an [attack](bellows_adversary::ATTACKS) again and again. Each
//! attack meets an engine of its own: the pauses that a device makes between short connections are its defence, and what
//! one attack has brought about is not to slow the next one down. Without these pauses more is tried in the same time.
//!
//! ```text
//! honest.output → clock → copy → honest.input
//!                          copy ────────────────→ merge → other.input
//!                             other.output ─────→ merge
//! ```
//!
//! The app `clock` measures breaths and writes into each packet of the honest guest the number of the breath in which it
//! passed. The guest knows in which breath it made the packet available, and its own ring always has room for what it sent:
//! what does not come back was lost to an attack. Breaths that are shorter than it takes a word to get from one processor to
//! another are not numbered: no packet waits for them.
//!
//! Breaths are compared that did something: those that took a quarter of the clocks, or more, that a breath takes in the
//! median in which packets of the honest guest pass. The engine polls, and most of its breaths are shorter.
//!
//! Stolen time is excluded slice by slice, each of a tenth of a second: what was measured while the host took the engine's
//! processor away (`steal` in `/proc/stat`), or the system ran other threads there for more than a hundredth of the time
//! (`schedstat` of the engine's thread), is thrown away.

mod clock;
mod honest;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bellows_adversary::{ATTACKS, Assault};
use bellows_apps::vhost_user::{self, VhostUser};
use bellows_apps::{join, tee};
use bellows_config::Registry;
use bellows_engine::{Control, Engine, Network, Settings};
use bellows_stats::{ENOUGH, median};
use bellows_sys::cpu;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::audience::Audience;
use crate::bench::{Benchmark, Common, Finished, Lab, Listed, whole};
use crate::networks::{configured, linked};
use crate::processes::{Answers, take_turns_with};
use crate::report::{BenchError, Measurement, Ratio, Report, chosen};
use crate::steal::stolen;
use crate::workers::{self, fail, settle};

use clock::{Breaths, Clock, Shared};
use honest::{BULK, Honest, MIXED, Tally};

/// Measure what a guest notices of another one that attacks the engine
///
/// An engine with two virtio-net devices has a processor to itself. On another, one thread is an honest driver at the first
/// device and whoever is at the second, in turns: another honest driver for a while, then somebody who tries an attack.
/// A device pauses between short connections, as it does in production; without the pauses, attacks are tried more often.
/// Each case is an attack, its figure the clocks of a breath that 99.9 of 100 breaths do not exceed, beside the same of the
/// honest second driver. The honest driver must lose no packet, its packets must wait two breaths at most, and a breath
/// must not cost more than 1.5 times the clocks; else the report says what is broken, and the exit code is 1.
#[derive(Clone, Debug, PartialEq, clap::Args, Serialize, Deserialize)]
pub struct Arguments {
    #[command(flatten)]
    common: Common,
    /// Only attacks whose name contains this
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    case: String,
    /// Seconds per process, shared out among the attacks
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0, value_parser = seconds)]
    seconds: f64,
    /// Fresh processes; at least 6 for a confidence interval
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = whole(1..=1000))]
    processes: usize,
    /// Accept the next connection at once, however short the last one was
    #[arg(long)]
    without_pauses: bool,
    /// Folder with what fuzzers found, in `vring` and `vhost_messages`: more attacks
    #[arg(long, value_name = "FOLDER")]
    corpus: Option<PathBuf>,
}

/// How long, in seconds.
fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.1..=86_400.0).contains(&seconds) => Ok(seconds),
        _ => Err("not a number of seconds from 0.1 to 86400".to_owned()),
    }
}

impl Benchmark for Arguments {
    fn common(&self) -> Common {
        self.common.clone()
    }

    fn run(&self, lab: &mut Lab<'_>) -> Result<Finished, BenchError> {
        // What attackers do is not worth a line each.
        let arguments = [&lab.worker("neighbours")[..], &["--log-level", "error"]].concat();
        run(self, &arguments, lab.audience).map(|report| Finished::new(report, text))
    }
}

/// What is done at the second device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attacker {
    /// By its place among [`ATTACKS`].
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
            Attacker::Messages => "messages that a fuzzer has found",
            Attacker::Rings => "rings that a fuzzer has found",
        }
    }

    /// Those that are asked for.
    fn chosen(options: &Arguments) -> Result<Vec<Attacker>, BenchError> {
        let listed = (0..ATTACKS.len()).map(Attacker::Listed);
        let found = if options.corpus.is_some() { &[Attacker::Messages, Attacker::Rings][..] } else { &[] };
        chosen(listed.chain(found.iter().copied()), Attacker::name, &options.case)
    }
}

/// The attack whose cost the engine does not bound: the pages of guests' memory are the kernel's.
const UNBOUNDED: &str = "holes";

/// What an attack may cost: the breaths that a packet waits, and times the clocks of a breath without it.
const MAX_WAIT: u64 = 2;
const MAX_CLOCKS: f64 = 1.5;

/// One process of the benchmark.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Task {
    options: Arguments,
    /// Where sockets may lie.
    folder: PathBuf,
    seed: u64,
}

/// What one process has measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Answer {
    attacks: Vec<Attacked>,
}

/// What was measured of one attack.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Attacked {
    name: String,
    /// Slices of time, and how many of them were left out because time was stolen.
    slices: u64,
    stolen: u64,
    /// The clocks from which on a breath counts as one that did something.
    busy: Option<u64>,
    /// Beside an honest guest, and beside the attack; none where time was always stolen.
    honest: Option<Figures>,
    attacked: Option<Figures>,
    /// What the watched guest noticed, all the time: the other one was honest in half of it.
    tally: Tally,
    connections: u64,
}

/// Breaths that did something.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Figures {
    breaths: u64,
    faults: u64,
    median: f64,
    p999: f64,
    longest: f64,
}

/// Runs the benchmark. `arguments` make this program call [`measure`] in a fresh process.
fn run(options: &Arguments, arguments: &[&str], audience: &mut dyn Audience) -> Result<Report, BenchError> {
    let attackers = Attacker::chosen(options)?;
    // A process that fails ends at once: what it leaves there is removed here.
    let folder = Folder::new()?;
    let task = |_, round| Task { options: options.clone(), folder: folder.0.clone(), seed: round as u64 };
    let Answers { answers, machine, interrupted }: Answers<Answer> =
        take_turns_with(arguments, 1, options.processes, task, audience)?;
    let answers: Vec<Answer> = answers.into_iter().flatten().collect();
    let mut results = Vec::new();
    let mut broken = Vec::new();
    for (index, attacker) in attackers.iter().enumerate() {
        let all: Vec<&Attacked> = answers.iter().filter_map(|answer| answer.attacks.get(index)).collect();
        let (measurement, faults) = judged(*attacker, &all);
        results.push(measurement);
        broken.extend(faults);
    }
    let mut report = Report::new("neighbours", machine, answers.len(), results);
    report.interrupted = interrupted;
    report.notes = notes(&answers, !options.without_pauses);
    report.failed = !broken.is_empty();
    report.notes.extend(broken);
    Ok(report)
}

/// The row of an attack, and what it has shown to be wrong.
fn judged(attacker: Attacker, all: &[&Attacked]) -> (Measurement, Vec<String>) {
    let name = attacker.name();
    let tally = all.iter().fold(Tally::default(), |sum, attacked| sum.plus(&attacked.tally));
    let both: Vec<(Figures, Figures)> =
        all.iter().filter_map(|attacked| Some((attacked.honest?, attacked.attacked?))).collect();
    let mut faults = Vec::new();
    if tally.lost > 0 || tally.altered > 0 {
        let Tally { sent, lost, altered, .. } = tally;
        faults.push(format!(
            "BROKEN {name}: of {sent} packets of the honest guest {lost} were lost and {altered} were altered"
        ));
    }
    if tally.longest_wait > MAX_WAIT && name != UNBOUNDED {
        faults.push(format!("BROKEN {name}: a packet waited {} breaths", tally.longest_wait));
    }
    let of = |figure: fn(&Figures) -> f64| both.iter().map(|(_, attacked)| figure(attacked)).collect::<Vec<f64>>();
    // Where time was always stolen, the clocks are unknown; what the honest guest noticed is not.
    let middle = median(&of(|figures| figures.p999));
    let ratios: Vec<f64> = both.iter().map(|(honest, attacked)| attacked.p999 / honest.p999).collect();
    let ratio = median(&ratios).map(|ratio| Ratio { median: ratio.value, low: ratio.low, high: ratio.high });
    if let Some(ratio) = ratio
        && ratio.low > MAX_CLOCKS
        && both.len() >= ENOUGH
        && name != UNBOUNDED
    {
        faults.push(format!("BROKEN {name}: a breath costs {} times what it does without", ratio.written()));
    }
    let reference = median(&both.iter().map(|(honest, _)| honest.p999).collect::<Vec<f64>>());
    let labels: BTreeMap<String, Value> = [
        ("what", json!(attacker.what())),
        ("packets", json!(tally.sent)),
        ("lost", json!(tally.lost)),
        ("longest_wait", json!(tally.longest_wait)),
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

/// What must be known to read the table.
fn notes(answers: &[Answer], pauses: bool) -> Vec<String> {
    let sum = |part: fn(&Attacked) -> u64| answers.iter().flat_map(|answer| &answer.attacks).map(part).sum::<u64>();
    let (all, stolen) = (sum(|attacked| attacked.slices), sum(|attacked| attacked.stolen));
    let busy = answers.iter().flat_map(|answer| &answer.attacks).filter_map(|attacked| attacked.busy);
    let busy: Vec<f64> = busy.map(|busy| busy as f64).collect();
    let busy =
        median(&busy).map_or("that did something".to_owned(), |busy| format!("of {:.0} clocks or more", busy.value));
    let connections = match pauses {
        true => "devices pause between short connections, from 20 ms up to 1 s",
        false => {
            "devices accept the next connection at once, which lets more be tried and is not what they do in production"
        }
    };
    vec![
        connections.to_owned(),
        format!(
            "clocks that 99.9 of 100 breaths do not exceed, of breaths {busy}; without: a second honest \
             guest in place of the attack; waits: breaths from a packet's being available to its passing, the most"
        ),
        format!(
            "{stolen} of {all} slices of {} ms left out: the host, or other threads, had the engine's processor \
             meanwhile",
            SLICE.as_millis()
        ),
        format!("`{UNBOUNDED}` is not judged: what page faults of guests' memory cost is not the engine's to bound"),
    ]
}

/// The report for people.
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

/// How long the second device has the same guest.
const SLICE: Duration = Duration::from_millis(100);

/// How long the guests get to find each other.
const PATIENCE: Duration = Duration::from_secs(20);

/// Does one task, in a process that has done nothing else.
fn measure(task: Task) -> Answer {
    let Task { options, folder, seed } = task;
    let attackers = Attacker::chosen(&options).unwrap_or_else(|error| fail(&error));
    let corpora = ["vhost_messages", "vring"].map(|name| corpus(options.corpus.as_deref(), name));
    let all = cpu::allowed();
    let engines = options.common.cpu.or(all.last().copied()).unwrap_or_default();
    let Some(others) = all.iter().copied().find(|&cpu| cpu != engines) else {
        fail(&format!("the guests need a processor besides the engine's: only processor {engines} may be used"))
    };
    // The threads of the devices live where they are made.
    settle(Some(others));
    let slices = options.seconds / SLICE.as_secs_f64() / (2.0 * attackers.len() as f64);
    let slices = slices.round().max(1.0) as u32;
    let process = std::process::id();
    let sockets = ["honest", "other"].map(|name| folder.join(format!("{name}-{process}")));
    let attack = |&attacker: &Attacker| {
        let shared = Arc::new(Shared::default());
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
            let _stop = Stop(control);
            let street = Devices { sockets: &sockets, shared: &shared, engines, corpora: &corpora };
            street.attack(attacker, slices, seed)
        })
    };
    Answer { attacks: attackers.iter().map(attack).collect() }
}

/// Stops an engine, also if what was done beside it panics.
struct Stop(Control);

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Inputs that a fuzzer has kept, by their names.
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

/// A folder for sockets, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Result<Folder, BenchError> {
        let folder = std::env::temp_dir().join(format!("bellows-neighbours-{}", std::process::id()));
        match std::fs::create_dir(&folder) {
            Ok(()) => Ok(Folder(folder)),
            Err(error) => Err(BenchError::Folder(folder, error)),
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
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

/// The two devices, and who is measured at them.
struct Devices<'a> {
    sockets: &'a [PathBuf; 2],
    shared: &'a Shared,
    engines: usize,
    /// What fuzzers found: messages, rings.
    corpora: &'a [Vec<Vec<u8>>; 2],
}

impl Devices<'_> {
    /// Has another honest driver at the second device for so many slices of time, then an attacker.
    fn attack(&self, attacker: Attacker, slices: u32, seed: u64) -> Attacked {
        let mut honest = Honest::connect(&self.sockets[0], MIXED);
        let mut other = Honest::connect(&self.sockets[1], BULK);
        self.wait(|| honest.is_served() && other.is_served(), || {});
        // What waits for this port comes from the time before it was served.
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
        Attacked {
            name: attacker.name().to_owned(),
            slices: 2 * u64::from(slices),
            stolen: stolen_before + stolen_during,
            busy,
            honest: busy.and_then(|busy| Figures::of(&before, busy)),
            attacked: busy.and_then(|busy| Figures::of(&during, busy)),
            tally: honest.take_tally(),
            connections: assault.connections,
        }
    }

    /// Does something again and again for so many slices of time: how long breaths took meanwhile, but for the slices of which
    /// time was stolen, and how many those are.
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

    /// Where a process begins in a corpus: processes share it.
    fn part(&self, corpus: usize, seed: u64) -> u64 {
        seed * (self.corpora[corpus].len() as u64 / 16 + 1)
    }

    /// Does something again and again for a slice of time, and tells how long breaths took meanwhile.
    fn record(&self, slice: Duration, mut turn: impl FnMut()) -> Breaths {
        self.shared.record(|| {
            let end = Instant::now() + slice;
            while Instant::now() < end {
                turn();
            }
        })
    }

    /// Waits until something is so.
    fn wait(&self, mut so: impl FnMut() -> bool, mut meanwhile: impl FnMut()) {
        let end = Instant::now() + PATIENCE;
        while !so() {
            meanwhile();
            if Instant::now() > end {
                fail(&"the engine does not serve an honest guest: none was connected within 20 s");
            }
        }
    }
}

impl Figures {
    fn of(breaths: &Breaths, busy: u64) -> Option<Figures> {
        let quantile = |part| breaths.quantile(part, busy).map(|clocks| clocks as f64);
        let (median, p999, longest) = (quantile(0.5)?, quantile(0.999)?, quantile(1.0)?);
        Some(Figures { breaths: breaths.count(busy), faults: breaths.faults, median, p999, longest })
    }
}

impl Listed for Arguments {
    const QUICK: &'static [&'static str] = &["--processes", "1", "--seconds", "0.2", "--case", "false-claims"];
    const REFUSED: &'static [(&'static [&'static str], &'static str)] = &[
        (&["--case", "nonsense"], "no case has `nonsense` in its name; there are empty-tables"),
        (&["--seconds", "0"], "not a number of seconds from 0.1 to 86400"),
        (
            &["--log-level", "error", "--processes", "1", "--corpus", "nowhere"],
            "nowhere/vhost_messages: No such file or directory",
        ),
        (&["--cpu", "99999"], "processor 99999"),
    ];

    fn work(_: &Registry) -> Result<(), std::io::Error> {
        workers::answer(measure)
    }
}
