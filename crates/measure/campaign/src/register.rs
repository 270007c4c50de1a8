//! The register of hypotheses: what was stated, when, and after how many runs it is tested.
//!
//! Each record has the hash of the hypothesis and of the record before it, and of the journal at that time; each row of
//! results has the hash of the newest record when it was recorded. A hypothesis whose text, time or number of runs is
//! changed later no longer agrees with its record, its record with the next one, or the register with the rows. Which
//! record was the last is kept in a file of its own, so that one that is removed from the end is missed also before the
//! next row.

use std::collections::HashMap;
use std::fs;
use std::io::{self, Write};
use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::campaign::{Campaign, Hypothesis};
use crate::diagnostics::quoted;
use crate::folder::{HEAD, Info, JOURNAL, JournalError, REGISTER, create_folder, io_error, lock, open, write_whole};
use crate::line::{Line, RunSet, Text};
use crate::lines::{LineError, each_line, read_all, recover};
use crate::machine;
use crate::plan::{Hash, Plan};
use crate::time;

/// A hypothesis as it was registered.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize, Deserialize)]
#[schemars(title = "Registered hypothesis")]
pub struct HypothesisRecord {
    /// The hypothesis.
    pub hypothesis: Hypothesis,
    /// The hash of what it states.
    pub text: Hash,
    /// The hash of the campaign.
    pub campaign: Hash,
    /// When it was registered, by the clock of `host` (RFC 3339, UTC).
    pub time: String,
    /// The name of the machine on which it was registered.
    pub host: String,
    /// The number of blocks after which it is tested.
    ///
    /// The number of blocks after which it is tested. Fewer would be a choice of when to stop, and more of when to go
    /// on.
    pub repeats: u32,
    /// The number of rows that were recorded before.
    pub rows: usize,
    /// The hash of these rows.
    pub journal: Hash,
    /// The hash of the record before; null for the first.
    pub previous: Option<Hash>,
    /// The hash of all of this.
    pub hash: Hash,
}

