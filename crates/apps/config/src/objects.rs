//! The shared objects of a network, and those that exist.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bellows_engine::Status;

use crate::diagnostics::listed;
use crate::suggest::nearest;

/// A change of a running object, to be made when the network that it is for runs.
pub type Change = Box<dyn FnOnce() + Send>;

/// An object, and what it was made from.
#[derive(Clone)]
pub(crate) struct Made {
    pub(crate) kind: &'static str,
    /// What it is for apps: those of another object start anew.
    pub(crate) identity: String,
    pub(crate) object: Arc<dyn Any + Send + Sync>,
    pub(crate) status: Arc<dyn Status>,
    /// What is to be done when the network runs.
    pub(crate) change: Option<PendingChange>,
}

impl Made {
    /// What is to be done when the network runs, for whoever asks first.
    pub(crate) fn take_change(&self) -> Option<Change> {
        self.change.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// A change of an object in use, which is made once.
pub(crate) type PendingChange = Arc<Mutex<Option<Change>>>;

/// What an object was made from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ObjectSource {
    /// Its table.
    pub(crate) table: String,
    /// The texts of its files.
    pub(crate) texts: String,
    pub(crate) files: Vec<PathBuf>,
}

/// The objects that exist, by name: a reload finds those of the running network here. There may be several of one name,
/// until it is decided which configuration runs.
#[derive(Clone, Default)]
pub(crate) struct Living(Arc<Mutex<BTreeMap<String, Vec<Life>>>>);

/// An object that exists.
struct Life {
    kind: &'static str,
    identity: String,
    source: ObjectSource,
    object: Weak<dyn Any + Send + Sync>,
    status: Weak<dyn Status>,
}

impl Life {
    fn made(&self) -> Option<Made> {
        let (object, status) = (self.object.upgrade()?, self.status.upgrade()?);
        Some(Made { kind: self.kind, identity: self.identity.clone(), object, status, change: None })
    }
}

impl Living {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Vec<Life>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The object of this name and type that was made last, and what it was made from.
    pub(crate) fn latest(&self, name: &str, kind: &str) -> Option<(Made, ObjectSource)> {
        let living = self.lock();
        let mut known = living.get(name)?.iter().rev().filter(|life| life.kind == kind);
        known.find_map(|life| Some((life.made()?, life.source.clone())))
    }

    /// Whether an object has this identity.
    pub(crate) fn has(&self, name: &str, identity: &str) -> bool {
        let living = self.lock();
        living
            .get(name)
            .is_some_and(|lives| lives.iter().any(|life| life.identity == identity && life.object.strong_count() > 0))
    }

    pub(crate) fn note(&self, name: &str, made: &Made, source: ObjectSource) {
        let mut living = self.lock();
        let lives = living.entry(name.to_owned()).or_default();
        let object = Arc::downgrade(&made.object);
        lives.retain(|life| life.object.strong_count() > 0 && !life.object.ptr_eq(&object));
        let status = Arc::downgrade(&made.status);
        lives.push(Life { kind: made.kind, identity: made.identity.clone(), source, object, status });
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

impl Clone for Objects {
    fn clone(&self) -> Objects {
        let used = self.used.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Objects { by_name: self.by_name.clone(), used: Mutex::new(used) }
    }
}

impl Objects {
    /// Whether there is an object of this name, with errors or without.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// Whether there is an object of this name, with errors.
    pub(crate) fn is_faulty(&self, name: &str) -> bool {
        matches!(self.by_name.get(name), Some(None))
    }

    /// The full name of the object that `name` means to an app: that of the innermost compound around it that has one,
    /// else of the network's.
    pub(crate) fn visible(&self, app: &str, name: &str) -> String {
        let mut outer = app;
        while let Some((compound, _)) = outer.rsplit_once('/') {
            let full = format!("{compound}/{name}");
            if self.has(&full) {
                return full;
            }
            outer = compound;
        }
        name.to_owned()
    }

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

    /// The object of a name and type, and what it was made from; or the error, and how to fix it.
    pub(crate) fn get<O: Any + Send + Sync>(&self, name: &str, kind: &str) -> Result<(Arc<O>, &str), [String; 2]> {
        let names = || self.by_name.keys().map(String::as_str);
        let Some(made) = self.by_name.get(name) else {
            let help = match nearest(name, names()) {
                Some(near) => format!("did you mean `{near}`?"),
                None if self.by_name.is_empty() => {
                    format!("describe it in a table `[objects.{name}]`, and below it `object = \"{kind}\"`")
                }
                None => format!("the network has {}", listed(names())),
            };
            return Err([format!("there is no object `{name}`"), help]);
        };
        let Some(made) = made else {
            return Err([format!("the object `{name}` has errors"), "correct its table first".to_owned()]);
        };
        let other =
            |_| [format!("the object `{name}` is of type `{}`", made.kind), format!("name one of type `{kind}`")];
        Arc::clone(&made.object).downcast().map(|object| (object, &*made.identity)).map_err(other)
    }
}
