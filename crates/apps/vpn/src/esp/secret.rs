//! Keys in configurations.

use std::fmt;

use bellows_esp::Fingerprint;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, Deserializer, Error, Visitor};
use serde::{Serialize, Serializer};
use zeroize::Zeroizing;

/// A text that is never shown: not by `Debug`, and not when the configuration is written, where a number stands for it
/// that shows whether it has changed. Zeroed when dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// A secret text.
    pub fn new(text: &str) -> Secret {
        Secret(Zeroizing::new(text.to_owned()))
    }

    /// The text.
    pub(super) fn text(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Secret(not shown)")
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&Fingerprint::of(self.text()))
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Secret, D::Error> {
        deserializer.deserialize_str(Text)
    }
}

/// Reads a secret. Its errors do not have the value in them.
struct Text;

/// Refuses a value of another type without showing it.
macro_rules! refuse {
    ($($method:ident: $type:ty,)*) => {
        $(fn $method<E: Error>(self, _: $type) -> Result<Secret, E> {
            Err(E::custom("a key is a text: write it in quotes"))
        })*
    };
}

impl Visitor<'_> for Text {
    type Value = Secret;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a text")
    }

    fn visit_str<E>(self, text: &str) -> Result<Secret, E> {
        Ok(Secret::new(text))
    }

    fn visit_string<E>(self, text: String) -> Result<Secret, E> {
        Ok(Secret(Zeroizing::new(text)))
    }

    refuse! {
        visit_bool: bool,
        visit_i64: i64,
        visit_i128: i128,
        visit_u64: u64,
        visit_u128: u128,
        visit_f64: f64,
        visit_bytes: &[u8],
    }
}

impl JsonSchema for Secret {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Secret".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string" })
    }
}
