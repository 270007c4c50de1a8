//! Wilcoxon's signed-rank test (*Biometrics Bulletin* 1, 1945): whether pairs differ in one direction, whatever the
//! distribution of their differences, if it is symmetric.

use super::{Ranks, exact, finite};
use crate::distribution::{Distribution, Normal};

/// There must be fewer differences than this for the exact distribution.
const MANY: usize = 50;

/// What the ranks of the differences of pairs say.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SignedRank {
    /// The sum of the ranks of positive differences among all distances from 0, which R calls V.
    pub statistic: f64,
    /// The probability that differences without a direction are as unequal, either way.
    pub p: f64,
    /// Whether the probability is exact: there are fewer than 50 differences, none is 0, and no two are equally large.
    /// Otherwise it is that of the normal approximation, corrected for continuity and ties.
    pub is_exact: bool,
}

/// Tests by ranks whether the differences of pairs are around 0; `None` if none differs from 0.
///
/// Values that are not finite are left out, and so are differences of 0, as Wilcoxon did.
pub fn signed_rank(differences: &[f64]) -> Option<SignedRank> {
    let all = finite(differences);
    let kept: Vec<f64> = all.iter().copied().filter(|difference| *difference != 0.0).collect();
    if kept.is_empty() {
        return None;
    }
    let ranks = Ranks::of(&kept.iter().map(|difference| difference.abs()).collect::<Vec<f64>>());
    let positive = kept.iter().zip(&ranks.of_values).filter(|(difference, _)| **difference > 0.0);
    let statistic: f64 = positive.map(|(_, rank)| rank).sum();
    let count = kept.len() as f64;
    let whole = count * (count + 1.0) / 2.0;
    let is_exact = kept.len() == all.len() && kept.len() < MANY && ranks.ties == 0.0;
    let p = if is_exact {
        2.0 * exact::signed_lower_tail(statistic.min(whole - statistic) as usize, kept.len())
    } else {
        let variance = whole * (2.0 * count + 1.0) / 12.0 - ranks.ties / 48.0;
        let distance = ((statistic - whole / 2.0).abs() - 0.5).max(0.0) / variance.sqrt();
        2.0 * Normal.upper_tail(distance)
    };
    Some(SignedRank { statistic, p: p.min(1.0), is_exact })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_differences_are_counted_exactly() {
        // Of the 32 choices of signs of five differences, two are as far out.
        let found = signed_rank(&[1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
        assert!(found.is_exact && found.statistic == 15.0 && (found.p - 2.0 / 32.0).abs() < 1e-15, "{found:?}");
        let back = signed_rank(&[-1.0, -2.0, -3.0, -4.0, -5.0]).unwrap();
        assert_eq!((back.statistic, back.p), (0.0, found.p));
        assert!(!signed_rank(&[1.0, 2.0, 2.0]).unwrap().is_exact, "a tie");
        assert!(!signed_rank(&[1.0, 2.0, 0.0]).unwrap().is_exact, "no direction");
        assert_eq!(signed_rank(&[0.0, f64::NAN]), None);
        assert_eq!(signed_rank(&[-1.0, 2.0, -3.0, 4.0]).unwrap().p, 0.875);
    }

    #[test]
    fn differences_without_a_direction_rarely_seem_to_have_one() {
        let mut random = fastrand::Rng::with_seed(3);
        let mut draw = || -> Vec<f64> { (0..12).map(|_| (random.f64() - 0.5).powi(3)).collect() };
        let ps: Vec<f64> = (0..4_000).filter_map(|_| Some(signed_rank(&draw())?.p)).collect();
        let below = ps.iter().filter(|p| **p < 0.05).count() as f64 / ps.len() as f64;
        assert!((0.03..0.06).contains(&below), "{below}");
    }
}
