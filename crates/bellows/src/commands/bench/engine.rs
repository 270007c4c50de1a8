//! `bellows bench engine`.

use std::process::ExitCode;

use bellows_lab::engine::{self, Options};
use bellows_lab::workers;
use clap::Args;

use super::Common;
use crate::failure::Failure;
use crate::subcommand::{Execute, Program};

/// Measure what the engine costs per packet
///
/// Costs are in clocks of the time-stamp counter. The processes of all schedules live at the same time and take turns of
/// about a millisecond, in several such groups of fresh processes for each case; the figure is the median over them, with
/// the median's 95 percent confidence interval. The reference is the bare work of the apps without an engine, measured in
/// the same turns. Cases: source-sink and source-tee-sinks, chain (the cost of each further app that hands its vector on,
/// or loops over its packets), in-flight (source to sink with so many packets between), pcap-reader (a capture of small
/// packets in the page cache, in million packets a second), idle (a breath of a network of 30 apps in which nothing
/// moves, in nanoseconds), metering and timeline (from source to sink with instrumented breaths against without, and
/// with a timeline against without), timeline-event (writing an event).
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(flatten)]
    common: Common,
    /// Only cases whose name contains this
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    case: String,
    /// Fresh processes per case; at least 6 for a confidence interval
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u16).range(1..=1000))]
    processes: u16,
    /// Turns per process, of which the quieter half counts
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    rounds: u16,
    /// Packets per breath
    #[arg(long, value_name = "PACKETS", default_value_t = 128, value_parser = clap::value_parser!(u16).range(1..=1024))]
    burst: u16,
    /// Bytes between packet buffers: a multiple of 64 from 2240 to 262144
    #[arg(long, value_name = "BYTES")]
    stride: Option<usize>,
}

impl Execute for Arguments {
    fn execute(self, _: &Program) -> Result<ExitCode, Failure> {
        if self.common.measure {
            workers::take_part(engine::lay_out)?;
            return Ok(ExitCode::SUCCESS);
        }
        let options = Options {
            schedules: self.common.schedules(),
            processes: self.processes.into(),
            rounds: self.rounds.into(),
            burst: self.burst.into(),
            stride: self.stride,
            cpu: self.common.cpu,
            filter: self.case.clone(),
        };
        self.common.report(|audience| engine::run(&options, &["bench", "engine", "--measure"], audience))
    }
}
