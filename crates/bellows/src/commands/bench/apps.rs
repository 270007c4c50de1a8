//! `bellows bench apps`.

use std::process::ExitCode;

use bellows_lab::apps::{self, Options};
use bellows_lab::audience::Audience;
use bellows_lab::residence::Resident;
use clap::Args;

use super::Common;
use crate::commands::appbench;
use crate::failure::Failure;
use crate::measuring::{print, watched};
use crate::subcommand::{Execute, Program};

/// Measure what every app costs per packet, from each level of the caches
///
/// Each figure is a difference: from source to sink through the app, less from source to sink without it, as `bellows
/// appbench` measures it, with packets of 60 bytes. Apps that need keys get some.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(flatten)]
    common: Common,
    /// Only apps whose name contains this
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    case: String,
    /// Cache levels that packets come from
    #[arg(long, value_name = "LEVEL,…", value_delimiter = ',', default_value = "l1,l2,l3,dram")]
    resident: Vec<Resident>,
    /// Packets per run and process
    #[arg(long, value_name = "N", default_value = "1000000", value_parser = appbench::packets)]
    packets: u64,
    /// Fresh processes per figure; at least 6 for a confidence interval
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u16).range(1..=1000))]
    processes: u16,
    /// Packets per breath
    #[arg(long, value_name = "PACKETS", default_value_t = 128, value_parser = clap::value_parser!(u16).range(1..=1024))]
    burst: u16,
}

impl Execute for Arguments {
    fn execute(self, program: &Program) -> Result<ExitCode, Failure> {
        let options = Options {
            schedule: self.common.schedule.unwrap_or_default(),
            residents: self.resident.clone(),
            packets: self.packets,
            processes: self.processes.into(),
            burst: self.burst.into(),
            cpu: self.common.cpu,
            filter: self.case.clone(),
        };
        let _disturbance = self.common.disturbance()?;
        let run = |audience: &mut dyn Audience| apps::run(&options, appbench::MEASURE, &program.registry, audience);
        let outcome = watched(self.common.json, run).map_err(appbench::failure)?;
        let code = print(&outcome.report, self.common.json, |_| outcome.text_after_rows())?;
        Ok(if outcome.panicked { ExitCode::FAILURE } else { code })
    }
}
