//! Routers that differ in how far their nodes look ahead.

use std::sync::{Arc, Mutex};

use bellows_engine::{AppSpec, Engine, Network, Settings};
use bellows_router::ethernet_input::EthernetInput;
use bellows_router::interface_output::InterfaceOutput;
use bellows_router::ip4_input::{self, Ip4Input};
use bellows_router::ip6_input::{self, Ip6Input};
use bellows_router::lookup::{Ip4LookUp, Ip6LookUp};
use bellows_router::rewrite::{Ip4Rewrite, Ip6Rewrite};
use bellows_router::vrf::RoutingDomain;
use serde::{Deserialize, Serialize};

use super::packet_pool::{Circulator, PacketPool};
use crate::benchmarks::router::circulation::{Stamp, Times, VECTOR};
use crate::benchmarks::router::traffic::Family;
use crate::networks::{configured, linked};
use crate::workers::fail;

/// The first node that packets come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(super) enum First {
    /// ethernet-input, as in every router
    Ethernet,
    /// ip4-input or ip6-input, as after network cards that classify packets
    Ip,
}

/// The nodes of a router, in their order.
pub(super) fn nodes(family: Family, first: First) -> Vec<&'static str> {
    let all = match family {
        Family::Ip4 => ["ethernet-input", "ip4-input", "ip4-lookup", "ip4-rewrite", "interface-output"],
        Family::Ip6 => ["ethernet-input", "ip6-input", "ip6-lookup", "ip6-rewrite", "interface-output"],
    };
    all[usize::from(first == First::Ip)..].to_vec()
}

/// How far the nodes of a router look ahead.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Variant {
    /// As the apps say.
    AsIs,
    /// Not at all in one node, given by its position.
    Without(usize),
    /// This many packets in all nodes; with 0 not at all.
    All(usize),
}

impl Variant {
    /// The distance of a node, if it is not what the app says.
    fn distance(&self, node: usize) -> Option<usize> {
        match *self {
            Variant::AsIs => None,
            Variant::Without(without) => (without == node).then_some(0),
            Variant::All(distance) => Some(distance),
        }
    }

    /// What is different, in a few words.
    pub(super) fn name(&self, nodes: &[&str]) -> String {
        match *self {
            Variant::AsIs => "as it is".to_owned(),
            Variant::Without(node) => format!("without {}", nodes.get(node).copied().unwrap_or_default()),
            Variant::All(0) => "without any".to_owned(),
            Variant::All(distance) => format!("all {distance}"),
        }
    }

    /// The variants in which one node does not look ahead, or none. The last node reads no packets.
    pub(super) fn without_each(nodes: &[&str]) -> Vec<Variant> {
        let each = (0..nodes.len() - 1).map(Variant::Without);
        [Variant::AsIs].into_iter().chain(each).chain([Variant::All(0)]).collect()
    }
}

/// A network: a router between two ends of a pool of packets, with stamps between its nodes if `times` is given.
pub(super) struct Parts<'a> {
    pub(super) family: Family,
    pub(super) first: First,
    pub(super) domain: &'a Arc<RoutingDomain>,
    pub(super) packet_pool: &'a Arc<Mutex<PacketPool>>,
    pub(super) times: Option<&'a Arc<Times>>,
}

impl Parts<'_> {
    /// An engine that runs a variant.
    pub(super) fn engine(&self, variant: &Variant, sampling: bool) -> Engine {
        let nodes = nodes(self.family, self.first);
        let mut network = Network::new()
            .app("circulator", Circulator { packet_pool: Arc::clone(self.packet_pool), family: self.family });
        for (position, node) in nodes.iter().enumerate() {
            let app = self.app(node);
            network.apps.push(match variant.distance(position) {
                Some(distance) => app.prefetching(distance),
                None => app,
            });
        }
        for place in 0..self.times.map_or(0, |_| nodes.len() + 2) {
            let Some(times) = self.times else { break };
            network = network.app(&format!("stamp{place}"), Stamp { times: Arc::clone(times), place });
        }
        let network = linked(network, self.links(&nodes));
        let settings = Settings { burst: VECTOR, sampling, ..Settings::default() };
        Engine::new(network, settings, None).unwrap_or_else(|error| fail(&error))
    }

    fn app(&self, node: &str) -> AppSpec {
        let domain = || Arc::clone(self.domain);
        match node {
            "ethernet-input" => AppSpec::new(node, node, "", EthernetInput::new(domain())),
            "ip4-input" => AppSpec::new(node, node, "", configured::<Ip4Input>(ip4_input::Config::default())),
            "ip6-input" => AppSpec::new(node, node, "", configured::<Ip6Input>(ip6_input::Config {})),
            "ip4-lookup" => AppSpec::new(node, node, "", Ip4LookUp::new(domain())),
            "ip6-lookup" => AppSpec::new(node, node, "", Ip6LookUp::new(domain())),
            "ip4-rewrite" => AppSpec::new(node, node, "", Ip4Rewrite::new(domain())),
            "ip6-rewrite" => AppSpec::new(node, node, "", Ip6Rewrite::new(domain())),
            _ => {
                let output = InterfaceOutput::new(self.domain, "out").unwrap_or_else(|| fail(&"no port"));
                AppSpec::new(node, node, "", output)
            }
        }
    }

    /// The links from node to node. In front of the first node are two stamps, behind each node is one.
    fn links(&self, nodes: &[&str]) -> Vec<String> {
        let family = if self.family == Family::Ip4 { "ip4" } else { "ip6" };
        let (mut links, mut from, mut stamps) = (Vec::new(), "circulator.output".to_owned(), 0);
        let mut stamp = |from: &mut String, links: &mut Vec<String>| {
            if self.times.is_some() {
                links.push(format!("{from} -> stamp{stamps}.input"));
                *from = format!("stamp{stamps}.output");
                stamps += 1;
            }
        };
        stamp(&mut from, &mut links);
        for node in nodes {
            stamp(&mut from, &mut links);
            let (input, output) = match *node {
                "ethernet-input" => ("in", family),
                "ip4-rewrite" | "ip6-rewrite" => ("input", "out"),
                "interface-output" => ("rewrite", "output"),
                _ => ("input", "output"),
            };
            links.push(format!("{from} -> {node}.{input}"));
            from = format!("{node}.{output}");
        }
        stamp(&mut from, &mut links);
        links.push(format!("{from} -> circulator.input"));
        links
    }
}
