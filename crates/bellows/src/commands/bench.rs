//! `bellows bench`.

use std::process::ExitCode;

use bellows_engine::Schedule;
use bellows_lab::engine::{self, Options};
use bellows_lab::processes;
use clap::{Args, Subcommand};

use crate::failure::Failure;
use crate::terminal;

/// Measure what Bellows costs on this machine
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Debug, Subcommand)]
enum Bench {
    Engine(EngineArguments),
}

/// Measure what the engine costs a packet, in clocks of the time-stamp counter
///
/// Each case is measured in several fresh processes, which take turns; the figure is the median over them, with the
/// median's 95 percent confidence interval. The reference is the bare work of the apps without an engine, measured in
/// the same processes. Cases: source-sink and source-tee-sinks, chain (the cost of each further app that hands its
/// vector on, or loops over its packets), in-flight (source to sink with so many packets between), pcap-reader
/// (a capture of small packets in the page cache, in million packets a second).
#[derive(Debug, Args)]
struct EngineArguments {
    /// Print the report as JSON (see docs/json.md)
    #[arg(long)]
    json: bool,
    /// Only this schedule
    #[arg(long, value_name = "SCHEDULE")]
    schedule: Option<Schedule>,
    /// Only cases with this in their name
    #[arg(long, value_name = "TEXT", default_value = "")]
    case: String,
    /// Fresh processes for each case; an interval needs six
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u16).range(1..=1000))]
    processes: u16,
    /// Rounds in each process, of which the median counts
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    rounds: u16,
    /// Packets a breath
    #[arg(long, value_name = "PACKETS", default_value_t = 128, value_parser = clap::value_parser!(u16).range(1..=1024))]
    burst: u16,
    /// Distance between packet buffers, to compare layouts (a multiple of 64 from 2240 to 262144)
    #[arg(long, value_name = "BYTES")]
    stride: Option<usize>,
    /// The processor to measure on; by default the last that may be used
    #[arg(long, value_name = "N")]
    cpu: Option<usize>,
    /// Take a task from standard input, do it, and write what was measured (how the fresh processes are run)
    #[arg(long, hide = true)]
    measure: bool,
}

pub fn execute(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let Bench::Engine(arguments) = &arguments.bench;
    if arguments.measure {
        processes::answer(engine::measure)?;
        return Ok(ExitCode::SUCCESS);
    }
    let defaults = Options::default();
    let options = Options {
        schedules: arguments.schedule.map_or(defaults.schedules, |schedule| vec![schedule]),
        processes: arguments.processes.into(),
        rounds: arguments.rounds.into(),
        burst: arguments.burst.into(),
        stride: arguments.stride,
        cpu: arguments.cpu,
        filter: arguments.case.clone(),
    };
    let rich = terminal::stderr_is_rich();
    let report = engine::run(&options, &["bench", "engine", "--measure"], |done, all| {
        if rich {
            terminal::show_status(&format!("measuring: {done} of {all} processes"));
        }
    });
    terminal::clear_status();
    let report = report.map_err(|error| Failure::Mistake(error.to_string()))?;
    let text = match arguments.json {
        true => format!("{:#}\n", serde_json::json!(report)),
        false => report.text(),
    };
    terminal::print(&text)?;
    Ok(ExitCode::SUCCESS)
}
