//! Sequential projections of the scores onto the terms of a model.
//!
//! Everything is weighted: a cell of n runs counts as n rows, which is done by scaling its row with √n. A term spans
//! the indicators of its combinations of levels; what earlier terms span already is removed by Gram and Schmidt's
//! method, twice, which is as accurate as Householder's reflections (Giraud, Langou and Rozložník, *Computers and
//! Mathematics with Applications* 50, 2005).

use super::cells::{CellGroup, Cells};

/// A direction of which less than this share is new depends on the others. R's `lm` has the same limit.
const DEPENDENT: f64 = 1e-7;

/// What remains of the scores as the terms are projected away.
pub(super) struct Projector {
    /// Square root of the number of runs of each cell.
    weights: Vec<f64>,
    /// Orthonormal directions of the intercept and the terms so far.
    basis: Vec<Vec<f64>>,
    /// Number of directions of the terms so far: those of the basis, or all.
    rank: usize,
    /// What the terms so far do not explain.
    rest: Vec<f64>,
}

/// The part of the scores that a term explains after those before it.
pub(super) struct Projection {
    /// Number of directions that the term adds.
    pub(super) df: usize,
    /// Sum of squares over all runs.
    pub(super) squares: f64,
    /// Its value in each cell.
    pub(super) values: Vec<f64>,
}

impl Projector {
    /// Starts with the intercept: the scores are those of the means of the cells less the overall mean.
    pub(super) fn new(cells: &Cells) -> Projector {
        let weights: Vec<f64> = cells.cells.iter().map(|cell| cell.count.sqrt()).collect();
        let intercept = weights.iter().map(|weight| weight / cells.count.sqrt()).collect();
        let rest = cells.cells.iter().zip(&weights).map(|(cell, weight)| weight * (cell.mean - cells.mean)).collect();
        Projector { weights, basis: vec![intercept], rank: 1, rest }
    }

    /// Projects onto a term, and removes its part.
    pub(super) fn project(&mut self, groups: &[CellGroup]) -> Projection {
        // A term that has each cell for itself explains all that remains; nothing remains after such a term.
        if groups.len() == self.weights.len() || self.rank == self.weights.len() {
            return self.project_all();
        }
        let first = self.basis.len();
        for group in groups {
            self.extend(group);
        }
        self.rank = self.basis.len();
        let mut explained = vec![0.0; self.rest.len()];
        for direction in &self.basis[first..] {
            let effect = dot(direction, &self.rest);
            add(&mut explained, effect, direction);
        }
        add(&mut self.rest, -1.0, &explained);
        self.projection(self.basis.len() - first, explained)
    }

    /// Explains all that remains.
    fn project_all(&mut self) -> Projection {
        let explained = std::mem::take(&mut self.rest);
        self.rest = vec![0.0; explained.len()];
        let before = std::mem::replace(&mut self.rank, explained.len());
        self.projection(explained.len() - before, explained)
    }

    fn projection(&self, df: usize, explained: Vec<f64>) -> Projection {
        let squares = dot(&explained, &explained);
        Projection {
            df,
            squares,
            values: explained.iter().zip(&self.weights).map(|(part, weight)| part / weight).collect(),
        }
    }

    /// Adds the direction of the indicator of a group, unless it depends on the others.
    fn extend(&mut self, group: &CellGroup) {
        let mut direction = vec![0.0; self.weights.len()];
        group.cells.iter().for_each(|&cell| direction[cell] = self.weights[cell]);
        let before = group.count.sqrt();
        for _ in 0..2 {
            for other in &self.basis {
                let share = dot(other, &direction);
                add(&mut direction, -share, other);
            }
        }
        let length = dot(&direction, &direction).sqrt();
        if length > DEPENDENT * before {
            direction.iter_mut().for_each(|part| *part /= length);
            self.basis.push(direction);
        }
    }

    /// Sum of squares of the means of cells that no term explains.
    pub(super) fn unexplained(&self) -> f64 {
        dot(&self.rest, &self.rest)
    }
}

fn dot(one: &[f64], other: &[f64]) -> f64 {
    one.iter().zip(other).map(|(one, other)| one * other).sum()
}

fn add(to: &mut [f64], factor: f64, other: &[f64]) {
    to.iter_mut().zip(other).for_each(|(to, other)| *to += factor * other);
}
