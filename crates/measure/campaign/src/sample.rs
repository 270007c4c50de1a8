//! Scores by the cells of a hypothesis' term, and the difference of its two means.
//!
//! Noise is the scatter of runs with the same levels of all factors: sizes and options that a hypothesis is not about
//! differ, but that is no noise. The two sides are compared within each combination of the other factors that both
//! have, and the differences count equally. Nor is it noise what differs between machines: each is an additive term, if
//! there are several.

use std::collections::HashSet;

use bellows_stats::anova::CommonContrast;
use bellows_stats::distribution::{Distribution, NoncentralT, StudentT, StudentizedRange, root};
use bellows_stats::{Anova, AnovaError, Assumption, Factor, Model, anova_within, check_assumptions};
use schemars::JsonSchema;
use serde::Serialize;

use crate::campaign::{Hypothesis, ScoreDirection};
use crate::cells::Cells;
use crate::results::Results;

/// The factor whose levels are the cells of the hypothesis' term.
const TERM: &str = "term";

/// The power at which an effect counts as one that the runs could have shown.
const POWER: f64 = 0.8;

/// The confidence of intervals of exploration.
const EXPLORED: f64 = 0.95;

/// The probability of a warning about an assumption that holds.
const SIGNIFICANCE: f64 = 0.01;

/// From this number of runs of each cell the means are as good as normally distributed.
const NORMAL_MEANS: usize = 30;

/// A difference of two means.
#[derive(Clone, Copy, Debug, PartialEq, JsonSchema, Serialize)]
#[schemars(title = "Estimate")]
pub struct Estimate {
    /// The first mean minus the second, in the score's unit.
    pub difference: f64,
    /// The lower end of its interval.
    ///
    /// The ends of its interval, which has two sides for every direction. That of a hypothesis with a side is in its
    /// confidence 1 minus the level, so its end on the side of the margin is further away than the test of one side
    /// needs. That of a hypothesis of equality lies within the margin if the hypothesis is confirmed before correction.
    pub low: f64,
    /// The upper end.
    pub high: f64,
    /// The confidence of the interval.
    ///
    /// The confidence of the interval: of a planned difference 1 minus the level, or for equality, which has two tests of
    /// one side, 1 minus twice the level.
    pub confidence: f64,
    /// The probability of data that speak as much for the hypothesis, or in exploration for a difference, if it is not
    /// so.
    pub p: f64,
    /// The same, corrected for all registered hypotheses; null in exploration.
    pub corrected_p: Option<f64>,
    /// Degrees of freedom.
    pub df: f64,
    /// The number of means of the term.
    pub means: usize,
    /// The runs of the two means.
    ///
    /// The runs of each of the two means, in combinations of the other factors that both have.
    pub runs: [usize; 2],
    /// The number of machines whose differences were taken out; 1 if one made all runs, or if they are part of the
    /// scatter.
    pub machines: usize,
    /// The difference, margin included, that the runs would have confirmed with a probability of 0.8; null for `equal`,
    /// without scatter and in exploration.
    ///
    /// The size of the difference, in the direction of the hypothesis, with which these runs would have confirmed it with
    /// a probability of 0.8, before correction. Nothing for equality, in exploration, without scatter, and if it is
    /// more than 1,024 standard errors.
    pub detectable: Option<f64>,
}

/// Scores, their cells, and when their runs started.
pub(crate) struct Sample<'c> {
    cells: &'c Cells,
    scores: Vec<f64>,
    terms: Vec<u32>,
    rests: Vec<u32>,
    machines: Vec<u32>,
    times: Vec<f64>,
}

