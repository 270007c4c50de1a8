//! One type of the catalogue: its manual and its constructor.

use std::sync::{Arc, Mutex};

use bellows_engine::{AppInfo, AppSpec, Status};
use bellows_sys::capability::Set;
use serde::Deserialize;
use serde_json::Value as Json;

use crate::bench::{BenchFiles, BenchSetup};
use crate::configure::{Configure, Context, SettingError, SharedObject, Succession, SystemAccess};
use crate::fusion::Fusion;
use crate::manual::{self, AppManual};
use crate::objects::{Change, Living, Made, ObjectSource};
use crate::output::OutputSchema;
use crate::resources::Resource;
use crate::schema::schema_of;
use crate::spanned::{self, Table};

/// Why an app cannot be created from a table.
pub(crate) enum AppTableError {
    /// serde cannot read it.
    Unreadable(spanned::Error),
    /// The app refuses its values.
    Refused(SettingError),
    /// It names an object that has errors.
    Follows,
}

impl AppTableError {
    /// A config that serde can read, but not write.
    pub(crate) fn unwritable(error: serde_json::Error) -> AppTableError {
        let message = format!("its config cannot be serialized: {error}");
        AppTableError::Refused(SettingError::of_table(message, ""))
    }
}

/// One app type: its manual and its constructor.
#[derive(Clone, Debug)]
pub struct Entry {
    name: &'static str,
    info: AppInfo,
    schema: Json,
    read: fn(&Table) -> Result<(), spanned::Error>,
    make: fn(&Table, &Context) -> Result<AppSpec, AppTableError>,
    check_outputs: fn(&Table, &[&str]) -> Result<(), SettingError>,
    resources: fn(&Table, &Context) -> Vec<Resource>,
    capabilities: fn(&Table) -> Set,
    is_interface: bool,
    system: SystemAccess,
    status: Option<OutputSchema>,
    fusion: Option<Fusion>,
    bench: fn(&BenchFiles) -> BenchSetup,
}

fn read<A: Configure>(table: &Table) -> Result<(), spanned::Error> {
    A::Config::deserialize(table).map(drop)
}

fn make<A: Configure>(table: &Table, context: &Context) -> Result<AppSpec, AppTableError> {
    let config = A::Config::deserialize(table).map_err(AppTableError::Unreadable)?;
    let canonical = serde_json::to_string(&config).map_err(AppTableError::unwritable)?;
    let app = A::configure(config, context).map_err(|error| match context.has_faulty_object() {
        true => AppTableError::Follows,
        false => AppTableError::Refused(error),
    })?;
    // The same path is another file elsewhere, so the fingerprint must differ.
    let (bases, objects) = (context.used_bases(), context.used_objects());
    let fingerprint = format!("{canonical} in {:?}{bases}{objects}", context.folder);
    Ok(AppSpec::new(&context.app, A::NAME, &fingerprint, app))
}

fn check_outputs<A: Configure>(table: &Table, outputs: &[&str]) -> Result<(), SettingError> {
    A::Config::deserialize(table).map_or(Ok(()), |config| A::check_outputs(&config, outputs))
}

fn resources<A: Configure>(table: &Table, context: &Context) -> Vec<Resource> {
    A::Config::deserialize(table).map(|config| A::resources(&config, context)).unwrap_or_default()
}

fn capabilities<A: Configure>(table: &Table) -> Set {
    A::Config::deserialize(table).map_or(Set::EMPTY, |config| A::capabilities(&config))
}

manual::described!(Entry);

impl Entry {
    pub(crate) fn of<A: Configure>() -> Entry {
        Entry {
            name: A::NAME,
            info: AppInfo::of::<A>(),
            schema: schema_of::<A::Config>(),
            read: read::<A>,
            make: make::<A>,
            check_outputs: check_outputs::<A>,
            resources: resources::<A>,
            capabilities: capabilities::<A>,
            is_interface: A::INTERFACE,
            system: A::SYSTEM,
            status: A::STATUS,
            fusion: A::FUSION,
            bench: A::bench,
        }
    }

    /// The name in network files.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The ports, drop reasons, counters and other static properties of the type.
    pub fn info(&self) -> &AppInfo {
        &self.info
    }

    /// Whether `bellows show interfaces` lists the app although it has both inputs and outputs.
    pub fn is_interface(&self) -> bool {
        self.is_interface
    }

    /// What the app uses of the system's network.
    pub fn system(&self) -> SystemAccess {
        self.system
    }

    /// The apps whose work it does in one loop.
    pub fn fusion(&self) -> Option<Fusion> {
        self.fusion
    }

    /// The schema of the app's status, if it is described.
    pub fn status(&self) -> Option<OutputSchema> {
        self.status
    }

    /// How to measure the app, with these files if it needs any.
    pub fn bench(&self, files: &BenchFiles) -> BenchSetup {
        (self.bench)(files)
    }

