//! `bellows bench engine`.

use std::process::ExitCode;

use bellows_lab::engine::{self, Options};
use bellows_lab::processes;
use clap::Args;

use super::Common;
use crate::failure::Failure;

/// Measure what the engine costs a packet, in clocks of the time-stamp counter
///
/// Each case is measured in several fresh processes, which take turns; the figure is the median over them, with the
/// median's 95 percent confidence interval. The reference is the bare work of the apps without an engine, measured in
/// the same processes. Cases: source-sink and source-tee-sinks, chain (the cost of each further app that hands its
/// vector on, or loops over its packets), in-flight (source to sink with so many packets between), pcap-reader
/// (a capture of small packets in the page cache, in million packets a second), idle (a breath of a network of 30 apps
/// in which nothing moves, in nanoseconds), metering and timeline (from source to sink with instrumented breaths against
/// without, and with a timeline against without), timeline-event (writing an event).
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(flatten)]
    common: Common,
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
}

pub fn execute(arguments: &Arguments) -> Result<ExitCode, Failure> {
    if arguments.common.measure {
        processes::answer(engine::measure)?;
        return Ok(ExitCode::SUCCESS);
    }
    let options = Options {
        schedules: arguments.common.schedules(),
        processes: arguments.processes.into(),
        rounds: arguments.rounds.into(),
        burst: arguments.burst.into(),
        stride: arguments.stride,
        cpu: arguments.common.cpu,
        filter: arguments.case.clone(),
    };
    arguments.common.report(|progress| engine::run(&options, &["bench", "engine", "--measure"], progress))
}
