//! Manuals, generated from an app type's schema and ports.

use bellows_engine::{AppInfo, Counter, Ports};
use serde_json::{Value as Json, json};
use unicode_width::UnicodeWidthStr;

use crate::app_keys::common_keys;
use crate::engine::EngineConfig;
use crate::manual_report::{CounterReport, DropReport, EngineManualReport, ManualKey, ManualReport, PortsReport};
use crate::schema::{SchemaShape, schema_of};
use crate::worker::worker_schema;

/// The parts of a manual that all types have whose keys are a schema.
macro_rules! described {
    ($type:ty) => {
        impl $type {
            /// The first sentence of the manual.
            pub fn summary(&self) -> String {
                $crate::manual::summary(&self.description())
            }

            /// The description: the paragraphs of its config's doc comment, separated by empty lines.
            pub fn description(&self) -> String {
                $crate::manual::description(&self.schema)
            }

            /// The keys of its table: required ones first, otherwise in the order of its config.
            pub fn keys(&self) -> Vec<$crate::manual_report::ManualKey> {
                $crate::manual::keys(&self.schema)
            }

            /// The JSON Schema of its table, without the type's name.
            pub fn schema(&self) -> &serde_json::Value {
                &self.schema
            }
        }
    };
}
pub(crate) use described;

/// The keys of a table with this schema and of all tables inside it, required ones first.
pub(crate) fn keys(schema: &Json) -> Vec<ManualKey> {
    SchemaShape::new(schema).keys().iter().map(|(name, shape, table)| key(name, *shape, *table)).collect()
}

/// The key `name` of a table; its last part is its name there.
fn key(name: &str, shape: SchemaShape<'_>, table: SchemaShape<'_>) -> ManualKey {
    let text = |key| shape.annotation(key).and_then(Json::as_str);
    let default = shape.annotation("default").filter(|value| !value.is_null());
    let mut description = reflowed(text("description").unwrap_or(""));
    for (word, meaning) in shape.meanings() {
        description.push_str(&format!("\n- `{word}`: {}", reflowed(meaning).replace('\n', " ")));
    }
    let own_name = name.rsplit('.').next().unwrap_or(name);
    ManualKey {
        name: name.to_owned(),
        description,
        kind: shape.in_short_words(),
        unit: text("x-unit").filter(|_| text("x-type").is_none()).map(str::to_owned),
        default: default.cloned(),
        required: table.required().any(|required| required == own_name),
    }
}

/// The places of tables with the same keys, and these.
struct KeyGroup<'s> {
    paths: Vec<String>,
    table: SchemaShape<'s>,
}

/// All tables with keys inside a table at `path`, and this one.
fn groups<'s>(path: &str, table: SchemaShape<'s>, around: &mut Vec<SchemaShape<'s>>, groups: &mut Vec<KeyGroup<'s>>) {
    match groups.iter_mut().find(|group| group.table.has_keys_of(table)) {
        Some(group) => group.paths.push(path.to_owned()),
        None => groups.push(KeyGroup { paths: vec![path.to_owned()], table }),
    }
    if around.iter().any(|outer| outer.has_keys_of(table)) {
        return;
    }
    around.push(table);
    for (name, shape) in table.own_keys() {
        for (path, inner) in shape.tables(&format!("{path}.{name}")) {
            self::groups(&path, inner, around, groups);
        }
    }
    around.pop();
}

/// A table as its header is written in a network file: `[apps.NAME.sessions.NAME]`, `[[apps.NAME.mix]]` for a list.
fn header(path: &str) -> String {
    let plain = path.replace("[]", "");
    if path.ends_with("[]") { format!("[[{plain}]]") } else { format!("[{plain}]") }
}

/// The description of a table.
pub(crate) fn description(schema: &Json) -> String {
    reflowed(schema.get("description").and_then(Json::as_str).unwrap_or(""))
}

/// The first sentence, without its full stop.
pub(crate) fn summary(description: &str) -> String {
    let first = description.split("\n\n").next().unwrap_or("").replace('\n', " ");
    let sentence = first.split_once(". ").map_or(first.as_str(), |(sentence, _)| sentence);
    sentence.trim_end_matches(['.', ':']).to_owned()
}

/// Whether a line must not be joined to the previous one: part of a list, a table or code, or a heading.
fn stands_alone(line: &str) -> bool {
    let numbered = line.trim_start_matches(|c: char| c.is_ascii_digit());
    line.starts_with(['-', '*', '|', '#', ' ', '\t', '>'])
        || (numbered.len() < line.len() && numbered.starts_with(". "))
}

