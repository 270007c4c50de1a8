//! `bellows bench beside`: what `--beside` runs.

use std::process::ExitCode;

use bellows_lab::beside::{Beside, disturb};
use clap::Args;

use crate::failure::Failure;
use crate::subcommand::{Execute, Program};

/// Disturb what else runs on this machine until standard input ends
#[derive(Debug, Args)]
#[command(hide = true)]
pub struct Arguments {
    /// How: thrash or bursts
    #[arg(value_name = "HOW")]
    how: Beside,
    /// The processor to do so on
    #[arg(long, value_name = "N")]
    cpu: Option<usize>,
}

impl Execute for Arguments {
    fn execute(self, _: &Program) -> Result<ExitCode, Failure> {
        let disturbed = disturb(self.how, self.cpu);
        disturbed.map_err(|error| Failure::Mistake(format!("processor {}: {error}", self.cpu.unwrap_or_default())))?;
        Ok(ExitCode::SUCCESS)
    }
}
