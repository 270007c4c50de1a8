//! Tails and quantiles of the distributions that the tests need.
//!
//! Both tails are computed directly, never as one minus the other, so that a probability of 1e-200 keeps its digits.
//! The regularized incomplete beta and gamma functions are those of `statrs`, the complementary error function is that
//! of `libm`; against quadrature with 25 digits their relative error stays below 1e-9 up to 1,000,000 degrees of
//! freedom.

mod classic;
mod noncentral;
mod range;
mod roots;
mod scale;

pub use classic::{ChiSquare, FRatio, Normal, StudentT};
pub use noncentral::{NoncentralF, NoncentralT};
pub use range::StudentizedRange;
pub use roots::root;

/// A continuous distribution of one variable X.
pub trait Distribution {
    /// The probability that X is at most `x`.
    fn lower_tail(&self, x: f64) -> f64;

    /// The probability that X exceeds `x`.
    fn upper_tail(&self, x: f64) -> f64;

    /// Whether X is never negative.
    fn is_nonnegative(&self) -> bool;

    /// The value that X stays below with probability `part`: the lower tail there is `part`.
    ///
    /// 0 gives the least value, 1 infinity, anything outside [0, 1] not a number.
    fn quantile(&self, part: f64) -> f64 {
        // The subtraction is exact from one half on.
        if part > 0.5 { self.upper_quantile(1.0 - part) } else { quantile_of(self, part, Tail::Lower) }
    }

    /// The value that X exceeds with probability `part`: the upper tail there is `part`. It is precise also for parts
    /// that are too small to be told from 1 as `1 - part`.
    fn upper_quantile(&self, part: f64) -> f64 {
        if part > 0.5 { self.quantile(1.0 - part) } else { quantile_of(self, part, Tail::Upper) }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Tail {
    Lower,
    Upper,
}

/// Solves for the logarithm of the tail, which is close to a parabola where the tail itself is flat.
fn quantile_of<D: Distribution + ?Sized>(distribution: &D, part: f64, tail: Tail) -> f64 {
    let least = if distribution.is_nonnegative() { 0.0 } else { f64::NEG_INFINITY };
    if part == 0.0 {
        return if tail == Tail::Lower { least } else { f64::INFINITY };
    }
    if !(0.0..=0.5).contains(&part) {
        return f64::NAN;
    }
    // Rises with x for both tails.
    let excess = |x: f64| match tail {
        Tail::Lower => distribution.lower_tail(x).max(f64::MIN_POSITIVE).ln() - part.ln(),
        Tail::Upper => part.ln() - distribution.upper_tail(x).max(f64::MIN_POSITIVE).ln(),
    };
    let Some((low, high)) = bracket(&excess, distribution.is_nonnegative()) else { return f64::NAN };
    root(excess, low, high)
}

/// Two values between which a rising function changes its sign.
fn bracket(excess: &impl Fn(f64) -> f64, is_nonnegative: bool) -> Option<(f64, f64)> {
    let steps = || (0..1_000).map(|power| 2f64.powi(power));
    if excess(1.0) < 0.0 {
        let high = steps().find(|&x| excess(x) >= 0.0)?;
        return Some((high / 2.0, high));
    }
    if is_nonnegative {
        let low = steps().map(|x| 1.0 / x).find(|&x| excess(x) < 0.0)?;
        return Some((low, low * 2.0));
    }
    let distance = steps().find(|&distance| excess(1.0 - distance) < 0.0)?;
    let before = if distance > 1.0 { distance / 2.0 } else { 0.0 };
    Some((1.0 - distance, 1.0 - before))
}
