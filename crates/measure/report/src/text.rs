//! The report as text for a terminal: densities as blocks, intervals as lines, and tables.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::axis::Axis;
use crate::draw::intervals::axis_of;
use crate::draw::tiles;
use crate::findings::statement;
use crate::model::{Contrasts, Course, Distributions, Matrix, Report, Sample, Section};
use crate::words::{count, counted, estimate, number, probability, with_unit, without_marks};

/// The heights of a block.
const BLOCKS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The least width that is used.
const MIN_WIDTH: usize = 32;

/// Maximum number of rows of a table. The report as JSON has all.
const MAX_ROWS: usize = 24;

impl Report {
    /// The report as lines of at most `width` columns, at least 32, without control characters.
    pub fn text(&self, width: usize) -> String {
        let mut page = TextPage { width: width.max(MIN_WIDTH), lines: Vec::new() };
        page.wrapped("", &self.title);
        let setup = &self.setup;
        let mut about = format!(
            "{} of {}",
            counted(setup.runs, "run", "runs"),
            counted(setup.combinations, "combination", "combinations")
        );
        about += &format!(", {} without a score, {} disturbed", count(setup.failed), count(setup.disturbed));
        if let Some((first, last)) = &setup.span {
            about += &format!(", from {first} to {last}");
        }
        page.wrapped("", &about);
        setup.command.iter().for_each(|command| page.wrapped("command: ", command));
        for (what, tallies) in [
            ("machine: ", &setup.machines),
            ("processor: ", &setup.processors),
            ("kernel: ", &setup.kernels),
            ("version: ", &setup.versions),
        ] {
            tallies.iter().for_each(|tally| {
                page.wrapped(what, &format!("{} ({})", tally.name, counted(tally.runs, "run", "runs")))
            });
        }
        setup.notes.iter().for_each(|note| page.wrapped("", note));
        page.heading("CONFIRMATION");
        self.confirmation.note.iter().for_each(|note| page.wrapped("", note));
        for tested in &self.confirmation.hypotheses {
            page.wrapped("", &crate::words::label(&tested.verdict.hypothesis.name));
            page.wrapped("  ", &tested.statement);
            tested.findings.iter().for_each(|finding| page.wrapped("  - ", finding));
        }
        self.sections.iter().for_each(|section| page.section(section));
        if self.sections.is_empty() {
            page.heading("EXPLORATION");
            page.wrapped("", "There are no results yet.");
        }
        page.lines.iter().map(|line| line.trim_end().to_owned() + "\n").collect()
    }
}

/// Lines of a width.
struct TextPage {
    width: usize,
    lines: Vec<String>,
}

/// A text that fills exactly a width, cut with an ellipsis if it is longer.
fn filled(text: &str, width: usize) -> String {
    let text = without_marks(text);
    let mut short = String::new();
    let is_cut = text.width() > width;
    let room = if is_cut { width.saturating_sub(1) } else { width };
    let mut used = 0;
    for c in text.chars() {
        let columns = c.width().unwrap_or(0);
        if used + columns > room {
            break;
        }
        used += columns;
        short.push(c);
    }
    if is_cut && width > 0 {
        short.push('…');
    }
    let missing = width.saturating_sub(short.width());
    short + &" ".repeat(missing)
}

impl TextPage {
    fn push(&mut self, line: &str) {
        let line = filled(line, self.width);
        self.lines.push(line);
    }

    /// A text in lines, with a prefix before the first and as much space before the others.
    fn wrapped(&mut self, prefix: &str, text: &str) {
        let indent = " ".repeat(prefix.width());
        let room = self.width - prefix.width().min(self.width / 2);
        let mut line = prefix.to_owned();
        let mut is_empty = true;
        let text = without_marks(text);
        for word in text.split_whitespace() {
            let word = if word.width() > room { filled(word, room) } else { word.to_owned() };
            if !is_empty && line.width() + 1 + word.width() > self.width {
                self.push(&line);
                line.clone_from(&indent);
                is_empty = true;
            }
            if !is_empty {
                line.push(' ');
            }
            line.push_str(&word);
            is_empty = false;
        }
        self.push(&line);
    }

    fn heading(&mut self, text: &str) {
        self.push("");
        self.push(text);
    }

