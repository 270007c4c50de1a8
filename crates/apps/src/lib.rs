//! The apps that come with Bellows, one file each, and the [`registry`] that lists them.
//!
//! A module holds an app and its `Config`, whose documentation is the app's manual. Apps do not use one another; a
//! network file joins them:
//!
//! ```
//! use bellows_apps::registry;
//!
//! let manual = registry();
//! assert_eq!(manual.get("tee").map(|app| app.name()), Some("tee"));
//! ```
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod access_rules;
mod capacity;
mod claims;
#[cfg(test)]
mod event_log;
mod forwarding;
mod headers;
mod icmp_error;
mod ip_frame;
mod ipv4_options;
pub mod ipv6_link;
mod ipv6_options;
pub mod l2vpn;
mod lanes;
mod limit;
mod local;
mod lookup;
pub mod mac_table;
mod pace;
mod path_mtu;
mod policy;
mod port;
mod reverse_path;
mod rewrite;
pub mod router;
mod router_bench;
mod segmentation;
pub mod state_table;
mod too_big;
mod tunnel;
mod virtio;
mod vlan_header;
pub mod vrf;

use bellows_config::Registry;

/// Declares the apps by type and module. The registry lists them, and with it the manual, the schema of network files,
/// the completions, `bench apps` and the tests of all apps.
macro_rules! apps {
    ($($app:ident($module:ident),)*) => {
        $(pub mod $module;)*

        /// Every app, every compound app and every shared object that comes with Bellows.
        pub fn registry() -> Registry {
            Registry::new()$(.with::<$module::$app>())*
                .with_object::<mac_table::MacTable>()
                .with_object::<state_table::StateTable>()
                .with_object::<vrf::RoutingDomain>()
                .with_compound::<l2vpn::L2vpn>()
                .with_compound::<router::Router>()
        }
    };
}

apps! {
    AccessList(access_list),
    AfXdp(af_xdp),
    Arp(arp),
    Bridge(bridge),
    ControlChannel(control_channel),
    Counter(counter),
    Delay(delay),
    Dispatch(dispatch),
    Esp(esp),
    EthernetInput(ethernet_input),
    Fragment(fragment),
    Geneve(geneve),
    Gre(gre),
    Impair(impair),
    Inject(inject),
    InterfaceOutput(interface_output),
    Ip4IcmpError(ip4_icmp_error),
    Ip4Input(ip4_input),
    Ip4Local(ip4_local),
    Ip4LookUp(ip4_lookup),
    Ip4Options(ip4_options),
    Ip4ReversePath(ip4_reverse_path),
    Ip4Rewrite(ip4_rewrite),
    Ip6IcmpError(ip6_icmp_error),
    Ip6Input(ip6_input),
    Ip6Local(ip6_local),
    Ip6LookUp(ip6_lookup),
    Ip6ReversePath(ip6_reverse_path),
    Ip6Rewrite(ip6_rewrite),
    Join(join),
    KeyedTunnel(keyed_tunnel),
    KernelRoutes(kernel_routes),
    Match(matching),
    Nd(nd),
    PcapFilter(pcap_filter),
    PcapReader(pcap_reader),
    PcapWriter(pcap_writer),
    Punt(punt),
    RateLimiter(rate_limiter),
    RawSocket(raw_socket),
    Reassemble(reassemble),
    Repeater(repeater),
    Rss(rss),
    Sample(sample),
    Sink(sink),
    Source(source),
    Split(split),
    Tap(tap),
    Tee(tee),
    Truncate(truncate),
    UnixSocket(unix_socket),
    VhostUser(vhost_user),
    VirtioUser(virtio_user),
    VlanMux(vlan_mux),
    VlanTag(vlan_tag),
    VlanUntag(vlan_untag),
    Vxlan(vxlan),
}
