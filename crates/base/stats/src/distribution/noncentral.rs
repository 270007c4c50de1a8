//! Noncentral distributions: those of test statistics where there is an effect, for power.

use super::classic::incomplete_beta;
use super::scale::LogScale;
use super::{Distribution, Normal};

/// The noncentral t distribution: that of (Z + shift)/S, for a standard normal Z and S² = χ²/df.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NoncentralT {
    /// Degrees of freedom, above 0 and finite.
    pub df: f64,
    /// The noncentrality.
    pub shift: f64,
}

impl Distribution for NoncentralT {
    fn lower_tail(&self, x: f64) -> f64 {
        NoncentralT { df: self.df, shift: -self.shift }.upper_tail(-x)
    }

    /// The mean of the tail of Z over S.
    fn upper_tail(&self, x: f64) -> f64 {
        let (scale, shift) = (LogScale::new(self.df), self.shift);
        // A large noncentrality makes the tail of Z change within a small part of the scale.
        let step = scale.step(0.1 / (1.0 + shift.abs() / 4.0));
        let sum = self.df + x * x;
        // Where the integrand has its maximum, if it is in the tail of Z.
        let peak = (shift * x + ((shift * x).powi(2) + 4.0 * self.df * sum).sqrt()) / (2.0 * sum);
        let start = if peak * x > shift { (peak.ln() / step).round() as i64 } else { 0 };
        scale.mean(step, 0.0, start, |index| Normal.upper_tail(x * (step * index as f64).exp() - shift)).min(1.0)
    }

    fn is_nonnegative(&self) -> bool {
        false
    }
}

/// The noncentral F distribution: the mean of central ones over a Poisson variable (Johnson, Kotz and Balakrishnan,
/// *Continuous Univariate Distributions*, chapter 30).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NoncentralF {
    /// Degrees of freedom of the numerator, above 0.
    pub numerator: f64,
    /// Degrees of freedom of the denominator, above 0.
    pub denominator: f64,
    /// The noncentrality, at least 0.
    pub shift: f64,
}

impl NoncentralF {
    fn over_poisson(&self, tail: impl Fn(f64) -> f64) -> f64 {
        let mean = self.shift / 2.0;
        let weight = |count: f64| match mean {
            0.0 => f64::from(u8::from(count == 0.0)),
            _ => (count * mean.ln() - mean - libm::lgamma(count + 1.0)).exp(),
        };
        // Twelve standard deviations, and some for the skewness of small means.
        let reach = 12.0 * mean.sqrt() + 40.0;
        let (first, last) = ((mean - reach).max(0.0).floor() as u64, (mean + reach).ceil() as u64);
        (first..=last).map(|count| count as f64).map(|count| weight(count) * tail(count)).sum::<f64>().min(1.0)
    }

    /// The share of the numerator in the sum of squares.
    fn share(&self, x: f64) -> f64 {
        let above = self.numerator * x.max(0.0);
        if above == f64::INFINITY { 1.0 } else { above / (above + self.denominator) }
    }
}

impl Distribution for NoncentralF {
    fn lower_tail(&self, x: f64) -> f64 {
        let share = self.share(x);
        self.over_poisson(|count| incomplete_beta(self.numerator / 2.0 + count, self.denominator / 2.0, share))
    }

    fn upper_tail(&self, x: f64) -> f64 {
        let share = 1.0 - self.share(x);
        self.over_poisson(|count| incomplete_beta(self.denominator / 2.0, self.numerator / 2.0 + count, share))
    }

    fn is_nonnegative(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::distribution::{FRatio, StudentT};
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100))]

        #[test]
        fn without_a_shift_they_are_the_central_ones(df in 1.0..500f64, other in 1.0..500f64, x in 0.0..20f64) {
            let near = |one: f64, two: f64| (one - two).abs() < 1e-10;
            let (t, central) = (NoncentralT { df, shift: 0.0 }, StudentT { df });
            prop_assert!(near(t.upper_tail(x), central.upper_tail(x)));
            prop_assert!(near(t.lower_tail(-x), central.lower_tail(-x)));
            let f = NoncentralF { numerator: df, denominator: other, shift: 0.0 };
            let central = FRatio { numerator: df, denominator: other };
            prop_assert!(near(f.upper_tail(x), central.upper_tail(x)));
        }

        /// The square of a noncentral t is a noncentral F, and tails sum to 1.
        #[test]
        fn the_square_of_t_is_f(df in 1.0..500f64, shift in 0.0..8f64, x in 0.01..10f64) {
            let t = NoncentralT { df, shift };
            let f = NoncentralF { numerator: 1.0, denominator: df, shift: shift * shift };
            prop_assert!((t.upper_tail(x) + t.lower_tail(x) - 1.0).abs() < 1e-10);
            prop_assert!((f.upper_tail(x * x) + f.lower_tail(x * x) - 1.0).abs() < 1e-10);
            prop_assert!((t.upper_tail(x) + t.lower_tail(-x) - f.upper_tail(x * x)).abs() < 1e-10);
        }
    }
}
