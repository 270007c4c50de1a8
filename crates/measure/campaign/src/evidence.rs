//! The results of a campaign beside its register: which runs can confirm a hypothesis.

use std::collections::HashSet;
use std::path::Path;

use bellows_sys::calendar;
use serde::Serialize;

use crate::campaign::{Campaign, Hypothesis};
use crate::folder::{Info, JOURNAL, JournalError};
use crate::plan::Plan;
use crate::register::{HypothesisRecord, Register};
use crate::results::Results;

/// What a row can be used for with regard to a hypothesis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Use {
    /// The run was made after the hypothesis was registered, and is one of those that were planned: it can confirm it.
    Confirmation,
    /// The run was made, or begun, before the hypothesis was registered.
    MadeBefore,
    /// The run is one of those that were looked at to find the hypothesis.
    Explored,
    /// The run is one of more blocks than were planned when the hypothesis was registered.
    BeyondPlan,
}

/// The results in a folder and its register, which agree.
pub struct Evidence {
    results: Results,
    register: Register,
    /// For each row of the results, the line of the journal, from 1.
    lines: Vec<u32>,
    /// For each row, the number, from 1, of the newest record that its executor knew; 0 if it knew none.
    known: Vec<u32>,
}

impl Evidence {
    /// Reads a results folder, which may be in use.
    ///
    /// # Errors
    /// If the folder has no campaign, or files cannot be read or are damaged, or the register does not agree with the
    /// rows.
    pub fn read(folder: &Path) -> Result<Evidence, JournalError> {
        Evidence::read_beside(folder, Register::read(folder)?)
    }

