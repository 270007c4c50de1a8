//! Settings from the command line: `--set key=value`.

use std::path::Path;

use toml::de::DeTable;

use super::{FileReader, TOO_LARGE, texts, unknown_worker};
use crate::diagnostics::{Diagnostic, SET, listed, quoted};
use crate::spanned::{Key, Node, Place, Table, Value, table};
use crate::suggest::nearest;

const HOW_TO_SET: &str = "write `apps.NAME.key=value`, `objects.NAME.key=value`, `workers.NAME.key=value` or `engine.key=value`; without a \
     value the key is removed";

impl FileReader<'_> {
    /// Applies a setting from the command line.
    pub(crate) fn set(&mut self, text: &str) {
        if text.len() > self.text_left {
            return self.diagnostics.push(Diagnostic::error("the setting is too large").in_file(SET).help(TOO_LARGE));
        }
        self.text_left -= text.len();
        self.description.text.push_str(&format!("\n# {SET} {}\n", text.replace('\n', "\n# ")));
        let source = self.diagnostics.add_source(SET.to_owned(), text.to_owned());
        let whole = Place { source, start: 0, end: text.len() };
        let Some((path, node)) = setting(text, source) else {
            let wrong = Diagnostic::error("this sets nothing").at(whole, "no `key=value`");
            return self.diagnostics.push(wrong.help(HOW_TO_SET));
        };
        let names: Vec<&str> = path.iter().map(|key| key.name.as_str()).collect();
        match names.as_slice() {
            ["apps", app, _, ..] => match self.apps.get(*app) {
                Some(&index) => {
                    let app = &mut self.description.apps[index];
                    node.iter().for_each(|node| texts(node, Path::new(""), &mut app.bases));
                    let missing = change(&mut app.table, &path[2..], node);
                    missing.into_iter().for_each(|missing| self.diagnostics.push(missing));
                }
                None if self.description.is_partial => {}
                None => {
                    let known = self.description.apps.iter().map(|app| app.key.name.as_str());
                    let label = match nearest(app, known.clone()) {
                        Some(near) => format!("did you mean `{near}`?"),
                        None => "unknown app".to_owned(),
                    };
                    let unknown = Diagnostic::error(format!("there is no app {}", quoted(app)));
                    let help = format!("the network has {}", listed(known));
                    self.diagnostics.push(unknown.at(path[1].place, label).help(help));
                }
            },
            ["engine", _, ..] => {
                let missing = change(&mut self.description.engine, &path[1..], node);
                missing.into_iter().for_each(|missing| self.diagnostics.push(missing));
            }
            ["objects", object, _, ..] => {
                match self.description.objects.iter_mut().find(|known| known.key.name == *object) {
                    Some(object) => {
                        node.iter().for_each(|node| texts(node, Path::new(""), &mut object.bases));
                        let missing = change(&mut object.table, &path[2..], node);
                        missing.into_iter().for_each(|missing| self.diagnostics.push(missing));
                    }
                    None if self.description.is_partial => {}
                    None => {
                        let unknown = Diagnostic::error(format!("there is no object {}", quoted(object)));
                        let known = self.description.objects.iter().map(|object| object.key.name.as_str());
                        let help = match known.len() {
                            0 => "the network has none".to_owned(),
                            _ => format!("the network has {}", listed(known)),
                        };
                        self.diagnostics.push(unknown.at(path[1].place, "unknown object").help(help));
                    }
                }
            }
            ["workers", worker, _, ..] => {
                let workers = &mut self.description.workers;
                match workers.iter_mut().find(|(known, _)| known.name == *worker) {
                    Some((_, table)) => {
                        let missing = change(table, &path[2..], node);
                        missing.into_iter().for_each(|missing| self.diagnostics.push(missing));
                    }
                    None if self.description.is_partial => {}
                    None => {
                        let known = workers.iter().map(|(key, _)| key.name.as_str());
                        let unknown = unknown_worker(worker, path[1].place, known);
                        self.diagnostics.push(unknown);
                    }
                }
            }
            _ => {
                let (Some(first), Some(last)) = (path.first(), path.last()) else { return };
                let place = Place { end: last.place.end, ..first.place };
                let wrong = Diagnostic::error("only keys of apps, of objects, of workers and of the engine can be set");
                self.diagnostics.push(wrong.at(place, "no such key").help(HOW_TO_SET));
            }
        }
    }
}

