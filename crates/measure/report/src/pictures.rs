//! Each picture with its title and caption.

use serde::Serialize;

use crate::draw::canvas::{Canvas, sheet};
use crate::draw::{course, density, intervals, tiles};
use crate::findings::is_shown;
use crate::model::{Contrast, Contrasts, Distributions, Form, Report, Section, Split};
use crate::words::{count, counted, estimate, number, with_unit};

/// Columns of panels in a file of its own.
const COLUMNS: usize = 3;

/// Maximum number of differences that a panel lists; of more it has the number.
const MAX_LISTED: usize = 3;

/// A picture as a file of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Picture {
    /// The name of its file, without `.svg`: lower-case letters, digits and hyphens.
    pub name: String,
    /// The title.
    pub title: String,
    /// The SVG, which needs no other file.
    pub svg: String,
}

/// A picture in the page: panels below a title, and a caption.
#[derive(Serialize)]
pub(crate) struct Figure {
    pub(crate) title: String,
    pub(crate) captions: Vec<String>,
    #[serde(skip)]
    pub(crate) panels: Vec<Canvas>,
    pub(crate) svgs: Vec<String>,
}

impl Figure {
    fn new(title: String, captions: Vec<String>, panels: Vec<Canvas>) -> Figure {
        let svgs = panels.iter().enumerate().map(|(place, panel)| panel.inline(&format!("{title}, {}", place + 1)));
        Figure { svgs: svgs.collect(), title, captions, panels }
    }

    fn picture(&self, name: String, columns: usize) -> Picture {
        Picture { svg: sheet(&self.title, &self.captions, &self.panels, columns), name, title: self.title.clone() }
    }
}

impl Report {
    /// Each picture as SVG.
    pub fn pictures(&self) -> Vec<Picture> {
        self.sections.iter().flat_map(section_pictures).collect()
    }
}

fn section_pictures(section: &Section) -> Vec<Picture> {
    let name = |what: &str| format!("{}-{what}", section.id);
    let mut pictures = Vec::new();
    if let Some(figure) = overlay(section) {
        pictures.push(figure.picture(name("densities"), 1));
    }
    for (place, found) in section.splits.iter().enumerate() {
        let what = format!("by-{}-{}", place + 1, slug(&found.factor));
        if let Some(figure) = split(section, found) {
            pictures.push(figure.picture(name(&what), COLUMNS));
        }
        if let Some(contrasts) = found.contrasts.as_ref().filter(|it| it.rows.len() <= 200) {
            let title = format!("Differences of {} within {}", section.score, found.factor);
            let panel = intervals::intervals(contrasts, &found.panels, &section.unit);
            let figure = Figure::new(title, vec![found.statement.clone()], vec![panel]);
            pictures.push(figure.picture(name(&format!("differences-{what}")), 1));
        }
    }
    if let Some(contrasts) = section.contrasts.as_ref().filter(|it| it.rows.len() <= 200) {
        let title = format!("Differences of {}", section.score);
        let captions = vec![crate::findings::statement(Some(contrasts), &section.unit)];
        let figure = Figure::new(title, captions, vec![intervals::intervals(contrasts, &[], &section.unit)]);
        pictures.push(figure.picture(name("differences"), 1));
    }
    if !section.matrix.rows.is_empty() {
        let figure = Figure::new(matrix_title(section), matrix_captions(section), vec![tiles::tiles(&section.matrix)]);
        pictures.push(figure.picture(name("matrix"), 1));
    }
    if let Some(figure) = time(section) {
        pictures.push(figure.picture(name("time"), 2));
    }
    pictures
}

/// A part of a file's name.
fn slug(text: &str) -> String {
    let plain = text.chars().take(40).map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' });
    plain.collect::<String>().trim_matches('-').to_owned()
}

/// The distribution of all scores.
pub(crate) fn overlay(section: &Section) -> Option<Figure> {
    if section.scored == 0 || section.overlay.panels.is_empty() {
        return None;
    }
    let by = section.factor.as_ref().map_or(String::new(), |factor| format!(" by {factor}"));
    let title = format!("Distribution of {}{by}", section.score);
    let captions = vec![density_caption(section, &section.overlay)];
    Some(Figure::new(title, captions, density::panels(&section.overlay, &section.score, &section.unit, &[])))
}

/// The distributions within the levels of another factor.
pub(crate) fn split(section: &Section, split: &Split) -> Option<Figure> {
    let found = split.distributions.as_ref().filter(|_| section.scored > 0)?;
    let title = format!("Distribution of {}, split by {}", section.score, split.factor);
    let below: Vec<Vec<String>> = match &split.contrasts {
        Some(contrasts) => (0..found.panels.len()).map(|panel| differences(contrasts, panel)).collect(),
        None => Vec::new(),
    };
    let captions =
        vec![split.statement.clone(), format!("{} All panels have the same axes.", density_caption(section, found))];
    Some(Figure::new(title, captions, density::panels(found, &section.score, &section.unit, &below)))
}

