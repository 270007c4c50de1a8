//! The analysis of variance of a score, and the differences of means.

use bellows_stats::anova::{Adjustment, AnovaError, CommonContrast, MAX_MEANS};
use bellows_stats::{Anova, Bootstrap, Factor, Model, anova_within, bootstrap_ratio, dunn, holm, median, welch};

use crate::model::{Analysis, Contrast, Contrasts, Term};
use crate::table::{RunTable, ScoreGroups};

/// The probability with which all intervals of a picture or table together have the true differences.
pub(crate) const CONFIDENCE: f64 = 0.95;

/// Maximum number of effects of a model, which bounds the time.
const MAX_EFFECTS: usize = 600;

/// Sums of squares of larger scores can exceed the largest number.
const LARGEST: f64 = 1e145;

/// Maximum number of pairs that are also compared by Welch's test.
const MAX_WELCH: usize = 2_100;

/// An analysis with all that follows from it.
pub(crate) struct Analysed {
    pub(crate) found: Anova,
    pub(crate) summary: Analysis,
}

/// Analyses the scores by the factor of interest and all others.
///
/// # Errors
/// Why they cannot be analysed: a sentence without a full stop.
pub(crate) fn analyse(table: &RunTable, by: usize) -> Result<Analysed, String> {
    if table.scored() < 3 {
        return Err(format!("{} runs have a score, too few to compare anything; make more runs", table.scored()));
    }
    if table.scores.iter().any(|score| score.abs() > LARGEST) {
        return Err(format!("some scores exceed {LARGEST:e}, so that their squares are no numbers; use a larger unit"));
    }
    let mut why = None;
    for terms in models(&table.factors, by) {
        let effects =
            |term: &Vec<usize>| term.iter().map(|factor| table.factors[*factor].levels().len()).product::<usize>();
        let estimated: usize = terms.iter().filter(|term| term.len() < 3).map(effects).sum::<usize>();
        if estimated > MAX_EFFECTS && terms.len() > 1 {
            continue;
        }
        let Ok(model) = Model::new(terms, table.factors.len()) else { continue };
        match anova_within(&table.scores, &table.factors, &model, table.machines.as_ref()) {
            Ok(found) => return Ok(Analysed { summary: summary(&found), found }),
            // Another model may leave something for the noise.
            Err(
                error @ (AnovaError::NoResiduals { .. }
                | AnovaError::TooManyEffects { .. }
                | AnovaError::OneLevel { .. }),
            ) => {
                why = why.or(Some(error.to_string()));
            }
            Err(error) => return Err(error.to_string()),
        }
    }
    Err(why.unwrap_or_else(|| "no factor varies among the runs with a score".to_owned()))
}

/// Models as sets of factors, the most detailed first: with the interactions of the factor of interest, and all factors
/// together, so that what is left is the scatter within combinations.
fn models(factors: &[Factor], by: usize) -> Vec<Vec<Vec<usize>>> {
    let others: Vec<usize> = (0..factors.len()).filter(|factor| *factor != by).collect();
    let mut mains: Vec<Vec<usize>> = others.iter().map(|&other| vec![other]).collect();
    mains.push(vec![by]);
    let interactions = others.iter().map(|&other| vec![by, other]);
    let detailed: Vec<Vec<usize>> = mains.iter().cloned().chain(interactions).collect();
    let mut models = vec![detailed.clone(), mains, vec![vec![by]]];
    if others.len() > 1 {
        models.insert(0, [detailed, vec![(0..factors.len()).collect()]].concat());
    }
    models
}

fn summary(found: &Anova) -> Analysis {
    let all: f64 = found.terms.iter().map(|term| term.squares).sum::<f64>() + found.residual_squares;
    let term = |row: &bellows_stats::anova::TermRow| Term {
        label: row.label.clone(),
        df: row.df,
        f: row.f,
        p: row.p,
        share: row.squares / all,
    };
    let terms: Vec<Term> = found.terms.iter().map(term).collect();
    Analysis {
        model: terms.iter().map(|term| term.label.as_str()).collect::<Vec<&str>>().join(" + "),
        terms,
        df: found.residual_df,
        deviation: found.residual_mean_square().sqrt(),
        is_balanced: found.is_balanced,
        machines: found.blocks(),
        machine_df: found.block_df,
    }
}

