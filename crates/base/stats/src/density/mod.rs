//! Densities of samples by a gaussian kernel (Silverman, *Density Estimation for Statistics and Data Analysis*).
//!
//! Values are first put into bins that are much narrower than the kernel (Silverman's section 3.5), so the time hardly
//! depends on their number.

mod bandwidth;

use std::f64::consts::PI;

use thiserror::Error;

pub use bandwidth::{nrd0, sheather_jones};

/// Number of points at which a density is computed.
const POINTS: usize = 512;

/// Number of bins per bandwidth. Sharing values between bins changes the density by 3e-4 of a kernel's height.
const BINS: f64 = 20.0;

/// Maximum number of bins, for kernels that are much narrower than a point.
const MAX_BINS: f64 = 1e6;

/// Distance from the outermost values, in bandwidths, at which a density begins and ends.
const MARGIN: f64 = 3.0;

/// Distance in bandwidths from which the kernel is negligible.
const REACH: f64 = 8.5;

/// The standard deviation of the kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bandwidth {
    /// Silverman's rule of thumb, by [`nrd0`]: the default of R.
    Nrd0,
    /// By [`sheather_jones`], which shows several peaks better.
    SheatherJones,
    /// This one, in the unit of the values.
    Fixed(f64),
}

/// The estimated density of a sample.
#[derive(Clone, Debug, PartialEq)]
pub struct Density {
    /// The standard deviation of the kernel, in the unit of the values.
    pub bandwidth: f64,
    /// 512 equally spaced values.
    pub x: Vec<f64>,
    /// The density at each of them, in the inverse of the unit of the values: its integral is 1.
    pub y: Vec<f64>,
    /// Number of values.
    pub values: usize,
}

/// Why a sample has no density.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum DensityError {
    /// Too few values are finite.
    #[error("a density needs at least 2 values, but {0} are given; show the values themselves")]
    TooFew(usize),
    /// All values are equal, or nearly all of them for Sheather and Jones.
    #[error("too many values are equal for a bandwidth; use Bandwidth::Nrd0, or give one with Bandwidth::Fixed")]
    Equal,
    /// The bandwidth is not positive.
    #[error("the bandwidth is {0}, but must be above 0")]
    Bandwidth(f64),
    /// The range ends before it begins.
    #[error("the range of the density is from {low} to {high}, but must rise")]
    Range {
        /// Its begin.
        low: f64,
        /// Its end.
        high: f64,
    },
}

impl Density {
    /// The density of the values at 512 points, from 3 bandwidths below the least to 3 above the largest. Values that
    /// are not finite are left out.
    ///
    /// # Errors
    ///
    /// [`DensityError`] if the values have no density.
    pub fn of(values: &[f64], bandwidth: Bandwidth) -> Result<Density, DensityError> {
        let (finite, width) = prepared(values, bandwidth)?;
        let low = finite.iter().copied().fold(f64::INFINITY, f64::min);
        let high = finite.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        Ok(estimate(&finite, width, low - MARGIN * width, high + MARGIN * width))
    }

    /// The density of the values at 512 points from `low` to `high`, such as the shared axis of several pictures.
    /// Values outside count, so the integral over the range can be below 1.
    ///
    /// # Errors
    ///
    /// [`DensityError`] if the values have no density, or if the range does not rise.
    pub fn over(values: &[f64], bandwidth: Bandwidth, low: f64, high: f64) -> Result<Density, DensityError> {
        if !(low < high && (high - low).is_finite()) {
            return Err(DensityError::Range { low, high });
        }
        let (finite, width) = prepared(values, bandwidth)?;
        Ok(estimate(&finite, width, low, high))
    }
}

/// The finite values, and the bandwidth for them.
fn prepared(values: &[f64], bandwidth: Bandwidth) -> Result<(Vec<f64>, f64), DensityError> {
    let finite: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
    let width = match bandwidth {
        Bandwidth::Nrd0 => nrd0(&finite)?,
        Bandwidth::SheatherJones => sheather_jones(&finite)?,
        Bandwidth::Fixed(width) if width > 0.0 && width.is_finite() => width,
        Bandwidth::Fixed(width) => return Err(DensityError::Bandwidth(width)),
    };
    if finite.is_empty() {
        return Err(DensityError::TooFew(0));
    }
    Ok((finite, width))
}

