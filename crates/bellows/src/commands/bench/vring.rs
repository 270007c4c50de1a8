//! `bellows bench vring`.

use std::process::ExitCode;

use bellows_lab::audience::Audience;
use bellows_lab::workers;
use bellows_lab::vring::{self, Chain, Copies, LONGEST, MOST, Options};
use clap::Args;
use clap::builder::PossibleValuesParser;

use crate::failure::Failure;
use crate::measuring::{failure, print, watched};
use crate::subcommand::{Execute, Program};

/// Measure what a virtio-net ring costs per packet, for each of its options
///
/// A driver and a device share memory in one process. The driver makes a batch available, and the device's one call for it is timed;
/// what the driver does is not counted. Cases: rx, packets to the driver, with freeing them as the app vhost-user does; tx, packets
/// from the driver, with taking their buffers from the pool. What freeing costs is the condition `free`, for comparisons with
/// whole loops. Rows are the options that have machine code of their own, and how packets lie in descriptors: in a single one; the
/// header in one and the data in the next (chained); the same in a table (indirect).
///
/// other-sizes and other-chains: whether a ring's speed depends on what it met before. One ring is measured with packets of 60 bytes,
/// then meets other packets, then is measured again, beside a ring that meets no others; a ratio of 1 says that it makes no difference.
///
/// Some rings at a time live in processes of their own and take turns of a millisecond or two; each has several fresh
/// processes, and a figure is the median over them with its 95 percent confidence interval. Everything takes some minutes; the options restrict it.
#[derive(Debug, Args)]
pub struct Arguments {
    /// Print the report as JSON (see docs/json.md)
    #[arg(long)]
    json: bool,
    /// Only cases whose name contains this
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
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
    /// How rings copy packets: blitter, memcpy, none
    ///
    /// With all three, and rings of both directions, the report says what the blitter gains.
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
    /// Fresh processes per ring; at least 6 for a confidence interval
    #[arg(long, value_name = "N", default_value_t = 9, value_parser = clap::value_parser!(u16).range(1..=1000))]
    processes: u16,
    /// Batches that are timed, some in each turn; of a turn the lower quartile counts
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(4..=10_000_000))]
    rounds: u32,
    /// Processor to measure on [default: last allowed]
    #[arg(long, value_name = "N", value_parser = crate::arguments::processor)]
    cpu: Option<usize>,
    /// Do one task from standard input and write its result (how fresh processes are run)
    #[arg(long, hide = true)]
    measure: bool,
}

fn names() -> PossibleValuesParser {
    PossibleValuesParser::new(vring::option_names())
}

impl Execute for Arguments {
    fn execute(self, _: &Program) -> Result<ExitCode, Failure> {
        if self.measure {
            workers::take_part(vring::lay_out)?;
            return Ok(ExitCode::SUCCESS);
        }
        let options = Options {
            chains: self.chain.clone(),
            copies: self.copies.clone(),
            sizes: self.size.iter().map(|&size| size as usize).collect(),
            with: self.with.clone(),
            without: self.without.clone(),
            batch: self.batch as usize,
            processes: self.processes.into(),
            rounds: self.rounds as usize,
            cpu: self.cpu,
            filter: self.case.clone(),
        };
        let run = |audience: &mut dyn Audience| vring::run(&options, &["bench", "vring", "--measure"], audience);
        let report = watched(self.json, run).map_err(failure)?;
        print(&report, self.json, vring::text_after_rows)
    }
}
