//! A results folder from a table.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use serde_json::json;
use sha2::{Digest, Sha256};

use crate::campaign::Campaign;
use crate::diagnostics::{Diagnostics, quoted};
use crate::file::parse;
use crate::folder::{
    INFO, Info, JOURNAL, JournalError, Origin, TEXT, create_folder, io_error, sync_folder, unused, write_whole,
};
use crate::import::{ColumnNames, ImportError, import_columns};
use crate::plan::{Hash, Plan, RunId};
use crate::results::{FactorColumn, Results};
use crate::row::{Failure, FailureKind, Machine, Row, Score};
use crate::time;

/// Maximum number of measures, and of units. A column with more holds something else.
const MAX_SCORES: usize = 10_000;

/// A results folder that was made from a table.
#[derive(Clone, Debug, PartialEq)]
pub struct Imported {
    /// The number of runs.
    pub runs: usize,
    /// The number of runs without a score.
    pub failed: usize,
    /// The campaign file in the folder, to which hypotheses can be added.
    pub file: PathBuf,
}

/// Why a table cannot become a results folder.
#[derive(Debug, thiserror::Error)]
pub enum ImportFolderError {
    /// The table cannot be read.
    #[error(transparent)]
    Table(#[from] ImportError),
    /// The folder cannot be written.
    #[error(transparent)]
    Folder(#[from] JournalError),
    /// The folder exists.
    #[error("{} exists already; give another folder, or remove it", .0.display())]
    Exists(PathBuf),
    /// The table has no rows.
    #[error("{} has no rows below its header; give another table", .0.display())]
    Empty(PathBuf),
    /// A column has too many different values.
    #[error(
        "the column {} of {} has more than {MAX_SCORES} different values; ignore it if it holds no {what}s",
        quoted(.column), path.display()
    )]
    TooMany {
        /// The table.
        path: PathBuf,
        /// `measure` or `unit`.
        what: &'static str,
        /// The name of the column.
        column: String,
    },
    /// A repetition is 0.
    #[error(
        "{}, row {row} below the header: the repetition is 0; number repetitions from 1, or ignore the column {}, so \
         that they are counted",
        path.display(), quoted(.column)
    )]
    Zero {
        /// The table.
        path: PathBuf,
        /// The row, from 1.
        row: usize,
        /// The name of the column.
        column: String,
    },
    /// There are two rows of one run.
    #[error(
        "{}, row {row} below the header: the repetition {id} of these levels is there already; number repetitions in a \
         column of their own, or name the column that differs as a factor or measure",
        path.display()
    )]
    Twice {
        /// The table.
        path: PathBuf,
        /// The row, from 1.
        row: usize,
        /// The repetition.
        id: u32,
    },
    /// The columns cannot be factors of a campaign.
    #[error("the columns of {} cannot be factors of a campaign: {why}", path.display())]
    Factors {
        /// The table.
        path: PathBuf,
        /// Why.
        why: Box<Diagnostics>,
    },
}

/// Makes a results folder, which does not exist yet, from a table in CSV. A combination of levels without a column of
/// repetitions is numbered as it comes. The folder has a campaign file that states the factors and has no command, so
/// that hypotheses can be looked at; nothing can be run or registered in it.
///
/// # Errors
/// Why not, and the way out. Nothing is left then, except new folders above it.
pub fn import_folder(table: &Path, folder: &Path, names: &ColumnNames) -> Result<Imported, ImportFolderError> {
    if fs::symlink_metadata(folder).is_ok() {
        return Err(ImportFolderError::Exists(folder.to_owned()));
    }
    let open = |error| ImportError::Io { path: table.to_owned(), error };
    // A pipe is read once, and gives both.
    let mut source = Hashing { file: File::open(table).map_err(open)?, hash: Sha256::new() };
    let results = import_columns(&mut source, &table.display().to_string(), names)?;
    let origin = Origin {
        file: table.canonicalize().unwrap_or_else(|_| table.to_owned()).display().to_string(),
        hash: Hash::of_digest(source.hash),
        time: time::now(),
    };
    if results.is_empty() {
        return Err(ImportFolderError::Empty(table.to_owned()));
    }
    check_columns(&results, table, names)?;
    let text = text_of(&results, table, &origin);
    let factors = |why| ImportFolderError::Factors { path: table.to_owned(), why: Box::new(why) };
    let campaign = parse("the campaign file", &text).map_err(factors)?;
    // Beside the folder until it is complete.
    let part = create_part(folder)?;
    let made = write_folder(&part, &results, &campaign, &text, origin, table).and_then(|made| {
        // This replaces no folder but one that is empty.
        fs::rename(&part, folder).map_err(|error| match error.kind() {
            io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::NotADirectory => {
                ImportFolderError::Exists(folder.to_owned())
            }
            _ => io_error("create", folder)(error).into(),
        })?;
        Ok(made)
    });
    match made {
        Ok(runs) => {
            sync_folder(parent_of(folder))?;
            Ok(Imported { runs, failed: results.failures(), file: folder.join(TEXT) })
        }
        Err(error) => {
            let _ = fs::remove_dir_all(&part);
            Err(error)
        }
    }
}

