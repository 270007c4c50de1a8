//! `bellows bench apps`.

use std::process::ExitCode;

use bellows_config::Registry;
use bellows_lab::apps::{self, Options};
use bellows_lab::residence::Resident;
use clap::Args;

use super::{Common, told};
use crate::commands::appbench;
use crate::failure::Failure;
use crate::terminal;

/// Measure what every app costs a packet, with packets from each level of the memory hierarchy
///
/// Each figure is a difference: from source to sink through the app, less from source to sink without it, as `bellows
/// appbench` measures it, with packets of 60 bytes. Apps that need keys get some.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(flatten)]
    common: Common,
    /// Only apps with this in their name
    #[arg(long, value_name = "TEXT", default_value = "")]
    case: String,
    /// Where packets come from
    #[arg(long, value_name = "LEVEL,…", value_delimiter = ',', default_value = "l1,l2,l3,dram")]
    resident: Vec<Resident>,
    /// Packets of each run in each process
    #[arg(long, value_name = "N", default_value = "1000000", value_parser = appbench::packets)]
    packets: u64,
    /// Fresh processes for each figure; an interval needs six
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u16).range(1..=1000))]
    processes: u16,
    /// Packets a breath
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
    let outcome = told(|progress| apps::run(&options, appbench::MEASURE, registry, progress));
    let outcome = outcome.map_err(appbench::failure)?;
    let text = match arguments.common.json {
        true => format!("{:#}\n", serde_json::json!(outcome.report)),
        false => outcome.text(),
    };
    terminal::print(&text)?;
    Ok(ExitCode::SUCCESS)
}
