//! `sink`: frees packets.

use bellows_config::{Configure, Context, SettingError};
use bellows_engine::{App, Io, Port, Ports};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Takes packets out of the network and frees them.
///
/// They do not count as drops: the link to the sink says how many there were. The app has no keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {}

/// Frees every packet that comes in.
pub struct Sink;

impl App for Sink {
    const INPUTS: Ports = Ports::Named(&[Port::required("input", "packets to free")]);

    fn push(&mut self, io: &Io<Self>) {
        io.input(0).discard();
    }
}

impl Configure for Sink {
    const NAME: &'static str = "sink";
    type Config = Config;

    fn configure(_: Config, _: &Context) -> Result<Sink, SettingError> {
        Ok(Sink)
    }
}

#[cfg(test)]
mod tests {
    use bellows_rig::Rig;

    use super::*;

    #[test]
    fn packets_end_here_and_are_no_drops() {
        let sink = Sink::configure(Config {}, &Context::default()).unwrap();
        let mut rig = Rig::new(sink, &["input"], &[]);
        rig.send("input", vec![[0; 60]; 3000]);
        rig.settle();
        let counts = rig.counts();
        assert_eq!((counts.in_packets, counts.in_bytes, counts.dropped()), (3000, 180_000, 0));
        assert!(rig.is_done());
    }
}
