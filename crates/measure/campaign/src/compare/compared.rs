//! What the pairs of a combination say, or those of several.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use super::failures::Failures;
use super::judge::{Conclusion, Effect, Judged};
use super::pairs::{LostPair, Set};
use crate::campaign::Better;

/// What the pairs of a combination and a score say.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize)]
#[schemars(title = "Compared pairs")]
pub struct Compared {
    /// The levels of the other factors; none for all combinations together.
    pub levels: BTreeMap<String, String>,
    /// The score.
    pub score: String,
    /// Its unit.
    pub unit: String,
    /// Which scores are better; null if not known.
    pub better: Option<Better>,
    /// What the pairs say of the new version.
    pub conclusion: Conclusion,
    /// The difference; null with fewer than two pairs.
    pub effect: Option<Effect>,
    /// The number of combinations and scores that are judged together.
    pub combinations: usize,
    /// How often one version alone has no score.
    pub failures: Failures,
    /// The number of pairs with both scores.
    pub pairs: usize,
    /// The number of these of which a run was disturbed.
    pub disturbed: usize,
    /// The pairs that do not count.
    pub lost: Vec<LostPair>,
    /// What the undisturbed pairs say alone; null if that is not something else.
    pub undisturbed: Option<Undisturbed>,
}

/// What the undisturbed pairs say alone.
#[derive(Clone, Copy, Debug, PartialEq, JsonSchema, Serialize)]
#[schemars(title = "Undisturbed pairs")]
pub struct Undisturbed {
    /// What they say of the new version.
    pub conclusion: Conclusion,
    /// The difference; null with fewer than two pairs.
    pub effect: Option<Effect>,
    /// Their number.
    pub pairs: usize,
}

impl Compared {
    /// What a set says.
    pub(super) fn of(set: &Set, Judged { conclusion, effect, failures }: Judged) -> Compared {
        Compared {
            levels: set.levels.clone(),
            score: set.score.clone(),
            unit: set.unit.clone(),
            better: set.better,
            conclusion,
            effect,
            combinations: 1,
            failures,
            pairs: set.pairs.len(),
            disturbed: set.pairs.iter().filter(|pair| pair.is_disturbed).count(),
            lost: set.lost.clone(),
            undisturbed: None,
        }
    }

    /// Whether the versions were shown to differ by less than the margin, at this level.
    pub(super) fn is_within_margin(&self, level: f64) -> bool {
        self.effect.is_some_and(|effect| effect.is_within(level))
    }

    /// Adds what undisturbed pairs say, if that is something else.
    pub(super) fn add(&mut self, calm: Option<&Compared>) {
        let other = match calm {
            Some(calm) => Undisturbed { conclusion: calm.conclusion, effect: calm.effect, pairs: calm.pairs },
            None => Undisturbed { conclusion: Conclusion::TooFewPairs, effect: None, pairs: 0 },
        };
        if self.disturbed > 0 && other.conclusion != self.conclusion {
            self.undisturbed = Some(other);
        }
    }
}
