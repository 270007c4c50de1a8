//! Imports results from CSV.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use bellows_sys::calendar;

use crate::diagnostics::{listed, quoted};
use crate::folder::is_column;
use crate::results::{FactorColumn, MAX_REASONS, Results};
use crate::words::Words;

/// Maximum number of levels of a factor. A column with more is none.
const MAX_LEVELS: usize = 10_000;

/// Maximum number of columns.
const MAX_COLUMNS: usize = 1_024;

/// Maximum length of a line, in bytes.
const MAX_LINE: usize = 1 << 20;

/// What a missing score is called, in any case.
const MISSING: [&str; 4] = ["", "na", "nan", "null"];

/// Why CSV cannot be imported.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The file cannot be read.
    #[error("{}", bellows_sys::FileError::reading(path, error))]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The file is not such a table.
    #[error("{name}, line {line}: {why}; {help}")]
    Wrong {
        /// The file.
        name: String,
        /// The line, counted from 1.
        line: u64,
        /// What is wrong with it.
        why: String,
        /// The way out.
        help: String,
    },
}

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    Factor(usize),
    Id,
    Score,
    Unit,
    Measure,
    Failure,
    Disturbed,
    Start,
    Host,
    Ignored,
}

/// Which columns of a table hold what is not a factor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnNames {
    /// The score.
    pub score: String,
    /// The number of the repetition, if there is such a column.
    pub id: String,
    /// The unit, if there is such a column.
    pub unit: String,
    /// The unit of all scores, if no column has it.
    pub default_unit: String,
    /// Columns that are left out.
    pub ignored: Vec<String>,
}

impl Default for ColumnNames {
    fn default() -> ColumnNames {
        let [score, id, unit] = ["score", "id", "unit"].map(str::to_owned);
        ColumnNames { score, id, unit, default_unit: String::new(), ignored: Vec::new() }
    }
}

/// Imports a table from a file: see [`import`].
///
/// # Errors
/// As for [`import`].
pub fn import_file(path: &Path) -> Result<Results, ImportError> {
    let file = File::open(path).map_err(|error| ImportError::Io { path: path.to_owned(), error })?;
    import(file, &path.display().to_string())
}

/// Imports a table in CSV: a column `score`, and if there are any `id`, `unit`, `measure`, `failure`, `disturbed`,
/// `start` and `host`. Without an `id` the rows of the same levels are numbered as they come. Each other column is a factor, except those that `results.csv` has besides. A score that is missing or `NA` is a
/// failure.
/// `name` stands for the file in errors.
///
/// # Errors
/// The first line that is wrong, and the way out.
pub fn import(source: impl Read, name: &str) -> Result<Results, ImportError> {
    import_columns(source, name, &ColumnNames::default())
}

/// The same, with other names for columns.
///
/// # Errors
/// As for [`import`], and if a column that is named is missing.
pub fn import_columns(source: impl Read, name: &str, names: &ColumnNames) -> Result<Results, ImportError> {
    let source = Lines { source, left: MAX_LINE };
    let mut reader = csv::ReaderBuilder::new().buffer_capacity(1 << 16).from_reader(source);
    let mut import = Import { name, names, results: Results::empty(), written: Vec::new(), line: 1 };
    let header = reader.byte_headers().map_err(|error| import.csv_error(&error))?.clone();
    let columns = import.columns(&header)?;
    let mut record = csv::ByteRecord::new();
    loop {
        match reader.read_byte_record(&mut record) {
            Ok(true) => {
                import.line = record.position().map_or(0, csv::Position::line);
                import.row(&columns, &record)?;
            }
            Ok(false) => {
                let mut results = import.results;
                // Of each row, or of none.
                if results.starts.len() < results.len() {
                    results.starts = Vec::new();
                }
                number_repetitions(&mut results);
                return Ok(results);
            }
            Err(error) => return Err(import.csv_error(&error)),
        }
    }
}

