//! Comparisons by ranks: whatever the distribution of the values, and however far their tails reach.

mod exact;
mod kruskal;
mod rank_sum;
mod signed_rank;

pub use kruskal::{Dunn, KruskalWallis, dunn, kruskal_wallis};
pub use rank_sum::{RankSum, rank_sum};
pub use signed_rank::{SignedRank, signed_rank};

/// The ranks of several samples among all their values.
pub(crate) struct Ranks {
    /// The rank of each value, from 1; equal values have the mean of their ranks.
    pub(crate) of_values: Vec<f64>,
    /// Sum of t³ - t over all groups of t equal values.
    pub(crate) ties: f64,
}

impl Ranks {
    /// Ranks values, none of which may be a NaN.
    pub(crate) fn of(values: &[f64]) -> Ranks {
        let mut order: Vec<usize> = (0..values.len()).collect();
        order.sort_unstable_by(|&one, &other| values[one].total_cmp(&values[other]));
        let (mut of_values, mut ties, mut below) = (vec![0.0; values.len()], 0.0, 0.0);
        for group in order.chunk_by(|&one, &other| values[one] == values[other]) {
            let size = group.len() as f64;
            group.iter().for_each(|&index| of_values[index] = below + (size + 1.0) / 2.0);
            ties += size * size * size - size;
            below += size;
        }
        Ranks { of_values, ties }
    }

    /// The variance of the ranks, times their number less one.
    pub(crate) fn squares(&self) -> f64 {
        let count = self.of_values.len() as f64;
        (count * count * count - count - self.ties) / 12.0
    }
}

/// The finite ones of these values.
fn finite(samples: &[f64]) -> Vec<f64> {
    samples.iter().copied().filter(|sample| sample.is_finite()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The rank of a value counts the smaller ones, and half of the equal ones; squares are those of the ranks.
        #[test]
        fn ranks_count_the_smaller_values(values in proptest::collection::vec((-5..5i8).prop_map(f64::from), 1..40)) {
            let ranks = Ranks::of(&values);
            for (value, rank) in values.iter().zip(&ranks.of_values) {
                let smaller = values.iter().filter(|other| *other < value).count() as f64;
                let equal = values.iter().filter(|other| *other == value).count() as f64;
                prop_assert_eq!(*rank, smaller + (equal + 1.0) / 2.0);
            }
            let mean = (values.len() as f64 + 1.0) / 2.0;
            let squares: f64 = ranks.of_values.iter().map(|rank| (rank - mean).powi(2)).sum();
            prop_assert!((squares - ranks.squares()).abs() < 1e-9);
        }
    }
}
