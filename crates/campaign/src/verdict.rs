//! What the runs of a campaign say of its hypotheses.
//!
//! Only runs that were made after a hypothesis was registered, and that were not looked at to find it, can confirm it.
//! Its two means are a contrast that was planned: their difference, over the standard error from the scatter within all
//! cells of the term, follows Student's t. The probabilities are corrected for all hypotheses of the campaign by Holm's
//! method. All other runs are exploration: there the difference is one of those that could have been looked at, so
//! probability and interval are Tukey's, for all pairs of means of the term together.

use std::collections::HashMap;
use std::path::Path;

use bellows_stats::distribution::{Distribution, StudentT};
use bellows_stats::power::{Comparison, smallest_effect};
use bellows_stats::{Anova, Factor, Model, anova, holm};
use serde::Serialize;

use crate::campaign::{Campaign, Direction, Hypothesis};
use crate::folder::{Info, JournalError};
use crate::register::{Record, Register, Standing, Use};
use crate::results::read_rows;
use crate::row::Row;

/// The power at which an effect counts as one that the runs could have shown.
const POWER: f64 = 0.8;

/// The confidence of intervals of exploration.
const EXPLORED: f64 = 0.95;

/// What runs say of a hypothesis.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    /// The hypothesis.
    pub hypothesis: Hypothesis,
    /// When it was registered, as it is stated now.
    pub registered: Option<String>,
    /// The conclusion.
    pub conclusion: Conclusion,
    /// Why it is refused, and the way out: a sentence without a full stop.
    pub refused: Option<String>,
    /// The runs that it is about.
    pub runs: RunCounts,
    /// What the runs say that can confirm it.
    pub confirmation: Option<Estimate>,
    /// What all the others say.
    pub exploration: Option<Estimate>,
}

/// The conclusion about a hypothesis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Conclusion {
    /// The corrected probability is at most the level.
    Confirmed,
    /// It is above.
    NotConfirmed,
    /// There are no runs that could confirm it.
    Refused,
}

/// Numbers of runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RunCounts {
    /// Those that can confirm the hypothesis.
    pub confirming: usize,
    /// Made before it was registered; all, if it is not.
    pub made_before: usize,
    /// Looked at to find it.
    pub explored: usize,
    /// Those that contradict the register.
    pub contradictory: usize,
    /// Those without the score, which count in none of the above.
    pub without_score: usize,
}

/// A difference of two means.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// The first mean minus the second, in the score's unit.
    pub difference: f64,
    /// The ends of its interval.
    pub low: f64,
    /// See [`Estimate::low`].
    pub high: f64,
    /// The confidence of the interval.
    pub confidence: f64,
    /// The probability of data that speak as much for the hypothesis, or for a difference, if it is not so.
    pub p: f64,
    /// The same, corrected for all hypotheses of the campaign that were tested.
    pub corrected_p: Option<f64>,
    /// Degrees of freedom.
    pub df: f64,
    /// The number of means of the term.
    pub means: usize,
    /// The runs of each of the two means.
    pub runs: [usize; 2],
    /// The difference that these runs would have shown with a probability of 0.8.
    pub detectable: Option<f64>,
}

/// Tests all hypotheses of a campaign on the results in a folder, which may be in use.
///
/// # Errors
/// If the folder has the results of another campaign, or of none, or files cannot be read, or were changed.
pub fn verdicts(folder: &Path, campaign: &Campaign) -> Result<Vec<Verdict>, JournalError> {
    Info::read(folder)?;
    Info::check(folder, campaign)?;
    let (rows, register) = (read_rows(folder)?, Register::read(folder)?);
    let mut verdicts: Vec<Verdict> = campaign.hypotheses.iter().map(|it| examine(it, &register, &rows)).collect();
    let tested: Vec<&mut Verdict> = verdicts.iter_mut().filter(|it| it.conclusion != Conclusion::Refused).collect();
    let p_of = |verdict: &Verdict| verdict.confirmation.map_or(1.0, |estimate| estimate.p);
    let corrected = holm(&tested.iter().map(|verdict| p_of(verdict)).collect::<Vec<_>>());
    for (verdict, corrected) in tested.into_iter().zip(corrected) {
        if let Some(estimate) = &mut verdict.confirmation {
            estimate.corrected_p = Some(corrected);
        }
        if corrected <= verdict.hypothesis.level {
            verdict.conclusion = Conclusion::Confirmed;
        }
    }
    Ok(verdicts)
}

