//! From the description to the network: creates the apps, checks the links, and reports all errors.

use std::collections::{HashMap, HashSet};
use std::mem;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bellows_engine::{
    AppInfo, AppSpec, LinkEnd, LinkSpec, MAIN, Network, ObjectSpec, Ports, Side, WiredApp, WiringError, WorkerSpec,
    wiring_errors,
};
use bellows_observe::RuntimeDir;
use bellows_packet::pool::MIN_PACKETS;
use bellows_sys::capability::Set;
use bellows_sys::{cpu, numa};
use serde::Deserialize;

use crate::common::{Common, common_keys};
use crate::configure::{Context, Part, SettingError};
use crate::diagnostics::{Diagnostic, Diagnostics, listed, quoted};
use crate::engine::EngineConfig;
use crate::manual::engine_manual;
use crate::meant::{is_sure, nearest};
use crate::objects::{Made, Objects};
use crate::entry::{AppTableError, Entry, ObjectEntry};
use crate::registry::Registry;
use crate::resources::{self, ResourceUse};
use crate::schema::{Checker, Shape, with_article};
use crate::source::{Description, NamedTable, Overrides, Reader, unknown_worker};
use crate::value::{self, Key, Node, Place, Table, Value};
use crate::worker::{WorkerConfig, worker_schema};
use crate::written;

/// The maximum number of apps in a network.
const MAX_APPS: usize = 10_000;

/// The maximum number of links in a network.
const MAX_LINKS: usize = 20_000;

/// How often a table is read again without the key that was wrong. No app type has more keys than this.
const MAX_ROUNDS: usize = 100;

/// A network that can run.
#[derive(Debug)]
pub struct Loaded {
    /// The apps, created but not started, and the links.
    pub network: Network,
    /// The table `[engine]`.
    pub engine: EngineConfig,
    /// All files that were read, also the texts that apps have read, to watch for changes. The first is the network file
    /// itself.
    pub files: Vec<PathBuf>,
    /// The text of all files, and the settings.
    pub text: String,
    /// The warnings.
    pub warnings: Diagnostics,
    /// The capabilities that the apps need while they run.
    pub capabilities: Set,
    /// Folders in which apps create further files while they run.
    pub written_folders: Vec<PathBuf>,
}

/// Reads a network file and its includes.
///
/// # Errors
/// All errors in the network.
pub fn load(path: &Path, registry: &Registry, overrides: &Overrides) -> Result<Loaded, Diagnostics> {
    let mut reader = Reader::new(overrides);
    reader.file(path, None);
    finish(reader, &path.display().to_string(), registry, overrides)
}

/// Reads a network from a text. Reports call the text `name`; its paths are relative to `folder`.
///
/// # Errors
/// All errors in the network.
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

/// Reads a row of apps from a command line: `tee | truncate(length = 64)`.
///
/// The keys of an app follow its type in parentheses, as in a TOML inline table; paths are relative to `folder`. An app
/// is named after its type; the second app of a type is `TYPE-2`. Reports call the text `name`.
///
/// # Errors
/// All errors in the text.
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
    for text in overrides.settings() {
        reader.set(text);
    }
    let Reader { description, diagnostics, .. } = reader;
    let Description { links, apps, objects, engine, workers, is_partial, text } = description;
    let mut builder = Builder::new(diagnostics, registry, is_partial);
    builder.for_perf = overrides.is_for_perf();
    let pool = engine.get("pool").map(|node| node.place);
    let engine = builder.engine(engine);
    let workers = builder.workers(workers);
    if let Some(engine) = &engine {
        builder.check_pool(engine.pool, pool, workers.len() + 1);
    }
    if apps.is_empty() && !is_partial {
        let empty = Diagnostic::error("the network has no apps").in_file(name);
        builder.diagnostics.push(empty.help("describe each in a table: `[apps.NAME]`, and below it `app = \"TYPE\"`"));
    }
    if apps.len() > MAX_APPS || links.len() > MAX_LINKS {
        let much = Diagnostic::error(format!("{} apps and {} links are too many", apps.len(), links.len()));
        let help = format!("a network has at most {MAX_APPS} apps and {MAX_LINKS} links");
        builder.diagnostics.push(much.in_file(name).help(help));
        return Err(builder.diagnostics);
    }
    let files = builder.diagnostics.files.clone();
    let tables = builder.objects(objects);
    for app in apps {
        builder.app(app);
    }
    builder.check_objects(&tables);
    builder.check_workers(&workers);
    let links = builder.links(links);
    // Links may be in a part that could not be read.
    if !builder.is_partial {
        builder.wiring(&links);
    }
    for wrong in resources::check(&builder.used, &files) {
        builder.diagnostics.push(wrong);
    }
    let written_folders = builder.used.iter().filter_map(|used| used.resource.written_folder()).collect();
    let Builder { mut diagnostics, made, capabilities, objects, .. } = builder;
    diagnostics.sort();
    match engine {
        Some(engine) if diagnostics.errors() == 0 => {
            let links = links.into_iter().map(|link| link.spec).collect();
            let main = WorkerSpec { name: MAIN.to_owned(), cpu: engine.cpu, numa: engine.numa };
            let main = (main.cpu.is_some() || main.numa.is_some()).then_some(main);
            let workers = main.into_iter().chain(workers.into_iter().filter_map(|(_, worker)| worker)).collect();
            let object = |(name, made): (&str, &Made)| ObjectSpec::new(name, made.kind, Arc::clone(&made.status));
            let objects = objects.made().map(object).collect();
            let network = Network { apps: made, links, workers, objects, source: name.to_owned(), text: text.clone() };
            let files = diagnostics.files.clone();
            Ok(Loaded { network, engine, files, text, warnings: diagnostics, capabilities, written_folders })
        }
        _ => Err(diagnostics),
    }
}

