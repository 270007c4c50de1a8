//! Forms that are read from the JSON schemas of types: what a type derives beside its serialization describes it here.
//!
//! The title of an object's schema is the form's title. The first paragraph of a field's documentation is the meaning of
//! its key; words of an enum that it does not name follow it, each with its own documentation. A key that may be left out
//! is never null, unless its schema says `nullable`. The keys of the forms in `includes` are those of flattened fields.
//! A value with `status_of` is the status of the app or object whose type that key gives. A variant of an enum with a title
//! is a form of its own; the title of the enum is that of its other variants.

use std::any::TypeId;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use bellows_config::OutputSchema;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::{Form, Key, Kind, sections, states};

/// A type whose schema describes JSON that is printed, or that is read as a request.
#[derive(Clone, Copy, Debug)]
pub struct Described {
    schema: OutputSchema,
    is_request: bool,
}

/// The JSON that values of a type are printed as.
pub(super) const fn schema_of<T: JsonSchema + 'static>() -> Kind {
    printed(OutputSchema::of::<T>())
}

/// The JSON that a schema of what is printed describes.
pub(super) const fn printed(schema: OutputSchema) -> Kind {
    Kind::Described(Described { schema, is_request: false })
}

/// The JSON that is read as requests of a type, of which more keys may be absent.
pub(super) const fn request_of<T: JsonSchema + 'static>() -> Kind {
    Kind::Described(Described { schema: OutputSchema::of::<T>(), is_request: true })
}

/// What the schema of a type says.
pub(super) fn kind(described: Described) -> Kind {
    schemas().kind_of(described)
}

