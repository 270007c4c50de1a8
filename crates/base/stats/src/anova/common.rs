//! Differences of two levels over the combinations of the other factors that both have, each with the same weight: what
//! other levels were run how often then cannot shift a difference, however unbalanced the experiment is.

use std::collections::HashMap;

use super::tukey::TukeyError;
use super::{Anova, cells::CellGroup};
use crate::distribution::{Distribution, StudentT, StudentizedRange};

/// Maximum number of means that are compared by Tukey's method; of more, pairs are compared by Bonferroni's.
pub const MAX_MEANS: usize = 64;

/// How intervals and probabilities hold for all comparisons together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adjustment {
    /// By the studentized range of all means (Tukey and Kramer): all of them are means over the same combinations.
    Tukey,
    /// By the number of comparisons: pairs have different combinations in common, or there are too many means.
    Bonferroni,
}

/// Differences over common combinations.
#[derive(Clone, Debug, PartialEq)]
pub struct CommonContrasts {
    /// The term: names of factors, joined by `:`.
    pub term: String,
    /// Number of means of the term.
    pub means: usize,
    /// Whether all means are over the same combinations of the other factors.
    pub is_crossed: bool,
    /// How the intervals are made.
    pub adjustment: Adjustment,
    /// The number of comparisons that intervals and probabilities are corrected for.
    pub comparisons: usize,
    /// The probability with which all intervals together contain the true differences.
    pub confidence: f64,
    /// The pairs asked for that have a combination in common.
    pub contrasts: Vec<CommonContrast>,
}

/// The difference of two levels over the combinations of the other factors that both have.
#[derive(Clone, Debug, PartialEq)]
pub struct CommonContrast {
    /// Index, in [`Anova::means`], of the level from which the other is subtracted.
    pub minuend: usize,
    /// Index of the level that is subtracted.
    pub subtrahend: usize,
    /// The number of common combinations of the other factors.
    pub combinations: usize,
    /// The number of combinations of the other factors that one of both alone has, which are left out.
    pub left_out: usize,
    /// The runs of the minuend and of the subtrahend in the common combinations.
    pub runs: [usize; 2],
    /// Whether the difference may be one of blocks, because no combination was run in blocks of both sides. Then it is
    /// not corrected for them.
    pub is_confounded: bool,
    /// The mean of the minuend over them, each with the same weight, in the unit of the scores.
    pub minuend_mean: f64,
    /// That of the subtrahend.
    pub subtrahend_mean: f64,
    /// The difference of both means.
    pub difference: f64,
    /// Its standard error, from the residual mean square of the analysis.
    pub error: f64,
    /// Lower end of the simultaneous confidence interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
    /// The probability of such a difference without a true one, adjusted for the number of comparisons.
    pub p: f64,
}

impl Anova {
    /// Compares pairs of levels of a factor, or of combinations of levels of several (`snabb:config`), given by their
    /// indices in the order of [`Anova::means`], minuend first. They need not be a term of the model. The difference is
    /// the mean, over the combinations of the model's other factors that both levels have, of the difference of the two
    /// means of runs there. Pairs with none in common are left out.
    ///
    /// The standard error is √(MSE/m² · Σ(1/n₁ + 1/n₂)) over the m combinations, or more if blocks lack some of them
    /// ([`anova_in_blocks`](super::anova_in_blocks)). MSE is the residual mean square, so the last term of the model
    /// should be the interaction of all factors, for which it is the scatter within combinations. In a balanced
    /// experiment differences and intervals are those of [`Anova::tukey`].
    ///
    /// # Errors
    ///
    /// [`TukeyError`] if the model lacks one of the factors, or if the confidence is not between 0 and 1.
    ///
    /// # Panics
    ///
    /// If an index is not that of a mean.
    pub fn common_contrasts(
        &self,
        term: &str,
        pairs: &[(usize, usize)],
        confidence: f64,
    ) -> Result<CommonContrasts, TukeyError> {
        let places = self.known_factors(term)?;
        if !(confidence > 0.0 && confidence < 1.0) {
            return Err(TukeyError::Confidence { confidence });
        }
        let levels: Vec<HashMap<Vec<u32>, usize>> =
            self.sorted_groups(&places).iter().map(|group| self.others(group, &places)).collect();
        let mut contrasts: Vec<CommonContrast> =
            pairs.iter().filter_map(|&(minuend, subtrahend)| self.common(&levels, minuend, subtrahend)).collect();
        let means = levels.len();
        let is_crossed = levels.iter().all(|level| {
            level.len() == levels[0].len() && level.keys().all(|combination| levels[0].contains_key(combination))
        });
        let adjustment = if is_crossed && means <= MAX_MEANS { Adjustment::Tukey } else { Adjustment::Bonferroni };
        let comparisons = match adjustment {
            Adjustment::Tukey => means * (means - 1) / 2,
            Adjustment::Bonferroni => contrasts.len(),
        };
        let (range, t) = (StudentizedRange::new(means as u32, self.residual_df), StudentT { df: self.residual_df });
        // In standard errors of a difference; the range is in those of a mean. That of two means is Student's t.
        let root = std::f64::consts::SQRT_2;
        let is_range = adjustment == Adjustment::Tukey && means > 2;
        let reach = match is_range {
            true => range.upper_quantile(1.0 - confidence) / root,
            false => t.upper_quantile((1.0 - confidence) / 2.0 / comparisons.max(1) as f64),
        };
        for contrast in &mut contrasts {
            contrast.low = contrast.difference - reach * contrast.error;
            contrast.high = contrast.difference + reach * contrast.error;
            let distance = (contrast.difference / contrast.error).abs();
            contrast.p = match is_range {
                true => range.upper_tail(distance * root),
                false => (2.0 * t.upper_tail(distance) * comparisons as f64).min(1.0),
            };
        }
        Ok(CommonContrasts {
            term: places.iter().map(|&place| self.factors[place].name.as_str()).collect::<Vec<&str>>().join(":"),
            means,
            is_crossed,
            adjustment,
            comparisons,
            confidence,
            contrasts,
        })
    }

