//! The JSON Schema of a whole network file, for editors, assembled from the schemas of all app types.

use serde_json::{Map, Value as Json, json};

use crate::app_keys::common_keys;
use crate::manual::engine_manual;
use crate::parameters::{network_part_schema, parameter_schema, ports_schema};
use crate::registry::Registry;
use crate::worker::worker_schema;

/// A text that is a variable and nothing else: a value of any type.
const VARIABLE: &str = r"^\$\{[A-Za-z_][A-Za-z0-9_]*(:-[^}]*)?\}$";

/// A text that contains a variable.
const SOME_VARIABLE: &str = r"\$\{[A-Za-z_][A-Za-z0-9_]*(:-[^}]*)?\}";

/// A text that is a parameter of a part's file.
const PARAMETER: &str = r"^\$[A-Za-z_][A-Za-z0-9_-]*$";

/// A link: each end is an app with an optional port.
const LINK: &str = r"^\s*[^\s<>]+\s*->\s*[^\s<>]+\s*$";

/// The name of an app.
const APP_NAME: &str = r"^[^\s<>]+$";

impl Registry {
    /// The JSON Schema (draft 2020-12) of a network file with these app types: the top-level keys, the table
    /// `[engine]`, the tables of workers, and a table for each type of apps and of shared objects, with all descriptions,
    /// units, defaults and ranges. Editors use it for completion and checks.
    ///
    /// It checks single values. Only [`load()`](crate::load()) finds errors that involve several values, or files and
    /// sockets.
    pub fn file_schema(&self) -> Json {
        let mut definitions = Map::new();
        let engine = definition("engine", engine_manual().schema(), &mut definitions);
        definitions.insert("engine".to_owned(), engine);
        let worker = definition("worker", &worker_schema(), &mut definitions);
        definitions.insert("worker".to_owned(), worker);
        let (objects, apps) = (self.objects_schema(&mut definitions), self.apps_schema(&mut definitions));
        json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": "Bellows network",
            "description": "Apps, the links between them, and the engine that runs them.",
            "type": "object",
            "properties": {
                "include": {
                    "description": "Other network files that are part of this one; paths are relative to this file.",
                    "type": "array",
                    "items": { "type": "string", "minLength": 1 },
                },
                "links": links_schema(),
                "engine": { "$ref": "#/$defs/engine" },
                "workers": {
                    "description": "The threads besides the engine's own, each a table [workers.NAME].",
                    "type": "object",
                    "propertyNames": { "pattern": APP_NAME },
                    "additionalProperties": { "$ref": "#/$defs/worker" },
                },
                "objects": objects,
                "apps": apps,
            },
            "additionalProperties": false,
            "$defs": definitions,
        })
    }

    /// The JSON Schema of the file of a part: of a network that an app's table names with `network`. As
    /// [`Registry::file_schema`], but with ports and parameters, and with parameters as values.
    pub fn part_schema(&self) -> Json {
        let mut definitions = Map::new();
        let (objects, apps) = (self.objects_schema(&mut definitions), self.apps_schema(&mut definitions));
        let ports = definition("ports", &ports_schema(), &mut definitions);
        let parameter = definition("parameter", &parameter_schema(), &mut definitions);
        let mut schema = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": "Bellows part of a network",
            "description": "A network that is part of others, which name its file with `network` and link its ports.",
            "type": "object",
            "properties": {
                "links": links_schema(),
                "ports": ports,
                "parameters": {
                    "description": "Values that the network gives with `with`, each a table [parameters.NAME].",
                    "type": "object",
                    "propertyNames": { "pattern": "^[A-Za-z_][A-Za-z0-9_-]*$" },
                    "additionalProperties": parameter,
                },
                "objects": objects,
                "apps": apps,
            },
            "additionalProperties": false,
            "$defs": definitions,
        });
        allow_parameters(&mut schema);
        schema
    }

    /// The schema of the tables of shared objects.
    fn objects_schema(&self, definitions: &mut Map<String, Json>) -> Json {
        let mut objects = Vec::new();
        for entry in self.objects() {
            let name = format!("object.{}", entry.name());
            let mut schema = definition(&name, entry.schema(), definitions);
            schema["properties"]["object"] =
                json!({ "description": entry.summary(), "type": "string", "const": entry.name() });
            let required = schema["required"].as_array().cloned().unwrap_or_default();
            schema["required"] = std::iter::once(json!("object")).chain(required).collect();
            definitions.insert(name.clone(), schema);
            objects.push(json!({ "$ref": format!("#/$defs/{name}") }));
        }
        objects.push(json!({ "properties": { "object": { "pattern": SOME_VARIABLE } } }));
        json!({
            "description": "What several apps share, each a table [objects.NAME].",
            "type": "object",
            "propertyNames": { "pattern": APP_NAME },
            "additionalProperties": {
                "type": "object",
                "properties": { "object": { "description": "The type of the object.", "type": "string" } },
                "required": ["object"],
                "oneOf": objects,
            },
        })
    }

    /// The schema of the tables of apps.
    fn apps_schema(&self, definitions: &mut Map<String, Json>) -> Json {
        let mut types = Vec::new();
        for entry in self.entries() {
            let name = format!("app.{}", entry.name());
            let about = App { name: entry.name(), summary: entry.summary(), description: entry.description() };
            let app = app(about, definition(&name, entry.schema(), definitions), definitions);
            definitions.insert(name.clone(), app);
            types.push(json!({ "$ref": format!("#/$defs/{name}") }));
        }
        for entry in self.compounds() {
            let name = format!("app.{}", entry.name());
            let about = App { name: entry.name(), summary: entry.summary(), description: entry.description() };
            let mut app = app(about, definition(&name, entry.schema(), definitions), definitions);
            app["properties"]["parts"] = keys_of_parts();
            definitions.insert(name.clone(), app);
            types.push(json!({ "$ref": format!("#/$defs/{name}") }));
        }
        let mut file = definition("network", &network_part_schema(), definitions);
        let common = definition("common", &common_keys(), definitions);
        for (key, value) in common["properties"].as_object().into_iter().flatten() {
            file["properties"][key] = value.clone();
        }
        file["properties"]["parts"] = keys_of_parts();
        definitions.insert("network".to_owned(), file);
        types.push(json!({ "$ref": "#/$defs/network" }));
        // If a variable names the app type, neither the type nor its keys are known.
        types.push(json!({ "properties": { "app": { "pattern": SOME_VARIABLE } }, "required": ["app"] }));
        let names = self.names().collect::<Vec<_>>();
        json!({
            "description": "The apps, each a table [apps.NAME].",
            "type": "object",
            "propertyNames": { "pattern": APP_NAME },
            "additionalProperties": {
                "type": "object",
                "properties": {
                    "app": {
                        "description": "The type of the app.",
                        "anyOf": [{ "enum": names }, { "type": "string", "pattern": SOME_VARIABLE }],
                    },
                },
                "oneOf": types,
            },
        })
    }
}

