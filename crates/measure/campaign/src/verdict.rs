//! What the runs of a campaign say of its hypotheses.
//!
//! Only runs that were made after a hypothesis was registered, and that were not looked at to find it, can confirm it;
//! and only when all runs are made with which it was registered, since whoever may stop when the result looks good, or
//! go on until it does, confirms more by chance than the level says (Armitage, McPherson and Rowe, *Journal of the Royal
//! Statistical Society A* 132, 1969). Its two means are a contrast that was planned: their difference, over the standard
//! error from the scatter of runs with the same levels of all factors, follows Student's t; if several machines made the
//! runs, what one adds to all scores is an additive term of that model. The probabilities are
//! corrected by Holm's method for all hypotheses that the campaign has ever registered. All other runs are exploration:
//! there the difference is one of those that could have been looked at, so probability and interval are Tukey's, for all
//! pairs of means of the term together.

use std::path::Path;

use bellows_stats::holm;
use schemars::JsonSchema;
use serde::Serialize;

use crate::campaign::{Campaign, Hypothesis};
use crate::cells::Cells;
use crate::diagnostics::listed;
use crate::evidence::{Evidence, Use};
use crate::folder::JournalError;
use crate::register::{HypothesisRecord, Standing, text_hash};
use crate::sample::{Estimate, Sample};

/// What runs say of a hypothesis.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize)]
#[schemars(title = "Verdict")]
pub struct Verdict {
    /// The hypothesis.
    pub hypothesis: Hypothesis,
    /// Whether the file has it; others are only in the register.
    ///
    /// Whether the campaign file states it. One that is registered and no longer stated is examined, too.
    pub stated: bool,
    /// When it was registered as it is stated now; null if it is not.
    pub registered: Option<String>,
    /// The number of blocks after which it is tested; null if it is not registered.
    pub repeats: Option<u32>,
    /// The conclusion.
    pub conclusion: Conclusion,
    /// Why it is refused, and the way out; null if it is not.
    pub refused: Option<String>,
    /// The runs that it is about.
    pub runs: RunCounts,
    /// What the runs say that can confirm it; null with too few of them, or while some are missing.
    pub confirmation: Option<Estimate>,
    /// What all other runs say; null with too few of them.
    pub exploration: Option<Estimate>,
    /// Sentences about what the test assumes and does not hold.
    ///
    /// What the confirmation assumes that does not hold, else what the exploration assumes, and what to use instead:
    /// sentences without a full stop.
    pub warnings: Vec<String>,
}

/// The conclusion about a hypothesis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Conclusion {
    /// The corrected probability is at most the level.
    Confirmed,
    /// It is above.
    NotConfirmed,
    /// There are no runs that could confirm it, or not yet all that were planned.
    Refused,
}

/// Numbers of runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, JsonSchema, Serialize)]
#[schemars(title = "Runs of a hypothesis")]
pub struct RunCounts {
    /// Those that can confirm it.
    pub confirming: usize,
    /// Those made before it was registered; all, if it is not.
    pub made_before: usize,
    /// Those looked at to find it.
    pub explored: usize,
    /// Those of more blocks than were planned.
    pub beyond_plan: usize,
    /// Those without the score, which count nowhere else.
    pub without_score: usize,
    /// Those that were planned and are not made yet.
    pub missing: usize,
}

/// Tests all hypotheses of a campaign on the results in a folder, which may be in use: those of the file, and behind
/// them those that are only in the register.
///
/// # Errors
/// If the folder has the results of another campaign, or of none, or files cannot be read, or were changed.
pub fn verdicts(folder: &Path, campaign: &Campaign) -> Result<Vec<Verdict>, JournalError> {
    Ok(verdicts_of(&Evidence::of(folder, campaign)?, campaign))
}

/// Tests all hypotheses of a campaign on results that are read already.
pub fn verdicts_of(evidence: &Evidence, campaign: &Campaign) -> Vec<Verdict> {
    let records = evidence.register().records();
    let is_stated = |record: &&HypothesisRecord| campaign.hypotheses.iter().any(|it| text_hash(it) == record.text);
    let dropped = records.iter().filter(|record| !is_stated(record)).map(|record| (&record.hypothesis, false));
    let all = campaign.hypotheses.iter().map(|it| (it, true)).chain(dropped);
    let mut verdicts: Vec<Verdict> = all.map(|(it, stated)| examine(it, stated, evidence, campaign)).collect();
    // One that cannot be tested yet has its place among those that are.
    let p_of = |verdict: &Verdict| verdict.confirmation.map_or(1.0, |estimate| estimate.p);
    let registered: Vec<&mut Verdict> = verdicts.iter_mut().filter(|it| it.registered.is_some()).collect();
    let corrected = holm(&registered.iter().map(|verdict| p_of(verdict)).collect::<Vec<_>>());
    for (verdict, corrected) in registered.into_iter().zip(corrected) {
        let Some(estimate) = &mut verdict.confirmation else { continue };
        estimate.corrected_p = Some(corrected);
        if corrected <= verdict.hypothesis.level && verdict.refused.is_none() {
            verdict.conclusion = Conclusion::Confirmed;
        }
    }
    verdicts
}

