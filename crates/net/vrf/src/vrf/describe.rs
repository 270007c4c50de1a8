//! Where routes lead, as people read it.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;

use bellows_fib::Path;

use super::VrfChanges;
use crate::adjacency::{AdjacencyKind, special};
use crate::route::{Action, NextHop};

/// Where a route leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RouteTarget {
    /// Nowhere.
    NoRoute,
    /// Packets are dropped without an answer.
    Blackhole,
    /// Packets are answered: destination unreachable.
    Unreachable,
    /// Packets are answered: communication prohibited.
    Prohibit,
    /// To this router.
    Local,
    /// To a multicast group that nobody here belongs to.
    Multicast,
    /// To an address that no packet may be sent to.
    Martian,
    /// To neighbours.
    Forward(Vec<Way>),
}

/// A way of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Way {
    /// The number of the interface.
    pub interface: u16,
    /// The next router, or `None` if the destination is on the link.
    pub gateway: Option<IpAddr>,
    /// The share of flows.
    pub weight: u16,
    /// The longest packet that takes this way, if that is less than the interface's.
    pub mtu: Option<u16>,
    /// The index of the adjacency.
    pub adjacency: u32,
    /// Whether the next router's link-layer address is known.
    pub kind: AdjacencyKind,
    /// False if the neighbour does not answer, so that flows take the other ways.
    pub is_in_use: bool,
}

impl RouteTarget {
    /// The word in front of the prefix, as `ip route` writes it, for routes that forward nothing.
    pub fn word(&self) -> Option<&'static str> {
        match self {
            RouteTarget::NoRoute => Some("throw"),
            RouteTarget::Blackhole => Some("blackhole"),
            RouteTarget::Unreachable => Some("unreachable"),
            RouteTarget::Prohibit => Some("prohibit"),
            RouteTarget::Local => Some("local"),
            RouteTarget::Multicast => Some("multicast"),
            RouteTarget::Martian => Some("martian"),
            RouteTarget::Forward(_) => None,
        }
    }
}

impl VrfChanges<'_> {
    /// Where a route with this number leads.
    pub fn target(&self, next: u32) -> RouteTarget {
        match next {
            special::BLACKHOLE => RouteTarget::Blackhole,
            special::UNREACHABLE => RouteTarget::Unreachable,
            special::PROHIBIT => RouteTarget::Prohibit,
            special::LOCAL => RouteTarget::Local,
            special::MULTICAST => RouteTarget::Multicast,
            special::MARTIAN => RouteTarget::Martian,
            next => {
                let paths = self.ways(next);
                let is_out = |path: &Path| self.groups.is_out_of_use(path.next);
                let of_link = |number| self.vrf.interface(number).map_or(0, |interface| interface.mtu);
                let has_none = paths.iter().all(is_out);
                let ways = paths.into_iter().filter_map(|path| {
                    let adjacency =
                        self.vrf.adjacencies.get(path.next).filter(|it| it.kind != AdjacencyKind::Unused)?;
                    Some(Way {
                        interface: adjacency.interface,
                        gateway: adjacency.next_hop,
                        weight: path.weight,
                        mtu: Some(adjacency.mtu).filter(|mtu| *mtu < of_link(adjacency.interface)),
                        adjacency: path.next,
                        kind: adjacency.kind,
                        is_in_use: has_none || !is_out(&path),
                    })
                });
                let ways: Vec<Way> = ways.collect();
                if ways.is_empty() { RouteTarget::NoRoute } else { RouteTarget::Forward(ways) }
            }
        }
    }

    /// What becomes of packets, as a route of the configuration says it, with the names of interfaces. `None` for what
    /// no configuration can say.
    pub fn action(&self, next: u32) -> Option<Action> {
        match self.target(next) {
            RouteTarget::Blackhole => Some(Action::Blackhole),
            RouteTarget::Unreachable => Some(Action::Unreachable),
            RouteTarget::Prohibit => Some(Action::Prohibit),
            RouteTarget::Forward(ways) => {
                let mut hops: Vec<NextHop> = ways.iter().map(|way| self.hop(way)).collect();
                hops.sort_unstable_by(|one, other| {
                    (&one.interface, one.gateway).cmp(&(&other.interface, other.gateway))
                });
                Some(Action::Forward(hops))
            }
            RouteTarget::NoRoute | RouteTarget::Local | RouteTarget::Multicast | RouteTarget::Martian => None,
        }
    }

    /// A way as a route of the configuration says it: `onlink` if the next router is on none of the interface's links.
    pub fn hop(&self, way: &Way) -> NextHop {
        NextHop {
            gateway: way.gateway,
            interface: self.vrf.interface(way.interface).map(|interface| interface.name.clone()),
            weight: way.weight,
            onlink: way.gateway.is_some_and(|gateway| !self.vrf.has_near(way.interface, gateway)),
            mtu: way.mtu,
        }
    }

    /// A number for where a route leads, the same in all domains with interfaces of the same names.
    pub(super) fn mark(&self, next: u32) -> u64 {
        let mut hasher = DefaultHasher::new();
        match self.action(next) {
            // Whether a router is on the link is the interface's affair.
            Some(Action::Forward(hops)) => {
                hops.iter().for_each(|hop| (hop.gateway, &hop.interface, hop.weight, hop.mtu).hash(&mut hasher));
            }
            _ => next.hash(&mut hasher),
        }
        hasher.finish()
    }
}
