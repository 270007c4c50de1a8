//! The files of a results folder, and what they are of.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use bellows_sys::{FileError, atomic_file};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::campaign::{Better, Campaign, Factor, Read as ReadScore, ScoreSpec, Version};
use crate::plan::{Hash, Plan};

/// The name of the journal.
pub const JOURNAL: &str = "results.jsonl";

/// The name of the table.
pub const TABLE: &str = "results.csv";

pub(crate) const INFO: &str = "campaign.json";
pub(crate) const TEXT: &str = "campaign.toml";

/// The columns of the table behind those of the factors.
pub(crate) const COLUMNS: [&str; 16] = [
    "id",
    "score",
    "unit",
    "failure",
    "run",
    "start",
    "seconds",
    "disturbed",
    "host",
    "cpu",
    "cpus",
    "os",
    "load",
    "steal",
    "yardstick_before",
    "yardstick_after",
];

/// The names that no factor can have: those of columns, and of the placeholder `{block}`.
pub(crate) fn columns() -> impl Iterator<Item = &'static str> {
    COLUMNS.into_iter().chain(["measure", "block"])
}

/// Whether a name is one of these.
pub(crate) fn is_column(name: &str) -> bool {
    columns().any(|column| column == name)
}

/// The name of the register of hypotheses.
pub const REGISTER: &str = "hypotheses.jsonl";

/// The name of the file that has the register's last record.
pub(crate) const HEAD: &str = "hypotheses.head";

/// The file that the runner locks.
pub(crate) const LOCK: &str = "lock";

/// Whether a path is that of a file which a results folder keeps for itself, so that nothing else may be written there.
pub fn is_results_file(path: &Path) -> bool {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let is_kept = |name: &str| [INFO, TEXT, JOURNAL, TABLE, REGISTER, HEAD, LOCK].contains(&name);
    let is_named = path.file_name().and_then(|name| name.to_str()).is_some_and(is_kept);
    let folder = path.parent().map(|parent| if is_empty(parent) { Path::new(".") } else { parent });
    is_named && folder.is_some_and(|folder| folder.join(INFO).exists())
}

/// Why a results folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// A file cannot be read or written.
    #[error("{}", FileError::of(doing, path, error, "check the path"))]
    Io {
        /// What was tried.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// Why it failed.
        error: io::Error,
    },
    /// Another runner uses the folder.
    #[error(
        "{} is in use by another runner{}; wait for it, or give another folder",
        folder.display(), holder(.process)
    )]
    Locked {
        /// The folder.
        folder: PathBuf,
        /// The runner's process.
        process: String,
    },
    /// The folder has the results of another campaign.
    #[error(
        "{} has the results of another campaign, which differs in {differs}; give another folder for the results, or \
         undo the change ({} has that campaign)",
        folder.display(), folder.join(TEXT).display()
    )]
    OtherCampaign {
        /// The folder.
        folder: PathBuf,
        /// The keys in which the campaigns differ.
        differs: String,
    },
    /// A file was changed or damaged.
    #[error("{}, line {line}: {why}; restore the file from a copy{}", path.display(), or_remove(.path))]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// What is wrong with it.
        why: String,
    },
    /// The register and the rows do not agree.
    #[error(
        "{}, line {line}: {why}; restore the results folder from a copy, or make the campaign again in another folder, \
         for hypotheses that are registered there",
        path.display()
    )]
    Disagreement {
        /// The journal.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// How they disagree.
        why: String,
    },
    /// There are too many runs.
    #[error("{repeats} repeats of {combinations} combinations are more than 10,000,000 runs; give fewer repeats")]
    TooManyRuns {
        /// The number of blocks.
        repeats: u32,
        /// The number of combinations.
        combinations: usize,
    },
    /// The folder has imported results.
    #[error(
        "{} has results that were imported from {file}, to which none can be added; make runs in another folder",
        folder.display()
    )]
    Imported {
        /// The folder.
        folder: PathBuf,
        /// The table.
        file: String,
    },
    /// A hypothesis would be tested on runs that are all made.
    #[error(
        "the hypothesis `{name}` would be tested after {repeats} blocks, which are all made, and only runs that are made \
         after it is registered can confirm it; state more with `repeats` in its table, or for the campaign"
    )]
    NoRunsLeft {
        /// The name of the hypothesis.
        name: String,
        /// The number of blocks.
        repeats: u32,
    },
    /// The folder has no campaign.
    #[error("{} has no results of a campaign; check the path", folder.display())]
    NoCampaign {
        /// The folder.
        folder: PathBuf,
    },
}