/// The form of an object by the path of its schema.
pub(super) fn form(name: &'static str) -> &'static Form {
    schemas().form(name)
}

/// The folders of the definitions of what is printed, and of requests.
const DEFINITIONS: &str = "$defs";
const REQUESTS: &str = "requests";

/// All schemas of the reference, and what was read from them, which lives as long as the process.
struct Schemas {
    /// Of what is printed.
    generator: SchemaGenerator,
    /// Of requests.
    requests: SchemaGenerator,
    kinds: HashMap<(TypeId, bool), Kind>,
    forms: BTreeMap<&'static str, &'static Form>,
}

static SCHEMAS: LazyLock<Mutex<Schemas>> = LazyLock::new(|| {
    let mut schemas = Schemas::default();
    // All types first: a form may include one of a later section.
    let statuses = states::all().into_iter().flat_map(Kind::described);
    for described in sections().flat_map(|section| section.described()).chain(statuses) {
        schemas.add(described);
    }
    Mutex::new(schemas)
});

fn schemas() -> MutexGuard<'static, Schemas> {
    SCHEMAS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Default for Schemas {
    fn default() -> Schemas {
        let generator = SchemaSettings::draft2020_12().for_serialize().into_generator();
        let settings = SchemaSettings::draft2020_12().for_deserialize();
        let requests = settings.with(|settings| settings.definitions_path = format!("/{REQUESTS}").into());
        Schemas { generator, requests: requests.into_generator(), kinds: HashMap::new(), forms: BTreeMap::new() }
    }
}

impl Schemas {
    fn add(&mut self, Described { schema, is_request }: Described) -> Schema {
        schema.add_to(if is_request { &mut self.requests } else { &mut self.generator })
    }

    fn kind_of(&mut self, described: Described) -> Kind {
        let id = (described.schema.type_id(), described.is_request);
        if let Some(kind) = self.kinds.get(&id) {
            return *kind;
        }
        let schema = self.add(described);
        let kind = self.kind(schema.as_value());
        self.kinds.insert(id, kind);
        kind
    }

    /// The schema of a path: that of a definition, or of a variant of it.
    fn definition(&self, path: &str) -> &Value {
        let (folder, name) = path.split_once('/').unwrap_or_default();
        let (name, variant) = name.split_once('/').map_or((name, None), |(name, variant)| (name, Some(variant)));
        let generator = if folder == REQUESTS { &self.requests } else { &self.generator };
        let definition = generator.definitions().get(name).unwrap_or_else(|| panic!("no type has the schema {path}"));
        let Some(variant) = variant else { return definition };
        let variant = variant.parse().ok().and_then(|place: usize| alternatives(definition)?.get(place));
        variant.unwrap_or_else(|| panic!("no variant has the schema {path}"))
    }

    /// The form of an object by the path of its schema.
    fn form(&mut self, name: &'static str) -> &'static Form {
        if let Some(form) = self.forms.get(name) {
            return form;
        }
        let form = kept(self.read(name));
        self.forms.insert(name, form);
        form
    }

    fn read(&self, name: &str) -> Form {
        let schema = self.definition(name).clone();
        let title = title(&schema).unwrap_or_else(|| panic!("the schema {name} has no title"));
        let included = texts(&schema["includes"]);
        let includes: Vec<&'static str> = included.iter().map(|title| self.named(title)).collect();
        let included: BTreeSet<String> = includes.iter().flat_map(|name| self.names_of_keys(name)).collect();
        let all = self.variant(&schema).unwrap_or_else(|| panic!("the schema {name} is not that of an object"));
        let own = all.iter().filter(|property| !included.contains(&property.name));
        let keys: Vec<Key> = own.map(|property| self.key(property)).collect();
        Form {
            title: kept_text(title),
            includes: kept_list(includes.into_iter().map(Kind::Named).collect()),
            keys: kept_list(keys),
        }
    }

    /// The path of the schema with this title.
    fn named(&self, wanted: &str) -> &'static str {
        let mut found = self.generator.definitions().iter().filter(|(_, schema)| title(schema) == Some(wanted));
        let name = found.next().map(|(name, _)| kept_text(&format!("{DEFINITIONS}/{name}")));
        name.unwrap_or_else(|| panic!("no schema has the title {wanted}"))
    }

    fn names_of_keys(&self, name: &str) -> Vec<String> {
        let properties = self.properties(self.definition(name)).unwrap_or_default();
        properties.into_iter().map(|property| property.name).collect()
    }

    /// The properties of an object. If it is one of several, as an enum with a tag is, those of all without a title of their
    /// own, which may be absent unless all have them.
    fn properties(&self, schema: &Value) -> Option<Vec<Property>> {
        let required = texts(&schema["required"]);
        let property = |(name, schema): (&String, &Value)| Property {
            name: name.clone(),
            schema: schema.clone(),
            is_required: required.contains(&name.as_str()),
        };
        let own = schema["properties"].as_object().map(|own| own.iter().map(property).collect::<Vec<_>>());
        let referred = reference(schema).and_then(|name| self.properties(self.definition(name)));
        let untitled = |variants: &Vec<Value>| -> Option<Vec<Vec<Property>>> {
            variants.iter().filter(|schema| title(schema).is_none()).map(|schema| self.variant(schema)).collect()
        };
        let variants = alternatives(schema).map(untitled);
        let merged = match variants {
            Some(None) => return None,
            Some(Some(variants)) => Some(merged(variants)),
            None => None,
        };
        let parts: Vec<Vec<Property>> = [merged, own, referred].into_iter().flatten().collect();
        (!parts.is_empty()).then(|| parts.into_iter().flatten().collect())
    }

    /// The properties of a variant, whose meaning is that of the word or the only key that names it.
    fn variant(&self, schema: &Value) -> Option<Vec<Property>> {
        let mut properties = self.properties(schema)?;
        let is_alone = properties.len() == 1 && alternatives(schema).is_none();
        let tags = properties.iter_mut().filter(|property| is_alone || property.schema.get("const").is_some());
        for tag in tags {
            if let (Some(tag), Some(meaning)) = (tag.schema.as_object_mut(), schema.get("description")) {
                tag.entry("description").or_insert_with(|| meaning.clone());
            }
        }
        Some(properties)
    }

    fn key(&self, Property { name, schema, is_required }: &Property) -> Key {
        let (is_required, (mut schema, is_null)) = (*is_required, without_null(schema));
        if schema.get("const").is_some() {
            // The documentation is that of the only word.
            schema = json!({ "oneOf": [schema] });
        }
        let kind = self.kind(&schema);
        Key {
            name: kept_text(name),
            kind,
            meaning: kept_text(&meaning(&schema, &self.words(&schema))),
            is_nullable: is_null && is_required || schema["nullable"] == true,
            is_optional: !is_required,
        }
    }

    /// The type of the values of a schema.
    fn kind(&self, schema: &Value) -> Kind {
        if let Some(path) = reference(schema) {
            return self.referred(path);
        }
        let (schema, is_null) = without_null(schema);
        if is_null {
            return Kind::OrNull(kept(self.kind(&schema)));
        }
        if schema.get("status_of").is_some() {
            return Kind::Status;
        }
        if let Some(words) = words_of(&schema) {
            let words = words.into_iter().map(|(word, _)| kept_text(&word)).collect();
            return Kind::Word(kept_list(words));
        }
        assert!(schema.get("properties").is_none(), "an object has no title: {schema}");
        if let Some(kinds) = alternatives(&schema) {
            return Kind::Either(kept_list(kinds.iter().map(|schema| self.kind(schema)).collect()));
        }
        match schema["type"].as_str() {
            Some("string") => Kind::Text,
            Some("integer") => Kind::Integer,
            Some("number") => Kind::Decimal,
            Some("boolean") => Kind::Flag,
            Some("array") => self.list(&schema),
            Some("object") => Kind::Map(kept(self.values(&schema))),
            Some(other) => panic!("{other} in {schema}"),
            None => Kind::Any,
        }
    }

    /// The type of a definition. Variants with titles are forms of their own.
    fn referred(&self, path: &str) -> Kind {
        let definition = self.definition(path);
        let variants = alternatives(definition).map_or(&[][..], Vec::as_slice);
        let titled = variants.iter().enumerate().filter(|(_, schema)| title(schema).is_some());
        let own: Vec<Kind> = titled.map(|(place, _)| Kind::Named(kept_text(&format!("{path}/{place}")))).collect();
        let others = title(definition).map(|_| Kind::Named(kept_text(path)));
        if own.is_empty() {
            return others.unwrap_or_else(|| self.kind(definition));
        }
        Kind::Either(kept_list(others.into_iter().chain(own).collect()))
    }

    fn list(&self, schema: &Value) -> Kind {
        let count = |key: &str| schema[key].as_u64();
        let items: Vec<&Value> = match (&schema["prefixItems"], count("minItems"), count("maxItems")) {
            (Value::Array(items), ..) => items.iter().collect(),
            (_, Some(least), Some(most)) if least == most => (0..most).map(|_| &schema["items"]).collect(),
            _ => return Kind::List(kept(self.kind(&schema["items"]))),
        };
        Kind::Tuple(kept_list(items.into_iter().map(|schema| self.kind(schema)).collect()))
    }

    /// The type of the values of an object whose keys are names.
    fn values(&self, schema: &Value) -> Kind {
        let patterns = schema["patternProperties"].as_object().and_then(|patterns| patterns.values().next());
        self.kind(patterns.unwrap_or(&schema["additionalProperties"]))
    }

    /// The words of a schema, or of the values in its lists, each with its meaning.
    fn words(&self, schema: &Value) -> Vec<(String, Option<String>)> {
        let (schema, _) = without_null(schema);
        if let Some(name) = reference(&schema) {
            let definition = self.definition(name);
            return if title(definition).is_some() { Vec::new() } else { self.words(definition) };
        }
        let items = || schema.get("items").map(|items| self.words(items));
        words_of(&schema).or_else(items).unwrap_or_default()
    }
}

/// A key of an object, with the schema of its value.
struct Property {
    name: String,
    schema: Value,
    is_required: bool,
}

/// The properties of values of which each has those of one of these lists.
fn merged(variants: Vec<Vec<Property>>) -> Vec<Property> {
    let count = variants.len();
    let mut all: Vec<(Property, Vec<Value>)> = Vec::new();
    for Property { name, schema, is_required } in variants.into_iter().flatten() {
        match all.iter_mut().find(|(known, _)| known.name == name) {
            Some((known, schemas)) => {
                known.is_required &= is_required;
                schemas.push(schema);
            }
            None => all.push((Property { name, schema: Value::Null, is_required }, vec![schema])),
        }
    }
    let one = |(property, schemas): (Property, Vec<Value>)| {
        let is_required = property.is_required && schemas.len() == count;
        Property { name: property.name, schema: any_of(schemas), is_required }
    };
    all.into_iter().map(one).collect()
}

/// The schema of values that fit one of these.
fn any_of(schemas: Vec<Value>) -> Value {
    if schemas.iter().all(|schema| schema.get("const").is_some()) {
        return json!({ "oneOf": schemas });
    }
    let (mut meanings, mut kinds, mut may_be_null) = (Vec::new(), Vec::new(), false);
    for schema in &schemas {
        let (mut kind, is_null) = without_null(schema);
        let meaning = kind.as_object_mut().and_then(|kind| kind.remove("description"));
        let meaning = meaning.as_ref().and_then(Value::as_str).map(|meaning| first_paragraph(meaning).to_owned());
        meanings.extend(meaning.filter(|meaning| !meanings.contains(meaning)));
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
        may_be_null |= is_null;
    }
    let mut schema = match &kinds[..] {
        [Value::Object(only)] => only.clone(),
        _ => Map::from_iter([("anyOf".to_owned(), json!(kinds))]),
    };
    schema.insert("description".to_owned(), json!(meanings.join(" ")));
    if may_be_null {
        schema.insert("nullable".to_owned(), json!(true));
    }
    Value::Object(schema)
}

fn first_paragraph(documentation: &str) -> &str {
    documentation.split("\n\n").next().unwrap_or_default()
}

fn title(schema: &Value) -> Option<&str> {
    schema.get("title")?.as_str()
}

fn texts(list: &Value) -> Vec<&str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

fn reference(schema: &Value) -> Option<&str> {
    schema.get("$ref")?.as_str()?.strip_prefix("#/")
}

/// A schema without null, and whether null was one of its values.
fn without_null(schema: &Value) -> (Value, bool) {
    let is_null = |schema: &Value| schema["type"] == "null";
    let mut schema = schema.clone();
    let Some(object) = schema.as_object_mut() else { return (schema, false) };
    if let Some(Value::Array(types)) = object.get_mut("type") {
        let count = types.len();
        types.retain(|name| name != "null");
        let has_null = types.len() < count;
        if let [only] = &types[..] {
            let only = only.clone();
            object.insert("type".to_owned(), only);
        }
        if let Some(Value::Array(words)) = object.get_mut("enum") {
            words.retain(|word| !word.is_null());
        }
        return (schema, has_null);
    }
    for key in ["anyOf", "oneOf"] {
        let Some(Value::Array(kinds)) = object.get_mut(key) else { continue };
        let count = kinds.len();
        kinds.retain(|kind| !is_null(kind));
        let has_null = kinds.len() < count;
        if let [only] = &kinds[..]
            && has_null
        {
            let only = only.as_object().cloned().unwrap_or_default();
            object.remove(key);
            let own = only.into_iter().filter(|(name, _)| !object.contains_key(name)).collect::<Map<_, _>>();
            object.extend(own);
        }
        return (schema, has_null);
    }
    (schema, false)
}

/// The schemas of which a value has one.
fn alternatives(schema: &Value) -> Option<&Vec<Value>> {
    ["anyOf", "oneOf"].iter().find_map(|key| schema.get(key)?.as_array())
}

/// The words that a schema allows, each with its meaning, if it allows nothing else.
fn words_of(schema: &Value) -> Option<Vec<(String, Option<String>)>> {
    let meaning = schema["description"].as_str().map(sentence);
    let word = |word: &Value| Some((word.as_str()?.to_owned(), None));
    if let Some(constant) = schema.get("const") {
        return Some(vec![(constant.as_str()?.to_owned(), meaning)]);
    }
    if let Some(words) = schema.get("enum") {
        return words.as_array()?.iter().map(word).collect();
    }
    let words: Option<Vec<_>> = alternatives(schema)?.iter().map(words_of).collect();
    words.map(|words| words.concat())
}

/// The meaning of a key.
fn meaning(schema: &Value, words: &[(String, Option<String>)]) -> String {
    let text = schema["description"].as_str().map(sentence).unwrap_or_default();
    let unnamed: Vec<String> = words
        .iter()
        .filter(|(word, _)| !text.contains(&format!("`{word}`")))
        .map(|(word, meaning)| match meaning {
            Some(meaning) => format!("`{word}` ({meaning})"),
            None => format!("`{word}`"),
        })
        .collect();
    let before = if text.is_empty() || unnamed.is_empty() { text } else { text + ": " };
    match &unnamed[..] {
        [] => before,
        [only] => before + only,
        [first @ .., last] => format!("{before}{} or {last}", first.join(", ")),
    }
}

/// Names that also have a capital letter within a sentence. Those with several capitals need no list.
const PROPER_NAMES: &[&str] = &["Bellows", "Debian", "Ethernet", "Linux", "Prometheus", "Rust", "Toeplitz"];

/// The first paragraph of documentation as a part of a sentence.
fn sentence(documentation: &str) -> String {
    let paragraph = first_paragraph(documentation).replace('\n', " ");
    let text = paragraph.trim().trim_end_matches('.');
    let first_word = text.split(|letter: char| !letter.is_alphanumeric()).next().unwrap_or_default();
    if PROPER_NAMES.contains(&first_word) {
        return text.to_owned();
    }
    let mut letters = text.chars();
    match (letters.next(), letters.next()) {
        (Some(first), Some(second)) if second.is_lowercase() || second == ' ' => {
            first.to_lowercase().chain(text.chars().skip(1)).collect()
        }
        _ => text.to_owned(),
    }
}

fn kept<T>(value: T) -> &'static T {
    Box::leak(Box::new(value))
}

