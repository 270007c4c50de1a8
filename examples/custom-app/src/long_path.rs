//! `long-path`: a path over several routers.

use bellows_config::{Compound, Context, Parts, SettingError};
use bellows_engine::{Port, Ports};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::decrement_ttl::{self, DecrementTtl};

/// A path over several routers: each takes one hop off the packets.
///
/// The parts `hop1`, `hop2`, … are apps of type `decrement-ttl`. A packet whose hops end at a router is dropped there,
/// so the drops `expired` of each part say how far packets come.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The number of routers.
    #[schemars(range(min = 1, max = 30))]
    pub hops: u8,
}

/// A path over several routers.
pub struct LongPath;

impl Compound for LongPath {
    const NAME: &'static str = "long-path";
    const INPUTS: Ports = Ports::Named(&[Port::required("input", "Ethernet frames")]);
    const OUTPUTS: Ports = Ports::Named(&[Port::required("output", "frames that have passed all routers")]);
    type Config = Config;

    fn expand(config: Config, _: &Context, parts: &mut Parts) -> Result<(), SettingError> {
        for hop in 1..=config.hops {
            parts.app::<DecrementTtl>(format!("hop{hop}"), decrement_ttl::Config::default());
            if hop > 1 {
                parts.link(format!("hop{}.output -> hop{hop}.input", hop - 1));
            }
        }
        parts.input("input", "hop1.input");
        parts.output("output", format!("hop{}.output", config.hops));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_routers_are_in_a_row() {
        let mut parts = Parts::default();
        LongPath::expand(Config { hops: 3 }, &Context::default(), &mut parts).unwrap();
        assert_eq!(parts.names().collect::<Vec<_>>(), ["hop1", "hop2", "hop3"]);
        assert_eq!(parts.links(), ["hop1.output -> hop2.input", "hop2.output -> hop3.input"]);
    }
}
