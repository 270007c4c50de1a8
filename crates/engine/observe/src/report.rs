//! Reports of a running engine: the result of a reload, and the states of apps.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The result of a reload.
#[derive(Clone, Debug, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Reloaded {
    /// Apps that continue unchanged.
    pub kept: Vec<String>,
    /// Apps that replaced one of the same name and type.
    pub replaced: Vec<String>,
    /// Apps that had panicked and were restarted.
    #[serde(default)]
    pub revived: Vec<String>,
    /// New apps.
    pub added: Vec<String>,
    /// Removed apps.
    pub removed: Vec<String>,
    /// New links, as written in the file.
    pub links_added: Vec<String>,
    /// Removed links, as written in the file.
    pub links_removed: Vec<String>,
    /// Packets in removed parts.
    pub dropped: u64,
    /// Time from the request until the new network runs.
    #[serde(default)]
    pub swap_ns: u64,
    /// Time without packet movement.
    pub pause_ns: u64,
    /// Apps that could not finish, and the reasons.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(skip)]
    pub unfinished: Vec<(String, String)>,
}

/// The state that a shared object reports.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[schemars(title = "Shared object")]
pub struct ObjectStatus {
    /// Its name.
    pub object: String,
    /// Its type.
    pub kind: String,
    /// Its status; null if the query panicked.
    #[schemars(extend("status_of" = "kind", "nullable" = true))]
    pub status: serde_json::Value,
}

/// The state that an app reports.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[schemars(title = "App with a status")]
pub struct AppStatus {
    /// Its name.
    pub app: String,
    /// Its type.
    pub kind: String,
    /// Its status; null if the query panicked.
    #[schemars(extend("status_of" = "kind", "nullable" = true))]
    pub status: serde_json::Value,
}
