//! Compound apps: each is replaced by its parts before any app is created.

use std::path::{Path, PathBuf};

use bellows_engine::LinkEnd;
use serde_json::Value as Json;

use super::links::SIDES;
use super::{Builder, KnownApp, KnownKind, MAX_APPS, MAX_LINKS, Pending, TableKind, Wrong, common_of, has_key};
use crate::compound::{CompoundEntry, PartKind, PartType};
use crate::diagnostics::{Diagnostic, listed, quoted};
use crate::entry::Entry;
use crate::path_bases::{Bases, base_of};
use crate::source::{NamedTable, texts};
use crate::spanned::{Key, Node, Place, Table, Value};
use crate::suggest::nearest;

/// The maximum depth of compound apps within compound apps.
pub(super) const MAX_DEPTH: usize = 16;

/// A compound app: where it is, and the ports that links can name.
pub(super) struct Scope {
    /// Its full name.
    pub(super) name: String,
    /// The compound app that it is a part of.
    pub(super) outer: Option<usize>,
    pub(super) depth: usize,
    /// Its type, or the name of the file that describes it.
    pub(super) kind: String,
    /// The identity of that file, and the place where it is named.
    pub(super) file: Option<(PathBuf, Place)>,
    /// The inputs at [`index`], and the outputs.
    pub(super) ports: [Vec<CompoundPort>; 2],
    /// The minimum number of linked ports on each side, and the help.
    pub(super) at_least: [Option<(usize, &'static str)>; 2],
}

/// A port of a compound app.
pub(super) struct CompoundPort {
    pub(super) name: String,
    pub(super) place: Place,
    /// The port of a part that it stands for, as written.
    pub(super) end: String,
    /// The same, or `None` if that is wrong, which has been reported.
    pub(super) target: Option<LinkEnd>,
    /// Whether it must be linked although the part's port need not be.
    pub(super) is_required: bool,
    pub(super) help: &'static str,
}

/// What a compound app consists of.
#[derive(Default)]
pub(super) struct Contents {
    pub(super) apps: Vec<NewApp>,
    pub(super) objects: Vec<(NamedTable, Option<PartType>, Wrong)>,
    pub(super) links: Vec<Node>,
    pub(super) ports: [Vec<CompoundPort>; 2],
}

/// An app to add to the network.
pub(super) struct NewApp {
    pub(super) named: NamedTable,
    /// Its type, if the table does not name it.
    pub(super) kind: Option<PartKind>,
    /// The place that stands for its values, if a compound app made them.
    pub(super) generated: Option<Place>,
    /// What that compound app's own table lacks.
    pub(super) lacks: Wrong,
}

/// What the table of a compound app says of its parts.
pub(super) struct Inherited {
    /// Keys that all apps have.
    common: Table,
    /// Keys of single parts.
    parts: Vec<(Key, Table)>,
    /// The folder of the table's file, and its texts from elsewhere.
    pub(super) folder: PathBuf,
    pub(super) bases: Bases,
}

impl Inherited {
    /// Whether keys of a part are set.
    pub(super) fn sets(&self, part: &str) -> bool {
        self.parts.iter().any(|(key, _)| key.name == part)
    }

    /// What is said of these parts alone: others may be missing because a table is wrong.
    pub(super) fn of_only(mut self, parts: &[NewApp]) -> Inherited {
        self.parts.retain(|(key, _)| parts.iter().any(|part| part.named.key.name == key.name));
        self
    }
}

/// The type of an app.
enum FoundType<'r> {
    App(&'r Entry, bool),
    Compound(&'r CompoundEntry),
    File(Node),
    Unknown,
}

/// The texts of a value that was written in this folder, as those of a table elsewhere.
pub(super) fn moved(node: &Node, folder: &Path, bases: &Bases) -> Bases {
    let mut found = Bases::new();
    texts(node, folder, &mut found);
    for (text, base) in &mut found {
        if let Some(other) = base_of(bases, text) {
            *base = other.to_owned();
        }
    }
    found
}

impl<'r> Builder<'r> {
    /// Replaces the compound apps of the network by their parts.
    pub(super) fn expand(&mut self, apps: Vec<NamedTable>) {
        for named in apps {
            let app = NewApp { named, kind: None, generated: None, lacks: Wrong::default() };
            self.add_app(app, None, &Table::default());
        }
    }

    /// Reports a network that is too large with its parts.
    pub(super) fn is_too_large(&mut self, links: usize) -> bool {
        let (apps, links) = (self.known.len(), links + self.inner_links.len());
        let is_too_large = apps > MAX_APPS || links > MAX_LINKS;
        if is_too_large {
            let much = Diagnostic::error("the network has too many apps or links with the parts of its compound apps");
            let place = self.known.iter().find(|known| known.scope.is_none() && is_compound(known));
            let much = match place {
                Some(known) => much.at(known.place, "the first compound app"),
                None => much,
            };
            let help = format!("a network has at most {MAX_APPS} apps and {MAX_LINKS} links; does one contain itself?");
            self.diagnostics.push(much.help(help));
        }
        is_too_large
    }

    /// Reports compound apps where only ordinary ones can be.
    pub(super) fn refuse_compounds(&mut self) {
        let compounds = self.known.iter().filter(|known| known.scope.is_none() && is_compound(known));
        for known in compounds {
            let wrong = Diagnostic::error(format!("{} is a compound app", quoted(&known.name)));
            let wrong = wrong.at(known.place, "it has parts");
            self.diagnostics.push(wrong.help("name apps that are not compound, such as its parts"));
        }
    }

    /// The name of an app or object in the whole network.
    pub(super) fn full_name(&self, scope: Option<usize>, name: &str) -> String {
        match scope {
            Some(scope) => format!("{}/{name}", self.scopes[scope].name),
            None => name.to_owned(),
        }
    }

    /// A full name as it is written in this compound app.
    pub(super) fn short_name<'n>(&self, scope: Option<usize>, name: &'n str) -> &'n str {
        let prefix = scope.map(|scope| self.scopes[scope].name.as_str());
        prefix.and_then(|prefix| name.strip_prefix(prefix)?.strip_prefix('/')).unwrap_or(name)
    }

    /// Whether an app or object can have this name: those of parts have no `/`, which separates them from the name of
    /// the compound app. The full name has the length that names have.
    pub(super) fn is_name(&self, name: &str, scope: Option<usize>) -> bool {
        let has_room = || LinkEnd::is_name(&self.full_name(scope, name));
        LinkEnd::is_name(name) && (scope.is_none() || !name.contains('/') && has_room())
    }

    /// Adds to the diagnostics since a mark in which app of the network the part is that they are about.
    pub(super) fn locate(&mut self, mark: usize, scope: Option<usize>) {
        let mut scope = scope;
        while let Some(Scope { name, outer, file, .. }) = scope.map(|scope| &self.scopes[scope]) {
            if let Some((_, place)) = file {
                self.diagnostics.locate(mark, *place, &format!("used by {} here", quoted(name)));
            }
            scope = *outer;
        }
    }

    /// Adds an app, or the parts of a compound app.
    fn add_app(&mut self, app: NewApp, scope: Option<usize>, common: &Table) {
        if self.known.len() > MAX_APPS {
            return;
        }
        let NewApp { mut named, kind, generated, lacks } = app;
        let name = self.full_name(scope, &named.key.name);
        let place = named.key.place;
        if let Some(&first) = self.by_name.get(&name) {
            let twice = Diagnostic::error(format!("there are two apps named {}", quoted(&name)));
            let twice = twice.at(place, "named again here").at(self.known[first].place, "first named here");
            return self.diagnostics.push(twice.help("rename one of them"));
        }
        let found = match kind {
            Some(kind) => self.part_type(kind, &named.key, scope),
            None => self.find_kind(&mut named),
        };
        let kind = match &found {
            FoundType::App(entry, _) => KnownKind::App(entry.name(), *entry.info()),
            _ => KnownKind::Unknown,
        };
        let known = self.known.len();
        self.by_name.insert(name.clone(), known);
        self.known.push(KnownApp { name: name.clone(), place, scope, kind });
        if !self.is_name(&named.key.name, scope) {
            let wrong = Diagnostic::error(format!("{} is not a valid app name", quoted(&named.key.name)));
            let help = match scope {
                _ if name.len() > LinkEnd::MAX_NAME => LinkEnd::NAMES,
                None => "use letters, digits, `-`, `_` and `.`, because links name the app",
                Some(_) => "use letters, digits, `-`, `_` and `.`: a `/` separates parts from compound apps",
            };
            return self.diagnostics.push(wrong.at(place, "invalid name").help(help));
        }
        let own = match &found {
            FoundType::App(entry, _) => Some(entry.schema()),
            FoundType::Compound(entry) => Some(entry.schema()),
            FoundType::File(_) | FoundType::Unknown => None,
        };
        for (key, node) in &common.0 {
            if named.table.get(&key.name).is_none() && !own.is_some_and(|schema| has_key(schema, &key.name)) {
                named.table.0.push((key.clone(), node.clone()));
            }
        }
        match found {
            FoundType::App(entry, is_known) => {
                self.pending.push(Pending { known, entry, is_known, named, generated, lacks });
            }
            FoundType::Compound(entry) => {
                let mark = self.diagnostics.kept();
                self.expand_type(known, entry, named, lacks);
                if let Some(place) = generated {
                    self.diagnostics.explain(mark, place, &format!("in its part {}", quoted(&name)));
                }
            }
            FoundType::File(path) => self.expand_file(known, path, named),
            FoundType::Unknown => {}
        }
    }

    /// The type of a part that a compound app made.
    fn part_type(&mut self, kind: PartKind, key: &Key, scope: Option<usize>) -> FoundType<'r> {
        let registry = self.registry;
        let (found, part) = match kind {
            PartKind::App(part) => (registry.part_app(part).map(|entry| FoundType::App(entry, true)), part),
            PartKind::Compound(part) => (registry.part_compound(part).map(FoundType::Compound), part),
        };
        found.unwrap_or_else(|| {
            self.report_missing_type(part, key, "`Command::part`");
            let compound = scope.and_then(|scope| self.by_name.get(&self.scopes[scope].name));
            self.unreported.extend(compound.into_iter().flat_map(|&app| SIDES.map(|side| (side, app))));
            FoundType::Unknown
        })
    }

