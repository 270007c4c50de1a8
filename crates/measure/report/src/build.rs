//! Makes a report from results.

use bellows_campaign::Results;
use bellows_stats::{Factor, median};

use crate::analysis::{analyse, contrasts, contrasts_within, groups_within};
use crate::axis::Axis;
use crate::confirm::confirmation;
use crate::course::course;
use crate::distributions::distributions;
use crate::findings::{About, failures, machines, statement, warnings};
use crate::matrix::matrix;
use crate::model::{Distributions, LevelScores, Reason, Report, Section, Split};
use crate::source::{ReportError, ResultSource};
use crate::table::{RunTable, ScoreGroups, scores, tables};
use crate::words;

/// Names of factors that compare versions of a thing.
const VERSIONS: [&str; 6] = ["version", "build", "revision", "commit", "branch", "snabb"];

/// Maximum number of factors by which pictures are split.
const MAX_SPLITS: usize = 12;

/// What a report is about.
#[derive(Clone, Debug, Default)]
pub struct ReportOptions {
    /// The factor of interest. Without it that of the first hypothesis, else a factor of versions, else one with few
    /// levels.
    pub by: Option<String>,
    /// The only score. Without it all.
    pub score: Option<String>,
}

impl Report {
    /// Makes a report.
    ///
    /// # Errors
    /// If the results have no such factor or score.
    pub fn of(source: &ResultSource, options: &ReportOptions) -> Result<Report, ReportError> {
        check(&source.results, options)?;
        let tables = tables(&source.results, source.info.as_ref(), options.score.as_deref());
        let hypothesis = source.verdicts.first().and_then(|verdict| verdict.hypothesis.term.first());
        let mut sections: Vec<Section> = Vec::new();
        for table in tables {
            let (by, reason) = factor_of_interest(&table, options.by.as_deref(), hypothesis.map(String::as_str));
            let id = format!("score-{}", sections.len() + 1);
            sections.push(section(table, &source.results, id, by, reason));
        }
        let name = source.path.file_stem().map_or(String::new(), |name| name.to_string_lossy().into_owned());
        let title = if source.results.name.is_empty() { name } else { source.results.name.clone() };
        Ok(Report {
            title: words::label(&title),
            source: words::label(&source.path.display().to_string()),
            setup: source.setup(),
            sections,
            confirmation: confirmation(source),
        })
    }
}

fn check(results: &Results, options: &ReportOptions) -> Result<(), ReportError> {
    let listed = |names: Vec<String>| if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    if let Some(by) = &options.by
        && results.factor(by).is_none()
    {
        let known = results.factors.iter().map(|factor| words::label(&factor.name)).collect();
        return Err(ReportError::Factor { name: words::label(by), known: listed(known) });
    }
    if let Some(score) = &options.score {
        let known = scores(results);
        if !known.contains(score) {
            let known = known.iter().map(|name| words::label(name)).collect();
            return Err(ReportError::Score { name: words::label(score), known: listed(known) });
        }
    }
    Ok(())
}

/// The factor of interest, and why it is that one.
fn factor_of_interest(table: &RunTable, by: Option<&str>, hypothesis: Option<&str>) -> (Option<usize>, String) {
    if let Some(name) = by {
        let name = words::factor_name(name);
        let reason = match table.factor(&name) {
            Some(_) => "It was asked for with --by.".to_owned(),
            None => format!("All runs of this score have the same level of {name}, so nothing is compared by it."),
        };
        return (table.factor(&name), reason);
    }
    if let Some(place) = hypothesis.and_then(|name| table.factor(&words::factor_name(name))) {
        return (Some(place), "The first hypothesis is about it. --by chooses another.".to_owned());
    }
    if let Some(place) = VERSIONS.iter().find_map(|name| table.factor(name)) {
        return (Some(place), "Its name is that of versions. --by chooses another.".to_owned());
    }
    let few = (0..table.factors.len()).min_by_key(|factor| table.factors[*factor].levels().len());
    match few {
        Some(_) => (few, "It has the fewest levels. --by chooses another.".to_owned()),
        None => (None, "No factor has more than one level, so there is nothing to compare.".to_owned()),
    }
}