/// An app of the network, whether it could be created or not.
struct Known {
    name: String,
    place: Place,
    /// Its type, or the type that a misspelling clearly means; `None` if unknown.
    kind: Option<(&'static str, AppInfo)>,
}

impl Known {
    fn wired(&self) -> WiredApp<'_> {
        let ports = self.kind.map(|(kind, info)| (kind, info.inputs, info.outputs));
        WiredApp { name: &self.name, ports }
    }
}

struct Builder<'r> {
    diagnostics: Diagnostics,
    registry: &'r Registry,
    made: Vec<AppSpec>,
    /// The files and sockets that the apps use.
    used: Vec<ResourceUse>,
    /// The capabilities that the apps need while they run.
    capabilities: Set,
    /// Whether apps put generated code where `perf` looks it up.
    for_perf: bool,
    known: Vec<Known>,
    /// The shared objects.
    objects: Arc<Objects>,
    /// The workers that apps name, and where.
    named_workers: Vec<(String, Place)>,
    by_name: HashMap<String, usize>,
    /// The apps that were created, by their positions among the known ones, with their tables.
    tables: Vec<(usize, &'r Entry, Table)>,
    /// Apps and sides whose open ports are not reported, because a wrong link may mean one of them.
    unreported: HashSet<(Side, usize)>,
    /// Whether a part could not be read, so that missing items are not reported.
    is_partial: bool,
}

/// The owner of a table.
#[derive(Clone, Copy)]
struct Owner<'o> {
    /// In messages: ``app type `sink` ``.
    called: &'o str,
    /// Keys of others that a misspelling may mean.
    others: &'o [&'o str],
}

/// A link and where it is written.
struct Link {
    spec: LinkSpec,
    place: Place,
    /// Its ends as written.
    written: [String; 2],
}

/// A link as written: each end is an app with an optional port.
struct WrittenLink {
    place: Place,
    text: String,
    ends: [WrittenEnd; 2],
    written: [String; 2],
}

/// An app, and its port if written.
type WrittenEnd = (String, Option<String>);

/// Stands for an omitted port of an unknown app. No written port can have this name.
const UNWRITTEN: &str = " ";

/// The sides of a link in written order.
const SIDES: [Side; 2] = [Side::Output, Side::Input];

fn index(side: Side) -> usize {
    usize::from(side == Side::Input)
}

