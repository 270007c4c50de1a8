//! Analysis of variance: which factors of an experiment matter, and which of their levels differ.
//!
//! The model is linear with fixed effects (Scheffé, *The Analysis of Variance*). Sums of squares are sequential (type
//! I): each term explains what is left by those before it. In a balanced experiment, where each combination of levels
//! has the same number of runs, the order of the terms changes nothing. In an unbalanced one it does: a term's test is
//! then that of its effect after the earlier terms, not after the later ones, so put first what is to be adjusted for.
//!
//! Runs are first gathered by combination of levels. This takes one pass over a million of runs; the rest depends only
//! on the number of combinations.
//!
//! ```
//! use bellows_stats::{Factor, Model, anova};
//!
//! let scores = [6.1, 6.0, 5.9, 7.2, 7.1, 6.9, 6.0, 6.2, 5.8, 7.9, 8.1, 8.0];
//! let version = Factor::new("version", "a a a b b b a a a b b b".split(' '));
//! let size = Factor::new("size", "64 64 64 64 64 64 256 256 256 256 256 256".split(' '));
//! let factors = [version, size];
//! let found = anova(&scores, &factors, &Model::parse("version * size", &factors)?)?;
//! assert!(found.term("version:size").unwrap().p < 0.001);
//! let contrasts = found.tukey("version", 0.95)?.contrasts;
//! assert_eq!(contrasts[0].to_string(), "b - a: 1.53333 [1.34117, 1.7255], p 7.8e-8");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod blocks;
mod cells;
mod common;
mod factors;
mod project;
mod tukey;

use std::borrow::Cow;
use std::fmt;

use thiserror::Error;

pub use blocks::MAX_BLOCKS;
pub use common::{Adjustment, CommonContrast, CommonContrasts, MAX_MEANS};
pub use factors::{Factor, FactorError, MAX_CROSSED, Model, ModelError};
pub use tukey::{Contrast, LevelMean, Tukey, TukeyError};

use crate::distribution::{Distribution, FRatio};
use blocks::Blocks;
use cells::Cells;
use project::{Projection, Projector};

/// Maximum number of effects, which bounds the time to some seconds.
pub const MAX_EFFECTS: usize = 2_000;

/// The analysis of an experiment.
pub struct Anova {
    /// The terms of the model, in its order.
    pub terms: Vec<TermRow>,
    /// Degrees of freedom of the residuals.
    pub residual_df: f64,
    /// Sum of squares of the residuals, in the square of the scores' unit.
    pub residual_squares: f64,
    /// Number of runs with a score.
    pub runs: usize,
    /// Number of runs without a score (not a number), which are left out.
    pub missing: usize,
    /// Whether each combination of levels that was run has the same number of scores, and none of them is empty.
    pub is_balanced: bool,
    /// Degrees of freedom of the blocks, whose effects the scores were analysed without; 0 without blocks, or if no
    /// combination was run in two of them.
    pub block_df: usize,
    cells: Cells,
    blocks: Option<Blocks>,
    factors: Vec<Named>,
    projections: Vec<Projection>,
}

/// A factor of the model, without the level of each run.
struct Named {
    /// Index among the factors given.
    index: usize,
    name: String,
    levels: Vec<String>,
}

/// A term of an analysis of variance.
#[derive(Clone, Debug, PartialEq)]
pub struct TermRow {
    /// The names of its factors, joined by `:`.
    pub label: String,
    /// Indices of its factors, among those given.
    pub factors: Vec<usize>,
    /// Degrees of freedom. 0 if earlier terms explain everything that the term could; `f` and `p` are then not numbers.
    pub df: f64,
    /// Sum of squares after the earlier terms, in the square of the scores' unit.
    pub squares: f64,
    /// Mean square over that of the residuals.
    pub f: f64,
    /// The probability of at least this ratio if the term has no effect.
    pub p: f64,
}