fn links_schema() -> Json {
    json!({
        "description": "Links from outputs to inputs: \"app.output -> other.input\". A port that is the only one on its \
                        side of the app may be omitted.",
        "type": "array",
        "items": { "type": "string", "pattern": format!("{LINK}|{SOME_VARIABLE}") },
    })
}

/// The schema of the keys that a compound app's table sets of single parts.
fn keys_of_parts() -> Json {
    json!({
        "description": "Keys of single parts, each a table [apps.NAME.parts.PART].",
        "type": "object",
        "additionalProperties": { "type": "object" },
    })
}

/// Allows parameters wherever variables are allowed.
fn allow_parameters(schema: &mut Json) {
    match schema {
        Json::Object(fields) => {
            for (key, value) in fields {
                match value {
                    Json::String(pattern) if key == "pattern" => {
                        *pattern = pattern.replace(SOME_VARIABLE, &format!("({SOME_VARIABLE}|{PARAMETER})"));
                    }
                    value => allow_parameters(value),
                }
            }
        }
        Json::Array(items) => items.iter_mut().for_each(allow_parameters),
        _ => {}
    }
}

/// What a schema says of a type of app.
struct App {
    name: &'static str,
    summary: String,
    description: String,
}

/// The schema of one app type's table, including the keys that every app has.
fn app(about: App, own: Json, definitions: &mut Map<String, Json>) -> Json {
    let App { name: called, summary, description } = about;
    let mut schema = own;
    let common = definition("common", &common_keys(), definitions);
    let mut properties = Map::new();
    properties.insert("app".to_owned(), json!({ "description": summary, "type": "string", "const": called }));
    for own in [&schema, &common] {
        for (key, value) in own["properties"].as_object().into_iter().flatten() {
            properties.entry(key).or_insert_with(|| value.clone());
        }
    }
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    let required = std::iter::once(json!("app")).chain(required).collect::<Vec<_>>();
    schema["title"] = json!(called);
    schema["description"] = json!(description);
    schema["type"] = json!("object");
    schema["properties"] = Json::Object(properties);
    schema["required"] = json!(required);
    schema
}