impl<'c> Sample<'c> {
    pub(crate) fn new(cells: &'c Cells) -> Sample<'c> {
        let (scores, times) = (Vec::new(), Vec::new());
        Sample { cells, scores, terms: Vec::new(), rests: Vec::new(), machines: Vec::new(), times }
    }

    /// Adds a row of results. Without the times of their starts, rows are in the order of their runs; without their
    /// machines, they are of one.
    pub(crate) fn add(&mut self, row: usize, results: &Results) {
        let (score, start) = (results.scores[row], results.starts.get(row));
        self.machines.push(results.machine.get(row).copied().unwrap_or(0));
        self.times.push(start.map_or(row as f64, |start| *start as f64));
        self.terms.push(self.cells.term[row]);
        self.rests.push(self.cells.rest[row]);
        self.scores.push(score);
    }

    /// The analysis by cells. Nothing if it says nothing about the two means.
    pub(crate) fn analysis(mut self, hypothesis: &Hypothesis) -> Option<Analysis> {
        let [first, second] = hypothesis.compare.each_ref().map(|levels| self.cells.number(levels));
        let sides = [first? as u32, second? as u32];
        let (fit, warning) = match self.fit(sides) {
            Ok(fit) => (fit, None),
            Err(Unfit::Coarser(why)) => {
                // The other factors count as noise.
                self.rests.fill(0);
                (self.fit(sides).ok()?, Some(why.to_owned()))
            }
            Err(Unfit::Never) => return None,
        };
        let machines = self.machines();
        let is_confounded = fit.contrast.is_confounded || self.has_one_machine_each(sides);
        Some(Analysis { fit, warning, machines, is_confounded, scores: self.scores, times: self.times })
    }

    /// Whether no machine made runs of both sides, and one made all of a side: their scatter has nothing of the difference
    /// between machines then.
    fn has_one_machine_each(&self, sides: [u32; 2]) -> bool {
        let [first, second] = sides.map(|side| -> HashSet<u32> {
            let runs = self.terms.iter().zip(&self.machines);
            runs.filter(|(term, _)| **term == side).map(|(_, machine)| *machine).collect()
        });
        first.is_disjoint(&second) && first.len().min(second.len()) < 2
    }

    /// Compares two cells of the term within the combinations of the other factors.
    fn fit(&self, sides: [u32; 2]) -> Result<Fit, Unfit> {
        let mut runs = vec![0usize; self.cells.names.len()];
        self.terms.iter().for_each(|term| runs[*term as usize] += 1);
        if sides.iter().any(|side| runs[*side as usize] == 0) {
            return Err(Unfit::Never);
        }
        let found = self.by_cells().map_err(|error| match error {
            AnovaError::NoResiduals { .. } => Unfit::Coarser(
                "no combination of all factors has two runs, so the factors that the hypothesis is not about count as \
                 noise; repeat runs",
            ),
            _ => Unfit::Never,
        })?;
        // The analysis numbers the cells that have runs.
        let place = |side: u32| runs[..side as usize].iter().filter(|runs| **runs > 0).count();
        let common = found.common_contrasts(TERM, &[(place(sides[0]), place(sides[1]))], EXPLORED);
        let common = common.map_err(|_| Unfit::Never)?;
        let Some(contrast) = common.contrasts.into_iter().next() else {
            return Err(Unfit::Coarser(
                "the two sides have no combination of the other factors in common, so their difference may be one of \
                 these; make runs of both in the same combinations",
            ));
        };
        if contrast.runs.iter().any(|runs| *runs < 2) {
            return Err(Unfit::Never);
        }
        let least = runs.into_iter().filter(|runs| *runs > 0).min().unwrap_or(0);
        Ok(Fit { contrast, means: common.means, least, found })
    }

    /// The scatter within the combinations of all factors.
    fn by_cells(&self) -> Result<Anova, AnovaError> {
        let factor = |name, codes: &Vec<u32>| {
            let levels = codes.iter().max().map_or(0, |last| *last + 1);
            Factor::with_levels(name, (0..levels).map(|level| level.to_string()).collect(), codes.clone())
        };
        let has_others = self.rests.iter().any(|rest| *rest != self.rests[0]);
        let factors: Result<Vec<Factor>, _> = match has_others {
            true => [factor(TERM, &self.terms), factor("others", &self.rests)].into_iter().collect(),
            false => factor(TERM, &self.terms).map(|term| vec![term]),
        };
        // Codes are those of levels, and there is a factor.
        let Ok(factors) = factors else { return Err(AnovaError::NoNoise) };
        let Ok(model) = Model::new([(0..factors.len()).collect()], factors.len()) else {
            return Err(AnovaError::NoNoise);
        };
        let Ok(machines) = factor("machine", &self.machines) else { return Err(AnovaError::NoNoise) };
        anova_within(&self.scores, &factors, &model, Some(&machines))
    }

    /// The number of machines.
    fn machines(&self) -> usize {
        let mut machines = self.machines.clone();
        machines.sort_unstable();
        machines.dedup();
        machines.len()
    }
}

/// Why two means cannot be compared within combinations.
enum Unfit {
    /// They can be as if there were no other factors, with this warning.
    Coarser(&'static str),
    Never,
}

/// Two means, compared within combinations of the other factors.
struct Fit {
    contrast: CommonContrast,
    /// The number of means of the term.
    means: usize,
    /// The number of runs of the smallest of them.
    least: usize,
    found: Anova,
}

/// The analysis of a sample.
pub(crate) struct Analysis {
    fit: Fit,
    /// What the noise is not, if it is not that of runs with the same levels of all factors.
    warning: Option<String>,
    /// The number of machines that made the runs.
    machines: usize,
    /// Whether the difference may be one of machines.
    is_confounded: bool,
    scores: Vec<f64>,
    times: Vec<f64>,
}

impl Analysis {
    /// Whether the difference may be one of machines, because no runs of both sides can be compared on one of them.
    pub(crate) fn is_confounded(&self) -> bool {
        self.is_confounded
    }

