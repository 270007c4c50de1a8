//! The result of a comparison.

use std::path::Path;

use bellows_stats::Bootstrap;
use schemars::JsonSchema;
use serde::Serialize;

use super::compared::Compared;
use super::error::CompareError;
use super::failures::Failures;
use super::judge::{Conclusion, PairSample, Rules, Scale, judge, scale};
use super::pairs::{Collector, Set};
use super::whole::{CombinationGroup, groups};
use crate::campaign::{Campaign, Version};
use crate::folder::Info;
use crate::plan::Hash;
use crate::results::each_row;

/// Bootstrap samples of all comparisons together have at most this number of pairs.
const MAX_RESAMPLED: usize = 50_000_000;

/// With fewer samples there is no interval of medians.
const MIN_RESAMPLES: usize = 200;

/// What is asked of the pairs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ComparisonOptions {
    /// The probability with which all intervals of the combinations hold together, such as 0.95.
    pub confidence: f64,
    /// The difference, as a share, below which versions count as equal.
    pub margin: Option<f64>,
}

impl Default for ComparisonOptions {
    fn default() -> ComparisonOptions {
        ComparisonOptions { confidence: 0.95, margin: None }
    }
}

/// Reads a margin such as `2%`, as a share.
///
/// # Errors
/// What is wrong, and the way out.
pub fn parse_margin(text: &str) -> Result<f64, String> {
    let number = text.trim().strip_suffix('%').and_then(|number| number.trim().parse::<f64>().ok());
    let percent = number.filter(|percent| *percent > 0.0 && *percent <= 100.0);
    percent.map(|percent| percent / 100.0).ok_or_else(|| "a margin is a percentage up to 100, such as 2%".to_owned())
}

/// What the pairs of a campaign say of its two versions.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize)]
#[schemars(title = "Comparison")]
pub struct Comparison {
    /// The name of the campaign.
    pub name: String,
    /// The hash of the campaign.
    pub hash: Hash,
    /// What the old version is called.
    pub old: String,
    /// What the new version is called.
    pub new: String,
    /// The old and the new version; null if the campaign has no `[build]`.
    pub versions: Option<[Version; 2]>,
    /// Whether both have the same contents: an A/A check of the machine.
    pub is_same: bool,
    /// The probability with which all intervals hold together.
    pub confidence: f64,
    /// The difference, as a share, below which versions are equal; null without one.
    pub margin: Option<f64>,
    /// The number of runs.
    pub runs: usize,
    /// The number of disturbed runs.
    pub disturbed_runs: usize,
    /// The number of runs whose partner is not made yet.
    pub single_runs: usize,
    /// What the pairs of each combination and score say.
    pub results: Vec<Compared>,
    /// What all combinations of a score say together, if there are several, and `all scores`.
    pub whole: Vec<Compared>,
}

impl Comparison {
    /// What the results in a folder say, which may be in use.
    ///
    /// # Errors
    /// If the campaign has no pairs, the folder has the results of another campaign, or of none, or files cannot be
    /// read.
    pub fn read(folder: &Path, campaign: &Campaign, options: &ComparisonOptions) -> Result<Comparison, CompareError> {
        let paired = campaign.paired.as_ref().and_then(|paired| campaign.factor(paired));
        let paired = paired.filter(|paired| campaign.factors[*paired].levels.len() == 2);
        let paired = paired.ok_or(CompareError::NotPaired)?;
        let info = Info::read(folder)?;
        Info::check(folder, campaign)?;
        let mut collector = Collector::new(campaign, paired);
        each_row(folder, |row| collector.add(&row))?;
        let found = collector.finish();
        let versions = campaign.build.as_ref().and_then(|build| build.versions.clone());
        let called = |side: usize| match &versions {
            Some(versions) => versions[side].name.clone(),
            None => campaign.factors[paired].levels[side].label.clone(),
        };
        let rules = Rules { level: 1.0 - options.confidence, margin: options.margin };
        let (results, whole) = compare(&found.sets, rules);
        Ok(Comparison {
            name: campaign.name.clone(),
            hash: info.hash,
            old: called(0),
            new: called(1),
            is_same: versions.as_ref().is_some_and(|[old, new]| old.content == new.content),
            versions,
            confidence: options.confidence,
            margin: options.margin,
            runs: found.runs,
            disturbed_runs: found.disturbed,
            single_runs: found.single,
            results,
            whole,
        })
    }