impl HypothesisRecord {
    fn computed(&self) -> Hash {
        Hash::of_json(&json!({
            "text": self.text,
            "campaign": self.campaign,
            "time": self.time,
            "host": self.host,
            "repeats": self.repeats,
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
    records: Vec<HypothesisRecord>,
    /// The length of the file when it was read.
    length: u64,
}

/// Whether a hypothesis is registered.
#[derive(Clone, Debug, PartialEq)]
pub enum Standing<'r> {
    /// It is not.
    Unregistered,
    /// It is, as it is stated now.
    Registered(&'r HypothesisRecord),
    /// One of this name is, with another text.
    Changed(&'r HypothesisRecord),
}

/// Which record was the last.
#[derive(Serialize, Deserialize)]
struct Head {
    records: usize,
    hash: Hash,
}

impl Head {
    /// Reads the file, which there may not be.
    fn read(folder: &Path) -> Result<Option<Head>, JournalError> {
        let path = folder.join(HEAD);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(io_error("read", &path)(error)),
        };
        let damaged =
            |error: serde_json::Error| JournalError::Damaged { path, line: error.line(), why: error.to_string() };
        serde_json::from_slice(&bytes).map(Some).map_err(damaged)
    }
}

impl Register {
    /// Reads the register of a results folder, and checks its hashes.
    ///
    /// # Errors
    /// If the file cannot be read, or was changed.
    pub fn read(folder: &Path) -> Result<Register, JournalError> {
        let path = folder.join(REGISTER);
        // A record is added before it becomes the last one, so the file with the last one is read first.
        let head = Head::read(folder)?;
        let length = fs::metadata(&path).map_or(0, |file| file.len());
        let (records, _) = read_all(&path)?;
        let register = Register { records, length };
        match register.fault() {
            None => register.check_head(head, &path).map(|()| register),
            Some((index, why)) => Err(JournalError::Damaged { path, line: index + 1, why }),
        }
    }

    /// Whether the record that was the last is still there.
    fn check_head(&self, head: Option<Head>, path: &Path) -> Result<(), JournalError> {
        let Some(head) = head else { return Ok(()) };
        if self.records.iter().any(|record| record.hash == head.hash) {
            return Ok(());
        }
        let why = format!(
            "the register has {} records, but had {}, of which the last, {}, is missing",
            self.records.len(),
            head.records,
            head.hash.short()
        );
        Err(JournalError::Damaged { path: path.to_owned(), line: self.records.len() + 1, why })
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

    /// Reads the register again if another process has added records. Returns whether that was so.
    pub(crate) fn refresh(&mut self, folder: &Path) -> Result<bool, JournalError> {
        let length = fs::metadata(folder.join(REGISTER)).map_or(0, |file| file.len());
        let has_changed = length != self.length;
        if has_changed {
            *self = Register::read(folder)?;
        }
        Ok(has_changed)
    }

    /// The records in their order.
    pub fn records(&self) -> &[HypothesisRecord] {
        &self.records
    }

    /// The hash of the newest record. Written down elsewhere, it proves all records.
    pub fn head(&self) -> Option<Hash> {
        self.records.last().map(|record| record.hash)
    }

    /// Whether a hypothesis is registered.
    pub fn standing(&self, hypothesis: &Hypothesis) -> Standing<'_> {
        let text = text_hash(hypothesis);
        let same_name = |record: &&HypothesisRecord| record.hypothesis.name == hypothesis.name;
        match self.records.iter().find(|record| record.text == text) {
            Some(record) => Standing::Registered(record),
            None => self.records.iter().rfind(same_name).map_or(Standing::Unregistered, Standing::Changed),
        }
    }

    /// Compares the register with a journal: see [`Agreement::line`].
    pub(crate) fn agreement(&self) -> Agreement<'_> {
        let places = self.records.iter().zip(1..).map(|(record, place)| (record.hash.to_string(), place)).collect();
        let last = (String::new(), 0);
        Agreement { records: &self.records, places, last, journal: Sha256::new(), before: 0, rows: 0 }
    }
}

/// A comparison of a register with the lines of a journal.
pub(crate) struct Agreement<'r> {
    records: &'r [HypothesisRecord],
    /// The number of each record, from 1.
    places: HashMap<String, u32>,
    /// The text of the newest record that a row has named, and its number.
    last: (String, u32),
    /// The hash of the lines so far, as long as there are records behind them.
    journal: Sha256,
    /// The number of records that were made before the next line.
    before: usize,
    rows: usize,
}

impl Agreement<'_> {
    /// The next line. Returns the number, from 1, of the newest record that its executor knew, or 0.
    ///
    /// # Errors
    /// If the line does not name the record that was the newest when it was recorded, or a line before it is not what it
    /// was when a hypothesis was registered.
    pub(crate) fn line(&mut self, bytes: &[u8], line: &Line<'_>) -> Result<u32, LineError> {
        self.check_journal().map_err(LineError::Disagreement)?;
        let run = line.run;
        let mut place = |hash: &Option<Text<'_>>| match hash {
            None => Ok(0),
            Some(Text(hash)) if *hash == self.last.0 => Ok(self.last.1),
            Some(Text(hash)) => match self.places.get(&**hash) {
                Some(place) => {
                    self.last = (hash.to_string(), *place);
                    Ok(*place)
                }
                None => Err(LineError::Disagreement(format!(
                    "the row of run {run} names the record {} of the register, which {REGISTER} does not have: a record \
                     was removed or changed",
                    quoted(hash)
                ))),
            },
        };
        let (named, known) = (place(&line.registered)?, place(&line.known)?);
        if named as usize != self.before || known > named {
            let why = format!(
                "the row of run {} was recorded with {named} of the register's records, but {} were there before it: the \
                 row or the register was changed",
                line.run, self.before
            );
            return Err(LineError::Disagreement(why));
        }
        self.rows += 1;
        if self.before < self.records.len() {
            self.journal.update(bytes);
        }
        Ok(known)
    }

