//! Compound apps: one table of a network file that stands for several apps, the links between them, and what they share.
//!
//! The loader replaces a compound app by its parts before it creates anything, so the engine runs ordinary apps only. A
//! part `lookup` of the compound app `router` is called `router/lookup`: in reports, in links, and when a reload looks
//! for the app that it replaces.

use std::any::TypeId;

use bellows_engine::Ports;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json, json};

use crate::configure::{Configure, Context, SettingError, SharedObject};
use crate::entry::AppTableError;
use crate::manual::{self, CompoundManual};
use crate::schema::schema_of;
use crate::spanned::{self, Table};

/// An app that consists of other apps.
///
/// Its table in a network file is read into a [`Config`](Compound::Config), as for any [app](Configure); the doc
/// comments of the config are the manual. [`expand`](Compound::expand) turns the config into [`Parts`]: apps with their
/// configs, links between them, shared objects, and the ports that links of the network can name. Each part is an
/// ordinary app with counters, drops and a row in reports of its own. Parts can be compound in turn.
///
/// ```
/// # mod apps {
/// #     use bellows_config::{Configure, Context, SettingError};
/// #     use bellows_engine::{App, Port, Ports};
/// #     #[derive(Default, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
/// #     #[serde(deny_unknown_fields, default)]
/// #     pub struct FilterConfig { pub port: u16 }
/// #     pub struct Filter;
/// #     impl App for Filter {
/// #         const INPUTS: Ports = Ports::Named(&[Port::required("input", "packets")]);
/// #         const OUTPUTS: Ports = Ports::Named(&[Port::required("output", "packets of the port")]);
/// #     }
/// #     impl Configure for Filter {
/// #         const NAME: &'static str = "filter";
/// #         type Config = FilterConfig;
/// #         fn configure(_: FilterConfig, _: &Context) -> Result<Filter, SettingError> { Ok(Filter) }
/// #     }
/// # }
/// use apps::{Filter, FilterConfig};
/// use bellows_config::{Compound, Context, Parts, SettingError};
/// use bellows_engine::{Port, Ports};
///
/// /// Passes on the packets of all ports.
/// #[derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
/// #[serde(deny_unknown_fields)]
/// struct Config {
///     /// The ports.
///     ports: Vec<u16>,
/// }
///
/// struct FilterChain;
///
/// impl Compound for FilterChain {
///     const NAME: &'static str = "filter-chain";
///     const INPUTS: Ports = Ports::Named(&[Port::required("input", "packets")]);
///     const OUTPUTS: Ports = Ports::Named(&[Port::required("output", "the rest")]);
///     type Config = Config;
///
///     fn expand(config: Config, _: &Context, parts: &mut Parts) -> Result<(), SettingError> {
///         let Some(last) = config.ports.len().checked_sub(1) else {
///             return Err(SettingError::at("ports", "there is no port", "name at least one"));
///         };
///         for (index, &port) in config.ports.iter().enumerate() {
///             parts.app::<Filter>(format!("filter{index}"), FilterConfig { port }).from_key("ports");
///             if index > 0 {
///                 parts.link(format!("filter{}.output -> filter{index}.input", index - 1));
///             }
///         }
///         parts.input("input", "filter0.input");
///         parts.output("output", format!("filter{last}.output"));
///         Ok(())
///     }
/// }
/// ```
pub trait Compound: 'static {
    /// The type's name in network files: lower-case words joined by `-`. It differs from the names of all other apps.
    const NAME: &'static str;

    /// The inputs: those that [`Parts::input`] gives. [`Ports::Any`] if their names depend on the config.
    const INPUTS: Ports = Ports::NONE;

    /// The outputs: those that [`Parts::output`] gives. [`Ports::Any`] if their names depend on the config.
    const OUTPUTS: Ports = Ports::NONE;

    /// The keys of its table. `parts` is taken: it sets keys of single parts; and the keys that all apps have, such as
    /// `worker`, are those of all parts unless the config has them.
    type Config: DeserializeOwned + Serialize + JsonSchema;

    /// Describes the parts, without side effects, because `check` calls this too. [`Context::app`] is the compound's own
    /// name; [`Context::object`] finds the objects of the network.
    ///
    /// # Errors
    /// When a value is wrong. Errors in the values of parts need not be looked for: each part checks its own.
    fn expand(config: Self::Config, context: &Context, parts: &mut Parts) -> Result<(), SettingError>;
}

