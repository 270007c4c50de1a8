//! `bellows bench history`.

use std::process::ExitCode;

use bellows_lab::history::{self, Options};
use bellows_lab::workers;
use clap::Args;

use super::Common;
use crate::failure::Failure;
use crate::subcommand::{Execute, Program};

/// Measure whether the engine's speed depends on earlier traffic
///
/// A ratio of 1 says that it does not. Cases: idle-first and other-first, chains of tees that were idle for some
/// seconds, or had packets of other sizes in bursts of other sizes, against the same chains that have had the
/// measured traffic from their start; mix-change, a network in which packets go different ways, with one mix of
/// packets after another mix against the same before, beside a network whose mix stays. All histories of a network
/// live at the same time, in a process each, and take turns of a millisecond; what disturbs one disturbs all. The
/// figure is the median of the ratios of neighbouring turns, over many such groups of fresh processes, with its 95
/// percent confidence interval. The condition `clocks` is what a packet costs without a history.
///
/// `--control 0` compares processes of which none has a history: every interval should hold 1. `--control 4` lets the second
/// have 128 packets in a breath and the others 124, and counts 124, which must be seen. With `--beside thrash` a process on another
/// processor wears out the last-level cache meanwhile.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(flatten)]
    common: Common,
    /// Only cases whose name contains this
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
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
    /// Fresh processes per history; at least 6 for a confidence interval
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u16).range(1..=1000))]
    processes: u16,
    /// Turns of about 1 ms per process, of which the quieter half counts
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u16).range(2..=60_000))]
    rounds: u16,
    /// Seconds that an engine is idle before the traffic
    #[arg(long, value_name = "SECONDS", default_value = "3", value_parser = seconds)]
    idle_seconds: f64,
    /// Compare networks without a history, one of which has so many more packets in a breath that are not counted
    #[arg(long, value_name = "PACKETS", value_parser = clap::value_parser!(u16).range(0..=64), conflicts_with = "case")]
    control: Option<u16>,
}

/// A time that one can wait for.
fn seconds(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "give a number of seconds, such as 3 or 0.5")?;
    if (0.0..=3600.0).contains(&seconds) { Ok(seconds) } else { Err("give from 0 to 3600 seconds".to_owned()) }
}

impl Execute for Arguments {
    fn execute(self, _: &Program) -> Result<ExitCode, Failure> {
        if self.common.measure {
            workers::take_part(history::lay_out)?;
            return Ok(ExitCode::SUCCESS);
        }
        let options = Options {
            schedules: self.common.schedules(),
            tees: self.tees.iter().map(|&tees| tees.into()).collect(),
            processes: self.processes.into(),
            rounds: self.rounds.into(),
            idle_seconds: self.idle_seconds,
            cpu: self.common.cpu,
            filter: self.case.clone(),
            control: self.control.map(usize::from),
        };
        self.common.report(|audience| history::run(&options, &["bench", "history", "--measure"], audience))
    }
}
