//! From the description to the network: makes the apps, checks the links, and reports all that is wrong.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::env::VarError;
use std::path::{Path, PathBuf};

use bellows_engine::{AppSpec, LinkSpec, Network, Ports, Side, Traits};
use serde::Deserialize;

use crate::common::{Common, common_keys};
use crate::configure::{Context, Mistake};
use crate::diagnostics::{Diagnostic, Diagnostics, listed, nearest, quoted};
use crate::engine::EngineConfig;
use crate::registry::{Entry, Failure, Registry, engine_manual};
use crate::schema::{Checker, Shape, with_article};
use crate::source::{AppTable, Description, Reader};
use crate::value::{self, Node, Place, Table, Value};

/// A network may have so many apps.
const MOST_APPS: usize = 10_000;

/// A network may have so many links.
const MOST_LINKS: usize = 20_000;

/// How often a table is read again without the key that was wrong: no type has more keys of its own.
const MOST_ROUNDS: usize = 100;

/// What takes the place of values in the files: settings of the command line, and the variables.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    set: Vec<String>,
    variables: Option<BTreeMap<String, String>>,
}

impl Overrides {
    /// Settings such as `apps.capture.path=other.pcap` and `engine.burst=64`. A value is read as TOML where that is
    /// possible, else as text; it counts as written in the file, so a relative path is relative to the file.
    pub fn new(set: impl IntoIterator<Item = impl Into<String>>) -> Overrides {
        Overrides { set: set.into_iter().map(Into::into).collect(), variables: None }
    }

    /// Takes `${VARIABLE}` from here instead of the process's environment.
    #[must_use]
    pub fn with_variables(mut self, variables: impl IntoIterator<Item = (String, String)>) -> Overrides {
        self.variables = Some(variables.into_iter().collect());
        self
    }

    pub(crate) fn variable(&self, name: &str) -> Result<String, VarError> {
        match &self.variables {
            Some(variables) => variables.get(name).cloned().ok_or(VarError::NotPresent),
            None => std::env::var(name),
        }
    }
}

/// A network that can run.
#[derive(Debug)]
pub struct Loaded {
    /// Its apps, made but not started, and its links.
    pub network: Network,
    /// The table `[engine]`.
    pub engine: EngineConfig,
    /// All files that it was read from, to watch for changes; the first one is the network file itself.
    pub files: Vec<PathBuf>,
    /// The text of all files, and what was set.
    pub text: String,
    /// What is odd, though it works.
    pub warnings: Diagnostics,
}

/// Reads a network file and all that it includes.
///
/// # Errors
/// All that is wrong with it.
pub fn load(path: &Path, registry: &Registry, overrides: &Overrides) -> Result<Loaded, Diagnostics> {
    let mut reader = Reader::new(overrides);
    reader.file(path, None);
    finish(reader, &path.display().to_string(), registry, overrides)
}

/// Reads a network from a text that is called `name` in reports; paths in it are relative to `folder`.
///
/// # Errors
/// All that is wrong with it.
pub fn load_str(
    text: &str,
    name: &str,
    folder: &Path,
    registry: &Registry,
    overrides: &Overrides,
) -> Result<Loaded, Diagnostics> {
    let mut reader = Reader::new(overrides);
    reader.text(text.to_owned(), name, folder);
    finish(reader, name, registry, overrides)
}

/// Reads apps in a row, as a command line names them: `tee | truncate(length = 64)`. The keys of an app stand in
/// parentheses behind its type, as in an inline table of TOML; paths in them are relative to `folder`. The apps are called
/// by their types, the second of a type `TYPE-2`. The text is called `name` in reports.
///
/// # Errors
/// All that is wrong with it.
pub fn load_chain(text: &str, name: &str, folder: &Path, registry: &Registry) -> Result<Vec<AppSpec>, Diagnostics> {
    let overrides = Overrides::default();
    let mut reader = Reader::new(&overrides);
    reader.chain(text, name, folder);
    let Reader { description, diagnostics, .. } = reader;
    let mut builder = Builder::new(diagnostics, registry, false);
    for app in description.apps {
        builder.app(app);
    }
    let Builder { mut diagnostics, made, .. } = builder;
    diagnostics.sort();
    if diagnostics.errors() == 0 { Ok(made) } else { Err(diagnostics) }
}

