//! How many runs show an effect, and the smallest effect that a number of runs can show (Cohen, *Statistical Power
//! Analysis for the Behavioral Sciences*).
//!
//! Effects are in standard deviations of the noise of single runs. `significance` is the probability of reporting an
//! effect where there is none, such as 0.05; `power` is that of reporting one which exists, such as 0.8.
//!
//! ```
//! use bellows_stats::power::{TTest, runs_needed, smallest_effect};
//!
//! // A difference of one standard deviation, found four times of five.
//! assert_eq!(runs_needed(TTest::TwoSamples, 1.0, 0.05, 0.8)?, 17);
//! // Thirty pairs show half of one.
//! assert!((smallest_effect(TTest::Pairs, 30, 0.05, 0.8)? - 0.53).abs() < 0.01);
//! # Ok::<(), bellows_stats::power::PowerError>(())
//! ```

use thiserror::Error;

use crate::distribution::{Distribution, FRatio, NoncentralF, NoncentralT, StudentT, root};

/// Maximum number of runs that is searched.
const MAX_RUNS: u64 = 1 << 32;

/// What is compared by a t test.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TTest {
    /// Two independent samples of the same number of runs each.
    TwoSamples,
    /// The differences of pairs, of which the effect is in standard deviations.
    Pairs,
}

/// Several samples that are compared by an analysis of variance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SampleGroups {
    /// Number of samples, at least 2.
    pub count: u32,
    /// The variance of their true means (with `count - 1` in its denominator) over the variance of single runs.
    pub variance_ratio: f64,
}

/// Why a question about power has no answer.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum PowerError {
    /// The significance is no probability.
    #[error("the significance is {0}, but must lie between 0 and 1, such as 0.05")]
    Significance(f64),
    /// No test has this power.
    #[error("the power is {0}, but must lie between the significance and 1, such as 0.8")]
    Power(f64),
    /// There is no effect to be found.
    #[error("the effect is {0}; give the size of the effect to be found, above 0")]
    Effect(f64),
    /// So few runs have no noise to compare with.
    #[error("{0} runs cannot be compared; at least 2 can")]
    TooFewRuns(u64),
    /// One group has nothing to be compared with.
    #[error("{0} groups cannot be compared; at least 2 can")]
    TooFewGroups(u32),
    /// More than four billion runs are needed.
    #[error("the effect {0} is too small to be found by any number of runs that can be made")]
    TooSmall(f64),
}

/// The probability that a two-sided t test finds an effect with this number of runs: of each sample, or of pairs.
///
/// # Errors
///
/// [`PowerError`] names the argument without sense.
pub fn power(comparison: TTest, runs: u64, effect: f64, significance: f64) -> Result<f64, PowerError> {
    check_significance(significance)?;
    check_runs(runs)?;
    if !effect.is_finite() {
        return Err(PowerError::Effect(effect));
    }
    Ok(power_of_t(comparison, runs as f64, effect, significance))
}

/// The number of runs, of each sample or of pairs, with which a two-sided t test has at least this power.
///
/// # Errors
///
/// [`PowerError`] names the argument without sense.
pub fn runs_needed(comparison: TTest, effect: f64, significance: f64, power: f64) -> Result<u64, PowerError> {
    check(significance, power)?;
    check_effect(effect)?;
    least_runs(|runs| power_of_t(comparison, runs as f64, effect, significance) >= power)
        .ok_or(PowerError::TooSmall(effect))
}

/// The smallest effect, in standard deviations, that a two-sided t test of this many runs finds with this power.
///
/// # Errors
///
/// [`PowerError`] names the argument without sense.
pub fn smallest_effect(comparison: TTest, runs: u64, significance: f64, power: f64) -> Result<f64, PowerError> {
    check(significance, power)?;
    check_runs(runs)?;
    let excess = |effect: f64| power_of_t(comparison, runs as f64, effect, significance) - power;
    let high = (-40..40).map(|exponent| 2f64.powi(exponent)).find(|&effect| excess(effect) > 0.0);
    high.map(|high| root(excess, 0.0, high)).ok_or(PowerError::Power(power))
}