/// Why scores cannot be analysed.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum AnovaError {
    /// A factor has more or fewer values than there are scores.
    #[error(
        "factor {factor} has the levels of {levels} runs, but there are {scores} scores; use NaN for a missing score"
    )]
    Length {
        /// Name of the factor.
        factor: String,
        /// Number of its values.
        levels: usize,
        /// Number of scores.
        scores: usize,
    },
    /// The model was made for more factors.
    #[error("the model has factor number {index}, but {factors} factors are given, counted from 0")]
    NoSuchFactor {
        /// Index of the factor.
        index: usize,
        /// Number of factors given.
        factors: usize,
    },
    /// A score is infinite.
    #[error("the score of run {row} is {score}; use NaN for a missing score")]
    Infinite {
        /// The run, from 0.
        row: usize,
        /// The score.
        score: f64,
    },
    /// A factor does not vary among the runs with a score.
    #[error("all runs with a score have the same level of factor {factor}; leave it out of the model")]
    OneLevel {
        /// Name of the factor.
        factor: String,
    },
    /// No degrees of freedom are left for the residuals.
    #[error(
        "{runs} runs with a score cannot tell {effects} effects from noise; repeat runs, or leave out interactions"
    )]
    NoResiduals {
        /// Number of runs with a score.
        runs: usize,
        /// Number of effects of the model, with the overall mean.
        effects: usize,
    },
    /// All scores are what the model says, to the last digits.
    #[error("the runs of each combination have the same score, so nothing can be told about noise")]
    NoNoise,
    /// There are too many blocks.
    #[error("the runs are of {blocks} blocks, more than {MAX_BLOCKS}; leave the blocks out of the model")]
    TooManyBlocks {
        /// Their number.
        blocks: usize,
    },
    /// The model has too many effects.
    #[error("the model has {effects} effects, more than {MAX_EFFECTS}; leave out interactions")]
    TooManyEffects {
        /// Number of combinations of levels of all terms.
        effects: usize,
    },
}

/// Analyses scores, one a run, by the factors of the runs.
///
/// A score that is not a number is that of a run which failed: it is left out and counted in [`Anova::missing`].
///
/// # Errors
///
/// [`AnovaError`] says what cannot be analysed, and what to change.
pub fn anova(scores: &[f64], factors: &[Factor], model: &Model) -> Result<Anova, AnovaError> {
    let used = used_factors(model, factors)?;
    check_scores(scores, factors, &used)?;
    let cells = Cells::gather(scores, factors, &used);
    check_levels(&cells, factors, &used)?;
    analyse(cells, scores.len(), factors, &used, model, None)
}

/// Analyses scores like [`anova`], and takes away what differs between blocks: runs that have something in common which
/// is no factor, such as their machine, given like a factor. Blocks are an additive term of the model: the score of a run
/// is that of its combination of levels, plus what its block adds to all combinations, plus noise.
///
/// What blocks add is estimated by least squares within the combinations of levels of the model's factors. So
/// differences of such combinations, and of their means over others ([`Anova::common_contrasts`]), have the standard
/// error of the model with the blocks, however many runs are missing. If some are, sums of squares of terms, and
/// [`Anova::tukey`], take the effects of blocks for known. With one block this is [`anova`].
///
/// # Errors
///
/// As for [`anova`]; [`AnovaError::TooManyBlocks`] for more than [`MAX_BLOCKS`], and [`AnovaError::NoResiduals`] also if
/// the blocks leave nothing for the noise: then the analysis without blocks may.
pub fn anova_in_blocks(
    scores: &[f64],
    factors: &[Factor],
    model: &Model,
    blocks: &Factor,
) -> Result<Anova, AnovaError> {
    let used = used_factors(model, factors)?;
    check_scores(scores, factors, &used)?;
    check_length(scores, blocks)?;
    let cells = Cells::gather(scores, factors, &used);
    check_levels(&cells, factors, &used)?;
    match Blocks::of(&cells, scores, blocks)? {
        None => analyse(cells, scores.len(), factors, &used, model, None),
        Some(blocks) => {
            let cells = Cells::gather(&blocks.removed(scores), factors, &used);
            analyse(cells, scores.len(), factors, &used, model, Some(blocks))
        }
    }
}

