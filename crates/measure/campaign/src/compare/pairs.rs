//! Pairs of scores from rows.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use crate::campaign::{Better, Campaign, Read, ScoreSpec};
use crate::plan::{Plan, RunId};
use crate::row::Row;

/// The scores of the two runs of a pair.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Pair {
    pub(super) block: u32,
    pub(super) old: f64,
    pub(super) new: f64,
    pub(super) is_disturbed: bool,
}

/// A pair that does not count: a score is missing, or its runs were made on different machines.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize)]
#[schemars(title = "Lost pair")]
pub struct LostPair {
    /// Its block.
    pub block: u32,
    /// The reason for each run without a score, by its id; for both if their machines differ.
    pub runs: BTreeMap<String, String>,
    /// Whether its runs were made on different machines.
    ///
    /// Whether the two runs were made on different machines: their names or processors differ.
    pub is_of_two_machines: bool,
    /// Whether the old version has its score.
    pub has_old: bool,
    /// Whether the new version has its score.
    pub has_new: bool,
}

/// The pairs of a score in a combination of the other factors.
#[derive(Clone, Debug)]
pub(super) struct Set {
    pub(super) levels: BTreeMap<String, String>,
    pub(super) score: String,
    pub(super) unit: String,
    pub(super) better: Option<Better>,
    pub(super) pairs: Vec<Pair>,
    pub(super) lost: Vec<LostPair>,
}

/// All pairs of a campaign.
pub(super) struct Pairs {
    pub(super) sets: Vec<Set>,
    /// The number of runs.
    pub(super) runs: usize,
    /// The number of disturbed runs.
    pub(super) disturbed: usize,
    /// The number of runs whose partner is not made yet.
    pub(super) single: usize,
}

/// Collects pairs from rows.
pub(super) struct Collector<'c> {
    campaign: &'c Campaign,
    plan: Plan,
    /// The number of the paired factor.
    paired: usize,
    /// By the numbers of their levels.
    combinations: BTreeMap<Vec<usize>, Combination>,
    machines: Vec<Host>,
    runs: usize,
    disturbed: usize,
}

/// A machine, as far as the runs of a pair need the same.
#[derive(PartialEq)]
struct Host {
    name: String,
    cpu: String,
}

/// The runs of a combination of the other factors.
struct Combination {
    levels: BTreeMap<String, String>,
    /// The names and units of its scores.
    scores: Vec<(String, String)>,
    blocks: BTreeMap<u32, [Option<PairRun>; 2]>,
}

/// What a pair needs of a row.
struct PairRun {
    id: RunId,
    /// The machine's number.
    machine: usize,
    is_disturbed: bool,
    failure: Option<String>,
    /// The scores by their number in the combination; without a value perhaps with a reason.
    scores: Vec<(usize, Result<f64, Option<String>>)>,
}

