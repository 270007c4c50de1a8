//! Bandwidths of gaussian kernels, chosen from the values.

use std::f64::consts::PI;

use super::DensityError;
use crate::distribution::root;
use crate::medians::sorted_finite;
use crate::welch::Moments;

/// Bins per bandwidth, about, for the distances of pairs: an error of two ten-thousandths of the bandwidth.
const BINS: f64 = 40.0;

/// Maximum number of bins within reach of a kernel.
const MAX_BINS: f64 = 1e6;

/// Distance in bandwidths from which the derivatives of the kernel are negligible.
const REACH: f64 = 8.0;

/// Silverman's rule of thumb (*Density Estimation for Statistics and Data Analysis*, equation 3.31): 0.9 times the
/// smaller of standard deviation and interquartile range over 1.34, times n^(-1/5). Values that are not finite are left
/// out.
///
/// If the quartiles are equal, the standard deviation counts; if all values are equal, their size, or 1 for zeros.
///
/// # Errors
///
/// [`DensityError::TooFew`] with fewer than two values.
pub fn nrd0(values: &[f64]) -> Result<f64, DensityError> {
    let sorted = sorted_finite(values);
    let spread = Spread::of(&sorted)?;
    let either = [spread.deviation.min(spread.quartiles / 1.34), spread.deviation, sorted[0].abs(), 1.0];
    let scale = either.into_iter().find(|&scale| scale > 0.0).unwrap_or(1.0);
    Ok(0.9 * scale * spread.count.powf(-0.2))
}

/// The bandwidth of Sheather and Jones (*Journal of the Royal Statistical Society B* 53, 1991), which solves their
/// equation 12 for the width that minimises the expected squared error. Values that are not finite are left out.
///
/// # Errors
///
/// [`DensityError::TooFew`] with fewer than two values, [`DensityError::Equal`] if the equation has no solution,
/// because most values are equal.
pub fn sheather_jones(values: &[f64]) -> Result<f64, DensityError> {
    let sorted = sorted_finite(values);
    let spread = Spread::of(&sorted)?;
    let scale = match spread.deviation.min(spread.quartiles / 1.349) {
        0.0 => spread.deviation,
        scale => scale,
    };
    if scale <= 0.0 {
        return Err(DensityError::Equal);
    }
    let mut bin = scale * spread.count.powf(-0.2) / BINS;
    loop {
        let width = solve(&sorted, scale, bin)?;
        // Several peaks that are much narrower than all values together need narrower bins.
        let is_resolved = bin <= width / BINS * 2.0 || REACH * scale > bin * MAX_BINS;
        if is_resolved {
            return Ok(width);
        }
        bin = width / BINS;
    }
}

/// The bandwidth by the distances of pairs in bins of this width.
fn solve(sorted: &[f64], scale: f64, bin: f64) -> Result<f64, DensityError> {
    let n = sorted.len() as f64;
    // Pilot widths for the fourth and sixth derivatives, by a normal distribution of the same scale.
    let [pilot, sixth_pilot] = [1.24 * scale * n.powf(-1.0 / 7.0), 1.23 * scale * n.powf(-1.0 / 9.0)];
    let distances = Distances::of(sorted, bin, (REACH * pilot.max(sixth_pilot) / bin).ceil() as usize);
    let ratio = 1.357 * (distances.fourth(pilot) / -distances.sixth(sixth_pilot)).powf(1.0 / 7.0);
    // Rises with the width.
    let excess = |width: f64| {
        let roughness = distances.fourth(ratio * width.powf(5.0 / 7.0));
        width - (1.0 / (2.0 * PI.sqrt() * n * roughness)).powf(0.2)
    };
    let most = 1.144 * scale * n.powf(-0.2);
    let steps = |factor: f64| (0..24).map(move |step| most * factor.powi(step));
    let low = steps(0.5).find(|&width| excess(width) < 0.0);
    let high = steps(2.0).take(3).find(|&width| excess(width) > 0.0);
    match (low, high) {
        (Some(low), Some(high)) => Ok(root(excess, low, high)),
        _ => Err(DensityError::Equal),
    }
}

