//! Checks a table until nothing is wrong any more, to report all errors in it: each time without what was wrong.

use super::Builder;
use crate::configure::SettingError;
use crate::diagnostics::{Diagnostic, quoted};
use crate::entry::AppTableError;
use crate::schema::{Checker, SchemaShape, with_article};
use crate::spanned::{self, Key, Place, Table};

/// How often a table is read again without the key that was wrong. No app type has more keys than this.
const MAX_ROUNDS: usize = 100;

/// What was wrong in a table and was removed, or is missing.
#[derive(Clone, Default)]
pub(super) struct Wrong {
    /// Keys; an empty name stands for the whole table.
    keys: Vec<String>,
    /// The steps to parts of the values of other keys.
    parts: Vec<Vec<String>>,
}

impl Wrong {
    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.parts.is_empty()
    }

    /// What may be missing in a table that a compound app has made of such a one.
    pub(super) fn whole(&self) -> Wrong {
        let keys = if self.is_empty() { Vec::new() } else { vec![String::new()] };
        Wrong { keys, parts: Vec::new() }
    }

    /// Adds what was removed from the table of which this one was made.
    pub(super) fn add(&mut self, other: Wrong) {
        self.keys.extend(other.keys);
        self.parts.extend(other.parts);
    }

    /// Whether a key is wrong, or a part of its value.
    pub(super) fn concerns(&self, key: &str) -> bool {
        self.keys.iter().any(|wrong| wrong == key) || self.parts.iter().any(|part| part[0] == key)
    }
}

/// The owner of a table.
#[derive(Clone, Copy)]
pub(super) struct Owner<'o> {
    /// In messages: ``app type `sink` ``.
    pub(super) called: &'o str,
    /// Keys of others that a misspelling may mean.
    pub(super) others: &'o [&'o str],
}

impl Builder<'_> {
    /// Reports all errors in a table and removes what is wrong.
    pub(super) fn check(
        &mut self,
        schema: &serde_json::Value,
        table: &mut Table,
        place: Place,
        owner: Owner<'_>,
        read: impl Fn(&Table) -> Result<(), spanned::Error>,
    ) -> Wrong {
        let given: Vec<String> = table.0.iter().map(|(key, _)| key.name.clone()).collect();
        let shape = SchemaShape::new(schema);
        let Owner { called, others } = owner;
        let mut checker = Checker::new(called, others);
        checker.table(shape, table, place, "");
        let Checker { found, removed, .. } = checker;
        let mut keys: Vec<String> = given.into_iter().filter(|name| table.get(name).is_none()).collect();
        keys.extend(shape.required().filter(|name| table.get(name).is_none()).map(str::to_owned));
        let parts: Vec<Vec<String>> = removed.into_iter().filter(|path| path.len() > 1).collect();
        if keys.is_empty() && parts.is_empty() && !found.is_empty() {
            keys.push(String::new());
        }
        let mut wrong = Wrong { keys, parts };
        found.into_iter().for_each(|diagnostic| self.diagnostics.push(diagnostic));
        // serde finds the errors that the schema cannot express, one at a time.
        for _ in 0..MAX_ROUNDS {
            let Err(error) = read(table) else { return wrong };
            let (message, help) = error.message.split_once("; ").unwrap_or((&error.message, ""));
            match error.key.as_ref().and_then(|key| table.remove(key)) {
                // It cannot do without the part that was removed above.
                Some((key, _)) if wrong.concerns(&key.name) => wrong.keys.push(key.name),
                Some((key, node)) => {
                    let words =
                        shape.properties().find(|(name, _)| *name == key.name).map(|(_, shape)| shape.in_words());
                    let words = words.map(|words| with_article(&words));
                    let name = quoted(&key.name);
                    let is_any = message.starts_with("data did not match any variant");
                    let (message, kind) = match words {
                        Some(words) if is_any => (format!("{name} must be {words}"), String::new()),
                        Some(words) => (format!("{name}: {}", reworded(message)), format!("{name} is {words}")),
                        None => (format!("{name}: {}", reworded(message)), String::new()),
                    };
                    let unreadable = Diagnostic::error(message);
                    let help = if help.is_empty() { &kind } else { help };
                    self.diagnostics.push(unreadable.at(error.place.unwrap_or(node.place), "").help(help));
                    wrong.keys.push(key.name);
                }
                // A key that is missing now may have been removed above.
                None => {
                    if wrong.is_empty() {
                        let unreadable = Diagnostic::error(format!("{called}: {message}"));
                        self.diagnostics.push(unreadable.at(place, "").help(help));
                        wrong.keys.push(String::new());
                    }
                    return wrong;
                }
            }
        }
        wrong
    }

    /// Has an app or object check its values, and reports its errors one by one. Each time the wrong part of the value is
    /// removed: a key, an entry or an item. `wrong` has been removed already; errors that follow from what is absent are
    /// not reported.
    pub(super) fn configure<T>(
        &mut self,
        key: &Key,
        table: &mut Table,
        wrong: &mut Wrong,
        make: impl Fn(&Table) -> Result<T, AppTableError>,
    ) -> Option<T> {
        let Wrong { keys: wrong, parts: removed } = wrong;
        for _ in 0..MAX_ROUNDS {
            let mistake = match make(table) {
                Ok(made) => return (wrong.is_empty() && removed.is_empty()).then_some(made),
                Err(AppTableError::Refused(mistake)) => mistake,
                // The object's errors have been reported.
                Err(AppTableError::Follows) => return None,
                Err(AppTableError::Unreadable(error)) => {
                    // The entry cannot do without the key that was removed last.
                    if let Some([path @ .., _]) = removed.last().map(Vec::as_slice).filter(|path| path.len() > 1) {
                        let path = path.to_vec();
                        table.remove_at(&path);
                        removed.push(path);
                        continue;
                    }
                    if wrong.is_empty() {
                        let unreadable = Diagnostic::error(format!("{}: {}", quoted(&key.name), error.message));
                        self.diagnostics.push(unreadable.at(error.place.unwrap_or(key.place), ""));
                    }
                    return None;
                }
            };
            let path = path_of(&mistake);
            let top = path.first().cloned().unwrap_or_default();
            let is_gone = |gone: &String| match gone.as_str() {
                "" => top.is_empty() || mistake.is_absence,
                gone => gone == top || mentions(&mistake, gone),
            };
            if !wrong.iter().any(is_gone) && !removed.iter().any(|gone| follows(&mistake, &path, gone)) {
                self.refused(mistake, &key.name, table, key.place);
            }
            match table.remove_at(&path) {
                0 => return None,
                1 => wrong.push(top),
                length => removed.push(path[..length].to_vec()),
            }
        }
        None
    }
}

