//! Tukey's honestly significant differences, by Tukey and Kramer where groups have unequal numbers of runs (Hayter,
//! *Annals of Statistics* 12, 1984, proves that these err on the safe side).

use std::fmt;

use thiserror::Error;

use super::cells::CellGroup;
use super::{Anova, TermRow};
use crate::distribution::{Distribution, StudentizedRange};

/// The comparisons of each two levels of a term.
#[derive(Clone, Debug, PartialEq)]
pub struct Tukey {
    /// The term: names of factors, joined by `:`.
    pub term: String,
    /// The mean of each level, or of each combination of levels that was run; the first factor varies fastest.
    pub means: Vec<LevelMean>,
    /// Each two of them: (1, 0), (2, 0), …, (2, 1), ….
    pub contrasts: Vec<Contrast>,
    /// The probability with which all intervals together contain the true differences.
    pub confidence: f64,
    /// The quantile of the studentized range to which the intervals reach.
    pub quantile: f64,
}

/// The mean of a level of a factor, or of a combination of levels.
#[derive(Clone, Debug, PartialEq)]
pub struct LevelMean {
    /// Names of levels, joined by `:`.
    pub label: String,
    /// The mean, in the unit of the scores; in an unbalanced experiment adjusted for the terms before.
    pub mean: f64,
    /// Number of runs.
    pub runs: usize,
}

/// The difference of two means.
#[derive(Clone, Debug, PartialEq)]
pub struct Contrast {
    /// Index of the mean from which the other is subtracted.
    pub minuend: usize,
    /// Index of the mean that is subtracted.
    pub subtrahend: usize,
    /// Both labels, as `minuend - subtrahend`.
    pub label: String,
    /// The difference, in the unit of the scores.
    pub difference: f64,
    /// Lower end of the simultaneous confidence interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
    /// The probability of at least this difference anywhere among the means of the term, if they are all equal: it is
    /// adjusted for the number of comparisons.
    pub p: f64,
}

impl fmt::Display for Contrast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [difference, low, high] = [self.difference, self.low, self.high].map(six_digits);
        write!(f, "{}: {difference} [{low}, {high}], p ", self.label)?;
        if self.p < 1e-4 { write!(f, "{:.1e}", self.p) } else { write!(f, "{}", six_digits(self.p)) }
    }
}

/// A number with up to six significant digits.
fn six_digits(value: f64) -> f64 {
    format!("{value:.5e}").parse().unwrap_or(value)
}

/// Why levels cannot be compared.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum TukeyError {
    /// The analysis has no such term.
    #[error("the model has no term {term:?}; its terms are {known}")]
    UnknownTerm {
        /// The term asked for.
        term: String,
        /// The terms of the model.
        known: String,
    },
    /// The confidence is no probability.
    #[error("the confidence of intervals is {confidence}, but must lie between 0 and 1, such as 0.95")]
    Confidence {
        /// The confidence asked for.
        confidence: f64,
    },
}

impl Anova {
    /// Compares each two levels of a term, or combinations of levels of an interaction (`snabb:config`), with intervals
    /// that all together have this confidence, such as 0.95.
    ///
    /// All k means of the term count, of which each two are compared by the studentized range of k means. In a balanced
    /// experiment the means are those of the runs. In an unbalanced one they are adjusted for earlier terms in the same
    /// way as R's `TukeyHSD` does it: the overall mean, and the mean over the level's runs of what the term and the
    /// terms within it explain. Such a mean is the best estimate only if the numbers of runs are nearly equal; for
    /// strongly unequal ones, analyse one factor at a time. Combinations without a run are left out.
    ///
    /// # Errors
    ///
    /// [`TukeyError`] if the model has no such term, or if the confidence is not between 0 and 1.
    pub fn tukey(&self, term: &str, confidence: f64) -> Result<Tukey, TukeyError> {
        let (row, means) = (self.known_term(term)?, self.means(term)?);
        if !(confidence > 0.0 && confidence < 1.0) {
            return Err(TukeyError::Confidence { confidence });
        }
        let range = StudentizedRange::new(means.len() as u32, self.residual_df);
        let quantile = range.upper_quantile(1.0 - confidence);
        let contrast = |subtrahend: usize, minuend: usize| {
            let [one, other] = [&means[minuend], &means[subtrahend]];
            let variance = self.residual_mean_square() / 2.0 * (1.0 / one.runs as f64 + 1.0 / other.runs as f64);
            let (difference, error) = (one.mean - other.mean, variance.sqrt());
            Contrast {
                minuend,
                subtrahend,
                label: format!("{} - {}", one.label, other.label),
                difference,
                low: difference - quantile * error,
                high: difference + quantile * error,
                p: range.upper_tail(difference.abs() / error),
            }
        };
        let pairs = (0..means.len()).flat_map(|one| (one + 1..means.len()).map(move |other| (one, other)));
        let contrasts = pairs.map(|(one, other)| contrast(one, other)).collect();
        Ok(Tukey { term: row.label.clone(), contrasts, means, confidence, quantile })
    }

    /// The means that [`Anova::tukey`] compares.
    ///
    /// # Errors
    ///
    /// [`TukeyError::UnknownTerm`] if the model has no such term.
    pub fn means(&self, term: &str) -> Result<Vec<LevelMean>, TukeyError> {
        let term = &self.known_term(term)?.factors;
        let places = self.places(term);
        let within = |row: &TermRow| row.factors.iter().all(|factor| term.contains(factor));
        let parts: Vec<_> = self.terms.iter().zip(&self.projections).filter(|(row, _)| within(row)).collect();
        let explained = |cell: usize| parts.iter().map(|(_, part)| part.values[cell]).sum::<f64>();
        let groups = self.sorted_groups(&places);
        let mean = |group: &CellGroup| {
            let sum: f64 = group.cells.iter().map(|&cell| self.cells.cells[cell].count * explained(cell)).sum();
            let levels = group.codes.iter().zip(&places);
            let names = levels.map(|(&code, &place)| self.factors[place].levels[code as usize].as_str());
            LevelMean {
                label: names.collect::<Vec<&str>>().join(":"),
                mean: self.cells.mean + sum / group.count,
                runs: group.count as usize,
            }
        };
        Ok(groups.iter().map(mean).collect())
    }

    /// The cells of each mean, the first factor varying fastest.
    pub(super) fn sorted_groups(&self, places: &[usize]) -> Vec<CellGroup> {
        let mut groups = self.cells.groups(places);
        groups.sort_by(|one, other| one.codes.iter().rev().cmp(other.codes.iter().rev()));
        groups
    }

    pub(super) fn known_term(&self, term: &str) -> Result<&TermRow, TukeyError> {
        self.term(term).ok_or_else(|| self.unknown_term(term))
    }

    pub(super) fn unknown_term(&self, term: &str) -> TukeyError {
        let known = self.terms.iter().map(|row| row.label.as_str()).collect::<Vec<&str>>().join(", ");
        TukeyError::UnknownTerm { term: term.to_owned(), known }
    }
}