    /// Whether the new version was shown to be slower by more than the margin in a combination or in all: the near end
    /// of the interval is beyond the margin, or there is no margin. Where scores are not all above 0, the margin says
    /// nothing. Also whether the new version was shown to fail where the old one does not.
    pub fn is_slower(&self) -> bool {
        let is_slower = |it: &Compared| match it.conclusion {
            Conclusion::NewFails => true,
            Conclusion::Slower => {
                self.margin.is_none_or(|margin| it.effect.is_none_or(|effect| effect.is_beyond(margin)))
            }
            _ => false,
        };
        self.results.iter().chain(&self.whole).any(is_slower)
    }

    /// Whether it is known of all scores which ones are better.
    pub fn knows_better(&self) -> bool {
        self.results.iter().all(|it| it.better.is_some())
    }
}

/// What the sets say, each and together, with and without disturbed pairs.
fn compare(sets: &[Set], rules: Rules) -> (Vec<Compared>, Vec<Compared>) {
    // The scale is that of all pairs, so that both answers have the same.
    let scales: Vec<Scale> = sets.iter().map(|set| scale(&set.pairs)).collect();
    let resamples = MAX_RESAMPLED / sets.iter().map(|set| set.pairs.len()).sum::<usize>().max(1);
    let resamples = if resamples < MIN_RESAMPLES { 0 } else { resamples.min(Bootstrap::default().resamples) };
    // Failures are those of all pairs.
    let failures: Vec<Failures> = sets.iter().map(|set| Failures::of(&[set])).collect();
    let answers = |sets: &[Set]| {
        let groups = groups(sets, &scales);
        let each = sets.iter().zip(&scales).zip(&failures);
        let each = each.map(|((set, scale), failures)| PairSample::of(&[&set.pairs], *scale, set.better, *failures));
        // Readers take either answer, so that both are one family.
        let samples: Vec<PairSample> = each.chain(groups.iter().map(CombinationGroup::sample)).collect();
        let mut judged = judge(&samples, rules);
        for (index, judged) in judged.iter_mut().enumerate() {
            let (pairs, resamples) = sets.get(index).map_or((&[][..], 0), |set| (&set.pairs, resamples));
            judged.effect.iter_mut().for_each(|effect| effect.explain(pairs, resamples));
        }
        let together = judged.split_off(sets.len());
        let results: Vec<Compared> = sets.iter().zip(judged).map(|(set, judged)| Compared::of(set, judged)).collect();
        let whole: Vec<Compared> = groups.iter().zip(together).map(|(group, judged)| group.compared(judged)).collect();
        (results, whole)
    };
    let (mut results, mut whole) = answers(sets);
    if sets.iter().any(|set| set.pairs.iter().any(|pair| pair.is_disturbed)) {
        let undisturbed = |set: &Set| {
            let pairs = set.pairs.iter().filter(|pair| !pair.is_disturbed).copied().collect();
            Set { pairs, ..set.clone() }
        };
        let calm: Vec<Set> = sets.iter().map(undisturbed).collect();
        let (others, together) = answers(&calm);
        results.iter_mut().zip(&others).for_each(|(all, calm)| all.add(Some(calm)));
        for all in &mut whole {
            all.add(together.iter().find(|calm| (&calm.score, &calm.unit) == (&all.score, &all.unit)));
        }
    }
    (results, whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_margin_is_a_percentage() {
        assert_eq!([parse_margin("2%"), parse_margin(" 0.5 %")], [Ok(0.02), Ok(0.005)]);
        for text in ["2", "", "%", "-1%", "0%", "101%", "nan%", "inf%"] {
            assert!(parse_margin(text).is_err(), "{text}");
        }
    }
}