    /// The same with the register that was read before.
    fn read_beside(folder: &Path, mut register: Register) -> Result<Evidence, JournalError> {
        loop {
            match Evidence::compare(folder, &register) {
                Ok((results, lines, known)) => return Ok(Evidence { results, register, lines, known }),
                Err(error @ JournalError::Disagreement { .. }) => {
                    // Rows behind a hypothesis that was registered meanwhile name its record.
                    if !register.refresh(folder)? {
                        return Err(error);
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads the journal, and compares it with a register that may be older. Gives the results, and for each row its
    /// line and the record that its executor knew.
    fn compare(folder: &Path, register: &Register) -> Result<(Results, Vec<u32>, Vec<u32>), JournalError> {
        let (mut lines, mut known) = (Vec::new(), Vec::new());
        let mut agreement = register.agreement();
        let results = Results::read_with(folder, |number, bytes, line, rows| {
            let place = agreement.line(bytes, line)?;
            lines.resize(lines.len() + rows, number as u32);
            known.resize(lines.len(), place);
            Ok(())
        })?;
        agreement.finish(&folder.join(JOURNAL))?;
        Ok((results, lines, known))
    }

    /// The same as [`Evidence::read`], of this campaign.
    ///
    /// # Errors
    /// As for [`Evidence::read`], and if the folder has the results of another campaign.
    pub fn of(folder: &Path, campaign: &Campaign) -> Result<Evidence, JournalError> {
        Info::check_results(folder, campaign)?;
        Evidence::read(folder)
    }

    /// The results.
    pub fn results(&self) -> &Results {
        &self.results
    }

    /// The results alone.
    pub fn into_results(self) -> Results {
        self.results
    }

    /// The register.
    pub fn register(&self) -> &Register {
        &self.register
    }

    /// What each row of the results can be used for with regard to a registered hypothesis.
    pub fn uses(&self, record: &HypothesisRecord) -> Vec<Use> {
        let place = self.register.records().iter().position(|known| known.hash == record.hash);
        let place = place.map_or(u32::MAX, |place| place as u32 + 1);
        let registered = calendar::microseconds(&record.time).unwrap_or(i64::MAX);
        let host = self.results.machines.number(&record.host);
        let is_before = |row: usize| match self.known[row] {
            // No record was known, or none is: the clock says more, if it is the same.
            0 => {
                let start = self.results.starts.get(row);
                host == Some(self.results.machine[row]) && start.is_none_or(|start| *start <= registered)
            }
            known => known < place,
        };
        let use_of = |row: usize| match self.results.ids[row] {
            block if block <= record.hypothesis.explored => Use::Explored,
            _ if self.lines[row] as usize <= record.rows || is_before(row) => Use::MadeBefore,
            block if block > record.repeats => Use::BeyondPlan,
            _ => Use::Confirmation,
        };
        (0..self.results.len()).map(use_of).collect()
    }

    /// How many of the runs that a registered hypothesis was planned with are recorded, and how many there are.
    pub(crate) fn planned(&self, record: &HypothesisRecord, campaign: &Campaign) -> (usize, usize) {
        let plan = Plan::new(campaign);
        let is_meant = |levels: &[usize]| {
            campaign.factors.iter().zip(levels).all(|(factor, level)| {
                let chosen = record.hypothesis.subset.get(&factor.name);
                chosen.is_none_or(|chosen| chosen.contains(&factor.levels[*level].label))
            })
        };
        let meant: HashSet<u32> = plan
            .all_combinations()
            .filter(|(_, levels)| is_meant(levels))
            .map(|(combination, _)| combination)
            .collect();
        let mut last = None;
        let made = self.results.runs.iter().filter(|run| {
            let is_new = last.replace(**run) != Some(**run);
            is_new && run.block <= record.repeats && meant.contains(&run.combination)
        });
        (made.count(), meant.len() * record.repeats as usize)
    }

    /// Whether each row is one that a hypothesis is about.
    pub(crate) fn meant(&self, hypothesis: &Hypothesis) -> Vec<bool> {
        let mut meant = vec![true; self.results.len()];
        for (name, levels) in &hypothesis.subset {
            let Some(factor) = self.results.factor(name) else { return vec![false; self.results.len()] };
            let is_chosen: Vec<bool> = factor.levels.all().iter().map(|level| levels.contains(level)).collect();
            for (meant, level) in meant.iter_mut().zip(&factor.rows) {
                *meant &= is_chosen[*level as usize];
            }
        }
        meant
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::RunId;
    use crate::{Journal, Row, parse, register};

    #[test]
    fn a_hypothesis_that_is_registered_while_the_folder_is_read_is_no_change() {
        let text = "name = 'it'\nrepeats = 3\ncommand = ['true']\nfactors.a = ['x', 'y']\n\
                    score = { unit = '1', json = 'score' }\n\
                    [[hypothesis]]\nname = 'one'\nfactor = 'a'\ncompare = ['x', 'y']\n\
                    [[hypothesis]]\nname = 'two'\nfactor = 'a'\ncompare = ['y', 'x']\n";
        let campaign = parse("it.toml", text).unwrap();
        let folder = bellows_testkit::scratch();
        let folder = folder.path();
        let mut journal = Journal::open(folder, &campaign, text).unwrap();
        let row = |block| -> Row {
            serde_json::from_value(serde_json::json!({
                "run": RunId { block, combination: 1 }, "campaign": Plan::new(&campaign).hash(), "levels": {"a": "x"},
                "scores": [], "start": crate::now(), "seconds": 1.0,
                "machine": {"host": "", "cpu": "", "cpus": "", "os": "", "load": 0.0, "steal": null,
                    "yardstick_before": 1.0, "yardstick_after": 1.0},
            }))
            .unwrap()
        };
        let empty = Register::read(folder).unwrap();
        journal.append(row(1)).unwrap();
        register(folder, &campaign, &campaign.hypotheses[0]).unwrap();
        let one = Register::read(folder).unwrap();
        journal.append(row(2)).unwrap();
        register(folder, &campaign, &campaign.hypotheses[1]).unwrap();
        journal.append(row(3)).unwrap();
        for before in [empty, one] {
            let evidence = Evidence::read_beside(folder, before).unwrap();
            assert_eq!((evidence.results().len(), evidence.register().records().len()), (3, 2));
        }
        // What was changed is no such case.
        let path = folder.join(JOURNAL);
        let changed = std::fs::read_to_string(&path).unwrap().replacen("\"seconds\":1.0", "\"seconds\":2.0", 1);
        std::fs::write(&path, changed).unwrap();
        let current = Register::read(folder).unwrap();
        let error = Evidence::read_beside(folder, current).map(drop).unwrap_err();
        assert!(matches!(error, JournalError::Disagreement { line: 2, .. }), "{error}");
    }
}
