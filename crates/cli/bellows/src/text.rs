//! Numbers and tables for people.

use std::borrow::Cow;

pub use bellows_inspect::text::{
    UNKNOWN, bit_rate, count, date_and_time, figure, known, nanos, packet_rate, percent, plural, scaled, span,
    time_of_day,
};

use bellows_sys::text::one_line;

use crate::charset;

/// Wraps text to this many columns. Longer words are not broken.
pub fn wrapped(text: &str, room: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let last = lines.len() - 1;
        let length = lines[last].chars().count();
        if length == 0 {
            lines[last].push_str(word);
        } else if length + 1 + word.chars().count() <= room {
            lines[last].push(' ');
            lines[last].push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

/// Text cut in the middle to at most this many columns, also in a locale that writes the omission as `...`.
pub fn shortened(text: &str, room: usize) -> String {
    let text = one_line(text);
    if text.chars().count() <= room {
        return text;
    }
    let mark = charset::localized("…").chars().count();
    bellows_graph::shortened(&text, room.saturating_sub(mark - 1))
}

/// The alignment of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Left, for words.
    Left,
    /// Right, for numbers.
    Right,
}

/// A table of text with columns as wide as their content.
#[derive(Debug)]
pub struct Table {
    columns: Vec<(Cow<'static, str>, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// Creates a table with these headings and no rows.
    pub fn new(columns: &[(&'static str, Align)]) -> Table {
        let columns = columns.iter().map(|&(name, align)| (Cow::Borrowed(name), align)).collect();
        Table { columns, rows: Vec::new() }
    }

    /// Adds a column to a table that has no rows.
    pub fn column(&mut self, name: impl Into<Cow<'static, str>>, align: Align) {
        self.columns.push((name.into(), align));
    }

    /// Adds a row with a cell for each column. Text from another process must not break the table or control the
    /// terminal: control characters become `�`.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        // Cells are converted to the locale's characters before they are measured.
        let shown = |cell: String| charset::localized(&one_line(&cell)).into_owned();
        self.rows.push(cells.into_iter().map(shown).collect());
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The table as lines, with headings first, bold if `bold`.
    pub fn render(&self, bold: bool) -> String {
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
            cells.chain([self.columns[column].0.chars().count()]).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        let line = |cells: &mut dyn Iterator<Item = &str>| {
            let mut line = String::new();
            for ((cell, width), (_, align)) in cells.zip(&widths).zip(&self.columns) {
                let gap = " ".repeat(width - cell.chars().count());
                line += if line.is_empty() { "" } else { "  " };
                line += &match align {
                    Align::Left => format!("{cell}{gap}"),
                    Align::Right => format!("{gap}{cell}"),
                };
            }
            line.truncate(line.trim_end().len());
            line
        };
        let heading = line(&mut self.columns.iter().map(|(name, _)| &**name));
        let mut text = if bold { format!("\x1b[1m{heading}\x1b[0m\n") } else { heading + "\n" };
        for row in &self.rows {
            text += &line(&mut row.iter().map(String::as_str));
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_wraps_at_blanks_and_is_cut_in_the_middle() {
        assert_eq!(wrapped("Sends each packet to one", 10), ["Sends each", "packet to", "one"]);
        assert_eq!(wrapped("Sends each", usize::MAX), ["Sends each"]);
        assert_eq!(wrapped("supercalifragilistic words", 5), ["supercalifragilistic", "words"]);
        assert_eq!(wrapped("", 5), [""]);
        assert_eq!(
            [20, 8, 1, 0].map(|room| shortened("supercalifragil", room)),
            ["supercalifragil", "supe…gil", "…", "…"]
        );
    }

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&[("NAME", Align::Left), ("PACKETS", Align::Right)]);
        table.row(["a".into(), "1,000,000".into()]);
        table.row(["länger".into(), "7".into()]);
        assert_eq!(table.render(false), "NAME      PACKETS\na       1,000,000\nlänger          7\n");
    }
}
