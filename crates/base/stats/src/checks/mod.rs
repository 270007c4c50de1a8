//! Checks of what an analysis of variance assumes: residuals from a normal distribution, the same variance in all
//! combinations of levels, and no drift while the runs were made.
//!
//! A check that passes proves nothing: few runs cannot show that an assumption fails.

mod shapiro;

use std::fmt;

pub use shapiro::{ShapiroWilk, shapiro_wilk};

use crate::anova::{Anova, Factor, Model, TermRow, anova};
use crate::distribution::StudentT;
use crate::medians::median;
use crate::ranks::Ranks;

/// Maximum number of runs that are checked for drift and equal variances.
const MAX_CHECKED: usize = 100_000;

/// Minimum number of runs of a combination that counts for equal variances: of two runs, both are equally far from the
/// median, and of three one is the median.
const MIN_SCATTERED: usize = 4;

/// A statistic from which on it is printed with an exponent.
const LARGE: f64 = 1e5;

/// What a method assumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Assumption {
    /// Residuals come from a normal distribution.
    Normality,
    /// All combinations of levels have the same variance.
    EqualVariances,
    /// The scores do not rise or fall with time.
    NoDrift,
}

/// An assumption that does not hold, and what to use instead: its text is for the reader of a report.
#[derive(Clone, Debug, PartialEq)]
pub struct Warning {
    /// The assumption.
    pub assumption: Assumption,
    /// The statistic of the check: W of Shapiro and Wilk, F of Brown and Forsythe, or Spearman's correlation with time.
    pub statistic: f64,
    /// The probability of such a statistic if the assumption holds.
    pub p: f64,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (statistic, p) = (self.statistic, self.p);
        match self.assumption {
            Assumption::Normality => write!(
                f,
                "the residuals are not normally distributed (Shapiro-Wilk W = {statistic:.4}, p = {p:.2e}): compare \
                 ranks instead (Mann-Whitney for two samples, Kruskal-Wallis with Dunn for more), or medians by \
                 bootstrap; tests of means are reliable from some 30 runs of each combination"
            ),
            Assumption::EqualVariances => write!(
                f,
                "the runs of some combinations scatter more than those of others (Brown-Forsythe F = {}, p = {p:.2e}): \
                 compare two samples by Welch's test, more by Welch's tests with Holm's correction",
                if statistic < LARGE { format!("{statistic:.3}") } else { format!("{statistic:.2e}") }
            ),
            Assumption::NoDrift => write!(
                f,
                "the scores drift with the time of the runs (Spearman's correlation = {statistic:.3}, p = {p:.2e}): \
                 compare pairs of runs that are made one after the other, as `bellows campaign compare` does, or make \
                 more blocks on a machine at rest"
            ),
        }
    }
}

/// Checks the assumptions of an analysis of these scores; those that fail at this significance are returned.
///
/// `times` has the time, or the number in the order of running, of each run; without it the runs were made in the order
/// of the scores. Of more than 100,000 runs, evenly spaced ones are checked for drift and equal variances, and 5,000 for
/// normality. A significance of 0.01 is a good choice: the three checks are three chances of a false warning.
///
/// # Panics
///
/// If `times` and `scores` differ in length.
pub fn check_assumptions(found: &Anova, scores: &[f64], times: Option<&[f64]>, significance: f64) -> Vec<Warning> {
    let mut residuals = found.residuals(scores);
    if let Some(times) = times {
        assert_eq!(times.len(), scores.len(), "each score has a time");
    }
    let normality = shapiro_wilk(&residuals).map(|found| (found.w, found.p));
    let chosen = evenly_spaced(scores.len());
    let time = |row: usize| times.map_or(row as f64, |times| times[row]);
    let times: Vec<f64> = chosen.iter().map(|&row| time(row)).collect();
    residuals = chosen.iter().map(|&row| residuals[row]).collect();
    let variances =
        brown_forsythe(&by_combination(found, &found.without_blocks(scores), &chosen)).map(|found| (found.f, found.p));
    let trend = drift(&residuals, &times).map(|found| (found.correlation, found.p));
    let checks =
        [(Assumption::Normality, normality), (Assumption::EqualVariances, variances), (Assumption::NoDrift, trend)];
    let warning = |(assumption, check): (Assumption, Option<(f64, f64)>)| {
        let (statistic, p) = check?;
        (p < significance).then_some(Warning { assumption, statistic, p })
    };
    checks.into_iter().filter_map(warning).collect()
}

/// The numbers of at most [`MAX_CHECKED`] rows.
fn evenly_spaced(rows: usize) -> Vec<usize> {
    let count = rows.min(MAX_CHECKED);
    (0..count).map(|place| place * rows / count).collect()
}

