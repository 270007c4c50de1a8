//! `bellows campaign compare`.

use std::path::PathBuf;
use std::process::ExitCode;

use bellows_campaign::{
    CompareError, CompareOptions, Comparison, Folders, Journal, LocalExecutor, Summary, build_versions, parse_margin,
    run,
};
use bellows_inspect::text::sanitize;
use bellows_report::Picture;
use clap::Args;
use serde_json::json;

use super::observer::{Printer, stop_at_signals};
use super::report::{check_output, write};
use super::{Place, execute_error, journal_error, run_error, say, shown};
use crate::command_error::{CommandError, INTERRUPTED};
use crate::subcommand::{Execute, Program};
use crate::terminal;

/// Say whether a version is faster or slower than another, by pairs of runs
///
/// Both versions are built, if the campaign says how. The two runs of a pair follow one another, in random order. The
/// answer for each combination is that the new version is faster, slower, or that there is no difference that these
/// runs can show, with the difference that they would have shown.
#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct Arguments {
    #[command(flatten)]
    place: Place,
    /// The old version: a revision, `.` for the working tree, or a finished program [default: `base` in the file]
    #[arg(value_name = "OLD")]
    old: Option<String>,
    /// The new version, likewise [default: the working tree]
    #[arg(value_name = "NEW")]
    new: Option<String>,
    /// The number of pairs of each combination, instead of `repeats` in the file
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    repeats: Option<u32>,
    /// Versions that differ by less are equal, such as 2%
    #[arg(long, value_name = "PERCENT", value_parser = parse_margin)]
    margin: Option<f64>,
    /// Exit with 1 if the new version is slower, or fails more often
    ///
    /// It is slower if a combination, or all of them together, are slower after the correction for all comparisons, and
    /// with `--margin` if the near end of the interval is beyond the margin. That is known only of scores for which the
    /// campaign file says `better`. The exit status is 2 for errors, and 0 also if pairs are too few to tell.
    #[arg(long)]
    fail_if_slower: bool,
    /// List every combination and score, not only those that differ
    #[arg(long, conflicts_with = "json")]
    all: bool,
    /// The folder of builds [default: beside FILE, with its name and .builds]
    #[arg(long, value_name = "FOLDER")]
    builds: Option<PathBuf>,
    /// Draw all intervals as SVG to this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Print JSON (see docs/json.md)
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "Examples:
  bellows campaign compare release.toml
  bellows campaign compare release.toml v1.2 . --repeats 10 --margin 2%
  bellows campaign compare sizes.toml ./old/program ./new/program --fail-if-slower
  bellows campaign compare release.toml v1.2 . --svg release.svg";

impl Execute for Arguments {
    fn execute(self, _: &Program) -> Result<ExitCode, CommandError> {
        if let Some(path) = &self.svg {
            check_output(path, &self.place.file)?;
        }
        let (mut loaded, folder) = (self.place.load_own()?, self.place.folder());
        let builds = self.builds.clone().unwrap_or_else(|| self.place.file.with_extension("builds"));
        let stop = stop_at_signals()?;
        let mut printer = Printer::quiet();
        let folders = Folders { file: &self.place.file, results: &folder, builds: &builds };
        let sides = [self.old.as_deref(), self.new.as_deref()];
        build_versions(&mut loaded, sides, &folders, &stop, &mut printer).map_err(compare_error)?;
        let executor = LocalExecutor::new(&loaded.campaign, &loaded.folder).map_err(execute_error)?;
        let mut journal = Journal::open(&folder, &loaded.campaign, &loaded.text).map_err(journal_error)?;
        if let Some(repeats) = self.repeats {
            journal.set_repeats(repeats).map_err(journal_error)?;
        }
        journal.notes().iter().for_each(|note| say(note));
        let mut executor = executor.with_journal(&journal);
        let Summary { done, all, interrupted, .. } =
            run(&mut journal, &mut executor, &stop, &mut printer).map_err(run_error)?;
        let options = CompareOptions { margin: self.margin, ..CompareOptions::default() };
        let comparison = Comparison::read(&folder, &loaded.campaign, &options).map_err(compare_error)?;
        if interrupted {
            say(&format!("{} of {} runs are made; the same command goes on", shown(done), shown(all)));
        }
        let text = match self.json {
            true => format!("{:#}\n", json!(comparison)),
            false if self.all => format!("{comparison:#}").lines().map(|line| sanitize(line) + "\n").collect(),
            false => comparison.to_string().lines().map(|line| sanitize(line) + "\n").collect(),
        };
        terminal::print(&text)?;
        if let Some(path) = &self.svg {
            write(path, &Picture::of_comparison(&comparison).svg)?;
        }
        Ok(match () {
            () if interrupted => ExitCode::from(INTERRUPTED),
            () if self.fail_if_slower && comparison.is_slower() => ExitCode::FAILURE,
            () => ExitCode::SUCCESS,
        })
    }
}

fn compare_error(error: CompareError) -> CommandError {
    match error {
        CompareError::Stopped => CommandError::Interrupted("interrupted".to_owned()),
        CompareError::Journal(error) => journal_error(error),
        CompareError::Git { .. } | CompareError::Io { .. } | CompareError::Build { .. } => {
            CommandError::Failed(error.to_string())
        }
        error => CommandError::Usage(error.to_string()),
    }
}
