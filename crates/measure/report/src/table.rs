//! The runs of one score and unit, in the order of time, with the factors that vary among them.

use std::cmp::Ordering;
use std::collections::HashMap;

use bellows_campaign::{Better, FactorColumn, Info, Results};
use bellows_stats::Factor;

use crate::words;

/// The runs of a section.
pub(crate) struct RunTable {
    pub(crate) score: String,
    pub(crate) unit: String,
    pub(crate) better: Option<Better>,
    /// The factors with at least two levels; levels are labels for people.
    pub(crate) factors: Vec<Factor>,
    /// The other factors, each with its level.
    pub(crate) held: Vec<(String, String)>,
    /// Not a number for failed runs.
    pub(crate) scores: Vec<f64>,
    pub(crate) ids: Vec<u32>,
    pub(crate) disturbed: Vec<bool>,
    /// The machine of each run, if several made those that have a score.
    pub(crate) machines: Option<Factor>,
    /// The number of each run's reason of failure in the results.
    pub(crate) failure: Vec<u32>,
    /// Whether the order is that of the starts, not that of a file.
    pub(crate) is_timed: bool,
}

/// Scores by group, sorted within each.
pub(crate) struct ScoreGroups {
    values: Vec<f64>,
    /// Where each group ends.
    ends: Vec<usize>,
    /// The number of runs of each, with those that failed.
    pub(crate) runs: Vec<usize>,
}

impl ScoreGroups {
    /// Gathers the scores of each group, given the group of each run.
    pub(crate) fn of(scores: &[f64], groups: usize, group_of: impl Fn(usize) -> usize) -> ScoreGroups {
        let (mut runs, mut sizes) = (vec![0; groups], vec![0; groups]);
        for (row, score) in scores.iter().enumerate() {
            let group = group_of(row);
            runs[group] += 1;
            sizes[group] += usize::from(score.is_finite());
        }
        let mut places: Vec<usize> = Vec::with_capacity(groups);
        let mut sum = 0;
        for size in &sizes {
            places.push(sum);
            sum += size;
        }
        let mut values = vec![0.0; sum];
        for (row, score) in scores.iter().enumerate().filter(|(_, score)| score.is_finite()) {
            let place = &mut places[group_of(row)];
            values[*place] = *score;
            *place += 1;
        }
        let mut groups = ScoreGroups { values, ends: places, runs };
        for group in 0..sizes.len() {
            let range = groups.range(group);
            groups.values[range].sort_unstable_by(f64::total_cmp);
        }
        groups
    }

    fn range(&self, group: usize) -> std::ops::Range<usize> {
        let begin = if group == 0 { 0 } else { self.ends[group - 1] };
        begin..self.ends[group]
    }

    /// The number of groups.
    pub(crate) fn len(&self) -> usize {
        self.runs.len()
    }

    /// The scores of a group in rising order.
    pub(crate) fn sample(&self, group: usize) -> &[f64] {
        &self.values[self.range(group)]
    }

    /// The number of runs of a group that failed.
    pub(crate) fn failed(&self, group: usize) -> usize {
        self.runs[group] - self.sample(group).len()
    }
}

impl RunTable {
    /// The number of a factor.
    pub(crate) fn factor(&self, name: &str) -> Option<usize> {
        self.factors.iter().position(|factor| factor.name() == name)
    }

    /// The number of runs with a score.
    pub(crate) fn scored(&self) -> usize {
        self.scores.iter().filter(|score| score.is_finite()).count()
    }

    /// The combination of the levels of some factors of each run, and the levels of each combination, sorted.
    pub(crate) fn combinations(&self, factors: &[usize]) -> (Vec<u32>, Vec<Vec<u32>>) {
        let mut known: HashMap<Vec<u32>, u32> = HashMap::new();
        let mut codes = Vec::with_capacity(factors.len());
        let mut of_rows: Vec<u32> = Vec::with_capacity(self.scores.len());
        for row in 0..self.scores.len() {
            codes.clear();
            codes.extend(factors.iter().map(|&factor| self.factors[factor].codes()[row]));
            let next = known.len() as u32;
            of_rows.push(match known.get(&codes) {
                Some(number) => *number,
                None => {
                    known.insert(codes.clone(), next);
                    next
                }
            });
        }
        let mut sorted: Vec<(Vec<u32>, u32)> = known.into_iter().collect();
        sorted.sort_unstable();
        let mut places = vec![0; sorted.len()];
        sorted.iter().zip(0..).for_each(|((_, number), place)| places[*number as usize] = place);
        of_rows.iter_mut().for_each(|number| *number = places[*number as usize]);
        (of_rows, sorted.into_iter().map(|(codes, _)| codes).collect())
    }
}

/// A score's rows in the results.
struct Rows {
    measure: String,
    unit: String,
    rows: Vec<u32>,
}