    /// The contrast of the hypothesis, which was planned.
    pub(crate) fn planned(&self, hypothesis: &Hypothesis) -> Estimate {
        let t = StudentT { df: self.fit.found.residual_df };
        let error = self.error();
        let outside = match hypothesis.direction {
            ScoreDirection::Equal => 2.0 * hypothesis.level,
            ScoreDirection::Greater | ScoreDirection::Less | ScoreDirection::Different => hypothesis.level,
        };
        Estimate {
            p: probability(hypothesis, self.fit.contrast.difference, error, t),
            detectable: detectable(hypothesis, error, t),
            ..self.estimate(t.upper_quantile(outside / 2.0) * error, 1.0 - outside)
        }
    }

    /// The same difference among all that could have been looked at.
    pub(crate) fn explored(&self) -> Estimate {
        let range = StudentizedRange::new(self.fit.means as u32, self.fit.found.residual_df);
        // That of one mean, by Tukey and Kramer.
        let error = self.error() / 2f64.sqrt();
        Estimate {
            p: range.upper_tail(self.fit.contrast.difference.abs() / error),
            ..self.estimate(range.upper_quantile(1.0 - EXPLORED) * error, EXPLORED)
        }
    }

    /// The standard error of the difference.
    fn error(&self) -> f64 {
        self.fit.contrast.error
    }

    fn estimate(&self, half_width: f64, confidence: f64) -> Estimate {
        let Fit { means, ref contrast, ref found, .. } = self.fit;
        let CommonContrast { difference, runs, .. } = *contrast;
        Estimate {
            difference,
            low: difference - half_width,
            high: difference + half_width,
            confidence,
            p: 1.0,
            corrected_p: None,
            df: found.residual_df,
            means,
            runs,
            machines: found.blocks(),
            detectable: None,
        }
    }

