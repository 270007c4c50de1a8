//! Scores in the order of time, and whether they drift.

use bellows_stats::{Drift, drift, median};

use crate::analysis::Analysed;
use crate::axis::Axis;
use crate::distributions::{quartiles, short};
use crate::model::{Course, Series};
use crate::table::{RunTable, ScoreGroups};
use crate::words;

/// Up to this number of runs are drawn one by one.
const MAX_POINTS: usize = 1_200;

/// The number of columns that more runs are drawn in.
const COLUMNS: usize = 100;

/// Maximum number of blocks whose begins are drawn.
const MAX_BLOCKS: usize = 60;

/// Maximum probability at which a drift is reported: that of the other checks of assumptions.
pub(crate) const SIGNIFICANCE: f64 = 0.01;

/// The course of a table.
pub(crate) fn course(table: &RunTable, analysed: Option<&Analysed>) -> Course {
    let deviations = deviations(table);
    let order: Vec<f64> = (0..table.scores.len()).map(|row| row as f64).collect();
    let residuals = analysed.map(|analysed| analysed.found.residuals(&table.scores));
    let drift = drift(residuals.as_deref().unwrap_or(&deviations), &order);
    let scores = series("score", &table.scores, &table.disturbed);
    let deviations = series("score less its combination\u{2019}s median", &deviations, &table.disturbed);
    let is_failed: Vec<bool> = table.scores.iter().map(|score| !score.is_finite()).collect();
    Course {
        order: (if table.is_timed { "order of start" } else { "order of rows in the table" }).to_owned(),
        runs: table.scores.len(),
        blocks: blocks(&table.ids),
        series: vec![scores, deviations],
        disturbed: places(&table.disturbed),
        disturbed_runs: table.disturbed.iter().filter(|disturbed| **disturbed).count(),
        failed: places(&is_failed),
        correlation: drift.map(|drift| drift.correlation),
        p: drift.map(|drift| drift.p),
        finding: finding(drift, table.is_timed),
    }
}

/// Scores less the median of their combination.
fn deviations(table: &RunTable) -> Vec<f64> {
    let (of_rows, combinations) = table.combinations(&(0..table.factors.len()).collect::<Vec<usize>>());
    let groups = ScoreGroups::of(&table.scores, combinations.len(), |row| of_rows[row] as usize);
    let middles: Vec<f64> =
        (0..groups.len()).map(|group| median(groups.sample(group)).map_or(f64::NAN, |median| median.value)).collect();
    let deviation = |(score, group): (&f64, &u32)| score - middles[*group as usize];
    table.scores.iter().zip(&of_rows).map(deviation).collect()
}

fn finding(drift: Option<Drift>, is_timed: bool) -> String {
    let order = match is_timed {
        true => "the order of their starts",
        false => "the order of the table's rows, which is that of time only if the table was written so",
    };
    let Some(Drift { correlation, p }) = drift else {
        return "Too few runs have different scores to look for a drift.".to_owned();
    };
    let numbers =
        format!("Spearman\u{2019}s rank correlation {}, {}", words::ratio(correlation), words::probability(p));
    match p < SIGNIFICANCE {
        true => format!(
            "The scores {} with {order} ({numbers}): compare pairs of runs (`bellows campaign compare`), or make more blocks on a machine at rest.",
            if correlation > 0.0 { "rise" } else { "fall" }
        ),
        false => format!("No drift shows in {order} ({numbers})."),
    }
}

fn series(label: &str, numbers: &[f64], disturbed: &[bool]) -> Series {
    let axis = Axis::around(numbers.iter().copied(), 0.05);
    let label = label.to_owned();
    if numbers.len() <= MAX_POINTS {
        let finite = numbers.iter().zip(disturbed).enumerate().filter(|(_, (number, _))| number.is_finite());
        let points = finite.map(|(place, (number, disturbed))| (place, short(*number), *disturbed)).collect();
        return Series { label, axis, points, bands: Vec::new(), per_band: 1 };
    }
    let per_band = numbers.len().div_ceil(COLUMNS);
    let band = |(column, numbers): (usize, &[f64])| {
        let mut sorted: Vec<f64> = numbers.iter().copied().filter(|number| number.is_finite()).collect();
        sorted.sort_unstable_by(f64::total_cmp);
        let [low, middle, high] = quartiles(&sorted)?;
        let place = (column * per_band) as f64 + (numbers.len() - 1) as f64 / 2.0;
        Some((place, [*sorted.first()?, low, middle, high, *sorted.last()?].map(short)))
    };
    let bands = numbers.chunks(per_band).enumerate().filter_map(band).collect();
    Series { label, axis, points: Vec::new(), bands, per_band }
}

