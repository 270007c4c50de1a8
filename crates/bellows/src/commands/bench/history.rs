//! `bellows bench history`.

use std::process::ExitCode;

use bellows_lab::history::{self, Options};
use bellows_lab::processes;
use clap::Args;

use super::Common;
use crate::failure::Failure;

/// Measure whether the engine's speed depends on what it met before
///
/// A ratio of 1 says that it does not. Cases: idle-first and other-first, chains of tees that were idle for some seconds,
/// or had packets of other sizes in bursts of other sizes, against the same chains that have had the measured traffic
/// from their start; mix-change, a network in which packets go different ways, with one mix of packets after another
/// mix against the same before. Each history has fresh processes of its own; a ratio is formed of two that ran in the
/// same round, and the figure is the median of the rounds' ratios with its 95 percent confidence interval. The
/// condition `clocks` is what a packet costs without a history.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(flatten)]
    common: Common,
    /// Only cases with this in their name
    #[arg(long, value_name = "TEXT", default_value = "")]
    case: String,
    /// Lengths of the chains of tees
    #[arg(
        long,
        value_name = "N,…",
        value_delimiter = ',',
        default_value = "3,8,20",
        value_parser = clap::value_parser!(u16).range(1..=100)
    )]
    tees: Vec<u16>,
    /// Fresh processes for each history; an interval needs six
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u16).range(1..=1000))]
    processes: u16,
    /// Rounds of about a millisecond in each process, of which the lower quartile counts
    #[arg(long, value_name = "N", default_value_t = 400, value_parser = clap::value_parser!(u16).range(2..=60_000))]
    rounds: u16,
    /// How long an engine is idle before the traffic
    #[arg(long, value_name = "SECONDS", default_value = "3", value_parser = seconds)]
    idle_seconds: f64,
}

/// A time that one can wait for.
fn seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "give a number of seconds, such as 3 or 0.5")?;
    if (0.0..=3600.0).contains(&seconds) { Ok(seconds) } else { Err("give from 0 to 3600 seconds".to_owned()) }
}

pub fn execute(arguments: &Arguments) -> Result<ExitCode, Failure> {
    if arguments.common.measure {
        processes::answer(history::measure)?;
        return Ok(ExitCode::SUCCESS);
    }
    let options = Options {
        schedules: arguments.common.schedules(),
        tees: arguments.tees.iter().map(|&tees| tees.into()).collect(),
        processes: arguments.processes.into(),
        rounds: arguments.rounds.into(),
        idle_seconds: arguments.idle_seconds,
        cpu: arguments.common.cpu,
        filter: arguments.case.clone(),
    };
    arguments.common.report(|progress| history::run(&options, &["bench", "history", "--measure"], progress))
}
