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
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use crate::campaign::{Campaign, Read as ReadScore};
use crate::folder::{
    COLUMNS, INFO, Info, JOURNAL, JournalError, TABLE, TEXT, io_error, open, recover, sync_folder, unused, write_whole,
};
use crate::plan::{Hash, Plan, RunId};
use crate::register::Register;
use crate::row::{Row, Score};

const LOCK: &str = "lock";

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
        record(self.factors.iter().map(String::as_str).chain(measure).chain(COLUMNS))
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
