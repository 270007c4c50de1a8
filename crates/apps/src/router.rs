//! `router`: the apps of a router as one compound app.

use std::collections::BTreeSet;

use bellows_config::{Compound, Configure, Context, Parts, SettingError};
use bellows_engine::Ports;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::arp::{self, Arp};
use crate::ethernet_input::{self, EthernetInput};
use crate::fragment::{self, Fragment};
use crate::icmp_error;
use crate::interface_output::{self, InterfaceOutput};
use crate::ip4_icmp_error::Ip4IcmpError;
use crate::ip4_input::{self, Ip4Input};
use crate::ip4_local::Ip4Local;
use crate::ip4_lookup::Ip4LookUp;
use crate::ip4_rewrite::Ip4Rewrite;
use crate::ip6_icmp_error::Ip6IcmpError;
use crate::ip6_input::{self, Ip6Input};
use crate::ip6_local::Ip6Local;
use crate::ip6_lookup::Ip6LookUp;
use crate::ip6_rewrite::Ip6Rewrite;
use crate::reassemble::{self, Reassemble};
use crate::vrf::{self, InterfaceConfig, RoutingDomain};
use crate::{local, lookup, rewrite};

/// A router for IPv4 and IPv6.
///
/// It forwards packets between its interfaces by static routes, finds the Ethernet addresses of IPv4 neighbours by ARP,
/// answers echo requests, and tells senders by ICMP why their packets are not forwarded. IPv4 packets that are too long
/// for a link are fragmented if they may be, and fragments to the router itself are reassembled. Inputs and outputs
/// have the names of ports: link each one's `output` to the router's input of its name, and the router's output to its
/// `input`. An interface is a port, or a VLAN of one.
///
/// IPv6 neighbours must be given with `neighbours` of their interface; the router does not discover them.
///
/// The keys are those of its routing domain, an object of type `vrf`, which other apps may name as `NAME/vrf`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(transparent)]
pub struct Config(vrf::Config);

/// The apps of a router.
pub struct Router;

/// The name of the routing domain among the parts.
const VRF: &str = "vrf";

/// Adds the apps behind the check of headers.
fn add_family<L, R, O, E>(parts: &mut Parts, ip: &str)
where
    L: Configure<Config = lookup::Config>,
    R: Configure<Config = rewrite::Config>,
    O: Configure<Config = local::Config>,
    E: Configure<Config = icmp_error::Config>,
{
    parts.app::<L>(format!("{ip}-lookup"), lookup::Config { vrf: VRF.to_owned() });
    parts.app::<R>(format!("{ip}-rewrite"), rewrite::Config { vrf: VRF.to_owned() });
    parts.app::<O>(format!("{ip}-local"), local::Config { vrf: VRF.to_owned() });
    parts.app::<E>(format!("{ip}-icmp-error"), icmp_error::Config::of(VRF));
    parts.app::<Fragment>(format!("{ip}-fragment"), fragment::Config::of(VRF));
    parts.app::<Reassemble>(format!("{ip}-reassemble"), reassemble::Config::default());
}

impl Compound for Router {
    const NAME: &'static str = "router";
    const INPUTS: Ports = Ports::Any { at_least: 1, help: "frames that arrive at a port" };
    const OUTPUTS: Ports = Ports::Any { at_least: 1, help: "frames that leave through a port" };
    type Config = Config;

    fn expand(Config(config): Config, _: &Context, parts: &mut Parts) -> Result<(), SettingError> {
        let interfaces = &config.interfaces;
        if interfaces.is_empty() {
            let help = "describe each in a table `interfaces.NAME`, with `mac` and `addresses`";
            return Err(SettingError::at("interfaces", "a router without interfaces forwards nothing", help));
        }
        let port =
            |(name, interface): (&String, &InterfaceConfig)| interface.port.clone().unwrap_or_else(|| name.clone());
        let ports: BTreeSet<String> = interfaces.iter().map(port).collect();
        let vrf = || VRF.to_owned();
        parts.object::<RoutingDomain>(VRF, config);
        parts.app::<EthernetInput>("ethernet-input", ethernet_input::Config { vrf: vrf() });
        parts.app::<Arp>("arp", arp::Config::of(VRF));
        parts.app::<Ip4Input>("ip4-input", ip4_input::Config::default());
        parts.app::<Ip6Input>("ip6-input", ip6_input::Config {});
        add_family::<Ip4LookUp, Ip4Rewrite, Ip4Local, Ip4IcmpError>(parts, "ip4");
        add_family::<Ip6LookUp, Ip6Rewrite, Ip6Local, Ip6IcmpError>(parts, "ip6");
        for ip in ["ip4", "ip6"] {
            for [from, to] in [
                [format!("ethernet-input.{ip}"), format!("{ip}-input.input")],
                [format!("{ip}-input.output"), format!("{ip}-lookup.input")],
                [format!("{ip}-lookup.output"), format!("{ip}-rewrite.input")],
                [format!("{ip}-lookup.local"), format!("{ip}-reassemble.input")],
                [format!("{ip}-reassemble.output"), format!("{ip}-local.input")],
                [format!("{ip}-reassemble.error"), format!("{ip}-icmp-error.reassemble")],
                [format!("{ip}-rewrite.fragment"), format!("{ip}-fragment.input")],
                [format!("{ip}-fragment.output"), format!("{ip}-lookup.fragment")],
                [format!("{ip}-fragment.error"), format!("{ip}-icmp-error.fragment")],
                [format!("{ip}-local.output"), format!("{ip}-lookup.local")],
                [format!("{ip}-input.error"), format!("{ip}-icmp-error.input")],
                [format!("{ip}-lookup.error"), format!("{ip}-icmp-error.lookup")],
                [format!("{ip}-rewrite.error"), format!("{ip}-icmp-error.rewrite")],
                [format!("{ip}-local.error"), format!("{ip}-icmp-error.local")],
                [format!("{ip}-icmp-error.output"), format!("{ip}-lookup.error")],
            ] {
                parts.link(format!("{from} -> {to}"));
            }
        }
        for link in
            ["ethernet-input.arp -> arp.input", "ip4-rewrite.resolve -> arp.resolve", "arp.error -> ip4-icmp-error.arp"]
        {
            parts.link(link);
        }
        for port in ports {
            let output = format!("{port}-output");
            parts.app::<InterfaceOutput>(&output, interface_output::Config { vrf: vrf(), port: port.clone() });
            for [from, to] in [["ip4-rewrite", "ip4"], ["ip6-rewrite", "ip6"], ["arp", "arp"]] {
                parts.link(format!("{from}.{port} -> {output}.{to}"));
            }
            parts.input(&port, format!("ethernet-input.{port}"));
            parts.output(&port, format!("{output}.output"));
        }
        Ok(())
    }
}
