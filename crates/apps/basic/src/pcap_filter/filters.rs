//! The expressions of a config, in the order of the file.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use bellows_config::{Context, SettingError, TextMistake, TextMistakes};
use bellows_filter::Mistake;
use bellows_filter::plan::MAX_FILTERS;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Config, REST};

/// Expressions by the names of their outputs, in the order of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filters(pub Vec<(String, String)>);

impl Filters {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Serialize for Filters {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, text)| (name, text)))
    }
}

impl<'de> Deserialize<'de> for Filters {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Filters, D::Error> {
        struct Entries;

        impl<'de> Visitor<'de> for Entries {
            type Value = Filters;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a table of expressions")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Filters, A::Error> {
                let mut filters = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    filters.push(entry);
                }
                Ok(Filters(filters))
            }
        }

        deserializer.deserialize_map(Entries)
    }
}

impl JsonSchema for Filters {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Filters".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        BTreeMap::<String, String>::json_schema(generator)
    }
}

/// An expression, and where it comes from.
pub(crate) struct FilterSource {
    /// The name of its output.
    pub output: String,
    pub text: String,
    key: &'static str,
    /// The file that holds it.
    file: Option<PathBuf>,
}

impl FilterSource {
    /// The expression that a key gives.
    pub fn of_key(key: &'static str, text: impl Into<String>) -> FilterSource {
        FilterSource { output: "match".to_owned(), text: text.into(), key, file: None }
    }

    /// An error in the expression.
    pub fn error(&self, message: impl Into<String>, help: impl Into<String>) -> SettingError {
        let error = SettingError::at(self.key, message, help);
        if self.key == "filters" { error.in_entry(self.output.clone()) } else { error }
    }

    /// A mistake at a place in the expression.
    pub fn mistake(&self, mistake: Mistake) -> SettingError {
        let Mistake { range, message, help } = mistake;
        let error = self.error(&message, &help).in_text(range.clone());
        let Some(file) = &self.file else { return error };
        let mut mistakes = TextMistakes::default();
        mistakes.add(TextMistake { range, message, help });
        mistakes.of_file(file, self.text.clone()).map_or(error, |wrong| SettingError::in_file(self.key, wrong))
    }
}

impl Config {
    /// The key that gives the expressions, and the names of their outputs.
    pub(super) fn names(&self) -> (&'static str, Vec<&str>) {
        match (&self.filter, &self.file) {
            (Some(_), _) => ("filter", vec!["match"]),
            (_, Some(_)) => ("file", vec!["match"]),
            _ if self.filters.is_empty() && self.state_table.is_some() => ("state_table", vec!["match"]),
            _ => ("filters", self.filters.0.iter().map(|(name, _)| name.as_str()).collect()),
        }
    }

    /// The expressions: at least one, unless there are states.
    pub(super) fn expressions(&self, context: &Context) -> Result<Vec<FilterSource>, SettingError> {
        const GIVE_ONE: &str = "give `filter = \"tcp port 80\"`, for example, or `file`, or `filters`";
        let Config { filter, file, filters, state_table, .. } = self;
        match (filter, file, filters.is_empty()) {
            (Some(text), None, true) => Ok(vec![FilterSource::of_key("filter", text)]),
            (None, Some(path), true) => {
                let text = context.read_text("file", path)?;
                Ok(vec![FilterSource { file: Some(context.path(path)), ..FilterSource::of_key("file", text) }])
            }
            (None, None, false) if state_table.is_some() => {
                let help = "give `filter` or `file`; several apps may share one table";
                Err(SettingError::at("state_table", "`state_table` and `filters` exclude each other", help))
            }
            (None, None, true) if state_table.is_some() => Ok(Vec::new()),
            (None, None, false) => filters.0.iter().map(|entry| self.named(entry)).collect(),
            (None, None, true) => Err(SettingError::of_table("there is no expression", GIVE_ONE)),
            (_, Some(_), _) => {
                Err(SettingError::at("file", "`file` excludes `filter` and `filters`", "give one of them"))
            }
            _ => Err(SettingError::at("filters", "`filter` and `filters` exclude each other", "give one of them")),
        }
    }

    fn named(&self, (name, text): &(String, String)) -> Result<FilterSource, SettingError> {
        let source = FilterSource { output: name.clone(), text: text.clone(), key: "filters", file: None };
        if name == REST {
            let message = "`rest` is the output of packets that match no filter";
            return Err(source.error(message, "give the filter another name"));
        }
        if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_') {
            let message = format!("`{name}` cannot be the name of an output");
            return Err(source.error(message, "use letters, digits, `-` and `_`, because links name the output"));
        }
        if self.filters.0.len() > MAX_FILTERS {
            let message = format!("{} filters are more than one app has", self.filters.0.len());
            let help = format!("give up to {MAX_FILTERS}, and link `rest` to another `pcap-filter` for more");
            return Err(SettingError::at("filters", message, help));
        }
        Ok(source)
    }
}
