//! The apps that come with Bellows, one file each, and the [`registry`] that lists them.
//!
//! A module holds an app's `Config`, whose documentation is the app's manual, and the app itself. Apps do not use one
//! another; a network file joins them:
//!
//! ```
//! use bellows_apps::registry;
//!
//! let manual = registry();
//! assert_eq!(manual.get("tee").map(|app| app.name()), Some("tee"));
//! ```
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod claims;
pub mod counter;
pub mod delay;
pub mod impair;
pub mod join;
pub mod matching;
mod pace;
pub mod pcap_reader;
pub mod pcap_writer;
pub mod rate_limiter;
pub mod repeater;
pub mod sample;
pub mod sink;
pub mod source;
pub mod split;
pub mod tee;
pub mod truncate;
pub mod vhost_user;
mod virtio;
pub mod virtio_user;

use bellows_config::Registry;

/// Every app that comes with Bellows.
pub fn registry() -> Registry {
    Registry::new()
        .with::<counter::Counter>()
        .with::<delay::Delay>()
        .with::<impair::Impair>()
        .with::<join::Join>()
        .with::<matching::Match>()
        .with::<pcap_reader::PcapReader>()
        .with::<pcap_writer::PcapWriter>()
        .with::<rate_limiter::RateLimiter>()
        .with::<repeater::Repeater>()
        .with::<sample::Sample>()
        .with::<sink::Sink>()
        .with::<source::Source>()
        .with::<split::Split>()
        .with::<tee::Tee>()
        .with::<truncate::Truncate>()
        .with::<vhost_user::VhostUser>()
        .with::<virtio_user::VirtioUser>()
}
