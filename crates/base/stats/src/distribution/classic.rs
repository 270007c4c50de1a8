//! The distributions of textbooks (Johnson, Kotz and Balakrishnan, *Continuous Univariate Distributions*).

use std::f64::consts::{PI, SQRT_2};

use statrs::function::beta::checked_beta_reg;
use statrs::function::gamma::{checked_gamma_lr, checked_gamma_ur};

use super::Distribution;

/// The standard normal distribution.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Normal;

impl Normal {
    /// The density at `x`.
    pub fn density(self, x: f64) -> f64 {
        (-x * x / 2.0).exp() / (2.0 * PI).sqrt()
    }
}

impl Distribution for Normal {
    fn lower_tail(&self, x: f64) -> f64 {
        libm::erfc(-x / SQRT_2) / 2.0
    }

    fn upper_tail(&self, x: f64) -> f64 {
        libm::erfc(x / SQRT_2) / 2.0
    }

    fn is_nonnegative(&self) -> bool {
        false
    }
}

/// Student's t distribution.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StudentT {
    /// Degrees of freedom, above 0; infinity gives the normal distribution.
    pub df: f64,
}

impl StudentT {
    /// The probability that the distance of X from 0 exceeds that of `t`.
    pub fn two_sided(&self, t: f64) -> f64 {
        if self.df == f64::INFINITY {
            return 2.0 * Normal.upper_tail(t.abs());
        }
        let square = t * t;
        // The share that is not close to 1, which would lose its digits.
        if square < 1.0 {
            return 1.0 - incomplete_beta(0.5, self.df / 2.0, square / (self.df + square));
        }
        incomplete_beta(self.df / 2.0, 0.5, share(self.df, square))
    }
}

impl Distribution for StudentT {
    fn lower_tail(&self, x: f64) -> f64 {
        self.upper_tail(-x)
    }

    fn upper_tail(&self, x: f64) -> f64 {
        let outside = self.two_sided(x) / 2.0;
        if x < 0.0 { 1.0 - outside } else { outside }
    }

    fn is_nonnegative(&self) -> bool {
        false
    }
}

/// The F distribution: the ratio of two mean squares.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FRatio {
    /// Degrees of freedom of the numerator, above 0.
    pub numerator: f64,
    /// Degrees of freedom of the denominator, above 0.
    pub denominator: f64,
}

impl FRatio {
    /// A tail from the side on which its share of the beta distribution is not close to 1, which would lose its digits.
    fn tail(self, x: f64, is_upper: bool) -> f64 {
        let above = self.numerator * if x < 0.0 { 0.0 } else { x };
        let (tail, is_tail_upper) = if above < self.numerator {
            (incomplete_beta(self.numerator / 2.0, self.denominator / 2.0, share(above, self.denominator)), false)
        } else {
            (incomplete_beta(self.denominator / 2.0, self.numerator / 2.0, share(self.denominator, above)), true)
        };
        if is_tail_upper == is_upper { tail } else { 1.0 - tail }
    }
}

impl Distribution for FRatio {
    fn lower_tail(&self, x: f64) -> f64 {
        self.tail(x, false)
    }

    fn upper_tail(&self, x: f64) -> f64 {
        self.tail(x, true)
    }

    fn is_nonnegative(&self) -> bool {
        true
    }
}

/// The chi-square distribution.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChiSquare {
    /// Degrees of freedom, above 0.
    pub df: f64,
}

impl Distribution for ChiSquare {
    fn lower_tail(&self, x: f64) -> f64 {
        let (shape, half) = (self.df / 2.0, x / 2.0);
        if x <= 0.0 {
            return 0.0;
        }
        // The first terms of the series, where `statrs` takes the value for 0.
        if half < 1e-9 {
            return (shape * half.ln() - libm::lgamma(shape + 1.0)).exp() * (1.0 - half * shape / (shape + 1.0));
        }
        checked_gamma_lr(shape, half).unwrap_or(f64::NAN)
    }

    fn upper_tail(&self, x: f64) -> f64 {
        if x <= 0.0 { 1.0 } else { checked_gamma_ur(self.df / 2.0, x / 2.0).unwrap_or(f64::NAN) }
    }