/// Numbers the rows without a column of repetitions, from 1: how often their levels were there before.
fn number_repetitions(results: &mut Results) {
    if results.ids.iter().any(|id| *id > 0) {
        return;
    }
    let mut counts: HashMap<Vec<u32>, u32> = HashMap::new();
    for row in 0..results.len() {
        let key = results.factors.iter().map(|factor| factor.rows[row]).chain([results.measure[row]]).collect();
        let count = counts.entry(key).or_default();
        *count += 1;
        results.ids[row] = *count;
    }
}

/// A source of lines, none of which is too long to be read: devices have no lines, and no end.
struct Lines<R> {
    source: R,
    left: usize,
}

impl<R: Read> Read for Lines<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.source.read(buffer)?;
        match buffer[..length].iter().rposition(|byte| *byte == b'\n') {
            Some(end) => self.left = MAX_LINE - (length - end - 1).min(MAX_LINE),
            None => self.left = self.left.saturating_sub(length),
        }
        match self.left {
            0 => Err(io::Error::new(io::ErrorKind::InvalidData, "a line is longer than 1 MiB, so this is no table")),
            _ => Ok(length),
        }
    }
}

/// Whether a field has no value, as programs write it.
fn is_missing(text: &str) -> bool {
    MISSING.iter().any(|missing| text.eq_ignore_ascii_case(missing))
}

struct Import<'n> {
    name: &'n str,
    names: &'n ColumnNames,
    results: Results,
    /// For each factor, its levels as they are written, with the spaces around them.
    written: Vec<Vec<Vec<u8>>>,
    line: u64,
}

