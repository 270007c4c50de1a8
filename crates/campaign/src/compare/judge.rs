//! What the pairs of each combination say.

use bellows_stats::power::{Comparison as Kind, smallest_effect};
use bellows_stats::{Bootstrap, Paired, bootstrap_ratio_of_pairs, holm, paired, signed_rank};
use serde::Serialize;

use super::pairs::{Pair, Set};
use crate::campaign::Better;

/// The power at which an effect counts as one that the pairs could have shown.
const POWER: f64 = 0.8;

/// A scatter below this share of the scores is that of the last digits of numbers.
const NO_SCATTER: f64 = 1e-12;

/// What pairs say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Conclusion {
    /// The new version is better.
    Faster,
    /// It is worse.
    Slower,
    /// Its score is higher, and it is not known whether that is better.
    Higher,
    /// Its score is lower, and it is not known whether that is better.
    Lower,
    /// The versions differ by less than the margin.
    Equal,
    /// These pairs show no difference.
    NoDifference,
    /// There are fewer than two pairs with both scores.
    TooFewPairs,
    /// The old version has scores, and the new one none.
    NewFails,
    /// The new version has scores, and the old one none.
    OldFails,
}

/// How differences are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scale {
    /// As shares of the old score, from the logarithms of scores: all are above 0.
    Share,
    /// In the unit of the score.
    Unit,
}

/// A difference of two versions: new less old, as a share of the old score or in the unit of the score.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Effect {
    /// Whether it is a share.
    pub scale: Scale,
    /// The mean of the old scores: the geometric mean if the effect is a share.
    pub old: f64,
    /// The mean of the new scores.
    pub new: f64,
    /// The difference.
    pub difference: f64,
    /// Lower end of its interval. The intervals of all comparisons hold together (Bonferroni).
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
    /// The confidence of this interval alone.
    pub confidence: f64,
    /// The probability of such pairs if there is no difference, by Student's test.
    pub p: f64,
    /// The same, corrected for all comparisons by Holm's method.
    pub corrected_p: f64,
    /// The same by the ranks of the differences (Wilcoxon's test), corrected.
    pub ranks_p: Option<f64>,
    /// The ratio of medians less 1, and the ends of its 95 percent bootstrap interval, if the effect is a share and
    /// there are at most 250,000 pairs in all.
    pub medians: Option<[f64; 3]>,
    /// The corrected probability of such pairs if the versions differ by the margin or more.
    pub equal_p: Option<f64>,
    /// The difference that would have been found with a probability of 0.8. None if the pairs have no scatter.
    pub detectable: Option<f64>,
    /// The standard error of the difference; of its logarithm, if it is a share.
    pub error: f64,
    /// Degrees of freedom.
    pub df: f64,
}

impl Effect {
    /// Adds which difference would have been found, and what the medians of these pairs say.
    pub(super) fn explain(&mut self, pairs: &[Pair], resamples: usize) {
        if self.error > 0.0 {
            // As many pairs as have these degrees of freedom.
            let count = (self.df + 1.0).round().max(2.0);
            let smallest = smallest_effect(Kind::Pairs, count as u64, 1.0 - self.confidence, POWER);
            self.detectable = smallest.ok().map(|it| shown(self.scale, it * self.error * count.sqrt()));
        }
        if self.scale == Scale::Share && resamples > 0 {
            let pairs: Vec<(f64, f64)> = pairs.iter().map(|pair| (pair.new, pair.old)).collect();
            let found = bootstrap_ratio_of_pairs(&pairs, &Bootstrap { resamples, ..Bootstrap::default() });
            self.medians = found.map(|found| [found.value, found.low, found.high].map(|ratio| ratio - 1.0));
        }
    }

    /// Whether the versions were shown to differ by less than the margin.
    pub(super) fn is_within(&self, level: f64) -> bool {
        self.equal_p.is_some_and(|p| p <= level)
    }
}

/// The level of a test, and the margin within which versions count as equal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rules {
    pub(super) level: f64,
    pub(super) margin: Option<f64>,
}

/// Differences of pairs on their scale: logarithms of ratios, or differences.
pub(super) fn differences(scale: Scale, pairs: &[Pair]) -> Vec<f64> {
    let difference = |pair: &Pair| match scale {
        Scale::Share => (pair.new / pair.old).ln(),
        Scale::Unit => pair.new - pair.old,
    };
    pairs.iter().map(difference).collect()
}

/// The scale of pairs, whatever the versions are.
pub(super) fn scale(pairs: &[Pair]) -> Scale {
    if pairs.iter().all(|pair| pair.old > 0.0 && pair.new > 0.0) { Scale::Share } else { Scale::Unit }
}

/// A number on the scale of differences as an effect.
pub(super) fn shown(scale: Scale, value: f64) -> f64 {
    if scale == Scale::Share { value.exp_m1() } else { value }
}

/// A margin on the scale of logarithms: the same for a version that is faster and one that is slower.
pub(super) fn log_margin(margin: f64) -> f64 {
    margin.ln_1p()
}

/// What is known of a set before it is corrected for the others.
struct Tested {
    paired: Paired,
    ranks: Option<f64>,
    equal: Option<f64>,
}

