//! JSON Schemas of tables. Values are checked against them before serde reads them, so that all errors in a table are
//! found at once. Types are described in words for manuals and errors.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::Value as Json;

use crate::diagnostics::{Diagnostic, MAX_KEPT, listed, quoted};
use crate::spanned::{Key, Node, Place, Table, Value, node};
use crate::suggest::nearest;

/// The check of a table stops after this many errors.
const MAX_FOUND: usize = 10 * MAX_KEPT;

/// A schema, and the document that its references point into.
#[derive(Clone, Copy)]
pub(crate) struct SchemaShape<'s> {
    schema: &'s Json,
    root: &'s Json,
}

/// A type's JSON Schema with inlined subschemas.
pub(crate) fn schema_of<T: JsonSchema>() -> Json {
    let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    settings.into_generator().into_root_schema_for::<T>().to_value()
}

/// The bounds of a number in a schema.
struct Bounds {
    least: Option<f64>,
    most: Option<f64>,
    /// Exclusive bounds.
    above: Option<f64>,
    below: Option<f64>,
}

impl<'s> SchemaShape<'s> {
    pub(crate) fn new(root: &'s Json) -> SchemaShape<'s> {
        SchemaShape { schema: root, root }
    }

    fn of(self, schema: &'s Json) -> SchemaShape<'s> {
        SchemaShape { schema, root: self.root }.resolved()
    }

    /// The schema after following references and unwrapping an `Option`.
    fn resolved(self) -> SchemaShape<'s> {
        let mut shape = self;
        // The limit ends a cycle of references.
        for _ in 0..32 {
            let one =
                |key: &str| match shape.schema.get(key)?.as_array()?.iter().filter(|s| !is_null(s)).collect::<Vec<_>>()
                    [..]
                {
                    [one] => Some(one),
                    _ => None,
                };
            let reference = shape.schema.get("$ref").and_then(Json::as_str);
            let target = reference.and_then(|reference| self.root.pointer(reference.trim_start_matches('#')));
            match target.or_else(|| one("anyOf")).or_else(|| one("allOf")) {
                Some(schema) => shape.schema = schema,
                None => break,
            }
        }
        shape
    }

    fn get(self, key: &str) -> Option<&'s Json> {
        self.schema.get(key)
    }

    fn number(self, key: &str) -> Option<f64> {
        self.get(key)?.as_f64()
    }

