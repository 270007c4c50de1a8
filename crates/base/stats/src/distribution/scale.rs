//! Expected values over the scale S = √(χ²/df), the ratio of an estimated standard deviation to the true one.
//!
//! With t = ln S the integrand is analytic in a strip around the real line and falls off on both sides, so that the
//! trapezoidal rule converges exponentially (Trefethen and Weideman, *SIAM Review* 56, 2014).

use std::f64::consts::PI;

/// A term below this share of the sum no longer counts.
const NEGLIGIBLE: f64 = 1e-18;

/// The density of ln S.
pub(super) struct LogScale {
    df: f64,
    /// Logarithm of the density at t = 0.
    at_zero: f64,
}

impl LogScale {
    pub(super) fn new(df: f64) -> LogScale {
        LogScale { df, at_zero: 2f64.ln() + log_peak(df / 2.0) }
    }

    fn density(&self, t: f64) -> f64 {
        (self.at_zero + self.df * t - self.df / 2.0 * (2.0 * t).exp_m1()).exp()
    }

    /// The distance of the points that resolves this density, and functions that are smooth over a distance `smooth`.
    pub(super) fn step(&self, smooth: f64) -> f64 {
        smooth.min(0.5 / (2.0 * self.df).sqrt())
    }

    /// The mean of a function over ln S, of which `value` gives the values at the points `step · index - shift`.
    ///
    /// `start` is an index at which the integrand is not negligible.
    pub(super) fn mean(&self, step: f64, shift: f64, start: i64, mut value: impl FnMut(i64) -> f64) -> f64 {
        let mut term = |index: i64| self.density(step * index as f64 - shift) * value(index);
        let mut sum = term(start);
        for direction in [1, -1] {
            let mut index = start;
            loop {
                index += direction;
                let next = term(index);
                sum += next;
                // A sum of 0 would otherwise go on for ever.
                if next <= NEGLIGIBLE * sum || !next.is_finite() {
                    break;
                }
            }
        }
        sum * step
    }
}

/// ln(x^x e^-x / Γ(x)), without the cancellation of its parts where x is large.
fn log_peak(x: f64) -> f64 {
    if x < 50.0 {
        return x * x.ln() - x - libm::lgamma(x);
    }
    // Stirling's series.
    let inverse = 1.0 / x;
    let correction = inverse * (1.0 / 12.0 - inverse * inverse * (1.0 / 360.0 - inverse * inverse / 1260.0));
    0.5 * (x / (2.0 * PI)).ln() - correction
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_two_forms_of_the_peak_agree() {
        let x = 50.0f64;
        assert!((x * x.ln() - x - libm::lgamma(x) - log_peak(x)).abs() < 1e-13);
    }

    #[test]
    fn the_density_has_unit_mass_and_unit_mean_square() {
        for df in [0.5, 1.0, 2.0, 7.0, 99.0, 101.0, 2_090.0, 1e6] {
            let scale = LogScale::new(df);
            let step = scale.step(0.1);
            let mass = scale.mean(step, 0.0, 0, |_| 1.0);
            let square = scale.mean(step, 0.0, 0, |index| (2.0 * step * index as f64).exp());
            assert!((mass - 1.0).abs() < 1e-11 && (square - 1.0).abs() < 1e-11, "{df}: {mass} {square}");
        }
    }
}
