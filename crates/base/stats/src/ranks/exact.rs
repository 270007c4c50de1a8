//! The exact distributions of rank statistics, for samples without ties.

/// The probability that the statistic is at most `statistic`, for samples of `first` and `second` values.
///
/// The number of orders with each value of the statistic is a coefficient of a Gaussian binomial: the product of
/// (1 - x^(second + i)) / (1 - x^i) for i from 1 to `first` (Mann and Whitney's recurrence, in closed form).
pub(super) fn lower_tail(statistic: usize, first: usize, second: usize) -> f64 {
    let mut orders = vec![0.0; first * second + 1];
    orders[0] = 1.0;
    for i in 1..=first {
        for index in (second + i..orders.len()).rev() {
            orders[index] -= orders[index - second - i];
        }
        for index in i..orders.len() {
            orders[index] += orders[index - i];
        }
    }
    let all: f64 = (1..=first).map(|i| (second + i) as f64 / i as f64).product();
    orders[..=statistic.min(first * second)].iter().sum::<f64>() / all
}

/// The probability that the ranks of positive differences sum to at most `statistic`, for `count` differences whose
/// signs are as likely as not: the share of all choices of ranks from 1 to `count`.
pub(super) fn signed_lower_tail(statistic: usize, count: usize) -> f64 {
    let mut choices = vec![0.0; count * (count + 1) / 2 + 1];
    choices[0] = 1.0;
    for rank in 1..=count {
        for sum in (rank..choices.len()).rev() {
            choices[sum] += choices[sum - rank];
        }
    }
    choices.iter().take(statistic + 1).sum::<f64>() / 2f64.powi(count as i32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_signed_tail_counts_all_choices(count in 1..10usize, statistic in 0..60usize) {
            let sum = |choice: u32| (1..=count).filter(|rank| choice >> (rank - 1) & 1 == 1).sum::<usize>();
            let share = (0u32..1 << count).filter(|choice| sum(*choice) <= statistic).count() as f64;
            prop_assert!((signed_lower_tail(statistic, count) - share / f64::from(1u32 << count)).abs() < 1e-12);
        }

        /// The probability is the share of all choices of the first sample's ranks, enumerated one by one.
        #[test]
        fn the_tail_counts_all_orders(first in 1..6usize, second in 1..6usize, statistic in 0..30usize) {
            let count = first + second;
            let choices = (0u32..1 << count).filter(|choice| choice.count_ones() as usize == first);
            let statistics: Vec<usize> = choices
                .map(|choice| (0..count).filter(|rank| choice >> rank & 1 == 1).map(|rank| rank + 1).sum::<usize>())
                .map(|ranks| ranks - first * (first + 1) / 2)
                .collect();
            let share = statistics.iter().filter(|found| **found <= statistic).count() as f64 / statistics.len() as f64;
            prop_assert!((lower_tail(statistic, first, second) - share).abs() < 1e-12);
        }
    }
}