/// What a compound app consists of.
///
/// Names and ports that do not fit together are reported when the network is read, as those of a network file are.
#[derive(Debug, Default)]
pub struct Parts {
    pub(crate) apps: Vec<NewPart>,
    pub(crate) objects: Vec<NewObject>,
    pub(crate) links: Vec<String>,
    /// Name and end, such as `lan` and `input.lan`.
    pub(crate) inputs: Vec<(String, String)>,
    pub(crate) outputs: Vec<(String, String)>,
}

impl Parts {
    /// Adds an app with its config. Links between parts call it `name`; the network calls it `COMPOUND/name`. Its type is
    /// in the catalogue; [`Registry::with_part`](crate::Registry::with_part) adds one that network files cannot name.
    pub fn app<A: Configure>(&mut self, name: impl Into<String>, config: A::Config) -> &mut NewPart {
        self.add(name.into(), PartKind::App(PartType::of::<A>(A::NAME)), serde_json::to_value(&config))
    }

    /// Adds a compound app with its config. Its type is in the catalogue.
    pub fn compound<C: Compound>(&mut self, name: impl Into<String>, config: C::Config) -> &mut NewPart {
        self.add(name.into(), PartKind::Compound(PartType::of::<C>(C::NAME)), serde_json::to_value(&config))
    }

    fn add(&mut self, name: String, kind: PartKind, config: Result<Json, serde_json::Error>) -> &mut NewPart {
        let config = config.map_err(|error| error.to_string());
        let index = self.apps.len();
        self.apps.push(NewPart { name, kind, config, common: Map::new(), from_key: None });
        &mut self.apps[index]
    }

    /// Adds a shared object with its config. Parts call it `name`; other apps of the network call it `COMPOUND/name`. It
    /// hides an object of the same name in the network from the parts.
    pub fn object<O: SharedObject>(&mut self, name: impl Into<String>, config: O::Config) -> &mut NewObject {
        let config = serde_json::to_value(&config).map_err(|error| error.to_string());
        let index = self.objects.len();
        self.objects.push(NewObject { name: name.into(), kind: PartType::of::<O>(O::NAME), config, from_key: None });
        &mut self.objects[index]
    }

    /// The names of the apps, in the order in which they were added.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.apps.iter().map(|part| part.name.as_str())
    }

    /// The links between parts, as they were written.
    pub fn links(&self) -> &[String] {
        &self.links
    }

    /// Adds a link between parts, written as in a network file: `part.output -> other.input`.
    pub fn link(&mut self, link: impl Into<String>) {
        self.links.push(link.into());
    }

    /// Makes a part's input one of the compound: a link to `COMPOUND.name` leads to `end`, such as `part.input`.
    pub fn input(&mut self, name: impl Into<String>, end: impl Into<String>) {
        self.inputs.push((name.into(), end.into()));
    }

    /// Makes a part's output one of the compound: a link from `COMPOUND.name` starts at `end`, such as `part.output`.
    pub fn output(&mut self, name: impl Into<String>, end: impl Into<String>) {
        self.outputs.push((name.into(), end.into()));
    }
}

/// The type of a part.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PartKind {
    App(PartType),
    Compound(PartType),
}

/// The type of a part or of a shared object, which the catalogue has. A part does not bring its own entry, because the
/// code of the app would then be compiled again with each compound app that has it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PartType {
    pub(crate) id: TypeId,
    pub(crate) name: &'static str,
}

impl PartType {
    fn of<T: 'static>(name: &'static str) -> PartType {
        PartType { id: TypeId::of::<T>(), name }
    }
}

