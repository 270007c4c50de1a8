//! How often one version alone has no score, and whether that is chance.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use super::pairs::Set;

/// How often one version alone has no score. Pairs on two machines do not count.
#[derive(Clone, Copy, Debug, PartialEq, JsonSchema, Serialize)]
#[schemars(title = "Failures of one version")]
pub struct Failures {
    /// Pairs in which the new version alone has no score.
    pub new_alone: usize,
    /// Pairs in which the old version alone has none.
    pub old_alone: usize,
    /// Pairs with both scores.
    pub both: usize,
    /// The probability of such numbers if both versions fail equally often (McNemar's exact test), corrected for all
    /// comparisons.
    pub corrected_p: f64,
}

impl Failures {
    /// Those of sets, whose scores are of the same runs where they have the same levels.
    pub(super) fn of(sets: &[&Set]) -> Failures {
        let mut pairs = BTreeMap::new();
        for set in sets {
            let found = set.pairs.iter().map(|pair| (pair.block, [true, true]));
            let lost = set.lost.iter().filter(|lost| !lost.is_of_two_machines);
            for (block, has) in found.chain(lost.map(|lost| (lost.block, [lost.has_old, lost.has_new]))) {
                let known = pairs.entry((&set.levels, block)).or_insert([true, true]);
                *known = [known[0] && has[0], known[1] && has[1]];
            }
        }
        let count = |wanted: [bool; 2]| pairs.values().filter(|has| **has == wanted).count();
        let (new_alone, old_alone) = (count([true, false]), count([false, true]));
        Failures { new_alone, old_alone, both: count([true, true]), corrected_p: 1.0 }
    }

    /// The probability, not corrected. None if so few pairs differ that it cannot be within the level: such a test
    /// needs no place among those that are corrected (Tarone, *Biometrics* 46, 1990).
    pub(super) fn p(&self, level: f64) -> Option<f64> {
        let number = self.new_alone + self.old_alone;
        (2.0 * half_to(number) <= level).then(|| sign_test(self.new_alone.max(self.old_alone), number))
    }

    /// Whether the new version was shown to fail more often: by the test, or as it alone fails in more than half of
    /// the pairs in which the old one has a score, which alone never fails.
    pub(super) fn are_of_new(&self, level: f64) -> bool {
        is_more(self.new_alone, self.old_alone, self.both, self.corrected_p <= level)
    }

    /// The same of the old version.
    pub(super) fn are_of_old(&self, level: f64) -> bool {
        is_more(self.old_alone, self.new_alone, self.both, self.corrected_p <= level)
    }
}

fn is_more(one: usize, other: usize, both: usize, is_shown: bool) -> bool {
    (is_shown && one > other) || (other == 0 && one > both)
}

fn half_to(number: usize) -> f64 {
    0.5f64.powi(number.min(1_000) as i32)
}

/// The probability that of `number` signs, each of which is plus or minus alike, at least `larger` agree.
fn sign_test(larger: usize, number: usize) -> f64 {
    let mut logarithm = number as f64 * 0.5f64.ln();
    let mut sum = logarithm.exp();
    for count in (larger + 1..=number).rev() {
        logarithm += (count as f64 / (number - count + 1) as f64).ln();
        sum += logarithm.exp();
    }
    (2.0 * sum).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// R's `binom.test(larger, number)`.
    #[test]
    fn signs_have_their_probability() {
        let near = |found: f64, expected: f64| assert!((found / expected - 1.0).abs() < 1e-6, "{found} {expected}");
        near(sign_test(8, 10), 0.109_375);
        near(sign_test(10, 10), 0.001_953_125);
        near(sign_test(60, 100), 0.056_887_933_6);
        near(sign_test(5, 10), 1.0);
    }

    #[test]
    fn failures_of_one_version_count_if_they_are_many() {
        let failures = |new_alone, old_alone, both, corrected_p| Failures { new_alone, old_alone, both, corrected_p };
        assert!(failures(10, 0, 2, 1.0).are_of_new(0.05) && failures(2, 0, 1, 1.0).are_of_new(0.05));
        assert!(!failures(1, 0, 1, 1.0).are_of_new(0.05) && !failures(5, 0, 7, 0.2).are_of_new(0.05));
        assert!(failures(8, 1, 30, 0.04).are_of_new(0.05) && !failures(8, 1, 30, 0.04).are_of_old(0.05));
        assert!(failures(0, 10, 2, 1.0).are_of_old(0.05));
        assert_eq!((failures(3, 2, 9, 1.0).p(0.05), failures(10, 0, 2, 1.0).p(0.05)), (None, Some(0.5f64.powi(9))));
    }
}
