//! How far a campaign is.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;

use crate::folder::{Info, JournalError};
use crate::journal::is_in_use;
use crate::plan::Hash;
use crate::results::read_rows;
use crate::row::FailureKind;

/// How far a campaign is, as its results folder says, which may be in use.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Status {
    /// The name of the campaign.
    pub name: String,
    /// The hash of the campaign.
    pub hash: Hash,
    /// Whether a runner uses the folder.
    pub running: bool,
    /// The number of recorded runs.
    pub rows: usize,
    /// The number of recorded runs of each block.
    pub blocks: BTreeMap<u32, usize>,
    /// The number of runs without a score, by the kind of failure.
    pub failed: BTreeMap<FailureKind, usize>,
    /// The number of disturbed runs.
    pub disturbed: usize,
    /// When the first and the last recorded run started.
    pub span: Option<(String, String)>,
    /// The machines, each with its number of runs.
    pub machines: BTreeMap<String, usize>,
}

impl Status {
    /// Reads the status from a results folder.
    ///
    /// # Errors
    /// If the folder has no campaign, or files cannot be read, or are damaged.
    pub fn read(folder: &Path) -> Result<Status, JournalError> {
        let Info { name, hash, .. } = Info::read(folder)?;
        let rows = read_rows(folder)?;
        let mut status = Status {
            name,
            hash,
            running: is_in_use(folder),
            rows: rows.len(),
            blocks: BTreeMap::new(),
            failed: BTreeMap::new(),
            disturbed: 0,
            span: None,
            machines: BTreeMap::new(),
        };
        for row in &rows {
            *status.blocks.entry(row.run.block).or_default() += 1;
            *status.machines.entry(row.machine.host.clone()).or_default() += 1;
            status.disturbed += usize::from(!row.disturbed.is_empty());
            if row.has_failed() {
                let kind = row.first_failure().map_or(FailureKind::NoScore, |failure| failure.kind);
                *status.failed.entry(kind).or_default() += 1;
            }
        }
        let first = rows.iter().map(|row| &row.start).min();
        status.span =
            first.zip(rows.iter().map(|row| &row.start).max()).map(|(first, last)| (first.clone(), last.clone()));
        Ok(status)
    }
}
