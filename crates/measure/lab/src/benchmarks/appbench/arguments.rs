//! The options of `appbench`.

use std::path::PathBuf;

use bellows_engine::Schedule;
use clap::ValueEnum;

use super::{AppbenchError, AppbenchOptions, ChainRow, Counters, InPlace, Subject, measure};
use crate::bench::{Benchmark, Common, Finished, Lab, RefusedOptions, RunBenchmark, RunWorker, packets, whole};
use crate::cases::{CaseRow, Cases, LabelKind, label};
use crate::report::BenchError;
use crate::residence::Resident;
use crate::traffic::{self, Traffic};
use crate::workers;

/// Measure an app's cost per packet, and its causes
///
/// Packets go from a source to a sink (the baseline) and from a source through the app to a sink (with the app); the
/// difference is the cost of the app. Both runs alternate in rounds of about a millisecond, in several fresh processes;
/// figures are medians over the processes with their 95 percent confidence intervals. The report also shows what the
/// engine's live accounting records for the same app.
///
/// All ports are linked: each input to a source, each output to a sink. An app without inputs takes the source's place,
/// one without outputs the sink's. Several apps can be measured in a row, with their keys in parentheses: `bellows
/// appbench 'tee | truncate(length = 64) | counter'`.
///
/// The apps of a router need a routing domain, and packets that the apps in front of them have sorted and tagged. Without
/// keys, as in `bellows appbench ip4-lookup`, they get those of `bellows bench apps`; with keys, they can name the same
/// domain: `vrf = "router"`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = traffic::HELP)]
pub struct Arguments {
    /// App type, or several in a row: `TYPE(key = value, …) | TYPE`
    #[arg(value_name = "APP", required_unless_present = "network", conflicts_with = "network")]
    apps: Option<String>,
    /// Keys of the app in TOML: 'rate = "1Mpps"'
    #[arg(long, value_name = "KEYS", conflicts_with = "network")]
    config: Option<String>,
    /// Send packets to this input only (repeatable)
    ///
    /// Creates the port if the app takes any number of inputs.
    #[arg(long = "in", value_name = "PORT", conflicts_with = "network")]
    inputs: Vec<String>,
    /// Link this output only (repeatable)
    ///
    /// Creates the port if the app takes any number of outputs.
    #[arg(long = "out", value_name = "PORT", conflicts_with = "network")]
    outputs: Vec<String>,
    /// Compare with these apps [default: with nothing]
    ///
    /// They take the place of APP in the baseline, so the difference is the cost of a change.
    #[arg(long, value_name = "APP", conflicts_with = "network")]
    against: Option<String>,
    /// Measure an app in this network
    ///
    /// The baseline is the network without the app, if the app has one input and one output linked.
    #[arg(long, value_name = "FILE", requires = "app")]
    network: Option<PathBuf>,
    /// The app's name in the network
    #[arg(long, value_name = "NAME", requires = "network")]
    app: Option<String>,
    /// Override a key of the network file (repeatable)
    ///
    /// Example: `--set 'apps.capture.repeat="forever"'`. `KEY=` without a value removes the key.
    #[arg(long = "set", value_name = "KEY=VALUE", requires = "network")]
    overrides: Vec<String>,
    /// Packets per run [default: 1e7, or 1e6 if resident]
    #[arg(long, value_name = "N", value_parser = packets)]
    packets: Option<u64>,
    /// Number of fresh processes
    ///
    /// A confidence interval needs at least 6.
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = whole(1..=1000))]
    processes: usize,
    /// Cache levels of packets: l1, l2, l3, dram
    ///
    /// Each level is measured in turn, as far as this machine has it. By default packets are fresh from the source.
    #[arg(long, value_name = "LEVEL,…", value_delimiter = ',', conflicts_with = "network")]
    resident: Vec<Resident>,
    /// Sizes and protocols, see --help [default: 60]
    #[arg(long, value_name = "TRAFFIC", conflicts_with = "network")]
    traffic: Option<Traffic>,
    /// Million packets per second [default: maximum]
    ///
    /// With a fixed offered load, packets queue up behind one another.
    #[arg(long, value_name = "MPPS", value_parser = offered, conflicts_with = "network")]
    offered: Option<f64>,
    /// Prefetch distances to measure, in packets
    #[arg(long, value_name = "PACKETS,…", value_delimiter = ',', value_parser = whole(0..=64))]
    prefetch: Vec<usize>,
    /// Event counters
    #[arg(long, value_name = "WHAT", value_enum, default_value = "processor")]
    counters: Counting,
    /// Packets per breath [default: 128, or network's]
    #[arg(long, value_name = "PACKETS", value_parser = whole(1..=1024))]
    burst: Option<usize>,
    /// Schedule [default: native, or the network's]
    #[arg(long, value_name = "SCHEDULE")]
    schedule: Option<Schedule>,
    /// Processor to measure on [default: last allowed]
    #[arg(long, value_name = "N", value_parser = bellows_sys::cpu::parse)]
    cpu: Option<usize>,
    /// Print the report as JSON (see docs/json.md)
    #[arg(long)]
    json: bool,
}

