//! How an app is made from its table in a network file.

use std::cell::Cell;
use std::path::{Path, PathBuf};

use bellows_engine::App;
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::bench::{Bench, BenchFiles};
use crate::resources::Resource;

/// An app that can be named in a network file.
///
/// The documentation of the [`Config`](Configure::Config) type is the app's manual, and that of its fields describes
/// the keys: `bellows apps NAME` prints them. A key's unit stands in its schema as
/// `#[schemars(extend("x-unit" = "packets"))]`; its default comes from `#[serde(default…)]`. The type refuses unknown
/// keys with `#[serde(deny_unknown_fields)]`.
pub trait Configure: App {
    /// The type's name in network files: lower-case words joined by `-`.
    const NAME: &'static str;

    /// Whether it connects the network to the outside though packets pass through it, as a virtual machine's port does:
    /// `bellows show interfaces` lists it then. Apps that are linked on one side only are listed anyway.
    const INTERFACE: bool = false;

    /// The keys of its table. Serialises to the canonical form by which a reload knows whether it changed.
    type Config: DeserializeOwned + Serialize + JsonSchema;

    /// Makes the app, without any side effect: `check` does it too. A file that is read may be looked into, but is
    /// closed again; no file is locked, kept open or written before [`App::start`].
    ///
    /// # Errors
    /// What is wrong with the values.
    fn configure(config: Self::Config, context: &Context) -> Result<Self, SettingError>;

    /// How to measure the app: with which keys, if it needs some or is dull without, or why not.
    fn bench(_files: &BenchFiles) -> Bench {
        Bench::with_keys("")
    }

    /// The files and sockets that the app will use. Before anything starts it is found out whether they can be had, and
    /// whether two apps want the same; so neither [`configure`](Configure::configure) nor [`App::start`] need to look
    /// for that.
    fn resources(_config: &Self::Config, _context: &Context) -> Vec<Resource> {
        Vec::new()
    }
}

/// What an app may need to know of the file that its table stands in.
#[derive(Clone, Debug, Default)]
pub struct Context {
    /// The folder of the network file, to which relative paths are relative.
    pub folder: PathBuf,
    /// The app's name in the network.
    pub app: String,
    /// Texts that the command line set, whose paths are relative to the current directory.
    set: Vec<String>,
    /// Whether a path was one of them.
    used_set: Cell<bool>,
}

impl Context {
    /// What an app of this name has to know, whose paths are relative to `folder`.
    pub fn new(folder: impl Into<PathBuf>, app: impl Into<String>) -> Context {
        Context { folder: folder.into(), app: app.into(), ..Context::default() }
    }

    /// With texts that the command line set: as paths they are relative to the current directory.
    pub(crate) fn with_set(self, set: Vec<String>) -> Context {
        Context { set, ..self }
    }

    /// Whether a path was relative to the current directory since the command line set it.
    pub(crate) fn used_set(&self) -> bool {
        self.used_set.get()
    }

    /// A path of the config, as seen from the current directory: one in a file is relative to the file's folder, one
    /// that the command line set (`--set`) to the current directory.
    pub fn path(&self, path: &Path) -> PathBuf {
        if path.is_absolute() {
            return path.to_owned();
        }
        if path.to_str().is_some_and(|path| self.set.iter().any(|set| set == path)) {
            self.used_set.set(true);
            return path.to_owned();
        }
        self.folder.join(path)
    }
}

/// A value that does not work: at which key, what is wrong, and the way out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct SettingError {
    /// The key whose value is wrong; `None` if it is the whole table.
    pub key: Option<&'static str>,
    /// What is wrong, in one sentence without a full stop.
    pub message: String,
    /// The way out, in one sentence without a full stop; may be empty.
    pub help: String,
}

impl SettingError {
    /// A mistake at a key.
    pub fn at(key: &'static str, message: impl Into<String>, help: impl Into<String>) -> SettingError {
        SettingError { key: Some(key), message: message.into(), help: help.into() }
    }
}