fn finish(
    mut reader: Reader<'_>,
    name: &str,
    registry: &Registry,
    overrides: &Overrides,
) -> Result<Loaded, Diagnostics> {
    for text in &overrides.set {
        reader.set(text);
    }
    let Reader { description, diagnostics, .. } = reader;
    let Description { links, apps, engine, is_partial, text } = description;
    let mut builder = Builder::new(diagnostics, registry, is_partial);
    let engine = builder.engine(engine);
    if apps.is_empty() && !is_partial {
        let empty = Diagnostic::error("the network has no apps").in_file(name);
        builder.diagnostics.push(empty.help("describe each in a table: `[apps.NAME]`, and below it `app = \"TYPE\"`"));
    }
    if apps.len() > MOST_APPS || links.len() > MOST_LINKS {
        let much = Diagnostic::error(format!("{} apps and {} links are too many", apps.len(), links.len()));
        let help = format!("a network has at most {MOST_APPS} apps and {MOST_LINKS} links");
        builder.diagnostics.push(much.in_file(name).help(help));
        return Err(builder.diagnostics);
    }
    for app in apps {
        builder.app(app);
    }
    let links = builder.links(links);
    // What a part that is missing would have linked cannot be known.
    if !builder.is_partial {
        builder.wiring(&links);
    }
    let Builder { mut diagnostics, made, .. } = builder;
    diagnostics.sort();
    match engine {
        Some(engine) if diagnostics.errors() == 0 => {
            let links = links.into_iter().map(|(link, _)| link).collect();
            let network = Network { apps: made, links, source: name.to_owned(), text: text.clone() };
            Ok(Loaded { network, engine, files: diagnostics.files.clone(), text, warnings: diagnostics })
        }
        _ => Err(diagnostics),
    }
}

/// An app of the network, whether it could be made or not.
struct Known {
    name: String,
    place: Place,
    /// `None` if its type is unknown.
    kind: Option<(&'static str, Traits)>,
}

struct Builder<'r> {
    diagnostics: Diagnostics,
    registry: &'r Registry,
    made: Vec<AppSpec>,
    known: Vec<Known>,
    by_name: HashMap<String, usize>,
    /// Apps whose ports on a side may be meant by a link that names something else: that they are open says nothing.
    excused: HashSet<(Side, usize)>,
    /// Whether a part could not be read, so that what seems to be missing may be there.
    is_partial: bool,
}

/// Whose table it is.
#[derive(Clone, Copy)]
struct Owner<'o> {
    /// In messages: ``app type `sink` ``.
    called: &'o str,
    /// Keys that are not its own and may be meant.
    others: &'o [&'o str],
}

/// A link and where it is written.
type Link = (LinkSpec, Place);

