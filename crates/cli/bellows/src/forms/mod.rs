//! The forms of the JSON that commands print: each key with its type and its meaning.
//!
//! Tests compare the tables with what the program prints: a key without a row, a row whose key is never printed, a value of
//! another type and a word that the row does not explain are errors. Whether a value may really be null, or a key absent,
//! is not checked.

#[cfg(feature = "measure")]
mod campaigns;
#[cfg(feature = "measure")]
mod cases;
mod control;
mod described;
mod inspected;
#[cfg(feature = "measure")]
mod measured;
mod networks;
mod routed;
mod states;
#[cfg(all(test, feature = "measure"))]
mod tests;
#[cfg(feature = "http")]
mod web;

use std::collections::BTreeSet;
use std::fmt::Write;
use std::ptr;
use std::sync::LazyLock;

use serde_json::Value;

#[cfg(feature = "measure")]
pub use cases::{FoundCases, case_differences, unmet_cases};
use described::{Described, printed, request_of, schema_of};

/// The chapters of the reference, in its order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chapter {
    /// What networks are and do, and are told.
    Networks,
    /// What an engine does from moment to moment; single packets; filters and manuals.
    Inspected,
    /// The states of apps and shared objects.
    States,
    /// Routes, neighbours, associations and addresses.
    Routed,
    /// The control socket: requests, replies and streams.
    Control,
    /// What the servers of the live page and of metrics answer.
    #[cfg(feature = "http")]
    Web,
    /// Reports of benchmarks, and their cases.
    #[cfg(feature = "measure")]
    Measured,
    /// Reports of campaigns.
    #[cfg(feature = "measure")]
    Campaigns,
}

impl Chapter {
    /// All of them.
    pub const ALL: &[Chapter] = &[
        Chapter::Networks,
        Chapter::Inspected,
        Chapter::States,
        Chapter::Routed,
        Chapter::Control,
        #[cfg(feature = "http")]
        Chapter::Web,
        #[cfg(feature = "measure")]
        Chapter::Measured,
        #[cfg(feature = "measure")]
        Chapter::Campaigns,
    ];

    /// What it is about.
    fn title(self) -> &'static str {
        match self {
            Chapter::Networks => "Networks",
            Chapter::Inspected => "Timelines, packets, filters and manuals",
            Chapter::States => "The states of apps and shared objects",
            Chapter::Routed => "Routes, neighbours, ESP and MAC addresses",
            Chapter::Control => "Requests to a running network",
            #[cfg(feature = "http")]
            Chapter::Web => "The live page",
            #[cfg(feature = "measure")]
            Chapter::Measured => "Benchmarks",
            #[cfg(feature = "measure")]
            Chapter::Campaigns => "Campaigns",
        }
    }

    /// Its sections.
    pub fn sections(self) -> &'static [Section] {
        match self {
            Chapter::Networks => networks::SECTIONS,
            Chapter::Inspected => inspected::SECTIONS,
            Chapter::States => states::SECTIONS,
            Chapter::Routed => routed::SECTIONS,
            Chapter::Control => control::SECTIONS,
            #[cfg(feature = "http")]
            Chapter::Web => web::SECTIONS,
            #[cfg(feature = "measure")]
            Chapter::Measured => measured::SECTIONS,
            #[cfg(feature = "measure")]
            Chapter::Campaigns => campaigns::SECTIONS,
        }
    }

    /// Its forms, each once.
    pub fn forms(self) -> Vec<&'static Form> {
        let wholes = self.sections().iter().filter_map(|section| section.whole.and_then(Kind::form));
        wholes.chain(self.sections().iter().flat_map(|section| section.all_parts().iter().copied())).collect()
    }
}

