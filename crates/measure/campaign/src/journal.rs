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

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use crate::campaign::Campaign;
use crate::folder::{
    INFO, Info, JOURNAL, JournalError, LOCK, TABLE, TEXT, create_folder, io_error, lock, open, sync_folder, write_whole,
};
use crate::line::{Line, RunSet};
use crate::lines::{LineError, recover};
use crate::plan::{Hash, Plan, RunId};
use crate::register::Register;
use crate::row::Row;
use crate::sheet::{Columns, Follower};

/// The results folder of a campaign, open for one runner.
pub struct Journal {
    folder: PathBuf,
    rows: File,
    table: File,
    done: RunSet,
    /// The number of runs without a score of each block.
    failed: BTreeMap<u32, usize>,
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
        Info::check_own(folder)?;
        create_folder(folder)?;
        let lock = Lock::new(folder)?;
        let plan = Plan::new(campaign);
        let mut info = Info::of(campaign, &plan);
        match info.is_that_of(folder)? {
            // The order of factors is that of the file as it was first.
            true => info = Info::read(folder)?,
            false => {
                write_whole(&folder.join(TEXT), text.as_bytes())?;
                let json = serde_json::to_vec_pretty(&info).unwrap_or_default();
                write_whole(&folder.join(INFO), &json)?;
            }
        }
        let columns = Columns::of(&info);
        let path = folder.join(JOURNAL);
        let mut file = open(&path)?;
        let (mut done, mut failed) = (RunSet::default(), BTreeMap::new());
        let hash = info.hash.to_string();
        let mut follower = Follower::new(&folder.join(TABLE), &columns)?;
        let mut followed = Ok(());
        let torn = recover(&path, &mut file, |_, line| {
            let line = Line::parse(line)?;
            if line.campaign.0 != hash && line.campaign.0.parse::<Hash>() != Ok(info.hash) {
                let why = format!("the row is of another campaign, {}", &line.campaign.0[..12]);
                return Err(LineError::Wrong(why));
            }
            if done.insert(line.run) && followed.is_ok() {
                if line.has_failed() {
                    *failed.entry(line.run.block).or_default() += 1;
                }
                followed = follower.row(&line);
            }
            Ok(())
        })?;
        followed?;
        let (table, changed) = follower.finish()?;
        sync_folder(folder)?;
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
            notes: torn.into_iter().chain(changed).collect(),
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
        self.done.contains(run)
    }

    /// The number of runs that are recorded, also of more repeats than the plan has.
    pub fn rows(&self) -> usize {
        self.done.len()
    }

    /// The newest record of the register, when the last row was recorded.
    pub(crate) fn registered(&self) -> Option<Hash> {
        self.register.head()
    }

    /// The number of recorded runs of the plan without a score.
    pub fn failed(&self) -> usize {
        self.failed.range(..=self.plan.repeats()).map(|(_, failed)| failed).sum()
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
        let path = self.folder.join(JOURNAL);
        if row.campaign != self.plan.hash() || self.plan.levels(row.run).is_none() {
            let error = io::Error::other(format!("run {} is one of another campaign", row.run));
            return Err(io_error("record a row in", &path)(error));
        }
        if self.is_broken {
            let error = io::Error::other("a row before was written in part");
            return Err(io_error("write", &path)(error));
        }
        // No hypothesis is registered between the look at the register and the row.
        lock(&self.rows, &path)?;
        let written = self.write(&mut row, &path);
        let _ = flock(&self.rows, FlockOperation::Unlock);
        written?;
        // The table follows the journal: what is missing after a crash is added when the folder is opened again.
        let path = self.folder.join(TABLE);
        let mut lines = Vec::new();
        self.columns.write(&Line::of(&row), &mut lines);
        self.table.write_all(&lines).map_err(io_error("write", &path))?;
        self.is_broken = false;
        if row.has_failed() {
            *self.failed.entry(row.run.block).or_default() += 1;
        }
        self.done.insert(row.run);
        Ok(true)
    }

    fn write(&mut self, row: &mut Row, path: &Path) -> Result<(), JournalError> {
        self.register.refresh(&self.folder)?;
        row.registered = self.register.head();
        let mut line = serde_json::to_vec(row).map_err(|error| io_error("write", path)(error.into()))?;
        line.push(b'\n');
        self.is_broken = true;
        self.rows.write_all(&line).map_err(io_error("write", path))?;
        self.rows.sync_data().map_err(io_error("write", path))
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