/// Joins each paragraph into one line; code, lists and tables stay as they are.
fn reflowed(text: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    let mut in_code = false;
    let mut open = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
            open = false;
        } else if in_code {
            lines.push(format!("    {line}"));
        } else if line.trim().is_empty() {
            lines.push(String::new());
            open = false;
        } else if open && !stands_alone(line) {
            if let Some(last) = lines.last_mut() {
                last.push(' ');
                last.push_str(line.trim());
            }
        } else {
            lines.push(line.trim_end().to_owned());
            open = !line.starts_with(['|', '#', ' ', '\t']);
        }
    }
    lines.join("\n").trim_matches('\n').to_owned()
}

/// Appends text, wrapped to the width and indented by `indent` spaces; list items get a hanging indent.
fn wrap(out: &mut String, text: &str, indent: usize, width: usize) {
    let room = width.saturating_sub(indent).max(20);
    for line in text.lines() {
        if line.is_empty() {
            out.push('\n');
            continue;
        }
        let hang = if line.starts_with(['-', '*']) { 2 } else { 0 };
        if line.starts_with(['|', ' ', '\t']) {
            out.push_str(&format!("{:indent$}{line}\n", ""));
            continue;
        }
        let mut used = 0;
        for word in line.split_whitespace() {
            let length = word.width();
            if used == 0 {
                out.push_str(&" ".repeat(indent));
            } else if used + 1 + length > room {
                out.push_str(&format!("\n{:1$}", "", indent + hang));
                used = hang;
            } else {
                out.push(' ');
                used += 1;
            }
            out.push_str(word);
            used += length;
        }
        out.push('\n');
    }
}

/// The ports of one side of a diagram.
fn names(ports: Ports) -> Vec<String> {
    match ports {
        Ports::Named(ports) => ports.iter().map(|port| port.name.to_owned()).collect(),
        Ports::Any { .. } => vec!["any name".to_owned(), "…".to_owned()],
    }
}