/// The scores of each combination of levels, of these rows, which are in rising order, where there are enough to compare
/// variances.
fn by_combination(found: &Anova, scores: &[f64], chosen: &[usize]) -> Vec<Vec<f64>> {
    let mut samples: Vec<Vec<f64>> = Vec::new();
    let combinations: Vec<Option<usize>> = found.combinations().collect();
    for &row in chosen {
        let (Some(combination), score) = (combinations[row], scores[row]) else { continue };
        if combination >= samples.len() {
            samples.resize(combination + 1, Vec::new());
        }
        samples[combination].push(score);
    }
    samples.retain(|sample| sample.len() >= MIN_SCATTERED);
    samples
}

/// Whether several samples have the same variance: the analysis of variance of the distances from each sample's median
/// (Brown and Forsythe, *Journal of the American Statistical Association* 69, 1974), which tolerates skewed values.
///
/// Values that are not finite are left out. `None` if fewer than two samples have values, or if nothing varies, or if
/// the distances within each sample differ by no more than rounding: those of samples of two values always are equal.
pub fn brown_forsythe<S: AsRef<[f64]>>(samples: &[S]) -> Option<TermRow> {
    let (mut distances, mut codes) = (Vec::new(), Vec::new());
    for (code, sample) in (0u32..).zip(samples) {
        let Some(middle) = median(sample.as_ref()) else { continue };
        let finite = sample.as_ref().iter().filter(|value| value.is_finite());
        distances.extend(finite.map(|value| (value - middle.value).abs()));
        codes.resize(distances.len(), code);
    }
    let levels = (0..samples.len()).map(|sample| sample.to_string()).collect();
    let factors = [Factor::with_levels("sample", levels, codes).ok()?];
    let model = Model::new([vec![0]], 1).ok()?;
    let mut found = anova(&distances, &factors, &model).ok()?;
    let values = samples.iter().flat_map(|sample| sample.as_ref()).filter(|value| value.is_finite());
    // Distances are as precise as the values that they are differences of.
    let rounding = 4.0 * f64::EPSILON * values.fold(0.0, |largest: f64, value| largest.max(value.abs()));
    if found.residual_squares.sqrt() <= rounding * (found.runs as f64).sqrt() {
        return None;
    }
    found.terms.pop()
}

/// Whether values rise or fall with time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Drift {
    /// Spearman's rank correlation: 1 if the values only rise, -1 if they only fall.
    pub correlation: f64,
    /// The probability of at least this correlation, in either direction, if there is no drift; by the approximation
    /// with Student's t, which is good from about 10 values.
    pub p: f64,
}

