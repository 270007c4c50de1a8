//! Scores by the cells of a hypothesis' term, and the difference of its two means.

use std::collections::HashMap;

use bellows_stats::distribution::{Distribution, NoncentralT, StudentT, root};
use bellows_stats::{Anova, Assumption, Factor, Model, anova, check_assumptions};
use serde::Serialize;

use crate::campaign::{Direction, Hypothesis};
use crate::results::Results;

/// The power at which an effect counts as one that the runs could have shown.
const POWER: f64 = 0.8;

/// The confidence of intervals of exploration.
const EXPLORED: f64 = 0.95;

/// The probability of a warning about an assumption that holds.
const SIGNIFICANCE: f64 = 0.01;

/// From this number of runs of each cell the means are as good as normally distributed.
const NORMAL_MEANS: usize = 30;

/// A difference of two means.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// The first mean minus the second, in the score's unit.
    pub difference: f64,
    /// The ends of its interval, which has two sides for every direction. That of a hypothesis with a side is in its
    /// confidence 1 minus the level, so its end on the side of the margin is further away than the test of one side
    /// needs. That of a hypothesis of equality lies within the margin if the hypothesis is confirmed before correction.
    pub low: f64,
    /// See [`Estimate::low`].
    pub high: f64,
    /// The confidence of the interval: of a planned difference 1 minus the level, or for equality, which has two tests of
    /// one side, 1 minus twice the level.
    pub confidence: f64,
    /// The probability of data that speak as much for the hypothesis, or for a difference, if it is not so.
    pub p: f64,
    /// The same, corrected for all registered hypotheses of the campaign.
    pub corrected_p: Option<f64>,
    /// Degrees of freedom.
    pub df: f64,
    /// The number of means of the term.
    pub means: usize,
    /// The runs of each of the two means.
    pub runs: [usize; 2],
    /// The size of the difference, in the direction of the hypothesis, with which these runs would have confirmed it with
    /// a probability of 0.8, before correction. Nothing for equality, in exploration, without scatter, and if it is
    /// more than 1,024 standard errors.
    pub detectable: Option<f64>,
}

/// The cell of each row of results: the combination of levels of a term.
pub(crate) struct Cells {
    of_rows: Vec<u32>,
    names: Vec<Vec<String>>,
}

impl Cells {
    /// The cells of a term. A factor that the results do not have has one level, which has no name.
    pub(crate) fn of(results: &Results, term: &[String]) -> Cells {
        let mut cells = Cells { of_rows: vec![0; results.len()], names: vec![Vec::new()] };
        for name in term {
            match results.factor(name) {
                Some(factor) => cells.split(factor.levels.all(), &factor.rows),
                None => cells.names.iter_mut().for_each(|levels| levels.push(String::new())),
            }
        }
        cells
    }

    /// Splits each cell by another factor.
    fn split(&mut self, levels: &[String], rows: &[u32]) {
        const NONE: u32 = u32::MAX;
        const MAX_TABLE: usize = 1 << 22;
        let mut names: Vec<Vec<String>> = Vec::new();
        let mut number = |cell: u32, level: u32| {
            let mut name = self.names[cell as usize].clone();
            name.push(levels[level as usize].clone());
            names.push(name);
            names.len() as u32 - 1
        };
        let rows = self.of_rows.iter_mut().zip(rows);
        match self.names.len() * levels.len() {
            // A table is faster than hashes.
            size @ ..=MAX_TABLE => {
                let mut table = vec![NONE; size];
                for (cell, level) in rows {
                    let known = &mut table[*cell as usize * levels.len() + *level as usize];
                    if *known == NONE {
                        *known = number(*cell, *level);
                    }
                    *cell = *known;
                }
            }
            _ => {
                let mut known: HashMap<(u32, u32), u32> = HashMap::new();
                for (cell, level) in rows {
                    *cell = *known.entry((*cell, *level)).or_insert_with(|| number(*cell, *level));
                }
            }
        }
        self.names = names;
    }

    fn number(&self, levels: &[String]) -> Option<usize> {
        self.names.iter().position(|name| name == levels)
    }
}

/// Scores, their cells, and when their runs started.
pub(crate) struct Sample<'c> {
    cells: &'c Cells,
    scores: Vec<f64>,
    codes: Vec<u32>,
    times: Vec<f64>,
}

