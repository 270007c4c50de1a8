//! The register of hypotheses: what was stated, and when.
//!
//! Each record has the hash of the hypothesis and of the record before it, and each row of results has the hash of the
//! newest record at its time. A hypothesis whose text or time is changed later no longer agrees with its record, its
//! record with the next one, or the register with the rows.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::campaign::{Campaign, Hypothesis};
use crate::folder::{Info, JOURNAL, JournalError, REGISTER, create_folder, io_error, sync_folder};
use crate::lines::{read_all, recover};
use crate::plan::{Hash, Plan};
use crate::row::Row;
use crate::time;

/// A hypothesis as it was registered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The hypothesis.
    pub hypothesis: Hypothesis,
    /// The hash of its text.
    pub text: Hash,
    /// The hash of the campaign.
    pub campaign: Hash,
    /// When it was registered: RFC 3339, UTC.
    pub time: String,
    /// The number of runs that were recorded before.
    pub rows: usize,
    /// The hash of the journal at that time.
    pub journal: Hash,
    /// The hash of the record before this one.
    pub previous: Option<Hash>,
    /// The hash of all of the above.
    pub hash: Hash,
}

impl Record {
    fn computed(&self) -> Hash {
        Hash::of_json(&json!({
            "text": self.text,
            "campaign": self.campaign,
            "time": self.time,
            "rows": self.rows,
            "journal": self.journal,
            "previous": self.previous,
        }))
    }
}

/// The hash of a hypothesis: of all that it states.
pub fn text_hash(hypothesis: &Hypothesis) -> Hash {
    Hash::of_json(&json!(hypothesis))
}

/// The records of a results folder.
#[derive(Clone, Debug, Default)]
pub struct Register {
    records: Vec<Record>,
    /// The length of the file when it was read.
    length: u64,
}

/// Whether a hypothesis is registered.
#[derive(Clone, Debug, PartialEq)]
pub enum Standing<'r> {
    /// It is not.
    Unregistered,
    /// It is, as it is stated now.
    Registered(&'r Record),
    /// One of this name is, with another text.
    Changed(&'r Record),
}

/// What a row can be used for with regard to a hypothesis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Use {
    /// The run was made after the hypothesis was registered: it can confirm it.
    Confirmation,
    /// The run was made before the hypothesis was registered.
    MadeBefore,
    /// The run is one of those that were looked at to find the hypothesis.
    Explored,
    /// The row does not name the register's record, although it was made later: the register or the row was changed.
    Contradictory,
}

impl Register {
    /// Reads the register of a results folder, and checks its hashes.
    ///
    /// # Errors
    /// If the file cannot be read, or was changed.
    pub fn read(folder: &Path) -> Result<Register, JournalError> {
        let path = folder.join(REGISTER);
        let length = fs::metadata(&path).map_or(0, |file| file.len());
        let (records, _) = read_all(&path)?;
        let register = Register { records, length };
        match register.fault() {
            None => Ok(register),
            Some((index, why)) => Err(JournalError::Damaged { path, line: index + 1, why }),
        }
    }

    /// The first record that was changed, and how that shows.
    fn fault(&self) -> Option<(usize, String)> {
        let mut previous = None;
        for (index, record) in self.records.iter().enumerate() {
            let name = &record.hypothesis.name;
            let why = match () {
                () if text_hash(&record.hypothesis) != record.text => "its text was changed after it was registered",
                () if record.computed() != record.hash => "its time or what it was registered on was changed",
                () if record.previous != previous => "a record before it was changed, added or removed",
                () => {
                    previous = Some(record.hash);
                    continue;
                }
            };
            return Some((index, format!("the record of the hypothesis `{name}` does not agree with its hash: {why}")));
        }
        None
    }

    /// Reads the register again if another process has added records.
    pub(crate) fn refresh(&mut self, folder: &Path) -> Result<(), JournalError> {
        let length = fs::metadata(folder.join(REGISTER)).map_or(0, |file| file.len());
        if length != self.length {
            *self = Register::read(folder)?;
        }
        Ok(())
    }

    /// The records in their order.
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// The hash of the newest record. Written down elsewhere, it proves all records.
    pub fn head(&self) -> Option<Hash> {
        self.records.last().map(|record| record.hash)
    }

    /// Whether a hypothesis is registered.
    pub fn standing(&self, hypothesis: &Hypothesis) -> Standing<'_> {
        let text = text_hash(hypothesis);
        let same_name = |record: &&Record| record.hypothesis.name == hypothesis.name;
        match self.records.iter().find(|record| record.text == text) {
            Some(record) => Standing::Registered(record),
            None => self.records.iter().rfind(same_name).map_or(Standing::Unregistered, Standing::Changed),
        }
    }

    /// What the rows of a journal, in their order, can be used for with regard to a registered hypothesis.
    pub fn uses(&self, record: &Record, rows: &[Row]) -> Vec<Use> {
        let place = self.records.iter().position(|known| known.hash == record.hash);
        rows.iter()
            .enumerate()
            .map(|(index, row)| {
                if row.run.block <= record.hypothesis.explored {
                    return Use::Explored;
                }
                if index < record.rows || row.start <= record.time {
                    return Use::MadeBefore;
                }
                let named = row.registered.and_then(|hash| self.records.iter().position(|known| known.hash == hash));
                if named >= place && place.is_some() { Use::Confirmation } else { Use::Contradictory }
            })
            .collect()
    }
}

/// Registers a hypothesis of a campaign in its results folder, which may be in use. One that is registered already
/// keeps its time.
///
/// # Errors
/// If files cannot be read or written, or were changed, or the folder has the results of another campaign.
pub fn register(folder: &Path, campaign: &Campaign, hypothesis: &Hypothesis) -> Result<Record, JournalError> {
    create_folder(folder)?;
    Info::check(folder, campaign)?;
    let path = folder.join(REGISTER);
    let opened = OpenOptions::new().read(true).append(true).create(true).open(&path);
    let mut file = opened.map_err(io_error("open", &path))?;
    // Two processes that register at once would both continue the same record.
    flock(&file, FlockOperation::LockExclusive).map_err(|error| io_error("lock", &path)(error.into()))?;
    recover(&path, &mut file, |_, line| Ok(drop(serde_json::from_slice::<Record>(line)?)))?;
    let register = Register::read(folder)?;
    if let Standing::Registered(record) = register.standing(hypothesis) {
        return Ok(record.clone());
    }
    let journal_path = folder.join(JOURNAL);
    let journal = match fs::read(&journal_path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(io_error("read", &journal_path)(error)),
    };
    // Whole lines only, so that the hash can be checked. A run whose line is being written started before.
    let whole = journal.iter().rposition(|byte| *byte == b'\n').map_or(0, |newline| newline + 1);
    let rows = journal[..whole].iter().filter(|byte| **byte == b'\n').count();
    let mut record = Record {
        hypothesis: hypothesis.clone(),
        text: text_hash(hypothesis),
        campaign: Plan::new(campaign).hash(),
        time: time::now(),
        rows,
        journal: Hash::of(&journal[..whole]),
        previous: register.head(),
        hash: Hash::of(&[]),
    };
    record.hash = record.computed();
    let mut line = serde_json::to_vec(&record).map_err(|error| io_error("write", &path)(error.into()))?;
    line.push(b'\n');
    file.write_all(&line).and_then(|()| file.sync_all()).map_err(io_error("write", &path))?;
    sync_folder(folder)?;
    Ok(record)
}
