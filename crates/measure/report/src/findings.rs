//! The sentences that follow from the tests, in plain words.

use bellows_campaign::Better;
use bellows_stats::check_assumptions;
use bellows_stats::power::smallest_difference;

use crate::analysis::{Analysed, CONFIDENCE};
use crate::course::SIGNIFICANCE;
use crate::model::{Contrast, Contrasts, Reason, Split};
use crate::table::RunTable;
use crate::words::{counted, estimate, listed, number, percent, probability, quoted, sentence, with_unit};

/// The power at which an effect counts as one that the runs could have shown.
const POWER: f64 = 0.8;

/// Maximum number of differences that a sentence names.
const MAX_NAMED: usize = 4;

/// What a section's sentences are about.
pub(crate) struct About<'t> {
    pub(crate) table: &'t RunTable,
    pub(crate) factor: &'t str,
    pub(crate) labels: &'t [String],
}

impl About<'_> {
    /// The sentences about the differences over all runs.
    pub(crate) fn differences(&self, contrasts: &Contrasts, analysed: &Analysed) -> Vec<String> {
        let shown: Vec<&Contrast> = contrasts.rows.iter().filter(|row| is_shown(row)).collect();
        let mut sentences = match contrasts.rows.as_slice() {
            [only] => vec![self.difference(only, analysed)],
            rows => {
                let of = format!("{} of {}", shown.len(), counted(rows.len(), "pair", "pairs"));
                let mut text = vec![format!("{of} of levels of {} differ.", quoted(self.factor))];
                let mut largest = shown.clone();
                largest.sort_by(|one, other| other.difference.abs().total_cmp(&one.difference.abs()));
                text.extend(largest.into_iter().take(MAX_NAMED).map(|row| self.difference(row, analysed)));
                text
            }
        };
        if shown.len() < contrasts.rows.len()
            && let Some(least) = self.detectable(contrasts, analysed)
        {
            sentences.push(format!(
                "A true difference of {} or more would probably have shown (in 4 of 5 such campaigns); a smaller one \
                 may exist unseen.",
                self.unit(&number(least))
            ));
        }
        sentences
    }

    /// A difference in words.
    fn difference(&self, row: &Contrast, analysed: &Analysed) -> String {
        let [one, other] = row.levels.map(|level| quoted(&self.labels[level]));
        let interval = format!("{}{}", self.interval(row), self.over(row, analysed));
        if !is_shown(row) {
            return format!(
                "The runs show no difference between {one} and {other}: it is {interval}, an interval with 0 in it."
            );
        }
        let more = row.difference > 0.0;
        let better = match (self.table.better, more) {
            (None, true) => "higher",
            (None, false) => "lower",
            (Some(Better::Higher), true) => "higher, which is better,",
            (Some(Better::Higher), false) => "lower, which is worse,",
            (Some(Better::Lower), true) => "higher, which is worse,",
            (Some(Better::Lower), false) => "lower, which is better,",
        };
        let share = row.relative.map_or(String::new(), |share| format!(", {} percent", percent(share.abs())));
        format!("{} is {better} with {one} than with {other}: by {interval}{share}.", sentence_start(&self.table.score))
    }

    /// The combinations that a difference is the mean of, if other levels have others, or other numbers of runs.
    fn over(&self, row: &Contrast, analysed: &Analysed) -> String {
        let factors = analysed.found.terms.iter().flat_map(|term| &term.factors);
        let has_others = factors.into_iter().any(|&factor| self.table.factors[factor].name() != self.factor);
        if analysed.summary.is_balanced || !has_others {
            return String::new();
        }
        format!(", over {}", counted(row.combinations, "common combination", "common combinations"))
    }

    fn interval(&self, row: &Contrast) -> String {
        let numbers = estimate(row.difference, row.low, row.high, &self.table.unit);
        format!("{numbers}, {}", probability(row.p))
    }

    fn unit(&self, text: &str) -> String {
        with_unit(text, &self.table.unit)
    }

    /// The difference that the runs would have shown between any two levels that show none.
    fn detectable(&self, contrasts: &Contrasts, analysed: &Analysed) -> Option<f64> {
        let errors = contrasts.rows.iter().filter(|row| !is_shown(row)).map(|row| row.error);
        let significance = (1.0 - CONFIDENCE) / contrasts.comparisons as f64;
        smallest_difference(errors.reduce(f64::max)?, analysed.summary.df, significance, POWER).ok()
    }

    /// The sentences about the differences within the levels of another factor.
    pub(crate) fn within(&self, split: &Split, analysed: &Analysed) -> Vec<String> {
        let Some(contrasts) = &split.contrasts else { return Vec::new() };
        let other = quoted(&split.factor);
        let mut sentences = Vec::new();
        let label = format!("{}:{}", self.factor, split.factor);
        if let Some(term) = analysed.found.term(&label).filter(|term| term.p.is_finite()) {
            let does = if term.p < 1.0 - CONFIDENCE { "depends" } else { "does not visibly depend" };
            let (factor, p) = (quoted(self.factor), probability(term.p));
            sentences.push(format!("What {factor} changes {does} on {other} ({p})."));
        }
        let mut shown: Vec<&Contrast> = contrasts.rows.iter().filter(|row| is_shown(row)).collect();
        shown.sort_by(|one, other| one.p.total_cmp(&other.p));
        let named: Vec<String> = shown.iter().take(MAX_NAMED).map(|row| self.named(row, &split.panels)).collect();
        let pairs = counted(contrasts.rows.len(), "comparison", "comparisons");
        sentences.push(match shown.len() {
            0 => format!("Within levels of {other}, none of {pairs} shows a difference."),
            number if number > named.len() => format!(
                "Within levels of {other}, {number} of {pairs} show a difference, the clearest of which are {}.",
                listed(&named)
            ),
            number => format!(
                "Within levels of {other}, {number} of {pairs} {} a difference: {}.",
                if number == 1 { "shows" } else { "show" },
                listed(&named)
            ),
        });
        sentences
    }

    fn named(&self, row: &Contrast, panels: &[String]) -> String {
        let panel = row.panel.and_then(|panel| panels.get(panel)).map_or(String::new(), |panel| quoted(panel));
        let [one, other] = row.levels.map(|level| quoted(&self.labels[level]));
        let numbers = estimate(row.difference, row.low, row.high, &self.table.unit);
        format!("{panel}: {one} \u{2212} {other} {numbers} ({})", probability(row.p))
    }
}