/// Parses million packets per second, as packets per second.
fn offered(text: &str) -> Result<f64, String> {
    const HOW: &str = "give million packets per second from 0.000001 to 1000, such as 13";
    let number: f64 = text.parse().map_err(|_| HOW)?;
    if (1e-6..=1e3).contains(&number) { Ok(1e6 * number) } else { Err(HOW.to_owned()) }
}

/// The source of event counts.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Counting {
    /// The processor's performance counters, if it has any
    Processor,
    /// Valgrind's simulated processor, whose counts are the same in every run
    Valgrind,
}

impl Arguments {
    fn subject(&self) -> Result<Subject, AppbenchError> {
        if let (Some(file), Some(app)) = (&self.network, &self.app) {
            let (file, set, app) = (file.clone(), self.overrides.clone(), app.clone());
            return Ok(Subject::InPlace(InPlace { file, set, app }));
        }
        let apps = self.apps.clone().unwrap_or_default();
        let apps = match &self.config {
            None => apps,
            Some(_) if apps.contains(['(', '|']) => {
                return Err(AppbenchError::Refused(
                    "--config works with a single app; write the keys of apps in a row as `TYPE(key = value, …)`"
                        .to_owned(),
                ));
            }
            Some(keys) => with_keys(&apps, keys),
        };
        Ok(Subject::Row(ChainRow {
            apps,
            against: self.against.clone().unwrap_or_default(),
            inputs: self.inputs.clone(),
            outputs: self.outputs.clone(),
            ..ChainRow::default()
        }))
    }
}

/// An app with its keys in parentheses. The keys may be given in braces.
fn with_keys(app: &str, keys: &str) -> String {
    let keys = keys.trim();
    let inner = keys.strip_prefix('{').and_then(|keys| keys.strip_suffix('}')).unwrap_or(keys).trim();
    format!("{app}({inner})")
}

/// The labels of what is measured where.
const WHERE: &[&str] = &["against", "network", "resident", "prefetch"];

