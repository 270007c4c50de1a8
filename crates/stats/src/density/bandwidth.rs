//! Bandwidths of gaussian kernels, chosen from the values.

use std::f64::consts::PI;

use super::DensityError;
use crate::distribution::root;
use crate::welch::Moments;

/// Number of bins over the range of the values, for distances of pairs.
const BINS: usize = 1_000;

/// Silverman's rule of thumb (*Density Estimation for Statistics and Data Analysis*, equation 3.31): 0.9 times the smaller
/// of standard deviation and interquartile range over 1.34, times n^(-1/5). Values that are not finite are left out.
///
/// If the quartiles are equal, the standard deviation counts; if all values are equal, their size, or 1 for zeros.
///
/// # Errors
///
/// [`DensityError::TooFew`] with fewer than two values.
pub fn nrd0(values: &[f64]) -> Result<f64, DensityError> {
    let spread = Spread::of(values)?;
    let either = [spread.deviation.min(spread.quartiles / 1.34), spread.deviation, spread.first.abs(), 1.0];
    let scale = either.into_iter().find(|&scale| scale > 0.0).unwrap_or(1.0);
    Ok(0.9 * scale * spread.count.powf(-0.2))
}

/// The bandwidth of Sheather and Jones (*Journal of the Royal Statistical Society B* 53, 1991), which solves their
/// equation 12 for the width that minimises the expected squared error. Values that are not finite are left out.
///
/// # Errors
///
/// [`DensityError::TooFew`] with fewer than two values, [`DensityError::Equal`] if the equation has no solution, because
/// most values are equal.
pub fn sheather_jones(values: &[f64]) -> Result<f64, DensityError> {
    let spread = Spread::of(values)?;
    let n = spread.count;
    let scale = if spread.quartiles > 0.0 { spread.deviation.min(spread.quartiles / 1.349) } else { spread.deviation };
    if scale <= 0.0 {
        return Err(DensityError::Equal);
    }
    let distances = Distances::of(values);
    // Pilot widths for the fourth and sixth derivatives, by a normal distribution of the same scale.
    let fourth = distances.fourth(1.24 * scale * n.powf(-1.0 / 7.0));
    let sixth = -distances.sixth(1.23 * scale * n.powf(-1.0 / 9.0));
    let ratio = 1.357 * (fourth / sixth).powf(1.0 / 7.0);
    // Rises with the width.
    let excess = |width: f64| {
        let roughness = distances.fourth(ratio * width.powf(5.0 / 7.0));
        width - (1.0 / (2.0 * PI.sqrt() * n * roughness)).powf(0.2)
    };
    let most = 1.144 * scale * n.powf(-0.2);
    let steps = |factor: f64| (0..12).map(move |step| most * factor.powi(step));
    let low = steps(0.5).find(|&width| excess(width) < 0.0);
    let high = steps(2.0).find(|&width| excess(width) > 0.0);
    match (low, high) {
        (Some(low), Some(high)) if low < high => Ok(root(excess, low, high)),
        _ => Err(DensityError::Equal),
    }
}

/// How far values spread.
struct Spread {
    count: f64,
    /// The first value.
    first: f64,
    /// The standard deviation.
    deviation: f64,
    /// The range between the quartiles, which are interpolated (Hyndman and Fan's type 7).
    quartiles: f64,
}

impl Spread {
    fn of(values: &[f64]) -> Result<Spread, DensityError> {
        let mut finite: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
        let moments = Moments::of(&finite).ok_or(DensityError::TooFew(finite.len()))?;
        let first = finite[0];
        let quartiles = interpolated(&mut finite, 0.75) - interpolated(&mut finite, 0.25);
        Ok(Spread { count: moments.count, first, deviation: moments.variance.sqrt(), quartiles })
    }
}