fn parent_of(folder: &Path) -> &Path {
    folder.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Creates a folder beside one that there is not yet, with a name that nothing has.
fn create_part(folder: &Path) -> Result<PathBuf, JournalError> {
    let Some(name) = folder.file_name() else {
        let error = io::Error::new(io::ErrorKind::InvalidInput, "its path does not end with a name");
        return Err(io_error("create", folder)(error));
    };
    create_folder(parent_of(folder))?;
    // Without a slash that the path may end with.
    let beside = folder.with_file_name(name);
    loop {
        let part = unused(&beside, "part");
        match fs::create_dir(&part) {
            Ok(()) => return Ok(part),
            // Another process was faster. A link to nothing is an error.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && part.exists() => {}
            Err(error) => return Err(io_error("create", &part)(error)),
        }
    }
}

/// Checks that the columns of measures, units and repetitions hold what their names say.
fn check_columns(results: &Results, table: &Path, names: &ColumnNames) -> Result<(), ImportFolderError> {
    let path = || table.to_owned();
    for (words, what, column) in [(&results.measures, "measure", "measure"), (&results.units, "unit", &names.unit)] {
        if words.all().len() > MAX_SCORES {
            return Err(ImportFolderError::TooMany { path: path(), what, column: column.to_owned() });
        }
    }
    match results.ids.iter().position(|id| *id == 0) {
        Some(row) => Err(ImportFolderError::Zero { path: path(), row: row + 1, column: names.id.clone() }),
        None => Ok(()),
    }
}

/// A file whose bytes are hashed as they are read.
struct Hashing {
    file: File,
    hash: Sha256,
}

impl io::Read for Hashing {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.file.read(buffer)?;
        self.hash.update(&buffer[..length]);
        Ok(length)
    }
}

/// A campaign file with the factors of a table.
fn text_of(results: &Results, table: &Path, origin: &Origin) -> String {
    // A text of JSON is one of TOML.
    let text = |text: &str| json!(text).to_string();
    let name = table.file_stem().map_or("imported".to_owned(), |name| name.to_string_lossy().into_owned());
    let repeats = results.ids.iter().copied().max().unwrap_or(1).max(1);
    let mut file = String::new();
    // Writing into a text does not fail.
    let _ = writeln!(
        file,
        "# Results from a table, of {}. They cannot be added to, but hypotheses can be looked at.\n\
         name = {}\nrepeats = {repeats}\ncommand = [\"false\"]\n\n[factors]",
        origin.time,
        text(&name)
    );
    for factor in &results.factors {
        let levels: Vec<String> = factor.levels.all().iter().map(|level| text(level)).collect();
        let _ = writeln!(file, "{} = [{}]", text(&factor.name), levels.join(", "));
    }
    // The unit of each measure's first row.
    let mut units = vec![""; results.measures.all().len()];
    for (measure, unit) in results.measure.iter().zip(&results.unit).rev() {
        units[*measure as usize] = results.units.word(*unit);
    }
    for (measure, unit) in results.measures.all().iter().zip(units) {
        let unit = if unit.is_empty() { "1" } else { unit };
        let _ = writeln!(file, "\n[[score]]\nname = {}\nunit = {}\njson = \"score\"", text(measure), text(unit));
    }
    file
}

