//! The rank-sum test of Mann and Whitney (*Annals of Mathematical Statistics* 18, 1947): whether one of two samples tends
//! to be larger, whatever their distribution.

/// What the ranks of two samples say.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RankSum {
    /// The share of pairs in which the first sample's value is larger; ties count half. 0.5 if the samples are alike.
    pub larger: f64,
    /// The probability that samples of one distribution differ at least as much, in either direction.
    pub p: f64,
}

/// Compares two samples by their ranks; `None` if one of them has no finite values, or all values are equal.
///
/// The probability is that of the normal approximation, corrected for ties: good enough from about 20 values each.
pub fn rank_sum(ones: &[f64], others: &[f64]) -> Option<RankSum> {
    let with = |samples: &[f64], is_first: bool| -> Vec<(f64, bool)> {
        samples.iter().filter(|sample| sample.is_finite()).map(|&sample| (sample, is_first)).collect()
    };
    let mut all = [with(ones, true), with(others, false)].concat();
    let first = all.iter().filter(|(_, is_first)| *is_first).count() as f64;
    let (count, second) = (all.len() as f64, all.len() as f64 - first);
    all.sort_by(|one, other| one.0.total_cmp(&other.0));
    let (mut ranks, mut ties, mut below) = (0.0, 0.0, 0.0);
    for group in all.chunk_by(|one, other| one.0 == other.0) {
        let size = group.len() as f64;
        // All values of a group have the mean of its ranks.
        ranks += group.iter().filter(|(_, is_first)| *is_first).count() as f64 * (below + (size + 1.0) / 2.0);
        ties += size * size * size - size;
        below += size;
    }
    let pairs = first * second;
    let larger = ranks - first * (first + 1.0) / 2.0;
    let variance = pairs / 12.0 * (count + 1.0 - ties / (count * (count - 1.0)));
    if !(pairs > 0.0 && variance > 0.0) {
        return None;
    }
    let distance = ((larger - pairs / 2.0).abs() - 0.5).max(0.0) / variance.sqrt();
    Some(RankSum { larger: larger / pairs, p: (2.0 * upper_tail(distance)).min(1.0) })
}

/// The probability that a standard normal variable exceeds `distance`, which is not negative.
fn upper_tail(distance: f64) -> f64 {
    let density = (-distance * distance / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
    if distance < 2.5 {
        // The series of the area from 0 (Abramowitz and Stegun, 26.2.11).
        let (mut term, mut sum) = (distance, 0.0);
        for odd in 1..60 {
            sum += term;
            term *= distance * distance / f64::from(2 * odd + 1);
        }
        return 0.5 - density * sum;
    }
    // The continued fraction (26.2.14), from its far end.
    density / (1..60).rev().fold(distance, |rest, place| distance + f64::from(place) / rest)
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
            let found = upper_tail(distance);
            assert!((found / tail - 1.0).abs() < 1e-6, "{distance}: {found}");
        }
    }

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