/// How far values spread.
struct Spread {
    count: f64,
    /// The standard deviation.
    deviation: f64,
    /// The range between the quartiles, which are interpolated (Hyndman and Fan's type 7).
    quartiles: f64,
}

impl Spread {
    fn of(sorted: &[f64]) -> Result<Spread, DensityError> {
        let moments = Moments::of(sorted).ok_or(DensityError::TooFew(sorted.len()))?;
        let quartiles = interpolated(sorted, 0.75) - interpolated(sorted, 0.25);
        Ok(Spread { count: moments.count, deviation: moments.variance.sqrt(), quartiles })
    }
}

/// The value at `part` of the way through the sorted values, between the two nearest.
fn interpolated(sorted: &[f64], part: f64) -> f64 {
    let place = part * (sorted.len() - 1) as f64;
    let (low, high) = (sorted[place as usize], sorted[place.ceil() as usize]);
    low + place.fract() * (high - low)
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
    /// The distances that are at most `reach` bins.
    fn of(sorted: &[f64], bin: f64, reach: usize) -> Distances {
        let mut filled: Vec<(f64, f64)> = Vec::new();
        let mut pairs = vec![0.0; reach + 1];
        for value in sorted {
            let place = (value - sorted[0]) / bin;
            let (below, share) = (place.floor(), place.fract());
            // Each value is shared between the bins around it, which keeps mean distances.
            for (place, weight) in [(below, 1.0 - share), (below + 1.0, share)] {
                match filled.iter_mut().rev().take(2).find(|filled| filled.0 == place) {
                    Some(filled) => filled.1 += weight,
                    None => filled.push((place, weight)),
                }
            }
            // Its parts are no pairs.
            pairs[0] -= ((1.0 - share).powi(2) + share * share) / 2.0;
            pairs[1] -= share * (1.0 - share);
        }
        for (index, (place, count)) in filled.iter().enumerate() {
            pairs[0] += count * count / 2.0;
            let near = filled[index + 1..].iter().map(|(other, others)| (other - place, others));
            for (distance, others) in near.take_while(|(distance, _)| *distance <= reach as f64) {
                pairs[distance as usize] += count * others;
            }
        }
        Distances { count: sorted.len() as f64, bin, pairs }
    }

    /// The estimate of the integral of the density times its fourth derivative.
    fn fourth(&self, width: f64) -> f64 {
        self.functional(width, 3.0, |square| square * (square - 6.0) + 3.0) / width.powi(5)
    }

    /// The same with the sixth derivative.
    fn sixth(&self, width: f64) -> f64 {
        self.functional(width, -15.0, |square| square * (square * (square - 15.0) + 45.0) - 15.0) / width.powi(7)
    }

    /// The mean over all pairs, and over each value with itself, of a polynomial in the square of the distance times
    /// the normal density.
    fn functional(&self, width: f64, itself: f64, polynomial: impl Fn(f64) -> f64) -> f64 {
        let within = (REACH * width / self.bin) as usize;
        let pairs = self.pairs.iter().take(within + 1).enumerate().filter(|(_, pairs)| **pairs != 0.0);
        let terms = pairs.map(|(distance, pairs)| {
            let square = (distance as f64 * self.bin / width).powi(2);
            pairs * (-square / 2.0).exp() * polynomial(square)
        });
        let sum = 2.0 * terms.sum::<f64>() + self.count * itself;
        sum / (self.count * (self.count - 1.0) * (2.0 * PI).sqrt())
    }
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
        let sorted = [1.0, 2.0, 4.0, 5.0];
        assert_eq!((interpolated(&sorted, 0.25), interpolated(&sorted, 0.75)), (1.75, 4.25));
        assert_eq!((interpolated(&sorted, 0.0), interpolated(&sorted, 1.0)), (1.0, 5.0));
    }
}