/// Writes all files of the folder. Returns the number of runs.
fn write_folder(
    folder: &Path,
    results: &Results,
    campaign: &Campaign,
    text: &str,
    origin: Origin,
    table: &Path,
) -> Result<usize, ImportFolderError> {
    let plan = Plan::new(campaign);
    let info = Info { imported: Some(origin), ..Info::of(campaign, &plan) };
    let path = folder.join(JOURNAL);
    let file = File::create_new(&path).map_err(io_error("create", &path))?;
    let mut journal = BufWriter::with_capacity(1 << 20, file);
    let runs = write_rows(&mut journal, results, &plan, table).map_err(|error| match error {
        RowError::Io(error) => io_error("write", &path)(error).into(),
        RowError::Row(error) => error,
    })?;
    let written = journal.flush().and_then(|()| journal.get_ref().sync_all());
    written.map_err(io_error("write", &path))?;
    write_whole(&folder.join(TEXT), text.as_bytes())?;
    write_whole(&folder.join(INFO), &serde_json::to_vec_pretty(&info).unwrap_or_default())?;
    Ok(runs)
}

enum RowError {
    Io(io::Error),
    Row(ImportFolderError),
}

impl From<io::Error> for RowError {
    fn from(error: io::Error) -> RowError {
        RowError::Io(error)
    }
}

/// Writes the rows of each run as one line, in the order in which the runs begin in the table.
fn write_rows(journal: &mut impl Write, results: &Results, plan: &Plan, table: &Path) -> Result<usize, RowError> {
    let numbers: HashMap<&[usize], u32> = plan.all_combinations().map(|(number, levels)| (levels, number)).collect();
    // Rows of a run: those with the same levels and repetition, one for each measure.
    let mut places: HashMap<RunId, usize> = HashMap::new();
    let mut runs: Vec<(RunId, Vec<usize>)> = Vec::new();
    let mut known: HashSet<(usize, u32)> = HashSet::new();
    for (row, &block) in results.ids.iter().enumerate() {
        let levels: Vec<usize> = results.factors.iter().map(|factor| factor.rows[row] as usize).collect();
        let combination = numbers.get(levels.as_slice()).copied().unwrap_or(0);
        let run = RunId { block, combination };
        let place = *places.entry(run).or_insert_with(|| {
            runs.push((run, Vec::new()));
            runs.len() - 1
        });
        if !known.insert((place, results.measure[row])) {
            return Err(RowError::Row(ImportFolderError::Twice { path: table.to_owned(), row: row + 1, id: block }));
        }
        runs[place].1.push(row);
    }
    let hash = plan.hash();
    for (run, rows) in &runs {
        let first = rows[0];
        let level = |factor: &FactorColumn| (factor.name.clone(), factor.levels.word(factor.rows[first]).to_owned());
        let score = |&row: &usize| {
            let value = Some(results.scores[row]).filter(|score| !score.is_nan());
            let failure = || Failure::new(FailureKind::NoScore, results.reasons.word(results.failure[row]));
            Score {
                name: results.measures.word(results.measure[row]).to_owned(),
                unit: results.units.word(results.unit[row]).to_owned(),
                value,
                failure: value.is_none().then(failure),
            }
        };
        // A table does not say more of the machine.
        let host = results.machine.get(first).map_or("", |host| results.machines.word(*host)).to_owned();
        let machine = Machine {
            host,
            cpu: String::new(),
            cpus: String::new(),
            os: String::new(),
            load: 0.0,
            steal: None,
            yardstick_before: 0.0,
            yardstick_after: 0.0,
        };
        let line = Row {
            run: *run,
            campaign: hash,
            levels: results.factors.iter().map(level).collect(),
            scores: rows.iter().map(score).collect(),
            failure: None,
            disturbed: results.disturbed[first].then(|| "as the table says".to_owned()).into_iter().collect(),
            start: results.start(first).unwrap_or_default(),
            seconds: 0.0,
            machine,
            versions: BTreeMap::new(),
            registered: None,
            known: None,
        };
        serde_json::to_writer(&mut *journal, &line).map_err(io::Error::from)?;
        journal.write_all(b"\n")?;
    }
    Ok(runs.len())
}