/// Rows do not depend on each other.
fn or_remove(path: &Path) -> &'static str {
    if path.ends_with(JOURNAL) { ", or remove the line" } else { "" }
}

fn holder(process: &str) -> String {
    if process.is_empty() { String::new() } else { format!(", process {process}") }
}

/// Wraps an error of the file system.
pub(crate) fn io_error<'p>(doing: &'static str, path: &'p Path) -> impl FnOnce(io::Error) -> JournalError + 'p {
    move |error| JournalError::Io { doing, path: path.to_owned(), error }
}

/// What `campaign.json` holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Info {
    /// The hash of the campaign.
    pub hash: Hash,
    /// The name.
    pub name: String,
    /// The factors in the order of the file.
    pub factors: Vec<FactorInfo>,
    /// The scores; empty if the reports of runs state them.
    pub scores: Vec<ScoreInfo>,
    /// The old and the new version, if the campaign compares two builds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub versions: Option<[Version; 2]>,
    /// What the results depend on.
    pub canonical: Value,
    /// Where the results were imported from, if they were.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub imported: Option<Origin>,
}

/// Where results were imported from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Origin {
    /// The path of the table.
    pub file: String,
    /// The hash of the table.
    pub hash: Hash,
    /// When it was imported: RFC 3339, UTC.
    pub time: String,
}

/// A factor in `campaign.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FactorInfo {
    /// The name.
    pub name: String,
    /// The labels of its levels, in the order of the file.
    pub levels: Vec<String>,
}

/// A score in `campaign.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScoreInfo {
    /// The name.
    pub name: String,
    /// The unit, or nothing if the reports of runs state it.
    pub unit: String,
    /// Which scores are better, if the file says so.
    pub better: Option<Better>,
}

impl Info {
    pub(crate) fn of(campaign: &Campaign, plan: &Plan) -> Info {
        let factor = |factor: &Factor| FactorInfo {
            name: factor.name.clone(),
            levels: factor.levels.iter().map(|level| level.label.clone()).collect(),
        };
        let score =
            |score: &ScoreSpec| ScoreInfo { name: score.name.clone(), unit: score.unit.clone(), better: score.better };
        let declared =
            campaign.scores.iter().filter(|score| !matches!(score.read, ReadScore::Bench { case: None, .. }));
        Info {
            hash: plan.hash(),
            name: campaign.name.clone(),
            factors: campaign.factors.iter().map(factor).collect(),
            scores: declared.map(score).collect(),
            versions: campaign.build.as_ref().and_then(|build| build.versions.clone()),
            canonical: campaign.canonical(),
            imported: None,
        }
    }