/// A mean that is compared: the index of its panel, and of its level.
type MeanPlace = (usize, usize);

/// The differences between the levels of the factor of interest, of which `groups` has the scores. None if there are too
/// many, or fewer than two.
pub(crate) fn contrasts(analysed: &Analysed, factor: &Factor, groups: &ScoreGroups) -> Option<Contrasts> {
    let levels = (0..groups.len()).filter(|level| !groups.sample(*level).is_empty());
    let present: Vec<MeanPlace> = levels.map(|level| (0, level)).collect();
    let mut found = compared(&analysed.found, factor.name(), &present, factor.levels())?;
    found.rows.iter_mut().for_each(|row| row.panel = None);
    // Where levels have different combinations, their runs as a whole cannot be compared.
    if present.len() > 1 && is_crossed(&analysed.found, factor.name()) {
        add_tests(&mut found, groups, &present);
    }
    Some(found)
}

/// Whether all levels of a factor were run with the same combinations of the other factors.
fn is_crossed(found: &Anova, factor: &str) -> bool {
    found.common_contrasts(factor, &[], CONFIDENCE).is_ok_and(|common| common.is_crossed)
}

/// Adds the tests that assume less, of all runs of each level.
fn add_tests(found: &mut Contrasts, groups: &ScoreGroups, present: &[MeanPlace]) {
    add_welch(found, groups, |_, level| level);
    let samples: Vec<&[f64]> = present.iter().map(|(_, level)| groups.sample(*level)).collect();
    for compared in dunn(&samples).into_iter().flatten() {
        let levels = [present[compared.other].1, present[compared.one].1];
        let row = found.rows.iter_mut().find(|row| row.levels == levels);
        row.into_iter().for_each(|row| row.dunn_p = Some(compared.adjusted_p));
    }
}

/// The scores of each level of the factor of interest within each level of another: the first varies fastest.
pub(crate) fn groups_within(table: &RunTable, by: Option<usize>, other: usize) -> ScoreGroups {
    let split = &table.factors[other];
    let factor = by.map(|by| &table.factors[by]);
    let levels = factor.map_or(1, |factor| factor.levels().len());
    let level = |row: usize| factor.map_or(0, |factor| factor.codes()[row] as usize);
    let group = |row: usize| split.codes()[row] as usize * levels + level(row);
    ScoreGroups::of(&table.scores, levels * split.levels().len(), group)
}

/// The differences between the levels of the factor of interest within each level of another factor, of which `groups`
/// has the scores as by [`groups_within`].
pub(crate) fn contrasts_within(
    analysed: &Analysed,
    table: &RunTable,
    [by, other]: [usize; 2],
    groups: &ScoreGroups,
) -> Option<Contrasts> {
    let (factor, split) = (&table.factors[by], &table.factors[other]);
    let levels = factor.levels().len();
    let cells = (0..groups.len()).filter(|group| !groups.sample(*group).is_empty());
    let mut present: Vec<MeanPlace> = cells.map(|group| (group / levels, group % levels)).collect();
    // The order of the analysis: its first factor varies fastest.
    if other < by {
        present.sort_unstable_by_key(|(panel, level)| (*level, *panel));
    }
    let term = format!("{}:{}", factor.name(), split.name());
    let mut found = compared(&analysed.found, &term, &present, factor.levels())?;
    add_welch(&mut found, groups, |panel, level| panel * levels + level);
    Some(found)
}