    /// The JSON types that the schema allows; empty if it does not restrict them.
    fn types(self) -> Vec<&'s str> {
        match self.get("type") {
            Some(Json::String(name)) => vec![name],
            Some(Json::Array(names)) => names.iter().filter_map(Json::as_str).filter(|&name| name != "null").collect(),
            _ => Vec::new(),
        }
    }

    /// The keys of a table with their schemas.
    pub(crate) fn properties(self) -> impl Iterator<Item = (&'s str, SchemaShape<'s>)> {
        let properties = self.resolved().get("properties").and_then(Json::as_object);
        properties.into_iter().flatten().map(move |(name, schema)| (name.as_str(), SchemaShape { schema, ..self }))
    }

    /// The keys that a table must have.
    pub(crate) fn required(self) -> impl Iterator<Item = &'s str> {
        let required = self.resolved().get("required").and_then(Json::as_array);
        required.into_iter().flatten().filter_map(Json::as_str)
    }

    /// The schema of a list's items.
    pub(crate) fn items(self) -> Option<SchemaShape<'s>> {
        let shape = self.resolved();
        shape.get("items").map(|items| shape.of(items))
    }

    /// The tables with keys that a value may consist of or hold, each with its place below `path`: a table itself, the
    /// items of a list (`path[]`), the values of a table of any names (`path.NAME`), and those of all alternatives.
    pub(crate) fn tables(self, path: &str) -> Vec<(String, SchemaShape<'s>)> {
        let shape = self.resolved();
        let mut tables = Vec::new();
        if shape.properties().next().is_some() {
            tables.push((path.to_owned(), shape));
        }
        if let Some(items) = shape.items() {
            tables.extend(items.tables(&format!("{path}[]")));
        }
        if let Some(values) = shape.get("additionalProperties").filter(|values| values.is_object()) {
            tables.extend(shape.of(values).tables(&format!("{path}.NAME")));
        }
        let variants = ["oneOf", "anyOf", "allOf"].into_iter().filter_map(|key| shape.get(key)?.as_array());
        tables.extend(variants.flatten().flat_map(|variant| shape.of(variant).tables(path)));
        tables
    }

    /// The keys of a table, without those of tables inside it; required ones first.
    pub(crate) fn own_keys(self) -> Vec<(&'s str, SchemaShape<'s>)> {
        let required: Vec<&str> = self.required().collect();
        let mut properties: Vec<(&str, SchemaShape<'_>)> = self.properties().collect();
        properties.sort_by_key(|(name, _)| !required.contains(name));
        properties
    }

    /// The keys of a table and of all tables inside it: the path of each, its shape, and the table that it is in.
    pub(crate) fn keys(self) -> Vec<(String, SchemaShape<'s>, SchemaShape<'s>)> {
        let mut keys = Vec::new();
        self.collect_keys("", &mut Vec::new(), &mut keys);
        keys
    }

    fn collect_keys(
        self,
        path: &str,
        around: &mut Vec<SchemaShape<'s>>,
        keys: &mut Vec<(String, SchemaShape<'s>, SchemaShape<'s>)>,
    ) {
        around.push(self);
        for (name, shape) in self.own_keys() {
            let name = if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
            keys.push((name.clone(), shape, self));
            for (path, inner) in shape.tables(&name) {
                // A table that can hold tables of its own kind has an end here.
                if !around.iter().any(|outer| outer.has_keys_of(inner)) {
                    inner.collect_keys(&path, around, keys);
                }
            }
        }
        around.pop();
    }

    /// Whether two tables have the same keys.
    pub(crate) fn has_keys_of(self, other: SchemaShape<'_>) -> bool {
        ["properties", "required", "additionalProperties"].iter().all(|key| self.get(key) == other.get(key))
    }

    /// An annotation of the key itself, or of its type.
    pub(crate) fn annotation(self, key: &str) -> Option<&'s Json> {
        self.get(key).or_else(|| self.resolved().get(key))
    }

    /// The alternatives, if the schema has some.
    fn variants(self) -> impl Iterator<Item = SchemaShape<'s>> {
        let variants = self.get("oneOf").or(self.get("anyOf")).and_then(Json::as_array);
        variants.into_iter().flatten().filter(|schema| !is_null(schema)).map(move |schema| self.of(schema))
    }

    /// The words that an enumeration allows.
    fn words(self) -> Option<Vec<&'s str>> {
        let shape = self.resolved();
        if let Some(Json::Array(words)) = shape.get("enum") {
            return words.iter().filter(|word| !word.is_null()).map(Json::as_str).collect();
        }
        let variants = shape.get("oneOf").or(shape.get("anyOf"))?.as_array()?;
        let word = |schema: &'s Json| -> Option<Vec<&'s str>> {
            match schema.get("const") {
                Some(word) => Some(vec![word.as_str()?]),
                None => schema.get("enum")?.as_array()?.iter().map(Json::as_str).collect(),
            }
        };
        let words: Option<Vec<Vec<&str>>> = variants.iter().filter(|schema| !is_null(schema)).map(word).collect();
        Some(words?.concat())
    }

    /// The words that an enumeration allows, with their descriptions.
    pub(crate) fn meanings(self) -> Vec<(&'s str, &'s str)> {
        let variants = self.resolved().get("oneOf").and_then(Json::as_array);
        let meaning = |schema: &'s Json| Some((schema.get("const")?.as_str()?, schema.get("description")?.as_str()?));
        variants.into_iter().flatten().filter_map(meaning).collect()
    }

    fn bounds(self) -> Bounds {
        let (least, most) = match self.get("format").and_then(Json::as_str) {
            Some("uint8") => (Some(0.0), Some(f64::from(u8::MAX))),
            Some("uint16") => (Some(0.0), Some(f64::from(u16::MAX))),
            Some("uint32") => (Some(0.0), Some(f64::from(u32::MAX))),
            Some("uint" | "uint64") => (Some(0.0), None),
            Some("int8") => (Some(f64::from(i8::MIN)), Some(f64::from(i8::MAX))),
            Some("int16") => (Some(f64::from(i16::MIN)), Some(f64::from(i16::MAX))),
            Some("int32") => (Some(f64::from(i32::MIN)), Some(f64::from(i32::MAX))),
            _ => (None, None),
        };
        Bounds {
            least: self.number("minimum").or(least),
            most: self.number("maximum").or(most),
            above: self.number("exclusiveMinimum"),
            below: self.number("exclusiveMaximum"),
        }
    }

    /// The type in words: `integer 1 to 1,024`, `text`, ``one of `a`, `b` ``, ``list of tables with `size` ``.
    pub(crate) fn in_words(self) -> String {
        self.to_depth(4, true)
    }

    /// The type in words without the keys of tables, for a manual that lists them: `list of tables`.
    pub(crate) fn in_short_words(self) -> String {
        self.to_depth(4, false)
    }

    /// [`SchemaShape::in_words`] to a limited depth, for recursive types.
    fn to_depth(self, depth: usize, with_keys: bool) -> String {
        if depth == 0 {
            return "…".to_owned();
        }
        if let Some(Json::String(words)) = self.annotation("x-type") {
            return words.clone();
        }
        let shape = self.resolved();
        if let Some(words) = shape.words() {
            return if words.len() == 1 { listed(words) } else { format!("one of {}", listed(words)) };
        }
        let words: Vec<String> = shape.variants().map(|variant| variant.to_depth(depth - 1, with_keys)).collect();
        if !words.is_empty() {
            return words.join(", or ");
        }
        if let Some(Json::String(word)) = shape.get("const") {
            return format!("`{word}`");
        }
        let words = |name| shape.type_in_words(name, depth - 1, with_keys);
        let words: Vec<String> = shape.types().into_iter().map(words).collect();
        if words.is_empty() { "any value".to_owned() } else { words.join(" or ") }
    }

    fn type_in_words(self, name: &str, depth: usize, with_keys: bool) -> String {
        match name {
            "string" => "text".to_owned(),
            "boolean" => "`true` or `false`".to_owned(),
            "integer" | "number" => format!("{name}{}", self.bounds().in_words()),
            "array" => match self.items() {
                Some(items) => format!("list of {}", plural(&items.to_depth(depth, with_keys))),
                None => "list".to_owned(),
            },
            "object" => {
                let keys: Vec<&str> = self.properties().map(|(name, _)| name).collect();
                match self.get("additionalProperties") {
                    _ if !keys.is_empty() && with_keys => format!("table with {}", listed(keys)),
                    _ if !keys.is_empty() => "table".to_owned(),
                    Some(values) if values.is_object() => {
                        format!("table whose values are {}", plural(&self.of(values).to_depth(depth, with_keys)))
                    }
                    _ => "table".to_owned(),
                }
            }
            other => other.to_owned(),
        }
    }
}

