//! Writes SVG: one picture, or several panels on a sheet with a title.

use std::fmt::Write as _;

use bellows_graph::{escaped, shortened};
use unicode_width::UnicodeWidthStr;

use super::palette;

/// Width of a character of 11 pixels, at most.
const CHARACTER: f64 = 7.0;

/// The margin of a sheet, and the space between panels.
const MARGIN: f64 = 16.0;
const GAP: f64 = 20.0;

/// Height of a line of text on a sheet.
const LINE: f64 = 16.0;

/// A drawing of some size, in pixels.
pub(crate) struct Canvas {
    pub(crate) width: f64,
    pub(crate) height: f64,
    body: String,
}

/// A number as short as a tenth of a pixel needs.
pub(crate) struct Px(pub(crate) f64);

impl std::fmt::Display for Px {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let tenths = (self.0 * 10.0).round() as i64;
        match tenths % 10 {
            0 => write!(formatter, "{}", tenths / 10),
            _ => write!(formatter, "{:.1}", tenths as f64 / 10.0),
        }
    }
}

/// An upper limit on the width of a text.
pub(crate) fn text_width(text: &str) -> f64 {
    text.width() as f64 * CHARACTER
}

/// A text cut to a width.
pub(crate) fn fitted(text: &str, width: f64) -> String {
    let most = (width / CHARACTER).max(2.0) as usize;
    let wide = text.width().saturating_sub(text.chars().count());
    shortened(text, most.saturating_sub(wide.min(most / 2)).max(2))
}

impl Canvas {
    pub(crate) fn new(width: f64, height: f64) -> Canvas {
        Canvas { width, height, body: String::new() }
    }

    /// Text with classes; `end` and `mid` place it before or around `x`.
    pub(crate) fn text(&mut self, x: f64, y: f64, class: &str, text: &str) {
        let class = if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") };
        let _ = write!(self.body, "<text x=\"{}\" y=\"{}\"{class}>{}</text>", Px(x), Px(y), escaped(text));
    }

    /// Text cut to a width; a tooltip has all of it.
    pub(crate) fn label(&mut self, x: f64, y: f64, class: &str, text: &str, width: f64) {
        let short = fitted(text, width);
        if short == text {
            return self.text(x, y, class, text);
        }
        let (short, all) = (escaped(&short), escaped(text));
        let _ = write!(
            self.body,
            "<text x=\"{}\" y=\"{}\" class=\"{class}\">{short}<title>{all}</title></text>",
            Px(x),
            Px(y)
        );
    }

    pub(crate) fn path(&mut self, class: &str, path: &str) {
        if !path.is_empty() {
            let _ = write!(self.body, "<path class=\"{class}\" d=\"{path}\"/>");
        }
    }

    pub(crate) fn rect(&mut self, class: &str, [x, y, width, height]: [f64; 4]) {
        let _ = write!(
            self.body,
            "<rect class=\"{class}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/>",
            Px(x),
            Px(y),
            Px(width.max(0.5)),
            Px(height)
        );
    }

    pub(crate) fn circle(&mut self, class: &str, x: f64, y: f64, radius: f64) {
        let _ = write!(self.body, "<circle class=\"{class}\" cx=\"{}\" cy=\"{}\" r=\"{radius}\"/>", Px(x), Px(y));
    }

    /// The picture within a page, which has the style.
    pub(crate) fn inline(&self, label: &str) -> String {
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"bellows-report\" role=\"img\" aria-label=\"{}\" \
             viewBox=\"0 0 {w} {h}\" width=\"{w}\" height=\"{h}\">{}</svg>",
            escaped(label),
            self.body,
            w = Px(self.width),
            h = Px(self.height),
        )
    }
}

/// A file of its own: panels in columns below a title and some lines, with its own ground and style.
pub(crate) fn sheet(title: &str, lines: &[String], panels: &[Canvas], columns: usize) -> String {
    let columns = columns.clamp(1, panels.len().max(1));
    let inner = |width: f64| width - 2.0 * MARGIN;
    let mut row_width = 0f64;
    for row in panels.chunks(columns) {
        let sum: f64 = row.iter().map(|panel| panel.width + GAP).sum();
        row_width = row_width.max(sum - GAP);
    }
    let width = (row_width + 2.0 * MARGIN).max(440.0);
    let lines: Vec<String> = lines.iter().flat_map(|line| wrapped(line, inner(width))).collect();
    let mut y = MARGIN + 14.0;
    let mut body = Canvas::new(width, 0.0);
    body.label(MARGIN, y, "big", title, inner(width) * 0.75);
    y += 6.0;
    for line in &lines {
        y += LINE;
        body.text(MARGIN, y, "soft", line);
    }
    y += GAP;
    for row in panels.chunks(columns) {
        let mut x = MARGIN;
        for panel in row {
            let _ = write!(body.body, "<g transform=\"translate({} {})\">{}</g>", Px(x), Px(y), panel.body);
            x += panel.width + GAP;
        }
        y += row.iter().map(|panel| panel.height).fold(0.0, f64::max) + GAP;
    }
    let height = y - GAP + MARGIN;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"bellows-report\" role=\"img\" viewBox=\"0 0 {w} {h}\" \
         width=\"{w}\" height=\"{h}\">\n<title>{}</title>\n<style>{}</style>\n\
         <rect class=\"paper\" width=\"{w}\" height=\"{h}\"/>\n{}\n</svg>\n",
        escaped(title),
        palette::style().replace('&', "&amp;").replace('<', "&lt;"),
        body.body,
        w = Px(width),
        h = Px(height),
    )
}

/// A text in lines of at most a width.
fn wrapped(text: &str, width: f64) -> Vec<String> {
    // Most characters are narrower than the widest.
    let most = (width / (CHARACTER * 0.86)) as usize;
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let word = shortened(word, most.max(2));
        match lines.last_mut() {
            Some(line) if line.width() + 1 + word.width() <= most => {
                line.push(' ');
                line.push_str(&word);
            }
            _ => lines.push(word),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_to_their_width() {
        let long = "x".repeat(500);
        assert!(text_width(&fitted(&long, 100.0)) <= 100.0);
        assert!(text_width(&fitted(&"宽".repeat(50), 100.0)) <= 107.0);
        assert_eq!(fitted("short", 100.0), "short");
        assert!(wrapped(&format!("{long} a b"), 200.0).iter().all(|line| line.width() <= 34));
        assert_eq!([Px(1.0), Px(1.25), Px(-0.04)].map(|px| px.to_string()), ["1", "1.3", "0"]);
    }
}
