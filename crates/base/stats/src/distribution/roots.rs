//! The root of a continuous function, by inverse quadratic interpolation where that is safe and bisection elsewhere
//! (Chandrupatla, *Advances in Engineering Software* 28, 1997).

/// Maximum number of steps: bisection alone needs about 60 from a bracket of one octave.
const MAX_STEPS: usize = 200;

/// The root of `function` between `low` and `high`, where it has opposite signs, to the last bits of a `f64`.
pub fn root(function: impl Fn(f64) -> f64, low: f64, high: f64) -> f64 {
    let point = |x: f64| (x, function(x));
    // The newest point, the one on the other side of the root, and the one that the newest replaced.
    let (mut newest, mut opposite) = (point(high), point(low));
    if let Some(end) = [newest, opposite].into_iter().find(|end| end.1 == 0.0) {
        return end.0;
    }
    let mut share = 0.5;
    for _ in 0..MAX_STEPS {
        let x = newest.0 + share * (opposite.0 - newest.0);
        let next = point(x);
        let replaced =
            if (next.1 > 0.0) == (newest.1 > 0.0) { newest } else { std::mem::replace(&mut opposite, newest) };
        newest = next;
        let best = if newest.1.abs() < opposite.1.abs() { newest } else { opposite };
        let width = (opposite.0 - newest.0).abs();
        let least = 2.0 * f64::EPSILON * best.0.abs() / width;
        if best.1 == 0.0 || least.is_nan() || least > 0.5 {
            return best.0;
        }
        share = interpolated(newest, opposite, replaced).unwrap_or(0.5).clamp(least, 1.0 - least);
    }
    newest.0
}

/// The share of the way from the newest to the opposite point at which the inverse parabola through three points is
/// zero, if this parabola is monotonic between them.
fn interpolated(newest: (f64, f64), opposite: (f64, f64), replaced: (f64, f64)) -> Option<f64> {
    let [(a, fa), (b, fb), (c, fc)] = [newest, opposite, replaced];
    let (xi, phi) = ((a - b) / (c - b), (fa - fb) / (fc - fb));
    let is_safe = phi * phi < xi && (1.0 - phi).powi(2) < 1.0 - xi;
    is_safe.then(|| fa / (fb - fa) * fc / (fb - fc) + (c - a) / (b - a) * fa / (fc - fa) * fb / (fc - fb))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn roots_are_found_in_few_steps() {
        let steps = Cell::new(0);
        let counted = |value: f64| {
            steps.set(steps.get() + 1);
            value
        };
        let near = |found: f64, expected: f64| assert!((found - expected).abs() < 1e-15, "{found} {expected}");
        near(root(|x| counted(x * x - 2.0), 0.0, 2.0), 2f64.sqrt());
        assert!(steps.get() < 15, "{}", steps.get());
        near(root(|x| x.powi(9) - 1e-9, -0.5, 4.0), 0.1);
        near(root(|x| (x - 0.3).cbrt(), -1.0, 7.0), 0.3);
        near(root(|x| x, -1.0, 1.0), 0.0);
        assert_eq!((root(|x| x, -1.0, 0.0), root(|x| x, 0.0, 1.0)), (0.0, 0.0), "a root at an end");
    }
}
