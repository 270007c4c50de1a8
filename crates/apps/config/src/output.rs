//! The schemas of what is printed as JSON.

use std::any::TypeId;
use std::borrow::Cow;
use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Serialize, Serializer};

/// The JSON Schema of what the values of a type are serialized to.
///
/// The title of an object's schema is its heading in the reference of all JSON, and the first paragraph of a field's
/// documentation is the meaning of its key.
#[derive(Clone, Copy, Debug)]
pub struct OutputSchema {
    id: fn() -> TypeId,
    add: fn(&mut SchemaGenerator) -> Schema,
}

impl OutputSchema {
    /// The schema of a type.
    pub const fn of<T: JsonSchema + 'static>() -> OutputSchema {
        OutputSchema { id: TypeId::of::<T>, add: SchemaGenerator::subschema_for::<T> }
    }

    /// What distinguishes the type from others.
    pub fn type_id(self) -> TypeId {
        (self.id)()
    }

    /// Adds it to the definitions of a generator. Returns the schema, or a reference to its definition.
    pub fn add_to(self, generator: &mut SchemaGenerator) -> Schema {
        (self.add)(generator)
    }
}

/// Values by names, in an order of their own: an object of JSON whose keys are the names.
#[derive(Clone, Debug)]
pub struct ByName<T>(Vec<(String, T)>);

impl<T> Default for ByName<T> {
    fn default() -> ByName<T> {
        ByName(Vec::new())
    }
}

impl<N: Into<String>, T> FromIterator<(N, T)> for ByName<T> {
    fn from_iter<I: IntoIterator<Item = (N, T)>>(values: I) -> ByName<T> {
        ByName(values.into_iter().map(|(name, value)| (name.into(), value)).collect())
    }
}

impl<T: Serialize> Serialize for ByName<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

impl<T: JsonSchema> JsonSchema for ByName<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        BTreeMap::<String, T>::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        BTreeMap::<String, T>::json_schema(generator)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_by_name_are_an_object_in_their_order() {
        let values: ByName<u32> = [("b", 1), ("a", 2)].into_iter().collect();
        assert_eq!(serde_json::to_string(&values).unwrap(), r#"{"b":1,"a":2}"#);
        let mut generator = SchemaGenerator::default();
        let schema = OutputSchema::of::<ByName<u32>>().add_to(&mut generator);
        assert_eq!(schema, generator.subschema_for::<BTreeMap<String, u32>>());
    }
}
