//! The figures of all combinations, with the best and the worst row.

use bellows_campaign::Better;
use bellows_stats::{Factor, median};

use crate::model::{Matrix, MatrixRow, ModelCell};
use crate::table::{RunTable, ScoreGroups};

/// Maximum number of rows that are drawn. Of more, those with the least and the largest medians are.
const MAX_DRAWN: usize = 120;

/// The matrix of a table: columns are the levels of the factor of interest.
pub(crate) fn matrix(table: &RunTable, by: Option<usize>) -> Matrix {
    let others: Vec<usize> = (0..table.factors.len()).filter(|factor| Some(*factor) != by).collect();
    let (of_rows, combinations) = table.combinations(&others);
    let columns = by.map_or(vec!["all runs".to_owned()], |by| table.factors[by].levels().to_vec());
    let column = |row: usize| by.map_or(0, |by| table.factors[by].codes()[row] as usize);
    let groups = ScoreGroups::of(&table.scores, combinations.len() * columns.len(), |row| {
        of_rows[row] as usize * columns.len() + column(row)
    });
    let cell = |group: usize| {
        (groups.runs[group] > 0).then(|| ModelCell {
            runs: groups.runs[group],
            failed: groups.failed(group),
            median: median(groups.sample(group)).map(|median| median.value),
        })
    };
    let level = |(&factor, &code): (&usize, &u32)| table.factors[factor].levels()[code as usize].clone();
    let row = |(place, codes): (usize, &Vec<u32>)| MatrixRow {
        levels: others.iter().zip(codes).map(level).collect(),
        cells: (0..columns.len()).map(|column| cell(place * columns.len() + column)).collect(),
        marks: Vec::new(),
    };
    let mut rows: Vec<MatrixRow> = combinations.iter().enumerate().map(row).collect();
    mark(&mut rows, table.better);
    let medians = rows.iter().flat_map(|row| row.cells.iter().flatten()).filter_map(|cell| cell.median);
    let range = medians.fold(None, |range: Option<(f64, f64)>, median| {
        Some(range.map_or((median, median), |(least, most)| (least.min(median), most.max(median))))
    });
    let factors = others.iter().map(|&factor| Factor::name(&table.factors[factor]).to_owned()).collect();
    Matrix { factors, columns, drawn: drawn(&rows), rows, range }
}

/// The mean of a row's medians, if it has one in each column: others cannot be compared with it.
fn height(row: &MatrixRow) -> Option<f64> {
    let medians = row.cells.iter().map(|cell| cell.as_ref()?.median).collect::<Option<Vec<f64>>>()?;
    let count = medians.len() as f64;
    Some(medians.iter().map(|median| median / count).sum())
}

fn mark(rows: &mut [MatrixRow], better: Option<Better>) {
    if rows.len() < 2 {
        return;
    }
    let failed = |row: &MatrixRow| {
        let sum = |of: fn(&ModelCell) -> usize| row.cells.iter().flatten().map(of).sum::<usize>() as f64;
        sum(|cell| cell.failed) / sum(|cell| cell.runs).max(1.0)
    };
    let worst =
        (0..rows.len()).max_by(|one, other| failed(&rows[*one]).total_cmp(&failed(&rows[*other])).then(other.cmp(one)));
    let worst = worst.filter(|row| failed(&rows[*row]) > 0.0);
    let heights = || rows.iter().enumerate().filter_map(|(place, row)| Some((place, height(row)?)));
    let highest = heights().max_by(|one, other| one.1.total_cmp(&other.1).then(other.0.cmp(&one.0)));
    let lowest = heights().min_by(|one, other| one.1.total_cmp(&other.1).then(one.0.cmp(&other.0)));
    if let (Some((highest, most)), Some((lowest, least))) = (highest, lowest)
        && most > least
    {
        let [high, low] = match better {
            Some(Better::Higher) => ["best", "worst"],
            Some(Better::Lower) => ["worst", "best"],
            None => ["highest", "lowest"],
        };
        rows[highest].marks.push(high);
        rows[lowest].marks.push(low);
    }
    if let Some(worst) = worst {
        rows[worst].marks.push("most failures");
    }
}