/// What its figures are.
const CASES: Cases = Cases {
    text: &[
        "Impossible figures are left out: a baseline if the network does not work without the app, clocks if the load is fixed \
         (`--offered`). `notes` state what a reader must know: a difference that is within noise, the signature of a missing \
         prefetch and the distance to use, the wiring of the ports, why the processor's counters are unavailable.",
    ],
    every: &["app", "schedule", "burst"],
    rows: &[
        CaseRow::of(&["clocks"], "clocks/packet", "clocks of the time-stamp counter").with(&["run", "packets"]).sometimes(WHERE),
        CaseRow::each(
            "the name of an event: `cycles`, `ref_cycles`, `instructions` and so on; `estimated_cycles` (of the core) where the \
             processor counts none; with `--counters valgrind` the events of callgrind",
            "events/packet",
            "events",
        )
        .with(&["run", "packets"])
        .sometimes(WHERE),
        CaseRow::of(
            &["account"],
            "clocks/packet",
            "the live accounting of the measured apps, per packet that came to them; with the labels `run` and `recorded`, of the \
             app of that name",
        )
        .sometimes(&["run", "recorded", "against", "network", "resident", "prefetch"]),
        CaseRow::of(&["gap"], "clocks/packet", "the difference in `clocks`, minus `account`; not with `--against`")
            .sometimes(&["network", "resident", "prefetch"]),
        CaseRow::of(&["vector"], "packets/call", "packets per call of the app `recorded`")
            .with(&["run", "recorded"])
            .sometimes(WHERE),
    ],
    labels: &[
        label("app", LabelKind::Text, "the apps as on the command line, or the app's name in the network"),
        label(
            "run",
            LabelKind::Word(&["baseline", "with-app", "difference"]),
            "the network: the `baseline`, that `with-app`, or the `difference`",
        ),
        label("packets", LabelKind::Integer, "number of packets measured in all processes"),
        label("recorded", LabelKind::Text, "name of an app in the network"),
        label("against", LabelKind::Text, "with `--against`: the apps of the baseline"),
        label("network", LabelKind::Text, "with `--network`: the file"),
        label(
            "resident",
            LabelKind::Word(&["l1", "l2", "l3", "dram"]),
            "with `--resident`: packets come from a cache (`l1`, `l2`, `l3`) or from memory (`dram`)",
        ),
        label("prefetch", LabelKind::Integer, "with `--prefetch`: the distance in packets"),
    ],
};

/// Runs the benchmark. Its workers call [`measure`].
fn run(arguments: &Arguments, lab: &mut Lab<'_>) -> Result<Finished, BenchError> {
    let (subject, traffic) = match arguments.subject()? {
        Subject::Row(row) => {
            let (row, traffic) = row.surrounded(lab.registry);
            (Subject::Row(row), traffic)
        }
        subject => (subject, None),
    };
    let options = AppbenchOptions {
        packets: arguments.packets,
        processes: arguments.processes,
        burst: arguments.burst,
        schedule: arguments.schedule,
        cpu: arguments.cpu,
        residents: arguments.resident.clone(),
        traffic: arguments.traffic.clone().or(traffic),
        offered: arguments.offered,
        prefetch: arguments.prefetch.clone(),
        counters: match arguments.counters {
            Counting::Processor => Counters::Processor,
            Counting::Valgrind => Counters::Valgrind,
        },
        ..AppbenchOptions::new(subject)
    };
    Ok(super::run(&options, &lab.worker(Arguments::NAME), lab.registry, lab.observer)?)
}

impl Benchmark for Arguments {
    const NAME: &'static str = "appbench";
    const CASES: Cases = CASES;
    const QUICK: &'static str = "tee --processes 1 --packets 2000";
    const MORE: &'static [&'static str] = &[
        "tee --processes 1 --packets 2000 --resident l1 --prefetch 4",
        "tee --against counter --processes 1 --packets 2000 --resident l1 --prefetch 4",
        "--network network.toml --app counter --processes 1 --packets 2000 --prefetch 4",
    ];
    const REFUSED: &'static [RefusedOptions] = &[
        (&[], "<APP>"),
        (&["tea"], "there is no app type `tea`"),
        (&["tee | counter", "--config", "protocols = false"], "--config works with a single app"),
        (&["tee", "--traffic", "jumble"], "`jumble` is not a kind of traffic"),
        (&["tee", "--resident", "l5"], "`l5` is not a level of the memory hierarchy"),
        (&["tee", "--prefetch", "65"], "65 is not in 0..=64"),
        (&["tee", "--offered", "0"], "give million packets per second"),
        (&["tee", "--packets", "none"], "give a number of packets"),
    ];
    const WORK: RunWorker = |registry| workers::answer(|task| measure(task, registry));
    const RUN: RunBenchmark<Self> = run;

    fn common(&self) -> Common {
        Common { json: self.json, cpu: self.cpu }
    }
}
