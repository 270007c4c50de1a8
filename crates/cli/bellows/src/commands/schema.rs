//! `bellows schema`.

use std::process::ExitCode;

use clap::Args;

use crate::command_error::CommandError;
use crate::subcommand::{Execute, Program};
use crate::terminal;

const USAGE: &str = "Write it beside your networks, and name it in the first line of each:

    bellows schema > bellows.schema.json

    #:schema ./bellows.schema.json
    links = [...]

Editors that understand TOML by `taplo` (Even Better TOML for VS Code; Helix, Neovim, Zed, …) then complete keys, \
     show their descriptions, and underline syntax and type errors. `bellows check` finds the others.";

/// Print the JSON Schema of network files, for editors
///
/// The schema describes a whole file: its top level, the table [engine], and a table for each app type that this
/// command knows, with descriptions, units, defaults and ranges (JSON Schema, draft 2020-12).
#[derive(Debug, Args)]
#[command(after_help = USAGE)]
pub struct Arguments {
    /// The schema of files of parts, which apps name with `network`, instead
    #[arg(long)]
    part: bool,
    /// The reference of the JSON that commands print, in Markdown, instead
    #[arg(long, conflicts_with = "part")]
    reports: bool,
}

impl Execute for Arguments {
    fn execute(self, program: &Program) -> Result<ExitCode, CommandError> {
        if self.reports {
            terminal::print(&(program.reference)())?;
            return Ok(ExitCode::SUCCESS);
        }
        let registry = &program.registry;
        let schema = if self.part { registry.part_schema() } else { registry.file_schema() };
        terminal::print(&format!("{schema:#}\n"))?;
        Ok(ExitCode::SUCCESS)
    }
}
