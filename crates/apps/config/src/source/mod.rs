//! Merges files, their includes, variables and `--set` into one description in which each value has its place.

mod files;
mod set;
mod variables;

use std::collections::{BTreeMap, HashMap};
use std::env::VarError;
use std::path::{Path, PathBuf};

use bellows_engine::MAIN;

use crate::diagnostics::{Diagnostic, Diagnostics, listed, quoted};
use crate::path_bases::Bases;
use crate::spanned::{Key, Node, Place, Table, Value};
use crate::suggest::nearest;
use crate::texts::Texts;

pub(crate) use self::files::syntax_errors;
pub(crate) use self::set::setting_keys;

/// The maximum size of all files together, in bytes: enough for 10,000 apps. The parsed values of such a text take a
/// few hundred megabytes.
const MAX_TEXT: usize = 2 << 20;

/// The maximum size of all expanded variables together, in bytes.
const MAX_EXPANDED: usize = 4 << 20;

/// Values from outside the files: settings from the command line, and variables.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    set: Vec<String>,
    variables: Option<BTreeMap<String, String>>,
    for_perf: bool,
    texts: Texts,
}

impl Overrides {
    /// Settings such as `apps.capture.path=other.pcap` and `engine.burst=64`. A value is read as TOML if possible, else
    /// as text; a relative path starts at the current directory. Without a value, as in `apps.capture.rate=`, the key
    /// is removed.
    pub fn new(set: impl IntoIterator<Item = impl Into<String>>) -> Overrides {
        Overrides { set: set.into_iter().map(Into::into).collect(), ..Overrides::default() }
    }

    /// Has apps put the code that they generate where `perf` looks it up in its map.
    #[must_use]
    pub fn for_perf(self, for_perf: bool) -> Overrides {
        Overrides { for_perf, ..self }
    }

    /// Takes these texts in place of what the files have by now.
    #[must_use]
    pub fn with_texts(self, texts: &Texts) -> Overrides {
        Overrides { texts: texts.in_place_of_files(), ..self }
    }

    /// The texts of the files that are read.
    pub fn texts(&self) -> &Texts {
        &self.texts
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
pub(crate) struct FileReader<'o> {
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

impl<'o> FileReader<'o> {
    pub(crate) fn new(overrides: &'o Overrides) -> FileReader<'o> {
        FileReader {
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

const TOO_LARGE: &str = "a network's files may have 2 MiB in total";

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