impl<'r> Builder<'r> {
    fn new(diagnostics: Diagnostics, registry: &'r Registry, is_partial: bool) -> Builder<'r> {
        Builder {
            diagnostics,
            registry,
            made: Vec::new(),
            used: Vec::new(),
            capabilities: Set::EMPTY,
            for_perf: false,
            known: Vec::new(),
            objects: Arc::default(),
            named_workers: Vec::new(),
            by_name: HashMap::new(),
            tables: Vec::new(),
            unreported: HashSet::new(),
            is_partial,
        }
    }

    /// Reads the table `[engine]`, or `None` after an error.
    fn engine(&mut self, mut table: Table) -> Option<EngineConfig> {
        let manual = engine_manual();
        let place = table.0.first().map_or(Place { source: 0, start: 0, end: 0 }, |(key, _)| key.place);
        let owner = Owner { called: "`[engine]`", others: &[] };
        let clean = self
            .check(manual.schema(), &mut table, place, owner, |table| EngineConfig::deserialize(table).map(drop))
            .is_empty();
        if let Some(Node { place, value: Value::Text(name), .. }) = table.get("name")
            && !RuntimeDir::is_name(name)
        {
            let wrong = Diagnostic::error(format!("{} is not a valid name for a running network", quoted(name)));
            self.diagnostics.push(wrong.at(*place, "invalid name").help(RuntimeDir::NAMES));
            return None;
        }
        let config = if clean { EngineConfig::deserialize(&table).ok()? } else { return None };
        let has_processor = self.has_processor(config.cpu, &table);
        (self.has_node(config.numa, config.cpu, &table) && has_processor).then_some(config)
    }

    /// Reports a pool that is too small for the workers: it must have the minimum of one worker for each.
    fn check_pool(&mut self, packets: usize, place: Option<Place>, workers: usize) {
        let least = MIN_PACKETS * workers;
        if packets >= least || workers == 1 {
            return;
        }
        let wrong = format!("a pool of {packets} packets is too small for {workers} workers");
        let wrong = Diagnostic::error(wrong)
            .help(format!("set `pool` in [engine] to {least} or more: {MIN_PACKETS} for each worker"));
        self.diagnostics.push(match place {
            Some(place) => wrong.at(place, "too small"),
            None => wrong,
        });
    }

    /// Reads the tables of the workers; those with errors have no result.
    fn workers(&mut self, tables: Vec<(Key, Table)>) -> Vec<(Key, Option<WorkerSpec>)> {
        let schema = worker_schema();
        let mut workers = Vec::new();
        for (key, mut table) in tables {
            if key.name == MAIN {
                let wrong = Diagnostic::error(format!("the worker {} needs no table", quoted(MAIN)));
                let wrong = wrong.at(key.place, "the engine's own thread");
                self.diagnostics.push(wrong.help("set its processor with `cpu` in [engine], or choose another name"));
                continue;
            }
            if !LinkEnd::is_name(&key.name) {
                let wrong = Diagnostic::error(format!("{} is not a valid worker name", quoted(&key.name)));
                let help = "use letters, digits, `-`, `_` and `.`";
                self.diagnostics.push(wrong.at(key.place, "invalid name").help(help));
                workers.push((key, None));
                continue;
            }
            let owner = Owner { called: "`[workers.NAME]`", others: &[] };
            let read = |table: &Table| WorkerConfig::deserialize(table).map(drop);
            let is_clean = self.check(&schema, &mut table, key.place, owner, read).is_empty();
            let config = is_clean.then(|| WorkerConfig::deserialize(&table).ok()).flatten();
            let config = config.filter(|config| self.has_processor(config.cpu, &table));
            let config = config.filter(|config| self.has_node(config.numa, config.cpu, &table));
            let spec = config.map(|config| WorkerSpec { name: key.name.clone(), cpu: config.cpu, numa: config.numa });
            workers.push((key, spec));
        }
        workers
    }

    /// Creates the shared objects. Returns the places of their tables, by name.
    fn objects(&mut self, tables: Vec<NamedTable>) -> Vec<Key> {
        let mut objects = Objects::default();
        let mut keys = Vec::new();
        for NamedTable { key, mut table, folder, set } in tables {
            let made = if LinkEnd::is_name(&key.name) {
                self.object(&key, &mut table, Context::new(folder, &key.name).with_set(set))
            } else {
                let wrong = Diagnostic::error(format!("{} is not a valid object name", quoted(&key.name)));
                let help = "use letters, digits, `-`, `_` and `.`";
                self.diagnostics.push(wrong.at(key.place, "invalid name").help(help));
                None
            };
            objects.add(&key.name, made);
            keys.push(key);
        }
        self.objects = Arc::new(objects);
        keys
    }

    /// Creates a shared object from its table.
    fn object(&mut self, key: &Key, table: &mut Table, context: Context) -> Option<Made> {
        let registry = self.registry;
        let help = || format!("there are {}", listed(registry.objects().map(ObjectEntry::name)));
        let entry = match table.remove("object") {
            Some((_, Node { value: Value::Text(kind), place, .. })) => match registry.object(&kind) {
                Some(entry) => entry,
                None => {
                    let unknown = Diagnostic::error(format!("there is no object type {}", quoted(&kind)));
                    self.diagnostics.push(unknown.at(place, "unknown type").help(help()));
                    return None;
                }
            },
            Some((_, node)) => {
                let wrong = Diagnostic::error("`object` must be the name of an object type");
                self.diagnostics.push(wrong.at(node.place, format!("this is {}", node.value.called())).help(help()));
                return None;
            }
            None => {
                let missing = Diagnostic::error(format!("the object {} has no type", quoted(&key.name)));
                let missing = missing.at(key.place, "`object` is missing here");
                self.diagnostics.push(missing.help(format!("add `object = \"TYPE\"`; {}", help())));
                return None;
            }
        };
        let called = format!("object type `{}`", entry.name());
        let owner = Owner { called: &called, others: &[] };
        let wrong = self.check(entry.schema(), table, key.place, owner, entry.read);
        self.configure(key, table, wrong, |table| (entry.make)(table, &context, &registry.living))
    }

    /// Reports objects that no app uses.
    fn check_objects(&mut self, keys: &[Key]) {
        for key in keys.iter().filter(|key| !self.objects.is_used(&key.name)) {
            if self.diagnostics.errors() == 0 && !self.is_partial {
                let idle = Diagnostic::warning(format!("no app uses the object {}", quoted(&key.name)));
                self.diagnostics.push(idle.at(key.place, "unused").help("name it in an app's table, or remove it"));
            }
        }
    }

    /// Whether the process may use the processor that a table names.
    fn has_processor(&mut self, cpu: Option<usize>, table: &Table) -> bool {
        let (Some(cpu), Some(node)) = (cpu, table.get("cpu")) else { return true };
        let allowed = cpu::allowed();
        if allowed.contains(&cpu) {
            return true;
        }
        let wrong = Diagnostic::error(format!("there is no processor {cpu} for this process"));
        let wrong = wrong.at(node.place, "no such processor");
        self.diagnostics.push(wrong.help(format!("it may use {}", cpu::ranges(&allowed))));
        false
    }

    /// Whether the process may use the memory node that a table names, and it has processors. Warns if the processor is on another one.
    fn has_node(&mut self, numa: Option<usize>, cpu: Option<usize>, table: &Table) -> bool {
        let (Some(number), Some(node)) = (numa, table.get("numa")) else { return true };
        let nodes: Vec<usize> = numa::nodes().iter().map(|node| node.number).collect();
        if !nodes.contains(&number) {
            let wrong = Diagnostic::error(format!("there is no memory node {number} for this process"));
            let help = match &*nodes {
                [] => "the kernel has no memory nodes: leave `numa` out".to_owned(),
                nodes => format!("it may use {}; nodes without processors do not count", cpu::ranges(nodes)),
            };
            self.diagnostics.push(wrong.at(node.place, "no such node").help(help));
            return false;
        }
        if let Some(cpu) = cpu
            && let Some(other) = numa::node_of(cpu)
            && other != number
        {
            let far = Diagnostic::warning(format!("processor {cpu} is on memory node {other}, not on node {number}"));
            let help = format!("write `numa = {other}`, or leave it out: then the node is that of the processor");
            self.diagnostics.push(far.at(node.place, "far from the processor").help(help));
        }
        true
    }

    /// Reports workers that apps name and that have no table, and workers without apps.
    fn check_workers(&mut self, workers: &[(Key, Option<WorkerSpec>)]) {
        let names = || workers.iter().map(|(key, _)| key.name.as_str());
        for (name, place) in std::mem::take(&mut self.named_workers) {
            if name != MAIN && !names().any(|known| known == name) && !self.is_partial {
                self.diagnostics.push(unknown_worker(&name, place, names()));
            }
        }
        for (key, _) in workers {
            if !self.made.iter().any(|app| app.worker == key.name) && !self.is_partial {
                let idle = Diagnostic::warning(format!("no app runs on the worker {}", quoted(&key.name)));
                let help = format!("write `worker = \"{}\"` in the table of an app, or remove the worker", key.name);
                self.diagnostics.push(idle.at(key.place, "nothing to do").help(help));
            }
        }
    }

    /// Reports all errors in a table and removes the wrong keys. Returns the names of the removed and the missing keys;
    /// empty if nothing is wrong.
    fn check(
        &mut self,
        schema: &serde_json::Value,
        table: &mut Table,
        place: Place,
        owner: Owner<'_>,
        read: impl Fn(&Table) -> Result<(), value::Error>,
    ) -> Vec<String> {
        let mut found = Vec::new();
        let given: Vec<String> = table.0.iter().map(|(key, _)| key.name.clone()).collect();
        let shape = Shape::new(schema);
        let Owner { called, others } = owner;
        Checker { found: &mut found, owner: called, others }.table(shape, table, place, "");
        let mut wrong: Vec<String> = given.into_iter().filter(|name| table.get(name).is_none()).collect();
        wrong.extend(shape.required().filter(|name| table.get(name).is_none()).map(str::to_owned));
        if wrong.is_empty() && !found.is_empty() {
            wrong.push(String::new());
        }
        found.into_iter().for_each(|diagnostic| self.diagnostics.push(diagnostic));
        // serde finds the errors that the schema cannot express, one at a time.
        for _ in 0..MAX_ROUNDS {
            let Err(error) = read(table) else { return wrong };
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
                        Some(words) => (format!("{name}: {}", reworded(message)), format!("{name} is {words}")),
                        None => (format!("{name}: {}", reworded(message)), String::new()),
                    };
                    let unreadable = Diagnostic::error(message);
                    let help = if help.is_empty() { &kind } else { help };
                    self.diagnostics.push(unreadable.at(error.place.unwrap_or(node.place), "").help(help));
                    wrong.push(key.name);
                }
                // A key that is missing now may have been removed above.
                None => {
                    if wrong.is_empty() {
                        let unreadable = Diagnostic::error(format!("{called}: {message}"));
                        self.diagnostics.push(unreadable.at(place, "").help(help));
                        wrong.push(String::new());
                    }
                    return wrong;
                }
            }
        }
        wrong
    }

    /// Creates an app from its table.
    fn app(&mut self, app: NamedTable) {
        let NamedTable { key, mut table, folder, set } = app;
        let (entry, is_known) = match self.kind(&key.name, key.place, &mut table) {
            Kind::Known(entry) => (Some(entry), true),
            Kind::Misspelled(entry) => (Some(entry), false),
            Kind::Unknown => (None, false),
        };
        let kind = entry.map(|entry| (entry.name(), *entry.info()));
        self.by_name.insert(key.name.clone(), self.known.len());
        self.known.push(Known { name: key.name.clone(), place: key.place, kind });
        if !LinkEnd::is_name(&key.name) {
            let wrong = Diagnostic::error(format!("{} is not a valid app name", quoted(&key.name)));
            let help = "use letters, digits, `-`, `_` and `.`, because links name the app";
            self.diagnostics.push(wrong.at(key.place, "invalid name").help(help));
            return;
        }
        let Some(entry) = entry else { return };
        // These `links` belong at the top of the file, so the network's links are incomplete.
        self.is_partial |= matches!(table.get("links"), Some(Node { value: Value::List(_), .. }));
        let named = table.get("worker").map(|node| node.place);
        let common = self.common(entry, &mut table, key.place);
        if let (Some(place), Some(Common { worker: Some(worker), .. })) = (named, &common) {
            self.named_workers.push((worker.clone(), place));
        }
        let called = format!("app type `{}`", entry.name());
        let owner = Owner { called: &called, others: Common::KEYS };
        let wrong = self.check(entry.schema(), &mut table, key.place, owner, |table| entry.read(table));
        let mut context = Context::new(folder, &key.name).with_set(set).with_objects(&self.objects);
        context.for_perf = self.for_perf;
        let made = self.configure(&key, &mut table, wrong, |table| entry.make(table, &context));
        self.diagnostics.add_files(context.texts());
        self.capabilities = self.capabilities | entry.capabilities(&table);
        for resource in entry.resources(&table, &context) {
            // A key without a place has its default value, or was wrong and has been removed.
            let Some(place) = self.place(&table, resource.key()) else { continue };
            self.used.push(ResourceUse { app: key.name.clone(), place, resource });
        }
        if let (true, Some(spec), Some(common)) = (is_known, made, common) {
            self.made.push(common.applied_to(spec));
            self.tables.push((self.known.len() - 1, entry, table));
        }
    }

    /// Has an app or object check its values, and reports its errors one by one. `wrong` names the keys that have been removed
    /// already; errors that follow from their absence are not reported.
    fn configure<T>(
        &mut self,
        key: &Key,
        table: &mut Table,
        mut wrong: Vec<String>,
        make: impl Fn(&Table) -> Result<T, AppTableError>,
    ) -> Option<T> {
        for _ in 0..MAX_ROUNDS {
            let mistake = match make(table) {
                Ok(made) => return wrong.is_empty().then_some(made),
                Err(AppTableError::Refused(mistake)) => mistake,
                Err(AppTableError::Unreadable(error)) => {
                    if wrong.is_empty() {
                        let unreadable = Diagnostic::error(format!("{}: {}", quoted(&key.name), error.message));
                        self.diagnostics.push(unreadable.at(error.place.unwrap_or(key.place), ""));
                    }
                    return None;
                }
            };
            let top = mistake.key.and_then(|key| key.split('.').next()).unwrap_or("").to_owned();
            let follows = wrong.iter().any(|gone| *gone == top || mentions(&mistake, gone));
            if !follows {
                self.refused(mistake, &key.name, table, key.place);
            }
            let gone = table.remove(&top);
            wrong.push(top);
            gone?;
        }
        None
    }

    /// Takes the common keys out of a table, except those that the app type defines itself. `None` if they are wrong.
    fn common(&mut self, entry: &Entry, table: &mut Table, place: Place) -> Option<Common> {
        let is_own = |name: &str| Shape::new(entry.schema()).properties().any(|(own, _)| own == name);
        let taken = Common::KEYS.iter().filter(|name| !is_own(name));
        let mut taken = Table(taken.filter_map(|name| table.remove(name)).collect());
        let owner = Owner { called: "an app", others: &[] };
        let wrong = self.check(&common_keys(), &mut taken, place, owner, |table| Common::deserialize(table).map(drop));
        if wrong.is_empty() { Common::deserialize(&taken).ok() } else { None }
    }

    /// The place of a key's value, or of the innermost existing table on its path.
    fn place(&self, table: &Table, key: &str) -> Option<Place> {
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
        let node = match (&part.entry, &value.value) {
            (Some(entry), Value::Table(entries)) => entries.get(entry).unwrap_or(value),
            _ => value,
        };
        let place = node.place;
        let (Some(range), Value::Text(text)) = (&part.range, &node.value) else { return Some(place) };
        let within = written::place_within(self.diagnostics.text(place), text, range);
        Some(within.map_or(place, |range| Place {
            start: place.start + range.start,
            end: place.start + range.end,
            ..place
        }))
    }

    /// Reports an error that the app's own check found.
    fn refused(&mut self, mistake: SettingError, app: &str, table: &Table, header: Place) {
        let place = mistake.key.and_then(|key| self.part(table, key, &mistake.part).or_else(|| self.place(table, key)));
        let wrong = Diagnostic::error(format!("{}: {}", quoted(app), mistake.message));
        let label = match (place, mistake.key) {
            (None, Some(key)) => format!("`{key}` is not given here"),
            _ => String::new(),
        };
        self.diagnostics.push(wrong.at(place.unwrap_or(header), label).help(mistake.help));
    }

    /// Takes the key `app` out of a table and looks up the type.
    fn kind(&mut self, name: &str, header: Place, table: &mut Table) -> Kind<'r> {
        const HELP: &str = "`bellows apps` lists all types";
        let registry = self.registry;
        let Some((_, node)) = table.remove("app") else {
            let missing = Diagnostic::error(format!("the app {} has no type", quoted(name)));
            let missing = missing.at(header, "`app` is missing here");
            self.diagnostics.push(missing.help(format!("add `app = \"TYPE\"`; {HELP}")));
            return Kind::Unknown;
        };
        match &node.value {
            Value::Broken => Kind::Unknown,
            Value::Text(kind) => {
                if let Some(entry) = registry.get(kind) {
                    return Kind::Known(entry);
                }
                let near = registry.nearest(kind);
                let label = match near {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => "unknown type".to_owned(),
                };
                let unknown = Diagnostic::error(format!("there is no app type {}", quoted(kind)));
                let few = registry.entries().len() <= 8;
                let types = listed(registry.entries().map(Entry::name));
                let help = if few { format!("there are {types}") } else { HELP.to_owned() };
                self.diagnostics.push(unknown.at(node.place, label).help(help));
                // A misspelled type still gets its keys checked.
                let meant = near.filter(|near| is_sure(kind, near, registry.entries().map(Entry::name)));
                meant.and_then(|meant| registry.get(meant)).map_or(Kind::Unknown, Kind::Misspelled)
            }
            other => {
                let wrong = Diagnostic::error("`app` must be the name of an app type");
                self.diagnostics.push(wrong.at(node.place, format!("this is {}", other.called())).help(HELP));
                Kind::Unknown
            }
        }
    }

    /// Reads the links, and fills in omitted ports where they are unambiguous.
    fn links(&mut self, nodes: Vec<Node>) -> Vec<Link> {
        const HELP: &str = "write it as \"app.output -> other.input\"";
        let mut written = Vec::new();
        for node in nodes {
            match node.value {
                Value::Broken => self.is_partial = true,
                Value::Text(text) => match self.read_link(&text) {
                    Some((ends, parts)) => {
                        written.push(WrittenLink { place: node.place, text, ends, written: parts });
                    }
                    None => {
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
        let mut taken: HashSet<(Side, String, String)> = HashSet::new();
        for link in &written {
            for (side, (app, port)) in SIDES.iter().zip(&link.ends) {
                taken.extend(port.as_ref().map(|port| (*side, app.clone(), port.clone())));
            }
        }
        written.into_iter().filter_map(|link| self.with_ports(link, &mut taken)).collect()
    }

    /// The ends of a link, each an app with an optional port, and their text; `None` if the text is not a link.
    fn read_link(&self, text: &str) -> Option<([WrittenEnd; 2], [String; 2])> {
        let (from, to) = text.split_once("->")?;
        let end = |text: &str| {
            let text = text.trim();
            if !LinkEnd::is_name(text) {
                return None;
            }
            match text.rsplit_once('.') {
                // An app's name may contain dots.
                Some((app, _)) if self.by_name.contains_key(text) && !self.by_name.contains_key(app) => {
                    Some((text.to_owned(), None))
                }
                Some((app, port)) => {
                    (!app.is_empty() && !port.is_empty()).then(|| (app.to_owned(), Some(port.to_owned())))
                }
                None => Some((text.to_owned(), None)),
            }
        };
        Some(([end(from)?, end(to)?], [from.trim().to_owned(), to.trim().to_owned()]))
    }

    /// The link with omitted ports filled in, or `None` if they are ambiguous, which this function reports.
    fn with_ports(&mut self, link: WrittenLink, taken: &mut HashSet<(Side, String, String)>) -> Option<Link> {
        let WrittenLink { place, text, ends, written } = link;
        let mut ports: [Option<String>; 2] = [None, None];
        let mut choices: [Vec<&'static str>; 2] = [Vec::new(), Vec::new()];
        for side in SIDES {
            let (app, port) = &ends[index(side)];
            let other = &ends[1 - index(side)].0;
            ports[index(side)] = match (port, self.by_name.get(app)) {
                (Some(port), _) => Some(port.clone()),
                // The unknown app is reported with the other wiring errors.
                (None, None) => Some(UNWRITTEN.to_owned()),
                (None, Some(&known)) => match self.known[known].kind.map(|(_, info)| self::ports(&info, side)) {
                    None => {
                        self.unreported.insert((side, known));
                        None
                    }
                    Some(Ports::Any { .. }) => {
                        let name = other.replace('.', "-");
                        let mut names =
                            std::iter::once(name.clone()).chain((2..).map(|number| format!("{name}-{number}")));
                        names.find(|name| !taken.contains(&(side, app.clone(), name.clone())))
                    }
                    Some(Ports::Named([only])) => Some(only.name.to_owned()),
                    Some(Ports::Named(named)) => {
                        self.unreported.insert((side, known));
                        let free = named.iter().map(|port| port.name);
                        let free = free.filter(|port| !taken.contains(&(side, app.clone(), (*port).to_owned())));
                        choices[index(side)] = free.collect();
                        if choices[index(side)].is_empty() {
                            choices[index(side)] = named.iter().map(|port| port.name).collect();
                        }
                        None
                    }
                },
            };
            if let Some(port) = &ports[index(side)] {
                taken.insert((side, app.clone(), port.clone()));
            }
        }
        if let [Some(from), Some(to)] = ports {
            let [(from_app, _), (to_app, _)] = ends;
            let spec = LinkSpec { from: LinkEnd { app: from_app, port: from }, to: LinkEnd { app: to_app, port: to } };
            return Some(Link { spec, place, written });
        }
        // The other end is linked all the same.
        for side in SIDES {
            let known = self.by_name.get(&ends[index(side)].0);
            self.unreported.extend(known.map(|&app| (side, app)));
        }
        for side in SIDES {
            let (app, port) = &ends[index(side)];
            if port.is_some() || ports[index(side)].is_some() {
                continue;
            }
            let Some((kind, _)) = self.by_name.get(app).and_then(|&known| self.known[known].kind) else { continue };
            let end = self.written_place(&written, place, side);
            if choices[index(side)].is_empty() {
                let none = Diagnostic::error(format!("{} ({kind}) has no {side}s", quoted(app)));
                self.diagnostics.push(none.at(end, "nothing can be linked here"));
                continue;
            }
            let which = Diagnostic::error(format!("{} does not say which {side} of {}", quoted(&text), quoted(app)));
            let of = |side: Side, port: &str| format!("{}.{port}", ends[index(side)].0);
            let line = |port: &&str| {
                let other = match side {
                    Side::Output => Side::Input,
                    Side::Input => Side::Output,
                };
                let other_port = ports[index(other)].as_deref().or(choices[index(other)].first().copied());
                let other_end = of(other, other_port.filter(|port| *port != UNWRITTEN).unwrap_or("PORT"));
                match side {
                    Side::Output => format!("\"{} -> {other_end}\"", of(side, port)),
                    Side::Input => format!("\"{other_end} -> {}\"", of(side, port)),
                }
            };
            let lines: Vec<String> = choices[index(side)].iter().take(4).map(line).collect();
            let help = format!("write {}", lines.join(" or "));
            self.diagnostics.push(which.at(end, format!("`{kind}` has several {side}s")).help(help));
        }
        None
    }

    /// The part of a link's text that names one end, or all of it if escapes hide that part.
    fn end_place(&self, link: &Link, side: Side) -> Place {
        self.written_place(&link.written, link.place, side)
    }

    fn written_place(&self, ends: &[String; 2], place: Place, side: Side) -> Place {
        let written = self.diagnostics.text(place);
        let name = &ends[index(side)];
        let arrow = written.find("->");
        let offset = match side {
            Side::Output => written.find(name).filter(|offset| Some(*offset) < arrow),
            Side::Input => arrow.and_then(|arrow| Some(arrow + written[arrow..].find(name)?)),
        };
        match offset {
            Some(offset) => {
                let start = place.start + offset;
                Place { start, end: start + name.len(), ..place }
            }
            None => place,
        }
    }

    /// Reports wiring errors at the places of their links and apps.
    fn wiring(&mut self, links: &[Link]) {
        let apps: Vec<WiredApp<'_>> = self.known.iter().map(Known::wired).collect();
        let specs: Vec<LinkSpec> = links.iter().map(|link| link.spec.clone()).collect();
        let errors = wiring_errors(&apps, &specs);
        let mut incomplete = HashSet::new();
        for error in errors {
            match error {
                // Reported when the tables were read.
                WiringError::DuplicateApp { .. } => {}
                WiringError::DuplicateLink { link, spec, first } => {
                    let twice = Diagnostic::error(format!("the link {} is written twice", quoted(&spec.to_string())));
                    let twice = twice.at(links[link].place, "written again here");
                    let twice = twice.at(links[first].place, "first written here");
                    self.diagnostics.push(twice.help("remove one of them"));
                }
                WiringError::UnknownApp { link, side, name, known } => {
                    self.unknown_app(&links[link], side, &name, &known)
                }
                WiringError::UnknownPort { link, side, end, kind, known } => {
                    self.unknown_port(&links[link], side, &end, &kind, &known);
                }
                WiringError::LinkedTwice { end, .. } if end.port == UNWRITTEN => {}
                WiringError::LinkedTwice { link, side, end, first } => {
                    self.linked_twice(&links[link], &links[first], side, &end);
                }
                WiringError::SelfLink { link, app } => {
                    let looped = Diagnostic::error(format!("a link leads from {} to itself", quoted(&app)));
                    self.diagnostics.push(looped.at(links[link].place, "").help("put another app between"));
                }
                WiringError::OpenPort { side, end, help } => {
                    incomplete.insert(end.app.clone());
                    self.too_few_links(side, &end.app, MissingLinks::Port { name: &end.port, help });
                }
                WiringError::TooFewPorts { side, app, count, at_least, help } => {
                    self.too_few_links(side, &app, MissingLinks::Count { count, at_least, help });
                    incomplete.insert(app);
                }
            }
        }
        self.idle_apps(links, &incomplete);
        self.outputs(links);
    }

    /// Has the apps check the keys that refer to their outputs.
    fn outputs(&mut self, links: &[Link]) {
        let mut outputs: HashMap<&str, Vec<&str>> = HashMap::new();
        for link in links {
            outputs.entry(&link.spec.from.app).or_default().push(&link.spec.from.port);
        }
        for (app, entry, table) in mem::take(&mut self.tables) {
            let (name, place) = (self.known[app].name.clone(), self.known[app].place);
            let outputs = outputs.get(&*name).map_or(&[][..], Vec::as_slice);
            if let Err(mistake) = entry.check_outputs(&table, outputs) {
                self.refused(mistake, &name, &table, place);
            }
        }
    }

    fn unknown_app(&mut self, link: &Link, side: Side, name: &str, known: &[String]) {
        let unknown = Diagnostic::error(format!("there is no app {}", quoted(name)));
        if self.diagnostics.is_full() {
            return self.diagnostics.push(unknown);
        }
        let known = known.iter().map(String::as_str);
        let label = match nearest(name, known.clone()) {
            Some(near) => {
                self.unreported.extend(self.by_name.get(near).map(|&app| (side, app)));
                format!("did you mean `{near}`?")
            }
            None => "unknown app".to_owned(),
        };
        let place = self.end_place(link, side);
        // The app is the first part of the end.
        let place = Place { end: (place.start + name.len()).min(place.end), ..place };
        let help = format!("the network has {}", listed(known));
        self.diagnostics.push(unknown.at(place, label).help(help));
    }

    fn unknown_port(&mut self, link: &Link, side: Side, end: &LinkEnd, kind: &str, known: &[String]) {
        let Some(&app) = self.by_name.get(&end.app) else { return };
        self.unreported.insert((side, app));
        let unknown = Diagnostic::error(format!("{} ({kind}) has no {side} {}", quoted(&end.app), quoted(&end.port)));
        let place = self.end_place(link, side);
        let place = Place { start: place.end.saturating_sub(end.port.len()).max(place.start), ..place };
        let other_side = match side {
            Side::Input => Side::Output,
            Side::Output => Side::Input,
        };
        let other = self.known[app].kind.map(|(_, info)| ports(&info, other_side));
        let is_other = matches!(other, Some(Ports::Named(other)) if other.iter().any(|port| port.name == end.port));
        if is_other {
            self.unreported.insert((other_side, app));
        }
        let names = || known.iter().map(String::as_str);
        let label = match nearest(&end.port, names()) {
            _ if is_other => format!("this is an {other_side}"),
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("unknown {side}"),
        };
        let help =
            if known.is_empty() { format!("it has no {side}s") } else { format!("its {side}s: {}", listed(names())) };
        self.diagnostics.push(unknown.at(place, label).help(help));
    }

    fn linked_twice(&mut self, link: &Link, first: &Link, side: Side, end: &LinkEnd) {
        let twice = Diagnostic::error(format!("the {side} {} is linked twice", quoted(&end.to_string())));
        let twice = twice.at(self.end_place(link, side), "linked again here");
        let twice = twice.at(self.end_place(first, side), "first linked here");
        let help = match side {
            Side::Output => "put an app that copies packets between, such as `tee`",
            Side::Input => "put an app that merges streams between, such as `join`",
        };
        self.diagnostics.push(twice.help(help));
    }

    fn too_few_links(&mut self, side: Side, app: &str, lacking: MissingLinks<'_>) {
        let Some(&index) = self.by_name.get(app) else { return };
        let Known { place, kind: Some((kind, _)), .. } = self.known[index] else { return };
        if self.unreported.contains(&(side, index)) {
            return;
        }
        let example = |port: &str| match side {
            Side::Input => format!("add \"OTHER.OUTPUT -> {app}.{port}\" to `links`"),
            Side::Output => format!("add \"{app}.{port} -> OTHER.INPUT\" to `links`"),
        };
        let few = match lacking {
            MissingLinks::Port { name, help } => {
                let open = Diagnostic::error(format!("the {side} `{app}.{name}` is not linked"));
                open.at(place, format!("`{kind}` needs it: {help}")).help(example(name))
            }
            MissingLinks::Count { count, at_least, help } => {
                let count = if count == 0 { "no".to_owned() } else { format!("only {count}") };
                let few = Diagnostic::error(format!("{} has {count} {side}s linked", quoted(app)));
                let few = few.at(place, format!("`{kind}` needs {at_least} or more: {help}"));
                few.help(format!("{}, with any name for the port", example("NAME")))
            }
        };
        self.diagnostics.push(few);
    }

    /// Warns of apps that no link names, except `incomplete` ones, which have been reported.
    fn idle_apps(&mut self, links: &[Link], incomplete: &HashSet<String>) {
        let linked: HashSet<&str> = links.iter().flat_map(|link| SIDES.map(|side| &*link.spec.end(side).app)).collect();
        for (index, app) in self.known.iter().enumerate() {
            let Known { name, place, kind: Some((_, info)) } = app else { continue };
            let has_ports = !(info.inputs.is_none() && info.outputs.is_none());
            let is_unreported = SIDES.iter().any(|&side| self.unreported.contains(&(side, index)));
            if has_ports && !linked.contains(name.as_str()) && !is_unreported && !incomplete.contains(name) {
                let idle = Diagnostic::warning(format!("{} is linked to nothing", quoted(name)));
                let idle = idle.at(*place, "no packet comes here or leaves").help("link it, or remove it");
                self.diagnostics.push(idle);
            }
        }
    }
}

/// The links that an app lacks.
enum MissingLinks<'l> {
    Port { name: &'l str, help: &'static str },
    Count { count: usize, at_least: usize, help: &'static str },
}

/// The type of an app.
enum Kind<'r> {
    Known(&'r Entry),
    /// The type is misspelled, which has been reported.
    Misspelled(&'r Entry),
    Unknown,
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

fn ports(info: &AppInfo, side: Side) -> Ports {
    match side {
        Side::Input => info.inputs,
        Side::Output => info.outputs,
    }
}
