//! From the description to the network: replaces compound apps by their parts, creates the apps, checks the links, and
//! reports all errors.

mod checks;
mod expand;
mod expand_type;
mod fuse;
mod links;
mod part_file;
mod ports;
mod reports;
mod wiring;
mod workers;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::mem;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use bellows_engine::{AppInfo, AppSpec, LinkSpec, MAIN, Network, ObjectSpec, Side, WiredApp, WorkerSpec};
use bellows_observe::RuntimeDir;
use bellows_sys::capability::Set;
use serde::Deserialize;

use crate::app_keys::{Common, common_keys};
use crate::compound::{CompoundEntry, PartType};
use crate::configure::{Context, SystemAccess};
use crate::diagnostics::{Diagnostic, Diagnostics, listed, quoted};
use crate::engine::EngineConfig;
use crate::entry::{Entry, ObjectEntry};
use crate::manual::engine_manual;
use crate::objects::{Change, Made, Objects};
use crate::registry::Registry;
use crate::resources::{self, ResourceUse};
use crate::schema::SchemaShape;
use crate::secrets::hidden;
use crate::source::{Description, FileReader, NamedTable, Overrides};
use crate::spanned::{Key, Node, Place, Table, Value};
use crate::suggest::is_sure;
use crate::texts::Texts;

use checks::{Owner, Wrong};
use expand::Scope;
use part_file::PartFile;

/// The maximum number of apps in a network.
const MAX_APPS: usize = 10_000;

/// The maximum number of links in a network.
const MAX_LINKS: usize = 20_000;

/// A network that can run.
pub struct Loaded {
    /// The apps, created but not started, and the links.
    pub network: Network,
    /// The table `[engine]`.
    pub engine: EngineConfig,
    /// All files that were read, also the texts that apps have read, to watch for changes. The first is the network file
    /// itself.
    pub files: Vec<PathBuf>,
    /// The text of all files, and the settings. It can have keys in it.
    pub text: String,
    /// The texts of the files.
    pub texts: Texts,
    /// The warnings.
    pub warnings: Diagnostics,
    /// The capabilities that the apps need while they run.
    pub capabilities: Set,
    /// The capabilities of each app that needs any.
    pub app_capabilities: Vec<(String, Set)>,
    /// What the apps use of the system's network, an entry for each that does.
    pub system: Vec<SystemAccess>,
    /// Folders in which apps create files or sockets, each once.
    pub changed_folders: Vec<PathBuf>,
    /// Folders in which apps create further files while they run.
    pub written_folders: Vec<PathBuf>,
    /// Changes of shared objects that a running network already has: to be made when this network is running.
    pub changes: Vec<Change>,
}

impl std::fmt::Debug for Loaded {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Loaded")
            .field("network", &self.network)
            .field("engine", &self.engine)
            .finish_non_exhaustive()
    }
}

/// Reads a network file and its includes.
///
/// # Errors
/// All errors in the network.
pub fn load(path: &Path, registry: &Registry, overrides: &Overrides) -> Result<Loaded, Diagnostics> {
    let mut reader = FileReader::new(overrides);
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
    let mut reader = FileReader::new(overrides);
    reader.text(text.to_owned(), name, folder);
    finish(reader, name, registry, overrides)
}

/// Reads a row of apps from a command line: `tee | truncate(length = 64)`.
///
/// The keys of an app follow its type in parentheses, as in a TOML inline table; paths are relative to `folder`. An app
/// is named after its type; the second app of a type is `TYPE-2`. Reports call the text `name`. `objects` has the tables
/// of the shared objects that the apps can name, as in a network file; it may be empty.
///
/// # Errors
/// All errors in the texts.
pub fn load_chain(
    text: &str,
    objects: &str,
    name: &str,
    folder: &Path,
    registry: &Registry,
) -> Result<Vec<AppSpec>, Diagnostics> {
    let overrides = Overrides::default();
    let mut reader = FileReader::new(&overrides);
    if !objects.is_empty() {
        reader.text(objects.to_owned(), "objects", folder);
    }
    reader.chain(text, name, folder);
    let FileReader { description, diagnostics, .. } = reader;
    let mut builder = Builder::new(diagnostics, registry, &overrides, false);
    builder.objects(description.objects);
    builder.expand(description.apps);
    builder.refuse_compounds();
    builder.create_apps();
    let Builder { mut diagnostics, made, .. } = builder;
    diagnostics.sort();
    if diagnostics.errors() == 0 { Ok(made) } else { Err(diagnostics) }
}

