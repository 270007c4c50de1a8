//! `sink`: the end of the road.

use bellows_config::{Configure, Context, Mistake};
use bellows_engine::{App, Io, Port, Ports};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Takes packets out of the network and frees them. They are not counted as drops; the link that leads here says
/// how many there were.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {}

/// Frees every packet that comes in.
pub struct Sink;

impl App for Sink {
    const INPUTS: Ports = Ports::Any { at_least: 1, help: "packets whose way ends here" };

    fn push(&mut self, io: &Io<Self>) {
        for index in 0..io.inputs() {
            io.input(index).discard();
        }
    }
}

impl Configure for Sink {
    const NAME: &'static str = "sink";
    type Config = Config;

    fn configure(_: Config, _: &Context) -> Result<Sink, Mistake> {
        Ok(Sink)
    }
}
