//! The cells of rows: which combination of levels they have.

use std::collections::HashMap;

use crate::results::Results;

/// The cell of each row of results: the combination of levels of a term, and that of the other factors.
pub(crate) struct Cells {
    /// The cell of the term of each row.
    pub(crate) term: Vec<u32>,
    /// The levels of each cell of the term.
    pub(crate) names: Vec<Vec<String>>,
    /// The combination of the other factors of each row.
    pub(crate) rest: Vec<u32>,
}

impl Cells {
    /// The cells of a term. A factor that the results do not have has one level, which has no name.
    pub(crate) fn of(results: &Results, term: &[String]) -> Cells {
        let first = vec![0; results.len()];
        let mut cells = Cells { term: first.clone(), names: vec![Vec::new()], rest: first };
        for name in term {
            match results.factor(name) {
                Some(factor) => {
                    let levels = factor.levels.all();
                    let pairs = cross(&mut cells.term, cells.names.len(), &factor.rows, levels.len());
                    let name_of = |(cell, level): (u32, u32)| {
                        let mut name = cells.names[cell as usize].clone();
                        name.push(levels[level as usize].clone());
                        name
                    };
                    cells.names = pairs.into_iter().map(name_of).collect();
                }
                None => cells.names.iter_mut().for_each(|levels| levels.push(String::new())),
            }
        }
        let mut count = 1;
        for factor in results.factors.iter().filter(|factor| !term.contains(&factor.name)) {
            count = cross(&mut cells.rest, count, &factor.rows, factor.levels.all().len()).len();
        }
        cells
    }

    /// The number of the cell of the term with these levels.
    pub(crate) fn number(&self, levels: &[String]) -> Option<usize> {
        self.names.iter().position(|name| name == levels)
    }
}

/// Splits the cells of rows by their levels: each row gets the number of its pair of both. Returns the pairs.
fn cross(cells: &mut [u32], count: usize, rows: &[u32], levels: usize) -> Vec<(u32, u32)> {
    const NONE: u32 = u32::MAX;
    const MAX_TABLE: usize = 1 << 22;
    let mut pairs = Vec::new();
    let mut number = |pair: (u32, u32)| {
        pairs.push(pair);
        pairs.len() as u32 - 1
    };
    let rows = cells.iter_mut().zip(rows);
    match count.saturating_mul(levels) {
        // A table is faster than hashes.
        size @ ..=MAX_TABLE => {
            let mut table = vec![NONE; size];
            for (cell, level) in rows {
                let known = &mut table[*cell as usize * levels + *level as usize];
                if *known == NONE {
                    *known = number((*cell, *level));
                }
                *cell = *known;
            }
        }
        _ => {
            let mut known: HashMap<(u32, u32), u32> = HashMap::new();
            for (cell, level) in rows {
                *cell = *known.entry((*cell, *level)).or_insert_with(|| number((*cell, *level)));
            }
        }
    }
    pairs
}
