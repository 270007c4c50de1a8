//! Blocks: what runs have in common that is no factor, such as the machine that made them.
//!
//! The score of a run is the mean of its combination of levels, plus the effect of its block, plus noise: blocks are an
//! additive term. Their effects are estimated by least squares from the runs of each combination in several blocks
//! (Scheffé, *The Analysis of Variance*, section 5.2), and subtracted from the scores; the rest of the analysis is that
//! of the scores that remain, with fewer degrees of freedom. If each block has each combination equally often, nothing
//! but the noise changes: it loses the variance between blocks.

use std::collections::HashMap;

use super::AnovaError;
use super::cells::Cells;
use super::factors::Factor;

/// Maximum number of blocks.
pub const MAX_BLOCKS: usize = 256;

/// A block without a run that has a score.
const NONE: u32 = u32::MAX;

/// The effects of blocks, and what differences of cells inherit from their uncertainty.
pub(super) struct Blocks {
    /// The number of the block of each run.
    of_rows: Vec<u32>,
    /// The effect of each block, in the unit of the scores, against the first one of its part.
    effects: Vec<f64>,
    /// Blocks that have a combination in common, directly or by others, are of the same part. Differences between parts
    /// may be those of their combinations.
    parts: Vec<usize>,
    /// For each cell, the share of its runs in each block that it has runs in.
    shares: Vec<Vec<(usize, f64)>>,
    /// The variances of the effects, over that of noise, as rows of a symmetric matrix.
    variances: Vec<Vec<f64>>,
    /// The number of effects that were estimated.
    pub(super) df: usize,
}

/// What a difference of means of cells inherits from the blocks.
pub(super) struct Inherited {
    /// A variance, over that of noise.
    pub(super) variance: f64,
    /// Whether the difference may be one of blocks, since no combination joins the blocks of its two sides.
    pub(super) is_confounded: bool,
}

impl Blocks {
    /// Estimates the effects of the blocks of runs that are gathered in cells. `None` if all are of one block.
    pub(super) fn of(cells: &Cells, scores: &[f64], blocks: &Factor) -> Result<Option<Blocks>, AnovaError> {
        let (of_rows, count) = numbered(cells, blocks);
        match count {
            0 | 1 => return Ok(None),
            2..=MAX_BLOCKS => {}
            blocks => return Err(AnovaError::TooManyBlocks { blocks }),
        }
        let mut runs: HashMap<(usize, usize), f64> = HashMap::new();
        let mut sums = vec![0.0; count];
        for (row, (cell, score)) in cells.of_rows().zip(scores).enumerate() {
            let Some(cell) = cell else { continue };
            let block = of_rows[row] as usize;
            *runs.entry((cell, block)).or_default() += 1.0;
            sums[block] += score - cells.cells[cell].mean;
        }
        let mut shares = vec![Vec::new(); cells.cells.len()];
        runs.into_iter().for_each(|((cell, block), runs)| shares[cell].push((block, runs / cells.cells[cell].count)));
        // Rounding is the same each time.
        shares.iter_mut().for_each(|shares| shares.sort_by_key(|(block, _)| *block));
        let parts = parts(&shares, count);
        let (effects, variances) = solve(&information(cells, &shares, count), &sums, &parts);
        let df = parts.iter().enumerate().filter(|(block, part)| block != *part).count();
        Ok(Some(Blocks { of_rows, effects, parts, shares, variances, df }))
    }

    /// Scores less the effects of their blocks.
    pub(super) fn removed(&self, scores: &[f64]) -> Vec<f64> {
        let effect = |block: u32| self.effects.get(block as usize).copied().unwrap_or(0.0);
        scores.iter().zip(&self.of_rows).map(|(score, block)| score - effect(*block)).collect()
    }

    /// The number of blocks.
    pub(super) fn count(&self) -> usize {
        self.effects.len()
    }

    /// What a sum of means of cells, with these weights, inherits.
    pub(super) fn inherited(&self, weights: impl Iterator<Item = (usize, f64)>) -> Inherited {
        let mut sums = vec![0.0; self.effects.len()];
        for (cell, weight) in weights {
            self.shares[cell].iter().for_each(|(block, share)| sums[*block] += weight * share);
        }
        let mut of_parts = vec![0.0; sums.len()];
        sums.iter().zip(&self.parts).for_each(|(sum, part)| of_parts[*part] += sum);
        let row = |row: &Vec<f64>| row.iter().zip(&sums).map(|(variance, sum)| variance * sum).sum::<f64>();
        let variance: f64 = self.variances.iter().zip(&sums).map(|(variances, sum)| sum * row(variances)).sum();
        // Weights of differences are 1 and -1 in all.
        Inherited { variance: variance.max(0.0), is_confounded: of_parts.iter().any(|sum| sum.abs() > 1e-6) }
    }
}

