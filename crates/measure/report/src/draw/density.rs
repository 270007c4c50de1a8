//! Panels of distributions: curves over each other with a tick for each run, or strips.

use std::fmt::Write as _;

use super::canvas::{Canvas, Px, text_width};
use super::palette::LEVELS;
use crate::axis::Axis;
use crate::model::{Distributions, Form, Panel, Sample};
use crate::words::{count, with_unit};

/// Width of a panel: that of a telephone's screen.
pub(crate) const WIDTH: f64 = 328.0;

const SIDE: f64 = 8.0;
const LINE: f64 = 14.0;
const PLOT: f64 = 84.0;
const TICKS: f64 = 9.0;
const STRIP: f64 = 17.0;
const STRIP_LABEL: f64 = 104.0;

/// Height of an axis with its numbers and its title.
pub(crate) const AXIS: f64 = 32.0;

/// Whether a line of text below a panel is as wide as the panel, at most.
pub(crate) fn fits_below(line: &str) -> bool {
    text_width(line) <= WIDTH - SIDE
}

/// The panels of distributions, each with its own lines of text below.
pub(crate) fn panels(found: &Distributions, title: &str, unit: &str, below: &[Vec<String>]) -> Vec<Canvas> {
    let placed: Vec<Vec<Tag>> = found.panels.iter().map(|panel| tags(found, panel)).collect();
    let rows = placed.iter().flatten().map(|tag| tag.row + 1).max().unwrap_or(0);
    let lines = below.iter().map(Vec::len).max().unwrap_or(0);
    let axis_title = with_unit(title, &if unit.is_empty() { String::new() } else { format!("({unit})") });
    let panel = |(place, panel): (usize, &Panel)| {
        let body = match found.form {
            Form::Curves => LINE * rows as f64 + PLOT + TICKS * found.levels.len() as f64,
            Form::Strips => STRIP * found.levels.len() as f64,
        };
        let top = LINE + 4.0;
        let mut canvas = Canvas::new(WIDTH, top + body + AXIS + LINE * lines as f64);
        canvas.label(0.0, 11.0, "head", &panel.label, WIDTH);
        match found.form {
            Form::Curves => curves(&mut canvas, found, panel, &placed[place], top + LINE * rows as f64),
            Form::Strips => strips(&mut canvas, found, panel, top),
        }
        let left = if found.form == Form::Strips { STRIP_LABEL } else { SIDE };
        axis(&mut canvas, &found.axis, [left, WIDTH - SIDE], top + body, &axis_title);
        for (line, text) in below.get(place).into_iter().flatten().enumerate() {
            canvas.label(SIDE, top + body + AXIS + LINE * line as f64 + 11.0, "", text, WIDTH - SIDE);
        }
        canvas
    };
    found.panels.iter().enumerate().map(panel).collect()
}

/// A horizontal axis between two places, with numbers and a title.
pub(crate) fn axis(canvas: &mut Canvas, axis: &Axis, [left, right]: [f64; 2], y: f64, title: &str) {
    let mut path = format!("M{} {}H{}", Px(left), Px(y), Px(right));
    let mut free = f64::NEG_INFINITY;
    for mark in &axis.marks {
        let x = left + axis.place(mark.at) * (right - left);
        let _ = write!(path, "M{} {}v4", Px(x), Px(y));
        let half = text_width(&mark.text) / 2.0;
        // A number that would lie on its neighbour, or outside, is left out.
        if x - half < free || x - half < 0.0 || x + half > canvas.width {
            continue;
        }
        free = x + half + 4.0;
        canvas.text(x, y + 15.0, "mid soft", &mark.text);
    }
    canvas.path("axis thin", &path);
    if !title.is_empty() {
        canvas.label(right, y + 28.0, "end soft", title, right);
    }
}

/// The label of a curve.
struct Tag {
    level: usize,
    text: String,
    x: f64,
    /// Where the curve is highest.
    peak: (f64, f64),
    row: usize,
    is_end: bool,
}

fn x_of(axis: &Axis, value: f64) -> f64 {
    SIDE + axis.place(value) * (WIDTH - 2.0 * SIDE)
}

/// The labels of a panel, in rows in which they do not lie on each other.
fn tags(found: &Distributions, panel: &Panel) -> Vec<Tag> {
    if found.form == Form::Strips {
        return Vec::new();
    }
    let tag = |(level, sample): (usize, &Sample)| {
        let number = match sample.failed {
            0 => count(sample.runs),
            failed => format!("{}, {} failed", count(sample.runs), count(failed)),
        };
        let suffix = format!(" ({number})");
        let room = WIDTH - 2.0 * SIDE - text_width(&suffix);
        let text = super::canvas::fitted(&found.levels[level], room.min(170.0)) + &suffix;
        Some(Tag { level, text, x: 0.0, peak: peak(found, sample)?, row: 0, is_end: false })
    };
    let mut tags: Vec<Tag> = panel.samples.iter().enumerate().filter_map(tag).collect();
    tags.sort_by(|one, other| one.peak.0.total_cmp(&other.peak.0));
    // Labels lead away from the middle, so that they do not lie on the lines of others.
    let half = tags.len() / 2;
    for (place, tag) in tags.iter_mut().enumerate() {
        let (width, peak) = (text_width(&tag.text), tag.peak.0);
        let (fits_left, fits_right) = (peak - 4.0 >= width, peak + 4.0 + width <= WIDTH);
        tag.is_end = if place < half { fits_left || !fits_right } else { fits_left && !fits_right };
        tag.x = match tag.is_end {
            true => (peak - 4.0).max(width).min(WIDTH - 2.0),
            false => (peak + 4.0).min(WIDTH - width).max(2.0),
        };
    }
    // A line from a label to its peak crosses no label below: texts right of their lines are placed from the right,
    // those left of them from the left.
    let order = |tag: &Tag| if tag.is_end { (1, tag.peak.0) } else { (0, -tag.peak.0) };
    tags.sort_by(|one, other| order(one).partial_cmp(&order(other)).unwrap_or(std::cmp::Ordering::Equal));
    let mut rows: Vec<Vec<(f64, f64)>> = Vec::new();
    for tag in &mut tags {
        let width = text_width(&tag.text);
        let (from, to) = if tag.is_end { (tag.x - width, tag.x) } else { (tag.x, tag.x + width) };
        let is_free =
            |row: &&mut Vec<(f64, f64)>| row.iter().all(|(begin, end)| to + 6.0 < *begin || from - 6.0 > *end);
        tag.row = match rows.iter_mut().enumerate().find(|(_, row)| is_free(row)) {
            Some((place, row)) => {
                row.push((from, to));
                place
            }
            None => {
                rows.push(vec![(from, to)]);
                rows.len() - 1
            }
        };
    }
    tags
}

