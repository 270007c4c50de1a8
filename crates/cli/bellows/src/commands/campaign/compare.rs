//! `bellows campaign compare`.

use std::path::PathBuf;
use std::process::ExitCode;

use bellows_campaign::{
    CompareError, CompareOptions, Comparison, Folders, Journal, Loaded, LocalExecutor, Summary, build_versions, parse,
    parse_margin, run,
};
use bellows_inspect::text::sanitize;
use bellows_report::Picture;
use bellows_sys::private_folder;
use clap::Args;
use serde_json::json;

use super::observer::{Printer, stop_at_signals};
use super::report::{check_output, write};
use super::{CampaignPlace, execute_error, journal_error, run_error, say, shown};
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
    /// The campaign file; not with --bench
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The old version: a revision, `.` for the working tree, or a finished program [default: `base` in the file]
    #[arg(value_name = "OLD")]
    old: Option<String>,
    /// The new version, likewise [default: the working tree]
    ///
    /// With --bench, the default is this program.
    #[arg(value_name = "NEW")]
    new: Option<String>,
    /// Compare a benchmark, in place of FILE
    ///
    /// It is given with its options, such as 'engine --case chain', and OLD and NEW are the only other words.
    ///
    /// Each run is one of `bellows bench BENCHMARK --json` by one of the versions, or of `breathsim` or `appbench` with
    /// their options. Each figure is compared. One process for each figure (`--processes 1`) makes the runs short: pairs
    /// say how figures scatter. Revisions are built from the repository of the current folder.
    #[arg(long, value_name = "BENCHMARK")]
    bench: Option<String>,
    /// The folder of the results [default: beside FILE, with its name and .results]
    ///
    /// With --bench, no results are kept by default.
    #[arg(long, value_name = "FOLDER")]
    results: Option<PathBuf>,
    /// The number of pairs of each combination, instead of `repeats` in the file
    ///
    /// With --bench, the default is 15.
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
    ///
    /// With --bench, the default is bench.builds in the current folder.
    #[arg(long, value_name = "FOLDER", hide_short_help = true)]
    builds: Option<PathBuf>,
    /// Draw all intervals as SVG to this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Print JSON (see docs/json.md)
    #[arg(long)]
    json: bool,
}

/// The pairs of runs of a benchmark.
const PAIRS: u32 = 15;

const EXAMPLES: &str = "Examples:
  bellows campaign compare release.toml
  bellows campaign compare release.toml v1.2 . --repeats 10 --margin 2%
  bellows campaign compare sizes.toml ./old/prog ./new/prog --fail-if-slower
  bellows campaign compare release.toml v1.2 . --svg release.svg
  bellows campaign compare --bench 'engine --case chain' ./old/bellows
  bellows campaign compare --bench 'router --case ip4' HEAD~1 . --repeats 30";

/// What is compared, and where.
struct Subject {
    loaded: Loaded,
    place: CampaignPlace,
    builds: PathBuf,
    versions: [Option<String>; 2],
    /// Removed at the end.
    scratch: Option<Scratch>,
}

/// A folder for results that nobody keeps.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Execute for Arguments {
    fn execute(self, _: &Program) -> Result<ExitCode, CommandError> {
        let Subject { mut loaded, place, builds, versions: [old, new], scratch } = match &self.bench {
            Some(bench) => self.benchmark(bench)?,
            None => self.campaign()?,
        };
        if let Some(path) = &self.svg {
            check_output(path, &place.file)?;
        }
        let folder = place.folder();
        let stop = stop_at_signals()?;
        let mut printer = Printer::quiet();
        let folders = Folders { file: &place.file, results: &folder, builds: &builds };
        build_versions(&mut loaded, [old.as_deref(), new.as_deref()], &folders, &stop, &mut printer)
            .map_err(compare_error)?;
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
            let further = if scratch.is_some() { "" } else { "; the same command goes on" };
            say(&format!("{} of {} runs are made{further}", shown(done), shown(all)));
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

impl Arguments {
    /// The campaign of a file.
    fn campaign(&self) -> Result<Subject, CommandError> {
        let place = CampaignPlace { file: self.file.clone(), results: self.results.clone() };
        let builds = self.builds.clone().unwrap_or_else(|| place.file.with_extension("builds"));
        let versions = [self.old.clone(), self.new.clone()];
        Ok(Subject { loaded: place.load_own()?, place, builds, versions, scratch: None })
    }

    /// The campaign of a benchmark. The words in the place of FILE and OLD are the versions.
    fn benchmark(&self, bench: &str) -> Result<Subject, CommandError> {
        if let Some(third) = &self.new {
            return Err(CommandError::Usage(format!(
                "--bench takes the place of a campaign file, so that there are two versions at most, and not `{third}`"
            )));
        }
        let text = campaign_of(bench);
        let campaign = parse("--bench", &text)
            .map_err(|diagnostics| CommandError::Diagnosed(diagnostics.render(terminal::stderr_is_rich())))?;
        let temporary = || {
            private_folder::fresh(&std::env::temp_dir(), "bellows-compare")
                .map(Scratch)
                .map_err(|error| CommandError::Failed(format!("cannot make a folder for the results: {error}")))
        };
        let scratch = if self.results.is_none() { Some(temporary()?) } else { None };
        let results = self.results.clone().or_else(|| Some(scratch.as_ref()?.0.join("results")));
        let new = match &self.old {
            Some(new) => new.clone(),
            None => std::env::current_exe()
                .map_err(|error| CommandError::Failed(format!("cannot find this program: {error}; give NEW")))?
                .display()
                .to_string(),
        };
        Ok(Subject {
            loaded: Loaded { campaign, text, folder: PathBuf::from(".") },
            place: CampaignPlace { file: PathBuf::from("bench.toml"), results },
            builds: self.builds.clone().unwrap_or_else(|| PathBuf::from("bench.builds")),
            versions: [Some(self.file.display().to_string()), Some(new)],
            scratch,
        })
    }
}

/// A campaign that runs a benchmark with the options of a command line, each figure of which is compared.
fn campaign_of(bench: &str) -> String {
    let first = bench.split_whitespace().next().unwrap_or_default();
    let words = if ["appbench", "breathsim"].contains(&first) { "" } else { "bench " };
    // The number of processes of `l2vpn` is that of orders.
    let processes = if first == "l2vpn" { "--orders" } else { "--processes" };
    let is_given = bench.split([' ', '=']).any(|word| word == processes);
    let processes = if is_given { String::new() } else { format!(" {processes} 1") };
    let bench = bench.replace('{', "{{").replace('}', "}}");
    // The strings of JSON are strings of TOML.
    let [name, command] = [json!(bench), json!(format!("exec {{version.program}} {words}{bench}{processes} --json"))]
        .map(|it| it.to_string());
    format!(
        "# bellows campaign compare --bench\nname = {name}\nrepeats = {PAIRS}\ncommand = {{ shell = {command} }}\n\
         [build]\ncommand = {{ shell = \"cd {{source}} && cargo build --release --locked --target-dir {{build}}\" }}\n\
         program = \"release/bellows\"\ntoolchain = [\"rustc\", \"-Vv\"]\n[score]\nreads = \"bellows-bench\"\n"
    )
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
