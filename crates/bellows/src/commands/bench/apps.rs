//! `bellows bench apps`.

use std::process::ExitCode;

use bellows_config::Registry;
use bellows_lab::apps::{self, Options};
use bellows_lab::processes::Audience;
use bellows_lab::residence::Resident;
use clap::Args;

use super::{Common, print};
use crate::commands::appbench;
use crate::commands::watching::watched;
use crate::failure::Failure;

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

pub fn execute(arguments: &Arguments, registry: &Registry) -> Result<ExitCode, Failure> {
    let options = Options {
        schedule: arguments.common.schedule.unwrap_or_default(),
        residents: arguments.resident.clone(),
        packets: arguments.packets,
        processes: arguments.processes.into(),
        burst: arguments.burst.into(),
        cpu: arguments.common.cpu,
        filter: arguments.case.clone(),
    };
    let _disturbance = arguments.common.disturbance()?;
    let run = |audience: &mut dyn Audience| apps::run(&options, appbench::MEASURE, registry, audience);
    let outcome = watched(arguments.common.json, run).map_err(appbench::failure)?;
    let code = print(&outcome.report, arguments.common.json, |_| outcome.text_after_rows())?;
    Ok(if outcome.panicked { ExitCode::FAILURE } else { code })
}
