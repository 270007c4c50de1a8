//! Where results come from: a campaign file, a results folder, or a table in CSV; and what is known about their runs.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use bellows_campaign::{
    Campaign, Diagnostics, Evidence, ImportError, Info, JOURNAL, JournalError, Results, Verdict, import_file, load,
    verdicts_of,
};
use serde_json::Value;

use crate::model::{FactorSummary, LevelSummary, Setup};
use crate::tally::{RunsOfTable, named};
use crate::words;

/// The campaign file within a results folder.
const CAMPAIGN: &str = "campaign.toml";

/// A campaign file is no longer than this where its first lines are looked at.
const MAX_HEAD: u64 = 65_536;

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The campaign file is wrong.
    #[error("{0}")]
    Campaign(Diagnostics),
    /// The results folder cannot be used.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The table cannot be imported.
    #[error(transparent)]
    Import(#[from] ImportError),
    /// Results are given beside what has its own.
    #[error(
        "{} is {what}, which has its own results; leave out the other results folder, or name a campaign file",
        path.display()
    )]
    OwnResults {
        /// The file or folder.
        path: PathBuf,
        /// What it is: a noun.
        what: &'static str,
    },
    /// The journal is named instead of its folder.
    #[error("{} is the journal of a results folder; name its folder, {}", path.display(), folder.display())]
    Journaled {
        /// The journal.
        path: PathBuf,
        /// Its folder.
        folder: PathBuf,
    },
    /// There is no such factor.
    #[error("the results have no factor {name}; there are {known}")]
    Factor {
        /// The name asked for.
        name: String,
        /// The names that exist.
        known: String,
    },
    /// There is no such score.
    #[error("the results have no score {name}; there are {known}")]
    Score {
        /// The name asked for.
        name: String,
        /// The names that exist.
        known: String,
    },
    /// A page cannot be written from its template.
    #[error("the report cannot be written: {0}; report it as a bug, with the results")]
    Template(String),
}

/// What is not known of the runs of a table.
const UNKNOWN_RUNS: &str = "the machines, versions and commands of its runs are not known";

/// Why nothing is confirmed by a table.
const UNCONFIRMED_TABLE: &str = "The results are a table, which has no register of hypotheses, so nothing here is \
     confirmed. A campaign file can state hypotheses, and `bellows campaign register` fixes them before their runs.";

/// Results and what is known about them.
#[derive(Debug)]
pub struct ResultSource {
    /// The file or folder.
    pub path: PathBuf,
    /// The results.
    pub results: Results,
    /// The campaign as its folder has it. None for tables.
    pub info: Option<Info>,
    /// What the runs say of the hypotheses.
    pub verdicts: Vec<Verdict>,
    /// What was run, on what, and when, as far as it is not counted from the results.
    pub(crate) setup: Setup,
    /// Why there are no verdicts.
    pub(crate) unconfirmed: Option<String>,
}

