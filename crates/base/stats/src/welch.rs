//! Welch's t test (*Biometrika* 34, 1947): whether two samples have the same mean, whatever their variances.

use crate::distribution::{Distribution, StudentT};

/// How the means of two samples differ.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Welch {
    /// The first sample's mean minus the second's, in the unit of the samples.
    pub difference: f64,
    /// Lower end of the confidence interval of the difference.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
    /// The difference in standard errors.
    pub t: f64,
    /// Degrees of freedom by Satterthwaite's approximation.
    pub df: f64,
    /// The probability that samples with the same mean differ at least as much, in either direction.
    pub p: f64,
}

/// Compares the means of two samples, with an interval of this confidence. Values that are not finite are left out.
///
/// `None` if a sample has fewer than two values, if neither sample varies, or if the confidence is not between 0 and 1.
/// The samples should come from distributions that are not too skewed, or have some 30 values each; otherwise
/// [`rank_sum`](crate::rank_sum) and [`bootstrap_ratio`](crate::bootstrap_ratio) are the better choice.
pub fn welch(ones: &[f64], others: &[f64], confidence: f64) -> Option<Welch> {
    let (one, other) = (Moments::of(ones)?, Moments::of(others)?);
    let [one_error, other_error] = [&one, &other].map(|sample| sample.variance / sample.count);
    let error = (one_error + other_error).sqrt();
    if !(error > 0.0 && confidence > 0.0 && confidence < 1.0) {
        return None;
    }
    let df = error.powi(4) / (one_error.powi(2) / (one.count - 1.0) + other_error.powi(2) / (other.count - 1.0));
    let difference = one.mean - other.mean;
    let (t, student) = (difference / error, StudentT { df });
    let half = error * student.upper_quantile((1.0 - confidence) / 2.0);
    Some(Welch { difference, low: difference - half, high: difference + half, t, df, p: student.two_sided(t) })
}

/// Number, mean and variance of a sample.
pub(crate) struct Moments {
    pub(crate) count: f64,
    pub(crate) mean: f64,
    /// The unbiased estimate.
    pub(crate) variance: f64,
}

impl Moments {
    /// Those of the finite values; `None` if there are fewer than two.
    pub(crate) fn of(samples: &[f64]) -> Option<Moments> {
        let finite = || samples.iter().filter(|sample| sample.is_finite());
        let count = finite().count() as f64;
        let mean = finite().sum::<f64>() / count;
        let squares: f64 = finite().map(|sample| (sample - mean).powi(2)).sum();
        (count >= 2.0).then(|| Moments { count, mean, variance: squares / (count - 1.0) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_cannot_be_compared_is_not() {
        assert_eq!(welch(&[1.0], &[1.0, 2.0], 0.95), None);
        assert_eq!(welch(&[1.0, 1.0], &[2.0, 2.0], 0.95), None, "no variance");
        assert_eq!(welch(&[1.0, f64::NAN], &[2.0, 3.0], 0.95), None, "one value is missing");
        assert_eq!(welch(&[1.0, 2.0], &[2.0, 3.0], 1.0), None);
    }

    proptest! {
        /// The interval ends where the test of a shifted sample has the probability of the error.
        #[test]
        fn the_interval_inverts_the_test(
            ones in proptest::collection::vec(-9.0..9f64, 2..20),
            others in proptest::collection::vec(-9.0..9f64, 2..20),
            confidence in 0.5..0.999f64,
        ) {
            let Some(found) = welch(&ones, &others, confidence) else { return Ok(()) };
            for end in [found.low, found.high] {
                let shifted: Vec<f64> = ones.iter().map(|one| one - end).collect();
                let p = welch(&shifted, &others, confidence).unwrap().p;
                prop_assert!((p - (1.0 - confidence)).abs() < 1e-8, "{p}");
            }
            let back = welch(&others, &ones, confidence).unwrap();
            prop_assert_eq!((back.difference, back.low, back.p), (-found.difference, -found.high, found.p));
        }
    }
}
