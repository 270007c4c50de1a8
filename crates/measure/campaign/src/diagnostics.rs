//! Errors in a campaign file, with their places and how to fix them.

use std::fmt;
use std::ops::Range;

use annotate_snippets::{AnnotationKind, Level, Origin, Renderer, Snippet};
use bellows_sys::text::is_hidden;
use serde_json::{Value, json};

/// Maximum number of errors to keep. Later ones are only counted.
const MAX_KEPT: usize = 50;

/// Lines longer than this are not shown, because laying them out takes too long.
const MAX_LINE: usize = 5_000;

/// Names longer than this are not compared with others, because the time grows with the product of the lengths.
const MAX_COMPARED: usize = 100;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Diagnostic {
    message: String,
    range: Option<Range<usize>>,
    help: String,
}

/// All errors in a campaign file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diagnostics {
    file: String,
    text: String,
    list: Vec<Diagnostic>,
    count: usize,
}

impl Diagnostics {
    pub(crate) fn new(file: &str, text: &str) -> Diagnostics {
        Diagnostics { file: visible(file), text: text.to_owned(), ..Diagnostics::default() }
    }

    /// Adds an error about these bytes of the text, with advice on how to fix it.
    pub(crate) fn at(&mut self, range: Range<usize>, message: impl AsRef<str>, help: impl AsRef<str>) {
        self.push(Some(range), message.as_ref(), help.as_ref());
    }

    /// Adds an error about the file as a whole.
    pub(crate) fn whole(&mut self, message: impl AsRef<str>, help: impl AsRef<str>) {
        self.push(None, message.as_ref(), help.as_ref());
    }

    fn push(&mut self, range: Option<Range<usize>>, message: &str, help: &str) {
        self.count += 1;
        if self.list.len() < MAX_KEPT {
            self.list.push(Diagnostic { message: visible(message), range, help: visible(help) });
        }
    }

    pub(crate) fn sort(&mut self) {
        self.list.sort_by_key(|diagnostic| diagnostic.range.as_ref().map(|range| range.start));
    }

    /// The number of errors.
    pub fn errors(&self) -> usize {
        self.count
    }

    /// Whether there are no errors.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// A range whose ends lie on characters of its first line.
    fn underlined(&self, range: &Range<usize>) -> Range<usize> {
        let start = self.text.floor_char_boundary(range.start.min(self.text.len()));
        let end = self.text.ceil_char_boundary(range.end.clamp(start, self.text.len()));
        let first = self.text[start..end].split(['\n', '\r']).next().unwrap_or("");
        start..start + first.len()
    }

    /// Line and column, both counted from 1, the column in characters.
    fn position(&self, at: usize) -> (usize, usize) {
        let before = &self.text[..at];
        let start = before.rfind('\n').map_or(0, |newline| newline + 1);
        (1 + before.matches('\n').count(), 1 + before[start..].chars().count())
    }

    /// All errors as text for a terminal, each with its file, line and the underlined text.
    pub fn render(&self, color: bool) -> String {
        let renderer = if color { Renderer::styled() } else { Renderer::plain() }.term_width(120);
        let mut parts: Vec<String> = self.list.iter().map(|it| self.render_one(&renderer, it) + "\n").collect();
        if self.count > self.list.len() {
            parts.push(format!("and {} more\n", self.count - self.list.len()));
        }
        parts.join("\n")
    }

    fn render_one(&self, renderer: &Renderer, diagnostic: &Diagnostic) -> String {
        let title = Level::ERROR.primary_title(diagnostic.message.as_str());
        let group = match &diagnostic.range {
            None => title.element(Origin::path(self.file.as_str())),
            Some(range) => {
                let range = self.underlined(range);
                let start = self.text[..range.start].rfind('\n').map_or(0, |newline| newline + 1);
                let end = self.text[range.end..].find('\n').map_or(self.text.len(), |newline| range.end + newline);
                let (line, column) = self.position(range.start);
                match end - start > MAX_LINE {
                    true => title.element(Origin::path(self.file.as_str()).line(line).char_column(column)),
                    false => {
                        let shown = shown(&self.text[start..end]);
                        let mark = AnnotationKind::Primary.span(range.start - start..range.end - start);
                        let snippet = Snippet::source(shown).line_start(line).path(self.file.as_str());
                        title.element(snippet.annotation(mark))
                    }
                }
            }
        };
        let group = match diagnostic.help.is_empty() {
            true => group,
            false => group.element(Level::HELP.message(diagnostic.help.as_str())),
        };
        renderer.render(&[group])
    }

    /// All errors as JSON: a list of objects with `message`, `file`, `line`, `column` (from 1; null without a place)
    /// and `help`.
    pub fn to_json(&self) -> Value {
        let entry = |diagnostic: &Diagnostic| {
            let place = diagnostic.range.as_ref().map(|range| self.position(self.underlined(range).start));
            json!({
                "message": diagnostic.message,
                "file": self.file,
                "line": place.map(|place| place.0),
                "column": place.map(|place| place.1),
                "help": diagnostic.help,
            })
        };
        self.list.iter().map(entry).collect()
    }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.render(false).trim_end())
    }
}

impl std::error::Error for Diagnostics {}

/// The text with its control characters escaped, so that they do not reach a terminal.
pub fn visible(text: &str) -> String {
    text.chars().map(|c| if is_hidden(c) { c.escape_default().to_string() } else { c.to_string() }).collect()
}

/// A line to show, with as many bytes: the renderer escapes all control characters except U+0080 to U+009F.
fn shown(line: &str) -> String {
    line.replace(|c: char| ('\u{80}'..='\u{9f}').contains(&c), "\u{bf}")
}

/// A name or value in quotes for a message, cut to fit a line.
pub(crate) fn quoted(text: &str) -> String {
    const MAX_QUOTED: usize = 60;
    match text.char_indices().nth(MAX_QUOTED) {
        Some((end, _)) => format!("`{}…`", &text[..end]),
        None => format!("`{text}`"),
    }
}

/// Names as they are listed in a message.
pub(crate) fn listed<S: AsRef<str>>(names: impl IntoIterator<Item = S>) -> String {
    const MAX_LISTED: usize = 20;
    let mut names: Vec<String> = names.into_iter().take(MAX_LISTED + 1).map(|name| quoted(name.as_ref())).collect();
    if names.len() > MAX_LISTED {
        names[MAX_LISTED] = "…".to_owned();
    }
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// Advice about a name that does not exist: the one that was probably meant, else all.
pub(crate) fn did_you_mean<'n>(meant: &str, names: impl IntoIterator<Item = &'n str>) -> String {
    let names: Vec<&str> = names.into_iter().collect();
    let likeness = |name: &&str| strsim::jaro_winkler(meant, name);
    let near = match meant.len() <= MAX_COMPARED {
        true => names.iter().take(1_000).filter(|name| name.len() <= MAX_COMPARED).copied(),
        false => return format!("there are {}", listed(names)),
    };
    match near.max_by(|one, other| likeness(one).total_cmp(&likeness(other))).filter(|name| likeness(name) > 0.8) {
        Some(name) => format!("did you mean {}?", quoted(name)),
        None => format!("there are {}", listed(names)),
    }
}
