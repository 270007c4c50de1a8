//! `bellows campaign import`.

use std::path::PathBuf;
use std::process::ExitCode;

use bellows_campaign::{ColumnNames, ImportFolderError, import_folder};
use bellows_inspect::text::sanitize;
use clap::Args;

use super::{journal_error, shown};
use crate::command_error::CommandError;
use crate::subcommand::{Execute, Program};
use crate::terminal;

/// Make a results folder from a table of results
///
/// The table is CSV with a header and a row a run. Every column that is not named here is a factor. The folder has a
/// campaign file without a command: its results can be reported and tested, but no runs can be added.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Arguments {
    /// The table, .csv
    #[arg(value_name = "TABLE")]
    table: PathBuf,
    /// The folder, which must not exist
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
    /// The column of scores
    #[arg(long, value_name = "COLUMN", default_value = "score")]
    score: String,
    /// The column with the number of the repetition, if there is one
    #[arg(long, value_name = "COLUMN", default_value = "id")]
    id: String,
    /// The column of units, if there is one
    #[arg(long, value_name = "COLUMN", default_value = "unit")]
    unit_column: String,
    /// The unit of all scores, if no column has it
    #[arg(long, value_name = "UNIT", default_value = "", hide_default_value = true)]
    unit: String,
    /// Columns to leave out
    #[arg(long, value_name = "COLUMN,…", value_delimiter = ',')]
    ignore: Vec<String>,
}

const EXAMPLES: &str = "Examples:
  bellows campaign import bench.csv old.results
  bellows campaign import times.csv times.results --score seconds --unit s";

impl Execute for Arguments {
    fn execute(self, _: &Program) -> Result<ExitCode, CommandError> {
        let names = ColumnNames {
            score: self.score,
            id: self.id,
            unit: self.unit_column,
            default_unit: self.unit,
            ignored: self.ignore,
        };
        let imported = import_folder(&self.table, &self.folder, &names).map_err(|error| match error {
            ImportFolderError::Folder(error) => journal_error(error),
            error => CommandError::Usage(error.to_string()),
        })?;
        let failures = match imported.failed {
            0 => String::new(),
            failed => format!(", {} without a score", shown(failed)),
        };
        let file = sanitize(&imported.file.display().to_string());
        terminal::print(&format!("{} runs{failures}: {file}\n", shown(imported.runs)))?;
        Ok(ExitCode::SUCCESS)
    }
}
