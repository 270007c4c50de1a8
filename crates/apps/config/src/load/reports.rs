//! Errors and warnings of apps and objects, at their places in the text.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;

use bellows_sys::private_file;

use super::Builder;
use crate::configure::{Context, Part, SettingError};
use crate::diagnostics::{Diagnostic, quoted};
use crate::spanned::{Key, Place, Table, Value};
use crate::text_span;
use crate::wrong_file::{TextMistake, WrongFile};

/// The maximum number of warnings about one app or object.
const MAX_WARNINGS: usize = 10;

impl Builder<'_> {
    /// Warns of secrets in a table that others than the owner of its file can read. A table can have values from several
    /// files, and from settings, which every user sees in the list of processes.
    pub(super) fn warn_of_open_secrets(&mut self, secrets: BTreeSet<(&str, Vec<String>)>, app: &str, table: &Table) {
        let mut places: BTreeMap<usize, Vec<Place>> = BTreeMap::new();
        for (key, steps) in secrets {
            let Some(place) = self.part(table, key, &Part { steps, range: None }) else { continue };
            // A variable's value is not in the text.
            if !self.diagnostics.text(place).contains("${") {
                places.entry(place.source).or_default().push(place);
            }
        }
        for (source, places) in places {
            let keys = match &places[..] {
                [_] => "a key is".to_owned(),
                several => format!("{} keys are", several.len()),
            };
            let own_file = "put it into a file of its own, and name that as `key_file`";
            let (where_it_is, help) = if self.diagnostics.is_setting(source) {
                ("on the command line, which every user can read".to_owned(), own_file.to_owned())
            } else {
                let Some(file) = self.diagnostics.file_of(source) else { continue };
                let Some(metadata) = fs::metadata(file).ok().filter(private_file::is_open) else { continue };
                let mode = metadata.mode() & 0o777;
                let help = format!("close it with `chmod 600 {}`, or {own_file}", file.display());
                (format!("in a file that is open to others than its owner (mode {mode:04o})"), help)
            };
            let open = Diagnostic::warning(format!("{}: {keys} {where_it_is}", quoted(app)));
            self.diagnostics.push(open.at(places[0], "the key").help(help));
        }
    }

    /// Reports what an app or object has warned of while it was made.
    pub(super) fn warnings(&mut self, context: &Context, key: &Key, table: &Table) {
        let mut warnings = context.warnings();
        let more = warnings.len().saturating_sub(MAX_WARNINGS);
        warnings.truncate(MAX_WARNINGS);
        for warning in warnings {
            self.reported(Diagnostic::warning, warning, &key.name, table, key.place);
        }
        if more > 0 {
            let message = format!("{}: {more} more warnings", quoted(&key.name));
            self.diagnostics.push(Diagnostic::warning(message).at(key.place, ""));
        }
    }

    /// Reports an error that the app's own check found.
    pub(super) fn refused(&mut self, mistake: SettingError, app: &str, table: &Table, header: Place) {
        self.reported(Diagnostic::error, mistake, app, table, header);
    }

    fn reported(
        &mut self,
        severity: fn(String) -> Diagnostic,
        mistake: SettingError,
        app: &str,
        table: &Table,
        header: Place,
    ) {
        let place = mistake.key.and_then(|key| self.part(table, key, &mistake.part).or_else(|| self.place(table, key)));
        let wrong = severity(format!("{}: {}", quoted(app), mistake.message));
        let label = match (place, mistake.key) {
            (None, Some(key)) => format!("`{key}` is not given here"),
            _ => String::new(),
        };
        // Parts of a compound app may read the same value.
        if !self.reported.insert((place.unwrap_or(header), mistake.message.clone())) {
            return;
        }
        if let Some(file) = mistake.file {
            return self.reported_file(severity, *file, app, place.unwrap_or(header));
        }
        self.diagnostics.push(wrong.at(place.unwrap_or(header), label).help(mistake.help));
    }

    /// Reports mistakes in a text file that a key names.
    fn reported_file(&mut self, severity: fn(String) -> Diagnostic, file: WrongFile, app: &str, named_at: Place) {
        let WrongFile { name, text, mistakes, more } = file;
        let source = self.diagnostics.add_source(name.clone(), text);
        let used = format!("{} reads it", quoted(app));
        for TextMistake { range, message, help } in mistakes {
            let place = Place { source, start: range.start, end: range.end };
            self.diagnostics.push(severity(message).at(place, "").at(named_at, &used).help(help));
        }
        if more > 0 {
            let message = format!("{} has {more} more", quoted(&name));
            self.diagnostics.push(severity(message).at(named_at, used));
        }
    }

    /// The place of a key's value, or of the innermost existing table on its path.
    pub(super) fn place(&self, table: &Table, key: &str) -> Option<Place> {
        let mut place = None;
        let mut level = Some(table);
        for name in key.split('.') {
            let Some(node) = level.and_then(|level| level.get(name)) else { break };
            place = Some(node.place);
            level = if let Value::Table(inner) = &node.value { Some(inner) } else { None };
        }
        place
    }

    /// The place of a part of a key's value, as closely as the text tells it.
    fn part(&self, table: &Table, key: &str, part: &Part) -> Option<Place> {
        let value = table.get(key)?;
        let mut node = value;
        for step in &part.steps {
            let inner = match &node.value {
                Value::Table(entries) => entries.get(step),
                Value::List(items) => step.parse().ok().and_then(|index: usize| items.get(index)),
                _ => None,
            };
            let Some(inner) = inner else { return Some(node.place) };
            node = inner;
        }
        let place = node.place;
        let (Some(range), Value::Text(text)) = (&part.range, &node.value) else { return Some(place) };
        let range = range.start as usize..range.end as usize;
        let within = text_span::place_within(self.diagnostics.text(place), text, &range);
        Some(within.map_or(place, |range| Place {
            start: place.start + range.start,
            end: place.start + range.end,
            ..place
        }))
    }
}