/// Examines a hypothesis, whose probability is not corrected yet.
fn examine(hypothesis: &Hypothesis, stated: bool, evidence: &Evidence, campaign: &Campaign) -> Verdict {
    let standing = evidence.register().standing(hypothesis);
    let results = evidence.results();
    let (uses, missing) = match standing {
        Standing::Registered(record) => {
            let (made, planned) = evidence.planned(record, campaign);
            (evidence.uses(record), planned - made)
        }
        Standing::Unregistered | Standing::Changed(_) => (vec![Use::MadeBefore; results.len()], 0),
    };
    let mut runs = RunCounts { missing, ..RunCounts::default() };
    let cells = Cells::of(results, &hypothesis.term);
    let (mut confirming, mut others) = (Sample::new(&cells), Sample::new(&cells));
    let (measure, meant) = (results.measures.number(&hypothesis.score), evidence.meant(hypothesis));
    let has_score = |row: &usize| Some(results.measure[*row]) == measure && !results.scores[*row].is_nan();
    let units = results.units_of((0..results.len()).filter(|row| meant[*row] && has_score(row)));
    let mut row = 0;
    for run in results.runs.chunk_by(|one, other| one == other) {
        let all = row..row + run.len();
        row = all.end;
        if !meant[all.start] {
            continue;
        }
        let Some(row) = all.clone().find(has_score) else {
            runs.without_score += 1;
            continue;
        };
        let (count, sample) = match uses[row] {
            Use::Confirmation => (&mut runs.confirming, &mut confirming),
            Use::MadeBefore => (&mut runs.made_before, &mut others),
            Use::Explored => (&mut runs.explored, &mut others),
            Use::BeyondPlan => (&mut runs.beyond_plan, &mut others),
        };
        *count += 1;
        sample.add(row, results);
    }
    // Scores with different units have no mean. What is not to be confirmed yet is not to be looked at.
    let has_unit = units.len() < 2;
    let tested = if has_unit && missing == 0 { confirming.analysis(hypothesis) } else { None };
    let confirmation = tested.as_ref().map(|found| found.planned(hypothesis));
    let looked_at = if has_unit { others.analysis(hypothesis) } else { None };
    let refused = match has_unit {
        true => why_refused(&standing, runs, confirmation.is_some())
            .or_else(|| tested.as_ref().filter(|found| found.is_confounded()).map(|_| ONE_SIDE_EACH.to_owned())),
        false => Some(several_units(&units)),
    };
    let record = match standing {
        Standing::Registered(record) => Some(record),
        Standing::Unregistered | Standing::Changed(_) => None,
    };
    Verdict {
        hypothesis: hypothesis.clone(),
        stated,
        registered: record.map(|record| record.time.clone()),
        repeats: record.map(|record| record.repeats),
        conclusion: if refused.is_some() { Conclusion::Refused } else { Conclusion::NotConfirmed },
        refused,
        runs,
        confirmation,
        exploration: looked_at.as_ref().map(|found| found.explored()),
        warnings: tested.as_ref().or(looked_at.as_ref()).map_or(Vec::new(), |found| found.warnings()),
    }
}

/// Why a difference that may be one of machines confirms nothing.
const ONE_SIDE_EACH: &str = "no combination was run on machines of both sides, so their difference may be one of \
                             machines; register it under another name, with more `repeats`, and make runs of both on \
                             each machine";

fn several_units(units: &[&str]) -> String {
    format!(
        "its runs have the score in the units {}, which have no common mean; give each unit a score of its own in a \
         campaign file, and make the runs in another folder",
        listed(units)
    )
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
        Standing::Registered(record) if runs.missing > 0 => Some(format!(
            "it was registered to be tested after {} blocks, of which {} runs are not made yet, and a test before could \
             stop at a chance result; make them with `--repeats {}`",
            record.repeats, runs.missing, record.repeats
        )),
        Standing::Registered(_) if runs.confirming == 0 => Some(
            "no run was made after it was registered, or all were looked at to find it, or failed; register it under \
             another name, with more `repeats`, and make them"
                .to_owned(),
        ),
        Standing::Registered(_) if !has_estimate => Some(
            "there are fewer than two runs of one of its means, or their scores do not scatter; register it under \
             another name, with more `repeats`, and make them"
                .to_owned(),
        ),
        Standing::Registered(_) => None,
    }
}