/// The type of a value.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// Any text.
    Text,
    /// One of these words, which the meaning explains.
    Word(&'static [&'static str]),
    /// A whole number.
    Integer,
    /// A number that may have a fraction.
    Decimal,
    /// True or false.
    Flag,
    /// An object with the keys of a form.
    Object(&'static Form),
    /// What the schema of a type describes.
    Described(Described),
    /// An object with the keys of the form that is read from the schema of this path.
    Named(&'static str),
    /// A list of such values.
    List(&'static Kind),
    /// An object whose keys are names, with such values.
    Map(&'static Kind),
    /// A list of as many values, each of its type.
    Tuple(&'static [Kind]),
    /// Such a value, or null.
    OrNull(&'static Kind),
    /// A value of one of these types.
    Either(&'static [Kind]),
    /// Anything: its meaning says what it depends on.
    Any,
    /// The status of an app or shared object, whose form depends on the type that the key `kind` beside it gives. As a
    /// part of a section: all of them.
    Status,
}

/// A key of an object.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// The key.
    pub name: &'static str,
    kind: Kind,
    meaning: &'static str,
    is_nullable: bool,
    is_optional: bool,
}

/// The form of an object.
#[derive(Debug)]
pub struct Form {
    /// Its title, which is its heading if it is not the whole of a section.
    pub title: &'static str,
    /// Forms whose keys it has, too.
    pub includes: &'static [Kind],
    /// Its own keys.
    pub keys: &'static [Key],
}

impl Form {
    /// All keys, each with the form that explains it.
    pub fn all_keys(&'static self) -> Vec<(&'static Form, &'static Key)> {
        let included = self.included().into_iter().flat_map(Form::all_keys);
        included.chain(self.keys.iter().map(|key| (self, key))).collect()
    }

    /// The forms whose keys it has, too.
    fn included(&self) -> Vec<&'static Form> {
        self.includes.iter().filter_map(|kind| kind.form()).collect()
    }

    /// The heading above its table: that of the section whose whole it is, or its title.
    fn heading(&self) -> &'static str {
        let is_whole =
            |section: &&Section| section.whole.and_then(Kind::form).is_some_and(|form| std::ptr::eq(form, self));
        sections().find(is_whole).map_or(self.title, |section| section.heading)
    }

    fn link(&self) -> String {
        format!("[{}](#{})", self.title, anchor(self.heading()))
    }
}

/// What a command prints, or parts of it.
#[derive(Debug)]
pub struct Section {
    /// The commands or requests, or what it is about, as one line of Markdown.
    pub heading: &'static str,
    /// The commands that print it with `--json`: their leading words, and options that they must have. Nothing if no
    /// command prints exactly this.
    pub commands: &'static [&'static str],
    /// Paragraphs before the tables.
    pub text: &'static [&'static str],
    /// The whole output, or one line of it. Nothing if the section only has parts of others, or is about no JSON.
    pub whole: Option<Kind>,
    /// Forms of parts, which have headings of their own.
    pub parts: &'static [Kind],
    /// Paragraphs after the tables.
    pub notes: &'static [&'static str],
}

impl Section {
    /// The forms that have headings of their own: its parts, and the objects that schemas describe and that no section
    /// before it has.
    fn all_parts(&'static self) -> &'static [&'static Form] {
        let place = PLACES.iter().find(|(section, _)| ptr::eq(*section, self));
        place.map_or(&[], |(_, parts)| parts)
    }

    /// The types of which schemas describe its output and its parts.
    fn described(&self) -> impl Iterator<Item = Described> {
        self.whole.into_iter().chain(self.parts.iter().copied()).flat_map(Kind::described)
    }
}

/// All sections, each with the forms that have headings in it.
static PLACES: LazyLock<Vec<(&Section, Vec<&Form>)>> = LazyLock::new(|| {
    let parts = |section: &'static Section| section.parts.iter().flat_map(|kind| kind.forms());
    let wholes = sections().filter_map(|section| section.whole.and_then(Kind::form));
    let mut placed: BTreeSet<&str> = wholes.chain(sections().flat_map(parts)).map(|form| form.title).collect();
    let place = |section: &'static Section| {
        let mut all = Vec::new();
        if let Some(whole) = section.whole.and_then(Kind::form) {
            place_parts(whole, &mut placed, &mut all);
        }
        for part in parts(section) {
            all.push(part);
            place_parts(part, &mut placed, &mut all);
        }
        if section.parts.iter().any(|kind| matches!(kind, Kind::Status)) {
            states::all().into_iter().filter_map(Kind::form).for_each(|form| place_part(form, &mut placed, &mut all));
        }
        (section, all)
    };
    sections().map(place).collect()
});

