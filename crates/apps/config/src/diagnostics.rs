//! Errors and warnings about a network file, with their places and how to fix them.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use annotate_snippets::{AnnotationKind, Element, Group, Level, Origin, Renderer, Snippet};
use bellows_sys::text::is_hidden;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use crate::secrets::hidden;
use crate::spanned::Place;

/// The name of the source of settings.
pub(crate) const SET: &str = "--set";

/// The maximum number of diagnostics to keep. Later ones are only counted.
pub(crate) const MAX_KEPT: usize = 100;

/// Lines longer than this are not shown, because laying them out takes too long.
const MAX_LINE: usize = 10_000;

/// Places of one file that are farther apart than this get separate excerpts.
const MAX_GAP: usize = 16_384;

/// How serious a diagnostic is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The network cannot run.
    Error,
    /// The network can run, but probably not as intended.
    Warning,
    /// Worth knowing.
    Note,
}

/// A place and a note about it.
#[derive(Clone, Debug)]
pub(crate) struct Label {
    pub(crate) place: Place,
    pub(crate) text: String,
    /// Whether the text says what of the place is meant.
    is_explained: bool,
}

/// One error or warning.
#[derive(Clone, Debug)]
pub(crate) struct Diagnostic {
    severity: Severity,
    message: String,
    /// The first label marks the error; the others explain it.
    labels: Vec<Label>,
    /// The file, if there is no text to point at.
    file: Option<String>,
    help: Vec<String>,
}

impl Diagnostic {
    pub(crate) fn error(message: impl Into<String>) -> Diagnostic {
        let message = visible(&message.into());
        Diagnostic { severity: Severity::Error, message, labels: Vec::new(), file: None, help: Vec::new() }
    }

    pub(crate) fn warning(message: impl Into<String>) -> Diagnostic {
        Diagnostic { severity: Severity::Warning, ..Diagnostic::error(message) }
    }

    /// Adds a label. The first marks the error; later ones explain it.
    pub(crate) fn at(mut self, place: Place, text: impl Into<String>) -> Diagnostic {
        self.labels.push(Label { place, text: visible(&text.into()), is_explained: false });
        self
    }

    /// Names the file as a whole, if there is no text to point at.
    pub(crate) fn in_file(mut self, file: impl Into<String>) -> Diagnostic {
        self.file = Some(visible(&file.into()));
        self
    }

    /// Adds advice on how to fix it.
    pub(crate) fn help(mut self, help: impl Into<String>) -> Diagnostic {
        let help = visible(&help.into());
        if !help.is_empty() {
            self.help.push(help);
        }
        self
    }
}

/// Line and column of a byte of a text, both counted from 1, the column in characters.
pub(crate) fn position(text: &str, at: usize) -> (usize, usize) {
    let before = &text[..at];
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    (1 + before.bytes().filter(|&byte| byte == b'\n').count(), 1 + before[line_start..].chars().count())
}

/// The text with its control characters escaped, so that they do not reach a terminal.
fn visible(text: &str) -> String {
    if !text.contains(is_hidden) {
        return text.to_owned();
    }
    text.chars().map(|c| if is_hidden(c) { c.escape_default().to_string() } else { c.to_string() }).collect()
}

/// Replaces the control characters U+0080 to U+009F, which the renderer would pass to the terminal, by a character with
/// as many UTF-8 bytes.
fn without_c1(lines: &str) -> Cow<'_, str> {
    const C1: std::ops::RangeInclusive<char> = '\u{80}'..='\u{9f}';
    if lines.contains(|c| C1.contains(&c)) { lines.replace(|c| C1.contains(&c), "\u{bf}").into() } else { lines.into() }
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
    const MAX_QUOTED: usize = 20;
    let names: Vec<String> = names.into_iter().take(MAX_QUOTED + 1).map(|name| quoted(name.as_ref())).collect();
    match names.len() {
        0 => "none".to_owned(),
        length if length > MAX_QUOTED => format!("{}, …", names[..MAX_QUOTED].join(", ")),
        _ => names.join(", "),
    }
}

/// A text that places point into.
#[derive(Clone, Debug)]
pub(crate) struct SourceText {
    pub(crate) name: String,
    pub(crate) text: String,
}

