//! `bellows campaign`.

mod observer;
mod queue;

use std::path::PathBuf;
use std::process::ExitCode;

use bellows_campaign::{ExecuteError, JournalError, Loaded, RunError, load};
use bellows_inspect::text::sanitize;
use clap::Args;

use crate::command_error::CommandError;
use crate::subcommand::{Execute, Program, subcommands};
use crate::terminal;
use crate::text::count;

/// Make the runs of a campaign, compare versions, test hypotheses, report
///
/// A campaign file names factors with their levels, and the command of a run. Runs are made in random order within
/// blocks, each of which has every combination once. Their results are rows in a folder, `results.csv` and
/// `results.jsonl`, which are never rewritten; an interrupted campaign goes on where it was. docs/campaigns.md explains
/// the file, and what a test refuses.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(subcommand)]
    action: Action,
}

subcommands! {
    /// What to do.
    pub enum Action {
        Run(run),
        Status(status),
        Report(report),
        Compare(compare),
        Register(register),
        Test(test),
        Power(power),
        Import(import),
        Worker(worker),
        Purge(purge),
    }
}

impl Execute for Arguments {
    fn execute(self, program: &Program) -> Result<ExitCode, CommandError> {
        self.action.execute(program)
    }

    fn only_reports(&self) -> bool {
        self.action.only_reports()
    }
}

/// A campaign file and the folder of its results.
#[derive(Debug, Args)]
pub struct Place {
    /// The campaign file
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// The folder of the results [default: beside FILE, with its name and .results]
    #[arg(long, value_name = "FOLDER")]
    results: Option<PathBuf>,
}

impl Place {
    /// The folder of the results.
    fn folder(&self) -> PathBuf {
        self.results.clone().unwrap_or_else(|| self.file.with_extension("results"))
    }

    /// Reads the campaign file.
    fn load(&self) -> Result<Loaded, CommandError> {
        load(&self.file).map_err(|diagnostics| CommandError::Diagnosed(diagnostics.render(terminal::stderr_is_rich())))
    }

    /// Reads the campaign file, which must state a hypothesis.
    fn load_hypotheses(&self) -> Result<Loaded, CommandError> {
        let loaded = self.load()?;
        if loaded.campaign.hypotheses.is_empty() {
            let file = self.file.display();
            return Err(CommandError::Usage(format!("{file} states no hypothesis; add a table [[hypothesis]]")));
        }
        Ok(loaded)
    }
}

fn journal_error(error: JournalError) -> CommandError {
    match error {
        JournalError::Io { .. } | JournalError::Damaged { .. } | JournalError::Disagreement { .. } => {
            CommandError::Failed(error.to_string())
        }
        _ => CommandError::Usage(error.to_string()),
    }
}

/// Writes a sentence to standard error.
fn say(text: &str) {
    terminal::notice(&(sanitize(text) + "\n"));
}

fn run_error(error: RunError) -> CommandError {
    match error {
        RunError::Execute(error) => execute_error(error),
        RunError::Journal(error) => journal_error(error),
    }
}

fn execute_error(error: ExecuteError) -> CommandError {
    match error {
        ExecuteError::Stopped => CommandError::Interrupted("interrupted".to_owned()),
        error => CommandError::Failed(error.to_string()),
    }
}

fn shown(number: usize) -> String {
    count(number as u64)
}