fn kept_list<T>(values: Vec<T>) -> &'static [T] {
    values.leak()
}

fn kept_text(text: &str) -> &'static str {
    text.to_owned().leak()
}

#[cfg(test)]
mod tests {
    //! What is read from schemas.

    use serde::Serialize;

    use super::*;

    /// What it is about.
    #[derive(JsonSchema, Serialize)]
    #[schemars(title = "Common keys")]
    struct Common {
        /// Its name.
        name: String,
    }

    #[derive(JsonSchema, Serialize)]
    #[serde(rename_all = "kebab-case")]
    #[expect(dead_code, reason = "only its schema is read")]
    enum End {
        /// All is done.
        Done,
        /// It was ended.
        StoppedEarly,
    }

    #[derive(JsonSchema, Serialize)]
    #[schemars(title = "Part of a whole")]
    struct Part {
        /// How large it is, in
        /// bytes.
        ///
        /// What only readers of the code need.
        size: u64,
        /// More of them.
        parts: Vec<Part>,
    }

    #[derive(JsonSchema, Serialize)]
    #[schemars(title = "Example of a whole", extend("includes" = ["Common keys"]))]
    struct Whole {
        #[serde(flatten)]
        common: Common,
        /// How it ended.
        end: Option<End>,
        /// `done`, or early.
        ends: Vec<End>,
        /// MAC addresses.
        #[serde(skip_serializing_if = "Option::is_none")]
        addresses: Option<Vec<String>>,
        /// A share.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schemars(extend("nullable" = true))]
        share: Option<Option<f64>>,
        /// The part.
        part: Option<Part>,
        /// Two of them.
        pair: (u64, Option<bool>),
        /// By number.
        numbers: BTreeMap<u64, [f64; 2]>,
        /// Whatever it is.
        any: Value,
    }