/// Numbers the blocks of runs that have a score, and counts them.
fn numbered(cells: &Cells, blocks: &Factor) -> (Vec<u32>, usize) {
    let mut numbers = vec![NONE; blocks.levels().len()];
    let mut count = 0;
    cells.of_rows().zip(blocks.codes()).filter(|(cell, _)| cell.is_some()).for_each(|(_, block)| {
        let number = &mut numbers[*block as usize];
        if *number == NONE {
            *number = count;
            count += 1;
        }
    });
    let of_rows = blocks.codes().iter().map(|block| numbers[*block as usize]).collect();
    (of_rows, count as usize)
}

/// The first block of the part that each block is of.
fn parts(shares: &[Vec<(usize, f64)>], count: usize) -> Vec<usize> {
    let mut parts: Vec<usize> = (0..count).collect();
    for shares in shares {
        let Some(&(first, _)) = shares.first() else { continue };
        for &(other, _) in shares {
            let (kept, joined) = (parts[first].min(parts[other]), parts[first].max(parts[other]));
            if kept != joined {
                parts.iter_mut().filter(|part| **part == joined).for_each(|part| *part = kept);
            }
        }
    }
    parts
}

/// The matrix of the normal equations of the effects: for each block its runs, less what the means of cells take away.
fn information(cells: &Cells, shares: &[Vec<(usize, f64)>], count: usize) -> Vec<Vec<f64>> {
    let mut matrix = vec![vec![0.0; count]; count];
    for (cell, shares) in cells.cells.iter().zip(shares) {
        for &(one, share) in shares {
            matrix[one][one] += cell.count * share;
            shares.iter().for_each(|&(other, of_other)| matrix[one][other] -= cell.count * share * of_other);
        }
    }
    matrix
}

/// Solves the normal equations, with an effect of 0 for the first block of each part. Returns the effects, and the
/// inverse of the matrix. Without the first blocks it is positive definite, so that no pivot is 0.
fn solve(matrix: &[Vec<f64>], sums: &[f64], parts: &[usize]) -> (Vec<f64>, Vec<Vec<f64>>) {
    let count = sums.len();
    let free: Vec<usize> = (0..count).filter(|block| parts[*block] != *block).collect();
    // Beside the matrix stands the unit matrix, which becomes the inverse (Gauss and Jordan).
    let mut rows: Vec<Vec<f64>> = free
        .iter()
        .enumerate()
        .map(|(place, &block)| {
            let unit = (0..free.len()).map(|other| f64::from(u8::from(other == place)));
            free.iter().map(|&other| matrix[block][other]).chain(unit).collect()
        })
        .collect();
    for pivot in 0..free.len() {
        let scale = rows[pivot][pivot];
        rows[pivot].iter_mut().for_each(|value| *value /= scale);
        let own = rows[pivot].clone();
        for (_, row) in rows.iter_mut().enumerate().filter(|(place, _)| *place != pivot) {
            let factor = row[pivot];
            row.iter_mut().zip(&own).for_each(|(value, own)| *value -= factor * own);
        }
    }
    let (mut effects, mut inverse) = (vec![0.0; count], vec![vec![0.0; count]; count]);
    for (row, &block) in rows.iter().zip(&free) {
        for (value, &other) in row[free.len()..].iter().zip(&free) {
            inverse[block][other] = *value;
            effects[block] += value * sums[other];
        }
    }
    (effects, inverse)
}

#[cfg(test)]
mod tests {
    use fastrand::Rng;

    use crate::anova::{Adjustment, Anova, AnovaError, Factor, Model, anova, anova_in_blocks, anova_within};

    /// Scores of programs and sizes on machines: a third of the runs is missing at random.
    struct Runs {
        scores: Vec<f64>,
        factors: [Factor; 2],
        machines: Factor,
    }

    fn runs(seed: u64, share: f64, machines: usize) -> Runs {
        let mut random = Rng::with_seed(seed);
        let (mut rows, mut scores) = (Vec::new(), Vec::new());
        for (machine, program, size, _) in (0..machines * 2 * 3 * 4)
            .map(|row| (row % machines, row / machines % 2, row / machines / 2 % 3, row / machines / 6))
        {
            let noise = (0..12).map(|_| random.f64()).sum::<f64>() - 6.0;
            if random.f64() < share {
                rows.push((machine.to_string(), program.to_string(), size.to_string()));
                scores.push(100.0 * machine as f64 + 10.0 * size as f64 + program as f64 + noise);
            }
        }
        let factors = [
            Factor::new("program", rows.iter().map(|row| row.1.as_str())),
            Factor::new("size", rows.iter().map(|row| row.2.as_str())),
        ];
        Runs { machines: Factor::new("machine", rows.iter().map(|row| row.0.as_str())), factors, scores }
    }

