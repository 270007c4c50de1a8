//! The key `queues`: how many, or which ones of a port that several apps share.

use std::collections::BTreeSet;

use bellows_config::{Resource, SettingError};
use bellows_ports::QueueSet;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// Maximum number of queues, of an app and of a port that several apps share.
pub(crate) const MAX_QUEUES: u16 = 32;

/// The queues of a port: their number, or a list of those that the app uses of a port that several apps share.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(untagged, expecting = "this must be a number of queues, or a list of queue numbers such as `[0, 1]`")]
pub enum Queues {
    /// All of this many.
    Count(u16),
    /// Those with these numbers.
    Numbers(Vec<u16>),
}

impl Default for Queues {
    fn default() -> Queues {
        Queues::Count(1)
    }
}

impl JsonSchema for Queues {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Queues".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [
            { "type": "integer", "minimum": 1, "maximum": MAX_QUEUES },
            { "type": "array", "items": { "type": "integer", "minimum": 0, "maximum": MAX_QUEUES - 1 } },
        ] })
    }
}

impl Queues {
    /// Checks the numbers. `one` and `many` are the words for them in messages.
    ///
    /// # Errors
    /// Too few, too many, an impossible number, or one that is listed twice.
    pub(crate) fn check(&self, one: &str, many: &str) -> Result<QueueSet, SettingError> {
        let wrong = |message: String, help: String| Err(SettingError::at("queues", message, help));
        match self {
            Queues::Count(count) if (1..=MAX_QUEUES).contains(count) => Ok(QueueSet::Whole(*count)),
            Queues::Count(count) => {
                wrong(format!("{count} {many} is out of range"), format!("give a number from 1 to {MAX_QUEUES}"))
            }
            Queues::Numbers(numbers) => {
                let set: BTreeSet<u16> = numbers.iter().copied().collect();
                match set.last() {
                    None => wrong(format!("the list has no {one}"), "give numbers from 0, such as `[0]`".to_owned()),
                    Some(number) if *number >= MAX_QUEUES => {
                        let help = format!("give numbers from 0 to {}", MAX_QUEUES - 1);
                        wrong(format!("there is no {one} {number}"), help)
                    }
                    Some(_) if set.len() < numbers.len() => {
                        wrong(format!("a {one} is listed twice"), "list each number once".to_owned())
                    }
                    Some(_) => Ok(QueueSet::Part(set.into_iter().collect())),
                }
            }
        }
    }

    /// The resource of an app with these queues: other apps may use the others if they list them. They need the same
    /// values of the keys that `is_common` names.
    pub(crate) fn share(
        &self,
        resource: Resource,
        config: &impl Serialize,
        is_common: impl Fn(&str) -> bool,
    ) -> Resource {
        match self {
            Queues::Count(_) => resource,
            Queues::Numbers(numbers) => share(resource, numbers, config, is_common),
        }
    }
}

/// See [`Queues::share`].
pub(crate) fn share(
    resource: Resource,
    numbers: &[u16],
    config: &impl Serialize,
    is_common: impl Fn(&str) -> bool,
) -> Resource {
    let mut keys = match serde_json::to_value(config) {
        Ok(serde_json::Value::Object(keys)) => keys,
        _ => serde_json::Map::new(),
    };
    keys.retain(|key, _| is_common(key));
    resource.shared(numbers, keys)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_number_means_all_and_a_list_a_part() {
        let read = |value| serde_json::from_value::<Queues>(value).unwrap().check("queue", "queues");
        assert_eq!(read(json!(4)).unwrap(), QueueSet::Whole(4));
        assert_eq!(read(json!([3, 0])).unwrap(), QueueSet::Part(vec![0, 3]));
        for (value, said) in [
            (json!(0), "0 queues is out of range"),
            (json!(33), "33 queues is out of range"),
            (json!([]), "no queue"),
            (json!([32]), "no queue 32"),
            (json!([1, 1]), "twice"),
        ] {
            let error = read(value).unwrap_err();
            assert!(error.key == Some("queues") && error.message.contains(said), "{error:?}");
        }
        let error = serde_json::from_value::<Queues>(json!("all")).unwrap_err().to_string();
        assert!(error.contains("a list of queue numbers"), "{error}");
    }
}