    /// One of two.
    #[derive(JsonSchema, Serialize)]
    #[schemars(title = "Example of a choice")]
    #[serde(tag = "what", rename_all = "kebab-case")]
    #[expect(dead_code, reason = "only its schema is read")]
    enum Choice {
        /// All of it.
        Whole {
            /// Of all: the number.
            number: u64,
            /// Its name.
            name: String,
        },
        /// A part of it.
        PartOfIt {
            /// Its name.
            name: String,
        },
    }

    fn read() -> (Schemas, &'static Form) {
        let mut schemas = Schemas::default();
        schemas.generator.subschema_for::<Common>();
        schemas.generator.subschema_for::<Whole>();
        let form = schemas.form("$defs/Whole");
        (schemas, form)
    }

    #[test]
    fn keys_have_the_types_and_meanings_of_fields() {
        let (mut schemas, form) = read();
        let row = |key: &Key| {
            let kind = match key.kind {
                Kind::Named(name) => format!("[{}]", schemas.form(name).title),
                kind => kind.written(),
            };
            let or_null = if key.is_nullable { ", or null" } else { "" };
            let or_absent = if key.is_optional { ", or absent" } else { "" };
            format!("{}: {kind}{or_null}{or_absent}: {}", key.name, key.meaning)
        };
        let rows: Vec<String> = form.keys.iter().map(row).collect();
        let expected = [
            "end: text, or null: how it ended: `done` (all is done) or `stopped-early` (it was ended)",
            "ends: list of text: `done`, or early: `stopped-early` (it was ended)",
            "addresses: list of text, or absent: MAC addresses",
            "share: decimal, or null, or absent: a share",
            "part: [Part of a whole], or null: the part",
            "pair: [integer, true or false or null]: two of them",
            "numbers: [decimal, decimal] by name: by number",
            "any: any: whatever it is",
        ];
        assert_eq!(rows, expected);
        assert_eq!(form.title, "Example of a whole");
        assert!(matches!(form.includes, [Kind::Named("$defs/Common")]));
        assert_eq!(schemas.form("$defs/Part").keys[0].meaning, "how large it is, in bytes");
    }