fn finish(
    mut reader: FileReader<'_>,
    name: &str,
    registry: &Registry,
    overrides: &Overrides,
) -> Result<Loaded, Diagnostics> {
    for text in overrides.settings() {
        reader.set(text);
    }
    let FileReader { description, diagnostics, text_left, expansion_left, .. } = reader;
    let Description { links, apps, objects, engine, workers, is_partial, text } = description;
    let mut builder = Builder::new(diagnostics, registry, overrides, is_partial);
    (builder.text_left, builder.expansion_left) = (text_left, expansion_left);
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
    builder.objects(objects);
    builder.expand(apps);
    if builder.is_too_large(links.len()) {
        return Err(builder.diagnostics);
    }
    // Those that apps read, too, are added later.
    let files = builder.diagnostics.files.clone();
    builder.create_apps();
    builder.check_objects();
    builder.check_workers(&workers);
    builder.check_compound_ports();
    let links = builder.links(links);
    // Links may be in a part that could not be read.
    if !builder.is_partial {
        builder.wiring(&links);
    }
    for wrong in resources::check(&builder.used, &files, overrides.texts()) {
        builder.diagnostics.push(wrong);
    }
    let text = text + &builder.part_texts;
    let written_folders = builder.used.iter().filter_map(|used| used.resource.written_folder()).collect();
    let changed_folders = builder.used.iter().filter_map(|used| used.resource.changed_folder());
    let changed_folders = changed_folders.collect::<BTreeSet<_>>().into_iter().collect();
    let mut links: Vec<LinkSpec> = links.into_iter().map(|link| link.spec).collect();
    if builder.diagnostics.errors() == 0 {
        builder.fuse(&mut links);
    }
    let Builder { mut diagnostics, made, app_capabilities, system, objects, .. } = builder;
    let capabilities = app_capabilities.iter().fold(Set::EMPTY, |all, (_, set)| all | *set);
    diagnostics.sort();
    match engine {
        Some(engine) if diagnostics.errors() == 0 => {
            let main = WorkerSpec { name: MAIN.to_owned(), cpu: engine.cpu, numa: engine.numa };
            let main = (main.cpu.is_some() || main.numa.is_some()).then_some(main);
            let workers = main.into_iter().chain(workers.into_iter().filter_map(|(_, worker)| worker)).collect();
            let object = |(name, made): (&str, &Made)| ObjectSpec::new(name, made.kind, Arc::clone(&made.status));
            let changes = objects.made().filter_map(|(_, made)| made.take_change()).collect();
            let objects = objects.made().map(object).collect();
            let network = Network { apps: made, links, workers, objects, source: name.to_owned(), text: hidden(&text) };
            let files = diagnostics.files.clone();
            Ok(Loaded {
                network,
                engine,
                files,
                text,
                texts: overrides.texts().clone(),
                warnings: diagnostics,
                capabilities,
                app_capabilities,
                system,
                changed_folders,
                written_folders,
                changes,
            })
        }
        _ => Err(diagnostics),
    }
}

/// An app of the network, whether it could be created or not. A compound app is one, and its parts are.
struct KnownApp {
    /// Its full name.
    name: String,
    place: Place,
    /// The compound app that it is a part of.
    scope: Option<usize>,
    kind: KnownKind,
}

/// The type of an app, or the type that a misspelling clearly means.
#[derive(Clone, Copy)]
enum KnownKind {
    Unknown,
    App(&'static str, AppInfo),
    /// One of [`Builder::scopes`].
    Compound(usize),
}

impl KnownApp {
    fn wired(&self) -> WiredApp<'_> {
        let ports = self.app().map(|(kind, info)| (kind, info.inputs, info.outputs));
        WiredApp { name: &self.name, ports }
    }

    /// Its type, unless it is unknown or compound.
    fn app(&self) -> Option<(&'static str, AppInfo)> {
        match self.kind {
            KnownKind::App(kind, info) => Some((kind, info)),
            KnownKind::Unknown | KnownKind::Compound(_) => None,
        }
    }
}

