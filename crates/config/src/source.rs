//! Merges files, their includes, variables and `--set` into one description in which each value has its place.

use std::collections::{BTreeMap, HashMap};
use std::env::VarError;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use bellows_engine::MAIN;
use toml::de::DeTable;

use crate::bases::Bases;
use crate::diagnostics::{Diagnostic, Diagnostics, listed, quoted};
use crate::meant::nearest;
use crate::value::{Key, Node, Place, Table, Value, table};

/// The maximum size of all files together, in bytes: enough for 10,000 apps. The parsed values of such a text take a
/// few hundred megabytes.
const MAX_TEXT: usize = 2 << 20;

/// The maximum size of all expanded variables together, in bytes.
const MAX_EXPANDED: usize = 4 << 20;

/// The maximum depth of includes.
const MAX_DEPTH: usize = 16;

/// The maximum number of files in a network.
const MAX_FILES: usize = 256;

/// Files up to this size are searched for all syntax errors, larger ones only for the first.
const MAX_RECOVERED: usize = 64 << 10;

/// The maximum number of syntax errors to report for a file.
const MAX_SYNTAX_ERRORS: usize = 10;

/// Values from outside the files: settings from the command line, and variables.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    set: Vec<String>,
    variables: Option<BTreeMap<String, String>>,
    for_perf: bool,
}

impl Overrides {
    /// Settings such as `apps.capture.path=other.pcap` and `engine.burst=64`. A value is read as TOML if possible, else
    /// as text; a relative path starts at the current directory. Without a value, as in `apps.capture.rate=`, the key
    /// is removed.
    pub fn new(set: impl IntoIterator<Item = impl Into<String>>) -> Overrides {
        Overrides { set: set.into_iter().map(Into::into).collect(), variables: None, for_perf: false }
    }

    /// Has apps put the code that they generate where `perf` looks it up in its map.
    #[must_use]
    pub fn for_perf(self, for_perf: bool) -> Overrides {
        Overrides { for_perf, ..self }
    }

    pub(crate) fn is_for_perf(&self) -> bool {
        self.for_perf
    }

    /// Looks up `${VARIABLE}` here instead of in the process's environment.
    #[must_use]
    pub fn with_variables(mut self, variables: impl IntoIterator<Item = (String, String)>) -> Overrides {
        self.variables = Some(variables.into_iter().collect());
        self
    }

    pub(crate) fn settings(&self) -> &[String] {
        &self.set
    }

    pub(crate) fn variable(&self, name: &str) -> Result<String, VarError> {
        match &self.variables {
            Some(variables) => variables.get(name).cloned().ok_or(VarError::NotPresent),
            None => std::env::var(name),
        }
    }
}

/// The table of one app or shared object.
#[derive(Debug)]
pub(crate) struct NamedTable {
    pub(crate) key: Key,
    pub(crate) table: Table,
    /// The folder for its relative paths.
    pub(crate) folder: PathBuf,
    /// Its texts that come from elsewhere.
    pub(crate) bases: Bases,
}

/// The merged contents of all files.
#[derive(Debug, Default)]
pub(crate) struct Description {
    pub(crate) links: Vec<Node>,
    pub(crate) apps: Vec<NamedTable>,
    /// The tables of the shared objects.
    pub(crate) objects: Vec<NamedTable>,
    pub(crate) engine: Table,
    /// The tables of the workers.
    pub(crate) workers: Vec<(Key, Table)>,
    /// Whether a part could not be read, so that missing items are not reported.
    pub(crate) is_partial: bool,
    /// The text of all files and settings.
    pub(crate) text: String,
}

/// Reads and merges files.
pub(crate) struct Reader<'o> {
    pub(crate) description: Description,
    pub(crate) diagnostics: Diagnostics,
    overrides: &'o Overrides,
    /// The files being read, outermost first.
    stack: Vec<PathBuf>,
    /// Where each file was included; `None` for the network file itself.
    included: HashMap<PathBuf, Option<Place>>,
    apps: HashMap<String, usize>,
    engine: HashMap<String, Place>,
    /// The values of parameters, in the file of a part; nothing for those without a value.
    pub(crate) parameters: Option<BTreeMap<String, Option<Node>>>,
    pub(crate) text_left: usize,
    pub(crate) expansion_left: usize,
}