impl<'c> Sample<'c> {
    pub(crate) fn new(cells: &'c Cells) -> Sample<'c> {
        Sample { cells, scores: Vec::new(), codes: Vec::new(), times: Vec::new() }
    }

    /// Adds a row. Without the time of its start, the rows are in the order of their runs.
    pub(crate) fn add(&mut self, row: usize, score: f64, start: Option<i64>) {
        self.times.push(start.map_or(row as f64, |start| start as f64));
        self.codes.push(self.cells.of_rows[row]);
        self.scores.push(score);
    }

    /// The analysis by cells. Nothing if it tells nothing of the two means.
    pub(crate) fn analysis(self, hypothesis: &Hypothesis) -> Option<Analysis> {
        let mut counts = vec![0; self.cells.names.len()];
        self.codes.iter().for_each(|cell| counts[*cell as usize] += 1);
        let [first, second] = hypothesis.compare.each_ref().map(|levels| self.cells.number(levels));
        let places = [first?, second?];
        let runs = places.map(|place| counts[place]);
        // The places of cells, as they are among means that leave out cells without runs.
        let names = (0..counts.len()).map(|cell| cell.to_string()).collect();
        let factors = [Factor::with_levels("cell", names, self.codes).ok()?];
        let model = Model::new([vec![0]], factors.len()).ok()?;
        let found = anova(&self.scores, &factors, &model).ok()?;
        let is_enough = runs.iter().all(|&runs| runs > 1) && found.residual_df > 0.0;
        let least = counts.iter().copied().filter(|&count| count > 0).min().unwrap_or(0);
        is_enough.then_some(Analysis { found, places, runs, least, scores: self.scores, times: self.times })
    }
}

/// The analysis of a sample.
pub(crate) struct Analysis {
    found: Anova,
    /// The cells of the two means.
    places: [usize; 2],
    runs: [usize; 2],
    /// The number of runs of the smallest cell.
    least: usize,
    scores: Vec<f64>,
    times: Vec<f64>,
}

impl Analysis {
    /// The contrast of the hypothesis, which was planned.
    pub(crate) fn planned(&self, hypothesis: &Hypothesis) -> Option<Estimate> {
        let Analysis { found, runs, .. } = self;
        let means = found.means("cell").ok()?;
        let mean = |place: usize| means.iter().find(|mean| mean.label == place.to_string()).map(|mean| mean.mean);
        let [first, second] = self.places;
        let difference = mean(first)? - mean(second)?;
        let t = StudentT { df: found.residual_df };
        let error = (found.residual_mean_square() * runs.iter().map(|&runs| 1.0 / runs as f64).sum::<f64>()).sqrt();
        let outside = match hypothesis.direction {
            Direction::Equal => 2.0 * hypothesis.level,
            Direction::Greater | Direction::Less | Direction::Different => hypothesis.level,
        };
        let half_width = t.upper_quantile(outside / 2.0) * error;
        Some(Estimate {
            difference,
            low: difference - half_width,
            high: difference + half_width,
            confidence: 1.0 - outside,
            p: probability(hypothesis, difference, error, t),
            corrected_p: None,
            df: found.residual_df,
            means: means.len(),
            runs: *runs,
            detectable: detectable(hypothesis, error, t),
        })
    }

    /// The same difference among all that could have been looked at.
    pub(crate) fn explored(&self) -> Option<Estimate> {
        let Analysis { found, runs, .. } = self;
        let tukey = found.tukey("cell", EXPLORED).ok()?;
        let place = |place: usize| tukey.means.iter().position(|mean| mean.label == place.to_string());
        let [first, second] = self.places.map(place);
        let (first, second) = (first?, second?);
        let same = |[minuend, subtrahend]: [usize; 2]| {
            tukey.contrasts.iter().find(|it| (it.minuend, it.subtrahend) == (minuend, subtrahend))
        };
        let [difference, low, high, p] = match (same([first, second]), same([second, first])) {
            (Some(it), _) => [it.difference, it.low, it.high, it.p],
            (None, Some(it)) => [-it.difference, -it.high, -it.low, it.p],
            (None, None) => return None,
        };
        Some(Estimate {
            difference,
            low,
            high,
            confidence: EXPLORED,
            p,
            corrected_p: None,
            df: found.residual_df,
            means: tukey.means.len(),
            runs: *runs,
            detectable: None,
        })
    }