/// Whether a value is of one of these JSON types.
fn is_any_of(value: &Value, types: &[&str]) -> bool {
    types.iter().any(|name| match value {
        Value::Text(_) => *name == "string",
        Value::Integer(_) | Value::Large(_) => matches!(*name, "integer" | "number"),
        Value::Float(_) => *name == "number",
        Value::Boolean(_) => *name == "boolean",
        Value::List(_) => *name == "array",
        Value::Table(_) => *name == "object",
        Value::Other(..) | Value::Broken => false,
    })
}

fn is_null(schema: &Json) -> bool {
    schema.get("type").and_then(Json::as_str) == Some("null")
}

impl Bounds {
    fn in_words(&self) -> String {
        let least = self.least.map(|number| (number, "")).or(self.above.map(|number| (number, "more than ")));
        let most = self.most.map(|number| (number, "")).or(self.below.map(|number| (number, "less than ")));
        match (least, most) {
            (Some((least, "")), Some((most, less))) => format!(" {} to {less}{}", grouped(least), grouped(most)),
            (Some((least, more)), Some((most, less))) => {
                format!(
                    " {more}{} and {}{}",
                    grouped(least),
                    if less.is_empty() { "at most " } else { less },
                    grouped(most)
                )
            }
            (Some((least, "")), None) => format!(" {} or more", grouped(least)),
            (Some((least, more)), None) => format!(" {more}{}", grouped(least)),
            (None, Some((most, ""))) => format!(" {} or less", grouped(most)),
            (None, Some((most, less))) => format!(" {less}{}", grouped(most)),
            (None, None) => String::new(),
        }
    }

