//! Counts of runs, and of the names of their machines and programs.

use std::collections::{BTreeMap, HashMap};

use bellows_campaign::{Results, Row};

use crate::model::Tally;
use crate::words;

/// Maximum number of names in a list of machines or versions.
const MAX_TALLIES: usize = 12;

/// How often names occur.
#[derive(Default)]
pub(crate) struct Names(BTreeMap<String, usize>);

impl Names {
    fn add(&mut self, name: &str) {
        match self.0.get_mut(name) {
            Some(runs) => *runs += 1,
            None => drop(self.0.insert(name.to_owned(), 1)),
        }
    }

    /// The names with the most runs, and the sum of the others.
    pub(crate) fn named(self) -> Vec<Tally> {
        let mut all: Vec<Tally> =
            self.0.into_iter().map(|(name, runs)| Tally { name: words::label(&name), runs }).collect();
        all.sort_by(|one, other| other.runs.cmp(&one.runs).then(one.name.cmp(&other.name)));
        if all.len() > MAX_TALLIES {
            let others = all.split_off(MAX_TALLIES - 1);
            let runs = others.iter().map(|tally| tally.runs).sum();
            all.push(Tally { name: format!("{} others", words::count(others.len())), runs });
        }
        all
    }
}

/// What rows say of machines and programs.
#[derive(Default)]
pub(crate) struct Tallies {
    pub(crate) machines: Names,
    pub(crate) processors: Names,
    pub(crate) kernels: Names,
    pub(crate) versions: Names,
}

impl Tallies {
    /// Counts a row. Rows of imported results do not name their machine.
    pub(crate) fn add(&mut self, row: &Row) {
        let machine = &row.machine;
        if !machine.host.is_empty() {
            self.machines.add(&machine.host);
        }
        if !machine.cpu.is_empty() || !machine.cpus.is_empty() {
            self.processors.add(&format!("{}, processors {}", machine.cpu, machine.cpus));
        }
        if !machine.os.is_empty() {
            self.kernels.add(&machine.os);
        }
        row.versions.iter().for_each(|(program, version)| self.versions.add(&format!("{program}: {version}")));
    }
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
    /// Counts runs: each has at most one row for each score, and one row if it failed before its scores were known.
    /// Where repetitions have no numbers of their own, those of a combination are as many as the rows of a score.
    pub(crate) fn of(results: &Results) -> RunsOfTable {
        // For each combination and id: for each score the number of rows, of those without a score, of disturbed ones.
        let mut known: HashMap<(Vec<u32>, u32), Vec<[usize; 3]>> = HashMap::new();
        let nameless = results.measures.all().iter().position(String::is_empty);
        let mut ids: Vec<u32> = results.ids.clone();
        ids.sort_unstable();
        ids.dedup();
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
