//! Results as columns, for tests and reports: read from a results folder, or imported from CSV.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use crate::diagnostics::{listed, quoted};
use crate::folder::{Info, JOURNAL, JournalError, io_error, is_column};
use crate::plan::RunId;
use crate::row::Row;

/// Maximum number of levels of a factor. A column with more is none.
const MAX_LEVELS: usize = 10_000;

/// Maximum number of columns.
const MAX_COLUMNS: usize = 1_024;

/// Up to this number of words are compared one by one.
const MAX_COMPARED: usize = 12;

/// What a missing score is called, in any case.
const MISSING: [&str; 4] = ["", "na", "nan", "null"];

/// Distinct words, each with its number.
#[derive(Clone, Debug, Default)]
pub struct Words {
    words: Vec<String>,
    numbers: HashMap<String, u32>,
    last: u32,
}

impl Words {
    /// The number of a word, which is added if it is new.
    pub fn intern(&mut self, word: &str) -> u32 {
        // Neighbouring rows often have the same word.
        if self.words.get(self.last as usize).is_some_and(|last| last == word) {
            return self.last;
        }
        // Few words are compared faster than hashed.
        let known = match self.words.len() <= MAX_COMPARED {
            true => self.words.iter().position(|known| known == word).map(|place| place as u32),
            false => self.numbers.get(word).copied(),
        };
        self.last = match known {
            Some(number) => number,
            None => {
                let number = self.words.len() as u32;
                self.words.push(word.to_owned());
                self.numbers.insert(word.to_owned(), number);
                number
            }
        };
        self.last
    }

    /// The word of a number.
    pub fn word(&self, number: u32) -> &str {
        self.words.get(number as usize).map_or("", String::as_str)
    }

    /// The number of a word that is known.
    pub fn number(&self, word: &str) -> Option<u32> {
        self.numbers.get(word).copied()
    }

    /// All words, by number.
    pub fn all(&self) -> &[String] {
        &self.words
    }
}

/// A factor and the level of each row.
#[derive(Clone, Debug)]
pub struct FactorColumn {
    /// The name.
    pub name: String,
    /// The levels: first those that the campaign states, in its order.
    pub levels: Words,
    /// The number of each row's level.
    pub rows: Vec<u32>,
}

/// Results as columns: a row for each score of each run.
#[derive(Clone, Debug, Default)]
pub struct Results {
    /// The name of the campaign, or nothing.
    pub name: String,
    /// The factors.
    pub factors: Vec<FactorColumn>,
    /// The names of scores.
    pub measures: Words,
    /// The number of each row's score name.
    pub measure: Vec<u32>,
    /// The units.
    pub units: Words,
    /// The number of each row's unit.
    pub unit: Vec<u32>,
    /// The block of each row.
    pub ids: Vec<u32>,
    /// The scores; NaN for failures.
    pub scores: Vec<f64>,
    /// Reasons of failures. The first is empty, for rows without a failure.
    pub reasons: Words,
    /// The number of each row's reason.
    pub failure: Vec<u32>,
    /// Whether each row's run was disturbed.
    pub disturbed: Vec<bool>,
    /// When the campaign's runs started, as text. Empty if it is not known, as for imported results.
    pub starts: Vec<String>,
    /// The run of each row. Empty if it is not known.
    pub runs: Vec<RunId>,
}

impl Results {
    fn empty() -> Results {
        let mut results = Results::default();
        results.reasons.intern("");
        results
    }

    /// The number of rows.
    pub fn len(&self) -> usize {
        self.scores.len()
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.scores.is_empty()
    }

    /// The number of rows without a score.
    pub fn failures(&self) -> usize {
        self.scores.iter().filter(|score| score.is_nan()).count()
    }

    /// The factor of a name.
    pub fn factor(&self, name: &str) -> Option<&FactorColumn> {
        self.factors.iter().find(|factor| factor.name == name)
    }

    /// Results with the factors and levels of a campaign, but without rows.
    fn of(info: &Info) -> Results {
        let mut results = Results { name: info.name.clone(), ..Results::empty() };
        for factor in &info.factors {
            let mut levels = Words::default();
            for label in &factor.levels {
                levels.intern(label);
            }
            results.factors.push(FactorColumn { name: factor.name.clone(), levels, rows: Vec::new() });
        }
        for score in &info.scores {
            results.measures.intern(&score.name);
        }
        results
    }

    /// Adds a run.
    fn add(&mut self, row: &Row) {
        let none = crate::row::Score { name: String::new(), unit: String::new(), value: None, failure: None };
        let scores = if row.scores.is_empty() { std::slice::from_ref(&none) } else { row.scores.as_slice() };
        for score in scores {
            for factor in &mut self.factors {
                let level = row.levels.get(&factor.name).map_or("", String::as_str);
                let number = factor.levels.intern(level);
                factor.rows.push(number);
            }
            let failure = row.failure.as_ref().or(score.failure.as_ref());
            let reason = failure.map_or(String::new(), ToString::to_string);
            self.failure.push(self.reasons.intern(&reason));
            self.measure.push(self.measures.intern(&score.name));
            self.unit.push(self.units.intern(&score.unit));
            self.ids.push(row.run.block);
            self.scores.push(score.value.unwrap_or(f64::NAN));
            self.disturbed.push(!row.disturbed.is_empty());
            self.starts.push(row.start.clone());
            self.runs.push(row.run);
        }
    }

