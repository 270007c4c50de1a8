//! The rank-sum test of Mann and Whitney (*Annals of Mathematical Statistics* 18, 1947): whether one of two samples
//! tends to be larger, whatever their distribution.

use super::{Ranks, exact, finite};
use crate::distribution::{Distribution, Normal};

/// Both samples must have fewer values than this for the exact distribution.
const MANY: usize = 50;

/// What the ranks of two samples say.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RankSum {
    /// The share of pairs in which the first sample's value is larger; ties count half. 0.5 if the samples are alike.
    pub larger: f64,
    /// The number of these pairs: the statistic U of Mann and Whitney, which R calls W.
    pub statistic: f64,
    /// The probability that samples of one distribution differ at least as much, in either direction.
    pub p: f64,
    /// Whether the probability is exact: both samples have fewer than 50 values, and no two are equal. Otherwise it is
    /// that of the normal approximation, corrected for continuity and ties.
    pub is_exact: bool,
}

/// Compares two samples by their ranks; `None` if one of them has no finite values, or all values are equal.
///
/// Values that are not finite are left out. It is a test of the median only if both distributions have the same shape.
pub fn rank_sum(ones: &[f64], others: &[f64]) -> Option<RankSum> {
    let (ones, others) = (finite(ones), finite(others));
    let (first, second) = (ones.len() as f64, others.len() as f64);
    let ranks = Ranks::of(&[ones.as_slice(), &others].concat());
    let (pairs, count) = (first * second, first + second);
    let statistic = ranks.of_values[..ones.len()].iter().sum::<f64>() - first * (first + 1.0) / 2.0;
    let variance = pairs * ranks.squares() / (count * (count - 1.0));
    if !(pairs > 0.0 && variance > 0.0) {
        return None;
    }
    let is_exact = ones.len() < MANY && others.len() < MANY && ranks.ties == 0.0;
    let p = if is_exact {
        let smaller = statistic.min(pairs - statistic) as usize;
        2.0 * exact::lower_tail(smaller, ones.len(), others.len())
    } else {
        let distance = ((statistic - pairs / 2.0).abs() - 0.5).max(0.0) / variance.sqrt();
        2.0 * Normal.upper_tail(distance)
    };
    Some(RankSum { larger: statistic / pairs, statistic, p: p.min(1.0), is_exact })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_sample_of_larger_values_is_larger() {
        let ones: Vec<f64> = (100..200).map(f64::from).collect();
        let others: Vec<f64> = (0..100).map(f64::from).collect();
        let found = rank_sum(&ones, &others).unwrap();
        // The largest distance of 100 and 100: 12.217 with the correction for continuity.
        assert!(found.larger == 1.0 && found.p < 1e-30 && found.p > 0.0, "{found:?}");
        let back = rank_sum(&others, &ones).unwrap();
        assert_eq!((back.larger, back.p), (0.0, found.p));
    }

    #[test]
    fn samples_without_a_difference_have_none() {
        assert_eq!(rank_sum(&[], &[1.0]), None);
        assert_eq!(rank_sum(&[1.0, 1.0], &[1.0, f64::NAN]), None, "all are equal");
        let same = rank_sum(&[1.0, 2.0, 3.0], &[1.0, 2.0, 3.0]).unwrap();
        assert_eq!((same.larger, same.p), (0.5, 1.0));
    }

    #[test]
    fn small_samples_without_ties_are_counted_exactly() {
        // Of the 20 orders of three and three, two are as far out.
        let found = rank_sum(&[4.0, 5.0, 6.0], &[1.0, 2.0, 3.0]).unwrap();
        assert!((found.p - 0.1).abs() < 1e-15 && found.is_exact && found.statistic == 9.0, "{found:?}");
        assert!(!rank_sum(&[4.0, 5.0, 6.0], &[1.0, 2.0, 4.0]).unwrap().is_exact, "a tie");
        let many: Vec<f64> = (0..50).map(f64::from).collect();
        assert!(!rank_sum(&many, &[0.5]).unwrap().is_exact);
        assert!(rank_sum(&many[1..], &[0.5]).unwrap().is_exact);
    }

    #[test]
    fn equal_distributions_are_rarely_told_apart() {
        let mut random = fastrand::Rng::with_seed(3);
        let mut draw = || -> Vec<f64> { (0..60).map(|_| (random.f64().powi(6) * 50.0).round()).collect() };
        let below = |limit: f64, ps: &[f64]| ps.iter().filter(|p| **p < limit).count() as f64 / ps.len() as f64;
        let ps: Vec<f64> = (0..2_000).filter_map(|_| Some(rank_sum(&draw(), &draw())?.p)).collect();
        assert!((0.03..0.07).contains(&below(0.05, &ps)), "{}", below(0.05, &ps));
        assert!(below(0.001, &ps) < 0.004);
    }

    proptest! {
        /// The share is that of all pairs, counted one by one.
        #[test]
        fn the_share_is_that_of_all_pairs(
            ones in proptest::collection::vec(0..9u8, 1..30),
            others in proptest::collection::vec(0..9u8, 1..30),
        ) {
            let [ones, others] = [ones, others].map(|values| values.into_iter().map(f64::from).collect::<Vec<f64>>());
            let pairs = ones.iter().flat_map(|one| others.iter().map(move |other| one.total_cmp(other) as i8));
            let share = pairs.map(|order| f64::from(order + 1) / 2.0).sum::<f64>() / (ones.len() * others.len()) as f64;
            if let Some(found) = rank_sum(&ones, &others) {
                prop_assert!((found.larger - share).abs() < 1e-9);
                prop_assert!((0.0..=1.0).contains(&found.p));
            }
        }
    }
}
