//! How to measure an app, as the app declares it.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::json;

/// How `bellows bench apps` measures an app. A test of all apps uses it too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BenchSetup {
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
    /// The inputs to link. If empty, all named inputs are linked, or one input if inputs have arbitrary names.
    pub inputs: &'static [&'static str],
    /// The outputs to link. If empty, all named outputs are linked, or one output if outputs have arbitrary names.
    pub outputs: &'static [&'static str],
    /// The packets, as `bellows appbench --traffic` names them. If empty, packets of 60 bytes, all of one flow.
    pub traffic: &'static str,
    /// The tables of the shared objects that keys name, as in a network file. May be empty.
    pub objects: String,
    /// The apps that packets have passed when they come to this one: they change and tag them. Not measured.
    pub before: Vec<BenchStep>,
}

/// An app in front of the measured one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BenchStep {
    /// Its type.
    pub app: String,
    /// Its keys as in an inline table. May be empty.
    pub keys: String,
    /// The input that gets the packets.
    pub input: String,
    /// The output by which they leave.
    pub output: String,
}

impl BenchStep {
    /// A step.
    pub fn new(app: &str, keys: &str, input: &str, output: &str) -> BenchStep {
        let [app, keys, input, output] = [app, keys, input, output].map(str::to_owned);
        BenchStep { app, keys, input, output }
    }
}

impl BenchRow {
    /// Whether the app needs more than its keys: shared objects, or packets that other apps have prepared.
    pub fn has_surroundings(&self) -> bool {
        !self.objects.is_empty() || !self.before.is_empty()
    }

    /// The app of this type with the row's keys, as in a row of apps.
    pub fn app(&self, name: &str) -> String {
        in_a_row(name, &self.keys)
    }
}

/// An app with keys, as in a row of apps: `TYPE(key = value)`.
fn in_a_row(app: &str, keys: &str) -> String {
    if keys.is_empty() { app.to_owned() } else { format!("{app}({keys})") }
}

impl std::fmt::Display for BenchStep {
    /// The app as in a row of apps.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.pad(&in_a_row(&self.app, &self.keys))
    }
}

impl BenchSetup {
    /// A single row with these keys.
    pub fn with_keys(keys: impl Into<String>) -> BenchSetup {
        BenchSetup::Rows(vec![BenchRow { keys: keys.into(), ..BenchRow::default() }])
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
