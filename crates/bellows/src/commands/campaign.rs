//! `bellows campaign`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;

use bellows_campaign::{
    Campaign, Conclusion, Estimate, ExecuteError, Journal, JournalError, Loaded, LocalExecutor, Observer, Progress,
    Record, Row, RunError, RunId, Status, Stop, Verdict, load, register, run, verdicts,
};
use bellows_inspect::text::sanitize;
use clap::Args;
use serde_json::json;

use crate::command_error::{CommandError, INTERRUPTED};
use crate::subcommand::{Execute, Program};
use crate::supervisor::catch_signals;
use crate::terminal;
use crate::text::{count, span};

/// Make the runs of a campaign, and test hypotheses on them
///
/// A campaign file names factors with their levels, and the command of a run. Runs are made in random order within
/// blocks, each of which has every combination once. Their results are rows in a folder, `results.csv` and
/// `results.jsonl`, which are never rewritten; an interrupted campaign goes on where it was. docs/campaigns.md explains
/// the file, and what a test refuses.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Arguments {
    /// run, status, register or test
    #[arg(value_name = "ACTION")]
    action: Action,
    /// The campaign file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The folder of the results [default: beside FILE, with its name and .results]
    #[arg(long, value_name = "FOLDER")]
    results: Option<PathBuf>,
    /// For run: the number of blocks, instead of that in the file
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    repeats: Option<u32>,
    /// Print JSON (see docs/json.md)
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "Examples:
  bellows campaign run sizes.toml
  bellows campaign run sizes.toml --repeats 30
  bellows campaign status sizes.toml --json
  bellows campaign register sizes.toml
  bellows campaign test sizes.toml";

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Action {
    /// Make the runs that have no results yet.
    Run,
    /// Print what the results folder has.
    Status,
    /// Fix the text of the file's hypotheses, and the time: only later runs can confirm them.
    Register,
    /// Say whether the runs confirm the hypotheses.
    Test,
}

impl Execute for Arguments {
    fn execute(self, _: &Program) -> Result<ExitCode, CommandError> {
        if self.action != Action::Run && self.repeats.is_some() {
            return Err(CommandError::Usage("`--repeats` is for `run`".to_owned()));
        }
        match self.action {
            Action::Run => self.run(),
            Action::Status => self.status(),
            Action::Register => self.register(),
            Action::Test => self.test(),
        }
    }

    fn only_reports(&self) -> bool {
        matches!(self.action, Action::Status | Action::Test)
    }
}

impl Arguments {
    fn folder(&self) -> PathBuf {
        self.results.clone().unwrap_or_else(|| self.file.with_extension("results"))
    }

    fn run(&self) -> Result<ExitCode, CommandError> {
        let loaded = read(&self.file)?;
        let stop = stop_at_signals()?;
        let executor = LocalExecutor::new(&loaded.campaign, &loaded.folder).map_err(execute_error)?;
        let mut journal = Journal::open(&self.folder(), &loaded.campaign, &loaded.text).map_err(journal_error)?;
        if let Some(repeats) = self.repeats {
            journal.set_repeats(repeats).map_err(journal_error)?;
        }
        journal.notes().iter().for_each(|note| terminal::notice(note));
        let mut executor = executor.with_journal(&journal);
        let mut printer = Printer { as_json: self.json };
        let summary = run(&mut journal, &mut executor, &stop, &mut printer).map_err(|error| match error {
            RunError::Execute(error) => execute_error(error),
            RunError::Journal(error) => journal_error(error),
        })?;
        if !self.json {
            let [done, all, made, failed] = [summary.done, summary.all, summary.made, summary.failed].map(shown);
            let failures = if summary.failed == 0 { String::new() } else { format!(", {failed} without a score") };
            let folder = self.folder();
            terminal::print(&format!(
                "{done} of {all} runs have results{failures}; {made} were made now: {}\n",
                sanitize(&folder.join(bellows_campaign::TABLE).display().to_string())
            ))?;
        }
        Ok(if summary.interrupted { ExitCode::from(INTERRUPTED) } else { ExitCode::SUCCESS })
    }

    fn status(&self) -> Result<ExitCode, CommandError> {
        let status = Status::read(&self.folder()).map_err(journal_error)?;
        let text = if self.json { format!("{:#}\n", json!(status)) } else { text_of(&status) };
        terminal::print(&text)?;
        Ok(ExitCode::SUCCESS)
    }

    /// The campaign, which states a hypothesis.
    fn with_hypotheses(&self) -> Result<Loaded, CommandError> {
        let loaded = read(&self.file)?;
        if loaded.campaign.hypotheses.is_empty() {
            let file = self.file.display();
            return Err(CommandError::Usage(format!("{file} states no hypothesis; add a table [[hypothesis]]")));
        }
        Ok(loaded)
    }

    fn test(&self) -> Result<ExitCode, CommandError> {
        let loaded = self.with_hypotheses()?;
        let verdicts = verdicts(&self.folder(), &loaded.campaign).map_err(journal_error)?;
        let text = match self.json {
            true => format!("{:#}\n", json!(verdicts)),
            false => verdicts.iter().map(|verdict| verdict_text(verdict, &loaded.campaign)).collect(),
        };
        terminal::print(&text)?;
        Ok(ExitCode::SUCCESS)
    }