/// The smallest difference that a two-sided t test finds with this power, given the standard error of the difference and
/// its degrees of freedom, in the unit of the error.
///
/// # Errors
///
/// [`PowerError`] names the argument without sense.
pub fn smallest_difference(error: f64, df: f64, significance: f64, power: f64) -> Result<f64, PowerError> {
    check(significance, power)?;
    check_effect(error)?;
    if df.is_nan() || df <= 0.0 {
        return Err(PowerError::TooFewRuns(1));
    }
    let excess = |shift: f64| power_of_shift(df, shift, significance) - power;
    let high = (0..=10).map(|exponent| 2f64.powi(exponent)).find(|&shift| excess(shift) > 0.0);
    high.map(|high| error * root(excess, 0.0, high)).ok_or(PowerError::Power(power))
}

/// The probability that an analysis of variance finds that the groups differ, with this many runs of each.
///
/// # Errors
///
/// [`PowerError`] names the argument without sense.
pub fn power_of_groups(groups: SampleGroups, runs: u64, significance: f64) -> Result<f64, PowerError> {
    check_significance(significance)?;
    check_groups(groups)?;
    check_runs(runs)?;
    Ok(power_of_f(groups, runs as f64, significance))
}

/// The number of runs of each group with which an analysis of variance has at least this power.
///
/// # Errors
///
/// [`PowerError`] names the argument without sense.
pub fn runs_needed_of_groups(groups: SampleGroups, significance: f64, power: f64) -> Result<u64, PowerError> {
    check(significance, power)?;
    check_groups(groups)?;
    least_runs(|runs| power_of_f(groups, runs as f64, significance) >= power)
        .ok_or(PowerError::TooSmall(groups.variance_ratio))
}

fn power_of_t(comparison: TTest, runs: f64, effect: f64, significance: f64) -> f64 {
    let (df, shift) = match comparison {
        TTest::TwoSamples => (2.0 * (runs - 1.0), (runs / 2.0).sqrt() * effect),
        TTest::Pairs => (runs - 1.0, runs.sqrt() * effect),
    };
    power_of_shift(df, shift, significance)
}

/// The power of a two-sided t test, given the true difference over its standard error.
fn power_of_shift(df: f64, shift: f64, significance: f64) -> f64 {
    let limit = StudentT { df }.upper_quantile(significance / 2.0);
    let statistic = NoncentralT { df, shift };
    (statistic.upper_tail(limit) + statistic.lower_tail(-limit)).min(1.0)
}

fn power_of_f(groups: SampleGroups, runs: f64, significance: f64) -> f64 {
    let (numerator, count) = (f64::from(groups.count) - 1.0, f64::from(groups.count));
    let denominator = (runs - 1.0) * count;
    let limit = FRatio { numerator, denominator }.upper_quantile(significance);
    NoncentralF { numerator, denominator, shift: numerator * runs * groups.variance_ratio }.upper_tail(limit)
}

/// The least number of runs that is enough: more are never less.
fn least_runs(is_enough: impl Fn(u64) -> bool) -> Option<u64> {
    let mut high = 2;
    while !is_enough(high) {
        high *= 2;
        if high > MAX_RUNS {
            return None;
        }
    }
    let mut low = high / 2;
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if is_enough(middle) {
            high = middle;
        } else {
            low = middle;
        }
    }
    Some(high)
}

fn check(significance: f64, power: f64) -> Result<(), PowerError> {
    check_significance(significance)?;
    if power > significance && power < 1.0 { Ok(()) } else { Err(PowerError::Power(power)) }
}

fn check_significance(significance: f64) -> Result<(), PowerError> {
    let is_probability = significance > 0.0 && significance < 1.0;
    if is_probability { Ok(()) } else { Err(PowerError::Significance(significance)) }
}

