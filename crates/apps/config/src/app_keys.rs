//! The keys that every app's table may have.

use bellows_engine::AppSpec;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::schema::schema_of;

/// The keys that every app's table may have besides its type's own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Common {
    /// Prefetch distance: while the app processes its input, the data of the packet this many places ahead is fetched
    /// into the cache. The default is the app author's choice; 0 turns prefetching off. It matters for apps that read
    /// packet data in order when the packets are not yet in the cache: `bellows appbench --prefetch` finds the best
    /// distance.
    #[schemars(range(max = 64), extend("x-unit" = "packets"))]
    prefetch: Option<u8>,

    /// The worker that runs the app: a thread with a table `[workers.NAME]`, or `main`, the default. Links between apps
    /// of different workers pass packets from one thread to the other; apps do not notice.
    #[schemars(length(min = 1))]
    pub(crate) worker: Option<String>,
}

impl Common {
    /// The names of the keys.
    pub(crate) const KEYS: &'static [&'static str] = &["prefetch", "worker"];

    /// The app with these keys applied.
    pub(crate) fn applied_to(self, app: AppSpec) -> AppSpec {
        let app = match self.prefetch {
            Some(packets) => app.prefetching(packets.into()),
            None => app,
        };
        match self.worker {
            Some(worker) => app.on_worker(&worker),
            None => app,
        }
    }
}

/// The JSON Schema of these keys.
pub(crate) fn common_keys() -> Json {
    schema_of::<Common>()
}
