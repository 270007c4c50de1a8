//! Files and their includes.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use bellows_sys::FileError;
use toml::de::DeTable;

use super::{FileReader, PART, TOO_LARGE};
use crate::diagnostics::{Diagnostic, quoted};
use crate::spanned::{Node, Place, Table, Value, table};

/// The maximum depth of includes.
const MAX_DEPTH: usize = 16;

/// The maximum number of files in a network.
const MAX_FILES: usize = 256;

/// Files up to this size are searched for all syntax errors, larger ones only for the first.
const MAX_RECOVERED: usize = 64 << 10;

/// The maximum number of syntax errors to report for a file.
const MAX_SYNTAX_ERRORS: usize = 10;

impl FileReader<'_> {
    /// Reads a file and its includes.
    pub(crate) fn file(&mut self, path: &Path, from: Option<Place>) {
        let identity = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let name = path.display().to_string();
        if let Some(first) = self.included.get(&identity) {
            let again = self.included_again(&identity, &name, *first, from);
            return self.fail(again);
        }
        self.diagnostics.files.push(path.to_owned());
        let place = |diagnostic: Diagnostic| match from {
            Some(place) => diagnostic.at(place, "included here"),
            None => diagnostic.in_file(&name),
        };
        if self.stack.len() >= MAX_DEPTH || self.included.len() >= MAX_FILES {
            let much = Diagnostic::error(format!("{} is one file too many", quoted(&name)));
            let help = format!("a network has at most {MAX_FILES} files, included at most {MAX_DEPTH} deep");
            return self.fail(place(much).help(help));
        }
        let Some(bytes) = self.bytes(path, place) else { return };
        self.included.insert(identity.clone(), from);
        self.stack.push(identity);
        let folder = path.parent().unwrap_or(Path::new("")).to_owned();
        if let Some(text) = self.utf8(bytes, &name) {
            self.text(text, &name, &folder);
        }
        self.stack.pop();
    }

    /// Reads the file of a part: its values are not expanded, and it is not merged with others. `from` is where it is
    /// named.
    pub(crate) fn part(&mut self, path: &Path, from: Place) -> Option<Table> {
        let name = path.display().to_string();
        self.diagnostics.add_files(vec![path.to_owned()]);
        let bytes = self.bytes(path, |diagnostic| diagnostic.at(from, "named here"))?;
        let text = self.utf8(bytes, &name)?;
        let table = self.parse(text, &name)?;
        self.description.text.insert_str(0, &format!("\n{PART}{name}\n"));
        Some(table)
    }

    /// The contents of a file. `place` says where it is named.
    pub(super) fn bytes(&mut self, path: &Path, place: impl Fn(Diagnostic) -> Diagnostic) -> Option<Vec<u8>> {
        let texts = self.overrides.texts();
        if let Some(text) = texts.of(path) {
            return Some(text.to_vec());
        }
        match read(path, self.text_left) {
            Ok(bytes) => {
                texts.keep(path, &bytes);
                Some(bytes)
            }
            Err(FileError { message, help }) => {
                self.fail(place(Diagnostic::error(message)).help(help));
                None
            }
        }
    }

    fn utf8(&mut self, bytes: Vec<u8>, name: &str) -> Option<String> {
        match String::from_utf8(bytes) {
            Ok(text) => Some(text),
            Err(error) => {
                let at = error.utf8_error().valid_up_to();
                let text = String::from_utf8_lossy(error.as_bytes()).into_owned();
                let source = self.diagnostics.add_source(name.to_owned(), text);
                let wrong = Diagnostic::error("the file is not UTF-8 text");
                let wrong = wrong.at(Place { source, start: at, end: at + 1 }, "first invalid byte");
                self.fail(wrong.help("a network file is TOML; save it as UTF-8, or name another file"));
                None
            }
        }
    }

    fn included_again(&self, identity: &Path, name: &str, first: Option<Place>, from: Option<Place>) -> Diagnostic {
        let is_cycle = self.stack.iter().any(|open| open == identity);
        let message = if is_cycle { "includes itself" } else { "is included twice" };
        let mut again = Diagnostic::error(format!("{} {message}", quoted(name)));
        if let Some(from) = from {
            again = again.at(from, if is_cycle { "this file is already being read" } else { "included again here" });
        }
        if let Some(first) = first {
            again = again.at(first, "first included here");
        }
        again.help("remove one `include`: each file is part of the network once")
    }

    /// Reads a text and its includes.
    pub(crate) fn text(&mut self, text: String, name: &str, folder: &Path) {
        if let Some(root) = self.parse(text, name) {
            self.root(root, folder);
        }
    }

    /// Parses a text, or reports its syntax errors.
    fn parse(&mut self, text: String, name: &str) -> Option<Table> {
        if text.len() > self.text_left {
            let much = Diagnostic::error(format!("{} is too large", quoted(name))).in_file(name);
            self.fail(much.help(TOO_LARGE));
            return None;
        }
        self.text_left -= text.len();
        if !self.description.text.is_empty() {
            self.description.text.push_str(&format!("\n# {name}\n"));
        }
        self.description.text.push_str(&text);
        let source = self.diagnostics.add_source(name.to_owned(), text);
        let text = std::mem::take(&mut self.diagnostics.sources[source].text);
        // The first pass keeps only one error, so that a large file full of errors does not take much memory.
        let parsed = DeTable::parse(&text).map(|parsed| table(parsed.into_inner(), source));
        let errors = match &parsed {
            Err(_) if text.len() <= MAX_RECOVERED => DeTable::parse_recoverable(&text).1,
            Err(first) => vec![first.clone()],
            Ok(_) => Vec::new(),
        };
        for error in syntax_errors(&text, errors, source, 0) {
            self.fail(error);
        }
        self.diagnostics.sources[source].text = text;
        parsed.ok()
    }

    pub(super) fn include(&mut self, node: Node, folder: &Path) {
        const HELP: &str = "write `include = [\"other.toml\"]`; paths are relative to this file";
        let Value::List(items) = node.value else {
            let wrong = Diagnostic::error("`include` must be a list of files");
            return self.fail(wrong.at(node.place, format!("this is {}", node.value.called())).help(HELP));
        };
        for item in items {
            match item.value {
                Value::Text(path) => self.file(&folder.join(path), Some(item.place)),
                Value::Broken => self.description.is_partial = true,
                other => {
                    let wrong = Diagnostic::error("`include` must be a list of files");
                    self.fail(wrong.at(item.place, format!("this is {}", other.called())).help(HELP));
                }
            }
        }
    }
}

