//! `bellows campaign purge`.

use std::path::PathBuf;
use std::process::ExitCode;

use bellows_campaign::load;
use clap::Args;

use super::queue::{self, QueueOptions};
use crate::command_error::CommandError;
use crate::subcommand::{Execute, Program};
use crate::terminal;

/// Remove a campaign's queue, with the results in it that are not recorded
#[derive(Debug, Args)]
pub struct Arguments {
    /// The campaign file, or the campaign's name
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    queue: QueueOptions,
}

impl Execute for Arguments {
    fn execute(self, _: &Program) -> Result<ExitCode, CommandError> {
        let name = match load(&self.file) {
            Ok(loaded) => loaded.campaign.name,
            Err(_) if !self.file.exists() => self.file.to_string_lossy().into_owned(),
            Err(diagnostics) => {
                return Err(CommandError::Diagnosed(diagnostics.render(terminal::stderr_is_rich())));
            }
        };
        terminal::print(&queue::purge(&self.queue, &name)?)?;
        Ok(ExitCode::SUCCESS)
    }
}