    fn analysed(runs: &Runs, formula: &str) -> Anova {
        let model = Model::parse(formula, &runs.factors).unwrap();
        anova_in_blocks(&runs.scores, &runs.factors, &model, &runs.machines).unwrap()
    }

    fn close(one: f64, other: f64) {
        assert!((one - other).abs() < 1e-8 * other.abs().max(1.0), "{one} {other}");
    }

    /// A naive model of it: least squares with a column for each machine, program and size.
    fn least_squares(runs: &Runs, columns: &[Vec<f64>], contrast: &[f64]) -> (f64, f64, f64) {
        let width = columns.len();
        let dot = |one: &[f64], other: &[f64]| one.iter().zip(other).map(|(one, other)| one * other).sum::<f64>();
        let mut rows: Vec<Vec<f64>> = (0..width)
            .map(|one| {
                let squares = (0..width).map(|other| dot(&columns[one], &columns[other]));
                squares.chain([dot(&columns[one], &runs.scores), contrast[one]]).collect()
            })
            .collect();
        for pivot in 0..width {
            let scale = rows[pivot][pivot];
            rows[pivot].iter_mut().for_each(|value| *value /= scale);
            for row in (0..width).filter(|row| *row != pivot) {
                let (factor, own) = (rows[row][pivot], rows[pivot].clone());
                rows[row].iter_mut().zip(own).for_each(|(value, own)| *value -= factor * own);
            }
        }
        let (effects, shares): (Vec<f64>, Vec<f64>) = rows.iter().map(|row| (row[width], row[width + 1])).unzip();
        let fitted =
            |row: usize| columns.iter().zip(&effects).map(|(column, effect)| column[row] * effect).sum::<f64>();
        let squares: f64 = runs.scores.iter().enumerate().map(|(row, score)| (score - fitted(row)).powi(2)).sum();
        let df = (runs.scores.len() - width) as f64;
        (dot(&effects, contrast), (squares / df * dot(contrast, &shares)).sqrt(), df)
    }

    #[test]
    fn contrasts_are_those_of_least_squares_with_a_column_for_each_machine() {
        for seed in 0..20 {
            let runs = runs(seed, 0.65, 3);
            let found = analysed(&runs, "program*size");
            let [programs, sizes] = runs.factors.each_ref().map(|factor| factor.codes().to_vec());
            let is = |codes: &[u32], level: u32| -> Vec<bool> { codes.iter().map(|code| *code == level).collect() };
            // A column for each cell, and for each machine but the first.
            let mut columns: Vec<Vec<f64>> = Vec::new();
            let as_column = |is: &[bool]| is.iter().map(|is| f64::from(u8::from(*is))).collect::<Vec<f64>>();
            for (size, program) in (0..3).flat_map(|size| [(size, 0), (size, 1)]) {
                let both: Vec<bool> =
                    is(&sizes, size).iter().zip(is(&programs, program)).map(|(one, other)| *one && other).collect();
                columns.push(as_column(&both));
            }
            (1..3).for_each(|machine| columns.push(as_column(&is(runs.machines.codes(), machine))));
            let third = 1.0 / 3.0;
            let contrast = [-third, third, -third, third, -third, third, 0.0, 0.0];
            let (difference, error, df) = least_squares(&runs, &columns, &contrast);
            let common = found.common_contrasts("program", &[(1, 0)], 0.95).unwrap();
            close(common.contrasts[0].difference, difference);
            close(common.contrasts[0].error, error);
            close(found.residual_df, df);
            assert!(!common.contrasts[0].is_confounded && found.block_df == 2);
            let residuals = found.residuals(&runs.scores);
            close(residuals.iter().map(|residual| residual.powi(2)).sum(), found.residual_squares);
        }
    }

    #[test]
    fn complete_blocks_change_the_noise_alone() {
        let runs = runs(1, 2.0, 3);
        let model = Model::parse("program*size", &runs.factors).unwrap();
        let (with, without) = (analysed(&runs, "program*size"), anova(&runs.scores, &runs.factors, &model).unwrap());
        let compared = [&with, &without].map(|found| found.common_contrasts("program", &[(1, 0)], 0.95).unwrap());
        let [one, other] = compared.each_ref().map(|common| &common.contrasts[0]);
        close(one.difference, other.difference);
        assert!(one.error < other.error / 20.0 && one.error > 0.0, "{} {}", one.error, other.error);
        assert_eq!((with.residual_df, without.residual_df, compared[0].adjustment), (64.0, 66.0, Adjustment::Tukey));
        close(with.term("program").unwrap().squares, without.term("program").unwrap().squares);
        // What both sides lose is the sum of squares between machines.
        let mean = runs.scores.iter().sum::<f64>() / 72.0;
        let between: f64 = (0..3)
            .map(|machine| {
                let own = runs.scores.iter().zip(runs.machines.codes()).filter(|(_, code)| **code == machine);
                24.0 * (own.map(|(score, _)| score).sum::<f64>() / 24.0 - mean).powi(2)
            })
            .sum();
        close(without.residual_squares - with.residual_squares, between);
    }