/// Tests the differences of pairs.
fn test(scale: Scale, pairs: &[Pair], confidence: f64, margin: Option<f64>) -> Option<Tested> {
    let differences = differences(scale, pairs);
    if differences.len() < 2 {
        return None;
    }
    let size = match scale {
        Scale::Share => 1.0,
        Scale::Unit => pairs.iter().flat_map(|pair| [pair.old.abs(), pair.new.abs()]).fold(0.0, f64::max),
    };
    let mean = differences.iter().sum::<f64>() / differences.len() as f64;
    let has_scatter = differences.iter().any(|difference| (difference - mean).abs() > NO_SCATTER * size);
    let margin = margin.filter(|_| scale == Scale::Share).map(log_margin);
    let found = paired(&differences, confidence).filter(|_| has_scatter);
    let Some(paired) = found else {
        // All pairs say the same, which the signs of that many would do by chance.
        let mean = if mean.abs() <= NO_SCATTER * size { 0.0 } else { mean };
        let by_chance = 0.5f64.powi(differences.len().min(1_000) as i32);
        let p = if mean == 0.0 { 1.0 } else { 2.0 * by_chance };
        let (t, df) = (0.0, differences.len() as f64 - 1.0);
        let paired = Paired { difference: mean, low: mean, high: mean, error: 0.0, t, df, p };
        let equal = margin.map(|margin| if mean.abs() < margin { by_chance } else { 1.0 });
        return Some(Tested { paired, ranks: None, equal });
    };
    let equal = margin.map(|margin| paired.p_within(margin));
    Some(Tested { paired, ranks: signed_rank(&differences).map(|ranks| ranks.p), equal })
}

/// What each set says, corrected for all of them.
pub(super) fn judge(sets: &[Set], scales: &[Scale], rules: Rules) -> Vec<(Conclusion, Option<Effect>)> {
    let number = sets.iter().filter(|set| set.pairs.len() > 1).count().max(1);
    let confidence = 1.0 - rules.level / number as f64;
    let tested: Vec<Option<Tested>> =
        sets.iter().zip(scales).map(|(set, scale)| test(*scale, &set.pairs, confidence, rules.margin)).collect();
    let corrected = |p: &dyn Fn(&Tested) -> Option<f64>| -> Vec<Option<f64>> {
        let known: Vec<Option<f64>> = tested.iter().map(|tested| tested.as_ref().and_then(p)).collect();
        let mut corrected = holm(&known.iter().copied().flatten().collect::<Vec<f64>>()).into_iter();
        known.iter().map(|p| p.and_then(|_| corrected.next())).collect()
    };
    let ps = corrected(&|tested| Some(tested.paired.p));
    let ranks = corrected(&|tested| tested.ranks);
    let equal = corrected(&|tested| tested.equal);
    let judged = |(index, set): (usize, &Set)| {
        let Some(Tested { paired, .. }) = &tested[index] else { return (without_effect(set), None) };
        let scale = scales[index];
        let count = set.pairs.len() as f64;
        let mean = |value: fn(&Pair) -> f64| match scale {
            Scale::Share => (set.pairs.iter().map(|pair| value(pair).ln()).sum::<f64>() / count).exp(),
            Scale::Unit => set.pairs.iter().map(value).sum::<f64>() / count,
        };
        let effect = Effect {
            scale,
            old: mean(|pair| pair.old),
            new: mean(|pair| pair.new),
            difference: shown(scale, paired.difference),
            low: shown(scale, paired.low),
            high: shown(scale, paired.high),
            confidence,
            p: paired.p,
            corrected_p: ps[index].unwrap_or(1.0),
            ranks_p: ranks[index],
            medians: None,
            equal_p: equal[index],
            detectable: None,
            error: paired.error,
            df: paired.df,
        };
        (conclude(&effect, set.better, rules.level), Some(effect))
    };
    sets.iter().enumerate().map(judged).collect()
}

/// The conclusion from an effect.
pub(super) fn conclude(effect: &Effect, better: Option<Better>, level: f64) -> Conclusion {
    let is_higher = effect.difference > 0.0;
    match better {
        _ if effect.corrected_p > level => {
            if effect.is_within(level) {
                Conclusion::Equal
            } else {
                Conclusion::NoDifference
            }
        }
        None if is_higher => Conclusion::Higher,
        None => Conclusion::Lower,
        Some(better) if is_higher == (better == Better::Higher) => Conclusion::Faster,
        Some(_) => Conclusion::Slower,
    }
}

/// Why there is no effect.
fn without_effect(set: &Set) -> Conclusion {
    let has = |value: fn(&super::pairs::Pair) -> bool, lost: fn(&super::pairs::LostPair) -> bool| {
        set.pairs.iter().any(value) || set.lost.iter().any(lost)
    };
    let (has_old, has_new) = (has(|_| true, |lost| lost.has_old), has(|_| true, |lost| lost.has_new));
    match (has_old, has_new) {
        (true, false) => Conclusion::NewFails,
        (false, true) => Conclusion::OldFails,
        _ => Conclusion::TooFewPairs,
    }
}
