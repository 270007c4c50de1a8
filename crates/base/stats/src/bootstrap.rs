//! Bootstrap intervals: the percentiles of a figure over samples drawn with replacement (Efron and Tibshirani, *An
//! Introduction to the Bootstrap*, 13.3).
//!
//! They are intervals by percentiles and not corrected (BCa): the correction needs the jackknife, which is inconsistent
//! for medians (chapter 11.6 there).

use crate::medians::{Median, middle, quantile, sorted_finite};

/// Number of bootstrap samples, each as large as the set of pairs.
const RESAMPLES: usize = 2_000;

/// How a bootstrap interval is made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bootstrap {
    /// Number of samples drawn. Intervals of a confidence above 0.99 need more than the default of 2,000.
    pub resamples: usize,
    /// The same seed gives the same interval.
    pub seed: u64,
    /// The probability with which the interval is to contain the true figure.
    pub confidence: f64,
}

impl Default for Bootstrap {
    fn default() -> Bootstrap {
        Bootstrap { resamples: RESAMPLES, seed: 1, confidence: 0.95 }
    }
}

impl Bootstrap {
    fn random(&self) -> fastrand::Rng {
        fastrand::Rng::with_seed(self.seed)
    }

    /// The figure of the samples, and the percentiles of those that are drawn.
    fn interval(&self, value: f64, drawn: &[f64]) -> Option<Median> {
        let outside = (1.0 - self.confidence) / 2.0;
        Some(Median { value, low: quantile(drawn, outside)?, high: quantile(drawn, 1.0 - outside)? })
    }
}

/// The median of the samples and its bootstrap interval; `None` without finite samples.
///
/// The time does not depend on the number of samples, but for sorting them.
pub fn bootstrap_median(samples: &[f64], bootstrap: &Bootstrap) -> Option<Median> {
    let resampled = Resampled::of(samples)?;
    let mut random = bootstrap.random();
    let drawn: Vec<f64> = (0..bootstrap.resamples).map(|_| resampled.median(&mut random)).collect();
    bootstrap.interval(resampled.value, &drawn)
}

/// The ratio of the medians of two independent samples, `ones` over `others`, and its bootstrap interval. `None` if one
/// of them has no finite values, or if the denominator is 0. Where the samples are pairs, [`ratio_of_medians`] is
/// narrower.
pub fn bootstrap_ratio(ones: &[f64], others: &[f64], bootstrap: &Bootstrap) -> Option<Median> {
    let (ones, others) = (Resampled::of(ones)?, Resampled::of(others)?);
    let value = Some(ones.value / others.value).filter(|ratio| ratio.is_finite())?;
    let mut random = bootstrap.random();
    let mut draw = |_| ones.median(&mut random) / others.median(&mut random);
    let drawn: Vec<f64> = (0..bootstrap.resamples).map(&mut draw).filter(|ratio| ratio.is_finite()).collect();
    bootstrap.interval(value, &drawn)
}

/// The ratio of two medians, over pairs, and its 95 percent bootstrap interval, by [`bootstrap_ratio_of_pairs`]. The
/// same pairs always give the same interval.
pub fn ratio_of_medians(pairs: &[(f64, f64)]) -> Option<Median> {
    bootstrap_ratio_of_pairs(pairs, &Bootstrap::default())
}

/// The ratio of the medians of the first and the second values of pairs, and its interval over samples of pairs drawn
/// with replacement: noise that both values of a pair share cancels. `None` without pairs, or if the denominator is 0.
pub fn bootstrap_ratio_of_pairs(pairs: &[(f64, f64)], bootstrap: &Bootstrap) -> Option<Median> {
    let ratio = |pairs: &[(f64, f64)]| {
        let (ones, others): (Vec<f64>, Vec<f64>) = pairs.iter().copied().unzip();
        let [one, other] = [ones, others].map(|side| middle(&sorted_finite(&side)));
        Some(one? / other?).filter(|ratio| ratio.is_finite())
    };
    let value = ratio(pairs)?;
    let mut random = bootstrap.random();
    let mut draw = || (0..pairs.len()).map(|_| pairs[random.usize(..pairs.len())]).collect::<Vec<(f64, f64)>>();
    let drawn: Vec<f64> = (0..bootstrap.resamples).filter_map(|_| ratio(&draw())).collect();
    bootstrap.interval(value, &drawn)
}

/// A sample from which medians of resamples are drawn without drawing the resamples.
///
/// A resample of n values has the indices floor(n·U) of n uniform variables U. Its median is therefore the value at the
/// index of their middle order statistic, which has a beta distribution (David and Nagaraja, *Order Statistics*, 2.2).
struct Resampled {
    sorted: Vec<f64>,
    value: f64,
}

impl Resampled {
    fn of(samples: &[f64]) -> Option<Resampled> {
        let sorted = sorted_finite(samples);
        Some(Resampled { value: middle(&sorted)?, sorted })
    }

    /// The median of one resample.
    fn median(&self, random: &mut fastrand::Rng) -> f64 {
        let count = self.sorted.len();
        let at = |uniform: f64| self.sorted[((uniform * count as f64) as usize).min(count - 1)];
        let below = count.div_ceil(2);
        let above = count + 1 - below;
        let lower = beta(below as f64, above as f64, random);
        if count % 2 == 1 {
            return at(lower);
        }
        // The least of the uniform variables above it.
        let upper = 1.0 - (1.0 - lower) * (1.0 - random.f64()).powf(1.0 / (above as f64 - 1.0));
        (at(lower) + at(upper)) / 2.0
    }
}