struct Builder<'r> {
    diagnostics: Diagnostics,
    /// What has been said of values, and of which.
    reported: BTreeSet<(Place, String)>,
    registry: &'r Registry,
    /// Variables, for the files of parts.
    overrides: &'r Overrides,
    /// The apps to create.
    pending: Vec<Pending<'r>>,
    made: Vec<AppSpec>,
    /// The files and sockets that the apps use.
    used: Vec<ResourceUse>,
    /// The capabilities of each app that needs any while it runs.
    app_capabilities: Vec<(String, Set)>,
    /// What apps use of the system's network.
    system: Vec<SystemAccess>,
    known: Vec<KnownApp>,
    /// The compound apps.
    scopes: Vec<Scope>,
    /// The links between parts, each with its compound app.
    inner_links: Vec<(Node, usize)>,
    /// The files of parts by their identity; `None` for those that cannot be read.
    part_files: HashMap<PathBuf, Option<Rc<PartFile>>>,
    /// Their texts.
    part_texts: String,
    text_left: usize,
    expansion_left: usize,
    /// The shared objects.
    objects: Arc<Objects>,
    /// The places of their tables, except those that compound apps made.
    object_keys: Vec<Key>,
    /// The workers that apps name, and where.
    named_workers: BTreeSet<(String, Place)>,
    by_name: HashMap<String, usize>,
    /// The apps that were created.
    created: Vec<CreatedApp<'r>>,
    /// Apps and sides whose open ports are not reported, because a wrong link may mean one of them.
    unreported: HashSet<(Side, usize)>,
    /// Apps and sides of which an open port has been reported.
    open: HashSet<(Side, usize)>,
    /// Apps whose links are not all known.
    unlinked: HashSet<usize>,
    /// Whether a part could not be read, so that missing items are not reported.
    is_partial: bool,
}

/// An app that was created.
struct CreatedApp<'r> {
    /// Its position among the known ones.
    known: usize,
    entry: &'r Entry,
    table: Table,
    common: Common,
}

/// An app whose type is known.
struct Pending<'r> {
    /// Its position among the known ones.
    known: usize,
    entry: &'r Entry,
    /// Whether its type is written as it is called.
    is_known: bool,
    named: NamedTable,
    /// The place of the values that a compound app made.
    generated: Option<Place>,
    /// What the compound app's own table lacks.
    lacks: Wrong,
}

