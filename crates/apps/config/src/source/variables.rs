//! Variables and parameters, which expand to texts and values.

use std::env::VarError;

use super::{FileReader, MAX_EXPANDED};
use crate::diagnostics::{Diagnostic, listed, quoted};
use crate::spanned::{Key, Node, Place, Table, Value};
use crate::suggest::nearest;

impl FileReader<'_> {
    /// Expands the variables and parameters in all texts of a value. Returns whether it has a value: a parameter may have
    /// none.
    pub(crate) fn expand(&mut self, node: &mut Node) -> bool {
        match &mut node.value {
            Value::Text(text) if text.contains('$') => {
                if let Some(name) = self.parameter_name(text) {
                    let name = name.to_owned();
                    return self.parameter(&name, node);
                }
                match self.expanded(text, node.place) {
                    Some(expanded) => {
                        let is_whole = text.starts_with("${") && text.find('}') == Some(text.len() - 1);
                        node.untyped = is_whole.then(|| expanded.clone());
                        *text = expanded;
                    }
                    None => node.value = Value::Broken,
                }
            }
            Value::List(items) => items.retain_mut(|item| self.expand(item)),
            Value::Table(table) => self.expand_table(table),
            _ => {}
        }
        true
    }

    /// Expands the values of a table, and removes those that have none.
    pub(crate) fn expand_table(&mut self, table: &mut Table) {
        table.0.retain_mut(|(_, node)| self.expand(node));
    }

    /// The parameter that a whole text names: `$NAME`, in the file of a part.
    fn parameter_name<'t>(&self, text: &'t str) -> Option<&'t str> {
        let name = text.strip_prefix('$').filter(|_| self.parameters.is_some())?;
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        (name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') && name.chars().all(is_plain)).then_some(name)
    }

    /// Replaces a text by the value of the parameter that it names.
    fn parameter(&mut self, name: &str, node: &mut Node) -> bool {
        let place = node.place;
        let value = match self.parameters.as_ref().and_then(|parameters| parameters.get(name)) {
            Some(Some(value)) => value.clone(),
            Some(None) => return false,
            None => {
                let known = || self.parameters.iter().flat_map(|parameters| parameters.keys().map(String::as_str));
                let label = match nearest(name, known()) {
                    Some(near) => format!("did you mean `${near}`?"),
                    None => "unknown parameter".to_owned(),
                };
                let unknown = Diagnostic::error(format!("there is no parameter {}", quoted(name)));
                let has = match known().next() {
                    Some(_) => format!("the file has {}", listed(known())),
                    None => format!("declare it in a table `[parameters.{name}]`"),
                };
                let help = format!("{has}; for a text that starts with a dollar sign write `$${name}`");
                self.diagnostics.push(unknown.at(place, label).help(help));
                node.value = Value::Broken;
                return true;
            }
        };
        let size = size(&value);
        if size > self.expansion_left {
            self.expansion_left = 0;
            self.fail(too_much(place));
            node.value = Value::Broken;
            return true;
        }
        self.expansion_left -= size;
        *node = value;
        true
    }

    /// A text with its variables expanded, or `None` after an error, which this function reports.
    fn expanded(&mut self, text: &str, place: Place) -> Option<String> {
        let mut out = String::new();
        let mut rest = text;
        let mut is_whole = true;
        // The position in the file from which to search for the next reference.
        let mut written = place.start;
        while let Some(dollar) = rest.find('$') {
            out.push_str(&rest[..dollar]);
            rest = &rest[dollar + 1..];
            if let Some(after) = rest.strip_prefix('$') {
                out.push('$');
                rest = after;
                continue;
            }
            let Some(after) = rest.strip_prefix('{') else {
                out.push('$');
                continue;
            };
            let Some(end) = after.find('}') else {
                let open = Diagnostic::error("`${` is not closed");
                let help = "write `${VARIABLE}`, or `$$` for a dollar sign";
                self.diagnostics.push(open.at(place, "a `}` is missing").help(help));
                return None;
            };
            let reference = &text[text.len() - rest.len() - 1..text.len() - after.len() + end + 1];
            let at = self.written_at(reference, place, &mut written);
            match self.variable(&after[..end], at) {
                Some(value) => out.push_str(&value),
                None => is_whole = false,
            }
            rest = &after[end + 1..];
            if out.len() > self.expansion_left {
                self.expansion_left = 0;
                self.fail(too_much(at));
                return None;
            }
        }
        out.push_str(rest);
        self.expansion_left = self.expansion_left.saturating_sub(out.len());
        is_whole.then_some(out)
    }

    /// The place of a reference, or of the whole value if escapes hide the reference.
    fn written_at(&self, reference: &str, place: Place, from: &mut usize) -> Place {
        let text = &self.diagnostics.sources[place.source].text;
        match text.get(*from..place.end).and_then(|written| written.find(reference)) {
            Some(offset) => {
                let start = *from + offset;
                *from = start + reference.len();
                Place { start, end: *from, ..place }
            }
            None => place,
        }
    }

    /// The value of `NAME` or `NAME:-default`.
    fn variable(&mut self, reference: &str, place: Place) -> Option<String> {
        let (name, default) = match reference.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (reference, None),
        };
        if let Some(value) = self.parameters.as_ref().and_then(|parameters| parameters.get(name)) {
            return self.parameter_as_text(name, value.clone(), place);
        }
        let plain = !name.is_empty()
            && !name.starts_with(|c: char| c.is_ascii_digit())
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        if !plain {
            let wrong = Diagnostic::error(format!("{} is not a valid variable name", quoted(name)));
            let help = "write `${VARIABLE}` or `${VARIABLE:-default}`, or `$$` for a dollar sign";
            self.diagnostics.push(wrong.at(place, "letters, digits and `_` only").help(help));
            return None;
        }
        match (self.overrides.variable(name), default) {
            (Ok(value), Some(default)) if value.is_empty() => Some(default.to_owned()),
            (Ok(value), _) => Some(value),
            (Err(VarError::NotPresent), Some(default)) => Some(default.to_owned()),
            (Err(error), _) => {
                let why = match error {
                    VarError::NotPresent => "is not set",
                    VarError::NotUnicode(_) => "is not UTF-8 text",
                };
                let unset = Diagnostic::error(format!("the variable {} {why}", quoted(name)));
                let help = format!("set it in the environment, or write `${{{name}:-default}}`");
                self.diagnostics.push(unset.at(place, why).help(help));
                None
            }
        }
    }

    /// The value of a parameter within a text. One without a value is an empty text.
    pub(super) fn parameter_as_text(&mut self, name: &str, value: Option<Node>, place: Place) -> Option<String> {
        let Some(node) = value else { return Some(String::new()) };
        match node.value {
            _ if node.untyped.is_some() => node.untyped,
            Value::Text(text) => Some(text),
            Value::Integer(number) => Some(number.to_string()),
            Value::Large(number) => Some(number.to_string()),
            Value::Float(number) => Some(number.to_string()),
            Value::Boolean(boolean) => Some(boolean.to_string()),
            Value::Broken => None,
            Value::Other(..) | Value::List(_) | Value::Table(_) => {
                let wrong = Diagnostic::error(format!("the parameter {} cannot be part of a text", quoted(name)));
                let help = format!("write `\"${name}\"` for the whole value");
                self.diagnostics.push(wrong.at(place, format!("its value is {}", node.value.called())).help(help));
                None
            }
        }
    }
}

fn too_much(place: Place) -> Diagnostic {
    let much = Diagnostic::error("the variables and parameters make the network too large");
    let help = format!("all together may expand to {} MiB", MAX_EXPANDED >> 20);
    much.at(place, "too much").help(help)
}

/// The size of a value in memory, in bytes, roughly.
fn size(node: &Node) -> usize {
    let inner = match &node.value {
        Value::Text(text) | Value::Other(_, text) => text.len(),
        Value::List(items) => items.iter().map(size).sum(),
        Value::Table(table) => table.0.iter().map(|(key, node)| size_of::<Key>() + key.name.len() + size(node)).sum(),
        _ => 0,
    };
    inner + size_of::<Node>() + node.untyped.as_ref().map_or(0, String::len)
}
