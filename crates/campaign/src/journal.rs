//! The results folder of a campaign: a journal to which each run is appended.
//!
//! | file | contents |
//! |---|---|
//! | `results.jsonl` | the journal: a [`Row`] in each line, synchronized to the disk |
//! | `results.csv` | the same as a table, which follows the journal |
//! | `campaign.json` | the hash of the campaign and what it depends on |
//! | `campaign.toml` | the campaign file as it was when the folder was made |
//! | `hypotheses.jsonl` | the [register](crate::register) of hypotheses |
//! | `lock` | locked while a runner uses the folder |
//!
//! Rows are never rewritten. A line that was written in part, by a crash at any moment, is moved to a file of its own,
//! and its run is made again.

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use bellows_sys::way_out;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::campaign::{Better, Campaign, Factor, Read as ReadScore, ScoreSpec};
use crate::plan::{Hash, Plan, RunId};
use crate::register::Register;
use crate::row::{Row, Score};

/// The name of the journal.
pub const JOURNAL: &str = "results.jsonl";

/// The name of the table.
pub const TABLE: &str = "results.csv";

const INFO: &str = "campaign.json";
const TEXT: &str = "campaign.toml";
const LOCK: &str = "lock";

/// Why a results folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// A file cannot be read or written.
    #[error("cannot {doing} {}: {error}; {}", path.display(), way_out(.error, "check the path"))]
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
    /// There are too many runs.
    #[error("{repeats} repeats of {combinations} combinations are more than 10,000,000 runs; give fewer repeats")]
    TooManyRuns {
        /// The number of blocks.
        repeats: u32,
        /// The number of combinations.
        combinations: usize,
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
    /// What the results depend on.
    pub canonical: Value,
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
    fn of(campaign: &Campaign, plan: &Plan) -> Info {
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
            canonical: campaign.canonical(),
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

    /// Checks that a folder has no results of another campaign.
    pub(crate) fn check(folder: &Path, campaign: &Campaign) -> Result<(), JournalError> {
        Info::of(campaign, &Plan::new(campaign)).is_that_of(folder).map(drop)
    }

    /// Whether a folder has results of this campaign, not yet any; an error if they are of another one.
    fn is_that_of(&self, folder: &Path) -> Result<bool, JournalError> {
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
fn is_unused(folder: &Path) -> bool {
    let is_empty = |name| fs::metadata(folder.join(name)).map_or(true, |file| file.len() == 0);
    is_empty(JOURNAL) && is_empty(crate::register::REGISTER)
}

/// The results folder of a campaign, open for one runner.
pub struct Journal {
    folder: PathBuf,
    rows: File,
    table: File,
    done: HashSet<RunId>,
    failed: usize,
    plan: Plan,
    columns: Columns,
    register: Register,
    notes: Vec<String>,
    /// Whether writing a row failed, so that the journal may end with a part of it.
    is_broken: bool,
    _lock: Lock,
}

impl Journal {
    /// Opens the results folder of a campaign, or makes it. `text` is the campaign file.
    ///
    /// # Errors
    /// If another runner uses the folder, or it has results of another campaign, or files cannot be read or written.
    pub fn open(folder: &Path, campaign: &Campaign, text: &str) -> Result<Journal, JournalError> {
        fs::create_dir_all(folder).map_err(io_error("create", folder))?;
        let lock = Lock::new(folder)?;
        let plan = Plan::new(campaign);
        let info = Info::of(campaign, &plan);
        if !info.is_that_of(folder)? {
            write_whole(&folder.join(TEXT), text.as_bytes())?;
            let json = serde_json::to_vec_pretty(&info).unwrap_or_default();
            write_whole(&folder.join(INFO), &json)?;
        }
        let mut notes = Vec::new();
        let path = folder.join(JOURNAL);
        let mut file = open(&path)?;
        let rows: Vec<Row> = recover(&path, &mut file, &mut notes)?;
        let mut unique: Vec<Row> = Vec::new();
        let mut done = HashSet::new();
        for (index, row) in rows.into_iter().enumerate() {
            if row.campaign != info.hash {
                let why = format!("the row is of another campaign, {}", row.campaign.short());
                return Err(JournalError::Damaged { path, line: index + 1, why });
            }
            if done.insert(row.run) {
                unique.push(row);
            }
        }
        let columns = Columns::of(campaign);
        let table_path = folder.join(TABLE);
        let table = follow(&table_path, &columns, &unique, &mut notes)?;
        sync_folder(folder)?;
        let failed = unique.iter().filter(|row| row.has_failed()).count();
        let register = Register::read(folder)?;
        let folder = folder.to_owned();
        Ok(Journal {
            folder,
            rows: file,
            table,
            done,
            failed,
            plan,
            columns,
            register,
            notes,
            is_broken: false,
            _lock: lock,
        })
    }

    /// What was repaired when the folder was opened, as sentences.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The results folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The plan of the campaign.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Changes the number of blocks.
    ///
    /// # Errors
    /// If that has more than 10,000,000 runs.
    pub fn set_repeats(&mut self, repeats: u32) -> Result<(), JournalError> {
        let many = JournalError::TooManyRuns { repeats, combinations: self.plan.combinations() };
        self.plan = self.plan.clone().with_repeats(repeats).ok_or(many)?;
        Ok(())
    }

    /// Whether a run is recorded.
    pub fn has(&self, run: RunId) -> bool {
        self.done.contains(&run)
    }

    /// The number of runs that are recorded, also of more repeats than the plan has.
    pub fn rows(&self) -> usize {
        self.done.len()
    }

    /// The newest record of the register, when the last row was recorded.
    pub(crate) fn registered(&self) -> Option<Hash> {
        self.register.head()
    }

    /// The number of recorded runs without a score.
    pub fn failed(&self) -> usize {
        self.failed
    }

    /// The runs that are not recorded, in their order.
    pub fn pending(&self) -> Vec<RunId> {
        self.plan.runs().filter(|run| !self.has(*run)).collect()
    }

    /// Appends a row. Returns false for a run that is recorded already, which counts once.
    ///
    /// # Errors
    /// If the row cannot be written. What was written in part is recovered when the folder is opened again.
    pub fn append(&mut self, mut row: Row) -> Result<bool, JournalError> {
        if self.has(row.run) {
            return Ok(false);
        }
        self.register.refresh(&self.folder)?;
        row.registered = self.register.head();
        let path = self.folder.join(JOURNAL);
        if row.campaign != self.plan.hash() || self.plan.levels(row.run).is_none() {
            let error = io::Error::other(format!("run {} is one of another campaign", row.run));
            return Err(io_error("record a row in", &path)(error));
        }
        if self.is_broken {
            let error = io::Error::other("a row before was written in part");
            return Err(io_error("write", &path)(error));
        }
        let error = |error: serde_json::Error| io_error("write", &path)(error.into());
        let mut line = serde_json::to_vec(&row).map_err(error)?;
        line.push(b'\n');
        self.is_broken = true;
        self.rows.write_all(&line).map_err(io_error("write", &path))?;
        self.rows.sync_data().map_err(io_error("write", &path))?;
        // The table follows the journal: what is missing after a crash is added when the folder is opened again.
        let path = self.folder.join(TABLE);
        self.table.write_all(&self.columns.lines(&row)).map_err(io_error("write", &path))?;
        self.is_broken = false;
        self.failed += usize::from(row.has_failed());
        self.done.insert(row.run);
        Ok(true)
    }
}

/// The lock of a results folder.
struct Lock(File);

impl Lock {
    fn new(folder: &Path) -> Result<Lock, JournalError> {
        let path = folder.join(LOCK);
        let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let mut file = opened.map_err(io_error("open", &path))?;
        let lock = || flock(&file, FlockOperation::NonBlockingLockExclusive);
        // Whoever reads the status locks the folder for a moment.
        let again = |_| {
            std::thread::sleep(std::time::Duration::from_millis(20));
            lock()
        };
        if let Err(error) = lock().or_else(again).or_else(again) {
            if error != rustix::io::Errno::WOULDBLOCK {
                return Err(io_error("lock", &path)(error.into()));
            }
            let mut process = String::new();
            let _ = file.take(20).read_to_string(&mut process);
            let process = process.trim().to_owned();
            return Err(JournalError::Locked { folder: folder.to_owned(), process });
        }
        let written = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
        written.map_err(io_error("write", &path))?;
        Ok(Lock(file))
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // A process that another thread is starting has a copy of the descriptor for a moment, which would keep the
        // folder locked.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

/// Whether a runner uses a results folder.
pub(crate) fn is_in_use(folder: &Path) -> bool {
    let Ok(file) = File::open(folder.join(LOCK)) else { return false };
    match flock(&file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => {
            let _ = flock(&file, FlockOperation::Unlock);
            false
        }
        Err(error) => error == rustix::io::Errno::WOULDBLOCK,
    }
}

/// Opens a file to append to it.
fn open(path: &Path) -> Result<File, JournalError> {
    OpenOptions::new().read(true).append(true).create(true).open(path).map_err(io_error("open", path))
}

/// Writes a whole file, which exists afterwards with all of its contents or not at all.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), JournalError> {
    let temporary = path.with_extension("part");
    let mut file = File::create(&temporary).map_err(io_error("create", &temporary))?;
    file.write_all(bytes).and_then(|()| file.sync_all()).map_err(io_error("write", &temporary))?;
    fs::rename(&temporary, path).map_err(io_error("write", path))?;
    sync_folder(path.parent().unwrap_or(Path::new(".")))
}

/// Synchronizes the names of a folder to the disk.
pub(crate) fn sync_folder(folder: &Path) -> Result<(), JournalError> {
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(io_error("write", folder))
}

/// The lines of a journal that are whole, each parsed; and the length of these lines.
pub(crate) fn parse_lines<T: for<'de> Deserialize<'de>>(
    path: &Path,
    bytes: &[u8],
) -> Result<(Vec<T>, usize), JournalError> {
    let mut parsed = Vec::new();
    let mut whole = 0;
    while let Some(length) = bytes[whole..].iter().position(|byte| *byte == b'\n') {
        let end = whole + length + 1;
        match serde_json::from_slice(&bytes[whole..end]) {
            Ok(row) => parsed.push(row),
            // A disk may lose the middle of what was written last.
            Err(_) if end == bytes.len() => break,
            Err(error) => {
                let (path, line) = (path.to_owned(), parsed.len() + 1);
                return Err(JournalError::Damaged {
                    path,
                    line,
                    why: format!("the line is no row of results: {error}"),
                });
            }
        }
        whole = end;
    }
    Ok((parsed, whole))
}

/// Reads a journal, and moves what a crash left of its last line aside.
pub(crate) fn recover<T: for<'de> Deserialize<'de>>(
    path: &Path,
    file: &mut File,
    notes: &mut Vec<String>,
) -> Result<Vec<T>, JournalError> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(0)).and_then(|_| file.read_to_end(&mut bytes)).map_err(io_error("read", path))?;
    let (parsed, whole) = parse_lines(path, &bytes)?;
    if whole < bytes.len() {
        let aside = unused(path, "torn");
        write_whole(&aside, &bytes[whole..])?;
        file.set_len(whole as u64).and_then(|()| file.sync_all()).map_err(io_error("shorten", path))?;
        notes.push(format!(
            "the last line of {} was written in part; its {} bytes are now in {}, and its run is made again",
            path.display(),
            bytes.len() - whole,
            aside.display()
        ));
    }
    Ok(parsed)
}

/// A name beside a file that no file has.
fn unused(path: &Path, what: &str) -> PathBuf {
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

/// Opens the table and adds what it lacks of the rows. A table that is not that of the rows is moved aside.
fn follow(path: &Path, columns: &Columns, rows: &[Row], notes: &mut Vec<String>) -> Result<File, JournalError> {
    let mut expected = columns.header();
    for row in rows {
        expected.extend(columns.lines(row));
    }
    let mut file = open(path)?;
    let mut found = Vec::new();
    file.read_to_end(&mut found).map_err(io_error("read", path))?;
    if rows.is_empty() && found.iter().filter(|byte| **byte == b'\n').count() <= 1 {
        // A table with only a header is no result to keep.
        file.set_len(0).map_err(io_error("shorten", path))?;
        found.clear();
    } else if !expected.starts_with(&found) {
        let aside = unused(path, "changed");
        fs::rename(path, &aside).map_err(io_error("move", path))?;
        notes.push(format!(
            "{} did not agree with the journal, and was written again; its old contents are in {}",
            path.display(),
            aside.display()
        ));
        file = open(path)?;
        found.clear();
    }
    file.write_all(&expected[found.len()..]).and_then(|()| file.sync_all()).map_err(io_error("write", path))?;
    Ok(file)
}

/// The columns of the table: factors, `measure` if there are several scores, `id`, `score`, `unit`, and the others.
struct Columns {
    factors: Vec<String>,
    has_measure: bool,
}

impl Columns {
    fn of(campaign: &Campaign) -> Columns {
        let factors = campaign.factors.iter().map(|factor| factor.name.clone()).collect();
        let is_one =
            matches!(campaign.scores.as_slice(), [only] if !matches!(only.read, ReadScore::Bench { case: None, .. }));
        Columns { factors, has_measure: !is_one }
    }

    fn header(&self) -> Vec<u8> {
        let measure = self.has_measure.then_some("measure");
        let rest = [
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
        record(self.factors.iter().map(String::as_str).chain(measure).chain(rest))
    }

    /// The lines of a row: one for each score.
    fn lines(&self, row: &Row) -> Vec<u8> {
        let none = Score { name: String::new(), unit: String::new(), value: None, failure: None };
        let scores = if row.scores.is_empty() { std::slice::from_ref(&none) } else { row.scores.as_slice() };
        scores.iter().flat_map(|score| self.line(row, score)).collect()
    }

    fn line(&self, row: &Row, score: &Score) -> Vec<u8> {
        let failure = row.failure.as_ref().or(score.failure.as_ref()).map(ToString::to_string);
        let factor = |name: &String| row.levels.get(name).cloned().unwrap_or_default();
        let mut fields: Vec<String> = self.factors.iter().map(factor).collect();
        if self.has_measure {
            fields.push(score.name.clone());
        }
        let machine = &row.machine;
        fields.extend([
            row.run.block.to_string(),
            score.value.map_or("NA".to_owned(), |value| value.to_string()),
            score.unit.clone(),
            failure.unwrap_or_default(),
            row.run.to_string(),
            row.start.clone(),
            row.seconds.to_string(),
            row.disturbed.join("; "),
            machine.host.clone(),
            machine.cpu.clone(),
            machine.cpus.clone(),
            machine.os.clone(),
            machine.load.to_string(),
            machine.steal.map_or(String::new(), |steal| steal.to_string()),
            machine.yardstick_before.to_string(),
            machine.yardstick_after.to_string(),
        ]);
        record(fields.iter().map(String::as_str))
    }
}

/// A line of CSV.
fn record<'f>(fields: impl IntoIterator<Item = &'f str>) -> Vec<u8> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    // Writing into memory does not fail.
    let _ = writer.write_record(fields);
    writer.into_inner().unwrap_or_default()
}
