//! `bellows campaign run`.

use std::process::ExitCode;
use std::sync::Arc;
use std::thread;

use bellows_campaign::{Journal, LocalExecutor, Observer, Progress, Row, RunError, RunId, Stop, run};
use bellows_inspect::text::sanitize;
use clap::Args;
use serde_json::json;

use super::{Place, execute_error, journal_error, shown};
use crate::command_error::{CommandError, INTERRUPTED};
use crate::subcommand::{Execute, Program};
use crate::supervisor::catch_signals;
use crate::terminal;
use crate::text::span;

/// Make the runs that have no results yet
///
/// Each run prints a line. Ctrl-C ends the run that is being made, which is not recorded; the same command goes on
/// there later.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Arguments {
    #[command(flatten)]
    place: Place,
    /// The number of blocks, instead of that in the file
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    repeats: Option<u32>,
    /// Print each run as a line of JSON (see docs/json.md)
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "Examples:
  bellows campaign run sizes.toml
  bellows campaign run sizes.toml --repeats 30 --results monday";

impl Execute for Arguments {
    fn execute(self, _: &Program) -> Result<ExitCode, CommandError> {
        let (loaded, folder) = (self.place.load()?, self.place.folder());
        let stop = stop_at_signals()?;
        let executor = LocalExecutor::new(&loaded.campaign, &loaded.folder).map_err(execute_error)?;
        let mut journal = Journal::open(&folder, &loaded.campaign, &loaded.text).map_err(journal_error)?;
        if let Some(repeats) = self.repeats {
            journal.set_repeats(repeats).map_err(journal_error)?;
        }
        journal.notes().iter().for_each(|note| terminal::notice(note));
        let mut executor = executor.with_journal(&journal);
        let mut printer = Printer { as_json: self.json };
        let summary = run(&mut journal, &mut executor, &stop, &mut printer).map_err(run_error)?;
        if !self.json {
            let [done, all, made, failed] = [summary.done, summary.all, summary.made, summary.failed].map(shown);
            let failures = if summary.failed == 0 { String::new() } else { format!(", {failed} without a score") };
            terminal::print(&format!(
                "{done} of {all} runs have results{failures}; {made} were made now: {}\n",
                sanitize(&folder.join(bellows_campaign::TABLE).display().to_string())
            ))?;
        }
        Ok(if summary.interrupted { ExitCode::from(INTERRUPTED) } else { ExitCode::SUCCESS })
    }
}

fn run_error(error: RunError) -> CommandError {
    match error {
        RunError::Execute(error) => execute_error(error),
        RunError::Journal(error) => journal_error(error),
    }
}

/// A request to stop that signals make.
fn stop_at_signals() -> Result<Arc<Stop>, CommandError> {
    let failed = |error: std::io::Error| CommandError::Failed(format!("a campaign cannot be stopped: {error}"));
    let stop = Arc::new(Stop::new().map_err(failed)?);
    let (mut signals, request) = (catch_signals()?, Arc::clone(&stop));
    thread::spawn(move || {
        for (number, _) in signals.forever().enumerate() {
            if number > 0 {
                // Rows are safe at any moment, and the next runner ends what is left.
                std::process::exit(INTERRUPTED.into());
            }
            terminal::notice("tidying up; interrupt again to end at once");
            request.set();
        }
    });
    Ok(stop)
}

/// Prints each run when it is recorded.
struct Printer {
    as_json: bool,
}

impl Observer for Printer {
    fn started(&mut self, _: RunId, progress: &Progress) {
        if !self.as_json && terminal::shows_stdout() {
            terminal::show_status(&line_of(progress));
        }
    }

    fn recorded(&mut self, row: &Row, progress: &Progress) {
        let text = if self.as_json { format!("{}\n", json!(row)) } else { format!("{}\n", line(row, progress)) };
        if terminal::shows_stdout() {
            terminal::clear_status();
        }
        // The results are in their folder: a failure to print loses nothing.
        let _ = terminal::print(&text);
    }
}

/// How far a campaign is: `12 of 30, 1 min 05 s left`.
fn line_of(progress: &Progress) -> String {
    let left = progress.left.map_or(String::new(), |left| format!(", {} left", span(left)));
    format!("{} of {}{left}", shown(progress.done), shown(progress.all))
}

/// A run: `12 of 30, 1 min 05 s left: md5sum, small: 812 µs`.
fn line(row: &Row, progress: &Progress) -> String {
    let levels = row.levels.values().map(String::as_str).collect::<Vec<_>>().join(", ");
    let scores: Vec<String> = row
        .scores
        .iter()
        .filter_map(|score| Some(format!("{} {}", score.value?, score.unit).trim_end().to_owned()))
        .collect();
    let result = match row.first_failure() {
        Some(failure) => failure.to_string(),
        None => scores.join(", "),
    };
    let disturbed = match row.disturbed.is_empty() {
        true => String::new(),
        false => format!(" (disturbed: {})", row.disturbed.join("; ")),
    };
    sanitize(&format!("{}: {levels}: {result}{disturbed}", line_of(progress)).replace('\n', " "))
}