/// Analyses scores like [`anova_in_blocks`], or like [`anova`] if there are no blocks, or too many, or if they leave
/// nothing for the noise, so that what differs between blocks is noise: see [`Anova::blocks`].
///
/// # Errors
///
/// As for [`anova`].
pub fn anova_within(
    scores: &[f64],
    factors: &[Factor],
    model: &Model,
    blocks: Option<&Factor>,
) -> Result<Anova, AnovaError> {
    let Some(blocks) = blocks else { return anova(scores, factors, model) };
    match anova_in_blocks(scores, factors, model, blocks) {
        Err(AnovaError::NoResiduals { .. } | AnovaError::TooManyBlocks { .. } | AnovaError::NoNoise) => {
            anova(scores, factors, model)
        }
        found => found,
    }
}

/// Analyses runs in cells, of scores without the effects of blocks.
fn analyse(
    cells: Cells,
    scores: usize,
    factors: &[Factor],
    used: &[usize],
    model: &Model,
    blocks: Option<Blocks>,
) -> Result<Anova, AnovaError> {
    let named = |&index: &usize| Named {
        index,
        name: factors[index].name().to_owned(),
        levels: factors[index].levels().to_vec(),
    };
    let factors: Vec<Named> = used.iter().map(named).collect();
    let (projections, projector) = project(&cells, &factors, model)?;
    let block_df = blocks.as_ref().map_or(0, |blocks| blocks.df);
    let effects = 1 + block_df + projections.iter().map(|part| part.df).sum::<usize>();
    let runs = cells.count as usize;
    if runs <= effects {
        return Err(AnovaError::NoResiduals { runs, effects });
    }
    let (residual_df, residual_squares) = ((runs - effects) as f64, cells.within + projector.unexplained());
    let explained: f64 = projections.iter().map(|part| part.squares).sum();
    let largest = cells.cells.iter().map(|cell| cell.mean.abs()).fold(0.0, f64::max);
    // What remains of equal scores is their rounding.
    if residual_squares <= (explained + cells.count * largest * largest) * f64::EPSILON.powi(2) * 16.0 {
        return Err(AnovaError::NoNoise);
    }
    let row = |(term, part): (&Vec<usize>, &Projection)| {
        let df = part.df as f64;
        let f = part.squares / df / (residual_squares / residual_df);
        let ratio = FRatio { numerator: df, denominator: residual_df };
        let (f, p) = if df > 0.0 { (f, ratio.upper_tail(f)) } else { (f64::NAN, f64::NAN) };
        TermRow { label: label(term, &factors), factors: term.clone(), df, squares: part.squares, f, p }
    };
    Ok(Anova {
        terms: model.terms().iter().zip(&projections).map(row).collect(),
        residual_df,
        residual_squares,
        runs,
        missing: scores - runs,
        is_balanced: is_balanced(&cells, &factors),
        block_df,
        cells,
        blocks,
        factors,
        projections,
    })
}

impl Anova {
    /// The row of a term, by the names of its factors, joined by `:` in any order.
    pub fn term(&self, label: &str) -> Option<&TermRow> {
        let names = |label: &'_ str| {
            let mut names: Vec<String> = label.split(':').map(|name| name.trim().to_owned()).collect();
            names.sort();
            names
        };
        self.terms.iter().find(|row| names(&row.label) == names(label))
    }

    /// The mean square of the residuals: the estimate of the variance of noise.
    pub fn residual_mean_square(&self) -> f64 {
        self.residual_squares / self.residual_df
    }

    /// The residual of each run: its score less what the model says; not a number where the score is missing. `scores`
    /// are those that were analysed.
    pub fn residuals(&self, scores: &[f64]) -> Vec<f64> {
        let fitted = self.fitted();
        let scores = self.without_blocks(scores);
        let residual = |(cell, score): (Option<usize>, &f64)| cell.map_or(f64::NAN, |cell| score - fitted[cell]);
        self.cells.of_rows().zip(scores.iter()).map(residual).collect()
    }

    /// The scores without what their blocks add; the same scores if there are no blocks. `scores` are those that were
    /// analysed.
    pub fn without_blocks<'s>(&self, scores: &'s [f64]) -> Cow<'s, [f64]> {
        self.blocks.as_ref().map_or(Cow::Borrowed(scores), |blocks| Cow::Owned(blocks.removed(scores)))
    }

    /// The number of blocks whose effects the scores were analysed without: 1 if there are none.
    pub fn blocks(&self) -> usize {
        self.blocks.as_ref().filter(|blocks| blocks.df > 0).map_or(1, Blocks::count)
    }

    /// The combination of levels of each run, numbered from 0; `None` where the score is missing.
    pub fn combinations(&self) -> impl Iterator<Item = Option<usize>> + '_ {
        self.cells.of_rows()
    }

    /// What the model says of each cell.
    fn fitted(&self) -> Vec<f64> {
        let parts = |cell: usize| self.projections.iter().map(|part| part.values[cell]).sum::<f64>();
        (0..self.cells.cells.len()).map(|cell| self.cells.mean + parts(cell)).collect()
    }

    /// The places of a term's factors in the codes of cells.
    fn places(&self, term: &[usize]) -> Vec<usize> {
        places(term, &self.factors)
    }
}