/// Compares the means of a term that are in the same panel, with intervals that hold together.
fn compared(found: &Anova, term: &str, present: &[MeanPlace], labels: &[String]) -> Option<Contrasts> {
    let means = found.means(term).ok()?;
    let panels = present.iter().map(|(panel, _)| panel).max()? + 1;
    let pairs = pairs(present);
    // Without a panel, levels are compared each with each, which takes long for many.
    if means.len() != present.len() || pairs.is_empty() || panels == 1 && means.len() > MAX_MEANS {
        return None;
    }
    let common = found.common_contrasts(term, &pairs, CONFIDENCE).ok()?;
    let row = |it: &CommonContrast| {
        let [(panel, one), (_, other)] = [present[it.minuend], present[it.subtrahend]];
        Contrast {
            panel: Some(panel),
            levels: [one, other],
            label: format!("{} \u{2212} {}", labels[one], labels[other]),
            combinations: it.combinations,
            is_confounded: it.is_confounded,
            error: it.error,
            difference: it.difference,
            low: it.low,
            high: it.high,
            p: it.p,
            relative: Some(it.difference / it.subtrahend_mean.abs()).filter(|share| share.abs() < 10.0),
            welch_p: None,
            welch: None,
            dunn_p: None,
            ratio: None,
        }
    };
    let rows: Vec<Contrast> = common.contrasts.iter().map(row).collect();
    if rows.is_empty() {
        return None;
    }
    let (means, comparisons) = (common.means, common.comparisons);
    let method = match common.adjustment {
        Adjustment::Tukey => "Tukey\u{2013}Kramer",
        Adjustment::Bonferroni => "Bonferroni",
    };
    let halves = rows.iter().map(|row| (row.high - row.low) / 2.0);
    let half_width = halves.fold((f64::INFINITY, 0.0f64), |(least, most), half| (half.min(least), half.max(most)));
    let method = method.to_owned();
    Some(Contrasts { method, means, comparisons, confidence: CONFIDENCE, half_width, rows })
}

/// The pairs of means in the same panel: the later level minus the earlier one, in the order of panels.
fn pairs(present: &[MeanPlace]) -> Vec<(usize, usize)> {
    let mut order: Vec<usize> = (0..present.len()).collect();
    order.sort_unstable_by_key(|&index| present[index]);
    let mut pairs = Vec::new();
    for (place, &subtrahend) in order.iter().enumerate() {
        let others = order[place + 1..].iter().take_while(|&&minuend| present[minuend].0 == present[subtrahend].0);
        pairs.extend(others.map(|&minuend| (minuend, subtrahend)));
    }
    pairs
}

/// Adds the tests that assume less: Welch's for each pair, and the ratio of medians if two levels are compared.
fn add_welch(contrasts: &mut Contrasts, groups: &ScoreGroups, place: impl Fn(usize, usize) -> usize) {
    let pairs = contrasts.rows.len();
    if pairs > MAX_WELCH {
        return;
    }
    let confidence = 1.0 - (1.0 - CONFIDENCE) / pairs as f64;
    let is_pair = contrasts.rows.iter().all(|row| row.levels == contrasts.rows[0].levels);
    let tests: Vec<_> = contrasts
        .rows
        .iter()
        .map(|row| {
            let sample = |level: usize| groups.sample(place(row.panel.unwrap_or(0), level));
            let [ones, others] = row.levels.map(sample);
            (welch(ones, others, confidence), if is_pair { ratio(ones, others, confidence) } else { None })
        })
        .collect();
    let p = |test: &Option<bellows_stats::Welch>| test.as_ref().map(|test| test.p).filter(|p| p.is_finite());
    let known: Vec<f64> = tests.iter().filter_map(|(test, _)| p(test)).collect();
    let mut corrected = holm(&known).into_iter();
    for (row, (test, ratio)) in contrasts.rows.iter_mut().zip(tests) {
        row.welch_p = p(&test).and_then(|_| corrected.next());
        row.welch = test.map(|test| (test.low, test.high)).filter(|(low, high)| low.is_finite() && high.is_finite());
        row.ratio = ratio;
    }
}