/// The rank correlation of values with the times at which they were measured (Spearman, *American Journal of
/// Psychology* 15, 1904). Values that are not finite are left out.
///
/// `None` if fewer than three values remain, or if all values, or all times, are equal.
///
/// # Panics
///
/// If the numbers of values and times differ.
pub fn drift(values: &[f64], times: &[f64]) -> Option<Drift> {
    assert_eq!(values.len(), times.len(), "each value has a time");
    let pairs = values.iter().zip(times).filter(|(value, time)| value.is_finite() && time.is_finite());
    let (values, times): (Vec<f64>, Vec<f64>) = pairs.unzip();
    let (ones, others) = (Ranks::of(&values), Ranks::of(&times));
    let count = values.len() as f64;
    let middle = (count + 1.0) / 2.0;
    let pairs = ones.of_values.iter().zip(&others.of_values);
    let product: f64 = pairs.map(|(one, other)| (one - middle) * (other - middle)).sum();
    let correlation = (product / (ones.squares() * others.squares()).sqrt()).clamp(-1.0, 1.0);
    if count < 3.0 || correlation.is_nan() {
        return None;
    }
    let df = count - 2.0;
    let t = correlation * (df / ((1.0 - correlation) * (1.0 + correlation))).sqrt();
    Some(Drift { correlation, p: StudentT { df }.two_sided(t) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warnings(score: impl Fn(usize, f64) -> f64, times: Option<&[f64]>) -> Vec<Assumption> {
        let mut random = fastrand::Rng::with_seed(2);
        // Nearly normal: the sum of twelve uniform variables.
        let noise: Vec<f64> = (0..120).map(|_| (0..12).map(|_| random.f64()).sum::<f64>() - 6.0).collect();
        let scores: Vec<f64> = noise.iter().enumerate().map(|(row, noise)| score(row, *noise)).collect();
        let factors = [Factor::new("version", (0..120).map(|row| ["a", "b", "c"][row % 3]))];
        let found = anova(&scores, &factors, &Model::parse("version", &factors).unwrap()).unwrap();
        check_assumptions(&found, &scores, times, 0.01).iter().map(|warning| warning.assumption).collect()
    }

    #[test]
    fn each_assumption_has_its_warning() {
        assert_eq!(warnings(|row, noise| (row % 3) as f64 + noise, None), []);
        assert_eq!(warnings(|_, noise| noise.exp(), None), [Assumption::Normality]);
        assert_eq!(warnings(|_, noise| noise + noise.powi(3), None), [Assumption::Normality], "heavy tails");
        assert!(warnings(|row, noise| noise * [0.5, 1.0, 1.5][row % 3], None).contains(&Assumption::EqualVariances));
        assert_eq!(warnings(|row, noise| noise + row as f64 / 60.0, None), [Assumption::NoDrift]);
        let shuffled: Vec<f64> = (0..120).map(|row| f64::from(row * 49 % 120)).collect();
        assert_eq!(warnings(|row, noise| noise + row as f64 / 60.0, Some(&shuffled)), [], "in another order");
        assert_eq!(warnings(|row, noise| noise + shuffled[row] / 60.0, Some(&shuffled)), [Assumption::NoDrift]);
    }

    #[test]
    fn of_many_runs_evenly_spaced_ones_are_checked() {
        assert_eq!(evenly_spaced(3), [0, 1, 2]);
        assert_eq!(evenly_spaced(0), []);
        let many = evenly_spaced(250_001);
        assert_eq!((many.len(), many[0], many[1], many[2]), (MAX_CHECKED, 0, 2, 5));
        assert!(many.is_sorted() && many[MAX_CHECKED - 1] >= 249_990);
        let mut random = fastrand::Rng::with_seed(3);
        let scores: Vec<f64> = (0..250_001).map(|row| random.f64() + f64::from(row) / 1e6).collect();
        let factors = [Factor::new("version", (0..scores.len()).map(|row| ["a", "b"][row % 2]))];
        let found = anova(&scores, &factors, &Model::parse("version", &factors).unwrap()).unwrap();
        let warnings = check_assumptions(&found, &scores, None, 1e-9);
        assert!(warnings.iter().any(|warning| warning.assumption == Assumption::NoDrift), "{warnings:?}");
        assert!(!warnings.iter().any(|warning| warning.assumption == Assumption::EqualVariances), "{warnings:?}");
    }

    #[test]
    fn a_warning_says_what_to_use_instead() {
        for (assumption, advice) in [
            (Assumption::Normality, "Kruskal-Wallis with Dunn"),
            (Assumption::EqualVariances, "Welch's test"),
            (Assumption::NoDrift, "`bellows campaign compare`"),
        ] {
            let text = Warning { assumption, statistic: 0.5, p: 1e-5 }.to_string();
            assert!(text.contains(advice) && text.contains("p = 1.00e-5") && !text.contains("  "), "{text}");
        }
    }

    #[test]
    fn the_variances_of_few_runs_are_not_compared() {
        // Both runs of a combination are equally far from their median but for rounding.
        let pairs: Vec<Vec<f64>> = (1..9)
            .map(|pair| vec![14_000.1 * f64::from(pair), 14_000.1 * f64::from(pair) + 0.3 * f64::from(pair)])
            .collect();
        assert_eq!(brown_forsythe(&pairs), None);
        for each in [2, 3] {
            let scores: Vec<f64> =
                (0..8 * each).map(|run| f64::from(run / each * 100) + f64::from(run * run % 7)).collect();
            let factors = [Factor::new("version", (0..8 * each).map(|run| (run / each).to_string()))];
            let found = anova(&scores, &factors, &Model::parse("version", &factors).unwrap()).unwrap();
            let rows: Vec<usize> = (0..scores.len()).collect();
            assert_eq!(by_combination(&found, &scores, &rows), Vec::<Vec<f64>>::new(), "{each} runs of each");
        }
        let text = Warning { assumption: Assumption::EqualVariances, statistic: 5e27, p: 1e-9 }.to_string();
        assert!(text.contains("F = 5.00e27,"), "{text}");
    }

    #[test]
    fn what_cannot_be_checked_gives_nothing() {
        assert_eq!(drift(&[1.0, 2.0], &[1.0, 2.0]), None);
        assert_eq!(drift(&[1.0; 9], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]), None);
        assert_eq!(drift(&[1.0, 2.0, f64::NAN, 4.0], &[1.0, 2.0, 0.0, 4.0]), Some(Drift { correlation: 1.0, p: 0.0 }));
        assert_eq!(brown_forsythe::<&[f64]>(&[]), None);
        assert_eq!(brown_forsythe(&[vec![1.0, 2.0], vec![f64::NAN]]), None);
    }
}
