//! What all combinations say together: the mean of their differences, in which each combination counts as much as the
//! others.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::compared::Compared;
use super::failures::Failures;
use super::judge::{Judged, PairSample, Scale};
use super::pairs::{Pair, Set};
use crate::campaign::Better;

/// The name of all scores together.
const ALL: &str = "all scores";

/// Combinations that are judged together.
pub(super) struct CombinationGroup<'s> {
    score: String,
    unit: String,
    better: Option<Better>,
    scale: Scale,
    /// The number of sets.
    number: usize,
    /// The pairs of each combination.
    combinations: Vec<Cow<'s, [Pair]>>,
    failures: Failures,
}

/// All combinations of each score, and all scores, if it is known of each what is better.
pub(super) fn groups<'s>(sets: &'s [Set], scales: &[Scale]) -> Vec<CombinationGroup<'s>> {
    let mut by_score: BTreeMap<(&str, &str), Vec<(&Set, Scale)>> = BTreeMap::new();
    for (set, scale) in sets.iter().zip(scales).filter(|(set, _)| set.pairs.len() > 1) {
        by_score.entry((&set.score, &set.unit)).or_default().push((set, *scale));
    }
    let is_known = |(set, scale): &(&Set, Scale)| set.better.is_some() && *scale == Scale::Share;
    let all = (by_score.len() > 1 && by_score.values().flatten().all(is_known)).then(|| CombinationGroup {
        score: ALL.to_owned(),
        unit: String::new(),
        better: Some(Better::Higher),
        scale: Scale::Share,
        number: by_score.values().map(Vec::len).sum(),
        combinations: all_scores(by_score.values().flatten().map(|(set, _)| *set)),
        failures: Failures::of(&sets.iter().collect::<Vec<_>>()),
    });
    let several = by_score.iter().filter(|(_, sets)| sets.len() > 1);
    let same = several.filter(|(_, sets)| sets.iter().all(|(_, scale)| *scale == sets[0].1));
    let group = |((score, unit), of_score): (&(&str, &str), &Vec<(&'s Set, Scale)>)| CombinationGroup {
        score: (*score).to_owned(),
        unit: (*unit).to_owned(),
        better: of_score[0].0.better,
        scale: of_score[0].1,
        number: of_score.len(),
        combinations: of_score.iter().map(|(set, _)| Cow::Borrowed(set.pairs.as_slice())).collect(),
        failures: Failures::of(
            &sets.iter().filter(|set| (set.score.as_str(), set.unit.as_str()) == (*score, *unit)).collect::<Vec<_>>(),
        ),
    };
    same.map(group).chain(all).collect()
}

/// The pairs of each combination, with the mean of the differences of all its scores, of which more is better. The
/// scores of a run share its noise, so that they are one number. Blocks without all scores are left out, and
/// combinations with fewer than two others.
fn all_scores<'s>(sets: impl Iterator<Item = &'s Set>) -> Vec<Cow<'s, [Pair]>> {
    let mut by_levels: BTreeMap<&BTreeMap<String, String>, Vec<&Set>> = BTreeMap::new();
    sets.for_each(|set| by_levels.entry(&set.levels).or_default().push(set));
    let of_combination = |sets: Vec<&Set>| {
        let mut blocks = BTreeMap::<u32, (usize, f64, bool)>::new();
        for set in &sets {
            let sign = if set.better == Some(Better::Lower) { -1.0 } else { 1.0 };
            for pair in &set.pairs {
                let (count, sum, is_disturbed) = blocks.entry(pair.block).or_default();
                *count += 1;
                *sum += sign * (pair.new / pair.old).ln();
                *is_disturbed |= pair.is_disturbed;
            }
        }
        let complete = blocks.into_iter().filter(|(_, (count, ..))| *count == sets.len());
        let pair = |(block, (count, sum, is_disturbed)): (u32, (usize, f64, bool))| Pair {
            block,
            old: 1.0,
            new: (sum / count as f64).exp(),
            is_disturbed,
        };
        complete.map(pair).collect::<Vec<Pair>>()
    };
    by_levels.into_values().map(of_combination).filter(|pairs| pairs.len() > 1).map(Cow::Owned).collect()
}

impl CombinationGroup<'_> {
    /// Its pairs.
    pub(super) fn sample(&self) -> PairSample {
        let sets: Vec<&[Pair]> = self.combinations.iter().map(|pairs| &**pairs).collect();
        PairSample::of(&sets, self.scale, self.better, self.failures)
    }

    /// What it says.
    pub(super) fn compared(&self, Judged { conclusion, effect, failures }: Judged) -> Compared {
        let pairs = || self.combinations.iter().flat_map(|pairs| pairs.iter());
        Compared {
            levels: BTreeMap::new(),
            score: self.score.clone(),
            unit: self.unit.clone(),
            better: self.better,
            conclusion,
            effect,
            combinations: self.number,
            failures,
            pairs: pairs().count(),
            disturbed: pairs().filter(|pair| pair.is_disturbed).count(),
            lost: Vec::new(),
            undisturbed: None,
        }
    }
}
