//! Typed access to the values of a TOML table, with errors that point at them.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeInteger, DeTable, DeValue};

use crate::diagnostics::{Diagnostics, did_you_mean, quoted};

/// A value with its place.
pub(crate) type TableNode<'t> = Spanned<DeValue<'t>>;

/// A table whose keys are taken one by one. Those that are left are unknown.
pub(crate) struct KeyTable<'n, 't> {
    /// What it describes, for messages.
    what: String,
    pub(crate) span: Range<usize>,
    entries: Vec<(&'n str, Range<usize>, &'n TableNode<'t>)>,
    known: Vec<&'static str>,
}

impl<'n, 't> KeyTable<'n, 't> {
    pub(crate) fn new(what: impl Into<String>, table: &'n DeTable<'t>, span: Range<usize>) -> KeyTable<'n, 't> {
        let mut entries: Vec<_> =
            table.iter().map(|(key, value)| (key.get_ref().as_ref(), key.span(), value)).collect();
        // In the order of the file.
        entries.sort_by_key(|(_, span, _)| span.start);
        KeyTable { what: what.into(), span, entries, known: Vec::new() }
    }

    /// The table of a value, or an error.
    pub(crate) fn of(what: &str, node: &'n TableNode<'t>, diagnostics: &mut Diagnostics) -> Option<KeyTable<'n, 't>> {
        match node.get_ref() {
            DeValue::Table(table) => Some(KeyTable::new(what, table, node.span())),
            other => {
                let message = format!("{what} is a table, not {}", called(other));
                diagnostics.at(node.span(), message, "write { key = value, … }");
                None
            }
        }
    }

    pub(crate) fn take(&mut self, key: &'static str) -> Option<&'n TableNode<'t>> {
        self.known.push(key);
        let at = self.entries.iter().position(|(name, ..)| *name == key)?;
        Some(self.entries.remove(at).2)
    }

    /// All keys that have not been taken.
    pub(crate) fn rest(&mut self) -> Vec<(&'n str, Range<usize>, &'n TableNode<'t>)> {
        std::mem::take(&mut self.entries)
    }

    /// Reports the keys that have not been taken.
    pub(crate) fn finish(self, diagnostics: &mut Diagnostics) {
        for (name, span, _) in &self.entries {
            let message = format!("{} has no key {}", self.what, quoted(name));
            diagnostics.at(span.clone(), message, did_you_mean(name, self.known.iter().copied()));
        }
    }

    pub(crate) fn text(&mut self, key: &'static str, diagnostics: &mut Diagnostics) -> Option<String> {
        let node = self.take(key)?;
        text(key, node, diagnostics)
    }

    /// A whole number within a range.
    pub(crate) fn number(
        &mut self,
        key: &'static str,
        range: std::ops::RangeInclusive<u64>,
        diagnostics: &mut Diagnostics,
    ) -> Option<u64> {
        let node = self.take(key)?;
        let number = match node.get_ref() {
            DeValue::Integer(integer) => u64::from_str_radix(integer.as_str(), integer.radix()).ok(),
            _ => None,
        };
        if let Some(number) = number.filter(|number| range.contains(number)) {
            return Some(number);
        }
        let help = match *range.end() {
            u64::MAX => "write a whole number, 0 or more, without quotes".to_owned(),
            end => format!("write a whole number from {} to {end}, without quotes", range.start()),
        };
        diagnostics.at(node.span(), format!("`{key}` is not a valid number"), help);
        None
    }

    /// A number within a range.
    pub(crate) fn float(
        &mut self,
        key: &'static str,
        range: std::ops::RangeInclusive<f64>,
        diagnostics: &mut Diagnostics,
    ) -> Option<f64> {
        let node = self.take(key)?;
        let number = match node.get_ref() {
            DeValue::Integer(integer) => whole(integer).map(|number| number as f64),
            DeValue::Float(float) => float.as_str().parse().ok(),
            _ => None,
        };
        if let Some(number) = number.filter(|number: &f64| number.is_finite() && range.contains(number)) {
            return Some(number);
        }
        let help = match *range.end() {
            f64::MAX => format!("write a number of at least {}, without quotes", range.start()),
            end => format!("write a number from {} to {end}, without quotes", range.start()),
        };
        diagnostics.at(node.span(), format!("`{key}` is not a valid number"), help);
        None
    }

    /// One of several words.
    pub(crate) fn choice<T: Copy>(
        &mut self,
        key: &'static str,
        choices: &[(&str, T)],
        diagnostics: &mut Diagnostics,
    ) -> Option<T> {
        let node = self.take(key)?;
        let written = text(key, node, diagnostics)?;
        let chosen = choices.iter().find(|(name, _)| *name == written).map(|(_, chosen)| *chosen);
        if chosen.is_none() {
            let message = format!("{} is no value of `{key}`", quoted(&written));
            diagnostics.at(node.span(), message, did_you_mean(&written, choices.iter().map(|(name, _)| *name)));
        }
        chosen
    }
}

/// A text.
pub(crate) fn text(key: &str, node: &TableNode<'_>, diagnostics: &mut Diagnostics) -> Option<String> {
    match node.get_ref() {
        DeValue::String(text) => Some(text.clone().into_owned()),
        other => {
            diagnostics.at(node.span(), format!("`{key}` is a text, not {}", called(other)), "write it in quotes");
            None
        }
    }
}

/// The elements of a list.
pub(crate) fn items<'n, 't>(
    key: &str,
    node: &'n TableNode<'t>,
    diagnostics: &mut Diagnostics,
) -> Option<Vec<&'n TableNode<'t>>> {
    match node.get_ref() {
        DeValue::Array(array) => Some(array.iter().collect()),
        other => {
            diagnostics.at(node.span(), format!("`{key}` is a list, not {}", called(other)), "write [ …, … ]");
            None
        }
    }
}

/// A word: a text, or a number or boolean as text. Nothing for other values.
pub(crate) fn word(node: &TableNode<'_>) -> Option<String> {
    match node.get_ref() {
        DeValue::String(text) => Some(text.clone().into_owned()),
        DeValue::Integer(integer) => Some(whole(integer)?.to_string()),
        DeValue::Float(float) => Some(float.as_str().to_owned()),
        DeValue::Boolean(boolean) => Some(boolean.to_string()),
        _ => None,
    }
}

fn whole(integer: &DeInteger<'_>) -> Option<i64> {
    i64::from_str_radix(integer.as_str(), integer.radix()).ok()
}

/// A value's type in words.
pub(crate) fn called(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) | DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}
