//! Differences with their intervals.

use super::canvas::{Canvas, Px};
use super::density::{AXIS, WIDTH, axis};
use crate::axis::Axis;
use crate::model::{Contrast, Contrasts};
use crate::words::{estimate, with_unit};

const SIDE: f64 = 8.0;
const ROW: f64 = 18.0;
const LABEL: f64 = 210.0;
const NUMBERS: f64 = 210.0;

/// The axis of all differences, which has 0.
pub(crate) fn axis_of(contrasts: &Contrasts) -> Axis {
    Axis::around(contrasts.rows.iter().flat_map(|row| [row.low, row.high]).chain([0.0]), 0.04)
}

/// One difference: its interval and the line of no difference.
pub(crate) fn interval(row: &Contrast, axis: &Axis) -> Canvas {
    let mut canvas = Canvas::new(WIDTH, ROW);
    draw(&mut canvas, row, axis, [SIDE, WIDTH - SIDE], 0.0);
    canvas
}

/// The axis below differences.
pub(crate) fn scale(scale: &Axis) -> Canvas {
    let mut canvas = Canvas::new(WIDTH, AXIS / 2.0 + 4.0);
    axis(&mut canvas, scale, [SIDE, WIDTH - SIDE], 1.0, "");
    canvas
}

fn title(unit: &str) -> String {
    with_unit("difference of means", &if unit.is_empty() { String::new() } else { format!("({unit})") })
}

fn draw(canvas: &mut Canvas, row: &Contrast, axis: &Axis, [left, right]: [f64; 2], top: f64) {
    let x = |value: f64| left + axis.place(value) * (right - left);
    let middle = top + ROW / 2.0;
    canvas.path("axis thin", &format!("M{} {}v{ROW}", Px(x(0.0)), Px(top)));
    let ends = [x(row.low), x(row.high)];
    let [from, to] = ends.map(Px);
    let y = Px(middle - 4.0);
    canvas.path("mark thick", &format!("M{from} {y}v8M{to} {y}v8M{from} {}H{to}", Px(middle)));
    canvas.circle("dot", x(row.difference), middle, 3.5);
}

/// All differences as one picture, with labels and numbers.
pub(crate) fn intervals(contrasts: &Contrasts, panels: &[String], unit: &str) -> Canvas {
    let scale = axis_of(contrasts);
    let height = ROW * contrasts.rows.len() as f64;
    let mut canvas = Canvas::new(LABEL + WIDTH + NUMBERS, height + AXIS + 4.0);
    for (place, row) in contrasts.rows.iter().enumerate() {
        let top = ROW * place as f64;
        let panel = row.panel.and_then(|panel| panels.get(panel)).map_or(String::new(), |panel| format!("{panel}: "));
        canvas.label(0.0, top + 13.0, "", &format!("{panel}{}", row.label), LABEL - 6.0);
        draw(&mut canvas, row, &scale, [LABEL, LABEL + WIDTH - SIDE], top);
        let numbers = estimate(row.difference, row.low, row.high, "");
        canvas.label(LABEL + WIDTH + 4.0, top + 13.0, "", &numbers, NUMBERS - 4.0);
    }
    axis(&mut canvas, &scale, [LABEL, LABEL + WIDTH - SIDE], height + 2.0, &title(unit));
    canvas
}
