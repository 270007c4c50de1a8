//! How far a campaign is.

use std::collections::BTreeMap;
use std::path::Path;

use schemars::JsonSchema;
use serde::Serialize;

use crate::file::parse;
use crate::folder::{Info, JOURNAL, JournalError, TEXT};
use crate::journal::is_in_use;
use crate::line::{Line, RunSet};
use crate::lines::each_line_of;
use crate::plan::{Hash, Plan};
use crate::row::FailureKind;

/// How far a campaign is, as its results folder says, which may be in use.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize)]
#[schemars(title = "Status of a campaign")]
pub struct Status {
    /// The name of the campaign.
    pub name: String,
    /// Its hash.
    pub hash: Hash,
    /// Whether a runner uses the folder.
    pub running: bool,
    /// Recorded runs.
    pub rows: usize,
    /// What is planned.
    ///
    /// What is planned, as far as the folder's copy of the campaign file says it.
    pub planned: Planned,
    /// Recorded runs of each block.
    pub blocks: BTreeMap<u32, usize>,
    /// Runs without a score, by the kind of failure.
    pub failed: BTreeMap<FailureKind, usize>,
    /// Disturbed runs.
    pub disturbed: usize,
    /// The first and the last start; null without runs.
    pub span: Option<(String, String)>,
    /// Runs of each machine.
    pub machines: BTreeMap<String, usize>,
}

/// What a campaign plans.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize)]
#[schemars(title = "Planned runs")]
pub struct Planned {
    /// Runs of a block; null if results were imported.
    pub block: Option<usize>,
    /// Blocks; null if not known.
    pub blocks: Option<u32>,
    /// Runs in all; null if not known.
    pub runs: Option<usize>,
}

impl Status {
    /// Reads the status from a results folder.
    ///
    /// # Errors
    /// If the folder has no campaign, or files cannot be read, or are damaged.
    pub fn read(folder: &Path) -> Result<Status, JournalError> {
        let info = Info::read(folder)?;
        let planned = planned(folder, &info);
        let Info { name, hash, .. } = info;
        let mut status = Status {
            name,
            hash,
            running: is_in_use(folder),
            rows: 0,
            planned,
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

    /// Says how many blocks are planned, if that is not what the folder's copy says, such as after a change of `repeats`.
    pub fn plan(&mut self, blocks: u32) {
        let Some(block) = self.planned.block else { return };
        self.planned.blocks = Some(blocks);
        self.planned.runs = Some(block.saturating_mul(blocks as usize));
    }

    /// The number of recorded runs of the planned blocks: of all, if it is not known how many are planned.
    pub fn done(&self) -> usize {
        self.blocks.range(..=self.planned.blocks.unwrap_or(u32::MAX)).map(|(_, runs)| runs).sum()
    }

    /// The first block that is begun and not complete, with its number of recorded runs.
    pub fn begun(&self) -> Option<(u32, usize)> {
        let all = self.planned.block?;
        self.blocks.iter().find(|(_, runs)| **runs < all).map(|(block, runs)| (*block, *runs))
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

/// The plan of the campaign file in a results folder.
fn planned(folder: &Path, info: &Info) -> Planned {
    let text = std::fs::read_to_string(folder.join(TEXT)).unwrap_or_default();
    let Ok(mut campaign) = parse(TEXT, &text) else { return Planned::default() };
    if let Some(build) = &mut campaign.build {
        build.versions.clone_from(&info.versions);
    }
    let plan = Plan::new(&campaign);
    // Imported results cannot be added to.
    if info.imported.is_some() || plan.hash() != info.hash {
        return Planned::default();
    }
    Planned { block: Some(plan.combinations()), blocks: Some(plan.repeats()), runs: Some(plan.runs_in_all()) }
}
