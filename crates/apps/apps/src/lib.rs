//! The apps that come with Bellows, and the [`registry`] that lists them.
//!
//! A module holds an app, or one for each address family, and its `Config`, whose documentation is the app's manual.
//! Apps do not use one another; a network file joins them:
//!
//! ```
//! use bellows_apps::registry;
//!
//! let manual = registry();
//! assert_eq!(manual.get("tee").map(|app| app.name()), Some("tee"));
//! ```
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod access_list;
mod access_rules;
pub mod af_xdp;
pub mod arp;
pub mod bridge;
mod capacity;
mod claims;
pub mod control_channel;
pub mod counter;
pub mod delay;
pub mod dispatch;
pub mod esp;
pub mod ethernet_input;
#[cfg(test)]
mod event_log;
mod forwarding;
pub mod fragment;
mod full_table;
pub mod geneve;
pub mod gre;
mod headers;
pub mod icmp_error;
pub mod impair;
pub mod inject;
pub mod interface_output;
pub mod ip4_input;
pub mod ip4_options;
pub mod ip6_input;
mod ip_frame;
mod ipv4_options;
pub mod ipv6_link;
mod ipv6_options;
pub mod join;
pub mod kernel_routes;
pub mod keyed_tunnel;
pub mod l2vpn;
mod lanes;
mod limit;
pub mod local;
pub mod lookup;
pub mod mac_table;
pub mod matching;
pub mod nd;
mod pace;
mod path_mtu;
pub mod pcap_filter;
pub mod pcap_reader;
pub mod pcap_writer;
mod policy;
mod port;
pub mod punt;
pub mod rate_limiter;
pub mod raw_socket;
pub mod reassemble;
pub mod repeater;
pub mod reverse_path;
pub mod rewrite;
pub mod router;
mod router_bench;
pub mod rss;
pub mod sample;
mod segmentation;
pub mod sink;
pub mod source;
pub mod split;
pub mod state_table;
pub mod tap;
pub mod tee;
mod too_big;
pub mod truncate;
mod tunnel;
pub mod unix_socket;
pub mod vhost_user;
mod virtio;
pub mod virtio_user;
mod vlan_header;
pub mod vlan_mux;
pub mod vlan_tag;
pub mod vlan_untag;
pub mod vrf;
pub mod vxlan;

use bellows_config::Registry;

/// Every app, every compound app and every shared object that comes with Bellows. The manual, the schema of network
/// files, the completions, `bench apps` and the tests of all apps follow from it.
pub fn registry() -> Registry {
    Registry::new()
        .with::<access_list::AccessList>()
        .with::<af_xdp::AfXdp>()
        .with::<arp::Arp>()
        .with::<bridge::Bridge>()
        .with::<control_channel::ControlChannel>()
        .with::<counter::Counter>()
        .with::<delay::Delay>()
        .with::<dispatch::Dispatch>()
        .with::<esp::Esp>()
        .with::<ethernet_input::EthernetInput>()
        .with::<fragment::Fragment>()
        .with::<geneve::Geneve>()
        .with::<gre::Gre>()
        .with::<impair::Impair>()
        .with::<inject::Inject>()
        .with::<interface_output::InterfaceOutput>()
        .with::<icmp_error::Ip4IcmpError>()
        .with::<ip4_input::Ip4Input>()
        .with::<local::Ip4Local>()
        .with::<lookup::Ip4LookUp>()
        .with::<ip4_options::Ip4Options>()
        .with::<reverse_path::Ip4ReversePath>()
        .with::<rewrite::Ip4Rewrite>()
        .with::<icmp_error::Ip6IcmpError>()
        .with::<ip6_input::Ip6Input>()
        .with::<local::Ip6Local>()
        .with::<lookup::Ip6LookUp>()
        .with::<reverse_path::Ip6ReversePath>()
        .with::<rewrite::Ip6Rewrite>()
        .with::<join::Join>()
        .with::<keyed_tunnel::KeyedTunnel>()
        .with::<kernel_routes::KernelRoutes>()
        .with::<matching::Match>()
        .with::<nd::Nd>()
        .with::<pcap_filter::PcapFilter>()
        .with::<pcap_reader::PcapReader>()
        .with::<pcap_writer::PcapWriter>()
        .with::<punt::Punt>()
        .with::<rate_limiter::RateLimiter>()
        .with::<raw_socket::RawSocket>()
        .with::<reassemble::Reassemble>()
        .with::<repeater::Repeater>()
        .with::<rss::Rss>()
        .with::<sample::Sample>()
        .with::<sink::Sink>()
        .with::<source::Source>()
        .with::<split::Split>()
        .with::<tap::Tap>()
        .with::<tee::Tee>()
        .with::<truncate::Truncate>()
        .with::<unix_socket::UnixSocket>()
        .with::<vhost_user::VhostUser>()
        .with::<virtio_user::VirtioUser>()
        .with::<vlan_mux::VlanMux>()
        .with::<vlan_tag::VlanTag>()
        .with::<vlan_untag::VlanUntag>()
        .with::<vxlan::Vxlan>()
        .with_object::<mac_table::MacTable>()
        .with_object::<state_table::StateTable>()
        .with_object::<vrf::RoutingDomain>()
        .with_compound::<l2vpn::L2vpn>()
        .with_compound::<router::Router>()
}