/// The app as a box: inputs on the left, outputs on the right.
fn diagram(name: &str, inputs: Ports, outputs: Ports) -> String {
    let (inputs, outputs) = (names(inputs), names(outputs));
    let rows = inputs.len().max(outputs.len()).max(1);
    let left = inputs.iter().map(|name| name.width()).max().unwrap_or(0);
    let inner = name.width() + 4;
    let margin = if left == 0 { 0 } else { left + 3 };
    // The shorter side is centred, as is the name.
    let at = |names: &[String], row: usize| {
        let first = (rows - names.len().min(rows)) / 2;
        row.checked_sub(first).and_then(|index| names.get(index).cloned())
    };
    let mut out = format!("  {:margin$}┌{}┐\n", "", "─".repeat(inner));
    for row in 0..rows {
        let input = match at(&inputs, row) {
            Some(name) => format!("{}{name} ─▶", " ".repeat(left - name.width())),
            None => " ".repeat(margin),
        };
        let middle = if row == (rows - 1) / 2 { name } else { "" };
        let output = at(&outputs, row).map(|name| format!("─▶ {name}")).unwrap_or_default();
        let line = format!("  {input}│{middle:^inner$}│{output}");
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out.push_str(&format!("  {:margin$}└{}┘\n", "", "─".repeat(inner)));
    out
}

/// The ports of one side (`in` or `out`) with their descriptions.
fn port_list(ports: Ports, side: &str) -> Vec<(String, String)> {
    let term = |name: &str| format!("{side:3}  {name}");
    match ports {
        Ports::Named(ports) => ports
            .iter()
            .map(|port| {
                let need = if port.required { "" } else { "optional: " };
                (term(port.name), format!("{need}{}", port.help))
            })
            .collect(),
        Ports::Any { at_least, help } => {
            let least = if at_least > 0 { format!(", at least {at_least}") } else { String::new() };
            vec![(term("any name"), format!("{help} (as many as are linked{least})"))]
        }
    }
}

fn counter_list(counters: &[Counter]) -> Vec<(String, String)> {
    counters.iter().map(|counter| (counter.name.to_owned(), counter.help.to_owned())).collect()
}

/// A section with terms and their meanings in two columns.
fn section(out: &mut String, title: &str, rows: &[(String, String)], width: usize) {
    if rows.is_empty() {
        return;
    }
    out.push_str(&format!("\n{title}\n"));
    let column = 4 + rows.iter().map(|(term, _)| term.width()).max().unwrap_or(0).min(width / 3);
    for (term, meaning) in rows {
        let mut text = String::new();
        wrap(&mut text, meaning, column, width);
        let lead = format!("  {term}");
        if lead.width() + 2 > column {
            out.push_str(&format!("{lead}\n{text}"));
        } else {
            let gap = column - lead.width();
            out.push_str(&format!("{lead}{:gap$}{}", "", text.trim_start_matches(' ')));
        }
    }
}

/// A default as it is written in a network file.
fn written(value: &Json) -> String {
    match value {
        Json::Array(items) => format!("[{}]", items.iter().map(written).collect::<Vec<_>>().join(", ")),
        Json::Object(fields) if fields.is_empty() => "{}".to_owned(),
        Json::Object(fields) => {
            let fields: Vec<String> = fields.iter().map(|(key, value)| format!("{key} = {}", written(value))).collect();
            format!("{{ {} }}", fields.join(", "))
        }
        other => other.to_string(),
    }
}

/// The drop reasons. Those that are the app's purpose are marked.
fn drop_list(drops: &[Counter]) -> Vec<(String, String)> {
    let mut rows = counter_list(drops);
    for ((_, help), _) in rows.iter_mut().zip(drops).filter(|(_, drop)| drop.asked) {
        help.push_str(" (as configured: reports do not warn of it)");
    }
    rows
}

/// The keys of a table, without those of tables inside it.
fn key_list(table: SchemaShape<'_>) -> Vec<(String, String)> {
    let row = |(name, shape)| {
        let ManualKey { name, description, kind, unit, default, required } = key(name, shape, table);
        let unit = unit.map(|unit| format!(", in {unit}")).unwrap_or_default();
        let need = match default {
            _ if required => ", required".to_owned(),
            Some(default) => format!(", default {}", written(&default)),
            None => ", optional".to_owned(),
        };
        (name, format!("{kind}{unit}{need}\n{description}").trim_end().to_owned())
    };
    table.own_keys().into_iter().map(row).collect()
}

/// A section for the table of this schema, with the row `first` before its keys and `title` in place of its header, and
/// one for each table inside it.
fn key_sections(
    out: &mut String,
    path: &str,
    title: Option<&str>,
    schema: &Json,
    first: Option<(&str, &str)>,
    width: usize,
) {
    let mut all = Vec::new();
    groups(path, SchemaShape::new(schema), &mut Vec::new(), &mut all);
    for (index, KeyGroup { paths, table }) in all.iter().enumerate() {
        let headers: Vec<String> = paths.iter().map(|path| header(path)).collect();
        let headers = format!("KEYS of {}", headers.join(",\n        "));
        let (title, first) = if index == 0 { (title, first) } else { (None, None) };
        let mut rows: Vec<(String, String)> =
            first.map(|(key, kind)| (key.to_owned(), format!("\"{kind}\""))).into_iter().collect();
        rows.extend(key_list(*table));
        section(out, title.unwrap_or(&headers), &rows, width);
    }
}

/// The manual of one type of app.
pub(crate) struct AppManual<'a> {
    pub(crate) name: &'static str,
    pub(crate) info: &'a AppInfo,
    /// The JSON Schema of the type's table.
    pub(crate) schema: &'a Json,
}

impl AppManual<'_> {
    /// The manual for a terminal of `width` columns.
    pub(crate) fn text(&self, width: usize) -> String {
        let width = width.max(40);
        let AppManual { name, info, schema } = self;
        let mut out = format!("{name}\n\n");
        wrap(&mut out, &description(schema), 2, width);
        out.push('\n');
        out.push_str(&diagram(name, info.inputs, info.outputs));
        let mut ports = port_list(info.inputs, "in");
        ports.extend(port_list(info.outputs, "out"));
        section(&mut out, "PORTS", &ports, width);
        key_sections(&mut out, "apps.NAME", None, schema, Some(("app", name)), width);
        section(&mut out, "DROPS are counted as", &drop_list(info.drops), width);
        section(&mut out, "COUNTERS", &counter_list(info.counters), width);
        out
    }

    /// The manual as JSON.
    pub(crate) fn json(&self) -> Json {
        let AppManual { name, info, schema } = self;
        let description = description(schema);
        json!(ManualReport {
            name: (*name).to_owned(),
            compound: None,
            summary: summary(&description),
            description,
            inputs: Some(PortsReport::of(info.inputs)),
            outputs: Some(PortsReport::of(info.outputs)),
            keys: keys(schema),
            drops: Some(DropReport::all(info.drops)),
            counters: Some(CounterReport::all(info.counters)),
            schema: (*schema).clone(),
        })
    }
}

/// The manual of one type of compound app.
pub(crate) struct CompoundManual<'a> {
    pub(crate) name: &'static str,
    pub(crate) inputs: Ports,
    pub(crate) outputs: Ports,
    /// The JSON Schema of the type's table.
    pub(crate) schema: &'a Json,
}

