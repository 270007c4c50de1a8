//! Scores in the order of time.

use std::fmt::Write as _;

use super::canvas::{Canvas, Px};
use super::density::WIDTH;
use crate::model::{Course, Series};
use crate::words::{count, with_unit};

const LEFT: f64 = 56.0;
const RIGHT: f64 = 8.0;
const TOP: f64 = 34.0;
const PLOT: f64 = 150.0;
const BELOW: f64 = 46.0;

/// The panels of a course: scores, and scores less the median of their combination.
pub(crate) fn panels(course: &Course, unit: &str) -> Vec<Canvas> {
    course.series.iter().map(|series| panel(course, series, unit)).collect()
}

fn panel(course: &Course, series: &Series, unit: &str) -> Canvas {
    let mut canvas = Canvas::new(WIDTH, TOP + PLOT + BELOW);
    let last = course.runs.saturating_sub(1).max(1) as f64;
    let x = |place: f64| LEFT + place / last * (WIDTH - LEFT - RIGHT);
    let y = |value: f64| TOP + (1.0 - series.axis.place(value)) * PLOT;
    let unit = if unit.is_empty() { String::new() } else { format!("({unit})") };
    canvas.label(0.0, 11.0, "head", &with_unit(&series.label, &unit), WIDTH);
    let mut grid = String::new();
    for (place, _) in course.blocks.iter().skip(1) {
        let _ = write!(grid, "M{} {TOP}v{PLOT}", Px(x(*place as f64 - 0.5)));
    }
    canvas.path("grid thin", &grid);
    let mut rows = String::new();
    for mark in &series.axis.marks {
        let _ = write!(rows, "M{} {}h-4", Px(LEFT), Px(y(mark.at)));
        canvas.label(LEFT - 6.0, y(mark.at) + 4.0, "end soft", &mark.text, LEFT - 6.0);
    }
    let _ = write!(rows, "M{} {TOP}v{PLOT}H{}", Px(LEFT), Px(WIDTH - RIGHT));
    canvas.path("axis thin", &rows);
    points(&mut canvas, series, &x, &y);
    bands(&mut canvas, series, last, &x, &y);
    marks(&mut canvas, course, &x);
    let ground = TOP + PLOT;
    canvas.text(LEFT, ground + 15.0, "soft", "1");
    canvas.text(WIDTH - RIGHT, ground + 15.0, "end soft", &count(course.runs));
    canvas.label(WIDTH - RIGHT, ground + 29.0, "end soft", &format!("run, in the {}", course.order), WIDTH - RIGHT);
    if let [(_, first), .., (_, last)] = course.blocks.as_slice() {
        canvas.text(WIDTH - RIGHT, ground + 43.0, "end soft", &format!("lines: begins of blocks {first} to {last}"));
    }
    canvas
}

fn points(canvas: &mut Canvas, series: &Series, x: &impl Fn(f64) -> f64, y: &impl Fn(f64) -> f64) {
    let mut dots = String::new();
    let mut disturbed = String::new();
    for &(place, value, is_disturbed) in &series.points {
        let (x, y) = (x(place as f64), y(value));
        // Dots are squares of two pixels, which need few characters.
        match is_disturbed {
            false => drop(write!(dots, "M{} {}h2v2h-2z", Px(x - 1.0), Px(y - 1.0))),
            true => drop(write!(disturbed, "M{} {}l4 7h-8z", Px(x), Px(y - 4.0))),
        }
    }
    canvas.path("dot", &dots);
    canvas.path("hollow warn", &disturbed);
}

/// Minimum to maximum, quartiles, and the median of columns of many runs.
fn bands(canvas: &mut Canvas, series: &Series, last: f64, x: &impl Fn(f64) -> f64, y: &impl Fn(f64) -> f64) {
    let half = series.per_band as f64 / 2.0;
    for (class, low, high) in [("wide", 0, 4), ("band", 1, 3)] {
        let mut path = String::new();
        for (place, numbers) in &series.bands {
            let (from, to) = (x((place - half).max(0.0)), x((place + half).min(last)));
            let (top, bottom) = (y(numbers[high]), y(numbers[low]));
            let height = (bottom - top).max(0.6);
            let _ = write!(path, "M{} {}H{}v{}H{}z", Px(from), Px(top), Px(to), Px(height), Px(from));
        }
        canvas.path(class, &path);
    }
    let mut line = String::new();
    for (place, numbers) in &series.bands {
        let _ = write!(line, "{}{} {}", if line.is_empty() { "M" } else { "L" }, Px(x(*place)), Px(y(numbers[2])));
    }
    canvas.path("mark thin", &line);
}

/// Disturbed runs above the plot, and failed ones below.
fn marks(canvas: &mut Canvas, course: &Course, x: &impl Fn(f64) -> f64) {
    let (mut disturbed, mut failed) = (String::new(), String::new());
    for (place, _) in &course.disturbed {
        let _ = write!(disturbed, "M{} {}l3 6h-6z", Px(x(*place)), Px(TOP - 10.0));
    }
    for (place, _) in &course.failed {
        let _ = write!(failed, "M{} {}l6 6m0 -6l-6 6", Px(x(*place) - 3.0), Px(TOP + PLOT - 8.0));
    }
    canvas.path("hollow warn", &disturbed);
    canvas.path("thick warn", &failed);
}