/// A random variable with the beta distribution.
fn beta(a: f64, b: f64, random: &mut fastrand::Rng) -> f64 {
    let (one, other) = (gamma(a, random), gamma(b, random));
    one / (one + other)
}

/// A random variable with the gamma distribution of a shape of at least 1 (Marsaglia and Tsang, *ACM Transactions on
/// Mathematical Software* 26, 2000).
fn gamma(shape: f64, random: &mut fastrand::Rng) -> f64 {
    let d = shape - 1.0 / 3.0;
    let c = 1.0 / (9.0 * d).sqrt();
    loop {
        let x = normal(random);
        let v = (1.0 + c * x).powi(3);
        if v > 0.0 && (1.0 - random.f64()).ln() < x * x / 2.0 + d - d * v + d * v.ln() {
            return d * v;
        }
    }
}

/// A standard normal random variable (Box and Muller, *Annals of Mathematical Statistics* 29, 1958).
fn normal(random: &mut fastrand::Rng) -> f64 {
    let radius = (-2.0 * (1.0 - random.f64()).ln()).sqrt();
    radius * (2.0 * std::f64::consts::PI * random.f64()).cos()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::medians::median;

    #[test]
    fn a_ratio_of_medians_cancels_the_noise_that_a_pair_shares() {
        let pairs: Vec<(f64, f64)> = (1..=9).map(f64::from).map(|common| (3.0 * common, 2.0 * common)).collect();
        assert_eq!(ratio_of_medians(&pairs), Some(Median { value: 1.5, low: 1.5, high: 1.5 }));
        assert_eq!((ratio_of_medians(&[]), ratio_of_medians(&[(1.0, 0.0)])), (None, None));
        assert_eq!(ratio_of_medians(&[(1.0, 2.0)]), Some(Median { value: 0.5, low: 0.5, high: 0.5 }));
    }

    /// Of many bootstrap intervals, about 95 percent contain the true ratio.
    #[test]
    fn bootstrap_intervals_hold_the_true_ratio_about_as_often_as_they_say() {
        let mut random = fastrand::Rng::with_seed(7);
        let hits = (0..200)
            .filter(|_| {
                let mut pair = || {
                    let common = 1.0 + random.f64();
                    (1.2 * common * (1.0 + 0.1 * random.f64()), common * (1.0 + 0.1 * random.f64()))
                };
                let pairs: Vec<(f64, f64)> = (0..30).map(|_| pair()).collect();
                ratio_of_medians(&pairs).is_some_and(|ratio| (ratio.low..=ratio.high).contains(&1.2))
            })
            .count();
        assert!(hits >= 180, "{hits} of 200");
    }

    /// Medians that are drawn at once have the distribution of those of whole resamples.
    #[test]
    fn medians_are_those_of_whole_resamples() {
        for count in [1, 2, 3, 8, 31] {
            let samples: Vec<f64> = (0..count).map(|index| f64::from(index * index)).collect();
            let resampled = Resampled::of(&samples).unwrap();
            let mut random = fastrand::Rng::with_seed(11);
            let short: Vec<f64> = (0..4_000).map(|_| resampled.median(&mut random)).collect();
            let mut whole = |_| {
                let drawn: Vec<f64> = samples.iter().map(|_| samples[random.usize(..samples.len())]).collect();
                median(&drawn).unwrap().value
            };
            let long: Vec<f64> = (0..4_000).map(&mut whole).collect();
            // The largest distance of both distributions, against Kolmogorov and Smirnov's limit at 0.1 percent.
            let share =
                |values: &[f64], limit: f64| values.iter().filter(|value| **value <= limit).count() as f64 / 4e3;
            let distances = long.iter().map(|&limit| (share(&short, limit) - share(&long, limit)).abs());
            let distance = distances.fold(0.0, f64::max);
            assert!(distance < 1.95 * (2.0 / 4e3f64).sqrt(), "{count}: {distance}");
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_interval() {
        let (ones, others): (Vec<f64>, Vec<f64>) =
            ((0..40).map(|n| f64::from(n * 13 % 40)).collect(), vec![2.0, 4.0, 8.0]);
        let of = |seed| bootstrap_ratio(&ones, &others, &Bootstrap { seed, ..Bootstrap::default() }).unwrap();
        assert_eq!(of(3), of(3));
        assert_ne!(of(3), of(4));
        let narrow = bootstrap_ratio(&ones, &others, &Bootstrap { confidence: 0.5, ..Bootstrap::default() }).unwrap();
        assert!(narrow.half_width() < of(1).half_width() && narrow.value == 19.5 / 4.0, "{narrow:?}");
        assert_eq!(bootstrap_ratio(&ones, &[0.0], &Bootstrap::default()), None);
        assert_eq!(bootstrap_median(&[f64::NAN], &Bootstrap::default()), None);
        assert_eq!(bootstrap_median(&[3.0], &Bootstrap::default()), Some(Median { value: 3.0, low: 3.0, high: 3.0 }));
    }

    /// Of many intervals from samples of a skewed distribution, about 95 percent contain its median.
    #[test]
    fn intervals_hold_the_true_median_about_as_often_as_they_say() {
        let mut random = fastrand::Rng::with_seed(5);
        let hits = (0..1_000)
            .filter(|_| {
                let samples: Vec<f64> = (0..25).map(|_| -(1.0 - random.f64()).ln()).collect();
                let bootstrap = Bootstrap { resamples: 500, ..Bootstrap::default() };
                let found = bootstrap_median(&samples, &bootstrap).unwrap();
                (found.low..=found.high).contains(&2f64.ln())
            })
            .count();
        assert!((920..=970).contains(&hits), "{hits} of 1000");
    }
}