    /// Reads the information of a results folder.
    ///
    /// # Errors
    /// If the folder has no campaign, or a damaged file.
    pub fn read(folder: &Path) -> Result<Info, JournalError> {
        let path = folder.join(INFO);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(JournalError::NoCampaign { folder: folder.to_owned() });
            }
            Err(error) => return Err(io_error("read", &path)(error)),
        };
        serde_json::from_str(&text).map_err(|error| JournalError::Damaged {
            path,
            line: error.line(),
            why: error.to_string(),
        })
    }

    /// Checks that runs can be added to a folder, if it has a campaign.
    pub(crate) fn check_own(folder: &Path) -> Result<(), JournalError> {
        match Info::read(folder) {
            Ok(Info { imported: Some(Origin { file, .. }), .. }) => {
                Err(JournalError::Imported { folder: folder.to_owned(), file })
            }
            Ok(_) | Err(JournalError::NoCampaign { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Checks that a folder has a campaign, and no results of another one.
    ///
    /// # Errors
    /// If it has none, or results of another one, or files cannot be read.
    pub fn check_results(folder: &Path, campaign: &Campaign) -> Result<(), JournalError> {
        Info::read(folder)?;
        Info::check(folder, campaign)
    }

    /// Checks that a folder has no results of another campaign.
    pub(crate) fn check(folder: &Path, campaign: &Campaign) -> Result<(), JournalError> {
        Info::of(campaign, &Plan::new(campaign)).is_that_of(folder).map(drop)
    }

    /// Whether a folder has results of this campaign, not yet any; an error if they are of another one.
    pub(crate) fn is_that_of(&self, folder: &Path) -> Result<bool, JournalError> {
        match Info::read(folder) {
            Ok(known) if known.hash == self.hash => Ok(true),
            // Nothing depends on the file yet.
            Ok(_) if is_unused(folder) => Ok(false),
            Ok(known) => {
                let (folder, differs) = (folder.to_owned(), known.differs(self));
                Err(JournalError::OtherCampaign { folder, differs })
            }
            Err(JournalError::NoCampaign { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The parts in which another campaign differs.
    fn differs(&self, other: &Info) -> String {
        let (Value::Object(mine), Value::Object(theirs)) = (&self.canonical, &other.canonical) else {
            return "its contents".to_owned();
        };
        let keys: std::collections::BTreeSet<&String> = mine.keys().chain(theirs.keys()).collect();
        let differing = keys.into_iter().filter(|key| mine.get(*key) != theirs.get(*key));
        let names: Vec<String> = differing
            .map(|key| if key == "combinations" { "`exclude`".to_owned() } else { format!("`{key}`") })
            .collect();
        // New levels are new combinations, which says the same twice.
        let is_factors = names.iter().any(|name| name == "`factors`");
        let names: Vec<String> = names.into_iter().filter(|name| !(is_factors && name == "`exclude`")).collect();
        if names.is_empty() { "its contents".to_owned() } else { names.join(", ") }
    }
}

/// Whether a results folder has neither rows nor registered hypotheses.
pub(crate) fn is_unused(folder: &Path) -> bool {
    let is_empty = |name| fs::metadata(folder.join(name)).map_or(true, |file| file.len() == 0);
    is_empty(JOURNAL) && is_empty(REGISTER)
}

/// Opens a file to append to it.
pub(crate) fn open(path: &Path) -> Result<File, JournalError> {
    OpenOptions::new().read(true).append(true).create(true).open(path).map_err(io_error("open", path))
}

/// Locks a file until it is closed, if need be after another process.
pub(crate) fn lock(file: &File, path: &Path) -> Result<(), JournalError> {
    loop {
        match flock(file, FlockOperation::LockExclusive) {
            Err(rustix::io::Errno::INTR) => {}
            result => return result.map_err(|error| io_error("lock", path)(error.into())),
        }
    }
}

/// Writes a whole file, which has its old contents or the new ones after a crash of the machine too.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), JournalError> {
    atomic_file::write_durably(path, bytes, None).map_err(io_error("write", path))
}

/// Synchronizes the names of a folder to the disk.
pub(crate) fn sync_folder(folder: &Path) -> Result<(), JournalError> {
    atomic_file::sync_folder(folder).map_err(io_error("write", folder))
}

/// Creates a folder and those above it, so that a crash of the machine does not lose them.
pub(crate) fn create_folder(folder: &Path) -> Result<(), JournalError> {
    let missing: Vec<&Path> = folder.ancestors().take_while(|folder| !is_there(folder)).collect();
    fs::create_dir_all(folder).map_err(io_error("create", folder))?;
    for created in missing {
        if let Some(parent) = created.parent() {
            sync_folder(parent)?;
        }
    }
    Ok(())
}

fn is_there(folder: &Path) -> bool {
    is_empty(folder) || folder.exists()
}

/// Whether a path is that of the current folder.
fn is_empty(folder: &Path) -> bool {
    folder.as_os_str().is_empty()
}

/// A name beside a file that no file has.
pub(crate) fn unused(path: &Path, what: &str) -> PathBuf {
    let name = |number: usize| {
        let mut name = path.as_os_str().to_owned();
        name.push(format!(".{what}-{number}"));
        PathBuf::from(name)
    };
    let mut number = 1;
    while name(number).exists() {
        number += 1;
    }
    name(number)
}