impl ResultSource {
    /// Opens a campaign file (with its results beside it or in `results`), a results folder, or a table. A file is a
    /// campaign if it is called `.toml`, or if it is not called `.csv` and `results` is given or it looks like TOML.
    ///
    /// # Errors
    /// If it cannot be read, or is wrong, or if `results` is given with a folder or a table.
    pub fn open(path: &Path, results: Option<&Path>) -> Result<ResultSource, ReportError> {
        let own = |what| Err(ReportError::OwnResults { path: path.to_owned(), what });
        if path.is_dir() {
            return if results.is_some() { own("a results folder") } else { ResultSource::read(path, None) };
        }
        if path.file_name().is_some_and(|name| name == JOURNAL) {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
            return Err(ReportError::Journaled { path: path.to_owned(), folder: folder.to_owned() });
        }
        let is = |wanted| path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case(wanted));
        if is("csv") && results.is_some() {
            return own("a table");
        }
        if is("toml") || !is("csv") && (results.is_some() || looks_like_toml(path)) {
            let loaded = load(path).map_err(ReportError::Campaign)?;
            let folder = results.map_or_else(|| path.with_extension("results"), Path::to_owned);
            return ResultSource::read(&folder, Some(loaded.campaign));
        }
        Ok(ResultSource::imported(path, import_file(path)?))
    }

    /// Results that were imported from a table.
    pub fn imported(path: &Path, results: Results) -> ResultSource {
        let note = format!("The results are a table: {UNKNOWN_RUNS}");
        let is_timed = !results.starts.is_empty();
        let untimed = "; the order of its rows is taken for that of time, and nothing tells when they were made";
        let note = format!("{note}{}.", if is_timed { "" } else { untimed });
        ResultSource {
            path: path.to_owned(),
            setup: Setup { notes: vec![note], ..Setup::default() },
            results,
            info: None,
            verdicts: Vec::new(),
            unconfirmed: Some(UNCONFIRMED_TABLE.to_owned()),
        }
    }

    /// Reads a results folder, with the campaign that states the hypotheses; without it those that are registered.
    fn read(folder: &Path, campaign: Option<Campaign>) -> Result<ResultSource, ReportError> {
        let info = Info::read(folder)?;
        let campaign = campaign.map(|campaign| with_versions(campaign, &info));
        campaign.iter().try_for_each(|campaign| Info::check_results(folder, campaign))?;
        let evidence = Evidence::read(folder)?;
        let (verdicts, unconfirmed) = match campaign {
            Some(campaign) => (verdicts_of(&evidence, &campaign), None),
            None if info.imported.is_some() => (Vec::new(), Some(UNCONFIRMED_TABLE.to_owned())),
            None => registered(folder, &evidence, &info)?,
        };
        let results = evidence.into_results();
        let none = "The campaign states no hypothesis, so nothing here is confirmed. To confirm what the exploration \
                    suggests, state it as [[hypothesis]] in the campaign file, run `bellows campaign register`, and \
                    make new runs.";
        let unconfirmed = unconfirmed.or_else(|| verdicts.is_empty().then(|| none.to_owned()));
        let imported = info.imported.iter().map(|origin| {
            let (file, time) = (words::label(&origin.file), words::label(&origin.time));
            format!("The results were imported from {file}, {time}: {UNKNOWN_RUNS}.")
        });
        let setup = Setup {
            notes: imported.collect(),
            // An imported campaign has none: its file only states factors and scores.
            command: if info.imported.is_some() { None } else { command(&info.canonical) },
            hash: Some(info.hash.to_string()),
            machines: named(&results.observed.machines),
            processors: named(&results.observed.processors),
            kernels: named(&results.observed.kernels),
            versions: named(&results.observed.versions),
            ..Setup::default()
        };
        Ok(ResultSource { path: folder.to_owned(), results, info: Some(info), verdicts, setup, unconfirmed })
    }

    /// What was run, on what, and when.
    pub(crate) fn setup(&self) -> Setup {
        let results = &self.results;
        let counts = match results.runs.is_empty() {
            true => RunsOfTable::of(results),
            false => RunsOfTable::of_journal(results),
        };
        let starts = (0..results.starts.len()).min_by_key(|row| results.starts[*row]);
        let ends = (0..results.starts.len()).max_by_key(|row| results.starts[*row]);
        Setup {
            runs: counts.runs,
            failed: counts.failed,
            disturbed: counts.disturbed,
            blocks: counts.blocks,
            combinations: combinations(results),
            span: starts.and_then(|row| results.start(row)).zip(ends.and_then(|row| results.start(row))),
            factors: self.factors(),
            ..self.setup.clone()
        }
    }

    fn factors(&self) -> Vec<FactorSummary> {
        let values = self.info.as_ref().map(|info| &info.canonical["factors"]);
        let summary = |column: &bellows_campaign::FactorColumn| {
            let mut runs = vec![0; column.levels.all().len()];
            column.rows.iter().for_each(|level| runs[*level as usize] += 1);
            let level = |(label, runs): (&String, usize)| LevelSummary {
                label: words::label(label),
                runs,
                values: values.and_then(|values| values_of(&values[&column.name][label])),
            };
            let levels = column.levels.all().iter().zip(runs).map(level).collect();
            FactorSummary { name: words::factor_name(&column.name), levels }
        };
        self.results.factors.iter().map(summary).collect()
    }
}