/// What is said of every compound app.
const COMPOUND: &str = "A compound app: the network gets its parts instead, each with the name NAME/PART. A table \
                        [apps.NAME.parts.PART] sets keys of one part; the keys that every app has apply to all parts.";

impl CompoundManual<'_> {
    /// The manual for a terminal of `width` columns.
    pub(crate) fn text(&self, width: usize) -> String {
        let width = width.max(40);
        let mut out = format!("{}\n\n", self.name);
        wrap(&mut out, &description(self.schema), 2, width);
        out.push('\n');
        wrap(&mut out, COMPOUND, 2, width);
        out.push('\n');
        out.push_str(&diagram(self.name, self.inputs, self.outputs));
        let mut ports = port_list(self.inputs, "in");
        ports.extend(port_list(self.outputs, "out"));
        section(&mut out, "PORTS", &ports, width);
        key_sections(&mut out, "apps.NAME", None, self.schema, Some(("app", self.name)), width);
        out
    }

    /// The manual as JSON.
    pub(crate) fn json(&self) -> Json {
        let description = description(self.schema);
        json!(ManualReport {
            name: self.name.to_owned(),
            compound: Some(true),
            summary: summary(&description),
            description,
            inputs: Some(PortsReport::of(self.inputs)),
            outputs: Some(PortsReport::of(self.outputs)),
            keys: keys(self.schema),
            schema: self.schema.clone(),
            ..ManualReport::default()
        })
    }
}

/// The manual of a type of shared objects for a terminal of `width` columns.
pub(crate) fn object_text(name: &str, schema: &Json, width: usize) -> String {
    let width = width.max(40);
    let mut out = format!("{}: a shared object, described in a table [objects.NAME]\n\n", name);
    wrap(&mut out, &description(schema), 2, width);
    key_sections(&mut out, "objects.NAME", None, schema, Some(("object", name)), width);
    out
}

/// The same as JSON.
pub(crate) fn object_json(name: &str, schema: &Json) -> Json {
    let description = description(schema);
    json!(ManualReport {
        name: name.to_owned(),
        summary: summary(&description),
        description,
        keys: keys(schema),
        schema: schema.clone(),
        ..ManualReport::default()
    })
}

/// The manual of the table `[engine]`, of the tables of workers, and of the keys that every app's table may have.
#[derive(Clone, Debug)]
pub struct EngineManual {
    schema: Json,
    worker: Json,
    common: Json,
}

/// The manual of the table `[engine]`, of the tables of workers, and of the keys that every app's table may have.
pub fn engine_manual() -> EngineManual {
    EngineManual { schema: schema_of::<EngineConfig>(), worker: worker_schema(), common: common_keys() }
}

impl EngineManual {
    /// The JSON Schema of the table.
    pub fn schema(&self) -> &Json {
        &self.schema
    }

    /// The keys of the table.
    pub fn keys(&self) -> Vec<ManualKey> {
        keys(&self.schema)
    }

    /// The keys of a worker's table.
    pub fn worker_keys(&self) -> Vec<ManualKey> {
        keys(&self.worker)
    }

    /// The keys that every app's table may have.
    pub fn common_keys(&self) -> Vec<ManualKey> {
        keys(&self.common)
    }

    /// The manual for a terminal of `width` columns.
    pub fn text(&self, width: usize) -> String {
        let width = width.max(40);
        let mut out = "[engine]\n\n".to_owned();
        wrap(&mut out, &description(&self.schema), 2, width);
        key_sections(&mut out, "engine", None, &self.schema, None, width);
        out.push_str("\n[workers.NAME]\n\n");
        wrap(&mut out, &description(&self.worker), 2, width);
        let every = Some("KEYS of every [workers.NAME]");
        key_sections(&mut out, "workers.NAME", every, &self.worker, None, width);
        let every = Some("KEYS of every [apps.NAME], besides its app's own");
        key_sections(&mut out, "apps.NAME", every, &self.common, None, width);
        out
    }

    /// The manual as JSON: `name`, `description`, `keys` and `schema`; `worker_keys` and `worker_schema` for the tables
    /// of workers; `common_keys` and `common_schema` for the keys that every app's table may have.
    pub fn json(&self) -> Json {
        json!(EngineManualReport {
            name: "engine",
            description: description(&self.schema),
            keys: self.keys(),
            schema: self.schema.clone(),
            worker_keys: self.worker_keys(),
            worker_schema: self.worker.clone(),
            common_keys: self.common_keys(),
            common_schema: self.common.clone(),
        })
    }
}