fn drawn(rows: &[MatrixRow]) -> Vec<usize> {
    if rows.len() <= MAX_DRAWN {
        return (0..rows.len()).collect();
    }
    let mut order: Vec<usize> = (0..rows.len()).collect();
    // Rows that lack a median are the lowest.
    let height = |place: &usize| height(&rows[*place]).unwrap_or(f64::NEG_INFINITY);
    order.sort_by(|one, other| height(one).total_cmp(&height(other)));
    let mut drawn = [&order[..MAX_DRAWN / 2], &order[order.len() - MAX_DRAWN / 2..]].concat();
    drawn.extend((0..rows.len()).filter(|place| !rows[*place].marks.is_empty()));
    drawn.sort_unstable();
    drawn.dedup();
    drawn
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::tables;

    fn of(text: &str, better: Option<Better>) -> Matrix {
        let mut table = tables(&bellows_campaign::import(text.as_bytes(), "t.csv").unwrap(), None, None).remove(0);
        table.better = better;
        let by = table.factor("version");
        matrix(&table, by)
    }

    #[test]
    fn the_best_and_the_worst_row_are_marked() {
        let text = "version,size,score\na,1,5\nb,1,7\na,2,1\nb,2,1\na,3,9\nb,3,9\n";
        let marks = |better| of(text, better).rows.iter().map(|row| row.marks.join(" ")).collect::<Vec<_>>();
        assert_eq!(marks(Some(Better::Higher)), ["", "worst", "best"]);
        assert_eq!(marks(Some(Better::Lower)), ["", "best", "worst"]);
        assert_eq!(marks(None), ["", "lowest", "highest"]);
        let found = of(text, None);
        assert_eq!(
            (found.columns.join(" "), found.factors.join(" "), found.range),
            ("a b".into(), "size".into(), Some((1.0, 9.0)))
        );
        assert_eq!(found.rows[0].cells[1].as_ref().unwrap().median, Some(7.0));
    }

    #[test]
    fn failures_are_counted_and_combinations_without_runs_are_empty() {
        let found = of("version,size,score\na,1,5\nb,1,NA\nb,1,4\na,2,NA\n", None);
        let cells: Vec<Option<(usize, usize)>> = found
            .rows
            .iter()
            .flat_map(|row| &row.cells)
            .map(|cell| cell.as_ref().map(|it| (it.runs, it.failed)))
            .collect();
        assert_eq!(cells, [Some((1, 0)), Some((2, 1)), Some((1, 1)), None]);
        assert_eq!(found.rows[1].marks, ["most failures"]);
    }

    #[test]
    fn only_rows_with_all_columns_are_ranked_and_failures_hide_no_rank() {
        // Row 4 has no b, and its a is the largest number; the best row has a failure.
        let text = "version,size,score\na,1,5\nb,1,7\na,2,1\nb,2,1\na,3,9\nb,3,9\nb,3,NA\na,4,99\n";
        let marks: Vec<String> = of(text, Some(Better::Higher)).rows.iter().map(|row| row.marks.join(", ")).collect();
        assert_eq!(marks, ["", "worst", "best, most failures", ""]);
        let text = "version,size,score\na,1,5\nb,1,7\na,2,1\n";
        assert!(of(text, None).rows.iter().all(|row| row.marks.is_empty()), "one row is no ranking");
    }

    #[test]
    fn of_many_rows_the_extremes_are_drawn() {
        let rows: String = (0..500)
            .map(|row| format!("{},{row},{}\n", if row % 2 == 0 { "a" } else { "b" }, row * 37 % 500))
            .collect();
        let found = of(&format!("version,size,score\n{rows}"), None);
        assert_eq!((found.rows.len(), found.drawn.len()), (500, 120));
        assert!(found.rows.iter().enumerate().all(|(place, row)| row.marks.is_empty() || found.drawn.contains(&place)));
    }
}
