//! Factors, and models of which of them matter.

use std::collections::HashMap;
use std::hash::Hash;

use thiserror::Error;

/// A factor of an experiment: a name, levels, and the level of each run.
#[derive(Clone, Debug, PartialEq)]
pub struct Factor {
    name: String,
    levels: Vec<String>,
    codes: Vec<u32>,
}

impl Factor {
    /// A factor from the level of each run. The levels are in the order of their first appearance.
    pub fn new<S>(name: impl Into<String>, values: impl IntoIterator<Item = S>) -> Factor
    where
        S: AsRef<str> + Hash + Eq,
    {
        let mut known: HashMap<S, u32> = HashMap::new();
        let mut levels: Vec<String> = Vec::new();
        let mut code = |value: S| match known.get(&value) {
            Some(code) => *code,
            None => {
                let code = levels.len() as u32;
                levels.push(value.as_ref().to_owned());
                known.insert(value, code);
                code
            }
        };
        let codes = values.into_iter().map(&mut code).collect();
        Factor { name: name.into(), levels, codes }
    }

    /// A factor with its levels in a given order, of which `codes` has the index for each run.
    ///
    /// # Errors
    ///
    /// If a code is not the index of a level.
    pub fn with_levels(name: impl Into<String>, levels: Vec<String>, codes: Vec<u32>) -> Result<Factor, FactorError> {
        let name = name.into();
        match codes.iter().position(|&code| code as usize >= levels.len()) {
            Some(row) => Err(FactorError { name, row, code: codes[row], levels: levels.len() }),
            None => Ok(Factor { name, levels, codes }),
        }
    }

    /// The same factor with its levels sorted by name, which is the order that R gives them.
    #[must_use]
    pub fn sorted(self) -> Factor {
        let mut order: Vec<usize> = (0..self.levels.len()).collect();
        order.sort_by(|&one, &other| self.levels[one].cmp(&self.levels[other]));
        let mut places = vec![0; order.len()];
        order.iter().zip(0..).for_each(|(&index, place)| places[index] = place);
        let codes = self.codes.iter().map(|&code| places[code as usize]).collect();
        let levels = order.iter().map(|&index| self.levels[index].clone()).collect();
        Factor { name: self.name, levels, codes }
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The names of the levels.
    pub fn levels(&self) -> &[String] {
        &self.levels
    }

    /// The index of the level of each run.
    pub fn codes(&self) -> &[u32] {
        &self.codes
    }
}

/// A run has a level that the factor lacks.
#[derive(Clone, Debug, Error, PartialEq)]
#[error("run {row} of factor {name} has level number {code}, but there are {levels} levels, counted from 0")]
pub struct FactorError {
    name: String,
    row: usize,
    code: u32,
    levels: usize,
}

/// Which factors and interactions an analysis accounts for, in this order: each term is a set of factors.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// Indices of factors, in rising order.
    terms: Vec<Vec<usize>>,
}

/// Maximum number of terms in one product of a formula, which stands for all of their interactions.
pub const MAX_CROSSED: usize = 10;

/// What is wrong with a model.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum ModelError {
    /// A name in a formula is that of no factor.
    #[error("formula {formula:?} has {name:?}, which is no factor; the factors are {known}")]
    UnknownFactor {
        /// The formula.
        formula: String,
        /// The name in it.
        name: String,
        /// The names of all factors.
        known: String,
    },
    /// A term has the index of no factor.
    #[error("a term has factor number {index}, but there are {factors} factors, counted from 0")]
    NoSuchFactor {
        /// The index.
        index: usize,
        /// Number of factors.
        factors: usize,
    },
    /// A product crosses more than [`MAX_CROSSED`] terms.
    #[error(
        "formula {formula:?} crosses {count} terms; at most {MAX_CROSSED} can be, name the interactions of interest"
    )]
    TooManyCrossed {
        /// The formula.
        formula: String,
        /// Number of terms that one product crosses.
        count: usize,
    },
    /// The model has no terms.
    #[error("the model has no terms; name at least one factor")]
    Empty,
}

