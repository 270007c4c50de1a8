//! `bellows bench beside`: what `--beside` runs.

use std::process::ExitCode;

use bellows_lab::beside::disturb;
use bellows_lab::workers;
use clap::Args;

use crate::failure::Failure;
use crate::subcommand::{Execute, Program};

/// Disturb what else runs on this machine until standard input ends
#[derive(Debug, Args)]
#[command(hide = true)]
pub struct Arguments {}

impl Execute for Arguments {
    fn execute(self, _: &Program) -> Result<ExitCode, Failure> {
        workers::take_part(disturb)?;
        Ok(ExitCode::SUCCESS)
    }
}