/// Adds the objects that a form has as values, and those that they have, unless they have a place already.
fn place_parts(form: &Form, placed: &mut BTreeSet<&'static str>, parts: &mut Vec<&'static Form>) {
    let values = form.keys.iter().flat_map(|key| key.kind.forms());
    form.included().into_iter().chain(values).for_each(|part| place_part(part, placed, parts));
}

/// Adds an object, and those that it has, unless it has a place already.
fn place_part(part: &'static Form, placed: &mut BTreeSet<&'static str>, parts: &mut Vec<&'static Form>) {
    if placed.insert(part.title) {
        parts.push(part);
        place_parts(part, placed, parts);
    }
}

/// The keys that were found in output: the titles of their forms, and their names.
pub type Found = BTreeSet<(&'static str, &'static str)>;

/// Compares a value with its type. Notes the keys that it has, and returns the differences.
pub fn differences(kind: Kind, value: &Value, found: &mut Found) -> Vec<String> {
    let mut comparison = Comparison { found, differences: Vec::new() };
    comparison.compare("", kind, value);
    comparison.differences
}

struct Comparison<'a> {
    found: &'a mut Found,
    differences: Vec<String>,
}

impl Comparison<'_> {
    fn compare(&mut self, path: &str, kind: Kind, value: &Value) {
        let fits = match (kind.resolved(), value) {
            (Kind::Any | Kind::Status, _) => true,
            (Kind::Text, value) => value.is_string(),
            (Kind::Word(words), value) => value.as_str().is_some_and(|word| words.contains(&word)),
            (Kind::Integer, value) => value.is_u64() || value.is_i64(),
            (Kind::Decimal, value) => value.is_number(),
            (Kind::Flag, value) => value.is_boolean(),
            (Kind::Object(form), Value::Object(object)) => {
                self.compare_keys(path, form, object);
                true
            }
            (Kind::List(kind), Value::Array(list)) => {
                list.iter().for_each(|value| self.compare(&format!("{path}[]"), *kind, value));
                true
            }
            (Kind::Map(kind), Value::Object(object)) => {
                object.values().for_each(|value| self.compare(&format!("{path}.*"), *kind, value));
                true
            }
            (Kind::Tuple(kinds), Value::Array(list)) => {
                let pairs = kinds.iter().zip(list);
                pairs.for_each(|(kind, value)| self.compare(&format!("{path}[]"), *kind, value));
                kinds.len() == list.len()
            }
            (Kind::OrNull(_), Value::Null) => true,
            (Kind::OrNull(kind), value) => {
                self.compare(path, *kind, value);
                true
            }
            (Kind::Either(kinds), value) => {
                let counted = kinds.iter().map(|kind| (differences(*kind, value, &mut Found::new()).len(), *kind));
                match counted.min_by_key(|(count, _)| *count) {
                    Some((count, kind)) if count == 0 || value.is_object() => {
                        self.compare(path, kind, value);
                        true
                    }
                    _ => false,
                }
            }
            (
                Kind::Object(_) | Kind::List(_) | Kind::Map(_) | Kind::Tuple(_) | Kind::Described(_) | Kind::Named(_),
                _,
            ) => false,
        };
        if !fits {
            self.differences.push(format!("{path}: {value} is not {}", kind.written()));
        }
    }

    fn compare_keys(&mut self, path: &str, form: &'static Form, object: &serde_json::Map<String, Value>) {
        let keys = form.all_keys();
        for (owner, key) in &keys {
            let path = format!("{path}.{}", key.name);
            let Some(value) = object.get(key.name) else {
                if !key.is_optional {
                    self.differences.push(format!("{path} is missing"));
                }
                continue;
            };
            self.found.insert((owner.title, key.name));
            if !(key.is_nullable && value.is_null()) {
                let kind = if let Kind::Status = key.kind { self.kind_of_status(&path, object) } else { key.kind };
                self.compare(&path, kind, value);
            }
        }
        let known = |name: &str| keys.iter().any(|(_, key)| key.name == name);
        let unknown = object.keys().filter(|name| !known(name));
        self.differences.extend(unknown.map(|name| format!("{path}.{name} is not in the form `{}`", form.title)));
    }

    /// The type of a status in this object.
    fn kind_of_status(&mut self, path: &str, object: &serde_json::Map<String, Value>) -> Kind {
        let kind = object.get("kind").and_then(Value::as_str).unwrap_or_default();
        match states::status(kind) {
            Some(Some(status)) => printed(status),
            Some(None) => {
                self.differences.push(format!("{path}: `{kind}` does not say what its status is"));
                Kind::Any
            }
            None => Kind::Any,
        }
    }
}

