//! The shared objects of a network, and those that exist.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use bellows_engine::Status;

use crate::diagnostics::listed;
use crate::meant::nearest;

/// An object, and what it was made from.
#[derive(Clone)]
pub(crate) struct Made {
    pub(crate) kind: &'static str,
    pub(crate) fingerprint: String,
    pub(crate) object: Arc<dyn Any + Send + Sync>,
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
    pub(crate) fn find(&self, name: &str, fingerprint: &str) -> Option<Made> {
        let living = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        living.get(name)?.iter().find(|life| life.fingerprint == fingerprint)?.made()
    }

    pub(crate) fn note(&self, name: &str, made: &Made) {
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
        Arc::clone(&made.object).downcast().map(|object| (object, &*made.fingerprint)).map_err(other)
    }
}
