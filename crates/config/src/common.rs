//! The keys that every app's table may have.

use bellows_engine::AppSpec;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::schema::schema_of;

/// What every app's table may say, besides what its type asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Common {
    /// How many packets ahead the data of packets is fetched into the cache while the app goes over its input. By default
    /// as many as the app's author found best; 0 for not at all. It makes a difference where packets come from outside
    /// the cache, to an app that reads them one after the other: `bellows appbench --prefetch` finds the best distance.
    #[schemars(range(max = 64), extend("x-unit" = "packets"))]
    prefetch: Option<u8>,
}

impl Common {
    /// The keys' names.
    pub(crate) const KEYS: &'static [&'static str] = &["prefetch"];

    /// The app with what its table says.
    pub(crate) fn applied_to(self, app: AppSpec) -> AppSpec {
        match self.prefetch {
            Some(packets) => app.prefetching(packets.into()),
            None => app,
        }
    }
}

/// The JSON Schema of these keys.
pub(crate) fn common_keys() -> Json {
    schema_of::<Common>()
}
