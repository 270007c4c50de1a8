//! The parameters of a network that is part of others: their types, and the schema of their values.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json, json};

use crate::schema::schema_of;
use crate::spanned::{self, Node};
use crate::units::{Bytes, Duration, Fraction, TrafficRate};

/// A parameter of a network that is part of others. In the file, the text `"$NAME"` stands for its value, and `${NAME}`
/// within a text for the same as text.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Parameter {
    /// The type of its value.
    #[serde(rename = "type")]
    pub(crate) kind: ParameterType,
    /// Its value if `with` gives none. Without a default, `with` must give a value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    default: Option<Json>,
    /// Whether it may have no value. Then keys that are set to it are left out.
    #[serde(default)]
    pub(crate) optional: bool,
    /// What it means.
    #[serde(default)]
    pub(crate) doc: String,
}

/// The type of a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ParameterType {
    /// Any text.
    Text,
    /// The path of a file or folder, relative to the file that gives it.
    Path,
    /// An integer.
    Integer,
    /// A number.
    Number,
    /// `true` or `false`.
    Boolean,
    /// A duration such as `"10ms"`.
    Duration,
    /// A rate of traffic such as `"1.5Mpps"` or `"10Gb/s"`.
    Rate,
    /// A number of bytes such as `"64KiB"`.
    Bytes,
    /// A number from 0 to 1, or a percentage such as `"1%"`.
    Fraction,
    /// A list.
    List,
    /// A table.
    Table,
    /// Any value: only the key that it is used for decides.
    Any,
}

impl ParameterType {
    /// The JSON Schema of its values.
    fn schema(self) -> Json {
        let mut schema = match self {
            ParameterType::Text | ParameterType::Path => json!({ "type": "string" }),
            ParameterType::Integer => json!({ "type": "integer" }),
            ParameterType::Number => json!({ "type": "number" }),
            ParameterType::Boolean => json!({ "type": "boolean" }),
            ParameterType::List => json!({ "type": "array" }),
            ParameterType::Table => json!({ "type": "object" }),
            ParameterType::Any => json!({}),
            ParameterType::Duration => schema_of::<Duration>(),
            ParameterType::Rate => schema_of::<TrafficRate>(),
            ParameterType::Bytes => schema_of::<Bytes>(),
            ParameterType::Fraction => schema_of::<Fraction>(),
        };
        if let Some(fields) = schema.as_object_mut() {
            fields.remove("$schema");
        }
        schema
    }

    /// Reads a value as serde does, for errors that the schema cannot express.
    pub(crate) fn read(self, node: &Node) -> Result<(), spanned::Error> {
        match self {
            ParameterType::Duration => Duration::deserialize(node).map(drop),
            ParameterType::Rate => TrafficRate::deserialize(node).map(drop),
            ParameterType::Bytes => Bytes::deserialize(node).map(drop),
            ParameterType::Fraction => Fraction::deserialize(node).map(drop),
            _ => Ok(()),
        }
    }
}

/// The JSON Schema of a table with values of these parameters. `required` says whether values may be left out.
pub(crate) fn values_schema<'p>(parameters: impl Iterator<Item = (&'p str, ParameterType, &'p str, bool)>) -> Json {
    let (mut properties, mut needed) = (Map::new(), Vec::new());
    for (name, kind, doc, required) in parameters {
        let mut schema = kind.schema();
        if !doc.is_empty() {
            schema["description"] = json!(doc);
        }
        properties.insert(name.to_owned(), schema);
        if required {
            needed.push(name);
        }
    }
    json!({ "type": "object", "properties": properties, "required": needed, "additionalProperties": false })
}

/// The ports of a network that is part of others: for each name the port of an app, `"app.port"`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct PortTables {
    /// Names of inputs, each with the app's input that it stands for: `"app.input"`.
    inputs: BTreeMap<String, String>,
    /// Names of outputs, each with the app's output that it stands for: `"app.output"`.
    outputs: BTreeMap<String, String>,
}

/// The table of an app that a file describes, besides the keys that every app has.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NetworkPart {
    /// The file that describes the parts: their links and apps, the ports that links can name, and parameters. The path
    /// is relative to this file.
    #[schemars(length(min = 1))]
    network: String,
    /// Values of the file's parameters.
    #[serde(default)]
    with: BTreeMap<String, Json>,
}

/// The JSON Schema of a parameter's table.
pub(crate) fn parameter_schema() -> Json {
    schema_of::<Parameter>()
}

/// The JSON Schema of the table of ports.
pub(crate) fn ports_schema() -> Json {
    schema_of::<PortTables>()
}

/// The JSON Schema of the table of an app that a file describes.
pub(crate) fn network_part_schema() -> Json {
    schema_of::<NetworkPart>()
}