/// The tables of all scores, or of one.
pub(crate) fn tables(results: &Results, info: Option<&Info>, score: Option<&str>) -> Vec<RunTable> {
    let order = order(results);
    let mut found = Vec::new();
    for (measure, rows) in measures(results, &order) {
        if score.is_none_or(|score| score == measure) {
            found.extend(by_unit(results, measure, rows));
        }
    }
    found.into_iter().map(|rows| table(results, info, rows)).collect()
}

/// The names of all scores.
pub(crate) fn scores(results: &Results) -> Vec<String> {
    measures(results, &order(results)).into_iter().map(|(name, _)| name).collect()
}

/// The rows in the order of their starts.
fn order(results: &Results) -> Vec<u32> {
    let mut order: Vec<u32> = (0..results.len() as u32).collect();
    if !results.starts.is_empty() {
        let start = |row: &u32| &results.starts[*row as usize];
        if !order.is_sorted_by_key(start) {
            order.sort_by(|one, other| start(one).cmp(start(other)));
        }
    }
    order
}

/// The rows of each score. A run that failed before its scores were known counts for each of them.
fn measures(results: &Results, order: &[u32]) -> Vec<(String, Vec<u32>)> {
    let names = results.measures.all();
    let mut rows: Vec<Vec<u32>> = vec![Vec::new(); names.len()];
    let nameless = names.iter().position(String::is_empty);
    let is_alone = names.len() == 1;
    for &row in order {
        let measure = results.measure[row as usize] as usize;
        match Some(measure) == nameless && !is_alone {
            true => rows.iter_mut().for_each(|rows| rows.push(row)),
            false => rows[measure].push(row),
        }
    }
    let named = names.iter().zip(rows).enumerate();
    let kept = named.filter(|(place, (_, rows))| (is_alone || Some(*place) != nameless) && !rows.is_empty());
    kept.map(|(_, (name, rows))| (if name.is_empty() { "score".to_owned() } else { name.clone() }, rows)).collect()
}

/// Numbers with different units are never compared.
fn by_unit(results: &Results, measure: String, rows: Vec<u32>) -> Vec<Rows> {
    let unit = |row: &u32| results.unit[*row as usize];
    let has_score = |row: &u32| results.scores[*row as usize].is_finite();
    let mut units: Vec<u32> = Vec::new();
    for row in rows.iter().filter(|row| has_score(row)) {
        if units.last() != Some(&unit(row)) && !units.contains(&unit(row)) {
            units.push(unit(row));
        }
    }
    if units.len() < 2 {
        let all = || units.iter().copied().chain(rows.iter().map(unit));
        let known = all().map(|unit| results.units.word(unit)).find(|unit| !unit.is_empty());
        let unit = known.unwrap_or("").to_owned();
        return vec![Rows { measure, unit, rows }];
    }
    let told = unit_by_level(results, &rows);
    let unit_of = |row: &u32| match (&told, units.contains(&unit(row))) {
        (_, true) if has_score(row) || !results.units.word(unit(row)).is_empty() => unit(row),
        (Some((factor, units)), _) => {
            units.get(&results.factors[*factor].rows[*row as usize]).copied().unwrap_or(unit(row))
        }
        _ => unit(row),
    };
    let mut found: Vec<(u32, Vec<u32>)> = units.iter().map(|unit| (*unit, Vec::new())).collect();
    for row in rows {
        let unit = unit_of(&row);
        match found.iter_mut().find(|(known, _)| *known == unit) {
            Some((_, rows)) => rows.push(row),
            None => found.push((unit, vec![row])),
        }
    }
    let named = |(unit, rows)| Rows { measure: measure.clone(), unit: results.units.word(unit).to_owned(), rows };
    found.into_iter().map(named).collect()
}

/// A factor of which each level has one unit, and these units: they tell the unit of runs that failed.
fn unit_by_level(results: &Results, rows: &[u32]) -> Option<(usize, HashMap<u32, u32>)> {
    (0..results.factors.len()).find_map(|factor| {
        let mut units: HashMap<u32, u32> = HashMap::new();
        for &row in rows.iter().filter(|row| results.scores[**row as usize].is_finite()) {
            let (level, unit) = (results.factors[factor].rows[row as usize], results.unit[row as usize]);
            if *units.entry(level).or_insert(unit) != unit {
                return None;
            }
        }
        Some((factor, units))
    })
}

fn table(results: &Results, info: Option<&Info>, Rows { measure, unit, rows }: Rows) -> RunTable {
    let (mut factors, mut held) = (Vec::new(), Vec::new());
    for column in &results.factors {
        let factor = recoded(column, &rows, info.is_none());
        match factor.levels() {
            [] => {}
            [level] => held.push((factor.name().to_owned(), level.clone())),
            _ => factors.push(factor),
        }
    }
    let at = |row: &u32| *row as usize;
    RunTable {
        better: info
            .and_then(|info| info.scores.iter().find(|score| score.name == measure))
            .and_then(|score| score.better),
        score: words::label(&measure),
        unit: if unit.is_empty() || unit == "1" { String::new() } else { words::label(&unit) },
        factors,
        held,
        scores: rows.iter().map(|row| results.scores[at(row)]).collect(),
        ids: rows.iter().map(|row| results.ids[at(row)]).collect(),
        disturbed: rows.iter().map(|row| results.disturbed[at(row)]).collect(),
        failure: rows.iter().map(|row| results.failure[at(row)]).collect(),
        machines: machines(results, &rows),
        is_timed: !results.starts.is_empty(),
    }
}