impl<'r> Builder<'r> {
    fn new(
        diagnostics: Diagnostics,
        registry: &'r Registry,
        overrides: &'r Overrides,
        is_partial: bool,
    ) -> Builder<'r> {
        Builder {
            diagnostics,
            reported: BTreeSet::new(),
            registry,
            overrides,
            pending: Vec::new(),
            made: Vec::new(),
            used: Vec::new(),
            app_capabilities: Vec::new(),
            system: Vec::new(),
            known: Vec::new(),
            scopes: Vec::new(),
            inner_links: Vec::new(),
            part_files: HashMap::new(),
            part_texts: String::new(),
            text_left: 0,
            expansion_left: 0,
            objects: Arc::default(),
            object_keys: Vec::new(),
            named_workers: BTreeSet::new(),
            by_name: HashMap::new(),
            created: Vec::new(),
            unreported: HashSet::new(),
            open: HashSet::new(),
            unlinked: HashSet::new(),
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

    /// Creates the shared objects of the network.
    fn objects(&mut self, tables: Vec<NamedTable>) {
        for table in tables {
            self.object_keys.push(table.key.clone());
            self.add_object(table, None, None, Wrong::default());
        }
    }

    /// Creates a shared object, of a type that its table names unless a compound app gives it, whose own table may lack
    /// something.
    fn add_object(&mut self, object: NamedTable, scope: Option<usize>, part: Option<PartType>, lacks: Wrong) {
        let NamedTable { mut key, mut table, folder, bases } = object;
        let is_name = self.is_name(&key.name, scope);
        if !is_name {
            let wrong = Diagnostic::error(format!("{} is not a valid object name", quoted(&key.name)));
            self.diagnostics.push(wrong.at(key.place, "invalid name").help("use letters, digits, `-`, `_` and `.`"));
        }
        key.name = self.full_name(scope, &key.name);
        let context = Context::new(folder, &key.name).with_bases(bases).with_texts(self.overrides.texts());
        let made = if is_name { self.object(&key, &mut table, &context, part, lacks) } else { None };
        if made.is_some() {
            self.warnings(&context, &key, &table);
        }
        self.diagnostics.add_files(context.texts());
        Arc::make_mut(&mut self.objects).add(&key.name, made);
    }

    /// Creates a shared object from its table.
    fn object(
        &mut self,
        key: &Key,
        table: &mut Table,
        context: &Context,
        part: Option<PartType>,
        lacks: Wrong,
    ) -> Option<Made> {
        let registry = self.registry;
        let entry = match part.map(|part| (part, registry.part_object(part))) {
            Some((_, Some(entry))) => entry,
            Some((part, None)) => {
                self.report_missing_type(part, key, "`Command::object`");
                return None;
            }
            None => self.object_type(key, table)?,
        };
        let called = format!("object type `{}`", entry.name());
        let owner = Owner { called: &called, others: &[] };
        let mut wrong = self.check(entry.schema(), table, key.place, owner, entry.read);
        wrong.add(lacks);
        self.configure(key, table, &mut wrong, |table| (entry.make)(table, context, &registry.living))
    }

    /// Takes the key `object` out of a table and looks up the type.
    fn object_type(&mut self, key: &Key, table: &mut Table) -> Option<&'r ObjectEntry> {
        let registry = self.registry;
        let help = || format!("there are {}", listed(registry.objects().map(ObjectEntry::name)));
        match table.remove("object") {
            Some((_, Node { value: Value::Text(kind), place, .. })) => match registry.object(&kind) {
                Some(entry) => Some(entry),
                None => {
                    let unknown = Diagnostic::error(format!("there is no object type {}", quoted(&kind)));
                    self.diagnostics.push(unknown.at(place, "unknown type").help(help()));
                    None
                }
            },
            Some((_, node)) => {
                let wrong = Diagnostic::error("`object` must be the name of an object type");
                self.diagnostics.push(wrong.at(node.place, format!("this is {}", node.value.called())).help(help()));
                None
            }
            None => {
                let missing = Diagnostic::error(format!("the object {} has no type", quoted(&key.name)));
                let missing = missing.at(key.place, "`object` is missing here");
                self.diagnostics.push(missing.help(format!("add `object = \"TYPE\"`; {}", help())));
                None
            }
        }
    }

    /// Reports objects that no app uses.
    fn check_objects(&mut self) {
        for key in mem::take(&mut self.object_keys).iter().filter(|key| !self.objects.is_used(&key.name)) {
            if self.diagnostics.errors() == 0 && !self.is_partial {
                let idle = Diagnostic::warning(format!("no app uses the object {}", quoted(&key.name)));
                self.diagnostics.push(idle.at(key.place, "unused").help("name it in an app's table, or remove it"));
            }
        }
    }

    /// Creates the apps.
    fn create_apps(&mut self) {
        for pending in mem::take(&mut self.pending) {
            let before = self.diagnostics.kept();
            let (scope, generated) = (self.known[pending.known].scope, pending.generated);
            let name = self.known[pending.known].name.clone();
            self.create_app(pending);
            if let Some(place) = generated {
                self.diagnostics.explain(before, place, &format!("in its part {}", quoted(&name)));
            }
            self.locate(before, scope);
        }
    }