/// The parts of the key of `key=value`.
pub(crate) fn setting_keys(text: &str) -> Option<Vec<String>> {
    Some(setting(text, 0)?.0.into_iter().map(|key| key.name).collect())
}

/// The key and value of `key=value`. No value if nothing follows the `=`, which removes the key.
fn setting(text: &str, source: usize) -> Option<(Vec<Key>, Option<Node>)> {
    let equals = first_unquoted_equals(text)?;
    let key = &text[..equals];
    if key.contains(['\n', '\r', '[', ']', '#']) {
        return None;
    }
    let only_key = format!("{key}=0");
    let mut level = table(DeTable::parse(&only_key).ok()?.into_inner(), source);
    let mut path = Vec::new();
    while let Some((key, node)) = level.0.pop() {
        path.push(key);
        match node.value {
            Value::Table(inner) => level = inner,
            _ => break,
        }
    }
    let written = text[equals + 1..].trim();
    if written.is_empty() {
        return Some((path, None));
    }
    let start = equals + 1 + text[equals + 1..].find(written).unwrap_or(0);
    let place = Place { source, start, end: start + written.len() };
    let as_text = Node { place, value: Value::Text(written.to_owned()), untyped: Some(written.to_owned()) };
    if written.contains(['\n', '\r', '#']) {
        return Some((path, Some(as_text)));
    }
    let parsed = DeTable::parse(text).ok().map(|parsed| table(parsed.into_inner(), source));
    let leaf = parsed.and_then(|parsed| {
        let (last, tables) = path.split_last()?;
        let mut level = parsed;
        for key in tables {
            match level.remove(&key.name)?.1.value {
                Value::Table(inner) => level = inner,
                _ => return None,
            }
        }
        Some(level.remove(&last.name)?.1)
    });
    let node = match leaf {
        Some(node) if matches!(node.value, Value::Text(_) | Value::List(_) | Value::Table(_)) => node,
        Some(node) => Node { untyped: Some(written.to_owned()), ..node },
        None => as_text,
    };
    Some((path, Some(node)))
}

fn first_unquoted_equals(text: &str) -> Option<usize> {
    let mut quote = None;
    for (index, c) in text.char_indices() {
        match (quote, c) {
            (None, '=') => return Some(index),
            (None, '"' | '\'') => quote = Some(c),
            (Some(open), c) if open == c => quote = None,
            _ => {}
        }
    }
    None
}

/// Sets the value at a path below a table, or removes it. Returns a warning if there is nothing to remove.
fn change(table: &mut Table, path: &[Key], node: Option<Node>) -> Option<Diagnostic> {
    match node {
        Some(node) => {
            insert(table, path, node);
            None
        }
        None => remove(table, path),
    }
}

/// Removes the key at a path below a table. Returns a warning if it does not exist.
pub(super) fn remove(table: &mut Table, path: &[Key]) -> Option<Diagnostic> {
    let (key, rest) = path.split_first()?;
    if rest.is_empty() && table.remove(&key.name).is_some() {
        return None;
    }
    let inner = table.0.iter_mut().find(|(other, _)| !rest.is_empty() && other.name == key.name);
    if let Some((_, Node { value: Value::Table(inner), .. })) = inner {
        return remove(inner, rest);
    }
    let known = || table.0.iter().map(|(key, _)| key.name.as_str());
    let label = match nearest(&key.name, known()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => "no such key".to_owned(),
    };
    let missing = Diagnostic::warning(format!("{} is not set, so there is nothing to remove", quoted(&key.name)));
    let help = if table.0.is_empty() { String::new() } else { format!("the keys that are set: {}", listed(known())) };
    Some(missing.at(key.place, label).help(help))
}

/// Sets the value at a path below a table.
pub(super) fn insert(table: &mut Table, path: &[Key], node: Node) {
    let Some((key, rest)) = path.split_first() else { return };
    let index = match table.0.iter().position(|(other, _)| other.name == key.name) {
        Some(index) => index,
        None => {
            table
                .0
                .push((key.clone(), Node { place: key.place, value: Value::Table(Table::default()), untyped: None }));
            table.0.len() - 1
        }
    };
    let slot = &mut table.0[index];
    if rest.is_empty() {
        *slot = (key.clone(), node);
        return;
    }
    if !matches!(slot.1.value, Value::Table(_)) {
        *slot = (key.clone(), Node { place: key.place, value: Value::Table(Table::default()), untyped: None });
    }
    if let Value::Table(inner) = &mut slot.1.value {
        insert(inner, rest, node);
    }
}