/// The ratio of two medians, if both are above 0, with its interval.
fn ratio(ones: &[f64], others: &[f64], confidence: f64) -> Option<(f64, f64, f64)> {
    let is_positive = |sample: &[f64]| sample.len() > 1 && median(sample).is_some_and(|median| median.value > 0.0);
    if !is_positive(ones) || !is_positive(others) {
        return None;
    }
    // Percentiles that are far out need many samples.
    let resamples = (20.0 / (1.0 - confidence)).clamp(2_000.0, 20_000.0) as usize;
    let found = bootstrap_ratio(ones, others, &Bootstrap { resamples, confidence, ..Bootstrap::default() })?;
    Some((found.value, found.low, found.high)).filter(|(value, ..)| value.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::tables;

    fn table(rows: impl Iterator<Item = String>) -> RunTable {
        let text = format!("version,config,score,unit\n{}", rows.collect::<Vec<String>>().join("\n"));
        tables(&bellows_campaign::import(text.as_bytes(), "test.csv").unwrap(), None, None).remove(0)
    }

    fn noise(row: usize) -> f64 {
        (row * 7919 % 101) as f64 / 101.0
    }

    #[test]
    fn differences_within_panels_are_those_of_their_cells() {
        let score = |version: usize, config: usize| (10 * version + 100 * config * (1 + version)) as f64;
        let rows = (0..240).map(|row| {
            let (version, config) = (row % 2, row / 2 % 3);
            format!("v{version},c{config},{},Gbps", score(version, config) + noise(row))
        });
        let table = table(rows);
        for (by, other) in [(0, 1), (1, 0)] {
            let analysed = analyse(&table, by).unwrap();
            assert!((analysed.summary.deviation - 0.29).abs() < 0.05, "{}", analysed.summary.deviation);
            let found =
                contrasts_within(&analysed, &table, [by, other], &groups_within(&table, Some(by), other)).unwrap();
            assert_eq!((found.means, found.comparisons, found.method.as_str()), (6, 15, "Tukey\u{2013}Kramer"));
            for row in &found.rows {
                let panel = row.panel.unwrap();
                let at = |level: usize| if by == 0 { score(level, panel) } else { score(panel, level) };
                let expected = at(row.levels[0]) - at(row.levels[1]);
                assert!((row.difference - expected).abs() < 0.3, "{row:?} {expected}");
                assert!(row.low < row.difference && row.difference < row.high && row.p < 0.001);
                assert!(row.welch_p.unwrap() < 0.001 && row.welch.unwrap().0 < row.difference);
            }
            assert_eq!(found.rows.len(), if by == 0 { 3 } else { 6 });
        }
    }

    #[test]
    fn one_run_a_cell_is_compared_without_the_interaction() {
        let table = table((0..12).map(|row| format!("v{},c{},{},", row % 2, row / 2, noise(row) + (row % 2) as f64)));
        let analysed = analyse(&table, 0).unwrap();
        assert_eq!(analysed.summary.model, "config + version");
        assert!(contrasts_within(&analysed, &table, [0, 1], &groups_within(&table, Some(0), 1)).is_none());
        let groups = ScoreGroups::of(&table.scores, 2, |row| table.factors[0].codes()[row] as usize);
        assert_eq!(contrasts(&analysed, &table.factors[0], &groups).unwrap().rows.len(), 1);
    }

    #[test]
    fn what_cannot_be_analysed_says_why() {
        let why = |scores: &[&str]| {
            let rows = scores.iter().enumerate().map(|(row, score)| format!("v{},c,{score},", row % 2));
            analyse(&table(rows), 0).err().unwrap()
        };
        assert!(why(&["1", "2"]).contains("too few"));
        assert!(why(&["1", "1", "1", "1"]).contains("same score"));
        assert!(why(&["1e300", "2e300", "-1e300", "5e299"]).contains("larger unit"));
    }

    #[test]
    fn many_means_are_compared_within_their_panels_only() {
        let rows = (0..800).map(|row| format!("v{},c{:02},{},", row % 2, row / 2 % 40, noise(row)));
        let table = table(rows);
        let analysed = analyse(&table, 0).unwrap();
        let found = contrasts_within(&analysed, &table, [0, 1], &groups_within(&table, Some(0), 1)).unwrap();
        assert_eq!((found.method.as_str(), found.means, found.comparisons), ("Bonferroni", 80, 40));
        assert!(found.rows.iter().all(|row| row.low < row.difference && row.difference < row.high));
    }
}
