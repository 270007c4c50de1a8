//! The [`registry`] of the apps that come with Bellows, and the compound apps.
//!
//! The apps are in crates of their own, which do not use one another. A compound app joins apps of several of them.
//!
//! ```
//! use bellows_apps::registry;
//!
//! let manual = registry();
//! assert_eq!(manual.get("tee").map(|app| app.name()), Some("tee"));
//! ```
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod l2vpn;
pub mod router;

use bellows_config::Registry;

/// Every app, every compound app and every shared object that comes with Bellows. The manual, the schema of network
/// files, the completions, `bench apps` and the tests of all apps follow from it.
pub fn registry() -> Registry {
    let lists = [
        bellows_basic::register,
        bellows_interfaces::register,
        bellows_switch::register,
        bellows_router::register,
        bellows_vpn::register,
    ];
    let registry = lists.into_iter().fold(Registry::new(), |registry, register| register(registry));
    registry.with_compound::<l2vpn::L2vpn>().with_compound::<router::Router>()
}
