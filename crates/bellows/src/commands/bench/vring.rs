//! `bellows bench vring`.

use std::process::ExitCode;

use bellows_lab::processes;
use bellows_lab::vring::{self, Chain, Copies, LONGEST, MOST, Options};
use clap::Args;
use clap::builder::PossibleValuesParser;

use super::told;
use crate::failure::Failure;
use crate::terminal;

/// Measure what a ring of a virtio-net device costs a packet, for every combination of its options
///
/// A driver and a device share memory in one process. The driver makes a batch available, and the device's one call for it is timed;
/// what the driver does is not counted. Cases: rx, packets to the driver, with freeing them as the app vhost-user does; tx, packets
/// from the driver, with taking their buffers from the pool. What freeing costs is the condition `free`, for comparisons with
/// whole loops. Rows are the options that have machine code of their own, and how packets lie in descriptors: in a single one; the
/// header in one and the data in the next (chained); the same in a table (indirect).
///
/// other-sizes and other-chains: whether a ring's speed depends on what it met before. One ring is measured with packets of 60 bytes,
/// then meets other packets, then is measured again; a ratio of 1 says that it makes no difference.
///
/// Each ring is measured in several fresh processes, which take turns; a figure is the median over them with its 95 percent
/// confidence interval. Everything takes some minutes; the options restrict it.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Print the report as JSON (see docs/json.md)
    #[arg(long)]
    json: bool,
    /// Only cases with this in their name
    #[arg(long, value_name = "TEXT", default_value = "")]
    case: String,
    /// Only rings with these options
    #[arg(long, value_name = "OPTION,…", value_delimiter = ',', value_parser = names())]
    with: Vec<String>,
    /// Only rings without these options
    #[arg(long, value_name = "OPTION,…", value_delimiter = ',', value_parser = names())]
    without: Vec<String>,
    /// How packets lie in descriptors
    #[arg(long, value_name = "CHAIN,…", value_delimiter = ',', default_value = "single,chained,indirect")]
    chain: Vec<Chain>,
    /// How the rings do their copies: blitter, memcpy, none; with all three, and rings of both directions, what the blitter gains is told
    #[arg(long, value_name = "HOW,…", value_delimiter = ',', default_value = "blitter")]
    copies: Vec<Copies>,
    /// Lengths of packets in bytes
    #[arg(
        long,
        value_name = "N,…",
        value_delimiter = ',',
        default_value = "60,256,1500",
        value_parser = clap::value_parser!(u64).range(1..=LONGEST as u64)
    )]
    size: Vec<u64>,
    /// Packets in a batch
    #[arg(
        long,
        value_name = "N",
        default_value_t = MOST as u64,
        value_parser = clap::value_parser!(u64).range(1..=MOST as u64)
    )]
    batch: u64,
    /// Fresh processes for each ring; an interval needs six
    #[arg(long, value_name = "N", default_value_t = 9, value_parser = clap::value_parser!(u16).range(1..=1000))]
    processes: u16,
    /// Batches that are timed, of which the lower quartile counts
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(4..=10_000_000))]
    rounds: u32,
    /// The processor to measure on; by default the last that may be used
    #[arg(long, value_name = "N")]
    cpu: Option<usize>,
    /// Take a task from standard input, do it, and write what was measured (how the fresh processes are run)
    #[arg(long, hide = true)]
    measure: bool,
}

fn names() -> PossibleValuesParser {
    PossibleValuesParser::new(vring::option_names())
}

pub fn execute(arguments: &Arguments) -> Result<ExitCode, Failure> {
    if arguments.measure {
        processes::answer(vring::measure)?;
        return Ok(ExitCode::SUCCESS);
    }
    let options = Options {
        chains: arguments.chain.clone(),
        copies: arguments.copies.clone(),
        sizes: arguments.size.iter().map(|&size| size as usize).collect(),
        with: arguments.with.clone(),
        without: arguments.without.clone(),
        batch: arguments.batch as usize,
        processes: arguments.processes.into(),
        rounds: arguments.rounds as usize,
        cpu: arguments.cpu,
        filter: arguments.case.clone(),
    };
    let report = told(|progress| vring::run(&options, &["bench", "vring", "--measure"], progress));
    let report = report.map_err(|error| Failure::Mistake(error.to_string()))?;
    let text = match arguments.json {
        true => format!("{:#}\n", serde_json::json!(report)),
        false => vring::text(&report),
    };
    terminal::print(&text)?;
    Ok(ExitCode::SUCCESS)
}