/// The TOML parser's errors, one for each group of adjacent lines, because an error often causes others on the next
/// line.
///
/// The text starts at `offset` of the source.
pub(crate) fn syntax_errors(
    text: &str,
    mut errors: Vec<toml::de::Error>,
    source: usize,
    offset: usize,
) -> Vec<Diagnostic> {
    let start = |error: &toml::de::Error| error.span().map_or(0, |span| span.start.min(text.len()));
    errors.sort_by_key(start);
    let mut shown = Vec::new();
    let (mut line, mut counted, mut last) = (0, 0, None);
    for error in errors {
        let at = start(&error);
        line += text.as_bytes()[counted..at].iter().filter(|&&byte| byte == b'\n').count();
        counted = at;
        let follows = last.is_some_and(|last| line <= last + 1);
        last = Some(line);
        if follows || shown.len() >= MAX_SYNTAX_ERRORS {
            continue;
        }
        let message = error.message();
        let (why, wanted) = message.split_once(", expected ").unwrap_or((message, ""));
        let wanted = if wanted.is_empty() { String::new() } else { format!("expected {wanted}") };
        let line_start = text.as_bytes()[..at].iter().rposition(|&byte| byte == b'\n').map_or(0, |newline| newline + 1);
        let help = match why {
            "duplicate key" => "keep one of them: a key or table is written once in a file",
            _ if why.starts_with("cannot extend value of type inline table") => {
                "a table in braces is whole: write the keys into the braces, or give it a heading `[…]` instead of them"
            }
            _ if why.starts_with("cannot extend value") => {
                "it has a value already, which is no table: keep one of them"
            }
            _ if is_open_heading(&text[line_start..]) => "close the table's name with `]`",
            _ if text.as_bytes()[line_start..].starts_with(b"[") => "is the list before this line closed with `]`?",
            _ => "",
        };
        let span = error.span().unwrap_or(0..0);
        let place = Place { source, start: offset + span.start, end: offset + span.end };
        shown.push(Diagnostic::error(format!("this is not TOML: {why}")).at(place, wanted).help(help));
    }
    shown
}

/// Whether the first line of a text is the heading of a table without its closing bracket.
fn is_open_heading(text: &str) -> bool {
    let line = text.lines().next().unwrap_or("");
    let line = line.split('#').next().unwrap_or("");
    let Some(name) = line.strip_prefix('[') else { return false };
    let is_name = |c: char| c.is_alphanumeric() || matches!(c, '.' | '-' | '_' | '"' | '\'' | '/' | ' ' | '[' | '\t');
    name.starts_with(char::is_alphabetic) && name.chars().all(is_name)
}

/// Reads a file.
fn read(path: &Path, most: usize) -> Result<Vec<u8>, FileError> {
    let system = |error: std::io::Error| FileError::reading(path, &error);
    let refused = |why: &str, help: &str| FileError {
        message: format!("cannot read `{}`: {why}", path.display()),
        help: help.to_owned(),
    };
    let metadata = fs::metadata(path).map_err(system)?;
    if !metadata.is_file() {
        let what = if metadata.is_dir() { "it is a folder" } else { "it is not a regular file" };
        return Err(refused(what, "name a TOML file"));
    }
    let mut bytes = Vec::new();
    File::open(path).and_then(|file| file.take(most as u64 + 1).read_to_end(&mut bytes)).map_err(system)?;
    if bytes.len() > most {
        return Err(refused("it is too large", TOO_LARGE));
    }
    Ok(bytes)
}