    /// Compares the lines so far with the hashes of the records that were made after them.
    fn check_journal(&mut self) -> Result<(), String> {
        while let Some(record) = self.records.get(self.before).filter(|record| record.rows <= self.rows) {
            if record.rows < self.rows || Hash::of_digest(self.journal.clone()) != record.journal {
                return Err(format!(
                    "the {} rows until here are not those after which the hypothesis `{}` was registered: one was \
                     changed, added or removed",
                    self.rows, record.hypothesis.name
                ));
            }
            self.before += 1;
        }
        Ok(())
    }

    /// After the last line.
    ///
    /// # Errors
    /// If lines are missing.
    pub(crate) fn finish(mut self, path: &Path) -> Result<(), JournalError> {
        let checked = self.check_journal();
        let disagreement = |why| JournalError::Disagreement { path: path.to_owned(), line: self.rows, why };
        checked.map_err(disagreement)?;
        match self.records.get(self.before) {
            None => Ok(()),
            Some(record) => Err(disagreement(format!(
                "the journal has {} rows, but had {} when the hypothesis `{}` was registered",
                self.rows, record.rows, record.hypothesis.name
            ))),
        }
    }
}

/// Registers a hypothesis of a campaign in its results folder, which may be in use. One that is registered already
/// keeps its time and its number of blocks. That number is the one that the hypothesis states, else the campaign's.
///
/// # Errors
/// If files cannot be read or written, or were changed, or the folder has the results of another campaign, or no run
/// is left that could confirm the hypothesis.
pub fn register(folder: &Path, campaign: &Campaign, hypothesis: &Hypothesis) -> Result<HypothesisRecord, JournalError> {
    Info::check_own(folder)?;
    create_folder(folder)?;
    Info::check(folder, campaign)?;
    let path = folder.join(REGISTER);
    let mut file = open(&path)?;
    // Two processes that register at once would both continue the same record.
    lock(&file, &path)?;
    recover(&path, &mut file, |_, line| {
        serde_json::from_slice::<HypothesisRecord>(line)?;
        Ok(())
    })?;
    let register = Register::read(folder)?;
    if let Standing::Registered(record) = register.standing(hypothesis) {
        return Ok(record.clone());
    }
    // A row that is being recorded names the newest record: either this one, or its row is counted here.
    let journal_path = folder.join(JOURNAL);
    let journal_file = open(&journal_path)?;
    lock(&journal_file, &journal_path)?;
    // A crash of the machine must not take back rows that the record is about.
    journal_file.sync_data().map_err(io_error("write", &journal_path))?;
    let repeats = hypothesis.repeats.unwrap_or(campaign.repeats);
    let (mut journal, mut known, mut rows, mut made) = (Sha256::new(), RunSet::default(), 0, 0);
    each_line(&journal_path, &journal_file, |_, bytes| {
        let line = Line::parse(bytes)?;
        journal.update(bytes);
        rows += 1;
        made += usize::from(known.insert(line.run) && line.run.block <= repeats);
        Ok(())
    })?;
    let plan = Plan::new(campaign);
    if made >= plan.combinations() * repeats as usize {
        let name = hypothesis.name.clone();
        return Err(JournalError::NoRunsLeft { name, repeats });
    }
    let mut record = HypothesisRecord {
        hypothesis: hypothesis.clone(),
        text: text_hash(hypothesis),
        campaign: plan.hash(),
        time: time::now(),
        host: machine::host(),
        repeats,
        rows,
        journal: Hash::of_digest(journal),
        previous: register.head(),
        hash: Hash::of(&[]),
    };
    record.hash = record.computed();
    let error = |error: serde_json::Error| io_error("write", &path)(error.into());
    let mut line = serde_json::to_vec(&record).map_err(error)?;
    line.push(b'\n');
    file.write_all(&line).and_then(|()| file.sync_all()).map_err(io_error("write", &path))?;
    let head = Head { records: register.records.len() + 1, hash: record.hash };
    write_whole(&folder.join(HEAD), &serde_json::to_vec(&head).map_err(error)?)?;
    Ok(record)
}
