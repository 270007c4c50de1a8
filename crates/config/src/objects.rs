//! Shared objects: values that several apps of a network use, on any worker.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use bellows_engine::Status;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::configure::{Context, SettingError};
use crate::diagnostics::listed;
use crate::manual::{self, Key};
use crate::meant::nearest;
use crate::registry::AppTableError;
use crate::schema::schema_of;
use crate::value::{self, Table};

/// A shared object that a network file can name: a table of addresses, of routes, of states.
///
/// Apps get it by its name, with [`Context::object`], and use it from the threads of all workers. A reload keeps an
/// object whose table has not changed, with its contents; apps that use a changed one are started anew.
///
/// As for [apps](crate::Configure), the doc comment of the config is the manual.
pub trait SharedObject: Status + Sized {
    /// The type's name in network files: lower-case words joined by `-`.
    const NAME: &'static str;

    /// The keys of its table.
    type Config: DeserializeOwned + Serialize + JsonSchema;

    /// Creates the object without side effects, because `check` calls this too.
    ///
    /// # Errors
    /// When a value is wrong.
    fn configure(config: Self::Config, context: &Context) -> Result<Self, SettingError>;
}

/// One type of shared objects.
#[derive(Clone, Debug)]
pub struct ObjectEntry {
    name: &'static str,
    schema: Json,
    pub(crate) read: fn(&Table) -> Result<(), value::Error>,
    pub(crate) make: fn(&Table, &Context, &Living) -> Result<Made, AppTableError>,
}

fn read<O: SharedObject>(table: &Table) -> Result<(), value::Error> {
    O::Config::deserialize(table).map(drop)
}

fn make<O: SharedObject>(table: &Table, context: &Context, living: &Living) -> Result<Made, AppTableError> {
    let config = O::Config::deserialize(table).map_err(AppTableError::Unreadable)?;
    let canonical = serde_json::to_string(&config).map_err(AppTableError::unwritable)?;
    let fingerprint = format!("{} {canonical} in {:?}", O::NAME, context.folder);
    if let Some(made) = living.find(&context.app, &fingerprint) {
        return Ok(made);
    }
    let object = Arc::new(O::configure(config, context).map_err(AppTableError::Refused)?);
    let status = Arc::clone(&object) as Arc<dyn Status>;
    let made = Made { kind: O::NAME, fingerprint, object, status };
    living.note(&context.app, &made);
    Ok(made)
}

impl ObjectEntry {
    pub(crate) fn of<O: SharedObject>() -> ObjectEntry {
        ObjectEntry { name: O::NAME, schema: schema_of::<O::Config>(), read: read::<O>, make: make::<O> }
    }

    /// The name in network files.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The first sentence of the manual.
    pub fn summary(&self) -> String {
        manual::summary(&self.description())
    }

    /// The description: the paragraphs of its config's doc comment, separated by empty lines.
    pub fn description(&self) -> String {
        manual::description(&self.schema)
    }

    /// The keys of its table.
    pub fn keys(&self) -> Vec<Key> {
        manual::keys(&self.schema)
    }

    /// The JSON Schema of its table, without `object`.
    pub fn schema(&self) -> &Json {
        &self.schema
    }

    /// The manual for a terminal of `width` columns.
    pub fn manual_text(&self, width: usize) -> String {
        manual::object_text(self, width)
    }

    /// The manual as JSON: `name`, `summary`, `description`, `keys` and `schema`.
    pub fn manual_json(&self) -> Json {
        manual::object_json(self)
    }
}

/// An object, and what it was made from.
#[derive(Clone)]
pub(crate) struct Made {
    pub(crate) kind: &'static str,
    fingerprint: String,
    object: Arc<dyn Any + Send + Sync>,
    pub(crate) status: Arc<dyn Status>,
}

/// The objects that exist, by name: a reload finds those of the running network here. There may be several of one name,
/// until it is decided which configuration runs.
#[derive(Default)]
pub(crate) struct Living(Mutex<BTreeMap<String, Vec<Life>>>);

struct Life {
    kind: &'static str,
    fingerprint: String,
    object: Weak<dyn Any + Send + Sync>,
    status: Weak<dyn Status>,
}

impl Life {
    fn of(made: &Made) -> Life {
        Life {
            kind: made.kind,
            fingerprint: made.fingerprint.clone(),
            object: Arc::downgrade(&made.object),
            status: Arc::downgrade(&made.status),
        }
    }

    fn made(&self) -> Option<Made> {
        let (object, status) = (self.object.upgrade()?, self.status.upgrade()?);
        Some(Made { kind: self.kind, fingerprint: self.fingerprint.clone(), object, status })
    }
}

impl Living {
    fn find(&self, name: &str, fingerprint: &str) -> Option<Made> {
        let living = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        living.get(name)?.iter().find(|life| life.fingerprint == fingerprint)?.made()
    }

    fn note(&self, name: &str, made: &Made) {
        let mut living = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let lives = living.entry(name.to_owned()).or_default();
        lives.retain(|life| life.object.strong_count() > 0);
        lives.push(Life::of(made));
    }
}

impl fmt::Debug for Living {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Living")
    }
}

/// The objects of a network that is being read.
#[derive(Default)]
pub(crate) struct Objects {
    /// `None` for those with errors.
    by_name: BTreeMap<String, Option<Made>>,
    used: Mutex<BTreeSet<String>>,
}

impl fmt::Debug for Objects {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_set().entries(self.by_name.keys()).finish()
    }
}

impl Objects {
    pub(crate) fn add(&mut self, name: &str, made: Option<Made>) {
        self.by_name.insert(name.to_owned(), made);
    }

    /// Notes that an app uses an object.
    pub(crate) fn note_use(&self, name: &str) {
        self.used.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned());
    }

    /// Whether an app uses an object.
    pub(crate) fn is_used(&self, name: &str) -> bool {
        self.used.lock().unwrap_or_else(PoisonError::into_inner).contains(name)
    }

    /// The objects without errors, in the order of their names.
    pub(crate) fn made(&self) -> impl Iterator<Item = (&str, &Made)> {
        self.by_name.iter().filter_map(|(name, made)| Some((name.as_str(), made.as_ref()?)))
    }

    /// The object of a name, and what it was made from.
    pub(crate) fn get<O: SharedObject>(&self, key: &'static str, name: &str) -> Result<(Arc<O>, &str), SettingError> {
        let names = || self.by_name.keys().map(String::as_str);
        let Some(made) = self.by_name.get(name) else {
            let help = match nearest(name, names()) {
                Some(near) => format!("did you mean `{near}`?"),
                None if self.by_name.is_empty() => {
                    format!("describe it in a table `[objects.{name}]`, and below it `object = \"{}\"`", O::NAME)
                }
                None => format!("the network has {}", listed(names())),
            };
            return Err(SettingError::at(key, format!("there is no object `{name}`"), help));
        };
        let Some(made) = made else {
            return Err(SettingError::at(key, format!("the object `{name}` has errors"), "correct its table first"));
        };
        match Arc::clone(&made.object).downcast::<O>() {
            Ok(object) => Ok((object, &made.fingerprint)),
            Err(_) => {
                let message = format!("the object `{name}` is of type `{}`", made.kind);
                Err(SettingError::at(key, message, format!("name one of type `{}`", O::NAME)))
            }
        }
    }
}
