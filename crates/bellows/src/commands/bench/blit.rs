//! `bellows bench blit`.

use std::process::ExitCode;

use bellows_lab::blit::{self, Options, Size, Where};
use bellows_lab::audience::Audience;
use bellows_lab::workers;
use clap::Args;

use crate::failure::Failure;
use crate::measuring::{failure, print, watched};
use crate::subcommand::{Execute, Program};

/// Measure how fast batched packet copies are, against memcpy
///
/// Packets are copied from one row of buffers to another, one call of memcpy for each, and by a blitter with a barrier after
/// so many. Cases: copy (the blitter decides when a copy is done), deferred (all are done at the barrier). A ratio above 1
/// says that the blitter is faster; it is the median of the processes' ratios with its 95 percent confidence interval.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Print the report as JSON (see docs/json.md)
    #[arg(long)]
    json: bool,
    /// Only cases whose name contains this
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    case: String,
    /// Bytes per copy, or imix: 60, 576 and 1500 bytes as 7 : 4 : 1, shuffled
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
    /// Cache levels of sources and destinations
    #[arg(long = "where", value_name = "LEVEL,…", value_delimiter = ',', default_value = "l1,l2,l3,cold")]
    places: Vec<Where>,
    /// Fresh processes per figure; at least 6 for a confidence interval
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u16).range(1..=1000))]
    processes: u16,
    /// Rounds per process, of which the lower quartile counts
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u16).range(1..=60_000))]
    rounds: u16,
    /// Processor to measure on [default: last allowed]
    #[arg(long, value_name = "N", value_parser = crate::arguments::processor)]
    cpu: Option<usize>,
    /// Do one task from standard input and write its result (how fresh processes are run)
    #[arg(long, hide = true)]
    measure: bool,
}

impl Execute for Arguments {
    fn execute(self, _: &Program) -> Result<ExitCode, Failure> {
        if self.measure {
            workers::answer(blit::measure)?;
            return Ok(ExitCode::SUCCESS);
        }
        let options = Options {
            sizes: self.size.clone(),
            batches: self.batch.iter().map(|&batch| batch.into()).collect(),
            places: self.places.clone(),
            processes: self.processes.into(),
            rounds: self.rounds.into(),
            cpu: self.cpu,
            filter: self.case.clone(),
        };
        let run = |audience: &mut dyn Audience| blit::run(&options, &["bench", "blit", "--measure"], audience);
        let outcome = watched(self.json, run).map_err(failure)?;
        print(&outcome.report, self.json, |_| outcome.text())
    }
}
