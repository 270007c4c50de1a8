//! `bellows campaign`.

pub mod compare;
pub mod import;
mod observer;
pub mod power;
pub mod purge;
mod queue;
pub mod register;
pub mod report;
pub mod run;
pub mod status;
pub mod test;
pub mod worker;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use bellows_campaign::{ExecuteError, Info, JournalError, Loaded, RunError, load};
use bellows_inspect::text::sanitize;
use clap::Args;

use crate::command_error::CommandError;
use crate::subcommand::{Execute, Program, subcommands};
use crate::terminal;
use crate::text::count;

/// Make, report and compare the runs of a campaign of measurements
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
pub struct CampaignPlace {
    /// The campaign file; to look at results, also their folder
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// The folder of the results [default: beside FILE, with its name and .results]
    #[arg(long, value_name = "FOLDER")]
    results: Option<PathBuf>,
}

/// The copy of a campaign file in the folder of its results.
const COPY: &str = "campaign.toml";

impl CampaignPlace {
    /// The folder of the results.
    fn folder(&self) -> PathBuf {
        let usual = || self.copied().map_or_else(|| self.file.with_extension("results"), Path::to_owned);
        self.results.clone().unwrap_or_else(usual)
    }

    /// The results folder, if that is given in place of the campaign file, or its copy of the file is.
    fn copied(&self) -> Option<&Path> {
        if self.file.is_dir() {
            return Some(&self.file);
        }
        let parent = self.file.parent().filter(|_| self.file.file_name().is_some_and(|name| name == COPY))?;
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        Info::read(parent).is_ok().then_some(parent)
    }

    /// The campaign file, also that in a results folder.
    fn any_file(&self) -> PathBuf {
        if self.file.is_dir() { self.file.join(COPY) } else { self.file.clone() }
    }

    /// Reads the campaign file, also that in a results folder.
    fn load(&self) -> Result<Loaded, CommandError> {
        load(&self.any_file())
            .map_err(|diagnostics| CommandError::Diagnosed(diagnostics.render(terminal::stderr_is_rich())))
    }

    /// Reads the campaign file, to make its runs: the paths of its commands are relative to it, not to a copy.
    fn load_own(&self) -> Result<Loaded, CommandError> {
        match self.copied() {
            Some(folder) if self.results.is_none() => Err(CommandError::Usage(format!(
                "{} has results of a campaign; to make runs, give the campaign file that it is of, and not a copy",
                folder.display()
            ))),
            _ => self.load(),
        }
    }

    /// Reads the campaign file, which must state a hypothesis.
    fn load_hypotheses(&self) -> Result<Loaded, CommandError> {
        let loaded = self.load()?;
        if loaded.campaign.hypotheses.is_empty() {
            let file = self.any_file();
            let file = file.display();
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
        ExecuteError::NotBuilt => CommandError::Usage(error.to_string()),
        error => CommandError::Failed(error.to_string()),
    }
}

fn shown(number: usize) -> String {
    count(number as u64)
}

/// A number with six digits and its unit, if it has one: `812.345 µs`.
fn with_unit(value: f64, unit: &str) -> String {
    let number = six_digits(value);
    if matches!(unit, "" | "1") { number } else { format!("{number} {unit}") }
}

/// A number with six digits: `812.345`.
fn six_digits(value: f64) -> String {
    let magnitude = value.abs();
    if magnitude != 0.0 && !(1e-4..1e15).contains(&magnitude) {
        let text = format!("{value:.5e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        return format!("{}e{exponent}", without_zeros(digits));
    }
    let decimals = (5 - magnitude.max(1e-4).log10().floor() as i64).clamp(0, 9) as usize;
    without_zeros(&format!("{value:.decimals$}")).to_owned()
}

fn without_zeros(number: &str) -> &str {
    if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_six_digits_and_a_unit() {
        assert_eq!(with_unit(6.4975524129746836, "clocks/packet"), "6.49755 clocks/packet");
        assert_eq!(with_unit(1.0225198231749384, "1"), "1.02252");
        assert_eq!(with_unit(957_484_992.0, "b/s"), "957484992 b/s");
        assert_eq!(with_unit(60.5, "Mpps"), "60.5 Mpps");
        assert_eq!(with_unit(6.8625, ""), "6.8625");
        assert_eq!(with_unit(0.0, "s"), "0 s");
        assert_eq!(with_unit(-0.000_123_456_7, "s"), "-0.000123457 s");
        assert_eq!(with_unit(0.000_001, "s"), "1e-6 s");
        assert_eq!(with_unit(-0.000_012_345, "s"), "-1.2345e-5 s");
        assert_eq!(with_unit(1e300, ""), "1e300");
    }
}
