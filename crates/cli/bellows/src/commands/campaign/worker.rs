//! `bellows campaign worker`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::observer::{Printer, stop_at_signals};
use super::queue::{self, QueueOptions, Work};
use crate::command_error::{CommandError, INTERRUPTED};
use crate::subcommand::{Execute, Program};
use crate::terminal;

/// Make runs of a queue, until it is empty
///
/// Any number of workers, on any machines, share the work of `bellows campaign run FILE --queue`. A worker takes whole
/// blocks. Its commands are those of FILE, which must be the same campaign as that of the queue; with --sha256 the file
/// comes from the queue. Ctrl-C gives the block back.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Arguments {
    /// The campaign file; with --sha256 the campaign's name
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    queue: QueueOptions,
    /// Take the file from the queue if this is its SHA-256
    #[arg(long, value_name = "HASH")]
    sha256: Option<String>,
    /// End after this number of blocks
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    blocks: Option<u64>,
    /// Print each run as a line of JSON (see docs/json.md)
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "Examples:
  bellows campaign worker sizes.toml --queue nats://lab
  bellows campaign worker sizes --queue nats://lab --sha256 \"$SHA256\"";

impl Execute for Arguments {
    fn execute(self, _: &Program) -> Result<ExitCode, CommandError> {
        let work = Work { file: &self.file, sha256: self.sha256.as_deref(), max_blocks: self.blocks };
        let stop = stop_at_signals()?;
        let (text, is_interrupted) = queue::work(&self.queue, &work, &stop, &mut Printer::new(self.json))?;
        if !self.json {
            terminal::print(&text)?;
        }
        Ok(if is_interrupted { ExitCode::from(INTERRUPTED) } else { ExitCode::SUCCESS })
    }
}
