//! Runs gathered by the combination of their levels. All further work is on these cells, however many runs there are.

use std::collections::HashMap;

use super::factors::Factor;

/// The cell of a run without a score.
const NONE: u32 = u32::MAX;

/// The runs with the same level of each factor.
pub(super) struct FactorCell {
    /// The level of each factor.
    pub(super) codes: Vec<u32>,
    /// Number of runs.
    pub(super) count: f64,
    /// Mean score.
    pub(super) mean: f64,
}

/// All combinations of levels that were run.
pub(super) struct Cells {
    pub(super) cells: Vec<FactorCell>,
    /// The index of the cell of each run, or [`NONE`].
    of_rows: Vec<u32>,
    /// Number of runs with a score.
    pub(super) count: f64,
    /// Mean of all scores.
    pub(super) mean: f64,
    /// Sum of the squared distances of scores from the mean of their cell.
    pub(super) within: f64,
}

impl Cells {
    /// Gathers runs by the factors with these indices; scores that are not a number are left out.
    pub(super) fn gather(scores: &[f64], factors: &[Factor], used: &[usize]) -> Cells {
        let mut places = CellPlaces::new(factors, used);
        let mut cells: Vec<FactorCell> = Vec::new();
        let mut codes: Vec<u32> = Vec::with_capacity(used.len());
        let mut place = |row: usize, score: f64| {
            if score.is_nan() {
                return NONE;
            }
            codes.clear();
            codes.extend(used.iter().map(|&factor| factors[factor].codes()[row]));
            let place = *places.of(&codes);
            let place = if place == NONE { cells.len() as u32 } else { place };
            if place as usize == cells.len() {
                *places.of(&codes) = place;
                cells.push(FactorCell { codes: codes.clone(), count: 0.0, mean: 0.0 });
            }
            let cell = &mut cells[place as usize];
            cell.count += 1.0;
            cell.mean += (score - cell.mean) / cell.count;
            place
        };
        let of_rows: Vec<u32> = scores.iter().enumerate().map(|(row, &score)| place(row, score)).collect();
        let count: f64 = cells.iter().map(|cell| cell.count).sum();
        let mean = cells.iter().map(|cell| cell.count / count * cell.mean).sum();
        let mut all = Cells { cells, of_rows, count, mean, within: 0.0 };
        all.within = all.rows(scores).map(|(cell, score)| (score - all.cells[cell].mean).powi(2)).sum();
        all
    }

    /// The cell and the score of each run with a score.
    pub(super) fn rows<'a>(&'a self, scores: &'a [f64]) -> impl Iterator<Item = (usize, f64)> + 'a {
        let all = self.of_rows.iter().zip(scores);
        all.filter(|(cell, _)| **cell != NONE).map(|(&cell, &score)| (cell as usize, score))
    }

    /// The cell of each run, if it has a score.
    pub(super) fn of_rows(&self) -> impl Iterator<Item = Option<usize>> + '_ {
        self.of_rows.iter().map(|&cell| (cell != NONE).then_some(cell as usize))
    }

    /// Groups the cells by their levels of some of the factors, given by their places in the codes.
    pub(super) fn groups(&self, places: &[usize]) -> Vec<CellGroup> {
        let mut known: HashMap<Vec<u32>, usize> = HashMap::new();
        let mut groups: Vec<CellGroup> = Vec::new();
        for (index, cell) in self.cells.iter().enumerate() {
            let codes: Vec<u32> = places.iter().map(|&place| cell.codes[place]).collect();
            let group = *known.entry(codes).or_insert_with_key(|codes| {
                groups.push(CellGroup { codes: codes.clone(), cells: Vec::new(), count: 0.0 });
                groups.len() - 1
            });
            groups[group].cells.push(index);
            groups[group].count += cell.count;
        }
        groups
    }
}

/// The cell of each combination of levels, or [`NONE`].
enum CellPlaces {
    /// All of few combinations, numbered like digits with these numbers of levels.
    Few(Vec<u32>, Vec<usize>),
    /// Those that occur.
    Many(HashMap<Vec<u32>, u32>),
}

impl CellPlaces {
    fn new(factors: &[Factor], used: &[usize]) -> CellPlaces {
        const MAX_FEW: usize = 1 << 20;
        let levels: Vec<usize> = used.iter().map(|&factor| factors[factor].levels().len()).collect();
        match levels.iter().try_fold(1usize, |product, levels| product.checked_mul(*levels)) {
            Some(product) if product <= MAX_FEW => CellPlaces::Few(vec![NONE; product], levels),
            _ => CellPlaces::Many(HashMap::new()),
        }
    }

    fn of(&mut self, codes: &[u32]) -> &mut u32 {
        match self {
            CellPlaces::Few(places, levels) => {
                let number =
                    codes.iter().zip(levels).fold(0, |number, (code, levels)| number * *levels + *code as usize);
                &mut places[number]
            }
            CellPlaces::Many(places) => places.entry(codes.to_vec()).or_insert(NONE),
        }
    }
}

/// The cells with the same levels of some of the factors.
pub(super) struct CellGroup {
    pub(super) codes: Vec<u32>,
    /// Indices of cells.
    pub(super) cells: Vec<usize>,
    /// Number of runs.
    pub(super) count: f64,
}
