//! Counts of runs, and of the names of their machines and programs.

use std::collections::HashMap;

use bellows_campaign::{Counts, Results};

use crate::model::NameTally;
use crate::words;

/// Maximum number of names in a list of machines or versions.
const MAX_TALLIES: usize = 12;

/// The names with the most runs, and the sum of the others.
pub(crate) fn named(counts: &Counts) -> Vec<NameTally> {
    let mut all: Vec<NameTally> =
        counts.iter().map(|(name, runs)| NameTally { name: words::label(name), runs }).collect();
    all.sort_by(|one, other| other.runs.cmp(&one.runs).then(one.name.cmp(&other.name)));
    if all.len() > MAX_TALLIES {
        let others = all.split_off(MAX_TALLIES - 1);
        let runs = others.iter().map(|tally| tally.runs).sum();
        all.push(NameTally { name: format!("{} others", words::count(others.len())), runs });
    }
    all
}

/// Numbers of runs in a table, whose rows are scores.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct RunsOfTable {
    pub(crate) runs: usize,
    pub(crate) failed: usize,
    pub(crate) disturbed: usize,
    pub(crate) blocks: usize,
}

impl RunsOfTable {
    /// Counts the runs of a journal, whose rows follow one another.
    pub(crate) fn of_journal(results: &Results) -> RunsOfTable {
        let mut counts = RunsOfTable::default();
        let mut row = 0;
        for run in results.runs.chunk_by(|one, other| one == other) {
            let rows = row..row + run.len();
            row = rows.end;
            counts.runs += 1;
            counts.failed += usize::from(results.scores[rows.clone()].iter().any(|score| score.is_nan()));
            counts.disturbed += usize::from(results.disturbed[rows].iter().any(|is_disturbed| *is_disturbed));
        }
        counts.blocks = ids(results).len();
        counts
    }

    /// Counts runs: each has at most one row for each score, and one row if it failed before its scores were known.
    /// Where repetitions have no numbers of their own, those of a combination are as many as the rows of a score.
    pub(crate) fn of(results: &Results) -> RunsOfTable {
        // For each combination and id: for each score the number of rows, of those without a score, of disturbed ones.
        let mut known: HashMap<(Vec<u32>, u32), Vec<[usize; 3]>> = HashMap::new();
        let nameless = results.measures.all().iter().position(String::is_empty);
        let ids = ids(results);
        for row in 0..results.len() {
            let codes = results.factors.iter().map(|factor| factor.rows[row]).collect();
            let counts = known.entry((codes, results.ids[row])).or_default();
            let measure = results.measure[row] as usize;
            if measure >= counts.len() {
                counts.resize(measure + 1, [0; 3]);
            }
            let is = [true, results.scores[row].is_nan(), results.disturbed[row]];
            counts[measure].iter_mut().zip(is).for_each(|(count, is)| *count += usize::from(is));
        }
        let mut sums = [0; 3];
        let mut most = 0;
        for counts in known.values() {
            let of = |which: usize| {
                let named = counts.iter().enumerate().filter(|(measure, _)| Some(*measure) != nameless);
                let least = named.map(|(_, count)| count[which]).max().unwrap_or(0);
                least + nameless.and_then(|place| counts.get(place)).map_or(0, |count| count[which])
            };
            most = most.max(of(0));
            sums.iter_mut().enumerate().for_each(|(which, sum)| *sum += of(which));
        }
        let [runs, failed, disturbed] = sums;
        RunsOfTable { runs, failed, disturbed, blocks: if ids.len() > 1 { ids.len() } else { most } }
    }
}

/// The numbers of repetitions.
fn ids(results: &Results) -> Vec<u32> {
    let mut ids = results.ids.clone();
    ids.sort_unstable();
    ids.dedup();
    ids
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> RunsOfTable {
        RunsOfTable::of(&bellows_campaign::import(text.as_bytes(), "test.csv").unwrap())
    }

    #[test]
    fn rows_of_several_scores_are_one_run() {
        let text = "a,id,measure,score\nx,1,speed,1\nx,1,size,2\nx,2,speed,3\nx,2,size,NA\ny,1,,NA\ny,2,speed,1\n";
        assert_eq!(of(text), RunsOfTable { runs: 4, failed: 2, disturbed: 0, blocks: 2 });
    }

    #[test]
    fn repetitions_without_numbers_are_blocks() {
        let text = "a,measure,score\nx,speed,1\nx,size,2\nx,speed,3\nx,size,4\ny,speed,5\ny,,NA\ny,,NA\n";
        // Failures without a name of a score are numbered by themselves.
        assert_eq!(of(text), RunsOfTable { runs: 5, failed: 2, disturbed: 0, blocks: 2 });
        assert_eq!(of("a,score\nx,1\nx,NA\ny,1\n"), RunsOfTable { runs: 3, failed: 1, disturbed: 0, blocks: 2 });
    }
}
