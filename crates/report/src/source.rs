//! Where results come from: a campaign file, a results folder, or a table in CSV; and what is known about their runs.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use bellows_campaign::{
    Campaign, Diagnostics, ImportError, Info, JournalError, Register, Results, Row, Verdict, each_row, import_file,
    load, verdicts,
};
use serde_json::Value;

use crate::model::{FactorSummary, LevelSummary, Setup, Tally};
use crate::words;

/// The campaign file within a results folder.
const CAMPAIGN: &str = "campaign.toml";

/// Maximum number of names in a list of machines or versions.
const MAX_TALLIES: usize = 12;

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

/// Results and what is known about them.
#[derive(Debug)]
pub struct Source {
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

impl Source {
    /// Opens a campaign file (`.toml`, with its results beside it or in `results`), a results folder, or a table.
    ///
    /// # Errors
    /// If it cannot be read, or is wrong.
    pub fn open(path: &Path, results: Option<&Path>) -> Result<Source, ReportError> {
        if path.is_dir() {
            return Source::read(path, None);
        }
        if path.extension().is_some_and(|extension| extension == "toml") {
            let loaded = load(path).map_err(ReportError::Campaign)?;
            let folder = results.map_or_else(|| path.with_extension("results"), Path::to_owned);
            return Source::read(&folder, Some(loaded.campaign));
        }
        Ok(Source::imported(path, import_file(path)?))
    }

    /// Results that were imported from a table.
    pub fn imported(path: &Path, results: Results) -> Source {
        let note = "The results are a table: the machines, versions and commands of its runs are not known".to_owned();
        let is_timed = !results.starts.is_empty();
        let untimed = "; the order of its rows is taken for that of time, and nothing tells when they were made";
        let note = format!("{note}{}.", if is_timed { "" } else { untimed });
        let why = "The results are a table, which has no register of hypotheses, so nothing here is confirmed. A \
                   campaign file can state hypotheses, and `bellows campaign register` fixes them before their runs.";
        Source {
            path: path.to_owned(),
            setup: Setup { notes: vec![note], ..Setup::default() },
            results,
            info: None,
            verdicts: Vec::new(),
            unconfirmed: Some(why.to_owned()),
        }
    }

    /// Reads a results folder, with the campaign that states the hypotheses; without it those that are registered.
    fn read(folder: &Path, campaign: Option<Campaign>) -> Result<Source, ReportError> {
        let info = Info::read(folder)?;
        let results = Results::read(folder)?;
        let mut tallies = Tallies::default();
        each_row(folder, |row| tallies.add(&row))?;
        let (verdicts, unconfirmed) = match campaign {
            Some(campaign) => (verdicts(folder, &campaign)?, None),
            None => registered(folder)?,
        };
        let none = "The campaign states no hypothesis, so nothing here is confirmed. To confirm what the exploration \
                    suggests, state it as [[hypothesis]] in the campaign file, run `bellows campaign register`, and \
                    make new runs.";
        let unconfirmed = unconfirmed.or_else(|| verdicts.is_empty().then(|| none.to_owned()));
        let imported = info.imported.iter().map(|origin| {
            let (file, time) = (words::label(&origin.file), words::label(&origin.time));
            format!("The results were imported from {file}, {time}.")
        });
        let setup = Setup {
            notes: imported.collect(),
            command: command(&info.canonical),
            hash: Some(info.hash.to_string()),
            machines: tallies.machines.named(),
            processors: tallies.processors.named(),
            kernels: tallies.kernels.named(),
            versions: tallies.versions.named(),
            ..Setup::default()
        };
        Ok(Source { path: folder.to_owned(), results, info: Some(info), verdicts, setup, unconfirmed })
    }

    /// What was run, on what, and when.
    pub(crate) fn setup(&self) -> Setup {
        let results = &self.results;
        // Each run has a row for each score.
        let runs: BTreeSet<_> = results.runs.iter().collect();
        let run_of = |row: &usize| results.runs.get(*row);
        let scored: BTreeSet<_> =
            (0..results.len()).filter(|row| results.scores[*row].is_nan()).filter_map(|row| run_of(&row)).collect();
        let disturbed: BTreeSet<_> =
            (0..results.len()).filter(|row| results.disturbed[*row]).filter_map(|row| run_of(&row)).collect();
        let is_known = !results.runs.is_empty();
        let count = |known: usize, rows: usize| if is_known { known } else { rows };
        let mut ids = results.ids.clone();
        ids.sort_unstable();
        ids.dedup();
        let starts = (0..results.starts.len()).min_by_key(|row| results.starts[*row]);
        let ends = (0..results.starts.len()).max_by_key(|row| results.starts[*row]);
        Setup {
            runs: count(runs.len(), results.len()),
            failed: count(scored.len(), results.failures()),
            disturbed: count(disturbed.len(), results.disturbed.iter().filter(|it| **it).count()),
            blocks: ids.len(),
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

/// The verdicts of all registered hypotheses, by the campaign file in the folder; or why there are none.
fn registered(folder: &Path) -> Result<(Vec<Verdict>, Option<String>), ReportError> {
    let register = Register::read(folder)?;
    if register.records().is_empty() {
        return Ok((Vec::new(), None));
    }
    match load(&folder.join(CAMPAIGN)) {
        Ok(loaded) => {
            let hypotheses = register.records().iter().map(|record| record.hypothesis.clone()).collect();
            let campaign = Campaign { hypotheses, ..loaded.campaign };
            Ok((verdicts(folder, &campaign)?, None))
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

/// How often names occur.
#[derive(Default)]
struct Names(BTreeMap<String, usize>);

impl Names {
    fn add(&mut self, name: &str) {
        match self.0.get_mut(name) {
            Some(runs) => *runs += 1,
            None => drop(self.0.insert(name.to_owned(), 1)),
        }
    }

    /// The names with the most runs, and the sum of the others.
    fn named(self) -> Vec<Tally> {
        let mut all: Vec<Tally> =
            self.0.into_iter().map(|(name, runs)| Tally { name: words::label(&name), runs }).collect();
        all.sort_by(|one, other| other.runs.cmp(&one.runs).then(one.name.cmp(&other.name)));
        if all.len() > MAX_TALLIES {
            let others = all.split_off(MAX_TALLIES - 1);
            let runs = others.iter().map(|tally| tally.runs).sum();
            all.push(Tally { name: format!("{} others", words::count(others.len())), runs });
        }
        all
    }
}

/// What rows say of machines and programs.
#[derive(Default)]
struct Tallies {
    machines: Names,
    processors: Names,
    kernels: Names,
    versions: Names,
}

impl Tallies {
    fn add(&mut self, row: &Row) {
        self.machines.add(&row.machine.host);
        self.processors.add(&format!("{}, processors {}", row.machine.cpu, row.machine.cpus));
        self.kernels.add(&row.machine.os);
        row.versions.iter().for_each(|(program, version)| self.versions.add(&format!("{program}: {version}")));
    }
}