impl SourceText {
    /// A range whose ends lie on characters of the text.
    fn range(&self, place: Place) -> Range<usize> {
        let start = self.text.floor_char_boundary(place.start.min(self.text.len()));
        start..self.text.ceil_char_boundary(place.end.clamp(start, self.text.len()))
    }

    /// A range as it is underlined: no further than its first line.
    fn underlined(&self, place: Place) -> Range<usize> {
        let range = self.range(place);
        let first = self.text[range.clone()].split(['\n', '\r']).next().unwrap_or("");
        range.start..range.start + first.len()
    }

    fn position(&self, at: usize) -> (usize, usize) {
        position(&self.text, at)
    }

    /// The whole lines that a range lies in.
    fn lines(&self, range: &Range<usize>) -> Range<usize> {
        let start = self.text[..range.start].rfind('\n').map_or(0, |newline| newline + 1);
        let end = self.text[range.end..].find('\n').map_or(self.text.len(), |newline| range.end + newline);
        start..end
    }
}

/// All that is wrong with a network file, in the order in which it was found.
///
/// Also what is only odd about one that works: [`Loaded::warnings`](crate::Loaded::warnings).
#[derive(Clone, Debug, Default)]
pub struct Diagnostics {
    pub(crate) sources: Vec<SourceText>,
    pub(crate) files: Vec<PathBuf>,
    list: Vec<Diagnostic>,
    errors: usize,
    warnings: usize,
}

impl Diagnostics {
    /// No diagnostics yet, about a text other than a network file, such as an expression. `name` stands for it in the
    /// diagnostics.
    pub fn of_text(name: impl Into<String>, text: impl Into<String>) -> Diagnostics {
        let mut diagnostics = Diagnostics::default();
        diagnostics.add_source(name.into(), text.into());
        diagnostics
    }

    /// Adds a diagnostic about these bytes of the text, with advice if `help` is not empty.
    pub fn add(
        &mut self,
        severity: Severity,
        range: Range<usize>,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        let place = Place { source: 0, start: range.start, end: range.end };
        let diagnostic = Diagnostic { severity, ..Diagnostic::error(message) };
        self.push(diagnostic.at(place, "").help(help));
    }

    pub(crate) fn push(&mut self, diagnostic: Diagnostic) {
        match diagnostic.severity {
            Severity::Error => self.errors += 1,
            Severity::Warning | Severity::Note => self.warnings += 1,
        }
        if self.list.len() < MAX_KEPT {
            self.list.push(diagnostic);
        }
    }

    /// The number of diagnostics that are kept: a mark for [`Diagnostics::explain`] and [`Diagnostics::locate`].
    pub(crate) fn kept(&self) -> usize {
        self.list.len()
    }

    /// Adds to the diagnostics since a mark that point at `place` what of it they mean. The first explanation stays.
    pub(crate) fn explain(&mut self, mark: usize, place: Place, meaning: &str) {
        let labels = self.list[mark..].iter_mut().flat_map(|diagnostic| diagnostic.labels.first_mut());
        for label in labels.filter(|label| label.place == place && !label.is_explained) {
            label.is_explained = true;
            let text = if label.text.is_empty() { meaning.to_owned() } else { format!("{}, {meaning}", label.text) };
            label.text = visible(&text);
        }
    }

    /// Adds to the diagnostics since a mark that point into other files where the network uses these. Drops those that
    /// an earlier use has caused already.
    pub(crate) fn locate(&mut self, mark: usize, place: Place, label: &str) {
        let located = self.list.split_off(mark.min(self.list.len()));
        for mut diagnostic in located {
            let first = diagnostic.labels.first().map(|label| label.place);
            let is_same = |known: &Diagnostic| {
                known.message == diagnostic.message && known.labels.first().map(|label| label.place) == first
            };
            if first.is_some() && self.list[..mark].iter().any(is_same) {
                match diagnostic.severity {
                    Severity::Error => self.errors -= 1,
                    Severity::Warning | Severity::Note => self.warnings -= 1,
                }
                continue;
            }
            let is_known = diagnostic.labels.iter().any(|label| label.place == place);
            if first.is_none_or(|first| first.source != place.source) && !is_known {
                diagnostic.labels.push(Label { place, text: visible(label), is_explained: false });
            }
            self.list.push(diagnostic);
        }
    }