impl Import<'_> {
    fn wrong(&self, why: impl Into<String>, help: impl Into<String>) -> ImportError {
        ImportError::Wrong { name: self.name.to_owned(), line: self.line, why: why.into(), help: help.into() }
    }

    fn csv_error(&self, error: &csv::Error) -> ImportError {
        let line = error.position().map_or(self.line, csv::Position::line);
        let (why, help) = match error.kind() {
            csv::ErrorKind::Io(error) => {
                let copy = || io::Error::new(error.kind(), error.to_string());
                let error = error.raw_os_error().map_or_else(copy, io::Error::from_raw_os_error);
                return ImportError::Io { path: PathBuf::from(self.name), error };
            }
            csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
                (format!("the line has {len} fields, the header {expected_len}"), "add or remove commas")
            }
            _ => (error.to_string(), "write a table as CSV, with commas between fields"),
        };
        ImportError::Wrong { name: self.name.to_owned(), line, why, help: help.to_owned() }
    }

    fn columns(&mut self, header: &csv::ByteRecord) -> Result<Vec<Column>, ImportError> {
        if header.len() > MAX_COLUMNS {
            return Err(self.wrong(format!("there are more than {MAX_COLUMNS} columns"), "remove some"));
        }
        let mut columns = Vec::new();
        let mut names: Vec<String> = Vec::new();
        for (index, field) in header.iter().enumerate() {
            // Some programs begin a file with a byte order mark.
            let field = if index == 0 { field.strip_prefix(b"\xef\xbb\xbf").unwrap_or(field) } else { field };
            let Ok(name) = std::str::from_utf8(field) else {
                return Err(self.wrong("the header is not UTF-8 text", "save the file as UTF-8"));
            };
            let name = name.trim().to_owned();
            if name.is_empty() {
                return Err(self.wrong("a column has no name", "name each column in the first line"));
            }
            if names.contains(&name) {
                return Err(self.wrong(format!("there are two columns {}", quoted(&name)), "rename one"));
            }
            let is_ignored = self.names.ignored.contains(&name);
            if is_ignored && name == self.names.score {
                return Err(self.wrong(
                    format!("the column {} of scores cannot be left out", quoted(&name)),
                    "say which column has the scores, or do not ignore this one",
                ));
            }
            columns.push(match name.as_str() {
                _ if is_ignored => Column::Ignored,
                name if *name == self.names.score => Column::Score,
                name if *name == self.names.id => Column::Id,
                name if *name == self.names.unit => Column::Unit,
                "measure" => Column::Measure,
                "failure" => Column::Failure,
                "disturbed" => Column::Disturbed,
                "start" => Column::Start,
                "host" => Column::Host,
                other if is_column(other) => Column::Ignored,
                other => {
                    let column = FactorColumn { name: other.to_owned(), levels: Words::default(), rows: Vec::new() };
                    self.results.factors.push(column);
                    self.written.push(Vec::new());
                    Column::Factor(self.results.factors.len() - 1)
                }
            });
            names.push(name);
        }
        let standard = ColumnNames::default();
        let chosen =
            [(&self.names.score, None), (&self.names.id, Some(&standard.id)), (&self.names.unit, Some(&standard.unit))];
        // Columns with the usual names may be missing, except that of the score.
        let needed = chosen.into_iter().filter(|(name, usual)| Some(*name) != *usual).map(|(name, _)| name);
        if let Some(missing) = needed.chain(&self.names.ignored).find(|name| !names.contains(name)) {
            let why = format!("there is no column {}; there are {}", quoted(missing), listed(&names));
            let help = match *missing == standard.score {
                true => "name the column of numbers `score`, or say which it is",
                false => "name a column that there is",
            };
            return Err(self.wrong(why, help));
        }
        Ok(columns)
    }

    fn row(&mut self, columns: &[Column], record: &csv::ByteRecord) -> Result<(), ImportError> {
        // Values of columns that there may not be.
        let (mut id, mut unit, mut measure, mut reason, mut disturbed) =
            (0, &*self.names.default_unit, "score", "", false);
        let mut score = f64::NAN;
        for (column, field) in columns.iter().zip(record) {
            if *column == Column::Ignored {
                continue;
            }
            let Ok(text) = std::str::from_utf8(field) else {
                return Err(self.wrong("the line is not UTF-8 text", "save the file as UTF-8"));
            };
            let text = text.trim();
            match column {
                Column::Factor(index) => {
                    let factor = &mut self.results.factors[*index];
                    let number = factor.levels.intern(text);
                    factor.rows.push(number);
                    let written = &mut self.written[*index];
                    if number as usize == written.len() {
                        written.push(field.to_vec());
                    } else if written[number as usize] != field {
                        let name = quoted(&factor.name);
                        let why = format!("{} of the column {name} was written with other spaces before", quoted(text));
                        return Err(self.wrong(why, "write it with the same spaces in each line, or rename one"));
                    }
                    if number as usize >= MAX_LEVELS {
                        let why =
                            format!("the column {} has more than {MAX_LEVELS} different values", quoted(&factor.name));
                        return Err(self.wrong(why, "remove it if it is no factor"));
                    }
                }
                Column::Id => {
                    id = text.parse().map_err(|_| {
                        self.wrong(format!("the id {} is no whole number", quoted(text)), "number repetitions from 1")
                    })?;
                }
                Column::Score => score = self.score(text)?,
                Column::Unit => unit = text,
                Column::Measure => measure = text,
                Column::Failure if self.results.reasons.all().len() >= MAX_REASONS => {}
                Column::Failure => reason = if is_missing(text) { "" } else { text },
                Column::Disturbed => disturbed = !is_missing(text),
                Column::Start => self.results.starts.extend(calendar::microseconds(text)),
                Column::Host => {
                    let number = self.results.machines.intern(text);
                    self.results.machine.push(number);
                }
                Column::Ignored => {}
            }
        }
        if score.is_nan() && reason.is_empty() {
            reason = "no score";
        }
        let results = &mut self.results;
        results.ids.push(id);
        results.unit.push(results.units.intern(unit));
        results.measure.push(results.measures.intern(measure));
        results.failure.push(results.reasons.intern(reason));
        results.disturbed.push(disturbed);
        results.scores.push(score);
        Ok(())
    }

    fn score(&self, text: &str) -> Result<f64, ImportError> {
        if let Ok(score) = text.parse::<f64>()
            && score.is_finite()
        {
            return Ok(score);
        }
        if is_missing(text) {
            return Ok(f64::NAN);
        }
        Err(self
            .wrong(format!("the score {} is no finite number", quoted(text)), "write a number, or NA for a failure"))
    }
}
