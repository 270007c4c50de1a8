//! A whole router in a network that holds packets until they have left the caches.

use std::path::Path;

use bellows_apps::registry;
use bellows_config::{Loaded, Overrides, load_str};
use bellows_engine::{Engine, Settings};
use bellows_packet::pool;

use super::variants::Variant;
use crate::workers::fail;

/// The apps to watch: all that a packet passes behind the one that holds it.
pub(super) const APPS: [&str; 4] = ["router/ethernet-input", "router/ip4-forward", "router/out-output", "sink"];

/// The network, which is one of the examples.
const NETWORK: &str = include_str!("../../../../../../examples/router-costs.toml");

/// The network's engine. A variant may leave out the look-ahead of the first of [`APPS`].
pub(super) fn engine(variant: &Variant) -> Engine {
    let without = match variant {
        Variant::Without(0) => "[apps.router.parts.ethernet-input]\nprefetch = 0\n",
        _ => "",
    };
    let text = format!("{NETWORK}\n{without}");
    let Loaded { network, engine, .. } =
        load_str(&text, "live.toml", Path::new("."), &registry(), &Overrides::default())
            .unwrap_or_else(|diagnostics| fail(&diagnostics));
    pool::init(engine.pool_config()).unwrap_or_else(|error| fail(&error));
    Engine::new(network, Settings { sampling: true, ..engine.settings() }, None).unwrap_or_else(|error| fail(&error))
}