impl Model {
    /// Reads a formula in the notation of Wilkinson and Rogers: terms joined by `+`, each a factor (`snabb`), an
    /// interaction (`snabb:config`), or factors with all their interactions (`snabb*config`).
    ///
    /// Main effects come first, then interactions of two, and so on, each in the order of the formula. Names of factors
    /// that contain `+`, `*` or `:` need [`Model::new`].
    ///
    /// # Errors
    ///
    /// [`ModelError::UnknownFactor`] with the names that exist, [`ModelError::TooManyCrossed`] or
    /// [`ModelError::Empty`].
    pub fn parse(formula: &str, factors: &[Factor]) -> Result<Model, ModelError> {
        if formula.trim().is_empty() {
            return Err(ModelError::Empty);
        }
        let find = |name: &str| {
            let unknown = || ModelError::UnknownFactor {
                formula: formula.to_owned(),
                name: name.trim().to_owned(),
                known: factors.iter().map(Factor::name).collect::<Vec<&str>>().join(", "),
            };
            factors.iter().position(|factor| factor.name == name.trim()).ok_or_else(unknown)
        };
        let interaction = |text: &str| text.split(':').map(find).collect::<Result<Vec<usize>, ModelError>>();
        let mut terms: Vec<Vec<usize>> = Vec::new();
        for sum in formula.split('+') {
            let crossed: Vec<Vec<usize>> = sum.split('*').map(interaction).collect::<Result<_, _>>()?;
            if crossed.len() > MAX_CROSSED {
                return Err(ModelError::TooManyCrossed { formula: formula.to_owned(), count: crossed.len() });
            }
            let subsets = (1u64..1 << crossed.len()).map(|set| {
                let members = crossed.iter().enumerate().filter(|(place, _)| set >> place & 1 == 1);
                members.flat_map(|(_, term)| term.clone()).collect()
            });
            terms.extend(subsets);
        }
        Model::new(terms, factors.len())
    }

    /// A model of these terms, each a set of indices into the factors, of which there are `factors`.
    ///
    /// The terms are brought into the order of [`Model::parse`], and each is kept once.
    ///
    /// # Errors
    ///
    /// [`ModelError::NoSuchFactor`] or [`ModelError::Empty`].
    pub fn new(terms: impl IntoIterator<Item = Vec<usize>>, factors: usize) -> Result<Model, ModelError> {
        let mut sorted: Vec<Vec<usize>> = Vec::new();
        for mut term in terms {
            term.sort_unstable();
            term.dedup();
            if let Some(&index) = term.iter().find(|&&index| index >= factors) {
                return Err(ModelError::NoSuchFactor { index, factors });
            }
            if !term.is_empty() && !sorted.contains(&term) {
                sorted.push(term);
            }
        }
        if sorted.is_empty() {
            return Err(ModelError::Empty);
        }
        sorted.sort_by_key(Vec::len);
        Ok(Model { terms: sorted })
    }

    /// The terms: indices of factors, in rising order.
    pub fn terms(&self) -> &[Vec<usize>] {
        &self.terms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn factors() -> Vec<Factor> {
        ["snabb", "config", "kernel"].map(|name| Factor::new(name, ["b", "a"])).into()
    }

    fn terms(formula: &str) -> Result<Vec<Vec<usize>>, ModelError> {
        Model::parse(formula, &factors()).map(|model| model.terms)
    }

    #[test]
    fn formulas_are_those_of_wilkinson_and_rogers() {
        assert_eq!(terms("snabb").unwrap(), [[0]]);
        assert_eq!(terms("config + snabb").unwrap(), [[1], [0]]);
        assert_eq!(terms("snabb*config").unwrap(), [vec![0], vec![1], vec![0, 1]]);
        assert_eq!(terms("config:snabb + kernel").unwrap(), [vec![2], vec![0, 1]], "main effects first");
        assert_eq!(terms("snabb * config * kernel").unwrap().len(), 7);
        assert_eq!(terms("snabb*config + config + snabb:config").unwrap().len(), 3, "each term once");
    }

    #[test]
    fn errors_of_formulas_name_the_factors() {
        assert_eq!(terms(" "), Err(ModelError::Empty));
        assert_eq!(
            terms("snabb*konfig").unwrap_err().to_string(),
            "formula \"snabb*konfig\" has \"konfig\", which is no factor; the factors are snabb, config, kernel"
        );
        assert_eq!(Model::new([vec![0, 3]], 3), Err(ModelError::NoSuchFactor { index: 3, factors: 3 }));
        assert!(matches!(terms(&["snabb"; 11].join("*")), Err(ModelError::TooManyCrossed { count: 11, .. })));
        assert_eq!(Model::new([vec![]], 3), Err(ModelError::Empty));
    }

    #[test]
    fn levels_have_the_order_of_their_first_appearance_or_of_their_names() {
        let factor = Factor::new("schedule", ["native", "interpreted", "native"]);
        assert_eq!((factor.levels().join(" "), factor.codes()), ("native interpreted".to_owned(), &[0, 1, 0][..]));
        let sorted = factor.sorted();
        assert_eq!((sorted.levels().join(" "), sorted.codes()), ("interpreted native".to_owned(), &[1, 0, 1][..]));
        assert!(Factor::with_levels("size", vec!["64".into()], vec![0, 0]).is_ok());
        assert_eq!(
            Factor::with_levels("size", vec!["64".into()], vec![0, 1]).unwrap_err().to_string(),
            "run 1 of factor size has level number 1, but there are 1 levels, counted from 0"
        );
    }
}