/// Whether an error mentions a key.
fn mentions(mistake: &SettingError, key: &str) -> bool {
    let reference = format!("`{key}");
    let speaks = |text: &str| {
        text.match_indices(&reference).any(|(at, found)| {
            let next = text[at + found.len()..].chars().next();
            next.is_none_or(|c| !(c.is_alphanumeric() || c == '_' || c == '-'))
        })
    };
    !key.is_empty() && (speaks(&mistake.message) || speaks(&mistake.help))
}

/// The steps to a wrong value: its key, the entries and items in there.
fn path_of(mistake: &SettingError) -> Vec<String> {
    let key = mistake.key.into_iter().flat_map(|key| key.split('.'));
    key.map(str::to_owned).chain(mistake.part.steps.iter().cloned()).collect()
}

/// Whether a mistake at a path may follow from the absence of what was removed at another one.
fn follows(mistake: &SettingError, path: &[String], removed: &[String]) -> bool {
    let [top, .., last] = removed else { return false };
    let is_item = last.parse::<usize>().is_ok();
    match path {
        // What is absent may be what was removed.
        [other, ..] if other != top && mistake.is_absence => true,
        // Of the table as a whole, or of the whole value that something was removed from.
        [] => true,
        _ if path.len() < removed.len() && removed.starts_with(path) => true,
        // What was removed has a name, which others use, or those beside it.
        _ if !is_item && (removed.len() == 2 || path.starts_with(&removed[..removed.len() - 1])) => {
            mentions(mistake, last) || path[0] != *top && mentions(mistake, top)
        }
        _ => path[0] != *top && mentions(mistake, top),
    }
}

/// Rewords a serde error to match the other messages.
fn reworded(message: &str) -> String {
    let found = ["invalid type: ", "invalid value: "].into_iter().find_map(|prefix| message.strip_prefix(prefix));
    let Some((found, expected)) = found.and_then(|rest| rest.split_once(", expected ")) else {
        return message.to_owned();
    };
    let found = found.strip_prefix("string ").map_or(found.to_owned(), |text| format!("the text {text}"));
    let expected = match expected {
        "u8" => "an integer 0 to 255",
        "u16" => "an integer 0 to 65,535",
        "u32" | "u64" | "usize" => "an integer 0 or more",
        "i8" | "i16" | "i32" | "i64" | "isize" => "an integer",
        "f32" | "f64" => "a number",
        "a string" => "text",
        other => other,
    };
    format!("found {found}, expected {expected}")
}
