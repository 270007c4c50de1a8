//! Probabilities corrected for the number of hypotheses that are tested together.
//!
//! The corrected probability of a hypothesis is compared with the level as it stands: if all below it are reported, the
//! chance that any of them is an accident stays within the level, however the tests depend on each other.

/// The probabilities corrected by Bonferroni: each times their number, at most 1; in the same order.
pub fn bonferroni(probabilities: &[f64]) -> Vec<f64> {
    let count = probabilities.len() as f64;
    probabilities.iter().map(|p| (p * count).min(1.0)).collect()
}

/// The probabilities corrected by Holm (*Scandinavian Journal of Statistics* 6, 1979), in the same order: the smallest
/// times their number, the next times one less, and so on, none below the one before. Never larger than Bonferroni's.
pub fn holm(probabilities: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..probabilities.len()).collect();
    order.sort_by(|&one, &other| probabilities[one].total_cmp(&probabilities[other]));
    let mut corrected = vec![0.0; probabilities.len()];
    let mut least = 0f64;
    for (place, &index) in order.iter().enumerate() {
        least = least.max((probabilities[index] * (order.len() - place) as f64).min(1.0));
        corrected[index] = least;
    }
    corrected
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_smallest_is_corrected_most() {
        let close = |found: Vec<f64>, expected: &[f64]| {
            assert!(found.len() == expected.len(), "{found:?}");
            assert!(found.iter().zip(expected).all(|(one, other)| (one - other).abs() < 1e-15), "{found:?}");
        };
        close(holm(&[0.03, 0.01, 0.5]), &[0.06, 0.03, 0.5]);
        close(holm(&[0.03, 0.02, 0.9, 0.04]), &[0.09, 0.08, 0.9, 0.09]);
        close(bonferroni(&[0.03, 0.01, 0.5]), &[0.09, 0.03, 1.0]);
        close(holm(&[]), &[]);
    }

    proptest! {
        /// Holm rejects what the closed test by Bonferroni rejects: every set that contains the hypothesis has a member
        /// whose probability, times the size of the set, is within the level.
        #[test]
        fn holm_is_the_closed_test(ps in proptest::collection::vec(0.0..0.2f64, 1..8)) {
            for (index, corrected) in holm(&ps).into_iter().enumerate() {
                let sets = (1u32..1 << ps.len()).filter(|set| set >> index & 1 == 1);
                let least = |set: u32| {
                    let members = (0..ps.len()).filter(|member| set >> member & 1 == 1).map(|member| ps[member]);
                    members.fold(1.0, f64::min) * f64::from(set.count_ones())
                };
                let closed = sets.map(least).fold(0.0, f64::max).min(1.0);
                prop_assert!((corrected - closed).abs() < 1e-12);
            }
        }
    }
}