impl<'o> Reader<'o> {
    pub(crate) fn new(overrides: &'o Overrides) -> Reader<'o> {
        Reader {
            description: Description::default(),
            diagnostics: Diagnostics::default(),
            overrides,
            stack: Vec::new(),
            included: HashMap::new(),
            apps: HashMap::new(),
            engine: HashMap::new(),
            parameters: None,
            text_left: MAX_TEXT,
            expansion_left: MAX_EXPANDED,
        }
    }

    /// Reports an error that keeps a part of the network from being read.
    fn fail(&mut self, diagnostic: Diagnostic) {
        self.description.is_partial = true;
        self.diagnostics.push(diagnostic);
    }

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
    fn bytes(&mut self, path: &Path, place: impl Fn(Diagnostic) -> Diagnostic) -> Option<Vec<u8>> {
        match read(path, self.text_left) {
            Ok(bytes) => Some(bytes),
            Err((why, help)) => {
                let name = quoted(&path.display().to_string());
                self.fail(place(Diagnostic::error(format!("cannot read {name}: {why}"))).help(help));
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

    /// Reads the top level of a file.
    fn root(&mut self, mut root: Table, folder: &Path) {
        for (_, node) in &mut root.0 {
            self.expand(node);
        }
        if let Some((_, node)) = root.remove("include") {
            self.include(node, folder);
        }
        for (key, node) in root.0 {
            match (key.name.as_str(), node.value) {
                (_, Value::Broken) => self.description.is_partial = true,
                ("links", Value::List(links)) => self.description.links.extend(links),
                ("links", _) => {
                    let wrong = Diagnostic::error("`links` must be a list of links").at(node.place, "not a list");
                    self.fail(wrong.help("write `links = [\"app.output -> other.input\"]`"));
                }
                ("engine", Value::Table(keys)) => self.engine(keys),
                ("engine", _) => {
                    let wrong = Diagnostic::error("`engine` must be a table").at(node.place, "not a table");
                    self.diagnostics.push(wrong.help("write `[engine]` on a line of its own, and its keys below"));
                }
                ("apps", Value::Table(apps)) => {
                    for (key, node) in apps.0 {
                        self.app(key, node, folder);
                    }
                }
                ("apps", _) => {
                    let wrong = Diagnostic::error("`apps` must be a table of apps").at(node.place, "not a table");
                    self.fail(wrong.help("write `[apps.NAME]` on a line of its own, and the app's keys below"));
                }
                ("workers", Value::Table(workers)) => {
                    workers.0.into_iter().for_each(|(key, node)| self.worker(key, node));
                }
                ("workers", _) => {
                    let wrong = Diagnostic::error("`workers` must be a table of workers").at(node.place, "not a table");
                    self.fail(wrong.help("write `[workers.NAME]` on a line of its own, and the worker's keys below"));
                }
                ("objects", Value::Table(objects)) => {
                    objects.0.into_iter().for_each(|(key, node)| self.object(key, node, folder));
                }
                ("objects", _) => {
                    let wrong = Diagnostic::error("`objects` must be a table of objects").at(node.place, "not a table");
                    self.fail(wrong.help("write `[objects.NAME]` on a line of its own, and the object's keys below"));
                }
                (name, _) => {
                    let known = ["include", "links", "engine", "workers", "objects", "apps"];
                    let label = match nearest(name, known) {
                        Some(near) => format!("did you mean `{near}`?"),
                        None => "unknown key".to_owned(),
                    };
                    let unknown = Diagnostic::error(format!("a network file has no key {}", quoted(name)));
                    let help = match name {
                        "ports" | "parameters" => {
                            "only the file of a part has it, which the table of an app names with `network`"
                        }
                        _ => {
                            "it has `include`, `links`, `[engine]`, `[workers.NAME]`, `[objects.NAME]` and \
                             `[apps.NAME]`"
                        }
                    };
                    // It may be a misspelled `apps` or `links`.
                    self.fail(unknown.at(key.place, label).help(help));
                }
            }
        }
    }

    fn include(&mut self, node: Node, folder: &Path) {
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

    fn engine(&mut self, keys: Table) {
        for (key, node) in keys.0 {
            if let Some(first) = self.engine.get(&key.name) {
                let twice = Diagnostic::error(format!("`engine.{}` is set in two files", key.name));
                let twice = twice.at(key.place, "set again here").at(*first, "first set here");
                self.diagnostics.push(twice.help("remove one of them: files do not override one another"));
            } else {
                self.engine.insert(key.name.clone(), key.place);
                self.description.engine.0.push((key, node));
            }
        }
    }

    fn worker(&mut self, key: Key, node: Node) {
        let Value::Table(table) = node.value else {
            let wrong = Diagnostic::error(format!("`workers.{}` must be a table", key.name));
            let help = "write `[workers.NAME]` on a line of its own, and the worker's keys below";
            return self.fail(wrong.at(node.place, format!("this is {}", node.value.called())).help(help));
        };
        if let Some((first, _)) = self.description.workers.iter().find(|(known, _)| known.name == key.name) {
            let twice = Diagnostic::error(format!("there are two workers named {}", quoted(&key.name)));
            let twice = twice.at(key.place, "named again here").at(first.place, "first named here");
            return self.diagnostics.push(twice.help("remove one of them: files do not override one another"));
        }
        self.description.workers.push((key, table));
    }

    fn object(&mut self, key: Key, node: Node, folder: &Path) {
        let Value::Table(table) = node.value else {
            let wrong = Diagnostic::error(format!("`objects.{}` must be a table", key.name));
            let help = "write `[objects.NAME]` on a line of its own, and below it `object = \"TYPE\"` and its keys";
            return self.fail(wrong.at(node.place, format!("this is {}", node.value.called())).help(help));
        };
        if let Some(first) = self.description.objects.iter().find(|known| known.key.name == key.name) {
            let twice = Diagnostic::error(format!("there are two objects named {}", quoted(&key.name)));
            let twice = twice.at(key.place, "named again here").at(first.key.place, "first named here");
            return self.diagnostics.push(twice.help("rename one of them: files do not override one another"));
        }
        self.description.objects.push(NamedTable { key, table, folder: folder.to_owned(), bases: Vec::new() });
    }

    fn app(&mut self, key: Key, node: Node, folder: &Path) {
        let Value::Table(table) = node.value else {
            let wrong = Diagnostic::error(format!("`apps.{}` must be a table", key.name));
            let help = "write `[apps.NAME]` on a line of its own, and below it `app = \"TYPE\"` and the app's keys";
            return self.fail(wrong.at(node.place, format!("this is {}", node.value.called())).help(help));
        };
        if let Some(&first) = self.apps.get(&key.name) {
            let twice = Diagnostic::error(format!("there are two apps named {}", quoted(&key.name)));
            let twice = twice.at(key.place, "named again here");
            let twice = twice.at(self.description.apps[first].key.place, "first named here");
            return self.diagnostics.push(twice.help("rename one of them: files do not override one another"));
        }
        self.apps.insert(key.name.clone(), self.description.apps.len());
        self.description.apps.push(NamedTable { key, table, folder: folder.to_owned(), bases: Vec::new() });
    }

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
    fn parameter_as_text(&mut self, name: &str, value: Option<Node>, place: Place) -> Option<String> {
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
            _ if text.as_bytes()[line_start..].starts_with(b"[") => "is the list before this line closed with `]`?",
            _ => "",
        };
        let span = error.span().unwrap_or(0..0);
        let place = Place { source, start: offset + span.start, end: offset + span.end };
        shown.push(Diagnostic::error(format!("this is not TOML: {why}")).at(place, wanted).help(help));
    }
    shown
}

/// Reports a worker that has no table.
pub(crate) fn unknown_worker<'k>(name: &str, place: Place, known: impl Iterator<Item = &'k str> + Clone) -> Diagnostic {
    let known = std::iter::once(MAIN).chain(known);
    let label = match nearest(name, known.clone()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => "unknown worker".to_owned(),
    };
    let unknown = Diagnostic::error(format!("there is no worker {}", quoted(name)));
    let help = format!("the network has {}; describe others in tables `[workers.NAME]`", listed(known));
    unknown.at(place, label).help(help)
}

/// The start of the heading of a part's text, in the text of a network. Lines of settings do not begin so.
pub(crate) const PART: &str = "#part ";

/// The name of the source of settings.
const SET: &str = "--set";

const HOW_TO_SET: &str = "write `apps.NAME.key=value`, `objects.NAME.key=value`, `workers.NAME.key=value` or `engine.key=value`; without a \
     value the key is removed";

const TOO_LARGE: &str = "a network's files may have 2 MiB in total";

/// Reads a file. The error is the reason and the advice.
fn read(path: &Path, most: usize) -> Result<Vec<u8>, (String, &'static str)> {
    let system = |error: std::io::Error| {
        let help = match error.kind() {
            std::io::ErrorKind::NotFound => "check the path",
            std::io::ErrorKind::PermissionDenied => "check its permissions",
            _ => "",
        };
        (reason(&error), help)
    };
    let metadata = fs::metadata(path).map_err(system)?;
    if !metadata.is_file() {
        let what = if metadata.is_dir() { "it is a folder" } else { "it is not a regular file" };
        return Err((what.to_owned(), "name a TOML file"));
    }
    let mut bytes = Vec::new();
    File::open(path).and_then(|file| file.take(most as u64 + 1).read_to_end(&mut bytes)).map_err(system)?;
    if bytes.len() > most {
        return Err(("it is too large".to_owned(), TOO_LARGE));
    }
    Ok(bytes)
}

/// The system's error text without the error number.
pub(crate) fn reason(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split_once(" (os error").map_or(text.as_str(), |(reason, _)| reason).to_lowercase()
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

/// Collects the texts in a value, which are relative to `base` as paths.
pub(crate) fn texts(node: &Node, base: &Path, found: &mut Bases) {
    let mut add = |text: &String| found.push((text.clone(), base.to_owned()));
    node.untyped.iter().for_each(&mut add);
    match &node.value {
        Value::Text(text) => add(text),
        Value::List(items) => items.iter().for_each(|item| texts(item, base, found)),
        Value::Table(table) => table.0.iter().for_each(|(_, node)| texts(node, base, found)),
        _ => {}
    }
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
fn remove(table: &mut Table, path: &[Key]) -> Option<Diagnostic> {
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
fn insert(table: &mut Table, path: &[Key], node: Node) {
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
