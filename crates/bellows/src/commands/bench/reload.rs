//! `bellows bench reload`.

use std::process::ExitCode;

use bellows_lab::audience::Audience;
use bellows_lab::workers;
use bellows_lab::reload::{self, Options};
use clap::Args;

use super::Common;
use crate::failure::Failure;
use crate::subcommand::{Execute, Program};

/// Measure how long a reload takes, and how long packets wait for it
///
/// An engine runs at full speed while another thread swaps its network for one in which half of the apps are others, and
/// back. Cases, in nanoseconds: swap (from the network to its running), pause (no breath is taken), parse (from the network file's text to the network). The median is over the processes' medians;
/// p99, maximum and histogram are over all swaps. In the end every packet must be accounted for, or the benchmark fails.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(flatten)]
    common: Common,
    /// Apps in the network, in rows of eight
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u16).range(1..=2000))]
    apps: u16,
    /// Reloads per process
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    reloads: u32,
    /// Fresh processes per schedule; at least 6 for a confidence interval
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u16).range(1..=1000))]
    processes: u16,
}

impl Execute for Arguments {
    fn execute(self, _: &Program) -> Result<ExitCode, Failure> {
        if self.common.measure {
            workers::answer(reload::measure)?;
            return Ok(ExitCode::SUCCESS);
        }
        let options = Options {
            schedules: self.common.schedules(),
            apps: self.apps.into(),
            reloads: self.reloads as usize,
            processes: self.processes.into(),
            cpu: self.common.cpu,
        };
        let run = |audience: &mut dyn Audience| reload::run(&options, &["bench", "reload", "--measure"], audience);
        self.common.whole_report(run)
    }
}