/// The machine of each row, if several made those that have a score.
fn machines(results: &Results, rows: &[u32]) -> Option<Factor> {
    let codes: Vec<u32> = rows.iter().map(|row| results.machine.get(*row as usize).copied()).collect::<Option<_>>()?;
    let mut scored = rows.iter().zip(&codes).filter(|(row, _)| results.scores[**row as usize].is_finite());
    let (_, first) = scored.next()?;
    let has_several = scored.any(|(_, machine)| machine != first);
    has_several.then(|| Factor::with_levels("machine", results.machines.all().to_vec(), codes).ok()).flatten()
}

/// A factor with the levels that these rows have, in the campaign's order; those of tables, whose rows are in random
/// order, are sorted.
fn recoded(column: &FactorColumn, rows: &[u32], is_sorted: bool) -> Factor {
    let levels = column.levels.all();
    let mut is_used = vec![false; levels.len()];
    rows.iter().for_each(|row| is_used[column.rows[*row as usize] as usize] = true);
    let mut codes = vec![0; levels.len()];
    let mut labels: Vec<String> = Vec::new();
    let mut used: Vec<(usize, &String)> = levels.iter().enumerate().filter(|(level, _)| is_used[*level]).collect();
    if is_sorted {
        used.sort_by(|one, other| in_order(one.1, other.1));
    }
    for (level, label) in used {
        codes[level] = labels.len() as u32;
        labels.push(words::label(label));
    }
    let codes = rows.iter().map(|row| codes[column.rows[*row as usize] as usize]).collect();
    let name = words::factor_name(&column.name);
    Factor::with_levels(name.clone(), labels, codes).unwrap_or_else(|_| Factor::new(name, [""; 0]))
}

/// Numbers by size, before words by letters.
fn in_order(one: &str, other: &str) -> Ordering {
    let number = |text: &str| text.parse::<f64>().ok().filter(|number| number.is_finite());
    match (number(one), number(other)) {
        (Some(one), Some(other)) => one.total_cmp(&other),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => one.cmp(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn imported(text: &str) -> Results {
        bellows_campaign::import(text.as_bytes(), "test.csv").unwrap()
    }

    #[test]
    fn numbers_with_different_units_are_in_different_tables() {
        let text =
            "benchmark,config,score,unit\niperf,a,1,Gbps\nl2fwd,a,2,Mpps\niperf,b,NA,\nl2fwd,b,NA,\niperf,b,3,Gbps\n";
        let tables = tables(&imported(text), None, None);
        let shown: Vec<(&str, usize, usize)> =
            tables.iter().map(|table| (table.unit.as_str(), table.scores.len(), table.scored())).collect();
        assert_eq!(shown, [("Gbps", 3, 2), ("Mpps", 2, 1)], "failures have the unit of their benchmark");
        assert_eq!(tables[0].held, [("benchmark".to_owned(), "iperf".to_owned())]);
    }

    #[test]
    fn several_scores_have_tables_of_their_own() {
        let text = "a,measure,score\nx,speed,1\nx,size,2\ny,speed,3\ny,size,NA\nz,,NA\n";
        let results = imported(text);
        let sizes = |score| tables(&results, None, score).iter().map(|table| table.scores.len()).collect::<Vec<_>>();
        assert_eq!(sizes(None), [3, 3], "a run without any score counts for both");
        assert_eq!((sizes(Some("size")), sizes(Some("none"))), (vec![3], vec![]));
        assert_eq!(scores(&results), ["speed", "size"]);
    }

    #[test]
    fn groups_have_sorted_scores_and_count_failures() {
        let groups = ScoreGroups::of(&[3.0, f64::NAN, 1.0, 2.0], 3, |row| row % 2);
        assert_eq!((groups.sample(0), groups.sample(1), groups.sample(2)), (&[1.0, 3.0][..], &[2.0][..], &[][..]));
        assert_eq!(((0..3).map(|group| groups.failed(group)).collect::<Vec<_>>(), groups.len()), (vec![0, 1, 0], 3));
    }

    #[test]
    fn combinations_are_in_the_order_of_levels() {
        let tables = tables(&imported("a,b,score\nx,1,1\ny,2,2\nx,2,3\ny,2,4\n"), None, None);
        let (of_rows, combinations) = tables[0].combinations(&[0, 1]);
        assert_eq!(of_rows, [0, 2, 1, 2]);
        assert_eq!(combinations, [[0, 0], [0, 1], [1, 1]]);
    }
}
