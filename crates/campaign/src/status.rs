//! How far a campaign is.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;

use crate::folder::{Info, JOURNAL, JournalError};
use crate::journal::is_in_use;
use crate::line::{Line, RunSet};
use crate::lines::each_line_of;
use crate::plan::Hash;
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
        let mut status = Status {
            name,
            hash,
            running: is_in_use(folder),
            rows: 0,
            blocks: BTreeMap::new(),
            failed: BTreeMap::new(),
            disturbed: 0,
            span: None,
            machines: BTreeMap::new(),
        };
        let mut known = RunSet::default();
        each_line_of(&folder.join(JOURNAL), |_, bytes| {
            let line = Line::parse(bytes)?;
            if known.insert(line.run) {
                status.add(&line);
            }
            Ok(())
        })?;
        Ok(status)
    }

    fn add(&mut self, line: &Line<'_>) {
        self.rows += 1;
        *self.blocks.entry(line.run.block).or_default() += 1;
        match self.machines.get_mut(&*line.machine.host.0) {
            Some(runs) => *runs += 1,
            None => drop(self.machines.insert(line.machine.host.0.to_string(), 1)),
        }
        self.disturbed += usize::from(!line.disturbed.is_empty());
        if line.has_failed() {
            let kind = line.first_failure().map_or(FailureKind::NoScore, |failure| failure.kind);
            *self.failed.entry(kind).or_default() += 1;
        }
        let start = &*line.start.0;
        if start.is_empty() {
            return;
        }
        let (first, last) = self.span.get_or_insert_with(|| (start.to_owned(), start.to_owned()));
        if start < first.as_str() {
            start.clone_into(first);
        }
        if start > last.as_str() {
            start.clone_into(last);
        }
    }
}
