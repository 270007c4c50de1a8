//! Compound apps that a file describes: its ports, its parameters, and the network between them.

use std::collections::BTreeMap;
use std::fs;
use std::mem;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use bellows_engine::{LinkEnd, Side};
use serde::Deserialize;

use super::expand::{CompoundPort, Contents, NewApp, moved};
use super::links::index;
use super::{Builder, KnownKind, Owner, Wrong};
use crate::app_keys::Common;
use crate::diagnostics::{Diagnostic, listed, quoted};
use crate::parameters::{Parameter, ParameterType, network_part_schema, parameter_schema, ports_schema, values_schema};
use crate::path_bases::{Bases, base_of};
use crate::source::{FileReader, NamedTable};
use crate::spanned::{self, Key, Node, Place, Table, Value};
use crate::suggest::nearest;

/// The file of a compound app, before its parameters have values.
pub(super) struct PartFile {
    /// Its path in messages.
    name: String,
    folder: PathBuf,
    parameters: Vec<Declared>,
    root: Table,
}

/// A parameter with the place of its default.
struct Declared {
    name: String,
    kind: ParameterType,
    default: Option<Node>,
    is_optional: bool,
    doc: String,
}

/// The maximum number of files of parts in a network.
const MAX_FILES: usize = 256;

/// The keys at the top level of such a file.
const KEYS: [&str; 5] = ["ports", "parameters", "links", "apps", "objects"];

const HOW_TO_NAME: &str = "write `network = \"part.toml\"`; the path is relative to this file";