    /// Reads a results folder, which may be in use. Rows with the same run count once.
    ///
    /// # Errors
    /// If the folder has no campaign, or files cannot be read, or are damaged.
    pub fn read(folder: &Path) -> Result<Results, JournalError> {
        let mut results = Results::of(&Info::read(folder)?);
        let mut known = std::collections::HashSet::new();
        each_row(folder, |row| {
            if known.insert(row.run) {
                results.add(&row);
            }
        })?;
        Ok(results)
    }
}

/// All rows of a results folder in their order. Rows with the same run count once.
///
/// # Errors
/// If the journal cannot be read, or is damaged.
pub fn read_rows(folder: &Path) -> Result<Vec<Row>, JournalError> {
    let mut known = std::collections::HashSet::new();
    let mut rows = Vec::new();
    each_row(folder, |row| {
        if known.insert(row.run) {
            rows.push(row);
        }
    })?;
    Ok(rows)
}

fn each_row(folder: &Path, mut each: impl FnMut(Row)) -> Result<(), JournalError> {
    let path = folder.join(JOURNAL);
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(io_error("open", &path)(error)),
    };
    let mut reader = BufReader::new(file);
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        reader.read_until(b'\n', &mut line).map_err(io_error("read", &path))?;
        // The last line may just be written.
        if line.last() != Some(&b'\n') {
            break;
        }
        match serde_json::from_slice(&line) {
            Ok(row) => each(row),
            Err(_) if reader.fill_buf().is_ok_and(<[u8]>::is_empty) => break,
            Err(error) => {
                let why = format!("the line is no row of results: {error}");
                return Err(JournalError::Damaged { path, line: number, why });
            }
        }
    }
    Ok(())
}

/// Why CSV cannot be imported.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The file cannot be read.
    #[error("cannot read {}: {error}; {}", path.display(), bellows_sys::way_out(.error, "check the path"))]
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
    Ignored,
}

/// Imports a table from a file: see [`import`].
///
/// # Errors
/// As for [`import`].
pub fn import_file(path: &Path) -> Result<Results, ImportError> {
    let file = File::open(path).map_err(|error| ImportError::Io { path: path.to_owned(), error })?;
    import(file, &path.display().to_string())
}

/// Imports a table in CSV: a column `score`, and if there are any `id`, `unit`, `measure`, `failure` and `disturbed`.
/// Each other column is a factor, except those that `results.csv` has besides. A score that is missing or `NA` is a
/// failure.
/// `name` stands for the file in errors.
///
/// # Errors
/// The first line that is wrong, and the way out.
pub fn import(source: impl Read, name: &str) -> Result<Results, ImportError> {
    let mut reader = csv::ReaderBuilder::new().buffer_capacity(1 << 16).from_reader(source);
    let mut import = Import { name, results: Results::empty(), line: 1 };
    let header = reader.byte_headers().map_err(|error| import.csv_error(&error))?.clone();
    let columns = import.columns(&header)?;
    let mut record = csv::ByteRecord::new();
    loop {
        match reader.read_byte_record(&mut record) {
            Ok(true) => {
                import.line = record.position().map_or(0, csv::Position::line);
                import.row(&columns, &record)?;
            }
            Ok(false) => return Ok(import.results),
            Err(error) => return Err(import.csv_error(&error)),
        }
    }
}

/// Whether a field has no value, as programs write it.
fn is_missing(text: &str) -> bool {
    MISSING.iter().any(|missing| text.eq_ignore_ascii_case(missing))
}

struct Import<'n> {
    name: &'n str,
    results: Results,
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
                let error = io::Error::new(error.kind(), error.to_string());
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
            columns.push(match name.as_str() {
                "id" => Column::Id,
                "score" => Column::Score,
                "unit" => Column::Unit,
                "measure" => Column::Measure,
                "failure" => Column::Failure,
                "disturbed" => Column::Disturbed,
                other if is_column(other) => Column::Ignored,
                other => {
                    let column = FactorColumn { name: other.to_owned(), levels: Words::default(), rows: Vec::new() };
                    self.results.factors.push(column);
                    Column::Factor(self.results.factors.len() - 1)
                }
            });
            names.push(name);
        }
        if !columns.contains(&Column::Score) {
            let why = format!("there is no column `score`; there are {}", listed(&names));
            return Err(self.wrong(why, "name the column of numbers `score`"));
        }
        Ok(columns)
    }

    fn row(&mut self, columns: &[Column], record: &csv::ByteRecord) -> Result<(), ImportError> {
        // Values of columns that there may not be.
        let (mut id, mut unit, mut measure, mut reason, mut disturbed) = (0, "", "score", "", false);
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
                Column::Failure => reason = if is_missing(text) { "" } else { text },
                Column::Disturbed => disturbed = !is_missing(text),
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