    fn section(&mut self, section: &Section) {
        let unit = if section.unit.is_empty() { String::new() } else { format!("({})", section.unit) };
        self.heading(&format!("EXPLORATION: {}", with_unit(&section.score, &unit)));
        let factor = section.factor.as_ref().map_or(String::new(), |factor| format!("Factor of interest: {factor}. "));
        self.wrapped("", &format!("{factor}{}", section.factor_reason));
        for (name, level) in &section.held {
            self.wrapped("", &format!("{name} is {level} in all of these runs."));
        }
        section.findings.iter().for_each(|finding| self.wrapped("- ", finding));
        section.warnings.iter().for_each(|warning| self.wrapped("! ", warning));
        for reason in section.failures.iter().take(MAX_ROWS) {
            self.wrapped("  failed: ", &format!("{}: {}", count(reason.runs), reason.reason));
        }
        self.left_out(section.failures.len());
        if section.scored > 0 {
            let by = section.factor.as_ref().map_or(String::new(), |factor| format!(" by {factor}"));
            self.heading(&format!("Distribution of {}{by}", section.score));
            self.distributions(&section.overlay, &section.unit);
        }
        if let Some(contrasts) = &section.contrasts {
            self.heading("Differences of means, with intervals that hold together");
            self.contrasts(contrasts, &[], &section.unit);
        }
        for split in &section.splits {
            self.heading(&format!("Split by {}", split.factor));
            if let Some(found) = split.distributions.as_ref().filter(|_| section.scored > 0) {
                self.distributions(found, &section.unit);
            }
            match &split.contrasts {
                Some(contrasts) => self.contrasts(contrasts, &split.panels, &section.unit),
                None => self.wrapped("", &split.statement),
            }
        }
        self.matrix(&section.matrix, &section.unit);
        self.course(&section.course, section.scored);
    }

    fn left_out(&mut self, rows: usize) {
        if rows > MAX_ROWS {
            self.wrapped("  ", &format!("and {} more, which the report as JSON has", count(rows - MAX_ROWS)));
        }
    }

    /// Each sample as a line of blocks over a shared axis.
    fn distributions(&mut self, found: &Distributions, unit: &str) {
        let label = (self.width / 4).clamp(8, 28);
        let numbers = if self.width >= 64 { 20 } else { 0 };
        let plot = self.width - label - numbers - 2;
        for panel in found.panels.iter().take(MAX_ROWS) {
            if found.panels.len() > 1 {
                self.push(&panel.label);
            }
            for (name, sample) in found.levels.iter().zip(&panel.samples).take(MAX_ROWS) {
                let line = format!("{} {}", filled(&format!("  {name}"), label), blocks(sample, found, plot));
                let middle = sample.quartiles.map_or("none".to_owned(), |quartiles| number(quartiles[1]));
                let numbers = if numbers > 0 {
                    format!(" {middle}, {}", counted(sample.runs, "run", "runs"))
                } else {
                    String::new()
                };
                self.push(&format!("{line}{numbers}"));
            }
            self.left_out(found.levels.len());
        }
        self.left_out(found.panels.len());
        self.scale(&found.axis, unit, label + 1, plot);
    }

    /// The ends of an axis below a plot.
    fn scale(&mut self, axis: &Axis, unit: &str, indent: usize, plot: usize) {
        let (low, high) = (number(axis.low), with_unit(&number(axis.high), unit));
        let between = plot.saturating_sub(low.width() + high.width()).max(1);
        self.push(&format!("{}{low}{}{high}", " ".repeat(indent), " ".repeat(between)));
    }

    fn contrasts(&mut self, contrasts: &Contrasts, panels: &[String], unit: &str) {
        let axis = axis_of(contrasts);
        let is_wide = self.width >= 72;
        let label = if is_wide { self.width / 3 } else { self.width };
        let plot = if is_wide { self.width - label - 37 } else { self.width - 2 };
        let mut rows: Vec<_> = contrasts.rows.iter().collect();
        if rows.len() > MAX_ROWS {
            rows.sort_by(|one, other| one.p.total_cmp(&other.p));
        }
        for row in rows.into_iter().take(MAX_ROWS) {
            let panel =
                row.panel.and_then(|panel| panels.get(panel)).map_or(String::new(), |panel| format!("{panel}: "));
            let name = format!("{panel}{}", row.label);
            let line = interval([row.low, row.difference, row.high], &axis, plot);
            let numbers = estimate(row.difference, row.low, row.high, "");
            match is_wide {
                true => self.push(&format!("{} {line} {numbers}", filled(&name, label))),
                false => {
                    self.push(&name);
                    self.push(&format!("  {line}"));
                    self.push(&format!("  {numbers}, {}", probability(row.p)));
                }
            }
        }
        self.scale(&axis, unit, if is_wide { label + 1 } else { 2 }, plot);
        self.left_out(contrasts.rows.len());
        self.wrapped("", &statement(Some(contrasts), unit));
    }