    fn hold(&self, number: f64) -> bool {
        self.least.is_none_or(|least| number >= least)
            && self.most.is_none_or(|most| number <= most)
            && self.above.is_none_or(|above| number > above)
            && self.below.is_none_or(|below| number < below)
    }
}

/// A number with commas between the thousands.
fn grouped(number: f64) -> String {
    let text = number.to_string();
    let (whole, fraction) = text.split_once('.').map_or((text.as_str(), None), |(whole, rest)| (whole, Some(rest)));
    let mut grouped = String::new();
    for (index, digit) in whole.chars().enumerate() {
        let left = whole.len() - index;
        if left.is_multiple_of(3) && grouped.ends_with(|c: char| c.is_ascii_digit()) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    fraction.map_or(grouped.clone(), |fraction| format!("{grouped}.{fraction}"))
}

/// A type in words with its article, to follow "must be".
pub(crate) fn with_article(words: &str) -> String {
    let article = match words.split([' ', ',']).next().unwrap_or("") {
        "text" | "one" | "any" | "an" | "a" => "",
        first if first.starts_with('`') || first.ends_with('s') => "",
        first if first.starts_with(['a', 'e', 'i', 'o', 'A', 'E', 'I', 'O']) => "an ",
        _ => "a ",
    };
    format!("{article}{words}")
}

/// The plural of a type in words.
fn plural(words: &str) -> String {
    let end = words.find(|c: char| !c.is_alphabetic()).unwrap_or(words.len());
    match &words[..end] {
        first @ ("integer" | "number" | "table" | "list" | "duration") => format!("{first}s{}", &words[end..]),
        "one" => format!("words, each {words}"),
        _ => words.to_owned(),
    }
}

/// Checks a table against its schema. What is wrong is removed, as little as possible, so that the rest can be checked
/// further.
pub(crate) struct Checker<'d> {
    pub(crate) found: Vec<Diagnostic>,
    /// The steps to what was removed: keys, and positions in lists.
    pub(crate) removed: Vec<Vec<String>>,
    /// The steps to what is checked.
    steps: Vec<String>,
    /// The table's owner in messages: ``app type `sink` ``.
    owner: &'d str,
    /// Keys outside the schema that a misspelling may mean.
    others: &'d [&'d str],
}

