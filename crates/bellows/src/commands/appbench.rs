//! `bellows appbench`.

use std::path::PathBuf;
use std::process::ExitCode;

use bellows_engine::Schedule;
use bellows_lab::appbench::{self, AppbenchError, Counters, InPlace, Options, Row, Subject};
use bellows_lab::audience::Audience;
use bellows_lab::workers;
use bellows_lab::residence::Resident;
use bellows_lab::traffic::{self, Traffic};
use clap::{Args, ValueEnum};

use crate::failure::Failure;
use crate::measuring::{print, watched};
use crate::subcommand::{Execute, Program};
use crate::terminal;

/// Measure what an app costs per packet, and why
///
/// Packets go from a source to a sink (the reference), then from a source through the app to a sink (the production); what
/// the second costs more is the app. Both runs alternate in rounds of about a millisecond, in several fresh processes;
/// figures are medians over the processes with their 95 percent confidence intervals. Beside the difference stands what the
/// engine's live accounting books for the same app.
///
/// All ports are wired that there are: each input gets packets, each output leads to a sink. An app without inputs takes the
/// source's place, one without outputs the sink's. Several apps can be given in a row, with their keys in parentheses:
/// `bellows appbench 'tee | truncate(length = 64) | counter'`.
#[derive(Debug, Args)]
#[command(after_long_help = traffic::HELP)]
pub struct Arguments {
    /// App type, or several in a row: `TYPE(key = value, …) | TYPE`
    #[arg(value_name = "APP", required_unless_present_any = ["network", "measure"], conflicts_with = "network")]
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
    /// They take the place of APP, so that the difference is what a change costs.
    #[arg(long, value_name = "APP", conflicts_with = "network")]
    against: Option<String>,
    /// Measure an app in this network
    ///
    /// The reference is the network without the app, where that is possible.
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
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u16).range(1..=1000))]
    processes: u16,
    /// Cache levels of packets: l1, l2, l3, dram
    ///
    /// Each level is measured in turn, as this machine shows them. By default packets are fresh from the source.
    #[arg(long, value_name = "LEVEL,…", value_delimiter = ',', conflicts_with = "network")]
    resident: Vec<Resident>,
    /// Sizes and protocols, see --help [default: 60]
    #[arg(long, value_name = "TRAFFIC", conflicts_with = "network")]
    traffic: Option<Traffic>,
    /// Million packets per second [default: maximum]
    ///
    /// With an offered load, packets wait for one another.
    #[arg(long, value_name = "MPPS", value_parser = offered, conflicts_with = "network")]
    offered: Option<f64>,
    /// Prefetch distances to measure, in packets
    #[arg(long, value_name = "PACKETS,…", value_delimiter = ',', value_parser = clap::value_parser!(u8).range(0..=64))]
    prefetch: Vec<u8>,
    /// Event counters
    #[arg(long, value_name = "WHAT", value_enum, default_value = "processor")]
    counters: Counting,
    /// Packets per breath [default: 128, or network's]
    #[arg(long, value_name = "PACKETS", value_parser = clap::value_parser!(u16).range(1..=1024))]
    burst: Option<u16>,
    /// Schedule [default: native, or the network's]
    #[arg(long, value_name = "SCHEDULE")]
    schedule: Option<Schedule>,
    /// Processor to measure on [default: last allowed]
    #[arg(long, value_name = "N", value_parser = crate::arguments::processor)]
    cpu: Option<usize>,
    /// Print the report as JSON (see docs/json.md)
    #[arg(long)]
    json: bool,
    /// Do one task from standard input and write its result (how fresh processes are run)
    #[arg(long, hide = true)]
    measure: bool,
}

/// Packets a second, of millions.
fn offered(text: &str) -> Result<f64, String> {
    const HOW: &str = "give million packets a second from 0.000001 to 1000, such as 13";
    let number: f64 = text.parse().map_err(|_| HOW)?;
    if (1e-6..=1e3).contains(&number) { Ok(1e6 * number) } else { Err(HOW.to_owned()) }
}

/// What counts.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Counting {
    /// The processor's own counters, where it has any
    Processor,
    /// Valgrind's simulated processor, which counts the same in every run
    Valgrind,
}

/// The arguments that make this program measure in a fresh process.
pub const MEASURE: &[&str] = &["appbench", "--measure"];

/// What a measurement that was not made ends the command with.
pub fn failure(error: AppbenchError) -> Failure {
    match error {
        AppbenchError::Diagnosed(mistakes) => Failure::Diagnosed(mistakes.render(terminal::stderr_is_rich())),
        error if error.is_interrupted() => Failure::Interrupted(error.to_string()),
        error if error.is_mistake() => Failure::Mistake(error.to_string()),
        error => Failure::Failed(error.to_string()),
    }
}

/// A number of packets.
///
/// # Errors
/// When it is none.
pub fn packets(text: &str) -> Result<u64, String> {
    const HOW: &str = "give a number of packets from 1 to 1e12, such as 10000000 or 1e7";
    let number: f64 = text.replace(['_', ','], "").parse().map_err(|_| HOW)?;
    if (1.0..=1e12).contains(&number) { Ok(number as u64) } else { Err(HOW.to_owned()) }
}

impl Arguments {
    fn subject(&self) -> Result<Subject, Failure> {
        if let (Some(file), Some(app)) = (&self.network, &self.app) {
            let (file, set, app) = (file.clone(), self.overrides.clone(), app.clone());
            return Ok(Subject::InPlace(InPlace { file, set, app }));
        }
        let apps = self.apps.clone().unwrap_or_default();
        let apps = match &self.config {
            None => apps,
            Some(_) if apps.contains(['(', '|']) => {
                return Err(Failure::Mistake(
                    "--config goes with one app alone; write the keys of apps in a row as `TYPE(key = value, …)`"
                        .to_owned(),
                ));
            }
            Some(keys) => with_keys(&apps, keys),
        };
        Ok(Subject::Row(Row {
            apps,
            against: self.against.clone().unwrap_or_default(),
            inputs: self.inputs.clone(),
            outputs: self.outputs.clone(),
        }))
    }
}

/// An app with its keys in parentheses; they may come in braces.
fn with_keys(app: &str, keys: &str) -> String {
    let keys = keys.trim();
    let inner = keys.strip_prefix('{').and_then(|keys| keys.strip_suffix('}')).unwrap_or(keys).trim();
    format!("{app}({inner})")
}

impl Execute for Arguments {
    fn execute(self, program: &Program) -> Result<ExitCode, Failure> {
        if self.measure {
            workers::answer(|task| appbench::measure(task, &program.registry))?;
            return Ok(ExitCode::SUCCESS);
        }
        let options = Options {
            packets: self.packets,
            processes: self.processes.into(),
            burst: self.burst.map(usize::from),
            schedule: self.schedule,
            cpu: self.cpu,
            residents: self.resident.clone(),
            traffic: self.traffic.clone(),
            offered: self.offered,
            prefetch: self.prefetch.iter().map(|&distance| distance.into()).collect(),
            counters: match self.counters {
                Counting::Processor => Counters::Processor,
                Counting::Valgrind => Counters::Valgrind,
            },
            ..Options::new(self.subject()?)
        };
        let run = |audience: &mut dyn Audience| appbench::run(&options, MEASURE, &program.registry, audience);
        let outcome = watched(self.json, run).map_err(failure)?;
        print(&outcome.report, self.json, |_| outcome.text())
    }

    fn only_reports(&self) -> bool {
        true
    }
}