impl<'c> Collector<'c> {
    pub(super) fn new(campaign: &'c Campaign, paired: usize) -> Collector<'c> {
        let (plan, combinations) = (Plan::new(campaign), BTreeMap::new());
        Collector { campaign, plan, paired, combinations, machines: Vec::new(), runs: 0, disturbed: 0 }
    }

    /// Adds a row, which counts once.
    pub(super) fn add(&mut self, row: &Row) {
        self.runs += 1;
        self.disturbed += usize::from(!row.disturbed.is_empty());
        let Some(levels) = self.plan.levels(row.run) else { return };
        let mut others = levels.to_vec();
        let side = others.remove(self.paired);
        let combination = self.combinations.entry(others).or_insert_with(|| {
            let factors = self.campaign.factors.iter().zip(levels).enumerate();
            let others = factors.filter(|(factor, _)| *factor != self.paired).map(|(_, named)| named);
            let labels = others.map(|(factor, level)| (factor.name.clone(), factor.levels[*level].label.clone()));
            Combination { levels: labels.collect(), scores: Vec::new(), blocks: BTreeMap::new() }
        });
        let scores = row.scores.iter().map(|score| {
            let failure = || score.failure.as_ref().map(ToString::to_string);
            (place(&mut combination.scores, &score.name, &score.unit), score.value.ok_or_else(failure))
        });
        let scores = scores.collect();
        let failure = row.failure.as_ref().map(ToString::to_string);
        let (name, cpu) = (&row.machine.host, &row.machine.cpu);
        let machine = self.machines.iter().position(|host| (&host.name, &host.cpu) == (name, cpu));
        let machine = machine.unwrap_or_else(|| {
            self.machines.push(Host { name: name.clone(), cpu: cpu.clone() });
            self.machines.len() - 1
        });
        if let Some(run) = combination.blocks.entry(row.run.block).or_default().get_mut(side) {
            *run = Some(PairRun { id: row.run, machine, is_disturbed: !row.disturbed.is_empty(), failure, scores });
        }
    }

    /// The pairs, by combination in the order of the file, and by score in the order of the rows.
    pub(super) fn finish(self) -> Pairs {
        let blocks = self.combinations.values().flat_map(|combination| combination.blocks.values());
        Pairs {
            runs: self.runs,
            disturbed: self.disturbed,
            single: blocks.filter(|runs| runs.iter().flatten().count() == 1).count(),
            sets: self.combinations.values().flat_map(|it| it.sets(self.campaign, &self.machines)).collect(),
        }
    }
}

/// The number of a score, which is added if it is new.
fn place(scores: &mut Vec<(String, String)>, name: &str, unit: &str) -> usize {
    let known = scores.iter().position(|score| (score.0.as_str(), score.1.as_str()) == (name, unit));
    known.unwrap_or_else(|| {
        scores.push((name.to_owned(), unit.to_owned()));
        scores.len() - 1
    })
}

impl Combination {
    /// The pairs of each score; none before the first two runs are made.
    fn sets(&self, campaign: &Campaign, machines: &[Host]) -> Vec<Set> {
        let both = self.blocks.iter().filter_map(|(block, [old, new])| Some((*block, [old.as_ref()?, new.as_ref()?])));
        let both: Vec<(u32, [&PairRun; 2])> = both.collect();
        // Reports that nobody could read do not say which figures they have.
        let unknown = [("score".to_owned(), String::new())];
        let scores = if self.scores.is_empty() { &unknown } else { self.scores.as_slice() };
        let set = |(number, (name, unit)): (usize, &(String, String))| {
            let mut set = Set {
                levels: self.levels.clone(),
                score: name.clone(),
                unit: unit.clone(),
                better: better(campaign, name, unit),
                pairs: Vec::new(),
                lost: Vec::new(),
            };
            for (block, runs) in &both {
                let is_of_two_machines = runs[0].machine != runs[1].machine;
                match runs.map(|run| run.score(number)) {
                    [Ok(old), Ok(new)] if !is_of_two_machines => {
                        let is_disturbed = runs.iter().any(|run| run.is_disturbed);
                        set.pairs.push(Pair { block: *block, old, new, is_disturbed });
                    }
                    found => {
                        let [has_old, has_new] = found.each_ref().map(Result::is_ok);
                        let why = |(run, found): (&&PairRun, Result<f64, String>)| {
                            let why = found.err().or_else(|| is_of_two_machines.then(|| machines[run.machine].why()));
                            Some((run.id.to_string(), why?))
                        };
                        let runs = runs.iter().zip(found).filter_map(why).collect();
                        set.lost.push(LostPair { block: *block, runs, is_of_two_machines, has_old, has_new });
                    }
                }
            }
            set
        };
        if both.is_empty() { Vec::new() } else { scores.iter().enumerate().map(set).collect() }
    }
}

impl Host {
    /// Why a run on this machine does not count, whose partner was made on another one.
    fn why(&self) -> String {
        let Host { name, cpu } = self;
        format!("the two runs were made on different machines, this one on `{name}`, {cpu}")
    }
}

impl PairRun {
    /// A score, or why there is none.
    fn score(&self, number: usize) -> Result<f64, String> {
        let found = self.scores.iter().find(|(place, _)| *place == number);
        match found.map(|(_, score)| score) {
            Some(Ok(value)) => Ok(*value),
            found => {
                let own = found.and_then(|score| score.as_ref().err()?.as_ref());
                let why = self.failure.as_ref().or(own);
                Err(why.map_or_else(|| "its report lacks this figure".to_owned(), String::clone))
            }
        }
    }
}

/// Which values of a score are better: as its own declaration says, else that of all figures of its unit, else that of
/// all figures, else the unit of a benchmark's figure. None if several of these disagree.
fn better(campaign: &Campaign, name: &str, unit: &str) -> Option<Better> {
    let is_all = |score: &ScoreSpec| matches!(score.read, Read::Bench { case: None, .. });
    let is_own = |score: &ScoreSpec| {
        !is_all(score) && score.name == name && (score.unit.is_empty() || unit.is_empty() || score.unit == unit)
    };
    let is_of_unit = |score: &ScoreSpec| is_all(score) && !score.unit.is_empty() && score.unit == unit;
    let is_of_any = |score: &ScoreSpec| is_all(score) && score.unit.is_empty();
    let ways: [&dyn Fn(&ScoreSpec) -> bool; 3] = [&is_own, &is_of_unit, &is_of_any];
    let meant = ways.iter().map(|is_meant| campaign.scores.iter().filter(|score| is_meant(score)).collect::<Vec<_>>());
    let meant = meant.into_iter().find(|meant| !meant.is_empty())?;
    let first = meant[0].better;
    match first {
        None if meant.iter().all(|score| matches!(score.read, Read::Bench { .. })) => better_in(unit),
        first => first.filter(|_| meant.iter().all(|score| score.better == first)),
    }
}

/// Which figures of benchmarks are better, by their unit: more packets a second, less time and memory. A ratio can be
/// either.
fn better_in(unit: &str) -> Option<Better> {
    let (amount, per) = unit.split_once('/').unwrap_or((unit, ""));
    match amount {
        "Mpps" => Some(Better::Higher),
        _ if per == "s" => Some(Better::Higher),
        "clocks" | "ns" | "µs" | "ms" | "MiB" => Some(Better::Lower),
        _ => None,
    }
}