impl Kind {
    /// The same type, read from its schema if that describes it.
    fn resolved(self) -> Kind {
        match self {
            Kind::Described(described) => described::kind(described).resolved(),
            Kind::Named(name) => Kind::Object(described::form(name)),
            kind => kind,
        }
    }

    /// The type in words, with links to the forms of its parts.
    fn written(self) -> String {
        match self {
            Kind::Described(_) | Kind::Named(_) => self.resolved().written(),
            Kind::Text | Kind::Word(_) => "text".to_owned(),
            Kind::Integer => "integer".to_owned(),
            Kind::Decimal => "decimal".to_owned(),
            Kind::Flag => "true or false".to_owned(),
            Kind::Object(form) => form.link(),
            Kind::List(kind) => format!("list of {}", kind.written()),
            Kind::Map(kind) => format!("{} by name", kind.written()),
            Kind::Tuple(kinds) => {
                let kinds: Vec<String> = kinds.iter().map(|kind| kind.written()).collect();
                format!("[{}]", kinds.join(", "))
            }
            Kind::OrNull(kind) => format!("{} or null", kind.written()),
            Kind::Either(kinds) => {
                let kinds: Vec<String> = kinds.iter().map(|kind| kind.written()).collect();
                kinds.join(" or ")
            }
            Kind::Any => "any".to_owned(),
            Kind::Status => "[status](#bellows-show-status---json) of its type".to_owned(),
        }
    }

    /// The form of the object, or of those in a list or by name.
    fn form(self) -> Option<&'static Form> {
        match self {
            Kind::Object(form) => Some(form),
            Kind::Described(_) | Kind::Named(_) => self.resolved().form(),
            Kind::List(kind) | Kind::Map(kind) | Kind::OrNull(kind) => kind.form(),
            Kind::Either([first, others @ ..]) => {
                first.form().filter(|form| others.iter().all(|kind| kind.form().is_some_and(|it| ptr::eq(it, *form))))
            }
            Kind::Text
            | Kind::Word(_)
            | Kind::Integer
            | Kind::Decimal
            | Kind::Flag
            | Kind::Tuple(_)
            | Kind::Either([])
            | Kind::Any
            | Kind::Status => None,
        }
    }

    /// The forms of all objects in it.
    fn forms(self) -> Vec<&'static Form> {
        match self.resolved() {
            Kind::Object(form) => vec![form],
            kind => kind.inner().into_iter().flat_map(Kind::forms).collect(),
        }
    }

    /// The types that schemas describe in it.
    fn described(self) -> Vec<Described> {
        match self {
            Kind::Described(described) => vec![described],
            kind => kind.inner().into_iter().flat_map(Kind::described).collect(),
        }
    }

    /// The types of the values in it.
    fn inner(self) -> Vec<Kind> {
        match self {
            Kind::List(kind) | Kind::Map(kind) | Kind::OrNull(kind) => vec![*kind],
            Kind::Tuple(kinds) | Kind::Either(kinds) => kinds.to_vec(),
            _ => Vec::new(),
        }
    }
}

/// The part of a link that leads to a heading.
fn anchor(heading: &str) -> String {
    let kept = heading.to_lowercase();
    let kept = kept.chars().filter(|letter| letter.is_alphanumeric() || " -_".contains(*letter));
    kept.collect::<String>().replace(' ', "-")
}

/// The number of columns of a page.
const WIDTH: usize = 100;

/// The reference of all forms, in Markdown.
pub fn markdown() -> String {
    let mut page = "## Contents\n\n".to_owned();
    for chapter in Chapter::ALL {
        let link = |section: &Section| format!("[{}](#{})", section.heading, anchor(section.heading));
        let links = chapter.sections().iter().map(link);
        #[cfg(feature = "measure")]
        let links = links.chain(
            (*chapter == Chapter::Measured).then(|| format!("[{}](#{})", cases::HEADING, anchor(cases::HEADING))),
        );
        let links: Vec<String> = links.collect();
        page += &paragraph(&format!("{}: {}.", chapter.title(), links.join(", ")));
    }
    for chapter in Chapter::ALL {
        let _ = write!(page, "## {}\n\n", chapter.title());
        chapter.sections().iter().for_each(|section| print(&mut page, section));
        #[cfg(feature = "measure")]
        if *chapter == Chapter::Measured {
            page += &cases::markdown();
        }
    }
    page.truncate(page.trim_end().len());
    page.push('\n');
    page
}

