//! `l2vpn`: the apps of an end of layer-2 VPNs as one compound app.
//!
//! | file | contents |
//! |---|---|
//! | `config.rs` | the keys |
//! | `plan.rs` | the keys, checked, with all names resolved |
//! | `build.rs` | the apps and links that follow |

mod build;
mod config;
mod plan;

use bellows_config::{Compound, Context, Parts, SettingError};
use bellows_engine::Ports;

pub use self::config::{Config, ControlChannel, Interface, Ipsec, Kind, Peer, Pseudowire, Transport, Vpls};
use self::plan::Plan;

/// The apps of an end of layer-2 VPNs.
pub struct L2vpn;

impl Compound for L2vpn {
    const NAME: &'static str = "l2vpn";
    const INPUTS: Ports = Ports::Any { at_least: 1, help: "frames that arrive at an interface" };
    const OUTPUTS: Ports = Ports::Any { at_least: 1, help: "frames that leave through an interface" };
    type Config = Config;

    fn expand(config: Config, _: &Context, parts: &mut Parts) -> Result<(), SettingError> {
        let plan = Plan::read(&config)?;
        build::build(&config, &plan, parts);
        Ok(())
    }
}
