//! Apps that make, sort, change, count and store packets without a protocol of their own: sources and sinks, captures,
//! filters, and what stands between them.
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod claims;
pub mod counter;
pub mod delay;
pub mod impair;
pub mod join;
pub mod matching;
mod pace;
pub mod pcap_filter;
pub mod pcap_reader;
pub mod pcap_writer;
pub mod rate_limiter;
pub mod repeater;
pub mod rss;
pub mod sample;
pub mod sink;
pub mod source;
pub mod split;
pub mod state_table;
pub mod tee;
pub mod truncate;

use bellows_config::Registry;

/// The catalogue with the apps of this crate and the object `state-table`.
///
/// The code that the engine has for the type of each app is compiled in this crate, too.
pub fn register(registry: Registry) -> Registry {
    registry
        .with::<counter::Counter>()
        .with::<delay::Delay>()
        .with::<impair::Impair>()
        .with::<join::Join>()
        .with::<matching::Match>()
        .with::<pcap_filter::PcapFilter>()
        .with::<pcap_reader::PcapReader>()
        .with::<pcap_writer::PcapWriter>()
        .with::<rate_limiter::RateLimiter>()
        .with::<repeater::Repeater>()
        .with::<rss::Rss>()
        .with::<sample::Sample>()
        .with::<sink::Sink>()
        .with::<source::Source>()
        .with::<split::Split>()
        .with::<tee::Tee>()
        .with::<truncate::Truncate>()
        .with_object::<state_table::StateTable>()
}
