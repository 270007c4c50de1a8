//! The keys that every app's table may have.

use bellows_engine::{AppSpec, MAIN};
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

    /// Whether the app may be one of those whose work an app in front of them does in one loop for usual packets, as
    /// `ip4-forward` does that of `ip4-input`, `ip4-lookup` and `ip4-rewrite`. The loader adds it where the others are
    /// linked one behind the other. By default it may.
    pub(crate) fuse: Option<bool>,
}

impl Common {
    /// The names of the keys.
    pub(crate) const KEYS: &'static [&'static str] = &["prefetch", "worker", "fuse"];

    /// The prefetch distance, if one is set.
    pub(crate) fn prefetch(&self) -> Option<u8> {
        self.prefetch
    }

    /// The worker.
    pub(crate) fn worker(&self) -> &str {
        self.worker.as_deref().unwrap_or(MAIN)
    }

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