/// What was done about several machines, as a sentence.
pub(crate) fn machines(table: &RunTable, analysed: &Analysed) -> Option<String> {
    let machines = table.machines.as_ref()?;
    let count = match analysed.summary.machines {
        1 => machines.levels().len(),
        count => count,
    };
    let machines = counted(count, "machine", "machines");
    Some(match analysed.summary.machine_df {
        0 => format!(
            "The runs are of {machines}. What differs between them is part of the noise, because there are more than \
             256, or no combination, or too few runs, were made on several of them."
        ),
        _ => format!(
            "The runs are of {machines}. What a machine adds to all scores is taken out of the differences, their \
             intervals and the analysis of variance: the machine is a term of the model."
        ),
    })
}

/// Differences that may be those of machines.
fn confounded<'c>(contrasts: impl Iterator<Item = &'c Contrasts>) -> Option<String> {
    let (mut all, mut confounded) = (0, 0);
    for row in contrasts.flat_map(|contrasts| &contrasts.rows) {
        all += 1;
        confounded += usize::from(row.is_confounded);
    }
    let what = format!("{confounded} of {}", counted(all, "difference", "differences"));
    (confounded > 0).then(|| {
        format!(
            "{what} may be one of machines: no combination was run on machines of both sides. Make runs of all \
             combinations on each machine."
        )
    })
}

/// Whether a difference shows: its interval excludes 0.
pub(crate) fn is_shown(row: &Contrast) -> bool {
    row.low > 0.0 || row.high < 0.0
}

