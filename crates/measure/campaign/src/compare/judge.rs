//! What the pairs of each combination say.

use bellows_stats::power::{TTest as Kind, smallest_effect};
use bellows_stats::{Bootstrap, Paired, bootstrap_ratio_of_pairs, holm, paired_in_sets, signed_rank};
use schemars::JsonSchema;
use serde::Serialize;

use super::failures::Failures;
use super::pairs::Pair;
use crate::campaign::Better;

/// The power at which an effect counts as one that the pairs could have shown.
const POWER: f64 = 0.8;

/// A scatter below this share of the scores is that of the last digits of numbers.
const NO_SCATTER: f64 = 1e-12;

/// What pairs say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize)]
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
    /// The new version alone has no score, always or more often than by chance.
    NewFails,
    /// The old version does, and the pairs with both scores show no difference.
    OldFails,
}

/// How differences are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scale {
    /// As shares of the old score, from the logarithms of scores: all are above 0.
    Share,
    /// In the unit of the score.
    Unit,
}

/// A difference of two versions: new less old, as a share of the old score or in the unit of the score.
#[derive(Clone, Copy, Debug, PartialEq, JsonSchema, Serialize)]
#[schemars(title = "Effect")]
pub struct Effect {
    /// What its numbers are.
    pub scale: Scale,
    /// The mean of the old scores; the geometric mean if the effect is a share.
    pub old: f64,
    /// The same of the new scores.
    pub new: f64,
    /// New less old.
    pub difference: f64,
    /// The lower end of its interval; the intervals of all comparisons hold together.
    pub low: f64,
    /// The upper end; null if it is too large for a number.
    #[schemars(with = "Option<f64>")]
    pub high: f64,
    /// The confidence of this interval alone.
    pub confidence: f64,
    /// The probability of such pairs if there is no difference, by Student's test.
    pub p: f64,
    /// The same, corrected for all comparisons by Holm's method.
    pub corrected_p: f64,
    /// The same by the ranks of the differences (Wilcoxon's test), corrected; null for several combinations together,
    /// or without scatter.
    pub ranks_p: Option<f64>,
    /// The ratio of the medians less 1, and the ends of its 95 percent interval; null unless the effect is a share, and
    /// for several combinations together or too many pairs.
    pub medians: Option<[f64; 3]>,
    /// The corrected probability of such pairs if the versions differ by the margin or more; null without a margin.
    pub equal_p: Option<f64>,
    /// The difference that would have been found with a probability of 0.8; null without scatter.
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