    fn is_nonnegative(&self) -> bool {
        true
    }
}

/// The regularized incomplete beta function; not a number where it is undefined.
pub(super) fn incomplete_beta(a: f64, b: f64, x: f64) -> f64 {
    checked_beta_reg(a, b, x).unwrap_or(f64::NAN)
}

/// The share of `one`, which is finite, in the sum of both.
fn share(one: f64, other: f64) -> f64 {
    one / (one + other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn tails_are_those_of_the_tables() {
        // Abramowitz and Stegun, tables 26.1 and 26.2.
        for (distance, tail) in [
            (0.0, 0.5),
            (1.0, 0.158_655_253_9),
            (2.0, 0.022_750_131_9),
            (3.0, 1.349_898_0e-3),
            (5.0, 2.866_515_7e-7),
            (10.0, 7.619_853_0e-24),
        ] {
            let found = Normal.upper_tail(distance);
            assert!((found / tail - 1.0).abs() < 1e-6, "{distance}: {found}");
        }
    }

    #[test]
    fn closed_forms_hold() {
        for x in [1e-9f64, 0.3, 1.0, 7.5, 1e3, 1e9] {
            // Cauchy's distribution, far out without cancellation.
            let cauchy = (1.0 / x).atan() / PI;
            assert!((StudentT { df: 1.0 }.upper_tail(x) / cauchy - 1.0).abs() < 1e-13, "{x}");
            let squared = FRatio { numerator: 1.0, denominator: 7.0 }.upper_tail(x * x);
            assert!((StudentT { df: 7.0 }.two_sided(x) / squared - 1.0).abs() < 1e-12, "{x}");
            let exponential = (-x / 2.0).exp();
            assert!((ChiSquare { df: 2.0 }.upper_tail(x) - exponential).abs() <= 1e-12 * exponential, "{x}");
        }
        assert_eq!(StudentT { df: f64::INFINITY }.upper_tail(-1.5), Normal.upper_tail(-1.5));
    }

    #[test]
    fn the_ends_are_those_of_the_support() {
        let ratio = FRatio { numerator: 3.0, denominator: 5.0 };
        assert_eq!((ratio.upper_tail(0.0), ratio.upper_tail(f64::INFINITY), ratio.lower_tail(-1.0)), (1.0, 0.0, 0.0));
        assert_eq!(
            (ratio.lower_tail(f64::INFINITY), ratio.quantile(0.0), ratio.quantile(1.0)),
            (1.0, 0.0, f64::INFINITY)
        );
        assert_eq!((Normal.quantile(0.0), Normal.upper_quantile(0.0)), (f64::NEG_INFINITY, f64::INFINITY));
        assert!(Normal.quantile(1.5).is_nan() && Normal.quantile(-0.1).is_nan() && Normal.quantile(f64::NAN).is_nan());
        assert!(ratio.upper_tail(f64::NAN).is_nan() && StudentT { df: 3.0 }.upper_tail(f64::NAN).is_nan());
    }

    proptest! {
        /// Quantiles invert both tails, over all magnitudes of probability.
        #[test]
        fn quantiles_invert_tails(
            exponent in prop_oneof![-290.0..-0.31f64, -3.0..-0.31f64],
            df in 0.5..5e3f64,
            other in 0.5..5e3f64,
        ) {
            let part = 10f64.powf(exponent);
            let near = |found: f64| (found / part - 1.0).abs() < 1e-9;
            prop_assert!(near(Normal.upper_tail(Normal.upper_quantile(part))));
            prop_assert!(near(Normal.lower_tail(Normal.quantile(part))));
            let chi = ChiSquare { df };
            prop_assert!(near(chi.upper_tail(chi.upper_quantile(part))));
            // Far out the quantiles of few degrees of freedom exceed what a `f64` holds.
            let part = part.max(1e-30);
            let near = |found: f64| (found / part - 1.0).abs() < 1e-9;
            let student = StudentT { df: df.max(2.0) };
            let ratio = FRatio { numerator: df, denominator: other.max(2.0) };
            prop_assert!(near(student.upper_tail(student.upper_quantile(part))));
            prop_assert!(near(ratio.upper_tail(ratio.upper_quantile(part))));
        }
    }
}