    fn register(&self) -> Result<ExitCode, CommandError> {
        let loaded = self.with_hypotheses()?;
        // The folder gets its campaign, as by a run; a runner that uses it has done so.
        let folder = self.folder();
        match Journal::open(&folder, &loaded.campaign, &loaded.text) {
            Ok(journal) => journal.notes().iter().for_each(|note| terminal::notice(note)),
            Err(JournalError::Locked { .. }) => {}
            Err(error) => return Err(journal_error(error)),
        }
        let records = loaded.campaign.hypotheses.iter().map(|it| register(&folder, &loaded.campaign, it));
        let records: Vec<Record> = records.collect::<Result<_, _>>().map_err(journal_error)?;
        if self.json {
            terminal::print(&format!("{:#}\n", json!(records)))?;
        } else {
            for Record { hypothesis, time, rows, hash, .. } in &records {
                let name = sanitize(&hypothesis.name);
                terminal::print(&format!("{name}\n  registered {time}, after {} runs, as {hash}\n", shown(*rows)))?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// What runs say of a hypothesis.
fn verdict_text(verdict: &Verdict, campaign: &Campaign) -> String {
    let Verdict { hypothesis, runs, .. } = verdict;
    let unit = campaign.scores.iter().find(|score| score.name == hypothesis.score).map_or("", |score| &score.unit);
    let [first, second] = hypothesis.compare.each_ref().map(|levels| levels.join(":"));
    let estimate = |it: &Estimate| {
        let Estimate { difference, low, high, p, df, .. } = it;
        let [one, other] = it.runs.map(shown);
        format!(
            "{first} - {second}: {difference:.4} {unit} [{low:.4}, {high:.4}], {:.0} percent; p {p:.3e}; {one} and \
             {other} runs, {df} degrees of freedom",
            100.0 * it.confidence
        )
    };
    let conclusion = match verdict.conclusion {
        Conclusion::Confirmed => "confirmed",
        Conclusion::NotConfirmed => "not confirmed",
        Conclusion::Refused => "refused",
    };
    let dropped = if verdict.stated { "" } else { " (registered, and no longer in the file)" };
    let mut lines = vec![format!("{}: {conclusion}{dropped}", hypothesis.name)];
    lines.extend(verdict.refused.as_ref().map(|why| format!("  {why}")));
    if let (Some(it), Some(time)) = (&verdict.confirmation, &verdict.registered) {
        lines.push(format!("  runs since {time}: {}", estimate(it)));
        if let Some(p) = it.corrected_p {
            lines.push(format!("  p corrected for the campaign's hypotheses: {p:.3e}, limit {}", hypothesis.level));
        }
        let detectable = it.detectable.filter(|_| verdict.conclusion == Conclusion::NotConfirmed);
        lines.extend(detectable.map(|it| format!("  these runs would have shown {it:.4} {unit} in 4 of 5 cases")));
    }
    if let Some(it) = &verdict.exploration {
        lines.push(format!("  exploration: {}, corrected for all pairs of {} means", estimate(it), it.means));
    }
    let others = [
        (runs.made_before, "made before it was registered"),
        (runs.explored, "looked at to find it"),
        (runs.beyond_plan, "beyond the planned number"),
        (runs.without_score, "without a score"),
    ];
    let others = others.into_iter().filter(|(number, _)| *number > 0);
    lines.extend(others.map(|(number, what)| format!("  {} runs {what}", shown(number))));
    lines.extend(verdict.warnings.iter().map(|warning| format!("  warning: {warning}")));
    lines.iter().map(|line| sanitize(line) + "\n").collect()
}

/// Reads a campaign file.
fn read(file: &Path) -> Result<Loaded, CommandError> {
    load(file).map_err(|diagnostics| CommandError::Diagnosed(diagnostics.render(terminal::stderr_is_rich())))
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

fn journal_error(error: JournalError) -> CommandError {
    match error {
        JournalError::Io { .. } | JournalError::Damaged { .. } | JournalError::Disagreement { .. } => {
            CommandError::Failed(error.to_string())
        }
        _ => CommandError::Usage(error.to_string()),
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

/// How far a campaign is.
fn text_of(status: &Status) -> String {
    let mut lines = vec![format!("{}: {} runs have results", status.name, shown(status.rows))];
    if let Some((first, last)) = &status.span {
        lines.push(format!("  from {first} to {last}"));
    }
    let blocks = status.blocks.len();
    lines.push(format!("  {} {}", shown(blocks), if blocks == 1 { "block" } else { "blocks" }));
    for (kind, number) in &status.failed {
        lines.push(format!("  {} without a score: {}", shown(*number), kind.name()));
    }
    if status.disturbed > 0 {
        lines.push(format!("  {} were disturbed", shown(status.disturbed)));
    }
    for (machine, runs) in &status.machines {
        lines.push(format!("  {} on {machine}", shown(*runs)));
    }
    lines.push(if status.running {
        "  a runner makes more".to_owned()
    } else {
        "  no runner uses the folder".to_owned()
    });
    lines.iter().map(|line| sanitize(line) + "\n").collect()
}
