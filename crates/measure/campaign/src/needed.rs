//! How many runs show an effect, from the scatter of those that there are.

use bellows_stats::power::{PowerError, TTest, runs_needed, smallest_effect};
use bellows_stats::{AnovaError, Factor, Model, anova_within};
use schemars::JsonSchema;
use serde::Serialize;

use crate::diagnostics::{did_you_mean, listed, quoted};
use crate::results::Results;

/// A difference between the means of two levels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Effect {
    /// In the score's unit.
    Units(f64),
    /// As a share of the mean of all scores: 0.05 is 5 percent.
    Share(f64),
}

/// What is asked.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    /// The factor whose levels are compared.
    pub factor: String,
    /// The score; the only one if nothing.
    pub score: Option<String>,
    /// The difference that is to be found.
    pub effect: Effect,
    /// The probability of finding it, such as 0.8.
    pub power: f64,
    /// The probability of finding one where there is none, for all pairs of levels together, such as 0.05.
    pub level: f64,
}

/// How many runs are needed.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize)]
#[schemars(title = "Needed runs")]
pub struct NeededRuns {
    /// The runs of each level.
    pub runs: u64,
    /// The blocks that have these runs; null if levels have different numbers of combinations.
    ///
    /// The number of blocks that have these runs: the campaign's `repeats`. Nothing if levels have different numbers of
    /// runs in a block.
    pub repeats: Option<u64>,
    /// The difference that is to be found, in the score's unit.
    pub effect: f64,
    /// The unit of the score.
    pub unit: String,
    /// The mean of all scores.
    pub mean: f64,
    /// The standard deviation of runs of the same combination, in the score's unit.
    pub deviation: f64,
    /// The number of runs from which the deviation is known.
    pub from_runs: usize,
    /// The number of pairs of levels, for which the level is corrected.
    pub pairs: u64,
    /// The difference that the runs so far show with this probability; null if they are too few.
    pub shown_so_far: Option<f64>,
}