/// The number of combinations that have rows.
fn combinations(results: &Results) -> usize {
    let mut hashes: std::collections::HashSet<Vec<u32>> = std::collections::HashSet::new();
    let mut codes = Vec::new();
    for row in 0..results.len() {
        codes.clear();
        codes.extend(results.factors.iter().map(|factor| factor.rows[row]));
        if !hashes.contains(&codes) {
            hashes.insert(codes.clone());
        }
    }
    hashes.len()
}

/// Whether a file begins like a campaign file: with a table or a key, not with the names of columns.
fn looks_like_toml(path: &Path) -> bool {
    let mut head = Vec::new();
    let is_read =
        path.is_file() && File::open(path).is_ok_and(|file| file.take(MAX_HEAD).read_to_end(&mut head).is_ok());
    let head = String::from_utf8_lossy(&head);
    let first = head.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('#'));
    let is_key = |line: &str| line.split_once('=').is_some_and(|(key, _)| !key.contains(','));
    is_read && first.is_some_and(|line| line.starts_with('[') || is_key(line))
}

/// The campaign with the versions that the folder's runs compare: its file names only how they are made.
fn with_versions(mut campaign: Campaign, info: &Info) -> Campaign {
    if let Some(build) = &mut campaign.build
        && build.versions.is_none()
    {
        build.versions.clone_from(&info.versions);
    }
    campaign
}

/// The verdicts of all registered hypotheses, by the campaign file in the folder; or why there are none.
///
/// # Errors
/// If that file is of another campaign than the results: it decides how many runs are planned.
fn registered(folder: &Path, evidence: &Evidence, info: &Info) -> Result<(Vec<Verdict>, Option<String>), ReportError> {
    let register = evidence.register();
    if register.records().is_empty() {
        let none = "No hypothesis is registered, so nothing here is confirmed. Name the campaign file instead of its \
                    results folder to see what the runs say of those that it states. To confirm what the exploration \
                    suggests, state it as [[hypothesis]] there, run `bellows campaign register`, and make new runs.";
        return Ok((Vec::new(), Some(none.to_owned())));
    }
    match load(&folder.join(CAMPAIGN)) {
        Ok(loaded) => {
            let hypotheses = register.records().iter().map(|record| record.hypothesis.clone()).collect();
            let campaign = with_versions(Campaign { hypotheses, ..loaded.campaign }, info);
            Info::check_results(folder, &campaign)?;
            Ok((verdicts_of(evidence, &campaign), None))
        }
        Err(_) => {
            let number = words::counted(register.records().len(), "hypothesis is", "hypotheses are");
            let why = format!(
                "{number} registered, but not tested here, because {CAMPAIGN} in the results folder cannot be read: \
                 name the campaign file instead of the folder."
            );
            Ok((Vec::new(), Some(why)))
        }
    }
}

/// The command of a run as one line.
fn command(canonical: &Value) -> Option<String> {
    let command = match &canonical["command"] {
        Value::Array(arguments) => {
            let words: Vec<String> = arguments.iter().filter_map(Value::as_str).map(argument).collect();
            words.join(" ")
        }
        shell => shell["shell"].as_str()?.trim().to_owned(),
    };
    Some(words::label(&command))
}

fn argument(word: &str) -> String {
    let is_plain = !word.is_empty() && !word.contains(|c: char| c.is_whitespace() || "'\"$`\\;|&()<>".contains(c));
    if is_plain { word.to_owned() } else { format!("'{}'", word.replace('\'', "'\\''")) }
}

/// What the placeholders of a level stand for: `key = value, …`.
fn values_of(level: &Value) -> Option<String> {
    let word = |value: &Value| match value {
        Value::String(text) => text.clone(),
        Value::Array(words) => words.iter().filter_map(Value::as_str).map(argument).collect::<Vec<String>>().join(" "),
        other => other.to_string(),
    };
    let values: Vec<String> =
        level.as_object()?.iter().map(|(key, value)| format!("{key} = {}", word(value))).collect();
    (!values.is_empty()).then(|| words::label(&values.join(", ")))
}
