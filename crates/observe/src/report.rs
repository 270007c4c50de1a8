//! What a running engine answers when it is asked: what a reload did, and what apps tell of themselves.

use serde::{Deserialize, Serialize};

/// What a reload did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reloaded {
    /// Apps that run on as they were.
    pub kept: Vec<String>,
    /// Apps that took the place of one of the same name and type.
    pub replaced: Vec<String>,
    /// Apps that had panicked and were started again.
    #[serde(default)]
    pub revived: Vec<String>,
    /// Apps that are new.
    pub added: Vec<String>,
    /// Apps that are gone.
    pub removed: Vec<String>,
    /// Links that are new.
    pub links_added: Vec<String>,
    /// Links that are gone.
    pub links_removed: Vec<String>,
    /// Packets that were in what is gone.
    pub dropped: u64,
    /// From the request to the moment when the new configuration ran, in nanoseconds.
    #[serde(default)]
    pub swap_ns: u64,
    /// How long no breath was taken, in nanoseconds.
    pub pause_ns: u64,
    /// Apps that could not finish, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unfinished: Vec<(String, String)>,
}

/// What an app tells of itself: its state in its own words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppStatus {
    /// The app.
    pub app: String,
    /// Its type.
    pub kind: String,
    /// What it says; null if it panicked over it.
    pub status: serde_json::Value,
}