fn section(table: RunTable, results: &Results, id: String, by: Option<usize>, factor_reason: String) -> Section {
    let all = vec!["all runs".to_owned()];
    let labels = by.map_or(all.clone(), |by| table.factors[by].levels().to_vec());
    let level = |row: usize| by.map_or(0, |by| table.factors[by].codes()[row] as usize);
    let groups = ScoreGroups::of(&table.scores, labels.len(), level);
    let axis = Axis::around(table.scores.iter().copied(), 0.1);
    let levels: Vec<LevelScores> =
        labels.iter().enumerate().map(|(level, label)| scores_of(&groups, level, label)).collect();
    let reasons = reasons(&table, results, labels.len(), level);
    let others: Vec<usize> = (0..table.factors.len()).filter(|factor| Some(*factor) != by).collect();
    let analysed = by.map(|by| analyse(&table, by));
    let (analysed, unanalysed) = match analysed {
        Some(Ok(analysed)) => (Some(analysed), None),
        Some(Err(why)) => (None, Some(format!("Nothing is tested: {}", words::sentence(&why)))),
        None => (None, None),
    };
    let compared = by.zip(analysed.as_ref());
    let differences = compared.and_then(|(by, analysed)| contrasts(analysed, &table.factors[by], &groups));
    let mut splits = Vec::new();
    for &other in others.iter().take(MAX_SPLITS) {
        let groups = groups_within(&table, by, other);
        let contrasts = compared.and_then(|(by, analysed)| contrasts_within(analysed, &table, [by, other], &groups));
        splits.push(Split {
            factor: table.factors[other].name().to_owned(),
            distributions: distributions(&groups, table.factors[other].levels(), &labels, &axis),
            panels: table.factors[other].levels().to_vec(),
            statement: statement(contrasts.as_ref(), &table.unit),
            contrasts,
        });
    }
    let mut findings = vec![failures(table.scores.len(), &reasons)];
    let mut cautions: Vec<String> = unanalysed.into_iter().collect();
    if let Some((by, analysed)) = compared {
        let about = About { table: &table, factor: table.factors[by].name(), labels: &labels };
        findings.extend(machines(&table, analysed));
        match &differences {
            Some(contrasts) => findings.extend(about.differences(contrasts, analysed)),
            None => cautions.push(format!(
                "{} has {} levels, too many to compare each with each: their medians and the matrix show them.",
                words::quoted(table.factors[by].name()),
                labels.len()
            )),
        }
        findings.extend(splits.iter().flat_map(|split| about.within(split, analysed)));
        let of_splits = splits.iter().filter_map(|split| split.contrasts.as_ref());
        cautions.extend(warnings(&table, analysed, differences.iter().chain(of_splits)));
    }
    if others.len() > MAX_SPLITS {
        let left = listed_names(&table, &others[MAX_SPLITS..]);
        cautions.push(format!("Pictures are not split by {left}: there are too many factors. The matrix has them."));
    }
    let course = course(&table, analysed.as_ref());
    if course.disturbed_runs > 0 {
        cautions.push(format!(
            "The machine was disturbed during {}; they count, and the picture of time marks them.",
            words::counted(course.disturbed_runs, "run", "runs")
        ));
    }
    let one = vec!["all runs".to_owned()];
    let overlay = distributions(&groups, &one, &labels, &axis).unwrap_or_else(|| Distributions::none(&axis));
    Section {
        id,
        runs: table.scores.len(),
        scored: table.scored(),
        factor: by.map(|by| table.factors[by].name().to_owned()),
        factor_reason,
        others: others.iter().map(|&other| table.factors[other].name().to_owned()).collect(),
        levels,
        failures: reasons,
        findings,
        warnings: cautions,
        analysis: analysed.map(|analysed| analysed.summary),
        contrasts: differences,
        overlay,
        splits,
        matrix: matrix(&table, by),
        course,
        score: table.score,
        unit: table.unit,
        better: table.better,
        held: table.held,
    }
}

fn listed_names(table: &RunTable, factors: &[usize]) -> String {
    let names: Vec<String> = factors.iter().map(|&factor| Factor::name(&table.factors[factor]).to_owned()).collect();
    words::listed(&names)
}

fn scores_of(groups: &ScoreGroups, level: usize, label: &str) -> LevelScores {
    let sample = groups.sample(level);
    let count = sample.len() as f64;
    let mean = if sample.is_empty() { f64::NAN } else { sample.iter().map(|score| score / count).sum::<f64>() };
    let squares: f64 = sample.iter().map(|score| (score - mean).powi(2)).sum();
    let middle = median(sample);
    LevelScores {
        label: label.to_owned(),
        runs: groups.runs[level],
        scored: sample.len(),
        mean,
        deviation: if sample.len() > 1 { (squares / (count - 1.0)).sqrt() } else { f64::NAN },
        median: middle.map_or(f64::NAN, |median| median.value),
        low: middle.map_or(f64::NAN, |median| median.low),
        high: middle.map_or(f64::NAN, |median| median.high),
    }
}

/// The reasons of failures, the most frequent first.
fn reasons(table: &RunTable, results: &Results, levels: usize, level: impl Fn(usize) -> usize) -> Vec<Reason> {
    let mut counts: Vec<Vec<usize>> = vec![Vec::new(); results.reasons.all().len()];
    for (row, _) in table.scores.iter().enumerate().filter(|(_, score)| !score.is_finite()) {
        let counts = &mut counts[table.failure[row] as usize];
        counts.resize(levels, 0);
        counts[level(row)] += 1;
    }
    let reason = |(place, levels): (usize, Vec<usize>)| {
        let reason = results.reasons.word(place as u32);
        let reason = if reason.is_empty() { "no score, for a reason that is not known" } else { reason };
        Reason { reason: words::label(reason), runs: levels.iter().sum(), levels }
    };
    let mut reasons: Vec<Reason> =
        counts.into_iter().enumerate().filter(|(_, levels)| !levels.is_empty()).map(reason).collect();
    reasons.sort_by_key(|reason| std::cmp::Reverse(reason.runs));
    reasons
}