/// The value at `part` of the way through the sorted values, between the two nearest. Reorders the values.
fn interpolated(values: &mut [f64], part: f64) -> f64 {
    let place = part * (values.len() - 1) as f64;
    let (_, low, above) = values.select_nth_unstable_by(place as usize, f64::total_cmp);
    let (low, high) = (*low, above.iter().copied().fold(f64::INFINITY, f64::min));
    if place.fract() == 0.0 { low } else { low + place.fract() * (high - low) }
}

/// The distances of all pairs of values, in bins.
struct Distances {
    /// Number of values.
    count: f64,
    bin: f64,
    /// The number of pairs at each distance in bins; a value with itself is not a pair.
    pairs: Vec<f64>,
}

impl Distances {
    fn of(values: &[f64]) -> Distances {
        let finite: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
        let low = finite.iter().copied().fold(f64::INFINITY, f64::min);
        let high = finite.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let bin = (high - low) / BINS as f64 * 1.01;
        let bins = nearest(&finite, low, bin);
        let mut pairs: Vec<f64> = (0..bins.len())
            .map(|distance| bins.iter().zip(&bins[distance..]).map(|(one, other)| one * other).sum())
            .collect();
        pairs[0] = bins.iter().map(|count| count * (count - 1.0) / 2.0).sum();
        Distances { count: finite.len() as f64, bin, pairs }
    }

    /// The estimate of the integral of the density times its fourth derivative.
    fn fourth(&self, width: f64) -> f64 {
        self.functional(width, 3.0, |square| square * (square - 6.0) + 3.0) / width.powi(5)
    }

    /// The same with the sixth derivative.
    fn sixth(&self, width: f64) -> f64 {
        self.functional(width, -15.0, |square| square * (square * (square - 15.0) + 45.0) - 15.0) / width.powi(7)
    }

    /// The mean over all pairs, and over each value with itself, of a polynomial in the square of the distance times the
    /// normal density.
    fn functional(&self, width: f64, itself: f64, polynomial: impl Fn(f64) -> f64) -> f64 {
        let terms = self.pairs.iter().enumerate().map(|(distance, pairs)| {
            let square = (distance as f64 * self.bin / width).powi(2);
            pairs * (-square / 2.0).exp() * polynomial(square)
        });
        let sum = 2.0 * terms.sum::<f64>() + self.count * itself;
        sum / (self.count * (self.count - 1.0) * (2.0 * PI).sqrt())
    }
}

/// The number of values in each bin.
fn nearest(values: &[f64], low: f64, bin: f64) -> Vec<f64> {
    let mut bins = vec![0.0; BINS];
    values.iter().for_each(|value| bins[((value - low) / bin) as usize] += 1.0);
    bins
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_or_equal_values() {
        assert_eq!(nrd0(&[1.0]), Err(DensityError::TooFew(1)));
        let near = |found: f64, scale: f64, count: f64| assert!((found - 0.9 * scale * count.powf(-0.2)).abs() < 1e-12);
        near(nrd0(&[5.0, 5.0, 5.0]).unwrap(), 5.0, 3.0);
        near(nrd0(&[0.0, 0.0]).unwrap(), 1.0, 2.0);
        near(nrd0(&[0.0, 0.0, 0.0, 0.0, 5.0]).unwrap(), 5f64.sqrt(), 5.0);
        assert_eq!(sheather_jones(&[3.0; 5]), Err(DensityError::Equal));
    }

    #[test]
    fn two_peaks_get_a_narrower_kernel() {
        let peaks: Vec<f64> = (0..400).map(|n| f64::from(n % 2 * 100) + f64::from(n * 37 % 101) / 50.0).collect();
        let (wide, narrow) = (nrd0(&peaks).unwrap(), sheather_jones(&peaks).unwrap());
        assert!(wide > 10.0 && narrow < 1.0, "{wide} {narrow}");
    }

    #[test]
    fn quartiles_are_interpolated() {
        let mut values = [5.0, 1.0, 4.0, 2.0];
        assert_eq!((interpolated(&mut values, 0.25), interpolated(&mut values, 0.75)), (1.75, 4.25));
        assert_eq!(interpolated(&mut values, 1.0), 5.0);
    }
}
