//! `bellows bench blit`.

use std::process::ExitCode;

use bellows_lab::blit::{self, Options, Size, Where};
use bellows_lab::processes;
use clap::Args;

use super::told;
use crate::failure::Failure;
use crate::terminal;

/// Measure how fast copies are made that are gathered and done together, against memcpy
///
/// Packets are copied from one row of buffers to another, one call of memcpy for each, and by a blitter with a barrier after
/// so many. Cases: copy (the blitter decides when a copy is done), deferred (all are done at the barrier). A ratio above 1
/// says that the blitter is faster; it is the median of the processes' ratios with its 95 percent confidence interval.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Print the report as JSON (see docs/json.md)
    #[arg(long)]
    json: bool,
    /// Only cases with this in their name
    #[arg(long, value_name = "TEXT", default_value = "")]
    case: String,
    /// Bytes of a copy, or imix: 60, 576 and 1500 bytes as 7 : 4 : 1 in random order
    #[arg(
        long,
        value_name = "BYTES,…",
        value_delimiter = ',',
        default_value = "32,60,64,128,256,512,1024,1500,4096,9000,imix"
    )]
    size: Vec<Size>,
    /// Copies between barriers
    #[arg(
        long,
        value_name = "N,…",
        value_delimiter = ',',
        default_value = "1,32,256",
        value_parser = clap::value_parser!(u16).range(1..=1024)
    )]
    batch: Vec<u16>,
    /// Where sources and destinations lie
    #[arg(long = "where", value_name = "LEVEL,…", value_delimiter = ',', default_value = "l1,l2,l3,cold")]
    places: Vec<Where>,
    /// Fresh processes for each figure; an interval needs six
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u16).range(1..=1000))]
    processes: u16,
    /// Rounds in each process, of which the lower quartile counts
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u16).range(1..=60_000))]
    rounds: u16,
    /// The processor to measure on; by default the last that may be used
    #[arg(long, value_name = "N")]
    cpu: Option<usize>,
    /// Take a task from standard input, do it, and write what was measured (how the fresh processes are run)
    #[arg(long, hide = true)]
    measure: bool,
}

pub fn execute(arguments: &Arguments) -> Result<ExitCode, Failure> {
    if arguments.measure {
        processes::answer(blit::measure)?;
        return Ok(ExitCode::SUCCESS);
    }
    let options = Options {
        sizes: arguments.size.clone(),
        batches: arguments.batch.iter().map(|&batch| batch.into()).collect(),
        places: arguments.places.clone(),
        processes: arguments.processes.into(),
        rounds: arguments.rounds.into(),
        cpu: arguments.cpu,
        filter: arguments.case.clone(),
    };
    let outcome = told(|progress| blit::run(&options, &["bench", "blit", "--measure"], progress));
    let outcome = outcome.map_err(|error| Failure::Mistake(error.to_string()))?;
    let text = match arguments.json {
        true => format!("{:#}\n", serde_json::json!(outcome.report)),
        false => outcome.text(),
    };
    terminal::print(&text)?;
    Ok(ExitCode::SUCCESS)
}