    /// Whether the near end of the interval is farther from 0 than the margin, which says nothing in units.
    pub(super) fn is_beyond(&self, margin: f64) -> bool {
        let margin = log_margin(margin);
        self.scale == Scale::Unit || self.low.ln_1p() > margin || self.high.ln_1p() < -margin
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

/// Pairs that are judged: those of a set, or of several together.
pub(super) struct PairSample {
    scale: Scale,
    better: Option<Better>,
    old: f64,
    new: f64,
    /// By set.
    differences: Vec<Vec<f64>>,
    /// The size of the numbers of which the differences are.
    size: f64,
    pub(super) failures: Failures,
}

impl PairSample {
    /// Pairs in sets, each of which counts as much as the others.
    pub(super) fn of(sets: &[&[Pair]], scale: Scale, better: Option<Better>, failures: Failures) -> PairSample {
        let mean = |value: fn(&Pair) -> f64| {
            let scaled = |pair: &Pair| if scale == Scale::Share { value(pair).ln() } else { value(pair) };
            let of_set = |set: &&[Pair]| set.iter().map(scaled).sum::<f64>() / set.len() as f64;
            let mean = sets.iter().map(of_set).sum::<f64>() / sets.len() as f64;
            if scale == Scale::Share { mean.exp() } else { mean }
        };
        let size = match scale {
            Scale::Share => 1.0,
            Scale::Unit => sets
                .iter()
                .flat_map(|set| set.iter())
                .fold(0.0, |size, pair| f64::max(size, pair.old.abs().max(pair.new.abs()))),
        };
        let differences = sets.iter().map(|set| differences(scale, set)).collect();
        PairSample {
            scale,
            better,
            old: mean(|pair| pair.old),
            new: mean(|pair| pair.new),
            differences,
            size,
            failures,
        }
    }

    /// Whether each set has two pairs.
    fn is_testable(&self) -> bool {
        !self.differences.is_empty() && self.differences.iter().all(|set| set.len() > 1)
    }

    /// Tests the differences, not yet corrected for other samples.
    fn test(&self, confidence: f64, margin: Option<f64>) -> Option<Tested> {
        if !self.is_testable() {
            return None;
        }
        let margin = margin.filter(|_| self.scale == Scale::Share).map(log_margin);
        let mean = |set: &Vec<f64>| set.iter().sum::<f64>() / set.len() as f64;
        let varies = |set: &Vec<f64>| set.iter().any(|it| (it - mean(set)).abs() > NO_SCATTER * self.size);
        if self.differences.iter().any(varies) {
            let sets: Vec<&[f64]> = self.differences.iter().map(Vec::as_slice).collect();
            let paired = paired_in_sets(&sets, confidence)?;
            let ranks = if let [only] = sets.as_slice() { signed_rank(only).map(|ranks| ranks.p) } else { None };
            return Some(Tested { paired, ranks, equal: margin.map(|margin| paired.p_within(margin)) });
        }
        // All pairs of a set say the same, which the signs of that many would do by chance.
        let count = self.differences.iter().map(Vec::len).sum::<usize>();
        let means = self.differences.iter().map(|set| Some(mean(set)).filter(|it| it.abs() > NO_SCATTER * self.size));
        let means: Vec<f64> = means.map(Option::unwrap_or_default).collect();
        let mean = means.iter().sum::<f64>() / means.len() as f64;
        let agree = means.iter().all(|it| *it > 0.0) || means.iter().all(|it| *it < 0.0);
        let by_chance = 0.5f64.powi(count.min(1_000) as i32);
        let p = if agree { 2.0 * by_chance } else { by_random_signs(&means, &self.differences) };
        let df = count as f64 - means.len() as f64;
        let paired = Paired { difference: mean, low: mean, high: mean, error: 0.0, t: 0.0, df, p };
        let equal = margin.map(|margin| if mean.abs() < margin { by_chance } else { 1.0 });
        Some(Tested { paired, ranks: None, equal })
    }
}

/// A bound of the probability that the mean is as far from 0 if the sign of each difference is random (Hoeffding,
/// *Journal of the American Statistical Association* 58, 1963).
fn by_random_signs(means: &[f64], sets: &[Vec<f64>]) -> f64 {
    let sum = means.iter().sum::<f64>();
    let squares = means.iter().zip(sets).map(|(mean, set)| mean * mean / set.len() as f64).sum::<f64>();
    if squares > 0.0 { (2.0 * (-sum * sum / (2.0 * squares)).exp()).min(1.0) } else { 1.0 }
}

/// What is known of a sample before it is corrected for the others.
struct Tested {
    paired: Paired,
    ranks: Option<f64>,
    equal: Option<f64>,
}

/// What a sample says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Judged {
    pub(super) conclusion: Conclusion,
    pub(super) effect: Option<Effect>,
    pub(super) failures: Failures,
}

/// What each sample says, corrected for all of them and for the tests of failures: they are one family.
pub(super) fn judge(samples: &[PairSample], rules: Rules) -> Vec<Judged> {
    let failures: Vec<Option<f64>> = samples.iter().map(|sample| sample.failures.p(rules.level)).collect();
    let testable = samples.iter().filter(|sample| sample.is_testable()).count();
    let number = (testable + failures.iter().flatten().count()).max(1);
    let confidence = 1.0 - rules.level / number as f64;
    let tested: Vec<Option<Tested>> = samples.iter().map(|sample| sample.test(confidence, rules.margin)).collect();
    let of_tested = |p: fn(&Tested) -> Option<f64>| tested.iter().map(move |tested| tested.as_ref().and_then(p));
    let ps = corrected(&of_tested(|tested| Some(tested.paired.p)).chain(failures).collect::<Vec<_>>());
    let ranks = corrected(&of_tested(|tested| tested.ranks).collect::<Vec<_>>());
    let equal = corrected(&of_tested(|tested| tested.equal).collect::<Vec<_>>());
    let judged = |(index, sample): (usize, &PairSample)| {
        let PairSample { scale, old, new, .. } = *sample;
        let effect = tested[index].as_ref().map(|Tested { paired, .. }| Effect {
            scale,
            old,
            new,
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
        });
        let failures = Failures { corrected_p: ps[samples.len() + index].unwrap_or(1.0), ..sample.failures };
        let of_pairs = effect.map_or(Conclusion::TooFewPairs, |it| conclude(&it, sample.better, rules.level));
        let shows_nothing = matches!(of_pairs, Conclusion::TooFewPairs | Conclusion::NoDifference);
        let conclusion = match of_pairs {
            _ if failures.are_of_new(rules.level) => Conclusion::NewFails,
            _ if shows_nothing && failures.are_of_old(rules.level) => Conclusion::OldFails,
            _ => of_pairs,
        };
        Judged { conclusion, effect, failures }
    };
    samples.iter().enumerate().map(judged).collect()
}

/// Probabilities corrected for those that there are.
fn corrected(known: &[Option<f64>]) -> Vec<Option<f64>> {
    let mut corrected = holm(&known.iter().copied().flatten().collect::<Vec<f64>>()).into_iter();
    known.iter().map(|p| p.and_then(|_| corrected.next())).collect()
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
