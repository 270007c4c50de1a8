//! How to measure an app, as the app declares it.

use std::path::PathBuf;

use serde_json::json;

/// How `bellows bench apps` measures an app. A test of all apps uses it too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bench {
    /// One row of the table for each entry.
    Rows(Vec<BenchRow>),
    /// Not measured. The text is a clause that gives the reason and an alternative.
    Unmeasured(&'static str),
}

/// One way to measure an app.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BenchRow {
    /// Distinguishes the app's rows, for example `2 outputs`. May be empty.
    pub label: &'static str,
    /// The app's keys as in an inline table: `length = 40`. May be empty.
    pub keys: String,
    /// The outputs to link. If empty, all named outputs are linked, or one output if outputs have arbitrary names.
    pub outputs: &'static [&'static str],
    /// The packets, as `bellows appbench --traffic` names them. If empty, packets of 60 bytes, all of one flow.
    pub traffic: &'static str,
}

impl Bench {
    /// A single row with these keys.
    pub fn with_keys(keys: impl Into<String>) -> Bench {
        Bench::Rows(vec![BenchRow { keys: keys.into(), ..BenchRow::default() }])
    }
}

/// The files that a benchmark provides to an app.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BenchFiles {
    capture: PathBuf,
    written: PathBuf,
}

impl BenchFiles {
    /// A capture to read and a file to write. Both paths are absolute.
    pub fn new(capture: impl Into<PathBuf>, written: impl Into<PathBuf>) -> BenchFiles {
        BenchFiles { capture: capture.into(), written: written.into() }
    }

    /// The path of the capture as a quoted TOML string.
    pub fn capture(&self) -> String {
        json!(self.capture).to_string()
    }

    /// The path of the file to write as a quoted TOML string.
    pub fn written(&self) -> String {
        json!(self.written).to_string()
    }
}
