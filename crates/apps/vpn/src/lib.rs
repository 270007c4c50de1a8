//! Apps that carry packets through other networks: tunnels, ESP, and the control channels of pseudowires.
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod control_channel;
pub mod esp;
pub mod geneve;
pub mod gre;
pub mod keyed_tunnel;
mod path_mtu;
pub mod tunnel;
pub mod vxlan;

use bellows_config::Registry;

/// The catalogue with the apps of this crate.
///
/// The code that the engine has for the type of each app is compiled in this crate, too.
pub fn register(registry: Registry) -> Registry {
    registry
        .with::<control_channel::ControlChannel>()
        .with::<esp::Esp>()
        .with::<geneve::Geneve>()
        .with::<gre::Gre>()
        .with::<keyed_tunnel::KeyedTunnel>()
        .with::<vxlan::Vxlan>()
}
