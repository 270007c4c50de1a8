//! `bellows appbench`.

use std::path::PathBuf;
use std::process::ExitCode;

use bellows_config::Registry;
use bellows_engine::Schedule;
use bellows_lab::appbench::{self, AppbenchError, Counters, InPlace, Options, Row, Subject};
use bellows_lab::processes;
use bellows_lab::residence::Resident;
use bellows_lab::traffic::{self, Traffic};
use clap::{Args, ValueEnum};

use super::bench::told;
use crate::failure::Failure;
use crate::terminal;

/// Measure what an app costs a packet, and why
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
#[command(after_help = traffic::HELP)]
pub struct Arguments {
    /// The app's type, or apps in a row: `TYPE(key = value, …) | TYPE`
    #[arg(value_name = "APP", required_unless_present_any = ["network", "measure"], conflicts_with = "network")]
    apps: Option<String>,
    /// The keys of the only app, as in an inline table of TOML: 'rate = "1Mpps", queue = 10'
    #[arg(long, value_name = "KEYS", conflicts_with = "network")]
    config: Option<String>,
    /// Send packets to this input only; may be given several times, and makes ports of apps with any number of them
    #[arg(long = "in", value_name = "PORT", conflicts_with = "network")]
    inputs: Vec<String>,
    /// Lead this output to a sink only; may be given several times, and makes ports of apps with any number of them
    #[arg(long = "out", value_name = "PORT", conflicts_with = "network")]
    outputs: Vec<String>,
    /// Compare with other apps in the place of APP, not with nothing: what a change costs, for instance
    #[arg(long, value_name = "APP", conflicts_with = "network")]
    against: Option<String>,
    /// Measure an app in place, in this network; the reference is the network without the app where that can be
    #[arg(long, value_name = "FILE", requires = "app")]
    network: Option<PathBuf>,
    /// The app's name in the network
    #[arg(long, value_name = "NAME", requires = "network")]
    app: Option<String>,
    /// Set a key of the network file, such as `apps.capture.repeat="forever"`; may be given several times
    #[arg(long = "set", value_name = "KEY=VALUE", requires = "network")]
    overrides: Vec<String>,
    /// Packets that each process sends through the reference, and as many through the production [default: 1e7; 1e6 with
    /// --resident]
    #[arg(long, value_name = "N", value_parser = packets)]
    packets: Option<u64>,
    /// Fresh processes; an interval needs six
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u16).range(1..=1000))]
    processes: u16,
    /// Where packets come from, each level in turn: l1, l2, l3 or dram, as this machine shows them; by default packets are
    /// fresh from the source
    #[arg(long, value_name = "LEVEL,…", value_delimiter = ',', conflicts_with = "network")]
    resident: Vec<Resident>,
    /// What the packets hold (see below) [default: 60]
    #[arg(long, value_name = "TRAFFIC", conflicts_with = "network")]
    traffic: Option<Traffic>,
    /// Offer so many million packets a second, so that packets wait for one another; by default as many as are taken
    #[arg(long, value_name = "MPPS", value_parser = offered, conflicts_with = "network")]
    offered: Option<f64>,
    /// Fetch packets so far ahead, each distance in turn
    #[arg(long, value_name = "PACKETS,…", value_delimiter = ',', value_parser = clap::value_parser!(u8).range(0..=64))]
    prefetch: Vec<u8>,
    /// What counts besides clocks
    #[arg(long, value_name = "WHAT", value_enum, default_value = "processor")]
    counters: Counting,
    /// Packets a breath [default: 128, or what the network says]
    #[arg(long, value_name = "PACKETS", value_parser = clap::value_parser!(u16).range(1..=1024))]
    burst: Option<u16>,
    /// How breaths are taken [default: native, or what the network says]
    #[arg(long, value_name = "SCHEDULE")]
    schedule: Option<Schedule>,
    /// The processor to measure on; by default the last that may be used
    #[arg(long, value_name = "N")]
    cpu: Option<usize>,
    /// Print the report as JSON (see docs/json.md)
    #[arg(long)]
    json: bool,
    /// Take a task from standard input, do it, and write what was measured (how the fresh processes are run)
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
        error => Failure::Mistake(error.to_string()),
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

pub fn execute(arguments: &Arguments, registry: &Registry) -> Result<ExitCode, Failure> {
    if arguments.measure {
        processes::answer(|task| appbench::measure(task, registry))?;
        return Ok(ExitCode::SUCCESS);
    }
    let options = Options {
        packets: arguments.packets,
        processes: arguments.processes.into(),
        burst: arguments.burst.map(usize::from),
        schedule: arguments.schedule,
        cpu: arguments.cpu,
        residents: arguments.resident.clone(),
        traffic: arguments.traffic.clone(),
        offered: arguments.offered,
        prefetch: arguments.prefetch.iter().map(|&distance| distance.into()).collect(),
        counters: match arguments.counters {
            Counting::Processor => Counters::Processor,
            Counting::Valgrind => Counters::Valgrind,
        },
        ..Options::new(arguments.subject()?)
    };
    let outcome = told(|progress| appbench::run(&options, MEASURE, registry, progress)).map_err(failure)?;
    let text = match arguments.json {
        true => format!("{:#}\n", serde_json::json!(outcome.report)),
        false => outcome.text(),
    };
    terminal::print(&text)?;
    Ok(ExitCode::SUCCESS)
}
