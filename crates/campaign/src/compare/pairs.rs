//! Pairs of scores from rows.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

use crate::campaign::{Better, Campaign, Read};
use crate::plan::Plan;
use crate::row::{Row, Score};

/// The scores of the two runs of a pair.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Pair {
    pub(super) old: f64,
    pub(super) new: f64,
    pub(super) is_disturbed: bool,
}

/// A pair of which a score is missing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LostPair {
    /// The block.
    pub block: u32,
    /// The runs without a score, each with the reason.
    pub runs: BTreeMap<String, String>,
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
    /// The number of runs whose partner is not made yet.
    pub(super) single: usize,
    /// The number of disturbed runs.
    pub(super) disturbed: usize,
}

/// The runs of a pair.
type Runs<'r> = [Option<&'r Row>; 2];

impl Pairs {
    /// The pairs of rows, by combination in the order of the plan, and by score in the order of the rows.
    pub(super) fn of(campaign: &Campaign, paired: usize, rows: &[Row]) -> Pairs {
        let plan = Plan::new(campaign);
        let mut combinations: Vec<BTreeMap<u32, Runs<'_>>> = Vec::new();
        let mut numbers: HashMap<Vec<usize>, usize> = HashMap::new();
        for row in rows {
            let Some(levels) = plan.levels(row.run) else { continue };
            let mut others = levels.to_vec();
            let side = others.remove(paired);
            let number = *numbers.entry(others).or_insert_with(|| {
                combinations.push(BTreeMap::new());
                combinations.len() - 1
            });
            if let Some(place) = combinations[number].entry(row.run.block).or_default().get_mut(side) {
                *place = Some(row);
            }
        }
        combinations.sort_by_key(|blocks| blocks.values().flatten().flatten().map(|row| row.run.combination).min());
        let is_single = |runs: &&Runs<'_>| runs.iter().flatten().count() == 1;
        Pairs {
            sets: combinations.iter().flat_map(|blocks| sets(campaign, paired, blocks)).collect(),
            single: combinations.iter().flat_map(BTreeMap::values).filter(is_single).count(),
            disturbed: rows.iter().filter(|row| !row.disturbed.is_empty()).count(),
        }
    }
}

/// The pairs of each score of a combination.
fn sets(campaign: &Campaign, paired: usize, blocks: &BTreeMap<u32, Runs<'_>>) -> Vec<Set> {
    let both = || blocks.iter().filter_map(|(block, runs)| Some((*block, [runs[0]?, runs[1]?])));
    let mut names: Vec<(&str, &str)> = Vec::new();
    for score in both().flat_map(|(_, runs)| runs).flat_map(|row| &row.scores) {
        if !names.contains(&(&score.name, &score.unit)) {
            names.push((&score.name, &score.unit));
        }
    }
    let Some((_, [any, _])) = both().next() else { return Vec::new() };
    // Reports that nobody could read do not say which figures they have.
    if names.is_empty() {
        names.push(("score", ""));
    }
    let levels: BTreeMap<String, String> = campaign
        .factors
        .iter()
        .enumerate()
        .filter(|(factor, _)| *factor != paired)
        .map(|(_, factor)| (factor.name.clone(), any.levels.get(&factor.name).cloned().unwrap_or_default()))
        .collect();
    let set = |(name, unit): (&str, &str)| {
        let mut set = Set {
            levels: levels.clone(),
            score: name.to_owned(),
            unit: unit.to_owned(),
            better: better(campaign, name),
            pairs: Vec::new(),
            lost: Vec::new(),
        };
        for (block, runs) in both() {
            let found = runs.map(|row| score(row, name, unit));
            match found.map(|found| found.ok()) {
                [Some(old), Some(new)] => {
                    let is_disturbed = runs.iter().any(|row| !row.disturbed.is_empty());
                    set.pairs.push(Pair { old, new, is_disturbed });
                }
                [old, new] => {
                    let failed =
                        runs.iter().filter_map(|row| Some((row.run.to_string(), score(row, name, unit).err()?)));
                    let (has_old, has_new) = (old.is_some(), new.is_some());
                    set.lost.push(LostPair { block, runs: failed.collect(), has_old, has_new });
                }
            }
        }
        set
    };
    names.into_iter().map(set).collect()
}

/// A score of a run, or why there is none.
fn score(row: &Row, name: &str, unit: &str) -> Result<f64, String> {
    let found = row.scores.iter().find(|score: &&Score| score.name == name && score.unit == unit);
    let failure = row.failure.as_ref().or_else(|| found?.failure.as_ref());
    match found.and_then(|score| score.value) {
        Some(value) => Ok(value),
        None => Err(failure.map_or_else(|| "its report lacks this figure".to_owned(), ToString::to_string)),
    }
}

/// Which scores of this name are better.
fn better(campaign: &Campaign, name: &str) -> Option<Better> {
    let is_meant = |read: &Read| matches!(read, Read::Bench { case: None, .. });
    campaign.scores.iter().find(|score| score.name == name || is_meant(&score.read))?.better
}