/// Where runs are marked: each, or of many the middle of each column with their number.
fn places(marks: &[bool]) -> Vec<(f64, u32)> {
    let per_column = if marks.len() <= MAX_POINTS { 1 } else { marks.len().div_ceil(COLUMNS) };
    let column = |(column, marks): (usize, &[bool])| {
        let number = marks.iter().filter(|mark| **mark).count() as u32;
        let middle = (column * per_column) as f64 + (marks.len() - 1) as f64 / 2.0;
        (number > 0).then_some((middle, number))
    };
    marks.chunks(per_column).enumerate().filter_map(column).collect()
}

/// Where blocks begin, if runs were made block after block, and there are not too many.
fn blocks(ids: &[u32]) -> Vec<(usize, u32)> {
    let mut begins: Vec<(usize, u32)> = Vec::new();
    for (place, &id) in ids.iter().enumerate() {
        match begins.last() {
            Some((_, last)) if *last == id => {}
            Some((_, last)) if *last > id => return Vec::new(),
            _ => begins.push((place, id)),
        }
        if begins.len() > MAX_BLOCKS {
            return Vec::new();
        }
    }
    begins
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::tables;

    fn of(rows: usize, score: impl Fn(usize) -> f64) -> Course {
        let row = |row: usize| {
            let (disturbed, score) = (if row % 50 == 3 { "the host took 1 s" } else { "" }, score(row));
            format!("{},{},{score},{disturbed}\n", ["a", "b"][row * 7919 / 8 % 2], 1 + row / 20)
        };
        let text = format!("version,id,score,disturbed\n{}", (0..rows).map(row).collect::<String>());
        course(&tables(&bellows_campaign::import(text.as_bytes(), "t.csv").unwrap(), None, None)[0], None)
    }

    fn noise(row: usize) -> f64 {
        (row * 7919 % 101) as f64 / 101.0
    }

    #[test]
    fn a_drift_is_found() {
        assert!(of(400, |row| noise(row) + row as f64 / 100.0).finding.starts_with("The scores rise with"));
        assert!(of(400, |row| noise(row) - row as f64 / 100.0).finding.starts_with("The scores fall with"));
        assert!(of(400, noise).finding.starts_with("No drift shows"));
        assert!(of(2, noise).finding.starts_with("Too few"));
    }

    #[test]
    fn all_runs_are_drawn_one_by_one_or_in_columns() {
        let few = of(400, noise);
        assert_eq!((few.series[0].points.len(), few.blocks.len(), few.disturbed.len()), (400, 20, 8));
        assert_eq!(few.disturbed_runs, few.series[0].points.iter().filter(|(.., disturbed)| *disturbed).count());
        let many = of(5_010, |row| if row % 9 == 0 { f64::NAN } else { noise(row) });
        assert_eq!((many.series[0].points.len(), many.series[0].bands.len(), many.series[0].per_band), (0, 99, 51));
        assert_eq!(many.failed.iter().map(|(_, runs)| *runs as usize).sum::<usize>(), 5_010usize.div_ceil(9));
        assert_eq!(many.blocks, [], "251 are too many");
    }

    #[test]
    fn deviations_are_from_each_combination() {
        let found = of(100, |row| if row * 7919 / 8 % 2 == 0 { 1e6 } else { -3.0 });
        assert!(found.series[1].points.iter().all(|(_, deviation, _)| *deviation == 0.0));
        assert!(found.correlation.is_none());
    }
}
