//! Medians with confidence intervals that make no assumption about the distribution.
//!
//! Timings are skewed and have tails: mean and standard deviation describe them badly. The median is robust, and so is
//! its confidence interval by order statistics: the number of samples below the true median is binomial with
//! probability one half, for any distribution (David and Nagaraja, *Order Statistics*, 7.1).

/// Minimum number of samples for a 95 percent confidence interval of the median.
pub const ENOUGH: usize = 6;

/// Maximum half-width of the interval of a meaningful ratio: most compared things differ by less.
pub const WIDEST_RATIO: f64 = 0.03;

/// Whether the interval of a ratio from `samples` samples is too wide. With fewer than [`ENOUGH`] there is no interval.
pub fn is_ratio_undecided(samples: usize, ratio: &Median) -> bool {
    samples >= ENOUGH && ratio.half_width() > WIDEST_RATIO * ratio.value.max(1.0)
}

/// A median and its confidence interval of at least 95 percent, if there are at least [`ENOUGH`] samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Median {
    /// The median of the samples.
    pub value: f64,
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

impl Median {
    /// Half of the interval's width.
    pub fn half_width(&self) -> f64 {
        (self.high - self.low) / 2.0
    }
}

/// The median of the samples and its 95 percent confidence interval; `None` without samples.
///
/// With fewer than [`ENOUGH`] samples no interval by order statistics reaches 95 percent: it then spans all samples.
pub fn median(samples: &[f64]) -> Option<Median> {
    let sorted = sorted_finite(samples);
    let (value, count) = (middle(&sorted)?, sorted.len());
    let skip = skipped(count);
    Some(Median { value, low: sorted[skip], high: sorted[count - 1 - skip] })
}

/// The median of sorted values.
pub(crate) fn middle(sorted: &[f64]) -> Option<f64> {
    let (last, half) = (sorted.len().checked_sub(1)?, sorted.len() / 2);
    Some(if last % 2 == 0 { sorted[half] } else { (sorted[half - 1] + sorted[half]) / 2.0 })
}

/// The percentile `part` (nearest rank): the smallest sample that at least this share of all do not exceed; `None`
/// without samples.
pub fn quantile(samples: &[f64], part: f64) -> Option<f64> {
    let sorted = sorted_finite(samples);
    let rank = nearest_rank(sorted.len() as u64, part) as usize;
    sorted.get(rank - 1).copied()
}

/// The rank, from 1, of the percentile `part` among `count` samples.
pub fn nearest_rank(count: u64, part: f64) -> u64 {
    ((part * count as f64).ceil() as u64).max(1)
}

/// The finite samples in rising order.
pub(crate) fn sorted_finite(samples: &[f64]) -> Vec<f64> {
    let mut sorted: Vec<f64> = samples.iter().copied().filter(|sample| sample.is_finite()).collect();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted
}

/// Number of samples outside the interval at each end: the maximum for which both tails of the binomial distribution
/// together stay within 5 percent.
fn skipped(count: usize) -> usize {
    // P(at most k of `count` samples are below the median), k = 0, 1, …, in steps from ln(0.5^count), which does not
    // underflow.
    let mut term = count as f64 * 0.5f64.ln();
    let mut tail = 0.0;
    for k in 0..count / 2 {
        tail += term.exp();
        if tail > 0.025 {
            return k.saturating_sub(1);
        }
        term += ((count - k) as f64 / (k + 1) as f64).ln();
    }
    (count / 2).saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_ranks_are_those_of_the_tables() {
        // One less than the lower rank in tables for the sign test at 95 percent.
        for (count, skip) in
            [(1, 0), (5, 0), (6, 0), (8, 0), (9, 1), (12, 2), (15, 3), (20, 5), (25, 7), (50, 17), (100, 39)]
        {
            assert_eq!(skipped(count), skip, "{count} samples");
        }
        assert!(skipped(100_000) > 49_000, "no underflow");
    }

    #[test]
    fn the_median_of_nothing_is_nothing() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[f64::NAN]), None);
        assert_eq!(median(&[3.0]), Some(Median { value: 3.0, low: 3.0, high: 3.0 }));
    }

    #[test]
    fn a_ratio_with_a_wide_interval_is_undecided() {
        let ratio = |value: f64, half: f64| Median { value, low: value - half, high: value + half };
        assert!(!is_ratio_undecided(ENOUGH, &ratio(1.0, 0.029)) && is_ratio_undecided(ENOUGH, &ratio(1.0, 0.04)));
        assert!(!is_ratio_undecided(ENOUGH, &ratio(2.0, 0.05)), "relative to the ratio above 1");
        assert!(is_ratio_undecided(ENOUGH, &ratio(0.5, 0.04)), "and absolute below");
        assert!(!is_ratio_undecided(ENOUGH - 1, &ratio(1.0, 0.5)), "too few have no interval");
    }

    #[test]
    fn a_quantile_is_the_sample_of_the_nearest_rank() {
        let samples: Vec<f64> = (1..=200).rev().map(f64::from).collect();
        for (part, sample) in [(0.0, 1.0), (0.25, 50.0), (0.99, 198.0), (0.991, 199.0), (1.0, 200.0)] {
            assert_eq!(quantile(&samples, part), Some(sample));
        }
        assert_eq!(quantile(&[], 0.5), None);
        assert_eq!(quantile(&[7.0], 0.99), Some(7.0));
    }

    /// Of many intervals from samples of a skewed distribution, at least about 95 percent contain its median.
    #[test]
    fn intervals_hold_the_true_median_as_often_as_they_say() {
        let mut state = 1u64;
        let mut uniform = || {
            // xorshift64*, Vigna 2016.
            state ^= state >> 12;
            state ^= state << 25;
            state ^= state >> 27;
            (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) as f64 / (1u64 << 53) as f64
        };
        let hits = (0..4_000)
            .filter(|_| {
                let samples: Vec<f64> = (0..15).map(|_| -uniform().ln()).collect();
                median(&samples).is_some_and(|median| (median.low..=median.high).contains(&2f64.ln()))
            })
            .count();
        assert!((3_800..=3_950).contains(&hits), "{hits} of 4000; exact: 96.5 percent");
    }

    proptest! {
        #[test]
        fn the_median_lies_within_its_interval(samples in proptest::collection::vec(-1e9..1e9f64, 1..200)) {
            let median = median(&samples).unwrap();
            prop_assert!(median.low <= median.value && median.value <= median.high);
            let below = samples.iter().filter(|&&sample| sample < median.value).count();
            let above = samples.iter().filter(|&&sample| sample > median.value).count();
            prop_assert!(below <= samples.len() / 2 && above <= samples.len() / 2);
        }
    }
}