/// Why the question has no answer.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum NeededError {
    /// A name is unknown.
    #[error("there is no {kind} {}; {help}", quoted(.name))]
    Unknown {
        /// `factor` or `score`.
        kind: &'static str,
        /// The name.
        name: String,
        /// Which there are.
        help: String,
    },
    /// There are several scores.
    #[error("the results have the scores {0}; say which")]
    SeveralScores(String),
    /// The score has several units.
    #[error(
        "runs have the score {} in the units {units}, which have no common mean; give each unit a score of its own, or \
         remove the runs of one",
        quoted(.score)
    )]
    SeveralUnits {
        /// The score.
        score: String,
        /// The units.
        units: String,
    },
    /// There are too few runs.
    #[error("the scatter of runs is not known yet: {0}")]
    Scatter(#[from] AnovaError),
    /// A factor does not vary.
    #[error("all runs have the same level of the factor {}; name another", quoted(.0))]
    OneLevel(String),
    /// There is no mean of which the effect could be a share.
    #[error("the mean of all scores is 0; give the effect in the score's unit")]
    NoMean,
    /// Another argument makes no sense.
    #[error(transparent)]
    Power(#[from] PowerError),
}

/// Computes how many runs of each level are needed to find a difference between two of them, by two-sided t tests. The
/// scatter is that of runs with the same level of all factors, on the same machine; so it is not that between machines
/// or days.
///
/// # Errors
/// Why there is no answer, and the way out.
pub fn needed_runs(results: &Results, question: &Question) -> Result<NeededRuns, NeededError> {
    let factor = results.factor(&question.factor).ok_or_else(|| NeededError::Unknown {
        kind: "factor",
        name: question.factor.clone(),
        help: did_you_mean(&question.factor, results.factors.iter().map(|factor| factor.name.as_str())),
    })?;
    let measure = chosen_score(results, question.score.as_deref())?;
    let rows: Vec<usize> =
        (0..results.len()).filter(|&row| results.measure[row] == measure && !results.scores[row].is_nan()).collect();
    let units = results.units_of(rows.iter().copied());
    if units.len() > 1 {
        let score = results.measures.word(measure).to_owned();
        return Err(NeededError::SeveralUnits { score, units: listed(units) });
    }
    let scores: Vec<f64> = rows.iter().map(|&row| results.scores[row]).collect();
    let column = |rows_of: &[u32]| -> Vec<u32> { rows.iter().map(|&row| rows_of[row]).collect() };
    let varies = |codes: &[u32]| codes.iter().any(|code| *code != codes[0]);
    let codes = column(&factor.rows);
    if !varies(&codes) {
        return Err(NeededError::OneLevel(question.factor.clone()));
    }
    // Runs with the same level of all factors differ by noise alone.
    let varying: Vec<(&crate::FactorColumn, Vec<u32>)> = results
        .factors
        .iter()
        .map(|factor| (factor, column(&factor.rows)))
        .filter(|(_, codes)| varies(codes))
        .collect();
    let factors: Vec<Factor> = varying
        .into_iter()
        .filter_map(|(factor, codes)| Factor::with_levels(&factor.name, factor.levels.all().to_vec(), codes).ok())
        .collect();
    let cells: Vec<usize> = (0..factors.len()).collect();
    // A term of at least one factor, each of which there is.
    let Ok(model) = Model::new([cells], factors.len()) else {
        return Err(NeededError::OneLevel(question.factor.clone()));
    };
    let machines = (!results.machine.is_empty()).then(|| column(&results.machine));
    let machines =
        machines.and_then(|codes| Factor::with_levels("machine", results.machines.all().to_vec(), codes).ok());
    let found = anova_within(&scores, &factors, &model, machines.as_ref())?;
    let deviation = found.residual_mean_square().sqrt();
    let mean = scores.iter().sum::<f64>() / scores.len() as f64;
    let effect = match question.effect {
        Effect::Units(units) => units,
        Effect::Share(_) if mean == 0.0 => return Err(NeededError::NoMean),
        Effect::Share(share) => share * mean.abs(),
    };
    let counts = runs_of_levels(&codes, factor.levels.all().len());
    let levels = counts.iter().filter(|&&runs| runs > 0).count() as u64;
    let pairs = levels * (levels - 1) / 2;
    let significance = question.level / pairs as f64;
    let runs = runs_needed(TTest::TwoSamples, effect / deviation, significance, question.power)?;
    let least = counts.iter().copied().filter(|&runs| runs > 0).min().unwrap_or(0);
    let smallest = smallest_effect(TTest::TwoSamples, least, significance, question.power);
    // The runs of a level in each block: its combinations.
    let combinations = combinations_of_levels(&found, &codes);
    Ok(NeededRuns {
        runs,
        repeats: combinations.map(|combinations| runs.div_ceil(combinations)),
        effect,
        unit: rows.first().map_or(String::new(), |&row| results.units.word(results.unit[row]).to_owned()),
        mean,
        deviation,
        from_runs: scores.len(),
        pairs,
        shown_so_far: smallest.ok().map(|smallest| smallest * deviation),
    })
}

/// The number of the score that is asked for, or of the only one.
fn chosen_score(results: &Results, name: Option<&str>) -> Result<u32, NeededError> {
    let names = results.measures.all();
    match (name, names) {
        (Some(name), _) => results.measures.number(name).ok_or_else(|| NeededError::Unknown {
            kind: "score",
            name: name.to_owned(),
            help: did_you_mean(name, names.iter().map(String::as_str)),
        }),
        (None, [_]) => Ok(0),
        (None, _) => Err(NeededError::SeveralScores(listed(names))),
    }
}

fn runs_of_levels(codes: &[u32], levels: usize) -> Vec<u64> {
    let mut counts = vec![0; levels];
    codes.iter().for_each(|code| counts[*code as usize] += 1);
    counts
}

/// The number of combinations that each level has. Nothing if it is not the same.
fn combinations_of_levels(found: &bellows_stats::Anova, codes: &[u32]) -> Option<u64> {
    let known: std::collections::HashSet<(usize, u32)> =
        found.combinations().zip(codes).filter_map(|(combination, code)| Some((combination?, *code))).collect();
    let mut counts: std::collections::HashMap<u32, u64> = std::collections::HashMap::new();
    known.into_iter().for_each(|(_, code)| *counts.entry(code).or_default() += 1);
    let first = counts.values().next().copied()?;
    counts.into_values().all(|count| count == first).then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two levels in three sizes, with a deviation of 1.
    fn results() -> Results {
        let mut text = "version,size,id,score,unit\n".to_owned();
        for block in 1..=10 {
            for (version, size) in [("old", 64), ("old", 256), ("old", 1500), ("new", 64), ("new", 256), ("new", 1500)]
            {
                // Of ten runs, nine degrees of freedom.
                let score = 100.0 + if block % 2 == 0 { 0.9f64.sqrt() } else { -(0.9f64.sqrt()) };
                text += &format!("{version},{size},{block},{score},Mpps\n");
            }
        }
        crate::import(text.as_bytes(), "it").unwrap()
    }

    fn question(factor: &str, effect: Effect) -> Question {
        Question { factor: factor.to_owned(), score: None, effect, power: 0.8, level: 0.05 }
    }

    #[test]
    fn the_scatter_says_how_many_runs_are_needed() {
        let found = needed_runs(&results(), &question("version", Effect::Units(1.0))).unwrap();
        // Cohen's table: 17 runs each for one standard deviation.
        assert_eq!((found.runs, found.repeats, found.pairs, found.from_runs), (17, Some(6), 1, 60));
        assert!((found.deviation - 1.0).abs() < 1e-9 && (found.mean - 100.0).abs() < 1e-9 && found.unit == "Mpps");
        assert!((0.7..0.8).contains(&found.shown_so_far.unwrap()), "{found:?}");
        assert_eq!(needed_runs(&results(), &question("version", Effect::Share(0.01))).unwrap().runs, 17);
        let three = needed_runs(&results(), &question("size", Effect::Units(1.0))).unwrap();
        assert!(three.pairs == 3 && three.runs > 17, "{three:?}");
        let uneven = b"version,size,score\na,1,1\na,1,2\na,2,3\na,2,4\nb,1,5\nb,1,6\n";
        let uneven = crate::import(&uneven[..], "it").unwrap();
        assert_eq!(needed_runs(&uneven, &question("version", Effect::Units(1.0))).unwrap().repeats, None);
    }

    #[test]
    fn what_differs_between_machines_is_no_scatter() {
        let rows = (0..40).map(|row| format!("m{},{},{}\n", row % 2, row / 2 % 2, 100 * (row % 2) + row * 7 % 5));
        let text = "host,version,score\n".to_owned() + &rows.collect::<String>();
        let found =
            needed_runs(&crate::import(text.as_bytes(), "it").unwrap(), &question("version", Effect::Units(1.0)));
        let found = found.unwrap();
        assert!((1.0..3.0).contains(&found.deviation), "{found:?}");
    }

    #[test]
    fn questions_without_answers_have_errors() {
        let ask = |question: &Question| needed_runs(&results(), question).unwrap_err().to_string();
        assert!(ask(&question("verson", Effect::Units(1.0))).contains("no factor `verson`; did you mean `version`?"));
        assert!(ask(&question("version", Effect::Units(0.0))).contains("above 0"));
        let other = Question { score: Some("x".to_owned()), ..question("version", Effect::Units(1.0)) };
        assert!(ask(&other).contains("no score `x`"));
        let single = crate::import(&b"a,score\nx,1\ny,2\n"[..], "it").unwrap();
        let error = needed_runs(&single, &question("a", Effect::Units(1.0))).unwrap_err().to_string();
        assert!(error.contains("not known yet: ") && error.contains("repeat runs"), "{error}");
        let one = crate::import(&b"a,score\nx,1\nx,2\n"[..], "it").unwrap();
        assert!(
            needed_runs(&one, &question("a", Effect::Units(1.0))).unwrap_err().to_string().contains("name another")
        );
        let units = crate::import(&b"a,score,unit\nx,1,Mpps\ny,2,MB/s\nx,2,Mpps\ny,3,MB/s\n"[..], "it").unwrap();
        let error = needed_runs(&units, &question("a", Effect::Units(1.0))).unwrap_err().to_string();
        assert!(error.contains("the score `score` in the units `Mpps`, `MB/s`"), "{error}");
        let empty = crate::import(&b"a,score\n"[..], "it").unwrap();
        assert!(needed_runs(&empty, &question("a", Effect::Units(1.0))).is_err());
    }
}