/// An app that was added to [`Parts`].
#[derive(Debug)]
pub struct NewPart {
    pub(crate) name: String,
    pub(crate) kind: PartKind,
    pub(crate) config: Result<Json, String>,
    /// Keys that every app has.
    pub(crate) common: Map<String, Json>,
    pub(crate) from_key: Option<String>,
}

impl NewPart {
    /// Assigns the part to a worker. It stays there when the compound's table has the key `worker`, unless the part
    /// itself is set to another one.
    pub fn on_worker(&mut self, worker: &str) -> &mut NewPart {
        self.common.insert("worker".to_owned(), json!(worker));
        self
    }

    /// Has the loader leave the part apart from those behind it: no app in front of them does their work.
    pub fn apart(&mut self) -> &mut NewPart {
        self.common.insert("fuse".to_owned(), json!(false));
        self
    }

    /// Sets the part's prefetch distance, in packets.
    pub fn prefetching(&mut self, packets: u8) -> &mut NewPart {
        self.common.insert("prefetch".to_owned(), json!(packets));
        self
    }

    /// Names the key of the compound's table from which the part's values come. Errors in them point there instead of at
    /// the whole table, or, if the key is a table, at the value of the same name in it. Levels of a key are joined by dots.
    pub fn from_key(&mut self, key: impl Into<String>) -> &mut NewPart {
        self.from_key = Some(key.into());
        self
    }
}

/// A shared object that was added to [`Parts`].
#[derive(Debug)]
pub struct NewObject {
    pub(crate) name: String,
    pub(crate) kind: PartType,
    pub(crate) config: Result<Json, String>,
    pub(crate) from_key: Option<String>,
}

impl NewObject {
    /// Names the key of the compound's table from which the object's values come, as [`NewPart::from_key`] does.
    pub fn from_key(&mut self, key: impl Into<String>) -> &mut NewObject {
        self.from_key = Some(key.into());
        self
    }
}

/// One type of compound apps: its manual, and how it expands.
#[derive(Clone, Debug)]
pub struct CompoundEntry {
    name: &'static str,
    inputs: Ports,
    outputs: Ports,
    schema: Json,
    pub(crate) read: fn(&Table) -> Result<(), spanned::Error>,
    pub(crate) expand: fn(&Table, &Context) -> Result<Parts, AppTableError>,
}

fn read<C: Compound>(table: &Table) -> Result<(), spanned::Error> {
    C::Config::deserialize(table).map(drop)
}

fn expand<C: Compound>(table: &Table, context: &Context) -> Result<Parts, AppTableError> {
    let config = C::Config::deserialize(table).map_err(AppTableError::Unreadable)?;
    let mut parts = Parts::default();
    C::expand(config, context, &mut parts).map_err(AppTableError::Refused)?;
    Ok(parts)
}

manual::described!(CompoundEntry);

impl CompoundEntry {
    pub(crate) fn of<C: Compound>() -> CompoundEntry {
        CompoundEntry {
            name: C::NAME,
            inputs: C::INPUTS,
            outputs: C::OUTPUTS,
            schema: schema_of::<C::Config>(),
            read: read::<C>,
            expand: expand::<C>,
        }
    }

    /// The name in network files.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The inputs.
    pub fn inputs(&self) -> Ports {
        self.inputs
    }

    /// The outputs.
    pub fn outputs(&self) -> Ports {
        self.outputs
    }

    /// The manual for a terminal of `width` columns: description, diagram of the ports, and keys.
    pub fn manual_text(&self, width: usize) -> String {
        self.manual().text(width)
    }

    /// The manual as JSON: `name`, `summary`, `description`, `compound` (true), `inputs`, `outputs`, `keys` and
    /// `schema`.
    pub fn manual_json(&self) -> Json {
        self.manual().json()
    }

    fn manual(&self) -> CompoundManual<'_> {
        CompoundManual { name: self.name, inputs: self.inputs, outputs: self.outputs, schema: &self.schema }
    }
}
