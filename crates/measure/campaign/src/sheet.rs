//! `results.csv`: the rows of the journal as a table, which follows the journal.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use crate::folder::{COLUMNS, Info, JournalError, io_error, open, unused};
use crate::line::{Line, LineScore};

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
        let mut line = Vec::new();
        self.factors.iter().map(String::as_str).chain(measure).chain(COLUMNS).for_each(|name| field(&mut line, name));
        end(&mut line);
        line
    }

    /// Writes the lines of a row: one for each score.
    pub(crate) fn write(&self, row: &Line<'_>, lines: &mut Vec<u8>) {
        let none = [LineScore::none()];
        let scores = if row.scores.is_empty() { none.as_slice() } else { row.scores.as_slice() };
        scores.iter().for_each(|score| self.write_score(row, score, lines));
    }

    fn write_score(&self, row: &Line<'_>, score: &LineScore<'_>, line: &mut Vec<u8>) {
        self.factors.iter().for_each(|factor| field(line, row.level(factor)));
        if self.has_measure {
            field(line, &score.name.0);
        }
        plain(line, row.run.block);
        match score.value {
            Some(value) => plain(line, value),
            None => field(line, "NA"),
        }
        field(line, &score.unit.0);
        match row.failure.as_ref().or(score.failure.as_ref()) {
            Some(failure) => field(line, &failure.to_string()),
            None => field(line, ""),
        }
        plain(line, row.run);
        field(line, &row.start.0);
        plain(line, row.seconds);
        match row.disturbed.as_slice() {
            [] => field(line, ""),
            all => field(line, &all.iter().map(|why| &*why.0).collect::<Vec<&str>>().join("; ")),
        }
        let machine = &row.machine;
        [&machine.host, &machine.cpu, &machine.cpus, &machine.os].into_iter().for_each(|name| field(line, &name.0));
        plain(line, machine.load);
        match machine.steal {
            Some(steal) => plain(line, steal),
            None => field(line, ""),
        }
        plain(line, machine.yardstick_before);
        plain(line, machine.yardstick_after);
        end(line);
    }
}

/// Writes a field of CSV (RFC 4180), and a comma.
fn field(line: &mut Vec<u8>, text: &str) {
    if text.bytes().any(|byte| matches!(byte, b',' | b'"' | b'\n' | b'\r')) {
        line.push(b'"');
        for byte in text.bytes() {
            line.extend(std::iter::repeat_n(byte, if byte == b'"' { 2 } else { 1 }));
        }
        line.push(b'"');
    } else {
        line.extend_from_slice(text.as_bytes());
    }
    line.push(b',');
}

/// Writes a number, or something else that needs no quotes, and a comma.
fn plain(line: &mut Vec<u8>, value: impl std::fmt::Display) {
    // Writing into memory does not fail.
    let _ = write!(line, "{value},");
}

/// Ends a line behind its last comma.
fn end(line: &mut Vec<u8>) {
    line.pop();
    line.push(b'\n');
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
    /// The lines of a row.
    lines: Vec<u8>,
    rows: usize,
    note: Option<String>,
}

impl<'c> Follower<'c> {
    pub(crate) fn new(path: &Path, columns: &'c Columns) -> Result<Follower<'c>, JournalError> {
        let file = BufWriter::with_capacity(1 << 20, open(path)?);
        let old = Some(BufReader::with_capacity(1 << 20, File::open(path).map_err(io_error("read", path))?));
        let path = path.to_owned();
        let mut follower = Follower { columns, path, file, old, same: 0, lines: Vec::new(), rows: 0, note: None };
        follower.expect(&columns.header())?;
        Ok(follower)
    }

    /// The next row of the journal.
    pub(crate) fn row(&mut self, row: &Line<'_>) -> Result<(), JournalError> {
        self.rows += 1;
        let mut lines = std::mem::take(&mut self.lines);
        lines.clear();
        self.columns.write(row, &mut lines);
        let done = self.expect(&lines);
        self.lines = lines;
        done
    }

    /// The table's next bytes.
    fn expect(&mut self, mut bytes: &[u8]) -> Result<(), JournalError> {
        while let Some(old) = &mut self.old
            && !bytes.is_empty()
        {
            let found = old.fill_buf().map_err(io_error("read", &self.path))?;
            let length = found.len().min(bytes.len());
            let is_same = found[..length] == bytes[..length];
            match length {
                0 => self.old = None,
                _ if !is_same => self.move_aside()?,
                _ => {
                    old.consume(length);
                    self.same += length as u64;
                    bytes = &bytes[length..];
                }
            }
        }
        self.file.write_all(bytes).map_err(io_error("write", &self.path))
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn fields_are_written_as_by_a_library_of_csv(fields in prop::collection::vec(".{0,5}|[a,\"\n\r]{0,5}", 2..5)) {
            let mut line = Vec::new();
            fields.iter().for_each(|text| field(&mut line, text));
            end(&mut line);
            let mut writer = csv::Writer::from_writer(Vec::new());
            writer.write_record(&fields).unwrap();
            prop_assert_eq!(line, writer.into_inner().unwrap());
        }
    }
}
