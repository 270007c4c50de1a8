//! The catalogue of app types.

use std::collections::BTreeMap;

use crate::compound::{Compound, CompoundEntry};
use crate::configure::{Configure, SharedObject};
use crate::entry::{Entry, ObjectEntry};
use crate::meant::nearest;
use crate::objects::Living;

/// The types of apps and of shared objects that network files can name.
///
/// A network and its reloads are read with one catalogue, which knows the shared objects in use; another network takes
/// another catalogue.
///
/// ```
/// # mod mine {
/// #     use bellows_config::{Configure, Context, SettingError};
/// #     use bellows_engine::{App, Io, Port, Ports};
/// #     #[derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
/// #     #[serde(deny_unknown_fields)]
/// #     pub struct Config {}
/// #     pub struct Sink;
/// #     impl App for Sink {
/// #         const INPUTS: Ports = Ports::Named(&[Port::required("input", "packets")]);
/// #     }
/// #     impl Configure for Sink {
/// #         const NAME: &'static str = "sink";
/// #         type Config = Config;
/// #         fn configure(_: Config, _: &Context) -> Result<Sink, SettingError> { Ok(Sink) }
/// #     }
/// # }
/// use bellows_config::Registry;
/// use mine::Sink;
///
/// let registry = Registry::new().with::<Sink>();
/// assert_eq!(registry.get("sink").unwrap().name(), "sink");
/// assert_eq!(registry.nearest("sinc"), Some("sink"));
/// ```
#[derive(Debug, Default)]
pub struct Registry {
    entries: BTreeMap<&'static str, Entry>,
    compounds: BTreeMap<&'static str, CompoundEntry>,
    objects: BTreeMap<&'static str, ObjectEntry>,
    /// The objects of the networks that were read with this catalogue.
    pub(crate) living: Living,
}

impl Registry {
    /// An empty catalogue.
    pub fn new() -> Registry {
        Registry::default()
    }

    /// The catalogue with one more type, which replaces a type of the same name.
    #[must_use]
    pub fn with<A: Configure>(mut self) -> Registry {
        self.add::<A>();
        self
    }

    /// Adds a type, which replaces a type of the same name.
    pub fn add<A: Configure>(&mut self) {
        self.compounds.remove(A::NAME);
        self.entries.insert(A::NAME, Entry::of::<A>());
    }

    /// The catalogue with one more type of [compound apps](Compound), which replaces a type of the same name.
    #[must_use]
    pub fn with_compound<C: Compound>(mut self) -> Registry {
        self.add_compound::<C>();
        self
    }

    /// Adds a type of [compound apps](Compound), which replaces a type of the same name.
    pub fn add_compound<C: Compound>(&mut self) {
        self.entries.remove(C::NAME);
        self.compounds.insert(C::NAME, CompoundEntry::of::<C>());
    }

    /// The catalogue with one more type of [shared objects](SharedObject).
    #[must_use]
    pub fn with_object<O: SharedObject>(mut self) -> Registry {
        self.objects.insert(O::NAME, ObjectEntry::of::<O>());
        self
    }

    /// All types of shared objects, sorted by name.
    pub fn objects(&self) -> impl ExactSizeIterator<Item = &ObjectEntry> {
        self.objects.values()
    }

    /// The type of shared objects with this name.
    pub fn object(&self, name: &str) -> Option<&ObjectEntry> {
        self.objects.get(name)
    }

    /// All types of compound apps, sorted by name.
    pub fn compounds(&self) -> impl ExactSizeIterator<Item = &CompoundEntry> {
        self.compounds.values()
    }

    /// The type of compound apps with this name.
    pub fn compound(&self, name: &str) -> Option<&CompoundEntry> {
        self.compounds.get(name)
    }

    /// The names of all types that an app's table can name, compound or not, sorted.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        let mut names: Vec<&'static str> = self.entries.keys().chain(self.compounds.keys()).copied().collect();
        names.sort_unstable();
        names.into_iter()
    }

    /// The names of all types that an app's table can name, with the first sentences of their manuals, sorted.
    pub fn summaries(&self) -> impl Iterator<Item = (&'static str, String)> {
        let apps = self.entries.values().map(|entry| (entry.name(), entry.summary()));
        let mut all: Vec<_> = apps.chain(self.compounds.values().map(|it| (it.name(), it.summary()))).collect();
        all.sort_unstable();
        all.into_iter()
    }

    /// All types of apps that are not compound, sorted by name.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = &Entry> {
        self.entries.values()
    }

    /// The type with this name, unless it is compound.
    pub fn get(&self, name: &str) -> Option<&Entry> {
        self.entries.get(name)
    }

    /// The name of the type that was probably meant.
    pub fn nearest(&self, name: &str) -> Option<&str> {
        nearest(name, self.names())
    }
}