impl Builder<'_> {
    /// Reads with the limits and the diagnostics of the whole network.
    fn with_reader<T>(&mut self, read: impl FnOnce(&mut FileReader<'_>) -> T) -> T {
        let mut reader = FileReader::new(self.overrides);
        reader.diagnostics = mem::take(&mut self.diagnostics);
        (reader.text_left, reader.expansion_left) = (self.text_left, self.expansion_left);
        let result = read(&mut reader);
        (self.text_left, self.expansion_left) = (reader.text_left, reader.expansion_left);
        self.diagnostics = reader.diagnostics;
        self.is_partial |= reader.description.is_partial;
        self.part_texts.push_str(&reader.description.text);
        result
    }

    /// Adds the parts of a compound app that a file describes. `named` is its table without `network`.
    pub(super) fn expand_file(&mut self, known: usize, network: Node, mut named: NamedTable) {
        named.key.name.clone_from(&self.known[known].name);
        let place = network.place;
        let inherited = self.inherited(&mut named, &network_part_schema());
        let with = self.with(&mut named);
        let path = match network.value {
            Value::Text(path) if !path.is_empty() => path,
            Value::Broken => return,
            other => {
                let wrong = Diagnostic::error("`network` must be the path of a file");
                return self.diagnostics.push(wrong.at(place, format!("this is {}", other.called())).help(HOW_TO_NAME));
            }
        };
        let path = base_of(&named.bases, &path).unwrap_or(&named.folder).join(&path);
        let identity = fs::canonicalize(&path).unwrap_or_else(|_| path.clone());
        if self.contains_itself(known, &identity, &path, place) {
            return;
        }
        let Some(file) = self.part_file(&path, &identity, place) else { return };
        let Some(scope) = self.add_scope(known, &file.name, Some((identity, place))) else { return };
        let bases = with.as_ref().map(|with| moved(with, &inherited.folder, &inherited.bases)).unwrap_or_default();
        let mark = self.diagnostics.kept();
        let contents = self.contents(&file, with, place, &bases);
        self.locate_here(mark, scope);
        self.known[known].kind = KnownKind::Compound(scope);
        self.populate(scope, contents, inherited);
    }

    /// Takes `with` out of a table, and reports other keys.
    fn with(&mut self, named: &mut NamedTable) -> Option<Node> {
        let with = match named.table.remove("with") {
            Some((_, node)) if matches!(node.value, Value::Table(_) | Value::Broken) => Some(node),
            Some((_, node)) => {
                let wrong = Diagnostic::error("`with` must be a table of parameters");
                let wrong = wrong.at(node.place, format!("this is {}", node.value.called()));
                self.diagnostics.push(wrong.help("write `with = { parameter = value }`"));
                None
            }
            None => None,
        };
        let known = || ["network", "with", "parts"].into_iter().chain(Common::KEYS.iter().copied());
        for (key, _) in &named.table.0 {
            let label = match nearest(&key.name, known()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => "unknown key".to_owned(),
            };
            let unknown = Diagnostic::error(format!("an app with `network` has no key {}", quoted(&key.name)));
            let help = format!("its keys: {}; parameters of the file belong in `with`", listed(known()));
            self.diagnostics.push(unknown.at(key.place, label).help(help));
        }
        with
    }

    /// Reports a file that is part of itself.
    fn contains_itself(&mut self, known: usize, identity: &Path, path: &Path, place: Place) -> bool {
        let mut outer = self.known[known].scope;
        while let Some(scope) = outer.map(|scope| &self.scopes[scope]) {
            if let Some((file, used)) = &scope.file
                && file == identity
            {
                let again = Diagnostic::error(format!("{} contains itself", quoted(&path.display().to_string())));
                let again = again.at(place, "this file is already being read");
                let again = again.at(*used, format!("used by {} here", quoted(&scope.name)));
                self.diagnostics.push(again.help("name another file: parts within themselves have no end"));
                return true;
            }
            outer = scope.outer;
        }
        false
    }

    /// The file at a path. `None` after an error; the first one is reported.
    fn part_file(&mut self, path: &Path, identity: &Path, from: Place) -> Option<Rc<PartFile>> {
        if let Some(known) = self.part_files.get(identity) {
            return known.clone();
        }
        let name = path.display().to_string();
        if self.part_files.len() >= MAX_FILES {
            let much = Diagnostic::error(format!("{} is one file too many", quoted(&name)));
            let help = format!("a network has at most {MAX_FILES} files of parts");
            self.diagnostics.push(much.at(from, "named here").help(help));
            return None;
        }
        let mark = self.diagnostics.kept();
        let root = self.with_reader(|reader| reader.part(path, from));
        let file = root.map(|mut root| {
            let parameters = root.remove("parameters").map(|(_, node)| self.parameters(node)).unwrap_or_default();
            self.refuse_other_keys(&root);
            let folder = path.parent().unwrap_or(Path::new("")).to_owned();
            Rc::new(PartFile { name, folder, parameters, root })
        });
        self.diagnostics.locate(mark, from, "used here");
        self.part_files.insert(identity.to_owned(), file.clone());
        file
    }

    fn refuse_other_keys(&mut self, root: &Table) {
        for (key, _) in root.0.iter().filter(|(key, _)| !KEYS.contains(&key.name.as_str())) {
            let label = match nearest(&key.name, KEYS) {
                Some(near) => format!("did you mean `{near}`?"),
                None => "unknown key".to_owned(),
            };
            let unknown = Diagnostic::error(format!("the file of a part has no key {}", quoted(&key.name)));
            let help = match key.name.as_str() {
                "engine" | "workers" => "the network file has it; `worker` in the table of an app assigns its parts",
                "include" => "a part is one file; it can have other files as parts of its own, with `network`",
                _ => "it has `links`, `[ports]`, `[parameters.NAME]`, `[apps.NAME]` and `[objects.NAME]`",
            };
            self.diagnostics.push(unknown.at(key.place, label).help(help));
        }
    }

    /// The parameters that a file declares.
    fn parameters(&mut self, node: Node) -> Vec<Declared> {
        let Value::Table(tables) = node.value else {
            let wrong = Diagnostic::error("`parameters` must be a table of parameters");
            let help = "write `[parameters.NAME]` on a line of its own, and below it `type = \"TYPE\"`";
            self.diagnostics.push(wrong.at(node.place, format!("this is {}", node.value.called())).help(help));
            return Vec::new();
        };
        let schema = parameter_schema();
        let mut declared = Vec::new();
        for (key, node) in tables.0 {
            let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
            if !key.name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') || !key.name.chars().all(is_plain) {
                let wrong = Diagnostic::error(format!("{} is not a valid name of a parameter", quoted(&key.name)));
                let help = "use a letter, then letters, digits, `-` and `_`";
                self.diagnostics.push(wrong.at(key.place, "invalid name").help(help));
                continue;
            }
            let Value::Table(mut table) = node.value else {
                let wrong = Diagnostic::error(format!("the parameter {} must be a table", quoted(&key.name)));
                let help = format!("write `{} = {{ type = \"text\", default = … }}`", key.name);
                self.diagnostics.push(wrong.at(node.place, format!("this is {}", node.value.called())).help(help));
                continue;
            };
            let default = table.remove("default").map(|(_, mut node)| {
                self.with_reader(|reader| reader.expand(&mut node));
                node
            });
            let called = format!("the parameter {}", quoted(&key.name));
            let owner = Owner { called: &called, others: &["default"] };
            let read = |table: &Table| Parameter::deserialize(table).map(drop);
            let is_clean = self.check(&schema, &mut table, key.place, owner, read).is_empty();
            let parameter = is_clean.then(|| Parameter::deserialize(&table).ok()).flatten();
            let (kind, is_optional, doc) = match parameter {
                Some(Parameter { kind, optional, doc, .. }) => (kind, optional, doc),
                // Uses of it are no further errors.
                None => (ParameterType::Any, true, String::new()),
            };
            let mut declaration = Declared { name: key.name.clone(), kind, default, is_optional, doc };
            self.check_default(&mut declaration, &key);
            declared.push(declaration);
        }
        declared
    }

    fn check_default(&mut self, declared: &mut Declared, key: &Key) {
        let Some(node) = declared.default.take() else { return };
        let (place, kind) = (node.place, declared.kind);
        let schema = values_schema([("default", kind, "", false)].into_iter());
        let mut table = Table(vec![(Key { name: "default".to_owned(), place: key.place }, node)]);
        let owner = Owner { called: "a parameter", others: &[] };
        let wrong = self.check(&schema, &mut table, key.place, owner, |table| read_all(table, |_| kind));
        let broken = Node { place, value: Value::Broken, untyped: None };
        let node = table.remove("default").map(|(_, node)| node).filter(|_| wrong.is_empty());
        declared.default = Some(node.unwrap_or(broken));
    }

    /// The values of a file's parameters: those that `with` gives, or the defaults. Nothing for those that have none.
    fn values(&mut self, file: &PartFile, with: Option<Node>, from: Place) -> BTreeMap<String, Option<Node>> {
        let (place, mut given) = match with {
            Some(Node { place, value: Value::Table(table), .. }) => (place, table),
            // All of them are unknown.
            Some(node) => {
                let broken = |declared: &Declared| (declared.name.clone(), Some(node.clone()));
                return file.parameters.iter().map(broken).collect();
            }
            None => (from, Table::default()),
        };
        let parameters = file.parameters.iter().map(|declared| {
            let is_required = declared.default.is_none() && !declared.is_optional;
            (declared.name.as_str(), declared.kind, declared.doc.as_str(), is_required)
        });
        let schema = values_schema(parameters);
        let kind = |name: &str| {
            let declared = file.parameters.iter().find(|declared| declared.name == name);
            declared.map_or(ParameterType::Any, |declared| declared.kind)
        };
        let called = format!("`with` for {}", quoted(&file.name));
        let owner = Owner { called: &called, others: &[] };
        let wrong = self.check(&schema, &mut given, place, owner, |table| read_all(table, kind));
        let value = |declared: &Declared| {
            let value = match given.remove(&declared.name) {
                _ if wrong.concerns(&declared.name) => Some(Node { place, value: Value::Broken, untyped: None }),
                Some((_, node)) => Some(node),
                None => declared.default.clone(),
            };
            (declared.name.clone(), value)
        };
        file.parameters.iter().map(value).collect()
    }

    /// What a file describes with these values of its parameters.
    fn contents(&mut self, file: &PartFile, with: Option<Node>, from: Place, bases: &Bases) -> Contents {
        let mut contents = Contents::default();
        let values = self.values(file, with, from);
        let mut root = file.root.clone();
        self.with_reader(|reader| {
            reader.parameters = Some(values);
            reader.expand_table(&mut root);
        });
        for (key, node) in root.0 {
            match (key.name.as_str(), node.value) {
                (_, Value::Broken) => self.is_partial = true,
                ("links", Value::List(links)) => contents.links = links,
                ("links", _) => {
                    let wrong = Diagnostic::error("`links` must be a list of links").at(node.place, "not a list");
                    self.diagnostics.push(wrong.help("write `links = [\"app.output -> other.input\"]`"));
                }
                ("ports", Value::Table(mut ports)) => contents.ports = self.ports(&mut ports, key.place),
                (name @ ("apps" | "objects"), Value::Table(tables)) => {
                    for (key, node) in tables.0 {
                        let Value::Table(table) = node.value else {
                            let wrong = Diagnostic::error(format!("`{name}.{}` must be a table", key.name));
                            let help = format!("write `[{name}.NAME]` on a line of its own, and its keys below");
                            let wrong = wrong.at(node.place, format!("this is {}", node.value.called()));
                            self.diagnostics.push(wrong.help(help));
                            continue;
                        };
                        let (folder, bases) = (file.folder.clone(), bases.clone());
                        let named = NamedTable { key, table, folder, bases };
                        match name {
                            "apps" => {
                                contents.apps.push(NewApp {
                                    named,
                                    kind: None,
                                    generated: None,
                                    lacks: Wrong::default(),
                                });
                            }
                            _ => contents.objects.push((named, None, Wrong::default())),
                        }
                    }
                }
                (name @ ("ports" | "apps" | "objects"), _) => {
                    let wrong = Diagnostic::error(format!("`{name}` must be a table")).at(node.place, "not a table");
                    self.diagnostics.push(wrong);
                }
                // Reported when the file was read.
                _ => {}
            }
        }
        contents
    }

    /// The ports that a file gives.
    fn ports(&mut self, table: &mut Table, place: Place) -> [Vec<CompoundPort>; 2] {
        let owner = Owner { called: "`[ports]`", others: &[] };
        self.check(&ports_schema(), table, place, owner, |_| Ok(()));
        let mut ports: [Vec<CompoundPort>; 2] = Default::default();
        for (side, name) in [(Side::Input, "inputs"), (Side::Output, "outputs")] {
            let Some((_, Node { value: Value::Table(given), .. })) = table.remove(name) else { continue };
            for (key, node) in given.0 {
                let Value::Text(end) = node.value else { continue };
                if !LinkEnd::is_name(&key.name) || key.name.contains('.') {
                    let wrong = Diagnostic::error(format!("{} is not a valid name of a port", quoted(&key.name)));
                    self.diagnostics.push(wrong.at(key.place, "invalid name").help("use letters, digits, `-` and `_`"));
                    continue;
                }
                ports[index(side)].push(CompoundPort {
                    name: key.name,
                    place: node.place,
                    end,
                    target: None,
                    is_required: false,
                    help: "",
                });
            }
        }
        ports
    }
}

/// Reads each value of a table as its type.
fn read_all(table: &Table, kind: impl Fn(&str) -> ParameterType) -> Result<(), spanned::Error> {
    table.0.iter().try_for_each(|(key, node)| {
        kind(&key.name).read(node).map_err(|error| spanned::Error { key: Some(key.name.clone()), ..error })
    })
}
