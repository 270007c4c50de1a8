//! Student's t test of pairs, and of the mean over several sets of pairs.

use crate::distribution::{Distribution, StudentT};
use crate::welch::Moments;

/// What the differences of pairs say of their mean.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Paired {
    /// The mean of the differences, in their unit.
    pub difference: f64,
    /// Lower end of its confidence interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
    /// The standard error of the mean.
    pub error: f64,
    /// The mean in standard errors.
    pub t: f64,
    /// Degrees of freedom.
    pub df: f64,
    /// The probability that differences with a mean of 0 are as far from it, in either direction.
    pub p: f64,
}

impl Paired {
    fn of(difference: f64, error: f64, df: f64, confidence: f64) -> Option<Paired> {
        if !(error > 0.0 && confidence > 0.0 && confidence < 1.0) {
            return None;
        }
        let (t, student) = (difference / error, StudentT { df });
        let half = error * student.upper_quantile((1.0 - confidence) / 2.0);
        Some(Paired {
            difference,
            low: difference - half,
            high: difference + half,
            error,
            t,
            df,
            p: student.two_sided(t),
        })
    }

    /// The probability of a mean so close to 0 if the true mean is at least `margin` away, by two one-sided tests
    /// (Schuirmann, *Journal of Pharmacokinetics and Biopharmaceutics* 15, 1987). A small one shows that the true mean
    /// is within the margin, which is in the unit of the differences and above 0.
    pub fn p_within(&self, margin: f64) -> f64 {
        StudentT { df: self.df }.upper_tail((margin - self.difference.abs()) / self.error)
    }
}

/// Tests whether the mean of the differences of pairs is 0, with an interval of this confidence. Values that are not
/// finite are left out.
///
/// `None` if there are fewer than two differences, if all are equal, or if the confidence is not between 0 and 1. With
/// few pairs and skewed differences, compare [`signed_rank`](crate::signed_rank).
pub fn paired(differences: &[f64], confidence: f64) -> Option<Paired> {
    let Moments { count, mean, variance } = Moments::of(differences)?;
    Paired::of(mean, (variance / count).sqrt(), count - 1.0, confidence)
}

/// The same for several sets of pairs together: tests whether the mean of their means is 0. Each set counts as much as
/// the others, however many pairs it has, and may have a variance of its own (Satterthwaite's degrees of freedom).
///
/// `None` without a set, if one of them has fewer than two differences, or if none varies.
pub fn paired_in_sets(sets: &[&[f64]], confidence: f64) -> Option<Paired> {
    let moments: Vec<Moments> = sets.iter().map(|set| Moments::of(set)).collect::<Option<_>>()?;
    let weight = 1.0 / moments.len() as f64;
    let squares = moments.iter().map(|set| (weight * weight * set.variance / set.count, set.count - 1.0));
    let (sum, spread) =
        squares.fold((0.0, 0.0), |(sum, spread), (square, df)| (sum + square, spread + square * square / df));
    let difference = weight * moments.iter().map(|set| set.mean).sum::<f64>();
    Paired::of(difference, sum.sqrt(), sum * sum / spread, confidence)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_cannot_be_tested_is_not() {
        assert_eq!(paired(&[1.0], 0.95), None);
        assert_eq!(paired(&[1.0, f64::NAN], 0.95), None);
        assert_eq!(paired(&[2.0, 2.0, 2.0], 0.95), None, "no scatter");
        assert_eq!(paired(&[2.0, 1.0], 1.0), None);
        assert_eq!(paired_in_sets(&[], 0.95), None);
        assert_eq!(paired_in_sets(&[&[1.0, 2.0], &[1.0]], 0.95), None);
    }

    /// R's `t.test(extra ~ group, sleep, paired = TRUE)`.
    #[test]
    fn the_example_of_student() {
        let differences = [-1.2, -2.4, -1.3, -1.3, 0.0, -1.0, -1.8, -0.8, -4.6, -1.4];
        let found = paired(&differences, 0.95).unwrap();
        let near = |found: f64, expected: f64| assert!((found - expected).abs() < 1e-4, "{found} {expected}");
        near(found.t, -4.0621);
        near(found.p, 0.002_833);
        near(found.low, -2.4599);
        near(found.high, -0.7001);
    }

    proptest! {
        /// One set is a set, and sets with the same scatter are as precise as all their pairs together.
        #[test]
        fn sets_are_one_set_if_they_are_alike(values in proptest::collection::vec(-9.0..9f64, 3..20)) {
            let Some(alone) = paired(&values, 0.9) else { return Ok(()) };
            let same = paired_in_sets(&[&values], 0.9).unwrap();
            prop_assert!((alone.p - same.p).abs() < 1e-12 && (alone.low - same.low).abs() < 1e-9);
            let both = paired_in_sets(&[&values, &values], 0.9).unwrap();
            prop_assert!((both.error - alone.error / 2f64.sqrt()).abs() < 1e-9 * alone.error);
            prop_assert!((both.df - 2.0 * alone.df).abs() < 1e-6);
        }

        /// A mean is shown to be within a margin if an interval of twice the error is.
        #[test]
        fn a_mean_is_within_a_margin_if_its_interval_is(
            values in proptest::collection::vec(-9.0..9f64, 3..20),
            margin in 0.1..9f64,
        ) {
            let Some(found) = paired(&values, 0.9) else { return Ok(()) };
            let is_within = found.low > -margin && found.high < margin;
            prop_assert_eq!(found.p_within(margin) < 0.05, is_within);
        }
    }
}
