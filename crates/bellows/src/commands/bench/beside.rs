//! `bellows bench beside`: what `--beside` runs.

use std::process::ExitCode;

use bellows_lab::beside::{Beside, disturb};
use clap::Args;

use crate::failure::Failure;

/// Disturb what else runs on this machine until standard input ends
#[derive(Debug, Args)]
pub struct Arguments {
    /// How: thrash or bursts
    #[arg(value_name = "HOW")]
    how: Beside,
    /// The processor to do so on
    #[arg(long, value_name = "N")]
    cpu: Option<usize>,
}

pub fn execute(arguments: &Arguments) -> Result<ExitCode, Failure> {
    let disturbed = disturb(arguments.how, arguments.cpu);
    disturbed.map_err(|error| Failure::Mistake(format!("processor {}: {error}", arguments.cpu.unwrap_or_default())))?;
    Ok(ExitCode::SUCCESS)
}
