//! What the interfaces of a router have besides their addresses: devices of the host, checks of sources, access lists.

use std::net::IpAddr;

use bellows_netif::advertisements::Ignored;
use bellows_vrf::Vrf;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::access_rules::Rule;

/// What the source of a packet must be (RFC 3704).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum ReversePath {
    /// Anything.
    #[default]
    Off,
    /// An address that there is a route to.
    Loose,
    /// An address that there is a route to through the interface that received the packet.
    Strict,
}

/// What an interface has besides its addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Policy {
    /// The name of its device on the host.
    pub(crate) host: Option<String>,
    /// Whether the kernel there ignores router advertisements.
    pub(crate) ignores_advertisements: Option<Ignored>,
    /// What the sources of its packets must be.
    pub(crate) reverse_path: ReversePath,
    /// Which packets may come in; without rules, all.
    pub(crate) access_in: Vec<Rule>,
    /// Which packets may go out; without rules, all.
    pub(crate) access_out: Vec<Rule>,
    /// Whether only stations with an address on the link are answered where the router is.
    pub(crate) strict_neighbours: bool,
}

/// The policies of interfaces, by their numbers.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Policies {
    policies: Vec<Policy>,
    has_host: bool,
}

impl Policies {
    /// The policies of the interfaces from number 1 on.
    pub(crate) fn new(policies: Vec<Policy>) -> Policies {
        let has_host = policies.iter().any(|policy| policy.host.is_some());
        Policies { policies, has_host }
    }

    /// The policy of an interface.
    pub(crate) fn of(&self, interface: u16) -> Option<&Policy> {
        self.policies.get(usize::from(interface).checked_sub(1)?)
    }

    /// Whether only stations with an address on an interface's link are answered where the router is.
    #[inline]
    pub(crate) fn are_neighbours_strict(&self, interface: u16) -> bool {
        self.of(interface).is_some_and(|policy| policy.strict_neighbours)
    }

    /// Whether the host may hear router advertisements of an interface.
    pub(crate) fn may_hear_routers(&self, interface: u16) -> bool {
        let ignored = self.of(interface).and_then(|policy| policy.ignores_advertisements.as_ref());
        ignored.is_some_and(Ignored::get)
    }

    fn has_device(&self, interface: u16) -> bool {
        self.of(interface).is_some_and(|policy| policy.host.is_some())
    }

    /// Whether an interface has a device on the host, as far as is known here: if no interface has one, the host is
    /// elsewhere.
    pub(crate) fn may_have_host(&self, interface: u16) -> bool {
        !self.has_host || self.has_device(interface)
    }

    /// The interface on whose device the host gets a packet: the one that received it, or the one with its destination.
    /// If no interface has a device, all packets are for a host elsewhere.
    pub(crate) fn host_for(&self, tables: &Vrf, received_on: u16, destination: IpAddr) -> Option<u16> {
        if self.may_have_host(received_on) {
            return Some(received_on);
        }
        let has = |(number, interface): &(u16, &bellows_vrf::Interface)| {
            self.has_device(*number) && interface.has_address(destination)
        };
        (1..).zip(tables.interfaces()).find(has).map(|(number, _)| number)
    }
}