fn print(page: &mut String, section: &'static Section) {
    let Section { heading, text, whole, notes, .. } = section;
    let _ = write!(page, "### {heading}\n\n");
    text.iter().for_each(|text| *page += &paragraph(text));
    if let Some(form) = whole.and_then(Kind::form) {
        table(page, form);
    }
    for form in section.all_parts() {
        let _ = write!(page, "#### {}\n\n", form.title);
        table(page, form);
    }
    notes.iter().for_each(|text| *page += &paragraph(text));
}

fn table(page: &mut String, form: &Form) {
    let included: Vec<String> = form.included().into_iter().map(Form::link).collect();
    if !included.is_empty() {
        let and_own = if form.keys.is_empty() { "." } else { ", and:" };
        *page += &paragraph(&format!("The keys of {}{and_own}", included.join(" and ")));
    }
    if form.keys.is_empty() {
        return;
    }
    page.push_str("| key | type | meaning |\n|---|---|---|\n");
    for key in form.keys {
        let mut kind = key.kind.written();
        kind += if key.is_nullable { ", or null" } else { "" };
        kind += if key.is_optional { ", or absent" } else { "" };
        let _ = writeln!(page, "| `{}` | {kind} | {} |", key.name, key.meaning.replace('|', "\\|"));
    }
    page.push('\n');
}

/// A paragraph in lines. Code is not broken.
fn paragraph(text: &str) -> String {
    let mut words: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match words.last_mut().filter(|last| last.matches('`').count() % 2 == 1) {
            Some(code) => *code += &format!(" {word}"),
            None => words.push(word.to_owned()),
        }
    }
    let (mut lines, mut width) = (String::new(), 0);
    for word in words {
        let length = word.chars().count();
        let fits = width + 1 + length <= WIDTH;
        if width > 0 {
            lines.push(if fits { ' ' } else { '\n' });
        }
        width = if width > 0 && fits { width + 1 + length } else { length };
        lines += &word;
    }
    lines + "\n\n"
}

/// All sections, in the order of the reference.
fn sections() -> impl Iterator<Item = &'static Section> {
    Chapter::ALL.iter().flat_map(|chapter| chapter.sections())
}

/// All forms, each once.
pub fn all_forms() -> Vec<&'static Form> {
    Chapter::ALL.iter().flat_map(|chapter| chapter.forms()).collect()
}

/// The section about what a command prints with `--json`: the one that asks for most of its words.
pub fn section(words: &[&str]) -> Option<&'static Section> {
    let matching = |pattern: &str| {
        let (options, leading): (Vec<&str>, Vec<&str>) = pattern.split(' ').partition(|word| word.starts_with('-'));
        let fits = words.starts_with(&leading) && options.iter().all(|option| words.contains(option));
        fits.then_some(leading.len() + options.len())
    };
    let fits = |section: &Section| section.commands.iter().filter_map(|pattern| matching(pattern)).max();
    sections()
        .filter_map(|section| Some((fits(section)?, section)))
        .max_by_key(|(fit, _)| *fit)
        .map(|(_, section)| section)
}

/// The form of this title.
pub fn titled(title: &str) -> Option<&'static Form> {
    all_forms().into_iter().find(|form| form.title == title)
}

/// The differences of a value from the form of this title, and the keys of the form that it does not have.
#[cfg(test)]
pub fn lacking(title: &str, value: &Value) -> Vec<String> {
    let form = titled(title).unwrap_or_else(|| panic!("no form {title}"));
    let mut found = Found::new();
    let mut lacking = differences(Kind::Object(form), value, &mut found);
    let keys = form.all_keys().into_iter().filter(|(owner, key)| !found.contains(&(owner.title, key.name)));
    lacking.extend(keys.map(|(_, key)| format!("it has no `{}`", key.name)));
    lacking
}
