//! Differences with their intervals.

use super::canvas::{Canvas, Px, text_width};
use super::density::{AXIS, WIDTH, axis};
use crate::axis::Axis;
use crate::model::{Contrast, Contrasts};
use crate::words::{estimate, with_unit};

const SIDE: f64 = 8.0;
const ROW: f64 = 18.0;
const LABEL: f64 = 210.0;
const NUMBERS: f64 = 210.0;

/// The most that labels take, which are cut then.
const MOST_LABEL: f64 = 420.0;

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

fn draw(canvas: &mut Canvas, row: &Contrast, axis: &Axis, ends: [f64; 2], top: f64) {
    mark(canvas, [row.low, row.difference, row.high], axis, ends, top);
}

/// The place of a value between the ends of an axis.
fn place(value: f64, axis: &Axis, [left, right]: [f64; 2]) -> f64 {
    left + axis.place(value) * (right - left)
}

/// The line of no difference, in one row.
fn zero(canvas: &mut Canvas, axis: &Axis, ends: [f64; 2], top: f64) {
    canvas.path("axis thin", &format!("M{} {}v{ROW}", Px(place(0.0, axis, ends)), Px(top)));
}

/// An interval with its middle, and the line of no difference. An end outside of the axis has no bar, and a middle
/// outside is an arrow.
fn mark(canvas: &mut Canvas, [low, middle, high]: [f64; 3], axis: &Axis, ends: [f64; 2], top: f64) {
    zero(canvas, axis, ends, top);
    let x = |value: f64| place(value, axis, ends);
    let line = top + ROW / 2.0;
    let is_inside = |value: f64| (axis.low..=axis.high).contains(&value);
    let bar = |value: f64| match is_inside(value) {
        true => format!("M{} {}v8", Px(x(value)), Px(line - 4.0)),
        false => String::new(),
    };
    canvas.path("mark thick", &format!("{}{}M{} {}H{}", bar(low), bar(high), Px(x(low)), Px(line), Px(x(high))));
    match is_inside(middle) {
        true => canvas.circle("dot", x(middle), line, 3.5),
        false => {
            let tip = if middle > axis.high { 6.0 } else { -6.0 };
            let (end, y) = (x(middle), Px(line));
            canvas.path(
                "mark thick",
                &format!("M{} {}L{} {y}L{} {}", Px(end - tip), Px(line - 4.0), Px(end), Px(end - tip), Px(line + 4.0)),
            );
        }
    }
}

/// An interval with its label and numbers.
pub(crate) struct IntervalRow {
    pub(crate) label: String,
    /// The lower end, the estimate and the upper end; none, if there is only a text in place of the numbers.
    pub(crate) values: Option<[f64; 3]>,
    pub(crate) numbers: String,
}

/// Intervals as one picture, with labels and numbers.
pub(crate) fn rows(rows: &[IntervalRow], scale: &Axis, title: &str) -> Canvas {
    let widest = rows.iter().map(|row| text_width(&row.label)).fold(0.0, f64::max);
    let label = (widest + 6.0).clamp(LABEL, MOST_LABEL);
    let ends = [label, label + WIDTH - SIDE];
    let height = ROW * rows.len() as f64;
    let mut canvas = Canvas::new(label + WIDTH + NUMBERS, height + AXIS + 4.0);
    for (index, row) in rows.iter().enumerate() {
        let top = ROW * index as f64;
        canvas.label(0.0, top + 13.0, "", &row.label, label - 6.0);
        match row.values {
            Some(values) => mark(&mut canvas, values, scale, ends, top),
            None => zero(&mut canvas, scale, ends, top),
        }
        canvas.label(label + WIDTH + 4.0, top + 13.0, "", &row.numbers, NUMBERS - 4.0);
    }
    axis(&mut canvas, scale, ends, height + 2.0, title);
    canvas
}

/// All differences as one picture, with labels and numbers.
pub(crate) fn intervals(contrasts: &Contrasts, panels: &[String], unit: &str) -> Canvas {
    let row = |row: &Contrast| {
        let panel = row.panel.and_then(|panel| panels.get(panel)).map_or(String::new(), |panel| format!("{panel}: "));
        IntervalRow {
            label: format!("{panel}{}", row.label),
            values: Some([row.low, row.difference, row.high]),
            numbers: estimate(row.difference, row.low, row.high, ""),
        }
    };
    rows(&contrasts.rows.iter().map(row).collect::<Vec<_>>(), &axis_of(contrasts), &title(unit))
}