    /// The places of factors, joined by `:`, in the codes of cells. A term of the model may have names with a `:`.
    fn known_factors(&self, term: &str) -> Result<Vec<usize>, TukeyError> {
        let place = |name: &str| self.factors.iter().position(|factor| factor.name == name.trim());
        let mut places = match self.term(term) {
            Some(row) => self.places(&row.factors),
            None => term.split(':').map(place).collect::<Option<_>>().ok_or_else(|| self.unknown_term(term))?,
        };
        places.sort_unstable();
        places.dedup();
        Ok(places)
    }

    /// The cells of a level by the levels of the other factors.
    fn others(&self, group: &CellGroup, places: &[usize]) -> HashMap<Vec<u32>, usize> {
        let others = |cell: usize| {
            let codes = self.cells.cells[cell].codes.iter().enumerate();
            codes.filter(|(place, _)| !places.contains(place)).map(|(_, code)| *code).collect()
        };
        group.cells.iter().map(|&cell| (others(cell), cell)).collect()
    }

    /// A contrast without its interval.
    fn common(&self, levels: &[HashMap<Vec<u32>, usize>], minuend: usize, subtrahend: usize) -> Option<CommonContrast> {
        let (ones, others) = (&levels[minuend], &levels[subtrahend]);
        let mut cells: Vec<(usize, usize)> =
            ones.iter().filter_map(|(codes, one)| Some((*one, *others.get(codes)?))).collect();
        // In the order of the runs, so that rounding is always the same.
        cells.sort_unstable();
        let combinations = cells.len();
        let count = |cell: usize| self.cells.cells[cell].count as usize;
        let share = 1.0 / combinations as f64;
        let mean = |cell: usize| self.cells.cells[cell].mean;
        let minuend_mean: f64 = cells.iter().map(|(one, _)| share * mean(*one)).sum();
        let subtrahend_mean: f64 = cells.iter().map(|(_, other)| share * mean(*other)).sum();
        let inverse = |cell: usize| 1.0 / self.cells.cells[cell].count;
        let inverses: f64 = cells.iter().map(|(one, other)| inverse(*one) + inverse(*other)).sum();
        let weights = cells.iter().flat_map(|(one, other)| [(*one, share), (*other, -share)]);
        let inherited = self.blocks.as_ref().map(|blocks| blocks.inherited(weights));
        let variance = inverses * share * share + inherited.as_ref().map_or(0.0, |inherited| inherited.variance);
        (combinations > 0).then(|| CommonContrast {
            minuend,
            subtrahend,
            combinations,
            left_out: ones.len() + others.len() - 2 * combinations,
            runs: [cells.iter().map(|(one, _)| count(*one)).sum(), cells.iter().map(|(_, other)| count(*other)).sum()],
            is_confounded: inherited.is_some_and(|inherited| inherited.is_confounded),
            minuend_mean,
            subtrahend_mean,
            difference: minuend_mean - subtrahend_mean,
            error: (self.residual_mean_square() * variance).sqrt(),
            low: f64::NAN,
            high: f64::NAN,
            p: f64::NAN,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::anova::{Factor, Model, anova};

    /// Scores of cells (program, size) with these means, each with runs of −1 and +1 around it.
    fn analysed(cells: &[(&str, &str, f64, usize)]) -> Anova {
        let mut rows: Vec<(&str, &str, f64)> = Vec::new();
        for &(program, size, mean, pairs) in cells {
            rows.extend((0..2 * pairs).map(|run| (program, size, mean + if run % 2 == 0 { 1.0 } else { -1.0 })));
        }
        let factors =
            [Factor::new("program", rows.iter().map(|row| row.0)), Factor::new("size", rows.iter().map(|row| row.1))];
        let scores: Vec<f64> = rows.iter().map(|row| row.2).collect();
        anova(&scores, &factors, &Model::parse("program * size", &factors).unwrap()).unwrap()
    }

    fn close(one: f64, other: f64) {
        assert!((one - other).abs() < 1e-9 * other.abs().max(1.0), "{one} {other}");
    }

    #[test]
    fn a_missing_combination_does_not_shift_the_difference() {
        let cells = [
            ("md5", "small", 2.0, 2),
            ("md5", "large", 11.0, 2),
            ("sha", "small", 3.0, 2),
            ("sha", "large", 29.0, 3),
            ("cksum", "small", 90.0, 5),
        ];
        let found = analysed(&cells);
        let sizes = found.common_contrasts("size", &[(1, 0)], 0.95).unwrap();
        let large = &sizes.contrasts[0];
        assert_eq!((large.combinations, sizes.adjustment), (2, Adjustment::Bonferroni));
        assert_eq!((large.left_out, large.runs), (1, [10, 8]), "a program has one size alone");
        close(large.difference, f64::midpoint(9.0, 26.0));
        let mse = found.residual_mean_square();
        close(large.error, (mse / 4.0 * (3.0 / 4.0 + 1.0 / 6.0)).sqrt());
        close(large.high, large.difference + large.error * StudentT { df: found.residual_df }.upper_quantile(0.025));
        let programs = found.common_contrasts("program", &[(1, 0), (2, 0), (2, 1)], 0.95).unwrap();
        assert_eq!((programs.comparisons, programs.means), (3, 3));
        let shown: Vec<(usize, f64)> =
            programs.contrasts.iter().map(|it| (it.combinations, it.difference.round())).collect();
        assert_eq!(shown, [(2, 10.0), (1, 88.0), (1, 87.0)]);
    }

    #[test]
    fn levels_without_a_common_combination_are_not_compared() {
        let found =
            analysed(&[("a", "small", 1.0, 2), ("b", "large", 9.0, 2), ("b", "small", 4.0, 2), ("c", "large", 5.0, 2)]);
        let programs = found.common_contrasts("program", &[(1, 0), (2, 0), (2, 1)], 0.95).unwrap();
        let pairs: Vec<_> = programs.contrasts.iter().map(|it| (it.minuend, it.subtrahend)).collect();
        assert_eq!((pairs, programs.comparisons), (vec![(1, 0), (2, 1)], 2));
    }

    #[test]
    fn balanced_contrasts_are_those_of_tukey() {
        let level = |program: &'static str, mean: f64| ["small", "large"].map(|size| (program, size, mean, 3));
        let found = analysed(&[level("a", 1.0), level("b", 1.5), level("c", 4.0)].concat());
        for term in ["program", "size", "program:size"] {
            let tukey = found.tukey(term, 0.95).unwrap();
            let pairs: Vec<_> = tukey.contrasts.iter().map(|it| (it.minuend, it.subtrahend)).collect();
            let common = found.common_contrasts(term, &pairs, 0.95).unwrap();
            assert_eq!((common.adjustment, common.comparisons), (Adjustment::Tukey, pairs.len()));
            for (one, other) in common.contrasts.iter().zip(&tukey.contrasts) {
                close(one.difference, other.difference);
                close(one.low, other.low);
                close(one.high, other.high);
                close(one.p, other.p);
            }
        }
    }

    #[test]
    fn factors_of_an_interaction_are_compared_without_a_term_of_their_own() {
        let rows = [("a", "small"), ("b", "small"), ("a", "large"), ("b", "large")].repeat(3);
        let factors =
            [Factor::new("program", rows.iter().map(|row| row.0)), Factor::new("size", rows.iter().map(|row| row.1))];
        let scores: Vec<f64> = (0..12).map(|row| f64::from(row % 2) + f64::from(row * 7 % 5) / 5.0).collect();
        let compared = |formula: &str, term: &str| {
            let found = anova(&scores, &factors, &Model::parse(formula, &factors).unwrap()).unwrap();
            found.common_contrasts(term, &[(1, 0)], 0.95)
        };
        for term in ["program", "size", "size:program"] {
            let (one, other) = (compared("program*size", term).unwrap(), compared("program:size", term).unwrap());
            assert_eq!((one.term, one.means, one.is_crossed), (other.term, other.means, other.is_crossed));
            close(one.contrasts[0].difference, other.contrasts[0].difference);
            close(one.contrasts[0].error, other.contrasts[0].error);
            close(one.contrasts[0].p, other.contrasts[0].p);
        }
        let error = compared("program", "size").unwrap_err().to_string();
        assert!(error.contains("\"size\"") && error.contains("its terms are program"), "{error}");
    }

    #[test]
    fn questions_that_make_no_sense_are_errors() {
        let found = analysed(&[("a", "small", 1.0, 2), ("b", "small", 2.0, 2), ("a", "large", 3.0, 2)]);
        assert!(matches!(found.common_contrasts("c", &[], 0.95), Err(TukeyError::UnknownTerm { .. })));
        assert!(matches!(found.common_contrasts("size", &[], 1.0), Err(TukeyError::Confidence { .. })));
        assert_eq!(found.common_contrasts("size", &[], 0.95).unwrap().contrasts, []);
    }
}
