//! Reports of a running engine: the result of a reload, and the states of apps.

use serde::{Deserialize, Serialize};

/// The result of a reload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reloaded {
    /// Apps that continue unchanged.
    pub kept: Vec<String>,
    /// Apps that replaced one of the same name and type.
    pub replaced: Vec<String>,
    /// Apps that had panicked and were started again.
    #[serde(default)]
    pub revived: Vec<String>,
    /// Apps that are new.
    pub added: Vec<String>,
    /// Apps that were removed.
    pub removed: Vec<String>,
    /// Links that are new.
    pub links_added: Vec<String>,
    /// Links that were removed.
    pub links_removed: Vec<String>,
    /// Packets in removed apps and links.
    pub dropped: u64,
    /// The time from the request to the swap, in nanoseconds.
    #[serde(default)]
    pub swap_ns: u64,
    /// The time without a breath, in nanoseconds.
    pub pause_ns: u64,
    /// Apps that could not finish, and the reasons.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unfinished: Vec<(String, String)>,
}

/// The state that a shared object reports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectStatus {
    /// The object.
    pub object: String,
    /// Its type.
    pub kind: String,
    /// Its state.
    pub status: serde_json::Value,
}

/// The state that an app reports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppStatus {
    /// The app.
    pub app: String,
    /// Its type.
    pub kind: String,
    /// Its state; null if it panicked.
    pub status: serde_json::Value,
}
