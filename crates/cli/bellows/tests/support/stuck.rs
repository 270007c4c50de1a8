//! An app that hangs.

use bellows_config::{Configure, Context, SettingError};
use bellows_engine::{App, Io, Port, Ports};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The configuration of an app without keys.
#[derive(Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Nothing {}

pub fn never_return() -> ! {
    loop {
        std::thread::park();
    }
}

/// Never returns.
pub struct Stuck;

impl App for Stuck {
    const INPUTS: Ports = Ports::Named(&[Port::required("input", "packets")]);

    fn push(&mut self, _: &Io<Self>) {
        never_return();
    }
}

impl Configure for Stuck {
    const NAME: &'static str = "stuck";
    type Config = Nothing;

    fn configure(_: Nothing, _: &Context) -> Result<Stuck, SettingError> {
        Ok(Stuck)
    }
}