/// The differences in a panel.
fn differences(contrasts: &Contrasts, panel: usize) -> Vec<String> {
    let rows: Vec<_> = contrasts.rows.iter().filter(|row| row.panel == Some(panel)).collect();
    if rows.len() > MAX_LISTED {
        let shown = rows.iter().filter(|row| is_shown(row)).count();
        return vec![format!("{shown} of {} differ", counted(rows.len(), "pair", "pairs"))];
    }
    let lines = |row: &&Contrast| {
        let difference = estimate(row.difference, row.low, row.high, "");
        let line = format!("{}: {difference}", row.label);
        // The names may be cut, but not the numbers.
        if density::fits_below(&line) { vec![line] } else { vec![format!("{}:", row.label), difference] }
    };
    rows.iter().flat_map(lines).collect()
}

fn density_caption(section: &Section, found: &Distributions) -> String {
    let per_tick = match found.most_per_tick {
        0 | 1 => "Each tick below is a run.".to_owned(),
        most => format!(
            "A tick is a run, or stands for up to {} of them, and is higher the more they are.",
            count(most as usize)
        ),
    };
    if found.form == Form::Strips {
        return format!(
            "Each row: the median (dot), the middle half of the runs (bar) and the runs (ticks). {}",
            per_tick.replace(" below", "")
        );
    }
    let samples = || found.panels.iter().flat_map(|panel| &panel.samples);
    let widths = samples().filter_map(|sample| sample.bandwidth);
    let (least, most) = widths.fold((f64::INFINITY, 0.0f64), |(least, most), it| (least.min(it), most.max(it)));
    let mut rules: Vec<&str> = samples().filter_map(|sample| sample.rule).collect();
    rules.sort_unstable();
    rules.dedup();
    let unit = if section.unit.is_empty() { "unit of the score" } else { &section.unit };
    let curves = match rules.is_empty() {
        true => "There are too few different scores for curves.".to_owned(),
        false => {
            let range = match number(least) == number(most) {
                true => with_unit(&number(most), &section.unit),
                false => format!("{} to {}", number(least), with_unit(&number(most), &section.unit)),
            };
            format!(
                "Curves are densities: their height is the share of runs per {unit}, the area below each is 1 (gaussian \
                 kernel, bandwidth {range} by {}).",
                rules.join(" or ")
            )
        }
    };
    format!("{curves} Numbers in parentheses are runs with a score. {per_tick}")
}

pub(crate) fn matrix_title(section: &Section) -> String {
    let by = section.factor.as_ref().map_or(String::new(), |factor| format!(" by {factor}"));
    format!("Median {} of each combination{by}", section.score)
}

/// What the matrix shows.
pub(crate) fn matrix_captions(section: &Section) -> Vec<String> {
    let matrix = &section.matrix;
    let unit = if section.unit.is_empty() { String::new() } else { format!(" in {}", section.unit) };
    let mut captions = vec![format!(
        "Numbers are medians{unit}; a stronger colour is a larger number. A frame and words mark combinations with \
         failed runs. Marked rows have the largest and the least mean of their medians, or the largest share of failures."
    )];
    if matrix.drawn.len() < matrix.rows.len() {
        captions.push(format!(
            "{} of {} are drawn: those with the least and the largest medians, and the marked ones. The report as JSON \
             has all.",
            count(matrix.drawn.len()),
            counted(matrix.rows.len(), "row", "rows")
        ));
    }
    captions
}

/// The scores in the order of time.
pub(crate) fn time(section: &Section) -> Option<Figure> {
    let course = &section.course;
    if section.scored == 0 {
        return None;
    }
    let per_band = course.series.first().map_or(1, |series| series.per_band);
    let how = match per_band {
        0 | 1 => "Each dot is a run.".to_owned(),
        many => format!(
            "Each column is {} runs: the median (line), the middle half (dark) and the range (light).",
            count(many)
        ),
    };
    let marks = match (course.disturbed.is_empty(), course.failed.is_empty()) {
        (true, true) => "",
        (false, true) => " Triangles are disturbed runs, or columns that have some.",
        (true, false) => " Crosses are failed runs, or columns that have some.",
        (false, false) => " Triangles are disturbed runs and crosses failed ones, or columns that have some.",
    };
    let captions = vec![course.finding.clone(), format!("{how}{marks}")];
    let title = format!("{} over time", crate::words::sentence(&section.score).trim_end_matches('.'));
    Some(Figure::new(title, captions, course::panels(course, &section.unit)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_keep_their_numbers_whatever_the_names() {
        let row = |label: &str| Contrast {
            panel: Some(0),
            levels: [0, 1],
            label: label.to_owned(),
            combinations: 1,
            is_confounded: false,
            difference: 0.0064,
            error: 0.01,
            low: -0.0498,
            high: 0.037,
            p: 0.5,
            relative: None,
            welch_p: None,
            welch: None,
            dunn_p: None,
            ratio: None,
        };
        let rows = vec![row("b \u{2212} a"), row(&"other-first \u{2212} idle-first".repeat(3))];
        let half_width = (0.04, 0.05);
        let method = "Tukey\u{2013}Kramer".to_owned();
        let contrasts = Contrasts { method, means: 2, comparisons: 2, confidence: 0.95, half_width, rows };
        let lines = differences(&contrasts, 0);
        let numbers = "+0.0064 [\u{2212}0.0498, +0.0370]";
        assert_eq!(lines.len(), 3, "{lines:?}");
        assert_eq!(lines[0], format!("b \u{2212} a: {numbers}"));
        assert_eq!(lines[2], numbers);
    }
}