    #[test]
    fn one_block_is_none() {
        let runs = runs(2, 0.8, 1);
        let model = Model::parse("program*size", &runs.factors).unwrap();
        let (with, without) = (analysed(&runs, "program*size"), anova(&runs.scores, &runs.factors, &model).unwrap());
        assert_eq!((with.block_df, with.residual_df), (0, without.residual_df));
        assert_eq!(with.terms, without.terms);
    }

    #[test]
    fn blocks_that_no_combination_joins_are_confounded_with_it() {
        let both = |program: &'static str, machine: &'static str, mean: f64| {
            [-1.0, 1.0, -1.0, 1.0].map(|noise| (program, machine, mean + noise))
        };
        let rows = [both("a", "x", 1.0), both("a", "y", 2.0), both("b", "z", 9.0)].concat();
        let factors = [Factor::new("program", rows.iter().map(|row| row.0))];
        let machines = Factor::new("machine", rows.iter().map(|row| row.1));
        let scores: Vec<f64> = rows.iter().map(|row| row.2).collect();
        let model = Model::parse("program", &factors).unwrap();
        let found = anova_in_blocks(&scores, &factors, &model, &machines).unwrap();
        let contrast = &found.common_contrasts("program", &[(1, 0)], 0.95).unwrap().contrasts[0];
        assert!(contrast.is_confounded && found.block_df == 1 && found.residual_df == 9.0);
        // A machine that has both programs joins them all.
        let rows = [rows, both("b", "x", 8.0).to_vec()].concat();
        let factors = [Factor::new("program", rows.iter().map(|row| row.0))];
        let machines = Factor::new("machine", rows.iter().map(|row| row.1));
        let scores: Vec<f64> = rows.iter().map(|row| row.2).collect();
        let found = anova_in_blocks(&scores, &factors, &model, &machines).unwrap();
        let contrast = &found.common_contrasts("program", &[(1, 0)], 0.95).unwrap().contrasts[0];
        assert!(!contrast.is_confounded && found.block_df == 2);
        // Only machine x has both.
        close(contrast.difference, 7.0);
    }

    #[test]
    fn blocks_that_leave_nothing_for_noise_are_an_error() {
        let factors = [Factor::new("program", ["a", "b", "a", "b", "a", "b"])];
        let machines = Factor::new("machine", ["1", "2", "3", "4", "5", "6"]);
        let model = Model::parse("program", &factors).unwrap();
        let scores = [1.0, 2.0, 3.0, 4.0, 5.0, 7.0];
        let found = anova_in_blocks(&scores, &factors, &model, &machines);
        assert_eq!(found.err(), Some(AnovaError::NoResiduals { runs: 6, effects: 6 }));
        let without = anova_within(&scores, &factors, &model, Some(&machines)).unwrap();
        assert_eq!((without.blocks(), without.residual_df), (1, 4.0));
        assert_eq!(without.terms, anova_within(&scores, &factors, &model, None).unwrap().terms);
        let short = Factor::new("machine", ["1", "2"]);
        let found = anova_in_blocks(&scores, &factors, &model, &short);
        assert!(matches!(found, Err(AnovaError::Length { factor, levels: 2, scores: 6 }) if factor == "machine"));
        let many = Factor::new("machine", (0..600).map(|run| (run / 2).to_string()));
        let factors = [Factor::new("program", (0..600).map(|run| ["a", "b"][run % 2]))];
        let scores: Vec<f64> = (0..600).map(|run| f64::from(run * 7 % 11)).collect();
        let found = anova_in_blocks(&scores, &factors, &model, &many);
        assert_eq!(found.err(), Some(AnovaError::TooManyBlocks { blocks: 300 }));
    }

    #[test]
    fn failed_runs_have_no_part() {
        let mut runs = runs(3, 0.7, 3);
        let whole = analysed(&runs, "program*size");
        let last = runs.machines.levels().len().to_string();
        let codes = runs.machines.codes().iter().copied().chain([3]).collect();
        let levels = [runs.machines.levels(), &[last][..]].concat();
        runs.machines = Factor::with_levels("machine", levels, codes).unwrap();
        runs.scores.push(f64::NAN);
        runs.factors = runs.factors.map(|factor| {
            let codes = factor.codes().iter().copied().chain([0]).collect();
            Factor::with_levels(factor.name(), factor.levels().to_vec(), codes).unwrap()
        });
        let found = analysed(&runs, "program*size");
        assert_eq!((&found.terms, found.residual_df, found.missing), (&whole.terms, whole.residual_df, 1));
        assert!(found.residuals(&runs.scores).last().unwrap().is_nan());
    }
}
