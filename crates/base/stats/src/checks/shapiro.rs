//! The test of normality of Shapiro and Wilk, by Royston's approximations (*Statistics and Computing* 2, 1992; *Applied
//! Statistics* 44, 1995, algorithm R94).

use std::f64::consts::{FRAC_1_SQRT_2, PI};

use crate::distribution::{Distribution, Normal};
use crate::medians::sorted_finite;

/// Maximum number of values for which the approximation was made.
const MAX_VALUES: usize = 5_000;

/// Corrections of the two largest weights: polynomials in 1/√n.
const LARGEST: [f64; 6] = [0.0, 0.221_157, -0.147_981, -2.071_19, 4.434_685, -2.706_056];
const SECOND: [f64; 6] = [0.0, 0.042_981, -0.293_762, -1.752_461, 5.682_633, -3.582_633];

/// The distribution of ln(1 - W) for up to 11 values: polynomials in n. Its end, mean, and logarithm of the deviation.
const FEW_END: [f64; 2] = [-2.273, 0.459];
const FEW_MEAN: [f64; 4] = [0.544, -0.399_78, 0.025_054, -6.714e-4];
const FEW_DEVIATION: [f64; 4] = [1.382_2, -0.778_57, 0.062_767, -0.002_032_2];

/// The same for more values: polynomials in ln n.
const MANY_MEAN: [f64; 4] = [-1.586_1, -0.310_82, -0.083_751, 0.003_891_5];
const MANY_DEVIATION: [f64; 3] = [-0.480_3, -0.082_676, 0.003_030_2];

/// Whether values come from a normal distribution.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ShapiroWilk {
    /// The statistic W: 1 for values that lie as those of a normal distribution should, less for others.
    pub w: f64,
    /// The probability of at most this W if the distribution is normal.
    pub p: f64,
    /// Number of values that were tested: at most 5,000.
    pub values: usize,
}

/// Tests whether values come from a normal distribution. Values that are not finite are left out; of more than 5,000,
/// evenly spaced ones are tested.
///
/// `None` with fewer than three values, or if all are equal.
pub fn shapiro_wilk(values: &[f64]) -> Option<ShapiroWilk> {
    let sorted = sorted_finite(&evenly_spaced(values));
    let count = sorted.len();
    if count < 3 {
        return None;
    }
    let mean = sorted.iter().sum::<f64>() / count as f64;
    let squares: f64 = sorted.iter().map(|value| (value - mean).powi(2)).sum();
    let pairs = sorted.iter().zip(sorted.iter().rev());
    let line: f64 = weights(count).iter().zip(pairs).map(|(weight, (low, high))| weight * (high - low)).sum();
    let w = (line * line / squares).min(1.0);
    (squares > 0.0).then(|| ShapiroWilk { w, p: probability(w, count), values: count })
}

/// At most [`MAX_VALUES`] of the values.
fn evenly_spaced(values: &[f64]) -> Vec<f64> {
    let finite: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
    let kept = finite.len().min(MAX_VALUES);
    (0..kept).map(|index| finite[index * finite.len() / kept]).collect()
}

/// The weights of the larger half of the values, from the largest; those of the smaller half are their opposites.
fn weights(count: usize) -> Vec<f64> {
    if count == 3 {
        return vec![FRAC_1_SQRT_2];
    }
    let part = |index: usize| (index as f64 + 0.625) / (count as f64 + 0.25);
    // Expected values of the order statistics, nearly.
    let expected: Vec<f64> = (0..count / 2).map(|index| Normal.upper_quantile(part(index))).collect();
    let squares = 2.0 * expected.iter().map(|value| value * value).sum::<f64>();
    let root = 1.0 / (count as f64).sqrt();
    let corrected = |index: usize, polynomial: &[f64]| expected[index] / squares.sqrt() + at(polynomial, root);
    let mut weights = vec![corrected(0, &LARGEST)];
    if count > 5 {
        weights.push(corrected(1, &SECOND));
    }
    // The others share what the corrected ones leave of the unit length.
    let length = |values: &[f64]| 2.0 * values.iter().map(|value| value * value).sum::<f64>();
    let known = weights.len();
    let factor = ((squares - length(&expected[..known])) / (1.0 - length(&weights))).sqrt();
    weights.extend(expected[known..].iter().map(|value| value / factor));
    weights
}

fn probability(w: f64, count: usize) -> f64 {
    let n = count as f64;
    if count == 3 {
        return (6.0 / PI * (w.sqrt().asin() - 0.75f64.sqrt().asin())).clamp(0.0, 1.0);
    }
    let distance = (1.0 - w).ln();
    let normal = if count <= 11 {
        let end = at(&FEW_END, n);
        if distance >= end {
            return 0.0;
        }
        (-(end - distance).ln() - at(&FEW_MEAN, n)) / at(&FEW_DEVIATION, n).exp()
    } else {
        (distance - at(&MANY_MEAN, n.ln())) / at(&MANY_DEVIATION, n.ln()).exp()
    };
    Normal.upper_tail(normal)
}

/// The value of a polynomial, of which the coefficients begin with the constant.
fn at(polynomial: &[f64], x: f64) -> f64 {
    polynomial.iter().rev().fold(0.0, |value, coefficient| value * x + coefficient)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_cannot_be_tested_is_not() {
        assert_eq!(shapiro_wilk(&[1.0, 2.0, f64::NAN]), None);
        assert_eq!(shapiro_wilk(&[2.0; 9]), None);
    }

    #[test]
    fn many_values_are_thinned_out() {
        let quantiles: Vec<f64> = (0..20_000).map(|index| Normal.quantile((f64::from(index) + 0.5) / 2e4)).collect();
        let found = shapiro_wilk(&quantiles).unwrap();
        assert!(found.values == 5_000 && found.w > 0.999 && found.p > 0.9, "{found:?}");
    }

    proptest! {
        /// The weights have unit length and fall, and the statistic depends neither on place nor on scale.
        #[test]
        fn the_statistic_is_free_of_place_and_scale(
            values in proptest::collection::vec(-5.0..5f64, 3..60),
            place in -10.0..10f64,
            scale in 0.1..10f64,
        ) {
            let weights = weights(values.len());
            prop_assert!((2.0 * weights.iter().map(|weight| weight * weight).sum::<f64>() - 1.0).abs() < 1e-12);
            prop_assert!(weights.is_sorted_by(|one, other| one > other));
            let moved: Vec<f64> = values.iter().map(|value| place - scale * value).collect();
            let (one, other) = (shapiro_wilk(&values).unwrap(), shapiro_wilk(&moved).unwrap());
            prop_assert!((one.w - other.w).abs() < 1e-9 && (0.0..=1.0).contains(&one.p));
        }
    }
}
