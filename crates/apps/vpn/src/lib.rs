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

/// Lists the tunnels: `module::Type` is a [`tunnel::Protocol`].
macro_rules! tunnels {
    ($($module:ident::$protocol:ident,)*) => {
        /// The catalogue with the tunnels.
        fn with_tunnels(registry: Registry) -> Registry {
            registry$(.with::<tunnel::Tunnel<$module::$protocol>>())*
        }

        /// Checks the sessions of all tunnels.
        #[cfg(test)]
        fn check_sessions<C: tunnel::tests::SessionCheck>() {
            $(tunnel::tests::check_sessions_of::<$module::$protocol, C>();)*
        }
    };
}

tunnels! {
    geneve::Generic,
    gre::Generic,
    keyed_tunnel::Keyed,
    vxlan::Extensible,
}

/// The catalogue with the apps of this crate.
///
/// The code that the engine has for the type of each app is compiled in this crate, too.
pub fn register(registry: Registry) -> Registry {
    with_tunnels(registry.with::<control_channel::ControlChannel>().with::<esp::Esp>())
}
