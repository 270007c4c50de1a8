//! Arbitrary bytes as each kind of file that people or crashes can write: for fuzzers and property tests.

use crate::file::parse;
use crate::folder::JOURNAL;
use crate::import::import;
use crate::line::Line;
use crate::lines::each_line;
use crate::plan::Plan;
use crate::register::HypothesisRecord;
use crate::results::Results;
use crate::row::Row;
use crate::score::ScoreReader;

/// Reads bytes as a campaign file, as a table in CSV, as a journal, or as a register: which, the first byte says.
///
/// # Panics
/// If the code that reads them has a defect.
pub fn exercise(bytes: &[u8]) {
    let Some((&kind, bytes)) = bytes.split_first() else { return };
    match kind % 4 {
        0 => exercise_file(&String::from_utf8_lossy(bytes)),
        1 => exercise_table(bytes),
        2 => exercise_journal(bytes),
        _ => {
            let records = bytes.split(|byte| *byte == b'\n').map(serde_json::from_slice::<HypothesisRecord>);
            for record in records.flatten() {
                let written = serde_json::to_vec(&record).unwrap_or_default();
                assert_eq!(serde_json::from_slice::<HypothesisRecord>(&written).ok().as_ref(), Some(&record));
            }
        }
    }
}

fn exercise_file(text: &str) {
    match parse("campaign.toml", text) {
        Ok(campaign) => {
            let plan = Plan::new(&campaign);
            assert!(plan.combinations() > 0 && plan.block(1).len() == plan.combinations());
            assert!(!ScoreReader::new(&campaign).is_broken());
            assert_eq!(parse("campaign.toml", text).map(|again| Plan::new(&again).hash()), Ok(plan.hash()));
        }
        Err(diagnostics) => {
            let report = diagnostics.render(false);
            assert!(diagnostics.errors() > 0 && !report.contains(|c: char| c.is_control() && c != '\n'), "{report:?}");
            assert!(diagnostics.to_json().as_array().is_some_and(|entries| !entries.is_empty()));
        }
    }
}

fn exercise_table(bytes: &[u8]) {
    let Ok(results) = import(bytes, "table.csv") else { return };
    let columns = [results.ids.len(), results.unit.len(), results.failure.len(), results.disturbed.len()];
    assert!(columns.iter().all(|length| *length == results.len()));
    let is_level = |factor: &crate::FactorColumn| {
        let levels = factor.levels.all().len();
        factor.rows.len() == results.len() && factor.rows.iter().all(|level| (*level as usize) < levels)
    };
    assert!(results.factors.iter().all(is_level));
}

fn exercise_journal(bytes: &[u8]) {
    let mut results = Results::empty();
    let whole = each_line(std::path::Path::new(JOURNAL), bytes, |_, line| {
        let parsed = Line::parse(line);
        // What is a row for one reader is one for the others.
        let row = serde_json::from_slice::<Row>(line);
        assert_eq!(row.is_ok(), parsed.is_ok());
        if let Ok(row) = row {
            let line = parsed.as_ref().ok();
            assert_eq!(line.map(|line| (line.run, line.has_failed())), Some((row.run, row.has_failed())));
            assert!(row.levels.iter().all(|(factor, level)| line.is_some_and(|line| line.level(factor) == level)));
        }
        results.add(&parsed?)
    });
    assert!(whole.is_err() || whole.is_ok_and(|whole| whole <= bytes.len() as u64));
    assert!([results.runs.len(), results.starts.len(), results.machine.len()].iter().all(|it| *it == results.len()));
}