impl<'r> Builder<'r> {
    fn new(diagnostics: Diagnostics, registry: &'r Registry, is_partial: bool) -> Builder<'r> {
        Builder {
            diagnostics,
            registry,
            made: Vec::new(),
            known: Vec::new(),
            by_name: HashMap::new(),
            excused: HashSet::new(),
            is_partial,
        }
    }

    /// Reads the table `[engine]`; `None` if it cannot be.
    fn engine(&mut self, mut table: Table) -> Option<EngineConfig> {
        let manual = engine_manual();
        let place = table.0.first().map_or(Place { source: 0, start: 0, end: 0 }, |(key, _)| key.place);
        let owner = Owner { called: "`[engine]`", others: &[] };
        let clean =
            self.check(manual.schema(), &mut table, place, owner, |table| EngineConfig::deserialize(table).map(drop));
        if let Some(Node { place, value: Value::Text(name), .. }) = table.get("name")
            && (name.starts_with('.') || !name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c)))
        {
            let wrong = Diagnostic::error(format!("{} is no name for a running network", quoted(name)));
            let help = "use letters, digits, `-`, `_` and `.`, the first one no `.`";
            self.diagnostics.push(wrong.at(*place, "no such name").help(help));
            return None;
        }
        if clean { EngineConfig::deserialize(&table).ok() } else { None }
    }

    /// Finds all that is wrong with a table and takes it out; whether nothing was.
    fn check(
        &mut self,
        schema: &serde_json::Value,
        table: &mut Table,
        place: Place,
        owner: Owner<'_>,
        read: impl Fn(&Table) -> Result<(), value::Error>,
    ) -> bool {
        let (mut found, before) = (Vec::new(), table.0.len());
        let shape = Shape::new(schema);
        let Owner { called, others } = owner;
        Checker { found: &mut found, owner: called, others }.table(shape, table, place, "");
        let mut clean = found.is_empty() && table.0.len() == before;
        found.into_iter().for_each(|diagnostic| self.diagnostics.push(diagnostic));
        // What the schema cannot say, serde does: one mistake at a time.
        for _ in 0..MOST_ROUNDS {
            let Err(error) = read(table) else { return clean };
            let (message, help) = error.message.split_once("; ").unwrap_or((&error.message, ""));
            match error.key.as_ref().and_then(|key| table.remove(key)) {
                Some((key, node)) => {
                    let words =
                        shape.properties().find(|(name, _)| *name == key.name).map(|(_, shape)| shape.in_words());
                    let words = words.map(|words| with_article(&words));
                    let name = quoted(&key.name);
                    let is_any = message.starts_with("data did not match any variant");
                    let (message, kind) = match words {
                        Some(words) if is_any => (format!("{name} must be {words}"), String::new()),
                        Some(words) => (format!("{name}: {}", plainly(message)), format!("{name} is {words}")),
                        None => (format!("{name}: {}", plainly(message)), String::new()),
                    };
                    let wrong = Diagnostic::error(message);
                    let help = if help.is_empty() { &kind } else { help };
                    self.diagnostics.push(wrong.at(error.place.unwrap_or(node.place), "").help(help));
                    clean = false;
                }
                // What is missing now may have been taken out before.
                None => {
                    if clean {
                        let wrong = Diagnostic::error(format!("{called}: {message}"));
                        self.diagnostics.push(wrong.at(place, "").help(help));
                    }
                    return false;
                }
            }
        }
        false
    }

    /// Makes an app from its table.
    fn app(&mut self, app: AppTable) {
        let AppTable { key, mut table, folder } = app;
        let entry = self.kind(&key.name, key.place, &mut table);
        let kind = entry.map(|entry| (entry.name(), *entry.traits()));
        self.by_name.insert(key.name.clone(), self.known.len());
        self.known.push(Known { name: key.name.clone(), place: key.place, kind });
        if key.name.is_empty() || key.name.contains(|c: char| c.is_whitespace() || c.is_control() || "<>".contains(c)) {
            let wrong = Diagnostic::error(format!("{} is no name for an app", quoted(&key.name)));
            let help = "use letters, digits, `-`, `_` and `.`: links name it";
            self.diagnostics.push(wrong.at(key.place, "no such name").help(help));
            return;
        }
        let Some(entry) = entry else { return };
        // Links that were meant for the top of the file: what they would have linked is not known.
        self.is_partial |= matches!(table.get("links"), Some(Node { value: Value::List(_), .. }));
        let common = self.common(entry, &mut table, key.place);
        let called = format!("app type `{}`", entry.name());
        let owner = Owner { called: &called, others: Common::KEYS };
        let fits = self.check(entry.schema(), &mut table, key.place, owner, |table| entry.read(table));
        let (true, Some(common)) = (fits, common) else { return };
        let context = Context { folder, app: key.name.clone() };
        match entry.make(&table, &context) {
            Ok(spec) => self.made.push(common.applied_to(spec)),
            Err(Failure::Refused(mistake)) => self.refused(mistake, &key.name, &table, key.place),
            Err(Failure::Unreadable(error)) => {
                let wrong = Diagnostic::error(format!("{}: {}", quoted(&key.name), error.message));
                self.diagnostics.push(wrong.at(error.place.unwrap_or(key.place), ""));
            }
        }
    }

    /// Takes the keys that every app has out of a table, but for those that the app has of its own; `None` if they are
    /// wrong.
    fn common(&mut self, entry: &Entry, table: &mut Table, place: Place) -> Option<Common> {
        let is_own = |name: &str| Shape::new(entry.schema()).properties().any(|(own, _)| own == name);
        let taken = Common::KEYS.iter().filter(|name| !is_own(name));
        let mut taken = Table(taken.filter_map(|name| table.remove(name)).collect());
        let owner = Owner { called: "an app", others: &[] };
        let clean = self.check(&common_keys(), &mut taken, place, owner, |table| Common::deserialize(table).map(drop));
        if clean { Common::deserialize(&taken).ok() } else { None }
    }

    /// What the app's own check found.
    fn refused(&mut self, mistake: Mistake, app: &str, table: &Table, header: Place) {
        let mut place = None;
        let mut level = Some(table);
        for name in mistake.key.into_iter().flat_map(|key| key.split('.')) {
            let Some(node) = level.and_then(|level| level.get(name)) else { break };
            place = Some(node.place);
            level = if let Value::Table(inner) = &node.value { Some(inner) } else { None };
        }
        let wrong = Diagnostic::error(format!("{}: {}", quoted(app), mistake.message));
        let label = match (place, mistake.key) {
            (None, Some(key)) => format!("`{key}` is not given here"),
            _ => String::new(),
        };
        self.diagnostics.push(wrong.at(place.unwrap_or(header), label).help(mistake.help));
    }

    /// The type that a table names, which is taken out of it.
    fn kind(&mut self, name: &str, header: Place, table: &mut Table) -> Option<&'r Entry> {
        const HELP: &str = "`bellows apps` lists all types";
        let registry = self.registry;
        let Some((_, node)) = table.remove("app") else {
            let missing = Diagnostic::error(format!("the app {} has no type", quoted(name)));
            let missing = missing.at(header, "`app` is missing here");
            self.diagnostics.push(missing.help(format!("add `app = \"TYPE\"`; {HELP}")));
            return None;
        };
        match &node.value {
            Value::Broken => None,
            Value::Text(kind) => registry.get(kind).or_else(|| {
                let label = match registry.nearest(kind) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => "unknown type".to_owned(),
                };
                let unknown = Diagnostic::error(format!("there is no app type {}", quoted(kind)));
                let few = registry.entries().len() <= 8;
                let types = listed(registry.entries().map(Entry::name));
                let help = if few { format!("there are {types}") } else { HELP.to_owned() };
                self.diagnostics.push(unknown.at(node.place, label).help(help));
                None
            }),
            other => {
                let wrong = Diagnostic::error("`app` must be the name of an app type");
                self.diagnostics.push(wrong.at(node.place, format!("this is {}", other.called())).help(HELP));
                None
            }
        }
    }

    /// Reads the links.
    fn links(&mut self, nodes: Vec<Node>) -> Vec<Link> {
        const HELP: &str = "write it as \"app.output -> other.input\"";
        let mut links = Vec::new();
        for node in nodes {
            match node.value {
                Value::Broken => {}
                Value::Text(text) => match text.parse::<LinkSpec>() {
                    Ok(link) => links.push((link, node.place)),
                    Err(_) => {
                        let wrong = Diagnostic::error(format!("{} is not a link", quoted(&text)));
                        self.diagnostics.push(wrong.at(node.place, "").help(HELP));
                    }
                },
                other => {
                    let wrong = Diagnostic::error("a link must be text");
                    self.diagnostics.push(wrong.at(node.place, format!("this is {}", other.called())).help(HELP));
                }
            }
        }
        links
    }

    /// The part of a link's text that names one of its ends: all of it if escapes hide it.
    fn end_place(&self, link: &Link, side: Side) -> Place {
        let (spec, place) = link;
        let written = self.diagnostics.text(*place);
        let name = spec.end(side).to_string();
        let arrow = written.find("->");
        let offset = match side {
            Side::Output => written.find(&name).filter(|offset| Some(*offset) < arrow),
            Side::Input => arrow.and_then(|arrow| Some(arrow + written[arrow..].find(&name)?)),
        };
        match offset {
            Some(offset) => {
                let start = place.start + offset;
                Place { start, end: start + name.len(), ..*place }
            }
            None => *place,
        }
    }

    /// Finds what is wrong with the links: the same as [`Network::faults`] finds, but also among apps that could not
    /// be made, and with the places.
    fn wiring(&mut self, links: &[Link]) {
        let mut taken: HashMap<(Side, &str, &str), usize> = HashMap::new();
        let mut count: HashMap<(Side, usize), usize> = HashMap::new();
        for (index, link) in links.iter().enumerate() {
            for side in [Side::Output, Side::Input] {
                let end = link.0.end(side);
                match self.by_name.get(&end.app) {
                    Some(&app) => {
                        *count.entry((side, app)).or_default() += 1;
                        self.port(app, link, side);
                    }
                    None => self.unknown_app(link, side),
                }
                match taken.entry((side, &end.app, &end.port)) {
                    std::collections::hash_map::Entry::Occupied(first) => {
                        let first = &links[*first.get()];
                        self.linked_twice(link, first, side);
                    }
                    std::collections::hash_map::Entry::Vacant(free) => {
                        free.insert(index);
                    }
                }
            }
            if link.0.from.app == link.0.to.app {
                let looped = Diagnostic::error(format!("a link leads from {} to itself", quoted(&link.0.from.app)));
                self.diagnostics.push(looped.at(link.1, "").help("put another app between"));
            }
        }
        for app in 0..self.known.len() {
            self.open_ports(app, &taken, &count);
        }
    }

    fn unknown_app(&mut self, link: &Link, side: Side) {
        let name = &link.0.end(side).app;
        let unknown = Diagnostic::error(format!("there is no app {}", quoted(name)));
        if self.diagnostics.is_full() {
            return self.diagnostics.push(unknown);
        }
        let known = self.known.iter().map(|app| app.name.as_str());
        let label = match nearest(name, known.clone()) {
            Some(near) => {
                self.excused.extend(self.by_name.get(near).map(|&app| (side, app)));
                format!("did you mean `{near}`?")
            }
            None => "unknown app".to_owned(),
        };
        let place = self.end_place(link, side);
        // Of the end, the app is what comes first.
        let place = Place { end: (place.start + name.len()).min(place.end), ..place };
        let help = format!("the network has {}", listed(known));
        self.diagnostics.push(unknown.at(place, label).help(help));
    }

    fn port(&mut self, app: usize, link: &Link, side: Side) {
        let Some((kind, traits)) = self.known[app].kind else { return };
        let Ports::Named(ports) = ports(&traits, side) else { return };
        let end = link.0.end(side);
        let names = || ports.iter().map(|port| port.name);
        if names().any(|name| name == end.port) {
            return;
        }
        self.excused.insert((side, app));
        let unknown = Diagnostic::error(format!("{} ({kind}) has no {side} {}", quoted(&end.app), quoted(&end.port)));
        let place = self.end_place(link, side);
        let place = Place { start: place.end.saturating_sub(end.port.len()).max(place.start), ..place };
        let (other, other_side) = match side {
            Side::Input => (traits.outputs, Side::Output),
            Side::Output => (traits.inputs, Side::Input),
        };
        let is_other = matches!(other, Ports::Named(other) if other.iter().any(|port| port.name == end.port));
        if is_other {
            self.excused.insert((other_side, app));
        }
        let label = match nearest(&end.port, names()) {
            _ if is_other => format!("this is an {other_side}"),
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("unknown {side}"),
        };
        let help =
            if ports.is_empty() { format!("it has no {side}s") } else { format!("its {side}s: {}", listed(names())) };
        self.diagnostics.push(unknown.at(place, label).help(help));
    }

    fn linked_twice(&mut self, link: &Link, first: &Link, side: Side) {
        let twice = Diagnostic::error(format!("the {side} {} is linked twice", quoted(&link.0.end(side).to_string())));
        let twice = twice.at(self.end_place(link, side), "linked again here");
        let twice = twice.at(self.end_place(first, side), "first linked here");
        let help = match side {
            Side::Output => "put an app that copies packets between, such as `tee`",
            Side::Input => "put an app that merges streams between, such as `join`",
        };
        self.diagnostics.push(twice.help(help));
    }

    fn open_ports(
        &mut self,
        app: usize,
        taken: &HashMap<(Side, &str, &str), usize>,
        count: &HashMap<(Side, usize), usize>,
    ) {
        let Known { name, place, kind: Some((kind, traits)) } = &self.known[app] else { return };
        let mut found = Vec::new();
        for side in [Side::Input, Side::Output].into_iter().filter(|&side| !self.excused.contains(&(side, app))) {
            let example = |port: &str| match side {
                Side::Input => format!("\"OTHER.OUTPUT -> {name}.{port}\""),
                Side::Output => format!("\"{name}.{port} -> OTHER.INPUT\""),
            };
            match ports(traits, side) {
                Ports::Named(ports) => {
                    let is_open = |port: &&bellows_engine::Port| {
                        port.required && !taken.contains_key(&(side, name.as_str(), port.name))
                    };
                    for port in ports.iter().filter(is_open) {
                        let open = Diagnostic::error(format!("the {side} `{name}.{}` is not linked", port.name));
                        let open = open.at(*place, format!("`{kind}` needs it: {}", port.help));
                        found.push(open.help(format!("add {} to `links`", example(port.name))));
                    }
                }
                Ports::Any { at_least, help } => {
                    let count = count.get(&(side, app)).copied().unwrap_or(0);
                    if count < at_least {
                        let count = if count == 0 { "no".to_owned() } else { format!("only {count}") };
                        let few = Diagnostic::error(format!("{} has {count} {side}s linked", quoted(name)));
                        let few = few.at(*place, format!("`{kind}` needs {at_least} or more: {help}"));
                        found.push(few.help(format!("add {} to `links`, with any name for the port", example("NAME"))));
                    }
                }
            }
        }
        let is_linked = |side| count.contains_key(&(side, app)) || self.excused.contains(&(side, app));
        let has_ports = !(traits.inputs.is_none() && traits.outputs.is_none());
        if found.is_empty() && has_ports && !is_linked(Side::Input) && !is_linked(Side::Output) {
            let idle = Diagnostic::warning(format!("{} is linked to nothing", quoted(name)));
            found.push(idle.at(*place, "no packet comes here or leaves").help("link it, or remove it"));
        }
        found.into_iter().for_each(|diagnostic| self.diagnostics.push(diagnostic));
    }
}

/// What serde says of a value, in the words of the other messages.
fn plainly(message: &str) -> String {
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

fn ports(traits: &Traits, side: Side) -> Ports {
    match side {
        Side::Input => traits.inputs,
        Side::Output => traits.outputs,
    }
}
