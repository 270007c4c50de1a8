//! The matrix as tiles.

use super::canvas::{Canvas, text_width};
use super::palette::step;
use crate::model::{Matrix, ModelCell};
use crate::words::number;

/// The least and the largest width of the rows' labels; longer ones are cut.
const LABEL: [f64; 2] = [160.0, 380.0];
/// The space behind them.
const GAP: f64 = 12.0;
const TILE: f64 = 92.0;
const ROW: f64 = 22.0;
const MARK: f64 = 96.0;
const TWO_MARKS: f64 = 176.0;

/// The step of a tile's colour.
pub(crate) fn step_of(matrix: &Matrix, median: f64) -> usize {
    let Some((least, most)) = matrix.range else { return 0 };
    // Halves: the range of huge numbers can exceed the largest number.
    let share = (median / 2.0 - least / 2.0) / (most / 2.0 - least / 2.0);
    if share.is_finite() { step(share) } else { 0 }
}

/// What a tile says.
pub(crate) fn text_of(cell: &ModelCell) -> String {
    let failures = format!("{} of {} failed", cell.failed, cell.runs);
    match (cell.median, cell.failed) {
        (Some(median), 0) => number(median),
        (Some(median), _) => format!("{}, {failures}", number(median)),
        (None, _) => failures,
    }
}

/// All drawn rows, each with its tiles.
pub(crate) fn tiles(matrix: &Matrix) -> Canvas {
    let has_failures = matrix.rows.iter().flat_map(|row| row.cells.iter().flatten()).any(|cell| cell.failed > 0);
    let tile = if has_failures { TILE * 1.7 } else { TILE };
    let mark = if matrix.rows.iter().any(|row| row.marks.len() > 1) { TWO_MARKS } else { MARK };
    let factors = matrix.factors.join(", ");
    let labels: Vec<String> = matrix.drawn.iter().map(|row| matrix.rows[*row].levels.join(", ")).collect();
    let widest = labels.iter().chain([&factors]).map(|label| text_width(label)).fold(0.0, f64::max);
    let labels_width = (widest + GAP).clamp(LABEL[0], LABEL[1]);
    let width = labels_width + tile * matrix.columns.len() as f64 + mark;
    let mut canvas = Canvas::new(width, ROW * (matrix.drawn.len() + 1) as f64 + 4.0);
    canvas.label(0.0, 14.0, "soft", &factors, labels_width - GAP);
    for (column, label) in matrix.columns.iter().enumerate() {
        canvas.label(labels_width + tile * (column as f64 + 0.5), 14.0, "mid head", label, tile - 6.0);
    }
    let rows = matrix.drawn.iter().map(|row| &matrix.rows[*row]).zip(&labels);
    for (place, (row, label)) in rows.enumerate() {
        let y = ROW * (place + 1) as f64;
        let class = if row.marks.is_empty() { "" } else { "head" };
        canvas.label(0.0, y + 15.0, class, label, labels_width - GAP);
        for (column, cell) in row.cells.iter().enumerate() {
            let x = labels_width + tile * column as f64;
            let frame = [x + 1.0, y + 1.0, tile - 2.0, ROW - 2.0];
            let Some(cell) = cell else {
                canvas.text(x + tile / 2.0, y + 15.0, "mid soft", "not run");
                continue;
            };
            match cell.median {
                Some(median) => {
                    let step = step_of(matrix, median);
                    canvas.rect(&format!("t{step}"), frame);
                    canvas.label(x + tile / 2.0, y + 15.0, &format!("mid x{step}"), &text_of(cell), tile);
                }
                None => {
                    canvas.rect("cut", frame);
                    canvas.label(x + tile / 2.0, y + 15.0, "mid warn", &text_of(cell), tile);
                }
            }
            if cell.failed > 0 {
                canvas.rect("hollow warn", frame);
            }
        }
        if !row.marks.is_empty() {
            let x = labels_width + tile * matrix.columns.len() as f64 + 6.0;
            canvas.text(x, y + 15.0, "head", &format!("\u{25c2} {}", row.marks.join(", ")));
        }
    }
    canvas
}