fn estimate(values: &[f64], width: f64, low: f64, high: f64) -> Density {
    let step = (high - low) / (POINTS - 1) as f64;
    let x: Vec<f64> = (0..POINTS).map(|point| low + step * point as f64).collect();
    let reach = REACH * width;
    let (first, span) = (low - reach, high - low + 2.0 * reach);
    let bin = (width / BINS).max(span / MAX_BINS);
    let bins = binned(values, first, bin, (span / bin) as usize + 2);
    let scale = 1.0 / (values.len() as f64 * width);
    let density = |x: &f64| {
        let [begin, end] = [x - reach, x + reach].map(|end| ((end - first) / bin).max(0.0) as usize);
        let filled = bins.iter().enumerate().take(end + 1).skip(begin).filter(|(_, weight)| **weight > 0.0);
        let sum: f64 = filled.map(|(index, weight)| weight * gauss((first + index as f64 * bin - x) / width)).sum();
        sum * scale
    };
    let y = x.iter().map(density).collect();
    Density { bandwidth: width, x, y, values: values.len() }
}

/// Shares each value between the two bins around it. Values outside are left out: they are out of reach of the kernel.
fn binned(values: &[f64], low: f64, bin: f64, count: usize) -> Vec<f64> {
    let mut bins = vec![0.0; count];
    for value in values {
        let place = (value - low) / bin;
        let (index, share) = (place.floor(), place - place.floor());
        if index >= 0.0 && index < (count - 1) as f64 {
            bins[index as usize] += 1.0 - share;
            bins[index as usize + 1] += share;
        }
    }
    bins
}

fn gauss(distance: f64) -> f64 {
    (-distance * distance / 2.0).exp() / (2.0 * PI).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The density at `x` from each value by itself.
    fn direct(values: &[f64], width: f64, x: f64) -> f64 {
        let count = values.len() as f64;
        values.iter().map(|value| gauss((x - value) / width)).sum::<f64>() / (count * width)
    }

    #[test]
    fn errors_say_what_to_do() {
        assert_eq!(Density::of(&[1.0], Bandwidth::Nrd0), Err(DensityError::TooFew(1)));
        assert_eq!(Density::of(&[f64::NAN], Bandwidth::Fixed(1.0)), Err(DensityError::TooFew(0)));
        assert_eq!(Density::of(&[1.0, 2.0], Bandwidth::Fixed(0.0)), Err(DensityError::Bandwidth(0.0)));
        assert_eq!(
            Density::over(&[1.0, 2.0], Bandwidth::Nrd0, 3.0, 3.0).unwrap_err().to_string(),
            "the range of the density is from 3 to 3, but must rise"
        );
        assert_eq!(Density::of(&[2.0; 9], Bandwidth::SheatherJones), Err(DensityError::Equal));
    }

    #[test]
    fn a_narrow_kernel_over_a_wide_range_keeps_its_shape() {
        let found = Density::over(&[0.0, 1e6], Bandwidth::Fixed(3_000.0), -1e5, 2e6).unwrap();
        let largest = 0.5 * gauss(0.0) / 3_000.0;
        let worst = found.x.iter().zip(&found.y).map(|(x, y)| (y - direct(&[0.0, 1e6], 3_000.0, *x)).abs());
        assert!(worst.fold(0.0, f64::max) < 1e-3 * largest);
    }

    #[test]
    fn a_wide_kernel_over_a_narrow_range_is_flat() {
        let found = Density::over(&[-5.0, 7.0], Bandwidth::Fixed(1e9), 0.0, 1.0).unwrap();
        assert!(found.y.iter().all(|y| (y * 1e9 / gauss(0.0) - 1.0).abs() < 1e-3), "{:?}", found.y);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]

        #[test]
        fn the_density_is_that_of_single_kernels(
            values in proptest::collection::vec(-50.0..50f64, 2..60),
            width in 0.5..20f64,
        ) {
            let found = Density::of(&values, Bandwidth::Fixed(width)).unwrap();
            let largest = found.y.iter().copied().fold(0.0, f64::max);
            for (x, y) in found.x.iter().zip(&found.y) {
                prop_assert!((y - direct(&values, width, *x)).abs() < 1e-3 * largest);
            }
            let mass = found.y.iter().sum::<f64>() * (found.x[1] - found.x[0]);
            prop_assert!((mass - 1.0).abs() < 4e-3, "{mass}: the ends lack three tenths of a percent at most");
        }
    }
}