    /// Reports a type that a compound app uses and the catalogue lacks, which is a mistake of the program.
    pub(super) fn report_missing_type(&mut self, part: PartType, key: &Key, remedy: &str) {
        let missing =
            format!("{} is of the type `{}`, which the catalogue of this program lacks", quoted(&key.name), part.name);
        let help = format!("the program adds it with {remedy}");
        self.diagnostics.push(Diagnostic::error(missing).at(key.place, "made by a compound app").help(help));
    }

    /// The type that a table names, or the file of its parts.
    fn find_kind(&mut self, named: &mut NamedTable) -> FoundType<'r> {
        let NamedTable { key, table, .. } = named;
        let Some((file, node)) = table.remove("network") else {
            return match self.kind(&key.name, key.place, table) {
                TableKind::Known(entry) => FoundType::App(entry, true),
                TableKind::Misspelled(entry) => FoundType::App(entry, false),
                TableKind::Compound(entry) => FoundType::Compound(entry),
                TableKind::Unknown => FoundType::Unknown,
            };
        };
        if let Some((app, _)) = table.entry("app") {
            let both = Diagnostic::error(format!("{} has both `app` and `network`", quoted(&key.name)));
            let both = both.at(app.place, "the type of an app").at(file.place, "the file of a compound app");
            self.diagnostics.push(both.help("remove one of them"));
            return FoundType::Unknown;
        }
        FoundType::File(node)
    }

    /// Takes what is meant for the parts out of a compound app's table.
    pub(super) fn inherited(&mut self, named: &mut NamedTable, schema: &Json) -> Inherited {
        let mut common = common_of(schema, &mut named.table);
        if self.common(schema, &mut common.clone(), named.key.place).is_none() {
            common = Table::default();
        }
        let mut parts = Vec::new();
        let mut wrong = |place: Place, found: &Value| {
            let wrong = Diagnostic::error("`parts` must be a table of parts, each a table of keys");
            let wrong = wrong.at(place, format!("this is {}", found.called()));
            self.diagnostics
                .push(wrong.help(format!("write `[apps.{}.parts.PART]`, and the part's keys below", named.key.name)));
        };
        match named.table.remove("parts") {
            Some((_, Node { value: Value::Table(tables), .. })) => {
                for (key, node) in tables.0 {
                    match node.value {
                        Value::Table(keys) => parts.push((key, keys)),
                        other => wrong(node.place, &other),
                    }
                }
            }
            Some((_, node)) => wrong(node.place, &node.value),
            None => {}
        }
        Inherited { common, parts, folder: named.folder.clone(), bases: named.bases.clone() }
    }

    /// Adds a compound app, or reports that it is too deep in others.
    pub(super) fn add_scope(&mut self, known: usize, kind: &str, file: Option<(PathBuf, Place)>) -> Option<usize> {
        let KnownApp { name, place, scope: outer, .. } = &self.known[known];
        let depth = outer.map_or(1, |outer| self.scopes[outer].depth + 1);
        if depth > MAX_DEPTH {
            let deep = Diagnostic::error(format!("{} is more than {MAX_DEPTH} compound apps deep", quoted(name)));
            let help = format!("does `{kind}` contain itself without end?");
            self.diagnostics.push(deep.at(*place, "too deep").help(help));
            return None;
        }
        let (name, kind, ports, outer) = (name.clone(), kind.to_owned(), Default::default(), *outer);
        self.scopes.push(Scope { name, outer, depth, kind, file, ports, at_least: [None; 2] });
        Some(self.scopes.len() - 1)
    }

    /// Adds the parts of a compound app, with what its table says of them.
    pub(super) fn populate(&mut self, scope: usize, contents: Contents, inherited: Inherited) {
        let Contents { apps, objects, links, ports } = contents;
        let Inherited { common, parts: mut set, folder, bases } = inherited;
        let is_file = self.scopes[scope].file.is_some();
        for (object, entry, lacks) in objects {
            let mark = self.diagnostics.kept();
            let name = self.full_name(Some(scope), &object.key.name);
            if self.objects.has(&name) {
                let twice = Diagnostic::error(format!("there are two objects named {}", quoted(&name)));
                self.diagnostics.push(twice.at(object.key.place, "named again here").help("rename one of them"));
                continue;
            }
            if is_file {
                self.object_keys.push(Key { name, ..object.key.clone() });
            }
            self.add_object(object, Some(scope), entry, lacks);
            self.locate_here(mark, scope);
        }
        self.inner_links.extend(links.into_iter().map(|link| (link, scope)));
        self.scopes[scope].ports = ports;
        let names: Vec<String> = apps.iter().map(|app| app.named.key.name.clone()).collect();
        for mut app in apps {
            let keys = set.iter().position(|(key, _)| key.name == app.named.key.name);
            if let Some((_, keys)) = keys.map(|index| set.swap_remove(index)) {
                self.set_keys(&mut app.named, keys, &folder, &bases);
            }
            let mark = self.diagnostics.kept();
            self.add_app(app, Some(scope), &common);
            self.locate_here(mark, scope);
        }
        for (key, _) in set {
            let Scope { name, kind, .. } = &self.scopes[scope];
            let unknown = Diagnostic::error(format!("{} ({kind}) has no part {}", quoted(name), quoted(&key.name)));
            let label = match nearest(&key.name, names.iter().map(String::as_str)) {
                Some(near) => format!("did you mean `{near}`?"),
                None => "unknown part".to_owned(),
            };
            self.diagnostics.push(unknown.at(key.place, label).help(format!("its parts: {}", listed(&names))));
        }
    }

    /// Adds to the diagnostics since a mark which app of the network uses a file, as [`Builder::locate`] does; those
    /// around it do so themselves.
    pub(super) fn locate_here(&mut self, mark: usize, scope: usize) {
        let Scope { name, file, .. } = &self.scopes[scope];
        if let Some((_, place)) = file {
            self.diagnostics.locate(mark, *place, &format!("used by {} here", quoted(name)));
        }
    }

    /// Sets keys of a part, as a compound app's table says.
    fn set_keys(&mut self, part: &mut NamedTable, keys: Table, folder: &Path, bases: &Bases) {
        for (key, node) in keys.0 {
            if matches!(key.name.as_str(), "app" | "network") {
                let fixed = Diagnostic::error(format!("the type of the part {} cannot be set", quoted(&part.key.name)));
                let fixed = fixed.at(key.place, "the compound app decides it");
                self.diagnostics.push(fixed.help("set other keys, or write the part's links and apps by hand"));
                continue;
            }
            part.bases.extend(moved(&node, folder, bases));
            merge(&mut part.table, key, node);
        }
    }
}

fn is_compound(known: &KnownApp) -> bool {
    matches!(known.kind, KnownKind::Compound(_))
}

/// Sets a key. Tables of parts and of parameters are merged, because each of their keys is one setting.
fn merge(table: &mut Table, key: Key, node: Node) {
    let Some(index) = table.0.iter().position(|(known, _)| known.name == key.name) else {
        return table.0.push((key, node));
    };
    match (&mut table.0[index].1.value, node.value) {
        (Value::Table(old), Value::Table(new)) if key.name == "parts" => {
            for (part, node) in new.0 {
                let known = old.0.iter().position(|(known, _)| known.name == part.name);
                match (known.map(|index| &mut old.0[index].1.value), node.value) {
                    (Some(Value::Table(old)), Value::Table(new)) => {
                        new.0.into_iter().for_each(|(key, node)| merge(old, key, node));
                    }
                    (_, value) => merge(old, part, Node { value, ..node }),
                }
            }
        }
        (Value::Table(old), Value::Table(new)) if key.name == "with" => {
            new.0.into_iter().for_each(|(key, node)| merge(old, key, node));
        }
        (_, value) => table.0[index] = (key, Node { value, ..node }),
    }
}
