//! The studentized range (Copenhaver and Holland, *Journal of Statistical Computation and Simulation* 30, 1988): the
//! range of several independent means, divided by an estimate of their standard deviation.
//!
//! As in the paper, the range of k normal variables is integrated over its lower end, and the result over the scale of
//! the estimate. Both integrals are sums of positive terms for either tail: the upper tail integrates the difference of
//! Q(z)^(k-1) and (Q(z) - Q(z+w))^(k-1), Q being the upper tail of the normal distribution, so it keeps its digits
//! however small it is.

use std::cell::RefCell;
use std::collections::HashMap;

use super::scale::LogScale;
use super::{Distribution, Normal};

/// The distribution of the studentized range.
///
/// The probabilities of the range, which all values with the same number of means share, are kept: many comparisons of
/// one analysis cost little more than the first.
pub struct StudentizedRange {
    means: u32,
    df: f64,
    scale: LogScale,
    /// Distance of the points in the logarithm of the scale.
    step: f64,
    /// Tails of the range at the exponentials of multiples of `step`.
    lower: RefCell<HashMap<i64, f64>>,
    upper: RefCell<HashMap<i64, f64>>,
}

impl StudentizedRange {
    /// The range of `means` means, at least 2, of which the standard deviation is estimated with `df` degrees of
    /// freedom, above 0; infinity if it is known.
    ///
    /// # Panics
    ///
    /// If there are fewer than two means, or `df` is not above 0.
    pub fn new(means: u32, df: f64) -> StudentizedRange {
        assert!(means >= 2 && df > 0.0, "a studentized range of {means} means with {df} degrees of freedom");
        let scale = LogScale::new(df);
        // The distribution of the range of more means is narrower.
        let step = scale.step(if means <= 50 { 0.1 } else { 0.05 });
        StudentizedRange { means, df, scale, step, lower: RefCell::default(), upper: RefCell::default() }
    }

    fn over_the_scale(&self, q: f64, peak: f64, kept: &RefCell<HashMap<i64, f64>>, tail: fn(f64, u32) -> f64) -> f64 {
        let (shift, step, mut kept) = (q.ln(), self.step, kept.borrow_mut());
        let start = ((peak + shift) / step).round() as i64;
        let mut value = |index| *kept.entry(index).or_insert_with(|| tail((step * index as f64).exp(), self.means));
        self.scale.mean(step, shift, start, &mut value).min(1.0)
    }
}

impl Distribution for StudentizedRange {
    fn lower_tail(&self, q: f64) -> f64 {
        if q.is_nan() || q <= 0.0 || q == f64::INFINITY {
            return if q.is_nan() { q } else { f64::from(u8::from(q > 0.0)) };
        }
        if self.df == f64::INFINITY {
            return range_lower(q, self.means);
        }
        self.over_the_scale(q, 0.0, &self.lower, range_lower)
    }

    fn upper_tail(&self, q: f64) -> f64 {
        if q.is_nan() || q <= 0.0 || q == f64::INFINITY {
            return if q.is_nan() { q } else { f64::from(u8::from(q <= 0.0)) };
        }
        if self.df == f64::INFINITY {
            return range_upper(q, self.means);
        }
        // The integrand falls with exp(-q² s²/4) far out, and has its maximum here.
        let peak = -(q * q / (2.0 * self.df)).ln_1p() / 2.0;
        self.over_the_scale(q, peak, &self.upper, range_upper)
    }

    fn is_nonnegative(&self) -> bool {
        true
    }
}

/// The probability that the range of normal variables is at most `w`.
fn range_lower(w: f64, variables: u32) -> f64 {
    let others = f64::from(variables - 1);
    // The other variables leave the lower end where the smallest of them is likely, if the range allows it.
    over_the_lower_end(-(w / 2.0).min(3.0), variables, |z| {
        let inside = match z {
            _ if z > 0.0 => Normal.upper_tail(z) - Normal.upper_tail(z + w),
            _ if z + w < 0.0 => Normal.lower_tail(z + w) - Normal.lower_tail(z),
            _ => 1.0 - Normal.lower_tail(z) - Normal.upper_tail(z + w),
        };
        inside.max(0.0).powf(others)
    })
}