    pub(crate) fn add_source(&mut self, name: String, text: String) -> usize {
        self.sources.push(SourceText { name: visible(&name), text });
        self.sources.len() - 1
    }

    /// The file of a text; `None` if it is not one of a file that was read here.
    pub(crate) fn file_of(&self, source: usize) -> Option<&Path> {
        let name = &self.sources.get(source)?.name;
        self.files.iter().find(|file| visible(&file.display().to_string()) == *name).map(PathBuf::as_path)
    }

    /// Whether a text is a setting of the command line.
    pub(crate) fn is_setting(&self, source: usize) -> bool {
        self.sources.get(source).is_some_and(|source| source.name == SET)
    }

    /// Whether no more diagnostics are kept, so that working out advice would be wasted.
    pub(crate) fn is_full(&self) -> bool {
        self.list.len() >= MAX_KEPT
    }

    /// The text at a place.
    pub(crate) fn text(&self, place: Place) -> &str {
        self.sources.get(place.source).map_or("", |source| &source.text[source.range(place)])
    }

    /// Adds files that apps have read, or could not read.
    pub(crate) fn add_files(&mut self, files: Vec<PathBuf>) {
        for file in files {
            if !self.files.contains(&file) {
                self.files.push(file);
            }
        }
    }

    /// Sorts the diagnostics by place: files in reading order, then settings.
    pub(crate) fn sort(&mut self) {
        self.list.sort_by_key(|diagnostic| diagnostic.labels.first().map(|label| label.place));
    }

    /// The number of errors.
    pub fn errors(&self) -> usize {
        self.errors
    }

    /// The number of warnings and notes.
    pub fn warnings(&self) -> usize {
        self.warnings
    }

    /// Whether there are no errors and no warnings.
    pub fn is_empty(&self) -> bool {
        self.errors + self.warnings == 0
    }

    /// The files that were read, and those that could not be read: a change to any of them may fix an error.
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// All diagnostics as text for a terminal, each with its file, line and the underlined text. Ends with a line break
    /// unless it is empty. Shows at most 100 diagnostics.
    pub fn render(&self, color: bool) -> String {
        let renderer = if color { Renderer::styled() } else { Renderer::plain() }.term_width(120);
        let mut text = String::new();
        for diagnostic in &self.list {
            if !text.is_empty() {
                text.push('\n');
            }
            text.push_str(&renderer.render(&[self.group(diagnostic)]));
            text.push('\n');
        }
        let more = self.errors + self.warnings - self.list.len();
        if more > 0 {
            text.push_str(&format!("\nand {more} more\n"));
        }
        text
    }

    fn group<'a>(&'a self, diagnostic: &'a Diagnostic) -> Group<'a> {
        let level = match diagnostic.severity {
            Severity::Error => Level::ERROR,
            Severity::Warning => Level::WARNING,
            Severity::Note => Level::NOTE,
        };
        let mut elements: Vec<Element<'a>> = Vec::new();
        if let Some(file) = &diagnostic.file {
            elements.push(Origin::path(file.as_str()).into());
        }
        let mut rest: Vec<(usize, &Label)> = diagnostic.labels.iter().enumerate().collect();
        while let Some((_, first)) = rest.first() {
            let place = first.place;
            let near =
                |other: &Label| other.place.source == place.source && other.place.start.abs_diff(place.start) < MAX_GAP;
            let (together, others) = rest.into_iter().partition(|(_, label)| near(label));
            rest = others;
            elements.extend(self.excerpt(together));
        }
        elements.extend(diagnostic.help.iter().map(|help| Level::HELP.message(help.as_str()).into()));
        level.primary_title(diagnostic.message.as_str()).elements(elements)
    }

