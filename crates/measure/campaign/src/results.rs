//! Results as columns, for tests and reports, as they are read from a results folder.

use std::path::Path;

use bellows_sys::calendar;

use crate::diagnostics::quoted;
use crate::folder::{Info, JOURNAL, JournalError};
use crate::line::{Line, LineScore, RunSet};
use crate::lines::{LineError, each_line_of};
use crate::observed::Observed;
use crate::plan::RunId;
use crate::row::Row;
use crate::words::Words;

/// The start of a run that is not known.
const UNKNOWN: i64 = i64::MIN;

/// Maximum number of different reasons of failures that are kept. Of the others only the kind is.
pub(crate) const MAX_REASONS: usize = 10_000;

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
    /// When each row's run started, in microseconds since the Unix epoch. Empty if it is not known of each row, as for
    /// most imported results. [`Results::start`] is the text.
    pub starts: Vec<i64>,
    /// The names of machines.
    pub machines: Words,
    /// The number of each row's machine. Empty if it is not known.
    pub machine: Vec<u32>,
    /// The run of each row. Empty if it is not known.
    pub runs: Vec<RunId>,
    /// What the runs say of their machines and programs; nothing of tables.
    pub observed: Observed,
}

impl Results {
    pub(crate) fn empty() -> Results {
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

    /// When the run of a row started, as RFC 3339 text in UTC. Nothing if it is not known.
    pub fn start(&self, row: usize) -> Option<String> {
        self.starts.get(row).map(|start| calendar::of_microseconds(*start))
    }

    /// The different units of some rows, in their order. Scores with different units are never one sample.
    pub(crate) fn units_of(&self, rows: impl IntoIterator<Item = usize>) -> Vec<&str> {
        let mut is_known = vec![false; self.units.all().len()];
        let is_new = |unit: &u32| !std::mem::replace(&mut is_known[*unit as usize], true);
        let units = rows.into_iter().map(|row| self.unit[row]).filter(is_new);
        units.map(|unit| self.units.word(unit)).collect()
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

    /// Adds a run; nothing of it if its start is no time.
    pub(crate) fn add(&mut self, line: &Line<'_>) -> Result<(), LineError> {
        let start = if line.start.0.is_empty() { Some(UNKNOWN) } else { calendar::microseconds(&line.start.0) };
        let Some(start) = start else {
            return Err(LineError::Wrong(format!("its start, {}, is no time", quoted(&line.start.0))));
        };
        let none = [LineScore::none()];
        let scores = if line.scores.is_empty() { none.as_slice() } else { line.scores.as_slice() };
        for score in scores {
            for factor in &mut self.factors {
                let number = factor.levels.intern(line.level(&factor.name));
                factor.rows.push(number);
            }
            let failure = line.failure.as_ref().or(score.failure.as_ref());
            self.failure.push(match failure {
                None => 0,
                Some(failure) if self.reasons.all().len() < MAX_REASONS => self.reasons.intern(&failure.to_string()),
                Some(failure) => self.reasons.intern(failure.kind.name()),
            });
            self.measure.push(self.measures.intern(&score.name.0));
            self.unit.push(self.units.intern(&score.unit.0));
            self.ids.push(line.run.block);
            self.scores.push(score.value.unwrap_or(f64::NAN));
            self.disturbed.push(!line.disturbed.is_empty());
            self.starts.push(start);
            self.machine.push(self.machines.intern(&line.machine.host.0));
            self.runs.push(line.run);
        }
        Ok(())
    }

    /// Reads a results folder, which may be in use. Rows with the same run count once.
    ///
    /// # Errors
    /// If the folder has no campaign, or files cannot be read, or are damaged.
    pub fn read(folder: &Path) -> Result<Results, JournalError> {
        Results::read_with(folder, |_, _, _, _| Ok(()))
    }

    /// The same. `each` learns of each line of the journal, also of one whose run is there already: its number from 1,
    /// its bytes, and how many rows of these results it adds.
    pub(crate) fn read_with(
        folder: &Path,
        mut each: impl FnMut(usize, &[u8], &Line<'_>, usize) -> Result<(), LineError>,
    ) -> Result<Results, JournalError> {
        let info = Info::read(folder)?;
        let mut results = Results::of(&info);
        let (mut known, hash) = (RunSet::default(), info.hash.to_string());
        each_line_of(&folder.join(JOURNAL), |number, bytes| {
            let line = Line::parse(bytes)?;
            if line.campaign.0 != hash {
                return Err(LineError::Wrong(format!("the row is of another campaign, {}", quoted(&line.campaign.0))));
            }
            let before = results.len();
            if known.insert(line.run) {
                results.add(&line)?;
                results.observed.add(&line);
            }
            each(number, bytes, &line, results.len() - before)
        })?;
        // Imported results do not say it.
        if results.starts.contains(&UNKNOWN) {
            results.starts.clear();
        }
        Ok(results)
    }
}

/// Calls a function with each row of a results folder, in their order. Rows with the same run count once.
///
/// # Errors
/// If the journal cannot be read, or is damaged.
pub fn each_row(folder: &Path, mut each: impl FnMut(Row)) -> Result<(), JournalError> {
    let mut known = RunSet::default();
    each_line_of(&folder.join(JOURNAL), |_, line| {
        let row: Row = serde_json::from_slice(line)?;
        if known.insert(row.run) {
            each(row);
        }
        Ok(())
    })?;
    Ok(())
}

/// All rows of a results folder in their order, for which there is memory: [`Results::read`] needs less. Rows with the
/// same run count once.
///
/// # Errors
/// If the journal cannot be read, or is damaged.
pub fn read_rows(folder: &Path) -> Result<Vec<Row>, JournalError> {
    let mut rows = Vec::new();
    each_row(folder, |row| rows.push(row))?;
    Ok(rows)
}