    fn matrix(&mut self, matrix: &Matrix, unit: &str) {
        if matrix.rows.is_empty() {
            return;
        }
        self.heading(&with_unit(
            "Median of each combination",
            &if unit.is_empty() { String::new() } else { format!("({unit})") },
        ));
        for (place, row) in matrix.drawn.iter().map(|row| &matrix.rows[*row]).enumerate() {
            if place == MAX_ROWS {
                break;
            }
            let mark = if row.marks.is_empty() { String::new() } else { format!("  <- {}", row.marks.join(", ")) };
            if !row.levels.is_empty() {
                self.push(&format!("{}{mark}", row.levels.join(", ")));
            }
            let cells = row.cells.iter().zip(&matrix.columns).map(|(cell, column)| {
                let text = cell.as_ref().map_or("not run".to_owned(), tiles::text_of);
                let strip = cell
                    .as_ref()
                    .and_then(|cell| cell.median)
                    .map_or(' ', |median| BLOCKS[1 + tiles::step_of(matrix, median)]);
                format!("{strip} {column}: {text};")
            });
            self.wrapped("  ", cells.collect::<Vec<String>>().join("  ").trim_end_matches(';'));
        }
        self.left_out(matrix.rows.len());
    }

    /// The medians of columns of time.
    fn course(&mut self, course: &Course, scored: usize) {
        let Some(series) = course.series.get(1).filter(|_| scored > 0) else { return };
        self.heading(&format!("Over time: {}", series.label));
        let columns = self.width.min(60);
        let mut sums: Vec<Vec<f64>> = vec![Vec::new(); columns];
        let place = |at: f64| ((at / course.runs as f64 * columns as f64) as usize).min(columns - 1);
        series.points.iter().for_each(|(at, value, _)| sums[place(*at as f64)].push(*value));
        series.bands.iter().for_each(|(at, numbers)| sums[place(*at)].push(numbers[2]));
        let middles: Vec<Option<f64>> =
            sums.iter().map(|sum| bellows_stats::median(sum).map(|median| median.value)).collect();
        let axis = Axis::around(middles.iter().flatten().copied(), 0.0);
        let block =
            |middle: &Option<f64>| middle.map_or(' ', |middle| BLOCKS[1 + (axis.place(middle) * 7.0).round() as usize]);
        let line: String = middles.iter().map(block).collect();
        self.push(&line);
        self.wrapped("", &format!("from {} to {}", number(axis.low), number(axis.high)));
        self.wrapped("", &course.finding);
    }
}

/// A density, or the places of runs, as blocks.
fn blocks(sample: &Sample, found: &Distributions, width: usize) -> String {
    let mut heights = vec![0.0f64; width];
    let column = |share: f64| ((share * width as f64) as usize).min(width - 1);
    if sample.density.is_empty() {
        let most = sample.ticks.iter().map(|(_, runs)| *runs).max().unwrap_or(1);
        for (at, runs) in &sample.ticks {
            heights[column(found.axis.place(*at))] += f64::from(*runs) / f64::from(most);
        }
    } else {
        for (place, density) in sample.density.iter().enumerate() {
            let height = &mut heights[column(place as f64 / sample.density.len() as f64)];
            *height = height.max(density / found.top);
        }
        // A narrow plot has several points a column, a wide one columns between the points.
        for (at, height) in heights.iter_mut().enumerate().filter(|(_, height)| **height == 0.0) {
            let share = at as f64 / width as f64 * (sample.density.len() - 1) as f64;
            *height = sample.density[share.round() as usize] / found.top;
        }
    }
    // What is there at all is seen.
    heights
        .iter()
        .map(|height| BLOCKS[if *height > 0.01 { (height * 8.0).ceil().min(8.0) as usize } else { 0 }])
        .collect()
}

/// An interval: `   ├──●───┤  │   `, with a line at 0.
fn interval([low, middle, high]: [f64; 3], axis: &Axis, width: usize) -> String {
    let column = |value: f64| ((axis.place(value) * width as f64) as usize).min(width - 1);
    let mut line = vec![' '; width];
    line[column(0.0)] = '│';
    line[column(low)..=column(high)].fill('─');
    line[column(low)] = '├';
    line[column(high)] = '┤';
    line[column(middle)] = '●';
    line.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_fill_their_width() {
        for (text, width) in [("abc", 5), ("abcdefgh", 5), ("宽宽宽宽", 5), ("", 3), ("שלום", 4), ("a", 0)] {
            assert_eq!(filled(text, width).width(), width, "{text}");
        }
    }

    #[test]
    fn intervals_have_ends_and_a_middle() {
        let axis = Axis::of(-1.0, 1.0);
        assert_eq!(interval([0.2, 0.5, 0.8], &axis, 20), "          │ ├──●──┤ ");
        assert_eq!(interval([-1.0, 0.0, 1.0], &axis, 9), "├───●───┤");
    }
}