    /// What the analysis assumes and does not hold, and what to use instead: sentences without a full stop.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let Fit { least, ref contrast, ref found, .. } = self.fit;
        let warnings = check_assumptions(found, &self.scores, Some(&self.times), SIGNIFICANCE);
        let matters = |assumption| assumption != Assumption::Normality || least < NORMAL_MEANS;
        let alone = match contrast.left_out {
            0 => None,
            1 => Some("a combination of the other factors that one side alone has is left out".to_owned()),
            alone => Some(format!("{alone} combinations of the other factors that one side alone has are left out")),
        };
        let joined = (self.machines > 1 && found.block_df == 0).then(|| {
            "what differs between the machines is part of the noise, since there are more than 256, or no combination, \
             or too few runs, were made on several of them"
                .to_owned()
        });
        let confounded = self.is_confounded.then(|| {
            "no combination was run on machines of both sides, so their difference may be one of machines; make runs of \
             both on each machine"
                .to_owned()
        });
        let assumed = warnings.iter().filter(|warning| matters(warning.assumption)).map(ToString::to_string);
        self.warning.clone().into_iter().chain(alone).chain(joined).chain(confounded).chain(assumed).collect()
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
        ScoreDirection::Greater => above(difference - margin),
        ScoreDirection::Less => above(-difference - margin),
        ScoreDirection::Different => (2.0 * above(difference.abs() - margin)).min(1.0),
        // Two one-sided tests (Schuirmann 1987): it is not too large, and it is not too small.
        ScoreDirection::Equal => above(margin - difference).max(above(margin + difference)),
    }
}

/// The size of the difference with which the test of the hypothesis would have said yes with the power [`POWER`].
fn detectable(hypothesis: &Hypothesis, error: f64, t: StudentT) -> Option<f64> {
    let Hypothesis { direction, margin, level, .. } = *hypothesis;
    let sides = match direction {
        ScoreDirection::Greater | ScoreDirection::Less => 1.0,
        ScoreDirection::Different => 2.0,
        ScoreDirection::Equal => return None,
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
    use bellows_stats::power::{TTest, smallest_effect};

    use super::*;

    fn hypothesis(direction: ScoreDirection, margin: f64) -> Hypothesis {
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
        near(p(ScoreDirection::Greater, 0.0, 1.8125), 0.05);
        near(p(ScoreDirection::Greater, 1.0, 2.8125), 0.05);
        near(p(ScoreDirection::Greater, 0.0, -1.8125), 0.95);
        near(p(ScoreDirection::Less, 0.0, -1.8125), 0.05);
        near(p(ScoreDirection::Less, 1.0, -2.8125), 0.05);
        near(p(ScoreDirection::Different, 0.0, -2.2281), 0.05);
        near(p(ScoreDirection::Different, 1.0, 3.2281), 0.05);
        near(p(ScoreDirection::Equal, 3.0, 3.0 - 1.8125), 0.05);
        near(p(ScoreDirection::Equal, 3.0, -3.0 + 1.8125), 0.05);
        near(p(ScoreDirection::Equal, 3.0, 4.0), 0.83);
    }

    #[test]
    fn the_detectable_difference_is_that_of_the_test() {
        let t = StudentT { df: 18.0 };
        let near = |found: Option<f64>, expected: f64| {
            assert!((found.unwrap() - expected).abs() < 1e-6 * expected, "{found:?} {expected}");
        };
        // Two samples of ten, in standard errors: the same as by the power of such tests, whose level has two sides.
        let error = (2.0f64 / 10.0).sqrt();
        let two = smallest_effect(TTest::TwoSamples, 10, 0.05, POWER).unwrap();
        near(detectable(&hypothesis(ScoreDirection::Different, 0.0), error, t), two);
        // What the test says yes to in four of five cases.
        for direction in [ScoreDirection::Greater, ScoreDirection::Less] {
            let found = detectable(&hypothesis(direction, 3.0), error, t).unwrap();
            let power = NoncentralT { df: 18.0, shift: (found - 3.0) / error }.upper_tail(t.upper_quantile(0.05));
            assert!((power - POWER).abs() < 1e-9 && found < 3.0 + two, "{found}");
        }
        // With a margin the wrong side counts for nothing.
        let found = detectable(&hypothesis(ScoreDirection::Different, 3.0), error, t).unwrap();
        assert!((found - 3.0 - two).abs() < 1e-3, "{found}");
        // More residual degrees of freedom than those of the two means.
        let more = detectable(&hypothesis(ScoreDirection::Different, 0.0), error, StudentT { df: 90.0 }).unwrap();
        assert!(more < two, "{more}");
        assert_eq!(detectable(&hypothesis(ScoreDirection::Equal, 3.0), error, t), None);
        assert_eq!(detectable(&hypothesis(ScoreDirection::Greater, 3.0), 0.0, t), None);
        let tight = Hypothesis { level: 1e-9, ..hypothesis(ScoreDirection::Greater, 0.0) };
        assert_eq!(detectable(&tight, error, StudentT { df: 2.0 }), None);
        assert!(detectable(&hypothesis(ScoreDirection::Different, 1e12), error, t).is_some_and(|it| it >= 1e12));
    }

    #[test]
    fn a_difference_is_found_only_between_two_runs_each() {
        let it = hypothesis(ScoreDirection::Greater, 0.0);
        let table = |rows: &[(&str, f64)]| {
            let lines = rows.iter().map(|(version, score)| format!("{version},{score}\n"));
            crate::import(("version,score\n".to_owned() + &lines.collect::<String>()).as_bytes(), "it").unwrap()
        };
        let rows = [("old", 1.0), ("old", 2.0), ("new", 5.0), ("new", 6.0)];
        let analysis = |count: usize| {
            let results = table(&rows[..count]);
            let cells = Cells::of(&results, &it.term);
            let mut sample = Sample::new(&cells);
            (0..results.len()).for_each(|row| sample.add(row, &results));
            sample.analysis(&it)
        };
        assert!((0..4).all(|count| analysis(count).is_none()));
        let found = analysis(4).unwrap();
        let (planned, explored) = (found.planned(&it), found.explored());
        assert_eq!((planned.difference, planned.runs, planned.df), (4.0, [2, 2], 2.0));
        assert_eq!((explored.difference, explored.means), (4.0, 2));
        // One-sided, and as one of one pair.
        assert!((2.0 * planned.p - explored.p).abs() < 1e-9, "{} {}", planned.p, explored.p);
        assert!((planned.low - explored.low).abs() < 1e-9 && planned.detectable.unwrap() > 1.0);
        // Equality within a margin that is the interval's end has the level as its probability.
        let equal = found.planned(&hypothesis(ScoreDirection::Equal, 1.0));
        assert!((equal.confidence - 0.9).abs() < 1e-12 && equal.detectable.is_none());
        let equal = found.planned(&hypothesis(ScoreDirection::Equal, equal.high));
        assert!((equal.p - 0.05).abs() < 1e-9, "{}", equal.p);
    }

    /// Scores of two versions in sizes that differ much more than the noise.
    fn sized(rows: &[(&str, u32, f64)]) -> Results {
        let lines = rows.iter().map(|(version, size, score)| format!("{version},{size},{score}\n"));
        crate::import(("version,size,score\n".to_owned() + &lines.collect::<String>()).as_bytes(), "it").unwrap()
    }

    fn analysed(results: &Results) -> Analysis {
        let it = hypothesis(ScoreDirection::Greater, 0.0);
        let cells = Cells::of(results, &it.term);
        let mut sample = Sample::new(&cells);
        (0..results.len()).for_each(|row| sample.add(row, results));
        sample.analysis(&it).unwrap()
    }

    #[test]
    fn other_factors_are_no_noise() {
        let rows: Vec<(&str, u32, f64)> = [("old", 0.0), ("new", 1.0)]
            .into_iter()
            .flat_map(|(version, more)| [1, 1_000].map(|size| (version, size, f64::from(size) + more)))
            .flat_map(|(version, size, mean)| [-0.1, 0.1, -0.1, 0.1].map(|noise| (version, size, mean + noise)))
            .collect();
        let found = analysed(&sized(&rows));
        let it = found.planned(&hypothesis(ScoreDirection::Greater, 0.0));
        // 16 runs of 4 combinations, each with squares of 0.04.
        let error = (0.16f64 / 12.0 * 2.0 / 8.0).sqrt();
        assert_eq!((it.df, it.runs, it.means), (12.0, [8, 8], 2));
        assert!((it.difference - 1.0).abs() < 1e-9 && (found.error() - error).abs() < 1e-9, "{it:?}");
        assert!(it.p < 1e-6 && it.detectable.unwrap() < 0.25, "{it:?}");
        let explored = found.explored();
        assert!(explored.df == 12.0 && explored.p < 1e-6, "{explored:?}");
        assert_eq!((found.warning, found.fit.contrast.left_out), (None, 0));
    }

    #[test]
    fn sides_are_compared_in_the_combinations_that_both_have() {
        let mut rows = vec![("old", 1, 1.0), ("old", 1, 2.0), ("new", 1, 4.0), ("new", 1, 5.0), ("new", 1, 6.0)];
        // One size has more runs of one side, another one has one side alone.
        rows.extend([("old", 2, 11.0), ("old", 2, 12.0), ("new", 2, 12.0), ("new", 2, 13.0)]);
        rows.extend([("new", 3, 99.0), ("new", 3, 98.0)]);
        let found = analysed(&sized(&rows));
        let it = found.planned(&hypothesis(ScoreDirection::Greater, 0.0));
        assert_eq!((it.difference, it.runs, it.df), ((3.5 + 1.0) / 2.0, [5, 4], 6.0));
        let error = (4.0 / 6.0 / 4.0 * (0.5 + 1.0 / 3.0 + 0.5 + 0.5f64)).sqrt();
        assert!((found.error() - error).abs() < 1e-9, "{} {error}", found.error());
        assert!(found.warnings()[0].starts_with("a combination "), "{:?}", found.warnings());
    }

    #[test]
    fn without_runs_to_compare_other_factors_are_noise_with_a_warning() {
        let it = hypothesis(ScoreDirection::Greater, 0.0);
        let single = analysed(&sized(&[("old", 1, 1.0), ("old", 2, 2.0), ("new", 1, 5.0), ("new", 2, 6.0)]));
        assert_eq!((single.planned(&it).difference, single.planned(&it).df), (4.0, 2.0));
        assert!(single.warnings()[0].contains("has two runs"), "{:?}", single.warnings());
        let apart = analysed(&sized(&[("old", 1, 1.0), ("old", 1, 2.0), ("new", 2, 5.0), ("new", 2, 6.0)]));
        assert_eq!((apart.planned(&it).difference, apart.planned(&it).df), (4.0, 2.0));
        assert!(apart.warnings()[0].contains("in common"), "{:?}", apart.warnings());
    }

    /// Runs of two versions on machines that differ by 100, given the noise of each.
    fn on_machines(rows: impl Iterator<Item = (&'static str, &'static str, f64)>) -> Results {
        let lines = rows.map(|(host, version, noise)| {
            let machine = if host == "fast" { 100.0 } else { 0.0 };
            format!("{host},{version},{}\n", machine + noise + if version == "new" { 1.0 } else { 0.0 })
        });
        crate::import(("host,version,score\n".to_owned() + &lines.collect::<String>()).as_bytes(), "it").unwrap()
    }

    #[test]
    fn machines_are_no_noise() {
        let noise = [-0.1, 0.1, -0.1, 0.1];
        let both = |host: &'static str| {
            ["old", "new"].into_iter().flat_map(move |version| noise.map(|noise| (host, version, noise)))
        };
        let found = analysed(&on_machines(both("fast").chain(both("slow"))));
        let it = found.planned(&hypothesis(ScoreDirection::Greater, 0.0));
        // 16 runs of two versions on two machines, each with squares of 0.01.
        assert_eq!((it.df, it.runs, it.machines), (13.0, [8, 8], 2));
        let error = (0.16f64 / 13.0 * 2.0 / 8.0).sqrt();
        assert!((it.difference - 1.0).abs() < 1e-9 && (found.error() - error).abs() < 1e-9, "{it:?} {error}");
        assert!(found.warnings().iter().all(|warning| !warning.contains("machine")), "{:?}", found.warnings());
        let one = analysed(&on_machines(both("slow")));
        assert_eq!(
            (one.planned(&hypothesis(ScoreDirection::Greater, 0.0)).machines, one.fit.found.residual_df),
            (1, 6.0)
        );
    }

    #[test]
    fn versions_on_machines_of_their_own_are_compared_with_a_warning() {
        let noise = [-0.1, 0.1, -0.1, 0.1];
        let rows = [("fast", "new"), ("slow", "old")].into_iter();
        let found = analysed(&on_machines(rows.flat_map(|(host, version)| noise.map(|noise| (host, version, noise)))));
        let it = found.planned(&hypothesis(ScoreDirection::Greater, 0.0));
        assert!((it.difference - 101.0).abs() < 1e-9, "{it:?}");
        assert!(found.is_confounded(), "nothing confirms it");
        assert!(found.warnings().iter().any(|warning| warning.contains("may be one of machines")));
        // Each run on a machine of its own: nothing is left for the noise, if machines are none.
        let hosts = ["a", "b", "c", "d", "e", "f", "g", "h"];
        let rows = hosts
            .into_iter()
            .enumerate()
            .map(|(run, host)| (host, if run % 2 == 0 { "old" } else { "new" }, noise[run / 2]));
        let found = analysed(&on_machines(rows));
        let it = found.planned(&hypothesis(ScoreDirection::Greater, 0.0));
        assert_eq!((it.machines, it.df), (1, 6.0));
        assert!(!found.is_confounded(), "the noise is that of machines");
        assert!(found.warnings().iter().any(|warning| warning.contains("part of the noise")));
    }
}