    /// The manual for a terminal of `width` columns: description, diagram of the ports, keys, drop reasons and
    /// counters.
    pub fn manual_text(&self, width: usize) -> String {
        self.manual().text(width)
    }

    /// The manual as JSON: `name`, `summary`, `description`, `inputs`, `outputs`, `keys`, `drops`, `counters` and
    /// `schema`.
    pub fn manual_json(&self) -> Json {
        self.manual().json()
    }

    fn manual(&self) -> AppManual<'_> {
        AppManual { name: self.name, info: &self.info, schema: &self.schema }
    }

    pub(crate) fn read(&self, table: &Table) -> Result<(), spanned::Error> {
        (self.read)(table)
    }

    pub(crate) fn make(&self, table: &Table, context: &Context) -> Result<AppSpec, AppTableError> {
        (self.make)(table, context)
    }

    /// Checks the keys that refer to outputs; those of a table that cannot be read are right.
    pub(crate) fn check_outputs(&self, table: &Table, outputs: &[&str]) -> Result<(), SettingError> {
        (self.check_outputs)(table, outputs)
    }

    /// The files and sockets that an app with this table uses; none if the table cannot be read.
    pub(crate) fn resources(&self, table: &Table, context: &Context) -> Vec<Resource> {
        (self.resources)(table, context)
    }

    /// The capabilities that an app with this table needs while it runs; none if the table cannot be read.
    pub(crate) fn capabilities(&self, table: &Table) -> Set {
        (self.capabilities)(table)
    }
}

/// One type of shared objects.
#[derive(Clone, Debug)]
pub struct ObjectEntry {
    name: &'static str,
    schema: Json,
    status: Option<OutputSchema>,
    pub(crate) read: fn(&Table) -> Result<(), spanned::Error>,
    pub(crate) make: fn(&Table, &Context, &Living) -> Result<Made, AppTableError>,
}

fn read_object<O: SharedObject>(table: &Table) -> Result<(), spanned::Error> {
    O::Config::deserialize(table).map(drop)
}

fn make_object<O: SharedObject>(table: &Table, context: &Context, living: &Living) -> Result<Made, AppTableError> {
    let config = O::Config::deserialize(table).map_err(AppTableError::Unreadable)?;
    let canonical = serde_json::to_string(&config).map_err(AppTableError::unwritable)?;
    let table = format!("{} {canonical} in {:?}", O::NAME, context.folder);
    let latest = living.latest(&context.app, O::NAME);
    if let Some((made, source)) = &latest
        && source.table == table
        && source.texts == context.files().marks(&source.files)
    {
        context.note_texts(&source.files);
        return Ok(made.clone());
    }
    let object = O::configure(config, context).map_err(AppTableError::Refused)?;
    let files = context.noted_texts();
    let source = ObjectSource { table, texts: context.used_objects(), files };
    let name = context.app.clone();
    let running = latest.and_then(|(made, _)| Some((Arc::clone(&made.object).downcast::<O>().ok()?, made)));
    let succession = match &running {
        Some((running, _)) => object.take_over(running),
        None => Succession::Object(object),
    };
    match (succession, running) {
        (Succession::Change(change), Some((_, made))) => {
            let (living, changed) = (living.clone(), made.clone());
            let change: Change = Box::new(move || {
                change();
                living.note(&name, &changed, source);
            });
            Ok(Made { change: Some(Arc::new(Mutex::new(Some(change)))), ..made })
        }
        (Succession::Change(_), None) => {
            let message = "the object changes one that does not exist".to_owned();
            Err(AppTableError::Refused(SettingError::of_table(message, "")))
        }
        (Succession::Object(object), _) => {
            let mut identity = format!("{}{}", source.table, source.texts);
            // An object that was changed in use has the identity that it began with.
            while living.has(&name, &identity) {
                identity.push_str(" again");
            }
            let object = Arc::new(object);
            let status = Arc::clone(&object) as Arc<dyn Status>;
            let made = Made { kind: O::NAME, identity, object, status, change: None };
            living.note(&name, &made, source);
            Ok(made)
        }
    }
}

manual::described!(ObjectEntry);

impl ObjectEntry {
    pub(crate) fn of<O: SharedObject>() -> ObjectEntry {
        ObjectEntry {
            name: O::NAME,
            schema: schema_of::<O::Config>(),
            status: O::STATUS,
            read: read_object::<O>,
            make: make_object::<O>,
        }
    }

    /// The schema of the object's status, if it is described.
    pub fn status(&self) -> Option<OutputSchema> {
        self.status
    }

    /// The name in network files.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The manual for a terminal of `width` columns.
    pub fn manual_text(&self, width: usize) -> String {
        manual::object_text(self.name, &self.schema, width)
    }

    /// The manual as JSON: `name`, `summary`, `description`, `keys` and `schema`.
    pub fn manual_json(&self) -> Json {
        manual::object_json(self.name, &self.schema)
    }
}