    /// Creates an app from its table.
    fn create_app(&mut self, pending: Pending<'r>) {
        let Pending { known, entry, is_known, named, lacks, .. } = pending;
        let NamedTable { key, mut table, folder, bases } = named;
        let key = Key { name: self.known[known].name.clone(), ..key };
        // These `links` belong at the top of the file, so the network's links are incomplete.
        self.is_partial |= matches!(table.get("links"), Some(Node { value: Value::List(_), .. }));
        let worker = table.get("worker").map(|node| node.place);
        let common = self.common(entry.schema(), &mut table, key.place);
        if let (Some(place), Some(Common { worker: Some(worker), .. })) = (worker, &common) {
            self.named_workers.insert((worker.clone(), place));
        }
        let called = format!("app type `{}`", entry.name());
        let owner = Owner { called: &called, others: Common::KEYS };
        let mut wrong = self.check(entry.schema(), &mut table, key.place, owner, |table| entry.read(table));
        wrong.add(lacks);
        let mut context = Context::new(folder, &key.name).with_bases(bases).with_objects(&self.objects);
        context = context.with_texts(self.overrides.texts());
        context.for_perf = self.overrides.is_for_perf();
        let made = self.configure(&key, &mut table, &mut wrong, |table| entry.make(table, &context));
        self.diagnostics.add_files(context.texts());
        self.warn_of_open_secrets(context.secrets(), &key.name, &table);
        let capabilities = entry.capabilities(&table);
        if !capabilities.is_empty() {
            self.app_capabilities.push((key.name.clone(), capabilities));
        }
        if entry.system() != SystemAccess::NONE {
            self.system.push(entry.system());
        }
        for resource in entry.resources(&table, &context) {
            // A key without a place has its default value, or was wrong and has been removed.
            let Some(place) = self.place(&table, resource.key()) else { continue };
            self.used.push(ResourceUse { app: key.name.clone(), place, resource });
        }
        if made.is_some() {
            self.warnings(&context, &key, &table);
        }
        if let (true, Some(spec), Some(common)) = (is_known, made, common) {
            self.made.push(common.clone().applied_to(spec));
            self.created.push(CreatedApp { known, entry, table, common });
        }
    }

    /// Takes the common keys out of a table, except those that the app type defines itself. `None` if they are wrong.
    fn common(&mut self, schema: &serde_json::Value, table: &mut Table, place: Place) -> Option<Common> {
        let mut taken = common_of(schema, table);
        let owner = Owner { called: "an app", others: &[] };
        let wrong = self.check(&common_keys(), &mut taken, place, owner, |table| Common::deserialize(table).map(drop));
        if wrong.is_empty() { Common::deserialize(&taken).ok() } else { None }
    }

    /// Takes the key `app` out of a table and looks up the type.
    fn kind(&mut self, name: &str, header: Place, table: &mut Table) -> TableKind<'r> {
        const HELP: &str = "`bellows apps` lists all types";
        let registry = self.registry;
        let Some((_, node)) = table.remove("app") else {
            let missing = Diagnostic::error(format!("the app {} has no type", quoted(name)));
            let missing = missing.at(header, "`app` is missing here");
            self.diagnostics.push(missing.help(format!("add `app = \"TYPE\"`; {HELP}")));
            return TableKind::Unknown;
        };
        match &node.value {
            Value::Broken => TableKind::Unknown,
            Value::Text(kind) => {
                if let Some(entry) = registry.get(kind) {
                    return TableKind::Known(entry);
                }
                if let Some(entry) = registry.compound(kind) {
                    return TableKind::Compound(entry);
                }
                let near = registry.nearest(kind);
                let label = match near {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => "unknown type".to_owned(),
                };
                let unknown = Diagnostic::error(format!("there is no app type {}", quoted(kind)));
                let few = registry.names().count() <= 8;
                let types = listed(registry.names());
                let help = if few { format!("there are {types}") } else { HELP.to_owned() };
                self.diagnostics.push(unknown.at(node.place, label).help(help));
                // A misspelled type still gets its keys checked.
                let meant = near.filter(|near| is_sure(kind, near, registry.names()));
                meant.and_then(|meant| registry.get(meant)).map_or(TableKind::Unknown, TableKind::Misspelled)
            }
            other => {
                let wrong = Diagnostic::error("`app` must be the name of an app type");
                self.diagnostics.push(wrong.at(node.place, format!("this is {}", other.called())).help(HELP));
                TableKind::Unknown
            }
        }
    }
}

/// Takes the common keys out of a table, except those that its type defines itself.
fn common_of(schema: &serde_json::Value, table: &mut Table) -> Table {
    let taken = Common::KEYS.iter().filter(|name| !has_key(schema, name));
    Table(taken.filter_map(|name| table.remove(name)).collect())
}

/// Whether a type defines a key.
fn has_key(schema: &serde_json::Value, name: &str) -> bool {
    SchemaShape::new(schema).properties().any(|(own, _)| own == name)
}

/// The type that a table names.
enum TableKind<'r> {
    Known(&'r Entry),
    Compound(&'r CompoundEntry),
    /// The type is misspelled, which has been reported.
    Misspelled(&'r Entry),
    Unknown,
}
