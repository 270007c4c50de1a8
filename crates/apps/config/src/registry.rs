//! The catalogue of app types.

use std::any::TypeId;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::compound::{Compound, CompoundEntry, PartType};
use crate::configure::{Configure, SharedObject};
use crate::entry::{Entry, ObjectEntry};
use crate::objects::Living;
use crate::suggest::nearest;

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
    entries: Types<&'static str, Entry>,
    compounds: Types<&'static str, CompoundEntry>,
    objects: Types<&'static str, ObjectEntry>,
    /// What parts of compound apps can be: also types whose name another type has taken, or that have none.
    part_apps: Types<TypeId, Entry>,
    part_compounds: Types<TypeId, CompoundEntry>,
    part_objects: Types<TypeId, ObjectEntry>,
    /// The objects of the networks that were read with this catalogue.
    pub(crate) living: Living,
}

type Types<K, E> = BTreeMap<K, Arc<E>>;

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
        let entry = Arc::new(Entry::of::<A>());
        self.compounds.remove(A::NAME);
        self.entries.insert(A::NAME, Arc::clone(&entry));
        self.part_apps.insert(TypeId::of::<A>(), entry);
    }

    /// The catalogue with one more type for parts of compound apps, which network files cannot name.
    #[must_use]
    pub fn with_part<A: Configure>(mut self) -> Registry {
        self.part_apps.insert(TypeId::of::<A>(), Arc::new(Entry::of::<A>()));
        self
    }

    /// The catalogue with one more type of [compound apps](Compound), which replaces a type of the same name.
    #[must_use]
    pub fn with_compound<C: Compound>(mut self) -> Registry {
        self.add_compound::<C>();
        self
    }

    /// Adds a type of [compound apps](Compound), which replaces a type of the same name.
    pub fn add_compound<C: Compound>(&mut self) {
        let entry = Arc::new(CompoundEntry::of::<C>());
        self.entries.remove(C::NAME);
        self.compounds.insert(C::NAME, Arc::clone(&entry));
        self.part_compounds.insert(TypeId::of::<C>(), entry);
    }

    /// The catalogue with one more type of [shared objects](SharedObject).
    #[must_use]
    pub fn with_object<O: SharedObject>(mut self) -> Registry {
        let entry = Arc::new(ObjectEntry::of::<O>());
        self.objects.insert(O::NAME, Arc::clone(&entry));
        self.part_objects.insert(TypeId::of::<O>(), entry);
        self
    }

    /// All types of shared objects, sorted by name.
    pub fn objects(&self) -> impl ExactSizeIterator<Item = &ObjectEntry> {
        self.objects.values().map(|entry| &**entry)
    }

    /// The type of shared objects with this name.
    pub fn object(&self, name: &str) -> Option<&ObjectEntry> {
        self.objects.get(name).map(|entry| &**entry)
    }

    /// All types of compound apps, sorted by name.
    pub fn compounds(&self) -> impl ExactSizeIterator<Item = &CompoundEntry> {
        self.compounds.values().map(|entry| &**entry)
    }

    /// The type of compound apps with this name.
    pub fn compound(&self, name: &str) -> Option<&CompoundEntry> {
        self.compounds.get(name).map(|entry| &**entry)
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
        self.entries.values().map(|entry| &**entry)
    }

    /// The type with this name, unless it is compound.
    pub fn get(&self, name: &str) -> Option<&Entry> {
        self.entries.get(name).map(|entry| &**entry)
    }

    /// The type of a part that is no compound app.
    pub(crate) fn part_app(&self, part: PartType) -> Option<&Entry> {
        self.part_apps.get(&part.id).map(|entry| &**entry)
    }

    /// The type of a part that is a compound app.
    pub(crate) fn part_compound(&self, part: PartType) -> Option<&CompoundEntry> {
        self.part_compounds.get(&part.id).map(|entry| &**entry)
    }

    /// The type of a shared object that a compound app makes.
    pub(crate) fn part_object(&self, part: PartType) -> Option<&ObjectEntry> {
        self.part_objects.get(&part.id).map(|entry| &**entry)
    }

    /// The name of the type that was probably meant.
    pub fn nearest(&self, name: &str) -> Option<&str> {
        nearest(name, self.names())
    }
}