/// Embeds a type's schema into the document: moves its own definitions to the top level, and allows variables as
/// values.
fn definition(name: &str, schema: &Json, definitions: &mut Map<String, Json>) -> Json {
    let mut schema = schema.clone();
    let inner = schema.as_object_mut().and_then(|schema| {
        schema.remove("$schema");
        schema.remove("$defs")
    });
    for (key, mut value) in inner.as_ref().and_then(Json::as_object).cloned().into_iter().flatten() {
        refer(&mut value, name);
        definitions.insert(format!("{name}.{key}"), with_variables(value));
    }
    refer(&mut schema, name);
    // The table itself cannot be a variable.
    tables(schema)
}

/// Rewrites references within a type's document for the whole document.
fn refer(schema: &mut Json, name: &str) {
    match schema {
        Json::Object(fields) => {
            for (key, value) in fields {
                match value {
                    Json::String(target) if key == "$ref" => {
                        *target = match target.strip_prefix("#/$defs/") {
                            Some(inner) => format!("#/$defs/{name}.{inner}"),
                            None => format!("#/$defs/{name}"),
                        };
                    }
                    value => refer(value, name),
                }
            }
        }
        Json::Array(items) => items.iter_mut().for_each(|item| refer(item, name)),
        _ => {}
    }
}

/// Allows variables for the values of a table.
fn tables(mut schema: Json) -> Json {
    for key in ["properties", "patternProperties"] {
        for value in schema.get_mut(key).and_then(Json::as_object_mut).into_iter().flat_map(Map::values_mut) {
            *value = with_variables(value.take());
        }
    }
    if let Some(values) = schema.get_mut("additionalProperties")
        && values.is_object()
    {
        *values = with_variables(values.take());
    }
    schema
}

/// Allows a variable in place of a value, and removes `null`, which TOML does not have.
fn with_variables(schema: Json) -> Json {
    let mut schema = described(tables(schema));
    if let Some(items) = schema.get_mut("items") {
        *items = with_variables(items.take());
    }
    let Some(fields) = schema.as_object_mut() else { return schema };
    if fields.get("default") == Some(&Json::Null) {
        fields.remove("default");
    }
    for key in ["anyOf", "oneOf"] {
        let Some(variants) = fields.get_mut(key).and_then(Json::as_array_mut) else { continue };
        variants.retain(|variant| variant.get("type").and_then(Json::as_str) != Some("null"));
        // The variable is allowed once, outside the variants.
        variants.iter_mut().for_each(|variant| *variant = tables(variant.take()));
        return or_variable(schema, VARIABLE);
    }
    if fields.contains_key("$ref") || fields.contains_key("allOf") {
        return or_variable(schema, VARIABLE);
    }
    if fields.contains_key("const") || fields.contains_key("enum") {
        if let Some(words) = fields.get_mut("enum").and_then(Json::as_array_mut) {
            words.retain(|word| !word.is_null());
        }
        drop_null(fields);
        return or_variable(schema, SOME_VARIABLE);
    }
    drop_null(fields);
    let types: Vec<Json> = match fields.get("type") {
        Some(Json::Array(types)) => types.clone(),
        Some(one) => vec![one.clone()],
        None => return schema,
    };
    if types.contains(&json!("string")) {
        if let Some(Json::String(pattern)) = fields.get_mut("pattern") {
            *pattern = format!("{pattern}|{SOME_VARIABLE}");
        }
        return schema;
    }
    fields.insert("type".to_owned(), types.into_iter().chain([json!("string")]).collect());
    fields.insert("pattern".to_owned(), json!(VARIABLE));
    schema
}

/// Removes `null` from a type.
fn drop_null(fields: &mut Map<String, Json>) {
    if let Some(Json::Array(types)) = fields.get_mut("type") {
        types.retain(|name| name != "null");
        if let [one] = &types[..] {
            let one = one.clone();
            fields.insert("type".to_owned(), one);
        }
    }
}

/// Allows either the schema or a text with a variable; moves the annotations to the outer schema.
fn or_variable(mut schema: Json, pattern: &str) -> Json {
    let mut outer = Map::new();
    if let Some(fields) = schema.as_object_mut() {
        for key in ["title", "description", "default", "examples", "x-unit", "x-type"] {
            outer.extend(fields.remove(key).map(|value| (key.to_owned(), value)));
        }
    }
    outer.insert("anyOf".to_owned(), json!([schema, { "type": "string", "pattern": pattern }]));
    Json::Object(outer)
}

/// Appends the unit to the schema's description.
fn described(mut schema: Json) -> Json {
    let unit = schema.get("x-unit").and_then(Json::as_str).filter(|_| schema.get("x-type").is_none());
    let text = schema.get("description").and_then(Json::as_str);
    if let (Some(unit), Some(text)) = (unit, text) {
        schema["description"] = json!(format!("{text}\n\nIn {unit}."));
    }
    schema
}