/// Examines a hypothesis, whose probability is not corrected yet.
fn examine(hypothesis: &Hypothesis, register: &Register, rows: &[Row]) -> Verdict {
    let standing = register.standing(hypothesis);
    let uses = match standing {
        Standing::Registered(record) => register.uses(record, rows),
        Standing::Unregistered | Standing::Changed(_) => vec![Use::MadeBefore; rows.len()],
    };
    let mut runs = RunCounts::default();
    let (mut confirming, mut others) = (Sample::default(), Sample::default());
    for (row, kind) in rows.iter().zip(uses).filter(|(row, _)| is_meant(hypothesis, row)) {
        let Some(score) = score(hypothesis, row) else {
            runs.without_score += 1;
            continue;
        };
        let (count, sample) = match kind {
            Use::Confirmation => (&mut runs.confirming, &mut confirming),
            Use::MadeBefore => (&mut runs.made_before, &mut others),
            Use::Explored => (&mut runs.explored, &mut others),
            Use::Contradictory => (&mut runs.contradictory, &mut others),
        };
        *count += 1;
        sample.add(hypothesis, row, score);
    }
    let confirmation = confirming.planned(hypothesis);
    let refused = why_refused(&standing, runs, confirmation.is_some());
    Verdict {
        hypothesis: hypothesis.clone(),
        registered: match standing {
            Standing::Registered(Record { time, .. }) => Some(time.clone()),
            Standing::Unregistered | Standing::Changed(_) => None,
        },
        conclusion: if refused.is_some() { Conclusion::Refused } else { Conclusion::NotConfirmed },
        refused,
        runs,
        confirmation,
        exploration: others.explored(hypothesis),
    }
}

/// Why a hypothesis cannot be confirmed by any data.
fn why_refused(standing: &Standing<'_>, runs: RunCounts, has_estimate: bool) -> Option<String> {
    match standing {
        Standing::Unregistered => {
            Some("it is not registered; register it, and make runs after that: those so far are exploration".to_owned())
        }
        Standing::Changed(record) => Some(format!(
            "it differs from the one of this name that was registered {}; restore that text, or register this one under \
             another name and make new runs",
            record.time
        )),
        Standing::Registered(_) if runs.confirming == 0 => Some(
            "no run was made after it was registered, or all were looked at to find it; make more with `--repeats`"
                .to_owned(),
        ),
        Standing::Registered(_) if !has_estimate => {
            Some("there are fewer than two runs of one of its means; make more with `--repeats`".to_owned())
        }
        Standing::Registered(_) => None,
    }
}

/// Whether a hypothesis is about a run.
fn is_meant(hypothesis: &Hypothesis, row: &Row) -> bool {
    hypothesis.subset.iter().all(|(factor, levels)| row.levels.get(factor).is_some_and(|level| levels.contains(level)))
}

fn score(hypothesis: &Hypothesis, row: &Row) -> Option<f64> {
    row.scores.iter().find(|score| score.name == hypothesis.score)?.value
}

/// The name of a cell. Levels are words, which this separates.
fn cell(levels: &[String]) -> String {
    levels.join("\u{1f}")
}

/// Scores and the cells of their runs.
#[derive(Default)]
struct Sample {
    scores: Vec<f64>,
    cells: Vec<String>,
}

impl Sample {
    fn add(&mut self, hypothesis: &Hypothesis, row: &Row, score: f64) {
        let level = |factor: &String| row.levels.get(factor).cloned().unwrap_or_default();
        self.cells.push(cell(&hypothesis.term.iter().map(level).collect::<Vec<_>>()));
        self.scores.push(score);
    }

