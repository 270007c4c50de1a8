//! Apps that switch Ethernet frames: bridges with their tables of addresses, and VLANs.
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod bridge;
pub mod mac_table;
pub mod vlan;

use bellows_config::Registry;

/// The catalogue with the apps of this crate and the object `mac-table`.
///
/// The code that the engine has for the type of each app is compiled in this crate, too.
pub fn register(registry: Registry) -> Registry {
    registry
        .with::<bridge::Bridge>()
        .with::<vlan::mux::VlanMux>()
        .with::<vlan::tag::VlanTag>()
        .with::<vlan::untag::VlanUntag>()
        .with_object::<mac_table::MacTable>()
}