/// Where a curve is highest, as place and share of the plot; that of a sample without a curve is its median.
fn peak(found: &Distributions, sample: &Sample) -> Option<(f64, f64)> {
    let middle = sample.quartiles?[1];
    let highest = sample.density.iter().enumerate().max_by(|one, other| one.1.total_cmp(other.1));
    Some(match highest {
        Some((place, height)) => {
            let share = place as f64 / (sample.density.len() - 1) as f64;
            (SIDE + share * (WIDTH - 2.0 * SIDE), height / found.top)
        }
        None => (x_of(&found.axis, middle), 0.0),
    })
}

fn curves(canvas: &mut Canvas, found: &Distributions, panel: &Panel, tags: &[Tag], top: f64) {
    let ground = top + PLOT;
    for (level, sample) in panel.samples.iter().enumerate() {
        let class = level % LEVELS;
        let mut path = String::new();
        for (place, density) in sample.density.iter().enumerate() {
            let x = SIDE + place as f64 / (sample.density.len() - 1) as f64 * (WIDTH - 2.0 * SIDE);
            let y = ground - density / found.top * (PLOT - 4.0);
            let _ = write!(path, "{}{} {}", if place == 0 { "M" } else { "L" }, Px(x), Px(y));
        }
        if !path.is_empty() {
            let area = format!("{path}L{} {}H{}Z", Px(WIDTH - SIDE), Px(ground), Px(SIDE));
            canvas.path(&format!("area l{class}"), &area);
            canvas.path(&format!("curve l{class}"), &path);
        }
        ticks(canvas, &found.axis, sample, found.most_per_tick, ground + TICKS * level as f64 + 1.5, class);
    }
    for tag in tags {
        let class = format!("l{}{}", tag.level % LEVELS, if tag.is_end { " end" } else { "" });
        let y = top - LINE * tag.row as f64 - 4.0;
        canvas.text(tag.x, y, &class, &tag.text);
        let peak = ground - tag.peak.1 * (PLOT - 4.0) - 1.0;
        if peak - y > 4.0 {
            let path = format!("M{} {}V{}", Px(tag.peak.0), Px(y - 8.0), Px(peak));
            canvas.path(&format!("thin l{}", tag.level % LEVELS), &path);
        }
    }
}

/// A tick for each run; one for many is higher the more runs it has.
fn ticks(canvas: &mut Canvas, axis: &Axis, sample: &Sample, most: u32, y: f64, class: usize) {
    let full = TICKS - 2.0;
    let mut path = String::new();
    let is_one_each = sample.ticks.len() == sample.runs;
    for &(at, runs) in &sample.ticks {
        let share = if is_one_each { 1.0 } else { 0.2 + 0.8 * (f64::from(runs) / f64::from(most.max(1))).sqrt() };
        let _ = write!(path, "M{} {}v-{}", Px(x_of(axis, at)), Px(y + full), Px(full * share));
    }
    let kind = if is_one_each || sample.runs < 300 { "tick" } else { "many" };
    canvas.path(&format!("{kind} l{class}"), &path);
}

fn strips(canvas: &mut Canvas, found: &Distributions, panel: &Panel, top: f64) {
    let x = |value: f64| STRIP_LABEL + found.axis.place(value) * (WIDTH - SIDE - STRIP_LABEL);
    let mut grid = String::new();
    for mark in &found.axis.marks {
        let _ = write!(grid, "M{} {}v{}", Px(x(mark.at)), Px(top), Px(STRIP * found.levels.len() as f64));
    }
    canvas.path("grid thin", &grid);
    for (level, sample) in panel.samples.iter().enumerate() {
        let middle = top + STRIP * (level as f64 + 0.5);
        canvas.label(0.0, middle + 4.0, "", &found.levels[level], STRIP_LABEL - 8.0);
        let mut path = String::new();
        for (at, _) in &sample.ticks {
            let _ = write!(path, "M{} {}v6", Px(x(*at)), Px(middle - 3.0));
        }
        canvas.path("axis thin", &path);
        match sample.quartiles {
            Some([low, median, high]) => {
                canvas.rect("band", [x(low), middle - 5.0, x(high) - x(low), 10.0]);
                canvas.circle("dot l0", x(median), middle, 3.0);
            }
            None if sample.failed > 0 => canvas.text(STRIP_LABEL, middle + 4.0, "warn", "all failed"),
            None => {}
        }
    }
}