    /// What the analysis assumes and does not hold, and what to use instead: sentences without a full stop.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let warnings = check_assumptions(&self.found, &self.scores, Some(&self.times), SIGNIFICANCE);
        let matters = |assumption| assumption != Assumption::Normality || self.least < NORMAL_MEANS;
        warnings.iter().filter(|warning| matters(warning.assumption)).map(ToString::to_string).collect()
    }
}

/// The probability of a difference that speaks as much for the hypothesis, if the truth is just not what it states.
fn probability(hypothesis: &Hypothesis, difference: f64, error: f64, t: StudentT) -> f64 {
    let margin = hypothesis.margin;
    let above = |excess: f64| match error > 0.0 {
        true => t.upper_tail(excess / error),
        // Runs without any scatter.
        false => f64::from(u8::from(excess <= 0.0)),
    };
    match hypothesis.direction {
        Direction::Greater => above(difference - margin),
        Direction::Less => above(-difference - margin),
        Direction::Different => (2.0 * above(difference.abs() - margin)).min(1.0),
        // Two one-sided tests (Schuirmann 1987): it is not too large, and it is not too small.
        Direction::Equal => above(margin - difference).max(above(margin + difference)),
    }
}

/// The size of the difference with which the test of the hypothesis would have said yes with the power [`POWER`].
fn detectable(hypothesis: &Hypothesis, error: f64, t: StudentT) -> Option<f64> {
    let Hypothesis { direction, margin, level, .. } = *hypothesis;
    let sides = match direction {
        Direction::Greater | Direction::Less => 1.0,
        Direction::Different => 2.0,
        Direction::Equal => return None,
    };
    if !(error > 0.0 && error.is_finite()) {
        return None;
    }
    let limit = t.upper_quantile(level / sides);
    // By the excess over the margin, in standard errors. The wrong side counts for something near 0 only.
    let power = |excess: f64| {
        let other = NoncentralT { df: t.df, shift: excess + 2.0 * margin / error };
        let wrong = if sides > 1.0 && other.shift < 40.0 { other.lower_tail(-limit) } else { 0.0 };
        NoncentralT { df: t.df, shift: excess }.upper_tail(limit) + wrong
    };
    let lacking = |excess: f64| power(excess) - POWER;
    // The time for a tail grows with the excess.
    let high = (0..=10).map(|exponent| 2f64.powi(exponent)).find(|&excess| lacking(excess) > 0.0)?;
    Some(margin + root(lacking, 0.0, high) * error)
}

#[cfg(test)]
mod tests {
    use bellows_stats::power::{Comparison, smallest_effect};

    use super::*;

    fn hypothesis(direction: Direction, margin: f64) -> Hypothesis {
        Hypothesis {
            name: "it".to_owned(),
            score: "score".to_owned(),
            term: vec!["version".to_owned()],
            compare: [vec!["new".to_owned()], vec!["old".to_owned()]],
            subset: std::collections::BTreeMap::new(),
            direction,
            margin,
            level: 0.05,
            explored: 0,
            repeats: None,
        }
    }

    #[test]
    fn each_direction_has_its_probability() {
        let p = |direction, margin, difference| {
            probability(&hypothesis(direction, margin), difference, 1.0, StudentT { df: 10.0 })
        };
        // 1.812 is the quantile at 0.95, 2.228 that at 0.975 (tables of Student's t).
        let near = |found: f64, expected: f64| assert!((found - expected).abs() < 1e-3, "{found} {expected}");
        near(p(Direction::Greater, 0.0, 1.8125), 0.05);
        near(p(Direction::Greater, 1.0, 2.8125), 0.05);
        near(p(Direction::Greater, 0.0, -1.8125), 0.95);
        near(p(Direction::Less, 0.0, -1.8125), 0.05);
        near(p(Direction::Less, 1.0, -2.8125), 0.05);
        near(p(Direction::Different, 0.0, -2.2281), 0.05);
        near(p(Direction::Different, 1.0, 3.2281), 0.05);
        near(p(Direction::Equal, 3.0, 3.0 - 1.8125), 0.05);
        near(p(Direction::Equal, 3.0, -3.0 + 1.8125), 0.05);
        near(p(Direction::Equal, 3.0, 4.0), 0.83);
    }

