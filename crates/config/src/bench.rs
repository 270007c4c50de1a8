//! What an app says of how to measure it.

use std::path::PathBuf;

use serde_json::json;

/// How `bellows bench apps` measures an app; a test of all apps moves packets through it in the same way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bench {
    /// One line of the table for each.
    Rows(Vec<BenchRow>),
    /// It is not measured: a clause that says why, and what to do instead.
    Unmeasured(&'static str),
}

/// One way to measure an app.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BenchRow {
    /// What tells it from the app's other rows, such as `2 outputs`; may be empty.
    pub label: &'static str,
    /// The app's keys as in an inline table: `length = 40`. May be empty.
    pub keys: String,
    /// The outputs that are linked; where none is named, all of them, or one if they may have any names.
    pub outputs: &'static [&'static str],
}

impl Bench {
    /// One row with these keys.
    pub fn with_keys(keys: impl Into<String>) -> Bench {
        Bench::Rows(vec![BenchRow { keys: keys.into(), ..BenchRow::default() }])
    }
}

/// Files that an app may be measured with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BenchFiles {
    capture: PathBuf,
    written: PathBuf,
}

impl BenchFiles {
    /// A capture to read, and a file that may be written. Both paths are absolute.
    pub fn new(capture: impl Into<PathBuf>, written: impl Into<PathBuf>) -> BenchFiles {
        BenchFiles { capture: capture.into(), written: written.into() }
    }

    /// The path of the capture, in quotes for a key.
    pub fn capture(&self) -> String {
        json!(self.capture).to_string()
    }

    /// The path of the file to write, in quotes for a key.
    pub fn written(&self) -> String {
        json!(self.written).to_string()
    }
}