impl fmt::Debug for Anova {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Anova");
        debug.field("terms", &self.terms).field("residual_df", &self.residual_df);
        debug.field("residual_squares", &self.residual_squares).finish_non_exhaustive()
    }
}

/// The factors that a model names, in rising order.
fn used_factors(model: &Model, factors: &[Factor]) -> Result<Vec<usize>, AnovaError> {
    let mut used: Vec<usize> = model.terms().concat();
    used.sort_unstable();
    used.dedup();
    match used.iter().find(|&&index| index >= factors.len()) {
        Some(&index) => Err(AnovaError::NoSuchFactor { index, factors: factors.len() }),
        None => Ok(used),
    }
}

fn check_scores(scores: &[f64], factors: &[Factor], used: &[usize]) -> Result<(), AnovaError> {
    used.iter().try_for_each(|&index| check_length(scores, &factors[index]))?;
    match scores.iter().position(|score| score.is_infinite()) {
        Some(row) => Err(AnovaError::Infinite { row, score: scores[row] }),
        None => Ok(()),
    }
}

fn check_length(scores: &[f64], factor: &Factor) -> Result<(), AnovaError> {
    let (factor, levels, scores) = (factor.name(), factor.codes().len(), scores.len());
    if levels == scores { Ok(()) } else { Err(AnovaError::Length { factor: factor.to_owned(), levels, scores }) }
}

fn check_levels(cells: &Cells, factors: &[Factor], used: &[usize]) -> Result<(), AnovaError> {
    for (place, &index) in used.iter().enumerate() {
        let mut codes = cells.cells.iter().map(|cell| cell.codes[place]);
        let first = codes.next();
        if codes.all(|code| Some(code) == first) {
            return Err(AnovaError::OneLevel { factor: factors[index].name().to_owned() });
        }
    }
    Ok(())
}

fn project(cells: &Cells, factors: &[Named], model: &Model) -> Result<(Vec<Projection>, Projector), AnovaError> {
    let groups: Vec<_> = model.terms().iter().map(|term| cells.groups(&places(term, factors))).collect();
    // A term that has each cell for itself needs no directions.
    let effects = groups.iter().map(Vec::len).filter(|&count| count < cells.cells.len()).sum();
    if effects > MAX_EFFECTS {
        return Err(AnovaError::TooManyEffects { effects });
    }
    let mut projector = Projector::new(cells);
    let projections = groups.iter().map(|groups| projector.project(groups)).collect();
    Ok((projections, projector))
}

/// Whether all combinations of levels that occur at all were run equally often.
fn is_balanced(cells: &Cells, factors: &[Named]) -> bool {
    let levels = |place: usize| cells.groups(&[place]).len();
    let combinations: usize = (0..factors.len()).map(levels).product();
    cells.cells.len() == combinations && cells.cells.iter().all(|cell| cell.count == cells.cells[0].count)
}

fn places(term: &[usize], factors: &[Named]) -> Vec<usize> {
    factors.iter().enumerate().filter(|(_, factor)| term.contains(&factor.index)).map(|(place, _)| place).collect()
}

fn label(term: &[usize], factors: &[Named]) -> String {
    places(term, factors).iter().map(|&place| factors[place].name.as_str()).collect::<Vec<&str>>().join(":")
}

#[cfg(test)]
mod tests;
