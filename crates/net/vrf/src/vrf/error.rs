//! Why routes and neighbours cannot be entered.

use std::io;
use std::net::IpAddr;
use std::ops::Range;

use bellows_fib::GroupError;

use crate::adjacency::Exhausted;
use crate::interface::MAX_INTERFACES;
use crate::reserved::Reserved;
use crate::route::IpPrefix;

/// Why a route or a neighbour cannot be entered.
#[derive(Debug, thiserror::Error)]
pub enum VrfError {
    /// Too many interfaces.
    #[error("{0} interfaces are too many: give at most {MAX_INTERFACES}")]
    Interfaces(usize),
    /// There is no interface of this name.
    #[error("there is no interface `{0}`")]
    NoInterface(String),
    /// No interface has the next hop on its link.
    #[error(
        "no interface has {0} on its link: give a router that is on one, or the interface that it answers on \
         (`dev NAME onlink`)"
    )]
    Gateway(IpAddr),
    /// The interface does not have the next hop on its link.
    #[error("{0} is not on a link of `{1}`: give a router that is, or add `onlink` if it answers there all the same")]
    OffLink(IpAddr, String),
    /// No interface has the neighbour on its link.
    #[error("no interface has {0} on its link: give the address of a neighbour")]
    NoLink(IpAddr),
    /// A link-local next hop without an interface.
    #[error("{0} may be on any link: name the interface with `dev`")]
    LinkLocal(IpAddr),
    /// A next hop that no station has as its address.
    #[error("no neighbour can have {prefix}{0}: give the address of a router on the link", prefix = kind(.0))]
    NotAStation(IpAddr),
    /// A next hop that is this router.
    #[error("{0} is an address of this router, on `{1}`: give the address of another one")]
    OwnAddress(IpAddr, String),
    /// A next hop that is the address of a network, or of all its stations.
    #[error("{0} is the address of a whole link of `{1}`: give that of a router on it")]
    LinkAddress(IpAddr, String),
    /// A next hop of IPv4 for IPv6 packets.
    #[error("IPv6 packets cannot be sent to the IPv4 next hop {0}")]
    Family(IpAddr),
    /// A next hop of IPv6 on an interface that has no address to ask for it with.
    #[error("`{1}` has no IPv6 address with which to find {0}: give it one")]
    NoIpv6(IpAddr, String),
    /// A prefix that no packet is forwarded to.
    #[error("{0} is within {1}, where no router forwards packets to: leave the route out")]
    Reserved(IpPrefix, Reserved),
    /// Neighbours that were learned leave room for the next hops of routes.
    #[error("the neighbours that were learned have no more room: the rest is for the next hops of routes")]
    Learned,
    /// There is no room for another adjacency.
    #[error(transparent)]
    Exhausted(#[from] Exhausted),
    /// There is no memory for tables.
    #[error("no memory for the forwarding table: {0}")]
    Memory(#[from] io::Error),
    /// There is a route to the prefix with the same metric.
    #[error("there is a route to {0} with metric {1} already: replace it, or give another metric")]
    Exists(IpPrefix, u32),
    /// The route is that of an interface or a neighbour.
    #[error("the route to {0} with metric {1} is that of an interface: give another metric")]
    Connected(IpPrefix, u32),
    /// The route is that of Linux.
    #[error("the route to {0} with metric {1} comes from Linux: change it there, or give another metric")]
    Kernel(IpPrefix, u32),
    /// There is no route to remove.
    #[error("there is no such route to {0}")]
    NoRoute(IpPrefix),
    /// The routes to be joined are not both to neighbours.
    #[error("the route to {0} forwards nothing, so that it can have no further ways")]
    NotForwarding(IpPrefix),
    /// A neighbour is not on the link.
    #[error("{0} is not on a link of `{1}`")]
    NotOnLink(IpAddr, String),
    /// The ways of a route do not make a group.
    #[error(transparent)]
    Group(#[from] GroupError),
}

impl VrfError {
    /// The bytes of a command that it is about: a word of it, or all of it.
    pub fn place_in(&self, command: &str) -> Range<usize> {
        let is_meant = |word: &str| match self {
            VrfError::NoInterface(name) => word == name,
            VrfError::Gateway(address)
            | VrfError::NoLink(address)
            | VrfError::OffLink(address, _)
            | VrfError::LinkLocal(address)
            | VrfError::NotAStation(address)
            | VrfError::OwnAddress(address, _)
            | VrfError::LinkAddress(address, _)
            | VrfError::Family(address)
            | VrfError::NoIpv6(address, _)
            | VrfError::NotOnLink(address, _) => word.parse() == Ok(*address),
            VrfError::Reserved(prefix, _)
            | VrfError::Exists(prefix, _)
            | VrfError::Connected(prefix, _)
            | VrfError::Kernel(prefix, _)
            | VrfError::NoRoute(prefix)
            | VrfError::NotForwarding(prefix) => word.parse() == Ok(*prefix),
            _ => false,
        };
        // What a word names is behind it, so that of two equal words the later one is the name.
        let meant = command.split_whitespace().rev().find(|word| is_meant(word));
        let start = meant.map(|word| word.as_ptr().addr() - command.as_ptr().addr());
        start.zip(meant).map_or(0..command.len(), |(start, word)| start..start + word.len())
    }

    /// Whether other interfaces could make it right.
    pub fn is_about_interfaces(&self) -> bool {
        matches!(
            self,
            VrfError::NoInterface(_)
                | VrfError::Gateway(_)
                | VrfError::NoLink(_)
                | VrfError::OffLink(..)
                | VrfError::OwnAddress(..)
                | VrfError::LinkAddress(..)
                | VrfError::NoIpv6(..)
                | VrfError::NotOnLink(..)
        )
    }
}

/// The kind of an address that no station has, before it.
fn kind(address: &IpAddr) -> &'static str {
    match address {
        _ if address.is_multicast() => "the multicast address ",
        _ if address.is_loopback() => "the loopback address ",
        _ if address.is_unspecified() => "the unspecified address ",
        IpAddr::V4(address) if address.is_broadcast() => "the broadcast address ",
        _ => "the address ",
    }
}
