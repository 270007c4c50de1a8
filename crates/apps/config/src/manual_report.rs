//! Manuals for programs.

use bellows_engine::{Counter, Ports};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value as Json;

/// One key of a table.
#[derive(Clone, Debug, PartialEq, JsonSchema, Serialize)]
#[schemars(title = "Key of a table")]
pub struct ManualKey {
    /// Its name; `table.key` in an inner table, `list[].key` in a list of tables, `table.NAME.key` in a table whose
    /// keys are names.
    ///
    /// The name. A key of an inner table is written as `table.key`, of a list of tables as `list[].key`, and of the
    /// values of a table whose keys are names as `table.NAME.key`.
    pub name: String,
    /// Its meaning; paragraphs have empty lines between them.
    pub description: String,
    /// The type in words, such as `integer 1 to 1,024`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The unit of a number; null without one, or if the type names it.
    pub unit: Option<String>,
    /// The default; null without one, or if it cannot be shown.
    #[schemars(extend("nullable" = true))]
    pub default: Option<Json>,
    /// Whether it must be given.
    pub required: bool,
}

/// The manual of an app, a compound app or a shared object.
#[derive(Clone, Debug, Default, JsonSchema, Serialize)]
#[schemars(title = "Manual")]
pub struct ManualReport {
    /// The type.
    pub name: String,
    /// True for a compound app; absent for others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compound: Option<bool>,
    /// The first sentence of the description.
    pub summary: String,
    /// What it does; paragraphs have empty lines between them.
    pub description: String,
    /// The inputs; absent for a shared object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inputs: Option<PortsReport>,
    /// The outputs; absent for a shared object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outputs: Option<PortsReport>,
    /// The keys of its table.
    pub keys: Vec<ManualKey>,
    /// The drop reasons; absent for a compound app, whose parts have them, and for a shared object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drops: Option<Vec<DropReport>>,
    /// The other counters; absent like `drops`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counters: Option<Vec<CounterReport>>,
    /// The JSON Schema (2020-12) of its table without the key `app`; the unit of a key is in `x-unit`.
    pub schema: Json,
}

/// The ports of one side of an app.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[serde(untagged)]
pub enum PortsReport {
    /// These.
    Named(Vec<PortReport>),
    /// As many as are linked.
    Any(AnyPorts),
}

/// A port of an app.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(title = "Port of an app")]
pub struct PortReport {
    /// Its name.
    pub name: &'static str,
    /// Whether it must be linked.
    pub required: bool,
    /// What packets it takes or sends.
    pub help: &'static str,
}

/// Ports of any name.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(title = "Ports of any name")]
pub struct AnyPorts {
    /// True.
    pub any: bool,
    /// How many must be linked.
    pub at_least: usize,
    /// What packets they take or send.
    pub help: &'static str,
}

impl PortsReport {
    pub(crate) fn of(ports: Ports) -> PortsReport {
        match ports {
            Ports::Named(ports) => PortsReport::Named(
                ports
                    .iter()
                    .map(|port| PortReport { name: port.name, required: port.required, help: port.help })
                    .collect(),
            ),
            Ports::Any { at_least, help } => PortsReport::Any(AnyPorts { any: true, at_least, help }),
        }
    }
}

/// A drop reason of an app.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(title = "Drop reason")]
pub struct DropReport {
    /// Its name.
    pub name: &'static str,
    /// Its meaning.
    pub help: &'static str,
    /// Whether such drops are the purpose of the app; all others are losses, which reports warn about.
    pub asked: bool,
}

impl DropReport {
    pub(crate) fn all(drops: &[Counter]) -> Vec<DropReport> {
        drops.iter().map(|drop| DropReport { name: drop.name, help: drop.help, asked: drop.asked }).collect()
    }
}

/// A counter of an app.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(title = "Counter of an app")]
pub struct CounterReport {
    /// Its name.
    pub name: &'static str,
    /// Its meaning.
    pub help: &'static str,
}

impl CounterReport {
    pub(crate) fn all(counters: &[Counter]) -> Vec<CounterReport> {
        counters.iter().map(|counter| CounterReport { name: counter.name, help: counter.help }).collect()
    }
}

/// The manual of the table `[engine]`, of the tables of workers, and of the keys that every app's table may have.
#[derive(Clone, Debug, JsonSchema, Serialize)]
#[schemars(title = "Manual of the engine")]
pub struct EngineManualReport {
    /// `engine`.
    #[schemars(extend("enum" = ["engine"]))]
    pub name: &'static str,
    /// What the table `[engine]` is for.
    pub description: String,
    /// The keys of the table `[engine]`.
    pub keys: Vec<ManualKey>,
    /// Its JSON Schema.
    pub schema: Json,
    /// The keys of the tables `[workers.NAME]`.
    pub worker_keys: Vec<ManualKey>,
    /// Their JSON Schema.
    pub worker_schema: Json,
    /// The keys that every app's table may have.
    pub common_keys: Vec<ManualKey>,
    /// The JSON Schema of these.
    pub common_schema: Json,
}