    /// The lines of one source that contain these labels.
    fn excerpt<'a>(&'a self, labels: Vec<(usize, &'a Label)>) -> Vec<Element<'a>> {
        let Some(source) = labels.first().and_then(|(_, label)| self.sources.get(label.place.source)) else {
            return Vec::new();
        };
        let clipped: Vec<Range<usize>> = labels.iter().map(|(_, label)| source.underlined(label.place)).collect();
        let whole = clipped.iter().fold(clipped[0].clone(), |all, one| all.start.min(one.start)..all.end.max(one.end));
        let lines = source.lines(&whole);
        let is_long = source.text[lines.clone()].split('\n').any(|line| line.len() > MAX_LINE);
        if is_long {
            return labels.iter().zip(&clipped).flat_map(|((_, label), range)| part(source, label, range)).collect();
        }
        let first = lines.start;
        let annotations = labels.iter().zip(&clipped).map(|((index, label), range)| {
            let kind = if *index == 0 { AnnotationKind::Primary } else { AnnotationKind::Context };
            let text = (!label.text.is_empty()).then_some(label.text.as_str());
            kind.span(range.start - first..range.end - first).label(text)
        });
        let (line, _) = source.position(first);
        let snippet = Snippet::source(without_c1(&hidden(&source.text[lines])).into_owned())
            .line_start(line)
            .path(source.name.as_str());
        vec![snippet.annotations(annotations).into()]
    }

    /// For programs, in the order of the files.
    pub fn entries(&self) -> Vec<DiagnosticEntry> {
        self.list.iter().map(|diagnostic| self.entry(diagnostic)).collect()
    }

    /// The entries as JSON.
    pub fn to_json(&self) -> Value {
        json!(self.entries())
    }

    fn entry(&self, diagnostic: &Diagnostic) -> DiagnosticEntry {
        let mut positions = diagnostic.labels.iter().filter_map(|label| self.position(label));
        let nowhere = || Position { file: diagnostic.file.clone(), ..Position::default() };
        DiagnosticEntry {
            position: positions.next().unwrap_or_else(nowhere),
            severity: diagnostic.severity,
            message: diagnostic.message.clone(),
            help: diagnostic.help.clone(),
            related: positions.collect(),
        }
    }

    fn position(&self, label: &Label) -> Option<Position> {
        let source = self.sources.get(label.place.source)?;
        let range = source.range(label.place);
        let (line, column) = source.position(range.start);
        let (end_line, end_column) = source.position(range.end);
        Some(Position {
            file: Some(source.name.clone()),
            line: Some(line),
            column: Some(column),
            end_line: Some(end_line),
            end_column: Some(end_column),
            label: label.text.clone(),
        })
    }
}

/// A diagnostic for programs.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize)]
#[schemars(title = "Diagnostic", extend("includes" = ["Position"]))]
pub struct DiagnosticEntry {
    /// Where it is.
    #[serde(flatten)]
    pub position: Position,
    /// How bad it is.
    pub severity: Severity,
    /// The error.
    pub message: String,
    /// Possible fixes, in sentences.
    pub help: Vec<String>,
    /// Other positions.
    pub related: Vec<Position>,
}

/// A position in a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema, Serialize)]
#[schemars(title = "Position")]
pub struct Position {
    /// The file; null if the message has none.
    pub file: Option<String>,
    /// The line, from 1; null if the message has no position.
    pub line: Option<usize>,
    /// The column, in characters from 1; null without a position.
    pub column: Option<usize>,
    /// The line of the end; null without a position.
    pub end_line: Option<usize>,
    /// The column of the end, exclusive; null without a position.
    pub end_column: Option<usize>,
    /// The text below the underlined text.
    pub label: String,
}

/// A label of a line that is too long to show: its position, and the text there.
fn part<'a>(source: &'a SourceText, label: &'a Label, range: &Range<usize>) -> Vec<Element<'a>> {
    let (line, column) = source.position(range.start);
    let text = if label.text.is_empty() { "here" } else { &label.text };
    let note = format!("{}: {text}", quoted(&visible(&hidden(&source.text[range.clone()]))));
    vec![Origin::path(source.name.as_str()).line(line).char_column(column).into(), Level::NOTE.message(note).into()]
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.render(false).trim_end())
    }
}

impl std::error::Error for Diagnostics {}
