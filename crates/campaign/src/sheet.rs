//! `results.csv`: the rows of the journal as a table, which follows the journal.

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use crate::folder::{COLUMNS, Info, JournalError, io_error, open, unused};
use crate::row::{Row, Score};

/// The columns of the table: factors, `measure` if there are several scores, `id`, `score`, `unit`, and the others.
pub(crate) struct Columns {
    factors: Vec<String>,
    has_measure: bool,
}

impl Columns {
    /// The columns of a results folder: in the order of the campaign file as it was first.
    pub(crate) fn of(info: &Info) -> Columns {
        let factors = info.factors.iter().map(|factor| factor.name.clone()).collect();
        Columns { factors, has_measure: info.scores.len() != 1 }
    }

    fn header(&self) -> Vec<u8> {
        let measure = self.has_measure.then_some("measure");
        record(self.factors.iter().map(String::as_str).chain(measure).chain(COLUMNS))
    }

    /// The lines of a row: one for each score.
    pub(crate) fn lines(&self, row: &Row) -> Vec<u8> {
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

/// Compares a table with the rows of the journal, one after the other, and adds what it lacks.
pub(crate) struct Follower<'c> {
    columns: &'c Columns,
    path: PathBuf,
    file: BufWriter<File>,
    /// The table as it was. Nothing behind its end, or where it is not that of the rows.
    old: Option<BufReader<File>>,
    /// The length of the part that is that of the rows.
    same: u64,
    rows: usize,
    note: Option<String>,
}

impl<'c> Follower<'c> {
    pub(crate) fn new(path: &Path, columns: &'c Columns) -> Result<Follower<'c>, JournalError> {
        let file = BufWriter::new(open(path)?);
        let old = Some(BufReader::new(File::open(path).map_err(io_error("read", path))?));
        let path = path.to_owned();
        let mut follower = Follower { columns, path, file, old, same: 0, rows: 0, note: None };
        follower.expect(&columns.header())?;
        Ok(follower)
    }

    /// The next row of the journal.
    pub(crate) fn row(&mut self, row: &Row) -> Result<(), JournalError> {
        self.rows += 1;
        self.expect(&self.columns.lines(row))
    }

    /// The table's next bytes.
    fn expect(&mut self, bytes: &[u8]) -> Result<(), JournalError> {
        let Some(old) = &mut self.old else {
            return self.file.write_all(bytes).map_err(io_error("write", &self.path));
        };
        let mut found = Vec::with_capacity(bytes.len());
        old.take(bytes.len() as u64).read_to_end(&mut found).map_err(io_error("read", &self.path))?;
        if !bytes.starts_with(&found) {
            self.move_aside()?;
            return self.expect(bytes);
        }
        self.same += found.len() as u64;
        if found.len() < bytes.len() {
            self.old = None;
            return self.expect(&bytes[found.len()..]);
        }
        Ok(())
    }

    /// Moves a table that is not that of the rows aside, and begins a new one with the part that is.
    fn move_aside(&mut self) -> Result<(), JournalError> {
        self.old = None;
        // A table with only a header is no result to keep, nor what a crash left behind it.
        let is_header = self.rows == 0 && is_one_line(&self.path).map_err(io_error("read", &self.path))?;
        if is_header {
            return self.file.get_mut().set_len(self.same).map_err(io_error("shorten", &self.path));
        }
        let aside = unused(&self.path, "changed");
        fs::rename(&self.path, &aside).map_err(io_error("move", &self.path))?;
        self.note = Some(format!(
            "{} did not agree with the journal, and was written again; its old contents are in {}",
            self.path.display(),
            aside.display()
        ));
        self.file = BufWriter::new(open(&self.path)?);
        let mut same = File::open(&aside).map_err(io_error("read", &aside))?.take(self.same);
        io::copy(&mut same, &mut self.file).map_err(io_error("write", &self.path))?;
        Ok(())
    }

    /// After the last row: the table, to which rows can be added, and what was done as a sentence.
    pub(crate) fn finish(mut self) -> Result<(File, Option<String>), JournalError> {
        let mut more = [0];
        let has_more = match &mut self.old {
            Some(old) => old.read(&mut more).map_err(io_error("read", &self.path))? > 0,
            None => false,
        };
        if has_more {
            self.move_aside()?;
        }
        let write = io_error("write", &self.path);
        let file = match self.file.into_inner() {
            Ok(file) => file,
            Err(error) => return Err(write(error.into_error())),
        };
        file.sync_all().map_err(write)?;
        Ok((file, self.note))
    }
}

/// Whether a file has no line behind the first.
fn is_one_line(path: &Path) -> io::Result<bool> {
    const MAX_HEADER: u64 = 1 << 16;
    let mut start = Vec::new();
    File::open(path)?.take(MAX_HEADER).read_to_end(&mut start)?;
    let is_whole = (start.len() as u64) < MAX_HEADER;
    Ok(is_whole && start.iter().filter(|byte| **byte == b'\n').count() <= 1)
}