    #[test]
    fn the_detectable_difference_is_that_of_the_test() {
        let t = StudentT { df: 18.0 };
        let near = |found: Option<f64>, expected: f64| {
            assert!((found.unwrap() - expected).abs() < 1e-6 * expected, "{found:?} {expected}");
        };
        // Two samples of ten, in standard errors: the same as by the power of such tests, whose level has two sides.
        let error = (2.0f64 / 10.0).sqrt();
        let two = smallest_effect(Comparison::TwoSamples, 10, 0.05, POWER).unwrap();
        near(detectable(&hypothesis(Direction::Different, 0.0), error, t), two);
        // What the test says yes to in four of five cases.
        for direction in [Direction::Greater, Direction::Less] {
            let found = detectable(&hypothesis(direction, 3.0), error, t).unwrap();
            let power = NoncentralT { df: 18.0, shift: (found - 3.0) / error }.upper_tail(t.upper_quantile(0.05));
            assert!((power - POWER).abs() < 1e-9 && found < 3.0 + two, "{found}");
        }
        // With a margin the wrong side counts for nothing.
        let found = detectable(&hypothesis(Direction::Different, 3.0), error, t).unwrap();
        assert!((found - 3.0 - two).abs() < 1e-3, "{found}");
        // More residual degrees of freedom than those of the two means.
        let more = detectable(&hypothesis(Direction::Different, 0.0), error, StudentT { df: 90.0 }).unwrap();
        assert!(more < two, "{more}");
        assert_eq!(detectable(&hypothesis(Direction::Equal, 3.0), error, t), None);
        assert_eq!(detectable(&hypothesis(Direction::Greater, 3.0), 0.0, t), None);
        let tight = Hypothesis { level: 1e-9, ..hypothesis(Direction::Greater, 0.0) };
        assert_eq!(detectable(&tight, error, StudentT { df: 2.0 }), None);
        assert!(detectable(&hypothesis(Direction::Different, 1e12), error, t).is_some_and(|it| it >= 1e12));
    }

    #[test]
    fn a_difference_is_found_only_between_two_runs_each() {
        let it = hypothesis(Direction::Greater, 0.0);
        let table = |rows: &[(&str, f64)]| {
            let lines = rows.iter().map(|(version, score)| format!("{version},{score}\n"));
            crate::import(("version,score\n".to_owned() + &lines.collect::<String>()).as_bytes(), "it").unwrap()
        };
        let rows = [("old", 1.0), ("old", 2.0), ("new", 5.0), ("new", 6.0)];
        let analysis = |count: usize| {
            let results = table(&rows[..count]);
            let cells = Cells::of(&results, &it.term);
            let mut sample = Sample::new(&cells);
            results.scores.iter().enumerate().for_each(|(row, score)| sample.add(row, *score, None));
            sample.analysis(&it)
        };
        assert!((0..4).all(|count| analysis(count).is_none()));
        let found = analysis(4).unwrap();
        let (planned, explored) = (found.planned(&it).unwrap(), found.explored().unwrap());
        assert_eq!((planned.difference, planned.runs, planned.df), (4.0, [2, 2], 2.0));
        assert_eq!((explored.difference, explored.means), (4.0, 2));
        // One-sided, and as one of one pair.
        assert!((2.0 * planned.p - explored.p).abs() < 1e-9, "{} {}", planned.p, explored.p);
        assert!((planned.low - explored.low).abs() < 1e-9 && planned.detectable.unwrap() > 1.0);
        // Equality within a margin that is the interval's end has the level as its probability.
        let equal = found.planned(&hypothesis(Direction::Equal, 1.0)).unwrap();
        assert!((equal.confidence - 0.9).abs() < 1e-12 && equal.detectable.is_none());
        let equal = found.planned(&hypothesis(Direction::Equal, equal.high)).unwrap();
        assert!((equal.p - 0.05).abs() < 1e-9, "{}", equal.p);
    }
}