/// A score's name at the begin of a sentence.
fn sentence_start(score: &str) -> String {
    let text = sentence(score);
    quoted(text.strip_suffix('.').unwrap_or(&text))
}

/// The number of comparisons and their corrected interval.
pub(crate) fn statement(contrasts: Option<&Contrasts>, unit: &str) -> String {
    let Some(contrasts) = contrasts else {
        return "No differences are computed: the runs leave nothing to compare within these levels, or there are too \
                many to compare."
            .to_owned();
    };
    let (least, most) = contrasts.half_width;
    let half = match number(least) == number(most) {
        true => format!("\u{b1}{}", with_unit(&number(most), unit)),
        false => format!("\u{b1}{} to \u{b1}{}", number(least), with_unit(&number(most), unit)),
    };
    let (shown, all) = (contrasts.rows.len(), contrasts.comparisons);
    let of = match shown == all {
        true => counted(all, "comparison", "comparisons"),
        false => format!("{} of all {}", counted(shown, "comparison", "comparisons"), all),
    };
    format!(
        "{of} between {}, corrected for {all} by {}: with {} percent confidence all intervals together hold; each is {half}.",
        counted(contrasts.means, "mean", "means"),
        contrasts.method,
        percent(contrasts.confidence),
    )
}

/// Why runs have no score, in words.
pub(crate) fn failures(runs: usize, reasons: &[Reason]) -> String {
    let failed: usize = reasons.iter().map(|reason| reason.runs).sum();
    match failed {
        0 => format!("{} a score.", counted(runs, "run has", "runs have")),
        failed => format!(
            "{} of {} no score ({} percent), for {}; they are left out of all means, medians and tests.",
            crate::words::count(failed),
            counted(runs, "run has", "runs have"),
            percent(failed as f64 / runs as f64),
            counted(reasons.len(), "reason", "different reasons"),
        ),
    }
}

/// Which tests that assume less the tables have beside the analysis' own, as a sentence.
fn others_beside<'c>(contrasts: impl Iterator<Item = &'c Contrasts> + Clone) -> Option<String> {
    let rows = || contrasts.clone().flat_map(|contrasts| &contrasts.rows);
    let tests = [
        (rows().any(|row| row.welch_p.is_some()), "Welch\u{2019}s test"),
        (rows().any(|row| row.dunn_p.is_some()), "ranks (Dunn)"),
    ];
    let tests: Vec<String> =
        tests.into_iter().filter(|(is_there, _)| *is_there).map(|(_, test)| test.to_owned()).collect();
    let mut methods: Vec<String> =
        contrasts.clone().map(|contrasts| format!("{}\u{2019}s", contrasts.method)).collect();
    methods.sort_unstable();
    methods.dedup();
    (!tests.is_empty() && !methods.is_empty()).then(|| {
        format!(
            "The tables have p by {} beside {}: where all agree, the conclusion does not rest on these assumptions.",
            listed(&tests),
            methods.join(" or ")
        )
    })
}

/// Assumptions that do not hold and what to use instead.
pub(crate) fn warnings<'c>(
    table: &RunTable,
    analysed: &Analysed,
    contrasts: impl Iterator<Item = &'c Contrasts> + Clone,
) -> Vec<String> {
    let mut warnings: Vec<String> = check_assumptions(&analysed.found, &table.scores, None, SIGNIFICANCE)
        .iter()
        .map(|warning| sentence(&warning.to_string()))
        .collect();
    if !warnings.is_empty() {
        warnings.extend(others_beside(contrasts.clone()));
    }
    warnings.extend(confounded(contrasts));
    if !analysed.summary.is_balanced {
        warnings.push(
            "The combinations have different numbers of scores, or some have none. So each difference is the mean of \
             the differences within the combinations of the other factors that both levels have, each with the same \
             weight; levels without a common combination are not compared. Tests of terms are adjusted for the terms \
             before them in the model."
                .to_owned(),
        );
    }
    warnings
}