impl<'d> Checker<'d> {
    pub(crate) fn new(owner: &'d str, others: &'d [&'d str]) -> Checker<'d> {
        Checker { found: Vec::new(), removed: Vec::new(), steps: Vec::new(), owner, others }
    }

    /// Checks what is one step further inside, and notes if it is wrong.
    fn step(&mut self, step: String, check: impl FnOnce(&mut Self) -> bool) -> bool {
        self.steps.push(step);
        let is_right = check(self);
        if !is_right {
            self.removed.push(self.steps.clone());
        }
        self.steps.pop();
        is_right
    }

    /// Checks the keys of a table and removes wrong ones. Missing keys are reported at `place`.
    pub(crate) fn table(&mut self, shape: SchemaShape<'_>, table: &mut Table, place: Place, path: &str) {
        let shape = shape.resolved();
        let known: Vec<(&str, SchemaShape<'_>)> = shape.properties().collect();
        let refuses = shape.get("additionalProperties") == Some(&Json::Bool(false));
        for required in shape.required() {
            if table.get(required).is_none() {
                let kind = known.iter().find(|(name, _)| *name == required).map(|(_, shape)| shape.in_words());
                let kind = kind.map(|kind| format!(" ({kind})")).unwrap_or_default();
                let missing = Diagnostic::error(format!("{} needs the key `{path}{required}`", self.owner));
                let add = if path.is_empty() { "add" } else { "add to the inner table" };
                self.found.push(missing.at(place, "missing here").help(format!("{add} `{required} = …`{kind}")));
            }
        }
        let check =
            |checker: &mut Self, key: &Key, node: &mut Node| match known.iter().find(|(name, _)| *name == key.name) {
                Some((_, shape)) => checker.value(*shape, node, &format!("{path}{}", key.name)),
                None if refuses => {
                    checker.unknown_key(key, node, shape, path);
                    false
                }
                None => match shape.get("additionalProperties") {
                    Some(values) if values.is_object() => {
                        checker.value(shape.of(values), node, &format!("{path}{}", quoted(&key.name).trim_matches('`')))
                    }
                    _ => true,
                },
            };
        table.0.retain_mut(|(key, node)| self.step(key.name.clone(), |checker| check(checker, key, node)));
    }

    fn unknown_key(&mut self, key: &Key, node: &Node, table: SchemaShape<'_>, path: &str) {
        let known: Vec<(&str, SchemaShape<'_>)> = table.properties().collect();
        let names = || known.iter().map(|(name, _)| *name);
        let mut unknown =
            Diagnostic::error(format!("{} has no key {}", self.owner, quoted(&format!("{path}{}", key.name))));
        if self.found.len() >= MAX_KEPT {
            if self.found.len() < MAX_FOUND {
                self.found.push(unknown);
            }
            return;
        }
        let others = self.others.iter().copied().filter(|_| path.is_empty());
        unknown = match nearest(&key.name, names().chain(others)) {
            Some(near) => unknown.at(key.place, format!("did you mean `{near}`?")),
            None => unknown.at(key.place, "unknown key"),
        };
        if matches!(key.name.as_str(), "links" | "include") && matches!(node.value, Value::List(_)) {
            unknown = unknown.help(format!("`{}` belongs at the top of the file, before the first [table]", key.name));
        }
        let elsewhere = SchemaShape::new(table.root).keys().into_iter().filter_map(|(path, ..)| {
            let (inner, name) = path.rsplit_once('.')?;
            (name == key.name).then(|| inner.to_owned())
        });
        let elsewhere: Vec<String> = elsewhere.collect();
        if !elsewhere.is_empty() {
            let tables = listed(elsewhere.iter().map(String::as_str));
            unknown = unknown.help(format!("{} is a key of {tables}", quoted(&key.name)));
        }
        let all = if known.is_empty() { "it has no keys".to_owned() } else { format!("its keys: {}", listed(names())) };
        self.found.push(unknown.help(all));
    }

    /// Checks a value and returns whether serde should read it. An untyped value is converted to its key's type.
    fn value(&mut self, shape: SchemaShape<'_>, node: &mut Node, path: &str) -> bool {
        if matches!(node.value, Value::Broken) || self.found.len() >= MAX_FOUND {
            return false;
        }
        let key = shape;
        let shape = shape.resolved();
        let types = shape.types();
        let untyped = resolve_untyped(node, &types, shape.words().is_some());
        if types.is_empty()
            && shape.words().is_none()
            && matches!(node.value, Value::List(_) | Value::Table(_))
            && let [only] =
                shape.variants().filter(|variant| is_any_of(&node.value, &variant.types())).collect::<Vec<_>>()[..]
        {
            return self.value(only, node, path);
        }
        if !types.is_empty() && !is_any_of(&node.value, &types) {
            let wrong = Diagnostic::error(format!("{} must be {}", quoted(path), with_article(&key.in_words())));
            let found = untyped.map_or(node.value.called().to_owned(), |text| quoted(&text));
            self.found.push(wrong.at(node.place, format!("this is {found}")));
            return false;
        }
        if let (Some(words), Value::Text(text)) = (shape.words(), &node.value)
            && !words.contains(&text.as_str())
        {
            let mut wrong = Diagnostic::error(format!("{} cannot be {}", quoted(path), quoted(text)));
            wrong = match nearest(text, words.iter().copied()) {
                Some(near) => wrong.at(node.place, format!("did you mean `{near}`?")),
                None => wrong.at(node.place, "not one of them"),
            };
            self.found.push(wrong.help(format!("it is {}", key.in_words())));
            return false;
        }
        match &mut node.value {
            Value::Integer(number) => self.bounded(key, *number as f64, node.place, path),
            Value::Large(number) => self.bounded(key, *number as f64, node.place, path),
            Value::Float(number) => self.bounded(key, *number, node.place, path),
            Value::Text(text) => {
                let length = text.chars().count();
                self.sized(shape, ("minLength", "maxLength"), length, node.place, path)
            }
            Value::List(items) => {
                let size = items.len();
                let is_right = self.sized(shape, ("minItems", "maxItems"), size, node.place, path);
                if let Some(inner) = shape.items() {
                    let mut indices = 0..;
                    items.retain_mut(|item| {
                        let index = indices.next().unwrap_or(size);
                        self.step(index.to_string(), |checker| checker.value(inner, item, &format!("{path}[{index}]")))
                    });
                }
                is_right
            }
            Value::Table(inner) => {
                if shape.get("properties").is_none() && shape.get("additionalProperties").is_none() {
                    return true;
                }
                self.table(shape, inner, node.place, &format!("{path}."));
                shape.required().all(|name| inner.get(name).is_some()) && self.found.len() < MAX_FOUND
            }
            Value::Boolean(_) | Value::Other(..) | Value::Broken => true,
        }
    }

    fn bounded(&mut self, key: SchemaShape<'_>, number: f64, place: Place, path: &str) -> bool {
        // A type that also accepts text checks numbers itself.
        if key.resolved().types().contains(&"string") {
            return true;
        }
        let holds = key.resolved().bounds().hold(number);
        if !holds {
            let wrong = Diagnostic::error(format!("{} must be {}", quoted(path), with_article(&key.in_words())));
            self.found.push(wrong.at(place, "out of range"));
        }
        holds
    }

    fn sized(
        &mut self,
        shape: SchemaShape<'_>,
        (least, most): (&str, &str),
        size: usize,
        place: Place,
        path: &str,
    ) -> bool {
        let unit = if least == "minItems" { "items" } else { "characters" };
        let bounds = Bounds { least: shape.number(least), most: shape.number(most), above: None, below: None };
        let holds = bounds.hold(size as f64);
        if !holds {
            let wrong = Diagnostic::error(format!("{} must have{} {unit}", quoted(path), bounds.in_words()));
            self.found.push(wrong.at(place, format!("this has {size}")));
        }
        holds
    }
}

/// Converts an untyped value to its key's type. Returns its text if it was untyped.
fn resolve_untyped(given: &mut Node, types: &[&str], is_word: bool) -> Option<String> {
    let text = given.untyped.take()?;
    if is_word || types.contains(&"string") {
        given.value = Value::Text(text.clone());
    } else if !types.is_empty()
        && let Ok(parsed) = toml::de::DeValue::parse(text.trim())
    {
        given.value = node(parsed.into_inner(), given.place.source, given.place.start..given.place.end).value;
    }
    Some(text)
}
