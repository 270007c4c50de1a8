//! The apps of a router for IPv4 and IPv6, and its routing domain.
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod access_list;
mod access_rules;
pub mod arp;
pub mod dispatch;
pub mod ethernet_input;
pub mod forward;
mod forwarding;
pub mod fragment;
pub mod icmp_error;
pub mod inject;
pub mod interface_output;
pub mod ip4_input;
pub mod ip4_options;
pub mod ip6_input;
pub mod ipv6_link;
mod ipv6_options;
pub mod kernel_routes;
pub mod local;
pub mod lookup;
pub mod nd;
mod policy;
pub mod punt;
pub mod reassemble;
pub mod reverse_path;
pub mod rewrite;
mod router_bench;
pub mod vrf;

use bellows_config::Registry;

pub use policy::ReversePath;

/// The catalogue with the apps of this crate and the object `vrf`.
///
/// The code that the engine has for the type of each app is compiled in this crate, too.
pub fn register(registry: Registry) -> Registry {
    registry
        .with::<access_list::AccessList>()
        .with::<arp::Arp>()
        .with::<dispatch::Dispatch>()
        .with::<ethernet_input::EthernetInput>()
        .with::<fragment::Fragment>()
        .with::<inject::Inject>()
        .with::<interface_output::InterfaceOutput>()
        .with::<icmp_error::Ip4IcmpError>()
        .with::<forward::Ip4Forward>()
        .with::<ip4_input::Ip4Input>()
        .with::<local::Ip4Local>()
        .with::<lookup::Ip4LookUp>()
        .with::<ip4_options::Ip4Options>()
        .with::<reverse_path::Ip4ReversePath>()
        .with::<rewrite::Ip4Rewrite>()
        .with::<icmp_error::Ip6IcmpError>()
        .with::<forward::Ip6Forward>()
        .with::<ip6_input::Ip6Input>()
        .with::<local::Ip6Local>()
        .with::<lookup::Ip6LookUp>()
        .with::<reverse_path::Ip6ReversePath>()
        .with::<rewrite::Ip6Rewrite>()
        .with::<kernel_routes::KernelRoutes>()
        .with::<nd::Nd>()
        .with::<punt::Punt>()
        .with::<reassemble::Reassemble>()
        .with_object::<vrf::RoutingDomain>()
}