    #[test]
    fn an_enum_with_a_tag_has_the_keys_of_all_its_variants() {
        let mut schemas = Schemas::default();
        schemas.generator.subschema_for::<Choice>();
        let rows: Vec<String> = schemas
            .form("$defs/Choice")
            .keys
            .iter()
            .map(|key| format!("{}, {}: {}", key.name, key.is_optional, key.meaning))
            .collect();
        let expected = [
            "what, false: `whole` (all of it) or `part-of-it` (a part of it)",
            "number, true: of all: the number",
            "name, false: its name",
        ];
        assert_eq!(rows, expected);
    }

    #[test]
    fn proper_names_keep_their_capital_letters() {
        for text in ["Ethernet address", "Linux' name for it", "Prometheus", "ESP packets", "MAC addresses", "IPv4"] {
            assert_eq!(sentence(&format!("{text}.")), text);
        }
        for (text, expected) in [("The name.", "the name"), ("A share.", "a share"), ("Linked apps", "linked apps")] {
            assert_eq!(sentence(text), expected);
        }
    }

    #[test]
    fn the_titles_of_schemas_are_different_and_words() {
        let _ = crate::json_reference::all_forms();
        let schemas = schemas();
        let all = schemas.generator.definitions().values().chain(schemas.requests.definitions().values());
        let titles: Vec<&str> = all.filter_map(title).collect();
        for (index, title) in titles.iter().enumerate() {
            assert!(!titles[..index].contains(title), "two types have the title `{title}`");
            let letters: Vec<char> = title.split('`').step_by(2).flat_map(str::chars).collect();
            let has_inner_capital = letters.windows(2).any(|pair| pair[0].is_lowercase() && pair[1].is_uppercase());
            assert!(!has_inner_capital && !title.contains(['_', ':', '<']), "`{title}` is no title of words");
        }
        assert!(titles.len() > 60, "{titles:?}");
    }

    #[test]
    fn a_type_may_hold_itself() {
        let (mut schemas, _) = read();
        assert!(matches!(schemas.form("$defs/Part").keys[1].kind, Kind::List(Kind::Named("$defs/Part"))));
    }
}
