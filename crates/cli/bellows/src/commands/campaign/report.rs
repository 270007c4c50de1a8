//! `bellows campaign report`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bellows_campaign::is_results_file;
use bellows_report::{Picture, Report, ReportError, ReportOptions, ResultSource};
use bellows_sys::{FileError, atomic_file};
use clap::Args;
use serde_json::json;

use super::{journal_error, say};
use crate::command_error::CommandError;
use crate::subcommand::{Execute, Program};
use crate::terminal;

/// Report what a campaign's runs say: as text, as a page, as pictures
///
/// Without --output and --svg the report is printed. It says what was run, shows the distribution of the scores by the
/// factor of interest and by all other factors, the whole matrix, and the course of time, and compares the means of all
/// levels. What registered hypotheses say is kept apart from what is seen by looking.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Arguments {
    /// The campaign file, a folder of results, or a table with a row a run (.csv)
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The folder of the campaign file's results [default: beside FILE, with its name and .results]
    #[arg(long, value_name = "FOLDER")]
    results: Option<PathBuf>,
    /// The factor whose levels are compared [default: that of the first hypothesis, else that of versions]
    #[arg(long, value_name = "FACTOR")]
    by: Option<String>,
    /// Only this score
    #[arg(long, value_name = "NAME")]
    score: Option<String>,
    /// Write a page, which needs no other file: report.html
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Write each picture as SVG to this folder, which is created if needed
    #[arg(long, value_name = "FOLDER")]
    svg: Option<PathBuf>,
    /// Print JSON (see docs/json.md)
    #[arg(long)]
    json: bool,
}

/// Columns of a report that goes to a file.
const DEFAULT_WIDTH: usize = 100;

const EXAMPLES: &str = "Examples:
  bellows campaign report sizes.toml
  bellows campaign report sizes.toml --by version -o sizes.html
  bellows campaign report old.csv --score rate --svg pictures";

impl Execute for Arguments {
    fn execute(self, _: &Program) -> Result<ExitCode, CommandError> {
        if let Some(path) = &self.output {
            check_output(path, &self.file)?;
        }
        let source = ResultSource::open(&self.file, self.results.as_deref()).map_err(report_error)?;
        let report = Report::of(&source, &ReportOptions { by: self.by, score: self.score }).map_err(report_error)?;
        if let Some(path) = &self.output {
            write(path, &report.html().map_err(report_error)?)?;
        }
        if let Some(folder) = &self.svg {
            write_pictures(folder, &report.pictures())?;
        }
        if self.json {
            terminal::print(&format!("{:#}\n", json!(report)))?;
        } else if self.output.is_none() && self.svg.is_none() {
            let width = terminal::size().map_or(DEFAULT_WIDTH, |(columns, _)| columns);
            terminal::print(&report.text(width))?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn only_reports(&self) -> bool {
        self.output.is_none() && self.svg.is_none()
    }
}

fn write_pictures(folder: &Path, pictures: &[Picture]) -> Result<(), CommandError> {
    fs::create_dir_all(folder).map_err(|error| {
        CommandError::Usage(FileError::of("create", folder, &error, "choose another folder").to_string())
    })?;
    pictures.iter().try_for_each(|picture| write(&folder.join(format!("{}.svg", picture.name)), &picture.svg))
}

/// Refuses to write over what the report is of.
pub(super) fn check_output(path: &Path, input: &Path) -> Result<(), CommandError> {
    let is_input = path.canonicalize().is_ok_and(|path| input.canonicalize().is_ok_and(|input| input == path));
    let what = match is_input {
        true => "what the report is of",
        false if is_results_file(path) => "a file of a results folder",
        false if path.parent().is_some_and(|folder| !folder.as_os_str().is_empty() && !folder.is_dir()) => {
            "in a folder that does not exist"
        }
        false => return Ok(()),
    };
    Err(CommandError::Usage(format!("{} is {what}; choose another file", path.display())))
}

/// Writes a file, whole or not at all, and says so.
pub(super) fn write(path: &Path, text: &str) -> Result<(), CommandError> {
    // A device or a link is written to, and not replaced.
    let is_other = fs::symlink_metadata(path).is_ok_and(|known| !known.is_file());
    let written = if is_other { fs::write(path, text) } else { atomic_file::write(path, text.as_bytes(), None) };
    written.map_err(|error| CommandError::Usage(FileError::writing(path, &error).to_string()))?;
    say(&format!("wrote {}", path.display()));
    Ok(())
}

fn report_error(error: ReportError) -> CommandError {
    match error {
        ReportError::Campaign(diagnostics) => CommandError::Diagnosed(diagnostics.render(terminal::stderr_is_rich())),
        ReportError::Journal(error) => journal_error(error),
        ReportError::Template(_) => CommandError::Failed(error.to_string()),
        error => CommandError::Usage(error.to_string()),
    }
}