fn check_runs(runs: u64) -> Result<(), PowerError> {
    if runs >= 2 { Ok(()) } else { Err(PowerError::TooFewRuns(runs)) }
}

fn check_effect(effect: f64) -> Result<(), PowerError> {
    if effect > 0.0 && effect.is_finite() { Ok(()) } else { Err(PowerError::Effect(effect)) }
}

fn check_groups(groups: SampleGroups) -> Result<(), PowerError> {
    if groups.count < 2 {
        return Err(PowerError::TooFewGroups(groups.count));
    }
    check_effect(groups.variance_ratio)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_smallest_difference_is_the_smallest_effect_of_two_samples() {
        for runs in [2, 5, 30, 1_000] {
            for significance in [0.05, 0.001] {
                let error = 3.0 * (2.0 / runs as f64).sqrt();
                let df = 2.0 * (runs as f64 - 1.0);
                let effect = smallest_effect(TTest::TwoSamples, runs, significance, 0.8).unwrap();
                let found = smallest_difference(error, df, significance, 0.8).unwrap();
                assert!((found - 3.0 * effect).abs() < 1e-9 * found, "{runs} {found} {effect}");
            }
        }
        assert_eq!(smallest_difference(0.0, 8.0, 0.05, 0.8), Err(PowerError::Effect(0.0)));
        assert_eq!(smallest_difference(1.0, 0.0, 0.05, 0.8), Err(PowerError::TooFewRuns(1)));
        assert!(smallest_difference(1.0, 1.0, 1e-9, 0.8).is_err(), "more than 1,024 standard errors");
    }

    #[test]
    fn questions_without_sense_have_errors() {
        let two = TTest::TwoSamples;
        assert_eq!(runs_needed(two, 0.0, 0.05, 0.8), Err(PowerError::Effect(0.0)));
        assert_eq!(runs_needed(two, 1.0, 5.0, 0.8), Err(PowerError::Significance(5.0)));
        assert_eq!(runs_needed(two, 1.0, 0.05, 0.05), Err(PowerError::Power(0.05)));
        assert_eq!(runs_needed(two, 1e-6, 0.05, 0.8), Err(PowerError::TooSmall(1e-6)));
        assert_eq!(smallest_effect(two, 1, 0.05, 0.8), Err(PowerError::TooFewRuns(1)));
        let groups = SampleGroups { count: 1, variance_ratio: 1.0 };
        assert_eq!(runs_needed_of_groups(groups, 0.05, 0.8), Err(PowerError::TooFewGroups(1)));
        assert_eq!(
            power(two, 9, 1.0, 0.0).unwrap_err().to_string(),
            "the significance is 0, but must lie between 0 and 1, such as 0.05"
        );
    }

    #[test]
    fn without_an_effect_the_power_is_the_significance() {
        for comparison in [TTest::TwoSamples, TTest::Pairs] {
            assert!((power(comparison, 9, 0.0, 0.03).unwrap() - 0.03).abs() < 1e-10);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(50))]

        /// Two groups by the analysis of variance are two samples by the t test; the three answers fit each other.
        #[test]
        fn answers_fit_each_other(runs in 3..60u64, significance in 0.001..0.2f64, wanted in 0.3..0.99f64) {
            let two = TTest::TwoSamples;
            let effect = smallest_effect(two, runs, significance, wanted).unwrap();
            prop_assert!((power(two, runs, effect, significance).unwrap() - wanted).abs() < 1e-10);
            let groups = SampleGroups { count: 2, variance_ratio: effect * effect / 2.0 };
            prop_assert!((power_of_groups(groups, runs, significance).unwrap() - wanted).abs() < 1e-9);
            // A little more than the effect needs these runs, and a little less one more.
            prop_assert_eq!(runs_needed(two, effect * 1.000_001, significance, wanted).unwrap(), runs);
            prop_assert_eq!(runs_needed(two, effect * 0.999_999, significance, wanted).unwrap(), runs + 1);
        }
    }
}
