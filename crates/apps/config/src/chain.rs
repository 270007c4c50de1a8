//! Parses a row of apps from a command line: `tee | truncate(length = 64) | counter`.
//!
//! An app's keys follow its type in parentheses, written as in a TOML inline table.

use std::collections::HashMap;
use std::path::Path;

use toml::de::DeValue;

use crate::diagnostics::Diagnostic;
use crate::source::{FileReader, NamedTable, syntax_errors};
use crate::spanned::{Key, Node, Place, Table, Value, table};

const HOW_TO_WRITE: &str = "write apps as `TYPE(key = value, …) | TYPE`";

/// The bytes `start..end` of a text.
#[derive(Clone, Copy)]
struct ChainPart {
    start: usize,
    end: usize,
}

impl ChainPart {
    /// The part without surrounding white space.
    fn trimmed(self, text: &str) -> ChainPart {
        let inner = &text[self.start..self.end];
        let start = self.end - inner.trim_start().len();
        ChainPart { start, end: (self.start + inner.trim_end().len()).max(start) }
    }
}

/// Splits a text at the separators outside brackets and quotes.
fn split(text: &str, separator: char) -> Vec<ChainPart> {
    let (mut parts, mut start) = (Vec::new(), 0);
    scan(text, |index, c, depth| {
        if c == separator && depth == 0 {
            parts.push(ChainPart { start, end: index });
            start = index + c.len_utf8();
        }
        true
    });
    parts.push(ChainPart { start, end: text.len() });
    parts
}

/// Calls `visit` with each unquoted character, its position and the number of open brackets, until `visit` returns
/// `false`.
fn scan(text: &str, mut visit: impl FnMut(usize, char, usize) -> bool) {
    let (mut quote, mut depth, mut escaped) = (None, 0usize, false);
    for (index, c) in text.char_indices() {
        match (quote, c) {
            _ if escaped => escaped = false,
            (Some('"'), '\\') => escaped = true,
            (Some(open), c) if open == c => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(c),
            (None, c) => {
                let closes = matches!(c, ')' | ']' | '}');
                depth = depth.saturating_sub(usize::from(closes));
                if !visit(index, c, depth) {
                    return;
                }
                depth += usize::from(matches!(c, '(' | '[' | '{'));
            }
        }
    }
}

impl FileReader<'_> {
    /// Reads a row of apps. An app is named after its type; the second app of a type is `TYPE-2`.
    pub(crate) fn chain(&mut self, text: &str, name: &str, folder: &Path) {
        let source = self.diagnostics.add_source(name.to_owned(), text.to_owned());
        let mut named: HashMap<String, usize> = HashMap::new();
        for part in split(text, '|') {
            let part = part.trimmed(text);
            let Some((kind, mut keys)) = self.stage(text, part, source) else { continue };
            let place = Place { source, start: kind.start, end: kind.end };
            let kind = &text[kind.start..kind.end];
            let count = named.entry(kind.to_owned()).or_default();
            *count += 1;
            let name = if *count == 1 { kind.to_owned() } else { format!("{kind}-{count}") };
            self.expand_table(&mut keys);
            let app = Node { place, value: Value::Text(kind.to_owned()), untyped: None };
            keys.0.push((Key { name: "app".to_owned(), place }, app));
            let (key, folder) = (Key { name, place }, folder.to_owned());
            self.description.apps.push(NamedTable { key, table: keys, folder, bases: Vec::new() });
        }
    }

    /// The type and the keys of one app, or `None` after an error, which this function reports.
    fn stage(&mut self, text: &str, part: ChainPart, source: usize) -> Option<(ChainPart, Table)> {
        let ChainPart { start, end } = part;
        let mut wrong = |message: &str, start: usize, end: usize, label: &str| {
            let place = Place { source, start, end };
            self.diagnostics.push(Diagnostic::error(message).at(place, label).help(HOW_TO_WRITE));
        };
        let stage = &text[start..end];
        let kind = ChainPart { start, end: start + stage.find('(').unwrap_or(stage.len()) }.trimmed(text);
        if kind.start == kind.end {
            let at = start.min(text.len().saturating_sub(1));
            wrong("an app is missing here", at, end.max(start + 1), "name its type");
            return None;
        }
        if kind.end == end {
            return Some((kind, Table::default()));
        }
        let open = start + stage.find('(')?;
        let mut close = None;
        scan(&text[open..end], |index, c, depth| {
            close = (c == ')' && depth == 0).then_some(open + index);
            close.is_none()
        });
        let Some(close) = close else {
            wrong("`(` is not closed", open, open + 1, "a `)` is missing");
            return None;
        };
        if close + 1 != end {
            wrong("unexpected text after the keys", close + 1, end, "only ` | ` and another app can follow");
            return None;
        }
        let inline = format!("{{{}}}", &text[open + 1..close]);
        match DeValue::parse(&inline) {
            Ok(parsed) => match parsed.into_inner() {
                DeValue::Table(keys) => Some((kind, table(keys, source).shifted(open))),
                _ => None,
            },
            Err(error) => {
                for diagnostic in syntax_errors(&inline, vec![error], source, open) {
                    self.diagnostics.push(diagnostic.help(HOW_TO_WRITE));
                }
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parts(text: &str) -> Vec<&str> {
        split(text, '|')
            .into_iter()
            .map(|part| part.trimmed(text))
            .map(|ChainPart { start, end }| &text[start..end])
            .collect()
    }

    #[test]
    fn apps_are_split_outside_brackets_and_quotes() {
        assert_eq!(parts("tee | counter"), ["tee", "counter"]);
        assert_eq!(parts(r#"a(x = "|", y = ['|', { z = ")|" }]) |b"#), [r#"a(x = "|", y = ['|', { z = ")|" }])"#, "b"]);
        assert_eq!(parts(r#"a(x = "\"|")|b"#), [r#"a(x = "\"|")"#, "b"]);
        assert_eq!(parts(" "), [""]);
        assert_eq!(parts("a||"), ["a", "", ""]);
    }

    proptest! {
        /// No input makes the parser panic.
        #[test]
        fn any_text_is_read_or_refused(text in "[a-z |(){}\\[\\]\"'=\\\\é,]{0,40}") {
            let overrides = crate::Overrides::default();
            let mut reader = FileReader::new(&overrides);
            reader.chain(&text, "APP", Path::new(""));
            prop_assert_eq!(
                reader.description.apps.len() + reader.diagnostics.errors() >= parts(&text).len(), true,
                "each part is an app or a mistake"
            );
            let _ = reader.diagnostics.render(false);
        }
    }
}
