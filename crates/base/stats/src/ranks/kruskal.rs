//! Several samples by their ranks: Kruskal and Wallis (*Journal of the American Statistical Association* 47, 1952), and
//! Dunn's comparisons of each two (*Technometrics* 6, 1964).

use super::{Ranks, finite};
use crate::distribution::{ChiSquare, Distribution, Normal};
use crate::multiplicity::holm;

/// Whether several samples come from one distribution.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KruskalWallis {
    /// The statistic H, corrected for ties.
    pub h: f64,
    /// Number of samples less one.
    pub df: f64,
    /// The probability that samples of one distribution differ at least as much: by the chi-square approximation, which
    /// is good from about five values a sample.
    pub p: f64,
}

/// The comparison of two of several samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dunn {
    /// Index of the first sample.
    pub one: usize,
    /// Index of the second sample, larger than that of the first.
    pub other: usize,
    /// The mean rank of the second sample less that of the first, in standard errors, corrected for ties.
    pub z: f64,
    /// The probability that samples of one distribution differ at least as much, in either direction.
    pub p: f64,
    /// The probability corrected by Holm for all the comparisons.
    pub adjusted_p: f64,
}

/// Tests whether several samples come from one distribution.
///
/// Values that are not finite are left out. `None` if fewer than two samples are given, if one of them has no values,
/// or if all values are equal.
pub fn kruskal_wallis(samples: &[&[f64]]) -> Option<KruskalWallis> {
    let means = MeanRanks::of(samples)?;
    let middle = (means.count + 1.0) / 2.0;
    let between: f64 = means.samples.iter().map(|(size, mean)| size * (mean - middle).powi(2)).sum();
    let (h, df) = (between / means.variance, samples.len() as f64 - 1.0);
    Some(KruskalWallis { h, df, p: ChiSquare { df }.upper_tail(h) })
}

/// Compares each two of several samples by the ranks among the values of all; the order is (0, 1), (0, 2), …, (1, 2),
/// ….
///
/// `None` where [`kruskal_wallis`] gives none.
pub fn dunn(samples: &[&[f64]]) -> Option<Vec<Dunn>> {
    let means = MeanRanks::of(samples)?;
    let compared = |one: usize, other: usize| {
        let [(size, mean), (other_size, other_mean)] = [means.samples[one], means.samples[other]];
        let z = (other_mean - mean) / (means.variance * (1.0 / size + 1.0 / other_size)).sqrt();
        let p = 2.0 * Normal.upper_tail(z.abs());
        Dunn { one, other, z, p, adjusted_p: p }
    };
    let each = |one| (one + 1..samples.len()).map(move |other| (one, other));
    let mut all: Vec<Dunn> = (0..samples.len()).flat_map(each).map(|(one, other)| compared(one, other)).collect();
    let adjusted = holm(&all.iter().map(|found| found.p).collect::<Vec<f64>>());
    all.iter_mut().zip(adjusted).for_each(|(found, p)| found.adjusted_p = p);
    Some(all)
}

struct MeanRanks {
    /// Number of values in all samples.
    count: f64,
    /// Size and mean rank of each.
    samples: Vec<(f64, f64)>,
    /// Variance of all ranks.
    variance: f64,
}

impl MeanRanks {
    fn of(samples: &[&[f64]]) -> Option<MeanRanks> {
        let samples: Vec<Vec<f64>> = samples.iter().map(|sample| finite(sample)).collect();
        let ranks = Ranks::of(&samples.concat());
        let count = ranks.of_values.len() as f64;
        let variance = ranks.squares() / (count - 1.0);
        if samples.len() < 2 || samples.iter().any(Vec::is_empty) || variance.is_nan() || variance <= 0.0 {
            return None;
        }
        let mut rest = ranks.of_values.as_slice();
        let mut mean = |sample: &Vec<f64>| {
            let (own, others) = rest.split_at(sample.len());
            rest = others;
            (sample.len() as f64, own.iter().sum::<f64>() / sample.len() as f64)
        };
        Some(MeanRanks { count, samples: samples.iter().map(&mut mean).collect(), variance })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_compared_is_not() {
        assert_eq!(kruskal_wallis(&[&[1.0, 2.0]]), None);
        assert_eq!(kruskal_wallis(&[&[1.0, 2.0], &[f64::NAN]]), None);
        assert_eq!(kruskal_wallis(&[&[2.0], &[2.0]]), None);
        assert_eq!(dunn(&[]), None);
    }

    #[test]
    fn two_samples_are_compared_as_by_their_rank_sum() {
        let (ones, others): (Vec<f64>, Vec<f64>) =
            ((0..30).map(f64::from).collect(), (12..52).map(f64::from).collect());
        let (both, pair) = (kruskal_wallis(&[&ones, &others]).unwrap(), dunn(&[&ones, &others]).unwrap()[0]);
        assert!((both.h - pair.z * pair.z).abs() < 1e-12 && (both.p - pair.p).abs() < 1e-12, "{both:?} {pair:?}");
        assert!(pair.z > 3.0 && pair.adjusted_p == pair.p, "the second is larger");
    }

    #[test]
    fn comparisons_are_corrected_for_their_number() {
        let samples: Vec<Vec<f64>> =
            (0..4).map(|start| (0..9).map(|n| f64::from(start * 3 + n * 7 % 11)).collect()).collect();
        let found = dunn(&samples.iter().map(Vec::as_slice).collect::<Vec<&[f64]>>()).unwrap();
        assert_eq!(
            found.iter().map(|found| (found.one, found.other)).collect::<Vec<_>>(),
            [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]
        );
        let least = found.iter().min_by(|one, other| one.p.total_cmp(&other.p)).unwrap();
        assert!((least.adjusted_p / least.p - 6.0).abs() < 1e-12, "{found:?}");
    }
}