/// The probability that the range of normal variables exceeds `w`.
fn range_upper(w: f64, variables: u32) -> f64 {
    let others = f64::from(variables - 1);
    // The integrand falls like exp(-d²) with the distance d from -w/2, or like the normal density where w is small.
    over_the_lower_end(-w / 2.0, variables, |z| {
        let above = Normal.upper_tail(z);
        let share = (Normal.upper_tail(z + w) / above).min(1.0);
        above.powf(others) * -(others * (-share).ln_1p()).exp_m1()
    })
}

/// The integral of the density of the smallest variable, times what the others then do, around `middle`.
fn over_the_lower_end(middle: f64, variables: u32, others: impl Fn(f64) -> f64) -> f64 {
    let (reach, points) = (9.0, if variables <= 50 { 54 } else { 90 });
    let step = reach / f64::from(points);
    let ends = (-points..=points).map(|index| middle + f64::from(index) * step);
    let sum: f64 = ends.map(|z| Normal.density(z) * others(z)).sum();
    (f64::from(variables) * step * sum).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::distribution::StudentT;
    use proptest::prelude::*;
    use std::f64::consts::SQRT_2;

    #[test]
    fn the_far_tail_is_not_zero() {
        let far = StudentizedRange::new(2, 2.0).upper_tail(1e4);
        assert!((far / 1.999_999_94e-8 - 1.0).abs() < 1e-9, "{far}");
        for df in [1.0, 5.0, 30.0, 2_098.0, 1e6] {
            for q in [1e-3, 0.5, 3.0, 20.0, 45.0] {
                let (found, t) = (StudentizedRange::new(2, df).upper_tail(q), StudentT { df }.two_sided(q / SQRT_2));
                assert!((found / t - 1.0).abs() < 1e-9 || t < 1e-200, "{df} {q}: {found} {t}");
            }
        }
    }

    #[test]
    fn published_values() {
        for (q, part) in [
            (1.0, 0.488_915_9),
            (2.0, 0.783_562_8),
            (3.0, 0.912_640_7),
            (4.0, 0.963_257_4),
            (5.0, 0.983_358_6),
            (6.0, 0.991_851_0),
            (7.0, 0.995_714_1),
            (8.0, 0.997_601_1),
            (9.0, 0.998_583_8),
            (10.0, 0.999_124_9),
        ] {
            let found = StudentizedRange::new(2, 5.0).lower_tail(q);
            assert!((found - part).abs() < 1e-7, "{q}: {found}");
        }
        for (means, df, part, q) in [
            (2, 11.0, 0.95, 3.112_663),
            (10, 2_090.0, 0.95, 4.478_99),
            (10, 2_090.0, 0.99, 5.164_69),
            (2, 2_098.0, 0.99, 3.646_09),
        ] {
            let found = StudentizedRange::new(means, df).quantile(part);
            assert!((found - q).abs() < 2e-5, "{means} {df} {part}: {found}");
        }
        // R's manual has 6.079637, which is less by its tolerance; the quantile of t is 4.302653.
        assert!((StudentizedRange::new(2, 2.0).quantile(0.95) / SQRT_2 - 4.302_653).abs() < 1e-6);
    }

    #[test]
    fn the_ends_are_those_of_the_support() {
        let range = StudentizedRange::new(3, 4.0);
        assert_eq!((range.upper_tail(0.0), range.upper_tail(f64::INFINITY)), (1.0, 0.0));
        assert_eq!((range.lower_tail(-1.0), range.lower_tail(f64::INFINITY)), (0.0, 1.0));
        assert!(range.lower_tail(f64::NAN).is_nan() && range.upper_tail(f64::NAN).is_nan());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// The tails, which are computed apart, sum to 1, and the quantiles invert them.
        #[test]
        fn tails_and_quantiles_agree(
            means in 2..400u32,
            df in 1.0..3_000f64,
            q in 0.1..12f64,
            exponent in -12.0..-0.1f64,
        ) {
            let range = StudentizedRange::new(means, df);
            prop_assert!((range.lower_tail(q) + range.upper_tail(q) - 1.0).abs() < 1e-11);
            let part = 10f64.powf(exponent);
            prop_assert!((range.upper_tail(range.upper_quantile(part)) / part - 1.0).abs() < 1e-10);
            prop_assert!((range.lower_tail(range.quantile(part)) / part - 1.0).abs() < 1e-10);
        }
    }
}