    /// The analysis by cells, and the number of runs of each of the two.
    fn analysis(&self, hypothesis: &Hypothesis) -> Option<(Anova, [usize; 2])> {
        let mut counts: HashMap<&str, usize> = HashMap::new();
        self.cells.iter().for_each(|cell| *counts.entry(cell).or_default() += 1);
        let runs = hypothesis.compare.each_ref().map(|levels| counts.get(&*cell(levels)).copied().unwrap_or(0));
        let factors = [Factor::new("cell", self.cells.iter().map(String::as_str))];
        let model = Model::new([vec![0]], factors.len()).ok()?;
        let found = anova(&self.scores, &factors, &model).ok()?;
        (runs.iter().all(|&runs| runs > 1) && found.residual_df > 0.0).then_some((found, runs))
    }

    /// The contrast of the hypothesis, which was planned.
    fn planned(&self, hypothesis: &Hypothesis) -> Option<Estimate> {
        let (found, runs) = self.analysis(hypothesis)?;
        let means = found.means("cell").ok()?;
        let mean = |levels: &Vec<String>| means.iter().find(|mean| mean.label == cell(levels)).map(|mean| mean.mean);
        let [first, second] = &hypothesis.compare;
        let difference = mean(first)? - mean(second)?;
        let t = StudentT { df: found.residual_df };
        let error = (found.residual_mean_square() * runs.iter().map(|&runs| 1.0 / runs as f64).sum::<f64>()).sqrt();
        let half_width = t.upper_quantile(hypothesis.level / 2.0) * error;
        Some(Estimate {
            difference,
            low: difference - half_width,
            high: difference + half_width,
            confidence: 1.0 - hypothesis.level,
            p: probability(hypothesis, difference, error, t),
            corrected_p: None,
            df: found.residual_df,
            means: means.len(),
            runs,
            detectable: detectable(&found, runs, hypothesis.level),
        })
    }

    /// The same difference among all that could have been looked at.
    fn explored(&self, hypothesis: &Hypothesis) -> Option<Estimate> {
        let (found, runs) = self.analysis(hypothesis)?;
        let tukey = found.tukey("cell", EXPLORED).ok()?;
        let place = |levels: &Vec<String>| tukey.means.iter().position(|mean| mean.label == cell(levels));
        let [first, second] = hypothesis.compare.each_ref().map(place);
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
            runs,
            detectable: None,
        })
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

/// The difference that these runs would have shown.
fn detectable(found: &Anova, [first, second]: [usize; 2], level: f64) -> Option<f64> {
    // As many runs of each as have the same standard error.
    let each = (2.0 / (1.0 / first as f64 + 1.0 / second as f64)).floor().max(2.0);
    let effect = smallest_effect(Comparison::TwoSamples, each as u64, level, POWER).ok()?;
    Some(effect * found.residual_mean_square().sqrt())
}

#[cfg(test)]
mod tests {
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
    fn a_difference_is_found_only_between_two_runs_each() {
        let mut sample = Sample::default();
        let it = hypothesis(Direction::Greater, 0.0);
        let mut add = |level: &str, score| {
            sample.cells.push(cell(&[level.to_owned()]));
            sample.scores.push(score);
            (sample.planned(&it), sample.explored(&it))
        };
        assert_eq!(
            [("old", 1.0), ("old", 2.0), ("new", 5.0)].map(|(level, score)| add(level, score)),
            [(None, None); 3]
        );
        let (planned, explored) = add("new", 6.0);
        let (planned, explored) = (planned.unwrap(), explored.unwrap());
        assert_eq!((planned.difference, planned.runs, planned.df), (4.0, [2, 2], 2.0));
        assert_eq!((explored.difference, explored.means), (4.0, 2));
        // One-sided, and as one of one pair.
        assert!((2.0 * planned.p - explored.p).abs() < 1e-9, "{} {}", planned.p, explored.p);
        assert!((planned.low - explored.low).abs() < 1e-9 && planned.detectable.unwrap() > 1.0);
    }
}
